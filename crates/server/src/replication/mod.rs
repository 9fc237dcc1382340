//! Replication: the server's relation to other servers.
//!
//! As a primary it gives each replica a copy of all keys as they were at one record of the log
//! (`transfer`), and from that record on the stream, which is the log as the feed has it
//! (`replica`). As a replica it follows a primary (`link`). The history of the stream
//! (`engine/log/history`) decides where a server may continue. `commands` has the commands of
//! replicas and of administrators.

pub mod awaited;
pub mod commands;
mod copying;
mod failover;
mod handover;
pub mod link;
mod reception;
mod refusals;
pub mod replica;
pub mod transfer;
mod waits;
pub mod wish;

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::sync::mpsc::channel;

use bobbin_sync::Mutex;

use self::awaited::{AwaitedStreams, Dropped};
use self::copying::Copied;
use self::failover::Failover;
pub use self::failover::FailoverPhase;
use self::link::Link;
use self::reception::Reception;
use self::refusals::Refusals;
use self::replica::{Capability, Replica, ReplicaState};
use self::transfer::{CopyForm, Transfer};
use self::waits::ReplicaWait;
pub use self::waits::WaitGoal;
use self::wish::Dialect;
use crate::base::clock::Interval;
use crate::config::OptionId;
use crate::engine::blocking;
use crate::engine::client::{self, feeder};
use crate::engine::command::Data;
use crate::engine::log::history::HistoryId;
use crate::engine::server::pause::PauseReason;
use crate::engine::server::{Server, Switch, background};
use crate::persistence::aof::{self, Aof, rewrite};
use crate::persistence::position::StreamPosition;
use crate::persistence::snapshot::Contents;
use crate::persistence::{Persistence, load};

/// The state of replication that threads share.
pub struct Replication {
    replicas: Mutex<Vec<Arc<Replica>>>,
    /// How copies were received.
    reception: Reception,
    /// Replicas that were refused a copy.
    refusals: Refusals,
    /// Streams that wait for their replicas' main connections.
    pub awaited: AwaitedStreams,
    /// The connection to the primary; `None`: the server is a primary. Changes only with the gate
    /// held.
    link: Mutex<Option<Arc<Link>>>,
    /// When to look for due work again.
    looks: Interval,
    /// When the stream last got a PING, or began (Unix ms).
    pinged_ms: AtomicI64,
    /// When the last replica left (Unix ms).
    alone_since_ms: AtomicI64,
    /// Clients of WAIT and WAITAOF.
    waits: Mutex<Vec<ReplicaWait>>,
    failover: Mutex<Failover>,
    /// All records up to this one are in the stream.
    fed: AtomicU64,
    pub figures: ReplicationFigures,
}

/// The figures that INFO shows.
#[derive(Default)]
pub struct ReplicationFigures {
    pub full_syncs: AtomicU64,
    pub partial_syncs: AtomicU64,
    pub refused_partial_syncs: AtomicU64,
}

impl ReplicationFigures {
    /// Resets the figures for CONFIG RESETSTAT.
    pub fn reset(&self) {
        for count in [&self.full_syncs, &self.partial_syncs, &self.refused_partial_syncs] {
            count.store(0, Ordering::Relaxed);
        }
    }
}

/// How often threads look for due work.
const LOOK_MS: i64 = 100;
/// How many times a thread pauses for the log's thread, for a client that asks for the offset.
const SETTLE_TRIES: usize = 40;

impl Default for Replication {
    fn default() -> Self {
        Self {
            replicas: Mutex::default(),
            reception: Reception::default(),
            refusals: Refusals::default(),
            awaited: AwaitedStreams::default(),
            link: Mutex::default(),
            looks: Interval::default(),
            pinged_ms: AtomicI64::new(i64::MAX),
            alone_since_ms: AtomicI64::new(0),
            waits: Mutex::default(),
            failover: Mutex::default(),
            fed: AtomicU64::new(0),
            figures: ReplicationFigures::default(),
        }
    }
}

