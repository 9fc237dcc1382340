//! Replies to Lua values, and Lua values to replies.

use bobbin_resp::{Aggregate, Protocol, Reply};

use crate::state::Core;
use crate::state::budget::Output;
use crate::state::raw::{
    self, LUA_TBOOLEAN, LUA_TNIL, LUA_TNUMBER, LUA_TSTRING, LUA_TTABLE, Raise, Stack,
};

/// Marks a table with an error that was counted when the command failed.
pub(crate) const COUNTED_FIELD: &[u8] = b"ignore_error_stats_update";

/// Pushes a command's reply, in the form that scripts know. The bytes are ours, and so are whole
/// and right.
pub(crate) fn push_reply(stack: Stack, reply: &[u8]) -> Result<(), Raise> {
    let mut rest = reply;
    push_value(stack, stack.core(), &mut rest, 0)
}

fn push_value(stack: Stack, core: &Core, rest: &mut &[u8], depth: usize) -> Result<(), Raise> {
    let Some((kind, line)) = take_line(rest) else {
        stack.push_nil();
        return Ok(());
    };
    if depth > DEPTH_MAX || !stack.reserve(STACK_ROOM) {
        // No command replies with so much within itself.
        stack.push_nil();
        return Ok(());
    }
    match kind {
        b'$' => match take_bulk(line, rest) {
            Some(bytes) => {
                core.charge_string(stack, bytes.len())?;
                stack.push_bytes(bytes);
            }
            None => stack.push_bool(false),
        },
        b':' => stack.push_number(integer(line) as f64),
        b'+' => push_status(stack, core, line),
        b'-' => push_failure(stack, line),
        b'*' | b'>' => match integer(line) {
            count if count < 0 => stack.push_bool(false),
            count => {
                core.charge(stack, 1)?;
                stack.push_table(count as usize, 0);
                for index in 1..=count as i32 {
                    core.charge_element(stack, index as usize)?;
                    push_value(stack, core, rest, depth + 1)?;
                    stack.raw_set_at(-2, index);
                }
            }
        },
        b'%' | b'~' => {
            let tag: &[u8] = if kind == b'%' { b"map" } else { b"set" };
            stack.push_table(0, 1);
            stack.push_bytes(tag);
            stack.push_table(0, integer(line) as usize);
            for index in 1..=integer(line) {
                core.charge_element(stack, index as usize)?;
                push_value(stack, core, rest, depth + 1)?;
                match kind {
                    b'%' => push_value(stack, core, rest, depth + 1)?,
                    _ => stack.push_bool(true),
                }
                stack.raw_set(-3);
            }
            stack.raw_set(-3);
        }
        b'#' => stack.push_bool(line == b"t"),
        b',' => push_tagged(stack, b"double", |stack| stack.push_number(double(line))),
        b'(' => push_tagged(stack, b"big_number", |stack| stack.push_bytes(line)),
        b'=' => push_tagged(stack, b"verbatim_string", |stack| {
            let text = take_bulk(line, rest).unwrap_or_default();
            stack.push_table(0, 2);
            stack.push_bytes(text.get(..3).unwrap_or_default());
            stack.set_field(stack.top() - 1, b"format");
            stack.push_bytes(text.get(4..).unwrap_or_default());
            stack.set_field(stack.top() - 1, b"string");
        }),
        // Attributes are not for scripts: what they belong to is the value.
        b'|' => {
            for _ in 0..integer(line).saturating_mul(2) {
                push_value(stack, core, rest, depth + 1)?;
                stack.pop(1);
            }
            push_value(stack, core, rest, depth)?;
        }
        // `_`, and nothing else that a command replies with.
        _ => stack.push_nil(),
    }
    Ok(())
}

/// Pushes a table with one field, which `push` pushes the value of.
fn push_tagged(stack: Stack, name: &[u8], push: impl FnOnce(Stack)) {
    stack.push_table(0, 1);
    stack.push_bytes(name);
    push(stack);
    stack.raw_set(-3);
}

/// Pushes the table that stands for a status reply. Most commands that write answer with one.
fn push_status(stack: Stack, core: &Core, text: &[u8]) {
    let kept = core.kept.get();
    stack.push_table(0, 1);
    stack.push_kept(kept.ok);
    match text {
        b"OK" => stack.push_kept(kept.ok_text),
        _ => stack.push_bytes(text),
    }
    stack.raw_set(-3);
}

fn push_failure(stack: Stack, text: &[u8]) {
    stack.push_table(0, 2);
    stack.push_bytes(text);
    stack.set_field(stack.top() - 1, b"err");
    stack.push_bool(true);
    stack.set_field(stack.top() - 1, COUNTED_FIELD);
}

