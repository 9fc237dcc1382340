//! Lists. The handlers are in their own files, and the rows are here.

mod blocking;
mod change;
mod ends;
mod position;
mod read;
mod transfer;

use bobbin_store::value::{End, Item, ListLimits};

use crate::engine::command::{Categories, Classes, Command, Data, Failure, Family, Flags, Key};
use crate::engine::row::keys::{KeySpec, KeyUse};
use crate::engine::server::Server;

/// The current value of `list-max-listpack-size`.
pub(super) fn limits(server: &Server) -> ListLimits {
    ListLimits::new(server.config.list_max_listpack_size())
}

/// Parses LEFT or RIGHT.
fn end(word: &[u8]) -> Result<End, Failure> {
    if word.eq_ignore_ascii_case(b"left") {
        Ok(End::Front)
    } else if word.eq_ignore_ascii_case(b"right") {
        Ok(End::Back)
    } else {
        Err(Failure::SYNTAX)
    }
}

/// An element to be stored. Redis's packed form has no room for longer elements either.
fn element(bytes: &[u8]) -> Result<Item<'_>, Failure> {
    if bytes.len() > ELEMENT_LEN_MAX {
        return Err(Failure::STRING_TOO_LONG);
    }
    Ok(Item::Bytes(bytes))
}

const fn push_event(end: End) -> &'static str {
    match end {
        End::Front => "lpush",
        End::Back => "rpush",
    }
}

const fn pop_event(end: End) -> &'static str {
    match end {
        End::Front => "lpop",
        End::Back => "rpop",
    }
}

/// Must be called after elements were removed, or none. Notes the change, and deletes an empty
/// list.
fn shrunk(data: &mut Data, key: Key<'_>, elements: usize, event: &'static str) {
    if elements > 0 {
        data.changed_by(key, elements);
    }
    data.event(Classes::LIST, event, key);
    if data.remove_if_empty(key) {
        data.event(Classes::GENERIC, "del", key);
    }
}

/// The longest element in bytes.
const ELEMENT_LEN_MAX: usize = 1 << 30;

const LOOK: KeyUse = KeyUse::READ_ONLY;
const READ: KeyUse = KeyUse::READ_ONLY.with(KeyUse::ACCESS);
const INSERT: KeyUse = KeyUse::READ_WRITE.with(KeyUse::INSERT);
const UPDATE: KeyUse = KeyUse::READ_WRITE.with(KeyUse::UPDATE);
const DELETE: KeyUse = KeyUse::READ_WRITE.with(KeyUse::DELETE);
const POP: KeyUse = KeyUse::READ_WRITE.with(KeyUse::ACCESS).with(KeyUse::DELETE);

const GROW: Flags = Flags::WRITE.with(Flags::DENYOOM);
const GROW_FAST: Flags = GROW.with(Flags::FAST);
const WRITE_FAST: Flags = Flags::WRITE.with(Flags::FAST);
const READONLY_FAST: Flags = Flags::READONLY.with(Flags::FAST);

const PER_ELEMENT: &str = "O(1) for each element";
const PER_RETURNED: &str = "O(N), N: elements answered";
const PER_LENGTH: &str = "O(N), N: length of the list";
const TIMEOUTS: &[(&str, &str)] = &[("6.0.0", "The timeout may have a fraction.")];

const FAMILY: Family = Family::new(Categories::LIST);

