//! From a parsed request to its reply: the checks in Redis's order, the plan, the handler.

use std::sync::atomic::{AtomicI64, AtomicU32, Ordering};

use bobbin_resp::{Part, Reply};
use bobbin_store::entry::INLINE_MAX;
use bobbin_store::{Hash, NewValue};

use super::registry::KeyShape;
use super::{Data, Failure, Flags, Key, Outcome, Registered, transaction};
use crate::engine::acl;
use crate::engine::client::{Client, ClientFlag, Replies};
use crate::engine::eviction::{self, Room};
use crate::engine::server::{Server, Switch};
use crate::engine::telemetry::hotkeys;
use crate::engine::telemetry::monitor;
use crate::engine::telemetry::stats::WorkerStats;
use crate::engine::tracking;

/// Faults of the program that are logged; a client may be able to repeat them.
const FAULTS_SHOWN_MAX: u32 = 100;

/// What a handler gets.
pub struct Call<'a> {
    pub server: &'static Server,
    pub command: &'static Registered,
    /// The words of the command, its name included.
    pub args: &'a [&'a [u8]],
    /// See `Request`.
    pub wire: &'a [u8],
    pub client: &'a mut Client,
    pub data: &'a mut Data,
    pub stats: &'a WorkerStats,
    pub reply: Reply<'a>,
    /// The plan: of the keys, by argument. `Hash::default`, or nothing, where there is none.
    pub hashes: &'a [Hash],
    /// Whether EXEC runs it.
    pub in_transaction: bool,
}

/// A request as the batch holds it.
#[derive(Clone, Copy)]
pub struct Request<'a> {
    /// `None`: no such command.
    pub command: Option<&'static Registered>,
    pub args: &'a [&'a [u8]],
    /// The request as an array of bulk strings, if it came as one and lies in one piece; else
    /// nothing.
    pub wire: &'a [u8],
    pub first_hash: Hash,
}

/// What a worker executes with.
pub struct Context<'a> {
    pub server: &'static Server,
    pub data: &'a mut Data,
    pub stats: &'a WorkerStats,
    /// Values that replies refer to; see `bobbin_resp::Part`.
    pub parts: &'a mut Vec<Part>,
}

impl<'a> Call<'a> {
    /// The key at this argument. Only the plan makes keys of arguments: it is what the user's
    /// rights were checked for, and what is locked. A handler that takes another argument for a key
    /// has a fault, and fails.
    #[inline(always)]
    pub fn key(&self, index: usize) -> Result<Key<'a>, Failure> {
        self.planned(index).ok_or_else(|| self.unplanned(index))
    }

    #[inline(always)]
    fn planned(&self, index: usize) -> Option<Key<'a>> {
        let hash = *self.hashes.get(index)?;
        (hash != Hash::default()).then(|| Key { bytes: self.args[index], hash })
    }

    #[cold]
    fn unplanned(&self, index: usize) -> Failure {
        static SHOWN: AtomicU32 = AtomicU32::new(0);
        if SHOWN.fetch_add(1, Ordering::Relaxed) < FAULTS_SHOWN_MAX {
            let name = &self.command.full_name;
            log::error!("BUG: '{name}' takes argument {index} for a key, and its plan does not");
        }
        Failure::UNPLANNED
    }

    /// The keys at these arguments, each with its number among them.
    pub fn keys(
        &self,
        indices: impl Iterator<Item = usize>,
    ) -> Result<Vec<(usize, Key<'a>)>, Failure> {
        indices.enumerate().map(|(number, at)| Ok((number, self.key(at)?))).collect()
    }

    /// Calls `f` with each key that the command names.
    pub fn each_key(&mut self, mut f: impl FnMut(&mut Self, Key<'a>)) {
        let (command, args) = (self.command, self.args);
        command.key_positions(args, |at| {
            // Commands that run scripts only hand their keys on, so they have no plan of their own.
            let key = self.planned(at).unwrap_or_else(|| self.data.key(args[at]));
            f(self, key);
        });
    }

    /// The argument as a value to be stored; the row says that it may be (`Command::values`).
    #[inline(always)]
    pub fn value(&mut self, index: usize) -> NewValue<'a> {
        let bytes = self.args[index];
        if bytes.len() <= INLINE_MAX {
            return NewValue::Inline(bytes);
        }
        match self.data.take_prepared(index) {
            Some(shared) => NewValue::Shared(shared),
            // EXEC's commands are not prepared, but it offers what it has.
            None => match self.data.offered(bytes) {
                Some(shared) => NewValue::Shared(shared),
                None => NewValue::string(bytes),
            },
        }
    }

    /// After publishing: puts the client off if a worker has more messages waiting than it may.
    pub fn wait_for_listeners(&mut self) {
        if self.data.subscribers.as_mut().is_some_and(|subscribers| subscribers.is_overrun()) {
            self.client.postpone(true);
        }
    }

    /// Lets go of the keys before a command that only reads is done: it has what it needs, and
    /// nobody needs to wait for it. Within a transaction, or a script, they stay held.
    pub fn end_reading(&mut self) {
        debug_assert!(!self.command.has(Flags::WRITE), "its change would have no number yet");
        if self.in_transaction || self.command.has(Flags::WRITE) {
            return;
        }
        if self.client.tracking.is_some() {
            tracking::remember_already(self);
        }
        // What it found dead went for this client.
        self.end_unit();
        self.data.release();
    }

    /// Has others see what the command did, or the transaction.
    #[cold]
    pub fn end_unit(&mut self) {
        let publishes = !self.data.unit.notices.is_empty();
        if let Some(number) = self.data.end_unit(self.server, Some(self.client)) {
            self.client.last_record = number;
        }
        if publishes {
            self.wait_for_listeners();
        }
    }

    /// An argument as an integer.
    #[inline]
    pub fn integer(&self, index: usize) -> Result<i64, Failure> {
        bobbin_resp::parse_i64(self.args[index]).ok_or(Failure::NOT_AN_INTEGER)
    }

    /// An argument as a word, for comparing: upper case.
    pub fn word_is(&self, index: usize, word: &str) -> bool {
        self.args[index].eq_ignore_ascii_case(word.as_bytes())
    }
}

