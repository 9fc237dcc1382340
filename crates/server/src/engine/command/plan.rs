//! The plan of a command: the shards that it needs, in the order in which they are locked.

use bobbin_store::trim::{Trim, kept_max};
use bobbin_store::{KeyHash, SHARDS};

use super::KeyShape;
use super::call::Request;
use super::{Data, Flags, Key, Registered};

/// The plan of a command whose only key is argument 1.
#[inline(always)]
pub const fn lone_key(hash: KeyHash) -> [KeyHash; 2] {
    [KeyHash(0), hash]
}

/// The shards that a plan needs, and its keys' hashes.
#[derive(Default)]
pub struct ShardSet {
    shards: Vec<u16>,
    /// The hashes of the keys by argument, of all commands of the plan one after the other; see
    /// `Call::hashes`.
    pub hashes: Vec<KeyHash>,
    everything: bool,
}

impl ShardSet {
    pub fn clear(&mut self) {
        self.shards.clear();
        self.hashes.clear();
        self.everything = false;
    }

    /// Adds the keys of a queued command, whose arguments begin at `first_arg` among those of its
    /// transaction. If the arguments do not fit the key specification, it adds the keys that are
    /// there: the handler answers with an error before it looks at a key.
    pub fn add(
        &mut self,
        data: &Data,
        command: &'static Registered,
        args: &[&[u8]],
        first_arg: usize,
        first_hash: KeyHash,
    ) {
        self.everything |= is_about_everything(command, args)
            || command.has(Flags::WALKS)
            || command.has(Flags::RUNS_SCRIPT) && !data.runs_within_keys(command, args);
        match command.shape {
            KeyShape::None => {}
            KeyShape::First => {
                self.hashes.resize(first_arg + args.len(), KeyHash::default());
                self.hashes[first_arg + 1] = first_hash;
                self.shards.push(first_hash.shard() as u16);
            }
            KeyShape::Specified => {
                self.hashes.resize(first_arg + args.len(), KeyHash::default());
                command.key_positions(args, |at| {
                    let key = data.key(args[at]);
                    self.hashes[first_arg + at] = key.hash;
                    self.add_key(key);
                });
            }
        }
    }

    /// Adds the keys of a command that runs alone, and prefetches their shards. It repeats the loop
    /// of `add` so that the compiler inlines this one.
    pub fn add_alone(&mut self, data: &Data, command: &'static Registered, request: &Request<'_>) {
        let args = request.args;
        self.everything |= is_about_everything(command, args);
        self.hashes.resize(args.len(), KeyHash::default());
        command.key_positions(args, |at| {
            let key = if at == 1 && command.first_is_key {
                // The batch has hashed this key and prefetched its shard.
                Key { bytes: args[at], hash: request.first_hash }
            } else {
                let key = data.key(args[at]);
                data.keyspace().prefetch_shard(key.hash);
                key
            };
            self.hashes[at] = key.hash;
            self.add_key(key);
        });
    }

    pub fn add_key(&mut self, key: Key<'_>) {
        self.shards.push(key.hash.shard() as u16);
    }

    pub const fn add_everything(&mut self) {
        self.everything = true;
    }

    pub const fn needs_everything(&self) -> bool {
        self.everything
    }

    /// Forgets the last plan, and gives memory back that a rare one needed.
    pub fn rest(&mut self) {
        self.clear();
        self.shards.trim(kept_max::<u16>());
        self.hashes.trim(kept_max::<KeyHash>());
    }

    /// Takes the hashes of the keys, by argument. `give_back` returns their memory.
    pub fn take_hashes(&mut self) -> Vec<KeyHash> {
        std::mem::take(&mut self.hashes)
    }

    pub fn give_back(&mut self, hashes: Vec<KeyHash>) {
        self.hashes = hashes;
    }

