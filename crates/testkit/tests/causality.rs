//! The order of the log, and what is left of it after a kill.
//!
//! Clients on several threads write to keys of many shards and note in each value what they know: of every client
//! the last write that was acknowledged to it or whose value they have read. In every beginning of the log a write
//! then stands behind all that its writer knew of.

use std::fs;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use bobbin_testkit::disk::Folder;
use bobbin_testkit::random::{Random, seed};
use bobbin_testkit::{Connection, Reply, Server};

const CLIENTS: usize = 6;
/// Keys that all clients write to and read.
const KEYS: usize = 24;

/// How many writes of each client somebody knows of.
type Known = [u64; CLIENTS];

fn start(folder: &Folder, policy: &str, arguments: &[&str]) -> Server {
    let own = ["--dir", folder.text(), "--appendonly", "yes", "--appendfsync", policy];
    let threads = ["--io-threads", "4", "--enable-debug-command", "yes"];
    Server::bobbin(&[&own[..], &threads, arguments].concat())
}

#[test]
#[ignore = "end to end: run by `cargo xtask test`"]
fn no_beginning_of_the_log_lacks_what_a_write_in_it_knew_of() {
    let (seed, folder) = (seed(), Folder::new());
    for policy in ["no", "everysec", "always"] {
        let mut server = start(&folder, policy, &["--auto-aof-rewrite-percentage", "0"]);
        let stop = AtomicBool::new(false);
        let acknowledged: [AtomicU64; CLIENTS] = Default::default();
        let written: u64 = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..CLIENTS)
                .map(|number| {
                    let (client, stop, acknowledged) = (server.connect(), &stop, &acknowledged);
                    let random = Random::new(seed.wrapping_add(number as u64));
                    scope.spawn(move || write(client, number, random, acknowledged, stop))
                })
                .collect();
            std::thread::sleep(Duration::from_millis(600));
            let mut client = server.connect();
            client.say("BGREWRITEAOF");
            std::thread::sleep(Duration::from_millis(400));
            assert!(server.kill());
            stop.store(true, Ordering::Relaxed);
            threads.into_iter().map(|thread| thread.join().expect("it ends")).sum()
        });
        let seen = check_log(&folder.log());
        assert!(seen > 0 && written > 100, "{policy}: {seen} of {written} writes are in the log");
        drop(server);
        fs::remove_dir_all(folder.log()).expect("ours");
    }
}

/// Writes until the server is gone; returns how often.
fn write(
    mut client: Connection,
    number: usize,
    mut random: Random,
    acknowledged: &[AtomicU64; CLIENTS],
    stop: &AtomicBool,
) -> u64 {
    let mut known = Known::default();
    while !stop.load(Ordering::Relaxed) {
        for (at, count) in acknowledged.iter().enumerate() {
            known[at] = known[at].max(count.load(Ordering::SeqCst));
        }
        let read = client.call(&["GET", &key(random.below(KEYS))]);
        let Ok(read) = read else { break };
        if let Some((_, theirs)) = read.bytes().and_then(parse) {
            known.iter_mut().zip(theirs).for_each(|(ours, theirs)| *ours = (*ours).max(theirs));
        }
        known[number] += 1;
        let value = format!("w{number} {}", known.map(|count| count.to_string()).join(" "));
        let keys = [0; 3].map(|_| key(random.below(KEYS)));
        let outcome = match random.below(4) {
            0 => client.call(&["SET", &keys[0], &value]).map(|_| ()),
            1 => client.call(&["MSET", &keys[0], &value, &keys[1], &value]).map(|_| ()),
            2 => client.call(&["GETSET", &keys[0], &value]).map(|_| ()),
            _ => transaction(&mut client, &keys, &value),
        };
        if outcome.is_err() {
            break;
        }
        acknowledged[number].store(known[number], Ordering::SeqCst);
    }
    known[number]
}

fn transaction(client: &mut Connection, keys: &[String], value: &str) -> std::io::Result<()> {
    client.send(&["MULTI"])?;
    for key in keys {
        client.send(&["SET", key, value])?;
    }
    client.send(&["EXEC"])?;
    (0..keys.len() + 2).try_for_each(|_| client.receive().map(|_| ()))
}

fn key(number: usize) -> String {
    format!("shared:{number}")
}

/// Who wrote a value, and what it knew, its own write included.
fn parse(value: &[u8]) -> Option<(usize, Known)> {
    let mut words = str::from_utf8(value).ok()?.strip_prefix('w')?.split(' ');
    let number = words.next()?.parse().ok()?;
    let mut known = Known::default();
    for count in &mut known {
        *count = words.next()?.parse().ok()?;
    }
    Some((number, known))
}

/// Goes through all increments in their order; how many writes there are. What was before a rewrite is in its base.
fn check_log(folder: &Path) -> u64 {
    let mut names: Vec<_> = fs::read_dir(folder)
        .expect("it is there")
        .map(|entry| entry.expect("ours").path())
        .filter(|path| path.to_string_lossy().ends_with(".incr.aof"))
        .collect();
    names.sort();
    let (mut logged, mut writes) = ([None; CLIENTS], 0);
    for path in names {
        let bytes = fs::read(&path).expect("ours");
        let mut rest = &bytes[..];
        // The last one may be cut short by the kill.
        while let Ok(Some((command, len))) = Reply::parse(rest) {
            rest = &rest[len..];
            let mut values = command.items().iter().filter_map(|word| word.bytes().and_then(parse));
            let Some((writer, known)) = values.next_back() else { continue };
            for (at, &count) in known.iter().enumerate() {
                // Before the first write of a client that is here there may be others, in the base.
                let last = logged[at].unwrap_or(count);
                let needed = if at == writer { count - 1 } else { count };
                assert!(
                    logged[at].is_none() || last >= needed,
                    "{}: write {} of {writer} knew of write {needed} of {at}, and {last} is the last before it",
                    path.display(),
                    known[writer],
                );
            }
            writes += u64::from(logged[writer] != Some(known[writer]));
            logged[writer] = Some(known[writer]);
        }
    }
    writes
}

