//! What MONITOR shows: a stream of the commands of all clients.
//!
//! A command is shown after it has run and before its shards are unlocked, so that a monitor sees
//! the commands on one key in the order in which they happened.

use std::sync::Arc;

use crate::base::clock::system_us;
use crate::config::quote;
use crate::engine::client::Client;
use crate::engine::command::{Call, Data, Flags, Registered};
use crate::engine::server::Server;
use crate::engine::telemetry::slowlog;
use crate::engine::tracking::Push;

/// Shows the monitors a command that has run.
#[cold]
pub fn feed(call: &mut Call<'_>) {
    if !call.command.has(Flags::SKIP_MONITOR.with(Flags::ADMIN)) {
        show(call);
    }
}

/// Shows the monitors a command that is about to run. Scripts are shown this way, so that a script
/// comes before the commands that it calls.
#[cold]
pub fn show(call: &mut Call<'_>) {
    let lines = &mut call.client.attempts.lines;
    let is_repeat = lines.is_repeat();
    lines.add();
    if is_repeat {
        return;
    }
    show_words(call.server, call.data, call.client, call.command, call.args);
}

/// Shows the monitors a command with these words, whether it runs or not.
#[cold]
pub fn show_words(
    server: &Server,
    data: &mut Data,
    client: &Client,
    command: &Registered,
    args: &[&[u8]],
) {
    let line: Arc<[u8]> = line(client, command, args).into();
    for monitor in server.monitors.all().iter() {
        let overrun = server.push_to(monitor, Push::Seen(Arc::clone(&line)));
        if let Some(subscribers) = &mut data.audience.subscribers {
            subscribers.note_overrun(overrun);
        }
    }
}

/// `+1700000000.123456 [0 127.0.0.1:1234] "set" "a" "b"`
fn line(client: &Client, command: &Registered, args: &[&[u8]]) -> Vec<u8> {
    let now_us = system_us();
    let (seconds, us) = (now_us / 1_000_000, now_us % 1_000_000);
    let (database, info) = (client.database, &client.info);
    let unix = if info.is_unix { "unix:" } else { "" };
    let peer = if info.is_unix { info.local.trim_end_matches(":0") } else { &info.peer };
    let mut line = format!("+{seconds}.{us:06} [{database} {unix}{peer}]").into_bytes();
    let is_secret = slowlog::secrets(command, args);
    for (index, arg) in args.iter().enumerate() {
        line.push(b' ');
        line.extend(quote(if is_secret(index) { slowlog::REDACTED } else { arg }));
    }
    line.extend(b"\r\n");
    line
}
