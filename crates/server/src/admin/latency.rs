//! LATENCY.

use bobbin_resp::Aggregate;

use crate::base::clock::system_ms;
use crate::engine::command::{Call, Command, Failure, Flags, Outcome, Registered};
use crate::engine::telemetry::histogram;
use crate::engine::telemetry::latency::Series;

use crate::engine::command::help::{container, help_row};

fn latest(call: &mut Call<'_>) -> Outcome {
    let all = call.server.services.latency.all();
    call.reply.array(all.len());
    for (event, series) in &all {
        let last = series.samples.back();
        call.reply.array(6);
        call.reply.bulk(event.as_bytes());
        call.reply.integer(last.map_or(0, |sample| sample.time_s));
        call.reply.integer(last.map_or(0, |sample| sample.latency_ms as i64));
        call.reply.integer(series.max_ms as i64);
        call.reply.integer(series.sum_ms as i64);
        call.reply.integer(series.count as i64);
    }
    Ok(())
}

fn history(call: &mut Call<'_>) -> Outcome {
    let series = call.server.services.latency.find(call.args[2]).unwrap_or_default();
    call.reply.array(series.samples.len());
    for sample in &series.samples {
        call.reply.array(2);
        call.reply.integer(sample.time_s);
        call.reply.integer(sample.latency_ms as i64);
    }
    Ok(())
}

fn reset(call: &mut Call<'_>) -> Outcome {
    let monitor = &call.server.services.latency;
    let count = match &call.args[2..] {
        [] => monitor.reset_all(),
        events => events.iter().filter(|event| monitor.reset(event)).count(),
    };
    call.reply.integer(count as i64);
    Ok(())
}

fn graph(call: &mut Call<'_>) -> Outcome {
    let event = String::from_utf8_lossy(call.args[2]);
    let Some(series) = call.server.services.latency.find(call.args[2]) else {
        return Err(Failure::format(format!("ERR No samples available for event '{event}'")));
    };
    call.reply.verbatim("txt", series.graph(&event, system_ms() / 1000).as_bytes());
    Ok(())
}

fn doctor(call: &mut Call<'_>) -> Outcome {
    let threshold_ms = call.server.config.latency_monitor_threshold();
    let report = report(threshold_ms, &call.server.services.latency.all());
    call.reply.verbatim("txt", report.as_bytes());
    Ok(())
}

fn report(threshold_ms: i64, all: &[(&str, Series)]) -> String {
    if threshold_ms == 0 {
        return "The latency monitor is off, so there is nothing to examine. Switch it on by \
                \"CONFIG SET latency-monitor-threshold <milliseconds>\" and ask again later.\n"
            .to_owned();
    }
    if all.is_empty() {
        return format!("Nothing took {threshold_ms} ms or longer so far.\n");
    }
    let mut report = format!("Kinds of events that took {threshold_ms} ms or longer:\n\n");
    for (at, (event, series)) in all.iter().enumerate() {
        let (low, high) = series.range_ms();
        let (mean, distance) = series.mean_ms();
        report.push_str(&format!(
            "{}. {event}: {} samples, {low} to {high} ms, mean {mean:.0} ms, mean deviation \
             {distance:.0} ms, longest ever {} ms.\n",
            at + 1,
            series.samples.len(),
            series.max_ms
        ));
    }
    report.push_str("\nWhat may help:\n\n");
    let has = |name| all.iter().any(|(event, _)| *event == name);
    if has("command") {
        report.push_str(
            "- SLOWLOG GET tells which commands were slow; \"slowlog-log-slower-than\" says from when on. \
             Look for commands whose cost grows with the size of a key.\n",
        );
    }
    if has("fast-command") {
        report.push_str(
            "- Commands of constant cost were slow. That is rarely the command: look for a host that \
             swaps, is short of cores, or gives memory in huge pages.\n",
        );
    }
    if has("expire-cycle") {
        report.push_str(
            "- Expiring keys took long: single values were large. \"lazyfree-lazy-expire yes\" frees \
             them in the background.\n",
        );
    }
    if has("eviction-cycle") || has("eviction-del") {
        report.push_str(
            "- Eviction took long: leave more room below \"maxmemory\", or evict smaller values.\n",
        );
    }
    report
}

