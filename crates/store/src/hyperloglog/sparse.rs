//! The sparse form: runs of registers with the same value.
//!
//! `00nnnnnn` is a run of n + 1 zeros, `01nnnnnn nnnnnnnn` a longer one (of up to 16384), and
//! `1vvvvvnn` a run of n + 1 registers of value v + 1. Changing a register splits a run and then
//! joins equal neighbours, exactly as Redis does, so the same commands give the same bytes.

use std::fmt::Write;

use super::estimate::Histogram;
use super::{Corrupt, HEADER, REGISTERS, RegisterRank, Registers};

/// One run that covers all registers.
pub(super) const EMPTY: [u8; 2] = [LONG_ZEROS | 0x3f, 0xff];

/// The outcome of raising a register.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Raised {
    /// The register was as high already.
    Not,
    Done,
    /// The value has to become dense first. Nothing was changed.
    TooLong,
}

/// A run of registers.
#[derive(Clone, Copy, Debug)]
struct Run {
    /// Its length in bytes.
    size: usize,
    /// 0 to `VALUE_MAX`.
    value: u8,
    /// How many registers it has.
    len: usize,
    /// Whether it is a run of zeros in the longer form.
    long: bool,
}

impl Run {
    /// Reads the run at the start of these bytes. If its second byte is missing, zero is used, as
    /// in Redis.
    #[inline(always)]
    fn read(bytes: &[u8]) -> Result<Self, Corrupt> {
        let Some((&byte, rest)) = bytes.split_first() else { return Err(Corrupt) };
        if byte & VALUE != 0 {
            let value = (byte >> 2 & 0x1f) + 1;
            return Ok(Self { size: 1, value, len: usize::from(byte & 3) + 1, long: false });
        }
        if byte & LONG_ZEROS == 0 {
            return Ok(Self { size: 1, value: 0, len: usize::from(byte) + 1, long: false });
        }
        let low = rest.first().copied().unwrap_or(0);
        let len = (usize::from(byte & 0x3f) << 8 | usize::from(low)) + 1;
        Ok(Self { size: bytes.len().min(2), value: 0, len, long: true })
    }
}

/// The runs of a value, each with its first register, up to the first incomplete run.
fn runs(body: &[u8]) -> impl Iterator<Item = (usize, Run)> {
    let (mut at, mut first) = (0, 0);
    std::iter::from_fn(move || {
        let run = Run::read(&body[at..]).ok()?;
        let found = (first, run);
        at += run.size;
        first += run.len;
        Some(found)
    })
}

/// Calls `f` with each run and its first register. Fails if the runs do not add up to exactly all
/// registers.
fn walk(body: &[u8], mut f: impl FnMut(usize, Run)) -> Result<(), Corrupt> {
    let (mut at, mut first) = (0, 0);
    while at < body.len() {
        let run = Run::read(&body[at..])?;
        if first + run.len > REGISTERS {
            return Err(Corrupt);
        }
        f(first, run);
        at += run.size;
        first += run.len;
    }
    if first == REGISTERS { Ok(()) } else { Err(Corrupt) }
}

pub(super) fn register(body: &[u8], index: usize) -> Result<u8, Corrupt> {
    let covers = |&(first, run): &(usize, Run)| index < first + run.len;
    runs(body).find(covers).map(|(_, run)| run.value).ok_or(Corrupt)
}

pub(super) fn histogram(body: &[u8]) -> Result<Histogram, Corrupt> {
    let mut histogram = Histogram::default();
    walk(body, |_, run| histogram.add(run.value, run.len))?;
    Ok(histogram)
}

pub(super) fn merge_into(body: &[u8], registers: &mut Registers) -> Result<(), Corrupt> {
    walk(body, |first, run| {
        if run.value > 0 {
            for value in &mut registers[first..first + run.len] {
                *value = (*value).max(run.value);
            }
        }
    })
}

pub(super) fn describe(body: &[u8]) -> String {
    let mut text = String::new();
    // A valid value has no more runs.
    for (_, run) in runs(body).take(REGISTERS) {
        let separator = if text.is_empty() { "" } else { " " };
        let Run { value, len, long, .. } = run;
        // Writing to a string cannot fail.
        let _ = match (value, long) {
            (0, false) => write!(text, "{separator}z:{len}"),
            (0, _) => write!(text, "{separator}Z:{len}"),
            _ => write!(text, "{separator}v:{value},{len}"),
        };
    }
    text
}

