//! A large set or hash: records in the order of their keys' hashes, in pages.
//!
//! ```text
//! Table -> Page: up to 64 records
//! Table -> Root: index, nodes -> Node: index, pages -> Page: up to 64 records
//! ```
//! A table is a single page as long as its records fit into one. A full page is split by the next
//! bit of the hashes, and so is a node with 256 slots. The root's index doubles when a node needs
//! it. So no single change takes long, even in a large table.
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

pub use page::NEVER;
use page::Page;
use record::NewRecord;
pub use record::{Given, INLINE_MAX, Outside, RecordText, TableRecord};
use root::Root;

use super::cow::Cow;
use crate::hash::Hasher;
use crate::value::Defragmenter;

/// Records in the order of their hashes.
#[derive(Clone)]
pub struct RecordTable {
    pages: Pages,
}

#[derive(Clone)]
enum Pages {
    One(Page),
    Many(Cow<Root>),
}

/// Where a record lies. Valid until the table changes.
#[derive(Clone, Copy, Debug)]
pub struct RecordPlace {
    node: u32,
    page: u16,
    record: u32,
}

/// How far a walk has come.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Walk {
    node: usize,
    page: usize,
    record: usize,
}

/// The records, page by page in the order of hashes.
#[derive(Clone)]
pub struct RecordIter<'a> {
    pages: &'a Pages,
    /// The page with the next record; `None` at the end.
    page: Option<&'a Page>,
    at: Walk,
    left: usize,
}

impl RecordTable {
    /// An empty table, whose records have values or not.
    pub fn new(values: bool) -> Self {
        Self { pages: Pages::One(Page::new(values)) }
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
        let found = self.pages.find(bytes, hash);
        if found.is_none() {
            self.pages.insert(hash, &NewRecord { key, value, expire_ms: None }, hasher);
        }
        found
    }

    /// Adds a record whose key must not exist.
    pub fn insert_absent<'a>(&mut self, key: Given<'a>, value: Option<Given<'a>>, hasher: &Hasher) {
        let hash = hasher.hash(key.bytes()).0;
        debug_assert!(self.pages.find(key.bytes(), hash).is_none(), "the key is there");
        self.pages.insert(hash, &NewRecord { key, value, expire_ms: None }, hasher);
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
        match self.pages.find(key.bytes(), hash) {
            Some(place) => {
                self.pages.replace(place, &new);
                false
            }
            None => {
                self.pages.insert(hash, &new, hasher);
                true
            }
        }
    }

    /// Sets a record's expiry.
    pub fn set_expiry(&mut self, place: RecordPlace, expire_ms: Option<i64>) {
        let record = self.record(place);
        // Small copies, because the originals move.
        let key = record.key.bytes().to_vec();
        let value = record.value.map(|value| match value {
            RecordText::Inline(bytes) => std::sync::Arc::new(bytes.to_vec()),
            RecordText::Outside(outside) => outside.to_shared(),
        });
        let value = value.as_ref().map(Given::Shared);
        self.pages.replace(place, &NewRecord { key: Given::Bytes(&key), value, expire_ms });
    }

    /// Removes a record. Returns whether the key existed.
    pub fn remove(&mut self, key: &[u8], hasher: &Hasher) -> bool {
        let hash = hasher.hash(key).0;
        match self.pages.find(key, hash) {
            Some(place) => {
                self.pages.remove(place, hash);
                true
            }
            None => false,
        }
    }

    pub fn remove_at(&mut self, place: RecordPlace, hasher: &Hasher) {
        let hash = hasher.hash(self.record(place).key.bytes()).0;
        self.pages.remove(place, hash);
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
        while removed < limit && self.earliest_ms() <= now_ms {
            let Some(place) = self.pages.first_expired(now_ms) else { break };
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
                self.pages.locate(hasher.hash(key).0).0.prefetch();
            });
        }
    }

    #[inline]
    pub fn find(&self, key: &[u8], hasher: &Hasher) -> Option<RecordPlace> {
        self.pages.find(key, hasher.hash(key).0)
    }

    #[inline]
    pub fn record(&self, place: RecordPlace) -> TableRecord<'_> {
        match &self.pages {
            Pages::One(page) => page.record(place.record as usize),
            Pages::Many(root) => root.record(place),
        }
    }

    /// The place of the record with this index: a number below `len()`, in no particular order.
    /// Evenly random indices give evenly random records.
    pub fn nth(&self, index: usize) -> Option<RecordPlace> {
        match &self.pages {
            Pages::One(page) => (index < page.len()).then_some(RecordPlace::in_one_page(index)),
            Pages::Many(root) => root.nth(index),
        }
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
            let (page, depth) = self.pages.locate(position << POSITION_SHIFT);
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
        let mut records = self.iter_from(from, limit);
        for _ in 0..limit {
            f(records.next()?);
        }
        Some(records.at)
    }

    pub fn iter(&self) -> RecordIter<'_> {
        self.iter_from(Walk::default(), self.len())
    }

    fn iter_from(&self, at: Walk, left: usize) -> RecordIter<'_> {
        RecordIter { pages: &self.pages, page: self.pages.page(at), at, left }
    }

    /// Whether one is a clone of the other, and neither has changed since.
    pub fn is_same(&self, other: &Self) -> bool {
        match (&self.pages, &other.pages) {
            (Pages::One(page), Pages::One(other)) => page.is_same(other),
            (Pages::Many(root), Pages::Many(other)) => root.is_same(other),
            _ => false,
        }
    }

    #[inline]
    pub fn len(&self) -> usize {
        match &self.pages {
            Pages::One(page) => page.len(),
            Pages::Many(root) => root.len,
        }
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Whether a record expires.
    pub fn has_expiring(&self) -> bool {
        match &self.pages {
            Pages::One(page) => page.expiring().next().is_some(),
            Pages::Many(root) => root.expiring > 0,
        }
    }

    /// No record expires earlier; [`NEVER`] if none does. May be earlier than necessary.
    pub fn earliest_ms(&self) -> i64 {
        match &self.pages {
            Pages::One(page) => page.earliest_ms(),
            Pages::Many(root) => root.earliest_ms,
        }
    }

    /// Moves blocks out of sparsely used memory, unless a clone shares them, from a part on. Parts
    /// are places of records. Returns the part to continue with; 0 at the end.
    pub(crate) fn defragment(&mut self, from: usize, defragmenter: &mut Defragmenter<'_>) -> usize {
        let at = Walk::from_part(from);
        let next = match &mut self.pages {
            Pages::One(page) => {
                let record = page.defragment(at.record, defragmenter);
                Walk { record: if record < page.len() { record } else { 0 }, ..Walk::default() }
            }
            Pages::Many(root) => root
                .defragment(from, defragmenter)
                .map_or_else(Walk::default, |root| root.move_parts(at, defragmenter)),
        };
        next.part()
    }

    /// Bytes of memory.
    pub fn memory(&self) -> usize {
        match &self.pages {
            Pages::One(page) => page.memory() + page.outside_memory(),
            Pages::Many(root) => Cow::<Root>::size() + root.memory(),
        }
    }

    /// How many blocks of memory it has, approximately.
    pub fn free_effort(&self) -> usize {
        match &self.pages {
            Pages::One(_) => 1,
            Pages::Many(root) => root.free_effort(),
        }
    }
}

