//! Commands about keys of any type: existence, deletion, renaming, copying.

use bobbin_store::value::AnyCollection;
use bobbin_store::{NewValue, OwnedEntry};

use crate::commands::freeing::Freeing;
use crate::engine::command::{
    Call, Categories, Classes, Command, DatabaseUse, Failure, Flags, Key, Outcome,
};
use crate::engine::row::keys::{KeySpec, KeyUse};

fn exists(call: &mut Call<'_>) -> Outcome {
    let (mut found, many) = (0, call.has_very_many_keys());
    for at in 1..call.args.len() {
        if many {
            call.prefetch_after(at);
        }
        found += i64::from(call.data.look(call.key(at)?).is_some());
    }
    call.reply.integer(found);
    Ok(())
}

fn touch(call: &mut Call<'_>) -> Outcome {
    // TOUCH is the only command that counts as a use even after CLIENT NO-TOUCH.
    call.data.conditions.touch = true;
    let (mut found, many) = (0, call.has_very_many_keys());
    for at in 1..call.args.len() {
        if many {
            call.prefetch_after(at);
        }
        found += i64::from(call.data.read(call.key(at)?).is_some());
    }
    call.reply.integer(found);
    Ok(())
}

fn type_of(call: &mut Call<'_>) -> Outcome {
    let entry = call.data.look(call.key(1)?);
    call.reply.simple(entry.map_or("none", |entry| entry.value_type().name()));
    Ok(())
}

fn del(call: &mut Call<'_>) -> Outcome {
    let in_background = call.server.config.lazyfree_lazy_user_del();
    delete(call, in_background)
}

fn unlink(call: &mut Call<'_>) -> Outcome {
    delete(call, true)
}

fn delete(call: &mut Call<'_>, in_background: bool) -> Outcome {
    let mut deleted = 0;
    let mut heavy = Vec::new();
    let in_background = in_background || call.in_transaction;
    let many = call.has_very_many_keys();
    for at in 1..call.args.len() {
        if many {
            call.prefetch_after(at);
        }
        let key = call.key(at)?;
        let Some(entry) = call.data.take(key) else { continue };
        call.data.event(Classes::GENERIC, "del", key);
        deleted += 1;
        if in_background || entry.as_ref().is_light() {
            call.data.discard(entry);
        } else {
            heavy.push(entry);
        }
    }
    if heavy.is_empty() {
        call.reply.integer(deleted);
    } else {
        call.leave_job(Freeing::new(heavy, deleted));
    }
    Ok(())
}

fn rename(call: &mut Call<'_>) -> Outcome {
    if rename_key(call, true)? || call.args[1] == call.args[2] {
        call.reply.ok();
    }
    Ok(())
}

fn renamenx(call: &mut Call<'_>) -> Outcome {
    let renamed = rename_key(call, false)?;
    call.reply.integer(i64::from(renamed));
    Ok(())
}

/// Renames a key. Returns whether it did.
fn rename_key(call: &mut Call<'_>, overwrite: bool) -> Result<bool, Failure> {
    let (from, to) = (call.key(1)?, call.key(2)?);
    if call.data.write(from).is_none() {
        return Err(Failure::NO_SUCH_KEY);
    }
    if from.bytes == to.bytes || !overwrite && call.data.write(to).is_some() {
        return Ok(false);
    }
    let Some(old) = call.data.take(from) else { return Err(Failure::NO_SUCH_KEY) };
    let expire_ms = old.as_ref().expire_ms();
    let access = call.data.conditions.clock.fresh();
    call.data.install(to, old.renamed(to.bytes, expire_ms, access));
    call.data.event(Classes::GENERIC, "rename_from", from);
    call.data.event(Classes::GENERIC, "rename_to", to);
    // Two keys changed, but Redis counts one change.
    call.data.counters.dirty -= 1;
    Ok(true)
}

/// Parses COPY's options, and returns whether it replaces. Calls `database` with each argument that
/// names a database.
fn copy_options(
    args: &[&[u8]],
    mut database: impl FnMut(usize) -> Outcome,
) -> Result<bool, Failure> {
    let (mut replace, mut at) = (false, 3);
    while let Some(word) = args.get(at) {
        if word.eq_ignore_ascii_case(b"replace") {
            replace = true;
        } else if word.eq_ignore_ascii_case(b"db") && at + 1 < args.len() {
            at += 1;
            database(at)?;
        } else {
            return Err(Failure::SYNTAX);
        }
        at += 1;
    }
    Ok(replace)
}

