//! Sorted sets.

mod index;
mod large;
mod leaf;
mod packed;
#[cfg(test)]
mod tests;

use std::cmp::Ordering;
use std::ops::Range;

use large::{LargeSortedSet, SortedSetCursor};

use super::cow::Cow;
use super::integer::IntegerText;
use super::listpack::{EntryFilter, Item, Listpack, ListpackIter, ListpackPosition};
use super::pages::PREFETCHED;
use crate::hash::Hasher;
use crate::value::{Defragmenter, Encoding};

/// Members with scores, in the order of scores and then of the members' bytes.
///
/// All calls must pass the keyspace's hasher.
#[derive(Clone)]
pub enum SortedSet {
    Packed(Listpack),
    Large(Cow<LargeSortedSet>),
}

/// The limits of a packed sorted set.
#[derive(Clone, Copy, Debug)]
pub struct SortedSetLimits {
    pub packed_entries: usize,
    /// The longest member in bytes.
    pub packed_value_len: usize,
}

impl SortedSetLimits {
    /// Whether as many elements fit, the longest member of which has `longest` bytes.
    const fn pack(self, count: usize, longest: usize) -> bool {
        count <= self.packed_entries && longest <= self.packed_value_len
    }
}

/// The options' defaults.
impl Default for SortedSetLimits {
    fn default() -> Self {
        Self { packed_entries: 128, packed_value_len: 64 }
    }
}

/// The elements in order, or in reverse by `rev()`.
#[derive(Clone)]
pub struct SortedSetIter<'a>(Elements<'a>);

