//! A call of one of our functions by Lua, within which errors are raised by jumping.
//!
//! Most functions of ours return a `Result` to a shell that raises (`lua_function`). The others
//! call what raises by itself: Lua's functions on values, other functions, and whatever may lack
//! memory. A jump runs no destructor. So a function that has a [`Frame`] *owns nothing*: when it
//! calls a method of the frame, no value with a destructor lives in it, nor in its callers up to
//! Lua. What it has are numbers, pointers, and slices of what lies on Lua's stack.
//!
//! That, and the rules of `Stack`, is what the methods here ask of their callers. They are safe
//! functions all the same, as every line of such a function would be unsafe otherwise: a reader
//! checks the function as a whole.

use std::ffi::{CStr, c_char, c_int};
use std::marker::PhantomData;
use std::mem::MaybeUninit;
use std::ops::Deref;

use mlua_sys as lua;

use super::Base;
use super::raw::{Raise, Stack, lua_CFunction, lua_State};

/// The stack of the function that Lua called, with what may raise.
#[derive(Clone, Copy)]
pub(crate) struct Frame {
    stack: Stack,
}

/// A function of ours that raises errors itself, as Lua sees it.
macro_rules! raising_function {
    ($shell:ident, $inner:expr) => {
        pub(crate) unsafe extern "C-unwind" fn $shell(
            state: *mut $crate::state::raw::lua_State,
        ) -> std::ffi::c_int {
            let inner: fn($crate::state::frame::Frame) -> std::ffi::c_int = $inner;
            // SAFETY: Lua passes the state that calls, and neither this function nor Lua's own,
            // which are C, has anything with a destructor.
            inner(unsafe { $crate::state::frame::Frame::of(state) })
        }
    };
}
pub(crate) use raising_function;

impl Deref for Frame {
    type Target = Stack;

    #[inline(always)]
    fn deref(&self) -> &Stack {
        &self.stack
    }
}

impl Frame {
    /// # Safety
    /// Lua called the caller with this state, whose `Vm` outlives the call. The caller *owns
    /// nothing* from here on.
    #[inline(always)]
    pub(crate) unsafe fn of(state: *mut lua_State) -> Self {
        // SAFETY: the state calls, so it is alive until the call is over.
        Self { stack: unsafe { Stack::of(state) } }
    }

    /// Raises the error on top of the stack.
    pub(crate) fn raise(self, Raise: Raise) -> ! {
        // SAFETY: the state called us, so something in C waits to catch the error; what is jumped
        // over on the way *owns nothing*.
        unsafe { lua::lua_error(self.state()) }
    }

    /// Ends the script that is to end.
    pub(crate) fn raise_stop(self) -> ! {
        let core = self.core();
        core.hosted.set(1);
        let raise = core.stop(*self, "");
        core.hosted.set(0);
        self.raise(raise)
    }

    /// What a part of a function comes to in which memory must not be short; its error is raised.
    #[inline(always)]
    pub(crate) fn within<T: Copy>(self, part: impl FnOnce(Stack) -> Result<T, Raise>) -> T {
        let hosted = &self.core().hosted;
        hosted.set(hosted.get() + 1);
        let outcome = part(*self);
        hosted.set(hosted.get() - 1);
        outcome.unwrap_or_else(|raise| self.raise(raise))
    }

    /// Charges for work, as `Core::charge`.
    #[inline(always)]
    pub(crate) fn charge(self, steps: usize) {
        if let Err(raise) = self.core().charge(*self, steps) {
            self.raise(raise);
        }
    }

    /// Charges for a string that the function makes, and checks that there is memory for it.
    pub(crate) fn charge_string(self, len: usize) {
        if let Err(raise) = self.core().charge_string(*self, len) {
            self.raise(raise);
        }
    }

    /// Charges for two values that are compared.
    pub(crate) fn charge_comparison(self) {
        self.charge(self.core().comparison_steps());
    }

    /// Calls one of Lua's own functions as if Lua had called it instead of us; its results are
    /// ours.
    pub(crate) fn original(self, which: impl FnOnce(Base) -> lua_CFunction) -> c_int {
        match self.core().base.get() {
            // SAFETY: the function came from Lua's libraries and expects to be called with a state
            // that calls, as it is; its errors jump over what *owns nothing*.
            Some(base) => unsafe { which(base)(self.state()) },
            None => 0,
        }
    }

    /// Calls the function below the arguments on top, and has this number of results pushed
    /// instead.
    pub(crate) fn call(self, arguments: c_int, results: c_int) {
        // SAFETY: the *rules* put a function and its arguments there. Errors jump over what *owns
        // nothing*.
        unsafe { lua::lua_call(self.state(), arguments, results) }
    }

    /// Pushes what a table, or whatever stands for one, has under the key on top, which it takes.
    pub(crate) fn look_up(self, table: c_int) {
        // SAFETY: the *rules* put a value and a key there. Errors jump over what *owns nothing*.
        unsafe { lua::lua_gettable_(self.state(), table) }
    }

