//! Work too long for one turn: done in slices between turns, while its client alone waits.

use std::any::Any;

use bobbin_resp::Reply;

use crate::engine::buffers::output::Arena;
use crate::engine::client::{Client, Replies};
use crate::engine::command::{Data, Registered, observe};
use crate::engine::server::Server;
use crate::engine::telemetry::slowlog::{self, Measured};
use crate::engine::telemetry::stats::WorkerStats;

/// What a command leaves to be done in slices.
pub trait Job: Any + Send {
    /// Works for about as long as `slice.more` says so; whether it is done. It may have blocked its
    /// client then: what ends that answers the command.
    fn step(&mut self, slice: &mut Slice<'_>) -> bool;
    /// The beginning of the command's reply, where that is in pieces.
    fn pieces(&mut self) -> Vec<Vec<u8>> {
        Vec::new()
    }
    /// Pieces of the reply that can be sent though the rest is still to be made. They are not among
    /// `pieces` then.
    fn ready_pieces(&mut self) -> Vec<Vec<u8>> {
        Vec::new()
    }
    /// Bytes of the reply so far, which wait for the rest.
    fn reply_bytes(&self) -> usize {
        0
    }
    /// Whether it is what the server is busy with: others wait for it.
    fn goes_on_while_busy(&self) -> bool {
        false
    }
    /// Whether it waits for something that takes its time, so that no thread should spin for it.
    fn is_parked(&self) -> bool {
        false
    }
    /// Its client is gone: whether it has to go on all the same.
    fn outlives_client(&mut self) -> bool {
        false
    }
    /// Ends it, as its client is gone.
    fn abandon(&mut self, _server: &'static Server, _data: &mut Data) {}
    /// Appends the command's reply, or the rest of it.
    fn reply(&mut self, reply: &mut Reply<'_>);
}

/// How long a script or a transaction runs until it goes on in slices, while other clients of its
/// worker wait; in microseconds.
pub const STAY_US: u64 = 500;
/// How long one of them then runs in a slice: as long as other jobs do.
pub const SLICE_US: u64 = 50;

/// What a job works with.
pub struct Slice<'a> {
    pub server: &'static Server,
    pub data: &'a mut Data,
    pub stats: &'a WorkerStats,
    /// Whose command it is.
    pub client: &'a mut Client,
    /// Whether there is time left.
    pub more: &'a mut dyn FnMut() -> bool,
}

/// What a command that left a job is measured by, until that is done: only then is it counted, like
/// any other command, with the time that all of its slices took.
pub struct Account {
    command: &'static Registered,
    /// As the command log shows them.
    words: Vec<Vec<u8>>,
    measured: Measured,
    /// CLIENT REPLY: nothing will be answered.
    quiet: bool,
}

impl Account {
    /// `measured`: what the command took so far.
    pub fn new(command: &'static Registered, args: &[&[u8]], measured: Measured) -> Self {
        Self { command, words: slowlog::shortened(command, args), measured, quiet: false }
    }

    /// Sets whether the client wants no reply.
    pub fn quiet(self, quiet: bool) -> Self {
        Self { quiet, ..self }
    }

    /// It counts when what its client waits for has come.
    pub fn suspend(self, client: &mut Client) {
        if self.quiet && client.replies == Replies::On {
            client.replies = Replies::Skip;
        }
    }

    pub fn add(&mut self, ticks: u64) {
        self.measured.ticks += ticks;
    }

    /// The part of the reply that can be sent before the rest is made. There is none if the client
    /// wants no reply.
    pub fn ready_pieces(&mut self, job: &mut dyn Job) -> Vec<Vec<u8>> {
        let pieces = if self.quiet { Vec::new() } else { job.ready_pieces() };
        self.measured.reply_bytes += pieces.iter().map(Vec::len).sum::<usize>();
        pieces
    }

    /// Bytes of the reply that were sent, or wait to be.
    pub const fn reply_bytes(&self) -> usize {
        self.measured.reply_bytes
    }

    /// Takes the reply of a job that is done, its beginning in pieces and its rest in `output`, and
    /// counts its command.
    pub fn close(
        mut self,
        job: &mut dyn Job,
        server: &Server,
        stats: &WorkerStats,
        client: &Client,
        output: &mut Arena,
    ) -> Vec<Vec<u8>> {
        let start = output.bytes.len();
        let mut pieces = Vec::new();
        if !self.quiet {
            pieces = job.pieces();
            let Arena { bytes, parts } = output;
            job.reply(&mut Reply::with_parts(bytes, parts, client.protocol));
        }
        let in_pieces: usize = pieces.iter().map(Vec::len).sum();
        self.measured.reply_bytes += in_pieces + output.len_since(start);
        let track = server.config.latency_tracking();
        stats.commands[self.command.id].executed(self.measured.ticks, track);
        if server.services.command_log.limits().exceeded_by(&self.measured) {
            observe::note_words(
                server,
                client,
                self.command,
                || self.words.clone(),
                &self.measured,
            );
        }
        pieces
    }
}
