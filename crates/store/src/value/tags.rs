//! Tags: bytes of hashes that distinguish most of a few records.

/// How many tags are compared at once.
pub(crate) const GROUP: usize = 16;

/// The bits of the tags that equal `tag`.
#[inline(always)]
pub(crate) fn matches(tags: &[u8; GROUP], tag: u8) -> u32 {
    #[cfg(target_arch = "x86_64")]
    {
        use std::arch::x86_64::{
            _mm_cmpeq_epi8, _mm_loadu_si128, _mm_movemask_epi8, _mm_set1_epi8,
        };
        // SAFETY: the load reads the sixteen bytes of the group, at any alignment. All of these
        // need SSE2, which every x86-64 has.
        unsafe {
            let equal =
                _mm_cmpeq_epi8(_mm_loadu_si128(tags.as_ptr().cast()), _mm_set1_epi8(tag as i8));
            _mm_movemask_epi8(equal) as u32
        }
    }
    #[cfg(not(target_arch = "x86_64"))]
    (0..GROUP).fold(0, |bits, index| bits | u32::from(tags[index] == tag) << index)
}

/// Which of the first `count` bytes, at most 128, equal `tag`. Also reads bytes behind them, so
/// that no branch is needed for each group.
#[inline]
pub(crate) fn find_all(bytes: &[u8], count: usize, tag: u8) -> TagMatches {
    debug_assert!(count <= FOUND_MAX);
    let Some(bytes) = bytes.first_chunk::<FOUND_MAX>() else {
        let mut room = [0; FOUND_MAX];
        room[..count].copy_from_slice(&bytes[..count]);
        return find_all(&room, count, tag);
    };
    let (halves, _) = bytes.as_chunks::<{ FOUND_MAX / 2 }>();
    let half = |half: &[u8; FOUND_MAX / 2]| {
        let groups = half.as_chunks::<GROUP>().0;
        let bits = |at: usize| u64::from(matches(&groups[at], tag)) << (at * GROUP);
        bits(0) | bits(1) | bits(2) | bits(3)
    };
    let low = half(&halves[0]);
    if count <= FOUND_MAX / 2 {
        return TagMatches(u128::from(low & low_bits(count)));
    }
    let high = half(&halves[1]) & low_bits(count - FOUND_MAX / 2);
    TagMatches(u128::from(low) | u128::from(high) << (FOUND_MAX / 2))
}

const fn low_bits(count: usize) -> u64 {
    if count == 64 { u64::MAX } else { (1 << count) - 1 }
}

/// The indices of a tag, in ascending order.
#[derive(Clone, Copy)]
pub(crate) struct TagMatches(u128);

impl TagMatches {
    /// Whether there is exactly one.
    #[inline(always)]
    pub(crate) const fn is_one(self) -> bool {
        self.0.is_power_of_two()
    }
}

impl Iterator for TagMatches {
    type Item = usize;

    #[inline(always)]
    fn next(&mut self) -> Option<usize> {
        if self.0 == 0 {
            return None;
        }
        let index = self.0.trailing_zeros() as usize;
        self.0 &= self.0 - 1;
        Some(index)
    }
}

/// The most tags that are searched.
pub(crate) const FOUND_MAX: usize = u128::BITS as usize;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_are_found_whatever_the_length() {
        for (count, more) in (0..=128u8).flat_map(|count| [(count, 0), (count, 5), (count, 127)]) {
            let tags: Vec<u8> = (0..count + more).map(|at| at.wrapping_mul(7) % 5).collect();
            for tag in 0..6 {
                let found = find_all(&tags, count.into(), tag);
                let expected = tags[..count.into()].iter().enumerate();
                let expected = expected.filter(|(_, other)| **other == tag).map(|(at, _)| at);
                assert!(found.eq(expected.clone()));
                assert_eq!(found.is_one(), expected.count() == 1);
            }
        }
    }
}
