//! Limits on what a client may hold: output nobody reads, and time without a word.

use std::sync::atomic::Ordering;

use super::Worker;
use super::connection::Connection;
use crate::client::ClientFlag;
use crate::config::{ClientClass, Config};

/// How often idle clients and soft limits are looked at.
const LOOK_MS: i64 = 1000;

/// Whether a connection has more output waiting than its class may.
fn is_over_output_limit(config: &Config, connection: &mut Connection, now_ms: i64) -> bool {
    let class = if connection.client.info.has(ClientFlag::MONITOR) {
        ClientClass::Replica
    } else if connection.client.info.has(ClientFlag::PUBSUB) {
        ClientClass::Pubsub
    } else {
        ClientClass::Normal
    };
    let limit = config.output_limit(class);
    let bytes = connection.output.pending().len() as u64;
    if limit.hard_bytes > 0 && bytes >= limit.hard_bytes {
        return true;
    }
    if limit.soft_bytes == 0 || bytes < limit.soft_bytes {
        connection.output.over_soft_since_ms = 0;
        return false;
    }
    let since_ms = &mut connection.output.over_soft_since_ms;
    if *since_ms == 0 {
        *since_ms = now_ms;
    }
    now_ms - *since_ms > limit.soft_s * 1000
}

impl Worker {
    /// Closes a client that let its output grow too far.
    fn close_over_limit(&mut self, slot: u32) {
        let Some(connection) = self.connections.at(slot) else { return };
        let info = &connection.client.info;
        log::warn!(
            "Client id={} addr={} omem={} closed for overcoming of output buffer limits.",
            info.id,
            info.peer,
            connection.output.pending().len()
        );
        self.handle.stats.totals.client_output_buffer_limit_disconnections.add(1);
        self.close(slot);
    }

    /// Once a second: clients that were silent for `timeout`, and soft limits of those that send nothing.
    pub(super) fn look_at_clients(&mut self) {
        let now_ms = self.data.now_ms;
        if now_ms < self.timer.clients_at_ms {
            return;
        }
        self.timer.clients_at_ms = now_ms + LOOK_MS;
        for slot in std::mem::take(&mut self.slow) {
            self.check_output(slot);
            if self.connections.at(slot).is_some_and(|c| !c.output.is_empty()) {
                self.slow.push(slot);
            }
        }
        let timeout_ms = self.server.config.timeout() * 1000;
        if timeout_ms == 0 {
            return;
        }
        for slot in self.connections.used() {
            let Some(connection) = self.connections.at(slot) else { continue };
            let info = &connection.client.info;
            let idle_ms = now_ms - info.last_ms.load(Ordering::Relaxed);
            let spared = ClientFlag::BLOCKED | ClientFlag::PUBSUB | ClientFlag::MONITOR;
            if idle_ms > timeout_ms && !info.has(spared) {
                log::debug!("Closing idle client");
                self.close(slot);
            }
        }
    }

    /// Closes the connection if it is over its output limit.
    pub(super) fn check_output(&mut self, slot: u32) {
        let Some(connection) = self.connections.at(slot) else { return };
        if is_over_output_limit(&self.server.config, connection, self.data.now_ms) {
            self.close_over_limit(slot);
        }
    }
}
