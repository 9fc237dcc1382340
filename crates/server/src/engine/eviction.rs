//! Eviction: deletes keys when memory is over `maxmemory`.
//!
//! There is no list of all keys by use. Like Redis, each worker samples a few keys at random, keeps
//! the best candidates of all its samples in a small pool, and evicts the best one. The keys of a
//! bucket have nothing in common but a few bits of their hash. So the keys of a random bucket are a
//! random sample, which costs only one cache miss beside those for the entries. Keys of shards and
//! buckets with few keys are sampled more often, which matters only where the sample alone decides:
//! the policies that evict at random draw each key with the same probability.

use bobbin_store::shard::Database;
use bobbin_store::{AccessClock, EntryRef, SHARDS, Shard};

use crate::base::clock::ticks;
use crate::base::memory;
use crate::base::random::Random;
use crate::config::{Config, MaxmemoryPolicy};
use crate::engine::command::data::evictor::{Candidate, Evictor, POOL, Room, Walked};
use crate::engine::command::{Classes, Data, Key};
use crate::engine::lazyfree;
use crate::engine::server::Server;
use crate::engine::server::unsent::UnsentBytes;
use crate::engine::telemetry::latency::LatencyEvent;

/// How long one command, or one slice of the timer, may evict.
const EVICT_US: u64 = 500;
/// How long a worker relies on a walk that found nothing to evict.
const WALK_US: u64 = 2000;
/// The low bits of a score under LFU, which compare keys that are used equally often.
const LFU_TIME_BITS: u32 = 32;
/// The number of random shards that are looked at for one sample before shards are walked in order.
const TRIES_MAX: usize = 32;
/// How many keys of a table are drawn to find one with an expiry.
const DRAWS_MAX: usize = 64;
/// How many candidates one attempt to evict a key looks at. So it ends whatever their state.
const ROUNDS_MAX: usize = 4 * POOL;

/// Forgets that there was nothing to evict, as the next command may change that.
pub fn expect_change(data: &mut Data) {
    data.evictor.failure = None;
}

/// Whether the counted part of `used` bytes is within `limit`. The part that does not count is read
/// only if that matters, as other threads write it.
fn fits(used: usize, limit: usize, server: &Server) -> bool {
    used <= limit || used.saturating_sub(not_counted(server)) <= limit
}

/// Bytes in use that do not count towards `maxmemory`: memory that is about to be freed, what slow
/// replicas keep of the stream beyond the backlog, what waits for a slow disk, and messages on
/// their way to clients. Evicting keys would add to the last three. Copies kept for a cut do not
/// count either. They are freed when the cut is walked. If they counted, evicting keys that the cut
/// has not reached would free nothing, and all keys would be evicted.
pub fn not_counted(server: &Server) -> usize {
    lazyfree::pending_bytes()
        + server.keyspace.kept_bytes()
        + server.feed.beyond_backlog()
        + server.log_bytes()
        + UnsentBytes::total()
}

/// Evicts keys until memory is below `maxmemory`, for a bounded time. Everything that `data` holds
/// is unlocked.
pub fn make_room(server: &Server, data: &mut Data) -> Room {
    let (limit, now_ms) = (server.config.maxmemory() as usize, data.conditions.now_ms);
    let is_enough = || fits(memory::used_about(now_ms), limit, server);
    if limit == 0 || is_enough() {
        return Room::Enough;
    }
    data.release();
    let started = ticks();
    let deadline = started + server.clock.ticks(EVICT_US);
    // Keys that were flushed go before keys that are there.
    while lazyfree::free_flushed().is_some() {
        if is_enough() {
            return Room::Enough;
        }
        if ticks() >= deadline {
            return Room::Soon;
        }
    }
    // A command is refused only by the exact figure.
    let is_surely_enough = || fits(memory::used(), limit, server);
    let policy = server.config.maxmemory_policy();
    if policy == MaxmemoryPolicy::Noeviction || !server.may_evict(now_ms) {
        return if is_surely_enough() { Room::Enough } else { Room::None };
    }
    let releases = server.scripts.releases();
    if let Some(walked) = &data.evictor.failure
        && (walked.policy, walked.releases) == (policy, releases)
        && started < walked.until
    {
        return walked.room;
    }
    let mut evictor = std::mem::take(&mut data.evictor);
    let mut room = Room::Enough;
    let mut evicted = 0;
    while !is_enough() {
        match evict(&mut evictor, data, &server.config, policy) {
            Evicted::Key => evicted += 1,
            Evicted::NotYet => {}
            _ if is_surely_enough() => break,
            Evicted::Nothing => room = Room::None,
            Evicted::NothingFree => room = Room::Reserved,
        }
        if room != Room::Enough {
            let until = ticks() + server.clock.ticks(WALK_US);
            evictor.failure = Some(Walked { room, policy, releases, until });
            break;
        }
        if ticks() >= deadline {
            room = Room::Soon;
            break;
        }
    }
    data.evictor = evictor;
    data.counters.evicted += evicted as u64;
    show_cycle(server, ticks() - started);
    room
}

