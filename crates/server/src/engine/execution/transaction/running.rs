//! EXEC at work: it runs the queued commands one after the other, with all their shards held.
//!
//! Like a script, a transaction may pause: it becomes a job of its client and goes on in slices.
//! Between the slices its worker serves other clients, while the transaction's shards stay
//! reserved. It pauses half a millisecond after its start if it is within a command that works in
//! slices, and ten milliseconds after its start if it is between two commands. The second limit is
//! longer because some thousand short commands are done sooner, and to refuse other clients
//! meanwhile costs more than that. A transaction that holds the gate pauses only within commands:
//! its other commands may need the gate for more than keys.

use bobbin_resp::Reply;
use bobbin_store::KeyHash;

use super::{WINDOW, leave};
use crate::base::clock::ticks;
use crate::engine::buffers::output::Arena;
use crate::engine::buffers::pieces::Pieces;
use crate::engine::command::data::{OfferedValues, Suspended, Then};
use crate::engine::command::job::{Job, LongCommand, SLICE_US, STAY_US, Slice};
use crate::engine::command::transaction::{Queued, Transaction};
use crate::engine::command::{Call, Data, Flags, KeyShape, Outcome, Registered, counting};
use crate::engine::execution::monitor;
use crate::engine::execution::rights::{self, Caller};
use crate::engine::execution::run::run_in_midst;
use crate::engine::row::WRITERS;
use crate::engine::server::{Server, Switch};
use crate::engine::telemetry::slowlog::Measured;

/// A transaction that EXEC runs.
pub struct RunningTransaction {
    transaction: Box<Transaction>,
    /// The hashes of the keys, by argument; see `Call::hashes`.
    hashes: Vec<KeyHash>,
    /// The large words of the transaction, while it pauses. They become values without a copy.
    offered: OfferedValues,
    /// The index of the next command in the queue.
    next: usize,
    /// Bytes of the commands' replies so far.
    reply_bytes: usize,
    /// Whether the user may no longer run the last command of those that had their turn.
    is_refused: bool,
    /// EXEC itself.
    command: &'static Registered,
}

/// The times at which a transaction pauses, in ticks.
#[derive(Clone, Copy)]
struct TimeLimits {
    /// The limit within a command.
    within_at: u64,
    /// The limit between two commands.
    between_at: u64,
}

/// How far a transaction has come.
enum TransactionProgress {
    Done,
    /// The transaction paused within this command, or (`None`) between two commands.
    Paused(Option<Box<LongCommand>>),
}

/// A paused transaction, as a job of its client.
struct PausedTransaction {
    running: RunningTransaction,
    /// The queued command that is half done.
    long: Option<Box<LongCommand>>,
    /// The locks, the effects and the time of the transaction; `None` while a script keeps them.
    unit: Option<Suspended>,
    /// Whether the transaction holds the gate.
    has_gate: bool,
    /// The reply so far.
    reply: Pieces,
}

/// Runs a transaction whose shards are all held. If it takes long, the rest becomes a job of the
/// client.
pub(super) fn begin(call: &mut Call<'_>, transaction: Box<Transaction>, hashes: Vec<KeyHash>) {
    let start = call.reply.output().len();
    call.reply.array(transaction.queue.len());
    let offered = OfferedValues::new(transaction.words.large());
    let (next, reply_bytes, command) = (0, 0, call.command);
    let is_refused = false;
    let mut running =
        RunningTransaction { transaction, hashes, offered, next, reply_bytes, is_refused, command };
    // The transaction does not pause while a log is replayed, which should be fast, or while
    // anybody wishes for the gate, as a wish waits for all paused units.
    let stays = call.data.conditions.loading || call.server.scripts.is_gate_wished();
    let now = ticks();
    let after = |us| if stays { u64::MAX } else { now + call.server.clock.ticks(us) };
    let limits = TimeLimits { within_at: after(STAY_US), between_at: after(QUEUE_STAY_US) };
    // A script or transaction that pauses gives up the gate until it goes on, so this is read
    // before.
    let has_gate = call.data.has_gate();
    let TransactionProgress::Paused(long) = running.go_on(call, start, limits) else {
        running.end(call);
        return;
    };
    let (bytes, parts) = call.reply.take_since(start);
    let mut paused = PausedTransaction {
        running,
        long,
        unit: None,
        has_gate,
        reply: Pieces::new(Vec::new(), Arena { bytes, parts }),
    };
    paused.suspend(call.server, call.data);
    call.leave_job(paused);
}

