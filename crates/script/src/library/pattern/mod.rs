//! The functions of `string` that may take for ever in one call: those that search for patterns,
//! and `rep`. Lua's own versions check nothing while they work, so a script could not be paused or
//! ended inside them. These give the same results, and ask the script's host while they work.
//!
//! All but the matching itself is done by functions of Lua that raise errors by jumping, over
//! frames which own nothing.

mod matcher;

use std::ffi::{c_char, c_int};
use std::ops::Range;

use memchr::memmem;
use mlua_sys as lua;

use self::matcher::{CAPTURES_MAX, Capture, Extent, Fault, Matcher};
use crate::state::core_of;
use crate::state::raw::{
    LUA_TFUNCTION, LUA_TNUMBER, LUA_TSTRING, LUA_TTABLE, Raise, Stack, lua_CFunction, lua_State,
};

/// Puts the functions into the table of `string`, at this index.
pub(crate) fn replace(stack: Stack, table: c_int) {
    for (name, function) in [
        ("find", find as lua_CFunction),
        ("match", find_captures),
        ("gmatch", find_all),
        ("gfind", find_all),
        ("gsub", substitute),
        ("rep", repeat),
    ] {
        stack.push_function(function);
        stack.set_field(table, name.as_bytes());
    }
}

/// `find(s, pattern [, init [, plain]])`
unsafe extern "C-unwind" fn find(state: *mut lua_State) -> c_int {
    // SAFETY: as Lua called us; nothing here has a destructor when an error is raised.
    unsafe { search(state, true) }
}

/// `match(s, pattern [, init])`
unsafe extern "C-unwind" fn find_captures(state: *mut lua_State) -> c_int {
    // SAFETY: as above.
    unsafe { search(state, false) }
}

/// # Safety
/// To be called by a function that Lua called, as its last deed.
unsafe fn search(state: *mut lua_State, positions: bool) -> c_int {
    let stack = Stack(state);
    // SAFETY: of a live state, and nothing here has a destructor when an error is raised.
    unsafe {
        let (subject, pattern) = (argument(state, 1), argument(state, 2));
        let init = lua::luaL_optinteger(state, 3, 1) as i64;
        let init = if init < 0 { init + subject.len() as i64 } else { init - 1 };
        let init = (init.max(0) as usize).min(subject.len());
        if positions && (stack.boolean(4) || is_plain(pattern)) {
            match memmem::find(&subject[init..], pattern) {
                Some(at) => {
                    push_positions(stack, init + at..init + at + pattern.len());
                    return 2;
                }
                None => stack.push_nil(),
            }
            return 1;
        }
        let mut matcher = Matcher::new(subject, pattern, || core_of(state).look(stack));
        let found = match first(&mut matcher, init) {
            Ok(found) => found,
            Err(fault) => raise(stack, fault),
        };
        let Some(found) = found else {
            stack.push_nil();
            return 1;
        };
        if positions {
            push_positions(stack, found);
            return 2 + push_captures(stack, &matcher, None);
        }
        push_captures(stack, &matcher, Some(found))
    }
}

/// The first match at or behind `from`.
fn first<W: FnMut() -> bool>(
    matcher: &mut Matcher<'_, W>,
    from: usize,
) -> Result<Option<Range<usize>>, Fault> {
    let is_anchored = matcher.pattern.first() == Some(&b'^');
    let last = if is_anchored { from } else { matcher.subject.len() };
    for start in from..=last {
        if let Some(end) = matcher.matches(start, usize::from(is_anchored))? {
            return Ok(Some(start..end));
        }
    }
    Ok(None)
}

/// `gmatch(s, pattern)`: a function whose calls give one match after the other.
unsafe extern "C-unwind" fn find_all(state: *mut lua_State) -> c_int {
    let stack = Stack(state);
    // SAFETY: as above.
    unsafe {
        argument(state, 1);
        argument(state, 2);
    }
    stack.set_top(2);
    stack.push_number(0.0);
    stack.push_closure(find_next, 3);
    1
}

/// The function that `gmatch` returns: its upvalues are subject, pattern and where to go on.
unsafe extern "C-unwind" fn find_next(state: *mut lua_State) -> c_int {
    let stack = Stack(state);
    // SAFETY: as above; the upvalues are what `find_all` made them, and strings.
    unsafe {
        let (subject, pattern) = (upvalue(stack, 1), upvalue(stack, 2));
        let from = stack.number(lua::lua_upvalueindex(3)) as usize;
        let mut matcher = Matcher::new(subject, pattern, || core_of(state).look(stack));
        // No anchor here: it would find nothing but the first.
        for start in from..=subject.len() {
            match matcher.matches(start, 0) {
                Ok(None) => {}
                Ok(Some(end)) => {
                    stack.push_number((end + usize::from(end == start)) as f64);
                    stack.replace(lua::lua_upvalueindex(3));
                    return push_captures(stack, &matcher, Some(start..end));
                }
                Err(fault) => raise(stack, fault),
            }
        }
        0
    }
}

