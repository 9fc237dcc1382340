//! A look at some keys of each shard: of which types they are, and which are large. A walk over all
//! keys would cost a busy server too much; but the looks go on while somebody watches, each
//! elsewhere, and what was large is remembered for a while.

use std::time::{Duration, Instant};

use bobbin_store::value::Kind;
use bobbin_store::{EntryRef, SHARDS};

use crate::engine::command::Data;

/// What a look has seen, and what the looks before have.
#[derive(Clone, Default)]
pub(super) struct KeySample {
    /// By type, in the order of [`Kind::ALL`].
    pub kinds: [KindFigures; Kind::ALL.len()],
    /// The largest first.
    pub largest: Vec<LargeKey>,
    /// When the last look was; `None`: there was none yet.
    pub at: Option<Instant>,
}

/// The keys of one type that a look has met.
#[derive(Clone, Copy, Default)]
pub(super) struct KindFigures {
    pub keys: u64,
    pub bytes: u64,
}

#[derive(Clone)]
pub(super) struct LargeKey {
    pub database: u32,
    pub key: Box<[u8]>,
    pub kind: Kind,
    /// As MEMORY USAGE measures.
    pub bytes: usize,
    /// When it was last met.
    pub seen: Instant,
}

impl KeySample {
    /// Looks again, one shard at a time.
    pub(super) fn look(&mut self, data: &mut Data) {
        let now = Instant::now();
        self.kinds = Default::default();
        self.largest.retain(|large| now.duration_since(large.seen) < REMEMBERED);
        let start = data.random.next_u32() as usize;
        let mut left = KEYS_MAX;
        for offset in 0..SHARDS {
            let random = data.random.next_u32();
            data.visit((start + offset) % SHARDS, |shard| {
                for number in 0..shard.databases() {
                    let Some(database) = shard.database(number) else { continue };
                    // All of a bucket: of a small table there is no other.
                    for entry in database.table().sample(random).take(left) {
                        left -= 1;
                        self.note(number, &entry, now);
                    }
                }
            });
        }
        self.at = Some(now);
    }

    fn note(&mut self, database: u32, entry: &EntryRef<'_>, now: Instant) {
        let (key, kind, bytes) = (entry.key(), entry.kind(), entry.memory());
        if let Some(at) = Kind::ALL.iter().position(|known| *known == kind) {
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

/// How many keys a look meets at most: it begins at another shard each time.
const KEYS_MAX: usize = 16_384;
const LARGEST_MAX: usize = 10;
/// Longer keys are passed over, as by HOTKEYS.
const KEY_LEN_MAX: usize = 1024;
/// How long a large key is told of that no look has met again. It may be gone.
const REMEMBERED: Duration = Duration::from_secs(600);
