//! Streams: entries in the order of their IDs, and the groups that read them.
//!
//! About a hundred entries lie in a node, and nodes lie in pages ([`IdMap`]). Clones share nodes
//! and pages until one changes.

mod group;
mod id;
mod id_map;
mod node;
mod range;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::mem::offset_of;

pub use group::{Consumer, ConsumerGroup, ConsumerNumber, Pending, PendingFrom};
pub use id::StreamId;
pub use id_map::{IdMap, IdMapIter, Keyed, RecordsBack};
use node::StreamCursor;
pub use node::{
    Entries, NODE_BYTES_MAX, PACKED_DELETED, PACKED_LEAD, PACKED_SAME_FIELDS, Pairs, StreamEntry,
    StreamNode,
};
pub use range::{Range, RangeBack};

use super::Item;
use super::cow::Cow;
use super::unaligned_box::UnalignedBox;
use crate::value::{Defragmenter, Encoding};

/// A stream. It may be empty, and its key stays then.
#[derive(Clone)]
pub struct Stream(UnalignedBox<StreamParts>);

/// The parts of a stream.
///
/// In this struct, in its log, in the log's map and in the map's last node, the fields that XADD
/// does not change come first. So they lie on a cache line that stays with all threads that read
/// it.
#[derive(Clone, Default)]
#[repr(C)]
pub struct StreamParts {
    pub groups: Groups,
    pub log: StreamLog,
}

/// The entries, and facts about earlier ones.
#[derive(Clone, Default)]
#[repr(C)]
pub struct StreamLog {
    /// The greatest ID that was deleted individually.
    pub max_deleted_id: StreamId,
    nodes: IdMap<StreamNode>,
    len: usize,
    /// The ID of the first entry, or zero. It is stored because any number of deleted entries may
    /// lie before that entry.
    first_id: StreamId,
    /// The offset of that entry in its node, so that deleted entries are skipped. 0: unknown.
    first_at: u32,
    /// The greatest ID that was given. New IDs must be greater.
    pub last_id: StreamId,
    /// How many entries were ever added.
    pub entries_added: u64,
}

/// Blocks of this size begin at a cache line, because allocators place them side by side. XADD
/// reads all three lines, and writes the second and the third.
const _: () = {
    let last =
        offset_of!(StreamParts, log) + offset_of!(StreamLog, nodes) + IdMap::<StreamNode>::LAST_AT;
    assert!(size_of::<StreamParts>() == 192 && last + StreamNode::CHANGING_AT >= 64);
};

/// The consumer groups by name. It is one pointer, because most streams have no groups.
#[derive(Clone, Default)]
pub struct Groups(Option<Box<GroupsByName>>);

type GroupsByName = BTreeMap<Box<[u8]>, Cow<ConsumerGroup>>;

/// The largest size of a node. 0: there is no limit.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct StreamLimits {
    pub node_bytes_max: usize,
    pub node_entries_max: usize,
}

/// How long entries are removed from the front.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum StreamTrim {
    /// Until there are no more entries than this.
    Len(usize),
    /// Until no entry is below this ID.
    Id(StreamId),
}

impl Stream {
    pub fn new() -> Self {
        Self(UnalignedBox::default())
    }

    /// See [`Collection::defragment`](super::Collection::defragment). The parts are those of the
    /// entries, and then those of the groups.
    pub(crate) fn defragment(&mut self, from: usize, defragmenter: &mut Defragmenter<'_>) -> usize {
        if from == 0 {
            self.0.defragment(defragmenter);
        }
        let StreamParts { log, groups } = &mut *self.0;
        let groups_at = log.nodes.parts();
        let mut part = from;
        if part < groups_at {
            part = log.nodes.defragment(part, defragmenter);
        }
        if part >= groups_at && (!defragmenter.is_spent() || groups.is_empty()) {
            match groups.defragment(part - groups_at, defragmenter) {
                0 => return 0,
                next => part = groups_at + next,
            }
        }
        part
    }

    #[inline]
    pub fn log_mut(&mut self) -> &mut StreamLog {
        &mut self.0.log
    }

    pub fn groups_mut(&mut self) -> &mut Groups {
        &mut self.0.groups
    }

    /// A group for changing, together with the entries.
    pub fn group_mut(&mut self, name: &[u8]) -> Option<(&mut StreamLog, &mut ConsumerGroup)> {
        let StreamParts { log, groups } = &mut *self.0;
        Some((log, groups.get_mut(name)?))
    }

    #[inline]
    pub fn log(&self) -> &StreamLog {
        &self.0.log
    }

    pub fn groups(&self) -> &Groups {
        &self.0.groups
    }

