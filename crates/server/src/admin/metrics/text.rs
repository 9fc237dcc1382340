//! The metrics as text: made from INFO's fields, and from the data of INFO's variable lines
//! (commands, errors, databases, threads).

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use super::aliases;
use super::exposition::{Exposition, MetricKind, MetricsFormat, TOTAL};
use super::figures::Gatherer;
use crate::admin::info::{
    DatabaseFigures, InfoUnit, InfoValue, Lines, Meaning, Nature, SECTIONS, Snapshot,
};
use crate::engine::server::{Server, Switch, WorkerHandle};
use crate::engine::telemetry::histogram;
use crate::engine::telemetry::stats::CommandStats;
use crate::persistence::aof::Aof;
use crate::replication::Replication;
use crate::replication::link::LinkState;

/// A family of metrics that is not a field of INFO.
pub struct MetricFamily {
    /// The name without the common prefix.
    pub name: &'static str,
    kind: MetricKind,
    /// The labels of its samples.
    pub labels: &'static [&'static str],
    pub help: &'static str,
}

/// All metrics.
pub(super) fn write(server: &'static Server, gatherer: &Gatherer, format: MetricsFormat) -> String {
    let figures = gatherer.figures(Duration::ZERO);
    let age_s = figures.at.map(|at| at.elapsed().as_secs_f64());
    let snapshot = Snapshot::gathered(server, figures.keyspace, figures.tracked);
    let mut text = Exposition::new(format);
    identity(&snapshot, &mut text);
    for section in SECTIONS {
        fields(&snapshot, &section.lines, &mut text);
    }
    states(server, &mut text);
    databases(&snapshot, age_s, &mut text);
    commands(&snapshot, &mut text);
    errors(&snapshot, &mut text);
    workers(&snapshot, &mut text);
    aliases::append(&mut text);
    text.finish()
}

impl MetricFamily {
    const fn new(
        name: &'static str,
        kind: MetricKind,
        labels: &'static [&'static str],
        help: &'static str,
    ) -> Self {
        Self { name, kind, labels, help }
    }

    /// A number that rises and falls.
    const fn gauge(
        name: &'static str,
        labels: &'static [&'static str],
        help: &'static str,
    ) -> Self {
        Self::new(name, MetricKind::Gauge, labels, help)
    }

    /// A number that only rises.
    const fn counter(
        name: &'static str,
        labels: &'static [&'static str],
        help: &'static str,
    ) -> Self {
        Self::new(name, MetricKind::Counter, labels, help)
    }

    #[cfg(test)]
    pub const fn kind_name(&self) -> &'static str {
        self.kind.name()
    }
}

impl Exposition {
    fn begin(&mut self, family: &MetricFamily) {
        self.family(family.name, family.kind, family.help);
    }

    /// Adds a sample of a family with these label values.
    fn tell(&mut self, family: &MetricFamily, values: &[&str], value: impl std::fmt::Display) {
        let labels: Vec<_> = family.labels.iter().copied().zip(values.iter().copied()).collect();
        self.sample(family.name, &labels, value);
    }
}

/// A metric whose labels identify the server, from INFO's texts.
fn identity(snapshot: &Snapshot<'_>, text: &mut Exposition) {
    let mut labels: Vec<(&str, String)> = Vec::new();
    for section in SECTIONS {
        let told =
            section.lines.fields().into_iter().filter(|field| IDENTITY.contains(&field.name));
        labels.extend(told.map(|field| (field.name, (field.value)(snapshot).into_text())));
    }
    let labels: Vec<(&str, &str)> = labels.iter().map(|(name, text)| (*name, &**text)).collect();
    text.begin(&INFO);
    text.sample(INFO.name, &labels, 1);
}

