//! What became of copies: replicas that say nothing of themselves and went without a word when
//! they had all of one.
//!
//! Such a replica may be of a version that cannot read what it got, and would ask for the same
//! again, for ever. After a few times it gets the oldest format there is; then nothing, for a
//! while.

use bobbin_sync::Mutex;

use super::replica::Replica;
use super::wish::Dialect;

/// Copies that were taken in vain.
#[derive(Default)]
pub struct Reception(Mutex<Vec<Vain>>);

struct Vain {
    host: String,
    port: u32,
    copies: u32,
    last_ms: i64,
}

/// As many copies a replica may take in vain before it gets another format.
const COPIES_MAX: u32 = 2;
/// Then it is left alone for so long.
const REST_MS: i64 = 10 * 60 * 1000;
/// Replicas that are remembered.
const REMEMBERED_MAX: usize = 64;

impl Reception {
    /// The dialect of a replica that does not say what it is; `None`: nothing that it asks for
    /// helps.
    pub(super) fn dialect(&self, replica: &Replica, now_ms: i64) -> Option<Dialect> {
        let mut all = self.0.lock();
        all.retain(|vain| now_ms - vain.last_ms < REST_MS);
        match all.iter().find(|vain| vain.is_of(replica)).map_or(0, |vain| vain.copies) {
            0..COPIES_MAX => Some(Dialect::Silent),
            copies if copies < 2 * COPIES_MAX => Some(Dialect::SilentAndOld),
            _ => None,
        }
    }

    /// A replica went without a word when it had a whole copy.
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

    /// A replica has its copy.
    pub(super) fn was_taken(&self, replica: &Replica) {
        self.0.lock().retain(|vain| !vain.is_of(replica));
    }
}

impl Vain {
    fn is_of(&self, replica: &Replica) -> bool {
        self.port == replica.port() && self.host == replica.host()
    }
}
