use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;

use super::*;

fn key(number: u64) -> Vec<u8> {
    format!("member:{number}").into_bytes()
}

fn contents(table: &RecordTable) -> BTreeMap<Vec<u8>, Vec<u8>> {
    let value = |record: TableRecord<'_>| {
        record.value.map_or_else(Vec::new, |value| value.bytes().to_vec())
    };
    let contents: BTreeMap<_, _> =
        table.iter().map(|record| (record.key.bytes().to_vec(), value(record))).collect();
    assert_eq!(contents.len(), table.len());
    assert_eq!(table.iter().len(), table.len());
    contents
}

/// Checks what must hold for every table.
fn verify(table: &RecordTable, hasher: &Hasher) {
    let root = match &table.pages {
        Pages::Many(root) => root,
        Pages::One(page) => {
            assert!(page.len() <= 64);
            assert!(table.iter().all(|record| {
                let place = table.find(record.key.bytes(), hasher).unwrap();
                table.record(place).key.bytes() == record.key.bytes()
            }));
            assert_eq!(table.has_expiring(), table.iter().any(|record| record.expire_ms.is_some()));
            return;
        }
    };
    assert!(root.only_page().is_none());
    let (mut len, mut bytes, mut last) = (0, 0, None);
    assert_eq!(root.index.len(), 1 << root.bits);
    for (node_index, slot) in root.nodes.iter().enumerate() {
        let mine = root.index.iter().filter(|&&node| node as usize == node_index).count();
        assert_eq!(mine, 1 << (root.bits - slot.depth));
        assert_eq!(slot.count, slot.node.count());
        for (page_index, page_slot) in slot.node.pages.iter().enumerate() {
            assert_eq!(page_slot.count as usize, page_slot.page.len());
            bytes += page_slot.page.memory();
            for index in 0..page_slot.page.len() {
                let record = page_slot.page.record(index);
                let hash = hasher.hash(record.key.bytes()).0;
                let (node, page, depth) = root.locate(hash);
                assert_eq!((node, page), (node_index, page_index));
                let prefix = hash.checked_shr(64 - u32::from(depth)).unwrap_or(0);
                assert!(last.is_none_or(|(at, was)| at != (node, page) || was == prefix));
                last = Some(((node, page), prefix));
                bytes += record.outside_memory();
                len += 1;
            }
        }
    }
    assert_eq!((root.len, root.bytes), (len, bytes));
}

/// The nodes of a table of many pages; 0: it is one page.
fn nodes(table: &RecordTable) -> usize {
    match &table.pages {
        Pages::One(_) => 0,
        Pages::Many(root) => root.nodes.len(),
    }
}

#[test]
fn grows_and_shrinks_over_every_level() {
    let hasher = Hasher::new(3);
    let many = if cfg!(miri) { 400 } else { 60_000 };
    let mut table = RecordTable::new(false);
    for number in 0..many {
        assert!(table.insert_new(Given::Bytes(&key(number)), None, &hasher));
        assert!(!table.insert_new(Given::Bytes(&key(number)), None, &hasher));
    }
    verify(&table, &hasher);
    assert!(cfg!(miri) || nodes(&table) > 2);
    let pinned = table.clone();
    for number in 0..many {
        assert!(table.find(&key(number), &hasher).is_some());
        assert!(table.find(&key(number + many), &hasher).is_none());
    }
    for number in 0..many - 3 {
        assert!(table.remove(&key(number), &hasher));
        assert!(!table.remove(&key(number), &hasher));
        if number % 10_000 == 0 {
            verify(&table, &hasher);
        }
    }
    verify(&table, &hasher);
    assert_eq!(table.len(), 3);
    assert_eq!(nodes(&table), 0);
    assert!(table.memory() < 300, "{} bytes for three records", table.memory());
    verify(&pinned, &hasher);
    assert_eq!(contents(&pinned), (0..many).map(|number| (key(number), Vec::new())).collect());
}

