//! The thread that forces the log to disk for `everysec`, so that writing goes on meanwhile.
//!
//! There is at most one `fsync` of the log at a time, whichever thread does it: an error is told
//! only once, and must not be told to one that was not concerned. So a thread that wants another
//! waits for the one under way.

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

/// The thread that calls `fsync`. Made when it is needed first, and there for good.
pub(super) struct Syncer {
    files: Sender<Arc<File>>,
    ended: Receiver<io::Result<()>>,
    /// Up to which record what is under way makes the log safe.
    number: Option<u64>,
    /// What the thread does for one file, where a test has no thread: when it is waited for.
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
            // The writer is there as long as the process.
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

    /// Begins to force to disk what a file has, which is the log up to this record. Nothing is
    /// under way.
    pub(super) fn begin(&mut self, server: &Server, file: &Arc<File>, number: u64) {
        debug_assert!(!self.is_busy());
        Aof::of(server).syncs_beside.store(true, Ordering::Relaxed);
        // The thread never ends while there is a sender that may tell it something.
        drop(self.files.send(Arc::clone(file)));
        self.number = Some(number);
    }

    /// How what was under way went, and up to which record it was, if it is over.
    pub(super) fn take(&mut self) -> Option<(u64, io::Result<()>)> {
        let number = self.number?;
        let outcome = self.ended.try_recv().ok()?;
        self.number = None;
        Some((number, outcome))
    }

    /// Like `take`, but waits until what is under way is over.
    pub(super) fn wait(&mut self) -> Option<(u64, io::Result<()>)> {
        let number = self.number.take()?;
        #[cfg(test)]
        self.alone.iter_mut().for_each(|work| work());
        let gone = |_| Err(io::Error::other("the thread that forces the log to disk is gone"));
        Some((number, self.ended.recv().unwrap_or_else(gone)))
    }
}

/// Forces a file of the log to disk.
pub(super) fn sync(server: &Server, file: &File) -> io::Result<()> {
    let started = Instant::now();
    let outcome = file.sync_data();
    aof::note_log_sync(server, started.elapsed().as_micros() as u64);
    outcome
}
