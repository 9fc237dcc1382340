//! The keys as a handler sees them: those of the selected database, with their shards locked.
//!
//! Handlers never lock. The plan has locked the shards of the command's keys before (`HeldShards`),
//! and every access here finds its shard among them. Expired keys are settled here too, so that no
//! handler sees a dead key.

mod change;
mod conditions;
pub mod evictor;
mod expiry;
mod gathered;
mod holding;
mod look;
mod notices;
mod record;
mod unit;
mod values;

use std::hash::{Hash, Hasher};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use bobbin_store::trim::{Trim, kept_max};
use bobbin_store::{Gate, KeyHash, Keyspace, OwnedEntry};

use self::conditions::Conditions;
pub use self::conditions::Deletes;
use self::evictor::Evictor;
pub use self::gathered::Notices;
use self::holding::Holding;
pub use self::look::{Look, string};
use self::notices::Audience;
pub use self::unit::{Suspended, Then, Unit};
use self::values::IncomingValues;
pub use self::values::OfferedValues;
use super::Registered;
use super::plan::ShardSet;
use crate::base::random::Random;
use crate::engine::client::Client;
use crate::engine::log::Recorder;
use crate::engine::script::Lua;
use crate::engine::telemetry::stats::Totals;

/// A key of the current command, with its hash.
#[derive(Clone, Copy, Eq)]
pub struct Key<'a> {
    pub bytes: &'a [u8],
    pub hash: KeyHash,
}

impl PartialEq for Key<'_> {
    fn eq(&self, other: &Self) -> bool {
        self.hash == other.hash && self.bytes == other.bytes
    }
}

impl Hash for Key<'_> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u64(self.hash.0);
    }
}

/// What a thread needs to execute commands: the locked shards, the unit, the time, the log.
pub struct Data {
    holding: Holding,
    /// The locked shards, and what the unit has done so far.
    pub unit: Unit,
    pub conditions: Conditions,
    /// The selected database.
    pub database: u32,
    pub audience: Audience,
    pub random: Random,
    /// The idle Lua states, in which scripts run.
    pub lua: Vec<Box<Lua>>,
    pub counters: Counters,
    pub evictor: Evictor,
    /// Passes the effects of commands to the log.
    pub recorder: Recorder,
    /// Set once this thread must stop what it executes, because the server has changed its role.
    pub dismissed: Option<Arc<AtomicBool>>,
    values: IncomingValues,
    /// Entries to free when no lock is held.
    garbage: Vec<OwnedEntry>,
    /// Memory of earlier plans, for the next one.
    pub shard_set: ShardSet,
}

/// What happened to keys since the counters were last collected.
#[derive(Default, Clone, Copy)]
pub struct Counters {
    pub hits: u64,
    pub misses: u64,
    pub expired: u64,
    /// Expired fields of hashes.
    pub expired_fields: u64,
    pub evicted: u64,
    /// The number of changes of keys.
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
    /// Data for a thread; `None` if there are too many threads.
    pub fn new(keyspace: &'static Keyspace, gate: &'static Gate, seed: u64) -> Option<Self> {
        let member = gate.join()?;
        Some(Self {
            holding: Holding::new(keyspace, gate, member),
            unit: Unit::default(),
            conditions: Conditions::default(),
            database: 0,
            audience: Audience::default(),
            random: Random::new(seed),
            lua: Vec::new(),
            counters: Counters::default(),
            evictor: Evictor::default(),
            recorder: Recorder::default(),
            dismissed: None,
            values: IncomingValues::default(),
            garbage: Vec::new(),
            shard_set: ShardSet::default(),
        })
    }

    /// Takes over a client's database, and whether its reads count as use.
    #[inline(always)]
    pub fn follow_client(&mut self, client: &Client) {
        self.database = client.database;
        self.conditions.touch = !client.no_touch;
    }

    /// From here on, nothing that the current command does counts as use: it has looked at its keys
    /// once, and does so again.
    #[inline(always)]
    pub const fn count_no_more_use(&mut self) {
        self.conditions.touch = false;
    }

    /// Gives memory back that a rare, large command or unit needed. To be called from time to time,
    /// between units.
    pub fn rest(&mut self) {
        self.unit.work.notices.rest();
        self.unit.work.ready.rest();
        self.shard_set.rest();
        self.values.rest();
        self.garbage.trim(kept_max::<OwnedEntry>());
        if let Some(subscribers) = &mut self.audience.subscribers {
            subscribers.rest();
        }
    }

    /// Whether this thread must stop what it executes.
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

    /// Watches a key for a client. Returns the version to compare with later.
    pub fn watch(&mut self, key: Key<'_>) -> u64 {
        let database = self.database;
        self.shard(key.hash.shard()).watch(database, key.bytes)
    }

    /// Ends a watch, and returns the version to compare with.
    pub fn unwatch(&mut self, database: u32, key: Key<'_>) -> Option<u64> {
        self.shard(key.hash.shard()).unwatch(database, key.bytes)
    }

    /// The version of a watched key.
    pub fn watched_version(&mut self, database: u32, key: Key<'_>) -> Option<u64> {
        self.shard(key.hash.shard()).watched_version(database, key.bytes)
    }
}

#[cfg(test)]
mod tests {
    use crate::config::Config;
    use crate::embedded::Embedded;
    use crate::engine::log::append_command;

    #[test]
    fn the_memory_of_a_rare_large_command_is_given_back() {
        const KEYS: usize = 50_000;
        let mut embedded = Embedded::new(Config::new(), 1).expect("it starts");
        let mut session = embedded.connect();
        embedded.feed(&mut session, b"HELLO 3\r\nCLIENT TRACKING ON BCAST\r\n");
        let keys: Vec<String> = (0..KEYS).map(|key| key.to_string()).collect();
        let mut words = vec![&b"MSET"[..]];
        words.extend(keys.iter().flat_map(|key| [key.as_bytes(), b"v"]));
        let mut request = Vec::new();
        append_command(&mut request, &words);
        embedded.feed(&mut session, &request);
        let data = embedded.data();
        let capacity = |data: &mut super::Data| {
            let notices = data.unit.work.notices.take();
            let kept = [notices.capacity(), data.shard_set.hashes.capacity()];
            data.unit.work.notices.put_back(notices);
            kept
        };
        assert!(capacity(data).iter().all(|capacity| *capacity >= KEYS));
        data.rest();
        let kept = capacity(data);
        assert!(kept.iter().all(|capacity| *capacity < KEYS / 4), "{kept:?}");
    }
}
