//! A page: the records of a small range of hashes, in one block.
//!
//! ```text
//! header | tag, u8 each | offset, u16 or u32 each | records, in no order, with gaps
//! ```
//! A tag is eight bits of the key's hash. Sixteen tags are compared at a time, so nearly always
//! only the right record is read. The block is as large as necessary, within about an eighth. A
//! block of the wrong size is replaced, which also closes the gaps.
//!
//! A page is as long as its records need: records whose hashes begin alike cannot be split, and a
//! client may search for such keys. A block that is too long for offsets of 16 bits has offsets of
//! 32.
//!
//! Clones share the block until one changes, like `Cow`, but for a block without a type.
//!
//! The unsafe code here relies on these rules:
//! - *Whole*: the block is `size` bytes long, has the layout for that size, and lies as shown
//!   above. All tags are initialised.
//! - *Recorded*: each slot below `count` has the offset of a record that `record` wrote, or that
//!   was copied unchanged from another page. The record lies within the `used` bytes of the heap,
//!   and has a value if `values` is set.
//! - *Owning*: the page owns one reference to each string that one of its records keeps outside,
//!   for any number of clones of the page.
//! - *Counted*: `owners` is the number of [`Page`]s with this pointer. The last of them frees the
//!   block.
//! - *Sole*: only a single owner, borrowed exclusively, changes the block, except for the count. No
//!   new owner can appear meanwhile, because that takes a borrow of this one.

use std::alloc::{alloc, dealloc, handle_alloc_error};
use std::ptr::NonNull;

use super::super::block;
use super::super::owners::Owners;
use super::super::tags::{self, GROUP};
use super::record::{self, NewRecord, RecordText, TableRecord};
use crate::value::Defragmenter;
use crate::value::prefetch::{LINE, prefetch};

/// Records whose hashes lie close together. The pointer may lie at any address (see `SLOT`).
#[repr(Rust, packed)]
pub(super) struct Page {
    block: NonNull<PageHeader>,
}

#[repr(C)]
struct PageHeader {
    owners: Owners,
    /// The length of the block in bytes.
    size: u32,
    /// A hint: no record expires earlier. `NEVER` if none does.
    earliest_ms: i64,
    count: u32,
    /// How many groups of records have room for their tags and offsets.
    groups: u16,
    /// A hint: whether a record may keep a string outside.
    outside: bool,
    /// Whether records have values.
    values: bool,
    /// How many bytes of the heap were given to records.
    used: u32,
    /// How many of those bytes are gaps now.
    gaps: u32,
}

