//! EXEC at work: one queued command after the other, under the locks of all.
//!
//! Like a script, a transaction pauses: it becomes a job of its client, which goes on in slices,
//! and between them its worker serves all other clients. Its shards are reserved meanwhile. It
//! pauses after half a millisecond in the midst of a command that works in slices by itself, and
//! after ten between two commands: some thousand short ones are done sooner, and to have others
//! refused until then costs more than that. One that holds the gate pauses only in the midst of
//! commands: some of them may need the gate for more than keys.

use bobbin_resp::{Protocol, Reply};
use bobbin_store::Hash;

use super::{WINDOW, leave};
use crate::base::clock::ticks;
use crate::engine::buffers::output::Arena;
use crate::engine::command::data::{OfferedValues, Suspended, Then};
use crate::engine::command::job::{Account, Job, SLICE_US, STAY_US, Slice};
use crate::engine::command::transaction::{Queued, Transaction};
use crate::engine::command::{Call, Data, Flags, KeyShape, Registered, observe};
use crate::engine::execution::{monitor, rights, run};
use crate::engine::lazyfree;
use crate::engine::server::Switch;
use crate::engine::telemetry::slowlog::Measured;

/// A transaction that EXEC runs.
pub struct RunningTransaction {
    transaction: Box<Transaction>,
    /// Of the keys, by argument; see `Call::hashes`.
    hashes: Vec<Hash>,
    /// Its large words, while it pauses: they become values without a copy.
    offered: OfferedValues,
    /// The number of the command that comes next.
    next: usize,
    /// Bytes that the commands have replied with.
    reply_bytes: usize,
    /// EXEC.
    command: &'static Registered,
}

/// When it pauses, in ticks.
#[derive(Clone, Copy)]
struct TimeLimits {
    /// In the midst of a command.
    within_at: u64,
    /// Between two commands.
    between_at: u64,
}

/// How far a transaction has come.
enum Progress {
    Done,
    /// It goes on with this command, or with the next one.
    Paused(Option<LongCommand>),
}

/// A queued command in its midst.
struct LongCommand {
    job: Box<dyn Job>,
    account: Account,
    command: &'static Registered,
    /// It is a script, which keeps what the transaction holds and has done while it pauses.
    is_script: bool,
}

/// A transaction that pauses, as a job of its client.
struct PausedTransaction {
    running: RunningTransaction,
    long: Option<LongCommand>,
    /// What is held and was done; `None`: a script has that.
    unit: Option<Suspended>,
    /// It holds everything.
    has_gate: bool,
    /// Of the transaction: keys live or die by it.
    now_ms: i64,
    /// Whether its client sees what is dead.
    sees_dead: bool,
    /// Whether what is dead may be taken out.
    may_expire: bool,
    /// The reply so far: these, ...
    pieces: Vec<Vec<u8>>,
    /// ... and then this.
    rest: Arena,
}

/// Runs a transaction, all of whose shards are held, or leaves the rest of it as its client's job.
pub(super) fn begin(call: &mut Call<'_>, transaction: Box<Transaction>, hashes: Vec<Hash>) {
    let start = call.reply.output().len();
    call.reply.array(transaction.queue.len());
    let offered = OfferedValues::new(transaction.words.large());
    let (next, reply_bytes, command) = (0, 0, call.command);
    let mut running =
        RunningTransaction { transaction, hashes, offered, next, reply_bytes, command };
    // A log is replayed as fast as it can be. A wish for the gate waits for all that pause.
    let stays = call.data.turn.loading || call.server.scripts.is_gate_wished();
    let now = ticks();
    let after = |us| if stays { u64::MAX } else { now + call.server.clock.ticks(us) };
    let limits = TimeLimits { within_at: after(STAY_US), between_at: after(QUEUE_STAY_US) };
    // What pauses, a script or this, gives the gate up until it goes on.
    let has_gate = call.data.has_gate();
    let Progress::Paused(long) = running.go_on(call, start, limits) else {
        running.end(call);
        return;
    };
    let (bytes, parts) = call.reply.take_since(start);
    let mut paused = PausedTransaction {
        running,
        long,
        unit: None,
        has_gate,
        now_ms: call.data.turn.now_ms,
        sees_dead: call.data.turn.sees_dead,
        may_expire: call.data.turn.may_expire,
        pieces: Vec::new(),
        rest: Arena { bytes, parts },
    };
    paused.suspend(call.data);
    call.client.job = Some(Box::new(paused));
}

