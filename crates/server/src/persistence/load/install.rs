//! Makes the values of a file's keys, and puts them into their shards.

use std::cell::Cell;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::Receiver;

use bobbin_dump::rdb::{RdbRecord, RdbValue};
use bobbin_dump::{CollectionTarget, DumpOptions, STRING_LEN_MAX};
use bobbin_store::value::AnyCollection;
use bobbin_store::{AccessClock, KeyHash, Keyspace, NewValue, OwnedEntry};
use bobbin_sync::Mutex;

use super::blocks::{BLOCKS_MAX, FileBlock, LoadedCounts};
use super::{Existing, LoadRules, Loaded, slow_down};
use crate::commands;
use crate::engine::command::Data;
use crate::engine::lazyfree;
use crate::engine::log::append_command;
use crate::engine::server::Server;

/// Runs in each thread that makes values: installs blocks until there are no more.
pub(super) fn install_blocks(
    server: &'static Server,
    keyspace: &'static Keyspace,
    full: &Mutex<Receiver<FileBlock>>,
    empty: &Mutex<Vec<Vec<u8>>>,
    count: &LoadedCounts,
    failed: &AtomicBool,
    rules: LoadRules,
) -> Result<(), String> {
    let data = Data::new(keyspace, &server.gate, 0);
    let mut data = data.ok_or("too many threads to load with")?;
    let now_ms = server.clock.now_ms();
    loop {
        let Ok(block) = full.lock().recv() else { return Ok(()) };
        if failed.load(Ordering::Relaxed) {
            continue;
        }
        make(server, &block, count, now_ms, &Cell::new(0), rules, |made| {
            let keys = made.len();
            data.enter();
            let placed = place(keyspace, &mut data, made, rules.existing);
            data.leave();
            lazyfree::free_flushed_for_loaded(keys);
            placed
        })?;
        let mut empty = empty.lock();
        if empty.len() < BLOCKS_MAX {
            empty.push(block.bytes);
        }
    }
}

/// A key of a file with its value, which is not in the keyspace yet.
pub(super) struct MadeKey {
    /// The number of its record in its block.
    pub(super) number: usize,
    pub(super) database: u32,
    pub(super) hash: KeyHash,
    pub(super) entry: OwnedEntry,
}

/// Puts keys into the keyspace. Returns the first one as an error that exists and must not.
pub(super) fn place(
    keyspace: &Keyspace,
    data: &mut Data,
    made: &mut Vec<MadeKey>,
    existing: Existing,
) -> Result<(), MadeKey> {
    made.iter().for_each(|key| keyspace.prefetch_bucket(key.hash));
    made.drain(..).try_for_each(|MadeKey { number, database, hash, entry }| {
        let placed = data.visit(hash.shard(), |shard| {
            let database = shard.database_mut(database);
            match database.find(hash, entry.as_ref().key()) {
                None => {
                    database.insert(hash, entry, keyspace.hasher());
                    Ok(None)
                }
                Some(place) if existing == Existing::Replace => {
                    Ok(Some(database.replace(hash, place, entry, keyspace.hasher())))
                }
                Some(_) => Err(entry),
            }
        });
        placed.map(drop).map_err(|entry| MadeKey { number, database, hash, entry })
    })
}

