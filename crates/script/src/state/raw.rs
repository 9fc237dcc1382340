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
use std::time::Duration;

use super::Core;
use super::frame::Frame;

unsafe extern "C" {
    /// Of `lua/peek.c`.
    fn bobbin_lua_has_fields(state: *mut lua_State, at: c_int) -> c_int;
    fn bobbin_lua_list_len(state: *mut lua_State, at: c_int, most: c_int) -> c_int;
    fn bobbin_lua_string(state: *mut lua_State, at: c_int, len: *mut usize) -> *const c_char;
}

/// A Lua state's stack, for a function that Lua calls.
///
/// - *Live*: the state, or coroutine, belongs to a [`Vm`](crate::Vm) that outlives every use of
///   this and of its copies. `of` asks its callers for that.
/// - *Rules*: callers keep to Lua's manual. An index names a value that is there, and that is a
///   table where a method works on tables. There is room for what is pushed: Lua gives a function
///   room for 20 values, and `reserve` makes more. Bytes of a string are used while it lies on the
///   stack. Nothing else uses the state meanwhile.
///
/// The methods are safe functions all the same, as all that is done with a state would be unsafe
/// otherwise. Readers check each function of this crate that has a stack for the rules.
#[derive(Clone, Copy)]
pub(crate) struct Stack(*mut lua_State);

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
            // SAFETY: Lua passes the state that calls. This function owns nothing, and `enter` is
            // all that it does.
            unsafe { $crate::state::raw::enter(state, $inner) }
        }
    };
}
pub(crate) use lua_function;

/// Calls the inner part of a function, and raises what it could not do.
///
/// # Safety
/// Lua called the caller with this state. The caller has nothing with a destructor, and returns
/// what this returns.
#[inline(always)]
pub(crate) unsafe fn enter(state: *mut lua_State, inner: fn(Stack) -> Returned) -> c_int {
    // SAFETY: the state calls, so it is alive. Neither the caller nor this function has anything
    // with a destructor when an error is raised: `inner` has returned by then.
    let frame = unsafe { Frame::of(state) };
    let hosted = &frame.core().hosted;
    hosted.set(hosted.get() + 1);
    let returned = inner(*frame);
    hosted.set(hosted.get() - 1);
    returned.unwrap_or_else(|raise| frame.raise(raise))
}

