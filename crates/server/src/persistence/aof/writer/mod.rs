//! What writes the log.
//!
//! It puts together what the workers logged, appends it to the current increment and forces it to
//! disk, or has that done beside what it goes on with ([`syncer`]). Mostly the log's own thread has
//! it work; a worker that would have nothing to do before the disk answers may as well. Orders
//! (another file from that record on, stop, tell when all is done) take effect at a record's
//! number, so a thread that gives one while holding the gate has given it for exactly that moment,
//! and waits for no disk.

mod orders;

use std::io::{self, Write};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use bobbin_sync::Mutex;

pub(super) use self::orders::{Rotated, WriterOrder};
use super::place::{LogPlace, Stretches};
use super::syncer::{self, Syncer};
use crate::base::files::File;
use crate::config::AppendFsync;
use crate::engine::log::{RecordStream, StreamOutput};
use crate::engine::server::{Server, exit_at_once};
use crate::persistence::aof;
use crate::persistence::aof::Aof;

/// The state of the thread that writes the log.
///
/// It has many fields, as it is between two streams: how far each is, and what the disk did to it.
pub(super) struct AofWriter {
    server: &'static Server,
    aof: &'static Aof,
    stream: RecordStream,
    /// `None`: what is logged is passed over.
    file: Option<Arc<File>>,
    /// The thread that does what `everysec` asks for.
    syncer: Option<Syncer>,
    orders: Vec<WriterOrder>,
    /// Merged and not written.
    pending: Vec<u8>,
    /// Merged, and on its way to the feed.
    feeding: Vec<u8>,
    /// The number of bytes at its start that the disk did not take, and that `note_unkept` has
    /// noted.
    noted: usize,
    /// Where the stream is behind `pending`, as the file says.
    place: LogPlace,
    /// The last record that `pending`, or what was written, holds.
    merged: u64,
    /// The last record that was written.
    written: u64,
    /// When the last `fsync` ended, or the one that is under way began.
    synced_at: Instant,
    /// The disk did not take what it was given last.
    failed: bool,
    /// It did not keep what it had taken, and there was no base since.
    has_gap: bool,
    /// Something was merged since the thread rested last.
    busy: bool,
}

/// Sleep for `nap`, then until there is something to do, at most for `timeout`.
struct Rest {
    nap: Duration,
    timeout: Option<Duration>,
}

/// With less than this in all lanes the thread has caught up.
const CAUGHT_UP_BYTES: usize = 4 << 20;
/// Merged at once, and written by one call.
const CHUNK_BYTES: usize = 1 << 20;
/// After something was written the thread lets so much time pass before it looks again, unless
/// replies wait.
const NAP: Duration = Duration::from_millis(1);
/// How long it sleeps at most with something to force to disk, or an error to recover from.
const RETRY: Duration = Duration::from_millis(100);
const SYNC_INTERVAL: Duration = Duration::from_secs(1);

impl AofWriter {
    pub(super) fn new(server: &'static Server, file: Option<File>, place: LogPlace) -> Self {
        Self {
            server,
            aof: Aof::of(server),
            stream: RecordStream::default(),
            file: file.map(Arc::new),
            syncer: None,
            orders: Vec::new(),
            pending: Vec::new(),
            feeding: Vec::new(),
            noted: 0,
            place,
            merged: 0,
            written: 0,
            synced_at: server.clock.instant(),
            failed: false,
            has_gap: false,
            busy: false,
        }
    }

    /// What the log's thread does.
    pub(super) fn run(server: &'static Server, writer: &Mutex<Self>) {
        loop {
            let Rest { nap, timeout } = writer.lock().rest();
            if !nap.is_zero() {
                std::thread::sleep(nap);
            }
            server.log.sleep(timeout);
            writer.lock().step();
        }
    }

    /// Does for a worker what the thread would do; `false`: it is better left to the thread.
    pub(super) fn step_beside(&mut self) -> bool {
        if self.has_orders() || self.failed || self.is_syncing() {
            return false;
        }
        self.step();
        true
    }

    pub(super) fn has_orders(&self) -> bool {
        self.aof.has_orders.load(Ordering::SeqCst) || !self.orders.is_empty()
    }

    /// A step in a test, where syncs beside last until the next one.
    #[cfg(test)]
    pub(super) fn step_alone(&mut self) {
        if let Some((number, outcome)) = self.syncer.as_mut().and_then(Syncer::wait) {
            self.synced(number, &outcome);
        }
        self.step();
    }

    /// Writes everything that was logged before, forces it to disk if it is time, and carries out
    /// orders.
    fn step(&mut self) {
        let clock = &self.server.clock;
        self.aof.step_began_ms.store(clock.now_ms(), Ordering::Relaxed);
        let (started, unsynced) = (clock.instant(), self.aof.durable());
        // Before the orders: so nothing of what was logged after one was given is here without it.
        self.stream.collect(&self.server.log);
        self.take_orders();
        self.see_how_sync_went();
        self.write_collected();
        self.see_whether_mended();
        self.sync();
        while self.obey() {
            self.write_collected();
            self.sync();
        }
        if self.server.feed.takes_log() {
            self.server.publish_feed();
        }
        if self.aof.durable() > unsynced {
            self.aof.note_step(clock, clock.since(started));
        }
        self.aof.step_began_ms.store(0, Ordering::Relaxed);
        if self.server.is_log_behind() && self.server.log.pending_bytes() <= CAUGHT_UP_BYTES {
            self.server.let_writers_go();
        }
    }

