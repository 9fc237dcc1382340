//! How long small commands take while one client's command works on a value of ten million members.
//!
//! For each heavy command: the value is loaded, GETs on other connections are measured while
//! nothing else happens, then while a thread of this process keeps a core busy (what no server can
//! help: the machine's other threads share the cores that are left), and while the command runs,
//! again and again for some seconds. Deleting counts until the memory is given back.

mod fill;

use std::io::Read;
use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};

use bobbin_testkit::connection::encode_command;
use bobbin_testkit::{TestConnection, TestServer, peers};

use crate::options::{number, pairs};
use crate::probe::{Latencies, Probe, ProbeCommand, ProbeKeys};
use crate::shell::{self, TaskResult};

/// Measures small commands beside long ones; `arguments` as [`USAGE`] has them.
pub(crate) fn run(arguments: &[&str]) -> TaskResult {
    let options = Options::parse(arguments)?;
    println!(
        "{} members, GETs at a fixed rate for {} s each, {} rounds; milliseconds for the command, else microseconds",
        options.members,
        options.window.as_secs(),
        options.rounds
    );
    println!("{HEADER}");
    let mut over = Vec::new();
    for group in GROUPS {
        for (name, binary) in &options.servers {
            let chosen = |scenario: &&Scenario| {
                options.only.is_none_or(|only| only.split(',').any(|one| scenario.name == one))
            };
            let scenarios: Vec<_> = group.scenarios.iter().filter(chosen).collect();
            if scenarios.is_empty() {
                continue;
            }
            let threads = if *name == OURS { options.workers } else { THREADS_OF_PEER };
            let server = TestServer::start(binary, &["--io-threads", threads])?;
            let mut control = server.connect();
            fill::empty(&mut control);
            for value in group.values {
                fill::fill(&mut control, value, options.members)?;
            }
            for scenario in scenarios {
                let measured = measure(&server, &mut control, scenario, &options)?;
                println!("{}", measured.row(name, scenario.name));
                if *name == OURS && measured.ratio() > RATIO_MAX {
                    over.push(format!(
                        "{}: {:.1} times the idle value",
                        scenario.name,
                        measured.ratio()
                    ));
                }
            }
        }
    }
    if over.is_empty() {
        Ok(())
    } else {
        Err(format!("p99.9 is above {RATIO_MAX} x idle:\n{}", over.join("\n")))
    }
}

struct Options<'a> {
    members: usize,
    window: Duration,
    rounds: usize,
    loads_max: usize,
    only: Option<&'a str>,
    /// Of ours.
    workers: &'a str,
    servers: Vec<(&'static str, PathBuf)>,
}

impl<'a> Options<'a> {
    fn parse(arguments: &[&'a str]) -> Result<Self, String> {
        let mut options = Self {
            members: 10_000_000,
            window: Duration::from_secs(5),
            rounds: 1,
            loads_max: 5,
            only: None,
            workers: WORKERS,
            servers: vec![(OURS, peers::bobbin()), ("valkey", peers::peer("valkey-server"))],
        };
        pairs(arguments, USAGE, |name, value| {
            match (name, value) {
                ("--members", count) => options.members = number(count)?,
                ("--seconds", count) => options.window = Duration::from_secs(number(count)?),
                ("--rounds", count) => options.rounds = number::<usize>(count)?.max(1),
                ("--loads", count) => options.loads_max = number(count)?,
                ("--only", names) => options.only = Some(names),
                ("--workers", count) => options.workers = count,
                ("--peer", "none") => options.servers.truncate(1),
                ("--server", path) => options.servers[0].1 = path.into(),
                _ => return Ok(false),
            }
            Ok(true)
        })?;
        Ok(options)
    }
}

/// Values, and what is done with them.
struct Group {
    values: &'static [&'static str],
    scenarios: &'static [Scenario],
}

struct Scenario {
    name: &'static str,
    /// What a client asks for.
    command: &'static str,
    /// The value that is gone afterwards, and must be loaded again.
    consumes: Option<&'static str>,
    /// The source of a script, which comes behind `EVAL`.
    script: Option<&'static str>,
}

