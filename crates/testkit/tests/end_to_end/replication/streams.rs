//! Replication: what a replica has, what it is told, and what becomes of it when links and parts
//! change. Between Bobbins, and with real Valkey and Redis servers where there are any.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bobbin_testkit::load::disturb;
use bobbin_testkit::{ReceiveOutcome, ReplyFrame, TestConnection, TestServer, until};

/// Copies begin at once, and tests may look inside.
const ARGUMENTS: [&str; 4] = ["--repl-diskless-sync-delay", "0", "--enable-debug-command", "yes"];

fn start(arguments: &[&str]) -> TestServer {
    TestServer::bobbin(&[&ARGUMENTS, arguments].concat())
}

fn follow(replica: &TestServer, primary: &TestServer) {
    let port = primary.address().port();
    let reply = replica.connect().say(&format!("REPLICAOF 127.0.0.1 {port}"));
    assert_eq!(reply, ReplyFrame::simple("OK"));
}

/// What has a deadline dies at the primary, which tells the others.
fn end(primary: &TestServer, replicas: &[&TestServer]) {
    std::thread::sleep(Duration::from_millis(300));
    primary.connect().say("SET end 1");
    primary.settle(replicas);
}

/// All have the same keys.
fn same(servers: &[&TestServer]) {
    let digests: Vec<_> = servers.iter().map(|server| server.digest()).collect();
    assert!(digests.iter().all(|digest| *digest == digests[0]), "{digests:#?}");
}

/// Load on the primary while replicas come, one of them to another replica.
fn all_have_the_same(primary: &TestServer, first: &TestServer, second: &TestServer) {
    disturb(&mut primary.connect(), 1, 500);
    std::thread::scope(|scope| {
        for seed in 2..4 {
            scope.spawn(move || disturb(&mut primary.connect(), seed, 3000));
        }
        follow(first, primary);
        until(|| first.info("master_link_status") == "up");
        follow(second, first);
    });
    primary.settle(&[first, second]);
    end(primary, &[first, second]);
    same(&[primary, first, second]);
}

#[test]
#[ignore = "end to end: run by `cargo xtask test`"]
fn replicas_and_theirs_have_what_the_primary_has() {
    all_have_the_same(&start(&["--io-threads", "2"]), &start(&[]), &start(&[]));
}

/// So it is with logs on disk, and with real servers at both ends.
#[test]
#[ignore = "end to end: run by `cargo xtask test`"]
fn real_servers_lead_and_follow() {
    let logged = ["--appendonly", "yes"];
    all_have_the_same(&TestServer::valkey(&ARGUMENTS), &start(&logged), &start(&[]));
    all_have_the_same(&start(&logged), &TestServer::valkey(&ARGUMENTS), &start(&[]));
}

#[test]
#[ignore = "end to end: run by `cargo xtask test`"]
fn a_link_that_broke_goes_on_where_it_was() {
    let (primary, replica) = (start(&[]), start(&[]));
    follow(&replica, &primary);
    primary.settle(&[&replica]);
    for round in 1..4 {
        assert_eq!(primary.connect().say("CLIENT KILL TYPE replica"), ReplyFrame::integer(1));
        disturb(&mut primary.connect(), round, 200);
        primary.settle(&[&replica]);
        assert_eq!(primary.info("sync_partial_ok"), round.to_string());
    }
    assert_eq!(primary.info("sync_full"), "1");
    end(&primary, &[&replica]);
    same(&[&primary, &replica]);
}

/// A replica is dropped for a record that is larger than its output limit. It gets a copy then:
/// with the record as the stream it would be dropped again, for ever.
#[test]
#[ignore = "end to end: run by `cargo xtask test`"]
fn a_record_beyond_the_output_limit_is_in_a_copy() {
    let limit = ["--client-output-buffer-limit", "replica 1mb 0 0"];
    let backlog = ["--repl-backlog-size", "1mb"];
    let (primary, replica) = (start(&[limit, backlog].concat()), start(&[]));
    follow(&replica, &primary);
    primary.settle(&[&replica]);
    for (round, kib) in [1054, 5000].into_iter().enumerate() {
        let value = "v".repeat(kib << 10);
        primary.connect().call(&["SET", "key", &value]).expect("it answers");
        primary.settle(&[&replica]);
        let copies = [primary.info("sync_full"), primary.info("sync_partial_ok")];
        assert_eq!(copies, [(round + 2).to_string(), "0".to_owned()], "{kib} KiB");
    }
    same(&[&primary, &replica]);
}

/// A replica that was dropped for what the backlog has would only ask for the same again.
#[test]
#[ignore = "end to end: run by `cargo xtask test`"]
fn what_the_backlog_has_is_within_both_limits() {
    let limit = ["--client-output-buffer-limit", "replica 64kb 64kb 0"];
    let backlog = ["--repl-backlog-size", "64mb"];
    let (primary, replica) = (start(&[limit, backlog].concat()), start(&[]));
    follow(&replica, &primary);
    primary.settle(&[&replica]);
    replica.stop();
    let value = "v".repeat(1 << 20);
    for _ in 0..32 {
        primary.connect().call(&["SET", "key", &value]).expect("it answers");
    }
    replica.signal("CONT");
    primary.settle(&[&replica]);
    assert_eq!(primary.info("client_output_buffer_limit_disconnections"), "0");
    assert_eq!(primary.info("sync_full"), "1");
}

