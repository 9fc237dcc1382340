//! Writers that have to wait: what they change is kept in memory until a disk has it, and that must
//! not pile up.
//!
//! Two things can get behind them. The log's thread, by bytes or by time: then every write waits
//! until it has caught up, for what was logged cannot be dropped. And the walk of a cut (of a
//! snapshot or a rewrite): then a write waits for a moment, and a walk that does not catch up even
//! so is given up. A client that waits keeps its command as its next one, like a client that CLIENT
//! PAUSE puts off: its worker serves the others meanwhile.

use std::sync::atomic::{AtomicUsize, Ordering};

use bobbin_store::{Cut, CutHandle};
use bobbin_sync::Mutex;

use crate::engine::client::Client;
use crate::engine::command::{Data, Failure};
use crate::engine::server::{Server, Switch};

/// How much may wait in memory for a disk, and whether that is exceeded.
pub struct Pressure {
    /// Bytes of copies for the cut that is walked, above which writers wait.
    kept_max: AtomicUsize,
    /// That cut, and what it is for.
    cut: Mutex<Option<(CutHandle, &'static str)>>,
}

impl Default for Pressure {
    fn default() -> Self {
        Self { kept_max: AtomicUsize::new(usize::MAX), cut: Mutex::default() }
    }
}

impl Server {
    /// Begins a cut of all keys. `data` holds everything from then on. `end_cut` is called once it
    /// is walked.
    ///
    /// `what` it is for is told if it has to be given up.
    pub fn begin_cut(&self, data: &mut Data, what: &'static str) -> Cut {
        let cut = data.begin_cut();
        *self.pressure.cut.lock() = Some((cut.handle(), what));
        let kept_max = (crate::base::memory::used() / KEPT_SHARE).max(KEPT_MIN);
        self.pressure.kept_max.store(kept_max, Ordering::Relaxed);
        self.switches.set(Switch::CUTTING, true);
        cut
    }

    /// The cut is walked.
    pub fn end_cut(&self) {
        *self.pressure.cut.lock() = None;
        self.switches.set(Switch::CUTTING, false);
    }

    /// The log's reader is far behind a thread, or stuck: no command writes until it has caught up.
    #[cold]
    pub fn put_off_writers_for_log(&self) {
        self.switches.set(Switch::LOG_BEHIND, true);
        // It may have caught up before it could see that.
        self.log.wake();
    }

    /// Bytes of memory of what was logged and is not written, or on its way to replicas.
    pub fn log_bytes(&self) -> usize {
        self.log.held_bytes() + self.unwritten_bytes.load(Ordering::Relaxed)
    }

    /// The log's reader has caught up.
    pub fn let_writers_go(&self) {
        if self.switches.load() & Switch::LOG_BEHIND == 0 {
            return;
        }
        self.switches.set(Switch::LOG_BEHIND, false);
        self.workers.wake();
    }

    /// Whether the log's reader is so far behind that no command may write.
    #[inline]
    pub fn is_log_behind(&self) -> bool {
        self.switches.load() & Switch::LOG_BEHIND != 0
    }

    /// Whether a client that is about to write has to wait. If so, the caller must put it off.
    #[cold]
    pub(crate) fn holds_up(&self, client: &mut Client, data: &mut Data) -> bool {
        if self.is_log_behind() {
            return true;
        }
        if !self.keeps_too_much() {
            client.has_waited = false;
            return false;
        }
        if std::mem::take(&mut client.has_waited) {
            self.give_up_cut_that_lags();
            return false;
        }
        client.has_waited = true;
        if data.turn.held_up_until_ms <= data.turn.now_ms {
            data.turn.held_up_until_ms = data.turn.now_ms + WAIT_MS;
        }
        true
    }

    /// Whether more is kept for the cut than is good.
    pub fn keeps_too_much(&self) -> bool {
        self.keyspace.kept_bytes() > self.pressure.kept_max.load(Ordering::Relaxed)
    }

    /// A disk that is so slow that waiting does not help gets no snapshot.
    fn give_up_cut_that_lags(&self) {
        let kept_max = self.pressure.kept_max.load(Ordering::Relaxed);
        if self.keyspace.kept_bytes() <= kept_max.saturating_mul(KEPT_ABORT) {
            return;
        }
        let cut = self.pressure.cut.lock();
        if let Some((cut, what)) = cut.as_ref().filter(|(cut, _)| !cut.is_aborted()) {
            cut.abort();
            log::warn!("The disk is too slow for the {what} beside the writes; it was aborted");
        }
    }

    /// What clients that write are refused with while the disk does not take what they do.
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

    /// Whether clients may not write, as their primary alone does.
    #[cold]
    pub fn is_read_only(&self) -> bool {
        self.switches.load() & Switch::REPLICA != 0 && self.config.replica_read_only()
    }

    /// Whether what there is may be too old to be read.
    #[cold]
    pub fn is_too_stale(&self) -> bool {
        self.switches.load() & Switch::LINK_DOWN != 0 && !self.config.replica_serve_stale_data()
    }

    /// What a write is refused with while the log cannot be written.
    #[cold]
    pub fn log_failure(&self) -> String {
        let error = std::io::Error::from_raw_os_error(self.log_error.load(Ordering::Relaxed));
        format!("MISCONF Errors writing to the AOF file: {}", bobbin_io::error_text(&error))
    }
}

/// Copies that wait for the walk of a cut may take one part in `KEPT_SHARE` of the memory in use,
/// and always `KEPT_MIN` bytes. Above `KEPT_ABORT` times that limit, the cut is given up.
const KEPT_SHARE: usize = 20;
const KEPT_MIN: usize = 16 << 20;
const KEPT_ABORT: usize = 4;
/// How long a write waits for a walk, at most.
const WAIT_MS: i64 = 2;
