//! Writers that have to wait because a disk is slow: their changes are kept in memory until the
//! disk has them, and must not pile up.
//!
//! Two threads can fall behind. If the thread of the log does, by bytes or by time, every write
//! waits until it has caught up, as the log must not lose anything. If the walk of a cut does (for
//! a snapshot or a rewrite), a write waits for a moment; a walk that still does not catch up is
//! given up. The command of a waiting client stays the client's next one, as during CLIENT PAUSE,
//! and its worker serves other clients meanwhile.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use bobbin_store::{Cut, CutHandle};
use bobbin_sync::Mutex;

use crate::base::clock::has_come;
use crate::engine::client::Client;
use crate::engine::command::{Data, Failure};
use crate::engine::server::{Server, Switch};
use crate::engine::telemetry::latency::LatencyEvent;

/// How much may wait in memory for a disk, and the cut that causes it.
pub struct Pressure {
    /// The most bytes of copies for the cut being walked. Above that, writers wait.
    kept_max: AtomicUsize,
    /// That cut, and what it is made for.
    cut: Mutex<Option<(CutHandle, &'static str)>>,
    /// How many cuts were begun, and how long the last of them took to begin (microseconds).
    begun: AtomicU64,
    beginning_us: AtomicU64,
}

impl Default for Pressure {
    fn default() -> Self {
        Self {
            kept_max: AtomicUsize::new(usize::MAX),
            cut: Mutex::default(),
            begun: AtomicU64::new(0),
            beginning_us: AtomicU64::new(0),
        }
    }
}

impl Server {
    /// Begins a cut of all keys. `data` holds the gate from then on. `end_cut` must be called once
    /// the cut is walked.
    ///
    /// `what` the cut is made for is logged if it has to be given up.
    pub fn begin_cut(&self, data: &mut Data, what: &'static str) -> Cut {
        let started = Instant::now();
        let cut = data.begin_cut();
        let us = started.elapsed().as_micros() as u64;
        self.services.latency.sample(&self.config, LatencyEvent::Cut, us);
        self.pressure.begun.fetch_add(1, Ordering::Relaxed);
        self.pressure.beginning_us.store(us, Ordering::Relaxed);
        *self.pressure.cut.lock() = Some((cut.handle(), what));
        let kept_max = (crate::base::memory::used() / KEPT_SHARE).max(KEPT_MIN);
        self.pressure.kept_max.store(kept_max, Ordering::Relaxed);
        self.switches.set(Switch::CUTTING, true);
        cut
    }

    /// How many cuts were begun, and how long the last of them took to begin
    /// (microseconds).
    pub fn cuts_begun(&self) -> (u64, u64) {
        let Pressure { begun, beginning_us, .. } = &self.pressure;
        (begun.load(Ordering::Relaxed), beginning_us.load(Ordering::Relaxed))
    }

    /// Forgets what `cuts_begun` tells.
    pub fn reset_cuts(&self) {
        self.pressure.begun.store(0, Ordering::Relaxed);
        self.pressure.beginning_us.store(0, Ordering::Relaxed);
    }

    /// Notes that the cut is walked.
    pub fn end_cut(&self) {
        *self.pressure.cut.lock() = None;
        self.switches.set(Switch::CUTTING, false);
    }

    /// Makes all writes wait until the log's thread, which is far behind or stuck, has caught up.
    #[cold]
    pub fn put_off_writers_for_log(&self) {
        self.switches.set(Switch::LOG_BEHIND, true);
        // The log's thread may have caught up before it could see the switch.
        self.log.wake();
    }

    /// Bytes of memory for what was logged but is not written, or is on its way to replicas.
    pub fn log_bytes(&self) -> usize {
        self.log.held_bytes() + self.unwritten_bytes.load(Ordering::Relaxed)
    }

    /// Lets writes go on: the log's thread has caught up.
    pub fn let_writers_go(&self) {
        if !self.switches.has(Switch::LOG_BEHIND) {
            return;
        }
        self.switches.set(Switch::LOG_BEHIND, false);
        self.workers.wake();
    }

    /// Whether the log's thread is so far behind that no command may write.
    #[inline]
    pub fn is_log_behind(&self) -> bool {
        self.switches.has(Switch::LOG_BEHIND)
    }

    /// Whether a primary's stream has to wait until the log's thread has caught up. It does not
    /// wait for a disk that fails: the server then ends, or was told to go on without the disk.
    pub fn holds_up_stream(&self) -> bool {
        let switches = self.switches.load();
        switches & Switch::LOG_BEHIND != 0 && switches & Switch::LOG_FAILED == 0
    }

