//! Sets: intersections, unions and differences, which are shown, counted or stored.
//!
//! The sets are pinned (a clone of a large set shares its pages), so the work continues without
//! locks, a slice at a time.

use std::ops::Range;

use bobbin_resp::{Aggregate, Reply};
use bobbin_store::Hasher;
use bobbin_store::value::integer::IntegerText;
use bobbin_store::value::set::Walk;
use bobbin_store::value::{Item, Set, SetLimits};

use super::super::elements::bulk;
use super::limits;
use crate::engine::command::{Call, Classes, Data, Failure, Key, Outcome};
use crate::engine::execution::slices::{
    SLICE, SLICED_MIN, SlicedChange, change_in_slices, elements_in_slices, integer_in_slices,
};

pub(super) fn sinter(call: &mut Call<'_>) -> Outcome {
    answer(call, SetOperation::Inter)
}

pub(super) fn sunion(call: &mut Call<'_>) -> Outcome {
    answer(call, SetOperation::Union)
}

pub(super) fn sdiff(call: &mut Call<'_>) -> Outcome {
    answer(call, SetOperation::Diff)
}

pub(super) fn sinterstore(call: &mut Call<'_>) -> Outcome {
    store(call, SetOperation::Inter, "sinterstore")
}

pub(super) fn sunionstore(call: &mut Call<'_>) -> Outcome {
    store(call, SetOperation::Union, "sunionstore")
}

pub(super) fn sdiffstore(call: &mut Call<'_>) -> Outcome {
    store(call, SetOperation::Diff, "sdiffstore")
}

fn answer(call: &mut Call<'_>, operation: SetOperation) -> Outcome {
    let mut combined = Combined::of_keys(call, operation, 1..call.args.len())?;
    if combined.is_long() && call.may_leave_job {
        elements_in_slices(call, Aggregate::Set, move |reply, count| {
            combined.step(&mut |member| {
                bulk(reply, member);
                *count += 1;
                true
            })
        });
        return Ok(());
    }
    let deferred = call.reply.defer();
    let mut count = 0;
    combined.finish(|member| {
        bulk(&mut call.reply, member);
        count += 1;
        true
    });
    call.reply.finish(deferred, Aggregate::Set, count);
    Ok(())
}

fn store(call: &mut Call<'_>, operation: SetOperation, event: &'static str) -> Outcome {
    let mut combined = Combined::of_keys(call, operation, 2..call.args.len())?;
    let (limits, hasher) = (limits(call.server), call.data.keyspace().hasher());
    if combined.is_long() && call.may_leave_job {
        let sources = distinct(call, operation, 2..call.args.len())?;
        let sources: Vec<_> = sources.iter().map(|key| key.bytes.into()).collect();
        let storing = SetStoring {
            pins: pin(call.data, &sources)?,
            sources,
            result: combined.begin_storing(&limits),
            combined,
            destination: call.args[1].into(),
            limits,
            event,
        };
        return change_in_slices(call, 1..call.args.len(), storing);
    }
    let mut result = combined.begin_storing(&limits);
    combined.finish(|member| {
        add(&mut result, member, operation, &limits, hasher);
        true
    });
    let key = call.key(1)?;
    put(call.data, &mut call.reply, key, result, event);
    Ok(())
}

/// Adds a member to a result. Only a union shows members twice.
fn add(
    result: &mut Set,
    member: Item<'_>,
    operation: SetOperation,
    limits: &SetLimits,
    hasher: &Hasher,
) {
    let mut room = IntegerText::new(0);
    let member = member.text(&mut room);
    if operation == SetOperation::Union {
        result.insert(member, limits, hasher);
    } else {
        result.insert_absent(member, limits, hasher);
    }
}

/// Stores a result, and replies with the number of its members.
fn put(data: &mut Data, reply: &mut Reply<'_>, key: Key<'_>, result: Set, event: &'static str) {
    let count = result.len();
    let existed = data.exists(key);
    if data.set_collection(key, result) {
        data.event(Classes::SET, event, key);
    } else if existed {
        data.event(Classes::GENERIC, "del", key);
    }
    reply.integer(count as i64);
}

/// Pins the sets at these keys.
fn pin(data: &mut Data, keys: &[Box<[u8]>]) -> Result<Vec<Option<Set>>, Failure> {
    let pins = keys.iter().map(|key| match data.peek(data.key(key)) {
        Some(entry) => entry.collection::<Set>().cloned().map(Some).ok_or(Failure::WRONG_TYPE),
        None => Ok(None),
    });
    pins.collect()
}

/// A STORE command on large sets.
struct SetStoring {
    sources: Vec<Box<[u8]>>,
    /// The pinned sources.
    pins: Vec<Option<Set>>,
    combined: Combined,
    result: Set,
    destination: Box<[u8]>,
    limits: SetLimits,
    event: &'static str,
}

impl SlicedChange for SetStoring {
    fn step(&mut self, _: &mut Data) -> bool {
        let (operation, hasher) = (self.combined.operation, self.combined.hasher);
        self.combined.step(&mut |member| {
            add(&mut self.result, member, operation, &self.limits, hasher);
            true
        })
    }

