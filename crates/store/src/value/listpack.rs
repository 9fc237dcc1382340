//! A listpack: a sequence of strings and integers in one block, byte for byte as in Redis if it has
//! no gap.
//!
//! ```text
//! without a gap: u32 bytes in all | u16 entries (65535: count them) | entry ... | 0xff
//! with a gap: the same, with bit 31 of the first field set | u16 gap | gap | entry ... | 0xff
//! entry: head | payload | length of head and payload, readable from its end
//! ```
//! A gap makes the listpack usable as a queue: removing its first entry moves no other entry, nor
//! does inserting one in front while the gap has room. The gap and its field do not count in "bytes
//! in all". Small listpacks have no gap, so writing them to a file is one copy.
//!
//! Heads (the format is Redis's `listpack.c`):
//!
//! | first byte | what | payload |
//! |---|---|---|
//! | `0xxxxxxx` | integer 0 to 127 | none |
//! | `10xxxxxx` | string of up to 63 bytes | the string |
//! | `110xxxxx` + 1 | integer of 13 bits | none |
//! | `1110xxxx` + 1 | string of up to 4095 bytes | the string |
//! | `11110000` + 4 | longer string | the string |
//! | `11110001` to `11110100` | integer of 16, 24, 32, 64 bits | the integer, little-endian |
//!
//! A string that is an integer's text is kept as the integer. [`Listpack`] keeps every entry in its
//! shortest form, so equal values have equal bytes.
//!
//! The unsafe code here relies on one rule, called *whole*: the block belongs only to its
//! [`Listpack`], begins with a [`ListpackHeader`], and was given as many bytes as the header says.
//! The bytes behind the gap are initialised; those in the gap need not be. Only `splice` changes
//! the header, and the room that it returns lies behind the gap. No unsafe code relies on the bytes
//! being entries: safe code reads them, and may panic.

use std::borrow::Cow;
use std::mem::MaybeUninit;
use std::ops::Range;
use std::ptr::NonNull;

use super::block;
use super::integer::IntegerText;
use crate::hash::Hasher;
use crate::value::Defragmenter;

mod filter;
pub(super) mod format;
mod item;
#[cfg(test)]
mod tests;

pub(super) use filter::EntryFilter;
use format::{
    COUNT_UNKNOWN, END, Encoded, ForeignForm, HEADER, LEN_MAX, OVERHEAD_MAX, back_entry_len,
    back_len, check, decode, entry_len,
};
pub use format::{OVERHEAD, write};
pub use item::Item;

/// An owned listpack. It is only a pointer, which may lie at any address (see `SLOT`): the block's
/// size follows from its header.
#[repr(Rust, packed)]
pub struct Listpack {
    block: NonNull<u8>,
}

// SAFETY: *whole*: no other owner has the block, so it moves with its owner. Plain bytes belong to
// no thread.
unsafe impl Send for Listpack {}
// SAFETY: a shared reference only reads the block, which changes only through exclusive ones.
unsafe impl Sync for Listpack {}

/// The beginning of a block. The gap and the entries follow.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct ListpackHeader {
    /// The bytes of the entries, and of what Redis has beside them.
    total: u32,
    /// How many entries there are, or [`COUNT_UNKNOWN`].
    count: u16,
    /// The bytes of the gap behind its field. 0: there is neither.
    gap: u16,
}

/// Where an entry begins, in bytes from the first entry. Valid until the listpack changes at or
/// before it.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct ListpackPosition(u32);

/// The entries from front to back, or in reverse by `rev()`.
#[derive(Clone)]
pub struct ListpackIter<'a> {
    bytes: &'a [u8],
    front: usize,
    back: usize,
}

impl Listpack {
    pub fn new() -> Self {
        Self::copied(&EMPTY)
    }

