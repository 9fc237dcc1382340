//! Tables to JSON.

use super::{
    LUA_TBOOLEAN, LUA_TLIGHTUSERDATA, LUA_TNIL, LUA_TNUMBER, LUA_TSTRING, LUA_TTABLE, Raise, Stack,
};
use crate::state::budget::{LISTED_PER_STEP, Output};
use crate::state::json::{Invalid, JsonOptions};

/// Appends the value on top, which stays there.
pub(super) fn append(
    stack: Stack,
    options: &JsonOptions,
    depth: usize,
    text: &mut Output<'_>,
) -> Result<(), Raise> {
    text.reserve(SCALAR_LEN_MAX)?;
    match stack.kind(-1) {
        LUA_TSTRING => append_string(stack.bytes(-1).unwrap_or_default(), text)?,
        LUA_TNUMBER => append_number(stack.number(-1), options, text)?,
        LUA_TBOOLEAN if stack.boolean(-1) => text.bytes().extend_from_slice(b"true"),
        LUA_TBOOLEAN => text.bytes().extend_from_slice(b"false"),
        LUA_TNIL => text.bytes().extend_from_slice(b"null"),
        LUA_TLIGHTUSERDATA if stack.light_pointer(-1).is_null() => {
            text.bytes().extend_from_slice(b"null");
        }
        LUA_TTABLE => {
            let depth = depth + 1;
            if depth > options.encode_depth_max || !stack.reserve(STACK_ROOM) {
                let text = format!("Cannot serialise, excessive nesting ({depth})");
                return Err(stack.fail(&text));
            }
            match list_len(stack, options, text)? {
                Some(len) => append_list(stack, options, depth, len, text)?,
                None => append_object(stack, options, depth, text)?,
            }
        }
        _ => return Err(refusal(stack, stack.kind_name(-1), "type not supported")),
    }
    Ok(())
}

fn refusal(stack: Stack, kind: &str, reason: &str) -> Raise {
    stack.fail(&format!("Cannot serialise {kind}: {reason}"))
}

/// The length of the list that the table on top is; `None`: it is an object.
fn list_len(
    stack: Stack,
    options: &JsonOptions,
    text: &mut Output<'_>,
) -> Result<Option<usize>, Raise> {
    let table = stack.top();
    text.charge_table()?;
    if let Some(len) = stack.list_len(table) {
        text.charge(len / LISTED_PER_STEP)?;
        // What is empty is an object.
        return Ok((len > 0).then_some(len));
    }
    let (mut last, mut count) = (0, 0);
    stack.push_nil();
    while stack.next(table) {
        text.charge(1)?;
        let key = stack.number(-2);
        let fits = stack.kind(-2) == LUA_TNUMBER && key >= 1.0 && key.floor() == key;
        if !fits || key > f64::from(i32::MAX) {
            stack.set_top(table);
            return Ok(None);
        }
        last = last.max(key as usize);
        count += 1;
        stack.pop(1);
    }
    let sparse = options.sparse;
    if sparse.ratio > 0 && last > count * sparse.ratio && last > sparse.safe {
        if !sparse.convert {
            return Err(refusal(stack, "table", "excessively sparse array"));
        }
        return Ok(None);
    }
    // What is empty is an object.
    Ok((last > 0).then_some(last))
}

fn append_list(
    stack: Stack,
    options: &JsonOptions,
    depth: usize,
    len: usize,
    text: &mut Output<'_>,
) -> Result<(), Raise> {
    let table = stack.top();
    text.bytes().push(b'[');
    for index in 1..=len {
        if index > 1 {
            text.bytes().push(b',');
        }
        stack.raw_get_at(table, index as i32);
        append(stack, options, depth, text)?;
        stack.pop(1);
    }
    text.bytes().push(b']');
    Ok(())
}

fn append_object(
    stack: Stack,
    options: &JsonOptions,
    depth: usize,
    text: &mut Output<'_>,
) -> Result<(), Raise> {
    let table = stack.top();
    let mut is_first = true;
    text.charge_table()?;
    text.bytes().push(b'{');
    stack.push_nil();
    while stack.next(table) {
        if !std::mem::take(&mut is_first) {
            text.bytes().push(b',');
        }
        match stack.kind(-2) {
            LUA_TNUMBER => {
                text.reserve(SCALAR_LEN_MAX)?;
                text.bytes().push(b'"');
                append_number(stack.number(-2), options, text)?;
                text.bytes().push(b'"');
            }
            LUA_TSTRING => append_string(stack.bytes(-2).unwrap_or_default(), text)?,
            _ => {
                let reason = "table key must be a number or string";
                return Err(refusal(stack, stack.kind_name(-2), reason));
            }
        }
        text.bytes().push(b':');
        append(stack, options, depth, text)?;
        stack.pop(1);
    }
    text.bytes().push(b'}');
    Ok(())
}

