use proptest::prelude::*;

use super::*;

fn contents(pack: &Listpack) -> Vec<Vec<u8>> {
    pack.iter().map(Item::to_vec).collect()
}

/// Checks everything that must hold for a listpack with these entries.
fn verify(pack: &Listpack, expected: &[Vec<u8>]) {
    assert_eq!(contents(pack), expected);
    let mut backwards: Vec<_> = pack.iter().rev().map(Item::to_vec).collect();
    backwards.reverse();
    assert_eq!(backwards, expected);
    assert_eq!(pack.len(), expected.len());
    assert_eq!(pack.is_empty(), expected.is_empty());
    let (bytes, header) = (pack.to_bytes(), pack.header());
    assert_eq!(bytes.len(), pack.byte_len());
    assert_eq!(check(&bytes), Some(ForeignForm::Shortest));
    assert_eq!(bytes[HEADER..bytes.len() - 1], *pack.entries());
    assert!(Listpack::from_bytes(&bytes).is_some_and(|copy| copy == *pack));
    let gap = usize::from(header.gap);
    assert!(gap == 0 || gap < header.len() / 3 && header.len() >= GAP_LEN_MIN, "{header:?}");
    for (index, value) in expected.iter().enumerate() {
        assert_eq!(pack.get(index), Some(Item::from(value)));
    }
    assert_eq!(pack.get(expected.len()), None);
}

#[test]
#[should_panic(expected = "bytes 22 + 0 of a listpack of 3")]
fn a_position_of_another_listpack_is_refused() {
    let mut pack = Listpack::from_iter([Item::Bytes(b"x")]);
    let other = Listpack::from_iter([Item::Bytes(&[11; 20]), Item::Bytes(b"y")]);
    let behind = other.position(1).expect("there are two");
    pack.insert_before(behind, &[0xff; 40][..]);
}

/// The addresses of its block and of its entries.
fn place(pack: &Listpack) -> (usize, usize) {
    (pack.block.addr().get(), pack.entries().as_ptr().addr())
}

/// Most changes at the ends move no entry, and the free room is never more than a third.
#[test]
fn a_queue_moves_little() {
    for is_front_first in [false, true] {
        let mut pack = Listpack::new();
        let mut next = 0;
        let mut push = |pack: &mut Listpack| {
            let value = format!("element {next:05}").into_bytes();
            next += 1;
            if is_front_first { pack.push_front(&value) } else { pack.push_back(&value) }
        };
        (0..100).for_each(|_| push(&mut pack));
        let (mut moved, len) = (0, pack.byte_len());
        for number in 0..1000 {
            let (block, first) = place(&pack);
            let first_len = entry_len(pack.entries(), 0);
            push(&mut pack);
            let end = if is_front_first { pack.last() } else { pack.first() };
            let taken = format!("element {number:05}");
            assert_eq!(pack.item(end.expect("it has entries")), *taken.as_bytes());
            pack.remove(end.expect("it has entries"));
            let stays = if is_front_first { first - first_len } else { first + first_len };
            moved += usize::from(place(&pack) != (block, stays));
            assert_eq!((pack.len(), pack.byte_len()), (100, len));
            assert!(pack.memory() <= len * 7 / 4, "{} for {len}", pack.memory());
        }
        assert!(moved < 150, "{moved} of 1000 changes moved all entries");
    }
}

/// No reader sees bytes that were never written. Miri would report it.
#[test]
fn values_that_change_while_they_are_appended_leave_no_garbage() {
    #[derive(Clone)]
    struct Fewer(std::rc::Rc<std::cell::Cell<usize>>);
    impl Iterator for Fewer {
        type Item = Item<'static>;
        fn next(&mut self) -> Option<Self::Item> {
            let left = self.0.get();
            self.0.set(left.saturating_sub(1));
            // Four values are counted, and one is written.
            (left > 0 && left != 2).then_some(Item::Bytes(b"value"))
        }
    }
    let mut pack = Listpack::from_iter([Item::Bytes(b"first")]);
    let values = Fewer(std::rc::Rc::new(std::cell::Cell::new(6)));
    let append = std::panic::AssertUnwindSafe(|| pack.append_many(values));
    assert!(std::panic::catch_unwind(append).is_err());
    assert!(pack.entries().iter().map(|&byte| u32::from(byte)).sum::<u32>() > 0);
}

// The expected bytes are those of DUMP in valkey-server 9.1.2 after RPUSH of these values.
#[test]
fn bytes_are_those_of_redis() {
    let mut pack = Listpack::new();
    for value in [&b"a"[..], b"1", b"-1", b"4095", b"-4096", b"4096", b"8388607", b"-8388609"] {
        pack.push_back(value);
    }
    let expected = [
        &b"\x24\0\0\0\x08\0\x81a\x02\x01\x01\xdf\xff\x02\xcf\xff\x02\xd0\0\x02"[..],
        b"\xf1\0\x10\x03\xf2\xff\xff\x7f\x04\xf3\xff\xff\x7f\xff\x05\xff",
    ]
    .concat();
    assert_eq!(pack.to_bytes(), expected);
}