    /// How the thread passes the time until it is needed.
    fn rest(&mut self) -> Rest {
        let aof = self.aof;
        if self.failed {
            return Rest { nap: RETRY, timeout: Some(Duration::ZERO) };
        }
        let naps = std::mem::take(&mut self.busy) && !aof.keeps_back_replies();
        let unsynced = self.written > aof.durable();
        let syncs = unsynced && self.server.config.appendfsync() != AppendFsync::No;
        // What was taken is freed by the next look at the lanes.
        let looks_again = syncs || self.server.log.held_bytes() > 0;
        Rest { nap: if naps { NAP } else { Duration::ZERO }, timeout: looks_again.then_some(RETRY) }
    }

    fn take_orders(&mut self) {
        let aof = self.aof;
        if aof.has_orders.swap(false, Ordering::SeqCst) {
            self.orders.append(&mut aof.orders.lock());
        }
    }

    fn write_collected(&mut self) {
        while self.merge() {
            self.write();
            if self.failed {
                break;
            }
        }
        self.write();
    }

    /// Up to which record the current file goes.
    fn boundary(&self) -> u64 {
        self.orders.iter().find(|order| order.is_boundary()).map_or(u64::MAX, WriterOrder::after)
    }

    /// Merges records into `pending`. Returns whether there may be more of them.
    fn merge(&mut self) -> bool {
        self.merge_up_to(self.boundary(), CHUNK_BYTES)
    }

    /// Merges records up to a number, until `bytes_max` bytes are on their way somewhere. Returns
    /// whether there may be more of them.
    fn merge_up_to(&mut self, boundary: u64, bytes_max: usize) -> bool {
        let feed = &self.server.feed;
        let feeds = feed.takes_log() && self.stream.done() >= feed.log_from();
        let (writes, mut batch) = (self.file.is_some(), Stretches::default());
        if !writes && !feeds {
            self.stream.skip(boundary);
            self.merged = self.stream.done();
            return false;
        }
        while self.pending.len().max(self.feeding.len()) < bytes_max {
            let (in_file, in_feed) = (self.pending.len(), self.feeding.len());
            let file = writes.then_some(&mut self.pending);
            let feed = feeds.then_some(&mut self.feeding);
            if !self.stream.next(boundary, &mut StreamOutput { file, feed }) {
                break;
            }
            let (in_file, in_feed) = (in_file..self.pending.len(), in_feed..self.feeding.len());
            batch.add(self.stream.last(), in_file, in_feed);
        }
        let mut fed = None;
        if feeds {
            fed = Some((feed.id(), feed.append(self.stream.done(), &self.feeding)));
            self.feeding.clear();
            self.feeding.shrink_to(CHUNK_BYTES);
        }
        if writes {
            self.place.remark(&mut self.pending, &batch, fed, !self.has_gap);
        }
        let more = self.stream.done() > self.merged;
        self.merged = self.stream.done();
        self.busy |= more;
        more
    }

    /// Writes what is pending, as far as the disk takes it.
    fn write(&mut self) {
        let aof = self.aof;
        // Before the disk is waited for.
        self.note_unwritten();
        let Some(file) = &self.file else {
            self.written = self.merged;
            if aof.durable() < self.written {
                self.now_durable(self.written);
            }
            return;
        };
        let mut file = &**file;
        let (mut done, started) = (0, Instant::now());
        let delay_us = aof.write_delay_us.load(Ordering::Relaxed);
        if delay_us > 0 && !self.pending.is_empty() {
            std::thread::sleep(Duration::from_micros(delay_us));
        }
        let outcome = loop {
            if done == self.pending.len() {
                break Ok(());
            }
            match file.write(&self.pending[done..]) {
                Ok(0) => break Err(io::ErrorKind::WriteZero.into()),
                Ok(count) => done += count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => break Err(error),
            }
        };
        if outcome.is_err() {
            self.note_unkept();
        }
        if done > 0 {
            aof::sample_log_write(self.server, started);
            aof.figures.size.fetch_add(done as u64, Ordering::Relaxed);
            aof.figures.increment_size.fetch_add(done as u64, Ordering::Relaxed);
            self.rewrite_if_grown();
            self.pending.drain(..done);
            self.noted = self.noted.saturating_sub(done);
            self.pending.shrink_to(CHUNK_BYTES);
        }
        if self.pending.is_empty() {
            self.written = self.merged;
        }
        self.note_unwritten();
        self.failed = outcome.is_err();
        if done > 0 || outcome.is_err() {
            self.note_outcome(&outcome);
        }
    }

    fn note_unwritten(&self) {
        self.server.unwritten_bytes.store(self.pending.len(), Ordering::Relaxed);
    }

