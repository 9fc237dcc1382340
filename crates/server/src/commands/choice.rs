//! Random choice among elements that are numbered.

use std::collections::HashSet;

use crate::base::random::Random;

/// `count` different numbers below `len`, equally random; all of them in order when there are no
/// more.
pub(super) fn distinct_below(len: usize, count: usize, random: &mut Random) -> Vec<usize> {
    if count >= len {
        return (0..len).collect();
    }
    if count > len / SPARSE {
        // Each number in turn is taken with the chance that it needs.
        let mut chosen = Vec::with_capacity(count);
        for number in 0..len {
            if below(random, len - number) < count - chosen.len() {
                chosen.push(number);
            }
        }
        return chosen;
    }
    let mut seen = HashSet::with_capacity(count);
    let mut chosen = Vec::with_capacity(count);
    while chosen.len() < count {
        let number = below(random, len);
        if seen.insert(number) {
            chosen.push(number);
        }
    }
    chosen
}

/// A random number below `bound`, which is not 0.
#[inline]
pub(super) fn below(random: &mut Random, bound: usize) -> usize {
    ((u128::from(random.next_u64()) * bound as u128) >> 64) as usize
}

/// When more than one in this many elements is wanted, the choice is made by going through all.
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
                let chosen = distinct_below(len, count, &mut random);
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
