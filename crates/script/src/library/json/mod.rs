//! `cjson`: tables to JSON and back, with the quirks of the library of that name (lua-cjson 2.1)
//! that scripts know.

use crate::state::budget::Output;
use crate::state::json::{Invalid, JsonOptions, PRECISION_MAX};
use crate::state::raw::{
    LUA_TBOOLEAN, LUA_TLIGHTUSERDATA, LUA_TNIL, LUA_TNUMBER, LUA_TSTRING, LUA_TTABLE, Raise,
    Returned, Stack, lua_CFunction, lua_function,
};

mod decode;
mod encode;

/// Pushes the table.
pub(crate) fn push_table(stack: Stack) {
    stack.push_table(0, FUNCTIONS.len() + 3);
    let table = stack.top();
    for (name, function) in FUNCTIONS {
        stack.push_function(*function);
        stack.set_field(table, name.as_bytes());
    }
    push_null(stack);
    stack.set_field(table, b"null");
    stack.push_bytes(b"cjson");
    stack.set_field(table, b"_NAME");
    stack.push_bytes(b"2.1.0");
    stack.set_field(table, b"_VERSION");
}

const FUNCTIONS: &[(&str, lua_CFunction)] = &[
    ("encode", encode_shell),
    ("decode", decode_shell),
    ("encode_sparse_array", encode_sparse_array),
    ("encode_max_depth", encode_max_depth),
    ("decode_max_depth", decode_max_depth),
    ("encode_number_precision", encode_number_precision),
    ("encode_keep_buffer", encode_keep_buffer),
    ("encode_invalid_numbers", encode_invalid_numbers),
    ("decode_invalid_numbers", decode_invalid_numbers),
    ("new", new),
];

lua_function!(encode_shell, encode);
lua_function!(decode_shell, decode);
lua_function!(encode_sparse_array, set_sparse);
lua_function!(encode_max_depth, set_encode_depth);
lua_function!(decode_max_depth, set_decode_depth);
lua_function!(encode_number_precision, set_precision);
lua_function!(encode_keep_buffer, set_keep_buffer);
lua_function!(encode_invalid_numbers, set_encode_invalid);
lua_function!(decode_invalid_numbers, set_decode_invalid);
lua_function!(new, make_new);

/// JSON's null, which nil cannot stand for: it would not be an element.
fn push_null(stack: Stack) {
    stack.push_pointer(std::ptr::null());
}

fn encode(stack: Stack) -> Returned {
    if stack.top() != 1 {
        return Err(stack.bad_argument(1, "encode", "expected 1 argument"));
    }
    let options = stack.core().json.borrow().clone();
    let mut text = Output::new(stack, stack.core());
    encode::append(stack, &options, 0, &mut text)?;
    text.push()?;
    Ok(1)
}

fn decode(stack: Stack) -> Returned {
    if stack.top() != 1 {
        return Err(stack.bad_argument(1, "decode", "expected 1 argument"));
    }
    let text = stack.check_bytes(1, "decode")?;
    let options = stack.core().json.borrow().clone();
    decode::push(stack, &options, text)?;
    Ok(1)
}

fn set_sparse(stack: Stack) -> Returned {
    check_count(stack, 3, "encode_sparse_array")?;
    let mut sparse = stack.core().json.borrow().sparse;
    set_bool(stack, 1, "encode_sparse_array", &mut sparse.convert)?;
    set_integer(stack, 2, "encode_sparse_array", 0, i32::MAX as usize, &mut sparse.ratio)?;
    set_integer(stack, 3, "encode_sparse_array", 0, i32::MAX as usize, &mut sparse.safe)?;
    stack.core().json.borrow_mut().sparse = sparse;
    stack.push_bool(sparse.convert);
    stack.push_number(sparse.ratio as f64);
    stack.push_number(sparse.safe as f64);
    Ok(3)
}

fn set_encode_depth(stack: Stack) -> Returned {
    let mut value = stack.core().json.borrow().encode_depth_max;
    set_alone(stack, "encode_max_depth", i32::MAX as usize, &mut value)?;
    stack.core().json.borrow_mut().encode_depth_max = value;
    Ok(1)
}

fn set_decode_depth(stack: Stack) -> Returned {
    let mut value = stack.core().json.borrow().decode_depth_max;
    set_alone(stack, "decode_max_depth", i32::MAX as usize, &mut value)?;
    stack.core().json.borrow_mut().decode_depth_max = value;
    Ok(1)
}

