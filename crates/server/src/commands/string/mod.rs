//! Strings. The handlers are in their own files, and the rows are here.

mod counter;
mod decimal;
mod edit;
mod extended;
mod lcs;
mod long_edit;
mod many;
mod options;
mod pinned;
mod read;
mod set;
mod slice;

pub(super) use self::edit::{BytesMut, StringBytes, StringChange, edit_or_make, len_max};
pub(super) use self::extended::Extended;
pub(crate) use self::pinned::PinnedString;
pub(super) use self::pinned::PinnedStrings;
pub(super) use self::slice::{clamp, slice};
use crate::engine::command::{Categories, Command, Family, Flags};
use crate::engine::row::keys::{Begin, Find, KeySpec, KeyUse};

const READ: KeyUse = KeyUse::READ_ONLY.with(KeyUse::ACCESS);
const CHANGE: KeyUse = KeyUse::READ_WRITE.with(KeyUse::ACCESS).with(KeyUse::UPDATE);
const OVERWRITE: KeyUse = KeyUse::OVERWRITE.with(KeyUse::UPDATE);
const CREATE: KeyUse = KeyUse::OVERWRITE.with(KeyUse::INSERT);

const READONLY_FAST: Flags = Flags::READONLY.with(Flags::FAST);
const WRITE_FAST: Flags = Flags::WRITE.with(Flags::FAST);
const GROW: Flags = Flags::WRITE.with(Flags::DENYOOM);
const GROW_FAST: Flags = GROW.with(Flags::FAST);

const PER_KEY: &str = "O(N), N: keys";
const PER_BYTE: &str = "O(N), N: bytes answered";

const SHARDED: &[&str] = &["request_policy:multi_shard"];
const SHARDED_WRITE: &[&str] = &["request_policy:multi_shard", "response_policy:all_succeeded"];

const FAMILY: Family = Family::new(Categories::STRING);

