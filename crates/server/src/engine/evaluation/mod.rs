//! Scripts: EVAL and similar commands, from the command's words to the effects of what it called.
//!
//! Every worker has a Lua state of its own and runs scripts where it reads them. `run` takes the
//! locks and runs, `session` carries out the commands that a script calls, and `paused` goes on
//! with what takes long.
//!
//! A script says which keys it uses, and its shards are held before it begins; scripts with other
//! keys run beside it. But Redis lets a script use any key, and many do. The first run of a script
//! therefore holds the gate, and shows whether it strays: uses keys that it did not declare. One
//! that did not holds its declared shards from then on. Should it stray after all, it takes the
//! further shard if it need not wait for it out of order; else, if it has changed nothing yet, it
//! begins anew with the gate held. A first run that takes long gives all but its declared shards
//! back when it pauses, and gets everything again if it strays.

mod function;
mod long_command;
mod paused;
mod run;
mod session;

use crate::engine::command::{Call, Outcome};

pub use self::function::call_function;
pub(crate) use self::run::{ScriptSource, evaluate};

/// SCRIPT KILL and FUNCTION KILL.
pub(crate) fn kill(call: &mut Call<'_>, function: bool) -> Outcome {
    call.server.scripts.kill(function, &call.server.config)?;
    call.reply.ok();
    Ok(())
}
