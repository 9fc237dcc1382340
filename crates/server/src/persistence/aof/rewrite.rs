//! Rewrites the log: a new base replaces all earlier files.
//!
//! A rewrite begins with a cut of the keyspace and a new increment at the same record, so the base
//! and the increment fit exactly. A thread of its own writes the base under a temporary name. Once
//! the base is on disk, a new manifest names it in one step, and the earlier files become history.

use std::io::{self, BufWriter, Write};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::time::Instant;

use bobbin_io::error_text;
use bobbin_resp::{Protocol, Reply};
use bobbin_store::{CutHandle, EntryRef, ValueType};
use bobbin_sync::Mutex;

use super::place::LogPlace;
use super::writer::{Rotated, WriterOrder};
use super::{AofDirectory, Manifest};
use crate::base::clock::{has_come, system_ms};
use crate::base::cores::CoreWork;
use crate::base::files::{self, DATA_MODE, GrowingFile, disk};
use crate::engine::command::Data;
use crate::engine::log::{append_command, append_restore, append_timestamp, payload_of};
use crate::engine::server::Server;
use crate::engine::telemetry::latency::LatencyEvent;
use crate::persistence::Persistence;
use crate::persistence::aof::Aof;
use crate::persistence::snapshot::{self, Contents, Purpose};
use crate::persistence::walk::{self, Beside};

/// The state of rewrites.
pub struct Rewrites {
    current: Mutex<Option<CurrentRewrite>>,
    /// A rewrite must begin as soon as possible.
    wanted: AtomicBool,
    /// No scheduled rewrite begins before this time (Unix ms).
    retry_ms: AtomicI64,
    pub count: AtomicU64,
    pub failed: AtomicBool,
    pub failures: AtomicU64,
    /// -1: there was no rewrite.
    pub last_duration_s: AtomicI64,
}

/// A rewrite in progress.
struct CurrentRewrite {
    cut: CutHandle,
    /// The rewrite's result will not be used. Another rewrite may begin once its thread has ended.
    is_cancelled: bool,
    started_ms: i64,
    keys: u64,
}

impl Default for Rewrites {
    fn default() -> Self {
        Self {
            current: Mutex::new(None),
            wanted: AtomicBool::new(false),
            retry_ms: AtomicI64::new(0),
            count: AtomicU64::new(0),
            failed: AtomicBool::new(false),
            failures: AtomicU64::new(0),
            last_duration_s: AtomicI64::new(-1),
        }
    }
}

impl Rewrites {
    /// When the current rewrite began (Unix ms).
    pub fn running_since_ms(&self) -> Option<i64> {
        self.current.lock().as_ref().map(|current| current.started_ms)
    }

    /// How many keys the base of the one that is going on has.
    pub fn current_keys(&self) -> Option<u64> {
        self.current.lock().as_ref().map(|current| current.keys)
    }

    pub fn is_running(&self) -> bool {
        self.current.lock().is_some()
    }

    fn is_cancelled(&self) -> bool {
        self.current.lock().as_ref().is_some_and(|current| current.is_cancelled)
    }

    /// Calls `f` for the current rewrite, unless it was cancelled: if the log was turned on or off
    /// since the rewrite began, its base lacks the changes in between.
    fn unless_cancelled(&self, f: impl FnOnce()) {
        let current = self.current.lock();
        if current.as_ref().is_some_and(|current| !current.is_cancelled) {
            f();
        }
    }

    /// Whether the current rewrite will have no result.
    pub fn is_given_up(&self) -> bool {
        self.current.lock().as_ref().is_some_and(|current| current.cut.is_aborted())
    }

    pub fn is_scheduled(&self) -> bool {
        self.wanted.load(Ordering::Relaxed)
    }

    /// Has a worker begin a rewrite soon.
    pub fn schedule(&self) {
        self.wanted.store(true, Ordering::Relaxed);
    }

    /// Cancels the current rewrite, if there is one, and the scheduled one.
    pub fn cancel(&self) {
        self.wanted.store(false, Ordering::Relaxed);
        self.give_up();
    }

    /// Cancels the current rewrite. If the log needs its base, another one is scheduled.
    pub fn give_up(&self) {
        if self.abort() {
            self.current.lock().iter_mut().for_each(|current| current.is_cancelled = true);
            log::info!("Killing running AOF rewrite (a thread, no child)");
        }
    }

