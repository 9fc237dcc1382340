//! The server: the process around the keyspace.

pub mod allocator;
pub mod client;
pub mod clock;
pub mod command;
pub mod commands;
pub mod config;
pub mod eviction;
pub mod glob;
pub mod histogram;
pub mod host;
pub mod io;
pub mod latency;
pub mod lazyfree;
pub mod logging;
pub mod lolwut;
pub mod memory;
pub mod random;
pub mod rates;
pub mod server;
pub mod services;
pub mod shutdown;
pub mod slowlog;
pub mod start;
pub mod stats;
pub mod worker;
