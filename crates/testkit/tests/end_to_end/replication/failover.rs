//! FAILOVER, between Bobbins and with real Valkey servers at either end.

use std::time::Duration;

use bobbin_testkit::{ReceiveOutcome, ReplyFrame, TestServer, until};

/// Copies begin at once, and tests may look inside.
const ARGUMENTS: [&str; 4] = ["--repl-diskless-sync-delay", "0", "--enable-debug-command", "yes"];

fn start() -> TestServer {
    TestServer::bobbin(&ARGUMENTS)
}

/// Whether it has a primary, and is connected to it.
fn is_up(server: &TestServer) -> bool {
    server.info("role") == "slave" && server.info("master_link_status") == "up"
}

fn follow(replica: &TestServer, primary: &TestServer) {
    let port = primary.address().port();
    let reply = replica.connect().say(&format!("REPLICAOF 127.0.0.1 {port}"));
    assert!(reply.text().starts_with("OK"), "{reply:?}");
}

/// All come to have the same keys. An offset tells of what was done a moment later.
fn same(servers: &[&TestServer]) {
    let digest = |server: &&TestServer| server.connect().say("DEBUG DIGEST").text();
    let digests = || servers.iter().map(digest).collect::<Vec<_>>();
    until(|| digests().windows(2).all(|pair| pair[0] == pair[1]));
}

/// A primary with online replicas, and some keys.
fn group(primary: &TestServer, replicas: &[&TestServer]) {
    primary.connect().say("RPUSH list a b c");
    replicas.iter().for_each(|replica| follow(replica, primary));
    primary.settle(replicas);
    until(|| primary.info("slave0").contains("state=online"));
    let last = format!("slave{}", replicas.len() - 1);
    until(|| primary.info(&last).contains("state=online"));
}

fn failover(primary: &TestServer, words: &str) -> ReplyFrame {
    primary.connect().say(format!("FAILOVER {words}").trim())
}

fn to(target: &TestServer) -> String {
    format!("TO 127.0.0.1 {}", target.address().port())
}

/// The replica takes over, and the others go on without a copy.
fn hands_over(old: &TestServer, new: &TestServer, third: &TestServer) {
    group(old, &[new, third]);
    let (full, partial) = (new.info("sync_full"), new.info("sync_partial_ok"));
    old.connect().say("SET before 1");
    assert_eq!(failover(old, &to(new)), ReplyFrame::simple("OK"));
    until(|| old.info("master_failover_state") == "no-failover");
    assert_eq!((old.info("role"), new.info("role")), ("slave".into(), "master".into()));
    follow(third, new);
    new.connect().say("SET after 1");
    new.settle(&[old, third]);
    let partial: u64 = partial.parse().expect("a number");
    assert_eq!(new.info("sync_partial_ok"), (partial + 2).to_string());
    assert_eq!(new.info("sync_full"), full);
    same(&[old, new, third]);
    assert_eq!(old.connect().say("GET after"), ReplyFrame::bulk("1"));
}

#[test]
#[ignore = "end to end: run by `cargo xtask test`"]
fn a_replica_takes_over_and_the_old_primary_follows_without_a_copy() {
    let (old, new, third) = (start(), start(), start());
    hands_over(&old, &new, &third);
    assert!(old.log().contains("is synced, failing over."));
    assert!(new.log().contains("PRIMARY MODE enabled (failover request from"));
    // And back, to any replica.
    assert_eq!(failover(&new, ""), ReplyFrame::simple("OK"));
    until(|| new.info("master_failover_state") == "no-failover");
    assert_eq!(new.info("role"), "slave");
}

#[test]
#[ignore = "end to end: run by `cargo xtask test`"]
fn real_servers_take_over_and_hand_over() {
    hands_over(&start(), &TestServer::valkey(&ARGUMENTS), &start());
    hands_over(&TestServer::valkey(&ARGUMENTS), &start(), &start());
}

