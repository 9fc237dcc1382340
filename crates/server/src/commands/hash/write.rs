//! Hashes: setting, incrementing and deleting fields.

use bobbin_store::NewValue;
use bobbin_store::entry::{INLINE_MAX, SharedString};
use bobbin_store::value::hash::FieldExpiry;
use bobbin_store::value::integer::IntegerText;
use bobbin_store::value::pages::{Given, PREFETCHED};

use super::super::string::Extended;
use super::expiry::{propagate_fields, propagate_set};
use super::{changed, limits, note_expired};
use crate::engine::command::{Call, Classes, Failure, Key, Outcome};

pub(super) fn hset(call: &mut Call<'_>) -> Outcome {
    let added = set_pairs(call)?;
    call.reply.integer(added);
    Ok(())
}

pub(super) fn hmset(call: &mut Call<'_>) -> Outcome {
    set_pairs(call)?;
    call.reply.ok();
    Ok(())
}

/// Sets the fields from the third word on. Returns how many of them are new.
fn set_pairs(call: &mut Call<'_>) -> Result<i64, Failure> {
    if !call.args.len().is_multiple_of(2) {
        return Err(Failure::wrong_arity(call.command));
    }
    let shared = shared_values(call, 3);
    let (key, now_ms) = (call.key(1)?, call.data.dead_ms());
    let (limits, hasher) = (limits(call.server), call.data.keyspace().hasher());
    let args = call.args;
    let mut hash = call.data.write_or_create_hash(key)?;
    let mut expired = 0;
    let may_have_expired = hash.may_have_expired(now_ms);
    let len_before = hash.len();
    let pairs = given_pairs(&args[2..], &shared, 3);
    let added = hash.set_all(pairs, FieldExpiry::Clear, now_ms, &limits, hasher);
    if may_have_expired {
        // New fields that did not make the hash longer have replaced expired ones.
        expired = added - (hash.len() - len_before);
    }
    drop(hash);
    changed(call, key, args.len() / 2 - 1);
    note_expired(call, key, expired);
    call.data.event(Classes::HASH, "hset", key);
    Ok(added as i64)
}

pub(super) fn hsetnx(call: &mut Call<'_>) -> Outcome {
    let shared = shared_values(call, 3);
    let (key, now_ms) = (call.key(1)?, call.data.dead_ms());
    let (limits, hasher) = (limits(call.server), call.data.keyspace().hasher());
    let args = call.args;
    let mut hash = call.data.write_or_create_hash(key)?;
    if hash.contains(args[2], now_ms, hasher) {
        call.reply.integer(0);
        return Ok(());
    }
    let len_before = hash.len();
    hash.set(args[2], given(&shared, args[3], 3), FieldExpiry::Clear, now_ms, &limits, hasher);
    let expired = 1 + len_before - hash.len();
    drop(hash);
    if expired > 0 {
        call.data.propagate(&[b"HSET", key.bytes, args[2], args[3]]);
    }
    changed(call, key, 1);
    note_expired(call, key, expired);
    call.data.event(Classes::HASH, "hset", key);
    call.reply.integer(1);
    Ok(())
}

pub(super) fn hincrby(call: &mut Call<'_>) -> Outcome {
    let increment = call.integer(3)?;
    let (key, now_ms) = (call.key(1)?, call.data.dead_ms());
    let (limits, hasher) = (limits(call.server), call.data.keyspace().hasher());
    let name = call.args[2];
    let mut hash = call.data.write_or_create_hash(key)?;
    let field = hash.get(name, now_ms, hasher);
    let expires = field.as_ref().is_some_and(|field| field.expire_ms.is_some());
    let old = match field {
        Some(field) => field.value.item().as_integer().ok_or(NOT_AN_INTEGER)?,
        None => 0,
    };
    let sum = old
        .checked_add(increment)
        .ok_or(Failure::new(&"ERR increment or decrement would overflow"))?;
    let text = IntegerText::new(sum);
    let len_before = hash.len();
    let value = Given::Bytes(text.as_bytes());
    let added = hash.set(name, value, FieldExpiry::Keep, now_ms, &limits, hasher);
    let expired = usize::from(added && hash.len() == len_before);
    drop(hash);
    if expired > 0 || expires {
        propagate_set(call, key, &[name, text.as_bytes()]);
    }
    changed(call, key, 1);
    note_expired(call, key, expired);
    call.data.event(Classes::HASH, "hincrby", key);
    call.reply.integer(sum);
    Ok(())
}