/// Tells the latency monitor of a round of evictions that took long.
fn show_cycle(server: &Server, spent: u64) {
    let us = server.clock.us(spent) as u64;
    if us >= CYCLE_SLOW_US {
        server.services.latency.sample(&server.config, LatencyEvent::EvictionCycle, us);
    }
}

/// Evicts one key.
fn evict(
    evictor: &mut Evictor,
    data: &mut Data,
    config: &Config,
    policy: MaxmemoryPolicy,
) -> Evicted {
    let mut recalls = 0;
    for _ in 0..ROUNDS_MAX {
        let wanted = config.maxmemory_samples().max(1) as usize;
        let found = match sample(evictor, data, policy, wanted) {
            true => EvictionCandidates::Free,
            false => walk(evictor, data, policy),
        };
        match evictor.pool.pop() {
            Some(candidate) => match take_out(&candidate, data, policy) {
                Fate::Evicted => return Evicted::Key,
                Fate::Gone => {}
                Fate::Used(score) if recalls < POOL => {
                    recalls += 1;
                    evictor.offer(score, candidate.database, candidate.hash, &candidate.key);
                }
                Fate::Used(_) => {}
            },
            None => match found {
                EvictionCandidates::Free => {}
                EvictionCandidates::Reserved => return Evicted::NothingFree,
                EvictionCandidates::Nothing => return Evicted::Nothing,
            },
        }
    }
    Evicted::NotYet
}

/// Offers about `wanted` random keys to the pool; returns whether any of them may be evicted.
fn sample(evictor: &mut Evictor, data: &mut Data, policy: MaxmemoryPolicy, wanted: usize) -> bool {
    if is_random(policy) {
        return (0..TRIES_MAX).any(|_| draw(evictor, data, policy));
    }
    let mut seen = 0;
    for _ in 0..TRIES_MAX {
        let (shard, bucket) = (data.random.below(SHARDS as u32), data.random.next_u32());
        let found = look(evictor, data, policy, shard as usize, |shard| {
            let mut some = Vec::new();
            for (index, database) in databases(shard, policy) {
                // It begins at a random slot: otherwise keys in the last slots of a bucket would be
                // spared.
                let from = some.len();
                some.extend(database.table().sample(bucket).map(|entry| (index, entry)));
                let first = bucket as usize % (some.len() - from).max(1);
                some[from..].rotate_left(first);
                some.truncate(from + wanted - seen);
            }
            some
        });
        seen += if found.is_reserved { 0 } else { found.keys };
        if seen >= wanted {
            return true;
        }
    }
    seen > 0
}

/// Looks into a random shard and offers a key to the pool, so that over many looks each key that
/// may be evicted comes equally often. Returns whether there was one.
fn draw(evictor: &mut Evictor, data: &mut Data, policy: MaxmemoryPolicy) -> bool {
    let shard = data.random.below(SHARDS as u32) as usize;
    let mut random = Random::new(data.random.next_u64());
    let mut mean_keys = evictor.mean_keys;
    let found = look(evictor, data, policy, shard, |shard| {
        let keys = databases(shard, policy).map(|(_, database)| evictable_in(database, policy));
        let Some(mut at) = mean_keys.draw(keys.sum(), &mut random) else { return Vec::new() };
        let is_here = |&(_, database): &(u32, &Database)| {
            let keys = evictable_in(database, policy);
            let is_here = at < keys;
            at = at.saturating_sub(keys);
            is_here
        };
        let (index, database) = databases(shard, policy).find(is_here).expect("it has the key");
        let mut pick = || database.table().pick(|bound| random.below(bound));
        let entry = (0..DRAWS_MAX).find_map(|_| pick().filter(|entry| may_go(*entry, policy)));
        entry.into_iter().map(|entry| (index, entry)).collect()
    });
    evictor.mean_keys = mean_keys;
    found.keys > 0 && !found.is_reserved
}