    /// Whether the pause after a failure is over.
    fn may_retry(&self, now_ms: i64) -> bool {
        has_come(now_ms, self.retry_ms.load(Ordering::Relaxed), MINUTES_MAX * 60_000)
    }

    /// Aborts the current rewrite. Returns whether there was one.
    pub fn abort(&self) -> bool {
        let current = self.current.lock();
        current.iter().for_each(|current| current.cut.abort());
        current.is_some()
    }
}

/// Begins a scheduled rewrite if it is time. The caller holds no lock.
#[inline]
pub fn begin_scheduled_rewrite(server: &'static Server, data: &mut Data) {
    if Aof::of(server).rewrites.wanted.load(Ordering::Relaxed) {
        begin_wanted_rewrite(server, data);
    }
}

#[cold]
fn begin_wanted_rewrite(server: &'static Server, data: &mut Data) {
    let rewrites = &Aof::of(server).rewrites;
    if !rewrites.may_retry(data.conditions.now_ms) || cut_is_busy(server) {
        return;
    }
    if data.hold_gate() {
        begin_rewrite(server, data);
        data.release();
    }
}

/// Deletes the history after `aof-disable-auto-gc` was turned off. If another thread has the
/// manifest, it deletes the history itself.
pub fn follow_log_history(server: &Server) {
    // A manifest without files is not written.
    if let Some(mut manifest) = Aof::of(server).manifest.try_lock()
        && !manifest.history.is_empty()
        && manifest.parts().next().is_some()
    {
        let directory = AofDirectory::of(&server.config);
        // The manifest on disk may be one that was given up, and may use files that are history
        // here.
        match directory.persist(&manifest) {
            Ok(()) => collect_history(server, &directory, &mut manifest),
            Err(error) => log::warn!("Can't write the AOF manifest: {}", error_text(&error)),
        }
    }
}

/// Whether a rewrite is in progress, or begins when a worker next looks at the clock.
pub fn is_rewriting(server: &Server) -> bool {
    let rewrites = &Aof::of(server).rewrites;
    rewrites.is_running()
        || rewrites.is_scheduled()
            && !cut_is_busy(server)
            && rewrites.may_retry(server.clock.now_ms())
}

/// Whether a snapshot or a rewrite has the only cut, or neither may begin.
pub fn cut_is_busy(server: &Server) -> bool {
    let persistence = Persistence::of(server);
    server.keyspace.is_being_cut()
        || Aof::of(server).rewrites.is_running()
        || persistence.is_saving()
        || persistence.is_paused.load(Ordering::Relaxed)
}

/// Begins to rewrite the log, or to write its first base; does nothing if the cut is busy. `data`
/// holds the gate. `false`: the system gives no thread, which counts as a failed rewrite.
pub fn begin_rewrite(server: &'static Server, data: &mut Data) -> bool {
    let aof = Aof::of(server);
    let rewrites = &aof.rewrites;
    if cut_is_busy(server) {
        return true;
    }
    let beside = match Beside::start("bobbin-rewrite", CoreWork::Rewriting) {
        Ok(beside) => beside,
        Err(error) => {
            log::warn!("Can't rewrite append only file in background: {}", error_text(&error));
            rewrite_failed(server);
            return false;
        }
    };
    rewrites.wanted.store(false, Ordering::Relaxed);
    let contents = Contents::begin(server, data, "rewrite of the log");
    *rewrites.current.lock() = Some(CurrentRewrite {
        cut: contents.keys.handle(),
        is_cancelled: false,
        started_ms: system_ms(),
        keys: contents.key_count(),
    });
    rewrites.count.fetch_add(1, Ordering::Relaxed);
    Persistence::of(server).written_keys.store(0, Ordering::Relaxed);
    let directory = AofDirectory::of(&server.config);
    let (done, rotated) = channel();
    if aof.is_on() {
        let (after, place) = (server.log.last(), LogPlace::relayed(server));
        let order = WriterOrder::Rotate { after, place, directory: directory.clone(), done };
        aof.order(server, order);
    } else {
        // The log is off, so only the base is written. The receiver is kept below.
        drop(done.send(Ok(Rotated::None)));
    }
    log::info!("Background append only file rewriting started");
    let gaps = aof.gaps.load(Ordering::SeqCst);
    let form = BaseForm::of(server);
    let task = RewriteTask { server, contents, rotated, directory, gaps, form };
    beside.run(|| task.run());
    true
}

