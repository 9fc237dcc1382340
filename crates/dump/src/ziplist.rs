//! The packed forms of Redis before version 7, which servers still read: ziplist and zipmap.

use bobbin_store::value::{Item, Listpack};

use crate::input::Input;

/// Reads a ziplist's entries; `None` when it is none.
///
/// ```text
/// u32 bytes in all | u32 offset of the last entry | u16 entries (65535: count them) | entry ... | 0xff
/// entry: length of the one before, u8 or 0xfe and u32 | head | string or integer
/// ```
pub(crate) fn read_ziplist(bytes: &[u8]) -> Option<Listpack> {
    let mut input = Input(bytes);
    let total = u32::from_le_bytes(input.array()?) as usize;
    let last_at = u32::from_le_bytes(input.array()?) as usize;
    let count = u16::from_le_bytes(input.array()?);
    if total != bytes.len() {
        return None;
    }
    let mut pack = Listpack::new();
    let (mut found, mut before, mut last) = (0usize, 0, HEADER);
    loop {
        let at = bytes.len() - input.0.len();
        let length = match input.byte()? {
            END => break,
            LONG => u32::from_le_bytes(input.array()?) as usize,
            length => usize::from(length),
        };
        if length != before {
            return None;
        }
        let item = read_entry(&mut input)?;
        if !pack.has_room(1, item.len()) {
            return None;
        }
        pack.push_back(item);
        (before, last) = (bytes.len() - input.0.len() - at, at);
        found += 1;
    }
    let counted = count == u16::MAX || usize::from(count) == found;
    (input.0.is_empty() && counted && last_at == last).then_some(pack)
}

fn read_entry<'a>(input: &mut Input<'a>) -> Option<Item<'a>> {
    let head = input.byte()?;
    Some(match head {
        0x00..=0x3f => Item::Bytes(input.bytes(usize::from(head))?),
        0x40..=0x7f => {
            let len = usize::from(head & 0x3f) << 8 | usize::from(input.byte()?);
            Item::Bytes(input.bytes(len)?)
        }
        0x80 => {
            let len = u32::from_be_bytes(input.array()?);
            Item::Bytes(input.bytes(len as usize)?)
        }
        0xc0 => Item::Integer(i16::from_le_bytes(input.array()?).into()),
        0xd0 => Item::Integer(i32::from_le_bytes(input.array()?).into()),
        0xe0 => Item::Integer(i64::from_le_bytes(input.array()?)),
        0xf0 => {
            let [a, b, c] = input.array()?;
            Item::Integer(i64::from(i32::from_le_bytes([0, a, b, c]) >> 8))
        }
        0xfe => Item::Integer(i8::from_le_bytes(input.array()?).into()),
        0xf1..=0xfd => Item::Integer(i64::from(head & 0x0f) - 1),
        _ => return None,
    })
}

/// Reads a zipmap's fields and values; `None` when it is none.
///
/// ```text
/// u8 pairs (254 or more: count them) | pair ... | 0xff
/// pair: length | field | length | u8 unused bytes behind the value | value | these
/// length: u8, or 0xfe and u32
/// ```
pub(crate) fn read_zipmap(bytes: &[u8]) -> Option<Listpack> {
    let mut input = Input(bytes);
    let count = input.byte()?;
    let mut pack = Listpack::new();
    let mut found = 0usize;
    while *input.0.first()? != END {
        let len = read_zipmap_len(&mut input)?;
        let field = input.bytes(len)?;
        let len = read_zipmap_len(&mut input)?;
        let unused = input.byte()?;
        let value = input.bytes(len)?;
        input.bytes(usize::from(unused))?;
        if !pack.has_room(2, field.len() + value.len()) {
            return None;
        }
        pack.append_many([field, value].into_iter());
        found += 1;
    }
    let counted = count >= LONG || usize::from(count) == found;
    (input.0.len() == 1 && counted).then_some(pack)
}

fn read_zipmap_len(input: &mut Input<'_>) -> Option<usize> {
    match input.byte()? {
        END => None,
        LONG => Some(u32::from_le_bytes(input.array()?) as usize),
        len => Some(usize::from(len)),
    }
}

const HEADER: usize = 10;
const LONG: u8 = 0xfe;
const END: u8 = 0xff;

#[cfg(test)]
mod tests {
    use super::*;

    fn entries(pack: Option<Listpack>) -> Option<Vec<Vec<u8>>> {
        pack.map(|pack| pack.iter().map(Item::to_vec).collect())
    }

    #[test]
    fn ziplists() {
        let bytes =
            b"\x1b\0\0\0\x17\0\0\0\x05\0\0\x02ab\x04\xf3\x02\xfe\xff\x03\xc0\0\x01\x04\xf0\xff\xff";
        let mut bytes = bytes.to_vec();
        bytes.extend_from_slice(b"\xff\xff");
        bytes[0] = bytes.len() as u8;
        let expected = ["ab", "2", "-1", "256", "-1"].map(|text| text.as_bytes().to_vec());
        assert_eq!(entries(read_ziplist(&bytes)), Some(expected.to_vec()));
        for cut in 0..bytes.len() {
            assert!(read_ziplist(&bytes[..cut]).is_none());
        }
        for at in [0, 4, 8, 10, 14] {
            let mut damaged = bytes.clone();
            damaged[at] ^= 1;
            assert!(read_ziplist(&damaged).is_none(), "byte {at}");
        }
    }

    #[test]
    fn zipmaps() {
        let bytes = b"\x02\x03foo\x03\0bar\x05hello\x05\x02world..\xff";
        let expected = ["foo", "bar", "hello", "world"].map(|text| text.as_bytes().to_vec());
        assert_eq!(entries(read_zipmap(bytes)), Some(expected.to_vec()));
        for cut in 0..bytes.len() {
            assert!(read_zipmap(&bytes[..cut]).is_none());
        }
    }
}
