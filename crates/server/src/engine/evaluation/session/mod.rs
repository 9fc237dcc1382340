//! One run of a script: it executes the script's commands with the locks that the run holds.

mod pace;
mod reach;
mod refusal;

use std::ptr::NonNull;
use std::sync::Arc;

use bobbin_resp::{Protocol, Reply};
use bobbin_script::{Called, Host, Level, Verdict};
use bobbin_store::KeyHash;

use self::refusal::RefusedCall;
use super::sliced_call::SlicedCall;
use crate::base::clock::ticks;
use crate::engine::client::Client;
use crate::engine::clients::ClientInfo;
use crate::engine::command::job::{STAY_US, Slice};
use crate::engine::command::{Call, Data, Failure, Flags, Registered, counting};
use crate::engine::execution::rights::{self, Caller};
use crate::engine::execution::run::run_in_midst;
use crate::engine::row::KeyShape;
use crate::engine::script::{Busy, GateWish, Habits, WaitRight, is_logged, log_message};
use crate::engine::server::{Server, Switch};
use crate::engine::telemetry::slowlog::Measured;
use crate::engine::telemetry::stats::WorkerStats;

/// One run of a script. A script that pauses outlives the turn that it began in, so the session
/// keeps pointers to the worker's data. The job that resumes the script sets the pointers first.
///
/// The session has many fields because each command of the script asks for each of them.
pub(super) struct ScriptSession {
    server: &'static Server,
    data: NonNull<Data>,
    stats: NonNull<WorkerStats>,
    client: NonNull<Client>,
    /// Whether commands that write are refused.
    pub read_only: bool,
    /// Whether commands that need more memory are refused. It no longer applies after the script
    /// has written.
    pub is_oom: bool,
    /// The shards of the declared keys. `None` if nobody needs to know whether the script strays.
    declared: Option<Vec<usize>>,
    /// Whether the run can begin anew with everything held: it holds only some shards now.
    can_restart: bool,
    /// Whether the script began with everything held and then kept only its declared shards. It
    /// gets everything again if it strays.
    is_narrow: bool,
    /// The wish for the gate of a script that waits for everything.
    gate_wish: Option<GateWish>,
    /// The right to wait for shards that others keep while this script keeps some.
    wait_right: Option<WaitRight>,
    /// Until when the script waits without that right, in ticks.
    patience_until: Option<u64>,
    /// Since when the script has waited for shards that others keep, in ticks.
    waits_since: Option<u64>,
    /// The tick at which the script was set aside, while it is.
    aside_since: Option<u64>,
    /// Whether the script does not pause before it is slow.
    stays: bool,
    way: KeyAccess,
    /// Whether a command ran that cannot be undone.
    changed: bool,
    /// Whether a command ran that writes. Further writes are then no longer refused, as a script
    /// that is carried out by half is worse.
    has_written: bool,
    /// The `REPL_*` bits that the script has set.
    replication: u8,
    /// When the run began, in ticks, moved on by the time that it waited for others.
    started: u64,
    /// When the script pauses, in ticks.
    pause_at: u64,
    /// From when on clients are told that the server is busy, in ticks.
    slow_at: u64,
    /// The number of commands that the script has called.
    commands: u64,
    /// The errors in the script's reply.
    nested_errors: NestedErrors,
    /// What other threads know of the script, once it has paused.
    pub busy: Option<Arc<Busy>>,
    /// The script's command that goes on in slices.
    long: Option<SlicedCall>,
}

/// Which keys the run has used.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum KeyAccess {
    Declared,
    /// The script used other keys too, and held or got their shards.
    Strayed,
    /// The script needs a shard that it could only get by waiting against the lock order. It has
    /// changed nothing, and ends to begin anew.
    Blocked,
}

impl KeyAccess {
    /// What this run tells about the next one.
    pub fn habits(self) -> Habits {
        if self == Self::Declared { Habits::Declared } else { Habits::Stray }
    }
}

