//! `cmsgpack`: values to MessagePack and back (msgpack.org's specification), with the ways of
//! lua-cmsgpack 0.4.

use crate::state::Core;
use crate::state::budget::{LISTED_PER_STEP, Output};
use crate::state::raw::{
    LUA_TBOOLEAN, LUA_TNIL, LUA_TNUMBER, LUA_TSTRING, LUA_TTABLE, Raise, Returned, Stack,
    lua_CFunction, lua_function,
};

/// Pushes the table.
pub(crate) fn push_table(stack: Stack) {
    const FUNCTIONS: &[(&str, lua_CFunction)] = &[
        ("pack", pack_shell),
        ("unpack", unpack_all),
        ("unpack_one", unpack_one),
        ("unpack_limit", unpack_limit),
    ];
    stack.push_table(0, FUNCTIONS.len() + 4);
    let table = stack.top();
    for (name, function) in FUNCTIONS {
        stack.push_function(*function);
        stack.set_field(table, name.as_bytes());
    }
    for (name, text) in [
        ("_NAME", "cmsgpack"),
        ("_VERSION", "lua-cmsgpack 0.4.0"),
        ("_COPYRIGHT", "Copyright (C) 2012, Redis Ltd."),
        ("_DESCRIPTION", "MessagePack C implementation for Lua"),
    ] {
        stack.push_bytes(text.as_bytes());
        stack.set_field(table, name.as_bytes());
    }
}

lua_function!(pack_shell, pack);
lua_function!(unpack_all, take_all);
lua_function!(unpack_one, take_one);
lua_function!(unpack_limit, take_some);

/// All arguments, one behind the other.
fn pack(stack: Stack) -> Returned {
    let count = stack.top();
    if count == 0 {
        return Err(stack.bad_argument(0, "pack", "MessagePack pack needs input."));
    }
    if !stack.reserve(STACK_ROOM) {
        return Err(stack.bad_argument(0, "pack", "Too many arguments for MessagePack pack."));
    }
    let mut out = Output::new(stack, stack.core());
    for at in 1..=count {
        stack.copy(at);
        append(stack, 0, &mut out)?;
        stack.pop(1);
    }
    out.push()?;
    Ok(1)
}

/// Appends the value on top, which stays there. What cannot be packed, or lies too deep, is nil.
fn append(stack: Stack, depth: usize, out: &mut Output<'_>) -> Result<(), Raise> {
    out.reserve(SCALAR_LEN_MAX)?;
    match stack.kind(-1) {
        LUA_TSTRING => {
            let bytes = stack.bytes(-1).unwrap_or_default();
            append_header(bytes.len(), (0xa0, 32), Some(0xd9), (0xda, 0xdb), out.bytes());
            out.extend(bytes)?;
        }
        LUA_TBOOLEAN => out.bytes().push(if stack.boolean(-1) { 0xc3 } else { 0xc2 }),
        LUA_TNUMBER => append_number(stack.number(-1), out.bytes()),
        LUA_TTABLE if depth < DEPTH_MAX && stack.reserve(STACK_ROOM) => {
            append_table(stack, depth, out)?;
        }
        _ => out.bytes().push(0xc0),
    }
    Ok(())
}

/// A length: in the low bits of the first byte if it is below the limit there, else behind it.
fn append_header(
    len: usize,
    (short, limit): (u8, usize),
    one: Option<u8>,
    (two, four): (u8, u8),
    out: &mut Vec<u8>,
) {
    if len < limit {
        out.push(short | len as u8);
    } else if let (Some(one), Ok(len)) = (one, u8::try_from(len)) {
        out.extend_from_slice(&[one, len]);
    } else if let Ok(len) = u16::try_from(len) {
        out.push(two);
        out.extend_from_slice(&len.to_be_bytes());
    } else {
        out.push(four);
        out.extend_from_slice(&(len as u32).to_be_bytes());
    }
}

fn append_number(value: f64, out: &mut Vec<u8>) {
    let whole = value as i64;
    if whole as f64 != value || whole == i64::MAX {
        let short = value as f32;
        if f64::from(short) == value {
            out.push(0xca);
            out.extend_from_slice(&short.to_be_bytes());
        } else {
            out.push(0xcb);
            out.extend_from_slice(&value.to_be_bytes());
        }
    } else if let Ok(value) = u64::try_from(whole) {
        match value {
            0..=0x7f => out.push(value as u8),
            0x80..=0xff => out.extend_from_slice(&[0xcc, value as u8]),
            0x100..=0xffff => {
                out.push(0xcd);
                out.extend_from_slice(&(value as u16).to_be_bytes());
            }
            0x1_0000..=0xffff_ffff => {
                out.push(0xce);
                out.extend_from_slice(&(value as u32).to_be_bytes());
            }
            _ => {
                out.push(0xcf);
                out.extend_from_slice(&value.to_be_bytes());
            }
        }
    } else if whole >= -32 {
        out.push(whole as u8);
    } else if let Ok(value) = i8::try_from(whole) {
        out.extend_from_slice(&[0xd0, value as u8]);
    } else if let Ok(value) = i16::try_from(whole) {
        out.push(0xd1);
        out.extend_from_slice(&value.to_be_bytes());
    } else if let Ok(value) = i32::try_from(whole) {
        out.push(0xd2);
        out.extend_from_slice(&value.to_be_bytes());
    } else {
        out.push(0xd3);
        out.extend_from_slice(&whole.to_be_bytes());
    }
}

