//! The IDs of entries, as clients write and read them.

use std::ops::RangeInclusive;

use bobbin_resp::{Reply, parse_i64};
use bobbin_store::value::StreamId;

use crate::engine::command::Failure;

/// Parses an ID. Without a sequence number it gets `missing_seq`.
pub(super) fn parse(text: &[u8], missing_seq: u64) -> Result<StreamId, Failure> {
    match parts(text)? {
        (ms, Sequence::Is(seq)) => Ok(StreamId { ms, seq }),
        (ms, Sequence::Missing) => Ok(StreamId { ms, seq: missing_seq }),
        (_, Sequence::Any) => Err(INVALID),
    }
}

/// Parses an ID as `parse` does, or `-` and `+`, the smallest and the greatest ID.
pub(super) fn parse_or_end(text: &[u8], missing_seq: u64) -> Result<StreamId, Failure> {
    match text {
        b"-" => Ok(StreamId::ZERO),
        b"+" => Ok(StreamId::MAX),
        _ => parse(text, missing_seq),
    }
}

/// Parses the start of a range.
pub(super) fn parse_start(text: &[u8]) -> Result<StreamId, Failure> {
    match text.strip_prefix(b"(").filter(|rest| !rest.is_empty()) {
        Some(rest) => parse(rest, 0)?.next().ok_or(NO_START),
        None => parse_or_end(text, 0),
    }
}

/// Parses the end of a range.
pub(super) fn parse_end(text: &[u8]) -> Result<StreamId, Failure> {
    match text.strip_prefix(b"(").filter(|rest| !rest.is_empty()) {
        Some(rest) => parse(rest, u64::MAX)?.previous().ok_or(NO_END),
        None => parse_or_end(text, u64::MAX),
    }
}

pub(super) fn parse_range(start: &[u8], end: &[u8]) -> Result<RangeInclusive<StreamId>, Failure> {
    Ok(parse_start(start)?..=parse_end(end)?)
}

/// The ID of an entry that will be added.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum NewId {
    /// `*`: by the clock.
    Clock,
    /// `ms-*`: the next ID in this millisecond.
    NextIn(u64),
    Given(StreamId),
}

impl NewId {
    pub(super) fn parse(text: &[u8]) -> Result<Self, Failure> {
        if text == b"*" {
            return Ok(Self::Clock);
        }
        Ok(match parts(text)? {
            (ms, Sequence::Any) => Self::NextIn(ms),
            (ms, Sequence::Is(seq)) => Self::Given(StreamId { ms, seq }),
            (ms, Sequence::Missing) => Self::Given(StreamId { ms, seq: 0 }),
        })
    }

    /// The new ID behind `last`. `None`: it would not be greater.
    pub(super) fn behind(self, last: StreamId, now_ms: u64) -> Option<StreamId> {
        match self {
            Self::Clock if now_ms > last.ms => Some(StreamId { ms: now_ms, seq: 0 }),
            Self::Clock => last.next(),
            Self::NextIn(ms) if ms == last.ms => {
                Some(StreamId { ms, seq: last.seq.checked_add(1)? })
            }
            Self::NextIn(ms) => Some(StreamId { ms, seq: 0 }),
            Self::Given(id) => Some(id),
        }
        .filter(|id| *id > last)
    }
}

/// Appends an ID as a bulk string.
#[inline]
pub(super) fn reply(reply: &mut Reply<'_>, id: StreamId) {
    let (mut ms, mut seq) = (itoa::Buffer::new(), itoa::Buffer::new());
    let (ms, seq) = (ms.format(id.ms).as_bytes(), seq.format(id.seq).as_bytes());
    reply.bulk_header(ms.len() + 1 + seq.len());
    let output = reply.output();
    output.extend_from_slice(ms);
    output.push(b'-');
    output.extend_from_slice(seq);
    output.extend_from_slice(b"\r\n");
}

/// An ID as text.
pub(super) fn text(id: StreamId) -> Vec<u8> {
    format!("{}-{}", id.ms, id.seq).into_bytes()
}

