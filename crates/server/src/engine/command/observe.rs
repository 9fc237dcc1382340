//! What is kept of a command that has run: in the command log, by the latency monitor, by HOTKEYS.

use super::{Call, Flags, Registered};
use crate::base::clock::system_ms;
use crate::engine::client::Client;
use crate::engine::server::{Server, Switch};
use crate::engine::telemetry::latency::LatencyEvent;
use crate::engine::telemetry::slowlog::{Measured, SlowlogEntry, cut, shortened};

/// Logs a command that exceeded a limit, and tells the latency monitor.
#[cold]
pub fn note(
    server: &Server,
    client: &Client,
    command: &Registered,
    args: &[&[u8]],
    measured: &Measured,
) {
    // What a script calls is part of the script's own command.
    let is_script = client.caller != 0;
    if server.services.hot_keys.is_active() && !is_script {
        let us = server.clock.us(measured.ticks) as u64;
        if !server.services.hot_keys.note(command, args, measured, us) {
            // Not every command is worth a look any more.
            server.services.follow(&server.config, &server.clock);
        }
    }
    note_words(server, client, command, || shortened(command, args), measured);
}

/// Notes a command whose words were already `shortened`.
#[cold]
pub fn note_words(
    server: &Server,
    client: &Client,
    command: &Registered,
    words: impl Fn() -> Vec<Vec<u8>>,
    measured: &Measured,
) {
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

/// Behind a command's handler, with its keys held: looks at their sizes, if somebody wants to know.
/// Of keys that are not held nothing is known.
#[cold]
pub fn look_at_sizes(call: &mut Call<'_>) {
    let server = call.server;
    // What a script calls is part of the script's own command.
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
