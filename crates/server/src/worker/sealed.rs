//! Connections with TLS: their bytes are decrypted before they are parsed, and their replies are
//! encrypted before they are sent.
//!
//! All other code sees such a connection as any other: `Output` holds plain bytes. A turn first
//! seals the output of all connections, each as one run of records in one buffer, and then sends
//! them.

use std::os::fd::AsFd;
use std::sync::atomic::Ordering;

use bobbin_io::{Driver, Token};
use rustix::net::SendFlags;

use super::limits::count_sent;
use super::{Worker, touch};
use crate::base::clock::{has_come, has_passed};
use crate::engine::buffers::output::{ReplyRange, Sending};
use crate::engine::client::certificate::identify;
use crate::engine::client::connection::Connection;
use crate::system::tls::{ServerTlsSession, TlsHandshake};

/// Buffers of a worker for connections with TLS.
#[derive(Default)]
pub(super) struct Workspace {
    /// The plain bytes of the turn. The batch's arguments lie in it, so it never grows while the
    /// batch has any.
    plain: Vec<u8>,
    /// The records that the turn sends. It grows only before the first of them is sent.
    sealed: Vec<u8>,
    /// Slots of connections that may have something to seal.
    sealing: Vec<u32>,
    /// Slots of connections whose handshake is not complete.
    greeting: Vec<u32>,
    complaints: Complaints,
}

/// How many failures were logged lately.
#[derive(Default)]
struct Complaints {
    since_ms: i64,
    count: usize,
}

impl Workspace {
    /// Forgets the plain bytes and records of the last turn, and gives back memory beyond
    /// `kept_max` bytes.
    pub(super) fn clear(&mut self, kept_max: usize) {
        if self.plain.capacity() + self.sealed.capacity() > 0 {
            self.plain.clear();
            self.plain.shrink_to(kept_max);
            self.sealed.clear();
            self.sealed.shrink_to(kept_max);
        }
    }

    /// Lists a connection that may have something to send in this turn.
    pub(super) fn add(&mut self, slot: u32) {
        self.sealing.push(slot);
    }

    /// Watches the handshake of a new connection.
    pub(super) fn watch(&mut self, connection: &Connection) {
        if connection.tls.as_ref().is_some_and(|tls| tls.is_handshaking()) {
            self.greeting.push(connection.token.slot());
        }
    }
}

impl Worker {
    /// Decrypts the bytes that arrived for a connection, and has them executed.
    pub(super) fn open(&mut self, token: Token, bytes: &mut [u8]) {
        self.execute_before_growth(token);
        let Some(room) = self.begin_opening(token, bytes.len()) else { return };
        self.make_room(room);
        let Self { connections, workspace, .. } = self;
        let Some(connection) = connections.find(token) else { return };
        let Some(tls) = &mut connection.tls else { return };
        let (plain, large) = (&mut workspace.plain, &mut connection.large);
        let (start, mut fed) = (plain.len(), 0);
        let outcome = tls.open(bytes, &mut |piece| {
            // Bytes of a large argument go straight to their place.
            let taken = large.feed(piece);
            fed += taken;
            plain.extend_from_slice(&piece[taken..]);
        });
        connection.client.info.tls_bytes.store(tls.memory(), Ordering::Relaxed);
        let has_to_send = !tls.wire().is_empty();
        if has_to_send {
            touch(&mut self.slots.touched, connection);
        }
        let opened = match outcome {
            Ok(opened) => opened,
            Err(error) => {
                self.refuse(token.slot(), &bobbin_tls::explain(&error));
                return;
            }
        };
        if let Some(handshake) = opened.handshake {
            self.greeted(token.slot(), &handshake);
        }
        if fed > 0 {
            self.take_large(token, fed);
        }
        let plain = &self.workspace.plain[start..];
        if !plain.is_empty() {
            // SAFETY: the bytes stay in place until `make_room` or the next turn, and the batch is
            // cleared before both.
            let plain = unsafe { std::slice::from_raw_parts(plain.as_ptr(), plain.len()) };
            self.take_plain(token, plain);
        }
        if opened.is_over {
            self.end_sealed(token);
        }
    }

    /// Begins the connection's TLS session if that has not happened. Returns how many bytes of room
    /// decrypting `len` bytes may need; `None`: the session has failed.
    fn begin_opening(&mut self, token: Token, len: usize) -> Option<usize> {
        let connection = self.connections.find(token)?;
        let tls = connection.tls.as_mut()?;
        if tls.has_failed() {
            return None;
        }
        if tls.is_untouched() {
            match self.server.tls.begin() {
                Ok(begun) => tls.begin(begun),
                Err(reason) => {
                    self.refuse(token.slot(), &reason);
                    self.close(token.slot());
                    return None;
                }
            }
        }
        Some(tls.room_for(len))
    }

