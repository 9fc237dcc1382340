//! Rebuilds the data from the files of the log, and opens the last increment for appending.

use std::io::{BufReader, Read, Seek, SeekFrom};
use std::path::Path;
use std::sync::atomic::Ordering;
use std::time::Instant;

use bobbin_io::error_text;

use super::place::LogPlace;
use super::reader::is_rdb;
use super::replay::Replay;
use super::rewrite::BaseForm;
use super::{AofDirectory, AofFault, AofItem, AofReader, Manifest, rewrite};
use crate::base::files::{File, disk};
use crate::engine::command::Data;
use crate::engine::server::Server;
use crate::persistence::aof::Aof;
use crate::persistence::snapshot::Contents;
use crate::persistence::{LoadRules, Persistence, load};

/// How many bytes are read at once.
const BUFFER_BYTES: usize = 1 << 18;

/// Loads the log. Returns the increment to append to, and the replication stream's position there.
/// Clients are told to wait from now on. The caller lets them in after it has switched the log on,
/// because earlier writes would not be logged.
pub(super) fn load_and_open(server: &'static Server) -> Result<(File, LogPlace), String> {
    let directory = AofDirectory::of(&server.config);
    let found = match directory.load()? {
        Some(manifest) if !directory.awaits_single_file(&manifest) => Some(manifest),
        _ => directory.take_over_single_file()?,
    };
    let mut manifest = found.unwrap_or_default();
    let (place, database) = load_all(server, &directory, &manifest)?;
    if manifest.is_empty() {
        // The log is new to this data. Its base will have the keys of the snapshot, which the next
        // snapshot would otherwise lose.
        log::info!("There is no log yet: it begins with the keys of the snapshot, if there is one");
        if !load::load_for_log(server)? {
            return Err("the server ends".to_owned());
        }
    }
    if let Some(position) = place.position(database) {
        Persistence::of(server).loading.set_position(position);
    }
    let file = open_last(server, &directory, &mut manifest).map_err(|error| {
        format!("Can't open the append-only file {directory}: {}", error_text(&error))
    })?;
    *Aof::of(server).manifest.lock() = manifest;
    Ok((file, place))
}

/// Loads the log again. All of it is on disk.
pub(super) fn load_again(server: &'static Server) -> Result<(), String> {
    let directory = AofDirectory::of(&server.config);
    let manifest = {
        // A rewrite that ends meanwhile writes another manifest.
        let mut known = Aof::of(server).manifest.lock();
        *known = directory.load()?.ok_or("There is no manifest")?;
        known.clone()
    };
    load_all(server, &directory, &manifest)?;
    Aof::of(server).is_unloaded.store(false, Ordering::SeqCst);
    Ok(())
}

/// Opens the last increment, or makes the first one.
fn open_last(
    server: &'static Server,
    directory: &AofDirectory,
    manifest: &mut Manifest,
) -> std::io::Result<File> {
    directory.begin()?;
    let found = manifest.clone();
    if manifest.base.is_none() && manifest.increments.is_empty() {
        let form = BaseForm::of(server);
        let name = manifest.replace_base(directory.prefix(), form.extension(), None);
        log::info!("Creating AOF base file {name} on server start");
        let bytes = rewrite::write_base(server, contents(server)?, &directory.file(&name), form)?;
        let figures = &Aof::of(server).figures;
        figures.size.fetch_add(bytes, Ordering::Relaxed);
        figures.base_size.store(bytes, Ordering::Relaxed);
    }
    let file = match manifest.increments.last() {
        Some(part) => {
            let file = directory.open(&part.name, false)?;
            // A server that was killed may have left bytes that are not synced. From now on clients
            // see the changes in them.
            file.sync_data()?;
            file
        }
        None => {
            let name = manifest.add_increment(directory.prefix());
            log::info!("Creating AOF incr file {name} on server start");
            directory.open(&name, true)?
        }
    };
    if *manifest == found {
        // Syncing needs no space, so this also works on a full disk.
        directory.sync()?;
    } else {
        directory.persist(manifest)?;
    }
    rewrite::collect_history(server, directory, manifest);
    Ok(file)
}

