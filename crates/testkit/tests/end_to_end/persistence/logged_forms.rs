//! What is logged has one form for all readers: replicas of any make and version come to have what
//! the primary has, and so does a server that is given the log.

use std::time::Duration;

use bobbin_testkit::disk::Folder;
use bobbin_testkit::{ReplyFrame, TestConnection, TestServer, peers};

const ARGUMENTS: [&str; 4] = ["--repl-diskless-sync-delay", "0", "--enable-debug-command", "yes"];
const OLD_REDIS: &str = "redis-server-7.0";
const OLDEST_REDIS: &str = "redis-server-6.2";

/// A primary with a log of commands, and replicas of other makes.
struct Fleet {
    primary: TestServer,
    replicas: Vec<TestServer>,
    folder: Folder,
}

fn other(program: &str, arguments: &[&str]) -> Option<TestServer> {
    peers::peer(program).exists().then(|| TestServer::other(program, arguments)).flatten()
}

impl Fleet {
    /// With Valkey 9.1 and Redis 8.0, and those that are found of Redis 7.0 and 6.2.
    fn new() -> Self {
        let mut fleet = Self::of_new();
        let old = other(OLD_REDIS, &ARGUMENTS);
        let oldest = other(OLDEST_REDIS, &ARGUMENTS[..2]);
        old.into_iter().chain(oldest).for_each(|server| fleet.add(server));
        fleet
    }

    fn of_new() -> Self {
        let folder = Folder::new();
        let log = ["--dir", folder.text(), "--appendonly", "yes", "--aof-use-rdb-preamble", "no"];
        let primary = TestServer::bobbin(&[&ARGUMENTS[..], &log].concat());
        let mut fleet = Self { primary, replicas: Vec::new(), folder };
        fleet.add(TestServer::valkey(&ARGUMENTS));
        fleet.add(TestServer::redis(&ARGUMENTS));
        fleet
    }

    fn add(&mut self, replica: TestServer) {
        replica.follow(self.primary.address().port());
        self.replicas.push(replica);
    }

    fn settle(&self) {
        self.primary.settle(&self.replicas.iter().collect::<Vec<_>>());
    }

    /// All have the same keys, and none was sent what it does not know.
    fn agrees_after(&self, what: &str) {
        self.settle();
        for replica in &self.replicas {
            let log = replica.log();
            assert_eq!(replica.digest(), self.primary.digest(), "{what}: {log}");
            assert!(!log.contains("CRITICAL"), "{what}: {log}");
        }
    }

    /// Servers that are given the log come to have the same.
    fn give_log_to(self, programs: &[&str]) {
        let digest = self.primary.digest();
        let mut primary = self.primary;
        primary.connect().send(&["SHUTDOWN", "NOSAVE"]).expect("is sent");
        primary.wait(Duration::from_secs(30)).expect("it ends");
        let log = ["--dir", self.folder.text(), "--appendonly", "yes"];
        for program in programs {
            let arguments = [&ARGUMENTS[2..], &log].concat();
            let server = match *program {
                "bobbin" => Some(TestServer::bobbin(&arguments)),
                program => other(program, &arguments),
            };
            let Some(server) = server else { continue };
            assert_eq!(server.digest(), digest, "{program}: {}", server.log());
        }
    }
}

fn say(client: &mut TestConnection, line: &str) -> ReplyFrame {
    let reply = client.say(line);
    assert!(!reply.is_error(), "{line}: {reply:?}");
    reply
}

fn call(client: &mut TestConnection, words: &[&[u8]]) -> ReplyFrame {
    let reply = client.call(words).expect("it answers");
    assert!(!reply.is_error(), "{reply:?}");
    reply
}

/// A ring of many edges around the positions of [`scatter`].
fn ring(edges: usize) -> String {
    let mut words = format!("BYPOLYGON {edges}");
    for edge in 0..edges {
        let angle = std::f64::consts::TAU * edge as f64 / edges as f64;
        words += &format!(" {:.6} {:.6}", 40.0 * angle.cos(), 40.0 * angle.sin());
    }
    words
}

