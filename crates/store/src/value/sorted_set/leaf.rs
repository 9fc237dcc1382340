//! A leaf: some members of a sorted set with their scores, in order, in one block.
//!
//! ```text
//! u32 count, highest bit: wide | count x u8 tag | count x (u16, wide: u32) where the member ends
//! | count x f64 score | members
//! ```
//! The tag is a byte of the member's hash, by which a member with unknown score is found. Tags and
//! ends come first, so that such a search reads few cache lines. A leaf is wide only if it has one
//! element, which is long.

use std::cmp::Ordering;

use crate::value::Defragmenter;
use crate::value::defrag::Movable;
use crate::value::prefetch::LINE;
use crate::value::shared_block::SharedBlock;
use crate::value::tags::{self, TagMatches};

/// Some members of a sorted set, in order. The order is by score, then by the member's bytes.
#[derive(Clone)]
pub(super) struct Leaf(SharedBlock);

/// One element.
#[derive(Clone, Copy, Debug)]
pub(super) struct ScoredMember<'a> {
    pub score: f64,
    pub member: &'a [u8],
    pub tag: u8,
}

impl Movable for Leaf {
    fn defragment(&mut self, defragmenter: &mut Defragmenter<'_>) {
        self.0.defragment(defragmenter);
    }
}

impl Leaf {
    pub(super) fn new() -> Self {
        Self(SharedBlock::from_bytes(&[0; HEADER]))
    }

    /// A leaf with one element.
    pub(super) fn of(element: ScoredMember<'_>) -> Self {
        Self::from_elements(std::iter::once(element))
    }

