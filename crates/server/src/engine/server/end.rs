//! Requests to end the server.
//!
//! A request only wakes the main thread. That thread saves if necessary, stops accepting, lets the
//! workers finish their turns and send their output, removes the files of the socket and of the
//! process id, and exits. So a request may be made anywhere, with any lock held.

use std::sync::Arc;
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
    bell: Condvar,
}

#[derive(Default)]
struct EndState {
    /// The requests that the main thread has not taken yet, as one.
    wanted: Option<EndRequest>,
    stage: EndStage,
}

/// How far the main thread is with the request that it has taken.
#[derive(Clone, Copy, PartialEq, Eq, Default)]
enum EndStage {
    /// It has none.
    #[default]
    Idle,
    /// It waits for replicas or for a script, and the request can be cancelled. `until_ms`: so long
    /// (Unix ms) it waits for replicas.
    Waiting { until_ms: Option<i64> },
    /// The request was cancelled, and the main thread has yet to see that.
    Cancelled,
    /// It saves, and then the server ends, unless the saving fails.
    Ending,
}

/// What happened while a request waited.
pub enum Meanwhile {
    Nothing,
    /// The end was requested once more.
    Asked(EndRequest),
    Cancelled,
}

impl ServerEnd {
    /// Requests the end because of a signal.
    pub fn signal(&self, name: &str, flags: ShutdownFlags) {
        log::warn!("Received {name} scheduling shutdown...");
        let save = (flags.save() || flags.nosave()).then_some(flags.save());
        let (force, now) = (flags.force(), flags.now());
        self.end(EndRequest { save, force, now, by_signal: true, ..EndRequest::default() });
    }

    /// Requests that the server ends soon and in order.
    pub fn end(&self, request: EndRequest) {
        self.state.lock().add(request);
        self.bell.notify_all();
    }

    /// Requests the end once more for the signal whose request has waited in vain, unless that was
    /// cancelled. The clients that made it are not part of the new one.
    pub fn end_again(&self, request: &EndRequest) {
        let mut state = self.state.lock();
        if matches!(state.stage, EndStage::Waiting { .. }) {
            let &EndRequest { save, force, now, by_signal, .. } = request;
            state.add(EndRequest { save, force, now, by_signal, ..EndRequest::default() });
        }
    }

    /// Cancels all requests, except one for which the main thread is saving or ending. Returns
    /// whether there was a request to cancel.
    pub fn cancel(&self, server: &Server) -> bool {
        let mut state = self.state.lock();
        let wanted = state.wanted.take();
        let is_waiting = matches!(state.stage, EndStage::Waiting { .. });
        if is_waiting {
            state.stage = EndStage::Cancelled;
            self.bell.notify_all();
        }
        drop(state);
        wanted.iter().for_each(|request| request.refuse(server));
        is_waiting || wanted.is_some()
    }

    /// Wakes the main thread: a request may have become possible.
    pub fn look_again(&self) {
        drop(self.state.lock());
        self.bell.notify_all();
    }

    /// Sleeps until there is a request that `may_be` accepts. The earlier request has failed or was
    /// cancelled.
    pub fn wait(&self, may_be: impl Fn(&EndRequest) -> bool) -> EndRequest {
        let mut state = self.state.lock();
        state.stage = EndStage::Idle;
        loop {
            if let Some(request) = state.take_if(&may_be) {
                return request;
            }
            state = self.bell.wait(state);
        }
    }

    /// What `wait` would return, for tests without a thread that waits.
    #[cfg(test)]
    pub(crate) fn take(&self) -> Option<EndRequest> {
        let mut state = self.state.lock();
        state.stage = EndStage::Idle;
        state.take_if(|_| true)
    }

    /// Sleeps until replicas have caught up or their time is over (`is_over`), or a later request
    /// does not want to wait. Requests that are made meanwhile are added. `false`: the request was
    /// cancelled.
    pub fn wait_for_replicas(
        &self,
        request: &mut EndRequest,
        until_ms: i64,
        is_over: impl Fn() -> bool,
    ) -> bool {
        self.show(Some(until_ms));
        loop {
            match self.meanwhile() {
                Meanwhile::Nothing => {}
                Meanwhile::Asked(later) => request.add(later),
                Meanwhile::Cancelled => return false,
            }
            if request.now || is_over() {
                return self.show(None);
            }
            let state = self.state.lock();
            if state.wanted.is_none() && state.stage != EndStage::Cancelled {
                drop(self.bell.wait_timeout(state, REPLICAS_POLL));
            }
        }
    }

