//! The keys of a shard that some client watches, each with a version that grows when it changes.
//!
//! Only watched keys cost anything: a shard without them has no table at all.

use std::collections::HashMap;

/// A watched key's name: database and key.
type Name = (u32, Box<[u8]>);

/// See the module.
#[derive(Default)]
pub struct WatchedKeys {
    keys: HashMap<Name, Watched>,
    /// Grows with each change of any watched key, so that a key watched anew after everybody left
    /// does not repeat a version.
    clock: u64,
}

struct Watched {
    watchers: u32,
    version: u64,
}

impl WatchedKeys {
    pub fn is_empty(&self) -> bool {
        self.keys.is_empty()
    }

    /// Adds a watcher and returns the version that it starts from.
    pub fn watch(&mut self, database: u32, key: &[u8]) -> u64 {
        let clock = self.clock;
        let fresh = || Watched { watchers: 0, version: clock };
        let watched = self.keys.entry((database, key.into())).or_insert_with(fresh);
        watched.watchers += 1;
        watched.version
    }

    /// Takes a watcher away.
    pub fn unwatch(&mut self, database: u32, key: &[u8]) {
        let name = (database, key.into());
        if let Some(watched) = self.keys.get_mut(&name) {
            watched.watchers -= 1;
            if watched.watchers == 0 {
                self.keys.remove(&name);
            }
        }
    }

    /// The key's version now; none when nobody watches it.
    pub fn version(&self, database: u32, key: &[u8]) -> Option<u64> {
        self.keys.get(&(database, key.into())).map(|watched| watched.version)
    }

    /// The key changed.
    pub fn changed(&mut self, database: u32, key: &[u8]) {
        if let Some(watched) = self.keys.get_mut(&(database, key.into())) {
            self.clock += 1;
            watched.version = self.clock;
        }
    }

    /// Every watched key of a database for which `f` says so changed.
    pub fn changed_where(&mut self, database: u32, mut f: impl FnMut(&[u8]) -> bool) {
        for ((of, key), watched) in &mut self.keys {
            if *of == database && f(key) {
                self.clock += 1;
                watched.version = self.clock;
            }
        }
    }
}