/// A value's first line: its kind, and what follows that.
fn take_line<'a>(rest: &mut &'a [u8]) -> Option<(u8, &'a [u8])> {
    let end = rest.iter().position(|&byte| byte == b'\r')?;
    let (line, after) = rest.split_at(end);
    *rest = after.get(2..)?;
    line.split_first().map(|(&kind, line)| (kind, line))
}

fn take_bulk<'a>(length: &[u8], rest: &mut &'a [u8]) -> Option<&'a [u8]> {
    let length = usize::try_from(integer(length)).ok()?;
    let (bytes, after) = rest.split_at_checked(length)?;
    *rest = after.get(2..)?;
    Some(bytes)
}

fn integer(line: &[u8]) -> i64 {
    bobbin_text::parse_i64(line).unwrap_or(0)
}

fn double(line: &[u8]) -> f64 {
    match line {
        b"inf" => f64::INFINITY,
        b"-inf" => f64::NEG_INFINITY,
        b"nan" => f64::NAN,
        _ => bobbin_text::parse_f64(line).unwrap_or(0.0),
    }
}

/// The error that the table on top is, if it is one: its text, and whether it was counted when a
/// command failed.
pub(crate) fn error_of(stack: Stack) -> Option<(Vec<u8>, bool)> {
    let table = stack.top();
    if !stack.has_fields(table) {
        return None;
    }
    stack.push_field(table, b"err");
    if stack.kind(-1) != LUA_TSTRING {
        stack.pop(1);
        return None;
    }
    let text = stack.bytes(-1).unwrap_or_default().to_vec();
    stack.push_field(table, COUNTED_FIELD);
    Some((text, stack.boolean(-1)))
}

/// Appends what a script returned, which lies on top and is no table. `resp3`: what the script
/// chose; the reply is in the client's protocol.
pub(crate) fn append_simple(stack: Stack, resp3: bool, reply: &mut Reply<'_>) {
    if let Some(bytes) = stack.string(-1) {
        return reply.bulk(bytes);
    }
    match stack.kind(-1) {
        LUA_TNUMBER => reply.integer(raw::integer(stack.number(-1))),
        LUA_TBOOLEAN if resp3 => reply.boolean(stack.boolean(-1)),
        LUA_TBOOLEAN if stack.boolean(-1) => reply.integer(1),
        _ => reply.null(),
    }
}

/// Appends the table on top, as `append_simple` does what is none.
pub(crate) fn append_result(
    stack: Stack,
    resp3: bool,
    protocol: Protocol,
    output: &mut Output<'_>,
) -> Result<(), Raise> {
    Converter { stack, resp3, protocol, output }.value(0)
}

/// What converts a value with all that is in it.
struct Converter<'a, 'b> {
    stack: Stack,
    resp3: bool,
    protocol: Protocol,
    output: &'a mut Output<'b>,
}