/// Notes that a rewrite failed or could not begin. It is tried again later.
fn rewrite_failed(server: &Server) {
    Aof::of(server).rewrites.failed.store(true, Ordering::Relaxed);
    try_rewrite_again(server);
}

/// Notes that a rewrite had no result. If the log needs a base, schedules another rewrite.
fn try_rewrite_again(server: &Server) {
    let aof = Aof::of(server);
    let rewrites = &aof.rewrites;
    let is_needed = aof.is_on() && aof.needs_base();
    if !rewrites.is_cancelled() {
        let failures = rewrites.failures.fetch_add(1, Ordering::Relaxed) + 1;
        let pause_ms = if is_needed { NEEDED_PAUSE_MS } else { pause_ms(failures) };
        rewrites.retry_ms.store(server.clock.advance() + pause_ms, Ordering::Relaxed);
    }
    if is_needed {
        rewrites.schedule();
    }
}

/// A rewrite, from its cut on.
struct RewriteTask {
    server: &'static Server,
    contents: Contents,
    /// Gets the increment in which the log continues behind the cut.
    rotated: Receiver<io::Result<Rotated>>,
    directory: AofDirectory,
    /// How many times an `fsync` had failed before the cut.
    gaps: u64,
    form: BaseForm,
}

impl RewriteTask {
    fn run(self) {
        let (server, started) = (self.server, Instant::now());
        let aof = Aof::of(server);
        let Self { directory, rotated, form, .. } = self;
        let written = write_base(server, self.contents, &directory.temporary_base(), form);
        let outcome = written.and_then(|bytes| {
            let rotated = rotated.recv().unwrap_or_else(|_| Err(io::Error::other("the log ended")));
            let rotated = rotated?;
            if aof.rewrites.is_cancelled() {
                let what = "the log was turned on or off";
                return Err(io::Error::new(io::ErrorKind::Interrupted, what));
            }
            publish(server, &directory, rotated, (form.extension(), bytes), self.gaps)
        });
        let rewrites = &aof.rewrites;
        rewrites.last_duration_s.store(started.elapsed().as_secs() as i64, Ordering::Relaxed);
        match outcome {
            Ok(()) => {
                rewrites.failures.store(0, Ordering::Relaxed);
                rewrites.failed.store(false, Ordering::Relaxed);
                log::info!("Background AOF rewrite finished successfully");
            }
            Err(error) => {
                if let Err(error) = disk::remove_file(directory.temporary_base()) {
                    log::debug!(
                        "Can't remove the unfinished base of the log: {}",
                        error_text(&error)
                    );
                }
                // Any error aborts the cut. This kind of error means that the cut was aborted
                // first. If nobody asked for that, the rewrite has failed.
                if error.kind() == io::ErrorKind::Interrupted && rewrites.is_cancelled() {
                    log::info!("AOF rewrite was aborted");
                    try_rewrite_again(server);
                } else {
                    log::warn!(
                        "Background AOF rewrite terminated with error: {}",
                        error_text(&error)
                    );
                    rewrite_failed(server);
                }
            }
        }
        server.end_cut();
        *rewrites.current.lock() = None;
        // Those who wait for the base see that no rewrite is in progress any more.
        aof.answer_waiters(server);
    }
}

/// Without a base a crash loses the data, so the pause is short.
const NEEDED_PAUSE_MS: i64 = 1000;
/// The longest pause after failures.
const MINUTES_MAX: i64 = 60;

/// How long to wait after this many failures in a row of a rewrite that would only save space.
fn pause_ms(failures: u64) -> i64 {
    const FREE: u64 = 3;
    match failures {
        0..FREE => 1000,
        _ => {
            let minutes = 1i64.checked_shl((failures - FREE) as u32).unwrap_or(MINUTES_MAX);
            let minutes = minutes.clamp(1, MINUTES_MAX);
            log::warn!(
                "Background AOF rewrite has repeatedly failed and triggered the limit, will retry in {minutes} minutes"
            );
            minutes * 60_000
        }
    }
}

