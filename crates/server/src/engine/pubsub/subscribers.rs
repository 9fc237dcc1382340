//! A worker's part in publish and subscribe: its own clients by subscription, and the messages that
//! wait to be passed to them.

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use bobbin_io::Token;
use bobbin_store::trim::{FEW, Trim, kept_max};

use super::{ByName, ChannelKind, Message, MessagePayload, PubSub, Publication};
use crate::engine::client::Client;
use crate::engine::clients::ClientFlag;
use crate::engine::server::WorkerHandle;
use crate::engine::server::mailbox::Post;

/// The subscriptions of a client, in its connection's memory.
#[derive(Default)]
pub struct Subscriptions {
    names: [BTreeSet<Arc<[u8]>>; 3],
}

/// The listening clients of one worker, by channel and pattern.
pub struct Subscribers {
    registry: &'static PubSub,
    worker: Arc<WorkerHandle>,
    by_name: [ByName<Recipients>; 3],
    /// Posts that were taken from the mailbox and not handled yet, in order.
    queue: VecDeque<Post>,
    /// The number of posts that were ever taken from the mailbox. A post's number is how many were
    /// taken before it.
    taken: u64,
    /// Bytes for the current client that follow its command's reply.
    own: Vec<u8>,
    /// As in `own`: what the client is told of copies that are invalid. It comes last.
    own_invalid: Vec<u8>,
    /// Whether a command of this worker has published something to this worker.
    posted_to_self: bool,
    /// A worker for which too many messages wait.
    overrun: Option<Arc<WorkerHandle>>,
    overruns: u64,
    /// Memory of the last publication's targets, for the next one.
    targets: Vec<Arc<WorkerHandle>>,
}

/// A listening client of this worker.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Recipient {
    pub id: u64,
    /// The client's connection, which stays with this worker as long as the client listens.
    pub token: Token,
}

/// The clients that listen to one name.
#[derive(Default)]
struct Recipients {
    list: Vec<Recipient>,
    /// The index of each client in the list; only for long lists.
    places: HashMap<u64, usize>,
}

/// Lists up to this length are searched.
const SEARCHED_MAX: usize = 32;

impl Subscriptions {
    /// The number of channels and patterns, as SUBSCRIBE counts them.
    pub fn channels_and_patterns(&self) -> usize {
        self.len(ChannelKind::Channel) + self.len(ChannelKind::Pattern)
    }

    pub fn len(&self, kind: ChannelKind) -> usize {
        self.names[kind as usize].len()
    }

    pub fn is_empty(&self) -> bool {
        self.names.iter().all(BTreeSet::is_empty)
    }

    pub fn contains(&self, kind: ChannelKind, name: &[u8]) -> bool {
        self.names[kind as usize].contains(name)
    }

    /// All names of a kind.
    pub fn names(&self, kind: ChannelKind) -> Vec<Arc<[u8]>> {
        self.names[kind as usize].iter().cloned().collect()
    }
}

/// Updates what other threads see of a client's subscriptions.
fn note(client: &Client) {
    let Some(subscriptions) = &client.subscriptions else { return };
    for kind in ChannelKind::ALL {
        let shown = &client.info.subscriptions[kind as usize];
        shown.store(subscriptions.len(kind) as u32, Ordering::Relaxed);
    }
    client.info.flag(ClientFlag::PUBSUB, !subscriptions.is_empty());
}

/// Bytes of a subscription, here and in the client's own list.
fn memory_of(name: &[u8]) -> usize {
    size_of::<Recipient>() + 2 * size_of::<Arc<[u8]>>() + name.len()
}

impl Subscribers {
    pub fn new(registry: &'static PubSub, worker: Arc<WorkerHandle>) -> Self {
        Self {
            registry,
            worker,
            by_name: std::array::from_fn(|_| ByName::with_hasher(registry.hasher)),
            queue: VecDeque::new(),
            taken: 0,
            own: Vec::new(),
            own_invalid: Vec::new(),
            posted_to_self: false,
            overrun: None,
            overruns: 0,
            targets: Vec::new(),
        }
    }