/// `gsub(s, pattern, replacement [, n])`
unsafe extern "C-unwind" fn substitute(state: *mut lua_State) -> c_int {
    let stack = Stack(state);
    // SAFETY: as above. The buffer is used as its manual says: what it has on the stack lies below
    // what is pushed.
    unsafe {
        let (subject, pattern) = (argument(state, 1), argument(state, 2));
        let kind = stack.kind(3);
        let limit = lua::luaL_optinteger(state, 4, subject.len() as lua::lua_Integer + 1) as i64;
        if !matches!(kind, LUA_TNUMBER | LUA_TSTRING | LUA_TFUNCTION | LUA_TTABLE) {
            lua::luaL_argerror(state, 3, c"string/function/table expected".as_ptr());
        }
        stack.set_top(3);
        let is_anchored = pattern.first() == Some(&b'^');
        let mut buffer = std::mem::MaybeUninit::<lua::luaL_Buffer>::uninit();
        let buffer = buffer.as_mut_ptr();
        lua::luaL_buffinit(state, buffer);
        let mut matcher = Matcher::new(subject, pattern, || core_of(state).look(stack));
        let (mut count, mut at) = (0, 0);
        while count < limit {
            let end = match matcher.matches(at, usize::from(is_anchored)) {
                Ok(end) => end,
                Err(fault) => raise(stack, fault),
            };
            if let Some(end) = end {
                count += 1;
                add_replacement(stack, buffer, &matcher, at..end);
            }
            match end {
                Some(end) if end > at => at = end,
                _ if at < subject.len() => {
                    add(buffer, &subject[at..=at]);
                    at += 1;
                }
                _ => break,
            }
            if is_anchored {
                break;
            }
        }
        add(buffer, &subject[at..]);
        lua::luaL_pushresult(buffer);
        stack.push_number(count as f64);
        2
    }
}

/// Adds what replaces a match to the buffer; the replacement is argument 3.
///
/// # Safety
/// As for `search`.
unsafe fn add_replacement<W: FnMut() -> bool>(
    stack: Stack,
    buffer: *mut lua::luaL_Buffer,
    matcher: &Matcher<'_, W>,
    found: Range<usize>,
) {
    let (state, whole) = (stack.0, &matcher.subject[found.clone()]);
    // SAFETY: as for `search`.
    unsafe {
        match stack.kind(3) {
            LUA_TFUNCTION => {
                stack.copy(3);
                let count = push_captures(stack, matcher, Some(found));
                lua::lua_call(state, count, 1);
            }
            LUA_TTABLE => {
                push_capture(stack, matcher, 0, &found);
                lua::lua_gettable_(state, 3);
            }
            _ => {
                let text = stack.bytes(3).unwrap_or_default();
                let mut rest = text;
                core_of(state).charge_or_raise(stack, 1 + text.len() / 64);
                while let Some(at) = memchr::memchr(b'%', rest) {
                    core_of(state).charge_or_raise(stack, 1 + at / 64 + found.len() / 64);
                    add(buffer, &rest[..at]);
                    // A last `%` stands for a zero byte: what Lua finds behind its strings.
                    match rest.get(at + 1).copied().unwrap_or(0) {
                        b'0' => add(buffer, whole),
                        digit @ b'1'..=b'9' => {
                            push_capture(stack, matcher, usize::from(digit - b'1'), &found);
                            lua::luaL_addvalue(buffer);
                        }
                        other => add(buffer, &[other]),
                    }
                    rest = rest.get(at + 2..).unwrap_or_default();
                }
                add(buffer, rest);
                return;
            }
        }
        if !stack.boolean(-1) {
            stack.pop(1);
            add(buffer, whole);
            return;
        }
        if lua::lua_isstring(state, -1) == 0 {
            lua::luaL_where(state, 1);
            stack.push_bytes(b"invalid replacement value (a ");
            stack.push_bytes(stack.kind_name(-3).as_bytes());
            stack.push_bytes(b")");
            lua::lua_concat(state, 4);
            lua::lua_error(state);
        }
        lua::luaL_addvalue(buffer);
    }
}

