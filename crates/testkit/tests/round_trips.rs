//! Files that go from one server to another and back: snapshots and logs, with the same data on both sides.

use std::time::Duration;

use bobbin_testkit::disk::Folder;
use bobbin_testkit::random::{Random, seed};
use bobbin_testkit::{Connection, Server};

/// Those whose files we read and who read ours. Redis 7.0 is Debian's, and not on every machine.
const PEERS: [&str; 3] = ["valkey-server", "redis-server", "redis-server-7.0"];

const DEBUG: [&str; 2] = ["--enable-debug-command", "yes"];

fn start(program: &str, arguments: &[&str]) -> Option<Server> {
    let arguments = [&DEBUG[..], arguments].concat();
    if program == "bobbin" {
        return Some(Server::bobbin(&arguments));
    }
    let server = Server::other(program, &arguments);
    if server.is_none() {
        println!("{program} is not there: not tested");
    }
    server
}

fn ask(connection: &mut Connection, words: &[&str]) -> String {
    connection.call(words).expect("answers").text()
}

fn digest(of: &mut Connection) -> String {
    ask(of, &["DEBUG", "DIGEST"])
}

/// Each pair, there and back.
fn pairs() -> impl Iterator<Item = (&'static str, &'static str)> {
    let with_us = PEERS.into_iter().flat_map(|peer| [("bobbin", peer), (peer, "bobbin")]);
    with_us.chain([("bobbin", "bobbin")])
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
            // As above; and RESTORE's payloads in the base have the same version.
            if (from, to) == ("bobbin", "redis-server-7.0") {
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

fn wait_for_rewrite(client: &mut Connection) {
    loop {
        let info = ask(client, &["INFO", "persistence"]);
        if info.contains("aof_rewrite_in_progress:0") && info.contains("aof_rewrite_scheduled:0") {
            assert!(info.contains("aof_last_bgrewrite_status:ok"), "{info}");
            return;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Values of every type, packed and not.
fn fill(to: &mut Connection, keys: usize) {
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
fn change(client: &mut Connection) {
    let seed = seed();
    let mut random = Random::new(seed);
    for line in [
        "XGROUP CREATE x:0 group 0",
        "XREADGROUP GROUP group me COUNT 2 STREAMS x:0 >",
        "XGROUP CREATECONSUMER x:0 group you",
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
fn change_and_end(mut server: Server, mut client: Connection) -> String {
    change(&mut client);
    let at_the_end = digest(&mut client);
    client.send(&["SHUTDOWN", "NOSAVE"]).expect("is sent");
    server.wait(Duration::from_secs(30)).expect("it ends");
    at_the_end
}