impl Pages {
    /// The page of a hash, and how many of its bits select the page.
    #[inline(always)]
    fn locate(&self, hash: u64) -> (&Page, u8) {
        match self {
            Self::One(page) => (page, 0),
            Self::Many(root) => {
                let (node, page, depth) = root.locate(hash);
                (&root.nodes[node].node.pages[page].page, depth)
            }
        }
    }

    #[inline(always)]
    fn find(&self, key: &[u8], hash: u64) -> Option<RecordPlace> {
        match self {
            Self::One(page) => page.find(tag(hash), key).map(RecordPlace::in_one_page),
            Self::Many(root) => root.find(key, hash),
        }
    }

    /// The page that a walk has come to. `None`: its node, or the table, has no more.
    fn page(&self, at: Walk) -> Option<&Page> {
        match self {
            Self::One(page) => (at.node == 0 && at.page == 0).then_some(page),
            Self::Many(root) => Some(&root.nodes.get(at.node)?.node.pages.get(at.page)?.page),
        }
    }

    fn insert(&mut self, hash: u64, new: &NewRecord<'_>, hasher: &Hasher) {
        if let Self::One(page) = self {
            if !page.is_full(new.len()) {
                return page.insert(tag(hash), new);
            }
            *self = Self::Many(Cow::new(Root::of(page.clone())));
        }
        if let Self::Many(root) = self {
            root.make_mut().insert(hash, new, hasher);
        }
    }

    fn replace(&mut self, place: RecordPlace, new: &NewRecord<'_>) {
        match self {
            Self::One(page) => page.replace(place.record as usize, new),
            Self::Many(root) => root.make_mut().replace(place, new),
        }
    }

    fn remove(&mut self, place: RecordPlace, hash: u64) {
        match self {
            Self::One(page) => page.remove(place.record as usize),
            Self::Many(root) => {
                if root.make_mut().remove(place, hash)
                    && let Some(page) = root.only_page()
                {
                    *self = Self::One(page);
                }
            }
        }
    }

    /// A record that expires at or before `now_ms`. Makes the hints on the way exact.
    fn first_expired(&mut self, now_ms: i64) -> Option<RecordPlace> {
        match self {
            Self::One(page) => page.first_expired(now_ms).map(RecordPlace::in_one_page),
            Self::Many(root) => root.make_mut().first_expired(now_ms),
        }
    }
}

impl RecordPlace {
    const fn new(node: usize, page: usize, record: usize) -> Self {
        Self { node: node as u32, page: page as u16, record: record as u32 }
    }

    /// The place of a record of a table with one page.
    const fn in_one_page(record: usize) -> Self {
        Self::new(0, 0, record)
    }
}

impl Walk {
    /// The place as one number, in the order of places.
    const fn part(self) -> usize {
        (self.node << PAGE_BITS | self.page) << RECORD_BITS | self.record
    }

    const fn from_part(part: usize) -> Self {
        let pages = part >> RECORD_BITS;
        Self {
            node: pages >> PAGE_BITS,
            page: pages & ((1 << PAGE_BITS) - 1),
            record: part & ((1 << RECORD_BITS) - 1),
        }
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
            let page = self.page?;
            if self.at.record < page.len() {
                self.at.record += 1;
                self.left = self.left.saturating_sub(1);
                return Some(page.record(self.at.record - 1));
            }
            let Walk { node, page, .. } = self.at;
            self.at = Walk { node, page: page + 1, record: 0 };
            self.page = self.pages.page(self.at).or_else(|| {
                self.at = Walk { node: node + 1, page: 0, record: 0 };
                self.pages.page(self.at)
            });
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

/// Bits of a place: a node has 256 pages at most, and a page a million records.
const PAGE_BITS: u32 = 9;
const RECORD_BITS: u32 = 21;
/// A position has this many bits fewer than a hash.
const POSITION_SHIFT: u32 = 16;
const POSITIONS: u64 = 1 << (64 - POSITION_SHIFT);
/// How many keys are worth prefetching together.
pub const PREFETCHED: usize = 16;
/// Prefetching pays only in a table or a sorted set with at least this many elements, which is
/// about a core's own cache.
pub(super) const PREFETCHED_MIN: usize = 4096;
