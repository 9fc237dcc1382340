//! Changes of strings in place: APPEND, SETRANGE, and functions for the commands on bits.

use std::sync::Arc;

use bobbin_store::NewValue;
use bobbin_store::shard::Expire;
use bobbin_store::value::{CHUNKED_LEN_MIN, ChunkedString, StringRef};

use super::long_edit::{PART_AT_ONCE_MAX, put_in_slices};
use crate::base::memory;
use crate::engine::command::data::string;
use crate::engine::command::{Call, Classes, Data, Failure, Key, Outcome};

/// A string longer than this that outgrows its entry becomes a long one, which grows without a new
/// entry each time.
const GROWN_INLINE_MAX: usize = 1024;
/// From this length on, check whether there is enough memory: an allocation that fails ends the
/// process.
const TRIED_LEN_MIN: usize = 1 << 30;

/// A string, in one piece or in chunks.
pub(in crate::commands) trait StringBytes {
    fn len(&self) -> usize;

    /// Copies bytes into `into`. The part of `into` behind the string's end stays unchanged.
    fn read(&self, at: usize, into: &mut [u8]);
}

/// A string that can be changed. It keeps its length.
pub(in crate::commands) trait BytesMut: StringBytes {
    fn write(&mut self, at: usize, bytes: &[u8]);
}

/// A change of a string.
pub(in crate::commands) trait StringChange {
    type Result;

    /// Gets the string, which is long enough already, and its earlier length. Returns a result, and
    /// whether the string changed.
    fn apply<S: BytesMut + ?Sized>(
        &mut self,
        string: &mut S,
        old_len: usize,
    ) -> (Self::Result, bool);
}

/// Writes a part of the string. Returns the new length.
struct Put<'a> {
    /// `None`: at the end.
    at: Option<usize>,
    part: &'a [u8],
}

impl StringChange for Put<'_> {
    type Result = usize;

    #[inline(always)]
    fn apply<S: BytesMut + ?Sized>(&mut self, string: &mut S, old_len: usize) -> (usize, bool) {
        string.write(self.at.unwrap_or(old_len), self.part);
        (string.len(), true)
    }
}

pub(super) fn append(call: &mut Call<'_>) -> Outcome {
    let key = call.key(1)?;
    let tail = call.args[2];
    let limit = len_max(call);
    // For a new key the argument becomes the string, without a copy.
    if tail.len() > PART_AT_ONCE_MAX && call.may_leave_job && call.data.exists(key) {
        return put_in_slices(call, None, 2, limit, "append");
    }
    let room = |old_len: usize| checked_len(old_len, tail.len(), limit);
    let len = match edit(call.data, key, room, &mut Put { at: None, part: tail })? {
        Some(len) => len,
        None => {
            let value = call.value(2);
            call.data.set(key, value, Expire::Clear);
            tail.len()
        }
    };
    call.data.event(Classes::STRING, "append", key);
    call.reply.integer(len as i64);
    Ok(())
}

pub(super) fn setrange(call: &mut Call<'_>) -> Outcome {
    let offset = usize::try_from(call.integer(2)?)
        .map_err(|_| Failure::new(&"ERR offset is out of range"))?;
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
    if part.len() > PART_AT_ONCE_MAX && call.may_leave_job {
        return put_in_slices(call, Some(offset), 3, limit, "setrange");
    }
    let room = |_| checked_len(offset, part.len(), limit);
    let len = edit_or_make(call.data, key, room, &mut Put { at: Some(offset), part })?;
    call.data.event(Classes::STRING, "setrange", key);
    call.reply.integer(len as i64);
    Ok(())
}

/// Changes the string at a key, or makes a new one; see `edit`. To `room` and `change`, a missing
/// key is an empty string.
pub(in crate::commands) fn edit_or_make<C: StringChange>(
    data: &mut Data,
    key: Key<'_>,
    room: impl Fn(usize) -> Result<usize, Failure>,
    change: &mut C,
) -> Result<C::Result, Failure> {
    if let Some(result) = edit(data, key, &room, change)? {
        return Ok(result);
    }
    let mut buffer = [0; GROWN_INLINE_MAX];
    let (value, result) = build(&[], affordable(room(0)?)?, change, &mut buffer);
    data.set(key, value, Expire::Clear);
    Ok(result)
}

