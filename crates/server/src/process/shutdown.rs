//! The orderly end: how SHUTDOWN's words are read, and how the end is begun.
//!
//! Beginning it only wakes the main thread (`Server::wait_for_end`), which saves if that is wanted,
//! stops accepting, lets the workers finish their turns and send what they have, removes the files
//! of the socket and of the process id, and leaves. So it may be begun anywhere, with anything
//! held.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use crate::engine::blocking::Waiter;
use crate::engine::command::{Data, Failure};
use crate::engine::server::{Server, Switch};

/// An end that was asked for.
pub struct Request {
    /// `None`: save if the server saves by itself.
    pub save: Option<bool>,
    /// End even if that fails.
    pub force: bool,
    /// Who is told when it does.
    pub waiter: Option<Arc<Waiter>>,
    /// By the process's signals, which are seen to by the clock.
    pub by_signal: bool,
}

/// What SHUTDOWN asks for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Shutdown {
    /// NOW is left out: without replicas there is nobody to wait for.
    End {
        /// `None`: neither SAVE nor NOSAVE.
        save: Option<bool>,
        force: bool,
    },
    Abort,
}

impl Shutdown {
    /// Reads the words behind SHUTDOWN; `None` when they make no sense together.
    pub fn parse(words: &[&[u8]]) -> Option<Self> {
        let (mut save, mut nosave, mut force, mut abort) = (false, false, false, false);
        for word in words {
            match &word.to_ascii_lowercase()[..] {
                b"save" => save = true,
                b"nosave" => nosave = true,
                b"now" | b"safe" => {}
                b"force" => force = true,
                b"abort" => abort = true,
                _ => return None,
            }
        }
        match (abort, save && nosave) {
            (true, _) if words.len() > 1 => None,
            (true, _) => Some(Self::Abort),
            (false, true) => None,
            (false, false) => {
                let save = (save || nosave).then_some(save);
                Some(Self::End { save, force })
            }
        }
    }
}

/// Ends the process, as what it has promised cannot be kept.
pub(crate) fn exit_at_once() -> ! {
    #[cfg(test)]
    if crate::simulation::tasks::is_driven() {
        std::panic::resume_unwind(Box::new(crate::simulation::Exits));
    }
    std::process::exit(1)
}

impl Server {
    /// Sleeps until the server must end.
    pub(crate) fn wait_until_end_is_wanted(&self) -> Request {
        let paused = || self.switches.load() & Switch::CRON_PAUSED != 0;
        self.end.wait(|request| !(request.by_signal && paused()))
    }

    /// What comes before the end. With `true` nobody is served any more; with `false` all goes on.
    pub(crate) fn prepare_end(&'static self, request: &Request) -> bool {
        if self.abort_save() {
            self.persistence.wait_until_idle();
        }
        if !self.end_rewrite(request) {
            request.refuse(self);
            return false;
        }
        // While a file is loaded there is nothing that it could be replaced by.
        let is_loading = self.persistence.loading.is_on.load(Ordering::Relaxed);
        if is_loading || !request.save.unwrap_or_else(|| self.has_save_points()) {
            return true;
        }
        let Some(mut data) = Data::new(&self.keyspace, &self.gate, 0) else { return true };
        data.now_ms = self.clock.now_ms();
        data.enter();
        if !self.hold_gate_to_save(&mut data) {
            data.leave();
            log::warn!(
                "A script that has written is still running: nothing is saved, as half of what it does would be"
            );
            return true;
        }
        log::info!("Saving the final RDB snapshot before exiting.");
        let saved = self.save_held(&mut data);
        let may_end = saved.is_ok() || request.force;
        if may_end {
            // What is acknowledged from here on would be in no file.
            self.pause_clients(i64::MAX, true, data.now_ms);
        }
        data.leave();
        if saved.is_err() {
            if may_end {
                log::warn!("Error trying to save the DB, but forced to exit.");
            } else {
                log::warn!("Error trying to save the DB, can't exit.");
            }
        }
        if !may_end {
            request.refuse(self);
        }
        may_end
    }

    /// Holds everything, though a slow script may be at work: one that has not written is ended,
    /// another one is waited for. `false`: that takes too long, and nothing is held.
    fn hold_gate_to_save(&self, data: &mut Data) -> bool {
        let deadline = Instant::now() + SCRIPT_LIMIT;
        while !data.hold_gate() {
            if Instant::now() >= deadline {
                return false;
            }
            data.leave();
            for function in [false, true] {
                // One that cannot be ended may end by itself.
                let _ = self.scripts.kill(function);
            }
            std::thread::sleep(SCRIPT_POLL);
            data.enter();
        }
        true
    }

    /// Ends a rewrite of the log that is going on: the log is whole without it, unless it has no
    /// base yet. Then the server may only end by force.
    fn end_rewrite(&self, request: &Request) -> bool {
        if self.log.is_on() && self.aof.is_waiting_for_base() {
            if !request.force {
                log::warn!("Writing initial AOF, can't exit.");
                return false;
            }
            log::warn!("Writing initial AOF. Exit anyway.");
        }
        // A log without a base asks for another one at once.
        self.aof.rewrites.put_off(self.clock.advance(), 2 * REWRITE_LIMIT);
        self.aof.rewrites.cancel();
        // It takes away what it had written.
        let deadline = Instant::now() + REWRITE_LIMIT;
        while self.aof.rewrites.is_running() && Instant::now() < deadline {
            std::thread::sleep(REWRITE_POLL);
        }
        true
    }
}

impl Request {
    /// Tells who asked that the server goes on.
    pub(crate) fn refuse(&self, server: &Server) {
        if let Some(waiter) = &self.waiter {
            waiter.answer(server, |_| Err(Failure::new(CANNOT_END)));
        }
    }
}

/// How long a script that has written is waited for.
const SCRIPT_LIMIT: Duration = Duration::from_secs(10);
const SCRIPT_POLL: Duration = Duration::from_millis(2);

/// How long a rewrite that was given up is waited for; the disk may hang.
const REWRITE_LIMIT: Duration = Duration::from_secs(2);
const REWRITE_POLL: Duration = Duration::from_millis(2);

const CANNOT_END: &str = "ERR Errors trying to SHUTDOWN. Check logs.";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_of_shutdown() {
        let parse = |line: &str| {
            let words: Vec<&[u8]> = line.split_whitespace().map(str::as_bytes).collect();
            Shutdown::parse(&words)
        };
        assert_eq!(parse(""), Some(Shutdown::End { save: None, force: false }));
        assert_eq!(parse("NoSave NOW"), Some(Shutdown::End { save: Some(false), force: false }));
        assert_eq!(parse("save force"), Some(Shutdown::End { save: Some(true), force: true }));
        assert_eq!(parse("abort"), Some(Shutdown::Abort));
        for wrong in ["abort now", "save nosave", "later", "now abort"] {
            assert_eq!(parse(wrong), None, "{wrong}");
        }
    }
}
