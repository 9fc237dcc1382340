//! Reads the configuration at start: from a file, the standard input and the command line, in this
//! order.

use std::io::{ErrorKind, Read};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use bobbin_io::error_text;

use super::change::{check_support, read_value, unsupported};
use super::foreign::{FOREIGN, OBSOLETE};
use super::hints::{SENTINEL, hinted, is_utf16, shown, unknown, without_mark};
use super::kind::WRONG_ARITY;
use super::options::OptionId;
use super::table::Flags;
use super::{Config, UnsupportedDirectives, find, quote, split};
use crate::base::glob;

/// The longest chain of files that include each other.
const INCLUDE_DEPTH_MAX: usize = 16;

/// The file and the options that the command line names.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct CommandLine {
    pub file: Option<PathBuf>,
    /// Whether to read the standard input too (`-`).
    pub from_stdin: bool,
    /// The options, written as lines of a configuration file.
    pub options: Vec<u8>,
}

/// Handles directives that are not options.
pub trait Directives {
    /// `rename-command`. An empty `to` hides the command. The error is shown as the reason.
    fn rename_command(&mut self, from: &[u8], to: &[u8]) -> Result<(), String>;

    /// `user`: a name, then rules.
    fn user(&mut self, words: &[&[u8]]) -> Result<(), String>;
}

/// Accepts all directives and ignores them.
#[cfg(test)]
pub(crate) struct NoDirectives;

#[cfg(test)]
impl Directives for NoDirectives {
    fn rename_command(&mut self, _: &[u8], _: &[u8]) -> Result<(), String> {
        Ok(())
    }

    fn user(&mut self, _: &[&[u8]]) -> Result<(), String> {
        Ok(())
    }
}

/// Why the configuration could not be read.
#[derive(Debug, PartialEq, Eq)]
pub enum LoadError {
    /// An error about a line, for the standard error.
    Fatal(String),
    /// A file that could not be read, for the log.
    Unreadable(String),
}

impl LoadError {
    /// Reports the error where Valkey reports it. The caller then exits with 1.
    pub fn print(&self) {
        match self {
            Self::Fatal(text) => eprint!("{text}"),
            Self::Unreadable(text) => log::error!("{text}"),
        }
    }
}

impl CommandLine {
    /// Parses the arguments behind the program's name: `[file] [--name value ...] [-]`.
    ///
    /// The file comes first and does not begin with a dash. `-` counts only as the first or the
    /// last argument. The argument behind a name is its value, even if it begins with dashes, so
    /// that negative numbers work. Only `--save` may have no value.
    pub fn parse(arguments: &[Vec<u8>]) -> Self {
        let mut line = Self::default();
        let mut rest = arguments;
        if let [first, after @ ..] = rest
            && !first.starts_with(b"-")
        {
            line.file = Some(PathBuf::from(std::ffi::OsStr::from_bytes(first)));
            rest = after;
        }
        let first_index = arguments.len() - rest.len();
        let mut wants_value = false;
        for (index, argument) in rest.iter().enumerate() {
            let is_last = index + 1 == rest.len();
            let is_edge = first_index + index == 0 || is_last;
            if argument == b"-" && is_edge {
                line.from_stdin = true;
            } else if let Some(name) = argument.strip_prefix(b"--")
                && !wants_value
            {
                let next_is_option =
                    rest.get(index + 1).is_some_and(|next| next.starts_with(b"--"));
                wants_value = line.add_name(name, is_last || next_is_option);
                wants_value &= !(next_is_option && name.eq_ignore_ascii_case(b"save"));
            } else {
                line.options.extend(quote(argument));
                line.options.push(b' ');
                wants_value = false;
            }
        }
        line
    }

    /// Begins a line with an option's name. Returns whether the name still needs a value. `bare`:
    /// no value follows.
    fn add_name(&mut self, name: &[u8], bare: bool) -> bool {
        if !self.options.is_empty() {
            self.options.push(b'\n');
        }
        self.options.extend(name);
        self.options.push(b' ');
        if bare && name.eq_ignore_ascii_case(b"save") {
            self.options.extend(b"\"\"");
        }
        split(name).is_some_and(|words| words.len() == 1)
    }
}

impl Config {
    /// Loads the configuration that the command line asks for. `version` is shown in errors.
    pub fn load(
        line: &CommandLine,
        stdin: &mut dyn Read,
        version: &str,
        directives: &mut dyn Directives,
    ) -> Result<Self, LoadError> {
        let config = Self::new();
        let mut loader = Loader::new(&config, version, directives);
        loader.read(line, stdin)?;
        if let Err(error) = see_log_file(&config, true) {
            let heading = loader.heading();
            return Err(LoadError::Fatal(format!("{heading}Can't open the log file: {error}\n")));
        }
        Ok(config)
    }

