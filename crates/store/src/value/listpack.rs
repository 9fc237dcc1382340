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

use std::alloc::{Layout, alloc, dealloc, handle_alloc_error, realloc};
use std::mem::MaybeUninit;
use std::ptr::NonNull;

use super::integer;

/// An owned listpack. The pointer is all there is: the block's size follows from its header.
pub struct Listpack {
    block: NonNull<u8>,
}

// SAFETY: it owns its block, which is plain bytes.
unsafe impl Send for Listpack {}
// SAFETY: as above; shared references only read.
unsafe impl Sync for Listpack {}

/// One entry. `Item::from` makes one of a string; whether a string is kept as an integer is the
/// listpack's business, so `Bytes(b"1")` may be pushed and comes back as `Integer(1)`.
#[derive(Clone, Copy, Debug)]
pub enum Item<'a> {
    Integer(i64),
    Bytes(&'a [u8]),
}

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

    /// Copies bytes that are a listpack in its shortest form.
    fn from_trusted(bytes: &[u8]) -> Self {
        let layout = layout(bytes.len());
        // SAFETY: a listpack is never empty, nor is the layout's size zero.
        let Some(block) = NonNull::new(unsafe { alloc(layout) }) else {
            handle_alloc_error(layout);
        };
        // SAFETY: the new block is at least as long as the bytes.
        unsafe { block.copy_from_nonoverlapping(NonNull::from(bytes).cast(), bytes.len()) };
        Self { block }
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
        let gap = self.splice(self.byte_len() - 1, 0, len, count);
        let mut written = 0;
        for value in values {
            written += Encoded::new(value.into()).write(&mut gap[written..]);
        }
        // All of the gap must be written, or garbage would lie in the block.
        assert_eq!(written, len, "the values changed while they were appended");
    }

    /// Puts all entries of another one behind its own.
    pub fn append(&mut self, other: &Self) {
        let entries = &other.as_bytes()[HEADER..other.byte_len() - 1];
        let count = other.len() as isize;
        self.splice(self.byte_len() - 1, 0, entries.len(), count).write_copy_of_slice(entries);
    }

    /// Takes the entries from a position on away into a listpack of their own.
    pub fn split_off(&mut self, position: Position) -> Self {
        let at = position.0 as usize;
        let entries = &self.as_bytes()[at..self.byte_len() - 1];
        let removed = entries.len();
        let count = Iter { bytes: self.as_bytes(), front: at, back: self.byte_len() - 1 }.count();
        let mut tail = Self::new();
        tail.splice(HEADER, 0, removed, count as isize).write_copy_of_slice(entries);
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
        encoded.write(self.splice(at, old_len, encoded.len_with_back(), 0));
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
        // SAFETY: the block is at least as long as its header says, and lives as long as self.
        unsafe { NonNull::slice_from_raw_parts(self.block, self.byte_len()).as_ref() }
    }

    /// Bytes in all, header and end included.
    #[inline(always)]
    pub fn byte_len(&self) -> usize {
        // SAFETY: every block begins with the header.
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
        layout(self.byte_len()).size()
    }

    /// Whether values of so many bytes altogether, in so many entries, may still be added.
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

    /// The same, beginning at a position.
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
        encoded.write(self.splice(at, 0, encoded.len_with_back(), 1));
    }

    fn header_count(&self) -> u16 {
        // SAFETY: bytes 4 and 5 of the header.
        u16::from_le(unsafe { self.block.add(4).cast::<u16>().read() })
    }

    /// Replaces `removed` bytes by room for `inserted` others, all of which the caller must write,
    /// and brings the header up to date.
    ///
    /// # Panics
    /// When it would become longer than 1 GiB (see [`Self::has_room`]).
    fn splice(
        &mut self,
        at: usize,
        removed: usize,
        inserted: usize,
        count: isize,
    ) -> &mut [MaybeUninit<u8>] {
        let old_len = self.byte_len();
        assert!(at + removed < old_len, "bytes {at} + {removed} of a listpack of {old_len}");
        let len = old_len - removed + inserted;
        assert!(len <= LEN_MAX, "a listpack of {len} bytes");
        if len > old_len {
            self.resize_block(old_len, len);
        }
        let tail = at + removed;
        // SAFETY: what follows the removed bytes moves within the block, which is long enough for
        // the longer of both lengths; then the header.
        unsafe {
            let start = self.block.as_ptr();
            start.add(at + inserted).copy_from(start.add(tail), old_len - tail);
            start.cast::<u32>().write((len as u32).to_le());
            let old_count = self.header_count();
            // A count beyond 16 bits stays unknown, as in Redis.
            if old_count != COUNT_UNKNOWN {
                let new_count = usize::from(old_count).saturating_add_signed(count);
                let new_count = u16::try_from(new_count).unwrap_or(COUNT_UNKNOWN);
                start.add(4).cast::<u16>().write(new_count.to_le());
            }
        }
        if len < old_len {
            self.resize_block(old_len, len);
        }
        // SAFETY: inside the block; exclusive by `&mut self`.
        unsafe { NonNull::slice_from_raw_parts(self.block.add(at).cast(), inserted).as_mut() }
    }

    /// Changes the block from what `old_len` bytes take to what `len` bytes take.
    #[inline]
    fn resize_block(&mut self, old_len: usize, len: usize) {
        let (old, new) = (layout(old_len), layout(len));
        if old == new {
            return;
        }
        // SAFETY: the block was made with the layout of its old length; the new size is not zero.
        let Some(block) = NonNull::new(unsafe { realloc(self.block.as_ptr(), old, new.size()) })
        else {
            handle_alloc_error(new);
        };
        self.block = block;
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
        // SAFETY: the block was made with the layout of its length, and nobody else has it.
        unsafe { dealloc(self.block.as_ptr(), layout(self.byte_len())) };
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

impl<'a> Item<'a> {
    /// Bytes of its text.
    pub fn len(self) -> usize {
        match self {
            Item::Integer(value) => integer::text_len(value),
            Item::Bytes(bytes) => bytes.len(),
        }
    }

    pub fn is_empty(self) -> bool {
        self.len() == 0
    }

    /// The integer, if it is one.
    pub fn as_integer(self) -> Option<i64> {
        match self {
            Item::Integer(value) => Some(value),
            Item::Bytes(bytes) => integer::parse(bytes),
        }
    }

    /// Its text, formatted into `room` if need be.
    pub fn text<'b>(self, room: &'b mut integer::Text) -> &'b [u8]
    where
        'a: 'b,
    {
        match self {
            Item::Integer(value) => {
                *room = integer::Text::new(value);
                room.as_bytes()
            }
            Item::Bytes(bytes) => bytes,
        }
    }

    pub fn to_vec(self) -> Vec<u8> {
        match self {
            Item::Integer(value) => integer::Text::new(value).as_bytes().to_vec(),
            Item::Bytes(bytes) => bytes.to_vec(),
        }
    }
}

