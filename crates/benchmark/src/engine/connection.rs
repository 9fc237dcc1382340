//! One connection: what is on its way, and what it waits for.

use std::{collections::VecDeque, io, os::fd::OwnedFd, sync::Arc};

use bobbin_client::ClientTlsSession;
use rustix::{
    io::Errno,
    net::{SendFlags, send},
};

use super::{Greeting, ReplyCounter, ServerNode};
use crate::workload::WorkloadState;

#[derive(Debug)]
pub(super) struct LoadConnection {
    pub(super) wire: Wire,
    pub(super) node: Arc<ServerNode>,
    pub(super) state: WorkloadState,
    pub(super) counter: ReplyCounter,
    /// Requests without their replies, oldest first.
    pub(super) flights: VecDeque<Flight>,
    /// Replies to the greeting that have not come.
    pub(super) greetings: u32,
    /// How many bytes at the end of the greeting have not been sent.
    greeting_left: usize,
    /// The requests; those from `sent` to `end` have still to go.
    pub(super) output: Vec<u8>,
    pub(super) sent: usize,
    pub(super) end: usize,
    /// Whether epoll watches for room to write.
    pub(super) watches_write: bool,
    pub(super) is_connected: bool,
    /// Requests that it may send, where each connection has its own number of them.
    pub(super) left: u64,
    /// Requests until it is opened anew.
    pub(super) until_reconnect: u64,
}

/// A socket, and TLS on it.
#[derive(Debug)]
pub(super) struct Wire {
    pub(super) socket: OwnedFd,
    pub(super) tls: Option<Box<ConnectionTls>>,
}

#[derive(Debug)]
pub(super) struct ConnectionTls {
    pub(super) session: ClientTlsSession,
    /// Bytes for the network; those before `sent` have gone.
    network: Vec<u8>,
    sent: usize,
}

/// Requests of one class that were sent together.
#[derive(Clone, Copy, Debug)]
pub(super) struct Flight {
    pub(super) class: u16,
    pub(super) replies: u32,
    pub(super) from_ns: u64,
}

/// What a write came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sent {
    All,
    /// The socket takes no more for now.
    Part,
}

impl LoadConnection {
    pub(super) fn new(
        wire: Wire,
        node: Arc<ServerNode>,
        state: WorkloadState,
        greeting: &Greeting,
    ) -> Self {
        Self {
            wire,
            node,
            state,
            counter: ReplyCounter::default(),
            flights: VecDeque::with_capacity(FLIGHTS_EXPECTED),
            greetings: greeting.replies,
            greeting_left: greeting.bytes.len(),
            output: Vec::new(),
            sent: 0,
            end: 0,
            watches_write: true,
            is_connected: false,
            left: u64::MAX,
            until_reconnect: u64::MAX,
        }
    }

    /// Goes on with a new socket; nothing may be on its way.
    pub(super) fn reopen(&mut self, wire: Wire, greeting: &Greeting) {
        self.wire = wire;
        self.counter = ReplyCounter::default();
        self.greetings = greeting.replies;
        self.greeting_left = greeting.bytes.len();
        self.watches_write = true;
        self.is_connected = false;
    }

    /// Whether requests can be sent: it stands, and all that comes first has been answered.
    pub(super) fn is_up(&self) -> bool {
        self.is_connected
            && self.greetings == 0
            && self.wire.tls.as_ref().is_none_or(|tls| !tls.session.is_handshaking())
    }

    /// Sends what is left, as far as the socket takes it.
    #[inline]
    pub(super) fn flush(&mut self, greeting: &Greeting) -> io::Result<Sent> {
        while self.greeting_left > 0 {
            let bytes = &greeting.bytes[greeting.bytes.len() - self.greeting_left..];
            match self.wire.send(bytes, self.is_connected)? {
                0 => return Ok(Sent::Part),
                count => self.greeting_left -= count,
            }
        }
        if self.sent < self.end {
            self.sent += self.wire.send(&self.output[self.sent..self.end], self.is_connected)?;
            if self.sent < self.end {
                return Ok(Sent::Part);
            }
        }
        match &self.wire.tls {
            Some(_) => self.wire.flush_tls(self.is_connected),
            None => Ok(Sent::All),
        }
    }
}

impl Wire {
    pub(super) fn new(socket: OwnedFd, session: Option<ClientTlsSession>) -> Self {
        let tls = session
            .map(|session| Box::new(ConnectionTls { session, network: Vec::new(), sent: 0 }));
        Self { socket, tls }
    }

    /// The number of bytes that were taken, which may be 0. TLS takes them all, and keeps them for
    /// [`Self::flush_tls`].
    #[inline]
    fn send(&mut self, bytes: &[u8], is_connected: bool) -> io::Result<usize> {
        match &mut self.tls {
            None => send_some(&self.socket, bytes, is_connected),
            Some(tls) => {
                tls.session.send(bytes, &mut tls.network)?;
                Ok(bytes.len())
            }
        }
    }

    /// Sends what TLS has for the network.
    fn flush_tls(&mut self, is_connected: bool) -> io::Result<Sent> {
        let Some(tls) = &mut self.tls else { return Ok(Sent::All) };
        tls.session.send(&[], &mut tls.network)?;
        while tls.sent < tls.network.len() {
            match send_some(&self.socket, &tls.network[tls.sent..], is_connected)? {
                0 => return Ok(Sent::Part),
                count => tls.sent += count,
            }
        }
        tls.network.clear();
        tls.sent = 0;
        Ok(Sent::All)
    }
}

#[inline]
fn send_some(socket: &OwnedFd, bytes: &[u8], is_connected: bool) -> io::Result<usize> {
    match send(socket, bytes, SendFlags::NOSIGNAL) {
        Ok(count) => Ok(count),
        Err(Errno::AGAIN | Errno::INTR) => Ok(0),
        // The connection is not made yet.
        Err(Errno::NOTCONN) if !is_connected => Ok(0),
        Err(error) => Err(error.into()),
    }
}

/// One pipeline is one flight as long as its requests are of one class.
const FLIGHTS_EXPECTED: usize = 4;
