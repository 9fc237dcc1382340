//! Replies that wait for the disk (`appendfsync always`).
//!
//! A reply may tell of any change made up to the end of its turn: by its own command, or by others
//! whose data the command read. So all replies of a turn wait for the last record numbered by then.
//! One `fsync` releases every reply whose records it covers. Meanwhile workers execute further
//! commands.
//!
//! An idle worker writes and syncs the log itself: this avoids waking the log's thread and being
//! woken by it. A busy worker asks the log's thread, and not in every turn: the more records an
//! `fsync` covers, the less all of them cost.

use std::collections::VecDeque;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use bobbin_io::Token;

use super::{Connection, ReplyRange, Worker, touch};
use crate::base::clock::Clock;

/// The output that past turns keep back, in the order of the turns.
#[derive(Default)]
pub(super) struct KeptBack {
    turns: VecDeque<KeptTurn>,
    /// The bytes that all these turns keep back.
    bytes: usize,
    /// Since when there has been a turn for which no thread was asked to write to disk.
    unasked_since: Option<Instant>,
    /// Replies of this turn, by slot, that tell of nothing that is missing on disk.
    telling_nothing: Vec<(u32, ReplyRange)>,
}

struct KeptTurn {
    /// The last record that must be on disk before the outputs may leave.
    number: u64,
    /// For each connection, how many bytes of its output wait.
    outputs: Vec<(Token, usize)>,
}

/// A connection that keeps back more bytes than this executes no more commands.
const CONNECTION_MAX: usize = 1 << 20;
/// If all connections together keep back more bytes than this, every connection that keeps back any
/// executes no more commands.
const WORKER_MAX: usize = 64 << 20;
/// A busy worker asks for an `fsync` after this time.
const ASK_AFTER: Duration = Duration::from_millis(1);

impl KeptBack {
    /// Whether a connection keeps back so much that it must not execute more.
    #[inline]
    pub(super) fn is_too_much(&self, connection: &Connection) -> bool {
        let bytes = connection.output.kept_back();
        bytes > CONNECTION_MAX || bytes > 0 && self.bytes > WORKER_MAX
    }

    pub(super) fn is_empty(&self) -> bool {
        self.turns.is_empty()
    }

    /// Notes that these replies of a connection need not wait for the disk: its commands were
    /// refused, or concern no key.
    #[cold]
    pub(super) fn note_telling_nothing(&mut self, slot: u32, range: ReplyRange) {
        self.telling_nothing.push((slot, range));
    }

    /// Whether everything that a connection has to send needs no wait.
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

    /// The outputs of the first turn, if clients may hear of all its records. `tellable` is the
    /// last such record.
    fn pop(&mut self, tellable: u64) -> Option<Vec<(Token, usize)>> {
        let turn = self.turns.pop_front_if(|turn| turn.number <= tellable)?;
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
    /// Keeps back the turn's replies if they may tell of changes that are not on disk. Also ensures
    /// that some thread will write what the turn logged.
    pub(super) fn keep_back_replies(&mut self) {
        let (aof, log) = (self.aof, &self.server.log);
        let logged = self.data.recorder.take_unannounced();
        if !aof.keeps_back_replies() && self.kept_back.turns.is_empty() {
            // The turn itself may have changed `appendfsync`, so that replies wait no more.
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

    /// Keeps back the turn's replies until this record is on disk. Returns whether there were any.
    fn keep_back_until(&mut self, number: u64) -> bool {
        let mut outputs = Vec::new();
        for &slot in &self.slots.touched {
            let Some(connection) = self.connections.at(slot) else { continue };
            if self.kept_back.tells_nothing(slot, connection) {
                continue;
            }
            connection.queue_replies(&self.arena);
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

    /// Writes and syncs the log, since nothing has arrived that the worker could do instead.
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

    /// Asks the log's thread to write and sync.
    fn ask_for_disk(&mut self) {
        self.kept_back.unasked_since = None;
        self.server.log.wake();
    }

    /// Releases the replies whose records are on disk by now, or all if they need not wait any
    /// more.
    pub(super) fn release_replies(&mut self) {
        if self.kept_back.turns.is_empty() {
            return;
        }
        let tellable = self.aof.tellable();
        while let Some(outputs) = self.kept_back.pop(tellable) {
            for (token, bytes) in outputs {
                // A connection that is missing was closed, or has moved to a worker where it waits
                // again.
                let Some(connection) = self.connections.find(token) else { continue };
                connection.output.release(bytes);
                touch(&mut self.slots.touched, connection);
            }
        }
    }

    /// Whether the worker has something to do about the disk now. If not, and output waits for the
    /// disk, a post wakes the worker when more is on disk.
    pub(super) fn await_disk(&self) -> bool {
        let Some(first) = self.kept_back.turns.front() else { return false };
        if self.kept_back.unasked_since.is_some() {
            return true;
        }
        self.handle.awaits_disk.store(true, Ordering::SeqCst);
        // Either the thread that writes sees our flag, or we see here what it wrote.
        first.number <= self.aof.tellable()
    }

    /// Registers the output that a connection from another worker keeps back.
    pub(super) fn adopt_kept_back(&mut self, slot: u32) {
        let Some(connection) = self.connections.at(slot) else { return };
        let bytes = connection.output.kept_back();
        if bytes > 0 {
            let outputs = vec![(connection.token, bytes)];
            self.kept_back.push(&self.server.clock, self.server.log.last(), outputs);
        }
    }
}
