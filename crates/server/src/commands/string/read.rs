//! Commands that read strings.

use std::ops::Range;
use std::sync::Arc;

use super::super::repeats::{MANY, Repeats};
use super::slice::slice;
use bobbin_resp::{Reply, SharedSlice};
use bobbin_store::entry::SharedString;
use bobbin_store::value::{ChunkedString, StringRef};
use bobbin_store::{EntryRef, ValueRef};

use crate::engine::command::{Call, Key, Outcome};
use crate::engine::server::Server;

pub(super) fn get(call: &mut Call<'_>) -> Outcome {
    let key = call.key(1)?;
    get_key(call, key)
}

/// Replies with the string at a key.
#[inline(always)]
pub(super) fn get_key(call: &mut Call<'_>, key: Key<'_>) -> Outcome {
    match call.data.read_string_entry(key)? {
        Some(entry) => append(&mut call.reply, entry, call.server),
        None => call.reply.null(),
    }
    Ok(())
}

/// Replies with a string, without copying it if a copy costs more than sending a separate part.
#[inline(always)]
pub(super) fn append(reply: &mut Reply<'_>, entry: EntryRef<'_>, server: &Server) {
    match entry.value() {
        ValueRef::Bytes(bytes) => reply.bulk(bytes),
        ValueRef::Shared(shared) => append_shared(reply, shared, server),
        ValueRef::Chunked(chunked) => append_chunked(reply, chunked, server),
        ValueRef::Collection(_) => unreachable!("the caller has seen that it is a string"),
    }
}

#[cold]
fn append_shared(reply: &mut Reply<'_>, value: &SharedString, server: &Server) {
    let by_reference = server.config.min_string_size_avoid_copy_reply() as usize;
    if by_reference > 0 && value.len() >= by_reference {
        reply.bulk_shared(value);
    } else {
        reply.bulk(value);
    }
}

#[cold]
fn append_chunked(reply: &mut Reply<'_>, value: &ChunkedString, server: &Server) {
    let by_reference = server.config.min_string_size_avoid_copy_reply() as usize;
    if by_reference > 0 && value.len() >= by_reference {
        append_pieces(reply, value, 0..value.len());
    } else {
        append_range(reply, StringRef::Chunked(value), 0..value.len());
    }
}

fn append_pieces(reply: &mut Reply<'_>, value: &ChunkedString, range: Range<usize>) {
    let (len, pieces) = (range.len(), value.pieces(range));
    let parts = pieces.map(|(owner, range)| SharedSlice::new(Arc::clone(owner), range));
    reply.bulk_of_parts(len, parts);
}

/// Replies with a copy of a part of a string in chunks.
#[cold]
fn append_range(reply: &mut Reply<'_>, value: StringRef<'_>, range: Range<usize>) {
    reply.output().reserve(range.len());
    reply.bulk_header(range.len());
    value.slices(range).for_each(|slice| reply.raw(slice));
    reply.bulk_end();
}

pub(super) fn mget(call: &mut Call<'_>) -> Outcome {
    call.reply.array(call.args.len() - 1);
    if call.args.len() > MANY {
        return get_many(call);
    }
    for index in 1..call.args.len() {
        let key = call.key(index)?;
        // A value of another type counts as missing here.
        match call.data.read_string_entry(key) {
            Ok(Some(entry)) => append(&mut call.reply, entry, call.server),
            Ok(None) | Err(_) => call.reply.null(),
        }
    }
    Ok(())
}

/// MGET of many keys. One key may be named again and again, and no large value is copied twice.
#[cold]
fn get_many(call: &mut Call<'_>) -> Outcome {
    let args = call.args;
    let mut repeats = Repeats::default();
    let many = call.has_very_many_keys();
    for index in 1..args.len() {
        if many {
            call.prefetch_after(index);
        }
        let key = call.key(index)?;
        let reply = &mut call.reply;
        match call.data.read_string_entry(key) {
            Ok(Some(entry)) => match entry.value() {
                ValueRef::Bytes(bytes) => repeats.bulk(reply, args[index], bytes),
                ValueRef::Shared(shared) => reply.bulk_shared(shared),
                ValueRef::Chunked(chunked) => append_pieces(reply, chunked, 0..chunked.len()),
                ValueRef::Collection(_) => unreachable!("it is a string"),
            },
            Ok(None) | Err(_) => reply.null(),
        }
    }
    Ok(())
}

pub(super) fn strlen(call: &mut Call<'_>) -> Outcome {
    let key = call.key(1)?;
    let len = call.data.read_string(key)?.map_or(0, StringRef::len);
    call.reply.integer(len as i64);
    Ok(())
}

/// GETRANGE, and its older name SUBSTR.
pub(super) fn getrange(call: &mut Call<'_>) -> Outcome {
    let (start, end) = (call.integer(2)?, call.integer(3)?);
    let key = call.key(1)?;
    let Some(entry) = call.data.read_string_entry(key)? else {
        call.reply.bulk(b"");
        return Ok(());
    };
    let value = entry.string();
    let range = slice(start, end, value.len()).unwrap_or_default();
    let by_reference = call.server.config.min_string_size_avoid_copy_reply() as usize;
    if by_reference > 0 && range.len() >= by_reference {
        match entry.value() {
            ValueRef::Shared(shared) => {
                let part = SharedSlice::new(Arc::clone(shared), range.clone());
                call.reply.bulk_of_parts(range.len(), std::iter::once(part));
                return Ok(());
            }
            ValueRef::Chunked(chunked) => {
                append_pieces(&mut call.reply, chunked, range);
                return Ok(());
            }
            _ => {}
        }
    }
    match value.flat() {
        Some(bytes) => call.reply.bulk(&bytes[range]),
        None => append_range(&mut call.reply, value, range),
    }
    Ok(())
}
