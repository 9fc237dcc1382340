//! A large sorted set: leaves of packed members in a tree by score and member, and an index from
//! members to leaves.

use std::ops::Range;

use super::index::{Index, SharedPosition};
use super::leaf::{Leaf, ScoredMember};
use crate::hash::{Hasher, KeyHash};
use crate::value::Defragmenter;
use crate::value::cow::Cow;
use crate::value::defrag::Movable;
use crate::value::directory::Directory;
use crate::value::pages::{PREFETCHED, PREFETCHED_MIN};
use crate::value::tags::FOUND_MAX;
use crate::value::tree::{Path, Side, Tree};

/// A large sorted set. The tree holds the leaves' numbers. A number is valid as long as its leaf
/// exists. A leaf has at most `LEAF_LEN_MAX` bytes or a single element.
#[derive(Clone)]
pub struct LargeSortedSet {
    tree: Tree<u32, Separator>,
    leaves: Directory<Leaf>,
    /// Numbers without a leaf.
    free: Vec<u32>,
    index: Index,
}

/// The least (score, member) that the leaf behind it may hold. The member is cut off after the
/// bytes that make it greater than all members of the leaf before it.
#[derive(Clone, Default, Debug)]
struct Separator {
    score: f64,
    member: Box<[u8]>,
}

impl Movable for Separator {
    fn defragment(&mut self, defragmenter: &mut Defragmenter<'_>) {
        defragmenter.bytes(&mut self.member);
    }
}

/// A position in the order: a leaf, and the index of one of its elements.
#[derive(Clone, Copy)]
pub(super) struct SortedSetCursor {
    path: Path,
    index: usize,
}

impl LargeSortedSet {
    /// An empty set that will get `count` elements.
    pub(super) fn with_room(count: usize) -> Self {
        let mut leaves = Directory::new();
        leaves.push(Leaf::new());
        let index = Index::with_room(count);
        Self { tree: Tree::new(0, 0), leaves, free: Vec::new(), index }
    }

    /// See [`super::SortedSet::defragment`]. The parts are the leaves, then the index's pages, and
    /// then the elements of the tree.
    pub(super) fn defragment(&mut self, from: usize, defragmenter: &mut Defragmenter<'_>) -> usize {
        let pages_at = self.leaves.len();
        let tree_at = pages_at + self.index.pages();
        let mut part = from;
        if part == 0 {
            defragmenter.vector(&mut self.free);
        }
        if part < pages_at {
            part = self.leaves.defragment(part, defragmenter);
        }
        if (pages_at..tree_at).contains(&part) && !defragmenter.is_spent() {
            part = pages_at + self.index.defragment(part - pages_at, defragmenter);
        }
        if part >= tree_at && !defragmenter.is_spent() {
            match self.tree.defragment(part - tree_at, defragmenter) {
                0 => return 0,
                element => part = tree_at + element,
            }
        }
        part
    }

