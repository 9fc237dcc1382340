//! Remembers which clients keep copies of which keys, for client-side caching. Readers are clients,
//! by number.
//!
//! A key is known by its name alone, in all databases: a client's copy does not say its database
//! either.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::hash::{BuildHasherDefault, Hasher};

use crate::hash::KeyHash;
use crate::trim::Trim;

/// The keys of a shard that readers keep copies of.
#[derive(Default)]
pub struct TrackedKeys {
    /// By the key's hash, which every command computes anyway.
    keys: HashMap<u64, Tracked, BuildHasherDefault<Mixed>>,
    /// Keys whose hash another key in `keys` has.
    others: HashMap<Box<[u8]>, Vec<u64>>,
    /// The number of readers of all keys together.
    items: usize,
}

struct Tracked {
    key: Box<[u8]>,
    readers: Vec<u64>,
}

/// Hashes a hash: the hashes of one shard have bits in common, so they are mixed.
#[derive(Default)]
struct Mixed(u64);

/// When a list is about to grow beyond this, and then at each doubling, readers that are gone are
/// removed from it.
const LOOKED_THROUGH_MIN: usize = 8;
/// An odd number with about as many ones as zeros: 2^64 over the golden ratio.
const MIXER: u128 = 0x9e37_79b9_7f4a_7c15;

impl TrackedKeys {
    pub fn is_empty(&self) -> bool {
        self.keys.is_empty() && self.others.is_empty()
    }

    /// How many keys.
    pub fn len(&self) -> usize {
        self.keys.len() + self.others.len()
    }

    /// How many readers there are, each counted once for every key.
    pub const fn items(&self) -> usize {
        self.items
    }

    /// Notes that a reader keeps a copy of the key. Returns whether the key had none before.
    /// `is_there` says which readers still exist.
    pub fn add(
        &mut self,
        key: &[u8],
        hash: KeyHash,
        reader: u64,
        is_there: impl Fn(u64) -> bool,
    ) -> bool {
        let readers = match self.keys.entry(hash.0) {
            // Each key is in only one of the two maps.
            _ if self.others.contains_key(key) => self.others.entry(key.into()).or_default(),
            Entry::Vacant(place) => {
                place.insert(Tracked { key: key.into(), readers: vec![reader] });
                self.items += 1;
                return true;
            }
            Entry::Occupied(found) if *found.get().key == *key => &mut found.into_mut().readers,
            Entry::Occupied(_) => self.others.entry(key.into()).or_default(),
        };
        if readers.contains(&reader) {
            return false;
        }
        let before = readers.len();
        if before == readers.capacity() && before >= LOOKED_THROUGH_MIN {
            readers.retain(|&reader| is_there(reader));
            self.items -= before - readers.len();
        }
        readers.push(reader);
        self.items += 1;
        before == 0
    }

    /// Removes a key and returns its readers.
    pub fn take(&mut self, key: &[u8], hash: KeyHash) -> Option<Vec<u64>> {
        let readers = match self.keys.entry(hash.0) {
            Entry::Occupied(found) if *found.get().key == *key => found.remove().readers,
            _ => self.others.remove(key)?,
        };
        self.items -= readers.len();
        self.trim();
        Some(readers)
    }

    /// Removes at most `count` keys, in any order, with their readers.
    pub fn take_some(&mut self, count: usize) -> Vec<(Box<[u8]>, Vec<u64>)> {
        let hashes: Vec<u64> = self.keys.keys().take(count).copied().collect();
        let of_hash = hashes.iter().filter_map(|hash| self.keys.remove(hash));
        let mut taken: Vec<_> = of_hash.map(|tracked| (tracked.key, tracked.readers)).collect();
        let more: Vec<Box<[u8]>> = self.others.keys().take(count - taken.len()).cloned().collect();
        taken.extend(more.into_iter().filter_map(|key| self.others.remove_entry(&key)));
        self.items -= taken.iter().map(|(_, readers)| readers.len()).sum::<usize>();
        self.trim();
        taken
    }