/// What became of a request.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Executed {
    /// A subcommand rather than its container.
    Ran(&'static Registered),
    /// It waits for EXEC.
    Queued,
    /// It was answered with an error before it ran.
    Refused,
    /// The client has to wait, with this command as its next. Nothing was answered.
    Postponed,
}

/// Executes one request: its reply, or error, is appended to `output`.
#[inline]
pub fn execute(
    context: &mut Context<'_>,
    client: &mut Client,
    request: Request<'_>,
    output: &mut Vec<u8>,
) -> Executed {
    let start = output.len();
    let executed = match admit(context, client, &request, output) {
        Ok(executed) => executed,
        Err(failure) if failure == Failure::POSTPONED => {
            context.data.end_prepared();
            Executed::Postponed
        }
        Err(failure) => {
            refuse(context, client, &request, failure, output);
            Executed::Refused
        }
    };
    if client.replies != Replies::On && executed != Executed::Postponed {
        bobbin_resp::truncate_parts(context.parts, start);
        suppress(client, output, start);
    }
    executed
}

/// The checks, and what follows when they pass.
#[inline]
fn admit(
    context: &mut Context<'_>,
    client: &mut Client,
    request: &Request<'_>,
    output: &mut Vec<u8>,
) -> Result<Executed, Failure> {
    let args = request.args;
    let Some(command) = request.command else { return admit_unknown(context, client, request) };
    if !client.rights.is_open(context.server) {
        acl::admit(context, client, request)?;
    }
    let command = if command.subcommands.is_empty() || args.len() < 2 {
        command
    } else {
        command.subcommand(args[1]).ok_or_else(|| unknown_subcommand(command, args[1]))?
    };
    if !command.accepts(args.len()) {
        return Err(wrong_arity(command));
    }
    if command.has(Flags::NO_MULTI.with(Flags::PROTECTED)) && client.transaction.is_some() {
        check_in_transaction(context.server, client, command)?;
    }
    if client.only_listens() && !command.has(Flags::LISTENERS) {
        return Err(only_listens(command));
    }
    let switches = context.server.switches.load();
    if (switches & Switch::GUARDED != 0 || !context.data.may_expire)
        && !guard(context, client, command, switches, output)?
    {
        return Ok(Executed::Postponed);
    }
    if let Some(transaction) = &mut client.transaction
        && !command.has(Flags::NOT_QUEUED)
    {
        transaction.queue(request, command, &client.info);
        Reply::new(output, client.protocol).queued();
        return Ok(Executed::Queued);
    }
    if let Some(values) = command.row.values {
        context.data.prepare(values, args);
    }
    let held = match command.shape {
        KeyShape::Specified => {
            return run_planned(context, client, command, request, output);
        }
        _ if command.has(Flags::GATE) => context.data.hold_gate(),
        KeyShape::First => context.data.hold_one(request.first_hash.shard()),
        KeyShape::None => {
            context.data.release();
            // A walk would see what belongs together in its midst.
            !command.has(Flags::WALKS)
                || !command.has(Flags::READONLY)
                || !context.data.is_something_reserved()
        }
    };
    if !held {
        return Err(wait_for_script(context.server, client, command));
    }
    if context.data.waited && !admit_again(context, client, command, request)? {
        return Ok(Executed::Postponed);
    }
    let hashes = match command.shape {
        KeyShape::First => &lone_key(request.first_hash)[..],
        KeyShape::None | KeyShape::Specified => &[],
    };
    Ok(run_held(context, client, command, request, hashes, output))
}

