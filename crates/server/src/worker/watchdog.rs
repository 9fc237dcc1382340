//! The watchdog (`watchdog-period`) logs when a worker's turn does not end.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bobbin_io::error_text;

use super::stack::show_stack;
use crate::base::clock::ticks;
use crate::engine::server::{Server, WorkerHandle};

/// Whether the watchdog's thread runs.
#[derive(Default)]
pub struct Watchdog {
    runs: AtomicBool,
}

impl Watchdog {
    pub fn of(server: &Server) -> &Self {
        server.parts.get()
    }
}

/// The shortest period.
const PERIOD_MIN_MS: u64 = 200;

/// Starts the watchdog's thread if `watchdog-period` asks for it. The thread ends by itself when
/// the option becomes 0. Called at the start and by CONFIG SET.
pub fn follow_watchdog(server: &'static Server) -> Result<(), String> {
    if server.config.watchdog_period() == 0
        || Watchdog::of(server).runs.swap(true, Ordering::AcqRel)
    {
        return Ok(());
    }
    let watch = move || {
        watch(server);
        Watchdog::of(server).runs.store(false, Ordering::Release);
        // The option may have been set again at the last moment.
        if let Err(error) = follow_watchdog(server) {
            log::warn!("{error}");
        }
    };
    let started = std::thread::Builder::new().name("bobbin-watchdog".into()).spawn(watch);
    started.map(drop).map_err(|error| {
        Watchdog::of(server).runs.store(false, Ordering::Release);
        format!("Can't start the watchdog: {}", error_text(&error))
    })
}

/// Checks all workers four times in each period, until the option is 0.
fn watch(server: &'static Server) {
    // By worker: the turn that was logged last, and how long it may take before it is logged again.
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
            // Log again after twice the time.
            told.insert(worker.id, (turn, ms * 2));
            log::warn!(
                "WATCHDOG: worker {} has been in one turn for {ms} ms. {}",
                worker.id,
                describe(server, &worker)
            );
            show_stack(worker.watch.thread());
        }
    }
}

/// Answers SIGALRM: logs what all workers do, and their stacks.
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
        show_stack(worker.watch.thread());
    }
}

/// What a worker does, as far as other threads can see.
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
