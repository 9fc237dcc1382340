//! One connection: what is on its way, and what it waits for.

use std::{collections::VecDeque, os::fd::OwnedFd};

use rustix::{
    io::Errno,
    net::{SendFlags, send},
};

use super::{Greeting, ReplyCounter};
use crate::workload::State;

#[derive(Debug)]
pub(super) struct Connection {
    pub(super) socket: OwnedFd,
    pub(super) node: usize,
    pub(super) state: State,
    pub(super) counter: ReplyCounter,
    /// Requests without their replies, oldest first.
    pub(super) flights: VecDeque<Flight>,
    /// Replies to the greeting that have not come.
    pub(super) greetings: u32,
    /// Greeting bytes that have not been sent: the last so many.
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

impl Connection {
    pub(super) fn new(socket: OwnedFd, node: usize, state: State, greeting: &Greeting) -> Self {
        Self {
            socket,
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
    pub(super) fn reopen(&mut self, socket: OwnedFd, greeting: &Greeting) {
        self.socket = socket;
        self.counter = ReplyCounter::default();
        self.greetings = greeting.replies;
        self.greeting_left = greeting.bytes.len();
        self.watches_write = true;
        self.is_connected = false;
    }

    /// Sends what is left, as far as the socket takes it.
    #[inline]
    pub(super) fn flush(&mut self, greeting: &Greeting) -> Result<Sent, Errno> {
        while self.greeting_left > 0 {
            let bytes = &greeting.bytes[greeting.bytes.len() - self.greeting_left..];
            match self.send(bytes)? {
                0 => return Ok(Sent::Part),
                count => self.greeting_left -= count,
            }
        }
        if self.sent < self.end {
            let count = self.send(&self.output[self.sent..self.end])?;
            self.sent += count;
            if self.sent < self.end {
                return Ok(Sent::Part);
            }
        }
        Ok(Sent::All)
    }

    /// The number of bytes that the socket took, which may be 0.
    #[inline]
    fn send(&self, bytes: &[u8]) -> Result<usize, Errno> {
        match send(&self.socket, bytes, SendFlags::NOSIGNAL) {
            Ok(count) => Ok(count),
            Err(Errno::AGAIN | Errno::INTR) => Ok(0),
            // The connection is not made yet.
            Err(Errno::NOTCONN) if !self.is_connected => Ok(0),
            Err(error) => Err(error),
        }
    }
}

/// One pipeline is one flight as long as its requests are of one class.
const FLIGHTS_EXPECTED: usize = 4;