/// Sentinel reads how long a replica has had no primary, and replaces none by one whose data is too
/// old.
#[test]
#[ignore = "end to end: run by `cargo xtask test`"]
fn a_replica_that_looks_for_another_primary_says_since_when_it_has_none() {
    for start in [TestServer::valkey as fn(&[&str]) -> TestServer, TestServer::bobbin] {
        let (mut primary, replica) = (start(&ARGUMENTS), start(&ARGUMENTS));
        follow(&replica, &primary);
        primary.settle(&[&replica]);
        let since = || replica.info("master_link_down_since_seconds").parse::<i64>().unwrap();
        primary.kill();
        until(|| replica.info("master_link_status") == "down");
        let before = since();
        assert!((0..100).contains(&before), "{before}");
        // Nobody listens there.
        assert_eq!(replica.connect().say("REPLICAOF 127.0.0.1 1"), ReplyFrame::simple("OK"));
        assert!((before..100).contains(&since()));
        assert_eq!(replica.connect().say("REPLICAOF NO ONE"), ReplyFrame::simple("OK"));
        assert_eq!(replica.connect().say("REPLICAOF 127.0.0.1 1"), ReplyFrame::simple("OK"));
        assert_eq!(since(), -1);
    }
}

/// A replica that comes again gets a copy, as it knows the history by its old name alone.
#[test]
#[ignore = "end to end: run by `cargo xtask test`"]
fn a_history_can_be_given_up() {
    let (primary, replica) = (start(&[]), start(&[]));
    follow(&replica, &primary);
    primary.settle(&[&replica]);
    let mut client = primary.connect();
    let before = primary.info("master_replid");
    assert_eq!(client.say("DEBUG CHANGE-REPL-ID"), ReplyFrame::simple("OK"));
    assert_ne!(primary.info("master_replid"), before);
    assert!(primary.info("master_replid2").bytes().all(|digit| digit == b'0'));
    // The link that is there stays.
    client.say("SET key value");
    assert_eq!(client.say("WAIT 1 0"), ReplyFrame::integer(1));
    assert_eq!(primary.info("sync_full"), "1");
    assert_eq!(client.say("CLIENT KILL TYPE replica"), ReplyFrame::integer(1));
    primary.settle(&[&replica]);
    assert_eq!(
        (primary.info("sync_full"), primary.info("sync_partial_ok")),
        ("2".into(), "0".into())
    );
    assert_eq!(replica.info("master_replid"), primary.info("master_replid"));
    same(&[&primary, &replica]);
}

/// It is in the stream, and neither in the primary's keys nor in its log.
#[test]
#[ignore = "end to end: run by `cargo xtask test`"]
fn a_command_can_be_for_replicas_alone() {
    let (primary, replica) = (start(&["--appendonly", "yes"]), start(&[]));
    follow(&replica, &primary);
    primary.settle(&[&replica]);
    let mut client = primary.connect();
    client.say("SET before x");
    assert_eq!(client.say("DEBUG REPLICATE SET there y"), ReplyFrame::simple("OK"));
    client.say("SET behind z");
    primary.settle(&[&replica]);
    let mut reader = replica.connect();
    let all = reader.say("MGET before there behind");
    assert_eq!(all.items().iter().map(ReplyFrame::text).collect::<Vec<_>>(), ["x", "y", "z"]);
    assert_eq!(client.say("DEBUG LOADAOF"), ReplyFrame::simple("OK"));
    assert_eq!(client.say("EXISTS before there behind"), ReplyFrame::integer(2));
}

/// The replica lists its connection to the primary among its clients, and ends it as one of them.
#[test]
#[ignore = "end to end: run by `cargo xtask test`"]
fn a_replica_lists_its_primary() {
    let primary = start(&[]);
    for replica in [start(&[]), TestServer::valkey(&ARGUMENTS)] {
        follow(&replica, &primary);
        primary.settle(&[&replica]);
        let mut client = replica.connect();
        let lines = client.say("CLIENT LIST TYPE primary").text();
        let address = format!(" addr=127.0.0.1:{} ", primary.address().port());
        assert!(lines.contains(&address) && lines.contains(" user=(superuser) "), "{lines}");
        assert!(lines.contains(" flags=M ") && lines.lines().count() == 1, "{lines}");
        assert_eq!(client.say("CLIENT LIST FLAGS M").text().lines().count(), 1);
        let others = client.say("CLIENT LIST NOT-TYPE primary USER default").text();
        assert!(!others.contains(" flags=M "), "{others}");
        assert!(client.say("CLIENT LIST").text().contains(" flags=M "));
        let id = lines.strip_prefix("id=").and_then(|rest| rest.split(' ').next());
        let id = id.unwrap_or_else(|| panic!("{lines}"));
        assert_eq!(client.say(&format!("CLIENT KILL ID {id}")), ReplyFrame::integer(1));
        assert_eq!(client.say("CLIENT KILL ID 1234567"), ReplyFrame::integer(0));
        primary.connect().say("SET after 1");
        primary.settle(&[&replica]);
        assert_eq!(client.say("CLIENT LIST TYPE primary").text().lines().count(), 1);
        assert_eq!(client.say("CLIENT KILL TYPE primary"), ReplyFrame::integer(1));
    }
}

