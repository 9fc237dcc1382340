//! MIGRATE: parses the arguments, and pins the keys under their locks. Other files of this folder
//! do the rest.

use std::ops::Range;
use std::time::Duration;

use super::PinnedValue;
use crate::commands::migrate::{MigrateTarget, Migration, SentKeys, Traveller};
use crate::engine::blocking::{self, Wait};
use crate::engine::command::{Call, Categories, Classes, Command, Failure, Flags, Outcome};
use crate::engine::row::keys::{KeySpec, KeyUse};

fn migrate(call: &mut Call<'_>) -> Outcome {
    let options = MigrateOptions::parse(call.args)?;
    let timeout_ms = match call.integer(5)? {
        ms @ 1.. => ms as u64,
        _ => TIMEOUT_MS,
    };
    let target = MigrateTarget {
        host: String::from_utf8_lossy(call.args[1]).into_owned(),
        port: port(call.args[2]),
        database: call.integer(4)?,
        timeout: Duration::from_millis(timeout_ms),
        credentials: options
            .credentials
            .clone()
            .map(|range| call.args[range].iter().map(|&word| word.into()).collect()),
        replace: options.replace,
        compress: call.server.config.rdbcompression(),
    };
    let watched = !options.copy && call.may_block();
    let mut travellers: Vec<Traveller> = Vec::new();
    for key in call.distinct_keys(options.keys.clone())? {
        let Some(entry) = call.data.read(key) else { continue };
        let (value, expire_ms) = (PinnedValue::new(entry.value()), entry.expire_ms());
        let version = if watched { call.data.watch(key) } else { 0 };
        travellers.push(Traveller { key: key.bytes.into(), value, expire_ms, version });
    }
    if travellers.is_empty() {
        call.reply.simple("NOKEY");
        return Ok(());
    }
    if !call.may_block() {
        return migrate_now(call, &target, &travellers, options.copy);
    }
    let database = call.client.database;
    let migration = Migration { target, copy: options.copy, database, travellers };
    let waiter = blocking::block(call, Migrating, &[], None);
    migration.start(call.server, waiter);
    Ok(())
}

/// Migrates within a transaction: as in Redis, all clients that need these keys have to wait.
fn migrate_now(
    call: &mut Call<'_>,
    target: &MigrateTarget,
    travellers: &[Traveller],
    copy: bool,
) -> Outcome {
    let SentKeys { acknowledged, outcome } = target.send(travellers);
    call.data.propagate_nothing();
    for (traveller, _) in travellers.iter().zip(acknowledged).filter(|(_, done)| *done && !copy) {
        let key = call.data.key(&traveller.key);
        call.data.remove(key);
        call.data.propagate(&[b"DEL", key.bytes]);
        call.data.event(Classes::GENERIC, "del", key);
    }
    outcome?;
    call.reply.ok();
    Ok(())
}

/// The wait of a client for the migration's thread.
struct Migrating;

impl Wait for Migrating {
    fn can_be_unblocked(&self) -> bool {
        false
    }
}

/// The options behind the timeout.
struct MigrateOptions {
    copy: bool,
    replace: bool,
    /// AUTH's arguments.
    credentials: Option<Range<usize>>,
    keys: Range<usize>,
}

impl MigrateOptions {
    fn parse(args: &[&[u8]]) -> Result<Self, Failure> {
        let mut options = Self { copy: false, replace: false, credentials: None, keys: 3..4 };
        let mut at = 6;
        while let Some(word) = args.get(at) {
            let is = |name: &str| word.eq_ignore_ascii_case(name.as_bytes());
            let more = args.len() - at - 1;
            if is("copy") {
                options.copy = true;
            } else if is("replace") {
                options.replace = true;
            } else if is("auth") && more >= 1 {
                options.credentials = Some(at + 1..at + 2);
                at += 1;
            } else if is("auth2") && more >= 2 {
                options.credentials = Some(at + 1..at + 3);
                at += 2;
            } else if is("keys") {
                if !args[3].is_empty() {
                    return Err(KEY_AND_KEYS);
                }
                options.keys = at + 1..args.len();
                break;
            } else {
                return Err(Failure::SYNTAX);
            }
            at += 1;
        }
        Ok(options)
    }
}

fn find_keys(args: &[&[u8]], found: &mut dyn FnMut(usize, KeyUse)) {
    if let Ok(options) = MigrateOptions::parse(args) {
        options.keys.for_each(|at| found(at, USE));
    }
}

/// Parses a port as C's `atoi` and the resolver do: digits, of which 16 bits count.
fn port(word: &[u8]) -> u16 {
    let digits = word.iter().take_while(|byte| byte.is_ascii_digit());
    digits.fold(0, |port: u16, digit| port.wrapping_mul(10).wrapping_add(u16::from(digit - b'0')))
}

const USE: KeyUse = KeyUse::READ_WRITE.with(KeyUse::ACCESS).with(KeyUse::DELETE);
/// The timeout if none is given.
const TIMEOUT_MS: u64 = 1000;
const KEY_AND_KEYS: Failure = Failure::new(
    &"ERR When using MIGRATE KEYS option, the key argument must be set to the empty string",
);

pub const COMMANDS: &[Command] = &[Command::new("migrate", -6, migrate)
    .flags(Flags::WRITE.with(Flags::MOVABLE_KEYS))
    .categories(Categories::KEYSPACE.with(Categories::DANGEROUS))
    .keys(&[KeySpec::at(3, USE), KeySpec::keyword_range("KEYS", -2, USE.with(KeyUse::INCOMPLETE))])
    .keys_by(find_keys)
    .doc(
        "generic",
        "2.6.0",
        "That of DUMP and DEL here and of RESTORE there, and O(N) to transfer N bytes.",
        "Moves keys to another server.",
    )
    .syntax(
        "host port:int <key | \"\"> :key-selector destination-db:int timeout:int [COPY @3.0.0] \
         [REPLACE @3.0.0] [<AUTH password :auth @4.0.7 | <AUTH2 username password> @6.0.0>] [KEYS \
         key [key ...] :keys @3.0.6]",
    )
    .history(&[
        ("3.0.0", "Takes `COPY` and `REPLACE`."),
        ("3.0.6", "Takes `KEYS`."),
        ("4.0.7", "Takes `AUTH`."),
        ("6.0.0", "Takes `AUTH2`."),
    ])
    .tips(&["nondeterministic_output"])];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options() {
        let parse = |line: &str| {
            let args: Vec<&[u8]> =
                line.split(' ').map(|word| word.trim_matches('"').as_bytes()).collect();
            MigrateOptions::parse(&args).map(|options| (options.credentials, options.keys))
        };
        assert!(parse("migrate h 1 k 0 9 copy replace") == Ok((None, 3..4)));
        assert!(parse("migrate h 1 \"\" 0 9 auth2 u p keys a b") == Ok((Some(7..9), 10..12)));
        assert!(parse("migrate h 1 \"\" 0 9 auth keys keys a") == Ok((Some(7..8), 9..10)));
        assert!(parse("migrate h 1 k 0 9 keys a") == Err(KEY_AND_KEYS));
        for line in ["auth", "auth2 a", "foo"] {
            assert!(parse(&format!("migrate h 1 k 0 9 {line}")) == Err(Failure::SYNTAX));
        }
        assert_eq!((port(b"6379"), port(b"x"), port(b"65537")), (6379, 0, 1));
    }
}
