//! Streams: their nodes as Redis's listpacks, and their consumer groups.
//!
//! ```text
//! nodes: master ID, listpack ... | length | last ID
//! | first ID | greatest deleted ID | entries ever added              from the second form on
//! | groups: name, last ID
//!   | entries read                                                   from the second form on
//!   | pending: ID, Unix ms of delivery, deliveries ...
//!   | consumers: name, Unix ms seen
//!     | Unix ms active                                               from the third form on
//!     | pending: ID ...
//! ```
//! A listpack holds the numbers of entries, of deleted ones and of fields, the fields, 0, and for
//! each entry: flags, the milliseconds and the sequence number since the master ID, fields and
//! values (with their number before them; or only the values, if the fields are those of the node),
//! and how many items that were. (The format is Redis's `t_stream.c`.)

use bobbin_store::value::stream::{
    ConsumerGroup, NODE_BYTES_MAX, PACKED_DELETED, PACKED_LEAD, PACKED_SAME_FIELDS, StreamLog,
};
use bobbin_store::value::{Listpack, Stream, StreamId};

use super::string::{append_string, read_string};
use crate::input::Input;
use crate::kind::ValueKind;
use crate::length::{Length, append_length};
use crate::options::DumpOptions;

/// Appends a stream in the newest form.
pub(crate) fn append_stream(
    stream: &Stream,
    form: ValueKind,
    compress: bool,
    output: &mut Vec<u8>,
) {
    let log = stream.log();
    append_length(log.nodes().len(), output);
    let mut packed = Vec::new();
    for node in log.nodes().iter() {
        append_string(&node.master().to_bytes(), compress, output);
        packed.clear();
        node.append_packed(&mut packed);
        append_string(&packed, compress, output);
    }
    append_length(log.len(), output);
    append_id(log.last_id, output);
    if form != ValueKind::Stream {
        append_id(log.first_id(), output);
        append_id(log.max_deleted_id, output);
        append_number(log.entries_added, output);
    }
    append_length(stream.groups().len(), output);
    for (name, group) in stream.groups().iter() {
        append_string(name, compress, output);
        append_group(group, form, compress, output);
    }
}

fn append_group(group: &ConsumerGroup, form: ValueKind, compress: bool, output: &mut Vec<u8>) {
    append_id(group.last_id, output);
    if form != ValueKind::Stream {
        append_number(group.entries_read.unwrap_or(UNKNOWN), output);
    }
    append_length(group.pending().len(), output);
    for pending in group.pending().iter() {
        output.extend_from_slice(&pending.id.to_bytes());
        output.extend_from_slice(&pending.delivered_ms.to_le_bytes());
        append_number(pending.deliveries, output);
    }
    append_length(group.consumer_count(), output);
    for (_, consumer) in group.consumers() {
        append_string(consumer.name(), compress, output);
        output.extend_from_slice(&consumer.seen_ms.to_le_bytes());
        if form == ValueKind::Stream3 {
            output.extend_from_slice(&consumer.active_ms.unwrap_or(NEVER).to_le_bytes());
        }
        append_length(consumer.pending().len(), output);
        for id in consumer.pending().iter() {
            output.extend_from_slice(&id.to_bytes());
        }
    }
}

fn append_id(id: StreamId, output: &mut Vec<u8>) {
    append_number(id.ms, output);
    append_number(id.seq, output);
}

fn append_number(number: u64, output: &mut Vec<u8>) {
    append_length(number as usize, output);
}

/// Reads a stream in one of its three forms; `None` if it is damaged. It may be empty.
pub(crate) fn read_stream(
    kind: ValueKind,
    mut input: Input<'_>,
    options: &DumpOptions,
) -> Option<Stream> {
    let form = match kind {
        ValueKind::Stream => 1,
        ValueKind::Stream2 => 2,
        _ => 3,
    };
    read(form, &mut input, options)
}

fn read(form: u8, input: &mut Input<'_>, options: &DumpOptions) -> Option<Stream> {
    let mut stream = Stream::new();
    let log = stream.log_mut();
    for _ in 0..Length::read_plain(input)? {
        let master = read_string(input, options.element_len_max())?;
        let master = StreamId::from_bytes(master[..].try_into().ok()?);
        let pack = Listpack::from_bytes(&read_string(input, options.element_len_max())?)?;
        unpack(log, master, &pack)?;
    }
    if Length::read_plain(input)? != log.len() {
        return None;
    }
    log.last_id = read_id(input)?;
    if log.nodes().last().is_some_and(|node| node.last() > log.last_id) {
        return None;
    }
    log.entries_added = log.len() as u64;
    if form >= 2 {
        // That of the first entry; the entries tell it as well.
        read_id(input)?;
        log.max_deleted_id = read_id(input)?;
        // No ID is given twice. No command could make a stream otherwise.
        log.last_id = log.last_id.max(log.max_deleted_id);
        log.entries_added = read_number(input)?;
    }
    for _ in 0..Length::read_plain(input)? {
        let name = read_string(input, options.element_len_max())?;
        let group = read_group(form, stream.log(), input, options)?;
        if !stream.groups_mut().add(&name, group) {
            return None;
        }
    }
    Some(stream)
}