/// The plan of a command whose only key is argument 1.
#[inline(always)]
pub const fn lone_key(hash: Hash) -> [Hash; 2] {
    [Hash(0), hash]
}

/// Holds the shards of a command that may have several keys, and runs it.
fn run_planned(
    context: &mut Context<'_>,
    client: &mut Client,
    command: &'static Registered,
    request: &Request<'_>,
    output: &mut Vec<u8>,
) -> Result<Executed, Failure> {
    if command.has(Flags::RUNS) {
        context.data.release();
        let executed = run_held(context, client, command, request, &[], output);
        if let Some(paused) = context.data.paused.take() {
            client.job = Some(paused);
        }
        return Ok(executed);
    }
    let data = &mut *context.data;
    let mut shards = std::mem::take(&mut data.shard_set);
    shards.clear();
    shards.add_alone(data, command, request);
    if client.database == 0 {
        shards.prefetch_buckets(data);
    }
    let executed = if shards.hold(data) {
        shards.prefetch_entries(data, client.database);
        let admitted = match context.data.waited {
            true => admit_again(context, client, command, request),
            false => Ok(true),
        };
        admitted.map(|goes_on| match goes_on {
            true => run_held(context, client, command, request, &shards.hashes, output),
            false => Executed::Postponed,
        })
    } else {
        Err(wait_for_script(context.server, client, command))
    };
    context.data.shard_set = shards;
    executed
}

/// Checks again what may have changed while the command waited for what it holds now: rules,
/// pauses, and what the time is. `false`: the client has to wait.
#[cold]
fn admit_again(
    context: &mut Context<'_>,
    client: &mut Client,
    command: &'static Registered,
    request: &Request<'_>,
) -> Result<bool, Failure> {
    context.data.refresh_time(context.server);
    if !client.rights.is_open(context.server) {
        acl::admit(context, client, request)?;
    }
    let goes_on = may_run(context.server, context.data, client, command)?;
    if !goes_on {
        context.data.end_prepared();
        context.data.release();
    }
    Ok(goes_on)
}

impl Call<'_> {
    /// What a command returns that finds what it needs with a script; nothing was done yet.
    pub fn wait_for_script(&mut self) -> Failure {
        wait_for_script(self.server, self.client, self.command)
    }

    /// Checks again what may have changed while the command waited. It is for a command that gets
    /// hold of what it needs only while it runs. The command must return an error at once, with
    /// nothing done.
    pub fn admit_again(&mut self) -> Outcome {
        if !self.data.waited || self.in_transaction {
            return Ok(());
        }
        self.data.refresh_time(self.server);
        if !self.client.rights.is_open(self.server) {
            acl::admit_queued(self, self.command, self.args)?;
        }
        let goes_on = may_run(self.server, self.data, self.client, self.command)?;
        if goes_on { Ok(()) } else { Err(Failure::POSTPONED) }
    }
}

