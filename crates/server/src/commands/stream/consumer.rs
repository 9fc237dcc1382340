//! The consumers of groups: XGROUP CREATECONSUMER and DELCONSUMER, and those that come by reading.

use bobbin_store::value::stream::ConsumerNumber;

use super::group;
use crate::engine::command::{Call, Classes, Data, Failure, Key, Outcome};

/// The consumer of this name, which did something just now; it is added if it is new.
pub(super) fn seen(
    data: &mut Data,
    key: Key<'_>,
    group_name: &[u8],
    name: &[u8],
    no_group: impl FnOnce() -> Failure,
) -> Result<ConsumerNumber, Failure> {
    let now_ms = data.turn.now_ms;
    let (_, group) = group::find(data, key, group_name)?.ok_or_else(no_group)?;
    match group.consumer_number(name) {
        Some(number) => {
            if let Some(consumer) = group.consumer_mut(number) {
                consumer.seen_ms = now_ms;
            }
            Ok(number)
        }
        None => {
            let number = group.add_consumer(name, now_ms);
            created(data, key, group_name, name);
            Ok(number)
        }
    }
}

/// Notes a consumer that came by reading.
pub(super) fn created(data: &mut Data, key: Key<'_>, group: &[u8], name: &[u8]) {
    note_created(data, key);
    data.propagate(&[b"XGROUP", b"CREATECONSUMER", key.bytes, group, name]);
}

fn note_created(data: &mut Data, key: Key<'_>) {
    data.changed_inside(key);
    data.event(Classes::STREAM, "xgroup-createconsumer", key);
}

pub(super) fn create(call: &mut Call<'_>) -> Outcome {
    let (key, now_ms, args) = (call.key(2)?, call.data.turn.now_ms, call.args);
    let group = group::required(call)?;
    let is_new = group.consumer_number(args[4]).is_none();
    if is_new {
        group.add_consumer(args[4], now_ms);
        note_created(call.data, key);
    }
    call.reply.integer(is_new.into());
    Ok(())
}

pub(super) fn delete(call: &mut Call<'_>) -> Outcome {
    let (key, args) = (call.key(2)?, call.args);
    let pending = group::required(call)?.remove_consumer(args[4]);
    if pending.is_some() {
        call.data.changed_inside(key);
        call.data.event(Classes::STREAM, "xgroup-delconsumer", key);
    }
    call.reply.integer(pending.unwrap_or(0) as i64);
    Ok(())
}
