//! Which keys of a shard's database expire when: a heap of (time, position) pairs.
//!
//! An item is a hint and nothing more. It says that around its time the keys whose home is near that
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
/// How many of an item's 64 bits are its time: until the year 2109.
const UNIT_BITS: u32 = 38;
/// The low bits of a position for which an item has no room. Keys that differ in no other share a hint.
pub(crate) const POSITION_BITS_LOST: u32 = UNIT_BITS - 32;
/// Fewer items than this are never worth a rebuild.
const REBUILD_MIN: usize = 64;

/// See the module. One pointer, null while no key has an expiry, so that a shard without any stays
/// within its cache line.
#[derive(Default)]
pub struct ExpiryIndex {
    items: Option<Box<Items>>,
}

#[derive(Default)]
struct Items {
    /// See `item`; the smallest first.
    heap: BinaryHeap<Reverse<u64>>,
    /// Keys of the table that have an expiry.
    volatile: u32,
}

impl ExpiryIndex {
    /// How many keys have an expiry.
    #[inline(always)]
    pub fn volatile(&self) -> usize {
        self.items.as_ref().map_or(0, |items| items.volatile as usize)
    }

    /// A key got an expiry that it did not have (`old_ms` none) or a different one.
    pub fn set(&mut self, position: u32, old_ms: Option<i64>, new_ms: i64) {
        let items = self.items.get_or_insert_default();
        if old_ms.is_none() {
            items.volatile += 1;
        }
        if old_ms.is_none_or(|old_ms| unit(new_ms) < unit(old_ms)) {
            items.push(position, new_ms);
        }
    }

    /// A key that had an expiry lost it, or went away.
    pub fn unset(&mut self) {
        let Some(items) = &mut self.items else { return };
        items.volatile -= 1;
        if items.volatile == 0 {
            self.items = None;
        }
    }

    /// The time (Unix ms) from which `pop_due` may return something.
    #[inline(always)]
    pub fn next_due_ms(&self) -> Option<i64> {
        self.items.as_ref()?.next_due_ms()
    }

    /// Takes out the earliest item if its time has passed: the position from which on to look at
    /// `1 << POSITION_BITS_LOST` of them.
    pub fn pop_due(&mut self, now_ms: i64) -> Option<u32> {
        let items = self.items.as_mut()?;
        if items.next_due_ms()? > now_ms {
            return None;
        }
        items.heap.pop().map(|Reverse(item)| (item as u32) << POSITION_BITS_LOST)
    }

    /// Puts an item in for a key that was found alive when its item came due.
    pub fn push(&mut self, position: u32, expire_ms: i64) {
        if let Some(items) = &mut self.items {
            items.push(position, expire_ms);
        }
    }

    /// Whether so many items lead nowhere that the index should be rebuilt from the table.
    #[inline(always)]
    pub fn wants_rebuild(&self) -> bool {
        self.items.as_ref().is_some_and(|items| {
            items.heap.len() > REBUILD_MIN && items.heap.len() / 2 > items.volatile as usize
        })
    }

    /// Starts over with the (position, expiry) of every key that has one.
    pub fn rebuild(&mut self, keys: impl Iterator<Item = (u32, i64)>) {
        let Some(items) = &mut self.items else { return };
        let mut fresh = Vec::with_capacity(items.volatile as usize);
        fresh.extend(keys.map(|(position, ms)| Reverse(item(position, ms))));
        items.volatile = fresh.len() as u32;
        items.heap = BinaryHeap::from(fresh);
    }

    /// Bytes of heap memory.
    pub fn memory(&self) -> usize {
        self.items
            .as_deref()
            .map_or(0, |items| size_of::<Items>() + items.heap.capacity() * size_of::<u64>())
    }
}

impl Items {
    fn next_due_ms(&self) -> Option<i64> {
        // The unit must have passed whole: its keys expire anywhere within it.
        self.heap.peek().map(|Reverse(item)| ((item >> (64 - UNIT_BITS)) as i64 + 1) * UNIT_MS)
    }

    fn push(&mut self, position: u32, expire_ms: i64) {
        if self.heap.len() == self.heap.capacity() {
            // Doubling would leave half of it unused; these vectors are a cost per key.
            self.heap.reserve_exact(self.heap.len() / 4 + 4);
        }
        self.heap.push(Reverse(item(position, expire_ms)));
    }
}

/// The time's unit above the position.
fn item(position: u32, expire_ms: i64) -> u64 {
    unit(expire_ms) << (64 - UNIT_BITS) | u64::from(position >> POSITION_BITS_LOST)
}

/// Times before 1970 and after 2109 are as good as these: an item only has to come early enough.
pub(crate) fn unit(expire_ms: i64) -> u64 {
    (expire_ms / UNIT_MS).clamp(0, (1 << UNIT_BITS) - 1) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn items_come_due_in_order_and_not_before_their_unit_has_passed() {
        let mut index = ExpiryIndex::default();
        index.set(7 << 6, None, 1000);
        index.set(8 << 6, None, 500);
        assert_eq!(index.volatile(), 2);
        assert_eq!(index.pop_due(500), None);
        assert_eq!(index.pop_due(512), Some(8 << 6));
        assert_eq!(index.pop_due(999), None);
        assert_eq!(index.pop_due(1008), Some(7 << 6));
        assert_eq!(index.next_due_ms(), None);
    }

    #[test]
    fn a_later_expiry_needs_no_item_and_an_earlier_one_does() {
        let mut index = ExpiryIndex::default();
        index.set(1, None, 10_000);
        index.set(1, Some(10_000), 90_000);
        assert_eq!(index.items.as_ref().unwrap().heap.len(), 1);
        index.set(1, Some(90_000), 100);
        assert_eq!(index.items.as_ref().unwrap().heap.len(), 2);
        assert_eq!(index.volatile(), 1);
    }

    #[test]
    fn far_and_negative_times_are_kept_in_range() {
        let mut index = ExpiryIndex::default();
        index.set(1 << 6, None, i64::MAX);
        index.set(2 << 6, None, -5);
        assert_eq!(index.pop_due(20), Some(2 << 6));
        assert_eq!(index.pop_due(i64::MAX), Some(1 << 6));
    }

    #[test]
    fn times_of_today_are_told_apart() {
        const NOW_MS: i64 = 1_800_000_000_000;
        let mut index = ExpiryIndex::default();
        index.set(u32::MAX, None, NOW_MS + 1000);
        index.set(77, None, NOW_MS + 500_000);
        let due_ms = index.next_due_ms().unwrap();
        assert!((NOW_MS + 1000..=NOW_MS + 1000 + UNIT_MS).contains(&due_ms), "{due_ms}");
        assert_eq!(index.pop_due(NOW_MS), None);
        assert_eq!(index.pop_due(due_ms), Some(u32::MAX - 63));
        assert_eq!(index.pop_due(due_ms), None);
        assert_eq!(index.pop_due(NOW_MS + 600_000), Some(64));
    }
}
