//! Files that go from one server to another and back: snapshots and logs, with the same data on
//! both sides.

use std::time::Duration;

use bobbin_testkit::disk::Folder;
use bobbin_testkit::random::{TestRandom, seed};
use bobbin_testkit::{ReplyFrame, TestConnection, TestServer};

/// The servers whose files we read and that read ours. Redis 7.0 is Debian's, and not on every
/// machine.
const PEERS: [&str; 3] = ["valkey-server", "redis-server", "redis-server-7.0"];

const DEBUG: [&str; 2] = ["--enable-debug-command", "yes"];

fn start(program: &str, arguments: &[&str]) -> Option<TestServer> {
    let arguments = [&DEBUG[..], arguments].concat();
    if program == "bobbin" {
        return Some(TestServer::bobbin(&arguments));
    }
    let server = TestServer::other(program, &arguments);
    if server.is_none() {
        println!("{program} is not there: not tested");
    }
    server
}

fn ask(connection: &mut TestConnection, words: &[&str]) -> String {
    connection.call(words).expect("answers").text()
}

/// The digest of all keys, and the libraries of functions.
fn digest(of: &mut TestConnection) -> String {
    let mut all = vec![ask(of, &["DEBUG", "DIGEST"])];
    for library in of.say("FUNCTION LIST WITHCODE").items() {
        let code = library.items().iter().skip_while(|item| item.text() != "library_code").nth(1);
        all.push(code.map_or_else(String::new, ReplyFrame::text));
    }
    all.join("\n")
}

/// Each pair, there and back.
fn pairs() -> impl Iterator<Item = (&'static str, &'static str)> {
    let with_us = PEERS.into_iter().flat_map(|peer| [("bobbin", peer), (peer, "bobbin")]);
    with_us.chain([("bobbin", "bobbin")])
}

/// A snapshot that Bobbin 0.1.0 wrote: values of all types, packed and not, times to live, groups
/// of a stream, a second database, a library. Valkey 9.1.2 finds the same digest in it.
const OLD_SNAPSHOT: &[u8] = include_bytes!("old/0.1.0.snapshot");
const OLD_DIGEST: &str = "dadb8c4e9f7365f094a6da0ac6f4c75a24839f45";

/// By itself, and as the base of a log.
#[test]
#[ignore = "end to end: run by `cargo xtask test`"]
fn what_the_first_version_wrote_is_read() {
    let folder = Folder::new();
    let dir = ["--dir", folder.text()];
    std::fs::write(folder.path().join("dump.rdb"), OLD_SNAPSHOT).expect("it is written");
    std::fs::create_dir(folder.log()).expect("it is made");
    let manifest = "file appendonly.aof.1.base.rdb seq 1 type b\n\
                    file appendonly.aof.1.incr.aof seq 1 type i\n";
    let changes = "*2\r\n$6\r\nSELECT\r\n$1\r\n0\r\n*2\r\n$4\r\nINCR\r\n$6\r\nnumber\r\n";
    for (name, bytes) in [
        ("appendonly.aof.manifest", manifest.as_bytes()),
        ("appendonly.aof.1.base.rdb", OLD_SNAPSHOT),
        ("appendonly.aof.1.incr.aof", changes.as_bytes()),
    ] {
        std::fs::write(folder.log().join(name), bytes).expect("it is written");
    }
    for (appendonly, number) in [("no", "12345"), ("yes", "12346")] {
        let server = start("bobbin", &[&dir[..], &["--appendonly", appendonly]].concat());
        let server = server.expect("it is there");
        let mut client = server.connect();
        assert_eq!(client.say("GET number").text(), number);
        client.say("SET number 12345");
        assert_eq!(ask(&mut client, &["DEBUG", "DIGEST"]), OLD_DIGEST);
        assert_eq!(client.say("FCALL seven 0").as_integer(), Some(7));
        assert_eq!(client.say("PEXPIRETIME later").as_integer(), Some(4_102_444_800_000));
        let times = client.say("HPEXPIRETIME fields FIELDS 2 f g");
        let times: Vec<_> = times.items().iter().filter_map(ReplyFrame::as_integer).collect();
        assert_eq!(times, [4_102_444_800_000, -1]);
        assert_eq!(client.say("XPENDING stream group").items()[0].as_integer(), Some(1));
    }
}

