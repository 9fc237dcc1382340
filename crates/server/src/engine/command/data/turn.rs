//! By what time and by which rules a thread works.

use bobbin_store::{AccessClock, AccessPolicy};

use super::Data;
use crate::base::clock::ticks;
use crate::engine::server::Server;

/// The time and the rules by which the command at hand works.
pub struct Turn {
    /// The time that decides which keys have expired. It does not change during a transaction.
    pub now_ms: i64,
    /// When `now_ms` must be read again, in ticks.
    pub current_until: u64,
    pub clock: AccessClock,
    /// Something was waited for, which may have taken long: what was checked before has to be
    /// checked again, by the time of now.
    pub waited: bool,
    /// Until when (Unix ms) writes wait at most for a cut that is walked.
    pub held_up_until_ms: i64,
    /// Whether reading an entry counts as using it.
    pub touch: bool,
    /// Whether dead keys may be taken out; while clients are paused they are only passed over.
    pub may_expire: bool,
    /// Whether the client at hand sees keys and fields after their time: a log's, a primary's, or
    /// the source of an import.
    pub sees_dead: bool,
    /// A transaction is at work that began when memory was full and nothing could be evicted.
    pub is_oom: bool,
    /// A log is being carried out: nothing is dead, however old.
    pub loading: bool,
    /// What a deletion that is no command's comes to in the log.
    pub deletes: Deletes,
}

impl Default for Turn {
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
            loading: false,
            deletes: Deletes::default(),
        }
    }
}

/// How long the time that was read last may be worked by, in microseconds.
const CURRENT_US: u64 = 1000;

/// DEL or UNLINK, by what the options of lazy freeing say; replicas follow suit.
#[derive(Clone, Copy)]
pub struct Deletes {
    /// Of what expired.
    pub expired: &'static [u8],
    pub evicted: &'static [u8],
    /// Of what a command left without contents.
    pub emptied: &'static [u8],
}

impl Default for Deletes {
    fn default() -> Self {
        Self { expired: b"UNLINK", evicted: b"UNLINK", emptied: b"UNLINK" }
    }
}

impl Data {
    /// Works by the time of now.
    #[inline]
    pub fn refresh_time(&mut self, server: &Server) {
        self.turn.waited = false;
        self.turn.current_until = ticks() + server.clock.ticks(CURRENT_US);
        self.turn.now_ms = server.clock.advance();
        self.turn.clock = server.access_clock(self.turn.now_ms);
    }

    /// Takes up what the configuration and the server's role say now: whether keys expire, which
    /// events are published, how values are deleted, whether the log has timestamps.
    pub fn follow_config(&mut self, server: &Server) {
        self.turn.may_expire = server.may_expire(self.turn.now_ms);
        self.turn.sees_dead = self.turn.loading;
        self.audience.event_classes = server.event_classes();
        self.turn.deletes = server.deletes();
        if self.is_logged() {
            let wanted = server.config.aof_timestamp_enabled();
            self.recorder.stamp(if wanted { self.turn.now_ms / 1000 } else { 0 });
        }
    }
}
