//! The manifest: which files the log consists of, in Redis 7's format.
//!
//! ```text
//! file appendonly.aof.2.base.rdb seq 2 type b
//! file appendonly.aof.3.incr.aof seq 3 type i
//! ```
//! A base (`b`) holds the data of one moment. The increments (`i`) hold, in order, the changes
//! since then. Files of the history (`h`) will be deleted. This module handles only the contents of
//! a manifest; `directory` handles its file.

use crate::config;

/// The files of the log, in the order in which they are read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Manifest {
    pub base: Option<AofFile>,
    /// In ascending order of sequence numbers.
    pub increments: Vec<AofFile>,
    pub history: Vec<AofFile>,
    /// The highest sequence number that a base has had.
    base_sequence: u64,
    increment_sequence: u64,
}

/// One file of the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AofFile {
    pub name: String,
    pub sequence: u64,
}

/// An error in a manifest, with its place.
#[derive(Debug, PartialEq, Eq)]
pub struct ManifestFault {
    /// Counts from 1.
    pub line: usize,
    pub text: String,
    pub reason: &'static str,
}

/// The highest sequence number that is accepted, so that higher ones can still be given and
/// written.
const SEQUENCE_MAX: u64 = i64::MAX as u64 / 2;

/// The text of a manifest that lists no files.
const NO_FILES: &[u8] = b"# The log has no files yet.\n";

/// Redis's limit for a line, including its end.
const LINE_MAX: usize = 1024;

impl AofFile {
    fn line(&self, kind: char) -> Vec<u8> {
        let name = config::word(self.name.as_bytes());
        [b"file ", &name[..], format!(" seq {} type {kind}\n", self.sequence).as_bytes()].concat()
    }
}

impl Manifest {
    pub fn parse(bytes: &[u8]) -> Result<Self, ManifestFault> {
        let mut manifest = Self::default();
        if bytes.is_empty() {
            return Err(fault(1, b"", "Found an empty AOF manifest"));
        }
        let mut lines = bytes.split_inclusive(|&byte| byte == b'\n').enumerate();
        lines.try_for_each(|(index, line)| {
            manifest.add_line(line).map_err(|reason| fault(index + 1, line, reason))
        })?;
        Ok(manifest)
    }

