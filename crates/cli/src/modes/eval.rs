//! `--eval`: a Lua script from a file.

use std::{ffi::OsStr, os::unix::ffi::OsStrExt, process::ExitCode};

use crate::{session::Session, terminal};

/// Sends EVAL with the script. Of the arguments those before a lone comma are keys.
pub fn run(session: &mut Session, arguments: &[Vec<u8>]) -> ExitCode {
    let file = OsStr::from_bytes(&session.options.modes.script).to_owned();
    let script = match std::fs::read(&file) {
        Ok(script) => script,
        Err(error) => {
            eprintln!("Can't open file '{}': {}", file.display(), terminal::describe(&error));
            return ExitCode::FAILURE;
        }
    };
    let comma = arguments.iter().position(|argument| argument == b",");
    let (keys, others) = match comma {
        Some(comma) => (&arguments[..comma], &arguments[comma + 1..]),
        None => (arguments, &[][..]),
    };
    let mut words = vec![b"EVAL".to_vec(), script, keys.len().to_string().into_bytes()];
    words.extend_from_slice(keys);
    words.extend_from_slice(others);
    session.connect_or_exit();
    let repeat = session.options.repeat;
    match session.run(&words, repeat) {
        Ok(()) => ExitCode::SUCCESS,
        Err(_) => ExitCode::FAILURE,
    }
}
