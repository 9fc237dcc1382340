//! What clients of a cluster ask first. There is no cluster here yet, and they are told so.

use crate::command::{Call, Categories, Command, Failure, Flags, Outcome};

fn disabled(_: &mut Call<'_>) -> Outcome {
    Err(Failure::new("ERR This instance has cluster support disabled"))
}

/// READONLY and READWRITE only matter to the replicas of a cluster.
fn accepted(call: &mut Call<'_>) -> Outcome {
    call.reply.ok();
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

pub(super) const COMMANDS: &[Command] =
    &[
        Command::new("readonly", 1, accepted)
            .flags(ANYTIME)
            .categories(Categories::CONNECTION)
            .doc("cluster", "3.0.0", "O(1)", "Allows reading from a replica of a cluster."),
        Command::new("readwrite", 1, accepted)
            .flags(ANYTIME)
            .categories(Categories::CONNECTION)
            .doc("cluster", "3.0.0", "O(1)", "Ends what READONLY began."),
        Command::new("asking", 1, disabled)
            .flags(Flags::FAST)
            .categories(Categories::CONNECTION)
            .doc("cluster", "3.0.0", "O(1)", "Follows an ASK redirection."),
        Command::new("cluster", -2, disabled)
            .doc(
                "cluster",
                "3.0.0",
                "Depends on subcommand.",
                "A container for commands about the cluster.",
            )
            .subcommands(&[
                sub("countkeysinslot", 3, "3.0.0", "slot"),
                sub("getkeysinslot", 4, "3.0.0", "slot count").tips(CHANGING),
                sub("help", 2, "5.0.0", "").flags(WHILE_LOADING),
                sub("info", 2, "3.0.0", "").flags(WHILE_LOADING).tips(CHANGING),
                sub("links", 2, "7.0.0", "").tips(CHANGING),
                sub("myid", 2, "3.0.0", "").flags(WHILE_LOADING),
                sub("nodes", 2, "3.0.0", "").flags(WHILE_LOADING).tips(CHANGING),
                sub("shards", 2, "7.0.0", "")
                    .flags(WHILE_LOADING)
                    .tips(CHANGING)
                    .history(&[("9.1.0", "Tells shards' `id` and nodes' `availability-zone`.")]),
                sub("slots", 2, "3.0.0", "").flags(WHILE_LOADING).tips(CHANGING).history(&[
                    ("4.0.0", "Tells the IDs of nodes."),
                    ("7.0.0", "Tells other names and addresses of nodes."),
                    ("9.1.0", "Tells the `availability-zone` of nodes."),
                ]),
            ]),
    ];