fn find_databases(args: &[&[u8]], found: &mut dyn FnMut(usize)) {
    // The command itself reports other errors.
    let parsed = copy_options(args, |at| {
        found(at);
        Ok(())
    });
    drop(parsed);
}

fn copy(call: &mut Call<'_>) -> Outcome {
    let mut target = call.client.database;
    let replace = copy_options(call.args, |at| {
        target = database(call, at)?;
        Ok(())
    })?;
    let (from, to) = (call.key(1)?, call.key(2)?);
    if target == call.client.database && from.bytes == to.bytes {
        return Err(SAME_OBJECT);
    }
    let (access, now_ms) = (call.data.conditions.clock.fresh(), call.data.dead_ms());
    let hasher = call.data.keyspace().hasher();
    let Some(look) = call.data.read(from) else {
        call.reply.integer(0);
        return Ok(());
    };
    // A long string is shared by both keys until one of them changes.
    let (mut value, expire_ms) = (look.to_new_value(), look.expire_ms());
    let mut expired: Vec<Box<[u8]>> = Vec::new();
    if let NewValue::Collection(AnyCollection::Hash(hash)) = &mut value {
        // As in Valkey, expired fields are not copied. But a hash must not become empty.
        hash.remove_expired(now_ms, hash.len() - 1, hasher, |name| expired.push(name.into()));
    }
    let entry = OwnedEntry::new(to.bytes, value, expire_ms, access);
    let copied = in_database(call, target, |call| {
        let free = replace || call.data.write(to).is_none();
        if free {
            call.data.install(to, entry);
            call.data.event(Classes::GENERIC, "copy_to", to);
        }
        free
    });
    if copied && !expired.is_empty() {
        // Nothing expires while the log is replayed, so COPY copies all fields there.
        call.data.propagate(call.args);
        let words = [b"HDEL", to.bytes].into_iter().chain(expired.iter().map(|name| &**name));
        let words: Vec<&[u8]> = words.collect();
        in_database(call, target, |call| call.data.propagate(&words));
    }
    call.reply.integer(i64::from(copied));
    Ok(())
}

fn move_key(call: &mut Call<'_>) -> Outcome {
    let target = database(call, 2)?;
    if target == call.client.database {
        return Err(SAME_OBJECT);
    }
    let moved = move_to(call, call.key(1)?, target);
    call.reply.integer(i64::from(moved));
    Ok(())
}

/// Moves a key to another database unless it exists there. Returns whether it did.
fn move_to(call: &mut Call<'_>, key: Key<'_>, target: u32) -> bool {
    if call.data.write(key).is_none() || in_database(call, target, |call| call.data.exists(key)) {
        return false;
    }
    let Some(mut entry) = call.data.take(key) else { return false };
    entry.set_access(call.data.conditions.clock.fresh());
    in_database(call, target, |call| call.data.install(key, entry));
    call.data.event(Classes::GENERIC, "move_from", key);
    in_database(call, target, |call| call.data.event(Classes::GENERIC, "move_to", key));
    call.data.counters.dirty -= 1;
    true
}

/// Calls `f` with another database selected.
fn in_database<R>(call: &mut Call<'_>, database: u32, f: impl FnOnce(&mut Call<'_>) -> R) -> R {
    let selected = std::mem::replace(&mut call.data.database, database);
    let result = f(call);
    call.data.database = selected;
    result
}

/// Parses an argument as the number of a database.
fn database(call: &Call<'_>, at: usize) -> Result<u32, Failure> {
    let number = call.integer(at)?;
    let number = i32::try_from(number).map_err(|_| NOT_AN_INT)?;
    match u32::try_from(number) {
        Ok(index) if i64::from(index) < call.server.config.databases() => Ok(index),
        _ => Err(Failure::NO_DATABASE),
    }
}

const SAME_OBJECT: Failure = Failure::new(&"ERR source and destination objects are the same");
const NOT_AN_INT: Failure =
    Failure::new(&"ERR value is out of range, value must between -2147483648 and 2147483647");

const LOOK: Flags = Flags::READONLY.with(Flags::FAST);
const CHANGE: Flags = Flags::WRITE.with(Flags::FAST);
const SPREAD_AND_SUM: &[&str] = &["request_policy:multi_shard", "response_policy:agg_sum"];

