//! Compares a sorted set with collections of the standard library, while clones of the set are held
//! as it changes.

use std::collections::HashMap;

use proptest::prelude::*;

use super::*;

/// The members and their scores.
#[derive(Clone, Default)]
struct Model(HashMap<Vec<u8>, f64>);

impl Model {
    fn ordered(&self) -> Vec<(Vec<u8>, f64)> {
        let mut elements: Vec<_> =
            self.0.iter().map(|(member, &score)| (member.clone(), score)).collect();
        elements.sort_by(|one, other| {
            one.1.partial_cmp(&other.1).unwrap().then_with(|| one.0.cmp(&other.0))
        });
        elements
    }
}

fn owned((member, score): (Item<'_>, f64)) -> (Vec<u8>, f64) {
    (member.to_vec(), score)
}

fn check(set: &SortedSet, model: &Model, hasher: &Hasher) {
    if let SortedSet::Large(large) = set {
        large.check();
    }
    let ordered = model.ordered();
    assert_eq!(set.len(), ordered.len());
    assert_eq!(set.iter().map(owned).collect::<Vec<_>>(), ordered);
    let backwards: Vec<_> = set.iter().rev().map(owned).collect();
    assert!(backwards.iter().eq(ordered.iter().rev()));
    for (rank, (member, score)) in ordered.iter().enumerate() {
        assert_eq!(set.rank(member, hasher), Some((rank, *score)));
        assert_eq!(set.score(member, hasher), Some(*score));
    }
    for bound in [-1.0, 0.0, 0.5, 3.0, 1e9, f64::INFINITY] {
        let below = ordered.iter().filter(|(_, score)| *score < bound).count();
        assert_eq!(set.rank_below_score(bound, false), below);
        let to = ordered.iter().filter(|(_, score)| *score <= bound).count();
        assert_eq!(set.rank_below_score(bound, true), to);
    }
    let mut scanned = HashMap::new();
    let mut cursor = 0;
    loop {
        cursor = set.scan(cursor, 7, hasher, |member, score| {
            assert!(scanned.insert(member.to_vec(), score).is_none());
        });
        if cursor == 0 {
            break;
        }
    }
    assert_eq!(scanned, model.0);
}

/// The member for a generated number. Members have many different lengths, and some are integers.
fn member(number: u16, long: bool) -> Vec<u8> {
    match number % 7 {
        0 => format!("{}", i32::from(number) - 700).into_bytes(),
        1 if long => vec![b'x'; usize::from(number) * 5],
        2 if long && number > 3990 => vec![b'y'; usize::from(number) * 25],
        _ => format!("member:{number:012}").into_bytes(),
    }
}

fn run(steps: &[(u8, u16, u16)], entries_max: usize, long: bool, scores: u16) {
    let hasher = Hasher::new(7);
    let limits = SortedSetLimits { packed_entries: entries_max, packed_value_len: 64 };
    let mut set = SortedSet::new();
    let mut model = Model::default();
    let mut clones = Vec::new();
    let mut appended = 0;
    for &(what, number, score) in steps {
        let score = f64::from(score % scores) / 2.0;
        let member = member(number % 4000, long);
        match what {
            0..100 => {
                assert_eq!(
                    set.insert(&member, score, limits, &hasher),
                    model.0.insert(member, score)
                );
            }
            100..140 => assert_eq!(set.remove(&member, &hasher), model.0.remove(&member)),
            140 => {
                let ordered = model.ordered();
                let start = usize::from(number) % (ordered.len() + 1);
                let end = start + usize::from(number % 100);
                set.remove_range(start..end, &hasher);
                for (member, _) in &ordered[start..end.min(ordered.len())] {
                    model.0.remove(member);
                }
            }
            141 => clones.push((set.clone(), model.clone())),
            142..150 => {
                let ordered = model.ordered();
                let start = usize::from(number) % (ordered.len() + 1);
                let end = (start + 20).min(ordered.len());
                let found: Vec<_> = set.range(start..end).map(owned).collect();
                assert_eq!(found, ordered[start..end]);
                let found: Vec<_> = set.range(start..end).rev().map(owned).collect();
                assert!(found.iter().eq(ordered[start..end].iter().rev()));
            }
            150.. => {
                let ordered = model.ordered();
                let last = ordered.last().map_or(0.0, |(_, score)| *score);
                // The new members come after all others.
                let new: Vec<_> = (0..number % 200)
                    .map(|at| (format!("z{appended:04}{at:03}"), last + f64::from(at / 3)))
                    .map(|(member, score)| (member.into_bytes(), score))
                    .collect();
                appended += 1;
                let elements = new.iter().map(|(member, score)| (&member[..], *score));
                set.append(elements, limits, &hasher);
                model.0.extend(new);
            }
        }
    }
    check(&set, &model, &hasher);
    for (clone, model) in clones {
        check(&clone, &model, &hasher);
    }
}

#[test]
fn a_shared_set_is_copied_only_for_a_change() {
    let hasher = Hasher::new(7);
    let limits = SortedSetLimits { packed_entries: 16, packed_value_len: 64 };
    let mut set = SortedSet::new();
    for number in 0..1000 {
        set.insert(&member(number, false), f64::from(number), limits, &hasher);
    }
    let pinned = set.clone();
    assert_eq!(set.remove(b"none", &hasher), None);
    assert_eq!(set.insert(&member(8, false), 8.0, limits, &hasher), Some(8.0));
    assert_eq!(set.update(&member(8, false), limits, &hasher, |_| None), Some(8.0));
    assert_eq!(set.update(b"none", limits, &hasher, |_| None), None);
    assert!(set.is_same(&pinned));
    assert_eq!(set.remove(&member(8, false), &hasher), Some(8.0));
    assert!(!set.is_same(&pinned) && pinned.score(&member(8, false), &hasher) == Some(8.0));
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: if cfg!(miri) { 2 } else { 24 },
        failure_persistence: None,
        ..ProptestConfig::default()
    })]
    #[test]
    fn behaves_like_a_model(
        steps in proptest::collection::vec(
            (0..152u8, any::<u16>(), any::<u16>()),
            1..if cfg!(miri) { 80 } else { 1500 },
        ),
        entries_max in prop_oneof![Just(0usize), Just(8), Just(128)],
        long in any::<bool>(),
        scores in prop_oneof![Just(1u16), Just(5), Just(1000)],
    ) {
        run(&steps, entries_max, long, scores);
    }
}

