//! Replies on their way out: those of the turn, and those that a socket has not taken yet.
//!
//! Large values are not copied into a reply but referred to. So both kinds are sequences of pieces:
//! bytes that belong to the reply, and values that may be shared with entries.

use std::collections::VecDeque;
use std::io::IoSlice;
use std::os::fd::BorrowedFd;

use bobbin_resp::{ReplyPart, SharedSlice};

use bobbin_io::{Driver, Token};

/// Pending bytes are kept in blocks of this size. Blocks that were sent can be freed, and bytes
/// that wait are not copied again.
const BLOCK: usize = 16 * 1024;
/// The size of the first block, and of a block behind a value, as there is often no more to come.
const FIRST_BLOCK: usize = 1024;
/// The most pieces that are offered to a socket at once.
const PIECES_MAX: usize = 64;
/// The most bytes that are offered to a socket at once. The kernel copies them while all other
/// clients wait, and so does a thread that shares the core (four times as many took 0.15 ms).
pub const SEND_MAX: usize = 128 * 1024;
/// The most bytes that are offered at once to a client that was the only one for a while. The
/// program that reads them wakes up less often: for a value of 1 MB that is a third of what GET
/// costs.
pub const SEND_ALONE_MAX: usize = 512 * 1024;

/// The replies of a turn to all connections, one after the other.
#[derive(Default)]
pub struct Arena {
    pub bytes: Vec<u8>,
    /// Values that belong between the bytes, in order.
    pub parts: Vec<ReplyPart>,
}

/// The range of a connection's replies in the arena's bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReplyRange {
    pub start: usize,
    pub end: usize,
}

/// Replies of a connection that could not be sent at once.
#[derive(Default)]
pub struct ConnectionOutput {
    pieces: VecDeque<OutputPiece>,
    /// The number of bytes of the first piece that were sent.
    sent: usize,
    /// Bytes that are left to send.
    len: usize,
    /// Bytes at the end that must not be sent yet.
    kept_back: usize,
    /// Bytes before those, which may be sent.
    free: usize,
    /// Bytes of memory.
    memory: usize,
    /// The bytes that the current send sends.
    pub sending: Sending,
    /// How many of those bytes the socket was offered (not for records of TLS).
    pub offered: usize,
    /// Whether the connection waits until its socket has room.
    pub blocked: bool,
    /// Since when (Unix ms) the output is over the soft limit; 0 if it is not.
    pub over_soft_since_ms: i64,
}

enum OutputPiece {
    Bytes(Vec<u8>),
    Shared(SharedSlice),
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Sending {
    #[default]
    Nothing,
    /// This range of the turn's arena.
    Arena(ReplyRange),
    /// The pending bytes.
    Pending,
    /// This range of the turn's TLS records.
    Sealed(ReplyRange),
}

impl Arena {
    /// Drops all replies, and frees memory beyond `kept_max` bytes.
    pub fn clear(&mut self, kept_max: usize) {
        self.bytes.clear();
        self.bytes.shrink_to(kept_max);
        if self.parts.capacity() > 0 {
            self.parts.clear();
            self.parts.shrink_to(PIECES_MAX);
        }
    }

    /// All replies in one piece.
    pub fn join(&mut self) -> &[u8] {
        if self.parts.is_empty() {
            return &self.bytes;
        }
        let bytes = std::mem::take(&mut self.bytes);
        let mut from = 0;
        for part in self.parts.drain(..) {
            self.bytes.extend_from_slice(&bytes[from..part.at]);
            self.bytes.extend_from_slice(&part.bytes);
            from = part.at;
        }
        self.bytes.extend_from_slice(&bytes[from..]);
        &self.bytes
    }

    /// Moves the replies of another arena behind these.
    pub fn append(&mut self, other: &mut Self) {
        let start = self.bytes.len();
        let moved = other.parts.drain(..).map(|part| ReplyPart { at: start + part.at, ..part });
        self.parts.extend(moved);
        self.bytes.append(&mut other.bytes);
    }

