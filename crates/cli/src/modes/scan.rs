//! `--scan`: the names of the keys, one to a line.

use std::process::ExitCode;

use super::server::KeyScan;
use crate::{
    format::{ReplyForm, append_quoted},
    interrupt,
    session::Session,
    terminal,
};

pub fn run(session: &mut Session) -> ExitCode {
    let quotes = session.options.style.form == ReplyForm::Tty;
    let hold = interrupt::hold();
    let mut scan = KeyScan::new(session, 0, 1);
    let client = session.connect_or_exit();
    while let Some(keys) = scan.next(client) {
        let mut text = Vec::new();
        for key in keys {
            if quotes {
                append_quoted(&key, &mut text);
            } else {
                text.extend(key);
            }
            text.push(b'\n');
        }
        terminal::write(&text);
        if hold.is_pressed() {
            break;
        }
    }
    ExitCode::SUCCESS
}
