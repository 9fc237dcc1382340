//! BITOP.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;

use bobbin_resp::Reply;
use bobbin_store::NewValue;
use bobbin_store::entry::INLINE_MAX;
use bobbin_store::shard::Expire;
use bobbin_store::value::{CHUNK_LEN, StringRef};

use crate::commands::string::PinnedStrings;
use crate::engine::command::{Call, Classes, Data, Failure, Key, Outcome};
use crate::engine::execution::slices::{SlicedChange, change_in_slices};

/// How strings are combined. In the names of Redis 8.2, X is the first source and Y the others.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum BitOperation {
    And,
    Or,
    Xor,
    Not,
    /// Bits of X that no Y has.
    Diff,
    /// Bits of any Y that X does not have.
    Diff1,
    /// Bits of X that some Y has.
    AndOr,
    /// Bits that exactly one source has.
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
    let demand = match operation {
        BitOperation::Not if sources != 1 => "a single source key",
        BitOperation::Diff | BitOperation::Diff1 | BitOperation::AndOr if sources < 2 => {
            "at least two source keys"
        }
        _ => "",
    };
    if !demand.is_empty() {
        return Err(Failure::format(format!("ERR BITOP {name} must be called with {demand}.")));
    }
    let names = needed(operation, &call.args[3..]).map(|index| 3 + index);
    let keys = call.keys(names)?;
    let sources = PinnedStrings::gather(call.data, keys.iter().map(|(_, key)| *key), Data::read)?;
    if sources.bytes() > BYTES_AT_ONCE_MAX && call.may_leave_job {
        let names = keys.iter().map(|(_, key)| key.bytes.into()).collect();
        let destination = call.key(2)?.bytes.into();
        let operating = SlicedOperation::new(operation, destination, names, sources);
        return change_in_slices(call, 2..call.args.len(), operating);
    }
    let result = combine(operation, &sources.strings());
    let key = call.key(2)?;
    put(operation, call.data, &mut call.reply, key, result);
    Ok(())
}

fn put(
    operation: BitOperation,
    data: &mut Data,
    reply: &mut Reply<'_>,
    key: Key<'_>,
    result: Vec<u8>,
) {
    let len = result.len();
    // Valkey does not know these, nor does Redis before 8.2: the log gets the result.
    let is_new = matches!(
        operation,
        BitOperation::Diff | BitOperation::Diff1 | BitOperation::AndOr | BitOperation::One
    );
    if len == 0 {
        if data.remove(key) {
            if is_new {
                data.propagate(&[b"DEL", key.bytes]);
            }
            data.event(Classes::GENERIC, "del", key);
        }
    } else {
        let result = Arc::new(result);
        let value = if len <= INLINE_MAX {
            NewValue::InlineRaw(&result)
        } else {
            NewValue::Shared(Arc::clone(&result))
        };
        data.set(key, value, Expire::Clear);
        if is_new {
            // Behind the deletion of a key that has expired.
            data.propagate(&[b"SET", key.bytes, &result]);
        }
        data.event(Classes::STRING, "set", key);
    }
    reply.integer(len as i64);
}

/// BITOP of large strings.
struct SlicedOperation {
    operation: BitOperation,
    destination: Box<[u8]>,
    /// The keys of the sources.
    names: Vec<Box<[u8]>>,
    sources: PinnedStrings,
    result: Vec<u8>,
    /// How many bytes of the result are complete.
    done: usize,
}

impl SlicedOperation {
    fn new(
        operation: BitOperation,
        destination: Box<[u8]>,
        names: Vec<Box<[u8]>>,
        sources: PinnedStrings,
    ) -> Self {
        let result = vec![0; longest(&sources.strings())];
        Self { operation, destination, names, sources, result, done: 0 }
    }
}

