//! What clients were told of, and what a crash leaves.
//!
//! Clients write numbered tokens, read them, are sent them and wait for the disk, on workers that
//! take turns. The disk is full, or loses what it took; the log is rewritten, turned off and on,
//! and forced to disk in other ways. At any moment the power may go. What a start then makes of the
//! disk has to be a beginning of what happened, whole units only, and hold all that a client was
//! told of under a promise: by any reply or message with `appendfsync always`, and by WAITAOF
//! whatever the option says.
//!
//! Tokens are never taken away. What may go by itself, by a deadline or for want of memory, are
//! [`cells`], about which that module says what must hold. Commands, transactions, scripts and
//! functions write both. Scripts pause in their midst, go on in slices, and the power goes there,
//! too. Clients are paused; some ask for the end of the server, and others call it off.
//!
//! The log's thread and rewrites may hang within any use of the disk, while workers go on
//! ([`hands`]); the power may go meanwhile. What happens by the counter of ticks happens by the
//! seed ([`ticks`]).
//!
//! One seed of four evicts every key, not just those with a deadline. It has no tokens, just cells.
//!
//! What is not checked: values of other types than lists, strings and hashes (`tests/units.rs` has
//! them all); what a snapshot that is not part of the log holds; that something happens at all,
//! such as expiry or the end of a hang; a worker that hangs in the disk itself; threads that are
//! truly at it at once (shuttle, `tests/simulation/threads.rs`).

mod crash;
mod requests;

use std::collections::{HashMap, VecDeque};
use std::panic::{AssertUnwindSafe, catch_unwind};

use bobbin_io::Peer;

use super::cells::{self, Cells, Told};
use super::disk::{Disk, Faults};
use super::hands::Hands;
use super::process::SimulatedProcess;
use super::reply::ParsedReply;
use super::stage::{CrashStage, WORKERS, Within};
use super::{Exits, tasks, ticks};
use crate::base::random::Random;
use crate::engine::server::{EndRequest, Switch};
use crate::persistence::aof;
use crate::persistence::aof::Aof;
use crate::process::shutdown;

const CLIENTS: usize = 5;
const STEPS: usize = 250;
/// Requests that a client has sent and not heard of, at most.
const PIPELINE: usize = 4;
const KEYS: u64 = 3;
/// Cells of a seed, at most.
const CELLS: usize = 48;
/// How many cells of a client are in use: the last that it made.
const OWN: usize = 4;
/// How the counter of ticks jumps: one read of 20 moves it on by up to 12 ms, so that now and then
/// a script pauses, or is slow.
const JUMPS: (u32, u32) = (20, 12_000);
/// How many seeds come to one that evicts all keys, ...
const EVICTS_ALL_EACH: u64 = 4;
/// ... has a library of functions, ...
const FUNCTIONS_EACH: u64 = 3;
/// ... and a disk that hangs.
const HANGS_EACH: u64 = 2;

/// How many seeds come to one that ends in order.
const ENDS_EACH: u64 = 16;

/// A client, and what it waits to hear.
struct Client {
    peer: Peer,
    /// What it has not sent of a command that it began to send.
    unsent: Vec<u8>,
    unread: Vec<u8>,
    asked: VecDeque<Asked>,
    /// How many of its tokens it knows to be written.
    written: usize,
    /// What it alone writes.
    cells: Vec<usize>,
    listens: bool,
}

/// What a reply tells of.
enum Asked {
    /// How long the list of all tokens is by now.
    Written,
    /// A token, or nothing.
    Token,
    /// Says that this number of tokens is on disk, and that what the client knows of these cells
    /// is.
    Kept(usize, Vec<(usize, Told)>),
    /// What a cell holds, or held when this was set.
    Cell(cells::CellRequest, Option<u64>),
    Nothing,
}

struct Play<'a> {
    stage: &'a mut CrashStage,
    seed: u64,
    random: Random,
    disk: Disk,
    clients: Vec<Client>,
    /// In the order in which they came to be, with the key that each was written to.
    tokens: Vec<String>,
    places: HashMap<String, usize>,
    keys: HashMap<String, u64>,
    next: u64,
    cells: Cells,
    hands: Hands,
    has_tokens: bool,
    has_functions: bool,
    is_over: bool,
    /// How many tokens no crash may take.
    promised: usize,
    /// Which client was told of the last of them, and how.
    promise: String,
    lost: bool,
    counts: Counts,
    story: Vec<String>,
}