    fn add_line(&mut self, line: &[u8]) -> Result<(), &'static str> {
        const FORMAT: &str = "Invalid AOF manifest file format";
        if line.starts_with(b"#") {
            return Ok(());
        }
        let Some(content) = line.strip_suffix(b"\n").filter(|_| line.len() <= LINE_MAX) else {
            return Err("The AOF manifest file contains too long line");
        };
        let words = config::split(content).ok_or(FORMAT)?;
        if words.len() < 6 || words.len() % 2 != 0 {
            return Err(FORMAT);
        }
        let (mut name, mut sequence, mut kind) = (None, 0, None);
        for pair in words.chunks_exact(2) {
            let (key, value) = (&pair[0], &pair[1]);
            if key.eq_ignore_ascii_case(b"file") {
                if value.contains(&b'/') {
                    return Err("File can't be a path, just a filename");
                }
                name = String::from_utf8(value.clone()).ok();
            } else if key.eq_ignore_ascii_case(b"seq") {
                let text = str::from_utf8(value).ok();
                sequence = text.and_then(|text| text.parse().ok()).unwrap_or(0);
            } else if key.eq_ignore_ascii_case(b"type") {
                kind = value.first().copied();
            }
            // Other words are ignored: later versions may add some.
        }
        let (Some(name), Some(kind), 1..=SEQUENCE_MAX) = (name, kind, sequence) else {
            return Err(FORMAT);
        };
        let part = AofFile { name, sequence };
        if part.line(char::from(kind)).len() > LINE_MAX {
            // Quoting makes the name longer. No server could read the line that we would write.
            return Err(FORMAT);
        }
        match kind {
            b'b' if self.base.is_some() => return Err("Found duplicate base file information"),
            b'b' => {
                self.base_sequence = sequence;
                self.base = Some(part);
            }
            b'i' => {
                let last = self.increments.last();
                if last.is_some_and(|last| sequence <= last.sequence) {
                    return Err("Found a non-monotonic sequence number");
                }
                self.increment_sequence = sequence;
                self.increments.push(part);
            }
            b'h' => self.history.push(part),
            _ => return Err("Unknown AOF file type"),
        }
        Ok(())
    }

    pub fn text(&self) -> Vec<u8> {
        let bases = self.base.iter().map(|part| (part, 'b'));
        let history = self.history.iter().map(|part| (part, 'h'));
        let increments = self.increments.iter().map(|part| (part, 'i'));
        let mut text = Vec::new();
        for (part, kind) in bases.chain(history).chain(increments) {
            text.extend_from_slice(&part.line(kind));
        }
        // A manifest without any line would be refused.
        if text.is_empty() { NO_FILES.to_vec() } else { text }
    }

    /// Whether the manifest lists no file at all.
    pub fn is_empty(&self) -> bool {
        self.parts().next().is_none() && self.history.is_empty()
    }

    /// Adds a file that a name says to be of this log. Returns whether it does.
    pub fn add_named(&mut self, prefix: &str, name: &str) -> bool {
        let (sequence, kind) = if name == prefix {
            // A log of a single file that was taken over.
            (1, "base.aof")
        } else {
            let numbered = name.strip_prefix(prefix).and_then(|rest| rest.strip_prefix('.'));
            let parts = numbered.and_then(|rest| rest.split_once('.'));
            let Some((number, kind)) = parts else { return false };
            let Ok(sequence) = number.parse() else { return false };
            (sequence, kind)
        };
        let part = AofFile { name: name.to_owned(), sequence };
        match kind {
            "base.rdb" | "base.aof" => {
                // Of several bases the last one counts.
                if self.base.as_ref().is_none_or(|known| known.sequence < sequence) {
                    self.history.extend(self.base.replace(part));
                } else {
                    self.history.push(part);
                }
            }
            "incr.aof" => {
                let at = self.increments.partition_point(|known| known.sequence < sequence);
                self.increments.insert(at, part);
            }
            _ => return false,
        }
        true
    }

    /// A manifest whose base is a log of a single file, as Redis wrote before version 7.
    pub fn of_single_file(name: &str) -> Self {
        let base = Some(AofFile { name: name.to_owned(), sequence: 1 });
        Self { base, base_sequence: 1, ..Self::default() }
    }

    /// Adds a new base and returns its name. The old base becomes history, and so do the increments
    /// before `from`.
    pub fn replace_base(&mut self, prefix: &str, extension: &str, from: Option<&str>) -> String {
        self.base_sequence += 1;
        let sequence = self.base_sequence;
        let name = format!("{prefix}.{sequence}.base.{extension}");
        let kept = self.increments.iter().position(|part| Some(part.name.as_str()) == from);
        let increments = self.increments.drain(..kept.unwrap_or(self.increments.len()));
        let base = self.base.replace(AofFile { name: name.clone(), sequence });
        // The newest comes first, as in Redis.
        self.history.splice(0..0, increments.chain(base));
        name
    }

    /// Adds an increment and returns its name.
    pub fn add_increment(&mut self, prefix: &str) -> String {
        self.increment_sequence += 1;
        let name = format!("{prefix}.{}.incr.aof", self.increment_sequence);
        self.increments.push(AofFile { name: name.clone(), sequence: self.increment_sequence });
        name
    }

    /// Takes all files out. Their names are not given again.
    pub fn take_files(&mut self) -> Self {
        let numbers = Self {
            base_sequence: self.base_sequence,
            increment_sequence: self.increment_sequence,
            ..Self::default()
        };
        std::mem::replace(self, numbers)
    }

    /// Never again gives a name that `other` has given: that manifest may be on disk.
    pub fn pass_over(&mut self, other: &Self) {
        self.base_sequence = other.base_sequence;
        self.increment_sequence = other.increment_sequence;
    }

    /// All files in use, in the order in which they are read.
    pub fn parts(&self) -> impl Iterator<Item = &AofFile> {
        self.base.iter().chain(&self.increments)
    }
}