const fn again(name: &'static str, command: &'static str) -> Scenario {
    Scenario { name, command, consumes: None, script: None }
}

const fn once(name: &'static str, command: &'static str) -> Scenario {
    Scenario { name, command, consumes: Some("set"), script: None }
}

/// `arguments` are the number of keys, the keys, and how often it does its work.
const fn script(name: &'static str, source: &'static str, arguments: &'static str) -> Scenario {
    Scenario { name, command: arguments, consumes: None, script: Some(source) }
}

impl Scenario {
    fn words(&self) -> Vec<&'static str> {
        let words = self.command.split(' ');
        match self.script {
            Some(source) => ["EVAL", source].into_iter().chain(words).collect(),
            None => words.collect(),
        }
    }

    /// Runs a script for a moment, so that the server knows which keys it uses.
    fn prepare(&self, control: &mut TestConnection) -> TaskResult {
        if self.script.is_none() {
            return Ok(());
        }
        let mut words = self.words();
        words.pop();
        words.push("1");
        let reply = control.call(&words).map_err(|error| error.to_string())?;
        if reply.is_error() { Err(reply.text()) } else { Ok(()) }
    }
}

const GROUPS: &[Group] = &[
    Group {
        values: &["set"],
        scenarios: &[
            again("smembers", "SMEMBERS set"),
            once("del", "DEL set"),
            once("overwrite", "SET set value"),
            once("expire", "PEXPIRE set 1"),
        ],
    },
    Group {
        values: &["set", "set2"],
        scenarios: &[
            again("sinter", "SINTER set set2"),
            again("sintercard", "SINTERCARD 2 set set2"),
            again("sinterstore", "SINTERSTORE to set set2"),
            again("sunionstore", "SUNIONSTORE to set set2"),
        ],
    },
    Group {
        values: &["list"],
        scenarios: &[
            again("lrange", "LRANGE list 0 -1"),
            again("sort", "SORT list LIMIT 0 100"),
            again("sort-whole", "SORT list"),
        ],
    },
    Group {
        values: &["zset", "zset2"],
        scenarios: &[
            again("zrange", "ZRANGE zset 0 -1 WITHSCORES"),
            again("zunionstore", "ZUNIONSTORE to 2 zset zset2"),
        ],
    },
    Group {
        values: &["list"],
        scenarios: &[
            script("eval-count", "local n = 0 for i = 1, ARGV[1] do n = n + i end", "0 100000000"),
            script(
                "eval-lrange",
                "for i = 1, ARGV[1] do redis.call('lrange', KEYS[1], 0, 9999) end",
                "1 list 500",
            ),
            script(
                "eval-sort",
                "local t = {} for i = 1, ARGV[1] do t[i] = i * 7919 % 1000003 end table.sort(t)",
                "0 1000000",
            ),
            script(
                "eval-concat",
                "local t = {} for i = 1, 1000 do t[i] = ('x'):rep(10000) end \
                 for i = 1, ARGV[1] do local s = table.concat(t) end",
                "0 100",
            ),
            script(
                "eval-cjson",
                "local t = {} for i = 1, 10000 do t[i] = {a = i} end \
                 for i = 1, ARGV[1] do cjson.decode(cjson.encode(t)) end",
                "0 50",
            ),
        ],
    },
    Group {
        values: &["keys"],
        scenarios: &[again("keys", "KEYS *"), again("keys-some", "KEYS *99")],
    },
];

/// What came of a scenario, in several rounds.
struct Measured {
    rounds: Vec<Round>,
}

/// GETs while nothing else happens, then while a core is busy, and after that while the command
/// runs.
struct Round {
    runs: u32,
    /// All runs together.
    took: Duration,
    idle: Latencies,
    neighbour: Latencies,
    busy: Latencies,
}