/// Makes the values of a block's keys, some of them at a time. Then `place` takes these. It returns
/// a key as an error if the key exists and must not. After an error, `number` is the number of the
/// record that has the fault.
///
/// Values are made outside of turns. Making one may take long, and a thread that takes the gate
/// waits until the turns of all others have ended.
pub(super) fn make(
    server: &Server,
    block: &FileBlock,
    count: &LoadedCounts,
    now_ms: i64,
    number: &Cell<usize>,
    rules: LoadRules,
    mut place: impl FnMut(&mut Vec<MadeKey>) -> Result<(), MadeKey>,
) -> Result<(), String> {
    let options = DumpOptions { string_len_max: STRING_LEN_MAX, ..DumpOptions::default() };
    let target = commands::target(server);
    let clock = server.access_clock(now_ms);
    let expire_by = (!rules.keeps_expired).then_some(now_ms - 1);
    let mut loaded = Loaded::default();
    let mut dead = DeadKeys::new(rules.resumes && server.feed.is_on());
    // A primary that continues its stream drops expired fields later, so that its replicas learn of
    // it.
    let expire_by = expire_by.filter(|_| !dead.is_told);
    let mut make_one = |number, database, bytes: &[u8]| -> Result<Option<MadeKey>, String> {
        let record = RdbRecord::parse(bytes, &options).map_err(|error| error.to_string())?;
        let hash = server.keyspace.hash(&record.key);
        if slow_down(server, number) && server.end.is_on_its_way() {
            return Err("the server ends".into());
        }
        loaded.expiring += u64::from(record.expire_ms.is_some());
        if record.expire_ms.is_some_and(|ms| ms < now_ms) && !rules.keeps_expired {
            loaded.expired += 1;
            dead.add(database, &record.key);
            return Ok(None);
        }
        server.keyspace.prefetch_shard(hash);
        let entry = entry(&record, &options, target, &clock, expire_by, &mut loaded)?;
        loaded.keys += u64::from(entry.is_some());
        Ok(entry.map(|entry| MadeKey { number, database, hash, entry }))
    };
    let mut made = Vec::with_capacity(AT_ONCE);
    let mut numbers = 0..;
    for records in block.records.chunks(AT_ONCE) {
        let mut records = records.iter().zip(numbers.by_ref());
        let outcome: Result<(), String> = records.try_for_each(|((database, range), at)| {
            number.set(at);
            made.extend(make_one(at, *database, &block.bytes[range.clone()])?);
            Ok(())
        });
        place(&mut made).map_err(|MadeKey { number: at, database, entry, .. }| {
            number.set(at);
            let key = entry.as_ref().key().escape_ascii();
            format!("RDB has duplicated key '{key}' in DB {database}")
        })?;
        outcome?;
    }
    count.add(&loaded);
    dead.tell(server);
    Ok(())
}

/// The expired keys of a block. A starting primary that continues its stream deletes them on its
/// replicas.
struct DeadKeys {
    is_told: bool,
    commands: Vec<u8>,
    database: Option<u32>,
}

impl DeadKeys {
    const fn new(is_told: bool) -> Self {
        Self { is_told, commands: Vec::new(), database: None }
    }

    fn add(&mut self, database: u32, key: &[u8]) {
        if !self.is_told {
            return;
        }
        if self.database.replace(database) != Some(database) {
            append_command(&mut self.commands, &[b"SELECT", database.to_string().as_bytes()]);
        }
        append_command(&mut self.commands, &[b"DEL", key]);
    }

    fn tell(self, server: &Server) {
        if !self.commands.is_empty() {
            server.feed.append_relayed(&self.commands);
            server.publish_feed();
        }
    }
}

/// Makes the entry of a record. Leaves out fields that have expired by `expire_by` (Unix ms).
/// `None`: there is nothing to keep.
fn entry(
    record: &RdbRecord<'_>,
    options: &DumpOptions,
    target: CollectionTarget<'_>,
    clock: &AccessClock,
    expire_by: Option<i64>,
    loaded: &mut Loaded,
) -> Result<Option<OwnedEntry>, String> {
    let access = match (record.frequency, record.idle_seconds, clock.policy) {
        (Some(frequency), _, bobbin_store::AccessPolicy::Lfu { .. }) => {
            clock.with_frequency(frequency)
        }
        (_, Some(seconds), bobbin_store::AccessPolicy::Lru) => clock.idle_since(seconds as u32),
        _ => clock.fresh(),
    };
    let value = match record.value(options, target) {
        Ok(RdbValue::String(ref string)) => {
            let entry =
                OwnedEntry::new(&record.key, NewValue::string(string), record.expire_ms, access);
            return Ok(Some(entry));
        }
        Ok(RdbValue::Collection(mut collection)) => {
            if let (Some(over_ms), AnyCollection::Hash(hash)) = (expire_by, &mut collection)
                && hash.may_have_expired(over_ms)
            {
                hash.remove_expired(over_ms, usize::MAX, target.hasher, |_| {});
                if hash.is_empty() {
                    loaded.all_fields_expired += 1;
                    return Ok(None);
                }
            }
            NewValue::Collection(collection)
        }
        Ok(RdbValue::Empty) => {
            loaded.empty += 1;
            log::info!("RDB file: skipping empty key: {}", record.key.escape_ascii());
            return Ok(None);
        }
        Err(error) => {
            return Err(format!(
                "Bad file format: the {} at key '{}': {error}",
                record.kind.name(),
                record.key.escape_ascii()
            ));
        }
    };
    Ok(Some(OwnedEntry::new(&record.key, value, record.expire_ms, access)))
}

/// How many keys are put into the keyspace in one turn. Their cache lines arrive at the same time.
const AT_ONCE: usize = 16;
