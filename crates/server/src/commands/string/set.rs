//! SET and related commands, which set or remove one key's string.

use bobbin_store::shard::Expire;

use super::options::{ExpiryChange, OptionGrammar, StringOptions, TimeUnit, WriteCondition};
use super::read::{append, get, get_key};
use crate::engine::command::data::string;
use crate::engine::command::{Call, Classes, Failure, Key, KeyUse, Outcome};

pub(super) fn set(call: &mut Call<'_>) -> Outcome {
    if call.args.len() == 3 {
        let key = call.key(1)?;
        let value = call.value(2);
        call.data.set(key, value, Expire::Clear);
        call.data.event(Classes::STRING, "set", key);
        call.reply.ok();
        return Ok(());
    }
    let args = call.args;
    let options = StringOptions::parse(&args[3..], OptionGrammar::Set)?;
    let expire = options.expiry.resolve(call)?;
    let key = call.key(1)?;
    if options.get {
        get_key(call, key)?;
    }
    let done = store_if(call, key, 2, options.condition, expire)?;
    if done && let Expire::At(expire_ms) = expire {
        propagate_expiring(call, 2, expire_ms);
    } else if done
        && (options.get || matches!(options.condition, WriteCondition::Equal(_)))
        && call.data.is_logged()
    {
        call.data.propagate(&without_questions(args));
    }
    if !options.get {
        match done {
            true => call.reply.ok(),
            false => call.reply.null(),
        }
    }
    Ok(())
}

/// SET without GET, which changes nothing, and without IFEQ and its value, whose condition held.
/// Not every replica knows these options.
fn without_questions<'a>(args: &[&'a [u8]]) -> Vec<&'a [u8]> {
    let (mut kept, mut rest) = (args[..3].to_vec(), args[3..].iter());
    while let Some(arg) = rest.next() {
        if arg.eq_ignore_ascii_case(b"ifeq") {
            rest.next();
        } else if !arg.eq_ignore_ascii_case(b"get") {
            kept.push(arg);
        }
    }
    kept
}

/// The key is read only with GET, and with IFEQ, whose reply tells whether the value was guessed.
pub(super) fn find_key(args: &[&[u8]], found: &mut dyn FnMut(usize, KeyUse)) {
    let options = args.get(3..).unwrap_or_default();
    let is_read_by = |option: &&[u8]| {
        option.eq_ignore_ascii_case(b"get") || option.eq_ignore_ascii_case(b"ifeq")
    };
    let reads = options.iter().any(is_read_by);
    let usage = if reads { KeyUse::READ_WRITE.with(KeyUse::ACCESS) } else { KeyUse::OVERWRITE };
    found(1, usage.with(KeyUse::UPDATE));
}

pub(super) fn setnx(call: &mut Call<'_>) -> Outcome {
    let key = call.key(1)?;
    let done = store_if(call, key, 2, WriteCondition::Absent, Expire::Clear)?;
    call.reply.integer(i64::from(done));
    Ok(())
}

pub(super) fn setex(call: &mut Call<'_>) -> Outcome {
    set_expiring(call, TimeUnit::Seconds)
}

pub(super) fn psetex(call: &mut Call<'_>) -> Outcome {
    set_expiring(call, TimeUnit::Milliseconds)
}

fn set_expiring(call: &mut Call<'_>, unit: TimeUnit) -> Outcome {
    let expire_ms = unit.expire_ms(call.args[2], call)?;
    let key = call.key(1)?;
    store(call, key, 3, Expire::At(expire_ms));
    propagate_expiring(call, 3, expire_ms);
    call.reply.ok();
    Ok(())
}

pub(super) fn getset(call: &mut Call<'_>) -> Outcome {
    get(call)?;
    let key = call.key(1)?;
    store(call, key, 2, Expire::Clear);
    call.data.propagate(&[b"SET", call.args[1], call.args[2]]);
    Ok(())
}

pub(super) fn getdel(call: &mut Call<'_>) -> Outcome {
    get(call)?;
    let key = call.key(1)?;
    if call.data.remove(key) {
        call.data.propagate(&[b"DEL", key.bytes]);
        call.data.event(Classes::GENERIC, "del", key);
    }
    Ok(())
}

