//! Cluster commands that clients send first. Bobbin has no cluster mode, and says so.

use bobbin_resp::key_slot;

use crate::engine::clients::ClientFlag;
use crate::engine::command::{Call, Categories, Command, Failure, Flags, KeySpec, KeyUse, Outcome};

fn disabled(_: &mut Call<'_>) -> Outcome {
    Err(Failure::new(&"ERR This instance has cluster support disabled"))
}

/// READONLY: lets the client read from a replica instead of being redirected to the primary.
fn readonly(call: &mut Call<'_>) -> Outcome {
    call.client.info.flag(ClientFlag::READONLY, true);
    call.reply.ok();
    Ok(())
}

/// READWRITE: undoes READONLY.
fn readwrite(call: &mut Call<'_>) -> Outcome {
    call.client.info.flag(ClientFlag::READONLY, false);
    call.reply.ok();
    Ok(())
}

/// CLUSTER KEYSLOT: the slot of a key, which exists without a cluster too.
fn keyslot(call: &mut Call<'_>) -> Outcome {
    call.reply.integer(key_slot(call.args[2]).into());
    Ok(())
}

const ANYTIME: Flags = Flags::LOADING.with(Flags::STALE).with(Flags::FAST);

const WHILE_LOADING: Flags = Flags::LOADING.with(Flags::STALE);
const CHANGING: &[&str] = &["nondeterministic_output"];

/// A subcommand of CLUSTER.
const fn sub(name: &'static str, arity: i32, since: &'static str, syntax: &'static str) -> Command {
    Command::new(name, arity, disabled)
        .flags(Flags::STALE)
        .doc("cluster", since, "O(1)", "Refused: this server is not part of a cluster.")
        .syntax(syntax)
}

/// A subcommand that changes the cluster.
const fn admin(
    name: &'static str,
    arity: i32,
    since: &'static str,
    syntax: &'static str,
) -> Command {
    sub(name, arity, since, syntax)
        .flags(Flags::ADMIN.with(Flags::STALE).with(Flags::NO_ASYNC_LOADING))
}

/// A subcommand that shows the state of a node.
const fn watching(name: &'static str, since: &'static str) -> Command {
    sub(name, 3, since, "node-id").flags(Flags::ADMIN.with(Flags::STALE)).tips(CHANGING)
}

