//! A worker's part in publish and subscribe: its own clients by what they listen to, and the messages that wait
//! to be fanned out to them.

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use bobbin_resp::Protocol;

use super::{Kind, Message, Names, Payload, PubSub, Publication};
use crate::client::{Client, ClientFlag};
use crate::io::Token;
use crate::server::WorkerHandle;
use crate::worker::Post;

/// What a client listens to, in the connection's own memory.
#[derive(Default)]
pub struct Subscriptions {
    names: [BTreeSet<Arc<[u8]>>; 3],
}

/// See the module.
pub struct Subscribers {
    registry: &'static PubSub,
    worker: Arc<WorkerHandle>,
    by_name: [Names<Recipients>; 3],
    /// What was taken from the mailbox and is not seen to yet, in order.
    queue: VecDeque<Queued>,
    /// For the client whose command is at work: what follows the command's reply.
    own: Vec<u8>,
    /// Something was published to this worker by a command of its own.
    posted_to_self: bool,
    /// A worker that was left more than it is to have waiting.
    overrun: Option<Arc<WorkerHandle>>,
    /// Memory of the last publication's targets, for the next.
    targets: Vec<Arc<WorkerHandle>>,
}

/// What was taken from the mailbox.
pub enum Queued {
    Post(Post),
    Delivery(Delivery),
    /// It was decided that it concerns nobody.
    Nothing,
}

/// A message whose listeners are known, since they may be others by the time it is sent.
pub struct Delivery {
    pub message: Arc<Message>,
    /// With the index of the pattern, if it is by one that the message goes to the client.
    pub to: Vec<(Recipient, Option<usize>)>,
}

/// A listening client of this worker.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Recipient {
    pub id: u64,
    /// Its connection; `Recipient::ARRIVING` until that is here.
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

impl Recipient {
    pub const ARRIVING: Token = Token::NONE;
}

impl Subscriptions {
    /// Channels and patterns: what SUBSCRIBE counts.
    pub fn channels_and_patterns(&self) -> usize {
        self.len(Kind::Channel) + self.len(Kind::Pattern)
    }

    pub fn len(&self, kind: Kind) -> usize {
        self.names[kind as usize].len()
    }

    pub fn is_empty(&self) -> bool {
        self.names.iter().all(BTreeSet::is_empty)
    }

    pub fn contains(&self, kind: Kind, name: &[u8]) -> bool {
        self.names[kind as usize].contains(name)
    }

    /// All names of a kind.
    pub fn names(&self, kind: Kind) -> Vec<Arc<[u8]>> {
        self.names[kind as usize].iter().cloned().collect()
    }
}

