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
            let mut set = Set::default();
            for _ in 0..len {
                let member = read_string(&mut input, options.element_len_max())?;
                if !set.insert(&member, limits, hasher) {
                    return None;
                }
            }
            set
        }
    };
    (!set.is_empty()).then_some(set)
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
