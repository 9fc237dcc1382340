//! The commands of a turn, parsed and not yet executed, over all connections that had bytes.
//!
//! Arguments are slices of the memory that the bytes arrived in. As soon as a command is parsed its
//! key is hashed and its shard prefetched; before a window of commands is executed, so are their
//! buckets and entries. By the time a command runs, its key is in the cache.

use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering};

use bobbin_resp::{Limits, Parser, ProtocolError, Step};
use bobbin_store::{Hash, Keyspace};

use crate::engine::client::connection::large::OutsideArgument;
use crate::engine::command::{Flags, Registered, Registry};

/// Commands whose keys are prefetched together. Their lines, three each, must fit the first-level
/// cache beside what executing them needs.
const WINDOW: usize = 32;

/// Bytes of a connection that are parsed at once; a command that begins among them is parsed to its
/// end. All other connections have their turn before the rest.
const PARSED_MAX: usize = 32 * 1024;

/// A command of more bytes than this is logged by its arguments: in one piece, that is not copied
/// again.
const WIRE_MAX: usize = 32 * 1024;

/// Memory for more arguments than this, or commands, is given back after the turn, ...
const ARGS_KEPT_MAX: usize = 16 * 1024;
/// ... and when there is nothing to do, down to this.
const ARGS_IDLE_MAX: usize = 512;

/// The commands of one turn.
#[derive(Default)]
pub struct Batch {
    /// Arguments of all commands. The lifetime is a lie that `Batch` keeps: see `parse`.
    args: Vec<&'static [u8]>,
    commands: Vec<Parsed>,
    /// Inline commands that had to be unquoted.
    unquoted: Vec<Vec<Vec<u8>>>,
    /// Commands with arguments outside of their connection's bytes, and how many bytes those are.
    outside: Vec<(usize, usize)>,
    last: Option<(&'static [u8], &'static Registered)>,
    /// The command at work, for the thread that reports a crash; `usize::MAX`: none.
    at: AtomicUsize,
}

/// One command of the batch.
#[derive(Clone)]
pub struct Parsed {
    pub command: Option<&'static Registered>,
    pub args: Range<u32>,
    pub first_hash: Hash,
    /// Where it ends in its connection's bytes.
    pub end: usize,
    /// How many bytes before that are the same command as an array of bulk strings. 0: they are
    /// something else, do not lie in one piece, or are too many to be copied once more.
    wire_len: u32,
}

/// What a connection's bytes held.
pub struct ParsedInput {
    /// Its commands, among the batch's.
    pub commands: Range<usize>,
    /// Bytes that belong to commands, or to nothing; the rest is an incomplete command.
    pub consumed: usize,
    /// How many bytes more the incomplete command needs, at least.
    pub wanted: usize,
    pub error: Option<ProtocolError>,
    /// There may be more commands than were looked for.
    pub is_cut: bool,
    /// All the bytes. The lifetime is a lie, as that of the arguments.
    input: &'static [u8],
}

impl ParsedInput {
    /// Leaves what follows the first `end` bytes. It is parsed again when its time comes.
    pub const fn halt_at(&mut self, end: usize) {
        self.consumed = end;
        self.wanted = 0;
        self.error = None;
        self.is_cut = false;
    }
}

impl Batch {
    /// Parses the complete commands of these bytes, or as many as begin in the first
    /// [`PARSED_MAX`]. `outside`: arguments of the first that are not among them.
    ///
    /// # Safety
    /// The bytes, also those outside, stay where they are, unchanged, until the next `clear`.
    pub unsafe fn parse(
        &mut self,
        input: &[u8],
        parser: &mut Parser,
        limits: &Limits,
        registry: &Registry,
        keyspace: &Keyspace,
        outside: &[OutsideArgument],
    ) -> ParsedInput {
        // SAFETY: by the caller the bytes outlive every use of `args`, which `clear` empties.
        let input: &'static [u8] =
            unsafe { std::slice::from_raw_parts(input.as_ptr(), input.len()) };
        let first = self.commands.len();
        let mut found = ParsedInput {
            commands: first..first,
            consumed: 0,
            wanted: 0,
            error: None,
            is_cut: false,
            input,
        };
        let end = input.len().min(PARSED_MAX);
        while found.consumed < end {
            let (args, start) = (self.args.len(), found.consumed);
            match parser.next(input, &mut found.consumed, limits, &mut self.args) {
                Ok(Step::Complete) => {
                    let len = found.consumed - start;
                    let is_array = input[start] == b'*' && len <= WIRE_MAX;
                    let wire_len = if is_array { len as u32 } else { 0 };
                    self.push(args, wire_len, found.consumed, registry, keyspace);
                }
                Ok(Step::CompleteOutside(numbers)) => {
                    let len = outside.iter().map(|outside| outside.bytes.len()).sum();
                    self.outside.push((self.commands.len(), len));
                    for (number, outside) in numbers.into_iter().zip(outside) {
                        let bytes = outside.bytes.as_slice();
                        // SAFETY: by the caller these too outlive every use of `args`.
                        let bytes =
                            unsafe { std::slice::from_raw_parts(bytes.as_ptr(), bytes.len()) };
                        self.args[args + number] = bytes;
                    }
                    self.push(args, 0, found.consumed, registry, keyspace);
                }
                Ok(Step::Empty) => {}
                Ok(Step::Inline(words)) => {
                    for word in &words {
                        // SAFETY: `unquoted` keeps the word's bytes in place until `clear`.
                        let word = unsafe { std::slice::from_raw_parts(word.as_ptr(), word.len()) };
                        self.args.push(word);
                    }
                    self.unquoted.push(words);
                    self.push(args, 0, found.consumed, registry, keyspace);
                }
                Ok(Step::Incomplete { wanted }) => {
                    found.wanted = wanted;
                    break;
                }
                Err(error) => {
                    found.error = Some(error);
                    break;
                }
            }
        }
        let is_whole = found.wanted > 0 || found.error.is_some();
        found.is_cut = found.consumed < input.len() && !is_whole;
        found.commands = first..self.commands.len();
        found
    }

