//! Requests: turns the bytes of a connection into the arguments of its next command.
//!
//! Nearly every command is complete when the parser first sees it. Then it is parsed in one pass,
//! which writes only the argument slices. If a command is not complete, the progress in it is kept
//! only if it has many arguments or a long line so far. So a command that arrives in many pieces
//! costs time linear in its size. A short command is cheaper to parse again than to remember.

use memchr::{memchr, memchr2};

use crate::{ProtocolError, inline, parse_i64};

/// Finds commands in a connection's bytes. The most that it keeps is the progress in one partial
/// command.
#[derive(Debug, Default)]
pub struct Parser {
    partial: Option<Box<Partial>>,
}

/// A large argument of which the first part has arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LargeArgument {
    /// Where it starts, counted from the command's start.
    pub start: usize,
    pub len: usize,
}

impl Parser {
    /// Parses the command that starts at `input[*position]`.
    ///
    /// On `Complete`, the command's arguments have been pushed to `arguments` as slices of `input`,
    /// and `*position` is behind the command. On `Incomplete`, nothing was pushed and `*position`
    /// has not changed: call this again when more bytes were appended. In between the bytes may be
    /// moved, but none of them may be changed, and the command must start at the position that is
    /// passed. After an error the connection must be closed.
    #[inline]
    pub fn next<'a>(
        &mut self,
        input: &'a [u8],
        position: &mut usize,
        limits: &Limits,
        arguments: &mut Vec<&'a [u8]>,
    ) -> Result<ParseStep, ProtocolError> {
        let Some(command) = input.get(*position..) else {
            debug_assert!(false, "position {} of {} bytes", *position, input.len());
            return Ok(ParseStep::Incomplete { wanted: 1 });
        };
        match command {
            [] => Ok(ParseStep::Incomplete { wanted: 1 }),
            [b'*', ..] if self.partial.is_none() => {
                self.multibulk(command, position, limits, arguments)
            }
            [b'*', ..] => self.resume(command, position, limits, arguments),
            _ => self.inline(command, position, limits, arguments),
        }
    }

    /// The argument at which the partial command ends, if it is a large one.
    pub fn large(&self) -> Option<LargeArgument> {
        self.partial.as_ref()?.large
    }

    /// From now on the argument of `large` is not among the bytes that are passed. The line end
    /// that follows it comes directly behind its header. The caller keeps the argument itself.
    pub fn keep_outside(&mut self) {
        if let Some(partial) = &mut self.partial
            && let Some(large) = partial.large.take()
        {
            partial.outside.push(partial.spans.len());
            partial.spans.push(Span { start: large.start, end: large.start });
            partial.remaining -= 1;
            (partial.at, partial.searched, partial.line_end_due) = (large.start, 0, true);
        }
    }

    /// How many bytes of the partial command are parsed, from its start on: complete arguments, and
    /// what comes before them. 0 if no progress is kept.
    pub fn parsed_len(&self) -> usize {
        self.partial.as_ref().map_or(0, |partial| partial.at)
    }

    /// Whether the last argument so far was kept outside (`keep_outside`) and the line end behind
    /// it is missing.
    pub fn awaits_line_end(&self) -> bool {
        self.partial.as_ref().is_some_and(|partial| partial.line_end_due)
    }

    /// Whether progress in a partial command is kept. Then the caller must not drop the command's
    /// bytes.
    pub fn is_partial(&self) -> bool {
        self.partial.is_some()
    }

    /// The heap bytes that a partial command uses.
    pub fn memory_len(&self) -> usize {
        self.partial.as_ref().map_or(0, |partial| {
            size_of::<Partial>() + partial.spans.capacity() * size_of::<Span>()
        })
    }

    /// The usual case: parses the whole command from its first byte, with no progress kept before.
    #[inline]
    fn multibulk<'a>(
        &mut self,
        command: &'a [u8],
        position: &mut usize,
        limits: &Limits,
        arguments: &mut Vec<&'a [u8]>,
    ) -> Result<ParseStep, ProtocolError> {
        let (count, mut at) = match multibulk_header(command, 0, limits)? {
            Header::Complete { value, end } => (value, end),
            Header::Incomplete => {
                self.keep_line(command.len());
                return Ok(ParseStep::Incomplete { wanted: 1 });
            }
        };
        if count == 0 {
            *position += at;
            return Ok(ParseStep::Empty);
        }
        let base = arguments.len();
        for index in 0..count {
            match bulk(command, at, 0, limits) {
                Ok(Bulk::Complete { start, end }) => {
                    arguments.push(&command[start..end]);
                    at = end + CRLF_LEN;
                }
                Ok(Bulk::Incomplete { searched, wanted, len }) => {
                    let large = large(command, len, wanted);
                    let remember = index >= RESUME_ARGUMENTS_MIN || large.is_some();
                    if remember || searched >= RESUME_LINE_LEN_MIN {
                        let spans = spans_of(command, &arguments[base..]);
                        let remaining = count - index;
                        self.keep(Partial { remaining, spans, at, searched, large, ..PARTIAL });
                    }
                    arguments.truncate(base);
                    return Ok(ParseStep::Incomplete { wanted });
                }
                Err(error) => {
                    arguments.truncate(base);
                    return Err(error);
                }
            }
        }
        *position += at;
        Ok(ParseStep::Complete)
    }

    /// Continues a partial command where parsing stopped.
    #[cold]
    fn resume<'a>(
        &mut self,
        command: &'a [u8],
        position: &mut usize,
        limits: &Limits,
        arguments: &mut Vec<&'a [u8]>,
    ) -> Result<ParseStep, ProtocolError> {
        let Some(mut partial) = self.partial.take() else {
            return self.multibulk(command, position, limits, arguments);
        };
        if partial.remaining == 0 && !partial.line_end_due {
            // The first line was not even complete.
            match multibulk_header(command, partial.searched, limits)? {
                Header::Complete { value: 0, end } => {
                    *position += end;
                    return Ok(ParseStep::Empty);
                }
                Header::Complete { value, end } => {
                    (partial.remaining, partial.at, partial.searched) = (value, end, 0);
                }
                Header::Incomplete => {
                    self.keep_line(command.len());
                    return Ok(ParseStep::Incomplete { wanted: 1 });
                }
            }
        }
        loop {
            if partial.line_end_due {
                let rest = &command[partial.at..];
                if rest.len() < CRLF_LEN {
                    self.partial = Some(partial);
                    return Ok(ParseStep::Incomplete { wanted: CRLF_LEN - rest.len() });
                }
                if !rest.starts_with(b"\r\n") {
                    return Err(ProtocolError::InvalidCrlf);
                }
                partial.at += CRLF_LEN;
                partial.line_end_due = false;
            }
            if partial.remaining == 0 {
                break;
            }
            match bulk(command, partial.at, partial.searched, limits)? {
                Bulk::Complete { start, end } => {
                    partial.spans.push(Span { start, end });
                    partial.remaining -= 1;
                    (partial.at, partial.searched) = (end + CRLF_LEN, 0);
                }
                Bulk::Incomplete { searched, wanted, len } => {
                    partial.searched = searched;
                    partial.large = large(command, len, wanted);
                    self.partial = Some(partial);
                    return Ok(ParseStep::Incomplete { wanted });
                }
            }
        }
        arguments.reserve(partial.spans.len());
        arguments.extend(partial.spans.iter().map(|span| &command[span.start..span.end]));
        *position += partial.at;
        if partial.outside.is_empty() {
            Ok(ParseStep::Complete)
        } else {
            Ok(ParseStep::CompleteOutside(partial.outside))
        }
    }

    #[cold]
    fn keep(&mut self, partial: Partial) {
        self.partial = Some(Box::new(partial));
    }

    /// Remembers that a command's first line does not end within its first `searched` bytes.
    #[cold]
    fn keep_line(&mut self, searched: usize) {
        if searched >= RESUME_LINE_LEN_MIN {
            self.keep(Partial { searched, ..PARTIAL });
        }
    }

    /// Parses a command as people type it: one line.
    #[cold]
    fn inline<'a>(
        &mut self,
        command: &'a [u8],
        position: &mut usize,
        limits: &Limits,
        arguments: &mut Vec<&'a [u8]>,
    ) -> Result<ParseStep, ProtocolError> {
        let searched = self.partial.take().map_or(0, |partial| partial.searched);
        // A NUL hides everything behind it, as in a C string, until the line is too long.
        let newline = memchr2(b'\n', 0, &command[searched..]).map(|found| searched + found);
        let Some(newline) = newline.filter(|&at| command[at] == b'\n') else {
            if command.len() > limits.inline_len_max {
                return Err(ProtocolError::InlineTooBig);
            }
            self.keep_line(newline.unwrap_or(command.len()));
            return Ok(ParseStep::Incomplete { wanted: 1 });
        };
        // This must not depend on how the bytes arrive.
        if newline > limits.inline_len_max {
            return Err(ProtocolError::InlineTooBig);
        }
        let line = &command[..newline];
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        let step = if memchr2(b'"', b'\'', line).is_some() {
            match inline::split_arguments(line).ok_or(ProtocolError::UnbalancedQuotes)? {
                words if words.is_empty() => ParseStep::Empty,
                words => ParseStep::Inline(words),
            }
        } else {
            let base = arguments.len();
            inline::split_plain(line, arguments);
            if arguments.len() == base { ParseStep::Empty } else { ParseStep::Complete }
        };
        *position += newline + 1;
        Ok(step)
    }
}

