//! The command of the command line.

use std::{
    io::{self, Read},
    process::ExitCode,
};

use bobbin_client::error_text;

use crate::{
    options::{Options, StandardInput, unquote},
    repl::help,
    session::Session,
};

/// Runs the command and shows its reply.
pub fn run(session: &mut Session, mut words: Vec<Vec<u8>>) -> ExitCode {
    if let Err(mistake) = complete(&session.options, &mut words) {
        mistake.report();
        return ExitCode::FAILURE;
    }
    if matches!(words[0].to_ascii_lowercase().as_slice(), b"help" | b"?") {
        help::show(session, None, &words[1..]);
        return ExitCode::SUCCESS;
    }
    let repeat = session.options.times();
    let ran = session.run(&words, repeat);
    session.show_messages();
    if ran.is_ok() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Unquotes the words, and puts the standard input where it belongs.
pub fn complete(options: &Options, words: &mut Vec<Vec<u8>>) -> Result<(), Mistake> {
    if options.quoted_input {
        for word in words.iter_mut() {
            *word = unquote(word).ok_or(Mistake::Quotes)?;
        }
    }
    match &options.standard_input {
        StandardInput::Untouched => {}
        StandardInput::LastArgument => words.push(read_input()?),
        StandardInput::Tag(tag) => {
            let place = words.iter_mut().find(|word| *word == tag);
            *place.ok_or(Mistake::Tag)? = read_input()?;
        }
    }
    Ok(())
}

fn read_input() -> Result<Vec<u8>, Mistake> {
    let mut input = Vec::new();
    match io::stdin().lock().read_to_end(&mut input) {
        Ok(_) => Ok(input),
        Err(error) => Err(Mistake::Input(error)),
    }
}

/// Why a command was not run.
pub enum Mistake {
    Quotes,
    Tag,
    Input(io::Error),
}

impl Mistake {
    pub fn report(&self) {
        match self {
            // Where valkey-cli says it: on the standard output.
            Self::Quotes => out!("Invalid quoted string\n"),
            Self::Tag => complain!("-X: tag not matched by any argument"),
            Self::Input(error) => {
                complain!("Error reading from stdin: {}", error_text(error));
            }
        }
    }
}
