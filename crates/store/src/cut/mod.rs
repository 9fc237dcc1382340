//! A cut: the keys of all databases as they were at one moment, read while they change.
//!
//! A cut begins with the whole process stopped, only while each shard's part of each database gets
//! a [`CutPart`]. Then a walk goes through the tables in the order of positions, locks one shard at
//! a time, and copies the entries. A thread that changes an entry ahead of the walk first copies it
//! for the cut, and marks it. Threads also mark new entries there. The walk skips marked entries
//! and removes their marks, so that no marks are left behind it:
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
use crate::shard::{CutHandle, CutPart, CutState, Database, Piece, Shard};

/// All keys as they were at one moment. There is one cut at a time: a second one aborts the first.
/// The thread that has the cut walks it to its end by `step`, even if it was aborted.
pub struct Cut {
    shared: Arc<CutState>,
    databases: Vec<CutDatabase>,
    has_expiring_fields: bool,
    /// How far the walk is: an index into `databases`, and the shard.
    at: usize,
    shard: usize,
    /// A part of a flushed database that is being walked.
    detached: Option<Database>,
    /// Bytes of the copies that the last step yielded.
    fetched_bytes: usize,
}

/// A database of the cut, under the number that it had then.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CutDatabase {
    pub number: u32,
    pub keys: usize,
    pub expiring: usize,
}

impl CutDatabase {
    /// Adds a shard's part of a database to `all`, which is in the order of the numbers.
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

impl Cut {
    /// Begins a cut. If another cut is in progress, it is aborted, and its marks are removed here,
    /// which takes long.
    pub fn begin(keyspace: &Keyspace, gate: &mut GateGuard<'_>) -> Self {
        let gauge = keyspace.cut_gauge();
        gauge.cuts.fetch_add(1, Ordering::Relaxed);
        let shared = Arc::new(CutState::new(gauge));
        let mut databases: Vec<CutDatabase> = Vec::new();
        let mut has_expiring_fields = false;
        for index in 0..SHARDS {
            let shard = keyspace.exclusive(gate, index);
            for number in 0..shard.databases() {
                let Some(database) = shard.used_mut(number) else { continue };
                if database.is_empty() {
                    continue;
                }
                database.join_cut(CutPart::new(Arc::clone(&shared), index, number));
                has_expiring_fields |= database.with_expiring_fields() > 0;
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

    /// Whether there were hashes with fields that expire.
    pub fn has_expiring_fields(&self) -> bool {
        self.has_expiring_fields
    }

    pub fn handle(&self) -> CutHandle {
        CutHandle(Arc::clone(&self.shared))
    }

    /// Walks on until `out` has about `limit` pieces, or one shard is done. The pieces of the step
    /// before count as used up. `visit` calls its argument with the locked shard of an index.
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
        // From here on the keyspace has no parts, so no further entry can be kept and no database
        // detached.
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

impl Drop for Cut {
    fn drop(&mut self) {
        self.release_fetched();
        self.shared.gauge.cuts.fetch_sub(1, Ordering::Relaxed);
    }
}

/// If writers have kept more bytes than this, the walk fetches them.
const FETCH_BYTES: usize = 256 * 1024;

#[cfg(test)]
mod tests;
