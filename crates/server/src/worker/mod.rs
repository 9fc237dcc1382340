//! A worker: one thread with its own driver and connections, which reads, parses, executes and
//! replies.
//!
//! Its life is a loop over the steps of `turn`. Everything between two waits happens with the
//! worker's flag of the gate set; see `bobbin_store::gate`.

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
pub use crate::engine::command::job::{Account, Job, Slice};
use crate::engine::log::Recorder;
use crate::engine::pubsub::Subscribers;
pub use crate::engine::server::mailbox::{Mailbox, Post};
use crate::engine::server::{Server, WorkerHandle};
use crate::engine::tracking::Tracker;
use crate::persistence::aof::Aof;

/// A turn that has this many bytes of replies executes nothing more before they are sent. So they
/// stay in the core's cache until the kernel has copied them, and no client waits long for the
/// first.
const REPLIES_MAX: usize = 256 * 1024;

/// One thread that serves clients.
///
/// It has many fields, as most are a part of the turn with a file of its own.
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
    /// The replies of the turn. Sends refer to it until the next wait has returned.
    arena: Arena,
    workspace: sealed::Workspace,
    orphans: Vec<Orphan>,
    /// Of blocked clients.
    deadlines: Deadlines,
    /// Replies that wait for the disk.
    kept_back: KeptBack,
    timer: Timer,
    schedule: Schedule,
    relief: Relief,
    next: NextTurn,
    /// This worker gets no connections any more, gives away those that do not listen, and ends when
    /// the last has gone.
    retiring: bool,
    stop: bool,
}

/// Which connections a worker has to look at, by slot.
#[derive(Default)]
struct SlotLists {
    /// Those with replies, or an end, to see to in this turn.
    touched: Vec<u32>,
    /// Those that had more output than their socket took.
    slow: BTreeSet<u32>,
    /// Those with a large argument that arrives, or did lately.
    arriving: BTreeSet<u32>,
    /// Those that are fed.
    fed: Vec<u32>,
    /// Those whose job is at work.
    jobs: Vec<u32>,
    /// Those whose commands wait until the replies of a turn have been sent.
    deferred: VecDeque<u32>,
}

/// What a turn leaves to the next.
#[derive(Default)]
struct NextTurn {
    /// The next turn has something to do, whatever arrives: the rest of a reply must be sent, or a
    /// connection ends once its last bytes are out.
    sleepless: bool,
    /// Commands were executed whose answers the next wait sends. So long work, and giving the core
    /// away, is left to the next turn, but not twice in a row.
    puts_off: bool,
    /// The turn sends a reply so large that later ones go on with it.
    sends_long: bool,
    /// All jobs wait for something, a pause or a disk, that takes its time.
    is_parked: bool,
}

impl Worker {
    /// Makes the worker of the calling thread; its handle must then be listed. `None`: too many
    /// threads.
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
            deadlines: Deadlines::default(),
            kept_back: KeptBack::default(),
            events: Vec::new(),
            timer: Timer::default(),
            schedule: Schedule::default(),
            relief: Relief::default(),
            next: NextTurn::default(),
            retiring: false,
            stop: false,
        })
    }

    pub fn handle(&self) -> &Arc<WorkerHandle> {
        &self.handle
    }

    /// Works until it is told to stop.
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
        // SAFETY: there is no batch any more.
        unsafe { show_batch(std::ptr::null()) };
        drop(signal_stack);
    }

    /// Whether nothing is left to do, for a worker that does not serve any more.
    fn may_end(&self) -> bool {
        self.connections.is_empty()
            && !self.has_jobs()
            && !self.has_posts()
            && self.server.workers.may_end(&self.handle)
    }

    /// Whether posts that were taken from the mailbox are not seen to yet.
    fn has_posts(&self) -> bool {
        self.data.audience.subscribers.as_ref().is_some_and(|subscribers| subscribers.has_more())
    }
}

/// Lists a connection among those that the turn has to look at before it ends.
fn touch(touched: &mut Vec<u32>, connection: &mut Connection) {
    if !connection.touched {
        connection.touched = true;
        touched.push(connection.token.slot());
    }
}

/// Counts bytes that arrived.
fn arrived(handle: &WorkerHandle, connection: &Connection, len: usize) {
    connection.client.info.net_input_bytes.add(len as u64);
    handle.stats.totals.net_input_bytes.add(len as u64);
    handle.stats.totals.reads_processed.add(1);
}
