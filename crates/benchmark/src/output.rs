//! The standard output, the standard error, and the files that results go to. The program that
//! reads the output may stop doing so, `head` say; this one then ends without a word. Every other
//! reason why output is lost is said.

use std::{
    fmt,
    fs::{File, OpenOptions},
    io::{self, ErrorKind, Seek, Write},
    path::{Path, PathBuf},
};

use bobbin_client::error_text;

use crate::children;

/// Prints as `print!` does.
macro_rules! say {
    ($($argument:tt)*) => { $crate::output::write(format_args!($($argument)*)) };
}

/// Prints as `println!` does.
macro_rules! say_line {
    () => { $crate::output::write(format_args!("\n")) };
    ($($argument:tt)*) => {{
        $crate::output::write(format_args!($($argument)*));
        $crate::output::write(format_args!("\n"));
    }};
}

/// Prints as `eprintln!` does. That nobody reads it any more changes nothing.
macro_rules! complain {
    ($($argument:tt)*) => { $crate::output::write_error(&format!($($argument)*)) };
}

pub(crate) fn write_error(line: &str) {
    let _ = io::stderr().write_all(format!("{line}\n").as_bytes());
}

pub(crate) fn write(text: fmt::Arguments<'_>) {
    or_end(io::stdout().write_fmt(text));
}

/// Has the reader see all that was printed, also what ends in the middle of a line.
pub(crate) fn flush() {
    or_end(io::stdout().flush());
}

fn or_end(written: io::Result<()>) {
    let Err(error) = written else { return };
    if error.kind() != ErrorKind::BrokenPipe {
        complain!("Cannot write the standard output: {}", error_text(&error));
    }
    children::exit(1);
}

/// A file that is opened before what goes into it has been measured: one that cannot be written
/// costs no run. What was in it before stays until there is something new, and a file that was not
/// there goes again where nothing came.
#[derive(Debug)]
pub(crate) struct OutputFile {
    file: File,
    path: PathBuf,
    is_unused: bool,
}

impl OutputFile {
    pub(crate) fn open(path: &Path) -> Result<Self, String> {
        let mut options = OpenOptions::new();
        options.write(true);
        let (opened, is_new) = match options.clone().create_new(true).open(path) {
            // A link to nothing exists, and what it leads to does not.
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {
                (options.create(true).truncate(false).open(path), false)
            }
            opened => (opened, true),
        };
        let file = opened.map_err(|error| unwritable(path, &error))?;
        Ok(Self { file, path: path.to_owned(), is_unused: is_new })
    }

    /// Replaces what the file holds.
    pub(crate) fn write(&mut self, contents: impl AsRef<[u8]>) -> Result<(), String> {
        self.is_unused = false;
        self.replace(contents.as_ref()).map_err(|error| unwritable(&self.path, &error))
    }

    fn replace(&mut self, contents: &[u8]) -> io::Result<()> {
        // A pipe or a terminal has no length and no place to go back to.
        if self.file.metadata()?.is_file() {
            self.file.set_len(0)?;
            self.file.rewind()?;
        }
        self.file.write_all(contents)
    }
}

impl Drop for OutputFile {
    fn drop(&mut self) {
        if self.is_unused {
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

fn unwritable(path: &Path, error: &io::Error) -> String {
    format!("Cannot write {}: {}", path.display(), error_text(error))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_change_only_where_there_is_something_to_write() {
        let folder = std::env::temp_dir().join(format!("bobbin-output-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let path = folder.join("results");
        let read = || std::fs::read_to_string(&path);
        drop(OutputFile::open(&path).unwrap());
        assert!(read().is_err(), "a new file goes where nothing came");
        let mut file = OutputFile::open(&path).unwrap();
        file.write("first of all").unwrap();
        file.write("second").unwrap();
        drop(file);
        assert_eq!(read().unwrap(), "second");
        drop(OutputFile::open(&path).unwrap());
        assert_eq!(read().unwrap(), "second", "an old one stays");
        let missing = folder.join("not there/results");
        let Err(error) = OutputFile::open(&missing) else {
            panic!("{} can be opened", missing.display());
        };
        let expected = format!("Cannot write {}: No such file or directory", missing.display());
        assert_eq!(error, expected);
        std::fs::remove_dir_all(&folder).unwrap();
    }
}
