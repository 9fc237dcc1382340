//! Reading lists.

use bobbin_store::value::List;

use super::super::elements::{self, bulk};
use crate::engine::command::{Call, Outcome};
use crate::engine::execution::slices::{SLICE, SLICED_MIN, reply_in_slices};

pub(super) fn llen(call: &mut Call<'_>) -> Outcome {
    let len = call.data.read_as::<List>(call.key(1)?)?.map_or(0, List::len);
    call.reply.integer(len as i64);
    Ok(())
}

pub(super) fn lindex(call: &mut Call<'_>) -> Outcome {
    let index = call.integer(2);
    let Some(list) = call.data.read_as::<List>(call.key(1)?)? else {
        call.reply.null();
        return Ok(());
    };
    match index_of(index?, list.len()).and_then(|index| list.get(index)) {
        Some(item) => bulk(&mut call.reply, item),
        None => call.reply.null(),
    }
    Ok(())
}

pub(super) fn lrange(call: &mut Call<'_>) -> Outcome {
    let (start, stop) = (call.integer(2)?, call.integer(3)?);
    let Some(list) = call.data.read_as::<List>(call.key(1)?)? else {
        call.reply.array(0);
        return Ok(());
    };
    let range = elements::range(start, stop, list.len());
    if range.len() < SLICED_MIN || !call.may_leave_job {
        call.reply.array(range.len());
        list.range(range).for_each(|item| bulk(&mut call.reply, item));
        return Ok(());
    }
    let (list, mut from) = (list.clone(), range.start);
    reply_in_slices(call, move |reply| {
        if from == range.start {
            reply.array(range.len());
        }
        let to = range.end.min(from + SLICE);
        list.range(from..to).for_each(|item| bulk(reply, item));
        from = to;
        to < range.end
    });
    Ok(())
}

/// Converts an index, which counts from the end if it is negative.
pub(super) fn index_of(index: i64, len: usize) -> Option<usize> {
    let index = if index < 0 { index.checked_add(len as i64)? } else { index };
    usize::try_from(index).ok().filter(|&index| index < len)
}
