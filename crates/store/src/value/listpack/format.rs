//! The bytes of a listpack's entries: writes, reads, measures and checks them.

use std::mem::MaybeUninit;

use super::super::integer;
use super::Item;

/// An entry's bytes without its back length: a head, and the string behind it.
pub(in crate::value) struct Encoded<'a> {
    pub(in crate::value) head: [u8; 9],
    pub(in crate::value) head_len: usize,
    pub(in crate::value) tail: &'a [u8],
}

impl<'a> Encoded<'a> {
    #[inline]
    pub(in crate::value) fn new(item: Item<'a>) -> Self {
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
                // Longer strings never fit: `splice` refuses them.
                let len = u32::try_from(len).unwrap_or(u32::MAX);
                head[0] = STRING_32;
                head[1..5].copy_from_slice(&len.to_le_bytes());
                5
            }
        };
        Self { head, head_len, tail: bytes }
    }

    #[inline]
    pub(in crate::value) fn len(&self) -> usize {
        self.head_len + self.tail.len()
    }

    #[inline]
    pub(in crate::value) fn len_with_back(&self) -> usize {
        self.len() + back_len(self.len())
    }

    /// Writes the entry over `room`, which is as long as the entry.
    #[inline]
    pub(in crate::value) fn write_over(&self, room: &mut [u8]) {
        let len = self.len();
        room[..self.head_len].copy_from_slice(&self.head[..self.head_len]);
        room[self.head_len..len].copy_from_slice(self.tail);
        let (bytes, count) = back_bytes(len);
        room[len..].copy_from_slice(&bytes[..count]);
    }

    /// Writes the entry to the front of `room`. Returns its length.
    #[inline]
    pub(super) fn write(&self, room: &mut [MaybeUninit<u8>]) -> usize {
        let len = self.len();
        room[..self.head_len].write_copy_of_slice(&self.head[..self.head_len]);
        room[self.head_len..len].write_copy_of_slice(self.tail);
        let (bytes, count) = back_bytes(len);
        room[len..len + count].write_copy_of_slice(&bytes[..count]);
        len + count
    }
}

/// The bytes of a length that is read backwards, and how many they are.
#[inline]
fn back_bytes(len: usize) -> ([u8; 5], usize) {
    let mut bytes = [0; 5];
    let count = back_len(len);
    // Each byte has seven bits, the highest ones first. All bytes but the first are marked.
    for (index, byte) in bytes[..count].iter_mut().enumerate() {
        let group = (len >> (7 * (count - 1 - index))) as u8 & 0x7f;
        *byte = if index == 0 { group } else { group | 0x80 };
    }
    (bytes, count)
}

/// Whether a foreign listpack can be used as it is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum ForeignForm<'a> {
    /// All entries are in their shortest form.
    Shortest,
    /// These are the entries. Some are not in their shortest form.
    Longer(&'a [u8]),
}

/// Appends a listpack of these entries to `output`, as Redis keeps it.
pub fn write(entries: &[u8], count: usize, output: &mut Vec<u8>) {
    output.reserve(entries.len() + OVERHEAD);
    let mut writer = ListpackWriter::begin(output);
    writer.output.extend_from_slice(entries);
    writer.count = count;
    writer.end();
}

/// Writes a listpack into a buffer, and counts its entries.
pub(in crate::value) struct ListpackWriter<'a> {
    output: &'a mut Vec<u8>,
    /// Where the listpack begins.
    start: usize,
    count: usize,
}

impl<'a> ListpackWriter<'a> {
    pub(in crate::value) fn begin(output: &'a mut Vec<u8>) -> Self {
        let start = output.len();
        output.extend_from_slice(&[0; HEADER]);
        Self { output, start, count: 0 }
    }

    /// Appends an entry with this head and payload.
    #[inline]
    pub(in crate::value) fn push_encoded(&mut self, entry: &[u8]) {
        self.output.extend_from_slice(entry);
        let (bytes, count) = back_bytes(entry.len());
        self.output.extend_from_slice(&bytes[..count]);
        self.count += 1;
    }

    #[inline]
    pub(in crate::value) fn push_integer(&mut self, value: i64) {
        let encoded = Encoded::integer(value);
        self.push_encoded(&encoded.head[..encoded.head_len]);
    }

    pub(in crate::value) fn end(self) {
        self.output.push(END);
        let bytes = &mut self.output[self.start..];
        let len = bytes.len() as u32;
        bytes[..4].copy_from_slice(&len.to_le_bytes());
        let count = u16::try_from(self.count).unwrap_or(COUNT_UNKNOWN);
        bytes[4..HEADER].copy_from_slice(&count.to_le_bytes());
    }
}

