//! Sets as RDB has them: their members one by one, an intset, or a listpack.

use bobbin_store::value::integer::IntegerText;
use bobbin_store::value::{Intset, Item, Listpack, Set};

use super::CollectionTarget;
use super::string::{append_string, read_string};
use crate::input::Input;
use crate::kind::ValueKind;
use crate::length::{Length, append_length};
use crate::options::DumpOptions;

/// `None` when the bytes are no such set, or an empty one.
pub(crate) fn read_set(
    kind: ValueKind,
    mut input: Input<'_>,
    options: &DumpOptions,
    target: CollectionTarget<'_>,
) -> Option<Set> {
    let (limits, hasher) = (&target.set, target.hasher);
    let set = match kind {
        ValueKind::SetIntset => {
            let bytes = read_string(&mut input, options.element_len_max())?;
            Set::from_intset(Intset::from_bytes(&bytes)?, limits, hasher)
        }
        ValueKind::SetListpack => {
            let bytes = read_string(&mut input, options.element_len_max())?;
            Set::from_listpack(Listpack::from_bytes(&bytes)?, limits, hasher)?
        }
        _ => {
            let len = Length::read_plain(&mut input)?;
            read_members(len, &mut input, options, target)?
        }
    };
    (!set.is_empty()).then_some(set)
}

/// Reads `len` members. A few are added at once, as a small set would be looked through from its
/// start for each of them.
fn read_members(
    len: usize,
    input: &mut Input<'_>,
    options: &DumpOptions,
    target: CollectionTarget<'_>,
) -> Option<Set> {
    let (limits, hasher) = (&target.set, target.hasher);
    let mut members = (0..len).map(|_| read_string(input, options.element_len_max()));
    let mut set = Set::default();
    if len <= limits.packed_entries.max(limits.intset_entries) {
        let members = members.collect::<Option<Vec<_>>>()?;
        let members: Vec<&[u8]> = members.iter().map(|member| &**member).collect();
        return (set.insert_all(&members, limits, hasher) == len).then_some(set);
    }
    set.make_table(hasher);
    members
        .all(|member| member.is_some_and(|member| set.insert(&member, limits, hasher)))
        .then_some(set)
}

/// Appends a set: the byte of its form, and that.
pub(crate) fn append_set(set: &Set, form: ValueKind, compress: bool, output: &mut Vec<u8>) {
    match set {
        Set::Integers(integers) => append_string(integers.as_bytes(), compress, output),
        Set::Packed(pack) if form == ValueKind::SetListpack => {
            append_string(&pack.to_bytes(), compress, output);
        }
        Set::Packed(_) | Set::Table(_) => {
            append_length(set.len(), output);
            set.iter().for_each(|member| append_item(member, compress, output));
        }
    }
}

/// The form that it is written in.
pub(crate) const fn form(set: &Set) -> ValueKind {
    match set {
        Set::Integers(_) => ValueKind::SetIntset,
        Set::Packed(_) => ValueKind::SetListpack,
        Set::Table(_) => ValueKind::Set,
    }
}

/// Appends an element as a string.
pub(crate) fn append_item(item: Item<'_>, compress: bool, output: &mut Vec<u8>) {
    append_string(item.text(&mut IntegerText::new(0)), compress, output);
}

#[cfg(test)]
mod tests {
    use bobbin_store::Hasher;

    use super::*;

    #[test]
    fn members_one_by_one_make_the_form_that_their_number_asks_for() {
        let hasher = Hasher::new(1);
        let read = |prefix: &str, len: usize, last: usize| {
            let mut bytes = Vec::new();
            append_length(len, &mut bytes);
            for number in (0..len - 1).chain([last]) {
                append_string(format!("{prefix}{number}").as_bytes(), false, &mut bytes);
            }
            let target = CollectionTarget::new(&hasher);
            read_set(ValueKind::Set, Input(&bytes), &DumpOptions::default(), target)
        };
        for (prefix, len, encoding) in [
            ("", 1, "intset"),
            ("", 512, "intset"),
            ("", 513, "hashtable"),
            ("member-", 1, "listpack"),
            ("member-", 128, "listpack"),
            ("member-", 129, "hashtable"),
            ("member-", 2000, "hashtable"),
        ] {
            let set = read(prefix, len, len - 1).expect("all members differ");
            assert_eq!((set.len(), set.encoding().name()), (len, encoding), "{prefix}{len}");
            assert!(len == 1 || read(prefix, len, 0).is_none(), "{len}: a member is there twice");
        }
    }
}
