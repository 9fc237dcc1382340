//! Remembers how replicas received their copies: those that do not give their version and went away
//! without a word after a whole copy.
//!
//! Such a replica may be of a version that cannot read the copy, and would ask for it again for
//! ever. After a few copies it gets the oldest format. After a few more it gets nothing for a
//! while.

use bobbin_sync::Mutex;

use super::replica::Replica;
use super::wish::Dialect;
use crate::base::clock::has_passed;

/// Copies that were of no use to their replicas.
#[derive(Default)]
pub struct Reception(Mutex<Vec<Vain>>);

struct Vain {
    host: String,
    port: u32,
    copies: u32,
    last_ms: i64,
}

/// How many useless copies a replica gets before the format changes.
const COPIES_MAX: u32 = 2;
/// After that the replica gets no copy for this long.
const REST_MS: i64 = 10 * 60 * 1000;
/// How many replicas are remembered.
const REMEMBERED_MAX: usize = 64;

impl Reception {
    /// The dialect of a replica that does not give its version. `None`: no format works for it.
    pub(super) fn dialect(&self, replica: &Replica, now_ms: i64) -> Option<Dialect> {
        let mut all = self.0.lock();
        all.retain(|vain| !has_passed(now_ms, vain.last_ms, REST_MS));
        match all.iter().find(|vain| vain.is_of(replica)).map_or(0, |vain| vain.copies) {
            0..COPIES_MAX => Some(Dialect::Silent),
            copies if copies < 2 * COPIES_MAX => Some(Dialect::SilentAndOld),
            _ => None,
        }
    }

    /// Notes that a replica went away without a word after a whole copy.
    pub(super) fn was_in_vain(&self, replica: &Replica, now_ms: i64) {
        let mut all = self.0.lock();
        if let Some(vain) = all.iter_mut().find(|vain| vain.is_of(replica)) {
            vain.copies += 1;
            vain.last_ms = now_ms;
            return;
        }
        if all.len() == REMEMBERED_MAX {
            all.remove(0);
        }
        let (host, port) = (replica.host(), replica.port());
        all.push(Vain { host, port, copies: 1, last_ms: now_ms });
    }

    /// Forgets a replica that has received its copy.
    pub(super) fn was_taken(&self, replica: &Replica) {
        self.0.lock().retain(|vain| !vain.is_of(replica));
    }
}

impl Vain {
    fn is_of(&self, replica: &Replica) -> bool {
        self.port == replica.port() && self.host == replica.host()
    }
}
