use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;

type Model = BTreeMap<StreamId, Vec<Vec<u8>>>;

fn contents<'a>(entries: impl Iterator<Item = StreamEntry<'a>>) -> Vec<(StreamId, Vec<Vec<u8>>)> {
    entries.map(|entry| (entry.id, items(&entry))).collect()
}

fn items(entry: &StreamEntry<'_>) -> Vec<Vec<u8>> {
    entry.iter().flat_map(|(field, value)| [field.to_vec(), value.to_vec()]).collect()
}

fn expected<'a>(
    entries: impl Iterator<Item = (&'a StreamId, &'a Vec<Vec<u8>>)>,
) -> Vec<(StreamId, Vec<Vec<u8>>)> {
    entries.map(|(id, items)| (*id, items.clone())).collect()
}

fn append(log: &mut StreamLog, id: StreamId, items: &[Vec<u8>], limits: StreamLimits) {
    let bytes = items.iter().map(Vec::len).sum();
    log.append(id, items.iter().map(Item::from), bytes, limits);
}

fn fields() -> impl Strategy<Value = Vec<Vec<u8>>> {
    let value = prop_oneof![
        Just(b"value".to_vec()),
        (-70000..70000i64).prop_map(|number| number.to_string().into_bytes()),
        proptest::collection::vec(any::<u8>(), 0..90),
    ];
    let same = proptest::collection::vec(value.clone(), 2).prop_map(|values| {
        vec![b"one".to_vec(), values[0].clone(), b"2".to_vec(), values[1].clone()]
    });
    let other = (value.clone(), value).prop_map(|(field, value)| vec![field, value]);
    prop_oneof![3 => same, 1 => other]
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: if cfg!(miri) { 2 } else { 256 },
        failure_persistence: None,
        ..ProptestConfig::default()
    })]
    #[test]
    fn behaves_like_a_sorted_map_while_clones_stay_as_they_were(
        limits in prop_oneof![Just((0, 5)), Just((0, 40)), Just((200, 0)), Just((4096, 100))],
        steps in proptest::collection::vec((0..12u8, 0..40u64, 0..5u64, fields()), 1..if cfg!(miri) { 60 } else { 300 })
    ) {
        let limits = StreamLimits { node_bytes_max: limits.0, node_entries_max: limits.1 };
        let (mut stream, mut model) = (Stream::new(), Model::new());
        let mut clones = Vec::new();
        let mut added = 0;
        for (what, ms, seq, items) in steps {
            let log = stream.log_mut();
            let id = StreamId::new(log.last_id.ms.saturating_sub(ms * 3), seq);
            match what {
                0..=6 => {
                    let ms = [0, 0, 1, 20, 5000][seq as usize];
                    let id = StreamId::new(log.last_id.ms + ms, if ms == 0 { log.last_id.seq + 1 + seq % 2 } else { seq % 3 });
                    append(log, id, &items, limits);
                    model.insert(id, items);
                    added += 1;
                }
                7 => prop_assert_eq!(log.delete(id), model.remove(&id).is_some()),
                8 => {
                    let len = model.len().saturating_sub(ms as usize);
                    let trimmed = log.trim(StreamTrim::Len(len), false, 0);
                    prop_assert_eq!(trimmed, model.len() - len);
                    (0..trimmed).for_each(|_| drop(model.pop_first()));
                }
                9 => {
                    let trimmed = log.trim(StreamTrim::Id(id), false, 0);
                    let kept = model.split_off(&id);
                    prop_assert_eq!(trimmed, model.len());
                    model = kept;
                }
                10 => {
                    let len = model.len().saturating_sub(ms as usize);
                    let trimmed = log.trim(StreamTrim::Len(len), true, 20);
                    prop_assert!(trimmed <= 20 && log.len() >= len);
                    (0..trimmed).for_each(|_| drop(model.pop_first()));
                }
                _ if clones.len() < 4 => clones.push((stream.clone(), model.clone())),
                _ => {}
            }
            let log = stream.log();
            prop_assert_eq!((log.len(), log.entries_added), (model.len(), added));
            prop_assert_eq!(log.first_id(), model.keys().next().copied().unwrap_or_default());
            prop_assert!(log.greatest_id() <= log.last_id);
            prop_assert_eq!(log.entry(id).map(|entry| self::items(&entry)), model.get(&id).cloned());
            let end = StreamId::new(id.ms + 30, 2);
            prop_assert_eq!(contents(log.range(id, end)), expected(model.range(id..=end)));
            prop_assert_eq!(contents(log.range_back(id, end)), expected(model.range(id..=end).rev()));
        }
        clones.push((stream, model));
        for (stream, model) in clones {
            let log = stream.log();
            prop_assert_eq!(contents(log.range(StreamId::ZERO, StreamId::MAX)), expected(model.iter()));
            prop_assert_eq!(
                contents(log.range_back(StreamId::ZERO, StreamId::MAX)),
                expected(model.iter().rev())
            );
        }
    }
}

