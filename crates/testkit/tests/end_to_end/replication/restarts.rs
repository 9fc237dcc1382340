//! What replication makes of restarts: a server that is exactly where the other one is goes on, one
//! that is not gets a copy.

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bobbin_testkit::random::TestRandom;
use bobbin_testkit::{ReplyFrame, TestConnection, TestServer, until};

/// More than any test waits.
const LIMIT: Duration = Duration::from_secs(20);
const ARGUMENTS: [&str; 6] = [
    "--repl-diskless-sync-delay",
    "0",
    "--enable-debug-command",
    "yes",
    "--repl-ping-replica-period",
    "3600",
];

/// Which server, and how it keeps its data.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Kind {
    is_valkey: bool,
    arguments: &'static [&'static str],
}

const RDB: Kind = Kind { is_valkey: false, arguments: &["--save", "3600 1"] };
const AOF: Kind = Kind { is_valkey: false, arguments: &["--appendonly", "yes"] };
/// As small as can be: it begins again and again.
const REWRITTEN: Kind = Kind {
    is_valkey: false,
    arguments: &["--appendonly", "yes", "--auto-aof-rewrite-min-size", "1kb"],
};
const ALWAYS: Kind =
    Kind { is_valkey: false, arguments: &["--appendonly", "yes", "--appendfsync", "always"] };
const VALKEY: Kind = Kind { is_valkey: true, arguments: &["--save", "3600 1"] };

/// A server that keeps its port and its folder when it starts again.
struct Node {
    kind: Kind,
    extra: Vec<String>,
    port: String,
    /// The last one runs. The folder is that of the first.
    servers: Vec<TestServer>,
}

impl Node {
    fn start(kind: Kind, extra: &[&str]) -> Self {
        let extra = extra.iter().map(|word| (*word).to_owned()).collect();
        let mut node = Self { kind, extra, port: String::new(), servers: Vec::new() };
        node.begin();
        node.port = node.server().address().port().to_string();
        node
    }

    fn begin(&mut self) {
        let extra: Vec<&str> = self.extra.iter().map(String::as_str).collect();
        let mut arguments = [&ARGUMENTS, self.kind.arguments, &extra].concat();
        if let Some(first) = self.servers.first() {
            let folder = first.folder().to_str().expect("a name");
            arguments.extend(["--dir", folder, "--port", &self.port]);
        }
        let start = if self.kind.is_valkey { TestServer::valkey } else { TestServer::bobbin };
        let server = start(&arguments);
        self.servers.push(server);
    }

    fn server(&self) -> &TestServer {
        self.servers.last().expect("it has run")
    }

    /// Ends in order.
    fn end(&mut self) {
        let server = self.servers.last_mut().expect("it has run");
        server.signal("TERM");
        assert!(server.wait(LIMIT).expect("it ends").success());
    }

    fn kill(&mut self) {
        assert!(self.servers.last_mut().expect("it has run").kill());
    }

    fn connect(&self) -> TestConnection {
        self.server().connect()
    }

    fn say(&self, line: &str) -> ReplyFrame {
        self.connect().say(line)
    }

    fn info(&self, field: &str) -> String {
        let text = text(&self.say("INFO everything"));
        let line = text.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(':'));
        line.unwrap_or_else(|| panic!("no {field} in {text}")).to_owned()
    }

    fn follow(&self, primary: &Self) {
        let reply = self.say(&format!("REPLICAOF 127.0.0.1 {}", primary.port));
        assert!(text(&reply).starts_with("OK"), "{reply:?}");
    }

    fn path(&self) -> &Path {
        self.servers[0].folder()
    }
}

fn text(reply: &ReplyFrame) -> String {
    String::from_utf8_lossy(reply.bytes().expect("it has bytes")).into_owned()
}

/// Waits until all these have all that the primary has, and the primary knows it.
fn settle(primary: &Node, replicas: &[&Node]) {
    until(|| {
        let offset = primary.info("master_repl_offset");
        let has_it = |at: usize| {
            replicas[at].info("master_link_status") == "up"
                && replicas[at].info("master_repl_offset") == offset
        };
        (0..replicas.len()).all(has_it) && primary.info("master_repl_offset") == offset
    });
}

/// All come to have the same keys. An offset tells of what was done a moment later.
fn same(nodes: &[&Node]) {
    let digests = || nodes.iter().map(|node| text(&node.say("DEBUG DIGEST"))).collect::<Vec<_>>();
    until(|| digests().windows(2).all(|pair| pair[0] == pair[1]));
}

