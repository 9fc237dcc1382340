//! A chunk: some elements of a long list in one block, one behind the other in a listpack's
//! encoding, with slack at both ends.

use std::ops::Range;

use crate::value::Defragmenter;
use crate::value::defrag::Movable;
use crate::value::listpack::Item;
use crate::value::listpack::format::{Encoded, back_entry_len, decode, entry_len};
use crate::value::shared_block::{SharedBlock, Slack};

use super::{End, ListLimits};

/// Some elements of a list, in order. The tree knows how many there are.
#[derive(Clone)]
pub(super) struct ListChunk(SharedBlock);

impl Movable for ListChunk {
    fn defragment(&mut self, defragmenter: &mut Defragmenter<'_>) {
        self.0.defragment(defragmenter);
    }
}

impl ListChunk {
    /// A chunk of one element, with room for more on the side where the list grows.
    pub(super) fn of(value: Item<'_>, end: End, limits: ListLimits) -> Self {
        let mut chunk = Self(SharedBlock::with_capacity(0));
        chunk.push(value, end, limits);
        chunk
    }

    /// A chunk of entries in a listpack's encoding.
    pub(super) fn from_entries(entries: &[u8]) -> Self {
        Self(SharedBlock::from_bytes(entries))
    }

    #[inline]
    pub(super) fn push(&mut self, value: Item<'_>, end: End, limits: ListLimits) {
        let at = match end {
            End::Front => 0,
            End::Back => self.0.len(),
        };
        self.insert(at, value, end, limits);
    }

    /// Inserts an element where another one begins, or at the end.
    pub(super) fn insert(&mut self, at: usize, value: Item<'_>, end: End, limits: ListLimits) {
        let entry = Encoded::new(value);
        let len = entry.len_with_back();
        let capacity = Self::capacity(self.0.len() + len, len, limits);
        let slack = match end {
            End::Front => Slack::FillBefore(capacity),
            End::Back => Slack::FillBehind(capacity),
        };
        entry.write_over(self.0.open(at, len, slack));
    }

    /// The room of a chunk that an entry of `len` bytes makes `total` bytes long.
    fn capacity(total: usize, len: usize, limits: ListLimits) -> usize {
        let (most, grown) = (limits.chunk_bytes(), total + total / 4);
        if total + len > most {
            // No other one like it fits.
            total
        } else if grown > most / 4 * 3 {
            most
        } else {
            grown.max(CAPACITY_MIN.min(len.saturating_mul(limits.entries_max)))
        }
    }

    /// Removes the entries between two offsets.
    pub(super) fn remove(&mut self, from: usize, to: usize) {
        self.0.close(from, to - from);
    }

    /// Replaces the entry between two offsets. Returns whether the new one is shorter.
    pub(super) fn replace(
        &mut self,
        old: Range<usize>,
        value: Item<'_>,
        limits: ListLimits,
    ) -> bool {
        let entry = Encoded::new(value);
        if entry.len_with_back() == old.len() {
            entry.write_over(&mut self.0.bytes_mut()[old]);
            return false;
        }
        self.remove(old.start, old.end);
        self.insert(old.start, value, End::Back, limits);
        entry.len_with_back() < old.len()
    }

