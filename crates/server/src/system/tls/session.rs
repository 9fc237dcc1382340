//! One connection's part of the protocol, without its socket: what came is opened, what goes is
//! sealed.
//!
//! Bytes are decrypted where they lie, in the driver's memory. Only a record that has not come
//! whole yet is put aside, so an idle connection keeps no more than rustls's own state.

use rustls::server::{ServerConnectionData, UnbufferedServerConnection};
use rustls::unbuffered::{
    ConnectionState, EncodeError, EncodeTlsData, EncryptError, UnbufferedStatus, WriteTraffic,
};
use rustls::{Error, HandshakeKind, InvalidMessage};

/// The TLS state of one connection.
pub struct ServerTlsSession {
    /// From the first bytes on: a connection that says nothing costs nothing.
    connection: Option<Box<UnbufferedServerConnection>>,
    /// The beginning of a record, or of a message of several.
    partial: Vec<u8>,
    /// Bytes that the socket did not take yet, and how many of them it has taken by now.
    wire: Vec<u8>,
    wire_sent: usize,
    stage: TlsStage,
}

/// How far a connection is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum TlsStage {
    Handshake,
    Open,
    /// The other side has said that nothing more will come.
    PeerClosed,
    /// We have said so.
    Closed,
    /// Something was wrong: nothing can be sent but the word of it.
    Failed,
}

/// What the end of a handshake tells.
#[derive(Clone, Debug)]
pub struct TlsHandshake {
    pub is_resumed: bool,
    /// The client's own certificate, in DER, if it showed one.
    pub certificate: Option<Vec<u8>>,
}

/// What came of bytes that were opened.
pub struct Opened {
    /// With these bytes the handshake ended.
    pub handshake: Option<TlsHandshake>,
    /// Nothing more will come.
    pub is_over: bool,
}

impl Default for ServerTlsSession {
    fn default() -> Self {
        Self {
            connection: None,
            partial: Vec::new(),
            wire: Vec::new(),
            wire_sent: 0,
            stage: TlsStage::Handshake,
        }
    }
}

impl ServerTlsSession {
    /// Whether the first bytes are still to come.
    pub const fn is_untouched(&self) -> bool {
        self.connection.is_none()
    }

    /// Begins with a new connection of rustls's.
    pub fn begin(&mut self, connection: UnbufferedServerConnection) {
        self.connection = Some(Box::new(connection));
    }

    /// The most bytes that [`Self::open`] may give for `len` bytes.
    pub const fn room_for(&self, len: usize) -> usize {
        self.partial.len() + len
    }

    /// Opens bytes that came, in place, and hands what they hold to `plain` in pieces.
    pub fn open(
        &mut self,
        bytes: &mut [u8],
        plain: &mut dyn FnMut(&[u8]),
    ) -> Result<Opened, Error> {
        let was_handshaking = self.stage == TlsStage::Handshake;
        let outcome = if self.partial.is_empty() {
            self.process(bytes, plain).map(|done| self.partial.extend_from_slice(&bytes[done..]))
        } else {
            let mut partial = std::mem::take(&mut self.partial);
            partial.extend_from_slice(bytes);
            self.process(&mut partial, plain).map(|done| {
                if done < partial.len() {
                    partial.drain(..done);
                    self.partial = partial;
                }
            })
        };
        if let Err(error) = outcome {
            self.partial = Vec::new();
            if matches!(error, Error::InvalidMessage(InvalidMessage::InvalidContentType)) {
                // A client that does not speak TLS would take the alert for an answer.
                self.wire = Vec::new();
            }
            self.stage = TlsStage::Failed;
            return Err(error);
        }
        let mut handshake = None;
        if was_handshaking
            && let Some(connection) = &self.connection
            && !connection.is_handshaking()
        {
            if self.stage == TlsStage::Handshake {
                self.stage = TlsStage::Open;
            }
            let shown = connection.peer_certificates().and_then(<[_]>::first);
            handshake = Some(TlsHandshake {
                is_resumed: connection.handshake_kind() == Some(HandshakeKind::Resumed),
                certificate: shown.map(|certificate| certificate.to_vec()),
            });
        }
        Ok(Opened { handshake, is_over: self.stage == TlsStage::PeerClosed })
    }

    /// Works through complete records; returns how many bytes are done with.
    fn process(&mut self, bytes: &mut [u8], plain: &mut dyn FnMut(&[u8])) -> Result<usize, Error> {
        let Some(connection) = &mut self.connection else { return Ok(bytes.len()) };
        let mut done = 0;
        loop {
            let UnbufferedStatus { mut discard, state } =
                connection.process_tls_records(&mut bytes[done..]);
            let mut waits = false;
            match state {
                Ok(ConnectionState::ReadTraffic(mut traffic)) => {
                    while let Some(record) = traffic.next_record() {
                        let record = record?;
                        discard += record.discard;
                        plain(record.payload);
                    }
                }
                Ok(ConnectionState::EncodeTlsData(mut data)) => encode(&mut data, &mut self.wire)?,
                Ok(ConnectionState::TransmitTlsData(data)) => data.done(),
                Ok(ConnectionState::PeerClosed) => self.stage = TlsStage::PeerClosed,
                // Early data is not offered, and so not accepted.
                Ok(_) => waits = true,
                Err(error) => {
                    self.say_why();
                    return Err(error);
                }
            }
            done += discard;
            if waits {
                return Ok(done);
            }
        }
    }

