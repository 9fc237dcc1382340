//! What a snapshot of many keys costs while half of the commands are writes, ours and valkey's:
//! extra memory, time, and what small commands wait. And how long its file takes to load.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use bobbin_testkit::connection::encode_command;
use bobbin_testkit::random::{TestRandom, seed};
use bobbin_testkit::{TestConnection, TestServer, peers};

use crate::options::{both_servers, number, pairs};
use crate::probe::{Latencies, NUMBERED_VALUE, Probe, ProbeCommand, ProbeKeys, numbered_key};
use crate::shell::TaskResult;

/// Measures snapshots; `arguments` as [`USAGE`] has them.
pub(crate) fn run(arguments: &[&str]) -> TaskResult {
    let options = Options::parse(arguments)?;
    println!(
        "{} keys; {} commands a second, half of them SETs, and 2,000 of which the latency is taken (us)",
        options.keys, options.rate
    );
    println!("{HEADER}");
    for round in 0..options.rounds {
        let mut servers = both_servers(&options.binary);
        // By turns, so that what the machine does to the first is not always done to the same.
        if round % 2 == 1 {
            servers.reverse();
        }
        for (name, binary, threads) in servers {
            let measured = measure(&binary, threads, &options)?;
            println!("{name:8} {}", measured.row());
        }
    }
    Ok(())
}

struct Options {
    keys: usize,
    rate: usize,
    rounds: usize,
    binary: PathBuf,
}

impl Options {
    fn parse(arguments: &[&str]) -> Result<Self, String> {
        let mut options =
            Self { keys: 5_000_000, rate: 20_000, rounds: 1, binary: peers::bobbin() };
        pairs(arguments, USAGE, |name, value| {
            match name {
                "--keys" => options.keys = number::<usize>(value)?.max(1),
                "--rate" => options.rate = number(value)?,
                "--rounds" => options.rounds = number(value)?,
                "--server" => options.binary = value.into(),
                _ => return Ok(false),
            }
            Ok(true)
        })?;
        Ok(options)
    }
}

struct Measured {
    data_bytes: u64,
    extra_bytes: u64,
    took: Duration,
    file_bytes: u64,
    load: Duration,
    /// GET and SET, before and meanwhile.
    latencies: [[Latencies; 2]; 2],
}

fn measure(binary: &Path, threads: &str, options: &Options) -> Result<Measured, String> {
    let server = TestServer::start(binary, &["--io-threads", threads])?;
    let mut control = server.connect();
    let before = server.resident_bytes();
    fill(&mut control, options.keys)?;
    std::thread::sleep(SETTLE);
    let data_bytes = server.resident_bytes() - before;
    let probe = Probe::new(ProbeKeys::Numbered(options.keys));
    let clients = (0..CLIENTS).map(|_| server.connect()).collect();
    let load = Load { stop: AtomicBool::new(false), keys: options.keys, rate: options.rate };
    let connection = server.connect();
    let (latencies, took, extra_bytes) = std::thread::scope(|scope| {
        probe.start(scope, clients);
        let _stopped = probe.stopped();
        scope.spawn(|| load.run(connection));
        let _load = Stopped(&load.stop);
        std::thread::sleep(SETTLE);
        let idle_from = Instant::now();
        std::thread::sleep(IDLE);
        let idle = (idle_from, Instant::now());
        let resident = anonymous_bytes();
        let from = Instant::now();
        let reply = control.say("BGSAVE");
        if reply.is_error() {
            return Err(format!("BGSAVE: {}", reply.text()));
        }
        let mut most = resident;
        loop {
            std::thread::sleep(POLL);
            most = most.max(anonymous_bytes());
            if control.say("INFO persistence").text().contains("rdb_bgsave_in_progress:0") {
                break;
            }
        }
        let to = Instant::now();
        std::thread::sleep(SETTLE);
        let of = |asked| [probe.between(asked, &[idle]), probe.between(asked, &[(from, to)])];
        Ok((
            [of(ProbeCommand::Get), of(ProbeCommand::Set)],
            to - from,
            most.saturating_sub(resident),
        ))
    })?;
    let file = server.folder().join("dump.rdb");
    let file_bytes = std::fs::metadata(&file).map_err(|error| error.to_string())?.len();
    let folder = server.folder().to_string_lossy().into_owned();
    // Loads what was saved, beside the old one, which does nothing any more.
    let from = Instant::now();
    let loaded = TestServer::start(binary, &["--io-threads", threads, "--dir", &folder])?;
    let mut control = loaded.connect();
    while control.say("DBSIZE").as_integer() != Some(options.keys as i64) {
        std::thread::sleep(POLL);
    }
    let load = from.elapsed();
    Ok(Measured { data_bytes, extra_bytes, took, file_bytes, load, latencies })
}

