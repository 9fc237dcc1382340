//! When and how often an entry was used: the 28 bits that eviction reads.
//!
//! Under LRU they are the time of the last access in sixteenths of a second, modulo 2^28. Like
//! Redis's 24 bits of seconds, they wrap around after 194 days. Whole seconds would tell nothing
//! about a cache that is refilled every second. A server that does not evict needs no fractions and
//! leaves them out (`coarse`).
//!
//! Under LFU they are the minute of the last access (14 bits), from which the counter decays, the
//! 64th part of that minute (6 bits) and a logarithmic counter (8 bits). Redis has no parts, and
//! has 16 bits of minutes, which wrap around after 45 days instead of 11. The parts distinguish the
//! many entries that are used equally often: on loads with Zipf's distribution half a percent more
//! of all reads are hits.
//!
//! In both cases the bits are written only when their value changes, so most reads write nothing.

/// The counter of a new key under LFU, so that it is not evicted before it had a chance.
pub const LFU_START: u32 = 5;
/// The mask of the 28 access bits.
pub const ACCESS_MASK: u32 = 0x0fff_ffff;
/// Under LRU a second has two to this power units.
const FRACTION_BITS: u32 = 4;
/// Under LFU a minute has two to this power units.
const PART_BITS: u32 = 6;
/// The width of LFU's counter, which is in the lowest bits.
const COUNTER_BITS: u32 = 8;
const COUNTER_MASK: u32 = (1 << COUNTER_BITS) - 1;
/// The mask of LFU's time, without the counter.
const PARTS_MASK: u32 = ACCESS_MASK >> COUNTER_BITS;
/// An access that seems to lie up to this far in the future, one minute, was made by a thread that
/// read its clock later than this one.
const AHEAD_MAX: u32 = 60 << FRACTION_BITS;
const PARTS_AHEAD_MAX: u32 = 1 << PART_BITS;

/// What the access bits mean.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum AccessPolicy {
    Lru,
    Lfu { log_factor: u32, decay_minutes: u32 },
}

/// The time of accesses, taken once per turn.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct AccessClock {
    pub policy: AccessPolicy,
    /// Sixteenths of a second, for LRU; the low 28 bits count.
    units: u64,
    /// 64th parts of a minute, for LFU; the low 20 bits count.
    parts: u32,
}

impl AccessClock {
    /// A clock that reads `now_ms` (Unix time).
    pub const fn new(policy: AccessPolicy, now_ms: i64) -> Self {
        let units = ((now_ms << FRACTION_BITS) / 1000) as u64;
        let parts = ((now_ms << PART_BITS) / 60_000) as u32;
        Self { policy, units, parts }
    }

    /// Returns the clock with its fractions of seconds cut off.
    pub const fn coarse(self) -> Self {
        Self { units: self.units >> FRACTION_BITS << FRACTION_BITS, ..self }
    }

    const fn lru(&self) -> u32 {
        self.units as u32 & ACCESS_MASK
    }

    /// The bits of an entry that is used now and has this counter (LFU).
    const fn lfu(&self, counter: u32) -> u32 {
        (self.parts & PARTS_MASK) << COUNTER_BITS | counter
    }

    /// The bits of a new key.
    #[inline]
    pub const fn fresh(&self) -> u32 {
        match self.policy {
            AccessPolicy::Lru => self.lru(),
            AccessPolicy::Lfu { .. } => self.lfu(LFU_START),
        }
    }

    /// The bits after one more access. `random` is uniform over all of u32.
    #[inline]
    pub fn touched(&self, access: u32, random: impl FnOnce() -> u32) -> u32 {
        match self.policy {
            AccessPolicy::Lru => self.lru(),
            AccessPolicy::Lfu { log_factor, .. } => {
                let counter = self.frequency(access);
                self.lfu(increment(counter, log_factor, random()))
            }
        }
    }

    /// How often the entry is used, 0 to 255, after decay (LFU).
    pub const fn frequency(&self, access: u32) -> u32 {
        let counter = access & COUNTER_MASK;
        let AccessPolicy::Lfu { decay_minutes, .. } = self.policy else { return counter };
        if decay_minutes == 0 {
            return counter;
        }
        // As in Redis, each end of a minute counts, even if the access was a moment ago.
        let then = self.parts.wrapping_sub(self.unused(access));
        let elapsed = (self.parts >> PART_BITS).wrapping_sub(then >> PART_BITS);
        counter.saturating_sub(elapsed / decay_minutes)
    }

    /// When the last access was, by a clock that does not wrap around, so that entries can be
    /// compared.
    pub const fn last_used(&self, access: u32) -> u64 {
        match self.policy {
            AccessPolicy::Lru => self.units.saturating_sub(self.idle(access) as u64),
            AccessPolicy::Lfu { .. } => self.parts.saturating_sub(self.unused(access)) as u64,
        }
    }

    /// The minute of the last access, as Redis counts them: in 16 bits (LFU).
    pub const fn used_minute(&self, access: u32) -> u16 {
        (self.last_used(access) >> PART_BITS) as u16
    }

