//! Work of a command that cannot be done in slices. A thread of its own does the work on pinned
//! values, while the command's client waits.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, channel};

use crate::base::cores::CoreWork;
use crate::engine::server::background;

/// A result that another thread computes.
pub struct Elsewhere<T>(Receiver<T>);

/// The number of threads at work.
static THREADS: AtomicUsize = AtomicUsize::new(0);
/// The most threads at a time. More of them would take the workers' cores.
const THREADS_MAX: usize = 2;

/// A place among the `THREADS_MAX` threads. Dropping it makes the place free.
struct ThreadPlace;

impl<T: Send + 'static> Elsewhere<T> {
    /// Starts the work. Returns `None` if all places are taken or the system cannot start a thread;
    /// then the caller does the work itself.
    pub fn start(name: &str, work: impl FnOnce() -> T + Send + 'static) -> Option<Self> {
        let place = ThreadPlace::take()?;
        let (sender, receiver) = channel();
        let run = move || {
            // The receiver may have been dropped meanwhile.
            drop(sender.send(work()));
            drop(place);
        };
        background::start(name, CoreWork::Background, run).ok()?;
        Some(Self(receiver))
    }

    /// Takes the result, if the work is done. Only the first call that finds the result returns it.
    pub fn result(&self) -> Option<T> {
        self.0.try_recv().ok()
    }
}

impl ThreadPlace {
    fn take() -> Option<Self> {
        let place = Self;
        // If the count went over the limit, dropping the place corrects it.
        (THREADS.fetch_add(1, Ordering::Relaxed) < THREADS_MAX).then_some(place)
    }
}

impl Drop for ThreadPlace {
    fn drop(&mut self) {
        THREADS.fetch_sub(1, Ordering::Relaxed);
    }
}
