//! The keys of a shard that clients observe: those that they watch, each with a version that grows
//! when the key changes, and those that blocked clients wait for.
//!
//! Only such keys cost anything: a shard without them has no table for them.
//!
//! A command that reads very many keys does not watch each of them. Instead it registers an
//! [`Observer`], which gets every change.

use std::collections::HashMap;
use std::sync::{Arc, Weak};

use bobbin_sync::Mutex;

use super::tracked::TrackedKeys;
use crate::hash::KeyHash;
use crate::trim::Trim;

/// The watched keys of a shard.
#[derive(Default)]
pub struct WatchedKeys {
    /// By database. There are few.
    databases: Vec<(u32, WatchedByKey)>,
    /// Grows with each change of any watched key. So a key that is watched again after all clients
    /// left does not get an earlier version.
    clock: u64,
    /// Observers that are gone are removed with the next change.
    observers: Vec<Weak<Observer>>,
    /// The keys that clients keep copies of.
    pub tracked: TrackedKeys,
}

type WatchedByKey = HashMap<Box<[u8]>, Watched>;

#[derive(Default)]
struct Watched {
    watchers: u32,
    /// How many blocked clients wait for it.
    waiters: u32,
    version: u64,
}

/// Bytes that a key which clients observe takes here, beside its own.
pub const OBSERVED_KEY_BYTES: usize = size_of::<(Box<[u8]>, Watched)>();

/// Collects which keys of a database changed, in all shards that the observer was registered with.
#[derive(Default)]
pub struct Observer {
    database: u32,
    changes: Mutex<Changes>,
}

#[derive(Default)]
struct Changes {
    hashes: Vec<KeyHash>,
    /// There were too many changes, or all keys may have changed.
    lost: bool,
}

/// How many changes an observer remembers: 8 MB.
const CHANGES_MAX: usize = 1 << 20;

/// The clients that the change of a key concerns.
#[derive(Default, Debug, PartialEq, Eq)]
pub struct Concerned {
    /// Blocked clients wait for the key.
    pub waiters: bool,
    /// Clients, by number, that kept a copy of its value.
    pub readers: Option<Vec<u64>>,
}

impl Concerned {
    pub const fn is_nobody(&self) -> bool {
        !self.waiters && self.readers.is_none()
    }
}

impl Observer {
    pub fn new(database: u32) -> Self {
        Self { database, changes: Mutex::default() }
    }

    /// The keys that changed since the last call. `None`: any key may have changed.
    pub fn take(&self) -> Option<Vec<KeyHash>> {
        let changes = std::mem::take(&mut *self.changes.lock());
        (!changes.lost).then_some(changes.hashes)
    }

    fn note(&self, database: u32, hash: KeyHash) {
        if database == self.database {
            let mut changes = self.changes.lock();
            if changes.hashes.len() < CHANGES_MAX {
                changes.hashes.push(hash);
            } else {
                changes.lost = true;
            }
        }
    }

    fn note_all(&self, database: u32) {
        if database == self.database {
            self.changes.lock().lost = true;
        }
    }
}

impl WatchedKeys {
    pub fn is_empty(&self) -> bool {
        self.databases.is_empty() && self.observers.is_empty() && self.tracked.is_empty()
    }

    /// Reports changes to an observer from now on.
    pub fn observe(&mut self, observer: &Arc<Observer>) {
        self.observers.push(Arc::downgrade(observer));
    }

    pub fn unobserve(&mut self, observer: &Arc<Observer>) {
        self.observers.retain(|other| !std::ptr::eq(other.as_ptr(), Arc::as_ptr(observer)));
    }

    fn tell(&mut self, f: impl Fn(&Observer)) {
        self.observers.retain(|observer| match observer.upgrade() {
            Some(observer) => {
                f(&observer);
                true
            }
            None => false,
        });
    }

    /// Adds a watcher and returns the version that it starts from.
    pub fn watch(&mut self, database: u32, key: &[u8]) -> u64 {
        let watched = self.enter(database, key);
        watched.watchers += 1;
        watched.version
    }

    /// Removes a watcher and returns the version that it leaves behind. `None`: no client observes
    /// the key.
    pub fn unwatch(&mut self, database: u32, key: &[u8]) -> Option<u64> {
        self.leave(database, key, |watched| {
            watched.watchers -= 1;
            watched.version
        })
    }

    /// Adds a blocked client.
    pub fn wait(&mut self, database: u32, key: &[u8]) {
        self.enter(database, key).waiters += 1;
    }

    /// Removes a blocked client.
    pub fn unwait(&mut self, database: u32, key: &[u8]) {
        self.leave(database, key, |watched| watched.waiters -= 1);
    }

    /// The key's current version. `None`: no client observes it.
    pub fn version(&self, database: u32, key: &[u8]) -> Option<u64> {
        let (_, keys) = self.databases.iter().find(|(of, _)| *of == database)?;
        keys.get(key).map(|watched| watched.version)
    }

    /// Notes that the key changed. Returns the clients to be told.
    pub fn changed(&mut self, database: u32, key: &[u8], hash: KeyHash) -> Concerned {
        if !self.observers.is_empty() {
            self.tell(|observer| observer.note(database, hash));
        }
        let readers = if self.tracked.is_empty() { None } else { self.tracked.take(key, hash) };
        let keys = self.databases.iter_mut().find(|(of, _)| *of == database);
        let Some(watched) = keys.and_then(|(_, keys)| keys.get_mut(key)) else {
            return Concerned { waiters: false, readers };
        };
        self.clock += 1;
        watched.version = self.clock;
        Concerned { waiters: watched.waiters > 0, readers }
    }

