//! A cut shows the state at its beginning, whatever happens while it is walked.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;
use crate::shard::Expire;
use crate::value::{AnyCollection, CollectionRef, End, List, ListLimits};
use crate::{AccessClock, AccessPolicy, EntryRef, Gate, NewValue, OwnedEntry, ValueRef};

/// What happens between two steps of the walk. There are few keys and databases, so that many
/// events meet the same ones.
#[derive(Clone, Debug)]
enum Event {
    Set { database: u32, key: u8, len: usize },
    Expire { database: u32, key: u8, at_ms: Option<i64> },
    Push { database: u32, key: u8 },
    Remove { database: u32, key: u8 },
    Move { from: u32, to: u32, key: u8, new_key: u8 },
    Die { now_ms: i64 },
    Swap { a: u32, b: u32 },
    Flush { database: u32 },
    FlushAll,
    Step { limit: usize },
}

fn event() -> impl Strategy<Value = Event> {
    let (database, key) = (0..3u32, 0..12u8);
    prop_oneof![
        4 => (database.clone(), key.clone(), prop_oneof![0..40usize, 5000..5001usize])
            .prop_map(|(database, key, len)| Event::Set { database, key, len }),
        2 => (database.clone(), key.clone(), proptest::option::of(0..100i64))
            .prop_map(|(database, key, at_ms)| Event::Expire { database, key, at_ms }),
        4 => (database.clone(), key.clone())
            .prop_map(|(database, key)| Event::Push { database, key }),
        2 => (database.clone(), key.clone())
            .prop_map(|(database, key)| Event::Remove { database, key }),
        3 => (database.clone(), database.clone(), key.clone(), key)
            .prop_map(|(from, to, key, new_key)| Event::Move { from, to, key, new_key }),
        1 => (0..100i64).prop_map(|now_ms| Event::Die { now_ms }),
        1 => (database.clone(), database.clone()).prop_map(|(a, b)| Event::Swap { a, b }),
        1 => database.prop_map(|database| Event::Flush { database }),
        1 => Just(Event::FlushAll),
        4 => (1..6usize).prop_map(|limit| Event::Step { limit }),
    ]
}

/// A value in the model: a string or the elements of a list, and an expiry.
type Seen = (Vec<Vec<u8>>, Option<i64>);
type State = BTreeMap<(u32, Vec<u8>), Seen>;

fn seen(entry: EntryRef<'_>) -> Seen {
    let parts = match entry.value() {
        ValueRef::Collection(CollectionRef::List(list)) => {
            list.iter().map(|item| item.to_vec()).collect()
        }
        _ => vec![entry.string().joined().into_owned()],
    };
    (parts, entry.expire_ms())
}

struct World {
    keyspace: Keyspace,
    gate: Gate,
    counter: u32,
}

impl World {
    fn new() -> Self {
        Self { keyspace: Keyspace::new(9), gate: Gate::new(1), counter: 0 }
    }

    /// All keys are in the same shard, so that one step does not do everything.
    fn key(&self, key: u8) -> Vec<u8> {
        let mut found = (0u32..).map(|n| format!("key {n}").into_bytes());
        let mut in_shard = found.by_ref().filter(|text| self.keyspace.hash(text).shard() == 5);
        in_shard.nth(key.into()).unwrap()
    }

    fn state(&self) -> State {
        let mut state = State::new();
        let shard = self.keyspace.lock(5);
        for (number, database) in shard.used() {
            for entry in database.table().iter() {
                state.insert((number, entry.key().to_vec()), seen(entry));
            }
        }
        state
    }

