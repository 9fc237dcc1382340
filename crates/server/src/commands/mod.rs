//! The commands, family by family. Each file holds its handlers, and ends in its rows.

use crate::command::{Call, Command, Failure, Outcome};

mod acl;
mod aof;
mod bitmap;
mod choice;
mod client;
mod cluster;
mod command;
mod config;
mod connection;
pub(crate) mod debug;
mod dump;
mod element_scan;
mod elements;
mod expire;
mod flush;
mod function;
mod generic;
mod geo;
mod hash;
mod hotkeys;
mod hyperloglog;
mod info;
mod latency;
mod list;
mod memory;
mod migrate;
mod module;
pub(crate) mod monitor;
mod object;
mod persistence;
mod pubsub;
mod repeats;
mod replication;
mod scan;
mod scripting;
mod server;
mod set;
mod slowlog;
mod sort;
mod sorted_set;
mod stream;
mod string;
mod transaction;

pub use client::describe::{class as client_class, line as describe_client};
pub use client::kill_client;
pub(crate) use dump::{Pinned, target, version_check};
pub use monitor::Monitors;

/// Every family's rows.
pub const FAMILIES: &[&[Command]] = &[
    acl::COMMANDS,
    aof::COMMANDS,
    bitmap::COMMANDS,
    client::COMMANDS,
    cluster::COMMANDS,
    command::COMMANDS,
    config::COMMANDS,
    connection::COMMANDS,
    debug::COMMANDS,
    dump::COMMANDS,
    expire::COMMANDS,
    flush::COMMANDS,
    function::COMMANDS,
    generic::COMMANDS,
    geo::COMMANDS,
    hash::COMMANDS,
    hyperloglog::COMMANDS,
    hotkeys::COMMANDS,
    info::COMMANDS,
    latency::COMMANDS,
    list::COMMANDS,
    memory::COMMANDS,
    migrate::COMMANDS,
    module::COMMANDS,
    monitor::COMMANDS,
    object::COMMANDS,
    persistence::COMMANDS,
    pubsub::COMMANDS,
    replication::COMMANDS,
    scan::COMMANDS,
    scripting::COMMANDS,
    server::COMMANDS,
    set::COMMANDS,
    slowlog::COMMANDS,
    stream::COMMANDS,
    sort::COMMANDS,
    sorted_set::COMMANDS,
    string::COMMANDS,
    transaction::COMMANDS,
];

/// What a command that only holds others answers. Whoever names no subcommand is told so before.
fn container(call: &mut Call<'_>) -> Outcome {
    let name = &call.command.full_name;
    Err(Failure::format(format!("ERR wrong number of arguments for '{name}' command")))
}

/// Answers HELP of a container: its subcommands with their arguments, and a line or more on each
/// (an empty name goes on with the last one's).
fn help(call: &mut Call<'_>, subcommands: &[(&str, &str)]) -> Outcome {
    let name = String::from_utf8_lossy(call.args[0]).to_ascii_uppercase();
    let mut lines =
        vec![format!("{name} <subcommand> [<arg> [value] [opt] ...]. Subcommands are:")];
    for (usage, text) in subcommands.iter().chain(&[("HELP", "Tell what the subcommands do.")]) {
        if !usage.is_empty() {
            lines.push((*usage).to_owned());
        }
        lines.push(format!("    {text}"));
    }
    call.reply.array(lines.len());
    lines.iter().for_each(|line| call.reply.simple(line));
    Ok(())
}
