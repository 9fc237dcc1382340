//! Lua's C interface with the few conveniences that every file here uses.
//!
//! Lua reports errors by jumping over the frames of C functions. So that no destructor is jumped
//! over, every function that Lua calls is a thin shell around one that returns `Result`: only the
//! shell, which owns nothing, raises. Within the inner function nothing can fail for lack of
//! memory: see `Core::hosted`.

use mlua_sys as lua;
pub(crate) use mlua_sys::{
    LUA_GLOBALSINDEX, LUA_HOOKCOUNT, LUA_MASKCOUNT, LUA_MASKLINE, LUA_MULTRET, LUA_REGISTRYINDEX,
    LUA_TBOOLEAN, LUA_TFUNCTION, LUA_TLIGHTUSERDATA, LUA_TNIL, LUA_TNUMBER, LUA_TSTRING,
    LUA_TTABLE, lua_CFunction, lua_Debug, lua_State,
};
use std::ffi::{CStr, c_char, c_int, c_void};

unsafe extern "C" {
    /// Of `lua/peek.c`.
    fn bobbin_lua_has_fields(state: *mut lua_State, at: c_int) -> c_int;
    fn bobbin_lua_string(state: *mut lua_State, at: c_int, len: *mut usize) -> *const c_char;
}

/// A Lua state's stack, for whoever is called by Lua. All methods keep to the rules of Lua's
/// manual: an index names a value that is there, and what is pushed was made room for.
#[derive(Clone, Copy)]
pub(crate) struct Stack(pub(crate) *mut lua_State);

/// An error whose value lies on top of the stack. It must be raised.
pub(crate) struct Raise;

/// What a function that Lua calls comes to: how many results it pushed.
pub(crate) type Returned = Result<c_int, Raise>;

/// A function of ours, as Lua sees it.
macro_rules! lua_function {
    ($shell:ident, $inner:path) => {
        pub(crate) unsafe extern "C-unwind" fn $shell(
            state: *mut $crate::state::raw::lua_State,
        ) -> std::ffi::c_int {
            // SAFETY: Lua calls it with a state whose core is alive, and nothing with a destructor
            // lives in this frame when it raises.
            unsafe { $crate::state::raw::enter(state, $inner) }
        }
    };
}
pub(crate) use lua_function;

/// Calls the inner part of a function, and raises what it could not do.
///
/// # Safety
/// To be called by a function that Lua called, as its last deed.
#[inline(always)]
pub(crate) unsafe fn enter(state: *mut lua_State, inner: fn(Stack) -> Returned) -> c_int {
    // SAFETY: as above; `lua_error` jumps over this frame and the shell, which own nothing.
    unsafe {
        let core = crate::state::core_of(state);
        core.hosted.set(core.hosted.get() + 1);
        let returned = inner(Stack(state));
        core.hosted.set(core.hosted.get() - 1);
        match returned {
            Ok(count) => count,
            Err(Raise) => lua::lua_error(state),
        }
    }
}

// SAFETY (of every block below): `Stack` is made of a live state only, and see its comment.
#[allow(clippy::undocumented_unsafe_blocks)]
impl Stack {
    #[inline(always)]
    pub(crate) fn top(self) -> c_int {
        unsafe { lua::lua_gettop(self.0) }
    }

    #[inline(always)]
    pub(crate) fn set_top(self, top: c_int) {
        unsafe { lua::lua_settop(self.0, top) }
    }

    #[inline(always)]
    pub(crate) fn pop(self, count: c_int) {
        self.set_top(-count - 1);
    }

    /// Makes room for `count` more values; returns whether that was possible.
    #[inline(always)]
    pub(crate) fn reserve(self, count: c_int) -> bool {
        unsafe { lua::lua_checkstack(self.0, count) != 0 }
    }

    #[inline(always)]
    pub(crate) fn kind(self, at: c_int) -> c_int {
        unsafe { lua::lua_type(self.0, at) }
    }

