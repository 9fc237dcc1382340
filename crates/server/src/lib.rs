//! The server: the process around the keyspace.

pub mod acl;
pub mod allocator;
pub mod aof;
mod background;
pub mod blocking;
pub mod client;
mod client_eviction;
pub mod clock;
pub mod command;
pub mod commands;
pub mod config;
pub mod cores;
pub mod crash;
pub mod eviction;
mod files;
pub mod glob;
pub mod histogram;
pub mod host;
pub mod hotkeys;
pub mod info;
pub mod latency;
pub mod lazyfree;
pub mod log;
pub mod logging;
pub mod lolwut;
pub mod memory;
mod metrics;
mod migration;
pub mod notify;
pub mod pause;
pub mod persistence;
mod pressure;
pub mod pubsub;
pub mod random;
pub mod rates;
pub mod script;
pub mod server;
pub mod services;
pub mod shutdown;
#[cfg(test)]
mod simulation;
pub mod slowlog;
pub mod start;
pub mod stats;
pub mod title;
mod tls;
pub mod tracking;
pub mod watchdog;
pub mod worker;

// For its fuzz target.
pub use migration::read_target_reply;
