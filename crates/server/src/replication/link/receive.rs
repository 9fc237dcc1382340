//! Receives a copy of all keys, and replaces the existing keys by it.
//!
//! `repl-diskless-load` chooses how. By default the copy goes to a file, which is loaded when it is
//! complete, so a copy that breaks off changes nothing. Otherwise the copy is loaded as it comes.
//! Then the existing keys are deleted first, or with `swapdb` stay in memory beside the copy until
//! it is complete. Nothing is deleted for a copy whose version this server cannot read.

use std::io::{self, Read, Write};
use std::path::Path;
use std::sync::OnceLock;
use std::sync::atomic::Ordering;

use bobbin_io::error_text;
use bobbin_store::shard::Flushed;
use bobbin_store::{Keyspace, SHARDS};

use super::machine::{GiveUp, LinkEvent};
use super::session::LinkSession;
use crate::base::files::{self, DATA_MODE, File, disk};
use crate::config::ReplDisklessLoad;
use crate::engine::command::Data;
use crate::engine::lazyfree;
use crate::engine::log::history::HistoryId;
use crate::engine::script::Policy;
use crate::engine::server::Server;
use crate::persistence::load::{self, LoadRules, Loaded};
use crate::persistence::{self, Persistence, aof};
use crate::replication::Replication;

/// A copy that begins.
struct ArrivingCopy {
    id: HistoryId,
    offset: u64,
    /// The database that the stream has selected behind the copy, if the primary gave it.
    database: Option<u32>,
    /// The copy's length in bytes, if the primary gave it.
    length: Option<u64>,
}

/// The loaded keys and the function libraries of a copy.
type CopyContents = Result<(Loaded, Vec<Vec<u8>>), String>;

/// The databases that existed before.
type Before = Vec<Flushed>;

