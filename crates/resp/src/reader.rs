//! Replies as a client reads them: turns bytes into values.
//!
//! A reply is read in two steps: a [`ReplyScanner`] finds its end, and [`read_reply`] makes a
//! [`Value`] of it. So a reply that arrives in many pieces costs time linear in its size, and
//! memory for its values is allocated only when it is complete. The scanner refuses what exceeds a
//! limit as soon as it sees that: a reply that never ends is not waited for.

use std::{error, fmt};

use memchr::memchr;

use crate::{Value, parse_f64, parse_i64};

/// Reads the reply at the start of `input`. Returns it and its length in bytes, or `None` if its
/// end has not arrived.
pub fn read_reply(input: &[u8]) -> Result<Option<(Value, usize)>, ReplyError> {
    let Some(len) = ReplyScanner::default().scan(input)? else { return Ok(None) };
    let mut reader = Reader { input: &input[..len], at: 0 };
    let value = reader.value()?;
    debug_assert_eq!(reader.at, len, "the scanner and the reader disagree");
    Ok(Some((value, len)))
}

/// Finds the end of one reply. When more bytes have come, it continues where it stopped.
#[derive(Clone, Debug, Default)]
pub struct ReplyScanner {
    /// How many bytes were understood so far.
    at: usize,
    /// There is no end of a line between `at` and here.
    searched: usize,
    /// How many values each aggregate still misses that has begun and not ended, the outermost
    /// first.
    open: Vec<usize>,
}

impl ReplyScanner {
    /// The length of the reply at the start of `input`, if the reply is complete. `input` must
    /// start at the same byte as in earlier calls, and must not have lost any bytes since. After it
    /// has returned a length or an error, a new scanner is needed.
    pub fn scan(&mut self, input: &[u8]) -> Result<Option<usize>, ReplyError> {
        loop {
            let Some(item) = item(input, self.at, &mut self.searched)? else { return Ok(None) };
            self.at = item.end;
            match item.kind.values() {
                0 if self.close() => return Ok(Some(self.at)),
                0 => {}
                _ if self.open.len() == REPLY_DEPTH_MAX => return Err(ReplyError::TooDeep),
                missing => self.open.push(missing),
            }
        }
    }

    /// Notes the end of a value, and of each aggregate of which it is the last. Whether it is the
    /// end of the reply.
    fn close(&mut self) -> bool {
        while let Some(missing) = self.open.last_mut() {
            *missing -= 1;
            if *missing > 0 {
                return false;
            }
            self.open.pop();
        }
        true
    }

    /// How long the reply is at least, by what was scanned of it: no value is shorter than three
    /// bytes.
    pub fn len_min(&self) -> usize {
        let missing: usize = self.open.iter().sum();
        self.at + missing * VALUE_LEN_MIN
    }
}

/// Why bytes are not a reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReplyError {
    /// No type of reply starts with this byte.
    UnknownType(u8),
    /// A count or a number is not one, or a line or a bulk does not end where it must.
    Malformed,
    /// A bulk is longer than [`REPLY_BULK_LEN_MAX`].
    BulkTooLong,
    /// A line is longer than [`REPLY_LINE_LEN_MAX`].
    LineTooLong,
    /// An aggregate has more than [`REPLY_ELEMENTS_MAX`] elements or pairs.
    TooManyElements,
    /// Aggregates are nested more than [`REPLY_DEPTH_MAX`] deep.
    TooDeep,
}

impl fmt::Display for ReplyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::UnknownType(byte) => {
                write!(f, "no reply of the Redis protocol starts with '{}'", byte.escape_ascii())
            }
            Self::Malformed => f.write_str("a malformed reply"),
            Self::BulkTooLong => write!(f, "a bulk of more than {REPLY_BULK_LEN_MAX} bytes"),
            Self::LineTooLong => write!(f, "a line of more than {REPLY_LINE_LEN_MAX} bytes"),
            Self::TooManyElements => {
                write!(f, "an aggregate of more than {REPLY_ELEMENTS_MAX} elements")
            }
            Self::TooDeep => write!(f, "a reply nested more than {REPLY_DEPTH_MAX} deep"),
        }
    }
}