    /// Removes everything that was written since the bytes were `len` long.
    pub fn truncate(&mut self, len: usize) {
        self.bytes.truncate(len);
        bobbin_resp::truncate_parts(&mut self.parts, len);
    }

    /// Bytes of the replies in a range, with their values.
    pub fn len_of(&self, range: ReplyRange) -> usize {
        range.end - range.start + self.parts_of(range).iter().map(|p| p.bytes.len()).sum::<usize>()
    }

    /// Bytes of the replies behind the first `start` bytes, with their values.
    pub fn len_since(&self, start: usize) -> usize {
        self.len_of(ReplyRange { start, end: self.bytes.len() })
    }

    fn parts_of(&self, range: ReplyRange) -> &[ReplyPart] {
        if self.parts.is_empty() {
            return &[];
        }
        let parts = bobbin_resp::parts_since(&self.parts, range.start);
        &parts[..parts.partition_point(|part| part.at < range.end)]
    }

    /// Calls `f` with the pieces of the replies in a range, for at most `len_max` bytes. Returns
    /// the number of bytes.
    pub fn each_piece(
        &self,
        range: ReplyRange,
        len_max: usize,
        f: &mut impl FnMut(&[u8]),
    ) -> usize {
        let (mut start, mut left) = (range.start, len_max);
        let mut hand_on = |bytes: &[u8]| {
            let bytes = &bytes[..bytes.len().min(left)];
            left -= bytes.len();
            if !bytes.is_empty() {
                f(bytes);
            }
        };
        for part in self.parts_of(range) {
            hand_on(&self.bytes[start..part.at]);
            hand_on(&part.bytes);
            start = part.at;
        }
        hand_on(&self.bytes[start..range.end]);
        len_max - left
    }

    /// Sends the replies of a range, or the first `len_max` bytes of them or fewer. Returns which,
    /// and how many bytes.
    ///
    /// # Safety
    /// The arena is not changed before the driver's next wait has returned.
    pub unsafe fn send(
        &self,
        range: ReplyRange,
        len_max: usize,
        driver: &mut impl Driver,
        token: Token,
        socket: BorrowedFd<'_>,
    ) -> Offered {
        let parts = self.parts_of(range);
        if parts.is_empty() {
            let bytes = &self.bytes[range.start..range.end.min(range.start + len_max)];
            // SAFETY: the caller's promise.
            unsafe { driver.send(token, socket, bytes.as_ptr(), bytes.len()) };
            return Offered { len: bytes.len(), is_all: range.end - range.start <= len_max };
        }
        let (mut offer, mut start) = (Offer::up_to(len_max), range.start);
        let fits = parts.iter().all(|part| {
            let before = &self.bytes[start..part.at];
            start = part.at;
            offer.add(before) && offer.add(&part.bytes)
        });
        if fits {
            offer.add(&self.bytes[start..range.end]);
        }
        // SAFETY: the caller's promise; the parts are the arena's as well.
        unsafe { driver.send_vectored(token, socket, offer.slices()) };
        Offered { len: offer.len(), is_all: offer.len() == self.len_of(range) }
    }
}

impl ConnectionOutput {
    pub fn push(&mut self, bytes: &[u8]) {
        // Behind a value there are often only the few bytes that end its reply.
        let more = matches!(self.pieces.back(), Some(OutputPiece::Bytes(_)));
        self.push_into(bytes, if more { BLOCK } else { FIRST_BLOCK });
    }

    /// Appends a copy of `bytes`. If that needs another block, the block has at least `room` bytes.
    fn push_into(&mut self, mut bytes: &[u8], room: usize) {
        self.len += bytes.len();
        if let Some(OutputPiece::Bytes(last)) = self.pieces.back_mut() {
            let fitting = bytes.len().min(last.capacity() - last.len());
            last.extend_from_slice(&bytes[..fitting]);
            bytes = &bytes[fitting..];
        }
        if bytes.is_empty() {
            return;
        }
        let mut block = Vec::with_capacity(bytes.len().max(room));
        block.extend_from_slice(bytes);
        self.push_piece(OutputPiece::Bytes(block));
    }

