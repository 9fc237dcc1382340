//! What a script finds around it, and that it cannot change it.
//!
//! Scripts of different clients share a state, so nothing that one leaves may be seen by another.
//! The globals and the libraries are therefore shown through empty tables, whose metatables lead to
//! the real ones for reading and refuse writing. The functions that look past metatables (`rawset`,
//! `next`, `table.insert` ...) are wrapped: they know these tables, and treat them as what they
//! stand for. What could reach the process, or break the walls, is not there: files, `require`,
//! `debug`, compiled code, finalizers.

use std::ffi::{CStr, c_int};

use mlua_sys as lua;

use crate::api::{self, Audience};
use crate::library::{bits, json, msgpack, pattern, structs, tables};
use crate::state::raw::{
    LUA_GLOBALSINDEX, LUA_MULTRET, LUA_TFUNCTION, LUA_TNIL, LUA_TSTRING, LUA_TTABLE, Raise,
    Returned, Stack, lua_CFunction, lua_State, lua_function,
};
use crate::state::{Base, Core, Profile, core_of, is_text};
use crate::walls::{
    KEPT, REAL, VIEW, check_change, is_protected, protect, push_marked, set_marked,
};

/// Fills the globals with what scripts may use.
pub(crate) fn open(stack: Stack, core: &Core) {
    for open in [
        lua::luaopen_base as unsafe extern "C-unwind" fn(*mut lua_State) -> c_int,
        lua::luaopen_table,
        lua::luaopen_string,
        lua::luaopen_math,
        lua::luaopen_os,
    ] {
        stack.push_function(open);
        // SAFETY: the libraries' functions, on a new state with room.
        unsafe { lua::lua_call(stack.0, 0, 0) };
    }
    let global = |name: &[u8]| stack.push_field(LUA_GLOBALSINDEX, name);
    global(b"table");
    let table = stack.top();
    global(b"coroutine");
    let coroutine = stack.top();
    let original = |at: c_int, name: &str| {
        stack.push_field(at, name.as_bytes());
        let function = stack.c_function(-1);
        stack.pop(1);
        function.unwrap_or_else(|| panic!("Lua has {name}"))
    };
    core.base.set(Some(Base {
        setmetatable: original(LUA_GLOBALSINDEX, "setmetatable"),
        rawset: original(LUA_GLOBALSINDEX, "rawset"),
        next: original(LUA_GLOBALSINDEX, "next"),
        sort: original(table, "sort"),
        setn: original(table, "setn"),
        resume: original(coroutine, "resume"),
    }));
    stack.push_function(table_setn);
    stack.set_field(table, b"setn");
    tables::replace(stack, table);
    for (name, function) in [("resume", resume as lua_CFunction), ("wrap", wrap)] {
        stack.push_function(function);
        stack.set_field(coroutine, name.as_bytes());
    }
    for name in REMOVED {
        stack.push_nil();
        stack.set_field(LUA_GLOBALSINDEX, name.as_bytes());
    }
    for (name, function) in [
        ("getmetatable", base_getmetatable as lua_CFunction),
        ("setmetatable", base_setmetatable),
        ("rawset", base_rawset),
        ("rawget", base_rawget),
        ("next", base_next),
        ("pairs", base_pairs),
        ("pcall", base_pcall),
        ("xpcall", base_xpcall),
        ("loadstring", base_loadstring),
        ("collectgarbage", base_collectgarbage),
        ("unpack", tables::unpack),
    ] {
        stack.push_function(function);
        stack.set_field(LUA_GLOBALSINDEX, name.as_bytes());
    }
    define_load(stack);
    global(b"os");
    let os = stack.top();
    stack.push_table(0, 1);
    stack.push_field(os, b"clock");
    stack.set_field(stack.top() - 1, b"clock");
    stack.set_field(LUA_GLOBALSINDEX, b"os");
    global(b"math");
    let math = stack.top();
    stack.push_function(math_random);
    stack.set_field(math, b"random");
    stack.push_function(math_randomseed);
    stack.set_field(math, b"randomseed");
    global(b"string");
    pattern::replace(stack, stack.top());
    stack.set_top(0);
    for (name, push) in [
        ("cjson", json::push_table as fn(Stack)),
        ("cmsgpack", msgpack::push_table),
        ("bit", bits::push_table),
        ("struct", structs::push_table),
    ] {
        push(stack);
        stack.set_field(LUA_GLOBALSINDEX, name.as_bytes());
    }
    let audience = match core.profile {
        Profile::Scripts => Audience::Scripts,
        Profile::Library => Audience::Functions,
    };
    api::push_table(stack, audience);
    stack.copy(-1);
    stack.set_field(LUA_GLOBALSINDEX, b"redis");
    stack.set_field(LUA_GLOBALSINDEX, b"server");
}

