//! The counters of a worker. Each worker writes only its own counters; totals are sums over the
//! workers.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

/// A counter with one writer. Adding to it is a load and a store, without a locked instruction.
#[derive(Default)]
pub struct Counter(AtomicU64);

impl Counter {
    /// Only the owner calls this.
    #[inline(always)]
    pub fn add(&self, n: u64) {
        self.0.store(self.0.load(Ordering::Relaxed).wrapping_add(n), Ordering::Relaxed);
    }

    /// Takes back what was added too early. Only the owner calls this.
    #[inline(always)]
    pub fn sub(&self, n: u64) {
        self.add(n.wrapping_neg());
    }

    #[inline(always)]
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    /// Raises the counter to at least `n`. Only the owner calls this.
    #[inline(always)]
    pub fn raise(&self, n: u64) {
        if n > self.get() {
            self.0.store(n, Ordering::Relaxed);
        }
    }

    /// Races with the owner's `add`, which may undo it. CONFIG RESETSTAT therefore takes the gate.
    pub fn reset(&self) {
        self.0.store(0, Ordering::Relaxed);
    }
}

macro_rules! counters {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// A worker's counters.
        #[derive(Default)]
        pub struct Totals { $($(#[$doc])* pub $name: Counter,)* }

        impl Totals {
            /// Adds another worker's counters, for a sum.
            pub fn merge(&self, other: &Self) { $(self.$name.add(other.$name.get());)* }
            pub fn reset(&self) { $(self.$name.reset();)* }
        }
    };
}

counters! {
    /// Commands executed.
    commands,
    connections_received,
    net_input_bytes,
    net_output_bytes,
    keyspace_hits,
    keyspace_misses,
    expired_keys,
    /// Expired fields of hashes.
    expired_fields,
    evicted_keys,
    /// Changes of keys.
    dirty,
    error_replies,
    reads_processed,
    writes_processed,
    turns,
    /// Ticks between waits.
    busy_ticks,
    /// Ticks of the timer's work.
    timer_ticks,
    /// Slices of deleting expired keys that ran out of time.
    expire_slices_cut,
    unexpected_error_replies,
    client_query_buffer_limit_disconnections,
    client_output_buffer_limit_disconnections,
    evicted_clients,
}

/// One command's figures in one worker.
#[derive(Default)]
pub struct CommandStats {
    pub calls: Counter,
    pub ticks: Counter,
    /// How often it was refused before it was executed.
    pub rejected: Counter,
    /// How often it was executed and answered with an error.
    pub failed: Counter,
    histogram: OnceLock<Box<TickHistogram>>,
}

impl CommandStats {
    /// Counts one execution. `track` says whether its time goes into the histogram.
    #[inline(always)]
    pub fn executed(&self, ticks: u64, track: bool) {
        self.calls.add(1);
        self.ticks.add(ticks);
        if track {
            self.histogram.get_or_init(Box::default).add(ticks);
        }
    }

    pub fn histogram(&self) -> Option<&TickHistogram> {
        self.histogram.get().map(|histogram| &**histogram)
    }

    /// Adds another worker's figures of the command, for a sum.
    pub fn merge(&self, other: &Self) {
        self.calls.add(other.calls.get());
        self.ticks.add(other.ticks.get());
        self.rejected.add(other.rejected.get());
        self.failed.add(other.failed.get());
        if let Some(histogram) = other.histogram() {
            self.histogram.get_or_init(Box::default).merge(histogram);
        }
    }

    pub fn reset(&self) {
        self.calls.reset();
        self.ticks.reset();
        self.rejected.reset();
        self.failed.reset();
        if let Some(histogram) = self.histogram.get() {
            histogram.buckets.iter().for_each(Counter::reset);
        }
    }
}

/// Counts by ticks, in buckets that are an eighth of a power of two wide.
pub struct TickHistogram {
    buckets: [Counter; BUCKETS],
}

const SUB_BITS: u32 = 3;
const BUCKETS: usize = (64 - SUB_BITS as usize) << SUB_BITS;

impl Default for TickHistogram {
    fn default() -> Self {
        Self { buckets: std::array::from_fn(|_| Counter::default()) }
    }
}

impl TickHistogram {
    #[inline(always)]
    pub fn add(&self, ticks: u64) {
        self.buckets[Self::bucket(ticks)].add(1);
    }

    #[inline(always)]
    fn bucket(ticks: u64) -> usize {
        let ticks = ticks.clamp(1 << SUB_BITS, u64::MAX >> 3);
        let exponent = 63 - ticks.leading_zeros();
        let sub = (ticks >> (exponent - SUB_BITS)) as usize & ((1 << SUB_BITS) - 1);
        ((exponent - SUB_BITS) as usize) << SUB_BITS | sub
    }

    /// The buckets that are not empty, ascending: (the highest ticks of the bucket, the count).
    pub fn counts(&self) -> impl Iterator<Item = (u64, u64)> {
        self.buckets.iter().enumerate().filter(|(_, count)| count.get() > 0).map(|(i, count)| {
            let (exponent, sub) = (i >> SUB_BITS, i as u64 & ((1 << SUB_BITS) - 1));
            ((((1 << SUB_BITS) + sub + 1) << exponent) - 1, count.get())
        })
    }

    /// Adds another histogram's counts, for a sum.
    pub fn merge(&self, other: &Self) {
        for (mine, theirs) in self.buckets.iter().zip(&other.buckets) {
            mine.add(theirs.get());
        }
    }
}

/// All counters of one worker.
pub struct WorkerStats {
    pub totals: Totals,
    /// By command id.
    pub commands: Box<[CommandStats]>,
    /// The maxima over all turns.
    pub longest_turn_ticks: Counter,
    pub most_commands: Counter,
}

impl WorkerStats {
    pub fn new(commands: usize) -> Self {
        Self {
            totals: Totals::default(),
            commands: (0..commands).map(|_| CommandStats::default()).collect(),
            longest_turn_ticks: Counter::default(),
            most_commands: Counter::default(),
        }
    }

    /// Counts a turn in which `commands` commands were executed.
    #[inline]
    pub fn turned(&self, ticks: u64, commands: u64) {
        self.totals.turns.add(1);
        self.totals.busy_ticks.add(ticks);
        self.longest_turn_ticks.raise(ticks);
        self.most_commands.raise(commands);
    }

    /// Adds another worker's figures, for a sum.
    pub fn merge(&self, other: &Self) {
        self.totals.merge(&other.totals);
        self.longest_turn_ticks.raise(other.longest_turn_ticks.get());
        self.most_commands.raise(other.most_commands.get());
        for (mine, theirs) in self.commands.iter().zip(&other.commands) {
            mine.merge(theirs);
        }
    }

    pub fn reset(&self) {
        self.totals.reset();
        self.longest_turn_ticks.reset();
        self.most_commands.reset();
        self.commands.iter().for_each(CommandStats::reset);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bucket_holds_what_its_bound_says() {
        let mut last = 0;
        for ticks in [8u64, 9, 15, 16, 17, 18, 100, 1000, 123_456_789, 1 << 40] {
            let histogram = TickHistogram::default();
            histogram.add(ticks);
            let (bound, count) = histogram.counts().next().unwrap();
            assert_eq!(count, 1);
            assert!(bound >= ticks && bound <= ticks + ticks / 8, "{ticks} in {bound}");
            assert!(bound >= last);
            last = bound;
        }
    }
}
