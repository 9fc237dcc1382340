//! What others see of a worker at work: when its turn began, which client it serves, and how much
//! processor time it took. It also holds the watchdog (`watchdog-period`), which logs a turn that
//! does not end.
//!
//! A turn costs two plain stores here, and a connection's commands one.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU64, Ordering};
use std::time::Duration;

use crate::clock::ticks;
use crate::crash;
use crate::server::{Server, WorkerHandle};

/// What a worker shows. It alone writes.
#[derive(Default)]
pub struct Watch {
    /// The kernel's number of its thread.
    thread: AtomicI32,
    /// The tick at which the turn began; 0 between turns.
    turn: AtomicU64,
    /// The client whose commands are at work, or were last.
    client: AtomicU64,
}

/// Seconds.
#[derive(Clone, Copy, Default, Debug)]
pub struct CpuTime {
    pub user_s: f64,
    pub system_s: f64,
}

/// Whether the watchdog's thread runs.
#[derive(Default)]
pub struct Watchdog {
    runs: AtomicBool,
}

/// The shortest period.
const PERIOD_MIN_MS: u64 = 200;

impl Watch {
    /// The calling thread is the worker's.
    pub fn begin(&self) {
        self.thread.store(rustix::thread::gettid().as_raw_nonzero().get(), Ordering::Relaxed);
    }

    /// A turn begins.
    #[inline(always)]
    pub fn enter(&self, now: u64) {
        self.turn.store(now, Ordering::Relaxed);
    }

    /// The turn is over.
    #[inline(always)]
    pub fn leave(&self) {
        self.turn.store(0, Ordering::Relaxed);
    }

    /// The commands that follow are this client's.
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
    /// Of a thread of this process; zero when there is none.
    pub fn of_thread(thread: i32) -> Self {
        let stat = std::fs::read_to_string(format!("/proc/self/task/{thread}/stat"));
        let stat = stat.unwrap_or_default();
        // The name, in brackets, may hold anything. Behind it: proc(5), fields 3 and up.
        let fields = stat.rsplit_once(") ").map_or("", |(_, fields)| fields);
        let hertz = rustix::param::clock_ticks_per_second() as f64;
        let seconds = |at: usize| {
            let ticks = fields.split(' ').nth(at).and_then(|field| field.parse::<f64>().ok());
            ticks.unwrap_or(0.0) / hertz
        };
        Self { user_s: seconds(11), system_s: seconds(12) }
    }
}

impl Server {
    /// Starts the watchdog if `watchdog-period` says so; it ends by itself when that says no more.
    /// At start, and for CONFIG SET.
    pub fn follow_watchdog(&'static self) {
        if self.config.watchdog_period() == 0 || self.watchdog.runs.swap(true, Ordering::AcqRel) {
            return;
        }
        let watch = move || {
            watch(self);
            self.watchdog.runs.store(false, Ordering::Release);
            // It may have been wanted again at the last moment.
            self.follow_watchdog();
        };
        if let Err(error) = std::thread::Builder::new().name("bobbin-watchdog".into()).spawn(watch)
        {
            self.watchdog.runs.store(false, Ordering::Release);
            log::warn!("Can't start the watchdog: {error}");
        }
    }
}

/// Looks at all workers, some times in each period, until there is none.
fn watch(server: &'static Server) {
    // By worker: the turn that was told of, and for how long it should not be again.
    let mut told: HashMap<usize, (u64, u64)> = HashMap::new();
    loop {
        let period_ms = match server.config.watchdog_period() {
            0 => return,
            period_ms => (period_ms as u64).max(PERIOD_MIN_MS),
        };
        std::thread::sleep(Duration::from_millis(period_ms / 4));
        let now = ticks();
        for worker in server.workers.all() {
            let turn = worker.watch.turn.load(Ordering::Relaxed);
            let ms = server.clock.us(now.saturating_sub(turn)) as u64 / 1000;
            if let Some((before, _)) = told.get(&worker.id)
                && *before != turn
            {
                log::warn!("WATCHDOG: worker {} goes on.", worker.id);
                told.remove(&worker.id);
            }
            let (_, until_ms) = told.get(&worker.id).copied().unwrap_or((turn, period_ms));
            if turn == 0 || ms < until_ms {
                continue;
            }
            // Then after twice the time, and so on.
            told.insert(worker.id, (turn, ms * 2));
            log::warn!(
                "WATCHDOG: worker {} has been in one turn for {ms} ms. {}",
                worker.id,
                describe(server, &worker)
            );
            crash::show_stack(worker.watch.thread());
        }
    }
}

/// SIGALRM: logs what all workers do, and where.
pub fn show_workers(server: &'static Server) {
    log::warn!("Received SIGALRM");
    let now = ticks();
    for worker in server.workers.all() {
        let turn = worker.watch.turn.load(Ordering::Relaxed);
        if turn == 0 {
            log::warn!("Worker {} waits.", worker.id);
            continue;
        }
        let ms = server.clock.us(now.saturating_sub(turn)) as u64 / 1000;
        let what = describe(server, &worker);
        log::warn!("Worker {} has been in one turn for {ms} ms. {what}", worker.id);
        crash::show_stack(worker.watch.thread());
    }
}

/// What a worker does, as far as others can see it.
pub fn describe(server: &Server, worker: &WorkerHandle) -> String {
    let Some(info) = server.clients.find(worker.watch.client()) else {
        return "The client that it served last is gone.".into();
    };
    let command = server.registry.all().get(info.command.load(Ordering::Relaxed));
    format!(
        "It serves, or served last: client id={} addr={} db={} name={}; its command is {}.",
        info.id,
        info.peer,
        info.database.load(Ordering::Relaxed),
        String::from_utf8_lossy(&info.names().name),
        command.map_or("none", |command| &command.full_name),
    )
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
