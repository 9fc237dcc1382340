//! What a command, a transaction or a script does is one unit: no client sees a part of it, hears
//! of it before it has its place in the log, or has it carried out by what was checked before a
//! long wait.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bobbin_testkit::disk::Folder;
use bobbin_testkit::{ReceiveOutcome, ReplyFrame, TestConnection, TestServer, until};

/// How long nothing must arrive where nothing may.
const SILENCE: Duration = Duration::from_millis(100);
/// How long what has to arrive may take.
const LIMIT: Duration = Duration::from_secs(60);

fn logged(folder: &Folder, arguments: &[&str]) -> TestServer {
    let own = ["--dir", folder.text(), "--appendonly", "yes", "--appendfsync", "always"];
    TestServer::bobbin(&[&own, arguments].concat())
}

fn field(client: &mut TestConnection, section: &str, name: &str) -> String {
    let info = client.say(&format!("INFO {section}")).text();
    let line = info.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
    line.unwrap_or_default().to_owned()
}

fn is_busy(client: &mut TestConnection) -> bool {
    client.say("GET nothing").text().starts_with("BUSY")
}

fn hears(client: &mut TestConnection, limit: Duration) -> Option<ReplyFrame> {
    match client.receive_within(limit).expect("it is connected") {
        ReceiveOutcome::Reply(reply) => Some(reply),
        ReceiveOutcome::Nothing => None,
        ReceiveOutcome::Closed => panic!("the connection ended"),
    }
}

/// A transaction's effects are in the base or in the log behind it, not in both.
#[test]
#[ignore = "end to end: run by `cargo xtask test`"]
fn what_a_transaction_orders_of_the_disk_begins_behind_it() {
    let orders: [&[&str]; 4] = [
        &["BGREWRITEAOF"],
        &["BGSAVE"],
        &["CONFIG SET appendonly no", "CONFIG SET appendonly yes"],
        &["CONFIG SET appendonly no", "INCR between", "CONFIG SET appendonly yes"],
    ];
    for order in orders {
        let folder = Folder::new();
        let mut server = logged(&folder, &[]);
        let mut client = server.connect();
        client.say("MULTI");
        client.say("INCR before");
        for line in order {
            client.say(line);
        }
        client.say("INCR behind");
        let replies = client.say("EXEC");
        assert!(replies.items().iter().all(|reply| !reply.is_error()), "{order:?}: {replies:?}");
        if order[0].starts_with("BG") {
            assert!(replies.items()[1].text().ends_with("scheduled"), "{replies:?}");
        }
        until(|| {
            ["aof_rewrite_in_progress", "aof_rewrite_scheduled", "rdb_bgsave_in_progress"]
                .iter()
                .all(|name| field(&mut client, "persistence", name) == "0")
        });
        client.say("SET last 1");
        client.say("WAITAOF 1 0 0");
        drop(client);
        server.kill();
        let server = logged(&folder, &[]);
        let mut client = server.connect();
        for key in ["before", "behind", "last"] {
            assert_eq!(client.say(&format!("GET {key}")).text(), "1", "{key}, {order:?}");
        }
    }
}

