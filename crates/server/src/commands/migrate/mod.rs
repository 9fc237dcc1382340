//! The work of MIGRATE: moves keys to another server, while other commands run.
//!
//! The command pins the values under its locks and leaves the rest to a thread; its client waits.
//! Nothing is locked while bytes are sent. A key is deleted here once the other server has
//! acknowledged it, unless it was changed meanwhile (it is watched, as by WATCH). Then it is sent
//! again, or deleted on the other server too, so that no change is lost.

mod command;
mod connection;

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use bobbin_sync::Mutex;

pub(super) use self::command::COMMANDS;
pub use self::connection::read_target_reply;
use self::connection::{Broken, TargetConnection};
use crate::base::clock;
use crate::commands::PinnedValue;
use crate::engine::blocking::Waiter;
use crate::engine::command::{Classes, Data, Failure, Outcome};
use crate::engine::server::{Server, background};
pub use connection::idle_connections;

/// The target server, and how to send keys to it.
pub struct MigrateTarget {
    pub host: String,
    pub port: u16,
    pub database: i64,
    /// The timeout of each step: connecting, sending 64 KiB, receiving a reply.
    pub timeout: Duration,
    /// AUTH's arguments.
    pub credentials: Option<Vec<Box<[u8]>>>,
    pub replace: bool,
    pub compress: bool,
}

/// A key that is being moved.
pub struct Traveller {
    pub key: Box<[u8]>,
    pub value: PinnedValue,
    pub expire_ms: Option<i64>,
    /// The version of the watch on it, if it is watched.
    pub version: u64,
}

/// A MIGRATE that runs beside the workers.
pub struct Migration {
    pub target: MigrateTarget,
    /// Keep the keys here. Otherwise they are watched.
    pub copy: bool,
    pub database: u32,
    pub travellers: Vec<Traveller>,
}

/// The result of sending keys.
pub struct SentKeys {
    /// For each key, whether the target has it.
    pub acknowledged: Vec<bool>,
    pub outcome: Outcome,
}

impl MigrateTarget {
    /// Sends keys in their order. A connection that turns out to be closed is replaced once.
    pub fn send(&self, travellers: &[Traveller]) -> SentKeys {
        let mut may_retry = true;
        loop {
            let mut acknowledged = vec![false; travellers.len()];
            let outcome = TargetConnection::open(self).and_then(|mut connection| {
                let outcome = self.exchange(&mut connection, travellers, &mut acknowledged)?;
                if outcome.is_ok() {
                    connection.keep(self.database);
                }
                Ok(outcome)
            });
            match outcome {
                Ok(outcome) => return SentKeys { acknowledged, outcome },
                Err(broken) if may_retry && broken.may_retry() && !acknowledged.contains(&true) => {
                    may_retry = false;
                }
                Err(broken) => return SentKeys { acknowledged, outcome: Err(broken.failure()) },
            }
        }
    }

    fn exchange(
        &self,
        connection: &mut TargetConnection,
        travellers: &[Traveller],
        acknowledged: &mut [bool],
    ) -> Result<Outcome, Broken> {
        if let Some(credentials) = &self.credentials {
            let words =
                [b"AUTH".as_slice()].into_iter().chain(credentials.iter().map(|word| &**word));
            connection.write(words)?;
        }
        let select = connection.database() != Some(self.database);
        if select {
            connection.write([b"SELECT", self.database.to_string().as_bytes()].into_iter())?;
        }
        let mut sent = Vec::with_capacity(travellers.len());
        let mut payload = Vec::new();
        for (at, traveller) in travellers.iter().enumerate() {
            let ttl_ms = match traveller.expire_ms.map(|ms| ms - clock::system_ms()) {
                Some(left_ms) if left_ms < 0 => continue,
                Some(left_ms) => left_ms.max(1),
                None => 0,
            };
            payload.clear();
            traveller.value.append_payload(self.compress, &mut payload);
            let ttl_ms = ttl_ms.to_string();
            let words: [&[u8]; 5] =
                [b"RESTORE", &traveller.key, ttl_ms.as_bytes(), &payload, b"REPLACE"];
            let count = if self.replace { 5 } else { 4 };
            connection.write(words[..count].iter().copied())?;
            sent.push(at);
        }
        connection.flush()?;
        let mut refusal = None;
        for _ in 0..usize::from(self.credentials.is_some()) + usize::from(select) {
            refusal = refusal.or(connection.read_error()?);
        }
        // If all keys have expired meanwhile, nothing was sent behind the refused command.
        let mut outcome = refusal.as_deref().map_or(Ok(()), |error| Err(replied(error)));
        for at in sent {
            match connection.read_error()? {
                None if refusal.is_none() => acknowledged[at] = true,
                Some(error) if outcome.is_ok() => outcome = Err(replied(&error)),
                None | Some(_) => {}
            }
        }
        Ok(outcome)
    }

