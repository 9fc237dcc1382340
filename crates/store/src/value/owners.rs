//! The count of a block's owners.

use std::sync::atomic::{AtomicU32, Ordering};

/// How many owners a block of memory has, at least one. The last one frees the block; one that is
/// alone may change it.
///
/// One owner's use of the block happens before another one's change: an owner that leaves releases
/// what it did, and an owner that finds itself alone acquires that.
pub(super) struct Owners(AtomicU32);

impl Owners {
    pub(super) const fn one() -> Self {
        Self(AtomicU32::new(1))
    }

    /// Counts another owner.
    #[inline]
    pub(super) fn add(&self) {
        // Relaxed: a new owner orders nothing.
        let before = self.0.fetch_add(1, Ordering::Relaxed);
        assert!(before < OWNERS_MAX, "{before} owners of a block");
    }

    /// Whether the caller is the only owner.
    #[inline(always)]
    pub(super) fn is_one(&self) -> bool {
        self.0.load(Ordering::Acquire) == 1
    }

    /// The caller is an owner no more. Returns whether it was the last one, and so has to free the
    /// block.
    #[inline]
    pub(super) fn remove(&self) -> bool {
        self.0.fetch_sub(1, Ordering::AcqRel) == 1
    }
}

/// More owners would need more memory than there is.
const OWNERS_MAX: u32 = u32::MAX / 2;