#[test]
fn thousands_come_in_order_and_go() {
    let hasher = Hasher::new(1);
    let limits = SortedSetLimits { packed_entries: 128, packed_value_len: 64 };
    let many = if cfg!(miri) { 200 } else { 20_000 };
    for descending in [false, true] {
        let mut set = SortedSet::new();
        for number in 0..many {
            let score = if descending { -number } else { number };
            let member = format!("m{number}");
            assert_eq!(set.insert(member.as_bytes(), f64::from(score), limits, &hasher), None);
        }
        let SortedSet::Large(large) = &set else { panic!("still packed") };
        large.check();
        for number in 0..many {
            let rank = if descending { many - 1 - number } else { number };
            let member = format!("m{number}");
            assert_eq!(set.rank(member.as_bytes(), &hasher).unwrap().0, rank as usize);
        }
        set.remove_range(0..usize::MAX, &hasher);
        assert!(set.is_empty());
        set.insert(b"again", 1.0, limits, &hasher);
        assert_eq!(set.len(), 1);
    }
}

#[test]
fn members_of_one_score_are_ranked_by_their_bytes() {
    let hasher = Hasher::new(1);
    let limits = SortedSetLimits { packed_entries: 0, packed_value_len: 64 };
    let mut set = SortedSet::new();
    let many = if cfg!(miri) { 300 } else { 5000 };
    for number in 0..many {
        set.insert(format!("m{:05}", number * 2).as_bytes(), 3.0, limits, &hasher);
    }
    for number in 0..many {
        let member = format!("m{:05}", number * 2);
        assert_eq!(set.rank_below_member(member.as_bytes(), false), number);
        assert_eq!(set.rank_below_member(member.as_bytes(), true), number + 1);
        let between = format!("m{:05}", number * 2 + 1);
        assert_eq!(set.rank_below_member(between.as_bytes(), true), number + 1);
    }
}

