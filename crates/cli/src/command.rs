//! The command of the command line.

use std::{
    io::{self, Read},
    process::ExitCode,
};

use crate::{
    options::{StandardInput, unquote},
    repl::help,
    session::Session,
    terminal,
};

/// Runs the command and shows its reply.
pub fn run(session: &mut Session, mut words: Vec<Vec<u8>>) -> ExitCode {
    if let Err(text) = complete(session, &mut words) {
        eprintln!("{text}");
        return ExitCode::FAILURE;
    }
    if matches!(words[0].to_ascii_lowercase().as_slice(), b"help" | b"?") {
        help::show(session, &words[1..]);
        return ExitCode::SUCCESS;
    }
    let repeat = session.options.repeat;
    let ran = session.run(&words, repeat);
    session.show_messages();
    if ran.is_ok() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Unquotes the words, and puts the standard input where it belongs.
fn complete(session: &Session, words: &mut Vec<Vec<u8>>) -> Result<(), String> {
    if session.options.quoted_input {
        for word in words.iter_mut() {
            *word = unquote(word).ok_or("Invalid quoted string")?;
        }
    }
    match &session.options.standard_input {
        StandardInput::Untouched => {}
        StandardInput::LastArgument => words.push(read_input()?),
        StandardInput::Tag(tag) => {
            let place = words.iter_mut().find(|word| *word == tag);
            *place.ok_or("-X: tag not matched by any argument")? = read_input()?;
        }
    }
    Ok(())
}

fn read_input() -> Result<Vec<u8>, String> {
    let mut input = Vec::new();
    match io::stdin().lock().read_to_end(&mut input) {
        Ok(_) => Ok(input),
        Err(error) => Err(format!("Reading from standard input: {}", terminal::describe(&error))),
    }
}
