//! Sends a workload over many connections and measures the replies. A few threads drive all
//! connections, each thread with an epoll of its own; a pipeline costs one write and one read, and
//! a request allocates nothing.

mod connection;
mod endpoint;
mod record;
mod redirection;
mod replies;
mod schedule;
mod shared;
mod thread;

use std::{
    fmt,
    sync::{Arc, mpsc},
    time::{Duration, Instant},
};

pub use endpoint::Endpoint;
pub use record::{ClassRecord, LatencyHistogram, Second, latencies};
pub use replies::{Counted, ReplyCounter, ReplyKind};

use crate::{
    interrupt::{Interrupt, TOO_EARLY},
    workload::{TAG_LEN, Workload},
};
use shared::RunState;

/// One measurement.
#[derive(Clone, Debug)]
pub struct LoadRun<'a> {
    pub workload: &'a Workload,
    /// One server, or the primaries of a cluster, which share the connections.
    pub nodes: &'a [ServerNode],
    /// Of a cluster: how to learn where its slots are now. Replies that say that a slot is
    /// elsewhere are then no errors but a reason to ask.
    pub topology: Option<&'a Topology>,
    pub connections: usize,
    pub threads: usize,
    /// Requests sent in one write, which wait for all their replies together.
    pub pipeline: usize,
    pub limit: Limit,
    pub pace: Pace,
    /// Requests sent in this time at the start are not counted.
    pub warm_up: Duration,
    /// Sent first on every connection, and how many replies that brings.
    pub greeting: &'a Greeting,
    /// After this many requests a connection is closed and opened anew.
    pub reconnect_after: Option<u64>,
    /// The first error reply ends the run.
    pub stop_on_error: bool,
    pub seed: u64,
    /// Keep what happened in each second.
    pub series: bool,
    /// How long an open loop waits for replies when nothing more is due.
    pub patience: Duration,
    /// When this is raised the run ends as though its time were up.
    pub interrupt: &'a Interrupt,
}

/// A server that connections go to.
#[derive(Clone, Debug)]
pub struct ServerNode {
    pub endpoint: Endpoint,
    /// What `{tag}` in a key may become there; empty where there is no cluster.
    pub tags: Arc<[[u8; TAG_LEN]]>,
}

/// Asks a cluster for its nodes.
pub struct Topology(pub Box<dyn Fn() -> Result<Vec<ServerNode>, String> + Send + Sync>);

impl fmt::Debug for Topology {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Topology")
    }
}

/// What a connection says first: AUTH, SELECT and the like.
#[derive(Clone, Debug, Default)]
pub struct Greeting {
    pub bytes: Vec<u8>,
    pub replies: u32,
}

impl Greeting {
    pub fn push(&mut self, arguments: &[impl AsRef<[u8]>]) {
        bobbin_client::encode_command(arguments, &mut self.bytes);
        self.replies += 1;
    }
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Limit {
    /// Commands over all connections. The last request may have more of them than are left.
    Total(u64),
    /// Requests on each connection.
    Each(u64),
    Time(Duration),
}

/// When a request is sent.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Pace {
    /// When the replies to those before it have come.
    Closed,
    /// When the replies to those before it have come, but at most this many requests a second.
    Limited { per_second: f64 },
    /// At its time, whether or not replies have come; its latency counts from then.
    Open { per_second: f64, arrivals: Arrivals },
}

/// How the times of an open loop are spread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arrivals {
    /// At even distances.
    Even,
    /// Independent of each other, as those of many users are.
    Poisson,
}

/// What was measured.
#[derive(Clone, Debug)]
pub struct LoadOutcome {
    pub classes: Vec<ClassRecord>,
    /// From the first counted request to the last reply; of an open loop at least as long as
    /// requests were due.
    pub elapsed: Duration,
    pub seconds: Vec<Second>,
    /// The text of the first error reply.
    pub first_error: Option<String>,
    /// Requests without reply: of an open loop those that were due, of a closed one those that had
    /// waited for longer than any other when its time was up.
    pub unanswered: u64,
    /// How many requests were sent to warm up. They count nowhere else.
    pub warm_up_requests: u64,
    /// Processor time that sending and receiving took, of all threads, without the warm-up.
    pub cpu: Duration,
    /// The run was ended before it had done what it should.
    pub is_interrupted: bool,
}

impl LoadOutcome {
    pub fn requests(&self) -> u64 {
        self.classes.iter().map(|class| class.requests).sum()
    }

    pub fn errors(&self) -> u64 {
        self.classes.iter().map(|class| class.errors).sum()
    }

    /// Values of replies that said that something is not there.
    pub fn nulls(&self) -> u64 {
        self.classes.iter().map(|class| class.nulls).sum()
    }

