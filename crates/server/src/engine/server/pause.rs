//! Pauses: for how long, and which commands, have to wait.
//!
//! There is a pause for each reason: CLIENT PAUSE, a failover, the end of the server. None of them
//! ends another one. `Switch::PAUSED` says that there is one. All this changes under the gate, or,
//! when the time of a pause is over, by whichever worker's turn sees that first. A worker keeps the
//! connections that it had to put off, and serves them once a pause has ended. Meanwhile keys
//! neither expire nor are evicted, so that a replica can catch up with a data set that stands
//! still.

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

/// The pauses that are in force.
#[derive(Default)]
pub struct Pause {
    by_reason: [ReasonPause; PauseReason::ALL.len()],
    /// How often one has ended.
    ended: AtomicU64,
}

/// The pause for one reason.
#[derive(Default)]
struct ReasonPause {
    /// Unix ms; 0: there is none.
    until_ms: AtomicI64,
    /// Every command waits, not just those that write.
    all: AtomicBool,
}

/// What the pauses together come to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ActivePause {
    pub all: bool,
    /// Until the first of them ends.
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
    /// What the pauses come to, if there are any at this time.
    pub fn paused(&self, now_ms: i64) -> Option<ActivePause> {
        if self.switches.load() & Switch::PAUSED == 0 {
            return None;
        }
        let together = |sum: ActivePause, one: ActivePause| ActivePause {
            all: sum.all || one.all,
            left_ms: sum.left_ms.min(one.left_ms),
        };
        self.pause.by_reason.iter().filter_map(|pause| pause.active(now_ms)).reduce(together)
    }

    /// The pause that INFO shows: of the strictest, the one that lasts longest.
    pub fn shown_pause(&self, now_ms: i64) -> Option<ShownPause> {
        let active = PauseReason::ALL.into_iter().filter_map(|reason| {
            let ActivePause { all, left_ms } = self.pause.of(reason).active(now_ms)?;
            Some(ShownPause { reason, all, left_ms })
        });
        // Of equals the first.
        active.reduce(|best, other| {
            if (other.all, other.left_ms) > (best.all, best.left_ms) { other } else { best }
        })
    }

    /// Whether clients are paused for this reason.
    pub fn is_paused_for(&self, reason: PauseReason) -> bool {
        self.switches.load() & Switch::PAUSED != 0
            && self.pause.of(reason).until_ms.load(Ordering::Relaxed) != 0
    }

    /// Whether dead keys may be taken out, and live ones evicted. Nothing changes by itself while
    /// clients are paused, nor while a script that must run alone is paused, nor on a replica, nor
    /// in import mode.
    pub fn may_expire(&self, now_ms: i64) -> bool {
        let stands_still = Switch::BUSY | Switch::REPLICA | Switch::IMPORT;
        self.switches.load() & stands_still == 0 && self.paused(now_ms).is_none()
    }

    /// Whether a client sees keys and fields after their time: the source of an import.
    pub fn shows_dead(&self, client: &ClientInfo) -> bool {
        self.switches.load() & (Switch::IMPORT | Switch::REPLICA) == Switch::IMPORT
            && client.has(ClientFlag::IMPORT_SOURCE)
    }

    /// Whether this server keeps to `maxmemory`. A replica leaves that to its primary, unless it
    /// was told otherwise.
    pub fn minds_maxmemory(&self) -> bool {
        let switches = self.switches.load();
        switches & Switch::MAXMEMORY != 0
            && (switches & Switch::REPLICA == 0 || !self.config.replica_ignore_maxmemory())
    }

    /// Whether live keys may be evicted now.
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

    /// Ends the pause for a reason, and makes every worker serve the clients that it put off. The
    /// gate is held.
    pub fn unpause_clients(&self, reason: PauseReason) {
        self.pause.of(reason).end(&self.pause);
        self.follow_pauses();
        self.workers.wake();
    }

    /// Ends the pauses whose time is over. To be called in a worker's turn: no other thread can
    /// start one then.
    pub fn end_pause_in_time(&self, now_ms: i64) {
        if self.switches.load() & Switch::PAUSED == 0 {
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
    /// How often a pause has ended: a client that was put off before may run now, though there are
    /// others.
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
