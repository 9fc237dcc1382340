//! How long a script has run, when it pauses, and when it is slow.

use std::ptr::NonNull;

use super::ScriptSession;
use crate::base::clock::ticks;
use crate::engine::command::Data;
use crate::engine::telemetry::stats::WorkerStats;

impl ScriptSession {
    /// Notes that the script is set aside, until `resume`.
    pub fn set_aside(&mut self) {
        self.aside_since = Some(ticks());
    }

    /// Lets the script go on in this thread for `slice` ticks. The time that it was set aside for
    /// does not make it slow.
    pub fn resume(&mut self, data: &mut Data, stats: &WorkerStats, slice: u64) {
        self.data = NonNull::from(data);
        self.stats = NonNull::from(stats);
        let now = ticks();
        if let Some(since) = self.aside_since.take() {
            // The end of a wait leaves out the whole of it.
            let rested = if self.waits() { 0 } else { now - since };
            self.leave_out(rested);
        }
        (self.stays, self.pause_at) = (false, now + slice);
        if self.is_slow() {
            // TIME goes on in a slow script, which may wait for a moment.
            // SAFETY: the client lives as long as the session, and only the script uses it.
            unsafe { self.client.as_mut() }.time_us = 0;
        }
    }

    /// Does not count some of the time since the script began.
    pub(super) fn leave_out(&mut self, ticks: u64) {
        self.started += ticks;
        self.slow_at = self.slow_at.saturating_add(ticks);
    }

    /// Makes the script stay with its worker until it is slow.
    pub const fn stay(&mut self) {
        (self.stays, self.pause_at) = (true, self.slow_at);
    }

    /// Whether other clients get `-BUSY` because of this script.
    pub fn is_slow(&self) -> bool {
        ticks() >= self.slow_at
    }

    /// How long the run has taken so far, in ticks.
    pub fn duration(&self) -> u64 {
        ticks() - self.started
    }
}
