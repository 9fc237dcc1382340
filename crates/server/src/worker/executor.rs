//! Runs the parsed commands of one connection one after the other, and measures each.

use super::batch::{Batch, ParsedInput};
use super::limits::ReplyLimit;
use crate::base::clock::ticks;
use crate::engine::buffers::output::Arena;
use crate::engine::client::Client;
use crate::engine::command::call::{Context, Request};
use crate::engine::command::{Data, Flags, counting};
use crate::engine::execution::execute::{RequestOutcome, execute};
use crate::engine::server::Server;
use crate::engine::telemetry::slowlog::Measured;
use crate::engine::telemetry::stats::WorkerStats;
use crate::persistence::aof::{Aof, unkept};

/// What a worker needs to execute commands.
pub(crate) struct Executor<'a> {
    pub server: &'static Server,
    pub aof: &'static Aof,
    pub data: &'a mut Data,
    pub stats: &'a WorkerStats,
    /// The replies are appended here.
    pub arena: &'a mut Arena,
    /// Once the arena has this many bytes, the remaining commands have to wait.
    pub replies_max: usize,
    /// The tick at which the previous command ended.
    pub clock: &'a mut u64,
}

/// What became of a connection's commands.
#[derive(Default)]
pub(crate) struct SpanOutcome {
    /// Commands that ran.
    pub executed: u64,
    /// Commands that ran and did not block their client.
    pub answered: u64,
    /// Where the first command that is not done begins in the connection's bytes. Valid when
    /// `halted`.
    pub end: usize,
    /// Some commands were not executed. They are parsed again when their time comes.
    pub halted: bool,
    /// The remaining commands wait only until replies have been sent.
    pub deferred: bool,
    /// The replies exceed the client's output limit.
    pub overflowed: bool,
    /// The replies may tell of changes that are not on disk. Always set while replies do not wait
    /// for the disk.
    pub tells: bool,
}

impl Executor<'_> {
    /// Executes the commands of the batch that were found in a connection's bytes.
    ///
    /// This is one long function because splitting it costs each command two more instructions.
    #[inline(always)]
    pub fn run(
        &mut self,
        client: &mut Client,
        batch: &Batch,
        found: &ParsedInput,
        reply_limit: &ReplyLimit,
    ) -> SpanOutcome {
        let server = self.server;
        let start = self.arena.bytes.len();
        client.reply_bytes_max = reply_limit.bytes();
        let track = server.config.latency_tracking();
        let keeps_back = self.aof.keeps_back_replies();
        let mut done = SpanOutcome { tells: !keeps_back, ..SpanOutcome::default() };
        for index in found.commands.clone() {
            if self.arena.bytes.len() >= self.replies_max {
                (done.deferred, done.halted) = (true, true);
                break;
            }
            batch.approach(index, &server.keyspace, client.database);
            let parsed = batch.command(index);
            let logs = self.data.is_logged();
            let request = Request {
                command: parsed.command,
                args: batch.args(parsed),
                wire: if logs { batch.wire(found, parsed) } else { &[] },
                first_hash: parsed.first_hash,
            };
            let reply_start = self.arena.bytes.len();
            let mut context = Context {
                server,
                data: self.data,
                stats: self.stats,
                parts: &mut self.arena.parts,
            };
            let outcome = execute(&mut context, client, request, &mut self.arena.bytes);
            let now = ticks();
            if now >= self.data.conditions.current_until {
                // A long time has passed: the commands behind this one are checked at the new time.
                self.data.conditions.waited = true;
            }
            if let RequestOutcome::Ran(command) = outcome {
                if !done.tells {
                    done.tells =
                        unkept::may_tell_of_unkept(server, self.aof, client, command, request.args);
                }
                done.executed += 1;
                done.answered += u64::from(client.blocked.is_none());
                let measured = Measured {
                    ticks: now - *self.clock,
                    request_bytes: parsed.end - done.end + batch.outside_len(index),
                    reply_bytes: self.arena.len_since(reply_start),
                };
                if client.blocked.is_some() || client.long_command.is_some() {
                    self.note_unfinished(client, measured);
                    done.end = parsed.end;
                    done.halted = true;
                    *self.clock = now;
                    break;
                }
                let args = request.args;
                counting::ended(server, self.stats, client, command, args, &measured, track);
            }
            if client.subscriptions.is_some() {
                self.append_own(client);
            }
            *self.clock = now;
            if outcome != RequestOutcome::Postponed {
                done.end = parsed.end;
            }
            done.overflowed = reply_limit.is_exceeded_by(self.arena, start);
            if done.overflowed || client.halts.is_any() {
                done.overflowed |= client.is_overflowed();
                done.deferred = client.halts.take_anew_alone() && !done.overflowed;
                done.halted = true;
                // If the last command was the one that made replies wait for the disk, nothing was
                // promised of these. A transaction may have written behind it.
                let is_alone =
                    parsed.command.is_some_and(|command| !command.has(Flags::RUNS_TRANSACTION));
                done.tells &= keeps_back || !is_alone || !self.aof.keeps_back_replies();
                break;
            }
        }
        done
    }

    /// Notes that a command has blocked its client or continues as a job. The command is counted
    /// when it ends.
    #[cold]
    fn note_unfinished(&mut self, client: &mut Client, measured: Measured) {
        if let Some(long) = &mut client.long_command {
            long.begin(measured);
        }
        if let Some(waiter) = &client.blocked {
            waiter.note_request(measured.request_bytes);
        }
        if client.subscriptions.is_some() {
            self.append_own(client);
        }
    }

    /// Appends the messages that a client got while its command was at work. They come after the
    /// reply, even if a job has still to make that reply.
    #[cold]
    fn append_own(&mut self, client: &mut Client) {
        if let Some(subscribers) = &mut self.data.audience.subscribers {
            let own = subscribers.own(client);
            match client.long_command {
                Some(_) => client.behind.append(own),
                None => self.arena.bytes.append(own),
            }
        }
    }
}
