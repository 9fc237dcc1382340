//! Replies that wait for the disk (`appendfsync always`).
//!
//! What a turn answers may tell of any change up to the end of the turn, its own or those of others that it read.
//! So all its replies wait for the last record that had a number then; one `fsync` of the log's thread lets
//! everything go that waited for the records it covers. Workers themselves never wait: they serve on, and send later.

use std::collections::VecDeque;
use std::sync::atomic::Ordering;

use super::{Worker, touch};
use crate::io::Token;

/// What past turns keep back, in their order.
#[derive(Default)]
pub(super) struct Held(VecDeque<Turn>);

struct Turn {
    /// The record that has to be on disk.
    number: u64,
    /// How many bytes of whose output.
    outputs: Vec<(Token, usize)>,
}

impl Worker {
    /// Keeps back what the turn answered, if it may tell of something that is not on disk.
    pub(super) fn hold_replies(&mut self) {
        let aof = &self.server.aof;
        if !aof.holds_replies() && self.held.0.is_empty() {
            return;
        }
        let number = self.server.log.last();
        if aof.durable() >= number || self.touched.is_empty() {
            return;
        }
        let mut outputs = Vec::new();
        for &slot in &self.touched {
            let Some(connection) = self.connections.at(slot) else { continue };
            if let Some(range) = connection.replies.take() {
                connection.output.push_replies(&self.arena, range, 0);
            }
            let bytes = connection.output.hold();
            if bytes > 0 {
                outputs.push((connection.token, bytes));
            }
        }
        if !outputs.is_empty() {
            self.held.0.push_back(Turn { number, outputs });
        }
    }

    /// Lets go of what is on disk by now.
    pub(super) fn release_replies(&mut self) {
        if self.held.0.is_empty() {
            return;
        }
        let durable = self.server.aof.durable();
        while let Some(turn) = self.held.0.pop_front_if(|turn| turn.number <= durable) {
            for (token, bytes) in turn.outputs {
                // Else it is gone, or with another worker, which waits anew.
                let Some(connection) = self.connections.find(token) else { continue };
                connection.output.release(bytes);
                touch(&mut self.touched, connection);
            }
        }
    }

    /// Whether something waits for the disk. Then the worker is told when more has got there.
    pub(super) fn await_disk(&self) -> bool {
        let Some(first) = self.held.0.front() else { return false };
        self.handle.awaits_disk.store(true, Ordering::SeqCst);
        // Either the log's thread sees that we wait, or we see what it wrote.
        first.number <= self.server.aof.durable()
    }

    /// A connection came from another worker with output that it kept back.
    pub(super) fn adopted_held(&mut self, slot: u32) {
        let Some(connection) = self.connections.at(slot) else { return };
        let bytes = connection.output.held();
        if bytes > 0 {
            let outputs = vec![(connection.token, bytes)];
            self.held.0.push_back(Turn { number: self.server.log.last(), outputs });
        }
    }
}
