//! What an error about a line says beyond the reason: how the line may have been meant.

use bobbin_text::nearest;

use super::foreign::OBSOLETE;
use super::{OPTIONS, find};

/// Directives that are not options.
const DIRECTIVES: [&str; 4] = ["include", "rename-command", "user", "loadmodule"];

/// The error for a `sentinel` line.
pub(super) const SENTINEL: &str = "sentinel directive while not in sentinel mode\nBobbin has no sentinel mode: start \
    valkey-sentinel or redis-sentinel for it.";

/// The error for a line that begins with an unknown word.
pub(super) fn unknown(name: &[u8]) -> String {
    let reason = "Bad directive or wrong number of arguments";
    let name = String::from_utf8_lossy(name);
    if name.starts_with('-') {
        return format!("{reason}\nOptions are given as '--name value'; --help shows more.");
    }
    if let Some((option, value)) = name.split_once('=')
        && find(option.as_bytes()).is_some()
    {
        return format!("{reason}\nA space stands before the value: '{option} {value}'");
    }
    let options = OPTIONS.iter().map(|row| row.name);
    let names = options.chain(DIRECTIVES).chain(OBSOLETE.iter().copied());
    nearest(&name, names)
        .map_or_else(|| reason.to_owned(), |known| format!("{reason}\nDid you mean '{known}'?"))
}

/// The reason why a line was refused, with a hint if the line looks like one that other programs
/// would take.
pub(super) fn hinted(reason: String, line: &[u8]) -> String {
    let begins_comment = |pair: &[u8]| pair[0].is_ascii_whitespace() && pair[1] == b'#';
    let value = line.iter().position(u8::is_ascii_whitespace).map(|at| line[at..].trim_ascii());
    let hint = if reason.contains('\n') {
        return reason;
    } else if line.windows(2).any(begins_comment) {
        "A comment needs a line of its own."
    } else if value.is_some_and(|value| value.starts_with(b"=")) {
        "A space alone stands before the value."
    } else {
        return reason;
    };
    format!("{reason}\n{hint}")
}

/// A line that can be shown: what a terminal would obey is escaped.
pub(super) fn shown(line: &[u8]) -> String {
    let mut shown = String::new();
    for character in String::from_utf8_lossy(line).chars() {
        if character.is_control() {
            shown.extend(character.escape_default());
        } else {
            shown.push(character);
        }
    }
    shown
}

/// Takes the mark away that some editors put before a text in UTF-8.
pub fn without_mark(text: &[u8]) -> &[u8] {
    text.strip_prefix(b"\xef\xbb\xbf").unwrap_or(text)
}

/// Whether a text begins with a mark of UTF-16.
pub(super) fn is_utf16(text: &[u8]) -> bool {
    text.starts_with(b"\xff\xfe") || text.starts_with(b"\xfe\xff")
}

#[cfg(test)]
mod tests {
    use crate::config::{CommandLine, Config, NoDirectives};

    fn faults_of(text: &[u8]) -> Vec<String> {
        let line = CommandLine { from_stdin: true, ..CommandLine::default() };
        Config::check(&line, &mut &text[..], "1", &mut NoDirectives).1
    }

    #[test]
    fn lines_that_other_programs_take_are_told_apart() {
        for (text, hint) in [
            (
                "maxmemory 100mb # note",
                "wrong number of arguments. A comment needs a line of its own.",
            ),
            ("maxmemory 100mb # don't", "A comment needs a line of its own."),
            ("maxmemory=100mb", ". A space stands before the value: 'maxmemory 100mb'"),
            ("maxmemory = 100mb", ". A space alone stands before the value."),
            ("sentinel monitor a", "start valkey-sentinel or redis-sentinel for it."),
            ("sentinel", "start valkey-sentinel or redis-sentinel for it."),
        ] {
            let faults = faults_of(text.as_bytes());
            assert!(matches!(&faults[..], [fault] if fault.ends_with(hint)), "{faults:?}");
        }
        let arguments = [b"--port=7000".to_vec()];
        let line = CommandLine::parse(&arguments);
        let (_, faults) = Config::check(&line, &mut &b""[..], "1", &mut NoDirectives);
        let hint = "A space stands before the value: 'port 7000'";
        assert!(matches!(&faults[..], [fault] if fault.ends_with(hint)), "{faults:?}");
    }

    #[test]
    fn a_mark_of_utf8_is_passed_over() {
        assert_eq!(faults_of(b"\xef\xbb\xbfport 7000\nhz 10\n"), [""; 0]);
        assert_eq!(faults_of(b"hz 10\n\xef\xbb\xbfport 7000\n").len(), 1);
    }

    #[test]
    fn faults_come_in_the_order_of_lines_without_what_a_terminal_obeys() {
        let faults = faults_of(b"port x\nrdma-port 1\nhz \x1b[2J\n");
        let places: Vec<_> = faults.iter().filter_map(|fault| fault.split('\'').next()).collect();
        assert_eq!(places, ["standard input:1: ", "standard input:2: ", "standard input:3: "]);
        assert!(faults[2].contains(r"'hz \u{1b}[2J'"), "{faults:?}");
    }
}