/// Where valkey-server 9.1.2 begins new nodes for these entries, obtained from its XINFO STREAM
/// (radix-tree-keys).
#[test]
fn nodes_end_where_redis_ends_them() {
    let limits = StreamLimits { node_bytes_max: 4096, node_entries_max: 100 };
    // Miri needs a minute for a thousand entries.
    for (fields, len, count, nodes) in NODES.iter().filter(|row| !cfg!(miri) || row.2 < 30) {
        let mut log = StreamLog::default();
        for number in 1..=*count {
            let items: Vec<_> = (0..*fields)
                .flat_map(|field| [format!("field{field}").into_bytes(), vec![b'x'; *len]])
                .collect();
            append(&mut log, StreamId::new(number, 0), &items, limits);
        }
        assert_eq!(log.nodes().len(), *nodes, "{fields} fields of {len} bytes");
    }
}

/// Fields, bytes of each value, entries, nodes.
const NODES: &[(usize, usize, u64, usize)] = &[
    (1, 3, 250, 3),
    (2, 11, 1000, 10),
    (2, 40, 300, 7),
    (3, 0, 1000, 10),
    (10, 10, 300, 10),
    (1, 1000, 20, 5),
    (1, 5000, 3, 3),
];

#[test]
fn an_entry_with_the_fields_of_its_node_takes_a_byte_and_its_values() {
    let limits = StreamLimits { node_bytes_max: 4096, node_entries_max: 100 };
    let mut log = StreamLog::default();
    for number in 0..100 {
        let items = [
            b"field1".to_vec(),
            b"0123456789x".to_vec(),
            b"field2".to_vec(),
            b"abcdefghij".to_vec(),
        ];
        append(
            &mut log,
            StreamId::new(1_700_000_000_000 + number / 3, number % 3 + 1),
            &items,
            limits,
        );
    }
    let node = log.nodes().first().unwrap();
    assert_eq!((log.nodes().len(), node.live()), (1, 100));
    // An entry that begins a new millisecond, with the number 1, needs another byte to say so.
    assert_eq!(node.byte_len(), 14 + 100 * (1 + 12 + 11) + 33);
}

