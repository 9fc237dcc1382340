//! The server: the process around the keyspace.

pub mod client;
pub mod clock;
pub mod command;
pub mod commands;
pub mod config;
pub mod glob;
pub mod host;
pub mod io;
pub mod lazyfree;
pub mod logging;
pub mod memory;
pub mod pause;
pub mod random;
pub mod server;
pub mod start;
pub mod stats;
pub mod worker;