impl ScriptSession {
    pub fn new(
        server: &'static Server,
        data: &mut Data,
        stats: &WorkerStats,
        client: &mut Client,
        can_restart: bool,
    ) -> Self {
        let started = ticks();
        let threshold_ms = server.config.busy_reply_threshold() as u64;
        let threshold = server.clock.ticks(threshold_ms.min(THRESHOLD_MS_MAX) * 1000);
        // Zero or a negative number means no limit.
        let slow_at = if threshold == 0 { u64::MAX } else { started + threshold };
        // A log is replayed as fast as possible, while no clients are served. And commands that
        // DEBUG allows in scripts may need the gate for more than keys.
        let stays = data.conditions.loading || server.switches.has(Switch::SCRIPTS_UNBOUND);
        let leave_at = if stays { slow_at } else { started + server.clock.ticks(STAY_US) };
        Self {
            server,
            data: NonNull::from(data),
            stats: NonNull::from(stats),
            client: NonNull::from(client),
            read_only: false,
            is_oom: false,
            declared: None,
            can_restart,
            is_narrow: false,
            gate_wish: None,
            wait_right: None,
            patience_until: None,
            waits_since: None,
            aside_since: None,
            stays,
            way: KeyAccess::Declared,
            changed: false,
            has_written: false,
            replication: REPLICATE_ALL,
            started,
            pause_at: slow_at.min(leave_at),
            slow_at,
            commands: 0,
            nested_errors: NestedErrors::default(),
            busy: None,
            long: None,
        }
    }

    /// Whether the run may still have to begin anew.
    pub const fn may_restart(&self) -> bool {
        self.can_restart && !self.changed
    }

    /// Whether the script has changed something, so that it can no longer be killed without traces.
    pub fn has_changed(&self) -> bool {
        self.changed
    }

    /// Adds what a run did to the counters of its client, and to those of the command that ran the
    /// script. As in Valkey, that command has failed once for each error of another command in its
    /// reply, and once for all errors that the script made there.
    pub fn count_run(&self, client: &ClientInfo, stats: &WorkerStats, command: &Registered) {
        client.commands.add(self.commands);
        let NestedErrors { counted, has_others } = self.nested_errors;
        if counted > 0 || has_others {
            stats.commands[command.id].failed.add(counted + u64::from(has_others));
        }
    }

    fn data(&mut self) -> &mut Data {
        // SAFETY: see `ScriptSession`; only the thread that runs the script gets here.
        unsafe { self.data.as_mut() }
    }

    fn stats(&self) -> &WorkerStats {
        // SAFETY: as for `data`.
        unsafe { self.stats.as_ref() }
    }

    /// Makes the session notice whether the script uses other keys than these, even if all shards
    /// are held.
    pub fn observe(&mut self, keys: &[&[u8]], observe: bool) {
        let data = self.data();
        let shards = keys.iter().map(|key| data.key(key).hash.shard());
        self.declared = observe.then(|| shards.collect());
    }

    pub fn way(&self) -> KeyAccess {
        self.way
    }

    /// Chooses the shards that a script keeps when it pauses in its first run: the declared ones,
    /// which are returned in ascending order. Returns `None` if the script strays, or if it is
    /// known already whether it does. No other such script can be under way, as each begins with
    /// everything held. So this script may wait for everything later.
    pub fn narrow(&mut self) -> Option<Vec<usize>> {
        if self.way == KeyAccess::Strayed || !self.data().holds_all() {
            return None;
        }
        let mut shards = self.declared.clone()?;
        shards.sort_unstable();
        shards.dedup();
        self.is_narrow = true;
        Some(shards)
    }

    /// Whether the script can do nothing until others release their shards.
    pub const fn waits(&self) -> bool {
        self.waits_since.is_some()
    }

