//! Connections of replicas, whose output is filled by a feeder.

use rustix::net::sockopt;

use super::{Worker, touch};
use crate::engine::client::feeder::Feeding;

/// A feeder adds more only while fewer bytes than this wait to be sent.
const OUTPUT_MAX: usize = 256 * 1024;

impl Worker {
    /// Has a connection's feeder fill its output, behind its replies. Returns whether the
    /// connection still exists.
    #[cold]
    pub(super) fn feed(&mut self, slot: u32) -> bool {
        if !self.slots.fed.contains(&slot) {
            self.slots.fed.push(slot);
        }
        let Some(connection) = self.connections.at(slot) else { return false };
        connection.queue_replies(&self.arena);
        let Some(feeder) = &mut connection.client.feeder else { return true };
        let room = OUTPUT_MAX.saturating_sub(connection.output.len());
        if connection.closing {
            return true;
        }
        let feeding = feeder.fill(self.data.conditions.now_ms, room, &mut connection.output);
        // It may have more, and is asked again as soon as this was sent.
        let may_have_more = connection.output.len() >= OUTPUT_MAX;
        self.next.sleepless |= may_have_more && !connection.output.blocked;
        match feeding {
            Feeding::GoesOn => true,
            Feeding::Finishes => {
                connection.closing = true;
                true
            }
            Feeding::Ends => {
                self.close(slot);
                false
            }
            Feeding::Overcome => {
                self.close_for_output(slot);
                false
            }
        }
    }

    /// Once a second, has every feeder check its timeouts.
    pub(super) fn look_at_fed(&mut self) {
        let gathers = self.server.config.repl_disable_tcp_nodelay();
        let Self { connections, slots, .. } = self;
        slots.fed.retain(|&slot| match connections.at(slot) {
            Some(connection) if connection.client.feeder.is_some() => {
                // This fails on a Unix socket, which has no such option.
                sockopt::set_tcp_nodelay(&connection.socket, !gathers).ok();
                touch(&mut slots.touched, connection);
                true
            }
            _ => false,
        });
    }
}
