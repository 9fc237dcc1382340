//! Replies: turns values into bytes, in the connection's protocol version.
//!
//! What only version 3 has is written to a client of version 2 as the most similar thing that
//! version 2 has, exactly as the reference server does it.

use std::ops::{Deref, Range};
use std::sync::Arc;

use crate::format_f64;

/// The protocol version of a connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Protocol {
    #[default]
    Resp2,
    Resp3,
}

impl Protocol {
    /// 2 or 3, the numbers that HELLO uses.
    pub fn number(self) -> u8 {
        match self {
            Self::Resp2 => 2,
            Self::Resp3 => 3,
        }
    }
}

/// Appends replies to a buffer. It borrows the buffer, so it costs nothing to make one for each
/// command.
#[derive(Debug)]
pub struct Reply<'a> {
    output: &'a mut Vec<u8>,
    parts: Option<&'a mut Vec<ReplyPart>>,
    protocol: Protocol,
}

/// Bytes that belong into the output at `at` but are not copied there.
#[derive(Clone, Debug)]
pub struct ReplyPart {
    pub at: usize,
    pub bytes: SharedSlice,
}

/// Bytes, or a range of them, that are shared with other owners.
#[derive(Clone, Debug)]
pub struct SharedSlice {
    owner: Arc<Vec<u8>>,
    start: usize,
    end: usize,
}

impl SharedSlice {
    /// # Panics
    /// If the range is not within the bytes.
    pub fn new(owner: Arc<Vec<u8>>, range: Range<usize>) -> Self {
        let Range { start, end } = range;
        assert!(start <= end && end <= owner.len(), "{start}..{end} of {} bytes", owner.len());
        Self { owner, start, end }
    }
}

impl From<Arc<Vec<u8>>> for SharedSlice {
    fn from(owner: Arc<Vec<u8>>) -> Self {
        let end = owner.len();
        Self { owner, start: 0, end }
    }
}

impl Deref for SharedSlice {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.owner[self.start..self.end]
    }
}

impl<'a> Reply<'a> {
    #[inline(always)]
    pub fn new(output: &'a mut Vec<u8>, protocol: Protocol) -> Self {
        Self { output, parts: None, protocol }
    }

    /// Large values are put into `parts`, whose positions ascend. Everything else is written to the
    /// output.
    #[inline(always)]
    pub fn with_parts(
        output: &'a mut Vec<u8>,
        parts: &'a mut Vec<ReplyPart>,
        protocol: Protocol,
    ) -> Self {
        Self { output, parts: Some(parts), protocol }
    }