impl<'a> From<&'a [u8]> for Item<'a> {
    fn from(bytes: &'a [u8]) -> Self {
        Item::Bytes(bytes)
    }
}

impl<'a, const N: usize> From<&'a [u8; N]> for Item<'a> {
    fn from(bytes: &'a [u8; N]) -> Self {
        Item::Bytes(bytes)
    }
}

impl<'a> From<&'a Vec<u8>> for Item<'a> {
    fn from(bytes: &'a Vec<u8>) -> Self {
        Item::Bytes(bytes)
    }
}

impl From<i64> for Item<'_> {
    fn from(value: i64) -> Self {
        Item::Integer(value)
    }
}

impl PartialEq for Item<'_> {
    fn eq(&self, other: &Self) -> bool {
        match (self, other) {
            (Item::Bytes(one), Item::Bytes(other)) => one == other,
            _ => self.as_integer().is_some() && self.as_integer() == other.as_integer(),
        }
    }
}

impl Eq for Item<'_> {}

impl PartialEq<[u8]> for Item<'_> {
    fn eq(&self, other: &[u8]) -> bool {
        *self == Item::Bytes(other)
    }
}

impl PartialEq<&[u8]> for Item<'_> {
    fn eq(&self, other: &&[u8]) -> bool {
        *self == **other
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

/// An entry's bytes before its back length: a head, and a string that follows it.
struct Encoded<'a> {
    head: [u8; 9],
    head_len: usize,
    tail: &'a [u8],
}