    // Publishing.

    /// Publishes to a channel; returns how many clients get the message.
    #[inline]
    pub fn publish(
        &mut self,
        kind: ChannelKind,
        channel: &[u8],
        payload: MessagePayload<'_>,
    ) -> usize {
        if self.registry.is_silent(kind) { 0 } else { self.post(kind, channel, payload, None) }
    }

    /// Publishes a message that was kept until its unit ended.
    pub fn publish_late(&mut self, publication: &Publication) {
        let Publication { kind, channel, .. } = publication;
        if !self.registry.is_silent(*kind) {
            self.post(*kind, channel, publication.payload(), Some(publication));
        }
    }

    /// Whether no message to a channel of this kind has any listener.
    #[inline]
    pub fn is_silent(&self, kind: ChannelKind) -> bool {
        self.registry.is_silent(kind)
    }

    /// How many clients a message would reach.
    pub fn count(&self, kind: ChannelKind, channel: &[u8]) -> usize {
        self.registry.count(kind, channel)
    }

    fn post(
        &mut self,
        kind: ChannelKind,
        channel: &[u8],
        payload: MessagePayload<'_>,
        late: Option<&Publication>,
    ) -> usize {
        let mut targets = std::mem::take(&mut self.targets);
        let clients = self.registry.publish(kind, channel, payload, late, &mut targets);
        for worker in targets.drain(..) {
            if worker.id == self.worker.id {
                self.posted_to_self = true;
            } else {
                worker.mailbox.wake();
            }
            if worker.is_overrun() {
                self.note_overrun(Some(worker));
            }
        }
        self.targets = targets;
        clients
    }

    /// Whether publishers have to wait until some worker has caught up.
    #[inline]
    pub fn is_overrun(&mut self) -> bool {
        self.overrun.take_if(|worker| worker.has_caught_up());
        self.overrun.is_some()
    }

    /// Notes the worker that a message has overrun, if it has.
    pub fn note_overrun(&mut self, worker: Option<Arc<WorkerHandle>>) {
        if worker.is_some() {
            self.overrun = worker;
            self.overruns += 1;
        }
    }

    /// A number that grows with each message that overruns a worker.
    pub const fn overruns(&self) -> u64 {
        self.overruns
    }

    // Subscribing.

    /// Subscribes a client; returns `false` if it was subscribed already. Earlier messages go by
    /// the old subscriptions: those for this client are put into `own`.
    pub fn subscribe(&mut self, client: &mut Client, kind: ChannelKind, name: &[u8]) -> bool {
        let subscriptions = client.subscriptions.get_or_insert_default();
        if subscriptions.contains(kind, name) {
            return false;
        }
        let (name, posts) = self.registry.join(kind, name, &self.worker);
        self.enqueue(posts);
        self.settle(client);
        let recipient = Recipient { id: client.info.id, token: *client.info.token.lock() };
        self.add(kind, &name, recipient);
        client.info.subscription_bytes.fetch_add(memory_of(&name), Ordering::Relaxed);
        if let Some(subscriptions) = &mut client.subscriptions {
            subscriptions.names[kind as usize].insert(name);
        }
        note(client);
        true
    }

    /// Unsubscribes a client; returns `false` if it was not subscribed. Earlier messages for it are
    /// put into `own`.
    pub fn unsubscribe(&mut self, client: &mut Client, kind: ChannelKind, name: &[u8]) -> bool {
        if !client.subscriptions.as_ref().is_some_and(|all| all.contains(kind, name)) {
            return false;
        }
        let posts = self.registry.leave(kind, name, &self.worker);
        self.enqueue(posts);
        self.settle(client);
        self.remove(kind, name, client.info.id);
        if let Some(subscriptions) = &mut client.subscriptions {
            subscriptions.names[kind as usize].remove(name);
        }
        client.info.subscription_bytes.fetch_sub(memory_of(name), Ordering::Relaxed);
        note(client);
        true
    }

