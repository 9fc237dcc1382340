//! A connection: its socket, the input that is not executed yet, and the output to send.

pub mod large;

use std::os::fd::OwnedFd;
use std::sync::atomic::Ordering;

use bobbin_io::Token;
use bobbin_resp::{Parser, ProtocolError};

use self::large::LargeArguments;
use crate::engine::buffers::input::ConnectionInput;
use crate::engine::buffers::output::{Arena, ConnectionOutput, ReplyRange};
use crate::engine::client::{Client, describe};
use crate::engine::clients::ClientFlag;
use crate::engine::server::Server;
use crate::engine::server::unserved::Unserved;
use crate::system::tls::ServerTlsSession;

/// A client's connection. While it is idle its buffers are empty and not allocated.
pub struct Connection {
    pub socket: OwnedFd,
    pub token: Token,
    pub client: Client,
    pub parser: Parser,
    /// How many bytes are parsed at once. The other connections have their turn before the rest is
    /// parsed.
    pub parsed_max: u16,
    /// Bytes of commands that are incomplete or have to wait.
    pub input: ConnectionInput,
    /// Large arguments of the arriving command, which are not in `input`.
    pub large: LargeArguments,
    pub output: ConnectionOutput,
    pub reading: Reading,
    /// The TLS session between the socket and `input` and `output`, if there is one.
    pub tls: Option<Box<ServerTlsSession>>,
    /// The place of the connection's replies in the turn's arena.
    pub replies: Option<ReplyRange>,
    /// Whether the connection is on the list of those that the turn looks at before it ends.
    pub touched: bool,
    /// Whether the connection is on the list of those whose commands wait until replies are sent.
    pub deferred: bool,
    /// Whether the connection closes once its output is sent.
    pub closing: bool,
    /// Whether the connection is on its way to another worker.
    pub moving: bool,
    /// Set until the worker takes the connection over, and again while it works on commands of a
    /// peer that has gone.
    pub unserved: Option<Unserved>,
}

/// How the connection is read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Reading {
    /// The driver reads, and reports bytes as events.
    Data,
    /// The worker reads into `input` or a large argument's buffer, as a large argument is arriving.
    Direct,
    /// Nothing is read.
    Paused,
}

/// The most bytes of a connection that are parsed at once.
pub const PARSED_MAX: u16 = 32 * 1024;
/// The fewest, some ten commands.
const PARSED_MIN: u16 = 512;

impl Connection {
    pub fn new(socket: OwnedFd, token: Token, client: Client) -> Self {
        Self {
            socket,
            token,
            client,
            parser: Parser::default(),
            parsed_max: PARSED_MAX,
            input: ConnectionInput::default(),
            large: LargeArguments::default(),
            output: ConnectionOutput::default(),
            reading: Reading::Data,
            tls: None,
            replies: None,
            touched: false,
            deferred: false,
            closing: false,
            moving: false,
            unserved: None,
        }
    }

    /// Notes how many bytes of commands were executed, and how many were parsed in vain, because a
    /// command before them has to be waited for. A pipeline of such commands would be parsed to its
    /// end for each of them, so less is parsed at first.
    #[inline]
    pub const fn fit_parsing(&mut self, executed: usize, in_vain: usize) {
        self.parsed_max = fitting(self.parsed_max, executed, in_vain);
    }

    /// Adds replies of this turn behind the connection's earlier ones.
    pub fn add_replies(&mut self, arena: &Arena, added: ReplyRange) {
        match &mut self.replies {
            None => self.replies = Some(added),
            Some(range) if range.end == added.start => range.end = added.end,
            Some(range) => {
                // Replies of others lie between the two ranges, so the first range is copied to the
                // output.
                let range = std::mem::replace(range, added);
                self.output.push_replies(arena, range, 0);
            }
        }
    }

    /// Moves the replies of this turn to the output, so that more can be put behind them.
    #[inline]
    pub fn queue_replies(&mut self, arena: &Arena) {
        if let Some(range) = self.replies.take() {
            self.output.push_replies(arena, range, 0);
        }
    }

    /// Whether the client is a replica, whose output holds the stream.
    pub fn is_replica(&self) -> bool {
        self.client.feeder.is_some() && self.client.info.has(ClientFlag::REPLICA)
    }

    /// Whether the client must not be sent what it is about to get, as that would lie between bytes
    /// of a replica's stream. Then the client is disconnected.
    pub fn refuses_reply(&mut self, server: &Server) -> bool {
        let is_replica = self.is_replica();
        if is_replica {
            self.disconnect_replica(server, b"");
        }
        is_replica
    }

