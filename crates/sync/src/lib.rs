//! How threads wait for each other: the locks of the whole server, which debug builds see taken in
//! one order (`order`), the lock of a shard, a word to sleep on, the queue between threads
//! (`inbox`), and work that several threads share (`crew`).
//!
//! Nothing else uses the primitives of the standard library. Under `--cfg shuttle` they are
//! shuttle's, so that its scheduler explores the interleavings of what is built on them.

pub mod crew;
pub mod inbox;
mod locks;
pub mod order;

#[cfg(shuttle)]
use shuttle::sync as primitive;
#[cfg(not(shuttle))]
use std::sync as primitive;
use std::time::Duration;

#[cfg(not(shuttle))]
use rustix::thread::futex::Timespec;

pub use locks::{Condvar, Mutex, MutexGuard, RwLock, RwLockReadGuard, RwLockWriteGuard};
pub use primitive::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering, fence};

/// How often a thread looks at a held lock before it sleeps. A shard is held for some 100 ns; more
/// looks would burn a core whose owner may be the one that waits to run.
const SPINS: u32 = if cfg!(shuttle) { 2 } else { 64 };

/// Lies on cache lines of its own, as something that changes often should: what lies beside it then
/// stays in the caches of other cores. Two lines, as processors fetch them in pairs.
#[repr(align(128))]
#[derive(Default, Debug)]
pub struct OwnLine<T>(pub T);

const FREE: u32 = 0;
const HELD: u32 = 1;
/// Held, and a thread may sleep on it.
const CONTENDED: u32 = 2;
/// Kept for a thread that does not hold it at the moment.
const RESERVED: u32 = 3;
/// Reserved, and held for a short time by a visitor or by the thread that reserved it.
const VISITED: u32 = 4;
/// Reserved and held for a short time, and a thread may sleep on it.
const VISITED_CONTENDED: u32 = 5;

/// A mutex of one word: one compare-and-swap to take, one swap to give back, a futex to sleep on.
///
/// Its holder may leave it *reserved*. Then others that want it are refused instead of waiting.
/// Only visitors still get it: the holder does not need to keep them out.
#[derive(Default)]
pub struct RawLock {
    state: Futex,
}

impl RawLock {
    #[inline(always)]
    pub fn try_lock(&self) -> bool {
        self.state.word().compare_exchange(FREE, HELD, Ordering::Acquire, Ordering::Relaxed).is_ok()
    }

    /// Waits for the lock; `false`: it is reserved.
    #[inline(always)]
    pub fn lock_unless_reserved(&self) -> bool {
        self.try_lock() || self.lock_contended()
    }

    /// Only the thread that holds the lock may call it.
    #[inline(always)]
    pub fn unlock(&self) {
        if self.state.word().swap(FREE, Ordering::Release) == CONTENDED {
            self.state.wake(1);
        }
    }

    #[cold]
    #[inline(never)]
    fn lock_contended(&self) -> bool {
        for _ in 0..SPINS {
            match self.state.word().load(Ordering::Relaxed) {
                FREE if self.try_lock() => return true,
                RESERVED | VISITED | VISITED_CONTENDED => return false,
                _ => pause(),
            }
        }
        let mut has_slept = false;
        loop {
            match self.state.word().load(Ordering::Relaxed) {
                // A thread that has slept does not know whether others still do, so it takes the
                // lock as contended.
                FREE if self.swap_if(FREE, CONTENDED) => return true,
                HELD => _ = self.swap_if(HELD, CONTENDED),
                CONTENDED => {
                    self.state.wait(CONTENDED);
                    has_slept = true;
                }
                RESERVED | VISITED | VISITED_CONTENDED => {
                    // It may be the only one that was woken, before the lock was held and reserved
                    // by a thread that found it free.
                    if has_slept {
                        self.state.wake(u32::MAX >> 1);
                    }
                    return false;
                }
                _ => {}
            }
        }
    }

    /// Gives a lock back that the caller holds, but keeps it reserved for the caller, which ends
    /// this with `take_back`.
    #[cold]
    pub fn reserve(&self) {
        if let CONTENDED | VISITED_CONTENDED = self.state.word().swap(RESERVED, Ordering::Release) {
            // They are refused, but for visitors.
            self.state.wake(u32::MAX >> 1);
        }
    }

    /// Holds a lock again that the caller reserved; waits for visitors.
    ///
    /// # Panics
    /// When it is not reserved: another thread may hold it then.
    #[cold]
    pub fn take_back(&self) {
        assert!(self.enter_reserved(HELD), "a lock is taken back that is not reserved");
    }