    /// Keeps the entries for which `keep` returns true. Returns how many were removed.
    pub(super) fn retain(&mut self, mut keep: impl FnMut(Item<'_>) -> bool) -> usize {
        let (mut kept, mut removed, mut at) = (Vec::with_capacity(self.0.len()), 0, 0);
        while at < self.0.len() {
            let next = self.after(at);
            if keep(self.item(at)) {
                kept.extend_from_slice(&self.0[at..next]);
            } else {
                removed += 1;
            }
            at = next;
        }
        if removed > 0 {
            self.0 = SharedBlock::from_bytes(&kept);
        }
        removed
    }

    /// Removes the entries from an offset on, and returns them as a chunk.
    pub(super) fn split_off(&mut self, at: usize) -> Self {
        let right = SharedBlock::from_bytes(&self.0[at..]);
        self.0.truncate(at);
        self.0.shrink();
        Self(right)
    }

    /// Appends entries in a listpack's encoding.
    pub(super) fn append(&mut self, entries: &[u8]) {
        self.0.extend(entries.len()).copy_from_slice(entries);
    }

    /// How many of these entries can be appended to the chunk's `count`: their bytes, and their
    /// number. An empty chunk takes at least one.
    pub(super) fn fitting(
        &self,
        entries: &[u8],
        count: usize,
        limits: ListLimits,
    ) -> (usize, usize) {
        let room = limits.chunk_bytes().saturating_sub(self.0.len());
        let (mut len, mut added) = (0, 0);
        while len < entries.len() && count + added < limits.entries_max {
            let next = len + entry_len(entries, len);
            if next > room && count + added > 0 {
                break;
            }
            (len, added) = (next, added + 1);
        }
        (len, added)
    }

    pub(super) fn shrink(&mut self) {
        self.0.shrink();
    }

    /// Frees slack if it is more than half of the block. A chunk that grows gets less than that, so
    /// one whose length goes up and down does not move each time.
    pub(super) fn give_back(&mut self) {
        let (before, behind) = self.0.slack();
        if before + behind > self.0.len().max(CAPACITY_MIN) {
            self.0.shrink();
        }
    }

    /// Whether an element can be pushed without moving all others each time.
    #[inline]
    pub(super) fn has_room(
        &self,
        value: Item<'_>,
        count: usize,
        end: End,
        limits: ListLimits,
    ) -> bool {
        let added = Encoded::new(value).len_with_back();
        let len = self.0.len() + added;
        let most = limits.chunk_bytes();
        if len > most || count >= limits.entries_max {
            return false;
        }
        let (before, behind) = self.0.slack();
        let slack = match end {
            End::Front => before,
            End::Back => behind,
        };
        slack >= added || len <= most / 4 * 3
    }

    /// Whether an element can be inserted between others.
    pub(super) fn fits(&self, value: Item<'_>, count: usize, limits: ListLimits) -> bool {
        let added = Encoded::new(value).len_with_back();
        self.0.len() + added <= limits.chunk_bytes() && count < limits.entries_max
    }

    /// Whether an element can take the place of another one.
    pub(super) fn fits_instead(
        &self,
        old: Range<usize>,
        value: Item<'_>,
        limits: ListLimits,
    ) -> bool {
        let len = Encoded::new(value).len_with_back();
        len <= old.len() || self.0.len() - old.len() + len <= limits.chunk_bytes()
    }

    /// The offset of the element with this index, of `count`; or the end.
    pub(super) fn position(&self, index: usize, count: usize) -> usize {
        if index <= count / 2 {
            (0..index).fold(0, |at, _| self.after(at))
        } else {
            (index..count).fold(self.0.len(), |at, _| at - back_entry_len(&self.0, at))
        }
    }

    #[inline]
    pub(super) fn item(&self, at: usize) -> Item<'_> {
        decode(&self.0, at).0
    }

    /// The end of the entry that begins at this offset.
    #[inline]
    pub(super) fn after(&self, at: usize) -> usize {
        at + entry_len(&self.0, at)
    }

    /// The beginning of the entry that ends at this offset.
    #[inline]
    pub(super) fn before(&self, at: usize) -> usize {
        at - back_entry_len(&self.0, at)
    }

    pub(super) fn bytes(&self) -> &[u8] {
        &self.0
    }

    pub(super) fn memory(&self) -> usize {
        self.0.memory()
    }
}

impl std::fmt::Debug for ListChunk {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "{} bytes", self.0.len())
    }
}

/// The least room in bytes of a chunk at the end of a list, which will grow.
const CAPACITY_MIN: usize = 1024 - SharedBlock::HEADER;
