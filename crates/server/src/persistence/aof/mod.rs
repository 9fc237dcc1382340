//! The append-only file: the log of all changes on disk. At the start the server rebuilds its data
//! from it.
//!
//! The log consists of a base and of increments, which a [`manifest`] lists. One thread
//! ([`writer`]) takes the log's records in their order, appends them to the current increment, and
//! syncs the file as `appendfsync` says. With `everysec` another thread ([`syncer`]) does the
//! syncing. With `always`, workers keep replies back until [`Aof::durable`] has reached the records
//! that the replies may tell of; one `fsync` serves all that wait. An idle worker writes and syncs
//! the log itself while the disk is quick ([`Aof::commit_here`]). A worker with other work never
//! waits for the disk.

mod directory;
pub mod load;
mod manifest;
pub mod place;
pub(crate) mod reader;
pub(crate) mod replay;
pub mod rewrite;
mod syncer;
pub mod unkept;
mod writer;

use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use bobbin_io::error_text;
use bobbin_sync::{Mutex, OwnLine};

pub use directory::AofDirectory;
pub use manifest::{AofFile, Manifest};
pub use reader::{AofFault, AofItem, AofReader};
pub use rewrite::Rewrites;

use self::place::LogPlace;
use self::unkept::Unkept;
use self::writer::{AofWriter, WriterOrder};
use crate::base::clock::{Clock, ticks};
use crate::base::cores::CoreWork;
use crate::base::files::File;
use crate::config::AppendFsync;
use crate::engine::blocking::Waiter;
use crate::engine::command::{Data, Failure};
use crate::engine::server::{Server, Switch, background};
use crate::engine::telemetry::latency::LatencyEvent;
use crate::persistence::Persistence;

/// The state of the log on disk that threads share.
///
/// It has many fields because any thread may read each of them without a lock.
#[derive(Default)]
pub struct Aof {
    /// The manifest as it is on disk.
    manifest: Mutex<Manifest>,
    /// The manifest lists a log that the server did not load, so another log does not replace it.
    is_unloaded: AtomicBool,
    orders: Mutex<Vec<WriterOrder>>,
    has_orders: AtomicBool,
    /// Set once there is something to write. A thread that locks the writer takes no further locks
    /// except those in the writer's functions.
    writer: OnceLock<Mutex<AofWriter>>,
    /// Until then, in ticks, workers leave writing and syncing to the log's thread.
    slow_until: AtomicU64,
    /// When the writer's current step began (Unix ms). 0: no step is in progress.
    step_began_ms: AtomicI64,
    /// The writer uses the disk. A thread that waits for the writer then may wait for long.
    is_at_disk: AtomicBool,
    /// The syncer's thread is in an `fsync`.
    pub syncs_beside: AtomicBool,
    /// Replies wait for the disk. Each turn reads this.
    keeps_back_replies: OwnLine<AtomicBool>,
    /// The last record that is on disk.
    durable: AtomicU64,
    /// The log was turned on and has no base yet, so its files are of no use.
    waits_for_base: AtomicBool,
    /// The log is kept on disk.
    is_on: AtomicBool,
    /// How many times an `fsync` failed. The bytes that it should have synced may be lost, even if
    /// later calls succeed.
    gaps: AtomicU64,
    /// How many of these gaps the current base covers. While there are others, no further record
    /// counts as durable.
    mended_gaps: AtomicU64,
    /// Clients of WAITAOF, and the record that each waits for.
    waiters: Mutex<Vec<(u64, Arc<Waiter>)>>,
    /// DEBUG AOF-FLUSH-SLEEP: an additional delay of each write.
    pub write_delay_us: AtomicU64,
    pub rewrites: Rewrites,
    unkept: Unkept,
    pub figures: AofFigures,
}

/// The figures that INFO shows.
#[derive(Default)]
pub struct AofFigures {
    /// The length of all files that are read at the start, in bytes.
    pub size: AtomicU64,
    /// The length of all files after the last rewrite, or of the base that was loaded, in bytes.
    pub base_size: AtomicU64,
    /// The length of the current increment, in bytes.
    pub increment_size: AtomicU64,
    /// How many times writing waited for a slow disk.
    pub delayed_fsync: AtomicU64,
}

/// WAITAOF's error if there is no log on disk.
pub const NO_LOG: Failure =
    Failure::new(&"ERR WAITAOF cannot be used when numlocal is set but appendonly is disabled.");
