//! A RESP2/3 reply that remembers exactly how it was written.
//!
//! Tests compare servers byte for byte, so this parser keeps the text of numbers instead of their
//! value, and [`ReplyFrame::encode`] gives back the bytes that were read unless the server wrote a
//! length in an unusual form (which [`ReplyFrame::parse`] then reports as an error).

/// One frame as it came over the wire.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum ReplyFrame {
    /// `+ - : , # ( _` and the text up to the line's end.
    Line { kind: u8, text: Vec<u8> },
    /// `$ = !` with a length and that many bytes.
    Bulk { kind: u8, bytes: Vec<u8> },
    /// `$-1`, `*-1`.
    Null { kind: u8 },
    /// `* ~ % > |`; of maps and attributes `items` holds keys and values in turn.
    Aggregate { kind: u8, items: Vec<Self> },
}

impl ReplyFrame {
    /// Reads one frame from the start of `input`: the frame and its length in bytes, `None` while
    /// it is incomplete, an error when the bytes are not RESP.
    pub fn parse(input: &[u8]) -> Result<Option<(Self, usize)>, String> {
        let mut cursor = Cursor { input, position: 0 };
        Ok(cursor.frame(0)?.map(|reply| (reply, cursor.position)))
    }

    pub fn bulk(bytes: impl Into<Vec<u8>>) -> Self {
        Self::Bulk { kind: b'$', bytes: bytes.into() }
    }

    pub fn integer(value: i64) -> Self {
        Self::Line { kind: b':', text: value.to_string().into_bytes() }
    }

    pub fn simple(text: &str) -> Self {
        Self::Line { kind: b'+', text: text.into() }
    }

    pub fn error(text: &str) -> Self {
        Self::Line { kind: b'-', text: text.into() }
    }

    pub fn array(items: Vec<Self>) -> Self {
        Self::Aggregate { kind: b'*', items }
    }

    pub fn is_error(&self) -> bool {
        matches!(self, Self::Line { kind: b'-', .. } | Self::Bulk { kind: b'!', .. })
    }

    pub fn is_null(&self) -> bool {
        matches!(self, Self::Null { .. } | Self::Line { kind: b'_', .. })
    }

    /// The bytes of a line or bulk reply.
    pub fn bytes(&self) -> Option<&[u8]> {
        match self {
            Self::Line { kind: b'_', .. } => None,
            Self::Line { text, .. } => Some(text),
            Self::Bulk { bytes, .. } => Some(bytes),
            _ => None,
        }
    }

    /// The bytes of a line or bulk reply, with what is not UTF-8 replaced; empty for the others.
    pub fn text(&self) -> String {
        String::from_utf8_lossy(self.bytes().unwrap_or_default()).into_owned()
    }

    pub fn as_integer(&self) -> Option<i64> {
        match self {
            Self::Line { kind: b':', text } => std::str::from_utf8(text).ok()?.parse().ok(),
            _ => None,
        }
    }

    pub fn items(&self) -> &[Self] {
        match self {
            Self::Aggregate { items, .. } => items,
            _ => &[],
        }
    }

    pub fn encode(&self, output: &mut Vec<u8>) {
        match self {
            Self::Line { kind, text } => {
                output.push(*kind);
                output.extend_from_slice(text);
                output.extend_from_slice(b"\r\n");
            }
            Self::Bulk { kind, bytes } => {
                output.push(*kind);
                output.extend_from_slice(bytes.len().to_string().as_bytes());
                output.extend_from_slice(b"\r\n");
                output.extend_from_slice(bytes);
                output.extend_from_slice(b"\r\n");
            }
            Self::Null { kind } => {
                output.push(*kind);
                output.extend_from_slice(b"-1\r\n");
            }
            Self::Aggregate { kind, items } => {
                output.push(*kind);
                let count = if is_map(*kind) { items.len() / 2 } else { items.len() };
                output.extend_from_slice(count.to_string().as_bytes());
                output.extend_from_slice(b"\r\n");
                for item in items {
                    item.encode(output);
                }
            }
        }
    }

    /// Sorts the elements of every array or set that holds scalars only, and the pairs of every
    /// map, so that replies whose order is the server's choice compare equal.
    pub fn sort_unordered(&mut self) {
        let Self::Aggregate { kind, items } = self else { return };
        items.iter_mut().for_each(Self::sort_unordered);
        if is_map(*kind) {
            let mut pairs: Vec<_> = items.chunks(2).map(<[Self]>::to_vec).collect();
            pairs.sort();
            *items = pairs.concat();
        } else if !items.iter().any(|item| matches!(item, Self::Aggregate { .. })) {
            items.sort();
        }
    }
}

pub(crate) fn is_map(kind: u8) -> bool {
    matches!(kind, b'%' | b'|')
}

/// Finds the end of a frame that comes in parts, without looking at any part twice.
pub(crate) struct FrameScan {
    at: usize,
    /// Frames that must follow.
    left: usize,
}

impl FrameScan {
    pub(crate) const fn new() -> Self {
        Self { at: 0, left: 1 }
    }

