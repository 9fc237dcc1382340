//! A node: consecutive entries in one or two blocks.
//!
//! ```text
//! field ...                          those that the node was made with
//! entry ...
//! entry: head | ms | sequence | number of fields, field and value ... (or value ...)
//! ```
//! The lowest bits of the head say what follows ([`DELETED`], [`SAME_FIELDS`], [`NEXT_SEQUENCE`]).
//! Its four highest bits are the milliseconds since the previous entry, if there are few. So an
//! entry with the node's fields takes one byte and its values. Values are encoded as in a listpack,
//! but without the length at the end, because nodes are only read forwards.
//!
//! Redis's limits, applied to Redis's form of a node, decide which entries share a node. So
//! trimming whole nodes leaves the same entries as in Redis, and DUMP need not divide them
//! differently. That is why a node counts the bytes that Redis's form would have.

use std::mem::offset_of;

use super::{Keyed, StreamId, StreamLimits};
use crate::value::defrag::Movable;
use crate::value::listpack::format::{Encoded, ListpackWriter, OVERHEAD_MAX, decode};
use crate::value::shared_block::{SharedBlock, Slack};
use crate::value::{Defragmenter, Item};

/// Consecutive entries. The fields that a new entry changes come last: see [`super::Parts`].
#[derive(Clone)]
#[repr(C)]
pub struct StreamNode {
    /// The ID that the node was made for. Redis would use it as the node's key.
    master: StreamId,
    block: SharedBlock,
    /// The last entries, if two blocks take less memory than one: allocators round sizes up.
    rest: Option<SharedBlock>,
    /// The offset of the first entry.
    entries_at: u32,
    field_count: u32,
    /// The ID of the last entry, deleted or not.
    last: StreamId,
    /// The offset of the last entry.
    last_at: u32,
    live: u32,
    deleted: u32,
    /// The length of its listpack in Redis in bytes, without the numbers of entries and of deleted
    /// ones.
    packed_len: u32,
}

/// An entry in its node.
#[derive(Clone, Copy, Debug)]
pub struct StreamEntry<'a> {
    pub id: StreamId,
    pub is_deleted: bool,
    /// Whether its fields are the node's.
    has_same_fields: bool,
    /// How many fields and values it has.
    count: u32,
    /// The node's fields.
    fields: &'a [u8],
    /// The bytes from its first field or value on.
    items: &'a [u8],
}

impl Keyed for StreamNode {
    fn id(&self) -> StreamId {
        self.master
    }
}

impl Movable for StreamNode {
    fn defragment(&mut self, defragmenter: &mut Defragmenter<'_>) {
        self.block.defragment(defragmenter);
        if let Some(rest) = &mut self.rest {
            rest.defragment(defragmenter);
        }
    }
}

impl StreamNode {
    /// The offset of the fields that a new entry changes.
    pub(super) const CHANGING_AT: usize = offset_of!(Self, last);