/// What the seeds came to.
#[derive(Clone, Copy, Debug, Default)]
struct Counts {
    tokens: usize,
    promised: usize,
    crashes: usize,
    refused: usize,
    exits: usize,
    bases: usize,
    ends: usize,
    /// Ends that were refused, and those that clients asked for.
    refused_ends: usize,
    asked_ends: usize,
    /// What was asked about cells, and what was gone then.
    cells: usize,
    gone: usize,
    heard_gone: usize,
    short: usize,
    /// Crashes while a script was in its midst, and while the disk hung.
    midst: usize,
    hangs: usize,
    hung: usize,
}

impl Counts {
    const fn all(&mut self) -> [&mut usize; 16] {
        [
            &mut self.tokens,
            &mut self.promised,
            &mut self.crashes,
            &mut self.refused,
            &mut self.exits,
            &mut self.bases,
            &mut self.ends,
            &mut self.refused_ends,
            &mut self.asked_ends,
            &mut self.cells,
            &mut self.gone,
            &mut self.heard_gone,
            &mut self.short,
            &mut self.midst,
            &mut self.hangs,
            &mut self.hung,
        ]
    }

    fn add(&mut self, mut other: Self) {
        self.all().into_iter().zip(other.all()).for_each(|(sum, count)| *sum += *count);
    }
}

