//! Ziplists: what Redis kept small collections in before version 7. They are only read, and become
//! listpacks.
//!
//! ```text
//! u32 bytes in all | u32 offset of the last entry | u16 entries (65535: count them)
//! | entry ... | 0xff
//! entry: length of the one before (1 byte, or 0xfe and 4 bytes) | head | payload
//! ```
//! Heads: `00xxxxxx`, `01xxxxxx` and a byte, `10000000` and four bytes (most significant first) for
//! strings of these lengths; `11000000`, `11010000`, `11100000`, `11110000`, `11111110` for
//! integers of 16, 32, 64, 24 and 8 bits; `1111xxxx` for the integers from 0 to 12, one more than
//! which the four bits are.

use bobbin_store::value::{Item, Listpack};

use crate::input::Input;

/// Makes a listpack of a ziplist; `None` if it is damaged.
pub(crate) fn read(bytes: &[u8]) -> Option<Listpack> {
    let mut input = Input(bytes);
    let total = u32::from_le_bytes(input.array()?);
    let last = u32::from_le_bytes(input.array()?) as usize;
    let count = u16::from_le_bytes(input.array()?);
    if total as usize != bytes.len() {
        return None;
    }
    let (mut pack, mut found, mut previous_len, mut last_at) = (Listpack::new(), 0usize, 0, HEADER);
    loop {
        let at = bytes.len() - input.0.len();
        if input.0 == [END] {
            break;
        }
        let said_len = match input.byte()? {
            LONG => u32::from_le_bytes(input.array()?) as usize,
            END => return None,
            len => usize::from(len),
        };
        if said_len != previous_len {
            return None;
        }
        let item = read_item(&mut input)?;
        if !pack.has_room(1, item.len()) {
            return None;
        }
        pack.push_back(item);
        last_at = at;
        previous_len = bytes.len() - input.0.len() - at;
        found += 1;
    }
    let counted = count == u16::MAX || usize::from(count) == found;
    (counted && last == last_at).then_some(pack)
}

fn read_item<'a>(input: &mut Input<'a>) -> Option<Item<'a>> {
    let head = input.byte()?;
    let len = match head >> 6 {
        0 => usize::from(head),
        1 => usize::from(head & 0x3f) << 8 | usize::from(input.byte()?),
        2 if head == 0x80 => u32::from_be_bytes(input.array()?) as usize,
        3 => return read_integer(head, input).map(Item::Integer),
        _ => return None,
    };
    input.bytes(len).map(Item::Bytes)
}

fn read_integer(head: u8, input: &mut Input<'_>) -> Option<i64> {
    Some(match head {
        0xc0 => i16::from_le_bytes(input.array()?).into(),
        0xd0 => i32::from_le_bytes(input.array()?).into(),
        0xe0 => i64::from_le_bytes(input.array()?),
        0xf0 => {
            let [low, middle, high] = input.array()?;
            i64::from(i32::from_le_bytes([0, low, middle, high]) >> 8)
        }
        0xfe => i8::from_le_bytes(input.array()?).into(),
        0xf1..=0xfd => i64::from(head & 0x0f) - 1,
        _ => return None,
    })
}

const HEADER: usize = 10;
const END: u8 = 0xff;
const LONG: u8 = 0xfe;

#[cfg(test)]
mod tests {
    use super::*;

    fn ziplist(entries: &[&[u8]]) -> Vec<u8> {
        let mut bytes = vec![0; HEADER];
        let (mut previous_len, mut last) = (0, HEADER);
        for entry in entries {
            last = bytes.len();
            bytes.push(previous_len as u8);
            bytes.extend_from_slice(entry);
            previous_len = bytes.len() - last;
        }
        bytes.push(END);
        let total = bytes.len() as u32;
        bytes[..4].copy_from_slice(&total.to_le_bytes());
        bytes[4..8].copy_from_slice(&(last as u32).to_le_bytes());
        bytes[8..10].copy_from_slice(&(entries.len() as u16).to_le_bytes());
        bytes
    }

    #[test]
    fn every_head_reads() {
        let bytes = ziplist(&[
            b"\x02ab",
            b"\x40\x01z",
            b"\x80\0\0\0\x01y",
            b"\xf1",
            b"\xfd",
            b"\xfe\xff",
            b"\xc0\x00\x80",
            b"\xf0\xff\xff\xff",
            b"\xd0\x01\0\0\0",
            b"\xe0\x01\0\0\0\0\0\0\x80",
        ]);
        let texts: Vec<_> = read(&bytes)
            .unwrap()
            .iter()
            .map(|item| String::from_utf8(item.to_vec()).unwrap())
            .collect();
        let lowest = (i64::MIN + 1).to_string();
        assert_eq!(texts, ["ab", "z", "y", "0", "12", "-1", "-32768", "-1", "1", &lowest]);
        for end in 0..bytes.len() {
            assert!(read(&bytes[..end]).is_none());
        }
        for at in 0..HEADER {
            let mut damaged = bytes.clone();
            damaged[at] ^= 1;
            assert!(read(&damaged).is_none());
        }
    }
}
