//! Running the parsed commands of one connection, one after the other, with their times measured.

use super::batch::{Batch, ParsedInput};
use super::limits::ReplyLimit;
use crate::base::clock::ticks;
use crate::engine::buffers::output::Arena;
use crate::engine::client::Client;
use crate::engine::command::call::{Context, Request};
use crate::engine::command::job::Account;
use crate::engine::command::{Data, Registered, observe};
use crate::engine::execution::execute::{Executed, execute};
use crate::engine::server::Server;
use crate::engine::telemetry::slowlog::Measured;
use crate::engine::telemetry::stats::WorkerStats;
use crate::persistence::aof::{Aof, unkept};

/// What a worker executes commands with.
pub(crate) struct Executor<'a> {
    pub server: &'static Server,
    pub aof: &'static Aof,
    pub data: &'a mut Data,
    pub stats: &'a WorkerStats,
    /// Where replies are appended.
    pub arena: &'a mut Arena,
    /// Once they are so long, in bytes, the rest has to wait.
    pub replies_max: usize,
    /// The tick at which the command before was done.
    pub clock: &'a mut u64,
}

/// What became of a connection's commands.
#[derive(Default)]
pub(crate) struct Execution {
    /// Commands that ran.
    pub executed: u64,
    /// Those of them that wait for nothing.
    pub answered: u64,
    /// Where the first command that is not over begins in the connection's bytes; when `halted`.
    pub end: usize,
    /// Commands are left, to be parsed again when their time comes.
    pub halted: bool,
    /// The commands that are left wait only until replies have been sent.
    pub deferred: bool,
    /// The replies were more than the client may have.
    pub overflowed: bool,
    /// The replies may tell of what is not on disk. Always set while replies do not wait for it.
    pub tells: bool,
}

impl Executor<'_> {
    /// Executes the commands of the batch that were found in a connection's bytes.
    ///
    /// It is one long function, as parts in functions of their own cost each command two
    /// instructions more.
    #[inline(always)]
    pub fn run(
        &mut self,
        client: &mut Client,
        batch: &Batch,
        found: &ParsedInput,
        reply_limit: &ReplyLimit,
    ) -> Execution {
        let server = self.server;
        let start = self.arena.bytes.len();
        client.reply_bytes_max = reply_limit.bytes();
        let track = server.config.latency_tracking();
        let limits = server.services.command_log.limits();
        let mut done = Execution { tells: !self.aof.keeps_back_replies(), ..Execution::default() };
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
            if now >= self.data.turn.current_until {
                // What waits behind long commands is checked by the time of then.
                self.data.turn.waited = true;
            }
            if let Executed::Ran(command) = outcome {
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
                if client.blocked.is_some() || client.job.is_some() {
                    self.note_unfinished(client, command, request.args, measured);
                    done.end = parsed.end;
                    done.halted = true;
                    *self.clock = now;
                    break;
                }
                self.stats.commands[command.id].executed(measured.ticks, track);
                if limits.exceeded_by(&measured) {
                    observe::note(server, client, command, request.args, &measured);
                }
            }
            if client.subscriptions.is_some() {
                self.append_own(client);
            }
            *self.clock = now;
            if outcome != Executed::Postponed {
                done.end = parsed.end;
            }
            done.overflowed = reply_limit.is_exceeded_by(self.arena, start);
            if done.overflowed || client.halts.is_any() {
                done.overflowed |= client.is_overflowed();
                done.deferred = client.halts.take_rights_alone() && !done.overflowed;
                done.halted = true;
                break;
            }
        }
        done
    }

    /// A command blocks its client, or goes on as a job: it counts when that is over.
    #[cold]
    fn note_unfinished(
        &mut self,
        client: &mut Client,
        command: &'static Registered,
        args: &[&[u8]],
        measured: Measured,
    ) {
        if client.job.is_some() {
            open_account(client, command, args, measured);
        }
        if client.subscriptions.is_some() {
            self.append_own(client);
        }
    }

    /// Appends what a client was sent while its command was at work: that follows the reply, also
    /// if a job is still to make it.
    #[cold]
    fn append_own(&mut self, client: &mut Client) {
        if let Some(subscribers) = &mut self.data.audience.subscribers {
            let own = subscribers.own(client);
            match client.job {
                Some(_) => client.behind.append(own),
                None => self.arena.bytes.append(own),
            }
        }
    }
}

/// A command left a job.
#[cold]
fn open_account(
    client: &mut Client,
    command: &'static Registered,
    args: &[&[u8]],
    measured: Measured,
) {
    let quiet = std::mem::take(&mut client.job_is_quiet);
    client.account = Some(Box::new(Account::new(command, args, measured).quiet(quiet)));
}
