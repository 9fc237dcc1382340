//! Sets. The handlers are in their own files, and the rows are here.

mod combine;
mod members;
mod random;

use bobbin_store::value::SetLimits;

use crate::engine::command::{Call, Categories, Classes, Command, Data, Family, Flags, Key};
use crate::engine::row::keys::{KeySpec, KeyUse};
use crate::engine::server::Server;

/// The limits at which a set changes its form.
pub(super) fn limits(server: &Server) -> SetLimits {
    SetLimits {
        intset_entries: server.config.set_max_intset_entries() as usize,
        packed_entries: server.config.set_max_listpack_entries() as usize,
        packed_value_len: server.config.set_max_listpack_value() as usize,
    }
}

/// Must be called after `members` members of the set at a key were added or removed.
fn changed(call: &mut Call<'_>, key: Key<'_>, members: usize) {
    call.data.changed_by(key, members);
}

/// Deletes the set at a key if it has no members left.
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

const FAMILY: Family = Family::new(Categories::SET);

pub(super) const COMMANDS: &[Command] = &[
    FAMILY.row("sadd", -3, GROW.with(Flags::FAST), members::sadd).keys(&[KeySpec::at(1, INSERT)])
        .doc("set", "1.0.0", "O(N), N: members given", "Adds members to a set, and answers how many are new.")
        .syntax("key member [member ...]")
        .history(&[("2.4.0", "Takes several members.")]),
    FAMILY.row("scard", 2, READONLY_FAST, members::scard).keys(KEY_LOOK)
        .doc("set", "1.0.0", "O(1)", "Answers how many members a set has.")
        .syntax("key"),
    FAMILY.row("sdiff", -2, Flags::READONLY, combine::sdiff).keys(KEYS_READ)
        .doc("set", "1.0.0", PER_TOTAL, "Answers what is in the first set and in none of the others.")
        .syntax("key [key ...]")
        .tips(UNORDERED),
    FAMILY.row("sdiffstore", -3, GROW, combine::sdiffstore).keys(STORE)
        .doc("set", "1.0.0", PER_TOTAL, "Keeps what is in the first set and in none of the others.")
        .syntax("destination:key key [key ...]"),
    FAMILY.row("sinter", -2, Flags::READONLY, combine::sinter).keys(KEYS_READ)
        .doc("set", "1.0.0", PER_INTERSECTION, "Answers what is in all of the sets.")
        .syntax("key [key ...]")
        .tips(UNORDERED),
    FAMILY.row("sintercard", -3, Flags::READONLY.with(Flags::MOVABLE_KEYS), combine::sintercard).keys(&[KeySpec::counted(1, READ)])
        .doc("set", "7.0.0", PER_INTERSECTION, "Answers how many members are in all of the sets.")
        .syntax("numkeys:int key [key ...] [LIMIT limit:int]"),
    FAMILY.row("sinterstore", -3, GROW, combine::sinterstore).keys(STORE)
        .doc("set", "1.0.0", PER_INTERSECTION, "Keeps what is in all of the sets.")
        .syntax("destination:key key [key ...]"),
    FAMILY.row("sismember", 3, READONLY_FAST, members::sismember).keys(KEY_LOOK)
        .doc("set", "1.0.0", "O(1)", "Tells whether something is in a set.")
        .syntax("key member"),
    FAMILY.row("smembers", 2, Flags::READONLY, members::smembers).keys(KEY_READ)
        .doc("set", "1.0.0", "O(N), N: members", "Answers all members of a set.")
        .syntax("key")
        .tips(UNORDERED),
    FAMILY.row("smismember", -3, READONLY_FAST, members::smismember).keys(KEY_READ)
        .doc("set", "6.2.0", PER_MEMBER, "Tells of several things whether they are in a set.")
        .syntax("key member [member ...]"),
    FAMILY.row("smove", 4, WRITE_FAST, members::smove).keys(&[KeySpec::at(1, TAKE), KeySpec::at(2, INSERT)])
    .doc("set", "1.0.0", "O(1)", "Moves a member from one set to another.")
    .syntax("source:key destination:key member"),
    FAMILY.row("spop", -2, WRITE_FAST.with(Flags::COUNTED), random::spop).keys(KEY_TAKE)
        .doc(
            "set",
            "1.0.0",
            "O(1) without a count, else O(N), N: the count",
            "Removes random members of a set, and answers them.",
        )
        .syntax("key [count:int @3.2.0]")
        .history(&[("3.2.0", "Takes a count.")])
        .tips(RANDOM),
    FAMILY.row("srandmember", -2, Flags::READONLY, random::srandmember).keys(KEY_READ)
        .doc(
            "set",
            "1.0.0",
            "O(1) without a count, else O(N), N: the count without its sign",
            "Answers random members of a set.",
        )
        .syntax("key [count:int @2.6.0]")
        .history(&[("2.6.0", "Takes a count.")])
        .tips(RANDOM),
    FAMILY.row("srem", -3, WRITE_FAST, members::srem).keys(&[KeySpec::at(1, DELETE)])
        .doc("set", "1.0.0", PER_MEMBER, "Removes members of a set, and the set with its last one.")
        .syntax("key member [member ...]")
        .history(&[("2.4.0", "Takes several members.")]),
    FAMILY.row("sscan", -3, Flags::READONLY, members::sscan).keys(KEY_READ)
        .doc(
            "set",
            "2.8.0",
            "O(1) per call, O(N) for all of them until the cursor is 0 again, N: members of the set",
            "Answers some members of a set, and a cursor to ask for the next with.",
        )
        .syntax("key cursor:int [MATCH pattern] [COUNT count:int]")
        .tips(RANDOM),
    FAMILY.row("sunion", -2, Flags::READONLY, combine::sunion).keys(KEYS_READ)
        .doc("set", "1.0.0", PER_TOTAL, "Answers what is in any of the sets.")
        .syntax("key [key ...]")
        .tips(UNORDERED),
    FAMILY.row("sunionstore", -3, GROW, combine::sunionstore).keys(STORE)
        .doc("set", "1.0.0", PER_TOTAL, "Keeps what is in any of the sets.")
        .syntax("destination:key key [key ...]"),
];
