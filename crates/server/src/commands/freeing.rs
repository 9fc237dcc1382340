//! DEL whose client waits until the memory is freed.

use std::sync::Arc;

use bobbin_resp::Reply;
use bobbin_store::OwnedEntry;

use crate::engine::command::job::{Job, Slice};
use crate::engine::lazyfree;

/// Frees what DEL deleted while its client waits, as `lazyfree-lazy-user-del no` demands.
pub struct Freeing {
    /// Entries that were not handed over for freeing yet.
    entries: Vec<OwnedEntry>,
    token: Arc<()>,
    deleted: i64,
}

impl Freeing {
    /// `deleted` is the reply of DEL.
    pub fn new(entries: Vec<OwnedEntry>, deleted: i64) -> Self {
        Self { entries, token: Arc::new(()), deleted }
    }
}

impl Job for Freeing {
    fn step(&mut self, _: &mut Slice<'_>) -> bool {
        for entry in self.entries.drain(..) {
            lazyfree::free_awaited(entry, Arc::clone(&self.token));
        }
        Arc::strong_count(&self.token) == 1
    }

    fn changes_later(&self) -> bool {
        false
    }

    fn reply(&mut self, reply: &mut Reply<'_>) {
        reply.integer(self.deleted);
    }
}