impl error::Error for ReplyError {}

struct Reader<'a> {
    input: &'a [u8],
    at: usize,
}

/// An aggregate whose values are being read.
struct Open {
    kind: Kind,
    values: Vec<Value>,
    missing: usize,
}

impl Reader<'_> {
    /// Values in values are kept in a list: the stack of a thread might not hold as many calls.
    fn value(&mut self) -> Result<Value, ReplyError> {
        let mut open: Vec<Open> = Vec::new();
        loop {
            let prefix = self.input[self.at];
            let item = item(self.input, self.at, &mut 0)?.ok_or(ReplyError::Malformed)?;
            let payload = &self.input[item.payload_start..item.payload_end];
            self.at = item.end;
            let missing = item.kind.values();
            let mut value = match item.kind {
                Kind::Leaf => leaf(prefix, payload)?,
                Kind::Null if prefix == b'*' => Value::NullArray,
                Kind::Null => Value::Null,
                kind if missing == 0 => kind.close(Vec::new())?,
                kind => {
                    debug_assert!(open.len() < REPLY_DEPTH_MAX, "the scanner refused it");
                    let values = Vec::with_capacity(self.believable(missing));
                    open.push(Open { kind, values, missing });
                    continue;
                }
            };
            loop {
                let Some(mut around) = open.pop() else { return Ok(value) };
                around.values.push(value);
                around.missing -= 1;
                if around.missing > 0 {
                    open.push(around);
                    break;
                }
                value = around.kind.close(around.values)?;
            }
        }
    }

    /// The number of values to reserve room for: not more than the remaining bytes can hold, even
    /// if the count says so.
    fn believable(&self, len: usize) -> usize {
        len.min((self.input.len() - self.at) / VALUE_LEN_MIN)
    }
}

/// One line, and for a bulk also what follows it.
struct Item {
    kind: Kind,
    payload_start: usize,
    payload_end: usize,
    end: usize,
}

enum Kind {
    Leaf,
    /// `$-1` or `*-1`
    Null,
    Elements(fn(Vec<Value>) -> Value, usize),
    Pairs(fn(Vec<(Value, Value)>) -> Value, usize),
    Attributes(usize),
}

impl Kind {
    /// How many values follow the line and are part of this one.
    fn values(&self) -> usize {
        match self {
            Self::Leaf | Self::Null => 0,
            Self::Elements(_, len) => *len,
            Self::Pairs(_, len) => len * 2,
            // The pairs, and the value they are about.
            Self::Attributes(len) => len * 2 + 1,
        }
    }

    /// The value that these are part of.
    fn close(self, mut values: Vec<Value>) -> Result<Value, ReplyError> {
        match self {
            Self::Leaf | Self::Null => Err(ReplyError::Malformed),
            Self::Elements(make, _) => Ok(make(values)),
            Self::Pairs(make, _) => Ok(make(in_pairs(values))),
            Self::Attributes(_) => {
                let value = values.pop().ok_or(ReplyError::Malformed)?;
                Ok(Value::Attribute { attributes: in_pairs(values), value: Box::new(value) })
            }
        }
    }
}

fn in_pairs(values: Vec<Value>) -> Vec<(Value, Value)> {
    let mut values = values.into_iter();
    std::iter::from_fn(|| Some((values.next()?, values.next()?))).collect()
}