    /// Makes sure that `len` bytes can be decrypted without moving earlier plain bytes of the turn.
    fn make_room(&mut self, len: usize) {
        let plain = &self.workspace.plain;
        if plain.capacity() - plain.len() >= len {
            return;
        }
        self.execute();
        let plain = &mut self.workspace.plain;
        plain.clear();
        plain.reserve(len.max(PLAIN_LEN));
    }

    /// Handles the peer's notice that it will send nothing more.
    fn end_sealed(&mut self, token: Token) {
        self.execute();
        if self.connections.find(token).is_some() {
            self.end_input(token.slot());
        }
    }

    /// Handles a complete handshake.
    fn greeted(&mut self, slot: u32, handshake: &TlsHandshake) {
        self.server.tls.count_finished(handshake.is_resumed);
        let Some(connection) = self.connections.at(slot) else { return };
        if let Some(certificate) = &handshake.certificate {
            identify(self.server, &mut connection.client, certificate, self.data.conditions.now_ms);
        }
        touch(&mut self.slots.touched, connection);
    }

    /// Closes a connection that sent nonsense, or has no valid certificate. The TLS alert with the
    /// reason is sent first.
    #[cold]
    fn refuse(&mut self, slot: u32, reason: &str) {
        let Some(connection) = self.connections.at(slot) else { return };
        let info = &connection.client.info;
        let was_known = connection.client.info.commands.get() > 0;
        if !was_known {
            self.server.tls.count_failed();
        }
        if self.workspace.complaints.may_say(self.data.conditions.now_ms) {
            let (peer, local) = (&info.peer, &info.local);
            if was_known {
                log::warn!("Closing a TLS connection: {reason} (addr={peer} laddr={local})");
            } else {
                log::warn!(
                    "Error accepting a client connection: {reason} (addr={peer} laddr={local})"
                );
            }
        }
        connection.replies = None;
        connection.output.clear();
        connection.closing = true;
        touch(&mut self.slots.touched, connection);
    }

    /// Once a second, closes connections whose handshake takes too long.
    pub(super) fn look_at_handshakes(&mut self) {
        let mut greeting = std::mem::take(&mut self.workspace.greeting);
        greeting.sort_unstable();
        greeting.dedup();
        for slot in greeting {
            let Some(connection) = self.connections.at(slot) else { continue };
            if !connection.tls.as_ref().is_some_and(|tls| tls.is_handshaking()) {
                continue;
            }
            let end_ms = connection.client.info.created_ms + HANDSHAKE_MS;
            if !has_come(self.data.conditions.now_ms, end_ms, HANDSHAKE_MS) {
                self.workspace.greeting.push(slot);
            } else {
                self.refuse(slot, "the handshake takes too long");
                self.close(slot);
            }
        }
    }

    // Step: send.

    /// Seals and sends the output of the turn's connections.
    pub(super) fn flush_sealed(&mut self) {
        let mut sealing = std::mem::take(&mut self.workspace.sealing);
        for &slot in &sealing {
            self.seal(slot);
        }
        for slot in sealing.drain(..) {
            self.send_sealed(slot);
        }
        self.workspace.sealing = sealing;
    }

    /// Seals a connection's output, or the first part of it.
    fn seal(&mut self, slot: u32) {
        let Self { connections, workspace, arena, slots, .. } = self;
        let Some(connection) = connections.at(slot) else { return };
        let (output, sealed) = (&mut connection.output, &mut workspace.sealed);
        let start = sealed.len();
        let mut replies = connection.replies.take();
        output.free();
        if output.blocked || start > SEALED_MAX {
            if let Some(range) = replies {
                output.push_replies(arena, range, 0);
                output.free();
            }
            if !output.blocked {
                // The turn has sealed enough; this connection has its turn in the next.
                touch(&mut slots.touched, connection);
                self.next.sleepless = true;
            }
            return;
        }
        let Some(tls) = &mut connection.tls else { return };
        sealed.extend_from_slice(tls.wire());
        tls.advance(sealed.len() - start);
        let mut run = SealedRun { tls, sealed, plain_len: 0, failure: None };
        if run.tls.may_send() && output.is_empty() {
            if let Some(range) = replies.take() {
                let done = arena.each_piece(range, SEAL_MAX, &mut |piece| run.seal(piece));
                if done < arena.len_of(range) {
                    output.push_replies(arena, range, done);
                }
            }
        } else if run.tls.may_send() {
            output.drain_free(SEAL_MAX, &mut |piece| run.seal(piece));
        }
        if let Some(range) = replies {
            output.push_replies(arena, range, 0);
        }
        output.free();
        let SealedRun { tls, sealed, plain_len, failure } = run;
        if let Some(error) = failure {
            log::warn!("Closing a TLS connection: {}", bobbin_tls::explain(&error));
            output.clear();
            connection.closing = true;
        }
        if connection.closing && output.is_empty() {
            tls.seal_end(sealed);
        }
        connection.client.info.net_output_bytes.add(plain_len as u64);
        self.handle.stats.totals.net_output_bytes.add(plain_len as u64);
        if sealed.len() > start {
            output.sending = Sending::Sealed(ReplyRange { start, end: sealed.len() });
        }
    }