    /// Holds a lock that the caller reserved, while it stays reserved for all other threads. The
    /// caller ends this with `reserve`.
    ///
    /// # Panics
    /// When it is not reserved.
    #[cold]
    pub fn enter(&self) {
        assert!(self.enter_reserved(VISITED), "a lock is entered that is not reserved");
    }

    /// Waits for a lock, though it may be reserved. To be given back by `end_visit`, with what this
    /// returned.
    #[cold]
    pub fn visit(&self) -> Visit {
        loop {
            if self.lock_unless_reserved() {
                return Visit::Held;
            }
            if self.enter_reserved(VISITED) {
                return Visit::Reserved;
            }
        }
    }

    #[cold]
    pub fn end_visit(&self, visit: Visit) {
        match visit {
            Visit::Held => self.unlock(),
            Visit::Reserved => {
                let before = self.state.word().swap(RESERVED, Ordering::Release);
                if before == VISITED_CONTENDED {
                    self.state.wake(u32::MAX >> 1);
                }
            }
        }
    }

    /// Whether a thread holds it at this moment.
    pub fn is_held(&self) -> bool {
        !matches!(self.state.word().load(Ordering::Acquire), FREE | RESERVED)
    }

    /// Makes a reserved lock what is said; `false`: it is not reserved any more.
    fn enter_reserved(&self, to: u32) -> bool {
        loop {
            match self.state.word().load(Ordering::Relaxed) {
                RESERVED if self.swap_if(RESERVED, to) => return true,
                VISITED => _ = self.swap_if(VISITED, VISITED_CONTENDED),
                VISITED_CONTENDED => self.state.wait(VISITED_CONTENDED),
                RESERVED => {}
                _ => return false,
            }
        }
    }

    fn swap_if(&self, from: u32, to: u32) -> bool {
        let (success, failure) = (Ordering::Acquire, Ordering::Relaxed);
        self.state.word().compare_exchange(from, to, success, failure).is_ok()
    }
}

/// How a visitor found the lock.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Visit {
    Held,
    Reserved,
}

#[cfg(not(shuttle))]
pub(crate) fn pause() {
    std::hint::spin_loop();
}
#[cfg(shuttle)]
pub(crate) fn pause() {
    shuttle::thread::yield_now();
}

/// A word that threads can sleep on.
#[cfg(not(shuttle))]
#[derive(Default)]
pub struct Futex(AtomicU32);

#[cfg(not(shuttle))]
impl Futex {
    #[inline(always)]
    pub fn word(&self) -> &AtomicU32 {
        &self.0
    }

    /// Sleeps while the word is `expected`; may return early.
    pub fn wait(&self, expected: u32) {
        self.wait_for(expected, None);
    }

    /// Sleeps while the word is `expected`, at most for the given time; may return early.
    pub fn wait_for(&self, expected: u32, timeout: Option<Duration>) {
        use rustix::thread::futex;
        let timeout = timeout.and_then(|timeout| Timespec::try_from(timeout).ok());
        // An error means that the word had changed, that a signal came or that time is over: look
        // again.
        let _ = futex::wait(&self.0, futex::Flags::PRIVATE, expected, timeout.as_ref());
    }

    /// Wakes at most `count` sleepers.
    pub fn wake(&self, count: u32) {
        use rustix::thread::futex;
        let _ = futex::wake(&self.0, futex::Flags::PRIVATE, count);
    }
}

/// What the futex system call promises, in terms of shuttle's mutex and condition variable.
#[cfg(shuttle)]
#[derive(Default)]
pub struct Futex {
    word: AtomicU32,
    sleepers: primitive::Mutex<()>,
    bell: primitive::Condvar,
}

#[cfg(shuttle)]
impl Futex {
    pub fn word(&self) -> &AtomicU32 {
        &self.word
    }

    pub fn wait(&self, expected: u32) {
        let sleepers = self.sleepers.lock().unwrap();
        if self.word.load(Ordering::SeqCst) == expected {
            drop(self.bell.wait(sleepers).unwrap());
        }
    }

    /// Nothing takes time here, so nothing takes too long.
    pub fn wait_for(&self, expected: u32, _: Option<Duration>) {
        self.wait(expected);
    }

    pub fn wake(&self, count: u32) {
        let _sleepers = self.sleepers.lock().unwrap();
        for _ in 0..count.min(64) {
            self.bell.notify_one();
        }
    }
}