#[test]
fn what_is_pending_belongs_to_one_consumer() {
    let mut group = ConsumerGroup::new(StreamId::ZERO, None);
    let [a, b] = [b"a", b"b"].map(|name| group.add_consumer(name, 5));
    let id = |seq| StreamId::new(1, seq);
    (1..=4).for_each(|seq| group.assign(id(seq), a, 7, 1));
    let pinned = group.clone();
    group.assign(id(2), b, 8, 2);
    assert!(group.acknowledge(id(1)) && !group.acknowledge(id(1)));
    let ids = |group: &ConsumerGroup, consumer| -> Vec<u64> {
        group.pending_from(StreamId::ZERO, consumer).map(|pending| pending.id.seq).collect()
    };
    assert_eq!(
        (ids(&group, None), ids(&group, Some(a)), ids(&group, Some(b))),
        (vec![2, 3, 4], vec![3, 4], vec![2])
    );
    assert_eq!(group.remove_consumer(b"a"), Some(2));
    assert_eq!((ids(&group, None), group.consumer_number(b"a")), (vec![2], None));
    assert_eq!(ids(&pinned, Some(a)), [1, 2, 3, 4]);
    assert_eq!(group.add_consumer(b"c", 9), a);
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: if cfg!(miri) { 2 } else { 128 },
        failure_persistence: None,
        ..ProptestConfig::default()
    })]
    /// Compares with a map that says which consumer has which entry pending, and how often the
    /// entry was delivered.
    #[test]
    fn a_group_behaves_like_a_map_while_clones_stay_as_they_were(
        steps in proptest::collection::vec((0..10u8, 0..400u64, 0..3usize), 1..if cfg!(miri) { 80 } else { 700 })
    ) {
        const NAMES: [&[u8]; 3] = [b"one", b"two", b"three"];
        let (mut group, mut model) = (ConsumerGroup::new(StreamId::ZERO, None), BTreeMap::new());
        let mut clones = Vec::new();
        for (step, (what, seq, name)) in steps.into_iter().enumerate() {
            let (id, now_ms) = (StreamId::new(seq / 90, seq), step as i64);
            let number = group
                .consumer_number(NAMES[name])
                .unwrap_or_else(|| group.add_consumer(NAMES[name], now_ms));
            match what {
                0..5 => {
                    group.assign(id, number, now_ms, 1);
                    model.insert(id, (name, now_ms, 1));
                }
                5 => {
                    group.deliver_again(id, now_ms);
                    if let Some((_, delivered_ms, deliveries)) = model.get_mut(&id) {
                        (*delivered_ms, *deliveries) = (now_ms, *deliveries + 1);
                    }
                }
                6..8 => prop_assert_eq!(group.acknowledge(id), model.remove(&id).is_some()),
                8 if seq < 20 => {
                    let before = model.len();
                    model.retain(|_, (owner, _, _)| *owner != name);
                    prop_assert_eq!(group.remove_consumer(NAMES[name]), Some(before - model.len()));
                }
                9 if clones.len() < 4 => clones.push((group.clone(), model.clone())),
                _ => {}
            }
            prop_assert_eq!(group.pending().len(), model.len());
        }
        clones.push((group, model));
        for (group, model) in clones {
            let name_of = |pending: &Pending| group.consumer(pending.consumer()).map(Consumer::name);
            let all = group.pending_from(StreamId::ZERO, None);
            let found = all.map(|pending| (pending.id, name_of(pending), pending.delivered_ms, pending.deliveries));
            let wanted = model.iter().map(|(id, (name, ms, count))| (*id, Some(NAMES[*name]), *ms, *count));
            prop_assert!(found.eq(wanted));
            for (at, name) in NAMES.into_iter().enumerate() {
                let Some(number) = group.consumer_number(name) else { continue };
                let found = group.pending_from(StreamId::ZERO, Some(number)).map(|pending| pending.id);
                let wanted = model.iter().filter(|(_, (owner, _, _))| *owner == at).map(|(id, _)| *id);
                prop_assert!(found.eq(wanted));
            }
        }
    }
}

