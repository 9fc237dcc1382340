//! What clients were told of, and what a crash leaves.
//!
//! Clients write numbered tokens, read them, are sent them and wait for the disk, on workers that take turns. The disk is full,
//! or loses what it took; the log is rewritten, turned off and on, and forced to disk in other ways. At any moment the power
//! may go. What a start then makes of the disk has to be a beginning of what happened, whole units only, and hold
//! all that a client was told of under a promise: by any reply or message with `appendfsync always`, and by WAITAOF whatever
//! the option says.

use std::collections::{HashMap, VecDeque};
use std::panic::{AssertUnwindSafe, catch_unwind};

use super::Exits;
use super::disk::{Disk, Faults};
use super::process::Process;
use super::reply::Reply;
use super::tasks;
use crate::io::Peer;
use crate::random::Random;
use crate::shutdown::Request;
use crate::worker::embedded::{Embedded, Session};

const WORKERS: usize = 2;
const CLIENTS: usize = 5;
const STEPS: usize = 250;
/// Requests that a client has sent and not heard of, at most.
const PIPELINE: usize = 4;
const KEYS: u64 = 3;

/// One seed of so many ends in order.
const ENDS_EACH: u64 = 16;

/// A process for many seeds, and another one that starts from what a crash leaves.
struct Stage {
    process: Process,
    within: Within,
    reader: Process,
    read: Within,
}

/// Somebody who sees all keys and waits for nothing.
struct Within {
    embedded: Embedded,
    session: Session,
}

/// A client, and what it waits to hear.
struct Client {
    peer: Peer,
    unread: Vec<u8>,
    asked: VecDeque<Asked>,
    /// How many of its tokens it knows to be written.
    written: usize,
    listens: bool,
}

/// What a reply tells of.
enum Asked {
    /// How long the list of all tokens is by now.
    Written,
    /// A token, or nothing.
    Token,
    /// That so many tokens are on disk.
    Kept(usize),
    Nothing,
}

struct Play<'a> {
    stage: &'a mut Stage,
    seed: u64,
    random: Random,
    disk: Disk,
    clients: Vec<Client>,
    /// In the order in which they came to be, with the key that each was written to.
    tokens: Vec<String>,
    places: HashMap<String, usize>,
    keys: HashMap<String, u64>,
    next: u64,
    /// So many tokens no crash may take.
    promised: usize,
    /// Who was told of the last of them, and how.
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
    slow: usize,
}

impl Within {
    fn new(process: &Process) -> Self {
        let mut embedded = process.observer();
        let session = embedded.connect();
        Self { embedded, session }
    }

    fn ask(&mut self, line: &str) -> Reply {
        let mut bytes =
            self.embedded.feed(&mut self.session, format!("{line}\r\n").as_bytes()).to_vec();
        Reply::take(&mut bytes).unwrap_or_else(|| panic!("{line} is not answered"))
    }

    fn texts(&mut self, line: &str) -> Vec<String> {
        let text = |reply: &Reply| match reply {
            Reply::Text(text) => Some(text.clone()),
            _ => None,
        };
        self.ask(line).leaves().into_iter().filter_map(text).collect()
    }
}

impl Stage {
    fn new() -> Self {
        let (process, reader) = (Process::new(WORKERS), Process::new(1));
        let (mut within, read) = (Within::new(&process), Within::new(&reader));
        within.ask("CONFIG SET busy-reply-threshold 1");
        Self { process, within, reader, read }
    }

    /// As at the start, on an empty disk.
    fn reset(&mut self) -> Disk {
        // What was begun comes to its end on the disk of before.
        for line in ["CONFIG SET appendonly no", "CLIENT UNPAUSE"] {
            self.within.ask(line);
        }
        for _ in 0..3 {
            self.process.server.step_log();
            while tasks::run_next().is_some() {}
            self.process.pass(2_000);
            self.process.turns(2);
        }
        while self.process.server.scripts.running().is_some() {
            self.process.turns(1);
        }
        self.within.ask("FLUSHALL");
        let disk = Disk::default();
        Disk::put_in(Some(disk.clone()));
        disk
    }
}

