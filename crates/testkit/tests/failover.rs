//! FAILOVER, between Bobbins and with real Valkey servers at either end.

use std::time::Duration;

use bobbin_testkit::{Received, Reply, Server, until};

/// Copies begin at once, and tests may look inside.
const ARGUMENTS: [&str; 4] = ["--repl-diskless-sync-delay", "0", "--enable-debug-command", "yes"];

fn start() -> Server {
    Server::bobbin(&ARGUMENTS)
}

fn text(reply: &Reply) -> String {
    String::from_utf8_lossy(reply.bytes().expect("it has bytes")).into_owned()
}

/// A field of INFO.
fn info(server: &Server, field: &str) -> String {
    let text = text(&server.connect().say("INFO everything"));
    let line = text.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(':'));
    line.unwrap_or_else(|| panic!("no {field} in {text}")).to_owned()
}

fn follow(replica: &Server, primary: &Server) {
    let port = primary.address().port();
    let reply = replica.connect().say(&format!("REPLICAOF 127.0.0.1 {port}"));
    assert!(text(&reply).starts_with("OK"), "{reply:?}");
}

/// Waits until all these have all that the primary has.
fn settle(primary: &Server, replicas: &[&Server]) {
    until(|| {
        let offset = info(primary, "master_repl_offset");
        let has_it = |server: &&Server| {
            info(server, "master_link_status") == "up"
                && info(server, "master_repl_offset") == offset
        };
        replicas.iter().all(has_it) && info(primary, "master_repl_offset") == offset
    });
}

fn same(servers: &[&Server]) {
    let digests: Vec<_> =
        servers.iter().map(|server| text(&server.connect().say("DEBUG DIGEST"))).collect();
    assert!(digests.iter().all(|digest| *digest == digests[0]), "{digests:#?}");
}

/// A primary with online replicas, and some keys.
fn group(primary: &Server, replicas: &[&Server]) {
    primary.connect().say("RPUSH list a b c");
    replicas.iter().for_each(|replica| follow(replica, primary));
    settle(primary, replicas);
    until(|| info(primary, "slave0").contains("state=online"));
    let last = format!("slave{}", replicas.len() - 1);
    until(|| info(primary, &last).contains("state=online"));
}

fn failover(primary: &Server, words: &str) -> Reply {
    primary.connect().say(format!("FAILOVER {words}").trim())
}

fn to(target: &Server) -> String {
    format!("TO 127.0.0.1 {}", target.address().port())
}

/// The replica takes over, and the others go on without a copy.
fn hands_over(old: &Server, new: &Server, third: &Server) {
    group(old, &[new, third]);
    let (full, partial) = (info(new, "sync_full"), info(new, "sync_partial_ok"));
    old.connect().say("SET before 1");
    assert_eq!(failover(old, &to(new)), Reply::simple("OK"));
    until(|| info(old, "master_failover_state") == "no-failover");
    assert_eq!((info(old, "role"), info(new, "role")), ("slave".into(), "master".into()));
    follow(third, new);
    new.connect().say("SET after 1");
    settle(new, &[old, third]);
    let partial: u64 = partial.parse().expect("a number");
    assert_eq!(info(new, "sync_partial_ok"), (partial + 2).to_string());
    assert_eq!(info(new, "sync_full"), full);
    same(&[old, new, third]);
    assert_eq!(old.connect().say("GET after"), Reply::bulk("1"));
}

#[test]
#[ignore = "end to end: run by `cargo xtask test`"]
fn a_replica_takes_over_and_the_old_primary_follows_without_a_copy() {
    let (old, new, third) = (start(), start(), start());
    hands_over(&old, &new, &third);
    assert!(old.log().contains("is synced, failing over."));
    assert!(new.log().contains("PRIMARY MODE enabled (failover request from"));
    // And back, to any replica.
    assert_eq!(failover(&new, ""), Reply::simple("OK"));
    until(|| info(&new, "master_failover_state") == "no-failover");
    assert_eq!(info(&new, "role"), "slave");
}

#[test]
#[ignore = "end to end: run by `cargo xtask test`"]
fn real_servers_take_over_and_hand_over() {
    hands_over(&start(), &Server::valkey(&ARGUMENTS), &start());
    hands_over(&Server::valkey(&ARGUMENTS), &start(), &start());
}

