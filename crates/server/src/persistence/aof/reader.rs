//! Reads the commands of a log one after the other, from any source of bytes.
//!
//! Lines between commands that begin with `#` are remarks. `#TS:<seconds>` gives the time of the
//! commands that follow. A base may begin with an RDB file, which this reader does not read.

use std::io::{self, BufRead, Read};
use std::path::Path;

use crate::base::files::disk;

/// Reads the commands of a log.
pub struct AofReader<R> {
    input: R,
    /// How many bytes were read.
    offset: u64,
    /// The arguments of the last command, one behind the other, and where each ends.
    bytes: Vec<u8>,
    ends: Vec<usize>,
    /// How many headers and arguments were read.
    lines: u64,
}

/// An item of the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AofItem {
    /// A command. Its arguments are available until the next item is read.
    Command,
    /// A time in Unix seconds.
    Timestamp(i64),
    Remark,
    /// The log ends behind a complete item.
    End,
}

/// Why no item could be read.
#[derive(Debug)]
pub enum AofFault {
    /// The log ends within an item.
    Truncated,
    /// The bytes are not a log. The text says what was expected.
    Format(String),
    Io(io::Error),
}

/// The most arguments of a command, and the longest line in bytes.
const ARGUMENTS_MAX: u64 = i32::MAX as u64;
const LINE_MAX: u64 = 1024;
/// Memory for an argument is allocated as its bytes arrive, in steps that begin with this size.
const STEP: u64 = 1 << 20;
/// The longest argument: the largest value of `proto-max-bulk-len`.
const ARGUMENT_MAX: u64 = i64::MAX as u64;
/// A buffer that grew beyond this is freed.
const KEPT_MAX: usize = 1 << 20;

impl<R: BufRead> AofReader<R> {
    /// `offset` is how many bytes of the log come before `input`.
    pub fn new(input: R, offset: u64) -> Self {
        Self { input, offset, bytes: Vec::new(), ends: Vec::new(), lines: 0 }
    }

    pub fn read(&mut self) -> Result<AofItem, AofFault> {
        self.bytes.clear();
        self.ends.clear();
        if self.bytes.capacity() > KEPT_MAX {
            self.bytes = Vec::new();
        }
        let Some(first) = self.peek()? else { return Ok(AofItem::End) };
        if first == b'#' {
            return self.remark();
        }
        let count = self.header(b'*')?;
        if !(1..=ARGUMENTS_MAX).contains(&count) {
            return Err(AofFault::Format("Expected a number of arguments from 1".into()));
        }
        for _ in 0..count {
            let length = self.header(b'$')?;
            self.argument(length)?;
            self.ends.push(self.bytes.len());
            if self.line_end()? != *b"\r\n" {
                return Err(AofFault::Format("Expected \\r\\n behind an argument".into()));
            }
        }
        Ok(AofItem::Command)
    }

    /// The arguments of the last command.
    pub fn args(&self) -> impl Iterator<Item = &[u8]> {
        let starts = std::iter::once(0).chain(self.ends.iter().copied());
        starts.zip(&self.ends).map(|(start, &end)| &self.bytes[start..end])
    }

    /// The text of the last remark.
    pub fn remark_text(&self) -> &[u8] {
        &self.bytes
    }

    /// The offset in the log behind the last item.
    pub const fn offset(&self) -> u64 {
        self.offset
    }

    /// How many lines were read. Each argument counts as one.
    pub const fn lines(&self) -> u64 {
        self.lines
    }

    fn remark(&mut self) -> Result<AofItem, AofFault> {
        let line = self.line()?;
        let Some(text) = line.strip_prefix(b"#TS:") else {
            self.bytes = line;
            return Ok(AofItem::Remark);
        };
        let text = text.strip_suffix(b"\r").unwrap_or(text);
        let seconds = bobbin_resp::parse_i64(text);
        seconds
            .map(AofItem::Timestamp)
            .ok_or_else(|| AofFault::Format("Invalid timestamp annotation".into()))
    }

    /// Reads a line that has a mark and a number.
    fn header(&mut self, mark: u8) -> Result<u64, AofFault> {
        let line = self.line()?;
        let expected = || {
            let shown = String::from_utf8_lossy(&line[..line.len().min(SHOWN_MAX)]);
            AofFault::Format(format!("Expected {}<number>, got: '{shown}'", mark as char))
        };
        let number = line.strip_prefix(&[mark]).and_then(|rest| rest.strip_suffix(b"\r"));
        let number = number.and_then(bobbin_resp::parse_i64).ok_or_else(expected)?;
        u64::try_from(number).map_err(|_| expected())
    }

