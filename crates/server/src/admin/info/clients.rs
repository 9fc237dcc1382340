//! The section of clients, and the figures summed over them.

use std::sync::atomic::Ordering;

use super::InfoUnit::{Bytes, Milliseconds, Number};
use super::{Lines, Section, SectionShown, gauge, label, zero};
use crate::engine::client;
use crate::engine::clients::ClientFlag;
use crate::engine::server::Server;
use crate::engine::server::pause::{PauseReason, ShownPause};

pub(super) const CLIENTS: Section = Section {
    name: "clients",
    title: "Clients",
    shown: SectionShown::Default,
    lines: Lines::Fields(&[
        gauge("connected_clients", Number, "Connections of clients.", |s| {
            s.clients().connected.into()
        }),
        zero("cluster_connections"),
        gauge("maxclients", Number, "Connections of clients at most.", |s| {
            s.server.config.maxclients().into()
        }),
        gauge(
            "client_recent_max_input_buffer",
            Bytes,
            "The longest input buffer of a client.",
            |s| s.clients().input_max_bytes.into(),
        ),
        gauge(
            "client_recent_max_output_buffer",
            Bytes,
            "The longest output buffer of a client.",
            |s| s.clients().output_max_bytes.into(),
        ),
        gauge("blocked_clients", Number, "Clients that wait in a blocking command.", |s| {
            s.clients().blocked.into()
        }),
        gauge("tracking_clients", Number, "Clients that are told of keys that change.", |s| {
            s.server.tracking.clients().into()
        }),
        gauge("pubsub_clients", Number, "Clients that listen to channels.", |s| {
            s.clients().pubsub.into()
        }),
        gauge("watching_clients", Number, "Clients that watch keys.", |s| {
            s.clients().watching.into()
        }),
        gauge("clients_in_timeout_table", Number, "Blocked clients with a timeout.", |s| {
            (s.server.waiters.timed() as u64).into()
        }),
        gauge("total_watched_keys", Number, "Keys that clients watch.", |s| {
            s.clients().watched_keys.into()
        }),
        gauge("total_blocking_keys", Number, "Keys that blocked clients wait for.", |s| {
            (s.server.waiters.keys().0 as u64).into()
        }),
        gauge("total_blocking_keys_on_nokey", Number, "Those whose end unblocks as well.", |s| {
            (s.server.waiters.keys().1 as u64).into()
        }),
        label("paused_reason", |s| {
            let reason = |pause: ShownPause| match pause.reason {
                PauseReason::Command => "client_pause",
                PauseReason::Shutdown => "shutdown_in_progress",
                PauseReason::Failover => "failover_in_progress",
            };
            pause(s.server).map_or("none", reason).into()
        }),
        label("paused_actions", |s| {
            pause(s.server).map_or("none", |pause| if pause.all { "all" } else { "write" }).into()
        }),
        gauge("paused_timeout_milliseconds", Milliseconds, "How long clients stay paused.", |s| {
            pause(s.server).map_or(0, |pause| pause.left_ms).into()
        }),
    ]),
};

/// Sums over all clients.
#[derive(Default, Debug)]
pub struct ClientFigures {
    pub connected: usize,
    pub blocked: usize,
    pub pubsub: usize,
    pub watching: usize,
    pub watched_keys: usize,
    pub input_max_bytes: usize,
    pub output_max_bytes: usize,
    /// Memory of all connections and their buffers.
    pub memory_bytes: usize,
    /// Connections by worker id.
    pub by_worker: std::collections::BTreeMap<usize, usize>,
}

impl ClientFigures {
    pub(super) fn of(server: &Server) -> Self {
        let mut figures = Self::default();
        for info in server.clients.all() {
            // Redis does not count replicas as clients here.
            figures.connected += usize::from(!info.has(ClientFlag::REPLICA));
            figures.blocked += usize::from(info.has(ClientFlag::BLOCKED));
            figures.pubsub += usize::from(info.has(ClientFlag::PUBSUB));
            let watched = info.watched.load(Ordering::Relaxed);
            figures.watching += usize::from(watched > 0);
            figures.watched_keys += watched;
            let input = info.input_capacity.load(Ordering::Relaxed);
            let output = info.output_bytes.load(Ordering::Relaxed);
            figures.input_max_bytes = figures.input_max_bytes.max(input);
            figures.output_max_bytes = figures.output_max_bytes.max(output);
            figures.memory_bytes += client::memory(&info);
            *figures.by_worker.entry(info.worker.load(Ordering::Relaxed)).or_default() += 1;
        }
        figures
    }
}

fn pause(server: &Server) -> Option<ShownPause> {
    server.shown_pause(server.clock.now_ms())
}
