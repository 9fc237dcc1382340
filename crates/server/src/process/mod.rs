//! The process: how it starts, what watches over it, and how it ends.

pub mod crash;
pub mod shutdown;
pub mod start;
pub mod watchdog;

use crate::engine::command::Command;
use crate::{admin, commands};

/// The rows of all commands, family by family.
pub fn families() -> Vec<&'static [Command]> {
    [commands::FAMILIES, admin::FAMILIES].concat()
}