impl SlicedChange for SlicedOperation {
    fn step(&mut self, _: &mut Data) -> bool {
        let blocks = (BLOCKS_PER_STEP / self.names.len().max(1)).max(1);
        let end = self.result.len().min(self.done + blocks * BLOCK);
        combine_range(self.operation, &self.sources.strings(), &mut self.result, self.done..end);
        self.done = end;
        end < self.result.len()
    }

    fn is_current(&mut self, data: &mut Data) -> Result<bool, Failure> {
        let keys: Vec<Key<'_>> = self.names.iter().map(|name| data.key(name)).collect();
        let now = PinnedStrings::gather(data, keys.into_iter(), Data::peek)?;
        let is_current = now.are_same(&self.sources);
        if !is_current {
            self.result = vec![0; longest(&now.strings())];
            (self.sources, self.done) = (now, 0);
        }
        Ok(is_current)
    }

    fn finish(&mut self, data: &mut Data, _: &[&[u8]], reply: &mut Reply<'_>) -> Outcome {
        let key = data.key(&self.destination);
        put(self.operation, data, reply, key, std::mem::take(&mut self.result));
        Ok(())
    }
}

/// The indices of the sources that determine the result. A source may be named very often, and each
/// mention costs its length.
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
                // Two equal sources cancel each other out, but their length counts.
                BitOperation::Xor if times[names[at]].is_multiple_of(2) => 2,
                // Two equal sources have the same effect as more.
                BitOperation::One => 2,
                _ => 1,
            }
    })
}

/// With fewer sources, looking for repeated names does not pay.
const NAMES_MIN: usize = 8;

/// How many bytes are combined at a time. The written block stays in the nearest cache for the next
/// source. A block never crosses a chunk's border.
const BLOCK: usize = 4096;
/// How many blocks of each source are combined between two looks at the clock.
const BLOCKS_PER_STEP: usize = 8;
/// If the sources have more bytes than this, they are combined in slices.
const BYTES_AT_ONCE_MAX: usize = 512 * 1024;
const _: () = assert!(CHUNK_LEN.is_multiple_of(BLOCK));

/// Combines strings. Shorter ones are followed by zeros up to the longest one's length.
fn combine(operation: BitOperation, sources: &[StringRef<'_>]) -> Vec<u8> {
    let len = longest(sources);
    let mut result = vec![0; len];
    combine_range(operation, sources, &mut result, 0..len);
    result
}

/// The length of the longest string.
fn longest(sources: &[StringRef<'_>]) -> usize {
    sources.iter().map(|source| source.len()).max().unwrap_or(0)
}

/// Combines a range of the strings' bytes, which begins at a block. `result` must hold zeros there.
fn combine_range(
    operation: BitOperation,
    sources: &[StringRef<'_>],
    result: &mut [u8],
    range: Range<usize>,
) {
    let Some((first, others)) = sources.split_first() else { return };
    let starts = range.clone().step_by(BLOCK);
    for (start, block) in starts.zip(result[range].chunks_mut(BLOCK)) {
        combine_block(operation, block, part(first, start), others.iter().map(|s| part(s, start)));
    }
}

/// The block of a source that begins at `start`, as far as the source has it.
fn part<'a>(source: &StringRef<'a>, start: usize) -> &'a [u8] {
    let slice = source.slice_at(start);
    &slice[..slice.len().min(BLOCK)]
}

/// Combines one block of each source in `block`, which must hold zeros. No part may be longer than
/// the block.
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

/// Changes each byte by the byte at its place in `other`, as far as that has one.
#[inline(always)]
fn apply(bytes: &mut [u8], other: &[u8], f: impl Fn(u8, u8) -> u8) {
    for (byte, &other) in bytes.iter_mut().zip(other) {
        *byte = f(*byte, other);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use bobbin_store::value::ChunkedString;

    use super::*;

    /// A bit of the result, computed from the bits of the sources.
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
            let chunked: Vec<_> = sources.iter().map(|bytes| ChunkedString::from_bytes(bytes, 0)).collect();
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
