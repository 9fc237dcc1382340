//! The commands of a script that do not run.

use bobbin_resp::{Protocol, Reply};

use super::ScriptSession;
use crate::engine::command::{Failure, Registered};

/// Why a command did not run.
pub(super) struct RefusedCall {
    pub failure: Failure,
    pub command: Option<&'static Registered>,
    /// The user may not do it.
    pub is_of_rights: bool,
}

impl RefusedCall {
    pub const fn by(command: &'static Registered, failure: Failure) -> Self {
        Self { failure, command: Some(command), is_of_rights: false }
    }

    /// A refusal of words that name no command.
    pub const fn of(failure: Failure) -> Self {
        Self { failure, command: None, is_of_rights: false }
    }
}

impl ScriptSession {
    /// Answers a command that did not run.
    #[cold]
    pub(super) fn refuse(&mut self, refusal: RefusedCall, reply: &mut Vec<u8>) {
        // The command may have waited for shards before it was refused.
        self.end_wait();
        let text = refusal.failure.text().as_bytes();
        if !self.is_repeating() {
            if let Some(command) = refusal.command {
                self.stats().commands[command.id].rejected.add(1);
            }
            self.stats().totals.error_replies.add(1);
            // The script gets other words than a client would, but it is counted as the client's.
            self.server.errors.count(if refusal.is_of_rights { b"NOPERM " } else { text });
        }
        Reply::new(reply, Protocol::Resp2).error(text);
    }
}
