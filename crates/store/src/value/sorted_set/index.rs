//! The index of a sorted set by member: the leaf of each member.
//!
//! A slot has 8 bytes: 32 bits of the member's hash, its *position*, and the number of the leaf.
//! The member itself is found in the leaf. Slots lie in pages, in the order of positions. There are
//! as many pages as necessary, and the table grows and shrinks by one page at a time (linear
//! hashing: with `n` pages, those that are split use one more of the position's highest bits than
//! the others). So a walk in ascending order of positions visits all members, even if the table
//! grows and shrinks meanwhile.

use crate::value::Defragmenter;
use crate::value::directory::Directory;
use crate::value::shared_block::{SharedBlock, Slack};

/// A multiset of (position, leaf) pairs.
#[derive(Clone)]
pub(super) struct Index {
    pages: Directory<SharedBlock>,
    len: usize,
}

impl Index {
    /// An empty index that will get `len` pairs. It has pages for them, so that few have to be
    /// split.
    pub(super) fn with_room(len: usize) -> Self {
        let mut pages = Directory::new();
        let count = len.div_ceil(SLOTS_MEAN_MAX).clamp(1, PAGES_AT_FIRST_MAX);
        let slots = (len / count).min(SLOTS_MEAN_MAX);
        (0..count).for_each(|_| pages.push(SharedBlock::with_capacity(slots * SLOT)));
        Self { pages, len: 0 }
    }

    /// Moves pages from a number on. Returns what `Directory::defragment` does.
    pub(super) fn defragment(&mut self, from: usize, defragmenter: &mut Defragmenter<'_>) -> usize {
        self.pages.defragment(from, defragmenter)
    }

    pub(super) fn insert(&mut self, position: u32, leaf: u32) {
        let page_index = self.page_index(position);
        let prefix = self.prefix(page_index);
        let page = self.pages.get_mut(page_index);
        let at = lower_bound(page, position, prefix);
        let slot = slot(position, leaf).to_le_bytes();
        page.open(at * SLOT, SLOT, Slack::Behind).copy_from_slice(&slot);
        self.len += 1;
        if self.len > self.pages.len() * SLOTS_MEAN_MAX {
            self.split_one();
        }
    }

    /// Removes one such pair.
    pub(super) fn remove(&mut self, position: u32, leaf: u32) {
        let (page_index, at) = self.find(position, leaf);
        let page = self.pages.get_mut(page_index);
        page.close(at * SLOT, SLOT);
        page.shrink();
        self.len -= 1;
        if self.pages.len() > 1 && self.len < self.pages.len() * SLOTS_MEAN_MIN {
            self.merge_one();
        }
    }

    /// Notes that a member has moved to another leaf.
    pub(super) fn replace(&mut self, position: u32, old: u32, new: u32) {
        if old != new {
            let (page, at) = self.find(position, old);
            let slot = slot(position, new).to_le_bytes();
            self.pages.get_mut(page).bytes_mut()[at * SLOT..(at + 1) * SLOT].copy_from_slice(&slot);
        }
    }

