//! Knows when the keys of a shard's database expire: a heap of (time, position) pairs.
//!
//! An item is only a hint. It says that around its time the keys whose home is near that position
//! are worth a look. Every key with an expiry has an item that is not later than the expiry. So:
//!
//! - A key that is deleted leaves its item behind, which later finds nothing.
//! - A key whose expiry moves back needs no new item: the old one comes due, finds the key alive,
//!   and is inserted again with the right time.
//! - A key whose expiry moves forward gets one more item.
//!
//! An item is one word of 32 bits, so its time is relative to a base, which moves. Once stale items
//! outnumber the keys, the index is rebuilt.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use super::CutPart;

/// Milliseconds per unit of an item's time. A key is not visible from its own millisecond on; its
/// memory may be freed up to one unit later.
const UNIT_MS: i64 = 16;
/// How many of an item's 32 bits are its time, counted from the index's base. They cover four and a
/// half hours. A key that lives longer is looked at, and its item inserted again, that often.
const TIME_BITS: u32 = 20;
const TIME_MAX: u64 = (1 << TIME_BITS) - 1;
/// How many low bits of a position an item lacks. Keys that differ only in these bits share one
/// item: about one bucket of a shard's table.
pub(crate) const POSITION_BITS_LOST: u32 = TIME_BITS;
/// An index with fewer items than this is not rebuilt.
const REBUILD_MIN: usize = 64;

/// The deadlines of a database's keys.
pub struct ExpiryIndex {
    /// None while no key has an expiry. What few shards need, or few commands, is behind this one
    /// pointer, so that a shard fits its cache line.
    items: Option<Box<Items>>,
    /// From when on (Unix ms) `pop_due` may return something; `i64::MAX`: never. Each command that
    /// uses the shard wants to know it, and need not touch the items for that.
    next_due_ms: i64,
}

#[derive(Default)]
struct Items {
    /// Each item has its time in the high bits and the position's first bits below. The smallest
    /// comes first.
    heap: BinaryHeap<Reverse<u32>>,
    /// The unit that times are counted from.
    base: u64,
    /// How many keys of the table have an expiry.
    volatile: u32,
    /// How many hashes of the table have fields that expire.
    hashes: u32,
    /// Set while the database's keys belong to a cut.
    cut: Option<CutPart>,
}

impl Default for ExpiryIndex {
    fn default() -> Self {
        Self { items: None, next_due_ms: i64::MAX }
    }
}

impl ExpiryIndex {
    /// Whether anything expires, or belongs to a cut.
    #[inline(always)]
    pub(crate) const fn is_some(&self) -> bool {
        self.items.is_some()
    }

    /// How many keys have an expiry.
    #[inline(always)]
    pub fn volatile(&self) -> usize {
        self.items.as_ref().map_or(0, |items| items.volatile as usize)
    }

    /// Notes that a key got an expiry. `old_ms` is its earlier one, if it had one.
    pub fn set(&mut self, position: u32, old_ms: Option<i64>, new_ms: i64) {
        let items = self.items.get_or_insert_default();
        if old_ms.is_none() {
            items.volatile += 1;
        }
        if old_ms.is_none_or(|old_ms| unit(new_ms) < unit(old_ms)) {
            self.next_due_ms = items.push(position, new_ms);
        }
    }

    /// Notes that a key with an expiry lost it, or was removed.
    pub fn unset(&mut self) {
        let Some(items) = &mut self.items else { return };
        items.volatile -= 1;
        self.forget_stale();
    }

    /// How many hashes have fields that expire.
    #[inline(always)]
    pub(crate) fn hashes(&self) -> usize {
        self.items.as_ref().map_or(0, |items| items.hashes as usize)
    }

    /// Notes when the first field of the hash at a key expired before a change, and when it does
    /// now. `None`: no field does, or the key has no hash.
    #[inline]
    pub(crate) fn note_fields(&mut self, position: u32, old_ms: Option<i64>, new_ms: Option<i64>) {
        match (old_ms, new_ms) {
            (_, Some(new_ms)) => {
                let items = self.items.get_or_insert_default();
                items.hashes += u32::from(old_ms.is_none());
                if old_ms.is_none_or(|old_ms| unit(new_ms) < unit(old_ms)) {
                    self.next_due_ms = items.push(position, new_ms);
                }
            }
            (Some(_), None) => {
                let Some(items) = &mut self.items else { return };
                items.hashes -= 1;
                self.forget_stale();
            }
            (None, None) => {}
        }
    }

