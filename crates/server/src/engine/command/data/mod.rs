//! The keys of a worker's selected database, as a handler sees them: with their shards held.
//!
//! Handlers never lock. The plan has locked the shards of the command's keys before (`HeldShards`),
//! and here every access finds its shard among them. That a key has expired is settled here too, so
//! that no handler ever sees a dead key.

mod change;
pub mod evictor;
mod expiry;
mod holding;
mod look;
mod notices;
mod record;
mod turn;
mod unit;
mod values;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use bobbin_store::{Gate, Hash, Keyspace, OwnedEntry};

use self::evictor::Evictor;
use self::holding::Holding;
pub use self::look::{Look, string};
use self::notices::Audience;
pub use self::turn::Deletes;
use self::turn::Turn;
pub use self::unit::{Suspended, Then, Unit};
use self::values::IncomingValues;
pub use self::values::OfferedValues;
use super::Registered;
use super::job::Job;
use super::plan::ShardSet;
use crate::base::random::Random;
use crate::engine::client::Client;
use crate::engine::log::Recorder;
use crate::engine::script::Lua;
use crate::engine::telemetry::stats::Totals;

/// A key of the command at hand, hashed once.
#[derive(Clone, Copy)]
pub struct Key<'a> {
    pub bytes: &'a [u8],
    pub hash: Hash,
}

/// The keys that a thread may reach, and what its commands do to them.
pub struct Data {
    holding: Holding,
    /// What is held and has been done.
    pub unit: Unit,
    pub turn: Turn,
    /// The selected database.
    pub database: u32,
    pub audience: Audience,
    pub random: Random,
    /// Where scripts run: the states that none uses.
    pub lua: Vec<Box<Lua>>,
    /// The command at hand: a script that pauses.
    pub paused: Option<Box<dyn Job>>,
    pub counters: Counters,
    pub evictor: Evictor,
    /// Passes to the log what it must hold of what happens to keys.
    pub recorder: Recorder,
    /// Says once that this thread must leave what it carries out: the server has another part.
    pub dismissed: Option<Arc<AtomicBool>>,
    values: IncomingValues,
    /// What no lock should be held for while it is freed.
    garbage: Vec<OwnedEntry>,
    /// Memory of plans that are done, for the next.
    pub shard_set: ShardSet,
}

/// What happened to keys since these were last collected.
#[derive(Default, Clone, Copy)]
pub struct Counters {
    pub hits: u64,
    pub misses: u64,
    pub expired: u64,
    /// Fields of hashes.
    pub expired_fields: u64,
    pub evicted: u64,
    /// Changes of keys.
    pub dirty: u64,
}

impl Counters {
    /// Adds them to a thread's statistics.
    pub fn add_to(self, totals: &Totals) {
        totals.keyspace_hits.add(self.hits);
        totals.keyspace_misses.add(self.misses);
        totals.expired_keys.add(self.expired);
        totals.expired_fields.add(self.expired_fields);
        totals.evicted_keys.add(self.evicted);
        totals.dirty.add(self.dirty);
    }
}

impl Data {
    /// For a thread of its own; `None` when there are too many threads.
    pub fn new(keyspace: &'static Keyspace, gate: &'static Gate, seed: u64) -> Option<Self> {
        let member = gate.join()?;
        Some(Self {
            holding: Holding::new(keyspace, gate, member),
            unit: Unit::default(),
            turn: Turn::default(),
            database: 0,
            audience: Audience::default(),
            random: Random::new(seed),
            lua: Vec::new(),
            paused: None,
            counters: Counters::default(),
            evictor: Evictor::default(),
            recorder: Recorder::default(),
            dismissed: None,
            values: IncomingValues::default(),
            garbage: Vec::new(),
            shard_set: ShardSet::default(),
        })
    }

    /// Works for a client from here on: in its database, and as it wants keys touched.
    #[inline(always)]
    pub fn follow_client(&mut self, client: &Client) {
        self.database = client.database;
        self.turn.touch = !client.no_touch;
    }

    /// Whether this thread must leave what it carries out.
    pub fn is_dismissed(&self) -> bool {
        self.dismissed.as_ref().is_some_and(|dismissed| dismissed.load(Ordering::SeqCst))
    }

    #[inline(always)]
    pub fn keyspace(&self) -> &'static Keyspace {
        self.holding.keyspace
    }

    /// Whether a command that runs a script is known to use only the keys that it declares.
    pub(super) fn runs_within_keys(&self, command: &Registered, args: &[&[u8]]) -> bool {
        let lua = self.lua.last();
        lua.is_some_and(|lua| lua.keeps_to_keys(command.row.name, args[1], self.holding.keyspace))
    }

    #[inline(always)]
    pub fn key<'a>(&self, bytes: &'a [u8]) -> Key<'a> {
        Key { bytes, hash: self.holding.keyspace.hash(bytes) }
    }

    /// Watches a key for its client; returns the version to compare with later.
    pub fn watch(&mut self, key: Key<'_>) -> u64 {
        let database = self.database;
        self.shard(key.hash.shard()).watch(database, key.bytes)
    }

    pub fn unwatch(&mut self, database: u32, key: Key<'_>) {
        self.shard(key.hash.shard()).unwatch(database, key.bytes);
    }

    /// The version of a key that is watched.
    pub fn watched_version(&mut self, database: u32, key: Key<'_>) -> Option<u64> {
        self.shard(key.hash.shard()).watched_version(database, key.bytes)
    }
}
