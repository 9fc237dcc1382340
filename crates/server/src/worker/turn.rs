//! One turn of a worker, step by step: what happens between two waits for events.

use std::time::Duration;

use bobbin_io::Driver;

use super::Worker;
use crate::base::clock::ticks;
use crate::base::cores;
use crate::engine::blocking;
use crate::engine::server::Switch;

/// The arena's memory is given back when a turn needed more than this, ...
pub(super) const ARENA_KEPT_MAX: usize = 1024 * 1024;
/// ... and when there is nothing to do, down to this.
const ARENA_IDLE_MAX: usize = 16 * 1024;
/// How long a worker sleeps between turns when all its jobs wait for something.
const PARKED_PAUSE: Duration = Duration::from_millis(1);

/// What there was when a turn began.
struct Begun {
    ticks: u64,
    /// Commands that the worker had executed.
    commands: u64,
}

impl Worker {
    /// One turn: waits for events, and does what they and the time ask for.
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

    /// Waits until something arrives, or the time comes for what waits for it.
    pub(super) fn wait(&mut self) {
        let idle = self.handle.mailbox.sleep();
        let more = self.has_posts() || self.missed_release();
        let work = !self.slots.deferred.is_empty() || self.await_disk();
        let mut timeout = if !idle || more || work || self.next.sleepless {
            Duration::ZERO
        } else if !self.has_jobs() {
            self.timer.until_next()
        } else if self.next.is_parked {
            PARKED_PAUSE
        } else {
            Duration::ZERO
        };
        timeout = timeout.min(self.deadlines.until_next(self.data.turn.now_ms));
        if !self.postponed.slots.is_empty() {
            timeout = timeout.min(self.until_resumed());
        }
        if let Err(error) = self.driver.wait(Some(timeout), &mut self.events) {
            // Nothing that a client does leads here; without the driver the worker is of no use.
            log::error!("Worker {} cannot wait for events: {error}", self.handle.id);
            std::process::abort();
        }
        self.handle.mailbox.awake();
        if self.events.is_empty() {
            self.commit_kept_back();
        }
        self.next.sleepless = false;
    }

    /// Becomes busy: from here to the end of the turn no other thread gets the gate.
    #[inline(always)]
    fn begin_turn(&mut self) -> Begun {
        let begun = Begun { ticks: ticks(), commands: self.handle.stats.totals.commands.get() };
        self.handle.watch.enter(begun.ticks);
        self.data.enter();
        self.look_at_clock();
        begun
    }

    fn look_at_clock(&mut self) {
        self.data.refresh_time(self.server);
        self.server.end_pause_in_time(self.data.turn.now_ms);
        self.data.follow_config(self.server);
    }

    /// Executes what arrived, and what was deferred in turns before.
    #[inline(always)]
    fn serve_events(&mut self, begun: &Begun) {
        let mut events = std::mem::take(&mut self.events);
        self.take_sent(&events);
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

    /// Takes what other threads left, and goes on with clients whose waiting is over.
    #[inline(always)]
    fn serve_posts_and_waits(&mut self) {
        self.give_to_others();
        self.take_posts();
        self.look_at_deadlines();
        self.resume_postponed();
        self.resume_behind_reserved();
    }

    /// Goes on with long commands, and with what happens from time to time, a slice of each.
    #[inline(always)]
    fn work_on_long_commands(&mut self) {
        if !self.next.puts_off {
            self.work_on_jobs();
        }
        if self.server.switches.load() & Switch::BUSY == 0 {
            self.timer_slices();
        }
    }

    /// Unlocks the shards that the last command left locked.
    #[inline(always)]
    fn unlock(&mut self) {
        if !self.data.unit.ready.is_empty() {
            blocking::serve_ready(self.server, &mut self.data);
        }
        self.data.release();
        self.data.broadcast();
    }

    /// Sends what may be sent now; the rest waits for the disk or for its clients.
    #[inline(always)]
    fn send_replies(&mut self) {
        self.release_replies();
        self.keep_back_replies();
        self.flush();
        self.limit_memory();
        self.collect();
    }

    /// Lets others have the gate, and notes what the turn cost.
    #[inline(always)]
    fn end_turn(&mut self, begun: &Begun) {
        self.data.leave();
        let commands = self.handle.stats.totals.commands.get().saturating_sub(begun.commands);
        let now = ticks();
        self.handle.watch.leave();
        self.handle.stats.turned(now - begun.ticks, commands);
        let works_long = std::mem::take(&mut self.next.sends_long) || self.has_jobs();
        self.schedule.turned(now, commands, works_long);
        self.note_burden(now);
        // A worker whose turns a test takes has no thread to give way to.
        #[cfg(test)]
        let works_long = works_long && !crate::simulation::tasks::is_driven();
        if works_long && !self.next.puts_off {
            cores::give_way();
        }
    }
}
