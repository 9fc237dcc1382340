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
    pub fn next(&mut self) -> Result<LinkEvent<'_>, GiveUp> {
        self.next_up_to(usize::MAX)
    }

    /// What has come, and of a copy so many bytes at most at a time.
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

    /// The commands that were given out are carried out. Of the bytes that came with them so many
    /// are whole units; the rest belongs to a transaction whose end is awaited.
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

    /// What is to be sent. The driver takes away what it has sent.
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
mod tests {
    use super::*;

    const ID: &str = "0123456789012345678901234567890123456789";
    const LIMITS: LinkLimits =
        LinkLimits { bulk_len_max: 1000, command_len_max: 2000, transaction_len_max: 3000 };

    /// What a replica sees, whatever the pieces are in which it comes.
    #[derive(Default, PartialEq, Eq, Debug)]
    struct Seen {
        goes_on: Option<Option<String>>,
        copy_begins: Option<(Option<(String, u64)>, Option<u64>)>,
        copy: Vec<u8>,
        copy_ends: bool,
        commands: Vec<Vec<Vec<u8>>>,
        /// Bytes of the stream.
        stream: Vec<u8>,
        end: Option<GiveUp>,
        said: Vec<u8>,
    }

    fn introduction(position: Option<(String, u64)>) -> Introduction {
        Introduction { position, port: 7000, ..Introduction::default() }
    }