/// A longer `fsync` counts as delayed. Redis waits for the same time before it counts one.
const SLOW_SYNC_US: u64 = 2_000_000;
/// The writer is stuck if one of its steps takes longer than this.
const STUCK_MS: i64 = 1000;
/// Workers wait themselves for a disk that takes no longer than this: waking two threads would take
/// a good part of that time.
const QUICK_STEP_US: u64 = 1_000;
/// After a slow step, workers leave the disk to the log's thread for this long at most.
const REST_MAX_US: u64 = 600_000_000;

/// How long workers leave the disk to the log's thread after a step that took `step_us`. A worker
/// that waits for the disk serves no clients. A step of a few milliseconds may be chance, but a
/// disk that hung for seconds may soon do so again.
fn rest_us(step_us: u64) -> u64 {
    if step_us <= QUICK_STEP_US {
        return 0;
    }
    step_us.saturating_mul(step_us / QUICK_STEP_US).min(REST_MAX_US)
}

impl Aof {
    pub fn of(server: &Server) -> &Self {
        server.parts.get()
    }

    /// The number of the last record that is on disk.
    #[inline]
    pub fn durable(&self) -> u64 {
        self.durable.load(Ordering::SeqCst)
    }

    /// The last record that would survive a crash. `None`: the log has no base, so nothing would
    /// survive, not even the changes made before the log was turned on.
    pub fn kept(&self) -> Option<u64> {
        // This order matters: the base appears only after the records that it covers are durable.
        (!self.is_waiting_for_base()).then(|| self.durable())
    }

    /// Whether the log is kept on disk.
    pub fn is_on(&self) -> bool {
        self.is_on.load(Ordering::SeqCst)
    }

    /// Turns the log on disk on or off. The caller holds the gate.
    fn switch(&self, server: &Server, on: bool) {
        self.is_on.store(on, Ordering::SeqCst);
        follow_readers(server);
    }

    /// Whether replies have to wait for the disk.
    #[inline(always)]
    pub fn keeps_back_replies(&self) -> bool {
        self.keeps_back_replies.0.load(Ordering::Relaxed)
    }

    /// The last record that clients may hear of.
    pub fn tellable(&self) -> u64 {
        if self.keeps_back_replies.0.load(Ordering::SeqCst) { self.durable() } else { u64::MAX }
    }

    /// Whether the log is of no use until a base is written.
    pub fn is_waiting_for_base(&self) -> bool {
        self.waits_for_base.load(Ordering::SeqCst)
    }

    /// Whether only a new base makes the log complete.
    fn needs_base(&self) -> bool {
        self.is_waiting_for_base() || self.has_gap()
    }

    fn has_gap(&self) -> bool {
        self.gaps.load(Ordering::SeqCst) != self.mended_gaps.load(Ordering::SeqCst)
    }

    /// Answers a client of WAITAOF once a record is on disk.
    pub fn await_record(&self, server: &Server, number: u64, waiter: Arc<Waiter>) {
        self.waiters.lock().push((number, waiter));
        self.answer_waiters(server);
        server.log.wake();
    }

    /// Tells the clients of WAITAOF that there is no log any more.
    fn refuse_waiters(&self, server: &Server) {
        let waiters = std::mem::take(&mut *self.waiters.lock());
        waiters.into_iter().for_each(|(_, waiter)| waiter.answer(server, |_| Err(NO_LOG)));
    }

    /// Answers the clients of WAITAOF whose records are on disk.
    fn answer_waiters(&self, server: &Server) {
        let kept = self.kept();
        let mut waiters = self.waiters.lock();
        if waiters.is_empty() {
            return;
        }
        let over: Vec<_> = waiters.extract_if(.., |(number, _)| Some(*number) <= kept).collect();
        waiters.retain(|(_, waiter)| waiter.is_waiting());
        drop(waiters);
        for (_, waiter) in over {
            waiter.answer(server, |reply| {
                reply.array(2);
                reply.integer(1);
                reply.integer(0);
                Ok(())
            });
        }
    }

    /// Writes and syncs the log in the calling thread, unless another thread is doing so or the
    /// disk was slow lately. Returns whether it did. The caller holds no lock.
    pub fn commit_here(&self) -> bool {
        let Some(writer) = self.writer.get().filter(|_| self.is_quick()) else { return false };
        writer.try_lock().is_some_and(|mut writer| writer.step_beside())
    }

    /// Whether the disk was quick lately.
    fn is_quick(&self) -> bool {
        ticks() >= self.slow_until.load(Ordering::Relaxed)
    }