/// The current contents of the keyspace: those of a snapshot, or none.
fn contents(server: &'static Server) -> std::io::Result<Contents> {
    let data = Data::new(&server.keyspace, &server.gate, 0);
    let mut data = data.ok_or_else(|| std::io::Error::other("too many threads"))?;
    data.enter();
    let contents = Contents { keys: data.begin_cut(), libraries: server.functions.all() };
    data.leave();
    Ok(contents)
}

/// Loads all files of the log, while clients are told to wait. Returns the replication stream's
/// position behind them, and the database that they selected last.
fn load_all(
    server: &'static Server,
    directory: &AofDirectory,
    manifest: &Manifest,
) -> Result<(LogPlace, u32), String> {
    let started = Instant::now();
    let length = |path: &Path| disk::open(path).and_then(|file| disk::length(&file));
    let sizes: Vec<_> = manifest
        .parts()
        .map(|part| length(&directory.file(&part.name)).unwrap_or(u64::MAX))
        .collect();
    let known = sizes.iter().filter(|&&size| size < u64::MAX);
    load::begin_loading_bytes(server, known.sum());
    let mut replay = Replay::new(server)?;
    let (mut bytes, mut base_bytes) = (0, 0);
    for (index, part) in manifest.parts().enumerate() {
        let path = directory.file(&part.name);
        // A failed rotation may have left an empty file behind this one.
        let is_last = sizes[index + 1..].iter().all(|&size| size == 0);
        bytes += load_file(server, &mut replay, &path, &part.name, (bytes, is_last))?;
        if index == 0 && manifest.base.is_some() {
            base_bytes = bytes;
        }
        Persistence::of(server).loading.loaded_bytes.store(bytes, Ordering::Relaxed);
    }
    replay.count();
    if bytes > 0 {
        let seconds = started.elapsed().as_secs_f64();
        log::info!("DB loaded from append only file: {seconds:.3} seconds");
    }
    let figures = &Aof::of(server).figures;
    figures.size.store(bytes, Ordering::Relaxed);
    // What there was behind the last rewrite is written nowhere. With the base alone the next one
    // comes rather too early; with all of it each restart would put it off.
    figures.base_size.store(base_bytes, Ordering::Relaxed);
    // No worker has counted them, and no snapshot has them.
    let persistence = Persistence::of(server);
    persistence.set_saved(persistence.saved().wrapping_sub(replay.changes()));
    Ok((replay.place_behind(), replay.database()))
}

/// Loads one file. `before` is the length of the earlier files in bytes. Returns how many bytes of
/// this file are valid.
fn load_file(
    server: &'static Server,
    replay: &mut Replay,
    path: &Path,
    name: &str,
    (before, is_last): (u64, bool),
) -> Result<u64, String> {
    let started = Instant::now();
    let opened = |error| {
        format!(
            "Fatal error: can't open the append log file {name} for reading: {}",
            error_text(&error)
        )
    };
    let mut file = disk::open(path).map_err(opened)?;
    let start = if is_rdb(path) { load_preamble(server, name, &file)? } else { 0 };
    file.seek(SeekFrom::Start(start)).map_err(opened)?;
    replay.begin_file();
    let mut reader = AofReader::new(BufReader::with_capacity(BUFFER_BYTES, file), start);
    let look = |offset| {
        let loading = &Persistence::of(server).loading;
        loading.loaded_bytes.store(before + offset, Ordering::Relaxed);
        if server.end.is_wanted() { Err("the server ends".to_owned()) } else { Ok(()) }
    };
    let (good, ended) = replay.run_all(&mut reader, start, look).map_err(|complaint| {
        format!("Error reading the append only file {name}, error: {complaint}")
    })?;
    let is_lenient = is_last && server.config.aof_load_truncated();
    match ended {
        Ok(()) => {}
        Err(AofFault::Format(_)) if is_lenient && ends_in_zeros(path, good).map_err(opened)? => {
            log::warn!("The AOF {name} ends in zeros, as a power cut may leave them");
            replay.abandon_transaction();
            truncate(server, path, name, good, is_last)?;
        }
        Err(AofFault::Truncated) => {
            if replay.is_in_transaction() {
                log::warn!("Revert incomplete MULTI/EXEC transaction from AOF file {name}");
                replay.abandon_transaction();
            }
            truncate(server, path, name, good, is_last)?;
        }
        Err(AofFault::Format(what)) => {
            return Err(format!(
                "Bad file format reading the append only file {name}: {what}. Make a backup of your AOF file, \
                 then use {}",
                mending(server)
            ));
        }
        Err(AofFault::Io(error)) => {
            return Err(format!(
                "Unrecoverable error reading the append only file {name}: {}",
                error_text(&error)
            ));
        }
    }
    let (seconds, kind) = (started.elapsed().as_secs_f64(), kind_of(name));
    log::info!("DB loaded from {kind} file {name}: {seconds:.3} seconds");
    Ok(good)
}