/// What was found at a position.
#[derive(Debug, PartialEq, Eq)]
pub enum ParseStep {
    /// A command; its arguments have been pushed.
    Complete,
    /// A command. The arguments with these numbers are kept outside (`Parser::keep_outside`), and
    /// empty slices were pushed for them.
    CompleteOutside(Vec<usize>),
    /// A command typed as a line with quotes. Its arguments had to be unquoted.
    Inline(Vec<Vec<u8>>),
    /// There is nothing to execute (an empty line, `*0`). The position is behind it.
    Empty,
    /// The command's end has not arrived. At least `wanted` more bytes are missing. If they are the
    /// rest of an argument whose length is known, the number is exact.
    Incomplete { wanted: usize },
}

/// The limits of what a client may send. `Limits::new` gives those of a client that has
/// authenticated.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// The most bytes of one argument: `proto-max-bulk-len`, which is at least a megabyte.
    pub bulk_len_max: usize,
    /// The most arguments of one command.
    pub multibulk_len_max: usize,
    /// The most bytes of a line whose end was not seen.
    pub inline_len_max: usize,
    /// The client has not authenticated yet, so it may send only short commands.
    pub unauthenticated: bool,
}

impl Limits {
    pub fn new(bulk_len_max: usize) -> Self {
        Self {
            bulk_len_max,
            multibulk_len_max: MULTIBULK_LEN_MAX,
            inline_len_max: INLINE_LEN_MAX,
            unauthenticated: false,
        }
    }

