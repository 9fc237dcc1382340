//! The commands, family by family. Each file holds its handlers, and ends in its rows.

use crate::command::Command;

mod connection;
mod string;
mod transaction;

/// Every family's rows.
pub const FAMILIES: &[&[Command]] =
    &[connection::COMMANDS, string::COMMANDS, transaction::COMMANDS];
