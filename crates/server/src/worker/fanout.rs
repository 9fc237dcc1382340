//! Published messages on the last part of their way: from the worker's mailbox to its connections.
//!
//! A message is written into the turn's arena once for each protocol, and all connections that have nothing
//! else to send refer to the same bytes.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use bobbin_resp::Protocol;

use super::connection::Connection;
use super::output::{Arena, Range};
use super::slab::Slab;
use super::{Post, Worker, touch};
use crate::pubsub::{Delivery, Message, Queued, Recipient};
use crate::server::Server;

/// A turn hands messages to connections so often, at most, ...
const DELIVERIES_MAX: usize = 32 * 1024;
/// ... and of so many bytes. The rest waits for the next turn.
const DELIVERED_BYTES_MAX: usize = 256 * 1024;
/// How long a worker whose publishers have to wait sleeps before it looks whether they still have to.
pub(super) const OVERRUN_PAUSE: Duration = Duration::from_millis(1);

/// One message being handed to connections.
struct FanOut<'a> {
    message: &'a Message,
    pattern: Option<usize>,
    /// Where in the arena it is, by protocol.
    ranges: [Option<Range>; 2],
}

impl FanOut<'_> {
    /// Has a connection send the message behind what it has.
    fn deliver(&mut self, arena: &mut Arena, touched: &mut Vec<u32>, connection: &mut Connection) {
        if connection.closing {
            return;
        }
        let protocol = connection.client.protocol;
        let range = &mut self.ranges[usize::from(protocol == Protocol::Resp3)];
        let range = *range.get_or_insert_with(|| {
            let start = arena.bytes.len();
            let parts = Some(&mut arena.parts);
            self.message.append(self.pattern, protocol, &mut arena.bytes, parts);
            Range { start, end: arena.bytes.len() }
        });
        connection.add_replies(arena, range);
        touch(touched, connection);
    }
}

impl Worker {
    /// Sees to what others left in the mailbox; published messages as long as there are not too many for a turn.
    pub(super) fn take_posts(&mut self) {
        let (mut deliveries, start) = (0, self.arena.bytes.len());
        let mut taken = false;
        loop {
            let Some(subscribers) = &mut self.data.subscribers else { return };
            let Some(queued) = subscribers.pop() else {
                if std::mem::replace(&mut taken, true) {
                    return;
                }
                subscribers.take_mailbox();
                continue;
            };
            match queued {
                Queued::Post(Post::Message(message)) => deliveries += self.fan_out(&message),
                Queued::Delivery(delivery) => deliveries += self.deliver(&delivery),
                Queued::Post(post) => self.take_post(post),
                Queued::Nothing => {}
            }
            let bytes = self.arena.bytes.len() - start;
            if deliveries >= DELIVERIES_MAX || bytes >= DELIVERED_BYTES_MAX {
                return;
            }
        }
    }

    /// Hands a message to all who listen; returns how many.
    pub(super) fn fan_out(&mut self, message: &Message) -> usize {
        let Self { data, connections, arena, touched, .. } = self;
        let Some(subscribers) = &data.subscribers else { return 0 };
        let mut count = 0;
        for (pattern, recipients) in subscribers.recipients(message) {
            let mut fan_out = FanOut { message, pattern, ranges: [None; 2] };
            for recipient in recipients.iter().filter(|it| it.id != message.settled_for) {
                if let Some(connection) = find(self.server, connections, *recipient) {
                    fan_out.deliver(arena, touched, connection);
                }
            }
            count += recipients.len();
        }
        subscribers.done(message);
        count
    }

    /// Hands a message to those of whom that was decided before.
    fn deliver(&mut self, delivery: &Delivery) -> usize {
        let Self { data, connections, arena, touched, .. } = self;
        let message = &delivery.message;
        for to in delivery.to.chunk_by(|(_, one), (_, other)| one == other) {
            let mut fan_out = FanOut { message, pattern: to[0].1, ranges: [None; 2] };
            for (recipient, _) in to {
                if let Some(connection) = find(self.server, connections, *recipient) {
                    fan_out.deliver(arena, touched, connection);
                }
            }
        }
        if let Some(subscribers) = &data.subscribers {
            subscribers.done(message);
        }
        delivery.to.len()
    }