/// Members on a lattice: many of them at the same distance from its middle.
fn scatter(client: &mut TestConnection, key: &str, side: i64) {
    for x in -side..=side {
        let mut words = vec!["GEOADD".to_owned(), key.to_owned()];
        for y in -side..=side {
            let place = |at: i64| format!("{}", at as f64 * 10.0 / side as f64);
            words.extend([place(x), place(y), format!("at:{x}:{y}")]);
        }
        client.call(&words).expect("it answers");
    }
}

/// Only Valkey 9 knows polygons; and which of members at the same distance COUNT takes nobody says.
#[test]
#[ignore = "end to end: run by `cargo xtask test`"]
fn results_of_searches_that_others_make_otherwise() {
    let fleet = Fleet::new();
    let mut client = fleet.primary.connect();
    scatter(&mut client, "few", 5);
    let square = "BYPOLYGON 4 -5 -5 -5 5 5 5 5 -5";
    let nowhere = "BYPOLYGON 3 50 50 51 50 51 51";
    say(&mut client, "SET over text EX 1000");
    for line in [
        format!("GEOSEARCHSTORE to few {square}"),
        format!("GEOSEARCHSTORE over few {square} ASC"),
        format!("GEOSEARCHSTORE some few {square} COUNT 7"),
        format!("GEOSEARCHSTORE few:2 few {}", ring(50)),
        format!("GEOSEARCHSTORE to few {nowhere}"),
        format!("GEOSEARCHSTORE to few {nowhere}"),
        format!("GEOSEARCHSTORE to none {square}"),
        "GEOSEARCHSTORE ties few FROMLONLAT 0 0 BYRADIUS 900 km COUNT 6".to_owned(),
        "GEOSEARCHSTORE ties:2 few FROMLONLAT 0 0 BYBOX 900 900 km COUNT 3 DESC".to_owned(),
        "GEORADIUS few 0 0 900 km COUNT 7 STORE ties:3".to_owned(),
        "GEORADIUSBYMEMBER few at:0:0 900 km COUNT 11 STORE ties:4".to_owned(),
        "GEOSEARCHSTORE all few FROMLONLAT 0 0 BYRADIUS 900 km".to_owned(),
    ] {
        say(&mut client, &line);
        fleet.agrees_after(&line);
    }
    for line in ["MULTI", "SET before 1"] {
        say(&mut client, line);
    }
    say(&mut client, &format!("GEOSEARCHSTORE in:multi few {square}"));
    assert_eq!(say(&mut client, "EXEC").items().len(), 2);
    let script = "return redis.call('GEOSEARCHSTORE', 'in:script', 'few', unpack(ARGV))";
    let mut words = vec!["EVAL", script, "0"];
    words.extend(square.split(' '));
    assert_eq!(client.call(&words).expect("it answers"), ReplyFrame::integer(25));
    fleet.agrees_after("a transaction and a script");
    // The search is made in slices, and its payload elsewhere.
    scatter(&mut client, "many", 60);
    say(&mut client, "SET large text");
    let found = say(&mut client, &format!("GEOSEARCHSTORE large many {}", ring(100)));
    assert_eq!(found, ReplyFrame::integer(121 * 121));
    fleet.agrees_after("a large result");
    fleet.give_log_to(&["valkey-server", "redis-server", OLD_REDIS, "bobbin"]);
}

