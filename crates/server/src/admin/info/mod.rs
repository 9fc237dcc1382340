//! What the server tells about itself: one table of sections and fields, which INFO and the metrics
//! are made from.
//!
//! An [`InfoField`] is one line with a fixed name: the name, whether it is a counter, its unit and
//! meaning, and how to read it from a [`Snapshot`]. Sections with variable lines (commands,
//! databases, threads) write them themselves.

mod clients;
mod command;
mod commands;
mod keyspace;
mod memory;
mod process;
mod replication;
mod snapshot;
mod stats;
mod threads;
mod tls;
mod unit;

pub(super) use command::COMMANDS;
pub use keyspace::{DatabaseFigures, KeyspaceFigures, KeyspaceSum};
pub use memory::MemoryFigures;
pub use snapshot::Snapshot;
pub use unit::InfoUnit;

/// A group of lines under a title.
pub struct Section {
    /// Its name as an argument of INFO, in lower case.
    pub name: &'static str,
    pub title: &'static str,
    pub shown: SectionShown,
    pub lines: Lines,
}

/// When a section is shown, apart from when it is named.
#[derive(Clone, Copy, Debug)]
pub enum SectionShown {
    /// Without arguments, and with `default`, `all` and `everything`.
    Default,
    /// With `all` and `everything`.
    All,
    /// Only when it is named.
    Named,
    /// As `Default`, but not at all, named or not, while this is false.
    While(fn(&Snapshot<'_>) -> bool),
}

pub enum Lines {
    Fields(&'static [InfoField]),
    Written(InfoWriter),
    /// Fields, and then variable lines.
    Both(&'static [InfoField], InfoWriter),
    Several(&'static [Self]),
}

/// Appends variable lines.
pub type InfoWriter = fn(&Snapshot<'_>, &mut String);

/// One line with a fixed name.
pub struct InfoField {
    pub name: &'static str,
    pub nature: Nature,
    pub value: FieldRead,
}

/// Reads a field.
pub type FieldRead = fn(&Snapshot<'_>) -> InfoValue;

/// How a field changes over time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Nature {
    /// A number that only rises, until the statistics are reset.
    Counter(Meaning),
    /// A number that rises and falls.
    Gauge(Meaning),
    /// Not a number, or a number that another field shows too.
    Label,
    /// A number about a feature that Bobbin does not have: always zero.
    Absent,
}

/// The unit of a number, and its meaning in a sentence.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Meaning {
    pub unit: InfoUnit,
    pub help: &'static str,
}

/// The value of a field.
#[derive(Clone, PartialEq, Debug)]
pub enum InfoValue {
    Unsigned(u64),
    Signed(i64),
    /// A number, and how many decimals to show.
    Decimal(f64, usize),
    Text(String),
}

/// The sections, in the order of INFO.
pub static SECTIONS: &[Section] = &[
    process::SERVER,
    tls::TLS,
    clients::CLIENTS,
    memory::MEMORY,
    process::PERSISTENCE,
    stats::STATS,
    replication::REPLICATION,
    process::CPU,
    process::MODULES,
    commands::COMMANDSTATS,
    commands::ERRORSTATS,
    commands::LATENCYSTATS,
    process::CLUSTER,
    process::CLUSTER_INFO,
    threads::THREADS,
    stats::DEBUG,
    process::SCRIPTING_ENGINES,
    keyspace::KEYSPACE,
    stats::HOTKEYS,
];

/// INFO's text for these arguments. Unknown names are ignored.
pub fn write(snapshot: &Snapshot<'_>, names: &[&[u8]]) -> String {
    let is = |name: &str| names.iter().any(|given| given.eq_ignore_ascii_case(name.as_bytes()));
    let (everything, all) = (is("everything"), is("all"));
    let default = names.is_empty() || is("default");
    let mut text = String::with_capacity(TEXT_USUAL_BYTES);
    for section in SECTIONS {
        let shown = match section.shown {
            SectionShown::While(holds) if !holds(snapshot) => continue,
            SectionShown::Default | SectionShown::While(_) => default || all || everything,
            SectionShown::All => all || everything,
            SectionShown::Named => false,
        };
        if shown || is(section.name) {
            if !text.is_empty() {
                text.push_str("\r\n");
            }
            section.write(snapshot, &mut text);
        }
    }
    text
}

impl Section {
    fn write(&self, snapshot: &Snapshot<'_>, text: &mut String) {
        line(text, format_args!("# {}", self.title));
        self.lines.write(snapshot, text);
    }
}

impl Lines {
    fn write(&self, snapshot: &Snapshot<'_>, text: &mut String) {
        match self {
            Self::Fields(fields) => write_fields(fields, snapshot, text),
            Self::Written(written) => written(snapshot, text),
            Self::Both(fields, written) => {
                write_fields(fields, snapshot, text);
                written(snapshot, text);
            }
            Self::Several(parts) => parts.iter().for_each(|part| part.write(snapshot, text)),
        }
    }

    /// All fields with fixed names.
    pub fn fields(&self) -> Vec<&'static InfoField> {
        match self {
            Self::Fields(fields) | Self::Both(fields, _) => fields.iter().collect(),
            Self::Written(_) => Vec::new(),
            Self::Several(parts) => parts.iter().flat_map(Self::fields).collect(),
        }
    }
}

fn write_fields(fields: &[InfoField], snapshot: &Snapshot<'_>, text: &mut String) {
    for field in fields {
        text.push_str(field.name);
        text.push(':');
        (field.value)(snapshot).append(text);
        text.push_str("\r\n");
    }
}

/// Appends a line.
fn line(text: &mut String, content: std::fmt::Arguments<'_>) {
    use std::fmt::Write;
    // Writing to a String cannot fail.
    write!(text, "{content}\r\n").ok();
}

const fn counter(
    name: &'static str,
    unit: InfoUnit,
    help: &'static str,
    value: FieldRead,
) -> InfoField {
    InfoField { name, nature: Nature::Counter(Meaning { unit, help }), value }
}

const fn gauge(
    name: &'static str,
    unit: InfoUnit,
    help: &'static str,
    value: FieldRead,
) -> InfoField {
    InfoField { name, nature: Nature::Gauge(Meaning { unit, help }), value }
}

const fn label(name: &'static str, value: FieldRead) -> InfoField {
    InfoField { name, nature: Nature::Label, value }
}

/// A number about a feature that Bobbin does not have.
const fn zero(name: &'static str) -> InfoField {
    InfoField { name, nature: Nature::Absent, value: |_| InfoValue::Unsigned(0) }
}

impl InfoValue {
    pub fn into_text(self) -> String {
        let mut text = String::new();
        self.append(&mut text);
        text
    }

    fn append(&self, text: &mut String) {
        use std::fmt::Write;
        match self {
            Self::Unsigned(value) => text.push_str(itoa::Buffer::new().format(*value)),
            Self::Signed(value) => text.push_str(itoa::Buffer::new().format(*value)),
            // Writing to a String cannot fail.
            Self::Decimal(value, decimals) => write!(text, "{value:.decimals$}").unwrap_or(()),
            Self::Text(value) => text.push_str(value),
        }
    }
}

impl From<u64> for InfoValue {
    fn from(value: u64) -> Self {
        Self::Unsigned(value)
    }
}

impl From<usize> for InfoValue {
    fn from(value: usize) -> Self {
        Self::Unsigned(value as u64)
    }
}

impl From<i64> for InfoValue {
    fn from(value: i64) -> Self {
        Self::Signed(value)
    }
}

impl From<bool> for InfoValue {
    fn from(value: bool) -> Self {
        Self::Unsigned(u64::from(value))
    }
}

impl From<String> for InfoValue {
    fn from(text: String) -> Self {
        Self::Text(text)
    }
}

impl From<&str> for InfoValue {
    fn from(text: &str) -> Self {
        Self::Text(text.to_owned())
    }
}

/// A number of bytes for people: `336B`, `919.42K`, `23.54G`.
pub fn human(bytes: u64) -> String {
    const UNITS: [&str; 5] = ["K", "M", "G", "T", "P"];
    if bytes < 1024 {
        return format!("{bytes}B");
    }
    let (mut value, mut unit) = (bytes as f64 / 1024.0, 0);
    while value >= 1024.0 && unit + 1 < UNITS.len() {
        value /= 1024.0;
        unit += 1;
    }
    format!("{value:.2}{}", UNITS[unit])
}

/// The usual length of INFO without arguments in bytes.
const TEXT_USUAL_BYTES: usize = 8192;

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn no_field_is_there_twice() {
        let (mut sections, mut fields) = (BTreeSet::new(), BTreeSet::new());
        for section in SECTIONS {
            assert!(sections.insert(section.name), "{}", section.name);
            assert_eq!(section.name, section.name.to_lowercase());
            let names = section.lines.fields().into_iter().map(|field| field.name);
            names.for_each(|name| assert!(fields.insert(name), "{name}"));
        }
    }

    #[test]
    fn bytes_for_people() {
        let shown = [0, 336, 1024, 941_488, 14_684_160, 25_276_510_208].map(human);
        assert_eq!(shown, ["0B", "336B", "1.00K", "919.42K", "14.00M", "23.54G"]);
    }

    #[test]
    fn values_as_text() {
        let values = [5u64.into(), (-5i64).into(), InfoValue::Decimal(1.0, 2), "word".into()];
        assert_eq!(values.map(InfoValue::into_text), ["5", "-5", "1.00", "word"]);
    }
}
