//! OBJECT: how a value is stored, and how it was used.

use crate::engine::command::{Call, Categories, Command, Failure, Flags, Outcome};
use crate::engine::row::keys::{KeySpec, KeyUse};

fn encoding(call: &mut Call<'_>) -> Outcome {
    match call.data.inspect(call.key(2)?) {
        Some(entry) => call.reply.bulk(entry.encoding().name().as_bytes()),
        None => call.reply.null(),
    }
    Ok(())
}

fn refcount(call: &mut Call<'_>) -> Outcome {
    match call.data.inspect(call.key(2)?) {
        Some(_) => call.reply.integer(1),
        None => call.reply.null(),
    }
    Ok(())
}

fn freq(call: &mut Call<'_>) -> Outcome {
    let clock = call.data.turn.clock;
    let Some(entry) = call.data.inspect(call.key(2)?) else {
        call.reply.null();
        return Ok(());
    };
    if !call.server.config.maxmemory_policy().is_lfu() {
        return Err(NOT_LFU);
    }
    call.reply.integer(clock.frequency(entry.access()).into());
    Ok(())
}

fn idletime(call: &mut Call<'_>) -> Outcome {
    let clock = call.data.turn.clock;
    let Some(entry) = call.data.inspect(call.key(2)?) else {
        call.reply.null();
        return Ok(());
    };
    if call.server.config.maxmemory_policy().is_lfu() {
        return Err(LFU);
    }
    call.reply.integer(clock.idle_seconds(entry.access()).into());
    Ok(())
}

fn help(call: &mut Call<'_>) -> Outcome {
    call.reply.array(HELP.len());
    HELP.iter().for_each(|line| call.reply.simple(line));
    Ok(())
}

/// The handler of OBJECT. It is never called, because the arity demands a subcommand.
fn object(_: &mut Call<'_>) -> Outcome {
    Err(Failure::SYNTAX)
}

const NOT_LFU: Failure = Failure::new(
    &"ERR An LFU maxmemory policy is not selected, access frequency not tracked. Please note that \
     when switching between policies at runtime LRU and LFU data will take some time to adjust.",
);
const LFU: Failure = Failure::new(
    &"ERR An LFU maxmemory policy is selected, idle time not tracked. Please note that \
     when switching between policies at runtime LRU and LFU data will take some time to adjust.",
);

const HELP: &[&str] = &[
    "OBJECT <subcommand> [<arg> [value] [opt] ...]. Subcommands are:",
    "ENCODING <key>",
    "    How the value of <key> is kept.",
    "FREQ <key>",
    "    How often <key> was used lately, on a logarithmic scale up to 255.",
    "IDLETIME <key>",
    "    Seconds since <key> was last used.",
    "REFCOUNT <key>",
    "    References to the value of <key>: always 1.",
    "HELP",
    "    Print this help.",
];

const KEY: &[KeySpec] = &[KeySpec::at(2, KeyUse::READ_ONLY)];

const fn about_key(row: Command) -> Command {
    row.flags(Flags::READONLY)
        .categories(Categories::KEYSPACE)
        .keys(KEY)
        .syntax("key")
        .tips(&["nondeterministic_output"])
}

pub(super) const COMMANDS: &[Command] = &[Command::new("object", -2, object)
    .doc(
        "generic",
        "2.2.3",
        "Depends on subcommand.",
        "Groups the commands about how values are kept.",
    )
    .subcommands(&[
        about_key(Command::new("encoding", 3, encoding)).doc(
            "generic",
            "2.2.3",
            "O(1)",
            "Answers how a value is kept.",
        ),
        about_key(Command::new("freq", 3, freq)).doc(
            "generic",
            "4.0.0",
            "O(1)",
            "Answers how often a key was used, on a logarithmic scale.",
        ),
        Command::new("help", 2, help)
            .flags(Flags::LOADING.with(Flags::STALE))
            .categories(Categories::KEYSPACE)
            .doc("generic", "6.2.0", "O(1)", "Answers what subcommands there are."),
        about_key(Command::new("idletime", 3, idletime)).doc(
            "generic",
            "2.2.3",
            "O(1)",
            "Answers for how long a key was not used.",
        ),
        about_key(Command::new("refcount", 3, refcount)).doc(
            "generic",
            "2.2.3",
            "O(1)",
            "Answers how many references there are to a value.",
        ),
    ])];
