//! The root of a large table: which node has the pages of which hashes.

use super::super::cow::Cow;
use super::directory::{DirectoryNode, NodeSlot, PageSlot, SLOT_BITS};
use super::page::{NEVER, Page};
use super::record::{NewRecord, TableRecord};
use super::{RecordPlace, Walk, tag};
use crate::hash::Hasher;
use crate::value::Defragmenter;

/// Which page has which records.
#[derive(Clone)]
pub(super) struct Root {
    /// Which node has which hashes: 2^bits slots.
    pub(super) index: Vec<u32>,
    pub(super) bits: u8,
    pub(super) nodes: Vec<NodeSlot>,
    pub(super) len: usize,
    /// The bytes of all pages, and of the strings outside of them.
    pub(super) bytes: usize,
    /// How many records expire.
    pub(super) expiring: usize,
    /// A hint: no record expires earlier.
    pub(super) earliest_ms: i64,
}

impl Root {
    /// The root of a page that has become too small.
    pub(super) fn of(page: Page) -> Self {
        let (len, earliest_ms) = (page.len(), page.earliest_ms());
        let (bytes, expiring) = (page.memory() + page.outside_memory(), page.expiring().count());
        let node = Cow::new(DirectoryNode::of(page));
        let nodes = vec![NodeSlot { node, count: len as u32, depth: 0 }];
        Self { index: vec![0], bits: 0, nodes, len, bytes, expiring, earliest_ms }
    }

    /// The node and the page of a hash, and how many of its bits select the page.
    #[inline(always)]
    pub(super) fn locate(&self, hash: u64) -> (usize, usize, u8) {
        let node = self.index[self.slot(hash)] as usize;
        let slot = &self.nodes[node];
        let page = slot.node.page_of(hash, slot.depth);
        (node, page, slot.depth + slot.node.pages[page].depth)
    }

    #[inline(always)]
    fn slot(&self, hash: u64) -> usize {
        // Two shifts, because one by 64 bits is not possible.
        (hash >> 1 >> (63 - self.bits)) as usize
    }

    #[inline]
    pub(super) fn find(&self, key: &[u8], hash: u64) -> Option<RecordPlace> {
        let node = self.index[self.slot(hash)] as usize;
        let slot = &self.nodes[node];
        let page = slot.node.page_of(hash, slot.depth);
        let record = slot.node.pages[page].page.find(tag(hash), key)?;
        Some(RecordPlace::new(node, page, record))
    }

