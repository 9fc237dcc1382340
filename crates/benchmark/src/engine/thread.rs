//! One thread of a load: its connections, its epoll and its clock.

use std::{collections::VecDeque, mem::MaybeUninit, ops::Range, os::fd::OwnedFd, time::Duration};

use bobbin_client::error_text;
use rustix::{
    event::epoll,
    io::Errno,
    time::{ClockId, Timespec, clock_gettime},
};

use super::{
    EngineError, LatencyHistogram, Limit, LoadRun, ServerNode,
    connection::{Flight, LoadConnection, Sent, Wire},
    latencies,
    record::{LATENCY_NS_MAX, ThreadRecord},
    redirection::RedirectionKind,
    replies::{Counted, ReplyKind},
    schedule::{SendSchedule, WakeTimer},
    shared::RunState,
};
use crate::workload::Written;

/// Drives every connection whose number is `index` modulo `threads`, until all is done or a thread
/// fails.
pub(super) fn drive(
    job: &LoadRun<'_>,
    index: usize,
    threads: usize,
    shared: &RunState,
) -> ThreadRecord {
    let result = Thread::new(job, index, threads, shared);
    let mut thread = match result {
        Ok(thread) => thread,
        Err(error) => {
            shared.fail(error);
            shared.connected.wait();
            return ThreadRecord::new(job.workload);
        }
    };
    if let Err(error) = thread.connect() {
        shared.fail(error);
    }
    shared.connected.wait();
    if !shared.is_stopped()
        && let Err(error) = thread.measure()
    {
        shared.fail(error);
    }
    thread.record
}

/// What there is to send of a load, over all threads.
#[derive(Clone, Copy)]
enum Budget {
    Requests(u64),
    /// Of requests that differ in how many commands they have.
    Commands(u64),
}

impl Budget {
    fn of(job: &LoadRun<'_>) -> Self {
        match (job.limit, job.workload.commands_each()) {
            (Limit::Total(total), Some(each)) => Self::Requests(total.div_ceil(each.max(1))),
            (Limit::Total(total), None) => Self::Commands(total),
            (Limit::Each(_) | Limit::Time(_), _) => Self::Requests(u64::MAX),
        }
    }
}

/// One thread that sends and measures.
///
/// It has many fields, as what other loops pass along as arguments lies here.
struct Thread<'a> {
    job: &'a LoadRun<'a>,
    index: usize,
    threads: usize,
    shared: &'a RunState,
    epoll: OwnedFd,
    connections: Vec<LoadConnection>,
    buffer: Vec<u8>,
    /// What the buffer means, where it came over TLS.
    plain: Vec<u8>,
    record: ThreadRecord,
    budget: Budget,
    /// Indexes of requests that this thread may send.
    lease: Range<u64>,
    /// Requests sent in the warm-up, which have indexes of their own.
    uncounted: u64,
    schedule: Option<SendSchedule>,
    /// Connections that wait for the rate to let them send.
    ready: VecDeque<usize>,
    /// Connections of an open loop that got requests in this turn.
    touched: Vec<usize>,
    turn: usize,
    /// Connections that have something to do.
    active: usize,
    /// Requests without their replies, for an open loop.
    waiting: u64,
    counted: u64,
    deadline_ns: u64,
    is_measuring: bool,
    is_over: bool,
    interval: Option<LatencyHistogram>,
    asked: u64,
    /// The changes of the nodes that have been followed.
    nodes_changes: u64,
}

