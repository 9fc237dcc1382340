//! How a copy of all keys is sent: its header and its end.

use memchr::memmem;

/// How the end of a copy is found.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum CopyEnd {
    /// By the number of bytes that are left.
    Length(u64),
    /// By a mark behind the copy, which is almost certainly not in it.
    Mark([u8; MARK_BYTES]),
}

/// What received bytes are.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CopyPart {
    /// How many of the first bytes belong to the copy.
    pub len: usize,
    /// How many bytes are used up.
    pub used: usize,
    /// The copy ends here.
    pub is_last: bool,
}

/// The length of the mark at the end of a copy without a length.
pub const MARK_BYTES: usize = 40;

impl CopyEnd {
    /// Parses the line before a copy. The error says what is wrong with it.
    pub fn parse(line: &[u8]) -> Result<Self, String> {
        let shown = || String::from_utf8_lossy(line).into_owned();
        if line.first() == Some(&b'-') {
            let text = String::from_utf8_lossy(&line[1..]);
            return Err(format!("PRIMARY aborted replication with an error: {text}"));
        }
        let Some(what) = line.strip_prefix(b"$") else {
            return Err(format!(
                "Bad protocol from PRIMARY, the first byte is not '$' (we received '{}'), are you \
                 sure the host and port are right?",
                shown()
            ));
        };
        if let Some(mark) = what.strip_prefix(b"EOF:") {
            let mark = mark.first_chunk().ok_or_else(|| format!("too short a mark: '{}'", shown()));
            return mark.copied().map(Self::Mark);
        }
        let length = bobbin_resp::parse_i64(what).and_then(|length| u64::try_from(length).ok());
        length.map(Self::Length).ok_or_else(|| format!("the copy has no length: '{}'", shown()))
    }

    /// How many bytes are expected, if that is known.
    pub const fn length(&self) -> Option<u64> {
        match self {
            Self::Length(length) => Some(*length),
            Self::Mark(_) => None,
        }
    }

    /// Takes at most `len_max` of the bytes that follow those taken before. The caller passes
    /// unused bytes again.
    pub fn take(&mut self, bytes: &[u8], len_max: usize) -> CopyPart {
        match self {
            Self::Length(left) => {
                let len =
                    bytes.len().min(usize::try_from(*left).unwrap_or(usize::MAX)).min(len_max);
                *left -= len as u64;
                CopyPart { len, used: len, is_last: *left == 0 }
            }
            Self::Mark(mark) => match memmem::find(bytes, mark) {
                Some(len) if len <= len_max => {
                    CopyPart { len, used: len + mark.len(), is_last: true }
                }
                found => {
                    // The last bytes may be the beginning of the mark.
                    let sure = found.unwrap_or_else(|| bytes.len().saturating_sub(mark.len() - 1));
                    let len = sure.min(len_max);
                    CopyPart { len, used: len, is_last: false }
                }
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_that_make_no_sense_are_refused() {
        let long = [&b"$EOF:"[..], &[b'm'; 45]].concat();
        assert_eq!(CopyEnd::parse(&long), Ok(CopyEnd::Mark([b'm'; 40])), "as Valkey has it");
        assert_eq!(CopyEnd::parse(b"$0"), Ok(CopyEnd::Length(0)));
        for line in [&b"$-1"[..], b"$", b"$x", b"$EOF:", b"$EOF:short", b"+OK", b"-ERR no", b"*1"] {
            assert!(CopyEnd::parse(line).is_err(), "{line:?}");
        }
        assert!(CopyEnd::parse(b"$99999999999999999999").is_err());
    }

    /// Receives a copy in pieces. Returns the copy and the bytes behind it.
    fn receive(mut end: CopyEnd, bytes: &[u8], piece: usize) -> Option<(Vec<u8>, Vec<u8>)> {
        let (mut input, mut copy) = (Vec::new(), Vec::new());
        let mut pieces = bytes.chunks(piece);
        loop {
            let part = end.take(&input, 50);
            copy.extend_from_slice(&input[..part.len]);
            input.drain(..part.used);
            if part.is_last {
                input.extend(pieces.flatten());
                return Some((copy, input));
            }
            if part.len == 0 {
                input.extend_from_slice(pieces.next()?);
            }
        }
    }

    #[test]
    fn a_copy_ends_at_the_same_byte_however_it_is_cut() {
        let mark = *b"0123456789abcdefghij0123456789ABCDEFGHIJ";
        // The copy contains beginnings of the mark.
        let copy = [&mark[..39], &mark[..20], &mark[..39], b"end"].concat();
        let marked = [&copy, &mark[..], b"stream"].concat();
        let counted = [&copy, &b"stream"[..]].concat();
        let expected = (copy.clone(), b"stream".to_vec());
        for piece in 1..=marked.len() {
            let found = receive(CopyEnd::Mark(mark), &marked, piece);
            assert_eq!(found.as_ref(), Some(&expected), "{piece}");
            let found = receive(CopyEnd::Length(copy.len() as u64), &counted, piece);
            assert_eq!(found.as_ref(), Some(&expected), "{piece}");
            assert_eq!(receive(CopyEnd::Mark(mark), &copy, piece), None);
            assert_eq!(receive(CopyEnd::Length(1000), &copy, piece), None);
        }
    }
}
