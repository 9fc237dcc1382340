//! Random choice among numbered elements.

use std::collections::HashSet;

use crate::base::random::Random;

/// Draws different numbers below `len` one by one, each with the same probability. If all are
/// wanted, they come in order.
pub(super) struct DistinctNumbers {
    len: usize,
    /// How many numbers are still to be drawn.
    left: usize,
    random: Random,
    way: Way,
}

enum Way {
    /// Goes through all numbers and takes each with the necessary probability. This is the next
    /// one.
    Walk(usize),
    /// Draws numbers. These were drawn before.
    Draw(HashSet<usize>),
}

impl DistinctNumbers {
    /// Draws `count` numbers, or all if there are fewer.
    pub(super) fn below(len: usize, count: usize, random: Random) -> Self {
        let way = match count > len / SPARSE {
            true => Way::Walk(0),
            false => Way::Draw(HashSet::new()),
        };
        Self { len, left: count.min(len), random, way }
    }
}

impl Iterator for DistinctNumbers {
    type Item = usize;

    fn next(&mut self) -> Option<usize> {
        if self.left == 0 {
            return None;
        }
        loop {
            let (number, is_taken) = match &mut self.way {
                Way::Walk(next) => {
                    let number = *next;
                    *next += 1;
                    (number, below(&mut self.random, self.len - number) < self.left)
                }
                Way::Draw(drawn) => {
                    let number = below(&mut self.random, self.len);
                    (number, drawn.insert(number))
                }
            };
            if is_taken {
                self.left -= 1;
                return Some(number);
            }
        }
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.left, Some(self.left))
    }
}

impl ExactSizeIterator for DistinctNumbers {}

/// Finds elements by their numbers. A small value has no index, so if many elements are wanted, the
/// places of all of them are found in one walk.
pub(super) struct Places<P>(Vec<P>);

impl<P: Copy> Places<P> {
    /// For `wanted` elements. `all` are the places of all elements, or none if there is an index.
    pub(super) fn new(wanted: usize, all: impl FnOnce() -> Vec<P>) -> Self {
        Self(if wanted < PLACED_MIN { Vec::new() } else { all() })
    }

    pub(super) fn get(&self, number: usize) -> Option<P> {
        self.0.get(number).copied()
    }
}

/// A random number below `bound`, which must not be 0.
#[inline]
pub(super) fn below(random: &mut Random, bound: usize) -> usize {
    ((u128::from(random.next_u64()) * bound as u128) >> 64) as usize
}

/// A walk to an element begins at the nearer end, and so takes a quarter of a walk over all of them
/// on average.
const PLACED_MIN: usize = 4;
/// If more than one of this many elements is wanted, the choice goes through all elements.
const SPARSE: usize = 3;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn choices_are_distinct_and_even() {
        let mut random = Random::new(99);
        for (len, count) in [(10, 0), (10, 2), (10, 7), (10, 10), (10, 20), (100, 3)] {
            let mut times = vec![0u32; len];
            for _ in 0..4000 {
                let chosen = DistinctNumbers::below(len, count, Random::new(random.next_u64()));
                let chosen: Vec<_> = chosen.collect();
                assert_eq!(chosen.len(), count.min(len));
                assert_eq!(chosen.iter().collect::<HashSet<_>>().len(), chosen.len());
                chosen.iter().for_each(|&number| times[number] += 1);
            }
            let expected = 4000.0 * count.min(len) as f64 / len as f64;
            for times in times {
                let off = (f64::from(times) - expected).abs();
                assert!(off <= 6.0 * expected.sqrt(), "{times} instead of {expected}");
            }
        }
    }
}
