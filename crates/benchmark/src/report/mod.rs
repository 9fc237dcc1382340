//! What is shown and written of an outcome.

mod distribution;
pub mod json;
pub mod live;
pub mod memtier;
pub mod redis;

use std::time::{Duration, SystemTime};

use hdrhistogram::{
    Histogram,
    serialization::{V2DeflateSerializer, interval_log::IntervalLogWriterBuilder},
};

use crate::engine::LatencyHistogram;

/// The latencies in whole microseconds, exact to `digits` digits.
pub(crate) fn microseconds(latencies: &LatencyHistogram, digits: u8) -> Histogram<u64> {
    let mut result = Histogram::new_with_bounds(1, MICROSECONDS_MAX, digits)
        .expect("the bounds and up to 5 digits are valid");
    for step in latencies.iter_recorded() {
        let us = (step.value_iterated_to() / 1000).max(1);
        result.saturating_record_n(us, step.count_since_last_iteration());
    }
    result
}

/// A quantile in milliseconds.
pub(crate) fn quantile_ms(latencies: &LatencyHistogram, quantile: f64) -> f64 {
    latencies.value_at_quantile(quantile) as f64 / 1e6
}

pub(crate) fn min_ms(latencies: &LatencyHistogram) -> f64 {
    if latencies.is_empty() { 0.0 } else { latencies.min() as f64 / 1e6 }
}

pub(crate) fn max_ms(latencies: &LatencyHistogram) -> f64 {
    latencies.max() as f64 / 1e6
}

/// The distribution in the text format of HdrHistogram's own tools, in milliseconds.
pub fn hdr_text(latencies: &LatencyHistogram) -> String {
    let mut text = format!(
        "{:>12} {:>14} {:>10} {:>14}\n\n",
        "Value", "Percentile", "TotalCount", "1/(1-Percentile)"
    );
    let mut total = 0;
    for step in latencies.iter_quantiles(HDR_TICKS) {
        total += step.count_since_last_iteration();
        let quantile = step.quantile_iterated_to();
        let value = latencies.highest_equivalent(step.value_iterated_to()) as f64 / 1e6;
        text += &format!("{value:12.3} {quantile:14.12} {total:10}");
        text += &match quantile < 1.0 {
            true => format!(" {:14.2}\n", 1.0 / (1.0 - quantile)),
            false => "\n".to_owned(),
        };
    }
    text += &format!(
        "#[Mean    = {:12.3}, StdDeviation   = {:12.3}]\n",
        latencies.mean() / 1e6,
        latencies.stdev() / 1e6
    );
    text += &format!(
        "#[Max     = {:12.3}, Total count    = {:12}]\n",
        max_ms(latencies),
        latencies.len()
    );
    text
}

/// The report for programs: an HdrHistogram log with one line for the whole run, which began at
/// `started`. Values are whole microseconds.
pub fn hdr_log(
    latencies: &LatencyHistogram,
    title: &str,
    started: SystemTime,
    lasted: Duration,
) -> Result<Vec<u8>, String> {
    let mut bytes = Vec::new();
    let mut serializer = V2DeflateSerializer::new();
    let mut log = IntervalLogWriterBuilder::new()
        .add_comment(title)
        .with_start_time(started)
        .begin_log_with(&mut bytes, &mut serializer)
        .map_err(|error| error.to_string())?;
    log.write_histogram(&microseconds(latencies, HDR_DIGITS), Duration::ZERO, lasted, None)
        .map_err(|error| format!("the histogram cannot be written: {error:?}"))?;
    Ok(bytes)
}

const HDR_DIGITS: u8 = 3;
const HDR_TICKS: u32 = 5;
const MICROSECONDS_MAX: u64 = 600_000_000;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::{ClassRecord, LoadOutcome, latencies};
    use hdrhistogram::serialization::interval_log::{IntervalLogIterator, LogEntry};

    /// A second with a hundred requests of one class.
    pub(super) fn outcome() -> LoadOutcome {
        let mut seen = latencies();
        seen.record_n(1_000_000, 100).unwrap();
        let class = ClassRecord {
            name: "GET".into(),
            requests: 100,
            errors: 0,
            moved: 0,
            asked: 0,
            found: 100,
            nulls: 0,
            sent_bytes: 1000,
            received_bytes: 1000,
            latencies: seen,
        };
        LoadOutcome {
            classes: vec![class],
            elapsed: Duration::from_secs(1),
            seconds: Vec::new(),
            first_error: None,
            unanswered: 0,
            warm_up_requests: 0,
            cpu: Duration::ZERO,
            is_interrupted: false,
        }
    }

    #[test]
    fn an_interrupted_run_says_so() {
        let mut outcome = outcome();
        let settings = crate::options::memtier::MemtierSettings::default();
        let header = redis::tests::header();
        for (is_interrupted, text) in [(false, "false"), (true, "true")] {
            outcome.is_interrupted = is_interrupted;
            let section = memtier::json(&settings, &outcome, SystemTime::UNIX_EPOCH);
            assert_eq!(section["Runtime"]["Interrupted"], text);
            assert_eq!(json::test("GET", &outcome, &[100.0])["interrupted"], is_interrupted);
            for text in [
                memtier::text(&settings, "ALL STATS", &outcome).to_lowercase(),
                redis::summary(&header, &outcome),
                redis::text(&header, &outcome),
                redis::short(&header, &outcome),
            ] {
                assert_eq!(text.contains("interrupted"), is_interrupted, "{text}");
            }
        }
    }

    #[test]
    fn redirections_are_in_every_format() {
        let mut outcome = outcome();
        (outcome.classes[0].moved, outcome.classes[0].asked) = (3, 2);
        let document = json::test("GET", &outcome, &[100.0]);
        assert_eq!((&document["moved"], &document["asked"]), (&3.into(), &2.into()));
        assert_eq!(document["requests"], 100, "they count");
        let mut header = redis::tests::header();
        for (is_open, cluster_nodes, end) in [
            (false, None, ",\"1.000\"\n"),
            (false, Some(3), ",\"1.000\",\"5\"\n"),
            (true, Some(3), ",\"1.000\",\"0\",\"5\"\n"),
        ] {
            (header.is_open, header.cluster_nodes) = (is_open, cluster_nodes);
            let line = redis::csv(&header, &outcome);
            assert!(line.ends_with(end), "{line}");
            let titles = redis::csv_header(is_open, cluster_nodes.is_some());
            assert_eq!(titles.matches("\",\"").count(), line.matches("\",\"").count(), "{titles}");
        }
        assert!(redis::csv_header(false, true).ends_with("\"max_latency_ms\",\"redirections\"\n"));
    }

    #[test]
    fn the_log_can_be_read() {
        let mut seen = latencies();
        seen.record_n(1_000_000, 3).unwrap();
        let bytes = hdr_log(&seen, "GET", SystemTime::UNIX_EPOCH, Duration::from_secs(2)).unwrap();
        assert!(bytes.starts_with(b"#GET\n"), "{}", bytes.escape_ascii());
        let intervals: Vec<_> = IntervalLogIterator::new(&bytes)
            .map(Result::unwrap)
            .filter_map(|entry| match entry {
                LogEntry::Interval(interval) => Some(interval.duration()),
                _ => None,
            })
            .collect();
        assert_eq!(intervals, [Duration::from_secs(2)]);
    }
}
