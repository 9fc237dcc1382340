//! Receives a copy of all keys, on any connection.

use std::ops::Range;

use super::super::copy::CopyEnd;
use super::GiveUp;
use super::channel::ChannelInput;

/// How far a copy was received.
pub(super) enum Receipt {
    /// The line before it has not come yet.
    Awaited,
    Arrives(CopyEnd),
    /// The whole copy was received.
    Whole,
}

/// What was received.
pub(super) enum CopyProgress {
    /// Nothing usable yet.
    Nothing,
    /// The copy begins. Its length in bytes, if that is known.
    Begins(Option<u64>),
    /// These bytes of the input belong to the copy.
    Bytes(Range<usize>),
    /// The copy is complete.
    Whole,
}

impl Receipt {
    /// Handles what was received: at most `len_max` bytes of the copy.
    pub(super) fn next(
        &mut self,
        input: &mut ChannelInput,
        len_max: usize,
    ) -> Result<CopyProgress, GiveUp> {
        match self {
            Self::Awaited => {
                let Some(line) = input.line()? else { return Ok(CopyProgress::Nothing) };
                let end = CopyEnd::parse(&line).map_err(GiveUp::because)?;
                let length = end.length();
                *self = Self::Arrives(end);
                Ok(CopyProgress::Begins(length))
            }
            Self::Arrives(end) => {
                let part = end.take(input.rest(), len_max);
                // The end is reported separately from the last bytes.
                if part.len == 0 && part.is_last {
                    input.skip(part.used);
                    *self = Self::Whole;
                    return Ok(CopyProgress::Whole);
                }
                if part.len == 0 {
                    return Ok(CopyProgress::Nothing);
                }
                let at = input.at;
                input.skip(part.len);
                Ok(CopyProgress::Bytes(at..at + part.len))
            }
            Self::Whole => Ok(CopyProgress::Whole),
        }
    }
}
