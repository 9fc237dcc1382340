//! Lists.

mod chunk;
mod chunked;
#[cfg(test)]
mod tests;

use std::ops::Range;

use chunked::{ChunkedList, ListCursor};

use super::listpack::{self, Item, Listpack, ListpackIter};
use super::shared_block::SharedBlock;
use super::unaligned_box::UnalignedBox;
use crate::value::{Defragmenter, Encoding};

/// Elements in the order in which clients put them.
#[derive(Clone)]
pub enum List {
    Packed(Listpack),
    Chunked(UnalignedBox<ChunkedList>),
}

/// The option `list-max-listpack-size`: the largest size of a packed list, or of a chunk of a long
/// one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ListLimits {
    bytes_max: usize,
    entries_max: usize,
    by_entries: bool,
}

/// The option's default: chunks of 8 KiB.
impl Default for ListLimits {
    fn default() -> Self {
        Self::new(-2)
    }
}

/// An end of a list.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum End {
    Front,
    Back,
}

/// The elements in order, or in reverse by `rev()`.
#[derive(Clone)]
pub struct ListIter<'a>(Elements<'a>);

#[derive(Clone)]
enum Elements<'a> {
    Packed(ListpackIter<'a>),
    Chunked { list: &'a ChunkedList, left: usize, front: ListCursor, back: ListCursor },
}

impl List {
    pub fn new() -> Self {
        Self::Packed(Listpack::new())
    }

    /// See [`Collection::defragment`](super::Collection::defragment).
    pub(crate) fn defragment(&mut self, from: usize, defragmenter: &mut Defragmenter<'_>) -> usize {
        match self {
            Self::Packed(pack) => {
                pack.defragment(defragmenter);
                0
            }
            Self::Chunked(chunked) => {
                if from == 0 {
                    chunked.defragment(defragmenter);
                }
                ChunkedList::defragment(chunked, from, defragmenter)
            }
        }
    }

    /// Must be called before a command adds elements, with their bytes and entries in total.
    /// Unpacks a list that would become too large to stay packed.
    #[inline]
    pub fn prepare(&mut self, bytes: usize, entries: usize, limits: ListLimits) {
        if let Self::Packed(pack) = self
            && limits.exceeded_by(pack.byte_len() + bytes, pack.len() + entries)
        {
            let chunked = ChunkedList::from_entries(pack.entries(), limits);
            *self = Self::Chunked(UnalignedBox::new(chunked));
        }
    }

    /// Pushes an element, after [`Self::prepare`].
    #[inline]
    pub fn push(&mut self, value: Item<'_>, end: End, limits: ListLimits) {
        match (self, end) {
            (Self::Packed(pack), End::Front) => pack.push_front(value),
            (Self::Packed(pack), End::Back) => pack.push_back(value),
            (Self::Chunked(chunked), _) => chunked.push(value, end, limits),
        }
    }

    /// Removes the element at one end, and calls `look` with it.
    #[inline]
    pub fn pop<R>(
        &mut self,
        end: End,
        limits: ListLimits,
        look: impl FnOnce(Item<'_>) -> R,
    ) -> Option<R> {
        match self {
            Self::Packed(pack) => {
                let position = match end {
                    End::Front => pack.first(),
                    End::Back => pack.last(),
                }?;
                let result = look(pack.item(position));
                pack.remove(position);
                Some(result)
            }
            Self::Chunked(chunked) => {
                let result = chunked.pop(end, look);
                self.pack_if_small(limits);
                result
            }
        }
    }

    /// Inserts an element before this index, or at the end, after [`Self::prepare`].
    pub fn insert(&mut self, index: usize, value: Item<'_>, limits: ListLimits) {
        match self {
            Self::Packed(pack) => match pack.position(index) {
                Some(position) => {
                    pack.insert_before(position, value);
                }
                None => pack.push_back(value),
            },
            Self::Chunked(chunked) => chunked.insert(index, value, limits),
        }
    }

    /// Sets the value of an element, after [`Self::prepare`]. Returns whether the element exists.
    pub fn set(&mut self, index: usize, value: Item<'_>, limits: ListLimits) -> bool {
        if index >= self.len() {
            return false;
        }
        match self {
            Self::Packed(pack) => {
                let Some(position) = pack.position(index) else { return false };
                pack.replace(position, value);
            }
            Self::Chunked(chunked) => {
                chunked.set(index, value, limits);
                self.pack_if_small(limits);
            }
        }
        true
    }

    /// Removes the elements with these indices. The range may reach past the end.
    pub fn remove_range(&mut self, range: Range<usize>, limits: ListLimits) {
        self.remove_some(range, usize::MAX, limits);
    }

    /// Removes about `some` of these elements, the first ones, or all if there are fewer. Returns
    /// how many.
    pub fn remove_some(&mut self, range: Range<usize>, some: usize, limits: ListLimits) -> usize {
        let range = self.clamp(range);
        match self {
            Self::Packed(pack) => {
                pack.remove_range(range.start, range.len());
                range.len()
            }
            Self::Chunked(chunked) => {
                let removed = chunked.remove_range(range, some, limits);
                self.pack_if_small(limits);
                removed
            }
        }
    }

    /// Keeps only the elements with these indices.
    pub fn trim(&mut self, range: Range<usize>, limits: ListLimits) {
        let range = self.clamp(range);
        self.remove_range(range.end..usize::MAX, limits);
        self.remove_range(0..range.start, limits);
    }

    /// Removes up to `most` elements that equal a value, beginning at one end. Returns how many.
    pub fn remove_equal(
        &mut self,
        value: &[u8],
        most: usize,
        end: End,
        limits: ListLimits,
    ) -> usize {
        self.remove_some_equal(value, most, end, limits, &mut 0, usize::MAX).0
    }

    /// Does the work of `remove_equal` in several calls. Each call looks at about `looks` elements
    /// behind the first `passed`, which were looked at before and stay. Returns how many it
    /// removed, and whether there are more to look at.
    pub fn remove_some_equal(
        &mut self,
        value: &[u8],
        most: usize,
        end: End,
        limits: ListLimits,
        passed: &mut usize,
        looks: usize,
    ) -> (usize, bool) {
        match self {
            Self::Packed(pack) => (remove_equal(pack, value, most, end), false),
            Self::Chunked(chunked) => {
                // Parsed once, to make the comparisons cheap.
                let value = Item::Bytes(value);
                let value = value.as_integer().map_or(value, Item::Integer);
                let removed = chunked.remove_equal(value, most, end, limits, passed, looks);
                self.pack_if_small(limits);
                (removed, removed < most && *passed < self.len())
            }
        }
    }

    /// A list of foreign listpacks, in their order. It is packed if the limits allow that.
    pub fn from_listpacks(packs: impl Iterator<Item = Listpack>, limits: ListLimits) -> Self {
        let mut list: Option<Self> = None;
        for pack in packs.filter(|pack| !pack.is_empty()) {
            match &mut list {
                None => list = Some(Self::Packed(pack)),
                Some(list) => {
                    list.prepare(usize::MAX / 2, 0, limits);
                    let Self::Chunked(chunked) = list else { unreachable!("it was just made so") };
                    chunked.append_entries(pack.entries(), limits);
                }
            }
        }
        let mut list = list.unwrap_or_default();
        list.prepare(0, 0, limits);
        list.pack_one_chunk(|bytes, entries| !limits.exceeded_by(bytes, entries));
        list
    }

    /// Packs the list if it is one chunk with at most half of the allowed size, as Redis does after
    /// a removal.
    #[inline]
    fn pack_if_small(&mut self, limits: ListLimits) {
        if let Self::Chunked(chunked) = self
            && chunked.chunk_count() == 1
        {
            self.pack_one_chunk(|bytes, entries| limits.packs_again(bytes, entries));
        }
    }

    #[cold]
    fn pack_one_chunk(&mut self, may: impl FnOnce(usize, usize) -> bool) {
        let Self::Chunked(chunked) = self else { return };
        if chunked.chunk_count() != 1 {
            return;
        }
        let bytes = chunked.chunks().map(|(entries, _)| entries.len()).sum::<usize>();
        if may(bytes + listpack::OVERHEAD, chunked.len()) {
            *self = Self::Packed(self.iter().collect());
        }
    }

    pub fn get(&self, index: usize) -> Option<Item<'_>> {
        self.range(index..index.saturating_add(1)).next()
    }

    pub fn iter(&self) -> ListIter<'_> {
        self.range(0..usize::MAX)
    }

    /// The elements with these indices. The range may reach past the end.
    pub fn range(&self, range: Range<usize>) -> ListIter<'_> {
        let range = self.clamp(range);
        ListIter(match self {
            Self::Packed(pack) => Elements::Packed(pack.slice(range)),
            Self::Chunked(list) => Elements::Chunked {
                list,
                left: range.len(),
                front: list.cursor(range.start),
                back: list.cursor(range.end),
            },
        })
    }

    /// The listpacks that the list consists of: the entries of each, without header and end, and
    /// how many they are.
    pub fn chunks(&self) -> impl Iterator<Item = (&[u8], usize)> {
        let (packed, chunked) = match self {
            Self::Packed(pack) => (Some((pack.entries(), pack.len())), None),
            Self::Chunked(chunked) => (None, Some(chunked.chunks())),
        };
        packed.into_iter().chain(chunked.into_iter().flatten())
    }

    /// Whether one is a clone of the other, and neither has changed since. Small lists are
    /// compared.
    pub fn is_same(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Packed(one), Self::Packed(other)) => one == other,
            (Self::Chunked(one), Self::Chunked(other)) => one.is_same(other),
            _ => false,
        }
    }

    #[inline]
    pub fn len(&self) -> usize {
        match self {
            Self::Packed(pack) => pack.len(),
            Self::Chunked(chunked) => chunked.len(),
        }
    }

    #[inline]
    pub fn is_empty(&self) -> bool {
        match self {
            Self::Packed(pack) => pack.is_empty(),
            Self::Chunked(chunked) => chunked.len() == 0,
        }
    }

    /// Bytes of memory. For a long list this is an estimate.
    pub fn memory(&self) -> usize {
        match self {
            Self::Packed(pack) => pack.memory(),
            Self::Chunked(chunked) => chunked.memory(),
        }
    }

    pub const fn encoding(&self) -> Encoding {
        match self {
            Self::Packed(_) => Encoding::Listpack,
            Self::Chunked(_) => Encoding::Quicklist,
        }
    }

    /// How many blocks of memory there are to free.
    pub fn free_effort(&self) -> usize {
        match self {
            Self::Packed(_) => 1,
            Self::Chunked(chunked) => chunked.chunk_count() + 1,
        }
    }

    fn clamp(&self, range: Range<usize>) -> Range<usize> {
        let end = range.end.min(self.len());
        range.start.min(end)..end
    }
}