/// What becomes of a command before which a script keeps what it needs: its client waits until the
/// script is over, or is told that it is slow. Nothing was done yet.
#[cold]
fn wait_for_script(server: &Server, client: &mut Client, command: &Registered) -> Failure {
    if server.switches.load() & Switch::BUSY != 0 {
        return server.scripts.busy_failure();
    }
    client.ran(command);
    client.wait_for_script();
    Failure::POSTPONED
}

/// Runs a command whose shards are held.
#[inline(always)]
fn run_held(
    context: &mut Context<'_>,
    client: &mut Client,
    command: &'static Registered,
    request: &Request<'_>,
    hashes: &[Hash],
    output: &mut Vec<u8>,
) -> Executed {
    let mut call = Call {
        server: context.server,
        command,
        args: request.args,
        wire: request.wire,
        data: context.data,
        stats: context.stats,
        reply: Reply::with_parts(output, context.parts, client.protocol),
        client,
        hashes,
        in_transaction: false,
    };
    let has_run = run(&mut call);
    context.data.end_prepared();
    if has_run { Executed::Ran(command) } else { Executed::Postponed }
}

/// Runs the handler of a call whose shards are held, and counts it. `false`: it did nothing, and
/// its client waits.
#[inline]
pub fn run(call: &mut Call<'_>) -> bool {
    call.data.database = call.client.database;
    call.data.touch = !call.client.no_touch;
    call.client.ran(call.command);
    let start = call.reply.output().len();
    let dirty = call.data.counters.dirty;
    call.data.unit.begin_command();
    let outcome = (call.command.row.handler)(call);
    if let Err(failure) = outcome {
        call.reply.truncate(start);
        if failure == Failure::POSTPONED {
            call.data.release();
            return false;
        }
        call.reply.error(failure.0.as_bytes());
        call.stats.commands[call.command.id].failed.add(1);
        call.stats.totals.error_replies.add(1);
        call.server.errors.count(failure.code());
    }
    if call.data.is_logged() {
        log_effects(call, call.data.counters.dirty != dirty);
    }
    if call.server.switches.load() & Switch::ONLOOKERS != 0 {
        show_onlookers(call);
    }
    if call.data.unit.has_done_something() && !call.in_transaction {
        call.end_unit();
    }
    true
}

/// Shows the command to those who look at all commands, and remembers what it read.
#[inline(never)]
fn show_onlookers(call: &mut Call<'_>) {
    if call.server.switches.load() & Switch::MONITORED != 0 {
        monitor::feed(call);
    }
    if call.client.tracking.is_some() {
        tracking::remember(call);
    }
    if call.server.switches.load() & Switch::SIZED != 0 {
        hotkeys::look_at_sizes(call);
    }
}

/// Logs what a command did.
#[inline(never)]
fn log_effects(call: &mut Call<'_>, changed: bool) {
    // EXEC's commands have logged theirs.
    let changed = changed && !call.command.has(Flags::EXECUTES);
    if let Some(number) = call.data.log_command(call.args, call.wire, changed, !call.in_transaction)
    {
        call.client.last_record = number;
    }
    if call.data.recorder.take_far_ahead() {
        call.server.hold_writers_for_log();
    }
}

/// The checks that few servers need, behind one load. `false`: the client has to wait.
#[cold]
fn guard(
    context: &mut Context<'_>,
    client: &mut Client,
    command: &'static Registered,
    switches: u32,
    output: &mut Vec<u8>,
) -> Result<bool, Failure> {
    if context.data.loading {
        // A log was checked when it was written.
        return Ok(true);
    }
    if !may_run(context.server, context.data, client, command)? {
        return Ok(false);
    }
    let writes = command.has(Flags::WRITE) || would_execute(client, command, Flags::WRITE);
    // Who looks whether the server is well is told, too.
    let is_told = writes || command.row.name == "ping";
    if switches & Switch::PRESSURE != 0
        && writes
        && switches & Switch::LOG_FAILED == 0
        && context.server.holds_up(client, context.data)
    {
        client.ran(command);
        client.postpone(true);
        return Ok(false);
    }
    if switches & Switch::MAXMEMORY != 0 {
        let room = make_room(context, client, output);
        if command.has(Flags::DENYOOM) || would_execute(client, command, Flags::DENYOOM) {
            match room {
                Room::Enough | Room::Soon => {}
                Room::Reserved => return Err(wait_for_script(context.server, client, command)),
                Room::None => return Err(Failure::OUT_OF_MEMORY),
            }
        }
        if writes || command.has(Flags::RUNS) {
            eviction::expect_change(context.data);
        }
    }
    if switches & Switch::DISK_FAILED != 0
        && is_told
        && let Some(failure) = context.server.disk_failure()
    {
        return Err(failure);
    }
    Ok(true)
}