#[test]
fn packed_scores_are_integers_where_they_can_be() {
    let hasher = Hasher::new(1);
    let limits = SortedSetLimits { packed_entries: 128, packed_value_len: 64 };
    let mut set = SortedSet::new();
    for (member, score) in [("a", -0.0), ("b", 1.5), ("c", 1e300), ("d", f64::NEG_INFINITY)] {
        set.insert(member.as_bytes(), score, limits, &hasher);
    }
    let SortedSet::Packed(pack) = &set else { panic!("not packed") };
    let texts: Vec<_> = pack.iter().map(|item| String::from_utf8(item.to_vec()).unwrap()).collect();
    assert_eq!(texts, ["d", "-inf", "a", "0", "b", "1.5", "c", "1e+300"]);
    let again = SortedSet::from_listpack(pack.clone(), limits, &hasher).unwrap();
    assert!(again.iter().eq(set.iter()));
}

#[test]
fn listpacks_from_elsewhere_are_brought_into_order() {
    let hasher = Hasher::new(1);
    let of = |entries: &[&str]| {
        let pack = Listpack::from_iter(entries.iter().map(|entry| Item::from(entry.as_bytes())));
        let set = SortedSet::from_listpack(pack, SortedSetLimits::default(), &hasher)?;
        Some(set.iter().map(owned).collect::<Vec<_>>())
    };
    let expected = Some(vec![(b"7".to_vec(), 1.0), (b"a".to_vec(), 1.0), (b"b".to_vec(), 2.5)]);
    assert_eq!(of(&["7", "1", "a", "1", "b", "2.5"]), expected);
    assert_eq!(of(&["a", "1", "7", "1", "b", "2.5"]), expected);
    assert_eq!(of(&["b", "2.5", "7", "1", "a", "1"]), expected);
    for damaged in
        [&["a"][..], &["a", "nan"], &["a", "x"], &["a", "1", "a", "1"], &["a", "1", "a", "2"]]
    {
        assert_eq!(of(damaged), None, "{damaged:?}");
    }
}

#[test]
fn what_two_sets_share_is_met_once() {
    let hasher = Hasher::new(7);
    let limits = SortedSetLimits { packed_entries: 0, packed_value_len: 0 };
    let many = if cfg!(miri) { 200 } else { 3000 };
    let make = |step: usize, count: usize, score: fn(usize) -> f64| {
        let mut set = SortedSet::new();
        for at in 0..count {
            set.insert(format!("member-{}", at * step).as_bytes(), score(at), limits, &hasher);
        }
        set
    };
    // Finds two members with the same position.
    let mut positions = HashMap::new();
    let numbers = if cfg!(miri) { 0..0 } else { 0..1_000_000u32 };
    let twins = numbers.map(|number| number.to_string().into_bytes()).find_map(|name| {
        let twin = positions.insert(hasher.hash(&name).position(), name.clone())?;
        Some([name, twin])
    });
    let mut sets = [
        make(1, many, |at| at as f64),
        make(2, many, |at| (at * 7919 % 1000) as f64),
        make(3, many / 10, |_| 1.0),
        make(5, 1, |_| 0.0),
    ];
    if let Some([one, other]) = &twins {
        for (set, names) in sets.iter_mut().zip([&[one][..], &[other], &[other, one]]) {
            names.iter().for_each(|name| _ = set.insert(name, 5.0, limits, &hasher));
        }
    }
    assert!(twins.is_some() || cfg!(miri));
    for (one, other) in sets.iter().flat_map(|one| sets.iter().map(move |other| (one, other))) {
        let names = one.iter().map(|(member, _)| member.to_vec());
        let mut expected: Vec<_> =
            names.filter(|name| other.score(name, &hasher).is_some()).collect();
        let (mut met, mut from) = (Vec::new(), Some(0));
        while let Some(position) = from {
            from =
                one.walk_common(other, position, 16, &hasher, |member| met.push(member.to_vec()));
        }
        expected.sort();
        met.sort();
        assert_eq!(met, expected);
    }
}