#[test]
#[ignore = "end to end: run by `cargo xtask test`"]
fn the_old_primary_follows_the_new_one_without_a_copy() {
    // Nothing that the old one says by itself may come after the new one has left.
    let old = start(&["--repl-ping-replica-period", "3600"]);
    let (new, third) = (start(&[]), start(&[]));
    follow(&new, &old);
    follow(&third, &old);
    disturb(&mut old.connect(), 1, 500);
    assert_eq!(old.connect().say("DEBUG SET-ACTIVE-EXPIRE 0"), ReplyFrame::simple("OK"));
    old.settle(&[&new, &third]);
    assert_eq!(new.connect().say("REPLICAOF NO ONE"), ReplyFrame::simple("OK"));
    assert_eq!(new.info("role"), "master");
    // What they go on from is kept, though no replica reads it for a while.
    std::thread::sleep(Duration::from_millis(300));
    follow(&old, &new);
    follow(&third, &new);
    disturb(&mut new.connect(), 2, 500);
    end(&new, &[&old, &third]);
    assert_eq!(new.info("sync_full"), "0");
    assert_eq!(new.info("sync_partial_ok"), "2");
    same(&[&new, &old, &third]);
}

/// Whether its history goes on is not known before the new primary has answered.
#[test]
#[ignore = "end to end: run by `cargo xtask test`"]
fn replicas_stay_while_their_primary_looks_for_one() {
    let (first, second) = (start(&[]), start(&[]));
    let mut replica = listen_to_stream(&second);
    let mut client = second.connect();
    client.say("SET last 1");
    // Nothing listens there.
    client.say("REPLICAOF 127.0.0.1 1");
    let mut bytes = Vec::new();
    receive(&mut replica, &mut bytes, |bytes| {
        bytes.windows(4).any(|part| part == b"last") && bytes.ends_with(b"1\r\n")
    });
    assert!(second.info("slave0").contains("state=online"));
    // This one has another history.
    follow(&second, &first);
    until(|| second.info("master_link_status") == "up");
    until(|| second.info("connected_slaves") == "0");
}

/// CLIENT PAUSE on a replica keeps its keys as they are.
#[test]
#[ignore = "end to end: run by `cargo xtask test`"]
fn a_pause_holds_up_the_stream() {
    for start in [TestServer::bobbin, TestServer::valkey] {
        let (primary, replica) = (start(&ARGUMENTS), start(&ARGUMENTS));
        primary.connect().say("SET key before");
        follow(&replica, &primary);
        until(|| replica.info("master_link_status") == "up");
        primary.settle(&[&replica]);
        let mut reader = replica.connect();
        assert_eq!(reader.say("CLIENT PAUSE 100000 WRITE"), ReplyFrame::simple("OK"));
        primary.connect().say("SET key after");
        until(|| replica.info("slave_read_repl_offset") == primary.info("master_repl_offset"));
        assert_eq!(reader.say("GET key"), ReplyFrame::bulk("before"));
        assert_ne!(replica.info("slave_repl_offset"), replica.info("slave_read_repl_offset"));
        reader.say("CLIENT UNPAUSE");
        primary.settle(&[&replica]);
        assert_eq!(reader.say("GET key"), ReplyFrame::bulk("after"));
        // A pause does not keep it from becoming a primary.
        reader.say("CLIENT PAUSE 100000 WRITE");
        primary.connect().say("SET key late");
        until(|| replica.info("slave_read_repl_offset") == primary.info("master_repl_offset"));
        assert_eq!(reader.say("REPLICAOF NO ONE"), ReplyFrame::simple("OK"));
        assert_eq!(reader.say("GET key"), ReplyFrame::bulk("after"));
    }
}

#[test]
#[ignore = "end to end: run by `cargo xtask test`"]
fn a_replica_reads_and_does_not_write() {
    let (primary, replica) = (start(&[]), start(&[]));
    primary.connect().say("SET key value");
    primary.connect().say("SET short value PX 1");
    primary.connect().say("DEBUG SET-ACTIVE-EXPIRE 0");
    follow(&replica, &primary);
    primary.settle(&[&replica]);
    let mut client = replica.connect();
    assert_eq!(client.say("GET key"), ReplyFrame::bulk("value"));
    let refused = ReplyFrame::error("READONLY You can't write against a read only replica.");
    for line in ["SET key other", "DEL short", "EXPIRE key 10", "FLUSHALL", "XADD s * a b"] {
        assert_eq!(client.say(line), refused, "{line}");
    }
    let script = ["EVAL", "return redis.pcall('SET', KEYS[1], 'x').err", "1", "key"];
    let reply = client.call(&script).expect("it answers");
    assert!(reply.text().starts_with("READONLY"), "{reply:?}");
    // One that does not promise to write nothing may not begin.
    let script = |head: &str| ["EVAL".to_owned(), format!("#!lua{head}\nreturn 1"), "0".into()];
    assert_eq!(client.call(&script("")).expect("it answers"), refused);
    let reply = client.call(&script(" flags=no-writes")).expect("it answers");
    assert_eq!(reply, ReplyFrame::integer(1));
    // What it carried out counts as its own.
    client.say("CONFIG RESETSTAT");
    primary.connect().say("SPOP nothing");
    for line in ["SADD set a b c", "SPOP set 2"] {
        primary.connect().say(line);
    }
    primary.settle(&[&replica]);
    let calls = |name: &str| replica.info(&format!("cmdstat_{name}"));
    assert!(calls("sadd").starts_with("calls=1,"), "{}", calls("sadd"));
    assert!(calls("srem").starts_with("calls=1,"), "{}", calls("srem"));
    // It is there until the primary says otherwise, and no client sees it.
    primary.connect().say("SET passing value PX 50");
    primary.settle(&[&replica]);
    std::thread::sleep(Duration::from_millis(60));
    assert!(client.say("GET passing").is_null());
    assert_eq!(client.say("CONFIG SET replica-read-only no"), ReplyFrame::simple("OK"));
    assert_eq!(client.say("SET own value"), ReplyFrame::simple("OK"));
}

