//! Reading new entries: XREAD and XREADGROUP, which may wait for them.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;

use bobbin_resp::{Aggregate, Protocol, Reply};
use bobbin_store::ValueType;
use bobbin_store::value::stream::StreamLog;
use bobbin_store::value::{Stream, StreamId};

use super::range::append_entry;
use super::{deliver, id};
use crate::engine::blocking::{self, Wait};
use crate::engine::command::data::Look;
use crate::engine::command::{Call, Data, Failure, Key, KeyUse, Outcome};
use crate::engine::execution::slices::{SLICE, SLICED_MIN, change_in_slices, reply_in_slices};

pub(super) fn xread(call: &mut Call<'_>) -> Outcome {
    read(call, false)
}

pub(super) fn xreadgroup(call: &mut Call<'_>) -> Outcome {
    read(call, true)
}

fn read(call: &mut Call<'_>, in_group: bool) -> Outcome {
    let numbers = NumberParsers {
        count: &|at| call.integer(at),
        deadline_ms: &|at| blocking::deadline_of_ms(call, at),
    };
    let options = ReadOptions::parse(call.args, in_group, &numbers)?;
    let group = options.group.map(|at| {
        let [group, consumer] = [at, at + 1].map(|at| call.args[at].into());
        GroupMember { group, consumer }
    });
    let from = options.from(call, group.as_ref())?;
    let read = StreamReading { count: options.count, noack: options.noack, group, from };
    let keys = call.keys(options.keys.clone())?;
    if call.may_leave_job {
        if let Some(member) = &read.group {
            let protocol = call.client.protocol;
            if let Some(mut drafts) = deliver::Drafts::of(&read, member, call.data, &keys, protocol)
            {
                if let Some(deadline_ms) = options.block
                    && call.may_block()
                {
                    drafts = drafts.or_wait(read, deadline_ms);
                }
                return change_in_slices(call, options.keys, drafts);
            }
        } else if let Some(mut slices) = Slices::of(&read, call.data, &keys) {
            reply_in_slices(call, move |reply| slices.step(reply));
            return Ok(());
        }
    }
    match options.block {
        Some(deadline_ms) => blocking::serve_or_block(call, read, options.keys, deadline_ms),
        None => {
            if !read.serve(call.data, &keys, &mut call.reply)? {
                call.reply.null_array();
            }
            Ok(())
        }
    }
}

struct ReadOptions {
    count: usize,
    /// Until when to wait. `None`: do not wait. `Some(None)`: without limit.
    block: Option<Option<i64>>,
    noack: bool,
    /// The argument that names the group. The consumer follows.
    group: Option<usize>,
    /// The arguments that are keys. As many IDs follow.
    keys: Range<usize>,
}

/// The consumer that reads.
#[derive(Clone)]
pub(super) struct GroupMember {
    pub group: Box<[u8]>,
    pub consumer: Box<[u8]>,
}

/// A read of several streams.
pub(super) struct StreamReading {
    /// The most entries of each stream.
    pub count: usize,
    pub noack: bool,
    group: Option<GroupMember>,
    /// For each stream.
    pub from: Vec<From>,
}

/// Which entries of a stream are wanted.
#[derive(Clone, Copy)]
pub(super) enum From {
    After(StreamId),
    /// `+`: the last entry.
    Last,
    /// `>`: entries that no consumer of the group has got yet.
    New,
}

/// How to parse the numbers among the options, by argument.
struct NumberParsers<'a> {
    count: &'a dyn Fn(usize) -> Result<i64, Failure>,
    deadline_ms: &'a dyn Fn(usize) -> Result<Option<i64>, Failure>,
}

pub(super) fn find_keys(args: &[&[u8]], found: &mut dyn FnMut(usize, KeyUse)) {
    find(args, false, found);
}

pub(super) fn find_keys_in_group(args: &[&[u8]], found: &mut dyn FnMut(usize, KeyUse)) {
    find(args, true, found);
}

/// The keys as the handler will see them. Numbers are not checked.
fn find(args: &[&[u8]], in_group: bool, found: &mut dyn FnMut(usize, KeyUse)) {
    let numbers = NumberParsers { count: &|_| Ok(0), deadline_ms: &|_| Ok(None) };
    if let Ok(options) = ReadOptions::parse(args, in_group, &numbers) {
        options.keys.for_each(|at| found(at, super::READ));
    }
}