/// The numbers among INFO's fields.
fn fields(snapshot: &Snapshot<'_>, lines: &Lines, text: &mut Exposition) {
    for field in lines.fields() {
        let (kind, Meaning { unit, help }) = match field.nature {
            Nature::Counter(meaning) => (MetricKind::Counter, meaning),
            Nature::Gauge(meaning) => (MetricKind::Gauge, meaning),
            Nature::Label | Nature::Absent => continue,
        };
        let value = match (field.value)(snapshot) {
            InfoValue::Unsigned(value) => value as f64,
            InfoValue::Signed(value) => value as f64,
            InfoValue::Decimal(value, _) => value,
            InfoValue::Text(_) => continue,
        };
        let name = metric_name(field.name, unit, kind == MetricKind::Counter);
        text.family(&name, kind, help);
        text.sample(&name, &[], value * unit.factor());
    }
}

/// The metric of a field of INFO. `None`: the field is not a number.
#[cfg(test)]
pub fn metric_of(field: &crate::admin::info::InfoField) -> Option<String> {
    match field.nature {
        Nature::Counter(meaning) => Some(metric_name(field.name, meaning.unit, true)),
        Nature::Gauge(meaning) => Some(metric_name(field.name, meaning.unit, false)),
        Nature::Label | Nature::Absent => None,
    }
}

/// The metric's name of a field: with its base unit behind it, and with `total` at the end of a
/// counter.
fn metric_name(field: &str, unit: InfoUnit, counter: bool) -> String {
    let mut name = field.strip_prefix("total_").filter(|_| counter).unwrap_or(field).to_owned();
    for old in ["_in_seconds", "_milliseconds", "_usec", "_kbps", "_bytes", "_sum"] {
        if unit != InfoUnit::Number
            && let Some(rest) = name.strip_suffix(old)
        {
            name.truncate(rest.len());
        }
    }
    name.push_str(unit.suffix());
    if counter {
        name.push_str(TOTAL);
    }
    name
}

/// States that INFO shows as words and that an alert may need: 1 for good and 0 for bad.
fn states(server: &Server, text: &mut Exposition) {
    let log = Aof::of(server);
    let mut state = |family: &MetricFamily, is_good: bool| {
        text.begin(family);
        text.tell(family, &[], u64::from(is_good));
    };
    state(&LAST_BGSAVE_OK, !server.switches.has(Switch::SAVE_FAILED));
    state(&LAST_BGREWRITE_OK, !log.rewrites.failed.load(Ordering::Relaxed));
    state(&LAST_WRITE_OK, !server.switches.has(Switch::LOG_FAILED));
    if let Some(link) = Replication::of(server).link() {
        state(&MASTER_LINK_UP, link.state() == LinkState::Connected);
    }
}

fn databases(snapshot: &Snapshot<'_>, age_s: Option<f64>, text: &mut Exposition) {
    let databases = &snapshot.keyspace().databases;
    let mut each = |family: &MetricFamily, value: &dyn Fn(&DatabaseFigures) -> f64| {
        text.begin(family);
        for (number, database) in databases.as_slice() {
            if database.keys > 0 {
                text.tell(family, &[&format!("db{number}")], value(database));
            }
        }
    };
    each(&DB_KEYS, &|database| database.keys as f64);
    each(&DB_KEYS_EXPIRING, &|database| database.volatile as f64);
    each(&DB_AVG_TTL, &|database| database.average_ttl_ms() as f64 / 1e3);
    text.begin(&FIGURES_AGE);
    match age_s {
        Some(age_s) => text.tell(&FIGURES_AGE, &[], age_s),
        None => text.tell(&FIGURES_AGE, &[], "NaN"),
    }
}

fn commands(snapshot: &Snapshot<'_>, text: &mut Exposition) {
    let server = snapshot.server;
    let all = server.registry.all().iter();
    let all = all.map(|command| (&*command.full_name, server.workers.command_totals(command.id)));
    let used = |(_, stats): &(_, CommandStats)| {
        stats.calls.get() + stats.rejected.get() + stats.failed.get() > 0
    };
    let all: Vec<_> = all.filter(used).collect();
    let mut each = |family: &MetricFamily, value: &dyn Fn(&CommandStats) -> f64| {
        text.begin(family);
        for (command, stats) in &all {
            text.tell(family, &[command], value(stats));
        }
    };
    each(&COMMAND_CALLS, &|stats| stats.calls.get() as f64);
    each(&COMMAND_DURATION, &|stats| server.clock.us(stats.ticks.get()) / 1e6);
    each(&COMMAND_REJECTED, &|stats| stats.rejected.get() as f64);
    each(&COMMAND_FAILED, &|stats| stats.failed.get() as f64);
    if server.config.latency_tracking() {
        latencies(server, &all, text);
        durations(server, &all, text);
    }
}

