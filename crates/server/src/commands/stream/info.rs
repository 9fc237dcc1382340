//! XINFO: facts about a stream, its groups and their consumers.

use std::collections::VecDeque;
use std::sync::Arc;

use bobbin_resp::{Protocol, Reply};
use bobbin_store::value::stream::{ConsumerGroup, ConsumerNumber, Pending, StreamLog};
use bobbin_store::value::{Stream, StreamId};

use super::range::append_entry;
use super::{group, id};
use crate::engine::command::{Call, Failure, Outcome};
use crate::engine::execution::slices::{SLICE, SLICED_MIN, reply_in_slices};

pub(super) fn stream(call: &mut Call<'_>) -> Outcome {
    let key = call.key(2)?;
    // A key that does not exist is reported first.
    let full = full_count(call);
    let Some(stream) = call.data.read_as::<Stream>(key)? else { return Err(Failure::NO_SUCH_KEY) };
    let Some(count) = full? else {
        let reply = &mut call.reply;
        reply.map(10);
        summary(reply, stream);
        number(reply, "groups", stream.groups().len() as i64);
        let log = stream.log();
        reply.bulk(b"first-entry");
        match log.range(StreamId::ZERO, StreamId::MAX).next() {
            Some(entry) => append_entry(reply, &entry),
            None => reply.null(),
        }
        reply.bulk(b"last-entry");
        match log.range_back(StreamId::ZERO, StreamId::MAX).next() {
            Some(entry) => append_entry(reply, &entry),
            None => reply.null(),
        }
        return Ok(());
    };
    // All the rest is read from a pinned stream, so no other client needs to wait.
    let stream = stream.clone();
    call.end_reading();
    let count = if count == 0 { usize::MAX } else { count };
    let mut full = FullReply::new(stream, count, call.reply.protocol());
    if full.len() <= SLICED_MIN {
        while full.step(&mut call.reply) {}
    } else {
        reply_in_slices(call, move |reply| full.step(reply));
    }
    Ok(())
}

/// How many entries of each kind FULL shows at most, if the command has this option.
fn full_count(call: &Call<'_>) -> Result<Option<usize>, Failure> {
    match call.args.len() {
        3 => Ok(None),
        4 | 6 if call.word_is(3, "full") => match call.args.get(4) {
            None => Ok(Some(ENTRIES_DEFAULT)),
            Some(_) if !call.word_is(4, "count") => Err(group::syntax(call)),
            Some(_) => Ok(Some(usize::try_from(call.integer(5)?).unwrap_or(ENTRIES_DEFAULT))),
        },
        _ => Err(group::syntax(call)),
    }
}

/// The first part of the reply, with and without FULL.
fn summary(reply: &mut Reply<'_>, stream: &Stream) {
    let log = stream.log();
    number(reply, "length", log.len() as i64);
    number(reply, "radix-tree-keys", log.nodes().len() as i64);
    // The keys of Redis's tree are the first IDs of its nodes.
    let keys = log.nodes().iter().map(|node| node.master().to_bytes());
    number(reply, "radix-tree-nodes", radix_tree_nodes(keys, log.nodes().len()) as i64);
    named_id(reply, "last-generated-id", log.last_id);
    named_id(reply, "max-deleted-entry-id", log.max_deleted_id);
    number(reply, "entries-added", log.entries_added as i64);
    named_id(reply, "recorded-first-entry-id", log.first_id());
}

/// The reply of XINFO STREAM FULL, in parts.
struct FullReply {
    stream: Stream,
    /// The most entries of each kind.
    count: usize,
    /// The parts in order.
    parts: VecDeque<FullPart>,
    /// Where the first part continues. `None`: it is complete.
    next: Option<StreamId>,
    /// How many of its entries were written.
    written: usize,
}