impl<'a> Thread<'a> {
    fn new(
        job: &'a LoadRun<'a>,
        index: usize,
        threads: usize,
        shared: &'a RunState,
    ) -> Result<Self, EngineError> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC).map_err(system)?;
        let nodes = shared.nodes();
        let mut connections = Vec::with_capacity(job.connections.div_ceil(threads));
        for number in (index..job.connections).step_by(threads) {
            let node = nodes[number % nodes.len()].clone();
            let wire = open(&node)?;
            watch(&epoll, &wire.socket, connections.len())?;
            let tags = node.tags.clone();
            let state = job.workload.state(number, job.connections, job.seed, tags);
            connections.push(LoadConnection::new(wire, node, state, job.greeting));
        }
        let share = connections.len() as f64 / job.connections.max(1) as f64;
        let schedule = SendSchedule::new(job.pace, share, job.seed.wrapping_add(index as u64));
        Ok(Self {
            job,
            index,
            threads,
            shared,
            epoll,
            active: connections.len(),
            connections,
            buffer: vec![0; BUFFER_LEN],
            plain: Vec::new(),
            record: ThreadRecord::new(job.workload),
            budget: Budget::of(job),
            lease: 0..0,
            uncounted: 0,
            schedule,
            ready: VecDeque::new(),
            touched: Vec::new(),
            turn: 0,
            waiting: 0,
            counted: 0,
            deadline_ns: u64::MAX,
            is_measuring: false,
            is_over: false,
            interval: shared.is_watched().then(latencies),
            asked: 0,
            nodes_changes: 0,
        })
    }

    /// Waits until all connections stand and were greeted.
    fn connect(&mut self) -> Result<(), EngineError> {
        let give_up_ns = self.shared.now_ns() + CONNECT_NS_MAX;
        while !self.connections.iter().all(LoadConnection::is_up) {
            if self.shared.is_stopped() {
                return Ok(());
            }
            if self.job.interrupt.is_raised() {
                return Err(EngineError::Interrupted);
            }
            if self.shared.now_ns() > give_up_ns {
                let late = self.connections.iter().find(|connection| !connection.is_up());
                let endpoint = &late.unwrap_or(&self.connections[0]).node.endpoint;
                return Err(EngineError::Connect(format!(
                    "Could not connect to server at {endpoint}: no answer"
                )));
            }
            self.turn(None)?;
        }
        Ok(())
    }

    fn measure(&mut self) -> Result<(), EngineError> {
        self.shared.start();
        let mut cpu_before = self.job.warm_up.is_zero().then(thread_cpu);
        let now = self.shared.now_ns();
        self.is_measuring = true;
        self.record.from_ns = now + nanoseconds(self.job.warm_up);
        if let Limit::Time(time) = self.job.limit {
            self.deadline_ns = self.record.from_ns + nanoseconds(time);
        }
        let timer = match &mut self.schedule {
            Some(schedule) => {
                schedule.start(now);
                let timer = WakeTimer::new().map_err(system)?;
                let data = epoll::EventData::new_u64(TIMER);
                let flags = epoll::EventFlags::IN | epoll::EventFlags::ET;
                epoll::add(&self.epoll, timer.file(), data, flags).map_err(system)?;
                Some(timer)
            }
            None => None,
        };
        for connection in &mut self.connections {
            if let Limit::Each(each) = self.job.limit {
                connection.left = each;
            }
            connection.until_reconnect = self.job.reconnect_after.unwrap_or(u64::MAX);
        }
        if !self.is_open() {
            for index in 0..self.connections.len() {
                self.next(index, now)?;
            }
        }
        while !self.is_over && !self.shared.is_stopped() {
            // What the warm-up took counts no more than its requests.
            if cpu_before.is_none() && self.shared.now_ns() >= self.record.from_ns {
                cpu_before = Some(thread_cpu());
            }
            if self.job.interrupt.is_raised() {
                self.record.is_interrupted = true;
                self.deadline_ns = self.deadline_ns.min(self.shared.now_ns());
            }
            self.release()?;
            if !self.is_open() && self.active == 0 {
                break;
            }
            self.turn(timer.as_ref())?;
            self.publish();
            if self.shared.now_ns() >= self.deadline_ns {
                self.end_of_time();
            }
        }
        if let Some(interval) = &self.interval {
            self.shared.give(interval);
        }
        self.count_unanswered();
        self.record.warm_up_requests = self.uncounted;
        if self.deadline_ns != u64::MAX && !self.is_open() {
            self.record.last_reply_ns = self.shared.now_ns().min(self.deadline_ns);
        }
        self.record.cpu = cpu_before.map_or(Duration::ZERO, |cpu| thread_cpu().saturating_sub(cpu));
        Ok(())
    }

    /// Waits for events once and serves them.
    fn turn(&mut self, timer: Option<&WakeTimer>) -> Result<(), EngineError> {
        let mut events = [MaybeUninit::<epoll::Event>::uninit(); EVENTS_MAX];
        let mut patience = WAIT_MAX;
        if let (Some(timer), Some(schedule)) = (timer, &self.schedule)
            && (self.is_open() || !self.ready.is_empty())
        {
            match schedule.next_ns().saturating_sub(self.shared.now_ns()) {
                0 => patience = Timespec { tv_sec: 0, tv_nsec: 0 },
                wait_ns => timer.arm(wait_ns).map_err(system)?,
            }
        }
        let (events, _) = match epoll::wait(&self.epoll, &mut events, Some(&patience)) {
            Ok(events) => events,
            Err(Errno::INTR) => return Ok(()),
            Err(error) => return Err(system(error)),
        };
        for event in events {
            let token = event.data.u64();
            if token == TIMER {
                continue;
            }
            let index = token as usize;
            let flags = event.flags;
            if flags.contains(epoll::EventFlags::OUT) {
                self.connections[index].is_connected |=
                    !flags.intersects(epoll::EventFlags::ERR | epoll::EventFlags::HUP);
                if self.connections[index].is_connected {
                    self.flush(index)?;
                }
            }
            if flags
                .intersects(epoll::EventFlags::IN | epoll::EventFlags::ERR | epoll::EventFlags::HUP)
            {
                self.receive(index)?;
            }
            if self.is_over {
                break;
            }
        }
        Ok(())
    }

    /// Reads once and counts the replies.
    #[inline]
    fn receive(&mut self, index: usize) -> Result<(), EngineError> {
        let socket = &self.connections[index].wire.socket;
        let len = match rustix::io::read(socket, &mut self.buffer) {
            Ok(0) => return Err(self.lost(index, "Server closed the connection")),
            Ok(len) => len,
            Err(Errno::AGAIN | Errno::INTR) => return Ok(()),
            Err(error) => return Err(self.broken(index, &error.into())),
        };
        if self.connections[index].wire.tls.is_some() && !self.decrypt(index, len)? {
            return Ok(());
        }
        let now = self.shared.now_ns();
        let is_late = now >= self.deadline_ns && !self.is_open();
        let wants_text = self.job.stop_on_error || self.record.first_error.is_none();
        let connection = &mut self.connections[index];
        let mut tally = Tally {
            record: &mut self.record,
            interval: self.interval.as_mut(),
            now,
            is_late,
            count: 0,
            current: (0, 0),
            counted: 0,
            waiting: 0,
        };
        let mut refused = None;
        let mut first_error = None;
        let mut is_unasked = false;
        let follows = self.job.topology.is_some();
        let mut is_redirected = false;
        let bytes = match connection.wire.tls {
            None => &self.buffer[..len],
            Some(_) => self.plain.as_slice(),
        };
        let (flights, greetings) = (&mut connection.flights, &mut connection.greetings);
        let was_waiting = !flights.is_empty();
        let fed = connection.counter.feed(bytes, |reply, text| {
            let kind = reply.kind;
            if kind == ReplyKind::Push {
                return;
            }
            if *greetings > 0 {
                *greetings -= 1;
                if kind == ReplyKind::Error {
                    refused.get_or_insert_with(|| String::from_utf8_lossy(text).into_owned());
                }
                return;
            }
            let Some(flight) = flights.front_mut() else {
                // Too many clients, say: the server tells that without being asked, and hangs up.
                match kind {
                    ReplyKind::Error => {
                        refused.get_or_insert_with(|| String::from_utf8_lossy(text).into_owned());
                    }
                    _ => is_unasked = true,
                }
                return;
            };
            let redirection = match kind {
                ReplyKind::Error if follows => RedirectionKind::of(text),
                _ => None,
            };
            is_redirected |= redirection.is_some();
            if kind == ReplyKind::Error
                && redirection.is_none()
                && wants_text
                && first_error.is_none()
            {
                first_error = Some(String::from_utf8_lossy(text).into_owned());
            }
            tally.reply(flight.class, flight.from_ns, reply, redirection);
            flight.replies -= 1;
            if flight.replies == 0 {
                flights.pop_front();
            }
        });
        tally.finish();
        let Tally { counted, waiting, .. } = tally;
        self.counted += counted;
        self.waiting = self.waiting.saturating_sub(waiting);
        fed.map_err(|error| EngineError::Protocol(format!("The server sent {error}")))?;
        if let Some(text) = refused {
            return Err(EngineError::Greeting(text));
        }
        if is_redirected {
            self.shared.doubt_nodes();
        }
        if is_unasked {
            return Err(EngineError::Protocol("The server sent a reply to nothing".into()));
        }
        if let Some(text) = first_error {
            if self.job.stop_on_error {
                return Err(EngineError::Reply(text));
            }
            self.record.first_error.get_or_insert(text);
        }
        if is_late {
            self.end_of_time();
        } else if self.is_measuring
            && was_waiting
            && self.connections[index].flights.is_empty()
            && self.connections[index].greetings == 0
            && !self.is_open()
        {
            self.next(index, now)?;
        }
        Ok(())
    }

    /// Fills `plain` with what the first `len` bytes of the buffer mean. Whether they mean
    /// anything: they may be TLS's own.
    fn decrypt(&mut self, index: usize, len: usize) -> Result<bool, EngineError> {
        self.plain.clear();
        let Some(tls) = &mut self.connections[index].wire.tls else { return Ok(false) };
        let received = tls.session.receive(&self.buffer[..len], &mut self.plain);
        let is_handshaking = tls.session.is_handshaking();
        let flushed = if tls.session.has_to_send() { self.flush(index) } else { Ok(()) };
        match received {
            Ok(true) if self.plain.is_empty() => {
                Err(self.lost(index, "Server closed the connection"))
            }
            Ok(_) => flushed.map(|()| !self.plain.is_empty()),
            Err(error) if is_handshaking => {
                Err(connect_error(&self.connections[index].node, &error))
            }
            Err(error) => Err(self.broken(index, &error)),
        }
    }

    /// A connection has all its replies: sends its next requests, or has it wait for the rate.
    #[inline]
    fn next(&mut self, index: usize, now: u64) -> Result<(), EngineError> {
        if self.schedule.is_some() {
            self.ready.push_back(index);
            return Ok(());
        }
        self.send(index, now).map(|_| ())
    }

    /// Sends a pipeline on a connection that waits for nothing. The number of requests is 0 when
    /// there are no more.
    fn send(&mut self, index: usize, now: u64) -> Result<u64, EngineError> {
        let connection = &self.connections[index];
        let is_used_up = connection.until_reconnect == 0;
        let before_reconnect = match is_used_up {
            true => self.job.reconnect_after.unwrap_or(u64::MAX),
            false => connection.until_reconnect,
        };
        let want = (self.job.pipeline as u64).min(connection.left).min(before_reconnect);
        let requests = self.take(index, want, now);
        let count = requests.end - requests.start;
        if count == 0 {
            self.active -= 1;
            return Ok(0);
        }
        if is_used_up {
            self.reopen(index)?;
        }
        let connection = &mut self.connections[index];
        if now >= self.record.from_ns {
            connection.left = connection.left.saturating_sub(count);
        }
        connection.until_reconnect -= count;
        let (flights, record) = (&mut connection.flights, &mut self.record);
        connection.end = self.job.workload.fill(
            &mut connection.state,
            requests.start,
            count as usize,
            &mut connection.output,
            |written| {
                note(flights, record, written, now);
            },
        );
        connection.sent = 0;
        self.flush(index)?;
        Ok(count)
    }

    /// Sends what the schedule says is due.
    fn release(&mut self) -> Result<(), EngineError> {
        let Some(schedule) = &mut self.schedule else { return Ok(()) };
        let now = self.shared.now_ns();
        if schedule.is_open() {
            return self.release_open(now);
        }
        while self.schedule.as_ref().is_some_and(|schedule| schedule.next_ns() <= now) {
            let Some(index) = self.ready.pop_front() else { break };
            let count = self.send(index, now)?;
            if let Some(schedule) = &mut self.schedule {
                schedule.advance(count);
            }
        }
        if let Some(schedule) = &mut self.schedule {
            schedule.forget_before(now);
        }
        Ok(())
    }

    /// Gives every request that is due to the next connection in turn, then writes.
    fn release_open(&mut self, now: u64) -> Result<(), EngineError> {
        for _ in 0..RELEASES_MAX {
            let Some(due) = self.schedule.as_ref().map(SendSchedule::next_ns) else { break };
            // What is due after the end is not waited for when the end has come.
            if due > now && now < self.deadline_ns || self.active == 0 {
                break;
            }
            let index = self.turn % self.connections.len();
            let requests = if due >= self.deadline_ns {
                0..0
            } else {
                self.take(index, self.job.pipeline as u64, due)
            };
            if requests.is_empty() {
                self.deadline_ns = self.deadline_ns.min(due);
                self.record.planned_ns = self.deadline_ns;
                self.active = 0;
                break;
            }
            if let Some(schedule) = &mut self.schedule {
                schedule.advance(requests.end - requests.start);
            }
            self.turn += 1;
            let connection = &mut self.connections[index];
            if connection.sent == connection.end {
                connection.output.clear();
                connection.sent = 0;
                self.touched.push(index);
            }
            for request in requests {
                let written = self.job.workload.append(
                    &mut connection.state,
                    request,
                    &mut connection.output,
                );
                self.waiting += u64::from(written.replies);
                note(&mut connection.flights, &mut self.record, written, due);
            }
            connection.end = connection.output.len();
        }
        while let Some(index) = self.touched.pop() {
            self.flush(index)?;
        }
        if self.waiting > WAITING_MAX {
            return Err(EngineError::Overload(format!(
                "The server does not keep up with this rate: {} requests wait for their replies",
                self.waiting
            )));
        }
        self.is_over |= self.active == 0 && self.waiting == 0;
        Ok(())
    }

    /// The indexes of up to `want` requests that the connection `index` may send at `now`.
    #[inline]
    fn take(&mut self, index: usize, want: u64, now: u64) -> Range<u64> {
        if now < self.record.from_ns {
            self.uncounted += want;
            return self.uncounted - want..self.uncounted;
        }
        let total = match self.budget {
            Budget::Requests(total) => total,
            Budget::Commands(total) => {
                let state = &mut self.connections[index].state;
                let drawn = self.job.workload.draw_ahead(state, want as usize);
                return self.shared.lease_commands(total, drawn);
            }
        };
        if self.lease.is_empty() {
            self.lease = self.shared.lease(total, self.job.pipeline as u64);
        }
        let start = self.lease.start;
        self.lease.start = self.lease.end.min(start + want);
        start..self.lease.start
    }

    #[inline]
    fn flush(&mut self, index: usize) -> Result<(), EngineError> {
        let connection = &mut self.connections[index];
        let wants_write = match connection.flush(self.job.greeting) {
            Ok(sent) => sent == Sent::Part,
            Err(error) => return Err(self.broken(index, &error)),
        };
        if wants_write != connection.watches_write {
            connection.watches_write = wants_write;
            let mut flags = epoll::EventFlags::IN;
            flags.set(epoll::EventFlags::OUT, wants_write);
            let data = epoll::EventData::new_u64(index as u64);
            epoll::modify(&self.epoll, &connection.wire.socket, data, flags).map_err(system)?;
        }
        Ok(())
    }

    /// Closes a connection that waits for nothing and opens it anew.
    fn reopen(&mut self, index: usize) -> Result<(), EngineError> {
        let connection = &mut self.connections[index];
        let wire = open(&connection.node)?;
        watch(&self.epoll, &wire.socket, index)?;
        connection.reopen(wire, self.job.greeting);
        connection.until_reconnect = self.job.reconnect_after.unwrap_or(u64::MAX);
        Ok(())
    }

    /// Tells the others how far this thread is.
    #[inline]
    fn publish(&mut self) {
        self.shared.publish(self.index, self.counted);
        if self.shared.nodes_changes() != self.nodes_changes {
            self.follow_nodes();
        }
        let Some(interval) = &mut self.interval else { return };
        let asked = self.shared.asked();
        if asked != self.asked {
            self.asked = asked;
            self.shared.give(interval);
            interval.reset();
        }
    }

    /// Sends keys to where their slots are now. A connection whose node is not there any more is
    /// opened anew before its next requests; an open loop never waits for that, and keeps it.
    fn follow_nodes(&mut self) {
        self.nodes_changes = self.shared.nodes_changes();
        let nodes = self.shared.nodes();
        if nodes.is_empty() {
            return;
        }
        let is_open = self.is_open();
        for (position, connection) in self.connections.iter_mut().enumerate() {
            let own = nodes.iter().find(|n| n.endpoint.is_same_place(&connection.node.endpoint));
            let node = match own {
                Some(node) if is_open => node,
                None if is_open => continue,
                _ => &nodes[(self.index + position * self.threads) % nodes.len()],
            };
            if !node.endpoint.is_same_place(&connection.node.endpoint) {
                connection.until_reconnect = 0;
            }
            connection.node = node.clone();
            connection.state.move_to(node.tags.clone());
        }
    }

    /// The time is up: a closed loop ends at once, an open one waits for the replies to all that
    /// was due, within reason.
    fn end_of_time(&mut self) {
        let patience = match self.record.is_interrupted {
            true => self.job.patience.min(INTERRUPTED_PATIENCE),
            false => self.job.patience,
        };
        let patience_ns = if self.is_open() { nanoseconds(patience) } else { 0 };
        self.is_over |= self.shared.now_ns() >= self.deadline_ns.saturating_add(patience_ns);
    }

    /// Notes what has no reply, with its age. In a closed loop each connection has something on its
    /// way when the time is up: only what waits for longer than all others did tells of a server
    /// that stands still.
    fn count_unanswered(&mut self) {
        let (now, is_open) = (self.shared.now_ns(), self.is_open());
        if !is_open && now < self.deadline_ns {
            return;
        }
        let until = if is_open { now } else { self.deadline_ns };
        let slowest: Vec<u64> = self.record.classes.iter().map(|c| c.latencies.max()).collect();
        for flight in self.connections.iter().flat_map(|connection| &connection.flights) {
            let age_ns = until.saturating_sub(flight.from_ns).clamp(1, LATENCY_NS_MAX);
            let class = usize::from(flight.class);
            if flight.from_ns < self.record.from_ns || !is_open && age_ns <= slowest[class] {
                continue;
            }
            let count = u64::from(flight.replies);
            self.record.unanswered += count;
            self.record.classes[class].latencies.saturating_record_n(age_ns, count);
        }
    }

    fn is_open(&self) -> bool {
        self.schedule.as_ref().is_some_and(SendSchedule::is_open)
    }

    fn lost(&self, index: usize, what: &str) -> EngineError {
        let endpoint = &self.connections[index].node.endpoint;
        EngineError::Lost(format!("Error: {what} ({endpoint})"))
    }

    fn broken(&self, index: usize, error: &std::io::Error) -> EngineError {
        if self.connections[index].is_connected {
            return self.lost(index, &error_text(error));
        }
        connect_error(&self.connections[index].node, error)
    }
}

