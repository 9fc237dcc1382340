//! Tells of most values that a listpack does not have them, without looking through it.

use super::Listpack;
use crate::hash::Hasher;
use crate::value::integer::IntegerText;

/// A Bloom filter with one hash, for a listpack that gets many values at once: to look for each in
/// the listpack would take time by the square of their number.
pub(in crate::value) struct EntryFilter<'h> {
    /// A power of two of them, or none: with few values it would take longer than to look.
    bits: Vec<u64>,
    hasher: &'h Hasher,
}

impl<'h> EntryFilter<'h> {
    /// A filter that knows every `step`-th entry, for `added` more values.
    pub(in crate::value) fn of(
        pack: &Listpack,
        step: usize,
        added: usize,
        hasher: &'h Hasher,
    ) -> Self {
        if added < ADDED_MIN {
            return Self::unused(hasher);
        }
        let mut filter = Self::with_room(pack.len() / step + added, hasher);
        let mut room = IntegerText::new(0);
        for item in pack.iter().step_by(step) {
            filter.add(item.text(&mut room));
        }
        filter
    }

    /// A filter that knows no value, for some.
    pub(in crate::value) fn with_room(values: usize, hasher: &'h Hasher) -> Self {
        if values < ADDED_MIN {
            return Self::unused(hasher);
        }
        let words = (values * BITS_PER_VALUE / 64).next_power_of_two();
        Self { bits: vec![0; words], hasher }
    }

    /// A filter that says of each value that it may be there.
    pub(in crate::value) const fn unused(hasher: &'h Hasher) -> Self {
        Self { bits: Vec::new(), hasher }
    }

    /// Adds a value. Returns whether it may have been there before; it was not if this is false.
    #[inline]
    pub(in crate::value) fn add(&mut self, value: &[u8]) -> bool {
        if self.bits.is_empty() {
            return true;
        }
        let hash = self.hasher.hash(value).0 as usize;
        let (word, bit) = ((hash / 64) & (self.bits.len() - 1), 1 << (hash % 64));
        let was_set = self.bits[word] & bit != 0;
        self.bits[word] |= bit;
        was_set
    }
}

/// Looking for fewer values takes as long as making the filter.
const ADDED_MIN: usize = 8;
/// One value in this many, at most, is looked for in vain.
const BITS_PER_VALUE: usize = 32;