fn set_precision(stack: Stack) -> Returned {
    let mut value = stack.core().json.borrow().precision;
    set_alone(stack, "encode_number_precision", PRECISION_MAX, &mut value)?;
    stack.core().json.borrow_mut().precision = value;
    Ok(1)
}

fn set_keep_buffer(stack: Stack) -> Returned {
    check_count(stack, 1, "encode_keep_buffer")?;
    let mut value = stack.core().json.borrow().keep_buffer;
    set_bool(stack, 1, "encode_keep_buffer", &mut value)?;
    stack.core().json.borrow_mut().keep_buffer = value;
    stack.push_bool(value);
    Ok(1)
}

fn set_encode_invalid(stack: Stack) -> Returned {
    check_count(stack, 1, "encode_invalid_numbers")?;
    let mut value = stack.core().json.borrow().encode_invalid;
    if stack.kind(1) == LUA_TSTRING {
        value = match stack.bytes(1).unwrap_or_default() {
            b"on" => Invalid::AsText,
            b"off" => Invalid::Refused,
            b"null" => Invalid::AsNull,
            other => return Err(invalid_option(stack, "encode_invalid_numbers", other)),
        };
    } else {
        let mut on = value == Invalid::AsText;
        set_bool(stack, 1, "encode_invalid_numbers", &mut on)?;
        if stack.has(1) && stack.kind(1) != LUA_TNIL {
            value = if on { Invalid::AsText } else { Invalid::Refused };
        }
    }
    stack.core().json.borrow_mut().encode_invalid = value;
    match value {
        Invalid::AsNull => stack.push_bytes(b"null"),
        other => stack.push_bool(other == Invalid::AsText),
    }
    Ok(1)
}

fn set_decode_invalid(stack: Stack) -> Returned {
    check_count(stack, 1, "decode_invalid_numbers")?;
    let mut value = stack.core().json.borrow().decode_invalid;
    set_bool(stack, 1, "decode_invalid_numbers", &mut value)?;
    stack.core().json.borrow_mut().decode_invalid = value;
    stack.push_bool(value);
    Ok(1)
}

/// `new`: the same functions, with options as they are at first.
fn make_new(stack: Stack) -> Returned {
    *stack.core().json.borrow_mut() = JsonOptions::default();
    push_table(stack);
    Ok(1)
}

fn check_count(stack: Stack, most: i32, function: &str) -> Result<(), Raise> {
    if stack.top() > most {
        return Err(stack.bad_argument(most + 1, function, "found too many arguments"));
    }
    Ok(())
}

fn invalid_option(stack: Stack, function: &str, option: &[u8]) -> Raise {
    let option = String::from_utf8_lossy(option);
    stack.bad_argument(1, function, &format!("invalid option '{option}'"))
}

/// Takes an argument that says yes or no, if it is there.
fn set_bool(stack: Stack, at: i32, function: &str, value: &mut bool) -> Result<(), Raise> {
    match if stack.has(at) { stack.kind(at) } else { LUA_TNIL } {
        LUA_TNIL => {}
        LUA_TBOOLEAN => *value = stack.boolean(at),
        LUA_TSTRING => match stack.bytes(at).unwrap_or_default() {
            b"on" => *value = true,
            b"off" => *value = false,
            other => return Err(invalid_option(stack, function, other)),
        },
        _ => {
            let text = format!("boolean expected, got {}", stack.argument_kind(at));
            return Err(stack.bad_argument(at, function, &text));
        }
    }
    Ok(())
}

/// Takes an argument that is an integer, if it is there.
fn set_integer(
    stack: Stack,
    at: i32,
    function: &str,
    least: usize,
    most: usize,
    value: &mut usize,
) -> Result<(), Raise> {
    if !stack.has(at) || stack.kind(at) == LUA_TNIL {
        return Ok(());
    }
    let number = stack.check_number(at, function)?;
    if !(least as f64..=most as f64).contains(&number) {
        let text = format!("expected integer between {least} and {most}");
        return Err(stack.bad_argument(at, function, &text));
    }
    *value = number as usize;
    Ok(())
}

/// Sets the value to the only argument, if there is one; pushes the current value.
fn set_alone(stack: Stack, function: &str, most: usize, value: &mut usize) -> Result<(), Raise> {
    check_count(stack, 1, function)?;
    set_integer(stack, 1, function, 1, most, value)?;
    stack.push_number(*value as f64);
    Ok(())
}
