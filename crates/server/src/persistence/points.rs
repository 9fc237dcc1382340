//! Automatic saves: the `save` points, and saves that BGSAVE SCHEDULE, SAVE or FLUSHALL left for
//! later.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::{NotBegun, Persistence};
use crate::base::clock::has_passed;
use crate::config::OptionId;
use crate::engine::blocking::Waiter;
use crate::engine::command::{Data, Failure};
use crate::engine::server::{Server, Switch};
use crate::persistence::aof::rewrite;
use crate::persistence::save;

/// A save is due after this many seconds if there were at least this many changes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct SavePoint {
    seconds: i64,
    changes: u64,
}

impl SavePoint {
    /// As in Redis, more than its seconds must have gone by, as whole ones.
    const fn span_ms(&self) -> i64 {
        self.seconds.saturating_add(1).saturating_mul(1000)
    }
}

impl Persistence {
    /// Begins a save if one is due. Every worker calls this now and then, with nothing locked.
    #[inline]
    pub fn tick(server: &'static Server, data: &mut Data) {
        if Self::of(server).looks.claim(data.conditions.now_ms, INTERVAL_MS) {
            Self::look(server, data);
        }
    }

    #[cold]
    fn look(server: &'static Server, data: &mut Data) {
        let (persistence, now_ms) = (Self::of(server), data.conditions.now_ms);
        let busy = Switch::LOADING | Switch::CRON_PAUSED;
        if server.switches.has(busy) || rewrite::cut_is_busy(server) {
            return;
        }
        if is_waited_for(persistence) {
            save_for_those_who_wait(server, data);
            return;
        }
        let [scheduled, is_owed] = [&persistence.scheduled, &persistence.is_owed];
        let is_asked_for = scheduled.load(Ordering::Relaxed) || is_owed.load(Ordering::Relaxed);
        let points = save_points(server);
        if points.is_empty() && !is_asked_for {
            return;
        }
        let failed = server.switches.has(Switch::SAVE_FAILED);
        let tried_ms = persistence.last_try_ms.load(Ordering::Relaxed);
        if failed && !has_passed(now_ms, tried_ms, RETRY_MS) {
            return;
        }
        let changes = persistence.unsaved(server.workers.totals().dirty.get());
        let saved_ms = persistence.last_save_s.load(Ordering::Relaxed) * 1000;
        let reached = points
            .iter()
            .find(|p| changes >= p.changes && has_passed(now_ms, saved_ms, p.span_ms()));
        if reached.is_none() && !is_asked_for {
            return;
        }
        // Not while a script keeps its keys for long.
        if data.hold_gate() {
            if let Some(point) = reached {
                log::info!("{} changes in {} seconds. Saving...", point.changes, point.seconds);
            }
            // Another worker may have begun a save meanwhile.
            save::start_save(server, data, None).ok();
        }
        data.release();
    }
}

/// Whether a client waits for a save that could not begin.
fn is_waited_for(persistence: &Persistence) -> bool {
    let mut waiting = persistence.waiting.lock();
    waiting.retain(|waiter| waiter.is_waiting());
    !waiting.is_empty()
}

/// Begins the save that clients of SAVE wait for, once the cut is free.
fn save_for_those_who_wait(server: &'static Server, data: &mut Data) {
    if save::start_save(server, data, None) == Err(NotBegun::NoThread) {
        let waiting = std::mem::take(&mut *Persistence::of(server).waiting.lock());
        for waiter in waiting {
            waiter.answer(server, |_| Err(Failure::new(&"ERR")));
        }
    }
    data.release();
}

/// The pairs of the option `save`.
fn save_points(server: &Server) -> Vec<SavePoint> {
    let words = server.config.words_of(OptionId::save);
    let point = |pair: &[String]| {
        let [seconds, changes] = pair else { return None };
        Some(SavePoint { seconds: seconds.parse().ok()?, changes: changes.parse().ok()? })
    };
    words.chunks(2).filter_map(point).collect()
}

/// Schedules a save for BGSAVE SCHEDULE, because none can begin now.
pub fn schedule_save(server: &Server) {
    Persistence::of(server).scheduled.store(true, Ordering::Relaxed);
}

/// Has a save begin soon, and another one until one has succeeded, because the file has what was
/// deleted. The caller holds the gate, and has aborted the current save.
pub fn owe_save(server: &Server) {
    Persistence::of(server).is_owed.store(true, Ordering::Relaxed);
}

/// Answers a client of SAVE after the next save. Used while the cut is busy.
pub fn save_later(server: &Server, waiter: Arc<Waiter>) {
    Persistence::of(server).waiting.lock().push(waiter);
}

/// Cancels the scheduled save. Returns whether there was one.
pub fn unschedule_save(server: &Server) -> bool {
    Persistence::of(server).scheduled.swap(false, Ordering::Relaxed)
}

const INTERVAL_MS: i64 = 100;
/// How long after a failure the next attempt waits.
const RETRY_MS: i64 = 5000;
