//! Scripts that take long, and how they go on.
//!
//! After half a millisecond a script pauses within its code and becomes a job of its client: it
//! goes on in slices, and between them its worker serves all other clients. The script keeps its
//! shards; if it held the gate, it keeps every shard instead, so that other workers can have their
//! turns. The shards are reserved (`Aside`): a command that needs one is refused at once, and its
//! client waits until the script is over. Work that only removes a note from a shard
//! (`Data::visit`) gets in between two slices.
//!
//! After `busy-reply-threshold` the script is slow: clients are told that the server is busy, and
//! only commands that may run then are executed (`Switch::BUSY`).
//!
//! When the script is over, its worker locks the script's shards again and ends its unit. If EXEC
//! runs the script, the rest of the transaction waits together with the script.

use std::any::Any;
use std::ptr::NonNull;
use std::sync::Arc;

use bobbin_resp::{Protocol, Reply};
use bobbin_script::{Ended, ScriptProgress};

use super::session::{KeyAccess, ScriptSession, count_failure};
use crate::engine::client::attempts::ScriptAttempts;
use crate::engine::command::data::{Suspended, Then};
use crate::engine::command::job::{Job, SLICE_US, Slice};
use crate::engine::command::{Call, Data, Failure, Registered, counting};
use crate::engine::script::{Busy, Learned, Library, Lua, LuaState, STATES_KEPT};
use crate::engine::server::Server;
use crate::engine::telemetry::slowlog;
use crate::engine::telemetry::stats::WorkerStats;

/// Whose Lua state a script runs in.
pub(super) enum Owner {
    Worker(Box<Lua>),
    Library(Arc<Library>, Box<LuaState>),
}

impl Owner {
    pub(super) fn state(&mut self) -> &mut LuaState {
        match self {
            Self::Worker(lua) => &mut lua.state,
            Self::Library(_, state) => state,
        }
    }

    /// Publishes how much memory the state uses.
    fn show_memory(&self) {
        match self {
            Self::Worker(lua) => lua.show_memory(),
            Self::Library(library, state) => library.show_memory(state),
        }
    }

    /// Gives the state back, for the next script.
    pub(super) fn give_back(self, server: &Server, data: &mut Data) {
        match self {
            Self::Worker(lua) => {
                lua.give_back(data);
            }
            Self::Library(library, state) => {
                if library.give_back(state) {
                    server.scripts.serve_waiters(server);
                }
            }
        }
    }
}

/// A paused script, as a job of its client.
pub struct PausedScript {
    next: RunStep,
    busy: Arc<Busy>,
    command: &'static Registered,
    protocol: Protocol,
    reply: Vec<u8>,
    /// Whether the script is part of a transaction. Then the transaction ends the unit.
    in_transaction: bool,
    /// The words of the command, kept as long as the script may have to begin anew.
    words: Vec<Box<[u8]>>,
}

/// What the job does next.
enum RunStep {
    /// The script continues where it paused.
    Resume(Box<ScriptRun>),
    /// The script begins anew: it needs a shard that others hold, and has changed nothing.
    Again,
    /// The script is over.
    Done,
}

/// The run of a script.
struct ScriptRun {
    owner: Owner,
    session: Box<ScriptSession>,
    busy: Arc<Busy>,
    progress: ScriptProgress,
    /// The locks, the effects and the time of the script, while it does not run.
    unit: Option<Suspended>,
    /// Remembers which keys the script uses, for later runs.
    learned: Arc<Learned>,
}

// SAFETY: only the thread that has the run follows its pointers. The session's pointers to data of
// a thread are set (`ScriptSession::resume`) before the script goes on in that thread. The other
// pointers lead to objects that the run owns, in boxes.
unsafe impl Send for ScriptRun {}