/// Ends a transaction that does not run because a watched key has changed.
pub(super) fn skip(call: &mut Call<'_>, hashes: Vec<KeyHash>) {
    call.data.release();
    call.data.shard_set.give_back(hashes);
    leave(call.client);
    call.client.note_command(call.command);
}

impl RunningTransaction {
    /// Runs the rest of the queue until the transaction has to pause. The replies lie behind the
    /// first `start` bytes of the output. If they become longer than the client may have, they are
    /// dropped and the client will be closed, but the remaining commands still run.
    fn go_on(
        &mut self,
        call: &mut Call<'_>,
        start: usize,
        limits: TimeLimits,
    ) -> TransactionProgress {
        call.data.unit.enter_midst();
        call.data.swap_offered(&mut self.offered);
        // The memory limit may have been removed since EXEC checked it.
        call.data.conditions.is_oom = self.transaction.is_oom && call.server.minds_maxmemory();
        call.data.conditions.transaction_writes =
            self.transaction.has(WRITERS.with(Flags::RUNS_SCRIPT));
        let progress = 'queue: {
            while let rest @ [_, ..] = &self.transaction.queue[self.next..] {
                let window = &rest[..rest.len().min(WINDOW)];
                let first_arg = window[0].args.start;
                let args =
                    self.transaction.words.some(first_arg..window[window.len() - 1].args.end);
                let database = call.client.database;
                let keyed = window.iter().filter(|queued| queued.command.shape == KeyShape::First);
                for queued in keyed {
                    let (hash, writes) = (queued.first_hash, queued.command.has(Flags::WRITE));
                    call.data.find_next(hash.shard());
                    call.data.prefetch(database, hash, writes);
                }
                for queued in window {
                    self.next += 1;
                    let at = queued.args.clone();
                    let hashes = self.hashes.get(at.clone()).unwrap_or_default();
                    if queued.command.shape == KeyShape::First {
                        call.data.find_next(queued.first_hash.shard());
                    }
                    let at = at.start - first_arg..at.end - first_arg;
                    let ran = run(call, queued, &args[at], hashes, limits.within_at);
                    self.reply_bytes += ran.reply_bytes;
                    self.is_refused = ran.is_refused;
                    if self.reply_bytes >= call.client.reply_bytes_max {
                        call.client.set_overflowed(true);
                    }
                    if call.client.is_unread() {
                        call.reply.truncate(start);
                    }
                    if ran.left.is_some() {
                        break 'queue TransactionProgress::Paused(ran.left);
                    }
                    let is_late = ran.ended >= limits.between_at && !call.data.holds_all();
                    if is_late && self.next < self.transaction.queue.len() {
                        break 'queue TransactionProgress::Paused(None);
                    }
                }
            }
            TransactionProgress::Done
        };
        call.data.swap_offered(&mut self.offered);
        call.data.conditions.is_oom = false;
        call.data.conditions.transaction_writes = false;
        progress
    }

    /// Ends the unit and the transaction, so that others see the changes.
    fn end(&mut self, call: &mut Call<'_>) {
        call.end_unit();
        call.data.release();
        if self.is_refused {
            // As in Valkey, where an error counts for the call that ends next.
            call.stats.commands[self.command.id].failed.add(1);
        }
        call.data.shard_set.give_back(std::mem::take(&mut self.hashes));
        leave(call.client);
        // CLIENT LIST shows EXEC as the last command, not the last queued command.
        call.client.note_command(self.command);
    }
}

/// The result of a queued command's run.
struct Ran {
    reply_bytes: usize,
    /// When the run ended, in ticks.
    ended: u64,
    /// The rest of a command that is not done.
    left: Option<Box<LongCommand>>,
    /// Whether the user may not run the command any more.
    is_refused: bool,
}