impl Play<'_> {
    fn run(&mut self) -> Result<(), String> {
        for number in 0..CLIENTS {
            self.connect(number);
        }
        let all = ["allkeys-lru", "allkeys-lfu", "allkeys-random"];
        let volatile = ["volatile-ttl", "volatile-lru", "volatile-lfu", "volatile-random"];
        let at = self.below(12);
        let policy = if self.has_tokens { volatile[at % 4] } else { all[at % 3] };
        self.order(&format!("CONFIG SET maxmemory-policy {policy}"));
        if self.has_functions {
            let made = self
                .stage
                .within
                .embedded
                .feed(&mut self.stage.within.session, &library())
                .to_vec();
            assert_eq!(made, b"$5\r\nunits\r\n", "{}", made.escape_ascii());
        }
        if self.one_in(8) {
            // A script's first run holds everything.
            self.order("SCRIPT FLUSH");
        }
        self.configure("appendonly yes")?;
        for _ in 0..STEPS {
            self.step()?;
            self.learn();
            if self.is_over {
                return Ok(());
            }
            if self.one_in(100) {
                self.crash()?;
            }
        }
        if self.seed % ENDS_EACH == ENDS_EACH / 2 {
            self.note("(the end)");
            self.go_on_until_idle()?;
            if self.end(EndRequest {
                force: true,
                now: true,
                by_signal: true,
                ..EndRequest::default()
            })? {
                return Ok(());
            }
            return Err("it does not end".into());
        }
        self.crash()
    }

    fn below(&mut self, limit: usize) -> usize {
        self.random.next_u32() as usize % limit
    }

    fn one_in(&mut self, count: usize) -> bool {
        self.below(count) == 0
    }

    fn step(&mut self) -> Result<(), String> {
        match self.below(100) {
            0..40 => self.request(),
            40..70 => {
                let worker = self.below(WORKERS);
                self.turn(worker)?;
            }
            70..82 => self.log_goes_on()?,
            82..87 => {
                let ms = if self.one_in(3) { 1_100 } else { self.below(50) as i64 };
                self.note(&format!("({ms} ms)"));
                self.stage.process.pass(ms);
                self.stage.within.embedded.set_time(self.stage.process.now_ms());
            }
            87..90 => self.change_disk(),
            // A rewrite waits at its end for the log to go on in another file.
            90..93 if !self.hands.hangs() && !aof::log_has_orders(self.stage.process.server) => {
                if let Some(task) = tasks::take_next() {
                    self.counts.bases += usize::from(task.name == "bobbin-rewrite");
                    self.note(&format!("({})", task.name));
                    self.with_hands(move || (task.run)())?;
                }
            }
            93..95 => {
                let policy = ["always", "always", "everysec", "no"][self.below(4)];
                self.configure(&format!("appendfsync {policy}"))?;
            }
            95 if self.one_in(3) => {
                let on = !Aof::of(self.stage.process.server).is_on();
                self.configure(&format!("appendonly {}", if on { "yes" } else { "no" }))?;
            }
            96 => {
                let number = self.below(CLIENTS);
                self.note(&format!("({number} goes)"));
                self.clients[number].peer.close();
                self.connect(number);
            }
            97 => {
                let number = self.below(CLIENTS);
                let room = self.one_in(2).then(|| self.below(40));
                self.clients[number].peer.set_room(room);
            }
            98 => {
                let lines = ["CLIENT PAUSE 30 WRITE", "CLIENT PAUSE 10 ALL", "CLIENT UNPAUSE"];
                let line = lines[self.below(3)];
                self.order(line);
            }
            _ if self.cells.is_memory_short() || self.one_in(4) => self.change_memory(),
            _ => self.see_to_end()?,
        }
        Ok(())
    }

    fn note(&mut self, what: &str) {
        self.story.push(what.to_owned());
    }

    /// Another client in this place. The last one listens.
    fn connect(&mut self, number: usize) {
        let peer = self.stage.process.connect(number % WORKERS);
        let listens = number == CLIENTS - 1;
        if listens {
            peer.send(b"SUBSCRIBE tokens __keyevent@0__:expired __keyevent@0__:evicted\r\n");
        }
        let client = Client {
            peer,
            unsent: Vec::new(),
            unread: Vec::new(),
            asked: VecDeque::new(),
            written: 0,
            cells: Vec::new(),
            listens,
        };
        match self.clients.get_mut(number) {
            Some(before) => *before = client,
            None => self.clients.push(client),
        }
    }

    /// Has the configuration changed. What was sent before was promised by the one before: so all
    /// that is answered by now has to arrive first.
    fn configure(&mut self, what: &str) -> Result<(), String> {
        self.clients.iter().for_each(|client| client.peer.set_room(None));
        let mut quiet_rounds = 0;
        while quiet_rounds < 3 {
            let before = self.story.len();
            self.turn(0)?;
            self.turn(1)?;
            let hears = self.story.len() > before + 2;
            quiet_rounds = if hears { 0 } else { quiet_rounds + 1 };
        }
        self.order(&format!("CONFIG SET {what}"));
        Ok(())
    }

    /// An observer within gives an order, which does not wait for a script.
    fn order(&mut self, line: &str) {
        if !self.may_order() {
            return;
        }
        let reply = self.stage.within.ask(line);
        self.note(&format!("({line}: {reply:?})"));
    }

    fn may_order(&self) -> bool {
        let (server, now_ms) = (self.stage.process.server, self.stage.process.now_ms());
        !self.is_in_midst() && server.paused(now_ms).is_none_or(|pause| !pause.all)
    }

    /// The log's thread writes, or a thread that hangs in the disk goes on.
    fn log_goes_on(&mut self) -> Result<(), String> {
        if self.hands.hangs() {
            if self.one_in(3) {
                self.note("(the disk goes on)");
                let over = self.while_power_may_go(|play| play.hands.go_on())?;
                self.counts.hangs += usize::from(!over);
            }
            return Ok(());
        }
        self.note("(the log's thread)");
        let server = self.stage.process.server;
        self.with_hands(move || aof::step_log(server))
    }

    /// Has something done that uses the disk, and may hang there.
    fn with_hands(&mut self, work: impl FnOnce() + Send + 'static) -> Result<(), String> {
        let disk = self.disk.clone();
        let over = self.while_power_may_go(move |play| play.hands.have(&disk, work))?;
        if over.is_none() {
            self.note("(hangs)");
            self.counts.hangs += 1;
        }
        Ok(())
    }

    /// Memory is short, or is not any more.
    fn change_memory(&mut self) {
        let is_short = !self.cells.is_memory_short();
        if !self.may_order() {
            return;
        }
        self.order(if is_short { "CONFIG SET maxmemory 1" } else { "CONFIG SET maxmemory 0" });
        self.cells.set_short(is_short);
        self.counts.short += usize::from(is_short);
    }

    /// What the main thread does: it ends the server, if that is wanted.
    fn see_to_end(&mut self) -> Result<(), String> {
        let server = self.stage.process.server;
        if !server.end.is_wanted() {
            return Ok(());
        }
        self.note("(the main thread)");
        self.counts.asked_ends += 1;
        self.go_on_until_idle()?;
        // It may be called off by now.
        let Some(request) = server.end.take() else { return Ok(()) };
        self.end(request).map(drop)
    }

    fn change_disk(&mut self) {
        let mut faults = self.disk.faults();
        let always = Aof::of(self.stage.process.server).keeps_back_replies();
        match self.below(4) {
            0 => faults.room = Some(self.below(400)),
            // With `always` that is the end.
            1 if !always || self.one_in(20) => faults.failing_syncs = 1,
            _ => faults.room = None,
        }
        self.lost |= faults.failing_syncs > 0;
        self.note(&format!("({faults:?})"));
        self.disk.set_faults(faults);
    }

    fn turn(&mut self, worker: usize) -> Result<(), String> {
        self.note(&format!("(turn of {worker})"));
        self.stage.process.turn(worker);
        self.learn();
        let aof = Aof::of(self.stage.process.server);
        let always = aof.keeps_back_replies() && !aof.is_waiting_for_base();
        for number in 0..CLIENTS {
            let client = &mut self.clients[number];
            let mut heard = client.peer.received();
            client.unread.append(&mut heard);
            while let Some(reply) = ParsedReply::take(&mut self.clients[number].unread) {
                self.story.push(format!("    {number}: {reply:?}"));
                self.hear(number, &reply, always)?;
            }
        }
        Ok(())
    }
}

