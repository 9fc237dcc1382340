//! A walk over all keys of a database, which can stop and continue anywhere.
//!
//! A key that is there during the whole walk is met exactly once, whatever is added, removed or
//! resized meanwhile: positions in a shard do not depend on the size of its table. The walk locks
//! one shard at a time, for a few dozen keys.

use bobbin_store::{EntryRef, SHARDS};

use super::Data;

/// The place of a walk over the keys.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct KeyWalk {
    database: u32,
    /// The index of the shard; `SHARDS` at the end.
    shard: usize,
    position: u32,
}

/// The most keys that are looked at before the shard is unlocked.
const LOOKS: usize = 64;
/// How many shards ahead of the walk their first buckets are prefetched.
const SHARDS_AHEAD: usize = 4;

impl KeyWalk {
    pub const fn new(database: u32) -> Self {
        Self { database, shard: 0, position: 0 }
    }

    /// Continues a walk from its cursor. Numbers that are not cursors stand for the end.
    pub fn from_cursor(database: u32, cursor: u64) -> Self {
        let shard = usize::try_from(cursor >> 32).map_or(SHARDS, |shard| shard.min(SHARDS));
        Self { database, shard, position: cursor as u32 }
    }

    /// A number to continue from later; 0 at the end and at the beginning only.
    pub const fn cursor(&self) -> u64 {
        if self.is_done() { 0 } else { (self.shard as u64) << 32 | self.position as u64 }
    }

    pub const fn is_done(&self) -> bool {
        self.shard >= SHARDS
    }

