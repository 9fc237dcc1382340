//! Sorted sets. The handlers are in their own files, and the rows are here.

mod add;
mod blocking;
mod bounds;
mod combine;
mod gathered;
mod input;
mod pop;
mod random;
mod range;
mod read;
mod remove;
mod scan;

pub(super) use self::read::each_score;
use bobbin_store::value::SortedSetLimits;

use crate::engine::command::{Categories, Classes, Command, Data, Failure, Family, Flags, Key};
use crate::engine::row::keys::{KeySpec, KeyUse};
use crate::engine::server::Server;

/// The current limits of the packed form.
pub(super) fn limits(server: &Server) -> SortedSetLimits {
    SortedSetLimits {
        packed_entries: server.config.zset_max_listpack_entries() as usize,
        packed_value_len: server.config.zset_max_listpack_value() as usize,
    }
}

/// Refuses a member that is too long.
fn check_member(member: &[u8]) -> Result<(), Failure> {
    if member.len() > MEMBER_LEN_MAX {
        return Err(Failure::STRING_TOO_LONG);
    }
    Ok(())
}

/// Must be called after elements were removed: notes the change, and deletes an empty set.
fn shrunk(data: &mut Data, key: Key<'_>, members: usize, event: &'static str) {
    data.changed_by(key, members);
    data.event(Classes::SORTED_SET, event, key);
    if data.remove_if_empty(key) {
        data.event(Classes::GENERIC, "del", key);
    }
}

/// The longest member in bytes.
const MEMBER_LEN_MAX: usize = 1 << 30;

const LOOK: KeyUse = KeyUse::READ_ONLY;
const READ: KeyUse = KeyUse::READ_ONLY.with(KeyUse::ACCESS);
const UPDATE: KeyUse = KeyUse::READ_WRITE.with(KeyUse::UPDATE);
const CHANGE: KeyUse = KeyUse::READ_WRITE.with(KeyUse::ACCESS).with(KeyUse::UPDATE);
const DELETE: KeyUse = KeyUse::READ_WRITE.with(KeyUse::DELETE);
const POP: KeyUse = KeyUse::READ_WRITE.with(KeyUse::ACCESS).with(KeyUse::DELETE);
const STORE: KeyUse = KeyUse::OVERWRITE.with(KeyUse::UPDATE);

const READONLY_FAST: Flags = Flags::READONLY.with(Flags::FAST);
const WRITE_FAST: Flags = Flags::WRITE.with(Flags::FAST);
const GROW: Flags = Flags::WRITE.with(Flags::DENYOOM);
const GROW_FAST: Flags = GROW.with(Flags::FAST);
const READ_MANY: Flags = Flags::READONLY.with(Flags::MOVABLE_KEYS);
const STORE_MANY: Flags = GROW.with(Flags::MOVABLE_KEYS);

const LOGARITHMIC: &str = "O(log(N)), N: members of the set";
const PER_RETURNED: &str = "O(log(N)+M), N: members of the set, M: members answered";
const PER_REMOVED: &str = "O(log(N)+M), N: members of the set, M: members that go";
const PER_STORED: &str = "O(log(N)+M), N: members of the source, M: members stored";
const PER_POPPED: &str = "O(log(N)*M), N: members of the set, M: members answered";
const UNION: &str = "O(N+M*log(M)), N: members of all sets, M: members of the result";
const INTERSECTION: &str =
    "O(N*K+M*log(M)), N: members of the smallest set, K: sets, M: members of the result";
const DIFFERENCE: &str =
    "O(L+(N-K)*log(N)), L: members of all sets, N: of the first, K: of the result";
const TIMEOUTS: &[(&str, &str)] = &[("6.0.0", "The timeout may have a fraction.")];
const WITH_SCORE: &[(&str, &str)] = &[("7.2.0", "Takes `WITHSCORE`.")];

const FAMILY: Family = Family::new(Categories::SORTEDSET);