fn latency_histogram(call: &mut Call<'_>) -> Outcome {
    let registry = &call.server.registry;
    // A map has each name only once, even if the command names it several times.
    let (mut wanted, mut known) = (Vec::new(), vec![false; registry.all().len()]);
    let mut add = |command: &'static Registered| {
        if !std::mem::replace(&mut known[command.id], true) {
            wanted.push(command);
        }
    };
    if call.args.len() == 2 {
        registry.all().iter().for_each(|command| add(command));
    }
    for name in &call.args[2..] {
        let Some(command) = registry.find_full(name) else { continue };
        add(command);
        command.subcommands.iter().for_each(|command| add(command));
    }
    let header = call.reply.defer();
    let mut count = 0;
    for command in wanted {
        let stats = call.server.workers.command_totals(command.id);
        let Some(counts) = stats.histogram() else { continue };
        let steps = histogram::powers_of_two(&call.server.clock, counts);
        let Some(&(_, calls)) = steps.last() else { continue };
        count += 1;
        call.reply.bulk(command.full_name.as_bytes());
        call.reply.map(2);
        call.reply.bulk(b"calls");
        call.reply.integer(calls as i64);
        call.reply.bulk(b"histogram_usec");
        call.reply.map(steps.len());
        for (us, calls) in steps {
            call.reply.integer(us as i64);
            call.reply.integer(calls as i64);
        }
    }
    call.reply.finish(header, Aggregate::Map, count);
    Ok(())
}

const ADMIN: Flags = Flags::ADMIN.with(Flags::NOSCRIPT).with(Flags::LOADING).with(Flags::STALE);
const TIPS: &[&str] =
    &["nondeterministic_output", "request_policy:all_nodes", "response_policy:special"];

pub(super) const COMMANDS: &[Command] = &[Command::new("latency", -2, container)
    .doc("server", "2.8.13", "Depends on subcommand.", "Holds the commands of the latency monitor.")
    .subcommands(&[
        Command::new("doctor", 2, doctor)
            .flags(ADMIN)
            .doc("server", "2.8.13", "O(1)", "Reports in words what was slow.")
            .tips(TIPS),
        Command::new("graph", 3, graph)
            .flags(ADMIN)
            .doc("server", "2.8.13", "O(1)", "Draws the latencies of an event.")
            .syntax("event")
            .tips(TIPS),
        help_row("server", "2.8.13"),
        Command::new("histogram", -2, latency_histogram)
            .flags(ADMIN)
            .doc(
                "server",
                "7.0.0",
                "O(N), N: commands answered",
                "Answers how the latencies of commands are spread.",
            )
            .syntax("[command [command ...]]")
            .tips(TIPS),
        Command::new("history", 3, history)
            .flags(ADMIN)
            .doc("server", "2.8.13", "O(1)", "Answers the samples of an event.")
            .syntax("event")
            .tips(TIPS),
        Command::new("latest", 2, latest)
            .flags(ADMIN)
            .doc("server", "2.8.13", "O(1)", "Answers the last sample of every event.")
            .tips(TIPS),
        Command::new("reset", -2, reset)
            .flags(ADMIN)
            .doc("server", "2.8.13", "O(1)", "Forgets the samples of some events, or of all.")
            .syntax("[event [event ...]]")
            .tips(&["request_policy:all_nodes", "response_policy:agg_sum"]),
    ])];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::telemetry::latency::LatencySample;

    #[test]
    fn the_doctor_speaks_of_what_there_is() {
        assert!(report(0, &[]).contains("is off"));
        assert!(report(5, &[]).contains("Nothing took 5 ms"));
        let mut series = Series::default();
        series.samples.push_back(LatencySample { time_s: 1, latency_ms: 30 });
        let text = report(5, &[("command", series)]);
        assert!(text.contains("1. command: 1 samples, 30 to 30 ms") && text.contains("SLOWLOG"));
        assert!(!text.contains("Eviction"));
    }
}