/// A client's own view of what it listens to, and what others see of it.
fn note(client: &Client) {
    let Some(subscriptions) = &client.subscriptions else { return };
    for kind in Kind::ALL {
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
            by_name: std::array::from_fn(|_| Names::with_hasher(registry.hasher)),
            queue: VecDeque::new(),
            own: Vec::new(),
            posted_to_self: false,
            overrun: None,
            targets: Vec::new(),
        }
    }

    // Publishing.

    /// Publishes to a channel; to how many clients it goes.
    #[inline]
    pub fn publish(&mut self, kind: Kind, channel: &[u8], payload: Payload<'_>) -> usize {
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
    pub fn count(&self, kind: Kind, channel: &[u8]) -> usize {
        self.registry.count(kind, channel)
    }

    fn post(
        &mut self,
        kind: Kind,
        channel: &[u8],
        payload: Payload<'_>,
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

    /// Makes a client listen; `false`: it did already. What was published before goes to the listeners of
    /// before: for the client itself that is put into `own`.
    pub fn subscribe(&mut self, client: &mut Client, kind: Kind, name: &[u8]) -> bool {
        let subscriptions = client.subscriptions.get_or_insert_default();
        if subscriptions.contains(kind, name) {
            return false;
        }
        let (queue, worker) = (&mut self.queue, &self.worker);
        let take = || queue.extend(worker.mailbox.take().into_iter().map(Queued::Post));
        let name = self.registry.join(kind, name, worker, take);
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
    pub fn unsubscribe(&mut self, client: &mut Client, kind: Kind, name: &[u8]) -> bool {
        let Some(subscriptions) = &mut client.subscriptions else { return false };
        if !subscriptions.names[kind as usize].remove(name) {
            return false;
        }
        let (queue, worker) = (&mut self.queue, &self.worker);
        let take = || queue.extend(worker.mailbox.take().into_iter().map(Queued::Post));
        self.registry.leave(kind, name, worker, take);
        self.settle(client);
        self.remove(kind, name, client.info.id);
        client.info.subscription_bytes.fetch_sub(memory_of(name), Ordering::Relaxed);
        note(client);
        true
    }

    /// A client is gone.
    pub fn forget(&mut self, client: &mut Client) {
        let Some(subscriptions) = client.subscriptions.take() else { return };
        for kind in Kind::ALL {
            for name in &subscriptions.names[kind as usize] {
                self.registry.leave(kind, name, &self.worker, || ());
                self.remove(kind, name, client.info.id);
            }
        }
        client.subscriptions = Some(Box::default());
        client.info.subscription_bytes.store(0, Ordering::Relaxed);
        note(client);
    }

    /// A connection came from another worker: messages reach it here.
    pub fn adopt(&mut self, client: &Client, token: Token) {
        let Some(subscriptions) = &client.subscriptions else { return };
        for kind in Kind::ALL {
            for name in &subscriptions.names[kind as usize] {
                self.add(kind, name, Recipient { id: client.info.id, token });
            }
        }
    }

    /// A connection leaves for another worker, with everything that was published until now: returns what of it
    /// is not sent yet. The gate is held, so nobody publishes, and what is published later goes to the other.
    pub fn hand_over(&mut self, client: &Client, to: &Arc<WorkerHandle>) -> Vec<u8> {
        let Some(subscriptions) = &client.subscriptions else { return Vec::new() };
        let own = std::mem::take(&mut self.own);
        self.take_mailbox();
        self.settle(client);
        for kind in Kind::ALL {
            for name in &subscriptions.names[kind as usize] {
                self.registry.leave(kind, name, &self.worker, || ());
                self.registry.join(kind, name, to, || ());
                self.remove(kind, name, client.info.id);
            }
        }
        std::mem::replace(&mut self.own, own)
    }

    /// The same once more, as the worker that it was handed to has ended.
    pub fn hand_on(&self, client: &Client, from: &Arc<WorkerHandle>, to: &Arc<WorkerHandle>) {
        let Some(subscriptions) = &client.subscriptions else { return };
        for kind in Kind::ALL {
            for name in &subscriptions.names[kind as usize] {
                self.registry.leave(kind, name, from, || ());
                self.registry.join(kind, name, to, || ());
            }
        }
    }

    // Messages.

    /// Takes what was left in the mailbox.
    pub fn take_mailbox(&mut self) {
        self.queue.extend(self.worker.mailbox.take().into_iter().map(Queued::Post));
        self.posted_to_self = false;
    }

    /// The next thing to see to.
    pub fn pop(&mut self) -> Option<Queued> {
        self.queue.pop_front()
    }

    /// Things that are to be seen to before all others.
    pub fn put_back(&mut self, first: Vec<Queued>) {
        first.into_iter().rev().for_each(|queued| self.queue.push_front(queued));
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
            let recipients = self.by_name[Kind::Pattern as usize].get(pattern)?;
            Some((Some(index), &*recipients.list))
        });
        direct.into_iter().chain(matched)
    }

    /// A message was seen to.
    pub fn done(&self, message: &Message) {
        self.worker.backlog_bytes.fetch_sub(message.memory(), Ordering::Relaxed);
    }

    /// What follows the reply of the command that a client executed.
    pub fn own(&mut self, client: &Client) -> &mut Vec<u8> {
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

    /// Decides of all messages taken whom they go to: as it is now. Those for one client, whose command is at
    /// work, are put into `own` at once, so that they come before what the command answers.
    fn settle(&mut self, client: &Client) {
        if self.queue.is_empty() {
            return;
        }
        let (id, protocol) = (client.info.id, client.protocol);
        let mut queue = std::mem::take(&mut self.queue);
        let mut own = std::mem::take(&mut self.own);
        for queued in &mut queue {
            let delivery = match queued {
                Queued::Nothing => continue,
                Queued::Post(Post::Message(message)) => {
                    let message = Arc::clone(message);
                    let mut to = Vec::new();
                    for (pattern, recipients) in self.recipients(&message) {
                        let open = recipients.iter().filter(|it| it.id != message.settled_for);
                        to.extend(open.map(|recipient| (*recipient, pattern)));
                    }
                    *queued = Queued::Delivery(Delivery { message, to });
                    let Queued::Delivery(delivery) = queued else { continue };
                    delivery
                }
                Queued::Delivery(delivery) => delivery,
                Queued::Post(Post::Adopt(connection)) => {
                    // What follows is for it as well.
                    self.adopt(&connection.client, Recipient::ARRIVING);
                    continue;
                }
                Queued::Post(_) => continue,
            };
            let message = &delivery.message;
            delivery.to.retain(|(recipient, pattern)| {
                if recipient.id == id {
                    append(message, *pattern, protocol, &mut own);
                }
                recipient.id != id
            });
            if delivery.to.is_empty() {
                self.done(message);
                *queued = Queued::Nothing;
            }
        }
        self.queue = queue;
        self.own = own;
    }

    fn add(&mut self, kind: Kind, name: &Arc<[u8]>, recipient: Recipient) {
        self.by_name[kind as usize].entry(Arc::clone(name)).or_default().add(recipient);
    }

    fn remove(&mut self, kind: Kind, name: &[u8], id: u64) {
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

fn append(message: &Message, pattern: Option<usize>, protocol: Protocol, output: &mut Vec<u8>) {
    message.append(pattern, protocol, output, None);
}

impl Recipients {
    /// Adds a client, or tells where its connection is now.
    fn add(&mut self, recipient: Recipient) {
        match self.find(recipient.id) {
            Some(at) => self.list[at] = recipient,
            None => {
                self.list.push(recipient);
                if self.list.len() == SEARCHED_MAX + 1 {
                    let places = self.list.iter().enumerate();
                    self.places = places.map(|(at, recipient)| (recipient.id, at)).collect();
                } else if self.list.len() > SEARCHED_MAX {
                    self.places.insert(recipient.id, self.list.len() - 1);
                }
            }
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
