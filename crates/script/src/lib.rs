//! Lua 5.1 as Redis's scripts know it: the walls around it, the `redis` table, and the libraries
//! beside it.
//!
//! A [`Vm`] is one Lua state. It knows no keys and no commands: the caller that runs a script
//! passes a [`Host`], which carries out what the script calls. Nothing that a script does may end
//! the process: memory is bounded, time is watched by the host, and what is shared between scripts
//! cannot be changed by them.

mod api;
mod convert;
mod host;
mod library;
mod sandbox;
mod shebang;
mod state;
mod vm;
mod walls;

pub use self::api::choose_redis_version;
pub use self::host::{Called, Host, Level, Verdict};
pub use self::shebang::{ScriptFlags, Shebang, ShebangError, is_name};
pub use self::state::hash::{Chains, HashKey, choose_hash_key};
pub use self::state::pool::MemoryPool;
pub use self::state::{Api, Chunk, Profile, Registration};
pub use self::vm::{Ended, ScriptProgress, Vm};
