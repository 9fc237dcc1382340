//! A listpack: a sequence of strings and integers in one block, byte for byte as Redis has it,
//! unless there is a gap.
//!
//! ```text
//! without a gap: u32 bytes in all | u16 entries (65535: count them) | entry ... | 0xff
//! with a gap: the same, with bit 31 of the first field set | u16 gap | gap | entry ... | 0xff
//! entry: head | payload | length of head and payload, readable from its end
//! ```
//! The gap is what makes a queue of a listpack: taking its first entry moves no other, nor does
//! putting one in front as long as the gap has room. It does not count to the bytes in all, and
//! neither does its own field. Small listpacks have none: writing them to a file is one copy.
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
//! What the unsafe code here rests on is called *whole*: the block belongs to its [`Listpack`]
//! alone, begins with a [`Header`], and was given as many bytes as that says. Those behind the gap
//! are initialised, those in the gap need not be. Only `splice` changes the header, and what it
//! hands out to be written lies behind the gap. Whether the bytes are entries matters to no unsafe
//! code: reading them is safe code, which may panic.

use std::borrow::Cow;
use std::mem::MaybeUninit;
use std::ptr::NonNull;

use super::block;
use crate::value::Defragmenter;

pub(super) mod format;
mod item;
#[cfg(test)]
mod tests;

use format::{
    COUNT_UNKNOWN, END, Encoded, Form, HEADER, LEN_MAX, OVERHEAD_MAX, back_entry_len, back_len,
    check, decode, entry_len,
};
pub use format::{OVERHEAD, write};
pub use item::Item;

/// An owned listpack. The pointer is all there is: the block's size follows from its header.
pub struct Listpack {
    block: NonNull<u8>,
}

// SAFETY: *whole*: no other owner has the block, so it goes with its owner; plain bytes belong to
// no thread.
unsafe impl Send for Listpack {}
// SAFETY: a shared reference only reads the block, which changes through exclusive ones alone.
unsafe impl Sync for Listpack {}

/// What a block begins with. The entries lie behind it and the gap.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Header {
    /// Bytes of the entries and what Redis has beside them.
    total: u32,
    /// How many entries there are, or [`COUNT_UNKNOWN`].
    count: u16,
    /// Bytes of the gap behind its field; 0: there is neither.
    gap: u16,
}

/// Where an entry begins, in bytes from the first entry. Good until the listpack changes at or
/// before it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Position(u32);

/// The entries from front to back, or from the back by `rev()`.
#[derive(Clone)]
pub struct Iter<'a> {
    bytes: &'a [u8],
    front: usize,
    back: usize,
}

impl Listpack {
    pub fn new() -> Self {
        Self::copied(&EMPTY)
    }

