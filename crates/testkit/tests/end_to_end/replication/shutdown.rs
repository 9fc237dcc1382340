//! The server's end waits for replicas: by SHUTDOWN and by signals.

use std::time::Duration;

use bobbin_testkit::disk::Folder;
use bobbin_testkit::{
    ReceiveOutcome, ReplyFrame, TestConnection, TestServer, on_each_driver, until,
};

const ARGUMENTS: [&str; 2] = ["--repl-diskless-sync-delay", "0"];
/// More than any test waits.
const LIMIT: Duration = Duration::from_secs(20);

/// A field of INFO, if it is there.
fn field(client: &mut TestConnection, field: &str) -> Option<String> {
    let text = client.say("INFO everything").text();
    let line = text.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(':'));
    line.map(str::to_owned)
}

/// A primary and a replica that is stopped, and does not have the last write.
fn with_late_replica(replica: &TestServer, arguments: &[&str]) -> TestServer {
    let primary = TestServer::bobbin(&[&ARGUMENTS, arguments].concat());
    let port = primary.address().port();
    replica.connect().say(&format!("REPLICAOF 127.0.0.1 {port}"));
    until(|| primary.info("connected_slaves") == "1");
    until(|| primary.info("slave0").contains("state=online"));
    primary.connect().say("SET k 1");
    until(|| replica.info("master_repl_offset") == primary.info("master_repl_offset"));
    replica.stop();
    primary.connect().say("INCR k");
    primary
}

fn waits(primary: &TestServer) {
    until(|| field(&mut primary.connect(), "shutdown_in_milliseconds").is_some());
}

/// What the replica lacks arrives, and then the server ends.
fn ends_when_replica_has_all(replica: &TestServer, by_signal: bool) {
    let mut primary = with_late_replica(replica, &["--shutdown-timeout", "300"]);
    let (mut writer, mut client) = (primary.connect(), primary.connect());
    if by_signal {
        primary.signal("TERM");
    } else {
        client.send(&["SHUTDOWN"]).expect("it is sent");
    }
    waits(&primary);
    assert_eq!(primary.info("paused_reason"), "shutdown_in_progress");
    writer.send(&["INCR", "k"]).expect("it is sent");
    let Ok(ReceiveOutcome::Nothing) = writer.receive_within(Duration::from_millis(50)) else {
        panic!("a write did not wait")
    };
    replica.signal("CONT");
    let status = primary.wait(LIMIT).expect("it ends");
    assert!(status.success());
    assert_eq!(replica.connect().say("GET k"), ReplyFrame::bulk("2"));
    let log = primary.log();
    assert!(log.contains("Waiting for replicas before shutting down."), "{log}");
    assert!(log.contains("1 of 1 replicas are in sync when shutting down."), "{log}");
    assert!(!log.contains("Lagging replica"), "{log}");
}

#[test]
#[ignore = "end to end: run by `cargo xtask test`"]
fn it_ends_once_replicas_have_everything() {
    ends_when_replica_has_all(&TestServer::bobbin(&[]), true);
    ends_when_replica_has_all(&TestServer::valkey(&[]), false);
}

/// A pause of all clients does not concern replicas, which say how far they are.
#[test]
#[ignore = "end to end: run by `cargo xtask test`"]
fn it_ends_in_a_pause_once_replicas_have_everything() {
    let replica = TestServer::bobbin(&[]);
    let mut primary = TestServer::bobbin(&["--repl-diskless-sync-delay", "0"]);
    replica.follow(primary.address().port());
    primary.settle(&[&replica]);
    let mut client = primary.connect();
    client.say("MULTI");
    client.say("SET k 1");
    client.say("CLIENT PAUSE 1000000 ALL");
    client.say("EXEC");
    primary.signal("TERM");
    assert!(primary.wait(LIMIT).expect("it ends").success());
    assert!(!primary.log().contains("0 of 1 replicas"), "{}", primary.log());
}

#[test]
#[ignore = "end to end: run by `cargo xtask test`"]
fn it_ends_when_the_time_is_over() {
    let replica = TestServer::bobbin(&[]);
    let mut primary = with_late_replica(&replica, &["--shutdown-timeout", "1"]);
    primary.signal("TERM");
    assert!(primary.wait(LIMIT).expect("it ends").success());
    assert!(primary.log().contains("Lagging replica 127.0.0.1:"), "{}", primary.log());
    assert!(primary.log().contains("0 of 1 replicas are in sync when shutting down."));
}