/// Ends a transaction that is not carried out.
pub(super) fn skip(call: &mut Call<'_>, hashes: Vec<Hash>) {
    call.data.release();
    call.data.shard_set.give_back(hashes);
    leave(call.client);
    call.client.note_command(call.command);
}

impl RunningTransaction {
    /// Runs what is left, until it has to pause. The replies lie behind the output's first
    /// `start` bytes. Once they are more than the client may have there is none: the client will be
    /// closed, and what it ordered is carried out all the same.
    fn go_on(&mut self, call: &mut Call<'_>, start: usize, limits: TimeLimits) -> Progress {
        call.data.unit.enter_midst();
        call.data.swap_offered(&mut self.offered);
        // The limit may have gone since EXEC first came.
        call.data.turn.is_oom = self.transaction.is_oom && call.server.minds_maxmemory();
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
                    if self.reply_bytes >= call.client.reply_bytes_max {
                        call.client.set_overflowed(true);
                    }
                    if call.client.is_unread() {
                        call.reply.truncate(start);
                    }
                    if ran.left.is_some() {
                        break 'queue Progress::Paused(ran.left);
                    }
                    let is_late = ran.ended >= limits.between_at && !call.data.holds_all();
                    if is_late && self.next < self.transaction.queue.len() {
                        break 'queue Progress::Paused(None);
                    }
                }
            }
            Progress::Done
        };
        call.data.swap_offered(&mut self.offered);
        call.data.turn.is_oom = false;
        progress
    }

    /// All is done: others see it.
    fn end(&mut self, call: &mut Call<'_>) {
        call.end_unit();
        call.data.release();
        call.data.shard_set.give_back(std::mem::take(&mut self.hashes));
        leave(call.client);
        // CLIENT LIST shows EXEC as the last command, not what it ran.
        call.client.note_command(self.command);
    }
}

/// What became of a queued command.
struct Ran {
    reply_bytes: usize,
    /// In ticks.
    ended: u64,
    /// What is left of it.
    left: Option<LongCommand>,
}

