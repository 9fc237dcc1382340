//! Logs that others have written, of today and of long ago: what Redis reads from them is read
//! here.
//!
//! Each is given to Valkey and to Bobbin, and afterwards both hold the same. Many commands are such
//! as Bobbin itself never writes: with relative times, scripts by their source, what has no effect,
//! transactions without an end.

use std::fs;
use std::time::{Duration, Instant};

use bobbin_testkit::connection::encode_command;
use bobbin_testkit::disk::Folder;
use bobbin_testkit::{ReplyFrame, TestConnection, TestServer};

/// Commands separated by semicolons; a word in braces is one with spaces, `%` stands for the hash
/// of [`SCRIPT`].
const LOGS: &[&str] = &[
    // Times from the moment of loading, and times that are past.
    "SELECT 0;SET a 1;EXPIRE a 100;SET b 1;EXPIRE b -1;SET c 1;PEXPIRE c 0;SET d 1;EXPIREAT d 1000",
    "SET a 1;EXPIRE a 100 NX;EXPIRE a 50 GT;EXPIRE a 500 GT;SET b 1 EX 100;EXPIRE b 10 LT;SET c 1;EXPIRE c 10 XX",
    "SETEX a 100 v;PSETEX b 100000 v;SET c v EX 100;SET d v PX 100000;SET e v EXAT 5000000000;SET f v PXAT 1000",
    "SET a v;GETEX a EX 100;SET b v EX 100;GETEX b PERSIST;SET c v;GETEX c PXAT 1000;SET d v;GETEX d PX 100000",
    // What came in time is not lost.
    "SET a 1 PXAT 1000;PERSIST a;SET b 1 PXAT 1000;APPEND b x;PERSIST b;SET c v PXAT 1000;GETEX c PERSIST",
    "SET a 1 PXAT 1000;RENAME a b;PERSIST b;SET c 1 PXAT 1000;COPY c d;PERSIST d;SET e 1 PXAT 1000;INCR e;PERSIST e",
    "HSET h a 1 b 2 c 3 d 4;HEXPIRE h 100 FIELDS 1 a;HPEXPIRE h 100000 FIELDS 1 b;HPEXPIREAT h 5000000000000 FIELDS 1 c",
    "HSET h a 1 b 2;HPEXPIREAT h 1000 FIELDS 1 a;HSET g a 1;HPEXPIREAT g 1000 FIELDS 1 a",
    "HSET j a 1 b 2;HPEXPIREAT j 1000 FIELDS 1 a;HPERSIST j FIELDS 1 a",
    "HSETEX h EX 100 FIELDS 1 a 1;HSETEX i PXAT 1000 FIELDS 1 a 1;HSET k a 1;HGETEX k EX 100 FIELDS 1 a",
    // Scripts as they were sent, with keys that they name and others.
    "EVAL {SCRIPT} 2 a b v;EVAL {SCRIPT} 2 a b w;EVAL {return redis.call('set', 'other', '1')} 0",
    "SCRIPT LOAD {SCRIPT};EVALSHA % 2 a b v;SCRIPT FLUSH;EVALSHA % 2 c d v;SET after 1",
    "EVALSHA % 2 a b v;SET after 1",
    "EVAL {redis.replicate_commands() redis.set_repl(redis.REPL_NONE) redis.call('set', 'a', '1')} 0",
    "EVAL {redis.call('set', 'a', '1') error('oops')} 0;SET after 1",
    "MULTI;EVAL {SCRIPT} 2 a b v;INCR b;EXEC",
    "FUNCTION LOAD {LIBRARY};FCALL put 1 a v;FUNCTION LOAD {LIBRARY};FCALL none 1 a v;SET after 1",
    "FUNCTION LOAD {LIBRARY};FUNCTION DELETE library;FUNCTION LOAD REPLACE {LIBRARY};FCALL put 1 a v",
    // Transactions.
    "SET a 1;MULTI;SET b 1",
    "SET a 1;MULTI;SET b 1;INCR c;EXEC;SET d 1",
    "SET a 1;EXEC;SET b 1",
    "SET a 1;WATCH a;SET a 2;MULTI;SET b 1;EXEC;SET c 1",
    "MULTI;SELECT 2;SET a 1;SELECT 0;EXEC;SET b 1",
    // Databases.
    "SELECT 3;SET a 1;SELECT 0;SET b 1;SELECT 15;SET c 1",
    "SET a 1;SWAPDB 0 1;SET b 1;MOVE b 2;SET c 1;FLUSHDB ASYNC;SET d 1",
    "SET a 1;SELECT 1;SET b 1;FLUSHALL;SET c 1",
    // What fails, or has no effect.
    "SET a x;INCR a;LPUSH a 1;SET b 1",
    "PING;SET a 1;PUBLISH c m;SUBSCRIBE c;SET b 2;GET a;KEYS *;RESET;SET c 1",
    "AUTH x;CLIENT REPLY OFF;SET a 1;HELLO 3;SET b 1;QUIT;SET c 1;MONITOR;SET d 1",
    "CONFIG SET maxmemory 1;SET a 1;BGREWRITEAOF;SET b 1;WAIT 1 0;ASKING;SET c 1;CONFIG SET maxmemory 0",
    // What waits, or draws.
    "RPUSH l a b;BRPOPLPUSH l m 0;BLMOVE l m LEFT RIGHT 0;BLPOP m 0;BLPOP none 1;SET a 1;BRPOP none 0;SET b 1",
    "SADD s a;SPOP s;SADD t a b c;SPOP t 3;XADD x * f v;XADD x 99999999999999-1 f v;XTRIM x MAXLEN ~ 1",
    "set a 1;expire a 100;hset h f v;ZADD z 1 a;ZADD z INCR 2 a;ZADD z NX 9 a",
];

