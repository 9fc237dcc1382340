//! The section of counters, and the section of the event loop, which is shown when it is named.

use std::sync::atomic::Ordering;

use super::InfoUnit::{Bytes, Kilobytes, Microseconds, Milliseconds, Number};
use super::{
    InfoField, InfoValue, Lines, Section, SectionShown, Snapshot, counter, gauge, label, zero,
};
use crate::commands::migrate;
use crate::engine::acl::check::Reason;
use crate::engine::defrag::Defrag;
use crate::engine::pubsub::ChannelKind;
use crate::engine::telemetry::rates::RateSample;
use crate::replication::Replication;

pub(super) const STATS: Section = Section {
    name: "stats",
    title: "Stats",
    shown: SectionShown::Default,
    lines: Lines::Fields(FIELDS),
};

pub(super) const DEBUG: Section = Section {
    name: "debug",
    title: "Debug",
    shown: SectionShown::Named,
    lines: Lines::Fields(&[
        zero("eventloop_duration_aof_sum"),
        counter(
            "eventloop_duration_cron_sum",
            Microseconds,
            "Time that work by the clock took.",
            |s| s.us(s.totals().timer_ticks.get()).into(),
        ),
        gauge("eventloop_duration_max", Microseconds, "The longest turn of a thread.", |s| {
            s.us(s.server.workers.maximum(|worker| worker.longest_turn_ticks.get())).into()
        }),
        gauge("eventloop_cmd_per_cycle_max", Number, "The most commands of a turn.", |s| {
            s.server.workers.maximum(|worker| worker.most_commands.get()).into()
        }),
        zero("io_threaded_reads_pending"),
        zero("io_threaded_writes_pending"),
    ]),
};

/// While the result of HOTKEYS can be had.
pub(super) const HOTKEYS: Section = Section {
    name: "hotkeys",
    title: "Hotkeys",
    shown: SectionShown::While(|s| s.server.services.hot_keys.state().is_some()),
    lines: Lines::Fields(&[label("hotkeys-tracking-active", |s| {
        s.server.services.hot_keys.state().unwrap_or(false).into()
    })]),
};

