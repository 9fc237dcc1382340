//! Sorted sets, serialised. A packed one is its listpack (form 17); of a large one each member is
//! followed by its score, eight bytes, least significant first (form 5), from the highest down.
//! Read are the older forms as well.

use std::borrow::Cow;

use bobbin_store::value::integer::IntegerText;
use bobbin_store::value::pages::PREFETCHED;
use bobbin_store::value::{AnyCollection, SortedSet, SortedSetLimits};

use super::CollectionTarget;
use super::string::{append_string, read_string};
use super::ziplist;
use crate::input::Input;
use crate::kind::ValueKind;
use crate::length::{Length, append_length};
use crate::options::DumpOptions;

use bobbin_store::value::Listpack;

/// The form that it is written in.
pub(crate) const fn form(set: &SortedSet) -> ValueKind {
    match set {
        SortedSet::Packed(_) => ValueKind::SortedSetListpack,
        _ => ValueKind::SortedSet2,
    }
}

/// Appends the set in its form.
pub(crate) fn append(set: &SortedSet, form: ValueKind, compress: bool, output: &mut Vec<u8>) {
    if let SortedSet::Packed(pack) = set
        && form == ValueKind::SortedSetListpack
    {
        append_string(&pack.to_bytes(), compress, output);
        return;
    }
    append_length(set.len(), output);
    let mut room = IntegerText::new(0);
    for (member, score) in set.iter().rev() {
        append_string(member.text(&mut room), compress, output);
        output.extend_from_slice(&score.to_le_bytes());
    }
}

/// Reads a sorted set in one of its forms; `None` if it is damaged or empty.
pub(crate) fn read(
    kind: ValueKind,
    input: &mut Input<'_>,
    options: &DumpOptions,
    target: CollectionTarget<'_>,
) -> Option<AnyCollection> {
    let (limits, hasher) = (target.sorted_set, target.hasher);
    let set = match kind {
        ValueKind::SortedSetListpack => {
            let pack = Listpack::from_bytes(&read_string(input, options.element_len_max())?)?;
            SortedSet::from_listpack(pack, limits, hasher)?
        }
        ValueKind::SortedSetZiplist => {
            let pack = ziplist::read(&read_string(input, options.element_len_max())?)?;
            SortedSet::from_listpack(pack, limits, hasher)?
        }
        ValueKind::SortedSet | ValueKind::SortedSet2 => {
            read_elements(kind, input, options, limits, target)?
        }
        _ => return None,
    };
    (!set.is_empty()).then_some(AnyCollection::SortedSet(set))
}

fn read_elements(
    kind: ValueKind,
    input: &mut Input<'_>,
    options: &DumpOptions,
    limits: SortedSetLimits,
    target: CollectionTarget<'_>,
) -> Option<SortedSet> {
    let count = Length::read_plain(input)?;
    // Damage may say any number. Room for very many is not made at once.
    let mut set = SortedSet::for_elements(count, 0, limits);
    // A small set gets all elements at once, as it would be looked through for each of them. A
    // large one gets as many as it prefetches.
    let at_once = if count <= limits.packed_entries { count } else { PREFETCHED };
    let mut elements = Vec::new();
    let mut left = count;
    while left > 0 {
        elements.clear();
        for _ in 0..left.min(at_once) {
            elements.push(read_element(kind, input, options)?);
        }
        left -= elements.len();
        let members = elements.iter().map(|(member, _)| &**member);
        let mut differ = true;
        set.update_all(members, limits, target.hasher, |index, old| {
            differ &= old.is_none();
            Some(elements[index].1)
        });
        // A member twice is damage.
        if !differ {
            return None;
        }
    }
    Some(set)
}

/// Reads a member and its score.
fn read_element<'a>(
    kind: ValueKind,
    input: &mut Input<'a>,
    options: &DumpOptions,
) -> Option<(Cow<'a, [u8]>, f64)> {
    let member = read_string(input, options.element_len_max())?;
    let score = match kind {
        ValueKind::SortedSet2 => f64::from_le_bytes(input.array()?),
        _ => read_text_score(input)?,
    };
    (!score.is_nan() && member.len() <= MEMBER_LEN_MAX).then_some((member, score))
}

/// A score as text behind its length, in which three lengths stand for values without digits.
fn read_text_score(input: &mut Input<'_>) -> Option<f64> {
    match input.byte()? {
        255 => Some(f64::NEG_INFINITY),
        254 => Some(f64::INFINITY),
        253 => None,
        len => str::from_utf8(input.bytes(len.into())?).ok()?.trim_start().parse().ok(),
    }
}

const MEMBER_LEN_MAX: usize = 1 << 30;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::CollectionTarget;
    use bobbin_store::Hasher;
    use bobbin_store::value::Item;

    #[test]
    fn sets_of_all_sizes_read_back() {
        let hasher = Hasher::new(1);
        let target = CollectionTarget::new(&hasher);
        for len in [1, 128, 129, 3000] {
            let mut set = SortedSet::new();
            for number in 0..len {
                let member = format!("member:{number}");
                let score = f64::from(number % 70) / 4.0;
                set.insert(member.as_bytes(), score, target.sorted_set, &hasher);
            }
            let mut output = vec![form(&set) as u8];
            append(&set, form(&set), true, &mut output);
            let kind = ValueKind::from_byte(output[0]).unwrap();
            let mut input = Input(&output[1..]);
            let again = read(kind, &mut input, &DumpOptions::default(), target).unwrap();
            assert!(input.0.is_empty());
            let AnyCollection::SortedSet(again) = again else { panic!("no sorted set") };
            assert_eq!(again.encoding(), set.encoding());
            assert!(again.iter().eq(set.iter()));
            for end in (1..output.len()).step_by(7) {
                let mut input = Input(&output[1..end]);
                assert!(read(kind, &mut input, &DumpOptions::default(), target).is_none());
            }
        }
    }

    #[test]
    fn old_scores_are_texts() {
        let hasher = Hasher::new(1);
        let bytes = b"\x03\x01a\x031.5\x01b\xff\x01c\xfe";
        let kind = ValueKind::SortedSet;
        let read =
            read(kind, &mut Input(bytes), &DumpOptions::default(), CollectionTarget::new(&hasher))
                .unwrap();
        let AnyCollection::SortedSet(set) = read else { panic!("no sorted set") };
        let found: Vec<_> = set.iter().collect();
        assert!(
            found
                == [
                    (Item::Bytes(b"b"), f64::NEG_INFINITY),
                    (Item::Bytes(b"a"), 1.5),
                    (Item::Bytes(b"c"), f64::INFINITY),
                ]
        );
    }

    #[test]
    fn damage_is_refused() {
        let hasher = Hasher::new(1);
        for (kind, bytes) in [
            (ValueKind::SortedSet, &b"\0"[..]),
            (ValueKind::SortedSet, b"\x01\x01a\xfd"),
            (ValueKind::SortedSet, b"\x02\x01a\xff\x01a\xff"),
            (ValueKind::SortedSet2, b"\x01\x01a\0\0\0\0\0\0\xf8\x7f"),
            // An odd number of entries, and a score that is none.
            (ValueKind::SortedSetListpack, b"\x0a\x0a\0\0\0\x01\0\x81a\x02\xff"),
            (ValueKind::SortedSetListpack, b"\x0d\x0d\0\0\0\x02\0\x81a\x02\x81b\x02\xff"),
        ] {
            let read = read(
                kind,
                &mut Input(bytes),
                &DumpOptions::default(),
                CollectionTarget::new(&hasher),
            );
            assert!(read.is_none(), "{bytes:?}");
        }
    }
}