    pub(crate) fn kind_name(self, at: c_int) -> &'static str {
        let name = unsafe { CStr::from_ptr(lua::lua_typename(self.0, self.kind(at))) };
        name.to_str().unwrap_or("value")
    }

    #[inline(always)]
    pub(crate) fn copy(self, at: c_int) {
        unsafe { lua::lua_pushvalue(self.0, at) }
    }

    pub(crate) fn remove(self, at: c_int) {
        unsafe { lua::lua_remove(self.0, at) }
    }

    pub(crate) fn insert(self, at: c_int) {
        unsafe { lua::lua_insert(self.0, at) }
    }

    pub(crate) fn replace(self, at: c_int) {
        unsafe { lua::lua_replace(self.0, at) }
    }

    #[inline(always)]
    pub(crate) fn push_nil(self) {
        unsafe { lua::lua_pushnil(self.0) }
    }

    #[inline(always)]
    pub(crate) fn push_bool(self, value: bool) {
        unsafe { lua::lua_pushboolean(self.0, c_int::from(value)) }
    }

    #[inline(always)]
    pub(crate) fn push_number(self, value: f64) {
        unsafe { lua::lua_pushnumber(self.0, value) }
    }

    #[inline(always)]
    pub(crate) fn push_bytes(self, bytes: &[u8]) {
        unsafe { lua::lua_pushlstring_(self.0, bytes.as_ptr().cast(), bytes.len()) }
    }

    pub(crate) fn push_pointer(self, pointer: *const c_void) {
        unsafe { lua::lua_pushlightuserdata(self.0, pointer.cast_mut()) }
    }

    pub(crate) fn push_function(self, function: lua_CFunction) {
        self.push_closure(function, 0);
    }

    /// With the `count` values on top as upvalues, which it takes.
    pub(crate) fn push_closure(self, function: lua_CFunction, count: c_int) {
        unsafe { lua::lua_pushcclosure(self.0, function, count) }
    }

    #[inline(always)]
    pub(crate) fn push_table(self, elements: usize, fields: usize) {
        let size = |count: usize| c_int::try_from(count.min(PRESIZED_MAX)).unwrap_or(0);
        unsafe { lua::lua_createtable(self.0, size(elements), size(fields)) }
    }

    #[inline(always)]
    pub(crate) fn raw_get(self, table: c_int) {
        unsafe { lua::lua_rawget_(self.0, table) }
    }

    #[inline(always)]
    pub(crate) fn raw_set(self, table: c_int) {
        unsafe { lua::lua_rawset(self.0, table) }
    }

    #[inline(always)]
    pub(crate) fn raw_get_at(self, table: c_int, index: c_int) {
        unsafe { lua::lua_rawgeti_(self.0, table, index) }
    }

    #[inline(always)]
    pub(crate) fn raw_set_at(self, table: c_int, index: c_int) {
        unsafe { lua::lua_rawseti_(self.0, table, index) }
    }

    /// Pushes a table's field, past metatables. `table` is an absolute or pseudo index.
    #[inline(always)]
    pub(crate) fn push_field(self, table: c_int, name: &[u8]) {
        self.push_bytes(name);
        self.raw_get(table);
    }

    /// Whether the table has keys that are no elements of its array. There may be none where this
    /// says so.
    #[inline(always)]
    pub(crate) fn has_fields(self, table: c_int) -> bool {
        unsafe { bobbin_lua_has_fields(self.0, table) != 0 }
    }

    /// Sets a table's field to the value on top, which it takes.
    #[inline(always)]
    pub(crate) fn set_field(self, table: c_int, name: &[u8]) {
        self.push_bytes(name);
        self.insert(-2);
        self.raw_set(table);
    }

    pub(crate) fn next(self, table: c_int) -> bool {
        unsafe { lua::lua_next(self.0, table) != 0 }
    }

    /// The number of elements, of a table or string.
    pub(crate) fn len(self, at: c_int) -> usize {
        unsafe { lua::lua_objlen(self.0, at) }
    }

    /// A value that is a number, or a string that reads as one.
    pub(crate) fn is_number(self, at: c_int) -> bool {
        unsafe { lua::lua_isnumber(self.0, at) != 0 }
    }

    #[inline(always)]
    pub(crate) fn number(self, at: c_int) -> f64 {
        unsafe { lua::lua_tonumber(self.0, at) }
    }

    pub(crate) fn boolean(self, at: c_int) -> bool {
        unsafe { lua::lua_toboolean(self.0, at) != 0 }
    }

    /// The bytes of a string, or of a number's text (which it becomes). They live as long as the
    /// value does: the caller keeps that on the stack.
    #[inline(always)]
    pub(crate) fn bytes<'a>(self, at: c_int) -> Option<&'a [u8]> {
        let mut len = 0;
        unsafe {
            let start = lua::lua_tolstring(self.0, at, &raw mut len);
            (!start.is_null()).then(|| std::slice::from_raw_parts(start.cast(), len))
        }
    }

    /// The bytes of a string on the stack; numbers have none here, and stay what they are.
    #[inline(always)]
    pub(crate) fn string<'a>(self, at: c_int) -> Option<&'a [u8]> {
        let mut len = 0;
        unsafe {
            let start = bobbin_lua_string(self.0, at, &raw mut len);
            (!start.is_null()).then(|| std::slice::from_raw_parts(start.cast(), len))
        }
    }

    pub(crate) fn light_pointer(self, at: c_int) -> *mut c_void {
        unsafe { lua::lua_touserdata(self.0, at) }
    }

    pub(crate) fn c_function(self, at: c_int) -> Option<lua_CFunction> {
        unsafe { lua::lua_tocfunction(self.0, at) }
    }

    /// Pushes the value's metatable, if it has one.
    pub(crate) fn push_metatable(self, at: c_int) -> bool {
        unsafe { lua::lua_getmetatable(self.0, at) != 0 }
    }

    pub(crate) fn set_metatable(self, at: c_int) {
        unsafe { _ = lua::lua_setmetatable(self.0, at) }
    }

    /// Compiles; pushes the function or the error's text. While it compiles, the script's host is
    /// asked from time to time.
    pub(crate) fn load(self, code: &[u8], name: &CStr) -> bool {
        if code.len() > SOURCE_LEN_MAX {
            self.push_bytes(b"the source is too long");
            return false;
        }
        // Lua keeps the name in a string that nothing else refers to at first (CVE-2025-49844).
        // This one is the same.
        self.push_bytes(name.to_bytes());
        let anchor = self.top();
        let mut source = Source { rest: code, started: std::time::Instant::now() };
        let status =
            unsafe { lua::lua_load(self.0, next_piece, (&raw mut source).cast(), name.as_ptr()) };
        self.remove(anchor);
        status == 0
    }

    /// Calls a function with the arguments above it, in protected mode.
    pub(crate) fn protected_call(self, arguments: c_int, results: c_int, handler: c_int) -> c_int {
        unsafe { lua::lua_pcall(self.0, arguments, results, handler) }
    }

    /// Takes the value on top and keeps it; the number gets it back.
    pub(crate) fn keep(self) -> c_int {
        unsafe { lua::luaL_ref(self.0, LUA_REGISTRYINDEX) }
    }

    pub(crate) fn forget(self, reference: c_int) {
        unsafe { lua::luaL_unref(self.0, LUA_REGISTRYINDEX, reference) }
    }

    #[inline(always)]
    pub(crate) fn push_kept(self, reference: c_int) {
        self.raw_get_at(LUA_REGISTRYINDEX, reference);
    }

    /// Pushes an error's text, with the place in the script before it.
    pub(crate) fn fail(self, text: &str) -> Raise {
        unsafe { lua::luaL_where(self.0, 1) };
        self.push_bytes(text.as_bytes());
        unsafe { lua::lua_concat(self.0, 2) };
        Raise
    }

    /// Pushes the text of an error about an argument of the current function.
    pub(crate) fn bad_argument(self, at: c_int, function: &str, text: &str) -> Raise {
        self.fail(&format!("bad argument #{at} to '{function}' ({text})"))
    }

    /// Whether the value is there at all.
    pub(crate) fn has(self, at: c_int) -> bool {
        at <= self.top()
    }

    /// An argument that must be a string or a number.
    pub(crate) fn check_bytes<'a>(self, at: c_int, function: &str) -> Result<&'a [u8], Raise> {
        self.bytes(at).ok_or_else(|| {
            let text = format!("string expected, got {}", self.argument_kind(at));
            self.bad_argument(at, function, &text)
        })
    }

    /// An argument that must be a number, or a string that reads as one.
    pub(crate) fn check_number(self, at: c_int, function: &str) -> Result<f64, Raise> {
        if self.is_number(at) {
            return Ok(self.number(at));
        }
        let text = format!("number expected, got {}", self.argument_kind(at));
        Err(self.bad_argument(at, function, &text))
    }

    /// An argument that must be a number, as an integer; see [`integer`].
    pub(crate) fn check_integer(self, at: c_int, function: &str) -> Result<i64, Raise> {
        self.check_number(at, function).map(integer)
    }

    pub(crate) fn argument_kind(self, at: c_int) -> &'static str {
        if self.has(at) { self.kind_name(at) } else { "no value" }
    }
}

