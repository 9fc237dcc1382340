//! What a subscriber sees: messages, until a key is pressed.

use std::os::fd::AsFd;

use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    termios::{self, LocalModes, OptionalActions, Termios},
};

use super::editor::LineSource;
use crate::{
    format::ReplyForm,
    interrupt,
    session::{Lost, Pushes, Session},
    terminal,
};

/// Shows messages until there is something to read from the standard input, or nothing is
/// subscribed to any more.
pub fn wait(session: &mut Session, lines: &LineSource) -> Result<(), Lost> {
    let shows_line = session.options.style.form != ReplyForm::Raw && terminal::is_for_people();
    let hold = interrupt::hold();
    let _keys = SingleKeys::enter();
    loop {
        session.show_received()?;
        if !session.is_subscribed() || lines.has_buffered() {
            return Ok(());
        }
        if shows_line {
            show_line();
        }
        let ready = wait_once(session);
        if shows_line {
            terminal::command("\x1b[K");
        }
        if hold.is_pressed() {
            out!("Closing the connection, opening another.\n");
            drop(hold);
            return session.connect();
        }
        match ready {
            Ready::Server => {
                if let Err(lost) = session.show_reply(false, Pushes::Answer) {
                    session.disconnect();
                    return Err(lost);
                }
            }
            Ready::Input => return Ok(()),
            Ready::Neither => {}
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Ready {
    Server,
    Input,
    Neither,
}

/// Waits for the server or for a key, a few seconds at most: Ctrl-C ends the wait.
fn wait_once(session: &mut Session) -> Ready {
    let Some(client) = session.client() else { return Ready::Input };
    let input = std::io::stdin();
    let mut descriptors = [
        PollFd::from_borrowed_fd(client.as_fd(), PollFlags::IN),
        PollFd::from_borrowed_fd(input.as_fd(), PollFlags::IN),
    ];
    let timeout = Timespec { tv_sec: WAIT_SECONDS, tv_nsec: 0 };
    if poll(&mut descriptors, Some(&timeout)).is_err() {
        return Ready::Neither;
    }
    match descriptors.map(|descriptor| !descriptor.revents().is_empty()) {
        [true, _] => Ready::Server,
        [false, true] => Ready::Input,
        [false, false] => Ready::Neither,
    }
}

/// The line that Valkey's tests know.
fn show_line() {
    let (bright, plain) =
        if terminal::has_colours() { ("\x1b[1;90m", "\x1b[0m") } else { ("", "") };
    out!("{bright}Reading messages... (press Ctrl-C to quit or any key to type command)");
    terminal::command("\r");
    out!("{plain}");
}

/// Keys reach us one by one, and unseen, until this is dropped.
struct SingleKeys(Option<Termios>);

impl SingleKeys {
    fn enter() -> Self {
        let input = std::io::stdin();
        let Ok(before) = termios::tcgetattr(&input) else { return Self(None) };
        let mut single = before.clone();
        single.local_modes.remove(LocalModes::ECHO | LocalModes::ICANON);
        let set = termios::tcsetattr(&input, OptionalActions::Now, &single);
        Self(set.is_ok().then_some(before))
    }
}

impl Drop for SingleKeys {
    fn drop(&mut self) {
        if let Some(before) = &self.0 {
            let _ = termios::tcsetattr(std::io::stdin(), OptionalActions::Now, before);
        }
    }
}

const WAIT_SECONDS: i64 = 5;
