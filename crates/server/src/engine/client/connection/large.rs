//! Large arguments: each is received into a buffer of its own, and that buffer becomes the value.
//!
//! The connection's input keeps the rest of the command, as if a large argument were not there.

use std::sync::Arc;

use super::Connection;

/// The large arguments of the command that is arriving.
#[derive(Default)]
pub struct LargeArguments {
    complete: Vec<OutsideArgument>,
    arriving: Option<Arriving>,
}

/// An argument that is not among the input.
pub struct OutsideArgument {
    /// Where in the input it belongs.
    pub position: usize,
    pub bytes: Arc<Vec<u8>>,
}

struct Arriving {
    position: usize,
    /// Of capacity `len`, except for those that made no progress for a while, and those that will
    /// be very long.
    bytes: Vec<u8>,
    len: usize,
}

impl Arriving {
    /// The bytes, with room for all of them, or for as many as may be promised.
    fn whole(&mut self) -> &mut Vec<u8> {
        let room = self.len.min(PROMISED_MAX);
        if self.bytes.capacity() < room {
            self.bytes.reserve_exact(room - self.bytes.len());
        }
        &mut self.bytes
    }
}

impl LargeArguments {
    /// Whether an argument's bytes are still missing: what arrives belongs to it, and nothing is
    /// parsed.
    pub const fn is_arriving(&self) -> bool {
        self.arriving.is_some()
    }

    pub fn complete(&self) -> &[OutsideArgument] {
        &self.complete
    }

    /// The complete ones, for a command that is complete as well.
    pub fn take(&mut self) -> Vec<OutsideArgument> {
        std::mem::take(&mut self.complete)
    }

    /// How many bytes the arriving one needs.
    pub fn wanted(&self) -> usize {
        self.arriving.as_ref().map_or(0, |arriving| arriving.len - arriving.bytes.len())
    }

    /// Takes what belongs to the arriving one from the front of `bytes`; how much that was.
    pub fn feed(&mut self, bytes: &[u8]) -> usize {
        let taken = self.wanted().min(bytes.len());
        if let Some(arriving) = &mut self.arriving {
            arriving.whole().extend_from_slice(&bytes[..taken]);
        }
        self.finish();
        taken
    }

    /// The buffer of the arriving one, to be filled up to its capacity; then `finish`.
    pub fn buffer(&mut self) -> Option<&mut Vec<u8>> {
        self.arriving.as_mut().map(Arriving::whole)
    }

    /// Gives back the memory that the arriving one does not need yet.
    pub fn shrink(&mut self) {
        if let Some(arriving) = &mut self.arriving {
            arriving.bytes.shrink_to_fit();
        }
    }

    /// Counts the arriving one as complete if it is.
    pub fn finish(&mut self) {
        if let Some(mut arriving) = self.arriving.take_if(|it| it.bytes.len() == it.len) {
            arriving.bytes.shrink_to_fit();
            let (position, bytes) = (arriving.position, Arc::new(arriving.bytes));
            self.complete.push(OutsideArgument { position, bytes });
        }
    }

    /// Bytes that have arrived.
    pub fn arrived_bytes(&self) -> usize {
        let arriving = self.arriving.as_ref().map_or(0, |arriving| arriving.bytes.len());
        arriving + self.complete.iter().map(|outside| outside.bytes.len()).sum::<usize>()
    }

    /// Bytes of the last one that have arrived.
    pub fn last_arrived_bytes(&self) -> usize {
        let complete = || self.complete.last().map_or(0, |outside| outside.bytes.len());
        self.arriving.as_ref().map_or_else(complete, |arriving| arriving.bytes.len())
    }

    /// Bytes of memory.
    pub fn memory(&self) -> usize {
        let arriving = self.arriving.as_ref().map_or(0, |arriving| arriving.bytes.capacity());
        arriving + self.complete.iter().map(|outside| outside.bytes.len()).sum::<usize>()
    }
}

impl Connection {
    /// If the command at the input's start ends in a large argument that is incomplete, begins a
    /// buffer for it.
    pub fn begin_large(&mut self) {
        let Some(large) = self.parser.large() else { return };
        self.parser.keep_outside();
        let arrived = (self.input.len() - large.start).min(large.len);
        let mut bytes = Vec::with_capacity(large.len.min(PROMISED_MAX));
        let input = self.input.whole();
        bytes.extend(input.drain(large.start..large.start + arrived));
        // What is left is the command's beginning, and mostly all that there will be.
        input.shrink_to_fit();
        let arriving = Arriving { position: large.start, bytes, len: large.len };
        self.large.arriving = Some(arriving);
        self.large.finish();
    }

    /// Bytes that were received and not parsed: of an argument that is incomplete, or of commands
    /// that have to wait. Complete arguments of an incomplete command do not count, as in Redis.
    pub fn unparsed_len(&self) -> usize {
        let behind = self.input.len() - self.parser.parsed_len().min(self.input.len());
        if self.parser.awaits_line_end() {
            self.large.last_arrived_bytes() + behind.min(LINE_END_LEN)
        } else {
            behind
        }
    }

    /// Puts large arguments back into the input: their command has to wait, and is parsed again.
    pub fn put_back(&mut self, large: &[OutsideArgument]) {
        for outside in large.iter().rev() {
            let at = outside.position..outside.position;
            self.input.whole().splice(at, outside.bytes.iter().copied());
        }
    }
}

const LINE_END_LEN: usize = 2;
/// Room that a length alone gets. Longer arguments, which only a raised `proto-max-bulk-len`
/// allows, get theirs as they arrive: what the machine has not ends the process.
const PROMISED_MAX: usize = 512 << 20;
