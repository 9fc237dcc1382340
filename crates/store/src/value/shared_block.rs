//! A block: a sequence of bytes that clones share until one of them changes.
//!
//! ```text
//! u32 owners | u32 capacity | u32 start | u32 length | slack | bytes | slack
//! ```
//! It is what leaves of trees, pages of indexes and chunks of lists are made of: one allocation
//! behind one thin pointer. Slack lies at both ends, so that a list may grow at either end without
//! moving what it holds.
//!
//! What the unsafe code here rests on, by name:
//! - *Whole*: `pointer` is the beginning of a block of a header and `capacity` bytes, all of them
//!   initialised, and `start + length <= capacity`.
//! - *Counted*: `owners` is the number of [`SharedBlock`]s with this pointer. The block is freed by
//!   the last of them.
//! - *Sole*: header and bytes are changed only by a block that is the one owner and is borrowed
//!   exclusively. No new owner can appear meanwhile: that takes a borrow of this one.

use std::alloc::{Layout, alloc, dealloc, handle_alloc_error};
use std::ops::Deref;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, Ordering, fence};

use crate::value::Defragmenter;

/// Bytes behind a counted pointer. A clone is another owner of the same bytes; a change by one of
/// several owners gives it a copy of its own first.
pub(crate) struct SharedBlock {
    pointer: NonNull<Header>,
}

struct Header {
    owners: AtomicU32,
    capacity: u32,
    start: u32,
    len: u32,
}

/// Where a block that has to be allocated anew gets its slack.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Slack {
    /// What the allocator's rounding leaves, behind the bytes.
    Behind,
    /// Room for this many bytes in total, with all slack behind the bytes.
    FillBehind(usize),
    /// Room for this many bytes in total, with all slack in front of the bytes.
    FillBefore(usize),
}

// SAFETY: *counted*: owners on other threads only read what this one reads, and the count is
// atomic. *Sole*: a thread that changes the block has seen that the others have let go of it. Plain
// bytes belong to no thread.
unsafe impl Send for SharedBlock {}
// SAFETY: a shared reference reads the block or makes another owner of it, which counts atomically.
unsafe impl Sync for SharedBlock {}

impl SharedBlock {
    /// Bytes of a block beside its capacity.
    pub(crate) const HEADER: usize = size_of::<Header>();

    /// An empty block with room for `capacity` bytes, the slack behind.
    pub(crate) fn with_capacity(capacity: usize) -> Self {
        Self::allocate(capacity, 0, &[])
    }

    pub(crate) fn from_bytes(bytes: &[u8]) -> Self {
        Self::allocate(bytes.len(), 0, bytes)
    }

    /// The bytes, to be changed in place.
    #[inline]
    pub(crate) fn bytes_mut(&mut self) -> &mut [u8] {
        self.make_unique();
        let header = self.header();
        let (start, len) = (header.start as usize, header.len as usize);
        // SAFETY: *whole*: that number of initialised bytes lies there. *Sole*: we are the one
        // owner, and are borrowed exclusively for as long as the result is used.
        unsafe { NonNull::slice_from_raw_parts(self.base().add(start), len).as_mut() }
    }

