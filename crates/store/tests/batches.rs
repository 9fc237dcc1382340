//! What a command adds at once is there as if it had come one by one, in the form that Redis
//! chooses for that number.

use bobbin_store::Hasher;
use bobbin_store::value::hash::{FieldExpiry, Hash, HashLimits};
use bobbin_store::value::pages::Given;
use bobbin_store::value::set::{Set, SetLimits};
use bobbin_store::value::sorted_set::{SortedSet, SortedSetLimits};
use bobbin_store::value::{Encoding, Listpack};
use proptest::prelude::*;

/// How many elements a packed value may have.
const PACKED: usize = 40;
/// The longest element of a packed value in bytes.
const LONGEST: usize = 12;

/// Few different names, so that many come again, and now and then one that is too long.
fn names() -> impl Strategy<Value = Vec<Vec<u8>>> {
    let name = prop_oneof![
        20 => (0i64..60).prop_map(|value| value.to_string().into_bytes()),
        20 => "[a-h]{1,2}".prop_map(String::into_bytes),
        1 => "[a-z]{9,14}".prop_map(String::into_bytes),
    ];
    prop::collection::vec(name, 1..60)
}

fn batches() -> impl Strategy<Value = Vec<Vec<Vec<u8>>>> {
    prop::collection::vec(names(), 1..5)
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: if cfg!(miri) { 2 } else { 256 },
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn fields_come_at_once(batches in batches(), expires in any::<bool>()) {
        let hasher = Hasher::new(1);
        let limits = HashLimits { packed_entries: PACKED, packed_value_len: LONGEST };
        let (mut at_once, mut one_by_one) = (Hash::default(), Hash::default());
        let expiry = if expires { FieldExpiry::At(5) } else { FieldExpiry::Clear };
        for (number, names) in batches.iter().enumerate() {
            let values: Vec<_> = (0..names.len()).map(|at| format!("{number}-{at}")).collect();
            let pairs = names.iter().zip(&values);
            let pairs = pairs.map(|(name, value)| (&name[..], Given::from(value.as_bytes())));
            let set = |(name, value)| one_by_one.set(name, value, expiry, 0, &limits, &hasher);
            let added = pairs.clone().map(set).filter(|is_new| *is_new).count();
            let was_packed = at_once.encoding() == Encoding::Listpack;
            prop_assert_eq!(at_once.set_all(pairs, expiry, 0, &limits, &hasher), added);
            let fits = names.len() <= PACKED;
            if was_packed && (!fits || one_by_one.encoding() == Encoding::Listpack) {
                prop_assert_eq!(at_once.encoding() == Encoding::Listpack, fits);
            }
            prop_assert_eq!(at_once.len(), one_by_one.len());
            let asked: Vec<_> = names.iter().rev().chain(names).map(Vec::as_slice).collect();
            at_once.get_all(&asked, 0, &hasher, |name, field| {
                let other = one_by_one.get(name, 0, &hasher).unwrap();
                assert_eq!(field.unwrap().value.item(), other.value.item());
            });
            for field in one_by_one.iter() {
                let same = at_once.get(&field.name.to_vec(), 0, &hasher).unwrap();
                prop_assert_eq!(same.value.item(), field.value.item());
                prop_assert_eq!(same.expire_ms, field.expire_ms);
            }
        }
    }

    #[test]
    fn members_come_at_once(batches in batches()) {
        let hasher = Hasher::new(1);
        let limits =
            SetLimits { intset_entries: 30, packed_entries: PACKED, packed_value_len: LONGEST };
        let (mut at_once, mut one_by_one) = (Set::default(), Set::default());
        for names in &batches {
            let insert = |name: &&Vec<u8>| one_by_one.insert(name, &limits, &hasher);
            let added = names.iter().filter(insert).count();
            let members: Vec<_> = names.iter().map(Vec::as_slice).collect();
            prop_assert_eq!(at_once.insert_all(&members, &limits, &hasher), added);
            if names.len() > PACKED {
                prop_assert_eq!(at_once.encoding(), Encoding::Hashtable);
            }
            prop_assert_eq!(at_once.len(), one_by_one.len());
            prop_assert!(one_by_one.iter().all(|member| at_once.contains_item(member, &hasher)));
            at_once.contains_all(&members, &hasher, |is_member| assert!(is_member));
        }
    }

    #[test]
    fn scores_come_at_once(batches in batches(), only_new in any::<bool>()) {
        let hasher = Hasher::new(1);
        let limits = SortedSetLimits { packed_entries: PACKED, packed_value_len: LONGEST };
        let (mut at_once, mut one_by_one) = (SortedSet::new(), SortedSet::new());
        for names in &batches {
            let decide = |index: usize, old: Option<f64>| {
                if only_new && old.is_some() { None } else { Some((index * 7 % 5) as f64) }
            };
            let (mut old_scores, mut expected) = (Vec::new(), Vec::new());
            for (index, name) in names.iter().enumerate() {
                expected.push(one_by_one.update(name, limits, &hasher, |old| decide(index, old)));
            }
            let members = names.iter().map(Vec::as_slice);
            let longest = members.clone().map(<[u8]>::len).max();
            at_once.update_all(members, limits, &hasher, |index, old| {
                old_scores.push(old);
                decide(index, old)
            });
            prop_assert_eq!(old_scores, expected);
            if names.len() > PACKED || longest > Some(LONGEST) {
                prop_assert_eq!(at_once.encoding(), Encoding::Skiplist);
            }
            let [these, those] = [&at_once, &one_by_one].map(|set| {
                set.iter().map(|(member, score)| (member.to_vec(), score)).collect::<Vec<_>>()
            });
            prop_assert_eq!(these, those);
        }
    }

    #[test]
    fn repeated_entries_are_found(names in names(), step in 1usize..3) {
        let hasher = Hasher::new(1);
        let mut pack = Listpack::new();
        for name in &names {
            pack.append_many(std::iter::repeat_n(&name[..], step));
        }
        let mut sorted = names.clone();
        sorted.sort();
        sorted.dedup();
        prop_assert_eq!(pack.repeats(step, &hasher), sorted.len() < names.len());
    }
}