/// `rep(s, n)`
unsafe extern "C-unwind" fn repeat(state: *mut lua_State) -> c_int {
    let stack = Stack(state);
    // SAFETY: as above; the block is Lua's, lies on the stack, and is as long as is written.
    unsafe {
        let text = argument(state, 1);
        // Lua 5.1 takes the count as an `int`: what is larger comes out as something else.
        let count = (lua::luaL_checkinteger(state, 2) as c_int).max(0) as usize;
        core_of(state).charge_or_raise(stack, 1);
        let Some(total) = text.len().checked_mul(count).filter(|&total| total <= REPEATED_MAX)
        else {
            let Raise = stack.fail("not enough memory: resulting string too large");
            lua::lua_error(state)
        };
        if total == 0 {
            stack.push_bytes(b"");
            return 1;
        }
        let block = lua::lua_newuserdata(state, total).cast::<u8>();
        std::ptr::copy_nonoverlapping(text.as_ptr(), block, text.len());
        let mut done = text.len();
        while done < total {
            let more = done.min(total - done);
            std::ptr::copy_nonoverlapping(block, block.add(done), more);
            done += more;
        }
        stack.push_bytes(std::slice::from_raw_parts(block, total));
        1
    }
}

/// # Safety
/// As for `search`. The bytes live as long as the argument does.
unsafe fn argument<'a>(state: *mut lua_State, at: c_int) -> &'a [u8] {
    let mut len = 0;
    // SAFETY: of a live state; the caller's promise.
    unsafe {
        let start = lua::luaL_checklstring(state, at, &raw mut len);
        std::slice::from_raw_parts(start.cast(), len)
    }
}

fn upvalue<'a>(stack: Stack, number: c_int) -> &'a [u8] {
    stack.bytes(lua::lua_upvalueindex(number)).unwrap_or_default()
}

/// # Safety
/// The buffer is one that was begun.
unsafe fn add(buffer: *mut lua::luaL_Buffer, bytes: &[u8]) {
    // SAFETY: the caller's promise.
    unsafe { lua::luaL_addlstring(buffer, bytes.as_ptr().cast::<c_char>(), bytes.len()) }
}

/// Whether nothing in the pattern has a meaning of its own.
fn is_plain(pattern: &[u8]) -> bool {
    let mut bytes = pattern.iter().take_while(|&&byte| byte != 0);
    !bytes.any(|byte| b"^$*+?.([%-".contains(byte))
}

fn push_positions(stack: Stack, found: Range<usize>) {
    stack.push_number(found.start as f64 + 1.0);
    stack.push_number(found.end as f64);
}

/// Pushes all captures; if there are none, the whole match, if one is given.
///
/// # Safety
/// As for `search`.
unsafe fn push_captures<W: FnMut() -> bool>(
    stack: Stack,
    matcher: &Matcher<'_, W>,
    whole: Option<Range<usize>>,
) -> c_int {
    let count = matcher.captures().len().max(usize::from(whole.is_some()));
    let whole = whole.unwrap_or(0..0);
    // SAFETY: the caller's promise.
    unsafe {
        lua::luaL_checkstack_(stack.0, CAPTURES_MAX as c_int, c"too many captures".as_ptr());
        (0..count).for_each(|number| push_capture(stack, matcher, number, &whole));
    }
    count as c_int
}

/// Pushes one capture; the first is the whole match if there are none.
///
/// # Safety
/// As for `search`.
unsafe fn push_capture<W: FnMut() -> bool>(
    stack: Stack,
    matcher: &Matcher<'_, W>,
    number: usize,
    whole: &Range<usize>,
) {
    match matcher.captures().get(number) {
        None if number == 0 => stack.push_bytes(&matcher.subject[whole.clone()]),
        Some(&Capture { start, extent: Extent::Bytes(len) }) => {
            stack.push_bytes(&matcher.subject[start..start + len]);
        }
        Some(&Capture { start, extent: Extent::Position }) => stack.push_number(start as f64 + 1.0),
        // SAFETY: the caller's promise.
        Some(_) => unsafe { raise(stack, Fault::Pattern("unfinished capture")) },
        // SAFETY: the caller's promise.
        None => unsafe { raise(stack, Fault::Pattern("invalid capture index")) },
    }
}

/// # Safety
/// As for `search`.
unsafe fn raise(stack: Stack, fault: Fault) -> ! {
    // SAFETY: the caller's promise.
    unsafe {
        match fault {
            Fault::Pattern(text) => {
                let Raise = stack.fail(text);
                lua::lua_error(stack.0)
            }
            Fault::Stopped => core_of(stack.0).raise_stop(stack),
        }
    }
}

/// In bytes: more than a state may have.
const REPEATED_MAX: usize = 1 << 31;
