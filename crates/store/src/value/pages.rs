//! A large set or hash: records in the order of their keys' hashes, in pages.
//!
//! ```text
//! Table -> Root: index, nodes -> Node: index, pages -> Page: up to 64 records
//! ```
//! A full page is split by the next bit of the hashes, and so is a node with 256 slots. The root's
//! index doubles when a node needs it. So no single change takes long, even in a large table.
//!
//! A cursor is a position in the order of hashes. It stays valid while pages are split, merged or
//! changed, and no key is seen twice.
//!
//! The root, nodes and pages are shared between clones until one changes. Cloning costs one
//! counter. A change of a clone copies at most a page, its node and the root.

mod directory;
mod page;
mod record;
#[cfg(test)]
mod tests;

use directory::{DirectoryNode, NodeSlot, SLOT_BITS};
pub use page::NEVER;
use page::Page;
use record::NewRecord;
pub use record::{Given, INLINE_MAX, Outside, RecordText, TableRecord};

use super::cow::Cow;
use crate::hash::Hasher;
use crate::value::Defragmenter;

/// Records in the order of their hashes.
#[derive(Clone)]
pub struct RecordTable {
    root: Cow<Root>,
}

#[derive(Clone)]
struct Root {
    /// Which node has which hashes: 2^bits slots.
    index: Vec<u32>,
    bits: u8,
    nodes: Vec<NodeSlot>,
    len: usize,
    /// The bytes of all pages, and of the strings outside of them.
    bytes: usize,
    /// How many records expire.
    expiring: usize,
    /// A hint: no record expires earlier.
    earliest_ms: i64,
}

/// Where a record lies. Valid until the table changes.
#[derive(Clone, Copy, Debug)]
pub struct RecordPlace {
    node: u32,
    page: u16,
    record: u32,
}

/// How far a walk has come.
#[derive(Clone, Copy, Default, Debug)]
pub struct Walk {
    node: usize,
    page: usize,
    record: usize,
}

/// The records, page by page in the order of hashes.
#[derive(Clone)]
pub struct RecordIter<'a> {
    root: &'a Root,
    node: usize,
    page: usize,
    record: usize,
    left: usize,
}

impl RecordTable {
    /// An empty table, whose records have values or not.
    pub fn new(values: bool) -> Self {
        let node = DirectoryNode::new(values);
        let bytes = node.pages[0].page.memory();
        let nodes = vec![NodeSlot { node: Cow::new(node), count: 0, depth: 0 }];
        let root =
            Root { index: vec![0], bits: 0, nodes, len: 0, bytes, expiring: 0, earliest_ms: NEVER };
        Self { root: Cow::new(root) }
    }

