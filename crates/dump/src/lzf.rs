//! LZF, the compression of long strings in RDB (Marc Lehmann's liblzf defines the format).
//!
//! A stream is a row of items. A control byte below 32 starts a run of that many literals and one.
//! Any other is a match: its high three bits are the length less two (7: a further byte is to be
//! added), its low five bits and the byte after that the distance less one.
//!
//! The compressor chooses the matches that the reference servers choose (their hash, their table
//! size, their one look back after a match), so a DUMP here and there is the same bytes. Unlike
//! theirs its table is kept per thread and never cleared: positions count on from call to call, and
//! whatever is below the current call's base is stale.

use std::cell::RefCell;

/// Appends `input`, compressed, to `output` if that takes at most `len_max` bytes, and returns how
/// many it took. Else, and for inputs longer than [`LZF_INPUT_LEN_MAX`], `output` is as it was.
pub fn lzf_compress(input: &[u8], len_max: usize, output: &mut Vec<u8>) -> Option<usize> {
    COMPRESSOR.with_borrow_mut(|compressor| compressor.compress(input, len_max, output))
}

/// Decompresses to exactly `len` bytes; `None` if the stream is damaged or has another length. No
/// more is allocated than `input` can describe, whatever `len` claims.
pub fn lzf_decompress(input: &[u8], len: usize) -> Option<Vec<u8>> {
    if len / EXPANSION_MAX > input.len() {
        return None;
    }
    let mut output = Vec::with_capacity(len.min(RESERVE_LEN_MAX));
    let mut rest = input;
    while let Some((&control, after)) = rest.split_first() {
        rest = after;
        if usize::from(control) < LITERALS_MAX {
            let (literals, after) = rest.split_at_checked(usize::from(control) + 1)?;
            output.extend_from_slice(literals);
            rest = after;
        } else {
            let mut match_len = usize::from(control >> 5) + 2;
            if match_len == 7 + 2 {
                let (&more, after) = rest.split_first()?;
                match_len += usize::from(more);
                rest = after;
            }
            let (&low, after) = rest.split_first()?;
            rest = after;
            let distance = (usize::from(control & 0x1f) << 8 | usize::from(low)) + 1;
            append_match(&mut output, distance, match_len)?;
        }
        if output.len() > len {
            return None;
        }
    }
    (output.len() == len).then_some(output)
}

/// Repeats what is `distance` bytes back; a match may overlap what it produces.
fn append_match(output: &mut Vec<u8>, distance: usize, len: usize) -> Option<()> {
    let start = output.len().checked_sub(distance)?;
    let mut missing = len;
    while missing > 0 {
        // What lies behind `start` repeats itself, so each round may copy all there is by now.
        let available = (output.len() - start).min(missing);
        output.extend_from_within(start..start + available);
        missing -= available;
    }
    Some(())
}

thread_local! {
    static COMPRESSOR: RefCell<Compressor> = const { RefCell::new(Compressor::new()) };
}

/// Where three bytes were last seen, by their hash.
struct Compressor {
    /// `base` of the call plus a position; anything up to `base` says nothing.
    slots: Vec<u32>,
    base: u32,
}

impl Compressor {
    const fn new() -> Self {
        Self { slots: Vec::new(), base: 0 }
    }

    fn compress(&mut self, input: &[u8], len_max: usize, output: &mut Vec<u8>) -> Option<usize> {
        if input.is_empty() || len_max == 0 || input.len() > LZF_INPUT_LEN_MAX {
            return None;
        }
        // Neither is above `LZF_INPUT_LEN_MAX`, half of what 32 bits hold.
        let len = input.len() as u32;
        if self.slots.is_empty() || self.base > LZF_INPUT_LEN_MAX as u32 {
            self.slots.clear();
            self.slots.resize(SLOTS, 0);
            self.base = 0;
        }
        let start = output.len();
        let compressed = self.compress_items(input, len_max, output);
        self.base += len;
        match compressed {
            Some(()) => Some(output.len() - start),
            None => {
                output.truncate(start);
                None
            }
        }
    }

