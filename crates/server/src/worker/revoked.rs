//! Closes clients that listen to channels which their user may not use any more.

use std::sync::atomic::Ordering;

use super::{Worker, touch};
use crate::engine::client::Client;
use crate::engine::pubsub::ChannelKind;
use crate::engine::server::Server;

impl Worker {
    /// Closes those clients of the given users that listen to such channels.
    pub(super) fn end_listeners(&mut self, users: &[u64]) {
        for slot in self.connections.used() {
            let Some(connection) = self.connections.at(slot) else { continue };
            if !listens_without_right(self.server, &connection.client, users) {
                continue;
            }
            connection.client.info.kill.store(true, Ordering::Relaxed);
            if connection.replies.is_some() {
                // The client changed its own user's rights: it gets the reply first.
                connection.closing = true;
                touch(&mut self.slots.touched, connection);
            } else {
                self.close(slot);
            }
        }
    }
}

fn listens_without_right(server: &Server, client: &Client, users: &[u64]) -> bool {
    let Some(subscriptions) = client.subscriptions.as_ref().filter(|all| !all.is_empty()) else {
        return false;
    };
    let user = client.info.user().filter(|user| users.contains(&user.identity));
    let Some(user) = user.and_then(|user| server.acl.renewed(&user)) else { return false };
    ChannelKind::ALL.into_iter().any(|kind| {
        let is_pattern = kind == ChannelKind::Pattern;
        subscriptions.names(kind).iter().any(|name| !user.may_listen(name, is_pattern))
    })
}