    /// Adds a record unless its key exists. Returns whether it was added.
    pub fn insert_new<'a>(
        &mut self,
        key: Given<'a>,
        value: Option<Given<'a>>,
        hasher: &Hasher,
    ) -> bool {
        self.find_or_insert(key, value, hasher).is_none()
    }

    /// Finds the record with this key. If there is none, adds it and returns `None`.
    pub fn find_or_insert<'a>(
        &mut self,
        key: Given<'a>,
        value: Option<Given<'a>>,
        hasher: &Hasher,
    ) -> Option<RecordPlace> {
        let bytes = key.bytes();
        let hash = hasher.hash(bytes).0;
        let found = self.root.find(bytes, hash);
        if found.is_none() {
            self.root.make_mut().insert(hash, &NewRecord { key, value, expire_ms: None }, hasher);
        }
        found
    }

    /// Adds a record whose key must not exist.
    pub fn insert_absent<'a>(&mut self, key: Given<'a>, value: Option<Given<'a>>, hasher: &Hasher) {
        let hash = hasher.hash(key.bytes()).0;
        debug_assert!(self.root.find(key.bytes(), hash).is_none(), "the key is there");
        self.root.make_mut().insert(hash, &NewRecord { key, value, expire_ms: None }, hasher);
    }

    /// Adds a record, or sets the value and expiry of the one with its key. Returns whether it was
    /// added.
    pub fn set(
        &mut self,
        key: Given<'_>,
        value: Option<Given<'_>>,
        expire_ms: Option<i64>,
        hasher: &Hasher,
    ) -> bool {
        let hash = hasher.hash(key.bytes()).0;
        let new = NewRecord { key, value, expire_ms };
        match self.root.find(key.bytes(), hash) {
            Some(place) => {
                self.root.make_mut().replace(place, &new);
                false
            }
            None => {
                self.root.make_mut().insert(hash, &new, hasher);
                true
            }
        }
    }

    /// Sets a record's expiry.
    pub fn set_expiry(&mut self, place: RecordPlace, expire_ms: Option<i64>) {
        let root = self.root.make_mut();
        let record = root.record(place);
        // Small copies, because the originals move.
        let key = record.key.bytes().to_vec();
        let value = record.value.map(|value| match value {
            RecordText::Inline(bytes) => std::sync::Arc::new(bytes.to_vec()),
            RecordText::Outside(outside) => outside.to_shared(),
        });
        let value = value.as_ref().map(Given::Shared);
        root.replace(place, &NewRecord { key: Given::Bytes(&key), value, expire_ms });
    }

    /// Removes a record. Returns whether the key existed.
    pub fn remove(&mut self, key: &[u8], hasher: &Hasher) -> bool {
        let hash = hasher.hash(key).0;
        match self.root.find(key, hash) {
            Some(place) => {
                self.root.make_mut().remove(place, hash);
                true
            }
            None => false,
        }
    }

    pub fn remove_at(&mut self, place: RecordPlace, hasher: &Hasher) {
        let hash = hasher.hash(self.record(place).key.bytes()).0;
        self.root.make_mut().remove(place, hash);
    }

    /// Removes up to `limit` records that expire at or before `now_ms`, and shows each before.
    /// Reads only pages that have such a record, or recently had one.
    pub fn remove_expired(
        &mut self,
        now_ms: i64,
        limit: usize,
        hasher: &Hasher,
        mut f: impl FnMut(TableRecord<'_>),
    ) -> usize {
        let mut removed = 0;
        while removed < limit && self.root.earliest_ms <= now_ms {
            let Some(place) = self.root.make_mut().first_expired(now_ms) else { break };
            f(self.record(place));
            self.remove_at(place, hasher);
            removed += 1;
        }
        removed
    }

    /// Prefetches the pages for some keys, a few at a time, if the table is too large for the
    /// caches.
    #[inline]
    pub fn prefetch<'k>(&self, keys: impl ExactSizeIterator<Item = &'k [u8]>, hasher: &Hasher) {
        if self.len() >= PREFETCHED_MIN && keys.len() > 1 {
            keys.for_each(|key| {
                let (node, page, _) = self.root.locate(hasher.hash(key).0);
                self.root.nodes[node].node.pages[page].page.prefetch();
            });
        }
    }

    #[inline]
    pub fn find(&self, key: &[u8], hasher: &Hasher) -> Option<RecordPlace> {
        self.root.find(key, hasher.hash(key).0)
    }

    #[inline]
    pub fn record(&self, place: RecordPlace) -> TableRecord<'_> {
        self.root.record(place)
    }

    /// The place of the record with this index: a number below `len()`, in no particular order.
    /// Evenly random indices give evenly random records.
    pub fn nth(&self, index: usize) -> Option<RecordPlace> {
        let mut left = index;
        for (node, slot) in self.root.nodes.iter().enumerate() {
            if left >= slot.count as usize {
                left -= slot.count as usize;
                continue;
            }
            for (page, slot) in slot.node.pages.iter().enumerate() {
                if left < slot.count as usize {
                    return Some(RecordPlace {
                        node: node as u32,
                        page: page as u16,
                        record: left as u32,
                    });
                }
                left -= slot.count as usize;
            }
        }
        None
    }

    /// Shows at least `count` records from a cursor on, or all that are left. Returns the next
    /// cursor, 0 at the end. A walk begins with 0.
    pub fn scan(
        &self,
        cursor: u64,
        count: usize,
        hasher: &Hasher,
        mut f: impl FnMut(TableRecord<'_>),
    ) -> u64 {
        let mut shown = 0;
        let mut position = cursor;
        let mut found: Vec<(u64, usize)> = Vec::new();
        while position < POSITIONS {
            let (node, page, depth) = self.root.locate(position << POSITION_SHIFT);
            let page = &self.root.nodes[node].node.pages[page].page;
            found.clear();
            for index in 0..page.len() {
                let at = hasher.hash(page.key(index)).0 >> POSITION_SHIFT;
                if at >= position {
                    found.push((at, index));
                }
            }
            let left = count.saturating_sub(shown).max(1);
            let mut last = None;
            if found.len() > left {
                let (_, &mut (at, _), _) = found.select_nth_unstable(left - 1);
                // Records with the same position are shown together, because the cursor could not
                // tell them apart.
                found.retain(|&(other, _)| other <= at);
                last = Some(at);
            }
            found.sort_unstable();
            found.iter().for_each(|&(_, index)| f(page.record(index)));
            if let Some(last) = last {
                return last + 1;
            }
            shown += found.len();
            let span = POSITIONS >> depth;
            position = (position & !(span - 1)) + span;
            if shown >= count {
                break;
            }
        }
        if position < POSITIONS { position } else { 0 }
    }

    /// Shows up to `limit` records from a place on. Returns the next place; `None` at the end. Used
    /// to walk in steps over a table that does not change.
    pub fn walk(
        &self,
        from: Walk,
        limit: usize,
        mut f: impl FnMut(TableRecord<'_>),
    ) -> Option<Walk> {
        let Walk { node, page, record } = from;
        let mut records = RecordIter { root: &self.root, node, page, record, left: limit };
        for _ in 0..limit {
            f(records.next()?);
        }
        Some(Walk { node: records.node, page: records.page, record: records.record })
    }

    pub fn iter(&self) -> RecordIter<'_> {
        RecordIter { root: &self.root, node: 0, page: 0, record: 0, left: self.len() }
    }

    /// Whether one is a clone of the other, and neither has changed since.
    pub fn is_same(&self, other: &Self) -> bool {
        self.root.is_same(&other.root)
    }

    #[inline]
    pub fn len(&self) -> usize {
        self.root.len
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// How many records expire.
    pub fn expiring(&self) -> usize {
        self.root.expiring
    }

    /// No record expires earlier; [`NEVER`] if none does. May be earlier than necessary.
    pub fn earliest_ms(&self) -> i64 {
        self.root.earliest_ms
    }

    /// Moves blocks out of sparsely used memory, unless a clone shares them: those of one node and
    /// of some nodes behind it. Returns the node to continue with; 0 at the end.
    pub(crate) fn defragment(&mut self, from: usize, defragmenter: &mut Defragmenter<'_>) -> usize {
        let Some(root) = self.root.defragment(from, defragmenter) else { return 0 };
        if from == 0 {
            defragmenter.vector(&mut root.index);
            defragmenter.vector(&mut root.nodes);
        }
        let last = root.nodes.len() - 1;
        for (number, slot) in root.nodes.iter_mut().enumerate().skip(from) {
            let Some(node) = slot.node.defragment(0, defragmenter) else { continue };
            defragmenter.vector(&mut node.pages);
            for slot in &mut node.pages {
                let before = slot.page.memory();
                slot.page.defragment(defragmenter);
                root.bytes = root.bytes + slot.page.memory() - before;
            }
            if defragmenter.is_spent() && number < last {
                return number + 1;
            }
        }
        0
    }

    /// Bytes of memory.
    pub fn memory(&self) -> usize {
        let root = &*self.root;
        let nodes: usize = root.nodes.iter().map(|slot| slot.node.pages.capacity()).sum();
        Cow::<Root>::size()
            + root.index.capacity() * 4
            + root.nodes.capacity() * size_of::<NodeSlot>()
            + root.nodes.len() * Cow::<DirectoryNode>::size()
            + nodes * size_of::<directory::PageSlot>()
            + root.bytes
    }

    /// How many blocks of memory it has, approximately.
    pub fn free_effort(&self) -> usize {
        2 + self.root.nodes.iter().map(|slot| 2 + slot.node.pages.len()).sum::<usize>()
    }
}

impl std::fmt::Debug for RecordTable {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_list().entries(self.iter()).finish()
    }
}