impl LinkSession<'_> {
    /// Receives and loads the copy whose header has come. `history` is the history and the offset
    /// that it belongs to, and `database` is the one that the stream has selected behind it, if the
    /// primary gave them.
    pub(super) fn take_copy(
        &mut self,
        history: Option<(String, u64)>,
        database: Option<u32>,
        length: Option<u64>,
    ) -> Result<(), GiveUp> {
        // Without a history nobody can continue from this copy, so give it a new name.
        let (id, offset) = match history {
            Some((id, offset)) => (HistoryId::parse(id.as_bytes()).unwrap_or_default(), offset),
            None => (HistoryId::new(), 0),
        };
        log::info!("Full resync from primary: {id}:{offset}");
        self.link.sync.expect(length);
        Persistence::of(self.server).loading.stream_database.store(0, Ordering::Relaxed);
        // Ignore a database that this server does not have.
        let database = database.filter(|&it| i64::from(it) < self.server.config.databases());
        let copy = ArrivingCopy { id, offset, database, length };
        let mode = self.server.config.repl_diskless_load();
        let is_straight = match mode {
            ReplDisklessLoad::Disabled => false,
            ReplDisklessLoad::OnEmptyDb => is_empty(&mut self.replay.data),
            ReplDisklessLoad::Swapdb | ReplDisklessLoad::FlushBeforeLoad => true,
        };
        let to = if is_straight { "parser" } else { "disk" };
        match length {
            Some(length) => log::info!(
                "PRIMARY <-> REPLICA sync: receiving {length} bytes from primary to {to}"
            ),
            None => log::info!(
                "PRIMARY <-> REPLICA sync: receiving streamed RDB from primary with EOF to {to}"
            ),
        }
        match mode {
            ReplDisklessLoad::Swapdb => self.load_aside(&copy),
            _ if is_straight => self.load_straight(&copy),
            _ => self.load_by_file(&copy),
        }
    }

    /// Receives the copy into a file, and then loads the file.
    fn load_by_file(&mut self, copy: &ArrivingCopy) -> Result<(), GiveUp> {
        let path = persistence::unfinished_path();
        let received = self.receive_file(&path);
        let taken = received.and_then(|()| self.take_file(&path, copy));
        if let Err(error) = disk::remove_file(&path) {
            log::debug!("Can't remove {}: {error}", path.display());
        }
        taken
    }

    fn receive_file(&mut self, path: &Path) -> Result<(), GiveUp> {
        let mut file = files::create_anew(path, DATA_MODE).map_err(|error| on_disk(&error))?;
        loop {
            match self.machine.next_event()? {
                LinkEvent::Copy(bytes) => {
                    file.write_all(bytes).map_err(|error| on_disk(&error))?;
                    self.link.sync.took(bytes.len());
                }
                LinkEvent::CopyEnds => return Ok(()),
                _ => self.receive()?,
            }
        }
    }

    fn take_file(&mut self, path: &Path, copy: &ArrivingCopy) -> Result<(), GiveUp> {
        let mut file = disk::open(path).map_err(|error| on_disk(&error))?;
        let server = self.server;
        let header = load::read_header(server, &mut file).map_err(GiveUp::because)?;
        self.begin(Some(disk::length(&file).unwrap_or(0)))?;
        let input = header.as_slice().chain(FileInput { session: self, file });
        let loaded = load::load_into(server, &server.keyspace, input, LoadRules::BEGINNING);
        self.settle(loaded, copy)
    }

    /// Loads the copy as it comes, in place of the existing keys.
    fn load_straight(&mut self, copy: &ArrivingCopy) -> Result<(), GiveUp> {
        let server = self.server;
        let header = load::read_header(server, &mut CopyInput { session: self });
        let header = header.map_err(GiveUp::because)?;
        self.begin(copy.length)?;
        let input = header.as_slice().chain(CopyInput { session: self });
        let loaded = load::load_into(server, &server.keyspace, input, LoadRules::BEGINNING);
        let loaded = loaded.and_then(|loaded| self.end_copy().map(|()| loaded));
        self.settle(loaded, copy)
    }

    /// Loads the copy as it comes, beside the existing keys. If those are an earlier state of the
    /// same data, clients may use them meanwhile.
    fn load_aside(&mut self, copy: &ArrivingCopy) -> Result<(), GiveUp> {
        let server = self.server;
        let is_same = server.feed.id() == copy.id;
        self.with_gate(|_| {
            let total = copy.length.unwrap_or(0);
            if is_same {
                load::begin_loading_aside(server, total);
            } else {
                load::begin_loading_bytes(server, total);
            }
        })?;
        log::info!("PRIMARY <-> REPLICA sync: Loading DB in memory");
        let aside = aside(server);
        let input = CopyInput { session: self };
        let loaded = load::load_into(server, aside, input, LoadRules::BEGINNING);
        let loaded = loaded.and_then(|loaded| self.end_copy().map(|()| loaded));
        let outcome = self.with_gate(|data| {
            let (loaded, functions) = loaded?;
            // Nothing may fail after this.
            load::restore_functions(server, &functions, Policy::Flush)?;
            log::info!("PRIMARY <-> REPLICA sync: Swapping active DB with loaded DB");
            let before = data.flush_all();
            put_in_place(data, aside);
            Replication::of(server).dismiss(server);
            begin_history(server, data, copy, loaded);
            Ok(before)
        });
        free(server, take_all(aside));
        self.end(outcome.and_then(|outcome| outcome.map_err(GiveUp::because)))
    }

    /// Deletes all keys and functions, and has clients told to wait until `settle`.
    fn begin(&mut self, total: Option<u64>) -> Result<(), GiveUp> {
        let server = self.server;
        let before = self.with_gate(|data| {
            log::info!("PRIMARY <-> REPLICA sync: Flushing old data");
            load::begin_loading_bytes(server, total.unwrap_or(0));
            let before = flush(server, data);
            server.feed.end();
            Replication::of(server).dismiss(server);
            before
        })?;
        free(server, before);
        log::info!("PRIMARY <-> REPLICA sync: Loading DB in memory");
        Ok(())
    }

    /// Lets clients use what was loaded, or the empty keyspace if loading failed.
    fn settle(&mut self, loaded: CopyContents, copy: &ArrivingCopy) -> Result<(), GiveUp> {
        let server = self.server;
        let outcome = self.with_gate(|data| {
            let restored = loaded.and_then(|(loaded, functions)| {
                load::restore_functions(server, &functions, Policy::Append).map(|()| loaded)
            });
            match restored {
                Ok(loaded) => {
                    begin_history(server, data, copy, loaded);
                    Ok(Before::new())
                }
                Err(why) => {
                    log::info!("PRIMARY <-> REPLICA sync: Discarding the half-loaded data");
                    let half = flush(server, data);
                    aof::replace_log(server, data);
                    Err((why, half))
                }
            }
        });
        self.end(outcome.and_then(|outcome| {
            outcome.map_err(|(why, half)| {
                free(server, half);
                GiveUp::because(why)
            })
        }))
    }

    /// Ends loading, and frees the earlier keys.
    fn end(&mut self, outcome: Result<Before, GiveUp>) -> Result<(), GiveUp> {
        let server = self.server;
        load::end_loading(server);
        free(server, outcome?);
        // A primary selects a database again behind a copy.
        self.replay.select(server.feed.relayed_database()).ok();
        log::info!("PRIMARY <-> REPLICA sync: Finished with success");
        Ok(())
    }

    /// Calls `f` with the gate held, unless the server's role has changed.
    pub(super) fn with_gate<T>(&mut self, f: impl FnOnce(&mut Data) -> T) -> Result<T, GiveUp> {
        let data = &mut self.replay.data;
        data.enter();
        data.hold_gate_anyway();
        let result = if self.link.is_over() {
            Err(GiveUp::because("the server has another part now".to_owned()))
        } else {
            Ok(f(data))
        };
        // Clients that wait for keys look at them when loading ends.
        data.unit.work.ready.clear();
        data.release();
        data.leave();
        result
    }

    /// Checks that the copy ends where its loaded data ends.
    fn end_copy(&mut self) -> Result<(), String> {
        while !self.machine.has_copy() {
            match self.machine.next_event().map_err(|end| end.why)? {
                LinkEvent::CopyEnds => {}
                LinkEvent::Nothing => self.receive().map_err(|end| end.why)?,
                _ => return Err("Replication stream EOF marker is broken".to_owned()),
            }
        }
        Ok(())
    }
}