    fn is_current(&mut self, data: &mut Data) -> Result<bool, Failure> {
        let pins = pin(data, &self.sources)?;
        let same = pins.iter().zip(&self.pins).all(|pair| match pair {
            (Some(now), Some(then)) => now.is_same(then),
            (None, None) => true,
            _ => false,
        });
        if !same {
            self.combined =
                Combined::new(self.combined.operation, self.combined.hasher, pins.iter().cloned());
            self.pins = pins;
            self.result = self.combined.begin_storing(&self.limits);
        }
        Ok(same)
    }

    fn finish(&mut self, data: &mut Data, _: &[&[u8]], reply: &mut Reply<'_>) -> Outcome {
        let (destination, result) = (data.key(&self.destination), std::mem::take(&mut self.result));
        put(data, reply, destination, result, self.event);
        Ok(())
    }
}

pub(super) fn sintercard(call: &mut Call<'_>) -> Outcome {
    let count = call.integer(1).ok().filter(|&count| count > 0);
    let count = count.ok_or(Failure::new(&"ERR numkeys should be greater than 0"))?;
    let end = usize::try_from(count).ok().and_then(|count| count.checked_add(2));
    let end = end
        .filter(|&end| end <= call.args.len())
        .ok_or(Failure::new(&"ERR Number of keys can't be greater than number of args"))?;
    let (mut limit, mut at) = (usize::MAX, end);
    while at < call.args.len() {
        if !call.word_is(at, "limit") || at + 1 == call.args.len() {
            return Err(Failure::SYNTAX);
        }
        let given = call.integer(at + 1).ok().and_then(|limit| usize::try_from(limit).ok());
        limit = given.ok_or(Failure::new(&"ERR LIMIT can't be negative"))?;
        if limit == 0 {
            limit = usize::MAX;
        }
        at += 2;
    }
    let mut combined = Combined::of_keys(call, SetOperation::Inter, 2..end)?;
    let mut found = 0;
    integer_in_slices(call, combined.is_long(), move || {
        let more = combined.step(&mut |_| {
            found += 1;
            found < limit
        });
        (!more).then_some(found as i64)
    });
    Ok(())
}

/// The keys of sets, each of them once: naming a set again changes nothing. But subtracting a set
/// from itself leaves nothing, so the first set of a difference is kept apart.
fn distinct<'a>(
    call: &Call<'a>,
    operation: SetOperation,
    keys: Range<usize>,
) -> Result<Vec<Key<'a>>, Failure> {
    let apart = usize::from(operation == SetOperation::Diff);
    let mut distinct = call.distinct_keys(keys.start + apart..keys.end)?;
    if operation == SetOperation::Diff {
        distinct.insert(0, call.key(keys.start)?);
    }
    Ok(distinct)
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum SetOperation {
    Inter,
    Union,
    Diff,
}

/// An operation on pinned sets in progress.
struct Combined {
    operation: SetOperation,
    hasher: &'static Hasher,
    /// The sets. All sets of a union are walked; otherwise only the first one is.
    sets: Vec<Set>,
    /// The set that is being walked, and how far.
    at: usize,
    walk: Walk,
    /// The set that is being gathered, and how far, before anything is shown.
    gathering: Option<(usize, Walk)>,
    /// For a union: the members of the sets between the first and the last that were shown. For a
    /// difference, if that is less work: all members of the subtracted sets.
    gathered: Option<Set>,
    /// The receiver accepts repeated members, so those of a union need not be looked up.
    may_repeat: bool,
}

impl Combined {
    /// Pins the sets at these arguments.
    fn of_keys(
        call: &mut Call<'_>,
        operation: SetOperation,
        keys: Range<usize>,
    ) -> Result<Self, Failure> {
        let keys = distinct(call, operation, keys)?;
        let mut pins = Vec::with_capacity(keys.len());
        for key in keys {
            pins.push(call.data.read_as::<Set>(key)?.cloned());
        }
        Ok(Self::new(operation, call.data.keyspace().hasher(), pins.into_iter()))
    }

    /// A set that does not exist counts as empty.
    fn new(
        operation: SetOperation,
        hasher: &'static Hasher,
        pins: impl Iterator<Item = Option<Set>>,
    ) -> Self {
        let mut missing = false;
        let mut sets: Vec<Set> = Vec::new();
        for set in pins {
            missing |= set.is_none();
            match operation {
                // Subtracting nothing changes nothing. But if the first set is missing, the result
                // is empty.
                SetOperation::Diff if set.is_none() && !sets.is_empty() => {}
                SetOperation::Union if set.is_none() => {}
                _ => sets.push(set.unwrap_or_default()),
            }
        }
        match operation {
            SetOperation::Inter if missing => sets.clear(),
            // The smallest set is walked, and the sets that exclude most members are asked first.
            SetOperation::Inter => sets.sort_by_key(Set::len),
            SetOperation::Diff if sets[0].is_empty() => sets.clear(),
            SetOperation::Diff => sets[1..].sort_by_key(|set| std::cmp::Reverse(set.len())),
            SetOperation::Union => {}
        }
        let (walk, gathered, may_repeat) = (Walk::default(), None, false);
        let mut combined =
            Self { operation, hasher, sets, at: 0, walk, gathering: None, gathered, may_repeat };
        if combined.should_gather() {
            combined.gathering = Some((1, walk));
        }
        combined
    }

