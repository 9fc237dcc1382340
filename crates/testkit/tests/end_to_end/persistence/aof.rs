//! The log on disk: what comes back after a crash, an end cut off, a rewrite, a change of mind;
//! what it holds.

use std::fs::{self, OpenOptions};
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use bobbin_testkit::connection::encode_command;
use bobbin_testkit::disk::Folder;
use bobbin_testkit::{ReplyFrame, TestConnection, TestServer, peers, until};

/// A server whose log lies in a folder that outlives it.
fn start(folder: &Folder, arguments: &[&str]) -> TestServer {
    let dir = folder.text();
    let own = [
        "--dir",
        dir,
        "--appendonly",
        "yes",
        "--appendfsync",
        "always",
        "--enable-debug-command",
        "yes",
    ];
    TestServer::bobbin(&[&own, arguments].concat())
}

/// What a burst of changes needs on its way to the disk is given back behind it, with each worker.
#[test]
#[ignore = "end to end: run by `cargo xtask test`"]
fn a_burst_leaves_no_memory_behind() {
    const COMMANDS: usize = 20_000;
    const ROUNDS: usize = 4;
    let folder = Folder::new();
    let dir = folder.text();
    let options = ["--dir", dir, "--appendonly", "yes", "--io-threads", "2"];
    let server = TestServer::bobbin(&options);
    let mut control = server.connect();
    control.say("SET k v");
    let mut used = || {
        let memory = control.say("INFO memory").text();
        let used = memory.lines().find_map(|line| line.strip_prefix("used_memory:"));
        used.and_then(|used| used.trim().parse::<u64>().ok()).expect("INFO has used_memory")
    };
    let before = used();
    let mut burst = Vec::new();
    let value = "x".repeat(100);
    (0..COMMANDS).for_each(|_| encode_command(&["SET", "k", &value], &mut burst));
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                let mut client = server.connect();
                for _ in 0..ROUNDS {
                    client.send_raw(&burst).expect("is sent");
                    for _ in 0..COMMANDS {
                        assert_eq!(client.receive().expect("is answered").text(), "OK");
                    }
                }
            });
        }
    });
    until(|| used() < before + 700_000);
}

/// Every kind of value, deadlines, a transaction, another database: all there after a crash, and
/// once more after a rewrite.
#[test]
#[ignore = "end to end: run by `cargo xtask test`"]
fn everything_comes_back() {
    let folder = Folder::new();
    let mut server = start(&folder, &[]);
    let mut client = server.connect();
    for line in [
        "SET string value EX 1000",
        "INCRBYFLOAT float 10.5",
        "RPUSH list a b c",
        "LPOP list",
        "SADD set a b c d",
        "SPOP set",
        "ZADD zset 1 a 2 b",
        "ZINCRBY zset 5 a",
        "HSET hash a 1 b 2",
        "HEXPIRE hash 1000 FIELDS 1 a",
        "XADD stream * field value",
        "XGROUP CREATE stream group 0",
        "XREADGROUP GROUP group me STREAMS stream >",
        "PFADD hll a b c",
        "SET gone 1 PX 1",
        "MULTI",
        "SELECT 3",
        "SET other 1",
        "SELECT 0",
        "INCR counter",
        "EXEC",
    ] {
        client.call(&line.split(' ').collect::<Vec<_>>()).expect("it answers");
    }
    // What is gone shall be gone in both.
    std::thread::sleep(Duration::from_millis(20));
    let before = digest(&mut client);
    kill(&mut server);
    let mut server = start(&folder, &[]);
    let mut client = server.connect();
    assert_eq!(digest(&mut client), before);
    client.call(&["BGREWRITEAOF"]).expect("it answers");
    wait_for_rewrite(&mut client);
    client.call(&["SET", "after", "1"]).expect("it answers");
    let before = digest(&mut client);
    kill(&mut server);
    let names = names(&folder.log());
    assert_eq!(names.len(), 3, "one base, one increment, the manifest: {names:?}");
    let server = start(&folder, &[]);
    assert_eq!(digest(&mut server.connect()), before);
}