/// Puts the walls up.
pub(crate) fn close(stack: Stack) {
    for name in ["string", "table", "math", "os", "cjson", "cmsgpack", "bit", "struct", "coroutine"]
    {
        stack.push_field(LUA_GLOBALSINDEX, name.as_bytes());
        protect(stack);
        stack.set_field(LUA_GLOBALSINDEX, name.as_bytes());
    }
    stack.push_field(LUA_GLOBALSINDEX, b"redis");
    protect(stack);
    stack.copy(-1);
    stack.set_field(LUA_GLOBALSINDEX, b"redis");
    stack.set_field(LUA_GLOBALSINDEX, b"server");
    // Strings find their methods in the real table, and show a view of their metatable.
    stack.push_bytes(b"");
    if stack.push_metatable(-1) {
        let metatable = stack.top();
        stack.push_table(0, 1);
        stack.push_field(LUA_GLOBALSINDEX, b"string");
        stack.set_field(stack.top() - 1, b"__index");
        protect(stack);
        set_marked(stack, metatable, &VIEW);
        stack.pop(1);
    }
    stack.pop(1);
    // Reading a global that is not there is an error.
    stack.push_table(0, 1);
    stack.push_function(missing_global);
    stack.set_field(stack.top() - 1, b"__index");
    stack.copy(LUA_GLOBALSINDEX);
    stack.insert(-2);
    stack.set_metatable(-2);
    protect(stack);
    let globals = stack.top();
    stack.push_metatable(globals);
    let metatable = stack.top();
    stack.push_table(0, 1);
    stack.push_function(missing_global);
    stack.set_field(stack.top() - 1, b"__index");
    protect(stack);
    set_marked(stack, metatable, &VIEW);
    stack.pop(1);
    stack.copy(globals);
    stack.set_field(LUA_GLOBALSINDEX, b"_G");
    stack.replace(LUA_GLOBALSINDEX);
}

/// Shows a library's code what it may use while it is loaded: the table with `register_function`,
/// and no more.
pub(crate) fn begin_loading(stack: Stack) {
    let shown = stack.top() + 1;
    stack.copy(LUA_GLOBALSINDEX);
    if !stack.push_metatable(shown) {
        return;
    }
    let metatable = stack.top();
    // What is shown afterwards is kept beside.
    stack.push_field(metatable, b"__index");
    set_marked(stack, metatable, &KEPT);
    stack.push_table(0, 2);
    let globals = stack.top();
    api::push_table(stack, Audience::Loading);
    let table = stack.top();
    insist(stack, table);
    protect(stack);
    stack.copy(-1);
    stack.set_field(globals, b"redis");
    stack.set_field(globals, b"server");
    insist(stack, globals);
    stack.set_field(metatable, b"__index");
    stack.set_top(shown - 1);
}

/// Shows the functions what they may use when they run.
pub(crate) fn end_loading(stack: Stack) {
    let shown = stack.top() + 1;
    stack.copy(LUA_GLOBALSINDEX);
    if stack.push_metatable(shown) {
        let metatable = stack.top();
        if push_marked(stack, shown, &KEPT) {
            stack.set_field(metatable, b"__index");
        }
    }
    stack.set_top(shown - 1);
}

/// Makes it an error to read what is not in the table.
fn insist(stack: Stack, table: c_int) {
    stack.push_table(0, 1);
    stack.push_function(missing_global);
    stack.set_field(stack.top() - 1, b"__index");
    stack.set_metatable(table);
}

lua_function!(missing_global, refuse_missing);
lua_function!(base_getmetatable, look_at_metatable);
lua_function!(base_rawget, get_raw);
lua_function!(base_pairs, begin_pairs);
lua_function!(base_collectgarbage, collect_garbage);
lua_function!(math_random, random);
lua_function!(math_randomseed, seed);

fn refuse_missing(stack: Stack) -> Returned {
    let name = String::from_utf8_lossy(stack.bytes(2).unwrap_or_default()).into_owned();
    Err(stack.fail(&format!("Script attempted to access nonexistent global variable '{name}'")))
}