    /// Frees the items once nothing expires any more: all of them are stale.
    fn forget_stale(&mut self) {
        let Some(items) = &mut self.items else { return };
        if items.volatile == 0 && items.hashes == 0 {
            items.heap = BinaryHeap::new();
            self.next_due_ms = i64::MAX;
            self.tidy();
        }
    }

    /// The cut that the keys belong to.
    #[inline(always)]
    pub(crate) fn cut(&self) -> Option<&CutPart> {
        self.items.as_ref()?.cut.as_ref()
    }

    pub(crate) fn cut_mut(&mut self) -> Option<&mut CutPart> {
        self.items.as_mut()?.cut.as_mut()
    }

    pub(crate) fn set_cut(&mut self, part: Option<CutPart>) {
        if part.is_some() || self.items.is_some() {
            self.items.get_or_insert_default().cut = part;
            self.tidy();
        }
    }

    /// Frees the block if it is empty.
    fn tidy(&mut self) {
        self.items.take_if(|items| items.volatile == 0 && items.hashes == 0 && items.cut.is_none());
    }

    /// The time (Unix ms) from which `pop_due` may return something; `i64::MAX`: never.
    #[inline(always)]
    pub const fn next_due_ms(&self) -> i64 {
        self.next_due_ms
    }

    /// Removes the earliest item if its time has passed. Returns the first of the `1 <<
    /// POSITION_BITS_LOST` positions to look at.
    pub fn pop_due(&mut self, now_ms: i64) -> Option<u32> {
        if self.next_due_ms > now_ms {
            return None;
        }
        let items = self.items.as_mut()?;
        let Reverse(item) = items.heap.pop()?;
        // Items that are due are removed first. Then the remaining ones have room again at the far
        // end.
        let now = unit(now_ms);
        if now > items.base + TIME_MAX / 2 {
            // The unit before, so that other due items stay due.
            items.move_base(now - 1);
        }
        self.next_due_ms = items.next_due_ms();
        Some(item << POSITION_BITS_LOST)
    }

    /// Inserts an item for keys that were found alive when one of their items came due.
    pub fn push(&mut self, position: u32, expire_ms: i64) {
        if let Some(items) = &mut self.items {
            self.next_due_ms = items.push(position, expire_ms);
        }
    }

    /// Whether most items of the index are stale, so that it should be rebuilt from the table.
    #[inline(always)]
    pub fn wants_rebuild(&self) -> bool {
        self.items.as_ref().is_some_and(|items| {
            let keys = items.volatile as usize + items.hashes as usize;
            items.heap.len() > REBUILD_MIN && items.heap.len() / 2 > keys
        })
    }

    /// How many items there are, including stale ones.
    pub fn items(&self) -> usize {
        self.items.as_ref().map_or(0, |items| items.heap.len())
    }

    /// Rebuilds the index from every key that has an expiry or fields with one. Each element is the
    /// key's position, its expiry, and the earliest expiry of its fields.
    pub fn rebuild(&mut self, keys: impl Iterator<Item = (u32, Option<i64>, Option<i64>)>) {
        let Some(items) = &mut self.items else { return };
        items.heap = BinaryHeap::with_capacity((items.volatile + items.hashes) as usize);
        (items.volatile, items.hashes) = (0, 0);
        for (position, expire_ms, fields_ms) in keys {
            items.volatile += u32::from(expire_ms.is_some());
            items.hashes += u32::from(fields_ms.is_some());
            if let Some(first_ms) = expire_ms.into_iter().chain(fields_ms).min() {
                items.push(position, first_ms);
            }
        }
        self.next_due_ms = items.next_due_ms();
        self.tidy();
    }

    /// Bytes of heap memory.
    pub fn memory(&self) -> usize {
        self.items
            .as_deref()
            .map_or(0, |items| size_of::<Items>() + items.heap.capacity() * size_of::<u32>())
    }
}

impl Items {
    fn next_due_ms(&self) -> i64 {
        let Some(Reverse(item)) = self.heap.peek() else { return i64::MAX };
        // The whole unit must have passed, because its keys may expire anywhere within it.
        let unit = self.base + u64::from(item >> (32 - TIME_BITS)) + 1;
        i64::try_from(unit).map_or(i64::MAX, |unit| unit.saturating_mul(UNIT_MS))
    }

