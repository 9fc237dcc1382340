//! Publish and subscribe: channels, patterns and shard channels, and the clients that listen to
//! them.
//!
//! The registry here knows for each channel which workers have listening clients, and how many;
//! each worker knows its own clients ([`Subscribers`]). Publishing leaves one post for each such
//! worker, which passes the message to its clients (`worker/fanout.rs`). Posts are left in all
//! mailboxes at once, with the channel's part of the registry locked. So all clients see the
//! messages of a channel in the same order, and no client sees an answer before the message that it
//! answers.
//!
//! When a client subscribes or unsubscribes, it takes what was posted to its worker before, under
//! the same lock. Those messages go by the old subscriptions, all later ones by the new. A client
//! that listens stays with its worker.

mod message;
pub mod notify;
mod subscribers;

use std::collections::HashMap;
use std::hash::BuildHasher;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bobbin_store::Hasher;
use bobbin_store::trim::{FEW, Trim};
use bobbin_sync::{Mutex, RwLock};

pub use self::message::{Message, MessagePayload, Publication};
pub use self::subscribers::{Recipient, Subscribers, Subscriptions};
use crate::base::glob;
use crate::engine::server::WorkerHandle;
use crate::engine::server::mailbox::{Mailbox, Post, post_memory};
use crate::engine::server::unsent::UnsentBytes;

/// The kinds of subscriptions.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(usize)]
pub enum ChannelKind {
    Channel,
    Pattern,
    Shard,
}

impl ChannelKind {
    pub const ALL: [Self; 3] = [Self::Channel, Self::Pattern, Self::Shard];
}

/// Which clients listen to what.
pub struct PubSub {
    hasher: NameHasher,
    channels: Space,
    shard_channels: Space,
    patterns: RwLock<Patterns>,
    /// The number of patterns, to be read without the lock.
    pattern_count: AtomicUsize,
}

/// Channels by name, in parts with a lock each. Only mailboxes are locked while a part is locked.
struct Space {
    parts: Box<[Mutex<ByName<ChannelListeners>>]>,
    len: AtomicUsize,
}

/// The patterns that clients listen to, and the index of each in the list.
struct Patterns {
    list: Vec<ChannelPattern>,
    places: ByName<usize>,
}

struct ChannelPattern {
    text: Arc<[u8]>,
    listeners: ChannelListeners,
}

/// The workers that have listening clients, ordered by id.
struct ChannelListeners(Vec<ChannelListener>);

struct ChannelListener {
    worker: Arc<WorkerHandle>,
    clients: usize,
}

/// A map by name that uses the keyspace's hash function.
type ByName<V> = HashMap<Arc<[u8]>, V, NameHasher>;

/// The number of parts of the registry: this many threads can publish at the same time.
const PARTS: usize = 256;

impl PubSub {
    pub fn new(hasher: Hasher) -> Self {
        // All maps of the server share the hasher, and the server lives as long as the process.
        let hasher = NameHasher(Box::leak(Box::new(hasher)));
        Self {
            hasher,
            channels: Space::new(hasher),
            shard_channels: Space::new(hasher),
            patterns: RwLock::new(Patterns {
                list: Vec::new(),
                places: ByName::with_hasher(hasher),
            }),
            pattern_count: AtomicUsize::new(0),
        }
    }

    /// The number of channels, patterns or shard channels that have listeners.
    pub fn len(&self, kind: ChannelKind) -> usize {
        match kind {
            ChannelKind::Channel => self.channels.len.load(Ordering::Acquire),
            ChannelKind::Pattern => self.pattern_count.load(Ordering::Acquire),
            ChannelKind::Shard => self.shard_channels.len.load(Ordering::Acquire),
        }
    }

    /// Whether no message to a channel of this kind has any listener, whatever the channel's name.
    #[inline]
    pub fn is_silent(&self, kind: ChannelKind) -> bool {
        self.len(kind) == 0 && (kind != ChannelKind::Channel || self.len(ChannelKind::Pattern) == 0)
    }

    /// The number of clients that listen to the channel itself, not to a pattern.
    pub fn clients_of(&self, kind: ChannelKind, channel: &[u8]) -> usize {
        let part = self.space(kind).part(self.hasher, channel).lock();
        part.get(channel).map_or(0, ChannelListeners::clients)
    }

