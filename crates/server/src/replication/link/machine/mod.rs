//! What a replica says to its primary, and what it makes of the answers.
//!
//! No socket, no clock and no key is here. Whoever drives the machine gives it the bytes that came
//! and the time, does what the events say, and sends the output. So tests can cut the bytes
//! anywhere, and lie.

use bobbin_resp::{Limits, Parser, ProtocolError, Step};

use super::copy::CopyEnd;
use super::handshake::{Handshake, Introduction, NextStep};
use crate::engine::log::append_command;

/// A replica's side of one connection to its primary.
pub struct LinkMachine {
    limits: LinkLimits,
    stage: Stage,
    input: Input,
    parser: Parser,
    output: Vec<u8>,
    /// When something came last (ms).
    heard_ms: i64,
    /// When the replica last said how far it is, or that it is alive (ms).
    said_ms: i64,
    /// The primary asked how far the replica is.
    is_asked: bool,
    /// The primary counts the bytes of its stream.
    takes_acks: bool,
}

/// What a primary may have the replica keep.
#[derive(Clone, Copy, Debug)]
pub struct LinkLimits {
    /// Bytes of one argument.
    pub bulk_len_max: usize,
    /// Bytes of one command.
    pub command_len_max: usize,
    /// Bytes of a transaction: it is kept until its end has come.
    pub transaction_len_max: usize,
}

enum Stage {
    Handshake(Handshake),
    /// The line before a copy is awaited. The history and the offset that it belongs to; `None`:
    /// the primary is so old that it does not tell.
    AwaitsCopy(Option<(String, u64)>),
    Copy(CopyEnd),
    /// All of the copy is here. The stream waits until it is loaded.
    Loads,
    Stream,
}

/// What has come.
#[derive(PartialEq, Eq, Debug)]
pub enum LinkEvent<'a> {
    /// Nothing that is whole: more bytes are needed.
    Nothing,
    /// The stream goes on where it was; perhaps under a new name.
    GoesOn { id: Option<String> },
    /// The primary will send a copy of all keys.
    WillCopy,
    /// A copy of all keys begins. `history`: what it is part of, if the primary tells; `length`:
    /// its bytes, if that is known.
    CopyBegins { history: Option<(String, u64)>, length: Option<u64> },
    /// Bytes of the copy.
    Copy(&'a [u8]),
    /// That was all of it. `loaded` has the stream begin.
    CopyEnds,
    /// Commands of the stream. `applied` must follow.
    Commands(Commands<'a>),
}

/// Some commands of the stream.
#[derive(PartialEq, Eq, Debug)]
pub struct Commands<'a> {
    /// From the end of the last unit on.
    pub bytes: &'a [u8],
    /// The arguments of all commands, one behind the other.
    args: Vec<&'a [u8]>,
    /// For each command where its arguments end, and where it ends in `bytes`.
    ends: Vec<(usize, usize)>,
    /// Where what was given out ends in `bytes`: the last command, and empty lines behind it.
    len: usize,
}

/// Why a connection is of no use any more.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct GiveUp {
    pub why: String,
    /// What came was no stream: going on from the same byte would end in the same way.
    pub is_damage: bool,
}

/// Bytes that came and are not done with.
#[derive(Default)]
struct Input {
    bytes: Vec<u8>,
    /// The first that is needed.
    start: usize,
    /// The first that was not looked at.
    at: usize,
    /// Behind the last that came.
    end: usize,
}

/// How often a replica says how far it is, or that it is alive (ms).
const SAY_INTERVAL_MS: i64 = 1000;
/// Bytes of a line, at most.
const LINE_MAX: usize = 4096;
/// Commands that are given out at once.
const BATCH: usize = 64;

impl LinkMachine {
    /// A machine for a connection that was just made.
    pub fn new(introduction: Introduction, limits: LinkLimits, now_ms: i64) -> Self {
        let (handshake, first) = Handshake::begin(introduction);
        let mut machine = Self {
            limits,
            stage: Stage::Handshake(handshake),
            input: Input::default(),
            parser: Parser::default(),
            output: Vec::new(),
            heard_ms: now_ms,
            said_ms: now_ms,
            is_asked: false,
            takes_acks: true,
        };
        machine.say(&first);
        machine
    }

