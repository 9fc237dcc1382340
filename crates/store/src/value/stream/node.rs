//! A node: a run of entries in one block, or two.
//!
//! ```text
//! field ...                          those that the node was made with
//! entry ...
//! entry: head | ms | sequence | number of fields, field and value ... (or value ...)
//! ```
//! The head's lowest bits say what follows ([`DELETED`], [`SAME_FIELDS`], [`NEXT_SEQUENCE`]); the
//! four highest are the milliseconds since the entry before, if they are few. So an entry that has
//! the node's fields takes one byte and its values. Those are encoded as in a listpack, without the
//! length at the end, as nodes are only read forwards.
//!
//! Which entries share a node is what Redis's limits make of Redis's form of it: so trimming whole
//! nodes leaves the same entries, and DUMP need not divide them anew. Hence the count of bytes that
//! form would have.

use std::mem::offset_of;

use super::{Keyed, StreamId, StreamLimits};
use crate::value::listpack::format::{Encoded, OVERHEAD_MAX, Writer, decode};
use crate::value::shared_block::{SharedBlock, Slack};
use crate::value::{Defragmenter, Item};

/// A run of entries. What a new entry changes comes last: see [`super::Parts`].
#[derive(Clone)]
#[repr(C)]
pub struct Node {
    /// The ID that it was made for, and under which Redis would keep it.
    master: StreamId,
    block: SharedBlock,
    /// The last of the entries, if two blocks take less memory than one: allocators round sizes up.
    rest: Option<SharedBlock>,
    /// Where the entries begin.
    entries_at: u32,
    field_count: u32,
    /// Of its last entry, deleted or not.
    last: StreamId,
    /// Where that begins.
    last_at: u32,
    live: u32,
    deleted: u32,
    /// Bytes of its listpack in Redis, without the numbers of entries and of deleted ones.
    packed_len: u32,
}

/// An entry as it lies in its node.
#[derive(Clone, Copy, Debug)]
pub struct Entry<'a> {
    pub id: StreamId,
    pub is_deleted: bool,
    /// Whether its fields are the node's.
    has_same_fields: bool,
    /// Fields and values there are.
    count: u32,
    /// The node's fields.
    fields: &'a [u8],
    /// From its first field or value on.
    items: &'a [u8],
}

impl Keyed for Node {
    fn id(&self) -> StreamId {
        self.master
    }
}

impl Node {
    /// Where that lies which a new entry changes.
    pub(super) const CHANGING_AT: usize = offset_of!(Self, last);

    pub(super) fn defragment(&mut self, defragmenter: &mut Defragmenter<'_>) {
        self.block.defragment(defragmenter);
        if let Some(rest) = &mut self.rest {
            rest.defragment(defragmenter);
        }
    }

    /// An empty node with these fields, to which entries from `master` on are added.
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

    /// Whether an entry of `count_added` fields and values, of `bytes` bytes together, may still be
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

    /// Adds an entry behind the others: fields and values in turn.
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