const FIELDS: &[InfoField] = &[
    counter("total_connections_received", Number, "Connections accepted.", |s| {
        s.server.services.connections_received(s.server.clients.last_id()).into()
    }),
    counter("total_commands_processed", Number, "Commands executed.", |s| {
        s.totals().commands.get().into()
    }),
    gauge("instantaneous_ops_per_sec", Number, "Commands executed a second, lately.", |s| {
        rate(s, |note| note.commands).round().into()
    }),
    counter("total_net_input_bytes", Bytes, "Bytes received.", |s| {
        (s.totals().net_input_bytes.get() + s.server.services.replication_traffic.received()).into()
    }),
    counter("total_net_output_bytes", Bytes, "Bytes sent.", |s| {
        s.totals().net_output_bytes.get().into()
    }),
    counter("total_net_repl_input_bytes", Bytes, "Those received from the primary.", |s| {
        s.server.services.replication_traffic.received().into()
    }),
    counter("total_net_repl_output_bytes", Bytes, "Those for replicas.", |s| {
        s.server.services.replication_traffic.sent().into()
    }),
    zero("total_net_cluster_slot_import_bytes"),
    zero("total_net_cluster_slot_export_bytes"),
    gauge("instantaneous_input_kbps", Kilobytes, "Bytes received a second, lately.", |s| {
        kilobytes(rate(s, |note| note.net_input_bytes + note.repl_input_bytes))
    }),
    gauge("instantaneous_output_kbps", Kilobytes, "Bytes sent a second, lately.", |s| {
        kilobytes(rate(s, |note| note.net_output_bytes))
    }),
    gauge("instantaneous_input_repl_kbps", Kilobytes, "Those from the primary.", |s| {
        kilobytes(rate(s, |note| note.repl_input_bytes))
    }),
    gauge("instantaneous_output_repl_kbps", Kilobytes, "Those for replicas.", |s| {
        kilobytes(rate(s, |note| note.repl_output_bytes))
    }),
    counter("rejected_connections", Number, "Connections that were not let in.", |s| {
        s.server.clients.rejected().into()
    }),
    counter("sync_full", Number, "Copies of all keys that replicas got.", |s| {
        Replication::of(s.server).figures.full_syncs.load(Ordering::Relaxed).into()
    }),
    counter("sync_partial_ok", Number, "Replicas that went on where they were.", |s| {
        Replication::of(s.server).figures.partial_syncs.load(Ordering::Relaxed).into()
    }),
    counter("sync_partial_err", Number, "Replicas that could not go on where they were.", |s| {
        Replication::of(s.server).figures.refused_partial_syncs.load(Ordering::Relaxed).into()
    }),
    counter("expired_keys", Number, "Keys that expired.", |s| s.totals().expired_keys.get().into()),
    counter("expired_fields", Number, "Fields of hashes that expired.", |s| {
        s.totals().expired_fields.get().into()
    }),
    // The index of expiries knows which keys are due, so no key is looked at in vain.
    gauge("expired_stale_perc", Number, "Always 0: no key is looked at in vain.", |_| {
        InfoValue::Decimal(0.0, 2)
    }),
    gauge(
        "expired_keys_with_volatile_items_stale_perc",
        Number,
        "Always 0: no hash is looked at in vain.",
        |_| InfoValue::Decimal(0.0, 2),
    ),
    counter(
        "expired_time_cap_reached_count",
        Number,
        "Slices of taking out expired keys that ended by the clock.",
        |s| s.totals().expire_slices_cut.get().into(),
    ),
    counter(
        "expire_cycle_cpu_milliseconds",
        Milliseconds,
        "Time that taking out expired keys took.",
        |s| (s.us(s.totals().timer_ticks.get()) / 1000).into(),
    ),
    counter("evicted_keys", Number, "Keys evicted for want of memory.", |s| {
        s.totals().evicted_keys.get().into()
    }),
    counter("evicted_clients", Number, "Clients closed for want of memory.", |s| {
        s.totals().evicted_clients.get().into()
    }),
    counter("evicted_scripts", Number, "Scripts that left the cache for others.", |s| {
        s.server.scripts.evicted().into()
    }),
    zero("total_eviction_exceeded_time"),
    zero("current_eviction_exceeded_time"),
    counter("keyspace_hits", Number, "Reads that found their key.", |s| {
        s.totals().keyspace_hits.get().into()
    }),
    counter("keyspace_misses", Number, "Reads that did not.", |s| {
        s.totals().keyspace_misses.get().into()
    }),
    gauge("pubsub_channels", Number, "Channels that somebody listens to.", |s| {
        (s.server.pubsub.len(ChannelKind::Channel) as u64).into()
    }),
    gauge("pubsub_patterns", Number, "Patterns that somebody listens to.", |s| {
        (s.server.pubsub.len(ChannelKind::Pattern) as u64).into()
    }),
    gauge("pubsubshard_channels", Number, "Shard channels that somebody listens to.", |s| {
        (s.server.pubsub.len(ChannelKind::Shard) as u64).into()
    }),
    label("latest_fork_usec", |s| s.server.cuts_begun().1.into()),
    label("total_forks", |s| s.server.cuts_begun().0.into()),
    gauge("migrate_cached_sockets", Number, "Connections of MIGRATE that are kept.", |_| {
        (migrate::idle_connections() as u64).into()
    }),
    zero("slave_expires_tracked_keys"),
    counter("active_defrag_hits", Number, "Blocks of memory that were moved together.", |s| {
        Defrag::of(s.server).hits.load(Ordering::Relaxed).into()
    }),
    counter("active_defrag_misses", Number, "Blocks that could stay where they are.", |s| {
        Defrag::of(s.server).misses.load(Ordering::Relaxed).into()
    }),
    counter("active_defrag_key_hits", Number, "Keys of which blocks were moved.", |s| {
        Defrag::of(s.server).key_hits.load(Ordering::Relaxed).into()
    }),
    counter("active_defrag_key_misses", Number, "Keys that could stay where they are.", |s| {
        Defrag::of(s.server).key_misses.load(Ordering::Relaxed).into()
    }),
    counter(
        "total_active_defrag_time",
        Milliseconds,
        "How long defragmentation had something to do.",
        |s| (Defrag::of(s.server).times().0.as_millis() as u64).into(),
    ),
    gauge(
        "current_active_defrag_time",
        Milliseconds,
        "How long defragmentation has had something to do without a break.",
        |s| (Defrag::of(s.server).times().1.as_millis() as u64).into(),
    ),
    gauge("tracking_total_keys", Number, "Keys that clients keep copies of.", |s| {
        s.tracked().0.into()
    }),
    gauge("tracking_total_items", Number, "Copies that clients keep.", |s| s.tracked().1.into()),
    gauge(
        "tracking_total_prefixes",
        Number,
        "Beginnings of keys whose changes are broadcast.",
        |s| s.server.tracking.prefixes().into(),
    ),
    counter("unexpected_error_replies", Number, "Errors where there should be none.", |s| {
        s.totals().unexpected_error_replies.get().into()
    }),
    counter("total_error_replies", Number, "Errors answered.", |s| {
        s.totals().error_replies.get().into()
    }),
    zero("dump_payload_sanitizations"),
    counter("total_reads_processed", Number, "Receives from sockets.", |s| {
        s.totals().reads_processed.get().into()
    }),
    counter("total_writes_processed", Number, "Sends to sockets.", |s| {
        s.totals().writes_processed.get().into()
    }),
    // No thread only reads or only writes for another one.
    zero("io_threaded_reads_processed"),
    zero("io_threaded_writes_processed"),
    zero("io_threaded_freed_objects"),
    zero("io_threaded_accept_processed"),
    zero("io_threaded_poll_processed"),
    zero("io_threaded_total_prefetch_batches"),
    zero("io_threaded_total_prefetch_entries"),
    counter(
        "client_query_buffer_limit_disconnections",
        Number,
        "Clients closed for long input.",
        |s| s.totals().client_query_buffer_limit_disconnections.get().into(),
    ),
    counter(
        "client_output_buffer_limit_disconnections",
        Number,
        "Clients closed for long output.",
        |s| s.totals().client_output_buffer_limit_disconnections.get().into(),
    ),
    zero("reply_buffer_shrinks"),
    zero("reply_buffer_expands"),
    counter("eventloop_cycles", Number, "Turns of all threads.", |s| s.totals().turns.get().into()),
    counter("eventloop_duration_sum", Microseconds, "Time between waits, of all threads.", |s| {
        s.us(s.totals().busy_ticks.get()).into()
    }),
    counter("eventloop_duration_cmd_sum", Microseconds, "Time that commands took.", |s| {
        s.us(s.server.workers.command_ticks()).into()
    }),
    gauge("instantaneous_eventloop_cycles_per_sec", Number, "Turns a second, lately.", |s| {
        rate(s, |note| note.turns).round().into()
    }),
    gauge(
        "instantaneous_eventloop_duration_usec",
        Microseconds,
        "How long a turn takes, lately.",
        |s| {
            let ticks = s.server.services.rates.ratio(|note| note.busy_ticks, |note| note.turns);
            s.us(ticks as u64).into()
        },
    ),
    counter("acl_access_denied_auth", Number, "Attempts to authenticate that failed.", |s| {
        s.server.acl.denied(Reason::Password).into()
    }),
    counter("acl_access_denied_cmd", Number, "Commands refused to a user.", |s| {
        s.server.acl.denied(Reason::Command).into()
    }),
    counter("acl_access_denied_key", Number, "Commands refused for their keys.", |s| {
        s.server.acl.denied(Reason::Key).into()
    }),
    counter("acl_access_denied_channel", Number, "Commands refused for their channels.", |s| {
        s.server.acl.denied(Reason::Channel).into()
    }),
    counter("acl_access_denied_tls_cert", Number, "Certificates that name no user.", |s| {
        s.server.acl.denied(Reason::Certificate).into()
    }),
    counter("acl_access_denied_db", Number, "Commands refused for their database.", |s| {
        s.server.acl.denied(Reason::Database).into()
    }),
];

fn rate(snapshot: &Snapshot<'_>, counter: impl Fn(&RateSample) -> u64) -> f64 {
    snapshot.server.services.rates.per_second(counter)
}

fn kilobytes(bytes: f64) -> InfoValue {
    InfoValue::Decimal(bytes / 1024.0, 2)
}

impl From<f64> for InfoValue {
    /// A whole number.
    fn from(value: f64) -> Self {
        Self::Unsigned(value as u64)
    }
}
