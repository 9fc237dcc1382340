//! Loads a snapshot into the keyspace.
//!
//! One thread reads the file and finds where each key ends, which is little work. Other threads
//! make the values and put them into their shards. Between them is a queue of a few blocks of the
//! file.

mod blocks;
mod install;

use std::cell::{Cell, RefCell};
use std::collections::HashSet;
use std::ffi::OsStr;
use std::io::{self, Read};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::sync_channel;
use std::time::{Duration, Instant};

use bobbin_dump::rdb::{RdbError, RdbItem, RdbReader};
use bobbin_io::error_text;
use bobbin_store::{Hasher, Keyspace};
use bobbin_sync::Mutex;

use self::blocks::{BLOCKS_MAX, FileBlock, LoadedCounts, send};
use self::install::{MadeKey, install_blocks, make, place};
use crate::base::allocator;
use crate::base::files::{File, disk};
use crate::commands;
use crate::engine::blocking;
use crate::engine::command::Data;
use crate::engine::lazyfree;
use crate::engine::log::history::{HistoryId, parse_offset};
use crate::engine::script::Policy;
use crate::engine::server::{Server, Switch};
use crate::persistence::Persistence;

/// How a file is loaded.
#[derive(Clone, Copy, Default)]
pub struct LoadRules {
    pub existing: Existing,
    /// Expired keys are loaded too.
    pub keeps_expired: bool,
    /// The server is starting, so the replication stream goes on from the position that the file
    /// gives.
    pub resumes: bool,
}

impl LoadRules {
    /// The file is the base of a log, or the copy of a primary's keys. What comes behind it may
    /// extend the lives of keys that have expired by now, or deletes them.
    pub const BEGINNING: Self =
        Self { existing: Existing::Refuse, keeps_expired: true, resumes: false };
}

/// What to do with a key or a library of the file that exists already.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub enum Existing {
    /// Fail: the keyspace was empty before.
    #[default]
    Refuse,
    Replace,
}

/// What was loaded.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Loaded {
    pub keys: u64,
    /// Keys with an expiry, including the expired ones that were skipped.
    pub expiring: u64,
    /// Keys that were skipped because they had expired.
    pub expired: u64,
    /// Keys that were skipped because they had no elements.
    pub empty: u64,
    /// Hashes that were skipped because all their fields had expired.
    pub all_fields_expired: u64,
    /// The length of the snapshot in bytes.
    pub bytes: u64,
}

/// Loads the snapshot that the configuration names, if there is one. Clients are told to wait from
/// then on, also after this returns. `false`: the server was told to end meanwhile. The error says
/// why the file cannot be loaded.
pub fn load_at_start(server: &'static Server) -> Result<bool, String> {
    load_named(server, true)
}

/// Loads that snapshot for a log that begins with its keys.
pub fn load_for_log(server: &'static Server) -> Result<bool, String> {
    load_named(server, false)
}

/// Loads the snapshot that the configuration names. `resumes`: the replication stream goes on from
/// the position that the file gives.
fn load_named(server: &'static Server, resumes: bool) -> Result<bool, String> {
    let name = server.config.dbfilename();
    let path = Path::new(OsStr::from_bytes(&name));
    let started = Instant::now();
    let file = match disk::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(true),
        Err(error) => {
            let path = path.display();
            return Err(format!(
                "Fatal error: can't open the RDB file {path} for reading: {}",
                error_text(&error)
            ));
        }
    };
    begin_loading(server, &file);
    // A replica deletes expired keys only when its primary says so.
    let keeps_expired = server.config.names_primary();
    let rules = LoadRules { keeps_expired, resumes, ..LoadRules::default() };
    match load_beside(server, file, rules) {
        Ok(loaded) => {
            log_loaded(server, loaded);
            let seconds = started.elapsed().as_secs_f64();
            log::info!("DB loaded from disk: {seconds:.3} seconds");
            Ok(true)
        }
        Err(_) if server.end.is_wanted() => Ok(false),
        Err(error) => {
            let path = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
            let path = path.display();
            Err(format!("Fatal error loading the DB from the RDB file {path}: {error}. Exiting."))
        }
    }
}

