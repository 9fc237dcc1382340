//! Counts commands that have ended, and errors. Commands that exceeded a limit are also noted in
//! the command log, the latency monitor and HOTKEYS.
//!
//! A script that begins anew repeats calls that have been counted, which are not counted again.

use super::{Flags, Registered};
use crate::base::clock::system_ms;
use crate::engine::client::Client;
use crate::engine::server::{Server, Switch};
use crate::engine::telemetry::latency::LatencyEvent;
use crate::engine::telemetry::slowlog::{Measured, SlowlogEntry, cut, shortened};
use crate::engine::telemetry::stats::WorkerStats;

/// Counts a command that ran and ended at once. Its caller has seen to it that the client does not
/// repeat it. `track` says whether its time goes into the histogram.
#[inline(always)]
pub fn ended(
    server: &Server,
    stats: &WorkerStats,
    client: &Client,
    command: &Registered,
    args: &[&[u8]],
    measured: &Measured,
    track: bool,
) {
    stats.commands[command.id].executed(measured.ticks, track);
    // The limits are read now, so that CONFIG SET is measured by those that it set.
    if server.services.command_log.limits().exceeded_by(measured) {
        note(server, client, command, args, measured);
    }
}

/// Counts a command that ran and ended later: as a job, or when its client was unblocked. `words`
/// are its words as the command log keeps them.
pub fn ended_later(
    server: &Server,
    stats: &WorkerStats,
    client: &Client,
    command: &Registered,
    words: impl Fn() -> Vec<Vec<u8>>,
    measured: &Measured,
) {
    if client.is_repeating() {
        return;
    }
    stats.commands[command.id].executed(measured.ticks, server.config.latency_tracking());
    if server.services.command_log.limits().exceeded_by(measured) {
        note_words(server, client, command, words, measured);
    }
}

/// Counts that a command ran and was answered with this error.
#[cold]
pub fn failed(
    server: &Server,
    stats: &WorkerStats,
    client: &Client,
    command: &Registered,
    text: &[u8],
) {
    if !client.is_repeating() {
        stats.commands[command.id].failed.add(1);
        error(server, stats, text);
    }
}

/// Counts a request that was answered with this error before it ran. `command`: what it names, if
/// that is a command.
#[cold]
pub fn rejected(
    server: &Server,
    stats: &WorkerStats,
    client: &Client,
    command: Option<&Registered>,
    text: &[u8],
) {
    if !client.is_repeating() {
        if let Some(command) = command {
            stats.commands[command.id].rejected.add(1);
        }
        error(server, stats, text);
    }
}

/// Counts one of the server's own errors that was answered.
#[cold]
pub fn error(server: &Server, stats: &WorkerStats, text: &[u8]) {
    stats.totals.error_replies.add(1);
    server.errors.count(text);
}

/// Counts an error that a script made.
#[cold]
pub fn script_error(server: &Server, stats: &WorkerStats, text: &[u8]) {
    stats.totals.error_replies.add(1);
    server.errors.count_custom(text);
}

/// Notes a command that exceeded a limit.
#[cold]
fn note(
    server: &Server,
    client: &Client,
    command: &Registered,
    args: &[&[u8]],
    measured: &Measured,
) {
    if is_loaded(server, client) {
        return;
    }
    // A command that a script calls counts as a part of the script's own command.
    let is_script = client.caller != 0;
    if server.services.hot_keys.is_active() && !is_script {
        let ns = (server.clock.us(measured.ticks) * 1e3) as u64;
        if !server.services.hot_keys.note(command, args, measured, ns) {
            // The session of HOTKEYS has ended, so commands are no longer noted for it.
            server.services.follow(&server.config, &server.clock);
        }
    }
    note_words(server, client, command, || shortened(command, args), measured);
}

/// Notes a command that exceeded a limit in the command log and the latency monitor.
#[cold]
fn note_words(
    server: &Server,
    client: &Client,
    command: &Registered,
    words: impl Fn() -> Vec<Vec<u8>>,
    measured: &Measured,
) {
    if is_loaded(server, client) {
        return;
    }
    let us = server.clock.us(measured.ticks) as u64;
    let event =
        if command.has(Flags::FAST) { LatencyEvent::FastCommand } else { LatencyEvent::Command };
    server.services.latency.sample(&server.config, event, us);
    if command.has(Flags::SKIP_SLOWLOG) {
        return;
    }
    let caller = if client.caller == 0 { None } else { server.clients.find(client.caller) };
    let info = caller.as_ref().unwrap_or(&client.info);
    server.services.command_log.note(&server.config, measured, us, || SlowlogEntry {
        id: 0,
        time_s: system_ms() / 1000,
        value: 0,
        words: words(),
        peer: info.peer.clone(),
        name: cut(&info.names().name).into(),
    });
}

/// Whether a log that is being loaded has the command, which was noted when it ran first.
fn is_loaded(server: &Server, client: &Client) -> bool {
    client.info.is_nobody() && server.switches.has(Switch::LOADING)
}
