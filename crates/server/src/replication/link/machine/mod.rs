//! The replica's side of the replication protocol.
//!
//! The machine has no socket, no clock and no keys. The caller gives it the received bytes and the
//! time, handles its events, and sends its output. So tests can split the bytes anywhere, and send
//! wrong ones.

mod apart;
mod channel;
mod receipt;

use bobbin_resp::{Limits, ParseStep, Parser, ProtocolError};

use self::apart::Apart;
pub use self::channel::Channel;
use self::receipt::{CopyProgress, Receipt};
use super::handshake::{Handshake, Introduction, NextStep};
use crate::base::clock::has_passed;

/// The replica's side of its connection to a primary, and of a second connection for a copy.
pub struct LinkMachine {
    limits: LinkLimits,
    stage: LinkStage,
    main: Channel,
    parser: Parser,
    /// How many commands are given out at once.
    batch: usize,
    /// Bytes of the stream that were kept while the copy came, and are not executed yet.
    gathered: usize,
    /// When the replica last sent its offset or a sign of life (ms).
    said_ms: i64,
    /// The primary has asked for the replica's offset.
    is_asked: bool,
    /// An offset about which the primary asked before the stream was on disk up to there.
    owed: Option<u64>,
    /// The primary understands acknowledgements.
    takes_acks: bool,
}

/// How much a primary can make the replica keep in memory.
#[derive(Clone, Copy, Debug)]
pub struct LinkLimits {
    /// The most bytes of one argument.
    pub bulk_len_max: usize,
    /// The most bytes of one command.
    pub command_len_max: usize,
    /// The most bytes of a transaction, which is kept until its end comes.
    pub transaction_len_max: usize,
    /// The most bytes of the stream that are kept while a copy comes on a connection of its own.
    /// The rest stays with the primary.
    pub gathered_len_max: usize,
}

enum LinkStage {
    Handshake(Handshake),
    /// A copy is being received. The history and the offset that it belongs to; `None`: the primary
    /// is too old to give them.
    Copy(Receipt, Option<(String, u64)>),
    /// The primary wants to send the copy on a connection of its own.
    WantsChannel {
        handshake: Handshake,
        main_client: Option<u64>,
    },
    Apart(Box<Apart>),
    /// The copy is complete. The stream waits until it is loaded.
    Loads {
        gathers: bool,
    },
    Stream,
}

/// An event for the caller.
#[derive(PartialEq, Eq, Debug)]
pub enum LinkEvent<'a> {
    /// Nothing complete was received: more bytes are needed.
    Nothing,
    /// The stream continues where it was, perhaps under a new name.
    GoesOn { id: Option<String> },
    /// The primary will send a copy of all keys.
    WillCopy,
    /// The primary will send a copy of all keys on a connection of its own. The caller must open it
    /// and then call `channel_opened`.
    WantsChannel,
    /// A copy of all keys begins. `history` is the history and the offset that it belongs to, and
    /// `database` is the one that the stream has selected behind it, if the primary gives them
    /// here. `length` is its length in bytes, if that is known.
    CopyBegins { history: Option<(String, u64)>, database: Option<u32>, length: Option<u64> },
    /// Bytes of the copy.
    Copy(&'a [u8]),
    /// The copy is complete. The caller must load it and then call `loaded`; the stream follows.
    CopyEnds,
    /// Commands of the stream. The caller must call `applied` afterwards.
    Commands(Commands<'a>),
}

/// Some commands of the stream.
#[derive(PartialEq, Eq, Debug)]
pub struct Commands<'a> {
    /// The bytes from the end of the last unit on.
    pub bytes: &'a [u8],
    /// The arguments of all commands, one behind the other.
    args: Vec<&'a [u8]>,
    /// For each command, where its arguments end in `args`, and where it ends in `bytes`.
    ends: Vec<(usize, usize)>,
    /// Where the given commands, and empty lines behind them, end in `bytes`.
    len: usize,
}

/// Why a connection must be closed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct GiveUp {
    pub why: String,
    /// The stream was damaged, so continuing from the same byte would fail in the same way.
    pub is_damage: bool,
}

/// How often a replica sends its offset, or a sign of life (ms).
const SAY_INTERVAL_MS: i64 = 1000;
const HANDSHAKE_TIMEOUT: &str = "Timeout connecting to the PRIMARY...";
const COPY_TIMEOUT: &str = "Timeout receiving bulk data from PRIMARY... If the problem persists try \
                            to set the 'repl-timeout' parameter to a larger value.";
/// How many commands are given out at once, so that several threads can share them. While commands
/// take long there are fewer, so that the replica can report its offset in between.
const BATCH: usize = 512;
const BATCH_OF_SLOW: usize = 64;
/// The length of the shortest argument: `$0` and two line ends.
const ARGUMENT_LEN_MIN: usize = 6;