impl Replication {
    pub fn of(server: &Server) -> &Self {
        server.parts.get()
    }

    /// The connection to the primary; `None`: the server is a primary.
    pub fn link(&self) -> Option<Arc<Link>> {
        self.link.lock().clone()
    }

    /// Calls `f` if this is the server's current link. The link stays current until `f` returns.
    fn if_followed(&self, link: &Link, f: impl FnOnce()) {
        let current = self.link.lock();
        if current.as_ref().is_some_and(|current| std::ptr::eq(&raw const **current, link)) {
            f();
        }
    }

    /// The position that a replica asks its primary to continue from: the history, and the offset
    /// of the next byte.
    fn position(&self, server: &Server) -> Option<(String, u64)> {
        server.feed.is_on().then(|| (server.feed.id().to_string(), server.feed.published()))
    }

    /// The offset behind every change that clients have had a reply for. A record gets into the
    /// stream a moment after its client gets the reply. So this thread merges the log, or waits
    /// until the log's thread has. While that uses the disk, which may be slow, nobody waits for
    /// it: then the offset is that of what was merged before.
    pub fn settled_offset(server: &Server) -> u64 {
        let aof = Aof::of(server);
        if server.feed.takes_log() {
            let mut tries = SETTLE_TRIES;
            while !aof.feed_here() && tries > 0 {
                tries -= 1;
                background::pause();
            }
            // The thread that writes publishes only behind that.
            if !aof.keeps_back_replies() {
                server.publish_feed();
            }
        }
        server.feed.published()
    }

    /// Takes the primary's new name for the history. Our replicas learn it when they reconnect. The
    /// caller holds the gate.
    fn follow_name(&self, server: &Server, id: HistoryId) {
        if server.feed.change_history(|it| it.rename(id, server.feed.published())) {
            self.dismiss(server);
        }
    }

    /// Makes the server a replica of another one. Our replicas stay connected: whether our history
    /// continues is known only when the new primary has answered. The caller holds the gate.
    pub fn follow(&self, server: &'static Server, host: String, port: u16) -> Result<(), String> {
        // Our stream ends with the last record. Its offset is known once that record is merged.
        let (done, is_merged) = channel();
        let named = format!("{host} {port}");
        aof::need_writer(server)?;
        // If starting the link fails, the configuration is restored.
        let before = server.config.words_of(OptionId::replicaof).join(" ");
        server.config.set_internally(OptionId::replicaof, &named)?;
        let link = Link::start(server, (host, port), self.link().as_deref(), is_merged)
            .inspect_err(|_| {
                server.config.set_internally(OptionId::replicaof, &before).ok();
            })?;
        if let Some(old) = self.link.lock().replace(Arc::clone(&link)) {
            old.end();
        }
        let end = move |_| {
            server.publish_feed();
            // The server may be a primary again by now.
            Self::of(server).if_followed(&link, || server.feed.relay(true));
            // The link's thread waits for this message, unless it has ended.
            done.send(()).ok();
        };
        aof::splice_feed(server, end)?;
        server.switches.set(Switch::LINK_DOWN, true);
        server.switches.set(Switch::REPLICA, true);
        server.services.follow_role(&server.config, true);
        self.follow_count(server);
        // A failover may yet be given up: its clients wait until it is done.
        if self.failover_phase() == FailoverPhase::None {
            blocking::dismiss_all(server);
        }
        Ok(())
    }

