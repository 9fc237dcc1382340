//! Requests to end the server.
//!
//! A request only wakes the main thread. That thread saves if necessary, stops accepting, lets the
//! workers finish their turns and send their output, removes the files of the socket and of the
//! process id, and exits. So a request may be made anywhere, with any lock held.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bobbin_sync::{Condvar, Mutex};

use super::Server;
use crate::config::ShutdownFlags;
use crate::engine::blocking::Waiter;
use crate::engine::command::Failure;

/// The requests to end the server.
#[derive(Default)]
pub struct ServerEnd {
    state: Mutex<EndState>,
    /// Whether the main thread works on a request.
    has_begun: AtomicBool,
    bell: Condvar,
}

#[derive(Default)]
struct EndState {
    wanted: Option<EndRequest>,
    /// Set while the main thread works on a request that can be cancelled: replicas may catch up
    /// first.
    grace: Option<Grace>,
}

/// The time that replicas get to catch up.
#[derive(Default)]
struct Grace {
    /// Unix ms; `None` until it is known whether replicas need any time.
    until_ms: Option<i64>,
    is_cancelled: bool,
    /// Whether a later request does not want to wait for replicas.
    is_hurried: bool,
    /// Clients that asked for the end meanwhile.
    waiters: Vec<Arc<Waiter>>,
}

/// How the time for replicas ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum GraceEnd {
    /// The server may end.
    Over,
    Cancelled,
}

impl ServerEnd {
    /// Requests the end because of a signal.
    pub fn signal(&self, name: &str, flags: ShutdownFlags) {
        log::warn!("Received {name} scheduling shutdown...");
        let save = (flags.save() || flags.nosave()).then_some(flags.save());
        let (force, now) = (flags.force(), flags.now());
        self.end(EndRequest { save, force, now, waiters: Vec::new(), by_signal: true });
    }

    /// Cancels the request, unless only the saving is left to do. Returns whether there was a
    /// request to cancel.
    pub fn cancel(&self, server: &Server) -> bool {
        let mut state = self.state.lock();
        if let Some(request) = state.wanted.take() {
            drop(state);
            request.refuse(server);
            return true;
        }
        let Some(grace) = &mut state.grace else { return false };
        grace.is_cancelled = true;
        self.bell.notify_all();
        true
    }

    /// Wakes the main thread: a request may have become possible.
    pub fn look_again(&self) {
        drop(self.state.lock());
        self.bell.notify_all();
    }

    /// Requests that the server ends soon and in order.
    pub fn end(&self, mut request: EndRequest) {
        let mut state = self.state.lock();
        if let Some(grace) = &mut state.grace {
            grace.is_hurried |= request.now;
            grace.waiters.append(&mut request.waiters);
        } else if let Some(earlier) = &mut state.wanted {
            earlier.now |= request.now;
            earlier.waiters.append(&mut request.waiters);
        } else {
            state.wanted = Some(request);
        }
        self.bell.notify_all();
    }

    /// Sleeps until replicas have caught up (`have_all`), their time is over (`is_late`), or a
    /// later request does not want to wait. Clients that ask meanwhile are added to the request.
    pub fn give_grace(
        &self,
        request: &mut EndRequest,
        until_ms: i64,
        have_all: impl Fn() -> bool,
        is_late: impl Fn() -> bool,
    ) -> GraceEnd {
        loop {
            let is_over = have_all() || is_late();
            let mut state = self.state.lock();
            let grace = state.grace.get_or_insert_default();
            grace.until_ms = Some(until_ms);
            if is_over || grace.is_hurried || grace.is_cancelled {
                drop(state);
                return self.end_grace(request);
            }
            drop(self.bell.wait_timeout(state, GRACE_POLL));
        }
    }

    /// Ends the time in which the request can be cancelled. Clients that asked meanwhile are added
    /// to it.
    pub fn end_grace(&self, request: &mut EndRequest) -> GraceEnd {
        let grace = self.state.lock().grace.take().unwrap_or_default();
        request.waiters.extend(grace.waiters);
        if grace.is_cancelled { GraceEnd::Cancelled } else { GraceEnd::Over }
    }

    /// Until when (Unix ms) the server waits for replicas.
    pub fn grace_until_ms(&self) -> Option<i64> {
        self.state.lock().grace.as_ref().and_then(|grace| grace.until_ms)
    }

    /// What `wait` would return, for tests without a thread that waits. The earlier request has
    /// failed or was cancelled.
    #[cfg(test)]
    pub(crate) fn take(&self) -> Option<EndRequest> {
        let mut state = self.state.lock();
        let request = state.wanted.take();
        state.grace = request.is_some().then(Grace::default);
        self.has_begun.store(request.is_some(), Ordering::Relaxed);
        request
    }

    /// Whether an end is requested that the main thread does not work on yet.
    pub fn is_wanted(&self) -> bool {
        self.state.lock().wanted.is_some()
    }

    /// Whether an end is requested or has begun.
    pub fn is_on_its_way(&self) -> bool {
        self.is_wanted() || self.has_begun.load(Ordering::Relaxed)
    }

    /// Sleeps until there is a request that `may_be` accepts. The earlier request has failed or was
    /// cancelled.
    pub fn wait(&self, may_be: impl Fn(&EndRequest) -> bool) -> EndRequest {
        let mut state = self.state.lock();
        self.has_begun.store(false, Ordering::Relaxed);
        loop {
            if let Some(request) = state.wanted.take_if(|request| may_be(request)) {
                self.has_begun.store(true, Ordering::Relaxed);
                state.grace = Some(Grace::default());
                return request;
            }
            state = self.bell.wait(state);
        }
    }
}

/// A request to end the server.
pub struct EndRequest {
    /// Whether to save; `None` to save if the server saves by itself.
    pub save: Option<bool>,
    /// End even if the saving fails.
    pub force: bool,
    /// Do not wait for replicas.
    pub now: bool,
    /// The clients that are told if the request fails.
    pub waiters: Vec<Arc<Waiter>>,
    /// Whether a signal made the request. Such requests are handled by the timer.
    pub by_signal: bool,
}

impl EndRequest {
    /// Makes the request once more. The clients that made it are not part of the new one.
    pub(crate) const fn again(&self) -> Self {
        let &Self { save, force, now, by_signal, .. } = self;
        Self { save, force, now, waiters: Vec::new(), by_signal }
    }

    /// Tells the clients of the request that the server goes on.
    pub(crate) fn refuse(&self, server: &Server) {
        for waiter in &self.waiters {
            waiter.answer(server, |_| Err(Failure::new(CANNOT_END)));
        }
    }
}

/// How often the main thread checks whether replicas have caught up.
const GRACE_POLL: Duration = Duration::from_millis(10);

/// Ends the process because it can no longer keep its promises.
pub(crate) fn exit_at_once() -> ! {
    #[cfg(test)]
    if crate::simulation::tasks::is_driven() {
        std::panic::resume_unwind(Box::new(crate::simulation::Exits));
    }
    std::process::exit(1)
}

const CANNOT_END: &str = "ERR Errors trying to SHUTDOWN. Check logs.";
