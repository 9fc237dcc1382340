//! Elements that are gathered in any order, and then come in that of a sorted set.

use std::cmp::Ordering;

use bobbin_store::Hasher;
use bobbin_store::value::pages::{Given, Table};
use bobbin_store::value::{SortedSet, SortedSetLimits};

use super::super::runs::Runs;

/// Members with scores, each member once. They are gathered first, then sorted, and then taken.
#[derive(Default)]
pub(super) struct Gathered {
    elements: Vec<Element>,
    /// The members, one after the other.
    members: Vec<u8>,
    /// The longest of them.
    longest: usize,
    /// Which element a member is, as eight bytes, where members may come again.
    indexes: Option<Table>,
    /// How many elements have been sorted.
    sorted: usize,
    runs: Runs,
}

struct Element {
    score: f64,
    /// Where its member begins, and how long that is.
    start: usize,
    len: usize,
}

impl Gathered {
    /// Adds a member that is not there yet. The score is not NaN.
    pub(super) fn push(&mut self, member: &[u8], score: f64) {
        let (start, len) = (self.members.len(), member.len());
        self.members.extend_from_slice(member);
        self.longest = self.longest.max(len);
        self.elements.push(Element { score, start, len });
    }

    /// Adds a member with a score, or gives one that is there the score that `merge` makes of both.
    /// Members that were pushed are not found.
    pub(super) fn merge(
        &mut self,
        member: &[u8],
        score: f64,
        hasher: &Hasher,
        merge: impl FnOnce(f64, f64) -> f64,
    ) {
        let indexes = self.indexes.get_or_insert_with(|| Table::new(true));
        let index = self.elements.len().to_le_bytes();
        let new = Some(Given::Bytes(&index[..]));
        if let Some(place) = indexes.find_or_insert(Given::Bytes(member), new, hasher) {
            let value = indexes.record(place).value.map_or(&[][..], |value| value.bytes());
            let index = usize::from_le_bytes(value.try_into().expect("every value is an index"));
            let old = &mut self.elements[index].score;
            *old = merge(*old, score);
            return;
        }
        self.push(member, score);
    }

    pub(super) const fn len(&self) -> usize {
        self.elements.len()
    }

    /// Sorts the next `count` of them. Returns whether there are more.
    pub(super) fn sort_some(&mut self, count: usize) -> bool {
        let end = self.len().min(self.sorted.saturating_add(count));
        let members = &self.members;
        // It makes use of what is in order already, which is most where sorted sets are combined.
        self.elements[self.sorted..end].sort_by(|one, other| one.compare(other, members));
        self.runs.push(self.sorted..end, |one, other| {
            self.elements[one].compare(&self.elements[other], members).is_lt()
        });
        self.sorted = end;
        end < self.len()
    }

    /// Takes the first of those that are left, once all are sorted.
    pub(super) fn next(&mut self) -> Option<(&[u8], f64)> {
        let index = self.next_index()?;
        let element = &self.elements[index];
        Some((element.member(&self.members), element.score))
    }

    fn next_index(&mut self) -> Option<usize> {
        let (elements, members) = (&self.elements, &self.members);
        self.runs.next(|one, other| elements[one].compare(&elements[other], members).is_lt())
    }

    /// Takes up to `count` of them and puts them behind all in a set, which these make up. Returns
    /// whether there are more.
    pub(super) fn append_some(
        &mut self,
        count: usize,
        set: &mut SortedSet,
        limits: SortedSetLimits,
        hasher: &Hasher,
    ) -> bool {
        let mut taken = Vec::with_capacity(count.min(self.len()));
        while taken.len() < count
            && let Some(index) = self.next_index()
        {
            taken.push(index);
        }
        let elements = taken.iter().map(|&index| &self.elements[index]);
        let elements = elements.map(|element| (element.member(&self.members), element.score));
        set.append(elements, limits.for_many(self.len(), self.longest), hasher);
        taken.len() == count
    }
}

impl Element {
    fn member<'a>(&self, members: &'a [u8]) -> &'a [u8] {
        &members[self.start..self.start + self.len]
    }

    /// The order of a sorted set: by score, then by the members' bytes. No score is NaN.
    fn compare(&self, other: &Self, members: &[u8]) -> Ordering {
        let scores = self.score.partial_cmp(&other.score).unwrap_or(Ordering::Equal);
        scores.then_with(|| self.member(members).cmp(other.member(members)))
    }
}