fn append_string(string: &[u8], text: &mut Output<'_>) -> Result<(), Raise> {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    text.reserve(string.len() + 2)?;
    text.bytes().push(b'"');
    for piece in string.chunks(PIECE_LEN) {
        // At worst each byte is written as six.
        text.charge(piece.len() / 16)?;
        text.reserve(6 * piece.len() + 2)?;
        let text = text.bytes();
        for &byte in piece {
            match byte {
                b'"' | b'\\' | b'/' => text.extend_from_slice(&[b'\\', byte]),
                8 => text.extend_from_slice(b"\\b"),
                b'\t' => text.extend_from_slice(b"\\t"),
                b'\n' => text.extend_from_slice(b"\\n"),
                12 => text.extend_from_slice(b"\\f"),
                b'\r' => text.extend_from_slice(b"\\r"),
                0..0x20 | 0x7f => {
                    let digit = |nibble: u8| DIGITS[usize::from(nibble)];
                    text.extend_from_slice(b"\\u00");
                    text.extend_from_slice(&[digit(byte >> 4), digit(byte & 15)]);
                }
                _ => text.push(byte),
            }
        }
    }
    text.bytes().push(b'"');
    Ok(())
}

fn append_number(value: f64, options: &JsonOptions, text: &mut Output<'_>) -> Result<(), Raise> {
    let stack = text.stack;
    let text = text.bytes();
    if !value.is_finite() {
        match options.encode_invalid {
            Invalid::Refused => {
                return Err(refusal(stack, "number", "must not be NaN or Inf"));
            }
            Invalid::AsNull => text.extend_from_slice(b"null"),
            // Without a sign, whichever the bits have.
            Invalid::AsText if value.is_nan() => text.extend_from_slice(b"nan"),
            Invalid::AsText => {
                text.extend_from_slice(if value < 0.0 { b"-inf" } else { b"inf" });
            }
        }
        return Ok(());
    }
    let whole = value as i64;
    if whole as f64 == value && value.abs() < WHOLE_MAX && options.precision >= WHOLE_DIGITS {
        if value == 0.0 && value.is_sign_negative() {
            text.push(b'-');
        }
        text.extend_from_slice(itoa::Buffer::new().format(whole).as_bytes());
    } else {
        text.extend_from_slice(general(value, options.precision).as_bytes());
    }
    Ok(())
}

/// Formats a number with `digits` significant digits: in full, or with an exponent if it is very
/// large or small, as `%g` of C.
fn general(value: f64, digits: usize) -> String {
    let scientific = format!("{value:.*e}", digits - 1);
    let (mantissa, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    if exponent < -4 || exponent >= digits as i32 {
        let sign = if exponent < 0 { '-' } else { '+' };
        return format!("{}e{sign}{:02}", trimmed(mantissa), exponent.abs());
    }
    let decimals = (digits as i32 - 1 - exponent).max(0) as usize;
    trimmed(&format!("{value:.decimals$}")).to_owned()
}

/// Without the zeros at the end of a fraction.
fn trimmed(number: &str) -> &str {
    if number.contains('.') { number.trim_end_matches('0').trim_end_matches('.') } else { number }
}

/// Whole numbers below this have at most `WHOLE_DIGITS` digits.
const WHOLE_MAX: f64 = 1e14;
const WHOLE_DIGITS: usize = 14;
/// What a number, or what stands around a value, takes at most, in bytes.
const SCALAR_LEN_MAX: usize = 40;
/// Bytes of a string that are written at once.
const PIECE_LEN: usize = 4096;
/// What one level has on the stack at most.
const STACK_ROOM: i32 = 6;

#[cfg(test)]
mod tests {
    use super::general;

    #[test]
    fn digits() {
        let texts = [0.1, 1.0 / 3.0, 1e20, 1.5e-7, 123.456, 12345678901234567890.0, 1e14, 0.0001]
            .map(|value| general(value, 14));
        let expected = [
            "0.1",
            "0.33333333333333",
            "1e+20",
            "1.5e-07",
            "123.456",
            "1.2345678901235e+19",
            "1e+14",
            "0.0001",
        ];
        assert_eq!(texts, expected);
        assert_eq!(general(1234.0, 3), "1.23e+03");
    }
}
