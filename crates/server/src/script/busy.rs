//! A script that takes long: what others know of it, and how it goes on.
//!
//! After `busy-reply-threshold` a script pauses in the midst of its code and becomes a job of its client, which goes
//! on in slices. What it held, shards or the gate, is given up between these but stays reserved (`Aside`): whoever
//! wants it, or waits for it already, is refused. From then on clients are told that the server is busy, and
//! nothing is carried out but what must be possible then (`Switch::BUSY`), so that the script is as alone as before.
//! If EXEC runs the script, the rest of the transaction waits with it, with all that it holds.

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
use crate::client::Client;
use crate::command::data::Aside;
use crate::command::transaction::Running;
use crate::command::{Call, Data, Failure, Registered};
use crate::log::Pending;
use crate::server::Server;
use crate::slowlog::{self, Measured};
use crate::stats::WorkerStats;
use crate::tracking::Notice;
use crate::worker::{Job, Slice};

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
        Self::failure_of(self.function.is_some())
    }

    pub(super) fn failure_of(function: bool) -> Failure {
        let kind = if function { "FUNCTION" } else { "SCRIPT" };
        Failure::format(format!(
            "BUSY Valkey is busy running a script. You can only call {kind} KILL or SHUTDOWN NOSAVE."
        ))
    }

    /// Has it end as soon as it looks.
    pub(super) fn kill(&self) -> Result<(), Failure> {
        self.check_killable()?;
        self.killed.store(true, Ordering::Release);
        Ok(())
    }

    pub(super) fn check_killable(&self) -> Result<(), Failure> {
        if self.changed.load(Ordering::Acquire) { Err(UNKILLABLE) } else { Ok(()) }
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

    /// Lets others see what the state takes.
    fn show_memory(&self) {
        match self {
            Self::Worker(lua) => lua.show_memory(),
            Self::Library(library, state) => library.show_memory(state),
        }
    }

    /// Gives the state back, for the next script.
    pub(super) fn give_back(self, data: &mut Data) {
        match self {
            Self::Worker(lua) => {
                lua.show_memory();
                data.lua = Some(lua);
            }
            Self::Library(library, state) => library.give_back(state),
        }
    }
}

/// A script that pauses.
pub struct Paused {
    owner: Option<Owner>,
    session: Box<Session>,
    busy: Arc<Busy>,
    command: &'static Registered,
    /// Of the script: keys live or die by it.
    now_ms: i64,
    /// What it held, while it does not run.
    aside: Option<Aside>,
    /// What it did that is no record yet, and what others are to hear of it.
    effects: Pending,
    events: Vec<Notice>,
    /// Keys that it changed and others wait for.
    ready: VecDeque<(u32, Box<[u8]>)>,
    protocol: Protocol,
    reply: Vec<u8>,
    /// The transaction that it is part of.
    transaction: Option<Running>,
}

// SAFETY: what it points to is made good before the script goes on, which one thread at a time has it do.
unsafe impl Send for Paused {}

/// How long the script runs between two looks at others' commands.
const SLICE_US: u64 = 5_000;