/// Replies of one read, put together before they are recorded.
struct Tally<'a> {
    record: &'a mut ThreadRecord,
    interval: Option<&'a mut LatencyHistogram>,
    now: u64,
    is_late: bool,
    /// Requests of the class and the time of `current` that have not been recorded.
    count: u64,
    current: (u16, u64),
    counted: u64,
    waiting: u64,
}

impl Tally<'_> {
    #[inline]
    fn reply(
        &mut self,
        class: u16,
        from_ns: u64,
        reply: Counted,
        redirection: Option<RedirectionKind>,
    ) {
        self.waiting += 1;
        if from_ns < self.record.from_ns || self.is_late {
            return;
        }
        if self.current != (class, from_ns) {
            self.finish();
            self.current = (class, from_ns);
        }
        self.count += 1;
        let record = &mut self.record.classes[usize::from(class)];
        record.received_bytes += reply.bytes as u64;
        record.found += reply.values.saturating_sub(reply.nulls);
        record.nulls += reply.nulls;
        match redirection {
            None => record.errors += u64::from(reply.kind == ReplyKind::Error),
            Some(RedirectionKind::Moved) => record.moved += 1,
            Some(RedirectionKind::Asked) => record.asked += 1,
        }
    }

    #[inline]
    fn finish(&mut self) {
        if self.count == 0 {
            return;
        }
        let (class, from_ns) = self.current;
        let latency_ns = self.now.saturating_sub(from_ns).clamp(1, LATENCY_NS_MAX);
        let record = &mut self.record.classes[usize::from(class)];
        record.requests += self.count;
        record.latencies.saturating_record_n(latency_ns, self.count);
        if let Some(interval) = &mut self.interval {
            interval.saturating_record_n(latency_ns, self.count);
        }
        self.counted += self.count;
        self.record.last_reply_ns = self.now;
        self.count = 0;
    }
}