    /// Finds the command of these words, and checks whether a script may call it.
    fn command(&mut self, args: &[&[u8]]) -> Result<&'static Registered, RefusedCall> {
        let command = self.server.registry.find(args[0]);
        let command = command.ok_or_else(|| RefusedCall::of(UNKNOWN_COMMAND))?;
        let command = command.of_words(args).ok_or_else(|| {
            let name = String::from_utf8_lossy(args[1]);
            let upper = command.row.name.to_ascii_uppercase();
            let text = format!("ERR unknown subcommand '{name}'. Try {upper} HELP.");
            RefusedCall::of(Failure::format(text))
        })?;
        let refuse = |failure| RefusedCall::by(command, failure);
        if !command.accepts(args.len()) {
            return Err(refuse(WRONG_ARITY));
        }
        if command.has(Flags::NOSCRIPT) && !self.is_unbound(command) {
            return Err(refuse(NOT_FROM_SCRIPTS));
        }
        if self.is_oom && !self.has_written && command.has(Flags::DENYOOM) {
            return Err(refuse(Failure::OUT_OF_MEMORY));
        }
        if let Err(failure) = self.check_rights(command, args) {
            return Err(RefusedCall { is_of_rights: true, ..refuse(failure) });
        }
        if command.has(WRITERS_AND_PUBLISHERS) && self.read_only {
            return Err(refuse(READ_ONLY));
        }
        Ok(command)
    }

    /// Whether DEBUG allows this command in scripts. Commands that run scripts are never allowed:
    /// there is one run at a time.
    #[cold]
    fn is_unbound(&self, command: &Registered) -> bool {
        self.server.switches.has(Switch::SCRIPTS_UNBOUND) && !command.has(Flags::RUNS_SCRIPT)
    }

    /// Whether the user of the script may run the command.
    fn check_rights(&mut self, command: &Registered, args: &[&[u8]]) -> Result<(), Failure> {
        // SAFETY: as in `data`.
        let client = unsafe { self.client.as_mut() };
        if client.rights.is_open(&self.server.acl) {
            return Ok(());
        }
        let now_ms = self.data().conditions.now_ms;
        rights::check(self.server, client, command, args, Caller::Script, now_ms)
    }

    /// Whether the state of the server (disk, replicas, role) forbids the command. Few servers need
    /// this check.
    #[cold]
    fn check_state(&mut self, command: &Registered) -> Result<(), Failure> {
        if self.server.is_too_stale() && !command.has(Flags::STALE) {
            return Err(STALE);
        }
        if self.has_written {
            return Ok(());
        }
        if !command.has(Flags::WRITE) || self.data().conditions.loading {
            return Ok(());
        }
        if self.server.is_read_only() {
            return Err(Failure::READONLY);
        }
        if self.server.switches.has(Switch::FEW_REPLICAS) {
            return Err(Failure::NOREPLICAS);
        }
        self.server.disk_failure().map_or(Ok(()), Err)
    }

    /// Runs a command. Returns when it ended, in ticks, or `None` if it goes on in slices
    /// (`self.long`).
    fn run(
        &mut self,
        command: &'static Registered,
        args: &[&[u8]],
        hashes: &[KeyHash],
        reply: Reply<'_>,
    ) -> Option<u64> {
        let started = ticks();
        // SAFETY: as in `data`. The three pointers lead to different objects, and nothing else uses
        // those meanwhile.
        let (data, stats, client) =
            unsafe { (self.data.as_mut(), self.stats.as_ref(), self.client.as_mut()) };
        let server = self.server;
        let mut call = Call {
            server,
            command,
            args,
            wire: &[],
            client,
            data,
            stats,
            reply,
            hashes,
            in_transaction: true,
            may_leave_job: true,
        };
        let is_repeating = call.client.is_repeating();
        let counted = (call.data.counters.hits, call.data.counters.misses);
        run_in_midst(&mut call);
        call.client.postpone(false);
        let ended = ticks();
        let measured = Measured {
            ticks: ended - started,
            // The words are no request. Those that were sent count for the script's own command.
            request_bytes: 0,
            reply_bytes: call.reply.len_since(0),
        };
        self.commands += 1;
        if is_repeating {
            (call.data.counters.hits, call.data.counters.misses) = counted;
        } else {
            stats.totals.commands.add(1);
        }
        if let Some(mut long) = call.client.long_command.take() {
            long.begin(measured);
            self.long = Some(SlicedCall::Working(long));
            return None;
        }
        if !is_repeating {
            let track = server.config.latency_tracking();
            counting::ended(server, stats, call.client, command, args, &measured, track);
        }
        Some(ended)
    }

    /// Works on the long command until it is time to ask `watch`. Returns `None` if there is more
    /// to do.
    fn work(&mut self, room: usize, reply: &mut Vec<u8>) -> Option<Called> {
        // SAFETY: as in `run`.
        let (data, stats, client) =
            unsafe { (self.data.as_mut(), self.stats.as_ref(), self.client.as_mut()) };
        data.follow_client(client);
        let pause_at = self.pause_at;
        let more = &mut || ticks() < pause_at;
        let mut slice = Slice { server: self.server, data, stats, client, more };
        self.long.as_mut().map_or(Some(Called::Stop), |long| long.step(&mut slice, room, reply))
    }

    /// Keeps the next effects out of the log if the script asked for that. Returns whether it did.
    fn begin_muted(&mut self) -> bool {
        let is_muted = self.replication == 0;
        if is_muted {
            self.data().recorder.mute(true);
        }
        is_muted
    }

    fn end_muted(&mut self, is_muted: bool) {
        if is_muted {
            self.data().recorder.mute(false);
        }
    }

    /// Stops the long command, if there is one.
    #[cold]
    fn abandon(&mut self) {
        if let Some(long) = self.long.take() {
            let server = self.server;
            long.abandon(server, self.data());
        }
    }
}

