//! ACL LOG: refused commands, and failed logins.

use std::collections::VecDeque;

use bobbin_sync::Mutex;

use super::check::Reason;

/// The entries of ACL LOG. The newest first.
#[derive(Default)]
pub struct AclLog(Mutex<AclLogEntries>);

#[derive(Default)]
struct AclLogEntries {
    list: VecDeque<AclLogEntry>,
    next_id: u64,
}

#[derive(Clone)]
pub struct AclLogEntry {
    /// How often it happened.
    pub count: u64,
    pub id: u64,
    pub created_ms: i64,
    pub updated_ms: i64,
    /// The last client that it happened to, as CLIENT LIST shows it.
    pub client: String,
    pub event: AclEvent,
}

/// What was refused, and to which user.
#[derive(Clone, PartialEq, Eq)]
pub struct AclEvent {
    pub reason: Reason,
    pub context: Scene,
    /// The command, key, channel or database.
    pub object: Vec<u8>,
    pub user: Vec<u8>,
}

impl AclEvent {
    /// Names may have any length; only their beginnings are kept.
    pub fn new(reason: Reason, context: Scene, object: &[u8], user: &[u8]) -> Self {
        let kept = |name: &[u8]| name[..name.len().min(NAME_MAX)].to_vec();
        Self { reason, context, object: kept(object), user: kept(user) }
    }
}

/// Where a command came from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Scene {
    Toplevel,
    Multi,
    Script,
}

impl Scene {
    pub const fn name(self) -> &'static str {
        match self {
            Self::Toplevel => "toplevel",
            Self::Multi => "multi",
            Self::Script => "lua",
        }
    }
}

/// The most bytes of a name that are kept. A client may be refused keys of any size.
const NAME_MAX: usize = 1024;
/// An event like an earlier one is counted in that one's entry if it comes within this time ...
const GROUPED_MS: i64 = 60_000;
/// ... and if the entry is among this many newest ones.
const SEARCHED_MAX: usize = 10;

impl AclLog {
    /// Logs an event. At most `keep` entries are kept.
    pub fn add(&self, event: AclEvent, client: String, now_ms: i64, keep: usize) {
        let mut entries = self.0.lock();
        if keep == 0 {
            entries.list.clear();
            return;
        }
        let newest = entries.list.iter().take(SEARCHED_MAX);
        let same = |entry: &AclLogEntry| {
            entry.event == event && (now_ms - entry.updated_ms).abs() <= GROUPED_MS
        };
        let at = newest.into_iter().position(same);
        let entry = match at.and_then(|at| entries.list.remove(at)) {
            Some(entry) => {
                AclLogEntry { count: entry.count + 1, updated_ms: now_ms, client, ..entry }
            }
            None => {
                let id = entries.next_id;
                entries.next_id += 1;
                AclLogEntry { count: 1, id, created_ms: now_ms, updated_ms: now_ms, client, event }
            }
        };
        entries.list.push_front(entry);
        entries.list.truncate(keep);
    }

    /// The newest entries, at most `count_max` of them.
    pub fn entries(&self, count_max: usize) -> Vec<AclLogEntry> {
        self.0.lock().list.iter().take(count_max).cloned().collect()
    }

    pub fn reset(&self) {
        self.0.lock().list.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_again_counts_and_moves_to_the_front() {
        let log = AclLog::default();
        let add = |object: &str, now_ms| {
            let event = AclEvent::new(Reason::Key, Scene::Toplevel, object.as_bytes(), b"u");
            log.add(event, String::new(), now_ms, 3);
        };
        add("a", 0);
        add("b", 1);
        add("a", GROUPED_MS);
        add("b", GROUPED_MS + 2);
        add("c", GROUPED_MS + 3);
        let shown = |entry: &AclLogEntry| (entry.event.object[0], entry.count, entry.id);
        let shown: Vec<_> = log.entries(9).iter().map(shown).collect();
        assert_eq!(shown, [(b'c', 1, 3), (b'b', 1, 2), (b'a', 2, 0)]);
        log.reset();
        assert!(log.entries(9).is_empty());
        let long = AclEvent::new(Reason::Key, Scene::Toplevel, &[b'k'; 5000], &[b'u'; 5000]);
        assert_eq!((long.object.len(), long.user.len()), (NAME_MAX, NAME_MAX));
    }
}
