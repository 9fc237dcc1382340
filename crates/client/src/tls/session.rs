//! TLS without a socket: bytes of the network in, bytes of the protocol out, and the other way
//! round.

use std::{
    fmt,
    io::{self, Read, Write},
};

use rustls::ClientConnection;

/// One connection's TLS. The owner of the socket passes the bytes.
pub struct ClientTlsSession {
    connection: ClientConnection,
}

impl ClientTlsSession {
    pub(super) fn new(mut connection: ClientConnection) -> Self {
        // What waits here was bounded by the caller that sends it.
        connection.set_buffer_limit(None);
        Self { connection }
    }

    /// Takes bytes that came, and appends what they mean to `plain`. Whether the other side said
    /// that nothing more will come.
    pub fn receive(&mut self, mut network: &[u8], plain: &mut Vec<u8>) -> io::Result<bool> {
        let mut is_over = false;
        while !network.is_empty() && !is_over {
            self.connection.read_tls(&mut network)?;
            let state = self
                .connection
                .process_new_packets()
                .map_err(|error| io::Error::other(bobbin_tls::explain(&error)))?;
            let start = plain.len();
            plain.resize(start + state.plaintext_bytes_to_read(), 0);
            self.connection.reader().read_exact(&mut plain[start..])?;
            is_over = state.peer_has_closed();
        }
        Ok(is_over)
    }

    /// Appends to `network` the bytes to send, so that the other side gets `plain`. Before the
    /// handshake is done these are only the bytes that the handshake needs now; the rest comes with
    /// a later call.
    pub fn send(&mut self, plain: &[u8], network: &mut Vec<u8>) -> io::Result<()> {
        self.connection.writer().write_all(plain)?;
        while self.connection.wants_write() {
            self.connection.write_tls(network)?;
        }
        Ok(())
    }

    /// Appends the words that nothing more will be sent.
    pub fn close(&mut self, network: &mut Vec<u8>) -> io::Result<()> {
        self.connection.send_close_notify();
        self.send(&[], network)
    }

    pub fn is_handshaking(&self) -> bool {
        self.connection.is_handshaking()
    }

    /// Whether [`Self::send`] of nothing would give something: an answer of the protocol's own.
    #[inline]
    pub fn has_to_send(&self) -> bool {
        self.connection.wants_write()
    }
}

impl fmt::Debug for ClientTlsSession {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TlsSession").field("is_handshaking", &self.is_handshaking()).finish()
    }
}