/// A client that deletes a large value with `lazyfree-lazy-user-del no` waits for its memory, with
/// nothing held: what others write then comes behind the deletion in the log, too.
#[test]
#[ignore = "end to end: run by `cargo xtask test`"]
fn a_deletion_is_logged_before_others_write_again() {
    const KEYS: usize = 10;
    let folder = Folder::new();
    let arguments =
        ["--io-threads", "3", "--lazyfree-lazy-user-del", "no", "--appendfsync", "everysec"];
    let mut server = logged(&folder, &arguments);
    let mut client = server.connect();
    let key = |number: usize| format!("large{number}");
    for number in 0..KEYS {
        let fields = (0..100_000).flat_map(|field| [format!("field{field}"), "v".repeat(20)]);
        let words: Vec<_> = ["HSET".to_owned(), key(number)].into_iter().chain(fields).collect();
        client.call(&words).expect("it is connected");
    }
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                let mut writer = server.connect();
                for round in 0.. {
                    if done.load(Ordering::Relaxed) {
                        break;
                    }
                    for number in 0..KEYS {
                        writer.say(&format!("HSET {} round{round} 1", key(number)));
                    }
                }
            });
        }
        for number in 0..KEYS {
            assert_eq!(client.say(&format!("DEL {}", key(number))), ReplyFrame::integer(1));
        }
        done.store(true, Ordering::Relaxed);
    });
    let fields = |client: &mut TestConnection| -> Vec<Vec<String>> {
        let of = |number| {
            let reply = client.say(&format!("HKEYS {}", key(number)));
            let mut names: Vec<_> = reply.items().iter().map(ReplyFrame::text).collect();
            names.sort();
            names
        };
        (0..KEYS).map(of).collect()
    };
    let before = fields(&mut client);
    assert!(before.iter().all(|names| names.iter().all(|name| name.starts_with("round"))));
    client.say("SET last 1");
    assert_eq!(client.say("WAITAOF 1 0 0").items()[0], ReplyFrame::integer(1));
    drop(client);
    server.kill();
    let server = logged(&folder, &arguments);
    assert_eq!(fields(&mut server.connect()), before);
}

/// Messages and events of a script are heard when it is over: what they tell of has its place in
/// the log then.
#[test]
#[ignore = "end to end: run by `cargo xtask test`"]
fn a_script_is_not_heard_before_it_is_over() {
    let server = TestServer::bobbin(&[
        "--io-threads",
        "2",
        "--busy-reply-threshold",
        "20",
        "--notify-keyspace-events",
        "KEA",
    ]);
    let (mut listener, mut other) = (server.connect(), server.connect());
    listener.say("PSUBSCRIBE *");
    let mut caller = server.connect();
    let script = "redis.call('set', KEYS[1], 1) redis.call('publish', 'channel', 'message') \
                  if ARGV[1] == 'loop' then while true do end end";
    let words = |argument| ["EVAL", script, "1", "key", argument];
    caller.call(&words("once")).expect("it is connected");
    let heard: Vec<_> = (0..3).filter_map(|_| hears(&mut listener, LIMIT)).collect();
    let names: Vec<_> = heard.iter().map(|reply| reply.items()[2].text()).collect();
    assert_eq!(names, ["__keyspace@0__:key", "__keyevent@0__:set", "channel"]);
    caller.send(&words("loop")).expect("it is connected");
    until(|| is_busy(&mut other));
    assert_eq!(hears(&mut listener, SILENCE), None);
    assert!(is_busy(&mut other));
    // A script that has written ends with the server.
    other.send(&["SHUTDOWN", "NOSAVE"]).expect("it is connected");
}

/// Nothing changes beside a slow script, whatever those send whose commands are answered meanwhile.
#[test]
#[ignore = "end to end: run by `cargo xtask test`"]
fn a_slow_script_is_alone() {
    let server = TestServer::bobbin(&["--io-threads", "2", "--busy-reply-threshold", "20"]);
    let (mut client, mut other) = (server.connect(), server.connect());
    for round in 0..4 {
        client.say("SET mortal 1 PX 60");
        // It reads the key at its beginning, and again and again until it is ended: it never goes.
        let script = "local first = redis.call('exists', KEYS[1]) \
                      while true do if redis.call('exists', KEYS[1]) ~= first then return 'it went' end end";
        client.send(&["EVAL", script, "1", "mortal"]).expect("it is connected");
        until(|| is_busy(&mut other));
        std::thread::sleep(Duration::from_millis(80));
        let refused = other.say("WATCH mortal").text();
        assert!(refused.starts_with("BUSY"), "{refused}");
        std::thread::sleep(Duration::from_millis(20));
        assert_eq!(other.say("SCRIPT KILL").text(), "OK", "round {round}");
        let reply = client.receive().expect("it is connected").text();
        assert!(reply.contains("Script killed by user"), "{reply}");
        assert_eq!(client.say("EXISTS mortal"), ReplyFrame::integer(0));
    }
}