/// The item at `at`, or `None` when its end has not arrived. `searched` is how far the end of a
/// line was searched for in vain: a line that arrives byte by byte is read once.
fn item(input: &[u8], at: usize, searched: &mut usize) -> Result<Option<Item>, ReplyError> {
    let Some(&prefix) = input.get(at) else { return Ok(None) };
    if !b"+-:$*%~,#(!=>|_".contains(&prefix) {
        return Err(ReplyError::UnknownType(prefix));
    }
    let start = at + 1;
    let window_end = input.len().min(start + REPLY_LINE_LEN_MAX);
    let from = start.max(*searched);
    let Some(distance) = memchr(b'\n', &input[from..window_end]) else {
        *searched = window_end;
        return if window_end - start < REPLY_LINE_LEN_MAX {
            Ok(None)
        } else {
            Err(ReplyError::LineTooLong)
        };
    };
    let line = input[start..from + distance].strip_suffix(b"\r").ok_or(ReplyError::Malformed)?;
    let line_end = start + line.len();
    let leaf = |payload_start, payload_end| Item {
        kind: Kind::Leaf,
        payload_start,
        payload_end,
        end: payload_end + CRLF_LEN,
    };
    match prefix {
        b'$' | b'!' | b'=' | b'*' | b'%' | b'~' | b'>' | b'|' => {}
        _ => return Ok(Some(leaf(start, line_end))),
    }
    let len = parse_i64(line).ok_or(ReplyError::Malformed)?;
    if len == -1 && matches!(prefix, b'$' | b'*') {
        return Ok(Some(Item { kind: Kind::Null, ..leaf(start, line_end) }));
    }
    let len = usize::try_from(len).map_err(|_| ReplyError::Malformed)?;
    let body = line_end + CRLF_LEN;
    if matches!(prefix, b'$' | b'!' | b'=') {
        if len > REPLY_BULK_LEN_MAX {
            return Err(ReplyError::BulkTooLong);
        }
        return match input.get(body + len..).unwrap_or_default() {
            [b'\r', b'\n', ..] => Ok(Some(leaf(body, body + len))),
            [_, _, ..] => Err(ReplyError::Malformed),
            _ => Ok(None),
        };
    }
    if len > REPLY_ELEMENTS_MAX {
        return Err(ReplyError::TooManyElements);
    }
    let kind = match prefix {
        b'*' => Kind::Elements(Value::Array, len),
        b'~' => Kind::Elements(Value::Set, len),
        b'>' => Kind::Elements(Value::Push, len),
        b'%' => Kind::Pairs(Value::Map, len),
        _ => Kind::Attributes(len),
    };
    Ok(Some(Item { kind, payload_start: start, payload_end: line_end, end: body }))
}

fn leaf(prefix: u8, payload: &[u8]) -> Result<Value, ReplyError> {
    Ok(match (prefix, payload) {
        (b'+', text) => Value::Simple(text.to_vec()),
        (b'-', text) => Value::Error(text.to_vec()),
        (b':', digits) => Value::Integer(parse_i64(digits).ok_or(ReplyError::Malformed)?),
        (b'_', b"") => Value::Null,
        (b'#', b"t") => Value::Boolean(true),
        (b'#', b"f") => Value::Boolean(false),
        (b',', text) => {
            let value = match text {
                b"nan" | b"-nan" => f64::NAN,
                _ => parse_f64(text).ok_or(ReplyError::Malformed)?,
            };
            Value::Double { value, text: text.to_vec() }
        }
        (b'(', digits) => Value::BigNumber(digits.to_vec()),
        (b'!', text) => Value::BulkError(text.to_vec()),
        (b'=', [a, b, c, b':', text @ ..]) => {
            Value::Verbatim { format: [*a, *b, *c], text: text.to_vec() }
        }
        (b'$', text) => Value::Bulk(text.to_vec()),
        _ => return Err(ReplyError::Malformed),
    })
}

/// How deep aggregates may nest. Bobbin answers 1,000 levels of a script's tables, and an error
/// below them. Code that shows or drops a value may use a call for each level.
pub const REPLY_DEPTH_MAX: usize = 1024;
/// The longest bulk: well above the largest value a server holds by default.
pub const REPLY_BULK_LEN_MAX: usize = 4 << 30;
/// The most elements of an aggregate, or pairs: as many as valkey-cli reads.
pub const REPLY_ELEMENTS_MAX: usize = u32::MAX as usize;
/// The longest status, error or number.
pub const REPLY_LINE_LEN_MAX: usize = 1 << 20;