    /// Notes the commands in `pending` that cannot be written.
    fn note_unkept(&mut self) {
        let (aof, keyspace) = (self.aof, &self.server.keyspace);
        let (commands, durable) = (&self.pending[self.noted..], aof.durable());
        aof.unkept.note(keyspace, commands, self.merged, durable, self.written);
        self.noted = self.pending.len();
    }

    /// Forces what was written to disk, or begins to, if it is time.
    fn sync(&mut self) {
        if self.written <= self.aof.durable() || self.failed {
            return;
        }
        if self.settles() {
            return self.sync_now();
        }
        match self.server.config.appendfsync() {
            AppendFsync::Always => self.sync_now(),
            AppendFsync::Everysec
                if !self.is_syncing()
                    && self.server.clock.since(self.synced_at) >= SYNC_INTERVAL =>
            {
                self.begin_sync();
            }
            AppendFsync::Everysec | AppendFsync::No => {}
        }
    }

    /// Has what was written forced to disk, and goes on.
    fn begin_sync(&mut self) {
        let Some(file) = &self.file else { return };
        let syncer = match &mut self.syncer {
            Some(syncer) => syncer,
            none => match Syncer::start(self.server) {
                Ok(syncer) => none.insert(syncer),
                Err(error) => {
                    log::warn!("Can't start a thread that forces the log to disk: {error}");
                    return self.sync_now();
                }
            },
        };
        syncer.begin(self.server, file, self.written);
        self.synced_at = self.server.clock.instant();
    }

    /// Forces what was written to disk, and waits for it.
    fn sync_now(&mut self) {
        if let Some((number, outcome)) = self.syncer.as_mut().and_then(Syncer::wait) {
            self.synced(number, &outcome);
        }
        let Some(file) = &self.file else { return };
        let outcome = syncer::sync(self.server, file);
        self.synced(self.written, &outcome);
    }

    fn is_syncing(&self) -> bool {
        self.syncer.as_ref().is_some_and(Syncer::is_busy)
    }

    fn see_how_sync_went(&mut self) {
        if let Some((number, outcome)) = self.syncer.as_mut().and_then(Syncer::take) {
            self.synced(number, &outcome);
        }
    }

    /// An `fsync` of everything up to a record has ended.
    fn synced(&mut self, number: u64, outcome: &io::Result<()>) {
        self.synced_at = self.server.clock.instant();
        match outcome {
            Ok(()) => self.now_durable(number),
            Err(error) if self.aof.keeps_back_replies() => {
                // What the kernel dropped cannot be written again, and the promise cannot be kept.
                log::error!(
                    "Can't persist AOF for fsync error when the AOF fsync policy is 'always': {error}. Exiting..."
                );
                exit_at_once();
            }
            Err(error) => {
                self.failed = true;
                self.has_gap = true;
                self.note_gap(error);
            }
        }
        self.note_outcome(outcome);
    }

    /// Notes how the disk took something. That it takes what lies behind a gap means nothing.
    fn note_outcome(&self, outcome: &io::Result<()>) {
        if outcome.is_err() || !self.has_gap {
            aof::note_log_outcome(self.server, outcome);
        }
    }

    /// Has writes accepted again once a new base makes good what the disk had lost: until then all
    /// that is logged lies behind a hole.
    fn see_whether_mended(&mut self) {
        if self.has_gap && !self.failed && !self.aof.has_gap() {
            self.has_gap = false;
            aof::note_log_outcome(self.server, &Ok(()));
        }
    }

    /// What was written may be lost, whatever the disk says from now on: only a new base makes that
    /// good.
    fn note_gap(&self, error: &io::Error) {
        let aof = self.aof;
        if !aof.has_gap() {
            log::warn!(
                "The log may have lost what it could not force to disk ({error}): it will be rewritten"
            );
        }
        aof.gaps.fetch_add(1, Ordering::SeqCst);
        // One that has begun may go on in the file that has the gap.
        aof.rewrites.abort();
        aof.rewrites.schedule();
    }

    /// Everything up to a record is on disk for good.
    fn now_durable(&self, number: u64) {
        if self.aof.has_gap() {
            return;
        }
        self.aof.durable.store(number, Ordering::SeqCst);
        self.server.workers.tell_durable();
        self.aof.answer_waiters(self.server);
    }

    /// Has the log rewritten if it has grown as much as the configuration says.
    fn rewrite_if_grown(&self) {
        let (aof, config) = (self.aof, &self.server.config);
        let percentage = config.auto_aof_rewrite_percentage() as u64;
        let size = aof.figures.size.load(Ordering::Relaxed);
        if percentage == 0 || size <= config.auto_aof_rewrite_min_size() {
            return;
        }
        if aof.rewrites.is_scheduled() || aof.rewrites.is_running() {
            return;
        }
        let base = aof.figures.base_size.load(Ordering::Relaxed).max(1);
        let growth = size.saturating_mul(100) / base;
        if growth >= 100 + percentage {
            log::info!("Starting automatic rewriting of AOF on {}% growth", growth - 100);
            aof.rewrites.schedule();
        }
    }
}