/// A base of commands restores large values, which another thread reads. What comes next in the
/// log waits for it.
#[test]
#[ignore = "end to end: run by `cargo xtask test`"]
fn what_stands_behind_a_large_value_comes_back() {
    let folder = Folder::new();
    let preamble = ["--aof-use-rdb-preamble", "no"];
    let mut server = start(&folder, &preamble);
    let mut client = server.connect();
    for number in 0..10 {
        let members: Vec<String> = (0..60_000).map(|at| format!("member-{}", at * 7919)).collect();
        let mut words = vec!["SADD".to_owned(), format!("large{number}")];
        words.extend(members);
        client.call(&words).expect("it answers");
        client.call(&["SET", &format!("small{number}"), "value"]).expect("it answers");
    }
    client.call(&["BGREWRITEAOF"]).expect("it answers");
    wait_for_rewrite(&mut client);
    client.call(&["COPY", "large1", "copied"]).expect("it answers");
    for number in 0..1_000 {
        client.call(&["RPUSH", "list", &number.to_string()]).expect("it answers");
    }
    let before = digest(&mut client);
    kill(&mut server);
    let server = start(&folder, &preamble);
    let mut client = server.connect();
    assert_eq!(text(&client.call(&["DBSIZE"]).expect("it answers")), "22");
    assert_eq!(digest(&mut client), before);
}

/// An end that was cut off is passed over, or refused, as the configuration says; `--fix` mends it.
#[test]
#[ignore = "end to end: run by `cargo xtask test`"]
fn an_end_that_was_cut_off() {
    let folder = Folder::new();
    let mut server = start(&folder, &[]);
    let mut client = server.connect();
    for number in 0..10 {
        client.call(&["SET", &format!("key{number}"), "value"]).expect("it answers");
    }
    kill(&mut server);
    drop(server);
    let increment = folder.log().join("appendonly.aof.1.incr.aof");
    let len = fs::metadata(&increment).expect("it is there").len();
    cut(&increment, len - 3);
    let manifest = folder.log().join("appendonly.aof.manifest");
    assert!(!check_tool(&[manifest.to_str().expect("ours")], "").contains("are valid"));
    let kept = folder.path().join("kept");
    fs::copy(&increment, &kept).expect("a copy");
    let server = start(&folder, &[]);
    assert_eq!(text(&server.connect().call(&["DBSIZE"]).expect("it answers")), "9");
    drop(server);
    fs::copy(&kept, &increment).expect("a copy");
    let dir = folder.text();
    let refused = TestServer::start(
        &peers::bobbin(),
        &["--dir", dir, "--appendonly", "yes", "--aof-load-truncated", "no"],
    );
    let log = refused.expect_err("it must not start");
    assert!(log.contains("Unexpected end of file reading the append only file"), "{log}");
    let said = check_tool(&["--fix", manifest.to_str().expect("ours")], "y\n");
    assert!(said.contains("Successfully truncated AOF"), "{said}");
    assert!(check_tool(&[manifest.to_str().expect("ours")], "").contains("are valid"));
}

