//! Time: one clock in milliseconds for all workers, and a cheap counter to measure commands.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use bobbin_store::log::NumberClock;
use bobbin_sync::OwnLine;

/// The time that decides which keys have expired. Workers advance it at the start of a turn and all
/// read the same value, so a key that has expired for one of them has expired for all.
pub struct Clock {
    now_ms: OwnLine<AtomicI64>,
    /// The time that a test has set; 0 for the system's time.
    fixed_ms: AtomicI64,
    started: Instant,
    started_ticks: u64,
    ticks_per_us: f64,
}

impl Default for Clock {
    fn default() -> Self {
        Self::new()
    }
}

impl Clock {
    /// The first call calibrates the tick counter, which takes some milliseconds.
    pub fn new() -> Self {
        static TICKS_PER_US: OnceLock<f64> = OnceLock::new();
        let (started, started_ticks) = (Instant::now(), ticks());
        let measure = || {
            std::thread::sleep(Duration::from_millis(5));
            let elapsed_us = started.elapsed().as_nanos() as f64 / 1000.0;
            (ticks() - started_ticks) as f64 / elapsed_us
        };
        #[cfg(test)]
        let is_simulated = crate::simulation::ticks::shared().is_some();
        #[cfg(not(test))]
        let is_simulated = false;
        let ticks_per_us = match is_simulated {
            true => SIMULATED_PER_US,
            false => *TICKS_PER_US.get_or_init(measure),
        };
        let now_ms = OwnLine(AtomicI64::new(system_ms()));
        Self { now_ms, fixed_ms: AtomicI64::new(0), started, started_ticks, ticks_per_us }
    }

    /// Unix time in milliseconds, as of the last `advance` of any worker.
    #[inline(always)]
    pub fn now_ms(&self) -> i64 {
        self.now_ms.0.load(Ordering::Relaxed)
    }

    /// Reads the system's clock. The time goes back only if that clock was set back.
    #[inline]
    pub fn advance(&self) -> i64 {
        // Loaded before the system's clock is read, so that whatever a thread stored was read
        // before, too.
        let before_ms = self.now_ms();
        let system_ms = match self.fixed_ms.load(Ordering::Relaxed) {
            0 => system_ms(),
            _ => return before_ms,
        };
        if system_ms > before_ms {
            self.now_ms.0.fetch_max(system_ms, Ordering::Relaxed);
        } else if before_ms - system_ms > SET_BACK_MS {
            self.follow_back(before_ms, system_ms);
        }
        self.now_ms()
    }

    /// Follows the system's clock, which was set back.
    #[cold]
    fn follow_back(&self, before_ms: i64, system_ms: i64) {
        let order = Ordering::Relaxed;
        if self.now_ms.0.compare_exchange(before_ms, system_ms, order, order).is_ok() {
            log::warn!("The system's clock was set back by {} ms", before_ms - system_ms);
        }
    }

    /// Fixes the time (Unix ms) until it is fixed again.
    pub fn fix(&self, now_ms: i64) {
        self.fixed_ms.store(now_ms, Ordering::Relaxed);
        self.now_ms.0.store(now_ms, Ordering::Relaxed);
    }

    /// An instant to measure spans of time. It stands still when a test fixes the time.
    pub fn instant(&self) -> Instant {
        match self.fixed_ms.load(Ordering::Relaxed) {
            0 => Instant::now(),
            ms => self.started + Duration::from_millis(ms as u64),
        }
    }

    /// The time since an instant from [`Self::instant`].
    pub fn since(&self, instant: Instant) -> Duration {
        self.instant().saturating_duration_since(instant)
    }

    pub fn uptime_ms(&self) -> u64 {
        self.started.elapsed().as_millis() as u64
    }

    /// Converts ticks to microseconds.
    #[inline]
    pub fn us(&self, ticks: u64) -> f64 {
        ticks as f64 / self.ticks_per_us
    }

    /// Converts microseconds to ticks.
    pub fn ticks(&self, us: u64) -> u64 {
        (us as f64 * self.ticks_per_us) as u64
    }

    /// Microseconds since the start.
    pub fn monotonic_us(&self) -> u64 {
        self.us(ticks() - self.started_ticks) as u64
    }
}

/// By how much the system's clock must be behind for the server's time to go back. A clock that is
/// corrected by less is waited for.
const SET_BACK_MS: i64 = 1000;

/// Whether a moment has come that was at most `ahead_max_ms` ahead when it was chosen. If it is
/// much further ahead now, the system's clock was set back since, and it has come as well.
#[inline]
pub const fn has_come(now_ms: i64, moment_ms: i64, ahead_max_ms: i64) -> bool {
    now_ms >= moment_ms || moment_ms - now_ms > ahead_max_ms.saturating_add(SET_BACK_MS)
}

/// Whether `span_ms` have gone by since a moment. If the moment is ahead of now, the system's clock
/// was set back since, and they count as gone by.
#[inline]
pub const fn has_passed(now_ms: i64, since_ms: i64, span_ms: i64) -> bool {
    has_come(now_ms, since_ms.saturating_add(span_ms), span_ms)
}

/// Work that one thread does for all, once in each interval.
#[derive(Default)]
pub struct Interval {
    due_ms: AtomicI64,
}

