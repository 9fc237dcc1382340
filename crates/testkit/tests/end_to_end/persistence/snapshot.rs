//! Snapshots: what is saved is there after a start, on this server and on others; what is damaged
//! is refused.

use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use bobbin_testkit::disk::Folder;
use bobbin_testkit::server::free_port;
use bobbin_testkit::{ReceiveOutcome, TestConnection, TestServer, peers, until};

/// Values of every type, packed and not.
fn fill(to: &mut TestConnection, keys: usize) {
    for key in 0..keys {
        let (name, many) = (format!("{key}"), if key % 7 == 0 { 700 } else { 5 });
        let words = |command: &str, kind: &str, of: &dyn Fn(usize) -> Vec<String>| {
            let mut words = vec![command.to_owned(), format!("{kind}:{name}")];
            words.extend((0..many).flat_map(of));
            words
        };
        for words in [
            vec!["SET".into(), format!("s:{name}"), "value ".repeat(key % 40)],
            vec!["SET".into(), format!("e:{name}"), name.clone(), "EX".into(), "10000".into()],
            words("RPUSH", "l", &|n| vec![format!("element {n}")]),
            words("SADD", "i", &|n| vec![format!("{}", n * 70_000)]),
            words("SADD", "m", &|n| vec![format!("member {n}")]),
            words("ZADD", "z", &|n| vec![format!("{}", n as f64 / 3.0), format!("m{n}")]),
            words("HSET", "h", &|n| vec![format!("f{n}"), format!("v{n}")]),
            vec!["XADD".into(), format!("x:{}", key % 3), "*".into(), "f".into(), name.clone()],
        ] {
            let reply = to.call(&words).expect("is stored");
            assert!(!reply.is_error(), "{words:?}: {}", reply.text());
        }
    }
}

fn digest(of: &mut TestConnection) -> String {
    of.call(&["DEBUG", "DIGEST"]).expect("answers").text()
}

fn ask(connection: &mut TestConnection, words: &[&str]) -> String {
    connection.call(words).expect("answers").text()
}

const LIMIT: Duration = Duration::from_secs(30);
const DEBUG: [&str; 2] = ["--enable-debug-command", "yes"];

/// A server that finds a file.
fn start_with(file: &Path) -> TestServer {
    let folder = file.parent().and_then(Path::to_str).expect("UTF-8");
    let file = file.file_name().and_then(|name| name.to_str()).expect("UTF-8");
    // The last one wins over that of every test.
    TestServer::bobbin(&[&DEBUG[..], &["--dir", folder, "--dbfilename", file]].concat())
}

