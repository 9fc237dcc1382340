//! The keyspace of Bobbin: shards, their locks, tables, entries and values.
//!
//! The crate has no sockets, no commands and no clock: the caller passes the time and the seeds in.
//! A key belongs to one [`Shard`](shard::Shard), which its hash chooses. The thread that holds the
//! shard's lock may do anything with the shard's keys, in every database.

pub mod cut;
pub mod entry;
pub mod gate;
pub mod geo;
pub mod hash;
pub mod hyperloglog;
pub mod keyspace;
pub mod log;
pub mod shard;
pub mod table;
pub mod trim;
pub mod value;

pub use cut::{ByDatabase, Census, Cut, CutDatabase};
pub use entry::access::{AccessClock, AccessPolicy};
pub use entry::{EntryMut, EntryRef, KEY_LEN_MAX, NewValue, OwnedEntry, ValueRef};
pub use gate::{Gate, GateGuard, Member};
pub use hash::{Hasher, KeyHash};
pub use keyspace::{Keyspace, SHARDS, ShardGuard, next_in_bits};
pub use shard::{CutHandle, Database, Piece, Shard};
pub use value::{DefragCursor, Defragmenter, Encoding, ValueType};
