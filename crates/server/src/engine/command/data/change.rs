//! Changes of keys, and what has to be noted for them.

use bobbin_store::shard::{Expire, Flushed, HashMut};
use bobbin_store::table::EntryPlace;
use bobbin_store::value::{AnyCollection, Collection, Hash, PlainCollection};
use bobbin_store::{AccessPolicy, EntryMut, NewValue, OwnedEntry, Shard, ValueRef};

use super::super::Failure;
use super::gathered::ReadyKeys;
use super::{Data, Key};
use crate::engine::pubsub::notify::Classes;
use crate::engine::tracking::ChangedBy;

impl Data {
    /// The entry of the key, to be changed in place; it counts as a use. A caller that changes it
    /// must call `changed`.
    #[inline(always)]
    pub fn write(&mut self, key: Key<'_>) -> Option<EntryMut<'_>> {
        let place = self.live::<true>(key)?;
        Some(self.used::<true>(key, place))
    }

    /// The collection at the key, to be changed in place, as `write`. An error if the key has a
    /// value of another type. For a hash there is `write_hash`.
    #[inline(always)]
    pub fn write_as<T: PlainCollection + 'static>(
        &mut self,
        key: Key<'_>,
    ) -> Result<Option<&mut T>, Failure> {
        match self.write(key) {
            Some(entry) => entry.collection_mut().map(Some).ok_or(Failure::WRONG_TYPE),
            None => Ok(None),
        }
    }

