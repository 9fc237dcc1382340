//! COMMAND GETKEYS: the keys among a command's arguments.

use crate::engine::command::{Call, Failure, Flags, KeyUse};
use crate::engine::row::KeyShape;

/// The keys of the command that begins at this argument, and how it uses each of them.
pub(super) fn of<'a>(call: &Call<'a>, from: usize) -> Result<Vec<(&'a [u8], KeyUse)>, Failure> {
    let args: &'a [&'a [u8]] = &call.args[from..];
    let command = call.server.registry.find(args[0]);
    let command = command.and_then(|command| command.of_words(args)).ok_or(INVALID_COMMAND)?;
    if command.shape == KeyShape::None {
        return Err("ERR The command has no key arguments".into());
    }
    if !command.accepts(args.len()) {
        return Err("ERR Invalid number of arguments specified for command".into());
    }
    let mut keys = Vec::new();
    if !command.key_uses(args, |at, usage| keys.push((args[at], usage))) {
        keys.clear();
    }
    if keys.is_empty() && !command.has(Flags::NO_MANDATORY_KEYS) {
        return Err("ERR Invalid arguments specified for command".into());
    }
    Ok(keys)
}

const INVALID_COMMAND: Failure = Failure::new(&"ERR Invalid command specified");