#[test]
fn lengths_at_every_border_read_back() {
    let mut lens = vec![0, 1, 63, 64, 125, 126, 127, 128];
    if !cfg!(miri) {
        lens.extend([4095, 4096, 16_377, 16_378, 16_379, 16_380, 70_000]);
    }
    let expected: Vec<Vec<u8>> = lens.iter().map(|&len| vec![b'x'; len]).collect();
    let mut pack = Listpack::new();
    pack.append_many(expected.iter());
    verify(&pack, &expected);
    let mut expected = Vec::new();
    let mut pack = Listpack::new();
    for power in 0..64 {
        for value in [
            (1i64 << power).wrapping_sub(1),
            1 << power,
            -(1i64 << (power % 63)),
            -(1i64 << (power % 63)) - 1,
        ] {
            pack.push_back(value);
            expected.push(value.to_string().into_bytes());
        }
    }
    verify(&pack, &expected);
}

#[test]
fn foreign_bytes_are_checked_and_shortened() {
    let mut pack = Listpack::new();
    pack.append_many([&b"abc"[..], b"12345", &[b'x'; 200], b"-7"].into_iter());
    let bytes = pack.to_bytes();
    for cut in 0..bytes.len() {
        assert!(Listpack::from_bytes(&bytes[..cut]).is_none());
    }
    // The text "12" as a string, and a small integer in 16 bits.
    let long = b"\x0f\0\0\0\x02\0\x8212\x03\xf1\x05\0\x03\xff";
    let pack = Listpack::from_bytes(long).unwrap();
    verify(&pack, &[b"12".to_vec(), b"5".to_vec()]);
    assert!(pack.byte_len() < long.len());
    // If the header has no count, the entries are counted.
    let mut uncounted = bytes.to_vec();
    uncounted[4..6].copy_from_slice(&[0xff; 2]);
    assert_eq!(Listpack::from_bytes(&uncounted).unwrap().to_bytes(), bytes);
}

// Miri needs minutes for this.
#[cfg(not(miri))]
#[test]
fn more_entries_than_the_header_can_count() {
    let many = 65_540;
    let mut pack = Listpack::new();
    pack.append_many((0..many).map(|index: i64| Item::Integer(index % 100)));
    assert_eq!(pack.len(), 65_540);
    pack.push_back(b"end");
    assert_eq!(pack.len(), 65_541);
    assert_eq!(pack.get(65_540), Some(Item::Bytes(b"end")));
    assert_eq!(pack.get(65_541), None);
    pack.remove_range(0, 65_540);
    assert_eq!(pack.len(), 1);
    assert_eq!(Listpack::from_bytes(&pack.to_bytes()).unwrap().header().count, 1);
}

#[test]
fn items_equal_their_texts() {
    assert_eq!(Item::Integer(12), b"12"[..]);
    assert_ne!(Item::Integer(12), b"012"[..]);
    assert_ne!(Item::Integer(0), b"x"[..]);
    assert_eq!(Item::Bytes(b"x"), b"x"[..]);
    assert_ne!(Item::Bytes(b"x"), Item::Bytes(b"y"));
}

#[derive(Clone, Debug)]
enum Change {
    PushBack(Vec<u8>),
    PushFront(Vec<u8>),
    Append(Vec<Vec<u8>>),
    Before(usize, Vec<u8>),
    After(usize, Vec<u8>),
    Replace(usize, Vec<u8>),
    Remove(usize),
    RemoveRange(usize, usize),
    Split(usize),
    /// Removes this many entries at the front, and then pushes as many there.
    Turn(usize, Vec<u8>),
}

fn value() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        any::<i64>().prop_map(|value| value.to_string().into_bytes()),
        (-5000i64..5000).prop_map(|value| value.to_string().into_bytes()),
        prop::collection::vec(any::<u8>(), 0..80),
        (100..if cfg!(miri) { 200usize } else { 20_000 }).prop_map(|len| vec![b'y'; len]),
        "[0-9a-]{1,3}".prop_map(String::into_bytes),
    ]
}

fn change() -> impl Strategy<Value = Change> {
    let index = any::<usize>;
    prop_oneof![
        value().prop_map(Change::PushBack),
        value().prop_map(Change::PushFront),
        prop::collection::vec(value(), 0..5).prop_map(Change::Append),
        (index(), value()).prop_map(|(at, value)| Change::Before(at, value)),
        (index(), value()).prop_map(|(at, value)| Change::After(at, value)),
        (index(), value()).prop_map(|(at, value)| Change::Replace(at, value)),
        index().prop_map(Change::Remove),
        (index(), 0usize..4).prop_map(|(at, count)| Change::RemoveRange(at, count)),
        index().prop_map(Change::Split),
        (0usize..20, value()).prop_map(|(count, value)| Change::Turn(count, value)),
    ]
}