/// Percentiles of the duration of each command's calls.
fn latencies(server: &Server, all: &[(&str, CommandStats)], text: &mut Exposition) {
    text.begin(&COMMAND_LATENCY);
    let percentiles = server.config.percentiles();
    for (command, stats) in all {
        let Some(counts) = stats.histogram() else { continue };
        let calls: u64 = counts.counts().map(|(_, count)| count).sum();
        if calls == 0 {
            continue;
        }
        for &percentile in &percentiles {
            // Rounded, to avoid 0.9990000000000001. It gives 1.0, as OpenMetrics demands.
            let quantile = format!("{:?}", (percentile * 1e6).round() / 1e8);
            let us = histogram::percentile_us(&server.clock, counts, percentile);
            text.tell(&COMMAND_LATENCY, &[command, &quantile], us / 1e6);
        }
        let sum_s = server.clock.us(stats.ticks.get()) / 1e6;
        text.sample("commands_latency_seconds_sum", &[("cmd", command)], sum_s);
        text.sample("commands_latency_seconds_count", &[("cmd", command)], calls);
    }
}

/// A histogram of the duration of each command's calls.
fn durations(server: &Server, all: &[(&str, CommandStats)], text: &mut Exposition) {
    let bounds_us = COMMAND_BOUNDS_S.map(|(bound_s, _)| bound_s * 1e6);
    text.begin(&COMMAND_DURATIONS);
    for (command, stats) in all {
        let Some(counts) = stats.histogram() else { continue };
        let (at_most, calls) = histogram::at_most(&server.clock, counts, &bounds_us);
        if calls == 0 {
            continue;
        }
        let bounds = COMMAND_BOUNDS_S.iter().map(|(_, written)| *written).chain(["+Inf"]);
        for (bound, calls) in bounds.zip(at_most.into_iter().chain([calls])) {
            let labels = [("cmd", *command), ("le", bound)];
            text.sample("command_duration_seconds_bucket", &labels, calls);
        }
        let sum_s = server.clock.us(stats.ticks.get()) / 1e6;
        text.sample("command_duration_seconds_sum", &[("cmd", command)], sum_s);
        text.sample("command_duration_seconds_count", &[("cmd", command)], calls);
    }
}

fn errors(snapshot: &Snapshot<'_>, text: &mut Exposition) {
    text.begin(&ERRORS);
    for (code, count) in snapshot.server.errors.all() {
        text.tell(&ERRORS, &[&code], count);
    }
}

fn workers(snapshot: &Snapshot<'_>, text: &mut Exposition) {
    let workers = snapshot.server.workers.all();
    let mut each = |family: &MetricFamily, value: &dyn Fn(&WorkerHandle) -> f64| {
        text.begin(family);
        for worker in &workers {
            text.tell(family, &[&worker.id.to_string()], value(worker));
        }
    };
    let load = |value: &AtomicUsize| value.load(Ordering::Relaxed) as f64;
    each(&WORKER_CONNECTIONS, &|worker| load(&worker.connections));
    each(&WORKER_BACKLOG, &|worker| load(&worker.backlog_bytes));
    each(&WORKER_POSTS, &|worker| worker.mailbox.len() as f64);
    each(&WORKER_COMMANDS, &|worker| worker.stats.totals.commands.get() as f64);
    each(&WORKER_TURNS, &|worker| worker.stats.totals.turns.get() as f64);
    each(&WORKER_BUSY, &|worker| {
        snapshot.server.clock.us(worker.stats.totals.busy_ticks.get()) / 1e6
    });
    each(&WORKER_CPU_USER, &|worker| worker.cpu_time().user_s);
    each(&WORKER_CPU_SYS, &|worker| worker.cpu_time().system_s);
}

