//! Pushes to the ends of lists, and pops from them.

use bobbin_resp::Reply;
use bobbin_store::value::{End, List, ListLimits};

use super::super::elements::{self, bulk};
use super::super::popping::{self, Pops, pop_in_slices};
use super::{element, end, limits, pop_event, push_event, shrunk};
use crate::engine::command::{Call, Classes, Data, Failure, Key, Outcome};

pub(super) fn lpush(call: &mut Call<'_>) -> Outcome {
    push(call, End::Front)
}

pub(super) fn rpush(call: &mut Call<'_>) -> Outcome {
    push(call, End::Back)
}

pub(super) fn lpushx(call: &mut Call<'_>) -> Outcome {
    push_to_list(call, End::Front)
}

pub(super) fn rpushx(call: &mut Call<'_>) -> Outcome {
    push_to_list(call, End::Back)
}

pub(super) fn lpop(call: &mut Call<'_>) -> Outcome {
    pop(call, End::Front)
}

pub(super) fn rpop(call: &mut Call<'_>) -> Outcome {
    pop(call, End::Back)
}

fn push(call: &mut Call<'_>, end: End) -> Outcome {
    let (key, limits) = (call.key(1)?, limits(call.server));
    let bytes = bytes_of(&call.args[2..])?;
    let list = call.data.write_or_create::<List>(key)?;
    push_all(list, &call.args[2..], bytes, end, limits);
    let len = list.len();
    call.data.changed_by(key, call.args.len() - 2);
    call.data.event(Classes::LIST, push_event(end), key);
    call.reply.integer(len as i64);
    Ok(())
}

fn push_to_list(call: &mut Call<'_>, end: End) -> Outcome {
    let (key, limits) = (call.key(1)?, limits(call.server));
    let bytes = bytes_of(&call.args[2..])?;
    let Some(list) = call.data.write_as::<List>(key)? else {
        call.reply.integer(0);
        return Ok(());
    };
    push_all(list, &call.args[2..], bytes, end, limits);
    let len = list.len();
    call.data.changed_by(key, call.args.len() - 2);
    call.data.event(Classes::LIST, push_event(end), key);
    call.reply.integer(len as i64);
    Ok(())
}

fn bytes_of(values: &[&[u8]]) -> Result<usize, Failure> {
    let mut bytes = 0;
    for value in values {
        element(value)?;
        bytes += value.len();
    }
    Ok(bytes)
}

fn push_all(list: &mut List, values: &[&[u8]], bytes: usize, end: End, limits: ListLimits) {
    list.prepare(bytes, values.len(), limits);
    for &value in values {
        list.push(value.into(), end, limits);
    }
}

fn pop(call: &mut Call<'_>, end: End) -> Outcome {
    if call.args.len() > 3 {
        return Err(Failure::wrong_arity(call.command));
    }
    let (key, limits) = (call.key(1)?, limits(call.server));
    if call.args.len() == 3 {
        return pop_several(call, end);
    }
    let reply = &mut call.reply;
    let popped = match call.data.write_as::<List>(key)? {
        Some(list) => list.pop(end, limits, |item| bulk(reply, item)),
        None => None,
    };
    match popped {
        Some(()) => shrunk(call.data, key, 1, pop_event(end)),
        None => call.reply.null(),
    }
    Ok(())
}

fn pop_several(call: &mut Call<'_>, end: End) -> Outcome {
    let count = elements::count(call, 2)?;
    let (key, limits) = (call.key(1)?, limits(call.server));
    let Some(list) = call.data.write_as::<List>(key)? else {
        call.reply.null_array();
        return Ok(());
    };
    if count == 0 {
        call.reply.array(0);
        return Ok(());
    }
    if popping::is_long(count.min(list.len())) && call.may_leave_job {
        return pop_in_slices(call, 1..2, 1, count, Elements { end, with_key: false, limits });
    }
    call.reply.array(count.min(list.len()));
    let taken = take(list, count, end, limits, &mut call.reply);
    shrunk(call.data, key, taken, pop_event(end));
    Ok(())
}

