//! Walking a cut beside the clients, in a thread that is there for that.

use std::io;
use std::sync::mpsc::{Sender, channel};
use std::time::Duration;

use bobbin_store::{Cut, Piece};

use crate::base::cores::{self, CoreWork};
use crate::engine::command::Data;
use crate::engine::server::{Server, background};

/// A thread for what walks a cut. It is there before the cut begins: if no thread walked a cut,
/// every writer would keep copies for it for ever.
pub struct Beside(Sender<Box<dyn FnOnce() + Send>>);

impl Beside {
    /// Makes the thread. That it cannot be made is an ordinary event.
    pub fn start(name: &str, work: CoreWork) -> io::Result<Self> {
        let (give, task) = channel::<Box<dyn FnOnce() + Send>>();
        // Nothing comes where no cut was begun.
        let run = move || task.recv().into_iter().for_each(|task| task());
        background::start(name, work, run)?;
        Ok(Self(give))
    }

    pub fn run(self, task: impl FnOnce() + Send + 'static) {
        // The thread waits for it.
        drop(self.0.send(Box::new(task)));
    }
}

/// What walks a cut. The cut was begun, so it has to be walked: while there are too many threads
/// this waits.
pub fn walker(server: &'static Server) -> Data {
    loop {
        if let Some(mut data) = Data::new(&server.keyspace, &server.gate, 0) {
            data.turn.now_ms = server.clock.now_ms();
            return data;
        }
        std::thread::sleep(THREAD_WAIT);
    }
}

/// Hands the pieces of a cut on until they are all or an error comes; then the cut is aborted. It
/// is walked to its end whatever happens, so that another may follow.
pub fn walk(
    server: &'static Server,
    data: &mut Data,
    mut cut: Cut,
    mut take: impl FnMut(&[Piece]) -> io::Result<()>,
) -> io::Result<()> {
    let (handle, hasher) = (cut.handle(), server.keyspace.hasher());
    let mut pieces = Vec::new();
    let mut outcome = Ok(());
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
        pieces.clear();
        if !more {
            return outcome;
        }
        cores::give_way();
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
/// Keys that are copied while a shard is held.
const PIECES: usize = 128;
/// How long a delay goes on after it is not wanted any more.
const DELAY_SLICE_US: u64 = 10_000;
