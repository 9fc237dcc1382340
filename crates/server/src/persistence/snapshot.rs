//! The bytes of a snapshot, made from a cut while clients are served, or from a keyspace that does
//! not change.

use std::io::{self, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bobbin_dump::rdb::{Format, RdbWriter, Usage};
use bobbin_store::{AccessPolicy, ByDatabase, Census, Cut, CutDatabase, EntryRef, Piece, SHARDS};

use super::position::StreamPosition;
use super::walk::{slow_down, walk};
use crate::base::clock::system_ms;
use crate::engine::command::Data;
use crate::engine::script::Library;
use crate::engine::server::{Server, VERSION};

/// What a snapshot is used for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Purpose {
    /// A snapshot file, with the position of the replication stream if it is known.
    File(Option<StreamPosition>),
    /// The base of a log, with the same position.
    LogBase(Option<StreamPosition>),
    /// The copy that a replica begins with. The stream behind it begins in this database; `None`:
    /// the stream selects its database at once.
    Copy { database: Option<u32>, format: Format },
}

/// The contents of a snapshot, as they were at one moment.
pub struct Contents {
    pub keys: Cut,
    pub libraries: Vec<Arc<Library>>,
}

impl Contents {
    /// Takes the current contents. `data` holds the gate afterwards. The caller calls
    /// `Server::end_cut` once the keys have been walked.
    ///
    /// `what` names the snapshot's use in the log, in case the cut has to be given up.
    pub fn begin(server: &Server, data: &mut Data, what: &'static str) -> Self {
        Self { keys: server.begin_cut(data, what), libraries: server.functions.all() }
    }

    /// How many keys there are.
    pub fn key_count(&self) -> u64 {
        self.keys.census().databases().iter().map(|(_, database)| database.keys as u64).sum()
    }
}

/// Writes the whole snapshot. `data` is the calling thread's; it holds no lock and is not a member
/// of the gate. The cut is walked to its end even after an error, so that another cut may follow.
/// `keys_written` counts the written keys.
///
/// An aborted cut gives an error of the kind `Interrupted`.
pub fn write(
    server: &'static Server,
    data: &mut Data,
    contents: Contents,
    purpose: Purpose,
    keys_written: &AtomicU64,
    file: &mut impl Write,
) -> io::Result<()> {
    let mut body = Body::of(server, &contents, purpose);
    walk(server, data, contents.keys, |pieces| body.pieces(pieces, keys_written, file))?;
    body.finish(file)
}

/// Writes everything except keys.
pub fn write_without_keys(
    server: &'static Server,
    libraries: &[Arc<Library>],
    purpose: Purpose,
    file: &mut impl Write,
) -> io::Result<()> {
    Body::new(server, libraries, &Census::default(), purpose).finish(file)
}

/// Writes all keys as they are. `data` holds the gate.
pub fn write_held(
    server: &'static Server,
    data: &mut Data,
    position: Option<StreamPosition>,
    file: &mut impl Write,
) -> io::Result<()> {
    let mut census = Census::default();
    for index in 0..SHARDS {
        data.visit(index, |shard| census.add_shard(index, shard));
    }
    let (libraries, purpose) = (server.functions.all(), Purpose::File(position));
    let mut body = Body::new(server, &libraries, &census, purpose);
    for part in census.take_parts() {
        let keys = data.visit(part.shard(), |shard| {
            let Some(database) = shard.database(part.number) else { return io::Result::Ok(0) };
            for entry in database.table().iter() {
                body.key(part.number, entry);
                // Flush after each value, so that memory holds one large value at a time.
                body.flush_if_full(file)?;
            }
            Ok(database.len())
        })?;
        slow_down(server, keys, || true);
    }
    body.finish(file)
}

/// Whether there are hashes with fields that expire. `data` holds the gate.
pub fn has_expiring_fields(data: &mut Data) -> bool {
    (0..SHARDS).any(|index| {
        data.visit(index, |shard| {
            shard.used().any(|(_, database)| database.with_expiring_fields() > 0)
        })
    })
}

/// A snapshot that is being written.
pub(crate) struct Body {
    writer: RdbWriter,
    /// The sizes of databases, as long as they were not written.
    sizes: ByDatabase<Option<CutDatabase>>,
    database: Option<u32>,
    server: &'static Server,
    policy: Option<AccessPolicy>,
}

impl Body {
    /// Begins a snapshot of these contents.
    pub(crate) fn of(server: &'static Server, contents: &Contents, purpose: Purpose) -> Self {
        Self::new(server, &contents.libraries, contents.keys.census(), purpose)
    }

    fn new(
        server: &'static Server,
        libraries: &[Arc<Library>],
        census: &Census,
        purpose: Purpose,
    ) -> Self {
        let format = match purpose {
            Purpose::Copy { format, .. } => format,
            _ if census.has_expiring_fields() => Format::Valkey,
            _ => Format::Shared,
        };
        let config = &server.config;
        let mut writer = RdbWriter::new(format, config.rdbcompression(), config.rdbchecksum());
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
        for library in libraries {
            writer.function(&library.source);
        }
        let policy = config.maxmemory_policy();
        let policy = policy.looks_at_use().then(|| server.access_policy());
        let mut sizes = ByDatabase::default();
        for &(number, database) in census.databases() {
            *sizes.of(number) = Some(database);
        }
        Self { writer, sizes, database: None, server, policy }
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
            if let Some(sizes) = self.sizes.get_mut(database).and_then(Option::take) {
                self.writer.sizes(sizes.keys, sizes.expiring);
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

/// How many bytes are collected before they are written.
const FLUSH_BYTES: usize = 256 * 1024;
