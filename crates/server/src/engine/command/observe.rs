//! What the command log, the latency monitor and HOTKEYS keep of a command that has run.

use super::{Flags, Registered};
use crate::base::clock::system_ms;
use crate::engine::client::Client;
use crate::engine::server::{Server, Switch};
use crate::engine::telemetry::latency::LatencyEvent;
use crate::engine::telemetry::slowlog::{Measured, SlowlogEntry, cut, shortened};

/// Notes a command that exceeded a limit in the command log, the latency monitor and HOTKEYS.
#[cold]
pub fn note(
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

/// Notes a command whose words are already `shortened`.
#[cold]
pub fn note_words(
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
