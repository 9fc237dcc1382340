//! The gate: how one thread gets the whole process to itself.
//!
//! Each thread that works on shared state owns a flag on a cache line of its own, and keeps the
//! flag set while it works. A thread that takes the gate closes it and waits for the flags, of
//! which there is one for each thread, instead of locking thousands of shards. Setting a flag costs
//! one store and one fence. Threads share no cache line unless the gate is closed.
//!
//! Waiting is fair. Threads get the gate in the order in which they asked for it. Members that the
//! gate shut out have their turn before the next thread closes it.

use bobbin_sync::{AtomicU32, Futex, Mutex, MutexGuard, Ordering, fence};

/// The most threads that may be members at a time.
pub const MEMBERS_MAX: usize = 160;

const IDLE: u32 = 0;
const BUSY: u32 = 1;
/// Busy, and the thread that takes the gate sleeps until the flag is cleared.
const AWAITED: u32 = 2;

/// A thread has the gate, or waits for the last busy member.
const CLOSED: u32 = 1 << 31;

/// The gate and its members' flags.
pub struct Gate {
    /// `CLOSED` or not, and the number of members that were shut out and have not had their turn
    /// yet. Both are in one word because the gate must not close while there are such members.
    door: Futex,
    /// The ticket of the next thread that asks for the gate.
    tickets: AtomicU32,
    /// The ticket of the thread whose turn it is.
    turn: Futex,
    /// In the order of locks, a busy member counts as holding this lock too: the thread that takes
    /// the gate waits for the members, and they wait for that thread.
    taker: Mutex<Everything>,
    flags: Box<[MemberFlag]>,
    /// How many flags were ever claimed, counted from the first. Others need no look.
    used: AtomicU32,
    /// How many threads have something unfinished, so that no other thread should take the gate.
    reserved: AtomicU32,
}

/// The data that the gate protects.
struct Everything;

#[repr(align(128))]
#[derive(Default)]
struct MemberFlag {
    state: Futex,
    claimed: AtomicU32,
}

/// A thread's right to be a member of the gate. Dropping it gives the flag back.
pub struct Member<'a> {
    gate: &'a Gate,
    flag: &'a MemberFlag,
}

/// Proof that no member is busy. Dropping it opens the gate.
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
        let flags = (0..members).map(|_| MemberFlag::default()).collect();
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

    /// Asks other threads not to take the gate, because something is half done. `false` ends that.
    /// Must be called by a busy member, or with the gate held: then a thread that takes the gate
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

    /// Whether a thread has the gate, or waits for the last busy member. A busy member that asks
    /// holds that thread up, and so all members that are shut out.
    pub fn is_closed(&self) -> bool {
        is_closed(self.door.word().load(Ordering::Relaxed))
    }

    /// How many members wait for the gate to open, or were let in and are not busy yet.
    pub fn shut_out(&self) -> u32 {
        self.door.word().load(Ordering::Relaxed) & !CLOSED
    }

    /// Claims a flag. `None`: all are taken.
    pub fn join(&self) -> Option<Member<'_>> {
        let at = self.flags.iter().position(|f| f.claimed.swap(1, Ordering::AcqRel) == 0)?;
        // Must come before the fence of the first `enter`.
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
        // Pairs with the fence of `enter`: either we see the flag, or its owner sees the closed
        // gate.
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

/// Sleeps until the word has the wanted value.
fn wait_until(futex: &Futex, wanted: impl Fn(u32) -> bool) {
    loop {
        match futex.word().load(Ordering::Acquire) {
            value if wanted(value) => return,
            other => futex.wait(other),
        }
    }
}

impl Member<'_> {
    /// Marks this thread as busy. Waits first while the gate is closed.
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
            // This thread is counted only while the gate is closed. The thread that opens the gate
            // keeps it open until the count is 0.
            let counted = |door| is_closed(door).then_some(door + 1);
            if door.word().fetch_update(Ordering::AcqRel, Ordering::Relaxed, counted).is_ok() {
                wait_until(door, |door| !is_closed(door));
                self.flag.state.word().store(BUSY, Ordering::Relaxed);
                // The thread that closes the gate next has seen this subtraction, and so the flag.
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

    /// Marks this thread as not busy.
    #[inline]
    pub fn leave(&self) {
        if self.clear() != IDLE {
            self.gate.taker.class().release();
        }
    }

    /// Clears the flag. Returns its earlier value.
    #[inline]
    fn clear(&self) -> u32 {
        let before = self.flag.state.word().swap(IDLE, Ordering::Release);
        if before == AWAITED {
            self.flag.state.wake(1);
        }
        before
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