    /// The leaves that have members with this position.
    #[inline]
    pub(super) fn leaves(&self, position: u32) -> Leaves<'_> {
        let page_index = self.page_index(position);
        let page = self.pages.get(page_index);
        let at = lower_bound(page, position, self.prefix(page_index));
        Leaves { slots: slots(page)[at..].iter(), position }
    }

    /// Prefetches what a search for a position reads.
    #[inline]
    pub(super) fn prefetch(&self, position: u32) {
        let page_index = self.page_index(position);
        let prefix = self.prefix(page_index);
        // Positions are evenly spread over the pages.
        let at = guess(position, prefix, self.len >> prefix);
        self.pages.get(page_index).prefetch(at * SLOT);
    }

    /// Calls `visit` with the pairs from a position on, with all pairs of one position in one call,
    /// until there were `count` pairs. Returns the next position; `None` at the end.
    pub(super) fn walk(
        &self,
        from: u32,
        mut count: usize,
        mut visit: impl FnMut(u32, Leaves<'_>),
    ) -> Option<u32> {
        let mut position = from;
        loop {
            let page_index = self.page_index(position);
            let prefix = self.prefix(page_index);
            let page = slots(self.pages.get(page_index));
            let mut rest = &page[lower_bound(self.pages.get(page_index), position, prefix)..];
            while let Some(first) = rest.first() {
                let here = (u64::from_le_bytes(*first) >> 32) as u32;
                if count == 0 {
                    return Some(here);
                }
                let leaves = Leaves { slots: rest.iter(), position: here };
                let run = leaves.clone().count();
                visit(here, leaves);
                count = count.saturating_sub(run);
                rest = &rest[run..];
            }
            // The first position of the next page.
            let size = 1u64 << (32 - prefix);
            position = u32::try_from((u64::from(position) / size + 1) * size).ok()?;
            if count == 0 {
                return Some(position);
            }
        }
    }

    /// Calls `visit` for each position that both indexes have, from a position on, up to `count`
    /// times. Returns the next position; `None` at the end.
    pub(super) fn walk_common(
        &self,
        other: &Self,
        from: u32,
        count: usize,
        mut visit: impl FnMut(SharedPosition),
    ) -> Option<u32> {
        if other.len / RATIO_MAX > self.len {
            self.walk(from, count, |position, _| other.prefetch(position));
            return self.walk(from, count, |position, leaves| {
                let others = other.leaves(position);
                if let (Some(leaf), Some(other_leaf)) =
                    (leaves.clone().next(), others.clone().next())
                {
                    let is_single = leaves.count() == 1 && others.count() == 1;
                    visit(SharedPosition { position, leaf, other_leaf, is_single });
                }
            });
        }
        let [(page, start, prefix), (other_page, other_start, other_prefix)] =
            [self, other].map(|index| {
                let number = index.page_index(from);
                let (page, prefix) = (index.pages.get(number), index.prefix(number));
                (slots(page), lower_bound(page, from, prefix), prefix)
            });
        let mut pairs = [(0, 0); PAIRS];
        let pairs = &mut pairs[..count.clamp(1, PAIRS)];
        // The end of the page that covers fewer positions.
        let last = from | u32::MAX.unbounded_shr(prefix.max(other_prefix));
        let found = pair(&page[start..], &other_page[other_start..], last, pairs);
        let mut end = None;
        for &(at, other_at) in &pairs[..found] {
            let (at, other_at) = (start + at, other_start + other_at);
            let [slot, other_slot] = [page[at], other_page[other_at]].map(u64::from_le_bytes);
            let position = (slot >> 32) as u32;
            // Several pairs with the same position are visited once.
            if end == Some(position) {
                continue;
            }
            end = Some(position);
            let goes_on = |slots: &[[u8; SLOT]]| {
                slots
                    .first()
                    .is_some_and(|slot| (u64::from_le_bytes(*slot) >> 32) as u32 == position)
            };
            let is_single = !goes_on(&page[at + 1..]) && !goes_on(&other_page[other_at + 1..]);
            let (leaf, other_leaf) = (slot as u32, other_slot as u32);
            visit(SharedPosition { position, leaf, other_leaf, is_single });
        }
        let done = if found == pairs.len() { end.unwrap_or(last) } else { last };
        done.checked_add(1)
    }

    pub(super) const fn pages(&self) -> usize {
        self.pages.len()
    }

    /// Bytes of memory, approximately.
    pub(super) fn memory(&self) -> usize {
        let (mut count, mut sum) = (0, 0);
        for page in self.pages.sample(SAMPLE) {
            count += 1;
            sum += page.memory() + size_of::<SharedBlock>();
        }
        sum * self.pages.len() / count.max(1)
    }

    #[inline(always)]
    fn page_index(&self, position: u32) -> usize {
        page_index(position, self.pages.len())
    }

    /// How many of the highest bits all positions in a page have in common.
    #[inline(always)]
    fn prefix(&self, page_index: usize) -> u32 {
        let bits = bits(self.pages.len());
        let shorter = bits > 0
            && page_index + (1 << (bits - 1)) >= self.pages.len()
            && page_index < 1 << (bits - 1);
        bits - u32::from(shorter)
    }

    fn find(&self, position: u32, leaf: u32) -> (usize, usize) {
        let page_index = self.page_index(position);
        let page = self.pages.get(page_index);
        let at = lower_bound(page, position, self.prefix(page_index));
        let wanted = slot(position, leaf).to_le_bytes();
        let found = slots(page)[at..].iter().position(|slot| *slot == wanted);
        (page_index, at + found.expect("every member is in the index"))
    }

    /// Adds a page, which takes half of the positions of the page whose turn it is.
    fn split_one(&mut self) {
        let new = self.pages.len();
        if new >= PAGES_MAX {
            return;
        }
        let bits = bits(new + 1);
        let sibling = self.pages.get_mut(new - (1 << (bits - 1)));
        // The slots of the upper half have the bit set, so they come last.
        let half = slots(sibling)
            .partition_point(|slot| (u64::from_le_bytes(*slot) >> (64 - bits)) & 1 == 0);
        let upper = SharedBlock::from_bytes(&sibling[half * SLOT..]);
        sibling.truncate(half * SLOT);
        sibling.shrink();
        self.pages.push(upper);
    }

    /// Removes the last page, and appends its slots to its sibling.
    fn merge_one(&mut self) {
        let bits = bits(self.pages.len());
        let last = self.pages.len() - 1;
        let Some(upper) = self.pages.pop() else { return };
        let sibling = self.pages.get_mut(last - (1 << (bits - 1)));
        sibling.extend(upper.len()).copy_from_slice(&upper);
    }
}