    /// Appends owned bytes. If they are many, they are moved and not copied.
    pub fn push_owned(&mut self, bytes: Vec<u8>) {
        if bytes.len() < BLOCK {
            self.push(&bytes);
        } else {
            self.len += bytes.len();
            self.push_piece(OutputPiece::Bytes(bytes));
        }
    }

    /// Appends shared bytes. If they are many, they are referred to and not copied.
    pub fn push_shared(&mut self, bytes: SharedSlice) {
        if bytes.len() < FIRST_BLOCK {
            self.push(&bytes);
        } else {
            self.len += bytes.len();
            self.push_piece(OutputPiece::Shared(bytes));
        }
    }

    /// Appends the replies of an owned arena.
    pub fn push_arena(&mut self, arena: Arena) {
        if arena.parts.is_empty() {
            self.push_owned(arena.bytes);
        } else {
            self.push_replies(&arena, ReplyRange { start: 0, end: arena.bytes.len() }, 0);
        }
    }

    /// Appends replies of an arena that will be cleared, without their first `sent` bytes.
    pub fn push_replies(&mut self, arena: &Arena, range: ReplyRange, mut sent: usize) {
        let mut start = range.start;
        for part in arena.parts_of(range) {
            // Nothing will be added to this block.
            self.push_into(unsent(&arena.bytes[start..part.at], &mut sent), 0);
            start = part.at;
            if sent >= part.bytes.len() {
                sent -= part.bytes.len();
            } else {
                debug_assert!(sent == 0 || self.pieces.is_empty(), "sent behind what waits");
                self.sent = if self.pieces.is_empty() { sent } else { self.sent };
                self.len += part.bytes.len() - std::mem::take(&mut sent);
                self.push_piece(OutputPiece::Shared(part.bytes.clone()));
            }
        }
        self.push(unsent(&arena.bytes[start..range.end], &mut sent));
    }

    fn push_piece(&mut self, piece: OutputPiece) {
        self.memory += piece.memory();
        self.pieces.push_back(piece);
    }

    /// Sends the pending bytes, or the first `len_max` bytes of them or fewer.
    ///
    /// # Safety
    /// Nothing is advanced or cleared before the driver's next wait has returned.
    pub unsafe fn send(
        &self,
        len_max: usize,
        driver: &mut impl Driver,
        token: Token,
        socket: BorrowedFd<'_>,
    ) -> Offered {
        let (mut offer, mut skipped) = (Offer::up_to(self.free.min(len_max)), self.sent);
        for piece in &self.pieces {
            if !offer.add(&piece.bytes()[std::mem::take(&mut skipped)..]) {
                break;
            }
        }
        // SAFETY: the caller's promise. A push appends to a block only within its capacity.
        unsafe { driver.send_vectored(token, socket, offer.slices()) };
        Offered { len: offer.len(), is_all: offer.len() == self.free }
    }

    /// Calls `f` with the pieces of the bytes that may be sent, for at most `len_max` bytes, and
    /// removes those bytes.
    pub fn drain_free(&mut self, len_max: usize, f: &mut impl FnMut(&[u8])) {
        let len = self.free.min(len_max);
        let (mut left, mut skipped) = (len, self.sent);
        for piece in &self.pieces {
            let bytes = &piece.bytes()[std::mem::take(&mut skipped)..];
            let bytes = &bytes[..bytes.len().min(left)];
            left -= bytes.len();
            if bytes.is_empty() {
                break;
            }
            f(bytes);
        }
        self.advance(len);
    }

    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Bytes that are left to send.
    pub const fn len(&self) -> usize {
        self.len
    }

    /// Whether any bytes may be sent.
    pub fn is_free(&self) -> bool {
        self.free > 0
    }

    /// Keeps back the bytes pushed since the last call of this or of `free`. Returns their number.
    pub fn keep_back(&mut self) -> usize {
        let added = self.len - self.kept_back - self.free;
        self.kept_back += added;
        added
    }

    /// Bytes that are kept back.
    pub const fn kept_back(&self) -> usize {
        self.kept_back
    }