    fn apply(&mut self, event: &Event, keys: &[Vec<u8>]) {
        let hasher = self.keyspace.hasher();
        let clock = AccessClock::new(AccessPolicy::Lru, 0);
        let mut shard = self.keyspace.lock(5);
        self.counter += 1;
        let text = format!("value {}", self.counter);
        match *event {
            Event::Set { database, key, len } => {
                let key = &keys[key as usize];
                let hash = self.keyspace.hash(key);
                let mut value = text.into_bytes();
                value.resize(value.len().max(len), b'.');
                let database = shard.database_mut(database);
                let found = database.find(hash, key);
                database.set(
                    hash,
                    key,
                    found,
                    NewValue::string(&value),
                    Expire::Keep,
                    &clock,
                    hasher,
                );
            }
            Event::Expire { database, key, at_ms } => {
                let key = &keys[key as usize];
                let hash = self.keyspace.hash(key);
                let Some(database) = shard.used_mut(database) else { return };
                if let Some(place) = database.find(hash, key) {
                    database.set_expire(hash, place, at_ms, hasher);
                }
            }
            Event::Push { database, key } => {
                let key = &keys[key as usize];
                let hash = self.keyspace.hash(key);
                let limits = ListLimits::new(4);
                let database = shard.database_mut(database);
                match database.find(hash, key) {
                    Some(place) => {
                        if let Some(list) = database.change(place, hasher).collection_mut::<List>()
                        {
                            list.prepare(text.len(), 1, limits);
                            list.push(text.as_bytes().into(), End::Back, limits);
                        }
                    }
                    None => {
                        let mut list = List::new();
                        list.push(text.as_bytes().into(), End::Back, limits);
                        let value = NewValue::Collection(AnyCollection::List(list));
                        database.insert(hash, OwnedEntry::new(key, value, None, 0), hasher);
                    }
                }
            }
            Event::Remove { database, key } => {
                let key = &keys[key as usize];
                let Some(database) = shard.used_mut(database) else { return };
                if let Some(place) = database.find(self.keyspace.hash(key), key) {
                    drop(database.remove(place, hasher));
                }
            }
            Event::Move { from, to, key, new_key } => {
                let (key, new_key) = (&keys[key as usize], &keys[new_key as usize]);
                let Some(database) = shard.used_mut(from) else { return };
                let Some(place) = database.find(self.keyspace.hash(key), key) else { return };
                let entry = database.remove(place, hasher);
                let expire_ms = entry.as_ref().expire_ms();
                let entry =
                    if key == new_key { entry } else { entry.renamed(new_key, expire_ms, 0) };
                let hash = self.keyspace.hash(new_key);
                let database = shard.database_mut(to);
                match database.find(hash, new_key) {
                    Some(place) => drop(database.replace(hash, place, entry, hasher)),
                    None => drop(database.insert(hash, entry, hasher)),
                }
            }
            Event::Die { now_ms } => {
                let mut next = shard.due_from(0, now_ms);
                while let Some(number) = next {
                    let database = shard.used_mut(number).expect("it has keys");
                    database.expire_due(now_ms, 10, hasher, &mut Vec::new(), |_| {});
                    next = shard.due_from(number + 1, now_ms);
                }
                shard.trim();
            }
            Event::Swap { a, b } => shard.swap(a, b),
            Event::Flush { database } => drop(shard.flush(database, hasher)),
            Event::FlushAll => drop(shard.flush_all(hasher)),
            Event::Step { .. } => {}
        }
    }

    fn begin(&self) -> Cut {
        Cut::begin(&self.keyspace, &mut self.gate.take())
    }

    fn step(&self, cut: &mut Cut, limit: usize, out: &mut Vec<Piece>) -> bool {
        let visit = |index, f: &mut dyn FnMut(&mut Shard)| f(&mut self.keyspace.lock(index));
        let before = out.len();
        cut.step(self.keyspace.hasher(), visit, before + limit, out)
    }
}

/// The state that the pieces describe. No key may occur twice.
fn collected(pieces: &[Piece]) -> State {
    let mut state = State::new();
    for piece in pieces {
        let entry = piece.entry.as_ref();
        let old = state.insert((piece.database, entry.key().to_vec()), seen(entry));
        assert!(old.is_none(), "{} comes twice", entry.key().escape_ascii());
    }
    state
}

proptest! {
    #![proptest_config(ProptestConfig { cases: if cfg!(miri) { 2 } else { 400 }, ..Default::default() })]

    #[test]
    fn a_cut_is_the_state_at_its_beginning(
        before in proptest::collection::vec(event(), 0..40),
        during in proptest::collection::vec(event(), 0..60),
        abort in any::<bool>(),
    ) {
        let mut world = World::new();
        let keys: Vec<_> = (0..12).map(|key| world.key(key)).collect();
        before.iter().for_each(|event| world.apply(event, &keys));
        let at_cut = world.state();
        let (mut cut, mut out) = (world.begin(), Vec::new());
        let keys_of = |cut: &Cut| cut.census().databases().iter().map(|(_, d)| d.keys).sum::<usize>();
        prop_assert_eq!(keys_of(&cut), at_cut.len());
        let mut over = false;
        for event in &during {
            if let Event::Step { limit } = *event {
                // In the first step, skips the shards before the one with the keys.
                over = over || (0..6).any(|_| !world.step(&mut cut, limit, &mut out));
            } else {
                world.apply(event, &keys);
            }
        }
        if abort {
            cut.handle().abort();
        }
        while !over && world.step(&mut cut, 2, &mut out) {}
        let handle = cut.handle();
        drop(cut);
        if !abort {
            prop_assert_eq!(collected(&out), at_cut);
            prop_assert_eq!(handle.kept_bytes(), 0);
        }
        // If a mark was left behind, its key would be missing from the next cut.
        let (mut next, mut out, now) = (world.begin(), Vec::new(), world.state());
        while world.step(&mut next, 3, &mut out) {}
        prop_assert_eq!(collected(&out), now);
    }
}

