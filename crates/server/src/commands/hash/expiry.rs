//! Hashes: fields that expire. HEXPIRE, HTTL and related commands, and HPERSIST.

use std::collections::BTreeMap;

use bobbin_store::value::Hash;

use super::super::expire::{
    ExpireConditions, MILLISECONDS, SECONDS, Scale, UNIX_MILLISECONDS, UNIX_SECONDS,
};
use super::{changed, note_expired};
use crate::engine::command::{Call, Classes, Failure, Key, Outcome};
use crate::engine::log::with_field_time;

pub(super) fn hexpire(call: &mut Call<'_>) -> Outcome {
    set(call, SECONDS)
}

pub(super) fn hpexpire(call: &mut Call<'_>) -> Outcome {
    set(call, MILLISECONDS)
}

pub(super) fn hexpireat(call: &mut Call<'_>) -> Outcome {
    set(call, UNIX_SECONDS)
}

pub(super) fn hpexpireat(call: &mut Call<'_>) -> Outcome {
    set(call, UNIX_MILLISECONDS)
}

fn set(call: &mut Call<'_>, scale: Scale) -> Outcome {
    let args = call.args;
    let word = (3..args.len() - 1).find(|&at| call.word_is(at, "fields")).ok_or(FIELD_COUNT)?;
    let conditions = ExpireConditions::parse(&args[3..word])?;
    let names = counted_fields(call, word, 1)?;
    let expire_ms = expire_time(call, 2, scale)?;
    let (key, now_ms) = (call.key(1)?, call.data.dead_ms());
    let (past, hasher) = (call.data.is_past(expire_ms), call.data.keyspace().hasher());
    let Some(mut hash) = call.data.write_hash(key)? else {
        call.reply.array(names.len());
        names.iter().for_each(|_| call.reply.integer(NO_FIELD));
        return Ok(());
    };
    call.reply.array(names.len());
    let mut done = Vec::new();
    for name in names {
        let answer = match hash.get(name, now_ms, hasher) {
            None => NO_FIELD,
            Some(field) if !conditions.allow(field.expire_ms, expire_ms) => REFUSED,
            Some(_) if past => {
                hash.remove(name, now_ms, hasher);
                DELETED
            }
            Some(_) => {
                hash.set_expiry(name, Some(expire_ms), hasher);
                DONE
            }
        };
        if answer == DONE || answer == DELETED {
            done.push(*name);
        }
        call.reply.integer(answer);
    }
    drop(hash);
    if done.is_empty() {
        return Ok(());
    }
    if past {
        propagate_fields(call, &[b"HDEL", key.bytes], None, &done);
        fields_expired(call, key, done.len(), done.len());
    } else {
        propagate_time(call, key, expire_ms, &done);
        fields_may_expire(call, key, done.len());
    }
    Ok(())
}

/// Logs that fields got a time. The command names those alone for which the conditions held, so it
/// needs none; and Redis takes no more than one.
pub(super) fn propagate_time(call: &mut Call<'_>, key: Key<'_>, expire_ms: i64, names: &[&[u8]]) {
    if call.data.is_logged() {
        with_field_time(key.bytes, expire_ms, names, |args| call.data.propagate(args));
    }
}

/// Logs that fields were set. HSET takes their times away, and they get anew what they have:
/// Redis 7.4 knows no command for both.
pub(super) fn propagate_set(call: &mut Call<'_>, key: Key<'_>, pairs: &[&[u8]]) {
    if !call.data.is_logged() {
        return;
    }
    propagate_fields(call, &[b"HSET", key.bytes], None, pairs);
    let hasher = call.data.keyspace().hasher();
    let mut times = BTreeMap::<i64, Vec<&[u8]>>::new();
    if let Some(hash) = call.data.peek(key).and_then(|entry| entry.collection::<Hash>()) {
        for pair in pairs.chunks_exact(2) {
            let field = hash.get(pair[0], i64::MIN, hasher);
            if let Some(expire_ms) = field.and_then(|field| field.expire_ms) {
                times.entry(expire_ms).or_default().push(pair[0]);
            }
        }
    }
    for (expire_ms, names) in times {
        propagate_time(call, key, expire_ms, &names);
    }
}

/// Logs a command for those fields that were changed. For other fields the command might have an
/// effect later.
pub(super) fn propagate_fields(
    call: &mut Call<'_>,
    words: &[&[u8]],
    count: Option<usize>,
    fields: &[&[u8]],
) {
    if call.data.is_logged() {
        let mut digits = itoa::Buffer::new();
        let mut args = words.to_vec();
        if let Some(count) = count {
            args.extend([&b"FIELDS"[..], digits.format(count).as_bytes()]);
        }
        args.extend(fields);
        call.data.propagate(&args);
    }
}

