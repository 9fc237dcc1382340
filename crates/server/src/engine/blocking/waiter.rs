//! Blocked clients, and the queues that they wait in.

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicUsize, Ordering};

use bobbin_resp::{Protocol, Reply};
use bobbin_store::ValueType;
use bobbin_store::trim::{FEW, Trim};
use bobbin_sync::Mutex;

use super::Wait;
use crate::engine::clients::{ClientFlag, ClientInfo};
use crate::engine::command::{Data, Failure, Key, Registered};
use crate::engine::server::Server;
use crate::engine::server::mailbox::ClientPost;

/// A blocked client.
pub struct Waiter {
    pub client: Arc<ClientInfo>,
    pub command: &'static Registered,
    /// The words of the command.
    pub args: Box<[Box<[u8]>]>,
    /// The epoch of the rules that allowed the command.
    pub(super) epoch: u32,
    /// The client's number as a reader of keys, if it keeps copies of what it reads.
    pub(super) reader: Option<u64>,
    /// Bytes of the request, which the command log tells of when the wait ends.
    pub(super) request_bytes: AtomicUsize,
    /// Unix ms; `None` if the wait has no deadline.
    pub deadline_ms: Option<i64>,
    pub(super) wait: Box<dyn Wait>,
    pub database: u32,
    pub(super) keys: Vec<Box<[u8]>>,
    pub(super) protocol: Protocol,
    /// A value of `WaiterState`.
    pub(super) state: AtomicU8,
    /// The answer that the client is served with.
    pub(super) answer: Mutex<ServedReply>,
}

#[derive(Default)]
pub(super) struct ServedReply {
    pub(super) bytes: Vec<u8>,
    pub(super) failed: Option<Failure>,
    /// Whether the user may no longer run the command.
    pub(super) refused: bool,
}

/// The states of a waiter. From `WAITING` it goes to one of the ends, or to `CLAIMED` and from
/// there to `SERVED` or back.
pub(super) struct WaiterState;
impl WaiterState {
    pub(super) const WAITING: u8 = 0;
    /// A thread tries to serve the client.
    pub(super) const CLAIMED: u8 = 1;
    pub(super) const SERVED: u8 = 2;
    const TIMED_OUT: u8 = 3;
    /// CLIENT UNBLOCK with ERROR.
    const FAILED: u8 = 4;
    /// The client has gone.
    const GONE: u8 = 5;
    /// The server has become a replica.
    const DISMISSED: u8 = 6;
}

/// How a waiter ended, for the client's worker.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum WaiterEnd {
    /// The wait goes on.
    Not,
    /// The command was answered; `true` if with an error.
    Answered(bool),
    /// CLIENT UNBLOCK ended the wait with an error.
    Unblocked,
    /// The command was refused before it was tried.
    Refused,
    /// The wait ended with an error, after which the client is closed.
    Dismissed,
}

/// The queues of blocked clients. The queue of a key changes only while the key's shard is held.
#[repr(align(128))]
pub struct Waiters {
    parts: Box<[Mutex<HashMap<DatabaseKey, WaiterQueue>>]>,
    /// The waiters by client, for a thread that wants to unblock one.
    by_client: Box<[Mutex<WaitersByClient>]>,
    clients: AtomicUsize,
    /// How many of the clients have a deadline.
    timed: AtomicUsize,
    /// Keys whose clients can be served once a script has ended, or data was loaded.
    behind_reserved: Mutex<BTreeSet<DatabaseKey>>,
}

/// By client number.
type WaitersByClient = HashMap<u64, Arc<Waiter>>;
/// A database and a key.
type DatabaseKey = (u32, Box<[u8]>);

#[derive(Default)]
struct WaiterQueue {
    waiters: VecDeque<Arc<Waiter>>,
    /// How many of the waiters end when the key is deleted.
    ending_when_gone: usize,
}

impl Default for Waiters {
    fn default() -> Self {
        let parts = (0..PARTS).map(|_| Mutex::default()).collect();
        let by_client = (0..PARTS).map(|_| Mutex::default()).collect();
        Self {
            parts,
            by_client,
            clients: AtomicUsize::new(0),
            timed: AtomicUsize::new(0),
            behind_reserved: Mutex::default(),
        }
    }
}

