//! The command line: two grammars, redis-benchmark's and memtier_benchmark's, each a table of
//! flags. Parsing, help, man page and completions are all made from the same table.

pub mod common;
pub mod connection;
mod generate;
pub mod memtier;
pub mod redis;

use std::ops::{Bound, RangeBounds};

use bobbin_client::{nearest, wrapped};

pub use common::Common;
pub use generate::{completion, man_page};

/// One flag.
#[derive(Debug)]
pub struct Flag<S: 'static> {
    /// As typed, with their dashes.
    pub names: &'static [&'static str],
    /// What its value is called; empty for a flag without one.
    pub value: &'static str,
    pub help: &'static str,
    pub apply: fn(&mut S, &str) -> Result<(), String>,
}

impl<S> Flag<S> {
    fn describe(&self) -> Description {
        Description { names: self.names, value: self.value, help: self.help }
    }
}

/// What is shown of a flag, whatever it applies to.
#[derive(Clone, Copy, Debug)]
pub struct Description {
    pub names: &'static [&'static str],
    pub value: &'static str,
    pub help: &'static str,
}

/// A way of writing the command line.
#[derive(Debug)]
pub struct Grammar<S: 'static> {
    pub program: &'static str,
    pub about: &'static str,
    pub usage: &'static str,
    pub notes: &'static str,
    /// How to get to the server; shown first.
    pub connection: &'static [Flag<Common>],
    pub flags: &'static [Flag<S>],
    /// Flags that other grammars have too; shown last.
    pub shared: &'static [&'static [Flag<Common>]],
    /// `-p6379` is `-p 6379`.
    pub attached_values: bool,
}

/// Why there are no settings.
#[derive(Debug, PartialEq, Eq)]
pub enum NoSettings {
    Help,
    Version,
    Error(String),
}

impl<S: AsMut<Common>> Grammar<S> {
    /// Applies the flags to `settings` and returns what follows them: the words of a command.
    pub fn parse(&self, arguments: &[String], settings: &mut S) -> Result<Vec<String>, NoSettings> {
        let rest = self.apply(arguments, settings)?;
        settings.as_mut().finish().map_err(NoSettings::Error)?;
        Ok(rest)
    }

    fn apply(&self, arguments: &[String], settings: &mut S) -> Result<Vec<String>, NoSettings> {
        let mut at = 0;
        while at < arguments.len() {
            let argument = &arguments[at];
            at += 1;
            match argument.as_str() {
                "--" => return Ok(arguments[at..].to_vec()),
                "--help" => return Err(NoSettings::Help),
                "--version" | "-v" => return Err(NoSettings::Version),
                "-" => return Ok(arguments[at - 1..].to_vec()),
                word if !word.starts_with('-') => return Ok(arguments[at - 1..].to_vec()),
                _ => {}
            }
            let (name, mut value) = self.split(argument);
            let Some(flag) = self.find(name) else {
                let meant = nearest(name, self.names());
                let meant = meant.map_or_else(
                    || "--help lists the options".to_owned(),
                    |meant| format!("did you mean '{meant}'?"),
                );
                return Err(NoSettings::Error(format!("Unknown option '{name}'; {meant}")));
            };
            if flag.takes_value() && value.is_none() {
                value = arguments.get(at).map(String::as_str);
                at += 1;
                if value.is_none() {
                    return Err(NoSettings::Error(format!("Option '{name}' needs a value")));
                }
            } else if !flag.takes_value() && value.is_some() {
                return Err(NoSettings::Error(format!("Option '{name}' takes no value")));
            }
            flag.apply(settings, value.unwrap_or_default())
                .map_err(|error| NoSettings::Error(format!("Option '{name}': {error}")))?;
        }
        Ok(Vec::new())
    }

