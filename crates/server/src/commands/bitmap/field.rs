//! BITFIELD and BITFIELD_RO. All operations are parsed before the first one is done.

use bobbin_resp::Reply;

use super::BAD_OFFSET;
use super::window::{Overflow, Width};
use crate::commands::string::{BytesMut, StringChange, edit_or_make, len_max};
use crate::engine::command::{Call, Classes, Failure, KeyUse, Outcome};

/// One subcommand.
#[derive(Clone, Copy)]
struct BitFieldStep {
    action: FieldAction,
    width: Width,
    offset: usize,
}

#[derive(Clone, Copy)]
enum FieldAction {
    Get,
    Set(i64, Overflow),
    Add(i64, Overflow),
}

pub(super) fn bitfield(call: &mut Call<'_>) -> Outcome {
    let steps = parse(call)?;
    run(call, &steps)
}

pub(super) fn bitfield_ro(call: &mut Call<'_>) -> Outcome {
    let steps = parse(call)?;
    if steps.iter().any(BitFieldStep::writes) {
        return Err("ERR BITFIELD_RO only supports the GET subcommand".into());
    }
    run(call, &steps)
}

/// The key is changed only by some of the subcommands.
pub(super) fn find_key(args: &[&[u8]], found: &mut dyn FnMut(usize, KeyUse)) {
    let changes = args
        .get(2..)
        .unwrap_or_default()
        .iter()
        .any(|word| word.eq_ignore_ascii_case(b"set") || word.eq_ignore_ascii_case(b"incrby"));
    let usage = if changes { KeyUse::READ_WRITE.with(KeyUse::UPDATE) } else { KeyUse::READ_ONLY };
    found(1, usage.with(KeyUse::ACCESS));
}

fn run(call: &mut Call<'_>, steps: &[BitFieldStep]) -> Outcome {
    let key = call.key(1)?;
    // The string must reach to the last written bit, even if writing it fails.
    let len = steps.iter().filter(|step| step.writes()).map(BitFieldStep::end).max();
    let Some(len) = len else {
        let bytes = call.data.read_string(key)?.unwrap_or_default();
        call.reply.array(steps.len());
        steps.iter().for_each(|step| call.reply.integer(step.width.read(&bytes, step.offset)));
        return Ok(());
    };
    let mut run = BitFieldRun { steps, reply: &mut call.reply };
    let changes = edit_or_make(call.data, key, |_| Ok(len), &mut run)?;
    if changes > 0 {
        // The change of the string is counted once already.
        call.data.counters.dirty += changes as u64 - 1;
        call.data.event(Classes::STRING, "setbit", key);
    }
    Ok(())
}

/// Executes all steps and replies to each. Returns how many changed something.
struct BitFieldRun<'a, 'r> {
    steps: &'a [BitFieldStep],
    reply: &'a mut Reply<'r>,
}

impl StringChange for BitFieldRun<'_, '_> {
    type Result = usize;

    fn apply<S: BytesMut + ?Sized>(&mut self, string: &mut S, old_len: usize) -> (usize, bool) {
        self.reply.array(self.steps.len());
        let has_grown = old_len < string.len();
        let mut changes = 0;
        for step in self.steps {
            let old = step.width.read(string, step.offset);
            let (new, shown) = step.apply(old);
            match shown {
                Some(shown) => self.reply.integer(shown),
                None => self.reply.null(),
            }
            if let Some(new) = new {
                step.width.write(string, step.offset, new);
                changes += usize::from(new != old || has_grown);
            }
        }
        (changes, changes > 0 || has_grown)
    }
}

impl BitFieldStep {
    const fn writes(&self) -> bool {
        !matches!(self.action, FieldAction::Get)
    }

    /// The length in bytes of a string that has all of its bits.
    const fn end(&self) -> usize {
        (self.offset + self.width.bits as usize).div_ceil(8)
    }

    /// Returns the value to write, if any, and the value to reply.
    fn apply(&self, old: i64) -> (Option<i64>, Option<i64>) {
        match self.action {
            FieldAction::Get => (None, Some(old)),
            FieldAction::Set(value, overflow) => {
                // For an unsigned width, a negative number stands for a very large one.
                let value = match self.width.signed {
                    true => i128::from(value),
                    false => i128::from(value as u64),
                };
                let new = self.width.fit(value, overflow);
                (new, new.map(|_| old))
            }
            FieldAction::Add(increment, overflow) => {
                let new = self.width.fit(i128::from(old) + i128::from(increment), overflow);
                (new, new)
            }
        }
    }
}

/// Parses all subcommands.
fn parse(call: &Call<'_>) -> Result<Vec<BitFieldStep>, Failure> {
    let mut steps = Vec::new();
    let mut overflow = Overflow::Wrap;
    let mut words = &call.args[2..];
    while let [name, rest @ ..] = words {
        let is = |word: &[u8]| name.eq_ignore_ascii_case(word);
        let (action, width, offset) = match rest {
            [width, offset, rest @ ..] if is(b"GET") => {
                words = rest;
                (None, width, offset)
            }
            [width, offset, value, rest @ ..] if is(b"SET") || is(b"INCRBY") => {
                words = rest;
                (Some(value), width, offset)
            }
            [kind, rest @ ..] if is(b"OVERFLOW") => {
                words = rest;
                overflow = parse_overflow(kind)?;
                continue;
            }
            _ => return Err(Failure::SYNTAX),
        };
        let width = Width::parse(width).ok_or(Failure::new(
            &"ERR Invalid bitfield type. Use something like i16 u8. Note that u64 is not supported but \
             i64 is.",
        ))?;
        let offset = parse_offset(call, offset, width)?;
        let action = match action {
            None => FieldAction::Get,
            Some(value) => {
                let value = bobbin_resp::parse_i64(value).ok_or(Failure::NOT_AN_INTEGER)?;
                if is(b"SET") {
                    FieldAction::Set(value, overflow)
                } else {
                    FieldAction::Add(value, overflow)
                }
            }
        };
        steps.push(BitFieldStep { action, width, offset });
    }
    Ok(steps)
}

fn parse_overflow(word: &[u8]) -> Result<Overflow, Failure> {
    const NAMES: [(&[u8], Overflow); 3] =
        [(b"WRAP", Overflow::Wrap), (b"SAT", Overflow::Saturate), (b"FAIL", Overflow::Fail)];
    let found = NAMES.into_iter().find(|(name, _)| word.eq_ignore_ascii_case(name));
    found.map(|(_, overflow)| overflow).ok_or(Failure::new(&"ERR Invalid OVERFLOW type specified"))
}

/// The bit where an integer begins. `#n` counts in integers of its width.
fn parse_offset(call: &Call<'_>, text: &[u8], width: Width) -> Result<usize, Failure> {
    let (number, unit) = match text {
        [b'#', number @ ..] => (number, width.bits as usize),
        number => (number, 1),
    };
    bobbin_resp::parse_i64(number)
        .and_then(|number| usize::try_from(number).ok()?.checked_mul(unit))
        .filter(|offset| offset / 8 < len_max(call))
        .ok_or(BAD_OFFSET)
}
