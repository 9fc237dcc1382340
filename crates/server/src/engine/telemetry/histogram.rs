//! Reads the workers' histograms in microseconds.

use crate::base::clock::Clock;
use crate::engine::telemetry::stats::TickHistogram;

/// How many calls took at most a number of microseconds: (microseconds, calls). The steps double;
/// only those at which the number of calls changes are returned. The bounds are those of Redis's
/// histograms, where the step of 32 us ends at 33.
pub fn powers_of_two(clock: &Clock, histogram: &TickHistogram) -> Vec<(u64, u64)> {
    let mut steps: Vec<(u64, u64)> = Vec::new();
    let (mut step, mut calls) = (FIRST_STEP, 0);
    for (ticks, count) in histogram.counts() {
        let ns = clock.us(ticks) * 1000.0;
        while ns > bound_ns(step) as f64 && step < LAST_STEP {
            step += 1;
        }
        calls += count;
        let us = bound_ns(step) / 1000;
        match steps.last_mut() {
            Some(last) if last.0 == us => last.1 = calls,
            _ => steps.push((us, calls)),
        }
    }
    steps
}

/// How many calls took no longer than each of these bounds (in microseconds, ascending), and the
/// number of all calls. A call near a bound may be counted above it, as the steps of the workers'
/// histograms do not fall on the bounds.
pub fn at_most(clock: &Clock, histogram: &TickHistogram, bounds_us: &[f64]) -> (Vec<u64>, u64) {
    let mut at_most = Vec::with_capacity(bounds_us.len());
    let mut all = 0;
    for (ticks, count) in histogram.counts() {
        let us = clock.us(ticks);
        while bounds_us.get(at_most.len()).is_some_and(|bound| us > *bound) {
            at_most.push(all);
        }
        all += count;
    }
    at_most.resize(bounds_us.len(), all);
    (at_most, all)
}

/// The time in microseconds that this percentage of the calls did not exceed.
pub fn percentile_us(clock: &Clock, histogram: &TickHistogram, percentile: f64) -> f64 {
    let total: u64 = histogram.counts().map(|(_, count)| count).sum();
    let wanted = (total as f64 * percentile / 100.0).ceil().max(1.0) as u64;
    let mut seen = 0;
    for (ticks, count) in histogram.counts() {
        seen += count;
        if seen >= wanted {
            return clock.us(ticks);
        }
    }
    0.0
}

/// The highest value that falls into the same bucket as 2^step nanoseconds, in a histogram that is
/// exact to two digits.
const fn bound_ns(step: u32) -> u64 {
    (1 << step) + (1 << (step - 7)) - 1
}

/// About one microsecond.
const FIRST_STEP: u32 = 10;
/// About nine minutes. Longer calls are counted here.
const LAST_STEP: u32 = 39;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bounds_are_those_of_valkey() {
        let us = |step| bound_ns(step) / 1000;
        assert_eq!((10..19).map(us).collect::<Vec<_>>(), [1, 2, 4, 8, 16, 33, 66, 132, 264]);
    }

    #[test]
    fn counts_add_up_and_percentiles_follow_them() {
        let clock = Clock::new();
        let histogram = TickHistogram::default();
        for us in [3u64, 3, 3, 100] {
            histogram.add(clock.ticks(us));
        }
        let steps = powers_of_two(&clock, &histogram);
        assert_eq!(steps, [(4, 3), (132, 4)]);
        let at_most = |bounds: &[f64]| at_most(&clock, &histogram, bounds);
        assert_eq!(at_most(&[1.0, 10.0, 50.0, 1000.0, 1e6]), (vec![0, 3, 3, 4, 4], 4));
        assert_eq!(at_most(&[]), (vec![], 4));
        assert!((3.0..3.5).contains(&percentile_us(&clock, &histogram, 50.0)));
        assert!((100.0..115.0).contains(&percentile_us(&clock, &histogram, 100.0)));
        assert_eq!(percentile_us(&clock, &TickHistogram::default(), 50.0), 0.0);
    }
}
