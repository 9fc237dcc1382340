//! Documents that are generated from the table: `bobbin.conf`, the options in COMPAT.md, and the
//! page of options in `docs/reference`.

use std::fmt::Write;

use bobbin_text::wrapped;

use super::kind::OptionKind;
use super::options::{OPTIONS, OptionId};
use super::table::{Flags, OptionRow, Support};

/// The commented configuration file, which has every option with its default.
pub fn sample() -> String {
    let mut text = String::from(HEADING);
    let mut section = "";
    for row in OPTIONS.iter().filter(|row| !row.flags.contains(Flags::HIDDEN)) {
        if row.section != section {
            section = row.section;
            // Writing to a `String` does not fail, here and below.
            write!(text, "\n\n##### {} #####\n", section.to_uppercase()).ok();
        }
        text.push('\n');
        for line in row.doc {
            writeln!(text, "#{line}").ok();
        }
        if let Some(remark) = remark(row) {
            writeln!(text, "# {remark}").ok();
        }
        if row.is_immutable() {
            text.push_str("# Read at start only.\n");
        }
        writeln!(text, "# {} {}", row.name, default_for_file(row)).ok();
    }
    text
}

/// The options in COMPAT.md: a table of those that Bobbin does not follow fully, with the reasons,
/// and the names of the others.
pub fn compat_section() -> String {
    let mut text = String::from("| option | support | remark |\n|---|---|---|\n");
    let mut full = Vec::new();
    for row in OPTIONS {
        let support = match row.support {
            Support::Full => {
                full.push(format!("`{}`", row.name));
                continue;
            }
            Support::Neutral(_) => "accepted, no effect",
            Support::Dormant(_) => "kept, no effect yet",
            Support::NotYet(_) => "default only",
            Support::Partial { .. } => "partly",
        };
        let remark = remark(row).unwrap_or_default();
        writeln!(text, "| `{}` | {support} | {remark} |", row.name).ok();
    }
    let full = format!("Followed fully: {}.", full.join(", "));
    write!(text, "\n{}\n", wrapped(&full, WIDTH).join("\n")).ok();
    text
}

/// The page of options: the values, the default and the documentation of each.
pub fn reference() -> String {
    let mut text = String::from(REFERENCE_HEADING);
    let mut section = "";
    for row in OPTIONS.iter().filter(|row| !row.flags.contains(Flags::HIDDEN)) {
        if row.section != section {
            section = row.section;
            write!(text, "\n## Section {section}\n").ok();
        }
        write!(text, "\n### {}\n\n", row.name).ok();
        for line in row.doc {
            writeln!(text, "{}", markdown(line.trim_start())).ok();
        }
        if let Some(remark) = remark(row) {
            writeln!(text, "{}", markdown(&remark)).ok();
        }
        let default = default_for_file(row);
        let when = if row.is_immutable() { "read at start only" } else { "CONFIG SET changes it" };
        write!(text, "\n{}; default `{default}`; {when}", values(&row.kind)).ok();
        if !row.aliases.is_empty() {
            write!(text, "; also called `{}`", row.aliases.join("`, `")).ok();
        }
        text.push_str(".\n");
    }
    text
}

/// The values that an option takes, in words.
fn values(kind: &OptionKind) -> String {
    let words = |words: &[(&str, i64)]| {
        let words: Vec<String> = words.iter().map(|(word, _)| format!("`{word}`")).collect();
        words.join(", ")
    };
    let bound = |bound: i64| match bound {
        i64::MAX => "no limit".to_owned(),
        bound => bound.to_string(),
    };
    match *kind {
        OptionKind::YesNo { .. } => "`yes` or `no`".into(),
        OptionKind::Integer { min, max, .. } => format!("Integer, {} to {}", min, bound(max)),
        OptionKind::IntegerOrAuto { min, max } => format!("Integer, {min} to {max}, or `auto`"),
        OptionKind::Memory { .. } => "Memory, with units".into(),
        OptionKind::SignedMemory { .. } => "Memory, with units, or negative".into(),
        OptionKind::MemoryOrPercent { .. } => "Memory, with units, or a percentage".into(),
        OptionKind::Octal { .. } => "Octal number".into(),
        OptionKind::Choice { words: known, .. } => format!("One of {}", words(known)),
        OptionKind::Flags { words: known, .. } => format!("Some of {}", words(known)),
        OptionKind::Letters { .. } => "Letters".into(),
        OptionKind::Text { .. } => "Text".into(),
        OptionKind::Words { .. } => "Words".into(),
        OptionKind::Directory => "Folder".into(),
    }
}

/// The documentation of a row as Markdown. Text in backticks stays as it is.
pub fn markdown(words: &str) -> String {
    let escaped = |words: &str| words.replace('<', "&lt;").replace('*', "\\*");
    let parts = words.split('`').enumerate();
    let parts: Vec<String> =
        parts.map(|(at, part)| if at % 2 == 0 { escaped(part) } else { part.to_owned() }).collect();
    parts.join("`")
}