/// Adds a node of Redis's form to the entries.
fn unpack(log: &mut StreamLog, master: StreamId, pack: &Listpack) -> Option<()> {
    let mut items = pack.iter();
    let mut integer = || items.next()?.as_integer();
    let (live, deleted) = (integer()?, integer()?);
    let field_count = usize::try_from(integer()?).ok()?;
    let fields = items.clone().take(field_count);
    if items.nth(field_count)?.as_integer()? != 0 || !log.append_empty_node(master, fields) {
        return None;
    }
    let mut counts = [0, 0];
    while let Some(flags) = items.next() {
        let flags = flags.as_integer()?;
        let since_ms = items.next()?.as_integer()? as u64;
        let since_seq = items.next()?.as_integer()? as u64;
        let id =
            StreamId::new(master.ms.wrapping_add(since_ms), master.seq.wrapping_add(since_seq));
        let is_deleted = flags & PACKED_DELETED != 0;
        let has_same_fields = flags & PACKED_SAME_FIELDS != 0;
        let (count, lead) = if has_same_fields {
            (field_count, PACKED_LEAD)
        } else {
            let pairs = usize::try_from(items.next()?.as_integer()?).ok()?;
            (pairs.checked_mul(2)?, PACKED_LEAD + 1)
        };
        let stored = items.clone().take(count);
        // Behind the values is how many items the entry has, for walking backwards.
        if items.nth(count)?.as_integer()? != lead + count as i64 {
            return None;
        }
        let is_next = if has_same_fields {
            log.append_values_to_node(id, stored, is_deleted)
        } else {
            log.append_to_node(id, stored, is_deleted)
        };
        if !is_next {
            return None;
        }
        counts[usize::from(is_deleted)] += 1;
    }
    // As long as it may become when entries of it are deleted, it must be one that can be written
    // again.
    let fits = log.nodes().last().is_some_and(|node| node.packed_len_max() <= NODE_BYTES_MAX);
    (counts == [live, deleted] && counts != [0, 0] && fits).then_some(())
}

fn read_group(
    form: u8,
    log: &StreamLog,
    input: &mut Input<'_>,
    options: &DumpOptions,
) -> Option<ConsumerGroup> {
    let last_id = read_id(input)?;
    let entries_read = match form {
        1 => log.position(last_id),
        _ => Some(read_number(input)?).filter(|&read| read != UNKNOWN),
    };
    let mut group = ConsumerGroup::new(last_id, entries_read);
    let mut pending: Vec<(StreamId, i64, u64)> = Vec::new();
    for _ in 0..Length::read_plain(input)? {
        let id = StreamId::from_bytes(input.array()?);
        let delivered_ms = i64::from_le_bytes(input.array()?);
        pending.push((id, delivered_ms, read_number(input)?));
    }
    if !pending.is_sorted_by(|one, next| one.0 < next.0) {
        return None;
    }
    for _ in 0..Length::read_plain(input)? {
        let name = read_string(input, options.element_len_max())?;
        if group.consumer_number(&name).is_some() {
            return None;
        }
        let seen_ms = i64::from_le_bytes(input.array()?);
        let active_ms = if form >= 3 { i64::from_le_bytes(input.array()?) } else { seen_ms };
        let number = group.add_consumer(&name, seen_ms);
        group.consumer_mut(number)?.active_ms = Some(active_ms).filter(|&ms| ms != NEVER);
        for _ in 0..Length::read_plain(input)? {
            let id = StreamId::from_bytes(input.array()?);
            let at = pending.binary_search_by_key(&id, |pending| pending.0).ok()?;
            if group.pending().get(id).is_some() {
                return None;
            }
            let (_, delivered_ms, deliveries) = pending[at];
            group.assign(id, number, delivered_ms, deliveries);
        }
    }
    // Each is pending with one consumer.
    (group.pending().len() == pending.len()).then_some(group)
}

fn read_id(input: &mut Input<'_>) -> Option<StreamId> {
    Some(StreamId { ms: read_number(input)?, seq: read_number(input)? })
}

fn read_number(input: &mut Input<'_>) -> Option<u64> {
    match Length::read(input)? {
        Length::Plain(number) => Some(number),
        Length::Special(_) => None,
    }
}

