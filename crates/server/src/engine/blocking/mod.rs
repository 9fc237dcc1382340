//! Blocked clients: which client waits for which keys, and how a change of a key serves them.
//!
//! A blocking command is a [`Wait`]: it says what happens once a key has an element for it. It is
//! tried at once. If no key has one, the client becomes a [`Waiter`] in the queue of each of its
//! keys. A command that changes an awaited key serves the key's queue, first come first served,
//! before the key's shard is unlocked ([`serve_ready`]). It leaves the answer in the waiter and
//! tells the client's worker to look.
//!
//! A waiter ends once: it is served, timed out or unblocked, or its client goes. Its `state`
//! decides which of those comes first. The client's worker then takes the waiter out of the queues
//! that it is still in. Waiting costs nothing but the places in those queues.

mod timeout;
mod waiter;

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicUsize, Ordering};

use bobbin_resp::Reply;
use bobbin_store::ValueType;
use bobbin_sync::Mutex;

pub use self::timeout::{deadline_ms, deadline_of_ms};
use self::waiter::{ServedReply, WaiterState};
pub use self::waiter::{Waiter, WaiterEnd, Waiters};
use crate::engine::acl::check::Asked;
use crate::engine::acl::log::Scene;
use crate::engine::client::Client;
use crate::engine::clients::ClientFlag;
use crate::engine::command::{Call, Data, Failure, Flags, Key, KeySet, Outcome, Registered};
use crate::engine::server::Server;
use crate::engine::tracking;

/// What a blocked client waits for.
pub trait Wait: Send + Sync {
    /// Checks again what the command checked before it began to wait, if `serve` could otherwise
    /// fail after a change. An error ends the wait.
    fn check(&self, _data: &mut Data, _keys: &[(usize, Key<'_>)]) -> Outcome {
        Ok(())
    }

    /// Tries to serve the client: if one of `keys` has what the command asks for, changes it and
    /// appends the reply. `keys` are those of the command whose shards are held, each with its
    /// index among the command's keys; the shard of `destination` is held too. Returns whether the
    /// client was served. A wait that no key serves ends in another way.
    fn serve(
        &self,
        _data: &mut Data,
        _keys: &[(usize, Key<'_>)],
        _reply: &mut Reply<'_>,
    ) -> Result<bool, Failure> {
        Ok(false)
    }

    /// The type of value that the client waits for, if it waits for a value. Keys with another type
    /// are passed over until they change.
    fn value_type(&self) -> Option<ValueType> {
        None
    }

    /// Whether a key with another type, or without a value, ends the wait too, with an error.
    fn ends_when_gone(&self) -> bool {
        false
    }

    /// Another key whose shard `serve` needs.
    fn destination(&self) -> Option<&[u8]> {
        None
    }

    /// Whether CLIENT UNBLOCK can end the wait, or its client by sending nothing more. That is so
    /// unless the client waits for work of the server.
    fn can_be_unblocked(&self) -> bool {
        true
    }

    /// Appends the answer for a wait that reached its deadline.
    fn timed_out(&self, reply: &mut Reply<'_>) {
        reply.null_array();
    }
}

/// Ends the waits of blocked clients with an error: the server has become a replica, so its clients
/// no longer change the keys. A client that follows redirections is sent to the primary, or waits
/// on if it may read here.
pub fn dismiss_all(server: &Server) {
    for info in server.clients.all() {
        let Some(waiter) = server.waiters.of_client(info.id) else { continue };
        if waiter.keys.is_empty() || !info.has(ClientFlag::CAPA_REDIRECT) {
            waiter.dismiss(server);
            continue;
        }
        let writes = waiter.command.has(Flags::WRITE);
        if info.is_redirected(writes, !writes) {
            waiter.answer(server, |_| Err(Failure::redirect(&server.config)));
        }
    }
}

/// Serves a blocking command at once, or blocks its client until one of the keys can serve it or
/// the deadline (Unix ms) has passed. `keys` are arguments whose shards are held. A client that
/// must not wait is answered as if the deadline had passed.
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
    if !call.may_block() {
        wait.timed_out(&mut call.reply);
        return Ok(());
    }
    block(call, wait, &keys, deadline_ms);
    Ok(())
}

/// Blocks the client until one of the keys, whose shards are held, can serve it.
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

/// A command that is about to block its client.
pub struct Waiting {
    pub command: &'static Registered,
    pub args: Box<[Box<[u8]>]>,
    pub reader: Option<u64>,
    pub wait: Box<dyn Wait>,
    pub deadline_ms: Option<i64>,
}

impl Waiting {
    /// Blocks the client until one of the keys, whose shards are held, can serve it.
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
            request_bytes: AtomicUsize::new(0),
            deadline_ms,
            wait,
            database,
            keys: keys.iter().map(|(_, key)| key.bytes.into()).collect(),
            protocol: client.protocol,
            state: AtomicU8::new(WaiterState::WAITING),
            answer: Mutex::default(),
        });
        let mut distinct = KeySet::default();
        for &(_, key) in keys {
            if !distinct.insert(key) {
                continue;
            }
            data.visit(key.hash.shard(), |shard| shard.wait(database, key.bytes));
            server.waiters.add(database, key, &waiter);
        }
        server.waiters.enter(&waiter);
        client.info.waiting_bytes.store(waiter.memory(), Ordering::Relaxed);
        server.count_client_memory(&client.info);
        client.info.flag(ClientFlag::BLOCKED, true);
        client.blocked = Some(Arc::clone(&waiter));
        waiter
    }
}

