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

use crate::api::{self, ApiCaller};
use crate::library::{bits, json, msgpack, pattern, structs, tables};
use crate::state::frame::{Frame, raising_function};
use crate::state::raw::{
    LUA_GLOBALSINDEX, LUA_MULTRET, LUA_TFUNCTION, LUA_TNIL, LUA_TSTRING, LUA_TTABLE, Raise,
    Returned, Stack, lua_CFunction, lua_State, lua_function,
};
use crate::state::{Api, Base, Core, Profile, is_text};
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
        // SAFETY: a library's function is on top, in a new state with room. It raises no error:
        // there is memory while functions of ours work (`Core::new`).
        unsafe { lua::lua_call(stack.state(), 0, 0) };
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
        setfenv: original(LUA_GLOBALSINDEX, "setfenv"),
    }));
    stack.push_function(table_setn);
    stack.set_field(table, b"setn");
    tables::replace(stack, table);
    for (name, function) in [("resume", resume as lua_CFunction), ("wrap", wrap)] {
        stack.push_function(function);
        stack.set_field(coroutine, name.as_bytes());
    }
    replace_globals(stack, core.api);
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
        Profile::Scripts => ApiCaller::Scripts,
        Profile::Library => ApiCaller::Functions,
    };
    api::push_table(stack, audience);
    stack.copy(-1);
    stack.set_field(LUA_GLOBALSINDEX, b"redis");
    stack.set_field(LUA_GLOBALSINDEX, b"server");
}

