//! Work of a command that cannot be done in slices: a thread of its own does it, on what was
//! pinned, while the command's client waits.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, channel};

use crate::base::cores::CoreWork;
use crate::engine::server::background;

/// Something that another thread works out.
pub struct Elsewhere<T>(Receiver<T>);

/// Threads at work.
static THREADS: AtomicUsize = AtomicUsize::new(0);
/// More of them would take the workers' cores.
const THREADS_MAX: usize = 2;

/// One thread less, when it is dropped.
struct Place;

impl<T: Send + 'static> Elsewhere<T> {
    /// `None`: all threads have work, or the system gives none. Then it must be done here.
    pub fn start(name: &str, work: impl FnOnce() -> T + Send + 'static) -> Option<Self> {
        let place = Place::take()?;
        let (sender, receiver) = channel();
        let run = move || {
            // The receiver that waited for it may be gone.
            drop(sender.send(work()));
            drop(place);
        };
        background::start(name, CoreWork::Background, run).ok()?;
        Some(Self(receiver))
    }

    /// What it came to, once, when it is done.
    pub fn result(&self) -> Option<T> {
        self.0.try_recv().ok()
    }
}

impl Place {
    fn take() -> Option<Self> {
        let place = Self;
        // Too many is put right when the place is dropped.
        (THREADS.fetch_add(1, Ordering::Relaxed) < THREADS_MAX).then_some(place)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        THREADS.fetch_sub(1, Ordering::Relaxed);
    }
}