    /// A leaf with elements, which come in order.
    pub(super) fn from_elements<'a>(
        elements: impl Iterator<Item = ScoredMember<'a>> + Clone,
    ) -> Self {
        let (mut count, mut members_len) = (0, 0);
        for element in elements.clone() {
            count += 1;
            members_len += element.member.len();
        }
        let shape = LeafShape { count, wide: members_len > END_MAX };
        let members = shape.members();
        let mut block = SharedBlock::with_capacity(members + members_len);
        let bytes = block.extend(members + members_len);
        bytes[..HEADER].copy_from_slice(&shape.header());
        let mut end = 0;
        for (index, element) in elements.enumerate() {
            let start = members + end;
            end += element.member.len();
            bytes[start..members + end].copy_from_slice(element.member);
            shape.set_score(bytes, index, element.score);
            shape.set_end(bytes, index, end);
            bytes[shape.tags() + index] = element.tag;
        }
        Self(block)
    }

    /// Whether the leaf is empty, or with this member has at most `len_max` bytes.
    pub(super) fn has_room(&self, member: &[u8], len_max: usize) -> bool {
        self.count() == 0 || self.byte_len() + Self::size_of(member) <= len_max
    }

    /// Inserts an element at its place, which [`Self::lower_bound`] found. The leaf must have room
    /// for it.
    pub(super) fn insert(&mut self, index: usize, element: ScoredMember<'_>) {
        let old = self.shape();
        if old.count == 0 {
            *self = Self::of(element);
            return;
        }
        let added = element.member.len();
        let members_len = self.0.len() - old.members() + added;
        assert!(!old.wide && members_len <= END_MAX, "{members_len} bytes in one leaf");
        let new = LeafShape { count: old.count + 1, ..old };
        let start = self.end_before(index);
        let len = self.0.len();
        self.0.extend(SCORE + END + TAG + added);
        let bytes = self.0.bytes_mut();
        // From the back: each part moves by what is inserted before it.
        let member_at = new.members() + start;
        bytes.copy_within(old.members() + start..len, member_at + added);
        bytes.copy_within(old.members()..old.members() + start, new.members());
        bytes[member_at..member_at + added].copy_from_slice(element.member);
        let score_at = old.scores() + index * SCORE;
        bytes.copy_within(score_at..old.members(), new.scores() + (index + 1) * SCORE);
        bytes.copy_within(old.scores()..score_at, new.scores());
        new.set_score(bytes, index, element.score);
        bytes.copy_within(old.ends() + index * END..old.scores(), new.ends() + (index + 1) * END);
        bytes.copy_within(old.ends()..old.ends() + index * END, new.ends());
        shift_ends(&mut bytes[new.ends() + (index + 1) * END..new.scores()], added as u16);
        new.set_end(bytes, index, start + added);
        bytes.copy_within(old.tags() + index..old.ends(), new.tags() + index + 1);
        bytes[new.tags() + index] = element.tag;
        bytes[..HEADER].copy_from_slice(&new.header());
    }

    pub(super) fn remove(&mut self, index: usize) {
        self.remove_range(index, index + 1);
    }

    /// Removes the elements from `first` to before `last`.
    pub(super) fn remove_range(&mut self, first: usize, last: usize) {
        let old = self.shape();
        let removed = last - first;
        if removed == 0 {
            return;
        }
        if removed > 1 || removed == old.count {
            let new =
                Self::from_elements(self.elements(0..first).chain(self.elements(last..old.count)));
            *self = new;
            return;
        }
        let new = LeafShape { count: old.count - 1, ..old };
        let (start, end) = (self.end_before(first), self.end_before(last));
        let len = self.0.len();
        let bytes = self.0.bytes_mut();
        // From the front: each part moves by what is removed before it.
        bytes.copy_within(old.tags() + last..old.ends(), new.tags() + first);
        shift_ends(
            &mut bytes[old.ends() + last * END..old.scores()],
            ((end - start) as u16).wrapping_neg(),
        );
        bytes.copy_within(old.ends()..old.ends() + first * END, new.ends());
        bytes.copy_within(old.ends() + last * END..old.scores(), new.ends() + first * END);
        let score_at = old.scores() + first * SCORE;
        bytes.copy_within(old.scores()..score_at, new.scores());
        bytes.copy_within(score_at + SCORE..old.members(), new.scores() + first * SCORE);
        bytes.copy_within(old.members()..old.members() + start, new.members());
        bytes.copy_within(old.members() + end..len, new.members() + start);
        bytes[..HEADER].copy_from_slice(&new.header());
        self.0.truncate(len - SCORE - END - TAG - (end - start));
        self.0.shrink();
    }

    /// Sets an element's score. Its place among the elements must stay the same.
    pub(super) fn set_score(&mut self, index: usize, score: f64) {
        let shape = self.shape();
        shape.set_score(self.0.bytes_mut(), index, score);
    }

    /// Removes the elements from `index` on, and returns them as a leaf.
    pub(super) fn split_off(&mut self, index: usize) -> Self {
        let count = self.count();
        let right = Self::from_elements(self.elements(index..count));
        *self = Self::from_elements(self.elements(0..index));
        right
    }

    /// Appends the elements of another leaf, which are all greater.
    pub(super) fn append(&mut self, other: &Self) {
        let new = Self::from_elements(
            self.elements(0..self.count()).chain(other.elements(0..other.count())),
        );
        *self = new;
    }

    #[inline(always)]
    pub(super) fn count(&self) -> usize {
        self.shape().count
    }

    /// Its length in bytes, without slack.
    pub(super) fn byte_len(&self) -> usize {
        self.0.len()
    }

    pub(super) fn memory(&self) -> usize {
        self.0.memory()
    }

    #[inline(always)]
    pub(super) fn score(&self, index: usize) -> f64 {
        let at = self.shape().scores() + index * SCORE;
        f64::from_le_bytes(*self.0[at..].first_chunk().expect("scores are whole"))
    }

    #[inline(always)]
    pub(super) fn member(&self, index: usize) -> &[u8] {
        let shape = self.shape();
        let start = if index == 0 { 0 } else { shape.end(&self.0, index - 1) };
        &self.0[shape.members() + start..shape.members() + shape.end(&self.0, index)]
    }

    pub(super) fn element(&self, index: usize) -> ScoredMember<'_> {
        let tag = self.0[self.shape().tags() + index];
        ScoredMember { score: self.score(index), member: self.member(index), tag }
    }

    pub(super) fn elements(
        &self,
        range: std::ops::Range<usize>,
    ) -> impl Iterator<Item = ScoredMember<'_>> + Clone {
        range.map(|index| self.element(index))
    }

    /// How many elements come before this one.
    #[inline]
    pub(super) fn lower_bound(&self, score: f64, member: &[u8]) -> usize {
        self.partition(|at, leaf| match leaf.score(at).partial_cmp(&score) {
            Some(Ordering::Equal) => leaf.member(at) < member,
            order => order == Some(Ordering::Less),
        })
    }

    /// How many elements, from the first on, satisfy the predicate.
    #[inline(always)]
    pub(super) fn partition(&self, holds: impl Fn(usize, &Self) -> bool) -> usize {
        let (mut low, mut high) = (0, self.count());
        while low < high {
            let middle = low.midpoint(high);
            if holds(middle, self) {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        low
    }

    /// Prefetches what a search for a member with unknown score reads first.
    #[inline]
    pub(super) fn prefetch(&self) {
        self.0.prefetch(LINE);
        self.0.prefetch(2 * LINE);
    }

    /// The index of a member with unknown score.
    #[inline]
    pub(super) fn find(&self, tag: u8, member: &[u8]) -> Option<usize> {
        self.tagged(tag).find(|&index| self.member(index) == member)
    }

    /// The elements with this tag.
    #[inline]
    pub(super) fn tagged(&self, tag: u8) -> TagMatches {
        let shape = self.shape();
        tags::find_all(&self.0[shape.tags()..], shape.count, tag)
    }

    /// The length in bytes of a leaf of these elements. There is at least one.
    pub(super) fn len_of(&self, range: std::ops::Range<usize>) -> usize {
        let members = self.shape().end(&self.0, range.end - 1) - self.end_before(range.start);
        HEADER + range.len() * Self::size_of(&[]) + members
    }

    /// The index that divides it into two halves of about the same length, neither of them empty.
    pub(super) fn middle(&self) -> usize {
        let shape = self.shape();
        let half = self.0.len() / 2;
        let fixed = SCORE + TAG + shape.end_size();
        let index = self.partition(|at, _| (at + 1) * fixed + shape.end(&self.0, at) < half);
        index.clamp(1, shape.count.max(2) - 1)
    }

    /// The bytes of an element.
    pub(super) const fn size_of(member: &[u8]) -> usize {
        SCORE + END + TAG + member.len()
    }

    #[inline(always)]
    fn shape(&self) -> LeafShape {
        let header = u32::from_le_bytes(*self.0.first_chunk().expect("every leaf has a header"));
        LeafShape { count: (header & !WIDE) as usize, wide: header & WIDE != 0 }
    }

    fn end_before(&self, index: usize) -> usize {
        if index == 0 { 0 } else { self.shape().end(&self.0, index - 1) }
    }
}

impl std::fmt::Debug for Leaf {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_list().entries(self.elements(0..self.count())).finish()
    }
}