/// Large values prefetch what they look for.
#[test]
fn large_values_answer_at_once_as_one_by_one() {
    const LEN: usize = 6000;
    let hasher = Hasher::new(1);
    let names: Vec<_> = (0..LEN + 100).map(|number| format!("name:{number}")).collect();
    let names: Vec<&[u8]> = names.iter().map(|name| name.as_bytes()).collect();
    let (mut set, mut hash, mut sorted_set) = (Set::default(), Hash::default(), SortedSet::new());
    for &name in &names[..LEN] {
        set.insert(name, &SetLimits::default(), &hasher);
        let value = Given::from(name);
        hash.set(name, value, FieldExpiry::Clear, 0, &HashLimits::default(), &hasher);
    }
    for (at, some) in names[..LEN].chunks(100).enumerate() {
        let limits = SortedSetLimits::default();
        sorted_set.update_all(some.iter().copied(), limits, &hasher, |index, old| {
            assert_eq!(old, None);
            Some(((at * 100 + index) * 7 % LEN) as f64)
        });
    }
    for count in [1, 2, 15, 16, 17, 100, 1000] {
        let asked: Vec<_> = (0..count).map(|at| at * 7919 % names.len()).collect();
        let words: Vec<_> = asked.iter().map(|&number| names[number]).collect();
        let exists = || asked.iter().map(|&number| number < LEN);
        let mut found = Vec::new();
        set.contains_all(&words, &hasher, |is_member| found.push(is_member));
        assert!(found.iter().copied().eq(exists()), "{count}");
        found.clear();
        hash.get_all(&words, 0, &hasher, |name, field| {
            assert!(field.is_none_or(|field| field.value.item().to_vec() == name));
            found.push(field.is_some());
        });
        assert!(found.iter().copied().eq(exists()), "{count}");
        let mut scores = Vec::new();
        sorted_set.score_all(&words, &hasher, |score| scores.push(score));
        let expected = |&number: &usize| (number < LEN).then_some((number * 7 % LEN) as f64);
        assert!(scores.into_iter().eq(asked.iter().map(expected)), "{count}");
    }
}