    /// Continues the stream at the position that the loaded file gives, if it gives one. No client
    /// is served yet. The caller holds no lock.
    pub fn resume(server: &'static Server) -> Result<(), String> {
        let replication = Self::of(server);
        let gate = server.gate.take();
        let is_replica = server.config.names_primary();
        // Set now, so that no client writes before the primary is followed.
        server.switches.set(Switch::LINK_DOWN | Switch::REPLICA, is_replica);
        let position = Persistence::of(server).loading.position();
        let Some(StreamPosition { id, offset, database }) = position else { return Ok(()) };
        if !server.feed.is_on() {
            server.feed.begin(offset);
        }
        server.feed.change_history(|history| history.take(id));
        if is_replica {
            server.feed.relay(true);
            server.feed.set_relayed_database(database);
            log::info!("Replication goes on from {id}:{offset} if the primary agrees");
        } else {
            server.feed.change_history(|history| history.rename(HistoryId::new(), offset));
            replication.alone_since_ms.store(server.clock.now_ms(), Ordering::Relaxed);
            aof::follow_readers(server);
            aof::splice_feed(server, |_| {})?;
            log::info!("Replicas may go on from {id}:{offset}");
        }
        drop(gate);
        Ok(())
    }

    /// Follows the primary that the configuration names, if there is one, and lets clients in. The
    /// caller holds no lock.
    pub fn begin(server: &'static Server) -> Result<(), String> {
        let words = server.config.words_of(OptionId::replicaof);
        let [host, port] = &words[..] else {
            load::end_loading(server);
            return Ok(());
        };
        let port = port.parse().map_err(|_| "replicaof names no port")?;
        let mut data = background::data(server).ok_or("too many threads, or open files")?;
        data.enter();
        data.hold_gate_anyway();
        let outcome = Self::of(server).follow(server, host.clone(), port);
        // The link's thread can begin to load only after this, because it needs the gate.
        load::end_loading(server);
        data.release();
        data.leave();
        outcome
    }

    /// Stops executing a primary's commands, because the server ends.
    pub fn end_link(server: &Server) {
        let gate = server.gate.take();
        Self::of(server).link().iter().for_each(|link| link.end());
        drop(gate);
    }

    /// Makes the server a primary. The caller holds the gate.
    pub fn lead(&self, server: &'static Server) {
        let Some(link) = self.link.lock().take() else { return };
        link.end();
        // If the feed still takes the log, it has nothing of the primary. Then our history
        // continues under its own name with the logged records, some of which may not be merged
        // yet.
        let is_ours = server.feed.takes_log();
        // Publish what was executed, in case the link's thread has not.
        server.publish_feed();
        if let Err(error) = server.config.set_internally(OptionId::replicaof, "no one") {
            log::warn!("Can't note that there is no primary any more: {error}");
        }
        if !is_ours {
            let end = server.feed.published();
            server.feed.change_history(|history| history.rename(HistoryId::new(), end));
            server.feed.lead_from(server.log.last());
        }
        // Replicas of the old primary may now connect and continue where they are.
        self.alone_since_ms.store(server.clock.now_ms(), Ordering::Relaxed);
        server.switches.set(Switch::REPLICA, false);
        server.switches.set(Switch::LINK_DOWN, false);
        server.services.follow_role(&server.config, false);
        self.follow_count(server);
        aof::follow_readers(server);
        if !is_ours
            && server.feed.is_on()
            && let Err(error) = aof::splice_feed(server, |_| {})
        {
            log::warn!("Can't go on with the stream: {error}");
        }
        self.dismiss(server);
    }

    /// Makes all replicas reconnect, because the history may have another name.
    fn dismiss(&self, server: &Server) {
        for replica in self.replicas() {
            client::kill(server, &replica.client);
        }
    }

    /// All replicas, including those that wait for their copy.
    pub fn replicas(&self) -> Vec<Arc<Replica>> {
        self.replicas.lock().clone()
    }

    /// Whether there are replicas, including those that wait for their copy.
    pub fn has_replicas(&self) -> bool {
        !self.replicas.lock().is_empty()
    }

