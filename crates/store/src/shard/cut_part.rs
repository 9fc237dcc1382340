//! What the shards know of a cut: the copies that writers leave for its walk, and how far that is.
//!
//! See [`cut`](crate::cut) for how the marks and the copies work.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use bobbin_sync::Mutex;

use super::Database;
use crate::entry::{EntryRef, OwnedEntry};
use crate::hash::Hash;

/// A key of the cut.
pub struct Piece {
    pub database: u32,
    pub entry: OwnedEntry,
}

/// What others see of a cut that is going on.
#[derive(Clone)]
pub struct CutHandle(pub(crate) Arc<CutState>);

/// What a keyspace shows of its cuts without a lock.
#[derive(Default)]
pub(crate) struct Gauge {
    /// Cuts that are not walked to their end.
    pub(crate) cuts: AtomicUsize,
    /// Bytes of copies for cuts that are walked, until the walk has gone on from the step that
    /// yielded them.
    pub(crate) kept_bytes: AtomicUsize,
}

/// What the walk of a cut and the threads that change its keys share.
pub(crate) struct CutState {
    /// Copies that the walk has not fetched yet.
    pub(crate) kept: [Mutex<Vec<Piece>>; STRIPES],
    pub(crate) gauge: Arc<Gauge>,
    /// Databases that were flushed with a part of the cut in them.
    pub(crate) detached: Mutex<Vec<Database>>,
    pub(crate) aborted: AtomicBool,
}

/// What a shard's part of a database knows of the cut that it belongs to.
pub(crate) struct Part {
    cut: Arc<CutState>,
    /// The number that the database had.
    number: u32,
    stripe: u32,
    /// From this position on the walk has still to come.
    from: u32,
}

impl CutState {
    pub(crate) fn new(gauge: Arc<Gauge>) -> Self {
        Self {
            kept: std::array::from_fn(|_| Mutex::default()),
            gauge,
            detached: Mutex::default(),
            aborted: AtomicBool::new(false),
        }
    }
}

impl CutHandle {
    /// Bytes of memory of copies that the walk is not done with.
    pub fn kept_bytes(&self) -> usize {
        self.0.gauge.kept_bytes.load(Ordering::Relaxed)
    }

    /// The cut is not wanted any more. Its walk goes on, quickly, to take the marks away.
    pub fn abort(&self) {
        self.0.aborted.store(true, Ordering::Relaxed);
    }

    pub fn is_aborted(&self) -> bool {
        self.0.aborted.load(Ordering::Relaxed)
    }

    /// Has the cut walk a database that is flushed.
    pub(crate) fn detach(&self, database: Database) {
        self.0.detached.lock().push(database);
    }
}

impl Part {
    /// What the shard of this index has of the database with this number.
    pub(crate) fn new(cut: Arc<CutState>, index: usize, number: u32) -> Self {
        Self { cut, number, stripe: (index % STRIPES) as u32, from: 0 }
    }

    /// Whether it is what the cut has of the database that had this number.
    pub(crate) fn is(&self, number: u32, cut: &CutHandle) -> bool {
        self.number == number && Arc::ptr_eq(&self.cut, &cut.0)
    }

    /// From which position on the walk has still to come.
    pub(crate) fn from(&self) -> u32 {
        self.from
    }

    /// Whether the walk has still to come to where a key of this hash lies.
    #[inline(always)]
    pub(crate) fn is_ahead(&self, hash: Hash) -> bool {
        hash.position() >= self.from
    }

    pub(crate) fn move_to(&mut self, position: u32) {
        self.from = position;
    }

    /// Copies an entry that is about to change.
    pub(crate) fn keep(&self, entry: EntryRef<'_>) {
        let Some(piece) = self.piece(entry) else { return };
        // Counted before it can be fetched, so that the sum is never below zero.
        self.cut.gauge.kept_bytes.fetch_add(piece.entry.as_ref().memory(), Ordering::Relaxed);
        self.cut.kept[self.stripe as usize].lock().push(piece);
    }

    /// A copy of an entry; `None` if it is not wanted any more.
    pub(crate) fn piece(&self, entry: EntryRef<'_>) -> Option<Piece> {
        if self.cut.aborted.load(Ordering::Relaxed) {
            return None;
        }
        let (expire_ms, access) = (entry.expire_ms(), entry.access());
        let entry = OwnedEntry::new(entry.key(), entry.to_new_value(), expire_ms, access);
        Some(Piece { database: self.number, entry })
    }

    pub(crate) fn handle(&self) -> CutHandle {
        CutHandle(Arc::clone(&self.cut))
    }
}

/// Shards are spread over this many locks. Writers of shards with different locks do not wait for
/// each other.
const STRIPES: usize = 32;
