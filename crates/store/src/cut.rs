//! A cut: the keys of all databases as they were at one moment, read while they change.
//!
//! The cut begins with the whole process stopped, for as long as it takes to give each shard's part
//! of each database a [`Part`]. From then on a walk goes through the tables in the order of
//! positions, holding one shard at a time, and copies what it meets. What lies ahead of the walk is
//! copied by whoever changes it, before its first change, and marked; the mark is also put on what
//! is new there. The walk passes over what is marked and takes the mark away, so that no mark is
//! left behind it:
//!
//! | an entry | behind the walk | ahead of it |
//! |---|---|---|
//! | without a mark | free to change | as it was at the cut |
//! | with a mark | | was copied, or is new |
//!
//! A copy is cheap: small values are copied, of large ones the clone is a pin. Whole databases that
//! are flushed go to the cut, which walks them on; exchanged ones keep their part, which says what
//! number they had.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use bobbin_sync::Mutex;

use crate::entry::{EntryRef, OwnedEntry};
use crate::gate::GateGuard;
use crate::hash::Hasher;
use crate::keyspace::{Keyspace, SHARDS};
use crate::shard::{Database, Shard};

/// All keys as they were at one moment. One at a time: a second one aborts the first. Whoever has
/// it walks it to its end by `step`, aborted or not.
pub struct Cut {
    shared: Arc<Shared>,
    databases: Vec<CutDatabase>,
    has_expiring_fields: bool,
    /// Where the walk is: in which of `databases`, in which shard.
    at: usize,
    shard: usize,
    /// A flushed part that is being walked.
    detached: Option<Database>,
    /// Bytes of the copies that the last step yielded.
    fetched_bytes: usize,
}

/// A database of the cut, under the number that it had.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CutDatabase {
    pub number: u32,
    pub keys: usize,
    pub expiring: usize,
}

impl CutDatabase {
    /// Adds what a shard has of a database to what is known of `all`, which are in the order of
    /// their numbers.
    pub fn add(all: &mut Vec<Self>, number: u32, part: &Database) {
        let at = all.binary_search_by_key(&number, |database| database.number);
        let at = at.unwrap_or_else(|at| {
            all.insert(at, Self { number, keys: 0, expiring: 0 });
            at
        });
        all[at].keys += part.len();
        all[at].expiring += part.volatile();
    }
}

/// A key of the cut.
pub struct Piece {
    pub database: u32,
    pub entry: OwnedEntry,
}

/// What others see of a cut that is going on.
#[derive(Clone)]
pub struct CutHandle(Arc<Shared>);

/// What a keyspace shows of its cuts without a lock.
#[derive(Default)]
pub(crate) struct Gauge {
    /// Cuts that are not walked to their end.
    pub(crate) cuts: AtomicUsize,
    /// Bytes of copies for cuts that are walked, until the walk has gone on from the step that
    /// yielded them.
    pub(crate) kept_bytes: AtomicUsize,
}

struct Shared {
    /// Copies that the walk has not fetched yet.
    kept: [Mutex<Vec<Piece>>; STRIPES],
    gauge: Arc<Gauge>,
    /// Databases that were flushed with a part of the cut in them.
    detached: Mutex<Vec<Database>>,
    aborted: AtomicBool,
}

/// What a shard's part of a database knows of the cut that it belongs to.
pub(crate) struct Part {
    shared: Arc<Shared>,
    /// The number that the database had.
    number: u32,
    stripe: u32,
    /// From this position on the walk has still to come.
    from: u32,
}

impl Cut {
    /// Begins a cut. One that is going on is aborted, and what it has marked is seen to here, which
    /// takes long.
    pub fn begin(keyspace: &Keyspace, gate: &mut GateGuard<'_>) -> Self {
        let gauge = keyspace.cut_gauge();
        gauge.cuts.fetch_add(1, Ordering::Relaxed);
        let shared = Arc::new(Shared {
            kept: std::array::from_fn(|_| Mutex::default()),
            gauge,
            detached: Mutex::default(),
            aborted: AtomicBool::new(false),
        });
        let mut databases: Vec<CutDatabase> = Vec::new();
        let mut has_expiring_fields = false;
        for index in 0..SHARDS {
            let shard = keyspace.exclusive(gate, index);
            for number in 0..shard.databases() {
                let Some(database) = shard.used_mut(number) else { continue };
                if database.is_empty() {
                    continue;
                }
                let stripe = (index % STRIPES) as u32;
                database.join_cut(Part { shared: Arc::clone(&shared), number, stripe, from: 0 });
                has_expiring_fields |= database.may_have_expiring_fields();
                CutDatabase::add(&mut databases, number, database);
            }
        }
        Self {
            shared,
            databases,
            has_expiring_fields,
            at: 0,
            shard: 0,
            detached: None,
            fetched_bytes: 0,
        }
    }