    /// Gives connections that listen to other workers, once the driver let go of them. With the gate held,
    /// nobody publishes meanwhile: what was published before is sent by way of this worker, what comes later by way
    /// of the other.
    pub(super) fn move_listeners(&mut self) {
        if self.leaving.is_empty() {
            return;
        }
        self.execute();
        self.data.hold_gate_anyway();
        self.fan_out_all();
        for token in std::mem::take(&mut self.leaving) {
            let Some(mut connection) = self.take_detached(token) else { continue };
            if let Some(range) = connection.replies.take() {
                connection.output.push_replies(&self.arena, range, 0);
            }
            let Some(mut to) = self.server.next_worker() else { continue };
            if let Some(subscribers) = &mut self.data.subscribers {
                connection.output.push_owned(subscribers.hand_over(&connection.client, &to));
            }
            // The chosen one may have ended.
            while let Err(back) = to.give(connection) {
                connection = back;
                let Some(next) = self.server.next_worker() else { break };
                if let Some(subscribers) = &self.data.subscribers {
                    subscribers.hand_on(&connection.client, &to, &next);
                }
                to = next;
            }
        }
        self.data.release();
    }

    /// Hands out what was published until now, up to where that is for a connection that is on its way here.
    fn fan_out_all(&mut self) {
        if let Some(subscribers) = &mut self.data.subscribers {
            subscribers.take_mailbox();
        }
        let mut others = Vec::new();
        while let Some(queued) = self.data.subscribers.as_mut().and_then(|s| s.pop()) {
            match queued {
                Queued::Post(Post::Message(message)) => _ = self.fan_out(&message),
                Queued::Delivery(delivery) => _ = self.deliver(&delivery),
                Queued::Nothing => {}
                Queued::Post(post) => {
                    let arrives =
                        matches!(&post, Post::Adopt(c) if c.client.subscriptions.is_some());
                    // Whoever loses a channel gets nothing that was published after that.
                    let revokes = matches!(&post, Post::Revoked(_));
                    others.push(Queued::Post(post));
                    if arrives || revokes {
                        break;
                    }
                }
            }
        }
        if let Some(subscribers) = &mut self.data.subscribers {
            subscribers.put_back(others);
        }
    }

    /// The worker ends: what is still in its mailbox goes to others.
    pub(super) fn close_mailbox(&mut self) {
        self.data.enter();
        self.data.hold_gate_anyway();
        let mut arrived: Vec<Box<Connection>> = Vec::new();
        let mut pushes = std::mem::take(&mut self.early);
        for post in self.handle.mailbox.close() {
            match post {
                Post::Adopt(connection) if !self.stop => arrived.push(connection),
                Post::Message(message) => {
                    for connection in &mut arrived {
                        let mut bytes = Vec::new();
                        message.append_for(&connection.client, &mut bytes);
                        connection.output.push_owned(bytes);
                    }
                }
                Post::Push { to, push } => pushes.push((to, push)),
                _ => {}
            }
        }
        // Nobody is to wait for this worker.
        self.handle.backlog_bytes.store(0, Ordering::Relaxed);
        for mut connection in arrived {
            let mut from = Arc::clone(&self.handle);
            while let Some(to) = self.server.next_worker() {
                if let Some(subscribers) = &self.data.subscribers {
                    subscribers.hand_on(&connection.client, &from, &to);
                }
                match to.give(connection) {
                    Err(back) => (connection, from) = (back, to),
                    Ok(()) => break,
                }
            }
        }
        for (to, push) in pushes {
            self.server.push_to(&to, push);
        }
        self.data.leave();
    }
}

/// The connection of a recipient; none when it is gone.
fn find<'a>(
    server: &Server,
    connections: &'a mut Slab,
    recipient: Recipient,
) -> Option<&'a mut Connection> {
    let mut token = recipient.token;
    if token == Recipient::ARRIVING {
        // It was on its way when this was decided.
        let info: Arc<_> = server.clients.find(recipient.id)?;
        token = *info.token.lock();
    }
    connections.find(token).filter(|connection| connection.client.info.id == recipient.id)
}
