//! Streams. The handlers are in their own files, and the rows are here.

mod add;
mod claim;
mod consumer;
mod deliver;
mod draft;
mod group;
mod id;
mod info;
mod pending;
mod propagate;
mod range;
mod read;
mod trim;

use bobbin_store::value::StreamLimits;

use crate::engine::command::help::{container, help_row};
use crate::engine::command::{Call, Categories, Command, Family, Flags};
use crate::engine::row::keys::{Begin, Find, KeySpec, KeyUse};

/// The current limits of nodes.
fn limits(call: &Call<'_>) -> StreamLimits {
    let config = &call.server.config;
    StreamLimits {
        node_bytes_max: config.stream_node_max_bytes() as usize,
        node_entries_max: config.stream_node_max_entries() as usize,
    }
}

const READ: KeyUse = KeyUse::READ_ONLY.with(KeyUse::ACCESS);
const UPDATE: KeyUse = KeyUse::READ_WRITE.with(KeyUse::UPDATE);
const INSERT: KeyUse = KeyUse::READ_WRITE.with(KeyUse::INSERT);
const DELETE: KeyUse = KeyUse::READ_WRITE.with(KeyUse::DELETE);

const READONLY_FAST: Flags = Flags::READONLY.with(Flags::FAST);
const WRITE_FAST: Flags = Flags::WRITE.with(Flags::FAST);
const GROW: Flags = Flags::WRITE.with(Flags::DENYOOM);
const GROW_FAST: Flags = GROW.with(Flags::FAST);
const WAITS: Flags = Flags::BLOCKING.with(Flags::MOVABLE_KEYS);

const PER_ENTRY: &str = "O(N), N: entries answered";
const UNSURE: &[&str] = &["nondeterministic_output"];

const EXCLUSIVE_RANGES: (&str, &str) = ("6.2.0", "Ends of ranges may be exclusive.");

/// The keys behind STREAMS: the first half of the words that follow it.
const fn streams(from: i32) -> KeySpec {
    KeySpec {
        begin: Begin::Keyword("STREAMS", from),
        find: Find::Range { last: -1, step: 1, limit: 2 },
        usage: READ,
        notes: "",
    }
}

const FAMILY: Family = Family::new(Categories::STREAM);

