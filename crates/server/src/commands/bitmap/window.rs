//! Integers of 1 to 64 bits at any bit of a string, for BITFIELD.

use crate::commands::string::{BytesMut, StringBytes};

/// An integer's width, and whether it has a sign: `u8`, `i64`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Width {
    pub signed: bool,
    /// 1 to 63, or 64 with a sign.
    pub bits: u32,
}

/// What to do with a number that does not fit.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Overflow {
    Wrap,
    Saturate,
    Fail,
}

/// A window of 72 bits holds any integer, at whichever bit of its first byte it begins.
const WINDOW: usize = 9;

impl Width {
    pub(super) fn parse(text: &[u8]) -> Option<Self> {
        let (signed, bits) = match text {
            [b'i', bits @ ..] => (true, bits),
            [b'u', bits @ ..] => (false, bits),
            _ => return None,
        };
        let bits = bobbin_resp::parse_i64(bits)?;
        let bits_max = if signed { 64 } else { 63 };
        (1..=bits_max).contains(&bits).then_some(Self { signed, bits: bits as u32 })
    }

    /// The integer that begins at this bit. Bits beyond the string are zero.
    pub(super) fn read(self, bytes: &(impl StringBytes + ?Sized), offset: usize) -> i64 {
        let window = load(bytes, offset / 8);
        let raw = (window >> self.shift(offset)) as u64;
        self.wrap(i128::from(raw))
    }

    /// Writes the integer. The string must be long enough.
    pub(super) fn write(self, bytes: &mut (impl BytesMut + ?Sized), offset: usize, value: i64) {
        let at = offset / 8;
        let shift = self.shift(offset);
        let mask = u128::from(self.mask()) << shift;
        let window = load(bytes, at) & !mask | u128::from(value as u64 & self.mask()) << shift;
        let window = window.to_be_bytes();
        let end = bytes.len().min(at + WINDOW);
        bytes.write(at, &window[16 - WINDOW..][..end - at]);
    }

    /// Converts the number to this width. `None`: it does not fit, and `overflow` demands a
    /// failure.
    pub(super) fn fit(self, value: i128, overflow: Overflow) -> Option<i64> {
        let (min, max) = if self.signed {
            (-1i128 << (self.bits - 1), (1i128 << (self.bits - 1)) - 1)
        } else {
            (0, (1i128 << self.bits) - 1)
        };
        match overflow {
            _ if (min..=max).contains(&value) => Some(value as i64),
            Overflow::Wrap => Some(self.wrap(value)),
            Overflow::Saturate => Some(value.clamp(min, max) as i64),
            Overflow::Fail => None,
        }
    }

    /// The lowest bits of the number, with their sign.
    fn wrap(self, value: i128) -> i64 {
        let raw = value as u64 & self.mask();
        if self.signed {
            let unused = 64 - self.bits;
            (raw << unused) as i64 >> unused
        } else {
            raw as i64
        }
    }

    fn mask(self) -> u64 {
        u64::MAX >> (64 - self.bits)
    }

    /// How many bits of the window are below the integer.
    fn shift(self, offset: usize) -> u32 {
        WINDOW as u32 * 8 - (offset % 8) as u32 - self.bits
    }
}

/// Nine bytes as a number. Bytes beyond the string are zero.
fn load(bytes: &(impl StringBytes + ?Sized), at: usize) -> u128 {
    let mut window = [0; 16];
    bytes.read(at, &mut window[16 - WINDOW..]);
    u128::from_be_bytes(window)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn width() -> impl Strategy<Value = Width> {
        (any::<bool>(), 1..=64u32).prop_map(|(signed, bits)| Width {
            signed,
            bits: bits.min(if signed { 64 } else { 63 }),
        })
    }

    proptest! {
        #[test]
        fn what_is_written_is_read_and_nothing_else_changes(
            mut bytes in prop::collection::vec(any::<u8>(), 20),
            offset in 0..90usize,
            width in width(),
            value: i64,
        ) {
            let before = bytes.clone();
            width.write(&mut bytes[..], offset, value);
            prop_assert_eq!(width.read(&bytes[..], offset), width.wrap(i128::from(value)));
            let end = offset + width.bits as usize;
            for at in (0..160).filter(|at| !(offset..end).contains(at)) {
                prop_assert_eq!(bytes[at / 8] >> (7 - at % 8) & 1, before[at / 8] >> (7 - at % 8) & 1);
            }
        }
    }

    #[test]
    fn widths() {
        assert_eq!(Width::parse(b"i64"), Some(Width { signed: true, bits: 64 }));
        assert_eq!(Width::parse(b"u63"), Some(Width { signed: false, bits: 63 }));
        for text in ["", "u", "i", "u0", "u64", "i65", "U8", "u08", "i-1", "8", "u8 "] {
            assert_eq!(Width::parse(text.as_bytes()), None, "{text}");
        }
    }

    #[test]
    fn numbers_that_do_not_fit() {
        let i8 = Width { signed: true, bits: 8 };
        let u8 = Width { signed: false, bits: 8 };
        assert_eq!(i8.fit(128, Overflow::Wrap), Some(-128));
        assert_eq!(i8.fit(-129, Overflow::Saturate), Some(-128));
        assert_eq!(u8.fit(-1, Overflow::Wrap), Some(255));
        assert_eq!(u8.fit(-1, Overflow::Saturate), Some(0));
        assert_eq!(u8.fit(256, Overflow::Fail), None);
        assert_eq!(u8.fit(255, Overflow::Fail), Some(255));
        let i64 = Width { signed: true, bits: 64 };
        assert_eq!(i64.fit(i128::from(i64::MAX) + 1, Overflow::Wrap), Some(i64::MIN));
        assert_eq!(i64.fit(i128::from(i64::MIN) * 2, Overflow::Saturate), Some(i64::MIN));
    }
}
