//! Sending the replies of a turn.

use std::os::fd::AsFd;
use std::sync::atomic::Ordering;

use super::Worker;
use crate::engine::buffers::output::{Offered, SEND_ALONE_MAX, SEND_MAX, Sending};

/// The client that is the only one to be served, and since when.
#[derive(Default)]
pub(super) struct LoneClient {
    slot: u32,
    since_ms: i64,
}

impl LoneClient {
    /// Notes which connections a turn serves. Returns how many bytes each of them may be sent.
    fn send_max(&mut self, touched: &[u32], now_ms: i64) -> usize {
        if let Some(last) = touched.last()
            && touched.iter().any(|slot| *slot != self.slot)
        {
            *self = Self { slot: *last, since_ms: now_ms };
        }
        if now_ms.abs_diff(self.since_ms) < LONE_MS { SEND_MAX } else { SEND_ALONE_MAX }
    }
}

/// A client that was the only one for this long may be sent more at once.
const LONE_MS: u64 = 10;

impl Worker {
    /// Sends each touched connection what it may have now, and closes those that are done.
    pub(super) fn send_output(&mut self) {
        let mut touched = std::mem::take(&mut self.slots.touched);
        let send_max = self.lone.send_max(&touched, self.data.conditions.now_ms);
        for slot in touched.drain(..) {
            let Some(connection) = self.connections.at(slot) else { continue };
            // A slot is listed twice if one connection has left it and another one has taken it.
            if !std::mem::take(&mut connection.touched) {
                continue;
            }
            connection.client.info.last_ms.store(self.data.conditions.now_ms, Ordering::Relaxed);
            let (has_ended, has_feeder) =
                (connection.client.ended, connection.client.feeder.is_some());
            if has_ended && !self.end_if_done(slot) || has_feeder && !self.feed(slot) {
                continue;
            }
            let Some(connection) = self.connections.at(slot) else { continue };
            if !connection.output.is_empty() {
                connection.queue_replies(&self.arena);
            }
            if !self.check_output(slot) {
                continue;
            }
            let Some(connection) = self.connections.at(slot) else { continue };
            if connection.tls.is_some() {
                self.workspace.add(slot);
                continue;
            }
            let (output, replies) = (&mut connection.output, connection.replies.take());
            let (token, socket) = (connection.token, connection.socket.as_fd());
            let mut offered = Offered::NOTHING;
            output.free();
            debug_assert!(
                replies.is_none() || output.sending == Sending::Nothing,
                "what was sent is told of before there is more"
            );
            if output.is_empty() && output.sending == Sending::Nothing {
                if let Some(range) = replies {
                    output.sending = Sending::Arena(range);
                    let driver = &mut self.driver;
                    // SAFETY: the arena is not changed before the next wait has returned.
                    offered = unsafe { self.arena.send(range, send_max, driver, token, socket) };
                }
            } else if !output.blocked && output.sending == Sending::Nothing && output.is_free() {
                output.sending = Sending::Pending;
                // SAFETY: `advance` and `clear` are called after the next wait has returned.
                offered = unsafe { output.send(send_max, &mut self.driver, token, socket) };
            }
            let has_more = !offered.is_all;
            if offered.len > 0 {
                output.offered = offered.len;
                // Counted now, before the client can see the bytes.
                connection.client.info.net_output_bytes.add(offered.len as u64);
                self.handle.stats.totals.net_output_bytes.add(offered.len as u64);
            }
            self.next.sends_long |= has_more;
            // The next turn sends the rest, so it must not sleep.
            self.next.sleepless |= has_more;
            if connection.closing {
                if output.is_empty() && output.sending == Sending::Nothing {
                    self.close(slot);
                } else if output.kept_back() == 0 {
                    self.next.sleepless = true;
                }
            }
        }
        self.slots.touched = touched;
        self.flush_sealed();
    }

    /// Closes a connection whose peer has gone, once none of its commands is unfinished. Returns
    /// whether the connection has something to send.
    #[cold]
    fn end_if_done(&mut self, slot: u32) -> bool {
        let Some(connection) = self.connections.at(slot) else { return false };
        let is_done = !connection.has_work_left();
        if is_done {
            connection.unserved = None;
        }
        if !connection.client.discard {
            connection.closing |= is_done;
            return true;
        }
        connection.replies = None;
        connection.output.clear();
        if is_done {
            self.close(slot);
        }
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_gets_more_at_once_when_no_other_was_served_lately() {
        let mut lone = LoneClient::default();
        let mut send_max = |touched: &[u32], now_ms| lone.send_max(touched, now_ms);
        assert_eq!(send_max(&[3], 1000), SEND_MAX);
        assert_eq!(send_max(&[3], 1009), SEND_MAX);
        assert_eq!(send_max(&[3], 1010), SEND_ALONE_MAX);
        assert_eq!(send_max(&[], 1011), SEND_ALONE_MAX);
        assert_eq!(send_max(&[3, 4], 1012), SEND_MAX);
        assert_eq!(send_max(&[3], 1013), SEND_MAX);
        assert_eq!(send_max(&[4], 1022), SEND_MAX);
        assert_eq!(send_max(&[4], 1032), SEND_ALONE_MAX);
    }
}