    /// Copies foreign bytes after checking all of them: lengths, every entry, the count and the
    /// end. Converts entries that are not in their shortest form.
    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        match check(bytes)? {
            ForeignForm::Shortest => Some(Self::copied(bytes)),
            ForeignForm::Longer(entries) => {
                let mut pack = Self::new();
                pack.append_many(ListpackIter::over(entries));
                Some(pack)
            }
        }
    }

    /// A copy of bytes that were checked, or that are another listpack's.
    fn copied(bytes: &[u8]) -> Self {
        Self { block: block::allocate(bytes, &[]) }
    }

    pub fn push_back<'a>(&mut self, value: impl Into<Item<'a>>) {
        self.insert_at(self.header().len(), value.into());
    }

    pub fn push_front<'a>(&mut self, value: impl Into<Item<'a>>) {
        self.insert_at(0, value.into());
    }

    /// Appends several values, and grows only once.
    pub fn append_many<'a, T: Into<Item<'a>>>(&mut self, values: impl Iterator<Item = T> + Clone) {
        let (mut count, mut len) = (0, 0);
        for value in values.clone() {
            count += 1;
            len += Encoded::new(value.into()).len_with_back();
        }
        let mut room = self.splice(self.header().len(), 0, len, count);
        values.for_each(|value| room.write_entry(&Encoded::new(value.into())));
        assert!(room.rest.is_empty(), "the values changed while they were appended");
    }

    /// Appends all entries of another listpack.
    pub fn append(&mut self, other: &Self) {
        let (entries, count) = (other.entries(), other.len() as isize);
        self.splice(self.header().len(), 0, entries.len(), count).write(entries);
    }

    /// Removes the entries from a position on, and returns them as a listpack.
    pub fn split_off(&mut self, position: ListpackPosition) -> Self {
        let at = position.0 as usize;
        let entries = &self.entries()[at..];
        let (removed, count) = (entries.len(), self.iter_from(position).count());
        let mut tail = Self::new();
        tail.splice(0, 0, removed, count as isize).write(entries);
        self.splice(at, removed, 0, -(count as isize));
        tail
    }

    /// Inserts an entry. Returns its position, which was the other entry's.
    pub fn insert_before<'a>(
        &mut self,
        at: ListpackPosition,
        value: impl Into<Item<'a>>,
    ) -> ListpackPosition {
        self.insert_at(at.0 as usize, value.into());
        at
    }

    /// Inserts an entry. Returns its position.
    pub fn insert_after<'a>(
        &mut self,
        at: ListpackPosition,
        value: impl Into<Item<'a>>,
    ) -> ListpackPosition {
        let at = at.0 as usize;
        let at = at + entry_len(self.entries(), at);
        self.insert_at(at, value.into());
        ListpackPosition(at as u32)
    }

    /// Replaces an entry's value. Its position stays.
    pub fn replace<'a>(&mut self, at: ListpackPosition, value: impl Into<Item<'a>>) {
        let encoded = Encoded::new(value.into());
        let at = at.0 as usize;
        let old_len = entry_len(self.entries(), at);
        self.splice(at, old_len, encoded.len_with_back(), 0).write_entry(&encoded);
    }

    /// Removes an entry. Returns the position of the entry behind it, if there is one.
    pub fn remove(&mut self, at: ListpackPosition) -> Option<ListpackPosition> {
        self.remove_from(at, 1)
    }

    /// Removes up to `count` entries from a position on. Returns the position of the entry behind
    /// them.
    pub fn remove_from(&mut self, at: ListpackPosition, count: usize) -> Option<ListpackPosition> {
        let entries = self.entries();
        let (start, end) = (at.0 as usize, entries.len());
        let (mut stop, mut removed) = (start, 0);
        while removed < count && stop < end {
            stop += entry_len(entries, stop);
            removed += 1;
        }
        self.splice(start, stop - start, 0, -(removed as isize));
        (stop < end).then_some(at)
    }

    /// Removes up to `count` entries from this index on.
    pub fn remove_range(&mut self, index: usize, count: usize) {
        if let Some(position) = self.position(index) {
            self.remove_from(position, count);
        }
    }

    pub fn clear(&mut self) {
        *self = Self::new();
    }

    /// The bytes of the entries, one behind the other.
    #[inline(always)]
    pub fn entries(&self) -> &[u8] {
        let header = self.header();
        // SAFETY: *whole*: that many initialised bytes lie behind the gap. They live as long as the
        // listpack, and do not change while it is borrowed.
        unsafe {
            NonNull::slice_from_raw_parts(self.block.add(header.start()), header.len()).as_ref()
        }
    }

    /// The listpack's bytes in Redis, which [`Self::from_bytes`] accepts. They are copied if there
    /// is a gap.
    pub fn to_bytes(&self) -> Cow<'_, [u8]> {
        let header = self.header();
        if header.gap == 0 {
            // SAFETY: *whole*: these are all bytes of the block, and they are initialised. They
            // live as long as the listpack, and do not change while it is borrowed.
            let bytes = unsafe {
                NonNull::slice_from_raw_parts(self.block, header.total as usize).as_ref()
            };
            return Cow::Borrowed(bytes);
        }
        let mut bytes = Vec::new();
        write(self.entries(), usize::from(header.count), &mut bytes);
        Cow::Owned(bytes)
    }

    /// The length of those bytes.
    #[inline(always)]
    pub fn byte_len(&self) -> usize {
        self.header().total as usize
    }

    /// The number of entries. From 65,535 on they have to be counted.
    #[inline]
    pub fn len(&self) -> usize {
        match self.header().count {
            COUNT_UNKNOWN => self.iter().count(),
            count => usize::from(count),
        }
    }

    pub fn is_empty(&self) -> bool {
        self.header().len() == 0
    }

    /// Its address, for prefetching.
    pub(crate) fn address(&self) -> *const u8 {
        self.block.as_ptr()
    }

    /// Bytes of memory.
    pub fn memory(&self) -> usize {
        block::size(self.header().given())
    }

    /// Whether `entries` more entries of `bytes` bytes in total may be added.
    pub fn has_room(&self, entries: usize, bytes: usize) -> bool {
        bytes.saturating_add(entries.saturating_mul(OVERHEAD_MAX)) <= LEN_MAX - self.byte_len()
    }

    pub fn iter(&self) -> ListpackIter<'_> {
        ListpackIter::over(self.entries())
    }

    /// The entries with these indices. The range may reach past the end.
    pub fn slice(&self, range: Range<usize>) -> ListpackIter<'_> {
        let all = self.iter();
        let at = |index| self.position(index).map_or(all.back, |position| position.0 as usize);
        ListpackIter { front: at(range.start), back: at(range.end), ..all }
    }

    /// The entries from a position on.
    pub fn iter_from(&self, position: ListpackPosition) -> ListpackIter<'_> {
        ListpackIter { front: position.0 as usize, ..self.iter() }
    }

    pub fn get(&self, index: usize) -> Option<Item<'_>> {
        self.position(index).map(|position| self.item(position))
    }

    /// The entry at a position.
    #[inline]
    pub fn item(&self, position: ListpackPosition) -> Item<'_> {
        decode(self.entries(), position.0 as usize).0
    }

    pub fn first(&self) -> Option<ListpackPosition> {
        (!self.is_empty()).then_some(ListpackPosition(0))
    }

    pub fn last(&self) -> Option<ListpackPosition> {
        self.before(self.header().len())
    }

    pub fn next(&self, position: ListpackPosition) -> Option<ListpackPosition> {
        let next = self.after(position);
        ((next.0 as usize) < self.entries().len()).then_some(next)
    }

    /// Where the entry behind this one begins, or would begin.
    pub fn after(&self, position: ListpackPosition) -> ListpackPosition {
        let at = position.0 as usize;
        ListpackPosition((at + entry_len(self.entries(), at)) as u32)
    }

    pub fn previous(&self, position: ListpackPosition) -> Option<ListpackPosition> {
        self.before(position.0 as usize)
    }

    /// Where the entry with this index begins. Walks from the nearer end.
    pub fn position(&self, index: usize) -> Option<ListpackPosition> {
        let entries = self.entries();
        let count = self.header().count;
        if count != COUNT_UNKNOWN {
            let count = usize::from(count);
            if index >= count {
                return None;
            }
            if index > count / 2 {
                let mut at = entries.len();
                for _ in index..count {
                    at -= back_entry_len(entries, at);
                }
                return Some(ListpackPosition(at as u32));
            }
        }
        let mut at = 0;
        for _ in 0..index {
            if at >= entries.len() {
                return None;
            }
            at += entry_len(entries, at);
        }
        (at < entries.len()).then_some(ListpackPosition(at as u32))
    }

    /// Where every `step`-th entry begins.
    pub fn positions(&self, step: usize) -> impl Iterator<Item = ListpackPosition> {
        std::iter::successors(self.first(), move |&position| {
            (0..step).try_fold(position, |position, _| self.next(position))
        })
    }

    /// Whether a value is there twice among every `step`-th entry.
    pub fn repeats(&self, step: usize, hasher: &Hasher) -> bool {
        let mut filter = EntryFilter::with_room(self.len() / step, hasher);
        let (mut entries, mut room) = (self.iter(), IntegerText::new(0));
        while let Some(position) = entries.position()
            && let Some(item) = entries.next()
        {
            if filter.add(item.text(&mut room)) && self.find(item, step) != Some(position) {
                return true;
            }
            entries.by_ref().take(step - 1).for_each(drop);
        }
        false
    }

    /// Finds a value among every `step`-th entry, beginning with the first.
    #[inline]
    pub fn find<'a>(&self, value: impl Into<Item<'a>>, step: usize) -> Option<ListpackPosition> {
        self.find_between(0..self.entries().len(), &Encoded::new(value.into()), step)
    }

    /// Finds a value among every `step`-th entry, beginning at a position.
    pub fn find_from<'a>(
        &self,
        position: ListpackPosition,
        value: impl Into<Item<'a>>,
        step: usize,
    ) -> Option<ListpackPosition> {
        let range = position.0 as usize..self.entries().len();
        self.find_between(range, &Encoded::new(value.into()), step)
    }

    /// Finds a value among every `step`-th entry: first from a position on, then before it. What is
    /// looked for in the order in which it was added is found at once.
    pub fn find_near<'a>(
        &self,
        near: ListpackPosition,
        value: impl Into<Item<'a>>,
        step: usize,
    ) -> Option<ListpackPosition> {
        let (value, near) = (Encoded::new(value.into()), near.0 as usize);
        let behind = self.find_between(near..self.entries().len(), &value, step);
        behind.or_else(|| self.find_between(0..near, &value, step))
    }

    fn find_between(
        &self,
        range: Range<usize>,
        value: &Encoded<'_>,
        step: usize,
    ) -> Option<ListpackPosition> {
        let (entries, mut at) = (self.entries(), range.start);
        let (head, tail) = (&value.head[..value.head_len], value.tail);
        let (first, len) = (head[0], head.len() + tail.len());
        let ending = tail.last_chunk::<PROBE>();
        while at < range.end {
            if entries[at] == first
                && let Some(entry) = entries.get(at..at + len)
                // Many values begin alike and have the same length.
                && ending.is_none_or(|ending| entry.last_chunk() == Some(ending))
                // Equal values have equal bytes, and the head includes the length.
                && entry.starts_with(head)
                && entry.ends_with(tail)
            {
                return Some(ListpackPosition(at as u32));
            }
            for _ in 0..step {
                if at < range.end {
                    at += entry_len(entries, at);
                }
            }
        }
        None
    }

    /// The entry that ends where another one begins.
    fn before(&self, at: usize) -> Option<ListpackPosition> {
        (at > 0).then(|| ListpackPosition((at - back_entry_len(self.entries(), at)) as u32))
    }

    fn insert_at(&mut self, at: usize, value: Item<'_>) {
        let encoded = Encoded::new(value);
        self.splice(at, 0, encoded.len_with_back(), 1).write_entry(&encoded);
    }

    #[inline(always)]
    fn header(&self) -> ListpackHeader {
        // SAFETY: *whole*: the block begins with these two fields. It is aligned to 8.
        let (total, count) = unsafe {
            (self.block.cast::<u32>().read(), self.block.add(COUNT).cast::<u16>().read())
        };
        let (total, count) = (u32::from_le(total), u16::from_le(count));
        if total & GAPPED == 0 {
            return ListpackHeader { total, count, gap: 0 };
        }
        // SAFETY: *whole*: the bit says that this field follows.
        let gap = unsafe { self.block.add(GAP).cast::<u16>().read() };
        ListpackHeader { total: total & !GAPPED, count, gap: u16::from_le(gap) }
    }

    /// # Safety
    /// The block was given as many bytes as the header says, and the entries lie where it says.
    #[inline(always)]
    unsafe fn write_header(&mut self, header: ListpackHeader) {
        let gapped = if header.gap == 0 { 0 } else { GAPPED };
        // SAFETY: the caller says that the block is long enough, and that no entry lies here.
        unsafe {
            self.block.cast::<u32>().write((header.total | gapped).to_le());
            self.block.add(COUNT).cast::<u16>().write(header.count.to_le());
            if header.gap != 0 {
                self.block.add(GAP).cast::<u16>().write(header.gap.to_le());
            }
        }
    }

    /// Replaces `removed` bytes of the entries by room for `inserted` others, and updates the
    /// header.
    ///
    /// # Panics
    /// If the listpack would become longer than 1 GiB (see [`Self::has_room`]), or if the bytes
    /// reach past the end, which may happen with the position of another listpack.
    fn splice(
        &mut self,
        at: usize,
        removed: usize,
        inserted: usize,
        count: isize,
    ) -> EntryRoom<'_> {
        let old = self.header();
        let old_len = old.len();
        assert!(
            at <= old_len && removed <= old_len - at,
            "bytes {at} + {removed} of a listpack of {old_len}"
        );
        let len = old_len - removed + inserted;
        assert!(len <= LEN_MAX - OVERHEAD, "a listpack of {len} bytes");
        let is_front = at == 0 && old_len > 0 && (removed == 0 || inserted == 0);
        let new = ListpackHeader {
            // A count beyond 16 bits stays unknown, as in Redis.
            count: match old.count {
                COUNT_UNKNOWN => COUNT_UNKNOWN,
                known => u16::try_from(usize::from(known).saturating_add_signed(count))
                    .unwrap_or(COUNT_UNKNOWN),
            },
            ..if is_front { old.with_front(len) } else { old.with_back(len) }
        };
        if new.given() > old.given() {
            self.resize_block(old, new);
        }
        let (from, to) = (old.start(), new.start());
        let (tail, tail_len) = (at + removed, old_len - at - removed + END_LEN);
        // SAFETY: the block was given at least as many bytes as either header says. The bytes
        // before the change are `at` bytes, those behind it `tail_len` with the end, and both fit
        // there by the old header and by the new one. The bytes before the change move down or not
        // at all, so they move first: a gap grows only if there are none.
        unsafe {
            self.shift(from, to, at);
            self.shift(from + tail, to + at + inserted, tail_len);
            self.write_header(new);
        }
        if new.given() < old.given() {
            self.resize_block(old, new);
        }
        // SAFETY: the bytes lie between the gap and the end, in a block that is borrowed
        // exclusively with the listpack. They need not be initialised before the room is written.
        let rest = unsafe {
            NonNull::slice_from_raw_parts(self.block.add(to + at).cast(), inserted).as_mut()
        };
        EntryRoom { rest }
    }

    /// Moves `len` bytes within the block.
    ///
    /// # Safety
    /// Both places lie in the block.
    #[inline(always)]
    unsafe fn shift(&mut self, from: usize, to: usize, len: usize) {
        if from != to && len > 0 {
            // SAFETY: the caller says that both places lie in the block, which only this listpack
            // uses.
            unsafe { self.block.add(to).copy_from(self.block.add(from), len) };
        }
    }

    /// Moves the block if it lies in sparsely used memory.
    pub(crate) fn defragment(&mut self, defragmenter: &mut Defragmenter<'_>) {
        if defragmenter.wants(self.block) {
            *self = self.clone();
        }
    }

    /// Resizes the block from one header's size to another's.
    #[inline]
    fn resize_block(&mut self, old: ListpackHeader, new: ListpackHeader) {
        // SAFETY: only this listpack uses the block, which was given as many bytes as its header
        // said until now. The new size includes a header.
        let moved = unsafe { block::resize(self.block, old.given(), new.given()) };
        if let Some(moved) = moved {
            self.block = moved;
        }
    }
}

