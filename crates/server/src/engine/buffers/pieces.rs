//! A long reply that is made in pieces.

use bobbin_resp::{Protocol, Reply};

use super::output::Arena;

/// A reply in pieces. One buffer of many megabytes would be copied each time it grows, and freeing
/// it would take long.
#[derive(Default)]
pub struct Pieces {
    full: Vec<Vec<u8>>,
    /// Bytes of the full pieces.
    full_len: usize,
    /// The piece behind the full ones. Only this one refers to large values.
    last: Arena,
}

impl Pieces {
    pub fn new(full: Vec<Vec<u8>>, last: Arena) -> Self {
        let full_len = full.iter().map(Vec::len).sum();
        Self { full, full_len, last }
    }

    /// The buffer that the reply goes on in. Bytes appended to it before the next call stay
    /// together.
    pub fn open(&mut self) -> &mut Vec<u8> {
        if self.last.bytes.len() >= PIECE {
            self.close();
            self.last.bytes.reserve(PIECE_CAPACITY);
        }
        &mut self.last.bytes
    }

    /// The end of the reply, to which more is appended. It may refer to large values.
    pub fn reply(&mut self, protocol: Protocol) -> Reply<'_> {
        Reply::with_parts(&mut self.last.bytes, &mut self.last.parts, protocol)
    }

    /// Makes a full piece of the last one. The values that it refers to are copied.
    fn close(&mut self) {
        let mut last = std::mem::take(&mut self.last);
        last.join();
        self.full_len += last.bytes.len();
        self.full.push(last.bytes);
    }

    /// The error's text, if the whole reply is an error.
    pub fn error(&self) -> Option<&[u8]> {
        let text = self.last.bytes.strip_prefix(b"-").filter(|_| self.full.is_empty())?;
        text.strip_suffix(b"\r\n")
    }

    /// Bytes of all pieces.
    pub fn byte_len(&self) -> usize {
        self.full_len + self.last.len_since(0)
    }

    /// Puts the pieces of another reply behind these.
    pub fn append(&mut self, mut other: Self) {
        if other.full.is_empty() {
            self.open();
            self.last.append(&mut other.last);
            return;
        }
        self.close();
        self.full_len += other.full_len;
        self.full.append(&mut other.full);
        self.last = other.last;
    }

    /// Takes all pieces but the last, with `header` in front.
    pub fn take(&mut self, header: Vec<u8>) -> Vec<Vec<u8>> {
        let mut pieces = std::mem::take(&mut self.full);
        self.full_len = 0;
        if !header.is_empty() {
            pieces.insert(0, header);
        }
        pieces
    }

    /// Appends the last piece, which `take` has left.
    pub fn append_rest(&mut self, reply: &mut Reply<'_>) {
        let Arena { bytes, parts } = &mut self.last;
        match parts.is_empty() {
            true => move_to(reply, bytes),
            false => reply.append(bytes, parts),
        }
    }
}

/// Appends a reply that was made elsewhere. If `reply` is empty, the bytes are moved, not copied.
pub fn move_to(reply: &mut Reply<'_>, bytes: &mut Vec<u8>) {
    if reply.output().is_empty() {
        std::mem::swap(reply.output(), bytes);
    } else {
        reply.raw(bytes);
    }
}

/// Bytes of memory of a piece: as much as a buffer has that grew by doubling.
const PIECE_CAPACITY: usize = 128 * 1024;
/// A piece is full at this many bytes. There is room left, so that the elements of a step mostly
/// fit.
pub const PIECE: usize = PIECE_CAPACITY / 8 * 7;
