//! A block: a sequence of bytes, which clones share until one changes.
//!
//! ```text
//! u32 owners | u32 capacity | u32 start | u32 length | slack | bytes | slack
//! ```
//! Leaves of trees, pages of indexes and chunks of lists are such blocks: one allocation behind one
//! pointer. Slack lies at both ends, so a list can grow at either end without moving its bytes.
//!
//! The unsafe code here relies on these rules:
//! - *Whole*: `pointer` is the beginning of a block with a header and `capacity` bytes, all of them
//!   initialised, and `start + length <= capacity`.
//! - *Counted*: `owners` is the number of [`SharedBlock`]s with this pointer. The last of them
//!   frees the block.
//! - *Sole*: only a single owner, borrowed exclusively, changes the header and the bytes. No new
//!   owner can appear meanwhile, because that takes a borrow of this one.

use std::alloc::{Layout, alloc, dealloc, handle_alloc_error};
use std::ops::Deref;
use std::ptr::NonNull;

use super::owners::Owners;
use super::prefetch::prefetch;
use crate::value::Defragmenter;
use crate::value::defrag::Movable;

/// Bytes behind a counted pointer. A clone is another owner of the same bytes. If there are several
/// owners, one that changes the bytes makes its own copy first.
pub(crate) struct SharedBlock {
    pointer: NonNull<BlockHeader>,
}

struct BlockHeader {
    owners: Owners,
    capacity: u32,
    start: u32,
    len: u32,
}

/// Where a new block gets its slack.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Slack {
    /// Behind the bytes: what the allocator's rounding leaves.
    Behind,
    /// Room for this many bytes in total, with all slack behind the bytes.
    FillBehind(usize),
    /// Room for this many bytes in total, with all slack before the bytes.
    FillBefore(usize),
}

// SAFETY: *counted*: owners on other threads only read the same bytes, and the count is atomic.
// *Sole*: a thread that changes the block has seen that the others have released it. Plain bytes
// belong to no thread.
unsafe impl Send for SharedBlock {}
// SAFETY: a shared reference reads the block or makes another owner, which counts atomically.
unsafe impl Sync for SharedBlock {}

impl SharedBlock {
    /// The bytes of a block beside its capacity.
    pub(crate) const HEADER: usize = size_of::<BlockHeader>();

    /// An empty block with room for `capacity` bytes, all slack behind.
    pub(crate) fn with_capacity(capacity: usize) -> Self {
        Self::allocate(capacity, 0, &[])
    }

    pub(crate) fn from_bytes(bytes: &[u8]) -> Self {
        Self::allocate(bytes.len(), 0, bytes)
    }

    /// The bytes, for changing them in place.
    #[inline]
    pub(crate) fn bytes_mut(&mut self) -> &mut [u8] {
        self.make_unique();
        let header = self.header();
        let (start, len) = (header.start as usize, header.len as usize);
        // SAFETY: *whole*: that many initialised bytes lie there. *Sole*: we are the only owner,
        // and are borrowed exclusively while the result is used.
        unsafe { NonNull::slice_from_raw_parts(self.base().add(start), len).as_mut() }
    }

    /// Makes a gap of `count` bytes with unspecified contents at `at`, for the caller to write. The
    /// bytes on the shorter side move, if there is enough slack.
    pub(crate) fn open(&mut self, at: usize, count: usize, slack: Slack) -> &mut [u8] {
        let len = self.len();
        assert!(at <= len, "a gap at {at} of {len} bytes");
        let header = self.header();
        let (start, capacity) = (header.start as usize, header.capacity as usize);
        let behind = capacity - start - len;
        let before = at < len - at || len == 0 && slack_before(slack);
        let enough = if before { start } else { behind } >= count;
        if !self.is_unique() || !enough && !self.slide(before, count) {
            self.reallocate(at, count, slack);
        } else if before {
            // The bytes before the gap move into the slack before them, which was long enough or
            // has become so by `slide`.
            let (header, room) = self.parts_mut();
            let start = header.start as usize;
            room.copy_within(start..start + at, start - count);
            header.start -= count as u32;
            header.len += count as u32;
        } else {
            // The bytes behind the gap move into the slack behind them.
            let (header, room) = self.parts_mut();
            let start = header.start as usize;
            room.copy_within(start + at..start + len, start + at + count);
            header.len += count as u32;
        }
        &mut self.bytes_mut()[at..at + count]
    }

