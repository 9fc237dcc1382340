//! The words of commands, kept for when they are executed or gone on with.

use std::ops::Range;

use bobbin_store::entry::{INLINE_MAX, Shared};

/// Words, one behind the other: there may be a million, so that they lie in one piece. But those
/// that may become values of their own are shared blocks.
#[derive(Default)]
pub struct Words {
    bytes: Vec<u8>,
    /// Where each word ends in `bytes`.
    ends: Vec<usize>,
    /// Large words, by number.
    large: Vec<(usize, Shared)>,
    /// Bytes of those.
    large_bytes: usize,
}

impl Words {
    /// Adds a word; `shared` makes a shared block of a large one.
    pub fn push(&mut self, word: &[u8], shared: impl FnOnce(&[u8]) -> Shared) {
        if word.len() > INLINE_MAX {
            self.large.push((self.ends.len(), shared(word)));
            self.large_bytes += word.len();
        } else {
            self.bytes.extend_from_slice(word);
        }
        self.ends.push(self.bytes.len());
    }

    /// How many there are.
    pub const fn count(&self) -> usize {
        self.ends.len()
    }

    /// Bytes of all of them.
    pub const fn byte_len(&self) -> usize {
        self.bytes.len() + self.large_bytes
    }

    /// Bytes of memory.
    pub fn memory(&self) -> usize {
        self.bytes.capacity() + self.ends.capacity() * size_of::<usize>() + self.large_bytes
    }

    pub fn all(&self) -> Vec<&[u8]> {
        self.some(0..self.count())
    }

    /// Some of the words, by number.
    pub fn some(&self, range: Range<usize>) -> Vec<&[u8]> {
        let first = range.start.checked_sub(1).map_or(0, |before| self.ends[before]);
        let ends = &self.ends[range.clone()];
        let starts = std::iter::once(first).chain(ends.iter().copied());
        let mut words: Vec<&[u8]> =
            starts.zip(ends).map(|(start, &end)| &self.bytes[start..end]).collect();
        let large = self.large.partition_point(|(at, _)| *at < range.start);
        for (at, bytes) in self.large[large..].iter().take_while(|(at, _)| *at < range.end) {
            words[at - range.start] = bytes;
        }
        words
    }

    /// The large ones.
    pub fn large(&self) -> impl Iterator<Item = &Shared> {
        self.large.iter().map(|(_, bytes)| bytes)
    }
}
