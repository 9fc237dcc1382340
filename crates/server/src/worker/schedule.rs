//! How the kernel schedules a worker.
//!
//! With at least as many workers as cores, a busy worker that wakes up would take the core from
//! another thread, often one that is about to send it more commands. As a batch task the worker
//! waits until that thread sleeps, and then finds more to do in one turn. With idle cores nothing
//! changes: a woken thread gets one at once. Measured with two cores
//! (`docs/adr/0004-batch-scheduling.md`): at four workers the CPU time per operation falls by a
//! third.
//!
//! A worker with little to do gains nothing by that, and its clients would wait for the end of
//! another thread's time slice. So it gets short time slices instead. The same holds for a worker
//! on a long command, which gives way after each slice of it (ADR 4).

use crate::base::cores::{CoreShare, cores, share};
use crate::engine::server::Server;

/// How the calling worker's thread is scheduled, and the state that decides it.
#[derive(Default)]
pub struct Schedule {
    /// There are at least as many workers as cores.
    crowded: bool,
    busy: bool,
    /// `None`: not set yet, the thread runs as the process was started.
    share: Option<CoreShare>,
    /// When the current window began, in ticks, and how many commands were executed in it.
    since: u64,
    commands: u64,
    window: u64,
}

impl Schedule {
    /// Adapts to the number of workers. Must be called at the start and when that number changes.
    pub fn fit(&mut self, server: &Server) {
        self.crowded = cores() > 1 && server.workers.serving() >= cores();
        self.window = server.clock.ticks(WINDOW_US);
        self.change(false);
    }

    /// Whether the worker executed many commands lately.
    pub const fn is_busy(&self) -> bool {
        self.busy
    }

    /// Takes note of a turn that ended at `now` (in ticks): how many commands it executed, and
    /// whether there is long work.
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
            (false, _) => CoreShare::ShortTurns,
            (true, false) => CoreShare::Ordinary,
            (true, true) => CoreShare::Batch,
        };
        if self.share != Some(new) {
            self.share = Some(new);
            share(new);
        }
    }
}

/// The load is measured in windows of this length ...
const WINDOW_US: u64 = 5000;
/// ... and a worker that executes this many commands in one, 40,000 a second, is busy.
const BUSY_COMMANDS: u64 = 200;
