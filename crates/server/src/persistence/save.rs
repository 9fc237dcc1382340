//! Writes a snapshot's file: in a thread beside the clients, or while they wait.
//!
//! The file is written under a temporary name, forced to disk and then renamed. So the configured
//! name always has a complete file.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use bobbin_io::error_text;
use bobbin_sync::Mutex;

use super::position::CutPosition;
use super::snapshot::{self, Contents, Purpose};
use super::walk::{self, Beside};
use super::{Persistence, RunningSave};
use crate::base::cores::CoreWork;
use crate::base::files::{self, DATA_MODE, GrowingFile, disk};
use crate::engine::blocking::Waiter;
use crate::engine::command::{Data, Failure};
use crate::engine::server::{Server, Switch};
use crate::engine::telemetry::latency::LatencyEvent;
use crate::persistence::aof::rewrite;

/// Why no save was begun.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum NotBegun {
    /// A save or a rewrite of the log is in progress.
    Busy,
    /// The system gives no thread. A save that no client waits for has failed then; SAVE saves
    /// without a thread.
    NoThread,
}

/// Begins to save the current data in a thread of its own. The waiter, if there is one, is answered
/// when the save has ended. Afterwards `data` holds the gate.
pub fn start_save(
    server: &'static Server,
    data: &mut Data,
    waiter: Option<Arc<Waiter>>,
) -> Result<(), NotBegun> {
    let persistence = Persistence::of(server);
    if !data.hold_gate() || rewrite::cut_is_busy(server) {
        return Err(NotBegun::Busy);
    }
    let beside = Beside::start("bobbin-save", CoreWork::Saving).map_err(|error| {
        log::warn!("Can't save in background: {}", error_text(&error));
        persistence.last_try_ms.store(server.clock.now_ms(), Ordering::Relaxed);
        if waiter.is_none() {
            set_save_failed(server, true);
        }
        NotBegun::NoThread
    })?;
    let mut waiters = std::mem::take(&mut *persistence.waiting.lock());
    waiters.extend(waiter);
    let changes = server.workers.totals().dirty.get() + data.counters.dirty;
    let position = CutPosition::of(server, data);
    let destination = SnapshotPaths::of(server);
    let contents = Contents::begin(server, data, "snapshot");
    let (cut, started_ms) = (contents.keys.handle(), server.clock.now_ms());
    let keys = contents.key_count();
    *persistence.unnamed.lock() = Some(cut.clone());
    let is_waited_for = !waiters.is_empty();
    let running = RunningSave { cut, started_ms, keys, changes, is_waited_for };
    *persistence.running.lock() = Some(running);
    persistence.written_keys.store(0, Ordering::Relaxed);
    persistence.last_try_ms.store(server.clock.now_ms(), Ordering::Relaxed);
    persistence.scheduled.store(false, Ordering::Relaxed);
    let (_, begun_us) = server.cuts_begun();
    log::info!("Background saving started by thread, the cut took {begun_us} microseconds");
    let task = SaveTask { server, contents, position, waiters, destination };
    beside.run(|| task.run());
    Ok(())
}

/// Saves while all clients wait. `data` holds the gate. The file says that the replication stream
/// was at `position`, which this waits for.
pub fn save_held(
    server: &'static Server,
    data: &mut Data,
    position: CutPosition,
) -> io::Result<()> {
    let changes = server.workers.totals().dirty.get() + data.counters.dirty;
    let mut file = SnapshotFile::create(server, SnapshotPaths::of(server))?;
    let written = snapshot::write_held(server, data, position.wait(), &mut file.growing)
        .and_then(|()| file.publish(SnapshotPaths::take_name));
    match &written {
        Ok(()) => {
            Persistence::of(server).is_owed.store(false, Ordering::Relaxed);
            Persistence::of(server).set_saved(changes);
            saved(server);
        }
        Err(error) => {
            log::warn!("Write error while saving DB to the disk: {}", error_text(error));
            file.remove(server);
        }
    }
    written
}

