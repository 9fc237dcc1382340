//! What `appendfsync always` promises: no client hears of a change that the disk does not have, and
//! whatever was done is answered, also at the end of the server.

use std::time::{Duration, Instant};

use bobbin_testkit::connection::encode_command;
use bobbin_testkit::disk::{Folder, FragileDisk};
use bobbin_testkit::{ReceiveOutcome, ReplyFrame, TestConnection, TestServer};

use crate::common::on_both;

const LIMIT: Duration = Duration::from_secs(30);
/// A server that ends waits for its disk for ten seconds.
const DISK_LIMIT: Duration = Duration::from_secs(9);
/// Long enough for an answer that does not wait for the disk.
const A_WHILE: Duration = Duration::from_millis(300);
const BOTH_DRIVERS: [&str; 2] = ["epoll", "io_uring"];

fn start(dir: &str, policy: &str, more: &[&str]) -> TestServer {
    let own = ["--dir", dir, "--appendonly", "yes", "--appendfsync", policy];
    let threads = ["--io-threads", "4", "--enable-debug-command", "yes"];
    TestServer::bobbin(&[&own[..], &threads, more].concat())
}

fn hears_nothing(client: &mut TestConnection) -> bool {
    client.receive_within(A_WHILE).expect("it lives") == ReceiveOutcome::Nothing
}

/// A change that is not on disk shows nowhere: not to the client that made it, nor to others that
/// read it, were served by it, were told of it, or could conclude it from a script's or a
/// transaction's answer, with whatever worker they are.
#[test]
#[ignore = "end to end: run by `cargo xtask test`"]
fn nobody_hears_of_what_the_disk_does_not_have() {
    for driver in BOTH_DRIVERS {
        let Some(disk) = FragileDisk::new("100m") else { return };
        let more = ["--io-driver", driver, "--notify-keyspace-events", "KEA"];
        let server = start(disk.text(), "always", &more);
        let mut writer = server.connect();
        for line in ["SET k before", "SET far 1", "HSET h f before"] {
            assert!(!writer.say(line).is_error());
        }
        let [mut reader, mut blocked, mut listener, mut keeper, mut script, mut queue, mut other] =
            std::array::from_fn(|_| server.connect());
        listener.say("PSUBSCRIBE __key*__:*");
        keeper.say("HELLO 3");
        keeper.say("CLIENT TRACKING ON");
        assert_eq!(keeper.say("GET k").text(), "before");
        blocked.send(&["BLPOP", "list", "0"]).expect("is sent");
        while !other.say("INFO clients").text().contains("blocked_clients:1") {
            std::thread::sleep(Duration::from_millis(5));
        }
        assert_eq!(queue.say("MULTI").text(), "OK");
        assert_eq!(queue.say("GET k").text(), "QUEUED");
        assert!(disk.freeze(), "it hangs");
        let mut bytes = Vec::new();
        encode_command(&["SET", "k", "after"], &mut bytes);
        encode_command(&["RPUSH", "list", "element"], &mut bytes);
        writer.send_raw(&bytes).expect("is sent");
        assert!(hears_nothing(&mut writer), "{driver}: the writer");
        reader.send(&["GET", "k"]).expect("is sent");
        let source = "return redis.call('get', KEYS[1])";
        script.send(&["EVAL", source, "1", "k"]).expect("is sent");
        queue.send(&["EXEC"]).expect("is sent");
        for (name, client) in [
            ("who reads", &mut reader),
            ("who was served", &mut blocked),
            ("who listens", &mut listener),
            ("who keeps a copy", &mut keeper),
            ("a script", &mut script),
            ("a transaction", &mut queue),
        ] {
            assert!(hears_nothing(client), "{driver}: {name} heard of it");
        }
        disk.thaw();
        assert_eq!(writer.receive().expect("at last").text(), "OK");
        assert_eq!(writer.receive().expect("at last").as_integer(), Some(1));
        assert_eq!(reader.receive().expect("at last").text(), "after");
        assert_eq!(script.receive().expect("at last").text(), "after");
        assert_eq!(blocked.receive().expect("at last").items()[1].text(), "element");
        assert_eq!(listener.receive().expect("at last").items()[3].text(), "set");
        assert_eq!(keeper.receive().expect("at last").items()[0].text(), "invalidate");
        assert_eq!(queue.receive().expect("at last").items()[0].text(), "after");
    }
}

