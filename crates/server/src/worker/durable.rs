//! Replies that wait for the disk (`appendfsync always`).
//!
//! What a turn answers may tell of any change up to the end of the turn, its own or those of others
//! that it read. So all its replies wait for the last record that had a number then; one `fsync`
//! lets everything go that waited for the records it covers. Workers serve on meanwhile, and send
//! later. When nothing has arrived that a worker could do, it gets to disk itself what its replies
//! wait for: that saves waking the log's thread and being woken by it. One that always has
//! something to do leaves it to the thread, and not for every turn: the more records an `fsync`
//! covers the less of the machine all of them take.

use std::collections::VecDeque;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use bobbin_io::Token;

use super::{Connection, ReplyRange, Worker, touch};
use crate::base::clock::Clock;

/// What past turns keep back, in their order.
#[derive(Default)]
pub(super) struct KeptBack {
    turns: VecDeque<KeptTurn>,
    /// Bytes of all of them.
    bytes: usize,
    /// Since when there are turns that no thread was asked to get to disk.
    unasked_since: Option<Instant>,
    /// Whose replies of this turn tell of nothing that is not on disk.
    telling_nothing: Vec<(u32, ReplyRange)>,
}

struct KeptTurn {
    /// The record that has to be on disk.
    number: u64,
    /// For each connection, how many bytes of its output wait.
    outputs: Vec<(Token, usize)>,
}

/// A connection that keeps back more bytes than this executes nothing more, ...
const CONNECTION_MAX: usize = 1 << 20;
/// ... and if all connections together keep back more than this, none of them that keeps back any
/// does.
const WORKER_MAX: usize = 64 << 20;
/// A worker that always has something to do asks for an `fsync` after this time.
const ASK_AFTER: Duration = Duration::from_millis(1);

impl KeptBack {
    /// Whether a connection has so much to wait for that it should not ask for more.
    #[inline]
    pub(super) fn is_too_much(&self, connection: &Connection) -> bool {
        let bytes = connection.output.kept_back();
        bytes > CONNECTION_MAX || bytes > 0 && self.bytes > WORKER_MAX
    }

    pub(super) fn is_empty(&self) -> bool {
        self.turns.is_empty()
    }

    /// These replies of a connection tell of nothing that is not on disk: its commands were
    /// refused, or are about no key.
    #[cold]
    pub(super) fn note_telling_nothing(&mut self, slot: u32, range: ReplyRange) {
        self.telling_nothing.push((slot, range));
    }

    /// Whether a connection has nothing else to send.
    fn tells_nothing(&self, slot: u32, connection: &Connection) -> bool {
        let is_it = |&(other, range): &(u32, ReplyRange)| {
            other == slot && connection.replies == Some(range) && connection.output.is_empty()
        };
        self.telling_nothing.iter().any(is_it)
    }

    fn push(&mut self, clock: &Clock, number: u64, outputs: Vec<(Token, usize)>) {
        self.bytes += bytes_of(&outputs);
        self.unasked_since.get_or_insert_with(|| clock.instant());
        self.turns.push_back(KeptTurn { number, outputs });
    }

    /// The outputs of the first turn, if all up to this record is on disk.
    fn pop(&mut self, durable: u64) -> Option<Vec<(Token, usize)>> {
        let turn = self.turns.pop_front_if(|turn| turn.number <= durable)?;
        self.bytes -= bytes_of(&turn.outputs);
        if self.turns.is_empty() {
            self.unasked_since = None;
        }
        Some(turn.outputs)
    }
}

fn bytes_of(outputs: &[(Token, usize)]) -> usize {
    outputs.iter().map(|(_, bytes)| bytes).sum()
}

impl Worker {
    /// Keeps back what the turn answered, if it may tell of something that is not on disk, and sees
    /// to it that what the turn logged is written.
    pub(super) fn keep_back_replies(&mut self) {
        let (aof, log) = (self.aof, &self.server.log);
        let logged = self.data.recorder.take_unannounced();
        if !aof.keeps_back_replies() && self.kept_back.turns.is_empty() {
            // The turn itself may have said that replies wait no more.
            self.kept_back.telling_nothing.clear();
            if logged {
                log.wake();
            }
            return;
        }
        let number = log.last();
        let waits = aof.durable() < number
            && !self.slots.touched.is_empty()
            && self.keep_back_until(number);
        self.kept_back.telling_nothing.clear();
        let overdue = |since| self.server.clock.since(since) >= ASK_AFTER;
        let overdue = self.kept_back.unasked_since.is_some_and(overdue);
        if logged && !waits || overdue {
            self.ask_for_disk();
        }
    }

    /// Keeps the turn's replies back until a record is on disk; whether there are any.
    fn keep_back_until(&mut self, number: u64) -> bool {
        let mut outputs = Vec::new();
        for &slot in &self.slots.touched {
            let Some(connection) = self.connections.at(slot) else { continue };
            if self.kept_back.tells_nothing(slot, connection) {
                continue;
            }
            if let Some(range) = connection.replies.take() {
                connection.output.push_replies(&self.arena, range, 0);
            }
            let bytes = connection.output.keep_back();
            if bytes > 0 {
                outputs.push((connection.token, bytes));
            }
        }
        if outputs.is_empty() {
            return false;
        }
        self.kept_back.push(&self.server.clock, number, outputs);
        true
    }

    /// Nothing has arrived: now is the time to wait for the disk.
    pub(super) fn commit_kept_back(&mut self) {
        let Some(last) = self.kept_back.turns.back().map(|turn| turn.number) else { return };
        if self.kept_back.unasked_since.take().is_none() {
            return;
        }
        let aof = self.aof;
        if !aof.commit_here() || aof.durable() < last {
            self.ask_for_disk();
        }
    }

    /// Leaves it to the log's thread to get to disk what was logged.
    fn ask_for_disk(&mut self) {
        self.kept_back.unasked_since = None;
        self.server.log.wake();
    }

    /// Lets go of what is on disk by now.
    pub(super) fn release_replies(&mut self) {
        if self.kept_back.turns.is_empty() {
            return;
        }
        let durable = self.aof.durable();
        while let Some(outputs) = self.kept_back.pop(durable) {
            for (token, bytes) in outputs {
                // Else it is gone, or with another worker, which waits anew.
                let Some(connection) = self.connections.find(token) else { continue };
                connection.output.release(bytes);
                touch(&mut self.slots.touched, connection);
            }
        }
    }

    /// Whether there is something to do about the disk at once. If not, and something waits for it,
    /// the worker is told when more has got there.
    pub(super) fn await_disk(&self) -> bool {
        let Some(first) = self.kept_back.turns.front() else { return false };
        if self.kept_back.unasked_since.is_some() {
            return true;
        }
        self.handle.awaits_disk.store(true, Ordering::SeqCst);
        // Either the thread that writes sees that we wait, or we see what it wrote.
        first.number <= self.aof.durable()
    }

    /// A connection came from another worker with output that it kept back.
    pub(super) fn adopted_kept_back(&mut self, slot: u32) {
        let Some(connection) = self.connections.at(slot) else { return };
        let bytes = connection.output.kept_back();
        if bytes > 0 {
            let outputs = vec![(connection.token, bytes)];
            self.kept_back.push(&self.server.clock, self.server.log.last(), outputs);
        }
    }
}
