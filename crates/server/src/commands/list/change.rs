//! Changing lists elsewhere than at their ends.

use bobbin_store::value::{End, List};

use super::super::elements;
use super::read::index_of;
use super::{element, limits, shrunk};
use crate::command::{Call, Classes, Failure, Outcome};

pub(super) fn linsert(call: &mut Call<'_>) -> Outcome {
    let after = if call.word_is(2, "after") {
        1
    } else if call.word_is(2, "before") {
        0
    } else {
        return Err(Failure::SYNTAX);
    };
    let (key, limits, pivot) = (call.key(1), limits(call), call.args[3]);
    let value = element(call.args[4])?;
    let Some(list) = call.data.write_as::<List>(key)? else {
        call.reply.integer(0);
        return Ok(());
    };
    let Some(index) = list.iter().position(|item| item == pivot) else {
        call.reply.integer(-1);
        return Ok(());
    };
    list.prepare(value.len(), 1, limits);
    list.insert(index + after, value, limits);
    let len = list.len();
    call.data.changed(key);
    call.data.event(Classes::LIST, "linsert", key);
    call.reply.integer(len as i64);
    Ok(())
}

pub(super) fn lset(call: &mut Call<'_>) -> Outcome {
    let (key, limits) = (call.key(1), limits(call));
    let (index, value) = (call.integer(2), element(call.args[3])?);
    let list = call.data.write_as::<List>(key)?.ok_or(Failure::NO_SUCH_KEY)?;
    let index = index_of(index?, list.len()).ok_or(Failure::OUT_OF_RANGE)?;
    list.prepare(value.len(), 1, limits);
    list.set(index, value, limits);
    call.data.changed(key);
    call.data.event(Classes::LIST, "lset", key);
    call.reply.ok();
    Ok(())
}

pub(super) fn lrem(call: &mut Call<'_>) -> Outcome {
    let count = call.integer(2)?;
    let (key, limits, value) = (call.key(1), limits(call), call.args[3]);
    let end = if count < 0 { End::Back } else { End::Front };
    let most = if count == 0 { usize::MAX } else { count.unsigned_abs() as usize };
    let removed = match call.data.write_as::<List>(key)? {
        Some(list) => list.remove_equal(value, most, end, limits),
        None => 0,
    };
    if removed > 0 {
        shrunk(call.data, key, removed, "lrem");
    }
    call.reply.integer(removed as i64);
    Ok(())
}

pub(super) fn ltrim(call: &mut Call<'_>) -> Outcome {
    let (start, stop) = (call.integer(2)?, call.integer(3)?);
    let (key, limits) = (call.key(1), limits(call));
    if let Some(list) = call.data.write_as::<List>(key)? {
        let len = list.len();
        list.trim(elements::range(start, stop, len), limits);
        let removed = len - list.len();
        shrunk(call.data, key, removed, "ltrim");
    }
    call.reply.ok();
    Ok(())
}
