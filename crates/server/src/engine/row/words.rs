//! The words of commands that are executed or continued later.

use std::ops::Range;

use bobbin_store::entry::{INLINE_MAX, SharedString};

/// Words, one behind the other in one buffer, as there may be a million. Large words, which may
/// become values, are shared blocks.
#[derive(Default)]
pub struct Words {
    bytes: Vec<u8>,
    /// Where each word ends in `bytes`.
    ends: Vec<usize>,
    /// The large words, by index.
    large: Vec<(usize, SharedString)>,
    /// Bytes of the large words.
    large_bytes: usize,
}

impl Words {
    /// Adds a word; `shared` makes a shared block of a large one.
    pub fn push(&mut self, word: &[u8], shared: impl FnOnce(&[u8]) -> SharedString) {
        if word.len() > INLINE_MAX {
            self.large.push((self.ends.len(), shared(word)));
            self.large_bytes += word.len();
        } else {
            self.bytes.extend_from_slice(word);
        }
        self.ends.push(self.bytes.len());
    }

    /// The number of words.
    pub const fn count(&self) -> usize {
        self.ends.len()
    }

    /// Bytes of all words.
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

    /// A range of the words, by index.
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

    /// The large words.
    pub fn large(&self) -> impl Iterator<Item = &SharedString> {
        self.large.iter().map(|(_, bytes)| bytes)
    }
}