    /// Reads what can be read of the configuration that the command line asks for. Returns a line
    /// for each fault, with the place, the directive and the reason. Creates no file.
    pub fn check(
        line: &CommandLine,
        stdin: &mut dyn Read,
        version: &str,
        directives: &mut dyn Directives,
    ) -> (Self, Vec<String>) {
        let config = Self::new();
        let mut loader = Loader::new(&config, version, directives);
        loader.faults = Some(Vec::new());
        let outcome = loader.read(line, stdin);
        let mut faults = loader.faults.take().unwrap_or_default();
        faults.sort_by_key(|(number, _)| *number);
        let mut faults: Vec<_> = faults.into_iter().map(|(_, fault)| fault).collect();
        if let Err(LoadError::Fatal(text) | LoadError::Unreadable(text)) = outcome {
            faults.push(text);
        }
        if let Err(error) = see_log_file(&config, false) {
            faults.push(format!("logfile: Can't open the log file: {error}"));
        }
        (config, faults)
    }
}

struct Loader<'l> {
    config: &'l Config,
    version: &'l str,
    directives: &'l mut dyn Directives,
    /// The files being read, the outermost first.
    open: Vec<PathBuf>,
    save_seen: bool,
    /// The faults so far, if all of them are wanted; `None` if the first fault is an error.
    /// Each comes with the number of its line among all.
    faults: Option<Vec<(usize, String)>>,
    /// How many lines were read, of all sources.
    lines: usize,
    /// Directives that are not supported. Whether they are errors is known only at the end.
    unsupported: Vec<Unsupported>,
}

/// A line that this version of Bobbin does not support.
struct Unsupported {
    /// Among the lines of all sources.
    number: usize,
    heading: String,
    place: String,
    line: String,
    reason: String,
    is_harmless: bool,
}

/// The source of the lines.
enum ConfigSource<'s> {
    /// The file that the command line names.
    File(&'s Path),
    Included(&'s Path),
    Stdin,
    Arguments,
}

impl ConfigSource<'_> {
    /// The beginning of an error about a line, counted from 1.
    fn heading(&self, number: usize) -> String {
        match self {
            Self::File(_) | Self::Stdin => {
                format!("Reading the configuration file, at line {number}")
            }
            Self::Included(path) => {
                format!("Reading the configuration file {}, at line {number}", path.display())
            }
            Self::Arguments => "Reading the command line".to_owned(),
        }
    }

    /// The place of a line, counted from 1.
    fn place(&self, number: usize) -> String {
        match self {
            Self::File(path) | Self::Included(path) => format!("{}:{number}", path.display()),
            Self::Stdin => format!("standard input:{number}"),
            Self::Arguments => "command line".to_owned(),
        }
    }
}

/// Why a line was refused: a reason, or an error that was already reported for an included file.
enum LineError {
    Reason(String),
    Reported(LoadError),
    Unsupported { reason: String, is_harmless: bool },
}

impl From<String> for LineError {
    fn from(reason: String) -> Self {
        Self::Reason(reason)
    }
}

impl From<&str> for LineError {
    fn from(reason: &str) -> Self {
        Self::Reason(reason.into())
    }
}

impl<'l> Loader<'l> {
    fn new(config: &'l Config, version: &'l str, directives: &'l mut dyn Directives) -> Self {
        Self {
            config,
            version,
            directives,
            open: Vec::new(),
            save_seen: false,
            faults: None,
            lines: 0,
            unsupported: Vec::new(),
        }
    }

    fn read(&mut self, line: &CommandLine, stdin: &mut dyn Read) -> Result<(), LoadError> {
        if let Some(file) = &line.file {
            let path = std::path::absolute(file).unwrap_or_else(|_| file.clone());
            let text = read_file(&path)?;
            *self.config.file.write() = Some(path.clone().into());
            self.open.push(path);
            self.read_text(&ConfigSource::File(file), &text)?;
        }
        if line.from_stdin {
            log::info!("Reading config from stdin");
            let mut text = Vec::new();
            // As with fgets, what was read before the error counts.
            if let Err(error) = stdin.read_to_end(&mut text) {
                log::warn!("Can't read all of the config from stdin: {}", error_text(&error));
            }
            self.read_text(&ConfigSource::Stdin, &text)?;
        }
        self.read_text(&ConfigSource::Arguments, &line.options)?;
        self.judge_unsupported()
    }