fn measure(
    server: &TestServer,
    control: &mut TestConnection,
    scenario: &Scenario,
    options: &Options<'_>,
) -> Result<Measured, String> {
    let probe = Probe::new(ProbeKeys::One);
    let clients = (0..CLIENTS).map(|_| server.connect()).collect();
    let mut heavy = server.connect();
    scenario.prepare(control)?;
    std::thread::scope(|scope| {
        probe.start(scope, clients);
        let _stopped = probe.stopped();
        let rounds = (0..options.rounds)
            .map(|_| measure_round(&probe, control, &mut heavy, scenario, options))
            .collect::<Result<_, _>>()?;
        Ok(Measured { rounds })
    })
}

fn measure_round(
    probe: &Probe,
    control: &mut TestConnection,
    heavy: &mut TestConnection,
    scenario: &Scenario,
    options: &Options<'_>,
) -> Result<Round, String> {
    std::thread::sleep(WARM_UP);
    let from = Instant::now();
    std::thread::sleep(options.window);
    let idle = probe.between(ProbeCommand::Get, &[(from, Instant::now())]);
    let neighbour = probe.between(ProbeCommand::Get, &[occupy_core(options.window)]);
    let (mut windows, mut took) = (Vec::new(), Duration::ZERO);
    let runs_max = if scenario.consumes.is_some() { options.loads_max } else { RUNS_MAX };
    while took < options.window && windows.len() < runs_max {
        if let Some(value) = scenario.consumes {
            control.call(&["DEL", value]).map_err(|error| error.to_string())?;
            fill::fill(control, value, options.members)?;
            std::thread::sleep(WARM_UP);
        }
        let from = execute(heavy, &scenario.words())?;
        let to = match scenario.consumes {
            Some(value) => wait_until_freed(control, value, scenario.name),
            None => Instant::now(),
        };
        windows.push((from, to));
        took += to - from;
        std::thread::sleep(SETTLING);
    }
    // Answers of what was due in the last one.
    std::thread::sleep(WARM_UP);
    let busy = probe.between(ProbeCommand::Get, &windows);
    Ok(Round { runs: windows.len() as u32, took, idle, neighbour, busy })
}

/// Works for some time, and offers the core to others as often as a worker with a long command
/// does; returns when it did.
fn occupy_core(time: Duration) -> (Instant, Instant) {
    let (from, mut turn) = (Instant::now(), Instant::now());
    while from.elapsed() < time {
        if turn.elapsed() >= TURN {
            std::thread::yield_now();
            turn = Instant::now();
        }
    }
    (from, Instant::now())
}

/// Sends a command and reads to the end of its reply, however long that is; returns when it was
/// sent.
///
/// A client that waits for so much would be on another machine, or at least not take the cores from
/// the clients that are measured: it has what they leave.
fn execute(heavy: &mut TestConnection, command: &[&str]) -> Result<Instant, String> {
    let aside = || {
        let thread = rustix::thread::gettid().as_raw_nonzero().to_string();
        shell::output(Command::new("chrt").args(["--idle", "--pid", "0", &thread]))?;
        std::thread::sleep(SETTLING);
        let from = Instant::now();
        exchange(heavy, command)?;
        Ok(from)
    };
    std::thread::scope(|scope| scope.spawn(aside).join())
        .unwrap_or_else(|_| Err(format!("{}: its client panicked", command[0])))
}

fn exchange(heavy: &mut TestConnection, command: &[&str]) -> TaskResult {
    let text = |error: std::io::Error| format!("{}: {error}", command[0]);
    let mut bytes = Vec::new();
    encode_command(command, &mut bytes);
    encode_command(&["PING"], &mut bytes);
    heavy.send_raw(&bytes).map_err(text)?;
    heavy.stream().set_read_timeout(None).map_err(text)?;
    let (mut chunk, mut tail) = (vec![0; 64 << 10], Vec::new());
    while !tail.ends_with(END) {
        let count = heavy.stream().read(&mut chunk).map_err(text)?;
        if count == 0 {
            return Err(format!("{}: the server has closed", command[0]));
        }
        if tail.is_empty() && chunk[0] == b'-' {
            let text = String::from_utf8_lossy(&chunk[..count]);
            return Err(format!("{}: {text}", command[0]));
        }
        tail.extend_from_slice(&chunk[..count]);
        tail.drain(..tail.len().saturating_sub(END.len()));
    }
    Ok(())
}

