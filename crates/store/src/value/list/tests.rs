//! Compares a list with one of the standard library, while clones of the list are held as it
//! changes.

use std::collections::VecDeque;

use proptest::prelude::*;

use super::*;

type Model = VecDeque<Vec<u8>>;

fn check(list: &List, model: &Model) {
    if let List::Chunked(chunked) = list {
        chunked.check();
    }
    assert_eq!(list.len(), model.len());
    assert!(list.iter().map(Item::to_vec).eq(model.iter().cloned()));
    assert!(list.iter().rev().map(Item::to_vec).eq(model.iter().rev().cloned()));
    let again: usize = list.chunks().map(|(_, count)| count).sum();
    assert_eq!(again, model.len());
}

fn value(number: u16, large: bool) -> Vec<u8> {
    match number % 5 {
        0 => format!("{}", i32::from(number % 300) - 100).into_bytes(),
        1 if large && number.is_multiple_of(7) => vec![b'x'; usize::from(number) / 4],
        2 => format!("v{}", number % 4).into_bytes(),
        _ => vec![b'a' + (number % 3) as u8; usize::from(number % 90)],
    }
}

fn run(steps: &[(u8, u16, u16)], fill: i64, large: bool) {
    let limits = ListLimits::new(fill);
    let mut list = List::new();
    let mut model = Model::new();
    let mut clones = Vec::new();
    for &(what, number, at) in steps {
        let value = value(number, large);
        let index = usize::from(at) % (model.len() + 1);
        let end = if at % 2 == 0 { End::Front } else { End::Back };
        match what {
            0..50 => {
                // Like a command that pushes several values.
                let count = usize::from(number % 40) + 1;
                list.prepare(value.len() * count, count, limits);
                for _ in 0..count {
                    list.push(Item::Bytes(&value), end, limits);
                    match end {
                        End::Front => model.push_front(value.clone()),
                        End::Back => model.push_back(value.clone()),
                    }
                }
            }
            50..70 => {
                for _ in 0..number % 30 {
                    let popped = list.pop(end, limits, |item| item.to_vec());
                    let expected = match end {
                        End::Front => model.pop_front(),
                        End::Back => model.pop_back(),
                    };
                    assert_eq!(popped, expected);
                }
            }
            70..80 => {
                list.prepare(value.len(), 1, limits);
                list.insert(index, Item::Bytes(&value), limits);
                model.insert(index, value);
            }
            80..88 => {
                list.prepare(value.len(), 1, limits);
                let set = list.set(index, Item::Bytes(&value), limits);
                assert_eq!(set, index < model.len());
                if set {
                    model[index] = value;
                }
            }
            88..91 => {
                let end = (index + usize::from(number % 100)).min(model.len());
                // Removes all at once or in several steps.
                let some = if number % 2 == 0 { usize::MAX } else { usize::from(number % 7) + 1 };
                let mut left = end - index;
                while left > 0 {
                    let removed = list.remove_some(index..index + left, some, limits);
                    assert!(removed >= some.min(left) && removed <= left);
                    left -= removed;
                }
                model.drain(index..end);
            }
            91 => {
                let end = model.len() - index / 4;
                list.trim(index / 4..end, limits);
                model.truncate(end);
                model.drain(..(index / 4).min(end));
            }
            92..96 => {
                let most = if number % 2 == 0 { usize::MAX } else { usize::from(number % 9) };
                let mut removed = 0;
                let mut keep = |element: &Vec<u8>| {
                    let goes = *element == value && removed < most;
                    removed += usize::from(goes);
                    !goes
                };
                let kept: Model = match end {
                    End::Front => model.iter().filter(|element| keep(element)).cloned().collect(),
                    End::Back => {
                        let kept: Vec<_> =
                            model.iter().rev().filter(|element| keep(element)).cloned().collect();
                        kept.into_iter().rev().collect()
                    }
                };
                model = kept;
                assert_eq!(list.remove_equal(&value, most, end, limits), removed);
            }
            96 => clones.push((list.clone(), model.clone())),
            _ => {
                let end = (index + 50).min(model.len());
                let found: Vec<_> = list.range(index..end).map(Item::to_vec).collect();
                assert!(found.iter().eq(model.range(index..end)));
                assert_eq!(list.get(index).map(Item::to_vec), model.get(index).cloned());
            }
        }
    }
    check(&list, &model);
    for (clone, model) in clones {
        check(&clone, &model);
    }
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: if cfg!(miri) { 2 } else { 64 },
        failure_persistence: None,
        ..ProptestConfig::default()
    })]
    #[test]
    fn behaves_like_a_model(
        steps in proptest::collection::vec(
            (0..100u8, any::<u16>(), any::<u16>()),
            1..if cfg!(miri) { 60 } else { 400 },
        ),
        fill in prop_oneof![Just(-2i64), Just(-1), Just(1), Just(0), Just(20), Just(500)],
        large in any::<bool>(),
    ) {
        run(&steps, fill, large);
    }
}

#[test]
fn a_queue_stays_small_and_a_long_list_dense() {
    let limits = ListLimits::new(-2);
    let (many, turns) = if cfg!(miri) { (300, 200) } else { (30_000, 100_000) };
    for (to, from) in [(End::Front, End::Back), (End::Back, End::Front)] {
        let mut list = List::new();
        for number in 0..many {
            let value = format!("{number:032}");
            list.prepare(value.len(), 1, limits);
            list.push(Item::Bytes(value.as_bytes()), to, limits);
        }
        assert_eq!(list.encoding(), Encoding::Quicklist);
        assert!(cfg!(miri) || list.memory() < many * 36, "{}", list.memory());
        for number in 0..turns {
            let value = format!("{number:032}");
            list.push(Item::Bytes(value.as_bytes()), to, limits);
            assert!(list.pop(from, limits, |_| ()).is_some());
        }
        assert!(cfg!(miri) || list.memory() < many * 38, "{}", list.memory());
        while list.pop(from, limits, |_| ()).is_some() {}
        assert_eq!(list.encoding(), Encoding::Listpack);
    }
}

