//! The metrics as text, in the format 0.0.4 of Prometheus: made from INFO's fields, and from what
//! INFO writes in lines of their own (commands, errors, databases, threads).

use std::fmt::Write;
use std::sync::atomic::Ordering;
use std::time::Duration;

use super::aliases;
use super::figures::Gatherer;
use crate::admin::info::{InfoUnit, InfoValue, Lines, Meaning, Nature, SECTIONS, Snapshot};
use crate::engine::server::Server;
use crate::engine::telemetry::histogram;
use crate::persistence::Persistence;
use crate::persistence::aof::Aof;
use crate::replication::Replication;
use crate::replication::link::LinkState;

/// What a family of metrics is.
#[derive(Clone, Copy, PartialEq, Eq)]
enum MetricKind {
    Counter,
    Gauge,
    Summary,
}

/// The text as it grows: families, each with its samples behind it.
struct Exposition(String);

/// All metrics.
pub(super) fn write(server: &'static Server, gatherer: &Gatherer) -> String {
    let figures = gatherer.figures(Duration::ZERO);
    let age_s = figures.at.map(|at| at.elapsed().as_secs_f64());
    let snapshot = Snapshot::gathered(server, figures.keyspace, figures.tracked);
    let mut text = Exposition(String::with_capacity(TEXT_USUAL_BYTES));
    identity(&snapshot, &mut text);
    for section in SECTIONS {
        fields(&snapshot, &section.lines, &mut text);
    }
    states(server, &mut text);
    databases(&snapshot, age_s, &mut text);
    commands(&snapshot, &mut text);
    errors(&snapshot, &mut text);
    workers(&snapshot, &mut text);
    aliases::append(&mut text.0);
    text.0
}

impl Exposition {
    fn family(&mut self, name: &str, kind: MetricKind, help: &str) {
        let kind = match kind {
            MetricKind::Counter => "counter",
            MetricKind::Gauge => "gauge",
            MetricKind::Summary => "summary",
        };
        let help = help.replace('\\', "\\\\").replace('\n', "\\n");
        // Writing to a String does not fail, here and below.
        write!(self.0, "# HELP {PREFIX}{name} {help}\n# TYPE {PREFIX}{name} {kind}\n").ok();
    }

    fn sample(&mut self, name: &str, labels: &[(&str, &str)], value: impl std::fmt::Display) {
        write!(self.0, "{PREFIX}{name}").ok();
        for (at, (label, text)) in labels.iter().enumerate() {
            let open = if at == 0 { '{' } else { ',' };
            let text = text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n");
            write!(self.0, "{open}{label}=\"{text}\"").ok();
        }
        let close = if labels.is_empty() { "" } else { "}" };
        writeln!(self.0, "{close} {value}").ok();
    }
}

/// Who it is that tells: what INFO has in words.
fn identity(snapshot: &Snapshot<'_>, text: &mut Exposition) {
    let mut labels: Vec<(&str, String)> = Vec::new();
    for section in SECTIONS {
        let told =
            section.lines.fields().into_iter().filter(|field| IDENTITY.contains(&field.name));
        labels.extend(told.map(|field| (field.name, (field.value)(snapshot).to_string())));
    }
    let labels: Vec<(&str, &str)> = labels.iter().map(|(name, text)| (*name, &**text)).collect();
    text.family("info", MetricKind::Gauge, "What the server is; the value is always 1.");
    text.sample("info", &labels, 1);
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

/// A field's name as a metric's: with its base unit behind it, and `total` at the end of a
/// counter's.
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
        name.push_str("_total");
    }
    name
}

/// What INFO says in words and an alert may ask for: 1 for good and 0 for bad.
fn states(server: &Server, text: &mut Exposition) {
    let persistence = Persistence::of(server);
    let log = Aof::of(server);
    let mut state = |name: &str, help: &str, is_good: bool| {
        text.family(name, MetricKind::Gauge, help);
        text.sample(name, &[], u64::from(is_good));
    };
    let is_saved = !persistence.last_failed.load(Ordering::Relaxed);
    state("rdb_last_bgsave_ok", "Whether the last snapshot was written (1).", is_saved);
    let is_rewritten = !log.rewrites.failed.load(Ordering::Relaxed);
    let help = "Whether the last rewrite of the append-only file was (1).";
    state("aof_last_bgrewrite_ok", help, is_rewritten);
    let is_written = server.log_error.load(Ordering::Relaxed) == 0;
    let help = "Whether the append-only file can be written (1).";
    state("aof_last_write_ok", help, is_written);
    if let Some(link) = Replication::of(server).link() {
        let is_up = link.state() == LinkState::Connected;
        state("master_link_up", "Whether a replica has its primary's stream (1).", is_up);
    }
}

fn databases(snapshot: &Snapshot<'_>, age_s: Option<f64>, text: &mut Exposition) {
    let databases = &snapshot.keyspace().databases;
    let used = || databases.iter().enumerate().filter(|(_, database)| database.keys > 0);
    text.family("db_keys", MetricKind::Gauge, "Keys of a database.");
    for (number, database) in used() {
        text.sample("db_keys", &[("db", &format!("db{number}"))], database.keys);
    }
    text.family("db_keys_expiring", MetricKind::Gauge, "Keys of a database that expire.");
    for (number, database) in used() {
        text.sample("db_keys_expiring", &[("db", &format!("db{number}"))], database.volatile);
    }
    let help = "Time that keys of a database have left on average, by a sample.";
    text.family("db_avg_ttl_seconds", MetricKind::Gauge, help);
    for (number, database) in used() {
        let seconds = database.average_ttl_ms() as f64 / 1e3;
        text.sample("db_avg_ttl_seconds", &[("db", &format!("db{number}"))], seconds);
    }
    let help = "How old the figures of keys are: old when a thread holds keys for long.";
    text.family("keyspace_figures_age_seconds", MetricKind::Gauge, help);
    match age_s {
        Some(age_s) => text.sample("keyspace_figures_age_seconds", &[], age_s),
        None => text.sample("keyspace_figures_age_seconds", &[], "NaN"),
    }
}