    /// The databases that had keys, in the order of their numbers.
    pub fn databases(&self) -> &[CutDatabase] {
        &self.databases
    }

    /// Whether there may be hashes with fields that expire; if not, there are none.
    pub fn has_expiring_fields(&self) -> bool {
        self.has_expiring_fields
    }

    pub fn handle(&self) -> CutHandle {
        CutHandle(Arc::clone(&self.shared))
    }

    /// Walks on, until `out` has about `limit` pieces or one shard is done; what it yielded before
    /// is done with. `visit` calls its argument with the shard of a number, held. `false` once all
    /// is in `out`, or, if the cut was aborted, has been passed over.
    pub fn step(
        &mut self,
        hasher: &Hasher,
        mut visit: impl FnMut(usize, &mut dyn FnMut(&mut Shard)),
        limit: usize,
        out: &mut Vec<Piece>,
    ) -> bool {
        self.release_fetched();
        if self.shared.gauge.kept_bytes.load(Ordering::Relaxed) > FETCH_BYTES {
            self.fetch(out);
        }
        if let Some(database) = self.databases.get(self.at) {
            let mut done = true;
            visit(self.shard, &mut |shard| {
                let handle = CutHandle(Arc::clone(&self.shared));
                if let Some(part) = shard.part_of_cut(database.number, &handle) {
                    done = part.walk_cut(limit, hasher, out);
                }
            });
            if done {
                self.shard += 1;
            }
            if self.shard == SHARDS {
                self.shard = 0;
                self.at += 1;
            }
            return true;
        }
        // From here on there are no parts in the keyspace, so nothing can be kept or detached.
        if self.detached.is_none() {
            self.detached = self.shared.detached.lock().pop();
        }
        if let Some(database) = &mut self.detached {
            if database.walk_cut(limit, hasher, out) {
                self.detached = None;
            }
            return true;
        }
        self.fetch(out);
        false
    }

    /// Appends what writers kept.
    fn fetch(&mut self, out: &mut Vec<Piece>) {
        for stripe in &self.shared.kept {
            let pieces = std::mem::take(&mut *stripe.lock());
            let bytes: usize = pieces.iter().map(|piece| piece.entry.as_ref().memory()).sum();
            self.fetched_bytes += bytes;
            out.extend(pieces);
        }
        if self.shared.aborted.load(Ordering::Relaxed) {
            out.clear();
        }
    }

    /// What was fetched does not take memory any more.
    fn release_fetched(&mut self) {
        let bytes = std::mem::take(&mut self.fetched_bytes);
        if bytes > 0 {
            // Every writer looks at it.
            self.shared.gauge.kept_bytes.fetch_sub(bytes, Ordering::Relaxed);
        }
    }
}

impl Drop for Cut {
    fn drop(&mut self) {
        self.release_fetched();
        self.shared.gauge.cuts.fetch_sub(1, Ordering::Relaxed);
    }
}

impl CutHandle {
    /// Bytes of memory of copies that the walk is not done with.
    pub fn kept_bytes(&self) -> usize {
        self.0.gauge.kept_bytes.load(Ordering::Relaxed)
    }

    /// Nobody wants the cut any more. Its walk goes on, quickly, to take the marks away.
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
    /// Whether it is what the cut has of the database that had this number.
    pub(crate) fn is(&self, number: u32, cut: &CutHandle) -> bool {
        self.number == number && Arc::ptr_eq(&self.shared, &cut.0)
    }

    /// From which position on the walk has still to come.
    pub(crate) fn from(&self) -> u32 {
        self.from
    }

    pub(crate) fn move_to(&mut self, position: u32) {
        self.from = position;
    }

    /// Copies an entry that is about to change.
    pub(crate) fn keep(&self, entry: EntryRef<'_>) {
        let Some(piece) = self.piece(entry) else { return };
        // Counted before it can be fetched, so that the sum is never below zero.
        self.shared.gauge.kept_bytes.fetch_add(piece.entry.as_ref().memory(), Ordering::Relaxed);
        self.shared.kept[self.stripe as usize].lock().push(piece);
    }

    /// A copy of an entry; `None` if nobody wants it any more.
    pub(crate) fn piece(&self, entry: EntryRef<'_>) -> Option<Piece> {
        if self.shared.aborted.load(Ordering::Relaxed) {
            return None;
        }
        let (expire_ms, access) = (entry.expire_ms(), entry.access());
        let entry = OwnedEntry::new(entry.key(), entry.to_new_value(), expire_ms, access);
        Some(Piece { database: self.number, entry })
    }

    pub(crate) fn handle(&self) -> CutHandle {
        CutHandle(Arc::clone(&self.shared))
    }
}

/// Shards are spread over this many locks. Writers of shards with different locks do not wait for
/// each other.
const STRIPES: usize = 32;
/// The walk fetches what writers kept when there is more than this.
const FETCH_BYTES: usize = 256 * 1024;

#[cfg(test)]
mod tests;
