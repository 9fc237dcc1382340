//! Workers that are at it at once, each in a thread of its own.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use bobbin_server::embedded::records::LogRecords;
use bobbin_server::embedded::{Embedded, EmbeddedProcess, EmbeddedSession};

use super::crash::{Checker, LoggedHistory, weigh};
use super::load::{library, single, unit};
use super::turns::heard;
use super::{below, encode, process, random, words};

const WORKERS: u64 = 4;
const UNITS: usize = 60;
const BASES: usize = 3;

/// Bases, each with the last record that it holds.
type Bases = Vec<(Option<Vec<u8>>, u64)>;

pub struct ThreadStage {
    process: EmbeddedProcess,
    keeper: Embedded,
    session: EmbeddedSession,
    records: LogRecords,
    checker: Checker,
    units: AtomicU64,
}

impl ThreadStage {
    pub fn new() -> Self {
        let process = process();
        let mut keeper = process.worker(1).expect("there are threads for all");
        keeper.set_time(1_700_000_000_000);
        let mut session = keeper.connect();
        let asked = words("CONFIG SET notify-keyspace-events Eg busy-reply-threshold 0");
        keeper.feed(&mut session, &encode(&asked));
        let (records, checker) = (process.records(), Checker::new());
        Self { process, keeper, session, records, checker, units: AtomicU64::new(0) }
    }

    pub fn play(&mut self, seed: u64) -> Result<(), String> {
        self.process.log(false);
        self.keeper.feed(&mut self.session, &encode(&words("FLUSHALL")));
        self.keeper.feed(&mut self.session, &encode(&library()));
        self.process.log(true);
        self.records.begin_file();
        let mut whole =
            LoggedHistory { number: self.records.last(), seed, ..LoggedHistory::default() };
        let bases = self.work(seed, &mut whole)?;
        let mut bytes = Vec::new();
        while let Some(number) = self.records.next(&mut bytes) {
            whole.records.push((number, std::mem::take(&mut bytes)));
        }
        let last = whole.records.last().map_or(whole.number, |(number, _)| *number);
        if last != self.records.last() {
            return Err(format!("{last} is the last record of {}", self.records.last()));
        }
        weigh(&mut self.keeper, &mut self.session)?;
        let state = self.keeper.digest();
        self.checker.weigh_all(&whole)?;
        for (base, number) in [(None, whole.number)].into_iter().chain(bases) {
            let (before, behind): (Vec<_>, Vec<_>) =
                whole.records.iter().cloned().partition(|(at, _)| *at <= number);
            // A file of its own would begin with the database that its first record is about.
            let selected = before.iter().rev().find_map(|(_, bytes)| last_select(bytes));
            let begin = selected.map(|select| (number, select));
            let records = begin.into_iter().chain(behind).collect();
            let history = LoggedHistory { base, number, records, ..LoggedHistory::default() };
            if self.checker.digest_at_end(&history)? != state {
                return Err(format!("the base of {number} and what follows make another state"));
            }
        }
        for (last, name) in &whole.heard {
            let named = |bytes: &[u8]| bytes.windows(name.len()).any(|w| w == name.as_bytes());
            let cause = whole.records.iter().find(|(_, bytes)| named(bytes));
            if cause.is_none_or(|(number, _)| number > last) {
                return Err(format!("{name} was heard at {last}, and is logged later"));
            }
        }
        Ok(())
    }

    /// Has all workers do their units; the bases that were made meanwhile.
    fn work(&mut self, seed: u64, whole: &mut LoggedHistory) -> Result<Bases, String> {
        let Self { process, records, units, .. } = self;
        let (process, units, done) = (*process, &*units, AtomicBool::new(false));
        std::thread::scope(|scope| {
            let workers: Vec<_> = (0..WORKERS)
                .map(|number| {
                    scope.spawn(move || send_units(process, seed * WORKERS + number, units))
                })
                .collect();
            let (done, records) = (&done, &*records);
            let listener = scope.spawn(move || listen(process, records, done));
            let mut bases = Vec::new();
            for _ in 0..BASES {
                let (mut base, number) = self.keeper.begin_base();
                while self.keeper.step_base(&mut base) {
                    std::thread::yield_now();
                }
                bases.push((Some(base.finish()), number));
            }
            workers.into_iter().for_each(|worker| worker.join().expect("it ends"));
            done.store(true, Ordering::SeqCst);
            whole.heard = listener.join().expect("it ends");
            Ok(bases)
        })
    }
}

/// The last command of these that selects a database.
fn last_select(bytes: &[u8]) -> Option<Vec<u8>> {
    let begin = b"*2\r\n$6\r\nSELECT\r\n";
    let at = bytes.windows(begin.len()).rposition(|window| window == begin)?;
    Some(bytes[at..at + begin.len() + b"$1\r\n0\r\n".len()].to_vec())
}

fn send_units(process: EmbeddedProcess, seed: u64, units: &AtomicU64) {
    let mut worker = process.worker(seed).expect("there are threads for all");
    worker.set_time(1_700_000_000_000);
    let (mut session, mut random) = (worker.connect(), random(seed));
    for _ in 0..UNITS {
        let number = units.fetch_add(1, Ordering::Relaxed);
        let mut requests = unit(&mut random, number);
        requests.push(single(&mut random));
        match below(&mut random, 60) {
            0 => requests.push(words("SWAPDB 0 1")),
            1 => requests.push(words("FLUSHALL")),
            2 => requests.push(words("SELECT 1")),
            _ => requests.push(words("APPEND hot:0 x")),
        }
        for request in requests {
            worker.feed(&mut session, &encode(&request));
        }
        // In its own order, so that an exchange shows.
        worker.feed(&mut session, &encode(&words(&format!("RPUSH hot:1 {number}"))));
    }
    worker.disconnect(session);
}

/// What is heard, and the last record at that time.
fn listen(process: EmbeddedProcess, records: &LogRecords, done: &AtomicBool) -> Vec<(u64, String)> {
    let mut listener = process.worker(0).expect("there are threads for all");
    let mut session = listener.connect();
    for channel in ["units", "__keyevent@0__:del"] {
        listener.feed(&mut session, &encode(&["SUBSCRIBE", channel]));
    }
    let mut all = Vec::new();
    loop {
        let is_over = done.load(Ordering::SeqCst);
        let messages = listener.messages();
        let last = records.last();
        all.extend(heard(&messages).into_iter().map(|name| (last, name)));
        if is_over && messages.is_empty() {
            break;
        }
        std::thread::yield_now();
    }
    listener.disconnect(session);
    all
}