fn apply(pack: &mut Listpack, model: &mut Vec<Vec<u8>>, change: Change) {
    let place = |at: usize, model: &[Vec<u8>]| at % model.len().max(1);
    match change {
        Change::PushBack(value) => {
            pack.push_back(&value);
            model.push(value);
        }
        Change::PushFront(value) => {
            pack.push_front(&value);
            model.insert(0, value);
        }
        Change::Append(values) => {
            pack.append_many(values.iter());
            model.extend(values);
        }
        Change::Before(at, value) => {
            let at = place(at, model);
            if let Some(position) = pack.position(at) {
                let new = pack.insert_before(position, &value);
                assert_eq!(pack.item(new), Item::from(&value));
                model.insert(at, value);
            }
        }
        Change::After(at, value) => {
            let at = place(at, model);
            if let Some(position) = pack.position(at) {
                let new = pack.insert_after(position, &value);
                assert_eq!(pack.item(new), Item::from(&value));
                assert_eq!(pack.previous(new), Some(position));
                model.insert(at + 1, value);
            }
        }
        Change::Replace(at, value) => {
            let at = place(at, model);
            if let Some(position) = pack.position(at) {
                pack.replace(position, &value);
                model[at] = value;
            }
        }
        Change::Remove(at) => {
            let at = place(at, model);
            if let Some(position) = pack.position(at) {
                let next = pack.remove(position);
                model.remove(at);
                assert_eq!(next.map(|next| pack.item(next).to_vec()), model.get(at).cloned());
            }
        }
        Change::RemoveRange(at, count) => {
            let at = place(at, model);
            pack.remove_range(at, count);
            let end = (at + count).min(model.len());
            model.drain(at.min(end)..end);
        }
        Change::Turn(count, value) => {
            for _ in 0..count.min(model.len()) {
                pack.remove_from(ListpackPosition(0), 1);
                model.remove(0);
                assert_eq!(contents(pack), *model);
            }
            for _ in 0..count {
                pack.push_front(&value);
                model.insert(0, value.clone());
            }
        }
        Change::Split(at) => {
            let at = place(at, model);
            if let Some(position) = pack.position(at) {
                let tail = pack.split_off(position);
                assert_eq!(contents(pack), model[..at]);
                assert_eq!(contents(&tail), model[at..]);
                pack.append(&tail);
            }
        }
    }
}

/// The second entry is an empty string. Its only byte and the length behind it both have the mark
/// for a length that continues to the front. So the length continues into the first entry, and it
/// says that the second entry begins before the block.
#[test]
fn a_back_length_that_leads_into_the_entry_before_is_refused() {
    let two = |back: u8| [&[11, 0, 0, 0, 2, 0][..], &[0x02, 0x01, 0x80, back], &[0xff]].concat();
    assert!(Listpack::from_bytes(&two(0x01)).is_some());
    assert!(Listpack::from_bytes(&two(0x81)).is_none());
    // If the length ends within its own entry, the entries could be walked, but no program writes
    // such a length.
    let zero = [&[10, 0, 0, 0, 1, 0][..], &[0x81, 0x00, 0x82], &[0xff]].concat();
    assert!(Listpack::from_bytes(&zero).is_none());
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: if cfg!(miri) { 4 } else { 256 },
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn behaves_like_a_vector(changes in prop::collection::vec(change(), 1..40), step in 1usize..4) {
        let mut pack = Listpack::new();
        let mut model = Vec::new();
        for change in changes {
            let before = pack.clone();
            let contents_before = model.clone();
            apply(&mut pack, &mut model, change);
            assert_eq!(contents(&before), contents_before);
            verify(&pack, &model);
        }
        for value in &model {
            let found = pack.find(value, step);
            let index = model.iter().step_by(step).position(|other| other == value);
            prop_assert_eq!(found, index.and_then(|index| pack.position(index * step)));
        }
        prop_assert_eq!(pack.find(b"not there", 1), None);
    }

    #[test]
    fn damaged_bytes_never_harm(
        values in prop::collection::vec(value(), 0..6),
        damage in prop::collection::vec((any::<usize>(), any::<u8>()), 1..4),
    ) {
        let mut pack = Listpack::new();
        pack.append_many(values.iter());
        let mut bytes = pack.to_bytes().into_owned();
        for (at, byte) in damage {
            let at = at % bytes.len();
            bytes[at] = byte;
        }
        if let Some(pack) = Listpack::from_bytes(&bytes) {
            let model = contents(&pack);
            verify(&pack, &model);
        }
    }
}