impl Default for List {
    fn default() -> Self {
        Self::new()
    }
}

impl std::fmt::Debug for List {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_list().entries(self.iter()).finish()
    }
}

impl ListLimits {
    /// From the option's value: zero or more is a number of entries, a negative value one of five
    /// sizes.
    pub fn new(list_max_listpack_size: i64) -> Self {
        match usize::try_from(list_max_listpack_size) {
            Ok(entries) => {
                Self { bytes_max: BYTES_MAX, entries_max: entries.max(1), by_entries: true }
            }
            Err(_) => {
                let level = list_max_listpack_size.unsigned_abs().clamp(1, 5);
                Self { bytes_max: 2048 << level, entries_max: usize::MAX, by_entries: false }
            }
        }
    }

    fn exceeded_by(self, bytes: usize, entries: usize) -> bool {
        bytes > self.bytes_max || entries > self.entries_max
    }

    /// Whether a list that shrinks is packed again. Redis checks only one of the limits.
    const fn packs_again(self, bytes: usize, entries: usize) -> bool {
        if self.by_entries { entries <= self.entries_max / 2 } else { bytes <= self.bytes_max / 2 }
    }

    /// How many bytes of entries a chunk may have so that its block has the full size.
    const fn chunk_bytes(self) -> usize {
        self.bytes_max - SharedBlock::HEADER
    }
}

