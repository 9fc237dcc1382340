//! A worker's connections whose next command was put off, and when they are served again: behind a
//! pause, a script, the log's reader, or other workers that have much to deliver.

use std::time::Duration;

use super::{Worker, fanout, touch};
use crate::engine::blocking;
use crate::engine::client::Client;
use crate::engine::server::Server;

/// A worker's connections whose next command was put off, by slot.
#[derive(Default)]
pub(super) struct Postponed {
    /// Those that a pause put off, or what else has its time.
    pub(super) slots: Vec<u32>,
    /// Those whose replies have to be on disk first, as they keep back too much.
    pub(super) for_disk: Vec<u32>,
    /// Those that wait for what is reserved.
    pub(super) for_reserved: Vec<u32>,
    /// `Scripts::turns` when they were last looked at.
    turns: u64,
    /// How many pauses had ended when the worker last looked at `slots`.
    pauses_ended: u64,
}

impl Postponed {
    /// A command, or a job that has ended, put its client off.
    pub(super) fn add(&mut self, server: &Server, slot: u32, client: &Client) {
        if client.waits_for_reserved {
            self.for_reserved.push(slot);
            server.scripts.note_waiter();
        } else {
            self.slots.push(slot);
        }
    }
}

impl Worker {
    /// Serves the connections that were put off, once that is over.
    pub(super) fn resume_postponed(&mut self) {
        if !self.postponed.for_disk.is_empty() {
            self.resume_behind_disk();
        }
        if self.postponed.slots.is_empty() || !self.until_resumed().is_zero() {
            return;
        }
        self.postponed.pauses_ended = self.server.pause.ended();
        let slots = std::mem::take(&mut self.postponed.slots);
        self.resume(slots);
    }

    /// Serves the connections whose replies the disk has by now. No pause concerns all of them.
    fn resume_behind_disk(&mut self) {
        let (waiting, slots) =
            std::mem::take(&mut self.postponed.for_disk).into_iter().partition(|&slot| {
                let connection = self.connections.get(slot);
                connection.is_some_and(|connection| self.kept_back.is_too_much(connection))
            });
        self.postponed.for_disk = waiting;
        self.resume(slots);
    }

    fn resume(&mut self, slots: Vec<u32>) {
        let mut wishes = Vec::new();
        for slot in slots {
            let Some(connection) = self.connections.at(slot) else { continue };
            // The connection that was put off may have left, and the slot have been put off again:
            // then it is named twice.
            if connection.client.is_postponed() {
                wishes.extend(connection.client.go_on());
                // Also where nothing is left to be parsed: the client may have gone meanwhile.
                touch(&mut self.slots.touched, connection);
                self.parse_own(slot);
            }
        }
        self.execute();
        // Others make way until these have had the gate, or wish for it anew.
        drop(wishes);
    }

    /// Serves the clients and connections that wait for a script, if something has become free
    /// since they were put off.
    pub(super) fn resume_behind_reserved(&mut self) {
        let turns = self.server.scripts.turns();
        if std::mem::replace(&mut self.postponed.turns, turns) == turns {
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

    /// Whether something has become free since the connections that wait for that were put off.
    pub(super) fn missed_release(&self) -> bool {
        !self.postponed.for_reserved.is_empty()
            && self.server.scripts.turns() != self.postponed.turns
    }

    /// How long the connections that a pause, say, put off still wait at most; zero: no longer.
    pub(super) fn until_resumed(&mut self) -> Duration {
        let (server, now_ms) = (self.server, self.data.turn.now_ms);
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
        if self.data.turn.held_up_until_ms > now_ms && server.keeps_too_much() {
            return Duration::from_millis((self.data.turn.held_up_until_ms - now_ms) as u64);
        }
        Duration::ZERO
    }

    /// Whether others have to catch up with what this worker's clients publish.
    fn is_overrun(&mut self) -> bool {
        self.data.audience.subscribers.as_mut().is_some_and(|subscribers| subscribers.is_overrun())
    }
}