    /// Removes all subscriptions of a client that has gone.
    pub fn forget(&mut self, client: &mut Client) {
        let Some(subscriptions) = client.subscriptions.take() else { return };
        for kind in ChannelKind::ALL {
            for name in &subscriptions.names[kind as usize] {
                let posts = self.registry.leave(kind, name, &self.worker);
                self.enqueue(posts);
                self.remove(kind, name, client.info.id);
            }
        }
        client.subscriptions = Some(Box::default());
        client.info.subscription_bytes.store(0, Ordering::Relaxed);
        note(client);
    }

    // Messages.

    /// Takes the posts from the mailbox.
    pub fn take_mailbox(&mut self) {
        let posts = self.worker.mailbox.take();
        // Mostly there are none.
        if !posts.is_empty() {
            self.enqueue(posts);
        }
        self.posted_to_self = false;
    }

    #[cold]
    fn enqueue(&mut self, posts: Vec<Post>) {
        self.taken += posts.len() as u64;
        self.queue.extend(posts);
    }

    /// The number of the next post to handle.
    fn next_number(&self) -> u64 {
        self.taken - self.queue.len() as u64
    }

    /// The next post to handle, with its number.
    pub fn pop(&mut self) -> Option<(u64, Post)> {
        let number = self.next_number();
        Some((number, self.queue.pop_front()?))
    }

    /// Gives memory back that a rare, large use needed.
    pub fn rest(&mut self) {
        self.queue.trim(kept_max::<Post>());
        self.own.trim(kept_max::<u8>());
        self.targets.trim(FEW);
    }

    /// Whether there are posts to handle.
    pub fn has_more(&self) -> bool {
        !self.queue.is_empty()
    }

    /// All clients that a message goes to. Each list comes with the index of its pattern, if it is
    /// by a pattern.
    pub fn recipients<'a>(
        &'a self,
        message: &'a Message,
    ) -> impl Iterator<Item = (Option<usize>, &'a [Recipient])> {
        let direct = self.by_name[message.kind as usize].get(message.channel());
        let direct = direct.map(|recipients| (None, &*recipients.list));
        let matched = message.patterns.iter().enumerate().filter_map(|(index, pattern)| {
            let recipients = self.by_name[ChannelKind::Pattern as usize].get(pattern)?;
            Some((Some(index), &*recipients.list))
        });
        direct.into_iter().chain(matched)
    }

    /// Notes that a message was handled.
    pub fn done(&self, message: &Message) {
        self.worker.backlog_bytes.fetch_sub(message.memory(), Ordering::Relaxed);
    }

    /// The bytes that follow the reply of the command that the client has executed.
    pub fn own(&mut self, client: &mut Client) -> &mut Vec<u8> {
        let listens = client.subscriptions.as_ref().is_some_and(|s| !s.is_empty());
        if std::mem::take(&mut self.posted_to_self) && listens {
            self.take_mailbox();
            self.settle(client);
        }
        self.own.append(&mut self.own_invalid);
        &mut self.own
    }

    /// The bytes that were set aside for the current client.
    pub fn set_aside(&mut self) -> &mut Vec<u8> {
        &mut self.own
    }

    /// What was set aside for the current client about copies that are invalid.
    pub fn invalid_aside(&mut self) -> &mut Vec<u8> {
        &mut self.own_invalid
    }

    /// Puts the taken messages that are for the current client into `own`, so that they come before
    /// its command's answer. The other clients still get theirs later; this client gets only
    /// messages that are taken later.
    fn settle(&mut self, client: &mut Client) {
        let seen_to = client.hears_from.saturating_sub(self.next_number()) as usize;
        for post in self.queue.iter().skip(seen_to) {
            if let Post::Message { message, .. } = post {
                message.append_for(client, &mut self.own);
            }
        }
        client.hears_from = self.taken;
    }

    fn add(&mut self, kind: ChannelKind, name: &Arc<[u8]>, recipient: Recipient) {
        self.by_name[kind as usize].entry(Arc::clone(name)).or_default().add(recipient);
    }

    fn remove(&mut self, kind: ChannelKind, name: &[u8], id: u64) {
        let by_name = &mut self.by_name[kind as usize];
        let Some(recipients) = by_name.get_mut(name) else { return };
        recipients.remove(id);
        if recipients.list.is_empty() {
            by_name.remove(name);
            by_name.trim(FEW);
        }
    }
}

