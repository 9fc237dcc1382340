//! How much happens in a second: INFO's `instantaneous_` fields.
//!
//! Ten times a second one of the workers takes a sample of the sums of all workers' counters. A
//! rate is the mean over the last samples.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};

use bobbin_sync::Mutex;

use crate::base::clock::Interval;
use crate::engine::telemetry::stats::Totals;

/// The samples that rates are computed from.
#[derive(Default)]
pub struct Rates {
    samples: Interval,
    notes: Mutex<VecDeque<RateSample>>,
}

/// Bytes of replication: received from the primary, and sent to replicas as copies and stream. It
/// has cache lines of its own: workers that feed replicas write it, and every command reads the
/// fields beside it.
#[derive(Default)]
#[repr(align(128))]
pub struct Traffic {
    received: AtomicU64,
    sent: AtomicU64,
}

impl Traffic {
    pub fn add_received(&self, bytes: usize) {
        self.received.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    pub fn add_sent(&self, bytes: usize) {
        self.sent.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    pub fn received(&self) -> u64 {
        self.received.load(Ordering::Relaxed)
    }

    pub fn sent(&self) -> u64 {
        self.sent.load(Ordering::Relaxed)
    }

    pub(super) fn reset(&self) {
        self.received.store(0, Ordering::Relaxed);
        self.sent.store(0, Ordering::Relaxed);
    }
}

/// The sums of the counters at one moment.
#[derive(Clone, Copy, Default, Debug)]
pub struct RateSample {
    pub time_ms: i64,
    pub commands: u64,
    pub net_input_bytes: u64,
    pub net_output_bytes: u64,
    pub repl_input_bytes: u64,
    pub repl_output_bytes: u64,
    pub turns: u64,
    pub busy_ticks: u64,
}

impl Rates {
    /// Whether a sample is due. If so, the caller must take it; no other thread is told so.
    #[inline]
    pub fn claim(&self, now_ms: i64) -> bool {
        self.samples.claim(now_ms, INTERVAL_MS)
    }

    /// Takes a sample.
    pub fn note(&self, totals: &Totals, replication: &Traffic, now_ms: i64) {
        let note = RateSample {
            time_ms: now_ms,
            commands: totals.commands.get(),
            net_input_bytes: totals.net_input_bytes.get(),
            net_output_bytes: totals.net_output_bytes.get(),
            repl_input_bytes: replication.received(),
            repl_output_bytes: replication.sent(),
            turns: totals.turns.get(),
            busy_ticks: totals.busy_ticks.get(),
        };
        let mut notes = self.notes.lock();
        if notes.len() == NOTES_MAX {
            notes.pop_front();
        }
        notes.push_back(note);
    }

    /// How much a counter rises in a second, on average over the last second and a half.
    pub fn per_second(&self, counter: impl Fn(&RateSample) -> u64) -> f64 {
        let (rise, elapsed_ms) = self.rise(&counter);
        if elapsed_ms <= 0 { 0.0 } else { rise as f64 * 1000.0 / elapsed_ms as f64 }
    }

    /// How much one counter rises for each unit that another rises.
    pub fn ratio(
        &self,
        counter: impl Fn(&RateSample) -> u64,
        by: impl Fn(&RateSample) -> u64,
    ) -> f64 {
        let (rise, by) = (self.rise(&counter).0, self.rise(&by).0);
        if by == 0 { 0.0 } else { rise as f64 / by as f64 }
    }

    fn rise(&self, counter: &impl Fn(&RateSample) -> u64) -> (u64, i64) {
        let notes = self.notes.lock();
        let (Some(first), Some(last)) = (notes.front(), notes.back()) else { return (0, 0) };
        (counter(last).saturating_sub(counter(first)), last.time_ms - first.time_ms)
    }

    /// Forgets all samples, as the counters start again.
    pub fn reset(&self) {
        self.notes.lock().clear();
    }
}

const INTERVAL_MS: i64 = 100;
const NOTES_MAX: usize = 16;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_is_the_rise_over_the_time() {
        let rates = Rates::default();
        assert_eq!(rates.per_second(|note| note.commands), 0.0);
        for at in 0..5u64 {
            let note = RateSample {
                time_ms: at as i64 * 100,
                commands: at * 50,
                turns: at * 5,
                ..RateSample::default()
            };
            rates.notes.lock().push_back(note);
        }
        assert_eq!(rates.per_second(|note| note.commands), 500.0);
        assert_eq!(rates.ratio(|note| note.commands, |note| note.turns), 10.0);
    }
}
