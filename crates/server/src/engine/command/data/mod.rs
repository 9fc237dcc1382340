//! The keys of a worker's selected database, as a handler sees them: with their shards held.
//!
//! Handlers never lock. The plan has locked the shards of the command's keys before (`HeldShards`),
//! and here every access finds its shard among them. That a key has expired is settled here too, so
//! that no handler ever sees a dead key.

mod change;
mod expiry;
mod holding;
mod look;
mod notices;
mod record;
mod unit;
mod values;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use bobbin_store::entry::Shared;
use bobbin_store::{
    AccessClock, AccessPolicy, Gate, Hash, Keyspace, Member, OwnedEntry, ShardGuard,
};

use self::holding::LookedAt;
pub use self::look::string;
pub use self::unit::{Suspended, Then, Unit};
use super::Registered;
use super::plan::ShardSet;
use crate::base::clock::ticks;
use crate::base::random::Random;
use crate::engine::eviction::Evictor;
use crate::engine::log::Recorder;
use crate::engine::pubsub::Subscribers;
use crate::engine::pubsub::notify::Classes;
use crate::engine::script::{Lua, PausedScript};
use crate::engine::server::Server;
use crate::engine::telemetry::stats::Totals;
use crate::engine::tracking::Tracker;

/// A key of the command at hand, hashed once.
#[derive(Clone, Copy)]
pub struct Key<'a> {
    pub bytes: &'a [u8],
    pub hash: Hash,
}

/// The keys that a thread may reach, and what its commands do to them.
pub struct Data {
    keyspace: &'static Keyspace,
    gate: &'static Gate,
    member: Member<'static>,
    /// What is held and has been done.
    pub unit: Unit,
    /// The selected database.
    pub database: u32,
    /// The time that decides which keys have expired. It does not change during a transaction.
    pub now_ms: i64,
    /// When `now_ms` must be read again, in ticks.
    pub current_until: u64,
    pub clock: AccessClock,
    /// Something was waited for, which may have taken long: what was checked before has to be
    /// checked again, by the time of now.
    pub waited: bool,
    /// Whether reading an entry counts as using it.
    pub touch: bool,
    /// Whether dead keys may be taken out; while clients are paused they are only passed over.
    pub may_expire: bool,
    /// Whether the client at hand sees keys and fields after their time: a log's, a primary's, or
    /// the source of an import.
    pub sees_dead: bool,
    /// Which events somebody listens to.
    pub event_classes: Classes,
    /// What this worker's clients listen to; `None`: there are no clients.
    pub subscribers: Option<Box<Subscribers>>,
    /// Telling clients that keep copies of keys; `None`: there are no clients.
    pub tracker: Option<Box<Tracker>>,
    /// Some of them want to be told of all changes.
    broadcasts: bool,
    /// The client whose job is at work, by number; 0: none.
    pub working_for: u64,
    /// The client that keys are evicted for, if it keeps copies; 0: none.
    pub evicting_for: u64,
    pub random: Random,
    /// Where scripts run: the states that none uses.
    pub lua: Vec<Box<Lua>>,
    /// The command at hand: a script that pauses.
    pub paused: Option<Box<PausedScript>>,
    pub counters: Counters,
    pub evictor: Evictor,
    /// Passes to the log what it must hold of what happens to keys.
    pub recorder: Recorder,
    /// Until when (Unix ms) writes wait at most for a cut that is walked.
    pub held_up_until_ms: i64,
    /// A log is being carried out: nothing is dead, however old.
    pub loading: bool,
    /// Says once that this thread must leave what it carries out: the server has another part.
    pub dismissed: Option<Arc<AtomicBool>>,
    /// What a deletion that is no command's comes to in the log.
    pub deletes: Deletes,
    /// What no lock should be held for while it is freed.
    garbage: Vec<OwnedEntry>,
    /// Large arguments of the command at hand, copied before its shards were locked.
    prepared: Vec<(usize, Shared)>,
    /// Large arguments that were received as what they may become: values.
    offered: Vec<Shared>,
    /// Memory of plans that are done, for the next.
    pub shard_set: ShardSet,
    guards: Vec<ShardGuard<'static>>,
    /// Which of many held shards was looked at last.
    recent: usize,
    /// Which were looked at with the gate held.
    looked_at: LookedAt,
}

/// How long the time that was read last may be worked by, in microseconds.
const CURRENT_US: u64 = 1000;

/// DEL or UNLINK, by what the options of lazy freeing say; replicas follow suit.
#[derive(Clone, Copy)]
pub struct Deletes {
    /// Of what expired.
    pub expired: &'static [u8],
    pub evicted: &'static [u8],
    /// Of what a command left without contents.
    pub emptied: &'static [u8],
}

impl Default for Deletes {
    fn default() -> Self {
        Self { expired: b"UNLINK", evicted: b"UNLINK", emptied: b"UNLINK" }
    }
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
            keyspace,
            gate,
            member,
            unit: Unit::default(),
            database: 0,
            now_ms: 0,
            current_until: u64::MAX,
            clock: AccessClock::new(AccessPolicy::Lru, 0),
            waited: false,
            touch: true,
            may_expire: true,
            sees_dead: false,
            event_classes: Classes::NONE,
            subscribers: None,
            tracker: None,
            broadcasts: false,
            working_for: 0,
            evicting_for: 0,
            random: Random::new(seed),
            lua: Vec::new(),
            paused: None,
            counters: Counters::default(),
            evictor: Evictor::default(),
            recorder: Recorder::default(),
            held_up_until_ms: 0,
            loading: false,
            dismissed: None,
            deletes: Deletes::default(),
            garbage: Vec::new(),
            prepared: Vec::new(),
            offered: Vec::new(),
            shard_set: ShardSet::default(),
            guards: Vec::new(),
            recent: 0,
            looked_at: LookedAt::default(),
        })
    }

    /// Works by the time of now.
    #[inline]
    pub fn refresh_time(&mut self, server: &Server) {
        self.waited = false;
        self.current_until = ticks() + server.clock.ticks(CURRENT_US);
        self.now_ms = server.clock.advance();
        self.clock = server.access_clock(self.now_ms);
    }

    /// Takes up what the configuration and the server's role say now: whether keys expire, which
    /// events are published, how values are deleted, whether the log has timestamps.
    pub fn follow_config(&mut self, server: &Server) {
        self.may_expire = server.may_expire(self.now_ms);
        self.sees_dead = self.loading;
        self.event_classes = server.event_classes();
        self.deletes = server.deletes();
        if self.is_logged() {
            let wanted = server.config.aof_timestamp_enabled();
            self.recorder.stamp(if wanted { self.now_ms / 1000 } else { 0 });
        }
    }

    /// Whether this thread must leave what it carries out.
    pub fn is_dismissed(&self) -> bool {
        self.dismissed.as_ref().is_some_and(|dismissed| dismissed.load(Ordering::SeqCst))
    }

    #[inline(always)]
    pub fn keyspace(&self) -> &'static Keyspace {
        self.keyspace
    }

    /// Whether a command that runs a script is known to use only the keys that it declares.
    pub(super) fn runs_within_keys(&self, command: &Registered, args: &[&[u8]]) -> bool {
        let lua = self.lua.last();
        lua.is_some_and(|lua| lua.keeps_to_keys(command.row.name, args[1], self.keyspace))
    }

    #[inline(always)]
    pub fn key<'a>(&self, bytes: &'a [u8]) -> Key<'a> {
        Key { bytes, hash: self.keyspace.hash(bytes) }
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
