//! Workers that take turns: one command of one session, a slice of a long one, a step of a base, of
//! time, of expiry.

use std::collections::VecDeque;

use bobbin_server::base::random::Random;
use bobbin_server::embedded::records::{BaseInProgress, LogRecords};
use bobbin_server::embedded::{Embedded, EmbeddedProcess, EmbeddedSession};

use super::crash::{Checker, Digest, LoggedHistory};
use super::load::{library, other, single, unit};
use super::{CommandWords, below, encode, process, words};

const WORKERS: usize = 3;
const SESSIONS: usize = 5;
const TURNS: usize = 150;

/// A process, and another one that its log is carried out in.
pub struct TurnStage {
    process: EmbeddedProcess,
    workers: Vec<Embedded>,
    /// Its sessions do nothing but listen.
    listener: Embedded,
    _listening: EmbeddedSession,
    records: LogRecords,
    checker: Checker,
    now_ms: i64,
    units: u64,
}

/// What they draw depends on the seed alone.
fn workers(process: EmbeddedProcess, seed: u64) -> Vec<Embedded> {
    let worker = |number| {
        let mut worker = process.worker(seed * WORKERS as u64 + number).expect("there are flags");
        worker.work_in_slices();
        worker
    };
    (0..WORKERS as u64).map(worker).collect()
}

/// A session, and what it is still to send.
struct Client {
    worker: usize,
    session: EmbeddedSession,
    requests: VecDeque<CommandWords>,
}

/// What happens for one seed.
struct Play<'a> {
    stage: &'a mut TurnStage,
    random: Random,
    clients: Vec<Client>,
    /// With the log as far as it goes; `None`: the log is off, or has no base.
    history: Option<LoggedHistory>,
    done: Vec<LoggedHistory>,
    making: Option<Making>,
    is_on: bool,
    last: u64,
    evicts: bool,
    /// What happened, for the report of a fault.
    story: Vec<String>,
}

/// A base in the making, and what is logged behind it.
struct Making {
    base: BaseInProgress,
    behind: LoggedHistory,
}

impl TurnStage {
    pub fn new() -> Self {
        let process = process();
        let mut listener = process.worker(0).expect("there are threads for all");
        let workers = workers(process, 0);
        let mut listening = listener.connect();
        let asked = words("CONFIG SET notify-keyspace-events Eg maxmemory-policy volatile-random");
        listener.feed(&mut listening, &encode(&asked));
        for channel in ["units", "__keyevent@0__:del"] {
            listener.feed(&mut listening, &encode(&["SUBSCRIBE", channel]));
        }
        let (records, checker) = (process.records(), Checker::new());
        let (now_ms, units) = (1_700_000_000_000, 0);
        Self { process, workers, listener, _listening: listening, records, checker, now_ms, units }
    }

    /// What was logged when this seed decides what happens.
    pub fn play(&mut self, seed: u64) -> Result<Vec<LoggedHistory>, String> {
        self.process.log(false);
        self.workers = workers(self.process, seed);
        self.units = seed * 1_000;
        self.set_time(1_000);
        let mut session = self.workers[0].connect();
        for command in ["CLIENT UNPAUSE", "CONFIG SET maxmemory 0", "FLUSHALL", "SCRIPT FLUSH"] {
            self.workers[0].feed(&mut session, &encode(&words(command)));
        }
        self.workers[0].feed(&mut session, &encode(&library()));
        if seed.is_multiple_of(16) {
            for large in 0..2 {
                let members = (0..2_500).map(|member| (member * (1 + large)).to_string());
                let command: Vec<_> =
                    ["SADD".into(), format!("large:{large}")].into_iter().chain(members).collect();
                self.workers[0].feed(&mut session, &encode(&command));
            }
        }
        self.workers[0].disconnect(session);
        self.listener.messages();
        let clients = (0..SESSIONS)
            .map(|number| Client {
                worker: number % WORKERS,
                session: self.workers[number % WORKERS].connect(),
                requests: VecDeque::new(),
            })
            .collect();
        let last = self.records.last();
        let mut play = Play {
            stage: self,
            random: super::random(seed),
            clients,
            history: None,
            done: Vec::new(),
            making: None,
            is_on: false,
            last,
            evicts: false,
            story: Vec::new(),
        };
        let outcome = play.turn_on(seed).and_then(|()| play.turns(seed));
        let (story, done) = (std::mem::take(&mut play.story), std::mem::take(&mut play.done));
        let (clients, base) = (std::mem::take(&mut play.clients), play.making.take());
        for client in clients {
            self.workers[client.worker].disconnect(client.session);
        }
        if let Some(making) = base {
            self.finish(making.base);
        }
        let story = |fault: String| format!("{}\n{fault}", story.join("\n"));
        outcome.map_err(story)?;
        let told = |history| LoggedHistory { story: story(String::new()), ..history };
        Ok(done.into_iter().map(told).collect())
    }