/// Whether there are no keys.
fn is_empty(data: &mut Data) -> bool {
    data.enter();
    let has_keys =
        |index| data.visit(index, |shard| shard.used().any(|(_, database)| !database.is_empty()));
    let is_empty = !(0..SHARDS).any(has_keys);
    data.leave();
    is_empty
}

/// Frees the earlier keys, in the background if `replica-lazy-flush` says so.
fn free(server: &Server, before: Before) {
    if server.config.replica_lazy_flush() {
        lazyfree::free_databases(before);
    }
}

/// Removes all keys and functions. The caller holds the gate.
fn flush(server: &Server, data: &mut Data) -> Before {
    server.functions.flush();
    data.flush_all()
}

/// Sets the history and the offset: the keys are now those of the copy, and the stream follows it.
/// The caller holds the gate.
fn begin_history(server: &'static Server, data: &mut Data, copy: &ArrivingCopy, loaded: Loaded) {
    load::log_loaded(server, loaded);
    server.feed.change_history(|history| history.take(copy.id));
    server.feed.begin(copy.offset);
    server.feed.relay(true);
    let database = Persistence::of(server).loading.stream_database.swap(0, Ordering::Relaxed);
    server.feed.set_relayed_database(copy.database.unwrap_or(database));
    aof::replace_log(server, data);
}

/// The keyspace for a copy that no client may see before it is complete.
fn aside(server: &'static Server) -> &'static Keyspace {
    static ASIDE: OnceLock<&Keyspace> = OnceLock::new();
    ASIDE.get_or_init(|| {
        Box::leak(Box::new(Keyspace::with_hasher(server.keyspace.hasher().clone())))
    })
}

fn take_all(keyspace: &Keyspace) -> Vec<Flushed> {
    (0..SHARDS).map(|index| take_shard(keyspace, index)).collect()
}

fn take_shard(keyspace: &Keyspace, index: usize) -> Flushed {
    let (_, taken) = keyspace.lock(index).take_all();
    taken
}

/// Moves all keys of another keyspace into this one, which is empty. The caller holds the gate.
fn put_in_place(data: &mut Data, from: &Keyspace) {
    for index in 0..SHARDS {
        let keys = take_shard(from, index);
        if !keys.is_empty() {
            data.visit(index, |shard| shard.put_all(keys));
        }
    }
    data.all_changed();
}

/// Reads a copy as it comes.
struct CopyInput<'s, 'a> {
    session: &'s mut LinkSession<'a>,
}

impl Read for CopyInput<'_, '_> {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        let session = &mut *self.session;
        while !session.machine.has_copy() {
            match session.machine.next_up_to(bytes.len()).map_err(given_up)? {
                LinkEvent::Copy(part) => {
                    bytes[..part.len()].copy_from_slice(part);
                    session.link.sync.took(part.len());
                    return Ok(part.len());
                }
                LinkEvent::CopyEnds => {}
                _ => session.receive().map_err(given_up)?,
            }
        }
        Ok(0)
    }
}

/// Reads a copy's file. Meanwhile the primary gets signs of life.
struct FileInput<'s, 'a> {
    session: &'s mut LinkSession<'a>,
    file: File,
}

impl Read for FileInput<'_, '_> {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        let session = &mut *self.session;
        session.machine.keep_alive(session.now_ms());
        session.gather();
        session.send().map_err(given_up)?;
        self.file.read(bytes)
    }
}

fn given_up(end: GiveUp) -> io::Error {
    io::Error::other(end.why)
}

fn on_disk(error: &io::Error) -> GiveUp {
    GiveUp::because(format!("the copy cannot be kept on disk: {}", error_text(error)))
}