/// Replies that wait for the disk when the server ends are sent: by SHUTDOWN, in the pipeline
/// before it, and by a signal.
#[test]
#[ignore = "end to end: run by `cargo xtask test`"]
fn what_was_done_before_the_end_is_answered() {
    const CLIENTS: usize = 6;
    for driver in BOTH_DRIVERS {
        for by_signal in [false, true] {
            let folder = Folder::new();
            let mut server = start(folder.text(), "always", &["--io-driver", driver]);
            let mut clients: Vec<_> = (0..CLIENTS).map(|_| server.connect()).collect();
            let mut last = server.connect();
            assert_eq!(last.say("DEBUG AOF-FLUSH-SLEEP 400000").text(), "OK");
            // The log's thread is at work on this one while the others come.
            last.send(&["SET", "first", "1"]).expect("is sent");
            std::thread::sleep(Duration::from_millis(50));
            let value = "x".repeat(300_000);
            for (number, client) in clients.iter_mut().enumerate() {
                let mut bytes = Vec::new();
                encode_command(&["SET", &format!("k{number}"), &value], &mut bytes);
                encode_command(&["GET", &format!("k{number}")], &mut bytes);
                encode_command(&["INCR", "count"], &mut bytes);
                client.send_raw(&bytes).expect("is sent");
            }
            std::thread::sleep(Duration::from_millis(100));
            let mut bytes = Vec::new();
            encode_command(&["SET", "last", "1"], &mut bytes);
            if by_signal {
                server.signal("TERM");
            } else {
                encode_command(&["SHUTDOWN", "NOSAVE"], &mut bytes);
            }
            last.send_raw(&bytes).expect("is sent");
            let what = format!("{driver}, by signal {by_signal}");
            let asked = Instant::now();
            // What a worker has not read by then is not done, and not answered.
            let mut answers: Vec<Vec<ReplyFrame>> = clients.iter_mut().map(until_closed).collect();
            let answered_last = until_closed(&mut last);
            assert_eq!(server.wait(LIMIT).expect("it ends").code(), Some(0), "{what}");
            drop(server);
            let server = start(folder.text(), "always", &[]);
            let mut client = server.connect();
            let counted = answers.iter().filter_map(|answers| answers.get(2)?.as_integer()).count();
            let count = client.say("GET count").text().parse().unwrap_or(0);
            assert!(counted <= count, "{what}: all that was answered was counted");
            if asked.elapsed() > DISK_LIMIT {
                // The disk took so long that the server ended without an answer.
                continue;
            }
            assert_eq!(counted, count, "{what}: all that was counted was answered");
            for (number, answers) in answers.drain(..).enumerate() {
                let is_there = client.say(&format!("EXISTS k{number}")).as_integer() == Some(1);
                assert_eq!(is_there, !answers.is_empty(), "{what}: {number}");
                assert!(answers.get(1).is_none_or(|got| got.text() == value), "{what}");
            }
            assert_eq!(answered_last[0].text(), "OK", "{what}");
            let is_there = client.say("EXISTS last").as_integer() == Some(1);
            assert_eq!(is_there, answered_last.len() == 2, "{what}");
            assert!(is_there || by_signal, "it comes before SHUTDOWN");
        }
    }
}

/// Every reply to come.
fn until_closed(client: &mut TestConnection) -> Vec<ReplyFrame> {
    let mut replies = Vec::new();
    while let ReceiveOutcome::Reply(reply) = client.receive_within(LIMIT).expect("it is no garbage")
    {
        replies.push(reply);
    }
    replies
}

/// Replies that wait for the disk do so no longer than until it has what they tell of, also when
/// the promise is taken back meanwhile.
#[test]
#[ignore = "end to end: run by `cargo xtask test`"]
fn replies_come_though_the_promise_is_taken_back() {
    let folder = Folder::new();
    for (option, value) in
        [("appendfsync", "no"), ("appendfsync", "everysec"), ("appendonly", "no")]
    {
        let server = start(folder.text(), "always", &[]);
        let (mut client, mut other) = (server.connect(), server.connect());
        assert_eq!(other.say("DEBUG AOF-FLUSH-SLEEP 200000").text(), "OK");
        for round in 0..4 {
            assert_eq!(other.say("CONFIG SET appendonly yes appendfsync always").text(), "OK");
            client.send(&["INCR", "n"]).expect("is sent");
            std::thread::sleep(Duration::from_millis(60 * round));
            assert_eq!(
                other.call(&["CONFIG", "SET", option, value]).expect("it lives").text(),
                "OK"
            );
            assert!(client.receive().expect("it is answered").as_integer().is_some());
        }
    }
}

/// A log that was turned on and has no base yet would be worth nothing: only by force does the
/// server end then.
#[test]
#[ignore = "end to end: run by `cargo xtask test`"]
fn no_end_before_the_log_has_its_base() {
    on_both(&["--enable-debug-command", "yes"], |_, server| {
        let mut client = server.connect();
        client.say("DEBUG POPULATE 20000");
        client.say("CONFIG SET rdb-key-save-delay 1000");
        assert_eq!(client.say("CONFIG SET appendonly yes").text(), "OK");
        for line in ["SHUTDOWN", "SHUTDOWN NOSAVE"] {
            let refused = client.say(line).text();
            assert_eq!(refused, "ERR Errors trying to SHUTDOWN. Check logs.");
        }
        assert!(server.log().contains("Writing initial AOF, can't exit"));
        client.send(&["SHUTDOWN", "NOSAVE", "FORCE"]).expect("is sent");
        assert_eq!(server.wait(LIMIT).expect("it ends").code(), Some(0));
        assert!(server.log().contains("Writing initial AOF. Exit anyway"));
        let left = std::fs::read_dir(server.folder()).expect("it is there");
        let left: Vec<_> = left.map(|entry| entry.expect("ours").file_name()).collect();
        let is_base = |name: &std::ffi::OsString| name.to_string_lossy().contains("rewriteaof");
        assert!(!left.iter().any(is_base), "{left:?}");
    });
}

