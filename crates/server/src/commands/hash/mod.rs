//! Hashes. The handlers are in their own files, and the rows are here.

mod expiry;
mod extended;
mod random;
mod read;
mod write;

use bobbin_store::value::HashLimits;

use crate::engine::command::{Call, Categories, Classes, Command, Family, Flags, Handler, Key};
use crate::engine::row::keys::{KeySpec, KeyUse};
use crate::engine::server::Server;

/// The limits of a packed hash.
pub(super) fn limits(server: &Server) -> HashLimits {
    HashLimits {
        packed_entries: server.config.hash_max_listpack_entries() as usize,
        packed_value_len: server.config.hash_max_listpack_value() as usize,
    }
}

/// Must be called after `fields` fields of the hash at a key were changed.
fn changed(call: &mut Call<'_>, key: Key<'_>, fields: usize) {
    call.data.changed_by(key, fields);
}

/// Reports expired fields that were replaced.
fn note_expired(call: &mut Call<'_>, key: Key<'_>, fields: usize) {
    if fields > 0 {
        call.data.counters.expired_fields += fields as u64;
        call.data.event(Classes::HASH, "hexpired", key);
    }
}

const READ: KeyUse = KeyUse::READ_ONLY.with(KeyUse::ACCESS);
const LOOK: KeyUse = KeyUse::READ_ONLY;
const UPDATE: KeyUse = KeyUse::READ_WRITE.with(KeyUse::UPDATE);
const INSERT: KeyUse = KeyUse::READ_WRITE.with(KeyUse::INSERT);
const DELETE: KeyUse = KeyUse::READ_WRITE.with(KeyUse::DELETE);
const COUNT: KeyUse = UPDATE.with(KeyUse::ACCESS);
const TAKE: KeyUse = DELETE.with(KeyUse::ACCESS);

const READONLY_FAST: Flags = Flags::READONLY.with(Flags::FAST);
const WRITE_FAST: Flags = Flags::WRITE.with(Flags::FAST);
const GROW_FAST: Flags = WRITE_FAST.with(Flags::DENYOOM);

const PER_FIELD: &str = "O(N), N: fields given";
const PER_SIZE: &str = "O(N), N: fields of the hash";

const FAMILY: Family = Family::new(Categories::HASH);

/// A row about fields' expiries.
const fn timed(
    name: &'static str,
    arity: i32,
    flags: Flags,
    keys: &'static [KeySpec],
    handler: Handler,
    summary: &'static str,
) -> Command {
    FAMILY.row(name, arity, flags, handler).keys(keys).doc("hash", "9.0.0", PER_FIELD, summary)
}

const KEY_READ: &[KeySpec] = &[KeySpec::at(1, READ)];
const KEY_LOOK: &[KeySpec] = &[KeySpec::at(1, LOOK)];
const KEY_UPDATE: &[KeySpec] = &[KeySpec::at(1, UPDATE)];
const KEY_INSERT: &[KeySpec] = &[KeySpec::at(1, INSERT)];
const KEY_DELETE: &[KeySpec] = &[KeySpec::at(1, DELETE)];
const KEY_COUNT: &[KeySpec] = &[KeySpec::at(1, COUNT)];
const KEY_TAKE: &[KeySpec] = &[KeySpec::at(1, TAKE)];

const FIELDS: &str = "key FIELDS <numfields:int #0 field [field ...]>";