fn fault(line: usize, text: &[u8], reason: &'static str) -> ManifestFault {
    let shown = &text[..text.len().min(LINE_MAX)];
    ManifestFault { line, text: String::from_utf8_lossy(shown).trim_end().to_owned(), reason }
}

impl std::fmt::Display for ManifestFault {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "Reading the manifest file, at line {}\n>>> '{}'\n{}",
            self.line, self.text, self.reason
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "file a.aof.1.base.rdb seq 1 type b\nfile a.aof.1.incr.aof seq 1 type i\n\
                        file a.aof.2.incr.aof seq 2 type i\n";

    #[test]
    fn is_read_and_written() {
        let mut manifest = Manifest::parse(TEXT.as_bytes()).unwrap();
        assert_eq!(manifest.text(), TEXT.as_bytes());
        let names: Vec<_> = manifest.parts().map(|part| part.name.as_str()).collect();
        assert_eq!(names, ["a.aof.1.base.rdb", "a.aof.1.incr.aof", "a.aof.2.incr.aof"]);
        assert_eq!(manifest.add_increment("a.aof"), "a.aof.3.incr.aof");
        let base = manifest.replace_base("a.aof", "aof", Some("a.aof.3.incr.aof"));
        assert_eq!(base, "a.aof.2.base.aof");
        let text = String::from_utf8(manifest.text()).unwrap();
        let expected = "file a.aof.2.base.aof seq 2 type b\nfile a.aof.1.incr.aof seq 1 type h\n\
                        file a.aof.2.incr.aof seq 2 type h\nfile a.aof.1.base.rdb seq 1 type h\n\
                        file a.aof.3.incr.aof seq 3 type i\n";
        assert_eq!(text, expected);
        assert_eq!(Manifest::parse(expected.as_bytes()).unwrap(), manifest);
        let none = Manifest::default();
        assert_eq!(Manifest::parse(&none.text()), Ok(none));
        let odd = "# a remark\nfile \"a b\\x41.aof\" seq 1 type b extra 7\n";
        let odd = Manifest::parse(odd.as_bytes()).unwrap();
        assert_eq!(odd.text(), b"file \"a bA.aof\" seq 1 type b\n");
    }

    #[test]
    fn faults_are_named() {
        let long = format!("file {} seq 1 type b\n", "x".repeat(LINE_MAX));
        let unprintable = format!("file {} seq 1 type b\n", "\x01".repeat(255));
        for (text, line, reason) in [
            ("", 1, "Found an empty AOF manifest"),
            ("\n", 1, "Invalid AOF manifest file format"),
            ("file a seq 1 type b", 1, "The AOF manifest file contains too long line"),
            (&long, 1, "The AOF manifest file contains too long line"),
            (&unprintable, 1, "Invalid AOF manifest file format"),
            ("file a seq 1 type\n", 1, "Invalid AOF manifest file format"),
            ("file a seq 0 type b\n", 1, "Invalid AOF manifest file format"),
            ("file a/b seq 1 type b\n", 1, "File can't be a path, just a filename"),
            ("file a seq 18446744073709551615 type i\n", 1, "Invalid AOF manifest file format"),
            ("file a seq 9223372036854775807 type b\n", 1, "Invalid AOF manifest file format"),
            ("# x\nfile a seq 1 type x\n", 2, "Unknown AOF file type"),
            (
                "file a seq 1 type b\nfile b seq 2 type b\n",
                2,
                "Found duplicate base file information",
            ),
            (
                "file a seq 2 type i\nfile b seq 2 type i\n",
                2,
                "Found a non-monotonic sequence number",
            ),
        ] {
            let fault = Manifest::parse(text.as_bytes()).unwrap_err();
            assert_eq!((fault.line, fault.reason), (line, reason), "{text}");
        }
    }
}
