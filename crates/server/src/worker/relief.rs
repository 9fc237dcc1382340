//! A worker that works on a long command gives its other connections to workers that have time.
//!
//! The slices of a long command come between the worker's other commands. A thread that works
//! without a pause is also the one that the kernel takes the core from. So after a while such a
//! worker counts as laden: when one of its clients sends a command, the worker executes it, and
//! then moves the client to another worker. Silent connections stay, and so do those that listen.
//! If all other workers are laden or busy with small commands, every client stays: half a worker is
//! better than none (ADR 4).
//!
//! Some time after the long command the workers share out their connections again.

use std::sync::atomic::Ordering;

use super::{Worker, accept};
use crate::base::clock::has_come;

/// What a worker knows of its own load.
#[derive(Default)]
pub(super) struct Relief {
    /// When the worker began to work on long commands without a pause, in ticks.
    jobs_since: Option<u64>,
    is_laden: bool,
    /// Slots of connections that executed commands while the worker was laden.
    active: Vec<u32>,
    /// Set once connections were given away: when all workers share them out again (Unix ms). Every
    /// long command puts it off.
    shares_out_at_ms: Option<i64>,
}

impl Relief {
    /// Notes that a connection executes commands.
    #[inline]
    pub(super) fn note_active(&mut self, slot: u32) {
        if self.is_laden {
            self.active.push(slot);
        }
    }
}

impl Worker {
    /// Updates `is_laden` and `is_busy` at the end of a turn. `now` is in ticks.
    #[inline]
    pub(super) fn note_burden(&mut self, now: u64) {
        self.relief.jobs_since = self.has_jobs().then(|| self.relief.jobs_since.unwrap_or(now));
        let is_laden = self
            .relief
            .jobs_since
            .is_some_and(|since| now.saturating_sub(since) >= self.server.clock.ticks(LADEN_US));
        if is_laden != self.relief.is_laden {
            self.relief.is_laden = is_laden;
            self.handle.is_laden.store(is_laden, Ordering::Relaxed);
        }
        // Other threads read this word, so it is written only when it changes.
        if self.schedule.is_busy() != self.handle.is_busy.load(Ordering::Relaxed) {
            self.handle.is_busy.store(self.schedule.is_busy(), Ordering::Relaxed);
        }
    }

    /// Gives away the connections that executed commands in the last turn, if this worker is laden
    /// and the next one is neither laden nor busy.
    #[inline]
    pub(super) fn give_to_others(&mut self) {
        if !self.relief.active.is_empty() {
            self.give_active();
        }
    }

    #[cold]
    fn give_active(&mut self) {
        let mut active = std::mem::take(&mut self.relief.active);
        let next = accept::least_burdened(self.server);
        let has_time = next.is_some_and(|next| next.id != self.handle.id && next.has_time());
        for slot in active.drain(..).filter(|_| has_time) {
            // A client whose command is the long one stays.
            if self.give_away(slot) {
                self.relief.shares_out_at_ms = Some(self.data.conditions.now_ms + REST_MS);
            }
        }
        self.relief.active = active;
    }

    /// Has the connections shared out again, once no long command has run for some time.
    pub(super) fn share_out(&mut self) {
        let Some(at_ms) = &mut self.relief.shares_out_at_ms else { return };
        if self.relief.is_laden {
            *at_ms = self.data.conditions.now_ms + REST_MS;
        } else if has_come(self.data.conditions.now_ms, *at_ms, REST_MS) {
            self.relief.shares_out_at_ms = None;
            self.server.workers.rebalance();
        }
    }
}

/// After how many microseconds of long commands a worker is laden. Moving clients away from shorter
/// work gains nothing.
const LADEN_US: u64 = 5_000;
/// How long after a long command the connections are shared out: another one may follow soon.
const REST_MS: i64 = 1_000;
