//! RDB's length encoding. The two high bits of the first byte say how to read the rest.
//!
//! | first byte | length |
//! |---|---|
//! | `00xxxxxx` | these 6 bits |
//! | `01xxxxxx` | these 6 bits and the next byte |
//! | `10000000` | the next 4 bytes, most significant first |
//! | `10000001` | the next 8 bytes, most significant first |
//! | `11xxxxxx` | no length: a string in the special encoding of this number follows |

use crate::input::Input;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Length {
    Plain(u64),
    Special(u8),
}

impl Length {
    pub(crate) fn read(input: &mut Input<'_>) -> Option<Self> {
        let first = input.byte()?;
        let low = first & LOW_MASK;
        Some(match first & !LOW_MASK {
            0x00 => Self::Plain(low.into()),
            TWO_BYTES => Self::Plain(u16::from_be_bytes([low, input.byte()?]).into()),
            SPECIAL => Self::Special(low),
            _ => match first {
                FOUR_BYTES => Self::Plain(u32::from_be_bytes(input.array()?).into()),
                EIGHT_BYTES => Self::Plain(u64::from_be_bytes(input.array()?)),
                _ => return None,
            },
        })
    }

    /// A length where nothing else may stand.
    pub(crate) fn read_plain(input: &mut Input<'_>) -> Option<usize> {
        match Self::read(input)? {
            Self::Plain(len) => usize::try_from(len).ok(),
            Self::Special(_) => None,
        }
    }
}

/// Appends a length in its shortest form.
pub(crate) fn append_length(len: usize, output: &mut Vec<u8>) {
    let len = len as u64;
    match (u8::try_from(len), u16::try_from(len), u32::try_from(len)) {
        (Ok(len), ..) if len <= LOW_MASK => output.push(len),
        (_, Ok(len), _) if len < 1 << 14 => {
            let [high, low] = len.to_be_bytes();
            output.extend_from_slice(&[TWO_BYTES | high, low]);
        }
        (_, _, Ok(len)) => {
            output.push(FOUR_BYTES);
            output.extend_from_slice(&len.to_be_bytes());
        }
        _ => {
            output.push(EIGHT_BYTES);
            output.extend_from_slice(&len.to_be_bytes());
        }
    }
}

/// The first byte of a string in special encoding.
pub(crate) const SPECIAL: u8 = 0xc0;

const LOW_MASK: u8 = 0x3f;
const TWO_BYTES: u8 = 0x40;
const FOUR_BYTES: u8 = 0x80;
const EIGHT_BYTES: u8 = 0x81;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_form_at_its_bounds() {
        for (len, bytes) in [
            (0, &[0x00][..]),
            (63, &[0x3f]),
            (64, &[0x40, 64]),
            (16_383, &[0x7f, 0xff]),
            (16_384, &[0x80, 0, 0, 0x40, 0]),
            (0xffff_ffff, &[0x80, 0xff, 0xff, 0xff, 0xff]),
            (0x1_0000_0000, &[0x81, 0, 0, 0, 1, 0, 0, 0, 0]),
        ] {
            let mut output = Vec::new();
            append_length(len, &mut output);
            assert_eq!(output, bytes);
            let mut input = Input(bytes);
            assert_eq!(Length::read_plain(&mut input), Some(len));
            assert!(input.0.is_empty());
            for end in 0..bytes.len() {
                assert_eq!(Length::read(&mut Input(&bytes[..end])), None);
            }
        }
        assert_eq!(Length::read(&mut Input(&[0xc3])), Some(Length::Special(3)));
        assert_eq!(Length::read_plain(&mut Input(&[0xc3])), None);
        assert_eq!(Length::read(&mut Input(&[0x82, 0, 0, 0, 0])), None);
    }
}
