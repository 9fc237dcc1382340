//! Pages of the documentation, and whether what they show is so.
//!
//! What a page shows of a shell is a block of `console`: commands behind `$ `, each with the lines
//! that it prints. They are run in order, in a folder of the test's own. A line `...` stands for
//! any lines. Behind a line `<!-- figures differ -->` numbers, sizes, serials and columns may be
//! others than the page's.

use std::fs::File;
use std::io::Read;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::{peers, server};

/// A fenced block of a page.
#[derive(Clone, Debug)]
pub struct FencedBlock {
    pub text: String,
    /// The page says that figures are others each time.
    pub figures_differ: bool,
}

/// The fenced blocks in a language of a page (a path in the repository).
///
/// # Panics
/// When there is no such page.
pub fn blocks(page: &str, language: &str) -> Vec<FencedBlock> {
    let text = std::fs::read_to_string(peers::repository().join(page));
    let text = text.unwrap_or_else(|error| panic!("{page}: {error}"));
    let opening = format!("```{language}\n");
    let block = |(at, opening): (usize, &str)| {
        let block = text[at + opening.len()..].split("```").next().unwrap_or_default();
        FencedBlock { text: block.to_owned(), figures_differ: text[..at].ends_with(FIGURES_DIFFER) }
    };
    text.match_indices(&opening).map(block).collect()
}

/// The pages in `docs` that have blocks in a language: `cli.md`.
///
/// # Panics
/// When the folder cannot be read.
pub fn with_blocks(language: &str) -> Vec<String> {
    let folder = peers::repository().join("docs");
    let files = std::fs::read_dir(folder).expect("the repository has a folder docs");
    let names = files.map(|file| file.expect("it can be read").file_name());
    let mut names: Vec<String> = names
        .filter_map(|name| name.into_string().ok())
        .filter(|name| name.ends_with(".md"))
        .filter(|name| !blocks(&format!("docs/{name}"), language).is_empty())
        .collect();
    names.sort();
    names
}

/// A shell in a folder of its own, which goes away with it and with what it has started.
#[derive(Debug)]
pub struct PageShell {
    folder: PathBuf,
    /// Texts of the page, and what is meant here.
    meanings: Vec<(String, String)>,
    started: Vec<Child>,
}

impl PageShell {
    /// # Panics
    /// When there is no folder to be had.
    pub fn new() -> Self {
        let folder = server::fresh_folder().expect("the temporary folder can be written");
        std::fs::create_dir(folder.join(PROGRAMS)).expect("it is writable");
        Self { folder, meanings: Vec::new(), started: Vec::new() }
    }

    pub fn folder(&self) -> &std::path::Path {
        &self.folder
    }

    /// Lets a name stand for a script of `sh`.
    ///
    /// # Panics
    /// When it cannot be written.
    pub fn program(&mut self, name: &str, script: &str) {
        let path = self.folder.join(PROGRAMS).join(name);
        std::fs::write(&path, format!("#!/bin/sh\n{script}\n")).expect("it is writable");
        let mode = std::fs::Permissions::from_mode(0o755);
        std::fs::set_permissions(&path, mode).expect("it is our own");
    }

    /// What a page says, such as a port, that is another here.
    pub fn mean(&mut self, shown: &str, meant: &str) {
        self.meanings.push((shown.to_owned(), meant.to_owned()));
    }

    /// Runs a block's commands, and compares what they print.
    ///
    /// # Panics
    /// When something else is printed.
    pub fn hold(&mut self, page: &str, block: &FencedBlock) {
        let read = if block.figures_differ { masked } else { lines };
        let block = block.text.replace("\\\n", " ");
        let first = block.strip_prefix("$ ").unwrap_or_else(|| panic!("{page}: {block}"));
        let mut deadline = Instant::now();
        let mut started = "";
        for step in first.split("\n$ ") {
            let (command, shown) = step.split_once('\n').unwrap_or((step, ""));
            let shown = read(shown);
            let mut printed = read(&self.run(command));
            // What was just started takes a moment until it answers.
            while !is_shown(&printed, &shown) && Instant::now() < deadline {
                std::thread::sleep(POLL);
                // The port of one that was just killed may not be free at once.
                if self.started.last_mut().is_some_and(has_failed) {
                    self.run(started);
                }
                printed = read(&self.run(command));
            }
            assert!(
                is_shown(&printed, &shown),
                "{page}: {command}\n{}\nbut it shows\n{}",
                printed.join("\n"),
                shown.join("\n")
            );
            deadline = Instant::now();
            if command.ends_with('&') {
                deadline += START_LIMIT;
                started = command;
            }
        }
    }

    /// What a command prints, in the page's words. One that is to go on, a server say, ends with
    /// `&`.
    ///
    /// # Panics
    /// When there is no shell.
    pub fn run(&mut self, command: &str) -> String {
        let meant = |text: String, (shown, meant): &(String, String)| text.replace(shown, meant);
        let command = self.meanings.iter().fold(command.to_owned(), meant);
        let output = self.folder.join(OUTPUT);
        let file = File::create(&output).expect("the folder is writable");
        let both = file.try_clone().expect("a file has another handle");
        let path = std::env::var("PATH").unwrap_or_default();
        let mut shell = Command::new("sh");
        shell
            .env("PATH", format!("{}:{path}", self.folder.join(PROGRAMS).display()))
            .current_dir(&self.folder)
            .stdin(Stdio::null());
        if let Some(command) = command.strip_suffix('&') {
            let command = format!("exec {command}");
            shell.args(["-c", &command]).stdout(Stdio::null()).stderr(Stdio::null());
            self.started.push(shell.spawn().expect("there is a shell"));
            return String::new();
        }
        shell.args(["-c", &command]).stdout(file).stderr(both);
        shell.status().expect("there is a shell");
        let mut printed = Vec::new();
        File::open(&output)
            .and_then(|mut file| file.read_to_end(&mut printed))
            .expect("it is there");
        let printed = String::from_utf8_lossy(&printed).into_owned();
        let shown = |text: String, (shown, meant): &(String, String)| text.replace(meant, shown);
        self.meanings.iter().rev().fold(printed, shown)
    }
}