impl ListpackHeader {
    /// The bytes of the gap and its field.
    #[inline(always)]
    const fn gap_bytes(self) -> usize {
        if self.gap == 0 { 0 } else { GAP_FIELD + self.gap as usize }
    }

    /// Bytes that the block was given.
    #[inline(always)]
    const fn given(self) -> usize {
        self.total as usize + self.gap_bytes()
    }

    /// Where the first entry begins.
    #[inline(always)]
    const fn start(self) -> usize {
        HEADER + self.gap_bytes()
    }

    /// Bytes of the entries.
    #[inline(always)]
    const fn len(self) -> usize {
        self.total as usize - OVERHEAD
    }

    /// The header for `len` bytes of entries after a change of the first ones. The other entries
    /// stay where they are if the gap allows it.
    fn with_front(self, len: usize) -> Self {
        let gap_bytes = match (self.gap_bytes() + self.len()).checked_sub(len) {
            Some(gap_bytes) => gap_bytes,
            // The whole rest of the block becomes the gap.
            None => block::size(OVERHEAD + len + len / GAP_SHARE) - OVERHEAD - len,
        };
        self.with_gap(gap_bytes.saturating_sub(GAP_FIELD), len)
    }

    /// The header for `len` bytes of entries after a change behind the first ones. Those stay where
    /// they are, unless the gap is needed for other entries.
    #[inline]
    fn with_back(self, len: usize) -> Self {
        if self.gap == 0 {
            return self.with_gap(0, len);
        }
        let (gap, given) = (self.gap_bytes(), self.given());
        let is_full = block::size(OVERHEAD + gap + len) > block::size(given);
        let helps = gap >= given / GAP_SHARE && block::size(OVERHEAD + len) <= block::size(given);
        self.with_gap(if is_full && helps { 0 } else { self.gap.into() }, len)
    }

