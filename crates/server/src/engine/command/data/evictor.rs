//! What a thread remembers between evictions.

use bobbin_store::Hash;

use crate::config::MaxmemoryPolicy;

/// Candidates that are remembered between evictions.
pub const POOL: usize = 16;

/// What came of making room.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Room {
    /// Memory is below the limit.
    Enough,
    /// Keys are being evicted, and more will be: writing may go on.
    Soon,
    /// What can be evicted belongs to paused scripts: writing has to wait for them.
    Reserved,
    /// Nothing can be evicted.
    None,
}

/// A worker's candidates, the best last.
#[derive(Default)]
pub struct Evictor {
    pub pool: Vec<Candidate>,
    /// Where to go on walking when sampling finds nothing.
    pub cursor: usize,
    /// The last walk over all shards found nothing to evict.
    pub failure: Option<Walked>,
}

/// A walk over all shards that found nothing to evict. It is not repeated for each command.
pub struct Walked {
    pub room: Room,
    pub policy: MaxmemoryPolicy,
    /// `Scripts::turns` at that time. It is another when a script gives its keys back.
    pub turns: u64,
    /// In ticks: when to walk again, as other workers may have made keys evictable.
    pub until: u64,
}

pub struct Candidate {
    /// The higher, the sooner it goes. Time alone does not lower it: see `score`.
    pub score: u64,
    pub database: u32,
    pub hash: Hash,
    pub key: Box<[u8]>,
}

impl Evictor {
    /// Keeps a key if the pool has room or it is better than the worst there.
    pub fn offer(&mut self, score: u64, database: u32, hash: Hash, key: &[u8]) {
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