/// Notes that a snapshot is in place.
fn saved(server: &Server) {
    log::info!("DB saved on disk");
    let persistence = Persistence::of(server);
    persistence.last_save_s.store(server.clock.now_ms() / 1000, Ordering::Relaxed);
    persistence.saves.fetch_add(1, Ordering::Relaxed);
    set_save_failed(server, false);
}

fn set_save_failed(server: &Server, failed: bool) {
    server.switches.set(Switch::SAVE_FAILED, failed);
}

/// Aborts the current save. Returns whether there was one whose file did not have its name yet.
pub fn abort_save(server: &Server) -> bool {
    let mut unnamed = Persistence::of(server).unnamed.lock();
    unnamed.take().inspect(|cut| cut.abort()).is_some()
}

impl Persistence {
    /// Waits until no save is in progress. The caller holds no lock, and is not a member of the
    /// gate.
    pub fn wait_until_idle(&self) {
        let mut running = self.running.lock();
        while running.is_some() {
            running = self.ended.wait(running);
        }
    }

    /// Whether a file is being renamed at this moment.
    #[cfg(test)]
    pub(crate) fn is_naming(&self) -> bool {
        self.unnamed.try_lock().is_none()
    }

    /// Whether a save is in progress that no client waits for.
    pub fn saves_in_background(&self) -> bool {
        self.running.lock().as_ref().is_some_and(|running| !running.is_waited_for)
    }

    /// Whether the current save has not been aborted.
    pub fn current_is_wanted(&self) -> bool {
        let running = self.running.lock();
        running.as_ref().is_none_or(|running| !running.cut.is_aborted())
    }
}

/// A save in a thread of its own.
struct SaveTask {
    server: &'static Server,
    contents: Contents,
    position: CutPosition,
    waiters: Vec<Arc<Waiter>>,
    destination: SnapshotPaths,
}

impl SaveTask {
    fn run(self) {
        let Self { server, contents, position, waiters, destination } = self;
        let mut walker = walk::walker(server);
        let started = Instant::now();
        let persistence = Persistence::of(server);
        let handle = contents.keys.handle();
        let mut file = SnapshotFile::create(server, destination);
        let mut nowhere = io::sink();
        if file.is_err() {
            handle.abort();
        }
        let sink: &mut dyn Write = match &mut file {
            Ok(file) => &mut file.growing,
            Err(_) => &mut nowhere,
        };
        let written = snapshot::write(
            server,
            &mut walker,
            contents,
            Purpose::File(position.wait()),
            &persistence.written_keys,
            &mut { sink },
        );
        let outcome = file.and_then(|mut file| {
            let outcome = written.and_then(|()| {
                file.publish(|destination| name_if_wanted(persistence, destination))
            });
            if outcome.is_err() {
                file.remove(server);
            }
            outcome
        });
        if waiters.is_empty() {
            // SAVE does not count as a save in the background.
            let seconds = started.elapsed().as_secs() as i64;
            persistence.last_duration_s.store(seconds, Ordering::Relaxed);
        }
        // An abort on request has taken the cut out. A save that the server itself aborted has
        // failed.
        let is_wanted = persistence.unnamed.lock().take().is_some();
        match &outcome {
            Ok(()) => {
                persistence.set_saved_by_running();
                saved(server);
                log::info!("Background saving terminated with success");
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted && !is_wanted => {
                log::warn!("Background saving was aborted");
            }
            Err(error) => {
                log::warn!("Write error while saving DB to the disk: {}", error_text(error));
                // A SAVE tells its clients, and is no failed save in the background.
                if waiters.is_empty() {
                    log::warn!("Background saving error");
                    set_save_failed(server, true);
                }
            }
        }
        server.end_cut();
        *persistence.running.lock() = None;
        persistence.ended.notify_all();
        for waiter in waiters {
            waiter.answer(server, |reply| {
                if outcome.is_err() {
                    return Err(Failure::new(&"ERR"));
                }
                reply.ok();
                Ok(())
            });
        }
    }
}

/// The directories in which files with temporary names were begun.
static DIRECTORIES: Mutex<BTreeSet<PathBuf>> = Mutex::new(BTreeSet::new());

/// Removes the unfinished files of saves, because the process ends first.
pub fn remove_unfinished() {
    let prefix = unfinished_prefix();
    let directories = std::mem::take(&mut *DIRECTORIES.lock());
    for entry in directories.iter().filter_map(|path| path.read_dir().ok()).flatten().flatten() {
        if entry.file_name().as_encoded_bytes().starts_with(prefix.as_bytes()) {
            // The process ends, so nothing else can be done about a file that cannot be removed.
            drop(std::fs::remove_file(entry.path()));
        }
    }
}

/// A new temporary path in the current working directory.
pub fn unfinished_path() -> PathBuf {
    static NUMBER: AtomicU64 = AtomicU64::new(0);
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    let path = disk::here(Path::new(&format!("{}{number}.rdb", unfinished_prefix())));
    DIRECTORIES.lock().extend(path.parent().map(Path::to_owned));
    path
}

/// The prefix of all temporary names of this process.
fn unfinished_prefix() -> String {
    format!("temp-{}-", std::process::id())
}

/// Where a snapshot is written, and its final path. Both are absolute, because the server may
/// change its working directory meanwhile.
struct SnapshotPaths {
    unfinished: PathBuf,
    path: PathBuf,
}

impl SnapshotPaths {
    /// The destination of a snapshot that begins now.
    fn of(server: &Server) -> Self {
        let name = server.config.dbfilename();
        let path = disk::here(Path::new(OsStr::from_bytes(&name)));
        Self { unfinished: unfinished_path(), path }
    }