    /// Skips unsupported lines if that is wanted and harmless; otherwise reports them.
    fn judge_unsupported(&mut self) -> Result<(), LoadError> {
        let passes = self.config.unsupported_directives() == UnsupportedDirectives::Warn;
        for Unsupported { number, heading, place, line, reason, is_harmless } in
            std::mem::take(&mut self.unsupported)
        {
            if passes && is_harmless {
                let mut passed_over = self.config.passed_over.write();
                passed_over.push(format!("{place}: '{line}' is passed over: {reason}"));
                continue;
            }
            let hint = match (passes, is_harmless) {
                (false, true) => "\nWith 'unsupported-directives warn' it is passed over",
                _ => "",
            };
            self.wrong(number, &heading, &place, &line, &format!("{reason}{hint}"))?;
        }
        Ok(())
    }

    /// Reports a wrong line: as an error, or as one of the faults. `number` counts all lines of all
    /// sources.
    fn wrong(
        &mut self,
        number: usize,
        heading: &str,
        place: &str,
        line: &str,
        reason: &str,
    ) -> Result<(), LoadError> {
        let Some(faults) = &mut self.faults else {
            let text = format!("{}{heading}\n>>> '{line}'\n{reason}\n", self.heading());
            return Err(LoadError::Fatal(text));
        };
        let reason = reason.replace('\n', ". ");
        faults.push((number, format!("{place}: '{line}': {reason}")));
        Ok(())
    }

    fn read_text(&mut self, source: &ConfigSource<'_>, text: &[u8]) -> Result<(), LoadError> {
        for (number, line) in (1..).zip(without_mark(text).split(|byte| *byte == b'\n')) {
            let line = trim(line);
            self.lines += 1;
            let reason = match self.read_line(line) {
                Ok(()) => continue,
                Err(LineError::Reason(reason)) => hinted(reason, line),
                Err(LineError::Reported(LoadError::Unreadable(reason)))
                    if self.faults.is_some() =>
                {
                    reason
                }
                Err(LineError::Reported(error)) => return Err(error),
                Err(LineError::Unsupported { reason, is_harmless }) => {
                    self.unsupported.push(Unsupported {
                        heading: source.heading(number),
                        place: source.place(number),
                        line: shown(line),
                        number: self.lines,
                        reason,
                        is_harmless,
                    });
                    continue;
                }
            };
            let heading = source.heading(number);
            self.wrong(self.lines, &heading, &source.place(number), &shown(line), &reason)?;
        }
        Ok(())
    }

    fn heading(&self) -> String {
        format!("\n*** FATAL CONFIG FILE ERROR (Version {}) ***\n", self.version)
    }

    fn read_line(&mut self, line: &[u8]) -> Result<(), LineError> {
        if line.is_empty() || line.starts_with(b"#") {
            return Ok(());
        }
        let words = split(line).ok_or("Unbalanced quotes in configuration line")?;
        let words: Vec<&[u8]> = words.iter().map(Vec::as_slice).collect();
        let Some((name, values)) = words.split_first() else { return Ok(()) };
        if let Some((row, _)) = find(name) {
            return self.set(row.id, values);
        }
        let name = name.to_ascii_lowercase();
        let known = |list: &[&str]| list.iter().any(|word| word.as_bytes() == name);
        match (&name[..], values) {
            (_, [_]) if known(OBSOLETE) => Ok(()),
            (b"include", [pattern]) => self.include(pattern),
            (b"rename-command", [from, to]) => Ok(self.directives.rename_command(from, to)?),
            (b"user", [_, ..]) => Ok(self.directives.user(values)?),
            // Without the modules, data that they have stored in files could not be loaded.
            (b"loadmodule", [_, ..]) => Err(lacks("loadmodule", false)),
            (b"sentinel", _) => Err(SENTINEL.into()),
            (name, []) if name.contains(&b'.') => {
                Err("Module config specified without value".into())
            }
            (name, _) if name.contains(&b'.') => Err(lacks(&String::from_utf8_lossy(name), true)),
            (name, [_, ..]) if let Some((_, why)) = foreign(name) => Err(LineError::Unsupported {
                reason: format!("{}: {why}", unsupported(&String::from_utf8_lossy(name))),
                is_harmless: true,
            }),
            (name, _) => Err(unknown(name).into()),
        }
    }

