//! XREADGROUP: delivers entries to a group's consumer, at once or in slices.
//!
//! In slices, it works on pinned entries and on a draft of the group. In the end the draft replaces
//! the group, if no other client has used the group meanwhile. Entries that were added meanwhile
//! are delivered too.

use std::collections::HashMap;

use bobbin_resp::{Protocol, Reply};
use bobbin_store::value::StreamId;
use bobbin_store::value::stream::{ConsumerGroup, ConsumerNumber, StreamLog};

use super::draft::GroupDraft;
use super::propagate::{self, ClaimedEntry};
use super::range::append_entry;
use super::read::{From, GroupMember, StreamReading, name, no_group, stream_at, streams};
use super::{consumer, group, id};
use crate::engine::blocking::Wait;
use crate::engine::buffers::pieces::Pieces;
use crate::engine::command::{Data, Failure, Key, Outcome};
use crate::engine::execution::slices::{SLICE, SLICED_MIN, SlicedChange};

/// Reads one stream at once. Returns whether there was something, or might have been.
pub(super) fn read(
    read: &StreamReading,
    member: &GroupMember,
    from: From,
    data: &mut Data,
    key: Key<'_>,
    reply: &mut Reply<'_>,
) -> Result<bool, Failure> {
    let (now_ms, logs) = (data.conditions.now_ms, data.is_logged());
    let no_group = || no_group(key, &member.group);
    data.propagate_nothing();
    // The group was looked up before; this counts as another read.
    data.counters.hits += 1;
    let number = consumer::seen(data, key, &member.group, &member.consumer, no_group)?;
    let (log, group) = group::find(data, key, &member.group)?.ok_or_else(no_group)?;
    let mut delivery = Delivery::new(StreamWanted::of(read, from), number, now_ms);
    if !delivery.is_answered(log, group) {
        return Ok(false);
    }
    let first = group.last_id;
    name(reply, key.bytes);
    let header = reply.defer();
    while delivery.step(log, group, reply) {}
    reply.finish_array(header, delivery.count);
    let is_new = matches!(from, From::New);
    let claimed = if logs && is_new && !read.noack {
        claimed(first, log, group).collect()
    } else {
        Vec::new()
    };
    let (last_id, entries_read) = (group.last_id, group.entries_read);
    propagate::claimed(data, key, &member.group, claimed.into_iter());
    if is_new {
        propagate::position(data, key, &member.group, last_id, entries_read);
    }
    data.changed_inside(key);
    Ok(true)
}

/// What is wanted of one stream.
#[derive(Clone, Copy)]
struct StreamWanted {
    from: From,
    noack: bool,
    count_max: usize,
}

impl StreamWanted {
    const fn of(read: &StreamReading, from: From) -> Self {
        Self { from, noack: read.noack, count_max: read.count }
    }
}

/// The delivery from one stream, in progress.
struct Delivery {
    wanted: StreamWanted,
    number: ConsumerNumber,
    now_ms: i64,
    /// How many entries were delivered so far.
    count: usize,
    /// Where to continue in the consumer's history.
    next: Option<StreamId>,
}

impl Delivery {
    fn new(wanted: StreamWanted, number: ConsumerNumber, now_ms: i64) -> Self {
        let next = match wanted.from {
            From::After(id) => id.next(),
            From::New | From::Last => None,
        };
        Self { wanted, number, now_ms, count: 0, next }
    }

    /// Whether the reply includes the stream. A consumer's history is shown even if it is empty.
    fn is_answered(&self, log: &StreamLog, group: &ConsumerGroup) -> bool {
        matches!(self.wanted.from, From::After(_)) || self.count > 0 || has_new(log, group)
    }

    /// Appends about `SLICE` entries. Returns whether there may be more.
    fn step(&mut self, log: &StreamLog, group: &mut ConsumerGroup, reply: &mut Reply<'_>) -> bool {
        let slice = SLICE.min(self.left());
        let before = self.count;
        match self.wanted.from {
            From::After(_) => self.history(slice, log, group, reply),
            From::New | From::Last => self.deliver(slice, log, group, reply),
        }
        self.count - before == slice && self.left() > 0
    }

