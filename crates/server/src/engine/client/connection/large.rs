//! Large arguments: each is received into a buffer of its own, and that buffer becomes the value.
//!
//! The connection's input has the rest of the command, without the large arguments.

use std::sync::Arc;

use super::Connection;

/// The large arguments of the command that is arriving.
#[derive(Default)]
pub struct LargeArguments {
    complete: Vec<OutsideArgument>,
    /// Bytes of the complete arguments.
    complete_bytes: usize,
    arriving: Option<ArrivingArgument>,
}

/// An argument that is not in the input.
pub struct OutsideArgument {
    /// The offset in the input where the argument belongs.
    pub position: usize,
    pub bytes: Arc<Vec<u8>>,
}

struct ArrivingArgument {
    position: usize,
    /// Its capacity is `len`, unless the argument made no progress for a while or is very long.
    bytes: Vec<u8>,
    len: usize,
}

impl ArrivingArgument {
    /// The buffer, with room for the whole argument, or for `PROMISED_MAX` bytes of it.
    fn whole(&mut self) -> &mut Vec<u8> {
        let room = self.len.min(PROMISED_MAX);
        if self.bytes.capacity() < room {
            self.bytes.reserve_exact(room - self.bytes.len());
        }
        &mut self.bytes
    }
}

impl LargeArguments {
    /// Whether an argument is incomplete. Then the next bytes belong to it, and nothing is parsed.
    pub const fn is_arriving(&self) -> bool {
        self.arriving.is_some()
    }

    pub fn complete(&self) -> &[OutsideArgument] {
        &self.complete
    }

    /// Takes the complete arguments, for a command that is complete too.
    pub fn take(&mut self) -> Vec<OutsideArgument> {
        self.complete_bytes = 0;
        std::mem::take(&mut self.complete)
    }

    /// Begins an argument of `len` bytes, the first of which have arrived.
    fn begin(&mut self, position: usize, len: usize, arrived: impl Iterator<Item = u8>) {
        let mut bytes = Vec::with_capacity(len.min(PROMISED_MAX));
        bytes.extend(arrived);
        self.arriving = Some(ArrivingArgument { position, bytes, len });
        self.finish();
    }

    /// The number of bytes that the arriving argument still needs.
    pub fn wanted(&self) -> usize {
        self.arriving.as_ref().map_or(0, |arriving| arriving.len - arriving.bytes.len())
    }

    /// Takes the bytes of the arriving argument from the front of `bytes`; returns how many.
    pub fn feed(&mut self, bytes: &[u8]) -> usize {
        let taken = self.wanted().min(bytes.len());
        if let Some(arriving) = &mut self.arriving {
            arriving.whole().extend_from_slice(&bytes[..taken]);
        }
        self.finish();
        taken
    }

    /// The buffer of the arriving argument. The caller fills it up to its capacity and then calls
    /// `finish`.
    pub fn buffer(&mut self) -> Option<&mut Vec<u8>> {
        self.arriving.as_mut().map(ArrivingArgument::whole)
    }

    /// Frees the memory that the arriving argument does not need yet.
    pub fn shrink(&mut self) {
        if let Some(arriving) = &mut self.arriving {
            arriving.bytes.shrink_to_fit();
        }
    }

    /// Moves the arriving argument to the complete ones if all its bytes are there.
    pub fn finish(&mut self) {
        if let Some(mut arriving) = self.arriving.take_if(|it| it.bytes.len() == it.len) {
            arriving.bytes.shrink_to_fit();
            self.complete_bytes += arriving.len;
            let (position, bytes) = (arriving.position, Arc::new(arriving.bytes));
            self.complete.push(OutsideArgument { position, bytes });
        }
    }

    /// Bytes of all arguments that have arrived.
    pub fn arrived_bytes(&self) -> usize {
        let arriving = self.arriving.as_ref().map_or(0, |arriving| arriving.bytes.len());
        arriving + self.complete_bytes
    }

    /// Bytes of the last argument that have arrived.
    pub fn last_arrived_bytes(&self) -> usize {
        let complete = || self.complete.last().map_or(0, |outside| outside.bytes.len());
        self.arriving.as_ref().map_or_else(complete, |arriving| arriving.bytes.len())
    }

    /// Bytes of memory of the arguments.
    pub fn memory(&self) -> usize {
        let arriving = self.arriving.as_ref().map_or(0, |arriving| arriving.bytes.capacity());
        arriving + self.complete_bytes
    }
}

