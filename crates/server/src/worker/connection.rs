//! A connection: its socket, what has arrived and is not executed yet, what is to be sent.

use std::os::fd::OwnedFd;

use bobbin_resp::Parser;

use crate::client::Client;
use crate::io::Token;

/// See the module. Buffers are empty, and not allocated, whenever the connection is idle.
pub struct Connection {
    pub socket: OwnedFd,
    pub token: Token,
    pub client: Client,
    pub parser: Parser,
    /// Bytes of commands that are incomplete or have to wait.
    pub input: Vec<u8>,
    pub output: Output,
    pub reading: Reading,
    /// Where in the turn's arena its replies are.
    pub replies: Option<Range>,
    /// Listed among the connections that the turn has to look at before it ends.
    pub touched: bool,
    /// To be closed once the output is sent.
    pub closing: bool,
    /// On its way to another worker.
    pub moving: bool,
}

/// Start and end in the turn's arena.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Range {
    pub start: usize,
    pub end: usize,
}

/// What the driver does for the connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Reading {
    /// Bytes come as events.
    Data,
    /// We read ourselves, into `input`: a large argument is on its way.
    Direct,
    /// Nothing is read.
    Paused,
}

/// What could not be sent at once.
#[derive(Default)]
pub struct Output {
    bytes: Vec<u8>,
    sent: usize,
    /// What the send that is under way sends.
    pub sending: Sending,
    /// Waiting for the driver to say that there is room.
    pub blocked: bool,
    /// Since when (Unix ms) it is over the soft limit; 0: it is not.
    pub over_soft_since_ms: i64,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Sending {
    #[default]
    Nothing,
    /// This range of the turn's arena.
    Arena(Range),
    /// The pending bytes.
    Pending,
}

impl Output {
    pub fn push(&mut self, bytes: &[u8]) {
        if self.sent > 0 && self.sent >= self.bytes.len() / 2 {
            self.bytes.drain(..self.sent);
            self.sent = 0;
        }
        self.bytes.extend_from_slice(bytes);
    }

    /// The same, for many bytes: they are not copied if nothing is pending.
    pub fn push_owned(&mut self, bytes: Vec<u8>) {
        if self.bytes.is_empty() {
            self.bytes = bytes;
        } else {
            self.push(&bytes);
        }
    }

    /// What is left to send.
    pub fn pending(&self) -> &[u8] {
        &self.bytes[self.sent..]
    }

    pub fn is_empty(&self) -> bool {
        self.sent == self.bytes.len()
    }

    /// So many of the pending bytes went out.
    pub fn advance(&mut self, sent: usize) {
        self.sent += sent;
        debug_assert!(self.sent <= self.bytes.len());
        if self.is_empty() {
            self.bytes = Vec::new();
            self.sent = 0;
        }
    }

    /// Bytes of memory.
    pub fn memory(&self) -> usize {
        self.bytes.capacity()
    }
}

impl Connection {
    pub fn new(socket: OwnedFd, token: Token, client: Client) -> Self {
        Self {
            socket,
            token,
            client,
            parser: Parser::default(),
            input: Vec::new(),
            output: Output::default(),
            reading: Reading::Data,
            replies: None,
            touched: false,
            closing: false,
            moving: false,
        }
    }

    /// Whether commands have to wait: one is at work in slices, another worker will see to them, or the
    /// end has come.
    pub fn is_busy(&self) -> bool {
        self.client.job.is_some() || self.client.postponed || self.closing || self.moving
    }
}