/// Zeros at the end are an end that was cut off, in whatever they begin; other bytes behind them,
/// or zeros where they cannot have come from a power cut, are damage.
#[test]
#[ignore = "end to end: run by `cargo xtask test`"]
fn an_end_of_zeros() {
    const LOG: &[u8] =
        b"*2\r\n$6\r\nSELECT\r\n$1\r\n0\r\n*3\r\n$3\r\nSET\r\n$1\r\na\r\n$1\r\n1\r\n\
                         *1\r\n$5\r\nMULTI\r\n*2\r\n$4\r\nINCR\r\n$1\r\na\r\n*1\r\n$4\r\nEXEC\r\n\
                         *3\r\n$3\r\nSET\r\n$1\r\na\r\n$1\r\n3\r\n";
    let folder = Folder::new();
    let log = folder.log();
    fs::create_dir(&log).expect("a folder");
    let last = log.join("appendonly.aof.2.incr.aof");
    let plant = |first: &[u8], second: &[u8]| {
        let names = "file appendonly.aof.1.incr.aof seq 1 type i\nfile appendonly.aof.2.incr.aof seq 2 type i\n";
        fs::write(log.join("appendonly.aof.manifest"), names).expect("is written");
        fs::write(log.join("appendonly.aof.1.incr.aof"), first).expect("is written");
        fs::write(&last, second).expect("is written");
    };
    let zeros = |kept: usize, count: usize| [&LOG[..kept], &vec![0; count]].concat();
    let (set, unit) = (50, 100);
    for (kept, count, there, length) in [
        (LOG.len(), 1, "3", LOG.len()),
        (LOG.len(), 1 << 20, "3", LOG.len()),
        (LOG.len() - 3, 3, "2", unit),
        (LOG.len() - 6, 10_000, "2", unit),
        (unit - 1, 10_000, "1", set),
        (set + 17, 10_000, "1", set),
        (0, 10_000, "", 0),
    ] {
        plant(b"", &zeros(kept, count));
        let server = start(&folder, &[]);
        let got = server.connect().say("GET a");
        assert_eq!(
            if got.is_null() { String::new() } else { got.text() },
            there,
            "{kept}, {count}"
        );
        assert!(server.log().contains("Truncating the AOF"), "{kept}, {count}");
        assert_eq!(
            fs::metadata(&last).expect("it is there").len(),
            length as u64,
            "{kept}, {count}"
        );
    }
    let refused = |arguments: &[&str]| {
        let own = ["--dir", folder.text(), "--appendonly", "yes"];
        let refused = TestServer::start(&peers::bobbin(), &[&own, arguments].concat());
        let log = refused.expect_err("it must not start");
        assert!(log.contains("Bad file format reading the append only file"), "{log}");
    };
    plant(b"", &[zeros(set, 2000), LOG.to_vec()].concat());
    refused(&[]);
    plant(&zeros(set, 2000), LOG);
    refused(&[]);
    plant(b"", &zeros(set, 2000));
    refused(&["--aof-load-truncated", "no"]);
}

/// `appendonly` can be turned on and off while clients write.
#[test]
#[ignore = "end to end: run by `cargo xtask test`"]
fn it_can_be_turned_on_and_off() {
    let folder = Folder::new();
    let dir = folder.text();
    let mut server = TestServer::bobbin(&["--dir", dir, "--enable-debug-command", "yes"]);
    let mut client = server.connect();
    client.call(&["SET", "before", "1"]).expect("it answers");
    for _ in 0..2 {
        let on = client.call(&["CONFIG", "SET", "appendonly", "yes"]).expect("it answers");
        assert_eq!(text(&on), "OK");
        client.call(&["INCR", "during"]).expect("it answers");
        wait_for_rewrite(&mut client);
        client.call(&["INCR", "during"]).expect("it answers");
        client.call(&["CONFIG", "SET", "appendonly", "no"]).expect("it answers");
        client.call(&["INCR", "after"]).expect("it answers");
    }
    client.call(&["CONFIG", "SET", "appendonly", "yes"]).expect("it answers");
    wait_for_rewrite(&mut client);
    client.call(&["INCR", "during"]).expect("it answers");
    let waited = client.call(&["WAITAOF", "1", "0", "0"]).expect("it answers");
    assert_eq!(waited.items()[0].as_integer(), Some(1));
    let before = digest(&mut client);
    kill(&mut server);
    let server = start(&folder, &[]);
    let mut client = server.connect();
    assert_eq!(digest(&mut client), before);
    assert_eq!(text(&client.call(&["GET", "during"]).expect("it answers")), "5");
}

/// WAITAOF behind a command that works in slices waits for what that one changes.
#[test]
#[ignore = "end to end: run by `cargo xtask test`"]
fn waiting_for_the_disk_behind_a_long_command() {
    let folder = Folder::new();
    let arguments = ["--dir", folder.text(), "--appendonly", "yes", "--appendfsync", "everysec"];
    let mut server = TestServer::bobbin(&arguments);
    let mut client = server.connect();
    for from in (0..300_000).step_by(10_000) {
        let members: Vec<_> = (from..from + 10_000).map(|n| format!("member {n}")).collect();
        let words = ["SADD", "big"].into_iter().chain(members.iter().map(String::as_str));
        client.call(&words.collect::<Vec<_>>()).expect("it answers");
    }
    // In one go, so that the second is there when the first begins.
    let mut bytes = Vec::new();
    for words in [&["SUNIONSTORE", "copy", "big", "none"][..], &["WAITAOF", "1", "0", "0"]] {
        encode_command(words, &mut bytes);
    }
    client.send_raw(&bytes).expect("is sent");
    assert_eq!(client.receive().expect("it answers").as_integer(), Some(300_000));
    let waited = client.receive().expect("it answers");
    assert_eq!(waited.items()[0].as_integer(), Some(1));
    kill(&mut server);
    let server = TestServer::bobbin(&arguments);
    assert_eq!(text(&server.connect().say("SCARD copy")), "300000");
}