/// Runs one queued command, under the locks of all.
fn run(
    call: &mut Call<'_>,
    queued: &Queued,
    args: &[&[u8]],
    hashes: &[Hash],
    pause_at: u64,
) -> Ran {
    if call.client.is_unread() && queued.command.has(Flags::READONLY) {
        // No client will see what it would answer.
        return Ran { reply_bytes: 0, ended: 0, left: None };
    }
    // A HELLO before it in the queue counts.
    call.reply.set_protocol(call.client.protocol);
    let start = call.reply.output().len();
    if !call.client.rights.is_open(&call.server.acl)
        && let Err(failure) = rights::admit_queued(call, queued.command, args)
    {
        call.stats.commands[queued.command.id].rejected.add(1);
        call.stats.totals.error_replies.add(1);
        call.server.errors.count(failure.text().as_bytes());
        call.reply.error(failure.text().as_bytes());
        return Ran { reply_bytes: call.reply.len_since(start), ended: 0, left: None };
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
    run::run(&mut inner);
    let ended = ticks();
    let measured = Measured {
        ticks: ended - started,
        request_bytes: args.iter().map(|arg| arg.len()).sum(),
        reply_bytes: inner.reply.len_since(start),
    };
    let script = inner.data.paused.take();
    let is_script = script.is_some();
    let job = script.or_else(|| inner.client.job.take());
    if let Some(job) = job {
        let account = Account::new(queued.command, args, measured);
        let long = LongCommand { job, account, command: queued.command, is_script };
        return try_to_end(call, long, pause_at);
    }
    let track = call.server.config.latency_tracking();
    call.stats.commands[queued.command.id].executed(measured.ticks, track);
    call.stats.totals.commands.add(1);
    call.client.info.commands.add(1);
    if call.server.services.command_log.limits().exceeded_by(&measured) {
        observe::note(call.server, call.client, queued.command, args, &measured);
    }
    Ran { reply_bytes: measured.reply_bytes, ended, left: None }
}

/// Goes on with a command until `pause_at`: it may be that not much is left of it. A script has
/// paused already.
#[cold]
fn try_to_end(call: &mut Call<'_>, mut long: LongCommand, pause_at: u64) -> Ran {
    let mut slice = Slice {
        server: call.server,
        data: call.data,
        stats: call.stats,
        client: call.client,
        more: &mut || ticks() < pause_at,
    };
    if long.is_script || !long.step(&mut slice) {
        return Ran { reply_bytes: 0, ended: 0, left: Some(long) };
    }
    let start = call.reply.output().len();
    let (pieces, rest) = long.end(&slice);
    pieces.iter().for_each(|piece| call.reply.raw(piece));
    call.reply.append(&rest.bytes, &rest.parts);
    Ran { reply_bytes: call.reply.len_since(start), ended: ticks(), left: None }
}

impl LongCommand {
    /// Goes on for a slice; whether it is done.
    fn step(&mut self, slice: &mut Slice<'_>) -> bool {
        let started = ticks();
        let is_done = self.job.step(slice);
        self.account.add(ticks() - started);
        is_done
    }

    /// Counts a command that is done, and takes its reply: pieces, and what comes behind them.
    fn end(mut self, slice: &Slice<'_>) -> (Vec<Vec<u8>>, Arena) {
        let (server, stats, client) = (slice.server, slice.stats, &*slice.client);
        stats.totals.commands.add(1);
        client.info.commands.add(1);
        let mut rest = Arena::default();
        let pieces = self.account.close(&mut *self.job, server, stats, client, &mut rest);
        lazyfree::free_pins(self.job);
        (pieces, rest)
    }
}

impl PausedTransaction {
    /// Keeps to itself what was done so far, and lets others in. A script has done so.
    fn suspend(&mut self, data: &mut Data) {
        if !self.long.as_ref().is_some_and(|long| long.is_script) {
            self.unit = Some(data.suspend_unit());
        }
    }

    /// Goes on for a slice; whether all is done. The unit is this one.
    fn go_on(&mut self, slice: &mut Slice<'_>) -> bool {
        if let Some(long) = self.long.take()
            && let Some(left) = self.go_on_with(long, slice)
        {
            self.long = Some(left);
            return false;
        }
        if self.has_gate {
            // What comes next may need the gate itself.
            slice.data.end_aside();
        }
        let end = ticks() + slice.server.clock.ticks(SLICE_US);
        let limits = TimeLimits { within_at: end, between_at: end };
        let progress = self.with_call(slice, |running, call| running.go_on(call, 0, limits));
        if self.rest.bytes.len() >= PIECE {
            self.close_piece(slice.client.protocol);
        }
        if let Progress::Paused(long) = progress {
            self.long = long;
            return false;
        }
        slice.data.end_aside();
        self.with_call(slice, |running, call| {
            running.end(call);
            if call.server.switches.load() & Switch::MONITORED != 0 {
                monitor::feed(call);
            }
        });
        true
    }

    /// Goes on with the command in whose midst it is; what is left of it.
    fn go_on_with(&mut self, mut long: LongCommand, slice: &mut Slice<'_>) -> Option<LongCommand> {
        let is_done = long.step(slice);
        let reply_bytes_max = slice.client.reply_bytes_max;
        if !is_done {
            let bytes = self.running.reply_bytes + long.job.reply_bytes();
            let is_too_long = bytes >= reply_bytes_max;
            let is_unread = is_too_long || slice.client.is_unread();
            if long.is_script || !is_unread || !long.command.has(Flags::READONLY) {
                return Some(long);
            }
            // It makes a reply that no client will see, and does nothing else.
            if is_too_long {
                slice.client.set_overflowed(true);
            }
            long.job.abandon(slice.server, slice.data);
            lazyfree::free_pins(long.job);
        } else {
            let (pieces, rest) = long.end(slice);
            let bytes = pieces.iter().map(Vec::len).sum::<usize>() + rest.len_since(0);
            self.running.reply_bytes += bytes;
            if !pieces.is_empty() {
                self.close_piece(slice.client.protocol);
                self.pieces.extend(pieces);
            }
            let Arena { bytes, parts } = &mut self.rest;
            Reply::with_parts(bytes, parts, slice.client.protocol).append(&rest.bytes, &rest.parts);
        }
        if self.running.reply_bytes >= reply_bytes_max {
            slice.client.set_overflowed(true);
        }
        if slice.client.is_unread() {
            (self.pieces, self.rest) = (Vec::new(), Arena::default());
        }
        None
    }

    /// What follows in the reply is another piece. Values that were to be sent from where they lie
    /// are copied.
    fn close_piece(&mut self, protocol: Protocol) {
        let Arena { bytes, parts } = std::mem::take(&mut self.rest);
        let mut piece = Vec::new();
        match parts.is_empty() {
            true => piece = bytes,
            false => Reply::new(&mut piece, protocol).append(&bytes, &parts),
        }
        self.pieces.push(piece);
    }

    fn with_call<R>(
        &mut self,
        slice: &mut Slice<'_>,
        f: impl FnOnce(&mut RunningTransaction, &mut Call<'_>) -> R,
    ) -> R {
        let Arena { bytes, parts } = &mut self.rest;
        let mut call = Call {
            server: slice.server,
            command: self.running.command,
            args: &[b"EXEC"],
            wire: &[],
            reply: Reply::with_parts(bytes, parts, slice.client.protocol),
            client: slice.client,
            data: slice.data,
            stats: slice.stats,
            hashes: &[],
            in_transaction: false,
            may_leave_job: true,
        };
        f(&mut self.running, &mut call)
    }
}

impl Job for PausedTransaction {
    fn step(&mut self, slice: &mut Slice<'_>) -> bool {
        let (now_ms, sees_dead) = (slice.data.turn.now_ms, slice.data.turn.sees_dead);
        if let Some(unit) = self.unit.take() {
            slice.data.resume_unit(unit, Then::Suspended);
        }
        let turn = &mut slice.data.turn;
        (turn.now_ms, turn.sees_dead, turn.may_expire) =
            (self.now_ms, self.sees_dead, self.may_expire);
        let is_done = self.go_on(slice);
        if !is_done {
            self.suspend(slice.data);
        }
        let turn = &mut slice.data.turn;
        (turn.now_ms, turn.sees_dead) = (now_ms, sees_dead);
        turn.may_expire = slice.server.may_expire(now_ms);
        if is_done {
            slice.server.scripts.serve_waiters(slice.server);
        }
        is_done
    }

    fn reply_bytes(&self) -> usize {
        self.running.reply_bytes + self.long.as_ref().map_or(0, |long| long.job.reply_bytes())
    }

    fn pieces(&mut self) -> Vec<Vec<u8>> {
        std::mem::take(&mut self.pieces)
    }

    fn reply(&mut self, reply: &mut Reply<'_>) {
        reply.append(&self.rest.bytes, &self.rest.parts);
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

/// How long a transaction runs until it pauses between two commands, in microseconds.
const QUEUE_STAY_US: u64 = 10_000;
/// A piece of the reply is this long at least, in bytes.
const PIECE: usize = 64 * 1024;
