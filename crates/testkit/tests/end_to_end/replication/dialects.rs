//! Replicas of other makes and versions: each gets a copy and a stream that it can read, or is told
//! why not.

use std::time::{Duration, Instant};

use bobbin_testkit::random::TestRandom;
use bobbin_testkit::{ReplyFrame, TestConnection, TestServer, peers, until};

const ARGUMENTS: [&str; 4] = ["--repl-diskless-sync-delay", "0", "--enable-debug-command", "yes"];
const OLD_REDIS: &str = "redis-server-7.0";
const OLDEST_REDIS: &str = "redis-server-6.2";

fn start(arguments: &[&str]) -> TestServer {
    TestServer::bobbin(&[&ARGUMENTS, arguments].concat())
}

/// Redis 7.0, where it was found.
fn old_redis() -> Option<TestServer> {
    peers::peer(OLD_REDIS).exists().then(|| TestServer::other(OLD_REDIS, &ARGUMENTS)).flatten()
}

fn info(server: &TestServer, field: &str) -> String {
    let reply = server.connect().say("INFO everything");
    let text = String::from_utf8_lossy(reply.bytes().expect("it has bytes")).into_owned();
    let line = text.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(':'));
    line.map(str::to_owned).unwrap_or_default()
}

fn follow(replica: &TestServer, primary: &TestServer) {
    let port = primary.address().port();
    let reply = replica.connect().say(&format!("REPLICAOF 127.0.0.1 {port}"));
    assert_eq!(reply, ReplyFrame::simple("OK"));
}

/// Waits until as many replicas have all that the primary has.
fn settle(primary: &TestServer, replicas: usize) {
    let mut client = primary.connect();
    client.say("SET end 1");
    let wait = format!("WAIT {replicas} 20000");
    assert_eq!(client.say(&wait), ReplyFrame::integer(replicas as i64));
}

fn say_all(client: &mut TestConnection, lines: &[&str]) {
    for line in lines {
        let reply = client.say(line);
        assert!(!format!("{reply:?}").contains("Error"), "{line}: {reply:?}");
    }
}

/// Values of all types, small and large.
const VALUES: [&str; 22] = [
    "SET s:1 text",
    "SET s:2 12345 EX 1000",
    "SETRANGE s:3 300 x",
    "RPUSH l:1 a b 3 -70000",
    "SADD t:1 1 2 3",
    "SADD t:2 a b c",
    "SADD t:3 1 b 3",
    "ZADD z:1 1 a 2.5 b inf c",
    "HSET h:1 a 1 b two",
    "XADD x:1 1-1 a 1 b 2",
    "XADD x:1 1-2 a 1 b 2",
    "XADD x:1 2-1 c 1",
    "XDEL x:1 1-2",
    "XGROUP CREATE x:1 readers 0",
    "XREADGROUP GROUP readers me COUNT 1 STREAMS x:1 >",
    "XGROUP CREATE x:1 idle $",
    "PFADD p:1 a b c",
    "SETBIT b:1 77 1",
    "GEOADD g:1 13.3 38.1 Palermo",
    "EVAL redis.call('SET','s:4',1) 0",
    "COPY h:1 h:2",
    "SELECT 2",
];

fn fill(server: &TestServer) {
    let mut client = server.connect();
    say_all(&mut client, &VALUES);
    say_all(&mut client, &["SET other 1", "SELECT 0"]);
    for at in 0..300 {
        for line in [
            format!("RPUSH l:large {at} element-{at}"),
            format!("SADD t:large {at} member-{at}"),
            format!("ZADD z:large {at} member-{at}"),
            format!("HSET h:large field-{at} value-{at}"),
            format!("XADD x:large {}-0 field value-{at}", at + 1),
        ] {
            client.say(&line);
        }
    }
    say_all(&mut client, &["XTRIM x:large MAXLEN 50"]);
}

