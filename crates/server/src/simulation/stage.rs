//! A process that plays seeds of `promises`, and another one that reads what crashes leave; and
//! what sees into them.

use bobbin_store::value::List;
use bobbin_store::value::listpack::Item;

use super::disk::Disk;
use super::process::SimulatedProcess;
use super::reply::ParsedReply;
use super::tasks;
use crate::embedded::{Embedded, EmbeddedSession};
use crate::persistence::aof;

pub const WORKERS: usize = 2;

/// A process for many seeds, and another one that starts from what a crash leaves.
pub struct CrashStage {
    pub process: SimulatedProcess,
    pub within: Within,
    pub reader: SimulatedProcess,
    pub read: Within,
}

/// An observer that sees all keys and waits for nothing.
pub struct Within {
    pub embedded: Embedded,
    pub session: EmbeddedSession,
}

impl Within {
    pub fn new(process: &SimulatedProcess) -> Self {
        let mut embedded = process.observer();
        let session = embedded.connect();
        Self { embedded, session }
    }

    pub fn ask(&mut self, line: &str) -> ParsedReply {
        let mut bytes =
            self.embedded.feed(&mut self.session, format!("{line}\r\n").as_bytes()).to_vec();
        ParsedReply::take(&mut bytes).expect("it is answered")
    }

    /// All tokens from one on, also those that a script has just written and made known to no
    /// client.
    pub fn tokens_from(&mut self, first: usize) -> Vec<String> {
        let data = self.embedded.data();
        data.enter();
        let key = data.key(b"tokens");
        let tokens = data.visit(key.hash.shard(), |shard| {
            let Some(database) = shard.database(0) else { return Vec::new() };
            let Some(place) = database.find(key.hash, key.bytes) else { return Vec::new() };
            let list = database.entry(place).collection::<List>().expect("it is a list");
            let text = |item: Item<'_>| match item {
                Item::Bytes(bytes) => String::from_utf8_lossy(bytes).into_owned(),
                Item::Integer(number) => number.to_string(),
            };
            list.range(first.min(list.len())..list.len()).map(text).collect()
        });
        data.leave();
        tokens
    }

    pub fn ask_all(&mut self, lines: &[String]) -> Vec<ParsedReply> {
        let bytes = lines.iter().map(|line| format!("{line}\r\n")).collect::<String>();
        let mut replies = self.embedded.feed(&mut self.session, bytes.as_bytes()).to_vec();
        lines.iter().map(|_| ParsedReply::take(&mut replies).expect("it is answered")).collect()
    }

    pub fn texts(&mut self, line: &str) -> Vec<String> {
        let text = |reply: &ParsedReply| match reply {
            ParsedReply::Text(text) => Some(text.clone()),
            _ => None,
        };
        self.ask(line).leaves().into_iter().filter_map(text).collect()
    }
}

impl CrashStage {
    pub fn new(reader: Option<(SimulatedProcess, Within)>) -> Self {
        let process = SimulatedProcess::new(WORKERS);
        let mut within = Within::new(&process);
        let (reader, read) = reader.unwrap_or_else(|| {
            let reader = SimulatedProcess::new(1);
            let read = Within::new(&reader);
            (reader, read)
        });
        within.ask("CONFIG SET busy-reply-threshold 20 notify-keyspace-events Exe");
        Self { process, within, reader, read }
    }

    /// As at the start, on an empty disk.
    pub fn reset(&mut self) -> Disk {
        // What was begun comes to its end on the disk of before.
        while self.process.server.gate.is_reserved() || tasks::are_there() {
            aof::step_log(self.process.server);
            tasks::run_next();
            self.process.turns(1);
        }
        self.process.pass(1_000);
        self.within.embedded.set_time(self.process.now_ms());
        // A client that asked for the end waits for it, and so do the commands behind that.
        for line in ["CONFIG SET appendonly no maxmemory 0", "CLIENT UNPAUSE", "SHUTDOWN ABORT"] {
            self.within.ask(line);
        }
        for _ in 0..3 {
            aof::step_log(self.process.server);
            while tasks::run_next().is_some() {}
            // A disk that hung is trusted again.
            self.process.pass(700_000);
            self.process.turns(2);
        }
        self.within.ask("FLUSHALL");
        self.within.ask("FUNCTION FLUSH");
        let disk = Disk::default();
        Disk::put_in(Some(disk.clone()));
        disk
    }
}