/// Killed at any moment, with all types, transactions, snapshots and rewrites going on: what was acknowledged is
/// there (with `everysec` but for what is younger than two seconds), and transactions are whole.
#[test]
#[ignore = "end to end: run by `cargo xtask test`"]
fn what_was_acknowledged_survives_being_killed() {
    let rounds = std::env::var("BOBBIN_KILLS").ok().and_then(|text| text.parse().ok()).unwrap_or(8);
    let seed = seed();
    for policy in ["always", "everysec"] {
        let (folder, mut random) = (Folder::new(), Random::new(seed));
        let mut ledgers: Vec<Ledger> = (0..CLIENTS).map(Ledger::new).collect();
        for round in 0..rounds {
            let mut server =
                start(&folder, policy, &["--aof-use-rdb-preamble", ["yes", "no"][round % 2]]);
            let mut client = server.connect();
            for ledger in &mut ledgers {
                ledger.check(&mut client, &format!("seed {seed}, {policy}, round {round}"));
            }
            let stop = AtomicBool::new(false);
            let kill_after = Duration::from_millis(10 + random.below(150) as u64);
            let started = Instant::now();
            std::thread::scope(|scope| {
                for ledger in &mut ledgers {
                    let (client, stop) = (server.connect(), &stop);
                    scope.spawn(move || ledger.write(client, stop));
                }
                while started.elapsed() < kill_after {
                    let command = ["BGREWRITEAOF", "BGSAVE", "PING"][random.below(3)];
                    let _ = client.call(&[command]);
                    std::thread::sleep(Duration::from_millis(random.below(40) as u64));
                }
                assert!(server.kill());
                stop.store(true, Ordering::Relaxed);
            });
            let killed = Instant::now();
            for ledger in &mut ledgers {
                ledger.killed(policy, killed);
            }
        }
    }
}

/// What a client did and was told. Its n-th transaction adds one thing to each of its keys.
struct Ledger {
    number: usize,
    sent: u64,
    /// When each transaction of this round was acknowledged.
    told: Vec<(Instant, u64)>,
    /// How many have to be there.
    least: u64,
}

impl Ledger {
    fn new(number: usize) -> Self {
        Self { number, sent: 0, told: Vec::new(), least: 0 }
    }

    fn name(&self, kind: &str) -> String {
        format!("{kind}:{}", self.number)
    }

    fn write(&mut self, mut client: Connection, stop: &AtomicBool) {
        while !stop.load(Ordering::Relaxed) {
            let n = self.sent + 1;
            let number = n.to_string();
            let id = format!("{n}-1");
            let commands: [(&str, &str, &[&str]); 9] = [
                ("INCR", "counter", &[]),
                ("RPUSH", "list", &[&number]),
                ("SADD", "set", &[&number]),
                ("HSET", "hash", &[&number, "value"]),
                ("ZADD", "zset", &[&number, &number]),
                ("XADD", "stream", &[&id, "field", "value"]),
                ("SETBIT", "bits", &[&number, "1"]),
                ("SET", "last", &[&number, "EX", "100000"]),
                ("PFADD", "hll", &[&number]),
            ];
            let mut send = || {
                client.send(&["MULTI"])?;
                for (command, kind, words) in commands {
                    let key = format!("{kind}:{}", self.number);
                    client.send(&[&[command, &key], words].concat())?;
                }
                client.send(&["EXEC"])
            };
            if send().is_err() {
                return;
            }
            self.sent = n;
            for _ in 0..=commands.len() {
                if client.receive().is_err() {
                    return;
                }
            }
            let Ok(done) = client.receive() else { return };
            assert_eq!(done.items().len(), commands.len(), "{}", done.text());
            self.told.push((Instant::now(), n));
        }
    }

    /// The server was killed.
    fn killed(&mut self, policy: &str, at: Instant) {
        let safe = |told: &&(Instant, u64)| {
            policy == "always" || at.duration_since(told.0) > Duration::from_secs(2)
        };
        if let Some((_, count)) = self.told.iter().rfind(safe) {
            self.least = *count;
        }
        self.told.clear();
    }

    /// All keys tell of the same transactions, and of as many as they have to.
    fn check(&mut self, client: &mut Connection, what: &str) {
        let ask = |client: &mut Connection, command: &str, kind: &str| {
            client.call(&[command, &self.name(kind)]).expect("answers").text()
        };
        let count = ask(client, "GET", "counter").parse::<u64>().unwrap_or(0);
        assert!(
            (self.least..=self.sent).contains(&count),
            "{what}: {count} are there of {} to {}",
            self.least,
            self.sent
        );
        let expected = if count > 0 { count.to_string() } else { "0".into() };
        for (command, kind) in [
            ("LLEN", "list"),
            ("SCARD", "set"),
            ("HLEN", "hash"),
            ("ZCARD", "zset"),
            ("XLEN", "stream"),
            ("BITCOUNT", "bits"),
        ] {
            assert_eq!(ask(client, command, kind), expected, "{what}: {kind}");
        }
        if count > 0 {
            assert_eq!(ask(client, "GET", "last"), expected, "{what}");
            let last = client.call(&["LINDEX", &self.name("list"), "-1"]).expect("answers");
            assert_eq!(last.text(), expected, "{what}");
        }
        (self.sent, self.least) = (count, count);
    }
}
