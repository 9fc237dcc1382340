//! A set of integers in one block, byte for byte as Redis keeps it (`intset.c`).
//!
//! ```text
//! u32 bytes per integer: 2, 4 or 8 | u32 integers | the integers, ascending     all little-endian
//! ```
//! All integers have the width of the widest that was ever added.
//!
//! The unsafe code here relies on one rule, called *whole*: the block belongs only to its
//! [`Intset`], is aligned to 8, and begins with a header whose width is 2, 4 or 8. Behind the
//! header it has as many initialised integers of that width as the header says, and it was last
//! given exactly these bytes (see `block`).

use std::ptr::NonNull;

use super::block;
use crate::value::Defragmenter;

/// An owned set of integers. It is only a pointer, which may lie at any address (see `SLOT`): the
/// block's size follows from its header.
#[repr(Rust, packed)]
pub struct Intset {
    block: NonNull<u8>,
}

// SAFETY: *whole*: no other owner has the block, so it moves with its owner. Plain bytes belong to
// no thread.
unsafe impl Send for Intset {}
// SAFETY: a shared reference only reads the block, which changes only through exclusive ones.
unsafe impl Sync for Intset {}

impl Intset {
    /// The most integers of a set, as in Redis.
    pub const LEN_MAX: usize = 1 << 30;

    pub fn new() -> Self {
        Self { block: block::allocate(&EMPTY, &[]) }
    }

    /// Copies foreign bytes after checking all of them: the width, the count, and that the integers
    /// ascend.
    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let width = u32::from_le_bytes(*bytes.first_chunk()?);
        let count = u32::from_le_bytes(*bytes.get(4..)?.first_chunk()?) as usize;
        let len = HEADER.checked_add(count.checked_mul(width as usize)?)?;
        if !matches!(width, 2 | 4 | 8) || len != bytes.len() || count > Self::LEN_MAX {
            return None;
        }
        let set = Self { block: block::allocate(bytes, &[]) };
        let ascends = set.iter().zip(set.iter().skip(1)).all(|(one, next)| one < next);
        ascends.then_some(set)
    }

    /// Adds an integer. Returns whether it was new.
    pub fn insert(&mut self, value: i64) -> bool {
        let (old_width, needed) = (self.width(), width_of(value));
        if needed > old_width {
            self.widen(needed);
        }
        match self.search(value) {
            Ok(_) => false,
            Err(index) => {
                let (width, count) = (self.width(), self.len());
                assert!(count < Self::LEN_MAX, "a set of {count} integers");
                self.resize(count + 1);
                let bytes = value.to_le_bytes();
                // SAFETY: *whole*, and the block was just given room for one more integer. The
                // `count - index` integers from the index on move up by one, within that room. The
                // value's low bytes, which come first, take the place of the first of them.
                unsafe {
                    let at = self.block.add(HEADER + index * width);
                    at.add(width).copy_from(at, (count - index) * width);
                    at.copy_from_nonoverlapping(NonNull::from(&bytes).cast(), width);
                }
                self.set_count(count + 1);
                true
            }
        }
    }

    /// Removes an integer. Returns whether it was there.
    pub fn remove(&mut self, value: i64) -> bool {
        match self.search(value) {
            Ok(index) => {
                self.remove_at(index);
                true
            }
            Err(_) => false,
        }
    }

    /// Removes the integer at this index, which must be below the length.
    pub fn remove_at(&mut self, index: usize) {
        let (width, count) = (self.width(), self.len());
        assert!(index < count, "integer {index} of {count}");
        // SAFETY: *whole*, and the index is below the count. The integers behind it move down by
        // one, within the block.
        unsafe {
            let at = self.block.add(HEADER + index * width);
            at.copy_from(at.add(width), (count - index - 1) * width);
        }
        self.resize(count - 1);
        self.set_count(count - 1);
    }

    pub fn contains(&self, value: i64) -> bool {
        width_of(value) <= self.width() && self.search(value).is_ok()
    }

    /// The integer at this index, in ascending order.
    pub fn get(&self, index: usize) -> Option<i64> {
        (index < self.len()).then(|| self.read(index))
    }

    pub fn iter(&self) -> impl DoubleEndedIterator<Item = i64> + ExactSizeIterator + Clone + '_ {
        (0..self.len()).map(|index| self.read(index))
    }

    #[inline]
    pub fn as_bytes(&self) -> &[u8] {
        // SAFETY: *whole*: that many initialised bytes lie there. They live as long as the set, and
        // do not change while it is borrowed.
        unsafe { NonNull::slice_from_raw_parts(self.block, self.byte_len()).as_ref() }
    }

    #[inline]
    pub fn len(&self) -> usize {
        // SAFETY: *whole*: the header's second word lies there, aligned.
        u32::from_le(unsafe { self.block.add(4).cast::<u32>().read() }) as usize
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Its address, for prefetching.
    pub(crate) fn address(&self) -> *const u8 {
        self.block.as_ptr()
    }

    /// Bytes of memory.
    pub fn memory(&self) -> usize {
        block::size(self.byte_len())
    }

    /// The index of a value, or the index that it would get.
    fn search(&self, value: i64) -> Result<usize, usize> {
        let (mut low, mut high) = (0, self.len());
        // Integers are mostly added in ascending order.
        if high > 0 && self.read(high - 1) < value {
            return Err(high);
        }
        while low < high {
            let middle = low + (high - low) / 2;
            match self.read(middle).cmp(&value) {
                std::cmp::Ordering::Less => low = middle + 1,
                std::cmp::Ordering::Greater => high = middle,
                std::cmp::Ordering::Equal => return Ok(middle),
            }
        }
        Err(low)
    }

    /// Increases the width of all integers.
    fn widen(&mut self, width: usize) {
        let mut bytes = Vec::with_capacity(HEADER + self.len() * width);
        bytes.extend_from_slice(&(width as u32).to_le_bytes());
        bytes.extend_from_slice(&(self.len() as u32).to_le_bytes());
        for value in self.iter() {
            bytes.extend_from_slice(&value.to_le_bytes()[..width]);
        }
        *self = Self { block: block::allocate(&bytes, &[]) };
    }

    /// Moves the block if it lies in sparsely used memory.
    pub(crate) fn defragment(&mut self, defragmenter: &mut Defragmenter<'_>) {
        if defragmenter.wants(self.block) {
            *self = self.clone();
        }
    }

    fn resize(&mut self, count: usize) {
        let (old_len, len) = (self.byte_len(), HEADER + count * self.width());
        // SAFETY: *whole*: only this set uses the block, which was given its length. The new length
        // includes the header, so it is not zero.
        let moved = unsafe { block::resize(self.block, old_len, len) };
        if let Some(moved) = moved {
            self.block = moved;
        }
    }

    fn set_count(&mut self, count: usize) {
        // SAFETY: *whole*: the header's second word lies there, aligned, and only this set uses it.
        unsafe { self.block.add(4).cast::<u32>().write((count as u32).to_le()) };
    }

    fn byte_len(&self) -> usize {
        HEADER + self.len() * self.width()
    }

    #[inline(always)]
    fn width(&self) -> usize {
        // SAFETY: *whole*: the header's first word lies there, aligned.
        u32::from_le(unsafe { self.block.cast::<u32>().read() }) as usize
    }

    #[inline(always)]
    fn read(&self, index: usize) -> i64 {
        let width = self.width();
        assert!(index < self.len(), "integer {index} of {}", self.len());
        // SAFETY: *whole*, and the index is below the count, so an integer of this width lies
        // there. It is aligned, because the block and the header's size are multiples of 8.
        unsafe {
            let at = self.block.add(HEADER + index * width);
            match width {
                2 => i64::from(i16::from_le(at.cast().read())),
                4 => i64::from(i32::from_le(at.cast().read())),
                _ => i64::from_le(at.cast().read()),
            }
        }
    }
}