/// Walks shards in order until one has keys that may be evicted, and offers those to the pool.
fn walk(evictor: &mut Evictor, data: &mut Data, policy: MaxmemoryPolicy) -> EvictionCandidates {
    let mut result = EvictionCandidates::Nothing;
    for _ in 0..SHARDS {
        let shard = evictor.cursor;
        evictor.cursor = (evictor.cursor + 1) % SHARDS;
        let found = look(evictor, data, policy, shard, |shard| {
            let mut all = Vec::new();
            for (index, database) in databases(shard, policy) {
                all.extend(database.table().iter().map(|entry| (index, entry)));
            }
            all
        });
        match (found.keys, found.is_reserved) {
            (0, _) => data.visit(shard, Shard::trim),
            (_, false) => return EvictionCandidates::Free,
            (_, true) => result = EvictionCandidates::Reserved,
        }
    }
    result
}

/// Offers the keys that `choose` picks from a shard. If a script has the shard reserved, they are
/// only counted.
fn look(
    evictor: &mut Evictor,
    data: &mut Data,
    policy: MaxmemoryPolicy,
    shard: usize,
    choose: impl for<'s> FnOnce(&'s Shard) -> Vec<(u32, EntryRef<'s>)>,
) -> Looked {
    let (clock, keyspace) = (data.conditions.clock, data.keyspace());
    let random = data.random.next_u64();
    data.visit_with(shard, |shard, is_reserved| {
        let mut keys = 0;
        for (index, entry) in choose(shard) {
            if !may_go(entry, policy) {
                continue;
            }
            keys += 1;
            if is_reserved {
                continue;
            }
            let score = score(entry, policy, &clock, random);
            evictor.offer(score, index, keyspace.hash(entry.key()), entry.key());
        }
        Looked { keys, is_reserved }
    })
}

/// The databases of a shard that have keys which may be evicted, with their numbers.
fn databases(shard: &Shard, policy: MaxmemoryPolicy) -> impl Iterator<Item = (u32, &Database)> {
    shard.used().filter(move |&(_, database)| evictable_in(database, policy) > 0)
}

/// How many keys of a database may be evicted.
fn evictable_in(database: &Database, policy: MaxmemoryPolicy) -> usize {
    if is_volatile(policy) { database.volatile() } else { database.table().len() }
}

/// Whether a key may be evicted.
fn may_go(entry: EntryRef<'_>, policy: MaxmemoryPolicy) -> bool {
    !is_volatile(policy) || entry.expire_ms().is_some()
}

/// The result of an attempt to evict a key.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Evicted {
    Key,
    /// There are keys, but none was found that is still as it was when it was sampled.
    NotYet,
    /// All keys that may be evicted are reserved by paused scripts.
    NothingFree,
    Nothing,
}

/// Which keys that may be evicted a walk has found.
enum EvictionCandidates {
    Free,
    /// Some keys, but all in shards that scripts have reserved.
    Reserved,
    Nothing,
}

/// The result of a look into a shard.
struct Looked {
    /// How many of the chosen keys may be evicted.
    keys: usize,
    is_reserved: bool,
}

/// What happened to the best candidate.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Fate {
    Evicted,
    /// It no longer exists, or may no longer be evicted.
    Gone,
    /// It was used since it was sampled, and has this score now.
    Used(u64),
}

/// Deletes the key if it still exists, expired or not, may still be evicted, and its score has not
/// fallen since it was sampled.
fn take_out(candidate: &Candidate, data: &mut Data, policy: MaxmemoryPolicy) -> Fate {
    if !data.hold_one(candidate.hash.shard()) {
        return Fate::Gone;
    }
    let database = std::mem::replace(&mut data.database, candidate.database);
    let key = Key { bytes: &candidate.key, hash: candidate.hash };
    let clock = data.conditions.clock;
    let fate = match data.stored(key) {
        Some(entry) if may_go(entry, policy) => {
            match score(entry, policy, &clock, candidate.score) {
                now if now < candidate.score => Fate::Used(now),
                _ => Fate::Evicted,
            }
        }
        _ => Fate::Gone,
    };
    if fate == Fate::Evicted {
        data.evict(key);
        let command = data.conditions.deletes.evicted;
        data.log(&[command, key.bytes]);
        data.event(Classes::EVICTED, "evicted", key);
    }
    data.visit(candidate.hash.shard(), Shard::trim);
    data.release();
    data.database = database;
    fate
}

