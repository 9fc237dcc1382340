//! What a long sort looks up in other keys, one after the other and nevertheless as of one moment.
//!
//! Before the first look all shards begin to tell of changes. If in the end none of them concerns a
//! key that was looked at, then everything was as it was seen when the sort began, and is so still
//! but for what has expired since: that is why all looks are taken by the clock of that moment.

use std::sync::Arc;

use bobbin_store::shard::watch::Observer;
use bobbin_store::{Hash, SHARDS};

use crate::engine::command::{Data, Key};

/// The look-ups of one sort.
pub(super) struct Lookups {
    observer: Arc<Observer>,
    began_ms: i64,
    /// By shard.
    looked: Box<[LookedAt]>,
    /// Changes that are still to be compared with them.
    changes: Vec<Hash>,
    /// Something that was looked at has changed.
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
            began_ms: data.turn.now_ms,
            looked: vec![LookedAt::default(); SHARDS].into(),
            changes: Vec::new(),
            is_stale: false,
            rounds: 0,
        }
    }

    /// Starts over: from now on all look-ups must see the state of this moment. All shards are
    /// held.
    pub(super) fn begin_anew(&mut self, data: &Data) {
        self.observer.take();
        self.looked.fill(LookedAt::default());
        self.changes.clear();
        (self.began_ms, self.is_stale, self.rounds) = (data.turn.now_ms, false, 0);
    }

    /// No shard tells of changes any more.
    pub(super) fn end(&self, data: &mut Data) {
        for index in 0..SHARDS {
            data.visit(index, |shard| shard.unobserve(&self.observer));
        }
    }

    /// Holds a key's shard, if not everything is held, and notes the look. `false`: a slow script
    /// keeps the shard, so that this sort will have to start over.
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

    /// Compares some of the changes so far with what was looked at; `false` if there are hardly any
    /// left.
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
        let is_known = |hash: Hash| self.looked[hash.shard()].contains(hash);
        self.is_stale |= self.changes.drain(rest..).any(is_known);
        true
    }

    /// Whether nothing that was looked at has changed. All shards are held.
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

/// The keys of a shard that were looked at. It may be one key, a million times.
#[derive(Clone, Default)]
struct LookedAt {
    hashes: Vec<Hash>,
    /// How many of them are in order, and differ.
    sorted: usize,
}

impl LookedAt {
    fn contains(&mut self, hash: Hash) -> bool {
        if self.sorted < self.hashes.len() {
            self.hashes.sort_unstable_by_key(|hash| hash.0);
            self.hashes.dedup();
            self.sorted = self.hashes.len();
        }
        self.hashes.binary_search_by_key(&hash.0, |hash| hash.0).is_ok()
    }
}

/// Changes that are compared between two looks at the time.
const CHECKED: usize = 1024;
/// How often changes are gathered before the rest is compared with everything held.
const ROUNDS_MAX: u32 = 16;
