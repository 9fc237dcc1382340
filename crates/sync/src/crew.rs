//! Work that one thread, the leader, splits into parts. Helpers do the parts together with it.
//!
//! The leader hands the parts out and does parts itself until none is left. Then it waits for the
//! parts that helpers took. So it never waits for a helper to begin: if none has time, the leader
//! does everything. A part is a value that moves from thread to thread and comes back with its
//! result, so the threads share only the lists.

use crate::{AtomicBool, Condvar, Mutex, MutexGuard, Ordering, pause};

/// How often a helper that was called looks for a part before it sleeps again. This takes some tens
/// of microseconds.
const LOOKS: u32 = if cfg!(shuttle) { 2 } else { 2048 };

/// The parts of one piece of work at a time. There is one leader and any number of helpers.
pub struct Crew<P> {
    state: Mutex<State<P>>,
    /// Whether there may be parts that no thread has taken.
    has_parts: AtomicBool,
    /// Helpers sleep on this until there is a part.
    handed_out: Condvar,
    /// The leader sleeps on this until all parts are done.
    all_done: Condvar,
}

struct State<P> {
    /// Parts that no thread has taken.
    waiting: Vec<P>,
    done: Vec<P>,
    /// How many parts are being worked on.
    taken: usize,
    /// How many helpers sleep.
    idle: usize,
    /// How many helpers were woken and have not looked for a part yet.
    called: usize,
    leader_sleeps: bool,
    is_dismissed: bool,
}

impl<P> Default for Crew<P> {
    fn default() -> Self {
        let state = State {
            waiting: Vec::new(),
            done: Vec::new(),
            taken: 0,
            idle: 0,
            called: 0,
            leader_sleeps: false,
            is_dismissed: false,
        };
        Self {
            state: Mutex::new(state),
            has_parts: AtomicBool::new(false),
            handed_out: Condvar::new(),
            all_done: Condvar::new(),
        }
    }
}

impl<P> Crew<P> {
    /// Wakes helpers that sleep, so that they are awake when there are parts.
    pub fn call(&self) {
        self.wake(self.lock());
    }

    fn wake(&self, mut state: MutexGuard<'_, State<P>>) {
        let wanted = state.idle.saturating_sub(state.called);
        state.called += wanted;
        drop(state);
        (0..wanted).for_each(|_| self.handed_out.notify_one());
    }

    /// The leader lets every thread take these parts. The earlier parts must have been gathered.
    /// The last part is taken first.
    pub fn hand_out(&self, parts: &mut Vec<P>) {
        let mut state = self.lock();
        debug_assert!(state.is_all_done(), "there is work left");
        state.waiting.append(parts);
        self.has_parts.store(true, Ordering::Release);
        self.wake(state);
    }

    /// Takes a part that no other thread has taken. The caller must finish it.
    pub fn take(&self) -> Option<P> {
        let part = self.lock().take();
        if part.is_none() {
            self.has_parts.store(false, Ordering::Relaxed);
        }
        part
    }

    /// Puts back a part that is done.
    pub fn finish(&self, part: P) {
        let mut state = self.lock();
        state.done.push(part);
        state.taken -= 1;
        let wakes = state.leader_sleeps && state.is_all_done();
        state.leader_sleeps &= !wakes;
        drop(state);
        if wakes {
            self.all_done.notify_one();
        }
    }

    /// For helpers: finishes a part, if one is given, and waits for the next. `None` means that the
    /// helper is dismissed.
    pub fn next(&self, finished: Option<P>) -> Option<P> {
        if let Some(part) = finished {
            self.finish(part);
        }
        loop {
            for _ in 0..LOOKS {
                if self.has_parts.load(Ordering::Acquire) {
                    if let Some(part) = self.lock().take() {
                        return Some(part);
                    }
                    break;
                }
                pause();
            }
            let mut state = self.lock();
            if let Some(part) = state.take() {
                return Some(part);
            }
            if state.is_dismissed {
                return None;
            }
            state.idle += 1;
            state = self.handed_out.wait(state);
            state.idle -= 1;
            state.called = state.called.saturating_sub(1);
        }
    }

    /// The leader waits until all parts are done and gets them back.
    pub fn gather(&self, parts: &mut Vec<P>) {
        let mut state = self.lock();
        while !state.is_all_done() {
            state.leader_sleeps = true;
            state = self.all_done.wait(state);
        }
        state.leader_sleeps = false;
        parts.append(&mut state.done);
    }

    /// Lets the helpers end when no part is left.
    pub fn dismiss(&self) {
        self.lock().is_dismissed = true;
        self.handed_out.notify_all();
    }

    #[cfg_attr(debug_assertions, track_caller)]
    fn lock(&self) -> MutexGuard<'_, State<P>> {
        self.state.lock()
    }
}

impl<P> State<P> {
    fn take(&mut self) -> Option<P> {
        let part = self.waiting.pop()?;
        self.taken += 1;
        Some(part)
    }

    fn is_all_done(&self) -> bool {
        self.waiting.is_empty() && self.taken == 0
    }
}