    /// How many replicas are recent enough for `min-replicas-to-write`.
    pub fn good(&self, server: &Server) -> usize {
        let (now_ms, lag_ms) = (server.clock.now_ms(), server.config.min_replicas_max_lag() * 1000);
        let is_good = |replica: &&Arc<Replica>| {
            replica.state() == ReplicaState::Online && now_ms - replica.acked_ms() <= lag_ms
        };
        self.replicas.lock().iter().filter(is_good).count()
    }

    /// Refuses writes while there are fewer replicas than `min-replicas-to-write`.
    pub fn follow_count(&self, server: &Server) {
        let config = &server.config;
        let wanted = config.min_replicas_to_write() as usize;
        let counts = wanted > 0 && config.min_replicas_max_lag() > 0 && self.link().is_none();
        let too_few = counts && self.good(server) < wanted;
        if too_few != (server.switches.has(Switch::FEW_REPLICAS)) {
            server.switches.set(Switch::FEW_REPLICAS, too_few);
        }
    }

    fn add(&self, server: &Server, replica: &Arc<Replica>) {
        self.replicas.lock().push(Arc::clone(replica));
        self.follow_count(server);
        self.look_soon();
    }

    /// Makes a worker look for due work soon.
    fn look_soon(&self) {
        self.looks.make_due();
    }

    /// Whether the stream must not grow, because replicas are catching up with it.
    fn stream_stands_still(&self, server: &Server) -> bool {
        server.is_paused_for(PauseReason::Failover) || server.is_paused_for(PauseReason::Shutdown)
    }

    fn remove(&self, server: &Server, replica: &Arc<Replica>) {
        let mut replicas = self.replicas.lock();
        replicas.retain(|other| !Arc::ptr_eq(other, replica));
        if replicas.is_empty() {
            self.alone_since_ms.store(server.clock.now_ms(), Ordering::Relaxed);
        }
        drop(replicas);
        self.follow_count(server);
    }

    /// Does due work. Every worker calls this now and then, with nothing locked.
    #[inline]
    pub fn tick(server: &'static Server, data: &mut Data) {
        if Self::of(server).looks.claim(data.conditions.now_ms, LOOK_MS) {
            Self::of(server).look(server, data);
        }
    }

    #[cold]
    fn look(&self, server: &'static Server, data: &mut Data) {
        let now_ms = data.conditions.now_ms;
        let replicas = self.replicas();
        self.follow_count(server);
        self.answer_waits(server);
        self.look_at_failover(server, data);
        self.drop_awaited(now_ms);
        // A replica may have gone, or have read what was kept for it, with nothing published since.
        server.trim_feed();
        let is_primary = self.link().is_none();
        if replicas.is_empty() {
            if is_primary && self.awaited.count() == 0 {
                self.forget_backlog(server, data);
            }
            return;
        }
        if is_primary {
            self.ping(server, now_ms);
        }
        // These replicas have timeouts and output limits that must be checked even if nothing
        // happens.
        let has_all = |replica: &&Arc<Replica>| replica.state() == ReplicaState::Online;
        replicas.iter().filter(|replica| !has_all(replica)).for_each(|replica| {
            feeder::wake(server, &replica.client);
        });
        if self.due_for_copy(server, now_ms).is_some() && data.hold_gate() {
            // Another thread may have begun a copy before this one had the gate.
            if let Some(waiting) = self.due_for_copy(server, now_ms) {
                self.copy_or_refuse(server, data, &waiting);
            }
            data.release();
        }
    }

    /// The replica with this client.
    fn replica_of(&self, client: u64) -> Option<Arc<Replica>> {
        self.replicas.lock().iter().find(|replica| replica.client.id == client).cloned()
    }

    /// Whether this client is a replica that gets a copy or the stream.
    fn is_fed(&self, client: u64) -> bool {
        self.replica_of(client).is_some()
    }

    /// Whether this client is a replica that is opening another connection for its copy.
    fn opens_channel(&self, client: u64) -> bool {
        self.replica_of(client).is_some_and(|replica| replica.state() == ReplicaState::OpensChannel)
    }