/// Changes keys of several kinds and databases.
fn change(client: &mut TestConnection, random: &mut TestRandom, count: usize) {
    for at in 0..count {
        let (key, n) = (random.below(50), random.below(1000));
        if at % 16 == 0 {
            // What only replicas get is not in a log on disk.
            for line in ["PUBLISH c one", "MULTI", "SET a 1", "PUBLISH c two", "SET b 2", "EXEC"] {
                client.say(line);
            }
        }
        let line = match random.below(8) {
            0 => format!("SELECT {}", random.below(3)),
            1 => format!("RPUSH l:{key} {n}"),
            2 => format!("LPOP l:{key}"),
            3 => format!("HSET h:{key} f{n} {n}"),
            4 => format!("SPOP t:{key}"),
            5 => format!("SADD t:{key} {n}"),
            6 => format!("DEL s:{key}"),
            _ => format!("SET s:{key} {n}"),
        };
        client.say(&line);
    }
}

/// Waits until the replica's log holds what it got as a copy.
fn until_logged(node: &Node) {
    let is_over = |field: &str| node.info(field) == "0";
    until(|| is_over("aof_rewrite_in_progress") && is_over("aof_rewrite_scheduled"));
}

fn number(node: &Node, field: &str) -> u64 {
    node.info(field).parse().expect("a number")
}

/// A primary that starts again deletes on its replicas what has expired meanwhile, however long it
/// loads: they ask for no copy, and delete nothing by themselves.
#[test]
#[ignore = "end to end: run by `cargo xtask test`"]
fn what_expired_before_a_start_is_deleted_on_replicas() {
    let mut primary = Node::start(RDB, &["--key-load-delay", "2000"]);
    let replica = Node::start(RDB, &[]);
    replica.follow(&primary);
    settle(&primary, &[&replica]);
    let mut client = primary.connect();
    client.say("DEBUG SET-ACTIVE-EXPIRE 0");
    for key in 0..300 {
        client.say(&format!("SET key:{key} 1 PX 1"));
    }
    client.say("SET stays 1");
    settle(&primary, &[&replica]);
    assert_eq!(replica.say("DBSIZE"), ReplyFrame::integer(301));
    primary.end();
    primary.begin();
    settle(&primary, &[&replica]);
    assert_eq!(primary.info("rdb_last_load_keys_expired"), "300");
    assert_eq!((primary.info("sync_full"), primary.info("sync_partial_ok")), both("0", "1"));
    assert_eq!(replica.say("DBSIZE"), ReplyFrame::integer(1));
}

fn both(one: &str, other: &str) -> (String, String) {
    (one.to_owned(), other.to_owned())
}

/// Primary and replica start again one after the other, and no copy is made.
fn both_restart(of_primary: Kind, of_replica: Kind) {
    let random = &mut TestRandom::new(1);
    let mut primary = Node::start(of_primary, &[]);
    let to_primary = ["--replicaof", "127.0.0.1", &primary.port.clone()];
    change(&mut primary.connect(), random, 200);
    let mut replica = Node::start(of_replica, &to_primary);
    settle(&primary, &[&replica]);
    change(&mut primary.connect(), random, 200);
    settle(&primary, &[&replica]);
    // The replica misses something.
    until_logged(&replica);
    replica.end();
    change(&mut primary.connect(), random, 200);
    replica.begin();
    settle(&primary, &[&replica]);
    assert_eq!((number(&primary, "sync_partial_ok"), number(&primary, "sync_full")), (1, 1));
    same(&[&primary, &replica]);
    // The primary has another name afterwards.
    let (id, offset) = (primary.info("master_replid"), number(&primary, "master_repl_offset"));
    until(|| primary.info("slave0").contains(&format!("offset={offset},")));
    same(&[&primary, &replica]);
    let digest = text(&primary.say("DEBUG DIGEST"));
    primary.end();
    primary.begin();
    assert_eq!(text(&primary.say("DEBUG DIGEST")), digest);
    settle(&primary, &[&replica]);
    same(&[&primary, &replica]);
    assert_eq!((number(&primary, "sync_partial_ok"), number(&primary, "sync_full")), (1, 0));
    assert_ne!(primary.info("master_replid"), id);
    assert_eq!(primary.info("master_replid2"), id);
    assert_eq!(number(&primary, "second_repl_offset"), offset + 1);
    assert_eq!(primary.info("master_replid"), replica.info("master_replid"));
    change(&mut primary.connect(), random, 200);
    settle(&primary, &[&replica]);
    same(&[&primary, &replica]);
}

#[test]
#[ignore = "end to end: run by `cargo xtask test`"]
fn who_restarts_in_order_goes_on() {
    both_restart(RDB, RDB);
    both_restart(AOF, AOF);
}

#[test]
#[ignore = "end to end: run by `cargo xtask test`"]
fn so_it_is_with_logs_of_other_kinds() {
    both_restart(ALWAYS, REWRITTEN);
    both_restart(REWRITTEN, ALWAYS);
}

