//! Taking the lowest or highest members away.

use std::ops::Range;

use bobbin_resp::{Protocol, Reply};
use bobbin_store::value::SortedSet;

use super::super::elements::{self, bulk};
use super::shrunk;
use crate::engine::command::{Call, Data, Failure, Key, Outcome};

/// Which members go first.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Extreme {
    Lowest,
    Highest,
}

pub(super) fn zpopmin(call: &mut Call<'_>) -> Outcome {
    pop(call, Extreme::Lowest)
}

pub(super) fn zpopmax(call: &mut Call<'_>) -> Outcome {
    pop(call, Extreme::Highest)
}

fn pop(call: &mut Call<'_>, extreme: Extreme) -> Outcome {
    if call.args.len() > 3 {
        return Err(Failure::SYNTAX);
    }
    let counted = call.args.len() == 3;
    let count = if counted { elements::count(call, 2)? } else { 1 };
    let key = call.key(1)?;
    let Some(set) = call.data.write_as::<SortedSet>(key)? else {
        call.reply.array(0);
        return Ok(());
    };
    let ranks = extreme.ranks(set.len(), count);
    if ranks.is_empty() {
        call.reply.array(0);
        return Ok(());
    }
    // One pair without a count is an array of two, in RESP3 too.
    let nested = counted && call.reply.protocol() != Protocol::Resp2;
    call.reply.array(if nested { ranks.len() } else { ranks.len() * 2 });
    take(call.data, key, extreme, count, nested, &mut call.reply)?;
    Ok(())
}

pub(super) fn zmpop(call: &mut Call<'_>) -> Outcome {
    let (popping, extreme) = elements::popping(call, 1, Extreme::read)?;
    for at in popping.keys {
        let key = call.key(at)?;
        if pop_from(call.data, key, extreme, popping.count, &mut call.reply)? {
            return Ok(());
        }
    }
    call.reply.null_array();
    Ok(())
}

/// Takes members of the sorted set at a key, if there are any, and answers them behind the key.
pub(super) fn pop_from(
    data: &mut Data,
    key: Key<'_>,
    extreme: Extreme,
    count: usize,
    reply: &mut Reply<'_>,
) -> Result<bool, Failure> {
    let Some(set) = data.write_as::<SortedSet>(key)? else { return Ok(false) };
    let taken = count.min(set.len());
    reply.array(2);
    reply.bulk(key.bytes);
    reply.array(taken);
    take(data, key, extreme, count, true, reply)?;
    let mut digits = itoa::Buffer::new();
    data.propagate(&[extreme.command(), key.bytes, digits.format(taken).as_bytes()]);
    Ok(true)
}

/// Takes one member of the sorted set at a key, if there is any, and answers key, member and score.
pub(super) fn pop_one_from(
    data: &mut Data,
    key: Key<'_>,
    extreme: Extreme,
    reply: &mut Reply<'_>,
) -> Result<bool, Failure> {
    if data.write_as::<SortedSet>(key)?.is_none() {
        return Ok(false);
    }
    reply.array(3);
    reply.bulk(key.bytes);
    take(data, key, extreme, 1, false, reply)?;
    data.propagate(&[extreme.command(), key.bytes]);
    Ok(true)
}

/// Takes members away and appends them with their scores, `nested` each pair in an array.
fn take(
    data: &mut Data,
    key: Key<'_>,
    extreme: Extreme,
    count: usize,
    nested: bool,
    reply: &mut Reply<'_>,
) -> Outcome {
    let hasher = data.keyspace().hasher();
    let Some(set) = data.write_as::<SortedSet>(key)? else { return Ok(()) };
    let ranks = extreme.ranks(set.len(), count);
    let mut answer = |(member, score)| {
        if nested {
            reply.array(2);
        }
        bulk(reply, member);
        reply.double(score);
    };
    let elements = set.range(ranks.clone());
    match extreme {
        Extreme::Lowest => elements.for_each(&mut answer),
        Extreme::Highest => elements.rev().for_each(&mut answer),
    }
    let taken = ranks.len();
    set.remove_range(ranks, hasher);
    shrunk(data, key, taken, extreme.event());
    Ok(())
}

impl Extreme {
    pub(super) fn read(word: &[u8]) -> Result<Self, Failure> {
        if word.eq_ignore_ascii_case(b"min") {
            Ok(Self::Lowest)
        } else if word.eq_ignore_ascii_case(b"max") {
            Ok(Self::Highest)
        } else {
            Err(Failure::SYNTAX)
        }
    }

    fn ranks(self, len: usize, count: usize) -> Range<usize> {
        let count = count.min(len);
        match self {
            Self::Lowest => 0..count,
            Self::Highest => len - count..len,
        }
    }

    const fn command(self) -> &'static [u8] {
        match self {
            Self::Lowest => b"ZPOPMIN",
            Self::Highest => b"ZPOPMAX",
        }
    }

    const fn event(self) -> &'static str {
        match self {
            Self::Lowest => "zpopmin",
            Self::Highest => "zpopmax",
        }
    }
}
