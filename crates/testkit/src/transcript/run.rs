//! Plays a transcript against a server and compares, or records, what it answers.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::time::Duration;

use super::parse::{
    Oracle, Parameter, Runner, StepAction, Transcript, TranscriptSection, TranscriptStep,
};
use super::pattern;
use super::render::render;
use crate::{ReceiveOutcome, TestConnection};

/// What to do with a difference.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TranscriptMode {
    Check,
    /// Take the server's reply, except where masks say what it must look like.
    Record,
}

/// What came of a file.
#[derive(Debug, Default)]
pub struct TranscriptOutcome {
    pub steps: usize,
    /// Titles of sections that did not run, with the reason.
    pub skipped: Vec<String>,
    pub differences: Vec<String>,
    /// For [`TranscriptMode::Record`]: the file's new lines.
    pub lines: Vec<String>,
}

/// Plays transcripts on one server.
pub struct Player {
    address: SocketAddr,
    control: TestConnection,
    /// Whose sections are played; Bobbin plays every server's.
    runs: Oracle,
    mode: TranscriptMode,
}

impl Player {
    pub fn new(address: SocketAddr, runs: Oracle, mode: TranscriptMode) -> Result<Self, String> {
        let control = TestConnection::open(address).map_err(|error| error.to_string())?;
        Ok(Self { address, control, runs, mode })
    }

    pub fn play(&mut self, transcript: &Transcript) -> TranscriptOutcome {
        let mut outcome = TranscriptOutcome::default();
        // Replacements of reply lines, first to last.
        let mut replacements: Vec<Replacement> = Vec::new();
        for section in &transcript.sections {
            if self.runs != Oracle::Bobbin && section.oracle != self.runs {
                continue;
            }
            let result = self.play_section(transcript, section, &mut outcome, &mut replacements);
            if let Err(error) = result {
                let at = format!("{}:{}", transcript.path.display(), section.line + 1);
                outcome.differences.push(format!("{at}: == {}: {error}", section.title));
            }
        }
        outcome.lines = replace(&transcript.lines, replacements);
        outcome
    }

    fn play_section(
        &mut self,
        transcript: &Transcript,
        section: &TranscriptSection,
        outcome: &mut TranscriptOutcome,
        replacements: &mut Vec<Replacement>,
    ) -> Result<(), String> {
        for command in &section.needs {
            let info = self.control(&[b"COMMAND", b"INFO", command.as_bytes()])?;
            if info.items().first().is_none_or(|row| row.items().is_empty()) {
                outcome.skipped.push(format!("{} (needs {command})", section.title));
                return Ok(());
            }
        }
        let restore = self.prepare(section)?;
        let mut clients = HashMap::new();
        let mut result = Ok(());
        for step in &section.steps {
            let skip = match step.only {
                Some(Runner::Bobbin) => self.runs != Oracle::Bobbin,
                Some(Runner::Peer) => self.runs == Oracle::Bobbin,
                None => false,
            };
            if skip {
                continue;
            }
            let expected = &transcript.lines[step.reply.clone()];
            match self.play_step(section, step, expected, &mut clients) {
                Ok(None) => {}
                Ok(Some(actual)) => {
                    let masked = expected.iter().any(|line| line.starts_with(MATCH));
                    if self.mode == TranscriptMode::Record && !masked {
                        replacements.push((step.reply.clone(), actual));
                    } else if expected.is_empty() || !agrees(expected, &actual) {
                        outcome.differences.push(difference(transcript, step, &actual));
                    }
                    outcome.steps += 1;
                }
                Err(error) => {
                    // The connections are out of step now: later differences would mislead.
                    result = Err(format!("line {}: {error}", step.line + 1));
                    break;
                }
            }
        }
        let mut names: Vec<_> = clients.keys().cloned().collect();
        names.sort();
        for name in names {
            let client: &mut TestConnection = clients.get_mut(&name).ok_or("no client")?;
            let left = client.receive_within(LEFTOVER).map_err(|error| error.to_string())?;
            if let (ReceiveOutcome::Reply(reply), Ok(())) = (left, &result) {
                let lines = render(&reply).join("\n");
                result = Err(format!("client {name} got more than was asked:\n{lines}"));
            }
        }
        drop(clients);
        for (name, value) in restore {
            self.control(&[b"CONFIG", b"SET", &name, &value])?;
        }
        result
    }