pub(super) fn getex(call: &mut Call<'_>) -> Outcome {
    let args = call.args;
    let options = StringOptions::parse(&args[2..], OptionGrammar::GetEx)?;
    let expire = options.expiry.resolve(call)?;
    let key = call.key(1)?;
    let Some(entry) = call.data.read_string_entry(key)? else {
        call.reply.null();
        return Ok(());
    };
    append(&mut call.reply, entry, call.server);
    match (options.expiry, expire) {
        (_, Expire::At(expire_ms)) if call.data.is_past(expire_ms) => {
            call.data.counters.expired += 1;
            call.data.remove(key);
            call.data.propagate_expired(key);
            call.data.event(Classes::EXPIRED, "expired", key);
        }
        (_, Expire::At(expire_ms)) => {
            call.data.set_expire(key, Some(expire_ms));
            let mut digits = itoa::Buffer::new();
            let digits = digits.format(expire_ms).as_bytes();
            call.data.propagate(&[b"PEXPIREAT", key.bytes, digits]);
            call.data.event(Classes::GENERIC, "expire", key);
        }
        (ExpiryChange::Persist, _)
            if call.data.peek(key).is_some_and(|e| e.expire_ms().is_some()) =>
        {
            call.data.set_expire(key, None);
            call.data.propagate(&[b"PERSIST", key.bytes]);
            call.data.event(Classes::GENERIC, "persist", key);
        }
        _ => {}
    }
    Ok(())
}

/// COMMAND INFO says the same as Valkey's, although the reply tells something about the value.
pub(super) fn find_compared(_: &[&[u8]], found: &mut dyn FnMut(usize, KeyUse)) {
    found(1, KeyUse::REMOVE.with(KeyUse::ACCESS).with(KeyUse::DELETE));
}

pub(super) fn delifeq(call: &mut Call<'_>) -> Outcome {
    let key = call.key(1)?;
    let equal = match call.data.write(key) {
        Some(entry) => string(entry.as_ref())? == *call.args[2],
        None => false,
    };
    if equal {
        call.data.remove(key);
        call.data.propagate(&[b"DEL", key.bytes]);
        call.data.event(Classes::GENERIC, "del", key);
    }
    call.reply.integer(i64::from(equal));
    Ok(())
}

/// Logs that the argument at `index` was stored until a time, if that time is in the future.
fn propagate_expiring(call: &mut Call<'_>, index: usize, expire_ms: i64) {
    if call.data.is_logged() && !call.data.is_past(expire_ms) {
        let mut digits = itoa::Buffer::new();
        let (value, digits) = (call.args[index], digits.format(expire_ms).as_bytes());
        let (mut name, mut option): (&[u8], &[u8]) = (b"SET", b"PXAT");
        if index == 2 {
            // As in Valkey, words stay the client's, if it gave the time in this form.
            name = call.args[0];
            let mut options = call.args[3..].iter().copied();
            option = options.rfind(|word| word.eq_ignore_ascii_case(b"PXAT")).unwrap_or(option);
        }
        call.data.propagate(&[name, call.args[1], value, option, digits]);
    }
}

/// Stores the argument at `index` if the condition holds. Returns whether it does.
fn store_if(
    call: &mut Call<'_>,
    key: Key<'_>,
    index: usize,
    condition: WriteCondition<'_>,
    expire: Expire,
) -> Result<bool, Failure> {
    let holds = match condition {
        WriteCondition::Always => true,
        WriteCondition::Absent => !call.data.exists(key),
        WriteCondition::Present => call.data.exists(key),
        WriteCondition::Equal(expected) => match call.data.peek(key) {
            Some(entry) => string(entry)? == *expected,
            None => false,
        },
    };
    if holds {
        store(call, key, index, expire);
    } else {
        // The look at the key was a use of it.
        call.data.write(key);
    }
    Ok(holds)
}

/// Stores the argument at `index`. If the expiry has passed, no key is left.
pub(super) fn store(call: &mut Call<'_>, key: Key<'_>, index: usize, expire: Expire) {
    match expire {
        Expire::At(expire_ms) if call.data.is_past(expire_ms) => {
            if call.data.remove(key) {
                call.data.propagate_expired(key);
                call.data.event(Classes::EXPIRED, "expired", key);
            }
        }
        Expire::At(_) | Expire::Keep | Expire::Clear => {
            let value = call.value(index);
            call.data.set(key, value, expire);
            call.data.event(Classes::STRING, "set", key);
            if let Expire::At(_) = expire {
                call.data.event(Classes::GENERIC, "expire", key);
            }
        }
    }
}
