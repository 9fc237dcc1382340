//! Looks up other keys for a long sort, one after the other, but as of one moment.
//!
//! Before the first lookup all shards begin to report changes. If no change concerns a key that was
//! looked up, then everything is still as it was when the sort began, except for keys that have
//! expired since. So all lookups use the time of that moment.

use std::sync::Arc;

use bobbin_store::shard::watch::Observer;
use bobbin_store::{KeyHash, SHARDS};

use crate::engine::command::{Data, Key};

/// The lookups of one sort.
pub(super) struct Lookups {
    observer: Arc<Observer>,
    began_ms: i64,
    /// By shard.
    looked: Box<[LookedUpKeys]>,
    /// Changes that were not compared with the lookups yet.
    changes: Vec<KeyHash>,
    /// Something that was looked up has changed.
    is_stale: bool,
    rounds: u32,
}

impl Lookups {
    pub(super) fn begin(data: &mut Data) -> Self {
        let observer = Arc::new(Observer::new(data.database));
        for index in 0..SHARDS {
            data.visit(index, |shard| shard.observe(&observer));
        }
        Self {
            observer,
            began_ms: data.conditions.now_ms,
            looked: vec![LookedUpKeys::default(); SHARDS].into(),
            changes: Vec::new(),
            is_stale: false,
            rounds: 0,
        }
    }

    /// Starts over: from now on all lookups must see the state of this moment. The caller holds all
    /// shards.
    pub(super) fn begin_anew(&mut self, data: &Data) {
        self.observer.take();
        self.looked.fill(LookedUpKeys::default());
        self.changes.clear();
        (self.began_ms, self.is_stale, self.rounds) = (data.conditions.now_ms, false, 0);
    }

    /// Ends the reports of changes.
    pub(super) fn end(&self, data: &mut Data) {
        for index in 0..SHARDS {
            data.visit(index, |shard| shard.unobserve(&self.observer));
        }
    }

    /// Locks a key's shard, unless everything is locked, and notes the lookup. `false`: a slow
    /// script keeps the shard, so this sort will have to start over.
    pub(super) fn hold(&mut self, data: &mut Data, key: Key<'_>) -> bool {
        let shard = key.hash.shard();
        if !data.holds(shard) && !data.hold_one(shard) {
            self.is_stale = true;
            return false;
        }
        self.looked[shard].hashes.push(key.hash);
        true
    }

    pub(super) const fn began_ms(&self) -> i64 {
        self.began_ms
    }

    /// Compares some of the changes so far with the lookups. `false`: hardly any are left.
    pub(super) fn check_some(&mut self) -> bool {
        if self.is_stale {
            return false;
        }
        if self.changes.is_empty() {
            self.take();
            self.rounds += 1;
            if self.changes.len() <= CHECKED || self.rounds > ROUNDS_MAX {
                return false;
            }
        }
        let rest = self.changes.len().saturating_sub(CHECKED);
        let is_known = |hash: KeyHash| self.looked[hash.shard()].contains(hash);
        self.is_stale |= self.changes.drain(rest..).any(is_known);
        true
    }

    /// Whether nothing that was looked up has changed. The caller holds all shards.
    pub(super) fn are_current(&mut self) -> bool {
        self.take();
        let mut changes = self.changes.drain(..);
        !self.is_stale && !changes.any(|hash| self.looked[hash.shard()].contains(hash))
    }

    fn take(&mut self) {
        match self.observer.take() {
            Some(changes) if self.changes.is_empty() => self.changes = changes,
            Some(changes) => self.changes.extend(changes),
            None => self.is_stale = true,
        }
    }
}

/// The keys of a shard that were looked up. One key may be looked up a million times.
#[derive(Clone, Default)]
struct LookedUpKeys {
    hashes: Vec<KeyHash>,
    /// How many of the hashes are sorted and different.
    sorted: usize,
}

impl LookedUpKeys {
    fn contains(&mut self, hash: KeyHash) -> bool {
        if self.sorted < self.hashes.len() {
            self.hashes.sort_unstable_by_key(|hash| hash.0);
            self.hashes.dedup();
            self.sorted = self.hashes.len();
        }
        self.hashes.binary_search_by_key(&hash.0, |hash| hash.0).is_ok()
    }
}

/// How many changes are compared between two looks at the clock.
const CHECKED: usize = 1024;
/// How many times changes are collected before the rest is compared with everything locked.
const ROUNDS_MAX: u32 = 16;
