//! BITCOUNT and BITPOS.

use std::ops::Range;

use bobbin_store::EntryRef;
use bobbin_store::value::{CHUNK_LEN, StringRef};

use crate::commands::string::{PinnedString, clamp, slice};
use crate::engine::command::{Call, Failure, Outcome};
use crate::engine::execution::slices::integer_in_slices;

pub(super) fn bitcount(call: &mut Call<'_>) -> Outcome {
    let wanted = BitRangeOptions::parse(call, 2)?;
    let key = call.key(1)?;
    let Some(entry) = call.data.read_string_entry(key)? else {
        call.reply.integer(0);
        return Ok(());
    };
    let (start, end) = (wanted.start.unwrap_or(0), wanted.end.unwrap_or(-1));
    let range = slice(start, end, wanted.unit.len(entry.string()));
    let bits = range.map_or(0..0, |range| wanted.unit.bits(range));
    let mut look = BitLook { left: bits, question: BitQuestion::Count(0) };
    let pinned = look.run(entry, call.may_leave_job);
    look.answer_in_slices(call, pinned);
    Ok(())
}

pub(super) fn bitpos(call: &mut Call<'_>) -> Outcome {
    let bit = match call.integer(2)? {
        0 => false,
        1 => true,
        _ => return Err("ERR The bit argument must be 1 or 0.".into()),
    };
    let wanted = BitRangeOptions::parse(call, 3)?;
    let key = call.key(1)?;
    let Some(entry) = call.data.read_string_entry(key)? else {
        // A missing key counts as zeros without end.
        call.reply.integer(if bit { -1 } else { 0 });
        return Ok(());
    };
    let bytes = entry.string();
    let (start, end) = (wanted.start.unwrap_or(0), wanted.end.unwrap_or(-1));
    let range = clamp(start, end, wanted.unit.len(bytes));
    // Without an end argument, the string is followed by zeros.
    let is_endless = !bit && wanted.end.is_none() && range.is_some();
    let otherwise = if is_endless { (bytes.len() * 8) as i64 } else { -1 };
    let bits = range.map_or(0..0, |range| wanted.unit.bits(range));
    let question = BitQuestion::First { bit, position: otherwise };
    let mut look = BitLook { left: bits, question };
    let pinned = look.run(entry, call.may_leave_job);
    look.answer_in_slices(call, pinned);
    Ok(())
}

/// A walk over bits of a string, from the first to the last.
struct BitLook {
    /// The bits that were not read yet.
    left: Range<usize>,
    question: BitQuestion,
}

/// The question about the bits, and the answer so far.
enum BitQuestion {
    /// How many bits are set.
    Count(u64),
    /// Where the first bit with this value is. `position` is the answer if there is none.
    First { bit: bool, position: i64 },
}

impl BitLook {
    /// Reads all bits. If that takes long, returns the pinned string instead, to read it in slices.
    fn run(&mut self, entry: EntryRef<'_>, may_leave_job: bool) -> Option<PinnedString> {
        if may_leave_job
            && self.left.len() > BITS_AT_ONCE_MAX
            && let Some(pinned) = PinnedString::of(entry.value())
        {
            return Some(pinned);
        }
        self.step(entry.string(), usize::MAX);
        None
    }

    /// Replies with the answer, after the rest was read in slices if necessary.
    fn answer_in_slices(mut self, call: &mut Call<'_>, pinned: Option<PinnedString>) {
        integer_in_slices(call, pinned.is_some(), move || {
            let more =
                pinned.as_ref().is_some_and(|string| self.step(string.as_ref(), BITS_PER_STEP));
            (!more).then(|| self.answer())
        });
    }

    /// Reads some bits. Returns whether there are more.
    fn step(&mut self, string: StringRef<'_>, most: usize) -> bool {
        let end = self.left.end.min(self.left.start.saturating_add(most));
        let bits = self.left.start..end;
        self.left.start = end;
        if bits.is_empty() {
            return false;
        }
        match &mut self.question {
            BitQuestion::Count(count) => {
                *count += match string.flat() {
                    Some(bytes) => self::count(bytes, bits),
                    None => {
                        pieces(string, bits).map(|(_, slice, bits)| self::count(slice, bits)).sum()
                    }
                };
            }
            &mut BitQuestion::First { bit, ref mut position } => {
                let found = match string.flat() {
                    Some(bytes) => self::position(bytes, bits, bit),
                    None => pieces(string, bits).find_map(|(start, slice, bits)| {
                        self::position(slice, bits, bit).map(|position| start * 8 + position)
                    }),
                };
                if let Some(found) = found {
                    *position = found as i64;
                    return false;
                }
            }
        }
        !self.left.is_empty()
    }

    const fn answer(&self) -> i64 {
        match self.question {
            BitQuestion::Count(count) => count as i64,
            BitQuestion::First { position, .. } => position,
        }
    }
}

/// More bits than this are read in slices: those of 1 MiB, which take some 40 us.
const BITS_AT_ONCE_MAX: usize = 8 << 20;
/// How many bits are read between two looks at the clock: those of a chunk.
const BITS_PER_STEP: usize = 8 * CHUNK_LEN;

/// The slices of a string that contain a range of bits: where each begins, and which of its bits
/// are in the range.
fn pieces<'a>(
    string: StringRef<'a>,
    bits: Range<usize>,
) -> impl Iterator<Item = (usize, &'a [u8], Range<usize>)> {
    let bytes = bits.start / 8..bits.end.div_ceil(8);
    let mut next = bytes.start;
    string.slices(bytes).map(move |slice| {
        let start = next;
        next += slice.len();
        let first = bits.start.saturating_sub(start * 8);
        (start, slice, first..(bits.end - start * 8).min(slice.len() * 8))
    })
}