/// The number of entries read that says that it is not known.
const UNKNOWN: u64 = u64::MAX;
/// The time of what did not happen.
const NEVER: i64 = -1;

#[cfg(test)]
mod tests {
    use bobbin_store::Hasher;
    use bobbin_store::value::stream::StreamEntry;
    use bobbin_store::value::{AnyCollection, Item, StreamLimits};
    use proptest::prelude::*;

    use super::*;
    use crate::CollectionTarget;
    use crate::SerializedCollection;
    use crate::format::Format;
    use crate::{Payload, PayloadError, append_collection_payload, parse_payload};

    /// DUMP of valkey-server 9.1.2: four entries of three sets of fields, one of them deleted; a
    /// group with two entries pending and an idle consumer, and one that has read everything.
    const DUMP: &str = "15011000000000000000050000000000000003c3404d405512550000001f00030101010201816102816202002009\
        000020010901018374776f04050103600c0002c00e401f0bdffd0201018163028178020620190fc37f02dffe02f2d12f010404010501\
        ff034384010503050404020167070081ffffffffffffffff0200000000000000050000000000000003a0105ffea10100000100000000\
        000000070000000000000000a0105ffea1010000010203636f6ea0105ffea1010000a0105ffea1010000020000000000000005000000\
        0000000003000000000000000700000000000000000469646c65a4105ffea1010000ffffffffffffffff00016843840181ffffffff\
        ffffffff0000500049f4b8524c84700b";

    /// Older forms hold the entries and what is pending, and lose what they have no place for.
    #[test]
    fn older_forms_are_read_back() {
        let stream = restore(&from_hex(DUMP)).unwrap();
        let newest = |stream: &Stream| {
            let mut bytes = Vec::new();
            append_stream(stream, ValueKind::Stream3, true, &mut bytes);
            bytes
        };
        for kind in [ValueKind::Stream, ValueKind::Stream2, ValueKind::Stream3] {
            let mut bytes = Vec::new();
            append_stream(&stream, kind, true, &mut bytes);
            let read = read_serialized(SerializedCollection { kind, bytes: &bytes }).unwrap();
            assert_eq!((read.len(), read.groups().len()), (stream.len(), stream.groups().len()));
            assert_eq!(newest(&read) == newest(&stream), kind == ValueKind::Stream3, "{kind:?}");
            let counts =
                |stream: &Stream| (stream.log().entries_added, stream.log().max_deleted_id);
            assert_eq!(counts(&read) == counts(&stream), kind != ValueKind::Stream, "{kind:?}");
        }
    }

    /// What the log says of a stream must be a command that each server takes.
    #[test]
    fn no_deleted_id_is_above_the_last() {
        let mut stream = Stream::new();
        let (last, deleted) = (StreamId { ms: 5, seq: 0 }, StreamId { ms: 9, seq: 0 });
        (stream.log_mut().last_id, stream.log_mut().max_deleted_id) = (last, deleted);
        let mut bytes = Vec::new();
        append_stream(&stream, ValueKind::Stream3, true, &mut bytes);
        let read =
            read_serialized(SerializedCollection { kind: ValueKind::Stream3, bytes: &bytes });
        assert_eq!(read.unwrap().log().last_id, deleted);
    }

    fn from_hex(hex: &str) -> Vec<u8> {
        let digit = |digit: u8| (digit as char).to_digit(16).unwrap() as u8;
        hex.as_bytes().chunks(2).map(|pair| digit(pair[0]) << 4 | digit(pair[1])).collect()
    }

    fn restore(payload: &[u8]) -> Result<Stream, PayloadError> {
        let Payload::Collection(serialized) = parse_payload(payload)? else { panic!("a string") };
        read_serialized(serialized)
    }

    fn read_serialized(serialized: SerializedCollection<'_>) -> Result<Stream, PayloadError> {
        let hasher = Hasher::new(1);
        match serialized.read(&DumpOptions::default(), CollectionTarget::new(&hasher))? {
            AnyCollection::Stream(stream) => Ok(stream),
            other => panic!("{other:?}"),
        }
    }

    fn dump(stream: Stream) -> Vec<u8> {
        let mut payload = Vec::new();
        let stream = AnyCollection::Stream(stream);
        append_collection_payload(stream.as_ref(), Format::Valkey, true, &mut payload);
        payload
    }