    /// `<`
    pub(crate) fn is_less(self, one: c_int, other: c_int) -> bool {
        // SAFETY: the *rules* put both values there. Errors jump over what *owns nothing*.
        unsafe { lua::lua_lessthan(self.state(), one, other) != 0 }
    }

    /// Makes room for `count` more values, or raises an error with this text.
    pub(crate) fn insist_on_room(self, count: c_int, text: &CStr) {
        // SAFETY: the text ends in a zero byte. An error jumps over what *owns nothing*.
        unsafe { lua::luaL_checkstack_(self.state(), count, text.as_ptr()) }
    }

    /// Raises an error about an argument.
    pub(crate) fn refuse_argument(self, at: c_int, text: &CStr) -> ! {
        // SAFETY: the text ends in a zero byte. The error jumps over what *owns nothing*.
        unsafe { lua::luaL_argerror(self.state(), at, text.as_ptr()) };
        unreachable!("Lua raises an error about argument {at}")
    }

    /// An argument that must be of this kind.
    pub(crate) fn insist_on_kind(self, at: c_int, kind: c_int) {
        // SAFETY: any index may be asked about. An error jumps over what *owns nothing*.
        unsafe { lua::luaL_checktype(self.state(), at, kind) }
    }

    /// An argument that must be a string or a number, which becomes its text. The bytes live as
    /// long as the argument is on the stack.
    pub(crate) fn argument<'a>(self, at: c_int) -> &'a [u8] {
        let mut len = 0;
        // SAFETY: any index may be asked about, and the length is written to `len`. An error jumps
        // over what *owns nothing*.
        let start = unsafe { lua::luaL_checklstring(self.state(), at, &raw mut len) };
        // SAFETY: Lua's string has `len` bytes there, and keeps them as they are while the *rules*
        // have the caller keep it on the stack.
        unsafe { std::slice::from_raw_parts(start.cast(), len) }
    }

    /// An argument that must be a number.
    pub(crate) fn integer(self, at: c_int) -> i64 {
        // SAFETY: any index may be asked about. An error jumps over what *owns nothing*.
        unsafe { lua::luaL_checkinteger(self.state(), at) as i64 }
    }

    /// An argument that must be a number if it is there.
    pub(crate) fn integer_or(self, at: c_int, default: usize) -> i64 {
        if self.kind(at) <= lua::LUA_TNIL { default as i64 } else { self.integer(at) }
    }

    /// Pushes a block of Lua's own memory.
    pub(crate) fn push_block<'a>(self, len: usize) -> &'a mut [MaybeUninit<u8>] {
        // SAFETY: an error, that there is no memory, jumps over what *owns nothing*.
        let start = unsafe { lua::lua_newuserdata(self.state(), len) };
        // SAFETY: the block is new, so it has no other owner, and is `len` bytes long. It lives
        // while the *rules* have the caller keep it on the stack.
        unsafe { std::slice::from_raw_parts_mut(start.cast(), len) }
    }

    /// Pushes a new coroutine that begins with a function of the stack.
    pub(crate) fn push_coroutine(self, function: c_int) {
        // SAFETY: an error, that there is no memory, jumps over what *owns nothing*.
        let coroutine = unsafe { lua::lua_newthread(self.state()) };
        self.copy(function);
        // SAFETY: the new coroutine lies on the stack, so it is alive, and has room for a function.
        unsafe { lua::lua_xmove(self.state(), coroutine, 1) };
    }

    /// Begins a string that is made piece by piece. While it is made, its pieces lie on the stack,
    /// below what is pushed.
    pub(crate) fn begin_string(
        self,
        place: &mut MaybeUninit<lua::luaL_Buffer>,
    ) -> StringBuilder<'_> {
        let buffer = place.as_mut_ptr();
        // SAFETY: the place is ours for as long as the result lives, and is initialised here.
        unsafe { lua::luaL_buffinit(self.state(), buffer) };
        StringBuilder { buffer, place: PhantomData }
    }
}

/// A string that is made piece by piece, in a place that was begun by Lua and is used by it alone.
pub(crate) struct StringBuilder<'a> {
    buffer: *mut lua::luaL_Buffer,
    place: PhantomData<&'a mut lua::luaL_Buffer>,
}

impl StringBuilder<'_> {
    pub(crate) fn add(&mut self, bytes: &[u8]) {
        // SAFETY: the buffer was begun and not ended, and Lua copies the bytes. An error jumps over
        // what *owns nothing*: `begin_string` was called by such a function.
        unsafe { lua::luaL_addlstring(self.buffer, bytes.as_ptr().cast::<c_char>(), bytes.len()) }
    }

    /// Adds the string on top of the stack, and takes it.
    pub(crate) fn add_value(&mut self) {
        // SAFETY: the buffer was begun and not ended, and the *rules* put a string or a number on
        // top of its pieces. An error jumps over what *owns nothing*.
        unsafe { lua::luaL_addvalue(self.buffer) }
    }

    /// Pushes the string.
    pub(crate) fn push(self) {
        // SAFETY: the buffer was begun, its pieces are on top, and nothing uses it afterwards. An
        // error jumps over what *owns nothing*.
        unsafe { lua::luaL_pushresult(self.buffer) }
    }
}
