//! BITOP.

use std::collections::HashMap;
use std::sync::Arc;

use bobbin_store::entry::{INLINE_MAX, Shared};
use bobbin_store::shard::Expire;
use bobbin_store::value::{CHUNK_LEN, Chunked, StringRef};
use bobbin_store::{NewValue, ValueRef};

use crate::engine::command::data::string;
use crate::engine::command::{Call, Classes, Failure, Outcome};

/// How strings are combined. In the names of Redis 8.2, X is the first source and Y the others.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum BitOperation {
    And,
    Or,
    Xor,
    Not,
    /// Bits of X that no Y has.
    Diff,
    /// Bits of any Y that X has not.
    Diff1,
    /// Bits of X that some Y has.
    AndOr,
    /// Bits that exactly one has.
    One,
}

impl BitOperation {
    const NAMES: [(&str, Self); 8] = [
        ("AND", Self::And),
        ("OR", Self::Or),
        ("XOR", Self::Xor),
        ("NOT", Self::Not),
        ("DIFF", Self::Diff),
        ("DIFF1", Self::Diff1),
        ("ANDOR", Self::AndOr),
        ("ONE", Self::One),
    ];
}

pub(super) fn bitop(call: &mut Call<'_>) -> Outcome {
    let (name, operation) = BitOperation::NAMES
        .into_iter()
        .find(|(name, _)| call.word_is(1, name))
        .ok_or(Failure::SYNTAX)?;
    let sources = call.args.len() - 3;
    let needed = match operation {
        BitOperation::Not if sources != 1 => "a single source key",
        BitOperation::Diff | BitOperation::Diff1 | BitOperation::AndOr if sources < 2 => {
            "at least two source keys"
        }
        _ => "",
    };
    if !needed.is_empty() {
        return Err(Failure::format(format!("ERR BITOP {name} must be called with {needed}.")));
    }
    let sources = Sources::gather(call, operation)?;
    let result = combine(operation, &sources.strings());
    let key = call.key(2)?;
    let len = result.len();
    if len == 0 {
        if call.data.remove(key) {
            call.data.event(Classes::GENERIC, "del", key);
        }
    } else {
        let value = if len <= INLINE_MAX {
            NewValue::InlineRaw(&result)
        } else {
            NewValue::Shared(Arc::new(result))
        };
        call.data.set(key, value, Expire::Clear);
        call.data.event(Classes::STRING, "set", key);
    }
    call.reply.integer(len as i64);
    Ok(())
}

/// The source strings, independent of their keys, of which the destination may be one.
#[derive(Default)]
struct Sources {
    parts: Vec<OperandPart>,
    /// The short strings, one after the other.
    short: Vec<u8>,
}

enum OperandPart {
    Short { start: usize, end: usize },
    Long(Shared),
    Chunked(Chunked),
}

impl Sources {
    fn gather(call: &mut Call<'_>, operation: BitOperation) -> Result<Self, Failure> {
        let mut sources = Self::default();
        for index in needed(operation, &call.args[3..]).map(|index| 3 + index) {
            let key = call.key(index)?;
            let start = sources.short.len();
            if let Some(entry) = call.data.read(key) {
                string(entry)?;
                match entry.value() {
                    ValueRef::Shared(shared) => {
                        sources.parts.push(OperandPart::Long(Arc::clone(shared)));
                        continue;
                    }
                    ValueRef::Chunked(chunked) => {
                        sources.parts.push(OperandPart::Chunked(chunked.clone()));
                        continue;
                    }
                    ValueRef::Bytes(bytes) => sources.short.extend_from_slice(bytes),
                    ValueRef::Collection(_) => {}
                }
            }
            sources.parts.push(OperandPart::Short { start, end: sources.short.len() });
        }
        Ok(sources)
    }

    fn strings(&self) -> Vec<StringRef<'_>> {
        self.parts
            .iter()
            .map(|part| match part {
                OperandPart::Short { start, end } => StringRef::Flat(&self.short[*start..*end]),
                OperandPart::Long(shared) => StringRef::Flat(shared),
                OperandPart::Chunked(chunked) => StringRef::Chunked(chunked),
            })
            .collect()
    }
}