/// Whether a file has, from the offset `good` on, valid commands, the last of which may be cut off,
/// and then only zeros. File systems leave zeros in a file that had grown when the power failed
/// before its bytes were on disk.
fn ends_in_zeros(path: &Path, good: u64) -> std::io::Result<bool> {
    let mut file = disk::open(path)?;
    let length = disk::length(&file)?;
    let (mut end, mut chunk) = (length, vec![0; BUFFER_BYTES]);
    while end > good {
        let start = end.saturating_sub(BUFFER_BYTES as u64).max(good);
        let chunk = &mut chunk[..(end - start) as usize];
        file.seek(SeekFrom::Start(start))?;
        file.read_exact(chunk)?;
        if let Some(last) = chunk.iter().rposition(|&byte| byte != 0) {
            end = start + last as u64 + 1;
            break;
        }
        end = start;
    }
    file.seek(SeekFrom::Start(good))?;
    let mut reader = AofReader::new(BufReader::new(file.take(end - good)), good);
    let ended = loop {
        match reader.read() {
            Ok(AofItem::End) => break Ok(()),
            Ok(_) => {}
            Err(fault) => break Err(fault),
        }
    };
    Ok(end < length && matches!(ended, Ok(()) | Err(AofFault::Truncated)))
}

/// Loads the RDB file that a base begins with. Returns its length in bytes. Expired keys are loaded
/// too: commands behind it may have extended their lives.
fn load_preamble(server: &'static Server, name: &str, file: &File) -> Result<u64, String> {
    let loaded = load::load_beside(server, file, LoadRules::BEGINNING).map_err(|error| {
        format!(
            "Error reading the RDB preamble of the AOF file {name}, AOF loading aborted: {error}"
        )
    })?;
    load::log_loaded(server, loaded);
    Ok(loaded.bytes)
}

/// Cuts off the end of a file if it is the last one and the configuration allows that.
fn truncate(
    server: &Server,
    path: &Path,
    name: &str,
    good: u64,
    is_last: bool,
) -> Result<(), String> {
    if !is_last {
        return Err(format!(
            "Unexpected end of file reading the append only file {name}. Fatal error: the truncated file is not \
             the last file"
        ));
    }
    if !server.config.aof_load_truncated() {
        return Err(format!(
            "Unexpected end of file reading the append only file {name}. You can: 1) Make a backup of your AOF \
             file, then use {}. 2) Alternatively you can set the \
             'aof-load-truncated' configuration option to yes and restart the server.",
            mending(server)
        ));
    }
    log::warn!("!!! Warning: short read while loading the AOF file {name}!!!");
    log::warn!("Truncating the AOF {name} at offset {good}");
    disk::truncate(path, good)
        .map_err(|error| format!("Error truncating the AOF file {name}: {}", error_text(&error)))?;
    log::warn!("AOF {name} loaded anyway because aof-load-truncated is enabled");
    Ok(())
}

/// The command that mends the log.
fn mending(server: &Server) -> String {
    let manifest = AofDirectory::of(&server.config).manifest();
    format!("bobbin-server --check-aof --fix {}", manifest.display())
}

fn kind_of(name: &str) -> &'static str {
    if name.ends_with(".incr.aof") { "incr" } else { "base" }
}
