//! Long commands in slices, so that no other client waits for them.
//!
//! A large collection is *pinned*: cloning it takes microseconds and shares its chunks. The command
//! then works on the pinned value with no lock held, a slice a turn, while its client waits and all
//! others are served; a client that changes the key meanwhile copies the chunks that it changes. A
//! script or a transaction does such work in slices too, with all that it holds reserved for it.
//!
//! A read makes its reply like this ([`reply_in_slices`]). A change ([`change_in_slices`]) is
//! worked out like this, and made with its keys' shards held, if their values are still those that
//! were pinned.

use bobbin_resp::{Aggregate, Protocol, Reply};
use bobbin_store::value::Drafted;
use bobbin_store::{NewValue, OwnedEntry};

use super::admission::may_finish;
use super::run::count_failure;
use crate::engine::blocking::{Wait, Waiting};
use crate::engine::command::job::{Job, Slice};
use crate::engine::command::plan::ShardSet;
use crate::engine::command::{Call, Data, Failure, Key, Outcome, Registered};
use crate::engine::row::words::Words;
use crate::engine::server::Server;
use crate::engine::telemetry::stats::WorkerStats;

/// Replies of more elements than this are made in slices.
pub const SLICED_MIN: usize = 4096;
/// Elements between two looks at the time.
pub const SLICE: usize = 64;

/// Whether a command has enough words to go on with them in slices, so that no other client is kept
/// from the keys meanwhile.
pub fn has_many_words(call: &Call<'_>) -> bool {
    call.args.len() > SLICED_MIN && call.may_leave_job && !call.in_transaction
}

/// Makes a reply in slices: `step` appends some `SLICE` elements of it at each call, and returns
/// whether there are more.
pub fn reply_in_slices(
    call: &mut Call<'_>,
    mut step: impl FnMut(&mut Reply<'_>) -> bool + Send + 'static,
) {
    if !call.may_leave_job {
        while step(&mut call.reply) {}
        return;
    }
    let step = move |reply: &mut Reply<'_>, (): &mut ()| step(reply);
    call.client.job = Some(Box::new(ReplyInSlices::new(step, (), None, call)));
}

/// Answers an array, in slices: for each of the words from `first` on what `one` appends, which is
/// short.
pub fn each_word_in_slices(
    call: &mut Call<'_>,
    first: usize,
    mut one: impl FnMut(&[u8], &mut Reply<'_>) + Send + 'static,
) {
    let words = call.kept_words();
    let mut next = first;
    reply_in_slices(call, move |reply| {
        if next == first {
            reply.array(words.count() - first);
        }
        let end = words.count().min(next + SLICE);
        words.some(next..end).into_iter().for_each(|word| one(word, reply));
        next = end;
        next < words.count()
    });
}

/// Answers `count` elements that are drawn anew each time: the client may ask for any number of
/// them, however few there are. So an answer of more than [`REPEATED_BYTES_MAX`] becomes an error.
/// `one` appends an element.
pub fn repeat_in_slices(
    call: &mut Call<'_>,
    count: usize,
    mut begin: impl FnMut(&mut Reply<'_>) + Send + 'static,
    mut one: impl FnMut(&mut Reply<'_>) + Send + 'static,
) -> Outcome {
    if count > REPEATED_BYTES_MAX / ELEMENT_LEN_MIN {
        return Err(Failure::new(TOO_LONG));
    }
    let mut done = 0;
    let mut step = move |reply: &mut Reply<'_>| {
        if done == 0 {
            begin(reply);
        }
        let (start, end) = (reply.output().len(), count.min(done + SLICE));
        // Few of them may be long.
        while done < end && reply.output().len() - start < PIECE {
            one(reply);
            done += 1;
        }
        done < count
    };
    let mut begun = Vec::new();
    if !call.may_leave_job || count <= SLICED_MIN {
        let start = call.reply.output().len();
        while step(&mut call.reply) {
            let bytes = call.reply.len_since(start);
            let is_over_limit = bytes > call.client.reply_bytes_max;
            if is_over_limit || bytes > REPEATED_BYTES_MAX {
                call.reply.truncate(start);
                // A script gets an error instead.
                if is_over_limit && call.client.caller == 0 {
                    call.client.set_overflowed(true);
                }
                return Err(Failure::new(TOO_LONG));
            }
            if bytes > PIECE && call.may_leave_job {
                // A few long elements: the rest of them comes in slices.
                let (bytes, parts) = call.reply.take_since(start);
                Reply::new(&mut begun, call.client.protocol).append(&bytes, &parts);
                break;
            }
        }
        if begun.is_empty() {
            return Ok(());
        }
    }
    let step = move |reply: &mut Reply<'_>, (): &mut ()| step(reply);
    let mut job = ReplyInSlices::new(step, (), None, call);
    job.bytes_max = REPEATED_BYTES_MAX;
    job.pieces.last = begun;
    call.client.job = Some(Box::new(job));
    Ok(())
}

/// Answers an aggregate in slices. Its length is known only at its end: `step` adds the number of
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
    call.client.job = Some(Box::new(job));
}

/// Answers in slices what begins with a header that is known only at the end. `step` keeps in
/// `state` what `header` needs.
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
    call.client.job = Some(Box::new(ReplyInSlices::new(step, state, Some(header), call)));
}

/// A change that is worked out on pinned values, and made with the shards of its keys held.
pub trait SlicedChange: Send + 'static {
    /// Goes on with the work for about `SLICE` elements; whether there is more. It may hold shards
    /// meanwhile.
    fn step(&mut self, data: &mut Data) -> bool;

    /// Whether another thread is at it, so that no thread should spin for it.
    fn is_elsewhere(&self) -> bool {
        false
    }

    /// Whether it depends on more than its keys, so that all shards must be held in the end.
    fn needs_everything(&self) -> bool {
        false
    }

    /// Whether the values are still those that were pinned. If not, it begins anew with those of
    /// now.
    fn is_current(&mut self, data: &mut Data) -> Result<bool, Failure>;

    /// Makes the change, and appends the reply. The work is done, and the values are those it was
    /// done on. `args`: the command's words.
    fn finish(&mut self, data: &mut Data, args: &[&[u8]], reply: &mut Reply<'_>) -> Outcome;

    /// Its client is gone: leaves nothing behind.
    fn abandon(&mut self, _: &mut Data) {}

    /// What its client must wait for, and until when (Unix ms), if `finish` found nothing to do and
    /// appended nothing.
    fn waits(&mut self) -> Option<(Box<dyn Wait>, Option<i64>)> {
        None
    }

    /// What of the reply follows what `finish` appended, if it was made before.
    fn rest(&mut self) -> Option<Pieces> {
        None
    }

    /// Bytes of that so far.
    fn rest_bytes(&self) -> usize {
        0
    }
}

/// Makes a large change that concerns the keys at these arguments: in slices, without anything held
/// until it is worked out. If the values were changed by then it begins anew, and after some
/// attempts does everything at once. No other client changes what a script or a transaction holds.
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
    call.client.job = Some(Box::new(Changing {
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
    }));
    Ok(())
}