    /// Takes from rustls what it still has to send after an error: the alert. It must see no more
    /// bytes then.
    fn say_why(&mut self) {
        let Some(connection) = &mut self.connection else { return };
        while connection.wants_write() {
            match connection.process_tls_records(&mut []).state {
                Ok(ConnectionState::EncodeTlsData(mut data)) => {
                    if encode(&mut data, &mut self.wire).is_err() {
                        return;
                    }
                }
                Ok(ConnectionState::ReadTraffic(mut traffic)) => {
                    while traffic.next_record().is_some() {}
                }
                _ => return,
            }
        }
    }

    /// Appends to `sealed` what brings these bytes to the other side.
    pub fn seal(&mut self, plain: &[u8], sealed: &mut Vec<u8>) -> Result<(), Error> {
        let written = self.write(sealed, |traffic, sealed| {
            append(sealed, sealed_len(plain.len()), |room| traffic.encrypt(plain, room))
        });
        if written.is_err() {
            self.stage = TlsStage::Failed;
        }
        written
    }

    /// Appends the word that nothing more will be sent. Once.
    pub fn seal_end(&mut self, sealed: &mut Vec<u8>) {
        if !self.may_send() {
            return;
        }
        // If it cannot be written, the other side sees the end of the connection alone.
        let written = self.write(sealed, |traffic, sealed| {
            append(sealed, ALERT_ROOM, |room| traffic.queue_close_notify(room))
        });
        drop(written);
        self.stage = TlsStage::Closed;
    }

    fn write(
        &mut self,
        sealed: &mut Vec<u8>,
        mut write: impl FnMut(
            &mut WriteTraffic<'_, ServerConnectionData>,
            &mut Vec<u8>,
        ) -> Result<(), EncryptError>,
    ) -> Result<(), Error> {
        let Some(connection) = &mut self.connection else {
            return Err(Error::HandshakeNotComplete);
        };
        loop {
            // rustls wants to see the bytes that it did not use, whatever it is asked for.
            let UnbufferedStatus { discard, state } =
                connection.process_tls_records(&mut self.partial);
            let done = match state? {
                ConnectionState::WriteTraffic(mut traffic) => {
                    Some(write(&mut traffic, sealed).map_err(|_| Error::EncryptError))
                }
                ConnectionState::EncodeTlsData(mut data) => {
                    encode(&mut data, sealed)?;
                    None
                }
                ConnectionState::TransmitTlsData(data) => {
                    data.done();
                    None
                }
                ConnectionState::PeerClosed => {
                    self.stage = TlsStage::PeerClosed;
                    None
                }
                _ => return Err(Error::HandshakeNotComplete),
            };
            if discard > 0 {
                self.partial.drain(..discard);
            }
            if let Some(done) = done {
                return done;
            }
        }
    }

    /// Takes over bytes that the socket did not take.
    pub fn keep(&mut self, unsent: &[u8]) {
        self.wire.extend_from_slice(unsent);
    }

    /// Notes that `sent` bytes of [`Self::wire`] went out.
    pub fn advance(&mut self, sent: usize) {
        self.wire_sent += sent;
        if self.wire_sent >= self.wire.len() {
            self.wire = Vec::new();
            self.wire_sent = 0;
        }
    }

    /// What the socket has to take before anything else.
    pub fn wire(&self) -> &[u8] {
        &self.wire[self.wire_sent..]
    }

    /// Whether [`Self::seal`] would work.
    pub const fn may_send(&self) -> bool {
        matches!(self.stage, TlsStage::Open | TlsStage::PeerClosed)
    }

    pub fn is_handshaking(&self) -> bool {
        self.stage == TlsStage::Handshake
    }

    pub fn has_failed(&self) -> bool {
        self.stage == TlsStage::Failed
    }

    /// Bytes of memory, beside what waits in [`Self::wire`].
    pub fn memory(&self) -> usize {
        let state = if self.is_untouched() { 0 } else { STATE_BYTES };
        size_of::<Self>() + state + self.partial.capacity()
    }
}

fn encode(
    data: &mut EncodeTlsData<'_, ServerConnectionData>,
    to: &mut Vec<u8>,
) -> Result<(), Error> {
    let EncodeError::InsufficientSize(needed) = (match data.encode(&mut []) {
        Ok(_) => return Ok(()),
        Err(error) => error,
    }) else {
        return Ok(());
    };
    let start = to.len();
    to.resize(start + needed.required_size, 0);
    match data.encode(&mut to[start..]) {
        Ok(written) => to.truncate(start + written),
        Err(error) => return Err(Error::General(error.to_string())),
    }
    Ok(())
}

/// Appends what `write` writes. It gets room for `room` bytes, or for more if it asks for them.
fn append(
    to: &mut Vec<u8>,
    room: usize,
    mut write: impl FnMut(&mut [u8]) -> Result<usize, EncryptError>,
) -> Result<(), EncryptError> {
    let start = to.len();
    to.resize(start + room, 0);
    let mut written = write(&mut to[start..]);
    if let Err(EncryptError::InsufficientSize(needed)) = &written {
        to.resize(start + needed.required_size, 0);
        written = write(&mut to[start..]);
    }
    to.truncate(start + *written.as_ref().unwrap_or(&0));
    written.map(drop)
}

/// The most bytes that the records of `plain` bytes need.
const fn sealed_len(plain: usize) -> usize {
    plain + (plain / RECORD_LEN_MAX + 1) * RECORD_EXTRA_MAX
}

/// What rustls keeps for a connection that is open, as measured.
const STATE_BYTES: usize = 3 << 10;
const RECORD_LEN_MAX: usize = 16 << 10;
/// Header (5), nonce (8, version 1.2) or type (1, version 1.3), tag (16).
const RECORD_EXTRA_MAX: usize = 29;
const ALERT_ROOM: usize = 64;