#[test]
fn memory_stays_near_the_bytes() {
    let hasher = Hasher::new(3);
    let many = if cfg!(miri) { 500 } else { 100_000 };
    let mut table = RecordTable::new(false);
    for number in 0..many {
        table.insert_new(Given::Bytes(format!("{number:016}").as_bytes()), None, &hasher);
    }
    let each = table.memory() as f64 / many as f64;
    assert!(cfg!(miri) || each < 27.0, "{each} bytes for 16");
}

#[test]
fn every_index_is_another_record() {
    let hasher = Hasher::new(5);
    let mut table = RecordTable::new(false);
    let many = if cfg!(miri) { 200 } else { 5000 };
    for number in 0..many {
        table.insert_new(Given::Bytes(&key(number)), None, &hasher);
    }
    let seen: BTreeSet<_> = (0..many as usize)
        .map(|index| table.record(table.nth(index).unwrap()).key.bytes().to_vec())
        .collect();
    assert_eq!(seen.len() as u64, many);
    assert!(table.nth(many as usize).is_none());
}

// What Redis guarantees: a walk returns every element that is there from its beginning to its end.
#[test]
fn a_walk_sees_what_stays_while_the_table_changes() {
    let hasher = Hasher::new(9);
    let many = if cfg!(miri) { 150 } else { 3000 };
    for grows in [true, false] {
        let mut table = RecordTable::new(false);
        let stays = |number: u64| number < many / 10;
        let total = if grows { many / 10 } else { many };
        for number in 0..total {
            table.insert_new(Given::Bytes(&key(number)), None, &hasher);
        }
        let mut seen = BTreeMap::new();
        let (mut cursor, mut changed, mut turns) = (0, many / 10, 0);
        loop {
            let mut shown = 0;
            cursor = table.scan(cursor, 10, &hasher, |record| {
                *seen.entry(record.key.bytes().to_vec()).or_insert(0) += 1;
                shown += 1;
            });
            assert!(shown <= 10, "{shown} records");
            turns += 1;
            if cursor == 0 {
                break;
            }
            for _ in 0..many / 50 {
                if changed < many {
                    if grows {
                        table.insert_new(Given::Bytes(&key(changed)), None, &hasher);
                    } else {
                        table.remove(&key(changed), &hasher);
                    }
                    changed += 1;
                }
            }
        }
        assert!(cfg!(miri) || turns > 3);
        assert!(
            (0..many).filter(|&number| stays(number)).all(|number| seen.contains_key(&key(number)))
        );
        assert!(seen.values().all(|&times| times == 1));
    }
}

#[test]
fn long_strings_lie_outside_and_are_shared() {
    let hasher = Hasher::new(9);
    let mut table = RecordTable::new(true);
    let long = crate::value::SharedString::new(vec![b'x'; 1000]);
    table.set(Given::Shared(&long), Some(Given::Shared(&long)), None, &hasher);
    let Some(RecordText::Outside(outside)) = table.iter().next().and_then(|record| record.value)
    else {
        panic!("not outside");
    };
    assert!(std::ptr::eq(outside.bytes(), long.as_slice()));
    let shared = outside.to_shared();
    let copy = table.clone();
    for number in 0..100 {
        table.set(Given::Bytes(&key(number)), Some(Given::Bytes(b"v")), Some(5), &hasher);
    }
    assert!(table.find(&long, &hasher).is_some());
    verify(&table, &hasher);
    assert!(table.remove(&long, &hasher));
    verify(&table, &hasher);
    assert_eq!(copy.len(), 1);
    assert_eq!(table.remove_expired(5, 1000, &hasher, |_| {}), 100);
    assert_eq!((table.len(), table.earliest_ms()), (0, NEVER));
    drop((table, copy, shared));
    assert_eq!(std::sync::Arc::strong_count(&long), 1);
}