impl Default for Intset {
    fn default() -> Self {
        Self::new()
    }
}

impl Clone for Intset {
    fn clone(&self) -> Self {
        Self { block: block::allocate(self.as_bytes(), &[]) }
    }
}

impl Drop for Intset {
    fn drop(&mut self) {
        // SAFETY: *whole*: no other owner has the block, and it was given its length.
        unsafe { block::free(self.block, self.byte_len()) };
    }
}

impl std::fmt::Debug for Intset {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_set().entries(self.iter()).finish()
    }
}

const fn width_of(value: i64) -> usize {
    if value == value as i16 as i64 {
        2
    } else if value == value as i32 as i64 {
        4
    } else {
        8
    }
}

const HEADER: usize = 8;
const EMPTY: [u8; HEADER] = [2, 0, 0, 0, 0, 0, 0, 0];

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn bytes_are_those_of_redis() {
        let mut set = Intset::new();
        for value in [5, -1, 300] {
            assert!(set.insert(value));
        }
        assert_eq!(set.as_bytes(), b"\x02\0\0\0\x03\0\0\0\xff\xff\x05\0\x2c\x01");
        assert!(set.insert(100_000));
        assert_eq!(set.as_bytes()[..8], *b"\x04\0\0\0\x04\0\0\0");
        assert!(set.remove(100_000));
        assert_eq!(set.as_bytes()[..8], *b"\x04\0\0\0\x03\0\0\0");
        assert!(!set.contains(i64::MAX));
    }

    #[test]
    fn foreign_bytes_are_checked() {
        let mut set = Intset::new();
        for value in [1, 2, 70_000] {
            set.insert(value);
        }
        let bytes = set.as_bytes().to_vec();
        assert!(Intset::from_bytes(&bytes).is_some());
        for cut in 0..bytes.len() {
            assert!(Intset::from_bytes(&bytes[..cut]).is_none());
        }
        for (at, value) in [(0, 3), (4, 2), (4, 0xff), (8, 2), (12, 0)] {
            let mut damaged = bytes.clone();
            damaged[at] = value;
            assert!(Intset::from_bytes(&damaged).is_none(), "byte {at} as {value}");
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig {
            cases: if cfg!(miri) { 4 } else { 256 },
            failure_persistence: None,
            ..ProptestConfig::default()
        })]

        #[test]
        fn behaves_like_a_set(changes in prop::collection::vec(
            (prop_oneof![-20i64..20, -40_000i64..40_000, any::<i64>()], 0..3), 0..200,
        )) {
            let (mut set, mut model) = (Intset::new(), BTreeSet::new());
            for (value, what) in changes {
                match what {
                    0 => prop_assert_eq!(set.remove(value), model.remove(&value)),
                    _ => prop_assert_eq!(set.insert(value), model.insert(value)),
                }
                prop_assert_eq!(set.contains(value), model.contains(&value));
                prop_assert!(set.iter().eq(model.iter().copied()));
            }
            prop_assert_eq!(set.len(), model.len());
            prop_assert!(set.iter().rev().eq(model.iter().rev().copied()));
            let copy = Intset::from_bytes(set.as_bytes()).unwrap();
            prop_assert_eq!(copy.as_bytes(), set.as_bytes());
        }
    }
}
