//! `help`: about the shell from here, about commands from the server.

use super::{
    docs::{Docs, DocumentedCommand, is_word},
    hint,
};
use crate::{session::Session, terminal};

/// Shows help about what the words name: nothing, `@group`, or a command. `known` is what the
/// server has been asked before.
pub fn show(session: &mut Session, known: Option<&Docs>, words: &[Vec<u8>]) {
    if words.is_empty() {
        out!("bobbin-cli {}\n{GENERAL}", env!("CARGO_PKG_VERSION"));
        return;
    }
    let asked = if known.is_none() { ask(session) } else { None };
    match known.or(asked.as_ref()) {
        Some(docs) => terminal::write(about(docs, words).as_bytes()),
        None => out!(
            "There is no help about commands: it comes from the server's COMMAND DOCS, which {} \
             does not answer here.\n",
            session.address
        ),
    }
}

/// In a transaction the question would be queued, and a subscriber may not ask it.
fn ask(session: &mut Session) -> Option<Docs> {
    if session.is_queueing() || session.is_subscribed() {
        return None;
    }
    if !session.is_connected() {
        session.connect_quietly()?;
    }
    session.client().and_then(Docs::ask)
}

/// The help on a group, or on all commands that begin with the words.
fn about(docs: &Docs, words: &[Vec<u8>]) -> String {
    let mut text = String::new();
    if let Some(group) = words[0].strip_prefix(b"@") {
        for command in docs.commands().iter().filter(|command| is_word(&command.group, group)) {
            append(command, false, &mut text);
        }
    } else {
        let begins = |command: &&DocumentedCommand| {
            words.len() <= command.words.len()
                && command.words.iter().zip(words).all(|(name, word)| is_word(name, word))
        };
        for command in docs.commands().iter().filter(begins) {
            append(command, true, &mut text);
        }
    }
    if text.is_empty() {
        let words: Vec<_> = words.iter().map(|word| String::from_utf8_lossy(word)).collect();
        text = format!("The server documents nothing called '{}'.\n", words.join(" "));
    }
    text.push('\n');
    text
}

fn append(command: &DocumentedCommand, with_group: bool, text: &mut String) {
    let [bold, grey, yellow, plain] = if terminal::has_colours() && terminal::is_for_people() {
        ["\x1b[1m", "\x1b[90m", "\x1b[33m", "\x1b[0m"]
    } else {
        [""; 4]
    };
    let syntax = hint::syntax(&command.arguments);
    text.push_str(&format!("\n  {bold}{}{plain} {grey}{syntax}{plain}\n", command.name()));
    text.push_str(&format!("  {yellow}summary:{plain} {}\n", command.summary));
    if let Some(since) = &command.since {
        text.push_str(&format!("  {yellow}since:{plain} {since}\n"));
    }
    if with_group {
        text.push_str(&format!("  {yellow}group:{plain} {}\n", command.group));
    }
}

const GENERAL: &str = "\
Type a command to run it; before it, a number says how often it runs.

  help @group        what the commands of a group do (string, list, set ...)
  help command       what a command does, and its arguments
  help and tab       the groups and commands there are
  tab                commands, words of their syntax, options, categories, keys
  ctrl-c             forget what has been typed; on an empty line, end
  :set hints         show the arguments that may follow while typing
  :set nohints       do not
  :set timing        say of each command how long it took
  :set notiming      do not
  :set pretty        show JSON and compressed values decoded (:set nopretty)
  :set pager         show long replies in a pager (:set nopager)
  :watch 2 command   run a command every 2 seconds until Ctrl-C
  connect host port  go to another server
  clear              clear the screen
  quit               end

Settings to begin with go into ~/.valkeyclirc, one to a line.
";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::repl::preferences::Preferences;

    #[test]
    fn the_help_names_all_preferences() {
        let Preferences { hints: _, timing: _, pretty: _, pager: _ } = Preferences::default();
        for name in ["hints", "timing", "pretty", "pager"] {
            assert!(GENERAL.contains(&format!(":set {name} ")), "{name}");
            assert!(GENERAL.contains(&format!(":set no{name}")), "no{name}");
        }
        let wide: Vec<_> = GENERAL.lines().filter(|line| line.len() > 80).collect();
        assert!(wide.is_empty(), "{wide:?}");
    }
}