    pub fn len(&self) -> usize {
        self.0.log.len
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    pub const fn encoding(&self) -> Encoding {
        Encoding::Stream
    }

    /// Bytes of memory, estimated from some of the nodes.
    pub fn memory(&self) -> usize {
        size_of::<StreamParts>() + self.0.log.memory() + self.0.groups.memory()
    }

    pub fn free_effort(&self) -> usize {
        let groups = self.0.groups.iter().map(|(_, group)| group.blocks());
        1 + self.0.log.nodes.len() + groups.sum::<usize>()
    }
}

impl Default for Stream {
    fn default() -> Self {
        Self::new()
    }
}

impl std::fmt::Debug for Stream {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter
            .debug_struct("Stream")
            .field("len", &self.len())
            .field("last_id", &self.log().last_id)
            .finish_non_exhaustive()
    }
}

impl StreamLog {
    /// Whether an entry with `count` fields and values, of `bytes` bytes in total, can be stored.
    pub fn takes(count: usize, bytes: usize) -> bool {
        node::packed_len_max(count, bytes) <= NODE_BYTES_MAX
    }

    /// Adds an entry with an ID greater than all others. `items` are alternating fields and values,
    /// of `bytes` bytes in total. [`Self::takes`] must allow them.
    #[inline]
    pub fn append<'a>(
        &mut self,
        id: StreamId,
        items: impl ExactSizeIterator<Item = Item<'a>> + Clone,
        bytes: usize,
        limits: StreamLimits,
    ) {
        debug_assert!(self.last_id < id, "{id:?} behind {:?}", self.last_id);
        match self.nodes.last_mut() {
            Some(node) if node.has_room(items.len(), bytes, limits) => node.push(id, items, false),
            _ => self.append_node(id, items, false),
        }
        self.count_appended(id);
        // A restored stream may have any number.
        self.entries_added = self.entries_added.wrapping_add(1);
        self.last_id = id;
    }

    fn count_appended(&mut self, id: StreamId) {
        if self.len == 0 {
            (self.first_id, self.first_at) = (id, 0);
        }
        self.len += 1;
    }

    /// Must be called after the first entry was removed.
    fn find_first(&mut self) {
        let nodes = self.nodes.iter().filter(|node| node.live() > 0);
        let first = nodes.filter_map(|node| node.first_live(self.cursor_of(node))).next();
        (self.first_at, self.first_id) = first.unwrap_or((0, StreamId::ZERO));
    }

    /// The start of a node's entries. If the stream's first entry is known to lie there, it is the
    /// start.
    fn cursor_of(&self, node: &StreamNode) -> StreamCursor {
        let has_first = (node.master()..=node.last()).contains(&self.first_id);
        match self.first_at {
            at @ 1.. if has_first => node.cursor_at(at as usize, self.first_id),
            _ => node.cursor(),
        }
    }

    /// The entries of a node from that start on.
    fn entries_of<'a>(&self, node: &'a StreamNode) -> Entries<'a> {
        node.entries_from(self.cursor_of(node))
    }

    fn append_node<'a>(
        &mut self,
        id: StreamId,
        items: impl Iterator<Item = Item<'a>> + Clone,
        is_deleted: bool,
    ) {
        // The node will probably become as long as the one before it.
        let capacity = self.nodes.last_mut().map_or(0, |node| {
            node.finish();
            node.byte_len().min(CAPACITY_MAX)
        });
        let mut node = StreamNode::new(id, items.clone().step_by(2), capacity);
        node.push(id, items, is_deleted);
        self.nodes.push_back(node);
    }

    /// Removes entries from the front. Returns how many. With `whole`, removes only whole nodes,
    /// which together have at most `limit` entries (0: any number).
    pub fn trim(&mut self, until: StreamTrim, whole: bool, limit: usize) -> usize {
        let trimmed = self.trim_nodes(until, whole, limit);
        if trimmed > 0 {
            self.find_first();
        }
        trimmed
    }

    fn trim_nodes(&mut self, until: StreamTrim, whole: bool, limit: usize) -> usize {
        let mut trimmed = 0;
        while let Some(node) = self.nodes.first() {
            let live = node.live();
            if matches!(until, StreamTrim::Len(len) if self.len <= len)
                || limit > 0 && trimmed + live > limit
            {
                break;
            }
            let goes = match until {
                StreamTrim::Len(len) => self.len - live >= len,
                StreamTrim::Id(id) => node.last() < id,
            };
            if goes {
                self.nodes.pop_front();
                self.len -= live;
                trimmed += live;
                continue;
            }
            if whole {
                break;
            }
            let (len, from) = (self.len, self.cursor_of(node));
            let deleted = self.nodes.first_mut().map_or(0, |node| {
                node.delete_until(from, |id, deleted| match until {
                    StreamTrim::Len(len_max) => len - deleted <= len_max,
                    StreamTrim::Id(first) => id >= first,
                })
            });
            self.len -= deleted;
            return trimmed + deleted;
        }
        trimmed
    }

    /// Deletes an entry. Returns whether it existed.
    pub fn delete(&mut self, id: StreamId) -> bool {
        // Check first: nothing is copied for an entry that does not exist.
        let there = self.nodes.iter_floor(id).next().is_some_and(|node| {
            self.entries_of(node).any(|entry| entry.id == id && !entry.is_deleted)
        });
        if !there {
            return false;
        }
        let from = self.nodes.iter_floor(id).next().map(|node| self.cursor_of(node));
        let (Some(node), Some(from)) = (self.nodes.floor_mut(id), from) else { return false };
        node.delete(from, id);
        if node.live() == 0 {
            let master = node.master();
            self.nodes.remove(master);
        }
        self.len -= 1;
        self.max_deleted_id = self.max_deleted_id.max(id);
        if id == self.first_id {
            self.find_first();
        }
        true
    }

    pub fn len(&self) -> usize {
        self.len
    }

    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The ID of the first entry, or zero.
    pub fn first_id(&self) -> StreamId {
        self.first_id
    }

    /// The greatest ID of all entries in the nodes, deleted or not, or zero. A new entry's ID must
    /// be greater.
    pub fn greatest_id(&self) -> StreamId {
        self.nodes.last().map_or(StreamId::ZERO, StreamNode::last)
    }

    pub fn entry(&self, id: StreamId) -> Option<StreamEntry<'_>> {
        self.range(id, id).next()
    }

    /// The entries from one ID to another, both included.
    #[inline]
    pub fn range(&self, start: StreamId, end: StreamId) -> Range<'_> {
        Range::new(self, start, end)
    }

    /// The entries from one ID to another, both included, in reverse order.
    pub fn range_back(&self, start: StreamId, end: StreamId) -> RangeBack<'_> {
        RangeBack::new(self, start, end)
    }

    /// Whether nothing was removed since `before` was cloned from the same stream.
    pub fn only_grew(&self, before: &Self) -> bool {
        let removed = |log: &Self| log.entries_added.wrapping_sub(log.len as u64);
        removed(self) == removed(before)
            && self.max_deleted_id == before.max_deleted_id
            && (before.is_empty() || self.first_id() == before.first_id())
    }

    pub fn nodes(&self) -> &IdMap<StreamNode> {
        &self.nodes
    }

    /// How many entries had been added when this one was, if that is known.
    pub fn position(&self, id: StreamId) -> Option<u64> {
        if self.entries_added == 0 {
            return Some(0);
        }
        if id == self.last_id || self.is_empty() && id < self.last_id {
            return Some(self.entries_added);
        }
        if id > self.last_id || id != StreamId::ZERO && id < self.max_deleted_id {
            return None;
        }
        let first_id = self.first_id();
        // Once an entry behind the first one was deleted, there may be gaps behind the first one.
        let gapless = self.max_deleted_id == StreamId::ZERO || self.max_deleted_id < first_id;
        let before_first = self.entries_added.wrapping_sub(self.len as u64);
        match id.cmp(&first_id) {
            std::cmp::Ordering::Less if gapless => Some(before_first),
            std::cmp::Ordering::Equal if gapless => Some(before_first.wrapping_add(1)),
            _ => None,
        }
    }

    /// Whether a deleted entry may lie at this ID or behind it.
    pub fn has_gaps_from(&self, id: StreamId) -> bool {
        !self.is_empty() && self.max_deleted_id != StreamId::ZERO && id <= self.max_deleted_id
    }

    /// How many entries a group has still to read, if that is known.
    pub fn lag(&self, group: &ConsumerGroup) -> Option<i64> {
        let read = match group.entries_read {
            _ if self.entries_added == 0 => return Some(0),
            Some(read) if !self.has_gaps_from(group.last_id) => read,
            _ => self.position(group.last_id)?,
        };
        Some(self.entries_added.wrapping_sub(read) as i64)
    }

    fn memory(&self) -> usize {
        let count = self.nodes.len();
        let blocks: usize = match count {
            0..=SAMPLE => self.nodes.iter().map(StreamNode::memory).sum(),
            _ => {
                let sampled = self.nodes.iter_back_from(StreamId::MAX).skip(1).take(SAMPLE - 1);
                sampled.map(StreamNode::memory).sum::<usize>() / (SAMPLE - 1) * count
            }
        };
        self.nodes.memory() + blocks
    }
}