#[test]
#[ignore = "end to end: run by `cargo xtask test`"]
fn a_replica_evicts_by_itself_only_if_it_is_told_to() {
    let starts: [fn(&[&str]) -> TestServer; 2] = [TestServer::valkey, TestServer::bobbin];
    for start_replica in starts {
        let primary = start(&[]);
        let replica = start_replica(&["--maxmemory-policy", "allkeys-random"]);
        follow(&replica, &primary);
        let mut client = primary.connect();
        let value = "v".repeat(1000);
        (0..2000).for_each(|at| assert!(!client.say(&format!("SET k:{at} {value}")).is_error()));
        primary.settle(&[&replica]);
        let mut at_replica = replica.connect();
        assert_eq!(at_replica.say("CONFIG SET maxmemory 1mb"), ReplyFrame::simple("OK"));
        assert!(!client.say("SET one more").is_error());
        primary.settle(&[&replica]);
        assert_eq!(at_replica.say("DBSIZE"), ReplyFrame::integer(2001));
        let reply = at_replica.say("CONFIG SET replica-ignore-maxmemory no");
        assert_eq!(reply, ReplyFrame::simple("OK"));
        // Valkey evicts when a command comes.
        assert!(!client.say("SET two more").is_error());
        until(|| at_replica.say("DBSIZE") != ReplyFrame::integer(2002));
        assert_eq!(client.say("DBSIZE"), ReplyFrame::integer(2002));
        assert_eq!(client.say("SET three more"), ReplyFrame::simple("OK"));
    }
}

#[test]
#[ignore = "end to end: run by `cargo xtask test`"]
fn wait_counts_replicas_that_have_the_write() {
    let primary = start(&[]);
    let replicas = [start(&[]), start(&[])];
    let mut client = primary.connect();
    assert_eq!(client.say("WAIT 0 0"), ReplyFrame::integer(0));
    client.say("SET a 1");
    assert_eq!(client.say("WAIT 1 20"), ReplyFrame::integer(0));
    replicas.iter().for_each(|replica| follow(replica, &primary));
    primary.settle(&[&replicas[0], &replicas[1]]);
    // The copy has what was written before there was a stream.
    assert_eq!(client.say("WAIT 2 10000"), ReplyFrame::integer(2));
    for round in 0..20 {
        client.say(&format!("SET a {round}"));
        assert_eq!(client.say("WAIT 2 10000"), ReplyFrame::integer(2));
        for replica in &replicas {
            assert_eq!(replica.connect().say("GET a"), ReplyFrame::bulk(round.to_string()));
        }
    }
    replicas[0].stop();
    client.say("SET a last");
    assert_eq!(client.say("WAIT 2 50"), ReplyFrame::integer(1));
    replicas[0].signal("CONT");
    assert_eq!(client.say("WAIT 2 10000"), ReplyFrame::integer(2));
}

#[test]
#[ignore = "end to end: run by `cargo xtask test`"]
fn waitaof_counts_disks() {
    let logged = ["--appendonly", "yes", "--appendfsync", "always"];
    let (primary, replica, without) = (start(&logged), start(&logged), start(&[]));
    follow(&replica, &primary);
    follow(&without, &primary);
    primary.settle(&[&replica, &without]);
    let mut client = primary.connect();
    let found = |local, replicas| {
        ReplyFrame::array(vec![ReplyFrame::integer(local), ReplyFrame::integer(replicas)])
    };
    for round in 0..5 {
        client.say(&format!("SET a {round}"));
        assert_eq!(client.say("WAITAOF 1 1 10000"), found(1, 1));
        assert_eq!(client.say("WAITAOF 0 2 50"), found(1, 1), "one has no disk");
    }
    let refused = "ERR WAITAOF cannot be used with replica instances. Please also note that writes to \
                   replicas are just local and are not propagated.";
    assert_eq!(replica.connect().say("WAITAOF 0 0 0"), ReplyFrame::error(refused));
}

/// What a replica has by a copy, or had when its link broke, is on its disk although nothing
/// follows.
#[test]
#[ignore = "end to end: run by `cargo xtask test`"]
fn waitaof_counts_disks_that_have_it_already() {
    let log = ["--appendonly", "yes"];
    let (primary, replica) = (start(&log), start(&log));
    let mut client = primary.connect();
    client.say("SET key value");
    follow(&replica, &primary);
    let both = ReplyFrame::array(vec![ReplyFrame::integer(1), ReplyFrame::integer(1)]);
    assert_eq!(client.say("WAITAOF 1 1 20000"), both);
    assert_eq!(client.say("CLIENT KILL TYPE replica"), ReplyFrame::integer(1));
    until(|| primary.info("sync_partial_ok") == "1");
    assert_eq!(client.say("WAITAOF 1 1 20000"), both);
    assert_eq!(primary.info("sync_full"), "1");
}

