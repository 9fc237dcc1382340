//! A listpack: a sequence of strings and integers in one block, byte for byte as Redis keeps it.
//!
//! ```text
//! u32 bytes in all | u16 entries (65535: count them) | entry ... | 0xff
//! entry: head | payload | length of head and payload, readable from its end
//! ```
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
//! alone and has room for as many bytes as its header says, all of which are initialised. Only
//! `splice` changes the header, and what it hands out to be written lies behind the header. Whether
//! the bytes are entries matters to no unsafe code: reading them is safe code, which may panic.

use std::mem::MaybeUninit;
use std::ptr::NonNull;

use super::block;
use crate::value::Defragmenter;

pub(super) mod format;
mod item;
#[cfg(test)]
mod tests;

use format::{
    COUNT_UNKNOWN, EMPTY, Encoded, Form, HEADER, LEN_MAX, OVERHEAD_MAX, back_entry_len, back_len,
    check, decode, entry_len,
};
pub use item::Item;

/// An owned listpack. The pointer is all there is: the block's size follows from its header.
pub struct Listpack {
    block: NonNull<u8>,
}

// SAFETY: *whole*: nobody else has the block, so it goes with its owner; plain bytes belong to no
// thread.
unsafe impl Send for Listpack {}
// SAFETY: a shared reference only reads the block, which changes through exclusive ones alone.
unsafe impl Sync for Listpack {}

