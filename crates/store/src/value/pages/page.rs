//! A page: the records of a small range of hashes, in one block.
//!
//! ```text
//! header | tag, u8 each | offset, u16 or u32 each | records, in no order, with gaps
//! ```
//! A tag is eight bits of the key's hash: sixteen are compared at a time, and nearly always only
//! the right record is looked at. The block is as large as it need be (to an eighth or so) and is
//! made anew when it is not, which also closes the gaps.
//!
//! A page is as long as its records need: those whose hashes begin alike cannot be split, and a
//! client may search for such. What offsets of 16 bits do not reach has offsets of 32.
//!
//! Clones share the block until one changes (see `Cow`; this is the same for a block without a
//! type).
//!
//! What the unsafe code here rests on, by name:
//! - *Whole*: the block is `size` bytes long, has the layout that goes with that, and lies as the
//!   picture says. All tags are initialised.
//! - *Recorded*: each slot below `count` has the offset of a record, which `record` wrote or which
//!   was copied from another page as it was. It lies within the `used` bytes of the heap, and has a
//!   value if `values` says so.
//! - *Owning*: of each string that one of the records keeps outside the page owns one reference,
//!   however many clones of the page there are.
//! - *Counted*: `owners` is the number of [`Page`]s with this pointer; the last of them frees the
//!   block.
//! - *Sole*: but for the count, the block is changed only by the one owner, borrowed exclusively.
//!   No new owner can appear meanwhile: that takes a borrow of this one.

use std::alloc::{alloc, dealloc, handle_alloc_error};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, Ordering, fence};

use super::super::block;
use super::super::tags::{self, GROUP};
use super::record::{self, NewRecord, Record};
use crate::value::Defragmenter;
use crate::value::prefetch::prefetch;

/// Records whose hashes lie close together.
pub(super) struct Page {
    block: NonNull<Header>,
}

#[repr(C)]
struct Header {
    owners: AtomicU32,
    /// Bytes of the block.
    size: u32,
    /// No record expires earlier; a hint, `NEVER` when none does.
    earliest_ms: i64,
    count: u32,
    /// Groups of records that tags and offsets have room for.
    groups: u16,
    /// Whether a record may keep a string outside; a hint.
    outside: bool,
    /// Whether records have values.
    values: bool,
    /// Bytes of the heap that were given to records.
    used: u32,
    /// How many of them are gaps by now.
    gaps: u32,
}

// SAFETY: owners on several threads read the records at a time, and the last one, on whichever
// thread, lets go of the strings outside. Bytes and `Shared` strings allow both. The count is
// atomic.
unsafe impl Send for Page {}
// SAFETY: a shared reference reads the records or makes another owner, so it allows what sending
// one does.
unsafe impl Sync for Page {}

impl Page {
    pub(super) fn new(values: bool) -> Self {
        Self::allocate(values, GROUP, 64)
    }

    /// A page without records, with room for some.
    fn allocate(values: bool, slots: usize, heap: usize) -> Self {
        let groups = slots.div_ceil(GROUP);
        let slots = groups * GROUP;
        let mut layout = block::layout(HEADER + slot_size(false) * slots + heap);
        if is_wide(layout.size()) {
            layout = block::layout(HEADER + slot_size(true) * slots + heap);
        }
        // Too large for these would be a page of a million records. From half of that on a page is
        // split whatever it costs (`must_split`), so all its hashes would begin with the same 36
        // bits. To find the keys would take 2^56 trials.
        let size = u32::try_from(layout.size()).expect("a page has a size of 32 bits");
        let groups = u16::try_from(groups).expect("a page has a million records at most");
        // SAFETY: there is room for a header at least, so the size is not zero.
        let Some(start) = NonNull::new(unsafe { alloc(layout) }) else {
            handle_alloc_error(layout);
        };
        let block = start.cast::<Header>();
        // Tags are compared by groups, and those of a group that are not used are compared too.
        // SAFETY: the new block is ours alone. It is aligned to 8 and has room for the header and,
        // behind it, the tags. That makes it *whole*, without records.
        unsafe {
            start.add(HEADER).write_bytes(0, slots);
            block.write(Header {
                owners: AtomicU32::new(1),
                size,
                earliest_ms: NEVER,
                count: 0,
                groups,
                outside: false,
                values,
                used: 0,
                gaps: 0,
            });
        }
        Self { block }
    }

