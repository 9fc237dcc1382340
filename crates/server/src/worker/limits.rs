//! Limits on what a client may use: unread output, memory in all, and idle time.

use std::sync::atomic::Ordering;

use super::Worker;
use crate::base::clock::has_come;
use crate::config::OutputLimit;
use crate::engine::buffers::output::Arena;
use crate::engine::client::connection::Connection;
use crate::engine::client::describe;
use crate::engine::clients::ClientFlag;
use crate::engine::lazyfree;
use crate::engine::server::{Server, WorkerHandle};

/// How often idle clients and soft limits are checked.
const LOOK_MS: i64 = 1000;
/// A large argument that makes no progress for this long gives back its unused memory.
const ARRIVING_IDLE_MS: i64 = 2000;
/// A turn's replies count only beyond this many bytes: in Redis they fit a buffer that every client
/// has.
const UNCOUNTED: usize = 16 * 1024;
/// The bytes beyond `UNCOUNTED` that a client may be sent before it authenticates. That is enough
/// for errors, and ends clients that send garbage without reading.
const UNAUTHENTICATED_OUTPUT_MAX: usize = 1024;

/// How many reply bytes a connection's commands may add before it exceeds its hard limit.
pub(crate) struct ReplyLimit(usize);

impl ReplyLimit {
    /// No limit.
    pub const NONE: Self = Self(usize::MAX);

    pub fn new(server: &Server, connection: &Connection, arena: &Arena) -> Self {
        let hard = if is_known(server, connection) {
            let limit = output_limit(server, connection);
            if limit.hard_bytes == 0 {
                return Self(usize::MAX);
            }
            usize::try_from(limit.hard_bytes).unwrap_or(usize::MAX)
        } else {
            UNAUTHENTICATED_OUTPUT_MAX
        };
        let replied = connection.replies.map_or(0, |range| arena.len_of(range));
        Self(hard.saturating_add(UNCOUNTED).saturating_sub(connection.output_memory() + replied))
    }

    /// The limit in bytes. `usize::MAX`: there is none.
    pub const fn bytes(&self) -> usize {
        self.0
    }

    /// Whether the replies from byte `start` of the arena on exceed the limit.
    #[inline(always)]
    pub fn is_exceeded_by(&self, arena: &Arena, start: usize) -> bool {
        self.0 != usize::MAX && arena.len_since(start) >= self.0
    }
}

/// Discards all output of a connection that exceeded its limit, and has the connection closed.
#[cold]
pub(crate) fn drop_replies(
    server: &Server,
    handle: &WorkerHandle,
    connection: &mut Connection,
    now_ms: i64,
) {
    connection.replies = None;
    connection.output.clear();
    connection.client.set_overflowed(false);
    connection.client.close();
    note_overcoming(server, handle, connection, now_ms);
}

fn note_overcoming(server: &Server, handle: &WorkerHandle, connection: &Connection, now_ms: i64) {
    let line = describe::line_for_log(server, &connection.client.info, now_ms);
    log::warn!("Client {line} closed for overcoming of output buffer limits.");
    lazyfree::give_back_soon();
    handle.stats.totals.client_output_buffer_limit_disconnections.add(1);
}

/// Whether a client has authenticated, or need not.
#[inline]
pub(crate) fn is_known(server: &Server, connection: &Connection) -> bool {
    connection.client.rights.authenticated || !server.acl.demands_password()
}

/// The limits of a connection's unsent output. A replica may always have as much waiting as it
/// could ask for again: if it were dropped for less, it would be sent the same once more.
#[inline]
fn output_limit(server: &Server, connection: &Connection) -> OutputLimit {
    let limit = server.config.output_limit(describe::class(&connection.client.info));
    match connection.client.feeder {
        Some(_) => limit.at_least(server.config.repl_backlog_size()),
        None => limit,
    }
}