    /// Disconnects a replica that would get this reply.
    #[cold]
    pub fn disconnect_replica(&mut self, server: &Server, reply: &[u8]) {
        if !self.client.discard {
            let info = &self.client.info;
            let command = server.registry.all().get(info.command.load(Ordering::Relaxed));
            let name = command.map_or("<unknown>", |command| &command.full_name);
            if reply.starts_with(b"-") {
                // As in Valkey, the code is shown unless it is the usual one.
                let error = reply.strip_prefix(b"-ERR ").unwrap_or(reply);
                let error = error.split(|byte| *byte == b'\r').next().unwrap_or_default();
                log::warn!(
                    "== CRITICAL == This primary is sending an error to its replica: '{}' after \
                     processing the command '{name}'",
                    String::from_utf8_lossy(error)
                );
            }
            let line = describe::line_for_log(server, info, server.clock.now_ms());
            log::warn!("Replica generated a reply to command '{name}', disconnecting it: {line}");
        }
        self.client.discard = true;
        self.closing = true;
    }

    /// Logs, with `loglevel verbose`, that `rest`, which the client sent, does not begin with a
    /// command: so a broken client can be found.
    #[cold]
    pub fn log_protocol_error(&self, server: &Server, error: ProtocolError, rest: &[u8]) {
        if log::log_enabled!(log::Level::Debug) {
            let line = describe::line_for_log(server, &self.client.info, server.clock.now_ms());
            let shown = describe::input_for_log(server, rest);
            log::debug!("{error}, sent by client: {line} Query buffer: {shown}");
        }
    }

    /// Bytes of memory that wait for the peer.
    pub fn output_memory(&self) -> usize {
        let sealed = self.tls.as_ref().map_or(0, |tls| tls.wire().len());
        self.output.memory() + sealed + self.client.behind.len()
    }

    /// Whether another worker may take over the connection. A connection that listens must stay
    /// where messages are left for it, and one with a command at work must stay until the command
    /// is done. A connection whose peer sends no more gains nothing by moving.
    pub fn may_move(&self) -> bool {
        !self.moving
            && !self.client.ended
            && self.client.long_command.is_none()
            && !self.client.listens()
    }

    /// Whether received commands are at work or still wait for their turn. A command that waits for
    /// other clients does not count, nor do those behind it: it ends with its client.
    pub fn has_work_left(&self) -> bool {
        let client = &self.client;
        let is_at_work = || client.blocked.as_ref().is_some_and(|waiter| waiter.is_for_server());
        self.deferred || client.long_command.is_some() || client.is_postponed() || is_at_work()
    }

    /// Whether a client has replies that were not sent yet. What a replica, a monitor or a listener
    /// is told has no end, so that does not count.
    pub fn owes_replies(&self) -> bool {
        let is_told = self.client.feeder.is_some() || self.client.listens();
        let is_sealed = self.tls.as_ref().is_some_and(|tls| !tls.wire().is_empty());
        !is_told && (!self.output.is_empty() || self.replies.is_some() || is_sealed)
    }

    /// Whether further commands have to wait: a command is at work in slices or blocks, replies
    /// must be sent first, another worker takes over the connection, or it closes.
    pub fn is_busy(&self) -> bool {
        let client = &self.client;
        let waits =
            client.long_command.is_some() || client.is_postponed() || client.blocked.is_some();
        waits || self.deferred || self.closing || self.moving
    }
}

/// How many bytes to parse next: see [`Connection::fit_parsing`].
const fn fitting(parsed_max: u16, executed: usize, in_vain: usize) -> u16 {
    if in_vain > executed {
        PARSED_MIN
    } else if parsed_max < PARSED_MAX {
        2 * parsed_max
    } else {
        PARSED_MAX
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A pipeline of 20,000 commands of 32 bytes, of which one in `each` has to be waited for.
    #[test]
    fn no_pipeline_is_parsed_many_times() {
        const LEN: usize = 32;
        for each in [1, 2, 10, 50, 500, 5000] {
            let (mut parsed_max, mut next, mut parsed) = (PARSED_MAX, 0, 0);
            while next < 20_000 {
                let count = (parsed_max as usize / LEN).min(20_000 - next);
                let halt = count.min(each - next % each);
                parsed += count;
                next += halt;
                parsed_max = fitting(parsed_max, halt * LEN, (count - halt) * LEN);
            }
            let waits = 20_000 / each;
            assert!(parsed <= 4 * 20_000 + 16 * waits, "{each}: {parsed} were parsed");
        }
    }
}