/// Serves the clients blocked on the keys that just changed, while the shards of the keys are held.
#[cold]
pub fn serve_ready(server: &Server, data: &mut Data) {
    let selected = data.database;
    // A transaction may have taken long, and the elements that it left may have expired meanwhile.
    data.conditions.now_ms = data.conditions.now_ms.max(server.clock.advance());
    loop {
        let (releases, mut reserved) = (server.scripts.releases(), Vec::new());
        while let Some((database, key)) = data.unit.work.ready.pop() {
            data.database = database;
            if !serve_key(server, data, &key) {
                reserved.push((database, key));
            }
        }
        data.database = selected;
        if reserved.is_empty() {
            return;
        }
        server.waiters.put_off(reserved);
        server.scripts.note_waiter();
        // Tries again if a script ended before it could see that a client waits for it.
        if server.scripts.releases() == releases {
            return;
        }
        data.unit.work.ready.extend(server.waiters.take_put_off());
    }
}

/// Has a worker look soon at all keys that clients wait for: data was loaded, so each may have
/// another value now. Loading itself serves nobody, because clients must not see half of the data.
/// Any thread may call this, whatever it holds.
pub fn look_again(server: &Server) {
    if server.waiters.clients() > 0 {
        server.waiters.put_off_all();
        server.scripts.note_waiter();
        server.scripts.serve_waiters(server);
    }
}

/// Serves the clients that were put off: a shard was reserved and may be free now, or data was
/// loaded.
pub fn serve_behind_reserved(server: &Server, data: &mut Data) {
    data.unit.work.ready.extend(server.waiters.take_put_off());
    if !data.unit.work.ready.is_empty() {
        serve_ready(server, data);
    }
}