    /// Prefetches what a search for some members reads, a few at a time.
    pub(super) fn prefetch<'a>(
        &self,
        members: impl ExactSizeIterator<Item = &'a [u8]>,
        hasher: &Hasher,
    ) {
        if !self.exceeds_caches() || members.len() < 2 {
            return;
        }
        let mut positions = [0; PREFETCHED];
        let positions = &mut positions[..members.len().min(PREFETCHED)];
        for (position, member) in positions.iter_mut().zip(members) {
            *position = hasher.hash(member).position();
            self.index.prefetch(*position);
        }
        for &mut position in positions {
            self.index
                .leaves(position)
                .for_each(|number| self.leaves.get(number as usize).prefetch());
        }
    }

    const fn exceeds_caches(&self) -> bool {
        self.len() >= PREFETCHED_MIN
    }

    /// Sets a member's score to what `decide` makes of the old one, or leaves it as it is. Returns
    /// the old score. Only a change copies a set that is shared.
    pub(super) fn update(
        shared: &mut Cow<Self>,
        member: &[u8],
        hasher: &Hasher,
        decide: impl FnOnce(Option<f64>) -> Option<f64>,
    ) -> Option<f64> {
        let hash = hasher.hash(member);
        let Some((number, index)) = shared.find(member, hash) else {
            let element = ScoredMember { score: decide(None)?, member, tag: tag(hash.position()) };
            let own = shared.make_mut();
            let number = own.attach(element, hasher);
            own.index.insert(hash.position(), number);
            return None;
        };
        let leaf = shared.leaves.get(number as usize);
        let old_score = leaf.score(index);
        let Some(score) = decide(Some(old_score)).filter(|&score| score != old_score) else {
            return Some(old_score);
        };
        let element = ScoredMember { score, member, tag: tag(hash.position()) };
        let keeps_place = keeps_place(leaf, index, element);
        let own = shared.make_mut();
        if keeps_place {
            own.leaves.get_mut(number as usize).set_score(index, score);
            return Some(old_score);
        }
        let path = own.path_of(old_score, member);
        own.detach(&path, index, hasher);
        let new_number = own.attach(element, hasher);
        own.index.replace(hash.position(), number, new_number);
        Some(old_score)
    }

    /// Removes a member. Returns its score, if it existed. If it did not, a set that is shared is
    /// not copied.
    pub(super) fn remove(shared: &mut Cow<Self>, member: &[u8], hasher: &Hasher) -> Option<f64> {
        let hash = hasher.hash(member);
        let (number, index) = shared.find(member, hash)?;
        let own = shared.make_mut();
        let score = own.leaves.get(number as usize).score(index);
        let path = own.path_of(score, member);
        own.index.remove(hash.position(), number);
        own.detach(&path, index, hasher);
        Some(score)
    }

    /// Removes the elements with these ranks.
    pub(super) fn remove_range(&mut self, ranks: Range<usize>, hasher: &Hasher) {
        let mut left = ranks.len();
        while left > 0 {
            let (path, first) = self.tree.seek_rank(ranks.start);
            let number = *self.tree.leaf(&path);
            let leaf = self.leaves.get(number as usize);
            let last = leaf.count().min(first + left);
            for element in leaf.elements(first..last) {
                self.index.remove(hasher.hash(element.member).position(), number);
            }
            left -= last - first;
            self.leaves.get_mut(number as usize).remove_range(first, last);
            self.tree.add(&path, -((last - first) as isize));
            self.tidy(&path, hasher);
        }
    }

    pub(super) fn score(&self, member: &[u8], hasher: &Hasher) -> Option<f64> {
        let (number, index) = self.find(member, hasher.hash(member))?;
        Some(self.leaves.get(number as usize).score(index))
    }

    pub(super) fn rank(&self, member: &[u8], hasher: &Hasher) -> Option<(usize, f64)> {
        let (number, index) = self.find(member, hasher.hash(member))?;
        let score = self.leaves.get(number as usize).score(index);
        Some((self.tree.rank(&self.path_of(score, member)) + index, score))
    }

    /// How many elements have a score below this one, or not above it (`inclusive`).
    pub(super) fn rank_below_score(&self, score: f64, inclusive: bool) -> usize {
        let below = |other: f64| if inclusive { other <= score } else { other < score };
        let (path, rank) = self.tree.seek_counting(|separator| below(separator.score));
        rank + self.leaf(&path).partition(|index, leaf| below(leaf.score(index)))
    }

    /// How many members come before this one, or not behind it (`inclusive`), if all have the same
    /// score.
    pub(super) fn rank_below_member(&self, member: &[u8], inclusive: bool) -> usize {
        let first = self.leaf(&self.tree.first());
        if first.count() == 0 {
            return 0;
        }
        let score = first.score(0);
        let below = |other: &[u8]| if inclusive { other <= member } else { other < member };
        let (path, rank) = self.tree.seek_counting(|separator| {
            separator.score < score || separator.score == score && below(&separator.member)
        });
        rank + self.leaf(&path).partition(|index, leaf| below(leaf.member(index)))
    }

    /// The position of the element with this rank.
    pub(super) fn cursor(&self, rank: usize) -> SortedSetCursor {
        let (path, index) = self.tree.seek_rank(rank);
        SortedSetCursor { path, index }
    }

    /// The element at a cursor. The cursor moves to the next one.
    #[inline]
    pub(super) fn next(&self, cursor: &mut SortedSetCursor) -> Option<(&[u8], f64)> {
        let mut leaf = self.leaf(&cursor.path);
        if cursor.index >= leaf.count() {
            *cursor = SortedSetCursor { path: self.tree.next(&cursor.path)?, index: 0 };
            leaf = self.leaf(&cursor.path);
        }
        let index = cursor.index;
        cursor.index += 1;
        Some((leaf.member(index), leaf.score(index)))
    }

    /// The element before a cursor. The cursor moves to it.
    #[inline]
    pub(super) fn previous(&self, cursor: &mut SortedSetCursor) -> Option<(&[u8], f64)> {
        let mut leaf = self.leaf(&cursor.path);
        if cursor.index == 0 {
            let path = self.tree.previous(&cursor.path)?;
            leaf = self.leaf(&path);
            *cursor = SortedSetCursor { path, index: leaf.count() };
        }
        cursor.index -= 1;
        Some((leaf.member(cursor.index), leaf.score(cursor.index)))
    }

    /// Calls `visit` with `count` elements or a few more, from a position of their hashes on.
    /// Returns the next position; `None` at the end.
    pub(super) fn scan(
        &self,
        from: u32,
        count: usize,
        hasher: &Hasher,
        mut visit: impl FnMut(&[u8], f64),
    ) -> Option<u32> {
        self.index.walk(from, count, |position, numbers| {
            self.members_at(position, numbers, hasher, |element| {
                visit(element.member, element.score);
            });
        })
    }

    /// Calls `visit` with the members of this position, which lie in these leaves.
    fn members_at(
        &self,
        position: u32,
        numbers: impl Iterator<Item = u32>,
        hasher: &Hasher,
        mut visit: impl FnMut(ScoredMember<'_>),
    ) {
        let mut seen: Vec<u32> = Vec::new();
        for number in numbers {
            if seen.contains(&number) {
                continue;
            }
            seen.push(number);
            let leaf = self.leaves.get(number as usize);
            for element in leaf.tagged(tag(position)).map(|index| leaf.element(index)) {
                if hasher.hash(element.member).position() == position {
                    visit(element);
                }
            }
        }
    }

    /// Calls `visit` with up to `count` members that another set has too, from a position of their
    /// hashes on. Returns the next position; `None` at the end.
    ///
    /// The indexes of both sets have the same order. So most members that the sets do not share are
    /// excluded by the indexes alone, and no member is hashed.
    pub(super) fn walk_common(
        &self,
        other: &Self,
        from: u32,
        count: usize,
        hasher: &Hasher,
        mut visit: impl FnMut(&[u8]),
    ) -> Option<u32> {
        let mut shared = Vec::with_capacity(count);
        let next = self.index.walk_common(&other.index, from, count, |position| {
            self.leaves.get(position.leaf as usize).prefetch();
            other.leaves.get(position.other_leaf as usize).prefetch();
            shared.push(position);
        });
        for SharedPosition { position, leaf, other_leaf, is_single } in shared {
            let tag = tag(position);
            let has = |number: u32, member: &[u8]| {
                other.leaves.get(number as usize).find(tag, member).is_some()
            };
            if !is_single {
                self.members_at(position, self.index.leaves(position), hasher, |element| {
                    let mut leaves = other.index.leaves(position);
                    if leaves.any(|number| has(number, element.member)) {
                        visit(element.member);
                    }
                });
                continue;
            }
            let leaf = self.leaves.get(leaf as usize);
            let found = leaf.tagged(tag);
            for member in found.map(|index| leaf.member(index)) {
                // If only one member has the tag, it is the one from the index.
                let is_meant = || found.is_one() || hasher.hash(member).position() == position;
                if has(other_leaf, member) && is_meant() {
                    visit(member);
                    break;
                }
            }
        }
        next
    }

    #[inline(always)]
    pub(super) const fn len(&self) -> usize {
        self.tree.len()
    }

    /// Bytes of memory, approximately.
    pub(super) fn memory(&self) -> usize {
        let (mut count, mut sum) = (0, 0);
        for leaf in self.leaves.sample(SAMPLE) {
            count += 1;
            sum += leaf.memory() + size_of::<Leaf>();
        }
        size_of::<Self>()
            + self.tree.memory()
            + self.index.memory()
            + sum * self.leaves.len() / count.max(1)
    }

    /// The number of blocks.
    pub(super) const fn blocks(&self) -> usize {
        self.tree.leaves() + self.index.pages() + 4
    }

    /// The leaf of a member, and its index there.
    #[inline]
    fn find(&self, member: &[u8], hash: KeyHash) -> Option<(u32, usize)> {
        if self.exceeds_caches() {
            self.index.prefetch(hash.position());
        }
        self.index.leaves(hash.position()).find_map(|number| {
            let leaf = self.leaves.get(number as usize);
            if self.exceeds_caches() {
                leaf.prefetch();
            }
            Some((number, leaf.find(tag(hash.position()), member)?))
        })
    }

    #[inline(always)]
    fn leaf(&self, path: &Path) -> &Leaf {
        self.leaves.get(*self.tree.leaf(path) as usize)
    }

    /// The path to the leaf where an element is or would be.
    #[inline]
    fn path_of(&self, score: f64, member: &[u8]) -> Path {
        self.tree.seek(|separator| {
            separator.score < score || separator.score == score && *separator.member <= *member
        })
    }

    /// Adds an element to the tree. Returns the number of its leaf.
    fn attach(&mut self, element: ScoredMember<'_>, hasher: &Hasher) -> u32 {
        // Each turn divides a leaf, and the last one adds the element.
        loop {
            let path = self.path_of(element.score, element.member);
            let number = *self.tree.leaf(&path);
            let leaf = self.leaf(&path);
            let index = leaf.lower_bound(element.score, element.member);
            let count = leaf.count();
            if leaf.has_room(element.member, LEAF_LEN_MAX) {
                self.leaves.get_mut(number as usize).insert(index, element);
                self.tree.add(&path, 1);
                return number;
            }
            let at = self.division(&path, index, element);
            if at == 0 {
                return self.put_before(&path, element);
            }
            if at == count {
                return self.put_behind(&path, element);
            }
            self.divide(&path, at, hasher);
        }
    }

    /// Where to divide a leaf that has no room for an element with this index: before its elements
    /// or behind them, so that the leaf stays as it is, or between two of them.
    fn division(&self, path: &Path, index: usize, element: ScoredMember<'_>) -> usize {
        let leaf = self.leaf(path);
        let count = leaf.count();
        // Elements that are added in order, at either end, leave full leaves behind.
        let is_outermost = index == 0 && self.tree.previous(path).is_none()
            || index == count && self.tree.next(path).is_none();
        if is_outermost || count == 1 {
            return index;
        }
        let middle = leaf.middle();
        let half = if index <= middle { 0..middle } else { middle..count };
        let has_room = leaf.len_of(half) + Leaf::size_of(element.member) <= LEAF_LEN_MAX;
        if has_room { middle } else { index }
    }

    /// Makes a leaf of an element, before another leaf, which stays as it is.
    fn put_before(&mut self, path: &Path, element: ScoredMember<'_>) -> u32 {
        let (number, count) = (*self.tree.leaf(path), self.tree.leaf_count(path));
        let separator = Separator::between(element, self.leaf(path).element(0));
        let new_number = self.add_leaf(Leaf::of(element));
        // The new leaf takes the place of the other one, as that has the separator before both.
        *self.tree.leaf_mut(path, 1 - count as isize) = new_number;
        self.tree.insert(path, Side::After, separator, number, count);
        new_number
    }

    /// Makes a leaf of an element, behind another leaf, which stays as it is.
    fn put_behind(&mut self, path: &Path, element: ScoredMember<'_>) -> u32 {
        let leaf = self.leaf(path);
        let separator = Separator::behind(leaf.element(leaf.count() - 1), element);
        let number = self.add_leaf(Leaf::of(element));
        self.tree.insert(path, Side::After, separator, number, 1);
        number
    }

    /// Divides a leaf between two of its elements.
    fn divide(&mut self, path: &Path, at: usize, hasher: &Hasher) {
        let number = *self.tree.leaf(path);
        let leaf = self.leaves.get_mut(number as usize);
        let right = leaf.split_off(at);
        let separator = Separator::between(leaf.element(at - 1), right.element(0));
        let count = right.count();
        let right_number = self.add_leaf(right);
        let right = self.leaves.get(right_number as usize);
        for moved in right.elements(0..count) {
            self.index.replace(hasher.hash(moved.member).position(), number, right_number);
        }
        self.tree.add(path, -(count as isize));
        self.tree.insert(path, Side::After, separator, right_number, count);
    }

    /// Appends elements behind all others. They come in order, and no member exists yet.
    pub(super) fn append<'a>(
        &mut self,
        elements: impl Iterator<Item = (&'a [u8], f64)>,
        hasher: &Hasher,
    ) {
        let mut elements = elements.peekable();
        let mut run = Vec::new();
        while let Some(&(first, _)) = elements.peek() {
            let path = self.tree.last();
            let last = self.leaf(&path);
            let joins = last.has_room(first, LEAF_LEN_MAX);
            let mut len = if joins { last.byte_len() } else { Leaf::new().byte_len() };
            let number = if joins { *self.tree.leaf(&path) } else { self.next_number() };
            run.clear();
            while let Some((member, score)) = elements.next_if(|(member, _)| {
                len += Leaf::size_of(member);
                run.is_empty() || len <= LEAF_LEN_MAX
            }) {
                let position = hasher.hash(member).position();
                run.push(ScoredMember { score, member, tag: tag(position) });
                self.index.insert(position, number);
            }
            let added = Leaf::from_elements(run.iter().copied());
            if joins {
                self.leaves.get_mut(number as usize).append(&added);
                self.tree.add(&path, run.len() as isize);
            } else {
                let last = self.leaf(&path);
                let separator = Separator::behind(last.element(last.count() - 1), run[0]);
                self.put_leaf(number, added);
                self.tree.insert(&path, Side::After, separator, number, run.len());
            }
        }
    }

    /// The number of the next new leaf.
    fn next_number(&mut self) -> u32 {
        self.free.pop().unwrap_or(self.leaves.len() as u32)
    }

    /// Stores a leaf under such a number.
    fn put_leaf(&mut self, number: u32, leaf: Leaf) {
        if (number as usize) < self.leaves.len() {
            *self.leaves.get_mut(number as usize) = leaf;
        } else {
            self.leaves.push(leaf);
        }
    }

    /// Stores a new leaf. Returns its number.
    fn add_leaf(&mut self, leaf: Leaf) -> u32 {
        let number = self.next_number();
        self.put_leaf(number, leaf);
        number
    }

    /// Removes an element from the tree.
    fn detach(&mut self, path: &Path, index: usize, hasher: &Hasher) {
        let number = *self.tree.leaf_mut(path, -1);
        self.leaves.get_mut(number as usize).remove(index);
        self.tidy(path, hasher);
    }

    /// Removes a leaf that has become empty, and merges one that has become small.
    fn tidy(&mut self, path: &Path, hasher: &Hasher) {
        let number = *self.tree.leaf(path);
        let leaf = self.leaves.get(number as usize);
        let len = leaf.byte_len();
        if leaf.count() == 0 {
            if self.tree.leaves() > 1 {
                self.tree.remove(path);
                self.release(number);
            }
            return;
        }
        if len > LEAF_LEN_MIN {
            return;
        }
        let fits = |path: &Path| len + self.leaf(path).byte_len() <= LEAF_LEN_MERGED;
        if let Some(next) = self.tree.next_sibling(path).filter(fits) {
            self.merge(path, &next, hasher);
        } else if let Some(previous) = self.tree.previous_sibling(path).filter(fits) {
            self.merge(&previous, path, hasher);
        }
    }

    fn merge(&mut self, left: &Path, right: &Path, hasher: &Hasher) {
        let (to, from) = (*self.tree.leaf(left), *self.tree.leaf(right));
        let moved = self.leaves.get(from as usize).clone();
        for element in moved.elements(0..moved.count()) {
            self.index.replace(hasher.hash(element.member).position(), from, to);
        }
        self.leaves.get_mut(to as usize).append(&moved);
        self.tree.add(left, moved.count() as isize);
        self.tree.remove(right);
        self.release(from);
    }

    fn release(&mut self, number: u32) {
        *self.leaves.get_mut(number as usize) = Leaf::new();
        self.free.push(number);
    }

    #[cfg(test)]
    pub(super) fn check(&self) {
        self.tree.check();
        let mut cursor = self.cursor(0);
        let mut last: Option<(f64, Vec<u8>)> = None;
        let mut count = 0;
        while let Some((member, score)) = self.next(&mut cursor) {
            if let Some((last_score, last_member)) = last {
                assert!(last_score < score || last_score == score && *last_member < *member);
            }
            last = Some((score, member.to_vec()));
            count += 1;
        }
        assert_eq!(count, self.len());
        assert_eq!(self.leaves.len(), self.free.len() + self.tree.leaves());
        let paths = std::iter::successors(Some(self.tree.first()), |path| self.tree.next(path));
        for leaf in paths.map(|path| self.leaf(&path)) {
            assert!(leaf.count() <= 1 || leaf.byte_len() <= LEAF_LEN_MAX);
        }
    }
}