/// A server that is told to end in the midst of a script that has written saves all of it or
/// nothing.
#[test]
#[ignore = "end to end: run by `cargo xtask test`"]
fn half_a_script_is_never_saved() {
    let folder = Folder::new();
    let arguments = ["--dir", folder.text(), "--save", "3600 1", "--busy-reply-threshold", "20"];
    for script in [
        "redis.call('decr', KEYS[1]) for i = 1, 2e7 do local x = i end redis.call('incr', KEYS[2])",
        "redis.call('decr', 'a') for i = 1, 2e7 do local x = i end redis.call('incr', 'b')",
    ] {
        let mut server = TestServer::bobbin(&arguments);
        let (mut client, mut other) = (server.connect(), server.connect());
        client.say("MSET a 10 b 0");
        client.send(&["EVAL", script, "2", "a", "b"]).expect("it is connected");
        until(|| is_busy(&mut other) || other.say("GET a").text() == "9");
        server.signal("TERM");
        assert!(server.wait(LIMIT).is_some(), "it ends");
        let server = TestServer::bobbin(&arguments);
        let mut client = server.connect();
        let [a, b] = ["GET a", "GET b"].map(|line| client.say(line).text().parse().unwrap_or(0));
        assert_eq!(a + b, 10, "{a} and {b} of a transfer of 1 from 10");
    }
}

/// Once a pause of writes was answered nothing changes, whichever client waited for the same thing.
#[test]
#[ignore = "end to end: run by `cargo xtask test`"]
fn what_waited_beside_a_pause_waits_for_its_end() {
    let server = TestServer::bobbin(&["--io-threads", "3"]);
    let mut reader = server.connect();
    let many: Vec<String> = (0..300).flat_map(|i| [format!("key{i}"), "new".to_owned()]).collect();
    let many: Vec<&str> = std::iter::once("MSET").chain(many.iter().map(String::as_str)).collect();
    let writes: [&[&str]; 4] =
        [&["FLUSHALL"], &many, &["SWAPDB", "0", "1"], &["EVAL", WRITER, "0"]];
    for round in 0..3 {
        for write in writes {
            reader.say("FLUSHALL");
            reader.say("SCRIPT FLUSH");
            reader.say("SET key0 old");
            // Both wait for the end of a script that holds everything.
            let (mut holder, mut pauser, mut writer) =
                (server.connect(), server.connect(), server.connect());
            for line in ["MULTI", "CLIENT PAUSE 100000 WRITE", "GET key0"] {
                pauser.say(line);
            }
            let hold = "for i = 1, 2e7 do local x = i end redis.call('get', 'key0')";
            holder.send(&["EVAL", hold, "0"]).expect("it is connected");
            std::thread::sleep(Duration::from_millis(5));
            pauser.send(&["EXEC"]).expect("it is connected");
            std::thread::sleep(Duration::from_millis(5));
            writer.send(write).expect("it is connected");
            let seen = pauser.receive().expect("it is connected").items()[1].clone();
            std::thread::sleep(Duration::from_millis(5));
            assert_eq!(reader.say("GET key0"), seen, "{} in round {round}", write[0]);
            pauser.say("CLIENT UNPAUSE");
            assert!(!writer.receive().expect("it is connected").is_error());
            assert_ne!(reader.say("GET key0").text(), "old", "{}", write[0]);
        }
    }
}

const WRITER: &str = "return redis.call('set', 'key0', 'new')";

/// Long work on values that were pinned ends behind a pause.
#[test]
#[ignore = "end to end: run by `cargo xtask test`"]
fn long_work_stores_nothing_in_a_pause() {
    let server = TestServer::bobbin(&["--io-threads", "2"]);
    let mut client = server.connect();
    for key in ["one", "two"] {
        for part in 0..20 {
            let members = (0..5_000).map(|member| format!("{key}:{part}:{member}"));
            let words: Vec<_> = ["SADD".into(), key.into()].into_iter().chain(members).collect();
            client.call(&words).expect("it is connected");
        }
    }
    let mut worker = server.connect();
    for line in [
        "SUNIONSTORE stored one two",
        "ZUNIONSTORE stored 2 one two",
        "SORT one BY nosort STORE stored",
    ] {
        client.say("DEL stored");
        worker.send(&line.split(' ').collect::<Vec<_>>()).expect("it is connected");
        client.say("CLIENT PAUSE 100000 WRITE");
        let before = client.say("EXISTS stored");
        std::thread::sleep(SILENCE * 3);
        assert_eq!(client.say("EXISTS stored"), before, "{line}");
        client.say("CLIENT UNPAUSE");
        assert!(!worker.receive().expect("it is connected").is_error());
        assert_eq!(client.say("EXISTS stored"), ReplyFrame::integer(1), "{line}");
    }
}

