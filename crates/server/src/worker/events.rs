//! What the driver reports: bytes that arrived, bytes that were sent, and sockets that closed.

use std::os::fd::AsFd;

use bobbin_io::{Driver, Event, Received, Token, receive_into, receive_split};

use super::limits::{count_sent, is_queue_too_long};
use super::{Connection, Worker, arrived, touch};
use crate::engine::buffers::output::Sending;
use crate::engine::client::connection::Reading;
use crate::engine::server::Server;

/// How many bytes to receive from a `Direct` connection whose large argument is complete already.
const STRAY_MAX: usize = 16 * 1024;
/// The most bytes that one direct receive takes, so that a turn stays short.
const DIRECT_RECEIVE_MAX: usize = 1024 * 1024;

impl Worker {
    /// Handles the reports of what was sent. They come before all else, while the arena still has
    /// the replies of the last turn: the rest of a reply is copied from there.
    pub(super) fn take_sent(&mut self, events: &[Event]) {
        for event in events {
            if let Event::Sent { token, result } = event {
                self.sent(*token, *result);
            }
        }
    }

    /// A connection's output was taken as far as `result` says.
    fn sent(&mut self, token: Token, result: Result<usize, rustix::io::Errno>) {
        let Some(connection) = self.connections.find(token) else { return };
        let sending = std::mem::take(&mut connection.output.sending);
        let Ok(sent) = result else {
            self.lose_reader(token);
            return;
        };
        if connection.tls.is_some() {
            self.sent_sealed(token.slot(), sending, sent);
            return;
        }
        let refused = (connection.output.offered - sent) as u64;
        if refused > 0 {
            connection.client.info.net_output_bytes.sub(refused);
            self.handle.stats.totals.net_output_bytes.sub(refused);
        }
        self.handle.stats.totals.writes_processed.add(1);
        match sending {
            Sending::Nothing | Sending::Sealed(_) => {}
            Sending::Arena(range) if sent < self.arena.len_of(range) => {
                connection.output.push_replies(&self.arena, range, sent);
                connection.output.free();
            }
            Sending::Arena(_) => {}
            Sending::Pending => {
                connection.output.advance(sent);
                if connection.output.is_empty() {
                    count_sent(self.server, connection);
                }
            }
        }
        if connection.output.is_free() {
            if sent == connection.output.offered {
                touch(&mut self.slots.touched, connection);
            } else {
                self.wait_for_room(token.slot());
            }
        } else if connection.closing && connection.output.is_empty() {
            self.close(token.slot());
        } else if connection.client.feeder.is_some() {
            touch(&mut self.slots.touched, connection);
        }
    }

    /// A socket took only a part of the output: sends the rest when the socket has room.
    pub(super) fn wait_for_room(&mut self, slot: u32) {
        let Some(connection) = self.connections.at(slot) else { return };
        connection.output.blocked = true;
        self.slots.slow.insert(slot);
        self.driver.notify_writable(connection.token, connection.socket.as_fd());
        self.check_output(slot);
    }

    /// Handles any other event.
    pub(super) fn take_event(&mut self, event: Event) {
        match event {
            Event::Data { token, mut bytes } => {
                // SAFETY: the driver keeps the bytes until the next wait, and the batch is cleared
                // before that. Nothing else has a slice of them.
                let bytes = unsafe { bytes.as_mut_slice() };
                match self.connections.find(token) {
                    Some(connection) if connection.tls.is_some() => self.open(token, bytes),
                    _ => self.take_plain(token, bytes),
                }
            }
            Event::Readable { token } => self.receive(token),
            Event::Closed { token, error } => self.take_end(token, error.is_some()),
            Event::Writable { token } => {
                if let Some(connection) = self.connections.find(token) {
                    connection.output.blocked = false;
                    touch(&mut self.slots.touched, connection);
                }
            }
            Event::Detached { token } => self.detached(token),
            Event::Sent { .. } | Event::Woken => {}
        }
    }

    /// The peer sends nothing more, or its connection is broken. A peer that sends nothing more may
    /// still read: it gets its replies.
    fn take_end(&mut self, token: Token, is_broken: bool) {
        // Commands that arrived before the end are executed first.
        self.execute();
        let server = self.server;
        let Some(connection) = self.connections.find(token) else { return };
        // The connection ended before it left for another worker.
        connection.moving = false;
        // The disk may hang for long, and a client that has gone looks like one that still reads.
        let owes = connection.owes_replies() && !server.is_log_behind();
        let now_ms = self.data.conditions.now_ms;
        if is_broken {
            self.lose_reader(token);
        } else if owes || works_on(server, connection, now_ms) {
            self.end_input(token.slot());
        } else {
            self.close(token.slot());
        }
    }