/// Times are told in the log, and the log can be cut off at one of them.
#[test]
#[ignore = "end to end: run by `cargo xtask test`"]
fn a_log_with_times_goes_back_to_one() {
    let folder = Folder::new();
    let times = ["--aof-timestamp-enabled", "yes", "--aof-use-rdb-preamble", "no"];
    let mut server = start(&folder, &times);
    let mut client = server.connect();
    client.say("SET early 1");
    let now_s = || {
        let now = std::time::UNIX_EPOCH.elapsed().expect("it is later than 1970");
        now.as_secs()
    };
    // A record's time is that of its turn, which may have begun in the second before.
    let early_s = now_s() + 1;
    while now_s() < early_s + 2 {
        std::thread::sleep(Duration::from_millis(20));
    }
    client.say("SET late 1");
    client.say("CONFIG SET aof-timestamp-enabled no");
    client.say("SET timeless 1");
    kill(&mut server);
    drop(server);
    let increment = folder.log().join("appendonly.aof.1.incr.aof");
    let told = String::from_utf8(fs::read(&increment).expect("it is there")).expect("is text");
    let told: Vec<_> = told.lines().filter_map(|line| line.strip_prefix("#TS:")).collect();
    assert_eq!(told.len(), 2, "{told:?}");
    let manifest = folder.log().join("appendonly.aof.manifest");
    let manifest = manifest.to_str().expect("ours");
    let said = check_tool(&["--truncate-to-timestamp", &early_s.to_string(), manifest], "");
    assert!(said.contains("Successfully truncated AOF"), "{said}");
    let server = start(&folder, &times);
    let mut client = server.connect();
    assert_eq!(text(&client.say("MGET early late timeless")), "");
    assert_eq!(text(&client.say("GET early")), "1");
    assert_eq!(text(&client.say("EXISTS late timeless")), "0");
}

/// Which word logs the end of a key that a command found no longer due: an option for keys whose
/// time has come, another one for those that a command replaced with nothing.
#[test]
#[ignore = "end to end: run by `cargo xtask test`"]
fn a_deletion_is_logged_as_the_option_for_it_says() {
    let folder = Folder::new();
    let server = start(&folder, &["--lazyfree-lazy-expire", "yes"]);
    let mut client = server.connect();
    client.say("CONFIG SET lazyfree-lazy-server-del no");
    client.say("SET source 1");
    let dump = client.call(&["DUMP", "source"]).expect("it answers");
    let payload = dump.bytes().expect("a payload");
    client.say("MSET replaced 1 set 1");
    let words = [b"RESTORE".as_slice(), b"replaced", b"1", payload, b"REPLACE", b"ABSTTL"];
    assert_eq!(client.call(&words).expect("it answers").text(), "OK");
    client.say("SET set 1 PXAT 1");
    client.say("SADD popped 1");
    client.say("SPOP popped 2");
    let mut told = logged(&folder);
    told.retain(|command| command.starts_with("DEL ") || command.starts_with("UNLINK "));
    assert_eq!(told, ["DEL replaced", "UNLINK set", "DEL popped"]);
}

