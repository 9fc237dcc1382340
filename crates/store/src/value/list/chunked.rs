//! A long list: a tree of chunks, which counts the elements.

use std::ops::Range;

use super::chunk::ListChunk;
use super::{End, ListLimits};
use crate::value::Defragmenter;
use crate::value::listpack::Item;
use crate::value::tree::{Path, Side, Tree};

/// A long list. It always has a chunk. A chunk is empty only if there is no other.
#[derive(Clone)]
pub struct ChunkedList {
    tree: Tree<ListChunk, ()>,
}

/// A position between two elements: in a chunk, before the entry at offset `at`.
#[derive(Clone, Copy)]
pub(super) struct ListCursor {
    path: Path,
    at: usize,
}

impl ChunkedList {
    /// A list of entries in a listpack's encoding.
    pub(super) fn from_entries(entries: &[u8], limits: ListLimits) -> Self {
        let mut list = Self::default();
        list.append_entries(entries, limits);
        list
    }

    /// Appends entries in a listpack's encoding, and leaves full chunks behind.
    pub(super) fn append_entries(&mut self, mut entries: &[u8], limits: ListLimits) {
        while !entries.is_empty() {
            let path = self.tree.last();
            let chunk = self.tree.leaf(&path);
            let (len, added) = chunk.fitting(entries, self.tree.leaf_count(&path), limits);
            if added > 0 {
                let (now, rest) = entries.split_at(len);
                self.tree.leaf_mut(&path, added as isize).append(now);
                entries = rest;
            } else {
                self.tree.insert(&path, Side::After, (), ListChunk::from_entries(&[]), 0);
            }
        }
    }

    /// See [`super::List::defragment`].
    pub(super) fn defragment(&mut self, from: usize, defragmenter: &mut Defragmenter<'_>) -> usize {
        self.tree.defragment(from, defragmenter)
    }

    pub(super) fn is_same(&self, other: &Self) -> bool {
        self.tree.is_same(&other.tree)
    }

    #[inline]
    pub(super) fn push(&mut self, value: Item<'_>, end: End, limits: ListLimits) {
        let (path, side) = self.end(end);
        let count = self.tree.leaf_count(&path);
        if self.tree.leaf(&path).has_room(value, count, end, limits) || count == 0 {
            self.tree.leaf_mut(&path, 1).push(value, end, limits);
        } else {
            // Chunks between others seldom grow, so this one gives its room back.
            self.tree.leaf_mut(&path, 0).shrink();
            self.tree.insert(&path, side, (), ListChunk::of(value, end, limits), 1);
        }
    }

