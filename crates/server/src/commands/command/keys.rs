//! Which arguments of a command are keys: COMMAND GETKEYS.

use crate::command::{Call, Failure, Flags, KeyUse, Registered};

/// The keys of the command that begins at this argument, and what it does with each.
pub(super) fn of<'a>(call: &Call<'a>, from: usize) -> Result<Vec<(&'a [u8], KeyUse)>, Failure> {
    let args: &'a [&'a [u8]] = &call.args[from..];
    let mut command = call.server.registry.find(args[0]).ok_or(INVALID_COMMAND)?;
    if let Some(name) = args.get(1).filter(|_| !command.subcommands.is_empty()) {
        command = command.subcommand(name).ok_or(INVALID_COMMAND)?;
    }
    if command.row.keys.is_empty() {
        return Err("ERR The command has no key arguments".into());
    }
    if !command.accepts(args.len()) {
        return Err("ERR Invalid number of arguments specified for command".into());
    }
    let mut keys = Vec::new();
    if let Some(finder) = command.row.key_finder {
        finder(args, &mut |at, usage| keys.push((args[at], usage)));
    }
    let specified = if command.row.key_finder.is_none() { command.row.keys } else { &[] };
    for spec in specified.iter().filter(|spec| !spec.usage.has(KeyUse::NOT_KEY)) {
        let usage = usage(command, args, spec.usage);
        spec.positions(args, |at| keys.push((args[at], usage)));
    }
    if keys.is_empty() && !command.has(Flags::NO_MANDATORY_KEYS) {
        return Err("ERR Invalid arguments specified for command".into());
    }
    Ok(keys)
}

/// What a command does with its keys, where that depends on its options.
fn usage(command: &Registered, args: &[&[u8]], usage: KeyUse) -> KeyUse {
    let is = |word: &'static str| move |arg: &&[u8]| arg.eq_ignore_ascii_case(word.as_bytes());
    match command.row.name {
        "set" if !args[3..].iter().any(is("get")) => KeyUse::OVERWRITE.with(KeyUse::UPDATE),
        "set" => CHANGED,
        "bitfield" if !args[2..].iter().any(|arg| is("set")(arg) || is("incrby")(arg)) => {
            KeyUse::READ_ONLY.with(KeyUse::ACCESS)
        }
        "bitfield" => CHANGED,
        _ => usage,
    }
}

const CHANGED: KeyUse = KeyUse::READ_WRITE.with(KeyUse::ACCESS).with(KeyUse::UPDATE);
const INVALID_COMMAND: Failure = Failure::new("ERR Invalid command specified");