/// Tells clients to wait until `end_loading`.
pub fn begin_loading(server: &Server, file: &File) {
    begin_loading_bytes(server, disk::length(file).unwrap_or(0));
}

/// Begins to load `total` bytes from any number of files. Clients are told to wait until
/// `end_loading`.
pub fn begin_loading_bytes(server: &Server, total: u64) {
    note_begin(server, total);
    server.switches.set(Switch::LOADING, true);
}

/// Begins to load `total` bytes beside the data that clients use, until `end_loading`. Only
/// commands that would change the server's role are refused.
pub fn begin_loading_aside(server: &Server, total: u64) {
    note_begin(server, total);
    server.switches.set(Switch::LOADING_ASIDE, true);
}

fn note_begin(server: &Server, total: u64) {
    let loading = &Persistence::of(server).loading;
    loading.total_bytes.store(total, Ordering::Relaxed);
    loading.loaded_bytes.store(0, Ordering::Relaxed);
    loading.started_s.store(crate::base::clock::system_ms() / 1000, Ordering::Relaxed);
}

/// Lets clients use what was loaded.
pub fn end_loading(server: &Server) {
    // The loading threads leave memory in arenas of their own.
    allocator::give_back_in_steps();
    server.switches.set(Switch::LOADING | Switch::LOADING_ASIDE, false);
    blocking::look_again(server);
}

/// Reads the beginning of a file, which says whether it is a snapshot in a known version. Nothing
/// may be deleted for another one.
pub fn read_header(server: &Server, file: &mut impl Read) -> Result<Vec<u8>, String> {
    let mut header = Vec::new();
    let read = file.take(RdbReader::HEADER_LEN as u64).read_to_end(&mut header);
    read.map_err(|error| error_text(&error))?;
    let mut reader = RdbReader::new(commands::version_check(server), false);
    match reader.next(&header) {
        Ok(Some(_)) => Ok(header),
        Ok(None) => Err(RdbError::Truncated { offset: 0 }.to_string()),
        Err(error) => Err(error.to_string()),
    }
}

/// Loads a file with several threads, while the workers run. The caller holds no lock.
pub fn load_beside(
    server: &'static Server,
    file: impl Read,
    rules: LoadRules,
) -> Result<Loaded, String> {
    let (loaded, functions) = load_into(server, &server.keyspace, file, rules)?;
    restore_functions(server, &functions, Policy::Append)?;
    Ok(loaded)
}

/// Loads the keys of a file into a keyspace that has the server's hash seed. Returns the file's
/// function libraries.
pub fn load_into(
    server: &'static Server,
    keyspace: &'static Keyspace,
    file: impl Read,
    rules: LoadRules,
) -> Result<(Loaded, Vec<Vec<u8>>), String> {
    let threads = std::thread::available_parallelism().map_or(1, |n| n.get()).min(THREADS_MAX);
    load_with(server, keyspace, file, rules, threads)
}

/// Loads as `load_into` does, with `threads` threads that make values.
fn load_with(
    server: &'static Server,
    keyspace: &'static Keyspace,
    mut file: impl Read,
    rules: LoadRules,
    threads: usize,
) -> Result<(Loaded, Vec<Vec<u8>>), String> {
    let (sender, receiver) = sync_channel(BLOCKS_MAX);
    let (full, empty) = (Mutex::new(receiver), Mutex::new(Vec::new()));
    let count = LoadedCounts::default();
    let failed = AtomicBool::new(false);
    let error = Mutex::new(None);
    let read = std::thread::scope(|scope| {
        for _ in 0..threads {
            let work = || {
                let outcome =
                    install_blocks(server, keyspace, &full, &empty, &count, &failed, rules);
                if let Err(text) = outcome {
                    failed.store(true, Ordering::Relaxed);
                    error.lock().get_or_insert(text);
                    // Empty the queue, because the reading thread may wait for room in it.
                    while full.lock().recv().is_ok() {}
                }
            };
            let spawned =
                std::thread::Builder::new().name("bobbin-load".into()).spawn_scoped(scope, work);
            spawned.map_err(|error| {
                format!("Can't start a thread to load with: {}", error_text(&error))
            })?;
        }
        let recycled = || empty.lock().pop();
        let mut give = |block: FileBlock| send(&sender, block, &failed);
        let read = read_blocks(server, &mut file, rules, |_, _| {}, recycled, &mut give);
        // Without a sender the other threads end.
        drop(sender);
        read
    });
    match error.lock().take() {
        Some(error) => Err(error),
        None => read.map(|(bytes, functions)| (count.loaded(bytes), functions)),
    }
}