pub(super) fn hincrbyfloat(call: &mut Call<'_>) -> Outcome {
    let increment = Extended::parse(call.args[3]).ok_or(Failure::NOT_A_FLOAT)?;
    if Extended::ZERO.plus(increment).is_none() {
        return Err("ERR value is NaN or Infinity".into());
    }
    let (key, now_ms) = (call.key(1)?, call.data.dead_ms());
    let (limits, hasher) = (limits(call.server), call.data.keyspace().hasher());
    let name = call.args[2];
    let old = match call.data.write_hash(key)? {
        Some(hash) => match hash.get(name, now_ms, hasher) {
            Some(field) => {
                let mut room = IntegerText::new(0);
                let text = field.value.item().text(&mut room);
                Extended::parse(text).ok_or(Failure::new(&"ERR hash value is not a float"))?
            }
            None => Extended::ZERO,
        },
        None => Extended::ZERO,
    };
    let sum =
        old.plus(increment).ok_or(Failure::new(&"ERR increment would produce NaN or Infinity"))?;
    let text = sum.text();
    call.data.count_no_more_use();
    let mut hash = call.data.write_or_create_hash(key)?;
    let len_before = hash.len();
    let added = hash.set(name, Given::Bytes(&text), FieldExpiry::Keep, now_ms, &limits, hasher);
    let expired = usize::from(added && hash.len() == len_before);
    drop(hash);
    propagate_set(call, key, &[name, &text]);
    changed(call, key, 1);
    note_expired(call, key, expired);
    call.data.event(Classes::HASH, "hincrbyfloat", key);
    call.reply.bulk(&text);
    Ok(())
}

pub(super) fn hdel(call: &mut Call<'_>) -> Outcome {
    let (key, now_ms) = (call.key(1)?, call.data.dead_ms());
    let hasher = call.data.keyspace().hasher();
    let args = call.args;
    let Some(mut hash) = call.data.write_hash(key)? else {
        call.reply.integer(0);
        return Ok(());
    };
    // Expired fields are live while the log is replayed, and must not be deleted there either.
    let mut logged = hash.may_have_expired(now_ms).then(Vec::new);
    let mut removed = 0;
    for names in args[2..].chunks(PREFETCHED) {
        hash.prefetch(names.iter().copied(), hasher);
        for &name in names {
            if hash.remove(name, now_ms, hasher) {
                removed += 1;
                logged.iter_mut().for_each(|names| names.push(name));
            }
        }
    }
    drop(hash);
    removed_fields(call, key, removed, logged);
    call.reply.integer(removed as i64);
    Ok(())
}

/// Handles deleted fields: the events, and the end of an empty hash. Logs the command as it came,
/// or an HDEL of the fields in `logged`.
pub(super) fn removed_fields(
    call: &mut Call<'_>,
    key: Key<'_>,
    removed: usize,
    logged: Option<Vec<&[u8]>>,
) {
    if removed == 0 {
        return;
    }
    if let Some(names) = logged {
        propagate_fields(call, &[b"HDEL", key.bytes], None, &names);
    }
    changed(call, key, removed);
    call.data.event(Classes::HASH, "hdel", key);
    if call.data.remove_if_empty(key) {
        call.data.event(Classes::GENERIC, "del", key);
    }
}

/// The long ones among the values at every second argument from `first` on. They were made before
/// the shards were locked.
pub(super) fn shared_values(call: &mut Call<'_>, first: usize) -> Vec<(usize, SharedString)> {
    let mut shared = Vec::new();
    for at in (first..call.args.len()).step_by(2) {
        if call.args[at].len() > INLINE_MAX
            && let NewValue::Shared(value) = call.value(at)
        {
            shared.push((at, value));
        }
    }
    shared
}

/// The value at an argument. There may be as many long ones as arguments.
#[inline]
pub(super) fn given<'a>(
    shared: &'a [(usize, SharedString)],
    bytes: &'a [u8],
    at: usize,
) -> Given<'a> {
    match shared.binary_search_by_key(&at, |&(index, _)| index) {
        Ok(found) => Given::Shared(&shared[found].1),
        Err(_) => Given::Bytes(bytes),
    }
}

/// Names of fields with their values, the first of which is at an argument.
pub(super) fn given_pairs<'a>(
    pairs: &'a [&'a [u8]],
    shared: &'a [(usize, SharedString)],
    first: usize,
) -> impl ExactSizeIterator<Item = (&'a [u8], Given<'a>)> + Clone {
    let pairs = pairs.chunks_exact(2).enumerate();
    pairs.map(move |(index, pair)| (pair[0], given(shared, pair[1], first + 2 * index)))
}

const NOT_AN_INTEGER: Failure = Failure::new(&"ERR hash value is not an integer");
