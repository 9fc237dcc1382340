//! Replies to Lua values, and Lua values to replies.

use bobbin_resp::{Aggregate, Reply};

use crate::api::COUNTED_FIELD;
use crate::raw::{self, LUA_TBOOLEAN, LUA_TNIL, LUA_TNUMBER, LUA_TSTRING, LUA_TTABLE, Stack};
use crate::vm::Ended;

/// Pushes a command's reply, in the form that scripts know. The bytes are ours, and so are whole and right.
pub(crate) fn push_reply(stack: Stack, reply: &[u8]) {
    let mut rest = reply;
    push_value(stack, &mut rest, 0);
}

fn push_value(stack: Stack, rest: &mut &[u8], depth: usize) {
    let Some((kind, line)) = take_line(rest) else {
        stack.push_nil();
        return;
    };
    if depth > DEPTH_MAX || !stack.reserve(STACK_ROOM) {
        // No command replies with so much within itself.
        stack.push_nil();
        return;
    }
    match kind {
        b'$' => match take_bulk(line, rest) {
            Some(bytes) => stack.push_bytes(bytes),
            None => stack.push_bool(false),
        },
        b':' => stack.push_number(integer(line) as f64),
        b'+' => push_tagged(stack, b"ok", |stack| stack.push_bytes(line)),
        b'-' => push_failure(stack, line),
        b'*' | b'>' => match integer(line) {
            count if count < 0 => stack.push_bool(false),
            count => {
                stack.push_table(count as usize, 0);
                for index in 1..=count as i32 {
                    push_value(stack, rest, depth + 1);
                    stack.raw_set_at(-2, index);
                }
            }
        },
        b'%' => push_tagged(stack, b"map", |stack| {
            stack.push_table(0, integer(line) as usize);
            for _ in 0..integer(line) {
                push_value(stack, rest, depth + 1);
                push_value(stack, rest, depth + 1);
                stack.raw_set(-3);
            }
        }),
        b'~' => push_tagged(stack, b"set", |stack| {
            stack.push_table(0, integer(line) as usize);
            for _ in 0..integer(line) {
                push_value(stack, rest, depth + 1);
                stack.push_bool(true);
                stack.raw_set(-3);
            }
        }),
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
                push_value(stack, rest, depth + 1);
                stack.pop(1);
            }
            push_value(stack, rest, depth);
        }
        // `_`, and nothing else that a command replies with.
        _ => stack.push_nil(),
    }
}

/// Pushes a table with one field, which `push` pushes the value of.
fn push_tagged(stack: Stack, name: &[u8], push: impl FnOnce(Stack)) {
    stack.push_table(0, 1);
    stack.push_bytes(name);
    push(stack);
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
    bobbin_number::parse_i64(line).unwrap_or(0)
}

fn double(line: &[u8]) -> f64 {
    match line {
        b"inf" => f64::INFINITY,
        b"-inf" => f64::NEG_INFINITY,
        b"nan" => f64::NAN,
        _ => bobbin_number::parse_f64(line).unwrap_or(0.0),
    }
}

/// Appends what a script returned, which lies on top. `resp3`: what the script chose; the reply is in the
/// client's protocol.
pub(crate) fn append_result(stack: Stack, resp3: bool, reply: &mut Reply<'_>) -> Ended {
    if stack.kind(-1) == LUA_TTABLE {
        let table = stack.top();
        stack.push_field(table, b"err");
        if stack.kind(-1) == LUA_TSTRING {
            let text = stack.bytes(-1).unwrap_or_default().to_vec();
            stack.push_field(table, COUNTED_FIELD);
            return Ended::Failed { text, counted: stack.boolean(-1) };
        }
        stack.pop(1);
    }
    append_value(stack, resp3, reply, 0);
    Ended::Replied
}

