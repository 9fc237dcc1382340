//! The values that a load writes.

use std::ops::Range;

use super::WorkloadRandom;

/// Where values come from: a pool of bytes, and how much of it each value takes.
#[derive(Clone, Debug)]
pub struct ValuePool {
    pool: Vec<u8>,
    sizes: Sizes,
    varied: bool,
}

/// How long values are, in bytes.
#[derive(Clone, Debug, PartialEq)]
pub enum Sizes {
    Fixed(usize),
    Range {
        min: usize,
        max: usize,
    },
    /// Sizes with their weights.
    Weighted(Vec<(usize, u64)>),
    /// From `min` for the key `low` evenly up to `max` for the last of `count` keys.
    ByKey {
        min: usize,
        max: usize,
        low: u64,
        count: u64,
    },
}

/// What values are made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Content {
    /// The letter x, as memtier_benchmark writes.
    Letter,
    /// Printable bytes, the same in every value.
    Printable,
    /// Other bytes in every value.
    Random,
}

impl ValuePool {
    pub fn new(sizes: Sizes, content: Content, random: &mut WorkloadRandom) -> Self {
        let varied = content == Content::Random;
        let len = sizes.max() * if varied { 2 } else { 1 } + usize::from(varied) * POOL_SPARE;
        let pool = match content {
            Content::Letter => vec![b'x'; len],
            Content::Printable => (0..len).map(|_| b'0' + random.below(64) as u8).collect(),
            Content::Random => (0..len).map(|_| random.bits() as u8).collect(),
        };
        Self { pool, sizes, varied }
    }

    /// Bytes of one length that are always the same.
    pub fn printable(len: usize, random: &mut WorkloadRandom) -> Vec<u8> {
        Self::new(Sizes::Fixed(len), Content::Printable, random).pool
    }

    /// The bytes of the pool that are the next value, of the key `key`.
    #[inline]
    pub(super) fn choose(&self, key: u64, random: &mut WorkloadRandom) -> Range<usize> {
        let len = self.sizes.choose(key, random);
        let start =
            if self.varied { random.below((self.pool.len() - len) as u64 + 1) as usize } else { 0 };
        start..start + len
    }

    #[inline]
    pub(super) fn bytes(&self, range: Range<usize>) -> &[u8] {
        &self.pool[range]
    }
}

impl Sizes {
    pub fn max(&self) -> usize {
        match self {
            Self::Fixed(len) => *len,
            Self::Range { max, .. } | Self::ByKey { max, .. } => *max,
            Self::Weighted(sizes) => sizes.iter().map(|(len, _)| *len).max().unwrap_or(0),
        }
    }

    #[inline]
    fn choose(&self, key: u64, random: &mut WorkloadRandom) -> usize {
        match self {
            Self::Fixed(len) => *len,
            Self::Range { min, max } => min + random.below((max - min) as u64 + 1) as usize,
            Self::Weighted(sizes) => {
                let total = sizes.iter().map(|(_, weight)| weight).sum();
                let mut at = random.below(total);
                for (len, weight) in sizes {
                    if at < *weight {
                        return *len;
                    }
                    at -= weight;
                }
                0
            }
            Self::ByKey { min, max, low, count } => {
                let steps = u128::from(count.saturating_sub(1).max(1));
                let step = u128::from(key.saturating_sub(*low)).min(steps);
                min + ((max - min) as u128 * step / steps) as usize
            }
        }
    }
}

/// Random values start anywhere in the pool, so it is longer than the longest of them.
const POOL_SPARE: usize = 1024;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_keep_their_bounds() {
        let mut random = WorkloadRandom::new(1);
        let weighted = Sizes::Weighted(vec![(10, 1), (20, 3)]);
        let twenties = (0..4000).filter(|_| weighted.choose(0, &mut random) == 20).count();
        assert!((2800..3200).contains(&twenties), "{twenties}");
        let range = Sizes::Range { min: 3, max: 5 };
        assert!((0..100).all(|_| (3..=5).contains(&range.choose(0, &mut random))));
        let by_key = Sizes::ByKey { min: 10, max: 110, low: 1, count: 101 };
        let mut sizes = [1, 51, 101, 500].map(|key| by_key.choose(key, &mut random));
        assert_eq!(sizes, [10, 60, 110, 110]);
        sizes.sort_unstable();
        let values = ValuePool::new(range, Content::Random, &mut random);
        for _ in 0..100 {
            let value = values.choose(0, &mut random);
            assert!((3..=5).contains(&values.bytes(value).len()));
        }
    }
}
