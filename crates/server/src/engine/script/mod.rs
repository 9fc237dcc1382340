//! What the server knows of scripts: `cache` has what all workers share, `lua` what one worker has
//! compiled, and `functions` the libraries.

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
pub use self::wish::{GateWish, WaitRight};

/// The flags of a command. If the command runs a script or a function that declares flags, some of
/// the command's flags follow from those.
#[inline]
pub(crate) fn flags(server: &Server, command: &Facts, args: &[&[u8]]) -> Flags {
    let own = command.row.flags;
    if own.has(Flags::RUNS_SCRIPT) { of_running(server, command, args) } else { own }
}

#[cold]
fn of_running(server: &Server, command: &Facts, args: &[&[u8]]) -> Flags {
    let own = command.row.flags;
    let said = match (command.row.name, args.get(1)) {
        ("eval" | "eval_ro", Some(source)) => {
            let shebang = Shebang::of_any_engine(source, false).ok();
            shebang.filter(|shebang| shebang.is_there).map(|shebang| shebang.flags)
        }
        ("evalsha" | "evalsha_ro", Some(sha)) => {
            server.scripts.find(sha).filter(|script| script.is_strict).map(|script| script.flags)
        }
        ("fcall" | "fcall_ro", Some(name)) => server.functions.flags(name),
        _ => None,
    };
    let Some(said) = said else { return own };
    let mut flags = own.without(Flags::MAY_REPLICATE).without(Flags::STALE);
    if said.has(ScriptFlags::ALLOW_STALE) {
        flags = flags.with(Flags::STALE);
    }
    if !said.has(ScriptFlags::NO_WRITES) {
        flags = flags.with(Flags::WRITE);
        if !said.has(ScriptFlags::ALLOW_OOM) {
            flags = flags.with(Flags::DENYOOM);
        }
    }
    flags
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