impl ReadOptions {
    fn parse(args: &[&[u8]], in_group: bool, numbers: &NumberParsers<'_>) -> Result<Self, Failure> {
        let word_is = |at: usize, word: &str| args[at].eq_ignore_ascii_case(word.as_bytes());
        let mut options =
            Self { count: usize::MAX, block: None, noack: false, group: None, keys: 0..0 };
        let mut at = 1;
        while at < args.len() {
            let more = args.len() - at - 1;
            if more > 0 && word_is(at, "block") {
                options.block = Some((numbers.deadline_ms)(at + 1)?);
                at += 1;
            } else if more > 0 && word_is(at, "count") {
                let count = (numbers.count)(at + 1)?;
                options.count = if count <= 0 { usize::MAX } else { count as usize };
                at += 1;
            } else if more > 0 && word_is(at, "streams") {
                if !more.is_multiple_of(2) {
                    return Err(unbalanced(in_group));
                }
                options.keys = at + 1..at + 1 + more / 2;
                break;
            } else if more >= 2 && word_is(at, "group") {
                if !in_group {
                    return Err("ERR The GROUP option is only supported by XREADGROUP. You called XREAD instead.".into());
                }
                options.group = Some(at + 1);
                at += 2;
            } else if word_is(at, "noack") {
                if !in_group {
                    return Err("ERR The NOACK option is only supported by XREADGROUP. You called XREAD instead.".into());
                }
                options.noack = true;
            } else {
                return Err(Failure::SYNTAX);
            }
            at += 1;
        }
        if options.keys.is_empty() {
            return Err(Failure::SYNTAX);
        }
        if in_group && options.group.is_none() {
            return Err("ERR Missing GROUP option for XREADGROUP".into());
        }
        Ok(options)
    }

    /// What the IDs mean now, for each stream. All errors of a stream are found here.
    fn from(&self, call: &mut Call<'_>, group: Option<&GroupMember>) -> Result<Vec<From>, Failure> {
        let mut from = Vec::with_capacity(self.keys.len());
        for at in self.keys.clone() {
            let key = call.key(at)?;
            let text = call.args[at + self.keys.len()];
            // This counts as a read: a missing key is reported here, and again by XREAD when it
            // reads. XREAD counts it as a use as well; XREADGROUP will look twice.
            let look: Look = if group.is_some() { Data::look } else { Data::read };
            let stream = match look(call.data, key) {
                Some(entry) => Some(entry.collection::<Stream>().ok_or(Failure::WRONG_TYPE)?),
                None => None,
            };
            if let Some(member) = group
                && stream.is_none_or(|stream| stream.groups().get(&member.group).is_none())
            {
                return Err(no_group(key, &member.group));
            }
            let last_id = stream.map(|stream| stream.log().last_id);
            from.push(match (text, group.is_some()) {
                (b"$", false) => From::After(last_id.unwrap_or_default()),
                (b"+", false) => From::Last,
                (b">", true) => From::New,
                (b"$" | b"+", true) => return Err(meaningless(text)),
                (b">", false) => return Err("ERR The > ID can be specified only when calling XREADGROUP using the GROUP <group> <consumer> option.".into()),
                _ => match id::parse(text, 0)? {
                    StreamId::MAX if group.is_some() => From::New,
                    id => From::After(id),
                },
            });
        }
        Ok(from)
    }
}

impl GroupMember {
    /// Fails if a key has no stream with the group.
    fn check(&self, data: &mut Data, key: Key<'_>) -> Outcome {
        let group = stream_at(data, key)?.and_then(|stream| stream.groups().get(&self.group));
        group.map(|_| ()).ok_or_else(|| no_group(key, &self.group))
    }
}

impl From {
    /// The first ID that XREAD looks for. `None`: no entry can have it.
    fn first(self, log: &StreamLog) -> Option<StreamId> {
        let after = match self {
            Self::After(id) => Some(id),
            Self::Last | Self::New => log.last_id.previous(),
        };
        after.filter(|&id| id < log.last_id).and_then(StreamId::next)
    }
}