/// Whether a connection has more unsent output than its class may have.
fn is_over_output_limit(server: &Server, connection: &mut Connection, now_ms: i64) -> bool {
    let limit = output_limit(server, connection);
    let output_bytes = connection.output_memory();
    let feeder = connection.client.feeder.as_ref();
    let bytes = feeder.map_or(output_bytes as u64, |feeder| feeder.waiting_bytes(output_bytes));
    if !is_known(server, connection) && bytes >= (UNCOUNTED + UNAUTHENTICATED_OUTPUT_MAX) as u64 {
        return true;
    }
    if limit.hard_bytes > 0 && bytes >= limit.hard_bytes {
        return true;
    }
    let since_ms = &mut connection.output.over_soft_since_ms;
    if limit.soft_bytes == 0 || bytes < limit.soft_bytes {
        *since_ms = 0;
        return false;
    }
    if *since_ms == 0 {
        *since_ms = now_ms;
    }
    // If the system's clock was set back, the time begins anew.
    *since_ms = now_ms.min(*since_ms);
    now_ms - *since_ms > limit.soft_s * 1000
}

/// Whether a transaction's queued arguments and the unparsed bytes together exceed the query
/// buffer's limit. As in Redis, this is checked when further bytes arrive.
#[inline]
pub(crate) fn is_queue_too_long(server: &Server, connection: &Connection, unparsed: usize) -> bool {
    connection.client.transaction.as_ref().is_some_and(|transaction| {
        let bytes = transaction.argument_bytes() + unparsed;
        bytes as u64 > server.config.client_query_buffer_limit()
    })
}

/// Counts a connection's memory anew after the last of its output was sent. No turn looks at the
/// connection before its client sends more.
pub(crate) fn count_sent(server: &Server, connection: &Connection) {
    let info = &connection.client.info;
    if info.output_bytes.load(Ordering::Relaxed) > 0 {
        info.output_bytes.store(connection.output_memory(), Ordering::Relaxed);
        server.count_client_memory(info);
    }
}

impl Worker {
    /// Notes how much memory a connection's input takes, and closes the connection if that is too
    /// much. Returns whether it still exists.
    pub(crate) fn check_input(&mut self, slot: u32) -> bool {
        let Some(connection) = self.connections.at(slot) else { return false };
        let (input, large) = (&connection.input, &connection.large);
        // As in Redis, only the large arguments of such a command are shown.
        let shown = if large.memory() > 0 { large.arrived_bytes() } else { input.len() };
        let info = &connection.client.info;
        info.input_bytes.store(shown, Ordering::Relaxed);
        info.input_capacity.store(input.capacity() + large.memory(), Ordering::Relaxed);
        if connection.unparsed_len() as u64 > self.server.config.client_query_buffer_limit() {
            self.close_for_input(slot);
            return false;
        }
        true
    }

    /// Closes a connection whose query buffer exceeds its limit.
    #[cold]
    pub(crate) fn close_for_input(&mut self, slot: u32) {
        let Some(connection) = self.connections.at(slot) else { return };
        let id = connection.client.info.id;
        log::warn!("Closing client {id} that reached max query buffer length");
        self.handle.stats.totals.client_query_buffer_limit_disconnections.add(1);
        self.close(slot);
    }

    /// Closes a connection with too much unsent output.
    #[cold]
    pub(crate) fn close_for_output(&mut self, slot: u32) {
        let Some(connection) = self.connections.at(slot) else { return };
        note_overcoming(self.server, &self.handle, connection, self.data.conditions.now_ms);
        self.close(slot);
    }

    /// Notes how much memory a connection's output takes, and closes the connection if that is too
    /// much. Returns whether it still exists.
    pub(crate) fn check_output(&mut self, slot: u32) -> bool {
        let Some(connection) = self.connections.at(slot) else { return false };
        let info = &connection.client.info;
        let bytes = connection.output_memory();
        let is_fed = connection.client.feeder.is_some();
        if bytes > 0 || is_fed || info.output_bytes.load(Ordering::Relaxed) > 0 {
            info.output_bytes.store(bytes, Ordering::Relaxed);
            if is_over_output_limit(self.server, connection, self.data.conditions.now_ms) {
                self.close_for_output(slot);
                return false;
            }
        }
        self.server.count_client_memory(&connection.client.info);
        true
    }

