//! Walks a cut in a thread of its own, while clients are served.

use std::io;
use std::sync::mpsc::{Sender, channel};
use std::time::Duration;

use bobbin_store::{Cut, Piece};

use crate::base::cores::{self, CoreWork};
use crate::engine::command::Data;
use crate::engine::server::{Server, background};

/// A thread that will walk a cut. It is started before the cut begins: if a cut had no thread to
/// walk it, writers would keep copies for it for ever.
pub struct Beside(Sender<Box<dyn FnOnce() + Send>>);

impl Beside {
    /// Starts the thread. Callers must expect that the system gives none.
    pub fn start(name: &str, work: CoreWork) -> io::Result<Self> {
        let (give, task) = channel::<Box<dyn FnOnce() + Send>>();
        // Without a cut, the sender is dropped and the thread ends.
        let run = move || task.recv().into_iter().for_each(|task| task());
        background::start(name, work, run)?;
        Ok(Self(give))
    }

    pub fn run(self, task: impl FnOnce() + Send + 'static) {
        // The thread waits for this task.
        drop(self.0.send(Box::new(task)));
    }
}

/// The `Data` for walking a cut. A cut that was begun must be walked, so this waits while there are
/// too many threads.
pub fn walker(server: &'static Server) -> Data {
    loop {
        if let Some(mut data) = Data::new(&server.keyspace, &server.gate, 0) {
            data.conditions.now_ms = server.clock.now_ms();
            return data;
        }
        std::thread::sleep(THREAD_WAIT);
    }
}

/// Hands all pieces of a cut to `take`. After an error the cut is aborted, but still walked to its
/// end, so that another cut may follow.
pub fn walk(
    server: &'static Server,
    data: &mut Data,
    mut cut: Cut,
    mut take: impl FnMut(&[Piece]) -> io::Result<()>,
) -> io::Result<()> {
    let (handle, hasher) = (cut.handle(), server.keyspace.hasher());
    let mut pieces = Vec::new();
    let mut outcome = Ok(());
    // What was walked since the thread gave way.
    let mut walked = 0;
    loop {
        data.enter();
        let visit =
            |index, walk: &mut dyn FnMut(&mut bobbin_store::Shard)| data.visit(index, |s| walk(s));
        let more = cut.step(hasher, visit, PIECES, &mut pieces);
        data.leave();
        if outcome.is_ok() {
            outcome = if handle.is_aborted() {
                Err(io::Error::new(io::ErrorKind::Interrupted, "the cut was aborted"))
            } else {
                take(&pieces)
            };
            match outcome {
                Ok(()) => slow_down(server, pieces.len(), || !handle.is_aborted()),
                Err(_) => handle.abort(),
            }
        }
        // A shard without keys takes about as long as a key.
        walked += pieces.len() + 1;
        pieces.clear();
        if !more {
            return outcome;
        }
        if walked >= PIECES {
            walked = 0;
            cores::give_way();
        }
    }
}

/// Slows a save down by `rdb-key-save-delay`, for tests. A positive value is the microseconds for
/// each key. A negative value is the number of keys for each microsecond.
pub(super) fn slow_down(server: &Server, keys: usize, goes_on: impl Fn() -> bool) {
    let delay_us = server.config.rdb_key_save_delay();
    if delay_us == 0 || keys == 0 {
        return;
    }
    let keys = keys as u64;
    let mut left_us = match u64::try_from(delay_us) {
        Ok(us) => us * keys,
        Err(_) => keys / delay_us.unsigned_abs().max(1),
    };
    while left_us > 0 && goes_on() && server.config.rdb_key_save_delay() == delay_us {
        let us = left_us.min(DELAY_SLICE_US);
        std::thread::sleep(Duration::from_micros(us));
        left_us -= us;
    }
}

/// How long to wait while there are too many threads.
const THREAD_WAIT: Duration = Duration::from_millis(10);
/// How many keys are copied while a shard is locked, and before the thread gives way.
const PIECES: usize = 128;
/// How often a delay checks whether it is still wanted.
const DELAY_SLICE_US: u64 = 10_000;