#[test]
#[ignore = "end to end: run by `cargo xtask test`"]
fn what_others_wrote_is_read_as_they_read_it() {
    for log in LOGS {
        let bytes = bytes_of(log);
        for single in [false, true] {
            // A single file is what there was before Redis 7.
            let held = [TestServer::valkey as Start, TestServer::bobbin]
                .map(|start| read(start, &bytes, single));
            assert_eq!(held[0], held[1], "{log} (single {single})");
            assert!(!held[0].is_empty(), "{log}: nothing was read");
        }
    }
}

/// Remarks and times between the commands are passed over.
#[test]
#[ignore = "end to end: run by `cargo xtask test`"]
fn remarks_are_passed_over() {
    let mut bytes = b"#TS:1600000000\r\n".to_vec();
    bytes.extend(bytes_of("SET a 1;MULTI"));
    bytes.extend_from_slice(b"#TS:1600000001\r\n");
    bytes.extend(bytes_of("SET b 1;EXEC"));
    bytes.extend_from_slice(b"# remark\r\n");
    bytes.extend(bytes_of("SET c 1 PX 100000000"));
    let held =
        [TestServer::valkey as Start, TestServer::bobbin].map(|start| read(start, &bytes, false));
    assert_eq!(held[0], held[1]);
    assert_eq!(held[0].len(), 3);
}

/// A single file whose move into the directory was begun when the server died: the manifest is
/// there, the file is not.
#[test]
#[ignore = "end to end: run by `cargo xtask test`"]
fn an_old_log_is_taken_over_after_all() {
    let folder = Folder::new();
    fs::create_dir(folder.log()).expect("a folder");
    let manifest = folder.log().join("appendonly.aof.manifest");
    fs::write(manifest, "file appendonly.aof seq 1 type b\n").expect("is written");
    let single = folder.path().join("appendonly.aof");
    fs::write(single, bytes_of("SET a 1")).expect("is written");
    for _ in 0..2 {
        let server = TestServer::bobbin(&["--dir", folder.text(), "--appendonly", "yes"]);
        assert_eq!(server.connect().say("GET a").text(), "1");
    }
}

type Start = fn(&[&str]) -> TestServer;

