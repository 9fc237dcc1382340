//! What a handler gets: the call of a command, and the request it came from.

use std::ops::Range;
use std::sync::atomic::{AtomicU32, Ordering};

use bobbin_resp::{Reply, ReplyPart};
use bobbin_store::entry::INLINE_MAX;
use bobbin_store::{KeyHash, NewValue};

use super::job::{Job, LongCommand};
use super::plan::{PREFETCH_AHEAD, PREFETCHED_MAX};
use super::{Data, Failure, Flags, Key, Registered, key_set};
use crate::engine::client::Client;
use crate::engine::row::words::Words;
use crate::engine::server::Server;
use crate::engine::telemetry::stats::WorkerStats;
use crate::engine::tracking;

/// The call of a command, as its handler gets it.
pub struct Call<'a> {
    pub server: &'static Server,
    pub command: &'static Registered,
    /// The words of the command, including its name.
    pub args: &'a [&'a [u8]],
    /// See `Request::wire`.
    pub wire: &'a [u8],
    pub client: &'a mut Client,
    pub data: &'a mut Data,
    pub stats: &'a WorkerStats,
    pub reply: Reply<'a>,
    /// The plan: the hash of each key, at the index of its argument. `KeyHash::default` stands at
    /// other arguments; the slice may be shorter than `args`.
    pub hashes: &'a [KeyHash],
    /// Whether EXEC or a script runs the command. Then its shards stay held.
    pub in_transaction: bool,
    /// Whether the command may leave long work to a job. Not, for example, during a replay
    /// of a log.
    pub may_leave_job: bool,
}

/// A request as the batch holds it.
#[derive(Clone, Copy)]
pub struct Request<'a> {
    /// `None` if there is no such command.
    pub command: Option<&'static Registered>,
    pub args: &'a [&'a [u8]],
    /// The request as an array of bulk strings, if it came as one and lies in one piece; otherwise
    /// empty.
    pub wire: &'a [u8],
    pub first_hash: KeyHash,
}

/// What a worker executes with.
pub struct Context<'a> {
    pub server: &'static Server,
    pub data: &'a mut Data,
    pub stats: &'a WorkerStats,
    /// Values that replies refer to; see `bobbin_resp::Part`.
    pub parts: &'a mut Vec<ReplyPart>,
}