    /// Sets until when INFO says that the server waits for replicas. `false`: the request was
    /// cancelled.
    fn show(&self, wanted_ms: Option<i64>) -> bool {
        match &mut self.state.lock().stage {
            EndStage::Waiting { until_ms } => {
                *until_ms = wanted_ms;
                true
            }
            _ => false,
        }
    }

    /// What happened since the request was taken or this was last called.
    pub fn meanwhile(&self) -> Meanwhile {
        let mut state = self.state.lock();
        if state.stage == EndStage::Cancelled {
            // What was requested since then is another matter.
            return Meanwhile::Cancelled;
        }
        state.wanted.take().map_or(Meanwhile::Nothing, Meanwhile::Asked)
    }

    /// From now on the request that was taken cannot be cancelled. `false`: it was cancelled
    /// before.
    pub fn begin(&self) -> bool {
        let mut state = self.state.lock();
        let begins = state.stage != EndStage::Cancelled;
        if begins {
            state.stage = EndStage::Ending;
        }
        begins
    }

    /// Until when (Unix ms) the server waits for replicas.
    pub fn waits_until_ms(&self) -> Option<i64> {
        match self.state.lock().stage {
            EndStage::Waiting { until_ms } => until_ms,
            _ => None,
        }
    }

    /// Whether an end is requested that the main thread does not work on yet.
    pub fn is_wanted(&self) -> bool {
        self.state.lock().wanted.is_some()
    }

    /// Whether an end is requested or has begun.
    pub fn is_on_its_way(&self) -> bool {
        let state = self.state.lock();
        state.wanted.is_some() || state.stage != EndStage::Idle
    }
}

impl EndState {
    fn add(&mut self, request: EndRequest) {
        match &mut self.wanted {
            Some(earlier) => earlier.add(request),
            none => *none = Some(request),
        }
    }

    fn take_if(&mut self, may_be: impl Fn(&EndRequest) -> bool) -> Option<EndRequest> {
        let request = self.wanted.take_if(|request| may_be(request))?;
        self.stage = EndStage::Waiting { until_ms: None };
        Some(request)
    }
}

/// A request to end the server.
#[derive(Default)]
pub struct EndRequest {
    /// Whether to save; `None` to save if the server saves by itself.
    pub save: Option<bool>,
    /// A later request wants no snapshot, so the end does not wait for a script to be able to save.
    pub nosave_later: bool,
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
    /// Adds a later request. The first one says whether to save, if no script is in the way.
    pub(crate) fn add(&mut self, later: Self) {
        self.nosave_later |= later.nosave_later || later.save == Some(false);
        self.force |= later.force;
        self.now |= later.now;
        self.by_signal |= later.by_signal;
        self.waiters.extend(later.waiters);
    }

    /// Tells the clients of the request that the server goes on.
    pub(crate) fn refuse(&self, server: &Server) {
        for waiter in &self.waiters {
            waiter.answer(server, |_| Err(Failure::new(&CANNOT_END)));
        }
    }
}

/// How often the main thread checks whether replicas have caught up.
const REPLICAS_POLL: Duration = Duration::from_millis(10);

/// Ends the process because it can no longer keep its promises.
pub(crate) fn exit_at_once() -> ! {
    #[cfg(test)]
    if crate::simulation::tasks::is_driven() {
        std::panic::resume_unwind(Box::new(crate::simulation::Exits));
    }
    std::process::exit(1)
}

const CANNOT_END: &str = "ERR Errors trying to SHUTDOWN. Check logs.";

#[cfg(test)]
mod tests {
    use super::*;

    /// Else a signal that waits for a script would be refused with the client's request, and nobody
    /// would make it again.
    #[test]
    fn a_signal_that_joins_a_request_still_counts() {
        let request = |by_signal, force| EndRequest {
            save: Some(true),
            force,
            by_signal,
            ..EndRequest::default()
        };
        let end = ServerEnd::default();
        end.end(request(false, false));
        end.end(request(true, false));
        assert!(end.take().is_some_and(|request| request.by_signal && !request.force));
        end.end(request(false, false));
        end.end(request(false, true));
        assert!(end.take().is_some_and(|request| !request.by_signal && request.force));
        assert!(end.take().is_none());
    }

    /// Even if the main thread has not taken the first one yet.
    #[test]
    fn a_request_without_a_snapshot_is_known_of_beside_an_earlier_one() {
        let end = ServerEnd::default();
        end.end(EndRequest { by_signal: true, ..EndRequest::default() });
        end.end(EndRequest { save: Some(false), ..EndRequest::default() });
        assert!(end.take().is_some_and(|request| request.nosave_later && request.save.is_none()));
    }
}