    /// The same reply, for a command within the command.
    pub fn reborrow(&mut self) -> Reply<'_> {
        Reply { output: self.output, parts: self.parts.as_deref_mut(), protocol: self.protocol }
    }

    /// Everything after this is written in this protocol version.
    pub fn set_protocol(&mut self, protocol: Protocol) {
        self.protocol = protocol;
    }

    /// Removes what was written since the output was `len` long.
    pub fn truncate(&mut self, len: usize) {
        self.output.truncate(len);
        if let Some(parts) = &mut self.parts {
            truncate_parts(parts, len);
        }
    }

    /// Removes and returns what was written since the output was `len` long: the bytes, and the
    /// parts that belong between them.
    pub fn take_since(&mut self, len: usize) -> (Vec<u8>, Vec<ReplyPart>) {
        let bytes = self.output.split_off(len);
        let Some(parts) = &mut self.parts else { return (bytes, Vec::new()) };
        let mut taken = parts.split_off(parts.len() - parts_since(parts, len).len());
        taken.iter_mut().for_each(|part| part.at -= len);
        (bytes, taken)
    }

    /// Appends what `take_since` has returned.
    pub fn append(&mut self, bytes: &[u8], taken: &[ReplyPart]) {
        let Some(parts) = &mut self.parts else {
            let mut from = 0;
            for part in taken {
                self.output.extend_from_slice(&bytes[from..part.at]);
                self.output.extend_from_slice(&part.bytes);
                from = part.at;
            }
            self.output.extend_from_slice(&bytes[from..]);
            return;
        };
        let start = self.output.len();
        parts.extend(taken.iter().map(|part| ReplyPart { at: start + part.at, ..part.clone() }));
        self.output.extend_from_slice(bytes);
    }

    /// How many bytes of the reply come after the output's first `start` bytes. Those of parts
    /// count too.
    pub fn len_since(&self, start: usize) -> usize {
        let parts = self.parts.as_deref().map_or(&[][..], |parts| parts_since(parts, start));
        self.output.len() - start + parts.iter().map(|part| part.bytes.len()).sum::<usize>()
    }

    #[inline(always)]
    pub fn protocol(&self) -> Protocol {
        self.protocol
    }

    /// The buffer itself, for bytes that were serialised elsewhere.
    #[inline(always)]
    pub fn output(&mut self) -> &mut Vec<u8> {
        self.output
    }

    /// Appends complete replies that are already in the right protocol version.
    #[inline(always)]
    pub fn raw(&mut self, reply: &[u8]) {
        self.output.extend_from_slice(reply);
    }

    #[inline(always)]
    pub fn ok(&mut self) {
        self.raw(b"+OK\r\n");
    }

    /// The answer to a command that waits for EXEC.
    #[inline(always)]
    pub fn queued(&mut self) {
        self.raw(b"+QUEUED\r\n");
    }

    /// A status. Line ends and zero bytes in it become blanks.
    pub fn simple(&mut self, text: impl AsRef<[u8]>) {
        self.output.push(b'+');
        self.line(text.as_ref());
    }

    /// An error. The text starts with its code (`ERR`, `WRONGTYPE`). Line ends at the end of the
    /// text are dropped. Other line ends and zero bytes become blanks.
    #[cold]
    pub fn error(&mut self, text: impl AsRef<[u8]>) {
        let text = text.as_ref();
        let end = text.iter().rposition(|byte| !matches!(byte, b'\r' | b'\n'));
        self.output.push(b'-');
        self.line(&text[..end.map_or(0, |last| last + 1)]);
    }

    #[inline(always)]
    pub fn integer(&mut self, value: i64) {
        match value {
            0 => self.raw(b":0\r\n"),
            1 => self.raw(b":1\r\n"),
            _ => self.header(b':', value),
        }
    }

    #[inline(always)]
    pub fn bulk(&mut self, value: &[u8]) {
        self.output.reserve(value.len() + BULK_OVERHEAD_LEN_MAX);
        self.length(b'$', value.len());
        self.raw(value);
        self.raw(b"\r\n");
    }

    /// A bulk that may be sent from where it is stored.
    #[inline]
    pub fn bulk_shared(&mut self, value: &Arc<Vec<u8>>) {
        match &mut self.parts {
            Some(parts) => {
                let mut digits = itoa::Buffer::new();
                self.output.push(b'$');
                self.output.extend_from_slice(digits.format(value.len()).as_bytes());
                self.output.extend_from_slice(b"\r\n");
                parts.push(ReplyPart { at: self.output.len(), bytes: Arc::clone(value).into() });
                self.raw(b"\r\n");
            }
            None => self.bulk(value),
        }
    }

    /// A complete reply, already in the right protocol version, that may be sent from where it is
    /// stored.
    pub fn whole_shared(&mut self, reply: &Arc<Vec<u8>>) {
        match (&mut self.parts, reply.strip_suffix(b"\r\n")) {
            (Some(parts), Some(before)) => {
                let bytes = SharedSlice::new(Arc::clone(reply), 0..before.len());
                parts.push(ReplyPart { at: self.output.len(), bytes });
                // The line end is written here so that the part does not end at the end of a reply.
                self.raw(b"\r\n");
            }
            _ => self.raw(reply),
        }
    }

    /// A bulk of `len` bytes that are stored in several places and may be sent from there.
    pub fn bulk_of_parts(&mut self, len: usize, parts: impl Iterator<Item = SharedSlice>) {
        self.bulk_header(len);
        for bytes in parts {
            match &mut self.parts {
                Some(parts) => parts.push(ReplyPart { at: self.output.len(), bytes }),
                None => self.output.extend_from_slice(&bytes),
            }
        }
        self.bulk_end();
    }

    /// The header of a bulk of `len` bytes. The caller then writes those bytes and calls
    /// [`Self::bulk_end`].
    #[inline(always)]
    pub fn bulk_header(&mut self, len: usize) {
        self.length(b'$', len);
    }

    #[inline(always)]
    pub fn bulk_end(&mut self) {
        self.raw(b"\r\n");
    }

    /// The decimal text of a number, as a bulk.
    #[inline]
    pub fn bulk_i64(&mut self, value: i64) {
        self.bulk(itoa::Buffer::new().format(value).as_bytes());
    }

    /// A bulk, or null if there is none.
    #[inline(always)]
    pub fn bulk_or_null(&mut self, value: Option<&[u8]>) {
        match value {
            Some(value) => self.bulk(value),
            None => self.null(),
        }
    }

    #[inline(always)]
    pub fn null(&mut self) {
        match self.protocol {
            Protocol::Resp2 => self.raw(b"$-1\r\n"),
            Protocol::Resp3 => self.raw(b"_\r\n"),
        }
    }

    /// The null of commands that otherwise reply with an array.
    #[inline]
    pub fn null_array(&mut self) {
        match self.protocol {
            Protocol::Resp2 => self.raw(b"*-1\r\n"),
            Protocol::Resp3 => self.raw(b"_\r\n"),
        }
    }

    #[inline(always)]
    pub fn empty_array(&mut self) {
        self.raw(b"*0\r\n");
    }

    /// The header of an array of `len` values.
    #[inline(always)]
    pub fn array(&mut self, len: usize) {
        self.length(b'*', len);
    }

    /// The header of a map of `len` pairs.
    #[inline]
    pub fn map(&mut self, len: usize) {
        self.aggregate(Aggregate::Map, len);
    }

    /// The header of a set of `len` values, which have no order.
    #[inline]
    pub fn set(&mut self, len: usize) {
        self.aggregate(Aggregate::Set, len);
    }

    /// The header of a push of `len` values. A push is not a reply.
    #[inline]
    pub fn push(&mut self, len: usize) {
        self.aggregate(Aggregate::Push, len);
    }

    /// The header of `len` pairs that describe the value after them. Version 2 has nothing similar:
    /// ask [`Self::protocol`] first, and omit them there.
    pub fn attribute(&mut self, len: usize) {
        debug_assert_eq!(self.protocol, Protocol::Resp3, "attributes need RESP3");
        self.length(b'|', len);
    }

    #[inline]
    pub fn aggregate(&mut self, kind: Aggregate, len: usize) {
        let (prefix, len) = kind.header(self.protocol, len);
        self.length(prefix, len);
    }

    pub fn double(&mut self, value: f64) {
        let text = format_f64(value);
        match self.protocol {
            Protocol::Resp2 => self.bulk(&text),
            Protocol::Resp3 => {
                self.output.push(b',');
                self.raw(&text);
                self.raw(b"\r\n");
            }
        }
    }

    /// A number that was formatted elsewhere (such as by INCRBYFLOAT): a double or a bulk.
    pub fn double_text(&mut self, text: &[u8]) {
        match self.protocol {
            Protocol::Resp2 => self.bulk(text),
            Protocol::Resp3 => {
                self.output.push(b',');
                self.line(text);
            }
        }
    }

    /// An integer of any size, given by its digits.
    pub fn big_number(&mut self, digits: &[u8]) {
        match self.protocol {
            Protocol::Resp2 => self.bulk(digits),
            Protocol::Resp3 => {
                self.output.push(b'(');
                self.line(digits);
            }
        }
    }

    pub fn boolean(&mut self, value: bool) {
        self.raw(match (self.protocol, value) {
            (Protocol::Resp2, true) => b":1\r\n",
            (Protocol::Resp2, false) => b":0\r\n",
            (Protocol::Resp3, true) => b"#t\r\n",
            (Protocol::Resp3, false) => b"#f\r\n",
        });
    }

    /// A text with a format of three letters, such as `txt` or `mkd`.
    pub fn verbatim(&mut self, format: &str, text: &[u8]) {
        debug_assert_eq!(format.len(), VERBATIM_FORMAT_LEN, "format {format:?}");
        match self.protocol {
            Protocol::Resp2 => self.bulk(text),
            Protocol::Resp3 => {
                self.length(b'=', text.len() + VERBATIM_FORMAT_LEN + 1);
                self.raw(format.as_bytes());
                self.output.push(b':');
                self.raw(text);
                self.raw(b"\r\n");
            }
        }
    }

    /// Remembers this place for a header whose count is not known yet. Write the elements, then
    /// call [`Self::finish`]. Deferred headers may be nested; the innermost is finished first.
    #[inline]
    pub fn defer(&mut self) -> Deferred {
        let position = self.output.len();
        self.raw(&[0; DEFERRED_LEN]);
        Deferred { position }
    }

    /// Writes the header for everything written since `deferred`. A count of one digit fits the
    /// reserved room. For a longer one the elements are moved.
    pub fn finish(&mut self, deferred: Deferred, kind: Aggregate, len: usize) {
        let (prefix, len) = kind.header(self.protocol, len);
        let room = deferred.position..deferred.position + DEFERRED_LEN;
        debug_assert!(room.end <= self.output.len(), "deferred {room:?} of {}", self.output.len());
        if len < 10 {
            self.output[room].copy_from_slice(&[prefix, b'0' + len as u8, b'\r', b'\n']);
        } else {
            let mut digits = itoa::Buffer::new();
            let digits = digits.format(len).as_bytes();
            let mut header = [0; HEADER_LEN_MAX];
            header[0] = prefix;
            header[1..=digits.len()].copy_from_slice(digits);
            let len = digits.len() + 3;
            header[len - 2..len].copy_from_slice(b"\r\n");
            let start = room.start;
            self.output.splice(room, header[..len].iter().copied());
            if let Some(parts) = &mut self.parts {
                let moved = parts.len() - parts_since(parts, start).len();
                parts[moved..].iter_mut().for_each(|part| part.at += len - DEFERRED_LEN);
            }
        }
    }

    /// [`Self::finish`] with an array.
    pub fn finish_array(&mut self, deferred: Deferred, len: usize) {
        self.finish(deferred, Aggregate::Array, len);
    }

    /// Removes everything written since `deferred`, and the reserved room.
    pub fn cancel(&mut self, deferred: Deferred) {
        self.truncate(deferred.position);
    }

    /// A length or a count. It nearly always has one or two digits.
    #[inline(always)]
    fn length(&mut self, prefix: u8, len: usize) {
        if len < 10 {
            self.raw(&[prefix, b'0' + len as u8, b'\r', b'\n']);
        } else if len < 100 {
            let (tens, ones) = (b'0' + (len / 10) as u8, b'0' + (len % 10) as u8);
            self.raw(&[prefix, tens, ones, b'\r', b'\n']);
        } else {
            // No buffer is longer than `isize::MAX`.
            self.header(prefix, len as i64);
        }
    }

    #[inline(never)]
    fn header(&mut self, prefix: u8, value: i64) {
        let mut buffer = itoa::Buffer::new();
        let digits = buffer.format(value).as_bytes();
        self.output.reserve(digits.len() + 3);
        self.output.push(prefix);
        self.raw(digits);
        self.raw(b"\r\n");
    }

    fn line(&mut self, text: &[u8]) {
        let start = self.output.len();
        self.raw(text);
        for byte in &mut self.output[start..] {
            if matches!(byte, b'\r' | b'\n' | 0) {
                *byte = b' ';
            }
        }
        self.raw(b"\r\n");
    }
}

