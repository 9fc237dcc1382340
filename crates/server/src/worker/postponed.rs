//! Connections whose next command was put off, and when they continue: after a pause, a script,
//! progress of the log's writer, or deliveries of other workers.

use std::time::Duration;

use super::{Worker, fanout, touch};
use crate::engine::blocking;
use crate::engine::client::Client;
use crate::engine::server::Server;

/// A worker's connections whose next command was put off, by slot.
#[derive(Default)]
pub(super) struct Postponed {
    /// Connections that wait for the end of a pause, or for a moment in time.
    pub(super) for_pause: Vec<u32>,
    /// Connections that keep back too many replies, and wait until the disk has the records of
    /// those.
    pub(super) for_disk: Vec<u32>,
    /// Connections that wait for reserved shards or a script.
    pub(super) for_reserved: Vec<u32>,
    /// `Scripts::releases` when `for_reserved` was last served.
    releases: u64,
    /// How many pauses had ended when `for_pause` were last served.
    pauses_ended: u64,
}

impl Postponed {
    /// Lists a client that was put off by a command, or by a job that has ended.
    pub(super) fn add(&mut self, server: &Server, slot: u32, client: &Client) {
        if client.waits_for_reserved {
            self.for_reserved.push(slot);
            server.scripts.note_waiter();
        } else {
            self.for_pause.push(slot);
        }
    }
}

impl Worker {
    /// Serves the connections that were put off and need not wait any more.
    pub(super) fn resume_postponed(&mut self) {
        if !self.postponed.for_disk.is_empty() {
            self.resume_behind_disk();
        }
        if self.postponed.for_pause.is_empty() || !self.until_resumed().is_zero() {
            return;
        }
        self.postponed.pauses_ended = self.server.pause.ended();
        let slots = std::mem::take(&mut self.postponed.for_pause);
        self.resume(slots);
    }

    /// Serves the connections whose replies are on disk by now. Whether a pause still concerns one
    /// of them is checked for each.
    fn resume_behind_disk(&mut self) {
        let (waiting, slots) =
            std::mem::take(&mut self.postponed.for_disk).into_iter().partition(|&slot| {
                let connection = self.connections.get(slot);
                connection.is_some_and(|connection| self.kept_back.is_too_much(connection))
            });
        self.postponed.for_disk = waiting;
        self.resume(slots);
    }

    /// Executes what connections that were put off have sent.
    fn resume(&mut self, slots: Vec<u32>) {
        let mut wishes = Vec::new();
        for slot in slots {
            let Some(connection) = self.connections.at(slot) else { continue };
            // A slot is listed twice if its connection left and the next one there was put off too.
            if connection.client.is_postponed() {
                wishes.extend(connection.client.go_on());
                // The connection is touched even if nothing is left to parse, since the client may
                // have gone meanwhile.
                touch(&mut self.slots.touched, connection);
                self.parse_own(slot);
            }
        }
        self.execute();
        // Other commands make way until these clients have had the gate, or have asked for it
        // again.
        drop(wishes);
    }

    /// Serves the clients and connections that wait for a script, if it has released something
    /// since they were last served.
    pub(super) fn resume_behind_reserved(&mut self) {
        let releases = self.server.scripts.releases();
        if std::mem::replace(&mut self.postponed.releases, releases) == releases {
            return;
        }
        blocking::serve_behind_reserved(self.server, &mut self.data);
        let mut slots = std::mem::take(&mut self.postponed.for_reserved);
        slots.retain(|&slot| {
            let connection = self.connections.get(slot);
            connection.is_some_and(|connection| connection.client.waits_for_reserved)
        });
        self.resume(slots);
    }

    /// Whether a script has released something since the connections that wait for it were last
    /// served.
    pub(super) fn missed_release(&self) -> bool {
        !self.postponed.for_reserved.is_empty()
            && self.server.scripts.releases() != self.postponed.releases
    }

    /// How long the connections in `for_pause` wait at most. Zero: they may go on.
    pub(super) fn until_resumed(&mut self) -> Duration {
        let (server, now_ms) = (self.server, self.data.conditions.now_ms);
        if self.is_overrun() {
            return fanout::OVERRUN_PAUSE;
        }
        if server.pause.ended() != self.postponed.pauses_ended {
            return Duration::ZERO;
        }
        if let Some(pause) = server.paused(now_ms) {
            return Duration::from_millis(pause.left_ms as u64);
        }
        if server.is_log_behind() {
            return Duration::MAX;
        }
        server.held_up_for(&self.data)
    }

    /// Whether other workers have to catch up with the messages that this worker's clients publish.
    fn is_overrun(&mut self) -> bool {
        self.data.audience.is_overrun()
    }
}