    /// Whether there is a connection for the copy of the replica with this main client.
    fn has_channel_of(&self, main_client: u64) -> bool {
        let is_its = |replica: &Arc<Replica>| replica.main_client() == Some(main_client);
        self.replicas.lock().iter().any(is_its)
    }

    /// If this client is a replica, makes it look for something to send.
    fn wake(&self, server: &Server, client: u64) {
        if let Some(replica) = self.replica_of(client) {
            feeder::wake(server, &replica.client);
        }
    }

    /// Drops streams whose main connections have not come in time.
    fn drop_awaited(&self, now_ms: i64) {
        for (client, why) in self.awaited.look(now_ms) {
            match why {
                Dropped::TooLate(late_ms) => log::info!(
                    "Replica main channel failed to establish PSYNC within the grace period ({} \
                     seconds). Freeing RDB client {client}.",
                    late_ms / 1000
                ),
                Dropped::TooMuch => log::warn!(
                    "The stream is not kept any more for the replica whose rdb channel was client \
                     {client}: more waits for it than client-output-buffer-limit allows"
                ),
            }
        }
    }

    /// The replicas for which a copy may begin now, if there are any.
    fn due_for_copy(&self, server: &Server, now_ms: i64) -> Option<Vec<Arc<Replica>>> {
        let waiting = transfer::waiting(&self.replicas());
        let busy = Switch::LOADING | Switch::CRON_PAUSED | Switch::BUSY;
        let may_begin = !waiting.is_empty()
            && !server.switches.has(busy)
            && !rewrite::cut_is_busy(server)
            && transfer::is_time(server, &waiting, now_ms);
        may_begin.then_some(waiting)
    }

    /// Begins a copy for replicas with the same wish, or refuses them with the reason. `data` holds
    /// the gate.
    fn copy_or_refuse(&self, server: &'static Server, data: &mut Data, waiting: &[Arc<Replica>]) {
        let wish = waiting.first().map(|first| first.wish()).unwrap_or_default();
        let refusal = match transfer::obstacle(server, data, wish) {
            Some(obstacle) => Some(obstacle.text()),
            None => self.begin_transfer(server, data, waiting).err().map(|error| {
                log::warn!("BGSAVE for replication failed: {error}");
                "BGSAVE failed, replication can't continue"
            }),
        };
        if let Some(reason) = refusal {
            let now_ms = data.conditions.now_ms;
            waiting.iter().for_each(|replica| self.refuse(server, replica, reason, now_ms));
        }
    }

    /// Refuses a replica its copy, and tells it why.
    fn refuse(&self, server: &Server, replica: &Replica, reason: &'static str, now_ms: i64) {
        let refusal = self.refusals.note(replica, reason, now_ms);
        match refusal.to_tell {
            0 => {}
            1 => log::warn!("Refusing a copy to replica {}: {reason}", replica.name()),
            times => log::warn!(
                "Refusing a copy to replica {}: {reason} ({times} times in a minute)",
                replica.name()
            ),
        }
        replica.refuse(server, refusal);
    }

    /// The log level for a replica that connects or leaves. A replica that was just refused tries
    /// again and again, so it is logged at a lower level.
    fn level_of(&self, replica: &Replica, now_ms: i64) -> log::Level {
        if self.refusals.has(replica, now_ms) { log::Level::Debug } else { log::Level::Info }
    }

    /// Adds a PING to the stream, if one is due, so that replicas see that the primary is alive.
    fn ping(&self, server: &Server, now_ms: i64) {
        let pinged_ms = self.pinged_ms.fetch_min(now_ms, Ordering::Relaxed);
        let period_ms = server.config.repl_ping_replica_period() * 1000;
        if server.feed.is_on()
            && !self.stream_stands_still(server)
            && now_ms.saturating_sub(pinged_ms) >= period_ms
        {
            self.pinged_ms.store(now_ms, Ordering::Relaxed);
            server.feed.insert(&[b"PING"]);
            server.log.wake();
        }
    }

