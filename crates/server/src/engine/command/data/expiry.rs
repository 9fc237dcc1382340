//! Deletes expired keys and fields that no command looks at, one shard at a time.

use bobbin_store::OwnedEntry;
use bobbin_store::shard::{FIELDS_MAX, Reaped};

use super::Data;
use super::holding::HeldShards;
use crate::engine::pubsub::notify::Classes;
use crate::engine::tracking::ChangedBy;

/// A hash of which fields have expired.
#[derive(Default)]
struct ReapedHash {
    key: Box<[u8]>,
    count: u64,
    /// The names of the fields, if they must be logged.
    fields: Vec<Box<[u8]>>,
}

impl Data {
    /// Deletes expired keys and fields of a shard, with at most `looks` looks in each database.
    pub fn expire_shard(&mut self, index: usize, looks: usize) {
        if !self.conditions.may_expire {
            return;
        }
        if !self.hold_one(index) {
            return;
        }
        let (over_ms, hasher) = (self.conditions.over_ms(), self.holding.keyspace.hasher());
        let mut gone = std::mem::take(&mut self.garbage);
        let is_logged = self.is_logged();
        let mut from = 0;
        while let Some(database) = self.shard(index).due_from(from, over_ms) {
            from = database + 1;
            let first = gone.len();
            let shard = self.shard(index);
            let Some(used) = shard.used_mut(database) else { continue };
            let (mut reaped, mut hash) = (Vec::new(), ReapedHash::default());
            used.expire_due(over_ms, looks, hasher, &mut gone, |event| match event {
                Reaped::Field(name) => {
                    hash.count += 1;
                    if is_logged {
                        hash.fields.push(name.into());
                    }
                }
                Reaped::Hash(key) => {
                    reaped.push(ReapedHash { key: key.into(), ..std::mem::take(&mut hash) });
                }
            });
            if shard.has_watched() | self.audience.broadcasts {
                let keys = gone[first..].iter().map(|entry| entry.as_ref().key());
                for key in keys.chain(reaped.iter().map(|hash| &*hash.key)) {
                    self.tell_changed(database, self.key(key), ChangedBy::Server);
                }
            }
            let fields: u64 = reaped.iter().map(|hash| hash.count).sum();
            self.note_reaped(database, reaped);
            self.note_expired(database, &gone[first..]);
            if fields >= FIELDS_MAX as u64 {
                // The rest is done after the shard was unlocked.
                break;
            }
        }
        let shard = self.shard(index);
        if !gone.is_empty() {
            shard.trim();
        }
        shard.look_when_due();
        self.garbage = gone;
        self.release();
    }

    /// Counts the fields of hashes that have expired, logs them and notes their events.
    #[inline]
    fn note_reaped(&mut self, database: u32, reaped: Vec<ReapedHash>) {
        for ReapedHash { key, count, fields } in reaped {
            self.counters.expired_fields += count;
            if self.is_logged() {
                let fields = fields.iter().map(|name| &**name);
                let words: Vec<&[u8]> = [&b"HDEL"[..], &key].into_iter().chain(fields).collect();
                self.log_in(database, &words);
            }
            self.note_event(Classes::HASH, "hexpired", database, &key);
        }
    }

    /// Counts entries of a database that have expired, logs them and notes their events. A hash
    /// that lost its last field counts as deleted.
    pub(super) fn note_expired(&mut self, database: u32, gone: &[OwnedEntry]) {
        for entry in gone {
            let entry = entry.as_ref();
            let expired = entry.expire_ms().is_some_and(|ms| ms <= self.conditions.over_ms());
            self.counters.expired += u64::from(expired);
            let (class, name) = match expired {
                true => (Classes::EXPIRED, "expired"),
                false => (Classes::GENERIC, "del"),
            };
            self.note_event(class, name, database, entry.key());
            self.log_expired(database, entry.key());
        }
    }

    /// Deletes those of these keys that have expired. All of them belong to one shard.
    pub fn expire_keys(&mut self, index: usize, database: u32, keys: &[Box<[u8]>]) {
        if !self.conditions.may_expire || keys.is_empty() {
            return;
        }
        // The shard is locked so that the events are published before it is unlocked.
        let alone = matches!(self.unit.held, HeldShards::None);
        if alone && !self.hold_one(index) {
            return;
        }
        let (over_ms, hasher) = (self.conditions.over_ms(), self.holding.keyspace.hasher());
        let mut gone = std::mem::take(&mut self.garbage);
        let before = gone.len();
        for key in keys {
            let shard = self.shard(index);
            let Some(from) = shard.used_mut(database) else { break };
            let Some(place) = from.find(hasher.hash(key), key) else { continue };
            if from.entry(place).expire_ms().is_some_and(|ms| ms <= over_ms) {
                gone.push(from.remove(place, hasher));
                if shard.has_watched() | self.audience.broadcasts {
                    self.tell_changed(database, self.key(key), ChangedBy::Server);
                }
            }
        }
        self.note_expired(database, &gone[before..]);
        self.garbage = gone;
        if alone {
            self.release();
        }
    }
}