impl<'a> Encoded<'a> {
    #[inline]
    fn new(item: Item<'a>) -> Self {
        match item {
            Item::Integer(value) => Self::integer(value),
            Item::Bytes(bytes) => match integer::parse(bytes) {
                Some(value) => Self::integer(value),
                None => Self::string(bytes),
            },
        }
    }

    fn integer(value: i64) -> Self {
        let mut head = [0; 9];
        let le = value.to_le_bytes();
        let head_len = match value {
            0..=127 => {
                head[0] = value as u8;
                1
            }
            -4096..=4095 => {
                head[0] = INTEGER_13 | ((value >> 8) as u8 & 0x1f);
                head[1] = value as u8;
                2
            }
            _ => {
                let (tag, len) = if i16::try_from(value).is_ok() {
                    (INTEGER_16, 2)
                } else if (-1 << 23..1 << 23).contains(&value) {
                    (INTEGER_24, 3)
                } else if i32::try_from(value).is_ok() {
                    (INTEGER_32, 4)
                } else {
                    (INTEGER_64, 8)
                };
                head[0] = tag;
                head[1..=len].copy_from_slice(&le[..len]);
                1 + len
            }
        };
        Self { head, head_len, tail: &[] }
    }

    #[inline]
    fn string(bytes: &'a [u8]) -> Self {
        let mut head = [0; 9];
        let head_len = match bytes.len() {
            len @ 0..64 => {
                head[0] = STRING_6 | len as u8;
                1
            }
            len @ 64..4096 => {
                head[0] = STRING_12 | (len >> 8) as u8;
                head[1] = len as u8;
                2
            }
            len => {
                // Longer ones would not fit anyway: `splice` refuses them.
                let len = u32::try_from(len).unwrap_or(u32::MAX);
                head[0] = STRING_32;
                head[1..5].copy_from_slice(&len.to_le_bytes());
                5
            }
        };
        Self { head, head_len, tail: bytes }
    }

    #[inline]
    fn len(&self) -> usize {
        self.head_len + self.tail.len()
    }

    #[inline]
    fn len_with_back(&self) -> usize {
        self.len() + back_len(self.len())
    }

    /// Writes the entry to the front of `room`; returns its length.
    #[inline]
    fn write(&self, room: &mut [MaybeUninit<u8>]) -> usize {
        let len = self.len();
        room[..self.head_len].write_copy_of_slice(&self.head[..self.head_len]);
        room[self.head_len..len].write_copy_of_slice(self.tail);
        let back_len = back_len(len);
        // Seven bits a byte, the highest first; all but the first are marked.
        for (index, byte) in room[len..len + back_len].iter_mut().enumerate() {
            let group = (len >> (7 * (back_len - 1 - index))) as u8 & 0x7f;
            byte.write(if index == 0 { group } else { group | 0x80 });
        }
        len + back_len
    }
}

/// Whether a listpack from elsewhere can be taken as it is.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Form {
    Shortest,
    Longer,
}

