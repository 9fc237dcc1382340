//! What clients are sent that they did not ask for at this moment: it may be left for them by any
//! thread, wherever their connection is just then.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::{Worker, touch};
use crate::engine::client::Replies;
use crate::engine::clients::ClientInfo;
use crate::engine::tracking::Push;

impl Worker {
    /// Sends a client what it did not ask for at this moment, behind the replies that it has.
    pub(super) fn push(&mut self, to: Arc<ClientInfo>, push: Push) {
        let token = *to.token.lock();
        match self.connections.find(token) {
            Some(connection) if connection.client.info.id == to.id => {
                let unwanted = connection.client.replies == Replies::Off && push.is_answer();
                if unwanted || connection.closing {
                    return;
                }
                if connection.client.job.is_some() {
                    // The reply that is being made may hold what this revokes.
                    push.append_for(&to, &mut connection.client.behind);
                    touch(&mut self.slots.touched, connection);
                    return;
                }
                let mut bytes = Vec::new();
                push.append_for(&to, &mut bytes);
                if bytes.is_empty() {
                    return;
                }
                if let Some(range) = connection.replies.take() {
                    connection.output.push_replies(&self.arena, range, 0);
                }
                connection.output.push(&bytes);
                touch(&mut self.slots.touched, connection);
            }
            _ if to.gone.load(Ordering::Acquire) => {}
            // It has moved since it was told of another client's copies. Its connection is ahead of
            // this, wherever it is.
            _ => self.server.push_to(&to, push),
        }
    }
}