/// Remembers that requests were sent, or were due, at `from_ns`.
#[inline]
fn note(flights: &mut VecDeque<Flight>, record: &mut ThreadRecord, written: Written, from_ns: u64) {
    if from_ns >= record.from_ns {
        record.classes[usize::from(written.class)].sent_bytes += written.bytes as u64;
    }
    let replies = written.replies;
    match flights.back_mut() {
        Some(last) if last.class == written.class && last.from_ns == from_ns => {
            last.replies += replies;
        }
        _ => flights.push_back(Flight { class: written.class, replies, from_ns }),
    }
}

fn open(node: &ServerNode) -> Result<Wire, EngineError> {
    let socket = node.endpoint.open().map_err(|error| connect_error(node, &error.into()))?;
    Ok(Wire::new(socket, node.endpoint.tls_session().map_err(EngineError::System)?))
}

fn watch(epoll: &OwnedFd, socket: &OwnedFd, index: usize) -> Result<(), EngineError> {
    let flags = epoll::EventFlags::IN | epoll::EventFlags::OUT;
    epoll::add(epoll, socket, epoll::EventData::new_u64(index as u64), flags).map_err(system)
}

fn connect_error(node: &ServerNode, error: &std::io::Error) -> EngineError {
    let endpoint = &node.endpoint;
    EngineError::Connect(format!(
        "Could not connect to server at {endpoint}: {}",
        error_text(error)
    ))
}

fn system(error: Errno) -> EngineError {
    EngineError::System(format!("The system refused: {}", error_text(&error.into())))
}

fn thread_cpu() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

fn nanoseconds(duration: Duration) -> u64 {
    duration.as_nanos() as u64
}

/// No connection has this index.
const TIMER: u64 = u64::MAX;
const EVENTS_MAX: usize = 256;
const BUFFER_LEN: usize = 256 * 1024;
/// How late a thread may notice that others failed or that the time is up.
const WAIT_MAX: Timespec = Timespec { tv_sec: 0, tv_nsec: 20_000_000 };
/// How long an open loop waits for replies when somebody waits for its end.
const INTERRUPTED_PATIENCE: Duration = Duration::from_millis(500);
/// Due requests that are written before replies are looked at.
const RELEASES_MAX: usize = 1024;
/// Requests of an open loop without reply, for each thread.
const WAITING_MAX: u64 = 1 << 22;
const CONNECT_NS_MAX: u64 = 30_000_000_000;
