//! The number of keys whose readers the shards remember, and its limit: `tracking-table-max-keys`.

use std::sync::atomic::Ordering;

use bobbin_store::SHARDS;

use super::{ChangedBy, Notice};
use crate::base::clock::has_come;
use crate::engine::command::Data;
use crate::engine::server::{Server, Switch};

/// The result of the last look through all shards.
#[derive(Default)]
pub(super) struct TrackingTotals {
    keys: usize,
    /// `Tracking::added` at that time.
    added: u64,
    /// The shard from which keys were last removed.
    shard: usize,
}

/// How often a worker checks the number of keys, in milliseconds.
const LOOK_MS: i64 = 100;
/// The most keys of a shard that are removed under one lock.
const TAKEN_MAX: usize = 64;

impl Data {
    /// The number of keys that clients keep copies of, and the number of those copies. The thread
    /// holds nothing, or everything.
    pub fn tracked(&mut self) -> (usize, usize) {
        let (mut keys, mut items) = (0, 0);
        for index in 0..SHARDS {
            let (more_keys, more_items) = self.visit(index, |shard| shard.tracked());
            keys += more_keys;
            items += more_items;
        }
        (keys, items)
    }
}

impl Server {
    /// If the shards remember too many keys, forgets some and tells their readers that the copies
    /// are invalid. Called by the timer, with nothing held.
    pub fn bound_tracked(&self, data: &mut Data) {
        if !self.switches.has(Switch::TRACKED) {
            return;
        }
        let now_ms = data.conditions.now_ms;
        let Some(tracker) =
            data.audience.tracker.as_mut().filter(|t| has_come(now_ms, t.look_at_ms, LOOK_MS))
        else {
            return;
        };
        tracker.look_at_ms = now_ms + LOOK_MS;
        let new = std::mem::take(&mut tracker.added);
        let added = self.tracking.added.fetch_add(new, Ordering::Relaxed) + new;
        let keys_max = usize::try_from(self.config.tracking_table_max_keys()).unwrap_or(0);
        // One worker checks for all of them.
        let Some(mut known) = self.tracking.table.try_lock() else { return };
        let keys_at_most = known.keys as u64 + added.saturating_sub(known.added);
        if keys_max == 0 || keys_at_most <= keys_max as u64 {
            return;
        }
        data.release();
        let (keys, _) = data.tracked();
        let mut excess = keys.saturating_sub(keys_max);
        (known.keys, known.added) = (keys - excess, added);
        let mut empty = 0;
        while excess > 0 && empty < SHARDS {
            known.shard = (known.shard + 1) % SHARDS;
            if !data.hold_one(known.shard) {
                empty += 1;
                continue;
            }
            let count = excess.min(TAKEN_MAX);
            let taken = data.visit(known.shard, |shard| shard.untrack_some(count));
            excess -= taken.len();
            empty = if taken.is_empty() { empty + 1 } else { 0 };
            data.unit.work.notices.extend(
                taken.into_iter().map(|(key, readers)| Notice::Invalid {
                    key,
                    readers,
                    by: ChangedBy::Server,
                }),
            );
            data.release();
        }
    }
}
