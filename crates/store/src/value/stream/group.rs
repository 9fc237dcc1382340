//! A consumer group: how far it has read, and which entries its consumers have not acknowledged.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::StreamId;
use super::id_map::{IdMap, IdMapIter, Keyed};
use crate::value::Defragmenter;
use crate::value::defrag::Movable;

/// A consumer group.
#[derive(Clone, Default)]
pub struct ConsumerGroup {
    /// The last entry that was delivered.
    pub last_id: StreamId,
    /// How many of all entries ever added have been read. `None`: unknown.
    pub entries_read: Option<u64>,
    pending: IdMap<Pending>,
    /// By their numbers.
    consumers: Vec<Option<Consumer>>,
    /// Numbers that no consumer has.
    free: Vec<ConsumerNumber>,
    names: BTreeMap<Arc<[u8]>, ConsumerNumber>,
}

/// A consumer's index in its group. It may be given to another consumer after a deletion.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ConsumerNumber(u32);

/// An entry that was delivered and not acknowledged.
#[derive(Clone, Copy, Debug)]
pub struct Pending {
    pub id: StreamId,
    /// The time of the last delivery (Unix ms).
    pub delivered_ms: i64,
    /// How many times it was delivered.
    pub deliveries: u64,
    consumer: ConsumerNumber,
}

#[derive(Clone)]
pub struct Consumer {
    name: Arc<[u8]>,
    /// When it last tried to do something (Unix ms).
    pub seen_ms: i64,
    /// When it last got something (Unix ms). `None`: never.
    pub active_ms: Option<i64>,
    pending: IdMap<StreamId>,
}

impl Keyed for Pending {
    fn id(&self) -> StreamId {
        self.id
    }
}

impl Pending {
    pub fn consumer(&self) -> ConsumerNumber {
        self.consumer
    }
}

impl Movable for Pending {
    fn defragment(&mut self, _: &mut Defragmenter<'_>) {}
}

impl ConsumerGroup {
    pub fn new(last_id: StreamId, entries_read: Option<u64>) -> Self {
        Self { last_id, entries_read, ..Self::default() }
    }

    /// How many parts there are for [`Self::defragment`].
    pub(super) fn parts(&self) -> usize {
        let consumers = self.consumers.iter().flatten();
        1 + self.pending.parts() + consumers.map(|it| it.pending.parts()).sum::<usize>()
    }

    /// Moves blocks from one part on. Returns the part to continue with; the number of parts at the
    /// end.
    pub(super) fn defragment(&mut self, from: usize, defragmenter: &mut Defragmenter<'_>) -> usize {
        if from == 0 {
            defragmenter.vector(&mut self.consumers);
            defragmenter.vector(&mut self.free);
            defragmenter.map(&mut self.names);
        }
        let (mut start, mut part) = (1, from.max(1));
        let end = start + self.pending.parts();
        if part < end {
            part = start + self.pending.defragment(part - start, defragmenter);
        }
        start = end;
        for consumer in self.consumers.iter_mut().flatten() {
            let end = start + consumer.pending.parts();
            if part < end && !defragmenter.is_spent() {
                part = start + consumer.pending.defragment(part - start, defragmenter);
            }
            start = end;
        }
        part
    }

    // Consumers.

    pub fn consumer_number(&self, name: &[u8]) -> Option<ConsumerNumber> {
        self.names.get(name).copied()
    }

    /// Adds a consumer, which must not exist.
    pub fn add_consumer(&mut self, name: &[u8], now_ms: i64) -> ConsumerNumber {
        let name: Arc<[u8]> = name.into();
        let consumer = Consumer {
            name: Arc::clone(&name),
            seen_ms: now_ms,
            active_ms: None,
            pending: IdMap::default(),
        };
        let number = self.free.pop().unwrap_or_else(|| {
            self.consumers.push(None);
            ConsumerNumber((self.consumers.len() - 1) as u32)
        });
        self.consumers[number.0 as usize] = Some(consumer);
        self.names.insert(name, number);
        number
    }

    /// Deletes a consumer with its pending entries. Returns how many those were, if the consumer
    /// exists.
    pub fn remove_consumer(&mut self, name: &[u8]) -> Option<usize> {
        let number = self.names.remove(name)?;
        let consumer = self.consumers[number.0 as usize].take()?;
        self.free.push(number);
        for &id in consumer.pending.iter() {
            self.pending.remove(id);
        }
        Some(consumer.pending.len())
    }