/// What not every replica knows, but for fields that expire, and what all do.
fn random_line(random: &mut TestRandom) -> String {
    let (key, n) = (random.below(10), random.below(100));
    match random.below(20) {
        0 => format!("SET s:{key} {n} IFEQ {}", random.below(100)),
        1 => format!("DELIFEQ s:{key} {n}"),
        2 => format!("MSETEX 2 s:{key} {n} m:{n} x EX 100"),
        3 => format!("MSETEX 2 s:{key} {n} m:{n} x KEEPTTL"),
        4 => format!("MSETEX 1 m:{n} {n} NX"),
        5 => format!("HSETEX h:{key} FNX FIELDS 2 a{n} 1 b{n} 2"),
        6 => format!("HGETDEL h:{key} FIELDS 2 a{n} b{n}"),
        7 => format!("SET s:{key} {n} GET"),
        8 => format!("LMPOP 1 l:{key} LEFT COUNT 2"),
        9 => format!("ZMPOP 1 z:{key} MIN COUNT 2"),
        10 => format!("XADD x:{key} NOMKSTREAM MAXLEN ~ 50 * f {n}"),
        11 => format!("XAUTOCLAIM x:1 readers me{n} 0 0"),
        12 => format!("RPUSH l:{key} {n} a b"),
        13 => format!("ZADD z:{key} {n} m{n}"),
        14 => format!("HINCRBYFLOAT h:{key} f{n} 1.5"),
        15 => format!("SPOP t:{key} 2"),
        16 => format!("SADD t:{key} {n} a{n}"),
        17 => format!("PEXPIRE s:{key} {}", 1 + n),
        18 => format!("GETEX s:{key} EX 100"),
        _ => format!("INCRBYFLOAT n:{key} 0.5"),
    }
}

fn disturb(server: &TestServer, seed: u64) {
    let (mut client, random) = (server.connect(), &mut TestRandom::new(seed));
    for _ in 0..1500 {
        client.say(&random_line(random));
    }
}

/// Valkey 9.1, Redis 8.0 and Redis 7.0 side by side, which each get a copy of their own.
#[test]
#[ignore = "end to end: run by `cargo xtask test`"]
fn replicas_of_other_makes_have_what_the_primary_has() {
    let primary = start(&[]);
    fill(&primary);
    let library = "#!lua name=lib\nredis.register_function('f', function() return 1 end)";
    primary.connect().call(&["FUNCTION", "LOAD", library]).expect("it answers");
    let others =
        [Some(TestServer::valkey(&ARGUMENTS)), Some(TestServer::redis(&ARGUMENTS)), old_redis()];
    let others: Vec<_> = others.into_iter().flatten().collect();
    let replicas: Vec<_> = others.iter().collect();
    std::thread::scope(|scope| {
        scope.spawn(|| disturb(&primary, 1));
        replicas.iter().for_each(|replica| follow(replica, &primary));
        until(|| replicas.iter().all(|replica| info(replica, "master_link_status") == "up"));
    });
    disturb(&primary, 2);
    // What has a deadline dies at the primary, which tells the others.
    std::thread::sleep(Duration::from_millis(300));
    settle(&primary, replicas.len());
    for replica in &replicas {
        let log = replica.log();
        assert_eq!(replica.digest(), primary.digest(), "{log}");
        assert!(!log.contains("== CRITICAL =="), "{log}");
        let reply = replica.connect().say("FUNCTION LIST");
        assert!(format!("{reply:?}").contains("[108, 105, 98]"), "{reply:?}");
        for line in ["XINFO STREAM x:large", "XINFO GROUPS x:1"] {
            let fields = |server: &TestServer| {
                let text = format!("{:?}", server.connect().say(line));
                // What follows is about memory.
                text.split("radix-tree-keys").next().unwrap_or_default().to_owned()
            };
            assert_eq!(fields(replica), fields(&primary), "{line} {log}");
        }
    }
    assert_eq!(info(&primary, "sync_full"), replicas.len().to_string(), "{}", primary.log());
}

/// Redis 6.2, which has neither functions nor what came with them, both ways.
#[test]
#[ignore = "end to end: run by `cargo xtask test`"]
fn redis_before_functions_follows_and_is_followed() {
    let Some(old) = TestServer::other(OLDEST_REDIS, &ARGUMENTS[..2]) else { return };
    let (primary, back) = (start(&[]), start(&[]));
    fill(&primary);
    follow(&old, &primary);
    until(|| info(&old, "master_link_status") == "up");
    disturb(&primary, 1);
    std::thread::sleep(Duration::from_millis(300));
    settle(&primary, 1);
    assert_eq!(old.digest(), primary.digest(), "{}", old.log());
    assert!(!old.log().contains("CRITICAL"), "{}", old.log());
    assert_eq!(old.connect().say("REPLICAOF NO ONE"), ReplyFrame::simple("OK"));
    follow(&back, &old);
    until(|| info(&back, "master_link_status") == "up");
    say_all(&mut old.connect(), &["SET s:new 1", "LPUSH l:new a b", "GETEX s:new EX 1000"]);
    settle(&old, 1);
    assert_eq!(back.digest(), old.digest());
    // Functions it is refused, and is told so.
    let library = "#!lua name=lib\nredis.register_function('f', function() return 1 end)";
    primary.connect().call(&["FUNCTION", "LOAD", library]).expect("it answers");
    follow(&old, &primary);
    until(|| old.log().contains("can't hold functions"));
}