    /// Takes foreign bytes after checking all of them: lengths, every entry, the count and the end.
    /// Entries that are not in their shortest form are brought into it.
    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        match check(bytes)? {
            Form::Shortest => Some(Self::copied(bytes)),
            Form::Longer(entries) => {
                let mut pack = Self::new();
                pack.append_many(Iter::over(entries));
                Some(pack)
            }
        }
    }

    /// A copy of bytes that were checked, or are those of another listpack.
    fn copied(bytes: &[u8]) -> Self {
        Self { block: block::allocate(bytes, &[]) }
    }

    pub fn push_back<'a>(&mut self, value: impl Into<Item<'a>>) {
        self.insert_at(self.header().len(), value.into());
    }

    pub fn push_front<'a>(&mut self, value: impl Into<Item<'a>>) {
        self.insert_at(0, value.into());
    }

    /// Pushes several values to the back, growing once.
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

    /// Puts all entries of another one behind its own.
    pub fn append(&mut self, other: &Self) {
        let (entries, count) = (other.entries(), other.len() as isize);
        self.splice(self.header().len(), 0, entries.len(), count).write(entries);
    }

    /// Takes the entries from a position on away into a listpack of their own.
    pub fn split_off(&mut self, position: Position) -> Self {
        let at = position.0 as usize;
        let entries = &self.entries()[at..];
        let (removed, count) = (entries.len(), self.iter_from(position).count());
        let mut tail = Self::new();
        tail.splice(0, 0, removed, count as isize).write(entries);
        self.splice(at, removed, 0, -(count as isize));
        tail
    }

    /// Returns the new entry's position, which was the other's.
    pub fn insert_before<'a>(&mut self, at: Position, value: impl Into<Item<'a>>) -> Position {
        self.insert_at(at.0 as usize, value.into());
        at
    }

    /// Returns the new entry's position.
    pub fn insert_after<'a>(&mut self, at: Position, value: impl Into<Item<'a>>) -> Position {
        let at = at.0 as usize;
        let at = at + entry_len(self.entries(), at);
        self.insert_at(at, value.into());
        Position(at as u32)
    }

    /// Puts another value in the place of an entry, whose position stays.
    pub fn replace<'a>(&mut self, at: Position, value: impl Into<Item<'a>>) {
        let encoded = Encoded::new(value.into());
        let at = at.0 as usize;
        let old_len = entry_len(self.entries(), at);
        self.splice(at, old_len, encoded.len_with_back(), 0).write_entry(&encoded);
    }

    /// Returns the position of the entry that followed, if there was one.
    pub fn remove(&mut self, at: Position) -> Option<Position> {
        self.remove_from(at, 1)
    }

    /// Removes up to `count` entries from a position on; returns the position of the entry that
    /// followed them.
    pub fn remove_from(&mut self, at: Position, count: usize) -> Option<Position> {
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

    /// Removes up to `count` entries from the one with this index on.
    pub fn remove_range(&mut self, index: usize, count: usize) {
        if let Some(position) = self.position(index) {
            self.remove_from(position, count);
        }
    }

    pub fn clear(&mut self) {
        *self = Self::new();
    }

    /// The bytes of the entries, one after the other.
    #[inline(always)]
    pub fn entries(&self) -> &[u8] {
        let header = self.header();
        // SAFETY: *whole*: behind the gap lie that many initialised bytes. They live as long as the
        // listpack, and do not change while it is borrowed.
        unsafe {
            NonNull::slice_from_raw_parts(self.block.add(header.start()), header.len()).as_ref()
        }
    }

    /// The bytes that Redis keeps for it: what [`Self::from_bytes`] takes. They are copied where
    /// there is a gap.
    pub fn to_bytes(&self) -> Cow<'_, [u8]> {
        let header = self.header();
        if header.gap == 0 {
            // SAFETY: *whole*: these are all bytes of the block, and initialised. They live as long
            // as the listpack, and do not change while it is borrowed.
            let bytes = unsafe {
                NonNull::slice_from_raw_parts(self.block, header.total as usize).as_ref()
            };
            return Cow::Borrowed(bytes);
        }
        let mut bytes = Vec::new();
        write(self.entries(), usize::from(header.count), &mut bytes);
        Cow::Owned(bytes)
    }

    /// How many bytes those are.
    #[inline(always)]
    pub fn byte_len(&self) -> usize {
        self.header().total as usize
    }

    /// Number of entries. With 65,535 of them or more they have to be counted.
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

    /// Where it lies, for a prefetch.
    pub(crate) fn address(&self) -> *const u8 {
        self.block.as_ptr()
    }

    /// Bytes of memory that it takes.
    pub fn memory(&self) -> usize {
        block::size(self.header().given())
    }

    /// Whether `entries` more entries, of `bytes` bytes altogether, may still be added.
    pub fn has_room(&self, entries: usize, bytes: usize) -> bool {
        bytes.saturating_add(entries.saturating_mul(OVERHEAD_MAX)) <= LEN_MAX - self.byte_len()
    }

    pub fn iter(&self) -> Iter<'_> {
        Iter::over(self.entries())
    }

    /// The entries with these indices; the range may reach past the end.
    pub fn slice(&self, range: std::ops::Range<usize>) -> Iter<'_> {
        let all = self.iter();
        let at = |index| self.position(index).map_or(all.back, |position| position.0 as usize);
        Iter { front: at(range.start), back: at(range.end), ..all }
    }

    /// The entries from a position on.
    pub fn iter_from(&self, position: Position) -> Iter<'_> {
        Iter { front: position.0 as usize, ..self.iter() }
    }

    pub fn get(&self, index: usize) -> Option<Item<'_>> {
        self.position(index).map(|position| self.item(position))
    }

    /// The entry at a position.
    #[inline]
    pub fn item(&self, position: Position) -> Item<'_> {
        decode(self.entries(), position.0 as usize).0
    }

    pub fn first(&self) -> Option<Position> {
        (!self.is_empty()).then_some(Position(0))
    }

    pub fn last(&self) -> Option<Position> {
        self.before(self.header().len())
    }

    pub fn next(&self, position: Position) -> Option<Position> {
        let entries = self.entries();
        let next = position.0 as usize + entry_len(entries, position.0 as usize);
        (next < entries.len()).then_some(Position(next as u32))
    }

    pub fn previous(&self, position: Position) -> Option<Position> {
        self.before(position.0 as usize)
    }

    /// Where the entry with this index begins; walks from the nearer end.
    pub fn position(&self, index: usize) -> Option<Position> {
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
                return Some(Position(at as u32));
            }
        }
        let mut at = 0;
        for _ in 0..index {
            if at >= entries.len() {
                return None;
            }
            at += entry_len(entries, at);
        }
        (at < entries.len()).then_some(Position(at as u32))
    }

    /// The first of every `step`-th entry, beginning with the first of all, that equals the value.
    #[inline]
    pub fn find<'a>(&self, value: impl Into<Item<'a>>, step: usize) -> Option<Position> {
        self.find_at(0, Encoded::new(value.into()), step)
    }

    /// The first of every `step`-th entry, beginning at a position, that equals the value.
    pub fn find_from<'a>(
        &self,
        position: Position,
        value: impl Into<Item<'a>>,
        step: usize,
    ) -> Option<Position> {
        self.find_at(position.0 as usize, Encoded::new(value.into()), step)
    }

    fn find_at(&self, mut at: usize, value: Encoded<'_>, step: usize) -> Option<Position> {
        let entries = self.entries();
        let end = entries.len();
        let (head, tail) = (&value.head[..value.head_len], value.tail);
        let first = head[0];
        while at < end {
            if entries[at] == first {
                // Equal values have equal bytes, and the head says how long they are.
                let rest = &entries[at..];
                if rest.starts_with(head) && rest[head.len()..].starts_with(tail) {
                    return Some(Position(at as u32));
                }
            }
            for _ in 0..step {
                if at < end {
                    at += entry_len(entries, at);
                }
            }
        }
        None
    }

    /// The entry that ends where another begins.
    fn before(&self, at: usize) -> Option<Position> {
        (at > 0).then(|| Position((at - back_entry_len(self.entries(), at)) as u32))
    }

    fn insert_at(&mut self, at: usize, value: Item<'_>) {
        let encoded = Encoded::new(value);
        self.splice(at, 0, encoded.len_with_back(), 1).write_entry(&encoded);
    }

    #[inline(always)]
    fn header(&self) -> Header {
        // SAFETY: *whole*: the block begins with these two fields. It is aligned to 8.
        let (total, count) = unsafe {
            (self.block.cast::<u32>().read(), self.block.add(COUNT).cast::<u16>().read())
        };
        let (total, count) = (u32::from_le(total), u16::from_le(count));
        if total & GAPPED == 0 {
            return Header { total, count, gap: 0 };
        }
        // SAFETY: *whole*: the bit says that this field follows.
        let gap = unsafe { self.block.add(GAP).cast::<u16>().read() };
        Header { total: total & !GAPPED, count, gap: u16::from_le(gap) }
    }

    /// # Safety
    /// The block was given as many bytes as the header says, and the entries lie where it says.
    #[inline(always)]
    unsafe fn write_header(&mut self, header: Header) {
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

    /// Replaces `removed` bytes of the entries by room for `inserted` others, and brings the header
    /// up to date.
    ///
    /// # Panics
    /// When it would become longer than 1 GiB (see [`Self::has_room`]); and when the bytes reach
    /// behind the end, as with the position of another listpack they may.
    fn splice(&mut self, at: usize, removed: usize, inserted: usize, count: isize) -> Room<'_> {
        let old = self.header();
        let old_len = old.len();
        assert!(
            at <= old_len && removed <= old_len - at,
            "bytes {at} + {removed} of a listpack of {old_len}"
        );
        let len = old_len - removed + inserted;
        assert!(len <= LEN_MAX - OVERHEAD, "a listpack of {len} bytes");
        let is_front = at == 0 && old_len > 0 && (removed == 0 || inserted == 0);
        let new = Header {
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
        // SAFETY: the block was given as many bytes as the larger of both headers says. What lies
        // before the change is `at` bytes long, what lies behind it `tail_len` with the end, and
        // both fit there by the old header and by the new one. What lies before it moves down or
        // not at all, so it comes first: a gap grows only where there is nothing before the change.
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
        Room { rest }
    }

    /// Moves `len` bytes within the block.
    ///
    /// # Safety
    /// They lie in the block at both places.
    #[inline(always)]
    unsafe fn shift(&mut self, from: usize, to: usize, len: usize) {
        if from != to && len > 0 {
            // SAFETY: the caller says that both places lie in the block, which is ours alone.
            unsafe { self.block.add(to).copy_from(self.block.add(from), len) };
        }
    }

    /// Moves its block, if that lies where much is free.
    pub(crate) fn defragment(&mut self, defragmenter: &mut Defragmenter<'_>) {
        if defragmenter.wants(self.block) {
            *self = self.clone();
        }
    }

    /// Changes the block from what one header's bytes take to what another's take.
    #[inline]
    fn resize_block(&mut self, old: Header, new: Header) {
        // SAFETY: the block is ours alone and was given as many bytes as its header said until now.
        // There are at least those of a header.
        unsafe { block::resize(&mut self.block, old.given(), new.given()) };
    }
}

