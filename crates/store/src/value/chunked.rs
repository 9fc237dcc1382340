//! A large string that was changed: chunks of equal size, which clones share until one changes.
//!
//! A client's string arrives in one buffer, and most chunks stay in that buffer. A chunk is copied
//! out of it only if the chunk changes while something else still reads the buffer, such as a
//! snapshot or a reply in transit. Once nothing else reads the buffer, the next change of such a
//! chunk moves it back. So in the end a string takes its length only once.
//!
//! A string never becomes shorter, so all bytes behind its end are zero.

use std::ops::Range;
use std::sync::{Arc, LazyLock};

use super::cow::Cow;
use super::directory::Directory;
use crate::value::SharedString;

/// The length of a chunk, which a change of a shared string copies.
pub const CHUNK_LEN: usize = if cfg!(miri) { 2 * 1024 } else { 64 * 1024 };
/// A string of at least this length becomes chunked when it grows, or changes while it is shared.
/// Copying a shorter one delays other keys less than a few commands do.
pub const CHUNKED_LEN_MIN: usize = 4 * CHUNK_LEN;

/// If a buffer has more spare room than this fraction of its length, it frees that room, because it
/// never grows again.
const SPARE_PART_MAX: usize = 8;

/// The chunks that were never written.
static ZEROS: LazyLock<SharedString> = LazyLock::new(|| Arc::new(vec![0; CHUNK_LEN]));

/// A string in chunks.
#[derive(Clone)]
pub struct ChunkedString(Cow<ChunkedParts>);

#[derive(Clone)]
struct ChunkedParts {
    len: usize,
    /// The buffer of the chunks without memory of their own. Chunks behind its end are zeros.
    base: SharedString,
    /// All chunks. Each chunk with memory of its own is `CHUNK_LEN` long.
    chunks: Directory<Option<SharedString>>,
    /// How many chunks have memory of their own.
    own: usize,
}

impl ChunkedString {
    /// Makes a chunked string of a buffer. Copies it only to free much spare room.
    pub fn from_shared(mut base: SharedString) -> Self {
        let len = base.len();
        if let Some(buffer) = Arc::get_mut(&mut base)
            && buffer.capacity() - len > len / SPARE_PART_MAX
        {
            buffer.shrink_to_fit();
        }
        let mut parts = ChunkedParts { len: 0, base, chunks: Directory::new(), own: 0 };
        parts.lengthen(len);
        Self(Cow::new(parts))
    }

    /// A copy of the bytes, followed by zeros up to `len`. The zeros take no memory.
    pub fn from_bytes(bytes: &[u8], len: usize) -> Self {
        let mut string = Self::from_shared(SharedString::default());
        string.grow(bytes.len().max(len));
        string.write(0, bytes);
        string
    }

    /// Whether both strings are clones of one, and neither has changed since.
    pub fn is_same(&self, other: &Self) -> bool {
        self.0.is_same(&other.0)
    }

    pub fn len(&self) -> usize {
        self.0.len
    }

    pub fn is_empty(&self) -> bool {
        self.0.len == 0
    }

    /// Bytes of memory. Shared memory counts in full.
    pub fn memory(&self) -> usize {
        let parts = &*self.0;
        let directory = parts.chunks.len() * size_of::<Option<SharedString>>();
        Cow::<ChunkedParts>::size() + directory + parts.base.capacity() + parts.own * CHUNK_LEN
    }

    /// The bytes from `at` on that lie in one piece; none at the end.
    #[inline]
    pub fn slice_at(&self, at: usize) -> &[u8] {
        if at >= self.0.len {
            return &[];
        }
        let (shared, range) = self.0.place(at);
        &shared[range]
    }

