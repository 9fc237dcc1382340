//! Snapshots: RDB files that are written while clients are served, and read at the start.
//!
//! `save` writes a file in a thread of its own. There `walk` visits a cut of the keyspace, and
//! `snapshot` turns the entries into the bytes of the file. `points` decides when a save is due,
//! and `load` reads a file. This file has the state that they share and that INFO shows.

pub mod aof;

pub mod load;
pub mod passing;
pub mod points;
pub mod position;
pub mod save;
pub mod snapshot;
pub mod walk;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU32, AtomicU64, Ordering};

use bobbin_store::CutHandle;
use bobbin_sync::{Condvar, Mutex};

use crate::base::clock::Interval;
use crate::engine::blocking::Waiter;
use crate::engine::log::history::HistoryId;
use crate::engine::server::Server;

use self::position::StreamPosition;
pub use load::{Existing, LoadRules, Loaded};
pub use save::{NotBegun, remove_unfinished, unfinished_path};

/// The state of saving and loading snapshots.
pub struct Persistence {
    running: Mutex<Option<RunningSave>>,
    /// The cut of the current save. It is taken out when the file gets its name, or when the save
    /// is aborted on request. This is locked while the file is renamed, so an abort is either in
    /// time or finds the file in its place.
    unnamed: Mutex<Option<CutHandle>>,
    /// Notified when a save has ended.
    ended: Condvar,
    /// The server is about to end, so neither a save nor a rewrite of the log begins.
    is_paused: AtomicBool,
    /// BGSAVE SCHEDULE: a save is to begin as soon as possible.
    scheduled: AtomicBool,
    /// FLUSHALL in a transaction has deleted what the file still has. A save is to begin as soon as
    /// possible, and another one until one has succeeded.
    is_owed: AtomicBool,
    /// Clients of SAVE that wait for the next save, because the log is being rewritten, or other
    /// clients wait for the current save.
    waiting: Mutex<Vec<Arc<Waiter>>>,
    /// How many of the changes that the workers have counted are in the last snapshot.
    saved_changes: AtomicU64,
    pub last_save_s: AtomicI64,
    last_try_ms: AtomicI64,
    /// -1: there was no save.
    pub last_duration_s: AtomicI64,
    pub saves: AtomicU64,
    /// How many copies for replicas are being written.
    pub copies: AtomicU32,
    /// Keys that the current save, or rewrite of the log, has written.
    pub written_keys: AtomicU64,
    /// When to check the save points again.
    looks: Interval,
    pub loading: FileLoading,
}

/// A save in progress.
struct RunningSave {
    cut: CutHandle,
    started_ms: i64,
    keys: u64,
    /// How many of the changes that the workers have counted are in its snapshot.
    changes: u64,
    /// Clients wait for it: it is a SAVE.
    is_waited_for: bool,
}

/// The progress of loading a file.
pub struct FileLoading {
    pub started_s: AtomicI64,
    pub total_bytes: AtomicU64,
    pub loaded_bytes: AtomicU64,
    /// The database that the replication stream has selected behind the file.
    pub stream_database: AtomicU32,
    /// The history and the offset of the replication stream that the file gives.
    pub history: Mutex<Option<HistoryId>>,
    pub offset: Mutex<Option<u64>>,
    /// How much memory the server that wrote the file used, in bytes.
    pub used_memory: AtomicU64,
    pub last_keys_loaded: AtomicU64,
    pub last_keys_expired: AtomicU64,
}

impl FileLoading {
    /// Sets the stream's position.
    pub fn set_position(&self, position: StreamPosition) {
        *self.history.lock() = Some(position.id);
        *self.offset.lock() = Some(position.offset);
        self.stream_database.store(position.database, Ordering::Relaxed);
    }

    /// The stream's position, if the file gave all of it.
    pub fn position(&self) -> Option<StreamPosition> {
        let database = self.stream_database.load(Ordering::Relaxed);
        let (id, offset) = ((*self.history.lock())?, (*self.offset.lock())?);
        Some(StreamPosition { id, offset, database })
    }
}

impl Persistence {
    pub fn of(server: &Server) -> &Self {
        server.parts.get()
    }

    pub fn new(now_ms: i64) -> Self {
        Self {
            running: Mutex::new(None),
            unnamed: Mutex::new(None),
            ended: Condvar::new(),
            is_paused: AtomicBool::new(false),
            scheduled: AtomicBool::new(false),
            is_owed: AtomicBool::new(false),
            waiting: Mutex::default(),
            saved_changes: AtomicU64::new(0),
            last_save_s: AtomicI64::new(now_ms / 1000),
            last_try_ms: AtomicI64::new(0),
            last_duration_s: AtomicI64::new(-1),
            saves: AtomicU64::new(0),
            copies: AtomicU32::new(0),
            written_keys: AtomicU64::new(0),
            looks: Interval::default(),
            loading: FileLoading {
                started_s: AtomicI64::new(0),
                total_bytes: AtomicU64::new(0),
                loaded_bytes: AtomicU64::new(0),
                stream_database: AtomicU32::new(0),
                history: Mutex::default(),
                offset: Mutex::default(),
                used_memory: AtomicU64::new(0),
                last_keys_loaded: AtomicU64::new(0),
                last_keys_expired: AtomicU64::new(0),
            },
        }
    }

    /// Has no save and no rewrite of the log begin, because the server is about to end. The caller
    /// holds the gate, so none is beginning at this moment.
    pub fn pause(&self) {
        self.is_paused.store(true, Ordering::Relaxed);
    }

    /// Has what is due begin again, because the server does not end.
    pub fn go_on(&self) {
        self.is_paused.store(false, Ordering::Relaxed);
    }

    /// Whether a save in the background is in progress. SAVE without a thread does not count.
    pub fn is_saving(&self) -> bool {
        self.running.lock().is_some()
    }

    /// Whether a snapshot is being written in the background, by a save or for replicas.
    pub fn is_writing(&self) -> bool {
        self.is_saving() || self.copies.load(Ordering::Relaxed) > 0
    }

    /// How many keys the current save has to write, and when it began (Unix ms).
    pub fn current(&self) -> Option<(u64, i64)> {
        self.running.lock().as_ref().map(|running| (running.keys, running.started_ms))
    }

    /// How many of the `changes` that the workers have counted are in no snapshot.
    pub fn unsaved(&self, changes: u64) -> u64 {
        changes.wrapping_sub(self.saved())
    }

    /// How many changes are in the last snapshot.
    pub fn saved(&self) -> u64 {
        self.saved_changes.load(Ordering::Relaxed)
    }

    /// Sets how many changes are saved or need no saving.
    pub fn set_saved(&self, changes: u64) {
        self.saved_changes.store(changes, Ordering::Relaxed);
    }

    /// Adjusts to the workers' counters restarting from 0; `changes` is what they had counted.
    pub fn forget_counts(&self, changes: u64) {
        let mut running = self.running.lock();
        if let Some(running) = &mut *running {
            running.changes = running.changes.wrapping_sub(changes);
        }
        self.set_saved(self.saved().wrapping_sub(changes));
    }

    /// Notes that the current save has written what it was to write.
    fn set_saved_by_running(&self) {
        if let Some(running) = &*self.running.lock() {
            self.set_saved(running.changes);
        }
    }
}