impl Connection {
    /// If the command at the start of the input ends in an incomplete large argument, begins a
    /// buffer for it.
    pub fn begin_large(&mut self) {
        let Some(large) = self.parser.large() else { return };
        self.parser.keep_outside();
        let arrived = (self.input.len() - large.start).min(large.len);
        let arrived = self.input.whole().drain(large.start..large.start + arrived);
        self.large.begin(large.start, large.len, arrived);
        // The beginning of the command is left, and mostly no more will come.
        self.input.shrink();
    }

    /// Bytes that were received but not parsed: of an incomplete argument, or of commands that have
    /// to wait. Complete arguments of an incomplete command do not count, as in Redis.
    pub fn unparsed_len(&self) -> usize {
        let behind = self.input.len() - self.parser.parsed_len().min(self.input.len());
        if self.parser.awaits_line_end() {
            self.large.last_arrived_bytes() + behind.min(LINE_END_LEN)
        } else {
            behind
        }
    }

    /// Puts large arguments back into the input. Their command has to wait and is parsed again.
    pub fn put_back(&mut self, large: &[OutsideArgument]) {
        let input = self.input.whole();
        *input = joined(input, large);
    }
}

/// The bytes of a command, with its large arguments in their places.
fn joined(input: &[u8], large: &[OutsideArgument]) -> Vec<u8> {
    let large_bytes = large.iter().map(|outside| outside.bytes.len()).sum::<usize>();
    let (mut bytes, mut start) = (Vec::with_capacity(input.len() + large_bytes), 0);
    for outside in large {
        bytes.extend_from_slice(&input[start..outside.position]);
        bytes.extend_from_slice(&outside.bytes);
        start = outside.position;
    }
    bytes.extend_from_slice(&input[start..]);
    bytes
}

const LINE_END_LEN: usize = 2;
/// The most memory that an argument gets because of its announced length alone. Longer arguments,
/// which only a raised `proto-max-bulk-len` allows, get more as their bytes arrive: a failed
/// allocation would end the process.
const PROMISED_MAX: usize = 512 << 20;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::random::Random;

    #[test]
    fn bytes_and_memory_are_known_at_any_moment() {
        let mut random = Random::new(0x1a46);
        let (mut large, mut most) = (LargeArguments::default(), 0);
        for _ in 0..20_000 {
            let piece = vec![b'x'; random.below(3000) as usize];
            match random.below(40) {
                0 if !large.is_arriving() => {
                    let bytes = large.complete.iter().map(|outside| outside.bytes.len());
                    let bytes: usize = bytes.sum();
                    let taken = large.take();
                    assert_eq!(bytes, taken.iter().map(|outside| outside.bytes.len()).sum());
                    assert_eq!((large.memory(), large.arrived_bytes()), (0, 0));
                }
                1..=20 if !large.is_arriving() => {
                    let len = 1 + random.below(20_000) as usize;
                    let arrived = random.below(len as u32 + 1) as usize;
                    large.begin(0, len, std::iter::repeat_n(b'x', arrived));
                }
                21..=22 => large.shrink(),
                23..=30 => {
                    let wanted = large.wanted();
                    if let Some(buffer) = large.buffer() {
                        buffer.extend_from_slice(&piece[..piece.len().min(wanted)]);
                        large.finish();
                    }
                }
                _ => assert_eq!(large.wanted().min(piece.len()), large.feed(&piece)),
            }
            let complete: usize = large.complete.iter().map(|outside| outside.bytes.len()).sum();
            let arriving = large.arriving.as_ref().map(|it| (it.bytes.len(), it.bytes.capacity()));
            let (arrived, capacity) = arriving.unwrap_or_default();
            assert_eq!(large.arrived_bytes(), complete + arrived);
            assert_eq!(large.memory(), complete + capacity);
            most = most.max(large.complete.len());
        }
        assert!(most > 20, "{most} complete ones at most");
    }

    #[test]
    fn arguments_come_back_where_they_belong() {
        let mut random = Random::new(0x9a7e);
        for count in 0..20 {
            let text: Vec<u8> = (0..200).map(|_| random.below(256) as u8).collect();
            let mut cuts: Vec<usize> = (0..2 * count).map(|_| random.below(201) as usize).collect();
            cuts.sort_unstable();
            let (mut input, mut large, mut end) = (Vec::new(), Vec::new(), 0);
            for cut in cuts.chunks_exact(2) {
                input.extend_from_slice(&text[end..cut[0]]);
                let bytes = Arc::new(text[cut[0]..cut[1]].to_vec());
                large.push(OutsideArgument { position: input.len(), bytes });
                end = cut[1];
            }
            input.extend_from_slice(&text[end..]);
            assert_eq!(joined(&input, &large), text);
        }
    }
}