    /// Reads a line, and returns it without its `\n`.
    fn line(&mut self) -> Result<Vec<u8>, AofFault> {
        let mut line = Vec::new();
        let read = (&mut self.input).take(LINE_MAX).read_until(b'\n', &mut line);
        self.offset += read.map_err(AofFault::Io)? as u64;
        if line.pop() == Some(b'\n') {
            self.lines += 1;
            return Ok(line);
        }
        if line.len() as u64 + 1 == LINE_MAX {
            return Err(AofFault::Format("Expected the end of a line".into()));
        }
        Err(AofFault::Truncated)
    }

    fn argument(&mut self, length: u64) -> Result<(), AofFault> {
        if length > ARGUMENT_MAX {
            return Err(AofFault::Format("An argument is too long".into()));
        }
        let mut left = length;
        while left > 0 {
            let step = left.min(STEP);
            let read = (&mut self.input).take(step).read_to_end(&mut self.bytes);
            let read = read.map_err(AofFault::Io)? as u64;
            self.offset += read;
            if read < step {
                return Err(AofFault::Truncated);
            }
            left -= step;
        }
        Ok(())
    }

    fn line_end(&mut self) -> Result<[u8; 2], AofFault> {
        let mut end = [0; 2];
        match self.input.read_exact(&mut end) {
            Ok(()) => {
                self.offset += end.len() as u64;
                self.lines += 1;
                Ok(end)
            }
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Err(AofFault::Truncated),
            Err(error) => Err(AofFault::Io(error)),
        }
    }

    fn peek(&mut self) -> Result<Option<u8>, AofFault> {
        loop {
            match self.input.fill_buf() {
                Ok(bytes) => return Ok(bytes.first().copied()),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(AofFault::Io(error)),
            }
        }
    }
}

/// How many bytes of a wrong line are shown.
const SHOWN_MAX: usize = 32;

/// Whether a file begins with an RDB file.
pub(crate) fn is_rdb(path: &Path) -> bool {
    let mut magic = [0; 5];
    let read = disk::open(path).and_then(|mut file| file.read_exact(&mut magic));
    read.is_ok() && (magic == *b"REDIS" || magic == *b"VALKE")
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOG: &[u8] = b"#TS:1700000000\r\n*2\r\n$3\r\nDEL\r\n$1\r\nk\r\n# hello\n*1\r\n$0\r\n\r\n";

    /// Reads all items. Returns each with the offset of its end, and how reading ended.
    fn read(bytes: &[u8]) -> (Vec<(AofItem, u64)>, Result<(), AofFault>) {
        let (mut reader, mut items) = (AofReader::new(bytes, 0), Vec::new());
        loop {
            match reader.read() {
                Ok(AofItem::End) => return (items, Ok(())),
                Ok(item) => items.push((item, reader.offset())),
                Err(fault) => return (items, Err(fault)),
            }
        }
    }

    #[test]
    fn commands_and_remarks() {
        let (items, end) = read(LOG);
        let expected =
            [(AofItem::Timestamp(1700000000), 16), (AofItem::Command, 36), (AofItem::Remark, 44)];
        assert_eq!(items[..3], expected);
        assert_eq!((items.len(), end.is_ok()), (4, true));
        let mut reader = AofReader::new(&LOG[16..], 16);
        assert_eq!(reader.read().unwrap(), AofItem::Command);
        assert_eq!(reader.args().collect::<Vec<_>>(), [&b"DEL"[..], b"k"]);
    }

    #[test]
    fn a_log_cut_off_anywhere_is_truncated_behind_whole_items() {
        let (whole, _) = read(LOG);
        for len in 0..LOG.len() {
            let (items, end) = read(&LOG[..len]);
            assert_eq!(items[..], whole[..items.len()], "{len}");
            let at = items.last().map_or(0, |(_, end)| *end);
            match end {
                Ok(()) => assert_eq!(at, len as u64),
                Err(AofFault::Truncated) => assert!(at < len as u64),
                Err(other) => panic!("{other:?} at {len}"),
            }
        }
    }

    #[test]
    fn other_bytes_are_refused() {
        for wrong in [
            &b"SET a b\r\n"[..],
            b"*0\r\n",
            b"*-1\r\n",
            b"*1\n$1\r\na\r\n",
            b"*1\r\n:1\r\n",
            b"*1\r\n$-1\r\n",
            b"*1\r\n$1\r\nab\r\n",
            b"*99999999999999999999\r\n",
            b"#TS:soon\r\n",
        ] {
            let end = read(wrong).1;
            assert!(matches!(end, Err(AofFault::Format(_))), "{}", String::from_utf8_lossy(wrong));
        }
        assert!(matches!(read(b"*1\r\n$9223372036854775807\r\nabc").1, Err(AofFault::Truncated)));
    }
}
