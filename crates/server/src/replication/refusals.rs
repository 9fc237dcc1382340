//! Replicas that are refused a copy and ask again.
//!
//! Redis and Valkey reconnect at once after an error, some thousand times a second. So a replica
//! that was refused a moment ago gets its next refusal with a delay. The log counts such refusals
//! instead of listing each.

use bobbin_sync::Mutex;

use super::replica::Replica;
use crate::base::clock::has_passed;

/// The replicas that were refused a copy in the last minute.
#[derive(Default)]
pub struct Refusals(Mutex<Vec<Refused>>);

struct Refused {
    host: String,
    port: u32,
    reason: &'static str,
    /// Refusals that were not logged.
    untold: u32,
    told_ms: i64,
    last_ms: i64,
}

/// A refusal.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Refusal {
    pub reason: &'static str,
    /// When the replica is told (Unix ms).
    pub due_ms: i64,
    /// How many refusals to log now. 0: none.
    pub to_tell: u32,
}

/// The delay for a replica that was refused a moment ago.
pub(super) const DELAY_MS: i64 = 1000;
/// How often refusals of one replica are logged, and how long the replica is remembered.
const TOLD_MS: i64 = 60_000;
/// How many replicas are remembered.
const REMEMBERED_MAX: usize = 64;

impl Refusals {
    /// Notes that a replica is refused a copy.
    pub(super) fn note(&self, replica: &Replica, reason: &'static str, now_ms: i64) -> Refusal {
        self.note_of(&replica.host(), replica.port(), reason, now_ms)
    }

    /// Whether a replica was refused a moment ago.
    pub(super) fn has(&self, replica: &Replica, now_ms: i64) -> bool {
        let (host, port) = (replica.host(), replica.port());
        self.0.lock().iter().any(|known| known.is(&host, port) && known.is_recent(now_ms))
    }

    fn note_of(&self, host: &str, port: u32, reason: &'static str, now_ms: i64) -> Refusal {
        let mut all = self.0.lock();
        all.retain(|known| known.is_recent(now_ms));
        let Some(known) = all.iter_mut().find(|known| known.is(host, port)) else {
            if all.len() == REMEMBERED_MAX {
                all.remove(0);
            }
            let host = host.to_owned();
            all.push(Refused { host, port, reason, untold: 0, told_ms: now_ms, last_ms: now_ms });
            return Refusal { reason, due_ms: now_ms, to_tell: 1 };
        };
        known.last_ms = now_ms;
        known.untold += 1;
        let is_due = known.reason != reason || has_passed(now_ms, known.told_ms, TOLD_MS);
        let mut to_tell = 0;
        if is_due {
            known.reason = reason;
            known.told_ms = now_ms;
            to_tell = std::mem::take(&mut known.untold);
        }
        Refusal { reason, due_ms: now_ms + DELAY_MS, to_tell }
    }
}

impl Refused {
    fn is(&self, host: &str, port: u32) -> bool {
        self.port == port && self.host == host
    }

    fn is_recent(&self, now_ms: i64) -> bool {
        !has_passed(now_ms, self.last_ms, TOLD_MS)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_that_asks_again_hears_of_it_late_and_is_counted() {
        let refusals = Refusals::default();
        let note = |port, reason, now_ms| {
            let refusal = refusals.note_of("host", port, reason, now_ms);
            (refusal.due_ms - now_ms, refusal.to_tell)
        };
        assert_eq!(note(1, "a", 0), (0, 1));
        assert_eq!(note(2, "a", 10), (0, 1), "another replica");
        for second in 1..60 {
            assert_eq!(note(1, "a", second * 1000), (DELAY_MS, 0));
        }
        assert_eq!(note(1, "a", 60_000), (DELAY_MS, 60));
        assert_eq!(note(1, "b", 61_000), (DELAY_MS, 1), "another reason");
        assert_eq!(note(1, "b", 61_000 + TOLD_MS), (0, 1), "a long time ago");
        assert_eq!(note(1, "b", -3_600_000), (0, 1), "the clock was set back");
    }

    #[test]
    fn no_more_than_some_are_remembered() {
        let refusals = Refusals::default();
        for port in 0..=REMEMBERED_MAX as u32 {
            refusals.note_of("host", port, "a", 0);
        }
        assert_eq!(refusals.0.lock().len(), REMEMBERED_MAX);
        assert_eq!(refusals.note_of("host", 0, "a", 0).to_tell, 1);
    }
}
