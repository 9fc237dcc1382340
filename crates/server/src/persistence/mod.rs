//! Snapshots: RDB files written beside the clients, and read at the start.
//!
//! `save` has a file made in a thread of its own; `walk` walks a cut of the keyspace there, and
//! `snapshot` turns what it meets into the bytes of the file. `points` says when that is due, and
//! `load` reads a file. Here is what they and INFO share.

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

use crate::engine::blocking::Waiter;
use crate::engine::log::history::HistoryId;
use crate::engine::server::Server;

use self::position::StreamPosition;
pub use load::{Existing, Loaded};
pub use save::{NotBegun, remove_unfinished, unfinished_path};

/// The state of saving and loading snapshots.
pub struct Persistence {
    running: Mutex<Option<RunningSave>>,
    /// The cut of the save that is going on, until its file has its name or somebody wants none of
    /// it. It is locked while the file gets its name, so who gives up a save either does so in
    /// time or finds the file in its place.
    unnamed: Mutex<Option<CutHandle>>,
    /// Rings when a save has ended.
    ended: Condvar,
    /// BGSAVE SCHEDULE: to be done as soon as it can.
    scheduled: AtomicBool,
    /// Clients of SAVE that wait for the next one to begin: the log is being rewritten.
    waiting: Mutex<Vec<Arc<Waiter>>>,
    /// Changes of keys that the last snapshot has, of those that the workers have counted.
    saved_changes: AtomicU64,
    pub last_save_s: AtomicI64,
    last_try_ms: AtomicI64,
    pub last_failed: AtomicBool,
    /// -1: there was none.
    pub last_duration_s: AtomicI64,
    pub saves: AtomicU64,
    /// How many copies for replicas are being written.
    pub copies: AtomicU32,
    /// Of the save or the rewrite of the log that is going on.
    pub written_keys: AtomicU64,
    /// When to look at the save points again.
    due_ms: AtomicI64,
    pub loading: FileLoading,
}

/// A save that is going on.
struct RunningSave {
    cut: CutHandle,
    started_ms: i64,
    keys: u64,
    /// Changes of keys that its snapshot has, of those that the workers have counted.
    changes: u64,
}

/// How far the loading of a file is.
pub struct FileLoading {
    pub is_on: AtomicBool,
    /// Clients work with what is there meanwhile.
    pub is_aside: AtomicBool,
    /// Keys whose time has come are not passed over: the file is the beginning of a log.
    pub keeps_expired: AtomicBool,
    pub started_s: AtomicI64,
    pub total_bytes: AtomicU64,
    pub loaded_bytes: AtomicU64,
    /// The database that the stream behind the file is about.
    pub stream_database: AtomicU32,
    /// What the file says of the stream is meant for us: the server starts.
    pub resumes: AtomicBool,
    /// The history and the offset that the file says.
    pub history: Mutex<Option<HistoryId>>,
    pub offset: Mutex<Option<u64>>,
    /// What the file says that its server used.
    pub used_memory: AtomicU64,
    pub last_keys_loaded: AtomicU64,
    pub last_keys_expired: AtomicU64,
}

impl FileLoading {
    /// Notes where the stream was.
    pub fn set_position(&self, position: StreamPosition) {
        *self.history.lock() = Some(position.id);
        *self.offset.lock() = Some(position.offset);
        self.stream_database.store(position.database, Ordering::Relaxed);
    }

    /// Where the stream was, if the file said all of that.
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
            scheduled: AtomicBool::new(false),
            waiting: Mutex::default(),
            saved_changes: AtomicU64::new(0),
            last_save_s: AtomicI64::new(now_ms / 1000),
            last_try_ms: AtomicI64::new(0),
            last_failed: AtomicBool::new(false),
            last_duration_s: AtomicI64::new(-1),
            saves: AtomicU64::new(0),
            copies: AtomicU32::new(0),
            written_keys: AtomicU64::new(0),
            due_ms: AtomicI64::new(0),
            loading: FileLoading {
                is_on: AtomicBool::new(false),
                is_aside: AtomicBool::new(false),
                keeps_expired: AtomicBool::new(false),
                started_s: AtomicI64::new(0),
                total_bytes: AtomicU64::new(0),
                loaded_bytes: AtomicU64::new(0),
                stream_database: AtomicU32::new(0),
                resumes: AtomicBool::new(false),
                history: Mutex::default(),
                offset: Mutex::default(),
                used_memory: AtomicU64::new(0),
                last_keys_loaded: AtomicU64::new(0),
                last_keys_expired: AtomicU64::new(0),
            },
        }
    }

    /// Whether a save in the background is going on; SAVE's own is none.
    pub fn is_saving(&self) -> bool {
        self.running.lock().is_some()
    }

    /// Whether a snapshot is written in the background, be it for replicas.
    pub fn is_writing(&self) -> bool {
        self.is_saving() || self.copies.load(Ordering::Relaxed) > 0
    }

    /// Keys that the save that is going on has to write, and when it began (Unix ms).
    pub fn current(&self) -> Option<(u64, i64)> {
        self.running.lock().as_ref().map(|running| (running.keys, running.started_ms))
    }

    /// Of `changes` that the workers have counted, those that no snapshot has.
    pub fn unsaved(&self, changes: u64) -> u64 {
        changes.wrapping_sub(self.saved())
    }

    /// How many changes the last snapshot has.
    pub fn saved(&self) -> u64 {
        self.saved_changes.load(Ordering::Relaxed)
    }

    /// Notes how many changes are saved or need no saving.
    pub fn set_saved(&self, changes: u64) {
        self.saved_changes.store(changes, Ordering::Relaxed);
    }

    /// The workers' counts start over.
    pub fn forget_counts(&self, changes: u64) {
        let mut running = self.running.lock();
        if let Some(running) = &mut *running {
            running.changes = running.changes.wrapping_sub(changes);
        }
        self.set_saved(self.saved().wrapping_sub(changes));
    }

    /// The save that is going on has what it was to have.
    fn set_saved_by_running(&self) {
        if let Some(running) = &*self.running.lock() {
            self.set_saved(running.changes);
        }
    }
}
