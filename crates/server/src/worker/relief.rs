//! Connections leave a worker that works on a long command, for one that has time.
//!
//! The slices of a long command come between a worker's other commands, and the thread that works
//! without a pause is the one that the kernel takes the core from. So once that has lasted for a
//! while the worker is laden: one of its clients that asks for something is served, and then goes
//! to another worker, one by one as they ask. Connections that are silent stay, and those that
//! listen. Where all others are laden, or busy with small commands, all clients stay: then half a
//! worker is better than none (ADR 4).
//!
//! Some time after the long command the workers share out their connections again.

use std::sync::atomic::Ordering;

use super::{Worker, accept};

/// What a worker knows of its burden.
#[derive(Default)]
pub(super) struct Relief {
    /// When the long commands began, in ticks; one may follow another.
    jobs_since: Option<u64>,
    is_laden: bool,
    /// Slots of connections that had commands executed, while it is laden.
    active: Vec<u32>,
    /// Connections went to others: when to have them shared out again (Unix ms), put off by every
    /// long command.
    shares_out_at_ms: Option<i64>,
}

impl Relief {
    #[inline]
    pub(super) fn note_active(&mut self, slot: u32) {
        if self.is_laden {
            self.active.push(slot);
        }
    }
}

impl Worker {
    /// A turn ends, `now` in ticks.
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
        // Others look at it: it is written when it changes, which is seldom.
        if self.schedule.is_busy() != self.handle.is_busy.load(Ordering::Relaxed) {
            self.handle.is_busy.store(self.schedule.is_busy(), Ordering::Relaxed);
        }
    }

    /// Gives away the connections that were active in this turn, if this worker is laden and the
    /// next one is neither that nor busy.
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
            // Whose command is the long one stays with it.
            if self.give_away(slot) {
                self.relief.shares_out_at_ms = Some(self.data.turn.now_ms + REST_MS);
            }
        }
        self.relief.active = active;
    }

    /// Has the connections shared out again, once the long commands are over for some time.
    pub(super) fn share_out(&mut self) {
        let Some(at_ms) = &mut self.relief.shares_out_at_ms else { return };
        if self.relief.is_laden {
            *at_ms = self.data.turn.now_ms + REST_MS;
        } else if self.data.turn.now_ms >= *at_ms {
            self.relief.shares_out_at_ms = None;
            self.server.workers.rebalance();
        }
    }
}

/// From when on a worker with a long command is laden, in microseconds: shorter work is over before
/// others gain by it.
const LADEN_US: u64 = 5_000;
/// After a long command there may be another soon.
const REST_MS: i64 = 1_000;
