//! CLIENT PAUSE: for how long, and which commands, have to wait.
//!
//! The pause itself is `Switch::PAUSED` and what is here; both change under the gate, or, when the
//! time is over, by whichever worker's turn sees that first. A worker keeps the connections that it
//! had to put off, and serves them once the pause has ended. Meanwhile keys neither expire nor are
//! evicted, so that a replica can catch up with a data set that stands still.

use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};

use crate::engine::server::{Server, Switch};

/// The pause that is in force, if any.
#[derive(Default)]
pub struct Pause {
    until_ms: AtomicI64,
    /// Every command waits, not just those that write.
    all: AtomicBool,
}

/// A pause that is on, for INFO.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ActivePause {
    pub all: bool,
    pub left_ms: i64,
}

impl Server {
    /// The pause, if there is one at this time.
    pub fn paused(&self, now_ms: i64) -> Option<ActivePause> {
        if self.switches.load() & Switch::PAUSED == 0 {
            return None;
        }
        let left_ms = self.pause.until_ms.load(Ordering::Relaxed).saturating_sub(now_ms);
        (left_ms > 0).then(|| ActivePause { all: self.pause.all.load(Ordering::Relaxed), left_ms })
    }

    /// Whether dead keys may be taken out, and live ones evicted. Nothing changes by itself while
    /// clients are paused, nor while a script that must run alone is paused, nor on a replica.
    pub fn may_expire(&self, now_ms: i64) -> bool {
        let stands_still = Switch::BUSY | Switch::REPLICA;
        self.switches.load() & stands_still == 0 && self.paused(now_ms).is_none()
    }

    /// Starts a pause, or extends the one that is on: the later end and the stricter kind win. The
    /// gate is held.
    pub fn pause_clients(&self, until_ms: i64, all: bool, now_ms: i64) {
        let before = self.paused(now_ms);
        let until_ms = match before {
            Some(_) => until_ms.max(self.pause.until_ms.load(Ordering::Relaxed)),
            None => until_ms,
        };
        self.pause.until_ms.store(until_ms, Ordering::Relaxed);
        self.pause.all.store(all || before.is_some_and(|pause| pause.all), Ordering::Relaxed);
        self.switches.set(Switch::PAUSED, true);
    }

    /// Ends the pause, and makes every worker serve the clients that it put off. The gate is held.
    pub fn unpause_clients(&self) {
        self.switches.set(Switch::PAUSED, false);
        self.workers.wake();
    }

    /// Ends the pause when its time is over. To be called in a worker's turn: nobody can start one
    /// then.
    pub fn end_pause_in_time(&self, now_ms: i64) {
        if self.switches.load() & Switch::PAUSED != 0 && self.paused(now_ms).is_none() {
            self.switches.set(Switch::PAUSED, false);
        }
    }
}