/// The table on top: as an array if its keys are 1 to n, else as a map.
fn append_table(stack: Stack, depth: usize, out: &mut Output<'_>) -> Result<(), Raise> {
    let table = stack.top();
    out.charge_table()?;
    if let Some(len) = stack.list_len(table) {
        out.charge(len / LISTED_PER_STEP)?;
        return append_list(stack, table, len, depth, out);
    }
    let (mut count, mut last, mut is_list) = (0usize, 0, true);
    // The count as a number of Lua's, so that it need not be converted for each key.
    let mut number = 0.0;
    stack.push_nil();
    while stack.next(table) {
        out.charge(1)?;
        count += 1;
        number += 1.0;
        if is_list {
            is_list = stack.kind(-2) == LUA_TNUMBER;
            let key = stack.number(-2);
            // The keys of most lists come in order, and to round a number takes long.
            if key == number {
                last = last.max(count);
            } else {
                is_list &= (1.0..=f64::from(i32::MAX)).contains(&key) && key.floor() == key;
                last = last.max(key as usize);
            }
        }
        stack.pop(1);
    }
    if is_list && last == count {
        return append_list(stack, table, count, depth, out);
    }
    out.reserve(SCALAR_LEN_MAX)?;
    append_header(count, (0x80, 16), None, (0xde, 0xdf), out.bytes());
    out.charge_table()?;
    stack.push_nil();
    while stack.next(table) {
        stack.copy(-2);
        append(stack, depth + 1, out)?;
        stack.pop(1);
        append(stack, depth + 1, out)?;
        stack.pop(1);
    }
    Ok(())
}

fn append_list(
    stack: Stack,
    table: i32,
    len: usize,
    depth: usize,
    out: &mut Output<'_>,
) -> Result<(), Raise> {
    out.reserve(SCALAR_LEN_MAX)?;
    append_header(len, (0x90, 16), None, (0xdc, 0xdd), out.bytes());
    for index in 1..=len {
        stack.raw_get_at(table, index as i32);
        append(stack, depth + 1, out)?;
        stack.pop(1);
    }
    Ok(())
}

fn take_all(stack: Stack) -> Returned {
    let data = stack.check_bytes(1, "unpack")?;
    take(stack, data, 0, None)
}

fn take_one(stack: Stack) -> Returned {
    let data = stack.check_bytes(1, "unpack_one")?;
    let offset = optional(stack, 2, "unpack_one")?;
    take(stack, data, offset, Some(1))
}

fn take_some(stack: Stack) -> Returned {
    let data = stack.check_bytes(1, "unpack_limit")?;
    let limit = stack.check_integer(2, "unpack_limit")?;
    let offset = optional(stack, 3, "unpack_limit")?;
    // Neither a limit nor an offset is to unpack all, without a word of where the next one begins.
    take(stack, data, offset, (limit != 0 || offset != 0).then_some(limit))
}

fn optional(stack: Stack, at: i32, function: &str) -> Result<i64, Raise> {
    let is_there = stack.has(at) && stack.kind(at) != LUA_TNIL;
    if is_there { stack.check_integer(at, function) } else { Ok(0) }
}

/// Pushes the values from an offset on: all of them, or at most `most`. In the second case it first
/// pushes the position where the next value begins (-1: there is none).
fn take(stack: Stack, data: &[u8], offset: i64, most: Option<i64>) -> Returned {
    let Some(at) = usize::try_from(offset).ok().filter(|_| most.is_none_or(|most| most >= 0))
    else {
        // The library says its own figures the wrong way about, and 32 bits of the offset.
        let text = format!(
            "Invalid request to unpack with offset of {} and limit of {}.",
            offset as i32,
            data.len()
        );
        return Err(stack.fail(&text));
    };
    if at > data.len() {
        let text = format!("Start offset {at} greater than input length {}.", data.len());
        return Err(stack.fail(&text));
    }
    let mut reader = Reader { stack, core: stack.core(), data, at };
    let mut count = 0;
    if most.is_some() {
        // Room for the position.
        stack.push_nil();
    }
    let first = stack.top();
    while reader.at < data.len() && most.is_none_or(|most| i64::from(count) < most) {
        reader.value(0).map_err(|fault| match fault {
            Fault::Missing => stack.fail("Missing bytes in input."),
            Fault::Format => stack.fail("Bad data format in input."),
            Fault::Raised(raise) => raise,
        })?;
        count += 1;
    }
    if most.is_some() {
        let next = if reader.at == data.len() { -1.0 } else { reader.at as f64 };
        stack.push_number(next);
        stack.replace(first);
        count += 1;
    }
    Ok(count)
}

enum Fault {
    Missing,
    Format,
    /// The error lies on the stack.
    Raised(Raise),
}

