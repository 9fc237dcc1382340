//! Where a value ends, without making it: what has to be known before it can be handed to another
//! thread.

use crate::input::Input;
use crate::kind::ValueKind;
use crate::length::Length;

/// Why there is no end yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stop {
    /// The bytes go on where these end.
    More,
    Damaged(&'static str),
    /// A byte that announces nothing known.
    Unknown(u8),
    Checksum {
        expected: u64,
        found: u64,
    },
}

pub(super) type Skipped<T = ()> = Result<T, Stop>;

pub(super) fn byte(input: &mut Input<'_>) -> Skipped<u8> {
    input.byte().ok_or(Stop::More)
}

pub(super) fn array<const N: usize>(input: &mut Input<'_>) -> Skipped<[u8; N]> {
    input.array().ok_or(Stop::More)
}

fn bytes<'a>(input: &mut Input<'a>, len: usize) -> Skipped<&'a [u8]> {
    input.bytes(len).ok_or(Stop::More)
}

/// A length, or the announcement of a string in a special encoding.
fn any_length(input: &mut Input<'_>) -> Skipped<Length> {
    let first = input.0.first().copied();
    // Of those that begin so there are two.
    let is_known = first.is_none_or(|first| first & 0xc0 != 0x80 || first <= 0x81);
    if !is_known {
        return Err(Stop::Damaged("a length in an unknown form"));
    }
    Length::read(input).ok_or(Stop::More)
}

pub(super) fn number(input: &mut Input<'_>) -> Skipped<u64> {
    match any_length(input)? {
        Length::Plain(number) => Ok(number),
        Length::Special(_) => Err(Stop::Damaged("a string where a length should be")),
    }
}

pub(super) fn string(input: &mut Input<'_>) -> Skipped {
    let size = |len: u64| usize::try_from(len).map_err(|_| Stop::Damaged("an endless string"));
    let len = match any_length(input)? {
        Length::Plain(len) => size(len)?,
        Length::Special(0) => 1,
        Length::Special(1) => 2,
        Length::Special(2) => 4,
        Length::Special(3) => {
            let compressed = number(input)?;
            number(input)?;
            size(compressed)?
        }
        Length::Special(_) => return Err(Stop::Damaged("a string in an unknown encoding")),
    };
    bytes(input, len).map(drop)
}

/// The name and the value of a fact. KeyDB has one between the expiry of a key and its type.
pub(super) fn fact(input: &mut Input<'_>) -> Skipped {
    string(input)?;
    string(input)
}

/// The value behind its key.
pub(super) fn value(kind: ValueKind, input: &mut Input<'_>) -> Skipped {
    match kind {
        ValueKind::String
        | ValueKind::HashZipmap
        | ValueKind::ListZiplist
        | ValueKind::SetIntset
        | ValueKind::SortedSetZiplist
        | ValueKind::HashZiplist
        | ValueKind::HashListpack
        | ValueKind::SortedSetListpack
        | ValueKind::SetListpack => string(input),
        ValueKind::List | ValueKind::Set | ValueKind::ListQuicklist => repeat(input, string),
        ValueKind::Hash => repeat(input, strings),
        ValueKind::SortedSet => repeat(input, |input| {
            string(input)?;
            let len = byte(input)?;
            // Three of them stand for what has no digits.
            bytes(input, if len >= 253 { 0 } else { len.into() }).map(drop)
        }),
        ValueKind::SortedSet2 => repeat(input, |input| {
            string(input)?;
            array::<8>(input).map(drop)
        }),
        ValueKind::ListQuicklist2 => repeat(input, |input| {
            number(input)?;
            string(input)
        }),
        ValueKind::HashExpiring => repeat(input, |input| {
            strings(input)?;
            array::<8>(input).map(drop)
        }),
        ValueKind::HashMetadata => {
            array::<8>(input)?;
            repeat(input, |input| {
                number(input)?;
                strings(input)
            })
        }
        ValueKind::HashListpackExpiring => {
            array::<8>(input)?;
            string(input)
        }
        ValueKind::Stream => stream(1, input),
        ValueKind::Stream2 => stream(2, input),
        ValueKind::Stream3 => stream(3, input),
        ValueKind::Module => Err(Stop::Unknown(kind as u8)),
    }
}

/// What a module wrote about itself.
pub(super) fn module_aux(input: &mut Input<'_>) -> Skipped {
    number(input)?;
    number(input)?;
    number(input)?;
    module_parts(input)
}

fn module_parts(input: &mut Input<'_>) -> Skipped {
    const END: u64 = 0;
    loop {
        match number(input)? {
            END => return Ok(()),
            1 | 2 => drop(number(input)?),
            3 => drop(array::<4>(input)?),
            4 => drop(array::<8>(input)?),
            5 => string(input)?,
            _ => return Err(Stop::Damaged("an unknown part of a module's data")),
        }
    }
}

fn stream(form: u8, input: &mut Input<'_>) -> Skipped {
    repeat(input, strings)?;
    // The length and the last ID; then the first ID, the greatest deleted one, and how many were
    // added.
    numbers(input, if form == 1 { 3 } else { 8 })?;
    repeat(input, |input| {
        string(input)?;
        numbers(input, if form == 1 { 2 } else { 3 })?;
        repeat(input, |input| {
            array::<24>(input)?;
            number(input).map(drop)
        })?;
        repeat(input, |input| {
            string(input)?;
            bytes(input, if form == 3 { 16 } else { 8 })?;
            repeat(input, |input| array::<16>(input).map(drop))
        })
    })
}

fn strings(input: &mut Input<'_>) -> Skipped {
    string(input)?;
    string(input)
}

fn numbers(input: &mut Input<'_>, count: usize) -> Skipped {
    (0..count).try_for_each(|_| number(input).map(drop))
}

/// Passes over a number, and calls `each` as many times as the number says.
fn repeat(input: &mut Input<'_>, each: impl Fn(&mut Input<'_>) -> Skipped) -> Skipped {
    (0..number(input)?).try_for_each(|_| each(input))
}