    /// Gives the file, which is complete, its final name.
    fn take_name(&self) -> io::Result<()> {
        disk::rename(&self.unfinished, &self.path)
    }
}

/// Gives the file of the current save its final name, unless the save was aborted.
fn name_if_wanted(persistence: &Persistence, destination: &SnapshotPaths) -> io::Result<()> {
    let mut unnamed = persistence.unnamed.lock();
    if unnamed.is_none() {
        return Err(io::Error::new(io::ErrorKind::Interrupted, "the save was aborted"));
    }
    destination.take_name()?;
    *unnamed = None;
    // FLUSHALL aborts the current save first, so it is not in between.
    persistence.is_owed.store(false, Ordering::Relaxed);
    Ok(())
}

/// A snapshot's file that still has its temporary name.
struct SnapshotFile {
    destination: SnapshotPaths,
    growing: GrowingFile,
}

impl SnapshotFile {
    fn create(server: &Server, destination: SnapshotPaths) -> io::Result<Self> {
        let path = &destination.unfinished;
        // A killed process with the same pid may have left a file of this name, as happens in
        // containers.
        let file = files::create_anew(path, DATA_MODE).inspect_err(|error| {
            let directory = path.parent().unwrap_or(path);
            let name = path.file_name().unwrap_or_default();
            log::warn!(
                "Failed opening the temp RDB file {} (in server root dir {}) for saving: {}",
                name.display(),
                directory.display(),
                error_text(error)
            );
        })?;
        let growing = GrowingFile::new(file, server.config.rdb_save_incremental_fsync());
        Ok(Self { destination, growing })
    }

    /// Syncs the file and has `name` give it its final name.
    fn publish(&self, name: impl FnOnce(&SnapshotPaths) -> io::Result<()>) -> io::Result<()> {
        let SnapshotPaths { unfinished, path } = &self.destination;
        files::publish_by(&self.growing.file, path, || name(&self.destination)).inspect_err(
            |error| {
                log::warn!(
                    "Error moving temp DB file {} on the final destination {}: {}",
                    unfinished.display(),
                    path.display(),
                    error_text(error)
                );
            },
        )
    }

    fn remove(&mut self, server: &Server) {
        let started = Instant::now();
        let path = &self.destination.unfinished;
        if let Err(error) = disk::remove_file(path) {
            log::debug!(
                "Can't remove the unfinished snapshot {}: {}",
                path.display(),
                error_text(&error)
            );
        }
        let us = started.elapsed().as_micros() as u64;
        server.services.latency.sample(&server.config, LatencyEvent::RdbUnlinkTempFile, us);
    }
}
