//! `--monitor-input`: commands that somebody once sent, out of the output of MONITOR, in place of
//! `--command "__monitor_line1__"` (the first of them) and `--command "__monitor_line@__"` (all).
//!
//! A line is `<seconds> [<database> <address>] "<word>" "<word>"...`, in quotes as Redis escapes
//! them.

use std::path::Path;

use bobbin_client::error_text;

use super::DriveFailure;
use crate::options::memtier::{CustomCommand, MemtierSettings};

/// The commands in the order of a round, and whether each of them is drawn by its ratio instead.
pub struct Sequence {
    pub commands: Vec<CustomCommand>,
    pub is_random: bool,
}

/// The commands with the monitored ones in their places.
pub fn expand(settings: &MemtierSettings) -> Result<Sequence, DriveFailure> {
    let commands = settings.commands.clone();
    let places: Vec<_> = commands.iter().map(Place::of).collect();
    let is_random = settings.monitor_at_random && places.contains(&Some(Place::All));
    if places.iter().all(Option::is_none) {
        if settings.monitor_input.is_some() {
            return Err(fault(
                "--monitor-input needs --command \"__monitor_line@__\", or a number",
            ));
        }
        return Ok(Sequence { commands, is_random: false });
    }
    let Some(file) = &settings.monitor_input else {
        return Err(fault("__monitor_line...__ needs --monitor-input"));
    };
    let lines = read(file)?;
    if is_random && commands.len() > 1 {
        return Err(fault("--monitor-pattern R goes with one --command"));
    }
    let all = places.iter().filter(|place| **place == Some(Place::All));
    // Each round takes the next `taken` lines. The sequence ends where a round would begin with the
    // first line again.
    let taken: u64 = match all.count() {
        0 => 0,
        1 if is_random => lines.len() as u64,
        1 => commands
            .iter()
            .zip(&places)
            .map(|(command, place)| match place {
                Some(Place::All) => command.ratio,
                _ => 0,
            })
            .sum(),
        _ => return Err(fault("__monitor_line@__ can be given once")),
    };
    let rounds =
        if taken == 0 { 1 } else { lines.len() as u64 / divisor(lines.len() as u64, taken) };
    if rounds.saturating_mul(taken + commands.len() as u64) > COMMANDS_MAX {
        return Err(fault("--monitor-input: there are too many commands"));
    }
    let mut next = (0..lines.len()).cycle();
    let mut sequence = Vec::new();
    for _ in 0..rounds {
        for (command, place) in commands.iter().zip(&places) {
            match place {
                None => sequence.push(command.clone()),
                Some(Place::Line(number)) => {
                    let line = number.checked_sub(1).and_then(|index| lines.get(index));
                    let line = line.ok_or_else(|| {
                        fault(&format!(
                            "--monitor-input has no line {number}: there are {}",
                            lines.len()
                        ))
                    })?;
                    sequence.push(CustomCommand { ratio: command.ratio, ..line.clone() });
                }
                Some(Place::All) => {
                    let some = next.by_ref().take(taken as usize);
                    sequence.extend(some.map(|index| lines[index].clone()));
                }
            }
        }
    }
    Ok(Sequence { commands: sequence, is_random })
}

/// What a `--command` stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    /// Counted from 1.
    Line(usize),
    All,
}

impl Place {
    fn of(command: &CustomCommand) -> Option<Self> {
        let [word] = command.words.as_slice() else { return None };
        let which = word.strip_prefix(b"__monitor_line")?.strip_suffix(b"__")?;
        match which {
            b"@" => Some(Self::All),
            number => std::str::from_utf8(number).ok()?.parse().ok().map(Self::Line),
        }
    }
}

fn read(file: &Path) -> Result<Vec<CustomCommand>, DriveFailure> {
    let bytes = std::fs::read(file).map_err(|error| {
        fault(&format!("--monitor-input '{}': {}", file.display(), error_text(&error)))
    })?;
    let lines: Vec<CustomCommand> = bytes.split(|byte| *byte == b'\n').filter_map(parse).collect();
    if lines.is_empty() {
        return Err(fault(&format!("--monitor-input '{}' has no commands", file.display())));
    }
    Ok(lines)
}

/// The command of a line; nothing where it is none, as MONITOR's OK.
fn parse(line: &[u8]) -> Option<CustomCommand> {
    let end = line.windows(3).position(|three| three == b"] \"")?;
    let text = &line[end + 2..];
    let words = bobbin_resp::split_arguments(text)?;
    let words: Vec<Vec<u8>> = words.into_iter().collect();
    let line = String::from_utf8_lossy(text).trim_end().to_owned();
    (!words.is_empty()).then(|| CustomCommand::plain(line, words))
}

fn divisor(mut a: u64, mut b: u64) -> u64 {
    while b > 0 {
        (a, b) = (b, a % b);
    }
    a
}

fn fault(text: &str) -> DriveFailure {
    DriveFailure(text.to_owned())
}

/// The commands of a round, which all lie in memory.
const COMMANDS_MAX: u64 = 60_000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines() {
        let line = br#"1795298847.282483 [0 127.0.0.1:60764] "set" "a \"] \"" "\x00b""#;
        assert_eq!(parse(line).unwrap().words, [&b"set"[..], b"a \"] \"", b"\0b"]);
        let script = br#"1.2 [0 lua] "GET" "k""#;
        assert_eq!(parse(script).unwrap().words, [&b"GET"[..], b"k"]);
        assert_eq!(parse(b"OK"), None);
        assert_eq!(parse(b""), None);
    }

    #[test]
    fn rounds() {
        assert_eq!((divisor(6, 4), divisor(5, 1), divisor(3, 3)), (2, 1, 3));
    }
}