    /// The limits of a client that has not authenticated.
    pub fn unauthenticated(bulk_len_max: usize) -> Self {
        Self { unauthenticated: true, ..Self::new(bulk_len_max) }
    }
}

/// Progress in a command. Positions count from the command's start.
#[derive(Debug)]
struct Partial {
    /// How many arguments are still to come; 0 while the first line is incomplete.
    remaining: usize,
    spans: Vec<Span>,
    /// The position of the next argument's `$`.
    at: usize,
    /// How many bytes from `at` on were searched for an end of line without finding one.
    searched: usize,
    /// The argument at `at`, if it is a large one.
    large: Option<LargeArgument>,
    /// The indices of the `spans` that stand for arguments kept outside.
    outside: Vec<usize>,
    /// The last argument is kept outside, and the line end behind it will come at `at`.
    line_end_due: bool,
}

/// No progress.
const PARTIAL: Partial = Partial {
    remaining: 0,
    spans: Vec::new(),
    at: 0,
    searched: 0,
    large: None,
    outside: Vec::new(),
    line_end_due: false,
};

#[derive(Clone, Copy, Debug)]
struct Span {
    start: usize,
    end: usize,
}

enum Header {
    Complete { value: usize, end: usize },
    Incomplete,
}

enum Bulk {
    /// The argument is `start..end`, and its CR LF follows.
    Complete { start: usize, end: usize },
    /// The end of the argument's line is not among its first `searched` bytes (0 if the line is
    /// complete), and at least `wanted` bytes are missing. `len` is the argument's length if that
    /// is known.
    Incomplete { searched: usize, wanted: usize, len: usize },
}

/// Reads `*<count>` CR LF at the start of a command. A negative count is the same as 0.
#[inline(always)]
fn multibulk_header(
    command: &[u8],
    searched: usize,
    limits: &Limits,
) -> Result<Header, ProtocolError> {
    if let [_, d0 @ b'1'..=b'9', b'\r', b'\n', ..] = command {
        return Ok(Header::Complete { value: digit(d0), end: 4 });
    }
    long_multibulk_header(command, searched, limits)
}