#[test]
#[ignore = "end to end: run by `cargo xtask test`"]
fn real_servers_that_restart_go_on() {
    both_restart(AOF, VALKEY);
    both_restart(VALKEY, AOF);
}

/// A file of one server is read by the other.
#[test]
#[ignore = "end to end: run by `cargo xtask test`"]
fn another_server_takes_over_with_the_file() {
    for (before, after) in [(RDB, VALKEY), (VALKEY, RDB)] {
        let mut primary = Node::start(before, &[]);
        let replica = Node::start(RDB, &[]);
        replica.follow(&primary);
        settle(&primary, &[&replica]);
        change(&mut primary.connect(), &mut TestRandom::new(2), 200);
        settle(&primary, &[&replica]);
        let offset = number(&primary, "master_repl_offset");
        until(|| primary.info("slave0").contains(&format!("offset={offset},")));
        primary.end();
        primary.kind = after;
        primary.begin();
        settle(&primary, &[&replica]);
        assert_eq!((number(&primary, "sync_partial_ok"), number(&primary, "sync_full")), (1, 0));
        change(&mut primary.connect(), &mut TestRandom::new(3), 200);
        settle(&primary, &[&replica]);
        same(&[&primary, &replica]);
    }
}

/// A primary that lost the end of its history does not let those servers go on that have it.
#[test]
#[ignore = "end to end: run by `cargo xtask test`"]
fn a_replica_that_is_ahead_gets_a_copy() {
    let random = &mut TestRandom::new(4);
    let mut primary = Node::start(RDB, &[]);
    let replica = Node::start(RDB, &[]);
    replica.follow(&primary);
    settle(&primary, &[&replica]);
    change(&mut primary.connect(), random, 100);
    assert_eq!(primary.say("SAVE"), ReplyFrame::simple("OK"));
    for has_lost in [false, true] {
        if has_lost {
            primary.connect().say("SET more 1");
        }
        settle(&primary, &[&replica]);
        primary.kill();
        primary.begin();
        settle(&primary, &[&replica]);
        assert_eq!(number(&primary, "sync_full"), u64::from(has_lost));
        same(&[&primary, &replica]);
    }
    assert!(primary.say("GET more").is_null());
}

/// What expires while the primary is away dies at its replicas too.
#[test]
#[ignore = "end to end: run by `cargo xtask test`"]
fn what_died_in_between_dies_everywhere() {
    let mut primary = Node::start(RDB, &[]);
    let to_primary = ["--replicaof", "127.0.0.1", &primary.port.clone()];
    let mut replica = Node::start(RDB, &to_primary);
    settle(&primary, &[&replica]);
    let mut client = primary.connect();
    client.say("DEBUG SET-ACTIVE-EXPIRE 0");
    for key in 0..100 {
        client.say(&format!("SELECT {}", key % 3));
        client.say(&format!("SET {key} value PX 10"));
    }
    client.say("HSET hash a 1 b 2");
    client.say("HPEXPIRE hash 10 FIELDS 1 a");
    client.say("SET stays 1 PX 40");
    client.say("PERSIST stays");
    std::thread::sleep(Duration::from_millis(50));
    settle(&primary, &[&replica]);
    let offset = number(&primary, "master_repl_offset");
    until(|| primary.info("slave0").contains(&format!("offset={offset},")));
    primary.end();
    replica.end();
    primary.begin();
    assert_eq!(primary.info("rdb_last_load_keys_expired"), "100");
    assert!(number(&primary, "master_repl_offset") >= offset + 100 * 20);
    replica.begin();
    settle(&primary, &[&replica]);
    until(|| primary.say("HLEN hash") == ReplyFrame::integer(1));
    settle(&primary, &[&replica]);
    assert_eq!((number(&primary, "sync_partial_ok"), number(&primary, "sync_full")), (1, 0));
    assert_eq!(replica.say("DBSIZE"), ReplyFrame::integer(2));
    same(&[&primary, &replica]);
    assert!(replica.path().join("dump.rdb").exists());
}

/// A killed server goes on where its log ends, if no other server has more.
#[test]
#[ignore = "end to end: run by `cargo xtask test`"]
fn who_is_killed_goes_on_where_its_log_ends() {
    let random = &mut TestRandom::new(5);
    let mut primary = Node::start(AOF, &[]);
    let to_primary = ["--replicaof", "127.0.0.1", &primary.port.clone()];
    let mut replica = Node::start(AOF, &to_primary);
    settle(&primary, &[&replica]);
    until_logged(&replica);
    for round in 1..4 {
        change(&mut primary.connect(), random, 100);
        primary.say("SET last 1");
        settle(&primary, &[&replica]);
        replica.kill();
        change(&mut primary.connect(), random, 100);
        primary.say("SET last 2");
        replica.begin();
        settle(&primary, &[&replica]);
        assert_eq!(number(&primary, "sync_partial_ok"), if round == 1 { 1 } else { 2 });
        same(&[&primary, &replica]);
        primary.kill();
        primary.begin();
        settle(&primary, &[&replica]);
        assert_eq!((number(&primary, "sync_partial_ok"), number(&primary, "sync_full")), (1, 0));
        same(&[&primary, &replica]);
    }
    // A question that no log has: the replica is ahead.
    primary.connect().say("WAIT 1 1000");
    primary.connect().say("PUBLISH c three");
    settle(&primary, &[&replica]);
    primary.kill();
    primary.begin();
    settle(&primary, &[&replica]);
    assert_eq!(number(&primary, "sync_full"), 1);
    same(&[&primary, &replica]);
}