impl Paused {
    /// Sets a script aside that has run for long, into `data.paused`. What it holds is given up but reserved.
    pub(super) fn begin(call: &mut Call<'_>, mut owner: Owner, session: Session) {
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
            call.server.clock.us(session.duration()) / 1000.0,
            if busy.function.is_some() { "FUNCTION" } else { "SCRIPT" },
        );
        session.busy = Some(Arc::clone(&busy));
        // SAFETY: the session lives in its box as long as the script does.
        unsafe { owner.state().vm.set_host(NonNull::from(&mut *session)) };
        // Before anything is given up, so that nobody comes between who has not seen it.
        call.server.scripts.set_busy(&call.server.switches, &busy, true);
        let mut paused = Box::new(Self {
            owner: Some(owner),
            session,
            busy,
            command: call.command,
            now_ms: call.data.now_ms,
            aside: None,
            effects: Pending::default(),
            events: Vec::new(),
            ready: VecDeque::new(),
            protocol: call.client.protocol,
            reply: Vec::new(),
            transaction: None,
        });
        paused.put_off(call.data);
        call.data.propagate_nothing();
        call.data.paused = Some(paused);
    }

    /// Has the transaction go on after the script, behind its reply so far.
    pub(crate) fn within(mut self: Box<Self>, transaction: Running, reply: Vec<u8>) -> Box<Self> {
        self.reply = reply;
        self.transaction = Some(transaction);
        self
    }

    /// Keeps what the script has done so far to itself, and lets others in.
    fn put_off(&mut self, data: &mut Data) {
        self.busy.changed.store(self.session.has_changed(), Ordering::Release);
        if let Some(owner) = &self.owner {
            owner.show_memory();
        }
        self.effects = data.effects.take_pending();
        self.events = std::mem::take(&mut data.events);
        self.ready = std::mem::take(&mut data.ready);
        self.aside = Some(data.set_aside());
    }

    /// Holds again what the script held, and has the thread know what it has done.
    fn take_up(&mut self, data: &mut Data) {
        if let Some(aside) = self.aside.take() {
            data.take_back(aside);
        }
        data.effects.put_pending(std::mem::take(&mut self.effects));
        data.events = std::mem::take(&mut self.events);
        // This thread may have others to serve.
        self.ready.append(&mut data.ready);
        data.ready = std::mem::take(&mut self.ready);
    }

    /// The script is over. Everything is still held.
    fn end_script(&mut self, server: &'static Server, data: &mut Data) {
        data.effects.take_replaced();
        if let Some(owner) = self.owner.take() {
            owner.give_back(data);
        }
        server.scripts.set_busy(&server.switches, &self.busy, false);
    }

    /// Goes on with the transaction behind a script that is over; whether that is over too.
    fn go_on(&mut self, mut running: Running, slice: &mut Slice<'_>) -> bool {
        let Slice { server, data, stats, client, .. } = slice;
        self.count(server, stats, client);
        let mut call = Call {
            server,
            command: running.command(),
            args: &[b"EXEC"],
            wire: &[],
            client,
            data,
            stats,
            reply: Reply::new(&mut self.reply, self.protocol),
            hashes: &[],
            in_transaction: false,
        };
        if running.go_on(&mut call) {
            running.end(&mut call);
            return true;
        }
        if let Some(next) = data.paused.take() {
            *self = *next.within(running, std::mem::take(&mut self.reply));
        }
        false
    }

    /// Counts the script's command, which is one of a transaction's.
    fn count(&self, server: &Server, stats: &WorkerStats, client: &Client) {
        let measured =
            Measured { ticks: self.session.duration(), request_bytes: 0, reply_bytes: 0 };
        stats.commands[self.command.id].executed(measured.ticks, server.config.latency_tracking());
        stats.totals.commands.add(1);
        client.info.commands.add(1);
        if server.services.command_log.limits().exceeded_by(&measured) {
            let words = || self.busy.words.clone();
            slowlog::note_words(server, client, self.command, words, &measured);
        }
    }
}

impl Job for Paused {
    fn step(&mut self, slice: &mut Slice<'_>) -> bool {
        let (server, stats) = (slice.server, slice.stats);
        let now_ms = slice.data.now_ms;
        self.take_up(slice.data);
        slice.data.now_ms = self.now_ms;
        // The script is alone, so what it finds dead goes as it does in any other.
        slice.data.may_expire = true;
        self.session.resume(slice.data, stats, server.clock.ticks(SLICE_US));
        let Some(owner) = &mut self.owner else { return true };
        let vm = &mut owner.state().vm;
        if vm.resume() == Progress::Paused {
            self.put_off(slice.data);
            slice.data.now_ms = now_ms;
            slice.data.may_expire = false;
            return false;
        }
        let start = self.reply.len();
        let ended = vm.finish(&mut Reply::new(&mut self.reply, self.protocol));
        if let Ended::Failed { text, counted } = ended {
            self.reply.truncate(start);
            Reply::new(&mut self.reply, self.protocol).error(&text);
            self.session.count_failure(self.command, &text, counted);
        }
        self.end_script(server, slice.data);
        let done = match self.transaction.take() {
            Some(running) => self.go_on(running, slice),
            None => {
                end(server, slice.data);
                true
            }
        };
        slice.data.now_ms = now_ms;
        slice.data.may_expire = server.may_expire(now_ms);
        done
    }

    fn reply(&mut self, reply: &mut Reply<'_>) {
        reply.raw(&self.reply);
    }

    fn goes_on_while_busy(&self) -> bool {
        true
    }

    fn outlives_client(&self) -> bool {
        // What it wrote is to be whole.
        self.session.has_changed() || self.transaction.is_some()
    }

    fn abandon(&mut self, server: &'static Server, data: &mut Data) {
        self.take_up(data);
        if let Some(owner) = &mut self.owner {
            owner.state().vm.abandon();
        }
        self.end_script(server, data);
        end(server, data);
    }
}

/// What a script did is made known, and others go on.
fn end(server: &'static Server, data: &mut Data) {
    data.effects.commit(true);
    if !data.events.is_empty() {
        data.publish_events(None);
    }
    if !data.ready.is_empty() {
        blocking::serve_ready(server, data);
    }
    data.release();
}

const UNKILLABLE: Failure = Failure::new(
    "UNKILLABLE Sorry the script already executed write commands against the dataset. You can either wait the script \
     termination or kill the server in a hard way using the SHUTDOWN NOSAVE command.",
);