#[inline(never)]
fn long_multibulk_header(
    command: &[u8],
    searched: usize,
    limits: &Limits,
) -> Result<Header, ProtocolError> {
    let Some(line_len) = line_len(command, searched) else {
        if command.len() > limits.inline_len_max {
            return Err(ProtocolError::MultibulkCountTooBig);
        }
        return Ok(Header::Incomplete);
    };
    if command[line_len + 1] != b'\n' {
        return Err(ProtocolError::InvalidCrlf);
    }
    let count = parse_i64(&command[1..line_len]).ok_or(ProtocolError::InvalidMultibulkLength)?;
    let count = usize::try_from(count).unwrap_or(0);
    if count > limits.multibulk_len_max {
        return Err(ProtocolError::InvalidMultibulkLength);
    }
    if limits.unauthenticated && count > UNAUTHENTICATED_MULTIBULK_LEN_MAX {
        return Err(ProtocolError::UnauthenticatedMultibulkLength);
    }
    Ok(Header::Complete { value: count, end: line_len + CRLF_LEN })
}

/// Reads one argument: `$<length>` CR LF, the bytes, CR LF.
#[inline(always)]
fn bulk(
    command: &[u8],
    at: usize,
    searched: usize,
    limits: &Limits,
) -> Result<Bulk, ProtocolError> {
    let rest = &command[at..];
    // Short lengths are below every limit, since no limit can be set below a megabyte.
    let (len, start) = match rest {
        [b'$', d0 @ b'0'..=b'9', b'\r', b'\n', ..] => (digit(d0), 4),
        [b'$', d1 @ b'1'..=b'9', d0 @ b'0'..=b'9', b'\r', b'\n', ..] => {
            (digit(d1) * 10 + digit(d0), 5)
        }
        [b'$', d2 @ b'1'..=b'9', d1 @ b'0'..=b'9', d0 @ b'0'..=b'9', b'\r', b'\n', ..] => {
            (digit(d2) * 100 + digit(d1) * 10 + digit(d0), 6)
        }
        _ => match long_bulk_header(rest, searched, limits)? {
            Header::Complete { value, end } => (value, end),
            Header::Incomplete => {
                return Ok(Bulk::Incomplete { searched: rest.len(), wanted: 1, len: 0 });
            }
        },
    };
    let payload = &rest[start..];
    match payload.get(len..).unwrap_or_default() {
        [b'\r', b'\n', ..] => Ok(Bulk::Complete { start: at + start, end: at + start + len }),
        [_, _, ..] => Err(ProtocolError::InvalidCrlf),
        _ => {
            let wanted = len.saturating_add(CRLF_LEN) - payload.len();
            Ok(Bulk::Incomplete { searched: 0, wanted, len })
        }
    }
}

#[inline(always)]
fn digit(ascii: &u8) -> usize {
    usize::from(ascii - b'0')
}

#[inline(never)]
fn long_bulk_header(
    rest: &[u8],
    searched: usize,
    limits: &Limits,
) -> Result<Header, ProtocolError> {
    let Some(line_len) = line_len(rest, searched) else {
        if rest.len() > limits.inline_len_max {
            return Err(ProtocolError::BulkCountTooBig);
        }
        return Ok(Header::Incomplete);
    };
    if rest[0] != b'$' {
        return Err(ProtocolError::ExpectedDollar(rest[0]));
    }
    if rest[line_len + 1] != b'\n' {
        return Err(ProtocolError::InvalidCrlf);
    }
    let len = parse_i64(&rest[1..line_len]).and_then(|len| usize::try_from(len).ok());
    let len =
        len.filter(|&len| len <= limits.bulk_len_max).ok_or(ProtocolError::InvalidBulkLength)?;
    if limits.unauthenticated && len > UNAUTHENTICATED_BULK_LEN_MAX {
        return Err(ProtocolError::UnauthenticatedBulkLength);
    }
    Ok(Header::Complete { value: len, end: line_len + CRLF_LEN })
}

/// How many bytes come before the line's carriage return, if that and the byte behind it have
/// arrived.
fn line_len(line: &[u8], searched: usize) -> Option<usize> {
    // The last byte that was searched may be a carriage return whose next byte was missing.
    let from = searched.saturating_sub(1);
    let found = from + memchr(b'\r', line.get(from..)?)?;
    (found + 1 < line.len()).then_some(found)
}

