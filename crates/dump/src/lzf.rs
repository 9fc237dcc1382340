//! LZF, the compression of long strings in RDB (Marc Lehmann's liblzf defines the format).
//!
//! A stream is a row of items. A control byte below 32 starts a run of literals, one more than its
//! value. Any other control byte starts a repetition of earlier output. Its high three bits are the
//! length less two (7: add the next byte to it). Its low five bits and the byte after that are the
//! distance less one.
//!
//! Any stream of that form will do for a reader. Ours are byte for byte those of the reference
//! servers, so that DUMP gives the same here and there: the hash of three bytes, the number of its
//! values, what is remembered and where a match ends are theirs.

use std::cell::RefCell;

/// Appends `input`, compressed, to `output` if that takes at most `len_max` bytes, and returns how
/// many it took. Else, and for inputs longer than [`LZF_INPUT_LEN_MAX`], `output` is as it was.
pub fn lzf_compress(input: &[u8], len_max: usize, output: &mut Vec<u8>) -> Option<usize> {
    if input.len() > LZF_INPUT_LEN_MAX {
        return None;
    }
    MEMORY.with_borrow_mut(|memory| {
        memory.forget();
        let start = output.len();
        let compressed = append_items(memory, input, start + len_max, output);
        memory.base += input.len() as u32;
        if compressed.is_none() {
            output.truncate(start);
        }
        compressed.map(|()| output.len() - start)
    })
}

/// Decompresses to exactly `len` bytes; `None` if the stream is damaged or has another length. No
/// more is allocated than `input` can describe, whatever `len` claims.
pub fn lzf_decompress(input: &[u8], len: usize) -> Option<Vec<u8>> {
    if len / EXPANSION_MAX > input.len() {
        return None;
    }
    let mut output = Vec::with_capacity(len.min(RESERVE_LEN_MAX));
    let mut rest = input;
    while !rest.is_empty() {
        match Item::take(&mut rest)? {
            Item::Literals(literals) => output.extend_from_slice(literals),
            Item::Repeat { distance, len } => repeat(&mut output, distance, len)?,
        }
        if output.len() > len {
            return None;
        }
    }
    (output.len() == len).then_some(output)
}

/// Matches become repetitions, what lies between them literals. `None` when that would end after
/// `end`, or so close to it that the reference gives up.
fn append_items(memory: &mut Memory, input: &[u8], end: usize, output: &mut Vec<u8>) -> Option<()> {
    // From here on nothing has been written.
    let mut from = 0;
    while let Some(found) = memory.find(input, from) {
        append_literals(&input[from..found.at], output);
        if output.len() + REPEAT_LEN_MAX + 1 >= end {
            return None;
        }
        Item::Repeat { distance: found.distance, len: found.len }.append(output);
        from = found.at + found.len;
        memory.note_end_of_match(input, from);
    }
    let searched = input.len().saturating_sub(UNSEARCHED_LEN).saturating_sub(from);
    let controls = searched / LITERALS_MAX + 1;
    if output.len() + searched + controls + UNSEARCHED_LEN + 1 > end {
        return None;
    }
    append_literals(&input[from..], output);
    Some(())
}

fn append_literals(bytes: &[u8], output: &mut Vec<u8>) {
    for part in bytes.chunks(LITERALS_MAX) {
        Item::Literals(part).append(output);
    }
}

/// Appends what is `distance` bytes back; it may overlap what it becomes. `None` if there is not
/// so much to go back to.
fn repeat(output: &mut Vec<u8>, distance: usize, len: usize) -> Option<()> {
    let from = output.len().checked_sub(distance)?;
    match distance {
        1 => output.resize(output.len() + len, output[from]),
        _ if distance >= len => output.extend_from_within(from..from + len),
        _ => repeat_overlapping(output, from, len),
    }
    Some(())
}

fn repeat_overlapping(output: &mut Vec<u8>, from: usize, len: usize) {
    let end = output.len() + len;
    // With each round there is twice as much to copy.
    while output.len() < end {
        let copied = (end - output.len()).min(output.len() - from);
        output.extend_from_within(from..from + copied);
    }
}

