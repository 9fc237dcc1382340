//! Executes the commands of a log at the start, or of a primary's stream.

use std::io::BufRead;
use std::sync::Arc;

use bobbin_resp::{Reply, ReplyPart};
use bobbin_store::{KeyHash, ShardGuard};

use super::place::LogPlace;
use super::{AofFault, AofItem, AofReader};
use crate::base::clock::ticks;
use crate::engine::acl::Rights;
use crate::engine::client::Client;
use crate::engine::clients::ClientInfo;
use crate::engine::command::call::{Call, Context, Request};
use crate::engine::command::job::{LongCommand, Slice};
use crate::engine::command::plan::lone_key;
use crate::engine::command::{Data, DatabaseUse, Registered, counting};
use crate::engine::execution::execute::{RequestOutcome, execute};
use crate::engine::execution::run::run_in_midst;
use crate::engine::lazyfree;
use crate::engine::log::{Effects, Recorder};
use crate::engine::server::{Server, background};
use crate::engine::telemetry::slowlog::Measured;
use crate::engine::telemetry::stats::WorkerStats;
use crate::persistence::load;

/// Why a command of a primary was not executed.
pub(crate) enum Hindrance {
    /// A script keeps what the command needs, or the server's role has changed. In the first case
    /// the command is executed again before any other.
    Wait,
    /// A thread waits for the gate. The command goes on behind it, before any other.
    Gate,
    /// The command was answered with this error. A command that succeeded on the primary fails here
    /// only if the two servers differ.
    Failure(String),
}

/// How far a command's job is.
#[derive(PartialEq, Eq)]
enum Progress {
    Done,
    /// It waits for something slow, or for what another thread keeps.
    Parked,
    GivesWay,
}

/// After this many commands a replay checks whether it should go on.
const LOOK_INTERVAL: usize = 256;

/// A client that executes a log's commands. Meanwhile no key expires: the log has a command for
/// each key that had expired when it was written.
pub(crate) struct Replay {
    server: &'static Server,
    pub(crate) data: Data,
    stats: Arc<WorkerStats>,
    client: Client,
    replies: Vec<u8>,
    parts: Vec<ReplyPart>,
    /// The tick at which the last command ended.
    ticks: u64,
    /// How long the current command has taken before this thread left the gate, in ticks.
    spent: u64,
    /// The replication stream's position as the log gives it, and the same behind the last complete
    /// unit.
    place: LogPlace,
    whole_place: LogPlace,
}

impl Replay {
    pub(crate) fn new(server: &'static Server) -> Result<Self, String> {
        let seed = server.clock.now_ms() as u64;
        let data = Data::new(&server.keyspace, &server.gate, seed);
        Ok(Self::with(server, data.ok_or("too many threads")?))
    }

    /// A replay for the commands of a primary. Their changes are logged and counted, and clients
    /// that listen get their events.
    pub(crate) fn following(server: &'static Server) -> Result<Self, String> {
        let data = background::data(server).ok_or("too many threads, or open files")?;
        let replay = Self::with(server, data);
        server.workers.count_also(&replay.stats);
        Ok(replay)
    }

    /// A replay for a thread that executes some of those commands, on shards that the thread which
    /// follows the primary lends it.
    pub(crate) fn assisting(server: &'static Server) -> Result<Self, String> {
        let mut replay = Self::new(server)?;
        replay.data.recorder = Recorder::new(server.log.lane());
        server.workers.count_also(&replay.stats);
        Ok(replay)
    }

    fn with(server: &'static Server, mut data: Data) -> Self {
        data.conditions.now_ms = server.clock.advance();
        data.conditions.clock = server.access_clock(data.conditions.now_ms);
        (data.conditions.loading, data.conditions.sees_dead) = (true, true);
        let info = ClientInfo::new(0, -1, "log".into(), "log".into(), true, data.conditions.now_ms);
        Self {
            server,
            data,
            stats: Arc::new(WorkerStats::new(server.registry.all().len())),
            client: Client::new(Arc::new(info), Rights::unlimited()),
            replies: Vec::new(),
            parts: Vec::new(),
            ticks: 0,
            spent: 0,
            place: LogPlace::Unknown,
            whole_place: LogPlace::Unknown,
        }
    }

