//! XREADGROUP: what a consumer of a group gets, at once or, where that is much, in slices.
//!
//! In slices it is worked out on pinned entries and on a draft of the group, which takes the group's place in the
//! end if nobody else has used the group meanwhile. Entries that were added meanwhile belong to the answer.

use bobbin_resp::{Protocol, Reply};
use bobbin_store::value::stream::{ConsumerNumber, Group, Log};
use bobbin_store::value::{Collection, Stream, StreamId};
use bobbin_store::{NewValue, OwnedEntry};

use super::propagate::{self, Claimed};
use super::range::append_entry;
use super::read::{From, Member, Read, name, no_group, stream_at, streams};
use super::{consumer, group, id};
use crate::blocking::Wait;
use crate::command::slices::{Change, Pieces, SLICE, SLICED_MIN};
use crate::command::{Data, Failure, Key, Outcome};

/// Reads one stream at once; whether there was something, or might have been.
pub(super) fn read(
    read: &Read,
    member: &Member,
    from: From,
    data: &mut Data,
    key: Key<'_>,
    reply: &mut Reply<'_>,
) -> Result<bool, Failure> {
    let (now_ms, logs) = (data.now_ms, data.is_logged());
    let no_group = || no_group(key, &member.group);
    data.propagate_nothing();
    let number = consumer::seen(data, key, &member.group, &member.consumer, no_group)?;
    let (log, group) = group::find(data, key, &member.group)?.ok_or_else(no_group)?;
    let mut delivery = Delivery::new(Wanted::of(read, from), number, now_ms);
    if !delivery.is_answered(log, group) {
        return Ok(false);
    }
    let first = group.last_id;
    name(reply, key.bytes);
    let header = reply.defer();
    while delivery.step(log, group, reply) {}
    reply.finish_array(header, delivery.count);
    let claimed = if logs { delivery.claimed(first, log, group).collect() } else { Vec::new() };
    let (last_id, entries_read) = (group.last_id, group.entries_read);
    claimed.iter().for_each(|claimed| claimed.propagate(data, key, &member.group));
    if matches!(from, From::New) {
        propagate::position(data, key, &member.group, last_id, entries_read);
    }
    data.changed_inside(key);
    Ok(true)
}

/// What is wanted of one stream.
#[derive(Clone, Copy)]
struct Wanted {
    from: From,
    noack: bool,
    count_max: usize,
}

impl Wanted {
    const fn of(read: &Read, from: From) -> Self {
        Self { from, noack: read.noack, count_max: read.count }
    }
}

/// What a consumer gets of one stream, at work.
struct Delivery {
    wanted: Wanted,
    number: ConsumerNumber,
    now_ms: i64,
    /// Entries so far.
    count: usize,
    /// Of its history, where to go on.
    next: Option<StreamId>,
}

impl Delivery {
    fn new(wanted: Wanted, number: ConsumerNumber, now_ms: i64) -> Self {
        let next = match wanted.from {
            From::After(id) => id.next(),
            From::New | From::Last => None,
        };
        Self { wanted, number, now_ms, count: 0, next }
    }

    /// Whether the stream is in the answer: of its history a consumer is told even if it has none.
    fn is_answered(&self, log: &Log, group: &Group) -> bool {
        matches!(self.wanted.from, From::After(_)) || self.count > 0 || has_new(log, group)
    }

    /// Appends some `SLICE` entries; whether there may be more.
    fn step(&mut self, log: &Log, group: &mut Group, reply: &mut Reply<'_>) -> bool {
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

    /// Gives the consumer entries that nobody has got yet.
    fn deliver(&mut self, slice: usize, log: &Log, group: &mut Group, reply: &mut Reply<'_>) {
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

    /// Gives the consumer again what it has got and not acknowledged. Of entries that are deleted there is only the
    /// ID.
    fn history(&mut self, slice: usize, log: &Log, group: &mut Group, reply: &mut Reply<'_>) {
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

    /// What the log is to hold of the entries behind `first`, all of which are delivered.
    fn claimed<'a>(
        &self,
        first: StreamId,
        log: &'a Log,
        group: &'a Group,
    ) -> impl Iterator<Item = Claimed> + use<'a> {
        let is_new = matches!(self.wanted.from, From::New) && !self.wanted.noack;
        let start = first.next().filter(|_| is_new);
        let entries = start.map(|start| log.range(start, group.last_id));
        entries.into_iter().flatten().filter_map(|entry| {
            // As if the group had come to each of them in turn.
            Claimed::of(group, entry.id).map(|claimed| claimed.with_last(entry.id))
        })
    }
}

/// Whether there are entries that nobody has got yet.
fn has_new(log: &Log, group: &Group) -> bool {
    new_entries(log, group, 1) > 0
}

/// How many entries nobody has got yet, if fewer than `most`.
fn new_entries(log: &Log, group: &Group, most: usize) -> usize {
    let start = group.last_id.next();
    start.map_or(0, |start| log.range(start, StreamId::MAX).take(most).count())
}

/// A long reading of some streams.
pub(super) struct Drafts {
    member: Member,
    parts: Vec<Part>,
    protocol: Protocol,
    /// The answer behind its header, once it is complete.
    rest: Pieces,
    /// What to wait for, and until when, should others get all of it.
    waits: Option<(Read, Option<i64>)>,
}

/// One of the streams.
struct Part {
    key: Box<[u8]>,
    /// The entries, and the group as it was.
    pinned: Stream,
    draft: Group,
    /// Where the group was.
    first: StreamId,
    /// Who reads is new to the group.
    is_new: bool,
    delivery: Delivery,
    is_done: bool,
    pieces: Pieces,
}

impl Drafts {
    /// If there is so much to answer that it is not to be done at once.
    pub(super) fn of(
        read: &Read,
        member: &Member,
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
                // Most streams are short, or have been read but for a few entries.
                From::New | From::Last if stream.len() * keys.len() <= SLICED_MIN => 0,
                From::New | From::Last => {
                    new_entries(stream.log(), group, read.count.min(SLICED_MIN + 1))
                }
            };
        }
        let mut names: Vec<_> = keys.iter().map(|(_, key)| key.bytes).collect();
        names.sort_unstable();
        names.dedup();
        if work <= SLICED_MIN || names.len() < keys.len() {
            return None;
        }
        let now_ms = data.now_ms;
        let parts = keys.iter().map(|&(index, key)| {
            let stream = stream_at(data, key).ok().flatten()?.clone();
            Part::new(key.bytes.into(), stream, member, Wanted::of(read, read.from[index]), now_ms)
        });
        let parts = parts.collect::<Option<_>>()?;
        let (member, rest) = (member.clone(), Pieces::default());
        Some(Self { member, parts, protocol, rest, waits: None })
    }

    /// Waits for more, at most until the deadline (Unix ms), should others get all that is there now.
    pub(super) fn or_wait(mut self, read: Read, deadline_ms: Option<i64>) -> Self {
        self.waits = Some((read, deadline_ms));
        self
    }
}

