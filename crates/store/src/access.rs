//! When and how often an entry was used: the 28 bits that eviction looks at.
//!
//! Under LRU they are the time of the last access in sixteenths of a second, modulo 2^28: like
//! Redis's 24 bits of seconds they go round in 194 days. Seconds alone would tell nothing where a
//! cache is filled anew every second. Who does not evict has no use for the fractions and leaves
//! them out (`coarse`). Under LFU they are the minute of the last decrement (16 bits) and a
//! logarithmic counter (8 bits), as Redis keeps them. Either way they are written only when their
//! value changes, so that most reads write nothing.

/// A new key's counter under LFU, so that it is not evicted before it had a chance.
pub const LFU_START: u32 = 5;
/// The 28 bits that an entry has for it.
pub const ACCESS_MASK: u32 = 0x0fff_ffff;
/// Units of the time of an access, as a power of two of a second.
const FRACTION_BITS: u32 = 4;
/// An access that seems to lie so far ahead was made by a thread whose clock was read later than ours.
const AHEAD_MAX: u32 = 60 << FRACTION_BITS;

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
    units: u32,
    /// For LFU.
    minutes: u16,
}

impl AccessClock {
    /// A clock that reads `now_ms` (Unix time).
    pub const fn new(policy: AccessPolicy, now_ms: i64) -> Self {
        let units = ((now_ms << FRACTION_BITS) / 1000) as u32;
        Self { policy, units, minutes: (now_ms / 60_000) as u16 }
    }

    /// The same clock, reading whole seconds only.
    pub const fn coarse(self) -> Self {
        Self { units: self.units >> FRACTION_BITS << FRACTION_BITS, ..self }
    }

    const fn lru(&self) -> u32 {
        self.units & ACCESS_MASK
    }

    const fn minutes(&self) -> u32 {
        self.minutes as u32
    }

    /// The bits of a key that is new.
    #[inline]
    pub const fn fresh(&self) -> u32 {
        match self.policy {
            AccessPolicy::Lru => self.lru(),
            AccessPolicy::Lfu { .. } => self.minutes() << 8 | LFU_START,
        }
    }

    /// The bits after one more access. `random` is uniform over all of u32.
    #[inline]
    pub fn touched(&self, access: u32, random: impl FnOnce() -> u32) -> u32 {
        match self.policy {
            AccessPolicy::Lru => self.lru(),
            AccessPolicy::Lfu { log_factor, .. } => {
                let counter = self.frequency(access);
                let counter = increment(counter, log_factor, random());
                self.minutes() << 8 | counter
            }
        }
    }

    /// How often the entry is used, 0 to 255, after decay (LFU).
    pub const fn frequency(&self, access: u32) -> u32 {
        let counter = access & 0xff;
        let AccessPolicy::Lfu { decay_minutes, .. } = self.policy else { return counter };
        if decay_minutes == 0 {
            return counter;
        }
        let elapsed = self.minutes().wrapping_sub(access >> 8) & 0xffff;
        counter.saturating_sub(elapsed / decay_minutes)
    }

    /// Sixteenths of a second since the last access (LRU).
    pub const fn idle(&self, access: u32) -> u32 {
        let idle = self.units.wrapping_sub(access) & ACCESS_MASK;
        if idle > ACCESS_MASK - AHEAD_MAX { 0 } else { idle }
    }

    /// Seconds since the last access (LRU).
    pub const fn idle_seconds(&self, access: u32) -> u32 {
        self.idle(access) >> FRACTION_BITS
    }

    /// The bits of an entry that was last used `idle_seconds` ago (LRU).
    pub const fn idle_since(&self, idle_seconds: u32) -> u32 {
        self.units.wrapping_sub(idle_seconds << FRACTION_BITS) & ACCESS_MASK
    }

    /// The bits as Redis would have them, of which there are 24.
    pub const fn shown(&self, access: u32) -> u32 {
        match self.policy {
            AccessPolicy::Lru => access >> FRACTION_BITS,
            AccessPolicy::Lfu { .. } => access,
        }
    }

    /// The bits of an entry with this frequency (LFU).
    pub const fn with_frequency(&self, frequency: u8) -> u32 {
        self.minutes() << 8 | frequency as u32
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
        assert_eq!(clock.shown(clock.fresh()), 5);
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
}