    /// All flags, in the order in which they are shown.
    pub fn descriptions(&self) -> Vec<Description> {
        let connection = self.connection.iter().map(Flag::describe);
        let own = self.flags.iter().map(Flag::describe);
        let shared = self.shared.iter().copied().flatten().map(Flag::describe);
        connection.chain(own).chain(shared).chain(GENERAL).collect()
    }

    /// The text of `--help`.
    pub fn help(&self) -> String {
        let mut text = format!("Usage: {}\n\n{}\n\nOptions:\n", self.usage, self.about);
        for flag in self.descriptions() {
            let mut left = flag.names.join(", ");
            if !flag.value.is_empty() {
                left += &format!(" <{}>", flag.value);
            }
            let mut lines = wrapped(flag.help, HELP_WIDTH - HELP_INDENT).into_iter();
            let first = lines.next().unwrap_or_default();
            if left.len() + 3 < HELP_INDENT {
                text += &format!(" {left:width$}{first}\n", width = HELP_INDENT - 1);
            } else {
                text += &format!(" {left}\n{:HELP_INDENT$}{first}\n", "");
            }
            for line in lines {
                text += &format!("{:HELP_INDENT$}{line}\n", "");
            }
        }
        text + "\n" + self.notes
    }

    fn find(&self, name: &str) -> Option<Found<'_, S>> {
        let own = self.flags.iter().find(|flag| flag.names.contains(&name)).map(Found::Own);
        own.or_else(|| {
            let mut common = self.connection.iter().chain(self.shared.iter().copied().flatten());
            common.find(|flag| flag.names.contains(&name)).map(Found::Common)
        })
    }

    /// The names of all flags.
    fn names(&self) -> impl Iterator<Item = &str> {
        let common = self.connection.iter().chain(self.shared.iter().copied().flatten());
        let common = common.flat_map(|flag| flag.names.iter().copied());
        self.flags.iter().flat_map(|flag| flag.names.iter().copied()).chain(common)
    }

    /// A flag's name and, where it is attached to it, its value.
    fn split<'b>(&self, argument: &'b str) -> (&'b str, Option<&'b str>) {
        if argument.starts_with("--") {
            return match argument.split_once('=') {
                Some((name, value)) => (name, Some(value)),
                None => (argument, None),
            };
        }
        match argument.char_indices().nth(2) {
            Some((at, _)) if self.attached_values => (&argument[..at], Some(&argument[at..])),
            _ => (argument, None),
        }
    }
}

enum Found<'a, S: 'static> {
    Own(&'a Flag<S>),
    Common(&'a Flag<Common>),
}

impl<S: AsMut<Common>> Found<'_, S> {
    fn takes_value(&self) -> bool {
        match self {
            Self::Own(flag) => !flag.value.is_empty(),
            Self::Common(flag) => !flag.value.is_empty(),
        }
    }

    fn apply(&self, settings: &mut S, value: &str) -> Result<(), String> {
        match self {
            Self::Own(flag) => (flag.apply)(settings, value),
            Self::Common(flag) => (flag.apply)(settings.as_mut(), value),
        }
    }
}

/// What most flags do with their value.
pub(crate) fn set<T>(setting: &mut T, value: T) -> Result<(), String> {
    *setting = value;
    Ok(())
}

/// A whole number in `range`.
pub(crate) fn number<T>(value: &str, range: impl RangeBounds<u64>) -> Result<T, String>
where
    T: TryFrom<u64>,
{
    let fault = || format!("'{value}' is not {}", whole_number(&range));
    let number = value.parse().ok().filter(|number| range.contains(number)).ok_or_else(fault)?;
    T::try_from(number).map_err(|_| fault())
}

/// What a number in `range` is, in words.
fn whole_number(range: &impl RangeBounds<u64>) -> String {
    let low = match range.start_bound() {
        Bound::Included(low) | Bound::Excluded(low) => *low,
        Bound::Unbounded => 0,
    };
    match range.end_bound() {
        Bound::Included(high) | Bound::Excluded(high) => {
            format!("a whole number from {low} to {high}")
        }
        Bound::Unbounded => format!("a whole number from {low} on"),
    }
}

/// A number above 0, perhaps with a fraction.
pub(crate) fn positive(value: &str) -> Result<f64, String> {
    match value.parse::<f64>() {
        Ok(number) if number > 0.0 && number.is_finite() => Ok(number),
        _ => Err(format!("'{value}' is not a number above 0")),
    }
}

const GENERAL: [Description; 2] = [
    Description { names: &["--help"], value: "", help: "Show this and end." },
    Description { names: &["--version", "-v"], value: "", help: "Show the version and end." },
];
const HELP_INDENT: usize = 30;
const HELP_WIDTH: usize = 96;

#[cfg(test)]
mod tests {
    use super::*;

