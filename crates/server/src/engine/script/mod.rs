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
#[cfg(test)]
pub use self::cache::sha_of;
pub use self::cache::{Habits, Learned, Script, Scripts, Sha};
pub use self::functions::{Functions, Library, Policy};
pub use self::lua::{Compiled, Lua, LuaState, STATES_KEPT, StateSource};
pub use self::wish::GateWish;

/// The flags that a command has, beyond its own, by what the script or the function that it runs
/// says of itself.
pub(crate) fn flags(server: &Server, command: &Facts, args: &[&[u8]]) -> Flags {
    if !command.has(Flags::RUNS) || command.has(Flags::READONLY) {
        return Flags::default();
    }
    let said = match (command.row.name, args.get(1)) {
        ("eval", Some(source)) => {
            Shebang::parse(source, false).ok().map(|shebang| (shebang.flags, shebang.is_there))
        }
        ("evalsha", Some(sha)) => {
            server.scripts.find(sha).map(|script| (script.flags, script.is_strict))
        }
        ("fcall", Some(name)) => server.functions.flags(name).map(|flags| (flags, true)),
        _ => None,
    };
    match said {
        Some((flags, _)) if flags.has(ScriptFlags::NO_WRITES) => Flags::default(),
        Some((flags, true)) if !flags.has(ScriptFlags::ALLOW_OOM) => {
            Flags::MAY_REPLICATE.with(Flags::DENYOOM)
        }
        _ => Flags::MAY_REPLICATE,
    }
}

/// Whether messages of `redis.log` at this level are logged.
pub fn is_logged(level: Level) -> bool {
    log::log_enabled!(severity(level))
}

/// `redis.log`.
pub fn log_message(level: Level, message: &[u8]) {
    log::log!(severity(level), "{}", String::from_utf8_lossy(message));
}

const fn severity(level: Level) -> log::Level {
    match level {
        Level::Debug => log::Level::Trace,
        Level::Verbose => log::Level::Debug,
        Level::Notice => log::Level::Info,
        Level::Warning => log::Level::Warn,
    }
}
