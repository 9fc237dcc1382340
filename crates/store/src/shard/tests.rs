//! What a shard does with its databases, and a database with the expiry of its keys.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;

const NOW_MS: i64 = 1_700_000_000_000;

fn set(shard: &mut Shard, database: u32, key: &[u8], hasher: &Hasher) {
    let clock = AccessClock::new(AccessPolicy::Lru, NOW_MS);
    let (hash, value) = (hasher.hash(key), NewValue::Inline(b"v"));
    let database = shard.database_mut(database);
    let found = database.find(hash, key);
    database.set(hash, key, found, value, Expire::Clear, &clock, hasher);
}

fn remove(shard: &mut Shard, database: u32, key: &[u8], hasher: &Hasher) {
    let database = shard.used_mut(database).expect("it has keys");
    let place = database.find(hasher.hash(key), key).expect("it was set");
    drop(database.remove(place, hasher));
}

fn numbers(shard: &Shard) -> Vec<u32> {
    shard.used().map(|(number, _)| number).collect()
}

#[test]
fn a_database_is_made_by_its_first_key_and_given_back_by_trim() {
    let (mut shard, hasher) = (Shard::default(), Hasher::new(1));
    assert!(shard.used_mut(0).is_some(), "database 0 is always there");
    assert!(shard.used_mut(7).is_none());
    assert!(shard.database(7).is_none());
    assert_eq!((numbers(&shard), shard.overhead()), (vec![0], 0));
    set(&mut shard, 7, b"a", &hasher);
    set(&mut shard, 3, b"b", &hasher);
    assert_eq!(numbers(&shard), [0, 3, 7], "what lies between is not made");
    assert_eq!(shard.used_mut(7).map(|database| database.len()), Some(1));
    remove(&mut shard, 7, b"a", &hasher);
    assert_eq!(numbers(&shard), [0, 3, 7], "a removal alone keeps it for the next key");
    shard.trim();
    assert_eq!(numbers(&shard), [0, 3]);
    remove(&mut shard, 3, b"b", &hasher);
    shard.trim();
    assert_eq!((numbers(&shard), shard.overhead()), (vec![0], 0));
}

#[test]
fn swapping_and_flushing_leave_no_empty_database_behind() {
    let (mut shard, hasher) = (Shard::default(), Hasher::new(1));
    shard.swap(0, 9);
    shard.swap(4, 9);
    assert_eq!(numbers(&shard), [0]);
    set(&mut shard, 9, b"a", &hasher);
    shard.swap(9, 2);
    assert_eq!(numbers(&shard), [0, 2]);
    shard.swap(2, 0);
    assert_eq!(numbers(&shard), [0]);
    assert_eq!(shard.first.len(), 1);
    assert_eq!(shard.flush(6, &hasher).0, 0);
    set(&mut shard, 6, b"a", &hasher);
    let (removed, flushed) = shard.flush(6, &hasher);
    assert_eq!((removed, flushed.len()), (1, 1));
    assert_eq!((numbers(&shard), shard.overhead()), (vec![0], shard.first.overhead()));
}

/// Each look removes an item and inserts one at most, however many keys an item stands for.
#[test]
fn keys_that_share_items_are_looked_at_once_each() {
    const KEYS: usize = if cfg!(miri) { 20 } else { 1000 };
    const CELLS: u32 = 16;
    let (mut shard, hasher) = (Shard::default(), Hasher::new(1));
    let database = shard.database_mut(0);
    let keys = (0_u64..).map(u64::to_be_bytes);
    let keys = keys.filter(|key| hasher.hash(key).position() >> POSITION_BITS_LOST < CELLS);
    for (number, key) in keys.take(KEYS).enumerate() {
        let expire_ms = NOW_MS + 1 + 100 * number as i64;
        let entry = OwnedEntry::new(&key, NewValue::Inline(b"v"), Some(expire_ms), 0);
        database.insert(hasher.hash(&key), entry, &hasher);
    }
    assert_eq!(database.expiry.items(), KEYS);
    let (mut gone, mut looks) = (Vec::new(), 0);
    while database.next_due_ms() < i64::MAX {
        let due_ms = database.next_due_ms();
        looks += database.expire_due(due_ms, 16, &hasher, &mut gone, |_| {});
        assert!(database.expiry.items() <= KEYS, "{} items", database.expiry.items());
        assert!(looks <= 3 * KEYS, "{looks} looks");
    }
    assert_eq!((gone.len(), database.len()), (KEYS, 0));
}