    /// Where to put bytes that come: at least `len` of them.
    pub fn room(&mut self, len: usize) -> &mut [u8] {
        self.input.room(len)
    }

    /// So many bytes came into the room.
    pub const fn received(&mut self, len: usize, now_ms: i64) {
        self.input.end += len;
        self.heard_ms = now_ms;
    }

    /// What has come. Ask again until it is nothing.
    pub fn next_event(&mut self) -> Result<LinkEvent<'_>, GiveUp> {
        self.next_up_to(usize::MAX)
    }

    /// Returns what has come. Of a copy it returns `copy_len_max` bytes at most at a time.
    pub fn next_up_to(&mut self, copy_len_max: usize) -> Result<LinkEvent<'_>, GiveUp> {
        loop {
            match &mut self.stage {
                Stage::Handshake(_) | Stage::AwaitsCopy(_) => {
                    let Some(line) = self.input.line()? else { return Ok(LinkEvent::Nothing) };
                    // Empty lines say that the primary is alive.
                    if !line.is_empty()
                        && let Some(event) = self.take_line(&line)?
                    {
                        return Ok(event);
                    }
                }
                Stage::Copy(end) => {
                    let part = end.take(self.input.rest(), copy_len_max);
                    // The end is an event of its own.
                    if part.len == 0 && part.is_last {
                        self.input.skip(part.used);
                        self.stage = Stage::Loads;
                        return Ok(LinkEvent::CopyEnds);
                    }
                    if part.len == 0 {
                        return Ok(LinkEvent::Nothing);
                    }
                    let at = self.input.at;
                    self.input.skip(part.len);
                    return Ok(LinkEvent::Copy(&self.input.bytes[at..at + part.len]));
                }
                Stage::Loads => return Ok(LinkEvent::Nothing),
                Stage::Stream => return self.commands(),
            }
        }
    }

    /// Takes a line of the handshake, or the one before a copy.
    fn take_line(&mut self, line: &[u8]) -> Result<Option<LinkEvent<'static>>, GiveUp> {
        let handshake = match &mut self.stage {
            Stage::AwaitsCopy(history) => {
                let end = CopyEnd::parse(line).map_err(GiveUp::because)?;
                let (history, length) = (history.take(), end.length());
                self.stage = Stage::Copy(end);
                return Ok(Some(LinkEvent::CopyBegins { history, length }));
            }
            Stage::Handshake(handshake) => handshake,
            _ => return Ok(None),
        };
        match handshake.answer(line) {
            NextStep::Say(words) => self.say(&words),
            NextStep::GiveUp(why) => return Err(GiveUp::because(why)),
            NextStep::ReceiveAll { id, offset } => {
                self.stage = Stage::AwaitsCopy(Some((id, offset)));
                return Ok(Some(LinkEvent::WillCopy));
            }
            NextStep::Sync => {
                self.takes_acks = false;
                self.output.extend_from_slice(b"SYNC\r\n");
                self.stage = Stage::AwaitsCopy(None);
                return Ok(Some(LinkEvent::WillCopy));
            }
            NextStep::GoOn { id } => {
                self.begin_stream();
                return Ok(Some(LinkEvent::GoesOn { id }));
            }
        }
        Ok(None)
    }

    fn begin_stream(&mut self) {
        self.stage = Stage::Stream;
        // The first word shows the primary that the replica is ready.
        self.is_asked = true;
    }

    /// Whether the primary has been asked for the stream, and has not agreed.
    pub fn asked_for_stream(&self) -> bool {
        matches!(&self.stage, Stage::Handshake(handshake) if handshake.asked_for_stream())
    }

    /// Whether all of a copy is here, and `loaded` is awaited.
    pub const fn has_copy(&self) -> bool {
        matches!(self.stage, Stage::Loads)
    }

    /// The copy is in its place: the stream begins.
    pub fn loaded(&mut self, now_ms: i64) {
        self.heard_ms = now_ms;
        self.begin_stream();
    }

    fn commands(&mut self) -> Result<LinkEvent<'_>, GiveUp> {
        let limits = Limits {
            multibulk_len_max: MULTIBULK_LEN_MAX,
            ..Limits::new(self.limits.bulk_len_max)
        };
        let Self { input, parser, .. } = self;
        let bytes = &input.bytes[input.start..input.end];
        let (mut args, mut ends) = (Vec::with_capacity(4 * BATCH), Vec::with_capacity(BATCH));
        let (mut at, mut fault) = (input.at - input.start, None);
        while ends.len() < BATCH && fault.is_none() {
            let begin = at;
            match bytes.get(at..).unwrap_or_default() {
                [] | [b'\r'] => break,
                [b'\n', ..] => at += 1,
                [b'\r', b'\n', ..] => at += 2,
                [b'*', ..] => {
                    let step = parser.next(bytes, &mut at, &limits, &mut args);
                    let (is_whole, end) = match step {
                        Ok(Step::Complete) => (true, at),
                        Ok(Step::Empty) => continue,
                        Ok(_) => (false, bytes.len()),
                        Err(error) => {
                            fault = Some(GiveUp::damage(error));
                            continue;
                        }
                    };
                    if end - begin > self.limits.command_len_max {
                        fault = Some(GiveUp::too_large());
                        args.truncate(ends.last().map_or(0, |(end, _)| *end));
                        at = begin;
                    } else if is_whole {
                        ends.push((args.len(), at));
                    } else {
                        break;
                    }
                }
                [other, ..] => {
                    let other = other.escape_ascii();
                    let why = format!("the stream has something else than commands: '{other}'");
                    fault = Some(GiveUp { why, is_damage: true });
                }
            }
        }
        let is_news = input.start + at > input.at;
        input.at = input.start + at;
        if !is_news {
            return fault.map_or(Ok(LinkEvent::Nothing), Err);
        }
        // A fault is met again behind what is whole.
        let commands = Commands { bytes, args, ends, len: at };
        self.is_asked |= commands.iter().any(|(args, _)| is_getack(args));
        Ok(LinkEvent::Commands(commands))
    }

    /// Notes that the commands that were given out are carried out. The first `len` of the bytes
    /// that came with them are whole units. The rest belongs to a transaction whose end has not
    /// come.
    pub fn applied(&mut self, len: usize) -> Result<(), GiveUp> {
        self.input.start += len;
        debug_assert!(self.input.start <= self.input.at, "more than was given out");
        if self.input.at - self.input.start > self.limits.transaction_len_max {
            let why = "a transaction of the primary is too large".to_owned();
            return Err(GiveUp { why, is_damage: true });
        }
        Ok(())
    }

    /// Whether it is time to say how far the replica is.
    pub const fn wants_ack(&self, now_ms: i64) -> bool {
        matches!(self.stage, Stage::Stream)
            && self.takes_acks
            && (self.is_asked || now_ms - self.said_ms >= SAY_INTERVAL_MS)
    }

    /// Says how far the replica is: up to this offset it has carried out the stream, and up to that
    /// it has it on disk.
    pub fn acknowledge(&mut self, offset: u64, on_disk: Option<u64>, now_ms: i64) {
        self.is_asked = false;
        self.said_ms = now_ms;
        let mut words = vec![b"REPLCONF".to_vec(), b"ACK".to_vec(), digits(offset)];
        if let Some(offset) = on_disk {
            words.extend([b"FACK".to_vec(), digits(offset)]);
        }
        self.say(&words);
    }

    /// Says now and then, while a copy is loaded, that the replica is alive.
    pub fn keep_alive(&mut self, now_ms: i64) {
        if now_ms - self.said_ms >= SAY_INTERVAL_MS {
            self.said_ms = now_ms;
            self.output.push(b'\n');
        }
    }

    /// Gives up if nothing came for too long. All that has come must have been given to the machine
    /// before.
    pub fn check_time(&self, now_ms: i64, timeout_ms: i64) -> Result<(), GiveUp> {
        if now_ms - self.heard_ms <= timeout_ms {
            return Ok(());
        }
        let why = match self.stage {
            Stage::Handshake(_) => "Timeout connecting to the PRIMARY...",
            Stage::AwaitsCopy(_) | Stage::Copy(_) => {
                "Timeout receiving bulk data from PRIMARY... If the problem persists try to set \
                 the 'repl-timeout' parameter to a larger value."
            }
            Stage::Loads => return Ok(()),
            Stage::Stream => "PRIMARY timeout: no data nor PING received...",
        };
        Err(GiveUp::because(why.to_owned()))
    }

    /// The bytes that the driver has to send. It removes what it has sent.
    pub const fn output(&mut self) -> &mut Vec<u8> {
        &mut self.output
    }

    fn say(&mut self, words: &[Vec<u8>]) {
        let words: Vec<&[u8]> = words.iter().map(|word| &**word).collect();
        append_command(&mut self.output, &words);
    }

    /// Bytes that are kept.
    pub const fn kept_bytes(&self) -> usize {
        self.input.end - self.input.start
    }
}