/// A large value that a change works on: pinned, and a clone of it that is changed.
pub struct Draft<T> {
    key: Box<[u8]>,
    pinned: T,
    pub value: T,
}

impl<T: Drafted + 'static> Draft<T> {
    pub fn new(key: &[u8], value: &T) -> Self {
        Self { key: key.into(), pinned: value.clone(), value: value.clone() }
    }

    /// Its key.
    pub fn key(&self) -> &[u8] {
        &self.key
    }

    /// Whether the key still holds what was pinned; else the draft is what it holds now.
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

    /// Puts the draft in the value's place, and gives its key.
    pub fn put<'k>(&'k mut self, data: &mut Data) -> Result<Key<'k>, Failure> {
        let key = data.key(&self.key);
        if let Some(value) = data.write_as::<T>(key)? {
            *value = std::mem::take(&mut self.value);
        }
        // What of the old value is no longer needed may be much to free.
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
    /// A script or a transaction runs the command.
    in_unit: bool,
    attempts: u32,
    bytes: Vec<u8>,
    protocol: Protocol,
    /// The reply's rest, once it is done.
    rest: Option<Pieces>,
    /// The reply is an error.
    failed: bool,
    /// A pause holds it up.
    is_parked: bool,
}

/// How often a change whose values were changed begins anew before it lets no other client change
/// them.
const ATTEMPTS_MAX: u32 = 3;

impl<C: SlicedChange> Changing<C> {
    /// Holds what the change needs, checks again whether it may be made, and makes it; whether it
    /// is done. What it did is a unit.
    fn make_alone(&mut self, slice: &mut Slice<'_>) -> bool {
        let Slice { server, data, client, .. } = slice;
        data.turn.waited = false;
        let mut shards = ShardSet::default();
        self.keys.iter().for_each(|key| shards.add_key(data.key(key)));
        if self.change.needs_everything() {
            shards.add_everything();
        }
        if !shards.hold(data) {
            // A script keeps one: every turn looks.
            self.is_parked = true;
            return false;
        }
        if data.turn.waited {
            data.refresh_time(server);
        }
        self.is_parked = false;
        let done = match may_finish(server, data, client, self.command, &self.words.all()) {
            Ok(true) => self.make(server, data, slice.stats),
            Ok(false) => {
                self.is_parked = true;
                data.release();
                return false;
            }
            Err(failure) => {
                self.change.abandon(data);
                self.fail(server, slice.stats, &failure);
                true
            }
        };
        if done
            && !self.failed
            && let Some((wait, deadline_ms)) = self.change.waits()
        {
            let keys: Vec<_> = self.keys.iter().map(|key| data.key(key)).enumerate().collect();
            let args = self.words.all().into_iter().map(Into::into).collect();
            // No client keeps copies of what a change answers.
            let (command, reader) = (self.command, None);
            Waiting { command, args, reader, wait, deadline_ms }.begin(server, data, client, &keys);
        }
        // Others are served behind it: that may have the shards unlocked.
        if data.unit.has_done_something() {
            data.end_unit(server, None);
        }
        data.release();
        done
    }

