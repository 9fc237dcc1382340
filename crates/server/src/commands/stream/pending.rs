//! Entries that were delivered and not acknowledged: XACK and XPENDING.

use bobbin_resp::{Aggregate, Reply};
use bobbin_store::value::stream::{ConsumerGroup, ConsumerNumber, Stream, StreamId};

use super::draft::GroupDraft;
use super::read::stream_at;
use super::{consumer, group, id};
use crate::engine::command::{Call, Data, Failure, Key, Outcome};
use crate::engine::execution::slices::{
    SLICE, SLICED_MIN, SlicedChange, change_in_slices, elements_in_slices, ends_soon,
};

pub(super) fn xack(call: &mut Call<'_>) -> Outcome {
    let (key, args) = (call.key(1)?, call.args);
    let Some((_, group)) = group::find(call.data, key, args[2])? else {
        // This counts as a read of the key.
        call.data.look(key);
        call.reply.integer(0);
        return Ok(());
    };
    // Parse all IDs first, so that an error leaves everything unchanged.
    let ids = args[3..].iter().map(|arg| id::parse(arg, 0)).collect::<Result<Vec<_>, _>>()?;
    let is_long = ids.len().min(group.pending().len()) > SLICED_MIN;
    if is_long && call.may_leave_job {
        call.data.counters.hits += 1;
        return PendingRemoval::leave(call, 1, PendingPart::Ids { ids, at: 0 });
    }
    let count = ids.into_iter().filter(|&id| group.acknowledge(id)).count();
    call.data.counters.hits += 1;
    note_acknowledged(call.data, &mut call.reply, key, count);
    Ok(())
}

fn note_acknowledged(data: &mut Data, reply: &mut Reply<'_>, key: Key<'_>, count: usize) {
    if count > 0 {
        data.changed_inside(key);
        data.counters.dirty += count as u64 - 1;
    }
    reply.integer(count as i64);
}

/// Which pending entries are removed.
pub(super) enum PendingPart {
    /// The entries with these IDs. Those from the index `at` on were not examined yet.
    Ids { ids: Vec<StreamId>, at: usize },
    /// The entries of a consumer, and the consumer itself.
    Consumer(Box<[u8]>),
}

/// XACK or XGROUP DELCONSUMER of many pending entries.
pub(super) struct PendingRemoval {
    draft: GroupDraft,
    part: PendingPart,
    /// How many entries were removed.
    removed: usize,
    /// The group is gone too.
    is_over: bool,
}

impl PendingRemoval {
    /// Does the removal in slices. The key is the argument at `at`, and the group is the next one,
    /// which must exist.
    pub(super) fn leave(call: &mut Call<'_>, at: usize, part: PendingPart) -> Outcome {
        let (key, name) = (call.key(at)?, call.args[at + 1]);
        let stream = stream_at(call.data, key)?;
        let draft = stream.and_then(|stream| GroupDraft::new(key.bytes, name, stream));
        let draft = draft.ok_or_else(|| group::nothing_found(key.bytes, name))?;
        let removal = Self { draft, part, removed: 0, is_over: false };
        change_in_slices(call, [at].into_iter(), removal)
    }
}

impl SlicedChange for PendingRemoval {
    fn step(&mut self, _: &mut Data) -> bool {
        let group = &mut self.draft.group;
        for _ in 0..SLICE {
            let next = match &mut self.part {
                PendingPart::Ids { ids, at } => {
                    *at += 1;
                    ids.get(*at - 1).copied()
                }
                PendingPart::Consumer(name) => {
                    let number = group.consumer_number(name);
                    let consumer = number.and_then(|number| group.consumer(number));
                    consumer.and_then(|consumer| consumer.pending().first().copied())
                }
            };
            let Some(id) = next else { return false };
            self.removed += usize::from(group.acknowledge(id));
        }
        true
    }

    fn is_current(&mut self, data: &mut Data) -> Result<bool, Failure> {
        let is_current = self.draft.is_current(data)?;
        self.is_over = is_current.is_none();
        if is_current == Some(false) {
            self.removed = 0;
            if let PendingPart::Ids { at, .. } = &mut self.part {
                *at = 0;
            }
        }
        Ok(is_current.unwrap_or(true))
    }

    fn finish(&mut self, data: &mut Data, _: &[&[u8]], reply: &mut Reply<'_>) -> Outcome {
        let name = self.draft.key.clone();
        let key = data.key(&name);
        match &self.part {
            PendingPart::Ids { .. } if self.is_over => reply.integer(0),
            PendingPart::Ids { .. } => note_acknowledged(data, reply, key, self.removed),
            PendingPart::Consumer(_) if self.is_over => {
                return Err(group::missing(data, key, &self.draft.name));
            }
            PendingPart::Consumer(name) => {
                let is_there = self.draft.group.remove_consumer(name).is_some();
                consumer::note_deleted(data, reply, key, is_there.then_some(self.removed));
            }
        }
        if self.is_over { Ok(()) } else { self.draft.put(data, key) }
    }
}

