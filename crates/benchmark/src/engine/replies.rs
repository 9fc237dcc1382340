//! Counts replies without making values of them: what a load generator needs to know about a reply
//! is that it came, how long it was, and whether it was nothing or an error.

use bobbin_resp::{REPLY_BULK_LEN_MAX, REPLY_LINE_LEN_MAX, ReplyError, parse_i64};

/// What kind of reply came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReplyKind {
    Value,
    /// A null: the key that was asked for is not there.
    Null,
    Error,
    /// No reply, but a message that the server sends by itself.
    Push,
}

/// A reply, as far as a load generator needs to know it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Counted {
    pub kind: ReplyKind,
    /// How long it was.
    pub bytes: usize,
    /// Its values: the elements of an array, else one; none if it is an error.
    pub values: u64,
    /// How many of them were null.
    pub nulls: u64,
}

/// The replies of one connection, in whatever pieces they come. Nothing is kept but the beginning
/// of a line that was cut.
#[derive(Debug, Default)]
pub struct ReplyCounter {
    /// Bytes of a bulk, with its CR LF, that are still to come.
    skip: usize,
    /// Values of the current reply that are still to come, less the one that is being read.
    pending: u64,
    inside: bool,
    kind: Option<ReplyKind>,
    /// Bytes of the current reply so far.
    bytes: usize,
    values: u64,
    nulls: u64,
    line: Vec<u8>,
}

impl ReplyCounter {
    /// Takes the next bytes and calls `each` for every reply that ends in them, with its text if it
    /// is an error.
    #[inline]
    pub fn feed(
        &mut self,
        input: &[u8],
        mut each: impl FnMut(Counted, &[u8]),
    ) -> Result<(), ReplyError> {
        let mut at = 0;
        while at < input.len() {
            if self.skip > 0 {
                let skipped = self.skip.min(input.len() - at);
                self.skip -= skipped;
                self.bytes += skipped;
                at += skipped;
                if self.skip == 0 {
                    self.end_value(b"", &mut each);
                }
                continue;
            }
            let Some(len) = input[at..].iter().position(|&byte| byte == b'\n') else {
                if self.line.len() + input.len() - at > REPLY_LINE_LEN_MAX {
                    return Err(ReplyError::LineTooLong);
                }
                self.line.extend_from_slice(&input[at..]);
                return Ok(());
            };
            let end = at + len + 1;
            if self.line.is_empty() {
                self.line(&input[at..end], &mut each)?;
            } else {
                self.line.extend_from_slice(&input[at..end]);
                let line = std::mem::take(&mut self.line);
                self.line(&line, &mut each)?;
                self.line = line;
                self.line.clear();
            }
            at = end;
        }
        Ok(())
    }

    /// One line with its CR LF.
    #[inline]
    fn line(
        &mut self,
        line: &[u8],
        each: &mut impl FnMut(Counted, &[u8]),
    ) -> Result<(), ReplyError> {
        self.bytes += line.len();
        let [prefix, rest @ .., b'\r', b'\n'] = line else { return Err(ReplyError::Malformed) };
        let top = !self.inside;
        self.inside = true;
        if top {
            (self.values, self.nulls) = (u64::from(*prefix != b'-' && *prefix != b'!'), 0);
        }
        let mut text: &[u8] = b"";
        let kind = match prefix {
            b'+' | b':' | b',' | b'#' | b'(' => ReplyKind::Value,
            b'_' => ReplyKind::Null,
            b'-' => {
                text = rest;
                ReplyKind::Error
            }
            b'$' | b'!' | b'=' => {
                let len = parse_i64(rest).ok_or(ReplyError::Malformed)?;
                if len >= 0 {
                    let len = usize::try_from(len).map_err(|_| ReplyError::Malformed)?;
                    if len > REPLY_BULK_LEN_MAX {
                        return Err(ReplyError::BulkTooLong);
                    }
                    self.skip = len + CRLF_LEN;
                    if top {
                        self.kind =
                            Some(if *prefix == b'!' { ReplyKind::Error } else { ReplyKind::Value });
                    }
                    return Ok(());
                }
                ReplyKind::Null
            }
            b'*' | b'~' | b'>' | b'%' | b'|' => {
                let len = parse_i64(rest).ok_or(ReplyError::Malformed)?;
                if len >= 0 {
                    let len = len as u64;
                    if top {
                        self.values = len;
                    }
                    self.pending = self.pending.saturating_add(match prefix {
                        b'%' => len.saturating_mul(2),
                        // The attributes, and the value they are about.
                        b'|' => len.saturating_mul(2).saturating_add(1),
                        _ => len,
                    });
                    if *prefix == b'>' { ReplyKind::Push } else { ReplyKind::Value }
                } else {
                    ReplyKind::Null
                }
            }
            other => return Err(ReplyError::UnknownType(*other)),
        };
        self.nulls += u64::from(kind == ReplyKind::Null);
        if top {
            self.kind = Some(kind);
        }
        self.end_value(text, each);
        Ok(())
    }

