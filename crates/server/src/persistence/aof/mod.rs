//! The append-only file: the log of all changes on disk, from which the data set is made again at
//! start.
//!
//! It consists of a base and of increments, as a [`manifest`] says. One thread ([`writer`]) takes
//! the log's records in their order, writes them to the current increment and forces them to disk
//! as `appendfsync` says; with `everysec` another thread ([`syncer`]) does the latter. With
//! `always`, workers keep replies back until [`Aof::durable`] has reached the records that they may
//! tell of, and one `fsync` serves all that wait. A worker with nothing else to do sees to it
//! itself while the disk is quick ([`Aof::commit_here`]); no worker that has something to do waits
//! for the disk.

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

/// What is shared about the log on disk.
///
/// It has many fields, as any thread may ask for each of them without a lock.
#[derive(Default)]
pub struct Aof {
    /// What the files are, as on disk.
    manifest: Mutex<Manifest>,
    orders: Mutex<Vec<WriterOrder>>,
    has_orders: AtomicBool,
    /// Set once there is something to write. A thread that locks it takes no other locks but those
    /// that its functions name.
    writer: OnceLock<Mutex<AofWriter>>,
    /// Until when workers leave the disk to the log's thread, in ticks.
    slow_until: AtomicU64,
    /// When what the log's writer is about to do began (Unix ms); 0: it does nothing.
    step_began_ms: AtomicI64,
    /// An `fsync` is under way beside the writing.
    pub syncs_beside: AtomicBool,
    /// Replies wait for the disk. Each turn looks at it.
    keeps_back_replies: OwnLine<AtomicBool>,
    /// The last record that is on disk for good.
    durable: AtomicU64,
    /// The log was turned on, and has no base yet: what is there counts for nothing.
    waits_for_base: AtomicBool,
    /// There is a log on disk.
    is_on: AtomicBool,
    /// How often an `fsync` failed: what it was about may be lost although later ones succeed.
    gaps: AtomicU64,
    /// Those of them that the base makes good. While there are others nothing more counts as
    /// durable.
    mended_gaps: AtomicU64,
    /// Clients of WAITAOF, and the records that they wait for.
    waiters: Mutex<Vec<(u64, Arc<Waiter>)>>,
    /// DEBUG AOF-FLUSH-SLEEP: what each write takes longer.
    pub write_delay_us: AtomicU64,
    pub rewrites: Rewrites,
    unkept: Unkept,
    pub figures: AofFigures,
}

/// What INFO tells.
#[derive(Default)]
pub struct AofFigures {
    /// Bytes of all files that are read at start.
    pub size: AtomicU64,
    /// Bytes after the last rewrite, or of the base that was loaded.
    pub base_size: AtomicU64,
    /// Bytes of the increment that is being written.
    pub increment_size: AtomicU64,
    /// How often writing waited for a slow disk.
    pub delayed_fsync: AtomicU64,
}

/// What WAITAOF is answered with where there is no log.
pub const NO_LOG: Failure =
    Failure::new("ERR WAITAOF cannot be used when numlocal is set but appendonly is disabled.");
/// An `fsync` that takes longer delays what is written meanwhile: Redis, too, waits so long before
/// it counts it.
const SLOW_SYNC_US: u64 = 2_000_000;
/// The log's writer is stuck if it does not come to an end within this time.
const STUCK_MS: i64 = 1000;
/// Workers wait themselves for a disk that takes no longer than this: waking two threads takes a
/// good part of it.
const QUICK_STEP_US: u64 = 1_000;
/// They leave the disk to the log's thread for no longer than this behind a slow step.
const REST_MAX_US: u64 = 600_000_000;

