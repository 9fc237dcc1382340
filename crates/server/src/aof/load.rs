//! Making the data set again from the files of the log, and opening the one to go on with.

use std::fs::{File, OpenOptions};
use std::io::{BufReader, Read, Seek, SeekFrom};
use std::path::Path;
use std::sync::atomic::Ordering;
use std::time::Instant;

use super::replay::Replay;
use super::{Directory, Fault, Item, Manifest, Reader};
use crate::server::{Server, lock};

/// Bytes that are read at once.
const BUFFER_BYTES: usize = 1 << 18;

/// Loads what there is; returns the increment to append to.
pub(super) fn load_and_open(server: &'static Server) -> Result<File, String> {
    let directory = Directory::of(&server.config);
    let found = match directory.load()? {
        Some(manifest) => Some(manifest),
        None => directory.take_over_single_file()?,
    };
    let mut manifest = found.unwrap_or_default();
    let bytes = load_all(server, &directory, &manifest)?;
    server.aof.figures.size.store(bytes, Ordering::Relaxed);
    server.aof.figures.base_size.store(bytes, Ordering::Relaxed);
    let file = open_last(&directory, &mut manifest)
        .map_err(|error| format!("Can't open the append-only file: {error}"))?;
    *lock(&server.aof.manifest) = manifest;
    Ok(file)
}

/// Opens the last increment, or makes the first one.
fn open_last(directory: &Directory, manifest: &mut Manifest) -> std::io::Result<File> {
    directory.create()?;
    if manifest.base.is_none() && manifest.increments.is_empty() {
        let name = manifest.replace_base(directory.prefix(), "aof", None);
        log::info!("Creating AOF base file {name} on server start");
        directory.open(&name, true)?.sync_all()?;
    }
    let file = match manifest.increments.last() {
        Some(part) => directory.open(&part.name, false)?,
        None => {
            let name = manifest.add_increment(directory.prefix());
            log::info!("Creating AOF incr file {name} on server start");
            directory.open(&name, true)?
        }
    };
    directory.persist(manifest)?;
    directory.delete_history(manifest)?;
    Ok(file)
}

/// Loads all parts of the log; returns their bytes.
fn load_all(
    server: &'static Server,
    directory: &Directory,
    manifest: &Manifest,
) -> Result<u64, String> {
    let started = Instant::now();
    let mut replay = Replay::new(server)?;
    let count = manifest.parts().count();
    let mut bytes = 0;
    for (index, part) in manifest.parts().enumerate() {
        let path = directory.file(&part.name);
        let is_last = index + 1 == count;
        bytes += load_file(server, &mut replay, &path, &part.name, is_last)?;
    }
    if bytes > 0 {
        let seconds = started.elapsed().as_secs_f64();
        log::info!("DB loaded from append only file: {seconds:.3} seconds");
    }
    Ok(bytes)
}

/// Loads one file; returns how many bytes of it count.
fn load_file(
    server: &'static Server,
    replay: &mut Replay,
    path: &Path,
    name: &str,
    is_last: bool,
) -> Result<u64, String> {
    let started = Instant::now();
    let opened =
        |error| format!("Fatal error: can't open the append log file {name} for reading: {error}");
    let mut file = File::open(path).map_err(opened)?;
    let mut magic = [0; 5];
    let begins = file.read(&mut magic).map_err(opened)?;
    if begins == magic.len() && (magic == *b"REDIS" || magic == *b"VALKE") {
        return Err(format!("{name} begins with an RDB file, which is not supported yet"));
    }
    file.seek(SeekFrom::Start(0)).map_err(opened)?;
    replay.begin_file();
    let mut reader = Reader::new(BufReader::with_capacity(BUFFER_BYTES, file), 0);
    // Up to where the file is good, and where it would be without a transaction that was not finished.
    let mut good = 0;
    let ended = loop {
        match reader.next() {
            Ok(Item::Command) => {}
            Ok(Item::End) if replay.is_in_transaction() => break Err(Fault::Truncated),
            Ok(Item::End) => break Ok(()),
            Ok(Item::Timestamp(_) | Item::Remark) => {
                good = if replay.is_in_transaction() { good } else { reader.offset() };
                continue;
            }
            Err(fault) => break Err(fault),
        }
        let args: Vec<&[u8]> = reader.args().collect();
        replay.run(&args).map_err(|command| {
            format!("Unknown command '{command}' reading the append only file {name}")
        })?;
        if !replay.is_in_transaction() {
            good = reader.offset();
        }
    };
    match ended {
        Ok(()) => {}
        Err(Fault::Truncated) => {
            if replay.is_in_transaction() {
                log::warn!("Revert incomplete MULTI/EXEC transaction from AOF file {name}");
                replay.abandon_transaction();
            }
            truncate(server, path, name, good, is_last)?;
        }
        Err(Fault::Format(what)) => {
            return Err(format!(
                "Bad file format reading the append only file {name}: {what}. Make a backup of your AOF file, \
                 then use bobbin-check-aof --fix <filename.manifest>"
            ));
        }
        Err(Fault::Io(error)) => {
            return Err(format!(
                "Unrecoverable error reading the append only file {name}: {error}"
            ));
        }
    }
    let (seconds, kind) = (started.elapsed().as_secs_f64(), kind_of(name));
    log::info!("DB loaded from {kind} file {name}: {seconds:.3} seconds");
    Ok(good)
}

/// Cuts off the end of a file, if it is the last one and that is allowed.
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
             file, then use bobbin-check-aof --fix <filename.manifest>. 2) Alternatively you can set the \
             'aof-load-truncated' configuration option to yes and restart the server."
        ));
    }
    log::warn!("!!! Warning: short read while loading the AOF file {name}!!!");
    log::warn!("Truncating the AOF {name} at offset {good}");
    let cut = OpenOptions::new().write(true).open(path).and_then(|file| {
        file.set_len(good)?;
        file.sync_all()
    });
    cut.map_err(|error| format!("Error truncating the AOF file {name}: {error}"))?;
    log::warn!("AOF {name} loaded anyway because aof-load-truncated is enabled");
    Ok(())
}

fn kind_of(name: &str) -> &'static str {
    if name.ends_with(".incr.aof") { "incr" } else { "base" }
}