/// Builds a stream from foreign nodes.
impl StreamLog {
    /// Appends an empty node. `false`: an existing ID is not below `master`.
    pub fn append_empty_node<'a>(
        &mut self,
        master: StreamId,
        fields: impl Iterator<Item = Item<'a>> + Clone,
    ) -> bool {
        let fits = self.nodes.last().is_none_or(|node| node.last() < master);
        if fits {
            self.nodes.push_back(StreamNode::new(master, fields, 0));
        }
        fits
    }

    /// Adds an entry to the last node. `false`: its ID is not above all others.
    pub fn append_to_node<'a>(
        &mut self,
        id: StreamId,
        items: impl Iterator<Item = Item<'a>> + Clone,
        is_deleted: bool,
    ) -> bool {
        self.append_if_behind(id, is_deleted, |node| node.push(id, items, is_deleted))
    }

    /// Does what `append_to_node` does, for the values of an entry with the node's fields.
    pub fn append_values_to_node<'a>(
        &mut self,
        id: StreamId,
        values: impl Iterator<Item = Item<'a>> + Clone,
        is_deleted: bool,
    ) -> bool {
        self.append_if_behind(id, is_deleted, |node| node.push_values(id, values, is_deleted))
    }

    fn append_if_behind(
        &mut self,
        id: StreamId,
        is_deleted: bool,
        push: impl FnOnce(&mut StreamNode),
    ) -> bool {
        let Some(node) = self.nodes.last_mut() else { return false };
        let fits = if node.is_empty() { node.master() <= id } else { node.last() < id };
        if fits {
            push(node);
            if !is_deleted {
                self.count_appended(id);
            }
        }
        fits
    }
}