#[test]
#[ignore = "end to end: run by `cargo xtask test`"]
fn writes_wait_until_it_is_over() {
    let (primary, replica) = (start(), start());
    group(&primary, &[&replica]);
    replica.stop();
    let mut writer = primary.connect();
    writer.say("SET a 1");
    let mut blocked = primary.connect();
    blocked.send(&["BLPOP", "none", "0"]).expect("it is sent");
    assert_eq!(failover(&primary, &to(&replica)), ReplyFrame::simple("OK"));
    assert_eq!(primary.info("master_failover_state"), "waiting-for-sync");
    assert_eq!(primary.info("paused_reason"), "failover_in_progress");
    writer.send(&["SET", "a", "2"]).expect("it is sent");
    // It is no pause of a client's, and none of a client's ends it.
    for line in ["CLIENT PAUSE 10 ALL", "CLIENT UNPAUSE"] {
        assert_eq!(primary.connect().say(line), ReplyFrame::simple("OK"));
    }
    let Ok(ReceiveOutcome::Nothing) = writer.receive_within(Duration::from_millis(150)) else {
        panic!("a write did not wait")
    };
    assert_eq!(primary.connect().say("GET a"), ReplyFrame::bulk("1"));
    for (line, error) in [
        ("REPLICAOF NO ONE", "ERR REPLICAOF not allowed while failing over."),
        ("FAILOVER", "ERR FAILOVER already in progress."),
        ("PSYNC ? -1", "NOMASTERLINK Can't SYNC while failing over"),
    ] {
        assert_eq!(primary.connect().say(line), ReplyFrame::error(error), "{line}");
    }
    // Given up: they go on.
    assert_eq!(failover(&primary, "ABORT"), ReplyFrame::simple("OK"));
    assert_eq!(writer.receive().expect("it answers"), ReplyFrame::simple("OK"));
    assert_eq!(primary.info("master_failover_state"), "no-failover");
    // Done: they are told to go elsewhere.
    assert_eq!(failover(&primary, &to(&replica)), ReplyFrame::simple("OK"));
    writer.send(&["SET", "a", "3"]).expect("it is sent");
    replica.signal("CONT");
    let refused = ReplyFrame::error("READONLY You can't write against a read only replica.");
    assert_eq!(writer.receive().expect("it answers"), refused);
    let dismissed = "UNBLOCKED force unblock from blocking operation, instance state changed \
                     (master -> replica?)";
    assert_eq!(blocked.receive().expect("it answers"), ReplyFrame::error(dismissed));
    assert!(blocked.receive().is_err(), "it is closed");
    until(|| is_up(&primary));
    assert_eq!(replica.connect().say("GET a"), ReplyFrame::bulk("2"));
    assert_eq!(replica.info("sync_full"), "0");
    same(&[&primary, &replica]);
}

#[test]
#[ignore = "end to end: run by `cargo xtask test`"]
fn a_replica_that_loads_its_copy_may_be_the_target() {
    let primary = start();
    // It gets its copy, and never says that it has loaded it.
    let mut replica = primary.connect();
    assert_eq!(replica.say("REPLCONF listening-port 7"), ReplyFrame::simple("OK"));
    assert_eq!(replica.say("REPLCONF capa eof capa psync2"), ReplyFrame::simple("OK"));
    let answer = replica.say("PSYNC ? -1").text();
    assert!(answer.starts_with("FULLRESYNC "), "{answer}");
    until(|| primary.info("slave0").contains("state=online"));
    assert_eq!(failover(&primary, "TO 127.0.0.1 7"), ReplyFrame::simple("OK"));
    assert_eq!(primary.info("master_failover_state"), "waiting-for-sync");
    assert_eq!(failover(&primary, "ABORT"), ReplyFrame::simple("OK"));
}

#[test]
#[ignore = "end to end: run by `cargo xtask test`"]
fn when_the_time_is_over_it_is_given_up_or_forced() {
    let (primary, replica) = (start(), start());
    group(&primary, &[&replica]);
    replica.stop();
    primary.connect().say("SET a 1");
    assert_eq!(
        failover(&primary, &format!("{} TIMEOUT 50", to(&replica))),
        ReplyFrame::simple("OK")
    );
    until(|| primary.info("master_failover_state") == "no-failover");
    assert!(primary.log().contains("aborted: Replica never caught up before timeout"));
    assert_eq!(primary.connect().say("SET a 2"), ReplyFrame::simple("OK"));
    let mut blocked = primary.connect();
    blocked.send(&["BLPOP", "none", "0"]).expect("it is sent");
    until(|| primary.info("blocked_clients") == "1");
    let words = format!("{} TIMEOUT 50 FORCE", to(&replica));
    assert_eq!(failover(&primary, &words), ReplyFrame::simple("OK"));
    until(|| primary.info("master_failover_state") == "failover-in-progress");
    assert_eq!(primary.info("role"), "slave");
    assert_eq!(primary.info("blocked_clients"), "1");
    // It may still be called off, and leads again.
    assert_eq!(failover(&primary, "ABORT"), ReplyFrame::simple("OK"));
    assert_eq!(primary.info("role"), "master");
    assert_eq!(primary.connect().say("SET a 3"), ReplyFrame::simple("OK"));
    // The blocked client goes on waiting.
    assert_eq!(primary.connect().say("RPUSH none x"), ReplyFrame::integer(1));
    assert_eq!(blocked.receive().expect("it answers").items()[1], ReplyFrame::bulk("x"));
    assert!(primary.log().contains("time out exceeded, failing over."));
    replica.signal("CONT");
}