    /// The channels that have listeners and match the pattern.
    pub fn channels(&self, kind: ChannelKind, pattern: Option<&[u8]>) -> Vec<Arc<[u8]>> {
        let matches = |name: &[u8]| pattern.is_none_or(|pattern| glob::matches_text(pattern, name));
        let mut found = Vec::new();
        for part in &self.space(kind).parts {
            found.extend(part.lock().keys().filter(|name| matches(name)).cloned());
        }
        found
    }

    /// Counts one more listening client of the worker. Returns the name, which all listeners share,
    /// and what was posted to the worker before.
    fn join(
        &self,
        kind: ChannelKind,
        name: &[u8],
        worker: &Arc<WorkerHandle>,
    ) -> (Arc<[u8]>, Vec<Post>) {
        if kind == ChannelKind::Pattern {
            let mut patterns = self.patterns.write();
            let at = patterns.place(name);
            self.pattern_count.store(patterns.list.len(), Ordering::Release);
            let pattern = &mut patterns.list[at];
            pattern.listeners.add(worker);
            return (Arc::clone(&pattern.text), worker.mailbox.take());
        }
        let space = self.space(kind);
        let mut part = space.part(self.hasher, name).lock();
        let shared = match part.get_key_value(name) {
            Some((shared, _)) => Arc::clone(shared),
            None => {
                let shared: Arc<[u8]> = name.into();
                part.insert(Arc::clone(&shared), ChannelListeners(Vec::with_capacity(1)));
                space.len.fetch_add(1, Ordering::Release);
                shared
            }
        };
        if let Some(listeners) = part.get_mut(name) {
            listeners.add(worker);
        }
        (shared, worker.mailbox.take())
    }

    /// Counts one listening client less of the worker. Returns what was posted to the worker
    /// before.
    fn leave(&self, kind: ChannelKind, name: &[u8], worker: &WorkerHandle) -> Vec<Post> {
        if kind == ChannelKind::Pattern {
            let mut patterns = self.patterns.write();
            if let Some(&at) = patterns.places.get(name) {
                let listeners = &mut patterns.list[at].listeners;
                listeners.remove(worker);
                if listeners.0.is_empty() {
                    patterns.remove(at);
                    self.pattern_count.store(patterns.list.len(), Ordering::Release);
                }
            }
            return worker.mailbox.take();
        }
        let space = self.space(kind);
        let mut part = space.part(self.hasher, name).lock();
        if let Some(listeners) = part.get_mut(name) {
            listeners.remove(worker);
            if listeners.0.is_empty() {
                part.remove(name);
                space.len.fetch_sub(1, Ordering::Release);
                part.trim(FEW);
            }
        }
        worker.mailbox.take()
    }

    /// Posts a message to the workers of all listening clients. `late`: it was kept until its unit
    /// ended. Returns how many clients get it; a client counts once for the channel and
    /// once for each pattern. The workers are added to `targets`; the caller wakes them.
    fn publish(
        &self,
        kind: ChannelKind,
        channel: &[u8],
        payload: MessagePayload<'_>,
        late: Option<&Publication>,
        targets: &mut Vec<Arc<WorkerHandle>>,
    ) -> usize {
        let patterns = (kind == ChannelKind::Channel && self.len(ChannelKind::Pattern) > 0)
            .then(|| self.patterns.read());
        let all = patterns.iter().flat_map(|patterns| &patterns.list);
        let matching: Vec<&ChannelPattern> =
            all.filter(|pattern| glob::matches_text(&pattern.text, channel)).collect();
        let part = self.space(kind).part(self.hasher, channel).lock();
        let direct = part.get(channel);
        let mut clients = 0;
        for listeners in direct.into_iter().chain(matching.iter().map(|p| &p.listeners)) {
            clients += listeners.clients();
            targets.extend(listeners.0.iter().map(|listener| Arc::clone(&listener.worker)));
        }
        if clients == 0 {
            return 0;
        }
        if !matching.is_empty() {
            targets.sort_unstable_by_key(|worker| worker.id);
            targets.dedup_by_key(|worker| worker.id);
        }
        let mut message = Message::new(kind, channel, payload);
        message.settled_for = late.map_or(0, |late| late.settled_for);
        message.patterns = matching.iter().map(|pattern| Arc::clone(&pattern.text)).collect();
        let message = Arc::new(message);
        for worker in &*targets {
            worker.backlog_bytes.fetch_add(message.memory(), Ordering::Relaxed);
        }
        let mailboxes = targets.iter().map(|worker| &worker.mailbox);
        let bytes = post_memory(message.memory());
        // All threads share the count, and a PUBLISH of its own evicts nothing.
        let unsent = || late.map_or_else(UnsentBytes::default, |_| UnsentBytes::new(bytes));
        let post = || Post::Message { message: Arc::clone(&message), unsent: unsent() };
        Mailbox::post_to_all(mailboxes, post);
        clients
    }

