//! One connection of a replica to its primary, without its socket: the bytes that were received and
//! the bytes to send.

use super::GiveUp;
use crate::engine::log::append_command;

/// A connection.
#[derive(Default)]
pub struct Channel {
    pub(super) input: ChannelInput,
    output: Vec<u8>,
    /// When something was last received (ms).
    pub(super) heard_ms: i64,
    /// Why nothing more can be received.
    end: Option<GiveUp>,
}

/// Received bytes that are still needed.
#[derive(Default)]
pub(super) struct ChannelInput {
    pub bytes: Vec<u8>,
    /// The start of the first byte that is needed.
    pub start: usize,
    /// The first byte that was not parsed.
    pub at: usize,
    /// The end of the received bytes.
    pub end: usize,
}

/// The longest line in bytes.
pub(super) const LINE_MAX: usize = 4096;
/// A buffer that grew beyond this is freed when it is not needed.
const KEPT_MAX: usize = 1 << 20;

impl Channel {
    pub(super) fn new(now_ms: i64) -> Self {
        Self { heard_ms: now_ms, ..Self::default() }
    }

    /// Room for received bytes, at least `len` of them.
    pub fn room(&mut self, len: usize) -> &mut [u8] {
        self.input.room(len)
    }

    /// Notes that `len` bytes were received into the room.
    pub const fn received(&mut self, len: usize, now_ms: i64) {
        self.input.end += len;
        self.heard_ms = now_ms;
    }

    /// Notes that nothing more can be received. This matters only if more bytes are needed.
    pub fn ended(&mut self, why: GiveUp) {
        self.end = Some(why);
    }

    /// Says that more bytes are needed. The error is why none can come.
    pub(super) fn expect_more(&self) -> Result<(), GiveUp> {
        self.end.clone().map_or(Ok(()), Err)
    }

    /// The bytes to send. The caller removes those that were sent.
    pub const fn output(&mut self) -> &mut Vec<u8> {
        &mut self.output
    }

    pub(super) fn say(&mut self, words: &[Vec<u8>]) {
        let words: Vec<&[u8]> = words.iter().map(|word| &**word).collect();
        append_command(&mut self.output, &words);
    }
}

impl ChannelInput {
    pub(super) fn rest(&self) -> &[u8] {
        &self.bytes[self.at..self.end]
    }

    /// Skips bytes that were parsed and are not needed any more.
    pub(super) const fn skip(&mut self, len: usize) {
        self.at += len;
        self.start = self.at;
    }

    /// The next line that is not empty, without its end. Empty lines only show that the primary is
    /// alive.
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
        // Move the bytes only if at least as many before them are unused.
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