/// Programs wait until a replica has the offset that the primary tells them. Where the log's thread
/// waits for a core it is told nevertheless, so now and then one may miss the write.
#[test]
#[ignore = "end to end: run by `cargo xtask test`"]
fn a_client_is_told_an_offset_that_has_its_write() {
    for log in [&[][..], &["--appendonly", "yes"]] {
        let (primary, replica) = (start(log), start(&[]));
        follow(&replica, &primary);
        until(|| replica.info("master_link_status") == "up");
        let (mut client, mut reader) = (primary.connect(), replica.connect());
        let offset = |info: &ReplyFrame, field: &str| {
            let text = info.text();
            let line = text.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(':'));
            line.expect("it is there").parse::<u64>().expect("a number")
        };
        let mut missed = 0;
        for n in 0..200 {
            client.say(&format!("SET key {n}"));
            let wanted = offset(&client.say("INFO replication"), "master_repl_offset");
            until(|| offset(&reader.say("INFO replication"), "slave_repl_offset") >= wanted);
            missed += usize::from(reader.say("GET key") != ReplyFrame::bulk(n.to_string()));
        }
        assert!(missed < 20, "{missed} of 200 {log:?}");
    }
}

#[test]
#[ignore = "end to end: run by `cargo xtask test`"]
fn writes_need_as_many_replicas_as_are_asked_for() {
    let primary = start(&["--min-replicas-to-write", "1"]);
    let mut client = primary.connect();
    let refused = ReplyFrame::error("NOREPLICAS Not enough good replicas to write.");
    until(|| client.say("SET a 1") == refused);
    assert!(client.say("GET a").is_null());
    let script = client.call(&["EVAL", "return redis.call('SET', KEYS[1], 1)", "1", "a"]);
    assert!(script.expect("it answers").text().starts_with("NOREPLICAS"));
    let script = client.call(&["EVAL", "#!lua\nreturn 1", "0"]);
    assert_eq!(script.expect("it answers"), refused);
    let replica = start(&[]);
    follow(&replica, &primary);
    until(|| client.say("SET a 1") == ReplyFrame::simple("OK"));
    assert_eq!(primary.info("min_slaves_good_slaves"), "1");
    drop(replica);
    until(|| client.say("SET a 1") == refused);
    assert_eq!(client.say("CONFIG SET min-replicas-to-write 0"), ReplyFrame::simple("OK"));
    until(|| client.say("SET a 1") == ReplyFrame::simple("OK"));
}

#[test]
#[ignore = "end to end: run by `cargo xtask test`"]
fn those_who_listen_at_a_replica_hear_what_is_published() {
    let primary = start(&["--appendonly", "yes"]);
    let port = primary.address().port().to_string();
    let replica = start(&["--replicaof", "127.0.0.1", &port]);
    primary.settle(&[&replica]);
    let named = ReplyFrame::array(vec![
        ReplyFrame::bulk("replicaof"),
        ReplyFrame::bulk(format!("127.0.0.1 {port}")),
    ]);
    assert_eq!(replica.connect().say("CONFIG GET replicaof"), named);
    let mut listener = replica.connect();
    listener.say("SUBSCRIBE news");
    let mut blocked = replica.connect();
    blocked.send(&["XREAD", "BLOCK", "0", "STREAMS", "stream", "$"]).expect("it is sent");
    until(|| replica.info("blocked_clients") == "1");
    let mut client = primary.connect();
    for line in ["PUBLISH news 1", "MULTI", "SET a 1", "PUBLISH news 2", "EXEC"] {
        client.say(line);
    }
    client.say("XADD stream 1-1 field value");
    for expected in ["1", "2"] {
        let message = listener.receive().expect("it hears");
        let items = ["message", "news", expected].map(ReplyFrame::bulk);
        assert_eq!(message, ReplyFrame::array(items.to_vec()));
    }
    assert!(!blocked.receive().expect("it is served").is_null());
    // Messages are nothing for the disk.
    client.say("CONFIG SET appendonly no");
    let folder = primary.folder().join("appendonlydir");
    let files = std::fs::read_dir(folder).expect("there is a log").flatten();
    let log: Vec<u8> = files.flat_map(|file| std::fs::read(file.path()).expect("a file")).collect();
    assert!(!log.windows(7).any(|word| word == b"PUBLISH"));
}

/// Both ways of client-side caching, at a replica whose keys only its primary changes. Bobbin and
/// Valkey tell the same.
#[test]
#[ignore = "end to end: run by `cargo xtask test`"]
fn clients_that_keep_copies_of_a_replicas_keys_hear_of_changes() {
    let pairs =
        [(TestServer::valkey(&ARGUMENTS), TestServer::valkey(&[])), (start(&[]), start(&[]))];
    for (primary, replica) in &pairs {
        follow(replica, primary);
        primary.settle(&[replica]);
        let (mut client, mut reader) = (primary.connect(), replica.connect());
        let hello = reader.say("HELLO 3");
        let role = hello.items().iter().position(|item| item.text() == "role");
        assert_eq!(role.map(|at| hello.items()[at + 1].text()).as_deref(), Some("replica"));
        client.say("SET copied 1");
        primary.settle(&[replica]);
        assert_eq!(reader.say("CLIENT TRACKING ON"), ReplyFrame::simple("OK"));
        assert_eq!(reader.say("GET copied"), ReplyFrame::bulk("1"));
        client.say("SET copied 2");
        let mut invalid = || reader.receive().expect("it hears").items()[1].clone();
        assert_eq!(invalid(), ReplyFrame::array(vec![ReplyFrame::bulk("copied")]));
        reader.say("CLIENT TRACKING OFF");
        reader.say("CLIENT TRACKING ON BCAST PREFIX x");
        client.say("MSET xa 1 xb 2 y 3");
        let mut invalid = reader.receive().expect("it hears").items()[1].clone();
        invalid.sort_unordered();
        assert_eq!(invalid, ReplyFrame::array(["xa", "xb"].map(ReplyFrame::bulk).to_vec()));
    }
}