    /// The buffers that the bytes of a range lie in, piece by piece.
    pub fn pieces(
        &self,
        range: Range<usize>,
    ) -> impl Iterator<Item = (&SharedString, Range<usize>)> {
        let (mut at, end) = (range.start, range.end.min(self.0.len));
        std::iter::from_fn(move || {
            if at >= end {
                return None;
            }
            let (shared, mut found) = self.0.place(at);
            // Neighbouring chunks in the buffer are one piece.
            while at + found.len() < end {
                let (next, next_found) = self.0.place(at + found.len());
                if !Arc::ptr_eq(shared, next) || next_found.start != found.end {
                    break;
                }
                found.end = next_found.end;
            }
            found.end = found.end.min(found.start + (end - at));
            at += found.len();
            Some((shared, found))
        })
    }

    /// A copy in one piece.
    pub fn to_vec(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(self.len());
        self.pieces(0..self.len()).for_each(|(shared, range)| {
            bytes.extend_from_slice(&shared[range]);
        });
        bytes
    }

    /// Copies bytes into `into`. The part of `into` behind the string's end stays unchanged.
    pub fn read(&self, mut at: usize, mut into: &mut [u8]) {
        while let slice = self.slice_at(at)
            && !slice.is_empty()
            && !into.is_empty()
        {
            let len = slice.len().min(into.len());
            let (now, rest) = into.split_at_mut(len);
            now.copy_from_slice(&slice[..len]);
            (at, into) = (at + len, rest);
        }
    }

    /// Adds zeros up to `len`.
    pub fn grow(&mut self, len: usize) {
        if len <= self.0.len {
            return;
        }
        let parts = self.0.make_mut();
        // The chunk at the buffer's end gets memory of its own with bytes behind that end.
        if parts.len == parts.base.len() && !parts.len.is_multiple_of(CHUNK_LEN) {
            parts.chunk_mut(parts.len / CHUNK_LEN);
        }
        parts.lengthen(len);
    }

    /// Overwrites bytes.
    ///
    /// # Panics
    /// If the string ends before the last of them.
    pub fn write(&mut self, mut at: usize, mut bytes: &[u8]) {
        assert!(bytes.len() <= self.0.len.saturating_sub(at), "a write behind the end");
        let parts = self.0.make_mut();
        while !bytes.is_empty() {
            let within = at % CHUNK_LEN;
            let (now, rest) = bytes.split_at(bytes.len().min(CHUNK_LEN - within));
            parts.chunk_mut(at / CHUNK_LEN)[within..within + now.len()].copy_from_slice(now);
            (at, bytes) = (at + now.len(), rest);
        }
    }
}

impl ChunkedParts {
    fn lengthen(&mut self, len: usize) {
        while self.chunks.len() < len.div_ceil(CHUNK_LEN) {
            self.chunks.push(None);
        }
        self.len = len;
    }

    /// Where the byte lies: its buffer, and the range from it to the end of the chunk.
    fn place(&self, at: usize) -> (&SharedString, Range<usize>) {
        let (index, within) = (at / CHUNK_LEN, at % CHUNK_LEN);
        let end = (self.len - index * CHUNK_LEN).min(CHUNK_LEN);
        match self.chunks.get(index) {
            Some(own) => (own, within..end),
            None if index * CHUNK_LEN < self.base.len() => {
                (&self.base, at..index * CHUNK_LEN + end)
            }
            None => (&ZEROS, within..end),
        }
    }

    /// A chunk, for changing it. It is copied if another owner reads it. It is `CHUNK_LEN` long,
    /// unless the buffer ends within it.
    fn chunk_mut(&mut self, index: usize) -> &mut [u8] {
        let start = index * CHUNK_LEN;
        let in_base = start.min(self.base.len())..(start + CHUNK_LEN).min(self.base.len());
        if in_base.len() == CHUNK_LEN && Arc::get_mut(&mut self.base).is_some() {
            if self.chunks.get(index).is_some()
                && let Some(own) = self.chunks.get_mut(index).take()
            {
                self.own -= 1;
                self.base_mut()[in_base.clone()].copy_from_slice(&own);
            }
            return &mut self.base_mut()[in_base];
        }
        let chunk = self.chunks.get_mut(index);
        if chunk.is_none() {
            let mut copy = vec![0; CHUNK_LEN];
            copy[..in_base.len()].copy_from_slice(&self.base[in_base]);
            *chunk = Some(Arc::new(copy));
            self.own += 1;
        }
        Arc::make_mut(chunk.as_mut().expect("it was made above")).as_mut_slice()
    }

