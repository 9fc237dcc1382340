//! The seeded hash of a key, and which of its bits do what.
//!
//! ```text
//! 63        52 51                              20 19       13 12          0
//! [  shard   ][      position in the table       ][  unused  ][    tag     ]
//! ```
//! The three parts share no bit: bits that chose the shard say nothing inside its table, and a tag
//! tells apart keys of one bucket. The database is not hashed, so a key has the same shard in all.
//! Of the unused bits one is always set, so that no key's hash is [`Hash::default`].

use rapidhash::v3::{RapidSecrets, rapidhash_v3_micro_inline};

/// log2 of the number of shards. Shuttle explores what few of them do.
pub const SHARD_BITS: u32 = if cfg!(shuttle) { 2 } else { 12 };
/// log2 of the number of different tags.
pub const TAG_BITS: u32 = 13;
const POSITION_SHIFT: u32 = 64 - SHARD_BITS - 32;
/// Set in the hash of every key.
const PRESENT: u64 = 1 << TAG_BITS;

/// A key's hash, cut into the parts that the keyspace uses. The default is no key's.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash, Default)]
pub struct Hash(pub u64);

impl Hash {
    /// Which shard the key belongs to.
    #[inline(always)]
    pub const fn shard(self) -> usize {
        (self.0 >> (64 - SHARD_BITS)) as usize
    }

    /// Where in its shard's table the key has its home, as a fraction of 2^32. Tables of any size
    /// keep their keys in the order of positions, which is also the order of SCAN.
    #[inline(always)]
    pub const fn position(self) -> u32 {
        (self.0 >> POSITION_SHIFT) as u32
    }

    /// What a slot keeps of the hash to rule out most other keys without looking at them.
    #[inline(always)]
    pub const fn tag(self) -> u16 {
        (self.0 & ((1 << TAG_BITS) - 1)) as u16
    }
}

/// The hash function of one keyspace. Its seed is random, so that nobody can prepare keys that
/// collide.
pub struct Hasher {
    secrets: RapidSecrets,
}

impl Hasher {
    /// The same seed gives the same hashes.
    pub const fn new(seed: u64) -> Self {
        Self { secrets: RapidSecrets::seed(seed) }
    }

    #[inline(always)]
    pub const fn hash(&self, key: &[u8]) -> Hash {
        Hash(rapidhash_v3_micro_inline::<true, true>(key, &self.secrets) | PRESENT)
    }
}
