//! What the manager prints, and asks. Results go to the standard output, in colours on a terminal.

use std::io;

use crate::terminal;

/// Something went wrong, and has been said.
#[derive(Debug)]
pub struct Failed;

pub type ClusterResult<T = ()> = Result<T, Failed>;

/// A step that begins.
pub fn step(text: &str) {
    line(BOLD, &format!(">>> {text}"));
}

/// `[OK] ...`
pub fn good(text: &str) {
    line(GREEN, &format!("[OK] {text}"));
}

/// Something to know.
pub fn note(text: &str) {
    line(YELLOW, &format!("*** {text}"));
}

/// What is in doubt, or wrong and maybe mended later.
pub fn warn(text: &str) {
    line(RED, &format!("[WARNING] {text}"));
}

/// `[ERR] ...`, and the failure that follows from it.
pub fn fail(text: &str) -> Failed {
    line(RED, &format!("[ERR] {text}"));
    Failed
}

/// A line about a failure that is no failure of ours.
pub fn complain(text: &str) {
    line(RED, text);
}

/// Asks until somebody says yes or something else. `assumed` is that the answer is known.
pub fn confirm(question: &str, assumed: bool) -> bool {
    assumed || ask(&format!("{question} (type 'yes' to accept): ")).as_deref() == Some("yes")
}

/// The next line of the standard input; `None` at its end.
pub fn ask(question: &str) -> Option<String> {
    out!("{question}");
    let mut answer = String::new();
    match io::stdin().read_line(&mut answer) {
        Ok(0) | Err(_) => None,
        Ok(_) => Some(answer.trim().to_owned()),
    }
}

fn line(colour: &str, text: &str) {
    if terminal::is_terminal() && terminal::has_colours() {
        out!("\x1b[{colour}m{text}\x1b[0m\n");
    } else {
        out!("{text}\n");
    }
}

const BOLD: &str = "1";
const RED: &str = "31;1";
const GREEN: &str = "32;1";
const YELLOW: &str = "33;1";