/// The offsets of the parts of a leaf.
#[derive(Clone, Copy)]
struct LeafShape {
    count: usize,
    wide: bool,
}

impl LeafShape {
    fn header(self) -> [u8; HEADER] {
        (self.count as u32 | if self.wide { WIDE } else { 0 }).to_le_bytes()
    }

    #[inline(always)]
    const fn end_size(self) -> usize {
        if self.wide { 4 } else { END }
    }

    #[inline(always)]
    const fn tags(self) -> usize {
        HEADER
    }

    #[inline(always)]
    const fn ends(self) -> usize {
        self.tags() + self.count * TAG
    }

    #[inline(always)]
    const fn scores(self) -> usize {
        self.ends() + self.count * self.end_size()
    }

    #[inline(always)]
    const fn members(self) -> usize {
        self.scores() + self.count * SCORE
    }

    #[inline(always)]
    fn end(self, bytes: &[u8], index: usize) -> usize {
        let at = self.ends() + index * self.end_size();
        if self.wide {
            u32::from_le_bytes(*bytes[at..].first_chunk().expect("ends are whole")) as usize
        } else {
            usize::from(u16::from_le_bytes([bytes[at], bytes[at + 1]]))
        }
    }

    fn set_end(self, bytes: &mut [u8], index: usize, end: usize) {
        let at = self.ends() + index * self.end_size();
        bytes[at..at + self.end_size()].copy_from_slice(&end.to_le_bytes()[..self.end_size()]);
    }

    fn set_score(self, bytes: &mut [u8], index: usize, score: f64) {
        let at = self.scores() + index * SCORE;
        bytes[at..at + SCORE].copy_from_slice(&score.to_le_bytes());
    }
}

/// Adds `by` to each of the ends.
fn shift_ends(ends: &mut [u8], by: u16) {
    let (ends, _) = ends.as_chunks_mut::<END>();
    for end in ends {
        *end = u16::from_le_bytes(*end).wrapping_add(by).to_le_bytes();
    }
}

const HEADER: usize = 4;
const WIDE: u32 = 1 << 31;
const SCORE: usize = 8;
const END: usize = 2;
/// The most bytes of members of a leaf that is not wide.
const END_MAX: usize = u16::MAX as usize;
const TAG: usize = 1;