/// NOW, also where another one waits already; `shutdown-on-sigterm now`; and without a time.
#[test]
#[ignore = "end to end: run by `cargo xtask test`"]
fn nobody_has_to_wait() {
    let replica = TestServer::bobbin(&[]);
    for (arguments, line, other) in [
        (&["--shutdown-timeout", "300"][..], "SHUTDOWN NOW", ""),
        (&["--shutdown-timeout", "300"], "SHUTDOWN", "SHUTDOWN NOW"),
        (&["--shutdown-timeout", "300", "--shutdown-on-sigterm", "now"], "", ""),
        (&["--shutdown-timeout", "0"], "", ""),
    ] {
        let mut primary = with_late_replica(&replica, arguments);
        let mut clients = [primary.connect(), primary.connect()];
        match line {
            "" => primary.signal("TERM"),
            _ => clients[0].send(&line.split(' ').collect::<Vec<_>>()).expect("it is sent"),
        }
        if !other.is_empty() {
            waits(&primary);
            clients[1].send(&other.split(' ').collect::<Vec<_>>()).expect("it is sent");
        }
        assert!(primary.wait(LIMIT).expect("it ends").success(), "{line}");
        replica.signal("CONT");
        replica.connect().say("REPLICAOF NO ONE");
    }
}

#[test]
#[ignore = "end to end: run by `cargo xtask test`"]
fn who_insists_ends_it_at_once() {
    let replica = TestServer::bobbin(&[]);
    let mut primary = with_late_replica(&replica, &["--shutdown-timeout", "300"]);
    primary.signal("TERM");
    waits(&primary);
    primary.signal("INT");
    assert_eq!(primary.wait(LIMIT).expect("it ends").code(), Some(1));
    assert!(primary.log().contains("Received SIGINT again"));
}

#[test]
#[ignore = "end to end: run by `cargo xtask test`"]
fn it_can_be_called_off_while_it_waits() {
    // The second request comes while the first waits for replicas, or looks whether it must.
    for is_soon in [false, true] {
        let replica = TestServer::bobbin(&[]);
        let mut primary = with_late_replica(&replica, &["--shutdown-timeout", "300"]);
        let mut clients = [primary.connect(), primary.connect(), primary.connect()];
        clients[0].send(&["SHUTDOWN"]).expect("it is sent");
        if !is_soon {
            waits(&primary);
        }
        clients[1].send(&["SHUTDOWN", "SAVE"]).expect("it is sent");
        until(|| primary.info("blocked_clients") == "2");
        if !is_soon {
            clients[2].send(&["INCR", "k"]).expect("it is sent");
        }
        assert_eq!(primary.connect().say("SHUTDOWN ABORT"), ReplyFrame::simple("OK"));
        let refused = ReplyFrame::error("ERR Errors trying to SHUTDOWN. Check logs.");
        for client in &mut clients[..2] {
            assert_eq!(client.receive().expect("it answers"), refused);
        }
        if !is_soon {
            assert_eq!(clients[2].receive().expect("it answers"), ReplyFrame::integer(3));
        }
        assert!(primary.log().contains("Shutdown manually aborted."));
        let none = ReplyFrame::error("ERR No shutdown in progress.");
        assert_eq!(primary.connect().say("SHUTDOWN ABORT"), none);
        assert!(primary.is_running());
        replica.signal("CONT");
    }
}

/// A log without a base keeps the server from ending, once replicas have everything.
#[test]
#[ignore = "end to end: run by `cargo xtask test`"]
fn all_who_asked_are_told_when_it_cannot_end() {
    let replica = TestServer::bobbin(&[]);
    let mut primary = with_late_replica(&replica, &["--shutdown-timeout", "300"]);
    let mut clients = [primary.connect(), primary.connect()];
    for client in &mut clients {
        client.send(&["SHUTDOWN"]).expect("it is sent");
    }
    until(|| primary.info("blocked_clients") == "2");
    for line in ["CONFIG SET rdb-key-save-delay 30000000", "CONFIG SET appendonly yes"] {
        assert_eq!(primary.connect().say(line), ReplyFrame::simple("OK"));
    }
    replica.signal("CONT");
    for client in &mut clients {
        let refused = ReplyFrame::error("ERR Errors trying to SHUTDOWN. Check logs.");
        assert_eq!(client.receive().expect("it answers"), refused);
    }
    let log = primary.log();
    for line in [
        "1 of 1 replicas are in sync",
        "Writing initial AOF, can't exit",
        "Errors trying to shut down the server",
    ] {
        assert!(log.contains(line), "{line}: {log}");
    }
    assert_eq!(primary.connect().say("SET k 5"), ReplyFrame::simple("OK"));
    primary.connect().send(&["SHUTDOWN", "NOSAVE", "FORCE", "NOW"]).expect("it is sent");
    assert!(primary.wait(LIMIT).is_some());
}

/// A client that sees its connection end may start another server in the same folder.
#[test]
#[ignore = "end to end: run by `cargo xtask test`"]
fn a_connection_ends_when_all_is_done() {
    for _ in 0..10 {
        on_each_driver(&["--pidfile", "bobbin.pid", "--appendonly", "yes"], |server| {
            let pid_file = server.folder().join("bobbin.pid");
            let (mut client, mut idle) = (server.connect(), server.connect());
            client.say("WAITAOF 1 0 0");
            until(|| pid_file.exists());
            client.send(&["SHUTDOWN"]).expect("it is sent");
            for connection in [&mut client, &mut idle] {
                assert!(connection.receive().is_err(), "it ends");
                assert!(!pid_file.exists(), "before the server's file of its process id went");
            }
        });
    }
}