enum FullPart {
    /// Complete bytes of the reply.
    Bytes(Vec<u8>),
    Entries,
    /// What is known of a group. Its pending entries and its consumers follow.
    Group(Arc<[u8]>),
    /// What is known of a consumer. Its pending entries follow.
    Consumer(Arc<[u8]>, ConsumerNumber),
    /// The pending entries of a group, or of one of its consumers.
    Pending {
        group: Arc<[u8]>,
        consumer: Option<ConsumerNumber>,
    },
}

impl FullReply {
    fn new(stream: Stream, count: usize, protocol: Protocol) -> Self {
        let mut parts = VecDeque::new();
        let bytes = |write: &dyn Fn(&mut Reply<'_>)| {
            let mut bytes = Vec::new();
            write(&mut Reply::new(&mut bytes, protocol));
            FullPart::Bytes(bytes)
        };
        parts.push_back(bytes(&|reply| {
            reply.map(9);
            summary(reply, &stream);
            reply.bulk(b"entries");
            reply.array(count.min(stream.len()));
        }));
        parts.push_back(FullPart::Entries);
        parts.push_back(bytes(&|reply| {
            reply.bulk(b"groups");
            reply.array(stream.groups().len());
        }));
        parts.extend(stream.groups().iter().map(|(name, _)| FullPart::Group(name.into())));
        Self { stream, count, parts, next: Some(StreamId::ZERO), written: 0 }
    }

    /// How many entries and other parts the reply has.
    fn len(&self) -> usize {
        let parts = |group: &ConsumerGroup| {
            group.consumer_count() + 2 * self.count.min(group.pending().len())
        };
        let in_groups = self.stream.groups().iter().map(|(_, group)| parts(group));
        self.parts.len() + self.count.min(self.stream.len()) + in_groups.sum::<usize>()
    }

    /// Appends a part, or some entries of it. Returns whether there is more.
    fn step(&mut self, reply: &mut Reply<'_>) -> bool {
        match self.parts.front() {
            Some(FullPart::Group(name)) => {
                let name = Arc::clone(name);
                self.parts.pop_front();
                self.begin_group(&name, reply);
                return !self.parts.is_empty();
            }
            Some(FullPart::Consumer(group, number)) => {
                let (group, number) = (Arc::clone(group), *number);
                self.parts.pop_front();
                self.begin_consumer(group, number, reply);
                return true;
            }
            _ => {}
        }
        let wanted = SLICE.min(self.count - self.written);
        let before = self.written;
        let mut last = StreamId::ZERO;
        match (self.parts.front(), self.next) {
            (Some(FullPart::Bytes(bytes)), _) => reply.raw(bytes),
            (Some(FullPart::Entries), Some(start)) => {
                for entry in self.stream.log().range(start, StreamId::MAX).take(wanted) {
                    append_entry(reply, &entry);
                    (self.written, last) = (self.written + 1, entry.id);
                }
            }
            (Some(FullPart::Pending { group, consumer }), Some(start)) => {
                if let Some(group) = self.stream.groups().get(group) {
                    for pending in group.pending_from(start, *consumer).take(wanted) {
                        one_pending(reply, group, pending, consumer.is_none());
                        (self.written, last) = (self.written + 1, pending.id);
                    }
                }
            }
            _ => {}
        }
        let may_be_more = self.written - before == SLICE && self.written < self.count;
        self.next = last.next().filter(|_| may_be_more);
        if self.next.is_none() {
            self.parts.pop_front();
            (self.next, self.written) = (Some(StreamId::ZERO), 0);
        }
        !self.parts.is_empty()
    }
}

impl FullReply {
    /// Appends what is known of a group. What follows it become the first parts.
    fn begin_group(&mut self, name: &Arc<[u8]>, reply: &mut Reply<'_>) {
        let Some(group) = self.stream.groups().get(name) else { return };
        reply.map(7);
        reply.bulk(b"name");
        reply.bulk(name);
        progress(reply, self.stream.log(), group);
        self.pending_header(group.pending().len(), reply);
        let mut header = Vec::new();
        let mut consumers = Reply::new(&mut header, reply.protocol());
        consumers.bulk(b"consumers");
        consumers.array(group.consumer_count());
        let of_group = FullPart::Pending { group: Arc::clone(name), consumer: None };
        let consumers =
            group.consumers().map(|(number, _)| FullPart::Consumer(Arc::clone(name), number));
        let new = [of_group, FullPart::Bytes(header)].into_iter().chain(consumers);
        let behind = std::mem::replace(&mut self.parts, new.collect());
        self.parts.extend(behind);
    }