/// Also what waited for everybody to stop while the server took the lead is not carried out.
#[test]
#[ignore = "end to end: run by `cargo xtask test`"]
fn a_server_that_leads_does_nothing_more_of_its_primary() {
    let (primary, replica) = (start(&[]), start(&["--io-threads", "2"]));
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut client = primary.connect();
            while !stop.load(Ordering::SeqCst) {
                client.send_raw(&b"SET a 1\r\nFLUSHALL\r\n".repeat(50)).expect("it is sent");
                (0..100).for_each(|_| assert!(!client.receive().expect("it answers").is_error()));
            }
        });
        let lead = || {
            let mut client = replica.connect();
            for _ in 0..ROUNDS {
                follow(&replica, &primary);
                until(|| replica.info("master_link_status") == "up");
                client.send_raw(b"REPLICAOF NO ONE\r\nSET mine 1\r\n").expect("it is sent");
                for expected in std::iter::repeat_n("OK", 2).chain(std::iter::repeat_n("1", 20)) {
                    if expected == "1" {
                        client.send(&["GET", "mine"]).expect("it is sent");
                    }
                    let reply = client.receive().expect("it answers");
                    if reply.is_null() || reply.text() != expected {
                        return false;
                    }
                }
            }
            true
        };
        let kept = lead();
        stop.store(true, Ordering::SeqCst);
        assert!(kept, "what a server wrote as a primary is gone");
    });
}

/// How often a server takes the lead.
const ROUNDS: usize = 5;

/// Bobbin and Valkey answer alike.
#[test]
#[ignore = "end to end: run by `cargo xtask test`"]
fn clients_that_understand_it_are_sent_to_the_primary() {
    let primary = start(&[]);
    let to_primary = ReplyFrame::error(&format!("REDIRECT 127.0.0.1:{}", primary.address().port()));
    let (ok, queued) = (ReplyFrame::simple("OK"), ReplyFrame::simple("QUEUED"));
    for replica in [start(&[]), TestServer::valkey(&ARGUMENTS)] {
        let mut early = replica.connect();
        for line in ["CLIENT CAPA REDIRECT", "MULTI", "SET a 1"] {
            early.say(line);
        }
        let block = |lines: &[&str], waits: &str| {
            let mut client = replica.connect();
            lines.iter().for_each(|line| _ = client.say(line));
            client.send(&waits.split(' ').collect::<Vec<_>>()).expect("it is sent");
            client
        };
        let (pop, read) = ("BLPOP list 0", "XREAD BLOCK 0 STREAMS stream $");
        let mut redirected = [
            block(&["CLIENT CAPA REDIRECT"], pop),
            block(&["CLIENT CAPA REDIRECT"], read),
            block(&["CLIENT CAPA REDIRECT", "READONLY"], pop),
        ];
        let mut reader = block(&["CLIENT CAPA REDIRECT", "READONLY"], read);
        let mut plain = block(&[], read);
        until(|| replica.info("blocked_clients") == "5");
        follow(&replica, &primary);
        primary.settle(&[&replica]);
        assert_eq!(early.say("EXEC"), to_primary);
        for client in &mut redirected {
            assert_eq!(client.receive().expect("it is told"), to_primary);
            assert_eq!(client.say("PING"), ReplyFrame::simple("PONG"));
        }
        assert!(plain.receive().expect("it is told").text().starts_with("UNBLOCKED "));
        assert_eq!(replica.info("blocked_clients"), "1");
        primary.connect().say("XADD stream 1-1 f v");
        let served = reader.receive().expect("it is served");
        assert_eq!(served.items().len(), 1, "{served:?}");
        primary.connect().say("DEL stream");
        let mut client = replica.connect();
        let aborted =
            ReplyFrame::error("EXECABORT Transaction discarded because of previous errors.");
        for (line, expected) in [
            ("GET a", ReplyFrame::parse(b"$-1\r\n").unwrap().unwrap().0),
            ("CLIENT CAPA REDIRECT", ok.clone()),
            ("GET a", to_primary.clone()),
            ("SET a 1", to_primary.clone()),
            ("MULTI", ok.clone()),
            ("GET a", to_primary.clone()),
            ("EXEC", aborted),
            ("PING", ReplyFrame::simple("PONG")),
            ("READONLY", ok.clone()),
            ("MULTI", ok.clone()),
            ("EXISTS a", queued.clone()),
            ("EXEC", ReplyFrame::array(vec![ReplyFrame::integer(0)])),
            ("SET a 1", to_primary.clone()),
            ("READWRITE", ok.clone()),
            ("EXISTS a", to_primary.clone()),
        ] {
            assert_eq!(client.say(line), expected, "{line}");
        }
        client.say("READONLY");
        assert!(client.say("CLIENT INFO").text().contains(" flags=r "));
        client.say("RESET");
        assert!(client.say("CLIENT INFO").text().contains(" flags=N "));
        // What it is capable of stays.
        assert_eq!(client.say("EXISTS a"), to_primary);
    }
}