/// Checks a listpack thoroughly; `None` when it is none.
fn check(bytes: &[u8]) -> Option<Form> {
    let header = bytes.first_chunk::<HEADER>()?;
    let total = u32::from_le_bytes([header[0], header[1], header[2], header[3]]);
    let count = u16::from_le_bytes([header[4], header[5]]);
    if total as usize != bytes.len() || bytes.len() < EMPTY.len() || bytes.len() > LEN_MAX {
        return None;
    }
    let (&end, entries) = bytes[HEADER..].split_last()?;
    if end != END {
        return None;
    }
    let (mut form, mut found, mut at) = (Form::Shortest, 0, 0);
    while at < entries.len() {
        let rest = &entries[at..];
        let (head_len, payload_len) = checked_shape(rest)?;
        let len = head_len.checked_add(payload_len)?;
        let whole = rest.get(..len.checked_add(back_len(len))?)?;
        let encoded = Encoded::new(decode(whole, 0).0);
        // Only the canonical back length can be walked backwards.
        if back_entry_len(whole, whole.len()) != whole.len() {
            return None;
        }
        if encoded.len() != len {
            form = Form::Longer;
        }
        found += 1;
        at += whole.len();
    }
    if count == COUNT_UNKNOWN {
        // Redis writes the count again as soon as it fits.
        return Some(if found < usize::from(COUNT_UNKNOWN) { Form::Longer } else { form });
    }
    (usize::from(count) == found).then_some(form)
}

/// Length of the head and of the string or integer behind it; `None` when the head is cut off or is
/// none. The payload may still be cut off.
fn checked_shape(bytes: &[u8]) -> Option<(usize, usize)> {
    Some(match *bytes.first()? {
        0x00..=0x7f => (1, 0),
        head @ 0x80..=0xbf => (1, usize::from(head & 0x3f)),
        0xc0..=0xdf => (2, 0),
        head @ 0xe0..=0xef => (2, usize::from(head & 0x0f) << 8 | usize::from(*bytes.get(1)?)),
        STRING_32 => {
            let len = bytes.get(1..5)?;
            (5, u32::from_le_bytes(len.try_into().ok()?) as usize)
        }
        INTEGER_16 => (3, 0),
        INTEGER_24 => (4, 0),
        INTEGER_32 => (5, 0),
        INTEGER_64 => (9, 0),
        _ => return None,
    })
}

/// The entry that begins at `at`, and its length without the back length.
#[inline(always)]
fn decode(bytes: &[u8], at: usize) -> (Item<'_>, usize) {
    let head = bytes[at];
    let string =
        |start: usize, len: usize| (Item::Bytes(&bytes[at + start..at + start + len]), start + len);
    match head {
        0x00..=0x7f => (Item::Integer(i64::from(head)), 1),
        0x80..=0xbf => string(1, usize::from(head & 0x3f)),
        0xc0..=0xdf => {
            let raw = u16::from(head & 0x1f) << 8 | u16::from(bytes[at + 1]);
            (Item::Integer(i64::from((raw << 3) as i16 >> 3)), 2)
        }
        0xe0..=0xef => string(2, usize::from(head & 0x0f) << 8 | usize::from(bytes[at + 1])),
        STRING_32 => string(5, wide(bytes, at + 1, 4) as usize),
        INTEGER_16 => (Item::Integer(signed(bytes, at + 1, 2)), 3),
        INTEGER_24 => (Item::Integer(signed(bytes, at + 1, 3)), 4),
        INTEGER_32 => (Item::Integer(signed(bytes, at + 1, 4)), 5),
        _ => (Item::Integer(signed(bytes, at + 1, 8)), 9),
    }
}

/// Length of the entry that begins at `at`, the back length included.
#[inline(always)]
fn entry_len(bytes: &[u8], at: usize) -> usize {
    let head = bytes[at];
    // The two that nearly all entries are.
    if head < 0x80 {
        return 2;
    }
    if head < 0xc0 {
        return usize::from(head & 0x3f) + 2;
    }
    let len = match head {
        0xc0..=0xdf => 2,
        0xe0..=0xef => 2 + (usize::from(head & 0x0f) << 8 | usize::from(bytes[at + 1])),
        STRING_32 => 5 + wide(bytes, at + 1, 4) as usize,
        INTEGER_16 => 3,
        INTEGER_24 => 4,
        INTEGER_32 => 5,
        _ => 9,
    };
    len + back_len(len)
}

/// Length of the entry that ends before `end`, the back length included.
#[inline(always)]
fn back_entry_len(bytes: &[u8], end: usize) -> usize {
    let (mut len, mut shift, mut at) = (0, 0, end);
    // At most five bytes have been written.
    while shift < 35 && at > 0 {
        at -= 1;
        len |= usize::from(bytes[at] & 0x7f) << shift;
        if bytes[at] & 0x80 == 0 {
            break;
        }
        shift += 7;
    }
    len + back_len(len)
}

