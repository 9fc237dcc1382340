//! Scripts: EVAL and similar commands, from the words of the command to the effects of the commands
//! that the script calls.
//!
//! Every worker has its own Lua state and runs the scripts that its clients send. `run` takes the
//! locks and runs a script, `session` executes the commands that it calls, and `paused` continues
//! scripts that take long.
//!
//! A script declares its keys, and their shards are locked before it begins; scripts with other
//! keys run beside it. But Redis lets a script use any key, and many scripts do. So the first run
//! of a script holds the gate, and shows whether the script *strays*: whether it uses keys that it
//! did not declare. A script that does not stray locks only its declared shards in later runs. If
//! it strays in a later run, it takes the further shard if it can do so without waiting against the
//! lock order. Otherwise, if it has changed nothing yet, it begins anew with the gate held. A first
//! run that takes long keeps only its declared shards when it pauses, and gets everything again if
//! it strays.

mod function;
mod paused;
mod run;
mod session;
mod sliced_call;

use crate::engine::command::{Call, Outcome};

pub use self::function::call_function;
pub(crate) use self::run::{ScriptSource, evaluate};

/// SCRIPT KILL and FUNCTION KILL.
pub(crate) fn kill(call: &mut Call<'_>, function: bool) -> Outcome {
    call.server.scripts.kill(function, &call.server.config)?;
    call.reply.ok();
    Ok(())
}