/// What keeps a command from running now that may not have a moment ago. `false`: the client has to
/// wait.
fn may_run(
    server: &'static Server,
    data: &mut Data,
    client: &mut Client,
    command: &'static Registered,
) -> Result<bool, Failure> {
    let switches = server.switches.load();
    if data.loading {
        return Ok(true);
    }
    if client.info.has(ClientFlag::MONITOR) && command.has(KEY_USERS) {
        // What a pause is for must not be got around by a client that no pause concerns.
        return Err(Failure::new("ERR Replica can't interact with the keyspace"));
    }
    if switches & Switch::LOADING != 0 && !command.has(Flags::LOADING) {
        return Err(Failure::LOADING);
    }
    if switches & Switch::BUSY != 0 && !command.has(Flags::ALLOW_BUSY) {
        return Err(server.scripts.busy_failure());
    }
    Ok(!has_to_wait(server, data, client, command))
}

/// Evicts keys if there are too many. That a copy of the client's own is gone comes before the
/// reply.
fn make_room(context: &mut Context<'_>, client: &Client, output: &mut Vec<u8>) -> Room {
    let id = client.tracking.as_ref().map_or(0, |tracked| tracked.id);
    context.data.evicting_for = id;
    let room = eviction::make_room(context.server, context.data);
    context.data.evicting_for = 0;
    if id != 0
        && client.replies == Replies::On
        && let Some(subscribers) = &mut context.data.subscribers
    {
        output.append(subscribers.set_aside());
    }
    room
}

/// Whether a pause holds the command up.
fn has_to_wait(
    server: &Server,
    data: &mut Data,
    client: &mut Client,
    command: &'static Registered,
) -> bool {
    let pause = server.paused(data.now_ms);
    // Another worker may have started or ended the pause in the midst of this turn.
    data.may_expire = server.may_expire(data.now_ms);
    let Some(pause) = pause else { return false };
    let wait = !client.info.has(ClientFlag::MONITOR)
        && (pause.all
            || command.has(WRITERS)
            || command.has(Flags::RUNS) && !command.has(Flags::READONLY)
            || would_execute(client, command, WRITERS.with(Flags::RUNS)));
    if wait {
        client.ran(command);
        client.postpone(true);
    }
    wait
}

/// Whether a pause holds up what a command has left to be done, as it changes keys.
pub fn is_put_off(server: &Server, data: &Data, command: &Registered) -> bool {
    server.paused(data.now_ms).is_some() && command.has(WRITERS)
}

/// Whether the command is EXEC, and what it would run has one of these flags.
fn would_execute(client: &Client, command: &Registered, flags: Flags) -> bool {
    let queued = client.transaction.as_ref().filter(|_| command.has(Flags::EXECUTES));
    queued.is_some_and(|transaction| transaction.has(flags))
}

/// Commands that change keys, or go to replicas for another reason.
const WRITERS: Flags = Flags::WRITE.with(Flags::MAY_REPLICATE);
const KEY_USERS: Flags = WRITERS.with(Flags::READONLY);

/// The shards that a plan needs, and its keys.
#[derive(Default)]
pub struct ShardSet {
    shards: Vec<u16>,
    /// By argument, of all commands of the plan one behind the other; see `Call::hashes`.
    hashes: Vec<Hash>,
    everything: bool,
}

impl ShardSet {
    pub fn clear(&mut self) {
        self.shards.clear();
        self.hashes.clear();
        self.everything = false;
    }