    /// Executes everything that is read, up to the end or to the first bytes that are no log.
    /// Returns up to which offset the log is valid, and how it ended. An unfinished transaction is
    /// not valid. `good` is the reader's offset at the beginning. `look` gets the reader's offset
    /// now and then; its error ends the replay.
    pub(crate) fn run_all(
        &mut self,
        reader: &mut AofReader<impl BufRead>,
        mut good: u64,
        mut look: impl FnMut(u64) -> Result<(), String>,
    ) -> Result<(u64, Result<(), AofFault>), String> {
        let mut number = 0;
        loop {
            let start = reader.offset();
            match reader.read() {
                Ok(AofItem::Command) => {}
                Ok(AofItem::End) if self.is_in_transaction() => {
                    return Ok((good, Err(AofFault::Truncated)));
                }
                Ok(AofItem::End) => return Ok((good, Ok(()))),
                Ok(item @ (AofItem::Timestamp(_) | AofItem::Remark)) => {
                    if item == AofItem::Remark
                        && let Some(place) = LogPlace::parse(reader.remark_text())
                    {
                        self.place = place;
                        self.whole_place = place;
                    }
                    good = if self.is_in_transaction() { good } else { reader.offset() };
                    continue;
                }
                Err(fault) => return Ok((good, Err(fault))),
            }
            if load::slow_down(self.server, number) || number.is_multiple_of(LOOK_INTERVAL) {
                look(start)?;
                self.count_loaded();
            }
            number += 1;
            let args: Vec<&[u8]> = reader.args().collect();
            self.run(&args)?;
            self.place.advance(reader.offset() - start);
            if !self.is_in_transaction() {
                self.whole_place = self.place;
                good = reader.offset();
            }
        }
    }

    /// Reads the clock and follows the configuration.
    pub(crate) fn look_around(&mut self) {
        self.ticks = ticks();
        self.data.refresh_time(self.server);
        self.data.follow_config(self.server);
        self.data.rest();
    }

    /// What is shown of the commands to come names this client as their sender.
    pub(crate) fn speak_for(&mut self, client: &ClientInfo) {
        let [peer, local] = [&client.peer, &client.local].map(ToString::to_string);
        let (is_unix, now_ms) = (client.is_unix, self.data.conditions.now_ms);
        self.client.info = Arc::new(ClientInfo::new(0, -1, peer, local, is_unix, now_ms));
    }

    /// The client that `speak_for` named, with the names alone.
    pub(crate) const fn speaks_for(&self) -> &Arc<ClientInfo> {
        &self.client.info
    }

    /// Executes a command. The error says why it cannot be part of a log: the command is unknown or
    /// malformed. A command that fails when it runs also failed when it was logged, and is no
    /// error.
    fn run(&mut self, args: &[&[u8]]) -> Result<(), String> {
        self.data.enter();
        let outcome = self.run_entered(args);
        self.data.leave();
        outcome
    }

    /// Executes a command as `run` does; `data` is already a member of the gate. Holds nothing
    /// afterwards.
    fn run_entered(&mut self, args: &[&[u8]]) -> Result<(), String> {
        let command = self.server.registry.find_logged(args[0]);
        self.check_databases(command, args)?;
        let first_hash = args.get(1).map_or_else(KeyHash::default, |key| self.data.key(key).hash);
        let executed = self.execute(args, command, first_hash);
        // A log is in order, so the next command waits until another thread has released what this
        // one needs.
        while self.work(|| false) != Progress::Done && !self.data.is_dismissed() {
            self.data.release();
            background::pause();
        }
        self.data.release();
        let outcome =
            if executed == RequestOutcome::Refused { Err(self.complaint()) } else { Ok(()) };
        self.forget_replies();
        outcome
    }

    /// Refuses a command that names a database which this server does not have. The server that
    /// wrote it has more of them. What follows must not go to another database.
    pub(crate) fn check_databases(
        &self,
        command: Option<&'static Registered>,
        args: &[&[u8]],
    ) -> Result<(), String> {
        let Some(command) = command else { return Ok(()) };
        let DatabaseUse::Named(find) = command.row.databases else { return Ok(()) };
        if !command.accepts(args.len()) {
            return Ok(());
        }
        let mut outcome = Ok(());
        find(args, &mut |at| {
            let number = args.get(at).and_then(|word| bobbin_resp::parse_i64(word));
            if let (Ok(()), Some(number)) = (&outcome, number) {
                outcome = self.check_database(number);
            }
        });
        outcome
    }

    fn check_database(&self, number: i64) -> Result<(), String> {
        let count = self.server.config.databases();
        if number < count {
            return Ok(());
        }
        Err(format!("there is no database {number}, because the option 'databases' is {count}"))
    }

