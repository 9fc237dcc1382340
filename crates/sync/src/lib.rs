//! How threads wait for each other: the locks of the whole server, which debug builds check to be
//! taken in one order (`order`); the lock of a shard; a word to sleep on; the queue between threads
//! (`inbox`); and work that several threads share (`crew`).
//!
//! No other code uses the standard library's primitives. Under `--cfg shuttle` shuttle's primitives
//! are used, so that its scheduler tries the interleavings of what is built on them.

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

/// How often a thread looks at a held lock before it sleeps. A shard is held for about 100 ns. More
/// looks would waste a core that the lock's holder may be waiting for.
const SPINS: u32 = if cfg!(shuttle) { 2 } else { 64 };

/// A value that has its own cache lines. A value that changes often should have them: values beside
/// it then stay in the caches of other cores. It has two lines, because processors fetch them in
/// pairs.
#[repr(align(128))]
#[derive(Default, Debug)]
pub struct OwnLine<T>(pub T);

const FREE: u32 = 0;
const HELD: u32 = 1;
/// Held, and a thread may sleep on it.
const CONTENDED: u32 = 2;
/// Reserved for a thread that does not hold it at the moment.
const RESERVED: u32 = 3;
/// Reserved, and held for a short time by a visitor or by the thread that reserved it.
const VISITED: u32 = 4;
/// Reserved and held for a short time, and a thread may sleep on it.
const VISITED_CONTENDED: u32 = 5;

/// A mutex of one word. To take it costs one compare-and-swap, to release it one swap. Threads
/// sleep on it with a futex.
///
/// Its holder may leave it *reserved*. Then other threads do not wait for it but are refused. Only
/// visitors still get it, because they need not be kept out.
#[derive(Default)]
pub struct RawLock {
    state: Futex,
}

impl RawLock {
    #[inline(always)]
    pub fn try_lock(&self) -> bool {
        self.state.word().compare_exchange(FREE, HELD, Ordering::Acquire, Ordering::Relaxed).is_ok()
    }

    /// Waits for the lock. Returns false if it is reserved.
    #[inline(always)]
    pub fn lock_unless_reserved(&self) -> bool {
        self.try_lock() || self.lock_contended()
    }

    /// Only the thread that holds the lock may call this.
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
                // A thread that has slept does not know whether others still sleep, so it takes the
                // lock as contended.
                FREE if self.swap_if(FREE, CONTENDED) => return true,
                HELD => _ = self.swap_if(HELD, CONTENDED),
                CONTENDED => {
                    self.state.wait(CONTENDED);
                    has_slept = true;
                }
                RESERVED | VISITED | VISITED_CONTENDED => {
                    // This thread may be the only one that was woken, and then another thread that
                    // found the lock free may have held and reserved it. So the others are woken
                    // here.
                    if has_slept {
                        self.state.wake(u32::MAX >> 1);
                    }
                    return false;
                }
                _ => {}
            }
        }
    }

    /// Releases a lock that the caller holds, but keeps it reserved for the caller. The caller ends
    /// this with `take_back`.
    #[cold]
    pub fn reserve(&self) {
        if let CONTENDED | VISITED_CONTENDED = self.state.word().swap(RESERVED, Ordering::Release) {
            // Those that are not visitors will be refused.
            self.state.wake(u32::MAX >> 1);
        }
    }

    /// Holds a lock again that the caller has reserved. Waits for visitors.
    ///
    /// # Panics
    /// If it is not reserved, because then another thread may hold it.
    #[cold]
    pub fn take_back(&self) {
        assert!(self.enter_reserved(HELD), "a lock is taken back that is not reserved");
    }

    /// Holds a lock that the caller has reserved; for all other threads it stays reserved. The
    /// caller ends this with `reserve`.
    ///
    /// # Panics
    /// If it is not reserved.
    #[cold]
    pub fn enter(&self) {
        assert!(self.enter_reserved(VISITED), "a lock is entered that is not reserved");
    }

    /// Waits for a lock even if it is reserved. Release it with `end_visit`, passing what this
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

    /// Whether a thread holds the lock at this moment.
    pub fn is_held(&self) -> bool {
        !matches!(self.state.word().load(Ordering::Acquire), FREE | RESERVED)
    }

    /// Changes the state of a reserved lock to `to`. Returns false if the lock is not reserved any
    /// more.
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

    /// Sleeps while the word is `expected`. May return early.
    pub fn wait(&self, expected: u32) {
        self.wait_for(expected, None);
    }

    /// Sleeps while the word is `expected`, but at most for the given time. May return early.
    pub fn wait_for(&self, expected: u32, timeout: Option<Duration>) {
        use rustix::thread::futex;
        let timeout = timeout.and_then(|timeout| Timespec::try_from(timeout).ok());
        // An error means that the word had changed, a signal came or the time is over. The caller
        // looks again.
        let _ = futex::wait(&self.0, futex::Flags::PRIVATE, expected, timeout.as_ref());
    }

    /// Wakes at most `count` sleeping threads.
    pub fn wake(&self, count: u32) {
        use rustix::thread::futex;
        let _ = futex::wake(&self.0, futex::Flags::PRIVATE, count);
    }
}

/// Does what the futex system call promises, with shuttle's mutex and condition variable.
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

    /// Under shuttle nothing takes time, so the time is never over.
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