    /// Gives the feed all records that clients have had a reply for, without the disk. `false`: it
    /// will have them in a moment, because another thread is about to give them. If that thread
    /// uses the disk, the feed has what it can have.
    pub fn feed_here(&self) -> bool {
        let Some(writer) = self.writer.get() else { return true };
        let Some(mut writer) = writer.try_lock() else {
            return self.is_at_disk.load(Ordering::Relaxed);
        };
        if !self.keeps_back_replies() {
            return writer.feed_beside();
        }
        // The feed has what is on disk, and there is a reply for nothing else. For the sake of what
        // the client itself has just sent, this thread waits for the disk while that is quick.
        if self.is_quick() {
            writer.step_beside();
        }
        true
    }

    /// Whether the writer has been in one step for more than a second. Changes that are
    /// acknowledged meanwhile are lost if the server is killed.
    pub fn is_stuck(&self, now_ms: i64) -> bool {
        let began_ms = self.step_began_ms.load(Ordering::Relaxed);
        if began_ms > now_ms {
            // If the system's clock was set back, the time begins anew.
            self.step_began_ms.fetch_min(now_ms, Ordering::Relaxed);
        }
        began_ms != 0 && now_ms - began_ms > STUCK_MS
    }

    /// Notes how long it took to write and sync records.
    fn note_step(&self, clock: &Clock, time: Duration) {
        let rest_us = rest_us(time.as_micros() as u64);
        if rest_us > 0 {
            self.slow_until.fetch_max(ticks() + clock.ticks(rest_us), Ordering::Relaxed);
        }
    }

    fn order(&self, server: &Server, order: WriterOrder) {
        self.orders.lock().push(order);
        self.has_orders.store(true, Ordering::SeqCst);
        server.log.wake();
    }
}

/// Loads the data from the log and opens the log for appending. Clients are told to wait meanwhile.
/// `false`: the server was told to end.
pub fn start_log(server: &'static Server) -> Result<bool, String> {
    let (file, place) = match load::load_and_open(server) {
        Ok(opened) => opened,
        Err(_) if server.end.is_wanted() => return Ok(false),
        Err(error) => return Err(error),
    };
    start_writer(server, Some(file), place)?;
    let gate = server.gate.take();
    Aof::of(server).switch(server, true);
    follow_log_config(server);
    drop(gate);
    Ok(true)
}

/// Starts without a log, as `appendonly` says, but reads the manifest of the log on disk. So the
/// files of that log are not overwritten, and it stays valid until there is a new base. Then it is
/// kept under another name, because its data was not loaded.
pub fn start_without_log(server: &'static Server) -> Result<(), String> {
    let directory = AofDirectory::of(&server.config);
    if let Some(mut manifest) = directory.find()? {
        rewrite::collect_history(server, &directory, &mut manifest);
        let aof = Aof::of(server);
        *aof.manifest.lock() = manifest;
        aof.is_unloaded.store(true, Ordering::SeqCst);
    }
    Ok(())
}

/// Turns the log on or off, as `appendonly` says now. The caller holds the gate. `within`: a
/// transaction is being executed, so no base may be taken now: it would hold half of it.
pub fn switch_log(server: &'static Server, data: &mut Data, within: bool) -> Result<(), String> {
    let aof = Aof::of(server);
    let on = server.config.appendonly();
    if on == aof.is_on() {
        return Ok(());
    }
    if on {
        let directory = AofDirectory::of(&server.config);
        directory.prepare().map_err(|error| {
            log::warn!("Can't create the files of the log {directory}: {}", error_text(&error));
            "Unable to turn on AOF. Check server logs.".to_owned()
        })?;
        need_writer(server)?;
        // A rewrite in progress lacks the changes from its cut until now.
        aof.rewrites.cancel();
        aof.waits_for_base.store(true, Ordering::SeqCst);
        aof.switch(server, true);
        if within || rewrite::cut_is_busy(server) {
            let why = if within { "within a transaction" } else { "during other work" };
            log::info!("AOF was enabled {why}: an AOF background was scheduled");
            aof.rewrites.schedule();
        } else {
            rewrite::begin_rewrite(server, data);
        }
    } else {
        if !server.feed.takes_log() {
            // The log needs no half of the transaction that is being executed.
            data.forget_effects();
        }
        aof.rewrites.cancel();
        aof.switch(server, false);
        aof.order(server, WriterOrder::Stop { after: server.log.last() });
        aof.refuse_waiters(server);
    }
    data.recorder.refresh();
    follow_log_config(server);
    Ok(())
}