/// Loads a file in the calling thread, which holds the gate.
pub fn load_held(
    server: &'static Server,
    data: &mut Data,
    mut file: impl Read,
    rules: LoadRules,
) -> Result<Loaded, String> {
    let count = LoadedCounts::default();
    let spare = RefCell::new(None);
    let mut error = None;
    let read = {
        let now_ms = data.conditions.now_ms;
        let mut give = |block: FileBlock| {
            let outcome = make(server, &block, &count, now_ms, &Cell::new(0), rules, |made| {
                let keys = made.len();
                let placed = place(&server.keyspace, data, made, rules.existing);
                lazyfree::free_flushed_for_loaded(keys);
                placed
            });
            match outcome {
                Ok(()) => {
                    *spare.borrow_mut() = Some(block.bytes);
                    true
                }
                Err(text) => {
                    error = Some(text);
                    false
                }
            }
        };
        let recycled = || spare.borrow_mut().take();
        read_blocks(server, &mut file, rules, |_, _| {}, recycled, &mut give)
    };
    // Also after a fault, with what was loaded before it.
    blocking::look_again(server);
    if let Some(error) = error {
        return Err(error);
    }
    let (bytes, functions) = read?;
    let policy = match rules.existing {
        Existing::Refuse => Policy::Append,
        Existing::Replace => Policy::Replace,
    };
    restore_functions(server, &functions, policy)?;
    Ok(count.loaded(bytes))
}

/// Registers the function libraries of a file.
pub fn restore_functions(
    server: &Server,
    functions: &[Vec<u8>],
    policy: Policy,
) -> Result<(), String> {
    let mut seed = server.clock.advance() as u64;
    let restored = server.functions.restore(functions, policy, || {
        seed = seed.wrapping_add(1);
        seed
    });
    restored.map_err(|failure| format!("a function library cannot be loaded: {}", failure.text()))
}

/// Reads a whole file as loading does, and makes every value, but keeps none. `in_log`: the file is
/// the base of a log, also if it does not say so. `see` gets each item and its offset. An error
/// comes with its offset in the file.
pub(crate) fn examine(
    server: &'static Server,
    mut file: impl Read,
    in_log: bool,
    mut see: impl FnMut(u64, &RdbItem<'_>),
) -> Result<Loaded, (u64, String)> {
    let (count, spare) = (LoadedCounts::default(), RefCell::new(None));
    // The offsets of a block's keys, and the offset of the last item.
    let places = RefCell::new(Vec::new());
    let at = Cell::new(0);
    let rules = Cell::new(if in_log { LoadRules::BEGINNING } else { LoadRules::default() });
    let other = Hasher::new(1);
    let (now_ms, mut known, mut error) = (server.clock.advance(), HashSet::new(), None);
    let mut give = |block: FileBlock| {
        let number = Cell::new(0);
        let place = |made: &mut Vec<MadeKey>| {
            made.drain(..).try_for_each(|key| {
                let other = other.hash(key.entry.as_ref().key());
                let is_new = known.insert((key.database, key.hash.0, other.0));
                if is_new { Ok(()) } else { Err(key) }
            })
        };
        let outcome = make(server, &block, &count, now_ms, &number, rules.get(), place);
        let places = std::mem::take(&mut *places.borrow_mut());
        if let Err(text) = outcome {
            error = Some((places.get(number.get()).copied().unwrap_or_else(|| at.get()), text));
            return false;
        }
        *spare.borrow_mut() = Some(block.bytes);
        true
    };
    let see = |place: u64, item: &RdbItem<'_>| {
        at.set(place);
        match item {
            RdbItem::Key(_) => places.borrow_mut().push(place),
            RdbItem::Aux { name, value } if **name == *b"aof-base" && **value == *b"1" => {
                rules.set(LoadRules::BEGINNING);
            }
            _ => {}
        }
        see(place, item);
    };
    let recycled = || spare.borrow_mut().take();
    let read = read_blocks(server, &mut file, LoadRules::default(), see, recycled, &mut give);
    if let Some(error) = error {
        return Err(error);
    }
    let restored = read.and_then(|(bytes, functions)| {
        restore_functions(server, &functions, Policy::Append).map(|()| count.loaded(bytes))
    });
    restored.map_err(|text| (at.get(), text))
}

