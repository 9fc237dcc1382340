use std::collections::{HashMap, HashSet};

use proptest::prelude::*;

use super::*;
use crate::entry::{NewValue, SharedString};

fn entry(key: &[u8], value: &[u8]) -> OwnedEntry {
    OwnedEntry::new(key, NewValue::Inline(value), None, 0)
}

fn check(table: &Table, hasher: &Hasher) {
    let count = table.bucket_count();
    assert_eq!(table.iter().count(), table.len());
    for entry in table.iter() {
        assert!(table.find(hasher.hash(entry.key()), entry.key()).is_some());
    }
    for bucket in table.buckets() {
        assert!(bucket.0[bucket.used()..].iter().all(|slot| slot.is_empty()));
    }
    let mut scanned = 0;
    let mut position = (count > 0).then_some(0);
    while let Some(from) = position {
        position = table.scan(from, hasher, |_| scanned += 1);
    }
    assert_eq!(scanned, table.len());
}

#[derive(Clone, Debug)]
enum Step {
    Set(u16, u8),
    Remove(u16),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let key = 0..600u16;
    prop::collection::vec(
        prop_oneof![
            3 => (key.clone(), any::<u8>()).prop_map(|(k, v)| Step::Set(k, v)),
            2 => key.prop_map(Step::Remove),
        ],
        0..if cfg!(miri) { 300 } else { 3000 },
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 1 } else { 64 }))]
    #[test]
    fn behaves_like_a_map(steps in steps(), seed: u64) {
        let hasher = Hasher::new(seed);
        let mut table = Table::new();
        let mut model = HashMap::new();
        for step in steps {
            match step {
                Step::Set(key, value) => {
                    let bytes = key.to_le_bytes();
                    let hash = hasher.hash(&bytes);
                    match table.find(hash, &bytes) {
                        Some(place) => drop(table.replace(place, entry(&bytes, &[value]))),
                        None => drop(table.insert(hash, entry(&bytes, &[value]), &hasher)),
                    }
                    model.insert(key, value);
                }
                Step::Remove(key) => {
                    let bytes = key.to_le_bytes();
                    let found = table.find(hasher.hash(&bytes), &bytes);
                    prop_assert_eq!(found.is_some(), model.remove(&key).is_some());
                    if let Some(place) = found {
                        let removed = table.remove(place, &hasher);
                        prop_assert_eq!(removed.as_ref().key(), bytes);
                    }
                }
            }
        }
        prop_assert_eq!(table.len(), model.len());
        for (key, value) in &model {
            let bytes = key.to_le_bytes();
            let place = table.find(hasher.hash(&bytes), &bytes).unwrap();
            let found = table.entry(place);
            prop_assert!(found.string() == [*value][..]);
        }
        check(&table, &hasher);
    }
}

#[test]
fn keys_of_every_length_are_told_apart_at_every_byte() {
    for len in 0..80 {
        let key: Vec<u8> = (0..len as u8).collect();
        assert!(same(&key, &key.clone()));
        assert!(!same(&key, &[&key[..], b"x"].concat()));
        for at in 0..len {
            let mut other = key.clone();
            other[at] ^= 0x80;
            assert!(!same(&key, &other), "{len} {at}");
        }
    }
}

/// Keys that all have the same home, so that distances exceed what a slot can hold.
#[test]
fn crowds_of_one_home_stay_reachable() {
    let hasher = Hasher::new(1);
    let mut table = Table::with_buckets(48);
    let crowd: Vec<_> = (0..400_000u32)
        .map(u32::to_le_bytes)
        .filter(|key| home(hasher.hash(key).position(), 48) == 47)
        .take(100)
        .collect();
    for key in &crowd {
        table.insert(hasher.hash(key), entry(key, b"v"), &hasher);
    }
    check(&table, &hasher);
    for (i, key) in crowd.iter().enumerate() {
        let place = table.find(hasher.hash(key), key).unwrap();
        drop(table.remove(place, &hasher));
        if i % 10 == 0 {
            check(&table, &hasher);
        }
    }
    assert!(table.is_empty());
    assert_eq!(table.bucket_count(), 0);
}