#[test]
fn fields_of_many_hashes_go_in_steps() {
    use crate::value::hash::FieldExpiry;
    use crate::value::pages::Given;
    use crate::value::{AnyCollection, Hash as Fields, HashLimits};

    const HASHES: usize = if cfg!(miri) { 3 } else { 64 };
    const FIELDS: usize = 300;
    let (mut shard, hasher) = (Shard::default(), Hasher::new(1));
    let limits = HashLimits { packed_entries: 8, packed_value_len: 8 };
    let database = shard.database_mut(0);
    for key in 0..HASHES {
        let mut hash = Fields::default();
        for field in 0..FIELDS {
            let name = format!("f{field}");
            let at = FieldExpiry::At(NOW_MS + 1);
            hash.set(name.as_bytes(), Given::from(b"v"), at, NOW_MS, &limits, &hasher);
        }
        let (key, value) = (key.to_be_bytes(), NewValue::Collection(AnyCollection::Hash(hash)));
        database.insert(hasher.hash(&key), OwnedEntry::new(&key, value, None, 0), &hasher);
    }
    let (mut gone, mut fields) = (Vec::new(), 0);
    while database.next_due_ms() <= NOW_MS + 100 {
        let mut step = 0;
        database.expire_due(NOW_MS + 100, 64, &hasher, &mut gone, |event| {
            step += usize::from(matches!(event, Reaped::Field(_)));
        });
        assert!(step <= FIELDS_MAX, "{step} fields with the shard held");
        fields += step;
    }
    assert_eq!((fields, gone.len(), database.len()), (HASHES * FIELDS, HASHES, 0));
}

#[test]
fn fields_are_taken_out_of_hashes_and_empty_hashes_with_them() {
    use crate::value::hash::FieldExpiry;
    use crate::value::pages::Given;
    use crate::value::{AnyCollection, Hash as Fields, HashLimits};

    let (mut shard, hasher) = (Shard::default(), Hasher::new(1));
    let limits = HashLimits { packed_entries: 8, packed_value_len: 8 };
    let database = shard.database_mut(0);
    for (key, fields, stays) in [("all", 700, false), ("most", 700, true)] {
        let mut hash = Fields::default();
        for field in 0..fields {
            let (name, at) = (format!("f{field}"), FieldExpiry::At(NOW_MS + field % 7));
            hash.set(name.as_bytes(), Given::from(b"v"), at, NOW_MS, &limits, &hasher);
        }
        if stays {
            hash.set(b"stays", Given::from(b"v"), FieldExpiry::Clear, NOW_MS, &limits, &hasher);
        }
        let value = NewValue::Collection(AnyCollection::Hash(hash));
        let entry = OwnedEntry::new(key.as_bytes(), value, None, 0);
        database.insert(hasher.hash(key.as_bytes()), entry, &hasher);
    }
    assert_eq!(database.volatile(), 0);
    assert!(database.next_due_ms() < i64::MAX);
    let (mut gone, mut reaped, mut fields) = (Vec::new(), Vec::new(), 0);
    let mut expire = |now_ms, gone: &mut Vec<_>| {
        let reaped = |event: Reaped<'_>| match event {
            Reaped::Field(_) => fields += 1,
            Reaped::Hash(key) => reaped.push((key.to_vec(), std::mem::take(&mut fields))),
        };
        database.expire_due(now_ms, 100, &hasher, gone, reaped);
    };
    expire(NOW_MS - 100, &mut gone);
    assert!(gone.is_empty());
    for _ in 0..(2 * 700_usize).div_ceil(FIELDS_MAX) {
        expire(NOW_MS + 100, &mut gone);
    }
    assert_eq!(gone.iter().map(|entry| entry.as_ref().key()).collect::<Vec<_>>(), [b"all"]);
    for key in [&b"all"[..], b"most"] {
        let fields = reaped.iter().filter(|(name, _)| name == key).map(|(_, fields)| fields);
        assert_eq!(fields.sum::<usize>(), 700);
    }
    let place = database.find(hasher.hash(b"most"), b"most").unwrap();
    assert_eq!(database.entry(place).collection::<Fields>().map(Fields::len), Some(1));
    assert_eq!(database.next_due_ms(), i64::MAX);
}