/// A function that changes its first argument: refused for what is protected, else Lua's own.
macro_rules! changing {
    ($($shell:ident = $original:ident;)*) => {$(
        unsafe extern "C-unwind" fn $shell(state: *mut lua_State) -> c_int {
            // SAFETY: Lua called with a live state; no destructor lives here when one of these
            // raises.
            unsafe {
                if let Err(Raise) = check_change(Stack(state)) {
                    lua::lua_error(state);
                }
                match core_of(state).base.get() {
                    Some(base) => (base.$original)(state),
                    None => 0,
                }
            }
        }
    )*};
}

changing! {
    base_setmetatable = setmetatable;
    base_rawset = rawset;
    table_setn = setn;
}

/// `coroutine.resume`. The coroutine's hook comes as often as that of what runs, and what resumes
/// others all the time is looked at, too.
unsafe extern "C-unwind" fn resume(state: *mut lua_State) -> c_int {
    let (stack, core) = (Stack(state), core_of(state));
    // SAFETY: as Lua called us; nothing here has a destructor when an error is raised.
    unsafe {
        core.charge_or_raise(stack, RESUMED_STEPS);
        let coroutine = lua::lua_tothread(state, 1);
        if !coroutine.is_null() {
            core.set_running(coroutine);
        }
        let count = match core.base.get() {
            Some(base) => (base.resume)(state),
            None => 0,
        };
        core.caught(state);
        if core.is_stopping() {
            core.raise_stop(stack);
        }
        count
    }
}

/// `coroutine.wrap`: a function that resumes a new coroutine.
unsafe extern "C-unwind" fn wrap(state: *mut lua_State) -> c_int {
    let stack = Stack(state);
    // SAFETY: as above.
    unsafe {
        if stack.kind(1) != LUA_TFUNCTION || stack.c_function(1).is_some() {
            lua::luaL_argerror(state, 1, c"Lua function expected".as_ptr());
        }
        let coroutine = lua::lua_newthread(state);
        stack.copy(1);
        lua::lua_xmove(state, coroutine, 1);
        stack.push_closure(resume_wrapped, 1);
        1
    }
}

/// The function that `coroutine.wrap` returns: its upvalue is the coroutine. Errors in it are
/// raised here.
unsafe extern "C-unwind" fn resume_wrapped(state: *mut lua_State) -> c_int {
    let stack = Stack(state);
    // SAFETY: as above.
    unsafe {
        lua::luaL_checkstack_(state, 4, c"too many arguments".as_ptr());
        stack.copy(lua::lua_upvalueindex(1));
        stack.insert(1);
        let count = resume(state);
        if stack.boolean(-count) {
            return count - 1;
        }
        if stack.kind(-1) == LUA_TSTRING {
            lua::luaL_where(state, 1);
            stack.insert(-2);
            lua::lua_concat(state, 2);
        }
        lua::lua_error(state)
    }
}

/// Steps that resuming is charged with: it may execute many instructions.
const RESUMED_STEPS: usize = 4096;

/// A value's metatable; of what is protected a view, if Redis has one there.
fn look_at_metatable(stack: Stack) -> Returned {
    if !stack.has(1) {
        return Err(stack.bad_argument(1, "getmetatable", "value expected"));
    }
    if push_marked(stack, 1, &VIEW) {
        return Ok(1);
    }
    if is_protected(stack, 1) {
        stack.push_nil();
        return Ok(1);
    }
    if !stack.push_metatable(1) {
        stack.push_nil();
        return Ok(1);
    }
    stack.push_field(stack.top(), b"__metatable");
    if stack.kind(-1) == LUA_TNIL {
        stack.pop(1);
    }
    Ok(1)
}

fn get_raw(stack: Stack) -> Returned {
    if stack.kind(1) != LUA_TTABLE {
        let text = format!("table expected, got {}", stack.argument_kind(1));
        return Err(stack.bad_argument(1, "rawget", &text));
    }
    if !stack.has(2) {
        return Err(stack.bad_argument(2, "rawget", "value expected"));
    }
    stack.set_top(2);
    if push_marked(stack, 1, &REAL) {
        stack.replace(1);
    }
    stack.raw_get(1);
    Ok(1)
}