#[test]
fn a_second_cut_is_whole_and_the_first_is_aborted() {
    let mut world = World::new();
    let keys: Vec<_> = (0..12).map(|key| world.key(key)).collect();
    let set = |key| Event::Set { database: 0, key, len: 3 };
    (0..8).for_each(|key| world.apply(&set(key), &keys));
    let mut first = world.begin();
    (4..12).for_each(|key| world.apply(&set(key), &keys));
    let now = world.state();
    let mut second = world.begin();
    assert!(first.handle().is_aborted() && world.keyspace.is_being_cut());
    (0..3).for_each(|key| world.apply(&set(key), &keys));
    let (mut none, mut out) = (Vec::new(), Vec::new());
    while world.step(&mut first, 2, &mut none) {}
    while world.step(&mut second, 2, &mut out) {}
    assert_eq!(collected(&out), now);
    drop((first, second));
    assert!(!world.keyspace.is_being_cut());
}

#[test]
fn what_was_fetched_is_kept_until_the_next_step() {
    let mut world = World::new();
    let keys: Vec<_> = (0..12).map(|key| world.key(key)).collect();
    let set_all = |world: &mut World| {
        (0..3)
            .for_each(|key| world.apply(&Event::Set { database: 0, key, len: FETCH_BYTES }, &keys));
    };
    set_all(&mut world);
    let (mut cut, mut out) = (world.begin(), Vec::new());
    set_all(&mut world);
    let (handle, kept) = (cut.handle(), cut.handle().kept_bytes());
    assert!(kept > 3 * FETCH_BYTES);
    assert!(world.step(&mut cut, 1, &mut out));
    assert_eq!((out.len(), handle.kept_bytes()), (3, kept));
    assert!(world.step(&mut cut, 1, &mut out));
    assert_eq!((out.len(), handle.kept_bytes()), (3, 0));
}

#[test]
fn a_cut_beside_writers_on_threads() {
    const KEYS: u32 = if cfg!(miri) { 100 } else { 20_000 };
    const NEW: u32 = KEYS / 20;
    let world = World::new();
    let set = |key: u32, text: &str| {
        let key = key.to_le_bytes();
        let hash = world.keyspace.hash(&key);
        let clock = AccessClock::new(AccessPolicy::Lru, 0);
        let mut shard = world.keyspace.lock(hash.shard());
        let database = shard.database_mut(0);
        let found = database.find(hash, &key);
        let value = NewValue::Inline(text.as_bytes());
        database.set(hash, &key, found, value, Expire::Clear, &clock, world.keyspace.hasher());
    };
    (0..KEYS).for_each(|key| set(key, "old"));
    let gate = &world.gate;
    let mut out = Vec::new();
    std::thread::scope(|scope| {
        let mut cut = Cut::begin(&world.keyspace, &mut gate.take());
        for thread in 0..2 {
            let set = &set;
            scope.spawn(move || {
                for key in (0..KEYS + NEW).filter(|key| key % 2 == thread) {
                    // Sets every seventh key, old and new ones, several times.
                    set(key * 7 % (KEYS + NEW), "something new");
                }
            });
        }
        while world.step(&mut cut, 50, &mut out) {}
    });
    assert_eq!(out.len(), KEYS as usize);
    let mut keys: Vec<_> = out.iter().map(|piece| piece.entry.as_ref().key().to_vec()).collect();
    keys.sort();
    keys.dedup();
    assert_eq!(keys.len(), KEYS as usize);
    assert!(out.iter().all(|piece| piece.entry.as_ref().string() == *b"old".as_slice()));
}

/// Databases that have one key each, all of them in one shard.
fn with_databases(numbers: std::ops::Range<u32>) -> World {
    let mut world = World::new();
    let keys = [world.key(0)];
    numbers.for_each(|database| world.apply(&Event::Set { database, key: 0, len: 3 }, &keys));
    world
}

#[test]
fn a_walk_visits_only_shards_with_keys_of_the_database() {
    let world = with_databases(0..50);
    let (mut cut, mut visits, mut out) = (world.begin(), 0, Vec::new());
    let mut visit = |index, f: &mut dyn FnMut(&mut Shard)| {
        visits += 1;
        f(&mut world.keyspace.lock(index));
    };
    while cut.step(world.keyspace.hasher(), &mut visit, 1000, &mut out) {}
    assert_eq!((visits, out.len()), (50, 50));
    assert!(out.iter().map(|piece| piece.database).eq(0..50), "one database after the other");
}

#[test]
fn a_cut_begins_without_memory_for_each_database() {
    let world = with_databases(1..50);
    let overhead = || world.keyspace.lock(5).overhead();
    let before = overhead();
    let (mut cut, mut out) = (world.begin(), Vec::new());
    assert_eq!(overhead(), before);
    while world.step(&mut cut, 3, &mut out) {}
    assert_eq!((overhead(), out.len()), (before, 49));
}