    pub fn consumer(&self, number: ConsumerNumber) -> Option<&Consumer> {
        self.consumers.get(number.0 as usize)?.as_ref()
    }

    pub fn consumer_mut(&mut self, number: ConsumerNumber) -> Option<&mut Consumer> {
        self.consumers.get_mut(number.0 as usize)?.as_mut()
    }

    /// The consumers in the order of their names.
    pub fn consumers(&self) -> impl Iterator<Item = (ConsumerNumber, &Consumer)> {
        self.names.values().filter_map(|&number| Some((number, self.consumer(number)?)))
    }

    pub fn consumer_count(&self) -> usize {
        self.names.len()
    }

    // Pending entries.

    pub fn pending(&self) -> &IdMap<Pending> {
        &self.pending
    }

    /// Makes an entry pending for a consumer, and removes it from its former consumer.
    pub fn assign(
        &mut self,
        id: StreamId,
        consumer: ConsumerNumber,
        delivered_ms: i64,
        deliveries: u64,
    ) {
        let new = Pending { id, delivered_ms, deliveries, consumer };
        let former = match self.pending.get_mut(id) {
            Some(there) => Some(std::mem::replace(there, new).consumer),
            None => {
                self.pending.insert(new);
                None
            }
        };
        if former == Some(consumer) {
            return;
        }
        if let Some(former) = former.and_then(|former| self.consumer_mut(former)) {
            former.pending.remove(id);
        }
        if let Some(consumer) = self.consumer_mut(consumer) {
            consumer.pending.insert(id);
        }
    }

    /// Counts another delivery to the entry's consumer.
    pub fn deliver_again(&mut self, id: StreamId, now_ms: i64) {
        if let Some(pending) = self.pending.get_mut(id) {
            pending.delivered_ms = now_ms;
            // A restored entry may have any number.
            pending.deliveries = pending.deliveries.wrapping_add(1);
        }
    }

    /// Makes an entry not pending any more. Returns whether it was.
    pub fn acknowledge(&mut self, id: StreamId) -> bool {
        let Some(pending) = self.pending.remove(id) else { return false };
        if let Some(consumer) = self.consumer_mut(pending.consumer) {
            consumer.pending.remove(id);
        }
        true
    }

    /// The pending entries from an ID on: all, or those of one consumer.
    pub fn pending_from(
        &self,
        start: StreamId,
        consumer: Option<ConsumerNumber>,
    ) -> PendingFrom<'_> {
        match consumer.and_then(|number| self.consumer(number)) {
            Some(consumer) => PendingFrom::Of(self, consumer.pending.iter_from(start)),
            None => PendingFrom::All(self.pending.iter_from(start)),
        }
    }

    pub fn memory(&self) -> usize {
        let of_consumer = |consumer: &Consumer| 2 * consumer.name.len() + consumer.pending.memory();
        let consumers: usize = self.consumers.iter().flatten().map(of_consumer).sum();
        size_of::<Self>()
            + self.pending.memory()
            + self.consumers.capacity() * size_of::<Option<Consumer>>()
            + self.free.capacity() * size_of::<ConsumerNumber>()
            + consumers
    }

    /// How many blocks of memory there are.
    pub fn blocks(&self) -> usize {
        let pages = |consumer: &Consumer| consumer.pending.pages();
        self.pending.pages() + self.consumers.iter().flatten().map(pages).sum::<usize>() + 1
    }
}

impl Consumer {
    pub fn name(&self) -> &[u8] {
        &self.name
    }

    /// The IDs of its pending entries.
    pub fn pending(&self) -> &IdMap<StreamId> {
        &self.pending
    }
}

/// Pending entries in order.
pub enum PendingFrom<'a> {
    All(IdMapIter<'a, Pending>),
    Of(&'a ConsumerGroup, IdMapIter<'a, StreamId>),
}

impl<'a> Iterator for PendingFrom<'a> {
    type Item = &'a Pending;

    fn next(&mut self) -> Option<&'a Pending> {
        match self {
            Self::All(records) => records.next(),
            Self::Of(group, ids) => group.pending.get(*ids.next()?),
        }
    }
}