/// How many bytes tell a length backwards. The limits are Redis's, one less than they might be.
#[inline(always)]
const fn back_len(len: usize) -> usize {
    match len {
        0..=127 => 1,
        128..16_383 => 2,
        16_383..2_097_151 => 3,
        2_097_151..268_435_455 => 4,
        _ => 5,
    }
}

#[inline(always)]
fn wide(bytes: &[u8], at: usize, len: usize) -> u64 {
    let mut le = [0; 8];
    le[..len].copy_from_slice(&bytes[at..at + len]);
    u64::from_le_bytes(le)
}

#[inline(always)]
fn signed(bytes: &[u8], at: usize, len: usize) -> i64 {
    let unused = 64 - 8 * len as u32;
    (wide(bytes, at, len) << unused) as i64 >> unused
}

/// The block for so many bytes: as large as the allocator would make it anyway, four sizes to each
/// power of two, so that most changes need no other block.
#[inline(always)]
fn layout(len: usize) -> Layout {
    let step = ((len - 1).max(32).ilog2() - 2).min(16);
    // Cannot fail: lengths are at most LEN_MAX.
    Layout::from_size_align(len.next_multiple_of(1 << step), 8)
        .expect("a listpack's size is in range")
}

const HEADER: usize = 6;
const END: u8 = 0xff;
const EMPTY: [u8; HEADER + 1] = [HEADER as u8 + 1, 0, 0, 0, 0, 0, END];
/// The entry count that says nothing.
const COUNT_UNKNOWN: u16 = u16::MAX;
/// No listpack becomes longer; the limit is Redis's.
const LEN_MAX: usize = 1 << 30;
/// What an entry takes at most beside its string.
const OVERHEAD_MAX: usize = 10;

