//! The sections of commands and errors.

use super::{Lines, Section, SectionShown, Snapshot, line};
use crate::engine::telemetry::histogram;

pub(super) const COMMANDSTATS: Section = Section {
    name: "commandstats",
    title: "Commandstats",
    shown: SectionShown::All,
    lines: Lines::Written(write_commands),
};

pub(super) const ERRORSTATS: Section = Section {
    name: "errorstats",
    title: "Errorstats",
    shown: SectionShown::Default,
    lines: Lines::Written(write_errors),
};

pub(super) const LATENCYSTATS: Section = Section {
    name: "latencystats",
    title: "Latencystats",
    shown: SectionShown::All,
    lines: Lines::Written(write_latencies),
};

fn write_commands(snapshot: &Snapshot<'_>, text: &mut String) {
    for command in snapshot.server.registry.all() {
        let stats = snapshot.server.workers.command_totals(command.id);
        let (calls, rejected, failed) =
            (stats.calls.get(), stats.rejected.get(), stats.failed.get());
        if calls + rejected + failed == 0 {
            continue;
        }
        let us = snapshot.us(stats.ticks.get());
        let mean_us = if calls == 0 { 0.0 } else { us as f64 / calls as f64 };
        line(
            text,
            format_args!(
                "cmdstat_{}:calls={calls},usec={us},usec_per_call={mean_us:.2},\
                 rejected_calls={rejected},failed_calls={failed}",
                command.full_name
            ),
        );
    }
}

fn write_errors(snapshot: &Snapshot<'_>, text: &mut String) {
    for (code, count) in snapshot.server.errors.all() {
        // A script may have made the code up: it must not end the name or begin a title.
        let code = code.replace([':', '#'], "_");
        line(text, format_args!("errorstat_{code}:count={count}"));
    }
}

fn write_latencies(snapshot: &Snapshot<'_>, text: &mut String) {
    let server = snapshot.server;
    // Earlier counts are outdated. Valkey does not show them either.
    if !server.config.latency_tracking() {
        return;
    }
    let percentiles = server.config.percentiles();
    for command in server.registry.all() {
        let stats = server.workers.command_totals(command.id);
        let Some(counts) = stats.histogram().filter(|h| h.counts().next().is_some()) else {
            continue;
        };
        let shown = percentiles.iter().map(|&percentile| {
            let us = histogram::percentile_us(&server.clock, counts, percentile);
            format!("p{percentile}={us:.3}")
        });
        let shown: Vec<String> = shown.collect();
        let name = &command.full_name;
        line(text, format_args!("latency_percentiles_usec_{name}:{}", shown.join(",")));
    }
}
