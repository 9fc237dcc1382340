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
pub(crate) mod execution;
mod fanout;
mod jobs;
pub(crate) mod limits;
pub mod listen;
pub mod pool;
mod postponed;
mod push;
mod reading;
mod relief;
mod revoked;
mod schedule;
mod sealed;
mod slab;
pub mod stack;
mod timer;
mod turn;
pub mod watchdog;

use std::collections::VecDeque;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use bobbin_io::{AnyDriver, Driver, Event, Received, Token, receive_into, receive_split};
use bobbin_resp::{Limits, Parser};

pub use self::batch::Batch;
use self::batch::Found;
use self::blocked::Deadlines;
use self::durable::Held;
use self::execution::Executor;
use self::limits::{ReplyLimit, is_queue_too_long};
use self::relief::Relief;
use self::schedule::Schedule;
use self::slab::Slab;
use self::stack::{SignalStack, show_batch};
use self::timer::Timer;
use crate::base::clock::ticks;
use crate::engine::client;
use crate::engine::client::ClientInfo;
pub use crate::engine::client::connection::Connection;
use crate::engine::client::connection::Reading;
use crate::engine::client::connection::input::Input;
use crate::engine::client::connection::large::Outside;
use crate::engine::client::connection::output::{Arena, Range, Sending};
use crate::engine::command::job::Orphans;
pub use crate::engine::command::job::{Account, Job, Slice};
use crate::engine::command::{Data, transaction};
use crate::engine::lazyfree;
use crate::engine::log::Recorder;
use crate::engine::pubsub::Subscribers;
pub use crate::engine::server::mailbox::{Mailbox, Post};
use crate::engine::server::{Server, WorkerHandle};
use crate::engine::tracking::{self, Tracker};
use crate::persistence::aof::Aof;

/// An argument of which at least this much is missing is received straight into the connection's
/// own buffer.
const DIRECT_MIN: usize = 64 * 1024;
/// Bytes that are received directly although no large argument is missing any.
const STRAY_MAX: usize = 16 * 1024;
/// Most bytes that one such receive takes: a turn stays short.
const DIRECT_RECEIVE_MAX: usize = 1024 * 1024;
/// A turn that has this many bytes of replies executes nothing more before they are sent. So they
/// stay in the core's cache until the kernel has copied them, and no client waits long for the
/// first.
const REPLIES_MAX: usize = 256 * 1024;

/// One thread that serves clients.
pub struct Worker {
    server: &'static Server,
    aof: &'static Aof,
    handle: Arc<WorkerHandle>,
    driver: AnyDriver,
    connections: Slab,
    data: Data,
    batch: Batch,
    spans: Vec<Span>,
    /// The replies of the turn. Sends refer to it until the next wait has returned.
    arena: Arena,
    /// Slots of connections with replies, or an end, to see to.
    touched: Vec<u32>,
    workspace: sealed::Workspace,
    /// Slots of connections that had more output than their socket took.
    slow: Vec<u32>,
    /// Slots of connections with a large argument that arrives, or did lately.
    arriving: Vec<u32>,
    /// Slots of connections whose job is at work.
    jobs: Vec<u32>,
    orphans: Orphans,
    /// All jobs wait for something, a pause or a disk, that takes its time.
    is_parked: bool,
    /// Slots of connections that a pause put off.
    postponed: Vec<u32>,
    /// Those of the connections that were put off that wait for a script.
    wait_for_script: Vec<u32>,
    /// `Scripts::turns` at the beginning of this turn.
    script_turns: u64,
    /// Connections whose commands wait until the replies of a turn have been sent, by slot.
    deferred: VecDeque<u32>,
    /// The turn sends a reply so large that later ones go on with it.
    sends_long: bool,
    /// Of blocked clients.
    deadlines: Deadlines,
    /// Replies that wait for the disk.
    held: Held,
    events: Vec<Event>,
    timer: Timer,
    schedule: Schedule,
    relief: Relief,
    /// The next turn has something to do, whatever arrives: the rest of a reply must be sent, or a
    /// connection ends once its last bytes are out.
    sleepless: bool,
    /// Commands were executed whose answers the next wait sends. So long work, and giving the core
    /// away, is left to the next turn, but not twice in a row.
    puts_off: bool,
    /// This worker gets no connections any more, gives away those that do not listen, and ends when
    /// the last has gone.
    retiring: bool,
    stop: bool,
}

