//! One connection of a replica to its primary, without the socket: the bytes that came by it, and
//! those that will be sent.

use super::GiveUp;
use crate::engine::log::append_command;

/// A connection.
#[derive(Default)]
pub struct Channel {
    pub(super) input: Input,
    output: Vec<u8>,
    /// When something came last (ms).
    pub(super) heard_ms: i64,
    /// Why nothing more comes by it.
    end: Option<GiveUp>,
}

/// Bytes that came and are not done with.
#[derive(Default)]
pub(super) struct Input {
    pub bytes: Vec<u8>,
    /// The first that is needed.
    pub start: usize,
    /// The first that was not looked at.
    pub at: usize,
    /// Behind the last that came.
    pub end: usize,
}

/// Bytes of a line, at most.
pub(super) const LINE_MAX: usize = 4096;
/// A buffer that grew beyond this is given back when it is not needed.
const KEPT_MAX: usize = 1 << 20;

impl Channel {
    pub(super) fn new(now_ms: i64) -> Self {
        Self { heard_ms: now_ms, ..Self::default() }
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

    /// Nothing more comes by it. That matters only where what has come is not enough.
    pub fn ended(&mut self, why: GiveUp) {
        self.end = Some(why);
    }

    /// More is needed: the error is why none comes.
    pub(super) fn expect_more(&self) -> Result<(), GiveUp> {
        self.end.clone().map_or(Ok(()), Err)
    }

    /// The bytes that the driver has to send. It removes what it has sent.
    pub const fn output(&mut self) -> &mut Vec<u8> {
        &mut self.output
    }

    pub(super) fn say(&mut self, words: &[Vec<u8>]) {
        let words: Vec<&[u8]> = words.iter().map(|word| &**word).collect();
        append_command(&mut self.output, &words);
    }
}

impl Input {
    pub(super) fn rest(&self) -> &[u8] {
        &self.bytes[self.at..self.end]
    }

    /// Bytes that are looked at and not needed any more.
    pub(super) const fn skip(&mut self, len: usize) {
        self.at += len;
        self.start = self.at;
    }

    /// The next line that is not empty, without its end. Empty ones say that the primary is alive.
    pub(super) fn line(&mut self) -> Result<Option<Vec<u8>>, GiveUp> {
        loop {
            let rest = self.rest();
            let end = memchr::memchr(b'\n', rest);
            if end.unwrap_or(rest.len()) > LINE_MAX {
                return Err(GiveUp::because("the primary's line is too long".to_owned()));
            }
            let Some(end) = end else { return Ok(None) };
            let line = rest[..end].strip_suffix(b"\r").unwrap_or(&rest[..end]).to_vec();
            self.skip(end + 1);
            if !line.is_empty() {
                return Ok(Some(line));
            }
        }
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