    /// The buffer, which has no other owner.
    fn base_mut(&mut self) -> &mut [u8] {
        Arc::get_mut(&mut self.base).expect("nobody else has it")
    }
}

/// A string for reading, in one piece or in chunks.
#[derive(Clone, Copy, Debug)]
pub enum StringRef<'a> {
    Flat(&'a [u8]),
    Chunked(&'a ChunkedString),
}

impl Default for StringRef<'_> {
    fn default() -> Self {
        Self::Flat(&[])
    }
}

impl<'a> StringRef<'a> {
    #[inline(always)]
    pub fn len(self) -> usize {
        match self {
            Self::Flat(bytes) => bytes.len(),
            Self::Chunked(chunked) => chunked.len(),
        }
    }

    #[inline(always)]
    pub fn is_empty(self) -> bool {
        self.len() == 0
    }

    /// The bytes, if they lie in one piece. Otherwise the string has at least `CHUNKED_LEN_MIN`
    /// bytes, which is too long for anything that is parsed.
    #[inline(always)]
    pub fn flat(self) -> Option<&'a [u8]> {
        match self {
            Self::Flat(bytes) => Some(bytes),
            Self::Chunked(_) => None,
        }
    }

    /// The bytes in one piece. They are copied if necessary.
    pub fn joined(self) -> std::borrow::Cow<'a, [u8]> {
        match self {
            Self::Flat(bytes) => bytes.into(),
            Self::Chunked(chunked) => chunked.to_vec().into(),
        }
    }

    #[inline]
    pub fn get(self, at: usize) -> Option<u8> {
        self.slice_at(at).first().copied()
    }

    /// The bytes from `at` on that lie in one piece; none at the end.
    #[inline]
    pub fn slice_at(self, at: usize) -> &'a [u8] {
        match self {
            Self::Flat(bytes) => bytes.get(at..).unwrap_or_default(),
            Self::Chunked(chunked) => chunked.slice_at(at),
        }
    }

    /// The bytes of a range, piece by piece.
    #[inline]
    pub fn slices(self, range: Range<usize>) -> impl Iterator<Item = &'a [u8]> {
        let Range { start: mut at, end } = range;
        std::iter::from_fn(move || {
            let left = end.checked_sub(at).filter(|&left| left > 0)?;
            let slice = self.slice_at(at);
            let slice = &slice[..slice.len().min(left)];
            at += slice.len();
            (!slice.is_empty()).then_some(slice)
        })
    }
}

impl PartialEq<[u8]> for StringRef<'_> {
    #[inline]
    fn eq(&self, other: &[u8]) -> bool {
        match self {
            Self::Flat(bytes) => *bytes == other,
            Self::Chunked(chunked) => {
                let mut rest = other;
                chunked.len() == other.len()
                    && self.slices(0..other.len()).all(|slice| {
                        let (start, behind) = rest.split_at(slice.len());
                        rest = behind;
                        slice == start
                    })
            }
        }
    }
}

impl std::fmt::Debug for ChunkedString {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Chunked({} bytes)", self.len())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// For each chunk, whether two strings share it.
    fn common(one: &ChunkedString, other: &ChunkedString) -> Vec<bool> {
        let at = |string: &ChunkedString, index: usize| string.slice_at(index * CHUNK_LEN).as_ptr();
        let count = one.len().min(other.len()).div_ceil(CHUNK_LEN);
        (0..count).map(|index| at(one, index) == at(other, index)).collect()
    }

    fn numbered(len: usize) -> Vec<u8> {
        (0..len).map(|at| (at / 7) as u8).collect()
    }