impl Header {
    /// Bytes of the gap and its field.
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

    /// With `len` bytes of entries, of which the first ones have changed: those behind them stay
    /// where they are, if the gap allows it.
    fn with_front(self, len: usize) -> Self {
        let gap_bytes = match (self.gap_bytes() + self.len()).checked_sub(len) {
            Some(gap_bytes) => gap_bytes,
            // All that the block has beside the entries becomes the gap.
            None => block::size(OVERHEAD + len + len / GAP_SHARE) - OVERHEAD - len,
        };
        self.with_gap(gap_bytes.saturating_sub(GAP_FIELD), len)
    }

    /// With `len` bytes of entries, of which the first ones have not changed: they stay where they
    /// are, unless the gap is needed for others.
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

    /// With this gap, if it is not too large for the entries, nor they too few to have one.
    #[inline]
    fn with_gap(self, gap: usize, len: usize) -> Self {
        let kept = u16::try_from(gap).ok().filter(|_| gap < len / 3 && len >= GAP_LEN_MIN);
        Self { gap: kept.unwrap_or(0), total: (len + OVERHEAD) as u32, ..self }
    }
}

/// Bytes of a listpack that have yet to be written. Those that never are, since something failed,
/// are zeros afterwards: *whole* holds whatever happens.
struct Room<'a> {
    rest: &'a mut [MaybeUninit<u8>],
}

