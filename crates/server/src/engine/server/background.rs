//! Threads that serve no clients: those that write files, and those of MIGRATE, which also use
//! keys.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bobbin_io::Waker;

use crate::base::cores::{self, CoreWork};
use crate::engine::command::Data;
use crate::engine::log::Recorder;
use crate::engine::pubsub::Subscribers;
use crate::engine::server::{Server, WorkerHandle};
use crate::engine::tracking::Tracker;

/// Starts a thread beside the workers. An error, because the system has no more threads, is an
/// ordinary event.
pub fn start(name: &str, work: CoreWork, run: impl FnOnce() + Send + 'static) -> io::Result<()> {
    #[cfg(test)]
    let Some(run) = crate::simulation::tasks::keep(name, run) else { return Ok(()) };
    let run = move || {
        cores::go_to(work);
        run();
    };
    std::thread::Builder::new().name(name.to_owned()).spawn(run).map(drop)
}

/// Sleeps for a moment, so that other threads can work.
pub fn pause() {
    #[cfg(test)]
    if crate::simulation::tasks::is_driven() {
        crate::simulation::tasks::run_next().expect("somebody has work");
        return;
    }
    std::thread::sleep(PAUSE);
}

/// How long a thread sleeps that waits for another one's work.
const PAUSE: Duration = Duration::from_micros(50);

/// What the calling thread needs to use keys and to publish what happens to them. Returns `None` if
/// there are too many threads or open files.
pub fn data(server: &'static Server) -> Option<Data> {
    static SEED: AtomicU64 = AtomicU64::new(1);
    let seed = SEED.fetch_add(1, Ordering::Relaxed);
    let mut data = Data::new(&server.keyspace, &server.gate, seed)?;
    data.conditions.now_ms = server.clock.now_ms();
    // No worker has this id, so nothing is published to this thread.
    let handle = WorkerHandle::new(usize::MAX, Waker::new().ok()?, "none", 0);
    data.audience.subscribers = Some(Box::new(Subscribers::new(&server.pubsub, Arc::new(handle))));
    data.audience.tracker = Some(Box::new(Tracker::new(server)));
    data.recorder = Recorder::new(server.log.lane());
    Some(data)
}