impl LinkMachine {
    /// A machine for a new connection.
    pub fn new(introduction: Introduction, limits: LinkLimits, now_ms: i64) -> Self {
        let (handshake, first) = Handshake::begin(introduction);
        let mut machine = Self {
            limits,
            stage: LinkStage::Handshake(handshake),
            main: Channel::new(now_ms),
            parser: Parser::default(),
            batch: BATCH,
            gathered: 0,
            said_ms: now_ms,
            is_asked: false,
            owed: None,
            takes_acks: true,
        };
        machine.main.say(&first);
        machine
    }

    /// Room for received bytes, at least `len` of them.
    pub fn room(&mut self, len: usize) -> &mut [u8] {
        self.main.room(len)
    }

    /// Notes that `len` bytes were received into the room.
    pub const fn received(&mut self, len: usize, now_ms: i64) {
        self.main.received(len, now_ms);
    }

    /// Begins the talk on the connection for the copy, which was opened.
    pub fn channel_opened(&mut self, now_ms: i64) {
        if let LinkStage::WantsChannel { handshake, main_client } = &self.stage {
            let (copy, first) = handshake.fetch_apart(*main_client);
            let apart = Apart::new(copy, &first, main_client.is_some(), now_ms);
            self.stage = LinkStage::Apart(Box::new(apart));
        }
    }

    /// The connection for a copy, while it is needed.
    pub const fn copy_channel(&mut self) -> Option<&mut Channel> {
        match &mut self.stage {
            LinkStage::Apart(apart) => Some(&mut apart.channel),
            _ => None,
        }
    }