pub(super) const COMMANDS: &[Command] = &[
    FAMILY
        .row("xadd", -5, GROW_FAST, add::xadd)
        .keys(&[KeySpec::at(1, UPDATE)
            .notes("UPDATE instead of INSERT because of the optional trimming feature")])
        .doc(
            "stream",
            "5.0.0",
            "O(1) for the new entry, O(N), N: entries that are trimmed",
            "Adds an entry to a stream, which is made if need be.",
        )
        .syntax(
            "key [NOMKSTREAM @6.2.0] [<MAXLEN | MINID @6.2.0> [<= | ~>] threshold [LIMIT count:int \
             @6.2.0]] <* | id> field value [field value ...]",
        )
        .history(&[
            ("6.2.0", "`NOMKSTREAM`, `MINID` and `LIMIT` are new."),
            ("7.0.0", "An ID may be given as `<ms>-*`."),
        ])
        .tips(UNSURE),
    FAMILY
        .row("xlen", 2, READONLY_FAST, range::xlen)
        .keys(&[KeySpec::at(1, KeyUse::READ_ONLY)])
        .doc("stream", "5.0.0", "O(1)", "Answers how many entries a stream has.")
        .syntax("key"),
    FAMILY
        .row("xrange", -4, Flags::READONLY, range::xrange)
        .keys(&[KeySpec::at(1, READ)])
        .doc("stream", "5.0.0", PER_ENTRY, "Answers the entries with IDs in a range.")
        .syntax("key start end [COUNT count:int]")
        .history(&[EXCLUSIVE_RANGES]),
    FAMILY
        .row("xrevrange", -4, Flags::READONLY, range::xrevrange)
        .keys(&[KeySpec::at(1, READ)])
        .doc(
            "stream",
            "5.0.0",
            PER_ENTRY,
            "Answers the entries with IDs in a range, the last one first.",
        )
        .syntax("key end start [COUNT count:int]")
        .history(&[EXCLUSIVE_RANGES]),
    FAMILY
        .row("xdel", -3, WRITE_FAST, trim::xdel)
        .keys(&[KeySpec::at(1, DELETE)])
        .doc(
            "stream",
            "5.0.0",
            "O(log(N)) for each entry, N: entries of the stream",
            "Deletes entries of a stream and answers how many were there.",
        )
        .syntax("key id [id ...]"),
    FAMILY
        .row("xtrim", -4, Flags::WRITE, trim::xtrim)
        .keys(&[KeySpec::at(1, DELETE)])
        .doc(
            "stream",
            "5.0.0",
            "O(N), N: entries that go, whole nodes of them at once",
            "Takes entries from the front of a stream.",
        )
        .syntax("key <<MAXLEN | MINID @6.2.0> [<= | ~>] threshold [LIMIT count:int @6.2.0]>")
        .history(&[("6.2.0", "`MINID` and `LIMIT` are new.")])
        .tips(UNSURE),
    FAMILY
        .row("xsetid", -3, GROW_FAST, add::xsetid)
        .keys(&[KeySpec::at(1, UPDATE)])
        .doc(
            "stream",
            "5.0.0",
            "O(1)",
            "Sets what a stream knows of its past; meant for replication.",
        )
        .syntax(
            "key last-id [ENTRIESADDED entries-added:int @7.0.0] [MAXDELETEDID max-deleted-id \
             @7.0.0]",
        )
        .history(&[("7.0.0", "`ENTRIESADDED` and `MAXDELETEDID` are new.")]),
    FAMILY
        .row("xread", -4, Flags::READONLY.with(WAITS), read::xread)
        .keys(&[streams(1)])
        .keys_by(read::find_keys)
        .doc("stream", "5.0.0", PER_ENTRY, "Answers what is new in streams, or waits for it.")
        .syntax("[COUNT count:int] [BLOCK milliseconds:int] STREAMS <key [key ...] id [id ...]>"),
    FAMILY
        .row("xreadgroup", -7, Flags::WRITE.with(WAITS), read::xreadgroup)
        .keys(&[streams(4)])
        .keys_by(read::find_keys_in_group)
        .doc(
            "stream",
            "5.0.0",
            "O(N) for each stream, N: entries answered",
            "Gives a consumer of a group what is new in streams, or its own past; may wait.",
        )
        .syntax(
            "GROUP <group consumer> [COUNT count:int] [BLOCK milliseconds:int] [NOACK] STREAMS \
             <key [key ...] id [id ...]>",
        ),
    FAMILY
        .row("xack", -4, WRITE_FAST, pending::xack)
        .keys(&[KeySpec::at(1, UPDATE)])
        .doc(
            "stream",
            "5.0.0",
            "O(1) for each ID",
            "Acknowledges entries for a group, and answers how many were pending.",
        )
        .syntax("key group id [id ...]"),
    FAMILY
        .row("xpending", -3, Flags::READONLY, pending::xpending)
        .keys(&[KeySpec::at(1, READ)])
        .doc(
            "stream",
            "5.0.0",
            "O(N), N: entries answered, or looked at with IDLE",
            "Answers what a group has not acknowledged, in short or entry by entry.",
        )
        .syntax("key group [[IDLE min-idle-time:int @6.2.0] start end count:int [consumer]]")
        .history(&[("6.2.0", "`IDLE` and exclusive ranges are new.")])
        .tips(UNSURE),
    FAMILY
        .row("xclaim", -6, WRITE_FAST, claim::xclaim)
        .keys(&[KeySpec::at(1, UPDATE)])
        .doc(
            "stream",
            "5.0.0",
            "O(log(N)) for each ID, N: pending entries",
            "Makes pending entries those of another consumer.",
        )
        .syntax(
            "key group consumer min-idle-time id [id ...] [IDLE ms:int] [TIME \
             unix-time-milliseconds:time] [RETRYCOUNT count:int] [FORCE] [JUSTID] [LASTID lastid]",
        )
        .tips(UNSURE),
    FAMILY
        .row("xautoclaim", -6, WRITE_FAST, claim::xautoclaim)
        .keys(&[KeySpec::at(1, DELETE)])
        .doc(
            "stream",
            "6.2.0",
            "O(1) if COUNT is small",
            "Makes entries that are pending for long those of another consumer.",
        )
        .syntax("key group consumer min-idle-time start [COUNT count:int] [JUSTID]")
        .history(&[(
            "7.0.0",
            "IDs of deleted entries are answered, and these are no longer pending.",
        )])
        .tips(UNSURE),
    Command::new("xgroup", -2, container)
        .doc("stream", "5.0.0", "Depends on subcommand.", "Holds the commands on consumer groups.")
        .subcommands(XGROUP),
    Command::new("xinfo", -2, container)
        .doc(
            "stream",
            "5.0.0",
            "Depends on subcommand.",
            "Holds the commands that describe streams.",
        )
        .subcommands(XINFO),
];