impl Interval {
    pub const fn new() -> Self {
        Self { due_ms: AtomicI64::new(0) }
    }

    /// Whether the work is due. If so, the caller must do it: it is not due for another thread
    /// until `interval_ms` have gone by.
    #[inline]
    pub fn claim(&self, now_ms: i64, interval_ms: i64) -> bool {
        let due_ms = self.due_ms.load(Ordering::Relaxed);
        has_come(now_ms, due_ms, interval_ms) && self.claim_after(due_ms, now_ms + interval_ms)
    }

    #[cold]
    fn claim_after(&self, due_ms: i64, next_ms: i64) -> bool {
        let order = Ordering::Relaxed;
        self.due_ms.compare_exchange(due_ms, next_ms, order, order).is_ok()
    }

    /// Makes the work due at once.
    pub fn make_due(&self) {
        self.due_ms.store(0, Ordering::Relaxed);
    }
}

/// A simulated counter counts nanoseconds.
pub const SIMULATED_PER_US: f64 = 1_000.0;

/// Unix time in milliseconds.
pub fn system_ms() -> i64 {
    system_us() / 1000
}

/// Unix time in microseconds.
pub fn system_us() -> i64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_micros() as i64)
}

/// A clock that orders the actions of threads: if one thread reads it after another thread did, it
/// reads a larger number. Returns `None` if no such clock is known, or if reading it takes long.
///
/// The kernel promises that its monotonic clock never goes back, on whatever core it is read, even
/// after the machine has slept. If the kernel reads the processor's time stamp, one nanosecond is
/// less than a thread needs to see what another one wrote, so no two numbers are equal by chance.
pub fn number_clock() -> Option<NumberClock> {
    #[cfg(test)]
    if let Some(ticks) = crate::simulation::ticks::shared() {
        return Some(Box::new(move || ticks.lock().read()));
    }
    let source = std::fs::read_to_string(CLOCK_SOURCE).ok()?;
    if cfg!(not(target_arch = "x86_64")) || source.trim_end() != "tsc" {
        return None;
    }
    let start = Instant::now();
    Some(Box::new(move || start.elapsed().as_nanos() as u64))
}

/// Names the source of the kernel's clock.
const CLOCK_SOURCE: &str = "/sys/devices/system/clocksource/clocksource0/current_clocksource";

/// A counter that rises at a constant rate. Where the processor has a time stamp, it is that, and
/// takes some 20 cycles to read.
#[inline(always)]
pub fn ticks() -> u64 {
    #[cfg(test)]
    if let Some(ticks) = crate::simulation::ticks::read() {
        return ticks;
    }
    #[cfg(target_arch = "x86_64")]
    // SAFETY: every x86-64 processor has this instruction.
    unsafe {
        std::arch::x86_64::_rdtsc()
    }
    #[cfg(not(target_arch = "x86_64"))]
    {
        use std::sync::OnceLock;
        static START: OnceLock<Instant> = OnceLock::new();
        START.get_or_init(Instant::now).elapsed().as_nanos() as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_follows_a_clock_that_was_set_back() {
        const HOUR_MS: i64 = 3_600_000;
        let clock = Clock::new();
        for was_ahead_ms in [HOUR_MS, -HOUR_MS] {
            let before_ms = system_ms();
            clock.now_ms.0.store(before_ms + was_ahead_ms, Ordering::Relaxed);
            let now_ms = clock.advance();
            assert!((before_ms..=system_ms()).contains(&now_ms), "{was_ahead_ms}: {now_ms}");
        }
        // A small correction is waited for.
        let ahead_ms = system_ms() + SET_BACK_MS / 2;
        clock.now_ms.0.store(ahead_ms, Ordering::Relaxed);
        assert!(clock.advance() >= ahead_ms);
    }

    #[test]
    fn a_span_passes_however_the_clock_is_set_back() {
        const HOUR_MS: i64 = 3_600_000;
        let passed = |now_ms: i64| has_passed(now_ms, 5 * HOUR_MS, 100);
        let moments = [5 * HOUR_MS, 5 * HOUR_MS + 99, 5 * HOUR_MS + 100, 4 * HOUR_MS];
        assert_eq!(moments.map(passed), [false, false, true, true]);
        // A small correction is waited for, as the clock is.
        assert!(!passed(5 * HOUR_MS - SET_BACK_MS));
        assert!(!has_passed(0, 0, i64::MAX) && !has_passed(HOUR_MS, HOUR_MS, i64::MAX));
    }

    #[test]
    fn work_is_due_once_in_each_interval() {
        let interval = Interval::new();
        let claims = |now_ms: i64| interval.claim(now_ms, 100);
        assert_eq!([1000, 1000, 1099, 1100, 1150].map(claims), [true, false, false, true, false]);
        // The clock was set back by an hour.
        assert_eq!([1000 - 3_600_000, 1050 - 3_600_000].map(claims), [true, false]);
        // A thread whose turn began earlier still has an older time.
        assert_eq!([500 - 3_600_000, 1100 - 3_600_000].map(claims), [false, true]);
        interval.make_due();
        assert!(claims(1101 - 3_600_000) && !claims(1101 - 3_600_000));
    }
}
