//! The load generator behind `bobbin-benchmark`, in parts that can be used and tested by
//! themselves.

#![forbid(unsafe_code)]

#[macro_use]
mod output;

mod children;
pub mod drive;
pub mod engine;
pub mod interrupt;
pub mod options;
pub mod page;
pub mod provenance;
pub mod report;
pub mod server;
pub mod statistics;
pub mod workload;

use std::{ffi::OsString, process::ExitCode};

use drive::DriveFailure;
use interrupt::INTERRUPT;
use options::{Common, Grammar, NoSettings};

/// What the program does when called by the name `program` with these arguments.
pub fn main(program: &str, arguments: impl Iterator<Item = OsString>) -> ExitCode {
    let arguments = arguments.map(OsString::into_string).collect::<Result<Vec<_>, _>>();
    let done = match arguments {
        Ok(arguments) => dispatch(program, &arguments),
        Err(argument) => Err(DriveFailure(format!(
            "The argument '{}' is not UTF-8; -x reads bytes of any kind from the standard input",
            argument.display()
        ))),
    };
    output::flush();
    if let Err(DriveFailure(error)) = &done {
        complain!("{}", error.trim_end());
    }
    let status = match INTERRUPT.signal() {
        Some(signal) => interrupt::status(signal),
        None => i32::from(done.is_err()),
    };
    ExitCode::from(status as u8)
}

fn dispatch(program: &str, arguments: &[String]) -> Result<(), DriveFailure> {
    let name = program.rsplit('/').next().unwrap_or_default();
    let first = arguments.first().map(String::as_str);
    if name.contains("memtier") || first == Some("--memtier") {
        let skip = usize::from(first == Some("--memtier"));
        return with_settings(&options::memtier::GRAMMAR, &arguments[skip..], drive::memtier::run);
    }
    match first {
        Some("generate") => drive::generate::run(&arguments[1..]),
        Some("compare") => {
            with_settings(&drive::compare::GRAMMAR, &arguments[1..], drive::compare::run)
        }
        Some("limits") => {
            with_settings(&drive::limits::GRAMMAR, &arguments[1..], drive::limits::run)
        }
        Some("sweep") => with_settings(&drive::sweep::GRAMMAR, &arguments[1..], drive::sweep::run),
        Some("expire") => {
            with_settings(&options::redis::GRAMMAR, &arguments[1..], drive::expire::run)
        }
        _ => with_settings(&options::redis::GRAMMAR, arguments, drive::redis::run),
    }
}

/// Parses, and goes on with `run` unless only help or the version was asked for.
fn with_settings<S: AsMut<Common> + Default>(
    grammar: &Grammar<S>,
    arguments: &[String],
    run: fn(&S, &[String]) -> Result<(), DriveFailure>,
) -> Result<(), DriveFailure> {
    let mut settings = S::default();
    match grammar.parse(arguments, &mut settings) {
        Ok(rest) => run(&settings, &rest),
        Err(NoSettings::Help) => {
            say!("{}", grammar.help());
            Ok(())
        }
        Err(NoSettings::Version) => {
            say_line!("bobbin-benchmark {}", env!("CARGO_PKG_VERSION"));
            Ok(())
        }
        Err(NoSettings::Error(error)) => Err(DriveFailure(error)),
    }
}
