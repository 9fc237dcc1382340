//! What replicas cost a primary, ours and valkey's: CPU of both for each SET, how far behind
//! replicas are when a load ends, and how long a copy of many keys takes.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use bobbin_testkit::{TestServer, peers};

use crate::cpu::cpu;
use crate::options::{both_servers, number, pairs};
use crate::probe::{Probe, ProbeCommand, ProbeKeys};
use crate::shell::TaskResult;
use crate::snapshot::fill;

/// Measures replicas; `arguments` as [`USAGE`] has them.
pub(crate) fn run(arguments: &[&str]) -> TaskResult {
    let options = Options::parse(arguments)?;
    if options.requests > 0 {
        println!("{STREAM_HEADER}");
        for _ in 0..options.rounds {
            for pipeline in ["1", "16"] {
                for replicas in [0, 1, 3] {
                    for (name, binary, threads) in both_servers(&options.binary) {
                        let row = stream(&binary, threads, replicas, pipeline, &options)?;
                        println!("{name:8} {replicas:>8} {pipeline:>4} {row}");
                    }
                }
            }
        }
    }
    if options.keys > 0 {
        println!("{COPY_HEADER}");
        for _ in 0..options.rounds {
            for (name, binary, threads) in both_servers(&options.binary) {
                for replicas in [1, options.copies] {
                    let row = copy(&binary, threads, replicas, &options)?;
                    println!("{name:8} {replicas:>8} {row}");
                }
            }
        }
    }
    Ok(())
}

struct Options {
    requests: usize,
    keys: usize,
    copies: usize,
    rounds: usize,
    binary: PathBuf,
}

impl Options {
    fn parse(arguments: &[&str]) -> Result<Self, String> {
        let mut options = Self {
            requests: 1_000_000,
            keys: 5_000_000,
            copies: 3,
            rounds: 1,
            binary: peers::bobbin(),
        };
        pairs(arguments, USAGE, |name, value| {
            match name {
                "--requests" => options.requests = number(value)?,
                "--keys" => options.keys = number(value)?,
                "--copies" => options.copies = number::<usize>(value)?.max(1),
                "--rounds" => options.rounds = number(value)?,
                "--server" => options.binary = value.into(),
                _ => return Ok(false),
            }
            Ok(true)
        })?;
        Ok(options)
    }
}

/// A primary and those that follow it, all keys being there.
fn servers(
    binary: &Path,
    threads: &str,
    replicas: usize,
    arguments: &[&str],
) -> Result<(TestServer, Vec<TestServer>), String> {
    let own = ["--io-threads", threads, "--repl-diskless-sync-delay", "0"];
    let arguments = [&own[..], arguments].concat();
    let primary = TestServer::start(binary, &arguments)?;
    let started: Result<Vec<_>, _> =
        (0..replicas).map(|_| TestServer::start(binary, &arguments)).collect();
    Ok((primary, started?))
}

fn follow(primary: &TestServer, replicas: &[TestServer]) {
    replicas.iter().for_each(|replica| replica.follow(primary.address().port()));
}

fn offset(server: &TestServer) -> u64 {
    server.info("master_repl_offset").parse().unwrap_or(0)
}

fn are_linked(replicas: &[TestServer]) -> bool {
    replicas.iter().all(|replica| replica.info("master_link_status") == "up")
}

/// What a SET costs the primary and a replica, and how far behind the replicas are at the end.
fn stream(
    binary: &Path,
    threads: &str,
    replicas: usize,
    pipeline: &str,
    options: &Options,
) -> Result<String, String> {
    let (primary, replicas) = servers(binary, threads, replicas, &[])?;
    follow(&primary, &replicas);
    while !are_linked(&replicas) {
        std::thread::sleep(POLL);
    }
    load(&primary, pipeline, options.requests / 10)?;
    let before = (cpu(&primary), replicas.first().map_or(Duration::ZERO, cpu));
    let started = Instant::now();
    load(&primary, pipeline, options.requests)?;
    let took = started.elapsed();
    let end = offset(&primary);
    let lag = replicas.iter().map(|replica| end.saturating_sub(offset(replica))).max();
    while replicas.iter().any(|replica| offset(replica) < end) {
        std::thread::sleep(POLL);
    }
    let behind = started.elapsed() - took;
    let each = |time: Duration| time.as_secs_f64() * 1e6 / options.requests as f64;
    let of_replica = replicas.first().map_or(Duration::ZERO, cpu) - before.1;
    Ok(format!(
        "{:>9.0} {:>12.3} {:>12.3} {:>9} {:>8.2}",
        options.requests as f64 / took.as_secs_f64(),
        each(cpu(&primary) - before.0),
        each(of_replica),
        lag.unwrap_or(0),
        behind.as_secs_f64(),
    ))
}