/// Logs what was loaded.
pub fn log_loaded(server: &Server, loaded: Loaded) {
    let Loaded { keys, expired, empty, all_fields_expired, .. } = loaded;
    let skipped = if empty == 0 { String::new() } else { format!(", empty keys skipped: {empty}") };
    log::info!(
        "Done loading RDB, keys loaded: {keys}, keys expired: {expired}{skipped}, all fields \
         expired hashes: {all_fields_expired}."
    );
    let loading = &Persistence::of(server).loading;
    loading.last_keys_loaded.store(keys, Ordering::Relaxed);
    loading.last_keys_expired.store(expired, Ordering::Relaxed);
}

/// Reads a file to its end, or until `give` returns false. `see` gets each item and its offset.
/// Returns the length of the file in bytes, and its function libraries.
fn read_blocks(
    server: &Server,
    file: &mut impl Read,
    rules: LoadRules,
    mut see: impl FnMut(u64, &RdbItem<'_>),
    mut spare: impl FnMut() -> Option<Vec<u8>>,
    give: &mut impl FnMut(FileBlock) -> bool,
) -> Result<(u64, Vec<Vec<u8>>), String> {
    let loading = &Persistence::of(server).loading;
    let mut reader = RdbReader::new(commands::version_check(server), server.config.rdbchecksum());
    let mut functions = Vec::new();
    let mut block = FileBlock::default();
    let (mut database, mut told) = (0, Instant::now());
    while !reader.is_over() {
        if server.end.is_wanted() {
            return Err("the server ends".into());
        }
        let used = block.split(&mut reader, |place, item| {
            see(place, &item);
            take_item(server, &item, rules, &mut database, &mut functions)
        });
        let used = used.map_err(|error| error.to_string())?;
        if reader.is_over() && used < block.bytes.len() {
            log::info!("The RDB file has {} bytes behind its end", block.bytes.len() - used);
        }
        // The rest of the block is the beginning of an item.
        let mut next = FileBlock { bytes: spare().unwrap_or_default(), records: Vec::new() };
        next.bytes.clear();
        next.bytes.extend_from_slice(&block.bytes[used..]);
        let whole_is_left = used == 0;
        if block.records.is_empty() {
            next.bytes.reserve(if whole_is_left { block.bytes.len() } else { 0 });
        } else if !give(block) {
            return Err("nobody takes what is loaded".into());
        }
        block = next;
        if reader.is_over() {
            break;
        }
        // If a value is longer than a block, the block's size doubles.
        let room = BLOCK_BYTES.max(block.bytes.len());
        if block.fill(file, room).map_err(|error| error_text(&error))? == 0 {
            reader.finish().map_err(|error| error.to_string())?;
        }
        loading.loaded_bytes.store(reader.offset(), Ordering::Relaxed);
        if told.elapsed() >= PROGRESS_INTERVAL {
            told = Instant::now();
            let total = loading.total_bytes.load(Ordering::Relaxed).max(1);
            let percent = reader.offset() as f64 * 100.0 / total as f64;
            log::info!("Loading RDB: {percent:.1}% of {total} bytes");
        }
    }
    Ok((reader.offset(), functions))
}

/// Handles an item that is not a key. Returns the database of the keys that follow.
fn take_item(
    server: &Server,
    item: &RdbItem<'_>,
    rules: LoadRules,
    database: &mut u32,
    functions: &mut Vec<Vec<u8>>,
) -> Result<u32, RdbError> {
    match item {
        RdbItem::Aux { name, value } => take_fact(server, rules, name, value),
        RdbItem::Database(number) => {
            let count = server.config.databases() as u64;
            if *number >= count {
                log::warn!(
                    "FATAL: Data file was created with a server configured to handle more than {count} databases."
                );
                return Err(RdbError::Damaged { what: "a database that there is not", offset: 0 });
            }
            *database = *number as u32;
        }
        RdbItem::Function(source) => functions.push(source.to_vec()),
        RdbItem::ModuleAux => {
            log::info!("The RDB file has data of a module, which is passed over");
        }
        _ => {}
    }
    Ok(*database)
}

fn take_fact(server: &Server, rules: LoadRules, name: &[u8], value: &[u8]) {
    let (name, value) = (String::from_utf8_lossy(name), String::from_utf8_lossy(value));
    match &*name {
        "repl-stream-db" => {
            let database = value.parse().unwrap_or(0);
            Persistence::of(server).loading.stream_database.store(database, Ordering::Relaxed);
        }
        "repl-id" | "repl-offset" if rules.resumes => take_position(server, &name, &value),
        "redis-ver" => log::info!("Loading RDB produced by Redis version {value}"),
        "valkey-ver" => log::info!("Loading RDB produced by Valkey version {value}"),
        "bobbin-ver" => log::info!("Loading RDB produced by Bobbin version {value}"),
        "ctime" => {
            let made_s: i64 = value.parse().unwrap_or(0);
            let age_s = (crate::base::clock::system_ms() / 1000).saturating_sub(made_s).max(0);
            log::info!("RDB age {age_s} seconds");
        }
        "used-mem" => {
            let bytes: u64 = value.parse().unwrap_or(0);
            Persistence::of(server).loading.used_memory.store(bytes, Ordering::Relaxed);
            log::info!("RDB memory usage when created {:.2} Mb", bytes as f64 / 1048576.0);
        }
        "aof-base" if value == "1" => log::info!("RDB is base AOF"),
        name if name.starts_with('%') => log::info!("RDB '{name}': {value}"),
        _ => {}
    }
}

/// Notes the position of the replication stream. A starting primary continues the stream at once,
/// so that the stream gets the keys that expire while the file is loaded.
fn take_position(server: &Server, name: &str, value: &str) {
    let loading = &Persistence::of(server).loading;
    match name {
        "repl-id" => *loading.history.lock() = HistoryId::parse(value.as_bytes()),
        _ => *loading.offset.lock() = parse_offset(value.as_bytes()),
    }
    if let Some(position) = loading.position() {
        server.trim_feed();
        server.feed.begin(position.offset);
    }
}

/// Slows loading down by `key-load-delay`, for tests. `number` is how many keys, or commands of a
/// log, came before. A positive option is the delay in microseconds for each of them. A negative
/// one is the number of them for each microsecond. Returns whether there was a delay.
pub(crate) fn slow_down(server: &Server, number: usize) -> bool {
    let delay = server.config.key_load_delay();
    let us = u64::try_from(delay)
        .unwrap_or_else(|_| u64::from((number as u64).is_multiple_of(delay.unsigned_abs())));
    if us > 0 {
        std::thread::sleep(Duration::from_micros(us));
    }
    us > 0
}

/// How many bytes are read at a time.
const BLOCK_BYTES: usize = 1 << 20;
/// The most threads that make values. More would only wait for the thread that reads.
const THREADS_MAX: usize = 16;
/// How often progress is logged.
const PROGRESS_INTERVAL: Duration = Duration::from_secs(5);

#[cfg(test)]
mod tests;