    #[inline(always)]
    fn is_unique(&self) -> bool {
        // Acquire: what former owners read happened before they let go.
        self.header().owners.load(Ordering::Acquire) == 1
    }

    /// Makes this the block's only owner. Whatever changes a page begins with this.
    #[inline(always)]
    pub(super) fn make_unique(&mut self) {
        if !self.is_unique() {
            *self = self.copy(self.len(), self.live());
        }
    }

    /// Moves it, if it lies where much is free and has no other owner.
    pub(super) fn defragment(&mut self, defragmenter: &mut Defragmenter<'_>) {
        if self.is_unique() && defragmenter.wants(self.block.cast()) {
            *self = self.copy(self.len(), self.live());
        }
    }

    /// Adds a record, whose key it must not have.
    #[inline]
    pub(super) fn insert(&mut self, tag: u8, new: &NewRecord<'_>) {
        self.make_unique();
        let len = new.len();
        let count = self.len();
        if count == self.slots() || self.room() < len {
            self.grow(count + 1, len);
        }
        let offset = self.header().used;
        // SAFETY: *sole* since `make_unique`. There is a free slot, and room for the record's bytes
        // behind the used ones, which are not among its strings: those are borrowed, and we are
        // borrowed exclusively. Slot and record are *recorded* once `count` and `used` say so.
        unsafe {
            let at = self.heap().add(offset as usize);
            let end = new.write(at);
            debug_assert_eq!(end.offset_from_unsigned(at), len);
            self.write_slot(count, tag, offset);
        }
        let header = self.header_mut();
        header.count += 1;
        header.used += len as u32;
        header.outside |= new.outside();
        if let Some(expire_ms) = new.expire_ms {
            header.earliest_ms = header.earliest_ms.min(expire_ms);
        }
    }

    /// Gives a record another value and expiry.
    pub(super) fn replace(&mut self, index: usize, new: &NewRecord<'_>) {
        self.make_unique();
        let old = self.record(index);
        let (old_len, old_outside, old_expires) = (old.len, old.outside(), old.expire_ms.is_some());
        let len = new.len();
        if !old_outside
            && !new.outside()
            && len <= old_len
            && old_expires == new.expire_ms.is_some()
        {
            // The key's bytes are the same, and stay where they are: only what follows is written.
            // SAFETY: *sole* since `make_unique`. A record with the same key lies there, as callers
            // say; it expires if the new one does, is not shorter, and neither keeps anything
            // outside.
            unsafe { new.write_tail(self.at(index)) };
            self.header_mut().gaps += (old_len - len) as u32;
        } else {
            let mut room = [0u8; record::INLINE_MAX];
            let key = old.key;
            let tag = self.tag(index);
            // The old record goes first, and its key with it.
            if !old_outside && let record::Text::Inline(bytes) = key {
                room[..bytes.len()].copy_from_slice(bytes);
                let key = record::Given::Bytes(&room[..bytes.len()]);
                self.remove(index);
                self.insert(tag, &NewRecord { key, ..*new });
            } else {
                let key = match key {
                    record::Text::Inline(bytes) => std::sync::Arc::new(bytes.to_vec()),
                    record::Text::Outside(outside) => outside.to_shared(),
                };
                self.remove(index);
                self.insert(tag, &NewRecord { key: record::Given::Shared(&key), ..*new });
            }
        }
        if let Some(expire_ms) = new.expire_ms {
            let header = self.header_mut();
            header.earliest_ms = header.earliest_ms.min(expire_ms);
        }
    }