    /// Executes a command of a primary; `data` is a member of the gate. `before_release` is called
    /// once the command has made its change, before another thread can have the gate, with whether
    /// a transaction is open and the selected database.
    ///
    /// A long command may leave the gate to a thread that waits for it, as a worker's does: until
    /// its change is made at one moment, nobody sees anything of it. A script or a transaction that
    /// is half done keeps its shards reserved. Then nobody gets the gate in any case, so it goes
    /// on.
    pub(crate) fn run_relayed(
        &mut self,
        args: &[&[u8]],
        command: Option<&'static Registered>,
        first_hash: KeyHash,
        mut before_release: impl FnMut(bool, u32),
    ) -> Result<(), Hindrance> {
        let executed = self.execute(args, command, first_hash);
        if executed == RequestOutcome::Postponed {
            return Err(self.put_off(Hindrance::Wait));
        }
        let changes_later = |long: &LongCommand| long.job.changes_later();
        let has_changed = !self.client.long_command.as_deref().is_some_and(changes_later);
        if has_changed {
            before_release(self.is_in_transaction(), self.database());
        }
        let gate = &self.server.gate;
        match self.work(|| gate.is_closed() && !gate.is_reserved()) {
            Progress::Done => {}
            Progress::Parked => return Err(self.put_off(Hindrance::Wait)),
            Progress::GivesWay => return Err(self.put_off(Hindrance::Gate)),
        }
        if !has_changed {
            before_release(self.is_in_transaction(), self.database());
        }
        self.data.release();
        match executed {
            RequestOutcome::Ran(command) => self.count_command(command, args),
            _ => self.ticks = ticks(),
        }
        let has_failed = executed == RequestOutcome::Refused || self.replies.first() == Some(&b'-');
        let outcome = if has_failed { Err(Hindrance::Failure(self.complaint())) } else { Ok(()) };
        self.forget_replies();
        outcome
    }

    /// Leaves off a command that is executed again, or goes on, before any other.
    fn put_off(&mut self, why: Hindrance) -> Hindrance {
        self.client.postpone(false);
        self.data.release();
        self.forget_replies();
        self.spent += ticks() - self.ticks;
        why
    }

    /// Counts a command of a primary that ran, and shows it where it was slow or large. As in
    /// Valkey, its reply counts for nothing, because nobody gets it.
    fn count_command(&mut self, command: &'static Registered, args: &[&[u8]]) {
        let now = ticks();
        let spent = now - std::mem::replace(&mut self.ticks, now) + std::mem::take(&mut self.spent);
        let request_bytes = args.iter().map(|arg| arg.len()).sum();
        let measured = Measured { ticks: spent, request_bytes, reply_bytes: 0 };
        let (server, track) = (self.server, self.server.config.latency_tracking());
        counting::ended(server, &self.stats, &self.client, command, args, &measured, track);
        self.stats.totals.commands.add(1);
    }

    /// Selects a database, takes shards that the thread which follows the primary lends, and speaks
    /// for the same client.
    pub(crate) fn borrow(
        &mut self,
        database: u32,
        shards: Vec<ShardGuard<'static>>,
        client: Option<&ClientInfo>,
    ) {
        self.client.database = database;
        if let Some(client) = client.filter(|client| client.peer != self.client.info.peer) {
            self.speak_for(client);
        }
        self.data.borrow(shards);
    }