    fn words(line: &str) -> Vec<String> {
        line.split_whitespace().map(str::to_owned).collect()
    }

    #[test]
    fn the_two_grammars_differ_in_what_letters_mean() {
        let mut settings = redis::RedisSettings::default();
        let rest = redis::GRAMMAR.parse(&words("-h host -p 7 -c 3 -- GET -n"), &mut settings);
        assert_eq!(rest.unwrap(), ["GET", "-n"]);
        assert_eq!((settings.common.host.as_str(), settings.common.port), ("host", 7));
        assert_eq!(settings.clients, 3);
        let mut settings = memtier::MemtierSettings::default();
        let rest = memtier::GRAMMAR.parse(&words("-s host -p7 -c3 --ratio=1:2"), &mut settings);
        assert_eq!(rest.unwrap(), [""; 0]);
        assert_eq!((settings.common.host.as_str(), settings.common.port), ("host", 7));
        assert_eq!(settings.ratio, (1, 2));
    }

    #[test]
    fn bad_arguments_are_one_line() {
        for (line, error) in [
            ("--bogus", "Unknown option '--bogus'; --help lists the options"),
            ("--thread 2", "Unknown option '--thread'; did you mean '--threads'?"),
            ("-c", "Option '-c' needs a value"),
            ("-c x", "Option '-c': 'x' is not a whole number from 0 to 1000000"),
            ("-n 0", "Option '-n': '0' is not a whole number from 1 on"),
            ("-p 65536", "Option '-p': '65536' is not a whole number from 1 to 65535"),
            ("--duration 1e9", "Option '--duration': '1e9' is more than 10000000 seconds"),
            ("-q=1", "Unknown option '-q=1'; --help lists the options"),
            ("--csv=1", "Option '--csv' takes no value"),
        ] {
            let stop = redis::GRAMMAR.parse(&words(line), &mut redis::RedisSettings::default());
            assert_eq!(stop, Err(NoSettings::Error(error.into())), "{line}");
        }
        let stop =
            redis::GRAMMAR.parse(&words("-c 5 --help"), &mut redis::RedisSettings::default());
        assert_eq!(stop, Err(NoSettings::Help));
    }

    #[test]
    fn zeros_mean_what_they_mean_in_valkey_benchmark() {
        let mut settings = redis::RedisSettings::default();
        let line = words("-r 0 -d 0 --warmup 0 --rps 0");
        assert_eq!(redis::GRAMMAR.parse(&line, &mut settings), Ok(Vec::new()));
        assert_eq!((settings.keyspace, settings.data_size), (Some(1), 1));
        assert_eq!((settings.warm_up, settings.rate), (std::time::Duration::ZERO, None));
    }

    #[test]
    fn no_name_means_two_things() {
        fn check(descriptions: &[Description]) {
            let mut names: Vec<_> = descriptions.iter().flat_map(|flag| flag.names).collect();
            names.sort_unstable();
            let count = names.len();
            names.dedup();
            assert_eq!(names.len(), count);
            assert!(descriptions.iter().all(|flag| flag.help.ends_with('.')));
        }
        check(&redis::GRAMMAR.descriptions());
        check(&memtier::GRAMMAR.descriptions());
    }
}