    #[test]
    fn the_same_bytes_as_valkey_both_ways() {
        let payload = from_hex(DUMP);
        let stream = restore(&payload).unwrap();
        let log = stream.log();
        assert_eq!((log.len(), log.entries_added), (3, 4));
        assert_eq!((log.last_id, log.max_deleted_id), (StreamId::new(900, 1), StreamId::new(5, 4)));
        let ids = |entry: StreamEntry<'_>| (entry.id.ms, entry.id.seq);
        let entries = log.range(StreamId::ZERO, StreamId::MAX).map(ids);
        assert!(entries.eq([(5, 3), (7, 0), (900, 1)]));
        let group = stream.groups().get(b"g").unwrap();
        assert_eq!((group.consumer_count(), group.pending().len()), (2, 2));
        assert_eq!(dump(stream), payload);
    }

    #[test]
    fn damaged_ones_are_refused() {
        let payload = from_hex(DUMP);
        let body = &payload[1..payload.len() - 10];
        for at in 0..body.len() {
            let mut damaged = body.to_vec();
            damaged[at] ^= 1;
            let kind = ValueKind::Stream3;
            // Whatever comes of it must be sound.
            if let Ok(stream) = read_serialized(SerializedCollection { kind, bytes: &damaged }) {
                restore(&dump(stream)).unwrap();
            }
            let cut = SerializedCollection { kind, bytes: &body[..at] };
            assert_eq!(read_serialized(cut).err(), Some(PayloadError::BadFormat));
        }
    }

    /// For each group of the oldest form it is found how far that has read. If all the deleted
    /// entries were passed for that, it would take minutes.
    #[test]
    fn many_groups_behind_many_deleted_entries_are_read_soon() {
        let (entries, groups) = (100_000, 100_000);
        let mut items =
            vec![Item::Integer(1), Item::Integer(entries - 1), Item::Integer(0), Item::Integer(0)];
        for ms in 0..entries {
            let deleted = if ms < entries - 1 { PACKED_DELETED } else { 0 };
            let flags = PACKED_SAME_FIELDS | deleted;
            items.extend([flags, ms, 0, PACKED_LEAD].map(Item::Integer));
        }
        let mut node = Listpack::new();
        node.append_many(items.into_iter());
        let mut body = Vec::new();
        append_length(1, &mut body);
        append_string(&StreamId::new(1, 1).to_bytes(), true, &mut body);
        append_string(&node.to_bytes(), true, &mut body);
        append_length(1, &mut body);
        append_id(StreamId::new(9_000_000, 0), &mut body);
        append_length(groups, &mut body);
        for name in 0..groups {
            append_string(name.to_string().as_bytes(), true, &mut body);
            append_id(StreamId::new(5, 5), &mut body);
            // Nothing is pending, and there is no consumer.
            body.extend_from_slice(&[0, 0]);
        }
        let kind = ValueKind::Stream;
        let stream = read_serialized(SerializedCollection { kind, bytes: &body }).unwrap();
        assert_eq!((stream.len(), stream.groups().len()), (1, groups));
        assert_eq!(stream.log().first_id(), StreamId::new(entries as u64, 1));
    }

    proptest! {
        #[test]
        fn what_is_dumped_is_restored(
            entries in proptest::collection::vec((0..9000u64, 0..3u64, 0..4usize, "[a-c0-9]{0,30}"), 0..300),
            deleted in proptest::collection::vec(any::<prop::sample::Index>(), 0..40),
        ) {
            let limits = StreamLimits { node_bytes_max: 4096, node_entries_max: 100 };
            let mut stream = Stream::new();
            let log = stream.log_mut();
            let mut ids = Vec::new();
            for (ms, seq, extra, value) in entries {
                let last = log.last_id;
                let id = StreamId::new(last.ms + ms, if ms == 0 { last.seq + 1 + seq } else { seq });
                if id == StreamId::ZERO {
                    continue;
                }
                let items: Vec<_> =
                    ["f", &value].into_iter().cycle().take(2 + 2 * extra.saturating_sub(2)).collect();
                let bytes = items.iter().map(|item| item.len()).sum();
                log.append(id, items.iter().map(|item| Item::Bytes(item.as_bytes())), bytes, limits);
                ids.push(id);
            }
            if !ids.is_empty() {
                for index in &deleted {
                    log.delete(*index.get(&ids));
                }
            }
            let payload = dump(stream.clone());
            let restored = restore(&payload).unwrap();
            let contents = |stream: &Stream| -> Vec<_> {
                let text = |entry: StreamEntry<'_>| {
                    (entry.id, entry.iter().map(|(f, v)| (f.to_vec(), v.to_vec())).collect::<Vec<_>>())
                };
                stream.log().range(StreamId::ZERO, StreamId::MAX).map(text).collect()
            };
            prop_assert_eq!(contents(&stream), contents(&restored));
            prop_assert_eq!(dump(restored), payload);
        }
    }
}
