//! The last step of published messages: from the worker's mailbox to its connections.
//!
//! A message is written into the turn's arena once for each protocol. All connections that have
//! nothing else to send refer to the same bytes.

use std::time::Duration;

use bobbin_resp::Protocol;

use super::{Worker, touch};
use crate::engine::buffers::output::{Arena, ReplyRange};
use crate::engine::client::connection::Connection;
use crate::engine::pubsub::Message;
use crate::engine::server::Server;

/// A turn delivers messages at most this many times ...
const DELIVERIES_MAX: usize = 32 * 1024;
/// ... and at most this many bytes of them. The rest waits for the next turn.
const DELIVERED_BYTES_MAX: usize = 256 * 1024;
/// How long a worker sleeps before it checks again whether its publishers still have to wait.
pub(super) const OVERRUN_PAUSE: Duration = Duration::from_millis(1);

/// One message that is delivered to connections.
struct FanOut<'a> {
    server: &'static Server,
    message: &'a Message,
    pattern: Option<usize>,
    /// Where the message lies in the arena, by protocol.
    ranges: [Option<ReplyRange>; 2],
}

impl FanOut<'_> {
    /// Queues the message behind the connection's other output.
    fn deliver(&mut self, arena: &mut Arena, touched: &mut Vec<u32>, connection: &mut Connection) {
        if connection.closing {
            return;
        }
        let protocol = connection.client.protocol;
        if connection.client.long_command.is_some() {
            // A part of the reply that the job makes may have been sent already.
            let behind = &mut connection.client.behind;
            self.message.append(self.pattern, protocol, behind, None);
            touch(touched, connection);
            return;
        }
        let range = &mut self.ranges[usize::from(protocol == Protocol::Resp3)];
        let range = *range.get_or_insert_with(|| {
            let start = arena.bytes.len();
            let parts = Some(&mut arena.parts);
            self.message.append(self.pattern, protocol, &mut arena.bytes, parts);
            ReplyRange { start, end: arena.bytes.len() }
        });
        if !connection.refuses_reply(self.server) {
            connection.add_replies(arena, range);
        }
        touch(touched, connection);
    }
}

impl Worker {
    /// Handles the posts in the mailbox, until published messages have taken the turn's share.
    pub(super) fn take_posts(&mut self) {
        let (mut deliveries, mut pushed_bytes) = (0, 0);
        let start = self.arena.bytes.len();
        let mut taken = false;
        loop {
            let Some(subscribers) = &mut self.data.audience.subscribers else { return };
            let Some((number, post)) = subscribers.pop() else {
                if std::mem::replace(&mut taken, true) {
                    return;
                }
                subscribers.take_mailbox();
                continue;
            };
            pushed_bytes += post.pushed_bytes();
            deliveries += self.take_post(number, post);
            let bytes = self.arena.bytes.len() - start + pushed_bytes;
            if deliveries >= DELIVERIES_MAX || bytes >= DELIVERED_BYTES_MAX {
                return;
            }
        }
    }

    /// Delivers a message to all clients that listen. Returns how many they are. `number` is the
    /// post's.
    pub(super) fn fan_out(&mut self, number: u64, message: &Message) -> usize {
        let Self { server, data, connections, arena, slots, .. } = self;
        let server = *server;
        let Some(subscribers) = &data.audience.subscribers else { return 0 };
        let mut count = 0;
        for (pattern, recipients) in subscribers.recipients(message) {
            let mut fan_out = FanOut { server, message, pattern, ranges: [None; 2] };
            for recipient in recipients.iter().filter(|it| it.id != message.settled_for) {
                if let Some(connection) = connections.find(recipient.token)
                    && connection.client.hears_from <= number
                {
                    fan_out.deliver(arena, &mut slots.touched, connection);
                }
            }
            count += recipients.len();
        }
        subscribers.done(message);
        count
    }
}
