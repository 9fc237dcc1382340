//! Changes of hashes in place. A database counts the hashes that have fields which expire, and its
//! index knows when the first field of each does. So commands change a hash only through a
//! [`HashMut`], which notes both at its end.

use std::ops::{Deref, DerefMut};

use super::expiry::ExpiryIndex;
use super::{Database, fields_ms};
use crate::hash::{Hasher, KeyHash};
use crate::table::EntryPlace;
use crate::value::Hash;

/// The hash at a key, to be changed in place.
pub struct HashMut<'a> {
    hash: &'a mut Hash,
    expiry: &'a mut ExpiryIndex,
    /// Where the key lies, for the index.
    position: u32,
    /// When the first field expired before the change.
    old_ms: Option<i64>,
}

impl Database {
    /// The hash at a key, for changing it in place. `None`: the key has a value of another type.
    #[inline]
    pub fn change_hash(
        &mut self,
        hash: KeyHash,
        place: EntryPlace,
        hasher: &Hasher,
    ) -> Option<HashMut<'_>> {
        self.before_change(place, hasher);
        // Before the change, as the hash is borrowed until after it.
        if self.wants_rebuilt_expiry() {
            self.rebuild_expiry(hasher);
        }
        let fields = self.table.entry_mut(place).any_collection_mut::<Hash>()?;
        let (position, old_ms) = (hash.position(), fields.earliest_ms());
        Some(HashMut { hash: fields, expiry: &mut self.expiry, position, old_ms })
    }

    /// How many hashes have fields that expire.
    #[inline]
    pub fn with_expiring_fields(&self) -> usize {
        self.expiry.hashes()
    }

    /// When the first field of the hash at a place expires, or earlier. Does not look at the entry
    /// if no hash of the database has such a field.
    #[inline(always)]
    pub(super) fn stored_fields_ms(&self, place: EntryPlace) -> Option<i64> {
        if self.expiry.hashes() == 0 { None } else { fields_ms(self.entry(place)) }
    }

    /// Notes that the entry at a place is about to be removed, if it is a hash with fields that
    /// expire.
    #[inline(always)]
    pub(super) fn forget_fields(&mut self, place: EntryPlace) {
        let old_ms = self.stored_fields_ms(place);
        // Nothing is inserted into the index, so the position does not matter.
        self.expiry.note_fields(0, old_ms, None);
    }
}

impl Deref for HashMut<'_> {
    type Target = Hash;

    #[inline(always)]
    fn deref(&self) -> &Hash {
        self.hash
    }
}

impl DerefMut for HashMut<'_> {
    #[inline(always)]
    fn deref_mut(&mut self) -> &mut Hash {
        self.hash
    }
}

