//! Pauses: which commands have to wait, and until when.
//!
//! There is one pause for each reason: CLIENT PAUSE, a failover, the end of the server. They do not
//! end each other. `Switch::PAUSED` says whether there is any. Pauses change with the gate held;
//! when the time of a pause is over, the first worker that notices ends it. A worker keeps the
//! clients that it has put off, and serves them when a pause has ended. Meanwhile keys neither
//! expire nor are evicted, so that a replica can catch up with data that does not change.

use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};

use crate::engine::clients::{ClientFlag, ClientInfo};
use crate::engine::server::{Server, Switch};

/// Why clients are paused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PauseReason {
    /// CLIENT PAUSE.
    Command,
    /// Replicas catch up before the server ends.
    Shutdown,
    /// A replica catches up before it takes over.
    Failover,
}

/// The current pauses.
#[derive(Default)]
pub struct Pause {
    by_reason: [ReasonPause; PauseReason::ALL.len()],
    /// How many pauses have ended.
    ended: AtomicU64,
}

/// The pause for one reason.
#[derive(Default)]
struct ReasonPause {
    /// Unix ms; 0 if there is no pause.
    until_ms: AtomicI64,
    /// Whether every command waits, not only those that write.
    all: AtomicBool,
}

/// All pauses together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ActivePause {
    pub all: bool,
    /// Milliseconds until the first of them ends.
    pub left_ms: i64,
}

/// The pause that INFO shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ShownPause {
    pub reason: PauseReason,
    pub all: bool,
    pub left_ms: i64,
}

impl PauseReason {
    const ALL: [Self; 3] = [Self::Command, Self::Shutdown, Self::Failover];
}

impl Server {
    /// All pauses together, if there are any at this time.
    pub fn paused(&self, now_ms: i64) -> Option<ActivePause> {
        if !self.switches.has(Switch::PAUSED) {
            return None;
        }
        let together = |sum: ActivePause, one: ActivePause| ActivePause {
            all: sum.all || one.all,
            left_ms: sum.left_ms.min(one.left_ms),
        };
        self.pause.by_reason.iter().filter_map(|pause| pause.active(now_ms)).reduce(together)
    }

    /// The pause that INFO shows: among the strictest, the one that lasts longest.
    pub fn shown_pause(&self, now_ms: i64) -> Option<ShownPause> {
        let active = PauseReason::ALL.into_iter().filter_map(|reason| {
            let ActivePause { all, left_ms } = self.pause.of(reason).active(now_ms)?;
            Some(ShownPause { reason, all, left_ms })
        });
        // If two are equal, the first one is shown.
        active.reduce(|best, other| {
            if (other.all, other.left_ms) > (best.all, best.left_ms) { other } else { best }
        })
    }

    /// Whether clients are paused for this reason.
    pub fn is_paused_for(&self, reason: PauseReason) -> bool {
        self.switches.has(Switch::PAUSED)
            && self.pause.of(reason).until_ms.load(Ordering::Relaxed) != 0
    }

    /// Whether expired keys may be deleted. No key may be deleted without a command while clients
    /// are paused, while a slow script has paused, on a replica, or in import mode.
    pub fn may_expire(&self, now_ms: i64) -> bool {
        let stands_still = Switch::BUSY | Switch::REPLICA | Switch::IMPORT;
        !self.switches.has(stands_still) && self.paused(now_ms).is_none()
    }

    /// Whether a client sees expired keys and fields: it is the source of an import.
    pub fn shows_dead(&self, client: &ClientInfo) -> bool {
        self.switches.load() & (Switch::IMPORT | Switch::REPLICA) == Switch::IMPORT
            && client.has(ClientFlag::IMPORT_SOURCE)
    }

    /// Whether this server keeps to `maxmemory`. A replica leaves that to its primary, unless it
    /// was told otherwise. While a data set is loaded, no key may go: later commands of a log would
    /// begin it anew, without what it had.
    pub fn minds_maxmemory(&self) -> bool {
        let switches = self.switches.load();
        switches & Switch::MAXMEMORY != 0
            && switches & (Switch::LOADING | Switch::LOADING_ASIDE) == 0
            && (switches & Switch::REPLICA == 0 || !self.config.replica_ignore_maxmemory())
    }

    /// Whether keys may be evicted now.
    pub fn may_evict(&self, now_ms: i64) -> bool {
        let switches = self.switches.load();
        switches & (Switch::BUSY | Switch::IMPORT) == 0
            && self.minds_maxmemory()
            && self.paused(now_ms).is_none()
    }

    /// Starts a pause, or extends the one for the same reason: the later end and the stricter kind
    /// win. The gate is held.
    pub fn pause_clients(&self, reason: PauseReason, until_ms: i64, all: bool, now_ms: i64) {
        let pause = self.pause.of(reason);
        let before = pause.active(now_ms);
        let until_ms = match before {
            Some(_) => until_ms.max(pause.until_ms.load(Ordering::Relaxed)),
            None => until_ms,
        };
        pause.until_ms.store(until_ms, Ordering::Relaxed);
        pause.all.store(all || before.is_some_and(|pause| pause.all), Ordering::Relaxed);
        self.switches.set(Switch::PAUSED, true);
    }

    /// Ends the pause for a reason, and makes every worker serve the clients that it has put off.
    /// The gate is held.
    pub fn unpause_clients(&self, reason: PauseReason) {
        self.pause.of(reason).end(&self.pause);
        self.follow_pauses();
        self.workers.wake();
    }

    /// Ends the pauses whose time is over. Called in a worker's turn, when no other thread can
    /// start one.
    pub fn end_pause_in_time(&self, now_ms: i64) {
        if !self.switches.has(Switch::PAUSED) {
            return;
        }
        for pause in &self.pause.by_reason {
            if pause.active(now_ms).is_none() {
                pause.end(&self.pause);
            }
        }
        self.follow_pauses();
    }

    fn follow_pauses(&self) {
        let is_on = |pause: &ReasonPause| pause.until_ms.load(Ordering::Relaxed) != 0;
        if !self.pause.by_reason.iter().any(is_on) {
            self.switches.set(Switch::PAUSED, false);
        }
    }
}

impl Pause {
    /// How many pauses have ended. When this changes, a client that was put off may run, even if
    /// there are other pauses.
    pub fn ended(&self) -> u64 {
        self.ended.load(Ordering::Relaxed)
    }

    const fn of(&self, reason: PauseReason) -> &ReasonPause {
        &self.by_reason[reason as usize]
    }
}

impl ReasonPause {
    fn active(&self, now_ms: i64) -> Option<ActivePause> {
        let left_ms = self.until_ms.load(Ordering::Relaxed).saturating_sub(now_ms);
        (left_ms > 0).then(|| ActivePause { all: self.all.load(Ordering::Relaxed), left_ms })
    }

    fn end(&self, pauses: &Pause) {
        if self.until_ms.swap(0, Ordering::Relaxed) != 0 {
            pauses.ended.fetch_add(1, Ordering::Relaxed);
        }
    }
}