/// For how long workers leave the disk to the log's thread after a step that took `step_us`. A
/// worker that waits for the disk serves no client meanwhile. A few milliseconds may be chance. A
/// disk that hung for seconds may do so again, so no worker should wait for it again soon.
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

    /// The number of the last record that is on disk for good.
    #[inline]
    pub fn durable(&self) -> u64 {
        self.durable.load(Ordering::SeqCst)
    }

    /// The last record that a crash would leave; `None`: the log has no base, and leaves nothing,
    /// not even what was done while there was no log.
    pub fn kept(&self) -> Option<u64> {
        // In this order: the base comes to be there after what it holds is durable.
        (!self.is_waiting_for_base()).then(|| self.durable())
    }

    /// Whether the log is kept on disk.
    pub fn is_on(&self) -> bool {
        self.is_on.load(Ordering::SeqCst)
    }

    /// Turns the log on disk on or off. The gate is held.
    fn switch(&self, server: &Server, on: bool) {
        self.is_on.store(on, Ordering::SeqCst);
        follow_readers(server);
    }

    /// Whether replies have to wait for the disk.
    #[inline(always)]
    pub fn keeps_back_replies(&self) -> bool {
        self.keeps_back_replies.0.load(Ordering::Relaxed)
    }

    /// Whether a base must be written before the log counts.
    pub fn is_waiting_for_base(&self) -> bool {
        self.waits_for_base.load(Ordering::SeqCst)
    }

    /// Whether only a new base makes the log whole.
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

    /// Answers those clients of WAITAOF whose records are on disk.
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

    /// Answers the clients of WAITAOF whose records are not on disk: the log ends behind a record,
    /// and they will not be.
    fn dismiss_waiters(&self, server: &Server, after: u64) {
        let over: Vec<_> =
            self.waiters.lock().extract_if(.., |(number, _)| *number <= after).collect();
        for (_, waiter) in over {
            waiter.answer(server, |_| Err(NO_LOG));
        }
    }

    /// Gets to disk what was logged, if no other thread is at it and it should not take long;
    /// whether it was done. Nothing is held.
    pub fn commit_here(&self) -> bool {
        let is_quick = ticks() >= self.slow_until.load(Ordering::Relaxed);
        let Some(writer) = self.writer.get().filter(|_| is_quick) else { return false };
        writer.try_lock().is_some_and(|mut writer| writer.step_beside())
    }

    /// Whether the disk has kept the log's writer from going on for longer than a second. What is
    /// acknowledged meanwhile is lost if the server is killed.
    pub fn is_stuck(&self, now_ms: i64) -> bool {
        let began_ms = self.step_began_ms.load(Ordering::Relaxed);
        began_ms != 0 && now_ms - began_ms > STUCK_MS
    }

    /// Something was forced to disk within this time.
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

/// Loads the data set from the log and goes on with it, while clients are told to wait. `false`:
/// the server was ended meanwhile.
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

/// Goes on without a log, as `appendonly` says, but knows of the one that is on disk: its files are
/// not written over, and it counts until a base takes its place.
pub fn start_without_log(server: &'static Server) -> Result<(), String> {
    let directory = AofDirectory::of(&server.config);
    if let Some(mut manifest) = directory.load()? {
        rewrite::collect_history(server, &directory, &mut manifest);
        *Aof::of(server).manifest.lock() = manifest;
    }
    Ok(())
}

/// Turns the log on or off, as `appendonly` says now. The gate is held. `within`: in the midst
/// of a transaction, half of which no base should hold.
pub fn switch_log(server: &'static Server, data: &mut Data, within: bool) -> Result<(), String> {
    let on = server.config.appendonly();
    if on == Aof::of(server).is_on() {
        return Ok(());
    }
    if on {
        AofDirectory::of(&server.config).prepare().map_err(|error| {
            log::warn!("Can't create the files of the log: {error}");
            "Unable to turn on AOF. Check server logs.".to_owned()
        })?;
        need_writer(server)?;
        // The base of one that goes on lacks what happens from its cut until now.
        Aof::of(server).rewrites.cancel();
        Aof::of(server).waits_for_base.store(true, Ordering::SeqCst);
        Aof::of(server).switch(server, true);
        if within || rewrite::cut_is_busy(server) {
            Aof::of(server).rewrites.schedule();
        } else {
            rewrite::begin_rewrite(server, data);
        }
    } else {
        if !server.feed.takes_log() {
            // Of what the transaction did so far the log needs no half.
            data.forget_effects();
        }
        Aof::of(server).rewrites.cancel();
        Aof::of(server).switch(server, false);
        Aof::of(server).order(server, WriterOrder::Stop { after: server.log.last() });
    }
    data.recorder.refresh();
    follow_log_config(server);
    Ok(())
}

/// What is there now has come otherwise than by the log: nothing more is written before there is a
/// base that holds it. Until then the files have what was there before. The gate is held.
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