impl Room<'_> {
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

impl Drop for Room<'_> {
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
    type IntoIter = Iter<'a>;

    fn into_iter(self) -> Iter<'a> {
        self.iter()
    }
}

impl<'a> Iter<'a> {
    /// Over entries that lie one after the other as a listpack has them.
    pub fn over(entries: &'a [u8]) -> Self {
        Self { bytes: entries, front: 0, back: entries.len() }
    }

    /// Where the next entry from the front begins.
    pub fn position(&self) -> Option<Position> {
        (self.front < self.back).then_some(Position(self.front as u32))
    }
}

impl<'a> Iterator for Iter<'a> {
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
}

impl DoubleEndedIterator for Iter<'_> {
    #[inline]
    fn next_back(&mut self) -> Option<Self::Item> {
        if self.front >= self.back {
            return None;
        }
        self.back -= back_entry_len(self.bytes, self.back);
        Some(decode(self.bytes, self.back).0)
    }
}

/// Where the fields behind the first lie.
const COUNT: usize = 4;
const GAP: usize = 6;
/// Bytes of the last of them, which Redis does not have.
const GAP_FIELD: usize = 2;
/// The bit of the first field that says that there is a gap.
const GAPPED: u32 = 1 << 31;
const _: () = assert!(LEN_MAX < GAPPED as usize && HEADER == GAP);
const EMPTY: [u8; OVERHEAD] = [OVERHEAD as u8, 0, 0, 0, 0, 0, END];
const END_LEN: usize = 1;
/// Moving fewer bytes of entries costs no more than keeping a gap before them.
const GAP_LEN_MIN: usize = 128;
/// All entries are moved only where this share of them may then change without another move.
const GAP_SHARE: usize = 16;