impl Groups {
    /// Moves blocks from one part on. Returns the part to continue with; 0 at the end.
    fn defragment(&mut self, from: usize, defragmenter: &mut Defragmenter<'_>) -> usize {
        let Some(groups) = &mut self.0 else { return 0 };
        if from == 0 {
            defragmenter.boxed(groups);
            defragmenter.map(groups);
        }
        let (mut start, mut part) = (0, from);
        for group in groups.values_mut() {
            let end = start + group.parts();
            if part < end {
                let from = part - start;
                let own = group.defragment(from, defragmenter);
                part = own.map_or(end, |group| start + group.defragment(from, defragmenter));
                if defragmenter.is_spent() {
                    return part;
                }
            }
            start = end;
        }
        0
    }

    /// Adds a group. `false`: the name exists.
    pub fn add(&mut self, name: &[u8], group: ConsumerGroup) -> bool {
        let groups = self.0.get_or_insert_default();
        if groups.contains_key(name) {
            return false;
        }
        groups.insert(name.into(), Cow::new(group));
        true
    }

    /// Removes a group, and returns it in a `Groups` of its own, which may take long to free.
    pub fn take(&mut self, name: &[u8]) -> Option<Self> {
        let taken = self.0.as_mut()?.remove_entry(name)?;
        self.0.take_if(|groups| groups.is_empty());
        Some(Self(Some(Box::new(BTreeMap::from([taken])))))
    }

    fn find(&self, name: &[u8]) -> Option<&Cow<ConsumerGroup>> {
        self.0.as_ref()?.get(name)
    }

    fn find_mut(&mut self, name: &[u8]) -> Option<&mut Cow<ConsumerGroup>> {
        self.0.as_mut()?.get_mut(name)
    }

    pub fn get_mut(&mut self, name: &[u8]) -> Option<&mut ConsumerGroup> {
        self.find_mut(name).map(Cow::make_mut)
    }

    pub fn get(&self, name: &[u8]) -> Option<&ConsumerGroup> {
        self.find(name).map(|group| &**group)
    }

    /// Replaces a group.
    pub fn replace(&mut self, name: &[u8], group: ConsumerGroup) {
        if let Some(there) = self.find_mut(name) {
            *there = Cow::new(group);
        }
    }

    /// Whether both have a group of this name, one of which is an unchanged clone of the other.
    pub fn is_same(&self, other: &Self, name: &[u8]) -> bool {
        matches!((self.find(name), other.find(name)), (Some(one), Some(other)) if one.is_same(other))
    }

    pub fn len(&self) -> usize {
        self.0.as_ref().map_or(0, |groups| groups.len())
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_none()
    }

    /// The groups in the order of their names.
    pub fn iter(&self) -> impl Iterator<Item = (&[u8], &ConsumerGroup)> {
        self.0.iter().flat_map(|groups| groups.iter()).map(|(name, group)| (&**name, &**group))
    }

    fn memory(&self) -> usize {
        self.iter().map(|(name, group)| name.len() + 2 * size_of::<usize>() + group.memory()).sum()
    }
}

/// How many nodes are looked at to estimate the memory of all.
const SAMPLE: usize = 16;
/// The largest initial room of a new node, in bytes.
const CAPACITY_MAX: usize = 64 << 10;
