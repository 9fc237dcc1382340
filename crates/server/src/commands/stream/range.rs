//! Reading entries: XLEN, XRANGE and XREVRANGE.

use bobbin_resp::{Aggregate, Reply};
use bobbin_store::value::stream::StreamEntry;
use bobbin_store::value::{Stream, StreamId};

use super::super::elements::bulk;
use super::id;
use crate::engine::command::{Call, Failure, Outcome};
use crate::engine::execution::slices::{SLICE, SLICED_MIN, elements_in_slices};

pub(super) fn xlen(call: &mut Call<'_>) -> Outcome {
    let len = call.data.read_as::<Stream>(call.key(1)?)?.map_or(0, Stream::len);
    call.reply.integer(len as i64);
    Ok(())
}

pub(super) fn xrange(call: &mut Call<'_>) -> Outcome {
    range(call, false)
}

pub(super) fn xrevrange(call: &mut Call<'_>) -> Outcome {
    range(call, true)
}

fn range(call: &mut Call<'_>, back: bool) -> Outcome {
    let (start, end) = if back { (3, 2) } else { (2, 3) };
    let range = id::parse_range(call.args[start], call.args[end])?;
    let mut count = None;
    let mut at = 4;
    while at < call.args.len() {
        if !call.word_is(at, "count") || at + 1 == call.args.len() {
            return Err(Failure::SYNTAX);
        }
        count = Some(call.integer(at + 1)?.max(0) as usize);
        at += 2;
    }
    let Some(stream) = call.data.read_as::<Stream>(call.key(1)?)? else {
        call.reply.empty_array();
        return Ok(());
    };
    if count == Some(0) {
        call.reply.null_array();
        return Ok(());
    }
    let count = count.unwrap_or(usize::MAX);
    let (start, end) = range.into_inner();
    let header = call.reply.defer();
    let some = if call.may_leave_job { count.min(SLICED_MIN) } else { count };
    let (written, _) = append(&mut call.reply, stream, start, end, back, some);
    if written < SLICED_MIN || written == count || !call.may_leave_job {
        call.reply.finish_array(header, written);
        return Ok(());
    }
    call.reply.cancel(header);
    let stream = stream.clone();
    reply_slices(call, stream, start, end, back, count);
    Ok(())
}

fn reply_slices(
    call: &mut Call<'_>,
    stream: Stream,
    mut start: StreamId,
    mut end: StreamId,
    back: bool,
    count: usize,
) {
    elements_in_slices(call, Aggregate::Array, move |reply, done| {
        let slice = SLICE.min(count - *done);
        let (written, last) = append(reply, &stream, start, end, back, slice);
        *done += written;
        let next = last.and_then(|last| if back { last.previous() } else { last.next() });
        if let Some(next) = next
            && written == slice
            && *done < count
        {
            *(if back { &mut end } else { &mut start }) = next;
            return true;
        }
        false
    });
}

/// Appends up to `count` entries. Returns how many there were, and the ID of the last one.
fn append(
    reply: &mut Reply<'_>,
    stream: &Stream,
    start: StreamId,
    end: StreamId,
    back: bool,
    count: usize,
) -> (usize, Option<StreamId>) {
    let (mut written, mut last) = (0, None);
    let mut write = |entry: StreamEntry<'_>| {
        append_entry(reply, &entry);
        written += 1;
        last = Some(entry.id);
    };
    match back {
        false => stream.log().range(start, end).take(count).for_each(&mut write),
        true => stream.log().range_back(start, end).take(count).for_each(&mut write),
    }
    (written, last)
}

/// Appends an entry: its ID, and its fields and values.
#[inline]
pub(super) fn append_entry(reply: &mut Reply<'_>, entry: &StreamEntry<'_>) {
    reply.array(2);
    id::reply(reply, entry.id);
    reply.array(2 * entry.len());
    for (field, value) in entry {
        bulk(reply, field);
        bulk(reply, value);
    }
}
