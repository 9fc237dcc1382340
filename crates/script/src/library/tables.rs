//! Those functions on tables that Lua's own library works through in one go, and takes their bounds
//! on trust. These charge for each element, and their bounds are checked.
//!
//! Those that call other functions, or make a table grow, raise errors by jumping (see `frame`).

use std::ffi::c_int;

use mlua_sys as lua;

use crate::state::budget::Output;
use crate::state::frame::{Frame, raising_function};
use crate::state::raw::{
    LUA_TFUNCTION, LUA_TNIL, LUA_TNUMBER, LUA_TSTRING, LUA_TTABLE, Raise, Returned, Stack,
    lua_CFunction, lua_function,
};
use crate::walls::check_change;

/// Puts the functions into the table of `table`, at this index.
pub(crate) fn replace(stack: Stack, table: c_int) {
    for (name, function) in [
        ("insert", insert as lua_CFunction),
        ("remove", remove),
        ("concat", concat),
        ("sort", sort),
        ("maxn", maxn),
        ("foreach", foreach),
        ("foreachi", foreachi),
    ] {
        stack.push_function(function);
        stack.set_field(table, name.as_bytes());
    }
}

lua_function!(concat, join);
lua_function!(maxn, largest_key);
lua_function!(unpack, push_elements);
raising_function!(insert, insert_value);
raising_function!(remove, remove_value);
raising_function!(sort, sort_table);
raising_function!(less, compare);
raising_function!(ordered, compare_by_function);
raising_function!(foreach, call_for_each);
raising_function!(foreachi, call_for_each_element);

/// The first argument, which must be a table: its length.
fn check_table(stack: Stack, function: &str) -> Result<i64, Raise> {
    if stack.kind(1) != LUA_TTABLE {
        let text = format!("table expected, got {}", stack.argument_kind(1));
        return Err(stack.bad_argument(1, function, &text));
    }
    Ok(stack.len(1) as i64)
}

/// An argument that is an index: Lua takes it as an `int`.
fn index(stack: Stack, at: c_int, function: &str, default: i64) -> Result<i64, Raise> {
    if !stack.has(at) || stack.kind(at) == LUA_TNIL {
        return Ok(default);
    }
    Ok(i64::from(stack.check_integer(at, function)? as i32))
}

/// `insert(t, [at,] value)`
fn insert_value(frame: Frame) -> c_int {
    let (at, end) = frame.within(|stack| {
        check_change(stack)?;
        let end = check_table(stack, "insert")? + 1;
        match stack.top() {
            2 => Ok((end, end)),
            3 => match index(stack, 2, "insert", end)? {
                at if at < POSITION_MIN => {
                    Err(stack.bad_argument(2, "insert", "position out of bounds"))
                }
                at => Ok((at, end)),
            },
            _ => Err(stack.fail("wrong number of arguments to 'insert'")),
        }
    });
    frame.charge(1);
    for moved in (at + 1..=end).rev() {
        frame.charge(1);
        frame.raw_get_at(1, (moved - 1) as i32);
        frame.raw_set_at(1, moved as i32);
    }
    frame.raw_set_at(1, at as i32);
    0
}

/// `remove(t [, at])`
fn remove_value(frame: Frame) -> c_int {
    let (at, end) = frame.within(|stack| {
        check_change(stack)?;
        let end = check_table(stack, "remove")?;
        Ok((index(stack, 2, "remove", end)?, end))
    });
    frame.charge(1);
    if !(1..=end).contains(&at) {
        return 0;
    }
    frame.raw_get_at(1, at as i32);
    for moved in at..end {
        frame.charge(1);
        frame.raw_get_at(1, (moved + 1) as i32);
        frame.raw_set_at(1, moved as i32);
    }
    frame.push_nil();
    frame.raw_set_at(1, end as i32);
    1
}

/// `concat(t [, separator [, first [, last]]])`
fn join(stack: Stack) -> Returned {
    let has_separator = stack.has(2) && stack.kind(2) != LUA_TNIL;
    let separator = if has_separator { stack.check_bytes(2, "concat")? } else { b"" };
    let end = check_table(stack, "concat")?;
    let first = index(stack, 3, "concat", 1)?;
    let last = index(stack, 4, "concat", end)?;
    let mut output = Output::new(stack, stack.core());
    for at in first..=last {
        stack.raw_get_at(1, at as i32);
        if !matches!(stack.kind(-1), LUA_TSTRING | LUA_TNUMBER) {
            let kind = stack.kind_name(-1);
            let text = format!("invalid value ({kind}) at index {at} in table for 'concat'");
            return Err(stack.fail(&text));
        }
        output.extend(stack.bytes(-1).unwrap_or_default())?;
        stack.pop(1);
        if at < last {
            output.extend(separator)?;
        }
    }
    output.push()?;
    Ok(1)
}

