//! What clients of a replica see while it carries out a stream: states that its primary had, in
//! their order.
//!
//! In one test each writer writes its count, and of each other writer the count that it knew to be
//! acknowledged, to three keys in one unit. A reader of a replica sees each unit whole, and never a
//! write without all writes that its writer knew of. In another one a single writer counts over
//! many keys: from the newest count that a reader has seen anywhere follows what it must see
//! everywhere.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use bobbin_testkit::random::{TestRandom, seed};
use bobbin_testkit::{
    ReceiveOutcome, ReplyFrame, TestConnection, TestServer, encode_command, until,
};

const WRITERS: usize = 4;
/// Keys of a writer: they lie in different shards.
const KEYS: usize = 3;

/// How many writes of each writer a client knows of.
type Known = [u64; WRITERS];

fn key(writer: usize, at: usize) -> String {
    format!("writer:{writer}:{at}")
}

fn parse(reply: &ReplyFrame) -> Known {
    let text = reply.text();
    let mut counts = text.split(' ').map(|count| count.parse().expect("it is a count"));
    std::array::from_fn(|_| counts.next().unwrap_or(0))
}

/// Writes in units of all forms until it is told to stop; returns how often.
fn write(
    mut client: TestConnection,
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
fn read(mut client: TestConnection, mut random: TestRandom, stop: &AtomicBool) -> u64 {
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

fn is_linked(server: &TestServer) -> bool {
    server.connect().say("INFO replication").text().contains("master_link_status:up")
}

/// Readers of the replica and of its own replica, while writers write and links break.
#[test]
#[ignore = "end to end: run by `cargo xtask test`"]
fn a_replica_shows_only_what_its_primary_had() {
    let arguments = ["--io-threads", "2", "--repl-diskless-sync-delay", "0"];
    let primary = TestServer::bobbin(&arguments);
    let port = |server: &TestServer| server.address().port().to_string();
    let following = |server: &TestServer| {
        TestServer::bobbin(&[&arguments[..], &["--replicaof", "127.0.0.1", &port(server)]].concat())
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
            .map(|(server, seed)| (server.connect(), TestRandom::new(seed)))
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

/// Keys that one client counts over, one after the other, again and again: count `n` is written to
/// key `n % COUNTERS`. They lie in different shards.
const COUNTERS: u64 = 64;
/// Counts of a unit, where it is a transaction or a script.
const UNIT: u64 = 8;
/// Rounds over all keys by single commands. As many of those follow each other as several threads
/// of a replica carry out together.
const SINGLES: u64 = 4;
/// Then follow a round by transactions and one by scripts.
const ROUNDS: u64 = SINGLES + 2;
const COUNTS: u64 = COUNTERS * ROUNDS * 150;

fn counter(count: u64) -> String {
    format!("counter:{}", count % COUNTERS)
}

/// What the key with this number has once `newest` is written; 0: nothing.
fn expected(newest: u64, key: u64) -> u64 {
    newest.checked_sub(key).map_or(0, |above| newest - above % COUNTERS)
}

/// Whether a unit ends with this count.
fn ends_unit(count: u64) -> bool {
    let round = count.saturating_sub(1) / COUNTERS % ROUNDS;
    round < SINGLES || count.is_multiple_of(UNIT)
}

/// Counts, many units in a pipeline, so that the replica has many of them at once.
fn count(mut client: TestConnection) {
    for start in (0..COUNTS).step_by((COUNTERS * ROUNDS) as usize) {
        let (mut bytes, mut replies) = (Vec::new(), 0);
        let mut say = |words: &[&str]| {
            encode_command(words, &mut bytes);
            replies += 1;
        };
        for round in 0..ROUNDS {
            let counts: Vec<_> = (1..=COUNTERS)
                .map(|at| start + round * COUNTERS + at)
                .map(|count| (counter(count), count.to_string()))
                .collect();
            for unit in counts.chunks(UNIT as usize) {
                if round == SINGLES {
                    say(&["MULTI"]);
                }
                if round <= SINGLES {
                    unit.iter().for_each(|(key, count)| say(&["SET", key, count]));
                }
                if round == SINGLES {
                    say(&["EXEC"]);
                }
                if round > SINGLES {
                    let script = "for at, key in ipairs(KEYS) do \
                                  redis.call('SET', key, ARGV[at]) end";
                    let keys = unit.iter().map(|(key, _)| key.as_str());
                    let counts = unit.iter().map(|(_, count)| count.as_str());
                    let head = ["EVAL", script, "8"].into_iter();
                    say(&head.chain(keys).chain(counts).collect::<Vec<_>>());
                }
            }
        }
        client.send_raw(&bytes).expect("it is sent");
        for _ in 0..replies {
            assert!(!client.receive().expect("the primary answers").is_error());
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Reading {
    /// All keys at once.
    Mget,
    Transaction,
    Script,
    /// One key after the other, each once the one before is answered.
    Gets,
    /// One key after the other, all asked for at once.
    Pipeline,
}

const READINGS: [Reading; 5] =
    [Reading::Mget, Reading::Transaction, Reading::Script, Reading::Gets, Reading::Pipeline];

impl Reading {
    /// Reads all keys, the last one first, and checks them. `seen`: the newest count that any
    /// reader of this server has seen.
    fn read(self, client: &mut TestConnection, seen: &AtomicU64) {
        let names: Vec<_> = (0..COUNTERS).rev().map(counter).collect();
        let mut newest = seen.load(Ordering::SeqCst);
        if let Self::Gets | Self::Pipeline = self {
            if self == Self::Pipeline {
                names.iter().for_each(|name| client.send(&["GET", name]).expect("it is sent"));
            }
            for (key, name) in (0..COUNTERS).rev().zip(&names) {
                if self == Self::Gets {
                    newest = seen.load(Ordering::SeqCst);
                    client.send(&["GET", name]).expect("it is sent");
                }
                let count = count_of(&client.receive().expect("the replica answers"));
                assert!(count >= expected(newest, key), "{self:?}: {key} has {count}, {newest}");
                newest = newest.max(count);
                seen.fetch_max(count, Ordering::SeqCst);
            }
            return;
        }
        let names = names.iter().map(String::as_str);
        let reply = match self {
            Self::Mget => client.call(&["MGET"].into_iter().chain(names).collect::<Vec<_>>()),
            Self::Script => {
                let script = "#!lua flags=no-writes\nreturn redis.call('MGET', unpack(KEYS))";
                let head = ["EVAL", script, "64"].into_iter();
                client.call(&head.chain(names).collect::<Vec<_>>())
            }
            _ => {
                client.say("MULTI");
                names.for_each(|name| {
                    client.call(&["GET", name]).expect("the replica answers");
                });
                client.call(&["EXEC"])
            }
        };
        let reply = reply.expect("the replica answers");
        let counts: Vec<_> = reply.items().iter().map(count_of).collect();
        let now = counts.iter().copied().max().unwrap_or(0);
        let whole: Vec<_> = (0..COUNTERS).rev().map(|key| expected(now, key)).collect();
        assert_eq!(counts, whole, "{self:?} at {now}");
        assert!(ends_unit(now), "{self:?}: a unit is torn at {now}");
        assert!(now >= newest, "{self:?}: {now} behind {newest}");
        seen.fetch_max(now, Ordering::SeqCst);
    }
}

fn count_of(reply: &ReplyFrame) -> u64 {
    if reply.is_null() { 0 } else { reply.text().parse().expect("it is a count") }
}

/// Many readers of the replica and of its own replica, in all ways to read, while links break.
#[test]
#[ignore = "end to end: run by `cargo xtask test`"]
fn no_effect_is_seen_before_what_came_before_it() {
    let arguments = ["--io-threads", "2", "--repl-diskless-sync-delay", "0"];
    let servers = [0; 3].map(|_| TestServer::bobbin(&arguments));
    let [primary, first, second] = &servers;
    first.follow(primary.address().port());
    until(|| is_linked(first));
    second.follow(first.address().port());
    until(|| is_linked(second));
    let stop = AtomicBool::new(false);
    let seen: [AtomicU64; 2] = Default::default();
    std::thread::scope(|scope| {
        let _stopping = Stopping(&stop);
        for (server, seen) in [first, second].into_iter().zip(&seen) {
            for reading in READINGS {
                let (mut client, stop) = (server.connect(), &stop);
                scope.spawn(move || {
                    while !stop.load(Ordering::SeqCst) {
                        reading.read(&mut client, seen);
                    }
                    reading.read(&mut client, seen);
                    assert_eq!(seen.load(Ordering::SeqCst), COUNTS);
                });
            }
        }
        let counting = scope.spawn(|| count(primary.connect()));
        for (server, seen) in [(primary, &seen[0]), (first, &seen[1])] {
            until(|| seen.load(Ordering::SeqCst) > COUNTS / 4 || counting.is_finished());
            server.connect().say("CLIENT KILL TYPE replica");
        }
        let last = ReplyFrame::bulk(COUNTS.to_string());
        let has_all =
            |server: &TestServer| server.connect().say(&format!("GET {}", counter(COUNTS))) == last;
        until(|| counting.is_finished() && has_all(first) && has_all(second));
    });
}

/// Has readers stop in the end, also where that is a failure.
struct Stopping<'a>(&'a AtomicBool);

impl Drop for Stopping<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

/// What the primary does meanwhile comes behind the script, also once that counts as slow.
#[test]
#[ignore = "end to end: run by `cargo xtask test`"]
fn nothing_is_lost_while_a_script_keeps_its_keys() {
    let arguments = ["--repl-diskless-sync-delay", "0", "--enable-debug-command", "yes"];
    for threshold in ["5000", "1"] {
        let primary = TestServer::bobbin(&arguments);
        let slow = ["--busy-reply-threshold", threshold];
        let replica = TestServer::bobbin(&[&arguments[..], &slow].concat());
        replica.follow(primary.address().port());
        primary.settle(&[&replica]);
        let script = "#!lua flags=no-writes\n\
                      for _ = 1, 60000 do redis.call('MGET', unpack(KEYS)) end";
        let mut reader = replica.connect();
        reader.send(&["EVAL", script, "4", "a", "b", "c", "d"]).expect("it is sent");
        let mut client = primary.connect();
        let mut rounds = 0;
        while reader.receive_within(Duration::from_millis(1)).expect("it is there")
            == ReceiveOutcome::Nothing
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
