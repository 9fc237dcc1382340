//! Integers as texts: parses the form that Redis accepts as an integer, and formats it.

/// The longest 64-bit integer: digits and sign.
pub const TEXT_LEN_MAX: usize = 20;

/// The integer of a text, if formatting the integer gives the same text: no spaces, no `+`, no
/// leading zeros, no `-0`.
#[inline]
pub fn parse(text: &[u8]) -> Option<i64> {
    let (&first, rest) = text.split_first()?;
    // Most texts fail this check.
    if first.wrapping_sub(b'0') > 9 && first != b'-' || text.len() > TEXT_LEN_MAX {
        return None;
    }
    if first == b'0' {
        return rest.is_empty().then_some(0);
    }
    let digits = if first == b'-' { rest } else { text };
    if !matches!(digits.first(), Some(b'1'..=b'9')) {
        return None;
    }
    let mut magnitude: u64 = 0;
    for &byte in digits {
        let digit = byte.wrapping_sub(b'0');
        if digit > 9 {
            return None;
        }
        magnitude = magnitude.checked_mul(10)?.checked_add(u64::from(digit))?;
    }
    if first == b'-' { 0i64.checked_sub_unsigned(magnitude) } else { i64::try_from(magnitude).ok() }
}

/// Room for the text of an integer.
pub struct IntegerText {
    bytes: [u8; TEXT_LEN_MAX],
    start: usize,
}

impl IntegerText {
    pub fn new(value: i64) -> Self {
        let mut text = Self { bytes: [0; TEXT_LEN_MAX], start: TEXT_LEN_MAX };
        let mut magnitude = value.unsigned_abs();
        loop {
            text.start -= 1;
            text.bytes[text.start] = b'0' + (magnitude % 10) as u8;
            magnitude /= 10;
            if magnitude == 0 {
                break;
            }
        }
        if value < 0 {
            text.start -= 1;
            text.bytes[text.start] = b'-';
        }
        text
    }

    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes[self.start..]
    }
}

/// How many bytes [`IntegerText`] would have for this integer.
pub fn text_len(value: i64) -> usize {
    let digits = value.unsigned_abs().checked_ilog10().unwrap_or(0) as usize + 1;
    digits + usize::from(value < 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_canonical_form_is_an_integer() {
        for value in [0, 1, -1, 9, 10, -10, 127, 128, i64::MAX, i64::MIN, i64::MIN + 1] {
            let text = IntegerText::new(value);
            assert_eq!(text.as_bytes(), value.to_string().as_bytes());
            assert_eq!(text_len(value), text.as_bytes().len());
            assert_eq!(parse(text.as_bytes()), Some(value));
        }
        for text in [
            "",
            "-",
            "-0",
            "00",
            "01",
            "+1",
            " 1",
            "1 ",
            "1a",
            "a",
            "9223372036854775808",
            "-9223372036854775809",
            "18446744073709551616",
            "99999999999999999999",
            "123456789012345678901",
        ] {
            assert_eq!(parse(text.as_bytes()), None, "{text}");
        }
    }
}
