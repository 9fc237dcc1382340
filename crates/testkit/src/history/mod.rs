//! Makes a concurrent history: clients that hammer a few keys and note what they saw, when.

mod draw;
pub mod linearizability;
mod whole;

use std::io;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use crate::{ReplyFrame, TestConnection};
use draw::Draw;
use linearizability::{HistoryCommand, Operation, OperationRecord, check, key_name};

pub use draw::{GROUP_KEYS, GroupType};
pub use whole::prepare;

/// What to run.
#[derive(Debug, Clone)]
pub struct HistoryLoad {
    pub clients: usize,
    /// Batches each client sends; a batch is one to [`BATCH_MAX`] operations in one write.
    pub batches: usize,
    /// Groups of [`GROUP_KEYS`] keys. Operations on several keys stay within a group, so that the
    /// checker can judge the groups apart.
    pub groups: usize,
    /// What the groups' keys hold, in turn.
    pub kinds: Vec<GroupType>,
    /// Among them are operations on very many keys, on all, and pauses: see [`prepare`].
    pub whole: bool,
    pub seed: u64,
}

/// Runs the load against an empty server and returns what was seen.
pub fn run_history(address: SocketAddr, load: &HistoryLoad) -> io::Result<Vec<OperationRecord>> {
    let origin = Instant::now();
    let mut history = Vec::new();
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..load.clients)
            .map(|client| scope.spawn(move || Client::run(address, client, load, origin)))
            .collect();
        for worker in workers {
            let records =
                worker.join().unwrap_or_else(|_| Err(io::Error::other("a client panicked")))?;
            history.extend(records);
        }
        Ok(history)
    })
}

/// Runs the load, checks what came of it, and panics with the seed and the operations around the
/// fault when there is no order that explains it. Returns the number of operations.
pub fn assert_linearizable(address: SocketAddr, load: &HistoryLoad) -> usize {
    let history = run_history(address, load)
        .unwrap_or_else(|error| panic!("{load:?}: a client was disturbed: {error}"));
    if let Err(violation) = check(&history) {
        panic!(
            "not linearizable: {load:?}\nkeys {:?}, {} operations explained, then:\n{}",
            violation.keys, violation.explained, violation.around
        );
    }
    eprintln!("{} operations have an order", history.len());
    history.len()
}

struct Client<'a> {
    number: usize,
    connection: TestConnection,
    draw: Draw,
    load: &'a HistoryLoad,
    origin: Instant,
    records: Vec<OperationRecord>,
}

impl<'a> Client<'a> {
    fn run(
        address: SocketAddr,
        number: usize,
        load: &'a HistoryLoad,
        origin: Instant,
    ) -> io::Result<Vec<OperationRecord>> {
        let mut client = Self {
            number,
            connection: TestConnection::open(address)?,
            draw: Draw::new(number, load.seed),
            load,
            origin,
            records: Vec::new(),
        };
        for _ in 0..load.batches {
            let (kind, group) = client.group();
            if load.whole && client.draw.random.below(WHOLE_EVERY) == 0 {
                client.whole(group)?;
            } else if kind == GroupType::Strings
                && client.draw.random.below(COMPARE_AND_SET_EVERY) == 0
            {
                client.compare_and_set(group)?;
            } else {
                client.batch()?;
            }
        }
        Ok(client.records)
    }

    /// Operations in one write, their replies one after the other.
    fn batch(&mut self) -> io::Result<()> {
        let count = 1 + self.draw.random.below(BATCH_MAX);
        let operations: Vec<_> = (0..count).map(|_| self.operation()).collect();
        let mut bytes = Vec::new();
        for operation in &operations {
            encode(operation, &mut bytes);
        }
        let start_ns = self.now();
        self.connection.send_raw(&bytes)?;
        for operation in operations {
            if let Operation::Transaction(commands) = &operation {
                self.expect("OK")?;
                for _ in commands {
                    self.expect("QUEUED")?;
                }
            }
            let reply = self.connection.receive()?;
            self.note(start_ns, operation, reply);
        }
        Ok(())
    }

    /// WATCH, GET, MULTI, SET, EXEC.
    fn compare_and_set(&mut self, group: usize) -> io::Result<()> {
        let key = self.draw.key(group);
        let value = self.draw.value();
        let name = key_name(key);
        self.connection.send(&[b"WATCH", name.as_slice()])?;
        self.expect("OK")?;
        let start_ns = self.now();
        let reply = self.connection.call(&[b"GET", name.as_slice()])?;
        let seen = reply.bytes().map(<[u8]>::to_vec);
        self.note(start_ns, Operation::Single(HistoryCommand::Get(key)), reply);
        if self.draw.random.below(2) == 0 {
            std::thread::sleep(Duration::from_micros(self.draw.random.below(200) as u64));
        }
        let start_ns = self.now();
        let mut bytes = Vec::new();
        encode(&Operation::Transaction(vec![HistoryCommand::Set(key, value.clone())]), &mut bytes);
        self.connection.send_raw(&bytes)?;
        self.expect("OK")?;
        self.expect("QUEUED")?;
        let reply = self.connection.receive()?;
        if !reply.is_null() {
            self.note(start_ns, Operation::CompareAndSet { key, seen, value }, reply);
        }
        Ok(())
    }

    fn operation(&mut self) -> Operation {
        let (kind, group) = self.group();
        if self.draw.random.below(8) == 0 {
            let count = 1 + self.draw.random.below(4);
            let commands = (0..count).map(|_| self.draw.command(kind, group)).collect();
            return Operation::Transaction(commands);
        }
        Operation::Single(self.draw.command(kind, group))
    }

    /// Any group, and what its keys hold.
    fn group(&mut self) -> (GroupType, usize) {
        let group = self.draw.random.below(self.load.groups);
        (self.load.kinds[group % self.load.kinds.len()], group)
    }

    fn expect(&mut self, text: &str) -> io::Result<()> {
        let reply = self.connection.receive()?;
        if reply == ReplyFrame::simple(text) {
            return Ok(());
        }
        Err(io::Error::other(format!("expected {text}, got {reply:?}")))
    }

    fn note(&mut self, start_ns: u64, operation: Operation, reply: ReplyFrame) {
        let end_ns = self.now();
        self.records.push(OperationRecord {
            client: self.number,
            start_ns,
            end_ns,
            operation,
            reply,
        });
    }

    fn now(&self) -> u64 {
        self.origin.elapsed().as_nanos() as u64
    }
}

fn encode(operation: &Operation, output: &mut Vec<u8>) {
    let mut command = |arguments: &[Vec<u8>]| {
        crate::connection::encode_command(arguments, output);
    };
    match operation {
        Operation::Single(single) => command(&single.arguments()),
        Operation::Transaction(commands) => {
            command(&[b"MULTI".to_vec()]);
            for queued in commands {
                command(&queued.arguments());
            }
            command(&[b"EXEC".to_vec()]);
        }
        // These are sent step by step.
        Operation::CompareAndSet { .. } | Operation::Flush | Operation::Swap => {}
    }
}

/// Operations in one write.
pub const BATCH_MAX: usize = 4;
const COMPARE_AND_SET_EVERY: usize = 10;
const WHOLE_EVERY: usize = 8;