    /// 64th parts of a minute since the last access (LFU).
    const fn unused(&self, access: u32) -> u32 {
        let unused = self.parts.wrapping_sub(access >> COUNTER_BITS) & PARTS_MASK;
        if unused > PARTS_MASK - PARTS_AHEAD_MAX { 0 } else { unused }
    }

    /// Sixteenths of a second since the last access (LRU).
    pub const fn idle(&self, access: u32) -> u32 {
        let idle = self.lru().wrapping_sub(access) & ACCESS_MASK;
        if idle > ACCESS_MASK - AHEAD_MAX { 0 } else { idle }
    }

    /// Seconds since the last access (LRU).
    pub const fn idle_seconds(&self, access: u32) -> u32 {
        self.idle(access) >> FRACTION_BITS
    }

    /// The bits of an entry that was last used `idle_seconds` ago (LRU).
    pub const fn idle_since(&self, idle_seconds: u32) -> u32 {
        self.lru().wrapping_sub(idle_seconds << FRACTION_BITS) & ACCESS_MASK
    }

    /// The second of the last access, as Redis counts them: in 24 bits (LRU).
    pub const fn used_second(&self, access: u32) -> u32 {
        access >> FRACTION_BITS
    }

    /// The bits of an entry with this frequency (LFU).
    pub const fn with_frequency(&self, frequency: u8) -> u32 {
        self.lfu(frequency as u32)
    }
}

/// Counts one access with a probability that falls as the counter rises.
fn increment(counter: u32, log_factor: u32, random: u32) -> u32 {
    if counter >= 255 {
        return 255;
    }
    let over = f64::from(counter.saturating_sub(LFU_START));
    let probability = 1.0 / (over * f64::from(log_factor) + 1.0);
    counter + u32::from(f64::from(random) < probability * f64::from(u32::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn idle_time_survives_the_wrap_of_the_clock() {
        let at = |ms| AccessClock::new(AccessPolicy::Lru, ms);
        let clock = at(0x0100_0005 * 1000);
        assert_eq!(clock.idle_seconds(at(0x00ff_fffb * 1000).fresh()), 10);
        assert_eq!(clock.idle_seconds(clock.idle_since(77)), 77);
        assert_eq!(clock.used_second(clock.fresh()), 5);
    }

    #[test]
    fn idle_time_is_finer_than_a_second_and_never_negative() {
        let at = |ms| AccessClock::new(AccessPolicy::Lru, ms);
        let clock = at(1_700_000_000_400);
        assert_eq!(clock.idle(at(1_700_000_000_000).fresh()), 6);
        assert_eq!(clock.idle_seconds(at(1_699_999_998_500).fresh()), 1);
        assert_eq!(clock.idle(at(1_700_000_003_000).fresh()), 0, "another thread's clock");
        assert_eq!(clock.coarse().idle(clock.fresh()), 0);
        assert_eq!(clock.coarse(), at(1_700_000_000_000));
    }

    #[test]
    fn frequency_decays_by_the_minute_and_saturates() {
        let policy = AccessPolicy::Lfu { log_factor: 10, decay_minutes: 1 };
        let then = AccessClock::new(policy, 600_000);
        let later = AccessClock::new(policy, 600_000 + 180_000);
        let access = then.with_frequency(9);
        assert_eq!(then.frequency(access), 9);
        assert_eq!(later.frequency(access), 6);
        assert_eq!(then.touched(then.with_frequency(255), || 0) & 0xff, 255);
        assert_eq!(then.touched(then.fresh(), || 0) & 0xff, LFU_START + 1);
        assert_eq!(then.touched(then.with_frequency(100), || u32::MAX) & 0xff, 100);
    }

    #[test]
    fn entries_used_equally_often_differ_in_when() {
        let policy = AccessPolicy::Lfu { log_factor: 10, decay_minutes: 1 };
        let at = |ms| AccessClock::new(policy, ms);
        let clock = at(1_700_000_040_000);
        let then = at(1_700_000_010_000);
        assert_eq!(clock.last_used(clock.fresh()) - clock.last_used(then.fresh()), 32);
        assert_eq!(clock.last_used(then.fresh()), then.last_used(then.fresh()));
        assert_eq!(clock.used_minute(then.fresh()), (1_700_000_010_u32 / 60) as u16);
    }

    #[test]
    fn an_access_by_a_thread_whose_minute_has_begun_costs_nothing() {
        let policy = AccessPolicy::Lfu { log_factor: 10, decay_minutes: 1 };
        let at = |ms| AccessClock::new(policy, ms);
        let (late, early) = (at(1_700_000_040_000), at(1_700_000_039_999));
        assert_eq!(early.frequency(late.with_frequency(99)), 99);
        assert_eq!(late.frequency(early.with_frequency(99)), 98);
        assert_eq!(early.last_used(late.fresh()), early.last_used(early.fresh()));
    }
}
