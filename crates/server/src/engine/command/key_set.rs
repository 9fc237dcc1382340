//! A set of keys that finds repeated ones.

use std::collections::HashSet;
use std::hash::{BuildHasherDefault, Hasher};

use super::Key;

/// A set of keys. A few keys are searched. More of them, and a command may have a million, are
/// found by the hash that each key has already.
#[derive(Default)]
pub struct KeySet<'a> {
    few: Vec<Key<'a>>,
    many: HashSet<Key<'a>, BuildHasherDefault<HashOfKey>>,
}

/// Up to this many keys are searched.
const FEW: usize = 16;

impl<'a> KeySet<'a> {
    /// Adds a key; returns whether it is new.
    pub fn insert(&mut self, key: Key<'a>) -> bool {
        if self.many.is_empty() {
            if self.few.contains(&key) {
                return false;
            }
            if self.few.len() < FEW {
                self.few.push(key);
                return true;
            }
            self.many.extend(self.few.drain(..));
        }
        self.many.insert(key)
    }
}

/// The keys without those that are there before, in their order.
pub fn distinct(mut keys: Vec<Key<'_>>) -> Vec<Key<'_>> {
    if keys.len() <= FEW {
        let mut next = 0;
        while let Some(key) = keys.get(next) {
            if keys[..next].contains(key) {
                keys.remove(next);
            } else {
                next += 1;
            }
        }
    } else {
        let mut seen = KeySet::default();
        keys.retain(|&key| seen.insert(key));
    }
    keys
}

/// Takes the hash of a key as it is.
#[derive(Default)]
struct HashOfKey(u64);

impl Hasher for HashOfKey {
    fn write(&mut self, bytes: &[u8]) {
        debug_assert!(false, "only hashes of keys are hashed: {bytes:?}");
    }

    fn write_u64(&mut self, hash: u64) {
        // The set uses the highest and the lowest bits, which are alike for keys of one shard and
        // of one tag.
        self.0 = hash.rotate_left(HALF);
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

const HALF: u32 = u64::BITS / 2;

#[cfg(test)]
mod tests {
    use bobbin_store::KeyHash;

    use super::*;

    #[test]
    fn each_key_is_new_once() {
        let names: Vec<Vec<u8>> = (0..100u8).map(|number| vec![number % 50]).collect();
        // Keys of the same hash are told apart by their names.
        let key = |name| Key { bytes: name, hash: KeyHash(u64::from(name[0] / 2)) };
        let mut keys = KeySet::default();
        for (at, name) in names.iter().enumerate() {
            assert_eq!(keys.insert(key(name)), at < 50, "{at}");
        }
        for (count, distinct_keys) in [(100, 50), (60, 50), (16, 16), (1, 1), (0, 0)] {
            let keys = distinct(names[..count].iter().map(|name| key(name)).collect());
            let names_of: Vec<_> = keys.iter().map(|key| key.bytes).collect();
            assert_eq!(names_of, &names[..distinct_keys]);
        }
        let few = [0, 1, 0, 2, 2, 1].map(|at: usize| key(&names[at]));
        let few: Vec<_> = distinct(few.to_vec()).iter().map(|key| key.bytes[0]).collect();
        assert_eq!(few, [0, 1, 2]);
    }
}