#[test]
fn places_near_a_position_are_all_that_share_its_high_bits() {
    let hasher = Hasher::new(4);
    let mut table = Table::new();
    let (many, looks) = if cfg!(miri) { (100, 5) } else { (3000, 100) };
    let keys: Vec<_> = (0..many).map(u32::to_le_bytes).collect();
    for key in &keys {
        table.insert(hasher.hash(key), entry(key, b""), &hasher);
    }
    // Up to a range that is wider than a bucket.
    for bits_ignored in [0, 6, 20, 24, 28] {
        for key in &keys[..looks] {
            let position = hasher.hash(key).position();
            let near = |other: &&[u8; 4]| {
                hasher.hash(*other).position() >> bits_ignored == position >> bits_ignored
            };
            let mut places = Vec::new();
            table.places_near(position, bits_ignored, &hasher, &mut places);
            assert_eq!(places.len(), keys.iter().filter(near).count(), "{bits_ignored} bits");
        }
    }
}

#[test]
#[should_panic(expected = "a place of an entry")]
fn a_place_whose_entry_is_gone_is_refused() {
    let hasher = Hasher::new(5);
    let mut table = Table::new();
    for key in [b"a", b"b"] {
        table.insert(hasher.hash(key), entry(key, b""), &hasher);
    }
    let places = [b"a", b"b"].map(|key| table.find(hasher.hash(key), key).unwrap());
    let last = places.into_iter().max_by_key(|place| place.slot()).unwrap();
    drop(table.remove(places[0], &hasher));
    drop(table.replace(last, entry(b"b", b"again")));
}

#[test]
fn a_table_that_is_given_up_yields_each_entry_once_and_frees_the_rest() {
    let (hasher, value) = (Hasher::new(1), SharedString::new(vec![b'v'; 100]));
    for taken in [0, 1, 8, 20, 40] {
        let mut table = Table::new();
        for number in 0..40 {
            let (key, value) = (format!("key {number}"), NewValue::Shared(value.clone()));
            let entry = OwnedEntry::new(key.as_bytes(), value, None, 0);
            table.insert(hasher.hash(key.as_bytes()), entry, &hasher);
        }
        let mut entries = table.into_entries();
        let keys = entries.by_ref().take(taken).map(|entry| entry.as_ref().key().to_vec());
        let keys: HashSet<_> = keys.collect();
        assert_eq!((keys.len(), SharedString::strong_count(&value)), (taken, 41 - taken));
        assert_eq!(entries.len(), 40 - taken);
        assert_eq!(entries.next().is_none(), taken == 40);
        drop(entries);
        assert_eq!(SharedString::strong_count(&value), 1);
    }
    assert!(Table::new().into_entries().next().is_none());
}

#[test]
fn picks_are_even() {
    let hasher = Hasher::new(5);
    let mut table = Table::new();
    assert!(table.pick(|_| 0).is_none());
    for i in 0..50u32 {
        let key = i.to_le_bytes();
        table.insert(hasher.hash(&key), entry(&key, b""), &hasher);
    }
    let mut state = 1u64;
    let mut random = |bound: u32| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (((state >> 33) * u64::from(bound)) >> 31) as u32
    };
    let mut counts = HashMap::new();
    // Miri only checks that each pick is an entry.
    for _ in 0..if cfg!(miri) { 300 } else { 50_000 } {
        let key = table.pick(&mut random).unwrap().key().to_vec();
        *counts.entry(key).or_insert(0) += 1;
    }
    let even = counts.len() == 50 && counts.values().all(|count| (800..1200).contains(count));
    assert!(even || cfg!(miri), "{counts:?}");
}

#[test]
fn a_scan_across_resizes_misses_nothing_and_repeats_nothing() {
    const MANY: u32 = if cfg!(miri) { 100 } else { 1000 };
    let hasher = Hasher::new(9);
    let mut table = Table::new();
    let key = |i: u32| i.to_le_bytes();
    for i in 0..MANY {
        table.insert(hasher.hash(&key(i)), entry(&key(i), b""), &hasher);
    }
    let mut seen = Vec::new();
    let mut position = Some(0);
    let mut turn = 0u32;
    while let Some(from) = position {
        position = table.scan(from, &hasher, |entry| seen.push(entry.key().to_vec()));
        // Grow and shrink the table by adding and removing other keys.
        let range = 10_000 + turn * MANY..10_000 + (turn + 1) * MANY;
        if turn < 5 {
            for i in range {
                table.insert(hasher.hash(&key(i)), entry(&key(i), b""), &hasher);
            }
        } else if turn < 10 {
            for i in 10_000 + (turn - 5) * MANY..10_000 + (turn - 4) * MANY {
                let place = table.find(hasher.hash(&key(i)), &key(i)).unwrap();
                drop(table.remove(place, &hasher));
            }
        }
        turn += 1;
    }
    let total = seen.len();
    seen.sort();
    seen.dedup();
    assert_eq!(seen.len(), total);
    for i in 0..MANY {
        assert!(seen.binary_search(&key(i).to_vec()).is_ok());
    }
}