/// Raises a register of a value with its header, if the value then is not longer than `len_max`.
pub(super) fn raise(
    bytes: &mut Vec<u8>,
    element: RegisterRank,
    len_max: usize,
) -> Result<Raised, Corrupt> {
    if bytes.len() > LEN_MAX {
        return Err(Corrupt);
    }
    if element.rank > VALUE_MAX {
        return Ok(Raised::TooLong);
    }
    // Find the run with the register, and the run before it.
    let (mut before, mut at, mut first) = (None, HEADER, 0);
    let run = loop {
        let run = Run::read(&bytes[at..])?;
        if element.register < first + run.len {
            break run;
        }
        before = Some(at);
        at += run.size;
        first += run.len;
    };
    if run.value >= element.rank {
        return Ok(Raised::Not);
    }
    let mut split = Split::default();
    split.push(run.value, element.register - first);
    split.push(element.rank, 1);
    split.push(run.value, first + run.len - 1 - element.register);
    let split = split.bytes();
    if split.len() > run.size && bytes.len() + split.len() - run.size > len_max {
        return Ok(Raised::TooLong);
    }
    bytes.splice(at..at + run.size, split.iter().copied());
    join(bytes, before.unwrap_or(HEADER));
    Ok(Raised::Done)
}

/// Joins equal neighbours among the next few runs, which a split may have made equal.
fn join(bytes: &mut Vec<u8>, mut at: usize) {
    for _ in 0..JOIN_STEPS {
        let (Some(&run), next) = (bytes.get(at), bytes.get(at + 1)) else { return };
        if run & VALUE == 0 {
            at += if run & LONG_ZEROS != 0 { 2 } else { 1 };
            continue;
        }
        // Two runs of the same value have the same upper bits.
        let joined = match next {
            Some(&next) if next | 3 == run | 3 => (run & 3) + (next & 3) + 1,
            _ => VALUE_LEN_MAX,
        };
        if joined < VALUE_LEN_MAX {
            bytes[at + 1] = run & !3 | joined;
            bytes.remove(at);
        } else {
            at += 1;
        }
    }
}

/// The runs that replace one run, at most five bytes.
#[derive(Default)]
struct Split {
    bytes: [u8; 5],
    len: usize,
}

impl Split {
    fn bytes(&self) -> &[u8] {
        &self.bytes[..self.len]
    }

    fn push(&mut self, value: u8, len: usize) {
        let Some(rest) = len.checked_sub(1) else { return };
        if value > 0 {
            self.byte(VALUE | (value - 1) << 2 | rest as u8);
        } else if len > SHORT_ZEROS_MAX {
            self.byte(LONG_ZEROS | (rest >> 8) as u8);
            self.byte(rest as u8);
        } else {
            self.byte(rest as u8);
        }
    }

    fn byte(&mut self, byte: u8) {
        self.bytes[self.len] = byte;
        self.len += 1;
    }
}

/// Marks a run of a value.
const VALUE: u8 = 0x80;
/// Marks a run of zeros in two bytes.
const LONG_ZEROS: u8 = 0x40;
/// The highest value of a register in this form.
const VALUE_MAX: u8 = 32;
/// The longest run of a value.
const VALUE_LEN_MAX: u8 = 4;
/// The longest run of zeros in one byte.
const SHORT_ZEROS_MAX: usize = 64;
/// The longest valid value: each register is a run of its own, in the longer form. Joining moves
/// everything behind it, so a longer string would take too much time.
const LEN_MAX: usize = HEADER + 2 * REGISTERS;
/// How many runs are looked at for joining.
const JOIN_STEPS: usize = 5;

#[cfg(test)]
mod tests {
    use super::super::HyperLogLog;
    use super::*;

    fn described(raises: &[(usize, u8)]) -> String {
        let mut value = HyperLogLog::default();
        for &(register, rank) in raises {
            value.add(RegisterRank { register, rank }, 3000).unwrap();
        }
        value.view().describe_runs()
    }

    #[test]
    fn runs_split_and_join() {
        assert_eq!(described(&[]), "Z:16384");
        assert_eq!(described(&[(0, 1)]), "v:1,1 Z:16383");
        assert_eq!(described(&[(16383, 32)]), "Z:16383 v:32,1");
        assert_eq!(described(&[(64, 1)]), "z:64 v:1,1 Z:16319");
        assert_eq!(described(&[(65, 1)]), "Z:65 v:1,1 Z:16318");
        assert_eq!(described(&[(3, 2), (5, 2), (4, 2)]), "z:3 v:2,3 Z:16378");
        assert_eq!(described(&[(3, 2), (5, 2), (4, 2), (6, 2), (7, 2)]), "z:3 v:2,4 v:2,1 Z:16376");
        assert_eq!(described(&[(0, 2), (1, 2), (2, 2), (1, 5)]), "v:2,1 v:5,1 v:2,1 Z:16381");
    }

    #[test]
    fn a_value_that_gets_too_long_becomes_dense() {
        let mut bytes = HyperLogLog::default().into_bytes();
        let element = |register| RegisterRank { register, rank: 1 };
        assert_eq!(raise(&mut bytes, element(100), 20), Ok(Raised::TooLong));
        assert_eq!(raise(&mut bytes, element(0), 20), Ok(Raised::Done));
        assert_eq!(bytes.len(), 19);
        let high = RegisterRank { register: 0, rank: 33 };
        assert_eq!(raise(&mut bytes, high, 3000), Ok(Raised::TooLong));
    }
}
