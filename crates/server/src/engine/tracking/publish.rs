//! Tells clients that their copies are invalid.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use bobbin_store::trim::Trim;

use super::{Mode, Push, TrackingClient, TrackingRegistry};
use crate::engine::clients::ClientInfo;
use crate::engine::pubsub::Publication;
use crate::engine::server::{Server, WorkerHandle};

/// What other clients must be told of a change before the keys' shards are unlocked.
#[derive(Debug)]
pub enum Notice {
    /// An event of a key, or a PUBLISH of a transaction or a script.
    Message(Publication),
    /// For the clients, by number, that keep copies of a key.
    Invalid { key: Box<[u8]>, readers: Vec<u64>, by: ChangedBy },
    /// For clients that want to be told of all changes.
    Changed { key: Box<[u8]>, by: ChangedBy },
    /// For all clients that keep copies of any key.
    AllInvalid,
}

/// Who made copies of a key invalid. A client that changed the key itself may not want to be told.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum ChangedBy {
    /// The current client.
    Client,
    /// The server: the key expired, or the table of readers was full.
    Server,
}

/// A worker's part in client-side caching.
pub struct Tracker {
    server: &'static Server,
    /// The keys that changed in this turn, each with the number of the client that changed it (0 if
    /// none), for clients that want broadcasts.
    changed: Vec<(Box<[u8]>, u64)>,
    /// The number of keys that this worker has added to the shards' tables since it last reported.
    pub(super) added: u64,
    /// When to look at the size of the tables again (Unix ms).
    pub(super) look_at_ms: i64,
}

/// The number of changed keys that are broadcast without waiting for the end of the turn.
const CHANGED_MAX: usize = 4096;

/// With more prefixes than this, the prefixes of each changed key are looked up; otherwise all
/// prefixes are tried.
const WALKED_MAX: usize = 64;

/// The client whose command is being executed, and the bytes that follow its reply.
pub struct AtWork<'a> {
    id: u64,
    own: &'a mut Vec<u8>,
    /// A worker that messages for its clients have overrun.
    pub overrun: Option<Arc<WorkerHandle>>,
}

impl<'a> AtWork<'a> {
    /// `id` is the client's number. With 0, messages for the client are posted as for any other.
    pub const fn new(id: u64, own: &'a mut Vec<u8>) -> Self {
        Self { id, own, overrun: None }
    }

    fn note_overrun(&mut self, worker: Option<Arc<WorkerHandle>>) {
        if worker.is_some() {
            self.overrun = worker;
        }
    }
}

impl TrackingRegistry {
    /// The prefixes that some of these keys begin with, and the clients that asked for each.
    fn prefixes_of(&self, changed: &[(Box<[u8]>, u64)]) -> BTreeMap<&[u8], &Vec<u64>> {
        let mut found = BTreeMap::new();
        for (key, _) in changed {
            // In the order of prefixes, a prefix of the key is not behind the key. If the prefix
            // found does not fit, all others that fit are within the beginning that both have in
            // common.
            let mut rest: &[u8] = key;
            let until = |rest| (Bound::Unbounded, Bound::Included(rest));
            while let Some((prefix, clients)) =
                self.prefixes.range::<[u8], _>(until(rest)).next_back()
            {
                let common = prefix.iter().zip(rest).take_while(|(a, b)| a == b).count();
                let mut shorter = common;
                if common == prefix.len() {
                    found.insert(&**prefix, clients);
                    let Some(less) = common.checked_sub(1) else { break };
                    shorter = less;
                }
                rest = &rest[..shorter];
            }
        }
        found
    }
}

impl Tracker {
    pub const fn new(server: &'static Server) -> Self {
        Self { server, changed: Vec::new(), added: 0, look_at_ms: 0 }
    }

    /// Whether a client wants to be told of all changes.
    #[inline]
    pub fn broadcasts(&self) -> bool {
        self.server.tracking.broadcasts()
    }

    /// Whether no client has ever tracked.
    pub fn is_new(&self) -> bool {
        !self.server.tracking.is_in_use.load(Ordering::Relaxed)
    }

    /// Whether a client still tracks.
    pub fn is_there(&self, id: u64) -> bool {
        self.server.tracking.registry.read().readers.contains_key(&id)
    }

    /// Counts a key that was added to a shard's table.
    pub const fn count_added(&mut self) {
        self.added += 1;
    }

    /// Notes a change for the clients that want broadcasts.
    fn note_changed(&mut self, key: &[u8], by: u64, at_work: &mut AtWork<'_>) {
        self.changed.push((key.into(), by));
        if self.changed.len() >= CHANGED_MAX {
            at_work.note_overrun(self.broadcast());
        }
    }

    /// Tells the clients that a notice concerns. `by` is the number of the current client.
    pub fn publish(&mut self, notice: &Notice, by: u64, at_work: &mut AtWork<'_>) {
        let number = |changed_by: ChangedBy| match changed_by {
            ChangedBy::Client => by,
            ChangedBy::Server => 0,
        };
        match notice {
            Notice::Message(_) => {}
            Notice::Invalid { key, readers, by } => {
                self.invalidate(key, readers, number(*by), at_work);
            }
            Notice::Changed { key, by } => self.note_changed(key, number(*by), at_work),
            Notice::AllInvalid => self.invalidate_all(at_work),
        }
    }