    /// Deletes keys on the target that were deleted here meanwhile.
    fn delete(&self, keys: &[Box<[u8]>]) -> Result<Outcome, Broken> {
        if keys.is_empty() {
            return Ok(Ok(()));
        }
        let mut connection = TargetConnection::open(self)?;
        if let Some(credentials) = &self.credentials {
            let words =
                [b"AUTH".as_slice()].into_iter().chain(credentials.iter().map(|word| &**word));
            connection.write(words)?;
        }
        connection.write([b"SELECT", self.database.to_string().as_bytes()].into_iter())?;
        connection.write([b"DEL".as_slice()].into_iter().chain(keys.iter().map(|key| &**key)))?;
        connection.flush()?;
        let mut refusal = None;
        for _ in 0..2 + usize::from(self.credentials.is_some()) {
            refusal = refusal.or(connection.read_error()?);
        }
        Ok(refusal.map_or(Ok(()), |error| Err(replied(&error))))
    }
}

/// The error for our client if the target has refused something.
fn replied(error: &str) -> Failure {
    Failure::format(format!("ERR Target instance replied with error: {error}"))
}

impl Migration {
    /// Runs the migration in a thread. The waiter gets the reply.
    pub fn start(self, server: &'static Server, waiter: Arc<Waiter>) {
        let task = MigrateTask { server, waiter, migration: self };
        let mut queue = QUEUE.lock();
        queue.waiting.push_back(task);
        if queue.threads < THREADS_MAX {
            let spawned =
                std::thread::Builder::new().name("bobbin-migrate".into()).spawn(run_tasks);
            match spawned {
                Ok(_) => queue.threads += 1,
                Err(error) if queue.threads == 0 => {
                    log::warn!("MIGRATE got no thread: {error}");
                    if let Some(task) = queue.waiting.pop_back() {
                        task.waiter.answer(server, |_| Err(NO_THREAD));
                    }
                }
                // Another thread will execute it.
                Err(_) => {}
            }
        }
    }

    fn run(&mut self, server: &'static Server, data: &mut Data) -> Outcome {
        let mut rounds = 0;
        loop {
            let SentKeys { acknowledged, outcome } = self.target.send(&self.travellers);
            if self.copy {
                return outcome;
            }
            let mut deleted = Vec::new();
            let mut changed = Vec::new();
            let mut refused = Ok(());
            for (traveller, acknowledged) in self.travellers.drain(..).zip(acknowledged) {
                match settle(server, data, self.database, traveller, acknowledged) {
                    Settled::Done => {}
                    Settled::Deleted(key) => deleted.push(key),
                    Settled::Changed(traveller) => changed.push(traveller),
                    Settled::Refused(failure) => refused = Err(failure),
                }
            }
            self.travellers = changed;
            let is_deleted = self.target.delete(&deleted);
            let is_deleted = is_deleted.unwrap_or_else(|broken| Err(broken.failure()));
            let outcome = outcome.and(refused).and(is_deleted);
            rounds += 1;
            if outcome.is_err() || self.travellers.is_empty() || rounds == ROUNDS_MAX {
                let unfinished = !self.travellers.is_empty();
                self.forget(server, data);
                return if outcome.is_ok() && unfinished { Err(STILL_CHANGING) } else { outcome };
            }
            // The target has earlier versions of the keys.
            self.target.replace = true;
        }
    }

    /// Ends the watches of the remaining keys.
    fn forget(&mut self, server: &'static Server, data: &mut Data) {
        for traveller in self.travellers.drain(..) {
            with_key(server, data, self.database, &traveller.key, |data, key| {
                data.unwatch(data.database, key);
            });
        }
    }
}

