//! What the shards know of a cut: how far its walk is, and the copies that writers leave for it.
//!
//! See [`cut`](crate::cut) for how the marks and the copies work.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use bobbin_sync::Mutex;

use super::Flushed;
use crate::entry::{EntryRef, OwnedEntry};
use crate::hash::KeyHash;

/// A key of the cut.
pub struct Piece {
    pub database: u32,
    pub entry: OwnedEntry,
}

/// How other threads see a cut in progress.
#[derive(Clone)]
pub struct CutHandle(pub(crate) Arc<CutState>);

/// The state of a keyspace's cuts that can be read without a lock.
#[derive(Default)]
pub(crate) struct Gauge {
    /// Cuts that were not walked to their end.
    pub(crate) cuts: AtomicUsize,
    /// Bytes of the copies for cuts. A copy counts until the walk has continued behind the step
    /// that yielded it.
    pub(crate) kept_bytes: AtomicUsize,
}

/// Shared between the walk of a cut and the threads that change its keys.
pub(crate) struct CutState {
    /// Copies that the walk has not fetched yet.
    pub(crate) kept: [Mutex<Vec<Piece>>; STRIPES],
    pub(crate) gauge: Arc<Gauge>,
    /// Databases that were flushed while they were part of the cut.
    pub(crate) detached: Mutex<Vec<Flushed>>,
    pub(crate) aborted: AtomicBool,
}

/// What a shard's part of a database knows of the cut that it belongs to.
pub(crate) struct CutPart {
    cut: Arc<CutState>,
    /// The database's number at the cut.
    number: u32,
    stripe: u32,
    /// The position from which on the walk has not come yet.
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
    /// Bytes of memory of the copies that the walk still needs.
    pub fn kept_bytes(&self) -> usize {
        self.0.gauge.kept_bytes.load(Ordering::Relaxed)
    }

    /// Aborts the cut. Its walk continues quickly, to remove the marks.
    pub fn abort(&self) {
        self.0.aborted.store(true, Ordering::Relaxed);
    }

    pub fn is_aborted(&self) -> bool {
        self.0.aborted.load(Ordering::Relaxed)
    }

    /// Gives the cut databases that are flushed, to walk them later.
    pub(crate) fn detach(&self, flushed: Flushed) {
        self.0.detached.lock().push(flushed);
    }
}

impl CutPart {
    /// The part of database 0 of a shard.
    pub(crate) fn new(cut: Arc<CutState>, index: usize) -> Self {
        Self { cut, number: 0, stripe: (index % STRIPES) as u32, from: 0 }
    }

    /// The part of another database of the same shard.
    pub(crate) fn of_database(&self, number: u32) -> Self {
        Self { cut: Arc::clone(&self.cut), number, stripe: self.stripe, from: 0 }
    }

    /// Whether this part belongs to this cut and to the database that had this number.
    pub(crate) fn is(&self, number: u32, cut: &CutHandle) -> bool {
        self.number == number && Arc::ptr_eq(&self.cut, &cut.0)
    }

    /// The position from which on the walk has not come yet.
    pub(crate) fn from(&self) -> u32 {
        self.from
    }

    /// Whether the walk has not come to the position of this hash yet.
    #[inline(always)]
    pub(crate) fn is_ahead(&self, hash: KeyHash) -> bool {
        hash.position() >= self.from
    }

    pub(crate) fn move_to(&mut self, position: u32) {
        self.from = position;
    }

    /// Copies an entry that is about to change.
    pub(crate) fn keep(&self, entry: EntryRef<'_>) {
        let Some(piece) = self.piece(entry) else { return };
        // Counted before the walk can fetch it, so that the sum is never below zero.
        self.cut.gauge.kept_bytes.fetch_add(piece.entry.as_ref().memory(), Ordering::Relaxed);
        self.cut.kept[self.stripe as usize].lock().push(piece);
    }

    /// A copy of an entry. `None`: the cut was aborted.
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

/// How many locks protect the copies. Writers of shards with different locks do not wait for each
/// other.
const STRIPES: usize = 32;