    fn invalidate(&self, key: &[u8], readers: &[u64], by: u64, at_work: &mut AtWork<'_>) {
        let registry = self.server.tracking.registry.read();
        let mut keys = None;
        for id in readers {
            let Some(reader) = registry.readers.get(id) else { continue };
            let is_own = by == *id && reader.mode.has(Mode::NO_LOOP);
            if reader.mode.has(Mode::BROADCAST) || is_own {
                continue;
            }
            let keys = keys.get_or_insert_with(|| Push::invalid(key));
            self.tell(reader, keys, at_work);
        }
    }

    fn invalidate_all(&self, at_work: &mut AtWork<'_>) {
        let nothing: Arc<[u8]> = Arc::default();
        for reader in self.server.tracking.registry.read().readers.values() {
            self.tell(reader, &nothing, at_work);
        }
    }

    /// Posts this turn's changes to the clients that want broadcasts. Returns a worker that they
    /// have overrun.
    #[inline]
    pub fn broadcast(&mut self) -> Option<Arc<WorkerHandle>> {
        if self.changed.is_empty() { None } else { self.post_changed() }
    }

    /// Posts the keys of each prefix together to the clients that asked for the prefix.
    #[cold]
    fn post_changed(&mut self) -> Option<Arc<WorkerHandle>> {
        let mut nothing = Vec::new();
        let mut nobody = AtWork::new(0, &mut nothing);
        self.changed.sort_unstable();
        // If several clients changed a key, each of them must be told of it.
        self.changed.dedup_by(|later, first| {
            let same = later.0 == first.0;
            if same && later.1 != first.1 {
                first.1 = 0;
            }
            same
        });
        let registry = self.server.tracking.registry.read();
        let walked = registry.prefixes.len() <= WALKED_MAX;
        let found = if walked { BTreeMap::new() } else { registry.prefixes_of(&self.changed) };
        let all = registry.prefixes.iter().map(|(prefix, clients)| (&**prefix, clients));
        for (prefix, clients) in all.take(if walked { usize::MAX } else { 0 }).chain(found) {
            let start = self.changed.partition_point(|(key, _)| **key < *prefix);
            let matching =
                self.changed[start..].partition_point(|(key, _)| key.starts_with(prefix));
            let matching = &self.changed[start..start + matching];
            if matching.is_empty() {
                continue;
            }
            let mut shared = None;
            for id in clients {
                let Some(reader) = registry.readers.get(id) else { continue };
                let quiet = reader.mode.has(Mode::NO_LOOP);
                let keys = if quiet && matching.iter().any(|(_, by)| by == id) {
                    let others: Vec<&[u8]> =
                        matching.iter().filter(|(_, by)| by != id).map(|(key, _)| &**key).collect();
                    if others.is_empty() {
                        continue;
                    }
                    Push::invalid_all(others.into_iter())
                } else {
                    let all = || Push::invalid_all(matching.iter().map(|(key, _)| &**key));
                    Arc::clone(shared.get_or_insert_with(all))
                };
                self.tell(reader, &keys, &mut nobody);
            }
        }
        drop(registry);
        self.changed.clear();
        self.changed.trim(CHANGED_MAX / 4);
        nobody.overrun
    }

    fn tell(&self, reader: &TrackingClient, keys: &Arc<[u8]>, at_work: &mut AtWork<'_>) {
        let invalid = |redirected| Push::Invalid { keys: Arc::clone(keys), redirected };
        match &reader.redirect {
            None => self.push(&reader.info, invalid(false), at_work),
            Some((_, to)) if !to.is_going() => {
                self.push(to, invalid(true), at_work);
            }
            Some((id, _)) => {
                reader.info.redirect_broken.store(true, Ordering::Relaxed);
                self.push(&reader.info, Push::Broken(*id), at_work);
            }
        }
    }

    fn push(&self, to: &Arc<ClientInfo>, push: Push, at_work: &mut AtWork<'_>) {
        if at_work.id == to.id {
            push.append_for(to, at_work.own);
        } else {
            at_work.note_overrun(self.server.push_to(to, push));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prefixes_of_keys_are_found_as_by_comparing_all() {
        let mut state = 7u64;
        let mut word = |len_max: u64| -> Box<[u8]> {
            let mut random = |below: u64| {
                state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
                (state >> 33) % below
            };
            (0..random(len_max)).map(|_| b"abc"[random(3) as usize]).collect()
        };
        for _ in 0..2000 {
            let mut registry = TrackingRegistry::default();
            for number in 0..8 {
                registry.prefixes.entry(word(5)).or_default().push(number);
            }
            let changed: Vec<(Box<[u8]>, u64)> = (0..4).map(|_| (word(8), 0)).collect();
            let begins = |prefix: &[u8]| changed.iter().any(|(key, _)| key.starts_with(prefix));
            let all = registry.prefixes.iter().map(|(prefix, clients)| (&**prefix, clients));
            let expected: BTreeMap<_, _> = all.filter(|(prefix, _)| begins(prefix)).collect();
            assert_eq!(registry.prefixes_of(&changed), expected);
        }
    }
}
