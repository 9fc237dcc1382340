//! The gate: how one thread gets the whole process to itself.
//!
//! Each thread that works on shared state owns a flag on a cache line of its own and keeps it set
//! while it works. A thread that takes the gate closes it and waits for the flags, one for each
//! thread, instead of locking thousands of shards. Setting the flag costs one store and one fence;
//! nothing is shared unless the gate is closed.
//!
//! Waiting for it is fair. Takers have it in the order in which they came; and members that the
//! gate shut out have their turn before the next taker shuts it.

use bobbin_sync::{AtomicU32, Futex, Mutex, MutexGuard, Ordering, fence};

/// The most threads that may be members at a time.
pub const MEMBERS_MAX: usize = 160;

const IDLE: u32 = 0;
const BUSY: u32 = 1;
/// Busy, and the taker of the gate sleeps until it is not.
const AWAITED: u32 = 2;

const OPEN: u32 = 0;
const CLOSED: u32 = 1;

/// The gate and its members' flags.
pub struct Gate {
    closed: Futex,
    /// Members that wait until it is open.
    shut_out: Futex,
    /// The ticket of the taker that comes next.
    tickets: AtomicU32,
    /// The ticket of the taker whose turn it is.
    turn: Futex,
    /// To the order of locks a busy member holds this too: its taker waits for the members, and
    /// they for the taker.
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
            shut_out: Futex::default(),
            tickets: AtomicU32::new(0),
            turn: Futex::default(),
            taker: Mutex::new(Everything),
            flags,
            used: AtomicU32::new(0),
            reserved: AtomicU32::new(0),
        }
    }

    /// Asks others not to take the gate, as something is half done that belongs together; `false`
    /// ends it. To be called by a busy member, or with the gate held: who takes the gate afterwards
    /// sees it.
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
        self.taker.class().wait_for();
        let ticket = self.tickets.fetch_add(1, Ordering::Relaxed);
        wait_until(&self.turn, ticket);
        let taker = self.taker.lock();
        wait_until(&self.shut_out, 0);
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
        self.gate.turn.word().fetch_add(1, Ordering::Release);
        self.gate.turn.wake(u32::MAX >> 1);
    }
}

/// Sleeps until the word is `wanted`.
fn wait_until(futex: &Futex, wanted: u32) {
    loop {
        match futex.word().load(Ordering::Acquire) {
            value if value == wanted => return,
            other => futex.wait(other),
        }
    }
}

impl Member<'_> {
    /// Marks this thread busy; waits first while the gate is closed.
    #[inline]
    #[cfg_attr(debug_assertions, track_caller)]
    pub fn enter(&self) {
        self.gate.taker.class().wait_for();
        self.gate.taker.class().hold();
        self.flag.state.word().store(BUSY, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        if self.gate.closed.word().load(Ordering::Acquire) != OPEN {
            self.wait_until_open();
        }
    }

    /// Waits while the gate is closed. Nobody closes it again before this thread is busy.
    #[cold]
    fn wait_until_open(&self) {
        let Gate { closed, shut_out, .. } = self.gate;
        loop {
            self.clear();
            shut_out.word().fetch_add(1, Ordering::SeqCst);
            wait_until(closed, OPEN);
            self.flag.state.word().store(BUSY, Ordering::Relaxed);
            fence(Ordering::SeqCst);
            if shut_out.word().fetch_sub(1, Ordering::SeqCst) == 1 {
                shut_out.wake(1);
            }
            // A taker may have passed before this thread was counted.
            if closed.word().load(Ordering::Acquire) == OPEN {
                return;
            }
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

#[cfg(all(test, not(shuttle)))]
mod tests {
    use super::*;

    /// Waits for what another thread is about to do.
    fn until(done: impl Fn() -> bool) {
        while !done() {
            std::thread::yield_now();
        }
    }

    #[test]
    fn who_came_first_goes_first() {
        let gate = Gate::new(2);
        let came = Mutex::new(Vec::new());
        std::thread::scope(|scope| {
            let first = gate.take();
            // Shut out before the other takers come, or behind them: a member has its turn before
            // both.
            scope.spawn(|| {
                let member = gate.join().expect("there are flags for all");
                member.enter();
                came.lock().push("member");
                member.leave();
            });
            until(|| gate.shut_out.word().load(Ordering::SeqCst) == 1);
            for (number, name) in [(2, "second"), (3, "third"), (4, "fourth")] {
                let (gate, came) = (&gate, &came);
                scope.spawn(move || {
                    let _guard = gate.take();
                    came.lock().push(name);
                });
                until(|| gate.tickets.load(Ordering::SeqCst) == number);
            }
            drop(first);
        });
        assert_eq!(*came.lock(), ["member", "second", "third", "fourth"]);
    }
}
