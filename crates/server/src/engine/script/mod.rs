//! What is known of scripts: `cache` is what all workers know, `lua` what one worker has compiled,
//! and `functions` has the libraries.

mod busy;
mod cache;
mod functions;
mod lua;
mod wish;

use bobbin_script::{Level, ScriptFlags, Shebang};

use crate::engine::row::{Facts, Flags};
use crate::engine::server::Server;

pub use self::busy::Busy;
pub use self::cache::{Habits, Learned, Script, Scripts, Sha};
pub use self::functions::{Functions, Library, Policy};
pub use self::lua::{Compiled, Lua, LuaState, STATES_KEPT, StateSource};
pub use self::wish::GateWish;

/// Whether a command runs a script, or a function, which has not said that it writes nothing.
pub(crate) fn may_write(server: &Server, command: &Facts, args: &[&[u8]]) -> bool {
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

/// `redis.log`.
pub fn log_message(level: Level, message: &[u8]) {
    let message = String::from_utf8_lossy(message);
    match level {
        Level::Debug => log::debug!("{message}"),
        Level::Verbose => log::debug!("{message}"),
        Level::Notice => log::info!("{message}"),
        Level::Warning => log::warn!("{message}"),
    }
}
