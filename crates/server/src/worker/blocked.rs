//! A worker's blocked clients: their deadlines, and how their waits end.

use std::collections::BTreeSet;
use std::time::Duration;

use bobbin_io::Token;

use super::{Worker, touch};
use crate::engine::blocking::WaiterEnd;
use crate::engine::client::ReplyMode;
use crate::engine::command::counting;
use crate::engine::telemetry::slowlog::{self, Measured};

/// The deadlines (Unix ms) of connections whose blocked client has a timeout. A wait that ends
/// removes its deadline, so each connection has one at most.
#[derive(Default)]
pub struct Deadlines(BTreeSet<(i64, Token)>);

impl Deadlines {
    /// How long the worker may sleep until the next deadline.
    pub fn until_next(&self, now_ms: i64) -> Duration {
        let left_ms = self.0.first().map_or(i64::MAX, |(at_ms, _)| at_ms - now_ms);
        Duration::from_millis(left_ms.max(0) as u64)
    }

    /// Removes and returns a connection whose deadline has passed.
    fn pop_due(&mut self, now_ms: i64) -> Option<Token> {
        let first = self.0.first().filter(|(at_ms, _)| *at_ms <= now_ms)?;
        let token = first.1;
        self.0.pop_first();
        Some(token)
    }

    /// Removes the deadline of a connection that is not blocked any more, or has left.
    pub(super) fn forget(&mut self, deadline_ms: Option<i64>, token: Token) {
        if let Some(deadline_ms) = deadline_ms {
            self.0.remove(&(deadline_ms, token));
        }
    }
}

impl Worker {
    /// Registers the deadline of a client that has just been blocked, or came here blocked.
    pub(super) fn note_deadline(&mut self, slot: u32) {
        let Some(connection) = self.connections.at(slot) else { return };
        let Some(waiter) = &connection.client.blocked else { return };
        if let Some(deadline_ms) = waiter.deadline_ms {
            self.deadlines.0.insert((deadline_ms, connection.token));
        }
    }

    /// Registers a blocked client that came from another worker. The client may have been served on
    /// the way.
    pub(super) fn adopt_blocked(&mut self, slot: u32) {
        self.note_deadline(slot);
        self.end_block(slot);
    }

    /// Ends the waits whose deadline has passed.
    pub(super) fn look_at_deadlines(&mut self) {
        while let Some(token) = self.deadlines.pop_due(self.data.conditions.now_ms) {
            let Some(connection) = self.connections.find(token) else { continue };
            let Some(waiter) = &connection.client.blocked else { continue };
            waiter.expire(self.data.conditions.now_ms);
            if self.end_block(token.slot()) {
                continue;
            }
            // The client is blocked again until later, or another thread is serving it right now.
            let Some(connection) = self.connections.at(token.slot()) else { continue };
            let deadline_ms = connection.client.blocked.as_ref().and_then(|w| w.deadline_ms);
            if let Some(at_ms) = deadline_ms.filter(|&at_ms| at_ms <= self.data.conditions.now_ms) {
                self.deadlines.0.insert((at_ms + 1, token));
            }
        }
    }

    /// Replies to a client whose wait has ended, and executes what it sent meanwhile. Returns
    /// whether the wait had ended.
    pub(super) fn end_block(&mut self, slot: u32) -> bool {
        let Some(connection) = self.connections.at(slot) else { return false };
        let Some(waiter) = connection.client.blocked.clone() else { return false };
        let mut reply = Vec::new();
        let end = waiter.ended(&mut reply);
        let (failed, refused) = match end {
            WaiterEnd::Not => return false,
            WaiterEnd::Answered(failed) => (failed, false),
            WaiterEnd::Dismissed => {
                connection.closing = true;
                (true, true)
            }
            WaiterEnd::Unblocked | WaiterEnd::Refused => (true, true),
        };
        connection.client.blocked = None;
        self.deadlines.forget(waiter.deadline_ms, connection.token);
        // The record of the change that served the client has a number at or below this.
        connection.client.last_record = self.server.log.until_now();
        connection.client.info.commands.add(1);
        let (stats, client, command) = (&self.handle.stats, &connection.client, waiter.command);
        if end != WaiterEnd::Refused {
            // The time that the client waited does not count as the command's.
            let request_bytes = waiter.request_bytes();
            let measured = Measured { ticks: 0, request_bytes, reply_bytes: reply.len() };
            let words = || {
                let args: Vec<&[u8]> = waiter.args.iter().map(|arg| &**arg).collect();
                slowlog::shortened(command, &args)
            };
            counting::ended_later(self.server, stats, client, command, words, &measured);
        }
        if refused {
            counting::rejected(self.server, stats, client, Some(command), &reply[1..]);
        } else if failed {
            counting::failed(self.server, stats, client, command, &reply[1..]);
        }
        match connection.client.reply_mode {
            ReplyMode::On => {
                if !connection.refuses_reply(self.server) {
                    connection.queue_replies(&self.arena);
                    connection.output.push_owned(reply);
                }
            }
            ReplyMode::Skip => connection.client.reply_mode = ReplyMode::On,
            ReplyMode::Off | ReplyMode::SkipNext => {}
        }
        touch(&mut self.slots.touched, connection);
        self.data.release();
        waiter.unlink(self.server, &mut self.data);
        self.parse_own(slot);
        self.execute();
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wait_that_ended_leaves_no_deadline() {
        let mut deadlines = Deadlines::default();
        for round in 0..1000 {
            let token = Token::new(7, 0);
            deadlines.0.insert((i64::MAX - round, token));
            deadlines.forget(None, token);
            deadlines.forget(Some(i64::MAX - round), token);
        }
        assert!(deadlines.0.is_empty());
        deadlines.0.insert((5, Token::new(1, 1)));
        assert_eq!(deadlines.until_next(3), Duration::from_millis(2));
        assert_eq!((deadlines.pop_due(4), deadlines.pop_due(5)), (None, Some(Token::new(1, 1))));
        assert_eq!(deadlines.pop_due(5), None);
    }
}
