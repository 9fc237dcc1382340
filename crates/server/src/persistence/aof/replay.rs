//! Carrying out the commands of a log at start.

use std::io::BufRead;
use std::sync::Arc;

use bobbin_resp::{Part, Reply};
use bobbin_store::{Hash, ShardGuard};

use super::place::LogPlace;
use super::{AofFault, AofItem, AofReader};
use crate::base::clock::ticks;
use crate::engine::acl::Rights;
use crate::engine::client::Client;
use crate::engine::clients::ClientInfo;
use crate::engine::command::call::{Call, Context, Request};
use crate::engine::command::job::Slice;
use crate::engine::command::plan::lone_key;
use crate::engine::command::{Data, Registered};
use crate::engine::execution::execute::{Executed, execute};
use crate::engine::execution::run::run;
use crate::engine::log::{Effects, Recorder};
use crate::engine::server::{Server, background};
use crate::engine::telemetry::stats::WorkerStats;
use crate::persistence::load;

/// Why a command of a primary is not carried out.
pub(crate) enum Hindrance {
    /// A script keeps what it needs, or the server has another part now. Otherwise it runs again,
    /// and nothing runs before that.
    Wait,
    /// It was answered with this. A command that the primary carried out fails nowhere, unless the
    /// two differ.
    Failure(String),
}

/// Commands after which a replay looks around.
const LOOK_INTERVAL: usize = 256;

/// A client that a log's commands come from. Nothing dies of age meanwhile: what did die when the
/// log was written is deleted by a command of the log.
pub(crate) struct Replay {
    server: &'static Server,
    pub(crate) data: Data,
    stats: Arc<WorkerStats>,
    client: Client,
    replies: Vec<u8>,
    parts: Vec<Part>,
    /// When the last command ended.
    ticks: u64,
    /// Where the stream is, as the log says, and behind its last whole unit.
    place: LogPlace,
    whole_place: LogPlace,
}

impl Replay {
    pub(crate) fn new(server: &'static Server) -> Result<Self, String> {
        let seed = server.clock.now_ms() as u64;
        let data = Data::new(&server.keyspace, &server.gate, seed);
        Ok(Self::with(server, data.ok_or("too many threads")?))
    }

    /// For the commands of a primary: what they change is logged and counted, and clients that
    /// listen are told.
    pub(crate) fn following(server: &'static Server) -> Result<Self, String> {
        let data = background::data(server).ok_or("too many threads, or open files")?;
        let replay = Self::with(server, data);
        server.workers.count_also(&replay.stats);
        Ok(replay)
    }

    /// For a thread that carries out a part of such commands, on shards that the thread lends which
    /// follows the primary.
    pub(crate) fn assisting(server: &'static Server) -> Result<Self, String> {
        let mut replay = Self::new(server)?;
        replay.data.recorder = Recorder::new(server.log.lane());
        server.workers.count_also(&replay.stats);
        Ok(replay)
    }

    fn with(server: &'static Server, mut data: Data) -> Self {
        data.turn.now_ms = server.clock.advance();
        data.turn.clock = server.access_clock(data.turn.now_ms);
        (data.turn.loading, data.turn.sees_dead) = (true, true);
        let info = ClientInfo::new(0, -1, "log".into(), "log".into(), true, data.turn.now_ms);
        Self {
            server,
            data,
            stats: Arc::new(WorkerStats::new(server.registry.all().len())),
            client: Client::new(Arc::new(info), Rights::unlimited()),
            replies: Vec::new(),
            parts: Vec::new(),
            ticks: 0,
            place: LogPlace::Unknown,
            whole_place: LogPlace::Unknown,
        }
    }

    /// Carries out what is read, to its end or to where it is no log any more: up to where it is
    /// good, and how it ended. A transaction that was not finished is not good. `good`: where the
    /// reader is. `look` is told now and then where the reader is; its error ends all.
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

    /// Looks at the clock and at what the configuration says now.
    pub(crate) fn look_around(&mut self) {
        self.ticks = ticks();
        self.data.refresh_time(self.server);
        self.data.follow_config(self.server);
    }

    /// Carries a command out. The error is why it cannot be one of a log: it is not known, or makes
    /// no sense. One that fails when it runs failed when it was logged, too.
    fn run(&mut self, args: &[&[u8]]) -> Result<(), String> {
        self.data.enter();
        let outcome = self.run_entered(args);
        self.data.leave();
        outcome
    }

    /// Carries a command out, as `run` does, while no other thread gets the gate: `data` has
    /// entered. Nothing is held afterwards.
    fn run_entered(&mut self, args: &[&[u8]]) -> Result<(), String> {
        let command = self.server.registry.find(args[0]);
        let first_hash = args.get(1).map_or_else(Hash::default, |key| self.data.key(key).hash);
        let mut executed = self.execute(args, command, first_hash);
        // A log is in order, so what comes next waits for what another thread has to do.
        while self.client.job.is_some() && !self.data.is_dismissed() {
            self.data.release();
            background::pause();
            executed = self.execute(args, command, first_hash);
        }
        self.data.release();
        let outcome = if executed == Executed::Refused { Err(self.complaint()) } else { Ok(()) };
        self.forget_replies();
        outcome
    }