    /// Removes a record; another may get its index.
    pub(super) fn remove(&mut self, index: usize) {
        self.make_unique();
        let last = self.len() - 1;
        assert!(index <= last, "record {index} of {}", last + 1);
        let old = self.record(index);
        let (len, outside) = (old.len, old.outside());
        if outside {
            // SAFETY: *owning*: the page has a reference to each. *Sole*: it is the only owner of
            // the page, and forgets the record here.
            unsafe { record::count_outside(old, false) };
        }
        // SAFETY: *sole* since `make_unique`, and both are slots of records. The last record has
        // two slots then, until `count` no longer has the last one.
        unsafe { self.write_slot(index, self.tag(last), self.offset(last)) };
        let header = self.header_mut();
        header.count -= 1;
        header.gaps += len as u32;
        if header.count == 0 {
            (header.used, header.gaps, header.earliest_ms) = (0, 0, NEVER);
            header.outside = false;
        }
        self.shrink();
    }

    /// Moves its records into two pages.
    pub(super) fn split(&mut self, is_right: impl Fn(&[u8]) -> bool) -> (Self, Self) {
        self.make_unique();
        let mut right = [false; COUNT_MAX];
        let (mut lens, mut counts) = ([0; 2], [0; 2]);
        let mut rights = Vec::new();
        if self.len() > COUNT_MAX {
            rights.resize(self.len(), false);
        }
        let right = if rights.is_empty() { &mut right[..] } else { &mut rights[..] };
        for (index, right) in right.iter_mut().enumerate().take(self.len()) {
            let record = self.record(index);
            *right = is_right(record.key.bytes());
            lens[usize::from(*right)] += record.len;
            counts[usize::from(*right)] += 1;
        }
        let values = self.header().values;
        let mut halves =
            [0, 1].map(|side| Self::allocate(values, counts[side], lens[side] + lens[side] / 8));
        for (index, &right) in right.iter().enumerate().take(self.len()) {
            halves[usize::from(right)].take_record(self, index);
        }
        self.forget_records();
        let [left, right] = halves;
        (left, right)
    }

    /// Moves the records of two pages into one.
    pub(super) fn merge(&mut self, other: &mut Self) -> Self {
        self.make_unique();
        other.make_unique();
        let mut merged = Self::allocate(
            self.header().values,
            self.len() + other.len(),
            self.live() + other.live(),
        );
        for page in [&*self, &*other] {
            for index in 0..page.len() {
                merged.take_record(page, index);
            }
        }
        self.forget_records();
        other.forget_records();
        merged
    }

    /// Prefetches what a search looks at first.
    #[inline(always)]
    pub(super) fn prefetch(&self) {
        let start = self.block.as_ptr().cast::<u8>();
        prefetch(start);
        prefetch(start.wrapping_add(LINE));
    }

    /// The record with this key.
    #[inline]
    pub(super) fn find(&self, tag: u8, key: &[u8]) -> Option<usize> {
        let count = self.len();
        let mut group = 0;
        for tags in self.tags().as_chunks::<GROUP>().0 {
            if group >= count {
                break;
            }
            let mut matches = tags::matches(tags, tag);
            if count - group < GROUP {
                matches &= (1 << (count - group)) - 1;
            }
            while matches != 0 {
                let index = group + matches.trailing_zeros() as usize;
                // SAFETY: bits from `count` on were cleared, so a record lies there.
                if unsafe { record::has_key(self.at(index), key) } {
                    return Some(index);
                }
                matches &= matches - 1;
            }
            group += GROUP;
        }
        None
    }