/// What to do about a key that was sent.
enum Settled {
    Done,
    /// The key was deleted here meanwhile.
    Deleted(Box<[u8]>),
    /// The key was changed here meanwhile.
    Changed(Traveller),
    /// This server may not change the key any more.
    Refused(Failure),
}

/// Deletes a key that the target has acknowledged.
fn settle(
    server: &'static Server,
    data: &mut Data,
    database: u32,
    mut traveller: Traveller,
    acknowledged: bool,
) -> Settled {
    let bytes = std::mem::take(&mut traveller.key);
    let settled = with_key(server, data, database, &bytes, |data, key| {
        if server.is_read_only() {
            data.unwatch(database, key);
            return Settled::Refused(Failure::READONLY);
        }
        let version = data.watched_version(database, key);
        let unchanged = version == Some(traveller.version);
        if acknowledged && unchanged {
            data.unwatch(database, key);
            if data.remove(key) {
                data.log(&[b"DEL", key.bytes]);
                data.event(Classes::GENERIC, "del", key);
            }
            return Settled::Done;
        }
        let found =
            data.peek(key).map(|entry| (PinnedValue::new(entry.value()), entry.expire_ms()));
        match found {
            Some((value, expire_ms)) if acknowledged => {
                let version = version.unwrap_or_default();
                Settled::Changed(Traveller { key: Box::default(), value, expire_ms, version })
            }
            found => {
                data.unwatch(database, key);
                let gone = acknowledged && found.is_none();
                if gone { Settled::Deleted(Box::default()) } else { Settled::Done }
            }
        }
    });
    match settled {
        Settled::Done => Settled::Done,
        Settled::Refused(failure) => Settled::Refused(failure),
        Settled::Deleted(_) => Settled::Deleted(bytes),
        Settled::Changed(traveller) => Settled::Changed(Traveller { key: bytes, ..traveller }),
    }
}

/// Calls `f` with a key whose shard is locked, and then informs the clients that its changes
/// concern.
fn with_key<R>(
    server: &'static Server,
    data: &mut Data,
    database: u32,
    bytes: &[u8],
    f: impl FnOnce(&mut Data, crate::engine::command::Key<'_>) -> R,
) -> R {
    let key = data.key(bytes);
    loop {
        data.enter_unreserved(server);
        data.refresh_time(server);
        // Nothing may change during a pause. A pause cannot begin during this turn.
        if server.paused(data.conditions.now_ms).is_none() && data.hold_one(key.hash.shard()) {
            break;
        }
        data.leave();
        std::thread::sleep(POLL);
    }
    data.database = database;
    data.follow_config(server);
    let result = f(data, key);
    data.end_unit(server, None);
    data.leave();
    result
}

struct MigrateTask {
    server: &'static Server,
    waiter: Arc<Waiter>,
    migration: Migration,
}

#[derive(Default)]
struct MigrateQueue {
    waiting: VecDeque<MigrateTask>,
    threads: usize,
}

/// Executes the waiting migrations one after the other, and ends.
fn run_tasks() {
    loop {
        let mut queue = QUEUE.lock();
        let Some(mut task) = queue.waiting.pop_front() else {
            queue.threads -= 1;
            return;
        };
        drop(queue);
        let server = task.server;
        let outcome = match background::data(server) {
            Some(mut data) => task.migration.run(server, &mut data),
            None => Err(NO_THREAD),
        };
        task.waiter.answer(server, |reply| {
            outcome?;
            reply.ok();
            Ok(())
        });
    }
}

static QUEUE: Mutex<MigrateQueue> =
    Mutex::new(MigrateQueue { waiting: VecDeque::new(), threads: 0 });

/// The most migrations at the same time. Others wait.
const THREADS_MAX: usize = 8;
/// How many times a key that changes all the time is sent.
const ROUNDS_MAX: usize = 16;
/// How long a thread sleeps between two checks for the end of a pause or of a slow script.
const POLL: Duration = Duration::from_millis(1);
const NO_THREAD: Failure = Failure::new(&"ERR too many threads to migrate keys");
const STILL_CHANGING: Failure = Failure::new(
    &"TRYAGAIN Some keys changed again and again while they were migrated, and are still here",
);
