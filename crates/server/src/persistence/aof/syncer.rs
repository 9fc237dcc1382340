//! The thread that syncs the log for `everysec`, so that writing goes on meanwhile.
//!
//! There is at most one `fsync` of the log at a time, whichever thread calls it. The kernel reports
//! an error only once, so the thread that gets it must be the one whose bytes it concerns. A thread
//! that wants another `fsync` waits for the current one.

use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Instant;

use crate::base::cores::{self, CoreWork};
use crate::base::files::File;
use crate::engine::server::Server;
use crate::persistence::aof;
use crate::persistence::aof::Aof;

/// The thread that calls `fsync`. It is started when it is first needed, and never ends.
pub(super) struct Syncer {
    files: Sender<Arc<File>>,
    ended: Receiver<io::Result<()>>,
    /// The last record that the current `fsync` covers. `None`: there is no `fsync`.
    number: Option<u64>,
    /// In a test without this thread: does the thread's work when somebody waits for it.
    #[cfg(test)]
    alone: Option<Box<dyn FnMut() + Send>>,
}

impl Syncer {
    pub(super) fn start(server: &'static Server) -> io::Result<Self> {
        let (files, taken) = channel::<Arc<File>>();
        let (end, ended) = channel();
        let see_to = move |file: Arc<File>| {
            let outcome = sync(server, &file);
            drop(file);
            Aof::of(server).syncs_beside.store(false, Ordering::Relaxed);
            // The writer lives as long as the process.
            drop(end.send(outcome));
            server.log.wake();
        };
        #[cfg(test)]
        if crate::simulation::tasks::is_driven() {
            let alone = Some(Box::new(move || taken.try_iter().for_each(&see_to)) as _);
            return Ok(Self { files, ended, number: None, alone });
        }
        let run = move || {
            cores::go_to(CoreWork::Background);
            taken.into_iter().for_each(see_to);
        };
        std::thread::Builder::new().name("bobbin-fsync".into()).spawn(run)?;
        Ok(Self {
            files,
            ended,
            number: None,
            #[cfg(test)]
            alone: None,
        })
    }

    pub(super) const fn is_busy(&self) -> bool {
        self.number.is_some()
    }

    /// Begins to sync a file that has the log up to this record. No `fsync` may be in progress.
    pub(super) fn begin(&mut self, server: &Server, file: &Arc<File>, number: u64) {
        debug_assert!(!self.is_busy());
        Aof::of(server).syncs_beside.store(true, Ordering::Relaxed);
        // The thread does not end while this sender exists.
        drop(self.files.send(Arc::clone(file)));
        self.number = Some(number);
    }

    /// If the `fsync` has ended: the last record that it covered, and its outcome.
    pub(super) fn take(&mut self) -> Option<(u64, io::Result<()>)> {
        let number = self.number?;
        let outcome = self.ended.try_recv().ok()?;
        self.number = None;
        Some((number, outcome))
    }

    /// Does the same as `take`, but waits for the end of the `fsync`.
    pub(super) fn wait(&mut self) -> Option<(u64, io::Result<()>)> {
        let number = self.number.take()?;
        #[cfg(test)]
        self.alone.iter_mut().for_each(|work| work());
        let gone = |_| Err(io::Error::other("the thread that forces the log to disk is gone"));
        Some((number, self.ended.recv().unwrap_or_else(gone)))
    }
}

/// Syncs a file of the log.
pub(super) fn sync(server: &Server, file: &File) -> io::Result<()> {
    let started = Instant::now();
    let outcome = file.sync_data();
    aof::note_log_sync(server, started.elapsed().as_micros() as u64);
    outcome
}
