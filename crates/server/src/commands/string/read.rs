//! Commands that read strings.

use super::slice::slice;
use crate::command::{Call, Outcome};

pub(super) fn get(call: &mut Call<'_>) -> Outcome {
    let key = call.key(1);
    match call.data.read_string(key)? {
        Some(value) => call.reply.bulk(value),
        None => call.reply.null(),
    }
    Ok(())
}

pub(super) fn mget(call: &mut Call<'_>) -> Outcome {
    call.reply.array(call.args.len() - 1);
    for index in 1..call.args.len() {
        let key = call.key(index);
        // Another type counts as nothing here.
        match call.data.read_string(key) {
            Ok(Some(value)) => call.reply.bulk(value),
            Ok(None) | Err(_) => call.reply.null(),
        }
    }
    Ok(())
}

pub(super) fn strlen(call: &mut Call<'_>) -> Outcome {
    let key = call.key(1);
    let len = call.data.read_string(key)?.map_or(0, <[u8]>::len);
    call.reply.integer(len as i64);
    Ok(())
}

/// GETRANGE and its older name SUBSTR.
pub(super) fn getrange(call: &mut Call<'_>) -> Outcome {
    let (start, end) = (call.integer(2)?, call.integer(3)?);
    let key = call.key(1);
    let value = call.data.read_string(key)?.unwrap_or_default();
    let part = slice(start, end, value.len()).map_or(&[][..], |range| &value[range]);
    call.reply.bulk(part);
    Ok(())
}
