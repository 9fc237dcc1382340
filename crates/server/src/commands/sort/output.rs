//! The output of sorted elements: into the reply, or into the list that is stored.

use bobbin_resp::Reply;
use bobbin_store::ValueRef;
use bobbin_store::value::{CollectionRef, End, Item, List, ListLimits};

use crate::engine::command::{Classes, Data, Key};
use crate::engine::log::payload_of;

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
        if self.logs_list && len == 0 {
            data.propagate(&[b"DEL", key.bytes]);
        }
        if len > 0 {
            let payload = (self.logs_list && data.is_logged())
                .then(|| payload_of(ValueRef::Collection(CollectionRef::List(&self.list)), false));
            data.set_collection(key, self.list);
            if let Some(payload) = payload {
                data.propagate_value(key, &payload, &[b"REPLACE"]);
            }
            data.counters.dirty += len as u64 - 1;
            data.event(Classes::LIST, "sortstore", key);
        } else if data.remove(key) {
            data.event(Classes::GENERIC, "del", key);
        }
        reply.integer(len as i64);
    }
}

impl SortOutput for Stored {
    fn begin(&mut self, _: usize) {}

    fn element(&mut self, element: Option<&[u8]>) {
        let element = element.unwrap_or_default();
        self.list.prepare(element.len(), 1, self.limits);
        self.list.push(Item::from(element), End::Back, self.limits);
    }
}
