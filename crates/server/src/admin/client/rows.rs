//! The rows of CLIENT.

use super::*;
use crate::engine::command::help::help_row;
use crate::engine::command::{Categories, Command, Flags};

/// The flags of every subcommand except HELP.
const PLAIN: Flags = Flags::NOSCRIPT.with(Flags::LOADING).with(Flags::STALE);
const BUSY: Flags = PLAIN.with(Flags::ALLOW_BUSY);
const ADMIN: Flags = PLAIN.with(Flags::ADMIN);
const TO_ALL: &[&str] = &["request_policy:all_nodes", "response_policy:all_succeeded"];

/// A subcommand that takes constant time.
const fn row(
    name: &'static str,
    arity: i32,
    handler: crate::engine::command::Handler,
    flags: Flags,
    since: &'static str,
    summary: &'static str,
) -> Command {
    Command::new(name, arity, handler).flags(flags).categories(Categories::CONNECTION).doc(
        "connection",
        since,
        "O(1)",
        summary,
    )
}

/// Sets another complexity in a row.
const fn complex(command: Command, complexity: &'static str) -> Command {
    let (since, summary) = (command.row.since, command.row.summary);
    command.doc("connection", since, complexity, summary)
}

pub(in crate::admin) const COMMANDS: &[Command] = &[Command::new("client", -2, container)
    .doc(
        "connection",
        "2.4.0",
        "Depends on subcommand.",
        "What clients know of and do to each other.",
    )
    .subcommands(&[
        row(
            "caching",
            3,
            tracking::caching,
            BUSY,
            "6.0.0",
            "Whether the next command's keys are tracked.",
        )
        .syntax("<YES | NO>"),
        row("capa", -3, capa, BUSY, "8.0.0", "Tells the server what the client can deal with.")
            .syntax("capability [capability ...]"),
        row("getname", 2, name::getname, BUSY, "2.6.9", "The connection's name."),
        row(
            "getredir",
            2,
            tracking::getredir,
            BUSY,
            "6.0.0",
            "Which client gets this one's invalidations.",
        ),
        help_row("connection", "5.0.0").categories(Categories::CONNECTION),
        row("id", 2, id, BUSY, "5.0.0", "The connection's number, which no other ever has."),
        row(
            "import-source",
            3,
            import_source,
            PLAIN,
            "8.1.0",
            "Makes the client a source of an import.",
        )
        .syntax("<ON | OFF>"),
        row("info", 2, info, PLAIN, "6.2.0", "The connection's own line of CLIENT LIST.")
            .tips(&["nondeterministic_output"]),
        complex(
            row(
                "kill",
                -3,
                kill,
                ADMIN,
                "2.4.0",
                "Ends connections: one by address, or all that fit.",
            )
            .history(KILL_HISTORY)
            .syntax(KILL_SYNTAX),
            "O(N), N: connections",
        ),
        complex(
            row("list", -2, list, ADMIN, "2.4.0", "One line about each connection that fits.")
                .tips(&["nondeterministic_output"])
                .history(LIST_HISTORY)
                .syntax(LIST_SYNTAX),
            "O(N), N: connections",
        ),
        row(
            "no-evict",
            3,
            no_evict,
            ADMIN.with(Flags::ALLOW_BUSY),
            "7.0.0",
            "Whether the client may be evicted.",
        )
        .syntax("<ON | OFF>"),
        row(
            "no-touch",
            3,
            no_touch,
            BUSY,
            "7.2.0",
            "Whether the client's reading counts as use of a key.",
        )
        .syntax("<ON | OFF>"),
        row(
            "pause",
            -3,
            pause,
            ADMIN.with(Flags::GATE),
            "3.0.0",
            "Puts clients' commands off for a time.",
        )
        .history(&[("6.2.0", "Can hold up writes alone: the `mode`.")])
        .syntax("timeout:int [<WRITE | ALL>] @6.2.0"),
        row(
            "reply",
            3,
            reply,
            BUSY.with(Flags::NO_MULTI),
            "3.2.0",
            "Whether commands are answered.",
        )
        .syntax("<ON | OFF | SKIP> :action"),
        row("setinfo", 4, name::setinfo, BUSY, "7.2.0", "Names the library that the client uses.")
            .tips(TO_ALL)
            .syntax("<LIB-NAME libname | LIB-VER libver>"),
        row("setname", 3, name::setname, BUSY, "2.6.9", "Names the connection.")
            .tips(TO_ALL)
            .syntax("connection-name"),
        complex(
            row(
                "tracking",
                -3,
                tracking::tracking,
                PLAIN,
                "6.0.0",
                "Client-side caching with invalidations.",
            )
            .syntax(
                "<ON | OFF> :status [REDIRECT client-id:int] [PREFIX prefix [PREFIX prefix ...]] \
                 [BCAST] [OPTIN] [OPTOUT] [NOLOOP]",
            )
            .gate_when(tracking::broadcasts),
            "O(1), and more with some options",
        ),
        row(
            "trackinginfo",
            2,
            tracking::trackinginfo,
            PLAIN,
            "6.2.0",
            "How the connection's keys are tracked.",
        ),
        complex(
            row("unblock", -3, unblock, ADMIN, "5.0.0", "Ends another client's wait.")
                .syntax("client-id:int [<TIMEOUT | ERROR>]"),
            "O(log(N)), N: connections",
        ),
        complex(
            row(
                "unpause",
                2,
                unpause,
                ADMIN.with(Flags::GATE),
                "6.2.0",
                "Lets paused clients go on.",
            ),
            "O(N), N: paused clients",
        ),
    ])];