impl ScriptRun {
    /// Continues the script for a slice. Returns whether it is over.
    fn step(&mut self, server: &'static Server, data: &mut Data, stats: &WorkerStats) -> bool {
        self.take_up(data, Then::Suspended);
        self.session.resume(data, stats, server.clock.ticks(SLICE_US));
        self.progress = self.owner.state().vm.resume();
        // A script that only waits does not make the server busy.
        let is_at_work = self.progress == ScriptProgress::Paused && !self.session.waits();
        if is_at_work && self.session.is_slow() {
            server.scripts.announce(server, &self.busy, self.session.duration());
        }
        self.put_off(server, data, None);
        self.progress != ScriptProgress::Paused
    }

    /// Sets the script's locks and effects aside, and lets others in. If the script holds
    /// everything, `narrow` names the only shards that it keeps.
    fn put_off(&mut self, server: &Server, data: &mut Data, narrow: Option<Vec<usize>>) {
        self.owner.show_memory();
        self.session.set_aside();
        self.unit = Some(data.suspend_unit_on(server, narrow));
    }

    /// Locks again what the script held, and makes its unit the current one of this thread.
    fn take_up(&mut self, data: &mut Data, then: Then) {
        self.unit.take().into_iter().for_each(|unit| data.resume_unit(unit, then));
    }
}

impl PausedScript {
    /// Whether a script that has run for a while goes on in slices. A slow script always does.
    /// Others do only while few scripts pause, as each keeps a Lua state.
    pub(super) fn may_begin(server: &Server, session: &ScriptSession) -> bool {
        session.is_slow() || server.scripts.paused() < server.workers.serving() * STATES_KEPT
    }

    /// Sets a script that has run for a while aside, as a job of its client.
    pub(super) fn begin(
        call: &mut Call<'_>,
        mut owner: Owner,
        mut session: Box<ScriptSession>,
        learned: &Arc<Learned>,
    ) {
        let function = match &owner {
            Owner::Worker(_) => None,
            Owner::Library(..) => Some(call.args[1].to_vec()),
        };
        let words = slowlog::shortened(call.command, call.args);
        let started_ms = call.data.conditions.now_ms;
        let busy = Arc::new(Busy::new(function, words, started_ms, session.has_changed()));
        session.busy = Some(Arc::clone(&busy));
        // SAFETY: the session lives in its box as long as the script does.
        unsafe { owner.state().vm.set_host(NonNull::from(&mut *session)) };
        learned.note_pause();
        call.server.scripts.begin_slices(&busy);
        if session.is_slow() {
            // Clients are told before any lock is given up, so that no command gets in between that
            // does not know of the script.
            call.server.scripts.announce(call.server, &busy, session.duration());
        }
        let mut run = Box::new(ScriptRun {
            owner,
            session,
            busy: Arc::clone(&busy),
            progress: ScriptProgress::Paused,
            unit: None,
            learned: Arc::clone(learned),
        });
        let keeps_words = run.session.may_restart();
        let words = call.args.iter().filter(|_| keeps_words);
        // The rest of a transaction may need other shards than its scripts do.
        let narrow = if call.in_transaction { None } else { run.session.narrow() };
        run.put_off(call.server, call.data, narrow);
        call.data.propagate_nothing();
        let paused = Self {
            next: RunStep::Resume(run),
            busy,
            command: call.command,
            protocol: call.client.protocol,
            reply: Vec::new(),
            in_transaction: call.in_transaction,
            words: words.map(|&word| word.into()).collect(),
        };
        call.leave_job(paused);
    }

    /// Continues the script for a slice. Returns the run once it is over.
    fn go_on(&mut self, slice: &mut Slice<'_>) -> Option<Box<ScriptRun>> {
        match std::mem::replace(&mut self.next, RunStep::Done) {
            RunStep::Resume(mut run) => {
                let has_gone = slice.client.ended || slice.client.discard;
                if has_gone && !self.in_transaction && run.session.is_slow() {
                    // Others wait for the script, and its client has gone. If the script has
                    // written something, it cannot be killed and goes on.
                    drop(self.busy.kill());
                }
                if run.step(slice.server, slice.data, slice.stats) {
                    return Some(run);
                }
                self.next = RunStep::Resume(run);
            }
            other => self.next = other,
        }
        None
    }