/// What goes over the wire, as a client of ours that speaks as a replica does sees it.
/// Also where a client waits for the key, or watches it.
#[test]
#[ignore = "end to end: run by `cargo xtask test`"]
fn the_stream_tells_of_every_key_that_has_died() {
    for interest in ["PING", "BRPOP k 0", "WATCH k"] {
        let primary = start(&[]);
        let mut replica = listen_to_stream(&primary);
        let (mut client, mut interested) = (primary.connect(), primary.connect());
        for line in ["DEBUG SET-ACTIVE-EXPIRE 0", "SELECT 1", "RPUSH k v", "PEXPIRE k 1"] {
            client.say(line);
        }
        interested.say("SELECT 9");
        interested.send(&interest.split(' ').collect::<Vec<_>>()).expect("it is sent");
        until(|| {
            let list = client.say("CLIENT LIST").text();
            list.contains(&format!("cmd={}", interest.split(' ').next().unwrap().to_lowercase()))
        });
        std::thread::sleep(Duration::from_millis(5));
        assert_eq!(client.say("SWAPDB 1 9"), ReplyFrame::simple("OK"));
        client.say("SELECT 9");
        assert_eq!(client.say("EXISTS k"), ReplyFrame::integer(0));
        client.say("SET last 1");
        let mut bytes = Vec::new();
        receive(&mut replica, &mut bytes, |bytes| bytes.windows(4).any(|part| part == b"last"));
        let stream = String::from_utf8_lossy(&bytes).into_owned();
        assert!(stream.contains("UNLINK\r\n$1\r\nk\r\n"), "{interest}: {stream}");
    }
}

#[test]
#[ignore = "end to end: run by `cargo xtask test`"]
fn the_stream_holds_each_unit_as_it_was() {
    let primary = start(&["--repl-ping-replica-period", "1000"]);
    let mut client = primary.connect();
    client.say("SET before 1");
    let mut replica = primary.connect();
    for line in ["REPLCONF listening-port 1234", "REPLCONF capa eof capa psync2"] {
        assert_eq!(replica.say(line), ReplyFrame::simple("OK"));
    }
    replica.send(&["PSYNC", "?", "-1"]).expect("it is sent");
    let mut bytes = Vec::new();
    receive(&mut replica, &mut bytes, |bytes| bytes.len() > 200);
    let end = bytes.iter().position(|&byte| byte == b'\n').expect("a line") + 1;
    let line = String::from_utf8(bytes.drain(..end).collect()).expect("it is text");
    let words: Vec<_> = line.trim().split(' ').map(str::to_owned).collect();
    assert_eq!((words[0].as_str(), words[1].len()), ("+FULLRESYNC", 40));
    let header = String::from_utf8_lossy(&bytes[..5]).into_owned();
    assert_eq!(header, "$EOF:");
    let mark = bytes[5..45].to_vec();
    receive(&mut replica, &mut bytes, |bytes| bytes.len() > 47 + 40 && bytes.ends_with(&mark));
    assert!(bytes[47..].starts_with(b"REDIS0010"), "it does not say what it is");
    for line in ["SET a 1", "MULTI", "INCR a", "SELECT 2", "SET b 2", "EXEC", "GET b", "INCR n"] {
        client.say(line);
    }
    // Nothing comes before the replica has said that it has the copy.
    let Ok(ReceiveOutcome::Nothing) = replica.receive_within(Duration::from_millis(200)) else {
        panic!("the stream came too early")
    };
    let (offset, mut stream) = (words[2].parse::<u64>().expect("a number"), Vec::new());
    replica.send(&["REPLCONF", "ACK", &words[2]]).expect("it is sent");
    let expected = "SELECT 0 SET a 1 MULTI INCR a SELECT 2 SET b 2 EXEC INCR n";
    receive(&mut replica, &mut stream, |stream| words_of(stream) == expected);
    let end = offset + stream.len() as u64;
    assert_eq!(primary.info("master_repl_offset"), end.to_string());
    // From any byte on.
    drop(replica);
    let mut replica = primary.connect();
    replica.say("REPLCONF capa eof capa psync2");
    let wanted = (offset + 24).to_string();
    replica.send(&["PSYNC", words[1].as_str(), wanted.as_str()]).expect("it is sent");
    let mut expected = format!("+CONTINUE {}\r\n", words[1]).into_bytes();
    expected.extend_from_slice(&stream[23..]);
    let mut rest = Vec::new();
    receive(&mut replica, &mut rest, |rest| rest.len() >= expected.len());
    assert_eq!(rest, expected);
    // Not from a byte that there is not, nor of another history.
    for (id, offset) in [(words[1].clone(), end + 2), ("f".repeat(40), end)] {
        let mut replica = primary.connect();
        replica.say("REPLCONF capa eof");
        replica.send(&["PSYNC", id.as_str(), offset.to_string().as_str()]).expect("it is sent");
        let line = replica.receive().expect("it answers").text();
        assert!(line.starts_with("FULLRESYNC"), "{line}");
    }
}

