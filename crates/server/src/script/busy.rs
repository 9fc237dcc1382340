//! A script that takes long: what others know of it, and how it goes on.
//!
//! After `busy-reply-threshold` a script pauses in the midst of its code and becomes a job of its client, which goes
//! on in slices. Between these the gate is open, so that all clients are told that the server is busy; nothing
//! but what must be possible then is carried out (`Switch::BUSY`), so that the script is as alone as before.

use std::collections::VecDeque;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use bobbin_resp::{Protocol, Reply};
use bobbin_script::{Ended, Progress};

use super::functions::Library;
use super::session::Session;
use super::{Lua, State};
use crate::blocking;
use crate::command::{Call, Data, Failure, Registered};
use crate::log::Pending;
use crate::server::{Server, Switch};
use crate::slowlog;
use crate::worker::Job;

/// What others know of the script that the server is busy with.
pub struct Busy {
    /// The function's name; `None`: it is a script.
    pub function: Option<Vec<u8>>,
    /// The command that began it, as the command log shows it.
    pub words: Vec<Vec<u8>>,
    pub started_ms: i64,
    /// It wrote, and cannot be ended any more.
    changed: AtomicBool,
    killed: AtomicBool,
}

impl Busy {
    /// What clients are told who want something else.
    pub fn failure(&self) -> Failure {
        let kind = if self.function.is_some() { "FUNCTION" } else { "SCRIPT" };
        Failure::format(format!(
            "BUSY Valkey is busy running a script. You can only call {kind} KILL or SHUTDOWN NOSAVE."
        ))
    }

    /// SCRIPT KILL and FUNCTION KILL.
    pub fn kill(&self, function: bool) -> Result<(), Failure> {
        if function != self.function.is_some() {
            return Err(self.failure());
        }
        if self.changed.load(Ordering::Acquire) {
            return Err(UNKILLABLE);
        }
        self.killed.store(true, Ordering::Release);
        Ok(())
    }

    /// What the script fails with, if somebody wants it to end.
    pub(super) fn killed(&self) -> Option<&'static str> {
        let killed = self.killed.load(Ordering::Acquire);
        killed.then_some(match self.function {
            Some(_) => "Script killed by user with FUNCTION KILL.",
            None => "Script killed by user with SCRIPT KILL.",
        })
    }
}

/// Whose state a script runs in.
pub(super) enum Owner {
    Worker(Box<Lua>),
    Library(Arc<Library>, Box<State>),
}

impl Owner {
    pub(super) fn state(&mut self) -> &mut State {
        match self {
            Self::Worker(lua) => &mut lua.state,
            Self::Library(_, state) => state,
        }
    }

    /// Gives the state back, for the next script.
    pub(super) fn give_back(self, data: &mut Data) {
        match self {
            Self::Worker(lua) => data.lua = Some(lua),
            Self::Library(library, state) => library.give_back(state),
        }
    }
}

/// A script that pauses.
pub(super) struct Paused {
    owner: Option<Owner>,
    session: Box<Session>,
    command: &'static Registered,
    /// Of the script: keys live or die by it.
    now_ms: i64,
    /// What it did that is no record yet.
    effects: Pending,
    /// Keys that it changed and others wait for.
    ready: VecDeque<(u32, Box<[u8]>)>,
    protocol: Protocol,
    reply: Vec<u8>,
}

// SAFETY: what it points to is the worker's, which has the client's job go on, and the job on no other thread: while
// the server is busy no connection changes its worker.
unsafe impl Send for Paused {}

/// How long the script runs between two looks at others' commands.
const SLICE_US: u64 = 5_000;

