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

use std::alloc::{alloc, dealloc, handle_alloc_error};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, Ordering, fence};

use super::super::block;
use super::record::{self, NewRecord, Record};

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

// SAFETY: like Arc of plain bytes and of shared strings.
unsafe impl Send for Page {}
// SAFETY: as above; shared references only read.
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
        // SAFETY: the size is not zero.
        let Some(start) = NonNull::new(unsafe { alloc(layout) }) else {
            handle_alloc_error(layout);
        };
        let block = start.cast::<Header>();
        // SAFETY: the block is long and aligned enough for the header and, behind it, the slots.
        unsafe {
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
            // Tags are compared by groups, and those of a group that are not used are compared too.
            start.add(HEADER).write_bytes(0, slots);
        }
        Self { block }
    }

    /// Makes it nobody else's. Whatever changes a page begins with this.
    #[inline(always)]
    pub(super) fn make_unique(&mut self) {
        // Acquire: what former owners read happened before they let go.
        if self.header().owners.load(Ordering::Acquire) != 1 {
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
        // SAFETY: there is a free slot and room for the record behind the used bytes; the page is
        // ours alone; the new record's strings lie elsewhere.
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
            let at = self.at(index);
            // SAFETY: the record has room for as many bytes. Its key may be the very bytes that
            // `new` names, so it is not written again.
            unsafe { new.write_tail(at.cast_mut()) };
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
            // SAFETY: the page is ours alone and forgets the record here.
            unsafe { record::count_outside(old, false) };
        }
        // SAFETY: both indexes are used slots.
        unsafe {
            self.write_slot(index, self.tag(last), self.offset(last));
        }
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

    /// The record with this key.
    #[inline]
    pub(super) fn find(&self, tag: u8, key: &[u8]) -> Option<usize> {
        let count = self.len();
        let mut group = 0;
        while group < count {
            // SAFETY: tags come in whole groups.
            let mut matches = unsafe { matches(self.tags().add(group), tag) };
            if count - group < GROUP {
                matches &= (1 << (count - group)) - 1;
            }
            while matches != 0 {
                let index = group + matches.trailing_zeros() as usize;
                // SAFETY: the index is that of a record.
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
        // SAFETY: a record lies there, with a value if the page has such.
        unsafe { record::read(self.at(index), self.header().values) }
    }

    #[inline(always)]
    pub(super) fn key(&self, index: usize) -> &[u8] {
        assert!(index < self.len(), "record {index} of {}", self.len());
        // SAFETY: a record lies there.
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
        for index in 0..self.len() {
            page.take_record(self, index);
        }
        page.header_mut().earliest_ms = self.header().earliest_ms;
        self.forget_records();
        page
    }

    /// The same records once more.
    #[cold]
    fn copy(&self, slots: usize, heap: usize) -> Self {
        let mut page = Self::allocate(self.header().values, slots, heap);
        for index in 0..self.len() {
            page.take_record(self, index);
            if self.header().outside {
                // SAFETY: the record now exists twice.
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
        // SAFETY: there is a slot and room for the bytes; the pages are different blocks. Bytes are
        // copied as such, so pointers among them stay pointers.
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

    #[inline(always)]
    fn at(&self, index: usize) -> *const u8 {
        // SAFETY: callers give the index of a record, whose offset lies in the heap.
        unsafe { self.heap().add(self.offset(index) as usize).cast_const() }
    }

    #[inline(always)]
    fn tag(&self, index: usize) -> u8 {
        // SAFETY: as above.
        unsafe { self.tags().add(index).read() }
    }

    #[inline(always)]
    fn offset(&self, index: usize) -> u32 {
        // SAFETY: as above; all offsets of records are written.
        unsafe {
            if self.is_wide() {
                self.offsets_mut().cast::<u32>().add(index).read()
            } else {
                self.offsets_mut().cast::<u16>().add(index).read().into()
            }
        }
    }

    /// Says which record a slot has.
    ///
    /// # Safety
    /// The page is ours alone, has such a slot, and its heap has this offset.
    #[inline(always)]
    unsafe fn write_slot(&mut self, index: usize, tag: u8, offset: u32) {
        // SAFETY: by the caller. Where offsets have 16 bits the whole block is not longer than
        // those reach.
        unsafe {
            self.tags_mut().add(index).write(tag);
            if self.is_wide() {
                self.offsets_mut().cast::<u32>().add(index).write(offset);
            } else {
                self.offsets_mut().cast::<u16>().add(index).write(offset as u16);
            }
        }
    }

    #[inline(always)]
    fn tags(&self) -> *const u8 {
        self.tags_mut().cast_const()
    }

    #[inline(always)]
    fn tags_mut(&self) -> *mut u8 {
        // SAFETY: behind the header.
        unsafe { self.block.as_ptr().cast::<u8>().add(HEADER) }
    }

    /// Of `u16` or `u32`.
    #[inline(always)]
    fn offsets_mut(&self) -> *mut u8 {
        // SAFETY: behind the tags; a multiple of 16 bytes from an aligned block.
        unsafe { self.tags_mut().add(self.slots()) }
    }

    #[inline(always)]
    fn heap(&self) -> *mut u8 {
        // SAFETY: behind the offsets.
        unsafe { self.block.as_ptr().cast::<u8>().add(self.heap_start()) }
    }

    #[inline(always)]
    fn heap_start(&self) -> usize {
        HEADER + slot_size(self.is_wide()) * self.slots()
    }

    #[inline(always)]
    fn header(&self) -> &Header {
        // SAFETY: the block lives as long as any owner.
        unsafe { self.block.as_ref() }
    }

    /// Only after `make_unique`, or on a new page.
    #[inline(always)]
    fn header_mut(&mut self) -> &mut Header {
        debug_assert_eq!(self.header().owners.load(Ordering::Relaxed), 1);
        // SAFETY: we are the only owner, and borrowed exclusively.
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
                // SAFETY: we were the last owner, and the records end with the page.
                unsafe { record::count_outside(self.record(index), false) };
            }
        }
        // SAFETY: as above; a block of this size was made with this layout.
        unsafe { dealloc(self.block.as_ptr().cast(), block::layout(self.memory())) };
    }
}

/// Which of the sixteen tags from `tags` on equal `tag`, as bits.
///
/// # Safety
/// There are sixteen bytes.
#[inline(always)]
unsafe fn matches(tags: *const u8, tag: u8) -> u32 {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: by the caller; every x86-64 has SSE2.
    unsafe {
        use std::arch::x86_64::{
            _mm_cmpeq_epi8, _mm_loadu_si128, _mm_movemask_epi8, _mm_set1_epi8,
        };
        let equal = _mm_cmpeq_epi8(_mm_loadu_si128(tags.cast()), _mm_set1_epi8(tag as i8));
        _mm_movemask_epi8(equal) as u32
    }
    #[cfg(not(target_arch = "x86_64"))]
    // SAFETY: by the caller.
    unsafe {
        let tags = tags.cast::<[u8; GROUP]>().read();
        (0..GROUP).fold(0, |bits, index| bits | u32::from(tags[index] == tag) << index)
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
/// Tags that are compared at once.
const GROUP: usize = 16;
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