/// Why a command's keys are not held.
enum Unreached {
    BeginAnew,
    /// The command waits for shards.
    Postponed,
    /// The script has changed something, and others have kept the shard for too long.
    Failed,
}

/// The errors that stand within a script's reply.
#[derive(Default)]
struct NestedErrors {
    /// The number of errors that were counted when a command failed with them.
    counted: u64,
    /// Whether the script made other errors.
    has_others: bool,
}

impl ScriptSession {
    /// Calls a command that has not been called yet, or was postponed.
    fn try_to_call(
        &mut self,
        args: &[&[u8]],
        resp3: bool,
        room: usize,
        reply: &mut Vec<u8>,
    ) -> Called {
        let command = match self.command(args) {
            Ok(command) => command,
            Err(refusal) => {
                self.refuse(refusal, reply);
                return Called::Replied;
            }
        };
        if self.server.switches.load() != 0
            && let Err(failure) = self.check_state(command)
        {
            self.refuse(RefusedCall::by(command, failure), reply);
            return Called::Replied;
        }
        let (mut lone, mut hashes) = ([KeyHash::default(); 2], Vec::new());
        match self.reach(command, args, &mut lone, &mut hashes) {
            Ok(()) => {}
            Err(Unreached::BeginAnew) => return Called::Stop,
            Err(Unreached::Postponed) => {
                self.data().shard_set.give_back(hashes);
                match self.stays {
                    true => std::thread::yield_now(),
                    false => self.pause_at = 0,
                }
                return Called::Postponed;
            }
            Err(Unreached::Failed) => {
                self.refuse(RefusedCall::by(command, CONTENDED), reply);
                return Called::Replied;
            }
        }
        if command.has(WRITERS_AND_PUBLISHERS.with(Flags::ADMIN)) && !self.changed {
            if let Some(Err(failure)) = self.busy.as_ref().map(|busy| busy.begin_change()) {
                self.refuse(RefusedCall::by(command, failure), reply);
                return Called::Replied;
            }
            self.changed = true;
        }
        self.has_written |= command.has(Flags::WRITE);
        let protocol = if resp3 { Protocol::Resp3 } else { Protocol::Resp2 };
        // SAFETY: as in `data`.
        let client = unsafe { self.client.as_mut() };
        if client.protocol != protocol {
            client.set_protocol(protocol);
        }
        let is_muted = self.begin_muted();
        let plan = if command.shape == KeyShape::First { &lone[..] } else { &hashes };
        client.reply_bytes_max = room;
        let mut parts = Vec::new();
        let ended = self.run(command, args, plan, Reply::with_parts(reply, &mut parts, protocol));
        if command.shape == KeyShape::Specified {
            self.data().shard_set.give_back(hashes);
        }
        self.end_muted(is_muted);
        let Some(ended) = ended else { return Called::Unfinished };
        if !parts.is_empty() {
            // The values are copied only if there is memory for them: the reply may hold the same
            // value a thousand times.
            let bytes = Reply::with_parts(reply, &mut parts, protocol).len_since(0);
            if bytes > room {
                return Called::TooLong;
            }
            let mut joined = Vec::with_capacity(bytes);
            Reply::new(&mut joined, protocol).append(reply, &parts);
            *reply = joined;
        }
        if ended >= self.pause_at { Called::Late } else { Called::Replied }
    }