/// The metrics that are not fields of INFO, in the order in which they are written.
#[cfg(test)]
pub static FAMILIES: [&MetricFamily; 24] = [
    &INFO,
    &LAST_BGSAVE_OK,
    &LAST_BGREWRITE_OK,
    &LAST_WRITE_OK,
    &MASTER_LINK_UP,
    &DB_KEYS,
    &DB_KEYS_EXPIRING,
    &DB_AVG_TTL,
    &FIGURES_AGE,
    &COMMAND_CALLS,
    &COMMAND_DURATION,
    &COMMAND_REJECTED,
    &COMMAND_FAILED,
    &COMMAND_LATENCY,
    &COMMAND_DURATIONS,
    &ERRORS,
    &WORKER_CONNECTIONS,
    &WORKER_BACKLOG,
    &WORKER_POSTS,
    &WORKER_COMMANDS,
    &WORKER_TURNS,
    &WORKER_BUSY,
    &WORKER_CPU_USER,
    &WORKER_CPU_SYS,
];

const INFO: MetricFamily =
    MetricFamily::gauge("info", &IDENTITY, "What the server is; the value is always 1.");
const LAST_BGSAVE_OK: MetricFamily =
    MetricFamily::gauge("rdb_last_bgsave_ok", &[], "Whether the last snapshot was written (1).");
const LAST_BGREWRITE_OK: MetricFamily = MetricFamily::gauge(
    "aof_last_bgrewrite_ok",
    &[],
    "Whether the last rewrite of the append-only file was (1).",
);
const LAST_WRITE_OK: MetricFamily = MetricFamily::gauge(
    "aof_last_write_ok",
    &[],
    "Whether the append-only file can be written (1).",
);
const MASTER_LINK_UP: MetricFamily = MetricFamily::gauge(
    "master_link_up",
    &[],
    "Whether a replica has its primary's stream (1). Only a replica has it.",
);
const DB_KEYS: MetricFamily = MetricFamily::gauge("db_keys", &["db"], "Keys of a database.");
const DB_KEYS_EXPIRING: MetricFamily =
    MetricFamily::gauge("db_keys_expiring", &["db"], "Keys of a database that expire.");
const DB_AVG_TTL: MetricFamily = MetricFamily::gauge(
    "db_avg_ttl_seconds",
    &["db"],
    "Time that keys of a database have left on average, by a sample.",
);
const FIGURES_AGE: MetricFamily = MetricFamily::gauge(
    "keyspace_figures_age_seconds",
    &[],
    "How old the figures of keys are: old when a thread holds keys for long.",
);
const COMMAND_CALLS: MetricFamily =
    MetricFamily::counter("commands_total", &["cmd"], "Calls of a command.");
const COMMAND_DURATION: MetricFamily =
    MetricFamily::counter("commands_duration_seconds_total", &["cmd"], "Time that a command took.");
const COMMAND_REJECTED: MetricFamily = MetricFamily::counter(
    "commands_rejected_calls_total",
    &["cmd"],
    "Calls that were refused before they ran.",
);
const COMMAND_FAILED: MetricFamily = MetricFamily::counter(
    "commands_failed_calls_total",
    &["cmd"],
    "Calls that were answered with an error.",
);
const COMMAND_LATENCY: MetricFamily = MetricFamily::new(
    "commands_latency_seconds",
    MetricKind::Summary,
    &["cmd", "quantile"],
    "How long calls of a command took, since the start.",
);
const COMMAND_DURATIONS: MetricFamily = MetricFamily::new(
    "command_duration_seconds",
    MetricKind::Histogram,
    &["cmd", "le"],
    "Calls of a command by the time that they took, since the start.",
);
/// The bounds of the histogram in seconds, and how OpenMetrics writes them. Each is about three
/// times the one before. A call that takes longer than the last bound is a fault in any case.
const COMMAND_BOUNDS_S: [(f64, &str); 15] = [
    (1e-6, "1e-06"),
    (3e-6, "3e-06"),
    (1e-5, "1e-05"),
    (3e-5, "3e-05"),
    (1e-4, "0.0001"),
    (3e-4, "0.0003"),
    (1e-3, "0.001"),
    (3e-3, "0.003"),
    (1e-2, "0.01"),
    (3e-2, "0.03"),
    (0.1, "0.1"),
    (0.3, "0.3"),
    (1.0, "1.0"),
    (3.0, "3.0"),
    (10.0, "10.0"),
];
const ERRORS: MetricFamily =
    MetricFamily::counter("errors_total", &["err"], "Errors answered, by their first word.");
