//! `bobbin-server --check-aof`: checks whether a log can be loaded, and repairs it. Its output is
//! that of the tool of Redis, which people and other tools know.

use std::fs::{File, OpenOptions};
use std::io::{self, BufRead, BufReader, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use bobbin_io::error_text;

use super::check_rdb::examine;
use crate::persistence::aof::reader::is_rdb;
use crate::persistence::aof::{AofDirectory, AofFault, AofItem, AofReader, Manifest};

/// Runs `bobbin-server --check-aof`. `arguments` are those behind that.
pub fn main(arguments: &[Vec<u8>], input: &mut impl BufRead) -> ExitCode {
    let Some((mode, file)) = CheckMode::parse(arguments) else {
        println!(
            "Usage: bobbin-server --check-aof [--fix|--truncate-to-timestamp $timestamp] \
             <file.manifest|file.aof>"
        );
        return ExitCode::FAILURE;
    };
    let mut check = Check { mode, lines: 1, input };
    match check.run(&file) {
        Ok(()) => ExitCode::SUCCESS,
        Err(reason) => {
            println!("{reason}");
            ExitCode::FAILURE
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum CheckMode {
    Check,
    Fix,
    /// The time (Unix seconds) up to which the log is kept.
    TruncateTo(i64),
}

impl CheckMode {
    fn parse(arguments: &[Vec<u8>]) -> Option<(Self, PathBuf)> {
        let words: Option<Vec<&str>> =
            arguments.iter().map(|word| str::from_utf8(word).ok()).collect();
        let (mode, file) = match words?[..] {
            [file] if !file.starts_with("--") => (Self::Check, file),
            ["--fix", file] => (Self::Fix, file),
            ["--truncate-to-timestamp", seconds, file] => {
                (Self::TruncateTo(seconds.parse().ok()?), file)
            }
            _ => return None,
        };
        Some((mode, PathBuf::from(file)))
    }
}

struct Check<'i, I> {
    mode: CheckMode,
    /// The lines of all files so far.
    lines: u64,
    input: &'i mut I,
}

/// A file of the log that is checked.
struct Checked<'p> {
    path: &'p Path,
    name: String,
    is_last: bool,
}

/// The result for a file.
enum FileVerdict {
    Valid,
    Empty,
    Truncated,
}

/// How far a file is valid.
struct Scan {
    /// The offset up to which all commands are complete.
    good: u64,
    fault: Option<String>,
    /// There is a timestamp later than the one in `CheckMode::TruncateTo`. The rest was not read.
    is_past_limit: bool,
}

impl<I: BufRead> Check<'_, I> {
    fn run(&mut self, path: &Path) -> Result<(), String> {
        let cannot = |error: io::Error| {
            format!("Cannot open file {}: {}", path.display(), error_text(&error))
        };
        let mut start = Vec::new();
        let file = File::open(path).map_err(cannot)?;
        file.take(MANIFEST_START as u64).read_to_end(&mut start).map_err(cannot)?;
        if start.starts_with(b"file ") || path.extension().is_some_and(|end| end == "manifest") {
            return self.run_manifest(path);
        }
        println!("Start checking Old-Style AOF");
        let name = path.display().to_string();
        let file = Checked { path, name: name.clone(), is_last: true };
        match self.file(&file)? {
            FileVerdict::Valid => println!("AOF {name} is valid"),
            FileVerdict::Empty => println!("AOF {name} is empty"),
            FileVerdict::Truncated => {}
        }
        Ok(())
    }

    fn run_manifest(&mut self, path: &Path) -> Result<(), String> {
        println!("Start checking Multi Part AOF");
        let directory = AofDirectory::of_manifest(path);
        let bytes = std::fs::read(path).map_err(|error| error_text(&error))?;
        let manifest = Manifest::parse(&bytes).map_err(|fault| fault.to_string())?;
        let count = manifest.parts().count();
        let parts = manifest.base.iter().map(|part| ("BASE", part));
        let parts = parts.chain(manifest.increments.iter().map(|part| ("INCR", part)));
        let mut incr_announced = false;
        for (index, (kind, part)) in parts.enumerate() {
            let path = directory.file(&part.name);
            let file =
                Checked { path: &path, name: part.name.clone(), is_last: index + 1 == count };
            if kind == "BASE" {
                let form = if is_rdb(&path) { "RDB" } else { "RESP" };
                println!("Start to check BASE AOF ({form} format).");
            } else if !std::mem::replace(&mut incr_announced, true) {
                println!("Start to check INCR files.");
            }
            match self.file(&file)? {
                FileVerdict::Valid => println!("{kind} AOF {} is valid", part.name),
                FileVerdict::Empty => println!("{kind} AOF {} is empty", part.name),
                FileVerdict::Truncated => {}
            }
        }
        println!("All AOF files and manifest are valid");
        Ok(())
    }

    /// Reads a file from `start` on, as far as it can be read and the mode needs it.
    fn scan(&mut self, file: &Checked<'_>, opened: File, start: u64) -> Scan {
        let mut reader = AofReader::new(BufReader::new(opened), start);
        let mut good = start;
        let mut in_transaction = false;
        let fault = loop {
            match reader.read() {
                Ok(AofItem::Command) => {
                    let name = reader.args().next().unwrap_or_default();
                    if name.eq_ignore_ascii_case(b"multi") {
                        if in_transaction {
                            break Some(format!("Unexpected MULTI in AOF {}", file.name));
                        }
                        in_transaction = true;
                        continue;
                    }
                    if name.eq_ignore_ascii_case(b"exec") {
                        if !in_transaction {
                            break Some(format!("Unexpected EXEC in AOF {}", file.name));
                        }
                        in_transaction = false;
                    }
                }
                Ok(AofItem::Timestamp(seconds)) => {
                    if let CheckMode::TruncateTo(limit) = self.mode
                        && seconds > limit
                    {
                        return Scan { good, fault: None, is_past_limit: true };
                    }
                }
                Ok(AofItem::Remark) => {}
                Ok(AofItem::End) if in_transaction => {
                    let offset = reader.offset();
                    break Some(format!(
                        "0x{offset:16x}: Reached EOF before reading EXEC for MULTI"
                    ));
                }
                Ok(AofItem::End) => break None,
                Err(fault) => break Some(describe(&fault, file, reader.offset())),
            }
            if !in_transaction {
                good = reader.offset();
            }
        };
        self.lines += reader.lines();
        Scan { good, fault, is_past_limit: false }
    }

    fn file(&mut self, file: &Checked<'_>) -> Result<FileVerdict, String> {
        let name = &file.name;
        let cannot = |error: io::Error| format!("Cannot open file {name}: {}", error_text(&error));
        let mut opened = File::open(file.path).map_err(cannot)?;
        let size = opened.metadata().map_err(cannot)?.len();
        if size == 0 {
            return Ok(FileVerdict::Empty);
        }
        let start = if is_rdb(file.path) { preamble_bytes(&opened)? } else { 0 };
        opened.seek(SeekFrom::Start(start)).map_err(cannot)?;
        let Scan { good, fault, is_past_limit } = self.scan(file, opened, start);
        if let CheckMode::TruncateTo(limit) = self.mode
            && is_past_limit
        {
            return self.truncate_to(file, good, limit);
        }
        if let Some(fault) = &fault {
            println!("{fault}");
        }
        if let CheckMode::TruncateTo(limit) = self.mode
            && fault.is_none()
        {
            println!("Truncate nothing in AOF {name} to timestamp {limit}");
            return Ok(FileVerdict::Valid);
        }
        let (lines, diff) = (self.lines, size - good);
        println!(
            "AOF analyzed: filename={name}, size={size}, ok_up_to={good}, ok_up_to_line={lines}, diff={diff}"
        );
        if diff == 0 && fault.is_none() {
            return Ok(FileVerdict::Valid);
        }
        if self.mode != CheckMode::Fix {
            return Err(format!("AOF {name} is not valid. Use the --fix option to try fixing it."));
        }
        if !file.is_last {
            return Err(format!("Failed to truncate AOF {name} because it is not the last file"));
        }
        println!(
            "This will shrink the AOF {name} from {size} bytes, with {diff} bytes, to {good} bytes"
        );
        print!("Continue? [y/N]: ");
        // If the question cannot be shown, or nothing can be read, the answer is no.
        drop(io::stdout().flush());
        let mut answer = String::new();
        drop(self.input.read_line(&mut answer));
        if !answer.trim_start().starts_with(['y', 'Y']) {
            return Err("Aborting...".into());
        }
        truncate(file.path, good)
            .map_err(|error| format!("Failed to truncate AOF {name}: {}", error_text(&error)))?;
        println!("Successfully truncated AOF {name}");
        Ok(FileVerdict::Truncated)
    }

    fn truncate_to(
        &self,
        file: &Checked<'_>,
        good: u64,
        limit: i64,
    ) -> Result<FileVerdict, String> {
        let name = &file.name;
        if good == 0 {
            return Err(format!("AOF {name} has nothing before timestamp {limit}, aborting..."));
        }
        if !file.is_last {
            return Err(format!(
                "Failed to truncate AOF {name} to timestamp {limit} to offset {good} because it is not the last file.\n\
                 If you insist, please delete all files after this file according to the manifest file and delete the \
                 corresponding records in manifest file manually. Then re-run bobbin-server --check-aof."
            ));
        }
        truncate(file.path, good).map_err(|error| {
            format!("Failed to truncate AOF {name} to timestamp {limit}: {}", error_text(&error))
        })?;
        println!("Successfully truncated AOF {name} to timestamp {limit}");
        Ok(FileVerdict::Truncated)
    }
}

fn describe(fault: &AofFault, file: &Checked<'_>, offset: u64) -> String {
    match fault {
        AofFault::Truncated => format!("0x{offset:16x}: Unexpected end of file"),
        AofFault::Format(what) => format!("AOF {} format error\n0x{offset:16x}: {what}", file.name),
        AofFault::Io(error) => format!("0x{offset:16x}: {}", error_text(error)),
    }
}

fn truncate(path: &Path, len: u64) -> io::Result<()> {
    let file = OpenOptions::new().write(true).open(path)?;
    file.set_len(len)?;
    file.sync_all()
}

/// Checks the RDB file that an AOF begins with. Returns its length in bytes.
fn preamble_bytes(file: &File) -> Result<u64, String> {
    println!("The AOF appears to start with an RDB preamble.\nChecking the RDB preamble to start:");
    let preamble = examine(file, true, |_, _| {})
        .map_err(|(_, error)| format!("RDB preamble of AOF file is not sane, aborting: {error}"))?;
    println!("RDB preamble is OK, proceeding with AOF tail...");
    Ok(preamble.bytes)
}

const MANIFEST_START: usize = 5;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments() {
        let parse = |line: &str| {
            let words: Vec<Vec<u8>> = line.split_whitespace().map(|word| word.into()).collect();
            CheckMode::parse(&words).map(|(mode, _)| mode)
        };
        assert_eq!(parse("a.aof"), Some(CheckMode::Check));
        assert_eq!(parse("--fix a.aof"), Some(CheckMode::Fix));
        assert_eq!(parse("--truncate-to-timestamp 7 a.aof"), Some(CheckMode::TruncateTo(7)));
        for wrong in ["", "--fix", "--foo a.aof", "--truncate-to-timestamp x a.aof", "a b"] {
            assert_eq!(parse(wrong), None, "{wrong}");
        }
    }
}
