//! Hashes: HSETEX, HGETEX and HGETDEL, which combine two operations.

use bobbin_store::value::hash::FieldExpiry;

use super::super::expire::{MILLISECONDS, SECONDS, Scale, UNIX_MILLISECONDS, UNIX_SECONDS};
use super::super::repeats::{MANY, Repeats};
use super::expiry::{
    FIELD_COUNT, counted_fields, expire_time, fields_expired, fields_may_expire, propagate_fields,
    propagate_set, propagate_time,
};
use super::read::{reply_named, reply_value};
use super::write::{given_pairs, removed_fields, shared_values};
use super::{changed, limits, note_expired};
use crate::engine::command::{Call, Classes, Failure, Key, Outcome};

/// The options before FIELDS.
#[derive(Default)]
struct FieldOptions {
    /// NX: the key must not exist (`false`). XX: it must.
    key_exists: Option<bool>,
    /// FNX: none of the fields may exist (`false`). FXX: all must.
    fields_exist: Option<bool>,
    /// A time: its argument, and its unit.
    time: Option<(usize, Scale)>,
    keep: bool,
    persist: bool,
}

impl FieldOptions {
    /// Parses the words up to FIELDS, which is at `end`.
    fn parse(call: &Call<'_>, end: usize, sets: bool) -> Result<Self, Failure> {
        let mut options = Self::default();
        let mut at = 2;
        while at < end {
            let scale = [
                ("ex", SECONDS),
                ("px", MILLISECONDS),
                ("exat", UNIX_SECONDS),
                ("pxat", UNIX_MILLISECONDS),
            ]
            .into_iter()
            .find(|(word, _)| call.word_is(at, word));
            let is_free = !options.keep && !options.persist;
            if let Some((_, scale)) = scale {
                let same = options.time.is_none_or(|(_, before)| before == scale);
                if !is_free || !same || at + 1 >= end {
                    return Err(Failure::SYNTAX);
                }
                options.time = Some((at + 1, scale));
                at += 2;
                continue;
            }
            let wants = |option: &mut Option<bool>, exists: bool| {
                let fits = option.is_none_or(|before| before == exists);
                *option = Some(exists);
                if fits { Ok(()) } else { Err(Failure::SYNTAX) }
            };
            if sets && call.word_is(at, "nx") {
                wants(&mut options.key_exists, false)?;
            } else if sets && call.word_is(at, "xx") {
                wants(&mut options.key_exists, true)?;
            } else if sets && call.word_is(at, "fnx") {
                wants(&mut options.fields_exist, false)?;
            } else if sets && call.word_is(at, "fxx") {
                wants(&mut options.fields_exist, true)?;
            } else if sets && call.word_is(at, "keepttl") && options.time.is_none() {
                options.keep = true;
            } else if !sets && call.word_is(at, "persist") && options.time.is_none() {
                options.persist = true;
            } else {
                return Err(Failure::SYNTAX);
            }
            at += 1;
        }
        Ok(options)
    }

    fn expire_ms(&self, call: &Call<'_>) -> Result<Option<i64>, Failure> {
        self.time.map(|(at, scale)| expire_time(call, at, scale)).transpose()
    }
}

pub(super) fn hsetex(call: &mut Call<'_>) -> Outcome {
    let args = call.args;
    let word = (2..args.len() - 1).find(|&at| call.word_is(at, "fields")).ok_or(FIELD_COUNT)?;
    let options = FieldOptions::parse(call, word, true)?;
    let pairs = counted_fields(call, word, 2)?;
    let (key, now_ms) = (call.key(1)?, call.data.dead_ms());
    let (limits, hasher) = (limits(call.server), call.data.keyspace().hasher());
    let exists = call.data.write_hash(key)?.is_some();
    call.data.count_no_more_use();
    if options.key_exists.is_some_and(|wanted| wanted != exists) {
        call.reply.integer(0);
        return Ok(());
    }
    let expire_ms = options.expire_ms(call)?;
    if let Some(wanted) = options.fields_exist {
        let hash = call.data.write_hash(key)?;
        let has =
            |name: &[u8]| hash.as_deref().is_some_and(|hash| hash.contains(name, now_ms, hasher));
        if pairs.chunks_exact(2).any(|pair| has(pair[0]) != wanted) {
            call.reply.integer(0);
            return Ok(());
        }
    }
    let shared = shared_values(call, word + 3);
    let count = pairs.len() / 2;
    call.reply.integer(1);
    if expire_ms.is_some_and(|at| call.data.is_past(at)) {
        return delete_expired(call, key, pairs, exists);
    }
    let expiry = match expire_ms {
        Some(expire_ms) => FieldExpiry::At(expire_ms),
        None if options.keep => FieldExpiry::Keep,
        None => FieldExpiry::Clear,
    };
    let mut hash = call.data.write_or_create_hash(key)?;
    let len_before = hash.len();
    let given = given_pairs(pairs, &shared, word + 3);
    let added = hash.set_all(given, expiry, now_ms, &limits, hasher);
    let expired = added + len_before - hash.len();
    drop(hash);
    propagate_set(call, key, pairs);
    note_expired(call, key, expired);
    call.data.event(Classes::HASH, "hset", key);
    if expire_ms.is_some() {
        fields_may_expire(call, key, count);
    } else {
        changed(call, key, count);
    }
    Ok(())
}

