//! One order for all locks: in debug builds a thread that waits for a lock against it panics there
//! and then, not only where two threads happen to meet.
//!
//! Locks that are made in the same place and guard the same type are of one [`Class`]. Each thread
//! knows what it holds, and all threads together know what was ever waited for with what held. A
//! thread that waits for B with A held could have met a thread that waited for A with B held, or
//! with a lock held that was waited for beneath B. A thread also may not wait for a lock of a class
//! that it holds, unless the lock has a higher rank. Release builds have nothing of this.

#[cfg(debug_assertions)]
mod graph;

#[cfg(debug_assertions)]
use std::panic::Location;
#[cfg(debug_assertions)]
use std::sync::atomic::{AtomicU32, Ordering};

/// What a lock is to the order: part of each mutex, and a `static` for locks that have no room.
pub struct Class {
    #[cfg(debug_assertions)]
    made_at: &'static Location<'static>,
    #[cfg(debug_assertions)]
    guards: fn() -> &'static str,
    #[cfg(debug_assertions)]
    rank: u32,
    /// In the graph, from 1; 0: no thread has asked yet.
    #[cfg(debug_assertions)]
    number: AtomicU32,
}

/// A lock that is held. Dropping it, with the lock given back, ends that.
#[must_use]
pub struct Held(#[cfg(debug_assertions)] graph::Taken);

impl Class {
    /// The class of what is made where this is called and guards a `T`.
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

    /// Another one of this class.
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

    /// To be called before a lock is waited for. Panics, in debug builds, if that is against the
    /// order.
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

    /// Does what `hold` does, until the returned value is dropped.
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
    /// Calls what gives the lock up and has it again when it returns.
    #[inline(always)]
    pub(super) fn give_up_while<R>(&self, sleep: impl FnOnce() -> R) -> R {
        #[cfg(debug_assertions)]
        {
            graph::release(self.0);
            // What is held besides was perhaps taken later, and the lock will be waited for beneath
            // it.
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