    /// How many clients a message would reach, counted as in `publish`.
    fn count(&self, kind: ChannelKind, channel: &[u8]) -> usize {
        let mut clients = 0;
        if kind == ChannelKind::Channel && self.len(ChannelKind::Pattern) > 0 {
            let patterns = self.patterns.read();
            let matching = patterns.list.iter().filter(|it| glob::matches_text(&it.text, channel));
            clients += matching.map(|pattern| pattern.listeners.clients()).sum::<usize>();
        }
        let part = self.space(kind).part(self.hasher, channel).lock();
        clients + part.get(channel).map_or(0, ChannelListeners::clients)
    }

    fn space(&self, kind: ChannelKind) -> &Space {
        if kind == ChannelKind::Shard { &self.shard_channels } else { &self.channels }
    }
}

impl Space {
    fn new(hasher: NameHasher) -> Self {
        let parts = (0..PARTS).map(|_| Mutex::new(ByName::with_hasher(hasher))).collect();
        Self { parts, len: AtomicUsize::new(0) }
    }

    fn part(&self, hasher: NameHasher, name: &[u8]) -> &Mutex<ByName<ChannelListeners>> {
        &self.parts[hasher.0.hash(name).shard() % PARTS]
    }
}

impl Patterns {
    /// The index of a pattern, which is added if it is new.
    fn place(&mut self, text: &[u8]) -> usize {
        if let Some(&at) = self.places.get(text) {
            return at;
        }
        let (text, at): (Arc<[u8]>, _) = (text.into(), self.list.len());
        self.places.insert(Arc::clone(&text), at);
        self.list.push(ChannelPattern { text, listeners: ChannelListeners(Vec::new()) });
        at
    }

    fn remove(&mut self, at: usize) {
        let removed = self.list.swap_remove(at);
        self.places.remove(&removed.text);
        if let Some(moved) = self.list.get(at) {
            self.places.insert(Arc::clone(&moved.text), at);
        }
        self.list.trim(FEW);
        self.places.trim(FEW);
    }
}

impl ChannelListeners {
    fn clients(&self) -> usize {
        self.0.iter().map(|listener| listener.clients).sum()
    }

    fn add(&mut self, worker: &Arc<WorkerHandle>) {
        match self.0.binary_search_by_key(&worker.id, |listener| listener.worker.id) {
            Ok(at) => self.0[at].clients += 1,
            Err(at) => {
                self.0.insert(at, ChannelListener { worker: Arc::clone(worker), clients: 1 });
            }
        }
    }

    fn remove(&mut self, worker: &WorkerHandle) {
        let found = self.0.binary_search_by_key(&worker.id, |listener| listener.worker.id);
        let Ok(at) = found else { return };
        self.0[at].clients -= 1;
        if self.0[at].clients == 0 {
            self.0.remove(at);
        }
    }
}

/// Hashes names with the keyspace's hash function. It cannot hash anything else.
#[derive(Clone, Copy)]
struct NameHasher(&'static Hasher);

struct HashOfName {
    hasher: &'static Hasher,
    hash: u64,
}

impl BuildHasher for NameHasher {
    type Hasher = HashOfName;

    fn build_hasher(&self) -> HashOfName {
        HashOfName { hasher: self.0, hash: 0 }
    }
}

impl std::hash::Hasher for HashOfName {
    fn write(&mut self, bytes: &[u8]) {
        self.hash = self.hasher.hash(bytes).0;
    }

    fn write_usize(&mut self, _: usize) {
        // The hash of the name covers its length already.
    }

    fn finish(&self) -> u64 {
        self.hash
    }
}
