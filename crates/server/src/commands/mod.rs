//! The commands, family by family. Each file holds its handlers, and ends in its rows.

use crate::command::Command;

mod bitmap;
mod client;
mod command;
mod config;
mod connection;
mod debug;
mod dump;
mod expire;
mod generic;
mod info;
mod latency;
mod memory;
pub(crate) mod monitor;
mod scan;
mod server;
mod slowlog;
mod string;
mod transaction;

pub use monitor::Monitors;

/// Every family's rows.
pub const FAMILIES: &[&[Command]] = &[
    bitmap::COMMANDS,
    client::COMMANDS,
    command::COMMANDS,
    config::COMMANDS,
    connection::COMMANDS,
    debug::COMMANDS,
    dump::COMMANDS,
    expire::COMMANDS,
    generic::COMMANDS,
    info::COMMANDS,
    latency::COMMANDS,
    memory::COMMANDS,
    monitor::COMMANDS,
    scan::COMMANDS,
    server::COMMANDS,
    slowlog::COMMANDS,
    string::COMMANDS,
    transaction::COMMANDS,
];