pub(super) const COMMANDS: &[Command] = &[
    FAMILY.row("hdel", -3, WRITE_FAST, write::hdel).keys(KEY_DELETE)
        .doc("hash", "2.0.0", PER_FIELD, "Deletes fields of a hash, and the hash with its last one.")
        .syntax("key field [field ...]")
        .history(&[("2.4.0", "Takes several fields.")]),
    FAMILY.row("hexists", 3, READONLY_FAST, read::hexists).keys(KEY_LOOK)
        .doc("hash", "2.0.0", "O(1)", "Tells whether a hash has a field.")
        .syntax("key field"),
    timed("hexpire", -6, WRITE_FAST, KEY_UPDATE, expiry::hexpire, "Sets the seconds until fields of a hash expire.")
        .syntax("key seconds:int [<NX | XX | GT | LT>] FIELDS <numfields:int field [field ...]>"),
    timed("hexpireat", -6, WRITE_FAST, KEY_UPDATE, expiry::hexpireat, "Lets fields of a hash expire at a Unix time in seconds.")
        .syntax(
            "key unix-time-seconds:int [<NX | XX | GT | LT>] @9.0.0 FIELDS <numfields:int #0 field \
             [field ...]>",
        ),
    timed("hexpiretime", -5, READONLY_FAST, KEY_READ, expiry::hexpiretime, "Tells at which Unix time in seconds fields of a hash expire.")
        .syntax(FIELDS),
    FAMILY.row("hget", 3, READONLY_FAST, read::hget).keys(KEY_READ)
        .doc("hash", "2.0.0", "O(1)", "Answers the value of a field of a hash.")
        .syntax("key field"),
    FAMILY.row("hgetall", 2, Flags::READONLY, read::hgetall).keys(KEY_READ)
        .doc("hash", "2.0.0", PER_SIZE, "Answers all fields of a hash with their values.")
        .syntax("key")
        .tips(&["nondeterministic_output_order"]),
    FAMILY.row("hgetdel", -5, WRITE_FAST, extended::hgetdel).keys(KEY_TAKE)
        .doc("hash", "9.1.0", PER_FIELD, "Answers the values of fields of a hash, and deletes the fields.")
        .syntax(FIELDS),
    FAMILY.row("hgetex", -5, WRITE_FAST, extended::hgetex).keys(KEY_COUNT)
        .doc("hash", "9.0.0", PER_FIELD, "Answers the values of fields of a hash, and sets when the fields expire.")
        .syntax(
            "key [<EX seconds:int | PX milliseconds:int | EXAT unix-time-seconds:time | PXAT \
             unix-time-milliseconds:time | PERSIST>] FIELDS <numfields:int #0 field [field ...]>",
        ),
    FAMILY.row("hincrby", 4, GROW_FAST, write::hincrby).keys(KEY_COUNT)
        .doc("hash", "2.0.0", "O(1)", "Adds an integer to the number in a field of a hash.")
        .syntax("key field increment:int"),
    FAMILY.row("hincrbyfloat", 4, GROW_FAST, write::hincrbyfloat).keys(KEY_COUNT)
        .doc("hash", "2.6.0", "O(1)", "Adds a decimal number to the number in a field of a hash.")
        .syntax("key field increment:double"),
    FAMILY.row("hkeys", 2, Flags::READONLY, read::hkeys).keys(KEY_READ)
        .doc("hash", "2.0.0", PER_SIZE, "Answers the names of all fields of a hash.")
        .syntax("key")
        .tips(&["nondeterministic_output_order"]),
    FAMILY.row("hlen", 2, READONLY_FAST, read::hlen).keys(KEY_LOOK)
        .doc("hash", "2.0.0", "O(1)", "Answers how many fields a hash has.")
        .syntax("key"),
    FAMILY.row("hmget", -3, READONLY_FAST, read::hmget).keys(KEY_READ)
        .doc("hash", "2.0.0", PER_FIELD, "Answers the values of several fields of a hash.")
        .syntax("key field [field ...]"),
    FAMILY.row("hmset", -4, GROW_FAST, write::hmset).keys(KEY_UPDATE)
        .values(3, 2)
        .doc("hash", "2.0.0", PER_FIELD, "Sets fields of a hash, and answers OK.")
        .syntax("key field value [field value ...]"),
    timed("hpersist", -5, WRITE_FAST, KEY_UPDATE, expiry::hpersist, "Takes the expiry of fields of a hash away.")
        .syntax(FIELDS),
    timed("hpexpire", -6, WRITE_FAST, KEY_UPDATE, expiry::hpexpire, "Sets the milliseconds until fields of a hash expire.")
        .syntax(
            "key milliseconds:int [<NX | XX | GT | LT>] @9.0.0 FIELDS <numfields:int #0 field \
             [field ...]>",
        ),
    timed("hpexpireat", -6, WRITE_FAST, KEY_UPDATE, expiry::hpexpireat, "Lets fields of a hash expire at a Unix time in milliseconds.")
        .syntax(
            "key unix-time-milliseconds:int [<NX | XX | GT | LT>] @9.0.0 FIELDS <numfields:int #0 \
             field [field ...]>",
        ),
    timed("hpexpiretime", -5, READONLY_FAST, KEY_READ, expiry::hpexpiretime, "Tells at which Unix time in milliseconds fields of a hash expire.")
        .syntax(FIELDS),
    timed("hpttl", -5, READONLY_FAST, KEY_READ, expiry::hpttl, "Tells in how many milliseconds fields of a hash expire.")
        .syntax(FIELDS),
    FAMILY.row("hrandfield", -2, Flags::READONLY, random::hrandfield).keys(KEY_READ)
        .doc("hash", "6.2.0", "O(N), N: fields answered", "Answers random fields of a hash.")
        .syntax("key [count:int [WITHVALUES]] :options")
        .tips(&["nondeterministic_output"]),
    FAMILY.row("hscan", -3, Flags::READONLY, read::hscan).keys(KEY_READ)
        .doc(
            "hash",
            "2.8.0",
            "O(1) per call, O(N) for all of them until the cursor is 0 again, N: fields of the hash",
            "Answers some fields of a hash, and a cursor to ask for the next with.",
        )
        .syntax("key cursor:int [MATCH pattern] [COUNT count:int] [NOVALUES]")
        .tips(&["nondeterministic_output"]),
    FAMILY.row("hset", -4, GROW_FAST, write::hset).keys(KEY_UPDATE)
        .values(3, 2)
        .doc("hash", "2.0.0", "O(N), N: fields given", "Sets fields of a hash, and answers how many are new.")
        .syntax("key field value [field value ...]")
        .history(&[("4.0.0", "Takes several fields with their values.")]),
    FAMILY.row("hsetex", -6, GROW_FAST, extended::hsetex).keys(KEY_INSERT)
        .values(3, 1)
        .doc("hash", "9.0.0", PER_FIELD, "Sets fields of a hash, and when they expire.")
        .syntax(
            "key [<NX | XX>] :key-condition [<FNX | FXX>] [<EX seconds:int | PX milliseconds:int | \
             EXAT unix-time-seconds:time | PXAT unix-time-milliseconds:time | KEEPTTL>] FIELDS \
             <numfields:int #0 field value [field value ...]>",
        ),
    FAMILY.row("hsetnx", 4, GROW_FAST, write::hsetnx).keys(KEY_INSERT)
        .values(3, 0)
        .doc("hash", "2.0.0", "O(1)", "Sets a field of a hash unless it is there.")
        .syntax("key field value"),
    FAMILY.row("hstrlen", 3, READONLY_FAST, read::hstrlen).keys(KEY_LOOK)
        .doc("hash", "3.2.0", "O(1)", "Answers how long the value of a field of a hash is.")
        .syntax("key field"),
    timed("httl", -5, READONLY_FAST, KEY_READ, expiry::httl, "Tells in how many seconds fields of a hash expire.")
        .syntax(FIELDS),
    FAMILY.row("hvals", 2, Flags::READONLY, read::hvals).keys(KEY_READ)
        .doc("hash", "2.0.0", PER_SIZE, "Answers the values of all fields of a hash.")
        .syntax("key")
        .tips(&["nondeterministic_output_order"]),
];
