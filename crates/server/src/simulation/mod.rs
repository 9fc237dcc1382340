//! A process that a test drives turn by turn: real workers, the real writer of the log, rewrites
//! and snapshots, with a clock, connections and a disk that the test supplies ([`process`],
//! `io/memory.rs`, [`disk`]).
//!
//! [`promises`] draws at random what happens, and lets the power go at any moment. [`visits`] has
//! clients come, order anything and go, and sees that nothing is left of them. What may hang
//! has a thread of its own, which takes turns with the test's ([`hands`]); what measures by the
//! counter of ticks has one that a seed moves ([`ticks`]).

mod accepting;
mod admission;
mod blocking;
mod cells;
mod directories;
pub mod disk;
mod ending;
mod expiring_fields;
mod following;
mod full_disks;
mod hands;
mod help;
mod jobs;
mod listeners;
mod log_files;
mod long_commands;
mod memory;
mod pausing;
pub mod process;
mod promises;
mod replayed;
mod reply;
mod saving;
mod scripts;
mod searches;
mod snapshots;
mod stage;
pub mod tasks;
pub mod ticks;
mod visits;
pub mod waits;

/// What a process panics with instead of exiting.
pub struct Exits;