    /// Makes the change, and logs it. Its shards are held. `false`: it begins anew.
    fn make(&mut self, server: &Server, data: &mut Data, stats: &WorkerStats) -> bool {
        let dirty = data.counters.dirty;
        data.unit.begin_command();
        let words = std::mem::take(&mut self.words);
        let args = words.all();
        let done = self.try_to_make(data, &args).unwrap_or_else(|failure| {
            self.fail(server, stats, &failure);
            true
        });
        if data.is_logged() {
            data.log_command(&args, &[], data.counters.dirty != dirty, !self.in_unit);
        }
        self.words = words;
        done
    }

    fn fail(&mut self, server: &Server, stats: &WorkerStats, failure: &Failure) {
        self.failed = true;
        self.bytes.clear();
        let text = failure.text().as_bytes();
        Reply::new(&mut self.bytes, self.protocol).error(text);
        count_failure(server, stats, self.command, text);
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
            // The unit holds what it needs, and ends itself.
            true => self.make(slice.server, slice.data, slice.stats),
            false => self.make_alone(slice),
        }
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
            None => append(reply, &mut self.bytes),
        }
    }
}

/// A reply in pieces: as a whole, many megabytes would be copied each time that they grow, and
/// freeing them would take long.
#[derive(Default)]
pub struct Pieces {
    full: Vec<Vec<u8>>,
    /// Bytes of these.
    full_len: usize,
    /// Behind the full ones.
    last: Vec<u8>,
}

impl Pieces {
    /// Where the reply goes on: what is appended there stays together.
    pub fn open(&mut self) -> &mut Vec<u8> {
        if self.last.len() >= PIECE {
            let room = Vec::with_capacity(PIECE_CAPACITY);
            self.full_len += self.last.len();
            self.full.push(std::mem::replace(&mut self.last, room));
        }
        &mut self.last
    }

    /// The text, if all there is is an error.
    fn error(&self) -> Option<&[u8]> {
        let text = self.last.strip_prefix(b"-").filter(|_| self.full.is_empty())?;
        text.strip_suffix(b"\r\n")
    }

    /// Bytes of all of them.
    pub const fn byte_len(&self) -> usize {
        self.full_len + self.last.len()
    }

    /// Puts another reply's pieces behind these.
    pub fn append(&mut self, mut other: Self) {
        if other.full.is_empty() {
            self.open().append(&mut other.last);
            return;
        }
        self.full_len += self.last.len() + other.full_len;
        self.full.push(std::mem::replace(&mut self.last, other.last));
        self.full.append(&mut other.full);
    }

    /// All but the last piece, with a header in front.
    pub fn take(&mut self, header: Vec<u8>) -> Vec<Vec<u8>> {
        let mut pieces = std::mem::take(&mut self.full);
        self.full_len = 0;
        if !header.is_empty() {
            pieces.insert(0, header);
        }
        pieces
    }

    /// Appends what `take` has left.
    pub fn append_rest(&mut self, reply: &mut Reply<'_>) {
        append(reply, &mut self.last);
    }
}

struct ReplyInSlices<F, S> {
    command: &'static Registered,
    step: F,
    state: S,
    /// Appends what comes first and is known last.
    header: Option<fn(&mut Reply<'_>, &S)>,
    pieces: Pieces,
    /// Bytes of all pieces, at most.
    bytes_max: usize,
    protocol: Protocol,
}

impl<F, S> ReplyInSlices<F, S> {
    fn new(step: F, state: S, header: Option<fn(&mut Reply<'_>, &S)>, call: &Call<'_>) -> Self {
        let (command, protocol) = (call.command, call.client.protocol);
        let (pieces, bytes_max) = (Pieces::default(), usize::MAX);
        Self { command, step, state, header, pieces, bytes_max, protocol }
    }

    /// Counts a reply that is an error: the command failed.
    fn count_failure(&self, slice: &Slice<'_>) {
        if let Some(text) = self.pieces.error() {
            count_failure(slice.server, slice.stats, self.command, text);
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

    fn reply_bytes(&self) -> usize {
        self.pieces.byte_len()
    }

    fn ready_pieces(&mut self) -> Vec<Vec<u8>> {
        // It may be that there is a header to come, or an error instead.
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

/// Bytes of an answer whose elements may repeat, at most.
pub const REPEATED_BYTES_MAX: usize = 1 << 30;
/// Bytes of the shortest bulk.
const ELEMENT_LEN_MIN: usize = 6;
pub const TOO_LONG: &str = "ERR value is out of range";
/// Bytes of memory of a piece: as much as one has that grew by doubling.
const PIECE_CAPACITY: usize = 128 * 1024;
/// A piece is full when it has this many bytes, so that the elements of a step mostly fit.
const PIECE: usize = PIECE_CAPACITY / 8 * 7;

/// Appends a reply that was made elsewhere; a large one is not copied if it is all there is.
fn append(reply: &mut Reply<'_>, bytes: &mut Vec<u8>) {
    if reply.output().is_empty() {
        std::mem::swap(reply.output(), bytes);
    } else {
        reply.raw(bytes);
    }
}