/// Makes a finished base part of the log, and the earlier files history.
fn publish(
    server: &Server,
    directory: &AofDirectory,
    rotated: Rotated,
    (extension, bytes): (&str, u64),
    gaps: u64,
) -> io::Result<()> {
    let aof = Aof::of(server);
    let mut manifest = aof.manifest.lock();
    let mut new = manifest.clone();
    directory.begin()?;
    let unloaded = aof.is_unloaded.load(Ordering::SeqCst).then(|| new.take_files());
    let from = match &rotated {
        Rotated::Increment(name) => Some(name.as_str()),
        Rotated::Temporary | Rotated::None => None,
    };
    let base = new.replace_base(directory.prefix(), extension, from);
    let increment =
        matches!(rotated, Rotated::Temporary).then(|| new.add_increment(directory.prefix()));
    // If this fails, the new manifest may be on disk nevertheless. So its file names must not be
    // used again: that manifest would then combine a later base with an increment whose changes the
    // base holds already.
    manifest.pass_over(&new);
    let named = name_files(server, directory, &base, increment.as_deref())
        .and_then(|()| unloaded.as_ref().map(|log| directory.keep(log, &base)).transpose());
    let kept = match named.and_then(|kept| directory.persist(&new).map(|()| kept)) {
        Ok(kept) => kept,
        Err(error) => {
            directory.give_up(&new, &mut manifest);
            return Err(error);
        }
    };
    aof.is_unloaded.store(false, Ordering::SeqCst);
    if let Some(kept) = kept {
        log::warn!(
            "The log that was there is kept, because this server did not load it: {kept}. Remove \
             these files if nobody needs that data."
        );
    }
    let figures = &aof.figures;
    let size = bytes + figures.increment_size.load(Ordering::Relaxed);
    figures.size.store(size, Ordering::Relaxed);
    figures.base_size.store(size, Ordering::Relaxed);
    aof.rewrites.unless_cancelled(|| {
        aof.waits_for_base.store(false, Ordering::SeqCst);
        aof.mended_gaps.store(gaps, Ordering::SeqCst);
    });
    server.log.wake();
    collect_history(server, directory, &mut new);
    *manifest = new;
    Ok(())
}

/// Renames the files that a rewrite wrote to their names in the manifest.
fn name_files(
    server: &Server,
    directory: &AofDirectory,
    base: &str,
    increment: Option<&str>,
) -> io::Result<()> {
    let started = Instant::now();
    disk::rename(directory.temporary_base(), directory.file(base))?;
    let us = started.elapsed().as_micros() as u64;
    server.services.latency.sample(&server.config, LatencyEvent::AofRename, us);
    log::info!("Successfully renamed the temporary AOF base file into {base}");
    if let Some(name) = increment {
        disk::rename(directory.temporary_increment(), directory.file(name))?;
        log::info!("Successfully renamed the temporary AOF incr file into {name}");
    }
    Ok(())
}

/// Deletes the files of the history, unless `aof-disable-auto-gc` is on.
pub(super) fn collect_history(server: &Server, directory: &AofDirectory, manifest: &mut Manifest) {
    if !server.config.aof_disable_auto_gc()
        && let Err(error) = directory.delete_history(manifest)
    {
        // The files are deleted already, so it does no harm that the manifest still names them.
        log::warn!("Can't write the AOF manifest without its history: {}", error_text(&error));
    }
}

/// Writes a base and syncs it. Returns its length in bytes.
pub(super) fn write_base(
    server: &'static Server,
    contents: Contents,
    path: &Path,
    form: BaseForm,
) -> io::Result<u64> {
    let mut data = walk::walker(server);
    let file = match files::create_anew(path, DATA_MODE) {
        Ok(file) => file,
        Err(error) => {
            // A cut must always be walked to its end.
            contents.keys.handle().abort();
            // The error above is the one to return.
            drop(write_contents(server, &mut data, contents, form, &mut io::sink()));
            return Err(error);
        }
    };
    let growing = GrowingFile::new(file, server.config.aof_rewrite_incremental_fsync());
    let mut buffered = BufWriter::with_capacity(BUFFER_BYTES, growing);
    write_contents(server, &mut data, contents, form, &mut buffered)?;
    let written = buffered.into_inner().map_err(io::IntoInnerError::into_error)?;
    written.file.sync_all()?;
    Ok(written.bytes)
}