/// A time is logged as one that holds whenever it is read, in the client's own words where it came
/// as such a time.
#[test]
#[ignore = "end to end: run by `cargo xtask test`"]
fn the_time_of_a_key_is_logged_as_the_client_gave_it() {
    let folder = Folder::new();
    let server = start(&folder, &[]);
    let mut client = server.connect();
    for line in [
        "set a 1 pxat 5000000000777",
        "Set a 2 nx Pxat 5000000000778",
        "SET a 3 XX pXaT 5000000000779 get",
        "SET a 4 IFEQ 3 PXAT 5000000000780",
        "set a 5 exat 5000000000",
    ] {
        client.say(line);
    }
    let expected = [
        "SELECT 0",
        "set a 1 pxat 5000000000777",
        "SET a 3 pXaT 5000000000779",
        "SET a 4 PXAT 5000000000780",
        "set a 5 PXAT 5000000000000",
    ];
    assert_eq!(logged(&folder), expected);
}

/// The commands in the first increment of the log.
fn logged(folder: &Folder) -> Vec<String> {
    let told = fs::read(folder.log().join("appendonly.aof.1.incr.aof")).expect("it is there");
    let mut rest = &told[..];
    let mut commands = Vec::new();
    while let Ok(Some((command, len))) = ReplyFrame::parse(rest) {
        rest = &rest[len..];
        let words: Vec<String> = command.items().iter().map(ReplyFrame::text).collect();
        commands.push(words.join(" "));
    }
    commands
}

/// Keys and fields that expire by themselves are deleted in the log, under their names.
#[test]
#[ignore = "end to end: run by `cargo xtask test`"]
fn what_expires_by_itself_is_deleted_in_the_log() {
    let folder = Folder::new();
    let server = start(&folder, &[]);
    let mut client = server.connect();
    client.say("SET key 1 PX 30");
    client.say("HSET some a 1 b 2 c 3");
    client.say("HPEXPIRE some 30 FIELDS 2 a b");
    client.say("HSET all a 1");
    client.say("HPEXPIRE all 30 FIELDS 1 a");
    for wanted in [&["UNLINK key"][..], &["HDEL some a b", "HDEL some b a"], &["HDEL all a"]] {
        until(|| logged(&folder).iter().any(|command| wanted.contains(&command.as_str())));
    }
    assert_eq!(client.say("DBSIZE").as_integer(), Some(1));
}

/// With `always` a reply is not there before the file holds what it tells of, however slow the
/// disk; also a reply to another client that read it.
#[test]
#[ignore = "end to end: run by `cargo xtask test`"]
fn no_reply_comes_before_the_disk() {
    let folder = Folder::new();
    let server = start(&folder, &["--io-threads", "2"]);
    let (mut client, mut other) = (server.connect(), server.connect());
    let increment = folder.log().join("appendonly.aof.1.incr.aof");
    let holds = |text: &str| fs::read_to_string(&increment).expect("it is there").contains(text);
    client.say("SET k value0");
    client.say("DEBUG AOF-FLUSH-SLEEP 100000");
    for round in 1..6 {
        let value = format!("value{round}");
        client.send(&["SET", "k", &value]).expect("is sent");
        let seen = text(&other.say("GET k"));
        assert!(holds(&seen), "{seen} was told of");
        assert_eq!(text(&client.receive().expect("it answers")), "OK");
        assert!(holds(&value), "{value} was acknowledged");
    }
}

/// What is acknowledged while the disk hangs would be lost with the server: no client writes for
/// long.
#[test]
#[ignore = "end to end: run by `cargo xtask test`"]
fn nobody_writes_while_the_disk_hangs() {
    let folder = Folder::new();
    let server = start(&folder, &["--appendfsync", "everysec"]);
    let mut other = server.connect();
    other.say("DEBUG AOF-FLUSH-SLEEP 5000000");
    let (mut client, written) = (server.connect(), Arc::new(AtomicU64::new(0)));
    let count = Arc::clone(&written);
    // Until the server ends.
    std::thread::spawn(move || {
        while client.call(&["INCR", "count"]).is_ok() {
            count.fetch_add(1, Ordering::Relaxed);
        }
    });
    let mut before = 0;
    until(|| {
        std::thread::sleep(Duration::from_secs(1));
        let now = written.load(Ordering::Relaxed);
        now > 0 && std::mem::replace(&mut before, now) == now
    });
    // Reads go on, and so do writes once the disk does.
    assert!(other.say("GET count").text().parse::<u64>().is_ok_and(|count| count >= before));
    other.say("DEBUG AOF-FLUSH-SLEEP 0");
    until(|| written.load(Ordering::Relaxed) > before);
}