impl Separator {
    /// The greatest short separator between two neighbouring elements. More elements then belong to
    /// the leaf on the left.
    fn between(left: ScoredMember<'_>, right: ScoredMember<'_>) -> Self {
        let member = if left.score == right.score {
            let same = left.member.iter().zip(right.member).take_while(|(a, b)| a == b).count();
            &right.member[..same + 1]
        } else {
            &[]
        };
        Self { score: right.score, member: member.into() }
    }

    /// The least short separator between two neighbouring elements. More elements then belong to
    /// the leaf on the right. That suits a new leaf of one element behind a full one: otherwise
    /// each element between the two would become a leaf.
    fn behind(left: ScoredMember<'_>, right: ScoredMember<'_>) -> Self {
        if left.score < right.score {
            return Self { score: left.score.next_up(), member: [].into() };
        }
        let mut separator = Self::between(left, right);
        let same = separator.member.len() - 1;
        // The left member ends before this byte, or has a lower one there.
        separator.member[same] = left.member.get(same).map_or(0, |byte| byte + 1);
        separator
    }
}

/// Bits of a position that distinguish most members of a leaf.
const fn tag(position: u32) -> u8 {
    position as u8
}

/// Whether an element with another score would still be between the same two elements of its leaf.
fn keeps_place(leaf: &Leaf, index: usize, element: ScoredMember<'_>) -> bool {
    let before = |one: ScoredMember<'_>, other: ScoredMember<'_>| {
        one.score < other.score || one.score == other.score && one.member < other.member
    };
    index > 0
        && index + 1 < leaf.count()
        && before(leaf.element(index - 1), element)
        && before(element, leaf.element(index + 1))
}

/// All tags of a leaf must fit one search.
const _: () = assert!(LEAF_LEN_MAX / Leaf::size_of(&[0]) < FOUND_MAX);
/// The most bytes of a leaf of several elements. Its block then fills a size class. A longer member
/// has a leaf of its own, which is never made anew for what comes beside it.
const LEAF_LEN_MAX: usize = 1536 - 16;
/// A leaf with fewer bytes is merged with another one.
const LEAF_LEN_MIN: usize = LEAF_LEN_MAX / 4;
/// The most bytes of a merged leaf, so that it is not split again soon.
const LEAF_LEN_MERGED: usize = LEAF_LEN_MAX * 3 / 4;
/// How many leaves are looked at to estimate all of them.
const SAMPLE: usize = 64;
