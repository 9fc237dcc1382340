//! Keyspace events: what happens to keys, for whoever listens.
//!
//! A handler says what it did (`Data::event`). Without listeners that costs one comparison; with them the events
//! of a command are published before its shards are unlocked, so that they come in the order of the changes.

use crate::command::flags::bits;

bits! {
    /// Classes of events, each with its letter of `notify-keyspace-events`.
    Classes: u32 {
        /// Channels by key: `__keyspace@<db>__:<key>`.
        KEYSPACE = "K",
        /// Channels by event: `__keyevent@<db>__:<event>`.
        KEYEVENT = "E",
        GENERIC = "g",
        STRING = "$",
        LIST = "l",
        SET = "s",
        HASH = "h",
        SORTED_SET = "z",
        EXPIRED = "x",
        EVICTED = "e",
        STREAM = "t",
        MISS = "m",
        MODULE = "d",
        NEW = "n",
    }
}

/// One thing that happened to a key.
#[derive(Debug)]
pub struct Event {
    pub class: Classes,
    pub name: &'static str,
    pub database: u32,
    pub key: Box<[u8]>,
}
