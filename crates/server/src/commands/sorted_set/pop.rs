//! Pops the lowest or highest members.

use std::ops::Range;

use bobbin_resp::{Protocol, Reply};
use bobbin_store::Hasher;
use bobbin_store::value::SortedSet;

use super::super::elements::{self, bulk};
use super::super::popping::{self, Pops, pop_in_slices};
use super::shrunk;
use crate::engine::command::{Call, Data, Failure, Key, Outcome};

/// Which members are popped first.
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
    let is_long = popping::is_long(count.min(set.len()));
    call.data.count_no_more_use();
    // Without a count, one pair is an array of two, even in RESP3.
    let nested = counted && call.reply.protocol() != Protocol::Resp2;
    if is_long && call.may_leave_job {
        let form = if nested { PopForm::Pairs } else { PopForm::Flat };
        let members = Members::new(call, extreme, form);
        return pop_in_slices(call, 1..2, 1, count, members);
    }
    call.reply.array(if nested { ranks.len() } else { ranks.len() * 2 });
    take(call.data, key, extreme, count, nested, &mut call.reply)?;
    Ok(())
}

pub(super) fn zmpop(call: &mut Call<'_>) -> Outcome {
    let (wanted, extreme) = elements::popping(call, 1, Extreme::read)?;
    for at in wanted.keys.clone() {
        let key = call.key(at)?;
        let Some(set) = call.data.write_as::<SortedSet>(key)? else { continue };
        let is_long = popping::is_long(wanted.count.min(set.len()));
        call.data.count_no_more_use();
        if is_long && call.may_leave_job {
            let members = Members::new(call, extreme, PopForm::Keyed);
            return pop_in_slices(call, wanted.keys, at, wanted.count, members);
        }
        pop_from(call.data, key, extreme, wanted.count, &mut call.reply)?;
        return Ok(());
    }
    call.reply.null_array();
    Ok(())
}

/// The form of popped members in the reply.
#[derive(Clone, Copy, PartialEq, Eq)]
enum PopForm {
    /// The member and its score, one behind the other.
    Flat,
    /// Each member with its score in an array.
    Pairs,
    /// Each member with its score in an array, behind the key.
    Keyed,
}

/// Pops many members.
struct Members {
    extreme: Extreme,
    form: PopForm,
    hasher: &'static Hasher,
}

impl Members {
    fn new(call: &Call<'_>, extreme: Extreme, form: PopForm) -> Self {
        Self { extreme, form, hasher: call.data.keyspace().hasher() }
    }
}

impl Pops for Members {
    type From = SortedSet;

    fn take(&mut self, from: &mut SortedSet, most: usize, reply: &mut Reply<'_>) -> usize {
        let ranks = self.extreme.ranks(from.len(), most);
        let taken = ranks.len();
        self.extreme.answer(from, ranks.clone(), self.form != PopForm::Flat, reply);
        from.remove_range(ranks, self.hasher);
        taken
    }

    fn finish(&mut self, data: &mut Data, key: Key<'_>, popped: usize, reply: &mut Reply<'_>) {
        match (self.form, popped) {
            (PopForm::Keyed, 0) => reply.null_array(),
            (PopForm::Keyed, _) => {
                reply.array(2);
                reply.bulk(key.bytes);
                reply.array(popped);
            }
            (PopForm::Pairs, _) => reply.array(popped),
            (PopForm::Flat, _) => reply.array(popped * 2),
        }
        if popped > 0 {
            shrunk(data, key, popped, self.extreme.event());
            self.extreme.propagate(data, key, popped);
        }
    }
}

/// Pops members of the sorted set at a key, if there are any, and appends the key and the members
/// to the reply.
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
    extreme.propagate(data, key, taken);
    Ok(true)
}

/// Pops one member of the sorted set at a key, if there is any, and appends the key, the member and
/// the score to the reply.
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

/// Removes members, and appends them with their scores. `nested`: each pair is an array.
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
    extreme.answer(set, ranks.clone(), nested, reply);
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

    /// Appends members with their scores. `nested`: each pair is an array.
    fn answer(self, set: &SortedSet, ranks: Range<usize>, nested: bool, reply: &mut Reply<'_>) {
        let answer = |(member, score)| {
            if nested {
                reply.array(2);
            }
            bulk(reply, member);
            reply.double(score);
        };
        match self {
            Self::Lowest => set.range(ranks).for_each(answer),
            Self::Highest => set.range(ranks).rev().for_each(answer),
        }
    }

    /// Logs that `count` members were popped.
    fn propagate(self, data: &mut Data, key: Key<'_>, count: usize) {
        let mut digits = itoa::Buffer::new();
        data.propagate(&[self.command(), key.bytes, digits.format(count).as_bytes()]);
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