impl Default for PageShell {
    fn default() -> Self {
        Self::new()
    }
}

impl Drop for PageShell {
    fn drop(&mut self) {
        for child in &mut self.started {
            let _ = child.kill();
            let _ = child.wait();
        }
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

fn has_failed(child: &mut Child) -> bool {
    child.try_wait().is_ok_and(|status| status.is_some_and(|status| !status.success()))
}

/// Whether lines are those of a page, where `...` stands for any.
fn is_shown(printed: &[String], shown: &[String]) -> bool {
    match shown {
        [] => printed.is_empty(),
        [any, rest @ ..] if any == ANY_LINES => {
            (0..=printed.len()).any(|skipped| is_shown(&printed[skipped..], rest))
        }
        [line, rest @ ..] => printed.first() == Some(line) && is_shown(&printed[1..], rest),
    }
}

/// The lines of a text.
fn lines(text: &str) -> Vec<String> {
    text.lines().map(|line| line.trim_end().to_owned()).collect()
}

/// A text without what differs from one run to the next: numbers, units of sizes, serials in
/// hexadecimal, and how many spaces make a column, or lines a paragraph.
fn masked(text: &str) -> Vec<String> {
    let lines = text.lines().map(str::trim).filter(|line| !line.is_empty());
    lines
        .map(|line| line.split_whitespace().map(masked_word).collect::<Vec<_>>().join(" "))
        .collect()
}

fn masked_word(word: &str) -> String {
    let mut masked = String::new();
    let mut rest = word;
    while let Some(first) = rest.chars().next() {
        let hexadecimal =
            rest.len() - rest.trim_start_matches(|c: char| c.is_ascii_hexdigit()).len();
        let number = |c: char| c.is_ascii_digit() || c == '.';
        let decimal = rest.len() - rest.trim_start_matches(number).len();
        let len = match hexadecimal {
            SERIAL_LEN_MIN.. => hexadecimal,
            _ if first.is_ascii_digit() => decimal,
            _ => {
                masked.push(first);
                rest = &rest[first.len_utf8()..];
                continue;
            }
        };
        masked.push('#');
        rest = without_unit(&rest[len..]);
    }
    masked
}

/// What follows a number, without the unit of a size: 999.90K may be 1.01M in another run.
fn without_unit(rest: &str) -> &str {
    match rest.strip_prefix(['B', 'K', 'M', 'G']) {
        Some(after) if !after.starts_with(char::is_alphanumeric) => after,
        _ => rest,
    }
}

/// What stands before a block whose figures are others each time.
const FIGURES_DIFFER: &str = "<!-- figures differ -->\n";
const ANY_LINES: &str = "...";
/// Where scripts that stand for programs are, in the folder.
const PROGRAMS: &str = ".programs";
/// Where output goes: a file, so that a program may know that it is not read by another.
const OUTPUT: &str = ".output";
const SERIAL_LEN_MIN: usize = 16;
const START_LIMIT: Duration = Duration::from_secs(30);
const POLL: Duration = Duration::from_millis(20);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_differs_is_masked() {
        assert_eq!(masked("a:12.5  b\n\n x7 (13)"), ["a:# b", "x# (#)"]);
        assert_eq!(masked("serial:5EB91182AF49C1D3F066"), ["serial:#"]);
        assert_eq!(masked("tls none."), ["tls none."]);
        assert_eq!(masked("999.90K, 1.01M 0B 5MB 3Go"), ["#, # # #MB #Go"]);
    }

    #[test]
    fn dots_stand_for_lines() {
        let is_shown = |printed: &str, shown| is_shown(&lines(printed), &lines(shown));
        assert!(is_shown("a\nb", "a\nb"));
        assert!(!is_shown("a\nb", "a\nc"));
        assert!(!is_shown("a", "a\nb"));
        for shown in ["...\nb", "a\n...", "...", "a\n...\nb"] {
            assert!(is_shown("a\nb", shown), "{shown}");
        }
        assert!(!is_shown("a\nb", "...\na"));
    }

    #[test]
    #[should_panic(expected = "page: echo 2")]
    fn a_figure_must_be_the_same_unless_the_page_says_so() {
        let block = FencedBlock { text: "$ echo 2\n3\n".to_owned(), figures_differ: false };
        PageShell::new().hold("page", &block);
    }

    #[test]
    fn a_shell_shows_what_commands_print() {
        let mut shell = PageShell::new();
        shell.program("greet", "echo \"hello $1 at 7000\"");
        shell.mean("6379", "7000");
        let block =
            |text: &str, figures_differ| FencedBlock { text: text.to_owned(), figures_differ };
        let text = "$ greet \\\n    you\nhello you at 6379\n$ greet 2\nhello 3 at 6379\n";
        shell.hold("page", &block(text, true));
        shell.hold("page", &block("$ greet 2; echo; echo b\n...\n\nb\n", false));
        assert_eq!(shell.run("echo 6379 > file; cat file; echo no >&2"), "6379\nno\n");
    }
}