    /// Gives a machine these pieces of bytes, one after the other.
    fn see<'a>(
        position: Option<(String, u64)>,
        pieces: impl IntoIterator<Item = &'a [u8]>,
    ) -> (LinkMachine, Seen) {
        let mut machine = LinkMachine::new(introduction(position), LIMITS, 0);
        let mut seen = Seen::default();
        for piece in pieces {
            machine.room(piece.len())[..piece.len()].copy_from_slice(piece);
            machine.received(piece.len(), 0);
            if let Err(end) = look(&mut machine, &mut seen) {
                seen.end = Some(end);
                break;
            }
        }
        seen.said.append(machine.output());
        (machine, seen)
    }

    fn look(machine: &mut LinkMachine, seen: &mut Seen) -> Result<(), GiveUp> {
        loop {
            match machine.next()? {
                LinkEvent::Nothing => return Ok(()),
                LinkEvent::WillCopy => {}
                LinkEvent::GoesOn { id } => seen.goes_on = Some(id),
                LinkEvent::CopyBegins { history, length } => {
                    seen.copy_begins = Some((history, length));
                }
                LinkEvent::Copy(bytes) => seen.copy.extend_from_slice(bytes),
                LinkEvent::CopyEnds => {
                    seen.copy_ends = true;
                    machine.loaded(0);
                }
                LinkEvent::Commands(commands) => {
                    let taken = |(args, _): (&[&[u8]], usize)| {
                        args.iter().map(|arg| arg.to_vec()).collect::<Vec<_>>()
                    };
                    seen.commands.extend(commands.iter().map(taken));
                    let len = commands.len();
                    seen.stream.extend_from_slice(&commands.bytes[..len]);
                    machine.applied(len)?;
                }
            }
        }
    }

    /// What is seen of these bytes, which is the same however they are cut.
    fn seen(position: Option<(String, u64)>, bytes: &[u8]) -> Seen {
        let (_, whole) = see(position.clone(), [bytes]);
        let (_, single) = see(position.clone(), bytes.chunks(1));
        assert_eq!(whole, single, "byte by byte");
        for at in 1..bytes.len() {
            let (first, second) = bytes.split_at(at);
            let (_, two) = see(position.clone(), [first, second]);
            assert_eq!(whole, two, "cut at {at}");
        }
        whole
    }

    /// The answers to all that is said before PSYNC, with what old and new servers say.
    fn greeting() -> String {
        "+PONG\r\n-ERR Unrecognized REPLCONF option: x\r\n\n+OK\r\n+OK\r\n".to_owned()
    }

    const STREAM: &[u8] =
        b"*2\r\n$6\r\nSELECT\r\n$1\r\n0\r\n\n*3\r\n$3\r\nSET\r\n$1\r\na\r\n$2\r\n\r\n\r\n\
          *3\r\n$8\r\nREPLCONF\r\n$6\r\nGETACK\r\n$1\r\n*\r\n*0\r\n*1\r\n$4\r\nPING\r\n\r\n";

    #[test]
    fn a_copy_and_its_stream_come_in_any_pieces() {
        let mark = "m".repeat(40);
        for (header, footer) in [("$11".to_owned(), ""), (format!("$EOF:{mark}"), &*mark)] {
            let head = greeting() + &format!("\n\n+FULLRESYNC {ID} 77\r\n\n\n{header}\r\n");
            let bytes = [head.as_bytes(), b"some\nkeys*1", footer.as_bytes(), STREAM].concat();
            let seen = seen(None, &bytes);
            assert_eq!(seen.end, None);
            let length = footer.is_empty().then_some(11);
            assert_eq!(seen.copy_begins, Some((Some((ID.to_owned(), 77)), length)));
            assert!(seen.copy_ends && seen.copy == b"some\nkeys*1");
            assert!(seen.stream == STREAM);
            let names: Vec<_> = seen.commands.iter().map(|args| args[0].clone()).collect();
            assert_eq!(names, [&b"SELECT"[..], b"SET", b"REPLCONF", b"PING"]);
            let said = String::from_utf8(seen.said).unwrap();
            assert!(said.ends_with("$5\r\nPSYNC\r\n$1\r\n?\r\n$2\r\n-1\r\n"), "{said}");
        }
    }

    #[test]
    fn a_stream_goes_on_in_any_pieces() {
        let position = Some((ID.to_owned(), 100));
        let bytes = [(greeting() + "\n+CONTINUE\r\n").as_bytes(), STREAM].concat();
        let seen = seen(position, &bytes);
        assert!(seen.goes_on == Some(None) && seen.stream == STREAM && seen.end.is_none());
        let said = String::from_utf8(seen.said).unwrap();
        assert!(said.ends_with(&format!("$40\r\n{ID}\r\n$3\r\n101\r\n")), "{said}");
    }

    #[test]
    fn a_primary_of_old_is_told_nothing() {
        let head = greeting() + "-ERR unknown command 'PSYNC'\r\n$4\r\nkeys";
        let bytes = [head.as_bytes(), STREAM].concat();
        let seen = seen(None, &bytes);
        assert_eq!(seen.copy_begins, Some((None, Some(4))));
        assert!(seen.stream == STREAM && seen.said.ends_with(b"SYNC\r\n"));
        let (machine, _) = see(None, [&bytes[..]]);
        assert!(!machine.wants_ack(1_000_000), "it would answer within the stream");
    }

    #[test]
    fn lies_and_garbage_end_the_connection() {
        let go_on = greeting() + "+CONTINUE\r\n";
        let full = greeting() + &format!("+FULLRESYNC {ID} 0\r\n");
        let long = "x".repeat(LINE_MAX + 1);
        for (head, wrong, is_damage) in [
            ("", "HTTP/1.1 400 Bad Request\r\n", false),
            ("", "$5\r\nhello\r\n", false),
            ("", &*long, false),
            (&full, "-ERR later\r\n", false),
            (&full, "$-5\r\n", false),
            (&full, "$EOF:abc\r\n", false),
            (&full, "+OK\r\n", false),
            (&full, &*long, false),
            (&go_on, "+OK\r\n", true),
            (&go_on, "PING\r\n", true),
            (&go_on, "\rx", true),
            (&go_on, "*1\r\n$9223372036854775807\r\n", true),
            (&go_on, "*1\r\n$1001\r\n", true),
            (&go_on, "*9223372036854775807\r\n", true),
            (&go_on, "*1\r\n+OK\r\n", true),
            (&go_on, "*1\r\n$1\r\nab\r\n", true),
        ] {
            let before = if is_damage { STREAM } else { b"" };
            let bytes = [head.as_bytes(), before, wrong.as_bytes()].concat();
            let seen = seen(Some((ID.to_owned(), 5)), &bytes);
            assert!(seen.stream == before, "what came before is good");
            let end = seen.end.unwrap_or_else(|| panic!("{wrong}"));
            assert_eq!(end.is_damage, is_damage, "{wrong} {}", end.why);
        }
    }

    #[test]
    fn what_is_kept_has_a_limit() {
        let go_on = greeting() + "+CONTINUE\r\n";
        let argument = format!("$1000\r\n{}\r\n", "x".repeat(1000));
        let position = || Some((ID.to_owned(), 5));
        for (len, command) in [(1, format!("*1\r\n{argument}")), (2, format!("*9\r\n{argument}"))] {
            let bytes = [&*go_on, &*command, if len == 2 { &argument } else { "" }].concat();
            let seen = seen(position(), bytes.as_bytes());
            assert_eq!(seen.end.is_some(), len == 2);
        }
        // A transaction is kept until its end has come.
        let (mut machine, seen) = see(position(), [go_on.as_bytes()]);
        assert!(seen.end.is_none());
        let command = format!("*1\r\n{argument}");
        let mut ended = Ok(());
        for _ in 0..4 {
            machine.room(command.len())[..command.len()].copy_from_slice(command.as_bytes());
            machine.received(command.len(), 0);
            assert!(matches!(machine.next(), Ok(LinkEvent::Commands(_))));
            ended = machine.applied(0);
        }
        assert!(ended.is_err_and(|end| end.is_damage));
    }

    #[test]
    fn little_memory_is_kept_of_a_long_stream() {
        let (mut machine, _) =
            see(Some((ID.to_owned(), 5)), [(greeting() + "+CONTINUE\r\n").as_bytes()]);
        let mut seen = Seen::default();
        let stream = STREAM.repeat(10);
        for piece in stream.chunks(7).cycle().take(stream.len() * 10) {
            let room = machine.room(100);
            assert!(room.len() < 10_000, "{}", room.len());
            room[..piece.len()].copy_from_slice(piece);
            machine.received(piece.len(), 0);
            look(&mut machine, &mut seen).unwrap();
            assert!(machine.kept_bytes() < 100);
        }
        assert!(seen.stream.starts_with(&stream.repeat(50)));
    }

    #[test]
    fn silence_ends_the_connection_and_acks_are_said_in_time() {
        let (mut machine, _) = see(None, []);
        assert!(machine.check_time(60_000, 60_000).is_ok());
        assert!(machine.check_time(60_001, 60_000).is_err());
        assert!(!machine.wants_ack(60_000));
        let position = Some((ID.to_owned(), 5));
        let head = greeting() + "+CONTINUE\r\n";
        (machine, _) = see(position, [head.as_bytes()]);
        assert!(machine.wants_ack(0), "the first at once");
        machine.acknowledge(5, None, 10);
        assert_eq!(machine.output(), b"*3\r\n$8\r\nREPLCONF\r\n$3\r\nACK\r\n$1\r\n5\r\n");
        assert!(!machine.wants_ack(1009) && machine.wants_ack(1010));
        machine.output().clear();
        machine.acknowledge(7, Some(6), 1010);
        assert!(machine.output().ends_with(b"$4\r\nFACK\r\n$1\r\n6\r\n"));
        let ask = b"*3\r\n$8\r\nreplconf\r\n$6\r\ngetack\r\n$1\r\n*\r\n";
        machine.room(ask.len())[..ask.len()].copy_from_slice(ask);
        machine.received(ask.len(), 1020);
        assert!(matches!(machine.next(), Ok(LinkEvent::Commands(_))));
        assert!(machine.wants_ack(1020), "it is asked");
        assert!(machine.check_time(61_020, 60_000).is_ok());
        assert!(machine.check_time(61_021, 60_000).is_err());
    }

    #[test]
    fn nothing_is_missed_while_a_copy_is_loaded() {
        let head = greeting() + &format!("+FULLRESYNC {ID} 7\r\n$4\r\nkeys");
        let bytes = [head.as_bytes(), STREAM].concat();
        let mut machine = LinkMachine::new(introduction(None), LIMITS, 0);
        machine.room(bytes.len())[..bytes.len()].copy_from_slice(&bytes);
        machine.received(bytes.len(), 0);
        while machine.next().unwrap() != LinkEvent::CopyEnds {}
        assert_eq!(machine.next(), Ok(LinkEvent::Nothing));
        machine.output().clear();
        machine.keep_alive(999);
        assert!(machine.output().is_empty());
        machine.keep_alive(1000);
        assert_eq!(machine.output(), b"\n");
        assert!(machine.check_time(1_000_000, 60_000).is_ok(), "it is we who take long");
        machine.loaded(1_000_000);
        assert!(machine.wants_ack(1_000_000));
        assert!(machine.check_time(1_000_001, 60_000).is_ok());
        assert!(matches!(machine.next(), Ok(LinkEvent::Commands(_))));
    }
}