    /// Appends bytes with unspecified contents, for the caller to write.
    pub(crate) fn extend(&mut self, count: usize) -> &mut [u8] {
        let len = self.len();
        self.open(len, count, Slack::Behind)
    }

    /// Removes `count` bytes at `at`. The bytes on the shorter side move.
    pub(crate) fn close(&mut self, at: usize, count: usize) {
        let len = self.len();
        assert!(at <= len && count <= len - at, "{at} and {count} of {len} bytes");
        self.make_unique();
        let before = at < len - at - count;
        let bytes = self.bytes_mut();
        if before {
            bytes.copy_within(0..at, count);
        } else {
            bytes.copy_within(at + count.., at);
        }
        let (header, _) = self.parts_mut();
        header.len -= count as u32;
        if before {
            header.start += count as u32;
        }
    }

    /// Removes the bytes from `len` on.
    pub(crate) fn truncate(&mut self, len: usize) {
        let old_len = self.len();
        assert!(len <= old_len, "{len} of {old_len} bytes are to stay");
        self.close(len, old_len - len);
    }

    /// Frees slack if it is at least a quarter of the block.
    pub(crate) fn shrink(&mut self) {
        let len = self.len();
        let needed = capacity_for(len);
        if needed + needed / 4 < self.header().capacity as usize {
            *self = Self::allocate(len, 0, self);
        }
    }

    /// Prefetches the header, and a line of the bytes if no slack lies before them.
    #[inline]
    pub(crate) fn prefetch(&self, at: usize) {
        let header = self.pointer.as_ptr().cast::<u8>();
        prefetch(header);
        prefetch(header.wrapping_add(Self::HEADER + at));
    }

    /// The memory of a block with `len` bytes and no slack, in bytes.
    pub(crate) fn memory_of(len: usize) -> usize {
        Self::HEADER + capacity_for(len)
    }

    /// Bytes of memory.
    pub(crate) fn memory(&self) -> usize {
        size_of::<BlockHeader>() + self.header().capacity as usize
    }

    /// How many bytes may be added before the others, and behind them, until bytes have to move.
    pub(crate) fn slack(&self) -> (usize, usize) {
        let header = self.header();
        (header.start as usize, (header.capacity - header.start - header.len) as usize)
    }

    #[inline(always)]
    fn is_unique(&self) -> bool {
        self.header().owners.is_one()
    }

    #[inline(always)]
    fn make_unique(&mut self) {
        if !self.is_unique() {
            self.copy_for_itself();
        }
    }

    #[cold]
    fn copy_for_itself(&mut self) {
        let (start, capacity) = (self.header().start as usize, self.header().capacity as usize);
        // With the same slack at both ends.
        *self = Self::allocate(capacity, start, self);
    }

    /// Divides the slack between both ends, if one end then has room for `count` bytes and more.
    fn slide(&mut self, before: bool, count: usize) -> bool {
        let header = self.header();
        let (start, len) = (header.start as usize, header.len as usize);
        let slack = header.capacity as usize - len;
        let half = if before { slack.div_ceil(2) } else { slack / 2 };
        let room = if before { half } else { slack - half };
        // With less slack a new block is better than moving everything.
        if room < count || slack < header.capacity as usize / 4 {
            return false;
        }
        let (header, room) = self.parts_mut();
        room.copy_within(start..start + len, half);
        header.start = half as u32;
        true
    }

