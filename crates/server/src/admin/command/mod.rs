//! COMMAND: describes all commands, from their rows.

use crate::base::glob::CaselessPattern;
use crate::engine::command::help::help_row;
use crate::engine::command::{Call, Categories, Command, Failure, Flags, Outcome, Registered};

mod docs;
mod info;
mod keys;

/// COMMAND without a subcommand describes all commands.
fn command(call: &mut Call<'_>) -> Outcome {
    let registry = &call.server.registry;
    registry.info.append(&mut call.reply, |reply| {
        reply.array(registry.top().count());
        registry.top().for_each(|(_, command)| info::describe(reply, command));
    });
    Ok(())
}

fn count(call: &mut Call<'_>) -> Outcome {
    call.reply.integer(call.server.registry.top().count() as i64);
    Ok(())
}

/// `COMMAND INFO [name ...]`: null for an unknown name.
fn info(call: &mut Call<'_>) -> Outcome {
    let names = &call.args[2..];
    if names.is_empty() {
        return command(call);
    }
    let reply = &mut call.reply;
    reply.array(names.len());
    for name in names {
        match call.server.registry.find_full(name) {
            Some(command) => command.info.append(reply, |reply| info::describe(reply, command)),
            None => reply.null(),
        }
    }
    Ok(())
}

/// `COMMAND DOCS [name ...]`: omits unknown names.
fn docs(call: &mut Call<'_>) -> Outcome {
    let registry = &call.server.registry;
    let (reply, names) = (&mut call.reply, &call.args[2..]);
    if names.is_empty() {
        registry.docs.append(reply, |reply| {
            reply.map(registry.top().count());
            for (_, command) in registry.top() {
                reply.bulk(command.full_name.as_bytes());
                docs::describe(reply, command);
            }
        });
        return Ok(());
    }
    let commands: Vec<_> = names.iter().filter_map(|name| registry.find_full(name)).collect();
    reply.map(commands.len());
    for command in commands {
        reply.bulk(command.full_name.as_bytes());
        command.docs.append(reply, |reply| docs::describe(reply, command));
    }
    Ok(())
}

/// `COMMAND LIST [FILTERBY MODULE name | ACLCAT category | PATTERN pattern]`.
fn list(call: &mut Call<'_>) -> Outcome {
    let pattern;
    let fits: &dyn Fn(&Registered) -> bool = match call.args[2..] {
        [] => &|_| true,
        [by, kind, value] if by.eq_ignore_ascii_case(b"filterby") => {
            match &*kind.to_ascii_lowercase() {
                // No modules can be loaded.
                b"module" => &|_| false,
                b"aclcat" => &move |command| {
                    let row = command.row;
                    let mut names = row.categories.complete(row.flags).names();
                    names.any(|name| name.as_bytes().eq_ignore_ascii_case(value))
                },
                b"pattern" => {
                    pattern = CaselessPattern::new(value);
                    &|command| pattern.matches(command.full_name.as_bytes())
                }
                _ => return Err(Failure::SYNTAX),
            }
        }
        _ => return Err(Failure::SYNTAX),
    };
    let reply = &mut call.reply;
    let names = reply.defer();
    let mut count = 0;
    for (_, command) in call.server.registry.top() {
        let all = std::iter::once(command).chain(command.subcommands.iter().copied());
        for command in all.filter(|command| fits(command)) {
            reply.bulk(command.full_name.as_bytes());
            count += 1;
        }
    }
    reply.finish_array(names, count);
    Ok(())
}

fn getkeys(call: &mut Call<'_>) -> Outcome {
    let keys = keys::of(call, 2)?;
    call.reply.array(keys.len());
    for (key, _) in keys {
        call.reply.bulk(key);
    }
    Ok(())
}

fn getkeysandflags(call: &mut Call<'_>) -> Outcome {
    let keys = keys::of(call, 2)?;
    call.reply.array(keys.len());
    for (key, usage) in keys {
        call.reply.array(2);
        call.reply.bulk(key);
        info::names(&mut call.reply, usage.names(), "");
    }
    Ok(())
}

const ANYTIME: Flags = Flags::LOADING.with(Flags::STALE);
const UNORDERED: &[&str] = &["nondeterministic_output_order"];

/// A subcommand.
const fn row(
    name: &'static str,
    arity: i32,
    handler: crate::engine::command::Handler,
    since: &'static str,
    complexity: &'static str,
    summary: &'static str,
) -> Command {
    Command::new(name, arity, handler)
        .flags(ANYTIME)
        .categories(Categories::CONNECTION)
        .doc("server", since, complexity, summary)
}

pub(super) const COMMANDS: &[Command] = &[Command::new("command", -1, command)
    .flags(ANYTIME)
    .categories(Categories::CONNECTION)
    .tips(UNORDERED)
    .doc("server", "2.8.13", "O(N), N: commands", "What there is to know of every command.")
    .subcommands(&[
        row("count", 2, count, "2.8.13", "O(1)", "How many commands there are."),
        row(
            "docs",
            -2,
            docs,
            "7.0.0",
            "O(N), N: commands asked for",
            "What commands do and take, for people.",
        )
        .tips(UNORDERED)
        .syntax("[command-name [command-name ...]]"),
        row(
            "getkeys",
            -3,
            getkeys,
            "2.8.13",
            "O(N), N: arguments of the command",
            "Which arguments of a command are keys.",
        )
        .syntax("command [arg [arg ...]]"),
        row(
            "getkeysandflags",
            -3,
            getkeysandflags,
            "7.0.0",
            "O(N), N: arguments of the command",
            "Which arguments of a command are keys, and what it does with them.",
        )
        .syntax("command [arg [arg ...]]"),
        help_row("server", "5.0.0").categories(Categories::CONNECTION),
        row(
            "info",
            -2,
            info,
            "2.8.13",
            "O(N), N: commands asked for",
            "What commands are and take, for programs.",
        )
        .tips(UNORDERED)
        .history(&[("7.0.0", "Without a name it tells of all commands.")])
        .syntax("[command-name [command-name ...]]"),
        row("list", -2, list, "7.0.0", "O(N), N: commands", "The names of commands.")
            .tips(UNORDERED)
            .syntax("[FILTERBY <MODULE module-name | ACLCAT category | PATTERN pattern>]"),
    ])];
