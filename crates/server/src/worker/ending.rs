//! The end of a worker: nothing more is executed, what was answered is sent, and the connections
//! are closed. Their peers see that when the process has ended.
//!
//! With `appendfsync always` replies may still wait for the disk. The log's thread outlives the
//! workers, so they wait for it here. Where the disk fails or hangs they are not sent: what they
//! tell of may be lost.

use std::os::fd::AsFd;
use std::sync::atomic::Ordering;

use bobbin_io::{Driver, Event};

use super::Worker;
use super::turn::ARENA_KEPT_MAX;
use crate::base::clock::ticks;
use crate::engine::buffers::output::Sending;

/// How long replies may wait for the disk.
const DISK_LIMIT_US: u64 = 10_000_000;
/// How long peers that are slow to read are waited for.
const SEND_LIMIT_US: u64 = 500_000;

impl Worker {
    /// Has the sockets live as long as the process, as in Redis. A client that sees its connection
    /// end after SHUTDOWN may start another server on the same files, or copy them; but the log is
    /// finished after the workers, and the file of the process id goes last.
    pub(super) fn keep_sockets(&mut self) {
        for slot in self.connections.used() {
            let Some(connection) = self.connections.at(slot) else { continue };
            // Where descriptors are short, the peer sees the end a little early.
            if let Ok(socket) = connection.socket.as_fd().try_clone_to_owned() {
                std::mem::forget(socket);
            }
        }
    }

    /// Lets the last replies leave before the sockets are closed.
    pub(super) fn finish(&mut self) {
        self.slots.deferred.clear();
        self.postponed.slots.clear();
        self.postponed.for_disk.clear();
        self.postponed.for_reserved.clear();
        self.slots.jobs.clear();
        for slot in self.connections.used() {
            let Some(connection) = self.connections.at(slot).filter(|it| !it.moving) else {
                continue;
            };
            self.driver.pause(connection.token, connection.socket.as_fd());
        }
        let mut deadline = ticks() + self.server.clock.ticks(DISK_LIMIT_US);
        while self.may_release() && ticks() < deadline {
            self.last_turn();
        }
        deadline = ticks() + self.server.clock.ticks(SEND_LIMIT_US);
        while self.is_sending() && ticks() < deadline {
            self.last_turn();
        }
        for slot in self.connections.used() {
            self.close(slot);
        }
    }

    /// Whether there are replies that wait for a disk which may still take what they tell of.
    fn may_release(&self) -> bool {
        !self.kept_back.is_empty() && self.server.log_error.load(Ordering::Relaxed) == 0
    }

    /// Whether something is on its way, or could be.
    fn is_sending(&self) -> bool {
        let sends = |slot: &u32| {
            self.connections.get(*slot).is_some_and(|connection| {
                let output = &connection.output;
                output.sending != Sending::Nothing
                    || output.is_free()
                    || connection.tls.as_ref().is_some_and(|tls| !tls.wire().is_empty())
            })
        };
        self.connections.used().iter().any(sends)
    }

    /// A turn in which nothing is executed for the clients that are connected.
    fn last_turn(&mut self) {
        self.wait();
        self.data.enter();
        let events = std::mem::take(&mut self.events);
        self.take_sent(&events);
        self.arena.clear(ARENA_KEPT_MAX);
        self.workspace.clear(ARENA_KEPT_MAX);
        for event in events {
            match event {
                Event::Writable { .. } => self.take_event(event),
                Event::Closed { token, .. } if self.connections.find(token).is_some() => {
                    self.close(token.slot());
                }
                _ => {}
            }
        }
        self.take_posts();
        self.data.release();
        self.release_replies();
        self.keep_back_replies();
        self.flush();
        self.data.leave();
    }
}