    fn compress_items(&mut self, input: &[u8], len_max: usize, output: &mut Vec<u8>) -> Option<()> {
        let mut run = Run::start(output, len_max);
        let mut at = 0;
        while at + MATCH_LEN_MIN <= input.len() {
            let found = self.replace(input, at).filter(|&candidate| {
                at - candidate <= DISTANCE_MAX
                    && input[candidate..candidate + MATCH_LEN_MIN] == input[at..at + MATCH_LEN_MIN]
            });
            let Some(candidate) = found else {
                run.literal(input[at])?;
                at += 1;
                continue;
            };
            let len = match_len(input, candidate, at);
            run.end_for_match()?;
            run.append_match(at - candidate, len);
            at += len;
            if at + MATCH_LEN_MIN > input.len() {
                break;
            }
            // Of the positions inside the match only the last two are remembered.
            self.replace(input, at - 2);
            self.replace(input, at - 1);
        }
        run.finish(&input[at..])
    }

    /// Remembers `at` and returns where its three bytes may have been before. Position 0 reads as
    /// nothing, here as in the reference.
    #[inline(always)]
    fn replace(&mut self, input: &[u8], at: usize) -> Option<usize> {
        let slot = &mut self.slots[hash(&input[at..])];
        let before = std::mem::replace(slot, self.base + at as u32);
        (before > self.base).then(|| (before - self.base) as usize)
    }
}

/// Output in the making: literals collect behind a control byte that is set when their run ends.
struct Run<'a> {
    output: &'a mut Vec<u8>,
    /// The length at which the output has taken all its room.
    end: usize,
    literals: usize,
}

impl<'a> Run<'a> {
    fn start(output: &'a mut Vec<u8>, len_max: usize) -> Self {
        let end = output.len() + len_max;
        output.push(0);
        Self { output, end, literals: 0 }
    }

    fn literal(&mut self, byte: u8) -> Option<()> {
        if self.output.len() >= self.end {
            return None;
        }
        self.push(byte);
        Some(())
    }

    fn push(&mut self, byte: u8) {
        self.output.push(byte);
        self.literals += 1;
        if self.literals == LITERALS_MAX {
            self.close();
            self.output.push(0);
        }
    }

    /// Makes place for a match, if a longest one, the next run's control byte and one more fit.
    fn end_for_match(&mut self) -> Option<()> {
        let len = self.output.len() - usize::from(self.literals == 0);
        if len + MATCH_ITEM_LEN_MAX + 1 >= self.end {
            return None;
        }
        self.close();
        Some(())
    }

    fn append_match(&mut self, distance: usize, len: usize) {
        let (len, distance) = (len - 2, distance - 1);
        let high = (distance >> 8) as u8;
        if len < 7 {
            self.output.push(high | (len as u8) << 5);
        } else {
            self.output.extend_from_slice(&[high | 7 << 5, (len - 7) as u8]);
        }
        self.output.extend_from_slice(&[distance as u8, 0]);
    }

    fn finish(mut self, rest: &[u8]) -> Option<()> {
        if self.output.len() + 3 > self.end {
            return None;
        }
        for &byte in rest {
            self.push(byte);
        }
        self.close();
        Some(())
    }

    /// Sets the run's control byte, or takes it back when there was nothing to run.
    fn close(&mut self) {
        if self.literals == 0 {
            self.output.pop();
        } else {
            let control = self.output.len() - self.literals - 1;
            self.output[control] = (self.literals - 1) as u8;
            self.literals = 0;
        }
    }
}

/// How long the match is that starts at both positions, three bytes of which are known to agree.
fn match_len(input: &[u8], candidate: usize, at: usize) -> usize {
    // The reference leaves two bytes for the end of its loop, but looks at the first eighteen
    // without counting: hence the step between 16 and 19.
    let room = (input.len() - at - 2).min(MATCH_LEN_MAX);
    let len_max = if room > 16 { room.max(19) } else { room.max(MATCH_LEN_MIN) };
    let (earlier, now) = (&input[candidate..], &input[at..at + len_max]);
    let agree = now.iter().zip(earlier).take_while(|(now, earlier)| now == earlier);
    agree.count()
}

/// The hash of the first three bytes: a product and shift that keeps 16 bits.
#[inline(always)]
fn hash(bytes: &[u8]) -> usize {
    let word = u32::from_be_bytes([0, bytes[0], bytes[1], bytes[2]]);
    ((word >> 8).wrapping_sub(word.wrapping_mul(5)) & (SLOTS as u32 - 1)) as usize
}

/// Longer inputs are not compressed: twice this is what positions of 32 bits can tell apart.
pub const LZF_INPUT_LEN_MAX: usize = (u32::MAX / 2) as usize;

