//! The keyspace of Bobbin: shards, their locks, tables, entries and values.
//!
//! It knows no sockets, no commands and no clock: whoever calls passes the time and the seeds in.
//! A key belongs to one [`Shard`](shard::Shard), chosen by its hash; who holds the shard's lock may
//! do anything with the shard's keys, in every database.

pub mod access;
pub mod cut;
pub mod entry;
pub mod expiry;
pub mod gate;
pub mod geo;
pub mod hash;
pub mod hyperloglog;
pub mod keyspace;
pub mod log;
pub mod shard;
pub mod table;
pub mod tracked;
pub mod value;
pub mod watch;

pub use access::{AccessClock, AccessPolicy};
pub use cut::{Cut, CutDatabase, CutHandle, Piece};
pub use entry::{Encoding, EntryMut, EntryRef, KEY_LEN_MAX, Kind, NewValue, OwnedEntry, ValueRef};
pub use gate::{Gate, GateGuard, Member};
pub use hash::{Hash, Hasher};
pub use keyspace::{Keyspace, SHARDS, ShardGuard};
pub use shard::{Database, Shard};