impl Drop for HashMut<'_> {
    #[inline]
    fn drop(&mut self) {
        self.expiry.note_fields(self.position, self.old_ms, self.hash.earliest_ms());
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::shard::{Expire, Shard};
    use crate::value::hash::FieldExpiry;
    use crate::value::{AnyCollection, HashLimits};
    use crate::{AccessClock, AccessPolicy, Cut, Gate, Keyspace, NewValue, OwnedEntry};

    /// What happens to one of a few keys of one shard, in one of two databases.
    #[derive(Clone, Debug)]
    enum Event {
        Field {
            key: usize,
            field: u8,
            at_ms: Option<i64>,
        },
        Time {
            key: usize,
            field: u8,
            at_ms: Option<i64>,
        },
        RemoveField {
            key: usize,
            field: u8,
        },
        /// Puts a hash with fields of these times in the key's place.
        Put {
            key: usize,
            times: Vec<Option<i64>>,
        },
        Set {
            key: usize,
        },
        Expire {
            key: usize,
            at_ms: Option<i64>,
        },
        Rename {
            from: usize,
            to: usize,
        },
        Remove {
            key: usize,
        },
        Die {
            now_ms: i64,
        },
        Swap,
        Flush,
        BeginCut,
        StepCut,
    }

    const KEYS: usize = 6;

    fn event() -> impl Strategy<Value = (u32, Event)> {
        let (key, field) = (0..KEYS, 0..6u8);
        let at_ms = proptest::option::of(0..2000i64);
        let event = prop_oneof![
            4 => (key.clone(), field.clone(), at_ms.clone())
                .prop_map(|(key, field, at_ms)| Event::Field { key, field, at_ms }),
            4 => (key.clone(), field.clone(), at_ms.clone())
                .prop_map(|(key, field, at_ms)| Event::Time { key, field, at_ms }),
            3 => (key.clone(), field).prop_map(|(key, field)| Event::RemoveField { key, field }),
            2 => (key.clone(), proptest::collection::vec(at_ms.clone(), 1..100))
                .prop_map(|(key, times)| Event::Put { key, times }),
            1 => key.clone().prop_map(|key| Event::Set { key }),
            2 => (key.clone(), at_ms).prop_map(|(key, at_ms)| Event::Expire { key, at_ms }),
            2 => (key.clone(), key.clone()).prop_map(|(from, to)| Event::Rename { from, to }),
            1 => key.prop_map(|key| Event::Remove { key }),
            1 => (0..2000i64).prop_map(|now_ms| Event::Die { now_ms }),
            1 => Just(Event::Swap),
            1 => Just(Event::Flush),
            1 => Just(Event::BeginCut),
            2 => Just(Event::StepCut),
        ];
        (0..2u32, event)
    }

    struct World {
        keyspace: Keyspace,
        gate: Gate,
        keys: Vec<Vec<u8>>,
        cut: Option<Cut>,
    }

    impl World {
        fn new() -> Self {
            let keyspace = Keyspace::new(9);
            let names = (0u32..).map(|number| format!("key {number}").into_bytes());
            let keys = names.filter(|name| keyspace.hash(name).shard() == SHARD);
            let keys = keys.take(KEYS).collect();
            Self { keyspace, gate: Gate::new(1), keys, cut: None }
        }

        fn apply(&mut self, number: u32, event: Event) {
            let (keyspace, hasher) = (&self.keyspace, self.keyspace.hasher());
            match event {
                Event::BeginCut => {
                    self.cut = Some(Cut::begin(keyspace, &mut self.gate.take()));
                    return;
                }
                Event::StepCut => {
                    let Some(cut) = &mut self.cut else { return };
                    let mut visit =
                        |index, f: &mut dyn FnMut(&mut Shard)| f(&mut keyspace.lock(index));
                    // The other shards have nothing.
                    let mut out = Vec::new();
                    let more = (0..1000).all(|_| cut.step(hasher, &mut visit, 2, &mut out));
                    self.cut.take_if(|_| !more);
                    return;
                }
                _ => {}
            }
            let mut shard = keyspace.lock(SHARD);
            let database = shard.database_mut(number);
            let find = |database: &Database, key: usize| {
                let name = &*self.keys[key];
                let hash = hasher.hash(name);
                (name, hash, database.find(hash, name))
            };
            let put = |database: &mut Database, key: usize, entry: OwnedEntry| {
                let (_, hash, found) = find(database, key);
                match found {
                    Some(place) => drop(database.replace(hash, place, entry, hasher)),
                    None => drop(database.insert(hash, entry, hasher)),
                }
            };
            match event {
                Event::Field { key, field, at_ms } => {
                    let (name, hash, found) = find(database, key);
                    let place = found.unwrap_or_else(|| {
                        database.insert(hash, entry_of(name, Hash::default()), hasher)
                    });
                    if let Some(mut fields) = database.change_hash(hash, place, hasher) {
                        set(&mut fields, field, at_ms, hasher);
                    }
                }
                Event::Time { key, field, at_ms } => {
                    let (_, hash, found) = find(database, key);
                    let Some(place) = found else { return };
                    if let Some(mut fields) = database.change_hash(hash, place, hasher) {
                        fields.set_expiry(&[field], at_ms, hasher);
                    }
                }
                Event::RemoveField { key, field } => {
                    let (_, hash, found) = find(database, key);
                    let Some(place) = found else { return };
                    if let Some(mut fields) = database.change_hash(hash, place, hasher) {
                        fields.remove(&[field], i64::MIN, hasher);
                    }
                }
                Event::Put { key, times } => {
                    let mut fields = Hash::default();
                    for (field, at_ms) in (0u8..).zip(times) {
                        set(&mut fields, field, at_ms, hasher);
                    }
                    put(database, key, entry_of(&self.keys[key], fields));
                }
                Event::Set { key } => {
                    let (name, hash, found) = find(database, key);
                    let (value, clock) =
                        (NewValue::Inline(b"v"), AccessClock::new(AccessPolicy::Lru, 0));
                    database.set(hash, name, found, value, Expire::Keep, &clock, hasher);
                }
                Event::Expire { key, at_ms } => {
                    let (_, hash, found) = find(database, key);
                    let Some(place) = found else { return };
                    database.set_expire(hash, place, at_ms, hasher);
                }
                Event::Rename { from, to } => {
                    let (_, _, Some(place)) = find(database, from) else { return };
                    let entry = database.remove(place, hasher);
                    let expire_ms = entry.as_ref().expire_ms();
                    put(database, to, entry.renamed(&self.keys[to], expire_ms, 0));
                }
                Event::Remove { key } => {
                    let (_, _, Some(place)) = find(database, key) else { return };
                    drop(database.remove(place, hasher));
                }
                Event::Die { now_ms } => {
                    database.expire_due(now_ms, 100, hasher, &mut Vec::new(), |_| {});
                    shard.trim();
                }
                Event::Swap => shard.swap(0, 1),
                Event::Flush => drop(shard.flush(number, hasher)),
                Event::BeginCut | Event::StepCut => unreachable!("done above"),
            }
        }

        fn check(&self) {
            let shard = self.keyspace.lock(SHARD);
            for database in (0..2).filter_map(|number| shard.database(number)) {
                let times = database.table.iter().filter_map(fields_ms);
                assert_eq!(database.with_expiring_fields(), times.count());
                let keys = database.table.iter();
                let times =
                    keys.flat_map(|entry| entry.expire_ms().into_iter().chain(fields_ms(entry)));
                let due_ms = times.min().map_or(i64::MAX, |ms| (ms / 16 + 1) * 16);
                assert!(database.next_due_ms() <= due_ms, "{} is too late", database.next_due_ms());
            }
        }
    }

    fn entry_of(name: &[u8], fields: Hash) -> OwnedEntry {
        OwnedEntry::new(name, NewValue::Collection(AnyCollection::Hash(fields)), None, 0)
    }

    fn set(fields: &mut Hash, field: u8, at_ms: Option<i64>, hasher: &Hasher) {
        let expiry = at_ms.map_or(FieldExpiry::Clear, FieldExpiry::At);
        fields.set(&[field], b"v".into(), expiry, i64::MIN, &HashLimits::default(), hasher);
    }

    const SHARD: usize = 5;

    proptest! {
        #![proptest_config(ProptestConfig {
            cases: if cfg!(miri) { 2 } else { 64 },
            failure_persistence: None,
            ..ProptestConfig::default()
        })]

        #[test]
        fn hashes_with_expiring_fields_are_counted_and_none_is_forgotten(
            events in proptest::collection::vec(event(), 1..80),
        ) {
            let mut world = World::new();
            for (number, event) in events {
                world.apply(number, event);
                world.check();
            }
            // All times pass. What is left never expires.
            let shard = &mut *world.keyspace.lock(SHARD);
            for number in 0..=1 {
                let Some(database) = shard.used_mut(number) else { continue };
                while database.next_due_ms() <= 10_000 {
                    database.expire_due(10_000, 100, world.keyspace.hasher(), &mut Vec::new(), |_| {});
                }
                prop_assert_eq!((database.with_expiring_fields(), database.volatile()), (0, 0));
            }
        }
    }

    #[test]
    fn the_index_is_freed_with_the_last_hash_that_has_expiring_fields() {
        let mut world = World::new();
        let put = |key| Event::Put { key, times: vec![Some(1000), None] };
        let ends: [fn(usize) -> Event; 4] = [
            |key| Event::Remove { key },
            |key| Event::Set { key },
            |key| Event::Time { key, field: 0, at_ms: None },
            |key| Event::RemoveField { key, field: 0 },
        ];
        for end in ends {
            world.apply(0, put(0));
            world.apply(0, put(1));
            for (key, left) in [(0, 1), (1, 0)] {
                world.apply(0, end(key));
                let shard = world.keyspace.lock(SHARD);
                assert_eq!(shard.first().with_expiring_fields(), left);
                assert_eq!(shard.has_more(), left > 0);
            }
        }
    }
}