    const fn left(&self) -> usize {
        self.wanted.count_max - self.count
    }

    /// Delivers entries that no consumer has got yet.
    fn deliver(
        &mut self,
        slice: usize,
        log: &StreamLog,
        group: &mut ConsumerGroup,
        reply: &mut Reply<'_>,
    ) {
        let Some(start) = group.last_id.next() else { return };
        let first_id = log.first_id();
        let before = self.count;
        for entry in log.range(start, StreamId::MAX).take(slice) {
            let is_exact = group.last_id >= first_id && !log.has_gaps_from(group.last_id);
            group.entries_read = match group.entries_read {
                Some(read) if is_exact => Some(read.wrapping_add(1)),
                _ if log.entries_added > 0 => log.position(entry.id),
                unknown => unknown,
            };
            group.last_id = entry.id;
            append_entry(reply, &entry);
            if !self.wanted.noack {
                group.assign(entry.id, self.number, self.now_ms, 1);
            }
            self.count += 1;
        }
        if !self.wanted.noack
            && self.count > before
            && let Some(consumer) = group.consumer_mut(self.number)
        {
            consumer.active_ms = Some(self.now_ms);
        }
    }

    /// Delivers entries again that the consumer has not acknowledged. For deleted entries only the
    /// ID is shown.
    fn history(
        &mut self,
        slice: usize,
        log: &StreamLog,
        group: &mut ConsumerGroup,
        reply: &mut Reply<'_>,
    ) {
        let end = self.count + slice;
        while let Some(start) = self.next
            && self.count < end
            && let Some(pending) = group.pending_from(start, Some(self.number)).next()
        {
            let id = pending.id;
            match log.entry(id) {
                Some(entry) => {
                    append_entry(reply, &entry);
                    group.deliver_again(id, self.now_ms);
                }
                None => {
                    reply.array(2);
                    id::reply(reply, id);
                    reply.null_array();
                }
            }
            self.count += 1;
            self.next = id.next();
        }
    }
}

/// The claims to log for the entries behind `first`, all of which were delivered.
fn claimed<'a>(
    first: StreamId,
    log: &'a StreamLog,
    group: &'a ConsumerGroup,
) -> impl Iterator<Item = ClaimedEntry> {
    let entries = first.next().map(|start| log.range(start, group.last_id));
    entries.into_iter().flatten().filter_map(|entry| {
        // As if the group had reached each of them in turn.
        ClaimedEntry::of(group, entry.id).map(|claimed| claimed.with_last(entry.id))
    })
}

/// Whether there are entries that no consumer has got yet.
fn has_new(log: &StreamLog, group: &ConsumerGroup) -> bool {
    new_entries(log, group, 1) > 0
}

/// How many entries no consumer has got yet, at most `most`.
fn new_entries(log: &StreamLog, group: &ConsumerGroup, most: usize) -> usize {
    let start = group.last_id.next();
    start.map_or(0, |start| log.range(start, StreamId::MAX).take(most).count())
}

/// A long read of several streams.
pub(super) struct Drafts {
    member: GroupMember,
    drafts: Vec<StreamDraft>,
    parts: Vec<StreamPart>,
    /// The first part that is not complete.
    at: usize,
    noack: bool,
    protocol: Protocol,
    /// The reply behind its header, once it is complete.
    rest: Pieces,
    /// The length of the reply so far in bytes.
    bytes: usize,
    /// What to wait for, and until when, if other consumers get all entries first.
    waits: Option<(StreamReading, Option<i64>)>,
}

/// One of the streams, with a draft of the group.
struct StreamDraft {
    draft: GroupDraft,
    number: ConsumerNumber,
    /// The group's last ID at the beginning.
    first: StreamId,
    /// The consumer is new to the group.
    is_new: bool,
}