/// The commands that one connection's bytes held.
struct Span {
    slot: u32,
    found: Found,
    /// The connection's own buffer; else the driver's memory.
    own: bool,
    start: *const u8,
    len: usize,
    /// Arguments of the first command that are not among those bytes.
    large: Vec<Outside>,
}

impl Worker {
    /// Makes the worker of the calling thread; its handle must then be listed. `None`: too many
    /// threads.
    pub fn new(server: &'static Server, id: usize, driver: AnyDriver) -> Option<Self> {
        let commands = server.registry.all().len();
        let handle = Arc::new(WorkerHandle::new(id, driver.waker(), driver.name(), commands));
        let seed = server.clock.now_ms() as u64 ^ ticks() ^ (id as u64) << 56;
        let mut data = Data::new(&server.keyspace, &server.gate, seed)?;
        data.subscribers = Some(Box::new(Subscribers::new(&server.pubsub, Arc::clone(&handle))));
        data.tracker = Some(Box::new(Tracker::new(server)));
        data.recorder = Recorder::new(server.log.lane());
        Some(Self {
            server,
            aof: Aof::of(server),
            handle,
            driver,
            connections: Slab::default(),
            data,
            batch: Batch::default(),
            spans: Vec::new(),
            arena: Arena::default(),
            touched: Vec::new(),
            workspace: sealed::Workspace::default(),
            slow: Vec::new(),
            arriving: Vec::new(),
            jobs: Vec::new(),
            orphans: Orphans::default(),
            is_parked: false,
            postponed: Vec::new(),
            wait_for_script: Vec::new(),
            script_turns: 0,
            deferred: VecDeque::new(),
            sends_long: false,
            deadlines: Deadlines::default(),
            held: Held::default(),
            events: Vec::new(),
            timer: Timer::default(),
            schedule: Schedule::default(),
            relief: Relief::default(),
            sleepless: false,
            puts_off: false,
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
        self.data.subscribers.as_ref().is_some_and(|subscribers| subscribers.has_more())
    }

    // What became of the sends of the last turn.

    fn take_sent(&mut self, events: &[Event]) {
        for event in events {
            if let Event::Sent { token, result } = event {
                self.sent(*token, *result);
            }
        }
    }

    fn sent(&mut self, token: Token, result: Result<usize, rustix::io::Errno>) {
        let Some(connection) = self.connections.find(token) else { return };
        let sending = std::mem::take(&mut connection.output.sending);
        let Ok(sent) = result else {
            self.close(token.slot());
            return;
        };
        if connection.tls.is_some() {
            self.sent_sealed(token.slot(), sending, sent);
            return;
        }
        connection.client.info.net_output_bytes.add(sent as u64);
        self.handle.stats.totals.net_output_bytes.add(sent as u64);
        self.handle.stats.totals.writes_processed.add(1);
        match sending {
            Sending::Nothing | Sending::Sealed(_) => {}
            Sending::Arena(range) if sent < self.arena.len_of(range) => {
                connection.output.push_replies(&self.arena, range, sent);
                connection.output.free();
            }
            Sending::Arena(_) => {}
            Sending::Pending => {
                connection.output.advance(sent);
                if connection.output.is_empty() {
                    connection.client.info.output_bytes.store(0, Ordering::Relaxed);
                }
            }
        }
        if connection.output.is_free() {
            if sent == connection.output.offered {
                touch(&mut self.touched, connection);
            } else {
                self.wait_for_room(token.slot());
            }
        } else if connection.closing && connection.output.is_empty() {
            self.close(token.slot());
        }
    }

    /// A socket did not take all it was offered.
    fn wait_for_room(&mut self, slot: u32) {
        let Some(connection) = self.connections.at(slot) else { return };
        connection.output.blocked = true;
        if !self.slow.contains(&slot) {
            self.slow.push(slot);
        }
        self.driver.notify_writable(connection.token, connection.socket.as_fd());
        self.check_output(slot);
    }

    // Events.

    fn take_event(&mut self, event: Event) {
        match event {
            Event::Data { token, mut bytes } => {
                // SAFETY: the driver keeps them until the next wait, and the batch is cleared
                // before. Nobody else has a slice of them.
                let bytes = unsafe { bytes.as_mut_slice() };
                match self.connections.find(token) {
                    Some(connection) if connection.tls.is_some() => self.open(token, bytes),
                    _ => self.opened(token, bytes),
                }
            }
            Event::Readable { token } => self.receive(token),
            Event::Closed { token, .. } => {
                // Its commands come before its end.
                self.execute();
                let Some(connection) = self.connections.find(token) else { return };
                if connection.deferred {
                    // Others have their turns between them. Nobody reads the replies.
                    connection.ended = true;
                    connection.client.discard = true;
                    connection.replies = None;
                    connection.output.clear();
                } else {
                    self.close(token.slot());
                }
            }
            Event::Writable { token } => {
                if let Some(connection) = self.connections.find(token) {
                    connection.output.blocked = false;
                    touch(&mut self.touched, connection);
                }
            }
            Event::Detached { token } => self.detached(token),
            Event::Sent { .. } | Event::Woken => {}
        }
    }

    /// Bytes arrived, and TLS if there is any has seen to them.
    fn opened(&mut self, token: Token, bytes: &[u8]) {
        let Some(connection) = self.connections.find(token) else { return };
        arrived(self.server, &self.handle, connection, bytes.len());
        self.execute_before_growth(token);
        let Some(connection) = self.connections.find(token) else { return };
        if connection.closing {
            // It is sent its last replies, and nothing is executed any more.
            return;
        }
        if is_queue_too_long(self.server, connection, bytes.len()) {
            self.close_for_input(token.slot());
            return;
        }
        if connection.large.is_arriving() {
            let taken = connection.large.feed(bytes);
            connection.input.push(&bytes[taken..]);
            self.received_own(token.slot());
        } else if connection.input.is_empty() && !connection.is_busy() {
            self.parse(token.slot(), bytes.as_ptr(), bytes.len(), false);
        } else if connection.is_busy() {
            connection.input.push(bytes);
            touch(&mut self.touched, connection);
            self.fit_reading(token.slot());
            self.check_input(token.slot());
        } else {
            connection.input.push(bytes);
            self.parse_own(token.slot());
        }
    }

    /// Executes what was parsed of a connection before its buffer, where that may be, grows.
    fn execute_before_growth(&mut self, token: Token) {
        let Some(connection) = self.connections.find(token) else { return };
        if connection.touched && self.spans.iter().any(|span| span.slot == token.slot()) {
            self.execute();
        }
    }

    /// Receives a large argument into a buffer of its own.
    fn receive(&mut self, token: Token) {
        self.execute_before_growth(token);
        let Some(connection) = self.connections.find(token) else { return };
        let missing = connection.large.wanted();
        let (socket, input) = (connection.socket.as_fd(), connection.input.whole());
        let received = match connection.large.buffer() {
            Some(buffer) => receive_split(socket, buffer, missing, DIRECT_RECEIVE_MAX, input),
            // The argument was completed by what the driver had received.
            None => receive_into(socket, input, STRAY_MAX),
        };
        match received {
            Ok(Received::Bytes(len)) => {
                connection.large.finish();
                arrived(self.server, &self.handle, connection, len);
                self.received_own(token.slot());
            }
            Ok(Received::WouldBlock) => {}
            Ok(Received::End) | Err(_) => self.close(token.slot()),
        }
    }

    /// `len` bytes of a large argument arrived over TLS.
    fn fed(&mut self, token: Token, len: usize) {
        let Some(connection) = self.connections.find(token) else { return };
        arrived(self.server, &self.handle, connection, len);
        self.received_own(token.slot());
    }

    /// Bytes of a large argument were received.
    fn received_own(&mut self, slot: u32) {
        let Some(connection) = self.connections.at(slot) else { return };
        touch(&mut self.touched, connection);
        if is_queue_too_long(self.server, connection, connection.unparsed_len()) {
            self.close_for_input(slot);
        } else if self.check_input(slot) {
            self.parse_own(slot);
        }
    }

    // Parsing.

    fn parse_own(&mut self, slot: u32) {
        let Some(connection) = self.connections.at(slot) else { return };
        let nothing = connection.input.is_empty() || connection.large.is_arriving();
        if connection.is_busy() || nothing {
            return;
        }
        let input = connection.input.as_slice();
        let (start, len) = (input.as_ptr(), input.len());
        self.parse(slot, start, len, true);
    }

    fn parse(&mut self, slot: u32, start: *const u8, len: usize, own: bool) {
        let Some(connection) = self.connections.at(slot) else { return };
        let bulk_len_max = self.server.config.proto_max_bulk_len() as usize;
        let limits = if limits::is_known(self.server, connection) {
            Limits::new(bulk_len_max)
        } else {
            Limits::unauthenticated(bulk_len_max)
        };
        // SAFETY: the bytes are the driver's, which keeps them until the next wait, or the
        // connection's own, which change only in `settle`, after the batch was cleared. Large
        // arguments are not changed while somebody shares them, and the span does until then.
        let found = unsafe {
            let input = std::slice::from_raw_parts(start, len);
            let (registry, keyspace) = (&self.server.registry, &self.server.keyspace);
            let (parser, outside) = (&mut connection.parser, connection.large.complete());
            self.batch.parse(input, parser, &limits, registry, keyspace, outside)
        };
        touch(&mut self.touched, connection);
        let complete = !found.commands.is_empty();
        let large = if complete { connection.large.take() } else { Vec::new() };
        self.spans.push(Span { slot, found, own, start, len, large });
    }

    // Execution.

    /// Executes the batch, and puts what is left of each connection's bytes aside.
    fn execute(&mut self) {
        if self.spans.is_empty() {
            return;
        }
        let mut spans = std::mem::take(&mut self.spans);
        let mut clock = ticks();
        for span in &mut spans {
            self.execute_span(span, &mut clock);
        }
        self.batch.clear();
        for span in spans.drain(..) {
            self.settle(span);
        }
        self.spans = spans;
    }

    fn execute_span(&mut self, span: &mut Span, clock: &mut u64) {
        let Some(connection) = self.connections.at(span.slot) else { return };
        if connection.client.info.kill.load(Ordering::Relaxed) {
            return;
        }
        if self.held.is_too_much(connection) {
            // It goes on once the disk has what its replies tell of.
            connection.client.postpone(true);
            connection.parser = Parser::default();
            span.found.halt_at(0);
            self.postponed.push(span.slot);
            return;
        }
        self.handle.watch.serve(connection.client.info.id);
        self.relief.note_active(span.slot);
        let start = self.arena.bytes.len();
        let reply_limit = ReplyLimit::new(self.server, connection, &self.arena);
        if !span.large.is_empty() {
            self.data.offer(span.large.iter().map(|outside| &outside.bytes));
        }
        let mut executor = Executor {
            server: self.server,
            aof: self.aof,
            data: &mut self.data,
            stats: &self.handle.stats,
            arena: &mut self.arena,
            replies_max: REPLIES_MAX,
            clock,
        };
        let done = executor.run(&mut connection.client, &self.batch, &span.found, &reply_limit);
        if done.overflowed {
            limits::drop_replies(self.server, &self.handle, connection, self.data.now_ms);
            self.arena.truncate(start);
        }
        if connection.client.waits_for_script {
            self.wait_for_script.push(span.slot);
            self.server.scripts.note_waiter();
        } else if connection.client.is_postponed() {
            self.postponed.push(span.slot);
        }
        if done.deferred || span.found.is_cut && !done.halted {
            connection.deferred = true;
            self.deferred.push_back(span.slot);
        }
        let blocked = connection.client.blocked.is_some();
        if done.halted {
            // What follows is parsed again when its time comes.
            connection.parser = Parser::default();
            span.found.halt_at(done.end);
        }
        if !span.large.is_empty() {
            self.data.offer(std::iter::empty());
        }
        if let Some(error) = span.found.error {
            error.append_reply(&mut self.arena.bytes);
            connection.client.close();
        }
        connection.client.info.commands.add(done.answered);
        self.handle.stats.totals.commands.add(done.executed);
        if connection.client.job.is_some() {
            self.jobs.push(span.slot);
        }
        connection.closing |= connection.client.is_closing();
        if connection.client.discard {
            self.arena.truncate(start);
        }
        let end = self.arena.bytes.len();
        if end > start {
            let range = Range { start, end };
            connection.add_replies(&self.arena, range);
            if !done.tells {
                self.held.note_telling_nothing(span.slot, range);
            }
        }
        if blocked {
            self.blocked(span.slot);
        }
    }

    /// Keeps the bytes that were not executed. The batch is clear.
    fn settle(&mut self, span: Span) {
        let Some(connection) = self.connections.at(span.slot) else { return };
        let consumed = span.found.consumed;
        if connection.closing {
            connection.input = Input::default();
            return;
        }
        if consumed == 0 && !span.large.is_empty() {
            connection.put_back(&span.large);
        }
        if span.own {
            connection.input.take(consumed);
        } else if consumed < span.len {
            // SAFETY: these are the driver's bytes, which last until the next wait.
            let rest = unsafe {
                std::slice::from_raw_parts(span.start.add(consumed), span.len - consumed)
            };
            connection.input.push(rest);
        }
        let mut wanted = if connection.is_busy() { 0 } else { span.found.wanted };
        if wanted > 0 && connection.parser.large().is_some() {
            connection.begin_large();
            wanted = connection.large.wanted();
            if wanted > 0 && !self.arriving.contains(&span.slot) {
                self.arriving.push(span.slot);
            }
        }
        // Where one large argument came from there may be more, and changing the way has its price.
        let large = !span.large.is_empty() || connection.large.memory() > 0;
        let stay = large && connection.reading == Reading::Direct;
        let direct = (stay || wanted >= DIRECT_MIN) && connection.tls.is_none();
        self.read_by(span.slot, if direct { Reading::Direct } else { Reading::Data });
        self.fit_reading(span.slot);
        self.check_input(span.slot);
    }

    // Posts.

    /// Sees to a post, the worker's how-many-eth it is; returns how often a message was handed out.
    fn take_post(&mut self, number: u64, post: Post) -> usize {
        match post {
            Post::Adopt(connection) => self.adopt(connection),
            Post::Kill(info) => self.kill(&info),
            Post::Push { to, push } => self.push(to, push),
            Post::Message(message) => return self.fan_out(number, &message),
            Post::Unblock(info) => self.unblock(&info),
            Post::Revoked(users) => self.end_listeners(&users),
            Post::Resume | Post::Durable => {}
            Post::Rebalance => self.rebalance(),
            Post::Stop => self.stop = true,
        }
        0
    }

    fn adopt(&mut self, connection: Box<Connection>) {
        let slot = self.connections.insert(connection, self.handle.id);
        let Some(connection) = self.connections.at(slot) else { return };
        // SAFETY: the socket is closed by dropping the connection, and `close` removes it first.
        let added = unsafe { self.driver.add(connection.token, connection.socket.as_fd()) };
        connection.reading = Reading::Data;
        if let Err(error) = added {
            log::warn!("Cannot watch a new connection: {error}");
            self.close(slot);
            return;
        }
        if connection.client.info.kill.load(Ordering::Relaxed) {
            // Killed on its way here.
            self.close(slot);
            return;
        }
        if connection.large.is_arriving() {
            self.arriving.push(slot);
        }
        touch(&mut self.touched, connection);
        self.workspace.watch(connection);
        connection.client.postpone(false);
        self.adopted_blocked(slot);
        self.adopted_held(slot);
        if self.retiring {
            self.give_away(slot);
            return;
        }
        self.parse_own(slot);
        self.execute();
    }

    /// Serves the connections whose commands had to wait because the turn before had replied
    /// enough: as many as this one has room for, first come first served.
    fn resume_deferred(&mut self) {
        if self.deferred.is_empty() {
            return;
        }
        let alone = self.goes_on_alone();
        for _ in 0..self.deferred.len() {
            if self.arena.bytes.len() >= REPLIES_MAX {
                return;
            }
            let Some(slot) = self.deferred.pop_front() else { return };
            let Some(connection) = self.connections.at(slot) else { continue };
            if alone.is_some_and(|alone| alone != slot) && connection.output_memory() > 0 {
                self.deferred.push_back(slot);
                continue;
            }
            if std::mem::take(&mut connection.deferred) {
                self.parse_own(slot);
                self.execute();
                self.fit_reading(slot);
                self.end_if_done(slot);
            }
        }
    }

    /// Ends a connection from which nothing more comes, once none of its commands wait for their
    /// turn.
    fn end_if_done(&mut self, slot: u32) {
        let Some(connection) = self.connections.at(slot) else { return };
        if !connection.ended || connection.deferred {
            return;
        }
        if connection.client.discard {
            self.close(slot);
        } else {
            connection.closing = true;
            touch(&mut self.touched, connection);
        }
    }

    fn kill(&mut self, info: &Arc<ClientInfo>) {
        let token = *info.token.lock();
        match self.connections.find(token) {
            Some(connection) if connection.client.info.id == info.id => self.close(token.slot()),
            _ if info.gone.load(Ordering::Acquire) => {}
            // It has moved.
            _ => client::kill(self.server, info),
        }
    }

    /// Ends a connection at once.
    fn close(&mut self, slot: u32) {
        let Some(connection) = self.connections.at(slot) else { return };
        self.driver.remove(connection.token, connection.socket.as_fd());
        let Some(mut connection) = self.connections.remove(slot) else { return };
        sealed::say_goodbye(&mut connection);
        self.handle.connections.fetch_sub(1, Ordering::Relaxed);
        self.data.release();
        transaction::forget(&mut connection.client, &mut self.data);
        let mut job = connection.client.job.take();
        if let Some(mut job) = job.take_if(|job| !job.outlives_client()) {
            job.abandon(self.server, &mut self.data);
            lazyfree::free_job(job);
        }
        if let Some(waiter) = connection.client.blocked.take() {
            self.deadlines.forget(waiter.deadline_ms, connection.token);
            waiter.unlink(self.server, &mut self.data);
        }
        if let Some(subscribers) = &mut self.data.subscribers {
            subscribers.forget(&mut connection.client);
        }
        tracking::disable(self.server, &mut connection.client);
        self.server.forget_client(&connection.client.info);
        self.server.uncount_client_memory(&connection.client.info);
        self.jobs.retain(|&job| job != slot);
        if let Some(job) = job {
            self.orphans.adopt(job, connection.client);
        }
    }

    // Connections on their way to other workers.

    /// The number of workers that serve has changed, or somebody else wants the connections shared
    /// out anew.
    fn rebalance(&mut self) {
        self.schedule.fit(self.server);
        self.retiring = !self.server.workers.serves(self.handle.id);
        self.give_excess_away();
    }

    /// Gives away the connections that are more than this worker's share, as far as they may go.
    fn give_excess_away(&mut self) {
        let crowd = self.server.config.connections_per_io_thread() as usize;
        let share = self.server.workers.share(self.handle.id, self.server.clients.len(), crowd);
        let used = self.connections.used();
        let mut excess = used.len().saturating_sub(share);
        for slot in used.into_iter().rev() {
            if excess > 0 && self.give_away(slot) {
                excess -= 1;
            }
        }
    }

    /// Has a connection leave for another worker, if it may go; whether it does.
    fn give_away(&mut self, slot: u32) -> bool {
        let Some(connection) = self.connections.at(slot) else { return false };
        let goes = connection.may_move();
        if goes {
            connection.moving = true;
            self.driver.detach(connection.token, connection.socket.as_fd());
        }
        goes
    }

    /// The driver has let go: the connection goes, with all that it has.
    fn detached(&mut self, token: Token) {
        if self.connections.find(token).is_none() {
            return;
        }
        let Some(mut connection) = self.connections.remove(token.slot()) else { return };
        debug_assert!(!connection.client.listens(), "it cannot have begun while it was leaving");
        self.handle.connections.fetch_sub(1, Ordering::Relaxed);
        if let Some(waiter) = &connection.client.blocked {
            self.deadlines.forget(waiter.deadline_ms, token);
        }
        connection.moving = false;
        connection.deferred = false;
        connection.touched = false;
        connection.output.blocked = false;
        accept::hand_over(self.server, connection);
    }

    // Sending.

    fn flush(&mut self) {
        let mut touched = std::mem::take(&mut self.touched);
        for slot in touched.drain(..) {
            let Some(connection) = self.connections.at(slot) else { continue };
            connection.touched = false;
            connection.client.info.last_ms.store(self.data.now_ms, Ordering::Relaxed);
            if !connection.output.is_empty()
                && let Some(range) = connection.replies.take()
            {
                connection.output.push_replies(&self.arena, range, 0);
            }
            if !self.check_output(slot) {
                continue;
            }
            let Some(connection) = self.connections.at(slot) else { continue };
            if connection.tls.is_some() {
                self.workspace.add(slot);
                continue;
            }
            let (output, replies) = (&mut connection.output, connection.replies.take());
            let (token, socket) = (connection.token, connection.socket.as_fd());
            let mut has_more = false;
            output.free();
            if output.is_empty() && output.sending == Sending::Nothing {
                if let Some(range) = replies {
                    output.sending = Sending::Arena(range);
                    // SAFETY: the arena is not changed before the next wait has returned.
                    let offered =
                        unsafe { self.arena.send(range, &mut self.driver, token, socket) };
                    output.offered = offered.len;
                    has_more = !offered.is_all;
                }
            } else if !output.blocked && output.sending == Sending::Nothing && output.is_free() {
                output.sending = Sending::Pending;
                // SAFETY: `advance` and `clear` are called after the next wait has returned.
                let offered = unsafe { output.send(&mut self.driver, token, socket) };
                output.offered = offered.len;
                has_more = !offered.is_all;
            }
            self.sends_long |= has_more;
            // What is left comes next: do not sleep before.
            self.sleepless |= has_more;
            if connection.closing {
                if output.is_empty() && output.sending == Sending::Nothing {
                    self.close(slot);
                } else if output.held() == 0 {
                    self.sleepless = true;
                }
            }
        }
        self.touched = touched;
        self.flush_sealed();
    }

    /// Adds what the turn's commands did to the statistics.
    fn collect(&mut self) {
        let counters = std::mem::take(&mut self.data.counters);
        let totals = &self.handle.stats.totals;
        totals.keyspace_hits.add(counters.hits);
        totals.keyspace_misses.add(counters.misses);
        totals.expired_keys.add(counters.expired);
        totals.expired_fields.add(counters.expired_fields);
        totals.evicted_keys.add(counters.evicted);
        totals.dirty.add(counters.dirty);
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
fn arrived(server: &Server, handle: &WorkerHandle, connection: &Connection, len: usize) {
    let _ = server;
    connection.client.info.net_input_bytes.add(len as u64);
    handle.stats.totals.net_input_bytes.add(len as u64);
    handle.stats.totals.reads_processed.add(1);
}