    /// An empty node with these fields, for entries from `master` on.
    pub fn new<'a>(
        master: StreamId,
        fields: impl Iterator<Item = Item<'a>> + Clone,
        capacity: usize,
    ) -> Self {
        let (mut len, mut packed_len, mut field_count) = (0, 0, 0u32);
        for field in fields.clone() {
            let encoded = Encoded::new(field);
            len += encoded.len();
            packed_len += encoded.len_with_back();
            field_count += 1;
        }
        let mut block = SharedBlock::with_capacity(len);
        let mut room = block.open(0, len, Slack::FillBehind(capacity));
        for field in fields {
            room = write(Encoded::new(field), room);
        }
        let master_len = LISTPACK_OVERHEAD + packed_integer(field_count.into()) + packed_integer(0);
        Self {
            master,
            block,
            rest: None,
            entries_at: len as u32,
            field_count,
            last: StreamId { seq: master.seq.wrapping_sub(1), ..master },
            last_at: 0,
            live: 0,
            deleted: 0,
            packed_len: (master_len + packed_len) as u32,
        }
    }

    /// Whether an entry with `count_added` fields and values, of `bytes` bytes in total, may be
    /// added.
    #[inline]
    pub fn has_room(&self, count_added: usize, bytes: usize, limits: StreamLimits) -> bool {
        let bytes_max = match limits.node_bytes_max {
            0 => NODE_BYTES_MAX,
            limit => limit.min(NODE_BYTES_MAX),
        };
        let counts = packed_integer(self.live.into()) + packed_integer(self.deleted.into());
        let count = self.live as usize + self.deleted as usize;
        let packed_len = self.packed_len as usize;
        packed_len + counts + bytes < bytes_max
            && packed_len + packed_len_max(count_added, bytes) <= NODE_BYTES_MAX
            && (limits.node_entries_max == 0 || count < limits.node_entries_max)
    }

    /// Appends an entry with alternating fields and values.
    pub fn push<'a>(
        &mut self,
        id: StreamId,
        items: impl Iterator<Item = Item<'a>> + Clone,
        is_deleted: bool,
    ) {
        if self.has_fields(items.clone()) {
            let values = items.enumerate().filter(|(index, _)| index % 2 == 1);
            self.push_values(id, values.map(|(_, value)| value), is_deleted);
        } else {
            self.push_kept(id, items, false, is_deleted);
        }
    }

    /// Appends an entry with the node's fields and these values.
    pub fn push_values<'a>(
        &mut self,
        id: StreamId,
        values: impl Iterator<Item = Item<'a>> + Clone,
        is_deleted: bool,
    ) {
        self.push_kept(id, values, true, is_deleted);
    }

    /// Appends an entry with these stored items: values, or alternating fields and values.
    fn push_kept<'a>(
        &mut self,
        id: StreamId,
        items: impl Iterator<Item = Item<'a>> + Clone,
        has_same_fields: bool,
        is_deleted: bool,
    ) {
        debug_assert!(self.is_empty() || self.last < id, "{id:?} behind {:?}", self.last);
        let (mut count, mut len, mut packed_len) = (0, 0, 0);
        for item in items.clone() {
            let encoded = Encoded::new(item);
            count += 1;
            len += encoded.len();
            packed_len += encoded.len_with_back();
        }
        let fields = if has_same_fields { count } else { count / 2 };
        let mut lead = LeadBytes::new(self.last, id);
        lead.bytes[0] |= if has_same_fields { SAME_FIELDS } else { 0 };
        lead.bytes[0] |= if is_deleted { DELETED } else { 0 };
        let mut packed_count = fields as i64 + 3;
        if !has_same_fields {
            lead.push(fields as u64);
            packed_len += packed_integer(fields as i64);
            packed_count += fields as i64 + 1;
        }
        self.packed_len += (packed_len
            + packed_integer(0)
            + packed_integer(id.ms.wrapping_sub(self.master.ms) as i64)
            + packed_integer(id.seq.wrapping_sub(self.master.seq) as i64)
            + packed_integer(packed_count)) as u32;

        self.last_at = self.byte_len() as u32;
        let block = self.rest.as_mut().unwrap_or(&mut self.block);
        let room = block.extend(lead.len + len);
        let (room_of_lead, mut room) = room.split_at_mut(lead.len);
        room_of_lead.copy_from_slice(&lead.bytes[..lead.len]);
        for item in items {
            room = write(Encoded::new(item), room);
        }
        self.last = id;
        *(if is_deleted { &mut self.deleted } else { &mut self.live }) += 1;
    }

    /// Appends the listpack that Redis has for the node.
    pub fn append_packed(&self, output: &mut Vec<u8>) {
        output.reserve(self.packed_len_max());
        let mut packed = ListpackWriter::begin(output);
        packed.push_integer(self.live.into());
        packed.push_integer(self.deleted.into());
        packed.push_integer(self.field_count.into());
        push_all(&mut packed, &self.block[..self.entries_at as usize]);
        packed.push_integer(0);
        for entry in self.entries() {
            let flags = if entry.has_same_fields { PACKED_SAME_FIELDS } else { 0 };
            packed.push_integer(flags | if entry.is_deleted { PACKED_DELETED } else { 0 });
            packed.push_integer(entry.id.ms.wrapping_sub(self.master.ms) as i64);
            packed.push_integer(entry.id.seq.wrapping_sub(self.master.seq) as i64);
            let fields = i64::from(entry.count);
            let items = if entry.has_same_fields {
                fields
            } else {
                packed.push_integer(fields);
                2 * fields + 1
            };
            push_all(&mut packed, entry.items);
            packed.push_integer(PACKED_LEAD + items);
        }
        packed.end();
    }

    /// Marks entries as deleted, from a place on, until `stop` returns true. `stop` gets the ID,
    /// and how many were marked. Returns how many were marked.
    pub fn delete_until(
        &mut self,
        mut cursor: StreamCursor,
        stop: impl Fn(StreamId, usize) -> bool,
    ) -> usize {
        let mut deleted = 0;
        while let Some((at, entry)) = self.read(&mut cursor) {
            if stop(entry.id, deleted) {
                break;
            }
            if !entry.is_deleted {
                self.mark_deleted(at);
                deleted += 1;
            }
        }
        self.live -= deleted as u32;
        self.deleted += deleted as u32;
        deleted
    }

    /// Marks an entry behind a place as deleted. Returns whether it existed.
    pub fn delete(&mut self, mut cursor: StreamCursor, id: StreamId) -> bool {
        while let Some((at, entry)) = self.read(&mut cursor) {
            if entry.id >= id {
                let found = entry.id == id && !entry.is_deleted;
                if found {
                    self.mark_deleted(at);
                    self.live -= 1;
                    self.deleted += 1;
                }
                return found;
            }
        }
        false
    }

    /// Frees unused memory: hardly any more entries will come.
    pub fn finish(&mut self) {
        let len = self.block.len();
        if self.rest.is_none()
            && len >= SPLIT_LEN_MIN
            && let Some((at, memory)) = self.best_split()
            && memory + SPLIT_GAIN_MIN <= SharedBlock::memory_of(len)
        {
            self.rest = Some(SharedBlock::from_bytes(&self.block[at..]));
            self.block = SharedBlock::from_bytes(&self.block[..at]);
        } else {
            self.block.shrink();
        }
    }

    /// The entry before which to divide the node so that both parts take the least memory, and that
    /// memory in bytes.
    fn best_split(&self) -> Option<(usize, usize)> {
        let len = self.block.len();
        let mut cursor = self.cursor();
        std::iter::from_fn(|| self.read(&mut cursor))
            .map(|(at, _)| (at, SharedBlock::memory_of(at) + SharedBlock::memory_of(len - at)))
            .min_by_key(|&(_, memory)| memory)
    }

    fn mark_deleted(&mut self, at: usize) {
        match at.checked_sub(self.block.len()) {
            None => self.block.bytes_mut()[at] |= DELETED,
            Some(at) => {
                if let Some(rest) = &mut self.rest {
                    rest.bytes_mut()[at] |= DELETED;
                }
            }
        }
    }

    pub fn master(&self) -> StreamId {
        self.master
    }

    pub fn last(&self) -> StreamId {
        self.last
    }

    pub fn live(&self) -> usize {
        self.live as usize
    }

    pub fn is_empty(&self) -> bool {
        self.live == 0 && self.deleted == 0
    }

    /// The length of our own form in bytes.
    pub fn byte_len(&self) -> usize {
        self.block.len() + self.rest.as_ref().map_or(0, |rest| rest.len())
    }

    pub fn memory(&self) -> usize {
        self.block.memory() + self.rest.as_ref().map_or(0, SharedBlock::memory)
    }

    /// All entries, including deleted ones.
    pub fn entries(&self) -> Entries<'_> {
        self.entries_from(self.cursor())
    }

    /// The entries from a place on, including deleted ones.
    pub fn entries_from(&self, cursor: StreamCursor) -> Entries<'_> {
        Entries { node: self, cursor }
    }

    /// The last entry, which may be deleted.
    pub fn last_entry(&self) -> Option<StreamEntry<'_>> {
        let mut cursor = self.cursor_at(self.last_at as usize, self.last);
        self.read(&mut cursor).map(|(_, entry)| entry)
    }

    /// The offset and the ID of the first entry from a place on that is not deleted.
    pub fn first_live(&self, mut cursor: StreamCursor) -> Option<(u32, StreamId)> {
        while let Some((at, entry)) = self.read(&mut cursor) {
            if !entry.is_deleted {
                return Some((at as u32, entry.id));
            }
        }
        None
    }

    /// The most bytes of its listpack in Redis: the numbers of entries vary.
    pub fn packed_len_max(&self) -> usize {
        self.packed_len as usize + COUNTS_LEN_MAX
    }

    fn has_fields<'a>(&self, items: impl Iterator<Item = Item<'a>>) -> bool {
        let mut fields = &self.block[..self.entries_at as usize];
        let mut count = 0;
        for item in items.step_by(2) {
            let encoded = Encoded::new(item);
            let head = &encoded.head[..encoded.head_len];
            let Some(rest) = fields.strip_prefix(head) else { return false };
            let Some(rest) = rest.strip_prefix(encoded.tail) else { return false };
            fields = rest;
            count += 1;
        }
        count == self.field_count
    }

    /// The place of the first entry.
    pub fn cursor(&self) -> StreamCursor {
        let before_first = StreamId { seq: self.master.seq.wrapping_sub(1), ..self.master };
        StreamCursor { at: self.entries_at as usize, before: before_first }
    }

    /// The place of the entry with this ID, which begins at `start`.
    pub fn cursor_at(&self, start: usize, id: StreamId) -> StreamCursor {
        let (bytes, mut at) = self.bytes_at(start);
        let lead = read_lead(bytes, &mut at);
        let seq = match lead {
            // Any sequence number of the earlier milliseconds would do.
            Lead { since_ms: 1.., .. } => 0,
            Lead { sequence, .. } => id.seq.wrapping_sub(sequence).wrapping_sub(1),
        };
        StreamCursor { at: start, before: StreamId::new(id.ms.wrapping_sub(lead.since_ms), seq) }
    }

    /// The block with this offset, and the offset there.
    #[inline]
    fn bytes_at(&self, at: usize) -> (&[u8], usize) {
        match &self.rest {
            Some(rest) if at >= self.block.len() => (&rest[..], at - self.block.len()),
            _ => (&self.block[..], at),
        }
    }

    /// The offset of the next entry, and the entry.
    #[inline]
    fn read(&self, cursor: &mut StreamCursor) -> Option<(usize, StreamEntry<'_>)> {
        let start = cursor.at;
        let (bytes, mut at) = self.bytes_at(start);
        let in_block = at;
        let head = *bytes.get(at)?;
        let lead = read_lead(bytes, &mut at);
        let before = cursor.before;
        let base = if lead.since_ms == 0 { before.seq.wrapping_add(1) } else { 0 };
        let ms = before.ms.wrapping_add(lead.since_ms);
        let id = StreamId::new(ms, base.wrapping_add(lead.sequence));
        let has_same_fields = head & SAME_FIELDS != 0;
        let count = if has_same_fields { self.field_count } else { varint(bytes, &mut at) as u32 };
        let items_at = at;
        for _ in 0..if has_same_fields { count } else { count * 2 } {
            at += decode(bytes, at).1;
        }
        *cursor = StreamCursor { at: start + (at - in_block), before: id };
        let entry = StreamEntry {
            id,
            is_deleted: head & DELETED != 0,
            has_same_fields,
            count,
            fields: &self.block[..self.entries_at as usize],
            items: &bytes[items_at..at],
        };
        Some((start, entry))
    }
}

