//! EVAL, EVALSHA, their read-only forms, and SCRIPT.

use crate::engine::command::help::{container, help_row};
use crate::engine::command::{Call, Categories, Command, Failure, Flags, Outcome};
use crate::engine::evaluation::{ScriptSource, evaluate, kill};
use crate::engine::row::keys::{KeySpec, KeyUse};
use crate::engine::script::Lua;

fn eval(call: &mut Call<'_>) -> Outcome {
    evaluate(call, ScriptSource::Text, false)
}

fn evalsha(call: &mut Call<'_>) -> Outcome {
    evaluate(call, ScriptSource::Sha, false)
}

fn eval_ro(call: &mut Call<'_>) -> Outcome {
    evaluate(call, ScriptSource::Text, true)
}

fn evalsha_ro(call: &mut Call<'_>) -> Outcome {
    evaluate(call, ScriptSource::Sha, true)
}

fn script_load(call: &mut Call<'_>) -> Outcome {
    let mut lua = Lua::of_worker(call.server, call.data);
    let loaded = lua.load(call.server, call.args[2]);
    lua.give_back(call.data);
    call.reply.bulk(&loaded?);
    Ok(())
}

fn script_exists(call: &mut Call<'_>) -> Outcome {
    call.reply.array(call.args.len() - 2);
    for sha in &call.args[2..] {
        call.reply.integer(i64::from(call.server.scripts.find(sha).is_some()));
    }
    Ok(())
}

fn script_flush(call: &mut Call<'_>) -> Outcome {
    let fits = match call.args.len() {
        2 => true,
        3 => call.word_is(2, "sync") || call.word_is(2, "async"),
        _ => false,
    };
    if !fits {
        return Err("ERR SCRIPT FLUSH only support SYNC|ASYNC option".into());
    }
    call.server.scripts.flush();
    call.reply.ok();
    Ok(())
}

fn script_kill(call: &mut Call<'_>) -> Outcome {
    kill(call, false)
}

fn script_show(call: &mut Call<'_>) -> Outcome {
    let script = call.server.scripts.find(call.args[2]);
    let script = script.ok_or(Failure::new(&"NOSCRIPT No matching script."))?;
    call.reply.bulk(&script.source);
    Ok(())
}

/// SCRIPT DEBUG mode [engine]. There is no debugger, so it can only be turned off.
fn script_debug(call: &mut Call<'_>) -> Outcome {
    if call.in_transaction {
        return Err("ERR SCRIPT DEBUG must be called outside a pipeline".into());
    }
    match call.args.len() {
        3 => {}
        4 if call.word_is(3, "lua") => {}
        4 => {
            let engine = String::from_utf8_lossy(call.args[3]);
            let text =
                format!("ERR No scripting engine found with name '{engine}' to enable debug");
            return Err(Failure::format(text));
        }
        _ => return Err(Failure::wrong_subcommand("SCRIPT", call.args[1])),
    }
    if call.word_is(2, "yes") || call.word_is(2, "sync") {
        return Err("ERR SCRIPT DEBUG is not supported: this version has no script debugger".into());
    }
    if !call.word_is(2, "no") {
        return Err("ERR Use SCRIPT DEBUG YES/SYNC/NO".into());
    }
    call.reply.ok();
    Ok(())
}

/// The flags of commands that run a script or a function.
pub(super) const RUN: Flags = Flags::NOSCRIPT
    .with(Flags::STALE)
    .with(Flags::SKIP_MONITOR)
    .with(Flags::NO_MANDATORY_KEYS)
    .with(Flags::MOVABLE_KEYS)
    .with(Flags::RUNS_SCRIPT);
const CONTROL: Flags = Flags::NOSCRIPT.with(Flags::STALE);

pub(super) const ANY_USE: KeyUse = KeyUse::READ_WRITE.with(KeyUse::ACCESS).with(KeyUse::UPDATE);
pub(super) const READING: KeyUse = KeyUse::READ_ONLY.with(KeyUse::ACCESS);
const COMPLEXITY: &str = "Depends on the script that is executed.";

const fn run(
    name: &'static str,
    flags: Flags,
    keys: &'static [KeySpec],
    handler: crate::engine::command::Handler,
    summary: &'static str,
) -> Command {
    Command::new(name, -3, handler)
        .flags(RUN.with(flags))
        .categories(Categories::SCRIPTING)
        .keys(keys)
        .doc("scripting", "2.6.0", COMPLEXITY, summary)
}

