//! Consumer groups: XGROUP, and functions that find groups.

use bobbin_store::value::stream::{ConsumerGroup, StreamLog};
use bobbin_store::value::{Collection, Stream, StreamId};
use bobbin_store::{NewValue, OwnedEntry};

use super::{id, propagate};
use crate::engine::command::{Call, Classes, Data, Failure, Key, Outcome};

/// The group of a stream, and the stream's entries. `None`: the key or the group does not exist.
pub(super) fn find<'d>(
    data: &'d mut Data,
    key: Key<'_>,
    name: &[u8],
) -> Result<Option<(&'d mut StreamLog, &'d mut ConsumerGroup)>, Failure> {
    let stream = data.write_as::<Stream>(key)?;
    Ok(stream.and_then(|stream| stream.group_mut(name)))
}

/// The group that a subcommand of XGROUP needs.
pub(super) fn required<'d>(call: &'d mut Call<'_>) -> Result<&'d mut ConsumerGroup, Failure> {
    let (key, args) = (call.key(2)?, call.args);
    let Some(stream) = call.data.write_as::<Stream>(key)? else { return Err(NO_KEY) };
    let group = stream.groups_mut().get_mut(args[3]);
    group.ok_or_else(|| not_found(args[2], args[3]))
}

pub(super) fn create(call: &mut Call<'_>) -> Outcome {
    let options = GroupOptions::parse(call, true)?;
    let (key, args) = (call.key(2)?, call.args);
    let last_id = match call.data.write_as::<Stream>(key)? {
        Some(stream) => stream.log().last_id,
        None if options.make_stream => StreamId::ZERO,
        None => return Err(NO_KEY),
    };
    call.data.count_no_more_use();
    if args.len() > CREATE_ARGS_MAX {
        return Err(syntax(call));
    }
    let last_id = match args[4] {
        b"$" => last_id,
        text => id::parse(text, 0)?,
    };
    if !call.data.exists(key) {
        call.data.write_or_create::<Stream>(key)?;
        // Making the stream and the group counts as one change.
        call.data.changed_by(key, 0);
    }
    let groups = call.data.write_or_create::<Stream>(key)?.groups_mut();
    if !groups.add(args[3], ConsumerGroup::new(last_id, options.entries_read)) {
        return Err("BUSYGROUP Consumer Group name already exists".into());
    }
    call.data.changed_inside(key);
    if args.len() > 5 + usize::from(options.make_stream) {
        // Redis before 7.0 knows no ENTRIESREAD, but must have the group.
        let (words, id) = ([args[0], args[1], args[2], args[3]], id::text(last_id));
        let make_stream: &[&[u8]] = if options.make_stream { &[b"MKSTREAM"] } else { &[] };
        call.data.propagate(&[&words, &[&id[..]][..], make_stream].concat());
        if options.entries_read.is_some() {
            propagate::position(call.data, key, args[3], last_id, options.entries_read);
        }
    }
    call.data.event(Classes::STREAM, "xgroup-create", key);
    call.reply.ok();
    Ok(())
}

pub(super) fn setid(call: &mut Call<'_>) -> Outcome {
    let options = GroupOptions::parse(call, false)?;
    let (key, args) = (call.key(2)?, call.args);
    let Some(stream) = call.data.write_as::<Stream>(key)? else { return Err(NO_KEY) };
    let Some((log, group)) = stream.group_mut(args[3]) else {
        return Err(not_found(args[2], args[3]));
    };
    if args.len() > SETID_ARGS_MAX {
        return Err(syntax(call));
    }
    group.last_id = match args[4] {
        b"$" => log.last_id,
        text => id::parse_or_end(text, 0)?,
    };
    group.entries_read = options.entries_read;
    call.data.changed_inside(key);
    call.data.event(Classes::STREAM, "xgroup-setid", key);
    call.reply.ok();
    Ok(())
}

pub(super) fn destroy(call: &mut Call<'_>) -> Outcome {
    let (key, args) = (call.key(2)?, call.args);
    let Some(stream) = call.data.write_as::<Stream>(key)? else { return Err(NO_KEY) };
    let removed = stream.groups_mut().take(args[3]);
    call.reply.integer(removed.is_some().into());
    if let Some(groups) = removed {
        // A group may have very many pending entries to free.
        let mut stream = Stream::new();
        *stream.groups_mut() = groups;
        let value = NewValue::Collection(stream.into_any());
        call.data.discard(OwnedEntry::new(&[], value, None, 0));
        call.data.changed_inside(key);
        call.data.event(Classes::STREAM, "xgroup-destroy", key);
        // Clients that wait in the group learn that it is gone.
        call.data.signal_ready(key);
    }
    Ok(())
}

struct GroupOptions {
    make_stream: bool,
    entries_read: Option<u64>,
}

impl GroupOptions {
    /// Parses the options of CREATE and SETID.
    fn parse(call: &Call<'_>, creates: bool) -> Result<Self, Failure> {
        let mut options = Self { make_stream: false, entries_read: None };
        let mut at = 5;
        while at < call.args.len() {
            if creates && call.word_is(at, "mkstream") {
                options.make_stream = true;
                at += 1;
            } else if call.word_is(at, "entriesread") && at + 1 < call.args.len() {
                options.entries_read = match call.integer(at + 1)? {
                    -1 => None,
                    read => Some(u64::try_from(read).map_err(|_| ENTRIES_READ)?),
                };
                at += 2;
            } else {
                return Err(syntax(call));
            }
        }
        Ok(options)
    }
}

/// XGROUP's error if the key or the group does not exist.
pub(super) fn missing(data: &mut Data, key: Key<'_>, group: &[u8]) -> Failure {
    if data.exists(key) { not_found(key.bytes, group) } else { NO_KEY }
}

#[cold]
pub(super) fn not_found(key: &[u8], group: &[u8]) -> Failure {
    let (key, group) = (String::from_utf8_lossy(key), String::from_utf8_lossy(group));
    Failure::format(format!("NOGROUP No such consumer group '{group}' for key name '{key}'"))
}

/// The error if either the key or the group does not exist.
#[cold]
pub(super) fn nothing_found(key: &[u8], group: &[u8]) -> Failure {
    let (key, group) = (String::from_utf8_lossy(key), String::from_utf8_lossy(group));
    Failure::format(format!("NOGROUP No such key '{key}' or consumer group '{group}'"))
}

/// The error of a subcommand with wrong options.
#[cold]
pub(super) fn syntax(call: &Call<'_>) -> Failure {
    let name = call.args[1];
    Failure::wrong_subcommand(&String::from_utf8_lossy(call.args[0]), &name[..name.len().min(128)])
}

/// The most words of XGROUP CREATE and SETID, as in Redis: options may repeat up to that number.
const CREATE_ARGS_MAX: usize = 8;
const SETID_ARGS_MAX: usize = 7;

const NO_KEY: Failure = Failure::new(
    &"ERR The XGROUP subcommand requires the key to exist. Note that for CREATE you may want to use the MKSTREAM option \
     to create an empty stream automatically.",
);
const ENTRIES_READ: &str = "ERR value for ENTRIESREAD must be positive or -1";