impl Wait for StreamReading {
    /// What one stream delivers cannot be taken back if another one has no group any more.
    fn check(&self, data: &mut Data, keys: &[(usize, Key<'_>)]) -> Outcome {
        match (&self.group, keys) {
            (Some(member), [_, _, ..]) => {
                keys.iter().try_for_each(|&(_, key)| member.check(data, key))
            }
            // The only stream is checked when it is read.
            _ => Ok(()),
        }
    }

    fn serve(
        &self,
        data: &mut Data,
        keys: &[(usize, Key<'_>)],
        reply: &mut Reply<'_>,
    ) -> Result<bool, Failure> {
        let header = reply.defer();
        let mut count = 0;
        for &(index, key) in keys {
            let from = self.from[index];
            let served = match &self.group {
                Some(member) => deliver::read(self, member, from, data, key, reply)?,
                None => self.read(from, data, key, reply)?,
            };
            count += usize::from(served);
        }
        if count == 0 {
            reply.cancel(header);
            return Ok(false);
        }
        // In RESP2 the reply is an array of pairs.
        let kind = match reply.protocol() {
            Protocol::Resp2 => Aggregate::Array,
            Protocol::Resp3 => Aggregate::Map,
        };
        reply.finish(header, kind, count);
        Ok(true)
    }

    fn value_type(&self) -> Option<ValueType> {
        Some(ValueType::Stream)
    }

    fn ends_when_gone(&self) -> bool {
        self.group.is_some()
    }
}

impl StreamReading {
    /// XREAD of one stream. Returns whether there was something.
    fn read(
        &self,
        from: From,
        data: &mut Data,
        key: Key<'_>,
        reply: &mut Reply<'_>,
    ) -> Result<bool, Failure> {
        let Some(stream) = data.read_as::<Stream>(key)? else { return Ok(false) };
        let log = stream.log();
        let Some(start) = from.first(log) else { return Ok(false) };
        let mut entries = log.range(start, StreamId::MAX).take(self.count).peekable();
        if entries.peek().is_none() {
            return Ok(false);
        }
        name(reply, key.bytes);
        let header = reply.defer();
        let mut count = 0;
        for entry in entries {
            append_entry(reply, &entry);
            count += 1;
        }
        reply.finish_array(header, count);
        Ok(true)
    }
}

/// A long reply of XREAD, from pinned streams.
struct Slices {
    /// The streams that have entries to show.
    streams: Vec<PinnedStream>,
    /// The index of the current stream.
    at: usize,
    begun: bool,
}

/// A stream in the reply: its entries are first counted, and then appended.
struct PinnedStream {
    pin: Arc<StreamPin>,
    first: StreamId,
    /// How many entries to show. `None`: unknown, but at most `total_max`.
    total: Option<usize>,
    total_max: usize,
    /// How many entries were counted or appended, and the first of the others.
    done: usize,
    next: StreamId,
}

/// A pinned stream and its key. A stream that is named several times is pinned once.
struct StreamPin {
    key: Box<[u8]>,
    stream: Stream,
}

impl Slices {
    /// `None`: there is so little to show that it can be done at once.
    fn of(read: &StreamReading, data: &mut Data, keys: &[(usize, Key<'_>)]) -> Option<Self> {
        // Most streams are short, or were read except for a few entries.
        let mut len = |key| stream_at(data, key).map_or(0, |found| found.map_or(0, Stream::len));
        if keys.iter().map(|&(_, key)| len(key)).sum::<usize>() <= SLICED_MIN {
            return None;
        }
        let (mut streams, mut total, mut pins) = (Vec::new(), 0, HashMap::new());
        for &(index, key) in keys {
            let Ok(Some(stream)) = stream_at(data, key) else { continue };
            let log = stream.log();
            let Some(first) = read.from[index].first(log) else { continue };
            // Once there are enough entries, only check whether there is any: a stream may be named
            // very often.
            let looks = read.count.min((SLICED_MIN + 1).saturating_sub(total).max(1));
            let some = log.range(first, StreamId::MAX).take(looks).count();
            let known = if some < looks || looks == read.count {
                Some(some)
            } else {
                (first <= log.first_id()).then(|| read.count.min(log.len()))
            };
            total += some;
            if some > 0 {
                let pin = pins.entry(key.bytes).or_insert_with(|| {
                    Arc::new(StreamPin { key: key.bytes.into(), stream: stream.clone() })
                });
                streams.push(PinnedStream {
                    pin: Arc::clone(pin),
                    first,
                    total: known,
                    total_max: read.count,
                    done: 0,
                    next: first,
                });
            }
        }
        if total <= SLICED_MIN {
            return None;
        }
        keys.iter().for_each(|&(_, key)| _ = data.read(key));
        Some(Self { streams, at: 0, begun: false })
    }

    /// Appends a slice. Returns whether there is more.
    fn step(&mut self, reply: &mut Reply<'_>) -> bool {
        if !std::mem::replace(&mut self.begun, true) {
            streams(reply, self.streams.len());
        }
        let Some(stream) = self.streams.get_mut(self.at) else { return false };
        if !stream.step(reply) {
            self.at += 1;
        }
        self.at < self.streams.len()
    }
}

impl PinnedStream {
    /// Counts or appends a slice. Returns whether there is more to do.
    fn step(&mut self, reply: &mut Reply<'_>) -> bool {
        let Some(total) = self.total else {
            self.count();
            return true;
        };
        if self.done == 0 {
            name(reply, &self.pin.key);
            reply.array(total);
        }
        let entries = self.pin.stream.log().range(self.next, StreamId::MAX);
        for entry in entries.take(SLICE.min(total - self.done)) {
            append_entry(reply, &entry);
            self.done += 1;
            self.next = entry.id.next().unwrap_or(entry.id);
        }
        self.done < total
    }

    fn count(&mut self) {
        let looks = COUNTED.min(self.total_max - self.done);
        let (mut some, mut last) = (0, None);
        for entry in self.pin.stream.log().range(self.next, StreamId::MAX).take(looks) {
            (some, last) = (some + 1, Some(entry.id));
        }
        self.done += some;
        match last.and_then(StreamId::next) {
            Some(next) if some == looks && self.done < self.total_max => self.next = next,
            _ => {
                self.total = Some(self.done);
                (self.done, self.next) = (0, self.first);
            }
        }
    }
}

/// How many entries are counted between two looks at the clock.
const COUNTED: usize = 1024;

/// The stream at a key. This does not count as a use of the key.
pub(super) fn stream_at<'d>(
    data: &'d mut Data,
    key: Key<'_>,
) -> Result<Option<&'d Stream>, Failure> {
    match data.peek(key) {
        Some(entry) => entry.collection().map(Some).ok_or(Failure::WRONG_TYPE),
        None => Ok(None),
    }
}

/// Begins a reply of `count` streams.
pub(super) fn streams(reply: &mut Reply<'_>, count: usize) {
    match reply.protocol() {
        Protocol::Resp2 => reply.array(count),
        Protocol::Resp3 => reply.map(count),
    }
}

/// Begins the part of the reply for one stream.
pub(super) fn name(reply: &mut Reply<'_>, key: &[u8]) {
    if reply.protocol() == Protocol::Resp2 {
        reply.array(2);
    }
    reply.bulk(key);
}

#[cold]
pub(super) fn no_group(key: Key<'_>, group: &[u8]) -> Failure {
    let (key, group) = (String::from_utf8_lossy(key.bytes), String::from_utf8_lossy(group));
    Failure::format(format!(
        "NOGROUP No such key '{key}' or consumer group '{group}' in XREADGROUP with GROUP option"
    ))
}

#[cold]
fn unbalanced(in_group: bool) -> Failure {
    let (name, symbol) = if in_group { ("xreadgroup", '>') } else { ("xread", '$') };
    Failure::format(format!(
        "ERR Unbalanced '{name}' list of streams: for each stream key an ID or '{symbol}' must be specified."
    ))
}

#[cold]
fn meaningless(id: &[u8]) -> Failure {
    let id = String::from_utf8_lossy(id);
    Failure::format(format!(
        "ERR The {id} ID is meaningless in the context of XREADGROUP: you want to read the history of this consumer \
         by specifying a proper ID, or use the > ID to get new messages. The {id} ID would just return an empty \
         result set."
    ))
}
