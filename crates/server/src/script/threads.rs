//! The threads in which long scripts go on.
//!
//! A thread that has nothing to do is kept for a while, as many scripts end sooner than a thread is made.

use std::io;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::ThreadId;
use std::time::Duration;

use bobbin_store::sync::Mutex;

use super::busy::Run;
use crate::background;
use crate::command::Data;
use crate::cores::{self, Share, Work};
use crate::server::Server;
use crate::stats::WorkerStats;
use crate::worker::Post;

/// The threads that wait for a script.
#[derive(Default)]
pub(super) struct Threads {
    /// The thread that worked last is at the end, and gets the next script: its caches are warm.
    idle: Mutex<Vec<Idle>>,
}

struct Idle {
    id: ThreadId,
    tasks: Sender<Task>,
}

/// A run that a thread has go on, and where it is left when it is over, or when the thread cannot have it go on.
struct Task {
    run: Box<Run>,
    back: Back,
    /// The id of the worker that goes on with it then.
    worker: usize,
}

/// Where a thread leaves a run; `None` until then.
pub(super) type Back = Arc<Mutex<Option<Box<Run>>>>;

impl Threads {
    /// Has a thread go on with a run of this worker's client; where the thread will leave it. The run comes back if
    /// there can be no thread.
    pub fn give(
        &self,
        server: &'static Server,
        worker: usize,
        run: Box<Run>,
    ) -> Result<Back, Box<Run>> {
        let back = Back::default();
        let mut task = Task { run, back: Arc::clone(&back), worker };
        loop {
            let idle = self.idle.lock().pop();
            let tasks = match idle.map_or_else(|| start(server), |idle| Ok(idle.tasks)) {
                Ok(tasks) => tasks,
                Err(error) => {
                    log::warn!(
                        "Can't start a thread for a long script, other clients have to wait: {error}"
                    );
                    return Err(task.run);
                }
            };
            match tasks.send(task) {
                Ok(()) => return Ok(back),
                Err(unsent) => task = unsent.0,
            }
        }
    }

    /// Waits for the next task of the calling thread; `None`: nobody has had one for a while.
    fn next(&self, own: &Sender<Task>, tasks: &Receiver<Task>) -> Option<Task> {
        let id = std::thread::current().id();
        self.idle.lock().push(Idle { id, tasks: own.clone() });
        loop {
            match tasks.recv_timeout(KEPT) {
                Ok(task) => return Some(task),
                Err(RecvTimeoutError::Disconnected) => return None,
                Err(RecvTimeoutError::Timeout) => {
                    let mut idle = self.idle.lock();
                    let at = idle.iter().position(|idle| idle.id == id);
                    // Else somebody has taken it from there, and is about to send a task.
                    if let Some(at) = at {
                        idle.remove(at);
                        return None;
                    }
                }
            }
        }
    }
}

fn start(server: &'static Server) -> io::Result<Sender<Task>> {
    let (sender, tasks) = channel();
    let own = sender.clone();
    let work = move || work(server, &own, &tasks);
    background::start(background::SCRIPT, Work::Serving, work)?;
    Ok(sender)
}

/// Has one run after the other go on, until there are no more.
fn work(server: &'static Server, own: &Sender<Task>, tasks: &Receiver<Task>) {
    // Workers have the cores first.
    cores::share(Share::ShortTurns);
    let mut data = background::data(server);
    let mut next = tasks.recv().ok();
    while let Some(Task { mut run, back, worker }) = next.take() {
        if let Some(data) = &mut data {
            run_beside(server, data, &mut run);
        }
        *back.lock() = Some(run);
        // A test that executes commands without workers looks by itself.
        let _ = server.workers.post(worker, Post::Resume);
        if data.is_some() {
            next = server.scripts.threads.next(own, tasks);
        }
    }
}

/// Has a script go on in the calling thread, until it is over.
fn run_beside(server: &'static Server, data: &mut Data, run: &mut Run) {
    let stats = WorkerStats::new(server.registry.all().len());
    loop {
        data.enter();
        data.refresh_time(server);
        data.follow_config(server);
        let is_over = run.step(server, data, &stats);
        data.leave();
        if is_over {
            break;
        }
    }
    run.counted = Some((std::mem::take(&mut data.counters), stats));
}

/// How long a thread waits for another script.
const KEPT: Duration = Duration::from_secs(10);
