//! One order for all locks. In debug builds a thread that waits for a lock against this order
//! panics at once, not only when two threads really block each other.
//!
//! Locks are of the same [`Class`] if they are made in the same place and guard the same type. Each
//! thread remembers what it holds, and all threads together remember which lock was ever waited for
//! while which was held. A thread waits against the order if it holds A and waits for B, and a
//! thread once held B and waited for A; or if a chain of such steps leads from B to A. Nor may a
//! thread wait for a lock of a class that it holds, unless the lock has a higher rank. Release
//! builds check none of this.

#[cfg(debug_assertions)]
mod graph;

#[cfg(debug_assertions)]
use std::panic::Location;
#[cfg(debug_assertions)]
use std::sync::atomic::{AtomicU32, Ordering};

/// What the order knows about a lock. Each mutex contains one; for locks that have no room for it
/// there is a `static`.
pub struct Class {
    #[cfg(debug_assertions)]
    made_at: &'static Location<'static>,
    #[cfg(debug_assertions)]
    guards: fn() -> &'static str,
    #[cfg(debug_assertions)]
    rank: u32,
    /// The class's number in the graph, from 1. 0 means that no thread has asked yet.
    #[cfg(debug_assertions)]
    number: AtomicU32,
}

/// A lock that is held. Drop this when the lock was released.
#[must_use]
pub struct Held(#[cfg(debug_assertions)] graph::Taken);

impl Class {
    /// The class of locks that are made where this is called and guard a `T`.
    #[cfg_attr(debug_assertions, track_caller)]
    pub const fn of<T>(rank: u32) -> Self {
        let _ = rank;
        Self {
            #[cfg(debug_assertions)]
            made_at: Location::caller(),
            #[cfg(debug_assertions)]
            guards: std::any::type_name::<T>,
            #[cfg(debug_assertions)]
            rank,
            #[cfg(debug_assertions)]
            number: AtomicU32::new(0),
        }
    }

    /// Another lock of this class.
    #[inline(always)]
    pub fn ranked(&self, rank: u32) -> Self {
        let _ = rank;
        Self {
            #[cfg(debug_assertions)]
            made_at: self.made_at,
            #[cfg(debug_assertions)]
            guards: self.guards,
            #[cfg(debug_assertions)]
            rank,
            #[cfg(debug_assertions)]
            number: AtomicU32::new(self.number()),
        }
    }

    /// Call this before waiting for a lock. In debug builds it panics if that is against the order.
    #[inline(always)]
    #[cfg_attr(debug_assertions, track_caller)]
    pub fn wait_for(&self) {
        #[cfg(debug_assertions)]
        graph::wait_for(self.taken(Location::caller()));
    }

    /// The lock is held from now on, until [`release`](Self::release).
    #[inline(always)]
    #[cfg_attr(debug_assertions, track_caller)]
    pub fn hold(&self) {
        #[cfg(debug_assertions)]
        graph::hold(self.taken(Location::caller()));
    }

    #[inline(always)]
    #[cfg_attr(debug_assertions, track_caller)]
    pub fn release(&self) {
        #[cfg(debug_assertions)]
        graph::release(self.taken(Location::caller()));
    }

    /// Does the same as `hold`, until the returned value is dropped.
    #[inline(always)]
    #[cfg_attr(debug_assertions, track_caller)]
    pub fn held(&self) -> Held {
        self.hold();
        Held(
            #[cfg(debug_assertions)]
            self.taken(Location::caller()),
        )
    }

    #[cfg(debug_assertions)]
    fn taken(&self, at: &'static Location<'static>) -> graph::Taken {
        graph::Taken { class: self.number(), rank: self.rank, at }
    }

    #[cfg(debug_assertions)]
    fn number(&self) -> u32 {
        match self.number.load(Ordering::Relaxed) {
            0 => {
                let number = graph::number(self.made_at, (self.guards)());
                self.number.store(number, Ordering::Relaxed);
                number
            }
            number => number,
        }
    }
}

impl Held {
    /// Calls `sleep`, which releases the lock and holds it again when it returns.
    #[inline(always)]
    pub(super) fn give_up_while<R>(&self, sleep: impl FnOnce() -> R) -> R {
        #[cfg(debug_assertions)]
        {
            graph::release(self.0);
            // Other locks that are held may have been taken later. The lock will be waited for
            // while they are held.
            graph::wait_for(self.0);
        }
        let result = sleep();
        #[cfg(debug_assertions)]
        graph::hold(self.0);
        result
    }
}

#[cfg(debug_assertions)]
impl Drop for Held {
    fn drop(&mut self) {
        graph::release(self.0);
    }
}