/// `next`; a protected table goes through the one it stands for.
unsafe extern "C-unwind" fn base_next(state: *mut lua_State) -> c_int {
    let stack = Stack(state);
    if stack.kind(1) == LUA_TTABLE && push_marked(stack, 1, &REAL) {
        stack.replace(1);
    }
    match core_of(state).base.get() {
        // SAFETY: as Lua called us, with no destructor here.
        Some(base) => unsafe { (base.next)(state) },
        None => 0,
    }
}

fn begin_pairs(stack: Stack) -> Returned {
    if stack.kind(1) != LUA_TTABLE {
        let text = format!("table expected, got {}", stack.argument_kind(1));
        return Err(stack.bad_argument(1, "pairs", &text));
    }
    let next = match core_of(stack.0).base.get() {
        Some(base) if !is_protected(stack, 1) => base.next,
        _ => base_next,
    };
    stack.push_function(next);
    stack.copy(1);
    stack.push_nil();
    Ok(3)
}

/// `pcall`, which hands out a command's error as its text, as Redis does, and does not keep a
/// script from being stopped.
unsafe extern "C-unwind" fn base_pcall(state: *mut lua_State) -> c_int {
    let (stack, core) = (Stack(state), core_of(state));
    // SAFETY: as Lua called us; nothing here has a destructor when an error is raised.
    unsafe {
        if !stack.has(1) {
            lua::luaL_argerror(state, 1, c"value expected".as_ptr());
        }
        let status = stack.protected_call(stack.top() - 1, LUA_MULTRET, 0);
        core.caught(state);
        if core.is_stopping() {
            lua::lua_error(state);
        }
        make_room(stack);
        if status != lua::LUA_OK && stack.kind(-1) == LUA_TTABLE {
            stack.push_field(stack.top(), b"err");
            if stack.bytes(-1).is_none() {
                stack.pop(1);
            }
        }
        stack.push_bool(status == lua::LUA_OK);
        if status == lua::LUA_OK {
            stack.insert(1);
            stack.top()
        } else {
            stack.insert(-2);
            2
        }
    }
}

/// `xpcall`, which does not keep a script from being stopped either.
unsafe extern "C-unwind" fn base_xpcall(state: *mut lua_State) -> c_int {
    let (stack, core) = (Stack(state), core_of(state));
    // SAFETY: as Lua called us; nothing here has a destructor when an error is raised.
    unsafe {
        if !stack.has(2) {
            lua::luaL_argerror(state, 2, c"value expected".as_ptr());
        }
        stack.set_top(2);
        stack.push_closure(unless_stopping, 1);
        stack.insert(1);
        let status = stack.protected_call(0, LUA_MULTRET, 1);
        core.caught(state);
        if core.is_stopping() {
            lua::lua_error(state);
        }
        make_room(stack);
        stack.push_bool(status == lua::LUA_OK);
        stack.replace(1);
        stack.top()
    }
}

/// After a call whose results may be as many as there was room for: makes room for two more, or
/// raises an error.
///
/// # Safety
/// Called by a function that Lua called, in which nothing has a destructor.
unsafe fn make_room(stack: Stack) {
    if !stack.reserve(2) {
        stack.set_top(0);
        stack.push_bytes(b"stack overflow");
        // SAFETY: the caller's promise.
        unsafe { lua::lua_error(stack.0) };
    }
}

/// Calls a script's own handler of errors. Within the watch's hook no other hook is called, so that
/// a handler which never ends could not be ended: when the script is stopped, it is not asked.
unsafe extern "C-unwind" fn unless_stopping(state: *mut lua_State) -> c_int {
    let stack = Stack(state);
    if !core_of(state).is_stopping() {
        stack.set_top(1);
        stack.copy(lua::lua_upvalueindex(1));
        stack.insert(1);
        // SAFETY: as Lua called us, with a function and its argument on the stack.
        unsafe { lua::lua_call(state, 1, 1) };
    }
    1
}

/// `loadstring`, of source only.
unsafe extern "C-unwind" fn base_loadstring(state: *mut lua_State) -> c_int {
    let stack = Stack(state);
    // SAFETY: as Lua called us; nothing here has a destructor when an error is raised.
    unsafe {
        let mut len = 0;
        let start = lua::luaL_checklstring(state, 1, &raw mut len);
        let code = std::slice::from_raw_parts(start.cast(), len);
        let name = lua::luaL_optlstring(state, 2, start, std::ptr::null_mut());
        core_of(state).charge_or_raise(stack, 1);
        if is_text(code) && stack.load(code, CStr::from_ptr(name)) {
            return 1;
        }
        if core_of(state).is_stopping() {
            core_of(state).raise_stop(stack);
        }
        if is_text(code) {
            stack.push_nil();
            stack.insert(-2);
        } else {
            stack.push_nil();
            stack.push_bytes(b"compiled code cannot be loaded");
        }
        2
    }
}