    /// Whether a client that is about to write has to wait. If so, the caller must put it off.
    #[cold]
    pub(crate) fn holds_up(&self, client: &mut Client, data: &mut Data) -> bool {
        if self.is_log_behind() {
            return true;
        }
        if !self.keeps_too_much() {
            client.was_held_up = false;
            return false;
        }
        if std::mem::take(&mut client.was_held_up) {
            self.give_up_cut_that_lags();
            return false;
        }
        client.was_held_up = true;
        let (now_ms, until_ms) = (data.conditions.now_ms, &mut data.conditions.held_up_until_ms);
        if has_come(now_ms, *until_ms, WAIT_MS) {
            *until_ms = now_ms + WAIT_MS;
        }
        true
    }

    /// How much longer the clients wait that were put off for a cut that keeps too much.
    pub(crate) fn held_up_for(&self, data: &Data) -> Duration {
        let (now_ms, until_ms) = (data.conditions.now_ms, data.conditions.held_up_until_ms);
        if has_come(now_ms, until_ms, WAIT_MS) || !self.keeps_too_much() {
            return Duration::ZERO;
        }
        Duration::from_millis((until_ms - now_ms) as u64)
    }

    /// Any copy for the current cut is too much from now on.
    #[cfg(test)]
    pub fn keep_nothing_for_cut(&self) {
        self.pressure.kept_max.store(0, Ordering::Relaxed);
    }

    /// Has a thread wait that is about to make many changes for others, as `holds_up` has each
    /// client that writes. The thread holds nothing, and is no member of the gate.
    pub fn wait_for_cut(&self) {
        if self.keeps_too_much() {
            std::thread::sleep(Duration::from_millis(WAIT_MS as u64));
            self.give_up_cut_that_lags();
        }
    }

    /// Whether there are too many bytes of copies for the cut.
    pub fn keeps_too_much(&self) -> bool {
        self.keyspace.kept_bytes() > self.pressure.kept_max.load(Ordering::Relaxed)
    }

    /// Gives up the cut if waiting does not help because the disk is too slow.
    fn give_up_cut_that_lags(&self) {
        let kept_max = self.pressure.kept_max.load(Ordering::Relaxed);
        if self.keyspace.kept_bytes() <= kept_max.saturating_mul(KEPT_ABORT) {
            return;
        }
        if let Some(what) = self.abort_cut() {
            log::warn!("The disk is too slow for the {what} beside the writes; it was aborted");
        }
    }

    /// Aborts the current cut, so that what it is for fails. Returns what that is.
    pub fn abort_cut(&self) -> Option<&'static str> {
        let cut = self.pressure.cut.lock();
        let (cut, what) = cut.as_ref().filter(|(cut, _)| !cut.is_aborted())?;
        cut.abort();
        Some(what)
    }

    /// The error for clients that write while the disk fails.
    #[cold]
    pub fn disk_failure(&self) -> Option<Failure> {
        let switches = self.switches.load();
        if switches & Switch::SAVE_FAILED != 0
            && self.config.stop_writes_on_bgsave_error()
            && self.has_save_points()
        {
            return Some(Failure::snapshot_failed(&self.config));
        }
        (switches & Switch::LOG_FAILED != 0).then(|| Failure::format(self.log_failure()))
    }

    /// Whether clients may not write because the server is a replica.
    #[cold]
    pub fn is_read_only(&self) -> bool {
        self.switches.has(Switch::REPLICA) && self.config.replica_read_only()
    }

    /// Whether the data may be too old to be read.
    #[cold]
    pub fn is_too_stale(&self) -> bool {
        self.switches.has(Switch::LINK_DOWN) && !self.config.replica_serve_stale_data()
    }

    /// The error for clients that write while the log cannot be written.
    #[cold]
    pub fn log_failure(&self) -> String {
        let error = std::io::Error::from_raw_os_error(self.log_error.load(Ordering::Relaxed));
        format!("MISCONF Errors writing to the AOF file: {}", bobbin_io::error_text(&error))
    }
}

/// Copies for the cut being walked may take one part in `KEPT_SHARE` of the memory in use, and
/// always `KEPT_MIN` bytes. Above `KEPT_ABORT` times that limit, the cut is given up.
const KEPT_SHARE: usize = 20;
const KEPT_MIN: usize = 16 << 20;
const KEPT_ABORT: usize = 4;
/// The longest time that a write waits for a walk, in milliseconds.
const WAIT_MS: i64 = 2;
