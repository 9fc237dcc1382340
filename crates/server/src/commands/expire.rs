//! Commands about when keys expire.

use crate::engine::command::{Call, Categories, Classes, Command, Failure, Flags, Outcome};
use crate::engine::row::keys::{KeySpec, KeyUse};

/// The unit of a time argument, and whether it counts from now or from 1970.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct Scale {
    pub(super) unit_ms: i64,
    pub(super) from_now: bool,
}

impl Scale {
    /// A time as TTL and similar commands report it.
    pub(super) fn tell(self, expire_ms: i64, now_ms: i64) -> i64 {
        let start_ms = if self.from_now { now_ms } else { 0 };
        let ms = expire_ms.saturating_sub(start_ms).max(0);
        // Rounded as in Redis. Adding first could overflow.
        ms / self.unit_ms + i64::from(ms % self.unit_ms * 2 >= self.unit_ms && self.unit_ms > 1)
    }
}

pub(super) const SECONDS: Scale = Scale { unit_ms: 1000, from_now: true };
pub(super) const MILLISECONDS: Scale = Scale { unit_ms: 1, from_now: true };
pub(super) const UNIX_SECONDS: Scale = Scale { unit_ms: 1000, from_now: false };
pub(super) const UNIX_MILLISECONDS: Scale = Scale { unit_ms: 1, from_now: false };

fn expire(call: &mut Call<'_>) -> Outcome {
    set(call, SECONDS)
}

fn pexpire(call: &mut Call<'_>) -> Outcome {
    set(call, MILLISECONDS)
}

fn expireat(call: &mut Call<'_>) -> Outcome {
    set(call, UNIX_SECONDS)
}

fn pexpireat(call: &mut Call<'_>) -> Outcome {
    set(call, UNIX_MILLISECONDS)
}

fn set(call: &mut Call<'_>, scale: Scale) -> Outcome {
    let conditions = ExpireConditions::parse(&call.args[3..])?;
    let now_ms = call.data.conditions.now_ms;
    let start_ms = if scale.from_now { now_ms } else { 0 };
    let expire_ms = call
        .integer(2)?
        .checked_mul(scale.unit_ms)
        .and_then(|ms| ms.checked_add(start_ms))
        .ok_or_else(|| invalid_time(call))?;
    let key = call.key(1)?;
    let current = call.data.write(key).map(|entry| entry.as_ref().expire_ms());
    let allowed = current.is_some_and(|current_ms| conditions.allow(current_ms, expire_ms));
    if allowed && call.data.is_past(expire_ms) {
        call.data.counters.expired += 1;
        call.data.remove(key);
        call.data.propagate_expired(key);
        call.data.event(Classes::EXPIRED, "expired", key);
    } else if allowed {
        call.data.set_expire(key, Some(expire_ms));
        if call.data.is_logged() {
            propagate_expiry(call, expire_ms);
        }
        call.data.event(Classes::GENERIC, "expire", key);
    }
    call.reply.integer(i64::from(allowed));
    Ok(())
}

/// Logs the time at which the key expires. The conditions held, and Redis before 7.0 knows none.
#[cold]
fn propagate_expiry(call: &mut Call<'_>, expire_ms: i64) {
    let mut digits = itoa::Buffer::new();
    let digits = digits.format(expire_ms).as_bytes();
    call.data.propagate(&[b"PEXPIREAT", call.args[1], digits]);
}

#[cold]
fn invalid_time(call: &Call<'_>) -> Failure {
    Failure::format(format!("ERR invalid expire time in '{}' command", call.command.full_name))
}

/// The conditions under which an expiry may be set.
#[derive(Clone, Copy, Default)]
pub(super) struct ExpireConditions {
    /// The key has no expiry.
    nx: bool,
    /// The key has an expiry.
    xx: bool,
    /// The new expiry is later than the old one. No expiry counts as infinitely late.
    gt: bool,
    /// The new expiry is earlier.
    lt: bool,
}

impl ExpireConditions {
    #[inline]
    pub(super) fn parse(words: &[&[u8]]) -> Result<Self, Failure> {
        let mut conditions = Self::default();
        for word in words {
            let condition = match word.to_ascii_lowercase().as_slice() {
                b"nx" => &mut conditions.nx,
                b"xx" => &mut conditions.xx,
                b"gt" => &mut conditions.gt,
                b"lt" => &mut conditions.lt,
                _ => {
                    let word = String::from_utf8_lossy(word);
                    return Err(Failure::format(format!("ERR Unsupported option {word}")));
                }
            };
            *condition = true;
        }
        let Self { nx, xx, gt, lt } = conditions;
        if nx && (xx || gt || lt) {
            return Err(NX_AND_OTHERS);
        }
        if gt && lt {
            return Err(GT_AND_LT);
        }
        Ok(conditions)
    }

    pub(super) fn allow(self, current_ms: Option<i64>, new_ms: i64) -> bool {
        (!self.nx || current_ms.is_none())
            && (!self.xx || current_ms.is_some())
            && (!self.gt || current_ms.is_some_and(|current_ms| new_ms > current_ms))
            && (!self.lt || current_ms.is_none_or(|current_ms| new_ms < current_ms))
    }
}

fn persist(call: &mut Call<'_>) -> Outcome {
    let key = call.key(1)?;
    let expires = call.data.write(key).is_some_and(|entry| entry.as_ref().expire_ms().is_some());
    if expires {
        call.data.set_expire(key, None);
        call.data.event(Classes::GENERIC, "persist", key);
    }
    call.reply.integer(i64::from(expires));
    Ok(())
}

fn ttl(call: &mut Call<'_>) -> Outcome {
    tell(call, SECONDS)
}