impl<'a> StreamEntry<'a> {
    /// How many fields it has.
    pub fn len(&self) -> usize {
        self.count as usize
    }

    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Each field with its value.
    #[inline]
    pub fn iter(&self) -> Pairs<'a> {
        let fields = self.has_same_fields.then_some(self.fields);
        Pairs { fields, items: self.items, left: self.count }
    }
}

impl<'a> IntoIterator for &StreamEntry<'a> {
    type Item = (Item<'a>, Item<'a>);
    type IntoIter = Pairs<'a>;

    fn into_iter(self) -> Pairs<'a> {
        self.iter()
    }
}

/// Appends encoded items.
fn push_all(packed: &mut ListpackWriter<'_>, items: &[u8]) {
    let mut at = 0;
    while at < items.len() {
        let len = decode(items, at).1;
        packed.push_encoded(&items[at..at + len]);
        at += len;
    }
}

/// Fields with their values.
#[derive(Clone, Debug)]
pub struct Pairs<'a> {
    /// The node's fields, if the fields are not among the items.
    fields: Option<&'a [u8]>,
    items: &'a [u8],
    left: u32,
}

impl<'a> Iterator for Pairs<'a> {
    type Item = (Item<'a>, Item<'a>);

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        self.left = self.left.checked_sub(1)?;
        let field = take(self.fields.as_mut().unwrap_or(&mut self.items));
        Some((field, take(&mut self.items)))
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.left as usize, Some(self.left as usize))
    }
}