/// Makes a job of a script that has paused; the gate is held, and given up.
pub(super) fn set_aside(call: &mut Call<'_>, mut owner: Owner, session: Session) {
    let mut session = Box::new(session);
    let function = match &owner {
        Owner::Worker(_) => None,
        Owner::Library(..) => Some(call.args[1].to_vec()),
    };
    let busy = Arc::new(Busy {
        function,
        words: slowlog::shortened(call.command, call.args),
        started_ms: call.data.now_ms,
        changed: AtomicBool::new(session.has_changed()),
        killed: AtomicBool::new(false),
    });
    log::warn!(
        "Slow script detected: still in execution after {:.0} milliseconds. You can try killing the script using \
         the {} KILL command.",
        session.duration() / 1000.0,
        if busy.function.is_some() { "FUNCTION" } else { "SCRIPT" },
    );
    session.busy = Some(Arc::clone(&busy));
    // SAFETY: the session lives in its box as long as the script does.
    unsafe { owner.state().vm.set_host(NonNull::from(&mut *session)) };
    call.server.scripts.set_busy(Some(busy));
    call.server.switches.set(Switch::BUSY, true);
    let mut paused = Paused {
        owner: Some(owner),
        session,
        command: call.command,
        now_ms: call.data.now_ms,
        effects: Pending::default(),
        ready: VecDeque::new(),
        protocol: call.client.protocol,
        reply: Vec::new(),
    };
    paused.put_off(call.data);
    call.data.propagate_nothing();
    call.client.job = Some(Box::new(paused));
}

impl Paused {
    /// Keeps what the script has done so far to itself, and lets others in.
    fn put_off(&mut self, data: &mut Data) {
        if let Some(busy) = &self.session.busy {
            busy.changed.store(self.session.has_changed(), Ordering::Release);
        }
        self.effects = data.effects.take_pending();
        self.ready = std::mem::take(&mut data.ready);
        data.release();
    }

    /// Takes the gate, and has the thread know again what the script has done.
    fn take_up(&mut self, data: &mut Data) {
        data.release();
        data.hold_gate();
        data.effects.put_pending(std::mem::take(&mut self.effects));
        data.ready = std::mem::take(&mut self.ready);
    }

    /// The script is over: what it did is made known, and others go on.
    fn end(&mut self, server: &'static Server, data: &mut Data) {
        data.effects.take_replaced();
        data.effects.commit(true);
        if let Some(owner) = self.owner.take() {
            owner.give_back(data);
        }
        server.switches.set(Switch::BUSY, false);
        server.scripts.set_busy(None);
        if !data.ready.is_empty() {
            blocking::serve_ready(server, data);
        }
        data.release();
    }
}

impl Job for Paused {
    fn step(
        &mut self,
        server: &'static Server,
        data: &mut Data,
        _more: &mut dyn FnMut() -> bool,
    ) -> bool {
        let now_ms = data.now_ms;
        self.take_up(data);
        data.now_ms = self.now_ms;
        self.session.resume(data, server.clock.ticks(SLICE_US));
        let Some(owner) = &mut self.owner else { return true };
        let vm = &mut owner.state().vm;
        let over = vm.resume() == Progress::Over;
        if over {
            let ended = vm.finish(&mut Reply::new(&mut self.reply, self.protocol));
            if let Ended::Failed { text, counted } = ended {
                self.reply.clear();
                Reply::new(&mut self.reply, self.protocol).error(&text);
                self.session.count_failure(self.command, &text, counted);
            }
            self.end(server, data);
        } else {
            self.put_off(data);
        }
        data.now_ms = now_ms;
        over
    }

    fn reply(&mut self, reply: &mut Reply<'_>) {
        reply.raw(&self.reply);
    }

    fn goes_on_while_busy(&self) -> bool {
        true
    }

    fn abandon(&mut self, server: &'static Server, data: &mut Data) {
        self.take_up(data);
        if let Some(owner) = &mut self.owner {
            owner.state().vm.abandon();
        }
        if self.session.has_changed() {
            log::warn!(
                "The client of a slow script is gone: the script was ended after it had written"
            );
        }
        self.end(server, data);
    }
}

const UNKILLABLE: Failure = Failure::new(
    "UNKILLABLE Sorry the script already executed write commands against the dataset. You can either wait the script \
     termination or kill the server in a hard way using the SHUTDOWN NOSAVE command.",
);