/// Removes elements at an end and appends them to the reply, in the order of removal. Returns how
/// many there are.
fn take(
    list: &mut List,
    count: usize,
    end: End,
    limits: ListLimits,
    reply: &mut Reply<'_>,
) -> usize {
    let len = list.len();
    let count = count.min(len);
    match end {
        End::Front => {
            list.range(0..count).for_each(|item| bulk(reply, item));
            list.remove_range(0..count, limits);
        }
        End::Back => {
            list.range(len - count..len).rev().for_each(|item| bulk(reply, item));
            list.remove_range(len - count..len, limits);
        }
    }
    count
}

pub(super) fn lmpop(call: &mut Call<'_>) -> Outcome {
    let (wanted, end) = elements::popping(call, 1, end)?;
    let limits = limits(call.server);
    for at in wanted.keys.clone() {
        let key = call.key(at)?;
        let Some(list) = call.data.write_as::<List>(key)? else { continue };
        let is_long = popping::is_long(wanted.count.min(list.len()));
        call.data.count_no_more_use();
        if is_long && call.may_leave_job {
            let elements = Elements { end, with_key: true, limits };
            return pop_in_slices(call, wanted.keys, at, wanted.count, elements);
        }
        pop_from(call.data, key, wanted.count, end, limits, &mut call.reply)?;
        return Ok(());
    }
    call.reply.null_array();
    Ok(())
}

/// Pops elements of the list at a key, if there are any, and appends the key and the elements to
/// the reply.
pub(super) fn pop_from(
    data: &mut Data,
    key: Key<'_>,
    count: usize,
    end: End,
    limits: ListLimits,
    reply: &mut Reply<'_>,
) -> Result<bool, Failure> {
    let Some(list) = data.write_as::<List>(key)? else { return Ok(false) };
    reply.array(2);
    reply.bulk(key.bytes);
    reply.array(count.min(list.len()));
    let taken = take(list, count, end, limits, reply);
    note_popped(data, key, end, taken);
    Ok(true)
}

fn note_popped(data: &mut Data, key: Key<'_>, end: End, count: usize) {
    let mut digits = itoa::Buffer::new();
    data.propagate(&[pop_command(end), key.bytes, digits.format(count).as_bytes()]);
    shrunk(data, key, count, pop_event(end));
}

/// Pops many elements.
struct Elements {
    end: End,
    /// The reply includes the key.
    with_key: bool,
    limits: ListLimits,
}

impl Pops for Elements {
    type From = List;

    fn take(&mut self, from: &mut List, most: usize, reply: &mut Reply<'_>) -> usize {
        take(from, most, self.end, self.limits, reply)
    }

    fn finish(&mut self, data: &mut Data, key: Key<'_>, popped: usize, reply: &mut Reply<'_>) {
        if popped == 0 {
            reply.null_array();
            return;
        }
        if self.with_key {
            reply.array(2);
            reply.bulk(key.bytes);
        }
        reply.array(popped);
        note_popped(data, key, self.end, popped);
    }
}

/// Pops one element of the list at a key, if there is any, and appends the key and the element to
/// the reply.
pub(super) fn pop_one_from(
    data: &mut Data,
    key: Key<'_>,
    end: End,
    limits: ListLimits,
    reply: &mut Reply<'_>,
) -> Result<bool, Failure> {
    let Some(list) = data.write_as::<List>(key)? else { return Ok(false) };
    reply.array(2);
    reply.bulk(key.bytes);
    list.pop(end, limits, |item| bulk(reply, item));
    data.propagate(&[pop_command(end), key.bytes]);
    shrunk(data, key, 1, pop_event(end));
    Ok(true)
}

const fn pop_command(end: End) -> &'static [u8] {
    match end {
        End::Front => b"LPOP",
        End::Back => b"RPOP",
    }
}
