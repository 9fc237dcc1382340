//! Hints without a shell: for one line, or for a file of lines with what is expected of each.

use std::{ffi::OsStr, os::unix::ffi::OsStrExt, process::ExitCode};

use bobbin_client::error_text;
use bobbin_resp::split_arguments;

use super::{docs::Docs, hint};
use crate::session::Session;

/// Prints the hint for the input.
pub fn print_hint(session: &mut Session) -> ExitCode {
    let Some(docs) = ask(session) else { return ExitCode::FAILURE };
    let input = String::from_utf8_lossy(&session.options.modes.hint_input).into_owned();
    out!("{}\n", hint::hint(&docs, &input).unwrap_or_default());
    ExitCode::SUCCESS
}

/// Checks a file in the form of Valkey's test_cli_hint_suite.txt: in each line the input and the
/// hint, both quoted. The status is the number of failures.
pub fn check_file(session: &mut Session) -> ExitCode {
    let file = OsStr::from_bytes(&session.options.modes.hint_input).to_owned();
    let text = match std::fs::read(&file) {
        Ok(text) => text,
        Err(error) => {
            let error = error_text(&error);
            complain!("Can't open '{}': {error}", file.display());
            return ExitCode::FAILURE;
        }
    };
    let Some(docs) = ask(session) else { return ExitCode::FAILURE };
    let (mut passed, mut failed) = (0, 0);
    for line in text.split(|&byte| byte == b'\n').filter(|line| !line.starts_with(b"#")) {
        // What cannot be split is skipped, as by valkey-cli: the suite has such a line.
        let words = split_arguments(&[line, b"\n"].concat()).unwrap_or_default();
        let [input, expected, ..] = words.as_slice() else { continue };
        let (input, expected) = (String::from_utf8_lossy(input), String::from_utf8_lossy(expected));
        let hint = hint::hint(&docs, &input).unwrap_or_default();
        if session.options.verbose {
            out!("Input: '{input}', Expected: '{expected}', Hint: '{hint}'\n");
        }
        if hint.trim_end() == expected {
            passed += 1;
        } else {
            complain!("'{input}': expected '{expected}', got '{hint}'");
            failed += 1;
        }
    }
    let verdict = if failed == 0 { "SUCCESS" } else { "FAILURE" };
    out!("{verdict}: {passed}/{} passed\n", passed + failed);
    ExitCode::from(u8::try_from(failed).unwrap_or(u8::MAX))
}

fn ask(session: &mut Session) -> Option<Docs> {
    let docs = session.connect_quietly().and_then(Docs::ask);
    if docs.is_none() {
        complain!("{} does not answer COMMAND DOCS: there are no hints.", session.address);
    }
    docs
}