impl From<Raise> for Fault {
    fn from(raise: Raise) -> Self {
        Self::Raised(raise)
    }
}

struct Reader<'a> {
    stack: Stack,
    core: &'a Core,
    data: &'a [u8],
    at: usize,
}

impl<'a> Reader<'a> {
    fn bytes(&mut self, count: usize) -> Result<&'a [u8], Fault> {
        let end = self.at.checked_add(count).filter(|end| *end <= self.data.len());
        let bytes = &self.data[self.at..end.ok_or(Fault::Missing)?];
        self.at += count;
        Ok(bytes)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], Fault> {
        let mut array = [0; N];
        array.copy_from_slice(self.bytes(N)?);
        Ok(array)
    }

    /// Reads a length that takes `bytes` bytes.
    fn len(&mut self, bytes: usize) -> Result<usize, Fault> {
        Ok(self.bytes(bytes)?.iter().fold(0, |len, &byte| len << 8 | usize::from(byte)))
    }

    /// Pushes the next value.
    fn value(&mut self, depth: usize) -> Result<(), Fault> {
        if depth > UNPACK_DEPTH_MAX || !self.stack.reserve(STACK_ROOM) {
            return Err(Fault::Format);
        }
        let stack = self.stack;
        self.core.charge(stack, 2)?;
        let first = self.array::<1>()?[0];
        match first {
            0x00..=0x7f => stack.push_number(f64::from(first)),
            0xe0..=0xff => stack.push_number(f64::from(first as i8)),
            0x80..=0x8f => self.map(usize::from(first & 15), depth)?,
            0x90..=0x9f => self.list(usize::from(first & 15), depth)?,
            0xa0..=0xbf => self.string(usize::from(first & 31))?,
            0xc0 => stack.push_nil(),
            0xc2 | 0xc3 => stack.push_bool(first == 0xc3),
            0xca => stack.push_number(f64::from(f32::from_be_bytes(self.array()?))),
            0xcb => stack.push_number(f64::from_be_bytes(self.array()?)),
            0xcc => stack.push_number(f64::from(self.array::<1>()?[0])),
            0xcd => stack.push_number(f64::from(u16::from_be_bytes(self.array()?))),
            0xce => stack.push_number(f64::from(u32::from_be_bytes(self.array()?))),
            // The library takes the largest for negative ones.
            0xcf | 0xd3 => stack.push_number(i64::from_be_bytes(self.array()?) as f64),
            0xd0 => stack.push_number(f64::from(i8::from_be_bytes(self.array()?))),
            0xd1 => stack.push_number(f64::from(i16::from_be_bytes(self.array()?))),
            0xd2 => stack.push_number(f64::from(i32::from_be_bytes(self.array()?))),
            0xd9..=0xdb => {
                let len = self.len(1 << (first - 0xd9))?;
                self.string(len)?;
            }
            0xdc | 0xdd => {
                let len = self.len(if first == 0xdc { 2 } else { 4 })?;
                self.list(len, depth)?;
            }
            0xde | 0xdf => {
                let len = self.len(if first == 0xde { 2 } else { 4 })?;
                self.map(len, depth)?;
            }
            _ => return Err(Fault::Format),
        }
        Ok(())
    }

    fn string(&mut self, len: usize) -> Result<(), Fault> {
        let bytes = self.bytes(len)?;
        self.core.charge_string(self.stack, len)?;
        self.stack.push_bytes(bytes);
        Ok(())
    }

    fn list(&mut self, len: usize, depth: usize) -> Result<(), Fault> {
        self.stack.push_table(len.min(CLAIMED_MAX), 0);
        for index in 1..=len {
            self.core.charge_element(self.stack, index)?;
            self.value(depth + 1)?;
            self.stack.raw_set_at(-2, index as i32);
        }
        Ok(())
    }

    fn map(&mut self, len: usize, depth: usize) -> Result<(), Fault> {
        self.stack.push_table(0, len.min(CLAIMED_MAX));
        for index in 1..=len {
            self.core.charge_element(self.stack, index)?;
            self.value(depth + 1)?;
            self.value(depth + 1)?;
            let complaint = match self.stack.kind(-2) {
                LUA_TNIL => Some("table index is nil"),
                LUA_TNUMBER if self.stack.number(-2).is_nan() => Some("table index is NaN"),
                _ => None,
            };
            if let Some(complaint) = complaint {
                // No key in Lua, which says so without a place in the script.
                self.stack.push_bytes(complaint.as_bytes());
                return Err(Fault::Raised(Raise));
            }
            self.stack.raw_set(-3);
        }
        Ok(())
    }
}

/// Tables deeper than this are packed as nil.
const DEPTH_MAX: usize = 16;
/// How deep values may lie within one another when they are unpacked.
const UNPACK_DEPTH_MAX: usize = 1000;
/// What a number, or a length, takes at most, in bytes.
const SCALAR_LEN_MAX: usize = 16;
/// Tables are made as large as the data claims up to this: a claim costs nothing. Beyond, they grow
/// with what is there.
const CLAIMED_MAX: usize = 16;
/// What one level has on the stack at most.
const STACK_ROOM: i32 = 8;