/// Values of all types, small and large, and the strings that the tests of payloads want.
fn fill(client: &mut TestConnection, types: &mut Vec<String>) {
    for line in [
        "SET text some-text",
        "SET number 12345",
        "SETRANGE long 300 x",
        "RPUSH list a b 3 -70000",
        "SADD numbers 1 2 3",
        "SADD set 1 b 3",
        "ZADD sorted 1 a 2 b 3 c",
        "HSET hash a 1 b two",
        "XADD stream 1-1 a 1 b 2",
        "XADD stream 1-2 a 1 b 2",
        "XADD stream 1-3 a 1 b 2",
        "XDEL stream 1-2",
        "XGROUP CREATE stream readers 0",
        "XREADGROUP GROUP readers me COUNT 1 STREAMS stream >",
    ] {
        say(client, line);
    }
    let all = |one: &dyn Fn(usize) -> String| (0..1000).map(one).collect::<Vec<_>>().join(" ");
    for line in [
        format!("RPUSH list:large {}", all(&|at| format!("{at} element-{}", "x".repeat(at % 200)))),
        format!("SADD set:large {}", all(&|at| format!("{at} member-{at}"))),
        format!("ZADD sorted:large {}", all(&|at| format!("{at} member-{at}"))),
        format!("HSET hash:large {}", all(&|at| format!("field-{at} value-{at}"))),
    ] {
        say(client, &line);
    }
    // Payloads from half a MiB on are read by another thread.
    client.call(&["SET", "string:large", &"ab".repeat(400_000)]).expect("it answers");
    let names = "text number long list numbers set sorted hash list:large set:large sorted:large \
                 hash:large string:large";
    types.extend(names.split_whitespace().map(str::to_owned));
}

/// Payloads of version 80 and 12 are given here; others read no later one than they write.
#[test]
#[ignore = "end to end: run by `cargo xtask test`"]
fn payloads_of_later_versions() {
    let fleet = Fleet::new();
    let mut client = fleet.primary.connect();
    let mut keys = Vec::new();
    let sources = [
        TestServer::bobbin(&["--rdbcompression", "no"]),
        TestServer::valkey(&ARGUMENTS),
        TestServer::redis(&ARGUMENTS),
    ];
    for (index, source) in sources.iter().enumerate() {
        keys.clear();
        let mut source = source.connect();
        fill(&mut source, &mut keys);
        for key in &keys {
            let dump = source.say(&format!("DUMP {key}"));
            let dump = dump.bytes().expect("it is there");
            for (name, options) in [
                ("plain", "0"),
                ("expiring", "10000000"),
                ("later", "5000000000000 ABSTTL REPLACE"),
                ("plain", "0 replace"),
                ("idle", "0 IDLETIME 1000"),
                ("idle", "5000000 REPLACE FREQ 7"),
            ] {
                let name = format!("{index}:{name}:{key}");
                let (ttl, options) = options.split_once(' ').unwrap_or((options, ""));
                let mut words = vec![&b"RESTORE"[..], name.as_bytes(), ttl.as_bytes(), dump];
                words.extend(options.split_whitespace().map(str::as_bytes));
                call(&mut client, &words);
            }
            let name = format!("{index}:asking:{key}");
            call(&mut client, &[b"RESTORE-ASKING", name.as_bytes(), b"0", dump]);
        }
        fleet.agrees_after(&format!("payloads of {index}"));
    }
    for replica in &fleet.replicas {
        let ttl =
            |server: &TestServer, key| server.connect().say(&format!("PTTL {key}")).as_integer();
        for key in ["1:later:list", "1:expiring:hash", "2:idle:text", "2:plain:set"] {
            let (here, there) = (ttl(&fleet.primary, key), ttl(replica, key));
            let apart = here.zip(there).map_or(i64::MAX, |(here, there)| (here - there).abs());
            assert!(apart < 100_000, "{key}: {here:?} {there:?}");
        }
    }
    fleet.give_log_to(&["valkey-server", "redis-server", OLD_REDIS, "bobbin"]);
}

