//! What other threads see of a thread at work: when its turn began, which client it serves, and how
//! much processor time it has used.
//!
//! This costs two plain stores for each turn, and one for each connection with commands.

use std::sync::atomic::{AtomicI32, AtomicU64, Ordering};

/// The state that a worker shows. Only the worker writes it.
#[derive(Default)]
pub struct Watch {
    /// The kernel's id of the worker's thread.
    thread: AtomicI32,
    /// The tick at which the turn began; 0 between turns.
    pub turn: AtomicU64,
    /// The client whose commands are being executed, or were last.
    client: AtomicU64,
}

/// Processor time in seconds.
#[derive(Clone, Copy, Default, Debug)]
pub struct CpuTime {
    pub user_s: f64,
    pub system_s: f64,
}

impl Watch {
    /// Notes the calling thread as the worker's.
    pub fn begin(&self) {
        self.thread.store(rustix::thread::gettid().as_raw_nonzero().get(), Ordering::Relaxed);
    }

    /// Notes that a turn begins.
    #[inline(always)]
    pub fn enter(&self, now: u64) {
        self.turn.store(now, Ordering::Relaxed);
    }

    /// Notes that the turn is over.
    #[inline(always)]
    pub fn leave(&self) {
        self.turn.store(0, Ordering::Relaxed);
    }

    /// Notes that the following commands are this client's.
    #[inline(always)]
    pub fn serve(&self, client: u64) {
        self.client.store(client, Ordering::Relaxed);
    }

    pub fn thread(&self) -> i32 {
        self.thread.load(Ordering::Relaxed)
    }

    pub fn client(&self) -> u64 {
        self.client.load(Ordering::Relaxed)
    }
}

impl CpuTime {
    /// The processor time of a thread of this process; zero if there is no such thread.
    pub fn of_thread(thread: i32) -> Self {
        let stat = std::fs::read_to_string(format!("/proc/self/task/{thread}/stat"));
        let stat = stat.unwrap_or_default();
        // The name, in brackets, may contain anything. Behind it are the fields from number 3 on,
        // as in proc(5).
        let fields = stat.rsplit_once(") ").map_or("", |(_, fields)| fields);
        let hertz = rustix::param::clock_ticks_per_second() as f64;
        let seconds = |at: usize| {
            let ticks = fields.split(' ').nth(at).and_then(|field| field.parse::<f64>().ok());
            ticks.unwrap_or(0.0) / hertz
        };
        Self { user_s: seconds(11), system_s: seconds(12) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_has_processor_time() {
        let own = rustix::thread::gettid().as_raw_nonzero().get();
        let before = CpuTime::of_thread(own).user_s;
        while CpuTime::of_thread(own).user_s < before + 0.02 {}
        assert_eq!(CpuTime::of_thread(-1).user_s, 0.0);
    }
}