pub(super) const COMMANDS: &[Command] = &[
    FAMILY.row("zadd", -4, GROW_FAST, add::zadd).keys(&[KeySpec::at(1, UPDATE)])
        .keys_by(add::find_key)
        .doc(
            "sorted-set",
            "1.2.0",
            "O(log(N)) for each member, N: members of the set",
            "Adds members to a sorted set, or changes their scores.",
        )
        .syntax(
            "key [<NX | XX>] @3.0.2 [<GT | LT>] @6.2.0 [CH :change @3.0.2] [INCR :increment \
             @3.0.2] score:double member [score member ...]",
        )
        .history(&[
            ("2.4.0", "Takes several members."),
            ("3.0.2", "`XX`, `NX`, `CH` and `INCR` are new."),
            ("6.2.0", "`GT` and `LT` are new."),
        ]),
    FAMILY.row("zincrby", 4, GROW_FAST, add::zincrby).keys(&[KeySpec::at(1, CHANGE)])
        .doc("sorted-set", "1.2.0", LOGARITHMIC, "Adds to the score of a member.")
        .syntax("key increment:int member"),
    FAMILY.row("zrem", -3, WRITE_FAST, remove::zrem).keys(&[KeySpec::at(1, DELETE)])
        .doc(
            "sorted-set",
            "1.2.0",
            "O(M*log(N)), N: members of the set, M: members that go",
            "Takes members out of a sorted set.",
        )
        .syntax("key member [member ...]")
        .history(&[("2.4.0", "Takes several members.")]),
    FAMILY.row("zremrangebyrank", 4, Flags::WRITE, remove::zremrangebyrank).keys(&[KeySpec::at(1, DELETE)])
        .doc("sorted-set", "2.0.0", PER_REMOVED, "Takes the members of some ranks out of a sorted set.")
        .syntax("key start:int stop:int"),
    FAMILY.row("zremrangebyscore", 4, Flags::WRITE, remove::zremrangebyscore).keys(&[KeySpec::at(1, DELETE)])
        .doc("sorted-set", "1.2.0", PER_REMOVED, "Takes the members of some scores out of a sorted set.")
        .syntax("key min:double max:double"),
    FAMILY.row("zremrangebylex", 4, Flags::WRITE, remove::zremrangebylex).keys(&[KeySpec::at(1, DELETE)])
        .doc(
            "sorted-set",
            "2.8.9",
            PER_REMOVED,
            "Takes the members between two strings out of a sorted set of equal scores.",
        )
        .syntax("key min max"),
    FAMILY.row("zcard", 2, READONLY_FAST, read::zcard).keys(&[KeySpec::at(1, LOOK)])
        .doc("sorted-set", "1.2.0", "O(1)", "Answers how many members a sorted set has.")
        .syntax("key"),
    FAMILY.row("zcount", 4, READONLY_FAST, read::zcount).keys(&[KeySpec::at(1, READ)])
        .doc("sorted-set", "2.0.0", LOGARITHMIC, "Answers how many members have scores in a range.")
        .syntax("key min:double max:double"),
    FAMILY.row("zlexcount", 4, READONLY_FAST, read::zlexcount).keys(&[KeySpec::at(1, READ)])
        .doc(
            "sorted-set",
            "2.8.9",
            LOGARITHMIC,
            "Answers how many members of a sorted set of equal scores are between two strings.",
        )
        .syntax("key min max"),
    FAMILY.row("zscore", 3, READONLY_FAST, read::zscore).keys(&[KeySpec::at(1, READ)])
        .doc("sorted-set", "1.2.0", "O(1)", "Answers the score of a member.")
        .syntax("key member"),
    FAMILY.row("zmscore", -3, READONLY_FAST, read::zmscore).keys(&[KeySpec::at(1, READ)])
        .doc("sorted-set", "6.2.0", "O(N), N: members asked for", "Answers the scores of members.")
        .syntax("key member [member ...]"),
    FAMILY.row("zrank", -3, READONLY_FAST, read::zrank).keys(&[KeySpec::at(1, READ)])
        .doc("sorted-set", "2.0.0", "O(log(N))", "Answers how many members come before one.")
        .syntax("key member [WITHSCORE]")
        .history(WITH_SCORE),
    FAMILY.row("zrevrank", -3, READONLY_FAST, read::zrevrank).keys(&[KeySpec::at(1, READ)])
        .doc("sorted-set", "2.0.0", "O(log(N))", "Answers how many members come after one.")
        .syntax("key member [WITHSCORE]")
        .history(WITH_SCORE),
    FAMILY.row("zrange", -4, Flags::READONLY, range::zrange).keys(&[KeySpec::at(1, READ)])
        .doc(
            "sorted-set",
            "1.2.0",
            PER_RETURNED,
            "Answers the members in a range of ranks, scores or strings.",
        )
        .syntax(
            "key start stop [<BYSCORE | BYLEX>] @6.2.0 [REV @6.2.0] [LIMIT offset:int count:int] \
             @6.2.0 [WITHSCORES]",
        )
        .history(&[("6.2.0", "`REV`, `BYSCORE`, `BYLEX` and `LIMIT` are new.")]),
    FAMILY.row("zrangestore", -5, GROW, range::zrangestore).keys(&[KeySpec::at(1, STORE), KeySpec::at(2, READ)])
    .doc("sorted-set", "6.2.0", PER_STORED, "Makes a sorted set of what ZRANGE would answer.")
    .syntax("dst:key src:key min max [<BYSCORE | BYLEX>] [REV] [LIMIT offset:int count:int]"),
    FAMILY.row("zrangebyscore", -4, Flags::READONLY, range::zrangebyscore).keys(&[KeySpec::at(1, READ)])
        .doc("sorted-set", "1.0.5", PER_RETURNED, "Answers the members with scores in a range.")
        .syntax("key min:double max:double [WITHSCORES @2.0.0] [LIMIT offset:int count:int]")
        .history(&[("2.0.0", "`WITHSCORES` is new.")]),
    FAMILY.row("zrangebylex", -4, Flags::READONLY, range::zrangebylex).keys(&[KeySpec::at(1, READ)])
        .doc(
            "sorted-set",
            "2.8.9",
            PER_RETURNED,
            "Answers the members of a sorted set of equal scores between two strings.",
        )
        .syntax("key min max [LIMIT offset:int count:int]"),
    FAMILY.row("zrevrange", -4, Flags::READONLY, range::zrevrange).keys(&[KeySpec::at(1, READ)])
        .doc("sorted-set", "1.2.0", PER_RETURNED, "Answers members by their ranks from the end.")
        .syntax("key start:int stop:int [WITHSCORES]"),
    FAMILY.row("zrevrangebyscore", -4, Flags::READONLY, range::zrevrangebyscore).keys(&[KeySpec::at(1, READ)])
        .doc("sorted-set", "2.2.0", PER_RETURNED, "Does as ZRANGEBYSCORE, backwards.")
        .syntax("key max:double min:double [WITHSCORES] [LIMIT offset:int count:int]")
        .history(&[("2.1.6", "Bounds may be excluded.")]),
    FAMILY.row("zrevrangebylex", -4, Flags::READONLY, range::zrevrangebylex).keys(&[KeySpec::at(1, READ)])
        .doc("sorted-set", "2.8.9", PER_RETURNED, "Does as ZRANGEBYLEX, backwards.")
        .syntax("key max min [LIMIT offset:int count:int]"),
    FAMILY.row("zpopmin", -2, WRITE_FAST.with(Flags::COUNTED), pop::zpopmin).keys(&[KeySpec::at(1, POP)])
        .doc("sorted-set", "5.0.0", PER_POPPED, "Takes the members with the lowest scores away.")
        .syntax("key [count:int]"),
    FAMILY.row("zpopmax", -2, WRITE_FAST.with(Flags::COUNTED), pop::zpopmax).keys(&[KeySpec::at(1, POP)])
        .doc("sorted-set", "5.0.0", PER_POPPED, "Takes the members with the highest scores away.")
        .syntax("key [count:int]"),
    FAMILY.row("zmpop", -4, Flags::WRITE.with(Flags::MOVABLE_KEYS), pop::zmpop).keys(&[KeySpec::counted(1, POP)])
        .doc(
            "sorted-set",
            "7.0.0",
            "O(K+M*log(N)), K: keys, N: members of the set, M: members answered",
            "Takes members of the first sorted set that has any away.",
        )
        .syntax("numkeys:int key [key ...] <MIN | MAX> [COUNT count:int]"),
    FAMILY.row("bzpopmin", -3, BLOCKING.with(Flags::FAST), blocking::bzpopmin).keys(&[KeySpec::range(1, -2, 1, POP)])
        .doc("sorted-set", "5.0.0", LOGARITHMIC, "Does as ZPOPMIN, or waits for a member.")
        .syntax("key [key ...] timeout:double")
        .history(TIMEOUTS),
    FAMILY.row("bzpopmax", -3, BLOCKING.with(Flags::FAST), blocking::bzpopmax).keys(&[KeySpec::range(1, -2, 1, POP)])
        .doc("sorted-set", "5.0.0", LOGARITHMIC, "Does as ZPOPMAX, or waits for a member.")
        .syntax("key [key ...] timeout:double")
        .history(TIMEOUTS),
    FAMILY.row("bzmpop", -5, BLOCKING.with(Flags::MOVABLE_KEYS), blocking::bzmpop).keys(&[KeySpec::counted(2, POP)])
        .doc(
            "sorted-set",
            "7.0.0",
            "O(K+M*log(N)), K: keys, N: members of the set, M: members answered",
            "Does as ZMPOP, or waits until one of the sorted sets has members.",
        )
        .syntax("timeout:double numkeys:int key [key ...] <MIN | MAX> [COUNT count:int]"),
    FAMILY.row("zrandmember", -2, Flags::READONLY, random::zrandmember).keys(&[KeySpec::at(1, READ)])
        .doc("sorted-set", "6.2.0", "O(N), N: members answered", "Answers members by chance.")
        .syntax("key [count:int [WITHSCORES]] :options")
        .tips(&["nondeterministic_output"]),
    FAMILY.row("zscan", -3, Flags::READONLY, scan::zscan).keys(&[KeySpec::at(1, READ)])
        .doc(
            "sorted-set",
            "2.8.0",
            "O(1) per call, O(N) for all of them until the cursor is 0 again, N: members of the set",
            "Answers some members with their scores, and a cursor to ask for the next with.",
        )
        .syntax("key cursor:int [MATCH pattern] [COUNT count:int] [NOSCORES]")
        .history(&[("8.0.0", "`NOSCORES` is new.")])
        .tips(&["nondeterministic_output"]),
    FAMILY.row("zunion", -3, READ_MANY, combine::zunion).keys(&[KeySpec::counted(1, READ)])
        .doc("sorted-set", "6.2.0", UNION, "Answers the members of several sets together.")
        .syntax(
            "numkeys:int key [key ...] [WEIGHTS weight:int [weight ...]] [AGGREGATE <SUM | MIN | \
             MAX>] [WITHSCORES]",
        ),
    FAMILY.row("zinter", -3, READ_MANY, combine::zinter).keys(&[KeySpec::counted(1, READ)])
        .doc("sorted-set", "6.2.0", INTERSECTION, "Answers the members that several sets have in common.")
        .syntax(
            "numkeys:int key [key ...] [WEIGHTS weight:int [weight ...]] [AGGREGATE <SUM | MIN | \
             MAX>] [WITHSCORES]",
        ),
    FAMILY.row("zdiff", -3, READ_MANY, combine::zdiff).keys(&[KeySpec::counted(1, READ)])
        .doc("sorted-set", "6.2.0", DIFFERENCE, "Answers the members of one set that others do not have.")
        .syntax("numkeys:int key [key ...] [WITHSCORES]"),
    FAMILY.row("zintercard", -3, READ_MANY, combine::zintercard).keys(&[KeySpec::counted(1, READ)])
        .doc(
            "sorted-set",
            "7.0.0",
            "O(N*K), N: members of the smallest set, K: sets",
            "Answers how many members several sets have in common.",
        )
        .syntax("numkeys:int key [key ...] [LIMIT limit:int]"),
    FAMILY.row("zunionstore", -4, STORE_MANY, combine::zunionstore).keys(&[KeySpec::at(1, STORE), KeySpec::counted(2, READ)])
    .doc("sorted-set", "2.0.0", UNION, "Makes a sorted set of what ZUNION would answer.")
    .syntax(
        "destination:key numkeys:int key [key ...] [WEIGHTS weight:int [weight ...]] [AGGREGATE \
         <SUM | MIN | MAX>]",
    ),
    FAMILY.row("zinterstore", -4, STORE_MANY, combine::zinterstore).keys(&[KeySpec::at(1, STORE), KeySpec::counted(2, READ)])
    .doc("sorted-set", "2.0.0", INTERSECTION, "Makes a sorted set of what ZINTER would answer.")
    .syntax(
        "destination:key numkeys:int key [key ...] [WEIGHTS weight:int [weight ...]] [AGGREGATE \
         <SUM | MIN | MAX>]",
    ),
    FAMILY.row("zdiffstore", -4, STORE_MANY, combine::zdiffstore).keys(&[KeySpec::at(1, STORE), KeySpec::counted(2, READ)])
    .doc("sorted-set", "6.2.0", DIFFERENCE, "Makes a sorted set of what ZDIFF would answer.")
    .syntax("destination:key numkeys:int key [key ...]"),
];

const BLOCKING: Flags = Flags::WRITE.with(Flags::BLOCKING);