/// Waits until the value is gone and its memory given back. Returns when it was: before it was
/// asked for the last time, for to answer is some work as well, which is not to be what the others
/// wait for.
fn wait_until_freed(control: &mut TestConnection, value: &str, name: &str) -> Instant {
    if name == "expire" {
        // Without a look at the key, which would take it out at once.
        while control.say("DBSIZE").as_integer() != Some(1) {
            std::thread::sleep(POLL);
        }
    }
    let freed = loop {
        std::thread::sleep(POLL_INFO);
        let now = Instant::now();
        std::thread::sleep(ANSWERING);
        if control.say("INFO memory").text().contains("lazyfree_pending_objects:0\r\n") {
            break now;
        }
    };
    control.say(&format!("DEL {value}"));
    freed
}

impl Measured {
    /// How many times the idle p99.9 the busy one is: each the median of the rounds.
    fn ratio(&self) -> f64 {
        self.median(|round| round.busy.microseconds(999))
            / self.median(|round| round.idle.microseconds(999))
    }

    fn median(&self, value: impl Fn(&Round) -> f64) -> f64 {
        let mut values: Vec<f64> = self.rounds.iter().map(value).collect();
        values.sort_by(f64::total_cmp);
        values[values.len() / 2]
    }

    fn row(&self, server: &str, name: &str) -> String {
        let runs: u32 = self.rounds.iter().map(|round| round.runs).sum();
        let took: Duration = self.rounds.iter().map(|round| round.took).sum();
        let each_ms = took.as_secs_f64() * 1e3 / f64::from(runs);
        let count: usize = self.rounds.iter().map(|round| round.busy.count()).sum();
        let idle = |permille| self.median(|round| round.idle.microseconds(permille));
        let busy = |permille| self.median(|round| round.busy.microseconds(permille));
        format!(
            "{name:12} {server:7} {runs:>5} {each_ms:>9.1} {count:>7} {:>8.0} {:>8.0} {:>9.0} {:>9.0} {:>9.0} {:>9.0} {:>9.0} {:>8.1}",
            idle(500),
            idle(999),
            self.median(|round| round.neighbour.microseconds(999)),
            busy(500),
            busy(990),
            busy(999),
            busy(1000),
            self.ratio(),
        )
    }
}

const HEADER: &str = "\
command      server   runs   each ms    GETs idle p50    p99.9 neighbour  busy p50       p99     p99.9       max  x idle";
pub(crate) const USAGE: &str = "\
usage: cargo xtask heavy [--members N] [--seconds N] [--rounds N] [--loads N] [--only NAME,NAME]
                  [--server PATH] [--workers N] [--peer none]
  10,000,000 members, 5 seconds, 1 round and 2 workers by default (of more rounds, medians are shown); the server is the one that was built last.
  What takes the value away, and needs it loaded anew, runs 5 times a round, or as often as --loads says";
const OURS: &str = "bobbin";
/// Of ours, unless `--workers` says another number.
const WORKERS: &str = "2";
/// A peer does one command at a time.
const THREADS_OF_PEER: &str = "1";
const CLIENTS: usize = 8;
/// What is called no harm to others.
const RATIO_MAX: f64 = 3.0;
/// Of a worker with a long command.
const TURN: Duration = Duration::from_micros(50);
const RUNS_MAX: usize = 1000;
/// Starting a thread and a program takes a core for a moment, which has no part in what is
/// measured.
const SETTLING: Duration = Duration::from_millis(20);
const WARM_UP: Duration = Duration::from_millis(300);
const POLL: Duration = Duration::from_millis(5);
const POLL_INFO: Duration = Duration::from_millis(20);
/// Time in which what was asked before has its answer.
const ANSWERING: Duration = Duration::from_millis(1);
const END: &[u8] = b"+PONG\r\n";