impl Recipients {
    /// Adds a client, if it is not there yet.
    fn add(&mut self, recipient: Recipient) {
        if self.find(recipient.id).is_some() {
            return;
        }
        self.list.push(recipient);
        if self.list.len() == SEARCHED_MAX + 1 {
            let places = self.list.iter().enumerate();
            self.places = places.map(|(at, recipient)| (recipient.id, at)).collect();
        } else if self.list.len() > SEARCHED_MAX {
            self.places.insert(recipient.id, self.list.len() - 1);
        }
    }

    fn remove(&mut self, id: u64) {
        let Some(at) = self.find(id) else { return };
        self.list.swap_remove(at);
        if self.list.len() <= SEARCHED_MAX {
            self.places = HashMap::new();
            return;
        }
        self.places.remove(&id);
        if let Some(moved) = self.list.get(at) {
            self.places.insert(moved.id, at);
        }
        self.list.trim(SEARCHED_MAX);
        self.places.trim(SEARCHED_MAX);
    }

    fn find(&self, id: u64) -> Option<usize> {
        if self.list.len() > SEARCHED_MAX {
            return self.places.get(&id).copied();
        }
        self.list.iter().position(|recipient| recipient.id == id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Config;
    use crate::embedded::Embedded;
    use crate::engine::log::append_command;

    #[test]
    fn the_memory_of_many_subscriptions_is_given_back() {
        const CHANNELS: usize = 50_000;
        let mut embedded = Embedded::new(Config::new(), 1).expect("it starts");
        let mut stays = embedded.connect();
        embedded.feed(&mut stays, b"SUBSCRIBE stay\r\n");
        let mut session = embedded.connect();
        let names: Vec<String> = (0..CHANNELS).map(|name| format!("c{name}")).collect();
        let mut words = vec![&b"SUBSCRIBE"[..]];
        words.extend(names.iter().map(String::as_bytes));
        let mut request = Vec::new();
        append_command(&mut request, &words);
        embedded.feed(&mut session, &request);
        let registry = &embedded.server().pubsub;
        let capacity = |embedded: &mut Embedded| {
            let subscribers = embedded.data().audience.subscribers.as_mut().expect("it has some");
            let parts = &registry.channels.parts;
            let registered: usize = parts.iter().map(|part| part.lock().capacity()).sum();
            [subscribers.by_name[0].capacity(), registered]
        };
        assert!(capacity(&mut embedded).iter().all(|capacity| *capacity >= CHANNELS));
        embedded.feed(&mut session, b"UNSUBSCRIBE\r\n");
        let kept = capacity(&mut embedded);
        assert!(kept.iter().all(|capacity| *capacity < CHANNELS / 4), "{kept:?}");
        let subscribers = embedded.data().audience.subscribers.as_mut().expect("it has some");
        subscribers.own.extend(std::iter::repeat_n(b' ', 1_000_000));
        subscribers.own.clear();
        subscribers.rest();
        assert!(subscribers.own.capacity() < 100_000);
    }

    #[test]
    fn recipients_are_found_in_short_and_long_lists() {
        let recipient = |id| Recipient { id, token: Token::new(id as u32, 1) };
        let mut recipients = Recipients::default();
        for id in 0..200 {
            recipients.add(recipient(id));
            recipients.add(recipient(id));
        }
        assert_eq!(recipients.list.len(), 200);
        for id in (0..200).filter(|id| id % 3 != 0) {
            recipients.remove(id);
            recipients.remove(id);
        }
        for id in 0..200 {
            let found = recipients.find(id).map(|at| recipients.list[at]);
            assert_eq!(found, (id % 3 == 0).then(|| recipient(id)));
        }
        (0..200).rev().for_each(|id| recipients.remove(id));
        assert!(recipients.list.is_empty() && recipients.places.is_empty());
    }
}