    /// Ends the feed if there were no replicas for `repl-backlog-ttl`.
    fn forget_backlog(&self, server: &'static Server, data: &mut Data) {
        // A starting primary continues its stream while it loads, and has no replicas until then.
        if server.switches.has(Switch::LOADING) {
            return;
        }
        let ttl_ms = server.config.repl_backlog_ttl().saturating_mul(1000);
        // If the system's clock was set back, the time begins anew.
        let now_ms = data.conditions.now_ms;
        let alone_ms =
            now_ms - self.alone_since_ms.fetch_min(now_ms, Ordering::Relaxed).min(now_ms);
        if ttl_ms == 0 || !server.feed.is_on() || alone_ms <= ttl_ms || !data.hold_gate() {
            return;
        }
        log::info!("Replication backlog freed after {} seconds without replicas", ttl_ms / 1000);
        server.feed.end();
        aof::follow_readers(server);
        data.recorder.refresh();
        data.release();
    }

    /// The dialect of a replica, from what it has said and how it received earlier copies. `None`:
    /// it can read no copy that we can make.
    fn dialect(&self, replica: &Replica, now_ms: i64) -> Option<Dialect> {
        let version = replica.version.load(Ordering::Relaxed);
        match Dialect::of(version, replica.has(Capability::REDIS_CHANNEL)) {
            // Valkey before 9.1.2 does not give its version on this connection.
            Dialect::Silent if replica.is_copy_channel() => Some(Dialect::Valkey8),
            // A tool keeps the copy to load it into a server like this one.
            Dialect::Silent if replica.copy_only.load(Ordering::Relaxed) => Some(Dialect::Valkey9),
            // Without a port it serves no clients: it is a tool that reads the stream.
            Dialect::Silent if replica.port() != 0 => self.reception.dialect(replica, now_ms),
            dialect => Some(dialect),
        }
    }

    /// Begins to copy all keys to these replicas. `data` holds the gate.
    fn begin_transfer(
        &self,
        server: &'static Server,
        data: &mut Data,
        replicas: &[Arc<Replica>],
    ) -> Result<(), String> {
        let beside = copying::beside().map_err(|error| error.to_string())?;
        if !server.feed.is_on() {
            server.feed.begin(server.feed.published());
            if self.link().is_none() {
                server.feed.lead_from(server.log.last());
            }
            self.pinged_ms.store(data.conditions.now_ms, Ordering::Relaxed);
            aof::follow_readers(server);
            data.recorder.refresh();
        }
        let transfer = Arc::new(Transfer::new(server, replicas));
        let database = if self.link().is_some() {
            // The stream is a primary's: it holds exactly what was executed.
            let database = Some(server.feed.relayed_database());
            transfer.begin(server.feed.end_offset(), database);
            database
        } else {
            let spliced = Arc::clone(&transfer);
            aof::splice_feed(server, move |offset| spliced.begin(offset, None))?;
            None
        };
        let parts = transfer.wish().parts;
        let copied = if parts.keys {
            Copied::All(Contents::begin(server, data, "full synchronization"))
        } else if parts.functions {
            Copied::Libraries(server.functions.all())
        } else {
            Copied::Libraries(Vec::new())
        };
        self.figures.full_syncs.fetch_add(replicas.len() as u64, Ordering::Relaxed);
        let target = match transfer.form() {
            CopyForm::Marked(_) => "replicas sockets",
            CopyForm::Sized => "disk",
        };
        let is_dual = replicas.iter().any(|replica| replica.is_copy_channel());
        let how = if is_dual { "dual-channel" } else { "normal sync" };
        log::info!("Starting BGSAVE for SYNC with target: {target} using: {how}");
        for replica in replicas {
            replica.receive(&transfer);
            feeder::wake(server, &replica.client);
        }
        beside.run(move || transfer.run(copied, database));
        Ok(())
    }
}