pub(super) const COMMANDS: &[Command] = &[
    Command::new("exists", -2, exists)
        .flags(LOOK)
        .categories(Categories::KEYSPACE)
        .keys(&[KeySpec::range(1, -1, 1, KeyUse::READ_ONLY)])
        .doc("generic", "1.0.0", "O(N), N: keys", "Counts which of the keys are there.")
        .syntax("key [key ...]")
        .history(&[("3.0.3", "Takes several keys.")])
        .tips(SPREAD_AND_SUM),
    Command::new("del", -2, del)
        .flags(Flags::WRITE.with(Flags::BRIEF))
        .categories(Categories::KEYSPACE)
        .keys(&[KeySpec::range(1, -1, 1, KeyUse::REMOVE.with(KeyUse::DELETE))])
        .doc("generic", "1.0.0", "O(N), N: keys and their elements", "Deletes keys.")
        .syntax("key [key ...]")
        .tips(SPREAD_AND_SUM),
    Command::new("unlink", -2, unlink)
        .flags(CHANGE)
        .categories(Categories::KEYSPACE)
        .keys(&[KeySpec::range(1, -1, 1, KeyUse::REMOVE.with(KeyUse::DELETE))])
        .doc(
            "generic",
            "4.0.0",
            "O(1) for each key, and O(N) in the background, N: elements",
            "Deletes keys, and frees what they held in the background.",
        )
        .syntax("key [key ...]")
        .tips(SPREAD_AND_SUM),
    Command::new("type", 2, type_of)
        .flags(LOOK)
        .categories(Categories::KEYSPACE)
        .keys(&[KeySpec::at(1, KeyUse::READ_ONLY)])
        .doc("generic", "1.0.0", "O(1)", "Answers what kind of value a key holds.")
        .syntax("key"),
    Command::new("touch", -2, touch)
        .flags(LOOK)
        .categories(Categories::KEYSPACE)
        .keys(&[KeySpec::range(1, -1, 1, KeyUse::READ_ONLY)])
        .doc(
            "generic",
            "3.2.1",
            "O(N), N: keys",
            "Counts as a use of keys, and counts those there.",
        )
        .syntax("key [key ...]")
        .tips(SPREAD_AND_SUM),
    Command::new("rename", 3, rename)
        .flags(Flags::WRITE)
        .categories(Categories::KEYSPACE)
        .keys(&[
            KeySpec::at(1, KeyUse::READ_WRITE.with(KeyUse::ACCESS).with(KeyUse::DELETE)),
            KeySpec::at(2, KeyUse::OVERWRITE.with(KeyUse::UPDATE)),
        ])
        .doc("generic", "1.0.0", "O(1)", "Gives a key another name, whatever had that name.")
        .syntax("key newkey:key"),
    Command::new("renamenx", 3, renamenx)
        .flags(CHANGE)
        .categories(Categories::KEYSPACE)
        .keys(&[
            KeySpec::at(1, KeyUse::READ_WRITE.with(KeyUse::ACCESS).with(KeyUse::DELETE)),
            KeySpec::at(2, KeyUse::OVERWRITE.with(KeyUse::INSERT)),
        ])
        .doc("generic", "1.0.0", "O(1)", "Gives a key another name that no key has.")
        .syntax("key newkey:key")
        .history(&[("3.2.0", "Twice the same name is no error any more.")]),
    Command::new("copy", -3, copy)
        .flags(Flags::WRITE.with(Flags::DENYOOM))
        .categories(Categories::KEYSPACE)
        .keys(&[
            KeySpec::at(1, KeyUse::READ_ONLY.with(KeyUse::ACCESS)),
            KeySpec::at(2, KeyUse::OVERWRITE.with(KeyUse::UPDATE)),
        ])
        .doc(
            "generic",
            "6.2.0",
            "O(1) for strings, O(N) for others, N: elements",
            "Copies what a key holds to another key.",
        )
        .syntax("source:key destination:key [DB destination-db:int] [REPLACE]")
        .databases(DatabaseUse::Named(find_databases)),
    Command::new("move", 3, move_key)
        .flags(CHANGE)
        .categories(Categories::KEYSPACE)
        .keys(&[KeySpec::at(1, KeyUse::READ_WRITE.with(KeyUse::ACCESS).with(KeyUse::UPDATE))])
        .doc("generic", "1.0.0", "O(1)", "Moves a key to another database.")
        .syntax("key db:int")
        .databases(DatabaseUse::Named(|_, found| found(2))),
];