const STRING_6: u8 = 0x80;
const INTEGER_13: u8 = 0xc0;
const STRING_12: u8 = 0xe0;
const STRING_32: u8 = 0xf0;
const INTEGER_16: u8 = 0xf1;
const INTEGER_24: u8 = 0xf2;
const INTEGER_32: u8 = 0xf3;
const INTEGER_64: u8 = 0xf4;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn contents(pack: &Listpack) -> Vec<Vec<u8>> {
        pack.iter().map(Item::to_vec).collect()
    }

    /// Everything that must hold of any listpack, whose entries are these.
    fn verify(pack: &Listpack, expected: &[Vec<u8>]) {
        assert_eq!(contents(pack), expected);
        let mut backwards: Vec<_> = pack.iter().rev().map(Item::to_vec).collect();
        backwards.reverse();
        assert_eq!(backwards, expected);
        assert_eq!(pack.len(), expected.len());
        assert_eq!(pack.is_empty(), expected.is_empty());
        assert!(check(pack.as_bytes()) == Some(Form::Shortest));
        assert!(Listpack::from_bytes(pack.as_bytes()).is_some_and(|copy| copy == *pack));
        for (index, value) in expected.iter().enumerate() {
            assert_eq!(pack.get(index), Some(Item::from(value)));
        }
        assert_eq!(pack.get(expected.len()), None);
    }

    // Bytes as valkey-server 9.1.2 dumps them for RPUSH of these values.
    #[test]
    fn bytes_are_those_of_redis() {
        let mut pack = Listpack::new();
        for value in [&b"a"[..], b"1", b"-1", b"4095", b"-4096", b"4096", b"8388607", b"-8388609"] {
            pack.push_back(value);
        }
        let expected = [
            &b"\x24\0\0\0\x08\0\x81a\x02\x01\x01\xdf\xff\x02\xcf\xff\x02\xd0\0\x02"[..],
            b"\xf1\0\x10\x03\xf2\xff\xff\x7f\x04\xf3\xff\xff\x7f\xff\x05\xff",
        ]
        .concat();
        assert_eq!(pack.as_bytes(), expected);
    }

    #[test]
    fn lengths_at_every_border_read_back() {
        let lens = [0, 1, 63, 64, 125, 126, 127, 128, 4095, 4096, 16_378, 16_379, 16_380, 70_000];
        let expected: Vec<Vec<u8>> = lens.iter().map(|&len| vec![b'x'; len]).collect();
        let mut pack = Listpack::new();
        pack.append_many(expected.iter());
        verify(&pack, &expected);
        let mut expected = Vec::new();
        let mut pack = Listpack::new();
        for power in 0..64 {
            for value in [
                (1i64 << power).wrapping_sub(1),
                1 << power,
                -(1i64 << (power % 63)),
                -(1i64 << (power % 63)) - 1,
            ] {
                pack.push_back(value);
                expected.push(value.to_string().into_bytes());
            }
        }
        verify(&pack, &expected);
    }

    #[test]
    fn foreign_bytes_are_checked_and_shortened() {
        let mut pack = Listpack::new();
        pack.append_many([&b"abc"[..], b"12345", &[b'x'; 200], b"-7"].into_iter());
        let bytes = pack.as_bytes().to_vec();
        for cut in 0..bytes.len() {
            assert!(Listpack::from_bytes(&bytes[..cut]).is_none());
        }
        // The text "12" as a string, and a small integer in 16 bits.
        let long = b"\x0f\0\0\0\x02\0\x8212\x03\xf1\x05\0\x03\xff";
        let pack = Listpack::from_bytes(long).unwrap();
        verify(&pack, &[b"12".to_vec(), b"5".to_vec()]);
        assert!(pack.byte_len() < long.len());
        // A count that says nothing is counted.
        let mut uncounted = bytes.clone();
        uncounted[4..6].copy_from_slice(&[0xff; 2]);
        assert_eq!(Listpack::from_bytes(&uncounted).unwrap().as_bytes(), bytes);
    }

    #[test]
    fn more_entries_than_the_header_can_count() {
        let many = 65_540;
        let mut pack = Listpack::new();
        pack.append_many((0..many).map(|index: i64| Item::Integer(index % 100)));
        assert_eq!(pack.len(), 65_540);
        pack.push_back(b"end");
        assert_eq!(pack.len(), 65_541);
        assert_eq!(pack.get(65_540), Some(Item::Bytes(b"end")));
        assert_eq!(pack.get(65_541), None);
        pack.remove_range(0, 65_540);
        assert_eq!(pack.len(), 1);
        assert_eq!(Listpack::from_bytes(pack.as_bytes()).unwrap().header_count(), 1);
    }

    #[test]
    fn items_equal_their_texts() {
        assert_eq!(Item::Integer(12), b"12"[..]);
        assert_ne!(Item::Integer(12), b"012"[..]);
        assert_ne!(Item::Integer(0), b"x"[..]);
        assert_eq!(Item::Bytes(b"x"), b"x"[..]);
        assert_ne!(Item::Bytes(b"x"), Item::Bytes(b"y"));
    }

    #[derive(Clone, Debug)]
    enum Change {
        PushBack(Vec<u8>),
        PushFront(Vec<u8>),
        Append(Vec<Vec<u8>>),
        Before(usize, Vec<u8>),
        After(usize, Vec<u8>),
        Replace(usize, Vec<u8>),
        Remove(usize),
        RemoveRange(usize, usize),
        Split(usize),
    }

    fn value() -> impl Strategy<Value = Vec<u8>> {
        prop_oneof![
            any::<i64>().prop_map(|value| value.to_string().into_bytes()),
            (-5000i64..5000).prop_map(|value| value.to_string().into_bytes()),
            prop::collection::vec(any::<u8>(), 0..80),
            (100usize..20_000).prop_map(|len| vec![b'y'; len]),
            "[0-9a-]{1,3}".prop_map(String::into_bytes),
        ]
    }

    fn change() -> impl Strategy<Value = Change> {
        let index = any::<usize>;
        prop_oneof![
            value().prop_map(Change::PushBack),
            value().prop_map(Change::PushFront),
            prop::collection::vec(value(), 0..5).prop_map(Change::Append),
            (index(), value()).prop_map(|(at, value)| Change::Before(at, value)),
            (index(), value()).prop_map(|(at, value)| Change::After(at, value)),
            (index(), value()).prop_map(|(at, value)| Change::Replace(at, value)),
            index().prop_map(Change::Remove),
            (index(), 0usize..4).prop_map(|(at, count)| Change::RemoveRange(at, count)),
            index().prop_map(Change::Split),
        ]
    }

    fn apply(pack: &mut Listpack, model: &mut Vec<Vec<u8>>, change: Change) {
        let place = |at: usize, model: &[Vec<u8>]| at % model.len().max(1);
        match change {
            Change::PushBack(value) => {
                pack.push_back(&value);
                model.push(value);
            }
            Change::PushFront(value) => {
                pack.push_front(&value);
                model.insert(0, value);
            }
            Change::Append(values) => {
                pack.append_many(values.iter());
                model.extend(values);
            }
            Change::Before(at, value) => {
                let at = place(at, model);
                if let Some(position) = pack.position(at) {
                    let new = pack.insert_before(position, &value);
                    assert_eq!(pack.item(new), Item::from(&value));
                    model.insert(at, value);
                }
            }
            Change::After(at, value) => {
                let at = place(at, model);
                if let Some(position) = pack.position(at) {
                    let new = pack.insert_after(position, &value);
                    assert_eq!(pack.item(new), Item::from(&value));
                    assert_eq!(pack.previous(new), Some(position));
                    model.insert(at + 1, value);
                }
            }
            Change::Replace(at, value) => {
                let at = place(at, model);
                if let Some(position) = pack.position(at) {
                    pack.replace(position, &value);
                    model[at] = value;
                }
            }
            Change::Remove(at) => {
                let at = place(at, model);
                if let Some(position) = pack.position(at) {
                    let next = pack.remove(position);
                    model.remove(at);
                    assert_eq!(next.map(|next| pack.item(next).to_vec()), model.get(at).cloned());
                }
            }
            Change::RemoveRange(at, count) => {
                let at = place(at, model);
                pack.remove_range(at, count);
                let end = (at + count).min(model.len());
                model.drain(at.min(end)..end);
            }
            Change::Split(at) => {
                let at = place(at, model);
                if let Some(position) = pack.position(at) {
                    let tail = pack.split_off(position);
                    assert_eq!(contents(pack), model[..at]);
                    assert_eq!(contents(&tail), model[at..]);
                    pack.append(&tail);
                }
            }
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig {
            cases: if cfg!(miri) { 4 } else { 256 },
            failure_persistence: None,
            ..ProptestConfig::default()
        })]

        #[test]
        fn behaves_like_a_vector(changes in prop::collection::vec(change(), 1..40), step in 1usize..4) {
            let mut pack = Listpack::new();
            let mut model = Vec::new();
            for change in changes {
                let before = pack.clone();
                let contents_before = model.clone();
                apply(&mut pack, &mut model, change);
                assert_eq!(contents(&before), contents_before);
                verify(&pack, &model);
            }
            for value in &model {
                let found = pack.find(value, step);
                let index = model.iter().step_by(step).position(|other| other == value);
                prop_assert_eq!(found, index.and_then(|index| pack.position(index * step)));
            }
            prop_assert_eq!(pack.find(b"not there", 1), None);
        }

        #[test]
        fn damaged_bytes_never_harm(
            values in prop::collection::vec(value(), 0..6),
            damage in prop::collection::vec((any::<usize>(), any::<u8>()), 1..4),
        ) {
            let mut pack = Listpack::new();
            pack.append_many(values.iter());
            let mut bytes = pack.as_bytes().to_vec();
            for (at, byte) in damage {
                let at = at % bytes.len();
                bytes[at] = byte;
            }
            if let Some(pack) = Listpack::from_bytes(&bytes) {
                let model = contents(&pack);
                verify(&pack, &model);
            }
        }
    }
}