/// Which of the sources, by name, decide about the result. One may be named very often, and each
/// costs its length.
fn needed<'a>(operation: BitOperation, names: &'a [&'a [u8]]) -> impl Iterator<Item = usize> + 'a {
    let mut times: HashMap<&[u8], usize> = HashMap::new();
    if names.len() > NAMES_MIN {
        names.iter().for_each(|&name| *times.entry(name).or_default() += 1);
    }
    let mut seen: HashMap<&[u8], usize> = HashMap::new();
    let x_is_apart =
        matches!(operation, BitOperation::Diff | BitOperation::Diff1 | BitOperation::AndOr);
    (0..names.len()).filter(move |&at| {
        if names.len() <= NAMES_MIN || at == 0 && x_is_apart {
            return true;
        }
        let seen = seen.entry(names[at]).or_default();
        *seen += 1;
        *seen
            <= match operation {
                // Two of them cancel each other out, but are as long as they are.
                BitOperation::Xor if times[names[at]].is_multiple_of(2) => 2,
                // Two are as good as more.
                BitOperation::One => 2,
                _ => 1,
            }
    })
}

/// Fewer sources are not worth looking for those that are named again.
const NAMES_MIN: usize = 8;

/// Bytes that are combined at a time: what was written is still in the nearest cache when the next
/// source is applied to it. Of a string in chunks, too, each block lies in one piece.
const BLOCK: usize = 4096;
const _: () = assert!(CHUNK_LEN.is_multiple_of(BLOCK));

/// Combines strings, each of which is followed by zeros up to the length of the longest.
fn combine(operation: BitOperation, sources: &[StringRef<'_>]) -> Vec<u8> {
    let len = sources.iter().map(|source| source.len()).max().unwrap_or(0);
    let mut result = vec![0; len];
    let Some((first, others)) = sources.split_first() else { return result };
    for (i, block) in result.chunks_mut(BLOCK).enumerate() {
        let start = i * BLOCK;
        combine_block(operation, block, part(first, start), others.iter().map(|s| part(s, start)));
    }
    result
}

/// The block of a source that begins at `start`, as far as the source goes.
fn part<'a>(source: &StringRef<'a>, start: usize) -> &'a [u8] {
    let slice = source.slice_at(start);
    &slice[..slice.len().min(BLOCK)]
}

/// Combines one block of each source in `block`, which holds zeros at first. The parts are at most
/// as long as the block.
fn combine_block<'a>(
    operation: BitOperation,
    block: &mut [u8],
    first: &[u8],
    mut others: impl Iterator<Item = &'a [u8]>,
) {
    match operation {
        BitOperation::And => {
            block[..first.len()].copy_from_slice(first);
            for other in others {
                let (common, beyond) = block.split_at_mut(other.len());
                apply(common, other, |a, b| a & b);
                beyond.fill(0);
            }
        }
        BitOperation::Or => {
            block[..first.len()].copy_from_slice(first);
            others.for_each(|other| apply(block, other, |a, b| a | b));
        }
        BitOperation::Xor => {
            block[..first.len()].copy_from_slice(first);
            others.for_each(|other| apply(block, other, |a, b| a ^ b));
        }
        BitOperation::Not => apply(block, first, |_, b| !b),
        BitOperation::Diff => {
            others.for_each(|other| apply(block, other, |a, b| a | b));
            let (common, beyond) = block.split_at_mut(first.len());
            apply(common, first, |a, b| b & !a);
            beyond.fill(0);
        }
        BitOperation::Diff1 => {
            others.for_each(|other| apply(block, other, |a, b| a | b));
            apply(block, first, |a, b| a & !b);
        }
        BitOperation::AndOr => {
            others.for_each(|other| apply(block, other, |a, b| a | b));
            let (common, beyond) = block.split_at_mut(first.len());
            apply(common, first, |a, b| a & b);
            beyond.fill(0);
        }
        BitOperation::One => {
            let mut twice = [0; BLOCK];
            block[..first.len()].copy_from_slice(first);
            others.by_ref().for_each(|other| {
                for ((any, twice), &byte) in block.iter_mut().zip(&mut twice).zip(other) {
                    *twice |= *any & byte;
                    *any |= byte;
                }
            });
            apply(block, &twice[..block.len()], |a, b| a & !b);
        }
    }
}