/// HSETEX with a time that has passed deletes the fields, those that have expired as well: the HDEL
/// in the log deletes them, too.
fn delete_expired(call: &mut Call<'_>, key: Key<'_>, pairs: &[&[u8]], exists: bool) -> Outcome {
    let hasher = call.data.keyspace().hasher();
    let names: Vec<&[u8]> = pairs.chunks_exact(2).map(|pair| pair[0]).collect();
    let mut removed = 0;
    if let Some(mut hash) = call.data.write_hash(key)? {
        let len_before = hash.len();
        for name in &names {
            hash.remove(name, i64::MIN, hasher);
        }
        removed = len_before - hash.len();
    }
    if !exists {
        call.data.event(Classes::NEW, "new", key);
    }
    call.data.event(Classes::HASH, "hset", key);
    call.data.event(Classes::HASH, "hexpire", key);
    if removed > 0 {
        propagate_fields(call, &[b"HDEL", key.bytes], None, &names);
        fields_expired(call, key, removed, names.len());
        return Ok(());
    }
    note_expired(call, key, names.len());
    if !exists {
        call.data.event(Classes::GENERIC, "del", key);
    }
    Ok(())
}

pub(super) fn hgetex(call: &mut Call<'_>) -> Outcome {
    let args = call.args;
    let word = (2..args.len() - 1).find(|&at| call.word_is(at, "fields")).ok_or(FIELD_COUNT)?;
    let options = FieldOptions::parse(call, word, false)?;
    let names = counted_fields(call, word, 1)?;
    let (key, now_ms) = (call.key(1)?, call.data.dead_ms());
    let hasher = call.data.keyspace().hasher();
    let exists = call.data.write_hash(key)?.is_some();
    match exists {
        true => call.data.counters.hits += 1,
        false => call.data.missed(key),
    }
    call.data.count_no_more_use();
    let expire_ms = options.expire_ms(call)?;
    let past = expire_ms.is_some_and(|at| call.data.is_past(at));
    let mut hash = call.data.write_hash(key)?;
    call.reply.array(names.len());
    let mut repeats = (names.len() > MANY).then(Repeats::default);
    let mut done = Vec::new();
    for name in names {
        let found = hash.as_deref().and_then(|hash| hash.get(name, now_ms, hasher));
        let Some(field) = found else {
            call.reply.null();
            continue;
        };
        reply_named(&mut call.reply, &mut repeats, name, field.value);
        let has_expiry = field.expire_ms.is_some();
        let Some(hash) = &mut hash else { continue };
        if past {
            hash.remove(name, now_ms, hasher);
        } else if expire_ms.is_some() || options.persist && has_expiry {
            hash.set_expiry(name, expire_ms, hasher);
        } else {
            continue;
        }
        done.push(*name);
    }
    drop(hash);
    if done.is_empty() {
        return Ok(());
    }
    let count = done.len();
    if past {
        propagate_fields(call, &[b"HDEL", key.bytes], None, &done);
        fields_expired(call, key, count, count);
    } else if let Some(expire_ms) = expire_ms {
        propagate_time(call, key, expire_ms, &done);
        fields_may_expire(call, key, count);
    } else {
        propagate_fields(call, &[b"HPERSIST", key.bytes], Some(count), &done);
        changed(call, key, count);
        call.data.event(Classes::HASH, "hpersist", key);
    }
    Ok(())
}

pub(super) fn hgetdel(call: &mut Call<'_>) -> Outcome {
    if !call.word_is(2, "fields") {
        return Err(Failure::SYNTAX);
    }
    let names = counted_fields(call, 2, 1)?;
    let (key, now_ms) = (call.key(1)?, call.data.dead_ms());
    let hasher = call.data.keyspace().hasher();
    let mut hash = call.data.write_hash(key)?;
    call.reply.array(names.len());
    // Logged as HDEL, which every replica knows.
    let mut logged = Some(Vec::new());
    let mut removed = 0;
    for &name in names {
        match hash.as_deref().and_then(|hash| hash.get(name, now_ms, hasher)) {
            Some(field) => reply_value(&mut call.reply, field.value),
            None => {
                call.reply.null();
                continue;
            }
        }
        if let Some(hash) = &mut hash
            && hash.remove(name, now_ms, hasher)
        {
            removed += 1;
            logged.iter_mut().for_each(|names| names.push(name));
        }
    }
    drop(hash);
    removed_fields(call, key, removed, logged);
    Ok(())
}