/// The parts that lie behind the output's first `start` bytes.
pub fn parts_since(parts: &[ReplyPart], start: usize) -> &[ReplyPart] {
    // Each part has a line end behind it that is in the output, so no part lies exactly between two
    // replies.
    &parts[parts.partition_point(|part| part.at < start)..]
}

/// Drops the parts that lie behind the output's first `start` bytes.
pub fn truncate_parts(parts: &mut Vec<ReplyPart>, start: usize) {
    if !parts.is_empty() {
        let kept = parts.len() - parts_since(parts, start).len();
        parts.truncate(kept);
    }
}

/// A reply that holds values or pairs of values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Aggregate {
    Array,
    Map,
    Set,
    Push,
}

impl Aggregate {
    /// The prefix and the count with which a protocol version announces `len` values or pairs.
    #[inline]
    fn header(self, protocol: Protocol, len: usize) -> (u8, usize) {
        match (protocol, self) {
            (Protocol::Resp2, Self::Map) => (b'*', len * 2),
            (Protocol::Resp2, _) | (_, Self::Array) => (b'*', len),
            (Protocol::Resp3, Self::Map) => (b'%', len),
            (Protocol::Resp3, Self::Set) => (b'~', len),
            (Protocol::Resp3, Self::Push) => (b'>', len),
        }
    }
}

