//! How the server is told to end.
//!
//! That only wakes the main thread, which saves if that is wanted, stops accepting, lets the
//! workers finish their turns and send what they have, removes the files of the socket and of the
//! process id, and leaves. So it may be done anywhere, with anything held.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bobbin_sync::{Condvar, Mutex};

use super::Server;
use crate::config::ShutdownFlags;
use crate::engine::blocking::Waiter;
use crate::engine::command::Failure;

/// How the server is told to end.
#[derive(Default)]
pub struct ServerEnd {
    state: Mutex<EndState>,
    /// A request is being seen to.
    has_begun: AtomicBool,
    bell: Condvar,
}

#[derive(Default)]
struct EndState {
    wanted: Option<EndRequest>,
    /// A request is being seen to, and can be cancelled: replicas may catch up before it goes on.
    grace: Option<Grace>,
}

/// The time that replicas have.
#[derive(Default)]
struct Grace {
    /// Unix ms; `None`: it is not known yet whether they need any.
    until_ms: Option<i64>,
    is_cancelled: bool,
    /// A later request does not want to wait for them.
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
    /// A signal came.
    pub fn signal(&self, name: &str, flags: ShutdownFlags) {
        log::warn!("Received {name} scheduling shutdown...");
        let save = (flags.save() || flags.nosave()).then_some(flags.save());
        let (force, now) = (flags.force(), flags.now());
        self.end(EndRequest { save, force, now, waiters: Vec::new(), by_signal: true });
    }

    /// Forgets that an end is wanted, unless there is only the saving left to do. Whether there was
    /// something to forget.
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

    /// What may be seen to has changed.
    pub fn look_again(&self) {
        drop(self.state.lock());
        self.bell.notify_all();
    }

    /// Ends the server, in order and soon.
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

    /// Sleeps until replicas have caught up (`have_all`), their time is over (`is_late`), or
    /// a later request does not want to wait any more. Those that ask meanwhile are added to the
    /// request.
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

    /// From here on nothing cancels the request. Those that asked meanwhile are added to it.
    pub fn end_grace(&self, request: &mut EndRequest) -> GraceEnd {
        let grace = self.state.lock().grace.take().unwrap_or_default();
        request.waiters.extend(grace.waiters);
        if grace.is_cancelled { GraceEnd::Cancelled } else { GraceEnd::Over }
    }

    /// Until when replicas are awaited (Unix ms).
    pub fn grace_until_ms(&self) -> Option<i64> {
        self.state.lock().grace.as_ref().and_then(|grace| grace.until_ms)
    }

    /// What `wait` would return, where a test has no thread that waits. What was seen to before
    /// came to nothing.
    #[cfg(test)]
    pub(crate) fn take(&self) -> Option<EndRequest> {
        let mut state = self.state.lock();
        let request = state.wanted.take();
        state.grace = request.is_some().then(Grace::default);
        self.has_begun.store(request.is_some(), Ordering::Relaxed);
        request
    }

    /// Whether that is wanted, and was not seen to yet.
    pub fn is_wanted(&self) -> bool {
        self.state.lock().wanted.is_some()
    }

    /// Whether that is wanted, or has begun.
    pub fn is_on_its_way(&self) -> bool {
        self.is_wanted() || self.has_begun.load(Ordering::Relaxed)
    }

    /// Sleeps until a client or a signal ends the server, and it may be seen to. What was seen to
    /// before came to nothing.
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

/// An end that was asked for.
pub struct EndRequest {
    /// `None`: save if the server saves by itself.
    pub save: Option<bool>,
    /// End even if that fails.
    pub force: bool,
    /// Wait for no replicas.
    pub now: bool,
    /// The clients that are told when it fails.
    pub waiters: Vec<Arc<Waiter>>,
    /// By the process's signals, which are seen to by the clock.
    pub by_signal: bool,
}

impl EndRequest {
    /// The same once more. The clients that asked are told that it came to nothing.
    pub(crate) const fn again(&self) -> Self {
        let &Self { save, force, now, by_signal, .. } = self;
        Self { save, force, now, waiters: Vec::new(), by_signal }
    }

    /// Tells the clients that asked that the server goes on.
    pub(crate) fn refuse(&self, server: &Server) {
        for waiter in &self.waiters {
            waiter.answer(server, |_| Err(Failure::new(CANNOT_END)));
        }
    }
}

/// How often the main thread looks whether replicas have caught up.
const GRACE_POLL: Duration = Duration::from_millis(10);

/// Ends the process, as what it has promised cannot be kept.
pub(crate) fn exit_at_once() -> ! {
    #[cfg(test)]
    if crate::simulation::tasks::is_driven() {
        std::panic::resume_unwind(Box::new(crate::simulation::Exits));
    }
    std::process::exit(1)
}

const CANNOT_END: &str = "ERR Errors trying to SHUTDOWN. Check logs.";
