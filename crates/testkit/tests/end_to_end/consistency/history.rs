//! Concurrent clients on overlapping keys: is there one order that explains all they saw?

use std::time::{Duration, Instant};

use bobbin_testkit::history::linearizability::{
    HistoryCommand, KeyNumber, Operation, OperationRecord, check,
};
use bobbin_testkit::history::{GroupType, HistoryLoad, assert_linearizable, prepare, run_history};
use bobbin_testkit::random::seed;
use bobbin_testkit::{ReplyFrame, TestConnection, TestServer};

/// The runner and the checker themselves, on a server that executes one command at a time.
#[test]
#[ignore = "end to end: run by `cargo xtask test`"]
fn valkey_is_linearizable() {
    for kinds in KINDS {
        let server = TestServer::valkey(&SMALL_LIMITS);
        assert_linearizable(server.address(), &load(kinds));
    }
}

/// A canary: a value that was overwritten comes back in one read of a real history.
#[test]
#[ignore = "end to end: run by `cargo xtask test`"]
fn a_stale_read_in_a_real_history_is_found() {
    let server = TestServer::valkey(&[]);
    let load = load(&[GroupType::Strings]);
    let mut history = run_history(server.address(), &load).expect("the clients are served");
    let reads: Vec<(usize, KeyNumber)> = history
        .iter()
        .enumerate()
        .filter_map(|(index, record)| match record.operation {
            // Values with a dot are written once.
            Operation::Single(HistoryCommand::Get(key)) if record.reply.text().contains('.') => {
                Some((index, key))
            }
            _ => None,
        })
        .collect();
    let later = |earlier: usize, key: KeyNumber, history: &[OperationRecord]| {
        let follows = reads.iter().find(|(index, other)| {
            let (earlier, record) = (&history[earlier], &history[*index]);
            *other == key && record.start_ns > earlier.end_ns && record.reply != earlier.reply
        });
        follows.map(|(index, _)| *index)
    };
    let (first, third) = reads
        .iter()
        .skip(reads.len() / 4)
        .find_map(|(first, key)| {
            let second = later(*first, *key, &history)?;
            Some((*first, later(second, *key, &history)?))
        })
        .expect("a key takes three values");
    assert!(check(&history).is_ok());
    history[third].reply = history[first].reply.clone();
    assert!(check(&history).is_err(), "{load:?}: read {third} is stale");
}

/// Canaries for collections: one read of a real history shows an older state, in which some element
/// had a value or score that was written once and has been overwritten since.
#[test]
#[ignore = "end to end: run by `cargo xtask test`"]
fn an_old_state_of_a_collection_is_found() {
    const CHANGES_MAX: usize = 9;
    let server = TestServer::valkey(&SMALL_LIMITS);
    for kind in [GroupType::Hashes, GroupType::SortedSets] {
        server.connect().say("FLUSHALL");
        let load = load(&[kind]);
        let history = run_history(server.address(), &load).expect("the clients are served");
        assert!(check(&history).is_ok());
        let (mut changes, mut found) = (0, 0);
        let places = (0..history.len()).step_by(history.len() / 100);
        for (old, new) in places.filter_map(|at| overwritten(&history, at)).take(CHANGES_MAX) {
            let mut changed = history.clone();
            changed[new].reply = history[old].reply.clone();
            changes += 1;
            found += usize::from(check(&changed).is_err());
        }
        // Not all: a clone may have kept the older state, and have been copied back.
        assert!(changes > 2 && 2 * found > changes, "{load:?}: found {found} of {changes}");
    }
}

/// A read of a whole collection from `from` on, and a later one of the same key, such that an
/// element of the first with a unique value has another one in a read between them, and still in
/// the second.
fn overwritten(history: &[OperationRecord], from: usize) -> Option<(usize, usize)> {
    let read = |at: usize| match history.get(at)?.operation {
        Operation::Single(HistoryCommand::HGetAll(key) | HistoryCommand::ZRange(key)) => Some(key),
        _ => None,
    };
    let old = (from..history.len()).find(|&at| read(at).is_some())?;
    let key = read(old)?;
    let first = &history[old];
    let pairs = |record: &'_ OperationRecord| {
        record.reply.items().chunks(2).map(|pair| pair.to_vec()).collect::<Vec<_>>()
    };
    let is_unique = |value: &ReplyFrame| {
        let text = value.text();
        text.contains('.') || text.parse().is_ok_and(|score: i64| score > UNIQUE_SCORES_FROM)
    };
    let unique: Vec<_> = pairs(first).into_iter().filter(|pair| is_unique(&pair[1])).collect();
    let differs = |record: &OperationRecord| {
        pairs(record).iter().any(|pair| {
            unique.iter().any(|old| old[0] == pair[0] && old[1] != pair[1] && is_unique(&pair[1]))
        })
    };
    let later = |earlier: &OperationRecord| {
        let end_ns = earlier.end_ns;
        (0..history.len()).filter(move |&at| read(at) == Some(key) && history[at].start_ns > end_ns)
    };
    let between = later(first).find(|&at| differs(&history[at]))?;
    // Soon after: what was cloned meanwhile may come back.
    let new = later(&history[between]).find(|&at| differs(&history[at]))?;
    (first.reply != history[new].reply).then_some((old, new))
}

#[test]
#[ignore = "end to end: run by `cargo xtask test`"]
fn bobbin_is_linearizable_with_more_threads_than_cores() {
    let threads = (cores() + 2).to_string();
    for driver in DRIVERS {
        for kinds in KINDS {
            let server = start(driver, &threads);
            assert_linearizable(server.address(), &load(kinds));
        }
    }
}