impl Converter<'_, '_> {
    /// Makes room for a value of this many bytes, and returns where to write it.
    #[inline(always)]
    fn reply(&mut self, bytes: usize) -> Result<Reply<'_>, Raise> {
        self.output.reserve(bytes + HEADER_LEN_MAX)?;
        Ok(Reply::new(self.output.bytes(), self.protocol))
    }

    /// Appends the value on top, and takes it.
    fn value(&mut self, depth: usize) -> Result<(), Raise> {
        let stack = self.stack;
        if depth > DEPTH_MAX || !stack.reserve(STACK_ROOM) {
            self.reply(0)?.error("ERR reached lua stack limit");
        } else if stack.kind(-1) == LUA_TTABLE {
            self.table(depth)?;
        } else {
            let bytes = if stack.kind(-1) == LUA_TSTRING { stack.len(-1) } else { 0 };
            let resp3 = self.resp3;
            append_simple(stack, resp3, &mut self.reply(bytes)?);
        }
        stack.pop(1);
        Ok(())
    }

    /// Appends the table on top, and leaves it there.
    fn table(&mut self, depth: usize) -> Result<(), Raise> {
        let stack = self.stack;
        let table = stack.top();
        let field = |name: &[u8], kind: i32| {
            stack.push_field(table, name);
            let fits = stack.kind(-1) == kind;
            if !fits {
                stack.pop(1);
            }
            fits
        };
        if !stack.has_fields(table) {
            self.elements(depth)?;
        } else if field(b"err", LUA_TSTRING) {
            let text = stack.bytes(-1).unwrap_or_default();
            self.reply(text.len())?.error(text);
            stack.push_field(table, COUNTED_FIELD);
            if let Some(host) = stack.core().host() {
                host.note_error(text, stack.boolean(-1));
            }
        } else if field(b"ok", LUA_TSTRING) {
            let text = stack.bytes(-1).unwrap_or_default();
            self.reply(text.len())?.simple(text);
        } else if field(b"double", LUA_TNUMBER) {
            self.reply(0)?.double(stack.number(-1));
        } else if field(b"map", LUA_TTABLE) {
            self.pairs(depth, true)?;
        } else if field(b"set", LUA_TTABLE) {
            self.pairs(depth, false)?;
        } else if field(b"big_number", LUA_TSTRING) {
            let digits = stack.bytes(-1).unwrap_or_default();
            let mut reply = self.reply(2 * digits.len())?;
            let line_end = |byte: &u8| matches!(byte, b'\r' | b'\n');
            let mut digits = digits.to_vec();
            digits.iter_mut().filter(|byte| line_end(byte)).for_each(|byte| *byte = b' ');
            reply.big_number(&digits);
        } else if field(b"verbatim_string", LUA_TTABLE) && self.verbatim()? {
        } else {
            stack.set_top(table);
            self.elements(depth)?;
        }
        stack.set_top(table);
        Ok(())
    }

    /// The elements of the table on top, up to the first nil.
    fn elements(&mut self, depth: usize) -> Result<(), Raise> {
        let stack = self.stack;
        let table = stack.top();
        let header = self.reply(0)?.defer();
        let start = self.output.bytes().len();
        let mut count = 0;
        loop {
            stack.raw_get_at(table, count + 1);
            if stack.kind(-1) == LUA_TNIL {
                break;
            }
            self.value(depth + 1)?;
            count += 1;
        }
        let moved = self.output.bytes().len() - start;
        self.reply(0)?.finish_array(header, count as usize);
        self.output.charge_bytes(moved)
    }

    /// The keys of the table on top, with their values or without.
    fn pairs(&mut self, depth: usize, values: bool) -> Result<(), Raise> {
        let stack = self.stack;
        let table = stack.top();
        self.output.charge_table()?;
        let header = self.reply(0)?.defer();
        let start = self.output.bytes().len();
        let mut count = 0;
        stack.push_nil();
        while stack.next(table) {
            stack.copy(-2);
            self.value(depth + 1)?;
            if values {
                self.value(depth + 1)?;
            } else {
                stack.pop(1);
            }
            count += 1;
        }
        let moved = self.output.bytes().len() - start;
        let kind = if values { Aggregate::Map } else { Aggregate::Set };
        self.reply(0)?.finish(header, kind, count);
        self.output.charge_bytes(moved)
    }

    /// The table on top as text with its format, if it is that.
    fn verbatim(&mut self) -> Result<bool, Raise> {
        let stack = self.stack;
        let table = stack.top();
        stack.push_field(table, b"format");
        stack.push_field(table, b"string");
        if stack.kind(-1) != LUA_TSTRING || stack.kind(-2) != LUA_TSTRING {
            return Ok(false);
        }
        let (format, text) =
            (stack.bytes(-2).unwrap_or_default(), stack.bytes(-1).unwrap_or_default());
        // Of the format three characters count.
        let format = String::from_utf8_lossy(format.get(..FORMAT_LEN_MAX).unwrap_or(format));
        let format: String =
            format.chars().filter(char::is_ascii).chain("   ".chars()).take(3).collect();
        self.reply(text.len())?.verbatim(&format, text);
        Ok(true)
    }
}

/// Appends a number as an argument of a command: whole ones without a point.
pub(crate) fn append_number(value: f64, text: &mut Vec<u8>) {
    let whole = value as i64;
    if whole as f64 == value && value.abs() < WHOLE_MAX {
        text.extend_from_slice(itoa::Buffer::new().format(whole).as_bytes());
    } else {
        if value.is_nan() && value.is_sign_negative() {
            // What 0/0 gives, and C prints.
            text.push(b'-');
        }
        bobbin_text::append_f64(value, text);
    }
}

/// Whole numbers below this are exact.
const WHOLE_MAX: f64 = 9_007_199_254_740_992.0;
/// How deep values may lie within one another.
const DEPTH_MAX: usize = 1000;
/// Values that one level of a conversion has on the stack at most.
const STACK_ROOM: i32 = 12;
/// What stands around a value's bytes, at most.
const HEADER_LEN_MAX: usize = 48;
/// Bytes of a format that are looked at.
const FORMAT_LEN_MAX: usize = 64;