    /// Empties the server and sets the section's parameters; returns their former values.
    fn prepare(&mut self, section: &TranscriptSection) -> Result<Vec<Parameter>, String> {
        self.control(&[b"FLUSHALL"])?;
        let mut former = Vec::new();
        for (name, value) in &section.config {
            let reply = self.control(&[b"CONFIG", b"GET", name])?;
            let old = reply.items().get(1).and_then(crate::ReplyFrame::bytes);
            former.push((name.clone(), old.ok_or("no such parameter")?.to_vec()));
            self.control(&[b"CONFIG", b"SET", name, value])?;
        }
        Ok(former)
    }

    fn control(&mut self, arguments: &[&[u8]]) -> Result<crate::ReplyFrame, String> {
        let shown = || {
            let words: Vec<_> =
                arguments.iter().map(|word| String::from_utf8_lossy(word)).collect();
            words.join(" ")
        };
        let reply = self.control.call(arguments);
        let reply = reply.map_err(|error| format!("{}: {error}", shown()))?;
        if reply.is_error() {
            return Err(format!("{}: {}", shown(), reply.text()));
        }
        Ok(reply)
    }

    /// The reply's lines; `None` for steps that have none.
    fn play_step(
        &self,
        section: &TranscriptSection,
        step: &TranscriptStep,
        expected: &[String],
        clients: &mut HashMap<String, TestConnection>,
    ) -> Result<Option<Vec<String>>, String> {
        match &step.action {
            StepAction::Sleep { ms } => {
                std::thread::sleep(Duration::from_millis(*ms));
                return Ok(None);
            }
            StepAction::Close => {
                clients.remove(&step.client);
                return Ok(None);
            }
            StepAction::Send(_) | StepAction::Read => {}
        }
        if !clients.contains_key(&step.client) {
            let client = self.open_client(section.resp3).map_err(|error| error.to_string())?;
            clients.insert(step.client.clone(), client);
        }
        let client = clients.get_mut(&step.client).ok_or("no client")?;
        if let StepAction::Send(bytes) = &step.action {
            client.send_raw(bytes).map_err(|error| error.to_string())?;
        }
        let lines = match self.mode {
            TranscriptMode::Check => receive_expected(client, expected, step.unordered),
            TranscriptMode::Record => receive_all(client, step.unordered),
        };
        let is_peers = section.oracle != Oracle::Bobbin;
        let lines = lines.map(|lines| match self.runs {
            Oracle::Bobbin if is_peers => lines.into_iter().map(with_peers_name).collect(),
            _ => lines,
        });
        lines.map(Some).map_err(|error| error.to_string())
    }

    fn open_client(&self, resp3: bool) -> std::io::Result<TestConnection> {
        let mut client = TestConnection::open(self.address)?;
        if resp3 {
            client.call(&["HELLO", "3"])?;
        }
        Ok(client)
    }
}

/// As many replies as are expected, so that nothing waits for silence but what expects it.
fn receive_expected(
    client: &mut TestConnection,
    expected: &[String],
    unordered: bool,
) -> std::io::Result<Vec<String>> {
    let mut lines = Vec::new();
    for line in expected {
        let line = line.strip_prefix(MATCH).unwrap_or(line);
        if line.starts_with(' ') || line == pattern::REST {
            continue;
        }
        let limit = if line == NOTHING { SILENCE } else { REPLY_LIMIT };
        if !receive_one(client, limit, unordered, &mut lines)? {
            break;
        }
    }
    Ok(lines)
}