    /// Calls `f` for the wanted keys of the next buckets, until `looks_max` or `LOOKS` keys were
    /// looked at or the shard ends. Wanted keys that have expired are deleted instead. Returns how
    /// many keys were looked at, or `None` if a script keeps the shard reserved, so that the walk
    /// has to wait.
    pub fn step(
        &mut self,
        data: &mut Data,
        looks_max: usize,
        wanted: impl Fn(EntryRef<'_>) -> bool,
        mut f: impl FnMut(EntryRef<'_>),
    ) -> Option<usize> {
        while !self.is_done() && data.len(self.shard, self.database) == 0 {
            self.go_to_shard(data.next_used(self.shard + 1));
        }
        if self.is_done() {
            return Some(0);
        }
        data.keyspace().prefetch_first_bucket(self.shard + SHARDS_AHEAD);
        let (now_ms, hasher) = (data.dead_ms(), data.keyspace().hasher());
        let (database, mut next) = (self.database, Some(self.position));
        let (mut looks, mut dead) = (0, Vec::new());
        let looks_max = looks_max.min(LOOKS);
        // Most steps delete nothing, so a visit is enough and there is no unit to end.
        let is_free = data.visit_with(self.shard, |shard, is_reserved| {
            if is_reserved {
                return false;
            }
            let table = shard.database(database).map(|database| database.table());
            if let (Some(table), Some(position)) = (table, next) {
                table.prefetch_first_scan(position);
            }
            while let Some(position) = next
                && looks < looks_max
            {
                next = table.and_then(|table| {
                    table.prefetch_scan(position, false);
                    table.scan(position, hasher, |entry| {
                        looks += 1;
                        if !wanted(entry) {
                            return;
                        }
                        match entry.expire_ms() {
                            Some(ms) if ms <= now_ms => dead.push(Box::from(entry.key())),
                            _ => f(entry),
                        }
                    })
                });
            }
            true
        });
        if !is_free {
            return None;
        }
        data.expire_keys(self.shard, database, &dead);
        match next {
            Some(position) => self.position = position,
            None => self.go_to_shard(self.shard + 1),
        }
        Some(looks)
    }

    const fn go_to_shard(&mut self, shard: usize) {
        self.shard = shard;
        self.position = 0;
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;
    use std::sync::atomic::{AtomicBool, Ordering};

    use bobbin_store::shard::Expire;
    use bobbin_store::{Gate, Keyspace, NewValue};

    use super::*;

    fn data(keyspace: &'static Keyspace, gate: &'static Gate) -> Data {
        let mut data = Data::new(keyspace, gate, 1).expect("few threads");
        data.enter();
        data
    }

    fn set(data: &mut Data, key: &str, expire: Expire) {
        let key = data.key(key.as_bytes());
        assert!(data.hold_one(key.hash.shard()));
        data.set(key, NewValue::string(b"v"), expire);
        data.release();
    }

    #[test]
    fn meets_each_lasting_key_once_while_others_come_and_go() {
        let keyspace: &'static Keyspace = Box::leak(Box::new(Keyspace::new(7)));
        let gate: &'static Gate = Box::leak(Box::default());
        let mut walker = data(keyspace, gate);
        (0..30_000).for_each(|i| set(&mut walker, &format!("lasting {i}"), Expire::Clear));
        let stop = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let mut data = data(keyspace, gate);
                while !stop.load(Ordering::Relaxed) {
                    let keys = (0..20_000).map(|i| format!("passing {i}"));
                    keys.clone().for_each(|key| set(&mut data, &key, Expire::Clear));
                    for key in keys {
                        let key = data.key(key.as_bytes());
                        assert!(data.hold_one(key.hash.shard()));
                        data.remove(key);
                        data.release();
                    }
                }
                data.leave();
            });
            for looks in [1, 10, 64, 1000] {
                let (mut seen, mut calls) = (HashSet::new(), 0);
                let mut walk = KeyWalk::new(0);
                while !walk.is_done() {
                    walk = KeyWalk::from_cursor(0, walk.cursor());
                    walk.step(
                        &mut walker,
                        looks,
                        |_| true,
                        |entry| {
                            if entry.key().starts_with(b"lasting") {
                                assert!(seen.insert(entry.key().to_vec()), "met twice");
                            }
                        },
                    );
                    calls += 1;
                }
                assert_eq!(seen.len(), 30_000, "{looks} looks at a time, {calls} calls");
            }
            stop.store(true, Ordering::Relaxed);
        });
        walker.leave();
    }

    #[test]
    fn dead_keys_are_not_met_and_go_away() {
        let keyspace: &'static Keyspace = Box::leak(Box::new(Keyspace::new(7)));
        let gate: &'static Gate = Box::leak(Box::default());
        let mut data = data(keyspace, gate);
        for i in 0..100 {
            let expire = if i % 2 == 0 { Expire::At(1000 + i) } else { Expire::Clear };
            set(&mut data, &format!("key {i}"), expire);
        }
        data.conditions.now_ms = 1049;
        let (mut walk, mut met) = (KeyWalk::new(0), 0);
        while !walk.is_done() {
            walk.step(&mut data, 10, |_| true, |_| met += 1);
        }
        assert_eq!(met, 75);
        assert_eq!(data.counters.expired, 25);
        assert_eq!((0..SHARDS).map(|index| data.len(index, 0)).sum::<usize>(), 75);
        data.leave();
    }

    #[test]
    fn cursors_go_both_ways_and_strange_ones_are_the_end() {
        for (shard, position) in [(0, 1), (1, 0), (7, 77), (SHARDS - 1, u32::MAX)] {
            let walk = KeyWalk { database: 3, shard, position };
            assert_ne!(walk.cursor(), 0);
            assert_eq!(KeyWalk::from_cursor(3, walk.cursor()), walk);
        }
        assert_eq!(KeyWalk::new(3), KeyWalk::from_cursor(3, 0));
        for cursor in [(SHARDS as u64) << 32, u64::MAX, 1 << 63] {
            assert!(KeyWalk::from_cursor(0, cursor).is_done());
            assert_eq!(KeyWalk::from_cursor(0, cursor).cursor(), 0);
        }
    }
}
