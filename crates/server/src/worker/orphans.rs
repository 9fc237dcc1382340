//! Transactions and scripts whose clients are gone. They are carried out all the same.

use std::sync::Arc;

use super::Worker;
use super::jobs::step_for;
use crate::engine::client::Client;
use crate::engine::command::job::LongCommand;
use crate::engine::execution::transaction;
use crate::engine::tracking;

/// A command whose client is gone.
pub(super) struct Orphan {
    pub(super) long: Box<LongCommand>,
    client: Client,
}

impl Worker {
    /// Takes over a command whose client has gone. Its reply is discarded.
    pub(super) fn adopt_job(&mut self, long: Box<LongCommand>, mut client: Client) {
        client.discard = true;
        self.orphans.push(Orphan { long, client });
    }

    /// Works on each job for a slice.
    pub(super) fn work_on_orphans(&mut self) {
        if self.orphans.is_empty() {
            return;
        }
        let (server, handle) = (self.server, Arc::clone(&self.handle));
        let mut orphans = std::mem::take(&mut self.orphans);
        orphans.retain_mut(|Orphan { long, client }| {
            self.data.release();
            let more = &mut || false;
            let is_done = step_for(server, &mut self.data, &handle.stats, long, client, more);
            // Nobody reads its messages.
            self.data.take_own(client);
            client.behind.clear();
            if is_done {
                // The client may have subscribed since it was forgotten.
                self.forget(client);
            }
            !is_done
        });
        self.orphans = orphans;
    }

    /// Removes a client that has gone from its WATCHes, subscriptions and tracking tables.
    pub(super) fn forget(&mut self, client: &mut Client) {
        transaction::forget(client, &mut self.data);
        if let Some(subscribers) = &mut self.data.audience.subscribers {
            subscribers.forget(client);
        }
        tracking::disable(self.server, client);
    }
}
