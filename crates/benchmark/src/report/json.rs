//! Results as JSON: what `compare` and `sweep` read, and other programs may.

use serde_json::{Value, json};

use super::{max_ms, min_ms, quantile_ms};
use crate::{
    engine::{LatencyHistogram, LoadOutcome},
    provenance::Provenance,
};

/// One test with all its runs; `outcome` is the run that stands for it.
pub fn test(title: &str, outcome: &LoadOutcome, rates: &[f64]) -> Value {
    let latencies = outcome.latencies();
    let seconds: Vec<Value> = outcome
        .seconds
        .iter()
        .map(|second| {
            json!({
                "second": round(second.at.as_secs_f64()),
                "rate": round(second.rate),
                "mean_ms": round(second.mean_ns / 1e6),
                "p50_ms": round(second.p50_ns as f64 / 1e6),
                "p99_ms": round(second.p99_ns as f64 / 1e6),
                "p999_ms": round(second.p999_ns as f64 / 1e6),
                "max_ms": round(second.max_ns as f64 / 1e6),
            })
        })
        .collect();
    json!({
        "test": title,
        "requests": outcome.requests(),
        "errors": outcome.errors(),
        "moved": outcome.moved(),
        "asked": outcome.asked(),
        "nulls": outcome.nulls(),
        "unanswered": outcome.unanswered,
        "interrupted": outcome.is_interrupted,
        "seconds": round(outcome.elapsed.as_secs_f64()),
        "rate": round(outcome.rate()),
        "rates": rates.iter().map(|rate| round(*rate)).collect::<Vec<_>>(),
        "generator_cpu_us": round(outcome.cpu_us_per_request()),
        "latency_ms": summary(&latencies),
        "histogram": histogram(&latencies),
        "series": seconds,
    })
}

/// A whole document of such tests. Of those that were asked for some are missing or not whole where
/// it was interrupted.
pub fn document(
    provenance: &Provenance,
    configuration: Value,
    tests: Vec<Value>,
    is_interrupted: bool,
) -> Value {
    json!({
        "program": "bobbin-benchmark",
        "version": env!("CARGO_PKG_VERSION"),
        "provenance": provenance.json(),
        "configuration": configuration,
        "interrupted": is_interrupted,
        "tests": tests,
    })
}

pub fn summary(latencies: &LatencyHistogram) -> Value {
    json!({
        "mean": round(latencies.mean() / 1e6),
        "min": round(min_ms(latencies)),
        "p50": round(quantile_ms(latencies, 0.5)),
        "p90": round(quantile_ms(latencies, 0.9)),
        "p95": round(quantile_ms(latencies, 0.95)),
        "p99": round(quantile_ms(latencies, 0.99)),
        "p99.9": round(quantile_ms(latencies, 0.999)),
        "p99.99": round(quantile_ms(latencies, 0.9999)),
        "max": round(max_ms(latencies)),
    })
}

/// Pairs of a latency in milliseconds and the share of requests, from 0 to 1, that took no longer.
pub fn histogram(latencies: &LatencyHistogram) -> Value {
    let total = latencies.len().max(1) as f64;
    let mut count = 0;
    let mut points = Vec::new();
    for step in latencies.iter_quantiles(HISTOGRAM_TICKS) {
        if step.count_since_last_iteration() == 0 {
            continue;
        }
        count += step.count_since_last_iteration();
        let value = latencies.highest_equivalent(step.value_iterated_to()) as f64 / 1e6;
        points.push(json!([round(value), count as f64 / total]));
    }
    Value::Array(points)
}

/// To four decimals, which is a tenth of a microsecond where the unit is a millisecond.
pub fn round(number: f64) -> f64 {
    (number * 1e4).round() / 1e4
}

const HISTOGRAM_TICKS: u32 = 10;