/// What a server holds that began with this log: once what is past has gone.
fn read(start: Start, log: &[u8], single: bool) -> Vec<String> {
    let folder = Folder::new();
    let name = if single {
        folder.path().join("appendonly.aof")
    } else {
        fs::create_dir(folder.log()).expect("a folder");
        let manifest = folder.log().join("appendonly.aof.manifest");
        fs::write(manifest, "file appendonly.aof.1.incr.aof seq 1 type i\n").expect("is written");
        folder.log().join("appendonly.aof.1.incr.aof")
    };
    fs::write(name, log).expect("is written");
    let server = start(&["--dir", folder.text(), "--appendonly", "yes"]);
    let mut client = server.connect();
    let deadline = Instant::now() + Duration::from_secs(10);
    loop {
        let (held, has_past) = all_of(&mut client);
        if !has_past || Instant::now() > deadline {
            return held;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Keys with their types, what they hold and when they die, libraries; and whether there is
/// something that is nothing any more.
fn all_of(client: &mut TestConnection) -> (Vec<String>, bool) {
    let (mut all, mut has_past) = (Vec::new(), false);
    for database in 0..4 {
        client.say(&format!("SELECT {database}"));
        let mut keys: Vec<_> = client.say("KEYS *").items().iter().map(ReplyFrame::text).collect();
        keys.sort();
        has_past |= client.say("DBSIZE").as_integer() != Some(keys.len() as i64);
        for key in keys {
            let kind = client.say(&format!("TYPE {key}")).text();
            let value = match kind.as_str() {
                "string" => client.say(&format!("GET {key}")).text(),
                "list" => words(&client.say(&format!("LRANGE {key} 0 -1"))),
                "zset" => words(&client.say(&format!("ZRANGE {key} 0 -1 WITHSCORES"))),
                "hash" => fields(client, &key),
                _ => client.say(&format!("OBJECT ENCODING {key}")).text(),
            };
            has_past |= value.is_empty();
            let ttl_ms = client.say(&format!("PTTL {key}")).as_integer().unwrap_or(0);
            all.push(format!("{database} {key} {kind} {value} {}", about(ttl_ms)));
        }
    }
    let libraries = client.say("FUNCTION LIST WITHCODE");
    all.extend(libraries.items().iter().map(|library| library.items()[1].text()));
    (all, has_past)
}

fn fields(client: &mut TestConnection, key: &str) -> String {
    let mut names: Vec<_> =
        client.say(&format!("HKEYS {key}")).items().iter().map(ReplyFrame::text).collect();
    names.sort();
    let field = |name: String| {
        let value = client.say(&format!("HGET {key} {name}")).text();
        let ttl = client.say(&format!("HPTTL {key} FIELDS 1 {name}"));
        let ttl_ms = ttl.items()[0].as_integer().unwrap_or(0);
        format!("{name}={value}/{} ", about(ttl_ms))
    };
    names.into_iter().map(field).collect()
}

fn words(reply: &ReplyFrame) -> String {
    reply.items().iter().map(ReplyFrame::text).collect::<Vec<_>>().join(" ")
}

/// Time passes between looking here and there: half minutes.
fn about(ttl_ms: i64) -> i64 {
    if ttl_ms < 0 { ttl_ms } else { (ttl_ms + 25_000) / 30_000 }
}

fn bytes_of(log: &str) -> Vec<u8> {
    let mut bytes = Vec::new();
    for command in log.split(';') {
        let mut words: Vec<String> = Vec::new();
        let mut rest = command;
        while !rest.is_empty() {
            let word = match rest.strip_prefix('{') {
                Some(quoted) => {
                    let (word, after) = quoted.split_once('}').expect("it is closed");
                    rest = after.trim_start();
                    word
                }
                None => {
                    let (word, after) = rest.split_once(' ').unwrap_or((rest, ""));
                    rest = after;
                    word
                }
            };
            words.push(match word {
                "SCRIPT" if !words.is_empty() => SCRIPT.to_owned(),
                "LIBRARY" => LIBRARY.to_owned(),
                "%" => SCRIPT_HASH.to_owned(),
                word => word.to_owned(),
            });
        }
        encode_command(&words, &mut bytes);
    }
    bytes
}

const SCRIPT: &str = "redis.call('set', KEYS[1], ARGV[1]) redis.call('incr', KEYS[2]) return 1";
const SCRIPT_HASH: &str = "9e9c860f3b4390b79b03987a5ec4227d9094d753";
const LIBRARY: &str = "#!lua name=library
redis.register_function('put', function(keys, args) return redis.call('set', keys[1], args[1]) end)";