/// Changes a key, and goes on until a client listens to a channel.
const SCRIPT: &str = "redis.call('SET', KEYS[1], 1) repeat local n = redis.call('PUBSUB', 'NUMSUB', \
                      'go') until n[2] > 0";

/// A server in which that script is running, and the client that called it.
fn with_script(arguments: &[&str]) -> (TestServer, TestConnection) {
    let own = ["--save", "3600 1", "--busy-reply-threshold", "600000"];
    let server = TestServer::bobbin(&[&own[..], arguments].concat());
    let client = run_script(&server);
    (server, client)
}

/// Begins the script; returns its client.
fn run_script(server: &TestServer) -> TestConnection {
    let mut client = server.connect();
    client.send(&["EVAL", SCRIPT, "1", "k"]).expect("it is sent");
    until(|| {
        let mut other = server.connect();
        other.send(&["GET", "k"]).expect("it is sent");
        matches!(other.receive_within(Duration::from_millis(50)), Ok(ReceiveOutcome::Nothing))
    });
    client
}

fn signal(server: &TestServer) {
    server.signal("TERM");
    until(|| server.log().contains("Received SIGTERM"));
}

#[test]
#[ignore = "end to end: run by `cargo xtask test`"]
fn a_signal_that_waits_for_a_script_can_be_called_off() {
    let (mut server, mut script) = with_script(&[]);
    signal(&server);
    assert_eq!(server.connect().say("SHUTDOWN ABORT"), ReplyFrame::simple("OK"));
    let none = ReplyFrame::error("ERR No shutdown in progress.");
    assert_eq!(server.connect().say("SHUTDOWN ABORT"), none);
    let mut listener = server.connect();
    listener.say("SUBSCRIBE go");
    script.receive().expect("it comes to its end");
    assert_eq!(server.connect().say("INCR k"), ReplyFrame::integer(2));
    assert!(server.is_running());
    signal(&server);
    assert!(server.wait(LIMIT).expect("it ends").success());
}

/// So the log says.
#[test]
#[ignore = "end to end: run by `cargo xtask test`"]
fn who_wants_no_snapshot_waits_for_no_script() {
    let (mut server, _script) = with_script(&[]);
    signal(&server);
    server.connect().send(&["SHUTDOWN", "NOSAVE"]).expect("it is sent");
    assert!(server.wait(LIMIT).expect("it ends").success());
    let log = server.log();
    assert!(!log.contains("half of what it does must not be saved"), "{log}");
    assert!(!log.contains("Saving the final RDB snapshot"), "{log}");
}

#[test]
#[ignore = "end to end: run by `cargo xtask test`"]
fn a_signal_waits_longer_than_a_client_that_asked_meanwhile() {
    let (mut server, mut script) = with_script(&[]);
    signal(&server);
    let mut client = server.connect();
    client.send(&["SHUTDOWN", "SAVE"]).expect("it is sent");
    let refused = ReplyFrame::error("ERR Errors trying to SHUTDOWN. Check logs.");
    assert_eq!(client.receive().expect("it answers"), refused);
    let mut listener = server.connect();
    listener.say("SUBSCRIBE go");
    assert!(server.wait(LIMIT).expect("it ends").success());
    assert!(script.receive().is_ok(), "the script has come to its end");
    assert!(server.log().contains("Saving the final RDB snapshot"), "{}", server.log());
}

/// Nothing begins to be saved once the end has begun: it would be named after the last snapshot,
/// and is older. The log's thread is slow here, and has the save and the end take long.
#[test]
#[ignore = "end to end: run by `cargo xtask test`"]
fn no_older_snapshot_replaces_the_last_one() {
    let folder = Folder::new();
    let arguments = ["--dir", folder.text(), "--enable-debug-command", "yes"];
    let own = ["--save", "3600 1", "--busy-reply-threshold", "600000", "--appendonly", "yes"];
    let mut server = TestServer::bobbin(&[&arguments[..], &own].concat());
    let mut client = server.connect();
    assert_eq!(client.say("DEBUG AOF-FLUSH-SLEEP 3000000"), ReplyFrame::simple("OK"));
    let _script = run_script(&server);
    signal(&server);
    for words in [&["BGSAVE"][..], &["SET", "after", "1"]] {
        client.send(words).expect("it is sent");
    }
    let mut listener = server.connect();
    listener.say("SUBSCRIBE go");
    // The server may end before it comes to these.
    let is_answered = client.receive().is_ok();
    let is_set =
        is_answered && client.receive().is_ok_and(|reply| reply == ReplyFrame::simple("OK"));
    assert!(server.wait(LIMIT).expect("it ends").success());
    let server = TestServer::bobbin(&arguments);
    let is_there = server.connect().say("EXISTS after") == ReplyFrame::integer(1);
    assert!(is_there || !is_set, "{}", server.log());
}