/// Streams, with what groups have, and libraries of functions are for Redis from 7.0 on.
#[test]
#[ignore = "end to end: run by `cargo xtask test`"]
fn payloads_of_streams_and_functions() {
    let mut fleet = Fleet::of_new();
    other(OLD_REDIS, &ARGUMENTS).into_iter().for_each(|server| fleet.add(server));
    let mut client = fleet.primary.connect();
    let library = "#!lua name=lib\nredis.register_function('f', function() return 1 end)";
    let sources =
        [TestServer::bobbin(&[]), TestServer::valkey(&ARGUMENTS), TestServer::redis(&ARGUMENTS)];
    for (index, source) in sources.iter().enumerate() {
        let mut source = source.connect();
        fill(&mut source, &mut Vec::new());
        let dump = source.say("DUMP stream");
        let dump = dump.bytes().expect("it is there");
        call(&mut client, &[b"RESTORE", format!("stream:{index}").as_bytes(), b"0", dump]);
        call(&mut source, &[b"FUNCTION", b"LOAD", library.as_bytes()]);
        let dump = source.say("FUNCTION DUMP");
        let dump = dump.bytes().expect("it is there");
        for policy in [&b"FLUSH"[..], b"REPLACE"] {
            call(&mut client, &[b"FUNCTION", b"RESTORE", dump, policy]);
        }
    }
    fleet.agrees_after("streams");
    for replica in &fleet.replicas {
        for line in ["XINFO GROUPS stream:1", "XPENDING stream:2 readers", "XLEN stream:0"] {
            assert_eq!(replica.connect().say(line), client.say(line), "{line}");
        }
        let libraries = replica.connect().say("FUNCTION LIST");
        assert!(format!("{libraries:?}").contains("[108, 105, 98]"), "{libraries:?}");
    }
}

/// What a hash holds, and when its fields die.
fn fields(server: &TestServer, key: &str) -> Vec<String> {
    let mut client = server.connect();
    let held = client.say(&format!("HGETALL {key}"));
    let mut all: Vec<_> =
        held.items().chunks(2).map(|pair| [pair[0].text(), pair[1].text()]).collect();
    all.sort();
    let names: Vec<_> = all.iter().map(|[name, _]| name.as_str()).collect();
    let line = format!("HPEXPIRETIME {key} FIELDS {} {}", names.len(), names.join(" "));
    let times = client.say(&line);
    let times: Vec<_> =
        times.items().iter().map(|time| format!("{:?}", time.as_integer())).collect();
    all.concat().into_iter().chain(times).collect()
}

/// What sets values and times together is logged in two commands, which Redis 7.4 knows as well.
#[test]
#[ignore = "end to end: run by `cargo xtask test`"]
fn fields_and_their_times() {
    let fleet = Fleet::of_new();
    fleet.settle();
    let mut client = fleet.primary.connect();
    for line in [
        "HSET h a 1 b 2 c 3 d 4 e 5",
        "HSETEX h EX 100000 FIELDS 2 a 1 f 6",
        "HSETEX h FXX PXAT 5000000000123 FIELDS 2 b 1 c 2",
        "HSETEX h KEEPTTL FIELDS 3 b 7 c 8 d 9",
        "HSETEX h KEEPTTL FIELDS 2 a 10 b 11",
        "HSETEX h FIELDS 1 f 12",
        "HSETEX new EX 1000 FIELDS 3 a 1 a 2 b 3",
        "HINCRBY h a 5",
        "HINCRBYFLOAT h b 1.5",
        "HEXPIRE h 5000 XX LT FIELDS 2 a b",
        "HPEXPIREAT h 5000000000777 NX GT FIELDS 1 e",
        "HEXPIRE h 7000 NX FIELDS 1 d",
        "HEXPIRE h 8000 GT FIELDS 2 a b",
        "HGETEX h EX 9000 FIELDS 2 c f",
        "HGETEX h PERSIST FIELDS 1 c",
    ] {
        client.say(line);
        fleet.settle();
        for replica in &fleet.replicas {
            for key in ["h", "new"] {
                let log = replica.log();
                assert_eq!(fields(replica, key), fields(&fleet.primary, key), "{line}: {log}");
                assert!(!log.contains("CRITICAL"), "{line}: {log}");
            }
        }
    }
    let sources = [TestServer::valkey(&ARGUMENTS), TestServer::redis(&ARGUMENTS)];
    for (index, source) in sources.iter().enumerate() {
        let mut source = source.connect();
        let many: Vec<_> = (0..3000).map(|at| format!("field-{at} {at}")).collect();
        say(&mut source, &format!("HSET large {}", many.join(" ")));
        let some: Vec<_> = (0..2500).map(|at| format!("field-{at}")).collect();
        say(&mut source, &format!("HPEXPIREAT large 5000000000000 FIELDS 2500 {}", some.join(" ")));
        say(&mut source, "HPEXPIREAT large 5000000000007 FIELDS 2 field-1 field-2999");
        say(&mut source, "HSET small a 1 b 2 c 3");
        say(&mut source, "HEXPIRE small 10000 FIELDS 2 a b");
        for key in ["small", "large"] {
            let dump = source.say(&format!("DUMP {key}"));
            let (name, dump) = (format!("{key}:{index}"), dump.bytes().expect("it is there"));
            call(&mut client, &[b"RESTORE", name.as_bytes(), b"0", dump]);
            fleet.settle();
            for replica in &fleet.replicas {
                assert_eq!(fields(replica, &name), fields(&fleet.primary, &name), "{name}");
            }
        }
    }
}