/// Loads numbered keys.
pub(crate) fn fill(control: &mut TestConnection, keys: usize) -> TaskResult {
    let text = |error: std::io::Error| format!("loading keys: {error}");
    let mut at = 0;
    while at < keys {
        let (mut bytes, mut commands) = (Vec::new(), 0);
        while commands < 100 && at < keys {
            let end = keys.min(at + 100);
            let mut command = vec!["MSET".to_owned()];
            (at..end).for_each(|i| command.extend([numbered_key(i), NUMBERED_VALUE.to_owned()]));
            encode_command(&command, &mut bytes);
            (at, commands) = (end, commands + 1);
        }
        control.send_raw(&bytes).map_err(text)?;
        for _ in 0..commands {
            control.receive().map_err(text)?;
        }
    }
    Ok(())
}

/// GETs and SETs of any keys in small pipelines, at a fixed rate.
struct Load {
    stop: AtomicBool,
    keys: usize,
    rate: usize,
}

impl Load {
    fn run(&self, mut connection: TestConnection) {
        let mut random = TestRandom::new(seed());
        let mut due = Instant::now();
        while !self.stop.load(Ordering::Relaxed) && self.rate > 0 {
            let mut bytes = Vec::new();
            for _ in 0..PIPELINED / 2 {
                let (read, written) = (random.below(self.keys), random.below(self.keys));
                encode_command(&["GET", &numbered_key(read)], &mut bytes);
                encode_command(&["SET", &numbered_key(written), NUMBERED_VALUE], &mut bytes);
            }
            connection.send_raw(&bytes).expect("commands are sent");
            for _ in 0..PIPELINED {
                let reply = connection.receive().expect("a command is answered");
                assert!(!reply.is_error(), "{}", reply.text());
            }
            due += Duration::from_secs(PIPELINED) / self.rate as u32;
            std::thread::sleep(due.saturating_duration_since(Instant::now()));
        }
    }
}

struct Stopped<'a>(&'a AtomicBool);

impl Drop for Stopped<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Memory of all processes of the machine that is not of files; what two of them share counts once,
/// which a sum of resident sizes would not do for a forked child.
fn anonymous_bytes() -> u64 {
    let text = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix("AnonPages:"));
    let kilobytes = line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok());
    kilobytes.unwrap_or(0) * 1024
}

impl Measured {
    fn row(&self) -> String {
        let megabytes = |bytes: u64| bytes as f64 / 1e6;
        let [get, set] = &self.latencies;
        let p999 = |latencies: &Latencies| latencies.microseconds(999);
        format!(
            "{:>7.0} {:>8.1} {:>6.1}% {:>8.2} {:>8.1} {:>8.2} {:>9.0} {:>9.0} {:>9.0} {:>9.0}",
            megabytes(self.data_bytes),
            megabytes(self.extra_bytes),
            self.extra_bytes as f64 * 100.0 / self.data_bytes as f64,
            self.took.as_secs_f64(),
            megabytes(self.file_bytes),
            self.load.as_secs_f64(),
            p999(&get[0]),
            p999(&get[1]),
            p999(&set[0]),
            p999(&set[1]),
        )
    }
}

const HEADER: &str = "\
server   data MB extra MB extra %   save s  file MB   load s  GET p99.9 meanwhile SET p99.9 meanwhile";
pub(crate) const USAGE: &str = "\
usage: cargo xtask snapshot [--keys N] [--rate N] [--rounds N] [--server PATH]
  5,000,000 keys of 16 bytes with values of 32, 20,000 commands a second, 1 round";
const CLIENTS: usize = 8;
const PIPELINED: u64 = 16;
const SETTLE: Duration = Duration::from_millis(1000);
const IDLE: Duration = Duration::from_secs(5);
const POLL: Duration = Duration::from_millis(5);