/// Changes each byte by the one at its place in `other`, as far as that goes.
#[inline(always)]
fn apply(bytes: &mut [u8], other: &[u8], f: impl Fn(u8, u8) -> u8) {
    for (byte, &other) in bytes.iter_mut().zip(other) {
        *byte = f(*byte, other);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// A bit of the result, from the bits of the sources.
    fn model(operation: BitOperation, bits: &[bool]) -> bool {
        let (x, any_y) = (bits[0], bits[1..].contains(&true));
        let set = bits.iter().filter(|&&bit| bit).count();
        match operation {
            BitOperation::And => set == bits.len(),
            BitOperation::Or => set > 0,
            BitOperation::Xor => set % 2 == 1,
            BitOperation::Not => !x,
            BitOperation::Diff => x && !any_y,
            BitOperation::Diff1 => !x && any_y,
            BitOperation::AndOr => x && any_y,
            BitOperation::One => set == 1,
        }
    }

    #[test]
    fn sources_that_are_named_again_are_left_out() {
        let strings: [&[u8]; 3] = [b"abc", b"\x0f\xff", b"xyz\x01"];
        let mut random = 1u32;
        for round in 0..300 {
            let picks: Vec<usize> = (0..9 + round % 8)
                .map(|_| {
                    random = random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                    (random >> 16) as usize % 3
                })
                .collect();
            let names: Vec<&[u8]> = picks.iter().map(|&pick| &strings[pick][..1]).collect();
            let all: Vec<_> = picks.iter().map(|&pick| StringRef::Flat(strings[pick])).collect();
            for (_, operation) in BitOperation::NAMES {
                if operation == BitOperation::Not {
                    continue;
                }
                let few: Vec<_> = needed(operation, &names)
                    .map(|at| StringRef::Flat(strings[picks[at]]))
                    .collect();
                assert!(few.len() <= 7, "{operation:?} of {picks:?}");
                assert_eq!(
                    combine(operation, &few),
                    combine(operation, &all),
                    "{operation:?} of {picks:?}"
                );
            }
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(40))]
        #[test]
        fn agrees_with_bits_one_by_one(
            sources in prop::collection::vec(
                prop_oneof![prop::collection::vec(any::<u8>(), 0..40), prop::collection::vec(any::<u8>(), 4000..9000)],
                1..5,
            ),
        ) {
            let chunked: Vec<_> = sources.iter().map(|bytes| Chunked::from_bytes(bytes, 0)).collect();
            let chunked: Vec<_> = chunked.iter().map(StringRef::Chunked).collect();
            let sources: Vec<_> = sources.iter().map(|bytes| StringRef::Flat(bytes)).collect();
            let len = sources.iter().map(|source| source.len()).max().unwrap();
            for (_, operation) in BitOperation::NAMES {
                let used = if operation == BitOperation::Not { 1 } else { sources.len() };
                let sources = &sources[..used];
                let result = combine(operation, sources);
                prop_assert!(combine(operation, &chunked[..used]) == result);
                prop_assert_eq!(result.len(), if operation == BitOperation::Not { sources[0].len() } else { len });
                for (at, &byte) in result.iter().enumerate() {
                    for bit in 0..8 {
                        let is_set = |byte: u8| byte >> bit & 1 == 1;
                        let bits: Vec<bool> = sources
                            .iter()
                            .map(|source| is_set(source.get(at).unwrap_or(0)))
                            .collect();
                        prop_assert_eq!(is_set(byte), model(operation, &bits), "{:?} at {}", operation, at);
                    }
                }
            }
        }
    }
}