    /// Appends what is known of a consumer. Its pending entries become the first part.
    fn begin_consumer(
        &mut self,
        name: Arc<[u8]>,
        consumer_number: ConsumerNumber,
        reply: &mut Reply<'_>,
    ) {
        let group = self.stream.groups().get(&name);
        let Some(consumer) = group.and_then(|group| group.consumer(consumer_number)) else {
            return;
        };
        reply.map(5);
        reply.bulk(b"name");
        reply.bulk(consumer.name());
        number(reply, "seen-time", consumer.seen_ms);
        number(reply, "active-time", consumer.active_ms.unwrap_or(-1));
        self.pending_header(consumer.pending().len(), reply);
        self.parts.push_front(FullPart::Pending { group: name, consumer: Some(consumer_number) });
    }

    fn pending_header(&self, pending: usize, reply: &mut Reply<'_>) {
        number(reply, "pel-count", pending as i64);
        reply.bulk(b"pending");
        reply.array(self.count.min(pending));
    }
}

fn one_pending(reply: &mut Reply<'_>, group: &ConsumerGroup, pending: &Pending, with_name: bool) {
    reply.array(if with_name { 4 } else { 3 });
    id::reply(reply, pending.id);
    if with_name {
        let consumer = group.consumer(pending.consumer());
        reply.bulk(consumer.map_or(b"", |consumer| consumer.name()));
    }
    reply.integer(pending.delivered_ms);
    reply.integer(pending.deliveries as i64);
}

pub(super) fn groups(call: &mut Call<'_>) -> Outcome {
    let key = call.key(2)?;
    let Some(stream) = call.data.read_as::<Stream>(key)? else { return Err(Failure::NO_SUCH_KEY) };
    let reply = &mut call.reply;
    reply.array(stream.groups().len());
    for (name, group) in stream.groups().iter() {
        reply.map(6);
        reply.bulk(b"name");
        reply.bulk(name);
        number(reply, "consumers", group.consumer_count() as i64);
        number(reply, "pending", group.pending().len() as i64);
        progress(reply, stream.log(), group);
    }
    Ok(())
}

pub(super) fn consumers(call: &mut Call<'_>) -> Outcome {
    let (key, args, now_ms) = (call.key(2)?, call.args, call.data.conditions.now_ms);
    let Some(stream) = call.data.read_as::<Stream>(key)? else { return Err(Failure::NO_SUCH_KEY) };
    let group = stream.groups().get(args[3]);
    let group = group.ok_or_else(|| group::not_found(args[2], args[3]))?;
    let reply = &mut call.reply;
    reply.array(group.consumer_count());
    for (_, consumer) in group.consumers() {
        reply.map(4);
        reply.bulk(b"name");
        reply.bulk(consumer.name());
        number(reply, "pending", consumer.pending().len() as i64);
        // Restored times may have any value.
        number(reply, "idle", now_ms.saturating_sub(consumer.seen_ms).max(0));
        let inactive_ms = consumer.active_ms.map(|active_ms| now_ms.saturating_sub(active_ms));
        number(reply, "inactive", inactive_ms.unwrap_or(-1));
    }
    Ok(())
}

/// How far a group has read.
fn progress(reply: &mut Reply<'_>, log: &StreamLog, group: &ConsumerGroup) {
    named_id(reply, "last-delivered-id", group.last_id);
    let read = group.entries_read.map(|read| read as i64);
    for (name, value) in [("entries-read", read), ("lag", log.lag(group))] {
        reply.bulk(name.as_bytes());
        match value {
            Some(value) => reply.integer(value),
            None => reply.null(),
        }
    }
}

