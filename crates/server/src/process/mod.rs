//! The process: its start, its supervision, and its end.

mod announce;
pub mod check_aof;
pub mod check_config;
pub mod check_rdb;
pub mod crash;
#[cfg(test)]
mod reference;
pub mod shutdown;
pub mod signals;
pub mod start;

pub use self::start::create;
use crate::engine::command::Command;
use crate::{admin, commands, replication};

/// The rows of all commands, family by family.
pub fn families() -> Vec<&'static [Command]> {
    [commands::FAMILIES, &[replication::commands::COMMANDS], admin::FAMILIES].concat()
}