    /// Releases `bytes` of the bytes that were kept back, unless they were dropped meanwhile.
    pub fn release(&mut self, bytes: usize) {
        let bytes = bytes.min(self.kept_back);
        self.kept_back -= bytes;
        self.free += bytes;
    }

    /// Lets the bytes pushed since the last call of this or of `keep_back` be sent, unless bytes
    /// before them are kept back.
    pub fn free(&mut self) {
        if self.kept_back == 0 {
            self.free = self.len;
        }
    }

    /// Notes that `sent` of the pending bytes were sent.
    pub fn advance(&mut self, sent: usize) {
        debug_assert!(sent <= self.free && self.free <= self.len);
        self.len -= sent;
        self.free -= sent;
        self.sent += sent;
        while let Some(first) = self.pieces.front()
            && self.sent >= first.bytes().len()
        {
            self.sent -= first.bytes().len();
            self.memory -= first.memory();
            self.pieces.pop_front();
        }
        if self.is_empty() {
            self.clear();
        }
    }

    /// Drops all pending bytes.
    pub fn clear(&mut self) {
        self.pieces = VecDeque::new();
        (self.sent, self.len, self.memory) = (0, 0, 0);
        (self.kept_back, self.free) = (0, 0);
    }

    /// Bytes of memory that wait for the peer.
    pub const fn memory(&self) -> usize {
        self.memory
    }
}

/// The bytes that are not among the first `sent`. Subtracts the others from `sent`.
fn unsent<'a>(bytes: &'a [u8], sent: &mut usize) -> &'a [u8] {
    let skipped = bytes.len().min(*sent);
    *sent -= skipped;
    &bytes[skipped..]
}

impl OutputPiece {
    fn bytes(&self) -> &[u8] {
        match self {
            Self::Bytes(bytes) => bytes,
            Self::Shared(bytes) => bytes,
        }
    }

    /// A shared value counts in full, as it may have no other owner left.
    fn memory(&self) -> usize {
        size_of::<Self>()
            + match self {
                Self::Bytes(bytes) => bytes.capacity(),
                Self::Shared(bytes) => bytes.len(),
            }
    }
}

/// The result of an offer to a socket.
#[derive(Clone, Copy, Debug)]
pub struct Offered {
    pub len: usize,
    /// Whether nothing else may be sent now.
    pub is_all: bool,
}

impl Offered {
    pub const NOTHING: Self = Self { len: 0, is_all: true };
}

/// The bytes that one send offers to a socket.
struct Offer<'a> {
    slices: [IoSlice<'a>; PIECES_MAX],
    count: usize,
    len: usize,
    len_max: usize,
}

impl<'a> Offer<'a> {
    fn up_to(len_max: usize) -> Self {
        Self { slices: [IoSlice::new(&[]); PIECES_MAX], count: 0, len: 0, len_max }
    }

    const fn len(&self) -> usize {
        self.len
    }

    /// Adds bytes, or as many as there is room for. Returns whether there is room for more.
    fn add(&mut self, bytes: &'a [u8]) -> bool {
        let left = self.len_max - self.len;
        let bytes = &bytes[..bytes.len().min(left)];
        if bytes.is_empty() {
            return left > 0;
        }
        self.slices[self.count] = IoSlice::new(bytes);
        self.count += 1;
        self.len += bytes.len();
        self.len < self.len_max && self.count < PIECES_MAX
    }

