//! The commands of a turn: parsed from the bytes of all connections, then executed.

use std::sync::atomic::Ordering;

use bobbin_resp::{Limits, Parser};

use super::batch::ParsedInput;
use super::executor::Executor;
use super::limits::ReplyLimit;
use super::{REPLIES_MAX, Worker, limits, touch};
use crate::base::clock::ticks;
use crate::engine::buffers::input::ConnectionInput;
use crate::engine::buffers::output::ReplyRange;
use crate::engine::client::connection::Reading;
use crate::engine::client::connection::large::OutsideArgument;

/// If at least this many bytes of an argument are missing, they are received straight into the
/// connection's own buffer.
const DIRECT_MIN: usize = 64 * 1024;

/// The commands that one connection's bytes held.
pub(super) struct CommandSpan {
    pub(super) slot: u32,
    pub(super) found: ParsedInput,
    /// The bytes lie in the connection's own buffer; otherwise in the driver's memory.
    pub(super) own: bool,
    pub(super) start: *const u8,
    pub(super) len: usize,
    /// Arguments of the first command that are not in those bytes.
    pub(super) large: Vec<OutsideArgument>,
}

impl Worker {
    /// Adds the commands in a connection's own buffer to the batch, unless the client has to wait.
    pub(super) fn parse_own(&mut self, slot: u32) {
        let Some(connection) = self.connections.at(slot) else { return };
        let nothing = connection.input.is_empty() || connection.large.is_arriving();
        if connection.is_busy() || nothing {
            return;
        }
        let input = connection.input.as_slice();
        let (start, len) = (input.as_ptr(), input.len());
        self.parse(slot, start, len, true);
    }

    /// Adds the commands in these bytes to the batch. `own`: the bytes lie in the connection's own
    /// buffer, otherwise in the driver's memory.
    pub(super) fn parse(&mut self, slot: u32, start: *const u8, len: usize, own: bool) {
        let Some(connection) = self.connections.at(slot) else { return };
        let bulk_len_max = self.server.config.proto_max_bulk_len() as usize;
        let limits = if limits::is_known(self.server, connection) {
            Limits::new(bulk_len_max)
        } else {
            Limits::unauthenticated(bulk_len_max)
        };
        // SAFETY: the bytes are the driver's or the connection's own. The driver keeps its bytes
        // until the next wait. The connection's bytes change only in `settle`, after the batch was
        // cleared. A large argument does not change while anything shares it, and the span shares
        // it until `settle`.
        let found = unsafe {
            let input = std::slice::from_raw_parts(start, len);
            let (parser, outside) = (&mut connection.parser, connection.large.complete());
            let most = connection.parsed_max.into();
            self.batch.parse(input, most, parser, &limits, self.server, outside)
        };
        touch(&mut self.slots.touched, connection);
        let complete = !found.commands.is_empty();
        let large = if complete { connection.large.take() } else { Vec::new() };
        self.spans.push(CommandSpan { slot, found, own, start, len, large });
    }

    /// Executes the batch. Then stores the rest of each connection's bytes in its own buffer.
    pub(super) fn execute(&mut self) {
        if self.spans.is_empty() {
            return;
        }
        let mut spans = std::mem::take(&mut self.spans);
        let mut clock = ticks();
        for span in &mut spans {
            self.execute_span(span, &mut clock);
        }
        self.batch.clear();
        for span in spans.drain(..) {
            self.settle(span);
        }
        self.spans = spans;
    }