    #[inline]
    fn end_value(&mut self, text: &[u8], each: &mut impl FnMut(Counted, &[u8])) {
        if self.pending > 0 {
            self.pending -= 1;
            return;
        }
        let kind = self.kind.take().unwrap_or(ReplyKind::Value);
        let bytes = std::mem::take(&mut self.bytes);
        self.inside = false;
        each(Counted { kind, bytes, values: self.values, nulls: self.nulls }, text);
    }
}

const CRLF_LEN: usize = 2;

#[cfg(test)]
mod tests {
    use super::*;

    fn count(pieces: &[&[u8]]) -> Result<Vec<(ReplyKind, usize, String)>, ReplyError> {
        let mut counter = ReplyCounter::default();
        let mut replies = Vec::new();
        for piece in pieces {
            counter.feed(piece, |reply, text| {
                let text = String::from_utf8_lossy(text).into_owned();
                replies.push((reply.kind, reply.bytes, text));
            })?;
        }
        Ok(replies)
    }

    const STREAM: &[u8] =
        b"+OK\r\n-ERR no\r\n:5\r\n$3\r\na\r\n\r\n$-1\r\n*2\r\n$1\r\nx\r\n*1\r\n-in\r\n\
        >2\r\n+a\r\n:1\r\n_\r\n%1\r\n+k\r\n*0\r\n*-1\r\n|1\r\n+a\r\n+b\r\n:7\r\n$0\r\n\r\n#t\r\n";

    #[test]
    fn every_kind_is_counted() {
        let kinds: Vec<_> = count(&[STREAM]).unwrap().into_iter().map(|(kind, ..)| kind).collect();
        use ReplyKind::{Error, Null, Push, Value};
        assert_eq!(
            kinds,
            [Value, Error, Value, Value, Null, Value, Push, Null, Value, Null, Value, Value, Value,]
        );
        let replies = count(&[STREAM]).unwrap();
        assert_eq!(replies[1].2, "ERR no");
        assert_eq!(replies.iter().map(|(_, bytes, _)| bytes).sum::<usize>(), STREAM.len());
    }

    /// Keys that MGET asked for, found and not.
    #[test]
    fn the_values_of_an_array_are_counted() {
        let mut counter = ReplyCounter::default();
        let mut replies = Vec::new();
        let bytes = b"*3\r\n$1\r\na\r\n$-1\r\n$0\r\n\r\n-ERR no\r\n$-1\r\n+OK\r\n*2\r\n_\r\n_\r\n*0\r\n!2\r\nno\r\n";
        counter.feed(bytes, |reply, _| replies.push((reply.values, reply.nulls))).unwrap();
        assert_eq!(replies, [(3, 1), (0, 0), (1, 1), (1, 0), (2, 2), (0, 0), (0, 0)]);
    }

    #[test]
    fn pieces_change_nothing() {
        let whole = count(&[STREAM]).unwrap();
        for cut in 0..STREAM.len() {
            assert_eq!(count(&[&STREAM[..cut], &STREAM[cut..]]).unwrap(), whole, "cut at {cut}");
        }
        let single: Vec<_> = STREAM.chunks(1).collect();
        assert_eq!(count(&single).unwrap(), whole);
    }

    #[test]
    fn what_is_no_reply_is_an_error() {
        assert_eq!(count(&[b"HTTP/1.1\r\n"]), Err(ReplyError::UnknownType(b'H')));
        assert_eq!(count(&[b"$x\r\n"]), Err(ReplyError::Malformed));
        assert_eq!(count(&[b"+a\n"]), Err(ReplyError::Malformed));
        assert_eq!(count(&[&[b'+'; REPLY_LINE_LEN_MAX + 1]]), Err(ReplyError::LineTooLong));
    }
}
