//! Which keys of a shard's database expire when: a heap of (time, position) pairs.
//!
//! An item is a hint and nothing more. It says that around its time the keys whose home is at that
//! position are worth a look. For every key that has an expiry there is an item that is not later
//! than it, so that:
//!
//! - a key that is deleted leaves its item behind, which later finds nothing;
//! - a key whose expiry moves back needs no new item: the old one comes due, finds the key alive,
//!   and is put in again at the right time;
//! - a key whose expiry moves forward gets one more item.
//!
//! Items left behind are bounded by rebuilding once they outnumber the keys.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// Milliseconds per unit of an item's time. Keys vanish logically at their own millisecond; this is
/// how late the memory may come back.
const UNIT_MS: i64 = 16;
/// Fewer items than this are never worth a rebuild.
const REBUILD_MIN: usize = 64;

/// See the module.
#[derive(Default)]
pub struct ExpiryIndex {
    /// time unit << 32 | position; the smallest first.
    heap: BinaryHeap<Reverse<u64>>,
    /// Keys of the table that have an expiry.
    volatile: u32,
}

impl ExpiryIndex {
    /// How many keys have an expiry.
    pub fn volatile(&self) -> usize {
        self.volatile as usize
    }

    /// A key got an expiry that it did not have (`old_ms` none) or a different one.
    pub fn set(&mut self, position: u32, old_ms: Option<i64>, new_ms: i64) {
        if old_ms.is_none() {
            self.volatile += 1;
        }
        if old_ms.is_none_or(|old_ms| unit(new_ms) < unit(old_ms)) {
            self.push(position, new_ms);
        }
    }

    /// A key that had an expiry lost it, or went away.
    pub fn unset(&mut self) {
        debug_assert!(self.volatile > 0);
        self.volatile -= 1;
        if self.volatile == 0 {
            self.heap = BinaryHeap::new();
        }
    }

    /// The time (Unix ms) from which `pop_due` may return something.
    pub fn next_due_ms(&self) -> Option<i64> {
        // The unit must have passed whole: its keys expire anywhere within it.
        self.heap.peek().map(|Reverse(item)| ((item >> 32) as i64 + 1) * UNIT_MS)
    }

    /// Takes out the earliest item if its time has passed: a position to look at.
    pub fn pop_due(&mut self, now_ms: i64) -> Option<u32> {
        if self.next_due_ms()? > now_ms {
            return None;
        }
        self.heap.pop().map(|Reverse(item)| item as u32)
    }

    /// Puts an item in for a key that was found alive when its item came due.
    pub fn push(&mut self, position: u32, expire_ms: i64) {
        if self.heap.len() == self.heap.capacity() {
            // Doubling would leave half of it unused; these vectors are a cost per key.
            self.heap.reserve_exact(self.heap.len() / 4 + 4);
        }
        self.heap.push(Reverse(unit(expire_ms) << 32 | u64::from(position)));
    }

    /// Whether so many items lead nowhere that the index should be rebuilt from the table.
    pub fn wants_rebuild(&self) -> bool {
        self.heap.len() > REBUILD_MIN && self.heap.len() / 2 > self.volatile as usize
    }

    /// Starts over with the (position, expiry) of every key that has one.
    pub fn rebuild(&mut self, keys: impl Iterator<Item = (u32, i64)>) {
        let mut items = Vec::with_capacity(self.volatile as usize);
        items.extend(keys.map(|(position, ms)| Reverse(unit(ms) << 32 | u64::from(position))));
        self.volatile = items.len() as u32;
        self.heap = BinaryHeap::from(items);
    }

    /// Bytes of heap memory.
    pub fn memory(&self) -> usize {
        self.heap.capacity() * size_of::<u64>()
    }
}

/// Times before 1970 and after 2140 are as good as these: an item only has to come early enough.
fn unit(expire_ms: i64) -> u64 {
    (expire_ms / UNIT_MS).clamp(0, i64::from(u32::MAX)) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn items_come_due_in_order_and_not_before_their_unit_has_passed() {
        let mut index = ExpiryIndex::default();
        index.set(7, None, 1000);
        index.set(8, None, 500);
        assert_eq!(index.volatile(), 2);
        assert_eq!(index.pop_due(500), None);
        assert_eq!(index.pop_due(512), Some(8));
        assert_eq!(index.pop_due(999), None);
        assert_eq!(index.pop_due(1008), Some(7));
        assert_eq!(index.next_due_ms(), None);
    }

    #[test]
    fn a_later_expiry_needs_no_item_and_an_earlier_one_does() {
        let mut index = ExpiryIndex::default();
        index.set(1, None, 10_000);
        index.set(1, Some(10_000), 90_000);
        assert_eq!(index.heap.len(), 1);
        index.set(1, Some(90_000), 100);
        assert_eq!(index.heap.len(), 2);
        assert_eq!(index.volatile(), 1);
    }

    #[test]
    fn far_and_negative_times_are_kept_in_range() {
        let mut index = ExpiryIndex::default();
        index.set(1, None, i64::MAX);
        index.set(2, None, -5);
        assert_eq!(index.pop_due(20), Some(2));
        assert_eq!(index.pop_due(i64::MAX), Some(1));
    }
}