/// Whether only keys with an expiry may be evicted.
const fn is_volatile(policy: MaxmemoryPolicy) -> bool {
    use MaxmemoryPolicy::{VolatileLfu, VolatileLru, VolatileRandom, VolatileTtl};
    matches!(policy, VolatileLfu | VolatileLru | VolatileRandom | VolatileTtl)
}

/// Whether the policy evicts any key.
const fn is_random(policy: MaxmemoryPolicy) -> bool {
    matches!(policy, MaxmemoryPolicy::AllkeysRandom | MaxmemoryPolicy::VolatileRandom)
}

/// How much an entry deserves to be evicted. The score of an unused entry does not fall with time,
/// so the scores of candidates that were sampled at different times can be compared.
fn score(entry: EntryRef<'_>, policy: MaxmemoryPolicy, clock: &AccessClock, random: u64) -> u64 {
    use MaxmemoryPolicy::{
        AllkeysLfu, AllkeysLru, AllkeysRandom, Noeviction, VolatileLfu, VolatileLru,
        VolatileRandom, VolatileTtl,
    };
    match policy {
        AllkeysLru | VolatileLru => u64::MAX - clock.last_used(entry.access()),
        AllkeysLfu | VolatileLfu => {
            // Of keys that are used equally often, the one that was not used for longest is
            // evicted.
            let rarely = 255 - u64::from(clock.frequency(entry.access()));
            ((rarely + 1) << LFU_TIME_BITS) - 1 - clock.last_used(entry.access())
        }
        VolatileTtl => u64::MAX - entry.expire_ms().unwrap_or(i64::MAX).max(0) as u64,
        AllkeysRandom | VolatileRandom | Noeviction => random,
    }
}

/// A round of evictions that took this long is shown to the latency monitor.
const CYCLE_SLOW_US: u64 = 1000;

#[cfg(test)]
mod tests {
    use bobbin_store::shard::Expire;
    use bobbin_store::{AccessPolicy, Gate, Keyspace, NewValue};

    use super::*;

    #[test]
    fn a_candidate_that_was_used_meanwhile_is_spared() {
        let lfu = AccessPolicy::Lfu { log_factor: 10, decay_minutes: 1 };
        let cases =
            [(MaxmemoryPolicy::AllkeysLru, AccessPolicy::Lru), (MaxmemoryPolicy::AllkeysLfu, lfu)];
        for (policy, access) in cases {
            let keyspace: &'static Keyspace = Box::leak(Box::new(Keyspace::new(7)));
            let gate: &'static Gate = Box::leak(Box::default());
            let mut data = Data::new(keyspace, gate, 1).expect("few threads");
            data.enter();
            let names: Vec<String> = (0..100).map(|i| format!("key {i}")).collect();
            data.conditions.clock = AccessClock::new(access, 1_700_000_000_000);
            for name in &names {
                let key = data.key(name.as_bytes());
                assert!(data.hold_one(key.hash.shard()));
                data.set(key, NewValue::string(b"v"), Expire::Clear);
                data.release();
            }
            let mut evictor = Evictor::default();
            let config = Config::new();
            // All candidates that the first rounds found are read, and must outlive all others.
            assert_eq!(evict(&mut evictor, &mut data, &config, policy), Evicted::Key);
            sample(&mut evictor, &mut data, policy, 5);
            walk(&mut evictor, &mut data, policy);
            data.conditions.clock = AccessClock::new(access, 1_700_000_005_000);
            let spared: Vec<_> = evictor.pool.iter().map(|c| c.key.clone()).collect();
            assert!(!spared.is_empty());
            for name in &spared {
                let key = data.key(name);
                assert!(data.hold_one(key.hash.shard()));
                assert!(data.read(key).is_some());
                data.release();
            }
            for _ in 0..99 - spared.len() {
                assert_eq!(evict(&mut evictor, &mut data, &config, policy), Evicted::Key);
            }
            for name in &spared {
                let key = data.key(name);
                assert!(data.hold_one(key.hash.shard()));
                assert!(data.exists(key), "{policy:?}");
            }
            data.leave();
        }
    }