impl<'a> Iterator for RecordIter<'a> {
    type Item = TableRecord<'a>;

    #[inline]
    fn next(&mut self) -> Option<TableRecord<'a>> {
        loop {
            let slot = self.root.nodes.get(self.node)?;
            let pages = &slot.node.pages;
            let Some(slot) = pages.get(self.page) else {
                (self.node, self.page, self.record) = (self.node + 1, 0, 0);
                continue;
            };
            if self.record == slot.page.len() {
                (self.page, self.record) = (self.page + 1, 0);
                continue;
            }
            self.record += 1;
            self.left = self.left.saturating_sub(1);
            return Some(slot.page.record(self.record - 1));
        }
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.left, Some(self.left))
    }
}

impl ExactSizeIterator for RecordIter<'_> {}

impl Root {
    /// The node and the page of a hash, and how many of its bits select the page.
    #[inline(always)]
    fn locate(&self, hash: u64) -> (usize, usize, u8) {
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
    fn find(&self, key: &[u8], hash: u64) -> Option<RecordPlace> {
        let node = self.index[self.slot(hash)] as usize;
        let slot = &self.nodes[node];
        let page = slot.node.page_of(hash, slot.depth);
        let record = slot.node.pages[page].page.find(tag(hash), key)?;
        Some(RecordPlace { node: node as u32, page: page as u16, record: record as u32 })
    }

    fn record(&self, place: RecordPlace) -> TableRecord<'_> {
        self.page(place).record(place.record as usize)
    }

