//! Long commands in slices, so that other clients do not wait for them.
//!
//! A large collection is *pinned*: cloning it takes microseconds and shares its chunks. The command
//! then works on the pinned value without locks, one slice a turn. Its client waits; all others are
//! served. A client that changes the key meanwhile copies the chunks that it changes. Scripts and
//! transactions do such work in slices too, but keep their shards reserved meanwhile.
//!
//! A read makes its reply in slices ([`reply_in_slices`]). A change ([`change_in_slices`]) is
//! computed in slices. Then it locks the shards of its keys and is made if the keys still have the
//! values that were pinned.

use bobbin_resp::{Aggregate, Protocol, Reply};
use bobbin_store::value::Drafted;
use bobbin_store::{NewValue, OwnedEntry};

use super::admission::check_finish;
use crate::base::clock::ticks;
use crate::engine::blocking::{Wait, Waiting};
use crate::engine::buffers::output::Arena;
use crate::engine::buffers::pieces::{PIECE, Pieces, move_to};
use crate::engine::client::Client;
use crate::engine::command::job::{Job, Slice};
use crate::engine::command::plan::ShardSet;
use crate::engine::command::{Call, Data, Failure, Key, Outcome, Registered, counting};
use crate::engine::row::words::Words;
use crate::engine::server::Server;
use crate::engine::telemetry::stats::WorkerStats;

/// Replies of more elements than this are made in slices.
pub const SLICED_MIN: usize = 4096;
/// Elements that are processed between two looks at the time.
pub const SLICE: usize = 64;

/// Whether a search ends within [`SOON_US`]. Most searches end soon, and to make jobs of them would
/// take longer. `step` returns whether there is more to do.
pub fn ends_soon(server: &Server, mut step: impl FnMut() -> bool) -> bool {
    let late_at = ticks() + server.clock.ticks(SOON_US);
    while step() {
        if ticks() >= late_at {
            return false;
        }
    }
    true
}

/// How long a search may take before the rest of it becomes a job, in microseconds. A job alone
/// takes as long.
const SOON_US: u64 = 20;

/// Whether a command has many words, so that it must work in slices and leave the keys to other
/// clients in between.
pub fn has_many_words(call: &Call<'_>) -> bool {
    call.args.len() > SLICED_MIN && call.may_leave_job && !call.in_transaction
}

/// Answers an integer. If the work is long and does not end soon, the rest of it is done in slices.
/// `step` works on, and returns the answer once it is known.
pub fn integer_in_slices(
    call: &mut Call<'_>,
    is_long: bool,
    mut step: impl FnMut() -> Option<i64> + Send + 'static,
) {
    let mut answer = None;
    let mut goes_on = || {
        answer = step();
        answer.is_none()
    };
    if !is_long || !call.may_leave_job {
        while goes_on() {}
    } else if !ends_soon(call.server, goes_on) {
        reply_in_slices(call, move |reply| {
            let answer = step();
            answer.into_iter().for_each(|answer| reply.integer(answer));
            answer.is_none()
        });
        return;
    }
    answer.into_iter().for_each(|answer| call.reply.integer(answer));
}

