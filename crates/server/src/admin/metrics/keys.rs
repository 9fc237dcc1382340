//! Samples keys of each shard: how many there are of each type, and which are large. A walk over
//! all keys would cost a busy server too much. But while somebody watches, further samples are
//! taken elsewhere, and large keys are remembered for a while.

use std::time::{Duration, Instant};

use bobbin_store::value::ValueType;
use bobbin_store::{EntryRef, SHARDS};

use crate::engine::command::Data;

/// The result of the last sample, and large keys of earlier ones.
#[derive(Clone, Default)]
pub(super) struct KeySample {
    /// By type, in the order of [`ValueType::ALL`].
    pub kinds: [KindFigures; ValueType::ALL.len()],
    /// The largest first.
    pub largest: Vec<LargeKey>,
    /// When the last sample was taken. `None`: not yet.
    pub at: Option<Instant>,
}

/// The keys of one type in a sample.
#[derive(Clone, Copy, Default)]
pub(super) struct KindFigures {
    pub keys: u64,
    pub bytes: u64,
}

#[derive(Clone)]
pub(super) struct LargeKey {
    pub database: u32,
    pub key: Box<[u8]>,
    pub kind: ValueType,
    /// The memory that MEMORY USAGE shows.
    pub bytes: usize,
    /// When a sample last had it.
    pub seen: Instant,
}

impl KeySample {
    /// Takes another sample, and locks one shard at a time. The thread has no turn.
    pub(super) fn look(&mut self, data: &mut Data) {
        let now = Instant::now();
        self.kinds = Default::default();
        self.largest.retain(|large| now.duration_since(large.seen) < REMEMBERED);
        let start = data.random.next_u32() as usize;
        let mut left = KEYS_MAX;
        let shards = (0..SHARDS).map(|offset| (start + offset) % SHARDS);
        data.each_in_turns(shards, |data, index| {
            let random = data.random.next_u32();
            data.visit(index, |shard| {
                for (number, database) in shard.used() {
                    // All entries of a bucket: a small table has no other.
                    for entry in database.table().sample(random).take(left) {
                        left -= 1;
                        self.note(number, &entry, now);
                    }
                }
            });
        });
        self.at = Some(now);
    }

    fn note(&mut self, database: u32, entry: &EntryRef<'_>, now: Instant) {
        let (key, kind, bytes) = (entry.key(), entry.value_type(), entry.memory());
        if let Some(at) = ValueType::ALL.iter().position(|known| *known == kind) {
            self.kinds[at].keys += 1;
            self.kinds[at].bytes += bytes as u64;
        }
        self.largest.retain(|large| large.database != database || *large.key != *key);
        let place = self.largest.partition_point(|large| large.bytes >= bytes);
        if place < LARGEST_MAX && key.len() <= KEY_LEN_MAX {
            let large = LargeKey { database, key: key.into(), kind, bytes, seen: now };
            self.largest.insert(place, large);
            self.largest.truncate(LARGEST_MAX);
        }
    }
}

/// The most keys of a sample. Each begins at another shard.
const KEYS_MAX: usize = 16_384;
const LARGEST_MAX: usize = 10;
/// Longer keys are ignored, as in HOTKEYS.
const KEY_LEN_MAX: usize = 1024;
/// How long a large key is shown after it was last sampled. It may be gone.
const REMEMBERED: Duration = Duration::from_secs(600);