#[test]
fn a_table_of_one_page_knows_what_one_of_many_does() {
    let hasher = Hasher::new(9);
    let mut table = RecordTable::new(true);
    let value = Some(Given::Bytes(b"value"));
    // A look at all records takes long under Miri.
    let look = |table: &RecordTable, number: u64| {
        if !cfg!(miri) || number.is_multiple_of(50) {
            verify(table, &hasher);
        }
    };
    let last = table.set(Given::Bytes(b"last"), value, Some(i64::MAX), &hasher);
    assert!(last && table.has_expiring() && table.earliest_ms() < NEVER);
    for number in 0..200 {
        let expire_ms = (number % 2 == 0).then_some(1000 + number as i64);
        let before = table.clone();
        assert!(table.is_same(&before));
        assert!(table.set(Given::Bytes(&key(number)), value, expire_ms, &hasher));
        assert!(!table.is_same(&before) && before.len() + 1 == table.len());
        assert!(table.has_expiring());
        look(&table, number);
    }
    assert!(nodes(&table) == 1 && table.earliest_ms() == 1000);
    assert_eq!(table.remove_expired(999, 1000, &hasher, |_| {}), 0);
    for removed in [60, 40, 0] {
        assert_eq!(table.remove_expired(1198, 60, &hasher, |_| {}), removed);
        verify(&table, &hasher);
    }
    for number in (1..200).step_by(2) {
        assert!(table.has_expiring());
        assert!(table.remove(&key(number), &hasher));
        look(&table, number - 1);
    }
    assert_eq!((nodes(&table), table.len()), (0, 1));
    let place = table.find(b"last", &hasher).unwrap();
    assert_eq!(table.record(place).expire_ms, Some(i64::MAX));
    table.set_expiry(place, None);
    assert!(!table.has_expiring());
    assert_eq!(table.remove_expired(i64::MAX, 1, &hasher, |_| {}), 0);
    assert_eq!(table.earliest_ms(), NEVER);
}

/// The first byte of a key says how many bits its hash shares with all others. The next four bytes
/// are the rest of the hash.
fn colliding() -> Hasher {
    Hasher::given(|key| {
        let [shared, rest @ ..] = *key.first_chunk::<5>().unwrap();
        let rest = u64::from(u32::from_le_bytes(rest)) << 32;
        // The rest begins at bit 63 - `shared`. That bit is set, so that no two hashes share more.
        (1 << 63 | rest >> 1).checked_shr(u32::from(shared)).unwrap_or(0)
    })
}

fn colliding_key(shared: u8, number: u32, len: usize) -> Vec<u8> {
    let mut key = vec![shared];
    // Each key has its own hash, unless all hashes are equal.
    key.extend(number.wrapping_mul(0x9e37_79b1).to_le_bytes());
    key.extend(number.to_le_bytes());
    key.resize(len.max(key.len()), b'k');
    key
}

// SSCAN's cursors show 48 bits of a hash. So a client can search for members whose hashes begin
// with the same bits.
#[test]
fn hashes_that_begin_alike_make_a_long_page() {
    let hasher = colliding();
    let many = if cfg!(miri) { 40 } else { 700 };
    for shared in [18, 36, 64] {
        for len in [9, 500] {
            let mut table = RecordTable::new(true);
            for number in 0..many {
                let key = colliding_key(shared, number, len);
                assert!(table.set(Given::Bytes(&key), Some(Given::Bytes(b"v")), None, &hasher));
            }
            verify(&table, &hasher);
            let short = table.clone();
            // Values grow in place.
            for number in 0..many {
                let key = colliding_key(shared, number, len);
                assert!(!table.set(
                    Given::Bytes(&key),
                    Some(Given::Bytes(&[b'v'; 512])),
                    None,
                    &hasher
                ));
            }
            verify(&table, &hasher);
            assert!(table.memory() < 2_000 * many as usize, "{} bytes", table.memory());
            let (mut shown, mut cursor) = (0, 0);
            loop {
                cursor = table.scan(cursor, 10, &hasher, |_| shown += 1);
                if cursor == 0 {
                    break;
                }
            }
            assert_eq!(shown, many);
            assert!((0..many as usize).all(|index| table.nth(index).is_some()));
            for number in 0..many {
                assert!(table.remove(&colliding_key(shared, number, len), &hasher));
                if number % 64 == 0 {
                    verify(&table, &hasher);
                }
            }
            assert!(contents(&short).values().all(|value| value == b"v"));
            verify(&short, &hasher);
        }
    }
}

