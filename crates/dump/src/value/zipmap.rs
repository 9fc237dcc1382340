//! Zipmaps: what Redis kept small hashes in before version 2.6. They are only read, and become
//! listpacks.

use bobbin_store::value::Listpack;

use crate::input::Input;

/// Reads a zipmap's fields and values; `None` when it is none.
///
/// ```text
/// u8 pairs (254 or more: count them) | pair ... | 0xff
/// pair: length | field | length | u8 unused bytes behind the value | value | these
/// length: u8, or 0xfe and u32
/// ```
pub(crate) fn read(bytes: &[u8]) -> Option<Listpack> {
    let mut input = Input(bytes);
    let count = input.byte()?;
    let mut pack = Listpack::new();
    let mut found = 0usize;
    while *input.0.first()? != END {
        let len = read_len(&mut input)?;
        let field = input.bytes(len)?;
        let len = read_len(&mut input)?;
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

fn read_len(input: &mut Input<'_>) -> Option<usize> {
    match input.byte()? {
        END => None,
        // Shorter ones have the short form, and no other.
        LONG => Some(u32::from_le_bytes(input.array()?) as usize).filter(|&len| len >= LONG.into()),
        len => Some(usize::from(len)),
    }
}

const LONG: u8 = 0xfe;
const END: u8 = 0xff;

#[cfg(test)]
mod tests {
    use bobbin_store::value::Item;

    use super::*;

    #[test]
    fn zipmaps() {
        let bytes = b"\x02\x03foo\x03\0bar\x05hello\x05\x02world..\xff";
        let expected = ["foo", "bar", "hello", "world"].map(|text| text.as_bytes().to_vec());
        let entries: Vec<_> = read(bytes).unwrap().iter().map(Item::to_vec).collect();
        assert_eq!(entries, expected);
        for cut in 0..bytes.len() {
            assert!(read(&bytes[..cut]).is_none());
        }
    }
}