const fn sub(
    name: &'static str,
    arity: i32,
    flags: Flags,
    handler: crate::engine::command::Handler,
    since: &'static str,
    complexity: &'static str,
    summary: &'static str,
) -> Command {
    Command::new(name, arity, handler).flags(flags).categories(Categories::SCRIPTING).doc(
        "scripting",
        since,
        complexity,
        summary,
    )
}

const WORST_WRITE: &str =
    "We cannot tell how the keys will be used so we assume the worst, RW and UPDATE";
const WORST_READ: &str =
    "We cannot tell how the keys will be used so we assume the worst, RO and ACCESS";

pub(super) const COMMANDS: &[Command] = &[
    run(
        "eval",
        Flags::MAY_REPLICATE,
        &[KeySpec::counted(2, ANY_USE).notes(WORST_WRITE)],
        eval,
        "Runs a Lua script.",
    )
    .syntax("script numkeys:int [key [key ...]] [arg [arg ...]]"),
    run(
        "evalsha",
        Flags::MAY_REPLICATE,
        &[KeySpec::counted(2, ANY_USE)],
        evalsha,
        "Runs a Lua script that the server knows, by its SHA-1.",
    )
    .syntax("sha1 numkeys:int [key [key ...]] [arg [arg ...]]"),
    run(
            "eval_ro",
            Flags::READONLY,
            &[KeySpec::counted(2, READING).notes(WORST_READ)],
            eval_ro,
            "Runs a Lua script that may only read.",
        )
        .syntax("script numkeys:int [key [key ...]] [arg [arg ...]]")
        .since("7.0.0"),
    run(
            "evalsha_ro",
            Flags::READONLY,
            &[KeySpec::counted(2, READING)],
            evalsha_ro,
            "Runs a Lua script that the server knows, by its SHA-1; it may only read.",
        )
        .syntax("sha1 numkeys:int [key [key ...]] [arg [arg ...]]")
        .since("7.0.0"),
    Command::new("script", -2, container)
        .doc(
            "scripting",
            "2.6.0",
            "Depends on subcommand.",
            "A container for commands about Lua scripts.",
        )
        .subcommands(&[
            sub(
                "debug",
                -3,
                Flags::NOSCRIPT,
                script_debug,
                "3.2.0",
                "O(1)",
                "Sets how scripts are debugged.",
            )
            .syntax("<YES | SYNC | NO> [engine] @9.1.0"),
            sub(
                "exists",
                -3,
                CONTROL,
                script_exists,
                "2.6.0",
                "O(N) with N being the number of scripts to check (so checking a single script is an O(1) \
                 operation).",
                "Tells which scripts the server knows.",
            )
            .syntax("sha1 [sha1 ...]")
            .tips(&["request_policy:all_shards", "response_policy:agg_logical_and"]),
            sub(
                "flush",
                -2,
                CONTROL,
                script_flush,
                "2.6.0",
                "O(N) with N being the number of scripts in cache",
                "Forgets all scripts.",
            )
            .syntax("[<ASYNC | SYNC>] @6.2.0")
            .history(&[("6.2.0", "Takes `ASYNC` and `SYNC`.")])
            .tips(&["request_policy:all_nodes", "response_policy:all_succeeded"]),
            help_row("scripting", "5.0.0").categories(Categories::SCRIPTING),
            sub(
                "kill",
                2,
                Flags::NOSCRIPT.with(Flags::ALLOW_BUSY),
                script_kill,
                "2.6.0",
                "O(1)",
                "Ends the script that is running.",
            )
            .tips(&["request_policy:all_shards", "response_policy:one_succeeded"]),
            sub(
                "load",
                3,
                CONTROL,
                script_load,
                "2.6.0",
                "O(N) with N being the length in bytes of the script body.",
                "Remembers a script without running it.",
            )
            .syntax("script")
            .tips(&["request_policy:all_nodes", "response_policy:all_succeeded"]),
            sub(
                "show",
                3,
                CONTROL,
                script_show,
                "8.0.0",
                "O(1).",
                "Shows the source of a script.",
            )
            .syntax("sha1"),
        ]),
];