    pub(super) fn record(&self, place: RecordPlace) -> TableRecord<'_> {
        self.page(place).record(place.record as usize)
    }

    fn page(&self, place: RecordPlace) -> &Page {
        &self.nodes[place.node as usize].node.pages[usize::from(place.page)].page
    }

    pub(super) fn insert(&mut self, hash: u64, new: &NewRecord<'_>, hasher: &Hasher) {
        let len = new.len();
        loop {
            let (node, page, _) = self.locate(hash);
            let full = self.nodes[node].node.pages[page].page.is_full(len);
            if full && self.split(node, page, hash, hasher) {
                continue;
            }
            let slot = &mut self.nodes[node];
            slot.count += 1;
            let owner = slot.node.make_mut();
            let slot = &mut owner.pages[page];
            slot.count += 1;
            let before = slot.page.memory();
            slot.page.insert(tag(hash), new);
            self.len += 1;
            self.bytes = self.bytes + slot.page.memory() + new.outside_memory() - before;
            if let Some(expire_ms) = new.expire_ms {
                owner.earliest_ms = owner.earliest_ms.min(expire_ms);
                self.earliest_ms = self.earliest_ms.min(expire_ms);
                self.expiring += 1;
            }
            return;
        }
    }

    pub(super) fn replace(&mut self, place: RecordPlace, new: &NewRecord<'_>) {
        let old = self.record(place);
        let (expired, outside) = (old.expire_ms.is_some(), old.outside_memory());
        let owner = self.nodes[place.node as usize].node.make_mut();
        let page = &mut owner.pages[usize::from(place.page)].page;
        let before = page.memory() + outside;
        page.replace(place.record as usize, new);
        self.bytes = self.bytes + page.memory() + new.outside_memory() - before;
        self.expiring -= usize::from(expired);
        if let Some(expire_ms) = new.expire_ms {
            owner.earliest_ms = owner.earliest_ms.min(expire_ms);
            self.earliest_ms = self.earliest_ms.min(expire_ms);
            self.expiring += 1;
        }
    }

    /// Removes a record. Returns whether pages were merged.
    pub(super) fn remove(&mut self, place: RecordPlace, hash: u64) -> bool {
        let old = self.record(place);
        let (expired, outside) = (old.expire_ms.is_some(), old.outside_memory());
        let slot = &mut self.nodes[place.node as usize];
        slot.count -= 1;
        let depth = slot.depth;
        let owner = slot.node.make_mut();
        let slot = &mut owner.pages[usize::from(place.page)];
        slot.count -= 1;
        let before = slot.page.memory() + outside;
        slot.page.remove(place.record as usize);
        self.len -= 1;
        self.bytes = self.bytes + slot.page.memory() - before;
        self.expiring -= usize::from(expired);
        if self.expiring == 0 {
            self.earliest_ms = NEVER;
        }
        if slot.page.is_sparse()
            && let Some(change) = owner.merge_page(hash, depth)
        {
            self.bytes = self.bytes.saturating_add_signed(change);
            if owner.pages.len() <= PAGES_FEW {
                self.merge_node(hash);
            }
            return true;
        }
        false
    }

    /// The page, if there is no other.
    pub(super) fn only_page(&self) -> Option<Page> {
        let [slot] = &self.nodes[..] else { return None };
        let [slot] = &slot.node.pages[..] else { return None };
        Some(slot.page.clone())
    }

    /// See [`super::RecordTable::nth`].
    pub(super) fn nth(&self, index: usize) -> Option<RecordPlace> {
        let mut left = index;
        for (node, slot) in self.nodes.iter().enumerate() {
            if left >= slot.count as usize {
                left -= slot.count as usize;
                continue;
            }
            for (page, slot) in slot.node.pages.iter().enumerate() {
                if left < slot.count as usize {
                    return Some(RecordPlace::new(node, page, left));
                }
                left -= slot.count as usize;
            }
        }
        None
    }

    /// Moves the parts from a place on, page by page. Returns the place to continue with; the first
    /// one at the end.
    pub(super) fn move_parts(&mut self, from: Walk, defragmenter: &mut Defragmenter<'_>) -> Walk {
        if from == Walk::default() {
            defragmenter.vector(&mut self.index);
            defragmenter.vector(&mut self.nodes);
        }
        let mut at = from;
        while let Some(slot) = self.nodes.get_mut(at.node) {
            // Its own block is the first of its parts.
            let is_begun = at.page > 0 || at.record > 0;
            let node = slot.node.defragment(usize::from(is_begun), defragmenter);
            let mut pages = &mut [][..];
            if let Some(node) = node {
                if !is_begun {
                    defragmenter.vector(&mut node.pages);
                }
                pages = &mut node.pages[..];
            }
            while let Some(PageSlot { page, .. }) = pages.get_mut(at.page) {
                let before = page.memory();
                let record = page.defragment(at.record, defragmenter);
                self.bytes = self.bytes + page.memory() - before;
                at = if record < page.len() {
                    Walk { record, ..at }
                } else {
                    Walk { page: at.page + 1, record: 0, ..at }
                };
                if defragmenter.is_spent() {
                    return at;
                }
            }
            at = Walk { node: at.node + 1, page: 0, record: 0 };
        }
        Walk::default()
    }

    /// Bytes of memory besides its own.
    pub(super) fn memory(&self) -> usize {
        let nodes: usize = self.nodes.iter().map(|slot| slot.node.pages.capacity()).sum();
        self.index.capacity() * 4
            + self.nodes.capacity() * size_of::<NodeSlot>()
            + self.nodes.len() * Cow::<DirectoryNode>::size()
            + nodes * size_of::<PageSlot>()
            + self.bytes
    }

    /// How many blocks of memory it has, approximately.
    pub(super) fn free_effort(&self) -> usize {
        2 + self.nodes.iter().map(|slot| 2 + slot.node.pages.len()).sum::<usize>()
    }

    /// Splits a full page. `false`: that would make the index too large to be worth it. The page
    /// then grows.
    #[cold]
    #[inline(never)]
    fn split(&mut self, node: usize, page: usize, hash: u64, hasher: &Hasher) -> bool {
        let slot = &self.nodes[node];
        let pages = &slot.node.pages;
        if pages[page].depth == SLOT_BITS {
            let doubles = slot.depth == self.bits;
            let wanted = (INDEX_SPARE * self.nodes.len()).max(self.len / RECORDS_PER_SLOT);
            let large = self.index.len() >= wanted && !pages[page].page.must_split();
            if doubles && (large || self.bits >= INDEX_BITS_MAX) {
                return false;
            }
            self.split_node(node, hash);
            return true;
        }
        let depth = slot.depth;
        let before = pages[page].page.memory();
        let owner = self.nodes[node].node.make_mut();
        owner.split_page(hash, depth, |key| hasher.hash(key).0);
        let after = owner.pages[page].page.memory() + owner.pages[page + 1].page.memory();
        self.bytes = self.bytes + after - before;
        true
    }

    fn split_node(&mut self, node: usize, hash: u64) {
        if self.nodes[node].depth == self.bits {
            self.index = self.index.iter().flat_map(|&node| [node, node]).collect();
            self.bits += 1;
        }
        let depth = self.nodes[node].depth + 1;
        let (start, span) = self.range(hash, depth - 1);
        let (left, right) = (*self.nodes[node].node).clone().split();
        let (left_count, right_count) = (left.count(), right.count());
        self.nodes[node] = NodeSlot { node: Cow::new(left), count: left_count, depth };
        let right = NodeSlot { node: Cow::new(right), count: right_count, depth };
        self.nodes.insert(node + 1, right);
        for index in &mut self.index[start + span / 2..] {
            *index += 1;
        }
    }

    /// Merges the node of a hash with its other half, if possible.
    #[cold]
    fn merge_node(&mut self, hash: u64) {
        let depth = self.nodes[self.index[self.slot(hash)] as usize].depth;
        if depth == 0 {
            return;
        }
        let (start, span) = self.range(hash, depth - 1);
        let left = self.index[start] as usize;
        let [one, other] = &self.nodes[left..left + 2] else { return };
        if one.depth != depth || other.depth != depth {
            return;
        }
        let Some(node) = one.node.merged(&other.node) else { return };
        let count = node.count();
        self.nodes[left] = NodeSlot { node: Cow::new(node), count, depth: depth - 1 };
        self.nodes.remove(left + 1);
        for index in &mut self.index[start + span / 2..] {
            *index -= 1;
        }
        while self.bits > 0 && self.nodes.iter().all(|slot| slot.depth < self.bits) {
            self.bits -= 1;
            self.index = self.index.iter().step_by(2).copied().collect();
        }
    }

    /// The first slot and the number of slots of the node with this depth and hash.
    fn range(&self, hash: u64, depth: u8) -> (usize, usize) {
        let span = 1 << (self.bits - depth);
        (self.slot(hash) & !(span - 1), span)
    }

    /// A record that expires at or before `now_ms`. Makes the hints on the way exact.
    pub(super) fn first_expired(&mut self, now_ms: i64) -> Option<RecordPlace> {
        for (node, slot) in self.nodes.iter_mut().enumerate() {
            if slot.node.earliest_ms > now_ms {
                continue;
            }
            let owner = slot.node.make_mut();
            for (page, slot) in owner.pages.iter_mut().enumerate() {
                if slot.page.earliest_ms() > now_ms {
                    continue;
                }
                // A page that is shared is replaced by a copy, which may be smaller.
                let before = slot.page.memory();
                if let Some(record) = slot.page.first_expired(now_ms) {
                    return Some(RecordPlace::new(node, page, record));
                }
                self.bytes = self.bytes + slot.page.memory() - before;
            }
            owner.earliest_ms =
                owner.pages.iter().map(|slot| slot.page.earliest_ms()).min().unwrap_or(NEVER);
        }
        self.earliest_ms =
            self.nodes.iter().map(|slot| slot.node.earliest_ms).min().unwrap_or(NEVER);
        None
    }
}

/// The largest size of the root's index.
const INDEX_BITS_MAX: u8 = 28;
/// The root's index may have about `INDEX_SPARE` slots for each node, or one slot for
/// `RECORDS_PER_SLOT` records, whichever is more. The first limit lets a table of few nodes
/// separate hashes with the same beginning. With the second, an attacker who looks for such hashes
/// must try the more keys the more there are.
const INDEX_SPARE: usize = 64;
const RECORDS_PER_SLOT: usize = 4;
/// A node with at most this many pages is merged with its other half.
const PAGES_FEW: usize = 48;