/// The options of both commands.
struct BitRangeOptions {
    start: Option<i64>,
    end: Option<i64>,
    unit: BitUnit,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum BitUnit {
    Byte,
    Bit,
}

impl BitRangeOptions {
    /// Parses the options from the argument at `first` on.
    fn parse(call: &Call<'_>, first: usize) -> Result<Self, Failure> {
        let mut wanted = Self { start: None, end: None, unit: BitUnit::Byte };
        let count = call.args.len() - first;
        if count > 3 {
            return Err(Failure::SYNTAX);
        }
        if count >= 1 {
            wanted.start = Some(call.integer(first)?);
        }
        if count == 3 {
            wanted.unit = match call.args[first + 2] {
                word if word.eq_ignore_ascii_case(b"BIT") => BitUnit::Bit,
                word if word.eq_ignore_ascii_case(b"BYTE") => BitUnit::Byte,
                _ => return Err(Failure::SYNTAX),
            };
        }
        if count >= 2 {
            wanted.end = Some(call.integer(first + 1)?);
        }
        Ok(wanted)
    }
}

impl BitUnit {
    fn len(self, bytes: StringRef<'_>) -> usize {
        match self {
            Self::Byte => bytes.len(),
            Self::Bit => bytes.len() * 8,
        }
    }

    fn bits(self, range: Range<usize>) -> Range<usize> {
        match self {
            Self::Byte => range.start * 8..range.end * 8,
            Self::Bit => range,
        }
    }
}

/// How many bits of the range are set.
fn count(bytes: &[u8], range: Range<usize>) -> u64 {
    let Ends { first, first_mask, last_mask, last } = Ends::of(&range);
    if first == last {
        return u64::from((bytes[first] & first_mask & last_mask).count_ones());
    }
    let ends = (bytes[first] & first_mask).count_ones() + (bytes[last] & last_mask).count_ones();
    // Four sums, so that the additions do not wait for each other.
    let (blocks, rest) = bytes[first + 1..last].as_chunks::<32>();
    let mut sums = [0u64; 4];
    for block in blocks {
        let (words, _) = block.as_chunks::<8>();
        for (sum, &word) in sums.iter_mut().zip(words) {
            *sum += u64::from(u64::from_ne_bytes(word).count_ones());
        }
    }
    let rest: u32 = rest.iter().map(|byte| byte.count_ones()).sum();
    sums.iter().sum::<u64>() + u64::from(rest) + u64::from(ends)
}

/// The first bit of the range with this value.
fn position(bytes: &[u8], range: Range<usize>, bit: bool) -> Option<usize> {
    let Ends { first, first_mask, last_mask, last } = Ends::of(&range);
    // Looking for a zero is looking for a one in the complement.
    let flip = if bit { 0 } else { 0xff };
    let in_byte = |at: usize, mask: u8| {
        let found = (bytes[at] ^ flip) & mask;
        (found != 0).then(|| at * 8 + found.leading_zeros() as usize)
    };
    if first == last {
        return in_byte(first, first_mask & last_mask);
    }
    if let Some(found) = in_byte(first, first_mask) {
        return Some(found);
    }
    let start = first + 1;
    let (blocks, _) = bytes[start..last].as_chunks::<32>();
    let without = [flip; 32];
    let skipped = blocks.iter().position(|block| *block != without).unwrap_or(blocks.len());
    let start = start + skipped * 32;
    (start..last).find_map(|at| in_byte(at, 0xff)).or_else(|| in_byte(last, last_mask))
}

/// The bytes at both ends of a range of bits, and which of their bits are in the range.
struct Ends {
    first: usize,
    first_mask: u8,
    last_mask: u8,
    last: usize,
}

impl Ends {
    /// The range must not be empty.
    fn of(range: &Range<usize>) -> Self {
        let last_bit = range.end - 1;
        Self {
            first: range.start / 8,
            first_mask: 0xff >> (range.start % 8),
            last_mask: 0xff << (7 - last_bit % 8),
            last: last_bit / 8,
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn agree_with_bits_one_by_one(
            bytes in prop::collection::vec(prop_oneof![Just(0u8), Just(0xff), any::<u8>()], 1..120),
            start: prop::sample::Index,
            len: prop::sample::Index,
        ) {
            let bits = bytes.len() * 8;
            let start = start.index(bits);
            let range = start..start + 1 + len.index(bits - start);
            let is_set = |&at: &usize| bytes[at / 8] >> (7 - at % 8) & 1 == 1;
            prop_assert_eq!(count(&bytes, range.clone()), range.clone().filter(is_set).count() as u64);
            prop_assert_eq!(position(&bytes, range.clone(), true), range.clone().find(is_set));
            let first_clear = range.clone().find(|at| !is_set(at));
            prop_assert_eq!(position(&bytes, range, false), first_clear);
        }
    }

    #[test]
    fn long_runs_are_skipped() {
        let mut bytes = vec![0; 10_000];
        assert_eq!(position(&bytes, 0..80_000, true), None);
        bytes[9_000] = 1;
        assert_eq!(position(&bytes, 0..80_000, true), Some(72_007));
        bytes.iter_mut().for_each(|byte| *byte ^= 0xff);
        assert_eq!(position(&bytes, 0..80_000, false), Some(72_007));
        assert_eq!(count(&bytes, 0..80_000), 79_999);
    }
}