    /// Values of replies that were there.
    pub fn found(&self) -> u64 {
        self.classes.iter().map(|class| class.found).sum()
    }

    /// Replies that said that a slot is elsewhere.
    pub fn moved(&self) -> u64 {
        self.classes.iter().map(|class| class.moved).sum()
    }

    /// Replies that said that a slot is on its way.
    pub fn asked(&self) -> u64 {
        self.classes.iter().map(|class| class.asked).sum()
    }

    /// Replies that only said where in the cluster to ask. Their requests are counted like others.
    pub fn redirections(&self) -> u64 {
        self.moved() + self.asked()
    }

    /// Adds another run of the same workload, as if it had followed this one.
    pub fn add(&mut self, other: &Self) {
        for (sum, class) in self.classes.iter_mut().zip(&other.classes) {
            sum.add(class);
        }
        let before = self.elapsed;
        let later = other.seconds.iter().map(|second| Second { at: before + second.at, ..*second });
        self.seconds.extend(later);
        self.elapsed += other.elapsed;
        self.cpu += other.cpu;
        self.unanswered += other.unanswered;
        self.warm_up_requests += other.warm_up_requests;
        self.is_interrupted |= other.is_interrupted;
        self.first_error = self.first_error.take().or_else(|| other.first_error.clone());
    }

    /// Requests a second.
    pub fn rate(&self) -> f64 {
        self.requests() as f64 / self.elapsed.as_secs_f64().max(1e-9)
    }

    /// All classes in one, in nanoseconds.
    pub fn latencies(&self) -> LatencyHistogram {
        let mut all = latencies();
        for class in &self.classes {
            record::add(&mut all, &class.latencies);
        }
        all
    }

    /// Processor time of the generator for one request, in microseconds.
    pub fn cpu_us_per_request(&self) -> f64 {
        self.cpu.as_secs_f64() * 1e6 / self.requests().max(1) as f64
    }
}

/// How a run is going, for the caller's `watch`.
#[derive(Clone, Debug)]
pub struct LoadProgress {
    /// Since the connections stood.
    pub elapsed: Duration,
    /// From 0 to 1.
    pub done: f64,
    pub requests: u64,
    pub rate: f64,
    pub rate_now: f64,
    /// Latencies since the report before, in nanoseconds.
    pub latencies: LatencyHistogram,
}

/// Why there is no outcome.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EngineError {
    Connect(String),
    /// The server closed a connection or it broke.
    Lost(String),
    /// A reply to the greeting was an error.
    Greeting(String),
    /// An error reply, where those end the run.
    Reply(String),
    /// Bytes that are no reply.
    Protocol(String),
    Overload(String),
    System(String),
    /// Somebody wanted the end before the connections stood.
    Interrupted,
}

impl fmt::Display for EngineError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Reply(text) => write!(f, "Error from server: {text}"),
            Self::Greeting(text) => write!(f, "The server refused the connection: {text}"),
            Self::Connect(text)
            | Self::Lost(text)
            | Self::Protocol(text)
            | Self::Overload(text)
            | Self::System(text) => f.write_str(text),
            Self::Interrupted => f.write_str(TOO_EARLY),
        }
    }
}

impl std::error::Error for EngineError {}

/// Does the measurement, calling `watch` a few times a second when there is one.
pub fn run(
    job: &LoadRun<'_>,
    mut watch: Option<&mut dyn FnMut(&LoadProgress)>,
) -> Result<LoadOutcome, EngineError> {
    job.workload.check().map_err(EngineError::System)?;
    raise_file_limit(job.connections);
    let threads = job.threads.clamp(1, job.connections.max(1));
    let nodes = job.nodes.iter().cloned().map(Arc::new).collect();
    let shared = RunState::new(threads, nodes, watch.is_some() || job.series);
    let (sender, receiver) = mpsc::channel();
    std::thread::scope(|scope| {
        for index in 0..threads {
            let (shared, sender) = (&shared, sender.clone());
            scope.spawn(move || {
                // Only when the receiver has gone can this fail, and then the record is not wanted.
                let _ = sender.send(thread::drive(job, index, threads, shared));
            });
        }
        drop(sender);
        let mut watcher = Watcher::new(job, &shared);
        let mut records = Vec::with_capacity(threads);
        while records.len() < threads {
            match receiver.recv_timeout(watcher.patience()) {
                Ok(record) => records.push(record),
                Err(mpsc::RecvTimeoutError::Timeout) => watcher.look(&mut watch),
                // A thread that panicked ends the process, so this is not reached.
                Err(mpsc::RecvTimeoutError::Disconnected) => break,
            }
        }
        if let Some(error) = shared.failure() {
            return Err(error);
        }
        watcher.end();
        let mut outcome = record::merge(job.workload, records);
        outcome.seconds = watcher.seconds;
        Ok(outcome)
    })
}