    pub fn check(&mut self, history: &LoggedHistory) -> Result<(), String> {
        self.checker.check(history)
    }

    fn set_time(&mut self, more_ms: i64) {
        self.now_ms += more_ms;
        self.workers.iter_mut().for_each(|worker| worker.set_time(self.now_ms));
    }

    fn finish(&mut self, mut base: BaseInProgress) -> Vec<u8> {
        while self.workers[0].step_base(&mut base) {}
        base.finish()
    }
}

impl Play<'_> {
    /// The log begins here, with the base of now, whenever that is there.
    fn turn_on(&mut self, seed: u64) -> Result<(), String> {
        self.stage.process.log(true);
        self.is_on = true;
        self.begin_base(seed);
        self.look(false)
    }

    fn begin_base(&mut self, seed: u64) {
        let (base, number) = self.stage.workers[1].begin_base();
        self.stage.records.begin_file();
        self.story.push(format!("(a base of {number})"));
        self.making = Some(Making {
            base,
            behind: LoggedHistory { number, seed, ..LoggedHistory::default() },
        });
    }

    fn turns(&mut self, seed: u64) -> Result<(), String> {
        for _ in 0..TURNS {
            // Whether more than one unit may happen.
            let mut several = self.evicts;
            match below(&mut self.random, 40) {
                0 => {
                    let more_ms = below(&mut self.random, 300) as i64;
                    self.story.push(format!("({more_ms} ms)"));
                    self.stage.set_time(more_ms);
                }
                1 => {
                    self.story.push("(expiry)".into());
                    self.stage.workers[2].expire();
                    several = true;
                }
                2..5 => self.step_base(),
                5 if self.is_on && self.making.is_none() => self.begin_base(seed),
                6 if below(&mut self.random, 8) == 0 => self.switch(seed)?,
                7 if below(&mut self.random, 3) == 0 => self.change_memory(),
                _ => several |= self.serve(),
            }
            self.look(several)?;
        }
        // At the end all is there, and nothing is half done.
        if let Some(making) = self.making.take() {
            self.complete(making);
        }
        self.done.extend(self.history.take());
        Ok(())
    }

    /// A client goes on; whether others may be served with what it does.
    fn serve(&mut self) -> bool {
        let any_waits = self.clients.iter().any(|client| client.session.is_waiting());
        let number = below(&mut self.random, self.clients.len());
        let Self { stage, clients, random, story, .. } = self;
        let client = &mut clients[number];
        let worker = &mut stage.workers[client.worker];
        let session = &mut client.session;
        if session.is_working() {
            story.push(format!("{number} goes on"));
            worker.step(session);
        } else if session.is_waiting() {
            let served = worker.end_wait(session);
            story.push(format!("{number} waits, served: {}", served.is_some()));
        } else if session.is_behind() {
            story.push(format!("{number} tries again"));
            worker.feed(session, b"");
        } else {
            if client.requests.is_empty() {
                match below(random, 8) {
                    0..4 => {
                        stage.units += 1;
                        client.requests.extend(unit(random, stage.units));
                    }
                    4 => client.requests.push_back(other(random)),
                    _ => client.requests.push_back(single(random)),
                }
            }
            let command = client.requests.pop_front().expect("it has some");
            let reply = worker.feed(session, &encode(&command));
            let shown: Vec<_> = command.iter().map(|word| &word[..word.len().min(20)]).collect();
            let reply = String::from_utf8_lossy(&reply[..reply.len().min(80)]).into_owned();
            story.push(format!("{number}> {} -- {reply:?}", shown.join(" ")));
        }
        // What pauses does so by the real clock, and only on a slow machine. The seed alone should
        // decide what happens next.
        while session.has_paused() {
            story.push(format!("{number} paused"));
            worker.step(session);
        }
        any_waits
    }

    fn step_base(&mut self) {
        let Some(mut making) = self.making.take() else { return };
        for _ in 0..1 + below(&mut self.random, 20) {
            if !self.stage.workers[1].step_base(&mut making.base) {
                self.complete(making);
                return;
            }
        }
        self.making = Some(making);
    }

    /// The base is there, and what was before it is not needed any more.
    fn complete(&mut self, making: Making) {
        self.story.push("(it is there)".into());
        let mut history = making.behind;
        history.base = Some(self.stage.finish(making.base));
        self.done.extend(self.history.replace(history));
    }

    fn switch(&mut self, seed: u64) -> Result<(), String> {
        if !self.is_on {
            self.story.push("(the log is turned on)".into());
            return self.turn_on(seed);
        }
        self.story.push("(the log is turned off)".into());
        self.is_on = false;
        self.stage.process.log(false);
        if let Some(making) = self.making.take() {
            self.stage.finish(making.base);
        }
        self.done.extend(self.history.take());
        Ok(())
    }

    fn change_memory(&mut self) {
        self.evicts = !self.evicts;
        let memory = if self.evicts { "1" } else { "0" };
        self.story.push(format!("(maxmemory {memory})"));
        let worker = &mut self.stage.workers[0];
        let mut session = worker.connect();
        worker.feed(&mut session, &encode(&["CONFIG", "SET", "maxmemory", memory]));
        worker.disconnect(session);
    }

    /// Notes what was logged and heard, and what is there.
    fn look(&mut self, several: bool) -> Result<(), String> {
        let mut bytes = Vec::new();
        let mut numbers = Vec::new();
        let heard = heard(&self.stage.listener.messages());
        let state: Digest = self.stage.workers[0].digest();
        while let Some(number) = self.stage.records.next(&mut bytes) {
            numbers.push(number);
            self.note(number, std::mem::take(&mut bytes));
        }
        let last = self.stage.records.last();
        let Self { history, making, .. } = self;
        let kept = history.iter_mut().chain(making.as_mut().map(|making| &mut making.behind));
        for history in kept {
            history.heard.extend(heard.iter().map(|heard| (last, heard.clone())));
            if several {
                history.unseen.extend(numbers.iter().filter(|&&number| number < last));
            }
            let before = *history.states.entry(last).or_insert(state);
            if before != state {
                return Err(format!("something changed behind {last} and is not logged"));
            }
        }
        if numbers.len() > 1 && !several {
            return Err(format!("one unit became the records {numbers:?}"));
        }
        self.last = last;
        Ok(())
    }

    fn note(&mut self, number: u64, bytes: Vec<u8>) {
        self.story.push(format!("    {number}: {}", shown(&bytes)));
        let Self { history, making, .. } = self;
        for history in history.iter_mut().chain(making.as_mut().map(|making| &mut making.behind)) {
            if number > history.number {
                history.records.push((number, bytes.clone()));
            }
        }
    }
}

fn shown(bytes: &[u8]) -> String {
    let text = String::from_utf8_lossy(&bytes[..bytes.len().min(600)]).into_owned();
    let words = text.split("\r\n").filter(|word| !word.starts_with(['*', '$']));
    words.collect::<Vec<_>>().join(" ")
}

/// The names of units in messages.
pub fn heard(bytes: &[u8]) -> Vec<String> {
    let text = String::from_utf8_lossy(bytes);
    let lines = text.split("\r\n").filter(|line| line.starts_with("unit-"));
    lines.map(str::to_owned).collect()
}
