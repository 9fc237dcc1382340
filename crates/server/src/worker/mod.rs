//! A worker: one thread with its own driver and connections. It reads, parses, executes and
//! replies.
//!
//! `Worker::run` repeats the steps of `turn`. Between two waits for events the worker's flag of the
//! gate is set, so no other thread gets the gate; see `bobbin_store::gate`.

pub mod accept;
pub(crate) mod batch;
mod blocked;
#[cfg(test)]
mod driven;
mod durable;
mod ending;
mod events;
pub(crate) mod executor;
mod fanout;
mod fed;
mod jobs;
pub(crate) mod limits;
pub mod listen;
mod orphans;
pub mod pool;
mod postponed;
mod posts;
mod push;
mod reading;
mod rebalance;
mod relief;
mod revoked;
mod schedule;
mod sealed;
mod send;
mod slab;
mod spans;
pub mod stack;
mod timer;
mod turn;
pub mod watchdog;

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;

use bobbin_io::{AnyDriver, Driver, Event};

pub use self::batch::Batch;
use self::blocked::Deadlines;
use self::durable::KeptBack;
use self::orphans::Orphan;
use self::postponed::Postponed;
use self::relief::Relief;
use self::schedule::Schedule;
use self::slab::Slab;
use self::spans::CommandSpan;
use self::stack::{SignalStack, show_batch};
use self::timer::Timer;
use crate::base::clock::ticks;
use crate::engine::buffers::output::{Arena, ReplyRange};
pub use crate::engine::client::connection::Connection;
use crate::engine::command::Data;
use crate::engine::log::Recorder;
use crate::engine::pubsub::Subscribers;
pub use crate::engine::server::mailbox::{Mailbox, Post};
use crate::engine::server::unsent::UnsentBytes;
use crate::engine::server::unserved::Unserved;
use crate::engine::server::{Server, WorkerHandle};
use crate::engine::tracking::Tracker;
use crate::persistence::aof::Aof;

/// Once a turn has written this many bytes of replies, it sends them before it executes more. So
/// the replies stay in the core's cache until the kernel has copied them, and no client waits long
/// for the first of them.
const REPLIES_MAX: usize = 256 * 1024;

/// Most fields are a step of the turn that has a file of its own.
pub struct Worker {
    server: &'static Server,
    aof: &'static Aof,
    handle: Arc<WorkerHandle>,
    driver: AnyDriver,
    connections: Slab,
    slots: SlotLists,
    postponed: Postponed,
    data: Data,
    events: Vec<Event>,
    batch: Batch,
    spans: Vec<CommandSpan>,
    /// The replies of the turn. The driver may read them until the next wait has returned.
    arena: Arena,
    workspace: sealed::Workspace,
    orphans: Vec<Orphan>,
    /// Connections that the worker has taken over, and may not have read from.
    adopted: Vec<Unserved>,
    /// When the waits of blocked clients end.
    deadlines: Deadlines,
    /// Replies that wait for the disk.
    kept_back: KeptBack,
    timer: Timer,
    schedule: Schedule,
    relief: Relief,
    lone: send::LoneClient,
    next: NextTurn,
    /// What the turn has passed to connections and the next turn finds sent.
    unsent: UnsentBytes,
    /// The number of workers was lowered: this worker gets no new connections, gives away its
    /// connections that do not listen, and ends when the last connection has gone.
    retiring: bool,
    stop: bool,
}

/// The slots of connections that a worker has to look at.
#[derive(Default)]
struct SlotLists {
    /// Connections that the turn has to send replies to, or to close.
    touched: Vec<u32>,
    /// Connections that had more output than their socket took.
    slow: BTreeSet<u32>,
    /// Connections with a large argument that arrives, or arrived lately.
    arriving: BTreeSet<u32>,
    /// Connections that have a feeder.
    fed: Vec<u32>,
    /// Connections with an unfinished job.
    jobs: Vec<u32>,
    /// Connections whose next commands wait until the turn's replies have been sent.
    deferred: VecDeque<u32>,
}