    #[test]
    fn a_change_of_a_pinned_string_copies_one_chunk() {
        let bytes = numbered(10 * CHUNK_LEN + 100);
        let mut string = ChunkedString::from_shared(Arc::new(bytes.clone()));
        let pinned = string.clone();
        string.write(3 * CHUNK_LEN + 5, b"new");
        let expected: Vec<_> = (0..11).map(|index| index != 3).collect();
        assert_eq!(common(&string, &pinned), expected);
        assert_eq!((string.0.own, pinned.0.own), (1, 0));
        // Once more, across the border of the chunk with its own memory and the next.
        let own = string.slice_at(3 * CHUNK_LEN).as_ptr();
        string.write(4 * CHUNK_LEN - 1, b"xy");
        assert_eq!(string.slice_at(3 * CHUNK_LEN).as_ptr(), own);
        assert_eq!(string.0.own, 2);
        assert_eq!(pinned.to_vec(), bytes);
    }

    #[test]
    fn growing_a_pinned_string_copies_the_last_chunk_at_most() {
        let bytes = numbered(5 * CHUNK_LEN + 1);
        let mut string = ChunkedString::from_shared(Arc::new(bytes.clone()));
        let pinned = string.clone();
        string.grow(5 * CHUNK_LEN + 4);
        string.write(5 * CHUNK_LEN + 1, b"end");
        assert_eq!(common(&string, &pinned), [true, true, true, true, true, false]);
        assert_eq!(string.slice_at(5 * CHUNK_LEN)[1..], *b"end");
        let pinned_again = string.clone();
        string.grow(400 * CHUNK_LEN);
        assert_eq!(string.0.own, 1);
        assert!(common(&string, &pinned_again).iter().all(|&same| same));
        assert_eq!((pinned_again.len(), pinned.to_vec()), (5 * CHUNK_LEN + 4, bytes));
    }

    #[test]
    fn zeros_that_nobody_wrote_take_no_memory() {
        const LEN: usize = 8192 * CHUNK_LEN;
        let mut string = ChunkedString::from_bytes(b"start", LEN);
        string.write(LEN - 1, b"x");
        assert_eq!(string.0.own, 2);
        assert!(string.memory() < 300_000, "{}", string.memory());
        assert_eq!(string.slice_at(100 * CHUNK_LEN), [0; CHUNK_LEN]);
        let bytes = string.slice_at(LEN - 2);
        assert_eq!(bytes, b"\0x");
    }

    #[test]
    fn what_nobody_else_reads_is_changed_where_it_lies() {
        let base = numbered(6 * CHUNK_LEN);
        let address = base.as_ptr();
        let mut string = ChunkedString::from_shared(Arc::new(base));
        string.write(5, b"one");
        assert_eq!((string.slice_at(0).as_ptr(), string.0.own), (address, 0));
        let pinned = string.clone();
        string.write(5, b"two");
        assert_eq!(string.0.own, 1);
        drop(pinned);
        // The next change moves the chunk back into the buffer.
        string.write(9, b"three");
        assert_eq!((string.slice_at(0).as_ptr(), string.0.own), (address, 0));
        assert_eq!(string.slice_at(5)[..9], *b"two\x01three");
    }

    #[test]
    fn chunks_side_by_side_are_one_piece() {
        let mut string = ChunkedString::from_shared(Arc::new(numbered(8 * CHUNK_LEN)));
        let _pinned = string.clone();
        let lens = |string: &ChunkedString, range| -> Vec<_> {
            string.pieces(range).map(|(_, range)| range.len()).collect()
        };
        assert_eq!(lens(&string, 0..8 * CHUNK_LEN), [8 * CHUNK_LEN]);
        string.write(2 * CHUNK_LEN, b"x");
        assert_eq!(lens(&string, 0..8 * CHUNK_LEN), [2, 1, 5].map(|chunks| chunks * CHUNK_LEN));
        assert_eq!(lens(&string, 10..CHUNK_LEN + 10), [CHUNK_LEN]);
    }

    #[derive(Clone, Debug)]
    enum Step {
        Write { at: usize, len: usize },
        Append { len: usize },
        Grow { by: usize },
        Pin,
        Unpin,
    }

