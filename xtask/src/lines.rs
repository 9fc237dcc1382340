//! Cache lines that move between threads, for each command: what a server pays on many cores.
//!
//! The server runs in QEMU's user mode with the plugin of `crates/lines`, which counts lines that
//! move and lines that are claimed to be written, and says what these are. One line can move some
//! 10 to 20 million times a second; divided by the moves of the hottest line of a command, that is
//! what all threads together cannot exceed.

use std::collections::{BTreeMap, HashMap};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread::JoinHandle;
use std::time::Duration;

use bobbin_testkit::TestServer;
use bobbin_testkit::peers::{self, repository};

use crate::shell::{self, TaskResult};

/// Counts for the loads that `arguments` name, as [`USAGE`] has them. Without a name: for those
/// that have limits, and it is an error if one is exceeded.
pub(crate) fn run(arguments: &[&str]) -> TaskResult {
    let (options, loads) = Options::parse(arguments)?;
    install()?;
    let (plugin, clock) = libraries()?;
    let meter = Meter { plugin, clock, options };
    println!("{HEADER}");
    if loads.is_empty() {
        return check_limits(&meter);
    }
    for load in loads {
        let count = meter.count(load)?;
        println!("{}", meter.row(load, &count));
        meter.show_places(&count, meter.options.places)?;
    }
    Ok(())
}

/// Installs QEMU's user mode, if it is not there.
pub(crate) fn install() -> TaskResult {
    if shell::works("qemu-x86_64", &["--version"]) {
        return Ok(());
    }
    shell::install_packages(&["qemu-user"])
}

/// Compares the loads of [`LIMITS`] with what it allows, two at a time.
fn check_limits(meter: &Meter) -> TaskResult {
    let text = shell::read(&repository().join(LIMITS))?;
    let lines = text.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
    let limits = lines.map(Limits::parse).collect::<Result<Vec<_>, _>>()?;
    let (counted, others): (Vec<_>, Vec<_>) =
        limits.iter().partition(|limits| !limits.load.wants_clock || has_number_clock());
    let mut over = Vec::new();
    for pair in counted.chunks(2) {
        let counts: Vec<_> = std::thread::scope(|scope| {
            let begin = |limits: &&Limits| scope.spawn(|| meter.count(limits.load));
            let threads: Vec<_> = pair.iter().map(begin).collect();
            threads.into_iter().map(|thread| thread.join().expect("no panic")).collect()
        });
        for (limits, count) in pair.iter().zip(counts) {
            let (Limits { load, moves, claims, hottest }, count) = (limits, count?);
            println!("{}  at most {moves}, {claims}, {hottest}", meter.row(load, &count));
            let counted = [(count.moves, moves), (count.claims, claims), (count.hottest, hottest)];
            if counted.into_iter().any(|(count, limit)| meter.each(count) > *limit) {
                over.push(load.name);
                meter.show_places(&count, PLACES_SHOWN)?;
            }
        }
    }
    for limits in others {
        let name = limits.load.name;
        println!("{name:12} not counted: only with the clock source tsc do its limits hold");
    }
    if over.is_empty() {
        return Ok(());
    }
    Err(format!("more lines move than {LIMITS} allows: {}", over.join(", ")))
}

/// A line of [`LIMITS`]: a load, and what it may take at most for each command.
struct Limits {
    load: &'static Load,
    moves: f64,
    claims: f64,
    hottest: f64,
}

impl Limits {
    fn parse(line: &str) -> Result<Self, String> {
        let fault = || format!("{LIMITS}: {line:?} is not a load and three limits");
        let mut words = line.split_whitespace();
        let load = find(words.next().ok_or_else(fault)?)?;
        let limits: Result<Vec<f64>, _> = words.map(str::parse).collect();
        let Ok(&[moves, claims, hottest]) = limits.as_deref() else { return Err(fault()) };
        Ok(Self { load, moves, claims, hottest })
    }
}

struct Options {
    binary: PathBuf,
    workers: String,
    commands: u64,
    /// Commands like those that are counted, before these; of several keys, as many fewer. What is
    /// read and not written is then in all caches, as in a server that has run for a while.
    warm: u64,
    places: usize,
}