#[test]
fn chunks_of_few_elements_are_dense() {
    let limits = ListLimits::new(5);
    let many = if cfg!(miri) { 200 } else { 10_000 };
    for end in [End::Front, End::Back] {
        let mut list = List::new();
        for number in 0..many {
            let value = format!("v{number:07}");
            list.prepare(value.len(), 1, limits);
            list.push(Item::Bytes(value.as_bytes()), end, limits);
        }
        assert!(list.memory() < many * 40, "{}", list.memory());
    }
}

#[test]
fn foreign_chunks_leave_no_block_half_empty() {
    let limits = ListLimits::new(-2);
    // As many entries as a listpack of 8 KiB has, but with a block's header they take more.
    let mut pack = Listpack::new();
    (0..372).for_each(|number| pack.push_back(format!("{number:020}").as_bytes()));
    assert!(pack.byte_len() <= 8192 && pack.entries().len() + SharedBlock::HEADER > 8192);
    let packs = if cfg!(miri) { 2 } else { 100 };
    let list = List::from_listpacks((0..packs).map(|_| pack.clone()), limits);
    assert!(list.iter().eq((0..packs).flat_map(|_| pack.iter())));
    assert!(list.memory() < packs * (8192 + 200), "{}", list.memory());
    // One by one.
    let mut list = List::new();
    for item in pack.iter().chain(&pack) {
        list.prepare(item.len(), 1, limits);
        list.push(item, End::Back, limits);
    }
    assert!(list.memory() < 2 * 8192 + 1024 + 500, "{}", list.memory());
    // A long entry has a chunk of its own.
    let long = Listpack::from_iter([&[b'x'; 20_000][..], b"short"].map(Item::Bytes));
    let list = List::from_listpacks([pack.clone(), long.clone(), pack].into_iter(), limits);
    assert_eq!((list.len(), list.chunks().count()), (746, 5));
    assert!(list.iter().skip(372).take(2).eq(long.iter()));
}

#[test]
fn chunks_of_long_elements_are_dense() {
    let limits = ListLimits::new(-2);
    let (many, long) = (20, vec![b'x'; 5000]);
    for end in [End::Front, End::Back] {
        let mut list = List::new();
        for _ in 0..many {
            list.prepare(long.len(), 1, limits);
            list.push(Item::Bytes(&long), end, limits);
        }
        assert_eq!(list.chunks().count(), many);
        assert!(list.memory() < many * 5200, "{}", list.memory());
    }
}

/// After LSET, as after a removal, a list takes about what a new one does, or up to twice as much
/// if its chunks stay too large to be merged.
#[test]
fn shorter_elements_give_memory_back() {
    let limits = ListLimits::new(-2);
    let many = if cfg!(miri) { 30 } else { 400 };
    let of = |value: &[u8]| {
        let mut list = List::new();
        list.prepare(usize::MAX / 2, 0, limits);
        (0..many).for_each(|_| list.push(Item::Bytes(value), End::Back, limits));
        list
    };
    let orders: [fn(usize, usize) -> usize; 3] = [
        |at, _| at,
        |at, many| many - 1 - at,
        |at, many| if at < many / 2 { 2 * at } else { 2 * (at - many / 2) + 1 },
    ];
    for long in [300, 1000, 5000, 9000, 40_000] {
        for (order, index) in orders.iter().enumerate() {
            for (value, most) in [(&b"s"[..], 4), (&[b's'; 100], 6)] {
                let mut list = of(&vec![b'x'; long]);
                for at in 0..many {
                    assert!(list.set(index(at, many), Item::Bytes(value), limits));
                }
                assert!(list.iter().all(|item| item == Item::Bytes(value)));
                if let List::Chunked(chunked) = &list {
                    chunked.check();
                }
                let (memory, new) = (list.memory(), of(value).memory());
                let len = value.len();
                assert!(
                    memory < new * most / 3 + 4096,
                    "{long} to {len} in order {order}: {memory} bytes, {new} for a new list"
                );
            }
        }
    }
    // One of few is long.
    let mut list = of(b"short");
    for long in [5000, 100_000] {
        list.set(many / 2, Item::Bytes(&vec![b'x'; long]), limits);
        list.set(many / 2, Item::Bytes(b"short"), limits);
    }
    let (memory, new) = (list.memory(), of(b"short").memory());
    assert!(memory < new + 4096, "{memory} bytes, {new} for a new list");
}

#[test]
fn an_element_whose_length_goes_up_and_down_does_not_move_its_chunk() {
    let limits = ListLimits::new(-2);
    let values = [9999, 10_001, 500, 12].map(|number: u32| format!("counter {number}"));
    for count in [1, 10, 100, 300] {
        let mut list = List::new();
        list.prepare(usize::MAX / 2, 0, limits);
        (0..count).for_each(|_| list.push(Item::Bytes(b"some element"), End::Back, limits));
        let List::Chunked(list) = &mut list else { panic!("it is packed") };
        let mut place = |number: usize| {
            list.set(count / 2, Item::Bytes(values[number].as_bytes()), limits);
            list.chunks().map(|(entries, _)| entries.as_ptr().addr()).collect::<Vec<_>>()
        };
        let first = place(0);
        for turn in 1..40 {
            // The bytes may move within their block.
            let stays =
                place(turn % 4).iter().zip(&first).all(|(at, first)| at.abs_diff(*first) < 50);
            assert!(stays, "{count} elements, turn {turn}");
        }
    }
}