/// What a stream consists of.
enum Item<'a> {
    /// One to [`LITERALS_MAX`] bytes.
    Literals(&'a [u8]),
    /// [`MATCH_LEN_MIN`] to [`MATCH_LEN_MAX`] bytes from 1 to [`DISTANCE_MAX`] back.
    Repeat { distance: usize, len: usize },
}

impl<'a> Item<'a> {
    #[inline(always)]
    fn take(stream: &mut &'a [u8]) -> Option<Self> {
        let control = take_byte(stream)?;
        let (high, low) = (control >> 5, control & 0x1f);
        if high == 0 {
            let literals = stream.split_off(..usize::from(low) + 1)?;
            return Some(Self::Literals(literals));
        }
        let more = if high == LONG { take_byte(stream)? } else { 0 };
        let distance = usize::from(u16::from_be_bytes([low, take_byte(stream)?])) + 1;
        Some(Self::Repeat { distance, len: usize::from(high) + usize::from(more) + 2 })
    }

    #[inline(always)]
    fn append(&self, output: &mut Vec<u8>) {
        match *self {
            Self::Literals(bytes) => {
                output.push(bytes.len() as u8 - 1);
                output.extend_from_slice(bytes);
            }
            Self::Repeat { distance, len } => {
                let [low, last] = ((distance - 1) as u16).to_be_bytes();
                match len - 2 {
                    len if len < usize::from(LONG) => {
                        output.extend_from_slice(&[(len as u8) << 5 | low, last]);
                    }
                    len => {
                        let more = (len - usize::from(LONG)) as u8;
                        output.extend_from_slice(&[LONG << 5 | low, more, last]);
                    }
                }
            }
        }
    }
}

fn take_byte(stream: &mut &[u8]) -> Option<u8> {
    stream.split_off_first().copied()
}

thread_local! {
    static MEMORY: RefCell<Memory> = const { RefCell::new(Memory { places: Vec::new(), base: 0 }) };
}

/// Where sequences of three bytes were last seen. It is kept per thread and hardly ever cleared:
/// places count on from input to input, and those of earlier inputs are below the base.
struct Memory {
    /// By the sequence's hash: the place in the input, plus `base`.
    places: Vec<u32>,
    base: u32,
}

struct Match {
    at: usize,
    distance: usize,
    len: usize,
}

impl Memory {
    /// Makes ready for an input.
    fn forget(&mut self) {
        if self.places.is_empty() || self.base as usize > LZF_INPUT_LEN_MAX {
            self.places.clear();
            self.places.resize(1 << HASH_BITS, 0);
            self.base = 0;
        }
    }

    /// The first place from `from` on whose three bytes are remembered and not too far back.
    #[inline(always)]
    fn find(&mut self, input: &[u8], from: usize) -> Option<Match> {
        let sequences = input.get(from..)?.windows(MATCH_LEN_MIN);
        for (at, sequence) in (from..).zip(sequences) {
            let Some(earlier) = self.exchange(sequence, at) else { continue };
            let distance = at - earlier;
            if distance <= DISTANCE_MAX && input[earlier..earlier + MATCH_LEN_MIN] == *sequence {
                let len = common_len(&input[earlier..], &input[at..][..len_max(input.len() - at)]);
                return Some(Match { at, distance, len });
            }
        }
        None
    }

    /// Of the sequences that start within a match only the last two are remembered.
    fn note_end_of_match(&mut self, input: &[u8], end: usize) {
        if end + MATCH_LEN_MIN <= input.len() {
            for at in [end - 2, end - 1] {
                self.exchange(&input[at..at + MATCH_LEN_MIN], at);
            }
        }
    }

    /// Remembers `at`; returns where the sequence, or another of its hash, was before. Place 0
    /// counts as never seen, in the reference too.
    #[inline(always)]
    fn exchange(&mut self, sequence: &[u8], at: usize) -> Option<usize> {
        let place = &mut self.places[hash(sequence)];
        let earlier = std::mem::replace(place, self.base + at as u32).checked_sub(self.base)?;
        (earlier != 0).then_some(earlier as usize)
    }
}

/// How far a match may go when `remaining` bytes are left. The reference keeps clear of the last
/// two, but does not look for the end before a match has three bytes, nor between seventeen and
/// nineteen.
fn len_max(remaining: usize) -> usize {
    match remaining {
        ..=4 => MATCH_LEN_MIN,
        19..=21 => 19,
        _ => (remaining - 2).min(MATCH_LEN_MAX),
    }
}