#[test]
#[ignore = "end to end: run by `cargo xtask test`"]
fn a_target_that_refuses_leaves_the_primary_as_it_was() {
    let (primary, replica) = (start(), start());
    group(&primary, &[&replica]);
    replica.connect().say("ACL SETUSER default -psync");
    assert_eq!(failover(&primary, &to(&replica)), ReplyFrame::simple("OK"));
    until(|| primary.log().contains("aborted: Failover target rejected psync request"));
    until(|| primary.info("master_failover_state") == "no-failover");
    assert_eq!(primary.info("role"), "master");
    assert_eq!(primary.connect().say("SET a 1"), ReplyFrame::simple("OK"));
    primary.settle(&[&replica]);
    same(&[&primary, &replica]);
}

/// What FAILOVER and its PSYNC refuse: with what, and with which words.
fn refusals(primary: &TestServer, replica: &TestServer) -> Vec<(String, ReplyFrame)> {
    let port = replica.address().port().to_string();
    let mut replies = Vec::new();
    let mut ask = |server: &TestServer, line: &str| {
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
    let expected = refusals(&TestServer::valkey(&ARGUMENTS), &TestServer::valkey(&ARGUMENTS));
    let found = refusals(&start(), &start());
    for (expected, found) in expected.iter().zip(&found) {
        assert!(expected == found, "{}: {} {}", found.0, shown(&expected.1), shown(&found.1));
    }
    assert_eq!(found.len(), expected.len());
}

fn shown(reply: &ReplyFrame) -> String {
    reply.bytes().map_or_else(|| format!("{reply:?}"), |_| reply.text())
}

/// The names of a section's fields, one a line. What differs from server to server is masked.
fn fields(server: &TestServer, section: &str) -> String {
    let text = server.connect().say(&format!("INFO {section}")).text();
    let name = |line: &str| line.split(':').next().unwrap_or_default().to_owned() + "\n";
    text.lines().map(name).collect()
}

/// What INFO tells of replication and of files has the names and the order of Valkey.
#[test]
#[ignore = "end to end: run by `cargo xtask test`"]
fn info_has_the_fields_of_valkey() {
    let told = |start: &dyn Fn(&[&str]) -> TestServer| {
        let logged = [&ARGUMENTS[..], &["--appendonly", "yes"]].concat();
        let (primary, replica) = (start(&ARGUMENTS), start(&logged));
        let mut told = Vec::new();
        let mut ask = |server: &TestServer, when: &str| {
            for section in ["replication", "persistence"] {
                told.push((when.to_owned(), fields(server, section)));
            }
        };
        ask(&primary, "alone");
        replica.connect().say(&format!("REPLICAOF 127.0.0.1 {}", primary.address().port()));
        primary.settle(&[&replica]);
        let is_over = |field: &str| replica.info(field) == "0";
        until(|| is_over("aof_rewrite_in_progress") && is_over("aof_rewrite_scheduled"));
        primary.connect().say("CONFIG SET min-replicas-to-write 1");
        ask(&primary, "as a primary");
        ask(&replica, "as a replica");
        drop(primary);
        until(|| replica.info("master_link_status") == "down");
        ask(&replica, "alone as a replica");
        told
    };
    let expected = told(&TestServer::valkey);
    let found = told(&TestServer::bobbin);
    for ((when, expected), (_, found)) in expected.iter().zip(&found) {
        // What a cut keeps, and what helpers of the link carry out, are matters of ours alone.
        let found = found.replace("rdb_current_kept_bytes\n", "");
        assert_eq!(&found.replace("replica_helped_commands\n", ""), expected, "{when}");
    }
}

#[test]
#[ignore = "end to end: run by `cargo xtask test`"]
fn client_kill_cuts_links_at_both_ends() {
    let (primary, replica) = (start(), start());
    group(&primary, &[&replica]);
    for (server, class, ended) in [
        (&replica, "primary", 1),
        (&replica, "replica", 0),
        (&primary, "slave", 1),
        (&primary, "master", 0),
    ] {
        let reply = server.connect().say(&format!("CLIENT KILL TYPE {class}"));
        assert_eq!(reply, ReplyFrame::integer(ended), "{class}");
        primary.settle(&[&replica]);
    }
    assert_eq!(primary.info("sync_full"), "1");
    until(|| primary.info("sync_partial_ok") == "2");
}

/// What changes parts is refused where it would be half done, or takes effect as a whole.
#[test]
#[ignore = "end to end: run by `cargo xtask test`"]
fn parts_change_between_units_alone() {
    let (primary, replica) = (start(), start());
    group(&primary, &[&replica]);
    let mut client = primary.connect();
    for command in ["REPLICAOF", "FAILOVER", "SHUTDOWN"] {
        let script = format!("return redis.pcall('{command}', 'no', 'one').err");
        let reply = client.call(&["EVAL", &script, "0"]).expect("it answers");
        assert!(reply.text().contains("not allowed from script"), "{reply:?}");
    }
    // What a transaction does behind FAILOVER is still the primary's.
    for line in ["MULTI", "SET a 1", "FAILOVER", "SET b 2"] {
        client.say(line);
    }
    let ok = ReplyFrame::simple("OK");
    assert_eq!(client.say("EXEC"), ReplyFrame::array(vec![ok.clone(), ok.clone(), ok]));
    until(|| is_up(&primary));
    assert_eq!(replica.connect().say("GET b"), ReplyFrame::bulk("2"));
    assert_eq!(replica.info("sync_full"), "0");
    same(&[&primary, &replica]);
    // And what it does around REPLICAOF is no part of a history: a copy comes instead.
    let mut client = replica.connect();
    client.say("MULTI");
    assert!(client.say("SHUTDOWN").text().contains("not allowed inside a transaction"));
    client.say("DISCARD");
    let port = replica.address().port();
    let mut client = primary.connect();
    for line in ["MULTI", "REPLICAOF NO ONE", "GET b", "EXEC"] {
        client.say(line);
    }
    assert_eq!(primary.info("role"), "master");
    let follow = format!("REPLICAOF 127.0.0.1 {port}");
    for line in ["MULTI", "SET c 3", &follow, "SET d 4", "EXEC"] {
        client.say(line);
    }
    replica.connect().say("SET e 5");
    replica.settle(&[&primary]);
    same(&[&primary, &replica]);
}

/// Sentinel sends REPLICAOF within a transaction, to other replicas and to a primary that comes
/// back. Nothing is changed there, so the server needs no copy.
#[test]
#[ignore = "end to end: run by `cargo xtask test`"]
fn a_transaction_that_changes_nothing_keeps_the_history() {
    let (old, new, third) = (start(), start(), start());
    group(&old, &[&new, &third]);
    assert_eq!(new.connect().say("REPLICAOF NO ONE"), ReplyFrame::simple("OK"));
    let follow = format!("REPLICAOF 127.0.0.1 {}", new.address().port());
    for server in [&third, &old] {
        let mut client = server.connect();
        for line in ["MULTI", &follow, "CLIENT KILL TYPE pubsub", "EXEC"] {
            client.say(line);
        }
    }
    new.connect().say("SET after 1");
    new.settle(&[&third, &old]);
    assert_eq!((new.info("sync_partial_ok"), new.info("sync_full")), ("2".into(), "0".into()));
    same(&[&old, &new, &third]);
    // The log tells replicas of one machine from each other.
    let (all, log) = (old.log(), new.log());
    for server in [&new, &third] {
        let name = format!("replica 127.0.0.1:{}", server.address().port());
        assert!(all.contains(&format!("Full resync requested by {name}")), "{all}");
    }
    for server in [&third, &old] {
        let name = format!("127.0.0.1:{}", server.address().port());
        let accepted = format!("Partial resynchronization request from {name} accepted.");
        assert!(log.contains(&accepted), "{log}");
    }
}

/// A script that takes long keeps what it has: a client that changes parts is told, or waits for
/// it.
#[test]
#[ignore = "end to end: run by `cargo xtask test`"]
fn a_slow_script_is_not_cut_in_two() {
    let arguments = [&ARGUMENTS[..], &["--busy-reply-threshold", "20"]].concat();
    let (primary, replica) = (TestServer::bobbin(&arguments), start());
    group(&primary, &[&replica]);
    for writes in [false, true] {
        let mut busy = primary.connect();
        let script = if writes {
            "redis.call('SET', KEYS[1], 1) while redis.call('EXISTS', KEYS[2]) == 0 do end"
        } else {
            "while redis.call('EXISTS', KEYS[2]) == 0 do end"
        };
        if writes {
            // It ends by itself.
            let script = "redis.call('SET', KEYS[1], 1) \
                          local n = 0 while n < 30000000 do n = n + 1 end \
                          redis.call('SET', KEYS[2], 1)";
            busy.send(&["EVAL", script, "2", "k", "end"]).expect("it is sent");
        } else {
            busy.send(&["EVAL", script, "2", "k", "end"]).expect("it is sent");
        }
        until(|| shown(&primary.connect().say("GET a")).starts_with("BUSY"));
        let port = replica.address().port();
        for line in ["FAILOVER", "REPLICAOF NO ONE", &format!("REPLICAOF 127.0.0.1 {port}")] {
            let reply = shown(&primary.connect().say(line));
            assert!(reply.starts_with("BUSY"), "{line}: {reply}");
        }
        if !writes {
            assert_eq!(primary.connect().say("SCRIPT KILL"), ReplyFrame::simple("OK"));
        }
        drop(busy.receive());
    }
    until(|| failover(&primary, "") == ReplyFrame::simple("OK"));
    until(|| is_up(&primary));
    same(&[&primary, &replica]);
}
