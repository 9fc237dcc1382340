//! Threads that serve no clients: those that write files, and MIGRATE's, which reach keys all the
//! same.

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

/// Has a thread of its own do something beside the workers. That the system gives none is an
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

/// Lets other threads get on with their work for a moment.
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

/// What the calling thread needs to reach keys, and to publish what happens to them. `None`: there
/// are too many threads, or too many open files.
pub fn data(server: &'static Server) -> Option<Data> {
    static SEED: AtomicU64 = AtomicU64::new(1);
    let seed = SEED.fetch_add(1, Ordering::Relaxed);
    let mut data = Data::new(&server.keyspace, &server.gate, seed)?;
    data.turn.now_ms = server.clock.now_ms();
    // No worker has this id: nothing is ever published to this thread.
    let handle = WorkerHandle::new(usize::MAX, Waker::new().ok()?, "none", 0);
    data.audience.subscribers = Some(Box::new(Subscribers::new(&server.pubsub, Arc::new(handle))));
    data.audience.tracker = Some(Box::new(Tracker::new(server)));
    data.recorder = Recorder::new(server.log.lane());
    Some(data)
}
