//! bobbin-cli: a shell, and tools, for servers that speak the Redis protocol. It takes the options
//! of redis-cli and valkey-cli and prints what they print.

#![forbid(unsafe_code)]

#[macro_use]
mod terminal;
mod command;
mod format;
mod interrupt;
mod keyboard;
mod modes;
mod options;
mod repl;
mod session;

use std::{env, os::unix::ffi::OsStringExt, process::ExitCode};

use options::{Environment, Options, ParsedOptions};
use session::Session;

fn main() -> ExitCode {
    let arguments: Vec<Vec<u8>> = env::args_os().skip(1).map(OsStringExt::into_vec).collect();
    let environment = Environment {
        password: PASSWORD_VARIABLES.into_iter().find_map(env::var_os).map(OsStringExt::into_vec),
        assume_yes: YES_VARIABLES.into_iter().find_map(env::var_os).is_some_and(|yes| yes == "1"),
    };
    match options::parse(&arguments, &environment, terminal::is_for_people()) {
        ParsedOptions::Run(options) => run(*options),
        ParsedOptions::Wrong(text) => {
            complain!("{text}");
            ExitCode::FAILURE
        }
    }
}

fn run(mut options: Options) -> ExitCode {
    if options.ask_password {
        match repl::ask_password("Please input password: ") {
            Ok(password) => options.target.password = Some(password),
            Err(error) => {
                complain!("{error}");
                return ExitCode::FAILURE;
            }
        }
    }
    if let Err(error) = options.prepare_tls() {
        complain!("{error}");
        return ExitCode::FAILURE;
    }
    let mode = options.mode;
    let command = std::mem::take(&mut options.command);
    let mut session = Session::new(options);
    match mode {
        Some(mode) => modes::run(mode, &mut session, &command),
        None if command.is_empty() => repl::run(&mut session),
        None if command == [b"doctor"] => modes::doctor::run(&mut session),
        None if command == [b"top"] => modes::top::run(&session),
        None if modes::top::is_replay(&command) => modes::top::replay(&session, &command[2..]),
        None if modes::top::record::is_meant(&command) => {
            modes::top::record::run(&session, &command)
        }
        None if modes::migrate::is_meant(&command) => modes::migrate::run(&mut session, &command),
        None if let Some(usage) = modes::misuse(&command) => {
            complain!("usage: bobbin-cli {usage}");
            ExitCode::FAILURE
        }
        None => command::run(&mut session, command),
    }
}

const PASSWORD_VARIABLES: [&str; 2] = ["VALKEYCLI_AUTH", "REDISCLI_AUTH"];
const YES_VARIABLES: [&str; 2] = ["VALKEYCLI_CLUSTER_YES", "REDISCLI_CLUSTER_YES"];