    /// Adds an entry that has the node's fields: their values.
    pub fn push_values<'a>(
        &mut self,
        id: StreamId,
        values: impl Iterator<Item = Item<'a>> + Clone,
        is_deleted: bool,
    ) {
        self.push_kept(id, values, true, is_deleted);
    }

    /// Adds an entry of which these items are kept: values, or fields and values in turn.
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

    /// Appends the listpack that Redis has for it.
    pub fn append_packed(&self, output: &mut Vec<u8>) {
        output.reserve(self.packed_len_max());
        let mut packed = Writer::begin(output);
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

    /// Marks entries as deleted, from a place on until `stop` (given the ID and how many were
    /// marked) says so; returns how many.
    pub fn delete_until(
        &mut self,
        mut cursor: Cursor,
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

    /// Marks an entry as deleted, which lies behind a place; whether it was there.
    pub fn delete(&mut self, mut cursor: Cursor, id: StreamId) -> bool {
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

    /// Gives memory back that it will not need: hardly any more entries come.
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

    /// Before which entry to divide the node, so that both parts take the least memory, and how
    /// much that is.
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

    /// Bytes of its own form.
    pub fn byte_len(&self) -> usize {
        self.block.len() + self.rest.as_ref().map_or(0, |rest| rest.len())
    }

    pub fn memory(&self) -> usize {
        self.block.memory() + self.rest.as_ref().map_or(0, SharedBlock::memory)
    }

    /// All entries, deleted ones too.
    pub fn entries(&self) -> Entries<'_> {
        self.entries_from(self.cursor())
    }

    /// The entries from a place on, deleted ones too.
    pub fn entries_from(&self, cursor: Cursor) -> Entries<'_> {
        Entries { node: self, cursor }
    }

    /// The last entry, which may be deleted.
    pub fn last_entry(&self) -> Option<Entry<'_>> {
        let mut cursor = self.cursor_at(self.last_at as usize, self.last);
        self.read(&mut cursor).map(|(_, entry)| entry)
    }

    /// The first entry from a place on that is not deleted: where it begins, and its ID.
    pub fn first_live(&self, mut cursor: Cursor) -> Option<(u32, StreamId)> {
        while let Some((at, entry)) = self.read(&mut cursor) {
            if !entry.is_deleted {
                return Some((at as u32, entry.id));
            }
        }
        None
    }

    /// The bytes of its listpack in Redis, at most: the numbers of entries change.
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
    pub fn cursor(&self) -> Cursor {
        let before_first = StreamId { seq: self.master.seq.wrapping_sub(1), ..self.master };
        Cursor { at: self.entries_at as usize, before: before_first }
    }

    /// The place of the entry with this ID, which begins there.
    pub fn cursor_at(&self, start: usize, id: StreamId) -> Cursor {
        let (bytes, mut at) = self.bytes_at(start);
        let lead = read_lead(bytes, &mut at);
        let seq = match lead {
            // Any ID of those milliseconds would do.
            Lead { since_ms: 1.., .. } => 0,
            Lead { sequence, .. } => id.seq.wrapping_sub(sequence).wrapping_sub(1),
        };
        Cursor { at: start, before: StreamId::new(id.ms.wrapping_sub(lead.since_ms), seq) }
    }

    /// The block that holds a place, and where there.
    #[inline]
    fn bytes_at(&self, at: usize) -> (&[u8], usize) {
        match &self.rest {
            Some(rest) if at >= self.block.len() => (&rest[..], at - self.block.len()),
            _ => (&self.block[..], at),
        }
    }

    /// Where the next entry lies, and the entry.
    #[inline]
    fn read(&self, cursor: &mut Cursor) -> Option<(usize, Entry<'_>)> {
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
        *cursor = Cursor { at: start + (at - in_block), before: id };
        let entry = Entry {
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

impl<'a> Entry<'a> {
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

impl<'a> IntoIterator for &Entry<'a> {
    type Item = (Item<'a>, Item<'a>);
    type IntoIter = Pairs<'a>;

    fn into_iter(self) -> Pairs<'a> {
        self.iter()
    }
}

/// Appends items, encoded one behind the other.
fn push_all(packed: &mut Writer<'_>, items: &[u8]) {
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
    /// Those of the node, if the fields are not among the items.
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
    node: &'a Node,
    cursor: Cursor,
}

impl<'a> Iterator for Entries<'a> {
    type Item = Entry<'a>;

    #[inline]
    fn next(&mut self) -> Option<Entry<'a>> {
        self.node.read(&mut self.cursor).map(|(_, entry)| entry)
    }
}

/// A place in a node: where the next entry begins, and the ID of the one before.
#[derive(Clone, Copy)]
pub struct Cursor {
    at: usize,
    before: StreamId,
}

/// What an entry's bytes begin with: how far its ID is from the one before.
struct Lead {
    since_ms: u64,
    /// From the least that is possible on.
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

    /// Appends a number, seven bits a byte, the lowest first.
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

/// Writes an item to the front of the room; returns the rest.
#[inline]
fn write<'r>(encoded: Encoded<'_>, room: &'r mut [u8]) -> &'r mut [u8] {
    let (room, rest) = room.split_at_mut(encoded.len());
    let (head, tail) = room.split_at_mut(encoded.head_len);
    head.copy_from_slice(&encoded.head[..encoded.head_len]);
    tail.copy_from_slice(encoded.tail);
    rest
}

/// How many bytes an entry of `count` fields and values, of `bytes` bytes together, adds at most to
/// the listpack of its node. That includes a new listpack.
pub fn packed_len_max(count: usize, bytes: usize) -> usize {
    bytes.saturating_add(count.saturating_mul(OVERHEAD_MAX)).saturating_add(ENTRY_OVERHEAD_MAX)
}

/// Bytes of an integer in a listpack.
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
/// Its fields are the node's, and only values follow.
const SAME_FIELDS: u8 = 2;
/// Its sequence number is the least possible behind the entry before; else, how far it is from that
/// follows.
const NEXT_SEQUENCE: u8 = 4;
/// Where the milliseconds since the entry before lie.
const MS_SHIFT: u8 = 4;
/// As many milliseconds, or more, follow the head.
const MS_FOLLOWS: u64 = 15;
/// Flags of an entry in Redis's form.
pub const PACKED_DELETED: i64 = 1;
pub const PACKED_SAME_FIELDS: i64 = 2;
/// Items of an entry there before its fields and values: flags, milliseconds, sequence number.
pub const PACKED_LEAD: i64 = 3;
/// A head and three numbers.
const LEAD_LEN_MAX: usize = 31;
/// Header and end of a listpack.
const LISTPACK_OVERHEAD: usize = 7;
/// Shorter nodes are not divided.
const SPLIT_LEN_MIN: usize = 512;
/// Bytes that dividing must save to be done.
const SPLIT_GAIN_MIN: usize = 128;
/// Redis lets no node become larger, nor takes an entry that is. Nor is there a longer listpack,
/// which a node has to become in snapshots.
pub const NODE_BYTES_MAX: usize = 1 << 30;
/// What an integer takes in a listpack, at most.
const INTEGER_LEN_MAX: usize = 10;
/// The numbers of entries and of deleted ones.
const COUNTS_LEN_MAX: usize = 2 * INTEGER_LEN_MAX;
/// What a listpack has beside fields and values: of an entry flags, two parts of its ID, and the
/// numbers of its fields and of its items; of the node the numbers of entries, of deleted ones and
/// of fields, and a zero.
const ENTRY_OVERHEAD_MAX: usize = LISTPACK_OVERHEAD + 9 * INTEGER_LEN_MAX;