    /// The header with this gap. There is no gap if it would be too large for the entries, or if
    /// they are too few.
    #[inline]
    fn with_gap(self, gap: usize, len: usize) -> Self {
        let kept = u16::try_from(gap).ok().filter(|_| gap < len / 3 && len >= GAP_LEN_MIN);
        Self { gap: kept.unwrap_or(0), total: (len + OVERHEAD) as u32, ..self }
    }
}

/// Room in a listpack that has to be written. Bytes that are not written because of a panic become
/// zeros, so *whole* holds in any case.
struct EntryRoom<'a> {
    rest: &'a mut [MaybeUninit<u8>],
}

impl EntryRoom<'_> {
    #[inline]
    fn write(&mut self, bytes: &[u8]) {
        let (front, rest) = std::mem::take(&mut self.rest).split_at_mut(bytes.len());
        front.write_copy_of_slice(bytes);
        self.rest = rest;
    }

    #[inline]
    fn write_entry(&mut self, entry: &Encoded<'_>) {
        let written = entry.write(self.rest);
        self.rest = &mut std::mem::take(&mut self.rest)[written..];
    }
}

impl Drop for EntryRoom<'_> {
    #[inline]
    fn drop(&mut self) {
        self.rest.fill(MaybeUninit::new(0));
    }
}