/// Takes up what `appendfsync` says; the gate is held.
pub fn follow_log_config(server: &Server) {
    let holds = Aof::of(server).is_on() && server.config.appendfsync() == AppendFsync::Always;
    let held = Aof::of(server).keeps_back_replies.0.swap(holds, Ordering::SeqCst);
    server.choose_log_numbers();
    if held && !holds {
        // There may be replies that were promised to wait, and with `no` nothing else would end
        // that.
        drop(settle_log(server, false));
    }
    server.log.wake();
}

/// Writes all there is, and forces it to disk. No thread adds to it any more.
pub fn end_log(server: &Server) {
    if Aof::of(server).writer.get().is_some() {
        // It fails only if the writer is there no more, and then nothing is left to wait for.
        settle_log(server, true).recv().ok();
    }
}

/// Has all that was logged so far forced to disk, and the receiver told. `ends`: nothing follows
/// for now.
fn settle_log(server: &Server, ends: bool) -> Receiver<()> {
    let (done, wait) = channel();
    Aof::of(server).order(server, WriterOrder::Settle { number: server.log.last(), done, ends });
    wait
}

/// Whether there is a log on disk, with all that it needs, and what is not there yet can be
/// written.
pub fn has_log_to_load(server: &Server) -> bool {
    let waits = Aof::of(server).is_on() && Aof::of(server).needs_base();
    let failed = server.log_error.load(Ordering::Relaxed) != 0;
    !waits
        && !failed
        && AofDirectory::of(&server.config).load().is_ok_and(|manifest| manifest.is_some())
}

/// Loads the log, all of which is written before, in a thread of its own, and answers the
/// waiter; no other client is served meanwhile. The gate is held, and all is empty. Where the log
/// cannot be loaded the process ends: what was there is gone.
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
        log::error!("Can't start a thread to load with: {error}. Exiting.");
        std::process::exit(1);
    }
}

/// Has the log made as long as anything reads it: the disk or replicas. The gate is held.
pub fn follow_readers(server: &Server) {
    server.log.switch(Aof::of(server).is_on() || server.feed.takes_log());
}

/// Has the feed read from here on; `begin` is told the offset, by the log's thread. The gate is
/// held.
pub fn splice_feed(
    server: &'static Server,
    begin: impl FnOnce(u64) + Send + 'static,
) -> Result<(), String> {
    need_writer(server)?;
    let (after, then) = (server.log.last(), Box::new(begin));
    Aof::of(server).order(server, WriterOrder::Feed { after, then, begins: true });
    Ok(())
}

/// Calls `then` from the log's thread once the feed has a record, with the offset behind it.
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

/// Sees to it that there is a thread that reads the log.
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
    let run = move || AofWriter::run(server, Aof::of(server).writer.wait());
    let started = background::start("bobbin-log", CoreWork::Background, run);
    started.map_err(|error| format!("Can't start the log's thread: {error}"))?;
    Aof::of(server).writer.get_or_init(|| Mutex::new(AofWriter::new(server, file, place)));
    Ok(())
}

/// Shows the latency monitor how long a write of the log took, under Redis's names: among them
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

/// Notes how the last write, or fsync, of the log went.
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
        Err(error) => log::warn!("Error writing to the AOF file: {error}"),
    }
    server.switches.set(Switch::LOG_FAILED, number != 0);
}

/// Loads what the disk has, and does not go on with it.
#[cfg(test)]
pub(crate) fn load_log(server: &'static Server) -> Result<(), String> {
    let loaded = load::load_and_open(server).map(drop);
    super::load::end_loading(server);
    loaded
}

/// What `end_log` does, without that thread.
#[cfg(test)]
pub(crate) fn end_log_alone(server: &Server) {
    if Aof::of(server).writer.get().is_some() {
        let done = settle_log(server, true);
        step_log(server);
        done.try_recv().expect("it is settled");
    }
}

/// Whether the log's thread was told to do something that it has not done.
#[cfg(test)]
pub(crate) fn log_has_orders(server: &Server) -> bool {
    let waits = |writer: &Mutex<AofWriter>| writer.lock().has_orders();
    Aof::of(server).writer.get().is_some_and(waits)
}

/// Does once what the log's thread would do, where a test has no thread.
#[cfg(test)]
pub(crate) fn step_log(server: &Server) {
    if let Some(writer) = Aof::of(server).writer.get() {
        writer.lock().step_alone();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Between two hangs of a disk that is quick otherwise, no worker waits for it.
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