/// While a file is loaded, options that say where files are, or turn the log on, are not set;
/// others are. DEBUG neither loads a file then nor makes keys.
#[test]
#[ignore = "end to end: run by `cargo xtask test`"]
fn options_that_wait_until_all_is_loaded() {
    const UNKNOWN: &str =
        "ERR Unknown option or number of arguments for CONFIG SET - 'no-such-option'";
    let folder = Folder::new();
    for (name, program) in [("Valkey", peers::peer("valkey-server")), ("Bobbin", peers::bobbin())] {
        let loading_text = format!("LOADING {name} is loading the dataset in memory");
        let loading_text = loading_text.as_str();
        let dir = ["--dir", folder.text()];
        let source =
            TestServer::start(&program, &[&DEBUG[..], &dir, &["--rdbcompression", "no"]].concat())
                .expect("it starts");
        let mut client = source.connect();
        // They are in one block of the file, and the server must not wait until that is loaded.
        ask(&mut client, &["DEBUG", "POPULATE", "600", "key", "100"]);
        assert_eq!(ask(&mut client, &["SAVE"]), "OK");
        drop(source);
        let port = free_port().expect("there is one").to_string();
        let loading = Command::new(&program)
            .args([
                "--port",
                &port,
                "--bind",
                "127.0.0.1",
                "--save",
                "",
                "--key-load-delay",
                "5000",
            ])
            .args(["--loading-process-events-interval-bytes", "1024"])
            .args(["--enable-protected-configs", "yes"])
            .args(DEBUG)
            .args(dir)
            .stdout(Stdio::null())
            .spawn()
            .expect("it starts");
        let loading = Killed(loading);
        let deadline = Instant::now() + Duration::from_secs(20);
        let mut client = loop {
            assert!(Instant::now() < deadline, "it listens");
            match TestConnection::open(format!("127.0.0.1:{port}").parse().expect("an address")) {
                Ok(client) => break client,
                Err(_) => std::thread::sleep(Duration::from_millis(5)),
            }
        };
        assert_eq!(ask(&mut client, &["GET", "key:1"]), loading_text);
        for (words, expected) in [
            (&["dir", "."][..], loading_text),
            (&["appendonly", "yes"], loading_text),
            (&["appendonly", "no"], loading_text),
            (&["repl-diskless-load", "disabled"], loading_text),
            (&["maxmemory", "0", "dir", "."], loading_text),
            (&["maxmemory", "x", "dir", "."], loading_text),
            (&["dir", ".", "dir", "."], loading_text),
            (&["dir", ".", "no-such-option", "1"], loading_text),
            (&["no-such-option", "1", "dir", "."], UNKNOWN),
            (&["maxmemory", "0"], "OK"),
        ] {
            let words = [&["CONFIG", "SET"], words].concat();
            assert_eq!(ask(&mut client, &words), expected, "{words:?}");
        }
        // Valkey 9.1.2 crashes there.
        if name == "Bobbin" {
            for words in
                ["RELOAD", "RELOAD NOSAVE", "RELOAD NOFLUSH MERGE", "LOADAOF", "POPULATE 1"]
            {
                let words: Vec<_> = ["DEBUG"].into_iter().chain(words.split(' ')).collect();
                assert_eq!(ask(&mut client, &words), loading_text, "{words:?}");
            }
        }
        assert_eq!(ask(&mut client, &["CONFIG", "SET", "key-load-delay", "0"]), "OK");
        while ask(&mut client, &["DBSIZE"]) != "600" {
            assert!(Instant::now() < deadline, "it loads");
        }
        assert_eq!(ask(&mut client, &["CONFIG", "SET", "appendonly", "no", "dir", "."]), "OK");
        drop(loading);
    }
}

/// While one client waits for SAVE, others read and write.
#[test]
#[ignore = "end to end: run by `cargo xtask test`"]
fn others_are_served_while_one_saves() {
    let server = TestServer::bobbin(&[&DEBUG[..], &["--io-threads", "2"]].concat());
    let (mut client, mut other) = (server.connect(), server.connect());
    ask(&mut other, &["DEBUG", "POPULATE", "1000"]);
    // So slow that it does not end by itself.
    ask(&mut other, &["CONFIG", "SET", "rdb-key-save-delay", "1000000"]);
    client.send(&["SAVE"]).expect("is sent");
    until(|| server.info("rdb_bgsave_in_progress") == "1");
    assert_eq!(ask(&mut other, &["SET", "key:1", "changed"]), "OK");
    assert_eq!(ask(&mut other, &["GET", "key:1"]), "changed");
    // It begins when the other one has ended.
    assert_eq!(ask(&mut other, &["BGSAVE"]), "Background saving started");
    assert_eq!(server.info("rdb_bgsave_in_progress"), "1");
    assert_eq!(server.info("rdb_saves"), "0");
    ask(&mut other, &["CONFIG", "SET", "rdb-key-save-delay", "0"]);
    assert_eq!(client.receive().expect("it is answered").text(), "OK");
    until(|| server.info("rdb_saves") == "2");
}

/// A save that is due waits for a script that keeps its keys, and the log tells of it once.
#[test]
#[ignore = "end to end: run by `cargo xtask test`"]
fn a_due_save_waits_for_a_script() {
    let server = TestServer::bobbin(&["--save", "1 1", "--io-threads", "2"]);
    let (mut client, mut other) = (server.connect(), server.connect());
    client.send(&["EVAL", "while true do end", "1", "b"]).expect("is sent");
    std::thread::sleep(Duration::from_millis(200));
    assert_eq!(ask(&mut other, &["SET", "a", "1"]), "OK");
    // Long enough for the save to be due, and for some looks at whether it can begin.
    std::thread::sleep(Duration::from_millis(2500));
    assert_eq!(server.info("rdb_bgsave_in_progress") + &server.info("rdb_saves"), "00");
    assert_eq!(ask(&mut other, &["SCRIPT", "KILL"]), "OK");
    assert!(client.receive().expect("it is answered").is_error());
    until(|| server.info("rdb_saves") == "1");
    let log = server.log();
    assert_eq!(log.matches("changes in 1 seconds. Saving...").count(), 1, "{log}");
}

