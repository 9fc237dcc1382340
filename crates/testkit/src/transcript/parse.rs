//! The text of a transcript file to sections and steps.

use std::ops::Range;
use std::path::{Path, PathBuf};

use super::text::split_words;

/// A file: its lines, and what they mean.
#[derive(Debug)]
pub struct Transcript {
    pub path: PathBuf,
    pub lines: Vec<String>,
    pub sections: Vec<TranscriptSection>,
}

/// Steps that start on an empty server with new connections.
#[derive(Debug)]
pub struct TranscriptSection {
    pub title: String,
    /// Number of the heading's line, from 0, as all line numbers in here.
    pub line: usize,
    pub oracle: Oracle,
    pub resp3: bool,
    /// Commands the server must have.
    pub needs: Vec<String>,
    /// Parameters to set before and to restore after.
    pub config: Vec<Parameter>,
    pub steps: Vec<TranscriptStep>,
}

/// Which server's replies are the right ones.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Oracle {
    Valkey,
    Redis,
    /// Written by hand: neither peer has the command, or Bobbin differs on purpose.
    Bobbin,
}

#[derive(Debug)]
pub struct TranscriptStep {
    pub line: usize,
    pub client: String,
    pub action: StepAction,
    /// Whose step it is, when not every server's.
    pub only: Option<Runner>,
    pub unordered: bool,
    /// The lines that hold the reply.
    pub reply: Range<usize>,
}

#[derive(Debug)]
pub enum StepAction {
    /// Bytes to send; replies follow.
    Send(Vec<u8>),
    Read,
    Sleep {
        ms: u64,
    },
    Close,
}

/// A configuration parameter's name and value.
pub(super) type Parameter = (Vec<u8>, Vec<u8>);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Runner {
    Bobbin,
    Peer,
}

impl Transcript {
    pub fn load(path: &Path) -> Result<Self, String> {
        let text = std::fs::read_to_string(path)
            .map_err(|error| format!("{}: {error}", path.display()))?;
        Self::parse(path, &text)
    }

    pub fn parse(path: &Path, text: &str) -> Result<Self, String> {
        let lines: Vec<String> = text.lines().map(str::to_owned).collect();
        let mut parser = Parser::default();
        for (number, line) in lines.iter().enumerate() {
            parser
                .line(number, line)
                .map_err(|error| format!("{}:{}: {error}", path.display(), number + 1))?;
        }
        if parser.unordered || parser.only.is_some() {
            return Err(format!("{}: a directive after the last command", path.display()));
        }
        Ok(Self { path: path.to_path_buf(), sections: parser.sections, lines })
    }

    /// All transcripts of a folder, by name.
    pub fn load_all(folder: &Path) -> Result<Vec<Self>, String> {
        let entries =
            std::fs::read_dir(folder).map_err(|error| format!("{}: {error}", folder.display()))?;
        let mut paths: Vec<_> = entries
            .filter_map(|entry| Some(entry.ok()?.path()))
            .filter(|path| path.extension().is_some_and(|extension| extension == "txt"))
            .collect();
        paths.sort();
        paths.iter().map(|path| Self::load(path)).collect()
    }
}

#[derive(Default)]
struct Parser {
    sections: Vec<TranscriptSection>,
    client: String,
    only: Option<Runner>,
    unordered: bool,
    /// Reply lines may follow.
    in_reply: bool,
}

impl Parser {
    fn line(&mut self, number: usize, line: &str) -> Result<(), String> {
        if line.is_empty() || line == "#" || line.starts_with("# ") {
            self.in_reply = false;
            return Ok(());
        }
        if let Some(title) = line.strip_prefix("== ") {
            self.in_reply = false;
            self.client = "a".to_owned();
            self.sections.push(TranscriptSection::new(title, number));
            return Ok(());
        }
        if self.sections.is_empty() {
            return Err("the file does not start with a section".to_owned());
        }
        if let Some(command) = line.strip_prefix("> ") {
            let mut bytes = Vec::new();
            crate::connection::encode_command(&split_words(command)?, &mut bytes);
            return self.step(number, StepAction::Send(bytes));
        }
        match line.strip_prefix('@') {
            Some(directive) if !line.starts_with("@match ") => self.directive(number, directive),
            _ if self.in_reply => {
                self.last_step()?.reply.end = number + 1;
                Ok(())
            }
            _ => Err("a reply without a command".to_owned()),
        }
    }