pub(super) const COMMANDS: &[Command] = &[
    Command::new("readonly", 1, readonly).flags(ANYTIME).categories(Categories::CONNECTION).doc(
        "cluster",
        "3.0.0",
        "O(1)",
        "Allows reading from a replica of a cluster.",
    ),
    Command::new("readwrite", 1, readwrite).flags(ANYTIME).categories(Categories::CONNECTION).doc(
        "cluster",
        "3.0.0",
        "O(1)",
        "Ends what READONLY began.",
    ),
    Command::new("asking", 1, disabled).flags(Flags::FAST).categories(Categories::CONNECTION).doc(
        "cluster",
        "3.0.0",
        "O(1)",
        "Follows an ASK redirection.",
    ),
    Command::new("clusterscan", -2, disabled)
        .flags(Flags::READONLY)
        .categories(Categories::KEYSPACE)
        .keys(&[KeySpec::at(1, KeyUse::NOT_KEY)])
        .doc("cluster", "9.1.0", "O(N), N: keys answered", "Walks over the keys of a cluster.")
        .syntax(
            "cursor [MATCH match-pattern:pattern] [COUNT count:int] [TYPE type] [SLOT slot:int]",
        )
        .tips(&["nondeterministic_output", "request_policy:special", "response_policy:special"]),
    Command::new("cluster", -2, disabled)
        .doc(
            "cluster",
            "3.0.0",
            "Depends on subcommand.",
            "A container for commands about the cluster.",
        )
        .subcommands(&[
            admin("addslots", -3, "3.0.0", "slot:int [slot ...]"),
            admin(
                "addslotsrange",
                -4,
                "7.0.0",
                "start-slot:int end-slot:int [start-slot end-slot ...] :range",
            ),
            admin("bumpepoch", 2, "3.0.0", "").tips(CHANGING),
            admin("cancelslotmigrations", 2, "9.0.0", ""),
            watching("count-failure-reports", "3.0.0")
                .history(&[("9.0.0", "Counts no more reports of a node that has failed already.")]),
            sub("countkeysinslot", 3, "3.0.0", "slot:int"),
            admin("delslots", -3, "3.0.0", "slot:int [slot ...]"),
            admin(
                "delslotsrange",
                -4,
                "7.0.0",
                "start-slot:int end-slot:int [start-slot end-slot ...] :range",
            ),
            admin("failover", -2, "3.0.0", "[<FORCE | TAKEOVER> :options]"),
            admin("flushslot", -3, "9.0.0", "slot:int [<ASYNC | SYNC>]")
                .categories(Categories::KEYSPACE)
                .flags(Flags::WRITE.with(Flags::ADMIN).with(Flags::NO_ASYNC_LOADING)),
            admin("flushslots", 2, "3.0.0", ""),
            admin("forget", 3, "3.0.0", "node-id"),
            sub("getkeysinslot", 4, "3.0.0", "slot:int count:int").tips(CHANGING),
            admin("getslotmigrations", 2, "9.0.0", ""),
            sub("help", 2, "5.0.0", "").flags(WHILE_LOADING),
            sub("info", 2, "3.0.0", "").flags(WHILE_LOADING).tips(CHANGING),
            Command::new("keyslot", 3, keyslot)
                .flags(Flags::STALE)
                .doc("cluster", "3.0.0", "O(N), N: bytes of the key", "Answers a key's slot.")
                .syntax("key:string"),
            sub("links", 2, "7.0.0", "").tips(CHANGING),
            admin("meet", -4, "3.0.0", "ip port:int [cluster-bus-port:int @4.0.0]")
                .history(&[("4.0.0", "Takes `cluster_bus_port`.")]),
            admin(
                "migrateslots",
                -4,
                "9.0.0",
                "SLOTSRANGE start-slot:int end-slot:int [start-slot end-slot ...] NODE node-id",
            ),
            sub("myid", 2, "3.0.0", "").flags(WHILE_LOADING),
            sub("myshardid", 2, "7.2.0", "").flags(WHILE_LOADING).tips(CHANGING),
            sub("nodes", 2, "3.0.0", "").flags(WHILE_LOADING).tips(CHANGING),
            watching("replicas", "5.0.0"),
            admin("replicate", -3, "3.0.0", "<node-id | <NO ONE> :no-one @9.0.0> :args")
                .history(&[("9.0.0", "Takes `NO ONE`: the replica becomes a primary.")]),
            admin("reset", -2, "3.0.0", "[<HARD | SOFT>]")
                .flags(Flags::ADMIN.with(Flags::NOSCRIPT).with(Flags::STALE)),
            admin("saveconfig", 2, "3.0.0", ""),
            admin("set-config-epoch", 3, "3.0.0", "config-epoch:int"),
            admin(
                "setslot",
                -4,
                "3.0.0",
                "slot:int <IMPORTING node-id :importing | MIGRATING node-id :migrating | NODE \
                 node-id :node | STABLE> :subcommand [TIMEOUT timeout:int @8.0.0]",
            )
            .history(&[("8.0.0", "Takes `TIMEOUT`.")]),
            sub("shards", 2, "7.0.0", "")
                .flags(WHILE_LOADING)
                .tips(CHANGING)
                .history(&[("9.1.0", "Tells shards' `id` and nodes' `availability-zone`.")]),
            watching("slaves", "3.0.0").deprecated("5.0.0", "`CLUSTER REPLICAS`"),
            sub(
                "slot-stats",
                -4,
                "8.0.0",
                "<SLOTSRANGE start-slot:int end-slot:int | ORDERBY <metric [LIMIT limit:int] [<ASC \
                 | DESC>]> :orderby> :filter",
            )
            .flags(WHILE_LOADING)
            .tips(&["nondeterministic_output", "request_policy:all_shards"]),
            sub("slots", 2, "3.0.0", "").flags(WHILE_LOADING).tips(CHANGING).history(&[
                ("4.0.0", "Tells the IDs of nodes."),
                ("7.0.0", "Tells other names and addresses of nodes."),
                ("9.1.0", "Tells the `availability-zone` of nodes."),
            ]),
            admin("syncslots", -3, "9.0.0", ""),
        ]),
];
