//! How the kernel schedules a worker.
//!
//! When there are as many workers as cores, or more, a busy worker that is woken would push another
//! thread off its core, mostly one that was just about to send us more. As a batch task it waits
//! until that one sleeps, and then finds more to do in one turn. Where cores are idle nothing
//! changes: a woken thread gets one at once. Measured with two cores
//! (`docs/adr/0004-batch-scheduling.md`): at four workers the CPU per operation falls by a third.
//!
//! A worker with little to do gains nothing by that, and its clients would wait for another
//! thread's time slice to end: it has short turns instead. So has one that works on a long command,
//! and gives way after each slice of it (ADR 4).

use crate::base::cores::{Share, cores, share};
use crate::engine::server::Server;

/// How the calling worker's thread is scheduled, and from what that follows.
#[derive(Default)]
pub struct Schedule {
    /// There are as many workers as cores.
    crowded: bool,
    busy: bool,
    /// `None`: as the process was started.
    share: Option<Share>,
    /// When the window began, in ticks, and the commands since then.
    since: u64,
    commands: u64,
    window: u64,
}

impl Schedule {
    /// Fits the number of workers; to be called at the start, and when that number changes.
    pub fn fit(&mut self, server: &Server) {
        self.crowded = cores() > 1 && server.workers.serving() >= cores();
        self.window = server.clock.ticks(WINDOW_US);
        self.change(false);
    }

    /// Whether many commands were executed lately.
    pub const fn is_busy(&self) -> bool {
        self.busy
    }

    /// A turn is over: `now` in ticks, the commands that it executed, and whether there is long
    /// work.
    #[inline]
    pub fn turned(&mut self, now: u64, commands: u64, has_long_work: bool) {
        self.commands += commands;
        let elapsed = now.saturating_sub(self.since);
        if elapsed >= self.window {
            let rate = self.commands.saturating_mul(self.window) / elapsed.max(1);
            let least = if self.busy { BUSY_COMMANDS / 2 } else { BUSY_COMMANDS };
            self.busy = rate >= least;
            self.change(has_long_work);
            (self.since, self.commands) = (now, 0);
        }
    }

    fn change(&mut self, has_long_work: bool) {
        let new = match (self.busy && !has_long_work, self.crowded) {
            (false, _) => Share::ShortTurns,
            (true, false) => Share::Ordinary,
            (true, true) => Share::Batch,
        };
        if self.share != Some(new) {
            self.share = Some(new);
            share(new);
        }
    }
}

/// A worker's load is measured in windows of this length ...
const WINDOW_US: u64 = 5000;
/// ... and with this many commands in one, 40,000 a second, it is busy.
const BUSY_COMMANDS: u64 = 200;
