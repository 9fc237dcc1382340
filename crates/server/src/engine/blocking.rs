//! Blocked clients: who waits for which keys, and how a change of a key serves them.
//!
//! A blocking command is a [`Wait`]: what it does once a key has what it asks for. It is tried at
//! once; if there is nothing, the client becomes a [`Waiter`] in the queue of each of its keys.
//! Whoever changes a key that somebody waits for serves its queue, first come first served, before
//! the key's shard is unlocked ([`serve_ready`]): the answer is left in the waiter, and its worker
//! is told to look.
//!
//! A waiter ends once: served, timed out, unblocked or gone. Its `state` decides which. Its own
//! worker then takes it out of the queues it is still in. Waiting costs a place in those queues and
//! nothing else.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicUsize, Ordering, fence};

use bobbin_resp::{Protocol, Reply};
use bobbin_store::Kind;
use bobbin_sync::Mutex;

use crate::engine::client::{Client, ClientFlag, ClientInfo};
use crate::engine::command::distinct::Distinct;
use crate::engine::command::{Call, Data, Failure, Key, Outcome, Registered};
use crate::engine::server::Server;
use crate::engine::server::mailbox::Post;
use crate::engine::{acl, tracking};

/// What a blocked client waits for.
pub trait Wait: Send + Sync {
    /// Does it, if one of these keys (index among the command's keys, in their order) has what it
    /// takes, and appends the reply. Only these keys' shards are held, and that of `destination`.
    /// What no key serves ends in another way.
    fn serve(
        &self,
        _data: &mut Data,
        _keys: &[(usize, Key<'_>)],
        _reply: &mut Reply<'_>,
    ) -> Result<bool, Failure> {
        Ok(false)
    }

    /// The type of value that it waits for, if for any. Keys with another are passed over until
    /// that changes.
    fn kind(&self) -> Option<Kind> {
        None
    }

    /// Whether a key that holds something else, or nothing, serves the client as well, with an
    /// error.
    fn ends_when_gone(&self) -> bool {
        false
    }

    /// Another key that serving needs.
    fn destination(&self) -> Option<&[u8]> {
        None
    }

    /// Whether CLIENT UNBLOCK ends it.
    fn can_be_unblocked(&self) -> bool {
        true
    }

    /// What is answered when nothing came in time.
    fn timed_out(&self, reply: &mut Reply<'_>) {
        reply.null_array();
    }
}

/// A client that waits.
pub struct Waiter {
    pub client: Arc<ClientInfo>,
    pub command: &'static Registered,
    /// The words of the command.
    pub args: Box<[Box<[u8]>]>,
    /// Of the rules by which it was allowed.
    epoch: u32,
    /// By which number it is remembered with the keys that serve it, if it keeps copies of what it
    /// reads.
    reader: Option<u64>,
    /// Unix ms; `None`: as long as it takes.
    pub deadline_ms: Option<i64>,
    wait: Box<dyn Wait>,
    pub database: u32,
    keys: Vec<Box<[u8]>>,
    protocol: Protocol,
    /// `WaiterState`.
    state: AtomicU8,
    /// What it is served with.
    answer: Mutex<Answer>,
}

#[derive(Default)]
struct Answer {
    bytes: Vec<u8>,
    failed: Option<Failure>,
    /// Its user may not run it any more.
    refused: bool,
}

/// How it stands with a waiter. From `WAITING` one step leads to the end, or to `CLAIMED` and back.
struct WaiterState;
impl WaiterState {
    const WAITING: u8 = 0;
    /// Somebody tries to serve it.
    const CLAIMED: u8 = 1;
    const SERVED: u8 = 2;
    const TIMED_OUT: u8 = 3;
    /// CLIENT UNBLOCK ... ERROR.
    const FAILED: u8 = 4;
    /// The client is gone.
    const GONE: u8 = 5;
    /// The server has another part now.
    const DISMISSED: u8 = 6;
}

/// How a waiter ended, for its worker.
pub enum WaiterEnd {
    /// It did not yet.
    Not,
    /// With the command's reply; `true`: an error.
    Answered(bool),
    /// With an error, before it was tried.
    Refused,
    /// With an error, behind which the client is closed.
    Dismissed,
}

/// The queues of blocked clients. A key's queue is changed only with its shard held.
pub struct Waiters {
    parts: Box<[Mutex<HashMap<Name, WaiterQueue>>]>,
    clients: AtomicUsize,
    /// Those of them that do not wait for ever.
    timed: AtomicUsize,
}

/// Database and key.
type Name = (u32, Box<[u8]>);

#[derive(Default)]
struct WaiterQueue {
    waiters: VecDeque<Arc<Waiter>>,
    /// How many of them end when the key is gone.
    ending_when_gone: usize,
}

impl Default for Waiters {
    fn default() -> Self {
        let parts = (0..PARTS).map(|_| Mutex::default()).collect();
        Self { parts, clients: AtomicUsize::new(0), timed: AtomicUsize::new(0) }
    }
}

impl Waiters {
    /// How many clients are blocked.
    pub fn clients(&self) -> usize {
        self.clients.load(Ordering::Relaxed)
    }

    /// How many of them wait for a limited time.
    pub fn timed(&self) -> usize {
        self.timed.load(Ordering::Relaxed)
    }

    /// How many keys somebody waits for, and how many of those for their end as well.
    pub fn keys(&self) -> (usize, usize) {
        let (mut keys, mut ending) = (0, 0);
        for part in &self.parts {
            let part = part.lock();
            keys += part.len();
            ending += part.values().filter(|queue| queue.ending_when_gone > 0).count();
        }
        (keys, ending)
    }

    fn part(&self, key: Key<'_>) -> &Mutex<HashMap<Name, WaiterQueue>> {
        &self.parts[key.hash.shard() % PARTS]
    }

    fn add(&self, database: u32, key: Key<'_>, waiter: &Arc<Waiter>) {
        let mut part = self.part(key).lock();
        let queue = part.entry((database, key.bytes.into())).or_default();
        queue.ending_when_gone += usize::from(waiter.wait.ends_when_gone());
        queue.waiters.push_back(Arc::clone(waiter));
    }

    /// Whether it was there.
    fn remove(&self, database: u32, key: Key<'_>, waiter: &Arc<Waiter>) -> bool {
        let mut part = self.part(key).lock();
        let name = (database, key.bytes.into());
        let Some(queue) = part.get_mut(&name) else { return false };
        let Some(at) = queue.waiters.iter().position(|other| Arc::ptr_eq(other, waiter)) else {
            return false;
        };
        queue.waiters.remove(at);
        queue.ending_when_gone -= usize::from(waiter.wait.ends_when_gone());
        if queue.waiters.is_empty() {
            part.remove(&name);
        }
        true
    }

    /// The waiter at a place of the key's queue, if one there can be served with a value of this
    /// kind.
    fn at(
        &self,
        database: u32,
        key: Key<'_>,
        at: usize,
        kind: Option<Kind>,
    ) -> Option<Arc<Waiter>> {
        let part = self.part(key).lock();
        let queue = part.get(&(database, key.bytes.into()))?;
        if kind.is_none() && queue.ending_when_gone == 0 {
            return None;
        }
        queue.waiters.get(at).cloned()
    }
}

impl Waiter {
    fn step(&self, from: u8, to: u8) -> bool {
        self.state.compare_exchange(from, to, Ordering::AcqRel, Ordering::Acquire).is_ok()
    }

    /// CLIENT UNBLOCK, from any thread; whether it was that that ended it.
    pub fn unblock(&self, server: &Server, with_error: bool) -> bool {
        let to = if with_error { WaiterState::FAILED } else { WaiterState::TIMED_OUT };
        let ended = self.wait.can_be_unblocked() && self.step_waiting(to);
        if ended {
            self.tell(server);
        }
        ended
    }

    /// Ends it, as what it waits for is another server's business now, and closes the client.
    fn dismiss(&self, server: &Server) {
        if self.wait.can_be_unblocked() && self.step_waiting(WaiterState::DISMISSED) {
            self.tell(server);
        }
    }

    /// Ends it with a reply that was worked out elsewhere, from any thread.
    pub fn answer(
        &self,
        server: &Server,
        reply: impl FnOnce(&mut Reply<'_>) -> Result<(), Failure>,
    ) {
        if !self.step(WaiterState::WAITING, WaiterState::CLAIMED) {
            return;
        }
        let mut answer = Answer::default();
        if let Err(failure) = reply(&mut Reply::new(&mut answer.bytes, self.protocol)) {
            answer.bytes.clear();
            answer.failed = Some(failure);
        }
        *self.answer.lock() = answer;
        self.step(WaiterState::CLAIMED, WaiterState::SERVED);
        self.tell(server);
    }

    /// Whether it has not ended yet.
    pub fn is_waiting(&self) -> bool {
        matches!(self.state.load(Ordering::Relaxed), WaiterState::WAITING | WaiterState::CLAIMED)
    }

    /// The client goes away.
    fn abandon(&self) {
        self.step_waiting(WaiterState::GONE);
    }

    /// From waiting to an end. A claim lasts as long as one command, and is waited for.
    fn step_waiting(&self, to: u8) -> bool {
        loop {
            match self.state.compare_exchange(
                WaiterState::WAITING,
                to,
                Ordering::AcqRel,
                Ordering::Acquire,
            ) {
                Ok(_) => return true,
                Err(WaiterState::CLAIMED) => std::thread::yield_now(),
                Err(_) => return false,
            }
        }
    }

    /// Has the client's worker look at it.
    fn tell(&self, server: &Server) {
        // Pairs with the fence of `Worker::adopt`: either we see where the client is, or its new
        // worker sees that it is no longer blocked.
        fence(Ordering::SeqCst);
        let worker = self.client.worker.load(Ordering::Relaxed);
        server.workers.post(worker, Post::Unblock(Arc::clone(&self.client)));
    }

    /// Whether its time is over at `now_ms`; then it has ended.
    pub fn expire(&self, now_ms: i64) {
        if self.deadline_ms.is_some_and(|deadline_ms| deadline_ms <= now_ms) {
            // While it is being served it is asked again in the next turn.
            self.step(WaiterState::WAITING, WaiterState::TIMED_OUT);
        }
    }

    /// How it ended; appends the reply. To be called by its worker.
    pub fn ended(&self, reply: &mut Vec<u8>) -> WaiterEnd {
        let mut reply = Reply::new(reply, self.protocol);
        match self.state.load(Ordering::Acquire) {
            WaiterState::SERVED => {
                let answer = std::mem::take(&mut *self.answer.lock());
                reply.raw(&answer.bytes);
                if let Some(failure) = &answer.failed {
                    reply.error(failure.text().as_bytes());
                }
                match answer.refused {
                    true => WaiterEnd::Refused,
                    false => WaiterEnd::Answered(answer.failed.is_some()),
                }
            }
            WaiterState::TIMED_OUT => {
                self.wait.timed_out(&mut reply);
                WaiterEnd::Answered(false)
            }
            WaiterState::FAILED => {
                reply.error(UNBLOCKED.text().as_bytes());
                WaiterEnd::Answered(true)
            }
            WaiterState::DISMISSED => {
                reply.error(DISMISSED.text().as_bytes());
                WaiterEnd::Dismissed
            }
            _ => WaiterEnd::Not,
        }
    }

    /// Takes it out of the queues that it is in: it has ended. Nothing is held.
    pub fn unlink(self: &Arc<Self>, server: &Server, data: &mut Data) {
        self.abandon();
        for bytes in &self.keys {
            let key = data.key(bytes);
            data.visit(key.hash.shard(), |shard| {
                if server.waiters.remove(self.database, key, self) {
                    shard.unwait(self.database, bytes);
                }
            });
        }
        *self.client.waiter.lock() = None;
        self.client.flag(ClientFlag::BLOCKED, false);
        server.waiters.clients.fetch_sub(1, Ordering::Relaxed);
        if self.deadline_ms.is_some() {
            server.waiters.timed.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

/// Closes all blocked clients: the server becomes a replica, and changes what they wait for no
/// more.
pub fn dismiss_all(server: &Server) {
    for info in server.clients.all() {
        let waiter = info.waiter.lock().clone();
        waiter.iter().for_each(|waiter| waiter.dismiss(server));
    }
}

/// Serves a blocking command at once, or blocks its client until one of the keys (arguments of the
/// command, whose shards are held) has something, at most until the deadline. Within a transaction
/// nobody waits.
pub fn serve_or_block(
    call: &mut Call<'_>,
    wait: impl Wait + 'static,
    keys: impl Iterator<Item = usize>,
    deadline_ms: Option<i64>,
) -> Outcome {
    let keys = call.keys(keys)?;
    if wait.serve(call.data, &keys, &mut call.reply)? {
        return Ok(());
    }
    if call.in_transaction {
        wait.timed_out(&mut call.reply);
        return Ok(());
    }
    block(call, wait, &keys, deadline_ms);
    Ok(())
}

/// Blocks the client until one of the keys, whose shards are held, changes so that it can be
/// served.
pub fn block(
    call: &mut Call<'_>,
    wait: impl Wait + 'static,
    keys: &[(usize, Key<'_>)],
    deadline_ms: Option<i64>,
) -> Arc<Waiter> {
    let waiting = Waiting {
        command: call.command,
        args: call.args.iter().map(|arg| Box::from(*arg)).collect(),
        reader: tracking::reader(call),
        wait: Box::new(wait),
        deadline_ms,
    };
    waiting.begin(call.server, call.data, call.client, keys)
}

/// A command that blocks its client.
pub struct Waiting {
    pub command: &'static Registered,
    pub args: Box<[Box<[u8]>]>,
    pub reader: Option<u64>,
    pub wait: Box<dyn Wait>,
    pub deadline_ms: Option<i64>,
}

impl Waiting {
    /// Blocks the client until one of the keys, whose shards are held, changes so that it can be
    /// served.
    pub fn begin(
        self,
        server: &Server,
        data: &mut Data,
        client: &mut Client,
        keys: &[(usize, Key<'_>)],
    ) -> Arc<Waiter> {
        let Self { command, args, reader, wait, deadline_ms } = self;
        let database = client.database;
        let waiter = Arc::new(Waiter {
            client: Arc::clone(&client.info),
            command,
            args,
            epoch: server.acl.epoch(),
            reader,
            deadline_ms,
            wait,
            database,
            keys: keys.iter().map(|(_, key)| key.bytes.into()).collect(),
            protocol: client.protocol,
            state: AtomicU8::new(WaiterState::WAITING),
            answer: Mutex::default(),
        });
        let mut distinct = Distinct::default();
        for &(_, key) in keys {
            if !distinct.insert(key.bytes) {
                continue;
            }
            data.visit(key.hash.shard(), |shard| shard.wait(database, key.bytes));
            server.waiters.add(database, key, &waiter);
        }
        server.waiters.clients.fetch_add(1, Ordering::Relaxed);
        if deadline_ms.is_some() {
            server.waiters.timed.fetch_add(1, Ordering::Relaxed);
        }
        client.info.flag(ClientFlag::BLOCKED, true);
        *client.info.waiter.lock() = Some(Arc::clone(&waiter));
        client.blocked = Some(Arc::clone(&waiter));
        waiter
    }
}

/// Serves the clients blocked on the keys that just changed, while the shards of the keys are held.
#[cold]
pub fn serve_ready(server: &Server, data: &mut Data) {
    let selected = data.database;
    // A transaction may have taken its time, and what it left may have expired meanwhile.
    data.turn.now_ms = data.turn.now_ms.max(server.clock.advance());
    let mut reserved = Vec::new();
    while let Some((database, key)) = data.unit.ready.pop_front() {
        data.database = database;
        if !serve_key(server, data, &key) {
            reserved.push((database, key));
        }
    }
    // They have their turn once the shard is free again: every turn of a worker looks.
    data.unit.ready.extend(reserved);
    data.database = selected;
}

/// Serves the clients blocked on a key. Returns `false` if somebody has reserved a shard.
fn serve_key(server: &Server, data: &mut Data, bytes: &[u8]) -> bool {
    let (key, database) = (data.key(bytes), data.database);
    let mut at = 0;
    loop {
        if !data.holds(key.hash.shard()) {
            // Who changed it walks from shard to shard.
            data.release();
            if !data.hold_one(key.hash.shard()) {
                return false;
            }
        }
        let kind = data.peek(key).map(|entry| entry.kind());
        let Some(waiter) = server.waiters.at(database, key, at, kind) else { return true };
        let fits = kind.is_some() && kind == waiter.wait.kind() || waiter.wait.ends_when_gone();
        if fits {
            match hold_destination(data, key, waiter.wait.destination()) {
                Destination::Held => {}
                // Others had their turn meanwhile: look again.
                Destination::HeldAnew => continue,
                Destination::Reserved => return false,
            }
        }
        // While it is claimed nothing is waited for: who would end it waits for us.
        if !fits || !waiter.step(WaiterState::WAITING, WaiterState::CLAIMED) {
            at += 1;
            continue;
        }
        let keys = waiter.keys.iter().map(|bytes| data.key(bytes)).enumerate();
        let held: Vec<_> = keys.filter(|(_, key)| data.holds(key.hash.shard())).collect();
        let mut answer = Answer::default();
        let admitted = match waiter.epoch == server.acl.epoch() {
            true => Ok(()),
            false => acl::admit_waiter(server, &waiter, data.turn.now_ms),
        };
        answer.refused = admitted.is_err();
        let mut reply = Reply::new(&mut answer.bytes, waiter.protocol);
        let served = admitted.and_then(|()| waiter.wait.serve(data, &held, &mut reply));
        match served {
            Ok(false) => {
                waiter.step(WaiterState::CLAIMED, WaiterState::WAITING);
                at += 1;
                continue;
            }
            // The change that serves it has made it forget the key.
            Ok(true) => {
                data.unit.note_served();
                if let Some(reader) = waiter.reader {
                    held.iter().for_each(|(_, key)| data.track(*key, reader));
                }
            }
            Err(failure) => {
                answer.bytes.clear();
                answer.failed = Some(failure);
            }
        }
        // Nobody may see it before it has its place in the log.
        data.number_unit(true);
        if server.waiters.remove(database, key, &waiter) {
            data.visit(key.hash.shard(), |shard| shard.unwait(database, bytes));
        }
        *waiter.answer.lock() = answer;
        waiter.step(WaiterState::CLAIMED, WaiterState::SERVED);
        waiter.tell(server);
    }
}

/// What became of the wish to hold another key's shard as well.
enum Destination {
    Held,
    HeldAnew,
    Reserved,
}

/// Holds the shard of another key as well. Who waits for a lock that is not above all it holds
/// might wait for ever; so if it is not free, everything is given up and locked anew in order.
fn hold_destination(data: &mut Data, key: Key<'_>, destination: Option<&[u8]>) -> Destination {
    let Some(bytes) = destination else { return Destination::Held };
    let shard = data.key(bytes).hash.shard();
    if data.try_hold_also(shard) {
        return Destination::Held;
    }
    let own = key.hash.shard();
    match data.hold_many([own.min(shard), own.max(shard)].into_iter()) {
        true => Destination::HeldAnew,
        false => Destination::Reserved,
    }
}

/// An argument as the time until which to block, in seconds; `None`: for ever.
pub fn deadline_ms(call: &Call<'_>, index: usize) -> Result<Option<i64>, Failure> {
    let text = call.args[index];
    let seconds = match bobbin_resp::parse_f64(text) {
        Some(seconds) => seconds,
        // A number that is too large for a double is still a number, and so is one in base 16.
        None if is_large(text) => return Err(TIMEOUT_OUT_OF_RANGE),
        None => return Err(NOT_A_TIMEOUT),
    };
    deadline_of(call, seconds * 1000.0, NOT_A_TIMEOUT)
}

/// Whether a text is a number that no timeout can be.
fn is_large(text: &[u8]) -> bool {
    let Ok(text) = str::from_utf8(text) else { return false };
    match text.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16).is_ok_and(|number| number >= 1 << 53),
        None => text.parse().is_ok_and(f64::is_infinite),
    }
}

/// An argument as the time until which to block, in whole milliseconds; `None`: for ever.
pub fn deadline_of_ms(call: &Call<'_>, index: usize) -> Result<Option<i64>, Failure> {
    let ms = bobbin_resp::parse_i64(call.args[index]).ok_or(NOT_AN_INTEGER_TIMEOUT)?;
    if ms < 0 {
        return Err(NEGATIVE_TIMEOUT);
    }
    let deadline = ms.checked_add(call.data.turn.now_ms).ok_or(TIMEOUT_OUT_OF_RANGE)?;
    Ok((ms > 0).then_some(deadline))
}

fn deadline_of(call: &Call<'_>, ms: f64, invalid: Failure) -> Result<Option<i64>, Failure> {
    if ms.is_nan() {
        return Err(invalid);
    }
    if ms < 0.0 {
        return Err(NEGATIVE_TIMEOUT);
    }
    let ms = ms.ceil();
    if ms >= i64::MAX as f64 {
        return Err(TIMEOUT_OUT_OF_RANGE);
    }
    let deadline = (ms as i64).checked_add(call.data.turn.now_ms).ok_or(TIMEOUT_OUT_OF_RANGE)?;
    Ok((ms > 0.0).then_some(deadline))
}

/// Queues are spread over this many locks.
const PARTS: usize = 256;

const DISMISSED: Failure = Failure::new(
    "UNBLOCKED force unblock from blocking operation, instance state changed (master -> replica?)",
);
const UNBLOCKED: Failure = Failure::new("UNBLOCKED client unblocked via CLIENT UNBLOCK");
const NOT_A_TIMEOUT: Failure = Failure::new("ERR timeout is not a float or out of range");
const NOT_AN_INTEGER_TIMEOUT: Failure =
    Failure::new("ERR timeout is not an integer or out of range");
const NEGATIVE_TIMEOUT: Failure = Failure::new("ERR timeout is negative");
const TIMEOUT_OUT_OF_RANGE: Failure = Failure::new("ERR timeout is out of range");