    /// Removes the element at one end, and calls `look` with it.
    #[inline]
    pub(super) fn pop<R>(&mut self, end: End, look: impl FnOnce(Item<'_>) -> R) -> Option<R> {
        let (path, _) = self.end(end);
        let chunk = self.tree.leaf(&path);
        let len = chunk.bytes().len();
        if len == 0 {
            return None;
        }
        let (from, to) = match end {
            End::Front => (0, chunk.after(0)),
            End::Back => (chunk.before(len), len),
        };
        let result = look(chunk.item(from));
        if to - from == len && self.tree.leaves() > 1 {
            self.tree.remove(&path);
        } else {
            self.tree.leaf_mut(&path, -1).remove(from, to);
        }
        Some(result)
    }

    /// Inserts an element before the one with this index, which may be the length.
    pub(super) fn insert(&mut self, index: usize, value: Item<'_>, limits: ListLimits) {
        if index == 0 {
            return self.push(value, End::Front, limits);
        }
        if index >= self.tree.len() {
            return self.push(value, End::Back, limits);
        }
        let (path, offset) = self.tree.seek_rank(index);
        let count = self.tree.leaf_count(&path);
        let chunk = self.tree.leaf(&path);
        let at = chunk.position(offset, count);
        if chunk.fits(value, count, limits) {
            self.tree.leaf_mut(&path, 1).insert(at, value, End::Back, limits);
            return;
        }
        if offset > 0 {
            let right_count = count - offset;
            let right = self.tree.leaf_mut(&path, -(right_count as isize)).split_off(at);
            self.tree.insert(&path, Side::After, (), right, right_count);
        }
        // Now the place is between two chunks: use the first one, if it has room.
        let (path, _) = self.tree.seek_rank(index - 1);
        let count = self.tree.leaf_count(&path);
        if self.tree.leaf(&path).fits(value, count, limits) {
            self.tree.leaf_mut(&path, 1).push(value, End::Back, limits);
        } else {
            let mut chunk = ListChunk::of(value, End::Back, limits);
            chunk.shrink();
            self.tree.insert(&path, Side::After, (), chunk, 1);
        }
    }

    /// Sets the value of an element. The index must be below the length.
    pub(super) fn set(&mut self, index: usize, value: Item<'_>, limits: ListLimits) {
        let (path, offset) = self.tree.seek_rank(index);
        let count = self.tree.leaf_count(&path);
        let chunk = self.tree.leaf(&path);
        let from = chunk.position(offset, count);
        let to = chunk.after(from);
        if count == 1 || chunk.fits_instead(from..to, value, limits) {
            if self.tree.leaf_mut(&path, 0).replace(from..to, value, limits) {
                self.tidy(&path, limits);
            }
        } else {
            self.remove_range(index..index + 1, 1, limits);
            self.insert(index, value, limits);
        }
    }

    /// Removes elements with these indices, which must be below the length. Stops after the chunk
    /// with which it has removed at least `most`. Returns how many it removed.
    pub(super) fn remove_range(
        &mut self,
        range: Range<usize>,
        most: usize,
        limits: ListLimits,
    ) -> usize {
        let mut left = range.len();
        while left > 0 && range.len() - left < most {
            let (path, offset) = self.tree.seek_rank(range.start);
            let count = self.tree.leaf_count(&path);
            let removed = left.min(count - offset);
            left -= removed;
            if removed == count && self.tree.leaves() > 1 {
                self.tree.remove(&path);
                continue;
            }
            let chunk = self.tree.leaf(&path);
            let from = chunk.position(offset, count);
            let to = chunk.position(offset + removed, count);
            let chunk = self.tree.leaf_mut(&path, -(removed as isize));
            chunk.remove(from, to);
            chunk.shrink();
            self.tidy(&path, limits);
        }
        range.len() - left
    }

    /// Removes up to `most` elements that equal a value, beginning at one end. Skips the first
    /// `passed` elements, which were looked at before and stay. Looks at about `looks` more, and
    /// adds those that stay to `passed`.
    pub(super) fn remove_equal(
        &mut self,
        value: Item<'_>,
        most: usize,
        end: End,
        limits: ListLimits,
        passed_before: &mut usize,
        looks: usize,
    ) -> usize {
        let (mut total, mut looked) = (0, 0);
        let mut passed = *passed_before;
        while total < most && passed < self.tree.len() && looked < looks {
            let (path, offset) = self.tree.seek_rank(match end {
                End::Front => passed,
                End::Back => self.tree.len() - 1 - passed,
            });
            let count = self.tree.leaf_count(&path);
            // Merged chunks may contain elements that were looked at before.
            passed -= match end {
                End::Front => offset,
                End::Back => count - 1 - offset,
            };
            looked += count;
            let Some(at) = self.find_equal(&path, value, end) else {
                passed += count;
                continue;
            };
            let removed = if most - total == 1 {
                let chunk = self.tree.leaf_mut(&path, -1);
                chunk.remove(at, chunk.after(at));
                1
            } else {
                self.remove_equal_in(&path, value, most - total, end)
            };
            total += removed;
            passed += count - removed;
            if removed == count && self.tree.leaves() > 1 {
                self.tree.remove(&path);
            } else {
                self.tidy(&path, limits);
            }
        }
        *passed_before = passed;
        total
    }

    /// Where the first of a chunk's elements from an end on lies that equals a value.
    fn find_equal(&self, path: &Path, value: Item<'_>, end: End) -> Option<usize> {
        let chunk = self.tree.leaf(path);
        let len = chunk.bytes().len();
        let mut next = if end == End::Front { 0 } else { len };
        loop {
            let at = match end {
                End::Front if next < len => next,
                End::Back if next > 0 => chunk.before(next),
                _ => return None,
            };
            if chunk.item(at) == value {
                return Some(at);
            }
            next = if end == End::Front { chunk.after(at) } else { at };
        }
    }

    /// Removes up to `most` of a chunk's elements that equal a value, from an end on. Returns how
    /// many.
    fn remove_equal_in(&mut self, path: &Path, value: Item<'_>, most: usize, end: End) -> usize {
        let matches = self.count_equal(path, value);
        let removed = matches.min(most);
        // From the back, the elements that stay are the first ones of the chunk.
        let mut skip = if end == End::Back { matches - removed } else { 0 };
        let mut take = removed;
        self.tree.leaf_mut(path, -(removed as isize)).retain(|item| {
            if item != value || take == 0 {
                return true;
            }
            if skip > 0 {
                skip -= 1;
                return true;
            }
            take -= 1;
            false
        });
        removed
    }

    fn count_equal(&self, path: &Path, value: Item<'_>) -> usize {
        let chunk = self.tree.leaf(path);
        let (mut at, mut matches) = (0, 0);
        while at < chunk.bytes().len() {
            matches += usize::from(chunk.item(at) == value);
            at = chunk.after(at);
        }
        matches
    }

    /// Gives back the room of a chunk that has lost much, and merges one that has become small with
    /// those beside it.
    fn tidy(&mut self, path: &Path, limits: ListLimits) {
        self.tree.leaf_mut(path, 0).give_back();
        let mut path = *path;
        while let Some((left, right)) = self.mergeable(&path, limits) {
            let rank = self.tree.rank(&left);
            self.merge(&left, &right);
            path = self.tree.seek_rank(rank).0;
        }
    }

    /// A chunk that has become small and the next or the previous one, if one chunk can hold both.
    fn mergeable(&self, path: &Path, limits: ListLimits) -> Option<(Path, Path)> {
        let half = limits.chunk_bytes() / 2;
        let (len, count) = (self.tree.leaf(path).bytes().len(), self.tree.leaf_count(path));
        // The last two chunks are not merged: Redis would not pack such a list either.
        if len > half / 2 || count > limits.entries_max / 4 || self.tree.leaves() <= 2 {
            return None;
        }
        let fits = |other: &Path| {
            self.tree.leaf(other).bytes().len() + len <= half
                && self.tree.leaf_count(other) + count <= limits.entries_max / 2
        };
        if let Some(next) = self.tree.next_sibling(path).filter(fits) {
            return Some((*path, next));
        }
        Some((self.tree.previous_sibling(path).filter(fits)?, *path))
    }

    fn merge(&mut self, left: &Path, right: &Path) {
        let moved = self.tree.leaf_count(right);
        let chunk = self.tree.leaf(right).clone();
        let merged = self.tree.leaf_mut(left, moved as isize);
        merged.append(chunk.bytes());
        merged.shrink();
        self.tree.remove(right);
    }

    #[inline]
    fn end(&self, end: End) -> (Path, Side) {
        match end {
            End::Front => (self.tree.first(), Side::Before),
            End::Back => (self.tree.last(), Side::After),
        }
    }

    /// The position before the element with this index, which may be the length.
    pub(super) fn cursor(&self, index: usize) -> ListCursor {
        let (path, offset) = self.tree.seek_rank(index);
        let at = self.tree.leaf(&path).position(offset, self.tree.leaf_count(&path));
        ListCursor { path, at }
    }

    /// The element behind a cursor. The cursor moves behind it.
    #[inline]
    pub(super) fn next(&self, cursor: &mut ListCursor) -> Option<Item<'_>> {
        let mut chunk = self.tree.leaf(&cursor.path);
        if cursor.at >= chunk.bytes().len() {
            *cursor = ListCursor { path: self.tree.next(&cursor.path)?, at: 0 };
            chunk = self.tree.leaf(&cursor.path);
        }
        let item = chunk.item(cursor.at);
        cursor.at = chunk.after(cursor.at);
        Some(item)
    }

