//! What reading in a group comes to in the log: who has which entry pending, and where the group
//! is.

use bobbin_store::value::StreamId;
use bobbin_store::value::stream::{ConsumerNumber, Group};

use super::id;
use crate::engine::command::{Data, Key};

/// A pending entry, as a command of the log makes it.
pub(super) struct ClaimedEntry {
    id: StreamId,
    consumer: Vec<u8>,
    delivered_ms: i64,
    deliveries: u64,
    last_id: StreamId,
}

impl ClaimedEntry {
    /// The entry as it is pending now; `None` if it is not.
    pub(super) fn of(group: &Group, id: StreamId) -> Option<Self> {
        let pending = group.pending().get(id)?;
        let number: ConsumerNumber = pending.consumer();
        Some(Self {
            id,
            consumer: group.consumer(number)?.name().to_vec(),
            delivered_ms: pending.delivered_ms,
            deliveries: pending.deliveries,
            last_id: group.last_id,
        })
    }

    /// Replaces the group's last ID.
    pub(super) const fn with_last(mut self, last_id: StreamId) -> Self {
        self.last_id = last_id;
        self
    }

    pub(super) fn propagate(&self, data: &mut Data, key: Key<'_>, group: &[u8]) {
        let (time, count) = (self.delivered_ms.to_string(), self.deliveries.to_string());
        data.propagate(&[
            b"XCLAIM",
            key.bytes,
            group,
            &self.consumer,
            b"0",
            &id::text(self.id),
            b"TIME",
            time.as_bytes(),
            b"RETRYCOUNT",
            count.as_bytes(),
            b"FORCE",
            b"JUSTID",
            b"LASTID",
            &id::text(self.last_id),
        ]);
    }
}

/// Logs where a group is.
pub(super) fn position(
    data: &mut Data,
    key: Key<'_>,
    group: &[u8],
    last_id: StreamId,
    entries_read: Option<u64>,
) {
    let read = entries_read.map_or_else(|| "-1".to_owned(), |read| read.to_string());
    let last_id = id::text(last_id);
    let args =
        [&b"XGROUP"[..], b"SETID", key.bytes, group, &last_id, b"ENTRIESREAD", read.as_bytes()];
    data.propagate(&args);
}
