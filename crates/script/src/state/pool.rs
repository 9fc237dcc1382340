//! The memory that all Lua states may take together.

use std::sync::atomic::{AtomicUsize, Ordering};

/// Bytes that states share. Each state leases them in grains, so that an allocation counts in its
/// own state alone.
#[derive(Debug)]
pub struct MemoryPool {
    limit: AtomicUsize,
    leased: AtomicUsize,
}

/// States lease multiples of this, in bytes.
const GRAIN: usize = 256 * 1024;

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
    bytes.checked_next_multiple_of(GRAIN).unwrap_or(usize::MAX / 2)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn leases_stay_below_the_limit() {
        let pool = MemoryPool::new(4 * GRAIN);
        assert_eq!(pool.extend(0, 1), Some(GRAIN));
        assert_eq!(pool.extend(0, 3 * GRAIN), Some(3 * GRAIN));
        assert_eq!(pool.extend(GRAIN, GRAIN + 1), None);
        assert_eq!(pool.extend(GRAIN, usize::MAX), None);
        assert_eq!(pool.leased(), 4 * GRAIN);
        assert_eq!(pool.settle(3 * GRAIN, 10), GRAIN);
        assert_eq!(pool.extend(GRAIN, 2 * GRAIN), Some(2 * GRAIN));
        // What is there already counts, though it is too much.
        assert_eq!(pool.settle(GRAIN, 9 * GRAIN), 9 * GRAIN);
        assert_eq!(pool.settle(9 * GRAIN, 0), 0);
        assert_eq!(pool.settle(2 * GRAIN, 0), 0);
        assert_eq!(pool.leased(), 0);
    }
}