    /// The element before a cursor. The cursor moves before it.
    #[inline]
    pub(super) fn previous(&self, cursor: &mut ListCursor) -> Option<Item<'_>> {
        let mut chunk = self.tree.leaf(&cursor.path);
        if cursor.at == 0 {
            let path = self.tree.previous(&cursor.path)?;
            chunk = self.tree.leaf(&path);
            *cursor = ListCursor { path, at: chunk.bytes().len() };
        }
        cursor.at = chunk.before(cursor.at);
        Some(chunk.item(cursor.at))
    }

    /// The entries of each chunk, in a listpack's encoding, and how many they are.
    pub(super) fn chunks(&self) -> impl Iterator<Item = (&[u8], usize)> {
        self.paths().map(|path| (self.tree.leaf(&path).bytes(), self.tree.leaf_count(&path)))
    }

    fn paths(&self) -> impl Iterator<Item = Path> {
        std::iter::successors(Some(self.tree.first()), |path| self.tree.next(path))
    }

    #[inline]
    pub(super) const fn len(&self) -> usize {
        self.tree.len()
    }

    pub(super) const fn chunk_count(&self) -> usize {
        self.tree.leaves()
    }

    /// Bytes of memory. For a list of many chunks this is an estimate.
    pub(super) fn memory(&self) -> usize {
        let leaves = self.tree.leaves();
        let memory = |path: Path| self.tree.leaf(&path).memory();
        let chunks = if leaves <= SAMPLE {
            self.paths().map(memory).sum()
        } else {
            let samples = (0..self.tree.len()).step_by((self.tree.len() / SAMPLE).max(1));
            let count = samples.len();
            let sum: usize = samples.map(|index| memory(self.tree.seek_rank(index).0)).sum();
            sum / count * leaves
        };
        size_of::<Self>() + self.tree.memory() + chunks
    }

    #[cfg(test)]
    pub(super) fn check(&self) {
        self.tree.check();
        for (entries, count) in self.chunks() {
            let chunk = ListChunk::from_entries(entries);
            let (mut at, mut found) = (0, 0);
            while at < entries.len() {
                at = chunk.after(at);
                found += 1;
            }
            assert_eq!(found, count);
            assert!(count > 0 || self.tree.len() == 0);
        }
    }
}

impl Default for ChunkedList {
    fn default() -> Self {
        Self { tree: Tree::new(ListChunk::from_entries(&[]), 0) }
    }
}

/// How many chunks are looked at to estimate all of them.
const SAMPLE: usize = 64;