impl Part {
    /// `None`: the stream has no such group.
    fn new(
        key: Box<[u8]>,
        pinned: Stream,
        member: &Member,
        wanted: Wanted,
        now_ms: i64,
    ) -> Option<Self> {
        let mut draft = pinned.groups().get(&member.group)?.clone();
        let known = draft.consumer_number(&member.consumer);
        let number = known.unwrap_or_else(|| draft.add_consumer(&member.consumer, now_ms));
        if let Some(consumer) = draft.consumer_mut(number) {
            consumer.seen_ms = now_ms;
        }
        Some(Self {
            key,
            pinned,
            first: draft.last_id,
            draft,
            is_new: known.is_none(),
            delivery: Delivery::new(wanted, number, now_ms),
            is_done: false,
            pieces: Pieces::default(),
        })
    }

    /// Whether `now` differs from what was pinned by further entries at most.
    fn is_valid(&self, now: &Stream, member: &Member) -> bool {
        now.groups().is_same(self.pinned.groups(), &member.group)
            && now.log().only_grew(self.pinned.log())
    }

    /// How many entries were added, if fewer than `most`.
    fn behind(&self, most: usize) -> usize {
        match self.delivery.wanted.from {
            From::After(_) => 0,
            From::New | From::Last => {
                new_entries(self.pinned.log(), &self.draft, most.min(self.delivery.left()))
            }
        }
    }
}

impl Change for Drafts {
    fn step(&mut self, _: &mut Data) -> bool {
        let Some(part) = self.parts.iter_mut().find(|part| !part.is_done) else { return false };
        let mut reply = Reply::new(part.pieces.open(), self.protocol);
        part.is_done = !part.delivery.step(part.pinned.log(), &mut part.draft, &mut reply);
        true
    }

    fn is_current(&mut self, data: &mut Data) -> Result<bool, Failure> {
        let (mut current, now_ms) = (true, data.now_ms);
        for part in &mut self.parts {
            let key = data.key(&part.key);
            let no_group = || no_group(key, &self.member.group);
            let now = stream_at(data, key)?.ok_or_else(no_group)?.clone();
            if part.is_valid(&now, &self.member) {
                part.pinned = now;
                let behind = part.behind(SLICED_MIN + 1);
                part.is_done &= behind == 0;
                current &= behind <= SLICED_MIN;
            } else {
                let (key, wanted) = (part.key.clone(), part.delivery.wanted);
                let anew = Part::new(key, now, &self.member, wanted, now_ms);
                *part =
                    anew.ok_or_else(|| self::no_group(data.key(&part.key), &self.member.group))?;
                current = false;
            }
        }
        Ok(current)
    }

    fn finish(&mut self, data: &mut Data, reply: &mut Reply<'_>) -> Outcome {
        // What was added while nothing was held.
        while self.step(data) {}
        data.propagate_nothing();
        let (mut answered, group_name) = (0, &self.member.group);
        for part in std::mem::take(&mut self.parts) {
            let (key, log) = (data.key(&part.key), part.pinned.log());
            if part.is_new {
                consumer::created(data, key, group_name, &self.member.consumer);
            }
            if part.delivery.is_answered(log, &part.draft) {
                if data.is_logged() {
                    let claimed = part.delivery.claimed(part.first, log, &part.draft);
                    claimed.for_each(|claimed| claimed.propagate(data, key, group_name));
                }
                if matches!(part.delivery.wanted.from, From::New) {
                    let (last_id, read) = (part.draft.last_id, part.draft.entries_read);
                    propagate::position(data, key, group_name, last_id, read);
                }
                data.changed_inside(key);
                answered += 1;
                let mut header = Reply::new(self.rest.open(), self.protocol);
                name(&mut header, &part.key);
                header.array(part.delivery.count);
                self.rest.append(part.pieces);
            }
            if let Some(stream) = data.write_as::<Stream>(key)? {
                stream.groups_mut().replace(group_name, part.draft);
            }
            let old = NewValue::Collection(part.pinned.into_any());
            data.discard(OwnedEntry::new(&[], old, None, 0));
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
}