/// Methods that are one call of Lua's; those behind `asks` return whether it said yes.
macro_rules! calls {
    ($(
        $(#[$attribute:meta])*
        fn $name:ident($($argument:ident: $type:ty),*) $(-> $result:ty)? = $function:path;
    )* asks: $(
        $(#[$question_attribute:meta])*
        fn $question:ident($($asked:ident: $asked_type:ty),*) = $answer:path;
    )*) => {
        $(
            $(#[$attribute])*
            #[inline(always)]
            pub(crate) fn $name(self $(, $argument: $type)*) $(-> $result)? {
                // SAFETY: the state is *live*, and callers keep to the *rules*.
                unsafe { $function(self.0 $(, $argument)*) }
            }
        )*
        $(
            $(#[$question_attribute])*
            #[inline(always)]
            pub(crate) fn $question(self $(, $asked: $asked_type)*) -> bool {
                // SAFETY: the state is *live*, and callers keep to the *rules*.
                unsafe { $answer(self.0 $(, $asked)*) != 0 }
            }
        )*
    };
}

impl Stack {
    calls! {
        fn top() -> c_int = lua::lua_gettop;
        fn set_top(top: c_int) = lua::lua_settop;
        fn kind(at: c_int) -> c_int = lua::lua_type;
        fn copy(at: c_int) = lua::lua_pushvalue;
        fn remove(at: c_int) = lua::lua_remove;
        fn insert(at: c_int) = lua::lua_insert;
        fn replace(at: c_int) = lua::lua_replace;
        fn push_nil() = lua::lua_pushnil;
        fn push_number(value: f64) = lua::lua_pushnumber;
        /// With the `count` values on top as upvalues, which it takes.
        fn push_closure(function: lua_CFunction, count: c_int) = lua::lua_pushcclosure;
        fn raw_get(table: c_int) = lua::lua_rawget_;
        fn raw_set(table: c_int) = lua::lua_rawset;
        fn raw_get_at(table: c_int, index: c_int) = lua::lua_rawgeti_;
        fn raw_set_at(table: c_int, index: c_int) = lua::lua_rawseti_;
        /// The number of elements, of a table or string.
        fn len(at: c_int) -> usize = lua::lua_objlen;
        fn number(at: c_int) -> f64 = lua::lua_tonumber;
        fn light_pointer(at: c_int) -> *mut c_void = lua::lua_touserdata;
        fn c_function(at: c_int) -> Option<lua_CFunction> = lua::lua_tocfunction;
        /// Makes one string of the `count` strings on top.
        fn concat(count: c_int) = lua::lua_concat;
        /// Pushes the place in the script that a function was called from.
        fn push_place(level: c_int) = lua::luaL_where;
        /// Calls a function with the arguments above it, in protected mode.
        fn protected_call(arguments: c_int, results: c_int, handler: c_int) -> c_int
            = lua::lua_pcall;

    asks:
        /// Makes room for `count` more values; returns whether that was possible.
        fn reserve(count: c_int) = lua::lua_checkstack;
        /// Whether the table has keys that are no elements of its array. There may be none where
        /// this says so.
        fn has_fields(table: c_int) = bobbin_lua_has_fields;
        fn next(table: c_int) = lua::lua_next;
        /// A value that is a number, or a string that reads as one.
        fn is_number(at: c_int) = lua::lua_isnumber;
        fn boolean(at: c_int) = lua::lua_toboolean;
        /// Pushes the value's metatable, if it has one.
        fn push_metatable(at: c_int) = lua::lua_getmetatable;
    }

    /// # Safety
    /// The state, or coroutine, is one of a `Vm` that outlives every use of the result and of its
    /// copies; and nothing else uses it meanwhile.
    #[inline(always)]
    pub(crate) const unsafe fn of(state: *mut lua_State) -> Self {
        Self(state)
    }

    #[inline(always)]
    pub(crate) const fn state(self) -> *mut lua_State {
        self.0
    }

    /// What belongs to the state.
    #[inline(always)]
    pub(crate) fn core<'a>(self) -> &'a Core {
        let mut core = std::ptr::null_mut();
        // SAFETY: the state is *live*; it writes what its allocator was given.
        unsafe { lua::lua_getallocf(self.0, &raw mut core) };
        // SAFETY: `Vm::new` gave the allocator the core, which lives until the state is closed and
        // is only ever shared. A function that Lua calls does not outlive that.
        unsafe { &*core.cast::<Core>() }
    }

    #[inline(always)]
    pub(crate) fn pop(self, count: c_int) {
        self.set_top(-count - 1);
    }

    /// The number of elements of a table that is a list, and lies as one; `None`: it may be one all
    /// the same, or is long.
    #[inline(always)]
    pub(crate) fn list_len(self, table: c_int) -> Option<usize> {
        // SAFETY: the state is *live*, and callers keep to the *rules*: it is a table.
        usize::try_from(unsafe { bobbin_lua_list_len(self.0, table, LISTED_MAX) }).ok()
    }

    pub(crate) fn kind_name(self, at: c_int) -> &'static str {
        // SAFETY: the state is *live*, and Lua has a name for each kind: a text that lives for
        // ever.
        let name = unsafe { CStr::from_ptr(lua::lua_typename(self.0, self.kind(at))) };
        name.to_str().unwrap_or("value")
    }

    #[inline(always)]
    pub(crate) fn push_bool(self, value: bool) {
        // SAFETY: the state is *live*, and callers keep to the *rules*.
        unsafe { lua::lua_pushboolean(self.0, c_int::from(value)) }
    }

    #[inline(always)]
    pub(crate) fn push_bytes(self, bytes: &[u8]) {
        // SAFETY: the state is *live*, callers keep to the *rules*, and Lua copies the bytes.
        unsafe { lua::lua_pushlstring_(self.0, bytes.as_ptr().cast(), bytes.len()) }
    }

    pub(crate) fn push_pointer(self, pointer: *const c_void) {
        // SAFETY: the state is *live*, callers keep to the *rules*, and Lua only keeps the address.
        unsafe { lua::lua_pushlightuserdata(self.0, pointer.cast_mut()) }
    }

    pub(crate) fn push_function(self, function: lua_CFunction) {
        self.push_closure(function, 0);
    }

    #[inline(always)]
    pub(crate) fn push_table(self, elements: usize, fields: usize) {
        let size = |count: usize| c_int::try_from(count.min(PRESIZED_MAX)).unwrap_or(0);
        // SAFETY: the state is *live*, and callers keep to the *rules*; no size is negative.
        unsafe { lua::lua_createtable(self.0, size(elements), size(fields)) }
    }

    /// Pushes a table's field, past metatables. `table` is an absolute or pseudo index.
    #[inline(always)]
    pub(crate) fn push_field(self, table: c_int, name: &[u8]) {
        self.push_bytes(name);
        self.raw_get(table);
    }

    /// Sets a table's field to the value on top, which it takes.
    #[inline(always)]
    pub(crate) fn set_field(self, table: c_int, name: &[u8]) {
        self.push_bytes(name);
        self.insert(-2);
        self.raw_set(table);
    }

    /// The bytes of a string, or of a number's text (which it becomes). They live as long as the
    /// value does: the caller keeps that on the stack.
    #[inline(always)]
    pub(crate) fn bytes<'a>(self, at: c_int) -> Option<&'a [u8]> {
        let mut len = 0;
        // SAFETY: the state is *live*, callers keep to the *rules*, and the length is written to
        // `len`.
        let start = unsafe { lua::lua_tolstring(self.0, at, &raw mut len) };
        // SAFETY: Lua's string has `len` bytes there. It neither moves nor changes while the
        // *rules* have the caller keep it on the stack.
        (!start.is_null()).then(|| unsafe { std::slice::from_raw_parts(start.cast(), len) })
    }

    /// The bytes of a string on the stack; numbers have none here, and stay what they are.
    #[inline(always)]
    pub(crate) fn string<'a>(self, at: c_int) -> Option<&'a [u8]> {
        let mut len = 0;
        // SAFETY: the state is *live*, callers keep to the *rules*, and the length is written to
        // `len`.
        let start = unsafe { bobbin_lua_string(self.0, at, &raw mut len) };
        // SAFETY: Lua's string has `len` bytes there. It neither moves nor changes while the
        // *rules* have the caller keep it on the stack.
        (!start.is_null()).then(|| unsafe { std::slice::from_raw_parts(start.cast(), len) })
    }

    pub(crate) fn set_metatable(self, at: c_int) {
        // SAFETY: the state is *live*, and callers keep to the *rules*: a table or nil is on top.
        unsafe { _ = lua::lua_setmetatable(self.0, at) }
    }

    /// Takes the table on top for the environment of the function at an index.
    pub(crate) fn set_environment(self, at: c_int) {
        // SAFETY: the state is *live*, and callers keep to the *rules*: a table is on top.
        unsafe { _ = lua::lua_setfenv(self.0, at) }
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
        let mut source = Source { rest: code, started: thread_time() };
        // SAFETY: the state is *live*, and callers keep to the *rules*. The reader gets the source,
        // which lives through the call and is used by nothing else, and the name ends in a zero
        // byte.
        let status =
            unsafe { lua::lua_load(self.0, next_piece, (&raw mut source).cast(), name.as_ptr()) };
        self.remove(anchor);
        status == 0
    }

    /// Takes the value on top and keeps it; the number gets it back.
    pub(crate) fn keep(self) -> c_int {
        // SAFETY: the state is *live*, and callers keep to the *rules*: a value is on top.
        unsafe { lua::luaL_ref(self.0, LUA_REGISTRYINDEX) }
    }

    pub(crate) fn forget(self, reference: c_int) {
        // SAFETY: the state is *live*, and the number is one that `keep` gave.
        unsafe { lua::luaL_unref(self.0, LUA_REGISTRYINDEX, reference) }
    }

    #[inline(always)]
    pub(crate) fn push_kept(self, reference: c_int) {
        self.raw_get_at(LUA_REGISTRYINDEX, reference);
    }

    /// Pushes an error's text, with the place in the script before it.
    pub(crate) fn fail(self, text: &str) -> Raise {
        self.push_place(1);
        self.push_bytes(text.as_bytes());
        self.concat(2);
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
    /// In time of this thread on a processor: a busy machine makes no source too long.
    started: Duration,
}

/// Gives Lua the next piece of source. Some source takes Lua much longer than its length says: that
/// is ended by the script's host, or when it is too much.
unsafe extern "C-unwind" fn next_piece(
    state: *mut lua_State,
    source: *mut c_void,
    len: *mut usize,
) -> *const c_char {
    // SAFETY: Lua calls this in `load`'s protected mode, with its state. Nothing here has a
    // destructor when an error is raised.
    let frame = unsafe { Frame::of(state) };
    // SAFETY: Lua passes what `load` gave it, a source that lives through the call and is used by
    // nothing else.
    let source = unsafe { &mut *source.cast::<Source<'_>>() };
    let core = frame.core();
    if !core.look(*frame) {
        frame.raise_stop();
    }
    // Where nothing is left it is compiled by now; what is short never takes too long, however
    // slowly the machine gets on.
    let is_left = !source.rest.is_empty();
    if is_left && core.host().is_none() && thread_time() - source.started > COMPILED_MAX {
        frame.push_bytes(b"it takes too long to compile");
        frame.raise(Raise);
    }
    let (piece, rest) = source.rest.split_at(source.rest.len().min(PIECE_LEN));
    source.rest = rest;
    // SAFETY: Lua passes the place of a length of its own.
    unsafe { *len = piece.len() };
    if piece.is_empty() { std::ptr::null() } else { piece.as_ptr().cast() }
}

/// How long this thread has had a processor.
fn thread_time() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// A number without its fraction. What has no place in 64 bits (infinities and NaN, too) is the
/// smallest integer, as on the processors that most servers run on: C leaves it open, but scripts
/// have come to see that.
pub(crate) fn integer(number: f64) -> i64 {
    let whole = number.trunc();
    if (-INTEGER_BOUND..INTEGER_BOUND).contains(&whole) { whole as i64 } else { i64::MIN }
}

/// Lists of more elements are not counted in one go, without a look at the clock.
const LISTED_MAX: c_int = 1 << 16;
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
const COMPILED_MAX: Duration = Duration::from_secs(1);