    #[inline(always)]
    fn push(
        &mut self,
        first_arg: usize,
        wire_len: u32,
        end: usize,
        registry: &Registry,
        keyspace: &Keyspace,
    ) {
        let args = &self.args[first_arg..];
        if args.is_empty() {
            return;
        }
        // A pipeline mostly repeats a command, spelt the same way.
        let command = match self.last {
            Some((name, command)) if name == args[0] => Some(command),
            _ => {
                let command = registry.find(args[0]);
                self.last = command.map(|command| (args[0], command));
                command
            }
        };
        let mut first_hash = Hash::default();
        if let Some(command) = command
            && command.first_is_key
            && let Some(key) = args.get(1)
        {
            first_hash = keyspace.hash(key);
            keyspace.prefetch_shard(first_hash);
        }
        let args = first_arg as u32..self.args.len() as u32;
        self.commands.push(Parsed { command, args, first_hash, end, wire_len });
    }

    #[inline(always)]
    pub fn command(&self, index: usize) -> &Parsed {
        &self.commands[index]
    }

    #[inline(always)]
    pub fn args(&self, parsed: &Parsed) -> &[&[u8]] {
        &self.args[parsed.args.start as usize..parsed.args.end as usize]
    }

    /// A command of these bytes as an array of bulk strings, if it came as one; else nothing. Not
    /// to be called after `clear`.
    #[inline(always)]
    pub fn wire<'a>(&'a self, found: &'a ParsedInput, parsed: &Parsed) -> &'a [u8] {
        let start = parsed.end - parsed.wire_len as usize;
        found.input.get(start..parsed.end).unwrap_or_default()
    }

    /// Bytes of a command's arguments that lie outside of its connection's bytes.
    #[inline(always)]
    pub fn outside_len(&self, index: usize) -> usize {
        let found = self.outside.iter().find(|(command, _)| *command == index);
        found.map_or(0, |(_, len)| *len)
    }

    /// To be called before each command is executed: prefetches for a window of them at a time.
    /// `database` is a guess for all of them.
    #[inline(always)]
    pub fn approach(&self, index: usize, keyspace: &Keyspace, database: u32) {
        self.at.store(index, Ordering::Relaxed);
        if index.is_multiple_of(WINDOW) {
            self.prefetch(index, keyspace, database);
        }
    }

    fn prefetch(&self, from: usize, keyspace: &Keyspace, database: u32) {
        let window = &self.commands[from..self.commands.len().min(from + WINDOW)];
        if window.len() < 2 {
            return;
        }
        let keyed = || window.iter().filter(|parsed| parsed.first_hash != Hash::default());
        if database == 0 {
            keyed().for_each(|parsed| keyspace.prefetch_bucket(parsed.first_hash));
        }
        // Mostly a window repeats one command; a wrong guess costs what a guess could save.
        let writes = window[0].command.is_some_and(|command| command.has(Flags::WRITE));
        keyed().for_each(|parsed| keyspace.prefetch_entry(parsed.first_hash, database, writes));
    }

    /// Forgets all commands, and with them the bytes that they lie in.
    pub fn clear(&mut self) {
        self.args.clear();
        self.args.shrink_to(ARGS_KEPT_MAX);
        self.commands.clear();
        self.commands.shrink_to(ARGS_KEPT_MAX);
        self.unquoted.clear();
        self.outside.clear();
        self.last = None;
        self.at.store(usize::MAX, Ordering::Relaxed);
    }

    /// The command at work.
    pub fn at_work(&self) -> Option<(Option<&'static Registered>, &[&[u8]])> {
        let parsed = self.commands.get(self.at.load(Ordering::Relaxed))?;
        let range = parsed.args.start as usize..parsed.args.end as usize;
        Some((parsed.command, self.args.get(range)?))
    }

    /// Gives memory back: there is nothing to do.
    pub fn rest(&mut self) {
        self.args.shrink_to(ARGS_IDLE_MAX);
        self.commands.shrink_to(ARGS_IDLE_MAX);
    }
}