fn remark(row: &OptionRow) -> Option<String> {
    match row.support {
        Support::Full => None,
        Support::Neutral(why) => Some(format!("Accepted without effect: {why}.")),
        Support::Dormant(feature) => {
            Some(format!("Kept without effect: this version does not have {feature}."))
        }
        Support::NotYet(feature) => {
            Some(format!("Only the default is accepted: this version does not have {feature}."))
        }
        Support::Partial { remark, .. } => Some(format!("In part: {remark}.")),
    }
}

fn default_for_file(row: &OptionRow) -> String {
    let text = row.kind.format_for_file(&row.kind.default());
    let text = String::from_utf8_lossy(&text);
    match row.kind {
        OptionKind::Directory => "./".into(),
        OptionKind::Words { .. } if row.id == OptionId::replicaof => "no one".into(),
        OptionKind::Text { .. } | OptionKind::Letters { .. }
            if !text.contains(' ') && text.len() > 2 =>
        {
            text.trim_matches('"').into()
        }
        _ => text.into_owned(),
    }
}

/// The width of lines in documents, in characters.
const WIDTH: usize = 100;
const HEADING: &str = "\
# Configuration of bobbin-server. Each option is shown with its default, commented out.
#
#     bobbin-server bobbin.conf [--name value ...]
#
# A line is a name and its values, separated by spaces. Values may stand in double quotes, with the
# escapes \\n \\r \\t \\b \\a \\xHH \\\" \\\\, or in single quotes. Amounts of memory take units: 1k is
# 1000 bytes and 1kb is 1024; likewise m, mb, g, gb. Options of the command line come after the file.
# CONFIG SET changes options while the server runs, CONFIG REWRITE writes the changes into the file.
#
# Besides options there are three directives:
#     include /path/to/other.conf         reads another file here; may hold * ? [...]
#     rename-command CONFIG \"\"            hides a command, or gives it another name
#     user NAME on >PASSWORD ~KEYS* +@read  a user and its rights (ACL HELP, docs/acl.md)
#
# This file is generated from the table of options (crates/server/src/config/options.rs).
";

const REFERENCE_HEADING: &str = "\
<!-- generated from the rows: BOBBIN_WRITE=1 cargo test -p bobbin-server --lib reference -->

# Options

Every option of the configuration: what it does, what it takes, and its default. It stands in a file
(`name value`), on the command line (`--name value`), or is set while the server runs (`CONFIG SET
name value`; `CONFIG REWRITE` writes the file). [bobbin.conf](../../bobbin.conf) is a file with all
of them to begin with. [COMPAT.md](../../COMPAT.md#options) says how far Bobbin follows each.
";

#[cfg(test)]
mod tests {
    use super::super::load::NoDirectives;
    use super::super::{CommandLine, Config};
    use super::*;

    /// With BOBBIN_WRITE=1 in the environment, the test writes the file instead.
    #[test]
    fn the_sample_is_up_to_date() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../bobbin.conf");
        if std::env::var_os("BOBBIN_WRITE").is_some() {
            std::fs::write(path, sample()).unwrap();
        }
        let written = std::fs::read_to_string(path).unwrap_or_default();
        assert!(
            written == sample(),
            "bobbin.conf lags behind the table: BOBBIN_WRITE=1 cargo test -p bobbin-server config::document"
        );
    }

    /// With BOBBIN_WRITE=1 in the environment, the test writes the section instead.
    #[test]
    fn the_compatibility_table_is_up_to_date() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../COMPAT.md");
        let (start, end) = ("<!-- generated: options -->\n", "<!-- end -->");
        let written = std::fs::read_to_string(path).unwrap();
        let (before, rest) = written.split_once(start).unwrap();
        let (_, after) = rest.split_once(end).unwrap();
        let wanted = format!("{before}{start}{}{end}{after}", compat_section());
        if std::env::var_os("BOBBIN_WRITE").is_some() {
            std::fs::write(path, wanted).unwrap();
            return;
        }
        assert!(
            written == wanted,
            "COMPAT.md lags behind the table: BOBBIN_WRITE=1 cargo test -p bobbin-server config::document"
        );
    }

    #[test]
    fn every_line_of_the_sample_loads_as_the_default() {
        let lines = sample();
        let lines: Vec<&str> = lines
            .lines()
            .filter_map(|line| line.strip_prefix("# "))
            .filter(|line| super::super::find(line.split(' ').next().unwrap().as_bytes()).is_some())
            .filter(|line| {
                OPTIONS.iter().any(|row| *line == format!("{} {}", row.name, default_for_file(row)))
            })
            .collect();
        let shown = OPTIONS.iter().filter(|row| !row.flags.contains(Flags::HIDDEN));
        assert_eq!(lines.len(), shown.count());
        let line = CommandLine { from_stdin: true, ..CommandLine::default() };
        let text = lines.join("\n");
        let config = Config::load(&line, &mut text.as_bytes(), "1", &mut NoDirectives).unwrap();
        let defaults = Config::new();
        for row in OPTIONS {
            assert_eq!(config.shown(row), defaults.shown(row), "{}", row.name);
        }
    }

    #[test]
    fn compat_names_every_option_once() {
        let text = compat_section();
        for row in OPTIONS {
            assert_eq!(text.matches(&format!("`{}`", row.name)).count(), 1, "{}", row.name);
        }
    }
}