    /// Whether the first frame of `input` is whole. `input` is what it was at the last call, and
    /// more.
    pub(crate) fn is_whole(&mut self, input: &[u8]) -> Result<bool, String> {
        while self.left > 0 {
            let Some(&kind) = input.get(self.at) else { return Ok(false) };
            let mut cursor = Cursor { input, position: self.at };
            let Some(line) = cursor.line()? else { return Ok(false) };
            match kind {
                b'$' | b'=' | b'!' => {
                    cursor.position += length(line)?.map_or(0, |length| length + 2);
                    if input.len() < cursor.position {
                        return Ok(false);
                    }
                }
                b'*' | b'~' | b'%' | b'>' | b'|' => {
                    let count = length(line)?.unwrap_or(0);
                    self.left += if is_map(kind) { count * 2 } else { count };
                }
                _ => {}
            }
            self.at = cursor.position;
            self.left -= 1;
        }
        Ok(true)
    }
}

struct Cursor<'a> {
    input: &'a [u8],
    position: usize,
}

impl<'a> Cursor<'a> {
    fn frame(&mut self, depth: usize) -> Result<Option<ReplyFrame>, String> {
        if depth > DEPTH_MAX {
            return Err(format!("a reply is nested deeper than {DEPTH_MAX}"));
        }
        let Some(&kind) = self.input.get(self.position) else { return Ok(None) };
        let Some(line) = self.line()? else { return Ok(None) };
        match kind {
            b'+' | b'-' | b':' | b',' | b'#' | b'(' | b'_' => {
                Ok(Some(ReplyFrame::Line { kind, text: line.to_vec() }))
            }
            b'$' | b'=' | b'!' => {
                let Some(length) = length(line)? else {
                    return Ok(Some(ReplyFrame::Null { kind }));
                };
                let Some(body) = self.input.get(self.position..self.position + length + 2) else {
                    return Ok(None);
                };
                if &body[length..] != b"\r\n" {
                    return Err(format!("no line end after {length} bytes of a bulk reply"));
                }
                self.position += length + 2;
                Ok(Some(ReplyFrame::Bulk { kind, bytes: body[..length].to_vec() }))
            }
            b'*' | b'~' | b'%' | b'>' | b'|' => {
                let Some(count) = length(line)? else { return Ok(Some(ReplyFrame::Null { kind })) };
                let count = if is_map(kind) { count * 2 } else { count };
                let mut items = Vec::new();
                for _ in 0..count {
                    let Some(item) = self.frame(depth + 1)? else { return Ok(None) };
                    items.push(item);
                }
                Ok(Some(ReplyFrame::Aggregate { kind, items }))
            }
            _ => Err(format!("a reply starts with byte {kind:#04x}")),
        }
    }

    /// The rest of the line after the type byte.
    fn line(&mut self) -> Result<Option<&'a [u8]>, String> {
        let rest = &self.input[self.position + 1..];
        let Some(end) = rest.iter().position(|&byte| byte == b'\n') else { return Ok(None) };
        let Some(line) = rest[..end].strip_suffix(b"\r") else {
            return Err("a reply line ends without a carriage return".to_owned());
        };
        self.position += 1 + end + 1;
        Ok(Some(line))
    }
}

/// A length as servers write it: no sign, no leading zero; -1 is null.
fn length(text: &[u8]) -> Result<Option<usize>, String> {
    if text == b"-1" {
        return Ok(None);
    }
    let written = String::from_utf8_lossy(text);
    match written.parse::<usize>() {
        Ok(value) if value <= LENGTH_MAX && value.to_string() == written => Ok(Some(value)),
        _ => Err(format!("a reply has the length {written:?}")),
    }
}

const DEPTH_MAX: usize = 64;
const LENGTH_MAX: usize = 1 << 30;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_parsed_encodes_to_the_same_bytes() {
        let input: &[u8] = b"*3\r\n$3\r\na\r\n\r\n%1\r\n+k\r\n,1.50\r\n*-1\r\n";
        let mut scan = FrameScan::new();
        for cut in 0..input.len() {
            assert_eq!(ReplyFrame::parse(&input[..cut]), Ok(None), "{cut} bytes");
            assert_eq!(scan.is_whole(&input[..cut]), Ok(false), "{cut} bytes");
        }
        assert_eq!(scan.is_whole(input), Ok(true));
        let (reply, length) = ReplyFrame::parse(input).expect("is RESP").expect("is whole");
        assert_eq!(length, input.len());
        let mut output = Vec::new();
        reply.encode(&mut output);
        assert_eq!(output, input);
    }

    #[test]
    fn unusual_lengths_are_refused() {
        for input in ["$01\r\n", "$+1\r\na\r\n", "$-2\r\n", "*x\r\n", "$1\r\nabc", "?\r\n"] {
            assert!(ReplyFrame::parse(input.as_bytes()).is_err(), "{input:?}");
        }
    }

    #[test]
    fn sorting_leaves_mixed_arrays_in_order() {
        let mut scan = ReplyFrame::array(vec![
            ReplyFrame::bulk("0"),
            ReplyFrame::array(vec![ReplyFrame::bulk("b"), ReplyFrame::bulk("a")]),
        ]);
        scan.sort_unordered();
        assert_eq!(scan.items()[0], ReplyFrame::bulk("0"));
        assert_eq!(scan.items()[1].items()[0], ReplyFrame::bulk("a"));
    }
}