fn number(reply: &mut Reply<'_>, name: &str, value: i64) {
    reply.bulk(name.as_bytes());
    reply.integer(value);
}

fn named_id(reply: &mut Reply<'_>, name: &str, value: StreamId) {
    reply.bulk(name.as_bytes());
    id::reply(reply, value);
}

/// How many nodes Redis's radix tree would have for keys, which come in order. Of many keys the
/// first ones are looked at, and the result is an estimate: Redis has the number at hand.
fn radix_tree_nodes(keys: impl Iterator<Item = [u8; 16]>, len: usize) -> usize {
    let count = count_radix_tree_nodes(keys.take(COUNTED_KEYS_MAX));
    if len > COUNTED_KEYS_MAX { count * len / COUNTED_KEYS_MAX } else { count }
}

/// Counts the nodes of Redis's radix tree for keys, which come in order. The tree has a node for
/// each fork between keys, one for a common part before a fork, and for each key one for its end
/// and one for its rest.
fn count_radix_tree_nodes(keys: impl Iterator<Item = [u8; 16]>) -> usize {
    let common = |a: [u8; 16], b: [u8; 16]| a.iter().zip(&b).take_while(|(a, b)| a == b).count();
    let mut count = 0;
    // The forks on the path to the last key so far: at how many bytes they are.
    let mut forks: Vec<usize> = Vec::new();
    let mut before: Option<[u8; 16]> = None;
    let mut deepest = None;
    // A key's end, and its own part between the fork and the end.
    let leaf = |fork: Option<usize>| 1 + usize::from(fork.is_none_or(|fork| fork < 15));
    for key in keys {
        if let Some(before) = before {
            let at = common(before, key);
            count += leaf(Some(deepest.map_or(at, |deepest: usize| deepest.max(at))));
            // Forks deeper than this are complete. The node before each is counted once its parent
            // is known.
            while let Some(&fork) = forks.last()
                && fork > at
            {
                forks.pop();
                let parent = forks.last().copied().map_or(at, |parent| parent.max(at));
                count += 1 + usize::from(fork > parent + 1);
            }
            if forks.last() != Some(&at) {
                forks.push(at);
            }
            deepest = Some(at);
        }
        before = Some(key);
    }
    if before.is_none() {
        return 1;
    }
    count += leaf(deepest);
    while let Some(fork) = forks.pop() {
        let leads = match forks.last() {
            Some(parent) => fork > parent + 1,
            None => fork > 0,
        };
        count += 1 + usize::from(leads);
    }
    count
}

/// How many keys are looked at to count Redis's nodes.
const COUNTED_KEYS_MAX: usize = 256;
/// How many entries FULL shows by default.
const ENTRIES_DEFAULT: usize = 10;

#[cfg(test)]
mod tests {
    use super::*;

    /// The keys of `count` nodes with 100 entries each, of which a millisecond has `rate`.
    fn keys(count: usize, rate: usize) -> impl Iterator<Item = [u8; 16]> {
        (0..count).map(move |node| {
            let entry = node * 100;
            StreamId { ms: 1_800_000_000_000 + (entry / rate) as u64, seq: (entry % rate) as u64 }
                .to_bytes()
        })
    }

    #[test]
    fn nodes_of_many_keys_are_estimated() {
        for rate in [1, 7, 100, 5000, 100_000] {
            for len in [0, 1, 2, 100, COUNTED_KEYS_MAX] {
                let exact = count_radix_tree_nodes(keys(len, rate));
                assert_eq!(radix_tree_nodes(keys(len, rate), len), exact, "{len} keys");
            }
            for len in [COUNTED_KEYS_MAX + 1, 3000, 100_000] {
                let exact = count_radix_tree_nodes(keys(len, rate)) as f64;
                let estimate = radix_tree_nodes(keys(len, rate), len) as f64;
                assert!((estimate / exact - 1.0).abs() < 0.1, "{rate}: {estimate} of {exact}");
            }
        }
    }
}