impl Ran {
    /// A command that is over without having paused.
    const fn over(reply_bytes: usize, ended: u64) -> Self {
        Self { reply_bytes, ended, left: None, is_refused: false }
    }
}

/// Runs one queued command, with the shards of the whole transaction held.
fn run(
    call: &mut Call<'_>,
    queued: &Queued,
    args: &[&[u8]],
    hashes: &[KeyHash],
    pause_at: u64,
) -> Ran {
    if call.client.is_unread() && queued.command.has(Flags::READONLY) {
        // The client will not read the reply, and a read has no other effect.
        return Ran::over(0, 0);
    }
    // An earlier HELLO in the queue may have changed the protocol.
    call.reply.set_protocol(call.client.protocol);
    let start = call.reply.output().len();
    if !call.client.rights.is_open(&call.server.acl)
        && let Err(failure) = check_rights(call, queued.command, args)
    {
        let text = failure.text().as_bytes();
        counting::error(call.server, call.stats, text);
        call.reply.error(text);
        return Ran { is_refused: true, ..Ran::over(call.reply.len_since(start), 0) };
    }
    let mut inner = Call {
        server: call.server,
        command: queued.command,
        args,
        wire: &[],
        client: call.client,
        data: call.data,
        stats: call.stats,
        reply: call.reply.reborrow(),
        hashes,
        in_transaction: true,
        may_leave_job: pause_at != u64::MAX,
    };
    debug_assert!(!queued.command.has(Flags::GATE) || inner.data.has_gate());
    let started = ticks();
    run_in_midst(&mut inner);
    let ended = ticks();
    let mut measured = Measured {
        ticks: ended - started,
        request_bytes: args.iter().map(|arg| arg.len()).sum(),
        reply_bytes: inner.reply.len_since(start),
    };
    if inner.client.info.is_nobody() {
        measured.reply_bytes = 0;
    }
    if let Some(mut long) = inner.client.long_command.take() {
        long.begin(measured);
        return try_to_end(call, long, pause_at);
    }
    let track = call.server.config.latency_tracking();
    let (server, stats) = (call.server, call.stats);
    counting::ended(server, stats, call.client, queued.command, args, &measured, track);
    stats.totals.commands.add(1);
    call.client.info.commands.add(1);
    Ran::over(measured.reply_bytes, ended)
}

/// Checks a queued command just before it runs. The user's rules or the selected database may have
/// changed since the command was queued.
#[cold]
fn check_rights(call: &mut Call<'_>, command: &Registered, args: &[&[u8]]) -> Outcome {
    let now_ms = call.data.conditions.now_ms;
    rights::check(call.server, call.client, command, args, Caller::Exec, now_ms)
}

/// Continues a long command until `pause_at`, as little may be left of it. A paused script is not
/// continued.
#[cold]
fn try_to_end(call: &mut Call<'_>, mut long: Box<LongCommand>, pause_at: u64) -> Ran {
    let mut slice = Slice {
        server: call.server,
        data: call.data,
        stats: call.stats,
        client: call.client,
        more: &mut || ticks() < pause_at,
    };
    if long.job.keeps_unit() || !long.step(&mut slice) {
        return Ran { left: Some(long), ..Ran::over(0, 0) };
    }
    let start = call.reply.output().len();
    let mut reply = end(*long, &slice);
    reply.take(Vec::new()).iter().for_each(|piece| call.reply.raw(piece));
    reply.append_rest(&mut call.reply);
    Ran::over(call.reply.len_since(start), ticks())
}

/// Counts a completed command and takes its reply.
fn end(long: LongCommand, slice: &Slice<'_>) -> Pieces {
    slice.stats.totals.commands.add(1);
    slice.client.info.commands.add(1);
    let mut rest = Arena::default();
    let pieces = long.close(slice.server, slice.stats, slice.client, &mut rest);
    Pieces::new(pieces, rest)
}

