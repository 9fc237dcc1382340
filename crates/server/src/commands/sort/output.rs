//! The output of sorted elements: into the reply, or into the list that is stored.

use bobbin_resp::Reply;
use bobbin_store::value::{End, Item, List, ListLimits};

use crate::engine::command::{Classes, Data, Key};

/// Receives sorted elements.
pub(super) trait SortOutput {
    /// Called first: `len` elements follow.
    fn begin(&mut self, len: usize);

    /// `None`: what GET names does not exist.
    fn element(&mut self, element: Option<&[u8]>);
}

impl SortOutput for Reply<'_> {
    fn begin(&mut self, len: usize) {
        self.array(len);
    }

    fn element(&mut self, element: Option<&[u8]>) {
        self.bulk_or_null(element);
    }
}

/// The list that will be stored.
pub(super) struct Stored {
    list: List,
    limits: ListLimits,
    /// The list is logged instead of the command. Other keys were looked up, and more of them will
    /// have expired when the log is replayed.
    logs_list: bool,
}

impl Stored {
    pub(super) fn new(limits: ListLimits, logs_list: bool) -> Self {
        Self { list: List::new(), limits, logs_list }
    }

    /// Removes and returns the elements so far.
    pub(super) fn take(&mut self) -> Self {
        std::mem::replace(self, Self::new(self.limits, self.logs_list))
    }

    /// Stores the list, and replies with its length.
    pub(super) fn put(self, data: &mut Data, reply: &mut Reply<'_>, key: Key<'_>) {
        let len = self.list.len();
        if self.logs_list && data.is_logged() {
            self.log(data, key);
        }
        if len > 0 {
            data.set_collection(key, self.list);
            data.counters.dirty += len as u64 - 1;
            data.event(Classes::LIST, "sortstore", key);
        } else if data.remove(key) {
            data.event(Classes::GENERIC, "del", key);
        }
        reply.integer(len as i64);
    }

    fn log(&self, data: &mut Data, key: Key<'_>) {
        data.propagate(&[b"DEL", key.bytes]);
        let mut items = self.list.iter();
        loop {
            let items: Vec<_> = items.by_ref().take(LOGGED_AT_ONCE).map(Item::to_vec).collect();
            if items.is_empty() {
                return;
            }
            let words = [b"RPUSH", key.bytes].into_iter().chain(items.iter().map(|item| &**item));
            data.propagate(&words.collect::<Vec<_>>());
        }
    }
}

/// How many elements one RPUSH in the log has.
const LOGGED_AT_ONCE: usize = 1024;

impl SortOutput for Stored {
    fn begin(&mut self, _: usize) {}

    fn element(&mut self, element: Option<&[u8]>) {
        let element = element.unwrap_or_default();
        self.list.prepare(element.len(), 1, self.limits);
        self.list.push(Item::from(element), End::Back, self.limits);
    }
}