const KILL_SYNTAX: &str = "\
    <ip:port:string :old-format @..2.8.12 | <[ID client-id:int [client-id ...] @2.8.12] | [TYPE \
    <NORMAL | MASTER @3.2.0 | PRIMARY @8.0.0 | SLAVE | REPLICA @5.0.0 | PUBSUB> :client-type \
    @2.8.12] | [USER username] | [ADDR ip:port:string :addr] | [LADDR ip:port:string :laddr \
    @6.2.0] | [SKIPME <YES | NO>] | [MAXAGE maxage:int @8.0.0] | [NAME name @9.0.0] | [IDLE \
    idle:int @9.0.0] | [FLAGS flags @9.0.0] | [LIB-NAME lib-name @9.0.0] | [LIB-VER lib-ver \
    @9.0.0] | [DB db:int @9.0.0] | [CAPA capa @9.0.0] | [IP ip @9.0.0] | [NOT-TYPE <NORMAL | \
    MASTER | PRIMARY | SLAVE | REPLICA | PUBSUB> :not-client-type @9.0.0] | [NOT-ID \
    not-client-id:int [not-client-id ...] @9.0.0] | [NOT-USER not-username @9.0.0] | [NOT-ADDR \
    ip:port:string :not-addr @9.0.0] | [NOT-LADDR ip:port:string :not-laddr @9.0.0] | [NOT-NAME \
    not-name @9.0.0] | [NOT-FLAGS not-flags @9.0.0] | [NOT-LIB-NAME not-lib-name @9.0.0] | \
    [NOT-LIB-VER not-lib-ver @9.0.0] | [NOT-DB not-db:int @9.0.0] | [NOT-CAPA not-capa @9.0.0] | \
    [NOT-IP not-ip @9.0.0]> ... :new-format> :filter";

const KILL_HISTORY: &[(&str, &str)] = &[
    ("2.8.12", "Takes filters."),
    ("2.8.12", "The filter `ID`."),
    ("3.2.0", "`TYPE` knows `master`."),
    ("5.0.0", "`TYPE` knows `replica`; `slave` is its old name."),
    ("6.2.0", "The filter `LADDR`."),
    ("8.0.0", "The filter `MAXAGE`."),
    ("8.0.0", "`TYPE` knows `primary`; `master` is its old name."),
    ("8.1.0", "`ID` takes several numbers."),
    (
        "9.0.0",
        "The filters NAME, IDLE, FLAGS, LIB-NAME, LIB-VER, DB, CAPA, IP, and those with NOT-.",
    ),
];

const LIST_SYNTAX: &str = "\
    [TYPE <NORMAL | MASTER | REPLICA | PUBSUB> :client-type @5.0.0] [ID client-id:int [client-id \
    ...] @6.2.0] [USER username @8.1.0] [ADDR ip:port:string :addr @8.1.0] [LADDR ip:port:string \
    :laddr @8.1.0] [SKIPME <YES | NO> @8.1.0] [MAXAGE maxage:int @8.1.0] [NAME name @9.0.0] [IDLE \
    idle:int @9.0.0] [FLAGS flags @9.0.0] [LIB-NAME lib-name @9.0.0] [LIB-VER lib-ver @9.0.0] [DB \
    db:int @9.0.0] [CAPA capa @9.0.0] [IP ip @9.0.0] [NOT-TYPE <NORMAL | MASTER | REPLICA | \
    PUBSUB> :not-client-type @9.0.0] [NOT-ID not-client-id:int [not-client-id ...] @9.0.0] \
    [NOT-USER not-username @9.0.0] [NOT-ADDR ip:port:string :not-addr @9.0.0] [NOT-LADDR \
    ip:port:string :not-laddr @9.0.0] [NOT-NAME not-name @9.0.0] [NOT-FLAGS not-flags @9.0.0] \
    [NOT-LIB-NAME not-lib-name @9.0.0] [NOT-LIB-VER not-lib-ver @9.0.0] [NOT-DB not-db:int @9.0.0] \
    [NOT-CAPA not-capa @9.0.0] [NOT-IP not-ip @9.0.0]";

const LIST_HISTORY: &[(&str, &str)] = &[
    ("2.8.12", "Shows the client's `id`."),
    ("5.0.0", "The filter `TYPE`."),
    ("6.0.0", "Shows the `user`."),
    ("6.2.0", "Shows `argv-mem`, `tot-mem`, `laddr` and `redir`; the filter `ID`."),
    ("7.0.0", "Shows `resp`, `multi-mem`, `rbs` and `rbp`."),
    ("7.0.3", "Shows `ssub`."),
    ("8.0.0", "`TYPE` knows `primary`; `master` is its old name."),
    ("8.1.0", "The filters USER, ADDR, LADDR, SKIPME and MAXAGE."),
    (
        "9.0.0",
        "The filters NAME, IDLE, FLAGS, LIB-NAME, LIB-VER, DB, CAPA, IP, and those with NOT-.",
    ),
];