pub(super) fn hpersist(call: &mut Call<'_>) -> Outcome {
    if !call.word_is(2, "fields") {
        return Err(Failure::SYNTAX);
    }
    let names = counted_fields(call, 2, 1)?;
    let (key, now_ms) = (call.key(1)?, call.data.dead_ms());
    let hasher = call.data.keyspace().hasher();
    let mut hash = call.data.write_hash(key)?;
    call.reply.array(names.len());
    let mut done = Vec::new();
    for name in names {
        let found = hash.as_ref().and_then(|hash| hash.get(name, now_ms, hasher));
        let answer = match found.map(|field| field.expire_ms) {
            None => NO_FIELD,
            Some(None) => NO_EXPIRY,
            Some(Some(_)) => {
                if let Some(hash) = &mut hash {
                    hash.set_expiry(name, None, hasher);
                }
                done.push(*name);
                DONE
            }
        };
        call.reply.integer(answer);
    }
    drop(hash);
    if !done.is_empty() {
        propagate_fields(call, &[b"HPERSIST", key.bytes], Some(done.len()), &done);
        changed(call, key, done.len());
        call.data.event(Classes::HASH, "hpersist", key);
    }
    Ok(())
}

pub(super) fn httl(call: &mut Call<'_>) -> Outcome {
    tell(call, SECONDS)
}

pub(super) fn hpttl(call: &mut Call<'_>) -> Outcome {
    tell(call, MILLISECONDS)
}

pub(super) fn hexpiretime(call: &mut Call<'_>) -> Outcome {
    tell(call, UNIX_SECONDS)
}

pub(super) fn hpexpiretime(call: &mut Call<'_>) -> Outcome {
    tell(call, UNIX_MILLISECONDS)
}

fn tell(call: &mut Call<'_>, scale: Scale) -> Outcome {
    if !call.word_is(2, "fields") {
        return Err(Failure::SYNTAX);
    }
    // This command reports a wrong number with a less specific error than others.
    let names = counted_fields(call, 2, 1)
        .map_err(|failure| if failure == FIELD_COUNT { Failure::SYNTAX } else { failure })?;
    let (key, now_ms, dead_ms) = (call.key(1)?, call.data.conditions.now_ms, call.data.dead_ms());
    let hasher = call.data.keyspace().hasher();
    let hash = call.data.read_as::<Hash>(key)?;
    call.reply.array(names.len());
    for name in names {
        let found = hash.and_then(|hash| hash.get(name, dead_ms, hasher));
        call.reply.integer(match found.map(|field| field.expire_ms) {
            None => NO_FIELD,
            Some(None) => NO_EXPIRY,
            Some(Some(expire_ms)) => scale.tell(expire_ms, now_ms),
        });
    }
    Ok(())
}

/// The fields behind `FIELDS numfields`. FIELDS is at `word`, and each field has `step` words.
/// Fails if their number is wrong.
pub(super) fn counted_fields<'a>(
    call: &Call<'a>,
    word: usize,
    step: usize,
) -> Result<&'a [&'a [u8]], Failure> {
    if word + 1 >= call.args.len() {
        return Err(FIELD_COUNT);
    }
    let count = call.integer(word + 1)?;
    let fields = &call.args[word + 2..];
    let count = usize::try_from(count).ok().and_then(|count| count.checked_mul(step));
    if fields.is_empty() || count != Some(fields.len()) {
        return Err(FIELD_COUNT);
    }
    Ok(fields)
}

/// Parses the time at an argument, in Unix milliseconds.
pub(super) fn expire_time(call: &Call<'_>, at: usize, scale: Scale) -> Result<i64, Failure> {
    let start_ms = if scale.from_now { call.data.conditions.now_ms } else { 0 };
    let time = call.integer(at)?;
    let expire_ms = time.checked_mul(scale.unit_ms).and_then(|ms| ms.checked_add(start_ms));
    expire_ms.filter(|_| time >= 0).ok_or_else(|| {
        let name = &call.command.full_name;
        Failure::format(format!("ERR invalid expire time in '{name}' command"))
    })
}

/// Handles new expiries of fields.
pub(super) fn fields_may_expire(call: &mut Call<'_>, key: Key<'_>, fields: usize) {
    changed(call, key, fields);
    call.data.event(Classes::HASH, "hexpire", key);
}

/// Handles fields that were deleted because they had expired: `removed` existed, and `expired` have
/// a time that has passed.
pub(super) fn fields_expired(call: &mut Call<'_>, key: Key<'_>, removed: usize, expired: usize) {
    changed(call, key, removed);
    note_expired(call, key, expired);
    if call.data.remove_if_empty(key) {
        call.data.event(Classes::GENERIC, "del", key);
    }
}

pub(super) const FIELD_COUNT: Failure =
    Failure::new(&"ERR numfields should be greater than 0 and match the provided number of fields");

/// The commands' replies for a field.
const NO_FIELD: i64 = -2;
const NO_EXPIRY: i64 = -1;
const REFUSED: i64 = 0;
const DONE: i64 = 1;
const DELETED: i64 = 2;
