//! What was delivered and is not acknowledged: XACK and XPENDING.

use bobbin_resp::{Aggregate, Reply};
use bobbin_store::value::stream::{ConsumerNumber, Group, Stream, StreamId};

use super::{group, id};
use crate::engine::command::slices::{SLICE, SLICED_MIN, elements_in_slices};
use crate::engine::command::{Call, Failure, Outcome};

pub(super) fn xack(call: &mut Call<'_>) -> Outcome {
    let (key, args) = (call.key(1)?, call.args);
    let Some((_, group)) = group::find(call.data, key, args[2])? else {
        // It is a reader's look at the key.
        call.data.look(key);
        call.reply.integer(0);
        return Ok(());
    };
    // All of them or none.
    for arg in &args[3..] {
        id::parse(arg, 0)?;
    }
    let acknowledged = args[3..].iter().filter_map(|arg| id::parse(arg, 0).ok());
    let count = acknowledged.filter(|&id| group.acknowledge(id)).count();
    call.data.counters.hits += 1;
    if count > 0 {
        call.data.changed_inside(key);
        call.data.counters.dirty += count as u64 - 1;
    }
    call.reply.integer(count as i64);
    Ok(())
}

pub(super) fn xpending(call: &mut Call<'_>) -> Outcome {
    let (key, args) = (call.key(1)?, call.args);
    let wanted = match args.len() {
        3 => None,
        6..=9 => Some(PendingFilter::parse(call)?),
        _ => return Err(Failure::SYNTAX),
    };
    let now_ms = call.data.turn.now_ms;
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
    if is_long && call.may_leave_job {
        let (pinned, name) = (stream.cloned(), args[2].to_vec());
        elements_in_slices(call, Aggregate::Array, move |reply, written| {
            let group = pinned.as_ref().and_then(|stream| stream.groups().get(&name));
            group.is_some_and(|group| list.step(group, reply, written))
        });
        return Ok(());
    }
    let (header, mut written) = (call.reply.defer(), 0);
    while list.step(group, &mut call.reply, &mut written) {}
    call.reply.finish_array(header, written);
    Ok(())
}

fn summary(group: &Group, reply: &mut Reply<'_>) {
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

/// The pending entries that are asked for.
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

    /// Whether many entries may have to be looked at.
    const fn may_be_long(&self) -> bool {
        self.count > SLICED_MIN || self.idle_ms_min != 0
    }
}

/// A list of pending entries, at work.
struct PendingList {
    /// Where to go on; `None`: it is complete.
    next: Option<StreamId>,
    end: StreamId,
    /// Entries to answer at most.
    count: usize,
    idle_ms_min: i64,
    /// Whose they are; `None`: anybody's.
    number: Option<ConsumerNumber>,
    now_ms: i64,
}

impl PendingList {
    fn new(wanted: &PendingFilter<'_>, number: Option<ConsumerNumber>, now_ms: i64) -> Self {
        let PendingFilter { start, end, count, idle_ms_min, .. } = *wanted;
        Self { next: Some(start), end, count, idle_ms_min, number, now_ms }
    }

    /// Looks at some entries, and appends those that are wanted; whether there are more.
    fn step(&mut self, group: &Group, reply: &mut Reply<'_>, written: &mut usize) -> bool {
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