    /// The next event. The caller repeats this until the event is `Nothing`.
    pub fn next_event(&mut self) -> Result<LinkEvent<'_>, GiveUp> {
        self.next_up_to(usize::MAX)
    }

    /// The next event, with at most `copy_len_max` bytes of a copy.
    pub fn next_up_to(&mut self, copy_len_max: usize) -> Result<LinkEvent<'_>, GiveUp> {
        while let LinkStage::Handshake(_) = &self.stage {
            let Some(line) = self.main.input.line()? else { return Ok(LinkEvent::Nothing) };
            if let Some(event) = self.take_line(&line)? {
                return Ok(event);
            }
        }
        let received = match &mut self.stage {
            LinkStage::Copy(receipt, _) => receipt.next(&mut self.main.input, copy_len_max)?,
            LinkStage::Apart(apart) => apart.next(&mut self.main, copy_len_max)?,
            LinkStage::Stream => return self.commands(),
            LinkStage::Handshake(_) | LinkStage::WantsChannel { .. } | LinkStage::Loads { .. } => {
                CopyProgress::Nothing
            }
        };
        Ok(match received {
            CopyProgress::Nothing => LinkEvent::Nothing,
            CopyProgress::Begins(length) => {
                let (history, database) = match &mut self.stage {
                    LinkStage::Apart(apart) => apart.cut(),
                    LinkStage::Copy(_, history) => (history.take(), None),
                    _ => (None, None),
                };
                LinkEvent::CopyBegins { history, database, length }
            }
            CopyProgress::Bytes(range) => {
                let channel = match &self.stage {
                    LinkStage::Apart(apart) => &apart.channel,
                    _ => &self.main,
                };
                LinkEvent::Copy(&channel.input.bytes[range])
            }
            CopyProgress::Whole => {
                self.stage = LinkStage::Loads { gathers: self.gathers() };
                LinkEvent::CopyEnds
            }
        })
    }

    /// Handles a line of the handshake.
    fn take_line(&mut self, line: &[u8]) -> Result<Option<LinkEvent<'static>>, GiveUp> {
        let LinkStage::Handshake(handshake) = &mut self.stage else { return Ok(None) };
        match handshake.answer(line) {
            NextStep::Say(words) => self.main.say(&words),
            NextStep::GiveUp(why) => return Err(GiveUp::because(why)),
            NextStep::ReceiveAll { id, offset } => {
                self.stage = LinkStage::Copy(Receipt::Awaited, Some((id, offset)));
                return Ok(Some(LinkEvent::WillCopy));
            }
            NextStep::Sync => {
                self.takes_acks = false;
                self.main.output().extend_from_slice(b"SYNC\r\n");
                self.stage = LinkStage::Copy(Receipt::Awaited, None);
                return Ok(Some(LinkEvent::WillCopy));
            }
            NextStep::FetchApart { main_client } => {
                let stage = std::mem::replace(&mut self.stage, LinkStage::Stream);
                if let LinkStage::Handshake(handshake) = stage {
                    self.stage = LinkStage::WantsChannel { handshake, main_client };
                }
                return Ok(Some(LinkEvent::WantsChannel));
            }
            NextStep::GoOn { id } => {
                self.begin_stream();
                return Ok(Some(LinkEvent::GoesOn { id }));
            }
        }
        Ok(None)
    }

    fn begin_stream(&mut self) {
        self.stage = LinkStage::Stream;
        // Acknowledge at once: this shows the primary that the replica is ready.
        self.is_asked = true;
    }

    /// Whether the primary was asked for the stream and has not agreed yet.
    pub fn asked_for_stream(&self) -> bool {
        matches!(&self.stage, LinkStage::Handshake(handshake) if handshake.asked_for_stream())
    }

    /// Whether a copy is complete, and the machine waits for `loaded`.
    pub const fn has_copy(&self) -> bool {
        matches!(self.stage, LinkStage::Loads { .. })
    }

    /// Whether the stream behind a copy has just been asked for, while the copy comes.
    pub fn asks_behind_copy(&self) -> bool {
        matches!(&self.stage, LinkStage::Apart(apart) if apart.asks())
    }

    /// Whether the stream comes and is kept until the copy is loaded.
    pub fn gathers(&self) -> bool {
        match &self.stage {
            LinkStage::Apart(apart) => apart.gathers(),
            LinkStage::Loads { gathers } => *gathers,
            _ => false,
        }
    }

    /// Whether the stream comes and is executed at once.
    pub const fn streams(&self) -> bool {
        matches!(self.stage, LinkStage::Stream)
    }

    /// Whether more of the stream may be received. While the stream is kept, there is a limit.
    /// `is_held`: the stream is not being executed now.
    pub fn has_room(&self, is_held: bool) -> bool {
        !(is_held || self.gathers()) || self.kept_bytes() < self.limits.gathered_len_max
    }

    /// How many bytes may be received at once, so that no more than the limit are kept. At least
    /// one: this is for a caller that knows that there is room.
    pub fn received_len_max(&self) -> usize {
        if self.gathers() {
            self.limits.gathered_len_max.saturating_sub(self.kept_bytes()).max(1)
        } else {
            usize::MAX
        }
    }

    /// The most bytes of the stream that are kept while a copy comes.
    pub const fn gathered_len_max(&self) -> usize {
        self.limits.gathered_len_max
    }

    /// Bytes of the stream that were kept while the copy came, and are not executed yet.
    pub fn gathered_bytes(&self) -> usize {
        if self.gathers() { self.kept_bytes() } else { self.gathered }
    }

    /// The copy is loaded: begins the stream.
    pub fn loaded(&mut self, now_ms: i64) {
        self.main.heard_ms = now_ms;
        self.gathered = self.gathered_bytes();
        self.begin_stream();
    }

    fn commands(&mut self) -> Result<LinkEvent<'_>, GiveUp> {
        let limits = Limits {
            multibulk_len_max: MULTIBULK_LEN_MAX,
            ..Limits::new(self.limits.bulk_len_max)
        };
        let batch = self.batch;
        let Self { main: Channel { input, .. }, parser, .. } = self;
        let bytes = &input.bytes[input.start..input.end];
        let (mut at, mut fault) = (input.at - input.start, None);
        // Often only one command has come.
        let args_max = bytes.len().saturating_sub(at) / ARGUMENT_LEN_MIN;
        let mut args = Vec::with_capacity(args_max.min(4 * batch));
        let mut ends = Vec::with_capacity(args_max.min(batch));
        while ends.len() < batch && fault.is_none() {
            let begin = at;
            match bytes.get(at..).unwrap_or_default() {
                [] | [b'\r'] => break,
                [b'\n', ..] => at += 1,
                [b'\r', b'\n', ..] => at += 2,
                [b'*', ..] => {
                    let step = parser.next(bytes, &mut at, &limits, &mut args);
                    let (is_whole, end) = match step {
                        Ok(ParseStep::Complete) => (true, at),
                        Ok(ParseStep::Empty) => continue,
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
        // The fault is found again when the complete commands have been executed.
        let commands = Commands { bytes, args, ends, len: at };
        self.is_asked |= commands.iter().any(|(args, _)| is_getack(args));
        Ok(LinkEvent::Commands(commands))
    }

    /// Notes that the given commands were executed. The first `len` of their bytes are complete
    /// units. The rest belongs to a transaction whose end has not come.
    pub fn applied(&mut self, len: usize) -> Result<(), GiveUp> {
        let input = &mut self.main.input;
        input.start += len;
        self.gathered = self.gathered.saturating_sub(len);
        debug_assert!(input.start <= input.at, "more than was given out");
        if input.at - input.start > self.limits.transaction_len_max {
            let why = "a transaction of the primary is too large".to_owned();
            return Err(GiveUp { why, is_damage: true });
        }
        Ok(())
    }

    /// Notes whether the last commands took long.
    pub const fn note_slow(&mut self, is_slow: bool) {
        self.batch = if is_slow { BATCH_OF_SLOW } else { BATCH };
    }

    /// Whether it is time to report the replica's offset. `on_disk`: up to where the stream is on
    /// disk, if there is a log.
    pub fn wants_ack(&self, on_disk: Option<u64>, now_ms: i64) -> bool {
        let is_paid = self.owed.is_some_and(|owed| on_disk.is_none_or(|offset| offset >= owed));
        matches!(self.stage, LinkStage::Stream)
            && self.takes_acks
            && (self.is_asked || is_paid || self.has_been_silent(now_ms))
    }

    /// Whether the primary waits to hear that the stream is on disk.
    pub const fn owes_ack(&self) -> bool {
        self.owed.is_some()
    }

    /// Reports up to which offset the replica has executed the stream, and up to which it has the
    /// stream on disk.
    pub fn acknowledge(&mut self, offset: u64, on_disk: Option<u64>, now_ms: i64) {
        if std::mem::take(&mut self.is_asked) {
            self.owed = Some(offset);
        }
        self.owed = self.owed.filter(|owed| on_disk.is_some_and(|offset| offset < *owed));
        self.said_ms = now_ms;
        let mut words = vec![b"REPLCONF".to_vec(), b"ACK".to_vec(), digits(offset)];
        if let Some(offset) = on_disk {
            words.extend([b"FACK".to_vec(), digits(offset)]);
        }
        self.main.say(&words);
    }

    /// Whether the primary has heard nothing for as long as it may.
    const fn has_been_silent(&self, now_ms: i64) -> bool {
        has_passed(now_ms, self.said_ms, SAY_INTERVAL_MS)
    }

    /// Sends a sign of life now and then while a copy is loaded.
    pub fn keep_alive(&mut self, now_ms: i64) {
        if self.has_been_silent(now_ms) {
            self.said_ms = now_ms;
            self.main.output().push(b'\n');
        }
    }

    /// Fails if nothing was received for too long. The caller must first give the machine all
    /// received bytes.
    pub fn check_time(&mut self, now_ms: i64, timeout_ms: i64) -> Result<(), GiveUp> {
        // If the system's clock was set back, the time begins anew.
        self.main.heard_ms = self.main.heard_ms.min(now_ms);
        if let LinkStage::Apart(apart) = &mut self.stage {
            apart.channel.heard_ms = apart.channel.heard_ms.min(now_ms);
        }
        let since_ms = now_ms - timeout_ms;
        let is_silent = self.main.heard_ms < since_ms;
        let why = match &self.stage {
            LinkStage::Apart(apart) => apart.overdue(&self.main, since_ms),
            LinkStage::Loads { .. } | LinkStage::WantsChannel { .. } => None,
            LinkStage::Handshake(_) => is_silent.then_some(HANDSHAKE_TIMEOUT),
            LinkStage::Copy(..) => is_silent.then_some(COPY_TIMEOUT),
            LinkStage::Stream => {
                is_silent.then_some("PRIMARY timeout: no data nor PING received...")
            }
        };
        why.map_or(Ok(()), |why| Err(GiveUp::because(why.to_owned())))
    }

    /// The bytes to send. The caller removes those that were sent.
    pub const fn output(&mut self) -> &mut Vec<u8> {
        self.main.output()
    }

    /// How many received bytes are kept.
    pub const fn kept_bytes(&self) -> usize {
        self.main.input.end - self.main.input.start
    }
}

/// The most arguments of one command, as in Redis.
const MULTIBULK_LEN_MAX: usize = i32::MAX as usize;

fn digits(number: u64) -> Vec<u8> {
    number.to_string().into_bytes()
}

fn is_getack(args: &[&[u8]]) -> bool {
    matches!(args, [name, word, ..]
        if name.eq_ignore_ascii_case(b"REPLCONF") && word.eq_ignore_ascii_case(b"GETACK"))
}

impl<'a> Commands<'a> {
    /// Each command's arguments, and where it ends in `bytes`.
    pub fn iter(&self) -> impl Iterator<Item = (&[&'a [u8]], usize)> {
        let starts = std::iter::once(0).chain(self.ends.iter().map(|(end, _)| *end));
        starts.zip(&self.ends).map(|(start, (args_end, end))| (&self.args[start..*args_end], *end))
    }

    /// Where the given commands, and empty lines behind them, end in `bytes`.
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

#[cfg(test)]
mod tests;
