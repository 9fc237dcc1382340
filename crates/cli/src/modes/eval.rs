//! `--eval`: a Lua script from a file.

use std::{ffi::OsStr, os::unix::ffi::OsStrExt, process::ExitCode};

use bobbin_client::error_text;

use crate::{repl, session::Session};

/// Sends EVAL with the script, or debugs it. Of the arguments those before a lone comma are keys.
pub fn run(session: &mut Session, arguments: &[Vec<u8>]) -> ExitCode {
    let file = OsStr::from_bytes(&session.options.modes.script).to_owned();
    if let Some(debugging) = session.options.modes.debugging {
        return repl::debug(session, debugging, || command(&file, arguments));
    }
    let words = match command(&file, arguments) {
        Ok(words) => words,
        Err(status) => return status,
    };
    session.connect_or_exit();
    let repeat = session.options.times();
    match session.run(&words, repeat) {
        Ok(()) => ExitCode::SUCCESS,
        Err(_) => ExitCode::FAILURE,
    }
}

/// EVAL and its arguments. What went wrong has been said.
fn command(file: &OsStr, arguments: &[Vec<u8>]) -> Result<Vec<Vec<u8>>, ExitCode> {
    let script = std::fs::read(file).map_err(|error| {
        complain!("Can't open file '{}': {}", file.display(), error_text(&error));
        ExitCode::FAILURE
    })?;
    let comma = arguments.iter().position(|argument| argument == b",");
    let (keys, others) = match comma {
        Some(comma) => (&arguments[..comma], &arguments[comma + 1..]),
        None => (arguments, &[][..]),
    };
    let mut words = vec![b"EVAL".to_vec(), script, keys.len().to_string().into_bytes()];
    words.extend_from_slice(keys);
    words.extend_from_slice(others);
    Ok(words)
}
