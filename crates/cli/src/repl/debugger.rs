//! `--eval` with `--ldb`: the server stops in front of a script's lines, and what is typed goes to
//! its debugger.
//!
//! As long as the session lasts the server answers with arrays of lines; `<endsession>` among them
//! says that the next reply is the script's. As Redis's documentation of the Lua debugger and its
//! servers have it.

use std::process::ExitCode;

use bobbin_client::Value;
use bobbin_resp::split_arguments;

use super::{LineRead, Shell, become_interactive};
use crate::{
    format::{ReplyForm, Style},
    options::Debugging,
    session::{Session, explain},
    terminal,
};

/// Debugs what `script` gives, EVAL and its arguments, again and again as long as somebody says
/// `restart`. Behind the session's end there is the shell.
pub fn run(
    session: &mut Session,
    debugging: Debugging,
    script: impl Fn() -> Result<Vec<Vec<u8>>, ExitCode>,
) -> ExitCode {
    become_interactive(session);
    session.options.style.form = ReplyForm::Tty;
    let mut shell = Shell::open();
    loop {
        out!("{INTRODUCTION}");
        let words = match script() {
            Ok(words) => words,
            Err(status) => return status,
        };
        session.connect_or_exit();
        let mut debugger = Debugger { session: &mut *session, debugging };
        match debugger.debug(&mut shell, &words) {
            Ok(End::Finished) => {
                // The process that debugged had the connection, and has ended.
                let _ = session.connect();
                return shell.serve(session);
            }
            Ok(End::Restart) => out!("\n"),
            Ok(End::Quit | End::NotStarted) => return ExitCode::SUCCESS,
            Err(text) => {
                complain!("{text}");
                return ExitCode::FAILURE;
            }
        }
    }
}

struct Debugger<'a> {
    session: &'a mut Session,
    debugging: Debugging,
}

/// How a session ended.
#[derive(Clone, Copy, PartialEq, Eq)]
enum End {
    /// The script is done.
    Finished,
    /// It could not even be compiled.
    NotStarted,
    Restart,
    Quit,
}

impl Debugger<'_> {
    /// The error is for people.
    fn debug(&mut self, shell: &mut Shell, words: &[Vec<u8>]) -> Result<End, String> {
        let mode = match self.debugging {
            Debugging::Forked => "yes",
            Debugging::Synchronous => "sync",
        };
        let reply = self.ask(&[b"SCRIPT".to_vec(), b"DEBUG".to_vec(), mode.into()])?;
        if let Some(error) = reply.as_error() {
            return Err(String::from_utf8_lossy(error).into_owned());
        }
        if self.say(words)? {
            out!("Eval debugging session can't start:\n");
            self.show_result()?;
            return Ok(End::NotStarted);
        }
        loop {
            let LineRead::Text(line) = shell.lines.next("lua debugger> ") else {
                return Ok(End::Quit);
            };
            let Some(words) = words_of(&line) else {
                out!("Invalid argument(s)\n");
                continue;
            };
            shell.lines.remember(&line, false);
            match words.first().map(|word| word.to_ascii_lowercase()).as_deref() {
                None => continue,
                Some(b"quit" | b"exit") => return Ok(End::Quit),
                Some(b"restart") => return Ok(End::Restart),
                Some(_) => {}
            }
            if self.say(&words)? {
                self.show_result()?;
                out!(
                    "\n(Lua debugging session ended{})\n\n",
                    match self.debugging {
                        Debugging::Forked => " -- dataset changes rolled back",
                        Debugging::Synchronous => "",
                    }
                );
                return Ok(End::Finished);
            }
        }
    }

    /// Sends words and shows the lines that the debugger answers. Whether the session is over.
    fn say(&mut self, words: &[Vec<u8>]) -> Result<bool, String> {
        let reply = self.ask(words)?;
        let Some(lines) = reply.as_elements() else {
            show_raw(&reply);
            return Ok(false);
        };
        for line in lines {
            match line {
                Value::Simple(text) if text == b"<endsession>" => {
                    out!("\n");
                    return Ok(true);
                }
                Value::Simple(text) => {
                    out!(
                        "\x1b[{};49m{}\x1b[0m\n",
                        colour(&String::from_utf8_lossy(text)),
                        String::from_utf8_lossy(text)
                    );
                }
                other => show_raw(other),
            }
        }
        Ok(false)
    }

    /// Shows what the script returned.
    fn show_result(&mut self) -> Result<(), String> {
        let reply = self.client()?.receive_any().map_err(|error| lost(&error))?;
        terminal::write(&self.session.options.style.reply(&reply, false));
        Ok(())
    }

    fn ask(&mut self, words: &[Vec<u8>]) -> Result<Value, String> {
        self.client()?.command(words).map_err(|error| lost(&error))
    }

    fn client(&mut self) -> Result<&mut bobbin_client::RespClient, String> {
        self.session.client().ok_or_else(|| "Error: not connected".to_owned())
    }
}

fn lost(error: &bobbin_client::ClientError) -> String {
    format!("Error: {}", explain(error))
}

/// The words of a line; behind `eval` all is one, for Lua has quotes of its own.
fn words_of(line: &[u8]) -> Option<Vec<Vec<u8>>> {
    for name in [&b"eval "[..], b"e "] {
        if let Some(code) = line.strip_prefix(name) {
            return Some(vec![name[..name.len() - 1].to_vec(), code.to_vec()]);
        }
    }
    split_arguments(line).map(|words| words.into_iter().collect())
}

/// The terminal's attributes for a line, by what it begins with: as valkey-cli shows it.
fn colour(line: &str) -> &'static str {
    let kind = line.split(' ').next().unwrap_or_default();
    match kind {
        _ if line.starts_with("->") => "0;33",
        _ if line.as_bytes().get(2) == Some(&b'#') => "1;37",
        "<debug>" | "<hint>" => "1;37",
        "<redis>" | "<command>" => "0;32",
        "<reply>" => "0;36",
        "<error>" => "0;31",
        "<value>" | "<retval>" => "0;35",
        _ => "0;37",
    }
}

const INTRODUCTION: &str = "\
Lua debugging session started, please use:
quit    -- End the session.
restart -- Restart the script in debug mode again.
help    -- Show Lua script debugging commands.

";

fn show_raw(reply: &Value) {
    terminal::write(&terminal::harmless(&Style::new(ReplyForm::Raw).reply(reply, false)));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn code_is_one_word() {
        let words = |line: &str| words_of(line.as_bytes()).unwrap();
        assert_eq!(words("eval \"a b\" .. 'c'"), [&b"eval"[..], b"\"a b\" .. 'c'"]);
        assert_eq!(words("e 1"), [&b"e"[..], b"1"]);
        assert_eq!(words("print  x"), [&b"print"[..], b"x"]);
        assert_eq!(words_of(b"print \"x"), None);
    }

    #[test]
    fn colours_by_kind() {
        for (line, attributes) in [
            ("-> 1   x", "0;33"),
            ("->#1   x", "0;33"),
            ("  #2   x", "1;37"),
            ("<retval> 1", "0;35"),
            ("* Stopped", "0;37"),
        ] {
            assert_eq!(colour(line), attributes, "{line}");
        }
    }
}
