//! Writes the log.
//!
//! The writer merges the records of all threads, appends them to the current increment and syncs
//! it, or has [`syncer`] sync it meanwhile. Mostly the log's own thread calls the writer. A worker
//! that can do nothing until the disk answers may call it too.
//!
//! Orders (continue in another file, stop, report when everything is synced) take effect at a
//! record's number. So a thread that gives an order while it holds the gate gives it for exactly
//! that moment, and does not wait for the disk.

mod orders;

use std::io::{self, Write};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use bobbin_io::error_text;
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

/// The state of the log's writer.
///
/// It has many fields because it stands between two streams: how far each has got, and which errors
/// the disk had.
pub(super) struct AofWriter {
    server: &'static Server,
    aof: &'static Aof,
    stream: RecordStream,
    /// `None`: records are not written to disk.
    file: Option<Arc<File>>,
    /// The thread that syncs for `everysec`.
    syncer: Option<Syncer>,
    orders: Vec<WriterOrder>,
    /// Bytes that were merged and not written.
    pending: Vec<u8>,
    /// Bytes that were merged for the feed.
    feeding: Vec<u8>,
    /// How many bytes at the start of `pending` the disk did not accept and `note_unkept` has
    /// noted.
    noted: usize,
    /// The replication stream's position behind `pending`, as the file gives it.
    place: LogPlace,
    /// The last record that was merged.
    merged: u64,
    /// The last record that was written.
    written: u64,
    /// When the last `fsync` ended, or the current one began.
    synced_at: Instant,
    /// The disk did not accept the last write.
    failed: bool,
    /// The disk lost bytes that it had accepted, and no new base covers them yet.
    has_gap: bool,
    /// Something was merged since the thread last rested.
    busy: bool,
    /// The most bytes that `pending` or `feeding` had since then.
    bytes_max: usize,
    /// When room that is not needed any more was last given back.
    gave_back_at: Instant,
}

/// How long the log's thread sleeps: for `nap` in any case, and then until there is work, for
/// `timeout` at most.
struct Rest {
    nap: Duration,
    timeout: Option<Duration>,
}

/// Shows that the writer uses the disk, which may take long.
struct AtDisk {
    aof: &'static Aof,
    was: bool,
}

impl AtDisk {
    fn new(aof: &'static Aof) -> Self {
        Self { aof, was: aof.is_at_disk.swap(true, Ordering::Relaxed) }
    }
}

impl Drop for AtDisk {
    fn drop(&mut self) {
        self.aof.is_at_disk.store(self.was, Ordering::Relaxed);
    }
}