/// Begins the log anew, because the data was replaced in another way than by logged commands.
/// Nothing more is written until a new base holds the current data. Until then the files hold the
/// earlier data. The caller holds the gate.
pub fn replace_log(server: &'static Server, data: &mut Data) {
    let aof = Aof::of(server);
    if !aof.is_on() {
        return;
    }
    aof.rewrites.cancel();
    aof.order(server, WriterOrder::Stop { after: server.log.last() });
    aof.waits_for_base.store(true, Ordering::SeqCst);
    if rewrite::cut_is_busy(server) {
        aof.rewrites.schedule();
    } else {
        rewrite::begin_rewrite(server, data);
    }
}

/// Follows `appendfsync`. The caller holds the gate.
pub fn follow_log_config(server: &Server) {
    let aof = Aof::of(server);
    let holds = aof.is_on() && server.config.appendfsync() == AppendFsync::Always;
    let held = aof.keeps_back_replies.0.swap(holds, Ordering::SeqCst);
    server.choose_log_numbers();
    if held && !holds {
        // Replies that wait may go: nothing more is promised of the disk, which may be full.
        server.workers.tell_durable();
    }
    server.log.wake();
}

/// Writes and syncs the rest of the log. No thread adds to the log any more.
pub fn end_log(server: &Server) {
    if Aof::of(server).writer.get().is_some() {
        // This fails only if the writer is gone, and then there is nothing to wait for.
        settle_log(server).recv().ok();
    }
}

/// Has everything that was logged so far, and is all, written and synced, and then notifies the
/// receiver.
fn settle_log(server: &Server) -> Receiver<()> {
    let (done, wait) = channel();
    Aof::of(server).order(server, WriterOrder::Settle { number: server.log.last(), done });
    wait
}

/// Whether there is a complete log on disk, and the disk accepts the rest of it.
pub fn has_log_to_load(server: &Server) -> bool {
    let aof = Aof::of(server);
    let waits = aof.is_on() && aof.needs_base();
    let failed = server.switches.has(Switch::LOG_FAILED);
    !waits
        && !failed
        && AofDirectory::of(&server.config).load().is_ok_and(|manifest| manifest.is_some())
}

/// Loads the log in a thread of its own, after writing the rest of it, and answers the waiter. No
/// other client is served meanwhile. The caller holds the gate, and the keyspace is empty. If the
/// log cannot be loaded the process ends, because its data is gone.
pub fn load_log_again(server: &'static Server, waiter: Arc<Waiter>) {
    server.switches.set(Switch::LOADING, true);
    let run = move || {
        end_log(server);
        if let Err(error) = load::load_again(server) {
            log::error!("{error}");
            log::error!("Fatal error loading the append only file. Exiting.");
            std::process::exit(1);
        }
        Persistence::of(server).set_saved(server.workers.totals().dirty.get());
        super::load::end_loading(server);
        log::warn!("Append Only File loaded by DEBUG LOADAOF");
        waiter.answer(server, |reply| {
            reply.ok();
            Ok(())
        });
    };
    let spawned = std::thread::Builder::new().name("bobbin-load".into()).spawn(run);
    if let Err(error) = spawned {
        log::error!("Can't start a thread to load with: {}. Exiting.", error_text(&error));
        std::process::exit(1);
    }
}

/// Keeps the log on while the disk or replicas read it. The caller holds the gate.
pub fn follow_readers(server: &Server) {
    server.log.switch(Aof::of(server).is_on() || server.feed.takes_log());
}

/// Has the feed begin with the next record. The log's thread calls `begin` with the offset. The
/// caller holds the gate.
pub fn splice_feed(
    server: &'static Server,
    begin: impl FnOnce(u64) + Send + 'static,
) -> Result<(), String> {
    need_writer(server)?;
    let (after, then) = (server.log.last(), Box::new(begin));
    Aof::of(server).order(server, WriterOrder::Feed { after, then, begins: true });
    Ok(())
}

/// Has the log's thread call `then` once a record is in the feed, with the offset behind it.
pub fn reach_in_feed(
    server: &'static Server,
    number: u64,
    then: impl FnOnce(u64) + Send + 'static,
) -> Result<(), String> {
    need_writer(server)?;
    let then = Box::new(then);
    Aof::of(server).order(server, WriterOrder::Feed { after: number, then, begins: false });
    Ok(())
}

/// Makes sure that there is a thread that reads the log.
pub fn need_writer(server: &'static Server) -> Result<(), String> {
    if Aof::of(server).writer.get().is_none() {
        start_writer(server, None, LogPlace::Unknown)
    } else {
        Ok(())
    }
}

