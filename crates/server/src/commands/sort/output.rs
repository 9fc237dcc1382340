//! Where sorted elements go: into the reply, or into the list that is stored.

use bobbin_resp::Reply;
use bobbin_store::value::{End, Item, List, ListLimits};

use crate::command::{Classes, Data, Key};

/// A place for sorted elements.
pub(super) trait Output {
    /// Called first: `len` elements follow.
    fn begin(&mut self, len: usize);

    /// `None`: what GET names does not exist.
    fn element(&mut self, element: Option<&[u8]>);
}

impl Output for Reply<'_> {
    fn begin(&mut self, len: usize) {
        self.array(len);
    }

    fn element(&mut self, element: Option<&[u8]>) {
        self.bulk_or_null(element);
    }
}

/// The list that is stored.
pub(super) struct Stored {
    list: List,
    limits: ListLimits,
}

impl Stored {
    pub(super) fn new(limits: ListLimits) -> Self {
        Self { list: List::new(), limits }
    }

    /// Takes what was put in so far away.
    pub(super) fn take(&mut self) -> Self {
        std::mem::replace(self, Self::new(self.limits))
    }

    /// Puts the list where it belongs, and answers how long it is.
    pub(super) fn put(self, data: &mut Data, reply: &mut Reply<'_>, key: Key<'_>) {
        let len = self.list.len();
        if len > 0 {
            data.set_collection(key, self.list);
            data.counters.dirty += len as u64 - 1;
            data.event(Classes::LIST, "sortstore", key);
        } else if data.remove(key) {
            data.event(Classes::GENERIC, "del", key);
        }
        reply.integer(len as i64);
    }
}

impl Output for Stored {
    fn begin(&mut self, _: usize) {}

    fn element(&mut self, element: Option<&[u8]>) {
        let element = element.unwrap_or_default();
        self.list.prepare(element.len(), 1, self.limits);
        self.list.push(Item::from(element), End::Back, self.limits);
    }
}