/// `load`, by way of `loadstring`.
fn define_load(stack: Stack) {
    const CODE: &[u8] = b"
        local loadstring, concat, type, error = loadstring, table.concat, type, error
        function load(reader, name)
            local pieces, count = {}, 0
            while true do
                local piece = reader()
                if piece == nil or piece == '' then break end
                if type(piece) ~= 'string' then error('reader function must return a string', 2) end
                count = count + 1
                pieces[count] = piece
            end
            return loadstring(concat(pieces), name or '=(load)')
        end";
    let loaded = stack.load(CODE, c"=load") && stack.protected_call(0, 0, 0) == lua::LUA_OK;
    assert!(loaded, "{:?}", stack.bytes(-1));
}

/// `collectgarbage`; how often garbage is collected is nobody's business, as the state is shared.
fn collect_garbage(stack: Stack) -> Returned {
    // SAFETY: of a live state; nothing has a finalizer.
    let collect = |what| unsafe { lua::lua_gc(stack.0, what, 0) };
    match if stack.has(1) { stack.bytes(1) } else { None } {
        Some(b"count") => {
            let kib = f64::from(collect(lua::LUA_GCCOUNT));
            stack.push_number(kib + f64::from(collect(lua::LUA_GCCOUNTB)) / 1024.0);
        }
        None | Some(b"collect") => {
            let core = core_of(stack.0);
            if core.collect(stack).is_err() {
                return Err(core.stop(stack, ""));
            }
            stack.push_number(0.0);
        }
        Some(b"step") => stack.push_bool(collect(lua::LUA_GCSTEP) == 1),
        Some(b"stop" | b"restart" | b"setpause" | b"setstepmul") => stack.push_number(0.0),
        Some(other) => {
            let text = format!("invalid option '{}'", String::from_utf8_lossy(other));
            return Err(stack.bad_argument(1, "collectgarbage", &text));
        }
    }
    Ok(1)
}

/// `math.random`: by the generator of POSIX's `lrand48`, so that a script which seeds it gets the
/// numbers that it gets elsewhere.
fn random(stack: Stack) -> Returned {
    let core = core_of(stack.0);
    let next = core.random.get().wrapping_mul(RANDOM_FACTOR).wrapping_add(RANDOM_ADDED);
    core.random.set(next & ((1 << 48) - 1));
    let drawn = (core.random.get() >> 17) as i32 % RANDOM_MAX;
    let fraction = f64::from(drawn) / f64::from(RANDOM_MAX);
    let bound = |at| stack.check_integer(at, "random").map(|bound| f64::from(bound as i32));
    let (low, high) = match stack.top() {
        0 => {
            stack.push_number(fraction);
            return Ok(1);
        }
        1 => (1.0, bound(1)?),
        2 => (bound(1)?, bound(2)?),
        _ => return Err(stack.fail("wrong number of arguments")),
    };
    if low > high {
        return Err(stack.bad_argument(stack.top(), "random", "interval is empty"));
    }
    stack.push_number((fraction * (high - low + 1.0)).floor() + low);
    Ok(1)
}

/// `math.randomseed`: 32 bits of it count.
fn seed(stack: Stack) -> Returned {
    let seed = stack.check_integer(1, "randomseed")? as u32;
    core_of(stack.0).random.set(u64::from(seed) << 16 | RANDOM_SEED_LOW);
    Ok(0)
}

/// Of the generator, as POSIX says it.
const RANDOM_FACTOR: u64 = 0x5_deec_e66d;
const RANDOM_ADDED: u64 = 0xb;
const RANDOM_SEED_LOW: u64 = 0x330e;
/// The largest number that is drawn counts as the smallest, so that a fraction is below 1.
const RANDOM_MAX: i32 = i32::MAX;

/// Not for scripts.
const REMOVED: [&str; 9] = [
    "dofile", "loadfile", "print", "require", "module", "newproxy", "getfenv", "setfenv", "package",
];