impl PausedTransaction {
    /// Sets the transaction's locks and effects aside, so that others are served. If a script has
    /// paused, it has done that.
    fn suspend(&mut self, server: &Server, data: &mut Data) {
        if !self.long.as_ref().is_some_and(|long| long.job.keeps_unit()) {
            self.unit = Some(data.suspend_unit(server));
        }
    }

    /// Works on for a slice; returns whether the transaction is done. The current unit is the
    /// transaction's.
    fn go_on(&mut self, slice: &mut Slice<'_>) -> bool {
        if let Some(long) = self.long.take()
            && let Some(left) = self.go_on_with(long, slice)
        {
            self.long = Some(left);
            return false;
        }
        if self.has_gate {
            // The next commands may need the gate itself.
            slice.data.end_aside(slice.server);
        }
        let end = ticks() + slice.server.clock.ticks(SLICE_US);
        let limits = TimeLimits { within_at: end, between_at: end };
        let progress = self.with_call(slice, |running, call| running.go_on(call, 0, limits));
        // If the last piece is full, another one begins.
        self.reply.open();
        if let TransactionProgress::Paused(long) = progress {
            self.long = long;
            return false;
        }
        slice.data.end_aside(slice.server);
        self.with_call(slice, |running, call| {
            running.end(call);
            if call.server.switches.has(Switch::MONITORED) {
                monitor::feed(call);
            }
        });
        true
    }

    /// Works on the command that is half done; returns the rest of it, if it is not done.
    fn go_on_with(
        &mut self,
        mut long: Box<LongCommand>,
        slice: &mut Slice<'_>,
    ) -> Option<Box<LongCommand>> {
        let is_done = long.step(slice);
        let reply_bytes_max = slice.client.reply_bytes_max;
        if !is_done {
            let bytes = self.running.reply_bytes + long.job.reply_bytes();
            let is_too_long = bytes >= reply_bytes_max;
            let is_unread = is_too_long || slice.client.is_unread();
            if long.job.keeps_unit() || !is_unread || !long.command.has(Flags::READONLY) {
                return Some(long);
            }
            // A read only makes a reply, which the client will not get, so it is dropped.
            if is_too_long {
                slice.client.set_overflowed(true);
            }
            long.abandon(slice.server, slice.data);
        } else {
            let reply = end(*long, slice);
            self.running.reply_bytes += reply.byte_len();
            self.reply.append(reply);
        }
        if self.running.reply_bytes >= reply_bytes_max {
            slice.client.set_overflowed(true);
        }
        if slice.client.is_unread() {
            self.reply = Pieces::default();
        }
        None
    }

    fn with_call<R>(
        &mut self,
        slice: &mut Slice<'_>,
        f: impl FnOnce(&mut RunningTransaction, &mut Call<'_>) -> R,
    ) -> R {
        let reply = self.reply.reply(slice.client.protocol);
        let mut call = slice.call(self.running.command, &[b"EXEC"], reply);
        f(&mut self.running, &mut call)
    }
}

impl Job for PausedTransaction {
    fn step(&mut self, slice: &mut Slice<'_>) -> bool {
        if let Some(unit) = self.unit.take() {
            slice.data.resume_unit(unit, Then::Suspended);
        }
        if !self.go_on(slice) {
            self.suspend(slice.server, slice.data);
            return false;
        }
        slice.data.end_resumed(slice.server);
        slice.server.scripts.serve_waiters(slice.server);
        true
    }

    fn changes_later(&self) -> bool {
        true
    }

    fn reply_bytes(&self) -> usize {
        self.running.reply_bytes + self.long.as_ref().map_or(0, |long| long.job.reply_bytes())
    }

    fn pieces(&mut self) -> Vec<Vec<u8>> {
        self.reply.take(Vec::new())
    }

    fn reply(&mut self, reply: &mut Reply<'_>) {
        self.reply.append_rest(reply);
    }

    fn is_parked(&self) -> bool {
        self.long.as_ref().is_some_and(|long| long.job.is_parked())
    }

    fn goes_on_while_busy(&self) -> bool {
        true
    }

    fn outlives_client(&mut self) -> bool {
        true
    }
}

/// How long a transaction may run before it pauses between two commands, in microseconds.
const QUEUE_STAY_US: u64 = 10_000;
