//! Concurrent clients on overlapping keys: is there one order that explains all they saw?

use std::time::{Duration, Instant};

use bobbin_testkit::history::{Load, assert_linearizable, run_history};
use bobbin_testkit::linearizability::{Command, Key, Operation, Record, check};
use bobbin_testkit::random::seed;
use bobbin_testkit::{Connection, Server};

/// The runner and the checker themselves, on a server that executes one command at a time.
#[test]
#[ignore = "end to end: run by `cargo xtask test`"]
fn valkey_is_linearizable() {
    let server = Server::valkey(&[]);
    assert_linearizable(server.address(), &load());
}

/// The canary: a value that was overwritten comes back in one read of a real history.
#[test]
#[ignore = "end to end: run by `cargo xtask test`"]
fn a_stale_read_in_a_real_history_is_found() {
    let server = Server::valkey(&[]);
    let load = load();
    let mut history = run_history(server.address(), &load).expect("the clients are served");
    let reads: Vec<(usize, Key)> = history
        .iter()
        .enumerate()
        .filter_map(|(index, record)| match record.operation {
            // Values with a dot are written once.
            Operation::Single(Command::Get(key)) if record.reply.text().contains('.') => {
                Some((index, key))
            }
            _ => None,
        })
        .collect();
    let later = |earlier: usize, key: Key, history: &[Record]| {
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

#[test]
#[ignore = "end to end: run by `cargo xtask test`"]
fn bobbin_is_linearizable_with_more_threads_than_cores() {
    let threads = (cores() + 2).to_string();
    for driver in DRIVERS {
        let server = start(driver, &threads);
        assert_linearizable(server.address(), &load());
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
fn beside(threads: &str, work: impl Fn(&mut Connection, usize) + Sync) {
    for driver in DRIVERS {
        let server = start(driver, threads);
        let rounds = std::thread::scope(|scope| {
            let clients = scope.spawn(|| assert_linearizable(server.address(), &load()));
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

/// Says in the test's output which driver the server really waits with.
fn start(driver: &str, threads: &str) -> Server {
    let server = Server::bobbin(&["--io-driver", driver, "--io-threads", threads]);
    let server_info = server.connect().say("INFO server").text();
    let runs = server_info.lines().find_map(|line| line.strip_prefix("io_driver:"));
    eprintln!("io-driver {driver}: {}, io-threads {threads}", runs.unwrap_or("unknown"));
    server
}

/// Few keys and many clients: what goes wrong between threads goes wrong here.
fn load() -> Load {
    Load { clients: 8, batches: 4000, groups: 8, seed: seed() }
}

fn cores() -> usize {
    std::thread::available_parallelism().map_or(2, usize::from)
}

const DRIVERS: [&str; 2] = ["auto", "epoll"];
const RUN_LIMIT: Duration = Duration::from_secs(300);