/// If elements are added in order, at either end, the leaves become full.
#[test]
fn what_comes_in_order_takes_little_memory() {
    let hasher = Hasher::new(7);
    let limits = SortedSetLimits { packed_entries: 0, packed_value_len: 0 };
    let many = if cfg!(miri) { 300 } else { 5000 };
    let [rising, falling] = [false, true].map(|falls| {
        let (mut set, mut model) = (SortedSet::new(), Model::default());
        for at in 0..many {
            let score = f64::from(if falls { many - at } else { at } / 3);
            let member = format!("member-{:06}", if falls { many - at } else { at }).into_bytes();
            set.insert(&member, score, limits, &hasher);
            model.0.insert(member, score);
        }
        check(&set, &model, &hasher);
        set.free_effort()
    });
    assert!(falling <= rising + 2, "{rising} blocks, and {falling} from the other end");
}

/// A leaf of one long member is never made anew for what comes and goes beside it, and what comes
/// there shares leaves.
#[test]
fn a_long_member_stays_where_it_is() {
    let hasher = Hasher::new(7);
    let limits = SortedSetLimits { packed_entries: 0, packed_value_len: 0 };
    for len in [1500, 100_000] {
        let long = vec![b'm'; len];
        let address = |set: &SortedSet| {
            let mut members = set.iter().filter_map(|(member, _)| match member {
                Item::Bytes(bytes) if bytes.len() == len => Some(bytes.as_ptr()),
                _ => None,
            });
            members.next().unwrap()
        };
        // Before and behind it, by the score and by the bytes, from both directions.
        let score_of: [fn(i32) -> (f64, i32); 6] = [
            |at| (f64::from(at), at),
            |at| (f64::from(-at), at),
            |at| (f64::from(1000 - at), at),
            |at| (f64::from(at - 1000), at),
            |at| (0.0, at),
            |at| (0.0, 1000 - at),
        ];
        for (number, score_of) in score_of.into_iter().enumerate() {
            let (mut set, mut model) = (SortedSet::new(), Model::default());
            let mut insert = |set: &mut SortedSet, member: Vec<u8>, score| {
                assert_eq!(set.insert(&member, score, limits, &hasher), None);
                model.0.insert(member, score);
            };
            for (member, score) in
                [(&b"a"[..], -1e9), (&b"b"[..], 1e9), (&long, 0.0), (&b"c"[..], 0.0)]
            {
                insert(&mut set, member.to_vec(), score);
            }
            let before = address(&set);
            let many = if cfg!(miri) { 30 } else { 500 };
            for at in 1..many {
                let (score, at) = score_of(at);
                insert(&mut set, format!("m{at:08}").into_bytes(), score);
                insert(&mut set, format!("n{at:08}").into_bytes(), score);
            }
            assert_eq!(address(&set), before, "case {number}");
            check(&set, &model, &hasher);
            // About 30 bytes for each, in leaves that are half full or fuller.
            let leaves = set.free_effort().saturating_sub(10);
            assert!(cfg!(miri) || leaves < 120, "case {number}: {leaves} blocks");
            let names: Vec<_> = model.0.keys().filter(|member| **member != long).cloned().collect();
            for member in &names[..names.len() / 2] {
                set.remove(member, &hasher);
            }
            let rank = set.rank(&long, &hasher).unwrap().0;
            set.remove_range(rank + 1..usize::MAX, &hasher);
            set.remove_range(0..rank, &hasher);
            assert_eq!((set.len(), address(&set)), (1, before), "case {number}");
        }
    }
}

/// A long member between two others of a leaf gets a leaf of its own.
#[test]
fn no_leaf_of_several_members_is_long() {
    let hasher = Hasher::new(7);
    let limits = SortedSetLimits { packed_entries: 0, packed_value_len: 0 };
    let (mut set, mut model) = (SortedSet::new(), Model::default());
    let many = if cfg!(miri) { 40 } else { 400 };
    for at in 0..many {
        let member = format!("member {at:05}").into_bytes();
        set.insert(&member, f64::from(at), limits, &hasher);
        model.0.insert(member, f64::from(at));
    }
    for (at, len) in [(3, 70_000), (10, 1400), (11, 1499), (many / 2, 5000), (many - 2, 1000)] {
        for part in 0..3 {
            let (member, score) = (vec![b'a' + part; len], f64::from(at) + 0.25 * f64::from(part));
            set.insert(&member, score, limits, &hasher);
            model.0.insert(member, score);
        }
    }
    check(&set, &model, &hasher);
}