    #[inline]
    pub(super) fn record(&self, index: usize) -> Record<'_> {
        assert!(index < self.len(), "record {index} of {}", self.len());
        // SAFETY: *recorded*: a record lies there, with a value if the page has such. It lives and
        // does not change while we are borrowed.
        unsafe { record::read(self.at(index), self.header().values) }
    }

    #[inline(always)]
    pub(super) fn key(&self, index: usize) -> &[u8] {
        assert!(index < self.len(), "record {index} of {}", self.len());
        // SAFETY: *recorded*: a record lies there. It lives and does not change while we are
        // borrowed.
        unsafe { record::key(self.at(index)).0.bytes() }
    }

    #[inline(always)]
    pub(super) fn len(&self) -> usize {
        self.header().count as usize
    }

    /// Bytes of its records.
    #[inline(always)]
    pub(super) fn live(&self) -> usize {
        (self.header().used - self.header().gaps) as usize
    }

    /// Bytes of memory that it takes, without what its records keep outside.
    #[inline(always)]
    pub(super) fn memory(&self) -> usize {
        self.header().size as usize
    }

    /// No record expires earlier.
    #[inline(always)]
    pub(super) fn earliest_ms(&self) -> i64 {
        self.header().earliest_ms
    }

    /// Makes the hint exact again.
    pub(super) fn refresh_earliest(&mut self) {
        self.make_unique();
        let expiries = (0..self.len()).filter_map(|index| self.record(index).expire_ms);
        self.header_mut().earliest_ms = expiries.min().unwrap_or(NEVER);
    }

    /// Whether one more record of this length should rather go to a page that is split off.
    #[inline(always)]
    pub(super) fn is_full(&self, len: usize) -> bool {
        let count = self.len();
        count >= COUNT_MAX || count >= COUNT_MIN && self.live() + len > LIVE_MAX
    }

    /// Whether it cannot grow much longer.
    pub(super) fn must_split(&self) -> bool {
        self.len() >= usize::from(u16::MAX) * GROUP / 2
    }

    /// Whether it is so empty that it might be merged.
    pub(super) fn is_sparse(&self) -> bool {
        self.len() <= COUNT_MAX / 4
    }

    /// Whether both would be half full at most.
    pub(super) fn fits_with(&self, other: &Self) -> bool {
        self.len() + other.len() <= COUNT_MAX / 2 && self.live() + other.live() <= LIVE_MAX / 2
    }

    #[cold]
    fn grow(&mut self, count: usize, len: usize) {
        let live = self.live();
        // What is wanted, and by the rounding of blocks some room more. Pages that cannot be split
        // have slots to spare as well, so that they are not made anew every sixteen records.
        let slots = self.slots().max(count + count / (2 * COUNT_MAX));
        *self = self.take_all(slots, live + len + live / 16);
    }

    /// Gives memory back when more than half of it is gaps.
    fn shrink(&mut self) {
        let (live, gaps) = (self.live(), self.header().gaps as usize);
        if gaps > live + 128 {
            *self = self.take_all(self.len().max(1), live + live / 8);
        }
    }

    /// Moves all records into a new page, and leaves this one empty.
    fn take_all(&mut self, slots: usize, heap: usize) -> Self {
        let mut page = Self::allocate(self.header().values, slots, heap);
        if self.header().gaps == 0 && self.is_wide() == page.is_wide() {
            page.take_as_they_lie(self);
        } else {
            (0..self.len()).for_each(|index| page.take_record(self, index));
        }
        page.header_mut().earliest_ms = self.header().earliest_ms;
        self.forget_records();
        page
    }

    /// Copies all records of another page to the same places in its own heap. As for `take_record`,
    /// what they keep outside then has one owner too few.
    fn take_as_they_lie(&mut self, from: &Self) {
        let (count, used, wide) = (from.len(), from.header().used, self.is_wide());
        assert!(from.is_wide() == wide && self.len() == 0, "slots of another width, or in use");
        assert!(count <= self.slots() && used as usize <= self.room(), "no room");
        // SAFETY: we are a new page, so we are *sole*. As was asserted we have slots and room for
        // what `from` has, in another block, and our offsets are as wide. Bytes are copied as such,
        // so pointers among them stay pointers. Each record is at the same place in the heap, so it
        // is *recorded* once `count` and `used` say so.
        unsafe {
            self.part(HEADER).copy_from_nonoverlapping(from.part(HEADER), count);
            let offsets = (slot_size(wide) - 1) * count;
            self.offsets().copy_from_nonoverlapping(from.offsets(), offsets);
            self.heap().copy_from_nonoverlapping(from.heap(), used as usize);
        }
        let outside = from.header().outside;
        let header = self.header_mut();
        (header.count, header.used, header.outside) = (count as u32, used, outside);
    }

    /// The same records once more.
    #[cold]
    fn copy(&self, slots: usize, heap: usize) -> Self {
        let mut page = Self::allocate(self.header().values, slots, heap);
        for index in 0..self.len() {
            page.take_record(self, index);
            if self.header().outside {
                // SAFETY: our page is borrowed, and it is *owning*, so the strings live. The copy
                // owns a reference of its own with this.
                unsafe { record::count_outside(self.record(index), true) };
            }
        }
        page.header_mut().earliest_ms = self.header().earliest_ms;
        page
    }

    /// Copies a record's bytes behind its own. What the record keeps outside then has one owner too
    /// few, until the caller forgets the other page's records or counts.
    fn take_record(&mut self, from: &Self, index: usize) {
        let record = from.record(index);
        let (len, outside, expire_ms) = (record.len, record.outside(), record.expire_ms);
        let (count, used) = (self.len(), self.header().used);
        assert!(count < self.slots() && len <= self.room(), "no room");
        // SAFETY: a record of `from` lies there, of `len` bytes. We are a new page, so we are
        // *sole*; a slot is free and there is room behind the used bytes, as was asserted, in a
        // block other than that of `from`. Bytes are copied as such, so pointers among them stay
        // pointers.
        unsafe {
            self.heap().add(used as usize).copy_from_nonoverlapping(from.at(index), len);
            self.write_slot(count, from.tag(index), used);
        }
        let header = self.header_mut();
        header.count += 1;
        header.used += len as u32;
        header.outside |= outside;
        if let Some(expire_ms) = expire_ms {
            header.earliest_ms = header.earliest_ms.min(expire_ms);
        }
    }

    /// After all records were moved elsewhere.
    fn forget_records(&mut self) {
        let header = self.header_mut();
        header.count = 0;
        header.outside = false;
    }

    /// Bytes free behind the used ones.
    #[inline(always)]
    fn room(&self) -> usize {
        let header = self.header();
        header.size as usize - self.heap_start() - header.used as usize
    }

    /// Records that tags and offsets have room for.
    #[inline(always)]
    fn slots(&self) -> usize {
        usize::from(self.header().groups) * GROUP
    }

    /// Whether offsets have 32 bits.
    #[inline(always)]
    fn is_wide(&self) -> bool {
        is_wide(self.header().size as usize)
    }

    /// Where a record begins.
    ///
    /// # Safety
    /// The index is below the number of records.
    #[inline(always)]
    unsafe fn at(&self, index: usize) -> *mut u8 {
        // SAFETY: the index is the caller's; *recorded*: the offset lies within the heap.
        unsafe { self.heap().add(self.offset(index) as usize) }
    }

    #[inline(always)]
    fn tag(&self, index: usize) -> u8 {
        self.tags()[index]
    }

    /// Where in the heap a record begins.
    ///
    /// # Safety
    /// The index is below the number of records.
    #[inline(always)]
    unsafe fn offset(&self, index: usize) -> u32 {
        // SAFETY: *whole*: there are more offsets than records, aligned and of this width.
        // *Recorded*: those of records are initialised.
        unsafe {
            if self.is_wide() {
                self.offsets().cast::<u32>().add(index).read()
            } else {
                self.offsets().cast::<u16>().add(index).read().into()
            }
        }
    }

    /// Says which record a slot has.
    ///
    /// # Safety
    /// The page is *sole*, the index is below `slots()`, and a record begins at the offset when the
    /// slot is counted among those of records.
    #[inline(always)]
    unsafe fn write_slot(&mut self, index: usize, tag: u8, offset: u32) {
        // SAFETY: *whole*: there is a tag and an offset of this width for each slot. Where offsets
        // have 16 bits the whole block is not longer than those reach.
        unsafe {
            self.part(HEADER).add(index).write(tag);
            if self.is_wide() {
                self.offsets().cast::<u32>().add(index).write(offset);
            } else {
                self.offsets().cast::<u16>().add(index).write(offset as u16);
            }
        }
    }

    #[inline(always)]
    fn tags(&self) -> &[u8] {
        // SAFETY: *whole*: that number of initialised tags lies behind the header. They do not
        // change while we are borrowed.
        unsafe { std::slice::from_raw_parts(self.part(HEADER), self.slots()) }
    }

    /// Of `u16` or `u32`; aligned, as the tags before them are a multiple of 16 bytes.
    #[inline(always)]
    fn offsets(&self) -> *mut u8 {
        // SAFETY: *whole*: they lie behind the tags.
        unsafe { self.part(HEADER + self.slots()) }
    }

    #[inline(always)]
    fn heap(&self) -> *mut u8 {
        // SAFETY: *whole*: it lies behind the offsets.
        unsafe { self.part(self.heap_start()) }
    }

    /// A place in the block.
    ///
    /// # Safety
    /// The block is at least as long.
    #[inline(always)]
    const unsafe fn part(&self, offset: usize) -> *mut u8 {
        // SAFETY: the place is within the block, by the caller.
        unsafe { self.block.as_ptr().cast::<u8>().add(offset) }
    }

    #[inline(always)]
    fn heap_start(&self) -> usize {
        HEADER + slot_size(self.is_wide()) * self.slots()
    }

    #[inline(always)]
    fn header(&self) -> &Header {
        // SAFETY: *counted*: the block lives as long as we are an owner. *Sole*: but for the count,
        // which is atomic, the header does not change while we are borrowed.
        unsafe { self.block.as_ref() }
    }

    /// Only after `make_unique`, or on a new page.
    #[inline(always)]
    fn header_mut(&mut self) -> &mut Header {
        debug_assert_eq!(self.header().owners.load(Ordering::Relaxed), 1);
        // SAFETY: *sole*: callers have made us the one owner, and we are borrowed exclusively for
        // as long as the result is used.
        unsafe { self.block.as_mut() }
    }
}