/// A process that plays, until it has ended, and one that reads.
#[derive(Default)]
struct Theatre {
    stage: Option<CrashStage>,
    reader: Option<(SimulatedProcess, Within)>,
}

impl Theatre {
    /// Plays a seed; what it came to.
    fn play(&mut self, seed: u64, lies: bool) -> Result<Counts, String> {
        let mut stage = self.stage.take().unwrap_or_else(|| CrashStage::new(self.reader.take()));
        let disk = stage.reset();
        disk.set_faults(Faults { lies, ..Faults::default() });
        let random =
            |stream: u64| Random::new((4 * seed + stream + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15));
        ticks::jump(Some((random(1), JUMPS.0, JUMPS.1)));
        let has_tokens = !(seed + 1).is_multiple_of(EVICTS_ALL_EACH);
        let hangs = if seed.is_multiple_of(HANGS_EACH) { 10 } else { 0 };
        let mut play = Play {
            stage: &mut stage,
            seed,
            random: random(0),
            disk,
            clients: Vec::new(),
            tokens: Vec::new(),
            places: HashMap::new(),
            keys: HashMap::new(),
            next: 0,
            cells: Cells::new(!has_tokens),
            hands: Hands::new(random(2), hangs),
            has_tokens,
            has_functions: seed.is_multiple_of(FUNCTIONS_EACH),
            is_over: false,
            promised: 0,
            promise: String::new(),
            lost: false,
            counts: Counts::default(),
            story: Vec::new(),
        };
        let ended = catch_unwind(AssertUnwindSafe(|| play.run()));
        let exits = ended.as_ref().is_err_and(|panic| panic.is::<Exits>());
        let outcome = match ended {
            Ok(outcome) => outcome,
            Err(_) if exits => play.crash(),
            Err(_) => Err("it panics".into()),
        };
        let mut counts = play.counts;
        counts.tokens = play.tokens.len();
        counts.exits = usize::from(exits);
        let outcome = outcome.map_err(|fault| format!("{}\n{fault}", play.story.join("\n")));
        for client in &play.clients {
            client.peer.set_room(None);
            client.peer.close();
        }
        play.disk.set_faults(Faults::default());
        drop(play);
        ticks::jump(None);
        if exits || outcome.is_err() || counts.ends > 0 {
            // It has ended, and another one is needed.
            self.reader = Some((stage.reader, stage.read));
            tasks::forget();
        } else {
            stage.process.turns(3);
            self.stage = Some(stage);
        }
        outcome.map(|()| counts)
    }
}

/// A unit about a cell.
const UNIT: &str = "local key, verb, field, value, ms = KEYS[1], ARGV[1], ARGV[2], ARGV[3], ARGV[4] \
    if field == '-' then redis.call(verb, key, value) else redis.call(verb, key, field, value) end \
    for i = 1, ARGV[5] do redis.call('exists', key) end \
    if field == '-' then \
        if ms ~= '-' then redis.call('pexpire', key, ms) end \
        return redis.call('get', key) \
    end \
    if ms ~= '-' then redis.call('hpexpire', key, ms, 'fields', 1, field) end \
    return redis.call('hget', key, field)";

