//! The time and the rules that a thread works by.

use bobbin_store::{AccessClock, AccessPolicy};

use super::Data;
use crate::base::clock::ticks;
use crate::engine::server::Server;

/// The time and the rules by which the current command runs.
pub struct Conditions {
    /// The time that decides which keys have expired. It does not change during a transaction.
    pub now_ms: i64,
    /// When `now_ms` must be read again, in ticks.
    pub current_until: u64,
    pub clock: AccessClock,
    /// Whether the command has waited, possibly for long. Then the checks before the wait must be
    /// made again, by the current time.
    pub waited: bool,
    /// Until when (Unix ms), at most, writes wait for a cut that is being walked.
    pub held_up_until_ms: i64,
    /// Whether reading an entry counts as using it.
    pub touch: bool,
    /// Whether expired keys may be deleted. While clients are paused, they are only skipped.
    pub may_expire: bool,
    /// Whether the current client sees expired keys and fields: it is a log, a primary or the
    /// source of an import.
    pub sees_dead: bool,
    /// Whether a transaction is running that began when memory was full and nothing could be
    /// evicted.
    pub is_oom: bool,
    /// Whether a transaction is running that has commands that may change something.
    pub transaction_writes: bool,
    /// Whether a log is being carried out. Then no key expires, however old it is.
    pub loading: bool,
    /// The commands that the log gets for deletions that no client asked for.
    pub deletes: Deletes,
    /// The thread's own time, while it works at that of a resumed unit.
    own: Option<UnitTime>,
}

/// What a unit keeps of its time and rules while it is suspended.
#[derive(Clone, Copy)]
pub struct UnitTime {
    now_ms: i64,
    may_expire: bool,
    sees_dead: bool,
}

impl Default for Conditions {
    fn default() -> Self {
        Self {
            now_ms: 0,
            current_until: u64::MAX,
            clock: AccessClock::new(AccessPolicy::Lru, 0),
            waited: false,
            held_up_until_ms: 0,
            touch: true,
            may_expire: true,
            sees_dead: false,
            is_oom: false,
            transaction_writes: false,
            loading: false,
            deletes: Deletes::default(),
            own: None,
        }
    }
}

impl Conditions {
    /// The last millisecond that is over: what expires in it or earlier has expired. A key that is
    /// given ten milliseconds expires in the tenth one from now, and lives until its end.
    #[inline]
    pub const fn over_ms(&self) -> i64 {
        self.now_ms - 1
    }

    /// The time of the current unit.
    pub(super) const fn unit_time(&self) -> UnitTime {
        let Self { now_ms, may_expire, sees_dead, .. } = *self;
        UnitTime { now_ms, may_expire, sees_dead }
    }

    /// Goes to the time of a resumed unit.
    pub(super) fn go_to_time(&mut self, time: UnitTime) {
        debug_assert!(self.own.is_none(), "a unit is resumed within another one");
        self.own = Some(self.unit_time());
        self.set_time(time);
    }

    /// Goes back from the time of a resumed unit to the thread's own.
    pub(super) fn return_to_own_time(&mut self, server: &Server) {
        if let Some(own) = self.own.take() {
            self.set_time(own);
            // A pause may have begun or ended meanwhile.
            self.may_expire = server.may_expire(own.now_ms);
        }
    }

    const fn set_time(&mut self, time: UnitTime) {
        let UnitTime { now_ms, may_expire, sees_dead } = time;
        (self.now_ms, self.may_expire, self.sees_dead) = (now_ms, may_expire, sees_dead);
    }
}

/// How long the last reading of the time may be used, in microseconds.
const CURRENT_US: u64 = 1000;

/// DEL or UNLINK, depending on the options of lazy freeing, which replicas then follow.
#[derive(Clone, Copy)]
pub struct Deletes {
    /// For expired keys.
    pub expired: &'static [u8],
    pub evicted: &'static [u8],
    /// For keys that a command left without elements.
    pub emptied: &'static [u8],
}

impl Default for Deletes {
    fn default() -> Self {
        Self { expired: b"UNLINK", evicted: b"UNLINK", emptied: b"UNLINK" }
    }
}

impl Data {
    /// Reads the time.
    #[inline]
    pub fn refresh_time(&mut self, server: &Server) {
        self.conditions.waited = false;
        self.conditions.current_until = ticks() + server.clock.ticks(CURRENT_US);
        self.conditions.now_ms = server.clock.advance();
        self.conditions.clock = server.access_clock(self.conditions.now_ms);
    }

    /// Applies the current configuration and role of the server: whether keys expire, which events
    /// are published, how values are deleted, whether the log has timestamps.
    pub fn follow_config(&mut self, server: &Server) {
        self.conditions.may_expire = server.may_expire(self.conditions.now_ms);
        self.conditions.sees_dead = self.conditions.loading;
        self.audience.event_classes = server.event_classes();
        self.conditions.deletes = server.deletes();
        if self.is_logged() {
            let wanted = server.config.aof_timestamp_enabled();
            self.recorder.stamp(if wanted { self.conditions.now_ms / 1000 } else { 0 });
        }
    }
}
