//! Handles what other threads post to the worker, and closes connections.

use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::{Ordering, fence};

use bobbin_io::{Driver, error_text};

use super::{REPLIES_MAX, Worker, sealed, touch};
use crate::engine::client::connection::{Connection, Reading};
use crate::engine::clients::ClientInfo;
use crate::engine::server::mailbox::{ClientPost, Post};

impl Worker {
    /// Handles a post. `number` counts the worker's posts. Returns to how many clients a message
    /// was delivered.
    pub(super) fn take_post(&mut self, number: u64, post: Post) -> usize {
        let bytes = post.pushed_bytes();
        if bytes > 0 {
            self.handle.backlog_bytes.fetch_sub(bytes, Ordering::Relaxed);
        }
        match post {
            Post::Adopt(connection) => self.adopt(connection),
            Post::ToClient(client, post) => self.take_client_post(&client, post),
            Post::Message { message, unsent } => {
                self.unsent.add(unsent);
                return self.fan_out(number, &message);
            }
            Post::Revoked(users) => self.end_listeners(&users),
            Post::Resume | Post::Durable => {}
            Post::Rebalance => self.rebalance(),
            Post::Stop => self.stop = true,
        }
        0
    }

    /// Handles a post for a client. If the client's connection has moved to another worker, the
    /// post follows it, and arrives behind it.
    fn take_client_post(&mut self, client: &Arc<ClientInfo>, post: ClientPost) {
        let token = *client.token.lock();
        let found = self.connections.find(token);
        let Some(connection) = found.filter(|found| found.client.info.id == client.id) else {
            if !client.gone.load(Ordering::Acquire) {
                self.server.workers.post_to(client, post);
            }
            return;
        };
        match post {
            ClientPost::Kill => self.close(token.slot()),
            ClientPost::Push { push, unsent } => {
                self.unsent.add(unsent);
                self.push(token.slot(), &push);
            }
            ClientPost::Unblock => _ = self.end_block(token.slot()),
            ClientPost::Feed => touch(&mut self.slots.touched, connection),
        }
    }

    /// Serves a connection from now on: a new one, or one that another worker gave away.
    pub(super) fn adopt(&mut self, mut connection: Box<Connection>) {
        self.adopted.extend(connection.unserved.take());
        let slot = self.connections.insert(connection, self.handle.id);
        let Some(connection) = self.connections.at(slot) else { return };
        // Pairs with the fence of `Workers::post_to`: the checks below see whether the client was
        // killed or served while its connection was on its way.
        fence(Ordering::SeqCst);
        // SAFETY: only dropping the connection closes the socket, and `close` removes it from the
        // driver first.
        let added = unsafe { self.driver.add(connection.token, connection.socket.as_fd()) };
        connection.reading = Reading::Data;
        if let Err(error) = added {
            log::warn!("Cannot watch a new connection: {}", error_text(&error));
            self.close(slot);
            return;
        }
        if connection.client.info.kill.load(Ordering::Relaxed) {
            self.close(slot);
            return;
        }
        if connection.large.is_arriving() {
            self.slots.arriving.insert(slot);
        }
        touch(&mut self.slots.touched, connection);
        self.workspace.watch(connection);
        let wish = connection.client.go_on();
        self.adopt_blocked(slot);
        self.adopt_kept_back(slot);
        if self.retiring {
            self.give_away(slot);
            return;
        }
        self.parse_own(slot);
        self.execute();
        drop(wish);
    }

    /// Executes the commands that the previous turn deferred because it had replied enough. The
    /// connections come in the order in which they were deferred, until this turn has replied
    /// enough.
    pub(super) fn resume_deferred(&mut self) {
        if self.slots.deferred.is_empty() {
            return;
        }
        let alone = self.goes_on_alone();
        for _ in 0..self.slots.deferred.len() {
            if self.arena.bytes.len() >= REPLIES_MAX {
                return;
            }
            let Some(slot) = self.slots.deferred.pop_front() else { return };
            let Some(connection) = self.connections.at(slot) else { continue };
            if alone.is_some_and(|alone| alone != slot) && connection.output_memory() > 0 {
                self.slots.deferred.push_back(slot);
                continue;
            }
            if std::mem::take(&mut connection.deferred) {
                // The client may have gone, and have nothing left to execute.
                touch(&mut self.slots.touched, connection);
                self.parse_own(slot);
                self.execute();
                self.fit_reading(slot);
            }
        }
    }

    /// Closes a connection at once.
    pub(super) fn close(&mut self, slot: u32) {
        let Some(connection) = self.connections.at(slot) else { return };
        self.driver.remove(connection.token, connection.socket.as_fd());
        let Some(mut connection) = self.connections.remove(slot) else { return };
        sealed::say_goodbye(&mut connection);
        self.handle.connections.fetch_sub(1, Ordering::Relaxed);
        self.data.release();
        let mut long = connection.client.long_command.take();
        if let Some(long) = long.take_if(|long| !long.job.outlives_client()) {
            long.abandon(self.server, &mut self.data);
        }
        if let Some(waiter) = connection.client.blocked.take() {
            self.deadlines.forget(waiter.deadline_ms, connection.token);
            waiter.unlink(self.server, &mut self.data);
        }
        self.forget(&mut connection.client);
        self.server.forget_client(&connection.client.info);
        self.server.uncount_client_memory(&connection.client.info);
        self.slots.jobs.retain(|&job| job != slot);
        if let Some(long) = long {
            self.adopt_job(long, connection.client);
        }
    }
}