#[derive(Clone, Copy)]
enum Sequence {
    Is(u64),
    Missing,
    /// `*`: any sequence number.
    Any,
}

fn parts(text: &[u8]) -> Result<(u64, Sequence), Failure> {
    if text.len() > LEN_MAX {
        return Err(INVALID);
    }
    let mut parts = text.splitn(2, |&byte| byte == b'-');
    let ms = parts.next().and_then(number).ok_or(INVALID)?;
    let seq = match parts.next() {
        None => Sequence::Missing,
        Some(b"*") => Sequence::Any,
        Some(seq) => Sequence::Is(number(seq).ok_or(INVALID)?),
    };
    Ok((ms, seq))
}

/// Parses a number as Redis does: a text that is not in the shortest form is parsed as by C's
/// `strtoull`, with spaces, signs and zeros.
fn number(text: &[u8]) -> Option<u64> {
    if let Some(number) = parse_i64(text) {
        return u64::try_from(number).ok();
    }
    let spaces = text.iter().take_while(|byte| matches!(byte, b' ' | b'\t'..=b'\r')).count();
    let (negative, digits) = match &text[spaces..] {
        [b'-', digits @ ..] => (true, digits),
        [b'+', digits @ ..] => (false, digits),
        digits => (false, digits),
    };
    if digits.is_empty() || !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let number = digits.iter().try_fold(0u64, |number, digit| {
        number.checked_mul(10)?.checked_add(u64::from(digit - b'0'))
    })?;
    Some(if negative { number.wrapping_neg() } else { number })
}

/// Longer arguments are not IDs.
const LEN_MAX: usize = 127;

const INVALID: Failure =
    Failure::new(&"ERR Invalid stream ID specified as stream command argument");
const NO_START: Failure = Failure::new(&"ERR invalid start ID for the interval");
const NO_END: Failure = Failure::new(&"ERR invalid end ID for the interval");

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn forms() {
        let id = StreamId::new;
        for (text, seq) in [("5", 7), ("05", 7), ("+5", 7), (" 5", 7), ("5-7", 7), ("5-007", 7)] {
            assert_eq!(parse(text.as_bytes(), 7), Ok(id(5, seq)), "{text}");
        }
        for text in
            ["", "-", "+", "5-", "-5", "5--1", "5-6-7", "5-*", "a", "5 ", "18446744073709551616"]
        {
            assert_eq!(parse(text.as_bytes(), 0), Err(INVALID), "{text}");
        }
        let max = format!("{0}-{0}", u64::MAX);
        assert_eq!(parse(max.as_bytes(), 0), Ok(StreamId::MAX));
        assert_eq!(parse_range(b"-", b"+"), Ok(StreamId::ZERO..=StreamId::MAX));
        assert_eq!(parse_range(b"(5", b"(5"), Ok(id(5, 1)..=id(5, u64::MAX - 1)));
        assert_eq!(parse_start(format!("({max}").as_bytes()), Err(NO_START));
        assert_eq!(parse_end(b"(0-0"), Err(NO_END));
        assert_eq!((parse_start(b"("), parse_start(b"(-")), (Err(INVALID), Err(INVALID)));
    }

    #[test]
    fn new_ids() {
        let id = StreamId::new;
        let behind = |text: &str, last| NewId::parse(text.as_bytes()).unwrap().behind(last, 9);
        assert_eq!(behind("*", id(8, 3)), Some(id(9, 0)));
        assert_eq!(behind("*", id(9, 3)), Some(id(9, 4)));
        assert_eq!(behind("*", id(10, u64::MAX)), Some(id(11, 0)));
        assert_eq!(behind("0-*", id(0, 0)), Some(id(0, 1)));
        assert_eq!(behind("8-*", id(8, 3)), Some(id(8, 4)));
        assert_eq!(behind("8-*", id(8, u64::MAX)), None);
        assert_eq!(behind("7-*", id(8, 3)), None);
        assert_eq!(behind("8", id(8, 0)), None);
        assert_eq!(behind("8-1", id(8, 0)), Some(id(8, 1)));
    }
}