/// Under load it is not known which server is where: but all have the same in the end.
fn kills_under_load(kind: Kind, rounds: u64) {
    let mut primary = Node::start(kind, &[]);
    let to_primary = ["--replicaof", "127.0.0.1", &primary.port.clone()];
    let mut replica = Node::start(kind, &to_primary);
    settle(&primary, &[&replica]);
    for round in 0..rounds {
        let (address, is_over) = (primary.server().address(), AtomicBool::new(false));
        std::thread::scope(|scope| {
            for client in 0..2 {
                let is_over = &is_over;
                scope.spawn(move || {
                    let random = &mut TestRandom::new(100 * round + client);
                    while !is_over.load(Ordering::SeqCst)
                        && let Ok(mut client) = TestConnection::open(address)
                    {
                        for _ in 0..20 {
                            let key = format!("k:{}", random.below(50));
                            let value = random.below(1000).to_string();
                            let said = match random.below(3) {
                                0 => client.call(&["APPEND", &key, &value]),
                                1 => client.call(&["DEL", &key]),
                                _ => client.call(&["PUBLISH", &key, &value]),
                            };
                            if said.is_err() {
                                break;
                            }
                        }
                    }
                });
            }
            std::thread::sleep(Duration::from_millis(20 + round * 7 % 60));
            let node = if round % 2 == 0 { &mut primary } else { &mut replica };
            node.kill();
            is_over.store(round % 2 == 0, Ordering::SeqCst);
            node.begin();
            std::thread::sleep(Duration::from_millis(20));
            is_over.store(true, Ordering::SeqCst);
        });
        primary.say("SET end 1");
        settle(&primary, &[&replica]);
        same(&[&primary, &replica]);
    }
}

#[test]
#[ignore = "end to end: run by `cargo xtask test`"]
fn all_have_the_same_after_kills_under_load() {
    kills_under_load(AOF, 6);
    kills_under_load(RDB, 2);
}

/// What the log says of the stream is nothing to others.
#[test]
#[ignore = "end to end: run by `cargo xtask test`"]
fn others_read_a_log_that_tells_of_the_stream() {
    let mut primary = Node::start(AOF, &[]);
    let to_primary = ["--replicaof", "127.0.0.1", &primary.port.clone()];
    let mut replica = Node::start(AOF, &to_primary);
    settle(&primary, &[&replica]);
    until_logged(&replica);
    change(&mut primary.connect(), &mut TestRandom::new(6), 200);
    settle(&primary, &[&replica]);
    let expected = text(&primary.say("DEBUG DIGEST"));
    replica.end();
    primary.end();
    for node in [&primary, &replica] {
        let logs = node.path().join("appendonlydir");
        let files = std::fs::read_dir(&logs).expect("there is a log").flatten();
        let names: Vec<_> = files.map(|file| file.path()).collect();
        let remarks: usize = names
            .iter()
            .map(|name| {
                String::from_utf8_lossy(&std::fs::read(name).expect("it is there"))
                    .matches("#REPL:")
                    .count()
            })
            .sum();
        assert!(remarks > 2, "{remarks}");
        let manifest = logs.join("appendonly.aof.manifest");
        let program =
            bobbin_testkit::peers::peer("valkey-server").with_file_name("valkey-check-aof");
        let checked = std::process::Command::new(program).arg(&manifest).output();
        assert!(checked.expect("it runs").status.success());
        for start in [TestServer::valkey, TestServer::redis, TestServer::bobbin] {
            let copy = node.path().join("copy");
            std::fs::create_dir_all(copy.join("appendonlydir")).expect("a folder");
            for name in &names {
                let to = copy.join("appendonlydir").join(name.file_name().expect("a name"));
                std::fs::copy(name, to).expect("it can be copied");
            }
            let folder = copy.to_str().expect("a name");
            let arguments =
                ["--appendonly", "yes", "--dir", folder, "--enable-debug-command", "yes"];
            let other = start(&arguments);
            assert_eq!(text(&other.connect().say("DEBUG DIGEST")), expected);
            drop(other);
            std::fs::remove_dir_all(copy).expect("it can be removed");
        }
    }
}