impl Play<'_> {
    fn run(&mut self) -> Result<(), String> {
        for number in 0..CLIENTS {
            self.connect(number);
        }
        self.configure("appendonly yes")?;
        for _ in 0..STEPS {
            self.step()?;
            self.learn();
            if self.one_in(100) {
                self.crash()?;
            }
        }
        if self.seed % ENDS_EACH == ENDS_EACH / 2 { self.end() } else { self.crash() }
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
            70..82 => {
                self.note("(the log's thread)");
                let server = self.stage.process.server;
                self.while_power_may_go(|| server.step_log())?;
            }
            82..87 => {
                let ms = if self.one_in(3) { 1_100 } else { self.below(50) as i64 };
                self.note(&format!("({ms} ms)"));
                self.stage.process.pass(ms);
                self.stage.within.embedded.set_time(self.stage.process.now_ms());
            }
            87..90 => self.change_disk(),
            // A rewrite waits at its end for the log to go on in another file.
            90..93 if !self.stage.process.server.log_has_orders() => {
                if let Some(name) = self.while_power_may_go(tasks::run_next)? {
                    self.counts.bases += usize::from(name == "bobbin-rewrite");
                    self.note(&format!("({name})"));
                }
            }
            93..95 => {
                let policy = ["always", "always", "everysec", "no"][self.below(4)];
                self.configure(&format!("appendfsync {policy}"))?;
            }
            95 if self.one_in(3) => {
                let on = !self.stage.process.server.log.is_on();
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
            // It would wait for the script.
            _ if self.is_busy() => {}
            _ => {
                let line = ["CLIENT PAUSE 30 WRITE", "CLIENT UNPAUSE"][self.below(2)];
                self.note(line);
                self.stage.within.ask(line);
            }
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
            peer.send(b"SUBSCRIBE tokens\r\n");
        }
        let client =
            Client { peer, unread: Vec::new(), asked: VecDeque::new(), written: 0, listens };
        match self.clients.get_mut(number) {
            Some(before) => *before = client,
            None => self.clients.push(client),
        }
    }

    /// Has the configuration changed. What was sent before was promised by the one before.
    fn configure(&mut self, what: &str) -> Result<(), String> {
        self.clients.iter().for_each(|client| client.peer.set_room(None));
        for worker in [0, 0, 1, 1] {
            self.turn(worker)?;
        }
        if self.is_busy() {
            // It would wait for the script.
            return Ok(());
        }
        let reply = self.stage.within.ask(&format!("CONFIG SET {what}"));
        self.note(&format!("(CONFIG SET {what}: {reply:?})"));
        Ok(())
    }

    fn change_disk(&mut self) {
        let mut faults = self.disk.faults();
        let always = self.stage.process.server.aof.holds_replies();
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

    /// Some client asks for something.
    fn request(&mut self) {
        let number = self.below(CLIENTS - 1);
        if self.clients[number].asked.len() >= PIPELINE {
            return;
        }
        self.next += 1;
        let (token, key) =
            (format!("{}t{}", self.seed, self.next), u64::from(self.random.next_u32()) % KEYS);
        let twins = format!("SET one:{key} {token}\r\nSET two:{key} {token}\r\n");
        let written = self.clients[number].written;
        let (line, asked) = match self.below(16) {
            0..3 => (format!("RPUSH tokens {token}"), vec![Asked::Written]),
            3..6 => {
                self.keys.insert(token.clone(), key);
                let nothing = || (0..4).map(|_| Asked::Nothing);
                let asked = nothing().chain([Asked::Written]).collect();
                (format!("MULTI\r\nRPUSH tokens {token}\r\n{twins}EXEC"), asked)
            }
            6..8 => {
                self.keys.insert(token.clone(), key);
                let body = "redis.call('set',KEYS[2],ARGV[1]) redis.call('publish','tokens',ARGV[1]) \
                            redis.call('set',KEYS[3],ARGV[1]) return redis.call('rpush',KEYS[1],ARGV[1])";
                let line = format!("EVAL \"{body}\" 3 tokens one:{key} two:{key} {token}");
                (line, vec![Asked::Written])
            }
            8 => (format!("RPUSH tokens {token}\r\nRPUSH mail {token}"), {
                vec![Asked::Written, Asked::Nothing]
            }),
            9 => ("BLPOP mail 1".into(), vec![Asked::Token]),
            10 => ("LRANGE tokens -1 -1".into(), vec![Asked::Token]),
            11 => (format!("GET one:{key}"), vec![Asked::Token]),
            12 => (format!("MULTI\r\nGET two:{key}\r\nEXEC"), {
                vec![Asked::Nothing, Asked::Nothing, Asked::Token]
            }),
            13 | 14 => ("WAITAOF 1 0 500".into(), vec![Asked::Kept(written)]),
            15 if self.one_in(4) => {
                self.counts.slow += 1;
                let body = "redis.call('rpush',KEYS[1],ARGV[1]) local sum = 0 \
                            for i = 1, 3e5 do sum = sum + i end return redis.call('llen',KEYS[1])";
                (format!("EVAL \"{body}\" 1 tokens {token}"), vec![Asked::Written])
            }
            _ => ("BGREWRITEAOF".into(), vec![Asked::Nothing]),
        };
        self.note(&format!("{number}> {line}").replace("\r\n", " | "));
        let client = &mut self.clients[number];
        client.peer.send(format!("{line}\r\n").as_bytes());
        client.asked.extend(asked);
    }

    fn turn(&mut self, worker: usize) -> Result<(), String> {
        self.note(&format!("(turn of {worker})"));
        self.stage.process.turn(worker);
        self.learn();
        let aof = &self.stage.process.server.aof;
        let always = aof.holds_replies() && !aof.is_waiting_for_base();
        for number in 0..CLIENTS {
            let client = &mut self.clients[number];
            let mut heard = client.peer.received();
            client.unread.append(&mut heard);
            while let Some(reply) = Reply::take(&mut self.clients[number].unread) {
                self.story.push(format!("    {number}: {reply:?}"));
                self.hear(number, &reply, always)?;
            }
        }
        Ok(())
    }

    /// A client is told something.
    fn hear(&mut self, number: usize, reply: &Reply, always: bool) -> Result<(), String> {
        let client = &mut self.clients[number];
        let asked = match client.listens {
            true => Asked::Token,
            false => client.asked.pop_front().ok_or("an answer to nothing")?,
        };
        if let Reply::Error(text) = reply {
            self.counts.refused += 1;
            let known =
                ["MISCONF", "EXECABORT", "BUSY", "ERR Background", "ERR WAITAOF", "ERR Can't"];
            if !known.iter().any(|known| text.starts_with(known)) {
                return Err(format!("{number} was told {text}"));
            }
            return Ok(());
        }
        let leaves = reply.leaves();
        let told = match asked {
            Asked::Nothing => 0,
            Asked::Written => match leaves.first() {
                Some(Reply::Integer(length)) => {
                    client.written = *length as usize;
                    client.written
                }
                other => return Err(format!("{number} wrote, and was told {other:?}")),
            },
            Asked::Token => {
                let place = |leaf: &&Reply| match leaf {
                    Reply::Text(text) => self.places.get(text).map(|at| at + 1),
                    _ => None,
                };
                leaves.iter().filter_map(place).max().unwrap_or(0)
            }
            Asked::Kept(written) => {
                if leaves.first() == Some(&&Reply::Integer(1)) {
                    self.promise(written, number, "WAITAOF");
                }
                0
            }
        };
        if always {
            self.promise(told, number, "a reply");
        }
        Ok(())
    }

    fn promise(&mut self, tokens: usize, number: usize, by: &str) {
        if tokens > self.promised {
            self.promised = tokens;
            self.promise = format!("{number} was promised {tokens} tokens by {by}");
            self.counts.promised += 1;
        }
    }

    /// Learns which tokens came to be.
    fn learn(&mut self) {
        if self.is_busy() {
            return;
        }
        let known = self.tokens.len();
        for token in self.stage.within.texts(&format!("LRANGE tokens {known} -1")) {
            self.places.insert(token.clone(), self.tokens.len());
            self.tokens.push(token);
        }
    }

    /// Does what uses the disk. Sometimes the power goes in the midst of it.
    fn while_power_may_go<T>(&mut self, f: impl FnOnce() -> T) -> Result<T, String> {
        if !self.one_in(8) {
            return Ok(f());
        }
        let (steps, seed) = (self.below(20), u64::from(self.random.next_u32()));
        self.disk.cut_power_after(steps, Random::new(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15)));
        let result = f();
        if let Some(left) = self.disk.left_by_power_cut() {
            self.look_at(left, &format!("the power went {steps} steps within what follows"))?;
        }
        Ok(result)
    }

    /// The power goes, or the process alone.
    fn crash(&mut self) -> Result<(), String> {
        if self.one_in(4) {
            self.look_at(self.disk.after_kill(), "it was killed")
        } else {
            let left = self.disk.after_power_cut(&mut self.random);
            self.look_at(left, "the power went")
        }
    }

    /// The server ends in order.
    fn end(&mut self) -> Result<(), String> {
        self.note("(the end)");
        let server = self.stage.process.server;
        let mut faults = self.disk.faults();
        faults.failing_syncs = 0;
        if self.one_in(2) {
            faults.room = None;
        }
        self.disk.set_faults(faults);
        self.go_on_until_idle()?;
        let request = Request { save: None, force: true, waiter: None, by_signal: true };
        if !server.prepare_end(&request) {
            return Err("it does not end".into());
        }
        server.workers.stop();
        for worker in 0..WORKERS {
            self.turn(worker)?;
        }
        server.end_log_alone();
        self.counts.ends += 1;
        let is_whole = server.log.is_on() && !server.aof.is_waiting_for_base();
        if is_whole && !self.lost && faults.room.is_none() {
            self.promise(self.tokens.len(), CLIENTS, "the end");
        }
        let left = self.disk.after_power_cut(&mut self.random);
        self.look_at(left, "it ended")
    }

    /// Has scripts, rewrites and the log's thread come to an end.
    fn go_on_until_idle(&mut self) -> Result<(), String> {
        let server = self.stage.process.server;
        for _ in 0..1_000 {
            server.step_log();
            if !server.log_has_orders() {
                tasks::run_next();
            }
            for worker in 0..WORKERS {
                self.turn(worker)?;
            }
            if !self.is_busy() {
                return Ok(());
            }
        }
        Err("a script does not end".into())
    }

    /// Whether a long script is at work: nobody sees then what there is.
    fn is_busy(&self) -> bool {
        self.stage.process.server.scripts.running().is_some()
    }

    /// Another process starts from what is left.
    fn look_at(&mut self, left: Disk, how: &str) -> Result<(), String> {
        if self.is_busy() {
            return Ok(());
        }
        self.counts.crashes += 1;
        let shown = left.list();
        let read = &mut self.stage.read;
        Disk::put_in(Some(Disk::default()));
        read.ask("FLUSHALL");
        Disk::put_in(Some(left));
        let loaded = self.stage.reader.server.load_log();
        Disk::put_in(Some(self.disk.clone()));
        let fault = |what: String| {
            let (promise, tokens) = (&self.promise, self.tokens.len());
            Err(format!("{how}: {what}\n{promise}, of {tokens} ({loaded:?}, {shown:?})"))
        };
        if loaded.is_err() && !self.lost {
            return fault("it cannot be loaded".into());
        }
        let left = read.texts("LRANGE tokens 0 -1");
        if !self.tokens.starts_with(&left) {
            let at = left.iter().zip(&self.tokens).position(|(left, there)| left != there);
            return fault(format!("what is left is no beginning, from {at:?} on: {left:?}"));
        }
        if left.len() < self.promised {
            return fault(format!("{} tokens are left", left.len()));
        }
        for key in 0..KEYS {
            let is_written = |token: &&String| self.keys.get(*token) == Some(&key);
            let wanted: Vec<String> =
                left.iter().rev().find(is_written).cloned().into_iter().collect();
            for twin in ["one", "two"] {
                let is = read.texts(&format!("GET {twin}:{key}"));
                if is != wanted {
                    return fault(format!("{twin}:{key} is {is:?} and not {wanted:?}"));
                }
            }
        }
        Ok(())
    }
}

