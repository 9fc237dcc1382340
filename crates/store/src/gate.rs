//! The gate: how one thread gets the whole process to itself.
//!
//! Each thread that works on shared state owns a flag on a cache line of its own and keeps it set
//! while it works. Who takes the gate closes it and waits for the flags, of which there are as many
//! as threads, instead of locking thousands of shards. Setting the flag costs one store and one
//! fence; nothing is shared unless the gate is closed.

use crate::sync::{AtomicU32, Futex, Mutex, MutexGuard, Ordering, fence};

/// The most threads that may be members at a time.
pub const MEMBERS_MAX: usize = 160;

const IDLE: u32 = 0;
const BUSY: u32 = 1;
/// Busy, and the taker of the gate sleeps until it is not.
const AWAITED: u32 = 2;

const OPEN: u32 = 0;
const CLOSED: u32 = 1;

/// See the module.
pub struct Gate {
    closed: Futex,
    /// To the order of locks a busy member holds this too: its taker waits for the members, and they for the taker.
    taker: Mutex<Everything>,
    flags: Box<[Flag]>,
    /// The first flags that were ever claimed: no others are looked at.
    used: AtomicU32,
    /// How many have something unfinished, so that nobody else should see everything as it is now.
    reserved: AtomicU32,
}

/// What the gate is to.
struct Everything;

#[repr(align(128))]
#[derive(Default)]
struct Flag {
    state: Futex,
    claimed: AtomicU32,
}

/// A thread's right to work beside others. Dropping it gives its flag back.
pub struct Member<'a> {
    gate: &'a Gate,
    flag: &'a Flag,
}

/// Proof that no member is busy, until it is dropped.
pub struct GateGuard<'a> {
    gate: &'a Gate,
    _taker: MutexGuard<'a, Everything>,
}

impl Default for Gate {
    fn default() -> Self {
        Self::new(MEMBERS_MAX)
    }
}

impl Gate {
    /// A gate for at most `members` threads at a time.
    pub fn new(members: usize) -> Self {
        let flags = (0..members).map(|_| Flag::default()).collect();
        Self {
            closed: Futex::default(),
            taker: Mutex::new(Everything),
            flags,
            used: AtomicU32::new(0),
            reserved: AtomicU32::new(0),
        }
    }

    /// Asks others not to take the gate, as something is half done that belongs together; `false` ends it. To be
    /// called by a busy member, or with the gate held: who takes the gate afterwards sees it.
    pub fn reserve(&self, reserve: bool) {
        match reserve {
            true => self.reserved.fetch_add(1, Ordering::AcqRel),
            false => self.reserved.fetch_sub(1, Ordering::AcqRel),
        };
    }

    pub fn is_reserved(&self) -> bool {
        self.reserved.load(Ordering::Acquire) > 0
    }

    /// Claims a flag; `None` when all are taken.
    pub fn join(&self) -> Option<Member<'_>> {
        let at = self.flags.iter().position(|f| f.claimed.swap(1, Ordering::AcqRel) == 0)?;
        // Before the fence of the first `enter`.
        self.used.fetch_max(at as u32 + 1, Ordering::SeqCst);
        Some(Member { gate: self, flag: &self.flags[at] })
    }

    /// Closes the gate and waits until no member is busy. The caller must not be busy itself, and
    /// must hold no shard.
    #[cfg_attr(debug_assertions, track_caller)]
    pub fn take(&self) -> GateGuard<'_> {
        let taker = self.taker.lock();
        self.closed.word().store(CLOSED, Ordering::Relaxed);
        // Pairs with the fence of `enter`: either we see the flag, or its owner sees the gate.
        fence(Ordering::SeqCst);
        for flag in &self.flags[..self.used.load(Ordering::SeqCst) as usize] {
            let state = &flag.state;
            loop {
                match state.word().compare_exchange(
                    BUSY,
                    AWAITED,
                    Ordering::Acquire,
                    Ordering::Acquire,
                ) {
                    Err(IDLE) => break,
                    Ok(_) | Err(_) => state.wait(AWAITED),
                }
            }
        }
        GateGuard { gate: self, _taker: taker }
    }
}

impl Drop for GateGuard<'_> {
    fn drop(&mut self) {
        self.gate.closed.word().store(OPEN, Ordering::Release);
        self.gate.closed.wake(u32::MAX >> 1);
    }
}

impl Member<'_> {
    /// Marks this thread busy; waits first while the gate is closed.
    #[inline]
    #[cfg_attr(debug_assertions, track_caller)]
    pub fn enter(&self) {
        self.gate.taker.class().wait_for();
        self.gate.taker.class().hold();
        loop {
            self.flag.state.word().store(BUSY, Ordering::Relaxed);
            fence(Ordering::SeqCst);
            if self.gate.closed.word().load(Ordering::Acquire) == OPEN {
                return;
            }
            self.clear();
            self.gate.closed.wait(CLOSED);
        }
    }

    /// Ends what `enter` began.
    #[inline]
    pub fn leave(&self) {
        if self.clear() != IDLE {
            self.gate.taker.class().release();
        }
    }

    /// What the flag was.
    #[inline]
    fn clear(&self) -> u32 {
        let before = self.flag.state.word().swap(IDLE, Ordering::Release);
        if before == AWAITED {
            self.flag.state.wake(1);
        }
        before
    }

    /// Whether somebody wants the gate, so that long work can make way.
    #[inline]
    pub fn gate_wanted(&self) -> bool {
        self.gate.closed.word().load(Ordering::Relaxed) != OPEN
    }
}

impl Drop for Member<'_> {
    fn drop(&mut self) {
        self.leave();
        self.flag.claimed.store(0, Ordering::Release);
    }
}