/// The entries of a node.
#[derive(Clone)]
pub struct Entries<'a> {
    node: &'a StreamNode,
    cursor: StreamCursor,
}

impl<'a> Iterator for Entries<'a> {
    type Item = StreamEntry<'a>;

    #[inline]
    fn next(&mut self) -> Option<StreamEntry<'a>> {
        self.node.read(&mut self.cursor).map(|(_, entry)| entry)
    }
}

/// A place in a node: the offset of the next entry, and the ID of the one before it.
#[derive(Clone, Copy)]
pub struct StreamCursor {
    at: usize,
    before: StreamId,
}

/// The first part of an entry: the distance of its ID from the previous one.
struct Lead {
    since_ms: u64,
    /// The distance from the least possible sequence number.
    sequence: u64,
}

#[inline]
fn read_lead(bytes: &[u8], at: &mut usize) -> Lead {
    let head = bytes.get(*at).copied().unwrap_or(NEXT_SEQUENCE);
    *at += 1;
    let mut since_ms = u64::from(head >> MS_SHIFT);
    if since_ms == MS_FOLLOWS {
        since_ms += varint(bytes, at);
    }
    let sequence = if head & NEXT_SEQUENCE != 0 { 0 } else { varint(bytes, at) };
    Lead { since_ms, sequence }
}