    /// The set to which the members shown from now on are added. For a union it is the largest set,
    /// which then shares most of its memory with the result, unless the result could take another
    /// form.
    fn begin_storing(&mut self, limits: &SetLimits) -> Set {
        if self.operation != SetOperation::Union {
            return Set::default();
        }
        self.may_repeat = true;
        let largest = (0..self.sets.len()).max_by_key(|&at| self.sets[at].len());
        let stays_table = |set: &Set| {
            matches!(set, Set::Table(_))
                && set.len() > limits.packed_entries.max(limits.intset_entries)
        };
        let largest = largest.filter(|&at| stays_table(&self.sets[at]));
        largest.map(|at| self.sets.remove(at)).unwrap_or_default()
    }

    /// Whether it should be done in slices.
    fn is_long(&self) -> bool {
        let work = match self.operation {
            SetOperation::Union => self.sets.iter().map(Set::len).sum(),
            _ => self.sets.first().map_or(0, |first| first.len() * self.sets.len()),
        };
        work > SLICED_MIN
    }

    /// Does all steps at once. `f` returns whether it wants more members.
    fn finish(&mut self, mut f: impl FnMut(Item<'_>) -> bool) {
        while self.step(&mut f) {}
    }

    /// Shows the next members. Returns whether there is more to do.
    fn step(&mut self, f: &mut dyn FnMut(Item<'_>) -> bool) -> bool {
        if self.at >= self.walked() {
            return false;
        }
        if let Some(gathering) = self.gathering {
            self.gather(gathering);
            return true;
        }
        let slice = self.slice();
        let Self { operation, hasher, ref sets, at, walk, may_repeat, ref mut gathered, .. } =
            *self;
        let last = sets.len() - 1;
        let mut wants_more = true;
        let mut room = IntegerText::new(0);
        let next = sets[at].walk(walk, slice, |member| {
            if !wants_more {
                return;
            }
            let shown = match (operation, &mut *gathered) {
                (SetOperation::Inter, _) => {
                    sets[1..].iter().all(|set| set.contains_item(member, hasher))
                }
                (SetOperation::Diff, Some(gathered)) => !gathered.contains_item(member, hasher),
                (SetOperation::Diff, None) => {
                    !sets[1..].iter().any(|set| set.contains_item(member, hasher))
                }
                (SetOperation::Union, _) if at == 0 || may_repeat => true,
                (SetOperation::Union, _) if sets[0].contains_item(member, hasher) => false,
                (SetOperation::Union, gathered) => {
                    let seen = gathered.get_or_insert_default();
                    if at == last {
                        !seen.contains_item(member, hasher)
                    } else {
                        seen.insert(member.text(&mut room), &GATHERED, hasher)
                    }
                }
            };
            if shown {
                wants_more = f(member);
            }
        });
        match next {
            Some(walk) => self.walk = walk,
            None => (self.at, self.walk) = (at + 1, Walk::default()),
        }
        wants_more && self.at < self.walked()
    }

    /// How many of the sets are walked.
    fn walked(&self) -> usize {
        match self.operation {
            SetOperation::Union => self.sets.len(),
            _ => self.sets.len().min(1),
        }
    }

    /// Whether gathering the members of all subtracted sets is less work than looking members up in
    /// each of them.
    fn should_gather(&self) -> bool {
        self.operation == SetOperation::Diff && self.sets.len() > 2 && {
            let others: usize = self.sets[1..].iter().map(Set::len).sum();
            others < self.sets[0].len() * (self.sets.len() - 2)
        }
    }

    /// Gathers the next members.
    fn gather(&mut self, (at, walk): (usize, Walk)) {
        let Self { ref sets, hasher, ref mut gathered, .. } = *self;
        let gathered = gathered.get_or_insert_default();
        let mut room = IntegerText::new(0);
        let next = sets[at].walk(walk, SLICE, |member| {
            gathered.insert(member.text(&mut room), &GATHERED, hasher);
        });
        self.gathering = match next {
            Some(walk) => Some((at, walk)),
            None => Some((at + 1, Walk::default())).filter(|(at, _)| *at < sets.len()),
        };
    }

    /// How many members are handled in a step. Each may be looked up in every set.
    fn slice(&self) -> usize {
        (LOOKUPS / self.sets.len()).clamp(1, SLICE)
    }
}

/// How many lookups there are between two looks at the clock, approximately.
const LOOKUPS: usize = 16 * SLICE;
/// A set for lookups should not be packed.
const GATHERED: SetLimits =
    SetLimits { intset_entries: 64, packed_entries: 8, packed_value_len: 64 };
