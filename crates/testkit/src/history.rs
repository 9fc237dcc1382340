//! Makes a concurrent history: clients that hammer a few keys and note what they saw, when.

use std::io;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use crate::linearizability::{Command, Key, Operation, Record, check, key_name};
use crate::random::Random;
use crate::{Connection, Reply};

/// What to run.
#[derive(Debug, Clone)]
pub struct Load {
    pub clients: usize,
    /// Batches each client sends; a batch is one to [`BATCH_MAX`] operations in one write.
    pub batches: usize,
    /// Groups of [`GROUP_KEYS`] keys. Operations on several keys stay within a group, so that the
    /// checker can judge the groups apart.
    pub groups: usize,
    pub seed: u64,
}

/// Runs the load against an empty server and returns what was seen.
pub fn run_history(address: SocketAddr, load: &Load) -> io::Result<Vec<Record>> {
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
pub fn assert_linearizable(address: SocketAddr, load: &Load) -> usize {
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
    connection: Connection,
    random: Random,
    load: &'a Load,
    origin: Instant,
    /// Values are never written twice, so that a read tells which write it saw.
    values: u64,
    records: Vec<Record>,
}

impl<'a> Client<'a> {
    fn run(
        address: SocketAddr,
        number: usize,
        load: &'a Load,
        origin: Instant,
    ) -> io::Result<Vec<Record>> {
        let mut client = Self {
            number,
            connection: Connection::open(address)?,
            random: Random::new(load.seed ^ (number as u64 + 1).wrapping_mul(0x9e37_79b9)),
            load,
            origin,
            values: 0,
            records: Vec::new(),
        };
        for _ in 0..load.batches {
            if client.random.below(COMPARE_AND_SET_EVERY) == 0 {
                client.compare_and_set()?;
            } else {
                client.batch()?;
            }
        }
        Ok(client.records)
    }

    /// Operations in one write, their replies one after the other.
    fn batch(&mut self) -> io::Result<()> {
        let count = 1 + self.random.below(BATCH_MAX);
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
    fn compare_and_set(&mut self) -> io::Result<()> {
        let group = self.random.below(self.load.groups);
        let key = self.key(group);
        let value = self.value();
        let name = key_name(key);
        self.connection.send(&[b"WATCH", name.as_slice()])?;
        self.expect("OK")?;
        let start_ns = self.now();
        let reply = self.connection.call(&[b"GET", name.as_slice()])?;
        let seen = reply.bytes().map(<[u8]>::to_vec);
        self.note(start_ns, Operation::Single(Command::Get(key)), reply);
        if self.random.below(2) == 0 {
            std::thread::sleep(Duration::from_micros(self.random.below(200) as u64));
        }
        let start_ns = self.now();
        let mut bytes = Vec::new();
        encode(&Operation::Transaction(vec![Command::Set(key, value.clone())]), &mut bytes);
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
        let group = self.random.below(self.load.groups);
        if self.random.below(8) == 0 {
            let count = 1 + self.random.below(4);
            return Operation::Transaction((0..count).map(|_| self.command(group)).collect());
        }
        Operation::Single(self.command(group))
    }

    fn command(&mut self, group: usize) -> Command {
        let key = self.key(group);
        match self.random.below(20) {
            0..=4 => Command::Get(key),
            5..=7 => Command::Set(key, self.value()),
            8 => Command::Set(key, self.random.below(1000).to_string().into_bytes()),
            9 => Command::SetNx(key, self.value()),
            10..=12 => Command::Incr(key),
            13 => Command::Append(key, self.value()),
            14 => Command::GetDel(key),
            15 => Command::Del(self.keys(group)),
            16..=17 => Command::MGet(self.keys(group)),
            _ => {
                let keys = self.keys(group);
                Command::MSet(keys.into_iter().map(|key| (key, self.value())).collect())
            }
        }
    }

    fn key(&mut self, group: usize) -> Key {
        (group * GROUP_KEYS + self.random.below(GROUP_KEYS)) as Key
    }

    /// One to three keys of a group, each once, in any order.
    fn keys(&mut self, group: usize) -> Vec<Key> {
        let mut keys = Vec::new();
        for _ in 0..=self.random.below(GROUP_KEYS) {
            let key = self.key(group);
            if !keys.contains(&key) {
                keys.push(key);
            }
        }
        keys
    }

    /// Now and then a value that does not fit beside its key.
    fn value(&mut self) -> Vec<u8> {
        self.values += 1;
        let mut value = format!("{}.{}", self.number, self.values).into_bytes();
        if self.random.below(16) == 0 {
            value.resize(200 + self.random.below(400), b'.');
        }
        value
    }

    fn expect(&mut self, text: &str) -> io::Result<()> {
        let reply = self.connection.receive()?;
        if reply == Reply::simple(text) {
            return Ok(());
        }
        Err(io::Error::other(format!("expected {text}, got {reply:?}")))
    }

    fn note(&mut self, start_ns: u64, operation: Operation, reply: Reply) {
        let end_ns = self.now();
        self.records.push(Record { client: self.number, start_ns, end_ns, operation, reply });
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
        Operation::CompareAndSet { .. } => {}
    }
}

/// Keys that operations on several keys may combine.
pub const GROUP_KEYS: usize = 3;
/// Operations in one write.
pub const BATCH_MAX: usize = 4;
const COMPARE_AND_SET_EVERY: usize = 10;