/// A stream as the command names it. A stream that is named again is read again, from where the
/// group is then.
struct StreamPart {
    /// The index of its draft.
    draft: usize,
    delivery: Delivery,
    is_done: bool,
    pieces: Pieces,
}

impl Drafts {
    /// `None`: there is so little to deliver that it can be done at once.
    pub(super) fn of(
        read: &StreamReading,
        member: &GroupMember,
        data: &mut Data,
        keys: &[(usize, Key<'_>)],
        protocol: Protocol,
    ) -> Option<Self> {
        let mut work = 0;
        for &(index, key) in keys {
            let stream = stream_at(data, key).ok().flatten()?;
            let group = stream.groups().get(&member.group)?;
            work += match read.from[index] {
                From::After(_) => {
                    let consumer = group.consumer_number(&member.consumer);
                    let consumer = consumer.and_then(|number| group.consumer(number));
                    consumer.map_or(0, |consumer| consumer.pending().len().min(read.count))
                }
                // Most streams are short, or were read except for a few entries.
                From::New | From::Last if stream.len() * keys.len() <= SLICED_MIN => 0,
                From::New | From::Last => {
                    new_entries(stream.log(), group, read.count.min(SLICED_MIN + 1))
                }
            };
            if work > SLICED_MIN {
                break;
            }
        }
        if work <= SLICED_MIN {
            return None;
        }
        data.counters.hits += keys.len() as u64;
        let now_ms = data.conditions.now_ms;
        let (mut drafts, mut parts, mut known) = (Vec::new(), Vec::new(), HashMap::new());
        for &(index, key) in keys {
            let draft = match known.get(key.bytes) {
                Some(&draft) => draft,
                None => {
                    let stream = stream_at(data, key).ok().flatten()?;
                    let draft = GroupDraft::new(key.bytes, &member.group, stream)?;
                    drafts.push(StreamDraft::new(draft, &member.consumer, now_ms));
                    known.insert(key.bytes, drafts.len() - 1);
                    drafts.len() - 1
                }
            };
            let wanted = StreamWanted::of(read, read.from[index]);
            parts.push(StreamPart::new(draft, wanted, drafts[draft].number, now_ms));
        }
        let (member, rest, noack) = (member.clone(), Pieces::default(), read.noack);
        Some(Self { member, drafts, parts, at: 0, noack, protocol, rest, bytes: 0, waits: None })
    }

    /// Waits for more entries until the deadline (Unix ms), if other consumers get all that exist
    /// now.
    pub(super) fn or_wait(mut self, read: StreamReading, deadline_ms: Option<i64>) -> Self {
        self.waits = Some((read, deadline_ms));
        self
    }
}

impl StreamDraft {
    /// Begins to read a group in its current state.
    fn new(mut draft: GroupDraft, consumer: &[u8], now_ms: i64) -> Self {
        let first = draft.group.last_id;
        let (number, is_new) = consumer::seen_in(&mut draft.group, consumer, now_ms);
        Self { draft, number, first, is_new }
    }

    /// Starts over, because the group was changed.
    fn begin(&mut self, consumer: &[u8], now_ms: i64) {
        self.first = self.draft.group.last_id;
        (self.number, self.is_new) = consumer::seen_in(&mut self.draft.group, consumer, now_ms);
    }
}

impl StreamPart {
    fn new(draft: usize, wanted: StreamWanted, number: ConsumerNumber, now_ms: i64) -> Self {
        let delivery = Delivery::new(wanted, number, now_ms);
        Self { draft, delivery, is_done: false, pieces: Pieces::default() }
    }

    /// How many entries were added, at most `most`.
    fn behind(&self, draft: &StreamDraft, most: usize) -> usize {
        match self.delivery.wanted.from {
            From::After(_) => 0,
            From::New | From::Last => {
                let GroupDraft { pinned, group, .. } = &draft.draft;
                new_entries(pinned.log(), group, most.min(self.delivery.left()))
            }
        }
    }
}

impl SlicedChange for Drafts {
    fn step(&mut self, _: &mut Data) -> bool {
        while self.parts.get(self.at).is_some_and(|part| part.is_done) {
            self.at += 1;
        }
        let Some(part) = self.parts.get_mut(self.at) else { return false };
        let draft = &mut self.drafts[part.draft].draft;
        let mut reply = Reply::new(part.pieces.open(), self.protocol);
        let before = reply.output().len();
        part.is_done = !part.delivery.step(draft.pinned.log(), &mut draft.group, &mut reply);
        self.bytes += reply.output().len() - before;
        true
    }

    fn is_current(&mut self, data: &mut Data) -> Result<bool, Failure> {
        let (mut current, now_ms) = (true, data.conditions.now_ms);
        let mut anew = vec![false; self.drafts.len()];
        for (draft, anew) in self.drafts.iter_mut().zip(&mut anew) {
            let is_current = draft.draft.is_current(data)?;
            let no_group = || no_group(data.key(&draft.draft.key), &self.member.group);
            if !is_current.ok_or_else(no_group)? {
                draft.begin(&self.member.consumer, now_ms);
                (*anew, current) = (true, false);
            }
        }
        let mut most = SLICED_MIN + 1;
        for part in &mut self.parts {
            let draft = &self.drafts[part.draft];
            if anew[part.draft] {
                self.bytes -= part.pieces.byte_len();
                *part = StreamPart::new(part.draft, part.delivery.wanted, draft.number, now_ms);
                continue;
            }
            // A stream may be named very often, so count only as many as matter.
            let behind = part.behind(draft, most);
            part.is_done &= behind == 0;
            most = most.saturating_sub(behind).max(1);
            current &= behind <= SLICED_MIN && most > 1;
        }
        self.at = 0;
        Ok(current)
    }

    fn finish(&mut self, data: &mut Data, _: &[&[u8]], reply: &mut Reply<'_>) -> Outcome {
        // Read what was added while nothing was locked.
        while self.step(data) {}
        data.propagate_nothing();
        let (mut answered, group_name) = (0, &self.member.group);
        let (mut is_answered, mut takes_new) =
            (vec![false; self.drafts.len()], vec![false; self.drafts.len()]);
        for part in std::mem::take(&mut self.parts) {
            let draft = &self.drafts[part.draft].draft;
            if !part.delivery.is_answered(draft.pinned.log(), &draft.group) {
                continue;
            }
            is_answered[part.draft] = true;
            takes_new[part.draft] |= matches!(part.delivery.wanted.from, From::New);
            answered += 1;
            let mut header = Reply::new(self.rest.open(), self.protocol);
            name(&mut header, &draft.key);
            header.array(part.delivery.count);
            self.rest.append(part.pieces);
        }
        for (at, reading) in self.drafts.iter_mut().enumerate() {
            let draft = &mut reading.draft;
            let name = draft.key.clone();
            let key = data.key(&name);
            if reading.is_new {
                consumer::created(data, key, group_name, &self.member.consumer);
            }
            if takes_new[at] {
                if data.is_logged() && !self.noack {
                    let claimed = claimed(reading.first, draft.pinned.log(), &draft.group);
                    propagate::claimed(data, key, group_name, claimed);
                }
                let (last_id, read) = (draft.group.last_id, draft.group.entries_read);
                propagate::position(data, key, group_name, last_id, read);
            }
            if is_answered[at] {
                data.changed_inside(key);
            }
            draft.put(data, key)?;
        }
        match answered {
            0 if self.waits.is_some() => {}
            0 => reply.null_array(),
            _ => {
                self.waits = None;
                streams(reply, answered);
            }
        }
        Ok(())
    }

    fn waits(&mut self) -> Option<(Box<dyn Wait>, Option<i64>)> {
        let (read, deadline_ms) = self.waits.take()?;
        Some((Box::new(read), deadline_ms))
    }

    fn rest(&mut self) -> Option<Pieces> {
        Some(std::mem::take(&mut self.rest))
    }

    fn rest_bytes(&self) -> usize {
        self.bytes
    }
}
