//! Scripts: EVAL and similar commands, from the command's words to the effects of what it called.
//!
//! Every worker has a Lua state of its own and runs scripts where it reads them. `cache` is what
//! all workers know of scripts, `lua` what one worker has compiled, `run` takes the locks and runs,
//! and `session` carries out the commands that a script calls.
//!
//! A script says which keys it uses, and its shards are held before it begins; scripts with other
//! keys run beside it. But Redis lets a script use any key, and many do. The first run of a script
//! therefore holds the gate, and shows whether it strays: uses keys that it did not declare. One
//! that did not holds its declared shards from then on. Should it stray after all, it takes the
//! further shard if it need not wait for it out of order; else, if it has changed nothing yet, it
//! begins anew with the gate held. A first run that takes long gives all but its declared shards
//! back when it pauses, and gets everything again if it strays.

mod busy;
mod cache;
mod functions;
mod long_command;
mod lua;
mod run;
mod session;
mod wish;

use bobbin_script::{ScriptFlags, Shebang};

use crate::engine::command::{Call, Flags, Outcome, Registered};
use crate::engine::server::Server;

pub use self::busy::{Busy, PausedScript};
pub use self::cache::{Habits, Script, Scripts, Sha};
pub use self::functions::{Functions, Library, Policy, call_function};
pub use self::lua::{Lua, LuaState, StateSource};
pub(crate) use self::run::{ScriptSource, evaluate};
pub use self::wish::GateWish;

/// Whether a command runs a script, or a function, which has not said that it writes nothing.
pub(crate) fn may_write(server: &Server, command: &Registered, args: &[&[u8]]) -> bool {
    if !command.has(Flags::RUNS) || command.has(Flags::READONLY) {
        return false;
    }
    let flags = match (command.row.name, args.get(1)) {
        ("eval", Some(source)) => Shebang::parse(source, false).ok().map(|shebang| shebang.flags),
        ("evalsha", Some(sha)) => server.scripts.find(sha).map(|script| script.flags),
        ("fcall", Some(name)) => server.functions.flags(name),
        _ => None,
    };
    !flags.is_some_and(|flags| flags.has(ScriptFlags::NO_WRITES))
}

/// SCRIPT KILL and FUNCTION KILL.
pub(crate) fn kill(call: &mut Call<'_>, function: bool) -> Outcome {
    call.server.scripts.kill(function, &call.server.config)?;
    call.reply.ok();
    Ok(())
}