/// Where an entry begins, in bytes from the start. Good until the listpack changes at or before it.
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
        Self::from_trusted(&EMPTY)
    }

    /// Takes foreign bytes after checking all of them: lengths, every entry, the count and the end.
    /// Entries that are not in their shortest form are brought into it.
    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        match check(bytes)? {
            Form::Shortest => Some(Self::from_trusted(bytes)),
            Form::Longer => {
                let mut pack = Self::new();
                pack.append_many(Iter { bytes, front: HEADER, back: bytes.len() - 1 });
                Some(pack)
            }
        }
    }

    /// Copies bytes that are a listpack in its shortest form, so that their first four tell how
    /// many they are.
    fn from_trusted(bytes: &[u8]) -> Self {
        Self { block: block::allocate(bytes) }
    }

    pub fn push_back<'a>(&mut self, value: impl Into<Item<'a>>) {
        self.insert_at(self.byte_len() - 1, value.into());
    }

    pub fn push_front<'a>(&mut self, value: impl Into<Item<'a>>) {
        self.insert_at(HEADER, value.into());
    }

    /// Pushes several values to the back, growing once.
    pub fn append_many<'a, T: Into<Item<'a>>>(&mut self, values: impl Iterator<Item = T> + Clone) {
        let (mut count, mut len) = (0, 0);
        for value in values.clone() {
            count += 1;
            len += Encoded::new(value.into()).len_with_back();
        }
        let mut gap = self.splice(self.byte_len() - 1, 0, len, count);
        values.for_each(|value| gap.write_entry(&Encoded::new(value.into())));
        assert!(gap.rest.is_empty(), "the values changed while they were appended");
    }

    /// Puts all entries of another one behind its own.
    pub fn append(&mut self, other: &Self) {
        let entries = &other.as_bytes()[HEADER..other.byte_len() - 1];
        let count = other.len() as isize;
        self.splice(self.byte_len() - 1, 0, entries.len(), count).write(entries);
    }

    /// Takes the entries from a position on away into a listpack of their own.
    pub fn split_off(&mut self, position: Position) -> Self {
        let at = position.0 as usize;
        let entries = &self.as_bytes()[at..self.byte_len() - 1];
        let removed = entries.len();
        let count = Iter { bytes: self.as_bytes(), front: at, back: self.byte_len() - 1 }.count();
        let mut tail = Self::new();
        tail.splice(HEADER, 0, removed, count as isize).write(entries);
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
        let at = at + entry_len(self.as_bytes(), at);
        self.insert_at(at, value.into());
        Position(at as u32)
    }

    /// Puts another value in the place of an entry, whose position stays.
    pub fn replace<'a>(&mut self, at: Position, value: impl Into<Item<'a>>) {
        let encoded = Encoded::new(value.into());
        let at = at.0 as usize;
        let old_len = entry_len(self.as_bytes(), at);
        self.splice(at, old_len, encoded.len_with_back(), 0).write_entry(&encoded);
    }

    /// Returns the position of the entry that followed, if there was one.
    pub fn remove(&mut self, at: Position) -> Option<Position> {
        self.remove_from(at, 1)
    }

    /// Removes up to `count` entries from a position on; returns the position of the entry that
    /// followed them.
    pub fn remove_from(&mut self, at: Position, count: usize) -> Option<Position> {
        let bytes = self.as_bytes();
        let (start, end) = (at.0 as usize, bytes.len() - 1);
        let (mut stop, mut removed) = (start, 0);
        while removed < count && stop < end {
            stop += entry_len(bytes, stop);
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

    #[inline(always)]
    pub fn as_bytes(&self) -> &[u8] {
        // SAFETY: *whole*: that number of initialised bytes lies there. They live as long as the
        // listpack, and do not change while it is borrowed.
        unsafe { NonNull::slice_from_raw_parts(self.block, self.byte_len()).as_ref() }
    }

    /// Bytes in all, header and end included.
    #[inline(always)]
    pub fn byte_len(&self) -> usize {
        // SAFETY: *whole*: the block begins with a header of six bytes. It is aligned to 8.
        u32::from_le(unsafe { self.block.cast::<u32>().read() }) as usize
    }

    /// Number of entries. With 65,535 of them or more they have to be counted.
    pub fn len(&self) -> usize {
        match self.header_count() {
            COUNT_UNKNOWN => self.iter().count(),
            count => usize::from(count),
        }
    }

    pub fn is_empty(&self) -> bool {
        self.byte_len() == EMPTY.len()
    }

    /// Bytes of memory that it takes.
    pub fn memory(&self) -> usize {
        block::size(self.byte_len())
    }

    /// Whether `entries` more entries, of `bytes` bytes altogether, may still be added.
    pub fn has_room(&self, entries: usize, bytes: usize) -> bool {
        bytes.saturating_add(entries.saturating_mul(OVERHEAD_MAX)) <= LEN_MAX - self.byte_len()
    }

    pub fn iter(&self) -> Iter<'_> {
        let bytes = self.as_bytes();
        Iter { bytes, front: HEADER, back: bytes.len() - 1 }
    }

    /// The entries with these indices; the range may reach past the end.
    pub fn slice(&self, range: std::ops::Range<usize>) -> Iter<'_> {
        let end = self.byte_len() - 1;
        let at = |index| self.position(index).map_or(end, |position| position.0 as usize);
        Iter { front: at(range.start), back: at(range.end), ..self.iter() }
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
        decode(self.as_bytes(), position.0 as usize).0
    }

    pub fn first(&self) -> Option<Position> {
        (!self.is_empty()).then_some(Position(HEADER as u32))
    }

    pub fn last(&self) -> Option<Position> {
        self.before(self.byte_len() - 1)
    }

    pub fn next(&self, position: Position) -> Option<Position> {
        let bytes = self.as_bytes();
        let next = position.0 as usize + entry_len(bytes, position.0 as usize);
        (next < bytes.len() - 1).then_some(Position(next as u32))
    }

    pub fn previous(&self, position: Position) -> Option<Position> {
        self.before(position.0 as usize)
    }

    /// Where the entry with this index begins; walks from the nearer end.
    pub fn position(&self, index: usize) -> Option<Position> {
        let bytes = self.as_bytes();
        let count = self.header_count();
        if count != COUNT_UNKNOWN {
            let count = usize::from(count);
            if index >= count {
                return None;
            }
            if index > count / 2 {
                let mut at = bytes.len() - 1;
                for _ in index..count {
                    at -= back_entry_len(bytes, at);
                }
                return Some(Position(at as u32));
            }
        }
        let mut at = HEADER;
        for _ in 0..index {
            if at >= bytes.len() - 1 {
                return None;
            }
            at += entry_len(bytes, at);
        }
        (at < bytes.len() - 1).then_some(Position(at as u32))
    }

    /// The first of every `step`-th entry, beginning with the first of all, that equals the value.
    #[inline]
    pub fn find<'a>(&self, value: impl Into<Item<'a>>, step: usize) -> Option<Position> {
        self.find_at(HEADER, Encoded::new(value.into()), step)
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
        let bytes = self.as_bytes();
        let end = bytes.len() - 1;
        let (head, tail) = (&value.head[..value.head_len], value.tail);
        let first = head[0];
        while at < end {
            if bytes[at] == first {
                // Equal values have equal bytes, and the head says how long they are.
                let rest = &bytes[at..end];
                if rest.starts_with(head) && rest[head.len()..].starts_with(tail) {
                    return Some(Position(at as u32));
                }
            }
            for _ in 0..step {
                if at < end {
                    at += entry_len(bytes, at);
                }
            }
        }
        None
    }

    /// The entry that ends where another begins.
    fn before(&self, at: usize) -> Option<Position> {
        (at > HEADER).then(|| Position((at - back_entry_len(self.as_bytes(), at)) as u32))
    }

    fn insert_at(&mut self, at: usize, value: Item<'_>) {
        let encoded = Encoded::new(value);
        self.splice(at, 0, encoded.len_with_back(), 1).write_entry(&encoded);
    }

    fn header_count(&self) -> u16 {
        // SAFETY: *whole*: these are the last two bytes of the header, at an even address.
        u16::from_le(unsafe { self.block.add(4).cast::<u16>().read() })
    }

    /// Replaces `removed` bytes by room for `inserted` others, and brings the header up to date.
    ///
    /// # Panics
    /// When it would become longer than 1 GiB (see [`Self::has_room`]); and when the bytes reach
    /// into the header or the end, as with the position of another listpack they may.
    fn splice(&mut self, at: usize, removed: usize, inserted: usize, count: isize) -> Gap<'_> {
        let old_len = self.byte_len();
        // Neither sum overflows: a position has 32 bits, and an entry is not much longer than 32
        // bits can tell.
        assert!(
            at >= HEADER && at + removed < old_len,
            "bytes {at} + {removed} of a listpack of {old_len}"
        );
        let len = old_len - removed + inserted;
        assert!(len <= LEN_MAX, "a listpack of {len} bytes");
        if len > old_len {
            self.resize_block(old_len, len);
        }
        let tail = at + removed;
        // SAFETY: the block has room for the longer of both lengths. From `tail` on it has
        // `old_len - tail` bytes, whose new place ends at `len`.
        unsafe { self.block.add(at + inserted).copy_from(self.block.add(tail), old_len - tail) };
        let old_count = self.header_count();
        // A count beyond 16 bits stays unknown, as in Redis.
        let new_count = if old_count == COUNT_UNKNOWN {
            COUNT_UNKNOWN
        } else {
            let new_count = usize::from(old_count).saturating_add_signed(count);
            u16::try_from(new_count).unwrap_or(COUNT_UNKNOWN)
        };
        // SAFETY: the block begins with the header, which is aligned, and is ours alone.
        unsafe {
            self.block.cast::<u32>().write((len as u32).to_le());
            self.block.add(4).cast::<u16>().write(new_count.to_le());
        }
        if len < old_len {
            self.resize_block(old_len, len);
        }
        // SAFETY: the bytes lie between the header and `len`, in a block that is borrowed
        // exclusively with the listpack. They need not be initialised before the gap is written.
        let rest =
            unsafe { NonNull::slice_from_raw_parts(self.block.add(at).cast(), inserted).as_mut() };
        Gap { rest }
    }

    /// Moves its block, if that lies where much is free.
    pub(crate) fn defragment(&mut self, defragmenter: &mut Defragmenter<'_>) {
        if defragmenter.wants(self.block) {
            *self = self.clone();
        }
    }

    /// Changes the block from what `old_len` bytes take to what `len` bytes take.
    #[inline]
    fn resize_block(&mut self, old_len: usize, len: usize) {
        // SAFETY: the block is ours alone and was made for its old length, which the header said
        // until now. No listpack is empty.
        unsafe { block::resize(&mut self.block, old_len, len) };
    }
}

/// Bytes of a listpack that have yet to be written. Those that never are, since something failed,
/// are zeros afterwards: *whole* holds whatever happens.
struct Gap<'a> {
    rest: &'a mut [MaybeUninit<u8>],
}

impl Gap<'_> {
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

impl Drop for Gap<'_> {
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
        Self::from_trusted(self.as_bytes())
    }
}

impl Drop for Listpack {
    fn drop(&mut self) {
        // SAFETY: *whole*: nobody else has the block, and it was made for the length in its header.
        unsafe { block::free(self.block, self.byte_len()) };
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
        self.as_bytes() == other.as_bytes()
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
impl Iter<'_> {
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
