//! Hashes: reading fields one by one, all of them, or in a scan.

use bobbin_resp::{Aggregate, Reply};
use bobbin_store::value::hash::{FieldValue, HashField, Walk};
use bobbin_store::value::{Hash, Item};

use super::super::element_scan::{reply_scan, scan_in_slices};
use super::super::elements::bulk;
use super::super::repeats::{MANY, Repeats};
use super::super::scan::parse_cursor;
use super::super::scan_options::{ScanOptions, Scanned};
use crate::engine::command::{Call, Outcome};
use crate::engine::execution::slices::{SLICE, SLICED_MIN, reply_in_slices};

pub(super) fn hget(call: &mut Call<'_>) -> Outcome {
    let (key, now_ms) = (call.key(1)?, call.data.dead_ms());
    let hasher = call.data.keyspace().hasher();
    let hash = call.data.read_as::<Hash>(key)?;
    match hash.and_then(|hash| hash.get(call.args[2], now_ms, hasher)) {
        Some(field) => reply_value(&mut call.reply, field.value),
        None => call.reply.null(),
    }
    Ok(())
}

pub(super) fn hmget(call: &mut Call<'_>) -> Outcome {
    let (key, now_ms) = (call.key(1)?, call.data.dead_ms());
    let hasher = call.data.keyspace().hasher();
    let hash = call.data.read_as::<Hash>(key)?;
    call.reply.array(call.args.len() - 2);
    let mut repeats = (call.args.len() > MANY).then(Repeats::default);
    let (names, reply) = (&call.args[2..], &mut call.reply);
    let Some(hash) = hash else {
        names.iter().for_each(|_| reply.null());
        return Ok(());
    };
    hash.get_all(names, now_ms, hasher, |name, field| match field {
        Some(field) => reply_named(reply, &mut repeats, name, field.value),
        None => reply.null(),
    });
    Ok(())
}

pub(super) fn hexists(call: &mut Call<'_>) -> Outcome {
    let (key, now_ms) = (call.key(1)?, call.data.dead_ms());
    let hasher = call.data.keyspace().hasher();
    let hash = call.data.read_as::<Hash>(key)?;
    let exists = hash.is_some_and(|hash| hash.contains(call.args[2], now_ms, hasher));
    call.reply.integer(i64::from(exists));
    Ok(())
}

pub(super) fn hstrlen(call: &mut Call<'_>) -> Outcome {
    let (key, now_ms) = (call.key(1)?, call.data.dead_ms());
    let hasher = call.data.keyspace().hasher();
    let hash = call.data.read_as::<Hash>(key)?;
    let field = hash.and_then(|hash| hash.get(call.args[2], now_ms, hasher));
    call.reply.integer(field.map_or(0, |field| field.value.len() as i64));
    Ok(())
}

pub(super) fn hlen(call: &mut Call<'_>) -> Outcome {
    let key = call.key(1)?;
    let len = call.data.read_as::<Hash>(key)?.map_or(0, Hash::len);
    call.reply.integer(len as i64);
    Ok(())
}

pub(super) fn hgetall(call: &mut Call<'_>) -> Outcome {
    all(call, FieldPart::Both)
}

pub(super) fn hkeys(call: &mut Call<'_>) -> Outcome {
    all(call, FieldPart::Names)
}

pub(super) fn hvals(call: &mut Call<'_>) -> Outcome {
    all(call, FieldPart::Values)
}

/// Which part of each field is shown.
#[derive(Clone, Copy, PartialEq, Eq)]
enum FieldPart {
    Names,
    Values,
    Both,
}

fn all(call: &mut Call<'_>, part: FieldPart) -> Outcome {
    let (key, now_ms) = (call.key(1)?, call.data.dead_ms());
    let kind = if part == FieldPart::Both { Aggregate::Map } else { Aggregate::Array };
    let Some(hash) = call.data.read_as::<Hash>(key)? else {
        call.reply.aggregate(kind, 0);
        return Ok(());
    };
    if hash.len() > SLICED_MIN && call.may_leave_job {
        let pinned = hash.clone();
        all_in_slices(call, pinned, part, kind);
        return Ok(());
    }
    if hash.may_have_expired(now_ms) {
        call.reply.aggregate(kind, hash.live(now_ms).count());
        hash.live(now_ms).for_each(|field| reply_part(&mut call.reply, field, part));
    } else {
        call.reply.aggregate(kind, hash.len());
        hash.iter().for_each(|field| reply_part(&mut call.reply, field, part));
    }
    Ok(())
}