#[test]
#[ignore = "end to end: run by `cargo xtask test`"]
fn snapshots_move_between_servers() {
    for (from, to) in pairs() {
        // The log's own version 11 is unknown to Redis 7.0.
        if (from, to) == ("bobbin", "redis-server-7.0") {
            continue;
        }
        let folder = Folder::new();
        let dir = ["--dir", folder.text()];
        let Some(source) = start(from, &dir) else { continue };
        let mut client = source.connect();
        fill(&mut client, 40);
        assert_eq!(ask(&mut client, &["SAVE"]), "OK");
        let before = digest(&mut client);
        drop(source);
        let Some(target) = start(to, &dir) else { continue };
        assert_eq!(digest(&mut target.connect()), before, "{from} to {to}");
    }
}

/// With a base of either form, and with none but commands.
#[test]
#[ignore = "end to end: run by `cargo xtask test`"]
fn logs_move_between_servers() {
    for (from, to) in pairs() {
        for preamble in ["yes", "no"] {
            // As above.
            if (from, to) == ("bobbin", "redis-server-7.0") && preamble == "yes" {
                continue;
            }
            let folder = Folder::new();
            let log = ["--dir", folder.text(), "--appendonly", "yes"];
            let log = [&log[..], &["--aof-use-rdb-preamble", preamble]].concat();
            let Some(source) = start(from, &log) else { continue };
            let mut client = source.connect();
            fill(&mut client, 20);
            client.say("BGREWRITEAOF");
            wait_for_rewrite(&mut client);
            let before = change_and_end(source, client);
            let Some(target) = start(to, &log) else { continue };
            assert_eq!(
                digest(&mut target.connect()),
                before,
                "{from} to {to}, preamble {preamble}"
            );
        }
    }
}

/// Only commands, as there was no rewrite: these Redis 7.0 reads as well.
#[test]
#[ignore = "end to end: run by `cargo xtask test`"]
fn logs_of_commands_move_between_servers() {
    for (from, to) in pairs() {
        let folder = Folder::new();
        let log = ["--dir", folder.text(), "--appendonly", "yes", "--aof-use-rdb-preamble", "no"];
        let Some(source) = start(from, &log) else { continue };
        let mut client = source.connect();
        fill(&mut client, 20);
        let before = change_and_end(source, client);
        let Some(target) = start(to, &log) else { continue };
        assert_eq!(digest(&mut target.connect()), before, "{from} to {to}");
    }
}