pub(super) fn xpending(call: &mut Call<'_>) -> Outcome {
    let (key, args) = (call.key(1)?, call.args);
    let wanted = match args.len() {
        3 => None,
        6..=9 => Some(PendingFilter::parse(call)?),
        _ => return Err(Failure::SYNTAX),
    };
    let now_ms = call.data.conditions.now_ms;
    let stream = call.data.read_as::<Stream>(key)?;
    let group = stream.and_then(|stream| stream.groups().get(args[2]));
    let group = group.ok_or_else(|| group::nothing_found(args[1], args[2]))?;
    let Some(wanted) = wanted else {
        summary(group, &mut call.reply);
        return Ok(());
    };
    let number = match wanted.consumer {
        Some(name) => match group.consumer_number(name) {
            None => {
                call.reply.empty_array();
                return Ok(());
            }
            number => number,
        },
        None => None,
    };
    let mut list = PendingList::new(&wanted, number, now_ms);
    let is_long = group.pending().len() > SLICED_MIN && wanted.may_be_long();
    let (start, header, mut written) = (call.reply.output().len(), call.reply.defer(), 0);
    let mut step = || list.step(group, &mut call.reply, &mut written);
    if is_long && call.may_leave_job && !ends_soon(call.server, &mut step) {
        call.reply.truncate(start);
        let mut list = PendingList::new(&wanted, number, now_ms);
        let (pinned, name) = (stream.cloned(), args[2].to_vec());
        elements_in_slices(call, Aggregate::Array, move |reply, written| {
            let group = pinned.as_ref().and_then(|stream| stream.groups().get(&name));
            group.is_some_and(|group| list.step(group, reply, written))
        });
        return Ok(());
    }
    while step() {}
    call.reply.finish_array(header, written);
    Ok(())
}

fn summary(group: &ConsumerGroup, reply: &mut Reply<'_>) {
    reply.array(4);
    reply.integer(group.pending().len() as i64);
    let (Some(first), Some(last)) = (group.pending().first(), group.pending().last()) else {
        reply.null();
        reply.null();
        reply.null_array();
        return;
    };
    id::reply(reply, first.id);
    id::reply(reply, last.id);
    let busy = || group.consumers().filter(|(_, consumer)| !consumer.pending().is_empty());
    reply.array(busy().count());
    for (_, consumer) in busy() {
        reply.array(2);
        reply.bulk(consumer.name());
        reply.bulk_i64(consumer.pending().len() as i64);
    }
}

/// The pending entries that are requested.
struct PendingFilter<'a> {
    start: StreamId,
    end: StreamId,
    count: usize,
    idle_ms_min: i64,
    consumer: Option<&'a [u8]>,
}

impl<'a> PendingFilter<'a> {
    fn parse(call: &Call<'a>) -> Result<Self, Failure> {
        let (mut at, mut idle_ms_min) = (3, 0);
        if call.word_is(3, "idle") {
            idle_ms_min = call.integer(4)?;
            if call.args.len() < 8 {
                return Err(Failure::SYNTAX);
            }
            at = 5;
        }
        let count = call.integer(at + 2)?.max(0) as usize;
        let (start, end) = id::parse_range(call.args[at], call.args[at + 1])?.into_inner();
        let consumer = call.args.get(at + 3).copied();
        Ok(Self { start, end, count, idle_ms_min, consumer })
    }

    /// Whether many entries may have to be examined.
    const fn may_be_long(&self) -> bool {
        self.count > SLICED_MIN || self.idle_ms_min != 0
    }
}

/// A list of pending entries in progress.
struct PendingList {
    /// Where to continue. `None`: the list is complete.
    next: Option<StreamId>,
    end: StreamId,
    /// The most entries to show.
    count: usize,
    idle_ms_min: i64,
    /// The consumer that has them. `None`: any.
    number: Option<ConsumerNumber>,
    now_ms: i64,
}

impl PendingList {
    fn new(wanted: &PendingFilter<'_>, number: Option<ConsumerNumber>, now_ms: i64) -> Self {
        let PendingFilter { start, end, count, idle_ms_min, .. } = *wanted;
        Self { next: Some(start), end, count, idle_ms_min, number, now_ms }
    }

    /// Examines some entries, and appends the wanted ones. Returns whether there are more.
    fn step(&mut self, group: &ConsumerGroup, reply: &mut Reply<'_>, written: &mut usize) -> bool {
        let Some(start) = self.next.take() else { return false };
        let mut looks = 0;
        for pending in group.pending_from(start, self.number) {
            if pending.id > self.end || *written == self.count {
                return false;
            }
            looks += 1;
            let idle_ms = self.now_ms.saturating_sub(pending.delivered_ms);
            if self.idle_ms_min == 0 || idle_ms >= self.idle_ms_min {
                reply.array(4);
                id::reply(reply, pending.id);
                let consumer = group.consumer(pending.consumer());
                reply.bulk(consumer.map_or(b"", |consumer| consumer.name()));
                reply.integer(idle_ms.max(0));
                reply.integer(pending.deliveries as i64);
                *written += 1;
            }
            if looks == SLICE {
                self.next = pending.id.next();
                return self.next.is_some();
            }
        }
        false
    }
}