fn all_in_slices(call: &mut Call<'_>, hash: Hash, part: FieldPart, kind: Aggregate) {
    let now_ms = call.data.dead_ms();
    let (mut walk, mut begun) = (Walk::default(), false);
    reply_in_slices(call, move |reply| {
        if !begun {
            begun = true;
            let expired = hash.may_have_expired(now_ms);
            reply.aggregate(kind, if expired { hash.live(now_ms).count() } else { hash.len() });
        }
        let next = hash.walk(walk, SLICE, |field| {
            if field.expire_ms.is_none_or(|at| at > now_ms) {
                reply_part(reply, field, part);
            }
        });
        walk = next.unwrap_or_default();
        next.is_some()
    });
}

#[inline]
fn reply_part(reply: &mut Reply<'_>, field: HashField<'_>, part: FieldPart) {
    if part != FieldPart::Values {
        bulk(reply, field.name);
    }
    if part != FieldPart::Names {
        reply_value(reply, field.value);
    }
}

/// Replies with the value of a field that may be named very often. Then it is copied only once.
#[inline]
pub(super) fn reply_named<'a>(
    reply: &mut Reply<'_>,
    repeats: &mut Option<Repeats<'a>>,
    name: &'a [u8],
    value: FieldValue<'_>,
) {
    match (value, repeats) {
        (FieldValue::Item(Item::Bytes(bytes)), Some(repeats)) => repeats.bulk(reply, name, bytes),
        (value, _) => reply_value(reply, value),
    }
}

/// Replies with a value. A long one is not copied.
#[inline]
pub(super) fn reply_value(reply: &mut Reply<'_>, value: FieldValue<'_>) {
    match value {
        FieldValue::Item(item) => bulk(reply, item),
        FieldValue::Outside(outside) => reply.bulk_shared(&outside.to_shared()),
    }
}

pub(super) fn hscan(call: &mut Call<'_>) -> Outcome {
    let cursor = parse_cursor(call.args[2]).ok_or("ERR invalid cursor")?;
    let (key, now_ms) = (call.key(1)?, call.data.dead_ms());
    let hasher = call.data.keyspace().hasher();
    if call.data.read_as::<Hash>(key)?.is_none() {
        reply_scan(&mut call.reply, 0, 0, &[]);
        return Ok(());
    }
    let options = ScanOptions::parse(call, 3, Scanned::Hash)?;
    // The read was counted already.
    let Some(hash) = call.data.peek(key).and_then(|entry| entry.collection::<Hash>()) else {
        return Ok(());
    };
    let show = move |reply: &mut Reply<'_>, field: HashField<'_>, options: &ScanOptions| {
        if !options.matches(field.name) {
            return 0;
        }
        bulk(reply, field.name);
        if options.names_only {
            return 1;
        }
        bulk(reply, field.value.item());
        2
    };
    if options.count > SLICED_MIN && hash.len() > SLICED_MIN && call.may_leave_job {
        let pinned = hash.clone();
        scan_in_slices(call, options, cursor, move |cursor, count, options, reply| {
            let mut shown = 0;
            let next = pinned.scan(cursor, count, now_ms, hasher, |field| {
                shown += show(reply, field, options);
            });
            (next, shown)
        });
        return Ok(());
    }
    let mut found = Vec::new();
    let mut elements = Reply::new(&mut found, call.client.protocol);
    let mut shown = 0;
    let next = hash.scan(cursor, options.count, now_ms, hasher, |field| {
        shown += show(&mut elements, field, &options);
    });
    reply_scan(&mut call.reply, next, shown, &found);
    Ok(())
}
