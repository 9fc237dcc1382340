//! A process that a test drives turn by turn: real workers, the real writer of the log, rewrites and snapshots, with
//! a clock, connections and a disk that the test supplies ([`process`], `io/memory.rs`, [`disk`]).
//!
//! [`promises`] draws at random what happens, and lets the power go at any moment.

mod admission;
mod blocking;
mod cells;
pub mod disk;
mod hands;
mod process;
mod promises;
mod reply;
mod saving;
pub mod tasks;
pub mod ticks;
pub mod waits;

/// What a process panics with instead of exiting.
pub struct Exits;
