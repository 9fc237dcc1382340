//! MSET, MSETNX and MSETEX: several keys at once. All their shards are locked, so no client sees
//! only some of the changes.

use bobbin_store::shard::Expire;

use super::options::{OptionGrammar, StringOptions, WriteCondition};
use super::set::store;
use crate::engine::command::{Call, Classes, Failure, Outcome};

/// The most keys of MSETEX, as in Valkey.
const KEYS_MAX: i64 = i32::MAX as i64;

pub(super) fn mset(call: &mut Call<'_>) -> Outcome {
    check_pairs(call)?;
    let indexes = (1..call.args.len()).step_by(2);
    // Two loops, so that a few keys do not pay for the case of many.
    if call.has_very_many_keys() {
        for index in indexes {
            call.prefetch_after(index);
            set_pair(call, index)?;
        }
    } else {
        for index in indexes {
            set_pair(call, index)?;
        }
    }
    call.reply.ok();
    Ok(())
}

#[inline(always)]
fn set_pair(call: &mut Call<'_>, index: usize) -> Outcome {
    let key = call.key(index)?;
    let value = call.value(index + 1);
    call.data.set(key, value, Expire::Clear);
    call.data.event(Classes::STRING, "set", key);
    Ok(())
}

pub(super) fn msetnx(call: &mut Call<'_>) -> Outcome {
    check_pairs(call)?;
    let pairs = (call.args.len() - 1) / 2;
    let done = set_pairs(call, 1, pairs, WriteCondition::Absent, Expire::Clear)?;
    call.reply.integer(i64::from(done));
    Ok(())
}

pub(super) fn msetex(call: &mut Call<'_>) -> Outcome {
    const INVALID: Failure = Failure::new(&"ERR invalid numkeys value or out of range");
    let args = call.args;
    let pairs = bobbin_resp::parse_i64(args[1])
        .filter(|pairs| (1..=KEYS_MAX).contains(pairs))
        .ok_or(INVALID)? as usize;
    let words = args.get(2 + pairs * 2..).ok_or(Failure::SYNTAX)?;
    let options = StringOptions::parse(words, OptionGrammar::MSetEx)?;
    let expire = options.expiry.resolve(call)?;
    let done = set_pairs(call, 2, pairs, options.condition, expire)?;
    if done {
        propagate_pairs(call, pairs, expire);
    }
    call.reply.integer(i64::from(done));
    Ok(())
}

/// Logs MSETEX in commands that every replica knows: MSET, or SET for each pair if the expiry is
/// set or kept. If the time has passed, the effects were logged before.
fn propagate_pairs(call: &mut Call<'_>, pairs: usize, expire: Expire) {
    if !call.data.is_logged() {
        return;
    }
    let args = &call.args[2..2 + pairs * 2];
    let mut digits = itoa::Buffer::new();
    let options: &[&[u8]] = match expire {
        Expire::Clear => {
            let mut words = vec![&b"MSET"[..]];
            words.extend(args);
            call.data.propagate(&words);
            return;
        }
        Expire::At(expire_ms) if call.data.is_past(expire_ms) => return,
        Expire::At(expire_ms) => &[b"PXAT", digits.format(expire_ms).as_bytes()],
        Expire::Keep => &[b"KEEPTTL"],
    };
    for pair in args.chunks_exact(2) {
        let mut words = vec![&b"SET"[..], pair[0], pair[1]];
        words.extend(options);
        call.data.propagate(&words);
    }
}

/// Stores pairs of key and value from the argument at `first` on, if the condition holds for every
/// key.
fn set_pairs(
    call: &mut Call<'_>,
    first: usize,
    pairs: usize,
    condition: WriteCondition<'_>,
    expire: Expire,
) -> Result<bool, Failure> {
    let indices = (first..first + pairs * 2).step_by(2);
    for index in indices.clone() {
        let key = call.key(index)?;
        let holds = match condition {
            WriteCondition::Absent => call.data.write(key).is_none(),
            WriteCondition::Present => call.data.write(key).is_some(),
            WriteCondition::Always | WriteCondition::Equal(_) => break,
        };
        if !holds {
            return Ok(false);
        }
    }
    let past = matches!(expire, Expire::At(expire_ms) if call.data.is_past(expire_ms));
    if past {
        expire_pairs(call, indices)?;
        return Ok(true);
    }
    for index in indices {
        let key = call.key(index)?;
        store(call, key, index + 1, expire);
    }
    Ok(true)
}

/// Stores pairs with an expiry that has passed, so no key is left. The events are those of Valkey,
/// where the keys exist for a moment.
fn expire_pairs(call: &mut Call<'_>, indices: impl Iterator<Item = usize> + Clone) -> Outcome {
    for index in indices.clone() {
        let key = call.key(index)?;
        if call.data.remove(key) {
            call.data.propagate_expired(key);
        } else {
            call.data.event(Classes::NEW, "new", key);
        }
        call.data.event(Classes::STRING, "set", key);
        call.data.event(Classes::GENERIC, "expire", key);
    }
    for index in indices {
        let key = call.key(index)?;
        call.data.event(Classes::EXPIRED, "expired", key);
    }
    Ok(())
}

fn check_pairs(call: &Call<'_>) -> Outcome {
    if call.args.len().is_multiple_of(2) {
        return Err(Failure::wrong_arity(call.command));
    }
    Ok(())
}
