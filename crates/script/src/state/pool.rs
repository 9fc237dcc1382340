//! The memory that all Lua states may take together.

use std::sync::atomic::{AtomicUsize, Ordering};

/// Bytes that states share. Each state leases them in grains, so that most allocations count in its
/// own state alone.
#[derive(Debug)]
pub struct MemoryPool {
    limit: AtomicUsize,
    leased: AtomicUsize,
}

/// A grain is an eighth to a quarter of what a state takes, between these, in bytes: thousands of
/// small libraries fit, and a state that grows asks seldom.
const GRAIN_MIN: usize = 4 * 1024;
const GRAIN_MAX: usize = 256 * 1024;

impl MemoryPool {
    /// A pool of `limit` bytes.
    pub const fn new(limit: usize) -> Self {
        Self { limit: AtomicUsize::new(limit), leased: AtomicUsize::new(0) }
    }

    /// Sets how many bytes all states may take. Those that have more get no more.
    pub fn set_limit(&self, bytes: usize) {
        self.limit.store(bytes, Ordering::Relaxed);
    }

    /// How many bytes all states may take.
    pub fn limit(&self) -> usize {
        self.limit.load(Ordering::Relaxed)
    }

    /// Bytes that states have leased.
    pub fn leased(&self) -> usize {
        self.leased.load(Ordering::Relaxed)
    }

    /// Extends a lease so that it covers `bytes`, if the limit allows it; the new lease.
    pub(crate) fn extend(&self, lease: usize, bytes: usize) -> Option<usize> {
        let wanted = rounded(bytes);
        let more = wanted.saturating_sub(lease);
        let all = self.leased.fetch_add(more, Ordering::Relaxed) + more;
        if all > self.limit() {
            self.leased.fetch_sub(more, Ordering::Relaxed);
            return None;
        }
        Some(lease.max(wanted))
    }

    /// Makes a lease cover just what is used, whatever the limit is; the new lease.
    pub(crate) fn settle(&self, lease: usize, bytes: usize) -> usize {
        let wanted = if bytes == 0 { 0 } else { rounded(bytes) };
        if wanted > lease {
            self.leased.fetch_add(wanted - lease, Ordering::Relaxed);
        } else if wanted < lease {
            self.leased.fetch_sub(lease - wanted, Ordering::Relaxed);
        }
        wanted
    }
}

fn rounded(bytes: usize) -> usize {
    let power = bytes.checked_next_power_of_two().unwrap_or(usize::MAX);
    let grain = (power / 8).clamp(GRAIN_MIN, GRAIN_MAX);
    // A power of two needs no division.
    bytes.checked_add(grain - 1).map_or(usize::MAX / 2, |end| end & !(grain - 1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn leases_stay_below_the_limit() {
        const MIB: usize = 1024 * 1024;
        let pool = MemoryPool::new(4 * MIB);
        assert_eq!(pool.extend(0, 1), Some(GRAIN_MIN));
        assert_eq!(pool.extend(0, 3 * MIB), Some(3 * MIB));
        assert_eq!(pool.extend(MIB, 2 * MIB), None);
        assert_eq!(pool.extend(MIB, usize::MAX), None);
        assert_eq!(pool.leased(), 3 * MIB + GRAIN_MIN);
        assert_eq!(pool.settle(3 * MIB, 10), GRAIN_MIN);
        assert_eq!(pool.extend(GRAIN_MIN, 2 * MIB + 1), Some(2 * MIB + GRAIN_MAX));
        // What is there already counts, though it is too much.
        assert_eq!(pool.settle(2 * MIB + GRAIN_MAX, 9 * MIB), 9 * MIB);
        assert_eq!(pool.settle(9 * MIB, 0), 0);
        assert_eq!(pool.settle(GRAIN_MIN, 0), 0);
        assert_eq!(pool.leased(), 0);
    }

    #[test]
    fn a_lease_is_not_much_more_than_what_is_used() {
        for bytes in [40_000, 70_000, 200_000, 1_100_000, 10_000_000] {
            let lease = rounded(bytes);
            assert!((bytes..=bytes + bytes / 4 + GRAIN_MIN).contains(&lease), "{bytes} {lease}");
        }
        assert!(rounded(usize::MAX) >= 1 << 62);
    }
}
