//! Values as commands that make them, in forms that every peer knows.
//!
//! The log has one form for all that read it: replicas of any make and version, and servers that
//! load the file. Where a command, an option or a payload is not known to all, or where not all
//! come to the same value, the value itself is logged: as RESTORE with a payload of the oldest
//! version that is written, and behind it what that version does not hold.

use std::collections::BTreeMap;

use bobbin_dump::rdb::Format;
use bobbin_dump::{append_collection_payload, append_string_payload};
use bobbin_store::value::{CollectionRef, Hash, Stream, StreamId, StringRef};
use bobbin_store::{EntryRef, ValueRef};

use super::append_command;

/// The payload that [`append_restore`] needs of a value.
pub fn payload_of(value: ValueRef<'_>, compress: bool) -> Vec<u8> {
    let mut payload = Vec::new();
    let string = match value {
        ValueRef::Bytes(bytes) => StringRef::Flat(bytes),
        ValueRef::Shared(shared) => StringRef::Flat(shared),
        ValueRef::Chunked(chunked) => StringRef::Chunked(chunked),
        ValueRef::Collection(collection) => {
            append_collection_payload(collection, Format::Oldest, compress, &mut payload);
            return payload;
        }
    };
    append_string_payload(string, Format::Oldest, compress, &mut payload);
    payload
}

/// Appends the commands that make an entry, and returns their number. `payload` is that of its
/// value, `words` are further options of RESTORE.
pub fn append_restore(
    out: &mut Vec<u8>,
    entry: EntryRef<'_>,
    payload: &[u8],
    words: &[&[u8]],
) -> usize {
    let mut digits = itoa::Buffer::new();
    let ms = digits.format(entry.expire_ms().unwrap_or_default()).as_bytes();
    let is_absolute = words.iter().any(|word| word.eq_ignore_ascii_case(b"absttl"));
    let last: &[&[u8]] = if is_absolute { &[] } else { &[b"ABSTTL"] };
    append_command(out, &[&[&b"RESTORE"[..], entry.key(), ms, payload], words, last].concat());
    match entry.value() {
        ValueRef::Collection(CollectionRef::Hash(hash)) if hash.has_expiring() => {
            1 + append_field_times(out, entry.key(), hash)
        }
        ValueRef::Collection(CollectionRef::Stream(stream)) => {
            1 + append_counters(out, entry.key(), stream)
        }
        _ => 1,
    }
}

/// Appends the commands that give a stream and its groups their counters, and returns their number.
/// Redis before 7.0 has no counters, so it refuses the commands.
fn append_counters(out: &mut Vec<u8>, key: &[u8], stream: &Stream) -> usize {
    let log = stream.log();
    let [last_id, deleted_id] =
        [log.last_id, log.max_deleted_id].map(|id| format!("{}-{}", id.ms, id.seq));
    let added = counter(log.entries_added);
    let words = [&b"ENTRIESADDED"[..], added.as_bytes(), b"MAXDELETEDID", deleted_id.as_bytes()];
    let mut commands = 0;
    if log.entries_added != log.len() as u64 || log.max_deleted_id != StreamId::ZERO {
        append_command(out, &[&[&b"XSETID"[..], key, last_id.as_bytes()][..], &words].concat());
        commands += 1;
    }
    for (name, group) in stream.groups().iter() {
        let append = |args: &[&[u8]]| append_command(out, args);
        with_group_position(key, name, group.last_id, group.entries_read, append);
        commands += 1;
    }
    commands
}

/// Appends the commands that let a hash's fields expire, and returns their number. No version of
/// RDB with such times is known to both Redis and Valkey.
fn append_field_times(out: &mut Vec<u8>, key: &[u8], hash: &Hash) -> usize {
    let mut times = BTreeMap::<i64, Vec<Vec<u8>>>::new();
    for field in hash.iter() {
        if let Some(expire_ms) = field.expire_ms {
            times.entry(expire_ms).or_default().push(field.name.to_vec());
        }
    }
    let mut commands = 0;
    for (expire_ms, names) in times {
        for names in names.chunks(FIELDS_MAX) {
            let names: Vec<_> = names.iter().map(Vec::as_slice).collect();
            with_field_time(key, expire_ms, &names, |args| append_command(out, args));
            commands += 1;
        }
    }
    commands
}

/// A counter as a command takes it: as a signed number.
fn counter(count: u64) -> String {
    count.min(i64::MAX as u64).to_string()
}

/// Calls `give` with the command that sets a group's last ID and counter.
pub fn with_group_position(
    key: &[u8],
    group: &[u8],
    last_id: StreamId,
    entries_read: Option<u64>,
    give: impl FnOnce(&[&[u8]]),
) {
    let read = entries_read.map_or_else(|| "-1".to_owned(), counter);
    let id = format!("{}-{}", last_id.ms, last_id.seq);
    let read = [&b"ENTRIESREAD"[..], read.as_bytes()];
    give(&[&[&b"XGROUP"[..], b"SETID", key, group, id.as_bytes()][..], &read].concat());
}

/// Calls `give` with the command that lets fields expire at a time.
pub fn with_field_time(key: &[u8], expire_ms: i64, names: &[&[u8]], give: impl FnOnce(&[&[u8]])) {
    let (mut time, mut count) = (itoa::Buffer::new(), itoa::Buffer::new());
    let (time, count) = (time.format(expire_ms).as_bytes(), count.format(names.len()).as_bytes());
    give(&[&[&b"HPEXPIREAT"[..], key, time, b"FIELDS", count][..], names].concat());
}

/// How many fields one command names.
const FIELDS_MAX: usize = 1024;