#[test]
#[ignore = "end to end: run by `cargo xtask test`"]
fn writes_wait_until_it_is_over() {
    let (primary, replica) = (start(), start());
    group(&primary, &[&replica]);
    replica.signal("STOP");
    let mut writer = primary.connect();
    writer.say("SET a 1");
    let mut blocked = primary.connect();
    blocked.send(&["BLPOP", "none", "0"]).expect("it is sent");
    assert_eq!(failover(&primary, &to(&replica)), Reply::simple("OK"));
    assert_eq!(info(&primary, "master_failover_state"), "waiting-for-sync");
    assert_eq!(info(&primary, "paused_reason"), "failover_in_progress");
    writer.send(&["SET", "a", "2"]).expect("it is sent");
    // It is no pause of a client's, and none of a client's ends it.
    for line in ["CLIENT PAUSE 10 ALL", "CLIENT UNPAUSE"] {
        assert_eq!(primary.connect().say(line), Reply::simple("OK"));
    }
    let Ok(Received::Nothing) = writer.receive_within(Duration::from_millis(150)) else {
        panic!("a write did not wait")
    };
    assert_eq!(primary.connect().say("GET a"), Reply::bulk("1"));
    for (line, error) in [
        ("REPLICAOF NO ONE", "ERR REPLICAOF not allowed while failing over."),
        ("FAILOVER", "ERR FAILOVER already in progress."),
        ("PSYNC ? -1", "NOMASTERLINK Can't SYNC while failing over"),
    ] {
        assert_eq!(primary.connect().say(line), Reply::error(error), "{line}");
    }
    // Given up: they go on.
    assert_eq!(failover(&primary, "ABORT"), Reply::simple("OK"));
    assert_eq!(writer.receive().expect("it answers"), Reply::simple("OK"));
    assert_eq!(info(&primary, "master_failover_state"), "no-failover");
    // Done: they are told to go elsewhere.
    assert_eq!(failover(&primary, &to(&replica)), Reply::simple("OK"));
    writer.send(&["SET", "a", "3"]).expect("it is sent");
    replica.signal("CONT");
    let refused = Reply::error("READONLY You can't write against a read only replica.");
    assert_eq!(writer.receive().expect("it answers"), refused);
    let dismissed = "UNBLOCKED force unblock from blocking operation, instance state changed \
                     (master -> replica?)";
    assert_eq!(blocked.receive().expect("it answers"), Reply::error(dismissed));
    assert!(blocked.receive().is_err(), "it is closed");
    until(|| info(&primary, "master_link_status") == "up");
    assert_eq!(replica.connect().say("GET a"), Reply::bulk("2"));
    assert_eq!(info(&replica, "sync_full"), "0");
    same(&[&primary, &replica]);
}

#[test]
#[ignore = "end to end: run by `cargo xtask test`"]
fn when_the_time_is_over_it_is_given_up_or_forced() {
    let (primary, replica) = (start(), start());
    group(&primary, &[&replica]);
    replica.signal("STOP");
    primary.connect().say("SET a 1");
    assert_eq!(failover(&primary, &format!("{} TIMEOUT 50", to(&replica))), Reply::simple("OK"));
    until(|| info(&primary, "master_failover_state") == "no-failover");
    assert!(primary.log().contains("aborted: Replica never caught up before timeout"));
    assert_eq!(primary.connect().say("SET a 2"), Reply::simple("OK"));
    let words = format!("{} TIMEOUT 50 FORCE", to(&replica));
    assert_eq!(failover(&primary, &words), Reply::simple("OK"));
    until(|| info(&primary, "master_failover_state") == "failover-in-progress");
    assert_eq!(info(&primary, "role"), "slave");
    // It may still be called off, and leads again.
    assert_eq!(failover(&primary, "ABORT"), Reply::simple("OK"));
    assert_eq!(info(&primary, "role"), "master");
    assert_eq!(primary.connect().say("SET a 3"), Reply::simple("OK"));
    assert!(primary.log().contains("time out exceeded, failing over."));
    replica.signal("CONT");
}

#[test]
#[ignore = "end to end: run by `cargo xtask test`"]
fn a_target_that_refuses_leaves_the_primary_as_it_was() {
    let (primary, replica) = (start(), start());
    group(&primary, &[&replica]);
    replica.connect().say("ACL SETUSER default -psync");
    assert_eq!(failover(&primary, &to(&replica)), Reply::simple("OK"));
    until(|| primary.log().contains("aborted: Failover target rejected psync request"));
    until(|| info(&primary, "master_failover_state") == "no-failover");
    assert_eq!(info(&primary, "role"), "master");
    assert_eq!(primary.connect().say("SET a 1"), Reply::simple("OK"));
    settle(&primary, &[&replica]);
    same(&[&primary, &replica]);
}

/// What FAILOVER and its PSYNC refuse: with what, and with which words.
fn refusals(primary: &Server, replica: &Server) -> Vec<(String, Reply)> {
    let port = replica.address().port().to_string();
    let mut replies = Vec::new();
    let mut ask = |server: &Server, line: &str| {
        let reply = server.connect().say(&line.replace("PORT", &port));
        replies.push((line.to_owned(), reply));
    };
    ask(primary, "FAILOVER");
    for has_replica in [false, true] {
        if has_replica {
            group(primary, &[replica]);
        }
        for words in [
            "ABORT",
            "ABORT NOW",
            "FORCE TIMEOUT 100",
            "TO 127.0.0.1 PORT FORCE",
            "TO invalidhost PORT",
            "TO 127.0.0.1 port",
            "TO 127.0.0.1 -7",
            "TIMEOUT 0",
            "TIMEOUT x",
            "TO 127.0.0.1 PORT TO 127.0.0.1 PORT",
        ] {
            ask(primary, &format!("FAILOVER {words}"));
        }
    }
    ask(replica, "FAILOVER");
    ask(primary, "PSYNC x 1 FAILOVER");
    ask(replica, "PSYNC x 1 FAILOVER");
    let mut client = primary.connect();
    for line in ["MULTI", "FAILOVER ABORT", "FAILOVER TIMEOUT 1 NOW", "EXEC"] {
        replies.push((line.to_owned(), client.say(line)));
    }
    replies
}

#[test]
#[ignore = "end to end: run by `cargo xtask test`"]
fn what_makes_no_sense_is_refused_as_by_valkey() {
    let expected = refusals(&Server::valkey(&ARGUMENTS), &Server::valkey(&ARGUMENTS));
    let found = refusals(&start(), &start());
    for (expected, found) in expected.iter().zip(&found) {
        assert!(expected == found, "{}: {} {}", found.0, shown(&expected.1), shown(&found.1));
    }
    assert_eq!(found.len(), expected.len());
}

fn shown(reply: &Reply) -> String {
    reply.bytes().map_or_else(|| format!("{reply:?}"), |_| text(reply))
}
