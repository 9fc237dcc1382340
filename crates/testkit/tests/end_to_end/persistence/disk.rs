//! Disks that fail: full ones, ones that hang, ones that lose what they took. Writes are refused or
//! wait, memory stays bounded, all is well once the disk is, and nothing that was acknowledged is
//! lost.

use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use bobbin_testkit::disk::{FragileDisk, SmallDisk};
use bobbin_testkit::{ReceiveOutcome, ReplyFrame, TestConnection, TestServer, peers};

const LIMIT: Duration = Duration::from_secs(60);

fn ask(connection: &mut TestConnection, words: &[&str]) -> String {
    let reply = connection.call(words).expect("answers");
    match reply.items() {
        [] => reply.text(),
        items => items.iter().map(ReplyFrame::text).collect::<Vec<_>>().join(" "),
    }
}

/// Asks again and again until the reply is as wanted.
fn until(connection: &mut TestConnection, words: &[&str], wanted: impl Fn(&str) -> bool) -> String {
    let deadline = Instant::now() + LIMIT;
    loop {
        let reply = ask(connection, words);
        if wanted(&reply) {
            return reply;
        }
        assert!(Instant::now() < deadline, "{words:?}: {reply}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn kill(server: &mut TestServer) {
    assert!(server.kill(), "it dies");
}

fn with_log<'a>(dir: &'a str, policy: &'a str) -> Vec<&'a str> {
    vec!["--dir", dir, "--appendonly", "yes", "--appendfsync", policy, "--io-threads", "2"]
}

/// Without room for a snapshot writes are refused; the old one stays, and a new one is made once
/// there is room.
#[test]
#[ignore = "end to end: run by `cargo xtask test`"]
fn a_disk_too_full_for_snapshots() {
    let Some(disk) = SmallDisk::new("1m") else { return };
    let arguments = ["--dir", disk.text(), "--save", "3600 1000000", "--rdbcompression", "no"];
    let mut server = TestServer::bobbin(&arguments);
    let mut client = server.connect();
    assert_eq!(ask(&mut client, &["SET", "old", "1"]), "OK");
    assert_eq!(ask(&mut client, &["SAVE"]), "OK");
    let old = std::fs::read(disk.path().join("dump.rdb")).expect("it was saved");
    let value = "x".repeat(1 << 20);
    for key in ["a", "b"] {
        assert_eq!(ask(&mut client, &["SET", key, &value]), "OK");
    }
    ask(&mut client, &["BGSAVE"]);
    until(&mut client, &["INFO", "persistence"], |info| {
        info.contains("rdb_last_bgsave_status:err") && info.contains("rdb_bgsave_in_progress:0")
    });
    let refused = ask(&mut client, &["SET", "new", "1"]);
    assert!(refused.starts_with("MISCONF"), "{refused}");
    assert_eq!(ask(&mut client, &["GET", "old"]), "1");
    let ping = ask(&mut client, &["PING"]);
    assert!(ping.starts_with("MISCONF"), "{ping}");
    assert_eq!(std::fs::read(disk.path().join("dump.rdb")).expect("it is there"), old);
    let names = std::fs::read_dir(disk.path()).expect("is read").count();
    assert_eq!(names, 1, "what was begun is taken away");
    disk.remount("size=64m");
    assert_eq!(ask(&mut client, &["SAVE"]), "OK");
    assert_eq!(ask(&mut client, &["SET", "new", "1"]), "OK");
    kill(&mut server);
    let server = TestServer::bobbin(&arguments);
    let mut client = server.connect();
    assert_eq!(ask(&mut client, &["STRLEN", "b"]), value.len().to_string());
}

/// On a read-only disk writes are refused too, and the log cannot be turned on.
#[test]
#[ignore = "end to end: run by `cargo xtask test`"]
fn a_folder_that_is_read_only() {
    let Some(disk) = SmallDisk::new("16m") else { return };
    let server = TestServer::bobbin(&["--dir", disk.text(), "--save", "3600 1000000"]);
    let mut client = server.connect();
    assert_eq!(ask(&mut client, &["SET", "k", "1"]), "OK");
    disk.remount("ro");
    assert_eq!(ask(&mut client, &["SAVE"]), "ERR");
    assert_eq!(ask(&mut client, &["SET", "k", "1"]), "OK");
    assert_eq!(ask(&mut client, &["BGSAVE"]), "Background saving started");
    until(&mut client, &["SET", "k", "1"], |reply| reply.starts_with("MISCONF"));
    // Memory comes first, as in Valkey.
    assert_eq!(ask(&mut client, &["CONFIG", "SET", "maxmemory", "1"]), "OK");
    let refused = ask(&mut client, &["SET", "k", "2"]);
    assert!(refused.starts_with("OOM"), "{refused}");
    assert_eq!(ask(&mut client, &["CONFIG", "SET", "maxmemory", "0"]), "OK");
    let refused = ask(&mut client, &["CONFIG", "SET", "appendonly", "yes"]);
    assert!(refused.contains("Unable to turn on AOF"), "{refused}");
    assert_eq!(ask(&mut client, &["CONFIG", "GET", "appendonly"]), "appendonly no");
    assert_eq!(ask(&mut client, &["GET", "k"]), "1");
    disk.remount("rw");
    assert_eq!(ask(&mut client, &["SAVE"]), "OK");
    assert_eq!(ask(&mut client, &["SET", "k", "2"]), "OK");
    assert_eq!(ask(&mut client, &["CONFIG", "SET", "appendonly", "yes"]), "OK");
}

/// On a full disk writes are refused, reads go on, and all is well once there is room.
#[test]
#[ignore = "end to end: run by `cargo xtask test`"]
fn a_full_disk() {
    let Some(disk) = SmallDisk::new("1m") else { return };
    let dir = disk.text();
    let mut server = TestServer::bobbin(&["--dir", dir, "--appendonly", "yes"]);
    let mut client = server.connect();
    let value = "x".repeat(50_000);
    let deadline = Instant::now() + Duration::from_secs(30);
    let mut acknowledged = 0;
    loop {
        let reply = client.call(&["SET", "key", &value]).expect("it answers");
        if reply.text().contains("MISCONF") {
            break;
        }
        acknowledged += 1;
        assert!(Instant::now() < deadline, "{acknowledged} writes went to a full disk");
        std::thread::sleep(Duration::from_millis(5));
    }
    assert!(acknowledged >= 10);
    assert_eq!(ask(&mut client, &["GET", "key"]).len(), value.len());
    disk.remount("size=64m");
    loop {
        let reply = client.call(&["SET", "last", "1"]).expect("it answers");
        if reply.text() == "OK" {
            break;
        }
        assert!(Instant::now() < deadline, "no recovery");
        std::thread::sleep(Duration::from_millis(20));
    }
    client.call(&["WAITAOF", "1", "0", "0"]).expect("it answers");
    kill(&mut server);
    let server = TestServer::bobbin(&["--dir", dir, "--appendonly", "yes"]);
    let mut client = server.connect();
    assert_eq!(ask(&mut client, &["GET", "last"]), "1");
    assert_eq!(ask(&mut client, &["STRLEN", "key"]), "50000");
}

/// What the disk never took is lost at the end, and the server's log says so.
#[test]
#[ignore = "end to end: run by `cargo xtask test`"]
fn an_end_on_a_full_disk_says_what_is_lost() {
    let Some(disk) = SmallDisk::new("1m") else { return };
    let arguments = [&with_log(disk.text(), "everysec")[..], &["--save", ""]].concat();
    let mut server = TestServer::bobbin(&arguments);
    let mut client = server.connect();
    let value = "x".repeat(50_000);
    until(&mut client, &["APPEND", "key", &value], |reply| reply.starts_with("MISCONF"));
    server.signal("TERM");
    assert!(server.wait(LIMIT).is_some_and(|status| status.success()));
    let log = server.log();
    assert!(!log.contains("looks solved"), "{log}");
    assert!(log.contains("The disk did not take the last "), "{log}");
}

/// A server starts on a disk that it has filled itself, and what the log has is there.
#[test]
#[ignore = "end to end: run by `cargo xtask test`"]
fn a_start_on_a_full_disk() {
    let Some(disk) = SmallDisk::new("1m") else { return };
    let arguments = with_log(disk.text(), "everysec");
    let mut server = TestServer::bobbin(&arguments);
    let mut client = server.connect();
    let value = "x".repeat(50_000);
    until(&mut client, &["APPEND", "key", &value], |reply| reply.starts_with("MISCONF"));
    kill(&mut server);
    // The first start cuts off half a command, for which there was no room. So there is some again.
    for _ in 0..2 {
        let mut server = TestServer::start(&peers::bobbin(), &arguments).expect("it starts");
        let mut client = server.connect();
        let len: usize = ask(&mut client, &["STRLEN", "key"]).parse().expect("a number");
        assert!(len >= 10 * value.len(), "{len}");
        kill(&mut server);
        let rest =
            std::fs::OpenOptions::new().append(true).create(true).open(disk.path().join("rest"));
        let mut rest = rest.expect("it can be made");
        while rest.write(&[0; 512]).is_ok_and(|count| count > 0) {}
    }
}

/// With `always` a reply that the disk does not back is not sent; it comes when there is room.
#[test]
#[ignore = "end to end: run by `cargo xtask test`"]
fn a_full_disk_keeps_replies_back() {
    let Some(disk) = SmallDisk::new("1m") else { return };
    let arguments = with_log(disk.text(), "always");
    let mut server = TestServer::bobbin(&arguments);
    let (mut client, mut other) = (server.connect(), server.connect());
    let value = "x".repeat(50_000);
    let mut told = 0;
    loop {
        client.send(&["SET", &format!("k{told}"), &value]).expect("is sent");
        match client.receive_within(Duration::from_secs(1)).expect("it lives") {
            ReceiveOutcome::Reply(reply) if reply.text() == "OK" => told += 1,
            ReceiveOutcome::Reply(reply) => panic!("{}", reply.text()),
            ReceiveOutcome::Nothing => break,
            ReceiveOutcome::Closed => panic!("it lives"),
        }
        assert!(told < 30, "so much does not fit the disk");
    }
    let refused = until(&mut other, &["SET", "more", "1"], |reply| reply.starts_with("MISCONF"));
    assert!(
        refused.starts_with("MISCONF Errors writing to the AOF file: No space left"),
        "{refused}"
    );
    disk.remount("size=64m");
    assert_eq!(client.receive().expect("at last").text(), "OK");
    until(&mut other, &["SET", "more", "1"], |reply| reply == "OK");
    kill(&mut server);
    let server = TestServer::bobbin(&arguments);
    let mut client = server.connect();
    assert_eq!(ask(&mut client, &["DBSIZE"]), (told + 2).to_string());
}

/// With `always`, too, a client that asks how things are is answered while the disk is full, and so
/// is one that reads keys that the disk has as they are; only what a reply would tell that is not
/// on disk waits.
#[test]
#[ignore = "end to end: run by `cargo xtask test`"]
fn a_full_disk_prevents_no_diagnosis_and_no_other_read() {
    let Some(disk) = SmallDisk::new("1m") else { return };
    let server = TestServer::bobbin(&with_log(disk.text(), "always"));
    let mut client = server.connect();
    for line in ["SET before 1", "HSET h f v", "SADD s a b"] {
        assert!(!client.say(line).is_error());
    }
    let value = "x".repeat(50_000);
    let mut told = 0;
    loop {
        client.send(&["SET", &format!("k{told}"), &value]).expect("is sent");
        match client.receive_within(Duration::from_secs(1)).expect("it lives") {
            ReceiveOutcome::Reply(reply) if reply.text() == "OK" => told += 1,
            ReceiveOutcome::Nothing => break,
            other => panic!("{other:?}"),
        }
        assert!(told < 30, "so much does not fit the disk");
    }
    let mut other = server.connect();
    until(&mut other, &["SET", "more", "1"], |reply| reply.starts_with("MISCONF"));
    for _ in 0..20 {
        let mut other = server.connect();
        for (line, expected) in [
            ("PING", "MISCONF"),
            ("ECHO x", "x"),
            ("GET before", "1"),
            ("HGET h f", "v"),
            ("SISMEMBER s a", "1"),
            ("EXISTS before h", "2"),
            ("GET k0", &value),
            ("SET before 2", "MISCONF"),
            ("INFO persistence", "aof_last_write_status:err"),
            ("CONFIG GET appendfsync", "always"),
        ] {
            let words: Vec<_> = line.split(' ').collect();
            other.send(&words).expect("is sent");
            let ReceiveOutcome::Reply(reply) = other.receive_within(LIMIT).expect("it lives")
            else {
                panic!("{line} got no answer");
            };
            let shown =
                reply.items().iter().map(ReplyFrame::text).fold(reply.text(), |a, b| a + &b);
            assert!(shown.contains(expected), "{line}: {shown}");
        }
    }
    // What is not on disk is not told.
    for line in [format!("GET k{told}"), format!("MGET before k{told}"), "DBSIZE".to_owned()] {
        let mut other = server.connect();
        other.send(&line.split(' ').collect::<Vec<_>>()).expect("is sent");
        let heard = other.receive_within(Duration::from_millis(300)).expect("it lives");
        assert!(heard == ReceiveOutcome::Nothing, "{line}: {heard:?}");
    }
    disk.remount("size=64m");
    assert_eq!(client.receive().expect("at last").text(), "OK");
}

/// A failed `fsync` has lost the data it was called for, even if the next one succeeds. So the
/// server must write a new base before anything counts as safe.
#[test]
#[ignore = "end to end: run by `cargo xtask test`"]
fn what_a_failed_fsync_lost_is_written_anew() {
    let Some(disk) = FragileDisk::new("3m") else { return };
    let arguments = with_log(disk.text(), "everysec");
    let mut server = TestServer::bobbin(&arguments);
    let mut client = server.connect();
    let value = "x".repeat(100_000);
    let (mut told, deadline) = (0, Instant::now() + LIMIT);
    loop {
        let reply = ask(&mut client, &["SET", &format!("k{told}"), &value]);
        if reply.starts_with("MISCONF Errors writing to the AOF file: ") {
            break;
        }
        assert_eq!(reply, "OK");
        told += 1;
        assert!(Instant::now() < deadline, "{told} writes, and no error");
        std::thread::sleep(Duration::from_millis(20));
    }
    // That later ones succeed means nothing: what would be written now lies behind a hole.
    for _ in 0..75 {
        let reply = ask(&mut client, &["SET", "behind", "1"]);
        assert!(reply.starts_with("MISCONF"), "{reply}");
        std::thread::sleep(Duration::from_millis(20));
    }
    disk.give("200m");
    until(&mut client, &["SET", "last", "1"], |reply| reply == "OK");
    assert_eq!(ask(&mut client, &["WAITAOF", "1", "0", "0"]), "1 0");
    kill(&mut server);
    drop(server);
    assert!(disk.replug(), "what is left is what the disk has");
    let server = TestServer::bobbin(&arguments);
    let mut client = server.connect();
    assert_eq!(ask(&mut client, &["DBSIZE"]), (told + 1).to_string());
    assert_eq!(ask(&mut client, &["STRLEN", &format!("k{}", told - 1)]), value.len().to_string());
}

/// With `always` the server ends instead: it cannot keep its promise.
#[test]
#[ignore = "end to end: run by `cargo xtask test`"]
fn a_failed_fsync_ends_a_server_that_promised_one() {
    let Some(disk) = FragileDisk::new("3m") else { return };
    let arguments = with_log(disk.text(), "always");
    let mut server = TestServer::bobbin(&arguments);
    let mut client = server.connect();
    let value = "x".repeat(100_000);
    let mut told = 0;
    while client.call(&["SET", &format!("k{told}"), &value]).is_ok_and(|reply| reply.text() == "OK")
    {
        told += 1;
        assert!(told < 60, "so much does not fit the disk");
    }
    let status = server.wait(LIMIT).expect("it ends");
    assert_eq!(status.code(), Some(1));
    assert!(server.log().contains("Can't persist AOF for fsync error"), "{}", server.log());
    drop(server);
    // The disk stays as it is: taken away, a file system without a journal may forget what it had
    // kept, too.
    disk.give("200m");
    mend(disk.path());
    let server = TestServer::bobbin(&arguments);
    let mut client = server.connect();
    let keys: usize = ask(&mut client, &["DBSIZE"]).parse().expect("a number");
    assert!(keys == told || keys == told + 1, "{keys} are there, {told} were told");
}

/// Has the tool cut off what is no log.
fn mend(dir: &Path) {
    let mut child = Command::new(peers::bobbin())
        .args(["--check-aof", "--fix"])
        .arg(dir.join("appendonlydir/appendonly.aof.manifest"))
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .spawn()
        .expect("it starts");
    // It need not ask.
    let _ = child.stdin.take().expect("a pipe").write_all(b"y\n");
    assert!(child.wait().expect("it ends").success());
}

/// While a disk hangs, others read; a client that writes waits before the memory is full of what
/// could not be written.
#[test]
#[ignore = "end to end: run by `cargo xtask test`"]
fn a_disk_that_hangs() {
    const CLIENTS: usize = 4;
    const WRITES: usize = 400;
    let Some(disk) = FragileDisk::new("300m") else { return };
    let arguments = with_log(disk.text(), "everysec");
    let mut server = TestServer::bobbin(&arguments);
    let mut reader = server.connect();
    ask(&mut reader, &["SET", "k", "v"]);
    assert!(disk.freeze(), "it hangs");
    let value = "x".repeat(100_000);
    let before = server.resident_bytes();
    std::thread::scope(|scope| {
        let writers: Vec<_> = (0..CLIENTS)
            .map(|number| {
                let (mut client, value) = (server.connect(), &value);
                scope.spawn(move || {
                    for count in 0..WRITES {
                        let key = format!("key{number}");
                        let words = ["SET", &key, value, "GET"];
                        client.call(&words).expect("in the end");
                        let counter = format!("count{number}");
                        let count = (count + 1).to_string();
                        client.call(&["SET", &counter, &count]).expect("in the end");
                    }
                })
            })
            .collect();
        // They stop by themselves.
        let mut last = String::new();
        until(&mut reader, &["INFO", "clients"], |info| {
            info.contains(&format!("blocked_clients:{CLIENTS}"))
        });
        for _ in 0..3 {
            let counts = ask(&mut reader, &["MGET", "count0", "count1", "count2", "count3"]);
            assert!(last.is_empty() || last == counts, "nobody writes on");
            last = counts;
            std::thread::sleep(Duration::from_millis(100));
        }
        let grown = server.resident_bytes().saturating_sub(before) >> 20;
        let written = (CLIENTS * WRITES * value.len()) >> 20;
        assert!(grown < 110, "{grown} MiB of {written}");
        assert_eq!(ask(&mut reader, &["GET", "k"]), "v");
        assert!(writers.iter().all(|writer| !writer.is_finished()));
        disk.thaw();
    });
    ask(&mut reader, &["SET", "end", "1"]);
    assert_eq!(ask(&mut reader, &["WAITAOF", "1", "0", "0"]), "1 0");
    kill(&mut server);
    let server = TestServer::bobbin(&arguments);
    let mut client = server.connect();
    for number in 0..CLIENTS {
        assert_eq!(ask(&mut client, &["GET", &format!("count{number}")]), WRITES.to_string());
    }
}

/// With `always` a worker may wait for a disk that has always been quick, but not for one that hung
/// not long ago.
#[test]
#[ignore = "end to end: run by `cargo xtask test`"]
fn a_disk_that_hangs_again_holds_up_nobody_else() {
    let Some(disk) = FragileDisk::new("100m") else { return };
    let server = TestServer::bobbin(
        &[&with_log(disk.text(), "always")[..], &["--io-threads", "1"]].concat(),
    );
    let (mut client, mut other) = (server.connect(), server.connect());
    for again in [false, true] {
        (0..200).for_each(|_| assert_eq!(client.say("SET k 1").text(), "OK"));
        assert!(disk.freeze(), "it hangs");
        client.send(&["SET", "k", "2"]).expect("is sent");
        let heard = client.receive_within(Duration::from_millis(500)).expect("it lives");
        assert_eq!(heard, ReceiveOutcome::Nothing);
        other.send(&["PING"]).expect("is sent");
        // The first time they may be with the worker that waits.
        let limit = Duration::from_secs(if again { 10 } else { 0 });
        let heard = other.receive_within(limit).expect("it lives");
        disk.thaw();
        if heard == ReceiveOutcome::Nothing {
            assert!(!again, "a worker waits for a disk that hung before");
            assert_eq!(other.receive().expect("at last").text(), "PONG");
        }
        assert_eq!(client.receive().expect("at last").text(), "OK");
    }
}

/// With `always` a client whose replies wait for a disk that hangs cannot pile them up.
#[test]
#[ignore = "end to end: run by `cargo xtask test`"]
fn replies_that_wait_do_not_pile_up() {
    const READS: usize = 20_000;
    let Some(disk) = FragileDisk::new("100m") else { return };
    let arguments = with_log(disk.text(), "always");
    let server = TestServer::bobbin(&arguments);
    let mut client = server.connect();
    let value = "x".repeat(10_000);
    ask(&mut client, &["SET", "k", &value]);
    assert!(disk.freeze(), "it hangs");
    let before = server.resident_bytes();
    client.send(&["SET", "other", "1"]).expect("is sent");
    for _ in 0..READS {
        client.send(&["GET", "k"]).expect("is sent");
    }
    assert_eq!(
        client.receive_within(Duration::from_millis(500)).expect("lives"),
        ReceiveOutcome::Nothing
    );
    let grown = server.resident_bytes().saturating_sub(before) >> 20;
    assert!(grown < 40, "{grown} MiB of {}", (READS * value.len()) >> 20);
    disk.thaw();
    assert_eq!(client.receive().expect("at last").text(), "OK");
    for _ in 0..READS {
        assert_eq!(client.receive().expect("at last").text().len(), value.len());
    }
}
