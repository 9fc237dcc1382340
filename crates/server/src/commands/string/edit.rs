//! Changing a string in place: APPEND, SETRANGE, and what the commands on bits need.

use std::sync::Arc;

use bobbin_store::NewValue;
use bobbin_store::shard::Expire;

use crate::command::data::string;
use crate::command::{Call, Classes, Data, Failure, Key, Outcome};
use crate::memory;

/// A string that outgrows its entry and is longer than this becomes a long one, which grows without a
/// new entry each time.
const GROWN_INLINE_MAX: usize = 1024;
/// From this length on it is tried whether there is memory: the process ends where there is none.
const TRIED_LEN_MIN: usize = 1 << 30;

pub(super) fn append(call: &mut Call<'_>) -> Outcome {
    let key = call.key(1)?;
    let tail = call.args[2];
    let limit = len_max(call);
    let room = |old_len: usize| checked_len(old_len, tail.len(), limit);
    let mut copy = |bytes: &mut [u8], old_len: usize| {
        bytes[old_len..].copy_from_slice(tail);
        (bytes.len(), true)
    };
    let len = match edit(call.data, key, room, &mut copy)? {
        Some(len) => len,
        None => {
            call.data.set(key, NewValue::string(tail), Expire::Clear);
            tail.len()
        }
    };
    call.data.event(Classes::STRING, "append", key);
    call.reply.integer(len as i64);
    Ok(())
}

pub(super) fn setrange(call: &mut Call<'_>) -> Outcome {
    let offset = usize::try_from(call.integer(2)?)
        .map_err(|_| Failure::new("ERR offset is out of range"))?;
    let key = call.key(1)?;
    let part = call.args[3];
    if part.is_empty() {
        let len = match call.data.write(key) {
            Some(entry) => string(entry.as_ref())?.len(),
            None => 0,
        };
        call.reply.integer(len as i64);
        return Ok(());
    }
    let limit = len_max(call);
    let room = |_| checked_len(offset, part.len(), limit);
    let mut copy = |bytes: &mut [u8], _| {
        bytes[offset..offset + part.len()].copy_from_slice(part);
        (bytes.len(), true)
    };
    let len = edit_or_make(call.data, key, room, &mut copy)?;
    call.data.event(Classes::STRING, "setrange", key);
    call.reply.integer(len as i64);
    Ok(())
}

/// Changes the string at a key, or a new one; see `edit`. For `room` and `change` a key that is not there
/// is an empty string.
pub(in crate::commands) fn edit_or_make<R>(
    data: &mut Data,
    key: Key<'_>,
    room: impl Fn(usize) -> Result<usize, Failure>,
    change: &mut impl FnMut(&mut [u8], usize) -> (R, bool),
) -> Result<R, Failure> {
    if let Some(result) = edit(data, key, &room, change)? {
        return Ok(result);
    }
    let mut buffer = [0; GROWN_INLINE_MAX];
    let (value, result) = build(&[], affordable(room(0)?)?, change, &mut buffer);
    data.set(key, value, Expire::Clear);
    Ok(result)
}

/// Changes the string at a key; `None` when there is none. `room` gets its length and says how long it
/// must be at least; `change` gets it, padded with zeros to that, and its length before, and returns its
/// result and whether it changed anything.
fn edit<R>(
    data: &mut Data,
    key: Key<'_>,
    room: impl Fn(usize) -> Result<usize, Failure>,
    change: &mut impl FnMut(&mut [u8], usize) -> (R, bool),
) -> Result<Option<R>, Failure> {
    let Some(mut entry) = data.write(key) else { return Ok(None) };
    let old_len = string(entry.as_ref())?.len();
    let len = room(old_len)?;
    if let Some(bytes) = entry.string_mut(len) {
        let (result, changed) = change(bytes, old_len);
        if changed {
            data.changed(key);
        }
        return Ok(Some(result));
    }
    let mut buffer = [0; GROWN_INLINE_MAX];
    let (value, result) = build(entry.as_ref().bytes(), affordable(len)?, change, &mut buffer);
    data.set(key, value, Expire::Keep);
    Ok(Some(result))
}

/// A value that begins with `old`, is at least `len` long, and then changed. A short one lies in the
/// buffer, which is all zeros before.
fn build<'b, R>(
    old: &[u8],
    len: usize,
    change: &mut impl FnMut(&mut [u8], usize) -> (R, bool),
    buffer: &'b mut [u8; GROWN_INLINE_MAX],
) -> (NewValue<'b>, R) {
    let len = len.max(old.len());
    if len <= GROWN_INLINE_MAX {
        let bytes = &mut buffer[..len];
        bytes[..old.len()].copy_from_slice(old);
        let (result, _) = change(bytes, old.len());
        return (NewValue::InlineRaw(bytes), result);
    }
    let mut bytes = vec![0; len];
    bytes[..old.len()].copy_from_slice(old);
    let (result, _) = change(&mut bytes, old.len());
    (NewValue::Shared(Arc::new(bytes)), result)
}

/// The length, if there is memory for it.
fn affordable(len: usize) -> Result<usize, Failure> {
    // Only where `proto-max-bulk-len` was raised are there any.
    if len >= TRIED_LEN_MIN && !memory::is_available(len) {
        return Err(Failure::STRING_TOO_LONG);
    }
    Ok(len)
}

/// The longest string that commands may make.
pub(in crate::commands) fn len_max(call: &Call<'_>) -> usize {
    call.server.config.proto_max_bulk_len() as usize
}

fn checked_len(len: usize, more: usize, limit: usize) -> Result<usize, Failure> {
    len.checked_add(more).filter(|&len| len <= limit).ok_or(Failure::STRING_TOO_LONG)
}