/// Makes a reply in slices. Each call of `step` appends about `SLICE` elements and returns whether
/// there are more.
pub fn reply_in_slices(
    call: &mut Call<'_>,
    mut step: impl FnMut(&mut Reply<'_>) -> bool + Send + 'static,
) {
    if !call.may_leave_job {
        while step(&mut call.reply) {}
        return;
    }
    let step = move |reply: &mut Reply<'_>, (): &mut ()| step(reply);
    let job = ReplyInSlices::new(step, (), None, call);
    call.leave_job(job);
}

/// Answers an array in slices: `some` gets the words from `first` on, some at a time, and appends a
/// short reply for each of them.
pub fn each_word_in_slices(
    call: &mut Call<'_>,
    first: usize,
    mut some: impl FnMut(&[&[u8]], &mut Reply<'_>) + Send + 'static,
) {
    let words = call.kept_words();
    let mut next = first;
    reply_in_slices(call, move |reply| {
        if next == first {
            reply.array(words.count() - first);
        }
        let end = words.count().min(next + SLICE);
        some(&words.some(next..end), reply);
        next = end;
        next < words.count()
    });
}

/// Answers `count` elements, each of which is drawn anew. The client may ask for any number of
/// them, even from a small value, so an answer of more than [`REPEATED_BYTES_MAX`] becomes an
/// error. `one` appends an element.
pub fn repeat_in_slices(
    call: &mut Call<'_>,
    count: usize,
    mut begin: impl FnMut(&mut Reply<'_>) + Send + 'static,
    mut one: impl FnMut(&mut Reply<'_>) + Send + 'static,
) -> Outcome {
    if count > REPEATED_BYTES_MAX / ELEMENT_LEN_MIN {
        return Err(Failure::new(&TOO_LONG));
    }
    let mut done = 0;
    let mut step = move |reply: &mut Reply<'_>| {
        if done == 0 {
            begin(reply);
        }
        let (start, end) = (reply.output().len(), count.min(done + SLICE));
        // Even a few elements may be long.
        while done < end && reply.output().len() - start < PIECE {
            one(reply);
            done += 1;
        }
        done < count
    };
    let mut begun = Arena::default();
    if !call.may_leave_job || count <= SLICED_MIN {
        let start = call.reply.output().len();
        while step(&mut call.reply) {
            let bytes = call.reply.len_since(start);
            let is_over_limit = bytes > call.client.reply_bytes_max;
            if is_over_limit || bytes > REPEATED_BYTES_MAX {
                call.reply.truncate(start);
                // If a script called the command, only the error is reported.
                if is_over_limit && call.client.caller == 0 {
                    call.client.set_overflowed(true);
                }
                return Err(Failure::new(&TOO_LONG));
            }
            if bytes > PIECE && call.may_leave_job {
                // A few elements are long already: the rest of the reply is made in slices.
                (begun.bytes, begun.parts) = call.reply.take_since(start);
                break;
            }
        }
        if begun.bytes.is_empty() {
            return Ok(());
        }
    }
    let step = move |reply: &mut Reply<'_>, (): &mut ()| step(reply);
    let mut job = ReplyInSlices::new(step, (), None, call);
    job.bytes_max = REPEATED_BYTES_MAX;
    job.pieces = Pieces::new(Vec::new(), begun);
    call.leave_job(job);
    Ok(())
}

/// Answers an aggregate in slices. Its length is known only at the end: `step` adds the number of
/// elements that it appends to the count.
pub fn elements_in_slices(
    call: &mut Call<'_>,
    kind: Aggregate,
    mut step: impl FnMut(&mut Reply<'_>, &mut usize) -> bool + Send + 'static,
) {
    if !call.may_leave_job {
        let (header, mut count) = (call.reply.defer(), 0);
        while step(&mut call.reply, &mut count) {}
        call.reply.finish(header, kind, count);
        return;
    }
    let step = move |reply: &mut Reply<'_>, (_, count): &mut (Aggregate, usize)| step(reply, count);
    let header = |reply: &mut Reply<'_>, &(kind, count): &(Aggregate, usize)| {
        let header = reply.defer();
        reply.finish(header, kind, count);
    };
    let job = ReplyInSlices::new(step, (kind, 0), Some(header), call);
    call.leave_job(job);
}

/// Answers in slices a reply whose header is known only at the end. `step` keeps in `state` what
/// `header` needs.
pub fn reply_behind_header<S: Send + 'static>(
    call: &mut Call<'_>,
    mut state: S,
    header: fn(&mut Reply<'_>, &S),
    mut step: impl FnMut(&mut Reply<'_>, &mut S) -> bool + Send + 'static,
) {
    if !call.may_leave_job {
        let mut bytes = Vec::new();
        while step(&mut Reply::new(&mut bytes, call.client.protocol), &mut state) {}
        header(&mut call.reply, &state);
        call.reply.raw(&bytes);
        return;
    }
    let job = ReplyInSlices::new(step, state, Some(header), call);
    call.leave_job(job);
}

/// A change that is computed on pinned values, and made with the shards of its keys held.
pub trait SlicedChange: Send + 'static {
    /// Works on for about `SLICE` elements, and returns whether there is more. It may hold shards
    /// meanwhile.
    fn step(&mut self, data: &mut Data) -> bool;

    /// Whether another thread computes the change, so that the worker need not spin for it.
    fn is_elsewhere(&self) -> bool {
        false
    }

    /// Whether the change depends on more than its keys, so that `finish` needs all shards.
    fn needs_everything(&self) -> bool {
        false
    }

    /// Whether the keys still have the pinned values. If not, the work begins anew with the current
    /// values.
    fn is_current(&mut self, data: &mut Data) -> Result<bool, Failure>;

    /// Makes the change and appends the reply. The work is complete and the keys have the pinned
    /// values. `args` are the command's words.
    fn finish(&mut self, data: &mut Data, args: &[&[u8]], reply: &mut Reply<'_>) -> Outcome;

    /// Cleans up when the client has gone.
    fn abandon(&mut self, _: &mut Data) {}

    /// If `finish` found nothing to do and appended nothing: what the client must wait for, and
    /// until when (Unix ms).
    fn waits(&mut self) -> Option<(Box<dyn Wait>, Option<i64>)> {
        None
    }

    /// The rest of the reply behind what `finish` appended, if it was made before.
    fn rest(&mut self) -> Option<Pieces> {
        None
    }

    /// Bytes of that rest so far.
    fn rest_bytes(&self) -> usize {
        0
    }
}

/// Makes a large change to the keys at these arguments. It computes the change in slices without
/// locks, and then makes it with the keys' shards held. If the values were changed meanwhile, it
/// begins anew. After some attempts it does everything at once with the shards held. Within a
/// script or a transaction, no other client can change the keys.
pub fn change_in_slices(
    call: &mut Call<'_>,
    keys: impl Iterator<Item = usize>,
    mut change: impl SlicedChange,
) -> Outcome {
    if !call.may_leave_job {
        while change.step(call.data) {}
        change.finish(call.data, call.args, &mut call.reply)?;
        if let Some(mut rest) = change.rest() {
            rest.take(Vec::new()).iter().for_each(|piece| call.reply.raw(piece));
            rest.append_rest(&mut call.reply);
        }
        return Ok(());
    }
    let keys = call.keys(keys)?.into_iter().map(|(_, key)| key.bytes.into()).collect();
    let job = Changing {
        change,
        keys,
        command: call.command,
        words: call.kept_words(),
        in_unit: call.in_transaction,
        attempts: 0,
        bytes: Vec::new(),
        protocol: call.client.protocol,
        rest: None,
        failed: false,
        is_parked: false,
    };
    call.leave_job(job);
    Ok(())
}

/// A large value that a change works on: the pinned value, and a clone that is changed.
pub struct Draft<T> {
    key: Box<[u8]>,
    pinned: T,
    pub value: T,
}

impl<T: Drafted + 'static> Draft<T> {
    pub fn new(key: &[u8], value: &T) -> Self {
        Self { key: key.into(), pinned: value.clone(), value: value.clone() }
    }

    /// The draft's key.
    pub fn key(&self) -> &[u8] {
        &self.key
    }

    /// Whether the key still has the pinned value. If not, the draft begins anew with the current
    /// value.
    pub fn is_current(&mut self, data: &mut Data) -> Result<bool, Failure> {
        let now = match data.peek(data.key(&self.key)) {
            Some(entry) => entry.collection::<T>().ok_or(Failure::WRONG_TYPE)?.clone(),
            None => T::default(),
        };
        let same = now.is_same(&self.pinned);
        if !same {
            (self.pinned, self.value) = (now.clone(), now);
        }
        Ok(same)
    }

    /// Replaces the key's value with the draft, and returns the key.
    pub fn put<'k>(&'k mut self, data: &mut Data) -> Result<Key<'k>, Failure> {
        let key = data.key(&self.key);
        if let Some(value) = data.write_as::<T>(key)? {
            *value = std::mem::take(&mut self.value);
        }
        // The old value may have many chunks to free, which waits until no lock is held.
        let old = NewValue::Collection(std::mem::take(&mut self.pinned).into_any());
        data.discard(OwnedEntry::new(&[], old, None, 0));
        Ok(key)
    }
}

struct Changing<C> {
    change: C,
    keys: Vec<Box<[u8]>>,
    command: &'static Registered,
    words: Words,
    /// Whether a script or a transaction runs the command.
    in_unit: bool,
    attempts: u32,
    bytes: Vec<u8>,
    protocol: Protocol,
    /// The rest of the reply, once the change is made.
    rest: Option<Pieces>,
    /// Whether the reply is an error.
    failed: bool,
    /// Whether a pause or reserved shards hold the change up.
    is_parked: bool,
}

/// The number of attempts. In the last one, no other client can change the values.
const ATTEMPTS_MAX: u32 = 3;

impl<C: SlicedChange> Changing<C> {
    /// Locks what the change needs, checks again whether it may be made, and makes it as a unit.
    /// Returns whether the command is done.
    fn make_alone(&mut self, slice: &mut Slice<'_>) -> bool {
        let Slice { server, data, client, .. } = slice;
        data.conditions.waited = false;
        let mut shards = ShardSet::default();
        self.keys.iter().for_each(|key| shards.add_key(data.key(key)));
        if self.change.needs_everything() {
            shards.add_everything();
        }
        if !shards.hold(data) {
            // A paused script or transaction has one of the shards reserved: each turn tries again.
            self.is_parked = true;
            return false;
        }
        if data.conditions.waited {
            data.refresh_time(server);
        }
        self.is_parked = false;
        let done = match check_finish(server, data, client, self.command, &self.words.all()) {
            Ok(()) => self.make(server, data, slice.stats, client),
            Err(Failure::Postponed) => {
                self.is_parked = true;
                data.release();
                return false;
            }
            Err(failure) => {
                self.change.abandon(data);
                self.fail(server, slice.stats, client, &failure);
                true
            }
        };
        if done
            && !self.failed
            && let Some((wait, deadline_ms)) = self.change.waits()
        {
            let keys: Vec<_> = self.keys.iter().map(|key| data.key(key)).enumerate().collect();
            let args = self.words.all().into_iter().map(Into::into).collect();
            // A change reads nothing that a client could keep a copy of.
            let (command, reader) = (self.command, None);
            Waiting { command, args, reader, wait, deadline_ms }.begin(server, data, client, &keys);
        }
        // Ending the unit serves blocked clients, which may unlock the shards.
        if data.unit.has_done_something() {
            data.end_unit(server, None);
        }
        data.release();
        done
    }

    /// Makes the change, whose shards are held, and logs it. Returns `false` if it begins anew.
    fn make(
        &mut self,
        server: &Server,
        data: &mut Data,
        stats: &WorkerStats,
        client: &Client,
    ) -> bool {
        let dirty = data.counters.dirty;
        data.unit.begin_command();
        let words = std::mem::take(&mut self.words);
        let args = words.all();
        let done = self.try_to_make(data, &args).unwrap_or_else(|failure| {
            self.fail(server, stats, client, &failure);
            true
        });
        if data.is_logged() {
            data.log_command(&args, &[], data.counters.dirty != dirty, !self.in_unit);
        }
        self.words = words;
        done
    }

    fn fail(&mut self, server: &Server, stats: &WorkerStats, client: &Client, failure: &Failure) {
        self.failed = true;
        self.bytes.clear();
        let text = failure.text().as_bytes();
        Reply::new(&mut self.bytes, self.protocol).error(text);
        counting::failed(server, stats, client, self.command, text);
    }

    fn try_to_make(&mut self, data: &mut Data, args: &[&[u8]]) -> Result<bool, Failure> {
        if !self.change.is_current(data)? {
            self.attempts += 1;
            if self.attempts < ATTEMPTS_MAX {
                return Ok(false);
            }
            while self.change.step(data) {}
        }
        let mut reply = Reply::new(&mut self.bytes, self.protocol);
        self.change.finish(data, args, &mut reply)?;
        Ok(true)
    }
}

impl<C: SlicedChange> Job for Changing<C> {
    fn step(&mut self, slice: &mut Slice<'_>) -> bool {
        while self.change.step(slice.data) {
            if self.change.is_elsewhere() || !(slice.more)() {
                return false;
            }
        }
        match self.in_unit {
            // The script or transaction holds the shards and ends the unit.
            true => self.make(slice.server, slice.data, slice.stats, slice.client),
            false => self.make_alone(slice),
        }
    }

    fn changes_later(&self) -> bool {
        true
    }

    fn reply_bytes(&self) -> usize {
        self.change.rest_bytes()
    }

    fn abandon(&mut self, _: &'static Server, data: &mut Data) {
        self.change.abandon(data);
    }

    fn is_parked(&self) -> bool {
        self.is_parked || self.change.is_elsewhere()
    }

    fn pieces(&mut self) -> Vec<Vec<u8>> {
        self.rest = if self.failed { None } else { self.change.rest() };
        match &mut self.rest {
            Some(rest) => rest.take(std::mem::take(&mut self.bytes)),
            None => Vec::new(),
        }
    }

    fn reply(&mut self, reply: &mut Reply<'_>) {
        match &mut self.rest {
            Some(rest) => rest.append_rest(reply),
            None => move_to(reply, &mut self.bytes),
        }
    }
}

struct ReplyInSlices<F, S> {
    command: &'static Registered,
    step: F,
    state: S,
    /// Appends the header, which comes first but is known last.
    header: Option<fn(&mut Reply<'_>, &S)>,
    pieces: Pieces,
    /// The most bytes that the reply may have.
    bytes_max: usize,
    protocol: Protocol,
}

impl<F, S> ReplyInSlices<F, S> {
    fn new(step: F, state: S, header: Option<fn(&mut Reply<'_>, &S)>, call: &Call<'_>) -> Self {
        let (command, protocol) = (call.command, call.client.protocol);
        let (pieces, bytes_max) = (Pieces::default(), usize::MAX);
        Self { command, step, state, header, pieces, bytes_max, protocol }
    }

    /// Counts the command as failed if its reply is an error.
    fn count_failure(&self, slice: &Slice<'_>) {
        if let Some(text) = self.pieces.error() {
            let Slice { server, stats, client, .. } = slice;
            counting::failed(server, stats, client, self.command, text);
        }
    }
}

impl<F, S> Job for ReplyInSlices<F, S>
where
    F: FnMut(&mut Reply<'_>, &mut S) -> bool + Send + 'static,
    S: Send + 'static,
{
    fn step(&mut self, slice: &mut Slice<'_>) -> bool {
        loop {
            let mut reply = Reply::new(self.pieces.open(), self.protocol);
            if !(self.step)(&mut reply, &mut self.state) {
                self.count_failure(slice);
                return true;
            }
            if self.pieces.byte_len() > self.bytes_max {
                self.pieces = Pieces::default();
                Reply::new(self.pieces.open(), self.protocol).error(TOO_LONG);
                self.count_failure(slice);
                return true;
            }
            if !(slice.more)() {
                return false;
            }
        }
    }

    fn changes_later(&self) -> bool {
        false
    }

    fn reply_bytes(&self) -> usize {
        self.pieces.byte_len()
    }

    fn ready_pieces(&mut self) -> Vec<Vec<u8>> {
        // A reply with a header or a limit must be complete before any of it is sent.
        match self.header.is_none() && self.bytes_max == usize::MAX {
            true => self.pieces.take(Vec::new()),
            false => Vec::new(),
        }
    }

    fn pieces(&mut self) -> Vec<Vec<u8>> {
        let mut header = Vec::new();
        if let Some(append_header) = self.header {
            append_header(&mut Reply::new(&mut header, self.protocol), &self.state);
        }
        self.pieces.take(header)
    }

    fn reply(&mut self, reply: &mut Reply<'_>) {
        self.pieces.append_rest(reply);
    }
}

/// The most bytes of a reply whose elements may repeat.
pub const REPEATED_BYTES_MAX: usize = 1 << 30;
/// Bytes of the shortest bulk string reply.
const ELEMENT_LEN_MIN: usize = 6;
pub const TOO_LONG: &str = "ERR value is out of range";