    /// Sends a connection's records, or closes the connection if it has nothing more to send.
    fn send_sealed(&mut self, slot: u32) {
        let Self { connections, workspace, driver, .. } = self;
        let Some(connection) = connections.at(slot) else { return };
        let output = &connection.output;
        let has_failed = connection.tls.as_ref().is_some_and(|tls| tls.has_failed());
        if let Sending::Sealed(range) = output.sending {
            let bytes = &workspace.sealed[range.start..range.end];
            let (token, socket) = (connection.token, connection.socket.as_fd());
            // SAFETY: the records do not change before the next wait has returned.
            unsafe { driver.send(token, socket, bytes.as_ptr(), bytes.len()) };
            self.next.sends_long |= output.is_free();
            // The rest, or the end, comes next, so the next turn must not sleep.
            self.next.sleepless |= output.is_free() || connection.closing;
        } else if connection.closing && !output.blocked && (output.is_empty() || has_failed) {
            self.close(slot);
        }
    }

    /// Handles the outcome of sending a connection's records.
    pub(super) fn sent_sealed(&mut self, slot: u32, sending: Sending, sent: usize) {
        let Self { connections, workspace, .. } = self;
        let Some(connection) = connections.at(slot) else { return };
        let (Some(tls), Sending::Sealed(range)) = (&mut connection.tls, sending) else { return };
        self.handle.stats.totals.writes_processed.add(1);
        let unsent = &workspace.sealed[range.start + sent..range.end];
        let has_failed = tls.has_failed();
        if !unsent.is_empty() {
            tls.keep(unsent);
            self.wait_for_room(slot);
        } else if connection.closing && (connection.output.is_empty() || has_failed) {
            self.close(slot);
        } else if connection.output.is_free() {
            touch(&mut self.slots.touched, connection);
        } else {
            count_sent(self.server, connection);
        }
    }
}

/// The records that one connection seals in a turn.
struct SealedRun<'a> {
    tls: &'a mut ServerTlsSession,
    sealed: &'a mut Vec<u8>,
    plain_len: usize,
    failure: Option<rustls::Error>,
}

impl SealedRun<'_> {
    fn seal(&mut self, piece: &[u8]) {
        self.plain_len += piece.len();
        if self.failure.is_none() {
            self.failure = self.tls.seal(piece, self.sealed).err();
        }
    }
}

impl Complaints {
    /// Whether one more failure may be logged. The limit keeps clients that send garbage from
    /// filling the disk.
    fn may_say(&mut self, now_ms: i64) -> bool {
        if has_passed(now_ms, self.since_ms, 1000) {
            (self.since_ms, self.count) = (now_ms, 0);
        }
        self.count += 1;
        self.count <= COMPLAINTS_MAX
    }
}

/// Tells the peer that the connection ends, if the socket takes the record at once. The driver has
/// let go of the socket.
pub(super) fn say_goodbye(connection: &mut Connection) {
    let Some(tls) = &mut connection.tls else { return };
    if connection.output.sending != Sending::Nothing || !tls.wire().is_empty() {
        return;
    }
    let mut word = Vec::new();
    tls.seal_end(&mut word);
    if !word.is_empty() {
        let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
        // If the send fails, the peer only sees that the connection ends.
        rustix::net::send(&connection.socket, &word, flags).ok();
    }
}

/// Room for plain bytes, after which the parsed commands are executed.
const PLAIN_LEN: usize = 256 * 1024;
/// How many bytes a turn seals for one connection. The kernel copies them, and we keep them until
/// it has taken them.
const SEAL_MAX: usize = 256 * 1024;
/// After sealing this many bytes a turn leaves the other connections to the next turn.
const SEALED_MAX: usize = 4 * 1024 * 1024;
/// How long a handshake may take.
const HANDSHAKE_MS: i64 = 10_000;
/// How many failures each worker logs in a second.
const COMPLAINTS_MAX: usize = 20;
