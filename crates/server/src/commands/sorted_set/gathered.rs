//! Elements that are gathered in any order, and then returned in the order of a sorted set.

use std::cmp::Ordering;
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::hash::BuildHasherDefault;

use bobbin_store::Hasher;
use bobbin_store::value::{SortedSet, SortedSetLimits};

use super::super::runs::Runs;

/// Members with scores, each member once. They are first gathered, then sorted, and then taken.
#[derive(Default)]
pub(super) struct Gathered {
    elements: Vec<GatheredElement>,
    /// The members, one behind the other.
    members: Vec<u8>,
    /// The length of the longest member.
    longest: usize,
    /// The element of each member, if members may come again.
    indexes: Indexes,
    /// How many elements are sorted.
    sorted: usize,
    runs: Runs,
}

struct GatheredElement {
    score: f64,
    /// Where its member begins, and the member's length.
    start: usize,
    len: usize,
}

/// Elements by the positions of their members' hashes. If another member has the same position, the
/// next one is used. There are many tables, so that none takes long to grow.
#[derive(Default)]
struct Indexes(Vec<ByPosition>);

type ByPosition = HashMap<u32, u32, BuildHasherDefault<Spread>>;

/// A hasher for keys that are parts of hashes already.
#[derive(Default)]
struct Spread(u64);

impl Gathered {
    /// For members that come again. `count` is about how many there are. There may be far fewer, if
    /// many sets have the same members.
    pub(super) fn of_repeated(count: usize) -> Self {
        let tables = (count / INDEXED).clamp(1, TABLES_MAX).next_power_of_two();
        let mut indexes = Indexes::default();
        indexes.0.resize_with(tables, HashMap::default);
        Self { indexes, ..Self::default() }
    }

    /// Adds a new member. The score must not be NaN.
    pub(super) fn push(&mut self, member: &[u8], score: f64) {
        let (start, len) = (self.members.len(), member.len());
        self.members.extend_from_slice(member);
        self.longest = self.longest.max(len);
        self.elements.push(GatheredElement { score, start, len });
    }

    /// Adds a member with a score. If the member exists, its score becomes the result of `merge`.
    /// The member can be found again only if `comes_again`.
    pub(super) fn merge(
        &mut self,
        member: &[u8],
        score: f64,
        comes_again: bool,
        hasher: &Hasher,
        merge: impl FnOnce(f64, f64) -> f64,
    ) {
        let mut position = hasher.hash(member).position();
        let table = self.indexes.table(position);
        loop {
            match table.entry(position) {
                Entry::Occupied(found) => {
                    let element = &mut self.elements[*found.get() as usize];
                    if element.member(&self.members) == member {
                        element.score = merge(element.score, score);
                        return;
                    }
                    position = position.wrapping_add(1);
                }
                Entry::Vacant(place) => {
                    if comes_again {
                        let index = u32::try_from(self.elements.len());
                        place.insert(index.expect("members fill memory before"));
                    }
                    break;
                }
            }
        }
        self.push(member, score);
    }

    pub(super) const fn len(&self) -> usize {
        self.elements.len()
    }

    /// Sorts the next `count` elements. Returns whether there are more.
    pub(super) fn sort_some(&mut self, count: usize) -> bool {
        let end = self.len().min(self.sorted.saturating_add(count));
        let members = &self.members;
        // The sort exploits existing order, which combined sorted sets mostly have.
        self.elements[self.sorted..end].sort_by(|one, other| one.compare(other, members));
        self.runs.push(self.sorted..end, |one, other| {
            self.elements[one].compare(&self.elements[other], members).is_lt()
        });
        self.sorted = end;
        end < self.len()
    }

    /// Takes the first of the remaining elements, once all are sorted.
    pub(super) fn next(&mut self) -> Option<(&[u8], f64)> {
        let index = self.next_index()?;
        let element = &self.elements[index];
        Some((element.member(&self.members), element.score))
    }

    fn next_index(&mut self) -> Option<usize> {
        let (elements, members) = (&self.elements, &self.members);
        self.runs.next(|one, other| elements[one].compare(&elements[other], members).is_lt())
    }

    /// Appends up to `count` elements to a set, which consists only of these. Returns whether there
    /// are more.
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
        // If more elements will follow, the large form was chosen already.
        if set.is_empty() && !set.is_indexed() {
            *set = SortedSet::for_elements(self.len(), self.longest, limits);
        }
        let elements = taken.iter().map(|&index| &self.elements[index]);
        let elements = elements.map(|element| (element.member(&self.members), element.score));
        set.append(elements, limits, hasher);
        taken.len() == count
    }
}

impl Indexes {
    /// The table of a position.
    fn table(&mut self, position: u32) -> &mut ByPosition {
        let number = (u64::from(position) * self.0.len() as u64) >> 32;
        &mut self.0[number as usize]
    }
}

impl std::hash::Hasher for Spread {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        debug_assert!(false, "only positions are hashed: {bytes:?}");
    }

    fn write_u32(&mut self, position: u32) {
        // The map uses the highest and the lowest bits to tell keys apart, and the highest bits of
        // all positions in a table are alike.
        self.0 = u64::from(position).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }
}

impl GatheredElement {
    fn member<'a>(&self, members: &'a [u8]) -> &'a [u8] {
        &members[self.start..self.start + self.len]
    }

    /// The order of a sorted set: by score, then by the members' bytes. No score may be NaN.
    fn compare(&self, other: &Self, members: &[u8]) -> Ordering {
        let scores = self.score.partial_cmp(&other.score).unwrap_or(Ordering::Equal);
        scores.then_with(|| self.member(members).cmp(other.member(members)))
    }
}

/// The highest average number of members in a table.
const INDEXED: usize = 1024;
/// All tables are made at once, before any member is known. This many take a megabyte.
const TABLES_MAX: usize = 1 << 15;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_claim_of_very_many_members_takes_little_memory() {
        for (count, tables) in [(0, 1), (3000, 2), (5 << 20, 8192), (usize::MAX, TABLES_MAX)] {
            assert_eq!(Gathered::of_repeated(count).indexes.0.len(), tables, "{count}");
        }
    }
}
