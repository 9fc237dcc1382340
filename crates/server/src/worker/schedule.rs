//! How the kernel schedules a worker.
//!
//! When there are as many workers as cores, or more, a busy worker that is woken would push another thread
//! off its core, mostly one that was just about to send us more. As a batch task it waits until that one
//! sleeps, and then finds more to do in one turn. Where cores are idle nothing changes: a woken thread
//! gets one at once. Measured with two cores (`docs/adr/0004-batch-scheduling.md`): at four workers the CPU
//! per operation falls by a third.
//!
//! A worker with little to do gains nothing by that, and its clients would wait for another thread's time slice
//! to end: it stays an ordinary task.

use crate::cores::cores;
use crate::server::Server;

/// How the calling worker's thread is scheduled, and from what that follows.
#[derive(Default)]
pub struct Schedule {
    /// There are as many workers as cores.
    crowded: bool,
    batch: bool,
    /// When the window began, in ticks, and the commands since then.
    since: u64,
    commands: u64,
    window: u64,
}

impl Schedule {
    /// Fits the number of workers; to be called at the start, and when that number changes.
    pub fn fit(&mut self, server: &Server) {
        self.crowded = cores() > 1 && server.workers.len() >= cores();
        self.window = server.clock.ticks(WINDOW_US);
        if !self.crowded {
            self.change(false);
        }
    }

    /// A turn is over: `now` in ticks, and the commands that it executed.
    #[inline]
    pub fn turned(&mut self, now: u64, commands: u64) {
        if !self.crowded {
            return;
        }
        self.commands += commands;
        let elapsed = now.saturating_sub(self.since);
        if elapsed >= self.window {
            let rate = self.commands.saturating_mul(self.window) / elapsed.max(1);
            let least = if self.batch { BUSY_COMMANDS / 2 } else { BUSY_COMMANDS };
            self.change(rate >= least);
            (self.since, self.commands) = (now, 0);
        }
    }

    fn change(&mut self, batch: bool) {
        if self.batch == batch {
            return;
        }
        self.batch = batch;
        let policy = if batch { libc::SCHED_BATCH } else { libc::SCHED_OTHER };
        let parameter = libc::sched_param { sched_priority: 0 };
        // SAFETY: the calling thread (0), and a parameter that lives through the call.
        let refused = unsafe { libc::sched_setscheduler(0, policy, &raw const parameter) } != 0;
        if refused {
            let error = std::io::Error::last_os_error();
            log::debug!("Cannot change the scheduling of a worker: {error}");
        }
    }
}

/// A worker's business is looked at in windows of so long ...
const WINDOW_US: u64 = 5000;
/// ... and from so many commands in one, 40,000 a second, it is busy.
const BUSY_COMMANDS: u64 = 200;