    /// Notes that a call is over, unless it goes on later or the script begins anew with it.
    fn note_call(&mut self, called: Called) {
        match called {
            Called::Stop | Called::Postponed | Called::Unfinished => {}
            Called::Replied | Called::Late | Called::TooLong => {
                // SAFETY: as in `data`.
                unsafe { self.client.as_mut() }.attempts.calls.add();
            }
        }
    }
}

impl Host for ScriptSession {
    fn call(&mut self, args: &[&[u8]], resp3: bool, room: usize, reply: &mut Vec<u8>) -> Called {
        let called = self.try_to_call(args, resp3, room, reply);
        self.note_call(called);
        called
    }

    fn go_on(&mut self, room: usize, reply: &mut Vec<u8>) -> Called {
        let is_muted = self.begin_muted();
        let called = self.work(room, reply);
        self.end_muted(is_muted);
        let called = called.unwrap_or(Called::Unfinished);
        if called != Called::Unfinished {
            self.abandon();
        }
        self.note_call(called);
        called
    }

    fn logs(&self, level: Level) -> bool {
        is_logged(level)
    }

    fn log(&mut self, level: Level, message: &[u8]) {
        log_message(level, message);
    }

    fn set_replication(&mut self, flags: u8) {
        self.replication = flags;
    }

    fn may_call(&mut self, args: &[&[u8]]) -> Option<bool> {
        let command = self.server.registry.find(args[0])?.of_words(args)?;
        // SAFETY: as in `data`.
        let client = unsafe { self.client.as_mut() };
        Some(rights::may_call(self.server, client, command, args))
    }

    fn note_error(&mut self, text: &[u8], counted: bool) {
        if counted {
            self.nested_errors.counted += 1;
            return;
        }
        self.nested_errors.has_others = true;
        counting::script_error(self.server, self.stats(), text);
    }

    fn kept_bytes(&mut self) -> usize {
        self.data().unit.work.bytes_for_others()
    }

    fn watch(&mut self) -> Verdict {
        if let Some(busy) = &self.busy
            && let Some(text) = busy.killed()
        {
            self.abandon();
            return Verdict::Stop(text);
        }
        if ticks() >= self.pause_at { Verdict::Pause } else { Verdict::GoOn }
    }
}

/// Counts that a script failed with this error. `counted` says that a command caused the error and
/// has been counted for it.
pub(super) fn count_failure(
    server: &Server,
    stats: &WorkerStats,
    command: &Registered,
    text: &[u8],
    counted: bool,
) {
    stats.commands[command.id].failed.add(1);
    if !counted {
        counting::script_error(server, stats, text);
    }
}

const REPLICATE_ALL: u8 = 3;
/// Commands that write. PUBLISH is one of them, as subscribers see it.
const WRITERS_AND_PUBLISHERS: Flags = Flags::WRITE.with(Flags::MAY_REPLICATE).with(Flags::PUBSUB);
const THRESHOLD_MS_MAX: u64 = 1 << 40;
const WRONG_ARITY: Failure = Failure::new(&"ERR Wrong number of args calling command from script");
const STALE: Failure = Failure::new(&"ERR Can not execute the command on a stale replica");
const NOT_FROM_SCRIPTS: Failure =
    Failure::new(&"ERR This Bobbin command is not allowed from script");
const UNKNOWN_COMMAND: Failure = Failure::new(&"ERR Unknown command called from script");
const READ_ONLY: Failure =
    Failure::new(&"ERR Write commands are not allowed from read-only scripts.");
const CONTENDED: Failure = Failure::new(
    &"TRYAGAIN The script needs what another one uses, which waits as well, and it cannot begin anew",
);
