//! The shell: lines in, replies out, until the end of the input.

mod completion;
mod debugger;
mod docs;
mod editor;
mod front;
pub mod help;
mod hint;
mod history;
mod letters;
mod menu;
mod messages;
mod password;
mod preferences;
mod suite;
mod watch;

use std::{
    process::ExitCode,
    rc::Rc,
    time::{Duration, Instant},
};

use bobbin_client::ServerAddress;
use bobbin_resp::split_arguments;

use crate::{format::ReplyForm, interrupt, options::Repeat, session::Session, terminal};

use docs::Docs;
use editor::{LineRead, LineSource};
use preferences::Preferences;

pub use debugger::run as debug;
pub use password::ask_password;
pub use suite::{check_file, print_hint};

/// Runs the shell.
pub fn run(session: &mut Session) -> ExitCode {
    become_interactive(session);
    let mut shell = Shell::open();
    // Without a server the shell starts all the same; the next command tries again.
    let _ = session.connect();
    shell.serve(session)
}

/// From now on a lost connection ends nothing, and Ctrl-C ends the program with a status, not by a
/// signal, as scripts expect.
fn become_interactive(session: &mut Session) {
    session.interactive = true;
    drop(interrupt::hold());
}

struct Shell {
    lines: LineSource,
    preferences: Preferences,
    /// Whether the server has been asked about its commands. A cluster's nodes say the same.
    has_asked: bool,
    docs: Option<Rc<Docs>>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Next {
    Line,
    Quit,
}

impl Shell {
    fn open() -> Self {
        let lines = LineSource::open();
        let mut preferences = Preferences::default();
        if lines.is_typed() {
            let (loaded, complaints) = Preferences::load();
            preferences = loaded;
            for complaint in complaints {
                out!(".valkeyclirc: {complaint}\n");
            }
        }
        Self { lines, preferences, has_asked: false, docs: None }
    }

    /// Runs line after line until there are no more.
    fn serve(&mut self, session: &mut Session) -> ExitCode {
        self.ask_docs(session);
        self.follow_preferences(session);
        loop {
            let (target, transport) = session.place();
            self.lines.set_place(target, transport);
            match self.lines.next(&session.prompt()) {
                LineRead::Text(line) => {
                    if self.handle(session, &line) == Next::Quit {
                        return ExitCode::SUCCESS;
                    }
                }
                LineRead::End if session.is_subscribed() && self.lines.is_typed() => {
                    let _ = session.connect();
                }
                LineRead::End => return ExitCode::SUCCESS,
                LineRead::Failed => return ExitCode::FAILURE,
            }
            if session.is_subscribed() {
                let _ = messages::wait(session, &self.lines);
            }
        }
    }

    /// Fetches what hints and completion need, as soon as the server can be asked for it.
    fn ask_docs(&mut self, session: &mut Session) {
        if self.has_asked
            || !self.lines.is_typed()
            || session.is_subscribed()
            || session.is_queueing()
        {
            return;
        }
        if let Some(client) = session.client() {
            self.docs = Docs::ask(client).map(Rc::new);
            self.lines.set_docs(self.docs.clone());
            self.has_asked = true;
        }
    }