/// `maxn(t)`
fn largest_key(stack: Stack) -> Returned {
    check_table(stack, "maxn")?;
    let core = stack.core();
    core.charge_table(stack)?;
    let mut largest = 0.0f64;
    stack.push_nil();
    while stack.next(1) {
        core.charge(stack, 1)?;
        stack.pop(1);
        if stack.kind(-1) == LUA_TNUMBER && stack.number(-1) > largest {
            largest = stack.number(-1);
        }
    }
    stack.push_number(largest);
    Ok(1)
}

/// `unpack(t [, first [, last]])`: the count is one of 64 bits, so that no bounds can make it
/// overflow.
fn push_elements(stack: Stack) -> Returned {
    let end = check_table(stack, "unpack")?;
    let first = index(stack, 2, "unpack", 1)?;
    let last = index(stack, 3, "unpack", end)?;
    if first > last {
        return Ok(0);
    }
    let count = i32::try_from(last - first + 1).ok().filter(|count| stack.reserve(*count));
    let Some(count) = count else { return Err(stack.fail("too many results to unpack")) };
    stack.core().charge(stack, count as usize)?;
    for at in first..=last {
        stack.raw_get_at(1, at as i32);
    }
    Ok(count)
}

/// `foreach(t, f)`
fn call_for_each(frame: Frame) -> c_int {
    frame.insist_on_kind(1, LUA_TTABLE);
    frame.insist_on_kind(2, LUA_TFUNCTION);
    frame.push_nil();
    while frame.next(1) {
        frame.charge(CALL_STEPS);
        frame.copy(2);
        frame.copy(-3);
        frame.copy(-3);
        frame.call(2, 1);
        if frame.kind(-1) != LUA_TNIL {
            return 1;
        }
        frame.pop(2);
    }
    0
}

/// `foreachi(t, f)`
fn call_for_each_element(frame: Frame) -> c_int {
    frame.insist_on_kind(1, LUA_TTABLE);
    frame.insist_on_kind(2, LUA_TFUNCTION);
    for at in 1..=frame.len(1) as i32 {
        frame.charge(CALL_STEPS);
        frame.copy(2);
        frame.push_number(f64::from(at));
        frame.raw_get_at(1, at);
        frame.call(2, 1);
        if frame.kind(-1) != LUA_TNIL {
            return 1;
        }
        frame.pop(1);
    }
    0
}

/// `sort(t [, compare])`. Lua's own does it, as the order of equal elements is seen; but it
/// compares without a look at anything else, and for some orders of elements that is quadratic. So
/// large tables are compared by a function that looks, and so are large elements; and so is what a
/// function of the library compares.
fn sort_table(frame: Frame) -> c_int {
    if let Err(raise) = check_change(*frame) {
        frame.raise(raise);
    }
    frame.insist_on_kind(1, LUA_TTABLE);
    if frame.has(2) && frame.kind(2) != LUA_TNIL {
        frame.insist_on_kind(2, LUA_TFUNCTION);
        if frame.c_function(2).is_some() {
            frame.set_top(2);
            frame.push_closure(ordered, 1);
        }
    } else if frame.len(1) > SORTED_BLINDLY_MAX || frame.core().has_large() {
        frame.set_top(1);
        frame.push_function(less);
    }
    frame.original(|base| base.sort)
}

/// `<`
fn compare(frame: Frame) -> c_int {
    frame.charge_comparison();
    frame.push_bool(frame.is_less(1, 2));
    1
}

/// What the function says that is the upvalue.
fn compare_by_function(frame: Frame) -> c_int {
    frame.charge_comparison();
    frame.set_top(2);
    frame.copy(lua::lua_upvalueindex(1));
    frame.insert(1);
    frame.call(2, 1);
    1
}

/// Where a value may be inserted: all from there on is moved, whether it is there or not.
const POSITION_MIN: i64 = -(1 << 20);
/// Elements of a table that is sorted without looks: at worst that takes some tens of milliseconds.
const SORTED_BLINDLY_MAX: usize = 2000;
/// What calling a function is charged with.
const CALL_STEPS: usize = 4;