fn commands(snapshot: &Snapshot<'_>, text: &mut Exposition) {
    let server = snapshot.server;
    let all = server.registry.all().iter();
    let all = all.map(|command| (&*command.full_name, server.workers.command_totals(command.id)));
    let used = |(_, stats): &(_, crate::engine::telemetry::stats::CommandStats)| {
        stats.calls.get() + stats.rejected.get() + stats.failed.get() > 0
    };
    let all: Vec<_> = all.filter(used).collect();
    let mut counters =
        |name: &str,
         help: &str,
         value: &dyn Fn(&crate::engine::telemetry::stats::CommandStats) -> f64| {
            text.family(name, MetricKind::Counter, help);
            for (command, stats) in &all {
                text.sample(name, &[("cmd", command)], value(stats));
            }
        };
    counters("commands_total", "Calls of a command.", &|stats| stats.calls.get() as f64);
    counters("commands_duration_seconds_total", "Time that a command took.", &|stats| {
        server.clock.us(stats.ticks.get()) / 1e6
    });
    counters(
        "commands_rejected_calls_total",
        "Calls that were refused before they ran.",
        &|stats| stats.rejected.get() as f64,
    );
    counters("commands_failed_calls_total", "Calls that were answered with an error.", &|stats| {
        stats.failed.get() as f64
    });
    let name = "commands_latency_seconds";
    text.family(name, MetricKind::Summary, "How long calls of a command took, since the start.");
    let percentiles = server.config.percentiles();
    for (command, stats) in &all {
        let Some(counts) = stats.histogram() else { continue };
        let calls: u64 = counts.counts().map(|(_, count)| count).sum();
        if calls == 0 {
            continue;
        }
        for &percentile in &percentiles {
            // Not 0.9990000000000001.
            let quantile = format!("{}", (percentile * 1e6).round() / 1e8);
            let us = histogram::percentile_us(&server.clock, counts, percentile);
            text.sample(name, &[("cmd", command), ("quantile", &quantile)], us / 1e6);
        }
        let sum_s = server.clock.us(stats.ticks.get()) / 1e6;
        text.sample("commands_latency_seconds_sum", &[("cmd", command)], sum_s);
        text.sample("commands_latency_seconds_count", &[("cmd", command)], calls);
    }
}

fn errors(snapshot: &Snapshot<'_>, text: &mut Exposition) {
    text.family("errors_total", MetricKind::Counter, "Errors answered, by their first word.");
    for (code, count) in snapshot.server.errors.all() {
        text.sample("errors_total", &[("err", &code)], count);
    }
}

/// What one worker's figure is made of.
type WorkerFigure<'a> = &'a dyn Fn(&crate::engine::server::WorkerHandle) -> f64;

fn workers(snapshot: &Snapshot<'_>, text: &mut Exposition) {
    let workers = snapshot.server.workers.all();
    let mut each = |name: &str, kind: MetricKind, help: &str, value: WorkerFigure<'_>| {
        text.family(name, kind, help);
        for worker in &workers {
            text.sample(name, &[("worker", &worker.id.to_string())], value(worker));
        }
    };
    let load = |value: &std::sync::atomic::AtomicUsize| value.load(Ordering::Relaxed) as f64;
    let (counter, gauge) = (MetricKind::Counter, MetricKind::Gauge);
    each("worker_connections", gauge, "Connections of a thread.", &|w| load(&w.connections));
    each("worker_backlog_bytes", gauge, "Published messages that wait for a thread.", &|w| {
        load(&w.backlog_bytes)
    });
    each("worker_mailbox_posts", gauge, "Posts in a thread's mailbox.", &|w| {
        w.mailbox.len() as f64
    });
    each("worker_commands_total", counter, "Commands that a thread executed.", &|w| {
        w.stats.totals.commands.get() as f64
    });
    each("worker_turns_total", counter, "Turns of a thread's loop.", &|w| {
        w.stats.totals.turns.get() as f64
    });
    each("worker_busy_seconds_total", counter, "Time between a thread's waits.", &|w| {
        snapshot.server.clock.us(w.stats.totals.busy_ticks.get()) / 1e6
    });
    each("worker_cpu_user_seconds_total", counter, "A thread's processor time of its own.", &|w| {
        w.cpu_time().user_s
    });
    each(
        "worker_cpu_sys_seconds_total",
        counter,
        "A thread's processor time in the kernel.",
        &|w| w.cpu_time().system_s,
    );
}

const PREFIX: &str = "bobbin_";
/// INFO's fields in words that are told as labels. What changes by itself would make a new series
/// each time.
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
/// What the text comes to, about.
const TEXT_USUAL_BYTES: usize = 48 * 1024;

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
            }
        }
    }

    #[test]
    fn labels_are_escaped() {
        let mut text = Exposition(String::new());
        text.sample("x", &[("a", "q\"b\\s\nn"), ("b", "")], 1.5);
        assert_eq!(text.0, "bobbin_x{a=\"q\\\"b\\\\s\\nn\",b=\"\"} 1.5\n");
    }
}
