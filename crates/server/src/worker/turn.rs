//! One turn of a worker, step by step: what happens between two waits for events.

use std::time::Duration;

use bobbin_io::{Driver, error_text};

use super::Worker;
use crate::base::clock::ticks;
use crate::base::cores;
use crate::engine::blocking;
use crate::engine::lazyfree;
use crate::engine::server::Switch;
use crate::engine::server::unsent::UnsentBytes;

/// After a turn that needed more than this, the arena's memory shrinks to it, in bytes ...
pub(super) const ARENA_KEPT_MAX: usize = 1024 * 1024;
/// ... and to this when there is nothing to do.
const ARENA_IDLE_MAX: usize = 16 * 1024;
/// How long a worker sleeps between turns when all its jobs wait for something.
const PARKED_PAUSE: Duration = Duration::from_millis(1);

/// How many new connections count as served after a turn with as many events or more. They are
/// fewer than a driver reports of at once: with io_uring the kernel receives from some 20 in a
/// system call.
const SETTLED_MAX: usize = 8;

/// The state when a turn began.
struct Begun {
    ticks: u64,
    /// Commands that the worker had executed by then.
    commands: u64,
}

impl Worker {
    /// Takes one turn: waits for events and handles them, and does the work that is due.
    pub(super) fn turn(&mut self) {
        self.wait();
        let begun = self.begin_turn();
        self.serve_events(&begun);
        self.serve_posts_and_waits();
        self.work_on_long_commands();
        self.unlock();
        self.send_replies();
        self.end_turn(&begun);
    }

    /// Waits for an event, or until the next deadline.
    pub(super) fn wait(&mut self) {
        let idle = self.handle.mailbox.sleep();
        let more = self.has_posts() || self.missed_release();
        let work =
            !(self.slots.deferred.is_empty() && self.adopted.is_empty()) || self.await_disk();
        let mut timeout = if !idle || more || work || self.next.sleepless {
            Duration::ZERO
        } else if !self.has_jobs() {
            self.timer.until_next()
        } else if self.next.is_parked {
            PARKED_PAUSE
        } else {
            Duration::ZERO
        };
        timeout = timeout.min(self.deadlines.until_next(self.data.conditions.now_ms));
        if !self.postponed.for_pause.is_empty() {
            timeout = timeout.min(self.until_resumed());
        }
        if let Err(error) = self.driver.wait(Some(timeout), &mut self.events) {
            // No client can cause this error. A worker without its driver cannot serve.
            log::error!("Worker {} cannot wait for events: {}", self.handle.id, error_text(&error));
            std::process::abort();
        }
        self.handle.mailbox.awake();
        self.settle_adopted();
        if self.events.is_empty() {
            self.commit_kept_back();
        }
        self.next.sleepless = false;
    }

    /// Counts connections that were taken over as served: all, if the driver had little to report,
    /// and so has reported what they have sent; otherwise few, as what they send waits behind what
    /// others do.
    #[inline(always)]
    fn settle_adopted(&mut self) {
        if !self.adopted.is_empty() {
            let served = if self.events.len() < SETTLED_MAX { usize::MAX } else { SETTLED_MAX };
            self.adopted.truncate(self.adopted.len().saturating_sub(served));
        }
    }

    /// Enters the gate: until the end of the turn no other thread gets it.
    #[inline(always)]
    fn begin_turn(&mut self) -> Begun {
        let begun = Begun { ticks: ticks(), commands: self.handle.stats.totals.commands.get() };
        self.handle.watch.enter(begun.ticks);
        self.data.enter();
        self.look_at_clock();
        begun
    }

    /// Takes the time by which the turn executes commands, and what follows from it.
    fn look_at_clock(&mut self) {
        self.data.refresh_time(self.server);
        self.server.end_pause_in_time(self.data.conditions.now_ms);
        self.data.follow_config(self.server);
    }

    /// Executes the commands that arrived, and those that earlier turns deferred.
    #[inline(always)]
    fn serve_events(&mut self, begun: &Begun) {
        let mut events = std::mem::take(&mut self.events);
        self.take_sent(&events);
        self.unsent = UnsentBytes::default();
        if events.is_empty() && self.slots.deferred.is_empty() {
            self.arena.clear(ARENA_IDLE_MAX);
            self.workspace.clear(ARENA_IDLE_MAX);
            self.batch.rest();
            if !self.has_jobs() {
                self.driver.rest();
            }
        } else {
            self.arena.clear(ARENA_KEPT_MAX);
            self.workspace.clear(ARENA_KEPT_MAX);
        }
        self.resume_deferred();
        for event in events.drain(..) {
            self.take_event(event);
        }
        self.events = events;
        self.execute();
        self.next.puts_off =
            !self.next.puts_off && self.handle.stats.totals.commands.get() > begun.commands;
    }

    /// Handles the posts of other threads, and serves clients whose wait is over.
    #[inline(always)]
    fn serve_posts_and_waits(&mut self) {
        self.give_to_others();
        self.take_posts();
        self.look_at_deadlines();
        self.resume_postponed();
        self.resume_behind_reserved();
    }

    /// Does one slice of each long command, and of the timer's work.
    #[inline(always)]
    fn work_on_long_commands(&mut self) {
        if !self.next.puts_off {
            self.work_on_jobs();
        }
        if !self.server.switches.has(Switch::BUSY) {
            self.timer_slices();
        }
    }

    /// Unlocks the shards that the last command left locked.
    #[inline(always)]
    fn unlock(&mut self) {
        if !self.data.unit.work.ready.is_empty() {
            blocking::serve_ready(self.server, &mut self.data);
        }
        self.data.release();
        self.data.broadcast();
    }

    /// Sends what may be sent now. Other output waits for the disk, or for its client to read.
    #[inline(always)]
    fn send_replies(&mut self) {
        self.release_replies();
        self.keep_back_replies();
        self.send_output();
        self.limit_memory();
    }

    /// Leaves the gate, and frees as many flushed keys as the turn has changed. Notes what the turn
    /// did and how long it took.
    #[inline(always)]
    fn end_turn(&mut self, begun: &Begun) {
        let counters = std::mem::take(&mut self.data.counters);
        counters.add_to(&self.handle.stats.totals);
        self.data.leave();
        let commands = self.handle.stats.totals.commands.get().saturating_sub(begun.commands);
        let now = ticks();
        self.handle.watch.leave();
        self.handle.stats.turned(now - begun.ticks, commands);
        let works_long = std::mem::take(&mut self.next.sends_long) || self.has_jobs();
        self.schedule.turned(now, commands, works_long);
        self.note_burden(now);
        // For at most as long as the turn took.
        lazyfree::free_flushed_beside(counters.dirty, now + (now - begun.ticks));
        // A simulated worker shares its thread with the test, so it does not give way.
        #[cfg(test)]
        let works_long = works_long && !crate::simulation::tasks::is_driven();
        if works_long && !self.next.puts_off {
            cores::give_way();
        }
    }
}
