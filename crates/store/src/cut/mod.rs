//! A cut: the keys of all databases as they were at one moment, read while they change.
//!
//! A cut begins with the whole process stopped, only while each shard notes that its keys belong to
//! the cut, and the keys are counted. Each shard's part of a database gets a
//! [`CutPart`](crate::shard::CutPart); for databases from 1 on this is put off until they change.
//! Then a walk goes through the tables in the order of positions, locks one shard at a time, and
//! copies the entries. A thread that changes an entry ahead of the walk first copies it for the
//! cut, and marks it. Threads also mark new entries there. The walk skips marked entries and
//! removes their marks, so that no marks are left behind it:
//!
//! | an entry | behind the walk | ahead of the walk |
//! |---|---|---|
//! | without a mark | free to change | as it was at the cut |
//! | with a mark | | was copied, or is new |
//!
//! A copy is cheap: small values are copied, and a large value is pinned by cloning it. If a whole
//! database is flushed, it goes to the cut, which walks it later. Exchanged databases keep their
//! part, which knows the database's number at the cut.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::gate::GateGuard;
use crate::hash::Hasher;
use crate::keyspace::{Keyspace, SHARDS};
use crate::shard::{CutHandle, CutState, Database, Flushed, FlushedDatabases, Piece, Shard};
pub use census::{ByDatabase, Census, CensusPart, CutDatabase};

mod census;

/// All keys as they were at one moment. There is one cut at a time: a second one aborts the first.
/// The thread that has the cut walks it to its end by `step`, even if it was aborted.
pub struct Cut {
    shared: Arc<CutState>,
    census: Census,
    /// What the walk has not come to yet. `None`: it has not begun.
    parts: Option<std::vec::IntoIter<CensusPart>>,
    /// Flushed databases that are being walked.
    detached: Option<Box<Detached>>,
    /// Bytes of the copies that the last step yielded.
    fetched_bytes: usize,
}

impl Cut {
    /// Begins a cut. If another cut is in progress, it is aborted, and its marks are removed here,
    /// which takes long.
    pub fn begin(keyspace: &Keyspace, gate: &mut GateGuard<'_>) -> Self {
        let gauge = keyspace.cut_gauge();
        gauge.cuts.fetch_add(1, Ordering::Relaxed);
        let shared = Arc::new(CutState::new(gauge));
        let (handle, mut census) = (CutHandle(Arc::clone(&shared)), Census::default());
        for index in 0..SHARDS {
            let shard = keyspace.exclusive(gate, index);
            let add = |place, number, database: &_| census.add(index, place, number, database);
            shard.join_cut(&handle, index, add);
        }
        Self { shared, census, parts: None, detached: None, fetched_bytes: 0 }
    }

    /// What the keys were when the cut began.
    pub const fn census(&self) -> &Census {
        &self.census
    }

    pub fn handle(&self) -> CutHandle {
        CutHandle(Arc::clone(&self.shared))
    }

    /// Walks on until `out` has about `limit` pieces, or a few shards are done. The pieces of the
    /// step before count as used up. `visit` calls its argument with the locked shard of an index.
    /// Returns `false` once everything has been put into `out`, or was skipped because the cut was
    /// aborted.
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
        // They are put in order here because nobody waits any more.
        let parts = self.parts.get_or_insert_with(|| self.census.take_parts().into_iter());
        if !parts.as_slice().is_empty() {
            let handle = CutHandle(Arc::clone(&self.shared));
            for _ in 0..SHARDS_AT_ONCE {
                let Some(&part) = parts.as_slice().first() else { break };
                let mut done = false;
                visit(part.shard(), &mut |shard| {
                    done = shard.walk_cut((part.number, part.place()), &handle, limit, hasher, out);
                });
                if done {
                    parts.next();
                }
                if out.len() >= limit {
                    break;
                }
            }
            return true;
        }
        // From here on the keyspace has no parts, so no further entry can be kept and no database
        // detached.
        if self.detached.is_none() {
            self.detached =
                self.shared.detached.lock().pop().map(|flushed| Box::new(flushed.into()));
        }
        if let Some(detached) = &mut self.detached {
            if detached.walk_cut(limit, hasher, out) {
                self.detached = None;
            }
            return true;
        }
        self.fetch(out);
        false
    }

    /// Appends the copies that writers kept.
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

    /// Subtracts the memory of the pieces of the last step.
    fn release_fetched(&mut self) {
        let bytes = std::mem::take(&mut self.fetched_bytes);
        if bytes > 0 {
            // Every writer reads this cache line, so it is changed only if needed.
            self.shared.gauge.kept_bytes.fetch_sub(bytes, Ordering::Relaxed);
        }
    }
}

/// What was flushed together from a shard.
struct Detached {
    database: Database,
    rest: FlushedDatabases,
}

impl From<Flushed> for Detached {
    fn from(flushed: Flushed) -> Self {
        Self { database: Database::default(), rest: flushed.into_databases() }
    }
}

impl Detached {
    /// Appends keys of the cut until `out` has about `limit`, or a few databases are done. Those
    /// are freed. Returns whether all are done.
    fn walk_cut(&mut self, limit: usize, hasher: &Hasher, out: &mut Vec<Piece>) -> bool {
        for _ in 0..SHARDS_AT_ONCE {
            if self.database.walk_cut(limit, hasher, out) {
                let Some(next) = self.rest.next() else { return true };
                self.database = next;
            }
            if out.len() >= limit {
                break;
            }
        }
        false
    }
}

impl Drop for Cut {
    fn drop(&mut self) {
        self.release_fetched();
        self.shared.gauge.cuts.fetch_sub(1, Ordering::Relaxed);
    }
}

/// If writers have kept more bytes than this, the walk fetches them.
const FETCH_BYTES: usize = 256 * 1024;
/// How many shards' parts of databases a step walks at most, and parts of flushed databases.
const SHARDS_AT_ONCE: usize = 32;

#[cfg(test)]
mod tests;