    /// A replica does not delete expired keys by itself. Its primary may be late with it.
    #[test]
    fn expired_keys_that_may_not_expire_are_evicted() {
        let keyspace: &'static Keyspace = Box::leak(Box::new(Keyspace::new(7)));
        let gate: &'static Gate = Box::leak(Box::default());
        let mut data = Data::new(keyspace, gate, 1).expect("few threads");
        data.enter();
        for name in ["a", "b", "c"] {
            let key = data.key(name.as_bytes());
            assert!(data.hold_one(key.hash.shard()));
            data.set(key, NewValue::string(b"v"), Expire::At(1000));
            data.release();
        }
        (data.conditions.now_ms, data.conditions.may_expire) = (2000, false);
        let (config, policy) = (Config::new(), MaxmemoryPolicy::VolatileTtl);
        let mut evictor = Evictor::default();
        for _ in 0..3 {
            assert_eq!(evict(&mut evictor, &mut data, &config, policy), Evicted::Key);
        }
        assert_eq!(evict(&mut evictor, &mut data, &config, policy), Evicted::Nothing);
        assert_eq!(data.counters.expired, 0);
        data.leave();
    }

    /// Shards have one to fifteen keys here. Those of full shards are not spared.
    #[test]
    fn a_random_policy_draws_each_key_with_the_same_probability() {
        let keyspace: &'static Keyspace = Box::leak(Box::new(Keyspace::new(7)));
        let gate: &'static Gate = Box::leak(Box::default());
        let mut data = Data::new(keyspace, gate, 1).expect("few threads");
        data.enter();
        for i in 0..8 * SHARDS {
            let name = format!("key {i}");
            let key = data.key(name.as_bytes());
            assert!(data.hold_one(key.hash.shard()));
            let expire = if i % 2 == 0 { Expire::At(i64::MAX) } else { Expire::Clear };
            data.set(key, NewValue::string(b"v"), expire);
            data.release();
        }
        for policy in [MaxmemoryPolicy::AllkeysRandom, MaxmemoryPolicy::VolatileRandom] {
            let mut keys_in = vec![0; SHARDS];
            for (index, keys) in keys_in.iter_mut().enumerate() {
                let in_first = |shard: &mut Shard| {
                    shard.database(0).map_or(0, |database| evictable_in(database, policy))
                };
                *keys = data.visit(index, in_first);
            }
            let total: usize = keys_in.iter().sum();
            let (mut evictor, mut drawn, mut draws) = (Evictor::default(), [0; 40], 0);
            for _ in 0..100_000 {
                sample(&mut evictor, &mut data, policy, 5);
                for candidate in evictor.pool.drain(..) {
                    drawn[keys_in[candidate.hash.shard()]] += 1;
                    draws += 1;
                }
            }
            assert!(draws > 99_000, "{draws}");
            for (keys, &drawn) in drawn.iter().enumerate() {
                let shards = keys_in.iter().filter(|&&in_shard| in_shard == keys).count();
                let expected = (draws * keys * shards) as f64 / total as f64;
                let error = (f64::from(drawn) - expected).abs();
                assert!(
                    error <= 5.0 * expected.sqrt() + 10.0,
                    "{policy:?}: {drawn} keys of shards with {keys} keys, not {expected}"
                );
            }
        }
        data.leave();
    }

    #[test]
    fn keys_of_paused_scripts_are_left_alone() {
        let keyspace: &'static Keyspace = Box::leak(Box::new(Keyspace::new(7)));
        let gate: &'static Gate = Box::leak(Box::default());
        let mut data = Data::new(keyspace, gate, 1).expect("few threads");
        data.enter();
        let (config, policy) = (Config::new(), MaxmemoryPolicy::AllkeysRandom);
        let mut evictor = Evictor::default();
        assert_eq!(evict(&mut evictor, &mut data, &config, policy), Evicted::Nothing);
        for name in ["a", "b"] {
            let key = data.key(name.as_bytes());
            assert!(data.hold_one(key.hash.shard()));
            data.set(key, NewValue::string(b"v"), Expire::Clear);
            data.release();
        }
        let shard = |name: &str| keyspace.hash(name.as_bytes()).shard();
        assert_ne!(shard("a"), shard("b"));
        for name in ["a", "b"] {
            keyspace.lock(shard(name)).reserve();
        }
        assert_eq!(evict(&mut evictor, &mut data, &config, policy), Evicted::NothingFree);
        drop(keyspace.take_back(shard("b")));
        assert_eq!(evict(&mut evictor, &mut data, &config, policy), Evicted::Key);
        assert_eq!(evict(&mut evictor, &mut data, &config, policy), Evicted::NothingFree);
        drop(keyspace.take_back(shard("a")));
        assert_eq!(evict(&mut evictor, &mut data, &config, policy), Evicted::Key);
        assert_eq!(evict(&mut evictor, &mut data, &config, policy), Evicted::Nothing);
        data.leave();
    }
}