    /// Adds the keys of a command of a transaction, whose arguments are those from `first_arg` on.
    /// Arguments that do not fit the key specification add what they have: the handler answers with
    /// the error before it looks at a key.
    pub fn add(
        &mut self,
        data: &Data,
        command: &'static Registered,
        args: &[&[u8]],
        first_arg: usize,
        first_hash: Hash,
    ) {
        self.everything |= is_about_everything(command, args)
            || command.has(Flags::WALKS)
            || command.has(Flags::RUNS) && !data.runs_within_keys(command, args);
        match command.shape {
            KeyShape::None => {}
            KeyShape::First => {
                self.hashes.resize(first_arg + args.len(), Hash::default());
                self.hashes[first_arg + 1] = first_hash;
                self.shards.push(first_hash.shard() as u16);
            }
            KeyShape::Specified => {
                self.hashes.resize(first_arg + args.len(), Hash::default());
                command.key_positions(args, |at| {
                    let key = data.key(args[at]);
                    self.hashes[first_arg + at] = key.hash;
                    self.add_key(key);
                });
            }
        }
    }

    /// Adds the keys of a command that runs alone, and prefetches their shards. It repeats the loop
    /// of `add`, so that the compiler writes this one in place.
    fn add_alone(&mut self, data: &Data, command: &'static Registered, request: &Request<'_>) {
        let args = request.args;
        self.everything |= is_about_everything(command, args);
        self.hashes.resize(args.len(), Hash::default());
        command.key_positions(args, |at| {
            let key = if at == 1 {
                // The batch has hashed it, and has its shard on the way.
                Key { bytes: args[at], hash: request.first_hash }
            } else {
                let key = data.key(args[at]);
                data.keyspace().prefetch_shard(key.hash);
                key
            };
            self.hashes[at] = key.hash;
            self.add_key(key);
        });
    }

    pub fn add_key(&mut self, key: Key<'_>) {
        self.shards.push(key.hash.shard() as u16);
    }

    pub const fn add_everything(&mut self) {
        self.everything = true;
    }

    /// The keys by argument; its memory comes back by `give_back`.
    pub fn take_hashes(&mut self) -> Vec<Hash> {
        std::mem::take(&mut self.hashes)
    }

    pub fn give_back(&mut self, hashes: Vec<Hash>) {
        self.hashes = hashes;
    }

    /// Holds them all, and no other. `false`: one is reserved, and nothing is held.
    #[must_use]
    pub fn hold(&mut self, data: &mut Data) -> bool {
        self.shards.sort_unstable();
        self.shards.dedup();
        match self.shards[..] {
            _ if self.everything => data.hold_gate(),
            [] => {
                data.release();
                true
            }
            [shard] => data.hold_one(usize::from(shard)),
            _ => data.hold_many(self.shards.iter().copied().map(usize::from)),
        }
    }

    fn prefetch_buckets(&self, data: &Data) {
        self.keyed().for_each(|hash| data.keyspace().prefetch_bucket(hash));
    }

    /// Their shards are held.
    fn prefetch_entries(&self, data: &mut Data, database: u32) {
        if !data.holds_all() {
            data.prefetch(database, self.keyed());
        }
    }

    fn keyed(&self) -> impl Iterator<Item = Hash> {
        self.hashes.iter().copied().filter(|&hash| hash != Hash::default())
    }
}

fn is_about_everything(command: &Registered, args: &[&[u8]]) -> bool {
    command.has(Flags::GATE) || command.row.gate_when.is_some_and(|condition| condition(args))
}

/// Holds the shards of these keys, or everything, and no other. `false`: somebody has reserved one.
#[must_use]
pub fn hold_keys(data: &mut Data, keys: &[&[u8]], everything: bool) -> bool {
    let mut shards = std::mem::take(&mut data.shard_set);
    shards.clear();
    shards.everything = everything;
    if !everything {
        keys.iter().for_each(|key| shards.add_key(data.key(key)));
    }
    let held = shards.hold(data);
    data.shard_set = shards;
    held
}

/// Answers a request that was not executed, and spoils the transaction that it was meant for.
#[cold]
fn refuse(
    context: &mut Context<'_>,
    client: &mut Client,
    request: &Request<'_>,
    failure: Failure,
    output: &mut Vec<u8>,
) {
    context.data.end_prepared();
    if let Some(command) = request.command {
        let counted = request.args.get(1).and_then(|name| command.subcommand(name));
        context.stats.commands[counted.unwrap_or(command).id].rejected.add(1);
    }
    context.stats.totals.error_replies.add(1);
    if let (Some(tracked), None) = (&mut client.tracking, &client.transaction) {
        tracked.caching = false;
    }
    let executes = |command: &Registered| command.has(Flags::EXECUTES);
    let failure = if request.command.is_some_and(executes) {
        transaction::abort(client, context.data);
        transaction::aborted(&failure)
    } else {
        transaction::spoil(client);
        failure
    };
    context.server.errors.count(failure.code());
    Reply::new(output, client.protocol).error(failure.0.as_bytes());
}