    fn directive(&mut self, number: usize, line: &str) -> Result<(), String> {
        let (name, value) = line.split_once(' ').unwrap_or((line, ""));
        let value = value.trim();
        match name {
            "raw" => {
                let bytes = split_words(value)?.concat();
                self.step(number, StepAction::Send(bytes))?;
            }
            "read" => self.step(number, StepAction::Read)?,
            "sleep" => {
                let ms = value.parse().map_err(|_| "@sleep needs milliseconds")?;
                self.step(number, StepAction::Sleep { ms })?;
                self.in_reply = false;
            }
            "close" => {
                self.step(number, StepAction::Close)?;
                self.in_reply = false;
            }
            "client" if !value.is_empty() => {
                self.client = value.to_owned();
                self.in_reply = false;
            }
            "unordered" => self.unordered = true,
            "bobbin" | "peer" if value.is_empty() => return Err(format!("@{name} needs a reason")),
            "bobbin" => self.only = Some(Runner::Bobbin),
            "peer" => self.only = Some(Runner::Peer),
            _ => self.section_directive(name, value)?,
        }
        Ok(())
    }

    fn section_directive(&mut self, name: &str, value: &str) -> Result<(), String> {
        let section = self.sections.last_mut().ok_or("no section")?;
        if !section.steps.is_empty() {
            return Err(format!("@{name} must come before a section's first command"));
        }
        match name {
            "resp3" => section.resp3 = true,
            "needs" => section.needs.extend(value.split(' ').map(str::to_owned)),
            "config" => {
                let words = split_words(value)?;
                let [name, value] = words.as_slice() else {
                    return Err("@config needs a name and a value".to_owned());
                };
                section.config.push((name.clone(), value.clone()));
            }
            "server" => {
                section.oracle = match value {
                    "valkey" => Oracle::Valkey,
                    "redis" => Oracle::Redis,
                    "bobbin" => Oracle::Bobbin,
                    _ => return Err(format!("@server does not know {value}")),
                }
            }
            _ => return Err(format!("@{name} is not a directive")),
        }
        Ok(())
    }

    fn step(&mut self, line: usize, action: StepAction) -> Result<(), String> {
        let section = self.sections.last_mut().ok_or("no section")?;
        section.steps.push(TranscriptStep {
            line,
            client: self.client.clone(),
            action,
            only: self.only.take(),
            unordered: std::mem::take(&mut self.unordered),
            reply: line + 1..line + 1,
        });
        self.in_reply = true;
        Ok(())
    }

    fn last_step(&mut self) -> Result<&mut TranscriptStep, String> {
        let step = self.sections.last_mut().and_then(|section| section.steps.last_mut());
        step.ok_or_else(|| "a reply without a command".to_owned())
    }
}

impl TranscriptSection {
    fn new(title: &str, line: usize) -> Self {
        Self {
            title: title.to_owned(),
            line,
            oracle: Oracle::Valkey,
            resp3: false,
            needs: Vec::new(),
            config: Vec::new(),
            steps: Vec::new(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<Transcript, String> {
        Transcript::parse(Path::new("x.txt"), text)
    }

    #[test]
    fn replies_belong_to_the_command_above_them() {
        let text =
            "# why\n== one\n@resp3\n> PING\n+PONG\n@client b\n> GET k\n_\n\n== two\n@raw \"x\"\n";
        let transcript = parse(text).expect("is well formed");
        assert_eq!(transcript.sections.len(), 2);
        let section = &transcript.sections[0];
        assert!(section.resp3);
        assert_eq!(section.steps[0].reply, 4..5);
        assert_eq!(section.steps[1].client, "b");
        assert_eq!(section.steps[1].reply, 7..8);
        assert_eq!(transcript.sections[1].steps[0].client, "a");
        assert!(transcript.sections[1].steps[0].reply.is_empty());
    }

    #[test]
    fn mistakes_are_told_with_their_line() {
        for (text, wanted) in [
            ("> PING\n", "x.txt:1: the file does not start"),
            ("== a\n+OK\n", "x.txt:2: a reply without"),
            ("== a\n> PING\n@resp3\n", "x.txt:3: @resp3 must come before"),
            ("== a\n@bobbin\n> PING\n", "x.txt:2: @bobbin needs a reason"),
            ("== a\n> PING\n@unordered\n", "a directive after the last"),
            ("== a\n> GET \"a\n", "x.txt:2: a quote"),
        ] {
            let error = parse(text).expect_err(text);
            assert!(error.contains(wanted), "{text:?}: {error}");
        }
    }
}
