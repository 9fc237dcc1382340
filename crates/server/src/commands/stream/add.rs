//! XADD adds entries, and XSETID sets facts about added entries.

use bobbin_store::value::stream::StreamLog;
use bobbin_store::value::{Item, Stream, StreamId};

use super::id::{self, NewId};
use super::trim::{self, LogEnds, TrimOptions};
use crate::engine::command::{Call, Classes, Failure, Outcome};

pub(super) fn xadd(call: &mut Call<'_>) -> Outcome {
    let mut trimming = None;
    let mut creates = true;
    let mut at = 2;
    let new_id = loop {
        let Some(&word) = call.args.get(at) else {
            // Errors in the options are reported first.
            TrimOptions::finish(trimming, call)?;
            return Err(Failure::wrong_arity(call.command));
        };
        if word == b"*" {
            break NewId::Clock;
        }
        let more = at + 1 < call.args.len();
        if word.eq_ignore_ascii_case(b"nomkstream") {
            creates = false;
            at += 1;
        } else if more && TrimOptions::is_option(word) {
            at = TrimOptions::parse_option(call, &mut trimming, at)?;
        } else {
            break NewId::parse(word)?;
        }
    };
    let trim = TrimOptions::finish(trimming, call)?;
    let items = &call.args[at + 1..];
    if items.len() < 2 || items.len() % 2 == 1 {
        return Err(Failure::wrong_arity(call.command));
    }
    if new_id == NewId::Given(StreamId::ZERO) {
        return Err("ERR The ID specified in XADD must be greater than 0-0".into());
    }
    let (key, limits, now_ms) =
        (call.key(1)?, super::limits(call), call.data.conditions.now_ms as u64);
    let bytes = items.iter().map(|item| item.len()).sum();
    let fits = StreamLog::takes(items.len(), bytes);
    let stream = if creates && fits {
        call.data.write_or_create::<Stream>(key)?
    } else {
        match call.data.write_as::<Stream>(key)? {
            Some(stream) => stream,
            None if creates => return Err(TOO_LARGE),
            None => {
                call.reply.null();
                return Ok(());
            }
        }
    };
    let log = stream.log_mut();
    if log.last_id == StreamId::MAX {
        return Err(EXHAUSTED);
    }
    let id = new_id.behind(log.last_id, now_ms).ok_or(NOT_ABOVE)?;
    if !fits {
        return Err(TOO_LARGE);
    }
    log.append(id, items.iter().map(|&item| Item::Bytes(item)), bytes, limits);
    let trimmed = trim.is_some_and(|trim| trim.run(log) > 0);
    let ends = trim.map(|_| LogEnds::of(log));
    propagate(call, at, new_id, id, ends);
    call.data.changed(key);
    call.data.event(Classes::STREAM, "xadd", key);
    if trimmed {
        call.data.event(Classes::STREAM, "xtrim", key);
    }
    id::reply(&mut call.reply, id);
    Ok(())
}

/// Logs XADD with its ID, which is the argument at `at`, and with the resulting length.
fn propagate(call: &mut Call<'_>, at: usize, new_id: NewId, id: StreamId, ends: Option<LogEnds>) {
    if !call.data.is_logged() || new_id == NewId::Given(id) && ends.is_none() {
        return;
    }
    let (id, mut end_text) = (id::text(id), Vec::new());
    let mut args = call.args.to_vec();
    if !matches!(new_id, NewId::Given(_)) {
        args[at] = &id;
    }
    if let Some(ends) = ends {
        trim::make_exact(&mut args, at, ends, &mut end_text);
    }
    call.data.propagate(&args);
}

pub(super) fn xsetid(call: &mut Call<'_>) -> Outcome {
    let last_id = id::parse(call.args[2], 0)?;
    let (mut entries_added, mut max_deleted_id) = (None, StreamId::ZERO);
    let mut at = 3;
    while at < call.args.len() {
        let more = at + 1 < call.args.len();
        if more && call.word_is(at, "entriesadded") {
            let added = u64::try_from(call.integer(at + 1)?);
            entries_added = Some(added.map_err(|_| "ERR entries_added must be positive")?);
        } else if more && call.word_is(at, "maxdeletedid") {
            max_deleted_id = id::parse(call.args[at + 1], 0)?;
            if last_id < max_deleted_id {
                return Err("ERR The ID specified in XSETID is smaller than the provided max_deleted_entry_id".into());
            }
        } else {
            return Err(Failure::SYNTAX);
        }
        at += 2;
    }
    let key = call.key(1)?;
    let Some(stream) = call.data.write_as::<Stream>(key)? else { return Err(Failure::NO_SUCH_KEY) };
    let log = stream.log_mut();
    if last_id < log.max_deleted_id {
        return Err(
            "ERR The ID specified in XSETID is smaller than current max_deleted_entry_id".into()
        );
    }
    // Deleted entries count: a restored stream's `max_deleted_id` may not include them.
    if last_id < log.greatest_id() {
        return Err(
            "ERR The ID specified in XSETID is smaller than the target stream top item".into()
        );
    }
    if entries_added.is_some_and(|added| added < log.len() as u64) {
        return Err(
            "ERR The entries_added specified in XSETID is smaller than the target stream length"
                .into(),
        );
    }
    log.last_id = last_id;
    if let Some(added) = entries_added {
        log.entries_added = added;
    }
    if max_deleted_id != StreamId::ZERO {
        log.max_deleted_id = max_deleted_id;
    }
    call.data.changed_inside(key);
    call.data.event(Classes::STREAM, "xsetid", key);
    call.reply.ok();
    Ok(())
}

const EXHAUSTED: Failure =
    Failure::new(&"ERR The stream has exhausted the last possible ID, unable to add more items");
const NOT_ABOVE: Failure = Failure::new(
    &"ERR The ID specified in XADD is equal or smaller than the target stream top item",
);
const TOO_LARGE: Failure = Failure::new(&"ERR Elements are too large to be stored");