/// A place where the header is still missing.
#[must_use = "a deferred header must be finished or cancelled"]
#[derive(Debug)]
pub struct Deferred {
    position: usize,
}

/// A prefix, up to 20 digits, and a line end.
const HEADER_LEN_MAX: usize = 23;
/// A header, and the line end behind the bytes.
const BULK_OVERHEAD_LEN_MAX: usize = HEADER_LEN_MAX + 2;
const VERBATIM_FORMAT_LEN: usize = 3;
/// `*N` CR LF.
const DEFERRED_LEN: usize = 4;

#[cfg(test)]
mod tests {
    use super::*;

    /// What `write` appends in each protocol version.
    fn both(write: impl Fn(&mut Reply<'_>)) -> [String; 2] {
        [Protocol::Resp2, Protocol::Resp3].map(|protocol| {
            let mut output = Vec::new();
            write(&mut Reply::new(&mut output, protocol));
            String::from_utf8(output).unwrap()
        })
    }

    fn same(write: impl Fn(&mut Reply<'_>)) -> String {
        let [resp2, resp3] = both(write);
        assert_eq!(resp2, resp3);
        resp2
    }

    #[test]
    fn the_same_in_both_versions() {
        assert_eq!(same(|reply| reply.ok()), "+OK\r\n");
        assert_eq!(same(|reply| reply.queued()), "+QUEUED\r\n");
        assert_eq!(same(|reply| reply.simple("a\r\nb\0\n")), "+a  b  \r\n");
        assert_eq!(same(|reply| reply.error("ERR a\r\nb\0c\r\n")), "-ERR a  b c\r\n");
        assert_eq!(same(|reply| reply.error(b"\n")), "-\r\n");
        assert_eq!(same(|reply| reply.bulk(b"")), "$0\r\n\r\n");
        assert_eq!(same(|reply| reply.bulk_i64(-15)), "$3\r\n-15\r\n");
        assert_eq!(same(|reply| reply.bulk_or_null(Some(b"a"))), "$1\r\na\r\n");
        assert_eq!(same(|reply| reply.empty_array()), "*0\r\n");
        for value in [0, 1, 2, -1, 9, 10, i64::MAX, i64::MIN] {
            assert_eq!(same(|reply| reply.integer(value)), format!(":{value}\r\n"));
        }
        for len in [0, 1, 9, 10, 11, 99, 100, 101, 1000, 123_456] {
            assert_eq!(same(|reply| reply.array(len)), format!("*{len}\r\n"));
            let value = "x".repeat(len);
            assert_eq!(
                same(|reply| reply.bulk(value.as_bytes())),
                format!("${len}\r\n{value}\r\n")
            );
            let in_parts = |reply: &mut Reply<'_>| {
                reply.bulk_header(len);
                reply.raw(value.as_bytes());
                reply.bulk_end();
            };
            assert_eq!(same(in_parts), format!("${len}\r\n{value}\r\n"));
        }
    }

    #[test]
    fn large_values_stay_where_they_are() {
        let value = Arc::new(vec![b'x'; 3]);
        let (mut output, mut parts) = (b"+OK\r\n".to_vec(), Vec::new());
        let mut reply = Reply::with_parts(&mut output, &mut parts, Protocol::Resp2);
        let deferred = reply.defer();
        for _ in 0..10 {
            reply.reborrow().bulk_shared(&value);
        }
        reply.finish_array(deferred, 10);
        assert_eq!(reply.len_since(5), 5 + 10 * 9);
        let start = reply.output().len();
        reply.bulk_shared(&value);
        reply.whole_shared(&Arc::new(b"+whole\r\n".to_vec()));
        let (bytes, taken) = reply.take_since(start);
        assert_eq!((reply.output().len(), taken.len()), (start, 2));
        assert_eq!(same(|reply| reply.append(&bytes, &taken)), "$3\r\nxxx\r\n+whole\r\n");
        reply.append(&bytes, &taken);
        assert_eq!(reply.len_since(start), 17);
        reply.truncate(start);
        assert_eq!(output, [&b"+OK\r\n*10\r\n"[..], &b"$3\r\n\r\n".repeat(10)].concat());
        assert_eq!(parts.len(), 10);
        for (index, part) in parts.iter().enumerate() {
            assert_eq!(part.at, 10 + 6 * index + 4);
        }
        assert_eq!(parts_since(&parts, 16).len(), 9);
        assert_eq!(same(|reply| reply.bulk_shared(&value)), "$3\r\nxxx\r\n");
    }

    // The expected forms are the answers of valkey-server 9.1.2 to DEBUG PROTOCOL.
    #[test]
    fn version_2_gets_the_nearest_type() {
        assert_eq!(both(|reply| reply.null()), ["$-1\r\n", "_\r\n"]);
        assert_eq!(both(|reply| reply.bulk_or_null(None)), ["$-1\r\n", "_\r\n"]);
        assert_eq!(both(|reply| reply.null_array()), ["*-1\r\n", "_\r\n"]);
        assert_eq!(both(|reply| reply.double(2.625)), ["$5\r\n2.625\r\n", ",2.625\r\n"]);
        assert_eq!(both(|reply| reply.double_text(b"3.5")), ["$3\r\n3.5\r\n", ",3.5\r\n"]);
        assert_eq!(both(|reply| reply.boolean(true)), [":1\r\n", "#t\r\n"]);
        assert_eq!(both(|reply| reply.boolean(false)), [":0\r\n", "#f\r\n"]);
        assert_eq!(both(|reply| reply.map(12)), ["*24\r\n", "%12\r\n"]);
        assert_eq!(both(|reply| reply.set(3)), ["*3\r\n", "~3\r\n"]);
        assert_eq!(both(|reply| reply.push(2)), ["*2\r\n", ">2\r\n"]);
        assert_eq!(both(|reply| reply.big_number(b"123")), ["$3\r\n123\r\n", "(123\r\n"]);
        let verbatim = both(|reply| reply.verbatim("txt", b"a\nb"));
        assert_eq!(verbatim, ["$3\r\na\nb\r\n", "=7\r\ntxt:a\nb\r\n"]);
    }

    #[test]
    fn deferred_headers() {
        let counted = |len| {
            move |reply: &mut Reply<'_>| {
                reply.ok();
                let outer = reply.defer();
                let inner = reply.defer();
                for _ in 0..len {
                    reply.integer(1);
                }
                reply.finish_array(inner, len);
                let dropped = reply.defer();
                reply.integer(2);
                reply.cancel(dropped);
                reply.finish(outer, Aggregate::Map, len);
            }
        };
        for len in [0, 1, 4, 5, 9, 10, 99, 100, 1000] {
            let elements = ":1\r\n".repeat(len);
            let resp2 = format!("+OK\r\n*{}\r\n*{len}\r\n{elements}", len * 2);
            let resp3 = format!("+OK\r\n%{len}\r\n*{len}\r\n{elements}");
            assert_eq!(both(counted(len)), [resp2, resp3]);
        }
    }
}
