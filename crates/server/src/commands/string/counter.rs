//! Strings that are numbers: INCR and related commands.

use bobbin_store::NewValue;
use bobbin_store::shard::Expire;

use super::extended::Extended;
use crate::engine::command::data::string;
use crate::engine::command::{Call, Classes, Failure, Outcome};

pub(super) fn incr(call: &mut Call<'_>) -> Outcome {
    add(call, 1)
}

pub(super) fn decr(call: &mut Call<'_>) -> Outcome {
    add(call, -1)
}

pub(super) fn incrby(call: &mut Call<'_>) -> Outcome {
    add(call, call.integer(2)?)
}

pub(super) fn decrby(call: &mut Call<'_>) -> Outcome {
    let decrement = call.integer(2)?;
    let overflow = Failure::new(&"ERR decrement would overflow");
    add(call, decrement.checked_neg().ok_or(overflow)?)
}

/// Adds to the number at the key. Its digits are overwritten in place if their number stays the
/// same.
#[inline(always)]
fn add(call: &mut Call<'_>, increment: i64) -> Outcome {
    let key = call.key(1)?;
    let mut digits = itoa::Buffer::new();
    let sum;
    let placed = match call.data.write(key) {
        Some(mut entry) => {
            let old = string(entry.as_ref())?.flat().and_then(bobbin_resp::parse_i64);
            let old = old.ok_or(Failure::NOT_AN_INTEGER)?;
            sum = old
                .checked_add(increment)
                .ok_or(Failure::new(&"ERR increment or decrement would overflow"))?;
            entry.replace(NewValue::Inline(digits.format(sum).as_bytes())).is_ok()
        }
        None => {
            sum = increment;
            false
        }
    };
    if placed {
        call.data.changed(key);
    } else {
        call.data.set_used(key, NewValue::Inline(digits.format(sum).as_bytes()), Expire::Keep);
    }
    call.data.event(Classes::STRING, "incrby", key);
    call.reply.integer(sum);
    Ok(())
}

pub(super) fn incrbyfloat(call: &mut Call<'_>) -> Outcome {
    let key = call.key(1)?;
    let old = match call.data.write(key) {
        Some(entry) => {
            let old = string(entry.as_ref())?.flat().and_then(Extended::parse);
            old.ok_or(Failure::NOT_A_FLOAT)?
        }
        None => Extended::ZERO,
    };
    let increment = Extended::parse(call.args[2]).ok_or(Failure::NOT_A_FLOAT)?;
    let sum =
        old.plus(increment).ok_or(Failure::new(&"ERR increment would produce NaN or Infinity"))?;
    let text = sum.text();
    let value = match NewValue::string(&text) {
        NewValue::Inline(text) => NewValue::InlineText(text),
        long => long,
    };
    call.data.set_used(key, value, Expire::Keep);
    call.data.propagate(&[b"SET", key.bytes, &text, b"KEEPTTL"]);
    call.data.event(Classes::STRING, "incrbyfloat", key);
    call.reply.bulk(&text);
    Ok(())
}