    /// Adds an item, and returns when the next one is due (Unix ms).
    fn push(&mut self, position: u32, expire_ms: i64) -> i64 {
        let unit = unit(expire_ms);
        if self.heap.is_empty() {
            self.base = unit.saturating_sub(TIME_MAX / 2);
        } else if unit < self.base {
            // Leave room for still earlier times.
            self.move_base(unit.saturating_sub(TIME_MAX / 2));
        }
        if self.heap.len() == self.heap.capacity() {
            // Doubling would leave half of the vector unused, and these vectors cost memory for
            // each key.
            let more = block_size((self.heap.len() + 1) * size_of::<u32>()) / size_of::<u32>();
            self.heap.reserve_exact(more - self.heap.len());
        }
        let time = (unit - self.base).min(TIME_MAX) as u32;
        self.heap.push(Reverse(time << (32 - TIME_BITS) | position >> POSITION_BITS_LOST));
        self.next_due_ms()
    }

    /// Counts times from another unit. A time that is then out of range becomes the nearest one in
    /// range, which may be early but never late.
    #[cold]
    fn move_base(&mut self, base: u64) {
        let mut items = std::mem::take(&mut self.heap).into_vec();
        for Reverse(item) in &mut items {
            let unit = self.base + u64::from(*item >> (32 - TIME_BITS));
            let time = unit.saturating_sub(base).min(TIME_MAX) as u32;
            *item = time << (32 - TIME_BITS) | *item & ((1 << (32 - TIME_BITS)) - 1);
        }
        self.heap = BinaryHeap::from(items);
        self.base = base;
    }
}

/// A time before 1970 counts as 1970: an item only has to come early enough.
fn unit(expire_ms: i64) -> u64 {
    (expire_ms / UNIT_MS).max(0) as u64
}

/// The size of the block that an allocator with four classes per power of two gives for this many
/// bytes.
const fn block_size(bytes: usize) -> usize {
    if bytes <= 64 {
        bytes.next_multiple_of(16)
    } else {
        bytes.next_multiple_of(bytes.next_power_of_two() / 8)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW_MS: i64 = 1_800_000_000_000;
    const HOUR_MS: i64 = 3_600_000;

    /// The first position that an item for this position stands for.
    fn first(position: u32) -> u32 {
        position >> POSITION_BITS_LOST << POSITION_BITS_LOST
    }

    #[test]
    fn items_come_due_in_order_and_not_before_their_unit_has_passed() {
        let mut index = ExpiryIndex::default();
        index.set(7 << 20, None, NOW_MS + 1000);
        index.set(8 << 20, None, NOW_MS + 500);
        assert_eq!(index.volatile(), 2);
        assert_eq!(index.pop_due(NOW_MS + 500), None);
        assert_eq!(index.pop_due(NOW_MS + 512), Some(8 << 20));
        assert_eq!(index.pop_due(NOW_MS + 999), None);
        assert_eq!(index.pop_due(NOW_MS + 1008), Some(7 << 20));
        assert_eq!(index.next_due_ms(), i64::MAX);
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

    /// For times in any order and distance there is always an item that is not later, and the
    /// series of due items ends.
    #[test]
    fn no_item_is_later_than_its_key() {
        let mut state = 1u64;
        let mut random = || {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            state >> 33
        };
        let spans_ms = [10, 1000, HOUR_MS, 24 * HOUR_MS, 365 * 24 * HOUR_MS];
        let mut index = ExpiryIndex::default();
        let mut keys = std::collections::HashMap::new();
        for _ in 0..if cfg!(miri) { 20 } else { 500 } {
            let position = first((random() as u32) << 12);
            let span_ms = spans_ms[random() as usize % spans_ms.len()];
            let expire_ms = NOW_MS + random() as i64 % span_ms;
            index.set(position, keys.insert(position, expire_ms), expire_ms);
        }
        index.set(0, keys.insert(0, i64::MAX), i64::MAX);
        index.set(1 << 20, keys.insert(1 << 20, -5), -5);
        let mut now_ms = NOW_MS;
        let mut looks = 0;
        while keys.len() > 1 {
            while let Some(position) = index.pop_due(now_ms) {
                looks += 1;
                match keys.get(&position) {
                    Some(expire_ms) if *expire_ms <= now_ms => {
                        keys.remove(&position);
                        index.unset();
                    }
                    Some(expire_ms) => index.push(position, *expire_ms),
                    None => {}
                }
            }
            assert!(keys.values().all(|ms| *ms > now_ms - 3 * UNIT_MS), "at {now_ms}");
            assert_eq!(index.next_due_ms(), index.items.as_ref().unwrap().next_due_ms());
            now_ms = index.next_due_ms();
        }
        assert!(looks < 500_000, "{looks} looks");
    }
}