// More than 16 bits can count.
#[test]
fn equal_hashes_of_very_many_records_are_only_slow() {
    let hasher = colliding();
    let mut table = RecordTable::new(false);
    // With fewer records each is longer, because the page must need offsets of 32 bits.
    let (many, longer) = if cfg!(miri) { (140, 480) } else { (70_000, 0) };
    for number in 0..many {
        let mut key = colliding_key(36, 0, 0);
        key.extend(u32::to_le_bytes(number));
        key.resize(key.len() + longer, 0);
        assert!(table.insert_new(Given::Bytes(&key), None, &hasher));
    }
    verify(&table, &hasher);
    assert_eq!(contents(&table).len(), many as usize);
    assert!(table.memory() < 4_000_000, "{} bytes", table.memory());
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: if cfg!(miri) { 2 } else { 64 },
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn behaves_like_a_map(
        changes in prop::collection::vec((0u64..300, 0usize..900, 0..8), 0..if cfg!(miri) { 80 } else { 600 }),
        values in any::<bool>(),
    ) {
        let hasher = Hasher::new(11);
        let (mut table, mut model) = (RecordTable::new(values), BTreeMap::new());
        let mut held = Vec::new();
        for (number, len, what) in changes {
            // Some keys are long too.
            let mut key = key(number);
            key.resize(key.len() + if number % 17 == 0 { number as usize * 2 } else { 0 }, b'k');
            let value = vec![b'v'; if values { len / if what == 3 { 1 } else { 20 } } else { 0 }];
            match what {
                0 | 1 => prop_assert_eq!(table.remove(&key, &hasher), model.remove(&key).is_some()),
                2 => {
                    if held.len() > 2 {
                        held.remove(0);
                    }
                    held.push((table.clone(), model.clone()));
                }
                _ => {
                    let given = values.then_some(Given::Bytes(&value));
                    let added = table.set(Given::Bytes(&key), given, None, &hasher);
                    prop_assert_eq!(added, model.insert(key, value).is_none());
                }
            }
        }
        verify(&table, &hasher);
        prop_assert_eq!(contents(&table), model);
        for (table, model) in held {
            verify(&table, &hasher);
            prop_assert_eq!(contents(&table), model);
        }
    }
    #[test]
    fn keys_that_collide_behave_like_a_map(
        changes in prop::collection::vec(
            (0u32..400, 0usize..600, 0..16), 0..if cfg!(miri) { 80 } else { 1500 },
        ),
        len in 9usize..560,
        values in any::<bool>(),
    ) {
        let hasher = colliding();
        let (mut table, mut model) = (RecordTable::new(values), BTreeMap::new());
        let mut held = Vec::new();
        for (number, value_len, what) in changes {
            let shared = [0, 8, 17, 18, 19, 40, 40, 40][number as usize % 8];
            let key = colliding_key(shared, number, len);
            let value = vec![b'v'; if values { value_len } else { 0 }];
            match what {
                0..3 => prop_assert_eq!(table.remove(&key, &hasher), model.remove(&key).is_some()),
                3 => {
                    if held.len() > 2 {
                        held.remove(0);
                    }
                    held.push((table.clone(), model.clone()));
                }
                4 => {
                    if let Some(place) = table.find(&key, &hasher) {
                        table.set_expiry(place, Some(i64::from(number)));
                    }
                }
                _ => {
                    let given = values.then_some(Given::Bytes(&value));
                    let added = table.set(Given::Bytes(&key), given, None, &hasher);
                    prop_assert_eq!(added, model.insert(key, value).is_none());
                }
            }
        }
        verify(&table, &hasher);
        prop_assert_eq!(contents(&table), model);
        for (table, model) in held {
            verify(&table, &hasher);
            prop_assert_eq!(contents(&table), model);
        }
    }
}