const XGROUP: &[Command] = &[
    FAMILY
        .row("create", -5, GROW, group::create)
        .keys(&[KeySpec::at(2, INSERT)])
        .doc("stream", "5.0.0", "O(1)", "Adds a consumer group to a stream.")
        .syntax("key group <id | $> [MKSTREAM] [ENTRIESREAD entries-read:int :entriesread]")
        .history(&[("7.0.0", "`ENTRIESREAD` is new.")]),
    FAMILY
        .row("createconsumer", 5, GROW, consumer::create)
        .keys(&[KeySpec::at(2, INSERT)])
        .doc("stream", "6.2.0", "O(1)", "Adds a consumer to a group.")
        .syntax("key group consumer"),
    FAMILY
        .row("delconsumer", 5, Flags::WRITE, consumer::delete)
        .keys(&[KeySpec::at(2, DELETE)])
        .doc("stream", "5.0.0", "O(1)", "Deletes a consumer and what it has not acknowledged.")
        .syntax("key group consumer"),
    FAMILY
        .row("destroy", 4, Flags::WRITE, group::destroy)
        .keys(&[KeySpec::at(2, DELETE)])
        .doc("stream", "5.0.0", "O(N), N: pending entries", "Deletes a group.")
        .syntax("key group"),
    help_row("stream", "5.0.0").categories(Categories::STREAM),
    FAMILY
        .row("setid", -5, Flags::WRITE, group::setid)
        .keys(&[KeySpec::at(2, UPDATE)])
        .doc("stream", "5.0.0", "O(1)", "Sets up to where a group has read.")
        .syntax("key group <id | $> [ENTRIESREAD entries-read:int :entriesread]")
        .history(&[("7.0.0", "`ENTRIESREAD` is new.")]),
];

const XINFO: &[Command] = &[
    FAMILY
        .row("consumers", 4, Flags::READONLY, info::consumers)
        .keys(&[KeySpec::at(2, READ)])
        .doc("stream", "5.0.0", "O(1)", "Describes the consumers of a group.")
        .syntax("key group")
        .history(&[("7.2.0", "Answers `inactive`.")])
        .tips(UNSURE),
    FAMILY
        .row("groups", 3, Flags::READONLY, info::groups)
        .keys(&[KeySpec::at(2, READ)])
        .doc("stream", "5.0.0", "O(1)", "Describes the groups of a stream.")
        .syntax("key")
        .history(&[("7.0.0", "Answers `entries-read` and `lag`.")]),
    help_row("stream", "5.0.0").categories(Categories::STREAM),
    FAMILY
        .row("stream", -3, Flags::READONLY, info::stream)
        .keys(&[KeySpec::at(2, READ)])
        .doc("stream", "5.0.0", "O(1)", "Describes a stream.")
        .syntax("key [FULL [COUNT count:int]]")
        .history(&[
            ("6.0.0", "`FULL` is new."),
            ("7.0.0", "Answers `max-deleted-entry-id`, `entries-added` and more."),
            ("7.2.0", "Answers `active-time`; `seen-time` counts attempts."),
        ]),
];