    /// Moves to a block with room for `count` more bytes, which become a gap at `at`.
    fn reallocate(&mut self, at: usize, count: usize, slack: Slack) {
        let len = self.len();
        let total = len + count;
        let capacity = match slack {
            Slack::Behind => total,
            Slack::FillBehind(capacity) | Slack::FillBefore(capacity) => capacity.max(total),
        };
        let mut new = Self::with_capacity(capacity);
        let (header, room) = new.parts_mut();
        let start = if slack_before(slack) { room.len() - total } else { 0 };
        let (before, behind) = self.split_at(at);
        room[start..start + at].copy_from_slice(before);
        room[start + at + count..start + total].copy_from_slice(behind);
        (header.start, header.len) = (start as u32, total as u32);
        *self = new;
    }

    /// A block with room for at least `capacity` bytes, which holds `bytes` from `start` on.
    fn allocate(capacity: usize, start: usize, bytes: &[u8]) -> Self {
        let capacity = capacity_for(capacity.max(start + bytes.len()));
        let layout = layout(capacity);
        // SAFETY: the layout has at least the header's size, which is not zero.
        let Some(pointer) = NonNull::new(unsafe { alloc(layout) }.cast::<BlockHeader>()) else {
            handle_alloc_error(layout);
        };
        let header = BlockHeader {
            owners: Owners::one(),
            capacity: capacity as u32,
            start: start as u32,
            len: bytes.len() as u32,
        };
        // SAFETY: only this function uses the new block, which has room for the header and the
        // capacity, and is aligned for the header. The slack is initialised too, which makes the
        // block *whole*.
        unsafe {
            pointer.write(header);
            pointer.add(1).cast::<u8>().write_bytes(0, capacity);
        }
        let mut block = Self { pointer };
        block.parts_mut().1[start..start + bytes.len()].copy_from_slice(bytes);
        block
    }

    #[inline(always)]
    fn header(&self) -> &BlockHeader {
        // SAFETY: *whole* and *counted*: a header lies there while we are an owner. *Sole*: except
        // for the count, which is atomic, it does not change while we are borrowed.
        unsafe { self.pointer.as_ref() }
    }

    /// The header and all room for bytes, for changing them. Only for a single owner: after
    /// `make_unique`, or for a new block.
    #[inline(always)]
    fn parts_mut(&mut self) -> (&mut BlockHeader, &mut [u8]) {
        debug_assert!(self.is_unique(), "changed by one of several owners");
        let capacity = self.header().capacity as usize;
        // SAFETY: *whole*: the header lies there, and behind it `capacity` initialised bytes. The
        // two do not overlap. *Sole*: callers have made us the only owner, and we are borrowed
        // exclusively while the results are used.
        unsafe {
            let room = NonNull::slice_from_raw_parts(self.base(), capacity).as_mut();
            (self.pointer.as_mut(), room)
        }
    }

    /// The beginning of the room for bytes.
    #[inline(always)]
    const fn base(&self) -> NonNull<u8> {
        // SAFETY: *whole*: the block continues behind its header, or ends there.
        unsafe { self.pointer.add(1).cast() }
    }
}

impl Deref for SharedBlock {
    type Target = [u8];

    #[inline(always)]
    fn deref(&self) -> &[u8] {
        let header = self.header();
        // SAFETY: *whole*: that many initialised bytes lie there. *Sole*: nothing changes them
        // while this owner is borrowed.
        unsafe {
            NonNull::slice_from_raw_parts(
                self.base().add(header.start as usize),
                header.len as usize,
            )
            .as_ref()
        }
    }
}

impl Movable for SharedBlock {
    fn defragment(&mut self, defragmenter: &mut Defragmenter<'_>) {
        if self.is_unique() && defragmenter.wants(self.pointer.cast()) {
            self.copy_for_itself();
        }
    }
}

