//! How the server is told to end.
//!
//! That only wakes the main thread, which saves if that is wanted, stops accepting, lets the
//! workers finish their turns and send what they have, removes the files of the socket and of the
//! process id, and leaves. So it may be done anywhere, with anything held.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use bobbin_sync::{Condvar, Mutex};

use super::Server;
use crate::config::ShutdownFlags;
use crate::engine::blocking::Waiter;
use crate::engine::command::Failure;

/// How the server is told to end.
#[derive(Default)]
pub struct ServerEnd {
    wanted: Mutex<Option<EndRequest>>,
    /// A request is being seen to.
    has_begun: AtomicBool,
    bell: Condvar,
}

impl ServerEnd {
    /// A signal came.
    pub fn signal(&self, name: &str, flags: ShutdownFlags) {
        log::warn!("Received {name} scheduling shutdown...");
        let save = (flags.save() || flags.nosave()).then_some(flags.save());
        self.end(EndRequest { save, force: flags.force(), waiter: None, by_signal: true });
    }

    /// Forgets that an end is wanted, unless it has begun.
    pub fn cancel(&self) -> Option<EndRequest> {
        self.wanted.lock().take()
    }

    /// What may be seen to has changed.
    pub fn look_again(&self) {
        drop(self.wanted.lock());
        self.bell.notify_all();
    }

    /// Ends the server, in order and soon.
    pub fn end(&self, request: EndRequest) {
        *self.wanted.lock() = Some(request);
        self.bell.notify_all();
    }

    /// What `wait` would return, where a test has no thread that waits. What was seen to before
    /// came to nothing.
    #[cfg(test)]
    pub(crate) fn take(&self) -> Option<EndRequest> {
        let request = self.cancel();
        self.has_begun.store(request.is_some(), Ordering::Relaxed);
        request
    }

    /// Whether somebody wants that, and it was not seen to yet.
    pub fn is_wanted(&self) -> bool {
        self.wanted.lock().is_some()
    }

    /// Whether somebody wants that, or it has begun.
    pub fn is_on_its_way(&self) -> bool {
        self.is_wanted() || self.has_begun.load(Ordering::Relaxed)
    }

    /// Sleeps until somebody ends the server, and it may be seen to. What was seen to before came
    /// to nothing.
    pub fn wait(&self, may_be: impl Fn(&EndRequest) -> bool) -> EndRequest {
        let mut wanted = self.wanted.lock();
        self.has_begun.store(false, Ordering::Relaxed);
        loop {
            if let Some(request) = wanted.take_if(|request| may_be(request)) {
                self.has_begun.store(true, Ordering::Relaxed);
                return request;
            }
            wanted = self.bell.wait(wanted);
        }
    }
}

/// An end that was asked for.
pub struct EndRequest {
    /// `None`: save if the server saves by itself.
    pub save: Option<bool>,
    /// End even if that fails.
    pub force: bool,
    /// Who is told when it does.
    pub waiter: Option<Arc<Waiter>>,
    /// By the process's signals, which are seen to by the clock.
    pub by_signal: bool,
}

impl EndRequest {
    /// Tells who asked that the server goes on.
    pub(crate) fn refuse(&self, server: &Server) {
        if let Some(waiter) = &self.waiter {
            waiter.answer(server, |_| Err(Failure::new(CANNOT_END)));
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

const CANNOT_END: &str = "ERR Errors trying to SHUTDOWN. Check logs.";