fn wait_for_rewrite(client: &mut TestConnection) {
    loop {
        let info = ask(client, &["INFO", "persistence"]);
        if info.contains("aof_rewrite_in_progress:0") && info.contains("aof_rewrite_scheduled:0") {
            assert!(info.contains("aof_last_bgrewrite_status:ok"), "{info}");
            return;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Fields of hashes that expire go along, to the millisecond. Only Valkey reads the snapshots that
/// we write of them; the commands Redis reads as well.
#[test]
#[ignore = "end to end: run by `cargo xtask test`"]
fn fields_that_expire_move_between_servers() {
    for (from, to) in pairs() {
        if from == "redis-server-7.0" || to == "redis-server-7.0" {
            continue;
        }
        for how in ["snapshot", "log", "base", "base of commands"] {
            if (from, to) == ("bobbin", "redis-server") && ["snapshot", "base"].contains(&how) {
                continue;
            }
            let (folder, what) = (Folder::new(), format!("{from} to {to}, {how}"));
            let mut arguments = vec!["--dir", folder.text()];
            if how != "snapshot" {
                let preamble = if how == "base" { "yes" } else { "no" };
                let log = ["--appendonly", "yes", "--aof-use-rdb-preamble", preamble];
                arguments.extend(log);
            }
            let Some(mut source) = start(from, &arguments) else { continue };
            let mut client = source.connect();
            fill_fields(&mut client);
            match how {
                "snapshot" => assert_eq!(ask(&mut client, &["SAVE"]), "OK"),
                "log" => {}
                _ => {
                    client.say("BGREWRITEAOF");
                    wait_for_rewrite(&mut client);
                }
            }
            change_fields(&mut client, how != "snapshot");
            let before = fields(&mut client);
            assert!(before.len() > 700, "{what}: {}", before.len());
            client.send(&["SHUTDOWN", "NOSAVE"]).expect("is sent");
            source.wait(Duration::from_secs(30)).expect("it ends");
            let Some(target) = start(to, &arguments) else { continue };
            let after = fields(&mut target.connect());
            let differs = before.iter().zip(&after).find(|(before, after)| before != after);
            assert!(before.len() == after.len() && differs.is_none(), "{what}: {differs:?}");
        }
    }
}

/// What Redis 8 and Valkey 9 both have.
fn fill_fields(client: &mut TestConnection) {
    let many: Vec<_> = (0..700).flat_map(|n| [format!("f{n}"), format!("v{n}")]).collect();
    let words = |start: &[&str], rest: &[String]| {
        start.iter().map(|&word| word.to_owned()).chain(rest.iter().cloned()).collect::<Vec<_>>()
    };
    client.call(&words(&["HSET", "large"], &many)).expect("answers");
    let some: Vec<_> = (0..300).map(|n| format!("f{}", n * 2)).collect();
    let expire = ["HPEXPIREAT", "large", "5000000000123", "FIELDS", "300"];
    client.call(&words(&expire, &some)).expect("answers");
    for line in [
        "HSET small a 1 b 2 c 3 d 4 e 5 f 6",
        "HEXPIRE small 5000 FIELDS 2 a b",
        "HPEXPIRE small 5000001 FIELDS 2 c d",
        "HEXPIREAT small 5000000000 FIELDS 1 e",
        "HSET plain a 1",
        "HSET dying a 1 b 2 c 3",
        "HSETEX set EX 4000 FIELDS 2 a 1 b 2",
        "HSETEX set FNX PXAT 5000000000777 FIELDS 1 c 3",
        "EXPIRE small 100000",
    ] {
        let reply = client.say(line);
        assert!(!reply.is_error(), "{line}: {}", reply.text());
    }
}

fn change_fields(client: &mut TestConnection, is_logged: bool) {
    if !is_logged {
        return;
    }
    for line in [
        "HPERSIST small FIELDS 1 a",
        "HINCRBY small b 5",
        "HSET small c new",
        "HEXPIRE small 6000 GT FIELDS 2 d e",
        "HPEXPIRE dying 1 FIELDS 2 a b",
        "HGETEX set EX 9000 FIELDS 1 a",
        "HGETEX set PERSIST FIELDS 1 b",
        "HGETDEL small FIELDS 1 f",
        "HDEL large f0 f1",
        "RENAME large renamed",
        "COPY renamed copied",
        "HPEXPIRE plain 0 FIELDS 1 a",
    ] {
        let reply = client.say(line);
        assert!(!reply.is_error(), "{line}: {}", reply.text());
    }
    // What dies is dead for all.
    std::thread::sleep(Duration::from_millis(300));
}

/// Every field with what it holds and when it dies.
fn fields(client: &mut TestConnection) -> Vec<String> {
    let mut all = Vec::new();
    for key in ["small", "large", "renamed", "copied", "plain", "dying", "set"] {
        for name in client.say(&format!("HKEYS {key}")).items() {
            let name = name.text();
            let value = client.say(&format!("HGET {key} {name}")).text();
            let time = client.say(&format!("HPEXPIRETIME {key} FIELDS 1 {name}"));
            all.push(format!("{key} {name} {value} {:?}", time.items()[0].as_integer()));
        }
    }
    all.sort();
    all
}

/// Values of every type, packed and not.
fn fill(to: &mut TestConnection, keys: usize) {
    let loaded = to.call(&["FUNCTION", "LOAD", LIBRARY]).expect("answers");
    assert_eq!(loaded.text(), "library");
    for key in 0..keys {
        let many = if key % 7 == 0 { 700 } else { 5 };
        let words = |command: &str, kind: &str, of: &dyn Fn(usize) -> Vec<String>| {
            let mut words = vec![command.to_owned(), format!("{kind}:{key}")];
            words.extend((0..many).flat_map(of));
            words
        };
        let name = key.to_string();
        for words in [
            vec!["SET".into(), format!("s:{key}"), "value ".repeat(key % 40)],
            vec!["SET".into(), format!("e:{key}"), name.clone(), "EX".into(), "10000".into()],
            words("RPUSH", "l", &|n| vec![format!("element {n}")]),
            words("SADD", "i", &|n| vec![format!("{}", n * 70_000)]),
            words("SADD", "m", &|n| vec![format!("member {n}")]),
            words("ZADD", "z", &|n| vec![format!("{}", n as f64 / 4.0), format!("m{n}")]),
            words("HSET", "h", &|n| vec![format!("f{n}"), format!("v{n}")]),
            vec!["XADD".into(), format!("x:{}", key % 3), "*".into(), "f".into(), name.clone()],
            vec!["PFADD".into(), "p".into(), name],
        ] {
            let reply = to.call(&words).expect("is stored");
            assert!(!reply.is_error(), "{words:?}: {}", reply.text());
        }
    }
}

/// Changes of all kinds, with consumer groups, transactions and other databases.
fn change(client: &mut TestConnection) {
    let seed = seed();
    let mut random = TestRandom::new(seed);
    for line in [
        "XGROUP CREATE x:0 group 0",
        "XREADGROUP GROUP group me COUNT 2 STREAMS x:0 >",
        "XGROUP CREATECONSUMER x:0 group you",
        "XADD trimmed 1-1 f v",
        "XTRIM trimmed MINID ~ 9",
        "XADD trimmed 2-1 f v",
        "XADD trimmed MINID ~ 9 3-1 f v",
        "MULTI",
        "SELECT 3",
        "SET other 1",
        "SELECT 0",
        "SPOP m:1 2",
        "EXEC",
        "RENAME l:2 l:renamed",
        "COPY h:3 h:copied",
        "MOVE s:4 5",
        "SWAPDB 6 7",
        "PERSIST e:5",
        "EXPIRE s:6 5000",
        "INCRBYFLOAT float 1.25",
        "LMOVE l:1 l:3 LEFT RIGHT",
        "ZPOPMIN z:1 2",
        "SUNIONSTORE u m:2 m:3",
        "SORT l:5 ALPHA STORE sorted",
        "GEOADD g 13.36 38.11 a 15.08 37.50 b",
        "BITFIELD b SET u8 0 200 INCRBY i5 100 3",
        "APPEND s:1 more",
        "SETRANGE s:2 100 end",
        "DEL z:2",
        "UNLINK h:4",
    ] {
        let reply = client.say(line);
        assert!(!reply.is_error(), "{line}: {}", reply.text());
    }
    for words in [
        &["EVAL", SCRIPT, "2", "m:5", "h:5", "1"][..],
        &["EVAL_RO", "return redis.call('get', KEYS[1])", "1", "s:5"],
        &["FCALL", "move", "2", "m:6", "h:6", "1"],
        &["FUNCTION", "LOAD", SECOND],
        &["FCALL", "second", "1", "by second"],
        &["FUNCTION", "DELETE", "second"],
        &["FUNCTION", "LOAD", "REPLACE", LIBRARY],
    ] {
        let reply = client.call(words).expect("answers");
        assert!(!reply.is_error(), "{words:?}: {}", reply.text());
    }
    for _ in 0..200 {
        let key = random.below(20);
        let words: Vec<String> = match random.below(5) {
            0 => vec!["LPOP".into(), format!("l:{key}")],
            1 => vec!["SREM".into(), format!("m:{key}"), format!("member {}", random.below(5))],
            2 => vec!["ZINCRBY".into(), format!("z:{key}"), "1.5".into(), "m1".into()],
            3 => vec!["HINCRBY".into(), format!("h:{key}"), "count".into(), "7".into()],
            _ => vec!["XDEL".into(), format!("x:{}", key % 3), "1-1".into()],
        };
        client.call(&words).unwrap_or_else(|error| panic!("seed {seed}: {error}"));
    }
}

/// Changes some keys more and ends the server without a snapshot; what there was at the end.
fn change_and_end(mut server: TestServer, mut client: TestConnection) -> String {
    change(&mut client);
    let at_the_end = digest(&mut client);
    client.send(&["SHUTDOWN", "NOSAVE"]).expect("is sent");
    server.wait(Duration::from_secs(30)).expect("it ends");
    at_the_end
}

/// Moves what the server chooses from a set into a hash, with a time that the server has.
const SCRIPT: &str = "
for _, member in ipairs(redis.call('SPOP', KEYS[1], ARGV[1])) do
    redis.call('HSET', KEYS[2], 'moved', member)
    redis.call('SET', 'by script', redis.call('TIME')[1])
    redis.call('EXPIRE', 'by script', 3000)
end
return redis.call('DEL', 'nothing')";

const LIBRARY: &str = "#!lua name=library
redis.register_function('move', function(keys, args)
    for _, member in ipairs(redis.call('SPOP', keys[1], args[1])) do
        redis.call('HSET', keys[2], 'moved', member)
        redis.call('LPUSH', 'by function', member, 'more')
    end
    return redis.call('SELECT', '0')
end)";

const SECOND: &str = "#!lua name=second
redis.register_function('second', function(keys)
    redis.call('SET', keys[1], '1')
    redis.call('APPEND', keys[1], '2')
    return redis.call('INCR', keys[1])
end)";
