//! The reply of COMMAND DOCS for a command.

use bobbin_resp::{Aggregate, Reply};

use super::info;
use crate::engine::command::Registered;
use crate::engine::row::syntax::{self, Argument, ArgumentKind};

/// Appends a map of what the row says. Omits facts that the row does not have.
pub(super) fn describe(reply: &mut Reply<'_>, command: &Registered) {
    let row = command.row;
    let mut fields = 0;
    let map = reply.defer();
    let mut text = |reply: &mut Reply<'_>, name: &str, value: &str| {
        if !value.is_empty() {
            reply.bulk(name.as_bytes());
            reply.bulk(value.as_bytes());
            fields += 1;
        }
    };
    text(reply, "summary", row.summary);
    text(reply, "since", row.since);
    text(reply, "group", row.group);
    text(reply, "complexity", row.complexity);
    let is_system = SYSTEM_COMMANDS.contains(&command.full_name.as_str());
    if is_system || row.deprecated.is_some() {
        let flags = [(row.deprecated.is_some(), "deprecated"), (is_system, "syscmd")];
        reply.bulk(b"doc_flags");
        info::names(reply, flags.iter().filter(|(on, _)| *on).map(|(_, name)| *name), "");
        fields += 1;
    }
    if let Some((since, replacement)) = row.deprecated {
        for (name, value) in [("deprecated_since", since), ("replaced_by", replacement)] {
            reply.bulk(name.as_bytes());
            reply.bulk(value.as_bytes());
            fields += 1;
        }
    }
    if !row.history.is_empty() {
        reply.bulk(b"history");
        reply.set(row.history.len());
        for (version, change) in row.history {
            reply.array(2);
            reply.bulk(version.as_bytes());
            reply.bulk(change.as_bytes());
        }
        fields += 1;
    }
    if !row.syntax.is_empty() {
        let of = syntax::arguments(row.syntax, row.keys.len());
        arguments(reply, &of);
        fields += 1;
    }
    if !command.subcommands.is_empty() {
        reply.bulk(b"subcommands");
        reply.map(command.subcommands.len());
        for subcommand in &command.subcommands {
            reply.bulk(subcommand.full_name.as_bytes());
            describe(reply, subcommand);
        }
        fields += 1;
    }
    reply.finish(map, Aggregate::Map, fields);
}

fn arguments(reply: &mut Reply<'_>, arguments: &[Argument]) {
    reply.bulk(b"arguments");
    reply.array(arguments.len());
    for argument in arguments {
        describe_argument(reply, argument);
    }
}

fn describe_argument(reply: &mut Reply<'_>, argument: &Argument) {
    let mut fields = 2;
    let map = reply.defer();
    let text = |reply: &mut Reply<'_>, name: &str, value: &str| {
        reply.bulk(name.as_bytes());
        reply.bulk(value.as_bytes());
    };
    text(reply, "name", &argument.name);
    text(reply, "type", argument.kind.name());
    if !matches!(argument.kind, ArgumentKind::OneOf | ArgumentKind::Block) {
        text(reply, "display_text", &argument.display);
        fields += 1;
    }
    if let Some(spec) = argument.key_spec {
        reply.bulk(b"key_spec_index");
        reply.integer(spec as i64);
        fields += 1;
    }
    if let Some(token) = &argument.token {
        text(reply, "token", token);
        fields += 1;
    }
    for (name, version) in [("since", &argument.since), ("deprecated_since", &argument.deprecated)]
    {
        if let Some(version) = version {
            text(reply, name, version);
            fields += 1;
        }
    }
    let flags = [
        (argument.optional, "optional"),
        (argument.multiple, "multiple"),
        (argument.multiple_token, "multiple_token"),
    ];
    if flags.iter().any(|(on, _)| *on) {
        reply.bulk(b"flags");
        info::names(reply, flags.iter().filter(|(on, _)| *on).map(|(_, name)| *name), "");
        fields += 1;
    }
    if !argument.arguments.is_empty() {
        arguments(reply, &argument.arguments);
        fields += 1;
    }
    reply.finish(map, Aggregate::Map, fields);
}

/// Commands between servers, and for developers.
const SYSTEM_COMMANDS: &[&str] =
    &["cluster|syncslots", "debug", "pfdebug", "pfselftest", "replconf", "restore-asking"];
