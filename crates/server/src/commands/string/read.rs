//! Commands that read strings.

use super::slice::slice;
use bobbin_resp::Reply;
use bobbin_store::entry::Shared;
use bobbin_store::{EntryRef, ValueRef};

use crate::command::{Call, Outcome};
use crate::server::Server;

pub(super) fn get(call: &mut Call<'_>) -> Outcome {
    let key = call.key(1)?;
    match call.data.read_string_entry(key)? {
        Some(entry) => append(&mut call.reply, entry, call.server),
        None => call.reply.null(),
    }
    Ok(())
}

/// Replies with a string, without a copy when that costs more than sending one part more.
#[inline(always)]
fn append(reply: &mut Reply<'_>, entry: EntryRef<'_>, server: &Server) {
    match entry.value() {
        ValueRef::Shared(shared) => append_shared(reply, shared, server),
        _ => reply.bulk(entry.bytes()),
    }
}

#[cold]
fn append_shared(reply: &mut Reply<'_>, value: &Shared, server: &Server) {
    let by_reference = server.config.min_string_size_avoid_copy_reply() as usize;
    if by_reference > 0 && value.len() >= by_reference {
        reply.bulk_shared(value);
    } else {
        reply.bulk(value);
    }
}

pub(super) fn mget(call: &mut Call<'_>) -> Outcome {
    call.reply.array(call.args.len() - 1);
    for index in 1..call.args.len() {
        let key = call.key(index)?;
        // Another type counts as nothing here.
        match call.data.read_string_entry(key) {
            Ok(Some(entry)) => append(&mut call.reply, entry, call.server),
            Ok(None) | Err(_) => call.reply.null(),
        }
    }
    Ok(())
}

pub(super) fn strlen(call: &mut Call<'_>) -> Outcome {
    let key = call.key(1)?;
    let len = call.data.read_string(key)?.map_or(0, <[u8]>::len);
    call.reply.integer(len as i64);
    Ok(())
}

/// GETRANGE and its older name SUBSTR.
pub(super) fn getrange(call: &mut Call<'_>) -> Outcome {
    let (start, end) = (call.integer(2)?, call.integer(3)?);
    let key = call.key(1)?;
    let value = call.data.read_string(key)?.unwrap_or_default();
    let part = slice(start, end, value.len()).map_or(&[][..], |range| &value[range]);
    call.reply.bulk(part);
    Ok(())
}