fn remove_equal(pack: &mut Listpack, value: &[u8], most: usize, end: End) -> usize {
    let mut removed = 0;
    let mut here = match end {
        End::Front => pack.find(value, 1),
        End::Back => pack.last(),
    };
    while let Some(position) = here
        && removed < most
    {
        here = match end {
            End::Front => {
                removed += 1;
                pack.remove(position).and_then(|next| pack.find_from(next, value, 1))
            }
            End::Back => {
                let previous = pack.previous(position);
                if pack.item(position) == value {
                    pack.remove(position);
                    removed += 1;
                }
                previous
            }
        };
    }
    removed
}

impl<'a> Iterator for ListIter<'a> {
    type Item = Item<'a>;

    #[inline]
    fn next(&mut self) -> Option<Item<'a>> {
        match &mut self.0 {
            Elements::Packed(entries) => entries.next(),
            Elements::Chunked { list, left, front, .. } => {
                *left = left.checked_sub(1)?;
                list.next(front)
            }
        }
    }
}

impl DoubleEndedIterator for ListIter<'_> {
    #[inline]
    fn next_back(&mut self) -> Option<Self::Item> {
        match &mut self.0 {
            Elements::Packed(entries) => entries.next_back(),
            Elements::Chunked { list, left, back, .. } => {
                *left = left.checked_sub(1)?;
                list.previous(back)
            }
        }
    }
}

/// The limit in bytes if the option counts entries.
const BYTES_MAX: usize = 8192;