const WORKER_CONNECTIONS: MetricFamily =
    MetricFamily::gauge("worker_connections", &["worker"], "Connections of a thread.");
const WORKER_BACKLOG: MetricFamily = MetricFamily::gauge(
    "worker_backlog_bytes",
    &["worker"],
    "Published messages that wait for a thread.",
);
const WORKER_POSTS: MetricFamily =
    MetricFamily::gauge("worker_mailbox_posts", &["worker"], "Posts in a thread's mailbox.");
const WORKER_COMMANDS: MetricFamily =
    MetricFamily::counter("worker_commands_total", &["worker"], "Commands that a thread executed.");
const WORKER_TURNS: MetricFamily =
    MetricFamily::counter("worker_turns_total", &["worker"], "Turns of a thread's loop.");
const WORKER_BUSY: MetricFamily = MetricFamily::counter(
    "worker_busy_seconds_total",
    &["worker"],
    "Time between a thread's waits.",
);
const WORKER_CPU_USER: MetricFamily = MetricFamily::counter(
    "worker_cpu_user_seconds_total",
    &["worker"],
    "A thread's processor time of its own.",
);
const WORKER_CPU_SYS: MetricFamily = MetricFamily::counter(
    "worker_cpu_sys_seconds_total",
    &["worker"],
    "A thread's processor time in the kernel.",
);

/// INFO's texts that become labels. A text that changes by itself would start a new series each
/// time.
const IDENTITY: [&str; 9] = [
    "redis_version",
    "bobbin_version",
    "redis_mode",
    "os",
    "io_driver",
    "run_id",
    "tcp_port",
    "role",
    "maxmemory_policy",
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_end_in_base_units() {
        for (field, unit, counter, name) in [
            ("total_connections_received", InfoUnit::Number, true, "connections_received_total"),
            ("used_memory", InfoUnit::Bytes, false, "used_memory_bytes"),
            ("total_net_input_bytes", InfoUnit::Bytes, true, "net_input_bytes_total"),
            ("uptime_in_seconds", InfoUnit::Seconds, false, "uptime_seconds"),
            ("used_cpu_sys", InfoUnit::Seconds, true, "used_cpu_sys_seconds_total"),
            (
                "eventloop_duration_sum",
                InfoUnit::Microseconds,
                true,
                "eventloop_duration_seconds_total",
            ),
        ] {
            assert_eq!(metric_name(field, unit, counter), name);
        }
    }

    #[test]
    fn every_number_of_info_has_a_name_of_its_own() {
        let mut names = std::collections::BTreeSet::new();
        for section in SECTIONS {
            for field in section.lines.fields() {
                let (counter, Meaning { unit, help }) = match field.nature {
                    Nature::Counter(meaning) => (true, meaning),
                    Nature::Gauge(meaning) => (false, meaning),
                    Nature::Label | Nature::Absent => continue,
                };
                assert!(help.len() > 1 && help.ends_with('.'), "{}: {help}", field.name);
                let name = metric_name(field.name, unit, counter);
                assert!(names.insert(name.clone()), "{name} is there twice");
                // docs/metrics.md tells of these as exceptions.
                let is_exception = ["current_save_keys_total", "master_repl_offset_total"];
                if !is_exception.contains(&&*name) {
                    assert!(counter || !name.ends_with(TOTAL), "{name} is a gauge");
                    let is_of_bytes = help.starts_with("Bytes ") || help.starts_with("Memory ");
                    assert!(!is_of_bytes || unit.suffix() == "_bytes", "{name}: {help}");
                }
            }
        }
    }

    #[test]
    fn bounds_are_as_they_are_written() {
        for (bound_s, written) in COMMAND_BOUNDS_S {
            assert_eq!(written.parse(), Ok(bound_s));
        }
        assert!(COMMAND_BOUNDS_S.is_sorted_by(|before, after| before.0 < after.0));
    }
}