/// The argument whose last bytes are missing, if it is a large one.
fn large(command: &[u8], len: usize, wanted: usize) -> Option<LargeArgument> {
    // The bytes that are missing end the argument and the line end behind it.
    (len >= LARGE_LEN_MIN)
        .then(|| LargeArgument { start: command.len() + wanted - CRLF_LEN - len, len })
}

/// Where the slices of `command` lie in it.
fn spans_of(command: &[u8], arguments: &[&[u8]]) -> Vec<Span> {
    let base = command.as_ptr().addr();
    arguments
        .iter()
        .map(|argument| {
            let start = argument.as_ptr().addr() - base;
            Span { start, end: start + argument.len() }
        })
        .collect()
}

/// The largest number of arguments that a command can announce.
pub const MULTIBULK_LEN_MAX: usize = i32::MAX as usize;
/// The most bytes of an inline command, or of a count's line, of which no end was seen.
pub const INLINE_LEN_MAX: usize = 64 * 1024;
/// The most arguments of a command from a client that has not authenticated.
pub const UNAUTHENTICATED_MULTIBULK_LEN_MAX: usize = 10;
/// The most bytes of an argument from a client that has not authenticated.
pub const UNAUTHENTICATED_BULK_LEN_MAX: usize = 16 * 1024;

/// An argument of at least this length is a large one: `Parser::large`.
pub const LARGE_LEN_MIN: usize = 8 * 1024;

/// The progress of a partial command is kept if it has at least this many complete arguments.
const RESUME_ARGUMENTS_MIN: usize = 16;
/// If this many bytes were searched for the end of a line, the parser remembers how far it
/// searched.
const RESUME_LINE_LEN_MIN: usize = 256;