    /// Carries out a command of a primary: `data` has entered. `before_release` is told whether a
    /// transaction goes on, and the database, while the command still holds what it took.
    pub(crate) fn run_relayed(
        &mut self,
        args: &[&[u8]],
        command: Option<&'static Registered>,
        first_hash: Hash,
        before_release: impl FnOnce(bool, u32),
    ) -> Result<(), Hindrance> {
        let executed = self.execute(args, command, first_hash);
        if executed == Executed::Postponed {
            self.client.postpone(false);
            self.data.release();
            self.forget_replies();
            return Err(Hindrance::Wait);
        }
        before_release(self.is_in_transaction(), self.database());
        self.data.release();
        let now = ticks();
        if let Executed::Ran(command) = executed {
            let track = self.server.config.latency_tracking();
            self.stats.commands[command.id].executed(now - self.ticks, track);
            self.stats.totals.commands.add(1);
        }
        self.ticks = now;
        let has_failed = executed == Executed::Refused || self.replies.first() == Some(&b'-');
        let outcome = if has_failed { Err(Hindrance::Failure(self.complaint())) } else { Ok(()) };
        self.forget_replies();
        outcome
    }

    /// Works on a database, on shards that the thread lends which follows the primary.
    pub(crate) fn borrow(&mut self, database: u32, shards: Vec<ShardGuard<'static>>) {
        self.client.database = database;
        self.data.borrow(shards);
    }

    /// Gives back what was borrowed.
    pub(crate) fn give_back(&mut self) -> Vec<ShardGuard<'static>> {
        let shards = self.data.give_back();
        // It frees what no shard should be held for.
        self.data.release();
        shards
    }

    /// Ends the units of shards that this thread lent, in their order. They are held still.
    pub(crate) fn end_borrowed(&mut self, units: impl Iterator<Item = Effects>) {
        units.for_each(|effects| _ = self.data.number_effects(effects));
        if self.data.recorder.take_far_ahead() {
            self.server.put_off_writers_for_log();
        }
        if !self.data.unit.notices.is_empty() {
            self.data.publish_notices(None);
        }
    }

    /// Carries out a command of a primary, whose only key is its first argument, as a unit of its
    /// own. The shard is borrowed, and stays so. Returns what the log gets, which has no number
    /// yet; the error is what the command was answered with.
    pub(crate) fn run_borrowed(
        &mut self,
        args: &[&[u8]],
        command: &'static Registered,
        hash: Hash,
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
            // Nothing may be unlocked, and nothing goes on in slices.
            in_transaction: true,
            may_leave_job: false,
        };
        run(&mut call);
        let effects = self.data.take_effects();
        let now = ticks();
        let track = self.server.config.latency_tracking();
        self.stats.commands[command.id].executed(now - self.ticks, track);
        self.stats.totals.commands.add(1);
        self.ticks = now;
        let has_failed = self.replies.first() == Some(&b'-');
        let outcome = if has_failed { Err(self.complaint()) } else { Ok(()) };
        self.forget_replies();
        (effects, outcome)
    }

    /// Adds what the commands did to the statistics.
    pub(crate) fn count(&mut self) {
        std::mem::take(&mut self.data.counters).add_to(&self.stats.totals);
    }

    /// How many changes of keys that makes, of those that are counted already.
    pub(crate) fn changes(&self) -> u64 {
        self.stats.totals.dirty.get()
    }

    fn forget_replies(&mut self) {
        self.replies.clear();
        self.parts.clear();
    }

    /// What it takes is held afterwards. A command that was postponed goes on where it was.
    fn execute(
        &mut self,
        args: &[&[u8]],
        command: Option<&'static Registered>,
        first_hash: Hash,
    ) -> Executed {
        let executed = match (&self.client.job, command) {
            (Some(_), Some(command)) => Executed::Ran(command),
            _ => {
                let request = Request { command, args, wire: &[], first_hash };
                let mut context = Context {
                    server: self.server,
                    data: &mut self.data,
                    stats: &self.stats,
                    parts: &mut self.parts,
                };
                execute(&mut context, &mut self.client, request, &mut self.replies)
            }
        };
        if self.work() { executed } else { Executed::Postponed }
    }

    /// Works on what a long command has left to be done; `false`: it has to wait.
    fn work(&mut self) -> bool {
        let Some(mut job) = self.client.job.take() else { return true };
        self.data.release();
        self.data.follow_client(&self.client);
        while !job.step(&mut Slice {
            server: self.server,
            data: &mut self.data,
            stats: &self.stats,
            client: &mut self.client,
            more: &mut || true,
        }) {
            if job.is_parked() {
                self.client.job = Some(job);
                return false;
            }
        }
        true
    }

    /// What the last command was answered with, without what marks it as an error.
    fn complaint(&self) -> String {
        let text = String::from_utf8_lossy(&self.replies);
        let text = text.trim_end_matches("\r\n").trim_start_matches('-');
        text.strip_prefix("ERR ").unwrap_or(text).to_owned()
    }

    /// Whether the commands so far end within a transaction.
    pub(crate) const fn is_in_transaction(&self) -> bool {
        self.client.transaction.is_some()
    }

    /// Forgets the transaction that was begun, and the command that waits.
    pub(crate) fn abandon_transaction(&mut self) {
        self.client.transaction = None;
        if let Some(mut job) = self.client.job.take() {
            job.abandon(self.server, &mut self.data);
        }
        self.place = self.whole_place;
    }

    /// Where the stream is behind what was carried out.
    pub(crate) const fn place_behind(&self) -> LogPlace {
        self.whole_place
    }

    /// Begins another file: each selects its database itself.
    pub(crate) const fn begin_file(&mut self) {
        self.client.database = 0;
    }

    /// The database that commands are about.
    pub(crate) const fn database(&self) -> u32 {
        self.client.database
    }

    /// The commands to come are about this database: the first, if there is no such one.
    pub(crate) fn select(&mut self, database: u32) {
        let is_there = i64::from(database) < self.server.config.databases();
        self.client.database = if is_there { database } else { 0 };
    }
}

impl Drop for Replay {
    fn drop(&mut self) {
        self.server.workers.count_no_more(&self.stats);
    }
}
