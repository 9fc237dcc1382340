//! Reading DER (ITU-T X.690), as far as certificates and encrypted keys need it: tags of one byte,
//! definite lengths.

/// Reads one value after the other.
#[derive(Clone, Copy)]
pub(crate) struct DerReader<'a> {
    rest: &'a [u8],
}

impl<'a> DerReader<'a> {
    pub(crate) const fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes }
    }

    /// The next value's tag and content; `None` at the end, or where this is no DER.
    pub(crate) fn next(&mut self) -> Option<(u8, &'a [u8])> {
        let (&tag, rest) = self.rest.split_first()?;
        let (&first, mut rest) = rest.split_first()?;
        let len = if first < LONG_FORM {
            usize::from(first)
        } else {
            let digits = usize::from(first - LONG_FORM);
            if digits == 0 || digits > LENGTH_DIGITS_MAX || rest.len() < digits {
                return None;
            }
            let (length, behind) = rest.split_at(digits);
            rest = behind;
            length.iter().fold(0, |length, &digit| length << 8 | usize::from(digit))
        };
        let (content, rest) = rest.split_at_checked(len)?;
        self.rest = rest;
        Some((tag, content))
    }

    /// The next value's content, if it has this tag; otherwise the reader stays where it is.
    pub(crate) fn take(&mut self, tag: u8) -> Option<&'a [u8]> {
        let mut ahead = *self;
        let (found, content) = ahead.next()?;
        if found != tag {
            return None;
        }
        *self = ahead;
        Some(content)
    }

    /// A reader of the next value's content, if the value has this tag.
    pub(crate) fn enter(&mut self, tag: u8) -> Option<Self> {
        self.take(tag).map(Self::new)
    }

    /// The next value if it is a number that fits.
    pub(crate) fn number(&mut self) -> Option<u64> {
        let digits = self.take(INTEGER)?;
        let digits = digits.strip_prefix(&[0]).unwrap_or(digits);
        if digits.len() > 8 {
            return None;
        }
        Some(digits.iter().fold(0, |number, &digit| number << 8 | u64::from(digit)))
    }
}

pub(crate) const INTEGER: u8 = 0x02;
pub(crate) const OCTET_STRING: u8 = 0x04;
pub(crate) const OBJECT: u8 = 0x06;
pub(crate) const UTC_TIME: u8 = 0x17;
pub(crate) const GENERALIZED_TIME: u8 = 0x18;
pub(crate) const SEQUENCE: u8 = 0x30;
pub(crate) const SET: u8 = 0x31;

/// A length from this byte on is that of the length itself.
const LONG_FORM: u8 = 0x80;
const LENGTH_DIGITS_MAX: usize = 4;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_of_both_forms() {
        let mut long = vec![SEQUENCE, 0x81, 0x80];
        long.extend([7; 0x80]);
        long.extend([INTEGER, 2, 1, 0]);
        let mut reader = DerReader::new(&long);
        assert_eq!(reader.take(INTEGER), None);
        assert_eq!(reader.take(SEQUENCE).map(<[u8]>::len), Some(0x80));
        assert_eq!(reader.number(), Some(256));
        assert_eq!(reader.next(), None);
    }

    #[test]
    fn broken_lengths_end_it() {
        for bytes in [&[0x30][..], &[0x30, 5, 1], &[0x30, 0x80], &[0x30, 0x84, 255, 255, 255, 255]]
        {
            assert_eq!(DerReader::new(bytes).next(), None, "{bytes:?}");
        }
    }
}
