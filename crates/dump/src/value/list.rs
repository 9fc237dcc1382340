//! Lists, serialised. What is written is form 18: a number of nodes, and for each a byte that says
//! what it is: one element (1), or a listpack of several (2), as a string. Read are the older forms
//! as well.

use bobbin_store::value::listpack::ListpackIter;
use bobbin_store::value::{AnyCollection, End, List, ListLimits, Listpack, listpack};

use super::set::append_item;
use super::string::{append_string, read_string};
use super::ziplist;
use crate::input::Input;
use crate::kind::ValueKind;
use crate::length::{Length, append_length};
use crate::options::DumpOptions;

/// Appends the list in the form `ValueKind::ListQuicklist2`.
pub(crate) fn append(list: &List, form: ValueKind, compress: bool, output: &mut Vec<u8>) {
    if form == ValueKind::List {
        append_length(list.len(), output);
        list.iter().for_each(|element| append_item(element, compress, output));
        return;
    }
    append_length(list.chunks().count(), output);
    let mut pack = Vec::new();
    for (entries, count) in list.chunks() {
        if count == 1
            && entries.len() > PLAIN_LEN_MIN
            && let Some(element) = ListpackIter::over(entries).next()
        {
            append_length(PLAIN, output);
            append_string(&element.to_vec(), compress, output);
            continue;
        }
        append_length(PACKED, output);
        pack.clear();
        listpack::write(entries, count, &mut pack);
        append_string(&pack, compress, output);
    }
}

/// Reads a list in one of its forms; `None` if it is damaged or empty.
pub(crate) fn read(
    kind: ValueKind,
    input: &mut Input<'_>,
    options: &DumpOptions,
    limits: ListLimits,
) -> Option<AnyCollection> {
    let list = match kind {
        ValueKind::List => read_elements(input, options, limits)?,
        ValueKind::ListQuicklist2 => {
            let nodes = Length::read_plain(input)?;
            let mut packs = Vec::new();
            for _ in 0..nodes {
                packs.push(read_node(input, options)?);
            }
            List::from_listpacks(packs.into_iter(), limits)
        }
        ValueKind::ListQuicklist => {
            let nodes = Length::read_plain(input)?;
            let mut packs = Vec::new();
            for _ in 0..nodes {
                packs.push(ziplist::read(&read_string(input, options.element_len_max())?)?);
            }
            List::from_listpacks(packs.into_iter(), limits)
        }
        ValueKind::ListZiplist => {
            let pack = ziplist::read(&read_string(input, options.element_len_max())?)?;
            List::from_listpacks(std::iter::once(pack), limits)
        }
        _ => return None,
    };
    (!list.is_empty()).then_some(AnyCollection::List(list))
}

fn read_elements(input: &mut Input<'_>, options: &DumpOptions, limits: ListLimits) -> Option<List> {
    let mut list = List::new();
    for _ in 0..Length::read_plain(input)? {
        let element = read_string(input, options.element_len_max())?;
        if element.len() > ELEMENT_LEN_MAX {
            return None;
        }
        list.prepare(element.len(), 1, limits);
        list.push((&*element).into(), End::Back, limits);
    }
    Some(list)
}

fn read_node(input: &mut Input<'_>, options: &DumpOptions) -> Option<Listpack> {
    match Length::read_plain(input)? {
        PLAIN => {
            let element = read_string(input, options.element_len_max())?;
            let mut pack = Listpack::new();
            // The reference never writes an empty one like this, and refuses it.
            if element.is_empty() || !pack.has_room(1, element.len()) {
                return None;
            }
            pack.push_back(&*element);
            Some(pack)
        }
        PACKED => Listpack::from_bytes(&read_string(input, options.element_len_max())?),
        _ => None,
    }
}

const PLAIN: usize = 1;
const PACKED: usize = 2;
/// A single element of more bytes is written as it is, as the reference does by default.
const PLAIN_LEN_MIN: usize = 8192;
const ELEMENT_LEN_MAX: usize = 1 << 30;

#[cfg(test)]
mod tests {
    use super::*;
    use bobbin_store::value::Item;

    fn round(fill: i64, values: &[Vec<u8>]) -> Vec<u8> {
        let limits = ListLimits::new(fill);
        let mut list = List::new();
        for value in values {
            list.prepare(value.len(), 1, limits);
            list.push(Item::Bytes(value), End::Back, limits);
        }
        let mut output = vec![ValueKind::ListQuicklist2 as u8];
        append(&list, ValueKind::ListQuicklist2, true, &mut output);
        let kind = ValueKind::from_byte(output[0]).unwrap();
        let mut input = Input(&output[1..]);
        let AnyCollection::List(again) =
            read(kind, &mut input, &DumpOptions::default(), limits).unwrap()
        else {
            panic!("no list");
        };
        assert!(input.0.is_empty());
        assert_eq!(again.encoding(), list.encoding());
        assert!(again.iter().eq(list.iter()));
        output
    }

    #[test]
    fn lists_of_all_sizes_read_back() {
        let output = round(-2, &[b"a".to_vec(), b"12".to_vec()]);
        assert_eq!(output, b"\x12\x01\x02\x0c\x0c\0\0\0\x02\0\x81a\x02\x0c\x01\xff");
        let many: Vec<_> =
            (0..5000).map(|number| format!("element:{number}").into_bytes()).collect();
        round(-2, &many);
        round(3, &many);
        round(-2, &[b"a".to_vec(), vec![b'x'; 20_000], b"b".to_vec()]);
    }

    #[test]
    fn damaged_lists_are_refused() {
        let limits = ListLimits::new(-2);
        let whole = b"\x01\x02\x0c\x0c\0\0\0\x02\0\x81a\x02\x0c\x01\xff";
        for end in 0..whole.len() {
            let mut input = Input(&whole[..end]);
            let kind = ValueKind::ListQuicklist2;
            assert!(read(kind, &mut input, &DumpOptions::default(), limits).is_none());
        }
        for (kind, bytes) in [
            (ValueKind::ListQuicklist2, &b"\0"[..]),
            (ValueKind::ListQuicklist2, b"\x01\x03\x01a"),
            (ValueKind::ListQuicklist2, b"\x01\x01\0"),
            (ValueKind::ListQuicklist2, b"\x01\x02\x07\x07\0\0\0\0\0\xff"),
            (ValueKind::List, b"\0"),
            (ValueKind::List, b"\x02\x01a"),
        ] {
            assert!(read(kind, &mut Input(bytes), &DumpOptions::default(), limits).is_none());
        }
    }
}