    /// Gives back memory that removed keys needed.
    fn trim(&mut self) {
        self.keys.trim(0);
        self.others.trim(0);
    }

    pub fn clear(&mut self) {
        *self = Self::default();
    }
}

impl Hasher for Mixed {
    fn write(&mut self, _: &[u8]) {
        unreachable!("hashes are numbers");
    }

    fn write_u64(&mut self, hash: u64) {
        let product = u128::from(hash) * MIXER;
        self.0 = product as u64 ^ (product >> 64) as u64;
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: KeyHash = KeyHash(7);
    const B: KeyHash = KeyHash(8);

    #[test]
    fn readers_are_counted_once_for_each_key() {
        let mut keys = TrackedKeys::default();
        assert!(keys.add(b"a", A, 1, |_| true));
        assert!(!keys.add(b"a", A, 1, |_| true) && !keys.add(b"a", A, 2, |_| true));
        assert!(keys.add(b"b", B, 1, |_| true));
        assert_eq!((keys.len(), keys.items()), (2, 3));
        assert_eq!(keys.take(b"a", A), Some(vec![1, 2]));
        assert_eq!((keys.take(b"a", A), keys.items()), (None, 1));
        assert_eq!(keys.take_some(9), [(b"b"[..].into(), vec![1])]);
        assert!(keys.is_empty() && keys.items() == 0);
    }

    #[test]
    fn keys_of_the_same_hash_are_told_apart() {
        let mut keys = TrackedKeys::default();
        assert!(keys.add(b"a", A, 1, |_| true) && keys.add(b"b", A, 2, |_| true));
        assert!(!keys.add(b"b", A, 3, |_| true));
        assert_eq!((keys.len(), keys.items()), (2, 3));
        assert_eq!(keys.take(b"a", A), Some(vec![1]));
        // Another key may take its place while a third one is still in `others`.
        assert!(!keys.add(b"b", A, 5, |_| true));
        assert!(keys.add(b"c", A, 4, |_| true));
        assert_eq!(keys.take(b"b", A), Some(vec![2, 3, 5]));
        assert_eq!(keys.take_some(1), [(b"c"[..].into(), vec![4])]);
        assert!(keys.is_empty() && keys.items() == 0);
    }

    #[test]
    fn the_memory_of_keys_that_were_tracked_is_given_back() {
        // Every second key has the hash of the one before it.
        let hash = |number: usize| KeyHash(number as u64 / 2);
        let names: Vec<String> = (0..1000).map(|number| number.to_string()).collect();
        let filled = || {
            let mut keys = TrackedKeys::default();
            for (number, name) in names.iter().enumerate() {
                keys.add(name.as_bytes(), hash(number), 1, |_| true);
            }
            assert!(keys.keys.capacity() >= 500 && keys.others.capacity() >= 500);
            keys
        };
        let (mut one_by_one, mut at_once) = (filled(), filled());
        for (number, name) in names.iter().enumerate().skip(2) {
            assert!(one_by_one.take(name.as_bytes(), hash(number)).is_some());
        }
        at_once.take_some(998);
        for keys in [&mut one_by_one, &mut at_once] {
            assert_eq!((keys.len(), keys.items()), (2, 2));
            let capacities = [keys.keys.capacity(), keys.others.capacity()];
            assert!(capacities.iter().all(|&capacity| capacity < 50), "{capacities:?}");
            assert_eq!(keys.take_some(2).len(), 2);
            assert_eq!((keys.keys.capacity(), keys.others.capacity()), (0, 0));
        }
    }

    #[test]
    fn readers_that_are_gone_do_not_pile_up() {
        let mut keys = TrackedKeys::default();
        let last = if cfg!(miri) { 99 } else { 9_999 };
        for reader in 0..=last {
            keys.add(b"a", A, reader, |other| other + 5 > reader);
        }
        assert!(keys.items() <= 16, "{}", keys.items());
        assert!(keys.take(b"a", A).is_some_and(|readers| readers.contains(&last)));
        assert_eq!(keys.items(), 0);
    }
}