#[test]
#[ignore = "end to end: run by `cargo xtask test`"]
fn bobbin_is_linearizable_while_its_threads_change() {
    beside("1", |control, round| {
        let threads = 1 + round % (cores() + 2);
        let reply = control.say(&format!("CONFIG SET io-threads {threads}"));
        assert_eq!(reply.text(), "OK", "CONFIG SET io-threads {threads}");
    });
}

/// What stops all workers for a moment: commands that have everything to themselves, pauses.
#[test]
#[ignore = "end to end: run by `cargo xtask test`"]
fn bobbin_is_linearizable_while_its_workers_are_stopped() {
    beside("4", |control, round| {
        let commands = ["SWAPDB 5 6", "CLIENT PAUSE 2 WRITE", "FLUSHDB", "CLIENT UNPAUSE"];
        let command = commands[round % commands.len()];
        // The history's keys are in database 0.
        assert_eq!(control.say("SELECT 9").text(), "OK");
        assert_eq!(control.say(command).text(), "OK", "{command}");
    });
}

/// Checks histories on both drivers while a client of another kind does something, again and again.
fn beside(threads: &str, work: impl Fn(&mut TestConnection, usize) + Sync) {
    for (driver, kinds) in DRIVERS.into_iter().flat_map(|driver| KINDS.map(|kinds| (driver, kinds)))
    {
        let server = start(driver, threads);
        let rounds = std::thread::scope(|scope| {
            let clients = scope.spawn(|| assert_linearizable(server.address(), &load(kinds)));
            let mut control = server.connect();
            let mut rounds = 0;
            let deadline = Instant::now() + RUN_LIMIT;
            while !clients.is_finished() && Instant::now() < deadline {
                work(&mut control, rounds);
                rounds += 1;
                std::thread::sleep(Duration::from_millis(2));
            }
            clients.join().expect("the clients' replies have an order");
            rounds
        });
        assert!(rounds > 1, "it was done {rounds} times only");
    }
}

/// Pauses, FLUSHALL, SWAPDB, functions of 200 keys and transactions of 1,000 keys among the
/// operations, with more workers than cores.
#[test]
#[ignore = "end to end: run by `cargo xtask test`"]
fn bobbin_is_linearizable_with_what_concerns_all_keys() {
    let threads = (cores() + 2).to_string();
    let server = start("auto", &threads);
    for round in 0..rounds(4) {
        server.connect().say("FLUSHALL");
        prepare(server.address()).expect("it loads functions");
        assert_linearizable(server.address(), &whole_load(round));
        eprintln!("round {round}");
    }
}

/// Checks the runner and the checker: on a server that executes one command at a time.
#[test]
#[ignore = "end to end: run by `cargo xtask test`"]
fn valkey_is_linearizable_with_what_concerns_all_keys() {
    let server = TestServer::valkey(&[]);
    prepare(server.address()).expect("it loads functions");
    assert_linearizable(server.address(), &whole_load(0));
}

/// Says in the test's output which driver the server really waits with.
fn start(driver: &str, threads: &str) -> TestServer {
    let arguments = [&["--io-driver", driver, "--io-threads", threads], &SMALL_LIMITS[..]].concat();
    let server = TestServer::bobbin(&arguments);
    let server_info = server.connect().say("INFO server").text();
    let runs = server_info.lines().find_map(|line| line.strip_prefix("io_driver:"));
    eprintln!("io-driver {driver}: {}, io-threads {threads}", runs.unwrap_or("unknown"));
    server
}

/// Few keys and many clients: what goes wrong between threads goes wrong here.
fn load(kinds: &[GroupType]) -> HistoryLoad {
    let batches = if kinds == [GroupType::Strings] { 4000 } else { 3000 };
    let (kinds, whole) = (kinds.to_vec(), false);
    HistoryLoad { clients: 8, batches, groups: 8, kinds, whole, seed: seed() }
}

/// All is one component: few keys, so that the search is short.
fn whole_load(round: u64) -> HistoryLoad {
    let (kinds, seed) = (vec![GroupType::Strings], seed().wrapping_add(round));
    HistoryLoad { clients: 6, batches: 150, groups: 2, kinds, whole: true, seed }
}

/// How often what takes long is done: `BOBBIN_ROUNDS`, or as often as the tests do.
fn rounds(count: u64) -> u64 {
    std::env::var("BOBBIN_ROUNDS").map_or(count, |text| text.parse().expect("a number"))
}

fn cores() -> usize {
    std::thread::available_parallelism().map_or(2, usize::from)
}

/// Strings alone, and the collections together: what is deleted or cloned is then of several types.
const KINDS: [&[GroupType]; 2] =
    [&[GroupType::Strings], &[GroupType::Sets, GroupType::SortedSets, GroupType::Hashes]];
/// So that collections of the few members that there are change their form.
const SMALL_LIMITS: [&str; 6] = [
    "--set-max-listpack-entries",
    "3",
    "--zset-max-listpack-entries",
    "3",
    "--hash-max-listpack-entries",
    "3",
];
/// Above what adding small numbers to small numbers gives.
const UNIQUE_SCORES_FROM: i64 = 100;
const DRIVERS: [&str; 2] = ["auto", "epoll"];
const RUN_LIMIT: Duration = Duration::from_secs(300);
