//! Sets: the handlers in their files, their rows here.

mod combine;
mod members;
mod random;

use bobbin_store::value::SetLimits;

use crate::command::keys::{KeySpec, KeyUse};
use crate::command::{Call, Categories, Classes, Command, Data, Flags, Handler, Key};
use crate::server::Server;

/// When a set takes another form.
pub(super) fn limits(server: &Server) -> SetLimits {
    SetLimits {
        intset_entries: server.config.set_max_intset_entries() as usize,
        packed_entries: server.config.set_max_listpack_entries() as usize,
        packed_value_len: server.config.set_max_listpack_value() as usize,
    }
}

/// To be called by whoever added or removed so many members of the set at a key.
fn changed(call: &mut Call<'_>, key: Key<'_>, members: usize) {
    call.data.changed_by(key, members);
}

/// Deletes the set at a key if no member is left.
fn ended(data: &mut Data, key: Key<'_>) {
    if data.remove_if_empty(key) {
        data.event(Classes::GENERIC, "del", key);
    }
}

const READ: KeyUse = KeyUse::READ_ONLY.with(KeyUse::ACCESS);
const LOOK: KeyUse = KeyUse::READ_ONLY;
const INSERT: KeyUse = KeyUse::READ_WRITE.with(KeyUse::INSERT);
const DELETE: KeyUse = KeyUse::READ_WRITE.with(KeyUse::DELETE);
const TAKE: KeyUse = DELETE.with(KeyUse::ACCESS);
const OVERWRITE: KeyUse = KeyUse::OVERWRITE.with(KeyUse::UPDATE);

const READONLY_FAST: Flags = Flags::READONLY.with(Flags::FAST);
const WRITE_FAST: Flags = Flags::WRITE.with(Flags::FAST);
const GROW: Flags = Flags::WRITE.with(Flags::DENYOOM);

const KEY_READ: &[KeySpec] = &[KeySpec::at(1, READ)];
const KEY_LOOK: &[KeySpec] = &[KeySpec::at(1, LOOK)];
const KEY_TAKE: &[KeySpec] = &[KeySpec::at(1, TAKE)];
const KEYS_READ: &[KeySpec] = &[KeySpec::range(1, -1, 1, READ)];
const STORE: &[KeySpec] = &[KeySpec::at(1, OVERWRITE), KeySpec::range(2, -1, 1, READ)];

const PER_MEMBER: &str = "O(N), N: members given";
const PER_INTERSECTION: &str = "O(N*M), N: members of the smallest set, M: sets";
const PER_TOTAL: &str = "O(N), N: members of all sets";

const UNORDERED: &[&str] = &["nondeterministic_output_order"];
const RANDOM: &[&str] = &["nondeterministic_output"];

/// A row of this family.
const fn row(
    name: &'static str,
    arity: i32,
    flags: Flags,
    keys: &'static [KeySpec],
    handler: Handler,
) -> Command {
    Command::new(name, arity, handler).flags(flags).categories(Categories::SET).keys(keys)
}