/// Source that is compiled piece by piece.
struct Source<'a> {
    rest: &'a [u8],
    started: std::time::Instant,
}

/// Gives Lua the next piece of source. Some source takes Lua much longer than its length says: that
/// is ended by the script's host, or when it is too much.
unsafe extern "C-unwind" fn next_piece(
    state: *mut lua_State,
    source: *mut c_void,
    len: *mut usize,
) -> *const c_char {
    // SAFETY: Lua passes what `load` gave it, which outlives the call. Nothing here has a
    // destructor when an error is raised, and `load` is called in Lua's protected mode.
    unsafe {
        let (stack, source) = (Stack(state), &mut *source.cast::<Source<'_>>());
        let core = crate::state::core_of(state);
        if !core.look(stack) {
            core.raise_stop(stack);
        }
        if core.host().is_none() && source.started.elapsed() > COMPILED_MAX {
            stack.push_bytes(b"it takes too long to compile");
            lua::lua_error(state);
        }
        let (piece, rest) = source.rest.split_at(source.rest.len().min(PIECE_LEN));
        source.rest = rest;
        *len = piece.len();
        if piece.is_empty() { std::ptr::null() } else { piece.as_ptr().cast() }
    }
}

/// A number without its fraction. What has no place in 64 bits (infinities and NaN, too) is the
/// smallest integer, as on the processors that most servers run on: C leaves it open, but scripts
/// have come to see that.
pub(crate) fn integer(number: f64) -> i64 {
    let whole = number.trunc();
    if (-INTEGER_BOUND..INTEGER_BOUND).contains(&whole) { whole as i64 } else { i64::MIN }
}

/// 2^63.
const INTEGER_BOUND: f64 = 9_223_372_036_854_775_808.0;
/// Tables are not made larger beforehand than this: a number in an input need not be true.
const PRESIZED_MAX: usize = 1 << 16;
/// Longer source is not compiled, in bytes. It keeps all that Lua counts in it within an `int`
/// (CVE-2025-46819).
pub(crate) const SOURCE_LEN_MAX: usize = 16 << 20;
/// What Lua gets at once, in bytes.
const PIECE_LEN: usize = 4096;
/// How long compiling may take while no script runs that could be ended.
const COMPILED_MAX: std::time::Duration = std::time::Duration::from_secs(1);