/// How many bytes `now` has in common with the start of `earlier`, which is longer.
fn common_len(earlier: &[u8], now: &[u8]) -> usize {
    let (words, _) = now.as_chunks::<8>();
    let (earlier_words, _) = earlier.as_chunks::<8>();
    let mut len = 0;
    for (word, earlier) in words.iter().zip(earlier_words) {
        let differing = u64::from_le_bytes(*word) ^ u64::from_le_bytes(*earlier);
        if differing != 0 {
            return len + differing.trailing_zeros() as usize / 8;
        }
        len += 8;
    }
    let rest = now[len..].iter().zip(&earlier[len..]);
    len + rest.take_while(|(now, earlier)| now == earlier).count()
}

#[inline(always)]
fn hash(sequence: &[u8]) -> usize {
    let number = u32::from_be_bytes([0, sequence[0], sequence[1], sequence[2]]);
    let mixed = (number >> (24 - HASH_BITS)).wrapping_sub(number.wrapping_mul(5));
    mixed as usize & ((1 << HASH_BITS) - 1)
}

/// Longer inputs are not compressed: twice this is what places of 32 bits can tell apart.
pub const LZF_INPUT_LEN_MAX: usize = (u32::MAX / 2) as usize;

const HASH_BITS: u32 = 16;
const LITERALS_MAX: usize = 32;
const MATCH_LEN_MIN: usize = 3;
const MATCH_LEN_MAX: usize = 264;
const DISTANCE_MAX: usize = 1 << 13;
/// No match starts here: three bytes are needed.
const UNSEARCHED_LEN: usize = MATCH_LEN_MIN - 1;
/// The bits of a length that has a byte of its own.
const LONG: u8 = 7;
/// Bytes of a repetition in the stream.
const REPEAT_LEN_MAX: usize = 3;
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

    /// Each was taken from what DUMP of valkey-server 9.1.2 gave.
    #[test]
    fn streams_as_valkey_makes_them() {
        let alphabet = b"abcdefghijklmnopqrstuvwxyz0123456789";
        assert_eq!(compress(&[b'a'; 300]), Some(b"\x01aa\xe0\xff\0\xe0\x17\0\x01aa".to_vec()));
        assert_eq!(compress(&b"abc".repeat(9)), Some(b"\x03abca\xe0\x0c\x02\x01bc".to_vec()));
        assert_eq!(
            compress(&[&alphabet[..], b"-", alphabet].concat()),
            Some([b"\x1f", &alphabet[..32], b"\x056789-a\xe0\x18\x24\x0189"].concat())
        );
        // Place 0 is not remembered; a match ends two bytes early, or none in the one case of 19.
        for (len, end) in [
            (18, &b"\xe0\x07\x18\x01qr"[..]),
            (19, b"\xe0\x0a\x18"),
            (20, b"\xe0\x0a\x18\0t"),
            (21, b"\xe0\x0a\x18\x01tu"),
            (22, b"\xe0\x0b\x18\x01uv"),
        ] {
            let input = [b"#", &alphabet[..24], b"_", &alphabet[..len]].concat();
            let expected = [b"\x19#", &alphabet[..24], b"_", end].concat();
            assert_eq!(compress(&input), Some(expected), "{len}");
        }
    }

    #[test]
    fn matches_are_measured_to_the_byte() {
        for len in 0..40 {
            let earlier = b"0123456789".repeat(5);
            let mut now = earlier[..len].to_vec();
            assert_eq!(common_len(&earlier, &now), len);
            for differing in 0..len {
                now[differing] ^= 0x80;
                assert_eq!(common_len(&earlier, &now), differing);
                now[differing] ^= 0x80;
            }
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
        for base in [0, 1, LZF_INPUT_LEN_MAX as u32, LZF_INPUT_LEN_MAX as u32 + 1] {
            // As if whatever is looked up were the last thing that an earlier input had.
            MEMORY.set(Memory { places: vec![base; 1 << HASH_BITS], base });
            assert_eq!(compress(&input), first, "{base}");
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