/// Everything up to a silence.
fn receive_all(client: &mut TestConnection, unordered: bool) -> std::io::Result<Vec<String>> {
    let mut lines = Vec::new();
    let mut limit = RECORD_FIRST;
    while receive_one(client, limit, unordered, &mut lines)? {
        limit = RECORD_MORE;
    }
    if lines.len() > 1 && lines.last().is_some_and(|line| line == NOTHING) {
        lines.pop();
    }
    Ok(lines)
}

/// Appends one reply's lines; false when no more can come.
fn receive_one(
    client: &mut TestConnection,
    limit: Duration,
    unordered: bool,
    lines: &mut Vec<String>,
) -> std::io::Result<bool> {
    match client.receive_within(limit)? {
        ReceiveOutcome::Reply(mut reply) => {
            if unordered {
                reply.sort_unordered();
            }
            lines.extend(render(&reply));
            Ok(true)
        }
        ReceiveOutcome::Nothing => {
            lines.push(NOTHING.to_owned());
            Ok(false)
        }
        ReceiveOutcome::Closed => {
            lines.push(CLOSED.to_owned());
            Ok(false)
        }
    }
}

/// An error that names Bobbin as Valkey's names Valkey.
fn with_peers_name(line: String) -> String {
    if line.trim_start().starts_with('-') { line.replace("Bobbin", "Valkey") } else { line }
}

fn agrees(expected: &[String], actual: &[String]) -> bool {
    let mut actual = actual.iter();
    for line in expected {
        let Some(pattern) = line.strip_prefix(MATCH) else {
            if actual.next() != Some(line) {
                return false;
            }
            continue;
        };
        if pattern == pattern::REST {
            return true;
        }
        if !actual.next().is_some_and(|actual| pattern::matches(pattern, actual)) {
            return false;
        }
    }
    actual.next().is_none()
}

fn difference(transcript: &Transcript, step: &TranscriptStep, actual: &[String]) -> String {
    let expected = transcript.lines[step.reply.clone()].join("\n      ");
    format!(
        "{}:{}: {}\n  expected:\n      {expected}\n  got:\n      {}",
        transcript.path.display(),
        step.line + 1,
        transcript.lines[step.line],
        actual.join("\n      ")
    )
}

fn replace(lines: &[String], replacements: Vec<Replacement>) -> Vec<String> {
    let mut output = Vec::new();
    let mut next = 0;
    for (range, new) in replacements {
        output.extend_from_slice(&lines[next..range.start]);
        output.extend(new);
        next = range.end;
    }
    output.extend_from_slice(&lines[next..]);
    output
}

/// The lines to replace, and the new ones.
type Replacement = (std::ops::Range<usize>, Vec<String>);

const MATCH: &str = "@match ";
const NOTHING: &str = "<nothing>";
const CLOSED: &str = "<closed>";
/// Long enough for what is already underway.
const LEFTOVER: Duration = Duration::from_millis(1);
const REPLY_LIMIT: Duration = Duration::from_secs(10);
const SILENCE: Duration = Duration::from_millis(50);
const RECORD_FIRST: Duration = Duration::from_millis(500);
const RECORD_MORE: Duration = Duration::from_millis(8);

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(text: &str) -> Vec<String> {
        text.lines().map(str::to_owned).collect()
    }

    #[test]
    fn replies_agree_line_by_line() {
        assert!(agrees(&lines("+OK"), &lines("+OK")));
        assert!(!agrees(&lines("+OK"), &lines("+OK\n+OK")));
        assert!(!agrees(&lines("+OK\n+OK"), &lines("+OK")));
        assert!(!agrees(&lines(":<int>"), &lines(":3")));
        assert!(agrees(&lines("@match :<int>"), &lines(":3")));
        assert!(agrees(&lines("@match *3\n@match <rest>"), &lines("*3\n  :1\n  :2\n  :3")));
    }

    #[test]
    fn recording_changes_reply_lines_only() {
        let old = lines("a\nb\nc\nd");
        let new = replace(&old, vec![(1..1, lines("x")), (2..4, lines("y"))]);
        assert_eq!(new, lines("a\nx\nb\ny"));
    }
}