/// A position that two indexes share.
pub(super) struct SharedPosition {
    pub(super) position: u32,
    /// A leaf in each.
    pub(super) leaf: u32,
    pub(super) other_leaf: u32,
    /// Both indexes have the position only once.
    pub(super) is_single: bool,
}

/// Notes the places where slots of two pages have the same position, up to the position `last`.
/// Returns how many there are. It has no branches on the data, because none could be predicted.
fn pair(
    one: &[[u8; SLOT]],
    other: &[[u8; SLOT]],
    last: u32,
    pairs: &mut [(usize, usize)],
) -> usize {
    let (mut at, mut other_at, mut found) = (0, 0, 0);
    while let (Some(slot), Some(other_slot), Some(pair)) =
        (one.get(at), other.get(other_at), pairs.get_mut(found))
    {
        let position = (u64::from_le_bytes(*slot) >> 32) as u32;
        let other_position = (u64::from_le_bytes(*other_slot) >> 32) as u32;
        if position.max(other_position) > last {
            break;
        }
        *pair = (at, other_at);
        found += usize::from(position == other_position);
        at += usize::from(position <= other_position);
        other_at += usize::from(other_position <= position);
    }
    found
}

/// The leaves of consecutive slots with one position.
#[derive(Clone)]
pub(super) struct Leaves<'a> {
    slots: std::slice::Iter<'a, [u8; SLOT]>,
    position: u32,
}

impl Iterator for Leaves<'_> {
    type Item = u32;

    #[inline(always)]
    fn next(&mut self) -> Option<u32> {
        let slot = u64::from_le_bytes(*self.slots.next()?);
        ((slot >> 32) as u32 == self.position).then_some(slot as u32)
    }
}

/// How many bits are needed to distinguish `pages` pages.
#[inline(always)]
const fn bits(pages: usize) -> u32 {
    usize::BITS - (pages - 1).leading_zeros()
}

/// The page of a position. Its number consists of the position's highest bits in reverse: the
/// highest bit counts one.
#[inline(always)]
const fn page_index(position: u32, pages: usize) -> usize {
    let bits = bits(pages);
    let index = position.reverse_bits() as usize & ((1 << bits) - 1);
    if index < pages { index } else { index & ((1 << (bits - 1)) - 1) }
}

const fn slot(position: u32, leaf: u32) -> u64 {
    (position as u64) << 32 | leaf as u64
}

#[inline(always)]
fn slots(page: &SharedBlock) -> &[[u8; SLOT]] {
    page.as_chunks().0
}

/// How many slots of a page have lower positions. Positions are evenly spread, so the result can be
/// guessed.
#[inline]
fn lower_bound(page: &SharedBlock, position: u32, prefix: u32) -> usize {
    let slots = slots(page);
    let at = |index: usize| (u64::from_le_bytes(slots[index]) >> 32) as u32;
    let mut guess = guess(position, prefix, slots.len());
    while guess > 0 && at(guess - 1) >= position {
        guess -= 1;
    }
    while guess < slots.len() && at(guess) < position {
        guess += 1;
    }
    guess
}

/// About how many of a page's `len` slots have lower positions.
#[inline(always)]
const fn guess(position: u32, prefix: u32, len: usize) -> usize {
    // The position within the page, as a fraction of 2^32.
    let fraction = ((position as u64) << prefix) as u32;
    ((fraction as u64 * len as u64) >> 32) as usize
}