    fn slices(&self) -> &[IoSlice<'a>] {
        &self.slices[..self.count]
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    /// An arena in which `|` stands for a shared value of the given text.
    fn arena(text: &str, shared: &str) -> Arena {
        let mut arena = Arena::default();
        for byte in text.bytes() {
            if byte == b'|' {
                let bytes = Arc::new(shared.as_bytes().to_vec()).into();
                arena.parts.push(ReplyPart { at: arena.bytes.len(), bytes });
            } else {
                arena.bytes.push(byte);
            }
        }
        arena
    }

    fn pending(output: &ConnectionOutput) -> String {
        let bytes: Vec<u8> = output.pieces.iter().flat_map(OutputPiece::bytes).copied().collect();
        assert_eq!(bytes.len() - output.sent, output.len);
        String::from_utf8(bytes[output.sent..].to_vec()).unwrap()
    }

    #[test]
    fn replies_keep_their_order_wherever_the_socket_stopped() {
        let arena = arena("other$|!a|b$|c.|later", "XYZ");
        let range = ReplyRange { start: 7, end: 13 };
        let whole = "aXYZb$XYZc.";
        assert_eq!(arena.len_of(ReplyRange { end: 12, ..range }), whole.len());
        for sent in 0..=whole.len() {
            let mut output = ConnectionOutput::default();
            output.push_replies(&arena, ReplyRange { start: 7, end: 12 }, sent);
            assert_eq!(pending(&output), whole[sent..], "{sent} sent");
            output.push(b"more");
            let all = whole[sent..].to_owned() + "more";
            for step in 1..4 {
                output.free();
                output.advance(step);
                assert_eq!(pending(&output), all[step * (step + 1) / 2..].to_owned().as_str());
                if all.len() < (step + 1) * (step + 2) / 2 {
                    break;
                }
            }
        }
    }

    #[test]
    fn a_send_is_bounded() {
        let (some, much) = (vec![7; SEND_MAX / 2], vec![7; SEND_MAX]);
        let mut offer = Offer::up_to(SEND_MAX);
        assert!(offer.add(&some) && !offer.add(&much));
        assert_eq!(offer.slices().iter().map(|slice| slice.len()).sum::<usize>(), SEND_MAX);
        let mut offer = Offer::up_to(SEND_MAX);
        assert!((1..PIECES_MAX).all(|_| offer.add(b"x")) && !offer.add(b"x"));
    }

    #[test]
    fn what_is_kept_back_is_not_sent() {
        let mut output = ConnectionOutput::default();
        output.push(b"free");
        output.free();
        output.push(b"first");
        assert_eq!(output.keep_back(), 5);
        output.push(b"second");
        assert_eq!((output.keep_back(), output.kept_back()), (6, 11));
        output.free();
        output.advance(4);
        assert!(!output.is_free() && !output.is_empty());
        output.release(5);
        output.advance(5);
        assert_eq!(pending(&output), "second");
        output.release(6);
        output.push(b"more");
        output.free();
        output.advance(10);
        assert!(output.is_empty() && !output.is_free());
    }

    #[test]
    fn what_was_dropped_is_not_let_go_later() {
        let mut output = ConnectionOutput::default();
        output.push(b"kept back");
        let bytes = output.keep_back();
        output.clear();
        output.release(bytes);
        assert!(!output.is_free() && output.kept_back() == 0);
        output.push(b"new");
        assert_eq!(output.keep_back(), 3);
        output.release(bytes);
        output.advance(3);
        assert!(output.is_empty());
    }

    #[test]
    fn a_reference_takes_little_memory() {
        let arena = arena(&"$|!".repeat(1000), "XYZ");
        let mut output = ConnectionOutput::default();
        output.push_replies(&arena, ReplyRange { start: 0, end: arena.bytes.len() }, 0);
        assert_eq!(output.len, 5000);
        assert!(output.memory() < 1000 * (2 * size_of::<OutputPiece>() + 8) + FIRST_BLOCK);
    }

    #[test]
    fn memory_is_that_of_what_is_pending() {
        let mut output = ConnectionOutput::default();
        output.push(b"a");
        assert!(output.memory() >= FIRST_BLOCK && output.memory() < 2 * FIRST_BLOCK);
        for _ in 0..100 {
            output.push(&[b'x'; 1000]);
        }
        let memory = output.memory();
        assert!((100_001..100_001 + 2 * BLOCK).contains(&memory), "{memory}");
        output.push_owned(vec![b'y'; 1 << 20]);
        output.free();
        output.advance(100_001);
        assert!(output.memory() < (1 << 20) + BLOCK);
        output.advance(1 << 20);
        assert!(output.is_empty() && output.memory() == 0 && output.pieces.capacity() == 0);
    }
}