/// A signal is seen to by the clock; as long as that stands still its end can be called off.
#[test]
#[ignore = "end to end: run by `cargo xtask test`"]
fn an_end_can_be_called_off() {
    on_both(&["--enable-debug-command", "yes"], |_, server| {
        let mut client = server.connect();
        let refused = "ERR No shutdown in progress.";
        assert_eq!(client.say("SHUTDOWN ABORT").text(), refused);
        assert_eq!(client.say("DEBUG PAUSE-CRON 1").text(), "OK");
        server.signal("TERM");
        wait_for_log(server, "Received SIGTERM");
        std::thread::sleep(Duration::from_millis(50));
        assert_eq!(client.say("SHUTDOWN ABORT").text(), "OK");
        assert!(server.log().contains("Shutdown manually aborted"));
        assert_eq!(client.say("SHUTDOWN ABORT").text(), refused);
        assert_eq!(client.say("DEBUG PAUSE-CRON 0").text(), "OK");
        assert_eq!(client.say("PING").text(), "PONG");
        server.signal("TERM");
        assert_eq!(server.wait(LIMIT).expect("it ends").code(), Some(0));
    });
}

/// A user who cannot wait for the last snapshot says so by another SIGINT: nothing unfinished is
/// left of it.
#[test]
#[ignore = "end to end: run by `cargo xtask test`"]
fn an_end_can_be_insisted_on() {
    let slow = ["--rdb-key-save-delay", "1000000", "--save", "3600 1"];
    on_both(&slow, |name, server| {
        let mut client = server.connect();
        for key in 0..100 {
            client.say(&format!("SET key:{key} value"));
        }
        server.signal("INT");
        wait_for_log(server, "Saving the final RDB snapshot before exiting");
        server.signal("INT");
        assert_eq!(server.wait(LIMIT).expect("it ends").code(), Some(1), "{name}");
        let left = std::fs::read_dir(server.folder()).expect("it is there");
        let left: Vec<_> = left.map(|entry| entry.expect("ours").file_name()).collect();
        let is_snapshot = |file: &std::ffi::OsString| file.to_string_lossy().ends_with(".rdb");
        assert!(!left.iter().any(is_snapshot), "{name}: {left:?}");
    });
}

/// The same by another SIGTERM, if it is not the first one that came twice.
#[test]
#[ignore = "end to end: run by `cargo xtask test`"]
fn an_end_can_be_insisted_on_by_sigterm() {
    let slow = ["--rdb-key-save-delay", "1000000", "--save", "3600 1"];
    let mut server = TestServer::bobbin(&slow);
    let mut client = server.connect();
    for key in 0..100 {
        client.say(&format!("SET key:{key} value"));
    }
    server.signal("TERM");
    wait_for_log(&server, "Saving the final RDB snapshot before exiting");
    let mut status = None;
    bobbin_testkit::until(|| {
        if server.is_running() {
            server.signal("TERM");
        }
        status = server.wait(Duration::from_millis(100));
        status.is_some()
    });
    assert_eq!(status.and_then(|status| status.code()), Some(1));
    assert!(server.log().contains("Received SIGTERM again"));
}

/// Workers that are made, or go, while the server ends hear of it as well.
#[test]
#[ignore = "end to end: run by `cargo xtask test`"]
fn an_end_while_workers_come_and_go() {
    for round in 0..20 {
        let mut server = TestServer::bobbin(&["--io-threads", "2"]);
        let listeners: Vec<_> = (0..5)
            .map(|_| {
                let mut listener = server.connect();
                listener.say("SUBSCRIBE channel");
                listener
            })
            .collect();
        let status = std::thread::scope(|scope| {
            for thread in 0..3 {
                let mut client = server.connect();
                scope.spawn(move || {
                    let mut count = 1 + (round + thread) % 8;
                    // Until the server has ended.
                    while client.call(&["CONFIG", "SET", "io-threads", &count.to_string()]).is_ok()
                    {
                        count = 1 + (count * 5 + thread) % 8;
                    }
                });
            }
            // At another moment each time.
            std::thread::sleep(Duration::from_millis(15 * round));
            server.signal("TERM");
            let status = server.wait(LIMIT);
            if status.is_none() {
                server.kill();
            }
            status
        });
        assert_eq!(status.expect("it ends").code(), Some(0), "round {round}");
        drop(listeners);
    }
}

fn wait_for_log(server: &TestServer, text: &str) {
    while !server.log().contains(text) {
        std::thread::sleep(Duration::from_millis(5));
    }
}