fn start_writer(
    server: &'static Server,
    file: Option<File>,
    place: LogPlace,
) -> Result<(), String> {
    let aof = Aof::of(server);
    let run = move || AofWriter::run(server, aof.writer.wait());
    let started = background::start("bobbin-log", CoreWork::Background, run);
    started.map_err(|error| format!("Can't start the log's thread: {}", error_text(&error)))?;
    aof.writer.get_or_init(|| Mutex::new(AofWriter::new(server, file, place)));
    Ok(())
}

/// Gives the latency monitor the time of a write of the log. As in Redis, the event's name says
/// which other work the disk may have had.
fn sample_log_write(server: &Server, started: Instant) {
    let (monitor, config) = (&server.services.latency, &server.config);
    if config.latency_monitor_threshold() == 0 {
        return;
    }
    let us = started.elapsed().as_micros() as u64;
    let kind = if Aof::of(server).syncs_beside.load(Ordering::Relaxed) {
        LatencyEvent::AofWritePendingFsync
    } else if rewrite::cut_is_busy(server) {
        LatencyEvent::AofWriteActiveChild
    } else {
        LatencyEvent::AofWriteAlone
    };
    monitor.sample(config, kind, us);
    monitor.sample(config, LatencyEvent::AofWrite, us);
}

/// Notes how long an `fsync` of the log took.
fn note_log_sync(server: &Server, us: u64) {
    if server.config.appendfsync() == AppendFsync::Always {
        server.services.latency.sample(&server.config, LatencyEvent::AofFsyncAlways, us);
    }
    if us > SLOW_SYNC_US {
        Aof::of(server).figures.delayed_fsync.fetch_add(1, Ordering::Relaxed);
    }
}

/// Notes the outcome of the last write or `fsync` of the log.
fn note_log_outcome(server: &Server, outcome: &std::io::Result<()>) {
    let number = match outcome {
        Ok(()) => 0,
        Err(error) => error.raw_os_error().unwrap_or(rustix::io::Errno::IO.raw_os_error()),
    };
    let before = server.log_error.swap(number, Ordering::SeqCst);
    if before == number {
        return;
    }
    match outcome {
        Ok(()) => log::warn!("AOF write error looks solved. The server can write again."),
        Err(error) => log::warn!("Error writing to the AOF file: {}", error_text(error)),
    }
    server.switches.set(Switch::LOG_FAILED, number != 0);
}

/// Loads the log from disk without opening it for appending.
#[cfg(test)]
pub(crate) fn load_log(server: &'static Server) -> Result<(), String> {
    let loaded = load::load_and_open(server).map(drop);
    super::load::end_loading(server);
    loaded
}

/// Does what `end_log` does if a test has no thread for the log.
#[cfg(test)]
pub(crate) fn end_log_alone(server: &Server) {
    if Aof::of(server).writer.get().is_some() {
        let done = settle_log(server);
        step_log(server);
        done.try_recv().expect("it is settled");
    }
}

/// Whether the log's thread has orders that it has not carried out.
#[cfg(test)]
pub(crate) fn log_has_orders(server: &Server) -> bool {
    let waits = |writer: &Mutex<AofWriter>| writer.lock().has_orders();
    Aof::of(server).writer.get().is_some_and(waits)
}

/// Does one step of the log's thread if a test has no such thread.
#[cfg(test)]
pub(crate) fn step_log(server: &Server) {
    if let Some(writer) = Aof::of(server).writer.get() {
        writer.lock().step_alone();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// After a hang, workers do not wait for the disk for a while, even if it is quick again.
    #[test]
    fn a_disk_that_hung_is_left_to_its_thread() {
        let (aof, clock) = (Aof::default(), Clock::new());
        let is_left = |seconds: u64| {
            let then = ticks() + clock.ticks(seconds * 1_000_000);
            then < aof.slow_until.load(Ordering::Relaxed)
        };
        aof.note_step(&clock, Duration::from_micros(QUICK_STEP_US));
        assert!(!is_left(0));
        aof.note_step(&clock, Duration::from_secs(5));
        for _ in 0..1000 {
            aof.note_step(&clock, Duration::from_micros(100));
        }
        assert!(is_left(500) && !is_left(601));
    }

    #[test]
    fn what_took_longer_is_trusted_later() {
        let rests = [1_000, 1_001, 3_000, 20_000, 5_000_000, u64::MAX].map(rest_us);
        assert_eq!(rests, [0, 1_001, 9_000, 400_000, REST_MAX_US, REST_MAX_US]);
    }
}