const SLOT: usize = size_of::<u64>();
/// If one index is longer than the other by more than this factor, each position of the shorter one
/// is looked up in it.
const RATIO_MAX: usize = 8;
/// How many shared positions are noted at once.
const PAIRS: usize = 64;
/// The highest average of slots per page. Beyond it a page is added.
const SLOTS_MEAN_MAX: usize = 96;
/// The lowest average. Below it a page is removed.
const SLOTS_MEAN_MIN: usize = 32;
/// How many pages are made at once, which takes some ten microseconds.
const PAGES_AT_FIRST_MAX: usize = 512;
/// More pages would need more bits than positions have.
const PAGES_MAX: usize = 1 << 30;
/// How many pages are looked at to estimate all of them.
const SAMPLE: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    proptest! {
        #![proptest_config(ProptestConfig { cases: if cfg!(miri) { 2 } else { 32 }, failure_persistence: None, ..ProptestConfig::default() })]
        #[test]
        fn behaves_like_a_multiset(
            pairs in proptest::collection::vec((any::<u32>(), 0..50u32), 1..if cfg!(miri) { 300 } else { 3000 }),
            few in any::<bool>(),
            room in prop_oneof![Just(0), 0..5000usize],
        ) {
            let mut index = Index::with_room(room);
            let mut model: BTreeMap<u32, Vec<u32>> = BTreeMap::new();
            let mut clone = None;
            for (number, &(position, leaf)) in pairs.iter().enumerate() {
                let position = if few { position << 24 } else { position };
                index.insert(position, leaf);
                model.entry(position).or_default().push(leaf);
                if number == pairs.len() / 2 {
                    clone = Some((index.clone(), model.clone()));
                }
            }
            for &(position, leaf) in &pairs[pairs.len() / 3..] {
                let position = if few { position << 24 } else { position };
                let leaves = model.get_mut(&position).unwrap();
                let at = leaves.iter().position(|&other| other == leaf).unwrap();
                if leaf % 7 == 0 {
                    index.replace(position, leaf, 100);
                    leaves[at] = 100;
                    index.replace(position, 100, leaf);
                    leaves[at] = leaf;
                } else {
                    index.remove(position, leaf);
                    leaves.remove(at);
                }
            }
            model.retain(|_, leaves| !leaves.is_empty());
            for (index, mut model) in [(index, model)].into_iter().chain(clone) {
                for leaves in model.values_mut() {
                    leaves.sort_unstable();
                }
                for (&position, leaves) in &model {
                    let mut found: Vec<u32> = index.leaves(position).collect();
                    found.sort_unstable();
                    prop_assert_eq!(&found, leaves);
                }
                let mut from = Some(0);
                let mut walked = BTreeMap::new();
                while let Some(position) = from {
                    from = index.walk(position, 10, |position, leaves| {
                        let mut leaves: Vec<u32> = leaves.collect();
                        leaves.sort_unstable();
                        assert!(walked.insert(position, leaves).is_none());
                    });
                }
                prop_assert_eq!(walked, model);
            }
        }
    }

    #[test]
    fn what_two_indexes_share_is_met_once() {
        let many = if cfg!(miri) { 300 } else { 5000u32 };
        // With few position bits most positions come several times.
        for (bits, other_len) in [(8, many), (32, many), (32, many / 3), (32, many / 50), (13, 10)]
        {
            let position = |number: u32| number.wrapping_mul(0x9e37_79b9) >> (32 - bits);
            let [one, other] = [many, other_len].map(|len| {
                let (mut index, mut positions) = (Index::with_room(0), BTreeMap::new());
                let first = if len == many { 0 } else { many / 2 };
                for number in first..first + len {
                    let position = position(number) << (32 - bits);
                    index.insert(position, number);
                    *positions.entry(position).or_insert(0) += 1;
                }
                (index, positions)
            });
            for (one, other) in [(&one, &other), (&other, &one), (&one, &one)] {
                for count in [1, 7, 1000] {
                    let (mut met, mut from) = (Vec::new(), Some(0));
                    while let Some(position) = from {
                        from = one.0.walk_common(&other.0, position, count, |shared| {
                            met.push((shared.position, shared.is_single));
                            let mut leaves = one.0.leaves(shared.position);
                            assert!(leaves.any(|leaf| leaf == shared.leaf));
                            let mut leaves = other.0.leaves(shared.position);
                            assert!(leaves.any(|leaf| leaf == shared.other_leaf));
                        });
                    }
                    let shared = one.1.iter().filter_map(|(position, times)| {
                        let other_times = other.1.get(position)?;
                        Some((*position, *times == 1 && *other_times == 1))
                    });
                    assert_eq!(met, shared.collect::<Vec<_>>());
                }
            }
        }
    }

    #[test]
    fn walking_misses_nothing_that_stays_while_the_table_shrinks() {
        let many = if cfg!(miri) { 600 } else { 20_000u32 };
        let mut index = Index::with_room(0);
        for number in 0..many {
            index.insert(number.wrapping_mul(0x9e37_79b9), number);
        }
        let mut seen = vec![0; many as usize];
        let mut from = Some(0);
        let mut removed = 1u32;
        while let Some(position) = from {
            from = index
                .walk(position, 10, |_, leaves| leaves.for_each(|leaf| seen[leaf as usize] += 1));
            for _ in 0..10 {
                if removed < many {
                    if !removed.is_multiple_of(20) {
                        index.remove(removed.wrapping_mul(0x9e37_79b9), removed);
                    }
                    removed += 1;
                }
            }
        }
        assert!(seen.iter().step_by(20).all(|&times| times == 1));
    }
}
