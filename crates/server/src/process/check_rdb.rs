//! `--check-rdb`: checks whether a file can be loaded, and says what it contains.

use std::ffi::OsStr;
use std::fs::File;
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::process::ExitCode;

use bobbin_dump::rdb::RdbItem;
use bobbin_io::error_text;

use super::create;
use crate::config::{Config, OptionId};
use crate::persistence::{Loaded, load};

/// The counts of what was found.
#[derive(Default, Debug, PartialEq, Eq)]
struct RdbFindings {
    keys: u64,
    expiring: u64,
    expired: u64,
    functions: u64,
    checked: bool,
}

/// Runs the program. Its argument is the file's name.
pub fn main(arguments: &[Vec<u8>]) -> ExitCode {
    let [path] = arguments else {
        eprintln!("Usage: bobbin-server --check-rdb <rdb-file-name>");
        return ExitCode::FAILURE;
    };
    if run(Path::new(OsStr::from_bytes(path))) { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Checks a file, and writes the result to the standard output. Returns whether the file is valid.
fn run(path: &Path) -> bool {
    println!("[offset 0] Checking RDB file {}", path.display());
    match File::open(path).map_err(|error| (0, error_text(&error))).and_then(check) {
        Ok((found, offset)) => {
            if found.checked {
                println!("[offset {offset}] Checksum OK");
            } else {
                println!(
                    "[offset {offset}] RDB file was saved with checksum disabled: no check performed"
                );
            }
            println!("[offset {offset}] \\o/ RDB looks OK! \\o/");
            println!("[info] {} keys read", found.keys);
            println!("[info] {} expires", found.expiring);
            println!("[info] {} already expired", found.expired);
            if found.functions > 0 {
                println!("[info] {} function libraries", found.functions);
            }
            true
        }
        Err((offset, error)) => {
            println!("--- RDB ERROR DETECTED ---");
            println!("[offset {offset}] {error}");
            false
        }
    }
}

/// Checks a file, and writes each item to the standard output.
fn check(file: impl Read) -> Result<(RdbFindings, u64), (u64, String)> {
    let mut found = RdbFindings::default();
    let loaded = examine(file, false, |offset, item| match item {
        RdbItem::Aux { name, value } => {
            let (name, value) = (name.escape_ascii(), value.escape_ascii());
            println!("[offset {offset}] AUX FIELD {name} = '{value}'");
        }
        RdbItem::Database(number) => println!("[offset {offset}] Selecting DB ID {number}"),
        RdbItem::Function(_) => found.functions += 1,
        RdbItem::End { checked } => found.checked = *checked,
        _ => {}
    })?;
    found.keys = loaded.keys + loaded.expired;
    (found.expiring, found.expired) = (loaded.expiring, loaded.expired);
    Ok((found, loaded.bytes))
}

/// Reads a file to the end of its snapshot and makes every value, with the code that loads files.
/// So a file that is valid here can be loaded by a server with as many databases. `in_log`: the
/// file is the base of a log, so expired keys count. `see` gets each item and its offset. An error
/// comes with its offset.
pub fn examine(
    file: impl Read,
    in_log: bool,
    see: impl FnMut(u64, &RdbItem<'_>),
) -> Result<Loaded, (u64, String)> {
    let config = Config::new();
    let server = config
        .set_internally(OptionId::databases, &i32::MAX.to_string())
        .and_then(|()| create(config, &[]))
        .map_err(|error| (0, error))?;
    load::examine(server, file, in_log, see)
}
