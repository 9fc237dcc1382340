//! How keys are looked up. Expired keys are settled here.

use bobbin_store::shard::Database;
use bobbin_store::table::EntryPlace;
use bobbin_store::value::{Collection, StringRef};
use bobbin_store::{AccessPolicy, EntryMut, EntryRef, ValueType};

use super::super::Failure;
use super::holding::HeldShards;
use super::{Data, Key};
use crate::engine::pubsub::notify::Classes;
use crate::engine::tracking::ChangedBy;

/// How a key is looked up: [`Data::read`], or [`Data::peek`] if the use was counted before.
pub type Look = for<'a> fn(&'a mut Data, Key<'_>) -> Option<EntryRef<'a>>;

impl Data {
    /// The place of the key, if it has not expired. An expired entry is deleted; with `WRITES` even
    /// if nothing expires by itself, as the key gets a new value.
    #[inline(always)]
    pub(super) fn live<const WRITES: bool>(&mut self, key: Key<'_>) -> Option<EntryPlace> {
        let (over_ms, database) = (self.conditions.over_ms(), self.database);
        let database = self.shard(key.hash.shard()).database(database)?;
        let place = database.find(key.hash, key.bytes)?;
        match database.entry(place).expire_ms() {
            Some(expire_ms) if expire_ms <= over_ms && !self.conditions.sees_dead => {
                if WRITES || self.conditions.may_expire {
                    self.expire(key, place);
                }
                None
            }
            _ => Some(place),
        }
    }

    #[cold]
    fn expire(&mut self, key: Key<'_>, place: EntryPlace) {
        let hasher = self.holding.keyspace.hasher();
        let entry = self.database_of(key.hash).remove(place, hasher);
        self.discard(entry);
        self.counters.expired += 1;
        self.log_expired(self.database, key.bytes);
        if self.shard(key.hash.shard()).has_watched() | self.audience.broadcasts {
            self.tell_changed(self.database, key, ChangedBy::Server);
        }
        self.event(Classes::EXPIRED, "expired", key);
    }

    /// Whether a key written with this expiry would be deleted at once. If nothing expires by
    /// itself, it is kept.
    #[inline]
    pub const fn is_past(&self, expire_ms: i64) -> bool {
        expire_ms <= self.conditions.now_ms
            && self.conditions.may_expire
            && !self.conditions.sees_dead
    }

    /// The time that decides which fields have expired. Keys are settled here already.
    #[inline]
    pub const fn dead_ms(&self) -> i64 {
        if self.conditions.sees_dead { i64::MIN } else { self.conditions.over_ms() }
    }