    /// Checks the reply that a connection's job makes: `reply_bytes` were made and not queued,
    /// `sent` were queued or sent before. Closes the connection if the reply is longer than its
    /// limit. Returns whether the connection still exists. What was sent counts as well, so that
    /// the outcome does not depend on how quickly the client reads.
    pub(crate) fn check_job(&mut self, slot: u32, reply_bytes: usize, sent: usize) -> bool {
        let Some(connection) = self.connections.at(slot) else { return false };
        let bytes = connection.output_memory() + reply_bytes;
        let limit = output_limit(self.server, connection);
        connection.client.info.output_bytes.store(bytes, Ordering::Relaxed);
        if limit.hard_bytes > 0 && bytes.max(sent + reply_bytes) as u64 >= limit.hard_bytes {
            // Freed now, so that the next job finds the memory.
            drop(connection.client.long_command.as_mut().map(|long| long.job.pieces()));
            self.close_for_output(slot);
            return false;
        }
        self.server.count_client_memory(&connection.client.info);
        true
    }

    /// Closes clients if all of them together take too much memory.
    pub(crate) fn limit_memory(&mut self) {
        if self.server.is_over_client_memory(self.data.conditions.now_ms) {
            let evicted = self.server.evict_clients(self.data.conditions.now_ms);
            self.handle.stats.totals.evicted_clients.add(evicted);
        }
    }

    /// Once a second, closes idle clients (`timeout`), shrinks large arguments that do not arrive,
    /// and checks the output limits of clients that send nothing.
    pub(crate) fn look_at_clients(&mut self) {
        let now_ms = self.data.conditions.now_ms;
        if !has_come(now_ms, self.timer.clients_at_ms, LOOK_MS) {
            return;
        }
        self.timer.clients_at_ms = now_ms + LOOK_MS;
        self.look_at_handshakes();
        if self.retiring {
            // Connections that listened, or had a command at work, may be free to move by now.
            self.give_excess_away();
        }
        for slot in std::mem::take(&mut self.slots.slow) {
            if self.check_output(slot)
                && self.connections.at(slot).is_some_and(|c| c.output_memory() > 0)
            {
                self.slots.slow.insert(slot);
            }
        }
        self.look_at_fed();
        for slot in std::mem::take(&mut self.slots.arriving) {
            let Some(connection) = self.connections.at(slot) else { continue };
            if !connection.large.is_arriving() {
                continue;
            }
            let idle_ms = now_ms - connection.client.info.last_ms.load(Ordering::Relaxed);
            if idle_ms > ARRIVING_IDLE_MS {
                connection.large.shrink();
                self.check_input(slot);
            }
            self.slots.arriving.insert(slot);
        }
        let timeout_ms = self.server.config.timeout() * 1000;
        if timeout_ms == 0 {
            return;
        }
        for slot in self.connections.used() {
            let Some(connection) = self.connections.at(slot) else { continue };
            let info = &connection.client.info;
            let idle_ms = now_ms - info.last_ms.load(Ordering::Relaxed);
            let spared = ClientFlag::BLOCKED
                | ClientFlag::PUBSUB
                | ClientFlag::MONITOR
                | ClientFlag::REPLICA;
            // A client that was just served, or has a command at work, is not idle.
            let client = &connection.client;
            let is_served =
                connection.touched || client.blocked.is_some() || client.long_command.is_some();
            if idle_ms > timeout_ms && !info.has(spared) && !is_served {
                log::debug!("Closing idle client");
                self.close(slot);
            }
        }
    }
}