/// The command that makes a function of it.
fn library() -> Vec<u8> {
    let source = format!(
        "#!lua name=units\nredis.register_function('unit', function(KEYS, ARGV) {UNIT} end)"
    );
    let len = source.len();
    format!("*3\r\n$8\r\nFUNCTION\r\n$4\r\nLOAD\r\n${len}\r\n{source}\r\n").into_bytes()
}

/// How what may be refused is refused.
const KNOWN_ERRORS: &[&str] = &[
    "MISCONF",
    "EXECABORT",
    "BUSY",
    "OOM",
    "ERR Background",
    "ERR Another child process",
    "ERR WAITAOF",
    "ERR Can't",
    "ERR Errors trying to SHUTDOWN",
    "ERR No shutdown in progress",
];

fn variable(name: &str) -> Option<u64> {
    std::env::var(name).ok().map(|text| text.parse().expect("a number"))
}

/// Seeds in the tests. `BOBBIN_UNITS` says how many others, from `BOBBIN_SEED` on.
const SEEDS: u64 = 2_000;
/// How many seeds a process plays. If there are more, each thousand has a process of its own, as a
/// server that has ended is never freed.
const SEEDS_EACH: u64 = 1_000;

#[test]
fn no_crash_takes_what_somebody_was_told_of() {
    let first = variable("BOBBIN_SEED").unwrap_or(0);
    let count = variable("BOBBIN_UNITS").unwrap_or(SEEDS);
    let (mut sum, mut failed) = (Counts::default(), Vec::new());
    if count > SEEDS_EACH {
        for from in (first..first + count).step_by(SEEDS_EACH as usize) {
            let (counts, fails) = play_beside(from, SEEDS_EACH.min(first + count - from));
            sum.add(counts);
            failed.extend(fails);
        }
    } else {
        let mut theatre = Theatre::default();
        for seed in first..first + count {
            match theatre.play(seed, false) {
                Ok(counts) => sum.add(counts),
                Err(fault) => {
                    println!("{fault}\n{FAILED}{seed} (among {count} from {first} on)");
                    failed.push(seed);
                }
            }
        }
        Disk::put_in(None);
    }
    println!("{COUNTS}{sum:?}");
    assert!(failed.is_empty(), "BOBBIN_SEED= one of {failed:?}");
}

/// Has a process of its own play seeds; what they came to, and which failed.
fn play_beside(first: u64, count: u64) -> (Counts, Vec<u64>) {
    let this = std::env::current_exe().expect("it is known");
    let mut command = std::process::Command::new(this);
    let name = "simulation::promises::no_crash_takes_what_somebody_was_told_of";
    command.args(["--exact", name, "--nocapture"]);
    command.env("BOBBIN_SEED", first.to_string()).env("BOBBIN_UNITS", count.to_string());
    let output = command.output().expect("it can be started");
    let text = String::from_utf8_lossy(&output.stdout);
    let failed = text.lines().filter_map(|line| line.strip_prefix(FAILED));
    let failed: Vec<u64> = failed.filter_map(|rest| rest.split(' ').next()?.parse().ok()).collect();
    if !output.status.success() {
        println!("{text}{}", String::from_utf8_lossy(&output.stderr));
        assert!(!failed.is_empty(), "seeds from {first} on came to no end");
    }
    let mut counts = Counts::default();
    let told = text.lines().find_map(|line| line.strip_prefix(COUNTS)).unwrap_or_default();
    let numbers = told.split(|sign: char| !sign.is_ascii_digit()).filter(|word| !word.is_empty());
    for (count, number) in counts.all().into_iter().zip(numbers) {
        *count = number.parse().expect("it is a number");
    }
    (counts, failed)
}

const FAILED: &str = "failed: BOBBIN_SEED=";
const COUNTS: &str = "came to: ";

/// The canary: a disk that forces nothing to disk breaks all promises, and that has to show.
#[test]
fn a_disk_that_lies_is_caught() {
    let mut theatre = Theatre::default();
    let caught = (0..30).filter(|&seed| theatre.play(seed, true).is_err()).count();
    assert!(caught > 10, "{caught}");
    Disk::put_in(None);
}
