//! Sessions that clients may go on with: `tls-session-cache-size` of them, for
//! `tls-session-cache-timeout`.
//!
//! What a session is kept by is a secret that only its client was told. A client that comes with it
//! is spared a signature, and is believed what its certificate said then; so a new configuration
//! begins with an empty store.

use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::time::{Duration, Instant};

use bobbin_sync::Mutex;
use rustls::server::StoresServerSessions;

/// The sessions that clients may resume.
pub struct SessionStore {
    sessions: Mutex<Sessions>,
    len_max: usize,
    lifetime: Duration,
}

#[derive(Default)]
struct Sessions {
    by_id: HashMap<Vec<u8>, KeptTls>,
    /// Ids in the order of time; those of sessions that are gone are passed over.
    order: VecDeque<Vec<u8>>,
}

struct KeptTls {
    session: Vec<u8>,
    since: Instant,
}

impl SessionStore {
    /// As in OpenSSL a size of 0 is no limit; then ours is.
    pub fn new(len_max: usize, lifetime: Duration) -> Self {
        let len_max = if len_max == 0 { SESSIONS_MAX } else { len_max.min(SESSIONS_MAX) };
        Self { sessions: Mutex::default(), len_max, lifetime }
    }

    fn put_at(&self, now: Instant, id: Vec<u8>, session: Vec<u8>) {
        let mut sessions = self.sessions.lock();
        if sessions.by_id.insert(id.clone(), KeptTls { session, since: now }).is_none() {
            sessions.order.push_back(id);
        }
        while let Some(oldest) = sessions.order.front() {
            let is_over = sessions.order.len() > self.len_max;
            let kept = sessions.by_id.get(oldest);
            if !is_over && kept.is_some_and(|kept| now - kept.since < self.lifetime) {
                break;
            }
            if let Some(oldest) = sessions.order.pop_front() {
                sessions.by_id.remove(&oldest);
            }
        }
    }

    fn get_at(&self, now: Instant, id: &[u8]) -> Option<Vec<u8>> {
        let sessions = self.sessions.lock();
        let kept = sessions.by_id.get(id).filter(|kept| now - kept.since < self.lifetime)?;
        Some(kept.session.clone())
    }

    fn take_at(&self, now: Instant, id: &[u8]) -> Option<Vec<u8>> {
        let kept = self.sessions.lock().by_id.remove(id)?;
        (now - kept.since < self.lifetime).then_some(kept.session)
    }
}

impl StoresServerSessions for SessionStore {
    fn put(&self, id: Vec<u8>, session: Vec<u8>) -> bool {
        self.put_at(Instant::now(), id, session);
        true
    }

    fn get(&self, id: &[u8]) -> Option<Vec<u8>> {
        self.get_at(Instant::now(), id)
    }

    fn take(&self, id: &[u8]) -> Option<Vec<u8>> {
        self.take_at(Instant::now(), id)
    }

    fn can_cache(&self) -> bool {
        true
    }
}

/// Without the secrets.
impl fmt::Debug for SessionStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SessionStore").field("len_max", &self.len_max).finish_non_exhaustive()
    }
}

/// Whatever the option says: a session takes some hundred bytes, more with a client's certificate.
const SESSIONS_MAX: usize = 1 << 20;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sessions_are_forgotten_by_number_and_by_time() {
        let store = SessionStore::new(2, Duration::from_secs(10));
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        for (second, id) in [b"a", b"b", b"c"].iter().enumerate() {
            store.put_at(at(second as u64), id.to_vec(), vec![second as u8]);
        }
        assert_eq!(store.get_at(at(3), b"a"), None);
        assert_eq!(store.get_at(at(3), b"b"), Some(vec![1]));
        assert_eq!(store.take_at(at(3), b"b"), Some(vec![1]));
        assert_eq!(store.get_at(at(3), b"b"), None);
        assert_eq!(store.get_at(at(12), b"c"), None);
        store.put_at(at(20), b"d".to_vec(), vec![]);
        let sessions = store.sessions.lock();
        assert_eq!((sessions.order.len(), sessions.by_id.len()), (1, 1));
    }

    #[test]
    fn no_size_is_no_small_one() {
        assert_eq!(SessionStore::new(0, Duration::ZERO).len_max, SESSIONS_MAX);
    }
}