    fn handle(&mut self, session: &mut Session, line: &[u8]) -> Next {
        let Some(mut words) = split_arguments(line) else {
            out!("Invalid argument(s)\n");
            self.lines.remember(line, history::is_secret(line));
            return Next::Line;
        };
        if words.is_empty() {
            return Next::Line;
        }
        let repeat = match take_repeat(&mut words) {
            Ok(repeat) => repeat,
            Err(text) => {
                out!("{text}\n");
                return Next::Line;
            }
        };
        self.lines.remember(line, history::is_secret(line));
        if words[0].eq_ignore_ascii_case(b":watch") {
            if let Err(complaint) = watch::run(session, &mut self.lines, &words[1..]) {
                out!("{complaint}\n");
            }
            return Next::Line;
        }
        if words[0].starts_with(b":") {
            if let Err(complaint) = self.preferences.set(&words) {
                out!("{complaint}\n");
            }
            self.follow_preferences(session);
            return Next::Line;
        }
        match (words[0].to_ascii_lowercase().as_slice(), words.len()) {
            (b"quit" | b"exit", _) => return Next::Quit,
            (b"help" | b"?", _) => help::show(session, self.docs.as_deref(), &words[1..]),
            (b"clear", 1) => self.lines.clear_screen(),
            (b"connect", 3) => {
                self.has_asked = false;
                connect(session, &words);
            }
            _ => {
                // A pager for each of many replies is in the way.
                let is_single = repeat == Repeat::Times(1);
                session.pages = self.preferences.pager && self.lines.is_typed() && is_single;
                run_timed(session, &words, repeat, self.preferences.timing);
                session.pages = false;
                let meant = self.docs.as_ref().and_then(|docs| docs.nearest(&words));
                if let Some(meant) = meant {
                    out!("Did you mean {meant}?\n");
                }
            }
        }
        self.ask_docs(session);
        Next::Line
    }

    fn follow_preferences(&mut self, session: &mut Session) {
        self.lines.set_hints(self.preferences.hints);
        session.options.style.pretty = self.preferences.pretty && terminal::is_terminal();
    }
}

/// `5 PING` is PING five times.
fn take_repeat(words: &mut Vec<Vec<u8>>) -> Result<Repeat, &'static str> {
    let first = std::str::from_utf8(&words[0]).unwrap_or_default();
    let digits = first.strip_prefix(['-', '+']).unwrap_or(first);
    if words.len() < 2 || digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return Ok(Repeat::Times(1));
    }
    let times = first.parse::<u64>().ok().filter(|times| (1..=i64::MAX as u64).contains(times));
    let times = times.ok_or("Invalid number of repetitions before the command.")?;
    words.remove(0);
    Ok(Repeat::Times(times))
}

fn connect(session: &mut Session, words: &[Vec<u8>]) {
    let host = String::from_utf8_lossy(&words[1]).into_owned();
    let Ok(port) = String::from_utf8_lossy(&words[2]).parse() else {
        out!("Invalid server port.\n");
        return;
    };
    session.address = ServerAddress::Tcp { host, port };
    let _ = session.connect();
}

/// Runs a command, and says how long it took when one noticed, or wants to know.
fn run_timed(session: &mut Session, words: &[Vec<u8>], repeat: Repeat, says_always: bool) {
    let (start, paged) = (Instant::now(), session.paged);
    // What went wrong has been said; the next command connects again.
    let _ = session.run(words, repeat);
    // Reading takes longer than answering.
    let elapsed = start.elapsed().saturating_sub(session.paged - paged);
    if session.options.style.form != ReplyForm::Tty {
        return;
    }
    if elapsed >= NOTICEABLE {
        out!("({:.2}s)\n", elapsed.as_secs_f64());
    } else if says_always {
        out!("({:.3} ms)\n", elapsed.as_secs_f64() * 1e3);
    }
}

const NOTICEABLE: Duration = Duration::from_millis(500);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_before_a_command_repeats_it() {
        let take = |line: &str| {
            let mut words = split_arguments(line.as_bytes()).unwrap();
            take_repeat(&mut words).map(|repeat| (repeat, words.len()))
        };
        assert_eq!(take("5 PING"), Ok((Repeat::Times(5), 1)));
        assert_eq!(take("PING 5"), Ok((Repeat::Times(1), 2)));
        assert_eq!(take("5"), Ok((Repeat::Times(1), 1)));
        assert_eq!(take("5x PING"), Ok((Repeat::Times(1), 2)));
        assert!(take("0 PING").is_err());
        assert!(take("-1 PING").is_err());
        assert!(take("99999999999999999999 PING").is_err());
    }
}