#[test]
fn a_high_number_takes_no_memory_for_those_below() {
    let (mut shard, hasher) = (Shard::default(), Hasher::new(1));
    set(&mut shard, 1_000_000, b"a", &hasher);
    assert!(shard.overhead() < 1000, "{} bytes", shard.overhead());
}

/// What happens to a shard's databases.
#[derive(Clone, Debug)]
enum Event {
    Set { number: u32, expire_ms: i64 },
    Remove { number: u32 },
    Take { number: u32 },
    TakeAll,
    Swap { a: u32, b: u32 },
    Trim,
    Look,
}

fn event() -> impl Strategy<Value = Event> {
    let number = 0..9u32;
    prop_oneof![
        8 => (number.clone(), 1..50i64)
            .prop_map(|(number, at)| Event::Set { number, expire_ms: NOW_MS + 16 * at }),
        3 => number.clone().prop_map(|number| Event::Remove { number }),
        1 => number.clone().prop_map(|number| Event::Take { number }),
        1 => Just(Event::TakeAll),
        2 => (number.clone(), number).prop_map(|(a, b)| Event::Swap { a, b }),
        1 => Just(Event::Trim),
        1 => Just(Event::Look),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: if cfg!(miri) { 4 } else { 256 }, ..Default::default() })]

    #[test]
    fn databases_keep_their_keys_and_none_is_due_unnoticed(
        events in proptest::collection::vec(event(), 0..60),
    ) {
        let (mut shard, hasher) = (Shard::default(), Hasher::new(1));
        let (key, mut model) = (b"key", BTreeMap::new());
        for event in events {
            match event {
                Event::Set { number, expire_ms } => {
                    let (hash, value) = (hasher.hash(key), NewValue::Inline(b"v"));
                    let database = shard.database_mut(number);
                    let found = database.find(hash, key);
                    let clock = AccessClock::new(AccessPolicy::Lru, NOW_MS);
                    database.set(hash, key, found, value, Expire::At(expire_ms), &clock, &hasher);
                    model.insert(number, expire_ms);
                }
                Event::Remove { number } => {
                    if model.remove(&number).is_some() {
                        remove(&mut shard, number, key, &hasher);
                    }
                }
                Event::Take { number } => {
                    let (removed, taken) = shard.take(number);
                    let had = usize::from(model.remove(&number).is_some());
                    prop_assert_eq!((removed, taken.into_entries().count()), (had, had));
                }
                Event::TakeAll => {
                    let (removed, taken) = shard.take_all();
                    let entries = taken.into_entries();
                    prop_assert_eq!((removed, entries.len()), (model.len(), model.len()));
                    prop_assert_eq!(entries.count(), model.len());
                    model.clear();
                }
                Event::Swap { a, b } => {
                    shard.swap(a, b);
                    let (old_a, old_b) = (model.remove(&a), model.remove(&b));
                    model.extend(old_a.map(|ms| (b, ms)).into_iter().chain(old_b.map(|ms| (a, ms))));
                }
                Event::Trim => shard.trim(),
                Event::Look => shard.look_when_due(),
            }
            prop_assert!(shard.used().map(|(number, _)| number).is_sorted());
            let kept = shard.used().flat_map(|(number, database)| {
                database.table().iter().map(move |entry| (number, entry.expire_ms().unwrap()))
            });
            prop_assert_eq!(kept.collect::<BTreeMap<_, _>>(), model.clone());
            let due_ms = shard.used().map(|(_, database)| database.next_due_ms()).min().unwrap();
            prop_assert!(shard.next_due_ms() <= due_ms);
            prop_assert_eq!(shard.due_from(0, due_ms - 1), None);
            prop_assert!(shard.due_from(0, due_ms).is_some());
        }
        shard.look_when_due();
        let due_ms = shard.used().map(|(_, database)| database.next_due_ms()).min().unwrap();
        prop_assert_eq!(shard.next_due_ms(), due_ms);
    }
}