impl<'a> Call<'a> {
    /// The key at this argument. Only arguments that the plan names are keys: the user's rights
    /// were checked for those, and their shards are locked. A handler that takes another argument
    /// for a key has a fault, and the command fails.
    #[inline(always)]
    pub fn key(&self, index: usize) -> Result<Key<'a>, Failure> {
        self.planned(index).ok_or_else(|| self.unplanned(index))
    }

    /// The keys at these arguments, each of them once.
    pub fn distinct_keys(&self, arguments: Range<usize>) -> Result<Vec<Key<'a>>, Failure> {
        let keys = arguments.map(|at| self.key(at)).collect::<Result<_, _>>()?;
        Ok(key_set::distinct(keys))
    }

    #[inline(always)]
    fn planned(&self, index: usize) -> Option<Key<'a>> {
        let hash = *self.hashes.get(index)?;
        (hash != KeyHash::default()).then(|| Key { bytes: self.args[index], hash })
    }

    /// Whether the command has more keys than the plan prefetches. Then `prefetch_after` is worth
    /// while.
    #[inline(always)]
    pub fn has_very_many_keys(&self) -> bool {
        self.hashes.len() > PREFETCHED_MAX && !self.data.holds_all()
    }

    /// Prefetches a key that comes some words after the one at `index`. The caller looks at the key
    /// at `index` next.
    #[inline(never)]
    pub fn prefetch_after(&mut self, index: usize) {
        let hash = |at: usize| {
            let hash = self.hashes.get(at).copied();
            hash.filter(|hash| *hash != KeyHash::default())
        };
        let database = self.client.database;
        if let Some(hash) = hash(index + 2 * PREFETCH_AHEAD).filter(|_| database == 0) {
            self.data.keyspace().prefetch_bucket(hash);
        }
        if let Some(hash) = hash(index + PREFETCH_AHEAD) {
            self.data.find_next(hash.shard());
            self.data.prefetch(database, hash, self.command.has(Flags::WRITE));
        }
        if let Some(hash) = hash(index) {
            self.data.find_next(hash.shard());
        }
    }

    #[cold]
    fn unplanned(&self, index: usize) -> Failure {
        static SHOWN: AtomicU32 = AtomicU32::new(0);
        if SHOWN.fetch_add(1, Ordering::Relaxed) < FAULTS_SHOWN_MAX {
            let name = &self.command.full_name;
            log::error!("BUG: '{name}' takes argument {index} for a key, and its plan does not");
        }
        Failure::UNPLANNED
    }

    /// The keys at these arguments, each with its number among them.
    pub fn keys(
        &self,
        indices: impl Iterator<Item = usize>,
    ) -> Result<Vec<(usize, Key<'a>)>, Failure> {
        indices.enumerate().map(|(number, at)| Ok((number, self.key(at)?))).collect()
    }

    /// Calls `f` with each key that the command names.
    pub fn each_key(&mut self, mut f: impl FnMut(&mut Self, Key<'a>)) {
        let (command, args) = (self.command, self.args);
        command.key_positions(args, |at| {
            // Commands that run scripts only pass their keys on, so they have no plan of their own.
            let key = self.planned(at).unwrap_or_else(|| self.data.key(args[at]));
            f(self, key);
        });
    }

    /// The argument as a value to be stored. The row must name it as a value (`Command::values`).
    #[inline(always)]
    pub fn value(&mut self, index: usize) -> NewValue<'a> {
        let bytes = self.args[index];
        if bytes.len() <= INLINE_MAX {
            return NewValue::Inline(bytes);
        }
        match self.data.take_prepared(index) {
            Some(shared) => NewValue::Shared(shared),
            // The values of queued commands are not prepared; the transaction offers its large
            // words instead.
            None => match self.data.offered(bytes) {
                Some(shared) => NewValue::Shared(shared),
                None => NewValue::string(bytes),
            },
        }
    }

    /// Leaves the rest of the command to a job, for which the client waits.
    #[cold]
    pub fn leave_job(&mut self, job: impl Job) {
        let long = LongCommand::new(Box::new(job), self.command, self.args);
        self.client.long_command = Some(Box::new(long));
    }

    /// A copy of the command's words, for work that goes on after the call.
    pub fn kept_words(&self) -> Words {
        let mut words = Words::default();
        self.args.iter().for_each(|arg| words.push(arg, |arg| self.data.shared(arg)));
        words
    }

    /// After publishing: makes the client wait if a worker has more messages waiting than it may.
    pub fn wait_for_listeners(&mut self) {
        if self.data.audience.is_overrun() {
            self.client.postpone(true);
        }
    }

    /// Unlocks the keys of a read before it is done, as it has read all that it needs and other
    /// clients need not wait. Within a transaction or a script the keys stay locked.
    pub fn end_reading(&mut self) {
        debug_assert!(!self.command.has(Flags::WRITE), "its change would have no number yet");
        if self.in_transaction || self.command.has(Flags::WRITE) {
            return;
        }
        if self.client.tracking.is_some() {
            tracking::remember_already(self);
        }
        // An expired key may have been deleted for this client, which is a unit.
        self.end_unit();
        self.data.release();
    }

    /// Ends the unit of the command or transaction, so that others see its changes.
    #[cold]
    pub fn end_unit(&mut self) {
        let publishes = !self.data.unit.work.notices.is_empty();
        if let Some(number) = self.data.end_unit(self.server, Some(self.client)) {
            self.client.last_record = number;
        }
        if publishes {
            self.wait_for_listeners();
        }
    }

    /// Whether the client may be blocked. Within a transaction, a log or a primary's stream it may
    /// not: the next command follows at once. A client of a log would also be served later, with
    /// elements that belong to others.
    pub fn may_block(&self) -> bool {
        !self.in_transaction && !self.data.conditions.loading
    }

    /// An argument as an integer.
    #[inline]
    pub fn integer(&self, index: usize) -> Result<i64, Failure> {
        bobbin_resp::parse_i64(self.args[index]).ok_or(Failure::NOT_AN_INTEGER)
    }

    /// Whether an argument is this word, in upper or lower case.
    pub fn word_is(&self, index: usize, word: &str) -> bool {
        self.args[index].eq_ignore_ascii_case(word.as_bytes())
    }
}

/// The most faults that are logged, as a client may be able to repeat one.
const FAULTS_SHOWN_MAX: u32 = 100;