impl Options {
    fn parse(arguments: &[&str]) -> Result<(Self, Vec<&'static Load>), String> {
        let mut options = Self {
            binary: peers::bobbin(),
            workers: "16".to_owned(),
            commands: 40_000,
            warm: 0,
            places: 0,
        };
        let (mut loads, mut warm, mut words) = (Vec::new(), None, arguments.iter());
        while let Some(word) = words.next() {
            let mut value = || words.next().copied().ok_or(USAGE);
            match *word {
                "--server" => options.binary = PathBuf::from(value()?),
                "--workers" => options.workers = value()?.to_owned(),
                "--commands" => options.commands = value()?.parse().map_err(|_| USAGE)?,
                "--warm" => warm = Some(value()?.parse().map_err(|_| USAGE)?),
                "--places" => options.places = value()?.parse().map_err(|_| USAGE)?,
                "all" => loads.extend(LOADS),
                name => loads.push(find(name)?),
            }
        }
        // Where limits are checked there is no time for it.
        options.warm = warm.unwrap_or(if loads.is_empty() { 0 } else { WARM });
        Ok((options, loads))
    }
}

/// What clients send, and to what server.
struct Load {
    name: &'static str,
    clients: &'static str,
    pipeline: &'static str,
    /// `__rand_int__` is a number below this.
    keys: &'static str,
    command: &'static str,
    /// How often its arguments are repeated.
    repeat: usize,
    /// The server's options.
    options: &'static [&'static str],
    /// Whether a client reads the stream as a replica does.
    has_replica: bool,
    /// Whether its limits hold only where the log is numbered by the clock.
    wants_clock: bool,
}

impl Load {
    fn words(&self) -> Vec<&'static str> {
        let mut words = self.command.split(' ');
        let name = words.next().unwrap_or_default();
        let arguments: Vec<_> = words.collect();
        [vec![name], arguments.repeat(self.repeat)].concat()
    }
}

/// Whether the kernel has the clock that a server with many workers numbers its log by.
fn has_number_clock() -> bool {
    const SOURCE: &str = "/sys/devices/system/clocksource/clocksource0/current_clocksource";
    std::fs::read_to_string(SOURCE).is_ok_and(|source| source.trim_end() == "tsc")
}

fn find(name: &str) -> Result<&'static Load, String> {
    let names = || LOADS.iter().map(|load| load.name).collect::<Vec<_>>().join(", ");
    LOADS
        .iter()
        .find(|load| load.name == name)
        .ok_or_else(|| format!("there is no load {name}; there are all, {}\n{USAGE}", names()))
}

/// Builds the plugin and the clock that goes with it, and says where they are.
fn libraries() -> Result<(PathBuf, PathBuf), String> {
    let plugin = ["build", "--quiet", "--package", "bobbin-lines", "--lib"];
    shell::run(&mut shell::cargo(&plugin))?;
    // Of the whole workspace: what it uses then has the features that the tests are built with.
    let clock = ["build", "--quiet", "--workspace", "--example", "slow_clock"];
    shell::run(&mut shell::cargo(&clock))?;
    // Beside this program, which was built alike, and not beside the server: that may be another
    // build. Without its clock the counts would be wrong, and the dynamic linker only warns.
    let own = std::env::current_exe().map_err(|error| error.to_string())?;
    let plugin = own.with_file_name("libbobbin_lines.so");
    let clock = plugin.with_file_name("examples").join("libslow_clock.so");
    if let Some(missing) = [&plugin, &clock].into_iter().find(|library| !library.exists()) {
        return Err(format!("{} is not there", missing.display()));
    }
    Ok((plugin, clock))
}

/// What counts.
struct Meter {
    plugin: PathBuf,
    /// What the server takes for the system's clock.
    clock: PathBuf,
    options: Options,
}

/// What was counted while the commands ran.
#[derive(Default)]
struct Count {
    instructions: u64,
    moves: u64,
    claims: u64,
    hottest: u64,
    /// Where code begins in memory.
    code: u64,
    /// Moves and claims by the address of the instruction.
    places: Vec<(u64, [u64; 2])>,
    /// The lines that move most: their moves, and those by the address of the instruction.
    lines: Vec<(u64, Vec<(u64, u64)>)>,
}

