//! FCALL: how a function of a library is called.

use std::sync::Arc;

use super::paused::Owner;
use super::run::{ScriptTask, count_keys, run};
use crate::base::clock::ticks;
use crate::engine::command::{Call, Failure, Outcome};
use crate::engine::execution::admission::{admit_again, wait_for_reserved};
use crate::engine::script::{Habits, Library, LuaState};
use crate::engine::server::Switch;

/// FCALL and FCALL_RO.
pub fn call_function(call: &mut Call<'_>, read_only: bool) -> Outcome {
    let found = call.server.functions.find(call.args[1]);
    let (library, at) = found.ok_or("ERR Function not found")?;
    if bobbin_resp::parse_i64(call.args[2]).is_none() {
        return Err("ERR Bad number of keys provided".into());
    }
    let keys = count_keys(call)?;
    let function = &library.functions[at];
    let everything = function.learned.habits() != Habits::Declared;
    // While the gate is held, the library's state is either free or used by a slow function.
    if !call.in_transaction && everything && !call.data.hold_gate() {
        return Err(wait_for_reserved(call.server, call.data, call.client));
    }
    admit_again(call)?;
    let state = take_state(call, &library)?;
    let task = ScriptTask {
        chunk: function.chunk,
        keys,
        learned: &function.learned,
        everything,
        flags: function.flags,
        is_strict: true,
        can_restart: false,
        read_only,
    };
    run(call, Owner::Library(Arc::clone(&library), state), &task)
}

/// Takes a library's Lua state. If another thread keeps the state for long, the client waits and
/// its worker serves other clients.
fn take_state(call: &mut Call<'_>, library: &Library) -> Result<Box<LuaState>, Failure> {
    if !call.data.holds_all() {
        // No shard may be held during the wait.
        call.data.release();
    }
    let until = ticks() + call.server.clock.ticks(PATIENCE_US);
    loop {
        if let Some(state) = library.take_state() {
            return Ok(state);
        }
        if call.server.switches.has(Switch::BUSY) {
            return Err(call.server.scripts.busy_failure(&call.server.config));
        }
        if ticks() >= until && !call.data.holds_all() {
            // The wait is noted before the last look, so that a thread that gives the state back
            // later sees it.
            library.await_state();
            return library
                .take_state()
                .ok_or_else(|| wait_for_reserved(call.server, call.data, call.client));
        }
        std::thread::yield_now();
    }
}

/// How long a call waits for its library's state before its worker serves other clients.
const PATIENCE_US: u64 = 100;