/// The bytes of an entry before its fields and values.
struct LeadBytes {
    bytes: [u8; LEAD_LEN_MAX],
    len: usize,
}

impl LeadBytes {
    fn new(before: StreamId, id: StreamId) -> Self {
        let mut lead = Self { bytes: [0; LEAD_LEN_MAX], len: 1 };
        let since_ms = id.ms.wrapping_sub(before.ms);
        lead.bytes[0] = (since_ms.min(MS_FOLLOWS) as u8) << MS_SHIFT;
        if since_ms >= MS_FOLLOWS {
            lead.push(since_ms - MS_FOLLOWS);
        }
        let base = if since_ms == 0 { before.seq.wrapping_add(1) } else { 0 };
        match id.seq.wrapping_sub(base) {
            0 => lead.bytes[0] |= NEXT_SEQUENCE,
            more => lead.push(more),
        }
        lead
    }

    /// Appends a number with seven bits in each byte, the lowest first.
    fn push(&mut self, mut number: u64) {
        while number >= 0x80 {
            self.bytes[self.len] = number as u8 | 0x80;
            self.len += 1;
            number >>= 7;
        }
        self.bytes[self.len] = number as u8;
        self.len += 1;
    }
}

#[inline]
fn varint(bytes: &[u8], at: &mut usize) -> u64 {
    let (mut number, mut shift) = (0, 0);
    while let Some(&byte) = bytes.get(*at) {
        *at += 1;
        number |= u64::from(byte & 0x7f) << shift;
        shift += 7;
        if byte < 0x80 || shift > 63 {
            break;
        }
    }
    number
}

