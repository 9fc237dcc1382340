//! The commands of a script that do not run.

use bobbin_resp::{Protocol, Reply};

use super::ScriptSession;
use crate::engine::command::{Failure, Registered, counting};

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
        // The script gets other words than a client would, but it is counted as the client's.
        let counted = if refusal.is_of_rights { b"NOPERM " } else { text };
        // SAFETY: as in `data`.
        let client = unsafe { self.client.as_ref() };
        counting::rejected(self.server, self.stats(), client, refusal.command, counted);
        Reply::new(reply, Protocol::Resp2).error(text);
    }
}