#[test]
#[ignore = "end to end: run by `cargo xtask test`"]
fn fields_that_expire_go_where_there_are_some() {
    let primary = start(&[]);
    fill(&primary);
    let mut client = primary.connect();
    client.say("HPEXPIRE h:1 100000000 FIELDS 1 a");
    client.say("HPEXPIRE h:large 100000000 FIELDS 2 field-1 field-2");
    let (valkey, redis) = (TestServer::valkey(&ARGUMENTS), TestServer::redis(&ARGUMENTS));
    for (index, replica) in [&valkey, &redis].into_iter().enumerate() {
        follow(replica, &primary);
        settle(&primary, index + 1);
        client.say("HSETEX h:1 EX 100000 FIELDS 2 c 1 d 2");
        client.say("HSETEX h:1 KEEPTTL FIELDS 1 c 3");
        client.say("HGETEX h:1 PERSIST FIELDS 1 d");
        settle(&primary, index + 1);
        for line in [
            "HPEXPIRETIME h:1 FIELDS 4 a b c d",
            "HMGET h:1 a b c d",
            "HPEXPIRETIME h:large FIELDS 3 field-1 field-2 field-3",
            "HLEN h:large",
        ] {
            assert_eq!(replica.connect().say(line), client.say(line), "{line}");
        }
    }
}

/// One that says what it is is refused before anything is sent. One that does not is refused when
/// copies have not helped.
#[test]
#[ignore = "end to end: run by `cargo xtask test`"]
fn what_a_replica_cannot_hold_is_said_on_both_sides() {
    let primary = start(&[]);
    primary.connect().say("HSETEX h EX 1000 FIELDS 1 a 1");
    let refusal = "ERR the replica's version can't hold hashes with fields that expire, and there \
                   may be some";
    let mut replica = primary.connect();
    for line in ["REPLCONF capa eof", "REPLCONF version 8.1.0"] {
        assert_eq!(replica.say(line), ReplyFrame::simple("OK"));
    }
    assert_eq!(replica.say("PSYNC ? -1"), ReplyFrame::error(refusal));
    assert!(primary.log().contains("Refusing a copy to replica 127.0.0.1"));
    let Some(old) = old_redis() else { return };
    follow(&old, &primary);
    until(|| old.log().contains("can't hold hashes with fields that expire"));
    // It has asked once more by now, or more often: it tries again at once.
    let copies: u32 = info(&primary, "sync_full").parse().expect("a number");
    assert!(copies >= 2, "{copies}");
    // Without them it gets what it can hold.
    primary.connect().say("FLUSHALL");
    until(|| info(&old, "master_link_status") == "up");
    settle(&primary, 1);
    assert_eq!(old.connect().say("GET end"), ReplyFrame::bulk("1"));
}

/// One that is refused a copy connects again at once, as Redis and Valkey do.
#[test]
#[ignore = "end to end: run by `cargo xtask test`"]
fn a_replica_that_is_refused_again_and_again_neither_spins_nor_fills_the_log() {
    let primary = start(&[]);
    primary.connect().say("HSETEX h EX 1000 FIELDS 1 a 1");
    for attempt in 0..3 {
        let mut replica = primary.connect();
        for line in ["REPLCONF listening-port 7", "REPLCONF capa eof", "REPLCONF version 8.1.0"] {
            assert_eq!(replica.say(line), ReplyFrame::simple("OK"));
        }
        let asked = Instant::now();
        let reply = replica.say("PSYNC ? -1");
        assert!(reply.text().contains("can't hold hashes with fields that expire"), "{reply:?}");
        let is_late = asked.elapsed() > Duration::from_millis(900);
        assert!(is_late || attempt == 0, "attempt {attempt}: {:?}", asked.elapsed());
    }
    let log = primary.log();
    for line in ["asks for synchronization", "Full resync requested", "Refusing a copy"] {
        assert_eq!(log.matches(line).count(), 1, "{line}: {log}");
    }
    let Some(old) = old_redis() else { return };
    follow(&old, &primary);
    until(|| old.log().contains("can't hold hashes with fields that expire"));
    let before = primary.log().len();
    until(|| old.log().matches("can't hold hashes with fields that expire").count() >= 3);
    let more = primary.log()[before..].to_owned();
    assert!(more.lines().count() < 3, "{more}");
}