    /// Locks all shards of the plan and unlocks all others. Returns `false`, with nothing locked,
    /// if one of them is reserved.
    #[must_use]
    pub fn hold(&mut self, data: &mut Data) -> bool {
        sort(&mut self.shards);
        self.shards.dedup();
        match self.shards[..] {
            _ if self.everything => data.hold_gate(),
            [] => {
                data.release();
                true
            }
            [shard] => data.hold_one(usize::from(shard)),
            _ => data.hold_many(self.shards.iter().copied().map(usize::from)),
        }
    }

    /// Prefetches the buckets of the keys, unless there are very many: `Call::prefetch_after`
    /// prefetches those a few at a time.
    pub fn prefetch_buckets(&self, data: &Data) {
        if self.hashes.len() > PREFETCHED_MAX {
            return;
        }
        self.keyed().for_each(|hash| data.keyspace().prefetch_bucket(hash));
    }

    /// Prefetches the entries of the keys, unless there are very many. Their shards are locked.
    pub fn prefetch_entries(&self, data: &mut Data, database: u32, writes: bool) {
        if !data.holds_all() && self.hashes.len() <= PREFETCHED_MAX {
            self.keyed().for_each(|hash| data.prefetch(database, hash, writes));
        }
    }

    fn keyed(&self) -> impl Iterator<Item = KeyHash> {
        self.hashes.iter().copied().filter(|&hash| hash != KeyHash::default())
    }
}

/// The most words of a command whose keys are prefetched together. The first of more keys would
/// have left the caches before they are looked at.
pub(super) const PREFETCHED_MAX: usize = 2048;
/// How many words before a key its entry is prefetched in that case. It is even, for words in
/// pairs.
pub(super) const PREFETCH_AHEAD: usize = 16;

/// Sorts shards. The processor cannot predict the branches of a sort, and each wrong guess costs as
/// much as some fifty instructions. So a few shards are sorted without branches: each shard goes to
/// the place that is the number of smaller ones.
fn sort(shards: &mut [u16]) {
    const FEW: usize = 16;
    const _: () = assert!(SHARDS * FEW <= 1 << u16::BITS);
    if !(3..=FEW).contains(&shards.len()) {
        shards.sort_unstable();
        return;
    }
    // Each number has its index in the low bits, so that no two are equal. The padding is larger
    // than all of them.
    let mut numbered = [u16::MAX; FEW];
    for (at, (numbered, shard)) in numbered.iter_mut().zip(&*shards).enumerate() {
        *numbered = shard * FEW as u16 + at as u16;
    }
    let mut sorted = [0; FEW];
    for number in &numbered[..shards.len()] {
        let smaller: u16 = numbered.iter().map(|other| u16::from(other < number)).sum();
        sorted[usize::from(smaller) % FEW] = number / FEW as u16;
    }
    shards.copy_from_slice(&sorted[..shards.len()]);
}

pub fn is_about_everything(command: &Registered, args: &[&[u8]]) -> bool {
    command.has(Flags::GATE) || command.row.gate_when.is_some_and(|condition| condition(args))
}

/// Locks the shards of these keys, or everything, and unlocks all others. Returns `false` if one of
/// them is reserved.
#[must_use]
pub fn hold_keys(data: &mut Data, keys: &[&[u8]], everything: bool) -> bool {
    let mut shards = std::mem::take(&mut data.shard_set);
    shards.clear();
    shards.everything = everything;
    if !everything {
        keys.iter().for_each(|key| shards.add_key(data.key(key)));
    }
    let held = shards.hold(data);
    data.shard_set = shards;
    held
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shards_are_sorted_however_many_there_are() {
        for len in 0..40_usize {
            for step in [0, 1, 7, 1000, SHARDS - 1] {
                let shard = |at: usize| ((at + 3) * step % SHARDS) as u16;
                let mut shards: Vec<u16> = (0..len).map(shard).collect();
                let mut sorted = shards.clone();
                sorted.sort_unstable();
                sort(&mut shards);
                assert_eq!(shards, sorted, "{len} in steps of {step}");
            }
        }
    }
}
