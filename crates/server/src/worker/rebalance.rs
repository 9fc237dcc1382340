//! Giving connections to other workers.

use std::os::fd::AsFd;
use std::sync::atomic::Ordering;

use bobbin_io::{Driver, Token};

use super::{Worker, accept};

impl Worker {
    /// Adapts to a new number of workers, or shares the connections out again because a worker
    /// asked for it.
    pub(super) fn rebalance(&mut self) {
        self.schedule.fit(self.server);
        self.retiring = !self.server.workers.serves(self.handle.id);
        self.give_excess_away();
    }

    /// Gives away connections beyond this worker's share, as far as they may move.
    pub(super) fn give_excess_away(&mut self) {
        let crowd = self.server.config.connections_per_io_thread() as usize;
        let share = self.server.workers.share(self.handle.id, self.server.clients.len(), crowd);
        let used = self.connections.used();
        let mut excess = used.len().saturating_sub(share);
        for slot in used.into_iter().rev() {
            if excess > 0 && self.give_away(slot) {
                excess -= 1;
            }
        }
    }

    /// Begins to move a connection to another worker if it may move. Returns whether it does.
    pub(super) fn give_away(&mut self, slot: u32) -> bool {
        let Some(connection) = self.connections.at(slot) else { return false };
        let goes = connection.may_move();
        if goes {
            connection.moving = true;
            self.driver.detach(connection.token, connection.socket.as_fd());
        }
        goes
    }

    /// The driver has let go of the socket: hands the connection over with its whole state.
    pub(super) fn detached(&mut self, token: Token) {
        if self.connections.find(token).is_none() {
            return;
        }
        let Some(mut connection) = self.connections.remove(token.slot()) else { return };
        debug_assert!(!connection.client.listens(), "it cannot have begun while it was leaving");
        self.handle.connections.fetch_sub(1, Ordering::Relaxed);
        if let Some(waiter) = &connection.client.blocked {
            self.deadlines.forget(waiter.deadline_ms, token);
        }
        connection.moving = false;
        connection.deferred = false;
        connection.touched = false;
        connection.output.blocked = false;
        accept::hand_over(self.server, connection);
    }
}