pub(super) const COMMANDS: &[Command] = &[
    FAMILY
        .row("get", 2, READONLY_FAST, read::get)
        .keys(&[KeySpec::at(1, READ)])
        .doc("string", "1.0.0", "O(1)", "Answers the string at a key.")
        .syntax("key"),
    FAMILY
        .row("set", -3, GROW.with(Flags::BRIEF), set::set)
        .keys(&[KeySpec::at(
            1,
            KeyUse::READ_WRITE.with(KeyUse::ACCESS).with(KeyUse::UPDATE).with(KeyUse::VARIABLE),
        )
        .notes("Reads the key only when GET or IFEQ is given.")])
        .keys_by(set::find_key)
        .values(2, 0)
        .doc("string", "1.0.0", "O(1)", "Makes a key hold a string, whatever it held.")
        .syntax(
            "key value [<NX @2.6.12 | XX @2.6.12 | IFEQ comparison-value @8.1.0>] [GET @6.2.0] \
             [<EX seconds:int @2.6.12 | PX milliseconds:int @2.6.12 | EXAT unix-time-seconds:time \
             @6.2.0 | PXAT unix-time-milliseconds:time @6.2.0 | KEEPTTL @6.0.0>]",
        )
        .history(&[
            ("2.6.12", "`EX`, `PX`, `NX` and `XX` are new."),
            ("6.0.0", "`KEEPTTL` is new."),
            ("6.2.0", "`GET`, `EXAT` and `PXAT` are new."),
            ("7.0.0", "`NX` and `GET` may be combined."),
            ("8.1.0", "`IFEQ` is new."),
        ]),
    FAMILY
        .row("setnx", 3, GROW_FAST, set::setnx)
        .keys(&[KeySpec::at(1, CREATE)])
        .values(2, 0)
        .doc("string", "1.0.0", "O(1)", "Makes a key hold a string unless it is there already.")
        .syntax("key value"),
    FAMILY
        .row("setex", 4, GROW.with(Flags::BRIEF), set::setex)
        .keys(&[KeySpec::at(1, OVERWRITE)])
        .values(3, 0)
        .doc("string", "2.0.0", "O(1)", "Makes a key hold a string for some seconds.")
        .syntax("key seconds:int value"),
    FAMILY
        .row("psetex", 4, GROW.with(Flags::BRIEF), set::psetex)
        .keys(&[KeySpec::at(1, OVERWRITE)])
        .values(3, 0)
        .doc("string", "2.6.0", "O(1)", "Makes a key hold a string for some milliseconds.")
        .syntax("key milliseconds:int value"),
    FAMILY
        .row("getex", -2, WRITE_FAST, set::getex)
        .keys(&[KeySpec::at(1, CHANGE).notes("Changes nothing but the key's expiry.")])
        .doc("string", "6.2.0", "O(1)", "Answers the string at a key and changes its expiry.")
        .syntax(
            "key [<EX seconds:int | PX milliseconds:int | EXAT unix-time-seconds:time | PXAT \
             unix-time-milliseconds:time | PERSIST>]",
        ),
    FAMILY
        .row("getdel", 2, WRITE_FAST, set::getdel)
        .keys(&[KeySpec::at(1, KeyUse::READ_WRITE.with(KeyUse::ACCESS).with(KeyUse::DELETE))])
        .doc("string", "6.2.0", "O(1)", "Answers the string at a key and deletes the key.")
        .syntax("key"),
    FAMILY
        .row("getset", 3, GROW_FAST, set::getset)
        .keys(&[KeySpec::at(1, CHANGE)])
        .values(2, 0)
        .doc("string", "1.0.0", "O(1)", "Makes a key hold a string and answers the one before.")
        .syntax("key value"),
    FAMILY
        .row("delifeq", 3, WRITE_FAST, set::delifeq)
        .keys(&[KeySpec::at(1, KeyUse::REMOVE.with(KeyUse::DELETE))])
        .keys_by(set::find_compared)
        .doc("string", "9.0.0", "O(1)", "Deletes a key if it holds this very string.")
        .syntax("key value"),
    FAMILY
        .row("mget", -2, READONLY_FAST, read::mget)
        .keys(&[KeySpec::range(1, -1, 1, READ)])
        .doc("string", "1.0.0", PER_KEY, "Answers the strings at several keys, all of one moment.")
        .syntax("key [key ...]")
        .tips(SHARDED),
    FAMILY
        .row("mset", -3, GROW, many::mset)
        .keys(&[KeySpec::range(1, -1, 2, OVERWRITE)])
        .values(2, 2)
        .doc("string", "1.0.1", PER_KEY, "Makes several keys hold strings, all at once.")
        .syntax("key value [key value ...]")
        .tips(SHARDED_WRITE),
    FAMILY
        .row("msetnx", -3, GROW, many::msetnx)
        .keys(&[KeySpec::range(1, -1, 2, CREATE)])
        .values(2, 2)
        .doc("string", "1.0.1", PER_KEY, "Does as MSET if none of the keys is there.")
        .syntax("key value [key value ...]"),
    FAMILY
        .row("msetex", -4, GROW.with(Flags::MOVABLE_KEYS), many::msetex)
        .keys(&[KeySpec {
            begin: Begin::Index(1),
            find: Find::Count { count_at: 0, first: 1, step: 2 },
            usage: OVERWRITE,
            notes: "",
        }])
        .values(3, 2)
        .doc("string", "9.1.0", PER_KEY, "Does as MSET, on a condition and with an expiry.")
        .syntax(
            "numkeys:int key value [key value ...] [<NX | XX>] [<EX seconds:int | PX \
             milliseconds:int | EXAT unix-time-seconds:time | PXAT unix-time-milliseconds:time | \
             KEEPTTL>]",
        )
        .tips(SHARDED_WRITE),
    FAMILY
        .row("append", 3, GROW_FAST, edit::append)
        .keys(&[KeySpec::at(1, KeyUse::READ_WRITE.with(KeyUse::INSERT))])
        .doc(
            "string",
            "2.0.0",
            "O(1), but for the copy of what is appended; a string that grows is seldom moved",
            "Appends to the string at a key, or makes it.",
        )
        .syntax("key value"),
    FAMILY
        .row("strlen", 2, READONLY_FAST, read::strlen)
        .keys(&[KeySpec::at(1, KeyUse::READ_ONLY)])
        .doc("string", "2.2.0", "O(1)", "Answers the length of the string at a key.")
        .syntax("key"),
    FAMILY
        .row("getrange", 4, Flags::READONLY, read::getrange)
        .keys(&[KeySpec::at(1, READ)])
        .doc("string", "2.4.0", PER_BYTE, "Answers a part of the string at a key.")
        .syntax("key start:int end:int"),
    FAMILY
        .row("substr", 4, Flags::READONLY, read::getrange)
        .keys(&[KeySpec::at(1, READ)])
        .doc("string", "1.0.0", PER_BYTE, "Answers a part of the string at a key.")
        .syntax("key start:int end:int"),
    FAMILY
        .row("setrange", 4, GROW, edit::setrange)
        .keys(&[KeySpec::at(1, KeyUse::READ_WRITE.with(KeyUse::UPDATE))])
        .doc(
            "string",
            "2.2.0",
            "O(N), N: bytes of the value; more when the string has to be moved",
            "Writes over a part of the string at a key, which grows as needed.",
        )
        .syntax("key offset:int value"),
    FAMILY
        .row("incr", 2, GROW_FAST, counter::incr)
        .keys(&[KeySpec::at(1, CHANGE)])
        .doc("string", "1.0.0", "O(1)", "Adds one to the integer at a key.")
        .syntax("key"),
    FAMILY
        .row("decr", 2, GROW_FAST, counter::decr)
        .keys(&[KeySpec::at(1, CHANGE)])
        .doc("string", "1.0.0", "O(1)", "Takes one from the integer at a key.")
        .syntax("key"),
    FAMILY
        .row("incrby", 3, GROW_FAST, counter::incrby)
        .keys(&[KeySpec::at(1, CHANGE)])
        .doc("string", "1.0.0", "O(1)", "Adds to the integer at a key.")
        .syntax("key increment:int"),
    FAMILY
        .row("decrby", 3, GROW_FAST, counter::decrby)
        .keys(&[KeySpec::at(1, CHANGE)])
        .doc("string", "1.0.0", "O(1)", "Takes from the integer at a key.")
        .syntax("key decrement:int"),
    FAMILY
        .row("incrbyfloat", 3, GROW_FAST, counter::incrbyfloat)
        .keys(&[KeySpec::at(1, CHANGE)])
        .doc("string", "2.6.0", "O(1)", "Adds to the floating point number at a key.")
        .syntax("key increment:double"),
    FAMILY
        .row("lcs", -3, Flags::READONLY, lcs::lcs)
        .keys(&[KeySpec::range(1, 1, 1, READ)])
        .doc(
            "string",
            "7.0.0",
            "O(N*M), N, M: lengths of the strings",
            "Finds the longest common subsequence of two strings.",
        )
        .syntax("key1:key key2:key [LEN] [IDX] [MINMATCHLEN min-match-len:int] [WITHMATCHLEN]"),
];
