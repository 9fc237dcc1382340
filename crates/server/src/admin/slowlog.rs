//! SLOWLOG and COMMANDLOG.

use crate::engine::command::{Call, Command, Failure, Flags, Outcome};
use crate::engine::telemetry::slowlog::{SlowlogClass, SlowlogEntry};

use crate::engine::command::help::{container, help_row};

fn slowlog_get(call: &mut Call<'_>) -> Outcome {
    let count = match call.args.len() {
        2 => SLOWLOG_COUNT,
        3 => count(call, 2)?,
        _ => return Err(Failure::wrong_subcommand("SLOWLOG", call.args[1])),
    };
    reply_entries(call, SlowlogClass::Slow, count);
    Ok(())
}

fn slowlog_len(call: &mut Call<'_>) -> Outcome {
    let len = call.server.services.command_log.len(SlowlogClass::Slow);
    call.reply.integer(len as i64);
    Ok(())
}

fn slowlog_reset(call: &mut Call<'_>) -> Outcome {
    call.server.services.command_log.reset(SlowlogClass::Slow);
    call.reply.ok();
    Ok(())
}

fn commandlog_get(call: &mut Call<'_>) -> Outcome {
    let count = count(call, 2)?;
    let class = class(call, 3)?;
    reply_entries(call, class, count);
    Ok(())
}

fn commandlog_len(call: &mut Call<'_>) -> Outcome {
    let class = class(call, 2)?;
    let len = call.server.services.command_log.len(class);
    call.reply.integer(len as i64);
    Ok(())
}

fn commandlog_reset(call: &mut Call<'_>) -> Outcome {
    let class = class(call, 2)?;
    call.server.services.command_log.reset(class);
    call.reply.ok();
    Ok(())
}

fn class(call: &Call<'_>, index: usize) -> Result<SlowlogClass, Failure> {
    SlowlogClass::find(call.args[index]).ok_or(Failure::new(
        &"ERR type should be one of the following: slow, large-request, large-reply",
    ))
}

/// Parses a number of entries; -1 means all.
fn count(call: &Call<'_>, index: usize) -> Result<usize, Failure> {
    match bobbin_resp::parse_i64(call.args[index]) {
        Some(-1) => Ok(usize::MAX),
        Some(count) if count >= 0 => Ok(count as usize),
        _ => Err("ERR count should be greater than or equal to -1".into()),
    }
}

fn reply_entries(call: &mut Call<'_>, class: SlowlogClass, count: usize) {
    let entries = call.server.services.command_log.entries(class, count);
    call.reply.array(entries.len());
    for SlowlogEntry { id, time_s, value, words, peer, name } in &entries {
        call.reply.array(6);
        call.reply.integer(*id as i64);
        call.reply.integer(*time_s);
        call.reply.integer(*value as i64);
        call.reply.array(words.len());
        words.iter().for_each(|word| call.reply.bulk(word));
        call.reply.bulk(peer.as_bytes());
        call.reply.bulk(name);
    }
}

/// How many entries SLOWLOG GET shows by default.
const SLOWLOG_COUNT: usize = 10;

const ADMIN: Flags = Flags::ADMIN.with(Flags::LOADING).with(Flags::STALE);
const GET_TIPS: &[&str] = &["request_policy:all_nodes", "nondeterministic_output"];
const LEN_TIPS: &[&str] =
    &["request_policy:all_nodes", "response_policy:agg_sum", "nondeterministic_output"];
const RESET_TIPS: &[&str] = &["request_policy:all_nodes", "response_policy:all_succeeded"];

pub(super) const COMMANDS: &[Command] = &[
    Command::new("slowlog", -2, container)
        .doc("server", "2.2.12", "Depends on subcommand.", "Holds the commands of the slow log.")
        .subcommands(&[
            Command::new("get", -2, slowlog_get)
                .flags(ADMIN)
                .doc(
                    "server",
                    "2.2.12",
                    "O(N), N: entries answered",
                    "Answers the newest entries of the slow log.",
                )
                .syntax("[count:int]")
                .history(&[("4.0.0", "Entries tell the client's address and name.")])
                .tips(GET_TIPS),
            help_row("server", "6.2.0"),
            Command::new("len", 2, slowlog_len)
                .flags(ADMIN)
                .doc("server", "2.2.12", "O(1)", "Counts the entries of the slow log.")
                .tips(LEN_TIPS),
            Command::new("reset", 2, slowlog_reset)
                .flags(ADMIN)
                .doc("server", "2.2.12", "O(N), N: entries of the log", "Empties the slow log.")
                .tips(RESET_TIPS),
        ]),
    Command::new("commandlog", -2, container)
        .doc("server", "8.1.0", "Depends on subcommand.", "Holds the commands of the command log.")
        .subcommands(&[
            Command::new("get", 4, commandlog_get)
                .flags(ADMIN)
                .doc(
                    "server",
                    "8.1.0",
                    "O(N), N: entries answered",
                    "Answers the newest slow or large commands.",
                )
                .syntax("count:int <SLOW | LARGE-REQUEST | LARGE-REPLY> :type")
                .tips(GET_TIPS),
            help_row("server", "8.1.0"),
            Command::new("len", 3, commandlog_len)
                .flags(ADMIN)
                .doc("server", "8.1.0", "O(1)", "Counts the entries of one type.")
                .syntax("<SLOW | LARGE-REQUEST | LARGE-REPLY> :type")
                .tips(LEN_TIPS),
            Command::new("reset", 3, commandlog_reset)
                .flags(ADMIN)
                .doc(
                    "server",
                    "8.1.0",
                    "O(N), N: entries of the log",
                    "Empties the log of one type.",
                )
                .syntax("<SLOW | LARGE-REQUEST | LARGE-REPLY> :type")
                .tips(RESET_TIPS),
        ]),
];