impl Default for Listpack {
    fn default() -> Self {
        Self::new()
    }
}

impl Clone for Listpack {
    fn clone(&self) -> Self {
        Self::copied(&self.to_bytes())
    }
}

impl Drop for Listpack {
    fn drop(&mut self) {
        // SAFETY: *whole*: no other owner has the block, which was given as many bytes as its
        // header says.
        unsafe { block::free(self.block, self.header().given()) };
    }
}

impl<'a> FromIterator<Item<'a>> for Listpack {
    fn from_iter<I: IntoIterator<Item = Item<'a>>>(items: I) -> Self {
        let mut pack = Self::new();
        items.into_iter().for_each(|item| pack.push_back(item));
        pack
    }
}

impl PartialEq for Listpack {
    fn eq(&self, other: &Self) -> bool {
        self.entries() == other.entries()
    }
}

impl Eq for Listpack {}

impl std::fmt::Debug for Listpack {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_list().entries(self).finish()
    }
}

impl<'a> IntoIterator for &'a Listpack {
    type Item = Item<'a>;
    type IntoIter = ListpackIter<'a>;

    fn into_iter(self) -> ListpackIter<'a> {
        self.iter()
    }
}

impl<'a> ListpackIter<'a> {
    /// Iterates over entries in a listpack's encoding.
    pub fn over(entries: &'a [u8]) -> Self {
        Self { bytes: entries, front: 0, back: entries.len() }
    }