    /// Gives the borrowed shards back.
    pub(crate) fn give_back(&mut self) -> Vec<ShardGuard<'static>> {
        let shards = self.data.give_back();
        // This frees values, for which no shard should be locked.
        self.data.release();
        shards
    }

    /// Ends the units of shards that this thread lent, in their order. The shards are still locked.
    pub(crate) fn end_borrowed(&mut self, units: impl Iterator<Item = Effects>) {
        units.for_each(|effects| _ = self.data.number_effects(effects));
        if self.data.recorder.take_far_ahead() {
            self.server.put_off_writers_for_log();
        }
        if !self.data.unit.work.notices.is_empty() {
            self.data.publish_notices(None);
        }
    }

    /// Executes a command of a primary as a unit of its own. Its only key is its first argument,
    /// whose shard is borrowed and stays locked. Returns the effects, which have no number yet. The
    /// error is the command's reply.
    pub(crate) fn run_borrowed(
        &mut self,
        args: &[&[u8]],
        command: &'static Registered,
        hash: KeyHash,
    ) -> (Option<Effects>, Result<(), String>) {
        let mut call = Call {
            server: self.server,
            command,
            args,
            wire: &[],
            data: &mut self.data,
            stats: &self.stats,
            reply: Reply::with_parts(&mut self.replies, &mut self.parts, self.client.protocol),
            client: &mut self.client,
            hashes: &lone_key(hash),
            // The command may unlock nothing, and must not go on in slices.
            in_transaction: true,
            may_leave_job: false,
        };
        run_in_midst(&mut call);
        let effects = self.data.take_effects();
        self.count_command(command, args);
        let has_failed = self.replies.first() == Some(&b'-');
        let outcome = if has_failed { Err(self.complaint()) } else { Ok(()) };
        self.forget_replies();
        (effects, outcome)
    }

    /// Adds the commands' counters to the statistics, and frees as many flushed keys as they have
    /// changed, for at most as long as they took.
    pub(crate) fn count(&mut self) {
        let counters = std::mem::take(&mut self.data.counters);
        counters.add_to(&self.stats.totals);
        let now = ticks();
        lazyfree::free_flushed_beside(counters.dirty, now + now.saturating_sub(self.ticks));
    }

    /// As `count`, for a log that is loaded: no client waits for this thread.
    pub(crate) fn count_loaded(&mut self) {
        let counters = std::mem::take(&mut self.data.counters);
        counters.add_to(&self.stats.totals);
        lazyfree::free_flushed_for_loaded(counters.dirty as usize);
    }

    /// How many changes of keys that makes, of those that are counted already.
    pub(crate) fn changes(&self) -> u64 {
        self.stats.totals.dirty.get()
    }

    fn forget_replies(&mut self) {
        self.replies.clear();
        self.parts.clear();
    }

    /// Executes a command and keeps its locks. If it leaves a job, `work` does the rest. A command
    /// that has left a job before only has to go on with that.
    fn execute(
        &mut self,
        args: &[&[u8]],
        command: Option<&'static Registered>,
        first_hash: KeyHash,
    ) -> RequestOutcome {
        if let (Some(_), Some(command)) = (&self.client.long_command, command) {
            return RequestOutcome::Ran(command);
        }
        let request = Request { command, args, wire: &[], first_hash };
        let mut context = Context {
            server: self.server,
            data: &mut self.data,
            stats: &self.stats,
            parts: &mut self.parts,
        };
        execute(&mut context, &mut self.client, request, &mut self.replies)
    }

    /// Works on the job of a long command, if there is one, until it is done, has to wait, or gives
    /// way because `gives_way` says so.
    fn work(&mut self, gives_way: impl Fn() -> bool) -> Progress {
        let Some(mut long) = self.client.long_command.take() else { return Progress::Done };
        self.data.release();
        self.data.follow_client(&self.client);
        while !long.step(&mut Slice {
            server: self.server,
            data: &mut self.data,
            stats: &self.stats,
            client: &mut self.client,
            more: &mut || !gives_way(),
        }) {
            let is_parked = long.job.is_parked();
            if is_parked || gives_way() {
                self.client.long_command = Some(long);
                return if is_parked { Progress::Parked } else { Progress::GivesWay };
            }
        }
        Progress::Done
    }

    /// The text of the last command's error reply, without its marks.
    fn complaint(&self) -> String {
        let text = String::from_utf8_lossy(&self.replies);
        let text = text.trim_end_matches("\r\n").trim_start_matches('-');
        text.strip_prefix("ERR ").unwrap_or(text).to_owned()
    }

    /// Whether a transaction is open.
    pub(crate) const fn is_in_transaction(&self) -> bool {
        self.client.transaction.is_some()
    }

    /// Abandons the open transaction, and the command that waits.
    pub(crate) fn abandon_transaction(&mut self) {
        self.client.transaction = None;
        if let Some(long) = self.client.long_command.take() {
            long.abandon(self.server, &mut self.data);
        }
        self.spent = 0;
        self.place = self.whole_place;
    }

    /// The replication stream's position behind the executed commands.
    pub(crate) const fn place_behind(&self) -> LogPlace {
        self.whole_place
    }

    /// Begins another file. Each file selects its database itself.
    pub(crate) const fn begin_file(&mut self) {
        self.client.database = 0;
    }

    /// The selected database.
    pub(crate) const fn database(&self) -> u32 {
        self.client.database
    }

    /// Selects a database; the first one and an error if this one does not exist.
    pub(crate) fn select(&mut self, database: u32) -> Result<(), String> {
        let checked = self.check_database(database.into());
        self.client.database = if checked.is_ok() { database } else { 0 };
        checked
    }
}

impl Drop for Replay {
    fn drop(&mut self) {
        self.server.workers.count_no_more(&self.stats);
    }
}

#[cfg(test)]
pub(crate) mod tests;
