//! The bytes of a snapshot, from a cut that is walked beside the clients or from a keyspace that
//! stands still.

use std::io::{self, Write};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::time::Duration;

use bobbin_dump::rdb::{Format, Usage, Writer};
use bobbin_store::{AccessPolicy, Cut, CutDatabase, EntryRef, Piece, SHARDS};

use super::position::StreamPosition;
use crate::base::clock::system_ms;
use crate::base::cores::{self, CoreWork};
use crate::engine::command::Data;
use crate::engine::server::{Server, VERSION, background};

/// What a snapshot is for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Purpose {
    /// A file of its own, and where the stream of replication was.
    File(Option<StreamPosition>),
    /// The beginning of a log, likewise.
    LogBase(Option<StreamPosition>),
    /// What a replica begins with. What it reads then is about this database, unless the stream
    /// says at once which one it is about.
    Copy { database: Option<u32>, functions: bool, format: Format },
}

/// Writes a cut. `data` is the calling thread's, which holds nothing and has not entered; it walks
/// the cut to its end whatever happens, so that another may follow. `keys_written` counts along.
///
/// An aborted cut ends in an error of the kind `Interrupted`.
pub fn write(
    server: &'static Server,
    data: &mut Data,
    cut: Cut,
    purpose: Purpose,
    keys_written: &AtomicU64,
    file: &mut impl Write,
) -> io::Result<()> {
    let mut body = Body::new(server, cut.has_expiring_fields(), purpose, cut.databases().to_vec());
    walk(server, data, cut, |pieces| body.pieces(pieces, keys_written, file))?;
    body.finish(file)
}

/// Writes everything but keys.
pub fn write_without_keys(
    server: &'static Server,
    purpose: Purpose,
    file: &mut impl Write,
) -> io::Result<()> {
    Body::new(server, false, purpose, Vec::new()).finish(file)
}

/// Hands the pieces of a cut on until they are all or an error comes; then the cut is aborted. As
/// with `write` it is walked to its end whatever happens.
pub fn walk(
    server: &'static Server,
    data: &mut Data,
    mut cut: Cut,
    mut take: impl FnMut(&[Piece]) -> io::Result<()>,
) -> io::Result<()> {
    let (handle, hasher) = (cut.handle(), server.keyspace.hasher());
    let mut pieces = Vec::new();
    let mut outcome = Ok(());
    loop {
        data.enter();
        let visit =
            |index, walk: &mut dyn FnMut(&mut bobbin_store::Shard)| data.visit(index, |s| walk(s));
        let more = cut.step(hasher, visit, PIECES, &mut pieces);
        data.leave();
        if outcome.is_ok() {
            outcome = if handle.is_aborted() {
                Err(io::Error::new(io::ErrorKind::Interrupted, "the cut was aborted"))
            } else {
                take(&pieces)
            };
            match outcome {
                Ok(()) => slow_down(server, pieces.len(), || !handle.is_aborted()),
                Err(_) => handle.abort(),
            }
        }
        pieces.clear();
        if !more {
            return outcome;
        }
        cores::give_way();
    }
}

/// A thread for what walks a cut. It is there before the cut begins: if no thread walked a cut,
/// every writer would keep copies for it for ever.
pub struct Beside(Sender<Box<dyn FnOnce() + Send>>);

impl Beside {
    /// Makes the thread. That it cannot be made is an ordinary event.
    pub fn start(name: &str, work: CoreWork) -> io::Result<Self> {
        let (give, task) = channel::<Box<dyn FnOnce() + Send>>();
        // Nothing comes where no cut was begun.
        let run = move || task.recv().into_iter().for_each(|task| task());
        background::start(name, work, run)?;
        Ok(Self(give))
    }

    pub fn run(self, task: impl FnOnce() + Send + 'static) {
        // The thread waits for it.
        drop(self.0.send(Box::new(task)));
    }
}

/// What walks a cut. The cut was begun, so it has to be walked: while there are too many threads
/// this waits.
pub fn walker(server: &'static Server) -> Data {
    loop {
        if let Some(mut data) = Data::new(&server.keyspace, &server.gate, 0) {
            data.turn.now_ms = server.clock.now_ms();
            return data;
        }
        std::thread::sleep(THREAD_WAIT);
    }
}

/// Writes all keys as they are. `data` holds the gate.
pub fn write_held(
    server: &'static Server,
    data: &mut Data,
    position: Option<StreamPosition>,
    file: &mut impl Write,
) -> io::Result<()> {
    let mut databases: Vec<CutDatabase> = Vec::new();
    let mut has_expiring_fields = false;
    for index in 0..SHARDS {
        data.visit(index, |shard| {
            for number in 0..shard.databases() {
                let Some(database) = shard.database(number).filter(|d| !d.is_empty()) else {
                    continue;
                };
                has_expiring_fields |= database.may_have_expiring_fields();
                CutDatabase::add(&mut databases, number, database);
            }
        });
    }
    let numbers: Vec<_> = databases.iter().map(|database| database.number).collect();
    let mut body = Body::new(server, has_expiring_fields, Purpose::File(position), databases);
    for number in numbers {
        for index in 0..SHARDS {
            let keys = data.visit(index, |shard| {
                let Some(database) = shard.database(number) else { return io::Result::Ok(0) };
                for entry in database.table().iter() {
                    body.key(number, entry);
                    // One large value at a time.
                    body.flush_if_full(file)?;
                }
                Ok(database.len())
            })?;
            slow_down(server, keys, || true);
        }
    }
    body.finish(file)
}