const CRLF_LEN: usize = 2;

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn large_arguments_may_be_kept_elsewhere() {
        let limits = Limits::new(1 << 20);
        let mut parser = Parser::default();
        let (mut arguments, mut position) = (Vec::new(), 1);
        let len = LARGE_LEN_MIN;
        let input = format!("x*4\r\n$1\r\na\r\n${len}\r\nabc").into_bytes();
        let start = input.len() - 1 - 3;
        let step = parser.next(&input, &mut position, &limits, &mut arguments);
        assert_eq!(step, Ok(ParseStep::Incomplete { wanted: len + 2 - 3 }));
        assert_eq!(parser.large(), Some(LargeArgument { start, len }));
        assert_eq!((parser.parsed_len(), parser.awaits_line_end()), (4 + 7, false));
        parser.keep_outside();
        assert_eq!(parser.large(), None);
        assert_eq!((parser.parsed_len(), parser.awaits_line_end()), (start, true));

        let mut input = input[..1 + start].to_vec();
        for (more, step) in [
            (&b""[..], ParseStep::Incomplete { wanted: 2 }),
            (b"\r", ParseStep::Incomplete { wanted: 1 }),
            (b"\n", ParseStep::Incomplete { wanted: 1 }),
            (b"$1\r\nb\r\n$50000\r\n", ParseStep::Incomplete { wanted: 50_002 }),
        ] {
            input.extend_from_slice(more);
            let mut arguments = Vec::new();
            assert_eq!(parser.next(&input, &mut position, &limits, &mut arguments), Ok(step));
        }
        assert_eq!(parser.large(), Some(LargeArgument { start: input.len() - 1, len: 50_000 }));
        assert!(!parser.awaits_line_end());
        parser.keep_outside();
        input.extend_from_slice(b"\r\n*1\r\n");
        let step = parser.next(&input, &mut position, &limits, &mut arguments);
        assert_eq!(step, Ok(ParseStep::CompleteOutside(vec![1, 3])));
        assert_eq!(arguments, [&b"a"[..], b"", b"b", b""]);
        assert_eq!(position, input.len() - 4);
        assert!(!parser.is_partial());
    }

    type Command = Vec<Vec<u8>>;

    fn limits() -> Limits {
        Limits::new(512 << 20)
    }

    /// Feeds `input` in pieces that end at `cuts`. Each time the bytes that were not used are moved
    /// to a new buffer. Returns the commands up to the end or the first error.
    fn parse_in_pieces(
        input: &[u8],
        cuts: &[usize],
        limits: &Limits,
    ) -> (Vec<Command>, Option<ProtocolError>, usize) {
        let (mut commands, mut consumed, mut parser) = (Vec::new(), 0, Parser::default());
        for &cut in cuts.iter().chain([&input.len()]) {
            let buffer = [b"already consumed", &input[consumed..cut]].concat();
            let mut position = b"already consumed".len();
            loop {
                let before = position;
                let mut arguments = vec![&b"other"[..]];
                let step = parser.next(&buffer, &mut position, limits, &mut arguments);
                assert_eq!(arguments[0], b"other");
                match step {
                    Ok(ParseStep::Complete) => {
                        assert!(!parser.is_partial());
                        commands.push(arguments[1..].iter().map(|part| part.to_vec()).collect());
                    }
                    Ok(ParseStep::CompleteOutside(_)) => unreachable!("nothing is kept outside"),
                    Ok(ParseStep::Inline(words)) => {
                        assert_eq!(arguments.len(), 1);
                        commands.push(words);
                    }
                    Ok(ParseStep::Empty) => assert_eq!(arguments.len(), 1),
                    Ok(ParseStep::Incomplete { wanted }) => {
                        assert!(wanted > 0);
                        assert_eq!(position, before);
                        assert_eq!(arguments.len(), 1);
                        break;
                    }
                    Err(error) => return (commands, Some(error), consumed),
                }
                assert!(position > before);
            }
            consumed += position - b"already consumed".len();
        }
        (commands, None, consumed)
    }

    fn parse(input: &[u8]) -> Result<Vec<Command>, ProtocolError> {
        parse_with(input, &limits())
    }

    fn parse_with(input: &[u8], limits: &Limits) -> Result<Vec<Command>, ProtocolError> {
        let (commands, error, _) = parse_in_pieces(input, &[], limits);
        error.map_or(Ok(commands), Err)
    }

    fn commands(commands: &[&[&str]]) -> Result<Vec<Command>, ProtocolError> {
        let owned = |command: &&[&str]| command.iter().map(|part| (*part).into()).collect();
        Ok(commands.iter().map(owned).collect())
    }

    fn encode(command: &[Vec<u8>]) -> Vec<u8> {
        let mut output = format!("*{}\r\n", command.len()).into_bytes();
        for argument in command {
            output.extend_from_slice(format!("${}\r\n", argument.len()).as_bytes());
            output.extend_from_slice(argument);
            output.extend_from_slice(b"\r\n");
        }
        output
    }

    #[test]
    fn commands_one_after_the_other() {
        let input = b"*1\r\n$4\r\nPING\r\nPING\r\n\r\n\n  \r\n*0\r\n*-1\r\n*-5\r\nECHO \"a b\"\n*2\r\n$0\r\n\r\n$2\r\n\r\n\r\n*1\r\n";
        assert_eq!(
            parse(input),
            commands(&[&["PING"], &["PING"], &["ECHO", "a b"], &["", "\r\n"]])
        );
    }

    #[test]
    fn arguments_are_slices_of_the_input() {
        let input = b"*2\r\n$3\r\nGET\r\n$3\r\nkey\r\n";
        let (mut position, mut arguments) = (0, Vec::new());
        let step = Parser::default().next(input, &mut position, &limits(), &mut arguments);
        assert_eq!(step, Ok(ParseStep::Complete));
        assert_eq!(arguments, [b"GET", b"key"]);
        assert!(arguments.iter().all(|argument| input.as_ptr_range().contains(&argument.as_ptr())));
        assert_eq!(position, input.len());
    }

    #[test]
    fn an_idle_parser_is_one_pointer() {
        assert_eq!(size_of::<Parser>(), size_of::<usize>());
    }

    // The expected results were obtained from valkey-server 9.1.2.
    #[test]
    fn errors() {
        use ProtocolError::*;
        for (input, error) in [
            (&b"*\r\n"[..], InvalidMultibulkLength),
            (b"*abc\r\n", InvalidMultibulkLength),
            (b"*01\r\n", InvalidMultibulkLength),
            (b"*+1\r\n", InvalidMultibulkLength),
            (b"*\x00\r\n", InvalidMultibulkLength),
            (b"*1\n$4\r\nPING\r\n", InvalidMultibulkLength),
            (b"*2147483648\r\n", InvalidMultibulkLength),
            (b"*abc\rx", InvalidCrlf),
            (b"*0\rx", InvalidCrlf),
            (b"*1\r\n:1\r\n", ExpectedDollar(b':')),
            (b"*1\r\n:1\rx", ExpectedDollar(b':')),
            (b"*1\r\n\r\n", ExpectedDollar(b'\r')),
            (b"*1\r\n\n\r\n", ExpectedDollar(b'\n')),
            (b"*1\r\n\x00abc\r\n", ExpectedDollar(0)),
            (b"*1\r\n$\r\n", InvalidBulkLength),
            (b"*1\r\n$-1\r\n", InvalidBulkLength),
            (b"*1\r\n$04\r\nPING\r\n", InvalidBulkLength),
            (b"*1\r\n$4x\r\nPING\r\n", InvalidBulkLength),
            (b"*1\r\n$536870913\r\n", InvalidBulkLength),
            (b"*1\r\n$9223372036854775807\r\n", InvalidBulkLength),
            (b"*1\r\n$abc\rx", InvalidCrlf),
            (b"*1\r\n$536870913\rx", InvalidCrlf),
            (b"*1\r\n$4\r\nPINGxx", InvalidCrlf),
            (b"*1\r\n$4\r\nPING\rx", InvalidCrlf),
            (b"*2\r\n$4\r\nPING\r\n$4\r\nPING\nx", InvalidCrlf),
            (b"\"PING\r\n", UnbalancedQuotes),
        ] {
            assert_eq!(parse(input), Err(error), "{}", input.escape_ascii());
        }
        for input in [
            &b"*2147483647\r\n"[..],
            b"*1\n",
            b"*1\r\n:",
            b"*1\r\n:\r",
            b"*1\r\n$4\r\nPINGx",
            b"ECHO a\0b\r\n",
        ] {
            assert_eq!(parse(input), Ok(vec![]), "{}", input.escape_ascii());
        }
        assert_eq!(
            parse_with(b"*1\r\n$1152921504606846976\r\n", &Limits::new(usize::MAX)),
            Ok(vec![])
        );
    }

    #[test]
    fn unauthenticated_clients_send_short_commands() {
        use ProtocolError::*;
        let limits = Limits::unauthenticated(512 << 20);
        for (input, expected) in [
            (&b"*10\r\n"[..], Ok(vec![])),
            (b"*11\r\n", Err(UnauthenticatedMultibulkLength)),
            (b"*2147483648\r\n", Err(InvalidMultibulkLength)),
            (b"*1\r\n$16384\r\n", Ok(vec![])),
            (b"*1\r\n$16385\r\n", Err(UnauthenticatedBulkLength)),
            (b"*1\r\n$536870913\r\n", Err(InvalidBulkLength)),
        ] {
            assert_eq!(parse_with(input, &limits), expected, "{}", input.escape_ascii());
        }
    }

    #[test]
    fn a_line_that_came_whole_is_bounded_too() {
        for (len, fits) in [(INLINE_LEN_MAX, true), (INLINE_LEN_MAX + 1, false)] {
            let mut input = vec![b'A'; len];
            input.push(b'\n');
            let expected = if fits { Ok(1) } else { Err(ProtocolError::InlineTooBig) };
            assert_eq!(parse(&input).map(|commands| commands.len()), expected, "{len}");
        }
    }

    #[test]
    fn lines_are_bounded() {
        use ProtocolError::*;
        for (start, error) in [
            (&b"A"[..], InlineTooBig),
            (b"A\0\r\n", InlineTooBig),
            (b"*", MultibulkCountTooBig),
            (b"*1\r\n$", BulkCountTooBig),
            (b"*1\r\nA", BulkCountTooBig),
        ] {
            let header_len = if start.starts_with(b"*1") { 4 } else { 0 };
            let mut input = start.to_vec();
            input.resize(header_len + INLINE_LEN_MAX, b'1');
            assert_eq!(parse(&input), Ok(vec![]));
            input.push(b'1');
            assert_eq!(parse(&input), Err(error));
            let step = if cfg!(miri) { 30_000 } else { 1000 };
            let cuts = (0..input.len()).step_by(step).collect::<Vec<_>>();
            assert_eq!(parse_in_pieces(&input, &cuts, &limits()).1, Some(error));
        }
    }

    #[test]
    fn a_hint_completes_an_argument() {
        let input = b"*2\r\n$3\r\nGET\r\n$1000\r\nabc";
        let step = Parser::default().next(input, &mut 0, &limits(), &mut Vec::new());
        assert_eq!(step, Ok(ParseStep::Incomplete { wanted: 1000 - 3 + 2 }));
    }

    #[test]
    fn a_claimed_count_reserves_nothing() {
        let (mut parser, mut arguments) = (Parser::default(), Vec::new());
        let step = parser.next(b"*2147483647\r\n$1\r\na\r\n", &mut 0, &limits(), &mut arguments);
        assert_eq!(step, Ok(ParseStep::Incomplete { wanted: 1 }));
        assert!(arguments.capacity() < 16 && parser.memory_len() == 0);
    }

    /// A million arguments in pieces of 100 bytes. If all were parsed again for every piece, this
    /// would take hours.
    #[test]
    fn many_arguments_in_many_pieces() {
        let command = (0..if cfg!(miri) { 1000 } else { 1_000_000 })
            .map(|i: u32| i.to_string().into_bytes())
            .collect::<Command>();
        let input = encode(&command);
        let (mut parser, mut position, mut arguments) = (Parser::default(), 0, Vec::new());
        for end in (0..input.len()).step_by(100) {
            let step = parser.next(&input[..end], &mut position, &limits(), &mut arguments);
            assert!(matches!(step, Ok(ParseStep::Incomplete { .. })));
        }
        let step = parser.next(&input, &mut position, &limits(), &mut arguments);
        assert_eq!((step, position), (Ok(ParseStep::Complete), input.len()));
        assert!(arguments.iter().eq(command.iter()));
    }

    fn argument() -> impl Strategy<Value = Vec<u8>> {
        prop_oneof![
            4 => any::<Vec<u8>>(),
            4 => proptest::collection::vec(any::<u8>(), 0..4),
            1 => proptest::collection::vec(any::<u8>(), 0..if cfg!(miri) { 70 } else { 700 }),
        ]
    }

    /// Requests, both correct and nearly correct ones.
    fn requests() -> impl Strategy<Value = Vec<u8>> {
        let request = prop_oneof![
            8 => proptest::collection::vec(argument(), 1..5).prop_map(|command| encode(&command)),
            2 => proptest::collection::vec(argument(), 1..if cfg!(miri) { 10 } else { 40 }).prop_map(|command| encode(&command)),
            2 => "[a-z ]{0,9}(\"[a-z ]{0,3}\")?\r?\n".prop_map(String::into_bytes),
            1 => "[a-z]{200,600}\n".prop_map(String::into_bytes),
            1 => "\\*[0-9]{200,600}\r\n".prop_map(String::into_bytes),
            1 => "\\*3\r\n\\$1\r\na\r\n\\$[0-9]{200,600}\r\n".prop_map(String::into_bytes),
            1 => "[*][0-3]\r\n([$][0-3]\r\n[a-z\r\n]{0,4}){0,3}".prop_map(String::into_bytes),
        ];
        proptest::collection::vec(request, 0..6).prop_map(|requests| requests.concat())
    }

    proptest! {
        #[test]
        fn whole_commands_come_out_as_they_went_in(sent in proptest::collection::vec(proptest::collection::vec(argument(), 1..if cfg!(miri) { 5 } else { 30 }), 0..8)) {
            let input = sent.iter().flat_map(|command| encode(command)).collect::<Vec<_>>();
            prop_assert_eq!(parse(&input), Ok(sent));
        }

        #[test]
        fn a_cut_anywhere_changes_nothing(input in requests()) {
            let whole = parse_in_pieces(&input, &[], &limits());
            for cut in (0..=input.len()).step_by(if cfg!(miri) { 13 } else { 1 }) {
                let pieces = parse_in_pieces(&input, &[cut], &limits());
                prop_assert_eq!(&pieces.0, &whole.0, "cut at {}", cut);
                prop_assert_eq!(&pieces.1, &whole.1, "cut at {}", cut);
            }
        }

        #[test]
        fn a_cut_everywhere_changes_nothing(input in requests(), step in 1usize..20) {
            let whole = parse_in_pieces(&input, &[], &limits());
            let cuts = (0..input.len()).step_by(step).collect::<Vec<_>>();
            let pieces = parse_in_pieces(&input, &cuts, &limits());
            prop_assert_eq!((pieces.0, pieces.1), (whole.0, whole.1));
        }

        #[test]
        fn random_bytes_do_no_harm(input: Vec<u8>, text in "[*$0-9a-z\"'\r\n\\\\]{0,60}", cut: prop::sample::Index) {
            for input in [&input[..], text.as_bytes(), &[b"*", text.as_bytes()].concat()] {
                let cut = cut.index(input.len() + 1);
                let whole = parse_in_pieces(input, &[], &limits());
                let pieces = parse_in_pieces(input, &[cut], &limits());
                prop_assert_eq!((pieces.0, pieces.1), (whole.0, whole.1));
            }
        }
    }
}
