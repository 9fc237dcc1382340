//! Limits that the system sets to the server: the size of files, threads, descriptors, cores; and
//! the limit of memory beside them.

use std::process::Command;

use bobbin_testkit::disk::Folder;
use bobbin_testkit::{TestConnection, TestServer, peers, until};

const KEYS: usize = 60_000;

/// Starts a server below a limit, as `prlimit` names it.
fn limited(limit: &str, arguments: &[&str]) -> TestServer {
    let begin = || {
        let mut command = Command::new("prlimit");
        command.arg(limit).arg(peers::bobbin());
        command
    };
    TestServer::start_by(begin, arguments).expect("it starts")
}

fn field(of: &mut TestConnection, section: &str, name: &str) -> String {
    let text = of.call(&["INFO", section]).expect("answers").text();
    let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
    line.unwrap_or_else(|| panic!("no {name} in {text}")).to_owned()
}

/// A snapshot that is larger than a file may be fails as it does on a full disk. The server goes
/// on.
#[test]
#[ignore = "end to end: run by `cargo xtask test`"]
fn a_file_that_gets_too_large_is_an_error() {
    let mut server = limited("--fsize=1048576", &["--save", "", "--rdbcompression", "no"]);
    let mut client = server.connect();
    let value = "v".repeat(64 * 1024);
    for key in 0..40 {
        client.call(&["SET", &format!("{key}"), &value]).expect("is stored");
    }
    client.call(&["BGSAVE"]).expect("answers");
    until(|| field(&mut client, "persistence", "rdb_last_bgsave_status") == "err");
    assert!(server.is_running());
    assert!(server.log().contains("File too large"), "{}", server.log());
}

/// Where no thread can be had, large values are freed at once, and do not count as pending. Once a
/// thread can be had, they are freed there.
#[test]
#[ignore = "end to end: run by `cargo xtask test`"]
fn values_are_freed_without_a_thread() {
    let folder = Folder::new();
    let Some(server) = TestServer::of_nobody(folder.path(), &["--maxmemory", "100mb"]) else {
        return;
    };
    let mut client = server.connect();
    server.refuse_threads(true);
    let value = "v".repeat(10_000_000);
    for _ in 0..20 {
        assert_eq!(client.call(&["SET", "k", &value]).expect("answers").text(), "OK");
        client.call(&["UNLINK", "k"]).expect("answers");
    }
    assert_eq!(field(&mut client, "memory", "lazyfree_pending_objects"), "0");
    let refused = (0..20).find(|key| {
        let reply = client.call(&["SET", &format!("{key}"), &value]).expect("answers").text();
        reply.starts_with("OOM")
    });
    assert!((8..=10).contains(&refused.expect("memory has a limit")), "{refused:?}");
    // An option whose thread cannot be had is not set.
    for option in ["activedefrag yes", "watchdog-period 500"] {
        let refused = client.say(&format!("CONFIG SET {option}")).text();
        assert!(refused.contains("CONFIG SET failed"), "{option}: {refused}");
    }
    assert_eq!(client.say("CONFIG GET activedefrag").items()[1].text(), "no");
    server.refuse_threads(false);
    until(|| {
        client.call(&["SET", "0", "small"]).expect("answers");
        client.call(&["SET", "0", &value]).expect("answers");
        client.call(&["UNLINK", "0"]).expect("answers");
        field(&mut client, "memory", "lazyfreed_objects") != "0"
    });
}

/// Starts a server whose worker, and whose thread that frees memory, have one core. The thread gets
/// little of it.
fn on_one_core() -> TestServer {
    let cores = ["--server-cpulist", "0", "--bio-cpulist", "0", "--io-threads", "1"];
    TestServer::bobbin(&cores)
}

/// What FLUSHALL removed is freed before keys are evicted.
#[test]
#[ignore = "end to end: run by `cargo xtask test`"]
fn flushed_keys_make_room_for_new_ones() {
    let server = on_one_core();
    let mut client = server.connect();
    fill(&mut client, "old", KEYS);
    let used: usize = field(&mut client, "memory", "used_memory").parse().expect("a number");
    client.call(&["CONFIG", "SET", "maxmemory-policy", "allkeys-lru"]).expect("answers");
    client.call(&["CONFIG", "SET", "maxmemory", &(used + used / 20).to_string()]).expect("answers");
    assert_eq!(client.say("FLUSHALL ASYNC").text(), "OK");
    fill(&mut client, "new", KEYS);
    assert_eq!(field(&mut client, "stats", "evicted_keys"), "0");
    assert_eq!(client.say("DBSIZE").as_integer(), Some(KEYS as i64));
    until(|| field(&mut client, "memory", "lazyfree_pending_objects") == "0");
    assert_eq!(field(&mut client, "memory", "lazyfreed_objects"), KEYS.to_string());
}

