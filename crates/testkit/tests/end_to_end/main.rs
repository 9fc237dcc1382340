//! The server from outside: tests that run Bobbin, mostly beside a real Valkey, and talk to it.
//! `cargo xtask end-to-end` runs them, file by file; what they use, `cargo xtask peers` installs.

mod common;
mod consistency;
mod latency;
mod persistence;
mod process;
mod replication;
mod security;
