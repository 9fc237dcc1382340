//! When and how often an entry was used: the 24 bits that eviction looks at.
//!
//! Under LRU they are the second of the last access, modulo 2^24. Under LFU they are the minute of
//! the last decrement (16 bits) and a logarithmic counter (8 bits), as Redis keeps them. Either way
//! they are written only when their coarse value changes, so that most reads write nothing.

/// A new key's counter under LFU, so that it is not evicted before it had a chance.
pub const LFU_START: u32 = 5;
/// The 24 bits that an entry has for it.
pub const ACCESS_MASK: u32 = 0x00ff_ffff;

/// What the access bits mean.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum AccessPolicy {
    Lru,
    Lfu { log_factor: u32, decay_minutes: u32 },
}

/// The time of accesses, taken once per turn.
#[derive(Clone, Copy, Debug)]
pub struct AccessClock {
    pub policy: AccessPolicy,
    /// Seconds, for LRU; the low 24 bits count.
    pub seconds: u32,
}

impl AccessClock {
    /// A clock that reads `now_ms` (Unix time).
    pub const fn new(policy: AccessPolicy, now_ms: i64) -> Self {
        Self { policy, seconds: (now_ms / 1000) as u32 }
    }

    const fn lru(&self) -> u32 {
        self.seconds & ACCESS_MASK
    }

    const fn minutes(&self) -> u32 {
        (self.seconds / 60) & 0xffff
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

    /// Seconds since the last access (LRU).
    pub const fn idle_seconds(&self, access: u32) -> u32 {
        self.lru().wrapping_sub(access) & ACCESS_MASK
    }

    /// The bits of an entry that was last used `idle_seconds` ago (LRU).
    pub const fn idle_since(&self, idle_seconds: u32) -> u32 {
        self.seconds.wrapping_sub(idle_seconds) & ACCESS_MASK
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
        let clock = AccessClock { policy: AccessPolicy::Lru, seconds: 0x0100_0005 };
        assert_eq!(clock.idle_seconds(0x00ff_fffb), 10);
        assert_eq!(clock.idle_seconds(clock.idle_since(77)), 77);
    }

    #[test]
    fn frequency_decays_by_the_minute_and_saturates() {
        let policy = AccessPolicy::Lfu { log_factor: 10, decay_minutes: 1 };
        let then = AccessClock { policy, seconds: 600 };
        let later = AccessClock { policy, seconds: 600 + 180 };
        let access = then.with_frequency(9);
        assert_eq!(then.frequency(access), 9);
        assert_eq!(later.frequency(access), 6);
        assert_eq!(then.touched(then.with_frequency(255), || 0) & 0xff, 255);
        assert_eq!(then.touched(then.fresh(), || 0) & 0xff, LFU_START + 1);
        assert_eq!(then.touched(then.with_frequency(100), || u32::MAX) & 0xff, 100);
    }
}