/// Arguments of one command, as in Redis.
const MULTIBULK_LEN_MAX: usize = i32::MAX as usize;

fn digits(number: u64) -> Vec<u8> {
    number.to_string().into_bytes()
}

fn is_getack(args: &[&[u8]]) -> bool {
    matches!(args, [name, word, ..]
        if name.eq_ignore_ascii_case(b"REPLCONF") && word.eq_ignore_ascii_case(b"GETACK"))
}

impl<'a> Commands<'a> {
    /// Each command, and where it ends in `bytes`.
    pub fn iter(&self) -> impl Iterator<Item = (&[&'a [u8]], usize)> {
        let starts = std::iter::once(0).chain(self.ends.iter().map(|(end, _)| *end));
        starts.zip(&self.ends).map(|(start, (args_end, end))| (&self.args[start..*args_end], *end))
    }

    /// Where what was given out ends in `bytes`: the last command, and empty lines behind it.
    pub const fn len(&self) -> usize {
        self.len
    }

    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }
}

impl GiveUp {
    pub const fn because(why: String) -> Self {
        Self { why, is_damage: false }
    }

    fn too_large() -> Self {
        let text = "a command of the primary is larger than proto-max-bulk-len and \
                    client-query-buffer-limit allow here";
        Self { why: text.to_owned(), is_damage: true }
    }