/// A reply would lie between bytes of the stream.
#[test]
#[ignore = "end to end: run by `cargo xtask test`"]
fn a_replica_that_sends_a_command_with_a_reply_is_disconnected() {
    use std::io::Read;
    let primary = start(&["--repl-ping-replica-period", "1000"]);
    let ends = |replica: &mut TestConnection, line: &str| {
        replica.send_raw(format!("{line}\r\n").as_bytes()).expect("it is sent");
        let mut bytes = Vec::new();
        replica.stream().set_read_timeout(Some(Duration::from_secs(20))).expect("a socket");
        let ended = replica.stream().read_to_end(&mut bytes);
        assert!(ended.is_ok(), "{line}: {ended:?} after {}", String::from_utf8_lossy(&bytes));
        let end = &bytes[bytes.len().saturating_sub(20)..];
        for reply in ["OK\r\n", "PONG\r\n", ":0\r\n", ":1\r\n"] {
            assert!(!end.ends_with(reply.as_bytes()), "{line}");
        }
        assert!(!primary.connect().say("INFO replication").text().contains("slave0:"));
    };
    let at_once = ["GET k", "SUBSCRIBE channel", "HELLO 3", "RESET", "PING", "REPLCONF capa eof"];
    let script = "EVAL 'local n = 0 for i = 1, 1000000 do n = n + 1 end return 1' 0";
    let later = ["WAIT 2 1", "WAITAOF 0 2 1", "SAVE", "BLPOP none 0.01", script];
    for line in at_once.iter().chain(&later) {
        ends(&mut listen_to_stream(&primary), line);
    }
    // The second command is in the same packet.
    for line in ["SYNC\r\nPING", "PSYNC ? -1\r\nPING", "PSYNC ? -1\r\nWAIT 2 1"] {
        ends(&mut primary.connect(), line);
    }
    for line in ["REPLCONF ACK 1", "PSYNC ? -1", "MONITOR"] {
        let mut replica = listen_to_stream(&primary);
        replica.send_raw(format!("{line}\r\n").as_bytes()).expect("it is sent");
        primary.connect().say("SET k v");
        receive(&mut replica, &mut Vec::new(), |bytes| bytes.ends_with(b"$1\r\nv\r\n"));
        drop(replica);
        until(|| !primary.connect().say("INFO replication").text().contains("slave0:"));
    }
}

/// What only a replica needed is dropped when the replica has gone, and what only a longer backlog
/// held when that was made shorter, though nothing is written any more.
#[test]
#[ignore = "end to end: run by `cargo xtask test`"]
fn an_idle_primary_drops_what_nobody_needs_of_the_stream() {
    let quiet = ["--repl-ping-replica-period", "1000"];
    let primary = start(&[&quiet, &["--repl-backlog-size", "4mb"][..]].concat());
    let number = |field: &str| primary.info(field).parse::<u64>().expect("a number");
    let mut replica = listen_to_stream(&primary);
    let mut client = primary.connect();
    let value = "x".repeat(1 << 20);
    for _ in 0..40 {
        assert_eq!(client.say(&format!("SET k {value}")), ReplyFrame::simple("OK"));
    }
    until(|| number("repl_backlog_histlen") > 20 << 20);
    assert!(number("mem_clients_slaves") > 16 << 20);
    assert_eq!(number("mem_replication_backlog"), 4 << 20);
    drop(replica);
    until(|| number("repl_backlog_histlen") < 6 << 20);
    assert_eq!(number("mem_clients_slaves"), 0);
    assert_eq!(client.say("CONFIG SET repl-backlog-size 1mb"), ReplyFrame::simple("OK"));
    assert!(number("repl_backlog_histlen") < 3 << 20);
    assert_eq!(number("mem_clients_slaves"), 0);
    // A replica that reads at last needs no more of it either.
    replica = listen_to_stream(&primary);
    for _ in 0..40 {
        assert_eq!(client.say(&format!("SET k {value}")), ReplyFrame::simple("OK"));
    }
    until(|| number("repl_backlog_histlen") > 20 << 20);
    receive(&mut replica, &mut Vec::new(), |bytes| bytes.len() > 40 << 20);
    until(|| number("repl_backlog_histlen") < 3 << 20);
    drop(replica);
    // A replica whose copy takes for ever needs all that is written meanwhile.
    client.say("CONFIG SET rdb-key-save-delay 100000000");
    let mut waiting = TestConnection::open(primary.address()).expect("it listens");
    waiting.send_raw(b"SYNC\r\n").expect("it is sent");
    until(|| primary.info("rdb_bgsave_in_progress") == "1");
    for _ in 0..40 {
        assert_eq!(client.say(&format!("SET k {value}")), ReplyFrame::simple("OK"));
    }
    until(|| number("repl_backlog_histlen") > 20 << 20);
    drop(waiting);
    until(|| number("repl_backlog_histlen") < 3 << 20);
}

/// A replica that asks by SYNC, has its copy, and gets the stream.
fn listen_to_stream(primary: &TestServer) -> TestConnection {
    let mut replica = TestConnection::open(primary.address()).expect("it listens");
    replica.send_raw(b"SYNC\r\n").expect("it is sent");
    until(|| primary.connect().say("INFO replication").text().contains("state=online"));
    replica
}

/// Receives raw bytes until there is enough.
fn receive(client: &mut TestConnection, bytes: &mut Vec<u8>, enough: impl Fn(&[u8]) -> bool) {
    use std::io::Read;
    let stream = client.stream();
    stream.set_read_timeout(Some(Duration::from_secs(20))).expect("a socket has a time limit");
    let mut block = [0; 4096];
    while !enough(bytes) {
        let count = stream.read(&mut block).expect("more comes");
        assert!(count > 0, "the primary has gone: {}", String::from_utf8_lossy(bytes));
        bytes.extend_from_slice(&block[..count]);
    }
}

/// The words of commands.
fn words_of(commands: &[u8]) -> String {
    let text = String::from_utf8_lossy(commands);
    let words = text.split("\r\n").filter(|line| !line.is_empty() && !line.starts_with(['*', '$']));
    words.collect::<Vec<_>>().join(" ")
}