#[test]
fn whether_a_log_only_grew_and_a_group_is_the_same() {
    let limits = StreamLimits { node_bytes_max: 4096, node_entries_max: 3 };
    let mut stream = Stream::new();
    let add = |stream: &mut Stream, ms| {
        append(stream.log_mut(), StreamId::new(ms, 0), &[b"f".to_vec(), b"v".to_vec()], limits);
    };
    let before = stream.clone();
    (1..=10).for_each(|ms| add(&mut stream, ms));
    assert!(stream.log().only_grew(before.log()));
    let before = stream.clone();
    add(&mut stream, 11);
    assert!(stream.log().only_grew(before.log()));
    let mut deleted = stream.clone();
    assert!(deleted.log_mut().delete(StreamId::new(5, 0)));
    add(&mut deleted, 12);
    assert!(!deleted.log().only_grew(before.log()));
    let mut trimmed = stream.clone();
    trimmed.log_mut().trim(StreamTrim::Len(5), false, 0);
    assert!(!trimmed.log().only_grew(before.log()));

    assert!(stream.groups_mut().add(b"g", ConsumerGroup::new(StreamId::ZERO, None)));
    let before = stream.clone();
    add(&mut stream, 12);
    assert!(stream.groups().is_same(before.groups(), b"g"));
    assert!(!stream.groups().is_same(before.groups(), b"other"));
    let draft = stream.groups().get(b"g").cloned().unwrap();
    stream.groups_mut().replace(b"g", draft);
    assert!(!stream.groups().is_same(before.groups(), b"g"));
}

/// If a free number had to be searched among all numbers, this would take minutes.
#[test]
fn consumers_get_numbers_that_are_free_without_a_search() {
    let mut group = ConsumerGroup::new(StreamId::ZERO, None);
    let name = |number: u32| number.to_le_bytes();
    let many = if cfg!(miri) { 100 } else { 600_000 };
    for number in 0..many {
        group.add_consumer(&name(number), 5);
    }
    assert_eq!(group.remove_consumer(&name(7)), Some(0));
    assert_eq!(group.remove_consumer(&name(3)), Some(0));
    let numbers = [b"one", b"two"].map(|name| group.add_consumer(name, 6));
    assert_ne!(numbers[0], numbers[1]);
    for (number, name) in numbers.into_iter().zip([b"one", b"two"]) {
        assert_eq!(group.consumer(number).map(Consumer::name), Some(&name[..]));
        assert_eq!(group.consumer_number(name), Some(number));
    }
    assert_eq!(group.consumer_count(), many as usize);
}

/// A node that is too long for a listpack could not be written to a snapshot.
#[test]
fn no_node_gets_longer_than_a_listpack_may_be() {
    assert!(StreamLog::takes(2, NODE_BYTES_MAX / 2) && !StreamLog::takes(2, NODE_BYTES_MAX));
    assert!(!StreamLog::takes(2, NODE_BYTES_MAX - 4) && !StreamLog::takes(usize::MAX, usize::MAX));
    assert!(!StreamLog::takes(NODE_BYTES_MAX / 2, 0));
    let without_limits = StreamLimits { node_bytes_max: 0, node_entries_max: 0 };
    let node = StreamNode::new(StreamId::new(1, 1), [Item::Bytes(b"f")].into_iter(), 0);
    assert!(node.has_room(2, NODE_BYTES_MAX / 2, without_limits));
    assert!(!node.has_room(2, NODE_BYTES_MAX - 40, without_limits));
}

/// The first entry is known, however many deleted entries come before it.
#[test]
fn the_first_entry_is_found_without_a_walk() {
    let mut log = StreamLog::default();
    assert!(log.append_empty_node(StreamId::new(1, 0), std::iter::empty()));
    let many: u64 = if cfg!(miri) { 50 } else { 20_000 };
    for ms in 1..=many {
        assert!(log.append_to_node(StreamId::new(ms, 0), std::iter::empty(), ms < many));
    }
    log.last_id = StreamId::new(many, 0);
    for _ in 0..many {
        assert_eq!(log.first_id(), StreamId::new(many, 0));
    }
    assert_eq!(log.greatest_id(), StreamId::new(many, 0));
    assert!(log.delete(StreamId::new(many, 0)));
    assert_eq!(log.first_id(), StreamId::ZERO);
}