    fn step() -> impl Strategy<Value = Step> {
        let len = || prop_oneof![0..20usize, 0..3 * CHUNK_LEN, Just(CHUNK_LEN)];
        prop_oneof![
            4 => (0..12 * CHUNK_LEN, len()).prop_map(|(at, len)| Step::Write { at, len }),
            2 => len().prop_map(|len| Step::Append { len }),
            1 => len().prop_map(|by| Step::Grow { by }),
            2 => Just(Step::Pin),
            1 => Just(Step::Unpin),
        ]
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 3 } else { 150 }))]
        #[test]
        fn behaves_like_a_vec_while_what_is_pinned_stays_as_it_was(
            start in prop_oneof![0..2 * CHUNK_LEN, Just(4 * CHUNK_LEN), 4 * CHUNK_LEN..6 * CHUNK_LEN],
            copied: bool,
            holds_buffer: bool,
            steps in prop::collection::vec(step(), 1..25),
            looks in prop::collection::vec(any::<prop::sample::Index>(), 6),
        ) {
            let mut model = numbered(start);
            let buffer = Arc::new(model.clone());
            let mut string = match copied {
                true => ChunkedString::from_bytes(&buffer, 0),
                false => ChunkedString::from_shared(Arc::clone(&buffer)),
            };
            let held = holds_buffer.then_some((buffer, model.clone()));
            let mut pins: Vec<(ChunkedString, Vec<u8>)> = Vec::new();
            for (number, step) in steps.into_iter().enumerate() {
                match step {
                    Step::Write { at, len } => {
                        let at = at.min(model.len());
                        let bytes = vec![number as u8 + 1; len.min(model.len() - at)];
                        string.write(at, &bytes);
                        model[at..at + bytes.len()].copy_from_slice(&bytes);
                    }
                    Step::Append { len } => {
                        let bytes = vec![number as u8 + 1; len];
                        string.grow(model.len() + len);
                        string.write(model.len(), &bytes);
                        model.extend(bytes);
                    }
                    Step::Grow { by } => {
                        model.resize(model.len() + by, 0);
                        string.grow(model.len());
                    }
                    Step::Pin => pins.push((string.clone(), model.clone())),
                    Step::Unpin => drop(pins.pop()),
                }
                prop_assert_eq!(string.len(), model.len());
            }
            pins.push((string, model));
            for (string, model) in &pins {
                let look = StringRef::Chunked(string);
                prop_assert!(string.to_vec() == *model, "other bytes");
                prop_assert!(look == **model);
                prop_assert!(look.joined() == *model);
                let own = (0..string.0.chunks.len()).filter(|&at| string.0.chunks.get(at).is_some());
                prop_assert_eq!(own.count(), string.0.own);
                if model.is_empty() {
                    continue;
                }
                let mut other = model.clone();
                let at = looks[0].index(model.len());
                other[at] ^= 1;
                prop_assert!(look != *other && look != model[1..]);
                prop_assert_eq!(look.get(at), Some(model[at]));
                prop_assert_eq!((look.get(model.len()), look.len()), (None, model.len()));
                for pair in looks.windows(2) {
                    let (a, b) = (pair[0].index(model.len()), pair[1].index(model.len()));
                    let range = a.min(b)..a.max(b);
                    let sliced = look.slices(range.clone()).collect::<Vec<_>>().concat();
                    prop_assert!(sliced == model[range.clone()]);
                    let pieces = string.pieces(range.clone());
                    let pieces: Vec<_> = pieces.map(|(owner, range)| &owner[range]).collect();
                    prop_assert!(pieces.concat() == model[range]);
                    let mut window = [7; 9];
                    string.read(a, &mut window);
                    let there = window.len().min(model.len() - a);
                    prop_assert_eq!(&window[..there], &model[a..a + there]);
                    prop_assert!(window[there..].iter().all(|&byte| byte == 7));
                }
            }
            if let Some((buffer, model)) = held {
                prop_assert!(*buffer == model);
            }
        }
    }
}