#[inline]
fn take<'a>(bytes: &mut &'a [u8]) -> Item<'a> {
    let (item, len) = decode(bytes, 0);
    *bytes = &bytes[len..];
    item
}

/// Writes an item to the front of the room. Returns the rest.
#[inline]
fn write<'r>(encoded: Encoded<'_>, room: &'r mut [u8]) -> &'r mut [u8] {
    let (room, rest) = room.split_at_mut(encoded.len());
    let (head, tail) = room.split_at_mut(encoded.head_len);
    head.copy_from_slice(&encoded.head[..encoded.head_len]);
    tail.copy_from_slice(encoded.tail);
    rest
}

/// The most bytes that an entry with `count` fields and values, of `bytes` bytes in total, adds to
/// its node's listpack, including a new listpack.
pub fn packed_len_max(count: usize, bytes: usize) -> usize {
    bytes.saturating_add(count.saturating_mul(OVERHEAD_MAX)).saturating_add(ENTRY_OVERHEAD_MAX)
}

/// The bytes of an integer in a listpack.
#[inline]
fn packed_integer(value: i64) -> usize {
    match value {
        0..=127 => 2,
        -4096..=4095 => 3,
        _ => Encoded::new(Item::Integer(value)).len_with_back(),
    }
}

/// The entry is deleted.
const DELETED: u8 = 1;
/// The fields are the node's, and only values follow.
const SAME_FIELDS: u8 = 2;
/// The sequence number is the least possible behind the previous entry. Otherwise the distance from
/// that follows.
const NEXT_SEQUENCE: u8 = 4;
/// The lowest bit of the milliseconds since the previous entry.
const MS_SHIFT: u8 = 4;
/// This value says that the milliseconds follow the head.
const MS_FOLLOWS: u64 = 15;
/// An entry's flags in Redis's form.
pub const PACKED_DELETED: i64 = 1;
pub const PACKED_SAME_FIELDS: i64 = 2;
/// How many items an entry has there before its fields and values: flags, milliseconds and sequence
/// number.
pub const PACKED_LEAD: i64 = 3;
/// A head and three numbers.
const LEAD_LEN_MAX: usize = 31;
/// The header and the end of a listpack.
const LISTPACK_OVERHEAD: usize = 7;
/// A shorter node is not divided into two blocks.
const SPLIT_LEN_MIN: usize = 512;
/// Dividing must save this many bytes.
const SPLIT_GAIN_MIN: usize = 128;
/// The largest node and the largest entry, as in Redis. It is also the longest listpack, which a
/// node becomes in snapshots.
pub const NODE_BYTES_MAX: usize = 1 << 30;
/// The most bytes of an integer in a listpack.
const INTEGER_LEN_MAX: usize = 10;
/// The numbers of entries and of deleted ones.
const COUNTS_LEN_MAX: usize = 2 * INTEGER_LEN_MAX;
/// What a listpack has beside fields and values. For an entry: flags, two parts of its ID, and the
/// numbers of its fields and of its items. For the node: the numbers of entries, of deleted ones
/// and of fields, and a zero.
const ENTRY_OVERHEAD_MAX: usize = LISTPACK_OVERHEAD + 9 * INTEGER_LEN_MAX;
