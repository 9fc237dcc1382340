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
mod root;
#[cfg(test)]
mod tests;

use directory::{DirectoryNode, NodeSlot};
pub use page::NEVER;
use record::NewRecord;
pub use record::{Given, INLINE_MAX, Outside, RecordText, TableRecord};
use root::Root;

use super::cow::Cow;
use crate::hash::Hasher;
use crate::value::Defragmenter;

/// Records in the order of their hashes.
#[derive(Clone)]
pub struct RecordTable {
    root: Cow<Root>,
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
        Self { root: Cow::new(Root::new(values)) }
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

/// The bits of a hash that a page keeps. None of them selects the page.
#[inline(always)]
const fn tag(hash: u64) -> u8 {
    hash as u8
}

/// A position has this many bits fewer than a hash.
const POSITION_SHIFT: u32 = 16;
const POSITIONS: u64 = 1 << (64 - POSITION_SHIFT);
/// How many keys are worth prefetching together.
pub const PREFETCHED: usize = 16;
/// Prefetching pays only in a table with at least this many records, about a core's own cache.
const PREFETCHED_MIN: usize = 4096;