impl Meter {
    fn count(&self, load: &Load) -> Result<Count, String> {
        let folder = format!("bobbin-lines-{}-{}", std::process::id(), load.name);
        let folder = std::env::temp_dir().join(folder);
        shell::create_folder(&folder)?;
        let (control, out) = (folder.join("control"), folder.join("out"));
        shell::write(&control, "0")?;
        let begin = || {
            let mut command = Command::new("qemu-x86_64");
            let (plugin, out, control) = (self.plugin.display(), out.display(), control.display());
            command.args(["-plugin", &format!("{plugin},out={out},control={control}")]);
            let clock = self.clock.display();
            command.args(["-E", &format!("LD_PRELOAD={clock}")]).arg(&self.options.binary);
            command
        };
        // All workers get clients, however few the cores.
        let own = ["--io-driver", "epoll", "--connections-per-io-thread", "0", "--io-threads"];
        let own = [&own[..], &[self.options.workers.as_str()]].concat();
        let mut server = TestServer::start_by(begin, &[&own[..], load.options].concat())?;
        let replica = load.has_replica.then(|| Replica::attach(&server)).transpose()?;
        // First all keys once: what is counted is no growth, but for loads that only add.
        let keys = load.keys.parse().unwrap_or(0).clamp(KEYS_MIN, KEYS_MAX);
        self.send(&server, load, keys, &["--sequential"])?;
        let warm = self.options.warm / load.repeat as u64;
        if warm > 0 {
            self.send(&server, load, warm, &[])?;
        }
        shell::write(&control, "1")?;
        self.send(&server, load, self.options.commands, &[])?;
        shell::write(&control, "0")?;
        // The server sees that when it has work.
        let mut connection = server.connect();
        (0..1000).for_each(|_| _ = connection.say("PING"));
        server.signal("TERM");
        if server.wait(END_LIMIT).is_none() {
            return Err(format!("the server does not end within {END_LIMIT:?}"));
        }
        if let Some(replica) = replica {
            replica.check(self.options.commands)?;
        }
        let report = shell::read(&out)?;
        let removed = std::fs::remove_dir_all(&folder);
        removed.map_err(|error| format!("{}: {error}", folder.display()))?;
        Count::parse(&report).ok_or_else(|| format!("not a report:\n{report}"))
    }

    fn send(
        &self,
        server: &TestServer,
        load: &Load,
        commands: u64,
        options: &[&str],
    ) -> TaskResult {
        let mut benchmark = Command::new(peers::bobbin().with_file_name("bobbin-benchmark"));
        benchmark
            .args(["-p", &server.address().port().to_string(), "-q", "-r", load.keys])
            .args(["-c", load.clients, "-P", load.pipeline, "-n", &commands.to_string()])
            .args(options)
            .arg("--")
            .args(load.words())
            .stdout(Stdio::null());
        shell::run(&mut benchmark)
    }

    fn each(&self, count: u64) -> f64 {
        count as f64 / self.options.commands as f64
    }

    fn row(&self, load: &Load, count: &Count) -> String {
        format!(
            "{:12} {:>7} {:>7.2} {:>7.2} {:>8.3} {:>12.0}",
            load.name,
            self.options.workers,
            self.each(count.moves),
            self.each(count.claims),
            self.each(count.hottest),
            self.each(count.instructions),
        )
    }

    /// Shows the source lines where most lines move, and which move the hottest lines.
    fn show_places(&self, count: &Count, shown: usize) -> TaskResult {
        if shown == 0 {
            return Ok(());
        }
        let of_lines = count.lines.iter().flat_map(|(_, places)| places);
        let of_lines = of_lines.map(|(address, _)| *address);
        let addresses: Vec<u64> =
            count.places.iter().map(|(address, _)| *address).chain(of_lines).collect();
        let names = names(&self.options.binary, count.code, &addresses)?;
        let name = |address: &u64| names.get(address).map_or("?", String::as_str);
        let mut places: BTreeMap<&str, [u64; 2]> = BTreeMap::new();
        for (address, [moves, claims]) in &count.places {
            let place = places.entry(name(address)).or_default();
            *place = [place[0] + moves, place[1] + claims];
        }
        for (name, [moves, claims]) in most(places, shown, |[moves, claims]| moves + claims) {
            println!("    {:8.3} {:8.3}  {name}", self.each(moves), self.each(claims));
        }
        for (moves, places) in count.lines.iter().take(shown.div_ceil(4)) {
            println!("    a line that moves {:.3} times:", self.each(*moves));
            let mut by_name: BTreeMap<&str, u64> = BTreeMap::new();
            for (address, moves) in places {
                *by_name.entry(name(address)).or_default() += moves;
            }
            for (name, moves) in most(by_name, 4, |moves| moves) {
                println!("        {:8.3}  {name}", self.each(moves));
            }
        }
        Ok(())
    }
}

/// One that asks for the stream as a replica does, and throws it away.
struct Replica {
    reader: JoinHandle<u64>,
}