/// With fewer bytes than this in all lanes the writer has caught up.
const CAUGHT_UP_BYTES: usize = 4 << 20;
/// How many bytes are merged before they are written by one call.
const CHUNK_BYTES: usize = 1 << 20;
/// How long the thread waits after a write before it looks for more records, unless replies wait.
const NAP: Duration = Duration::from_millis(1);
/// The longest sleep if there is something to sync, or an error to recover from.
const RETRY: Duration = Duration::from_millis(100);
const SYNC_INTERVAL: Duration = Duration::from_secs(1);
const GIVE_BACK_INTERVAL: Duration = Duration::from_secs(1);
/// So much room for merged bytes is never given back.
const ROOM_MIN: usize = 64 << 10;

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
            bytes_max: 0,
            gave_back_at: server.clock.instant(),
        }
    }

    /// Runs in the log's thread.
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

    /// Does a step in a worker's thread. `false`: the log's thread should do the step.
    pub(super) fn step_beside(&mut self) -> bool {
        if self.has_orders() || self.failed || self.is_syncing() {
            return false;
        }
        self.step();
        true
    }

    /// Gives the feed all records that were logged before, and writes nothing. `false`: the log's
    /// thread has to carry out orders first, and does so now.
    pub(super) fn feed_beside(&mut self) -> bool {
        // While the disk takes nothing, clients may not write.
        if self.failed {
            return true;
        }
        // As in a step: what is collected here was logged before the orders that come behind.
        self.stream.collect(&self.server.log);
        if self.has_orders() {
            return false;
        }
        if self.file.is_none() {
            self.step();
            return true;
        }
        while self.merge() && self.pending.len() < CHUNK_BYTES {}
        self.note_unwritten();
        if !self.pending.is_empty() {
            self.server.log.wake();
        }
        true
    }

    pub(super) fn has_orders(&self) -> bool {
        self.aof.has_orders.load(Ordering::SeqCst) || !self.orders.is_empty()
    }

    /// Does a step in a test, where a sync in the background lasts until the next step.
    #[cfg(test)]
    pub(super) fn step_alone(&mut self) {
        if let Some((number, outcome)) = self.syncer.as_mut().and_then(Syncer::wait) {
            self.synced(number, &outcome);
        }
        self.step();
    }

    /// Writes all records that were logged before, syncs them if it is time, and carries out
    /// orders.
    fn step(&mut self) {
        let clock = &self.server.clock;
        self.aof.step_began_ms.store(clock.now_ms(), Ordering::Relaxed);
        let (started, unsynced) = (clock.instant(), self.aof.durable());
        // Collect before taking orders: no record logged after an order is collected without that
        // order.
        self.stream.collect(&self.server.log);
        self.take_orders();
        self.see_how_sync_went();
        self.write_collected();
        self.see_whether_mended();
        self.sync();
        while self.obey_at_disk() {
            self.write_collected();
            self.sync();
        }
        self.give_back();
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

    /// Decides how the thread waits until it is needed.
    fn rest(&mut self) -> Rest {
        let aof = self.aof;
        if self.failed {
            return Rest { nap: RETRY, timeout: Some(Duration::ZERO) };
        }
        let naps = std::mem::take(&mut self.busy) && !aof.keeps_back_replies();
        let unsynced = self.written > aof.durable();
        let syncs = unsynced && self.server.config.appendfsync() != AppendFsync::No;
        // The next look at the lanes frees their collected blocks.
        let looks_again = syncs || self.server.log.held_bytes() > 0;
        let timeout = match looks_again {
            true => Some(RETRY),
            false => self.has_room().then_some(GIVE_BACK_INTERVAL),
        };
        Rest { nap: if naps { NAP } else { Duration::ZERO }, timeout }
    }

    /// Whether there is room that a burst of records needed.
    fn has_room(&self) -> bool {
        self.stream.has_room() || self.pending.capacity().max(self.feeding.capacity()) > ROOM_MIN
    }

    /// Frees room that a burst of records needed, and the records since did not.
    fn give_back(&mut self) {
        let clock = &self.server.clock;
        if self.has_room() && clock.since(self.gave_back_at) >= GIVE_BACK_INTERVAL {
            self.gave_back_at = clock.instant();
            self.stream.give_back();
            let room = (2 * std::mem::take(&mut self.bytes_max)).max(ROOM_MIN);
            self.pending.shrink_to(room);
            self.feeding.shrink_to(room);
        }
    }

    /// Carries out an order, which may need the disk, if there is one whose time has come.
    fn obey_at_disk(&mut self) -> bool {
        let _at_disk = (!self.orders.is_empty()).then(|| AtDisk::new(self.aof));
        self.obey()
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

    /// The last record that goes into the current file.
    fn boundary(&self) -> u64 {
        self.orders.iter().find(|order| order.is_boundary()).map_or(u64::MAX, WriterOrder::after)
    }

    /// Merges records into `pending`. Returns whether there may be more.
    fn merge(&mut self) -> bool {
        self.merge_up_to(self.boundary(), CHUNK_BYTES)
    }

    /// Merges records up to a number, until `bytes_max` bytes wait to be written or fed. Returns
    /// whether there may be more records.
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
        self.bytes_max = self.bytes_max.max(self.pending.len()).max(self.feeding.len());
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

    /// Writes the pending bytes, as far as the disk accepts them.
    fn write(&mut self) {
        let aof = self.aof;
        // Updated before the write, which may take long.
        self.note_unwritten();
        let Some(file) = &self.file else {
            self.written = self.merged;
            if aof.durable() < self.written {
                self.now_durable(self.written);
            }
            return;
        };
        let mut file = &**file;
        let at_disk = (!self.pending.is_empty()).then(|| AtDisk::new(aof));
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
        drop(at_disk);
        if outcome.is_err() {
            if self.written > aof.durable() && !self.has_gap {
                // A full disk can still force what it has taken. Then less is unkept.
                self.sync_now();
            }
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

    /// Syncs what was written, or begins to, if it is time.
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

    /// Has the syncer sync what was written, without waiting.
    fn begin_sync(&mut self) {
        let Some(file) = &self.file else { return };
        let syncer = match &mut self.syncer {
            Some(syncer) => syncer,
            none => match Syncer::start(self.server) {
                Ok(syncer) => none.insert(syncer),
                Err(error) => {
                    log::warn!(
                        "Can't start a thread that forces the log to disk: {}",
                        error_text(&error)
                    );
                    return self.sync_now();
                }
            },
        };
        syncer.begin(self.server, file, self.written);
        self.synced_at = self.server.clock.instant();
    }

    /// Syncs what was written, and waits for it.
    fn sync_now(&mut self) {
        let _at_disk = AtDisk::new(self.aof);
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

    /// Handles the end of an `fsync` that covered everything up to a record.
    fn synced(&mut self, number: u64, outcome: &io::Result<()>) {
        self.synced_at = self.server.clock.instant();
        match outcome {
            Ok(()) => self.now_durable(number),
            Err(error) if self.aof.keeps_back_replies() => {
                // The kernel dropped the bytes, so they cannot be written again, and the promise of
                // `always` is broken.
                log::error!(
                    "Can't persist AOF for fsync error when the AOF fsync policy is 'always': {}. Exiting...",
                    error_text(error)
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

    /// Notes the outcome of a write or sync. Success means nothing behind a gap, and a sync means
    /// nothing while the disk has not taken what was given to it.
    fn note_outcome(&self, outcome: &io::Result<()>) {
        if outcome.is_err() || !self.has_gap && !self.failed && self.pending.is_empty() {
            aof::note_log_outcome(self.server, outcome);
        }
    }

    /// Has writes accepted again once a new base covers what the disk had lost. Until then every
    /// record lies behind a gap.
    fn see_whether_mended(&mut self) {
        if self.has_gap && !self.failed && !self.aof.has_gap() {
            self.has_gap = false;
            aof::note_log_outcome(self.server, &Ok(()));
        }
    }

    /// Notes a gap: written bytes may be lost, even if later syncs succeed. Only a new base repairs
    /// that.
    fn note_gap(&self, error: &io::Error) {
        let aof = self.aof;
        if !aof.has_gap() {
            log::warn!(
                "The log may have lost what it could not force to disk ({}): it will be rewritten",
                error_text(error)
            );
        }
        aof.gaps.fetch_add(1, Ordering::SeqCst);
        // The current rewrite may continue in the file that has the gap.
        aof.rewrites.abort();
        aof.rewrites.schedule();
    }

    /// Notes that everything up to a record is on disk.
    fn now_durable(&self, number: u64) {
        if self.aof.has_gap() {
            return;
        }
        self.aof.durable.store(number, Ordering::SeqCst);
        self.server.workers.tell_durable();
        self.aof.answer_waiters(self.server);
    }

    /// Schedules a rewrite if the log has grown as much as the configuration says.
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
