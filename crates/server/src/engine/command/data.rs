//! The keys of a worker's selected database, as a handler sees them: with their shards held.
//!
//! Handlers never lock. The plan has locked the shards of the command's keys before (`Held`), and
//! here every access finds its shard among them. That a key has expired is settled here too, so
//! that no handler ever sees a dead key.

mod expiry;
mod holding;
mod notices;
mod unit;

use std::collections::VecDeque;

use bobbin_store::entry::{INLINE_MAX, Shared};
use bobbin_store::shard::{Database, Expire};
use bobbin_store::table::Place;
use bobbin_store::value::{AnyCollection, Collection, StringRef};
use bobbin_store::{
    AccessClock, AccessPolicy, EntryMut, EntryRef, Gate, Hash, Keyspace, Kind, Member, NewValue,
    OwnedEntry, Shard, ShardGuard, ValueRef,
};

use self::holding::Held;
use self::holding::LookedAt;
pub use self::unit::{Suspended, Then, Unit};
use super::call::ShardSet;
use super::{Failure, Registered, Values};
use crate::base::clock::ticks;
use crate::base::random::Random;
use crate::engine::eviction::Evictor;
use crate::engine::log::Recorder;
use crate::engine::pubsub::Subscribers;
use crate::engine::pubsub::notify::{Classes, Event};
use crate::engine::script::{Lua, Paused};
use crate::engine::server::Server;
use crate::engine::tracking::{Notice, Tracker};

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
    pub paused: Option<Box<Paused>>,
    pub counters: Counters,
    pub evictor: Evictor,
    /// Passes to the log what it must hold of what happens to keys.
    pub recorder: Recorder,
    /// Until when (Unix ms) writes wait at most for a cut that is walked.
    pub held_up_until_ms: i64,
    /// A log is being carried out: nothing is dead, however old.
    pub loading: bool,
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
        self.event_classes = server.event_classes();
        self.deletes = server.deletes();
        if self.is_logged() {
            let wanted = server.config.aof_timestamp_enabled();
            self.recorder.stamp(if wanted { self.now_ms / 1000 } else { 0 });
        }
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

    // What is logged.

    /// Whether what changes is logged.
    #[inline(always)]
    pub const fn is_logged(&self) -> bool {
        self.recorder.is_on()
    }

    /// What the log gets instead of the command as it came.
    #[inline(always)]
    pub fn propagate(&mut self, args: &[&[u8]]) {
        self.unit.effects.be_explicit();
        self.log(args);
    }

    /// Logs that the command let a key expire at once.
    pub fn propagate_expired(&mut self, key: Key<'_>) {
        let command = self.deletes.expired;
        self.propagate(&[command, key.bytes]);
    }

    /// The command as it came must not be logged, whatever it changed.
    #[inline(always)]
    pub fn propagate_nothing(&mut self) {
        self.unit.effects.be_explicit();
    }

    /// Logs a command that is done: itself (`wire`: its bytes, if they lie in one piece), if it
    /// changed something and did not say what else to log. `alone`: it is a unit; its number is
    /// returned if it has one already.
    pub fn log_command(
        &mut self,
        args: &[&[u8]],
        wire: &[u8],
        changed: bool,
        alone: bool,
    ) -> Option<u64> {
        self.unit.note_logged();
        if !changed || self.unit.effects.is_explicit() {
            return None;
        }
        if alone && self.unit.effects.is_empty() {
            let number = self.recorder.record_alone(self.database, args, wire);
            if number.is_some() {
                return number;
            }
        }
        self.recorder.add(&mut self.unit.effects, self.database, args);
        None
    }

    /// Adds to what is logged, beside the command at hand.
    pub fn log(&mut self, args: &[&[u8]]) {
        self.log_in(self.database, args);
    }

    /// Logs a command of any database, in addition to the command at hand.
    fn log_in(&mut self, database: u32, args: &[&[u8]]) {
        if self.recorder.is_on() {
            self.unit.note_logged();
            self.recorder.add(&mut self.unit.effects, database, args);
        }
    }

    /// Logs that a key went by itself.
    #[cold]
    fn log_expired(&mut self, database: u32, key: &[u8]) {
        self.log_in(database, &[self.deletes.expired, key]);
    }

    #[cold]
    fn dispose(&mut self) {
        for entry in self.garbage.drain(..) {
            crate::engine::lazyfree::free(entry);
        }
    }

    // Values on their way in.

    /// Copies those of the arguments that become values and are too long to lie in an entry.
    /// Nothing is held meanwhile: a large copy takes the kernel's time as well.
    #[inline(always)]
    pub(super) fn prepare(&mut self, values: Values, args: &[&[u8]]) {
        let long = |at: usize| args.get(at).is_some_and(|arg| arg.len() > INLINE_MAX);
        if values.step == 0 {
            if long(values.first) {
                self.prepare_one(values.first, args[values.first]);
            }
            return;
        }
        for at in (values.first..args.len()).step_by(values.step) {
            if long(at) {
                self.prepare_one(at, args[at]);
            }
        }
    }

    #[cold]
    fn prepare_one(&mut self, at: usize, argument: &[u8]) {
        self.release();
        let shared = self.offered(argument).unwrap_or_else(|| Shared::new(argument.to_vec()));
        self.prepared.push((at, shared));
    }

    /// The argument, if it is one that need not be copied.
    pub(super) fn offered(&self, argument: &[u8]) -> Option<Shared> {
        let same = |offered: &&Shared| std::ptr::eq(offered.as_slice(), argument);
        self.offered.iter().find(same).map(Shared::clone)
    }

    /// Arguments of the commands to come that need not be copied. They may be shared for as long as
    /// any slice of them is in use.
    pub fn offer<'a>(&mut self, arguments: impl Iterator<Item = &'a Shared>) {
        self.offered.clear();
        self.offered.extend(arguments.cloned());
    }

    /// The copy of the argument at `at`, if one was prepared.
    pub(super) fn take_prepared(&mut self, at: usize) -> Option<Shared> {
        let found = self.prepared.iter().position(|(index, _)| *index == at)?;
        Some(self.prepared.swap_remove(found).1)
    }

    /// Drops what the command did not take.
    #[inline(always)]
    pub(super) fn end_prepared(&mut self) {
        if !self.prepared.is_empty() {
            self.prepared.clear();
        }
    }

    // Looking.

    /// Where the key lies, if it is alive. A dead one is taken out.
    #[inline(always)]
    fn live(&mut self, key: Key<'_>) -> Option<Place> {
        let (now_ms, database) = (self.now_ms, self.database);
        let database = self.shard(key.hash.shard()).database(database)?;
        let place = database.find(key.hash, key.bytes)?;
        match database.entry(place).expire_ms() {
            Some(expire_ms) if expire_ms <= now_ms && !self.loading => {
                self.expire(key, place);
                None
            }
            _ => Some(place),
        }
    }

    #[cold]
    fn expire(&mut self, key: Key<'_>, place: Place) {
        if !self.may_expire {
            return;
        }
        let hasher = self.keyspace.hasher();
        let entry = self.database_of(key.hash).remove(place, hasher);
        self.discard(entry);
        self.counters.expired += 1;
        self.log_expired(self.database, key.bytes);
        if self.shard(key.hash.shard()).has_watched() | self.broadcasts {
            self.tell_changed(self.database, key, false);
        }
        self.event(Classes::EXPIRED, "expired", key);
    }

    /// Whether a key, or a field, with this expiry is dead.
    #[inline]
    pub const fn is_past(&self, expire_ms: i64) -> bool {
        expire_ms <= self.now_ms && !self.loading
    }

    /// The time by which fields live or die; keys are seen to here.
    #[inline]
    pub const fn dead_ms(&self) -> i64 {
        if self.loading { i64::MIN } else { self.now_ms }
    }

    /// The key's entry, without counting as a use of it.
    #[inline]
    pub fn peek(&mut self, key: Key<'_>) -> Option<EntryRef<'_>> {
        let place = self.live(key)?;
        Some(self.database_of(key.hash).entry(place))
    }

    #[inline]
    pub fn exists(&mut self, key: Key<'_>) -> bool {
        self.live(key).is_some()
    }

    /// The key's entry: a hit or a miss, but not a use of it.
    #[inline]
    pub fn look(&mut self, key: Key<'_>) -> Option<EntryRef<'_>> {
        let Some(place) = self.live(key) else {
            self.missed(key);
            return None;
        };
        self.counters.hits += 1;
        Some(self.database_of(key.hash).entry(place))
    }

    /// The key's entry for OBJECT. It is like `look`, but a miss is not reported as an event.
    pub fn inspect(&mut self, key: Key<'_>) -> Option<EntryRef<'_>> {
        if self.live(key).is_none() {
            self.counters.misses += 1;
            return None;
        }
        self.look(key)
    }

    #[inline(always)]
    fn missed(&mut self, key: Key<'_>) {
        self.counters.misses += 1;
        self.event(Classes::MISS, "keymiss", key);
    }

    /// The key's entry for reading: a hit or a miss, and a use of it.
    #[inline(always)]
    pub fn read(&mut self, key: Key<'_>) -> Option<EntryRef<'_>> {
        let Some(place) = self.live(key) else {
            self.missed(key);
            return None;
        };
        self.counters.hits += 1;
        Some(self.used::<false>(key, place).into_ref())
    }

    /// The key's entry for changing in place; a use of it. Whoever changes it calls `changed`.
    #[inline(always)]
    pub fn write(&mut self, key: Key<'_>) -> Option<EntryMut<'_>> {
        let place = self.live(key)?;
        Some(self.used::<true>(key, place))
    }

    /// `CHANGES`: the value may be changed.
    #[inline(always)]
    fn used<const CHANGES: bool>(&mut self, key: Key<'_>, place: Place) -> EntryMut<'_> {
        let (clock, touch, hasher) = (self.clock, self.touch, self.keyspace.hasher());
        // Drawn even if it is not needed: that is cheaper than borrowing twice.
        let random = match clock.policy {
            AccessPolicy::Lru => 0,
            AccessPolicy::Lfu { .. } => self.random.next_u32(),
        };
        let database = self.database_of(key.hash);
        let mut entry =
            if CHANGES { database.change(place, hasher) } else { database.entry_mut(place) };
        if touch {
            let before = entry.as_ref().access();
            let access = clock.touched(before, || random);
            if access != before {
                entry.set_access(access);
            }
        }
        entry
    }

    /// The string at the key for reading, as `read`; an error if it holds something else.
    #[inline(always)]
    pub fn read_string(&mut self, key: Key<'_>) -> Result<Option<StringRef<'_>>, Failure> {
        self.read(key).map(string).transpose()
    }

    /// The entry of the string at the key for reading, as `read`; an error if it holds something
    /// else.
    #[inline(always)]
    pub fn read_string_entry(&mut self, key: Key<'_>) -> Result<Option<EntryRef<'_>>, Failure> {
        match self.read(key) {
            Some(entry) if entry.kind() != Kind::String => Err(Failure::WRONG_TYPE),
            entry => Ok(entry),
        }
    }

    /// The collection at the key for reading, as `read`; an error if it holds something else.
    #[inline(always)]
    pub fn read_as<T: Collection + 'static>(
        &mut self,
        key: Key<'_>,
    ) -> Result<Option<&T>, Failure> {
        match self.read(key) {
            Some(entry) => entry.collection().map(Some).ok_or(Failure::WRONG_TYPE),
            None => Ok(None),
        }
    }

    // Changing.

    /// The collection at the key for changing in place, as `write`; an error if it holds something
    /// else.
    #[inline(always)]
    pub fn write_as<T: Collection + 'static>(
        &mut self,
        key: Key<'_>,
    ) -> Result<Option<&mut T>, Failure> {
        match self.write(key) {
            Some(entry) => entry.collection_mut().map(Some).ok_or(Failure::WRONG_TYPE),
            None => Ok(None),
        }
    }

    /// The collection at the key for changing in place, as `write_as`. If the key does not exist,
    /// it is created with `T::default()`. The collection must not stay empty: a key with an empty
    /// collection does not exist.
    #[inline(always)]
    pub fn write_or_create<T: Collection + Default + 'static>(
        &mut self,
        key: Key<'_>,
    ) -> Result<&mut T, Failure> {
        let place = match self.live(key) {
            Some(place) => place,
            None => self.create(key, T::default().into_any()),
        };
        self.used::<true>(key, place).collection_mut().ok_or(Failure::WRONG_TYPE)
    }

    fn create(&mut self, key: Key<'_>, collection: AnyCollection) -> Place {
        let (access, hasher) = (self.clock.fresh(), self.keyspace.hasher());
        let entry = OwnedEntry::new(key.bytes, NewValue::Collection(collection), None, access);
        let place = self.database_of(key.hash).insert(key.hash, entry, hasher);
        self.event(Classes::NEW, "new", key);
        place
    }

    /// Makes a collection of the key, whatever it was and without an expiry; an empty one deletes
    /// it. Whether the key is there afterwards.
    pub fn set_collection(&mut self, key: Key<'_>, collection: impl Collection) -> bool {
        let collection = collection.into_any();
        if collection.as_ref().is_empty() {
            self.remove(key);
            return false;
        }
        self.set(key, NewValue::Collection(collection), Expire::Clear);
        true
    }

    /// Deletes the key if its collection has become empty; whether it did. The change itself is
    /// what `changed` counts, not this.
    #[inline]
    pub fn remove_if_empty(&mut self, key: Key<'_>) -> bool {
        let Some(place) = self.live(key) else { return false };
        let hasher = self.keyspace.hasher();
        let database = self.database_of(key.hash);
        let ValueRef::Collection(collection) = database.entry(place).value() else { return false };
        if !collection.is_empty() {
            return false;
        }
        let entry = database.remove(place, hasher);
        self.discard(entry);
        true
    }

    /// Makes a string of the key, whatever it was.
    #[inline]
    pub fn set(&mut self, key: Key<'_>, value: NewValue<'_>, expire: Expire) {
        let found = self.live(key);
        if let (Some(place), AccessPolicy::Lfu { .. }) = (found, self.clock.policy) {
            // Writing a key anew is one more use of it.
            self.used::<false>(key, place);
        }
        let (clock, hasher) = (self.clock, self.keyspace.hasher());
        let database = self.database_of(key.hash);
        let old = database.set(key.hash, key.bytes, found, value, expire, &clock, hasher);
        if let Some(old) = old {
            self.discard(old);
        }
        if found.is_none() {
            self.event(Classes::NEW, "new", key);
        }
        self.changed(key);
    }

    /// Puts an entry under its own key, whatever was there.
    pub fn install(&mut self, key: Key<'_>, entry: OwnedEntry) {
        debug_assert_eq!(entry.as_ref().key(), key.bytes);
        let found = self.live(key);
        let hasher = self.keyspace.hasher();
        let database = self.database_of(key.hash);
        let old = match found {
            Some(place) => Some(database.replace(key.hash, place, entry, hasher)),
            None => {
                database.insert(key.hash, entry, hasher);
                None
            }
        };
        if let Some(old) = old {
            self.discard(old);
        }
        // Whatever was there was deleted before, as Redis sees it.
        self.event(Classes::NEW, "new", key);
        self.changed(key);
    }

    /// Takes the key's entry out.
    pub fn take(&mut self, key: Key<'_>) -> Option<OwnedEntry> {
        let place = self.live(key)?;
        let hasher = self.keyspace.hasher();
        let entry = self.database_of(key.hash).remove(place, hasher);
        self.changed(key);
        Some(entry)
    }

    /// Deletes the key; whether it was there.
    pub fn remove(&mut self, key: Key<'_>) -> bool {
        match self.take(key) {
            Some(entry) => {
                self.discard(entry);
                true
            }
            None => false,
        }
    }

    /// Gives the key an expiry (Unix ms) or takes it away. Nothing when the key is not there.
    pub fn set_expire(&mut self, key: Key<'_>, expire_ms: Option<i64>) {
        let Some(place) = self.live(key) else { return };
        let hasher = self.keyspace.hasher();
        self.database_of(key.hash).set_expire(key.hash, place, expire_ms, hasher);
        self.changed(key);
    }

    /// To be called by whoever changed the key's value: wakes its watchers, counts the change.
    #[inline(always)]
    #[cfg_attr(debug_assertions, track_caller)]
    pub fn changed(&mut self, key: Key<'_>) {
        self.changed_by(key, 1);
    }

    /// Like `changed`, for a command that counts as this many changes: mostly one for each element.
    #[inline(always)]
    #[cfg_attr(debug_assertions, track_caller)]
    pub fn changed_by(&mut self, key: Key<'_>, changes: usize) {
        self.counters.dirty += changes as u64;
        self.note_change();
        self.touch_watched(key);
    }

    /// Like `changed`, for changes that Redis does not report to WATCH, such as those of a consumer
    /// group.
    #[inline(always)]
    #[cfg_attr(debug_assertions, track_caller)]
    pub fn changed_inside(&mut self, _key: Key<'_>) {
        self.counters.dirty += 1;
        self.note_change();
    }

    #[inline(always)]
    #[cfg_attr(debug_assertions, track_caller)]
    fn note_change(&mut self) {
        if cfg!(debug_assertions) && self.is_logged() {
            self.unit.note_change();
        }
    }

    /// Has those served who wait for the key, though it did not change as WATCH sees it.
    pub fn signal_ready(&mut self, key: Key<'_>) {
        self.unit.ready.push_back((self.database, key.bytes.into()));
    }

    /// To be called when a field of the hash at a key expires earlier than any other of it did.
    pub fn note_field_expiry(&mut self, key: Key<'_>, expire_ms: i64) {
        let hasher = self.keyspace.hasher();
        self.database_of(key.hash).note_field(key.hash, expire_ms, hasher);
    }

    /// To be called for what happened to a key, after it did.
    #[inline(always)]
    pub fn event(&mut self, class: Classes, name: &'static str, key: Key<'_>) {
        if self.event_classes.has(class) {
            self.note_event(class, name, key);
        }
    }

    #[cold]
    fn note_event(&mut self, class: Classes, name: &'static str, key: Key<'_>) {
        let event = Event { class, name, database: self.database, key: key.bytes.into() };
        self.unit.notices.push(Notice::Event(event));
    }

    #[inline(always)]
    fn touch_watched(&mut self, key: Key<'_>) {
        if self.shard(key.hash.shard()).has_watched() | self.broadcasts {
            self.tell_changed(self.database, key, true);
        }
    }

    /// Frees an entry: now if that is quick, else once no lock is held.
    #[inline]
    pub fn discard(&mut self, entry: OwnedEntry) {
        if entry.as_ref().is_light() {
            drop(entry);
        } else {
            self.garbage.push(entry);
        }
    }

    /// A shard's part of a database, taken out with all its keys.
    pub fn flush(&mut self, index: usize, database: u32) -> Database {
        let hasher = self.keyspace.hasher();
        let mut ready = std::mem::take(&mut self.unit.ready);
        let (len, flushed) = self.visit(index, |shard| {
            // Of what belongs to a cut nothing comes back.
            let len = shard.database(database).map_or(0, Database::len);
            let flushed = shard.flush(database, hasher);
            note_waited(shard, database, &mut ready);
            (len, flushed)
        });
        self.unit.ready = ready;
        self.counters.dirty += len as u64;
        flushed
    }

    /// Exchanges two databases in one shard.
    pub fn swap(&mut self, index: usize, a: u32, b: u32) {
        let (now_ms, hasher) = (self.now_ms, self.keyspace.hasher());
        let mut gone = std::mem::take(&mut self.garbage);
        let before = gone.len();
        let mut ready = std::mem::take(&mut self.unit.ready);
        self.visit(index, |shard| {
            shard.swap_watched(a, b, now_ms, hasher, &mut gone);
            note_waited(shard, a, &mut ready);
            note_waited(shard, b, &mut ready);
        });
        self.unit.ready = ready;
        self.counters.expired += (gone.len() - before) as u64;
        self.garbage = gone;
    }

    /// How many keys a shard has in a database. Not locked where that can be avoided: a key that
    /// another thread adds at this moment may be missing.
    pub fn len(&mut self, index: usize, database: u32) -> usize {
        match self.unit.held {
            Held::None if database == 0 => self.keyspace.len_hint(index),
            _ => self.visit(index, |shard| shard.database(database).map_or(0, Database::len)),
        }
    }

    // Watching.

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

    /// Whether there is an entry that has expired, taken out or not.
    pub fn is_stale(&mut self, database: u32, key: Key<'_>) -> bool {
        let now_ms = self.now_ms;
        let Some(database) = self.shard(key.hash.shard()).database(database) else { return false };
        let Some(place) = database.find(key.hash, key.bytes) else { return false };
        database.entry(place).expire_ms().is_some_and(|ms| ms <= now_ms)
    }
}

/// Notes all keys of a database that blocked clients wait for: they may have become others.
fn note_waited(shard: &mut Shard, database: u32, ready: &mut VecDeque<(u32, Box<[u8]>)>) {
    if let Some(watched) = shard.watched_mut() {
        ready.extend(watched.waited(database).map(|key| (database, key.into())));
    }
}

/// The string of an entry.
#[inline(always)]
pub fn string(entry: EntryRef<'_>) -> Result<StringRef<'_>, Failure> {
    if entry.kind() == Kind::String { Ok(entry.string()) } else { Err(Failure::WRONG_TYPE) }
}
