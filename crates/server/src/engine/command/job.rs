//! Jobs: work that is too long for one turn. It is done in slices between turns, while only its own
//! client waits.

use std::any::Any;

use bobbin_resp::Reply;

use crate::base::clock::ticks;
use crate::engine::buffers::output::Arena;
use crate::engine::client::{Client, ReplyMode};
use crate::engine::command::{Call, Data, Registered, counting};
use crate::engine::lazyfree;
use crate::engine::server::Server;
use crate::engine::telemetry::slowlog::{self, Measured};
use crate::engine::telemetry::stats::WorkerStats;

/// The rest of a command, to be done in slices.
pub trait Job: Any + Send {
    /// Works until `slice.more` is false; returns whether the work is done. Then it may have
    /// blocked its client, and the end of that wait answers the command.
    fn step(&mut self, slice: &mut Slice<'_>) -> bool;
    /// Whether the command's change is yet to be made. Otherwise the command made it, if any,
    /// before it left the job, and the job only frees or replies.
    fn changes_later(&self) -> bool;
    /// The beginning of the command's reply, if the reply is in pieces.
    fn pieces(&mut self) -> Vec<Vec<u8>> {
        Vec::new()
    }
    /// Pieces of the reply that can be sent before the rest is made. `pieces` does not return them
    /// again.
    fn ready_pieces(&mut self) -> Vec<Vec<u8>> {
        Vec::new()
    }
    /// Bytes of the reply so far that wait for the rest.
    fn reply_bytes(&self) -> usize {
        0
    }
    /// Whether the job goes on while the server is busy with a script: others wait for this job.
    fn goes_on_while_busy(&self) -> bool {
        false
    }
    /// Whether the job waits for something slow, so that its worker should not spin for it.
    fn is_parked(&self) -> bool {
        false
    }
    /// Whether the job keeps the locks and effects of its unit while it waits. Otherwise a
    /// transaction keeps them for its command.
    fn keeps_unit(&self) -> bool {
        false
    }
    /// Whether the job has to go on after its client has gone.
    fn outlives_client(&mut self) -> bool {
        false
    }
    /// Ends the job, as its client has gone.
    fn abandon(&mut self, _server: &'static Server, _data: &mut Data) {}
    /// Appends the command's reply, or the rest of it.
    fn reply(&mut self, reply: &mut Reply<'_>);
}

/// How long a script or a transaction may run before it goes on in slices, while the other clients
/// of its worker wait; in microseconds.
pub const STAY_US: u64 = 500;
/// How long a slice of a script or a transaction is, in microseconds; as long as that of other
/// jobs.
pub const SLICE_US: u64 = 50;

/// What a job works with.
pub struct Slice<'a> {
    pub server: &'static Server,
    pub data: &'a mut Data,
    pub stats: &'a WorkerStats,
    /// The client of the job's command.
    pub client: &'a mut Client,
    /// Whether there is time left.
    pub more: &'a mut dyn FnMut() -> bool,
}

impl Slice<'_> {
    /// The call of a command that runs within the slice, alone and without a plan of its keys.
    pub fn call<'a>(
        &'a mut self,
        command: &'static Registered,
        args: &'a [&'a [u8]],
        reply: Reply<'a>,
    ) -> Call<'a> {
        Call {
            server: self.server,
            command,
            args,
            wire: &[],
            client: self.client,
            data: self.data,
            stats: self.stats,
            reply,
            hashes: &[],
            in_transaction: false,
            may_leave_job: true,
        }
    }
}

/// A command that has left a job. Like any command it is counted when it is done, with the time of
/// all its slices.
pub struct LongCommand {
    pub job: Box<dyn Job>,
    pub command: &'static Registered,
    /// The words of the command, as the command log shows them.
    words: Vec<Vec<u8>>,
    measured: Measured,
    /// Whether the client wants no reply (CLIENT REPLY).
    is_quiet: bool,
}

impl LongCommand {
    pub fn new(job: Box<dyn Job>, command: &'static Registered, args: &[&[u8]]) -> Self {
        let words = slowlog::shortened(command, args);
        Self { job, command, words, measured: Measured::default(), is_quiet: false }
    }

    /// Sets what the command had taken when it left the job.
    pub const fn begin(&mut self, measured: Measured) {
        self.measured = measured;
    }

    /// Notes that the client wants no reply.
    pub const fn silence(&mut self) {
        self.is_quiet = true;
    }

    /// Works on for a slice; returns whether the job is done.
    pub fn step(&mut self, slice: &mut Slice<'_>) -> bool {
        let started = ticks();
        let is_done = self.job.step(slice);
        self.measured.ticks += ticks() - started;
        is_done
    }

    /// The part of the reply that can be sent before the rest is made. There is none if the client
    /// wants no reply.
    pub fn ready_pieces(&mut self) -> Vec<Vec<u8>> {
        let pieces = if self.is_quiet { Vec::new() } else { self.job.ready_pieces() };
        self.measured.reply_bytes += pieces.iter().map(Vec::len).sum::<usize>();
        pieces
    }

    /// Bytes of the reply that were sent or wait to be sent.
    pub const fn sent_bytes(&self) -> usize {
        self.measured.reply_bytes
    }

    /// Takes the reply of a command that is done, and counts the command. Returns the beginning of
    /// the reply in pieces, and appends the rest to `output`.
    pub fn close(
        mut self,
        server: &Server,
        stats: &WorkerStats,
        client: &Client,
        output: &mut Arena,
    ) -> Vec<Vec<u8>> {
        let start = output.bytes.len();
        let mut pieces = Vec::new();
        if !self.is_quiet {
            pieces = self.job.pieces();
            let Arena { bytes, parts } = output;
            self.job.reply(&mut Reply::with_parts(bytes, parts, client.protocol));
        }
        let in_pieces: usize = pieces.iter().map(Vec::len).sum();
        self.measured.reply_bytes += in_pieces + output.len_since(start);
        let words = || self.words.clone();
        counting::ended_later(server, stats, client, self.command, words, &self.measured);
        lazyfree::free_pins(self.job);
        pieces
    }

    /// Ends a command whose job has blocked its client: the command is counted when the wait ends.
    /// If the client wants no reply, the answer at that end is suppressed too.
    pub fn wait(self, client: &mut Client) {
        if let Some(waiter) = &client.blocked {
            waiter.note_request(self.measured.request_bytes);
        }
        if self.is_quiet && client.reply_mode == ReplyMode::On {
            client.reply_mode = ReplyMode::Skip;
        }
        lazyfree::free_pins(self.job);
    }

    /// Stops the command. The rest of its work is not done.
    pub fn abandon(mut self, server: &'static Server, data: &mut Data) {
        self.job.abandon(server, data);
        lazyfree::free_pins(self.job);
    }
}