fn load(primary: &TestServer, pipeline: &str, requests: usize) -> TaskResult {
    let status = Command::new(peers::peer("valkey-benchmark"))
        .args(["-p", &primary.address().port().to_string(), "-t", "set", "-r", "100000", "-q"])
        .args(["-P", pipeline, "-c", "50", "--threads", "2", "-n", &requests.to_string()])
        .stdout(Stdio::null())
        .status()
        .map_err(|error| format!("valkey-benchmark: {error}"))?;
    if status.success() { Ok(()) } else { Err(format!("valkey-benchmark: {status}")) }
}

/// How long replicas that come at once take to get a copy, and what GETs wait meanwhile.
fn copy(
    binary: &Path,
    threads: &str,
    replicas: usize,
    options: &Options,
) -> Result<String, String> {
    let wanted = replicas.to_string();
    let (primary, replicas) = servers(
        binary,
        threads,
        replicas,
        // All of them get the same copy.
        &["--repl-diskless-sync-delay", "5", "--repl-diskless-sync-max-replicas", &wanted],
    )?;
    let mut control = primary.connect();
    fill(&mut control, options.keys)?;
    std::thread::sleep(SETTLE);
    let resident = primary.resident_bytes();
    let probe = Probe::new(ProbeKeys::Numbered(options.keys));
    let clients = (0..CLIENTS).map(|_| primary.connect()).collect();
    let (took, idle, meanwhile) = std::thread::scope(|scope| {
        probe.start(scope, clients);
        let _stopped = probe.stopped();
        std::thread::sleep(SETTLE);
        let idle_from = Instant::now();
        std::thread::sleep(IDLE);
        let idle = (idle_from, Instant::now());
        follow(&primary, &replicas);
        let from = Instant::now();
        while !are_linked(&replicas) {
            std::thread::sleep(POLL);
        }
        let to = Instant::now();
        std::thread::sleep(SETTLE);
        let of = |span| probe.between(ProbeCommand::Get, &[span]).microseconds(999);
        (to - from, of(idle), of((from, to)))
    });
    for replica in &replicas {
        let count = replica.connect().say("DBSIZE").as_integer();
        if count != Some(options.keys as i64) {
            return Err(format!("a replica has {count:?} keys"));
        }
    }
    let extra = primary.peak_resident_bytes().saturating_sub(resident);
    Ok(format!(
        "{:>7.2} {:>9.1}% {idle:>9.0} {meanwhile:>9.0}",
        took.as_secs_f64(),
        extra as f64 * 100.0 / resident as f64
    ))
}

const STREAM_HEADER: &str =
    "server   replicas   -P     SET/s primary us/op replica us/op  lag bytes  caught up s";
const COPY_HEADER: &str = "server   replicas  copy s  extra mem GET p99.9 meanwhile (us)";
pub(crate) const USAGE: &str = "\
usage: cargo xtask replicas [--requests N] [--keys N] [--copies N] [--rounds N] [--server PATH]
  1,000,000 SETs with 0, 1 and 3 replicas; a copy of 5,000,000 keys to 1 and 3; 1 round. 0 of
  either leaves that part out";
const CLIENTS: usize = 8;
const SETTLE: Duration = Duration::from_millis(1000);
const IDLE: Duration = Duration::from_secs(4);
const POLL: Duration = Duration::from_millis(10);
