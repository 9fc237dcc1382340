//! Bytes that arrived for a connection and were not executed yet.

/// The bytes of a connection that wait to be parsed. Bytes taken from the front are only skipped.
/// The rest moves up when it is shorter than the skipped bytes, so that taking little of much costs
/// little.
#[derive(Default)]
pub struct ConnectionInput {
    bytes: Vec<u8>,
    /// The number of bytes at the front that were taken.
    taken: usize,
}

impl ConnectionInput {
    pub const fn len(&self) -> usize {
        self.bytes.len() - self.taken
    }

    pub const fn is_empty(&self) -> bool {
        self.len() == 0
    }

    pub fn as_slice(&self) -> &[u8] {
        &self.bytes[self.taken..]
    }

    /// Bytes of memory.
    pub const fn capacity(&self) -> usize {
        self.bytes.capacity()
    }

    pub fn push(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
    }

    /// Takes `len` bytes from the front.
    pub fn take(&mut self, len: usize) {
        self.taken += len;
        if self.is_empty() {
            *self = Self::default();
        } else if self.taken > self.len() {
            self.whole();
        }
    }

    /// All remaining bytes, to be changed.
    pub fn whole(&mut self) -> &mut Vec<u8> {
        self.bytes.drain(..std::mem::take(&mut self.taken));
        &mut self.bytes
    }

    /// Frees memory if less than half of it is in use. With a stricter rule, a buffer that grows by
    /// many small pieces would be moved for each of them.
    pub fn shrink(&mut self) {
        if self.bytes.capacity() / 2 > self.bytes.len() {
            self.bytes.shrink_to_fit();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_taken_in_small_steps_leaves_the_rest() {
        let text: Vec<u8> = (0..10_000u32).map(|number| number as u8).collect();
        let (mut input, mut at, mut moves) = (ConnectionInput::default(), 0, 0);
        input.push(&text);
        for step in (1..7).cycle() {
            let step = step.min(input.len());
            let before = input.taken;
            input.take(step);
            moves += usize::from(input.taken < before);
            at += step;
            assert_eq!(input.as_slice(), &text[at..]);
            if input.is_empty() {
                break;
            }
        }
        assert!(moves < 20, "{moves}");
        assert_eq!(input.capacity(), 0);
        input.push(b"abcdef");
        input.take(2);
        assert_eq!(input.whole(), b"cdef");
    }

    #[test]
    fn what_grows_between_shrinks_is_seldom_moved() {
        let (mut input, mut moves) = (ConnectionInput::default(), 0);
        input.push(&[b'x'; 100_000]);
        input.whole().truncate(10);
        input.shrink();
        assert!(input.capacity() < 100, "{}", input.capacity());
        for _ in 0..10_000 {
            let before = input.capacity();
            input.push(b"$10000\r\n\r\n");
            input.shrink();
            moves += usize::from(input.capacity() != before);
            assert!(input.capacity() <= 2 * input.len() + 1);
        }
        assert!(moves < 20, "{moves}");
    }
}
