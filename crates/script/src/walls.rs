//! Tables that can be read only: empty ones, whose metatables lead to the real ones and refuse
//! writing.

use std::ffi::c_int;

use crate::state::raw::{LUA_TNIL, LUA_TTABLE, Raise, Returned, Stack, lua_function};

/// Takes the table on top and pushes one through which it can be read only.
pub(crate) fn protect(stack: Stack) {
    let real = stack.top();
    stack.push_table(0, 0);
    stack.push_table(0, 3);
    let metatable = stack.top();
    stack.copy(real);
    stack.set_field(metatable, b"__index");
    stack.push_function(read_only);
    stack.set_field(metatable, b"__newindex");
    stack.copy(real);
    set_marked(stack, metatable, &REAL);
    stack.set_metatable(-2);
    stack.remove(real);
}

/// Addresses that scripts cannot have: keys of our own in metatables.
pub(crate) static REAL: u8 = 0;
pub(crate) static VIEW: u8 = 1;
pub(crate) static KEPT: u8 = 2;

/// Sets a metatable's own field to the value on top, which it takes.
pub(crate) fn set_marked(stack: Stack, metatable: c_int, mark: &'static u8) {
    stack.push_pointer(std::ptr::from_ref(mark).cast());
    stack.insert(-2);
    stack.raw_set(metatable);
}

/// Pushes what lies under our own key in the value's metatable, if that has it.
pub(crate) fn push_marked(stack: Stack, at: c_int, mark: &'static u8) -> bool {
    if !stack.push_metatable(at) {
        return false;
    }
    stack.push_pointer(std::ptr::from_ref(mark).cast());
    stack.raw_get(stack.top() - 1);
    stack.remove(-2);
    if stack.kind(-1) == LUA_TNIL {
        stack.pop(1);
        return false;
    }
    true
}

/// Whether the value is a table through which another can be read only.
pub(crate) fn is_protected(stack: Stack, at: c_int) -> bool {
    let protected = stack.kind(at) == LUA_TTABLE && push_marked(stack, at, &REAL);
    if protected {
        stack.pop(1);
    }
    protected
}

/// Changes nothing if the first argument is a protected table.
pub(crate) fn check_change(stack: Stack) -> Result<(), Raise> {
    if is_protected(stack, 1) {
        stack.push_bytes(READ_ONLY.as_bytes());
        return Err(Raise);
    }
    Ok(())
}

lua_function!(read_only, refuse_change);

fn refuse_change(stack: Stack) -> Returned {
    Err(stack.fail(READ_ONLY))
}

const READ_ONLY: &str = "Attempt to modify a readonly table";