impl Replica {
    fn attach(server: &TestServer) -> Result<Self, String> {
        let connected = TcpStream::connect(server.address());
        let mut stream = connected.map_err(|error| format!("no replica: {error}"))?;
        let asked = stream.write_all(b"REPLCONF capa eof capa psync2\r\nPSYNC ? -1\r\n");
        asked.map_err(|error| format!("no replica: {error}"))?;
        let reader = std::thread::spawn(move || {
            let (mut bytes, mut buffer) = (0, vec![0; 64 << 10]);
            for read in 0_u64.. {
                match stream.read(&mut buffer) {
                    Ok(len @ 1..) => bytes += len as u64,
                    Ok(0) | Err(_) => break,
                }
                // Behind the copy, the stream comes once the replica says that it has that.
                if read < ACKNOWLEDGED && stream.write_all(b"REPLCONF ACK 0\r\n").is_err() {
                    break;
                }
            }
            bytes
        });
        Ok(Self { reader })
    }

    /// The server has ended: what it was sent, `commands` of them, should have come.
    fn check(self, commands: u64) -> TaskResult {
        let bytes = self.reader.join().map_err(|_| "the replica panicked")?;
        match bytes > commands * COMMAND_BYTES_MIN {
            true => Ok(()),
            false => Err(format!("the replica got {bytes} bytes alone")),
        }
    }
}

/// Those with the highest numbers, the highest first.
fn most<T: Copy>(
    numbers: BTreeMap<&str, T>,
    count: usize,
    number: impl Fn(T) -> u64,
) -> Vec<(&str, T)> {
    let mut sorted: Vec<_> = numbers.into_iter().collect();
    sorted.sort_by_key(|(_, value)| std::cmp::Reverse(number(*value)));
    sorted.truncate(count);
    sorted
}

impl Count {
    /// Reads what the plugin wrote.
    fn parse(report: &str) -> Option<Self> {
        let mut count = Self::default();
        for line in report.lines() {
            let words: Vec<&str> = line.split(' ').collect();
            match words.as_slice() {
                ["instructions", number] => count.instructions = number.parse().ok()?,
                ["code", address] => count.code = address.parse().ok()?,
                ["place", address, moves, claims] => {
                    let (moves, claims) = (moves.parse().ok()?, claims.parse().ok()?);
                    count.places.push((address.parse().ok()?, [moves, claims]));
                    count.moves += moves;
                    count.claims += claims;
                }
                ["line", _, moves, places @ ..] => {
                    let place = |word: &&str| {
                        let (address, moves) = word.split_once(':')?;
                        Some((address.parse().ok()?, moves.parse().ok()?))
                    };
                    let places = places.iter().map(place).collect::<Option<_>>()?;
                    count.lines.push((moves.parse().ok()?, places));
                }
                _ => return None,
            }
        }
        count.hottest = count.lines.iter().map(|(moves, _)| *moves).max().unwrap_or(0);
        (count.code > 0).then_some(count)
    }
}

/// Names for addresses in the program's memory, where code begins at `code`: the innermost source
/// line of Bobbin's own with its function, else the function.
fn names(binary: &Path, code: u64, addresses: &[u64]) -> Result<HashMap<u64, String>, String> {
    let headers = shell::output(Command::new("readelf").arg("-lW").arg(binary))?;
    let executable = headers.lines().find(|line| line.contains("LOAD") && line.contains("R E"));
    let in_file = executable.and_then(|line| line.split_whitespace().nth(2));
    let in_file = in_file.and_then(|word| u64::from_str_radix(word.strip_prefix("0x")?, 16).ok());
    let in_file = in_file.ok_or_else(|| format!("readelf finds no code:\n{headers}"))?;
    let mut sorted = addresses.to_vec();
    sorted.sort_unstable();
    sorted.dedup();
    let mut names = HashMap::new();
    for part in sorted.chunks(ADDRESSES_MAX) {
        // Those of libraries lie beyond the program's, on either side.
        let offset = in_file.wrapping_sub(code);
        let in_binary = part.iter().map(|address| format!("{:#x}", address.wrapping_add(offset)));
        let mut command = Command::new("addr2line");
        let text = shell::output(command.args(["-iafC", "-e"]).arg(binary).args(in_binary))?;
        // For each address a line with it, and for each function that is inlined there, and the
        // one that holds it, a line with its name and one with its source line.
        let mut at = part.iter();
        let mut lines = text.lines().peekable();
        while let Some(line) = lines.next() {
            if !line.starts_with("0x") {
                return Err(format!("addr2line says {line:?}"));
            }
            let mut frames = Vec::new();
            while let Some(function) = lines.next_if(|line| !line.starts_with("0x")) {
                frames.push((function, lines.next().unwrap_or_default()));
            }
            let is_own = |(_, source): &&(&str, &str)| source.contains("crates/");
            let shown = frames.iter().find(is_own).or_else(|| frames.first());
            let (function, source) = shown.copied().unwrap_or_default();
            let source = source.rsplit_once("crates/").map_or("", |(_, own)| own);
            let address = at.next().ok_or("addr2line names too many")?;
            names.insert(*address, format!("{source} {function}"));
        }
    }
    Ok(names)
}

