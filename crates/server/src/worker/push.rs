//! Messages that a client did not ask for just now. Any thread may post them, wherever the client's
//! connection is at that moment.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::{Worker, touch};
use crate::engine::client::ReplyMode;
use crate::engine::clients::ClientInfo;
use crate::engine::server::unsent::UnsentBytes;
use crate::engine::tracking::Push;

impl Worker {
    /// Sends a client such a message, behind its replies.
    pub(super) fn push(&mut self, to: Arc<ClientInfo>, push: Push) {
        let token = *to.token.lock();
        match self.connections.find(token) {
            Some(connection) if connection.client.info.id == to.id => {
                let before = connection.output_memory();
                let unwanted = connection.client.reply_mode == ReplyMode::Off && push.is_answer();
                if unwanted || connection.closing {
                    return;
                }
                if connection.client.long_command.is_some() {
                    // The reply that the job makes may hold data that this message revokes.
                    push.append_for(&to, &mut connection.client.behind);
                    touch(&mut self.slots.touched, connection);
                    return;
                }
                let mut bytes = Vec::new();
                push.append_for(&to, &mut bytes);
                if bytes.is_empty() {
                    return;
                }
                if !connection.refuses_reply(self.server) {
                    if let Some(range) = connection.replies.take() {
                        connection.output.push_replies(&self.arena, range, 0);
                    }
                    connection.output.push(&bytes);
                }
                let more = connection.output_memory().saturating_sub(before);
                self.unsent.add(UnsentBytes::new(more));
                touch(&mut self.slots.touched, connection);
            }
            _ if to.gone.load(Ordering::Acquire) => {}
            // The connection has moved to another worker. It is ahead of the message, so this
            // follows it.
            _ => self.server.push_to(&to, push),
        }
    }
}