/// The shortest value is `_` CR LF.
const VALUE_LEN_MIN: usize = 3;
const CRLF_LEN: usize = 2;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Aggregate, Protocol, Reply};
    use proptest::prelude::*;

    fn read(input: &[u8]) -> Value {
        let (value, len) = read_reply(input).unwrap().unwrap();
        assert_eq!(len, input.len());
        value
    }

    fn bulk(text: &str) -> Value {
        Value::Bulk(text.into())
    }

    fn double(value: f64) -> Value {
        Value::Double { value, text: crate::format_f64(value).to_vec() }
    }

    #[test]
    fn every_type() {
        assert_eq!(read(b"+OK\r\n"), Value::Simple(b"OK".to_vec()));
        assert_eq!(read(b"-ERR no\r\n"), Value::Error(b"ERR no".to_vec()));
        assert_eq!(read(b":-12\r\n"), Value::Integer(-12));
        assert_eq!(read(b"$2\r\n-1\r\n"), bulk("-1"));
        assert_eq!(read(b"$0\r\n\r\n"), bulk(""));
        assert_eq!(read(b"$-1\r\n"), Value::Null);
        assert_eq!(read(b"*-1\r\n"), Value::NullArray);
        assert_eq!(read(b"_\r\n"), Value::Null);
        assert_eq!(read(b"#t\r\n"), Value::Boolean(true));
        assert_eq!(read(b",1.5\r\n"), double(1.5));
        assert_eq!(read(b",-inf\r\n"), double(f64::NEG_INFINITY));
        assert_eq!(read(b"(123\r\n"), Value::BigNumber(b"123".to_vec()));
        assert_eq!(read(b"!5\r\nE \r\nx\r\n"), Value::BulkError(b"E \r\nx".to_vec()));
        let verbatim = Value::Verbatim { format: *b"txt", text: b"hi".to_vec() };
        assert_eq!(read(b"=6\r\ntxt:hi\r\n"), verbatim);
        assert_eq!(read(b"*0\r\n"), Value::Array(vec![]));
        assert_eq!(
            read(b"*2\r\n*1\r\n:1\r\n~1\r\n$1\r\na\r\n"),
            Value::Array(vec![Value::Array(vec![Value::Integer(1)]), Value::Set(vec![bulk("a")])])
        );
        assert_eq!(
            read(b"%1\r\n:1\r\n:2\r\n"),
            Value::Map(vec![(Value::Integer(1), Value::Integer(2))])
        );
        assert_eq!(read(b">1\r\n:1\r\n"), Value::Push(vec![Value::Integer(1)]));
        assert_eq!(
            read(b"|1\r\n:1\r\n:2\r\n:3\r\n"),
            Value::Attribute {
                attributes: vec![(Value::Integer(1), Value::Integer(2))],
                value: Box::new(Value::Integer(3)),
            }
        );
    }

    #[test]
    fn what_follows_a_reply_is_left() {
        assert_eq!(read_reply(b"+OK\r\n+NO\r\n"), Ok(Some((Value::Simple(b"OK".to_vec()), 5))));
    }

    #[test]
    fn malformed() {
        for (input, error) in [
            (&b"x"[..], ReplyError::UnknownType(b'x')),
            (b"$a\r\n", ReplyError::Malformed),
            (b"$-2\r\n", ReplyError::Malformed),
            (b"%-1\r\n", ReplyError::Malformed),
            (b"$1\r\nabc", ReplyError::Malformed),
            (b"+OK\n", ReplyError::Malformed),
            (b":1.5\r\n", ReplyError::Malformed),
            (b"#x\r\n", ReplyError::Malformed),
            (b"=3\r\nabc\r\n", ReplyError::Malformed),
            (b"$4294967297\r\n", ReplyError::BulkTooLong),
        ] {
            assert_eq!(read_reply(input), Err(error), "{}", input.escape_ascii());
        }
        assert_eq!(read_reply(&[b'+'; REPLY_LINE_LEN_MAX + 1]), Err(ReplyError::LineTooLong));
    }

    #[test]
    fn nesting_is_bounded() {
        let nested = |depth| [b"*1\r\n".repeat(depth), b":1\r\n".to_vec()].concat();
        // On the small stack of a test's thread: reading, comparing, copying, showing and dropping.
        let value = read(&nested(REPLY_DEPTH_MAX));
        assert_eq!(value.clone(), value);
        assert!(format!("{value:?}").contains("[Integer(1)]"));
        let attributes =
            [b"|1\r\n:1\r\n:2\r\n".repeat(REPLY_DEPTH_MAX), b":1\r\n".to_vec()].concat();
        drop(read(&attributes));
        assert_eq!(read_reply(&nested(REPLY_DEPTH_MAX + 1)), Err(ReplyError::TooDeep));
        let deepest = if cfg!(miri) { 2000 } else { 100_000 };
        assert_eq!(read_reply(&nested(deepest)), Err(ReplyError::TooDeep));
        // Values beside one another are not nested.
        let beside = [&b"*2000\r\n"[..], &b"*1\r\n:1\r\n".repeat(2000)].concat();
        read(&beside);
    }

    /// Nobody waits for the end of what will be refused: it may never come.
    #[test]
    fn what_nests_too_deeply_is_refused_before_its_end() {
        let mut scanner = ReplyScanner::default();
        let mut input = Vec::new();
        for _ in 0..REPLY_DEPTH_MAX {
            input.extend(b"*1\r\n");
            assert_eq!(scanner.scan(&input), Ok(None));
        }
        input.extend(b"*1\r\n");
        assert_eq!(scanner.scan(&input), Err(ReplyError::TooDeep));
    }

    #[test]
    fn a_claimed_count_reserves_nothing() {
        assert_eq!(read_reply(b"*4294967295\r\n:1\r\n"), Ok(None));
        assert_eq!(read_reply(b"|4294967295\r\n:1\r\n"), Ok(None));
    }

    #[test]
    fn a_count_that_cannot_be_is_refused() {
        for kind in "*~>%|".chars() {
            for count in ["4294967296", "9223372036854775807"] {
                let input = format!("*2\r\n{kind}{count}\r\n");
                let read = read_reply(input.as_bytes());
                assert_eq!(read, Err(ReplyError::TooManyElements), "{input:?}");
            }
        }
    }

    #[test]
    fn how_long_a_reply_is_at_least() {
        let mut scanner = ReplyScanner::default();
        let mut len_min_after = |input: &[u8]| {
            assert_eq!(scanner.scan(input), Ok(None));
            scanner.len_min()
        };
        let input = b"%10\r\n:1\r\n*5\r\n_\r\n";
        assert_eq!(len_min_after(b""), 0);
        assert_eq!(len_min_after(&input[..5]), 5 + 20 * 3);
        assert_eq!(len_min_after(&input[..9]), 9 + 19 * 3);
        assert_eq!(len_min_after(&input[..13]), 13 + (19 + 5) * 3);
        assert_eq!(len_min_after(input), 16 + (19 + 4) * 3);
    }

    #[test]
    fn the_bytes_of_a_line_are_searched_once() {
        let mut scanner = ReplyScanner::default();
        for end in 1..=4 {
            assert_eq!(scanner.scan(&b"+abc\r\n"[..end]), Ok(None));
            assert_eq!(scanner.searched, end);
        }
        assert_eq!(scanner.scan(b"+abc\r\n"), Ok(Some(6)));
    }

    fn values() -> impl Strategy<Value = Value> {
        let line = "[ -~]{0,12}".prop_map(String::into_bytes);
        let leaf = prop_oneof![
            line.clone().prop_map(Value::Simple),
            line.prop_map(Value::Error),
            any::<i64>().prop_map(Value::Integer),
            any::<Vec<u8>>().prop_map(Value::Bulk),
            Just(Value::Null),
            any::<bool>().prop_map(Value::Boolean),
            any::<f64>()
                .prop_filter("NaN is not equal to itself", |x| !x.is_nan())
                .prop_map(double),
            any::<Vec<u8>>().prop_map(|text| Value::Verbatim { format: *b"txt", text }),
        ];
        leaf.prop_recursive(4, 64, 12, |value| {
            let values = proptest::collection::vec(value.clone(), 0..12);
            let pairs = proptest::collection::vec((value.clone(), value), 0..12);
            prop_oneof![
                values.clone().prop_map(Value::Array),
                values.clone().prop_map(Value::Set),
                values.prop_map(Value::Push),
                pairs.prop_map(Value::Map),
            ]
        })
    }

    /// Writes the value. If `defer` is set, counts are written only after the elements.
    fn write(reply: &mut Reply<'_>, value: &Value, defer: bool) {
        let all = |reply: &mut Reply<'_>, kind, elements: &mut dyn Iterator<Item = &Value>, len| {
            let deferred = defer.then(|| reply.defer());
            if !defer {
                reply.aggregate(kind, len);
            }
            for element in elements {
                write(reply, element, defer);
            }
            if let Some(deferred) = deferred {
                reply.finish(deferred, kind, len);
            }
        };
        match value {
            Value::Simple(text) => reply.simple(text),
            Value::Error(text) => reply.error(text),
            Value::Integer(value) => reply.integer(*value),
            Value::Bulk(value) => reply.bulk(value),
            Value::Null => reply.null(),
            Value::Boolean(value) => reply.boolean(*value),
            Value::Double { value, .. } => reply.double(*value),
            Value::Verbatim { text, .. } => reply.verbatim("txt", text),
            Value::Array(of) => all(reply, Aggregate::Array, &mut of.iter(), of.len()),
            Value::Set(of) => all(reply, Aggregate::Set, &mut of.iter(), of.len()),
            Value::Push(of) => all(reply, Aggregate::Push, &mut of.iter(), of.len()),
            Value::Map(of) => {
                all(reply, Aggregate::Map, &mut of.iter().flat_map(|(k, v)| [k, v]), of.len());
            }
            other => unreachable!("{other:?}"),
        }
    }

    proptest! {
        #[test]
        fn what_was_written_is_read(value in values(), defer: bool) {
            let mut output = b"before".to_vec();
            write(&mut Reply::new(&mut output, Protocol::Resp3), &value, defer);
            prop_assert_eq!(&output[..6], b"before");
            prop_assert_eq!(read_reply(&output[6..]), Ok(Some((value, output.len() - 6))));
        }

        #[test]
        fn deferred_counts_change_nothing(value in values()) {
            for protocol in [Protocol::Resp2, Protocol::Resp3] {
                let (mut direct, mut deferred) = (Vec::new(), Vec::new());
                write(&mut Reply::new(&mut direct, protocol), &value, false);
                write(&mut Reply::new(&mut deferred, protocol), &value, true);
                prop_assert_eq!(direct, deferred);
            }
        }

        #[test]
        fn a_scanner_resumes_at_every_byte(value in values()) {
            let mut output = Vec::new();
            write(&mut Reply::new(&mut output, Protocol::Resp3), &value, false);
            let mut scanner = ReplyScanner::default();
            for end in 0..output.len() {
                prop_assert_eq!(scanner.scan(&output[..end]), Ok(None));
            }
            prop_assert_eq!(scanner.scan(&output), Ok(Some(output.len())));
        }

        #[test]
        fn random_bytes_do_no_harm(
            input in "([-+:$*%~,#(!=>|_]([0-9]{0,2}|[0-9a-z\r\n]{0,9})\r\n){0,9}",
            bytes: Vec<u8>,
        ) {
            for input in [input.as_bytes(), &bytes] {
                let _ = read_reply(input);
                let whole = ReplyScanner::default().scan(input);
                let mut scanner = ReplyScanner::default();
                let mut pieces = (0..=input.len()).map(|end| scanner.scan(&input[..end]));
                let first = pieces.find(|scanned| *scanned != Ok(None));
                prop_assert_eq!(first.unwrap_or(Ok(None)), whole);
            }
        }
    }
}