/// The latency monitor is shown the log's writes and fsyncs.
#[test]
#[ignore = "end to end: run by `cargo xtask test`"]
fn the_logs_writes_are_shown_to_the_latency_monitor() {
    let folder = Folder::new();
    let server = start(&folder, &["--latency-monitor-threshold", "1"]);
    let mut client = server.connect();
    let value = "x".repeat(8 << 20);
    let deadline = Instant::now() + Duration::from_secs(30);
    // Large ones take a millisecond.
    let shown = |client: &mut TestConnection, event: &str| {
        !client.call(&["LATENCY", "HISTORY", event]).expect("it answers").items().is_empty()
    };
    for event in ["aof-write", "aof-write-alone", "aof-fsync-always"] {
        while !shown(&mut client, event) {
            client.call(&["SET", "k", &value]).expect("it answers");
            assert!(Instant::now() < deadline, "{event}");
        }
    }
}

/// Function libraries are in the log, and so are not kept while it is read again.
#[test]
#[ignore = "end to end: run by `cargo xtask test`"]
fn libraries_come_back_from_the_log() {
    let folder = Folder::new();
    let server = start(&folder, &[]);
    let mut client = server.connect();
    let library = "#!lua name=l\nredis.register_function('f', function() return 7 end)";
    for _ in 0..2 {
        client.call(&["FUNCTION", "LOAD", "REPLACE", library]).expect("it answers");
        assert_eq!(client.say("DEBUG LOADAOF").text(), "OK", "{}", server.log());
        assert_eq!(client.say("FCALL f 0").text(), "7");
        client.say("BGREWRITEAOF");
        wait_for_rewrite(&mut client);
    }
}

/// A client that asks for a rewrite while one that was given up is on its way out gets one, and
/// INFO reports it until it is over.
#[test]
#[ignore = "end to end: run by `cargo xtask test`"]
fn a_rewrite_after_one_that_was_given_up() {
    let folder = Folder::new();
    let server = start(&folder, &["--aof-use-rdb-preamble", "no"]);
    let mut client = server.connect();
    let mut ask = |words: &str| {
        let words: Vec<_> = words.split(' ').collect();
        client.call(&words).expect("it answers").text()
    };
    for round in 0..10 {
        ask("CONFIG SET appendonly yes");
        while !ask("INFO persistence").contains("aof_rewrite_in_progress:0") {}
        ask("SET key value");
        ask("CONFIG SET rdb-key-save-delay 10000000");
        assert_eq!(ask("BGREWRITEAOF"), "Background append only file rewriting started");
        ask("CONFIG SET appendonly no");
        ask("CONFIG SET rdb-key-save-delay 0");
        ask("FLUSHALL");
        ask(&format!("RPUSH list {round}"));
        let before = ask("DEBUG DIGEST");
        assert!(ask("BGREWRITEAOF").starts_with("Background append only file rewriting"));
        while !ask("INFO persistence").contains("aof_rewrite_in_progress:0") {}
        assert_eq!(ask("DEBUG LOADAOF"), "OK");
        assert_eq!(ask("DEBUG DIGEST"), before, "{round}: {}", server.log());
    }
}

/// For tests: as many microseconds for each command, or as many commands for each microsecond.
#[test]
#[ignore = "end to end: run by `cargo xtask test`"]
fn loading_a_log_can_be_slowed_down() {
    let folder = Folder::new();
    let server = start(&folder, &["--appendonly", "yes"]);
    let mut client = server.connect();
    let mut say = |words: &str| client.say(words).text();
    for number in 0..100 {
        say(&format!("SET {number} value"));
    }
    assert_eq!(say("CONFIG SET key-load-delay 3000"), "OK");
    let begun = Instant::now();
    assert_eq!(say("DEBUG LOADAOF"), "OK");
    assert!(begun.elapsed() >= Duration::from_millis(300), "{:?}", begun.elapsed());
    assert_eq!(say("CONFIG SET key-load-delay -50"), "OK");
    assert_eq!(say("DEBUG LOADAOF"), "OK");
    assert_eq!(say("DBSIZE"), "100");
}

