//! The end of a worker: it executes nothing more, sends the last replies, and closes its
//! connections. The peers see the end of their connections only when the process has ended.
//!
//! With `appendfsync always` replies may still wait for the disk. The log's thread outlives the
//! workers, so the worker waits for it here. If the disk fails or hangs, those replies are not
//! sent: the changes that they tell of may be lost.

use std::os::fd::AsFd;

use bobbin_io::{Driver, Event};

use super::Worker;
use super::turn::ARENA_KEPT_MAX;
use crate::base::clock::ticks;
use crate::engine::buffers::output::Sending;
use crate::engine::server::Switch;

/// How long the worker waits for the disk, in microseconds.
const DISK_LIMIT_US: u64 = 10_000_000;
/// How long the worker waits for slow readers, in microseconds.
const SEND_LIMIT_US: u64 = 500_000;

impl Worker {
    /// Keeps all sockets open until the process ends, as Redis does. A client whose connection ends
    /// after SHUTDOWN may at once start another server on the same files, or copy them. But the log
    /// is finished after the workers, and the pid file is removed last.
    pub(super) fn keep_sockets(&mut self) {
        for slot in self.connections.used() {
            let Some(connection) = self.connections.at(slot) else { continue };
            // If there are no descriptors left, the peer sees the end a little early.
            if let Ok(socket) = connection.socket.as_fd().try_clone_to_owned() {
                std::mem::forget(socket);
            }
        }
    }

    /// Sends the last replies, then closes all connections.
    pub(super) fn finish(&mut self) {
        self.slots.deferred.clear();
        self.postponed.for_pause.clear();
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

    /// Whether replies wait for a disk that may still complete their records.
    fn may_release(&self) -> bool {
        !self.kept_back.is_empty() && !self.server.switches.has(Switch::LOG_FAILED)
    }

    /// Whether a socket is taking output, or could take some.
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

    /// A turn that executes nothing for the clients that are connected.
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
        self.send_output();
        self.data.leave();
    }
}
