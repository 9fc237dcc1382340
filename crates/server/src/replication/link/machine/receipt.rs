//! A copy of all keys as it comes, by whatever connection.

use std::ops::Range;

use super::super::copy::CopyEnd;
use super::GiveUp;
use super::channel::Input;

/// How far a copy has come.
pub(super) enum Receipt {
    /// The line before it is awaited.
    Awaited,
    Arrives(CopyEnd),
    /// All of it is here.
    Whole,
}

/// What came of it.
pub(super) enum Received {
    /// Nothing that is of any use yet.
    Nothing,
    /// It begins. So many bytes, if that is known.
    Begins(Option<u64>),
    /// These bytes of the input.
    Bytes(Range<usize>),
    /// It is whole.
    Whole,
}

impl Receipt {
    /// Takes what has come: `len_max` bytes of the copy at most.
    pub(super) fn next(&mut self, input: &mut Input, len_max: usize) -> Result<Received, GiveUp> {
        match self {
            Self::Awaited => {
                let Some(line) = input.line()? else { return Ok(Received::Nothing) };
                let end = CopyEnd::parse(&line).map_err(GiveUp::because)?;
                let length = end.length();
                *self = Self::Arrives(end);
                Ok(Received::Begins(length))
            }
            Self::Arrives(end) => {
                let part = end.take(input.rest(), len_max);
                // The end is told on its own.
                if part.len == 0 && part.is_last {
                    input.skip(part.used);
                    *self = Self::Whole;
                    return Ok(Received::Whole);
                }
                if part.len == 0 {
                    return Ok(Received::Nothing);
                }
                let at = input.at;
                input.skip(part.len);
                Ok(Received::Bytes(at..at + part.len))
            }
            Self::Whole => Ok(Received::Whole),
        }
    }
}
