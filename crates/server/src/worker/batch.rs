//! The parsed commands of a turn, from all connections that had bytes.
//!
//! Arguments are slices of the memory that the bytes arrived in. The batch hashes a command's key
//! and prefetches its shard as soon as the command is parsed. Before it executes a window of
//! commands, it prefetches their buckets and entries. So a command finds its key in the cache.

use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering};

use bobbin_resp::{Limits, ParseStep, Parser, ProtocolError};
use bobbin_store::{KeyHash, Keyspace};

use crate::engine::client::connection::large::OutsideArgument;
use crate::engine::command::{Flags, Registered};
use crate::engine::server::Server;

/// How many commands have their keys prefetched together. Their three cache lines each must fit
/// into the first-level cache, beside the data that executing them needs.
const WINDOW: usize = 32;

/// A longer command, in bytes, is logged argument by argument: the log then shares the arguments
/// instead of copying the whole command.
const WIRE_MAX: usize = 32 * 1024;

/// The memory for arguments and commands shrinks to this many of each after the turn ...
const ARGS_KEPT_MAX: usize = 16 * 1024;
/// ... and to this many when there is nothing to do.
const ARGS_IDLE_MAX: usize = 512;

/// The commands of one turn.
#[derive(Default)]
pub struct Batch {
    /// The arguments of all commands. They do not really live for ever: see `parse`.
    args: Vec<&'static [u8]>,
    commands: Vec<ParsedCommand>,
    /// The words of inline commands that had quotes.
    unquoted: Vec<Vec<Vec<u8>>>,
    /// The commands with arguments outside of their connection's bytes: index, and the length of
    /// those arguments in bytes.
    outside: Vec<(usize, usize)>,
    last: Option<(&'static [u8], &'static Registered)>,
    /// The index of the command that is executed, for the crash report. `usize::MAX`: none.
    at: AtomicUsize,
}

/// One command of the batch.
#[derive(Clone)]
pub struct ParsedCommand {
    pub command: Option<&'static Registered>,
    pub args: Range<u32>,
    pub first_hash: KeyHash,
    /// Where the command ends in its connection's bytes.
    pub end: usize,
    /// How many bytes before `end` are the command as an array of bulk strings. 0: the client sent
    /// another form, or the bytes do not lie in one piece, or are more than `WIRE_MAX`.
    wire_len: u32,
}

/// What was found in a connection's bytes.
pub struct ParsedInput {
    /// Its commands: indices into the batch.
    pub commands: Range<usize>,
    /// How many bytes were parsed; the rest is an incomplete command.
    pub consumed: usize,
    /// How many more bytes the incomplete command needs, at least.
    pub wanted: usize,
    pub error: Option<ProtocolError>,
    /// Parsing stopped because enough bytes were parsed: there may be more commands.
    pub is_cut: bool,
    /// All the bytes. They do not really live for ever, see `Batch::args`.
    input: &'static [u8],
}

impl ParsedInput {
    /// The bytes that were not parsed. After an error they begin with the command that has it.
    pub fn rest(&self) -> &[u8] {
        &self.input[self.consumed..]
    }

    /// Discards what was found behind the first `end` bytes. The rest is parsed again later.
    pub const fn halt_at(&mut self, end: usize) {
        self.consumed = end;
        self.wanted = 0;
        self.error = None;
        self.is_cut = false;
    }
}