/// Plays a seed; what it came to. Behind a process that exits another one is needed.
fn play(stage: &mut Option<Stage>, seed: u64, lies: bool) -> Result<Counts, String> {
    let it = stage.get_or_insert_with(Stage::new);
    let disk = it.reset();
    disk.set_faults(Faults { lies, ..Faults::default() });
    let mut play = Play {
        stage: it,
        seed,
        random: Random::new(seed.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15)),
        disk,
        clients: Vec::new(),
        tokens: Vec::new(),
        places: HashMap::new(),
        keys: HashMap::new(),
        next: 0,
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
        client.peer.close();
    }
    play.disk.set_faults(Faults::default());
    drop(play);
    if counts.ends == 0 {
        it.process.turns(3);
    }
    if exits || outcome.is_err() || counts.ends > 0 {
        *stage = None;
        tasks::forget();
    }
    outcome.map(|()| counts)
}

fn variable(name: &str) -> Option<u64> {
    std::env::var(name).ok().map(|text| text.parse().expect("a number"))
}

/// Seeds in the tests. `BOBBIN_UNITS` says how many others, from `BOBBIN_SEED` on.
const SEEDS: u64 = 100;

#[test]
fn no_crash_takes_what_somebody_was_told_of() {
    let first = variable("BOBBIN_SEED").unwrap_or(0);
    let (mut stage, mut sum) = (None, Counts::default());
    for seed in first..first + variable("BOBBIN_UNITS").unwrap_or(SEEDS) {
        let counts = play(&mut stage, seed, false)
            .unwrap_or_else(|fault| panic!("BOBBIN_SEED={seed}: {fault}"));
        sum.tokens += counts.tokens;
        sum.promised += counts.promised;
        sum.crashes += counts.crashes;
        sum.refused += counts.refused;
        sum.exits += counts.exits;
        sum.bases += counts.bases;
        sum.ends += counts.ends;
        sum.slow += counts.slow;
    }
    println!("{sum:?}");
    Disk::put_in(None);
}

/// The canary: a disk that forces nothing to disk breaks all promises, and that has to show.
#[test]
fn a_disk_that_lies_is_caught() {
    let mut stage = None;
    let caught = (0..20).filter(|&seed| play(&mut stage, seed, true).is_err()).count();
    assert!(caught > 10, "{caught}");
    Disk::put_in(None);
}
