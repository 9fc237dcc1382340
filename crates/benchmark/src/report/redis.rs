//! The short summary, and redis-benchmark's reports: the long text, one line, one line of CSV.

use super::{distribution, max_ms, microseconds, min_ms, quantile_ms};
use crate::engine::LoadOutcome;

/// What the report says about how a test ran.
#[derive(Clone, Debug)]
pub struct ReportHeader {
    pub title: String,
    pub clients: usize,
    pub payload_bytes: usize,
    pub pipeline: usize,
    pub keep_alive: bool,
    /// 0 where it was not asked for.
    pub threads: usize,
    /// The number of nodes of a cluster.
    pub cluster_nodes: Option<usize>,
    /// The server's options save and appendonly.
    pub server: Option<(String, String)>,
    pub digits: u8,
    /// Whether requests were due at times of their own.
    pub is_open: bool,
}

/// What most readers want to know: the rate, a few percentiles, and how the latencies are spread.
/// The lines that redis-benchmark has too are as there.
pub fn summary(header: &ReportHeader, outcome: &LoadOutcome) -> String {
    let mut text = completed(header, outcome);
    let mut parts = vec![format!("{} clients", header.clients)];
    if header.threads > 0 {
        parts.push(format!("{} threads", header.threads));
    }
    parts.push(format!("pipeline {}", header.pipeline));
    parts.push(format!("{} bytes payload", header.payload_bytes));
    if !header.keep_alive {
        parts.push("a connection for each pipeline".into());
    }
    text += &format!("  {}\n", parts.join(", "));
    if let Some(nodes) = header.cluster_nodes {
        text += &format!("  cluster mode: yes ({nodes} primaries)\n");
    }
    text += &faults(outcome);
    text.push('\n');
    text += &throughput_and_latency(outcome);
    let chart = distribution::chart(&outcome.latencies());
    if chart.is_empty() { text } else { format!("{text}\n{chart}") }
}

/// The long report.
pub fn text(header: &ReportHeader, outcome: &LoadOutcome) -> String {
    let latencies = outcome.latencies();
    let mut text = completed(header, outcome);
    text += &format!("  {} parallel clients\n", header.clients);
    text += &format!("  {} bytes payload\n", header.payload_bytes);
    text += &format!("  keep alive: {}\n", u8::from(header.keep_alive));
    if let Some(nodes) = header.cluster_nodes {
        text += &format!("  cluster mode: yes ({nodes} primaries)\n");
    } else if let Some((save, append_only)) = &header.server {
        text += &format!("  host configuration \"save\": {save}\n");
        text += &format!("  host configuration \"appendonly\": {append_only}\n");
    }
    text += &format!("  multi-thread: {}\n", if header.threads > 0 { "yes" } else { "no" });
    if header.threads > 0 {
        text += &format!("  threads: {}\n", header.threads);
    }
    text += &faults(outcome);
    let us = microseconds(&latencies, header.digits.max(1));
    let total = us.len();
    text += "\nLatency by percentile distribution:\n";
    let mut count = 0;
    let mut shown = None;
    for step in us.iter_quantiles(1) {
        count += step.count_since_last_iteration();
        if shown != Some(count) || count == total {
            let value = us.highest_equivalent(step.value_iterated_to()) as f64 / 1e3;
            let percent = step.quantile_iterated_to() * 100.0;
            text += &line(percent, value, count);
        }
        shown = Some(count);
    }
    text += "\nCumulative distribution of latencies:\n";
    let mut shown = None;
    let mut bound = 0;
    while total > 0 && shown != Some(total) {
        bound += if bound < FINE_US_MAX { 100 } else { 1000 };
        let count = us.count_between(0, bound);
        if shown != Some(count) {
            let value = us.highest_equivalent(bound) as f64 / 1e3;
            text += &line(count as f64 / total as f64 * 100.0, value, count);
        }
        shown = Some(count);
    }
    text += "\nSummary:\n";
    text + &throughput_and_latency(outcome)
}

fn completed(header: &ReportHeader, outcome: &LoadOutcome) -> String {
    let seconds = outcome.elapsed.as_secs_f64();
    format!(
        "====== {} ======\n  {} requests completed in {seconds:.2} seconds\n",
        header.title,
        outcome.requests()
    )
}

