//! Those functions on tables that Lua's own library works through in one go, and takes their bounds
//! on trust. These charge for each element, and their bounds are checked.
//!
//! As in `pattern`, errors are raised by jumping, over frames that own nothing.

use std::ffi::c_int;

use mlua_sys as lua;

use crate::state::budget::Output;
use crate::state::core_of;
use crate::state::raw::{
    LUA_TFUNCTION, LUA_TNIL, LUA_TNUMBER, LUA_TSTRING, LUA_TTABLE, Raise, Returned, Stack,
    lua_CFunction, lua_State, lua_function,
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
unsafe extern "C-unwind" fn insert(state: *mut lua_State) -> c_int {
    let (stack, core) = (Stack(state), core_of(state));
    // SAFETY: Lua called with a live state; no destructor lives here when one of these raises.
    unsafe {
        let (at, end) = within(state, |stack| {
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
        core.charge_or_raise(stack, 1);
        for moved in (at + 1..=end).rev() {
            core.charge_or_raise(stack, 1);
            stack.raw_get_at(1, (moved - 1) as i32);
            stack.raw_set_at(1, moved as i32);
        }
        stack.raw_set_at(1, at as i32);
        0
    }
}

/// `remove(t [, at])`
unsafe extern "C-unwind" fn remove(state: *mut lua_State) -> c_int {
    let (stack, core) = (Stack(state), core_of(state));
    // SAFETY: as above.
    unsafe {
        let (at, end) = within(state, |stack| {
            check_change(stack)?;
            let end = check_table(stack, "remove")?;
            Ok((index(stack, 2, "remove", end)?, end))
        });
        core.charge_or_raise(stack, 1);
        if !(1..=end).contains(&at) {
            return 0;
        }
        stack.raw_get_at(1, at as i32);
        for moved in at..end {
            core.charge_or_raise(stack, 1);
            stack.raw_get_at(1, (moved + 1) as i32);
            stack.raw_set_at(1, moved as i32);
        }
        stack.push_nil();
        stack.raw_set_at(1, end as i32);
        1
    }
}

/// What a part of a function comes to in which memory must not be short; its error is raised.
///
/// # Safety
/// To be called by a function that Lua called, in which nothing has a destructor.
#[inline(always)]
unsafe fn within<T: Copy>(
    state: *mut lua_State,
    part: impl FnOnce(Stack) -> Result<T, Raise>,
) -> T {
    let hosted = &core_of(state).hosted;
    hosted.set(hosted.get() + 1);
    let outcome = part(Stack(state));
    hosted.set(hosted.get() - 1);
    match outcome {
        Ok(value) => value,
        // SAFETY: the caller's promise.
        Err(Raise) => unsafe { lua::lua_error(state) },
    }
}

/// `concat(t [, separator [, first [, last]]])`
fn join(stack: Stack) -> Returned {
    let has_separator = stack.has(2) && stack.kind(2) != LUA_TNIL;
    let separator = if has_separator { stack.check_bytes(2, "concat")? } else { b"" };
    let end = check_table(stack, "concat")?;
    let first = index(stack, 3, "concat", 1)?;
    let last = index(stack, 4, "concat", end)?;
    let mut output = Output::new(stack, core_of(stack.0));
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
    let core = core_of(stack.0);
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
    core_of(stack.0).charge(stack, count as usize)?;
    for at in first..=last {
        stack.raw_get_at(1, at as i32);
    }
    Ok(count)
}

/// `foreach(t, f)`
unsafe extern "C-unwind" fn foreach(state: *mut lua_State) -> c_int {
    let stack = Stack(state);
    // SAFETY: Lua called with a live state; no destructor lives here when one of these raises.
    unsafe {
        lua::luaL_checktype(state, 1, LUA_TTABLE);
        lua::luaL_checktype(state, 2, LUA_TFUNCTION);
        stack.push_nil();
        while stack.next(1) {
            core_of(state).charge_or_raise(stack, CALL_STEPS);
            stack.copy(2);
            stack.copy(-3);
            stack.copy(-3);
            lua::lua_call(state, 2, 1);
            if stack.kind(-1) != LUA_TNIL {
                return 1;
            }
            stack.pop(2);
        }
        0
    }
}

/// `foreachi(t, f)`
unsafe extern "C-unwind" fn foreachi(state: *mut lua_State) -> c_int {
    let stack = Stack(state);
    // SAFETY: as above.
    unsafe {
        lua::luaL_checktype(state, 1, LUA_TTABLE);
        lua::luaL_checktype(state, 2, LUA_TFUNCTION);
        for at in 1..=stack.len(1) as i32 {
            core_of(state).charge_or_raise(stack, CALL_STEPS);
            stack.copy(2);
            stack.push_number(f64::from(at));
            stack.raw_get_at(1, at);
            lua::lua_call(state, 2, 1);
            if stack.kind(-1) != LUA_TNIL {
                return 1;
            }
            stack.pop(1);
        }
        0
    }
}

/// `sort(t [, compare])`. Lua's own does it, as the order of equal elements is seen; but it
/// compares without a look at anything else, and for some orders of elements that is quadratic. So
/// large tables are compared by a function that looks, and so are large elements; and so is what a
/// function of the library compares.
unsafe extern "C-unwind" fn sort(state: *mut lua_State) -> c_int {
    let (stack, core) = (Stack(state), core_of(state));
    // SAFETY: as above.
    unsafe {
        if let Err(Raise) = check_change(stack) {
            lua::lua_error(state);
        }
        lua::luaL_checktype(state, 1, LUA_TTABLE);
        let has_order = stack.has(2) && stack.kind(2) != LUA_TNIL;
        if has_order {
            lua::luaL_checktype(state, 2, LUA_TFUNCTION);
            if stack.c_function(2).is_some() {
                stack.set_top(2);
                stack.push_closure(ordered, 1);
            }
        } else if stack.len(1) > SORTED_BLINDLY_MAX || core.has_large() {
            stack.set_top(1);
            stack.push_function(less);
        }
        match core.base.get() {
            Some(base) => (base.sort)(state),
            None => 0,
        }
    }
}

/// `<`
unsafe extern "C-unwind" fn less(state: *mut lua_State) -> c_int {
    let stack = Stack(state);
    // SAFETY: as above.
    unsafe {
        core_of(state).charge_comparison(stack);
        stack.push_bool(lua::lua_lessthan(state, 1, 2) != 0);
        1
    }
}

/// What the function says that is the upvalue.
unsafe extern "C-unwind" fn ordered(state: *mut lua_State) -> c_int {
    let stack = Stack(state);
    // SAFETY: as above.
    unsafe {
        core_of(state).charge_comparison(stack);
        stack.set_top(2);
        stack.copy(lua::lua_upvalueindex(1));
        stack.insert(1);
        lua::lua_call(state, 2, 1);
        1
    }
}

/// Where a value may be inserted: all from there on is moved, whether it is there or not.
const POSITION_MIN: i64 = -(1 << 20);
/// Elements of a table that is sorted without looks: at worst that takes some tens of milliseconds.
const SORTED_BLINDLY_MAX: usize = 2000;
/// What calling a function is charged with.
const CALL_STEPS: usize = 4;
