//! `--check-rdb`: reads a file and says whether it is sound, and what is in it.

use std::ffi::OsStr;
use std::fs::File;
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::process::ExitCode;

use bobbin_dump::rdb::{Item, Reader, Record, Value};
use bobbin_dump::{Options, Target, VersionCheck};
use bobbin_store::Hasher;

use crate::clock::system_ms;

/// What was found.
#[derive(Default, Debug, PartialEq, Eq)]
struct Found {
    keys: u64,
    expiring: u64,
    expired: u64,
    functions: u64,
    checked: bool,
}

/// The program: its arguments are the file's name.
pub fn main(arguments: &[Vec<u8>]) -> ExitCode {
    let [path] = arguments else {
        eprintln!("Usage: bobbin-check-rdb <rdb-file-name>");
        return ExitCode::FAILURE;
    };
    if run(Path::new(OsStr::from_bytes(path))) { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Checks a file, and tells on the standard output. Whether it is sound.
fn run(path: &Path) -> bool {
    println!("[offset 0] Checking RDB file {}", path.display());
    match File::open(path).map_err(|error| (0, error.to_string())).and_then(check) {
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

/// Reads all of a file and makes every value. An error comes with its place.
fn check(mut file: impl Read) -> Result<(Found, u64), (u64, String)> {
    let hasher = Hasher::new(0);
    let target = Target::new(&hasher);
    let options = Options::default();
    let mut reader = Reader::new(VersionCheck::Relaxed, true);
    let (mut found, mut bytes, now_ms) = (Found::default(), Vec::new(), system_ms());
    let mut from = 0;
    loop {
        let offset = reader.offset();
        let next = reader.next(&bytes[from..]).map_err(|error| (offset, error.to_string()))?;
        if let Some((item, used)) = next {
            match item {
                Item::Key(bytes) => {
                    let fail = |error: String| (offset, error);
                    let record = Record::parse(bytes, &options).map_err(|e| fail(e.to_string()))?;
                    found.keys += 1;
                    found.expiring += u64::from(record.expire_ms.is_some());
                    found.expired += u64::from(record.expire_ms.is_some_and(|ms| ms < now_ms));
                    match record.value(&options, target) {
                        Ok(Value::Empty) | Err(_) => {
                            let key = record.key.escape_ascii();
                            let kind = record.kind.name();
                            return Err(fail(format!("The {kind} at key '{key}' is damaged")));
                        }
                        Ok(_) => {}
                    }
                }
                Item::Aux { name, value } => {
                    let (name, value) = (name.escape_ascii(), value.escape_ascii());
                    println!("[offset {offset}] AUX FIELD {name} = '{value}'");
                }
                Item::Database(number) => println!("[offset {offset}] Selecting DB ID {number}"),
                Item::Function(_) => found.functions += 1,
                Item::End { checked } => {
                    found.checked = checked;
                    return Ok((found, reader.offset()));
                }
                _ => {}
            }
            from += used;
            continue;
        }
        bytes.drain(..from);
        from = 0;
        let room = BLOCK_BYTES.max(bytes.len());
        let read = file.by_ref().take(room as u64).read_to_end(&mut bytes);
        if read.map_err(|error| (offset, error.to_string()))? == 0 {
            reader.finish().map_err(|error| (offset, error.to_string()))?;
        }
    }
}

/// Bytes that are read at a time; a longer value doubles them.
const BLOCK_BYTES: usize = 1 << 20;
