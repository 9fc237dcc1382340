//! Runs a command whose shards are held.

use super::monitor;
use crate::engine::client::attempts::ScriptAttempts;
use crate::engine::command::{Call, Failure, Flags, counting};
use crate::engine::server::Switch;
use crate::engine::tracking;

/// A command was postponed. It has done nothing, and was not answered.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CommandPostponed;

impl From<CommandPostponed> for Failure {
    fn from(_: CommandPostponed) -> Self {
        Self::Postponed
    }
}

/// Runs a command of a transaction or a script, or one that is replayed. All that it needs is held,
/// so it is not postponed.
#[inline(always)]
pub fn run_in_midst(call: &mut Call<'_>) {
    debug_assert!(call.in_transaction);
    let outcome = run(call);
    debug_assert_eq!(outcome, Ok(()), "{}", call.command.full_name);
}

/// Runs the handler of a call whose shards are held. A failure is answered and counted.
#[inline(always)]
pub fn run(call: &mut Call<'_>) -> Result<(), CommandPostponed> {
    call.data.follow_client(call.client);
    call.client.note_command(call.command);
    let start = call.reply.output().len();
    let dirty = call.data.counters.dirty;
    call.data.unit.begin_command();
    let outcome = (call.command.handler)(call);
    if let Err(failure) = outcome {
        call.reply.truncate(start);
        if failure == Failure::Postponed {
            return Err(CommandPostponed);
        }
        let text = failure.text().as_bytes();
        call.reply.error(text);
        counting::failed(call.server, call.stats, call.client, call.command, text);
        show_unstarted(call);
    }
    if call.data.is_logged() {
        log_effects(call, call.data.counters.dirty != dirty);
    }
    if call.server.switches.has(Switch::ONLOOKERS) {
        show_onlookers(call);
    }
    if call.data.unit.has_done_something() && !call.in_transaction {
        call.end_unit();
    }
    Ok(())
}

/// Shows monitors a script's command that failed before the script began. One that began is shown
/// before the commands that it calls.
#[cold]
fn show_unstarted(call: &mut Call<'_>) {
    if !call.command.has(Flags::RUNS_SCRIPT) {
        return;
    }
    if call.server.switches.has(Switch::MONITORED) {
        monitor::show(call);
    }
    call.client.attempts = ScriptAttempts::default();
}

/// Shows the command to monitors, remembers which keys a tracking client read, and notes the sizes
/// of keys.
#[inline(never)]
fn show_onlookers(call: &mut Call<'_>) {
    // A paused transaction is shown when it ends, so that its commands are shown before it.
    let is_in_midst =
        call.command.has(Flags::RUNS_TRANSACTION) && call.client.long_command.is_some();
    if call.server.switches.has(Switch::MONITORED) && !is_in_midst {
        monitor::feed(call);
        // A transaction or a script waits when it has ended.
        if !call.in_transaction && call.client.caller == 0 {
            call.wait_for_listeners();
        }
    }
    if call.client.tracking.is_some() {
        tracking::remember(call);
    }
    if call.server.switches.has(Switch::SIZED) {
        look_at_sizes(call);
    }
}

/// Logs the effects of the command.
#[inline(never)]
fn log_effects(call: &mut Call<'_>, changed: bool) {
    // The commands that EXEC ran have logged their own effects.
    let changed = changed && !call.command.has(Flags::RUNS_TRANSACTION);
    if let Some(number) = call.data.log_command(call.args, call.wire, changed, !call.in_transaction)
    {
        call.client.last_record = number;
    }
    if call.data.recorder.take_far_ahead() {
        call.server.put_off_writers_for_log();
    }
}

/// Notes the sizes of the command's keys for HOTKEYS, if anybody asks for them. It runs after the
/// handler, with the keys' shards held. Keys whose shards are not held are skipped.
#[cold]
fn look_at_sizes(call: &mut Call<'_>) {
    let server = call.server;
    // A command that a script calls counts as a part of the script's own command.
    if call.client.caller != 0 {
        return;
    }
    let is_active = server.services.hot_keys.note_sizes(|note| {
        call.each_key(|call, key| {
            if call.data.holds(key.hash.shard()) {
                let size = call.data.peek(key).map_or(0, |entry| entry.memory() as u64);
                note(key.bytes, size);
            }
        });
    });
    if !is_active {
        server.switches.set(Switch::SIZED, false);
    }
}