    /// Where the next entry from the front begins.
    pub fn position(&self) -> Option<ListpackPosition> {
        (self.front < self.back).then_some(ListpackPosition(self.front as u32))
    }
}

impl<'a> Iterator for ListpackIter<'a> {
    type Item = Item<'a>;

    #[inline]
    fn next(&mut self) -> Option<Item<'a>> {
        if self.front >= self.back {
            return None;
        }
        let (item, len) = decode(self.bytes, self.front);
        self.front += len + back_len(len);
        Some(item)
    }

    #[inline]
    fn nth(&mut self, skipped: usize) -> Option<Item<'a>> {
        for _ in 0..skipped {
            if self.front >= self.back {
                return None;
            }
            self.front += entry_len(self.bytes, self.front);
        }
        self.next()
    }
}

impl DoubleEndedIterator for ListpackIter<'_> {
    #[inline]
    fn next_back(&mut self) -> Option<Self::Item> {
        if self.front >= self.back {
            return None;
        }
        self.back -= back_entry_len(self.bytes, self.back);
        Some(decode(self.bytes, self.back).0)
    }
}

/// The offsets of the fields behind the first one.
/// Of longer values this many bytes at the end are compared first.
const PROBE: usize = 8;
const COUNT: usize = 4;
const GAP: usize = 6;
/// The length of the last of them, which Redis does not have.
const GAP_FIELD: usize = 2;
/// The bit of the first field that says that there is a gap.
const GAPPED: u32 = 1 << 31;
const _: () = assert!(LEN_MAX < GAPPED as usize && HEADER == GAP);
const EMPTY: [u8; OVERHEAD] = [OVERHEAD as u8, 0, 0, 0, 0, 0, END];
const END_LEN: usize = 1;
/// Moving fewer bytes of entries costs no more than keeping a gap before them.
const GAP_LEN_MIN: usize = 128;
/// If all entries have to be moved, the new gap is this fraction of their length, so that some
/// changes need no further move.
const GAP_SHARE: usize = 16;