impl Batch {
    /// Parses the complete commands of these bytes, as far as they begin within the first `most`
    /// bytes. A command that begins within them is parsed to its end. `outside` has the arguments
    /// of the first command that lie elsewhere.
    ///
    /// # Safety
    /// The bytes, and those of `outside`, must stay in place unchanged until the next `clear`.
    pub unsafe fn parse(
        &mut self,
        input: &[u8],
        most: usize,
        parser: &mut Parser,
        limits: &Limits,
        server: &Server,
        outside: &[OutsideArgument],
    ) -> ParsedInput {
        // SAFETY: the caller keeps the bytes until `clear`, which empties `args`.
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
        let end = input.len().min(most);
        while found.consumed < end {
            let (args, start) = (self.args.len(), found.consumed);
            match parser.next(input, &mut found.consumed, limits, &mut self.args) {
                Ok(ParseStep::Complete) => {
                    let len = found.consumed - start;
                    let is_array = input[start] == b'*' && len <= WIRE_MAX;
                    let wire_len = if is_array { len as u32 } else { 0 };
                    self.push(args, wire_len, found.consumed, server);
                }
                Ok(ParseStep::CompleteOutside(numbers)) => {
                    let len = outside.iter().map(|outside| outside.bytes.len()).sum();
                    self.outside.push((self.commands.len(), len));
                    for (number, outside) in numbers.into_iter().zip(outside) {
                        let bytes = outside.bytes.as_slice();
                        // SAFETY: the caller keeps these bytes until `clear` as well.
                        let bytes =
                            unsafe { std::slice::from_raw_parts(bytes.as_ptr(), bytes.len()) };
                        self.args[args + number] = bytes;
                    }
                    self.push(args, 0, found.consumed, server);
                }
                Ok(ParseStep::Empty) => {}
                Ok(ParseStep::Inline(words)) => {
                    for word in &words {
                        // SAFETY: `unquoted` keeps the word's bytes in place until `clear`.
                        let word = unsafe { std::slice::from_raw_parts(word.as_ptr(), word.len()) };
                        self.args.push(word);
                    }
                    self.unquoted.push(words);
                    self.push(args, 0, found.consumed, server);
                }
                Ok(ParseStep::Incomplete { wanted }) => {
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
    fn push(&mut self, first_arg: usize, wire_len: u32, end: usize, server: &Server) {
        let args = &self.args[first_arg..];
        if args.is_empty() {
            return;
        }
        // A pipeline mostly repeats one command, in the same spelling.
        let command = match self.last {
            Some((name, command)) if name == args[0] => Some(command),
            _ => {
                let command = server.registry.find(args[0]);
                self.last = command.map(|command| (args[0], command));
                command
            }
        };
        let mut first_hash = KeyHash::default();
        if let Some(command) = command
            && command.first_is_key
            && let Some(key) = args.get(1)
        {
            first_hash = server.keyspace.hash(key);
            server.keyspace.prefetch_shard(first_hash);
        }
        let args = first_arg as u32..self.args.len() as u32;
        self.commands.push(ParsedCommand { command, args, first_hash, end, wire_len });
    }

    #[inline(always)]
    pub fn command(&self, index: usize) -> &ParsedCommand {
        &self.commands[index]
    }

    #[inline(always)]
    pub fn args(&self, parsed: &ParsedCommand) -> &[&[u8]] {
        &self.args[parsed.args.start as usize..parsed.args.end as usize]
    }

    /// The command's bytes as an array of bulk strings, if the client sent that form; otherwise
    /// nothing. Must not be called after `clear`.
    #[inline(always)]
    pub fn wire<'a>(&'a self, found: &'a ParsedInput, parsed: &ParsedCommand) -> &'a [u8] {
        let start = parsed.end - parsed.wire_len as usize;
        found.input.get(start..parsed.end).unwrap_or_default()
    }

    /// The length of the arguments that lie outside of the connection's bytes.
    #[inline(always)]
    pub fn outside_len(&self, index: usize) -> usize {
        let found = self.outside.iter().find(|(command, _)| *command == index);
        found.map_or(0, |(_, len)| *len)
    }

    /// Must be called before each command is executed. Prefetches for a window of commands at a
    /// time, on the assumption that all of them use `database`.
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
        let keyed = || window.iter().filter(|parsed| parsed.first_hash != KeyHash::default());
        if database == 0 {
            keyed().for_each(|parsed| keyspace.prefetch_bucket(parsed.first_hash));
        }
        // A window mostly repeats one command. A wrong guess costs about as much as a right one
        // saves.
        let writes = window[0].command.is_some_and(|command| command.has(Flags::WRITE));
        keyed().for_each(|parsed| keyspace.prefetch_entry(parsed.first_hash, database, writes));
    }

    /// Forgets all commands, and with them the borrowed bytes.
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

    /// The command that is executed, and its arguments.
    pub fn at_work(&self) -> Option<(Option<&'static Registered>, &[&[u8]])> {
        let parsed = self.commands.get(self.at.load(Ordering::Relaxed))?;
        let range = parsed.args.start as usize..parsed.args.end as usize;
        Some((parsed.command, self.args.get(range)?))
    }

    /// Gives memory back when there is nothing to do.
    pub fn rest(&mut self) {
        self.args.shrink_to(ARGS_IDLE_MAX);
        self.commands.shrink_to(ARGS_IDLE_MAX);
    }
}
