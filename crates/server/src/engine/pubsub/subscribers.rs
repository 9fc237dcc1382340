//! A worker's part in publish and subscribe: its own clients by what they listen to, and the
//! messages that wait to be fanned out to them.

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use bobbin_io::Token;

use super::{ByName, ChannelKind, Message, MessagePayload, PubSub, Publication};
use crate::engine::client::Client;
use crate::engine::clients::ClientFlag;
use crate::engine::server::WorkerHandle;
use crate::engine::server::mailbox::Post;

/// What a client listens to, in the connection's own memory.
#[derive(Default)]
pub struct Subscriptions {
    names: [BTreeSet<Arc<[u8]>>; 3],
}

/// The clients of one worker that listen, by channel and pattern.
pub struct Subscribers {
    registry: &'static PubSub,
    worker: Arc<WorkerHandle>,
    by_name: [ByName<Recipients>; 3],
    /// What was taken from the mailbox and is not seen to yet, in order.
    queue: VecDeque<Post>,
    /// How many posts were taken from the mailbox, ever. A post's number is how many were taken
    /// before it.
    taken: u64,
    /// For the client whose command is at work: what follows the command's reply.
    own: Vec<u8>,
    /// Something was published to this worker by a command of its own.
    posted_to_self: bool,
    /// A worker that was left more than it should have waiting.
    overrun: Option<Arc<WorkerHandle>>,
    /// Memory of the last publication's targets, for the next.
    targets: Vec<Arc<WorkerHandle>>,
}

/// A listening client of this worker.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Recipient {
    pub id: u64,
    /// Its connection, which stays with this worker as long as the client listens.
    pub token: Token,
}

/// The clients of one name.
#[derive(Default)]
struct Recipients {
    list: Vec<Recipient>,
    /// Where in the list a client is; kept for long lists only.
    places: HashMap<u64, usize>,
}

/// Lists up to this length are searched.
const SEARCHED_MAX: usize = 32;
/// Bytes of messages that may wait for a worker before publishers to it are slowed down.
const BACKLOG_MAX: usize = 256 * 1024;

impl Subscriptions {
    /// Channels and patterns: what SUBSCRIBE counts.
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

/// A client's own view of what it listens to, and what others see of it.
fn note(client: &Client) {
    let Some(subscriptions) = &client.subscriptions else { return };
    for kind in ChannelKind::ALL {
        let shown = &client.info.subscriptions[kind as usize];
        shown.store(subscriptions.len(kind) as u32, Ordering::Relaxed);
    }
    client.info.flag(ClientFlag::PUBSUB, !subscriptions.is_empty());
}

/// Bytes that a subscription takes, here and in the client's own list.
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
            posted_to_self: false,
            overrun: None,
            targets: Vec::new(),
        }
    }

    // Publishing.

    /// Publishes to a channel; to how many clients it goes.
    #[inline]
    pub fn publish(
        &mut self,
        kind: ChannelKind,
        channel: &[u8],
        payload: MessagePayload<'_>,
    ) -> usize {
        if self.registry.is_silent(kind) { 0 } else { self.post(kind, channel, payload, 0) }
    }

    /// Publishes what a unit that ends has left.
    pub fn publish_late(&mut self, publication: &Publication) {
        let Publication { kind, channel, settled_for, .. } = publication;
        if !self.registry.is_silent(*kind) {
            self.post(*kind, channel, publication.payload(), *settled_for);
        }
    }

    /// To how many clients a message would go.
    pub fn count(&self, kind: ChannelKind, channel: &[u8]) -> usize {
        self.registry.count(kind, channel)
    }

    fn post(
        &mut self,
        kind: ChannelKind,
        channel: &[u8],
        payload: MessagePayload<'_>,
        settled_for: u64,
    ) -> usize {
        let mut targets = std::mem::take(&mut self.targets);
        let clients = self.registry.publish(kind, channel, payload, settled_for, &mut targets);
        for worker in targets.drain(..) {
            if worker.id == self.worker.id {
                self.posted_to_self = true;
            } else {
                worker.mailbox.wake();
            }
            if worker.backlog_bytes.load(Ordering::Relaxed) > BACKLOG_MAX {
                self.overrun = Some(worker);
            }
        }
        self.targets = targets;
        clients
    }

    /// Whether publishers have to wait until some worker has caught up.
    #[inline]
    pub fn is_overrun(&mut self) -> bool {
        let backlog = |worker: &Arc<WorkerHandle>| worker.backlog_bytes.load(Ordering::Relaxed);
        if self.overrun.as_ref().is_some_and(|worker| backlog(worker) < BACKLOG_MAX / 2) {
            self.overrun = None;
        }
        self.overrun.is_some()
    }

    // Subscribing.

    /// Makes a client listen; `false`: it did already. What was published before goes to the
    /// listeners of before: for the client itself that is put into `own`.
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

    /// Ends that; `false`: it did not listen. What was published until then is put into `own`.
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

    /// A client is gone.
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

    /// Takes what was left in the mailbox.
    pub fn take_mailbox(&mut self) {
        let posts = self.worker.mailbox.take();
        // Mostly there is nothing.
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

    /// The number of the next post to see to.
    fn next_number(&self) -> u64 {
        self.taken - self.queue.len() as u64
    }

    /// The next post to see to, behind its number.
    pub fn pop(&mut self) -> Option<(u64, Post)> {
        let number = self.next_number();
        Some((number, self.queue.pop_front()?))
    }

    /// Whether something is left to see to.
    pub fn has_more(&self) -> bool {
        !self.queue.is_empty()
    }

    /// All clients that a message goes to, with the index of the pattern if it is by one.
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

    /// A message was seen to.
    pub fn done(&self, message: &Message) {
        self.worker.backlog_bytes.fetch_sub(message.memory(), Ordering::Relaxed);
    }

    /// What follows the reply of the command that a client executed.
    pub fn own(&mut self, client: &mut Client) -> &mut Vec<u8> {
        let listens = client.subscriptions.as_ref().is_some_and(|s| !s.is_empty());
        if std::mem::take(&mut self.posted_to_self) && listens {
            self.take_mailbox();
            self.settle(client);
        }
        &mut self.own
    }

    /// What was put aside for the client at work.
    pub fn set_aside(&mut self) -> &mut Vec<u8> {
        &mut self.own
    }

    /// Puts those of the messages taken that are for a client, whose command is at work, into
    /// `own`, so that they come before what the command answers. All others still come to those
    /// that listen now, but this client hears what is taken later.
    fn settle(&mut self, client: &mut Client) {
        let seen_to = client.hears_from.saturating_sub(self.next_number()) as usize;
        for post in self.queue.iter().skip(seen_to) {
            if let Post::Message(message) = post {
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
            if by_name.is_empty() {
                by_name.shrink_to_fit();
            }
        }
    }
}

impl Recipients {
    /// Adds a client, if it is not there.
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
        if self.list.len() < self.list.capacity() / 4 {
            self.list.shrink_to(self.list.len() * 2);
            self.places.shrink_to(self.list.len() * 2);
        }
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