/// Writes the contents. The cut is walked to its end even after an error.
fn write_contents(
    server: &'static Server,
    data: &mut Data,
    contents: Contents,
    form: BaseForm,
    file: &mut impl Write,
) -> io::Result<()> {
    match form {
        BaseForm::Snapshot => {
            let written = &Persistence::of(server).written_keys;
            snapshot::write(server, data, contents, Purpose::LogBase(None), written, file)
        }
        BaseForm::Commands => write_commands(server, data, contents, file),
    }
}

/// How a base is written. This is settled when a rewrite begins, whatever the option is later.
#[derive(Clone, Copy)]
pub(super) enum BaseForm {
    Snapshot,
    Commands,
}

impl BaseForm {
    pub(super) fn of(server: &Server) -> Self {
        if server.config.aof_use_rdb_preamble() { Self::Snapshot } else { Self::Commands }
    }

    /// The end of the base's file name.
    pub(super) const fn extension(self) -> &'static str {
        match self {
            Self::Snapshot => "rdb",
            Self::Commands => "aof",
        }
    }
}

/// Writes the contents as commands. The cut is walked to its end even after an error, so that
/// another cut may follow.
fn write_commands(
    server: &'static Server,
    data: &mut Data,
    contents: Contents,
    file: &mut impl Write,
) -> io::Result<()> {
    let (mut out, mut selected) = (Vec::new(), None);
    if server.config.aof_timestamp_enabled() {
        append_timestamp(&mut out, system_ms() / 1000);
    }
    for library in &contents.libraries {
        append_command(&mut out, &[b"FUNCTION", b"LOAD", &library.source]);
    }
    // On an error, too, the cut is walked before this function returns.
    let written = file.write_all(&out);
    out.clear();
    let walked = walk::walk(server, data, contents.keys, |pieces| {
        for piece in pieces {
            if selected != Some(piece.database) {
                selected = Some(piece.database);
                append_command(&mut out, &[b"SELECT", piece.database.to_string().as_bytes()]);
            }
            append_entry(server, piece.entry.as_ref(), &mut out);
            file.write_all(&out)?;
            out.clear();
        }
        Persistence::of(server).written_keys.fetch_add(pieces.len() as u64, Ordering::Relaxed);
        Ok(())
    });
    written.and(walked)
}

/// Appends the commands that make an entry.
fn append_entry(server: &Server, entry: EntryRef<'_>, out: &mut Vec<u8>) {
    if entry.value_type() == ValueType::String {
        let (string, mut command) = (entry.string(), Reply::new(out, Protocol::Resp2));
        command.array(if entry.expire_ms().is_some() { 5 } else { 3 });
        command.bulk(b"SET");
        command.bulk(entry.key());
        command.bulk_header(string.len());
        string.slices(0..string.len()).for_each(|slice| command.raw(slice));
        command.bulk_end();
        if let Some(ms) = entry.expire_ms() {
            command.bulk(b"PXAT");
            command.bulk_i64(ms);
        }
        return;
    }
    let payload = payload_of(entry.value(), server.config.rdbcompression());
    append_restore(out, entry, &payload, &[]);
}

const BUFFER_BYTES: usize = 256 * 1024;

#[cfg(test)]
mod tests {
    use std::thread;
    use std::time::Duration;

    use super::*;
    use crate::config::Config;

    /// If there are too many threads, a base waits until it can join them, because its cut must be
    /// walked.
    #[test]
    fn a_base_waits_for_a_place_among_the_threads() {
        let server = crate::process::create(Config::new(), &[]).expect("a server can be made");
        let mut data = Data::new(&server.keyspace, &server.gate, 1).expect("there are few threads");
        data.enter();
        let contents = Contents { keys: data.begin_cut(), libraries: Vec::new() };
        data.leave();
        let others: Vec<_> = std::iter::from_fn(|| server.gate.join()).collect();
        let path = std::env::temp_dir().join(format!("bobbin-base-{}", std::process::id()));
        let base = {
            let path = path.clone();
            thread::spawn(move || write_base(server, contents, &path, BaseForm::of(server)))
        };
        for _ in 0..50 {
            if base.is_finished() {
                panic!("{:?}", base.join());
            }
            thread::sleep(Duration::from_millis(1));
        }
        drop(others);
        base.join().expect("it does not panic").expect("the base is written");
        std::fs::remove_file(path).expect("it is there");
    }
}
