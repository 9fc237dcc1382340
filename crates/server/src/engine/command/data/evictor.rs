//! What a thread remembers between evictions.

use bobbin_store::KeyHash;

use crate::base::random::{Random, likely_max};
use crate::config::MaxmemoryPolicy;

/// The number of candidates that are remembered.
pub const POOL: usize = 16;

/// The outcome of an attempt to free memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Room {
    /// Memory is below the limit.
    Enough,
    /// Keys are being evicted, and more will be, so writes may go on.
    Soon,
    /// The keys that could be evicted are reserved by paused scripts, so writes have to wait for
    /// those.
    Reserved,
    /// Nothing can be evicted.
    None,
}

/// A worker's candidates; the best is last.
#[derive(Default)]
pub struct Evictor {
    pub pool: Vec<Candidate>,
    /// Of the shards from which keys are drawn at random.
    pub mean_keys: MeanKeys,
    /// Where to continue walking when sampling finds nothing.
    pub cursor: usize,
    /// The last walk over all shards, if it found nothing to evict.
    pub failure: Option<Walked>,
}

/// How many keys a shard has: a mean of those that were looked at lately.
#[derive(Clone, Copy, Default)]
pub struct MeanKeys(f32);

/// A walk over all shards that found nothing to evict. It is not repeated for each command.
pub struct Walked {
    pub room: Room,
    pub policy: MaxmemoryPolicy,
    /// `Scripts::releases` at that time. It changes when a script gives up its keys.
    pub releases: u64,
    /// When to walk again, in ticks, as other workers may have made keys evictable.
    pub until: u64,
}

pub struct Candidate {
    /// The candidate with the highest score is evicted first. Time alone does not lower a score:
    /// see `score`.
    pub score: u64,
    pub database: u32,
    pub hash: KeyHash,
    pub key: Box<[u8]>,
}

impl MeanKeys {
    /// Draws one of a shard's keys, or none, so that a key of any shard has the same chance.
    pub fn draw(&mut self, keys: usize, random: &mut Random) -> Option<usize> {
        self.0 += (keys as f32 - self.0) * Self::WEIGHT;
        let drawn = random.below(likely_max(self.0) as u32) as usize;
        (drawn < keys).then_some(drawn)
    }

    /// How much one shard counts.
    const WEIGHT: f32 = 1.0 / 256.0;
}

impl Evictor {
    /// Adds a key if the pool has room or the key's score is above the lowest one.
    pub fn offer(&mut self, score: u64, database: u32, hash: KeyHash, key: &[u8]) {
        if self.pool.len() == POOL && score <= self.pool[0].score {
            return;
        }
        if self.pool.iter().any(|known| known.hash == hash && known.database == database) {
            return;
        }
        if self.pool.len() == POOL {
            self.pool.remove(0);
        }
        let at = self.pool.partition_point(|known| known.score < score);
        self.pool.insert(at, Candidate { score, database, hash, key: key.into() });
    }
}