    /// The key's entry. It does not count as a use, a hit or a miss.
    #[inline]
    pub fn peek(&mut self, key: Key<'_>) -> Option<EntryRef<'_>> {
        let place = self.live::<false>(key)?;
        Some(self.database_of(key.hash).entry(place))
    }

    /// The place of the key, even if it has expired.
    pub(super) fn stored_place(&mut self, key: Key<'_>) -> Option<EntryPlace> {
        let database = self.database;
        self.shard(key.hash.shard()).database(database)?.find(key.hash, key.bytes)
    }

    /// The key's entry, even if it has expired. It does not count as a use, a hit or a miss.
    pub fn stored(&mut self, key: Key<'_>) -> Option<EntryRef<'_>> {
        let place = self.stored_place(key)?;
        Some(self.database_of(key.hash).entry(place))
    }

    #[inline]
    pub fn exists(&mut self, key: Key<'_>) -> bool {
        self.live::<false>(key).is_some()
    }

    /// The key's entry. It counts as a hit or a miss, but not as a use.
    #[inline]
    pub fn look(&mut self, key: Key<'_>) -> Option<EntryRef<'_>> {
        let Some(place) = self.live::<false>(key) else {
            self.missed(key);
            return None;
        };
        self.counters.hits += 1;
        Some(self.database_of(key.hash).entry(place))
    }

    /// The key's entry for OBJECT. As `look`, but a miss causes no event.
    pub fn inspect(&mut self, key: Key<'_>) -> Option<EntryRef<'_>> {
        if self.live::<false>(key).is_none() {
            self.counters.misses += 1;
            return None;
        }
        self.look(key)
    }

    /// Counts a miss, and notes its event.
    #[inline(always)]
    pub fn missed(&mut self, key: Key<'_>) {
        self.counters.misses += 1;
        self.event(Classes::MISS, "keymiss", key);
    }

    /// The key's entry for reading. It counts as a use, and as a hit or a miss.
    #[inline(always)]
    pub fn read(&mut self, key: Key<'_>) -> Option<EntryRef<'_>> {
        let Some(place) = self.live::<false>(key) else {
            self.missed(key);
            return None;
        };
        self.counters.hits += 1;
        Some(self.used::<false>(key, place).into_ref())
    }

    /// Counts a use of the entry. With `CHANGES` the caller may change the value.
    #[inline(always)]
    pub(super) fn used<const CHANGES: bool>(
        &mut self,
        key: Key<'_>,
        place: EntryPlace,
    ) -> EntryMut<'_> {
        let (clock, touch, hasher) =
            (self.conditions.clock, self.conditions.touch, self.holding.keyspace.hasher());
        // The number is drawn even if it is not needed: that is cheaper than borrowing twice.
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

    /// The string at the key, as `read`. An error if the key has a value of another type.
    #[inline(always)]
    pub fn read_string(&mut self, key: Key<'_>) -> Result<Option<StringRef<'_>>, Failure> {
        self.read(key).map(string).transpose()
    }

    /// The entry of the string at the key, as `read`. An error if the key has a value of another
    /// type.
    #[inline(always)]
    pub fn read_string_entry(&mut self, key: Key<'_>) -> Result<Option<EntryRef<'_>>, Failure> {
        match self.read(key) {
            Some(entry) if entry.value_type() != ValueType::String => Err(Failure::WRONG_TYPE),
            entry => Ok(entry),
        }
    }

    /// The collection at the key, as `read`. An error if the key has a value of another type.
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

    /// The type of the key's value, if it has not expired. An expired key is not deleted here, as
    /// its removal would become part of the unit that serves a client.
    pub fn live_type(&mut self, key: Key<'_>) -> Option<ValueType> {
        let (over_ms, sees_dead) = (self.conditions.over_ms(), self.conditions.sees_dead);
        let entry = self.stored(key)?;
        let is_dead = entry.expire_ms().is_some_and(|ms| ms <= over_ms) && !sees_dead;
        (!is_dead).then(|| entry.value_type())
    }

    /// Whether the key has an entry whose expiry has passed.
    pub fn is_stale(&mut self, database: u32, key: Key<'_>) -> bool {
        let over_ms = self.conditions.over_ms();
        let Some(database) = self.shard(key.hash.shard()).database(database) else { return false };
        let Some(place) = database.find(key.hash, key.bytes) else { return false };
        database.entry(place).expire_ms().is_some_and(|ms| ms <= over_ms)
    }

    /// The number of keys of a shard in a database. It is read without the lock where possible: a
    /// key that another thread adds at this moment may be missing.
    pub fn len(&mut self, index: usize, database: u32) -> usize {
        match self.unit.held {
            HeldShards::None if database == 0 => self.holding.keyspace.len_hint(index),
            _ => self.visit(index, |shard| shard.database(database).map_or(0, Database::len)),
        }
    }

    /// The number of keys of a database, as exact as `len`.
    pub fn total(&mut self, database: u32) -> usize {
        match self.unit.held {
            HeldShards::None if database == 0 => self.holding.keyspace.len_of_first(),
            _ => {
                let mut total = 0;
                self.each_used(|data, index| total += data.len(index, database));
                total
            }
        }
    }

    /// Figures of a shard that can be read without its lock: see `Keyspace::plain_figures`.
    pub fn plain_figures(&self, index: usize) -> Option<(usize, usize)> {
        match self.unit.held {
            HeldShards::None => self.holding.keyspace.plain_figures(index),
            _ => None,
        }
    }
}

/// The string of an entry.
#[inline(always)]
pub fn string(entry: EntryRef<'_>) -> Result<StringRef<'_>, Failure> {
    if entry.value_type() == ValueType::String {
        Ok(entry.string())
    } else {
        Err(Failure::WRONG_TYPE)
    }
}