/// Appends the value on top, and takes it.
fn append_value(stack: Stack, resp3: bool, reply: &mut Reply<'_>, depth: usize) {
    if depth > DEPTH_MAX || !stack.reserve(STACK_ROOM) {
        reply.error("ERR reached lua stack limit");
        stack.pop(1);
        return;
    }
    match stack.kind(-1) {
        LUA_TSTRING => reply.bulk(stack.bytes(-1).unwrap_or_default()),
        LUA_TNUMBER => reply.integer(raw::integer(stack.number(-1))),
        LUA_TBOOLEAN if resp3 => reply.boolean(stack.boolean(-1)),
        LUA_TBOOLEAN if stack.boolean(-1) => reply.integer(1),
        LUA_TTABLE => append_table(stack, resp3, reply, depth),
        _ => reply.null(),
    }
    stack.pop(1);
}

/// Appends the table on top, and leaves it there.
fn append_table(stack: Stack, resp3: bool, reply: &mut Reply<'_>, depth: usize) {
    let table = stack.top();
    let field = |name: &[u8], kind: i32| {
        stack.push_field(table, name);
        let fits = stack.kind(-1) == kind;
        if !fits {
            stack.pop(1);
        }
        fits
    };
    if field(b"err", LUA_TSTRING) {
        reply.error(stack.bytes(-1).unwrap_or_default());
    } else if field(b"ok", LUA_TSTRING) {
        reply.simple(stack.bytes(-1).unwrap_or_default());
    } else if field(b"double", LUA_TNUMBER) {
        reply.double(stack.number(-1));
    } else if field(b"map", LUA_TTABLE) {
        append_pairs(stack, resp3, reply, depth, true);
    } else if field(b"set", LUA_TTABLE) {
        append_pairs(stack, resp3, reply, depth, false);
    } else if field(b"big_number", LUA_TSTRING) {
        let line_end = |byte: &u8| matches!(byte, b'\r' | b'\n');
        let mut digits = stack.bytes(-1).unwrap_or_default().to_vec();
        digits.iter_mut().filter(|byte| line_end(byte)).for_each(|byte| *byte = b' ');
        reply.big_number(&digits);
    } else if field(b"verbatim_string", LUA_TTABLE) && append_verbatim(stack, reply) {
    } else {
        stack.set_top(table);
        append_elements(stack, resp3, reply, depth);
    }
    stack.set_top(table);
}

/// The elements of the table on top, up to the first nil.
fn append_elements(stack: Stack, resp3: bool, reply: &mut Reply<'_>, depth: usize) {
    let table = stack.top();
    let header = reply.defer();
    let mut count = 0;
    loop {
        stack.raw_get_at(table, count + 1);
        if stack.kind(-1) == LUA_TNIL {
            break;
        }
        append_value(stack, resp3, reply, depth + 1);
        count += 1;
    }
    reply.finish_array(header, count as usize);
}

/// The keys of the table on top, with their values or without.
fn append_pairs(stack: Stack, resp3: bool, reply: &mut Reply<'_>, depth: usize, values: bool) {
    let table = stack.top();
    let header = reply.defer();
    let mut count = 0;
    stack.push_nil();
    while stack.next(table) {
        stack.copy(-2);
        append_value(stack, resp3, reply, depth + 1);
        if values {
            append_value(stack, resp3, reply, depth + 1);
        } else {
            stack.pop(1);
        }
        count += 1;
    }
    reply.finish(header, if values { Aggregate::Map } else { Aggregate::Set }, count);
}

/// The table on top as text with its format, if it is that.
fn append_verbatim(stack: Stack, reply: &mut Reply<'_>) -> bool {
    let table = stack.top();
    stack.push_field(table, b"format");
    stack.push_field(table, b"string");
    if stack.kind(-1) != LUA_TSTRING || stack.kind(-2) != LUA_TSTRING {
        return false;
    }
    let format = String::from_utf8_lossy(stack.bytes(-2).unwrap_or_default()).into_owned();
    let format: String =
        format.chars().filter(char::is_ascii).chain("   ".chars()).take(3).collect();
    reply.verbatim(&format, stack.bytes(-1).unwrap_or_default());
    true
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
        bobbin_number::append_f64(value, text);
    }
}

/// Whole numbers below this are exact.
const WHOLE_MAX: f64 = 9_007_199_254_740_992.0;
/// How deep values may lie within one another.
const DEPTH_MAX: usize = 1000;
/// Values that one level of a conversion has on the stack at most.
const STACK_ROOM: i32 = 12;
