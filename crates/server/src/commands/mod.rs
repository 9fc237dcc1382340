//! The commands, family by family. Each file has its handlers, and ends with its rows.

use crate::engine::command::Command;

mod bitmap;
mod choice;
mod connection;
mod dump;
mod element_scan;
mod elements;
mod expire;
mod freeing;
mod function;
mod generic;
mod geo;
mod hash;
mod hyperloglog;
mod list;
pub(crate) mod migrate;
mod object;
mod popping;
mod pubsub;
mod random_key;
pub(crate) mod repeats;
mod runs;
mod scan;
mod scan_options;
mod scripting;
mod set;
mod sort;
mod sorted_set;
mod stream;
mod string;
mod transaction;

pub(crate) use connection::list_modules;
pub(crate) use dump::{PinnedValue, target, version_check};

/// The rows of all families.
pub const FAMILIES: &[&[Command]] = &[
    bitmap::COMMANDS,
    connection::COMMANDS,
    dump::COMMANDS,
    expire::COMMANDS,
    function::COMMANDS,
    generic::COMMANDS,
    geo::COMMANDS,
    hash::COMMANDS,
    hyperloglog::COMMANDS,
    list::COMMANDS,
    migrate::COMMANDS,
    object::COMMANDS,
    pubsub::COMMANDS,
    random_key::COMMANDS,
    scan::COMMANDS,
    scripting::COMMANDS,
    set::COMMANDS,
    stream::COMMANDS,
    sort::COMMANDS,
    sorted_set::COMMANDS,
    string::COMMANDS,
    transaction::COMMANDS,
];