/// CLIENT REPLY OFF and SKIP: takes back what was answered.
#[cold]
fn suppress(client: &mut Client, output: &mut Vec<u8>, start: usize) {
    output.truncate(start);
    client.job_is_quiet = client.job.is_some();
    match client.replies {
        Replies::On | Replies::Off => {}
        Replies::SkipNext => client.replies = Replies::Skip,
        Replies::Skip => client.replies = Replies::On,
    }
}

#[cold]
fn wrong_arity(command: &Registered) -> Failure {
    let name = &command.full_name;
    Failure::format(format!("ERR wrong number of arguments for '{name}' command"))
}

/// Refuses what is refused when it is queued, and not only when it runs.
#[cold]
fn check_in_transaction(server: &Server, client: &Client, command: &Registered) -> Outcome {
    if command.has(Flags::NO_MULTI) {
        let name = &command.full_name;
        let text = format!("ERR Command '{name}' not allowed inside a transaction");
        return Err(Failure::format(text));
    }
    acl::check_debug_allowed(server, client)
}

/// What is no command is refused; a line of HTTP ends the connection, whoever sent it: a web page
/// had a browser do so.
#[cold]
fn admit_unknown(
    context: &mut Context<'_>,
    client: &mut Client,
    request: &Request<'_>,
) -> Result<Executed, Failure> {
    static NOTED_MS: AtomicI64 = AtomicI64::new(i64::MIN);
    let args = request.args;
    if !is_http(args[0]) {
        acl::admit(context, client, request)?;
        return Err(unknown(args));
    }
    let (now_ms, noted_ms) = (context.data.now_ms, NOTED_MS.load(Ordering::Relaxed));
    let is_due = now_ms >= noted_ms.saturating_add(HTTP_NOTED_MS);
    let exchange = || {
        NOTED_MS.compare_exchange(noted_ms, now_ms, Ordering::Relaxed, Ordering::Relaxed).is_ok()
    };
    if is_due && exchange() {
        log::warn!(
            "Possible SECURITY ATTACK detected. A client sent a line of HTTP ({} {}); its connection is closed.",
            client.info.peer,
            String::from_utf8_lossy(args[0]),
        );
    }
    client.close();
    client.discard = true;
    Ok(Executed::Queued)
}

/// How often the log tells of lines of HTTP.
const HTTP_NOTED_MS: i64 = 60_000;

/// Whether a web page in somebody's browser was made to talk to us: the rest of what it sends would
/// be taken for commands.
fn is_http(name: &[u8]) -> bool {
    name.eq_ignore_ascii_case(b"post") || name.eq_ignore_ascii_case(b"host:")
}

/// Names the unknown command and the beginning of its arguments, as Redis does.
#[cold]
fn unknown(args: &[&[u8]]) -> Failure {
    const SHOWN_MAX: usize = 128;
    let name = String::from_utf8_lossy(&args[0][..args[0].len().min(SHOWN_MAX)]).into_owned();
    let mut shown = String::new();
    for arg in &args[1..] {
        if shown.len() >= SHOWN_MAX {
            break;
        }
        let arg = &arg[..arg.len().min(SHOWN_MAX - shown.len())];
        shown.push_str(&format!("'{}' ", String::from_utf8_lossy(arg)));
    }
    Failure::format(format!("ERR unknown command '{name}', with args beginning with: {shown}"))
}

#[cold]
fn only_listens(command: &Registered) -> Failure {
    let name = &command.full_name;
    Failure::format(format!(
        "ERR Can't execute '{name}': only (P|S)SUBSCRIBE / (P|S)UNSUBSCRIBE / PING / QUIT / RESET are \
         allowed in this context"
    ))
}

#[cold]
fn unknown_subcommand(command: &Registered, name: &[u8]) -> Failure {
    let name = String::from_utf8_lossy(&name[..name.len().min(128)]);
    let upper = command.row.name.to_ascii_uppercase();
    Failure::format(format!("ERR unknown subcommand '{name}'. Try {upper} HELP."))
}