/// Redis 6.2 knows no conditions of expiries, and no counters of groups.
#[test]
#[ignore = "end to end: run by `cargo xtask test`"]
fn options_that_came_later() {
    let fleet = Fleet::new();
    let mut client = fleet.primary.connect();
    for line in [
        "SET s 1",
        "EXPIRE s 10000 NX",
        "EXPIRE s 9000 XX",
        "PEXPIREAT s 5000000000000 GT",
        "EXPIREAT s 4000000000 XX LT",
        "XADD x 1-1 f v",
        "XGROUP CREATE x readers 1-1 ENTRIESREAD 1",
        "XGROUP CREATE made again $ MKSTREAM ENTRIESREAD 0",
        "XREADGROUP GROUP readers me STREAMS x >",
    ] {
        say(&mut client, line);
    }
    fleet.settle();
    for replica in &fleet.replicas {
        for line in ["PEXPIRETIME s", "XPENDING x readers", "XLEN made"] {
            let texts = [replica, &fleet.primary].map(|server| server.connect().say(line));
            // Redis 6.2 has no such command.
            if !(line.starts_with("PEXPIRETIME") && texts[0].is_error()) {
                assert_eq!(texts[0], texts[1], "{line}");
            }
        }
        let ttl = replica.connect().say("PTTL s").as_integer().expect("a number");
        assert!(ttl > 1_000_000_000, "{ttl}");
        let reply = replica.connect().say("XINFO GROUPS made");
        assert_eq!(reply.items().len(), 1, "{reply:?}");
    }
    if let Some(new) = fleet.replicas.first() {
        let line = "XINFO GROUPS x";
        assert_eq!(new.connect().say(line), client.say(line));
    }
}

/// Its deletion comes before what is stored in its place.
#[test]
#[ignore = "end to end: run by `cargo xtask test`"]
fn destinations_that_have_expired() {
    let fleet = Fleet::new();
    let mut client = fleet.primary.connect();
    for line in [
        "DEBUG SET-ACTIVE-EXPIRE 0",
        "MSET a ab b b by:1 2 by:2 1",
        "RPUSH l 1 2",
        "GEOADD g 1 1 m 2 2 n",
    ] {
        say(&mut client, line);
    }
    for (index, line) in [
        "BITOP DIFF to:0 a b",
        "BITOP ONE to:1 a b",
        "GEOSEARCHSTORE to:2 g BYPOLYGON 4 0 0 0 3 3 3 3 0",
        "GEOSEARCHSTORE to:3 g FROMLONLAT 0 0 BYRADIUS 900 km COUNT 1",
        "SORT l BY by:* STORE to:4",
        "SORT l BY by:* GET # GET by:* STORE to:5",
        "SET to:6 new IFEQ old",
        "HSETEX to:7 FIELDS 1 a 1",
        "COPY a to:8",
    ]
    .into_iter()
    .enumerate()
    {
        say(&mut client, &format!("SET to:{index} old PX 1"));
        std::thread::sleep(Duration::from_millis(20));
        say(&mut client, line);
        fleet.agrees_after(line);
    }
    fleet.give_log_to(&["valkey-server", "redis-server", OLD_REDIS, "bobbin"]);
}
