//! FCALL, FCALL_RO and FUNCTION.

use bobbin_dump::rdb::Format;
use bobbin_dump::{PayloadError, append_functions_payload};

use super::scripting::{ANY_USE, READING, RUN};
use crate::base::glob::CaselessPattern;
use crate::engine::command::help::{container, help_row};
use crate::engine::command::{Call, Categories, Command, Failure, Flags, Handler, Outcome};
use crate::engine::evaluation::{call_function, kill};
use crate::engine::row::keys::KeySpec;
use crate::engine::script::Policy;

fn fcall(call: &mut Call<'_>) -> Outcome {
    call_function(call, false)
}

fn fcall_ro(call: &mut Call<'_>) -> Outcome {
    call_function(call, true)
}

fn load(call: &mut Call<'_>) -> Outcome {
    let (options, source) = call.args[2..].split_at(call.args.len() - 3);
    let mut replace = false;
    for option in options {
        if !option.eq_ignore_ascii_case(b"replace") {
            let option = String::from_utf8_lossy(option);
            return Err(Failure::format(format!("ERR Unknown option given: {option}")));
        }
        replace = true;
    }
    let seed = call.data.random.next_u64();
    let name = call.server.functions.load(source[0], replace, seed)?;
    call.data.counters.dirty += 1;
    call.reply.bulk(&name);
    Ok(())
}

fn delete(call: &mut Call<'_>) -> Outcome {
    if !call.server.functions.delete(call.args[2]) {
        return Err("ERR Library not found".into());
    }
    call.data.counters.dirty += 1;
    call.reply.ok();
    Ok(())
}

fn flush(call: &mut Call<'_>) -> Outcome {
    match call.args.len() {
        2 => {}
        3 if call.word_is(2, "sync") || call.word_is(2, "async") => {}
        3 => return Err("ERR FUNCTION FLUSH only supports SYNC|ASYNC option".into()),
        _ => return Err(Failure::wrong_subcommand("FUNCTION", call.args[1])),
    }
    call.server.functions.flush();
    call.data.counters.dirty += 1;
    call.reply.ok();
    Ok(())
}

fn list(call: &mut Call<'_>) -> Outcome {
    let (mut pattern, mut with_code, mut at) = (None, false, 2);
    while at < call.args.len() {
        if !with_code && call.word_is(at, "withcode") {
            with_code = true;
        } else if pattern.is_none() && call.word_is(at, "libraryname") {
            at += 1;
            let given = call.args.get(at).copied();
            let given = given.ok_or("ERR library name argument was not given")?;
            pattern = Some(CaselessPattern::new(given));
        } else {
            let argument = String::from_utf8_lossy(call.args[at]);
            return Err(Failure::format(format!("ERR Unknown argument {argument}")));
        }
        at += 1;
    }
    let mut libraries = call.server.functions.all();
    let is_shown = |name: &[u8]| pattern.as_ref().is_none_or(|pattern| pattern.matches(name));
    libraries.retain(|library| is_shown(&library.name));
    let reply = &mut call.reply;
    reply.array(libraries.len());
    for library in &libraries {
        reply.map(if with_code { 4 } else { 3 });
        reply.bulk(b"library_name");
        reply.bulk(&library.name);
        reply.bulk(b"engine");
        reply.bulk(b"LUA");
        reply.bulk(b"functions");
        reply.array(library.functions.len());
        for function in &library.functions {
            reply.map(3);
            reply.bulk(b"name");
            reply.bulk(&function.name);
            reply.bulk(b"description");
            reply.bulk_or_null(function.description.as_deref());
            reply.bulk(b"flags");
            reply.set(function.flags.names().count());
            function.flags.names().for_each(|name| reply.simple(name));
        }
        if with_code {
            reply.bulk(b"library_code");
            reply.bulk(&library.source);
        }
    }
    Ok(())
}

fn stats(call: &mut Call<'_>) -> Outcome {
    let busy = call.server.scripts.running();
    if let Some(busy) = busy.as_ref().filter(|busy| busy.function.is_none() && busy.is_slow()) {
        return Err(busy.failure(&call.server.config));
    }
    let (libraries, functions) = call.server.functions.counts();
    let now_ms = call.server.clock.advance();
    let reply = &mut call.reply;
    reply.map(2);
    reply.bulk(b"running_script");
    match busy.as_ref().and_then(|busy| Some((busy, busy.function.as_ref()?))) {
        Some((busy, name)) => {
            reply.map(3);
            reply.bulk(b"name");
            reply.bulk(name);
            reply.bulk(b"command");
            reply.array(busy.words.len());
            busy.words.iter().for_each(|word| reply.bulk(word));
            reply.bulk(b"duration_ms");
            reply.integer(now_ms - busy.started_ms);
        }
        None => reply.null(),
    }
    reply.bulk(b"engines");
    reply.map(1);
    reply.bulk(b"LUA");
    reply.map(2);
    reply.bulk(b"libraries_count");
    reply.integer(libraries as i64);
    reply.bulk(b"functions_count");
    reply.integer(functions as i64);
    Ok(())
}

fn kill_function(call: &mut Call<'_>) -> Outcome {
    kill(call, true)
}

fn dump(call: &mut Call<'_>) -> Outcome {
    let libraries = call.server.functions.all();
    let sources = libraries.iter().map(|library| &library.source[..]);
    let mut payload = Vec::new();
    let compress = call.server.config.rdbcompression();
    append_functions_payload(sources, Format::Valkey, compress, &mut payload);
    call.reply.bulk(&payload);
    Ok(())
}

