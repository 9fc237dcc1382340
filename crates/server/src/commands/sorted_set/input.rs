//! The inputs of combinations: pinned sorted sets and plain sets.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::Arc;

use bobbin_store::value::integer::IntegerText;
use bobbin_store::value::set::Walk;
use bobbin_store::value::{CollectionRef, Item, Set, SortedSet};
use bobbin_store::{EntryRef, Hasher, ValueRef};

use super::super::repeats::MANY;
use crate::engine::command::data::Look;
use crate::engine::command::{Call, Data, Failure, Key, Outcome};
use crate::engine::execution::slices::SLICE;

/// A pinned set that is combined with others. Members of a plain set have the score 1.
pub(super) enum SetInput {
    Nothing,
    Set(Set),
    SortedSet(SortedSet),
}

impl SetInput {
    pub(super) fn read_all(
        call: &mut Call<'_>,
        keys: impl Iterator<Item = usize>,
    ) -> Result<Vec<Arc<Self>>, Failure> {
        let keys = keys.map(|at| call.key(at)).collect::<Result<Vec<_>, _>>()?;
        Self::at_keys(call.data, keys.into_iter(), Data::read)
    }

    /// Pins the sets at these keys. A set that is named again is pinned once, because pinning
    /// copies a small set.
    pub(super) fn at_keys<'k>(
        data: &mut Data,
        keys: impl ExactSizeIterator<Item = Key<'k>>,
        look: Look,
    ) -> Result<Vec<Arc<Self>>, Failure> {
        let mut known = (keys.len() > MANY).then(HashMap::new);
        keys.map(|key| {
            let known = match &mut known {
                Some(known) => match known.entry(key.bytes) {
                    Entry::Occupied(known) => return Ok(Arc::clone(known.get())),
                    Entry::Vacant(vacant) => Some(vacant),
                },
                None => None,
            };
            let input = Arc::new(Self::of(look(data, key))?);
            known.into_iter().for_each(|vacant| _ = vacant.insert(Arc::clone(&input)));
            Ok(input)
        })
        .collect()
    }

    fn of(entry: Option<EntryRef<'_>>) -> Result<Self, Failure> {
        let Some(entry) = entry else { return Ok(Self::Nothing) };
        match entry.value() {
            ValueRef::Collection(CollectionRef::Set(set)) => Ok(Self::Set(set.clone())),
            ValueRef::Collection(CollectionRef::SortedSet(set)) => Ok(Self::SortedSet(set.clone())),
            _ => Err(Failure::WRONG_TYPE),
        }
    }

    /// Checks whether the key can be read.
    pub(super) fn check(data: &mut Data, key: Key<'_>) -> Outcome {
        match data.peek(key).map(|entry| entry.value()) {
            None
            | Some(ValueRef::Collection(CollectionRef::Set(_) | CollectionRef::SortedSet(_))) => {
                Ok(())
            }
            Some(_) => Err(Failure::WRONG_TYPE),
        }
    }

    pub(super) fn len(&self) -> usize {
        match self {
            Self::Nothing => 0,
            Self::Set(set) => set.len(),
            Self::SortedSet(set) => set.len(),
        }
    }

    pub(super) fn score(&self, member: &[u8], hasher: &Hasher) -> Option<f64> {
        match self {
            Self::Nothing => None,
            Self::Set(set) => set.contains(member, hasher).then_some(1.0),
            Self::SortedSet(set) => set.score(member, hasher),
        }
    }

    /// Whether nothing changed between two pins.
    pub(super) fn is_same(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Nothing, Self::Nothing) => true,
            (Self::SortedSet(one), Self::SortedSet(other)) => one.is_same(other),
            (Self::Set(one), Self::Set(other)) => one.is_same(other),
            _ => false,
        }
    }

    /// Shows some elements from a place on. Returns the next place; `None` at the end. `others` is
    /// the number of sets in which each element is looked up.
    pub(super) fn walk(
        &self,
        place: SetPlace,
        others: usize,
        mut visit: impl FnMut(Item<'_>, f64),
    ) -> Option<SetPlace> {
        let members = members_a_step(others);
        match self {
            Self::Nothing => None,
            Self::Set(set) => {
                let walk = set.walk(place.walk, members, |member| visit(member, 1.0))?;
                Some(SetPlace { walk, ..place })
            }
            Self::SortedSet(set) => {
                let rank = place.rank + members;
                set.range(place.rank..rank).for_each(|(member, score)| visit(member, score));
                (rank < set.len()).then_some(SetPlace { rank, ..place })
            }
        }
    }

    /// Does the same as `walk` for members that another set has too. `others` includes that set. At
    /// most `count` members are useful.
    pub(super) fn walk_common(
        &self,
        other: &Self,
        place: SetPlace,
        others: usize,
        count: usize,
        hasher: &Hasher,
        mut visit: impl FnMut(&[u8]),
    ) -> Option<SetPlace> {
        if let (Self::SortedSet(one), Self::SortedSet(other)) = (self, other)
            && one.is_indexed()
            && other.is_indexed()
        {
            let members = members_a_step(others).min(count);
            let position = one.walk_common(other, place.position, members, hasher, visit)?;
            return Some(SetPlace { position, ..place });
        }
        let mut room = IntegerText::new(0);
        self.walk(place, others, |member, _| {
            let member = member.text(&mut room);
            if std::ptr::eq(self, other) || other.score(member, hasher).is_some() {
                visit(member);
            }
        })
    }
}

/// How far a set was walked.
#[derive(Clone, Copy, Default)]
pub(super) struct SetPlace {
    rank: usize,
    walk: Walk,
    /// A position of members' hashes.
    position: u32,
}

/// How many members are shown at once. Each is looked up in `others` sets.
fn members_a_step(others: usize) -> usize {
    (LOOKUPS / others.max(1)).clamp(1, MEMBERS)
}

/// How many members are handled between two looks at the clock. Each is looked up in other sets or
/// added to a result, which in large sets causes several cache misses.
const MEMBERS: usize = SLICE / 2;
/// How many members are looked up between two looks at the clock, approximately.
const LOOKUPS: usize = 16 * SLICE;