const USAGE: &str = "usage: cargo xtask lines [--server PATH] [--workers N] [--commands N] \
                     [--warm N] [--places N] [all|LOAD ...]";
const HEADER: &str = "load         workers   moves  claims  hottest instructions";
/// Lines of a load with its limits of moves, claims, and moves of the hottest line.
const LIMITS: &str = "tests/lines.txt";
/// Of a load that exceeds its limits.
const PLACES_SHOWN: usize = 20;
/// Addresses that one command can name.
const ADDRESSES_MAX: usize = 1000;
/// Commands that make the keys first, at least and at most.
const KEYS_MIN: u64 = 20_000;
const KEYS_MAX: u64 = 100_000;
/// What `--warm` is for loads that are named.
const WARM: u64 = 400_000;
const END_LIMIT: Duration = Duration::from_secs(60);
/// Reads behind each of which a replica says that it is there.
const ACKNOWLEDGED: u64 = 10;
/// Of a command in the stream.
const COMMAND_BYTES_MIN: u64 = 20;
const RANDOM_KEYS: &str = "100000";
const NEW_KEYS: &str = "1000000000000";
const RANDOM_VALUES: &str = "10000";

const fn load(name: &'static str, keys: &'static str, command: &'static str) -> Load {
    Load {
        name,
        clients: "64",
        pipeline: "16",
        keys,
        command,
        repeat: 1,
        options: &[],
        has_replica: false,
        wants_clock: false,
    }
}

const LOADS: &[Load] = &[
    load("get", RANDOM_KEYS, "GET key:__rand_int__"),
    load("set", RANDOM_KEYS, "SET key:__rand_int__ xxxxxxxx"),
    load("set-new", NEW_KEYS, "SET key:__rand_int__ xxxxxxxx"),
    load("set-ttl", RANDOM_KEYS, "SET key:__rand_int__ xxxxxxxx EX 1000"),
    Load {
        options: &["--maxmemory", "4mb", "--maxmemory-policy", "allkeys-lru"],
        ..load("set-evicting", RANDOM_KEYS, "SET key:__rand_int__ xxxxxxxx")
    },
    Load {
        options: &["--appendonly", "yes"],
        wants_clock: true,
        ..load("set-logged", RANDOM_KEYS, "SET key:__rand_int__ xxxxxxxx")
    },
    Load {
        options: &["--repl-diskless-sync-delay", "0", "--shutdown-timeout", "0"],
        has_replica: true,
        wants_clock: true,
        ..load("set-replica", RANDOM_KEYS, "SET key:__rand_int__ xxxxxxxx")
    },
    Load { pipeline: "1", ..load("set-alone", RANDOM_KEYS, "SET key:__rand_int__ xxxxxxxx") },
    Load { pipeline: "4", repeat: 10, ..load("mset10", RANDOM_KEYS, "MSET key:__rand_int__ x") },
    Load { pipeline: "1", repeat: 200, ..load("mget200", "20000", "MGET key:__rand_int__") },
    load("hset", RANDOM_VALUES, "HSET hash:__rand_int__ f v"),
    load("lpush", RANDOM_VALUES, "LPUSH list:__rand_int__ v"),
    load("zadd", RANDOM_VALUES, "ZADD zset:__rand_int__ 1 m"),
    load("xadd", RANDOM_VALUES, "XADD stream:__rand_int__ MAXLEN 10 * f v"),
    Load {
        pipeline: "4",
        ..load("eval", RANDOM_KEYS, "EVAL redis.call('set',KEYS[1],1) 1 key:__rand_int__")
    },
    load("publish", "1", "PUBLISH channel v"),
    load("get-one", "1", "GET counter"),
    load("incr-one", "1", "INCR counter"),
    Load {
        options: &["--appendonly", "yes"],
        wants_clock: true,
        ..load("incr-one-log", "1", "INCR counter")
    },
    load("lpush-one", "1", "LPUSH list v"),
    load("xadd-one", "1", "XADD stream MAXLEN 10 * f v"),
];