    /// The collection at the key, to be changed in place, as `write_as`. If the key does not exist,
    /// it is created with `T::default()`, which does not count as a use. The collection must not
    /// stay empty: a key with an empty collection does not exist.
    #[inline(always)]
    pub fn write_or_create<T: PlainCollection + Default + 'static>(
        &mut self,
        key: Key<'_>,
    ) -> Result<&mut T, Failure> {
        let entry = match self.live::<true>(key) {
            Some(place) => self.used::<true>(key, place),
            None => {
                let place = self.create(key, T::default().into_any());
                let hasher = self.holding.keyspace.hasher();
                self.database_of(key.hash).change(place, hasher)
            }
        };
        entry.collection_mut().ok_or(Failure::WRONG_TYPE)
    }

    /// The hash at the key, to be changed in place, as `write_as`.
    #[inline]
    pub fn write_hash(&mut self, key: Key<'_>) -> Result<Option<HashMut<'_>>, Failure> {
        let Some(place) = self.live::<true>(key) else { return Ok(None) };
        self.used::<true>(key, place);
        self.hash_at(key, place).map(Some)
    }

    /// The hash at the key, to be changed in place, as `write_or_create`.
    #[inline]
    pub fn write_or_create_hash(&mut self, key: Key<'_>) -> Result<HashMut<'_>, Failure> {
        let place = match self.live::<true>(key) {
            Some(place) => {
                self.used::<true>(key, place);
                place
            }
            None => self.create(key, Hash::default().into_any()),
        };
        self.hash_at(key, place)
    }

    #[inline(always)]
    fn hash_at(&mut self, key: Key<'_>, place: EntryPlace) -> Result<HashMut<'_>, Failure> {
        let hasher = self.holding.keyspace.hasher();
        let database = self.database_of(key.hash);
        database.change_hash(key.hash, place, hasher).ok_or(Failure::WRONG_TYPE)
    }

    fn create(&mut self, key: Key<'_>, collection: AnyCollection) -> EntryPlace {
        let (access, hasher) = (self.conditions.clock.fresh(), self.holding.keyspace.hasher());
        let entry = OwnedEntry::new(key.bytes, NewValue::Collection(collection), None, access);
        let place = self.database_of(key.hash).insert(key.hash, entry, hasher);
        self.event(Classes::NEW, "new", key);
        place
    }

    /// Replaces the value at the key with a collection, and clears the expiry. An empty collection
    /// deletes the key. Returns whether the key exists afterwards.
    pub fn set_collection(&mut self, key: Key<'_>, collection: impl Collection) -> bool {
        let collection = collection.into_any();
        if collection.as_ref().is_empty() {
            self.remove(key);
            return false;
        }
        self.set(key, NewValue::Collection(collection), Expire::Clear);
        true
    }

    /// Deletes the key if its collection has become empty; returns whether it did. It does not
    /// count as a change: `changed` counts the one that emptied the collection.
    #[inline]
    pub fn remove_if_empty(&mut self, key: Key<'_>) -> bool {
        let Some(place) = self.live::<true>(key) else { return false };
        let hasher = self.holding.keyspace.hasher();
        let database = self.database_of(key.hash);
        let ValueRef::Collection(collection) = database.entry(place).value() else { return false };
        if !collection.is_empty() {
            return false;
        }
        let entry = database.remove(place, hasher);
        self.discard(entry);
        true
    }

    /// Replaces the value at the key with a string.
    #[inline]
    pub fn set(&mut self, key: Key<'_>, value: NewValue<'_>, expire: Expire) {
        let found = self.live::<true>(key);
        if let (Some(place), AccessPolicy::Lfu { .. }) = (found, self.conditions.clock.policy) {
            // Writing the key counts as a use.
            self.used::<false>(key, place);
        }
        let (clock, hasher) = (self.conditions.clock, self.holding.keyspace.hasher());
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

    /// As `set`, after a look at the key that counted as a use.
    pub fn set_used(&mut self, key: Key<'_>, value: NewValue<'_>, expire: Expire) {
        let touch = std::mem::replace(&mut self.conditions.touch, false);
        self.set(key, value, expire);
        self.conditions.touch = touch;
    }

    /// Puts an entry in the place of the key's entry, if there is one.
    pub fn install(&mut self, key: Key<'_>, entry: OwnedEntry) {
        debug_assert_eq!(entry.as_ref().key(), key.bytes);
        let found = self.live::<true>(key);
        let hasher = self.holding.keyspace.hasher();
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
        // For Redis, the old key was deleted and this one is new.
        self.event(Classes::NEW, "new", key);
        self.changed(key);
    }

    /// Removes the key's entry and returns it. While nothing expires by itself, an expired entry
    /// counts as present.
    pub fn take(&mut self, key: Key<'_>) -> Option<OwnedEntry> {
        let place = if self.conditions.may_expire {
            self.live::<true>(key)?
        } else {
            self.stored_place(key)?
        };
        Some(self.take_from(key, place))
    }

    /// Deletes the key, even if it has expired.
    pub fn evict(&mut self, key: Key<'_>) {
        if let Some(place) = self.stored_place(key) {
            let entry = self.take_from(key, place);
            self.discard(entry);
        }
    }

    fn take_from(&mut self, key: Key<'_>, place: EntryPlace) -> OwnedEntry {
        let hasher = self.holding.keyspace.hasher();
        let entry = self.database_of(key.hash).remove(place, hasher);
        self.changed(key);
        entry
    }

    /// Deletes the key; returns whether it existed.
    pub fn remove(&mut self, key: Key<'_>) -> bool {
        match self.take(key) {
            Some(entry) => {
                self.discard(entry);
                true
            }
            None => false,
        }
    }

    /// Sets the key's expiry (Unix ms) or clears it. Does nothing if the key does not exist.
    pub fn set_expire(&mut self, key: Key<'_>, expire_ms: Option<i64>) {
        let Some(place) = self.live::<true>(key) else { return };
        let hasher = self.holding.keyspace.hasher();
        self.database_of(key.hash).set_expire(key.hash, place, expire_ms, hasher);
        self.changed(key);
    }

    /// To be called after the key's value was changed: tells watchers and counts the change.
    #[inline(always)]
    #[cfg_attr(debug_assertions, track_caller)]
    pub fn changed(&mut self, key: Key<'_>) {
        self.changed_by(key, 1);
    }

    /// As `changed`, for a command that counts as several changes, mostly one for each element.
    #[inline(always)]
    #[cfg_attr(debug_assertions, track_caller)]
    pub fn changed_by(&mut self, key: Key<'_>, changes: usize) {
        self.counters.dirty += changes as u64;
        self.note_change();
        self.touch_watched(key);
    }

    /// As `changed`, for changes that do not concern WATCH in Redis, such as those of a consumer
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

    /// Serves the clients that wait for the key, though the key has not changed as WATCH sees it.
    pub fn signal_ready(&mut self, key: Key<'_>) {
        let database = self.database;
        if self.shard(key.hash.shard()).is_waited(database, key.bytes) {
            self.unit.work.ready.push((database, key.bytes.into()));
        }
    }

    /// Notes an event of a key. To be called after it happened.
    #[inline(always)]
    pub fn event(&mut self, class: Classes, name: &'static str, key: Key<'_>) {
        self.note_event(class, name, self.database, key.bytes);
    }

    #[inline(always)]
    fn touch_watched(&mut self, key: Key<'_>) {
        if self.shard(key.hash.shard()).has_watched() | self.audience.broadcasts {
            self.tell_changed(self.database, key, ChangedBy::Client);
        }
    }

    /// Frees an entry: now if that is quick, otherwise once no lock is held.
    #[inline]
    pub fn discard(&mut self, entry: OwnedEntry) {
        if entry.as_ref().is_light() {
            drop(entry);
        } else {
            self.garbage.push(entry);
        }
    }

    #[cold]
    pub(super) fn dispose(&mut self) {
        for entry in self.garbage.drain(..) {
            crate::engine::lazyfree::free(entry);
        }
    }

    /// Removes all keys of all databases; the gate is held. Returns them, to be freed.
    pub fn flush_all(&mut self) -> Vec<Flushed> {
        let (hasher, mut flushed) = (self.holding.keyspace.hasher(), Vec::new());
        self.each_used(|data, index| {
            let mut ready = std::mem::take(&mut data.unit.work.ready);
            let (removed, keys) = data.visit(index, |shard| {
                let flushed = shard.flush_all(hasher);
                if let Some(watched) = shard.watched_mut() {
                    ready
                        .extend(watched.all_waited().map(|(database, key)| (database, key.into())));
                }
                flushed
            });
            data.unit.work.ready = ready;
            data.counters.dirty += removed as u64;
            flushed.push(keys);
        });
        self.all_changed();
        flushed
    }

    /// Removes all keys of a database from one shard. Returns them, to be freed.
    pub fn flush(&mut self, index: usize, database: u32) -> Flushed {
        let hasher = self.holding.keyspace.hasher();
        let mut ready = std::mem::take(&mut self.unit.work.ready);
        let (removed, flushed) = self.visit(index, |shard| {
            let flushed = shard.flush(database, hasher);
            note_waited(shard, database, &mut ready);
            flushed
        });
        self.unit.work.ready = ready;
        self.counters.dirty += removed as u64;
        flushed
    }

    /// Swaps two databases within one shard.
    pub fn swap(&mut self, index: usize, a: u32, b: u32) {
        let (over_ms, hasher) = (self.conditions.over_ms(), self.holding.keyspace.hasher());
        let takes_dead = self.conditions.may_expire;
        let mut ready = std::mem::take(&mut self.unit.work.ready);
        let gone = self.visit(index, |shard| {
            let gone = shard.swap_watched(a, b, over_ms, hasher, takes_dead);
            note_waited(shard, a, &mut ready);
            note_waited(shard, b, &mut ready);
            gone
        });
        self.unit.work.ready = ready;
        for (database, entry) in gone {
            self.note_expired(database, std::slice::from_ref(&entry));
            self.discard(entry);
        }
    }
}

/// Notes all keys of a database that blocked clients wait for, as each may have another value now.
fn note_waited(shard: &mut Shard, database: u32, ready: &mut ReadyKeys) {
    if let Some(watched) = shard.watched_mut() {
        ready.extend(watched.waited(database).map(|key| (database, key.into())));
    }
}
