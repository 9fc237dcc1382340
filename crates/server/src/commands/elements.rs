//! Functions that the families of collections share: ranges of indices, counts and replies.

use std::ops::Range;

use bobbin_resp::{Reply, parse_i64};
use bobbin_store::value::Item;

use crate::engine::command::{Call, Failure};

/// Appends an element as a bulk string.
#[inline]
pub(super) fn bulk(reply: &mut Reply<'_>, item: Item<'_>) {
    match item {
        Item::Integer(value) => reply.bulk_i64(value),
        Item::Bytes(bytes) => reply.bulk(bytes),
    }
}

/// The range between two indices, both included. Negative indices count from the end.
pub(super) fn range(start: i64, stop: i64, len: usize) -> Range<usize> {
    let len = len as i64;
    let from_end = |index: i64| if index < 0 { index.saturating_add(len) } else { index };
    let (start, stop) = (from_end(start).max(0), from_end(stop).min(len - 1));
    if start > stop { 0..0 } else { start as usize..stop as usize + 1 }
}

/// Parses an argument as a number that must not be negative.
pub(super) fn count(call: &Call<'_>, index: usize) -> Result<usize, Failure> {
    let count = parse_i64(call.args[index]).and_then(|count| usize::try_from(count).ok());
    count.ok_or(NOT_POSITIVE)
}

/// Parses an argument as a positive number.
pub(super) fn from_one(
    call: &Call<'_>,
    index: usize,
    error: &'static str,
) -> Result<usize, Failure> {
    let number = parse_i64(call.args[index]).and_then(|number| usize::try_from(number).ok());
    number.filter(|&number| number > 0).ok_or_else(|| Failure::from(error))
}

/// The arguments of `[timeout] numkeys key [key ...] WHERE [COUNT count]`, without WHERE.
pub(super) struct PopArguments {
    /// The arguments that are keys.
    pub keys: Range<usize>,
    pub count: usize,
}

/// Parses the arguments from numkeys on. `read_end` parses WHERE.
pub(super) fn popping<T>(
    call: &Call<'_>,
    numkeys_at: usize,
    read_end: impl FnOnce(&[u8]) -> Result<T, Failure>,
) -> Result<(PopArguments, T), Failure> {
    let numkeys = from_one(call, numkeys_at, "ERR numkeys should be greater than 0")?;
    let first = numkeys_at + 1;
    let end_at = numkeys.checked_add(first).filter(|&at| at < call.args.len());
    let end_at = end_at.ok_or(Failure::SYNTAX)?;
    let end = read_end(call.args[end_at])?;
    let mut count = None;
    let mut at = end_at + 1;
    while at < call.args.len() {
        if count.is_some() || !call.word_is(at, "count") || at + 1 >= call.args.len() {
            return Err(Failure::SYNTAX);
        }
        count = Some(from_one(call, at + 1, "ERR count should be greater than 0")?);
        at += 2;
    }
    Ok((PopArguments { keys: first..end_at, count: count.unwrap_or(1) }, end))
}

/// The error for the one number that has no negation.
pub(super) const TOO_LOW: Failure = Failure::new(
    &"ERR value is out of range, value must between -9223372036854775807 and 9223372036854775807",
);
const NOT_POSITIVE: Failure = Failure::new(&"ERR value is out of range, must be positive");

#[cfg(test)]
mod tests {
    use super::range;

    #[test]
    fn ranges_are_clamped() {
        assert_eq!(range(0, -1, 3), 0..3);
        assert_eq!(range(-100, 100, 3), 0..3);
        assert_eq!(range(1, 1, 3), 1..2);
        assert_eq!(range(-1, -2, 3), 0..0);
        assert_eq!(range(5, 7, 3), 0..0);
        assert_eq!(range(0, -1, 0), 0..0);
        assert_eq!(range(i64::MIN, i64::MAX, 2), 0..2);
    }
}
