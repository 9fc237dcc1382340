//! Commands for the server's administrator, family by family, and what they show.

use crate::engine::command::Command;

mod acl;
mod aof;
mod client;
mod cluster;
mod command;
mod config;
pub(crate) mod debug;
mod flush;
mod hotkeys;
pub mod info;
mod latency;
pub mod lolwut;
mod memory;
pub(crate) mod metrics;
mod module;
pub(crate) mod monitor;
mod persistence;
mod server;
mod shutdown;
mod slowlog;

/// Every family's rows.
pub const FAMILIES: &[&[Command]] = &[
    acl::COMMANDS,
    aof::COMMANDS,
    client::COMMANDS,
    cluster::COMMANDS,
    command::COMMANDS,
    config::COMMANDS,
    debug::COMMANDS,
    flush::COMMANDS,
    hotkeys::COMMANDS,
    info::COMMANDS,
    latency::COMMANDS,
    memory::COMMANDS,
    module::COMMANDS,
    monitor::COMMANDS,
    persistence::COMMANDS,
    server::COMMANDS,
    slowlog::COMMANDS,
];
