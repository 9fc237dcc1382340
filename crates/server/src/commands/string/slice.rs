//! Ranges of GETRANGE and BITCOUNT: both ends are included, and negative ones count from the end.

use std::ops::Range;

/// The part of `0..len` that a range names. `None`: it is empty.
pub(in crate::commands) fn slice(start: i64, end: i64, len: usize) -> Option<Range<usize>> {
    // Otherwise both ends would be moved to the first element.
    if start < 0 && end < 0 && start > end {
        return None;
    }
    clamp(start, end, len)
}

/// Does the same as `slice`, but moves a range that ends before it begins into `0..len` first: for
/// BITPOS, `-100 -200` means the first element.
pub(in crate::commands) fn clamp(start: i64, end: i64, len: usize) -> Option<Range<usize>> {
    // No string is longer than `isize::MAX`, even in bits.
    let len = len as i64;
    let from_end = |at: i64| if at < 0 { (len + at).max(0) } else { at };
    let (start, end) = (from_end(start), from_end(end).min(len - 1));
    (start <= end).then(|| start as usize..end as usize + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ends_are_inclusive_and_clamped() {
        assert_eq!(slice(0, -1, 5), Some(0..5));
        assert_eq!(slice(0, 0, 5), Some(0..1));
        assert_eq!(slice(-3, -2, 5), Some(2..4));
        assert_eq!(slice(2, 100, 5), Some(2..5));
        assert_eq!(slice(-100, 2, 5), Some(0..3));
        assert_eq!(slice(-100, -200, 5), None);
        assert_eq!(clamp(-100, -200, 5), Some(0..1));
        assert_eq!(slice(3, 2, 5), None);
        assert_eq!(slice(5, 9, 5), None);
        assert_eq!(slice(0, -1, 0), None);
        assert_eq!(slice(0, 0, 0), None);
        assert_eq!(slice(i64::MIN, i64::MAX, 5), Some(0..5));
        assert_eq!(slice(i64::MAX, i64::MIN, 5), None);
        assert_eq!(slice(i64::MIN, i64::MIN, 5), Some(0..1));
    }
}