    /// Makes a gap of `count` bytes at `at`, of unspecified content, to be written. What is on the
    /// shorter side moves, if there is slack enough.
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
            // The bytes before the gap move into the slack before them, which is long enough, by
            // itself or since the bytes slid.
            let (header, room) = self.parts_mut();
            let start = header.start as usize;
            room.copy_within(start..start + at, start - count);
            header.start -= count as u32;
            header.len += count as u32;
        } else {
            // Those behind the gap move into the slack behind them.
            let (header, room) = self.parts_mut();
            let start = header.start as usize;
            room.copy_within(start + at..start + len, start + at + count);
            header.len += count as u32;
        }
        &mut self.bytes_mut()[at..at + count]
    }

    /// Appends bytes of unspecified content, to be written.
    pub(crate) fn extend(&mut self, count: usize) -> &mut [u8] {
        let len = self.len();
        self.open(len, count, Slack::Behind)
    }

    /// Removes `count` bytes at `at`; what is on the shorter side moves.
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

    /// Cuts the bytes from `len` on off.
    pub(crate) fn truncate(&mut self, len: usize) {
        let old_len = self.len();
        assert!(len <= old_len, "{len} of {old_len} bytes are to stay");
        self.close(len, old_len - len);
    }

    /// Gives slack back that is worth it: a quarter of the block or more.
    pub(crate) fn shrink(&mut self) {
        let len = self.len();
        let needed = capacity_for(len);
        if needed + needed / 4 < self.header().capacity as usize {
            *self = Self::allocate(len, 0, self);
        }
    }

    /// Bytes of memory taken by a block that holds `len` bytes and no slack.
    pub(crate) fn memory_of(len: usize) -> usize {
        Self::HEADER + capacity_for(len)
    }

    /// Bytes of memory that it takes.
    pub(crate) fn memory(&self) -> usize {
        size_of::<Header>() + self.header().capacity as usize
    }

    /// Bytes that may be added in front, and behind, before bytes have to move.
    pub(crate) fn slack(&self) -> (usize, usize) {
        let header = self.header();
        (header.start as usize, (header.capacity - header.start - header.len) as usize)
    }

    #[inline(always)]
    fn is_unique(&self) -> bool {
        // Acquire: what a former owner did with the bytes happens before what we do.
        self.header().owners.load(Ordering::Acquire) == 1
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
        // As much slack at both ends as before.
        *self = Self::allocate(capacity, start, self);
    }

    /// Moves it, if it lies where much is free and has no other owner.
    pub(crate) fn defragment(&mut self, defragmenter: &mut Defragmenter<'_>) {
        if self.is_unique() && defragmenter.wants(self.pointer.cast()) {
            self.copy_for_itself();
        }
    }

    /// Shares the slack out to both ends, if one then has room for `count` bytes and for more to
    /// come.
    fn slide(&mut self, before: bool, count: usize) -> bool {
        let header = self.header();
        let (start, len) = (header.start as usize, header.len as usize);
        let slack = header.capacity as usize - len;
        let half = if before { slack.div_ceil(2) } else { slack / 2 };
        let room = if before { half } else { slack - half };
        // Less is not worth moving everything: then it is time for another block.
        if room < count || slack < header.capacity as usize / 4 {
            return false;
        }
        let (header, room) = self.parts_mut();
        room.copy_within(start..start + len, half);
        header.start = half as u32;
        true
    }

    /// Moves to a block with room for `count` bytes more, which become a gap at `at`.
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

    /// A block with room for `capacity` bytes and more, which holds `bytes` from `start` on.
    fn allocate(capacity: usize, start: usize, bytes: &[u8]) -> Self {
        let capacity = capacity_for(capacity.max(start + bytes.len()));
        let layout = layout(capacity);
        // SAFETY: the layout has the header's size at least, which is not zero.
        let Some(pointer) = NonNull::new(unsafe { alloc(layout) }.cast::<Header>()) else {
            handle_alloc_error(layout);
        };
        let header = Header {
            owners: AtomicU32::new(1),
            capacity: capacity as u32,
            start: start as u32,
            len: bytes.len() as u32,
        };
        // SAFETY: the new block is ours alone, is header and capacity long, and is aligned for the
        // header. The slack is initialised too, which makes it *whole*.
        unsafe {
            pointer.write(header);
            pointer.add(1).cast::<u8>().write_bytes(0, capacity);
        }
        let mut block = Self { pointer };
        block.parts_mut().1[start..start + bytes.len()].copy_from_slice(bytes);
        block
    }

    #[inline(always)]
    fn header(&self) -> &Header {
        // SAFETY: *whole* and *counted*: a header lies there as long as we are an owner. *Sole*:
        // but for the count, which is atomic, it does not change while we are borrowed.
        unsafe { self.pointer.as_ref() }
    }

    /// The header and all room for bytes, for changing them. Only for the one owner: after
    /// `make_unique`, or of a new block.
    #[inline(always)]
    fn parts_mut(&mut self) -> (&mut Header, &mut [u8]) {
        debug_assert!(self.is_unique(), "changed by one of several owners");
        let capacity = self.header().capacity as usize;
        // SAFETY: *whole*: the header lies there, and behind it `capacity` initialised bytes; the
        // two do not overlap. *Sole*: callers have seen to it that we are the one owner, and we are
        // borrowed exclusively for as long as the results are used.
        unsafe {
            let room = NonNull::slice_from_raw_parts(self.base(), capacity).as_mut();
            (self.pointer.as_mut(), room)
        }
    }

    /// Where the room for bytes begins.
    #[inline(always)]
    const fn base(&self) -> NonNull<u8> {
        // SAFETY: *whole*: the block goes on behind its header, or ends there.
        unsafe { self.pointer.add(1).cast() }
    }
}

impl Deref for SharedBlock {
    type Target = [u8];

    #[inline(always)]
    fn deref(&self) -> &[u8] {
        let header = self.header();
        // SAFETY: *whole*: that number of initialised bytes lies there. *Sole*: nothing changes
        // them while this owner is borrowed.
        unsafe {
            NonNull::slice_from_raw_parts(
                self.base().add(header.start as usize),
                header.len as usize,
            )
            .as_ref()
        }
    }
}

impl Clone for SharedBlock {
    #[inline]
    fn clone(&self) -> Self {
        // Relaxed: one owner may make another without anything else being ordered by it.
        let before = self.header().owners.fetch_add(1, Ordering::Relaxed);
        assert!(before < OWNERS_MAX, "{before} owners of a block");
        Self { pointer: self.pointer }
    }
}

impl Drop for SharedBlock {
    #[inline]
    fn drop(&mut self) {
        if self.header().owners.fetch_sub(1, Ordering::Release) != 1 {
            return;
        }
        // What other owners did with the bytes happens before they are freed.
        fence(Ordering::Acquire);
        let layout = layout(self.header().capacity as usize);
        // SAFETY: *counted*: we were the last owner. *Whole*: the capacity is the one that the
        // block was made with.
        unsafe { dealloc(self.pointer.as_ptr().cast(), layout) };
    }
}

const fn slack_before(slack: Slack) -> bool {
    matches!(slack, Slack::FillBefore(_))
}

/// A capacity of at least `len` bytes such that the whole block fills one of the allocator's size
/// classes: four to each doubling, as jemalloc has them.
fn capacity_for(len: usize) -> usize {
    let size = len + size_of::<Header>();
    assert!(size <= SIZE_MAX, "a block of {size} bytes");
    let step = (size.next_power_of_two() / 8).max(size_of::<Header>());
    size.next_multiple_of(step) - size_of::<Header>()
}

fn layout(capacity: usize) -> Layout {
    // Cannot fail: `capacity_for` bounds the size.
    Layout::from_size_align(size_of::<Header>() + capacity, align_of::<u64>())
        .expect("a block's size is in range")
}

/// As many owners would take more memory than there is.
const OWNERS_MAX: u32 = u32::MAX / 2;
/// Largest block; capacities have 32 bits.
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