pub(super) const COMMANDS: &[Command] = &[
    FAMILY
        .row("lpush", -3, GROW_FAST, ends::lpush)
        .keys(&[KeySpec::at(1, INSERT)])
        .doc(
            "list",
            "1.0.0",
            PER_ELEMENT,
            "Puts elements in front of a list, which is made if need be.",
        )
        .syntax("key element [element ...]")
        .history(&[("2.4.0", "Takes several elements.")]),
    FAMILY
        .row("rpush", -3, GROW_FAST, ends::rpush)
        .keys(&[KeySpec::at(1, INSERT)])
        .doc("list", "1.0.0", PER_ELEMENT, "Puts elements behind a list, which is made if need be.")
        .syntax("key element [element ...]")
        .history(&[("2.4.0", "Takes several elements.")]),
    FAMILY
        .row("lpushx", -3, GROW_FAST, ends::lpushx)
        .keys(&[KeySpec::at(1, INSERT)])
        .doc("list", "2.2.0", PER_ELEMENT, "Puts elements in front of a list that is there.")
        .syntax("key element [element ...]")
        .history(&[("4.0.0", "Takes several elements.")]),
    FAMILY
        .row("rpushx", -3, GROW_FAST, ends::rpushx)
        .keys(&[KeySpec::at(1, INSERT)])
        .doc("list", "2.2.0", PER_ELEMENT, "Puts elements behind a list that is there.")
        .syntax("key element [element ...]")
        .history(&[("4.0.0", "Takes several elements.")]),
    FAMILY
        .row("lpop", -2, WRITE_FAST.with(Flags::COUNTED), ends::lpop)
        .keys(&[KeySpec::at(1, POP)])
        .doc(
            "list",
            "1.0.0",
            PER_RETURNED,
            "Takes the first elements of a list away and answers them.",
        )
        .syntax("key [count:int @6.2.0]")
        .history(&[("6.2.0", "Takes a count.")]),
    FAMILY
        .row("rpop", -2, WRITE_FAST.with(Flags::COUNTED), ends::rpop)
        .keys(&[KeySpec::at(1, POP)])
        .doc(
            "list",
            "1.0.0",
            PER_RETURNED,
            "Takes the last elements of a list away and answers them.",
        )
        .syntax("key [count:int @6.2.0]")
        .history(&[("6.2.0", "Takes a count.")]),
    FAMILY
        .row("lmpop", -4, Flags::WRITE.with(Flags::MOVABLE_KEYS), ends::lmpop)
        .keys(&[KeySpec::counted(1, POP)])
        .doc(
            "list",
            "7.0.0",
            "O(N+M), N: keys, M: elements answered",
            "Takes elements of the first list that has any away and answers them.",
        )
        .syntax("numkeys:int key [key ...] <LEFT | RIGHT> [COUNT count:int]"),
    FAMILY
        .row("llen", 2, READONLY_FAST, read::llen)
        .keys(&[KeySpec::at(1, LOOK)])
        .doc("list", "1.0.0", "O(1)", "Answers how many elements a list has.")
        .syntax("key"),
    FAMILY
        .row("lindex", 3, Flags::READONLY, read::lindex)
        .keys(&[KeySpec::at(1, READ)])
        .doc(
            "list",
            "1.0.0",
            "O(log(N)), N: length of the list",
            "Answers the element with an index.",
        )
        .syntax("key index:int"),
    FAMILY
        .row("lrange", 4, Flags::READONLY, read::lrange)
        .keys(&[KeySpec::at(1, READ)])
        .doc(
            "list",
            "1.0.0",
            "O(log(N)+M), N: length of the list, M: elements answered",
            "Answers the elements from one index to another.",
        )
        .syntax("key start:int stop:int"),
    FAMILY
        .row("lpos", -3, Flags::READONLY, position::lpos)
        .keys(&[KeySpec::at(1, READ)])
        .doc("list", "6.0.6", PER_LENGTH, "Answers the indices of elements that equal a value.")
        .syntax("key element [RANK rank:int] [COUNT num-matches:int] [MAXLEN len:int]"),
    FAMILY
        .row("linsert", 5, GROW, change::linsert)
        .keys(&[KeySpec::at(1, INSERT)])
        .doc(
            "list",
            "2.2.0",
            "O(N), N: elements before the pivot",
            "Puts an element beside the first one that equals a value.",
        )
        .syntax("key <BEFORE | AFTER> pivot element"),
    FAMILY
        .row("lset", 4, GROW, change::lset)
        .keys(&[KeySpec::at(1, UPDATE)])
        .doc(
            "list",
            "1.0.0",
            "O(log(N)), N: length of the list",
            "Puts another element at an index.",
        )
        .syntax("key index:int element"),
    FAMILY
        .row("lrem", 4, Flags::WRITE, change::lrem)
        .keys(&[KeySpec::at(1, DELETE)])
        .doc("list", "1.0.0", PER_LENGTH, "Takes elements that equal a value out of a list.")
        .syntax("key count:int element"),
    FAMILY
        .row("ltrim", 4, Flags::WRITE, change::ltrim)
        .keys(&[KeySpec::at(1, DELETE)])
        .doc(
            "list",
            "1.0.0",
            "O(N), N: elements that go",
            "Keeps the elements from one index to another, and no others.",
        )
        .syntax("key start:int stop:int"),
    FAMILY
        .row("lmove", 5, GROW, transfer::lmove)
        .keys(&[KeySpec::at(1, POP), KeySpec::at(2, INSERT)])
        .doc(
            "list",
            "6.2.0",
            "O(1)",
            "Moves an element from an end of one list to an end of another.",
        )
        .syntax("source:key destination:key <LEFT | RIGHT> :wherefrom <LEFT | RIGHT> :whereto"),
    FAMILY
        .row("rpoplpush", 3, GROW, transfer::rpoplpush)
        .keys(&[KeySpec::at(1, POP), KeySpec::at(2, INSERT)])
        .doc("list", "1.2.0", "O(1)", "Moves the last element of one list to the front of another.")
        .syntax("source:key destination:key"),
    FAMILY
        .row("blpop", -3, BLOCKING, blocking::blpop)
        .keys(&[KeySpec::range(1, -2, 1, POP)])
        .doc(
            "list",
            "2.0.0",
            "O(N), N: keys",
            "Takes the first element of the first list that has any, or waits for one.",
        )
        .syntax("key [key ...] timeout:double")
        .history(TIMEOUTS),
    FAMILY
        .row("brpop", -3, BLOCKING, blocking::brpop)
        .keys(&[KeySpec::range(1, -2, 1, POP)])
        .doc(
            "list",
            "2.0.0",
            "O(N), N: keys",
            "Takes the last element of the first list that has any, or waits for one.",
        )
        .syntax("key [key ...] timeout:double")
        .history(TIMEOUTS),
    FAMILY
        .row("blmove", 6, GROW.with(Flags::BLOCKING), blocking::blmove)
        .keys(&[KeySpec::at(1, POP), KeySpec::at(2, INSERT)])
        .doc(
            "list",
            "6.2.0",
            "O(1)",
            "Moves an element from one list to another, or waits for one.",
        )
        .syntax(
            "source:key destination:key <LEFT | RIGHT> :wherefrom <LEFT | RIGHT> :whereto \
             timeout:double",
        ),
    FAMILY
        .row("brpoplpush", 4, GROW.with(Flags::BLOCKING), blocking::brpoplpush)
        .keys(&[KeySpec::at(1, POP), KeySpec::at(2, INSERT)])
        .doc(
            "list",
            "2.2.0",
            "O(1)",
            "Does as RPOPLPUSH, or waits until there is an element to move.",
        )
        .syntax("source:key destination:key timeout:double")
        .history(TIMEOUTS),
    FAMILY
        .row("blmpop", -5, BLOCKING.with(Flags::MOVABLE_KEYS), blocking::blmpop)
        .keys(&[KeySpec::counted(2, POP)])
        .doc(
            "list",
            "7.0.0",
            "O(N+M), N: keys, M: elements answered",
            "Does as LMPOP, or waits until one of the lists has elements.",
        )
        .syntax("timeout:double numkeys:int key [key ...] <LEFT | RIGHT> [COUNT count:int]"),
];

const BLOCKING: Flags = Flags::WRITE.with(Flags::BLOCKING);