/// What follows a long command, in the same batch or behind the same lock, works by the time of
/// then.
#[test]
#[ignore = "end to end: run by `cargo xtask test`"]
fn a_deadline_counts_from_when_its_command_runs() {
    let server = TestServer::bobbin(&["--io-threads", "2", "--enable-debug-command", "yes"]);
    let (mut client, mut other) = (server.connect(), server.connect());
    let lock = "*6\r\n$3\r\nSET\r\n$4\r\nlock\r\n$1\r\nv\r\n$2\r\nNX\r\n$2\r\nPX\r\n$4\r\n5000\r\n";
    let long = "*3\r\n$5\r\nDEBUG\r\n$5\r\nSLEEP\r\n$3\r\n2.0\r\n";
    client.send_raw(format!("{long}{lock}").as_bytes()).expect("it is connected");
    assert_eq!([client.receive(), client.receive()].map(|it| it.unwrap().text()), ["OK", "OK"]);
    let left_ms = other.say("PTTL lock").as_integer().unwrap_or_default();
    assert!(left_ms > 3_500, "{left_ms} ms of 5,000 are left at once");
}

/// MIGRATE takes a key away as DEL does: a client that keeps a copy is told, and one that listens
/// to events.
#[test]
#[ignore = "end to end: run by `cargo xtask test`"]
fn a_key_that_is_migrated_is_gone_for_all() {
    let server = TestServer::bobbin(&["--io-threads", "2", "--notify-keyspace-events", "KEA"]);
    let target = TestServer::bobbin(&[]);
    let port = target.address().port().to_string();
    let mut writer = server.connect();
    let mut listener = server.connect();
    for mode in ["", " BCAST"] {
        let mut reader = server.connect();
        writer.say("SET key v");
        reader.say("HELLO 3");
        reader.say(&format!("CLIENT TRACKING ON{mode}"));
        reader.say("GET key");
        listener.say("PSUBSCRIBE __keyevent@0__:del");
        let moved = writer.call(&["MIGRATE", "127.0.0.1", &port, "key", "0", "20000", "REPLACE"]);
        assert_eq!(moved.expect("it is connected").text(), "OK");
        let told = hears(&mut reader, LIMIT).expect("it has a copy");
        assert_eq!(
            (told.items()[0].text(), told.items()[1].items()[0].text()),
            ("invalidate".into(), "key".into())
        );
        let event = hears(&mut listener, LIMIT).expect("it listens");
        assert_eq!(event.items()[3].text(), "key");
        listener.say("PUNSUBSCRIBE");
    }
}

/// Calls of one library, with more keys than any limit of old, wait for each other and not for
/// ever.
#[test]
#[ignore = "end to end: run by `cargo xtask test`"]
fn functions_of_many_keys_get_their_turns() {
    let server = TestServer::bobbin(&["--io-threads", "4"]);
    let library = "#!lua name=many\nserver.register_function('touch', function(keys) \
                   for _, key in ipairs(keys) do server.call('incr', key) end return #keys end)";
    server.connect().call(&["FUNCTION", "LOAD", library]).expect("it is connected");
    std::thread::scope(|scope| {
        for caller in 0..4 {
            let server = &server;
            scope.spawn(move || {
                let keys: Vec<String> =
                    (0..300).map(|i| format!("key{}", i * (caller + 1))).collect();
                let words =
                    ["FCALL", "touch", "300"].into_iter().chain(keys.iter().map(String::as_str));
                let words: Vec<&str> = words.collect();
                let mut client = server.connect();
                for _ in 0..150 {
                    assert_eq!(client.call(&words).expect("it answers"), ReplyFrame::integer(300));
                }
            });
        }
    });
}