const SLOTS: usize = 1 << 16;
const LITERALS_MAX: usize = 32;
const MATCH_LEN_MIN: usize = 3;
const MATCH_LEN_MAX: usize = 264;
const MATCH_ITEM_LEN_MAX: usize = 3;
const DISTANCE_MAX: usize = 1 << 13;
/// Three bytes of input make at most 264 of output.
const EXPANSION_MAX: usize = 88;
/// What is reserved at once; from there on the output grows with what really comes.
const RESERVE_LEN_MAX: usize = 1 << 20;

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn compress(input: &[u8]) -> Option<Vec<u8>> {
        let mut output = b"before".to_vec();
        let len = lzf_compress(input, input.len().saturating_sub(4), &mut output);
        assert_eq!(len.unwrap_or(0), output.len() - 6);
        assert!(output.starts_with(b"before"));
        len.map(|_| output.split_off(6))
    }

    #[test]
    fn short_and_incompressible_inputs() {
        for input in [&b""[..], b"a", b"aaaa", b"aaaaa", b"abcdefghijklmnopqrstuvwxyz"] {
            assert_eq!(compress(input), None, "{}", input.escape_ascii());
        }
    }

    #[test]
    fn a_call_does_not_see_what_the_last_one_left() {
        let input = b"abcdefgh".repeat(100);
        let first = compress(&input);
        assert!(first.is_some());
        for _ in 0..3 {
            assert_eq!(compress(&input), first);
        }
        let mut compressor = Compressor::new();
        for base in [0, 1, LZF_INPUT_LEN_MAX as u32, LZF_INPUT_LEN_MAX as u32 + 1] {
            compressor.slots = vec![base; SLOTS];
            compressor.base = base;
            let mut output = Vec::new();
            compressor.compress(&input, input.len() - 4, &mut output);
            assert_eq!(Some(output), first);
        }
    }

    #[test]
    fn damaged_streams() {
        for (input, len) in [
            (&[0u8][..], 1),                   // a literal is missing
            (&[0, b'a', 0x20], 4),             // the distance is missing
            (&[0, b'a', 0xe0, 0], 10),         // the same behind a long length
            (&[0, b'a', 0xe0], 10),            // the long length is missing
            (&[0, b'a', 0x20, 1], 4),          // further back than the start
            (&[0x20, 0], 3),                   // nothing to go back to
            (&[0, b'a'], 2),                   // too short
            (&[1, b'a', b'b'], 1),             // too long
            (&[0, b'a', 0x20, 0], usize::MAX), // an impossible claim
        ] {
            assert_eq!(lzf_decompress(input, len), None, "{input:?}");
        }
        assert_eq!(lzf_decompress(&[0, b'a', 0x20, 0], 4).as_deref(), Some(&b"aaaa"[..]));
        assert_eq!(lzf_decompress(&[], 0).as_deref(), Some(&b""[..]));
    }

    /// Inputs with much and with little to find.
    fn inputs() -> impl Strategy<Value = Vec<u8>> {
        prop_oneof![
            proptest::collection::vec(any::<u8>(), 0..600),
            proptest::collection::vec(0..3u8, 0..3000),
            (proptest::collection::vec(any::<u8>(), 1..40), 0..400usize)
                .prop_map(|(pattern, times)| pattern.repeat(times)),
            proptest::collection::vec((0..8u8, 1..300usize), 0..30).prop_map(|runs| {
                runs.iter().flat_map(|&(byte, len)| vec![byte; len]).collect()
            }),
            // Beyond the farthest match.
            (proptest::collection::vec(any::<u8>(), 20), 8100..8300usize)
                .prop_map(|(part, gap)| { [&part[..], &vec![0; gap], &part].concat() }),
        ]
    }

    proptest! {
        #[test]
        fn what_is_compressed_comes_back(input in inputs()) {
            if let Some(compressed) = compress(&input) {
                prop_assert!(compressed.len() + 4 <= input.len());
                prop_assert_eq!(lzf_decompress(&compressed, input.len()), Some(input.clone()));
                prop_assert_eq!(lzf_decompress(&compressed, input.len() + 1), None);
                prop_assert_eq!(lzf_decompress(&compressed, input.len() - 1), None);
            }
        }

        #[test]
        fn room_is_never_exceeded(input in inputs(), len_max in 0..100usize) {
            let mut output = Vec::new();
            let len = lzf_compress(&input, len_max, &mut output);
            prop_assert!(len.is_none_or(|len| len <= len_max && len == output.len()));
        }

        #[test]
        fn random_streams_do_no_harm(input: Vec<u8>, len in 0..10_000usize) {
            let output = lzf_decompress(&input, len);
            prop_assert!(output.is_none_or(|output| output.len() == len));
        }
    }
}
