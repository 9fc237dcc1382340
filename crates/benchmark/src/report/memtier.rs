//! memtier_benchmark's reports: the table, the histogram, the JSON file.

use std::time::SystemTime;

use serde_json::{Map, Value, json};

use super::{json::round, max_ms, microseconds, min_ms, quantile_ms};
use crate::{
    engine::{ClassRecord, LatencyHistogram, LoadOutcome},
    options::memtier::MemtierSettings,
};

/// A table under a title, and the histogram unless it is hidden.
pub fn text(settings: &MemtierSettings, title: &str, outcome: &LoadOutcome) -> String {
    let all = outcome.latencies();
    let rows = rows(settings, outcome, &all);
    let columns = columns(settings);
    let first = rows.iter().map(|row| row.name.len()).max().unwrap_or(0).max(NAME_WIDTH - 1) + 1;
    let width = first + columns.iter().map(|column| column.width + 1).sum::<usize>();
    let mut text = format!("{title}\n{}\n{:<first$}", "=".repeat(width), "Type");
    for column in &columns {
        text += &format!("{:>1$} ", column.title, column.width);
    }
    text += &format!("\n{}\n", "-".repeat(width));
    for row in &rows {
        text += &format!("{:<first$}", row.name);
        for column in &columns {
            let value = (column.value)(row)
                .map_or_else(|| "---".to_owned(), |value| format!("{value:.*}", column.decimals));
            text += &format!("{value:>0$} ", column.width);
        }
        text.push('\n');
    }
    if outcome.is_interrupted {
        text += "Interrupted before its end\n";
    }
    if outcome.unanswered > 0 {
        text += &format!("Without reply at the end: {}\n", outcome.unanswered);
    }
    if outcome.errors() > 0 {
        text += &format!("Error replies: {}\n", outcome.errors());
    }
    if !settings.hide_histogram {
        text += "\n\n";
        text += &histogram(outcome);
        text += "\n\n";
    }
    text
}

/// The report as JSON, for the section of that title.
pub fn json(settings: &MemtierSettings, outcome: &LoadOutcome, started: SystemTime) -> Value {
    let mut section = Map::new();
    let since = started.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    section.insert(
        "Runtime".into(),
        json!({
            "Start time": since.as_millis() as u64,
            "Finish time": (since + outcome.elapsed).as_millis() as u64,
            "Total duration": outcome.elapsed.as_millis() as u64,
            "Time unit": "MILLISECONDS",
            "Interrupted": outcome.is_interrupted.to_string(),
        }),
    );
    let all = outcome.latencies();
    for row in rows(settings, outcome, &all) {
        let mut percentiles = Map::new();
        for &percentile in &settings.percentiles {
            let value = quantile_ms(row.latencies, percentile / 100.0);
            percentiles.insert(format!("p{percentile:.2}"), json!(round(value)));
        }
        let mut object = json!({
            "Count": row.requests,
            "Ops/sec": round(row.rate(row.requests)),
            "Hits/sec": round(row.rate(row.hits.unwrap_or(0))),
            "Misses/sec": round(row.rate(row.misses.unwrap_or(0))),
            "Errors": row.errors,
            "Average Latency": round(row.latencies.mean() / 1e6),
            "Min Latency": round(min_ms(row.latencies)),
            "Max Latency": round(max_ms(row.latencies)),
            "KB/sec": round(row.rate(row.sent + row.received) / 1024.0),
            "KB/sec RX": round(row.rate(row.received) / 1024.0),
            "KB/sec TX": round(row.rate(row.sent) / 1024.0),
            "Percentile Latencies": percentiles,
        });
        if settings.common.cluster {
            object["MOVED/sec"] = json!(round(row.rate(row.moved)));
            object["ASK/sec"] = json!(round(row.rate(row.asked)));
        }
        if row.name == TOTALS {
            let mut series = Map::new();
            for (number, second) in outcome.seconds.iter().enumerate() {
                series.insert(
                    number.to_string(),
                    json!({
                        "Count": second.rate.round() as u64,
                        "Average Latency": round(second.mean_ns / 1e6),
                        "Max Latency": round(second.max_ns as f64 / 1e6),
                        "p50.00": round(second.p50_ns as f64 / 1e6),
                        "p99.00": round(second.p99_ns as f64 / 1e6),
                        "p99.90": round(second.p999_ns as f64 / 1e6),
                    }),
                );
            }
            object["Time-Serie"] = Value::Object(series);
            object["Unanswered"] = json!(outcome.unanswered);
        }
        section.insert(row.name.clone(), object);
    }
    for class in &outcome.classes {
        let points: Vec<Value> = steps(&class.latencies)
            .into_iter()
            .map(|(ms, percent)| json!({ "<=msec": round(ms), "percent": round(percent) }))
            .collect();
        section.insert(command_name(&class.name), Value::Array(points));
    }
    Value::Object(section)
}

/// What the table calls a command: `Lpushs` for LPUSH.
pub fn row_name(command: &[u8]) -> String {
    let text = String::from_utf8_lossy(command).to_lowercase();
    let mut letters = text.chars();
    let first = letters.next().map(|letter| letter.to_ascii_uppercase());
    first.into_iter().chain(letters).chain(['s']).collect()
}

/// The command that a row of the table is about.
pub fn command_name(row: &str) -> String {
    row.strip_suffix('s').unwrap_or(row).to_uppercase()
}

