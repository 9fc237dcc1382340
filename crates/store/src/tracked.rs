//! Who has read which keys and keeps a copy of what they held: the readers of client-side caching, by number.
//!
//! A key counts by its name alone, whatever the database: a copy does not say where it is from either.

use std::collections::HashMap;

/// The keys of a shard that readers keep copies of.
#[derive(Default)]
pub struct TrackedKeys {
    readers: HashMap<Box<[u8]>, Vec<u64>>,
    /// Of all keys together.
    items: usize,
}

/// A list is looked through for readers that are gone when it is about to grow beyond this, and then at each doubling.
const LOOKED_THROUGH_MIN: usize = 8;

impl TrackedKeys {
    pub fn is_empty(&self) -> bool {
        self.readers.is_empty()
    }

    /// How many keys.
    pub fn len(&self) -> usize {
        self.readers.len()
    }

    /// How many readers, each counted once for every key.
    pub const fn items(&self) -> usize {
        self.items
    }

    /// A reader has a copy of the key from now on; whether the key had none before. `is_there` tells which readers
    /// are still around.
    pub fn add(&mut self, key: &[u8], reader: u64, is_there: impl Fn(u64) -> bool) -> bool {
        let Some(readers) = self.readers.get_mut(key) else {
            self.readers.insert(key.into(), vec![reader]);
            self.items += 1;
            return true;
        };
        if readers.contains(&reader) {
            return false;
        }
        if readers.len() == readers.capacity() && readers.len() >= LOOKED_THROUGH_MIN {
            let before = readers.len();
            readers.retain(|&reader| is_there(reader));
            self.items -= before - readers.len();
        }
        readers.push(reader);
        self.items += 1;
        false
    }

    /// The readers of a key, which know nothing of it any more.
    pub fn take(&mut self, key: &[u8]) -> Option<Vec<u64>> {
        let readers = self.readers.remove(key)?;
        self.items -= readers.len();
        if self.readers.is_empty() {
            self.readers = HashMap::new();
        }
        Some(readers)
    }

    /// Takes any keys out, at most so many, with their readers.
    pub fn take_some(&mut self, count: usize) -> Vec<(Box<[u8]>, Vec<u64>)> {
        let keys: Vec<Box<[u8]>> = self.readers.keys().take(count).cloned().collect();
        let take = |key: Box<[u8]>| self.take(&key).map(|readers| (key, readers));
        keys.into_iter().filter_map(take).collect()
    }

    pub fn clear(&mut self) {
        *self = Self::default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn readers_are_counted_once_for_each_key() {
        let mut keys = TrackedKeys::default();
        assert!(keys.add(b"a", 1, |_| true));
        assert!(!keys.add(b"a", 1, |_| true) && !keys.add(b"a", 2, |_| true));
        assert!(keys.add(b"b", 1, |_| true));
        assert_eq!((keys.len(), keys.items()), (2, 3));
        assert_eq!(keys.take(b"a"), Some(vec![1, 2]));
        assert_eq!((keys.take(b"a"), keys.items()), (None, 1));
        assert_eq!(keys.take_some(9), [(b"b"[..].into(), vec![1])]);
        assert!(keys.is_empty() && keys.items() == 0);
    }

    #[test]
    fn readers_that_are_gone_do_not_pile_up() {
        let mut keys = TrackedKeys::default();
        for reader in 0..10_000 {
            keys.add(b"a", reader, |other| other + 5 > reader);
        }
        assert!(keys.items() <= 16, "{}", keys.items());
        assert!(keys.take(b"a").is_some_and(|readers| readers.contains(&9_999)));
        assert_eq!(keys.items(), 0);
    }
}