impl Waiters {
    /// Puts off the clients of these keys until a script has ended.
    pub(super) fn put_off(&self, keys: Vec<DatabaseKey>) {
        self.behind_reserved.lock().extend(keys);
    }

    /// Puts off all clients that wait for keys.
    pub(super) fn put_off_all(&self) {
        for part in &self.parts {
            let keys: Vec<_> = part.lock().keys().cloned().collect();
            self.put_off(keys);
        }
    }

    /// Takes the keys whose clients were put off.
    pub(super) fn take_put_off(&self) -> BTreeSet<DatabaseKey> {
        std::mem::take(&mut *self.behind_reserved.lock())
    }

    /// The number of blocked clients.
    pub fn clients(&self) -> usize {
        self.clients.load(Ordering::Relaxed)
    }

    /// The number of blocked clients with a deadline.
    pub fn timed(&self) -> usize {
        self.timed.load(Ordering::Relaxed)
    }

    /// The waiter of a client, if it is blocked.
    pub fn of_client(&self, id: u64) -> Option<Arc<Waiter>> {
        self.by_client(id).lock().get(&id).cloned()
    }

    fn by_client(&self, id: u64) -> &Mutex<WaitersByClient> {
        &self.by_client[id as usize % PARTS]
    }

    /// Counts a client as blocked.
    pub(super) fn enter(&self, waiter: &Arc<Waiter>) {
        let id = waiter.client.id;
        self.by_client(id).lock().insert(id, Arc::clone(waiter));
        self.clients.fetch_add(1, Ordering::Relaxed);
        if waiter.deadline_ms.is_some() {
            self.timed.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Counts a client as no longer blocked.
    fn leave(&self, waiter: &Waiter) {
        let id = waiter.client.id;
        {
            let mut by_client = self.by_client(id).lock();
            by_client.remove(&id);
            by_client.trim(FEW);
        }
        self.clients.fetch_sub(1, Ordering::Relaxed);
        if waiter.deadline_ms.is_some() {
            self.timed.fetch_sub(1, Ordering::Relaxed);
        }
    }

    /// The number of keys that clients wait for, and the number of those whose deletion ends a
    /// wait.
    pub fn keys(&self) -> (usize, usize) {
        let (mut keys, mut ending) = (0, 0);
        if self.clients.load(Ordering::Relaxed) == 0 {
            return (keys, ending);
        }
        for part in &self.parts {
            let part = part.lock();
            keys += part.len();
            ending += part.values().filter(|queue| queue.ending_when_gone > 0).count();
        }
        (keys, ending)
    }

    /// How many keys there is memory for.
    #[cfg(test)]
    pub fn capacity(&self) -> usize {
        self.parts.iter().map(|part| part.lock().capacity()).sum()
    }

    fn part(&self, key: Key<'_>) -> &Mutex<HashMap<DatabaseKey, WaiterQueue>> {
        &self.parts[key.hash.shard() % PARTS]
    }

    pub(super) fn add(&self, database: u32, key: Key<'_>, waiter: &Arc<Waiter>) {
        let mut part = self.part(key).lock();
        let queue = part.entry((database, key.bytes.into())).or_default();
        queue.ending_when_gone += usize::from(waiter.wait.ends_when_gone());
        queue.waiters.push_back(Arc::clone(waiter));
    }

    /// Removes a waiter from the queue of a key; returns whether it was there.
    pub(super) fn remove(&self, database: u32, key: Key<'_>, waiter: &Arc<Waiter>) -> bool {
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
            part.trim(FEW);
        } else {
            queue.waiters.trim(FEW);
        }
        true
    }

    /// The waiter at index `at` of the key's queue. `kind` is the type of the key's value; if there
    /// is none and no waiter ends by that, the result is `None`.
    pub(super) fn at(
        &self,
        database: u32,
        key: Key<'_>,
        at: usize,
        kind: Option<ValueType>,
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
    pub(super) fn step(&self, from: u8, to: u8) -> bool {
        self.state.compare_exchange(from, to, Ordering::AcqRel, Ordering::Acquire).is_ok()
    }

    /// CLIENT UNBLOCK, from any thread. Returns whether this call ended the wait.
    pub fn unblock(&self, server: &Server, with_error: bool) -> bool {
        let to = if with_error { WaiterState::FAILED } else { WaiterState::TIMED_OUT };
        let ended = self.wait.can_be_unblocked() && self.step_waiting(to);
        if ended {
            self.tell(server);
        }
        ended
    }

    /// Ends the wait because the server has become a replica; the client will be closed.
    pub(super) fn dismiss(&self, server: &Server) {
        if self.wait.can_be_unblocked() && self.step_waiting(WaiterState::DISMISSED) {
            self.tell(server);
        }
    }

    /// Ends the wait with a reply that was made elsewhere. May be called by any thread.
    pub fn answer(
        &self,
        server: &Server,
        reply: impl FnOnce(&mut Reply<'_>) -> Result<(), Failure>,
    ) {
        if !self.step(WaiterState::WAITING, WaiterState::CLAIMED) {
            return;
        }
        let mut answer = ServedReply::default();
        if let Err(failure) = reply(&mut Reply::new(&mut answer.bytes, self.protocol)) {
            answer.bytes.clear();
            answer.failed = Some(failure);
        }
        *self.answer.lock() = answer;
        self.step(WaiterState::CLAIMED, WaiterState::SERVED);
        self.tell(server);
    }

    /// Notes how long the request was. Only the client's worker calls this, and `request_bytes`.
    pub fn note_request(&self, bytes: usize) {
        self.request_bytes.store(bytes, Ordering::Relaxed);
    }

    pub fn request_bytes(&self) -> usize {
        self.request_bytes.load(Ordering::Relaxed)
    }

    /// Whether the client waits for work of the server, which will end.
    pub fn is_for_server(&self) -> bool {
        !self.wait.can_be_unblocked()
    }

    /// Whether the wait has not ended yet.
    pub fn is_waiting(&self) -> bool {
        matches!(self.state.load(Ordering::Relaxed), WaiterState::WAITING | WaiterState::CLAIMED)
    }

    /// Ends the wait because the client goes.
    fn abandon(&self) {
        self.step_waiting(WaiterState::GONE);
    }

    /// Moves from `WAITING` to an end. It waits while the waiter is claimed, which lasts as long as
    /// one command.
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

    /// Tells the client's worker to look at the waiter.
    pub(super) fn tell(&self, server: &Server) {
        server.workers.post_to(&self.client, ClientPost::Unblock);
    }

    /// Ends the wait if its deadline has passed at `now_ms`.
    pub fn expire(&self, now_ms: i64) {
        if self.deadline_ms.is_some_and(|deadline_ms| deadline_ms <= now_ms) {
            // If the client is being served now, the next turn asks again.
            self.step(WaiterState::WAITING, WaiterState::TIMED_OUT);
        }
    }

    /// How the wait ended; appends the reply. Only the client's worker calls this.
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
                WaiterEnd::Unblocked
            }
            WaiterState::DISMISSED => {
                reply.error(DISMISSED.text().as_bytes());
                WaiterEnd::Dismissed
            }
            _ => WaiterEnd::Not,
        }
    }

    /// Takes an ended waiter out of the queues that it is still in. No shard is held.
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
        self.client.waiting_bytes.store(0, Ordering::Relaxed);
        self.client.flag(ClientFlag::BLOCKED, false);
        server.waiters.leave(self);
    }

    /// Bytes of the waiter and of its places in queues.
    pub(super) fn memory(&self) -> usize {
        let words = |words: &[Box<[u8]>]| -> usize {
            words.iter().map(|word| size_of::<Box<[u8]>>() + word.len()).sum()
        };
        let in_queues = self.keys.iter().map(|key| QUEUED_BYTES + 2 * key.len());
        size_of::<Self>() + words(&self.args) + words(&self.keys) + in_queues.sum::<usize>()
    }
}

/// Approximate bytes of a queue and of the shard's note of the key, without the key's own bytes.
const QUEUED_BYTES: usize = 192;
/// The number of locks that the queues are spread over.
const PARTS: usize = 256;
const DISMISSED: Failure = Failure::new(
    &"UNBLOCKED force unblock from blocking operation, instance state changed (master -> replica?)",
);
const UNBLOCKED: Failure = Failure::new(&"UNBLOCKED client unblocked via CLIENT UNBLOCK");