/// Serves the clients blocked on a key. Returns `false` if a shard is reserved.
fn serve_key(server: &Server, data: &mut Data, bytes: &[u8]) -> bool {
    let (key, database) = (data.key(bytes), data.database);
    let mut at = 0;
    loop {
        if !data.holds(key.hash.shard()) {
            // The command that changed the key has moved on to another shard.
            data.release();
            if !data.hold_one(key.hash.shard()) {
                return false;
            }
        }
        let found = data.live_type(key);
        let Some(waiter) = server.waiters.at(database, key, at, found) else { return true };
        // A client that was killed may not have been closed yet.
        let fits = !waiter.client.kill.load(Ordering::Relaxed)
            && (found.is_some() && found == waiter.wait.value_type()
                || waiter.wait.ends_when_gone());
        if fits {
            match hold_destination(data, key, waiter.wait.destination()) {
                DestinationLock::Held => {}
                // The key was unlocked meanwhile, so look at its queue again.
                DestinationLock::HeldAnew => {
                    at = 0;
                    continue;
                }
                DestinationLock::Reserved => return false,
            }
        }
        // Between the claim and its end this thread waits for no lock, as a thread that wants to
        // end the wait spins until then.
        if !fits || !waiter.step(WaiterState::WAITING, WaiterState::CLAIMED) {
            at += 1;
            continue;
        }
        let Some(answer) = try_to_serve(server, data, &waiter) else {
            // An expired key may have been deleted nevertheless.
            data.number_unit();
            waiter.step(WaiterState::CLAIMED, WaiterState::WAITING);
            at += 1;
            continue;
        };
        // The change gets its place in the log before any other thread can see it.
        data.number_unit();
        if server.waiters.remove(database, key, &waiter) {
            data.visit(key.hash.shard(), |shard| shard.unwait(database, bytes));
        }
        *waiter.answer.lock() = answer;
        waiter.step(WaiterState::CLAIMED, WaiterState::SERVED);
        waiter.tell(server);
        data.publish_served(waiter.client.id);
    }
}

/// Executes the command of a claimed waiter. `None`: what it waits for is not there.
fn try_to_serve(server: &Server, data: &mut Data, waiter: &Waiter) -> Option<ServedReply> {
    let keys = waiter.keys.iter().map(|bytes| data.key(bytes)).enumerate();
    let held: Vec<_> = keys.filter(|(_, key)| data.holds(key.hash.shard())).collect();
    let mut answer = ServedReply::default();
    let admitted = match waiter.epoch == server.acl.epoch() {
        true => Ok(()),
        false => check_waiter(server, waiter, data.conditions.now_ms),
    };
    answer.refused = admitted.is_err();
    data.conditions.touch = !waiter.client.has(ClientFlag::NO_TOUCH);
    let mut reply = Reply::new(&mut answer.bytes, waiter.protocol);
    let checked = admitted.and_then(|()| waiter.wait.check(data, &held));
    match checked.and_then(|()| waiter.wait.serve(data, &held, &mut reply)) {
        Ok(false) => return None,
        // The change has dropped the readers of the key, so this one is added after it.
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
    Some(answer)
}

/// Checks a blocked command whose rights were checked in an earlier epoch, just before it is
/// served.
#[cold]
fn check_waiter(server: &Server, waiter: &Waiter, now_ms: i64) -> Result<(), Failure> {
    let Some(user) = waiter.client.user() else { return Ok(()) };
    let Some(user) = server.acl.renewed(&user) else { return Err(Failure::NOT_AUTHENTICATED) };
    let args: Vec<&[u8]> = waiter.args.iter().map(|arg| &**arg).collect();
    let asked = Asked::new(waiter.command, &args, waiter.database, &server.config);
    user.check(&asked).map_err(|denied| {
        let event = denied.event(Scene::Toplevel, waiter.command, &args, &user);
        server.note_denied(&waiter.client, event, now_ms);
        Failure::format(format!("NOPERM {}", denied.text(&user, waiter.command, None)))
    })
}

/// The result of locking the shard of another key.
enum DestinationLock {
    Held,
    HeldAnew,
    Reserved,
}

/// Locks the shard of another key in addition. Waiting for a lock that is not above all held ones
/// could last for ever. So if the shard is not free, both shards are unlocked and locked again in
/// order.
fn hold_destination(data: &mut Data, key: Key<'_>, destination: Option<&[u8]>) -> DestinationLock {
    let Some(bytes) = destination else { return DestinationLock::Held };
    let shard = data.key(bytes).hash.shard();
    if data.try_hold_also(shard) {
        return DestinationLock::Held;
    }
    let own = key.hash.shard();
    match data.hold_many([own.min(shard), own.max(shard)].into_iter()) {
        true => DestinationLock::HeldAnew,
        false => DestinationLock::Reserved,
    }
}