/// Takes away the functions that scripts must not have, and puts ours in the place of others.
fn replace_globals(stack: Stack, api: Api) {
    let insecure = INSECURE.into_iter().filter(|_| api == Api::Safe);
    for name in REMOVED.into_iter().chain(insecure) {
        stack.push_nil();
        stack.set_field(LUA_GLOBALSINDEX, name.as_bytes());
    }
    if api == Api::Insecure {
        stack.push_function(base_setfenv);
        stack.set_field(LUA_GLOBALSINDEX, b"setfenv");
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
    api::push_table(stack, ApiCaller::Loading);
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
raising_function!(base_setfenv, set_environment);
raising_function!(resume, resume_coroutine);
raising_function!(wrap, wrap_coroutine);
raising_function!(resume_wrapped, resume_upvalue);
raising_function!(base_next, go_on);
raising_function!(base_pcall, call_protected);
raising_function!(base_xpcall, call_with_handler);
raising_function!(unless_stopping, call_handler);
raising_function!(base_loadstring, load_source);

fn refuse_missing(stack: Stack) -> Returned {
    let name = String::from_utf8_lossy(stack.bytes(2).unwrap_or_default()).into_owned();
    Err(stack.fail(&format!("Script attempted to access nonexistent global variable '{name}'")))
}

/// A function that changes its first argument: refused for what is protected, else Lua's own.
macro_rules! changing {
    ($($shell:ident = $original:ident;)*) => {$(
        raising_function!($shell, |frame| {
            if let Err(raise) = check_change(*frame) {
                frame.raise(raise);
            }
            frame.original(|base| base.$original)
        });
    )*};
}

changing! {
    base_setmetatable = setmetatable;
    base_rawset = rawset;
    table_setn = setn;
}

/// `setfenv`, but not of what scripts are compiled in, which is that of other scripts as well.
fn set_environment(frame: Frame) -> c_int {
    frame.within(|stack| {
        if stack.is_number(1) && stack.number(1) == 0.0 {
            return Err(stack.fail("'setfenv' cannot change the environment that scripts share"));
        }
        Ok(())
    });
    frame.original(|base| base.setfenv)
}

/// `coroutine.resume`. The coroutine's hook comes as often as that of what runs, and what resumes
/// others all the time is looked at, too.
fn resume_coroutine(frame: Frame) -> c_int {
    frame.charge(RESUMED_STEPS);
    let core = frame.core();
    // SAFETY: any index may be asked about.
    let coroutine = unsafe { lua::lua_tothread(frame.state(), 1) };
    if !coroutine.is_null() {
        core.set_running(coroutine);
    }
    let count = frame.original(|base| base.resume);
    core.caught(frame.state());
    if core.is_stopping() {
        frame.raise_stop();
    }
    count
}

/// `coroutine.wrap`: a function that resumes a new coroutine.
fn wrap_coroutine(frame: Frame) -> c_int {
    if frame.kind(1) != LUA_TFUNCTION || frame.c_function(1).is_some() {
        frame.refuse_argument(1, c"Lua function expected");
    }
    frame.push_coroutine(1);
    frame.push_closure(resume_wrapped, 1);
    1
}

/// The function that `coroutine.wrap` returns: its upvalue is the coroutine. Errors in it are
/// raised here.
fn resume_upvalue(frame: Frame) -> c_int {
    frame.insist_on_room(4, c"too many arguments");
    frame.copy(lua::lua_upvalueindex(1));
    frame.insert(1);
    let count = resume_coroutine(frame);
    if frame.boolean(-count) {
        return count - 1;
    }
    if frame.kind(-1) == LUA_TSTRING {
        frame.push_place(1);
        frame.insert(-2);
        frame.concat(2);
    }
    frame.raise(Raise)
}

/// Steps that resuming is charged with: it may execute many instructions.
const RESUMED_STEPS: usize = 1024;

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
fn go_on(frame: Frame) -> c_int {
    if frame.kind(1) == LUA_TTABLE && push_marked(*frame, 1, &REAL) {
        frame.replace(1);
    }
    frame.original(|base| base.next)
}

fn begin_pairs(stack: Stack) -> Returned {
    if stack.kind(1) != LUA_TTABLE {
        let text = format!("table expected, got {}", stack.argument_kind(1));
        return Err(stack.bad_argument(1, "pairs", &text));
    }
    let next = match stack.core().base.get() {
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
fn call_protected(frame: Frame) -> c_int {
    if !frame.has(1) {
        frame.refuse_argument(1, c"value expected");
    }
    let status = frame.protected_call(frame.top() - 1, LUA_MULTRET, 0);
    end_protected(frame);
    if status != lua::LUA_OK && frame.kind(-1) == LUA_TTABLE {
        frame.push_field(frame.top(), b"err");
        if frame.bytes(-1).is_none() {
            frame.pop(1);
        }
    }
    frame.push_bool(status == lua::LUA_OK);
    if status == lua::LUA_OK {
        frame.insert(1);
        frame.top()
    } else {
        frame.insert(-2);
        2
    }
}

/// `xpcall`, which does not keep a script from being stopped either.
fn call_with_handler(frame: Frame) -> c_int {
    if !frame.has(2) {
        frame.refuse_argument(2, c"value expected");
    }
    frame.set_top(2);
    frame.push_closure(unless_stopping, 1);
    frame.insert(1);
    let status = frame.protected_call(0, LUA_MULTRET, 1);
    end_protected(frame);
    frame.push_bool(status == lua::LUA_OK);
    frame.replace(1);
    frame.top()
}

/// After a call that caught errors, and whose results may be as many as there was room for: goes on
/// with the error if the script is to end; makes room for two values more, or raises an error.
fn end_protected(frame: Frame) {
    frame.core().caught(frame.state());
    if frame.core().is_stopping() {
        frame.raise(Raise);
    }
    if !frame.reserve(2) {
        frame.set_top(0);
        frame.push_bytes(b"stack overflow");
        frame.raise(Raise);
    }
}

/// Calls a script's own handler of errors. Within the watch's hook no other hook is called, so that
/// a handler which never ends could not be ended: when the script is stopped, it is not asked.
fn call_handler(frame: Frame) -> c_int {
    if !frame.core().is_stopping() {
        frame.set_top(1);
        frame.copy(lua::lua_upvalueindex(1));
        frame.insert(1);
        frame.call(1, 1);
    }
    1
}

/// `loadstring`, of source only.
fn load_source(frame: Frame) -> c_int {
    let code = frame.argument(1);
    let name = if frame.kind(2) <= LUA_TNIL { code } else { frame.argument(2) };
    frame.charge(1);
    if !is_text(code) {
        frame.push_nil();
        frame.push_bytes(b"compiled code cannot be loaded");
        return 2;
    }
    if frame.load(code, text_of(name)) {
        return 1;
    }
    if frame.core().is_stopping() {
        frame.raise_stop();
    }
    frame.push_nil();
    frame.insert(-2);
    2
}

/// One of Lua's strings as C sees it: up to the first zero byte.
fn text_of(string: &[u8]) -> &CStr {
    // SAFETY: Lua has a zero byte behind each string, and keeps it as long as the string.
    unsafe { CStr::from_ptr(string.as_ptr().cast()) }
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
    // It has all that it needs. `getfenv` must not find the real globals by it.
    stack.push_field(LUA_GLOBALSINDEX, b"load");
    stack.push_table(0, 0);
    stack.set_environment(-2);
    stack.pop(1);
}

/// `collectgarbage`; how often garbage is collected is no script's business, as the state is
/// shared.
fn collect_garbage(stack: Stack) -> Returned {
    // SAFETY: the state is live. No finalizer runs in between: scripts can have none.
    let collect = |what| unsafe { lua::lua_gc(stack.state(), what, 0) };
    match if stack.has(1) { stack.bytes(1) } else { None } {
        Some(b"count") => {
            let kib = f64::from(collect(lua::LUA_GCCOUNT));
            stack.push_number(kib + f64::from(collect(lua::LUA_GCCOUNTB)) / 1024.0);
        }
        None | Some(b"collect") => {
            let core = stack.core();
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
    let core = stack.core();
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
    stack.core().random.set(u64::from(seed) << 16 | RANDOM_SEED_LOW);
    Ok(0)
}

/// Of the generator, as POSIX says it.
const RANDOM_FACTOR: u64 = 0x5_deec_e66d;
const RANDOM_ADDED: u64 = 0xb;
const RANDOM_SEED_LOW: u64 = 0x330e;
/// The largest number that is drawn counts as the smallest, so that a fraction is below 1.
const RANDOM_MAX: i32 = i32::MAX;

/// Not for scripts.
const REMOVED: [&str; 6] = ["dofile", "loadfile", "print", "require", "module", "package"];
/// For scripts only where somebody has said so.
const INSECURE: [&str; 3] = ["newproxy", "getfenv", "setfenv"];