/// A row of the table.
struct Row<'a> {
    name: String,
    requests: u64,
    errors: u64,
    hits: Option<u64>,
    misses: Option<u64>,
    moved: u64,
    asked: u64,
    sent: u64,
    received: u64,
    latencies: &'a LatencyHistogram,
    seconds: f64,
}

impl Row<'_> {
    fn rate(&self, count: u64) -> f64 {
        count as f64 / self.seconds
    }
}

/// A column of the table; its value may be absent.
struct Column {
    title: String,
    width: usize,
    decimals: usize,
    value: Cell,
}

/// What a column shows of a row.
type Cell = Box<dyn Fn(&Row<'_>) -> Option<f64>>;

/// `all` holds the latencies of all classes.
fn rows<'a>(
    settings: &MemtierSettings,
    outcome: &'a LoadOutcome,
    all: &'a LatencyHistogram,
) -> Vec<Row<'a>> {
    let seconds = outcome.elapsed.as_secs_f64().max(1e-9);
    let is_mixed = settings.commands.is_empty();
    let row = |class: &'a ClassRecord| {
        // Of the two kinds only GET can miss.
        let can_miss = is_mixed && class.name == "Gets";
        Row {
            name: class.name.clone(),
            requests: class.requests,
            errors: class.errors,
            hits: can_miss.then_some(class.found),
            misses: can_miss.then_some(class.nulls),
            moved: class.moved,
            asked: class.asked,
            sent: class.sent_bytes,
            received: class.received_bytes,
            latencies: &class.latencies,
            seconds,
        }
    };
    let mut rows: Vec<_> = outcome.classes.iter().map(row).collect();
    let sum = |count: fn(&Row<'_>) -> u64| rows.iter().map(count).sum::<u64>();
    rows.push(Row {
        name: TOTALS.into(),
        requests: sum(|row| row.requests),
        errors: sum(|row| row.errors),
        hits: is_mixed.then(|| sum(|row| row.hits.unwrap_or(0))),
        misses: is_mixed.then(|| sum(|row| row.misses.unwrap_or(0))),
        moved: sum(|row| row.moved),
        asked: sum(|row| row.asked),
        sent: sum(|row| row.sent),
        received: sum(|row| row.received),
        latencies: all,
        seconds,
    });
    rows
}

fn columns(settings: &MemtierSettings) -> Vec<Column> {
    let column = |title: &str, width, decimals, value: Cell| Column {
        title: title.into(),
        width,
        decimals,
        value,
    };
    let latency = |row: &Row<'_>, value: f64| (row.requests > 0).then_some(value);
    let mut columns = vec![column("Ops/sec", 12, 2, Box::new(|row| Some(row.rate(row.requests))))];
    if settings.commands.is_empty() {
        columns.push(column("Hits/sec", 12, 2, Box::new(|row| Some(row.rate(row.hits?)))));
        columns.push(column("Misses/sec", 12, 2, Box::new(|row| Some(row.rate(row.misses?)))));
    }
    if settings.common.cluster {
        let moved = |row: &Row<'_>| Some(row.rate(row.moved));
        columns.push(column("MOVED/sec", 12, 2, Box::new(moved)));
        let asked = |row: &Row<'_>| Some(row.rate(row.asked));
        columns.push(column("ASK/sec", 12, 2, Box::new(asked)));
    }
    let mean = move |row: &Row<'_>| latency(row, row.latencies.mean() / 1e6);
    columns.push(column("Avg. Latency", 15, 5, Box::new(mean)));
    for &percentile in &settings.percentiles {
        let value =
            move |row: &Row<'_>| latency(row, quantile_ms(row.latencies, percentile / 100.0));
        columns.push(column(&format!("p{percentile} Latency"), 15, 5, Box::new(value)));
    }
    let kilobytes = |row: &Row<'_>| Some(row.rate(row.sent + row.received) / 1024.0);
    columns.push(column("KB/sec", 12, 2, Box::new(kilobytes)));
    columns
}

fn histogram(outcome: &LoadOutcome) -> String {
    let mut text = "Request Latency Distribution\nType     <= msec         Percent\n".to_owned();
    text += &"-".repeat(HISTOGRAM_WIDTH);
    text.push('\n');
    for (number, class) in outcome.classes.iter().enumerate() {
        if number > 0 {
            text += "---\n";
        }
        let name = command_name(&class.name);
        for (ms, percent) in steps(&class.latencies) {
            text += &format!("{name:<6} {ms:8.3} {percent:12.3}\n");
        }
    }
    text
}

/// Latencies in milliseconds and the percentage of requests that took no longer.
fn steps(latencies: &LatencyHistogram) -> Vec<(f64, f64)> {
    let us = microseconds(latencies, 3);
    us.iter_quantiles(HISTOGRAM_TICKS)
        .map(|step| {
            let value = us.highest_equivalent(step.value_iterated_to()) as f64 / 1e3;
            (value, step.quantile_iterated_to() * 100.0)
        })
        .collect()
}

const TOTALS: &str = "Totals";
const NAME_WIDTH: usize = 8;
const HISTOGRAM_WIDTH: usize = 72;
const HISTOGRAM_TICKS: u32 = 10;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_rows_and_commands() {
        assert_eq!(row_name(b"LPUSH"), "Lpushs");
        assert_eq!(command_name("Lpushs"), "LPUSH");
        assert_eq!(command_name("Sets"), "SET");
    }
}