impl Clone for SharedBlock {
    #[inline]
    fn clone(&self) -> Self {
        self.header().owners.add();
        Self { pointer: self.pointer }
    }
}

impl Drop for SharedBlock {
    #[inline]
    fn drop(&mut self) {
        if !self.header().owners.remove() {
            return;
        }
        let layout = layout(self.header().capacity as usize);
        // SAFETY: *counted*: we were the last owner. *Whole*: the capacity is that of the block's
        // layout.
        unsafe { dealloc(self.pointer.as_ptr().cast(), layout) };
    }
}

const fn slack_before(slack: Slack) -> bool {
    matches!(slack, Slack::FillBefore(_))
}

/// A capacity of at least `len` bytes for which the whole block fills one of jemalloc's size
/// classes: four for each doubling.
fn capacity_for(len: usize) -> usize {
    let size = len + size_of::<BlockHeader>();
    assert!(size <= SIZE_MAX, "a block of {size} bytes");
    let step = (size.next_power_of_two() / 8).max(size_of::<BlockHeader>());
    size.next_multiple_of(step) - size_of::<BlockHeader>()
}

fn layout(capacity: usize) -> Layout {
    // Cannot fail: `capacity_for` bounds the size.
    Layout::from_size_align(size_of::<BlockHeader>() + capacity, align_of::<u64>())
        .expect("a block's size is in range")
}

/// The largest block. Capacities have 32 bits.
const SIZE_MAX: usize = 3 << 30;

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn blocks_fill_size_classes() {
        for (len, size) in [(0, 16), (1, 32), (48, 64), (113, 160), (1008, 1024), (1009, 1280)] {
            assert_eq!(SharedBlock::with_capacity(len).memory(), size, "{len}");
        }
    }

    #[test]
    #[should_panic(expected = "2 of 1 bytes are to stay")]
    fn cutting_off_makes_nothing_longer() {
        SharedBlock::from_bytes(b"x").truncate(2);
    }

    #[test]
    fn slack_before_lets_it_grow_to_the_front_in_place() {
        let mut block = SharedBlock::with_capacity(0);
        block.open(0, 4, Slack::FillBefore(112)).copy_from_slice(b"last");
        assert_eq!(block.slack(), (108, 0));
        block.open(0, 5, Slack::Behind).copy_from_slice(b"first");
        assert_eq!(block.slack(), (103, 0));
        assert_eq!(&*block, b"firstlast");
    }

    proptest! {
        #[test]
        fn behaves_like_a_vec_while_clones_stay_as_they_were(
            steps in proptest::collection::vec((0..6usize, any::<u16>(), 0..200usize), 1..60)
        ) {
            let mut block = SharedBlock::with_capacity(0);
            let mut model: Vec<u8> = Vec::new();
            let mut clones = Vec::new();
            for (number, (what, at, count)) in steps.into_iter().enumerate() {
                let at = usize::from(at) % (model.len() + 1);
                let fill = vec![number as u8; count];
                match what {
                    0 | 1 => {
                        let slack = match number % 3 {
                            0 => Slack::Behind,
                            1 => Slack::FillBefore(500),
                            _ => Slack::FillBehind(500),
                        };
                        block.open(at, count, slack).copy_from_slice(&fill);
                        model.splice(at..at, fill);
                    }
                    2 | 3 => {
                        let count = count.min(model.len() - at);
                        block.close(at, count);
                        model.drain(at..at + count);
                    }
                    4 => clones.push((block.clone(), model.clone())),
                    _ => {
                        block.shrink();
                        if let Some(last) = block.bytes_mut().last_mut() {
                            *last = number as u8;
                            *model.last_mut().unwrap() = number as u8;
                        }
                    }
                }
                prop_assert_eq!(&*block, &*model);
            }
            for (clone, model) in clones {
                prop_assert_eq!(&*clone, &*model);
            }
        }
    }
}
