//! What a thread measures, and how that of all threads becomes one outcome.

use std::time::Duration;

use hdrhistogram::Histogram;

use super::LoadOutcome;
use crate::workload::Workload;

/// Latencies in nanoseconds, exact to three digits.
pub type LatencyHistogram = Histogram<u64>;

/// The requests of one class.
#[derive(Clone, Debug)]
pub struct ClassRecord {
    pub name: String,
    pub requests: u64,
    pub errors: u64,
    /// Replies of a cluster that the slot is elsewhere, and that it is on its way there.
    pub moved: u64,
    pub asked: u64,
    /// Values of replies, each of an array, that were there, and that were null.
    pub found: u64,
    pub nulls: u64,
    pub sent_bytes: u64,
    pub received_bytes: u64,
    /// With the age of each request that had no reply at the end, as it took longer than that.
    pub latencies: LatencyHistogram,
}

/// One second of a run.
#[derive(Clone, Debug, PartialEq)]
pub struct Second {
    /// Its end, since requests were counted.
    pub at: Duration,
    pub rate: f64,
    pub mean_ns: f64,
    pub p50_ns: u64,
    pub p99_ns: u64,
    pub p999_ns: u64,
    pub max_ns: u64,
}

/// What one thread brings back.
#[derive(Debug)]
pub(super) struct ThreadRecord {
    pub(super) classes: Vec<ClassRecord>,
    pub(super) first_error: Option<String>,
    pub(super) from_ns: u64,
    pub(super) last_reply_ns: u64,
    /// When the last request of an open loop was due. What comes late counts against the rate, and
    /// so does what does not come.
    pub(super) planned_ns: u64,
    pub(super) unanswered: u64,
    pub(super) warm_up_requests: u64,
    pub(super) cpu: Duration,
    pub(super) is_interrupted: bool,
}

impl ThreadRecord {
    pub(super) fn new(workload: &Workload) -> Self {
        Self {
            classes: workload.classes.iter().map(|name| ClassRecord::new(name)).collect(),
            first_error: None,
            from_ns: 0,
            last_reply_ns: 0,
            planned_ns: 0,
            unanswered: 0,
            warm_up_requests: 0,
            cpu: Duration::ZERO,
            is_interrupted: false,
        }
    }
}

impl ClassRecord {
    fn new(name: &str) -> Self {
        Self {
            name: name.to_owned(),
            requests: 0,
            errors: 0,
            moved: 0,
            asked: 0,
            found: 0,
            nulls: 0,
            sent_bytes: 0,
            received_bytes: 0,
            latencies: latencies(),
        }
    }

    /// Adds what another thread or run saw of the same class.
    pub fn add(&mut self, other: &Self) {
        self.requests += other.requests;
        self.errors += other.errors;
        self.moved += other.moved;
        self.asked += other.asked;
        self.found += other.found;
        self.nulls += other.nulls;
        self.sent_bytes += other.sent_bytes;
        self.received_bytes += other.received_bytes;
        add(&mut self.latencies, &other.latencies);
    }
}

impl Second {
    pub(super) fn new(
        at: Duration,
        lasted: Duration,
        count: u64,
        latencies: &LatencyHistogram,
    ) -> Self {
        Self {
            at,
            rate: count as f64 / lasted.as_secs_f64().max(1e-9),
            mean_ns: latencies.mean(),
            p50_ns: latencies.value_at_quantile(0.5),
            p99_ns: latencies.value_at_quantile(0.99),
            p999_ns: latencies.value_at_quantile(0.999),
            max_ns: latencies.max(),
        }
    }
}

/// An empty histogram.
pub fn latencies() -> LatencyHistogram {
    Histogram::new_with_bounds(1, LATENCY_NS_MAX, SIGNIFICANT_DIGITS)
        .expect("the bounds are valid: 1 is at least 1, and the highest at least twice that")
}

/// Adds `other` to `to`; both are made by [`latencies`].
pub(super) fn add(to: &mut LatencyHistogram, other: &LatencyHistogram) {
    to.add(other).expect("both have the same bounds");
}

pub(super) fn merge(workload: &Workload, records: Vec<ThreadRecord>) -> LoadOutcome {
    let mut whole = ThreadRecord::new(workload);
    whole.from_ns = u64::MAX;
    for record in records {
        for (sum, class) in whole.classes.iter_mut().zip(&record.classes) {
            sum.add(class);
        }
        whole.first_error = whole.first_error.or(record.first_error);
        whole.from_ns = whole.from_ns.min(record.from_ns);
        whole.last_reply_ns = whole.last_reply_ns.max(record.last_reply_ns);
        whole.planned_ns = whole.planned_ns.max(record.planned_ns);
        whole.unanswered += record.unanswered;
        whole.warm_up_requests += record.warm_up_requests;
        whole.cpu += record.cpu;
        whole.is_interrupted |= record.is_interrupted;
    }
    let until_ns = whole.last_reply_ns.max(whole.planned_ns);
    LoadOutcome {
        classes: whole.classes,
        elapsed: Duration::from_nanos(until_ns.saturating_sub(whole.from_ns)),
        seconds: Vec::new(),
        first_error: whole.first_error,
        unanswered: whole.unanswered,
        warm_up_requests: whole.warm_up_requests,
        cpu: whole.cpu,
        is_interrupted: whole.is_interrupted,
    }
}

/// Ten minutes; longer latencies count as this.
pub(super) const LATENCY_NS_MAX: u64 = 600_000_000_000;
const SIGNIFICANT_DIGITS: u8 = 3;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_kept_to_three_figures() {
        let mut latencies = latencies();
        for (count, ns) in
            [(900, 2_171_234), (90, 5_204_321), (10, 20_312_345), (1, 599_999_999_999)]
        {
            latencies.record_n(ns, count).unwrap();
        }
        for (percent, ns) in
            [(50.0, 2_171_234), (95.0, 5_204_321), (99.5, 20_312_345), (100.0, 599_999_999_999u64)]
        {
            let said = latencies.value_at_percentile(percent) as f64;
            let off = (said / ns as f64 - 1.0).abs();
            assert!(off <= 0.001, "p{percent}: {said} instead of {ns}");
        }
    }
}