fn restore(call: &mut Call<'_>) -> Outcome {
    if call.args.len() > 4 {
        return Err(Failure::wrong_subcommand("FUNCTION", call.args[1]));
    }
    let policy = match call.args.get(3) {
        None => Policy::Append,
        Some(word) if word.eq_ignore_ascii_case(b"append") => Policy::Append,
        Some(word) if word.eq_ignore_ascii_case(b"replace") => Policy::Replace,
        Some(word) if word.eq_ignore_ascii_case(b"flush") => Policy::Flush,
        Some(_) => {
            return Err(
                "ERR Wrong restore policy given, value should be either FLUSH, APPEND or REPLACE."
                    .into(),
            );
        }
    };
    let sources =
        bobbin_dump::parse_functions_payload(call.args[2]).map_err(|error| match error {
            PayloadError::BadFormat => Failure::new(&"ERR given type is not a function"),
            _ => Failure::new(&"ERR DUMP payload version or checksum are wrong"),
        })?;
    let random = &mut call.data.random;
    call.server.functions.restore(&sources, policy, || random.next_u64())?;
    call.data.counters.dirty += 1;
    if call.data.is_logged() {
        // Redis refuses the payload that FUNCTION DUMP gives here and in Valkey.
        let (mut words, mut payload) = (call.args.to_vec(), Vec::new());
        let compress = call.server.config.rdbcompression();
        let sources = sources.iter().map(Vec::as_slice);
        append_functions_payload(sources, Format::Redis7, compress, &mut payload);
        words[2] = &payload;
        call.data.propagate(&words);
    }
    call.reply.ok();
    Ok(())
}

const CHANGE: Flags = Flags::WRITE.with(Flags::NOSCRIPT).with(Flags::GATE);

const ON_ALL: &[&str] = &["request_policy:all_shards", "response_policy:all_succeeded"];

const fn row(
    name: &'static str,
    arity: i32,
    flags: Flags,
    handler: Handler,
    complexity: &'static str,
    summary: &'static str,
) -> Command {
    Command::new(name, arity, handler).flags(flags).categories(Categories::SCRIPTING).doc(
        "scripting",
        "7.0.0",
        complexity,
        summary,
    )
}

pub(super) const COMMANDS: &[Command] = &[
    row(
        "fcall",
        -3,
        RUN.with(Flags::MAY_REPLICATE),
        fcall,
        "Depends on the function that is executed.",
        "Calls a function of a library.",
    )
    .keys(&[KeySpec::counted(2, ANY_USE)
        .notes("We cannot tell how the keys will be used so we assume the worst, RW and UPDATE")])
    .syntax("function numkeys:int [key [key ...]] [arg [arg ...]]"),
    row(
        "fcall_ro",
        -3,
        RUN.with(Flags::READONLY),
        fcall_ro,
        "Depends on the function that is executed.",
        "Calls a function of a library that may only read.",
    )
    .keys(&[KeySpec::counted(2, READING)
        .notes("We cannot tell how the keys will be used so we assume the worst, RO and ACCESS")])
    .syntax("function numkeys:int [key [key ...]] [arg [arg ...]]"),
    Command::new("function", -2, container)
        .doc(
            "scripting",
            "7.0.0",
            "Depends on subcommand.",
            "A container for commands about functions.",
        )
        .subcommands(&[
            row("delete", 3, CHANGE, delete, "O(1)", "Deletes a library and its functions.")
                .syntax("library-name")
                .tips(ON_ALL),
            row(
                "dump",
                2,
                Flags::NOSCRIPT,
                dump,
                "O(N) where N is the number of functions",
                "Gives all libraries as bytes.",
            ),
            row(
                "flush",
                -2,
                CHANGE,
                flush,
                "O(N) where N is the number of functions deleted",
                "Deletes all libraries.",
            )
            .syntax("[<ASYNC | SYNC>]")
            .tips(ON_ALL),
            help_row("scripting", "7.0.0").categories(Categories::SCRIPTING),
            row(
                "kill",
                2,
                Flags::NOSCRIPT.with(Flags::ALLOW_BUSY),
                kill_function,
                "O(1)",
                "Ends the function that is running.",
            )
            .tips(&["request_policy:all_shards", "response_policy:one_succeeded"]),
            row(
                "list",
                -2,
                Flags::NOSCRIPT,
                list,
                "O(N) where N is the number of functions",
                "Tells of the libraries.",
            )
            .syntax("[LIBRARYNAME library-name-pattern] [WITHCODE]")
            .tips(&["nondeterministic_output_order"]),
            row(
                "load",
                -3,
                CHANGE.with(Flags::DENYOOM),
                load,
                "O(1) (considering compilation time is redundant)",
                "Makes a library of its code.",
            )
            .syntax("[REPLACE] function-code")
            .tips(ON_ALL),
            row(
                "restore",
                -3,
                CHANGE.with(Flags::DENYOOM),
                restore,
                "O(N) where N is the number of functions on the payload",
                "Takes libraries from DUMP's bytes.",
            )
            .syntax("serialized-value [<FLUSH | APPEND | REPLACE>]")
            .tips(ON_ALL),
            row(
                "stats",
                2,
                Flags::NOSCRIPT.with(Flags::ALLOW_BUSY),
                stats,
                "O(1)",
                "Tells which function is running, and how many there are.",
            )
            .tips(&[
                "nondeterministic_output",
                "request_policy:all_shards",
                "response_policy:special",
            ]),
        ]),
];