/// Checks a listpack thoroughly. `None`: the bytes are not a listpack.
pub(super) fn check(bytes: &[u8]) -> Option<ForeignForm<'_>> {
    let header = bytes.first_chunk::<HEADER>()?;
    let total = u32::from_le_bytes([header[0], header[1], header[2], header[3]]);
    let count = u16::from_le_bytes([header[4], header[5]]);
    if total as usize != bytes.len() || bytes.len() > LEN_MAX {
        return None;
    }
    let (&end, entries) = bytes[HEADER..].split_last()?;
    if end != END {
        return None;
    }
    let (mut form, mut found, mut at) = (ForeignForm::Shortest, 0, 0);
    while at < entries.len() {
        let rest = &entries[at..];
        if let Some(len) = short_entry_len(rest) {
            found += 1;
            at += len;
            continue;
        }
        let (head_len, payload_len) = checked_shape(rest)?;
        let len = head_len.checked_add(payload_len)?;
        let whole = rest.get(..len.checked_add(back_len(len))?)?;
        let encoded = Encoded::new(decode(whole, 0).0);
        // Only the canonical back length can be walked backwards: with a mark in its first byte,
        // reading would continue in the previous entry.
        let (back, back_count) = back_bytes(len);
        if whole[len..] != back[..back_count] {
            return None;
        }
        if encoded.len() != len {
            form = ForeignForm::Longer(entries);
        }
        found += 1;
        at += whole.len();
    }
    if count == COUNT_UNKNOWN {
        // Redis writes the count again as soon as it fits.
        let is_known = found < usize::from(COUNT_UNKNOWN);
        return Some(if is_known { ForeignForm::Longer(entries) } else { form });
    }
    (usize::from(count) == found).then_some(form)
}

/// The length of the first entry, with the back length, if that is right and the entry is a small
/// integer or a short text that no integer could stand for. Nearly all entries are.
#[inline(always)]
fn short_entry_len(bytes: &[u8]) -> Option<usize> {
    match *bytes {
        [0..=0x7f, 1, ..] => Some(2),
        [head @ 0x80..=0xbf, ref rest @ ..] => {
            let (text, behind) = rest.split_at_checked(usize::from(head & 0x3f))?;
            let is_right = behind.first() == Some(&(text.len() as u8 + 1));
            (is_right && integer::parse(text).is_none()).then_some(text.len() + 2)
        }
        _ => None,
    }
}

/// The lengths of the head and of the payload. `None`: the head is incomplete or invalid. The
/// payload may still be incomplete.
pub(super) fn checked_shape(bytes: &[u8]) -> Option<(usize, usize)> {
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

/// The entry at `at`, and its length without the back length.
#[inline(always)]
pub(in crate::value) fn decode(bytes: &[u8], at: usize) -> (Item<'_>, usize) {
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

/// The length of the entry at `at`, with the back length.
#[inline(always)]
pub(in crate::value) fn entry_len(bytes: &[u8], at: usize) -> usize {
    let head = bytes[at];
    // Nearly all entries are one of these two.
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

/// The length of the entry that ends before `end`, with the back length.
#[inline(always)]
pub(in crate::value) fn back_entry_len(bytes: &[u8], end: usize) -> usize {
    let (mut len, mut shift, mut at) = (0, 0, end);
    // A back length has at most five bytes.
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

/// How many bytes a back length has. The limits are Redis's, one less than possible.
#[inline(always)]
pub(super) const fn back_len(len: usize) -> usize {
    match len {
        0..=127 => 1,
        128..16_383 => 2,
        16_383..2_097_151 => 3,
        2_097_151..268_435_455 => 4,
        _ => 5,
    }
}

#[inline(always)]
pub(super) fn wide(bytes: &[u8], at: usize, len: usize) -> u64 {
    let mut le = [0; 8];
    le[..len].copy_from_slice(&bytes[at..at + len]);
    u64::from_le_bytes(le)
}

#[inline(always)]
pub(super) fn signed(bytes: &[u8], at: usize, len: usize) -> i64 {
    let unused = 64 - 8 * len as u32;
    (wide(bytes, at, len) << unused) as i64 >> unused
}

/// Bytes before the entries.
pub(super) const HEADER: usize = 6;
pub(super) const END: u8 = 0xff;
/// Bytes beside the entries.
pub const OVERHEAD: usize = HEADER + 1;
/// The entry count that means "unknown".
pub(super) const COUNT_UNKNOWN: u16 = u16::MAX;
/// The longest listpack, as in Redis.
pub(super) const LEN_MAX: usize = 1 << 30;
/// The most bytes that an entry takes beside its string.
pub(in crate::value) const OVERHEAD_MAX: usize = 10;

pub(super) const STRING_6: u8 = 0x80;
pub(super) const INTEGER_13: u8 = 0xc0;
pub(super) const STRING_12: u8 = 0xe0;
pub(super) const STRING_32: u8 = 0xf0;
pub(super) const INTEGER_16: u8 = 0xf1;
pub(super) const INTEGER_24: u8 = 0xf2;
pub(super) const INTEGER_32: u8 = 0xf3;
pub(super) const INTEGER_64: u8 = 0xf4;
