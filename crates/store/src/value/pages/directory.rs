//! Maps hashes to pages: nodes of up to 256 pages, in the order of hashes.
//!
//! A node covers a range of hashes, divided into 256 slots. Each page covers a power of two of
//! them. A node has each of its pages once, and `index` gives the page of each slot.

use super::super::cow::Cow;
use super::page::Page;

/// Pages of neighbouring ranges.
#[derive(Clone)]
pub(super) struct DirectoryNode {
    index: [u8; SLOTS],
    pub(super) pages: Vec<PageSlot>,
    /// A hint: no record expires earlier.
    pub(super) earliest_ms: i64,
}

#[derive(Clone)]
pub(super) struct PageSlot {
    pub(super) page: Page,
    pub(super) count: u32,
    /// The page covers 1 / 2^depth of its node's range.
    pub(super) depth: u8,
}

#[derive(Clone)]
pub(super) struct NodeSlot {
    pub(super) node: Cow<DirectoryNode>,
    /// How many records its pages have.
    pub(super) count: u32,
    /// The node covers 1 / 2^depth of all hashes.
    pub(super) depth: u8,
}

impl DirectoryNode {
    /// A node of one page.
    pub(super) fn of(page: Page) -> Self {
        let (count, earliest_ms) = (page.len() as u32, page.earliest_ms());
        let pages = vec![PageSlot { page, count, depth: 0 }];
        Self { index: [0; SLOTS], pages, earliest_ms }
    }

    /// The page of a hash. The node's depth in the directory says which bits to use.
    #[inline(always)]
    pub(super) fn page_of(&self, hash: u64, node_depth: u8) -> usize {
        usize::from(self.index[slot(hash, node_depth)])
    }

    /// Splits a page into two halves by the hashes of its keys. Its depth must be less than
    /// `SLOT_BITS`.
    pub(super) fn split_page(&mut self, hash: u64, node_depth: u8, hash_of: impl Fn(&[u8]) -> u64) {
        let slot = slot(hash, node_depth);
        let page = usize::from(self.index[slot]);
        let depth = self.pages[page].depth + 1;
        let (start, span) = range(slot, depth - 1);
        let bit = 64 - u32::from(node_depth) - u32::from(depth);
        let (left, right) = self.pages[page].page.split(|key| hash_of(key) >> bit & 1 == 1);
        let counts = [left.len() as u32, right.len() as u32];
        self.pages[page] = PageSlot { page: left, count: counts[0], depth };
        self.pages.insert(page + 1, PageSlot { page: right, count: counts[1], depth });
        for index in &mut self.index[start + span / 2..] {
            *index += 1;
        }
    }

    /// Merges a page that has become sparse with its other half, if possible. Returns by how many
    /// bytes the pages' memory changed; `None`: it was not possible.
    pub(super) fn merge_page(&mut self, hash: u64, node_depth: u8) -> Option<isize> {
        let slot = slot(hash, node_depth);
        let depth = self.pages[usize::from(self.index[slot])].depth;
        if depth == 0 {
            return None;
        }
        let (start, span) = range(slot, depth - 1);
        let left = usize::from(self.index[start]);
        if self.pages[left].depth != depth
            || self.pages.get(left + 1).is_none_or(|right| right.depth != depth)
            || !self.pages[left].page.fits_with(&self.pages[left + 1].page)
        {
            return None;
        }
        let mut right = self.pages.remove(left + 1).page;
        let slot = &mut self.pages[left];
        let before = slot.page.memory() + right.memory();
        slot.page = slot.page.merge(&mut right);
        slot.count = slot.page.len() as u32;
        slot.depth -= 1;
        let change = slot.page.memory() as isize - before as isize;
        for index in &mut self.index[start + span / 2..] {
            *index -= 1;
        }
        Some(change)
    }

    /// Splits the node. It must have at least two pages.
    pub(super) fn split(mut self) -> (Self, Self) {
        let middle = usize::from(self.index[SLOTS / 2]);
        assert!(middle > 0, "a node of one page is not split");
        let mut right_pages = self.pages.split_off(middle);
        let (mut left, mut right) = ([0; SLOTS], [0; SLOTS]);
        for slot in 0..SLOTS {
            left[slot] = self.index[slot / 2];
            right[slot] = self.index[SLOTS / 2 + slot / 2] - middle as u8;
        }
        for slot in self.pages.iter_mut().chain(&mut right_pages) {
            slot.depth -= 1;
        }
        let halves = [(left, self.pages), (right, right_pages)].map(|(index, pages)| Self {
            index,
            pages,
            earliest_ms: self.earliest_ms,
        });
        halves.into()
    }

    /// Merges two nodes. `None`: they have too many pages, or too small ones.
    pub(super) fn merged(&self, right: &Self) -> Option<Self> {
        let all = || self.pages.iter().chain(&right.pages);
        if all().count() > SLOTS / 2 || all().any(|slot| slot.depth >= SLOT_BITS) {
            return None;
        }
        let mut index = [0; SLOTS];
        for slot in 0..SLOTS / 2 {
            index[slot] = self.index[2 * slot];
            index[SLOTS / 2 + slot] = right.index[2 * slot] + self.pages.len() as u8;
        }
        let pages = all().map(|slot| PageSlot { depth: slot.depth + 1, ..slot.clone() }).collect();
        Some(Self { index, pages, earliest_ms: self.earliest_ms.min(right.earliest_ms) })
    }

    pub(super) fn count(&self) -> u32 {
        self.pages.iter().map(|slot| slot.count).sum()
    }
}

/// The slot of a hash in its node.
#[inline(always)]
fn slot(hash: u64, node_depth: u8) -> usize {
    (hash << node_depth >> (64 - SLOT_BITS)) as usize
}

/// The first slot and the number of slots of the page with this depth and slot.
fn range(slot: usize, depth: u8) -> (usize, usize) {
    let span = SLOTS >> depth;
    (slot & !(span - 1), span)
}

/// log2 of a node's slots.
pub(super) const SLOT_BITS: u8 = 8;
pub(super) const SLOTS: usize = 1 << SLOT_BITS;