    /// Executes the commands of one connection, and takes note of what became of them.
    fn execute_span(&mut self, span: &mut CommandSpan, clock: &mut u64) {
        let Some(connection) = self.connections.at(span.slot) else { return };
        if connection.client.info.kill.load(Ordering::Relaxed) {
            return;
        }
        // An incomplete command may go on arriving: parts of a large argument are stored elsewhere.
        if !span.found.commands.is_empty() && self.kept_back.is_too_much(connection) {
            // The connection continues once the disk has the changes that its replies tell of.
            connection.client.postpone(true);
            connection.parser = Parser::default();
            span.found.halt_at(0);
            self.postponed.for_disk.push(span.slot);
            return;
        }
        self.handle.watch.serve(connection.client.info.id);
        self.relief.note_active(span.slot);
        let (start, now_ms) = (self.arena.bytes.len(), self.data.conditions.now_ms);
        // The reply of the command that makes a replica of the client comes before the stream.
        let is_replica = connection.is_replica();
        let reply_limit = ReplyLimit::new(self.server, connection, &self.arena);
        if !span.large.is_empty() {
            self.data.offer(span.large.iter().map(|outside| &outside.bytes));
        }
        let mut executor = Executor {
            server: self.server,
            aof: self.aof,
            data: &mut self.data,
            stats: &self.handle.stats,
            arena: &mut self.arena,
            replies_max: REPLIES_MAX,
            clock,
        };
        let done = executor.run(&mut connection.client, &self.batch, &span.found, &reply_limit);
        if done.overflowed {
            limits::drop_replies(self.server, &self.handle, connection, now_ms);
            self.arena.truncate(start);
        }
        if connection.client.is_postponed() {
            self.postponed.add(self.server, span.slot, &connection.client);
        }
        if done.deferred || span.found.is_cut && !done.halted {
            connection.deferred = true;
            self.slots.deferred.push_back(span.slot);
        }
        let in_vain = if done.halted { span.found.consumed - done.end } else { 0 };
        connection.fit_parsing(done.end, in_vain);
        if done.halted {
            // The commands that were not executed are parsed again later.
            connection.parser = Parser::default();
            span.found.halt_at(done.end);
        }
        if !span.large.is_empty() {
            self.data.offer(std::iter::empty());
        }
        if let Some(error) = span.found.error {
            connection.log_protocol_error(self.server, error, span.found.rest());
            error.append_reply(&mut self.arena.bytes);
            connection.client.close();
        }
        connection.client.info.commands.add(done.answered);
        self.handle.stats.totals.commands.add(done.executed);
        if connection.client.long_command.is_some() {
            self.slots.jobs.push(span.slot);
        }
        connection.closing |= connection.client.is_closing();
        if is_replica && self.arena.bytes.len() > start {
            let reply = &self.arena.bytes[start..];
            if reply.starts_with(b"-") {
                self.handle.stats.totals.unexpected_error_replies.add(1);
            }
            connection.disconnect_replica(self.server, reply);
        }
        if connection.client.discard {
            self.arena.truncate(start);
        }
        let end = self.arena.bytes.len();
        if end > start {
            let range = ReplyRange { start, end };
            connection.add_replies(&self.arena, range);
            if !done.tells {
                self.kept_back.note_telling_nothing(span.slot, range);
            }
        }
        if connection.client.blocked.is_some() {
            self.note_deadline(span.slot);
        }
    }

    /// Keeps the bytes that were not executed. The batch has been cleared before.
    fn settle(&mut self, span: CommandSpan) {
        let Some(connection) = self.connections.at(span.slot) else { return };
        let consumed = span.found.consumed;
        if connection.closing {
            connection.input = ConnectionInput::default();
            return;
        }
        if consumed == 0 && !span.large.is_empty() {
            connection.put_back(&span.large);
        }
        if span.own {
            connection.input.take(consumed);
        } else if consumed < span.len {
            // SAFETY: the bytes are the driver's, and last until the next wait.
            let rest = unsafe {
                std::slice::from_raw_parts(span.start.add(consumed), span.len - consumed)
            };
            connection.input.push(rest);
        }
        let mut wanted = if connection.is_busy() { 0 } else { span.found.wanted };
        if wanted > 0 && connection.parser.large().is_some() {
            connection.begin_large();
            wanted = connection.large.wanted();
            if wanted > 0 {
                self.slots.arriving.insert(span.slot);
            }
        }
        // A connection that sent one large argument often sends more, and each switch between the
        // two ways of reading costs something.
        let large = !span.large.is_empty() || connection.large.memory() > 0;
        let stay = large && connection.reading == Reading::Direct;
        let direct = (stay || wanted >= DIRECT_MIN) && connection.tls.is_none();
        self.read_by(span.slot, if direct { Reading::Direct } else { Reading::Data });
        self.fit_reading(span.slot);
        self.check_input(span.slot);
    }
}