/// Until the first base is on disk, a crash leaves nothing of what was written: WAITAOF waits for
/// it.
#[test]
#[ignore = "end to end: run by `cargo xtask test`"]
fn waitaof_waits_for_the_base() {
    let folder = Folder::new();
    let arguments = ["--dir", folder.text(), "--enable-debug-command", "yes"];
    let mut server = TestServer::bobbin(&arguments);
    let mut client = server.connect();
    let mut ask = |line: &str| {
        let reply = client.call(&line.split(' ').collect::<Vec<_>>()).expect("it answers");
        reply.items().iter().map(ReplyFrame::text).collect::<Vec<_>>().join(" ") + &reply.text()
    };
    assert_eq!(ask("DEBUG POPULATE 100"), "OK");
    // The base takes until the delay is taken back.
    assert_eq!(ask("CONFIG SET rdb-key-save-delay 60000000"), "OK");
    assert_eq!(ask("CONFIG SET appendonly yes"), "OK");
    assert_eq!(ask("SET precious 1"), "OK");
    assert_eq!(ask("WAITAOF 1 0 100"), "0 0");
    assert_eq!(ask("WAITAOF 0 0 0"), "0 0");
    assert_eq!(ask("CONFIG SET rdb-key-save-delay 0"), "OK");
    assert_eq!(ask("WAITAOF 1 0 0"), "1 0");
    kill(&mut server);
    let server = start(&folder, &[]);
    let kept = server.connect().call(&["GET", "precious"]).expect("it answers");
    assert_eq!(kept.text(), "1");
}

/// A log that cannot be made is not turned on.
#[test]
#[ignore = "end to end: run by `cargo xtask test`"]
fn a_log_that_cannot_be_made_is_not_turned_on() {
    let folder = Folder::new();
    let server = TestServer::bobbin(&["--dir", folder.text()]);
    let mut client = server.connect();
    let mut ask = |words: &[&str]| client.call(words).expect("it answers").text();
    fs::write(folder.log(), "in the way").expect("it can be written");
    let refused = ask(&["CONFIG", "SET", "appendonly", "yes"]);
    assert!(refused.contains("Unable to turn on AOF"), "{refused}");
    assert!(ask(&["INFO", "persistence"]).contains("aof_enabled:0"));
    fs::remove_file(folder.log()).expect("it is there");
    assert_eq!(ask(&["CONFIG", "SET", "appendonly", "yes"]), "OK");
    assert_eq!(ask(&["SET", "kept", "1"]), "OK");
    let waited = client.call(&["WAITAOF", "1", "0", "0"]).expect("it answers");
    assert_eq!(waited.items()[0].as_integer(), Some(1));
}

/// A rewrite that fails while it writes its base says so, and why.
#[test]
#[ignore = "end to end: run by `cargo xtask test`"]
fn a_rewrite_that_fails_says_so() {
    let folder = Folder::new();
    let server = start(&folder, &[]);
    let mut client = server.connect();
    let mut ask = |words: &[&str]| client.call(words).expect("it answers").text();
    let base = folder.path().join(format!("temp-rewriteaof-bg-{}.aof", server.id()));
    fs::create_dir(&base).expect("nothing is there");
    ask(&["BGREWRITEAOF"]);
    wait_for_rewrite(&mut server.connect());
    assert!(ask(&["INFO", "persistence"]).contains("aof_last_bgrewrite_status:err"));
    assert!(server.log().contains("AOF rewrite terminated with error"), "{}", server.log());
    fs::remove_dir(&base).expect("it is there");
    ask(&["BGREWRITEAOF"]);
    wait_for_rewrite(&mut server.connect());
    assert!(ask(&["INFO", "persistence"]).contains("aof_last_bgrewrite_status:ok"));
}

// Help.