/// Whether there may be hashes with fields that expire. `data` holds the gate.
pub fn has_expiring_fields(data: &mut Data) -> bool {
    (0..SHARDS).any(|index| {
        data.visit(index, |shard| {
            let databases = (0..shard.databases()).filter_map(|number| shard.database(number));
            databases.into_iter().any(|database| database.may_have_expiring_fields())
        })
    })
}

/// A file that is being written.
pub(crate) struct Body {
    writer: Writer,
    databases: Vec<CutDatabase>,
    database: Option<u32>,
    /// Databases whose sizes are written.
    sized: Vec<u32>,
    server: &'static Server,
    policy: Option<AccessPolicy>,
}

impl Body {
    pub(crate) fn new(
        server: &'static Server,
        has_expiring_fields: bool,
        purpose: Purpose,
        databases: Vec<CutDatabase>,
    ) -> Self {
        let format = match purpose {
            Purpose::Copy { format, .. } => format,
            _ if has_expiring_fields => Format::Valkey,
            _ => Format::Shared,
        };
        let config = &server.config;
        let mut writer = Writer::new(format, config.rdbcompression(), config.rdbchecksum());
        writer.aux("bobbin-ver", VERSION.as_bytes());
        writer.aux("redis-bits", usize::BITS.to_string().as_bytes());
        writer.aux("ctime", (system_ms() / 1000).to_string().as_bytes());
        writer.aux("used-mem", crate::base::memory::used().to_string().as_bytes());
        match purpose {
            Purpose::File(Some(position)) | Purpose::LogBase(Some(position)) => {
                let StreamPosition { id, offset, database } = position;
                writer.aux("repl-stream-db", database.to_string().as_bytes());
                writer.aux("repl-id", id.as_str().as_bytes());
                writer.aux("repl-offset", offset.to_string().as_bytes());
            }
            Purpose::Copy { database: Some(database), .. } => {
                writer.aux("repl-stream-db", database.to_string().as_bytes());
            }
            Purpose::File(None) | Purpose::LogBase(None) | Purpose::Copy { .. } => {}
        }
        let is_base = matches!(purpose, Purpose::LogBase(_));
        writer.aux("aof-base", if is_base { b"1" } else { b"0" });
        if !matches!(purpose, Purpose::Copy { functions: false, .. }) {
            for library in server.functions.all() {
                writer.function(&library.source);
            }
        }
        let policy = config.maxmemory_policy();
        let policy = policy.looks_at_use().then(|| server.access_policy());
        Self { writer, databases, database: None, sized: Vec::new(), server, policy }
    }

    pub(crate) fn pieces(
        &mut self,
        pieces: &[Piece],
        keys_written: &AtomicU64,
        file: &mut impl Write,
    ) -> io::Result<()> {
        for piece in pieces {
            self.key(piece.database, piece.entry.as_ref());
            self.flush_if_full(file)?;
        }
        keys_written.fetch_add(pieces.len() as u64, Ordering::Relaxed);
        Ok(())
    }

    fn key(&mut self, database: u32, entry: EntryRef<'_>) {
        if self.database != Some(database) {
            self.database = Some(database);
            self.writer.database(database);
            if !self.sized.contains(&database) {
                self.sized.push(database);
                let sizes = self.databases.iter().find(|sizes| sizes.number == database);
                if let Some(sizes) = sizes {
                    self.writer.sizes(sizes.keys, sizes.expiring);
                }
            }
        }
        let usage = match self.policy {
            None => Usage::Unknown,
            Some(policy) => {
                let clock = bobbin_store::AccessClock::new(policy, self.server.clock.now_ms());
                match policy {
                    AccessPolicy::Lru => Usage::IdleSeconds(clock.idle_seconds(entry.access())),
                    AccessPolicy::Lfu { .. } => {
                        Usage::Frequency(clock.frequency(entry.access()).min(255) as u8)
                    }
                }
            }
        };
        self.writer.key(entry.key(), entry.value(), entry.expire_ms(), usage);
    }

    fn flush_if_full(&mut self, file: &mut impl Write) -> io::Result<()> {
        if self.writer.pending() >= FLUSH_BYTES {
            self.writer.flush(|bytes| file.write_all(bytes))?;
        }
        Ok(())
    }

    pub(crate) fn finish(mut self, file: &mut impl Write) -> io::Result<()> {
        self.writer.finish();
        self.writer.flush(|bytes| file.write_all(bytes))
    }
}

/// Slows a save down by `rdb-key-save-delay`, for tests. A positive value is the microseconds for
/// each key. A negative value is the number of keys for each microsecond.
fn slow_down(server: &Server, keys: usize, goes_on: impl Fn() -> bool) {
    let delay_us = server.config.rdb_key_save_delay();
    if delay_us == 0 || keys == 0 {
        return;
    }
    let keys = keys as u64;
    let mut left_us = match u64::try_from(delay_us) {
        Ok(us) => us * keys,
        Err(_) => keys / delay_us.unsigned_abs().max(1),
    };
    while left_us > 0 && goes_on() && server.config.rdb_key_save_delay() == delay_us {
        let us = left_us.min(DELAY_SLICE_US);
        std::thread::sleep(Duration::from_micros(us));
        left_us -= us;
    }
}

const THREAD_WAIT: Duration = Duration::from_millis(10);
/// Keys that are copied while a shard is held.
const PIECES: usize = 128;
/// Bytes that are written at once.
const FLUSH_BYTES: usize = 256 * 1024;
/// How long a delay goes on after it is not wanted any more.
const DELAY_SLICE_US: u64 = 10_000;
