//! A connection: its socket, the input that is not executed yet, and the output to send.

pub mod large;

use std::os::fd::OwnedFd;

use bobbin_io::Token;
use bobbin_resp::Parser;

use self::large::LargeArguments;
use crate::engine::buffers::input::ConnectionInput;
use crate::engine::buffers::output::{Arena, ConnectionOutput, ReplyRange};
use crate::engine::client::Client;
use crate::system::tls::TlsSession;

/// A client's connection. Buffers are empty, and not allocated, whenever the connection is idle.
pub struct Connection {
    pub socket: OwnedFd,
    pub token: Token,
    pub client: Client,
    pub parser: Parser,
    /// Bytes of commands that are incomplete or have to wait.
    pub input: ConnectionInput,
    /// Arguments that are not in `input`.
    pub large: LargeArguments,
    pub output: ConnectionOutput,
    pub reading: Reading,
    /// What stands between the socket and `input` and `output`, if anything does.
    pub tls: Option<Box<TlsSession>>,
    /// Where in the turn's arena its replies are.
    pub replies: Option<ReplyRange>,
    /// Listed among the connections that the turn has to look at before it ends.
    pub touched: bool,
    /// Listed among those whose commands wait until replies have been sent.
    pub deferred: bool,
    /// To be closed once the output is sent.
    pub closing: bool,
    /// Nothing more comes from the peer: to be closed once what came is executed.
    pub ended: bool,
    /// On its way to another worker.
    pub moving: bool,
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

impl Connection {
    pub fn new(socket: OwnedFd, token: Token, client: Client) -> Self {
        Self {
            socket,
            token,
            client,
            parser: Parser::default(),
            input: ConnectionInput::default(),
            large: LargeArguments::default(),
            output: ConnectionOutput::default(),
            reading: Reading::Data,
            tls: None,
            replies: None,
            touched: false,
            deferred: false,
            closing: false,
            ended: false,
            moving: false,
        }
    }

    /// Has it send these replies of the turn's behind what it has.
    pub fn add_replies(&mut self, arena: &Arena, added: ReplyRange) {
        match &mut self.replies {
            None => self.replies = Some(added),
            Some(range) if range.end == added.start => range.end = added.end,
            Some(range) => {
                // Two ranges with others' replies between them: they meet in the pending bytes.
                let range = std::mem::replace(range, added);
                self.output.push_replies(arena, range, 0);
            }
        }
    }

    /// Bytes of memory that wait for the peer.
    pub fn output_memory(&self) -> usize {
        let sealed = self.tls.as_ref().map_or(0, |tls| tls.wire().len());
        self.output.memory() + sealed + self.client.behind.len()
    }

    /// Whether another worker may serve it from now on. One that listens stays where what it
    /// listens to is left for it, and one with a command at work until that is done. One that has
    /// ended has no more to do elsewhere than here.
    pub fn may_move(&self) -> bool {
        !self.moving && !self.ended && self.client.job.is_none() && !self.client.listens()
    }

    /// Whether commands that have come are not done though no client holds them up.
    pub fn has_work_left(&self) -> bool {
        self.deferred || self.client.job.is_some() || self.client.is_postponed()
    }

    /// Whether commands have to wait: one is at work in slices or blocks, there are replies to be
    /// sent first, another worker will see to them, or the end has come.
    pub fn is_busy(&self) -> bool {
        let client = &self.client;
        let waits = client.job.is_some() || client.is_postponed() || client.blocked.is_some();
        waits || self.deferred || self.closing || self.moving
    }
}