    fn set(&mut self, id: OptionId, values: &[&[u8]]) -> Result<(), LineError> {
        let row = super::row(id);
        let current = self.config.value(row);
        let inner;
        let mut words = values.to_vec();
        if row.kind.is_multi() {
            // A single quoted value may have all the words: `--save "900 1"`.
            if let [value] = values
                && !value.is_empty()
            {
                inner = split(value).ok_or("Unbalanced quotes in configuration line")?;
                words = inner.iter().map(Vec::as_slice).collect();
            }
        } else if values.len() != 1 {
            return Err(WRONG_ARITY.into());
        }
        let value = read_value(row, &words, &current)?;
        check_support(row, &value).map_err(|reason| LineError::Unsupported {
            reason,
            is_harmless: row.flags.contains(Flags::IGNORABLE),
        })?;
        let value = match id {
            OptionId::save => self.add_save_points(&current, value),
            _ => value,
        };
        Ok(self.config.enter(row, &value)?)
    }

    /// Adds up `save` lines. The first line replaces the default, and an empty one removes those
    /// before it.
    fn add_save_points(
        &mut self,
        current: &super::OptionValue,
        new: super::OptionValue,
    ) -> super::OptionValue {
        let first = !std::mem::replace(&mut self.save_seen, true);
        match (current, &new) {
            (super::OptionValue::Text(old), super::OptionValue::Text(more))
                if !first && !old.is_empty() && !more.is_empty() =>
            {
                super::OptionValue::text(&[&**old, more].join(&b' '))
            }
            _ => new,
        }
    }

    fn include(&mut self, pattern: &[u8]) -> Result<(), LineError> {
        let path = Path::new(std::ffi::OsStr::from_bytes(pattern));
        let paths = match glob::is_pattern(pattern) {
            true => glob::paths(path),
            false => vec![path.to_owned()],
        };
        let depth = self.open.len();
        for path in paths {
            let identity = path.canonicalize().unwrap_or_else(|_| path.clone());
            let is_open =
                self.open.iter().any(|open| open.canonicalize().ok().as_ref() == Some(&identity));
            if is_open || depth >= INCLUDE_DEPTH_MAX {
                let why =
                    if is_open { "it is being read already" } else { "files include too deeply" };
                return Err(format!("Can't include '{}': {why}", path.display()).into());
            }
            let text = read_file(&path).map_err(LineError::Reported)?;
            self.open.push(identity);
            let read = self.read_text(&ConfigSource::Included(&path), &text);
            self.open.truncate(depth);
            read.map_err(LineError::Reported)?;
        }
        Ok(())
    }
}

/// Checks that the log file can be written, as an error could not be reported later. `make`: create
/// the file if it does not exist.
fn see_log_file(config: &Config, make: bool) -> Result<(), String> {
    let name = config.logfile();
    if name.is_empty() {
        return Ok(());
    }
    let path = Path::new(std::ffi::OsStr::from_bytes(&name));
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    match std::fs::OpenOptions::new().append(true).create(make).open(path) {
        Ok(_) => Ok(()),
        Err(error)
            if !make
                && error.kind() == ErrorKind::NotFound
                && folder.is_none_or(|folder| folder.is_dir()) =>
        {
            Ok(())
        }
        Err(error) => Err(format!("{}: {}", path.display(), error_text(&error))),
    }
}

/// The error for a directive that this version of Bobbin does not have.
fn lacks(name: &str, is_harmless: bool) -> LineError {
    LineError::Unsupported { reason: unsupported(name), is_harmless }
}

/// The directive of another server, with the reason why Bobbin does not need it.
fn foreign(name: &[u8]) -> Option<&'static (&'static str, &'static str)> {
    FOREIGN.iter().find(|(known, _)| known.as_bytes() == name)
}

fn read_file(path: &Path) -> Result<Vec<u8>, LoadError> {
    let shown = path.display();
    let text = std::fs::read(path).map_err(|error| {
        let why = error_text(&error);
        LoadError::Unreadable(format!("Fatal error, can't open config file '{shown}': {why}"))
    })?;
    if is_utf16(&text) {
        let text = format!("Fatal error, config file '{shown}' is in UTF-16. Save it in UTF-8.");
        return Err(LoadError::Unreadable(text));
    }
    Ok(text)
}

fn trim(line: &[u8]) -> &[u8] {
    let is_space = |byte: &u8| b" \t\r\n".contains(byte);
    let Some(start) = line.iter().position(|byte| !is_space(byte)) else { return &[] };
    let end = line.iter().rposition(|byte| !is_space(byte)).map_or(0, |last| last + 1);
    &line[start..end]
}

#[cfg(test)]
mod tests;