    fn page(&self, place: RecordPlace) -> &Page {
        &self.nodes[place.node as usize].node.pages[usize::from(place.page)].page
    }

    fn insert(&mut self, hash: u64, new: &NewRecord<'_>, hasher: &Hasher) {
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

    fn replace(&mut self, place: RecordPlace, new: &NewRecord<'_>) {
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

    fn remove(&mut self, place: RecordPlace, hash: u64) {
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
        }
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
    fn first_expired(&mut self, now_ms: i64) -> Option<RecordPlace> {
        for (node, slot) in self.nodes.iter_mut().enumerate() {
            if slot.node.earliest_ms > now_ms {
                continue;
            }
            let owner = slot.node.make_mut();
            for (page, slot) in owner.pages.iter_mut().enumerate() {
                if slot.page.earliest_ms() > now_ms {
                    continue;
                }
                let is_expired = |&index: &usize| {
                    slot.page.record(index).expire_ms.is_some_and(|at| at <= now_ms)
                };
                if let Some(record) = (0..slot.page.len()).find(is_expired) {
                    return Some(RecordPlace {
                        node: node as u32,
                        page: page as u16,
                        record: record as u32,
                    });
                }
                // A page that is shared is replaced by a copy, which may be smaller.
                let before = slot.page.memory();
                slot.page.refresh_earliest();
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

/// The bits of a hash that a page keeps. None of them selects the page.
#[inline(always)]
const fn tag(hash: u64) -> u8 {
    hash as u8
}

/// A position has this many bits fewer than a hash.
const POSITION_SHIFT: u32 = 16;
const POSITIONS: u64 = 1 << (64 - POSITION_SHIFT);
/// The largest size of the root's index.
const INDEX_BITS_MAX: u8 = 28;
/// The root's index may have about `INDEX_SPARE` slots for each node, or one slot for
/// `RECORDS_PER_SLOT` records, whichever is more. The first limit lets a table of few nodes
/// separate hashes with the same beginning. With the second, an attacker who looks for such hashes
/// must try the more keys the more there are.
const INDEX_SPARE: usize = 64;
const RECORDS_PER_SLOT: usize = 4;
/// How many keys are worth prefetching together.
pub const PREFETCHED: usize = 16;
/// Prefetching pays only in a table with at least this many records, about a core's own cache.
const PREFETCHED_MIN: usize = 4096;
/// A node with at most this many pages is merged with its other half.
const PAGES_FEW: usize = 48;