pub(super) const COMMANDS: &[Command] = &[
    row("sadd", -3, GROW.with(Flags::FAST), &[KeySpec::at(1, INSERT)], members::sadd)
        .doc("set", "1.0.0", "O(N), N: members given", "Adds members to a set, and answers how many are new.")
        .syntax("key member [member ...]")
        .history(&[("2.4.0", "Takes several members.")]),
    row("scard", 2, READONLY_FAST, KEY_LOOK, members::scard)
        .doc("set", "1.0.0", "O(1)", "Answers how many members a set has.")
        .syntax("key"),
    row("sdiff", -2, Flags::READONLY, KEYS_READ, combine::sdiff)
        .doc("set", "1.0.0", PER_TOTAL, "Answers what is in the first set and in none of the others.")
        .syntax("key [key ...]")
        .tips(UNORDERED),
    row("sdiffstore", -3, GROW, STORE, combine::sdiffstore)
        .doc("set", "1.0.0", PER_TOTAL, "Keeps what is in the first set and in none of the others.")
        .syntax("destination key [key ...]"),
    row("sinter", -2, Flags::READONLY, KEYS_READ, combine::sinter)
        .doc("set", "1.0.0", PER_INTERSECTION, "Answers what is in all of the sets.")
        .syntax("key [key ...]")
        .tips(UNORDERED),
    row("sintercard", -3, Flags::READONLY.with(Flags::MOVABLE_KEYS), &[KeySpec::counted(1, READ)], combine::sintercard)
        .doc("set", "7.0.0", PER_INTERSECTION, "Answers how many members are in all of the sets.")
        .syntax("numkeys key [key ...] [LIMIT limit]"),
    row("sinterstore", -3, GROW, STORE, combine::sinterstore)
        .doc("set", "1.0.0", PER_INTERSECTION, "Keeps what is in all of the sets.")
        .syntax("destination key [key ...]"),
    row("sismember", 3, READONLY_FAST, KEY_LOOK, members::sismember)
        .doc("set", "1.0.0", "O(1)", "Tells whether something is in a set.")
        .syntax("key member"),
    row("smembers", 2, Flags::READONLY, KEY_READ, members::smembers)
        .doc("set", "1.0.0", "O(N), N: members", "Answers all members of a set.")
        .syntax("key")
        .tips(UNORDERED),
    row("smismember", -3, READONLY_FAST, KEY_READ, members::smismember)
        .doc("set", "6.2.0", PER_MEMBER, "Tells of several things whether they are in a set.")
        .syntax("key member [member ...]"),
    row(
        "smove",
        4,
        WRITE_FAST,
        &[KeySpec::at(1, TAKE), KeySpec::at(2, INSERT)],
        members::smove,
    )
    .doc("set", "1.0.0", "O(1)", "Moves a member from one set to another.")
    .syntax("source destination member"),
    row("spop", -2, WRITE_FAST, KEY_TAKE, random::spop)
        .doc(
            "set",
            "1.0.0",
            "O(1) without a count, else O(N), N: the count",
            "Removes random members of a set, and answers them.",
        )
        .syntax("key [count]")
        .history(&[("3.2.0", "Takes a count.")])
        .tips(RANDOM),
    row("srandmember", -2, Flags::READONLY, KEY_READ, random::srandmember)
        .doc(
            "set",
            "1.0.0",
            "O(1) without a count, else O(N), N: the count without its sign",
            "Answers random members of a set.",
        )
        .syntax("key [count]")
        .history(&[("2.6.0", "Takes a count.")])
        .tips(RANDOM),
    row("srem", -3, WRITE_FAST, &[KeySpec::at(1, DELETE)], members::srem)
        .doc("set", "1.0.0", PER_MEMBER, "Removes members of a set, and the set with its last one.")
        .syntax("key member [member ...]")
        .history(&[("2.4.0", "Takes several members.")]),
    row("sscan", -3, Flags::READONLY, KEY_READ, members::sscan)
        .doc(
            "set",
            "2.8.0",
            "O(1) per call, O(N) for all of them until the cursor is 0 again, N: members of the set",
            "Answers some members of a set, and a cursor to ask for the next with.",
        )
        .syntax("key cursor [MATCH pattern] [COUNT count]")
        .tips(RANDOM),
    row("sunion", -2, Flags::READONLY, KEYS_READ, combine::sunion)
        .doc("set", "1.0.0", PER_TOTAL, "Answers what is in any of the sets.")
        .syntax("key [key ...]")
        .tips(UNORDERED),
    row("sunionstore", -3, GROW, STORE, combine::sunionstore)
        .doc("set", "1.0.0", PER_TOTAL, "Keeps what is in any of the sets.")
        .syntax("destination key [key ...]"),
];