    /// Nobody reads the replies of a connection any more. The commands that have arrived are still
    /// executed.
    #[cold]
    fn lose_reader(&mut self, token: Token) {
        let (server, now_ms) = (self.server, self.data.conditions.now_ms);
        let Some(connection) = self.connections.find(token) else { return };
        if connection.closing || !works_on(server, connection, now_ms) {
            self.close(token.slot());
            return;
        }
        connection.client.discard = true;
        connection.replies = None;
        connection.output.clear();
        self.end_input(token.slot());
    }

    /// Takes note that a peer sends nothing more, while the connection lasts.
    pub(super) fn end_input(&mut self, slot: u32) {
        let Some(connection) = self.connections.at(slot) else { return };
        connection.client.ended = true;
        if works_on(self.server, connection, self.data.conditions.now_ms) {
            connection.unserved = Some(self.handle.unserved.add());
        }
        touch(&mut self.slots.touched, connection);
    }

    /// Handles bytes that arrived, decrypted if the connection has TLS.
    pub(super) fn take_plain(&mut self, token: Token, bytes: &[u8]) {
        let Some(connection) = self.connections.find(token) else { return };
        arrived(&self.handle, connection, bytes.len());
        self.execute_before_growth(token);
        let Some(connection) = self.connections.find(token) else { return };
        if connection.closing {
            // The connection only sends its last replies; it executes nothing more.
            return;
        }
        if is_queue_too_long(self.server, connection, bytes.len()) {
            self.close_for_input(token.slot());
            return;
        }
        if connection.large.is_arriving() {
            let taken = connection.large.feed(bytes);
            connection.input.push(&bytes[taken..]);
            self.received_own(token.slot());
        } else if connection.input.is_empty() && !connection.is_busy() {
            self.parse(token.slot(), bytes.as_ptr(), bytes.len(), false);
        } else if connection.is_busy() {
            connection.input.push(bytes);
            touch(&mut self.slots.touched, connection);
            self.fit_reading(token.slot());
            self.check_input(token.slot());
        } else {
            connection.input.push(bytes);
            self.parse_own(token.slot());
        }
    }

    /// Executes the parsed commands of a connection before its input buffer grows: their arguments
    /// may lie in that buffer, which moves when it grows.
    pub(super) fn execute_before_growth(&mut self, token: Token) {
        let Some(connection) = self.connections.find(token) else { return };
        if connection.touched && self.spans.iter().any(|span| span.slot == token.slot()) {
            self.execute();
        }
    }

    /// Receives a large argument into a buffer of its own.
    fn receive(&mut self, token: Token) {
        self.execute_before_growth(token);
        let Some(connection) = self.connections.find(token) else { return };
        let missing = connection.large.wanted();
        let (socket, input) = (connection.socket.as_fd(), connection.input.whole());
        let received = match connection.large.buffer() {
            Some(buffer) => receive_split(socket, buffer, missing, DIRECT_RECEIVE_MAX, input),
            // The bytes that the driver had received completed the argument.
            None => receive_into(socket, input, STRAY_MAX),
        };
        match received {
            Ok(Received::Bytes(len)) => {
                connection.large.finish();
                arrived(&self.handle, connection, len);
                self.received_own(token.slot());
            }
            Ok(Received::WouldBlock) => {}
            end @ (Ok(Received::End) | Err(_)) => {
                // Otherwise the driver would report the end again and again.
                self.read_by(token.slot(), Reading::Paused);
                self.take_end(token, end.is_err());
            }
        }
    }

    /// Takes note of `len` bytes of a large argument that arrived over TLS.
    pub(super) fn take_large(&mut self, token: Token, len: usize) {
        let Some(connection) = self.connections.find(token) else { return };
        arrived(&self.handle, connection, len);
        self.received_own(token.slot());
    }

    /// Continues after bytes of a large argument were received.
    fn received_own(&mut self, slot: u32) {
        let Some(connection) = self.connections.at(slot) else { return };
        touch(&mut self.slots.touched, connection);
        if is_queue_too_long(self.server, connection, connection.unparsed_len()) {
            self.close_for_input(slot);
        } else if self.check_input(slot) {
            self.parse_own(slot);
        }
    }
}

/// Whether commands have arrived that will be executed soon. One that a pause or a hanging disk
/// holds back for long ends with its client.
fn works_on(server: &Server, connection: &Connection, now_ms: i64) -> bool {
    let client = &connection.client;
    let waits_long = client.is_postponed()
        && !client.waits_for_reserved
        && (server.paused(now_ms).is_some() || server.is_log_behind());
    connection.has_work_left() && !waits_long
}
