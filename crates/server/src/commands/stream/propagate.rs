//! Logs the effects of reads in a group: which entries are pending for which consumer, and the
//! group's last ID.

use bobbin_store::value::StreamId;
use bobbin_store::value::stream::{ConsumerGroup, ConsumerNumber};

use super::id;
use crate::engine::command::{Data, Key};
use crate::engine::log::with_group_position;

/// A pending entry, as a command of the log restores it.
pub(super) struct ClaimedEntry {
    id: StreamId,
    consumer: Vec<u8>,
    delivered_ms: i64,
    deliveries: u64,
    last_id: StreamId,
}

impl ClaimedEntry {
    /// The entry's current pending state. `None`: it is not pending.
    pub(super) fn of(group: &ConsumerGroup, id: StreamId) -> Option<Self> {
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

    /// Sets the group's last ID.
    pub(super) const fn with_last(mut self, last_id: StreamId) -> Self {
        self.last_id = last_id;
        self
    }

    /// Whether one command can restore both. The other entry follows this one.
    fn goes_with(&self, other: &Self) -> bool {
        self.consumer == other.consumer
            && self.delivered_ms == other.delivered_ms
            && self.deliveries == other.deliveries
            && self.last_id <= other.last_id
    }
}

/// Logs how entries became pending, in order.
pub(super) fn claimed(
    data: &mut Data,
    key: Key<'_>,
    group: &[u8],
    claimed: impl Iterator<Item = ClaimedEntry>,
) {
    let mut alike: Vec<ClaimedEntry> = Vec::new();
    for entry in claimed {
        if alike.last().is_some_and(|last| alike.len() == ALIKE_MAX || !last.goes_with(&entry)) {
            propagate_alike(data, key, group, &alike);
            alike.clear();
        }
        alike.push(entry);
    }
    propagate_alike(data, key, group, &alike);
}

/// Logs entries that one command can restore together.
fn propagate_alike(data: &mut Data, key: Key<'_>, group: &[u8], entries: &[ClaimedEntry]) {
    let Some(last) = entries.last() else { return };
    let (time, count) = (last.delivered_ms.to_string(), written(last.deliveries));
    let ids: Vec<Vec<u8>> = entries.iter().map(|entry| id::text(entry.id)).collect();
    let last_id = id::text(last.last_id);
    let mut args = vec![&b"XCLAIM"[..], key.bytes, group, &last.consumer, b"0"];
    args.extend(ids.iter().map(Vec::as_slice));
    args.extend([b"TIME", time.as_bytes(), b"RETRYCOUNT", count.as_bytes()]);
    args.extend([&b"FORCE"[..], b"JUSTID", b"LASTID", &last_id]);
    data.propagate(&args);
}

/// A counter as a command accepts it: at most a signed number of 64 bits.
fn written(counter: u64) -> String {
    counter.min(i64::MAX as u64).to_string()
}

/// The most entries of one command.
const ALIKE_MAX: usize = 128;

/// Logs a group's last ID.
pub(super) fn position(
    data: &mut Data,
    key: Key<'_>,
    group: &[u8],
    last_id: StreamId,
    entries_read: Option<u64>,
) {
    with_group_position(key.bytes, group, last_id, entries_read, |args| data.propagate(args));
}
