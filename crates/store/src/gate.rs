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

/// A thread has the gate, or waits for the last busy member.
const CLOSED: u32 = 1 << 31;

/// The gate and its members' flags.
pub struct Gate {
    /// `CLOSED`, or not; and the number of members that this shut out and that have not had their
    /// turn. One word for both, as the gate must not close while there are such members.
    door: Futex,
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
            door: Futex::default(),
            tickets: AtomicU32::new(0),
            turn: Futex::default(),
            taker: Mutex::new(Everything),
            flags,
            used: AtomicU32::new(0),
            reserved: AtomicU32::new(0),
        }
    }

    /// Asks others not to take the gate, as something is half done that belongs together; `false`
    /// ends it. To be called by a busy member, or with the gate held: a thread that takes the gate
    /// afterwards sees it.
    pub fn reserve(&self, reserve: bool) {
        match reserve {
            true => self.reserved.fetch_add(1, Ordering::AcqRel),
            false => self.reserved.fetch_sub(1, Ordering::AcqRel),
        };
    }

    pub fn is_reserved(&self) -> bool {
        self.reservations() > 0
    }

    /// How many reservations there are.
    pub fn reservations(&self) -> u32 {
        self.reserved.load(Ordering::Acquire)
    }

    /// How many members wait for it to open, or were let in and are not busy yet.
    pub fn shut_out(&self) -> u32 {
        self.door.word().load(Ordering::Relaxed) & !CLOSED
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
        wait_until(&self.turn, |turn| turn == ticket);
        let taker = self.taker.lock();
        let door = self.door.word();
        while door.compare_exchange(0, CLOSED, Ordering::AcqRel, Ordering::Relaxed).is_err() {
            wait_until(&self.door, |door| door == 0);
        }
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
        self.gate.door.word().fetch_and(!CLOSED, Ordering::Release);
        self.gate.door.wake(u32::MAX >> 1);
        self.gate.turn.word().fetch_add(1, Ordering::Release);
        self.gate.turn.wake(u32::MAX >> 1);
    }
}

fn is_closed(door: u32) -> bool {
    door & CLOSED != 0
}

/// Sleeps until the word is as wanted.
fn wait_until(futex: &Futex, wanted: impl Fn(u32) -> bool) {
    loop {
        match futex.word().load(Ordering::Acquire) {
            value if wanted(value) => return,
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
        if is_closed(self.gate.door.word().load(Ordering::Acquire)) {
            self.wait_until_open();
        }
    }

    /// Waits while the gate is closed. No thread closes it again before this thread is busy.
    #[cold]
    fn wait_until_open(&self) {
        let door = &self.gate.door;
        loop {
            self.clear();
            // It is counted only while the gate is closed. The thread that opens the gate leaves it
            // open until the count is 0.
            let counted = |door| is_closed(door).then_some(door + 1);
            if door.word().fetch_update(Ordering::AcqRel, Ordering::Relaxed, counted).is_ok() {
                wait_until(door, |door| !is_closed(door));
                self.flag.state.word().store(BUSY, Ordering::Relaxed);
                // The thread that closes the gate next has seen this, and so the flag.
                if door.word().fetch_sub(1, Ordering::AcqRel) == 1 {
                    door.wake(1);
                }
                return;
            }
            self.flag.state.word().store(BUSY, Ordering::Relaxed);
            fence(Ordering::SeqCst);
            if !is_closed(door.word().load(Ordering::Acquire)) {
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

    /// Whether a thread wants the gate, so that long work can make way.
    #[inline]
    pub fn gate_wanted(&self) -> bool {
        is_closed(self.gate.door.word().load(Ordering::Relaxed))
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
    fn the_first_to_come_goes_first() {
        for _ in 0..100 {
            let gate = Gate::new(2);
            let came = Mutex::new(Vec::new());
            std::thread::scope(|scope| {
                let first = gate.take();
                scope.spawn(|| {
                    let member = gate.join().expect("there are flags for all");
                    member.enter();
                    came.lock().push("member");
                    member.leave();
                });
                until(|| gate.shut_out() == 1);
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
}