fn pttl(call: &mut Call<'_>) -> Outcome {
    tell(call, MILLISECONDS)
}

fn expiretime(call: &mut Call<'_>) -> Outcome {
    tell(call, UNIX_SECONDS)
}

fn pexpiretime(call: &mut Call<'_>) -> Outcome {
    tell(call, UNIX_MILLISECONDS)
}

fn tell(call: &mut Call<'_>, scale: Scale) -> Outcome {
    let now_ms = call.data.conditions.now_ms;
    let answer = match call.data.look(call.key(1)?).map(|entry| entry.expire_ms()) {
        None => NO_KEY,
        Some(None) => NO_EXPIRY,
        Some(Some(expire_ms)) => scale.tell(expire_ms, now_ms),
    };
    call.reply.integer(answer);
    Ok(())
}

/// The replies of TTL and similar commands if there is no time to report.
const NO_KEY: i64 = -2;
const NO_EXPIRY: i64 = -1;

const NX_AND_OTHERS: Failure =
    Failure::new(&"ERR NX and XX, GT or LT options at the same time are not compatible");
const GT_AND_LT: Failure =
    Failure::new(&"ERR GT and LT options at the same time are not compatible");

const UPDATED: &[KeySpec] = &[KeySpec::at(1, KeyUse::READ_WRITE.with(KeyUse::UPDATE))];
const READ: &[KeySpec] = &[KeySpec::at(1, KeyUse::READ_ONLY.with(KeyUse::ACCESS))];

const fn setting(row: Command) -> Command {
    row.flags(Flags::WRITE.with(Flags::FAST)).categories(Categories::KEYSPACE).keys(UPDATED)
}

const CONDITIONS: &[(&str, &str)] = &[("7.0.0", "Takes `NX`, `XX`, `GT` and `LT`.")];

const fn telling(row: Command) -> Command {
    row.flags(Flags::READONLY.with(Flags::FAST))
        .categories(Categories::KEYSPACE)
        .keys(READ)
        .syntax("key")
}

const MISSING: &[(&str, &str)] = &[("2.8.0", "Answers -2 when there is no such key.")];
const TIME_PASSES: &[&str] = &["nondeterministic_output"];

pub(super) const COMMANDS: &[Command] = &[
    setting(Command::new("expire", -3, expire))
        .doc("generic", "1.0.0", "O(1)", "Sets the seconds until a key expires.")
        .syntax("key seconds:int [<NX | XX | GT | LT>] @7.0.0")
        .history(CONDITIONS),
    setting(Command::new("pexpire", -3, pexpire))
        .doc("generic", "2.6.0", "O(1)", "Sets the milliseconds until a key expires.")
        .syntax("key milliseconds:int [<NX | XX | GT | LT>] @7.0.0")
        .history(CONDITIONS),
    setting(Command::new("expireat", -3, expireat))
        .doc("generic", "1.2.0", "O(1)", "Makes a key expire at a Unix time in seconds.")
        .syntax("key unix-time-seconds:time [<NX | XX | GT | LT>] @7.0.0")
        .history(CONDITIONS),
    setting(Command::new("pexpireat", -3, pexpireat))
        .doc("generic", "2.6.0", "O(1)", "Makes a key expire at a Unix time in milliseconds.")
        .syntax("key unix-time-milliseconds:time [<NX | XX | GT | LT>] @7.0.0")
        .history(CONDITIONS),
    setting(Command::new("persist", 2, persist))
        .doc("generic", "2.2.0", "O(1)", "Takes a key's expiry away.")
        .syntax("key"),
    telling(Command::new("ttl", 2, ttl))
        .doc("generic", "1.0.0", "O(1)", "Answers in how many seconds a key expires.")
        .history(MISSING)
        .tips(TIME_PASSES),
    telling(Command::new("pttl", 2, pttl))
        .doc("generic", "2.6.0", "O(1)", "Answers in how many milliseconds a key expires.")
        .history(MISSING)
        .tips(TIME_PASSES),
    telling(Command::new("expiretime", 2, expiretime)).doc(
        "generic",
        "7.0.0",
        "O(1)",
        "Answers the Unix time in seconds at which a key expires.",
    ),
    telling(Command::new("pexpiretime", 2, pexpiretime)).doc(
        "generic",
        "7.0.0",
        "O(1)",
        "Answers the Unix time in milliseconds at which a key expires.",
    ),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn conditions() {
        let parse = |words: &str| {
            let words: Vec<&[u8]> = words.split_whitespace().map(str::as_bytes).collect();
            ExpireConditions::parse(&words)
        };
        // The words; then the results with no expiry, an earlier one, the same one and a later one.
        for (words, expected) in [
            ("", [true; 4]),
            ("nx", [true, false, false, false]),
            ("XX", [false, true, true, true]),
            ("gt", [false, true, false, false]),
            ("lt", [true, false, false, true]),
            ("xx lt", [false, false, false, true]),
            ("gt Xx", [false, true, false, false]),
        ] {
            let conditions = parse(words).unwrap();
            let allowed =
                [None, Some(99), Some(100), Some(101)].map(|ms| conditions.allow(ms, 100));
            assert_eq!(allowed, expected, "{words}");
        }
        for words in ["nx xx", "nx gt", "lt nx", "nx gt lt"] {
            assert_eq!(parse(words).err(), Some(NX_AND_OTHERS), "{words}");
        }
        assert_eq!(parse("gt lt xx").err(), Some(GT_AND_LT));
        assert_eq!(parse("gx").err(), Some(Failure::new(&"ERR Unsupported option gx")));
    }
}