    /// Notes a change of every watched key of a database for which `f` returns true.
    pub fn changed_where(&mut self, database: u32, mut f: impl FnMut(&[u8]) -> bool) {
        self.tell(|observer| observer.note_all(database));
        if let Some((_, keys)) = self.databases.iter_mut().find(|(of, _)| *of == database) {
            note_where(keys, &mut self.clock, &mut f);
        }
    }

    /// Notes a change of every watched key, in every database, for which `f` returns true.
    pub fn all_changed_where(&mut self, mut f: impl FnMut(u32, &[u8]) -> bool) {
        self.tell(|observer| observer.note_all(observer.database));
        for (database, keys) in &mut self.databases {
            note_where(keys, &mut self.clock, &mut |key: &[u8]| f(*database, key));
        }
    }

    /// Whether blocked clients wait for any key of any database.
    pub fn has_waiters(&self) -> bool {
        let mut watched = self.databases.iter().flat_map(|(_, keys)| keys.values());
        watched.any(|watched| watched.waiters > 0)
    }

    /// Whether blocked clients wait for the key.
    pub fn is_waited(&self, database: u32, key: &[u8]) -> bool {
        let keys = self.databases.iter().find(|(of, _)| *of == database);
        keys.and_then(|(_, keys)| keys.get(key)).is_some_and(|watched| watched.waiters > 0)
    }

    /// The keys of a database that blocked clients wait for.
    pub fn waited(&self, database: u32) -> impl Iterator<Item = &[u8]> {
        let of = self.databases.iter().filter(move |(of, _)| *of == database);
        let keys = of.flat_map(|(_, keys)| keys);
        keys.filter(|(_, watched)| watched.waiters > 0).map(|(key, _)| &**key)
    }

    /// The keys of all databases that blocked clients wait for, each with its database.
    pub fn all_waited(&self) -> impl Iterator<Item = (u32, &[u8])> {
        let each =
            |&(database, _): &(u32, _)| self.waited(database).map(move |key| (database, key));
        self.databases.iter().flat_map(each)
    }

    fn enter(&mut self, database: u32, key: &[u8]) -> &mut Watched {
        let at = self.databases.iter().position(|(of, _)| *of == database).unwrap_or_else(|| {
            self.databases.push((database, WatchedByKey::new()));
            self.databases.len() - 1
        });
        let version = self.clock;
        let fresh = || Watched { version, ..Watched::default() };
        self.databases[at].1.entry(key.into()).or_insert_with(fresh)
    }

    fn leave<R>(
        &mut self,
        database: u32,
        key: &[u8],
        leave: impl FnOnce(&mut Watched) -> R,
    ) -> Option<R> {
        let at = self.databases.iter().position(|(of, _)| *of == database)?;
        let keys = &mut self.databases[at].1;
        let watched = keys.get_mut(key)?;
        let result = leave(watched);
        if watched.watchers == 0 && watched.waiters == 0 {
            keys.remove(key);
            if keys.is_empty() {
                self.databases.swap_remove(at);
            } else {
                keys.trim(0);
            }
        }
        Some(result)
    }
}

/// Gives the watched keys for which `f` returns true another version.
fn note_where(keys: &mut WatchedByKey, clock: &mut u64, f: &mut impl FnMut(&[u8]) -> bool) {
    for (key, watched) in keys {
        if watched.watchers > 0 && f(key) {
            *clock += 1;
            watched.version = *clock;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_memory_of_keys_that_were_watched_is_given_back() {
        let mut keys = WatchedKeys::default();
        let names: Vec<String> = (0..1000).map(|name| name.to_string()).collect();
        names.iter().for_each(|name| _ = keys.watch(0, name.as_bytes()));
        names[1..].iter().for_each(|name| _ = keys.unwatch(0, name.as_bytes()));
        assert_eq!(keys.version(0, b"0"), Some(0));
        assert!(keys.databases[0].1.capacity() < 50, "{}", keys.databases[0].1.capacity());
    }

    #[test]
    fn observers_are_told_of_the_keys_of_their_database() {
        let mut keys = WatchedKeys::default();
        let observer = Arc::new(Observer::new(1));
        keys.observe(&observer);
        assert!(!keys.is_empty());
        assert!(keys.changed(1, b"a", KeyHash(7)).is_nobody());
        assert!(keys.changed(0, b"a", KeyHash(8)).is_nobody());
        assert_eq!(observer.take(), Some(vec![KeyHash(7)]));
        assert_eq!(observer.take(), Some(vec![]));
        keys.changed_where(0, |_| false);
        assert_eq!(observer.take(), Some(vec![]));
        keys.changed_where(1, |_| false);
        assert_eq!(observer.take(), None);
        keys.unobserve(&observer);
        assert!(keys.is_empty());
        assert_eq!(observer.take(), Some(vec![]));
    }

    #[test]
    fn an_observer_that_is_gone_is_forgotten_and_too_many_changes_are_lost() {
        let mut keys = WatchedKeys::default();
        let observer = Arc::new(Observer::new(0));
        keys.observe(&observer);
        drop(observer);
        keys.changed(0, b"a", KeyHash(1));
        assert!(keys.is_empty());
        let observer = Observer::new(0);
        (0..CHANGES_MAX).for_each(|_| observer.note(0, KeyHash(1)));
        assert_eq!(observer.take().map(|changes| changes.len()), Some(CHANGES_MAX));
        (0..=CHANGES_MAX).for_each(|_| observer.note(0, KeyHash(1)));
        assert_eq!(observer.take(), None);
    }
}