impl Clone for Page {
    fn clone(&self) -> Self {
        let before = self.header().owners.fetch_add(1, Ordering::Relaxed);
        assert!(before < u32::MAX / 2, "{before} owners of a page");
        Self { block: self.block }
    }
}

impl Drop for Page {
    fn drop(&mut self) {
        // Release: what this owner read happened before another one changes or frees it.
        if self.header().owners.fetch_sub(1, Ordering::Release) != 1 {
            return;
        }
        fence(Ordering::Acquire);
        if self.header().outside {
            for index in 0..self.len() {
                // SAFETY: *owning*: the page has a reference to each, and the record ends with it.
                unsafe { record::count_outside(self.record(index), false) };
            }
        }
        // SAFETY: *counted*: we were the last owner. *Whole*: the size is that of the layout that
        // the block was made with.
        unsafe { dealloc(self.block.as_ptr().cast(), block::layout(self.memory())) };
    }
}

/// That no record expires.
pub const NEVER: i64 = i64::MAX;
/// Records of a page at most, unless it cannot be split because their hashes begin with the same
/// bits.
const COUNT_MAX: usize = 64;
/// A page is not split for its length alone while it has fewer records: long ones might all have
/// the same bits, and the directory double for a few of them.
const COUNT_MIN: usize = 8;
/// A page of this many bytes is split.
const LIVE_MAX: usize = 4096;
/// A longer block has wide offsets.
const NARROW_MAX: usize = 1 << 16;
/// Bytes of a cache line: header and tags reach into two.
const LINE: usize = 64;
const HEADER: usize = size_of::<Header>();
const _: () = assert!(HEADER == 32);

/// Whether offsets in a block of this size have 32 bits.
#[inline(always)]
const fn is_wide(size: usize) -> bool {
    size > NARROW_MAX
}

/// Bytes of a tag and an offset.
#[inline(always)]
const fn slot_size(wide: bool) -> usize {
    if wide { 5 } else { 3 }
}