/// Changes the string at a key. `None`: there is none. `room` gets its length and returns the least
/// length that it must have. `change` gets the string padded with zeros to that length.
fn edit<C: StringChange>(
    data: &mut Data,
    key: Key<'_>,
    room: impl Fn(usize) -> Result<usize, Failure>,
    change: &mut C,
) -> Result<Option<C::Result>, Failure> {
    let Some(mut entry) = data.write(key) else { return Ok(None) };
    let old_len = string(entry.as_ref())?.len();
    let len = room(old_len)?;
    if let Some(bytes) = entry.string_mut(len) {
        let (result, changed) = change.apply(bytes, old_len);
        if changed {
            data.changed(key);
        }
        return Ok(Some(result));
    }
    let Some(old) = entry.as_ref().inline() else {
        let Some(chunked) = entry.chunked_mut(len) else {
            unreachable!("a string that is not inline is shared or chunked")
        };
        let (result, changed) = change.apply(chunked, old_len);
        if changed {
            data.changed(key);
        }
        return Ok(Some(result));
    };
    let mut buffer = [0; GROWN_INLINE_MAX];
    let (value, result) = build(old, affordable(len)?, change, &mut buffer);
    data.set_used(key, value, Expire::Keep);
    Ok(Some(result))
}

/// Makes a value that begins with `old`, has at least `len` bytes, and is then changed. A short one
/// lies in the buffer, which must be all zeros.
fn build<'b, C: StringChange>(
    old: &[u8],
    len: usize,
    change: &mut C,
    buffer: &'b mut [u8; GROWN_INLINE_MAX],
) -> (NewValue<'b>, C::Result) {
    let len = len.max(old.len());
    if len <= GROWN_INLINE_MAX {
        let bytes = &mut buffer[..len];
        bytes[..old.len()].copy_from_slice(old);
        let (result, _) = change.apply(bytes, old.len());
        return (NewValue::InlineRaw(bytes), result);
    }
    if len >= CHUNKED_LEN_MIN {
        let mut chunked = ChunkedString::from_bytes(old, len);
        let (result, _) = change.apply(&mut chunked, old.len());
        return (NewValue::Chunked(chunked), result);
    }
    let mut bytes = vec![0; len];
    bytes[..old.len()].copy_from_slice(old);
    let (result, _) = change.apply(&mut bytes[..], old.len());
    (NewValue::Shared(Arc::new(bytes)), result)
}

/// The length, if there is enough memory for it.
pub(super) fn affordable(len: usize) -> Result<usize, Failure> {
    // Strings this long are possible only if `proto-max-bulk-len` was raised.
    if len >= TRIED_LEN_MIN && !memory::is_available(len) {
        return Err(Failure::STRING_TOO_LONG);
    }
    Ok(len)
}

/// The longest string that commands may make. Commands of a log or a primary were checked where
/// they came from.
pub(in crate::commands) fn len_max(call: &Call<'_>) -> usize {
    if call.data.conditions.loading {
        return usize::MAX;
    }
    call.server.config.proto_max_bulk_len() as usize
}

pub(super) fn checked_len(len: usize, more: usize, limit: usize) -> Result<usize, Failure> {
    len.checked_add(more).filter(|&len| len <= limit).ok_or(Failure::STRING_TOO_LONG)
}

impl StringBytes for [u8] {
    #[inline(always)]
    fn len(&self) -> usize {
        self.len()
    }

    #[inline(always)]
    fn read(&self, at: usize, into: &mut [u8]) {
        // Usually there are enough bytes, and the compiler knows how many are read.
        match self.get(at..).and_then(|bytes| bytes.get(..into.len())) {
            Some(bytes) => into.copy_from_slice(bytes),
            None => {
                let rest = self.get(at..).unwrap_or_default();
                into[..rest.len()].copy_from_slice(rest);
            }
        }
    }
}

impl BytesMut for [u8] {
    #[inline(always)]
    fn write(&mut self, at: usize, bytes: &[u8]) {
        self[at..at + bytes.len()].copy_from_slice(bytes);
    }
}

impl StringBytes for ChunkedString {
    fn len(&self) -> usize {
        self.len()
    }

    fn read(&self, at: usize, into: &mut [u8]) {
        self.read(at, into);
    }
}

impl BytesMut for ChunkedString {
    fn write(&mut self, at: usize, bytes: &[u8]) {
        self.write(at, bytes);
    }
}

impl StringBytes for StringRef<'_> {
    fn len(&self) -> usize {
        (*self).len()
    }

    #[inline]
    fn read(&self, at: usize, into: &mut [u8]) {
        match self {
            StringRef::Flat(bytes) => StringBytes::read(*bytes, at, into),
            StringRef::Chunked(chunked) => chunked.read(at, into),
        }
    }
}
