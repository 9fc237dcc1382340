//! The server: the process around the keyspace.
//!
//! The folders are layers. Each uses only those above it in this list.

pub mod base;
pub mod config;
pub mod system;

pub mod engine;

pub mod commands;

pub mod persistence;

pub mod replication;

pub mod worker;

pub mod admin;

pub mod process;

/// A server without threads and sockets, for tests.
pub mod embedded;

#[cfg(test)]
mod simulation;

// For its fuzz target.
pub use commands::migrate::read_target_reply;