#[derive(Clone)]
enum Elements<'a> {
    Packed(ListpackIter<'a>),
    Large { set: &'a LargeSortedSet, left: usize, front: SortedSetCursor, back: SortedSetCursor },
}

impl SortedSet {
    pub fn new() -> Self {
        Self::Packed(Listpack::new())
    }

    /// An empty set in the form for that many elements, the longest member of which has `longest`
    /// bytes. For a set that is filled in steps, so that it keeps its form.
    pub fn for_elements(count: usize, longest: usize, limits: SortedSetLimits) -> Self {
        if !limits.pack(count, longest) {
            Self::Large(Cow::new(LargeSortedSet::with_room(count)))
        } else {
            Self::new()
        }
    }

    /// See [`Collection::defragment`](super::Collection::defragment).
    pub(crate) fn defragment(&mut self, from: usize, defragmenter: &mut Defragmenter<'_>) -> usize {
        match self {
            Self::Packed(pack) => {
                pack.defragment(defragmenter);
                0
            }
            Self::Large(large) => {
                let large = large.defragment(from, defragmenter);
                large.map_or(0, |large| large.defragment(from, defragmenter))
            }
        }
    }

    /// Adds a member or changes its score. Returns the old score. The score must not be NaN.
    #[inline]
    pub fn insert(
        &mut self,
        member: &[u8],
        score: f64,
        limits: SortedSetLimits,
        hasher: &Hasher,
    ) -> Option<f64> {
        self.update(member, limits, hasher, |_| Some(score))
    }

    /// Sets a member's score to what `decide` makes of the old one, or leaves it as it is. Returns
    /// the old score. The new score must not be NaN.
    #[inline]
    pub fn update(
        &mut self,
        member: &[u8],
        limits: SortedSetLimits,
        hasher: &Hasher,
        decide: impl FnOnce(Option<f64>) -> Option<f64>,
    ) -> Option<f64> {
        match self {
            Self::Large(large) => LargeSortedSet::update(large, member, hasher, decide),
            Self::Packed(pack) => {
                if let Some((position, old_score)) = packed::find(pack, member) {
                    if let Some(score) = decide(Some(old_score))
                        && score != old_score
                    {
                        packed::remove(pack, position);
                        packed::insert(pack, member, score);
                    }
                    return Some(old_score);
                }
                let score = decide(None)?;
                self.insert_absent(member, score, limits, hasher);
                None
            }
        }
    }

    /// Prefetches members, a few at a time.
    #[inline]
    pub fn prefetch<'a>(&self, members: impl ExactSizeIterator<Item = &'a [u8]>, hasher: &Hasher) {
        if let Self::Large(large) = self {
            large.prefetch(members, hasher);
        }
    }

    /// Sets the scores of members, as [`Self::update`] does; `decide` is also told the member's
    /// index. If a packed set cannot have as many members, or members as long, it takes the large
    /// form first, as in Redis, even if some of them are the same.
    pub fn update_all<'a>(
        &mut self,
        mut members: impl ExactSizeIterator<Item = &'a [u8]> + Clone,
        limits: SortedSetLimits,
        hasher: &Hasher,
        mut decide: impl FnMut(usize, Option<f64>) -> Option<f64>,
    ) {
        let count = members.len();
        let longest = members.clone().map(<[u8]>::len).max().unwrap_or(0);
        if !limits.pack(count, longest) {
            self.enlarge(count, hasher);
        }
        let mut filter = match self {
            Self::Packed(pack) => EntryFilter::of(pack, 2, count, hasher),
            Self::Large(_) => EntryFilter::unused(hasher),
        };
        for (index, member) in members.clone().enumerate() {
            if index.is_multiple_of(PREFETCHED) {
                self.prefetch(members.by_ref().take(PREFETCHED), hasher);
            }
            if filter.add(member) {
                self.update(member, limits, hasher, |old_score| decide(index, old_score));
            } else if let Some(score) = decide(index, None) {
                self.insert_absent(member, score, limits, hasher);
            }
        }
    }

    /// Adds a member that is not there.
    fn insert_absent(
        &mut self,
        member: &[u8],
        score: f64,
        limits: SortedSetLimits,
        hasher: &Hasher,
    ) {
        match self {
            Self::Packed(pack)
                if limits.pack(pack.len() / 2 + 1, member.len())
                    && pack.has_room(2, member.len()) =>
            {
                packed::insert(pack, member, score);
            }
            _ => {
                LargeSortedSet::update(self.enlarge(0, hasher), member, hasher, |_| Some(score));
            }
        }
    }

    /// Removes a member. Returns its score, if it existed.
    pub fn remove(&mut self, member: &[u8], hasher: &Hasher) -> Option<f64> {
        match self {
            Self::Large(large) => LargeSortedSet::remove(large, member, hasher),
            Self::Packed(pack) => {
                let (position, score) = packed::find(pack, member)?;
                packed::remove(pack, position);
                Some(score)
            }
        }
    }

    /// Removes the elements with these ranks. The range may reach past the end.
    pub fn remove_range(&mut self, ranks: Range<usize>, hasher: &Hasher) {
        let ranks = self.clamp(ranks);
        match self {
            Self::Large(large) => large.make_mut().remove_range(ranks, hasher),
            Self::Packed(pack) => pack.remove_range(ranks.start * 2, ranks.len() * 2),
        }
    }

    /// Appends elements behind all others. They come in order, and no member exists yet. Packing
    /// turns a score of -0 into 0. So a set that is filled in steps and becomes large must not be
    /// packed meanwhile: see [`Self::for_elements`].
    pub fn append<'a>(
        &mut self,
        elements: impl Iterator<Item = (&'a [u8], f64)> + Clone,
        limits: SortedSetLimits,
        hasher: &Hasher,
    ) {
        let large = match self {
            Self::Large(large) => large.make_mut(),
            Self::Packed(pack) => {
                let (mut count, mut bytes, mut longest) = (pack.len() / 2, 0, 0);
                for (member, _) in elements.clone() {
                    count += 1;
                    bytes += member.len();
                    longest = longest.max(member.len());
                }
                if limits.pack(count, longest) && pack.has_room(count * 2, bytes) {
                    return elements.for_each(|(member, score)| packed::push(pack, member, score));
                }
                self.enlarge(0, hasher).make_mut()
            }
        };
        large.append(elements, hasher);
    }

    /// A sorted set from a foreign, unchecked listpack. `None`: its entries are not alternating
    /// members and scores, or a member is there twice. They need not be in order.
    pub fn from_listpack(pack: Listpack, limits: SortedSetLimits, hasher: &Hasher) -> Option<Self> {
        if packed::is_in_order(&pack, limits, hasher) {
            return Some(Self::Packed(pack));
        }
        let mut set = Self::new();
        let mut entries = pack.iter();
        let mut room = IntegerText::new(0);
        while let Some(member) = entries.next() {
            let score = packed::score_from_elsewhere(entries.next()?)?;
            if set.insert(member.text(&mut room), score, limits, hasher).is_some() {
                return None;
            }
        }
        Some(set)
    }

    #[inline]
    pub fn score(&self, member: &[u8], hasher: &Hasher) -> Option<f64> {
        match self {
            Self::Large(large) => large.score(member, hasher),
            Self::Packed(pack) => packed::find(pack, member).map(|(_, score)| score),
        }
    }

    /// Calls `visit` with what [`Self::score`] returns for each member.
    pub fn score_all(
        &self,
        members: &[&[u8]],
        hasher: &Hasher,
        mut visit: impl FnMut(Option<f64>),
    ) {
        for members in members.chunks(PREFETCHED) {
            self.prefetch(members.iter().copied(), hasher);
            members.iter().for_each(|member| visit(self.score(member, hasher)));
        }
    }

    /// How many elements come before the member's, and its score.
    pub fn rank(&self, member: &[u8], hasher: &Hasher) -> Option<(usize, f64)> {
        match self {
            Self::Large(large) => large.rank(member, hasher),
            Self::Packed(pack) => {
                let mut found = None;
                let rank = packed::partition(pack, |other, score| {
                    found = (other == member).then_some(score);
                    found.is_none()
                });
                found.map(|score| (rank, score))
            }
        }
    }

    /// How many elements have a score below this one, or not above it (`inclusive`).
    pub fn rank_below_score(&self, score: f64, inclusive: bool) -> usize {
        match self {
            Self::Large(large) => large.rank_below_score(score, inclusive),
            Self::Packed(pack) => {
                packed::partition(
                    pack,
                    |_, other| {
                        if inclusive { other <= score } else { other < score }
                    },
                )
            }
        }
    }

    /// How many members come before this one, or not behind it (`inclusive`). The result is useful
    /// only if all members have the same score.
    pub fn rank_below_member(&self, member: &[u8], inclusive: bool) -> usize {
        match self {
            Self::Large(large) => large.rank_below_member(member, inclusive),
            Self::Packed(pack) => {
                let mut room = IntegerText::new(0);
                packed::partition(pack, |other, _| match other.text(&mut room).cmp(member) {
                    Ordering::Less => true,
                    Ordering::Equal => inclusive,
                    Ordering::Greater => false,
                })
            }
        }
    }

    /// The element with this rank.
    pub fn get(&self, rank: usize) -> Option<(Item<'_>, f64)> {
        self.range(rank..rank.saturating_add(1)).next()
    }

    /// Where all elements lie, by rank, if `get` walks to each of them; else nothing.
    pub fn places(&self) -> Vec<ListpackPosition> {
        match self {
            Self::Packed(pack) => pack.positions(2).collect(),
            Self::Large(_) => Vec::new(),
        }
    }

    /// The element at one of `places`.
    pub fn element(&self, place: ListpackPosition) -> Option<(Item<'_>, f64)> {
        match self {
            Self::Packed(pack) => SortedSetIter(Elements::Packed(pack.iter_from(place))).next(),
            Self::Large(_) => None,
        }
    }

    pub fn iter(&self) -> SortedSetIter<'_> {
        self.range(0..usize::MAX)
    }

    /// The elements with these ranks. The range may reach past the end.
    pub fn range(&self, ranks: Range<usize>) -> SortedSetIter<'_> {
        let ranks = self.clamp(ranks);
        SortedSetIter(match self {
            Self::Packed(pack) => Elements::Packed(pack.slice(ranks.start * 2..ranks.end * 2)),
            Self::Large(set) => Elements::Large {
                set,
                left: ranks.len(),
                front: set.cursor(ranks.start),
                back: set.cursor(ranks.end),
            },
        })
    }

    /// Calls `visit` with about `count` elements from a cursor on. Returns the next cursor; zero at
    /// the end. An element that exists from the first call to the last is visited, whatever else
    /// changes.
    pub fn scan(
        &self,
        cursor: u64,
        count: usize,
        hasher: &Hasher,
        mut visit: impl FnMut(Item<'_>, f64),
    ) -> u64 {
        match self {
            Self::Packed(_) => {
                self.iter().for_each(|(member, score)| visit(member, score));
                0
            }
            Self::Large(large) => {
                // No cursor that we returned is that large.
                let Ok(from) = u32::try_from(cursor) else { return 0 };
                let next = large.scan(from, count, hasher, |member, score| {
                    visit(Item::Bytes(member), score);
                });
                next.map_or(0, u64::from)
            }
        }
    }

    /// Whether this set can be used with `walk_common`.
    pub const fn is_indexed(&self) -> bool {
        matches!(self, Self::Large(_))
    }

    /// Calls `visit` with members that another set has too, out of about `count` from a place on (0
    /// at first). Returns the next place; `None` at the end. Both sets must be indexed.
    pub fn walk_common(
        &self,
        other: &Self,
        from: u32,
        count: usize,
        hasher: &Hasher,
        visit: impl FnMut(&[u8]),
    ) -> Option<u32> {
        match (self, other) {
            (Self::Large(one), Self::Large(other)) => {
                one.walk_common(other, from, count, hasher, visit)
            }
            _ => unreachable!("both are indexed"),
        }
    }

    /// Whether one is a clone of the other, and neither has changed since.
    pub fn is_same(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Large(one), Self::Large(other)) => {
                std::ptr::eq::<LargeSortedSet>(&**one, &**other)
            }
            (Self::Packed(one), Self::Packed(other)) => one == other,
            _ => false,
        }
    }

    #[inline]
    pub fn len(&self) -> usize {
        match self {
            Self::Large(large) => large.len(),
            Self::Packed(pack) => pack.len() / 2,
        }
    }

    #[inline]
    pub fn is_empty(&self) -> bool {
        match self {
            Self::Large(large) => large.len() == 0,
            Self::Packed(pack) => pack.is_empty(),
        }
    }

    /// Bytes of memory. For a large set this is an estimate.
    pub fn memory(&self) -> usize {
        match self {
            Self::Large(large) => large.memory(),
            Self::Packed(pack) => pack.memory(),
        }
    }

    pub const fn encoding(&self) -> Encoding {
        match self {
            Self::Large(_) => Encoding::Skiplist,
            Self::Packed(_) => Encoding::Listpack,
        }
    }

    /// How many blocks of memory must be freed.
    pub fn free_effort(&self) -> usize {
        match self {
            Self::Large(large) => large.blocks(),
            Self::Packed(_) => 1,
        }
    }

    fn clamp(&self, ranks: Range<usize>) -> Range<usize> {
        let end = ranks.end.min(self.len());
        ranks.start.min(end)..end
    }

    /// Converts it to the large form, which will get `added` more elements.
    #[cold]
    fn enlarge(&mut self, added: usize, hasher: &Hasher) -> &mut Cow<LargeSortedSet> {
        if let Self::Packed(_) = self {
            let mut large = Cow::new(LargeSortedSet::with_room(added));
            let mut room = IntegerText::new(0);
            for (member, score) in self.iter() {
                LargeSortedSet::update(&mut large, member.text(&mut room), hasher, |_| Some(score));
            }
            *self = Self::Large(large);
        }
        let Self::Large(large) = self else { unreachable!("it was just made") };
        large
    }
}