/// What a turn tells the next turn.
#[derive(Default)]
struct NextTurn {
    /// The next turn must not sleep: it has to send the rest of a reply, or to close a connection
    /// whose last bytes are out.
    sleepless: bool,
    /// The turn executed commands, and their replies leave with the next wait. So the next turn
    /// does the long work and gives way to other threads. This is never set twice in a row.
    puts_off: bool,
    /// The turn sends a reply that is so large that later turns send the rest.
    sends_long: bool,
    /// Every job waits for something slow: the end of a pause, or a disk.
    is_parked: bool,
}

impl Worker {
    /// Makes the worker of the calling thread. The caller then adds its handle to
    /// `Server::workers`. `None`: there are too many threads.
    pub fn new(server: &'static Server, id: usize, driver: AnyDriver) -> Option<Self> {
        let commands = server.registry.all().len();
        let handle = Arc::new(WorkerHandle::new(id, driver.waker(), driver.name(), commands));
        let seed = server.clock.now_ms() as u64 ^ ticks() ^ (id as u64) << 56;
        let mut data = Data::new(&server.keyspace, &server.gate, seed)?;
        data.audience.subscribers =
            Some(Box::new(Subscribers::new(&server.pubsub, Arc::clone(&handle))));
        data.audience.tracker = Some(Box::new(Tracker::new(server)));
        data.recorder = Recorder::new(server.log.lane());
        Some(Self {
            server,
            aof: Aof::of(server),
            handle,
            driver,
            connections: Slab::default(),
            slots: SlotLists::default(),
            postponed: Postponed::default(),
            data,
            batch: Batch::default(),
            spans: Vec::new(),
            arena: Arena::default(),
            workspace: sealed::Workspace::default(),
            orphans: Vec::new(),
            adopted: Vec::new(),
            deadlines: Deadlines::default(),
            kept_back: KeptBack::default(),
            events: Vec::new(),
            timer: Timer::default(),
            schedule: Schedule::default(),
            relief: Relief::default(),
            lone: send::LoneClient::default(),
            next: NextTurn::default(),
            unsent: UnsentBytes::default(),
            retiring: false,
            stop: false,
        })
    }

    pub fn handle(&self) -> &Arc<WorkerHandle> {
        &self.handle
    }

    /// Takes turns until the worker is told to stop, or has retired and may end.
    pub fn run(mut self) {
        self.handle.watch.begin();
        let signal_stack = SignalStack::install();
        // SAFETY: the worker stays where it is until it is dropped at the end of this function.
        unsafe { show_batch(&raw const self.batch) };
        self.schedule.fit(self.server);
        while !(self.stop || self.retiring && self.may_end()) {
            self.turn();
        }
        if self.stop {
            self.keep_sockets();
            self.finish();
            self.server.workers.close(&self.handle);
        }
        // SAFETY: with null, no signal handler reads the batch any more.
        unsafe { show_batch(std::ptr::null()) };
        drop(signal_stack);
    }

    /// Whether a retiring worker has nothing left to do.
    fn may_end(&self) -> bool {
        self.connections.is_empty()
            && !self.has_jobs()
            && !self.has_posts()
            && self.server.workers.may_end(&self.handle)
    }

    /// Whether posts were taken from the mailbox and not handled yet.
    fn has_posts(&self) -> bool {
        self.data.audience.subscribers.as_ref().is_some_and(|subscribers| subscribers.has_more())
    }
}

/// Lists a connection among those that the turn looks at before it ends.
fn touch(touched: &mut Vec<u32>, connection: &mut Connection) {
    if !connection.touched {
        connection.touched = true;
        touched.push(connection.token.slot());
    }
}

/// Adds bytes that arrived to the statistics.
fn arrived(handle: &WorkerHandle, connection: &Connection, len: usize) {
    connection.client.info.net_input_bytes.add(len as u64);
    handle.stats.totals.net_input_bytes.add(len as u64);
    handle.stats.totals.reads_processed.add(1);
}