/// Looks at the threads' counters from time to time.
struct Watcher<'a> {
    job: &'a LoadRun<'a>,
    shared: &'a RunState,
    seconds: Vec<Second>,
    second: LatencyHistogram,
    next: Instant,
    last: (Instant, u64),
    last_second: (Instant, u64),
}

impl<'a> Watcher<'a> {
    fn new(job: &'a LoadRun<'a>, shared: &'a RunState) -> Self {
        let now = Instant::now();
        Self {
            job,
            shared,
            seconds: Vec::new(),
            second: latencies(),
            next: now + LOOK_EVERY,
            last: (now, 0),
            last_second: (now, 0),
        }
    }

    fn patience(&self) -> Duration {
        self.next.saturating_duration_since(Instant::now())
    }

    fn look(&mut self, watch: &mut Option<&mut dyn FnMut(&LoadProgress)>) {
        let now = Instant::now();
        self.next += LOOK_EVERY;
        if let Some(topology) = self.job.topology {
            self.shared.refresh(topology);
        }
        self.shared.ask();
        let Some(started) = self.shared.started() else {
            self.last.0 = now;
            return;
        };
        // What is not counted has no seconds.
        let counts_from = started + self.job.warm_up;
        self.last_second.0 = self.last_second.0.max(counts_from);
        let requests = self.shared.requests();
        let interval = self.shared.take_interval();
        record::add(&mut self.second, &interval);
        self.close_second(counts_from, now, requests);
        let elapsed = now - started;
        if let Some(watch) = watch {
            let since = |(then, count): (Instant, u64)| {
                requests.saturating_sub(count) as f64 / (now - then).as_secs_f64().max(1e-9)
            };
            watch(&LoadProgress {
                elapsed,
                done: self.done(elapsed, requests),
                requests,
                rate: since((started + self.job.warm_up.min(elapsed), 0)),
                rate_now: since(self.last),
                latencies: interval,
            });
        }
        self.last = (now, requests);
    }

    /// The threads have brought their records: what they saw since the last look may make another
    /// second.
    fn end(&mut self) {
        let Some(started) = self.shared.started() else { return };
        let counts_from = started + self.job.warm_up;
        self.last_second.0 = self.last_second.0.max(counts_from);
        record::add(&mut self.second, &self.shared.take_interval());
        self.close_second(counts_from, Instant::now(), self.shared.requests());
    }

    /// Keeps a second that is over. One that the end of the run cut short is kept where little of
    /// it is missing.
    fn close_second(&mut self, counts_from: Instant, now: Instant, requests: u64) {
        let until = match self.job.limit {
            Limit::Time(time) => now.min(counts_from + time),
            Limit::Total(_) | Limit::Each(_) => now,
        };
        let whole = until.saturating_duration_since(self.last_second.0);
        if self.job.series && whole >= SECOND - LOOK_EVERY / 2 {
            let count = requests - self.last_second.1;
            self.seconds.push(Second::new(until - counts_from, whole, count, &self.second));
            self.second.reset();
            self.last_second = (until, requests);
        }
    }

    fn done(&self, elapsed: Duration, requests: u64) -> f64 {
        // What is counted are replies, of which a request may bring several.
        let replies = requests as f64;
        let done = match self.job.limit {
            Limit::Total(total) => replies / total as f64,
            Limit::Each(each) => {
                let each = each as f64 * self.job.workload.replies_per_request().max(1.0);
                replies / (each * self.job.connections as f64)
            }
            Limit::Time(time) => {
                elapsed.as_secs_f64() / (time + self.job.warm_up).as_secs_f64().max(1e-9)
            }
        };
        done.clamp(0.0, 1.0)
    }
}

/// As many open files as the connections need, where the hard limit allows it; where not, opening
/// them fails with the system's own words.
fn raise_file_limit(connections: usize) {
    use rustix::process::{Resource, getrlimit, setrlimit};
    let mut limit = getrlimit(Resource::Nofile);
    let needed = (connections + FILES_SPARE) as u64;
    if limit.current.is_some_and(|current| current < needed) {
        limit.current = Some(limit.maximum.map_or(needed, |maximum| maximum.min(needed)));
        let _ = setrlimit(Resource::Nofile, limit);
    }
}

/// What [`LoadRun::patience`] is where nothing else is wanted.
pub const PATIENCE: Duration = Duration::from_secs(10);
const LOOK_EVERY: Duration = Duration::from_millis(250);
const SECOND: Duration = Duration::from_secs(1);
/// Files that are open beside the connections.
const FILES_SPARE: usize = 64;