/// A snapshot is written when as much has changed as a `save` point says, and at the end if there
/// is such a point or the end asks for it. Users are in none.
#[test]
#[ignore = "end to end: run by `cargo xtask test`"]
fn snapshots_are_written_when_it_is_said() {
    let server = TestServer::bobbin(&["--save", "1 2"]);
    let file = server.folder().join("dump.rdb");
    let mut client = server.connect();
    ask(&mut client, &["ACL", "SETUSER", "somebody", "on"]);
    ask(&mut client, &["MSET", "a", "1", "b", "2"]);
    until(|| file.exists());
    assert!(server.log().contains("changes in 1 seconds. Saving..."), "{}", server.log());
    let restored = start_with(&file);
    let mut client = restored.connect();
    assert_eq!(ask(&mut client, &["GET", "b"]), "2");
    assert!(client.say("ACL GETUSER somebody").is_null());
    for (points, end, is_written) in [
        ("", "SHUTDOWN", false),
        ("", "SHUTDOWN SAVE", true),
        ("3600 1000", "SHUTDOWN", true),
        ("3600 1000", "SHUTDOWN NOSAVE", false),
    ] {
        let mut server = TestServer::bobbin(&["--save", points]);
        let mut client = server.connect();
        ask(&mut client, &["SET", "a", "1"]);
        let words: Vec<&str> = end.split(' ').collect();
        client.send(&words).expect("is sent");
        assert!(server.wait(LIMIT).is_some_and(|status| status.success()), "{end}");
        assert_eq!(server.folder().join("dump.rdb").exists(), is_written, "'{points}' {end}");
    }
}

/// A process that does not outlive its test.
struct Killed(Child);

