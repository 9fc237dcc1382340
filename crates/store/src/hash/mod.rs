//! The seeded hash of a key, and which of its bits do what.
//!
//! ```text
//! 63        52 51                              20 19       13 12          0
//! [  shard   ][      position in the table       ][  unused  ][    tag     ]
//! ```
//! The three parts share no bit. So the bits that choose the shard do not matter inside its table,
//! and a tag tells keys of one bucket apart. The database is not hashed, so a key has the same
//! shard in all databases. One of the unused bits is always set, so no key's hash equals
//! [`KeyHash::default`].

#[cfg(target_arch = "x86_64")]
mod aes;
mod sip;

/// log2 of the number of shards. Shuttle explores only a few shards, and Miri takes long for each.
pub const SHARD_BITS: u32 = if cfg!(shuttle) {
    2
} else if cfg!(miri) {
    5
} else {
    12
};
/// log2 of the number of different tags.
pub const TAG_BITS: u32 = 13;
const POSITION_SHIFT: u32 = 64 - SHARD_BITS - 32;
/// Set in the hash of every key.
const PRESENT: u64 = 1 << TAG_BITS;

/// A key's hash, divided into the parts that the keyspace uses. The default is no key's hash.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash, Default)]
pub struct KeyHash(pub u64);

impl KeyHash {
    /// Which shard the key belongs to.
    #[inline(always)]
    pub const fn shard(self) -> usize {
        (self.0 >> (64 - SHARD_BITS)) as usize
    }

    /// The key's home in its shard's table, as a fraction of 2^32. Tables of any size keep their
    /// keys in the order of positions, which is also the order of SCAN.
    #[inline(always)]
    pub const fn position(self) -> u32 {
        (self.0 >> POSITION_SHIFT) as u32
    }

    /// The part of the hash that a slot keeps, to rule out most other keys without reading them.
    #[inline(always)]
    pub const fn tag(self) -> u16 {
        (self.0 & ((1 << TAG_BITS) - 1)) as u16
    }
}

/// The hash function of one keyspace. Without its key its results look random, even to a client
/// that sees the order of SCAN. So nobody can compute keys that collide; see
/// `docs/adr/0013-keyed-hashing.md`.
#[derive(Clone)]
pub struct Hasher(HashFunction);

/// Bytes of a hasher's key.
pub const KEY_LEN: usize = 32;

#[derive(Clone)]
#[allow(clippy::large_enum_variant, reason = "there are two or three hashers in a process")]
enum HashFunction {
    #[cfg(target_arch = "x86_64")]
    Aes(aes::AesKeys),
    Sip(sip::SipKeys),
    /// A function that a test gives.
    #[cfg(test)]
    Given(fn(&[u8]) -> u64),
}

impl Hasher {
    /// Makes a hasher. Equal keys give equal hashes on processors of one kind.
    pub fn with_key(key: &[u8; KEY_LEN]) -> Self {
        #[cfg(target_arch = "x86_64")]
        if let Some(keys) = aes::AesKeys::new(key) {
            return Self(HashFunction::Aes(keys));
        }
        Self(HashFunction::Sip(sip::SipKeys::new(key)))
    }

    /// A hasher that is not secret, for tests and for checks of files.
    pub fn new(seed: u64) -> Self {
        let mut key = [0; KEY_LEN];
        key[..8].copy_from_slice(&seed.to_le_bytes());
        Self::with_key(&key)
    }

    /// A hasher for tests of keys that collide.
    #[cfg(test)]
    pub(crate) fn given(hash: fn(&[u8]) -> u64) -> Self {
        Self(HashFunction::Given(hash))
    }

    #[inline(always)]
    pub fn hash(&self, key: &[u8]) -> KeyHash {
        let hash = match &self.0 {
            #[cfg(target_arch = "x86_64")]
            HashFunction::Aes(keys) => keys.hash(key),
            HashFunction::Sip(keys) => keys.hash(key),
            #[cfg(test)]
            HashFunction::Given(hash) => hash(key),
        };
        KeyHash(hash | PRESENT)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// How far the counts are from even, if `keys` keys are spread over that many classes: chi
    /// squared, as standard deviations from its mean.
    fn unevenness(counts: &[u32], keys: u32) -> f64 {
        let classes = counts.len() as f64;
        let expected = f64::from(keys) / classes;
        let squares = counts.iter().map(|&count| (f64::from(count) - expected).powi(2));
        (squares.sum::<f64>() / expected - (classes - 1.0)) / (2.0 * (classes - 1.0)).sqrt()
    }

    fn hashers() -> impl Iterator<Item = Hasher> {
        let sip = |seed| Hasher(HashFunction::Sip(sip::SipKeys::new(&[seed; KEY_LEN])));
        (1..=3).flat_map(move |seed| [Hasher::new(seed.into()), sip(seed)])
    }

    #[test]
    fn keys_in_a_row_are_spread_evenly() {
        const KEYS: u32 = if cfg!(miri) { 1 << 10 } else { 1 << 17 };
        const CLASSES: usize = 1 << 8;
        let shapes: [fn(u32) -> String; 3] = [
            |i| i.to_string(),
            |i| format!("key:{i:012}"),
            |i| format!("user:{{{i}}}:{:>40}", "x"),
        ];
        for (which, hasher) in hashers().enumerate() {
            for (shape, key) in shapes.iter().enumerate() {
                let mut counts = [[0; CLASSES]; 4];
                for i in 0..KEYS {
                    let hash = hasher.hash(key(i).as_bytes());
                    let parts = [
                        // The shard; under Miri there are fewer shards than classes.
                        (hash.0 >> 52) as usize,
                        hash.position() as usize >> 24,
                        hash.position() as usize,
                        hash.tag().into(),
                    ];
                    for (counts, part) in counts.iter_mut().zip(parts) {
                        counts[part % CLASSES] += 1;
                    }
                }
                for (part, counts) in counts.iter().enumerate() {
                    let unevenness = unevenness(counts, KEYS);
                    assert!(unevenness.abs() < 5.0, "{which} {shape} {part}: {unevenness}");
                }
            }
        }
    }

    /// Each bit of a key changes about half of the hash's bits, and no length is a prefix of
    /// another.
    #[test]
    fn every_bit_and_the_length_count() {
        for hasher in hashers() {
            for len in 1..if cfg!(miri) { 6 } else { 70 } {
                let key = vec![0; len];
                let hash = hasher.hash(&key).0;
                assert_ne!(hash, hasher.hash(&key[1..]).0, "{len}");
                for bit in 0..8 * len {
                    let mut other = key.clone();
                    other[bit / 8] ^= 1 << (bit % 8);
                    let changed = (hash ^ hasher.hash(&other).0).count_ones();
                    assert!((8..=56).contains(&changed), "{len} bytes, bit {bit}: {changed}");
                }
            }
        }
    }
}
