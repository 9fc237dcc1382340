//! The key under which Lua hashes strings and numbers: what scripts are given must not be able to
//! collide on purpose.

use std::hash::{BuildHasher, RandomState};
use std::sync::Once;

use mlua_sys::lua_State;

/// The key, as two words.
pub type HashKey = [u64; 2];

static CHOSEN: Once = Once::new();

unsafe extern "C" {
    static mut bobbin_lua_key: HashKey;
    fn bobbin_lua_chains(state: *mut lua_State) -> Chains;
}

/// How many strings and entries of tables lie in the longest chains of a state that a lookup may
/// have to go along.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Chains {
    pub strings: usize,
    pub entries: usize,
}

/// Chooses the key of all states of this process, which also decides the order that `pairs` goes
/// in. Without it that is random; when there has been a state this changes nothing.
pub fn choose_hash_key(key: HashKey) {
    // SAFETY: this runs once. Lua reads the key only in states, and each is made after
    // `ensure_key`, which waits until this is done.
    CHOSEN.call_once(|| unsafe { bobbin_lua_key = key });
}

/// Makes sure that there is a key.
pub(crate) fn ensure_key() {
    if !CHOSEN.is_completed() {
        // Two words of a function whose own key nobody sees.
        let random = RandomState::new();
        choose_hash_key([random.hash_one(0), random.hash_one(1)]);
    }
}

/// The longest chains of a state.
///
/// # Safety
/// The state is alive, and nothing uses it meanwhile.
pub(crate) unsafe fn chains(state: *mut lua_State) -> Chains {
    // SAFETY: the function only reads the state, which by the caller is alive and does not change.
    unsafe { bobbin_lua_chains(state) }
}