    fn damage(error: ProtocolError) -> Self {
        Self { why: format!("the stream is no protocol: {error:?}"), is_damage: true }
    }
}

impl Input {
    fn rest(&self) -> &[u8] {
        &self.bytes[self.at..self.end]
    }

    /// Bytes that are looked at and not needed any more.
    const fn skip(&mut self, len: usize) {
        self.at += len;
        self.start = self.at;
    }

    /// The next line, without its end.
    fn line(&mut self) -> Result<Option<Vec<u8>>, GiveUp> {
        let rest = self.rest();
        let end = memchr::memchr(b'\n', rest);
        if end.unwrap_or(rest.len()) > LINE_MAX {
            return Err(GiveUp::because("the primary's line is too long".to_owned()));
        }
        let Some(end) = end else { return Ok(None) };
        let line = rest[..end].strip_suffix(b"\r").unwrap_or(&rest[..end]).to_vec();
        self.skip(end + 1);
        Ok(Some(line))
    }

    fn room(&mut self, len: usize) -> &mut [u8] {
        let kept = self.end - self.start;
        // What is kept is moved only when as much in front of it is not needed.
        if self.start >= kept {
            self.bytes.copy_within(self.start..self.end, 0);
            self.at -= self.start;
            (self.start, self.end) = (0, kept);
        }
        if self.bytes.len() < self.end + len {
            self.bytes.resize(self.end + len, 0);
        } else if self.bytes.len() > KEPT_MAX && self.end + len < KEPT_MAX / 2 {
            self.bytes.truncate(self.end + len);
            self.bytes.shrink_to_fit();
        }
        &mut self.bytes[self.end..]
    }
}

/// A buffer that grew beyond this is given back when it is not needed.
const KEPT_MAX: usize = 1 << 20;

#[cfg(test)]
mod tests;
