//! Messages that a client did not ask for just now.

use super::{Worker, touch};
use crate::engine::client::ReplyMode;
use crate::engine::server::unsent::UnsentBytes;
use crate::engine::tracking::Push;

impl Worker {
    /// Sends a client such a message, behind its replies.
    pub(super) fn push(&mut self, slot: u32, push: &Push) {
        let Some(connection) = self.connections.at(slot) else { return };
        let unwanted = connection.client.reply_mode == ReplyMode::Off && push.is_answer();
        if unwanted || connection.closing {
            return;
        }
        if connection.client.long_command.is_some() {
            // The reply that the job makes may hold data that this message revokes.
            push.append_for(&connection.client.info, &mut connection.client.behind);
            touch(&mut self.slots.touched, connection);
            return;
        }
        let mut bytes = Vec::new();
        push.append_for(&connection.client.info, &mut bytes);
        if bytes.is_empty() {
            return;
        }
        let before = connection.output_memory();
        if !connection.refuses_reply(self.server) {
            connection.queue_replies(&self.arena);
            connection.output.push(&bytes);
        }
        let more = connection.output_memory().saturating_sub(before);
        self.unsent.add(UnsentBytes::new(more));
        touch(&mut self.slots.touched, connection);
    }
}
