//! Collections that live long give back the memory that a rare, large use needed.

use std::collections::{HashMap, VecDeque};
use std::hash::{BuildHasher, Hash};

/// A collection whose memory can shrink.
pub trait Trim {
    /// Gives memory back if more than three quarters of it are unused, but for `kept_max` elements.
    /// A caller that trims after each removal copies no more elements than it removes.
    fn trim(&mut self, kept_max: usize);
}

/// How many elements of this type a buffer keeps memory for when it is empty.
pub const fn kept_max<T>() -> usize {
    KEPT_BYTES / size_of::<T>()
}

/// What to shrink to, if that is worth the copy.
#[inline(always)]
const fn smaller(len: usize, capacity: usize, kept_max: usize) -> Option<usize> {
    if capacity <= kept_max || 4 * len >= capacity {
        return None;
    }
    Some(if 2 * len > kept_max { 2 * len } else { kept_max })
}

impl<T> Trim for Vec<T> {
    #[inline]
    fn trim(&mut self, kept_max: usize) {
        if let Some(capacity) = smaller(self.len(), self.capacity(), kept_max) {
            self.shrink_to(capacity);
        }
    }
}

impl<T> Trim for VecDeque<T> {
    #[inline]
    fn trim(&mut self, kept_max: usize) {
        if let Some(capacity) = smaller(self.len(), self.capacity(), kept_max) {
            self.shrink_to(capacity);
        }
    }
}

impl<K: Eq + Hash, V, S: BuildHasher> Trim for HashMap<K, V, S> {
    #[inline]
    fn trim(&mut self, kept_max: usize) {
        // A map may have twice the capacity that it was asked for.
        if let Some(capacity) = smaller(self.len(), self.capacity() / 2, kept_max) {
            self.shrink_to(capacity);
        }
    }
}

/// Bytes that an empty buffer keeps.
const KEPT_BYTES: usize = 64 * 1024;
/// The elements that small maps and lists keep memory for, of which there are many.
pub const FEW: usize = 8;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_kept_follows_what_is_used() {
        let mut list: Vec<u64> = (0..100_000).collect();
        list.trim(10);
        assert!(list.capacity() >= 100_000);
        list.truncate(1000);
        list.trim(10);
        assert!((2000..4000).contains(&list.capacity()), "{}", list.capacity());
        list.clear();
        list.trim(10);
        assert_eq!((list.capacity(), list.len()), (10, 0));

        let mut map: HashMap<u64, u64> = (0..100_000).map(|key| (key, key)).collect();
        (0..99_990).for_each(|key| _ = map.remove(&key));
        map.trim(FEW);
        assert!(map.capacity() < 100 && map.len() == 10, "{}", map.capacity());
        map.clear();
        map.trim(0);
        assert_eq!(map.capacity(), 0);
        let mut queue: VecDeque<u64> = (0..100_000).collect();
        queue.drain(..99_990);
        queue.trim(FEW);
        assert!(queue.capacity() < 100 && queue.len() == 10, "{}", queue.capacity());
    }
}
