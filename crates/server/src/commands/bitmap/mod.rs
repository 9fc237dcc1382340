//! Strings as arrays of bits. Bit 0 is the highest bit of the first byte.

mod count;
mod field;
mod operation;
mod window;

use super::string::{BytesMut, StringChange, edit_or_make, len_max};
use crate::engine::command::{Call, Categories, Classes, Command, Failure, Family, Flags, Outcome};
use crate::engine::row::keys::{KeySpec, KeyUse};

const BAD_OFFSET: Failure = Failure::new(&"ERR bit offset is not an integer or out of range");

fn setbit(call: &mut Call<'_>) -> Outcome {
    let offset = bit_offset(call, call.args[2])?;
    let bit = match call.args[3] {
        b"0" => 0,
        b"1" => 1,
        _ => return Err("ERR bit is not an integer or out of range".into()),
    };
    let key = call.key(1)?;
    let mut change = SetBit { at: offset / 8, shift: 7 - offset % 8, bit };
    let room = |_| Ok(offset / 8 + 1);
    let (old, changed) = edit_or_make(call.data, key, room, &mut change)?;
    if changed {
        call.data.event(Classes::STRING, "setbit", key);
    }
    call.reply.integer(i64::from(old));
    Ok(())
}

/// Sets one bit. Returns its old value, and whether the string changed.
struct SetBit {
    at: usize,
    shift: usize,
    bit: u8,
}

impl StringChange for SetBit {
    type Result = (u8, bool);

    #[inline(always)]
    fn apply<S: BytesMut + ?Sized>(
        &mut self,
        string: &mut S,
        old_len: usize,
    ) -> ((u8, bool), bool) {
        let mut byte = [0];
        string.read(self.at, &mut byte);
        let old = byte[0] >> self.shift & 1;
        string.write(self.at, &[byte[0] & !(1 << self.shift) | self.bit << self.shift]);
        let changed = old != self.bit || old_len <= self.at;
        ((old, changed), changed)
    }
}

fn getbit(call: &mut Call<'_>) -> Outcome {
    let offset = bit_offset(call, call.args[2])?;
    let key = call.key(1)?;
    let bytes = call.data.read_string(key)?.unwrap_or_default();
    let byte = bytes.get(offset / 8).unwrap_or(0);
    call.reply.integer(i64::from(byte >> (7 - offset % 8) & 1));
    Ok(())
}

/// Parses an argument as the number of a bit that a string can have.
#[inline]
fn bit_offset(call: &Call<'_>, argument: &[u8]) -> Result<usize, Failure> {
    bobbin_resp::parse_i64(argument)
        .and_then(|offset| usize::try_from(offset).ok())
        .filter(|offset| offset / 8 < len_max(call))
        .ok_or(BAD_OFFSET)
}

const READ: KeyUse = KeyUse::READ_ONLY.with(KeyUse::ACCESS);
const CHANGE: KeyUse = KeyUse::READ_WRITE.with(KeyUse::ACCESS).with(KeyUse::UPDATE);
const GROW: Flags = Flags::WRITE.with(Flags::DENYOOM);
const READONLY_FAST: Flags = Flags::READONLY.with(Flags::FAST);
const PER_OPERATION: &str = "O(1) for each subcommand";

const FAMILY: Family = Family::new(Categories::BITMAP);

pub(super) const COMMANDS: &[Command] = &[
    FAMILY
        .row("setbit", 4, GROW, setbit)
        .keys(&[KeySpec::at(1, CHANGE)])
        .doc("bitmap", "2.2.0", "O(1)", "Sets or clears a bit, and answers what it was.")
        .syntax("key offset:int value:int"),
    FAMILY
        .row("getbit", 3, READONLY_FAST, getbit)
        .keys(&[KeySpec::at(1, READ)])
        .doc("bitmap", "2.2.0", "O(1)", "Answers a bit.")
        .syntax("key offset:int"),
    FAMILY
        .row("bitcount", -2, Flags::READONLY, count::bitcount)
        .keys(&[KeySpec::at(1, READ)])
        .doc("bitmap", "2.6.0", "O(N), N: bytes looked at", "Counts the bits that are set.")
        .syntax("key [start:int [end:int [<BYTE | BIT>] @7.0.0] :end-unit-block] :range")
        .history(&[("7.0.0", "`BYTE` and `BIT` are new."), ("8.0.0", "`end` may be left out.")]),
    FAMILY
        .row("bitpos", -3, Flags::READONLY, count::bitpos)
        .keys(&[KeySpec::at(1, READ)])
        .doc(
            "bitmap",
            "2.8.7",
            "O(N), N: bytes looked at",
            "Finds the first bit that is set, or that is not.",
        )
        .syntax("key bit:int [start:int [end:int [<BYTE | BIT>] @7.0.0] :end-unit-block] :range")
        .history(&[("7.0.0", "`BYTE` and `BIT` are new.")]),
    FAMILY
        .row("bitop", -4, GROW, operation::bitop)
        .keys(&[
            KeySpec::at(2, KeyUse::OVERWRITE.with(KeyUse::UPDATE)),
            KeySpec::range(3, -1, 1, READ),
        ])
        .doc(
            "bitmap",
            "2.6.0",
            "O(N), N: bytes of the longest string",
            "Stores what comes of combining strings bit by bit.",
        )
        .syntax("<AND | OR | XOR | NOT | DIFF | DIFF1 | ANDOR | ONE> destkey:key key [key ...]"),
    FAMILY
        .row("bitfield", -2, GROW, field::bitfield)
        .keys(&[KeySpec::at(1, CHANGE.with(KeyUse::VARIABLE))
            .notes("Changes the key only when SET or INCRBY is given.")])
        .keys_by(field::find_key)
        .doc(
            "bitmap",
            "3.2.0",
            PER_OPERATION,
            "Reads and writes integers of any width in a string.",
        )
        .syntax(
            "key [<<GET encoding offset:int> :get-block | <[OVERFLOW <WRAP | SAT | FAIL> \
             :overflow-block] <<SET encoding offset:int value:int> :set-block | <INCRBY encoding \
             offset:int increment:int> :incrby-block> :write-operation> :write> ... :operation]",
        ),
    FAMILY
        .row("bitfield_ro", -2, READONLY_FAST, field::bitfield_ro)
        .keys(&[KeySpec::at(1, READ)])
        .doc("bitmap", "6.0.0", PER_OPERATION, "Reads integers of any width in a string.")
        .syntax("key [GET encoding offset:int [GET encoding offset ...]] :get-block"),
];
