//! What is combined: sorted sets and plain sets, pinned.

use bobbin_store::value::set::Walk;
use bobbin_store::value::{CollectionRef, Item, Set, SortedSet};
use bobbin_store::{Hasher, ValueRef};

use crate::command::slices::SLICE;
use crate::command::{Call, Data, Failure, Key, Outcome};

/// A set that is combined with others, pinned; the members of a plain one have the score 1.
pub(super) enum Input {
    Nothing,
    Set(Set),
    SortedSet(SortedSet),
}

impl Input {
    pub(super) fn read_all(
        call: &mut Call<'_>,
        keys: impl Iterator<Item = usize>,
    ) -> Result<Vec<Self>, Failure> {
        keys.map(|at| {
            let key = call.key(at)?;
            Self::read(call.data, key)
        })
        .collect()
    }

    pub(super) fn read(data: &mut Data, key: Key<'_>) -> Result<Self, Failure> {
        let Some(entry) = data.read(key) else { return Ok(Self::Nothing) };
        match entry.value() {
            ValueRef::Collection(CollectionRef::Set(set)) => Ok(Self::Set(set.clone())),
            ValueRef::Collection(CollectionRef::SortedSet(set)) => Ok(Self::SortedSet(set.clone())),
            _ => Err(Failure::WRONG_TYPE),
        }
    }

    /// Whether it could be read.
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

    /// Whether nothing was changed between the two pins.
    pub(super) fn is_same(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Nothing, Self::Nothing) => true,
            (Self::SortedSet(one), Self::SortedSet(other)) => one.is_same(other),
            (Self::Set(one), Self::Set(other)) => one.is_same(other),
            _ => false,
        }
    }

    /// Shows some elements from a place on; returns where to go on, `None` at the end.
    pub(super) fn walk(&self, place: Place, mut visit: impl FnMut(Item<'_>, f64)) -> Option<Place> {
        match self {
            Self::Nothing => None,
            Self::Set(set) => {
                let walk = set.walk(place.walk, MEMBERS, |member| visit(member, 1.0))?;
                Some(Place { walk, ..place })
            }
            Self::SortedSet(set) => {
                let rank = place.rank + MEMBERS;
                set.range(place.rank..rank).for_each(|(member, score)| visit(member, score));
                (rank < set.len()).then_some(Place { rank, ..place })
            }
        }
    }
}

/// How far a set has been walked.
#[derive(Clone, Copy, Default)]
pub(super) struct Place {
    rank: usize,
    walk: Walk,
}

/// Members between two looks at the time: each is looked up in other sets, or put into a result, which for large ones are
/// several misses of all caches.
const MEMBERS: usize = SLICE / 4;
