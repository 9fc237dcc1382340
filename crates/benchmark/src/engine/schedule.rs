//! When the next request is due.

use std::os::fd::OwnedFd;

use rustix::{
    io::Errno,
    time::{
        Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create,
        timerfd_settime,
    },
};

use super::{Arrivals, Pace};
use crate::workload::WorkloadRandom;

/// The times at which one thread may or must send, on the clock of the run.
#[derive(Debug)]
pub(super) struct SendSchedule {
    interval_ns: f64,
    next_ns: f64,
    is_open: bool,
    arrivals: Arrivals,
    random: WorkloadRandom,
}

impl SendSchedule {
    /// The part `share` of the pace's rate; nothing for a load that only waits for replies.
    pub(super) fn new(pace: Pace, share: f64, seed: u64) -> Option<Self> {
        let (per_second, is_open, arrivals) = match pace {
            Pace::Closed => return None,
            Pace::Limited { per_second } => (per_second, false, Arrivals::Even),
            Pace::Open { per_second, arrivals } => (per_second, true, arrivals),
        };
        Some(Self {
            interval_ns: 1e9 / (per_second * share),
            next_ns: 0.0,
            is_open,
            arrivals,
            random: WorkloadRandom::new(seed),
        })
    }

    /// Threads start at different moments of the interval, so that they do not send together.
    pub(super) fn start(&mut self, now_ns: u64) {
        self.next_ns = now_ns as f64 + self.interval_ns * self.random.unit();
    }

    #[inline]
    pub(super) fn next_ns(&self) -> u64 {
        self.next_ns as u64
    }

    /// `count` requests are on their way.
    #[inline]
    pub(super) fn advance(&mut self, count: u64) {
        let intervals = match self.arrivals {
            Arrivals::Even => count as f64,
            Arrivals::Poisson => count as f64 * self.random.exponential(),
        };
        self.next_ns += self.interval_ns * intervals;
    }

    /// What a slow server kept a limited load from sending is made up for only within bounds.
    pub(super) fn forget_before(&mut self, now_ns: u64) {
        self.next_ns = self.next_ns.max(now_ns as f64 - CATCH_UP_NS_MAX);
    }

    #[inline]
    pub(super) fn is_open(&self) -> bool {
        self.is_open
    }
}

/// Wakes an epoll at a moment more exact than its own milliseconds.
#[derive(Debug)]
pub(super) struct WakeTimer {
    file: OwnedFd,
}

impl WakeTimer {
    pub(super) fn new() -> Result<Self, Errno> {
        let flags = TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC;
        Ok(Self { file: timerfd_create(TimerfdClockId::Monotonic, flags)? })
    }

    pub(super) fn file(&self) -> &OwnedFd {
        &self.file
    }

    pub(super) fn arm(&self, wait_ns: u64) -> Result<(), Errno> {
        let value = Timespec {
            tv_sec: (wait_ns / 1_000_000_000) as i64,
            tv_nsec: (wait_ns % 1_000_000_000) as i64,
        };
        let once = Itimerspec { it_interval: Timespec::default(), it_value: value };
        timerfd_settime(&self.file, TimerfdTimerFlags::empty(), &once).map(|_| ())
    }
}

const CATCH_UP_NS_MAX: f64 = 100e6;