    /// Ends the run of a script that is over. Locks again everything that the script held.
    fn finish(&mut self, mut run: ScriptRun, slice: &mut Slice<'_>) {
        let Slice { server, data, stats, client, .. } = slice;
        run.learned.note(run.session.way().habits());
        run.take_up(data, Then::Ended);
        let start = self.reply.len();
        let vm = &mut run.owner.state().vm;
        let ended = vm.finish(&mut Reply::new(&mut self.reply, self.protocol));
        if let Ended::Failed { text, counted } = ended {
            self.reply.truncate(start);
            Reply::new(&mut self.reply, self.protocol).error(&text);
            count_failure(server, stats, self.command, &text, counted);
        }
        if run.session.way() != KeyAccess::Blocked {
            run.session.count_run(&client.info, stats, self.command);
        }
        run.owner.give_back(server, data);
        server.scripts.end_slices(&server.switches, &run.busy);
    }

    /// Begins a script that has changed nothing anew, with everything held. Returns whether it is
    /// over.
    fn begin_anew(&mut self, slice: &mut Slice<'_>) -> bool {
        let words: Vec<&[u8]> = self.words.iter().map(|word| &**word).collect();
        self.reply.clear();
        let reply = Reply::new(&mut self.reply, self.protocol);
        let mut call = slice.call(self.command, &words, reply);
        // The old wish stays until this attempt has ended.
        let wish = call.client.gate_wish.take();
        let outcome = (self.command.handler)(&mut call);
        drop(wish);
        call.client.postpone(false);
        match outcome {
            Ok(()) => {}
            // Another script keeps a shard reserved.
            Err(Failure::Postponed) => return false,
            Err(failure) => {
                call.client.attempts = ScriptAttempts::default();
                let text = failure.text().as_bytes();
                call.reply.error(text);
                counting::failed(call.server, call.stats, call.client, self.command, text);
            }
        }
        let paused: Option<Box<dyn Any>> =
            call.client.long_command.take().map(|long| long.job as _);
        if let Some(Ok(paused)) = paused.map(|job| job.downcast::<Self>()) {
            *self = *paused;
            return false;
        }
        slice.data.end_unit(slice.server, None);
        slice.data.release();
        true
    }
}

impl Job for PausedScript {
    fn step(&mut self, slice: &mut Slice<'_>) -> bool {
        let Some(mut run) = self.go_on(slice) else {
            return matches!(self.next, RunStep::Again) && self.begin_anew(slice);
        };
        let is_blocked = run.session.way() == KeyAccess::Blocked;
        if is_blocked {
            slice.client.attempts = run.owner.state().client.attempts.anew();
        }
        self.finish(*run, slice);
        if self.in_transaction {
            return true;
        }
        // The unit ends: others see the effects, and waiting clients are served. Even a run that
        // begins anew may have deleted expired keys, which is a unit.
        slice.data.end_resumed(slice.server);
        slice.server.scripts.serve_waiters(slice.server);
        if is_blocked {
            self.next = RunStep::Again;
        }
        !is_blocked
    }

    fn changes_later(&self) -> bool {
        true
    }

    fn reply(&mut self, reply: &mut Reply<'_>) {
        reply.append(&self.reply, &[]);
    }

    fn goes_on_while_busy(&self) -> bool {
        true
    }

    fn keeps_unit(&self) -> bool {
        true
    }

    fn is_parked(&self) -> bool {
        match &self.next {
            RunStep::Resume(run) => run.session.waits(),
            RunStep::Again => true,
            RunStep::Done => false,
        }
    }

    fn outlives_client(&mut self) -> bool {
        // No client waits for the script, so it is killed. If it has written something, it cannot
        // be killed and goes on.
        drop(self.busy.kill());
        true
    }
}