impl Drop for Killed {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
#[ignore = "end to end: run by `cargo xtask test`"]
fn a_background_save_is_the_state_at_its_beginning() {
    let server = TestServer::bobbin(&[&DEBUG[..], &["--rdb-key-save-delay", "100"]].concat());
    let mut client = server.connect();
    fill(&mut client, 300);
    let before = digest(&mut client);
    assert_eq!(ask(&mut client, &["BGSAVE"]), "Background saving started");
    // All of it changes while it is written.
    for key in 0..300 {
        for words in [
            vec!["APPEND".to_owned(), format!("s:{key}"), "more".into()],
            vec!["RPUSH".into(), format!("l:{key}"), "more".into()],
            vec!["DEL".into(), format!("m:{key}")],
            vec!["HSET".into(), format!("h:{key}"), "f1".into(), "other".into()],
            vec!["RENAME".into(), format!("z:{key}"), format!("y:{key}")],
            vec!["PERSIST".into(), format!("e:{key}")],
        ] {
            client.call(&words).expect("answers");
        }
    }
    let deadline = Instant::now() + Duration::from_secs(60);
    while ask(&mut client, &["INFO", "persistence"]).contains("rdb_bgsave_in_progress:1") {
        assert!(Instant::now() < deadline, "{}", server.log());
        std::thread::sleep(Duration::from_millis(10));
    }
    let restarted = start_with(&server.folder().join("dump.rdb"));
    let mut other = restarted.connect();
    while ask(&mut other, &["PING"]) != "PONG" {
        std::thread::sleep(Duration::from_millis(10));
    }
    assert_eq!(digest(&mut other), before);
    assert_ne!(digest(&mut client), before);
}

#[test]
#[ignore = "end to end: run by `cargo xtask test`"]
fn a_kill_in_the_midst_of_a_save_leaves_the_old_file() {
    let server = TestServer::bobbin(&[&DEBUG[..], &["--rdb-key-save-delay", "10000"]].concat());
    let mut client = server.connect();
    ask(&mut client, &["SET", "k", "old"]);
    assert_eq!(ask(&mut client, &["SAVE"]), "OK");
    let file = server.folder().join("dump.rdb");
    let before = std::fs::read(&file).expect("it was saved");
    fill(&mut client, 100);
    assert_eq!(ask(&mut client, &["BGSAVE"]), "Background saving started");
    std::thread::sleep(Duration::from_millis(100));
    server.signal("KILL");
    assert_eq!(std::fs::read(&file).expect("it is there"), before);
}

#[test]
#[ignore = "end to end: run by `cargo xtask test`"]
fn damaged_files_are_refused_with_a_reason() {
    let server = TestServer::bobbin(&DEBUG);
    let mut client = server.connect();
    fill(&mut client, 10);
    assert_eq!(ask(&mut client, &["SAVE"]), "OK");
    let whole = std::fs::read(server.folder().join("dump.rdb")).expect("it was saved");
    let mut flipped = whole.clone();
    flipped[whole.len() / 2] ^= 1;
    let path = server.folder().join("damaged.rdb");
    for (bytes, reason) in [
        (&b"HELLO WORLD"[..], "Wrong signature"),
        (b"REDIS9999", "Can't handle RDB format version 9999"),
        (&whole[..whole.len() / 2], "Short read"),
        (&flipped, ""),
        (b"REDIS0011\x07\x03key\0", "value of type module at key 'key'"),
        (b"REDIS0011\0\x01k\x01v\0\x01k\x01v\xff\0\0\0\0\0\0\0\0", "duplicated key 'k'"),
        (b"REDIS0011\xf5\x05wrong\xff\0\0\0\0\0\0\0\0", "a function library cannot be loaded"),
        (
            b"REDIS0011\xfe\x81\0\0\0\x01\0\0\0\0\0\x01k\x01v\xff\0\0\0\0\0\0\0\0",
            "a database that there is not",
        ),
    ] {
        std::fs::write(&path, bytes).expect("is written");
        let folder = server.folder().to_str().expect("UTF-8");
        let arguments =
            ["--port", "0", "--unixsocket", "damaged.sock", "--dbfilename", "damaged.rdb"];
        let started = Command::new(peers::bobbin())
            .args(arguments)
            .args(["--dir", folder])
            .stderr(Stdio::null())
            .output()
            .expect("it starts");
        let log = String::from_utf8_lossy(&started.stdout).into_owned();
        assert_eq!(started.status.code(), Some(1), "{log}");
        assert!(
            log.contains(reason) && log.contains("Fatal error loading the DB from the RDB file /"),
            "{log}"
        );
        let checked = Command::new(peers::bobbin()).arg("--check-rdb").arg(&path).output();
        assert_eq!(checked.expect("it runs").status.code(), Some(1), "{reason}");
    }
    let missing = ["--check-rdb", "/no/such/file"];
    let checked = Command::new(peers::bobbin()).args(missing).output().expect("it runs");
    let text = String::from_utf8_lossy(&checked.stdout);
    assert!(text.ends_with("[offset 0] No such file or directory\n"), "{text}");
    for (check, way) in [("--check-rdb", "stderr"), ("--check-aof", "stdout")] {
        let ran = Command::new(peers::bobbin()).arg(check).output().expect("it runs");
        let text = if way == "stderr" { ran.stderr } else { ran.stdout };
        let text = String::from_utf8_lossy(&text);
        assert!(text.starts_with(&format!("Usage: bobbin-server {check} ")), "{text}");
    }
}

#[test]
#[ignore = "end to end: run by `cargo xtask test`"]
fn nothing_is_deleted_for_a_file_of_an_unknown_version() {
    let server = TestServer::bobbin(&DEBUG);
    let mut client = server.connect();
    assert_eq!(ask(&mut client, &["SET", "key", "value"]), "OK");
    for file in [&b"REDIS0987\xff\0\0\0\0\0\0\0\0"[..], b"REDIS"] {
        std::fs::write(server.folder().join("dump.rdb"), file).expect("is written");
        let reply = ask(&mut client, &["DEBUG", "RELOAD", "NOSAVE"]);
        assert!(reply.contains("Error trying to load the RDB dump"), "{reply}");
        assert_eq!(ask(&mut client, &["GET", "key"]), "value");
    }
}

/// What the disk has not taken yet frees no memory, so it is not evicted for.
#[test]
#[ignore = "end to end: run by `cargo xtask test`"]
fn no_more_is_evicted_beside_a_snapshot() {
    const SIZE: usize = 20_000;
    let evicted = |saves: bool| {
        let slow = ["--rdb-key-save-delay", "20000", "--maxmemory-policy", "allkeys-random"];
        let server = TestServer::bobbin(&[&slow[..], &["--io-threads", "2"]].concat());
        let mut client = server.connect();
        let value = "x".repeat(SIZE);
        let mut fill = |prefix: &str, count: usize| {
            for at in 0..count {
                client.send(&["SET", &format!("{prefix}{at}"), &value]).expect("is sent");
                assert_eq!(client.receive().expect("it answers").text(), "OK");
            }
        };
        fill("old", 3000);
        let mut other = server.connect();
        let used = field(&mut other, "memory", "used_memory");
        let limit = (used + 5_000_000).to_string();
        ask(&mut other, &["CONFIG", "SET", "maxmemory", &limit]);
        if saves {
            ask(&mut other, &["BGSAVE"]);
        }
        fill("new", 700);
        if saves {
            assert_eq!(field(&mut other, "persistence", "rdb_bgsave_in_progress"), 1);
            assert!(field(&mut other, "memory", "mem_not_counted_for_evict") > 1_000_000);
        }
        field(&mut other, "stats", "evicted_keys")
    };
    let (alone, beside) = (evicted(false), evicted(true));
    assert!(alone > 300, "{alone}");
    assert!(beside < 2 * alone, "{alone} keys are evicted, and {beside} beside a snapshot");
}

/// A field that has expired is not loaded, nor is a hash that has no other.
#[test]
#[ignore = "end to end: run by `cargo xtask test`"]
fn expired_fields_are_not_loaded() {
    let server = TestServer::bobbin(&["--enable-debug-command", "yes"]);
    let mut client = server.connect();
    client.say("DEBUG SET-ACTIVE-EXPIRE 0");
    for (key, fields) in [("whole", "f v"), ("part", "f v g w")] {
        client.say(&format!("HSET {key} {fields}"));
        assert!(!client.say(&format!("HPEXPIRE {key} 200 FIELDS 1 f")).is_error());
    }
    assert_eq!(client.say("SAVE").text(), "OK");
    std::thread::sleep(Duration::from_millis(250));
    let restarted = start_with(&server.folder().join("dump.rdb"));
    let mut client = restarted.connect();
    let said = "keys loaded: 1, keys expired: 0, all fields expired hashes: 1.";
    assert!(restarted.log().contains(said), "{}", restarted.log());
    assert_eq!(ask(&mut client, &["EXISTS", "whole", "part"]), "1");
    assert_eq!(ask(&mut client, &["HLEN", "part"]), "1");
}

/// A number that INFO tells.
fn field(client: &mut TestConnection, section: &str, name: &str) -> u64 {
    let text = ask(client, &["INFO", section]);
    let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
    line.and_then(|value| value.trim().parse().ok()).unwrap_or_else(|| panic!("{name}: {text}"))
}

/// While the log is rewritten SAVE waits until it can save what there is then.
#[test]
#[ignore = "end to end: run by `cargo xtask test`"]
fn a_save_waits_for_a_rewrite() {
    let server = TestServer::bobbin(&["--appendonly", "yes", "--enable-debug-command", "yes"]);
    let (mut client, mut other) = (server.connect(), server.connect());
    client.say("DEBUG POPULATE 1000");
    client.say("CONFIG SET rdb-key-save-delay 100000");
    assert!(client.say("BGREWRITEAOF").text().contains("started"));
    client.say("SET last 1");
    client.send(&["SAVE"]).expect("is sent");
    assert_eq!(field(&mut other, "persistence", "aof_rewrite_in_progress"), 1);
    other.say("CONFIG SET rdb-key-save-delay 0");
    assert_eq!(client.receive().expect("it answers").text(), "OK");
    let saved = std::fs::read(server.folder().join("dump.rdb")).expect("it was saved");
    assert!(saved.windows(5).any(|bytes| bytes == b"\x04last"));
    assert_eq!(field(&mut other, "persistence", "rdb_saves"), 1);
}

/// Where the system gives no thread nothing is begun, and the client that asked is told; all is
/// well once it does.
#[test]
#[ignore = "end to end: run by `cargo xtask test`"]
fn without_a_thread_no_cut_is_begun() {
    let folder = Folder::new();
    let arguments = ["--enable-debug-command", "yes", "--appendonly", "yes", "--io-threads", "2"];
    let Some(server) = TestServer::of_nobody(folder.path(), &arguments) else { return };
    let (mut client, mut other) = (server.connect(), server.connect());
    client.say("DEBUG POPULATE 300");
    client.say("CONFIG SET rdb-key-save-delay 3000");
    server.refuse_threads(true);
    for (command, expected) in
        [("BGSAVE", "ERR"), ("BGREWRITEAOF", "ERR Can't execute an AOF background rewriting")]
    {
        client.send(&[command]).expect("is sent");
        // It needs all shards, and all workers to let it have them.
        other.send(&["CONFIG", "SET", "maxclients", "500"]).expect("is sent");
        for waiting in [&mut other, &mut client] {
            let received = waiting.receive_within(LIMIT).expect("it lives");
            let ReceiveOutcome::Reply(reply) = received else { panic!("{command}: no answer") };
            let text = reply.text();
            assert!(text == "OK" || text.starts_with(expected), "{command}: {text}");
        }
    }
    let text = ask(&mut other, &["INFO", "persistence"]);
    for line in ["rdb_last_bgsave_status:err", "aof_last_bgrewrite_status:err"] {
        assert!(text.contains(line), "{text}");
    }
    client.say("CONFIG SET rdb-key-save-delay 0");
    assert_eq!(client.say("SAVE").text(), "OK");
    server.refuse_threads(false);
    assert_eq!(client.say("BGSAVE").text(), "Background saving started");
    until(|| field(&mut other, "persistence", "rdb_bgsave_in_progress") == 0);
    assert!(client.say("BGREWRITEAOF").text().contains("Background append only file rewriting"));
    assert_eq!(field(&mut other, "persistence", "aof_rewrites"), 1);
    until(|| field(&mut other, "persistence", "aof_rewrite_in_progress") == 0);
}

/// A client that writes faster than the snapshot's thread fetches what was kept for it waits, with
/// its worker serving others; and a snapshot that is far too slow is given up before the memory is
/// full.
#[test]
#[ignore = "end to end: run by `cargo xtask test`"]
fn writers_wait_for_a_slow_snapshot_until_it_is_given_up() {
    const KEYS: usize = 40_000;
    const CLIENTS: usize = 8;
    for command in ["BGSAVE", "BGREWRITEAOF"] {
        // One worker: a client that is served meanwhile shares it with those that wait.
        let server = TestServer::bobbin(&["--io-threads", "1"]);
        let mut client = server.connect();
        let value = "x".repeat(3000);
        for key in 0..KEYS {
            client.send(&["SET", &format!("key{key}"), &value]).expect("is sent");
            if key % 100 == 99 {
                (0..100).for_each(|_| _ = client.receive().expect("it answers"));
            }
        }
        let before = server.resident_bytes();
        ask(&mut client, &["CONFIG", "SET", "rdb-key-save-delay", "1000000"]);
        ask(&mut client, &[command]);
        let mut waited = false;
        std::thread::scope(|scope| {
            let writers: Vec<_> = (0..CLIENTS)
                .map(|number| {
                    let (mut client, value) = (server.connect(), &value);
                    scope.spawn(move || {
                        for key in (number..KEYS).step_by(CLIENTS) {
                            client.call(&["APPEND", &format!("key{key}"), value]).expect("answers");
                        }
                    })
                })
                .collect();
            while writers.iter().any(|writer| !writer.is_finished()) {
                waited |= !ask(&mut client, &["INFO", "clients"]).contains("blocked_clients:0");
            }
        });
        assert!(waited, "{command}: nobody had to wait");
        let log = server.log();
        assert_eq!(log.matches("The disk is too slow for the").count(), 1, "{command}: {log}");
        // All values are twice as long now; of the old ones the snapshot had at most four times 16
        // MiB.
        let grown = server.resident_bytes().saturating_sub(before) >> 20;
        assert!(grown < ((KEYS * value.len()) >> 20) as u64 + 150, "{command}: {grown} MiB");
    }
}

/// What a process left that was killed while it saved, and had our number, as all have in a
/// container, is no obstacle.
#[test]
#[ignore = "end to end: run by `cargo xtask test`"]
fn what_another_process_left_is_overwritten() {
    let server = TestServer::bobbin(&[]);
    let mut client = server.connect();
    assert_eq!(client.say("SET k v").text(), "OK");
    for number in 0..2 {
        let name = format!("temp-{}-{number}.rdb", server.id());
        std::fs::write(server.folder().join(name), "x".repeat(10_000)).expect("is written");
        assert_eq!(client.say("SAVE").text(), "OK");
        let saved = std::fs::read(server.folder().join("dump.rdb")).expect("it is there");
        assert!(saved.len() < 1000 && saved.starts_with(b"REDIS"));
    }
}
