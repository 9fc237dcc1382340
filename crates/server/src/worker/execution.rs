//! Running the parsed commands of one connection, one after the other, with their times measured.

use std::ops::Range;

use super::batch::Batch;
use crate::client::Client;
use crate::clock::ticks;
use crate::command::call::{Context, Executed, Request, execute};
use crate::slowlog::{self, Measured};

/// What became of a connection's commands.
pub(super) struct Execution {
    /// Commands that ran.
    pub executed: u64,
    /// Commands that are over: they ran, were queued or refused.
    pub answered: u64,
    /// Where the first command that is not over begins in the connection's bytes; when `halted`.
    pub end: usize,
    /// Commands are left, to be parsed again when their time comes.
    pub halted: bool,
    /// The first command that is left waits for the end of a pause.
    pub postponed: bool,
}

/// Executes these commands of the batch, and appends their replies to `output`. `clock` is the tick at
/// which the command before was done.
#[inline(always)]
pub(super) fn execute_commands(
    context: &mut Context<'_>,
    client: &mut Client,
    batch: &Batch,
    commands: Range<usize>,
    output: &mut Vec<u8>,
    clock: &mut u64,
) -> Execution {
    let server = context.server;
    let track = server.config.latency_tracking();
    let limits = server.services.command_log.limits();
    let mut done = Execution { executed: 0, answered: 0, end: 0, halted: false, postponed: false };
    for index in commands {
        batch.approach(index, &server.keyspace, client.database);
        let parsed = batch.command(index);
        let request = Request {
            command: parsed.command,
            args: batch.args(parsed),
            first_hash: parsed.first_hash,
        };
        let reply_start = output.len();
        let outcome = execute(context, client, request, output);
        let now = ticks();
        if let Executed::Ran(command) = outcome {
            done.executed += 1;
            let measured = Measured {
                ticks: now - *clock,
                request_bytes: parsed.end - done.end,
                reply_bytes: output.len() - reply_start,
            };
            context.stats.commands[command.id].executed(measured.ticks, track);
            if limits.exceeded_by(&measured) {
                slowlog::note(server, client, command, request.args, &measured);
            }
        }
        *clock = now;
        if outcome == Executed::Postponed {
            done.postponed = true;
        } else {
            (done.answered, done.end) = (done.answered + 1, parsed.end);
        }
        if client.close || client.job.is_some() || client.postponed {
            done.halted = true;
            break;
        }
    }
    done
}