impl Default for SortedSet {
    fn default() -> Self {
        Self::new()
    }
}

impl std::fmt::Debug for SortedSet {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_list().entries(self.iter()).finish()
    }
}

impl SortedSetIter<'_> {
    /// How many elements are left.
    pub fn remaining(&self) -> usize {
        match &self.0 {
            Elements::Packed(entries) => entries.clone().count() / 2,
            Elements::Large { left, .. } => *left,
        }
    }
}

impl<'a> Iterator for SortedSetIter<'a> {
    type Item = (Item<'a>, f64);

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        match &mut self.0 {
            Elements::Packed(entries) => {
                let member = entries.next()?;
                Some((member, packed::score_of(entries.next()?)))
            }
            Elements::Large { set, left, front, .. } => {
                *left = left.checked_sub(1)?;
                set.next(front).map(|(member, score)| (Item::Bytes(member), score))
            }
        }
    }
}

impl DoubleEndedIterator for SortedSetIter<'_> {
    #[inline]
    fn next_back(&mut self) -> Option<Self::Item> {
        match &mut self.0 {
            Elements::Packed(entries) => {
                let score = packed::score_of(entries.next_back()?);
                Some((entries.next_back()?, score))
            }
            Elements::Large { set, left, back, .. } => {
                *left = left.checked_sub(1)?;
                set.previous(back).map(|(member, score)| (Item::Bytes(member), score))
            }
        }
    }
}