/// Without a limit of memory, too, flushed keys go while new ones come. Most of them: a turn that
/// other programs interrupt frees fewer.
#[test]
#[ignore = "end to end: run by `cargo xtask test`"]
fn flushed_keys_are_freed_while_new_ones_come() {
    let server = on_one_core();
    let mut client = server.connect();
    fill(&mut client, "old", KEYS);
    assert_eq!(client.say("FLUSHALL ASYNC").text(), "OK");
    fill(&mut client, "new", KEYS);
    let pending: usize =
        field(&mut client, "memory", "lazyfree_pending_objects").parse().expect("a number");
    assert!(pending < KEYS / 2, "{pending}");
}

/// Sets keys, with many commands on their way.
fn fill(client: &mut TestConnection, prefix: &str, keys: usize) {
    let value = "v".repeat(100);
    for first in (0..keys).step_by(1000) {
        for key in first..first + 1000 {
            client.send(&["SET", &format!("{prefix}:{key:06}"), &value]).expect("is sent");
        }
        for _ in 0..1000 {
            assert_eq!(client.receive().expect("is answered").text(), "OK");
        }
    }
}

/// Threads that are added later take descriptors too, and leave those that the server keeps for its
/// files.
#[test]
#[ignore = "end to end: run by `cargo xtask test`"]
fn more_threads_raise_the_limit_of_descriptors() {
    let server = limited("--nofile=60:2000", &["--maxclients", "40", "--io-threads", "1"]);
    let mut client = server.connect();
    let limit = || {
        let limits = std::fs::read_to_string(format!("/proc/{}/limits", server.id()));
        let limits = limits.expect("the system tells");
        let line = limits.lines().find_map(|line| line.strip_prefix("Max open files"));
        let soft = line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok());
        soft.expect("a number")
    };
    let before = limit();
    assert_eq!(client.say("CONFIG SET io-threads 16").text(), "OK");
    assert_eq!(limit(), before + 15 * 4);
    // More than may be had is refused, and nothing changes. The reply says what would help.
    assert_eq!(client.say("CONFIG SET maxclients 1900").text(), "OK");
    let refused = client.say("CONFIG SET io-threads 64").text();
    assert!(
        refused.ends_with("or set maxclients in the same command, to 1712 or less"),
        "{refused}"
    );
    assert_eq!(client.say("CONFIG GET io-threads").items()[1].text(), "16");
    assert_eq!(client.say("CONFIG GET maxclients").items()[1].text(), "1900");
    assert!(!server.log().contains("has been reduced"), "{}", server.log());
    assert_eq!(client.say("CONFIG SET io-threads 64 maxclients 1712").text(), "OK");
    let refused = client.say("CONFIG SET maxclients 1900").text();
    assert!(refused.ends_with("try with 1712"), "{refused}");
    assert!(!server.log().contains("has been reduced"), "{}", server.log());
}

/// A SAVE that fails tells its client, and is no failed save in the background: writes go on.
#[test]
#[ignore = "end to end: run by `cargo xtask test`"]
fn a_save_that_fails_refuses_no_writes() {
    let mut replies = [TestServer::bobbin, TestServer::valkey].map(|start| {
        let server = start(&["--save", "3600 1"]);
        std::fs::create_dir(server.folder().join("dump.rdb")).expect("it is made");
        let mut client = server.connect();
        client.say("SET k v");
        let saved = client.say("SAVE").text();
        let status = field(&mut client, "persistence", "rdb_last_bgsave_status");
        (saved, status, client.say("SET k v").text())
    });
    replies.sort();
    assert_eq!(replies[0], ("ERR".to_owned(), "ok".to_owned(), "OK".to_owned()));
    assert_eq!(replies[0], replies[1]);
}
