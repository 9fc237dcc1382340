//! What clients of a replica see while it carries out a stream.
//!
//! Each writer writes its count, and of each other writer the count that it knew to be
//! acknowledged, to three keys in one unit. A reader of a replica sees each unit whole, and never a
//! write without all writes that its writer knew of.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use bobbin_testkit::random::{Random, seed};
use bobbin_testkit::{Connection, Received, Reply, Server, until};

const WRITERS: usize = 4;
/// Keys of a writer: they lie in different shards.
const KEYS: usize = 3;

/// How many writes of each writer somebody knows of.
type Known = [u64; WRITERS];

fn key(writer: usize, at: usize) -> String {
    format!("writer:{writer}:{at}")
}

fn parse(reply: &Reply) -> Known {
    let text = reply.text();
    let mut counts = text.split(' ').map(|count| count.parse().expect("it is a count"));
    std::array::from_fn(|_| counts.next().unwrap_or(0))
}

/// Writes in units of all forms until it is told to stop; returns how often.
fn write(
    mut client: Connection,
    number: usize,
    acknowledged: &[AtomicU64; WRITERS],
    stop: &AtomicBool,
) -> u64 {
    let mut count = 0;
    while !stop.load(Ordering::SeqCst) {
        count += 1;
        let mut known: Known = std::array::from_fn(|at| acknowledged[at].load(Ordering::SeqCst));
        known[number] = count;
        let value = known.map(|count| count.to_string()).join(" ");
        let keys: [String; KEYS] = std::array::from_fn(|at| key(number, at));
        let pairs = keys.iter().flat_map(|key| [key.as_str(), &value]);
        match count % 3 {
            0 => client.call(&["MSET"].into_iter().chain(pairs).collect::<Vec<_>>()),
            1 => {
                client.say("MULTI");
                for key in &keys {
                    client.call(&["SET", key, &value]).expect("it answers");
                }
                client.call(&["EXEC"])
            }
            _ => {
                let script = "for _, key in ipairs(KEYS) do redis.call('SET', key, ARGV[1]) end";
                let keys = keys.iter().map(String::as_str);
                let words = ["EVAL", script, "3"].into_iter().chain(keys).chain([value.as_str()]);
                client.call(&words.collect::<Vec<_>>())
            }
        }
        .expect("the primary answers");
        acknowledged[number].store(count, Ordering::SeqCst);
    }
    count
}

/// Reads at the replica until it is told to stop, and checks what it sees; returns how many units
/// it saw.
fn read(mut client: Connection, mut random: Random, stop: &AtomicBool) -> u64 {
    let (mut least, mut units) = (Known::default(), 0);
    while !stop.load(Ordering::SeqCst) {
        let writer = random.below(WRITERS);
        let keys: [String; KEYS] = std::array::from_fn(|at| key(writer, at));
        let words: Vec<_> = ["MGET"].into_iter().chain(keys.iter().map(String::as_str)).collect();
        let reply = client.call(&words).expect("the replica answers");
        // It loads a copy, or has nothing yet.
        if reply.is_error() || reply.items()[0].is_null() {
            continue;
        }
        let items = reply.items();
        assert!(items.iter().all(|item| *item == items[0]), "a unit is torn: {items:?}");
        let known = parse(&items[0]);
        assert!(known[writer] >= least[writer], "it went back: {known:?} behind {least:?}");
        for (least, known) in least.iter_mut().zip(known) {
            *least = (*least).max(known);
        }
        units += 1;
    }
    units
}

fn is_linked(server: &Server) -> bool {
    server.connect().say("INFO replication").text().contains("master_link_status:up")
}

/// Readers of the replica and of its own replica, while writers write and links break.
#[test]
#[ignore = "end to end: run by `cargo xtask test`"]
fn a_replica_shows_only_what_its_primary_had() {
    let arguments = ["--io-threads", "2", "--repl-diskless-sync-delay", "0"];
    let primary = Server::bobbin(&arguments);
    let port = |server: &Server| server.address().port().to_string();
    let following = |server: &Server| {
        Server::bobbin(&[&arguments[..], &["--replicaof", "127.0.0.1", &port(server)]].concat())
    };
    let first = following(&primary);
    let second = following(&first);
    let acknowledged: [AtomicU64; WRITERS] = Default::default();
    let (stop, seed) = (AtomicBool::new(false), seed());
    std::thread::scope(|scope| {
        let (stop, acknowledged) = (&stop, &acknowledged);
        let writers: Vec<_> = (0..WRITERS)
            .map(|at| (at, primary.connect()))
            .map(|(at, client)| scope.spawn(move || write(client, at, acknowledged, stop)))
            .collect();
        let readers: Vec<_> = [&first, &second]
            .into_iter()
            .zip(seed..)
            .map(|(server, seed)| (server.connect(), Random::new(seed)))
            .map(|(client, random)| scope.spawn(move || read(client, random, stop)))
            .collect();
        for round in 0..3 {
            until(|| [&first, &second].iter().all(|server| is_linked(server)));
            std::thread::sleep(Duration::from_millis(200));
            for server in [&primary, &first].iter().filter(|_| round < 2) {
                server.connect().say("CLIENT KILL TYPE replica");
            }
        }
        stop.store(true, Ordering::SeqCst);
        let counts: Vec<u64> = writers.into_iter().map(|w| w.join().expect("it ends")).collect();
        for reader in readers {
            assert!(reader.join().expect("it ends") > 0, "seed {seed}");
        }
        for server in [&first, &second] {
            let mut client = server.connect();
            until(|| {
                (0..WRITERS).all(|at| {
                    let reply = client.say(&format!("GET {}", key(at, 0)));
                    !reply.is_error() && !reply.is_null() && parse(&reply)[at] == counts[at]
                })
            });
        }
    });
}

/// What the primary does meanwhile comes behind the script, also once that counts as slow.
#[test]
#[ignore = "end to end: run by `cargo xtask test`"]
fn nothing_is_lost_while_a_script_keeps_its_keys() {
    let arguments = ["--repl-diskless-sync-delay", "0", "--enable-debug-command", "yes"];
    for threshold in ["5000", "1"] {
        let primary = Server::bobbin(&arguments);
        let slow = ["--busy-reply-threshold", threshold];
        let replica = Server::bobbin(&[&arguments[..], &slow].concat());
        replica.follow(primary.address().port());
        primary.settle(&[&replica]);
        let script = "#!lua flags=no-writes\n\
                      for _ = 1, 60000 do redis.call('MGET', unpack(KEYS)) end";
        let mut reader = replica.connect();
        reader.send(&["EVAL", script, "4", "a", "b", "c", "d"]).expect("it is sent");
        let mut client = primary.connect();
        let mut rounds = 0;
        while reader.receive_within(Duration::from_millis(1)).expect("it is there")
            == Received::Nothing
        {
            for line in [
                "INCR a",
                "MULTI",
                "INCR a",
                "RPUSH b x",
                "EXEC",
                "INCR a",
                "COPY a c REPLACE",
                "SELECT 1",
                "FLUSHDB",
                "INCR a",
                "SELECT 0",
                "SADD d x",
                "SUNIONSTORE e d d",
            ] {
                assert!(!client.say(line).is_error(), "{line}");
            }
            rounds += 1;
        }
        primary.settle(&[&replica]);
        assert_eq!(replica.digest(), primary.digest(), "{rounds} rounds, {threshold} ms");
        assert!(!replica.log().contains("== CRITICAL =="));
    }
}
