//! The consumers of groups: XGROUP CREATECONSUMER and DELCONSUMER, and consumers that reading
//! creates.

use bobbin_resp::Reply;
use bobbin_store::value::stream::{ConsumerGroup, ConsumerNumber};

use super::group;
use super::pending::{PendingPart, PendingRemoval};
use crate::engine::command::{Call, Classes, Data, Failure, Key, Outcome};
use crate::engine::execution::slices::SLICED_MIN;

/// The consumer with this name, which has just done something. It is added if it is new.
pub(super) fn seen(
    data: &mut Data,
    key: Key<'_>,
    group_name: &[u8],
    name: &[u8],
    no_group: impl FnOnce() -> Failure,
) -> Result<ConsumerNumber, Failure> {
    let now_ms = data.conditions.now_ms;
    let (_, group) = group::find(data, key, group_name)?.ok_or_else(no_group)?;
    let (number, is_new) = seen_in(group, name, now_ms);
    if is_new {
        created(data, key, group_name, name);
    }
    Ok(number)
}

/// The consumer with this name, as in `seen`, and whether it is new.
pub(super) fn seen_in(
    group: &mut ConsumerGroup,
    name: &[u8],
    now_ms: i64,
) -> (ConsumerNumber, bool) {
    let known = group.consumer_number(name);
    let number = known.unwrap_or_else(|| group.add_consumer(name, now_ms));
    if let Some(consumer) = group.consumer_mut(number) {
        consumer.seen_ms = now_ms;
    }
    (number, known.is_none())
}

/// Logs and reports a consumer that reading has created.
pub(super) fn created(data: &mut Data, key: Key<'_>, group: &[u8], name: &[u8]) {
    note_created(data, key);
    data.propagate(&[b"XGROUP", b"CREATECONSUMER", key.bytes, group, name]);
}

fn note_created(data: &mut Data, key: Key<'_>) {
    data.changed_inside(key);
    data.event(Classes::STREAM, "xgroup-createconsumer", key);
}

pub(super) fn create(call: &mut Call<'_>) -> Outcome {
    let (key, now_ms, args) = (call.key(2)?, call.data.conditions.now_ms, call.args);
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
    let group = group::required(call)?;
    let consumer = group.consumer_number(args[4]).and_then(|number| group.consumer(number));
    let is_long = consumer.is_some_and(|consumer| consumer.pending().len() > SLICED_MIN);
    if is_long && call.may_leave_job {
        return PendingRemoval::leave(call, 2, PendingPart::Consumer(args[4].into()));
    }
    call.data.count_no_more_use();
    let pending = group::required(call)?.remove_consumer(args[4]);
    note_deleted(call.data, &mut call.reply, key, pending);
    Ok(())
}

/// Replies with the number of entries that were pending for a deleted consumer, and reports the
/// deletion. `None`: the consumer did not exist.
pub(super) fn note_deleted(
    data: &mut Data,
    reply: &mut Reply<'_>,
    key: Key<'_>,
    pending: Option<usize>,
) {
    if pending.is_some() {
        data.changed_inside(key);
        data.event(Classes::STREAM, "xgroup-delconsumer", key);
    }
    reply.integer(pending.unwrap_or(0) as i64);
}