// SAFETY: owners on several threads read the records at the same time, and the last owner, on any
// thread, releases the strings outside. Bytes and `Shared` strings allow both. The count is atomic.
unsafe impl Send for Page {}
// SAFETY: a shared reference reads the records or makes another owner, so the same applies.
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
        // A page that is too large for these types would have a million records. From half of that
        // on a page is split at any cost (`must_split`), so all its hashes would begin with the
        // same 36 bits. Finding such keys would take 2^56 trials.
        let size = u32::try_from(layout.size()).expect("a page has a size of 32 bits");
        let groups = u16::try_from(groups).expect("a page has a million records at most");
        // SAFETY: there is room for at least a header, so the size is not zero.
        let Some(start) = NonNull::new(unsafe { alloc(layout) }) else {
            handle_alloc_error(layout);
        };
        let block = start.cast::<PageHeader>();
        // Tags are compared in groups, including the unused tags of a group.
        // SAFETY: only this function uses the new block. It is aligned to 8 and has room for the
        // header and the tags behind it. That makes it *whole*, without records.
        unsafe {
            start.add(HEADER).write_bytes(0, slots);
            block.write(PageHeader {
                owners: Owners::one(),
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
        self.header().owners.is_one()
    }

    /// Makes this the block's only owner. Every change of a page begins with this.
    #[inline(always)]
    pub(super) fn make_unique(&mut self) {
        if !self.is_unique() {
            *self = self.copy(self.len(), self.live());
        }
    }

    /// Moves the strings outside of records from one on that lie in sparsely used memory, and with
    /// those of the first record the page itself, unless it has another owner. Returns the record
    /// to continue with; the number of records at the end.
    pub(super) fn defragment(&mut self, from: usize, defragmenter: &mut Defragmenter<'_>) -> usize {
        if !self.is_unique() {
            return self.len();
        }
        if from == 0 && defragmenter.wants(self.block.cast()) {
            *self = self.copy(self.len(), self.live());
        }
        if self.header().outside {
            for index in from..self.len() {
                if index > from && defragmenter.is_spent() {
                    return index;
                }
                // SAFETY: *sole*: we are the block's only owner, and borrowed exclusively.
                unsafe { record::move_outside(self.record(index), defragmenter) };
            }
        }
        self.len()
    }

    /// Adds a record. The page must not have its key.
    #[inline]
    pub(super) fn insert(&mut self, tag: u8, new: &NewRecord<'_>) {
        self.make_unique();
        let len = new.len();
        let count = self.len();
        if count == self.slots() || self.room() < len {
            self.grow(count + 1, len);
        }
        let offset = self.header().used;
        // SAFETY: *sole* since `make_unique`. There is a free slot, and room for the record behind
        // the used bytes. That room is not among the record's strings: those are borrowed, and we
        // are borrowed exclusively. Slot and record are *recorded* once `count` and `used` include
        // them.
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
        self.note_expiry(new.expire_ms);
    }

    /// Sets a record's value and expiry.
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
            // The key's bytes are the same and stay in place. Only what follows them is written.
            // SAFETY: *sole* since `make_unique`. The caller says that a record with the same key
            // lies there. It has an expiry if the new one has, is not shorter, and neither keeps
            // anything outside.
            unsafe { new.write_tail(self.at(index)) };
            self.header_mut().gaps += (old_len - len) as u32;
        } else {
            let mut room = [0u8; record::INLINE_MAX];
            let key = old.key;
            let tag = self.tag(index);
            // The old record is removed first, and its key with it.
            if !old_outside && let RecordText::Inline(bytes) = key {
                room[..bytes.len()].copy_from_slice(bytes);
                let key = record::Given::Bytes(&room[..bytes.len()]);
                self.remove(index);
                self.insert(tag, &NewRecord { key, ..*new });
            } else {
                let key = match key {
                    RecordText::Inline(bytes) => std::sync::Arc::new(bytes.to_vec()),
                    RecordText::Outside(outside) => outside.to_shared(),
                };
                self.remove(index);
                self.insert(tag, &NewRecord { key: record::Given::Shared(&key), ..*new });
            }
        }
        self.note_expiry(new.expire_ms);
    }

    /// Removes a record. Another one may get its index.
    pub(super) fn remove(&mut self, index: usize) {
        self.make_unique();
        let last = self.len() - 1;
        assert!(index <= last, "record {index} of {}", last + 1);
        let old = self.record(index);
        let (len, outside) = (old.len, old.outside());
        if outside {
            // SAFETY: *owning*: the page has a reference to each string. *Sole*: it is the only
            // owner of the page, and forgets the record here.
            unsafe { record::count_outside(old, false) };
        }
        // SAFETY: *sole* since `make_unique`, and both are slots of records. The last record then
        // has two slots, until `count` excludes the last one.
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

    /// Moves the records into two pages.
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

    /// Prefetches what a search reads first: header and tags lie on two lines.
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
                // SAFETY: the bits from `count` on were cleared, so a record lies there.
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
    pub(super) fn record(&self, index: usize) -> TableRecord<'_> {
        assert!(index < self.len(), "record {index} of {}", self.len());
        // SAFETY: *recorded*: a record lies there, with a value if the page has values. It lives
        // and does not change while we are borrowed.
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

    /// The bytes of its records.
    #[inline(always)]
    pub(super) fn live(&self) -> usize {
        (self.header().used - self.header().gaps) as usize
    }

    /// Bytes of memory, without the strings that records keep outside.
    #[inline(always)]
    pub(super) fn memory(&self) -> usize {
        self.header().size as usize
    }

    /// Bytes of memory of the strings that records keep outside.
    pub(super) fn outside_memory(&self) -> usize {
        let len = if self.header().outside { self.len() } else { 0 };
        (0..len).map(|index| self.record(index).outside_memory()).sum()
    }

    /// Whether one is a clone of the other, and neither has changed since.
    pub(super) fn is_same(&self, other: &Self) -> bool {
        std::ptr::eq(self.header(), other.header())
    }

    /// No record expires earlier.
    #[inline(always)]
    pub(super) fn earliest_ms(&self) -> i64 {
        self.header().earliest_ms
    }

    /// The times at which records expire, in Unix milliseconds.
    pub(super) fn expiring(&self) -> impl Iterator<Item = i64> {
        let len = if self.earliest_ms() == NEVER { 0 } else { self.len() };
        (0..len).filter_map(|index| self.record(index).expire_ms)
    }

    /// A record that expires at or before `now_ms`. If there is none, makes the hint exact.
    pub(super) fn first_expired(&mut self, now_ms: i64) -> Option<usize> {
        let is_expired =
            |&index: &usize| self.record(index).expire_ms.is_some_and(|at| at <= now_ms);
        let found = (0..self.len()).find(is_expired);
        if found.is_none() {
            self.make_unique();
            let earliest_ms = self.expiring().min();
            self.header_mut().earliest_ms = NEVER;
            self.note_expiry(earliest_ms);
        }
        found
    }

    /// Keeps the hint right for a record that expires, if it does.
    #[inline(always)]
    fn note_expiry(&mut self, expire_ms: Option<i64>) {
        if let Some(expire_ms) = expire_ms {
            let header = self.header_mut();
            // Even the last time is one.
            header.earliest_ms = header.earliest_ms.min(expire_ms).min(NEVER - 1);
        }
    }

    /// Whether a record of this length should go to a new page, split off from this one.
    #[inline(always)]
    pub(super) fn is_full(&self, len: usize) -> bool {
        let count = self.len();
        count >= COUNT_MAX || count >= COUNT_MIN && self.live() + len > LIVE_MAX
    }

    /// Whether the page is near its largest size.
    pub(super) fn must_split(&self) -> bool {
        self.len() >= usize::from(u16::MAX) * GROUP / 2
    }

    /// Whether the page is so empty that it might be merged.
    pub(super) fn is_sparse(&self) -> bool {
        self.len() <= COUNT_MAX / 4
    }

    /// Whether both pages together would be at most half full.
    pub(super) fn fits_with(&self, other: &Self) -> bool {
        self.len() + other.len() <= COUNT_MAX / 2 && self.live() + other.live() <= LIVE_MAX / 2
    }

    #[cold]
    fn grow(&mut self, count: usize, len: usize) {
        let live = self.live();
        // The rounding of blocks gives some additional room. A page that cannot be split also gets
        // spare slots, so that it is not replaced for every sixteen records.
        let slots = self.slots().max(count + count / (2 * COUNT_MAX));
        *self = self.take_all(slots, live + len + live / 16);
    }

    /// Frees memory if more than half of it is gaps.
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

    /// Copies all records of another page to the same places in this one's heap. As with
    /// `take_record`, the strings outside then have one owner too few.
    fn take_as_they_lie(&mut self, from: &Self) {
        let (count, used, wide) = (from.len(), from.header().used, self.is_wide());
        assert!(from.is_wide() == wide && self.len() == 0, "slots of another width, or in use");
        assert!(count <= self.slots() && used as usize <= self.room(), "no room");
        // SAFETY: this is a new page, so it is *sole*. It was asserted that it has slots and room
        // for the records of `from`, in another block, and offsets of the same width. Copied bytes
        // keep pointers valid. Each record is at the same place in the heap, so it is *recorded*
        // once `count` and `used` include it.
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

    /// A copy with the same records.
    #[cold]
    fn copy(&self, slots: usize, heap: usize) -> Self {
        let mut page = Self::allocate(self.header().values, slots, heap);
        for index in 0..self.len() {
            page.take_record(self, index);
            if self.header().outside {
                // SAFETY: our page is borrowed, and it is *owning*, so the strings live. With this
                // the copy owns its own reference.
                unsafe { record::count_outside(self.record(index), true) };
            }
        }
        page.header_mut().earliest_ms = self.header().earliest_ms;
        page
    }

    /// Appends a copy of a record's bytes. The record's strings outside then have one owner too
    /// few, until the caller forgets the other page's records or counts the owners.
    fn take_record(&mut self, from: &Self, index: usize) {
        let record = from.record(index);
        let (len, outside, expire_ms) = (record.len, record.outside(), record.expire_ms);
        let (count, used) = (self.len(), self.header().used);
        assert!(count < self.slots() && len <= self.room(), "no room");
        // SAFETY: a record of `from`, of `len` bytes, lies there. This is a new page, so it is
        // *sole*. It was asserted that a slot is free and that there is room behind the used bytes,
        // in a block other than that of `from`. Copied bytes keep pointers valid.
        unsafe {
            self.heap().add(used as usize).copy_from_nonoverlapping(from.at(index), len);
            self.write_slot(count, from.tag(index), used);
        }
        let header = self.header_mut();
        header.count += 1;
        header.used += len as u32;
        header.outside |= outside;
        self.note_expiry(expire_ms);
    }

    /// Forgets all records, which were moved elsewhere.
    fn forget_records(&mut self) {
        let header = self.header_mut();
        header.count = 0;
        header.outside = false;
    }

    /// How many bytes behind the used ones are free.
    #[inline(always)]
    fn room(&self) -> usize {
        let header = self.header();
        header.size as usize - self.heap_start() - header.used as usize
    }

    /// How many records have room for their tags and offsets.
    #[inline(always)]
    fn slots(&self) -> usize {
        usize::from(self.header().groups) * GROUP
    }

    /// Whether offsets have 32 bits.
    #[inline(always)]
    fn is_wide(&self) -> bool {
        is_wide(self.header().size as usize)
    }

    /// The beginning of a record.
    ///
    /// # Safety
    /// The index is below the number of records.
    #[inline(always)]
    unsafe fn at(&self, index: usize) -> *mut u8 {
        // SAFETY: the caller gives a valid index. *Recorded*: the offset lies within the heap.
        unsafe { self.heap().add(self.offset(index) as usize) }
    }

    #[inline(always)]
    fn tag(&self, index: usize) -> u8 {
        self.tags()[index]
    }

    /// The offset of a record in the heap.
    ///
    /// # Safety
    /// The index is below the number of records.
    #[inline(always)]
    unsafe fn offset(&self, index: usize) -> u32 {
        // SAFETY: *whole*: there are at least as many offsets as records, aligned and of this
        // width. *Recorded*: those of records are initialised.
        unsafe {
            if self.is_wide() {
                self.offsets().cast::<u32>().add(index).read()
            } else {
                self.offsets().cast::<u16>().add(index).read().into()
            }
        }
    }

    /// Sets the record of a slot.
    ///
    /// # Safety
    /// The page is *sole*, the index is below `slots()`, and a record begins at the offset by the
    /// time that `count` includes the slot.
    #[inline(always)]
    unsafe fn write_slot(&mut self, index: usize, tag: u8, offset: u32) {
        // SAFETY: *whole*: there is a tag and an offset of this width for each slot. A block with
        // offsets of 16 bits is not longer than those reach.
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
        // SAFETY: *whole*: that many initialised tags lie behind the header. They do not change
        // while we are borrowed.
        unsafe { std::slice::from_raw_parts(self.part(HEADER), self.slots()) }
    }

    /// The offsets, as `u16` or `u32`. They are aligned because the tags before them take a
    /// multiple of 16 bytes.
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

    /// An offset in the block.
    ///
    /// # Safety
    /// The block is at least as long.
    #[inline(always)]
    const unsafe fn part(&self, offset: usize) -> *mut u8 {
        // SAFETY: the caller says that the offset is within the block.
        unsafe { self.block.as_ptr().cast::<u8>().add(offset) }
    }

    #[inline(always)]
    fn heap_start(&self) -> usize {
        HEADER + slot_size(self.is_wide()) * self.slots()
    }

    #[inline(always)]
    fn header(&self) -> &PageHeader {
        // SAFETY: *counted*: the block lives while we are an owner. *Sole*: except for the count,
        // which is atomic, the header does not change while we are borrowed.
        unsafe { { self.block }.as_ref() }
    }

    /// Must be called only after `make_unique`, or on a new page.
    #[inline(always)]
    fn header_mut(&mut self) -> &mut PageHeader {
        debug_assert!(self.header().owners.is_one(), "changed by one of several owners");
        // SAFETY: *sole*: callers have made us the only owner, and we are borrowed exclusively
        // while the result is used.
        unsafe { { self.block }.as_mut() }
    }
}

impl Clone for Page {
    fn clone(&self) -> Self {
        self.header().owners.add();
        Self { block: self.block }
    }
}

impl Drop for Page {
    fn drop(&mut self) {
        if !self.header().owners.remove() {
            return;
        }
        if self.header().outside {
            for index in 0..self.len() {
                // SAFETY: *owning*: the page has a reference to each string, and the record ends
                // with it.
                unsafe { record::count_outside(self.record(index), false) };
            }
        }
        // SAFETY: *counted*: we were the last owner. *Whole*: the size is that of the block's
        // layout.
        unsafe { dealloc(self.block.as_ptr().cast(), block::layout(self.memory())) };
    }
}

/// The expiry of a page without records that expire.
pub const NEVER: i64 = i64::MAX;
/// The most records of a page, unless it cannot be split because all hashes begin with the same
/// bits.
const COUNT_MAX: usize = 64;
/// A page with fewer records is not split for its length alone: long records might all have the
/// same bits, and the directory would double for only a few of them.
const COUNT_MIN: usize = 8;
/// A page of this many bytes is split.
const LIVE_MAX: usize = 4096;
/// A longer block has offsets of 32 bits.
const NARROW_MAX: usize = 1 << 16;
const HEADER: usize = size_of::<PageHeader>();
const _: () = assert!(HEADER == 32);

/// Whether offsets in a block of this size have 32 bits.
#[inline(always)]
const fn is_wide(size: usize) -> bool {
    size > NARROW_MAX
}

/// The bytes of a tag and an offset.
#[inline(always)]
const fn slot_size(wide: bool) -> usize {
    if wide { 5 } else { 3 }
}