fn faults(outcome: &LoadOutcome) -> String {
    let mut text = String::new();
    if outcome.is_interrupted {
        text += "  interrupted before its end\n";
    }
    if outcome.errors() > 0 {
        text += &format!("  error replies: {}\n", outcome.errors());
    }
    if outcome.nulls() > 0 {
        text += &format!(
            "  null values in replies: {} ({:.1}%), of keys that are not there\n",
            outcome.nulls(),
            outcome.nulls() as f64 / (outcome.found() + outcome.nulls()) as f64 * 100.0
        );
    }
    if outcome.unanswered > 0 {
        text += &format!("  without reply at the end: {}\n", outcome.unanswered);
    }
    text
}

fn throughput_and_latency(outcome: &LoadOutcome) -> String {
    let mut text = format!("  throughput summary: {:.2} requests per second\n", outcome.rate());
    text += "  latency summary (msec):\n   ";
    for name in ["avg", "min", "p50", "p95", "p99", "max"] {
        text += &format!(" {name:>9}");
    }
    text += "\n   ";
    for value in numbers(outcome) {
        text += &format!(" {value:9.3}");
    }
    text + "\n"
}

/// The line of `-q`.
pub fn short(header: &ReportHeader, outcome: &LoadOutcome) -> String {
    let p50 = quantile_ms(&outcome.latencies(), 0.5);
    let unanswered = match outcome.unanswered {
        0 => String::new(),
        count => format!(", {count} without reply"),
    };
    let interrupted = if outcome.is_interrupted { ", interrupted" } else { "" };
    let ends = format!("{unanswered}{interrupted}");
    let rate = outcome.rate();
    format!("{}: {rate:.2} requests per second, p50={p50:.3} msec{ends}\n", header.title)
}

/// A line of CSV.
pub fn csv(header: &ReportHeader, outcome: &LoadOutcome) -> String {
    let mut line = format!("{},\"{:.2}\"", csv_text(&header.title), outcome.rate());
    for value in numbers(outcome) {
        line += &format!(",\"{value:.3}\"");
    }
    if header.is_open {
        line += &format!(",\"{}\"", outcome.unanswered);
    }
    if header.cluster_nodes.is_some() {
        line += &format!(",\"{}\"", outcome.redirections());
    }
    line + "\n"
}

/// A cell of CSV that is a text, which stays one line.
pub(crate) fn csv_text(text: &str) -> String {
    format!("\"{}\"", text.replace('"', "\"\"").replace('\n', "\\n").replace('\r', "\\r"))
}

/// The first line of CSV: redis-benchmark's, one more column of an open loop, which it has not, and
/// one of a cluster, whose redirections it does not count.
pub fn csv_header(is_open: bool, is_cluster: bool) -> String {
    let unanswered = if is_open { ",\"unanswered\"" } else { "" };
    let redirections = if is_cluster { ",\"redirections\"" } else { "" };
    format!("{CSV_HEADER}{unanswered}{redirections}\n")
}

const CSV_HEADER: &str = "\"test\",\"rps\",\"avg_latency_ms\",\"min_latency_ms\",\"p50_latency_ms\",\
                              \"p95_latency_ms\",\"p99_latency_ms\",\"max_latency_ms\"";

/// Average, minimum, three percentiles and maximum in milliseconds.
fn numbers(outcome: &LoadOutcome) -> [f64; 6] {
    let latencies = outcome.latencies();
    let quantile = |quantile| quantile_ms(&latencies, quantile);
    let average = latencies.mean() / 1e6;
    [average, min_ms(&latencies), quantile(0.5), quantile(0.95), quantile(0.99), max_ms(&latencies)]
}

fn line(percent: f64, value_ms: f64, count: u64) -> String {
    format!("{percent:.3}% <= {value_ms:.3} milliseconds (cumulative count {count})\n")
}

/// Up to here the distribution has steps of 0.1 ms, then of 1 ms.
const FINE_US_MAX: u64 = 2000;

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    pub(in super::super) fn header() -> ReportHeader {
        ReportHeader {
            title: "GET".into(),
            clients: 50,
            payload_bytes: 3,
            pipeline: 1,
            keep_alive: true,
            threads: 0,
            cluster_nodes: None,
            server: None,
            digits: 3,
            is_open: false,
        }
    }

    #[test]
    fn titles_are_one_cell_of_one_line() {
        assert_eq!(csv_text("SET a\"b\r\n c,d"), r#""SET a""b\r\n c,d""#);
    }
}