/// A log is replayed later, when more has expired than when its commands were executed. What they
/// do is the same nevertheless.
#[test]
#[ignore = "end to end: run by `cargo xtask test`"]
fn what_expires_until_the_log_is_replayed_changes_nothing() {
    let folder = Folder::new();
    let mut server = start(&folder, &[]);
    let mut client = server.connect();
    client.say("DEBUG SET-ACTIVE-EXPIRE 0");
    let many: Vec<_> = (1..=10_000).map(|number: u32| number.to_string()).collect();
    let rpush_many = format!("RPUSH long {}", many.join(" "));
    for command in [
        "HSET alive f v g w",
        "HPEXPIRE alive 150 FIELDS 1 f",
        "COPY alive persists",
        "HPERSIST persists FIELDS 1 f",
        "COPY alive expires",
        "HPEXPIRE expires 600000 FIELDS 1 f",
        "SET weight:1 5 PX 150",
        "SET weight:2 1",
        "RPUSH list 1 2",
        "HSET alive1 f v",
        "HPEXPIRE alive1 150 FIELDS 1 f",
        "SORT list BY weight:* GET alive*->f STORE early",
        "HSET deadline a 1 b 2",
        "PEXPIRE deadline 600000",
        "HPEXPIRE deadline 150 FIELDS 1 a",
        "COPY deadline deadline2",
        // Long enough for slices.
        &rpush_many,
        "SORT long BY weight:* GET # GET weight:* STORE longsorted",
    ] {
        assert!(!client.say(command).is_error(), "{command}");
    }
    std::thread::sleep(Duration::from_millis(200));
    // A field of `alive` has expired, and is still there.
    for command in [
        "COPY alive copied",
        "HSETEX copied KEEPTTL FIELDS 1 f new",
        "COPY alive other DB 1",
        "HSETEX alive KEEPTTL FIELDS 2 f new g new",
        "SORT list BY weight:* STORE sorted",
        "HDEL deadline a b",
        "HSET deadline b 3",
        "HGETDEL deadline2 FIELDS 2 a b",
        "HSET deadline2 b 3",
    ] {
        assert!(!client.say(command).is_error(), "{command}");
    }
    let looks = [
        "HGET persists f",
        "HGET expires f",
        "HGETALL copied",
        "HGETALL alive",
        "HTTL alive FIELDS 1 f",
        "LRANGE early 0 -1",
        "LRANGE longsorted 0 -1",
        "LRANGE sorted 0 -1",
        "PEXPIRETIME deadline",
        "HGETALL deadline",
        "PEXPIRETIME deadline2",
        "HGETALL deadline2",
    ];
    let look = |client: &mut TestConnection| {
        let seen = looks.map(|command| format!("{:?}", client.say(command)));
        client.say("SELECT 1");
        let other = format!("{:?}", client.say("HGETALL other"));
        (seen, other)
    };
    let before = look(&mut client);
    kill(&mut server);
    let server = start(&folder, &[]);
    assert_eq!(look(&mut server.connect()), before);
}

fn text(reply: &ReplyFrame) -> String {
    reply.text()
}

fn digest(client: &mut TestConnection) -> String {
    client.call(&["DEBUG", "DIGEST"]).expect("it answers").text()
}

fn wait_for_rewrite(client: &mut TestConnection) {
    let deadline = Instant::now() + Duration::from_secs(30);
    loop {
        let info = client.call(&["INFO", "persistence"]).expect("it answers");
        let info = info.text();
        if info.contains("aof_rewrite_in_progress:0") && info.contains("aof_rewrite_scheduled:0") {
            return;
        }
        assert!(Instant::now() < deadline, "the rewrite does not end");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// SIGKILL.
fn kill(server: &mut TestServer) {
    assert!(server.kill(), "it is dead");
}

fn cut(path: &Path, len: u64) {
    OpenOptions::new()
        .write(true)
        .open(path)
        .and_then(|file| file.set_len(len))
        .expect("it is ours");
}

/// What `bobbin-server --check-aof` says.
fn check_tool(arguments: &[&str], input: &str) -> String {
    use std::io::Write;
    use std::process::Stdio;
    let mut child = Command::new(peers::bobbin())
        .arg("--check-aof")
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("it starts");
    child.stdin.take().expect("a pipe").write_all(input.as_bytes()).expect("it reads");
    let output = child.wait_with_output().expect("it ends");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn names(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).expect("it is there");
    entries.map(|entry| entry.expect("ours").file_name().to_string_lossy().into_owned()).collect()
}
