//! What the threads of a run share: little, and none of it once per request.

use std::{
    sync::{
        Arc, Barrier, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    },
    time::Instant,
};

use super::{EngineError, LatencyHistogram, ServerNode, Topology, latencies, record};

#[derive(Debug)]
pub(super) struct RunState {
    pub(super) clock: Instant,
    /// The connections of all threads stand.
    pub(super) connected: Barrier,
    /// Requests handed out to threads.
    issued: AtomicU64,
    /// Commands handed out to threads, where requests differ in how many they have.
    issued_commands: AtomicU64,
    stop: AtomicBool,
    failure: Mutex<Option<EngineError>>,
    cells: Vec<Cell>,
    started: Mutex<Option<Instant>>,
    /// Grows when the watcher wants the latencies since the last time.
    asked: AtomicU64,
    interval: Option<Mutex<LatencyHistogram>>,
    nodes: Mutex<Nodes>,
    /// How often they have changed.
    nodes_changes: AtomicU64,
    /// A reply said that they are not right any more.
    are_nodes_stale: AtomicBool,
}

/// The nodes that connections go to, in turns.
pub(super) type Nodes = Arc<[Arc<ServerNode>]>;

/// A thread's counter, on a cache line of its own.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Cell {
    requests: AtomicU64,
}

impl RunState {
    pub(super) fn new(threads: usize, nodes: Nodes, watched: bool) -> Self {
        Self {
            clock: Instant::now(),
            connected: Barrier::new(threads),
            issued: AtomicU64::new(0),
            issued_commands: AtomicU64::new(0),
            stop: AtomicBool::new(false),
            failure: Mutex::new(None),
            cells: (0..threads).map(|_| Cell::default()).collect(),
            started: Mutex::new(None),
            asked: AtomicU64::new(0),
            interval: watched.then(|| Mutex::new(latencies())),
            nodes: Mutex::new(nodes),
            nodes_changes: AtomicU64::new(0),
            are_nodes_stale: AtomicBool::new(false),
        }
    }

    /// Nanoseconds since the clock began.
    #[inline]
    pub(super) fn now_ns(&self) -> u64 {
        self.clock.elapsed().as_nanos() as u64
    }

    pub(super) fn fail(&self, error: EngineError) {
        lock(&self.failure).get_or_insert(error);
        self.stop.store(true, Relaxed);
    }

    pub(super) fn failure(&self) -> Option<EngineError> {
        lock(&self.failure).clone()
    }

    #[inline]
    pub(super) fn is_stopped(&self) -> bool {
        self.stop.load(Relaxed)
    }

    pub(super) fn start(&self) {
        lock(&self.started).get_or_insert_with(Instant::now);
    }

    pub(super) fn started(&self) -> Option<Instant> {
        *lock(&self.started)
    }

    /// The indexes of requests that the calling thread may send: a part of what is left of `total`,
    /// the smaller the less there is, so that all threads end together, and whole pipelines of them
    /// as long as there are.
    pub(super) fn lease(&self, total: u64, pipeline: u64) -> std::ops::Range<u64> {
        let threads = self.cells.len() as u64;
        let mut issued = self.issued.load(Relaxed);
        loop {
            let left = total.saturating_sub(issued);
            let share = (left / (threads * LEASE_SHARE)).min(LEASE_MAX);
            let count = (share / pipeline * pipeline).max(pipeline).min(left);
            match self.issued.compare_exchange_weak(issued, issued + count, Relaxed, Relaxed) {
                Ok(_) => return issued..issued + count,
                Err(now) => issued = now,
            }
        }
    }

    /// The indexes of requests that the calling thread may send, of those that it has drawn; each
    /// has as many commands as `drawn` says. A request may go as long as fewer than `total`
    /// commands have gone before it, so only the last one of all can bring more than that.
    pub(super) fn lease_commands(
        &self,
        total: u64,
        drawn: impl Iterator<Item = u64> + Clone,
    ) -> std::ops::Range<u64> {
        let mut issued = self.issued_commands.load(Relaxed);
        loop {
            let (mut commands, mut requests) = (issued, 0);
            for count in drawn.clone() {
                if commands >= total {
                    break;
                }
                commands += count;
                requests += 1;
            }
            let exchange =
                self.issued_commands.compare_exchange_weak(issued, commands, Relaxed, Relaxed);
            match exchange {
                Ok(_) => {
                    let start = self.issued.fetch_add(requests, Relaxed);
                    return start..start + requests;
                }
                Err(now) => issued = now,
            }
        }
    }

    pub(super) fn nodes(&self) -> Nodes {
        lock(&self.nodes).clone()
    }

    #[inline]
    pub(super) fn nodes_changes(&self) -> u64 {
        self.nodes_changes.load(Relaxed)
    }

    /// A node said that a slot is elsewhere.
    pub(super) fn doubt_nodes(&self) {
        self.are_nodes_stale.store(true, Relaxed);
    }

    /// Asks the cluster anew, if a thread doubts. While it does not answer the doubt stays.
    pub(super) fn refresh(&self, topology: &Topology) {
        if !self.are_nodes_stale.swap(false, Relaxed) {
            return;
        }
        match (topology.0)() {
            Ok(found) => {
                let mut nodes = lock(&self.nodes);
                *nodes = keep_places(&nodes, found);
                self.nodes_changes.fetch_add(1, Relaxed);
            }
            Err(_) => self.doubt_nodes(),
        }
    }

    pub(super) fn publish(&self, thread: usize, requests: u64) {
        self.cells[thread].requests.store(requests, Relaxed);
    }

    pub(super) fn requests(&self) -> u64 {
        self.cells.iter().map(|cell| cell.requests.load(Relaxed)).sum()
    }

    pub(super) fn is_watched(&self) -> bool {
        self.interval.is_some()
    }

    /// Asks the threads for the latencies since the last time; they come a moment later.
    pub(super) fn ask(&self) {
        self.asked.fetch_add(1, Relaxed);
    }

    #[inline]
    pub(super) fn asked(&self) -> u64 {
        self.asked.load(Relaxed)
    }

    pub(super) fn give(&self, latencies: &LatencyHistogram) {
        if let Some(interval) = &self.interval {
            record::add(&mut lock(interval), latencies);
        }
    }

    pub(super) fn take_interval(&self) -> LatencyHistogram {
        match &self.interval {
            Some(interval) => std::mem::replace(&mut *lock(interval), latencies()),
            None => latencies(),
        }
    }
}

/// The nodes that were found, those that were there before in the order that they had: then few
/// connections have to change.
fn keep_places(before: &[Arc<ServerNode>], mut found: Vec<ServerNode>) -> Nodes {
    let mut nodes = Vec::with_capacity(found.len());
    for old in before {
        if let Some(at) = found.iter().position(|new| new.endpoint.is_same_place(&old.endpoint)) {
            nodes.push(Arc::new(found.remove(at)));
        }
    }
    nodes.extend(found.into_iter().map(Arc::new));
    nodes.into()
}

/// What is behind these locks is whole at every moment, also after a panic.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A lease takes at most this part of what one thread will have to do.
const LEASE_SHARE: u64 = 8;
const LEASE_MAX: u64 = 1024;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::Endpoint;

    #[test]
    fn only_the_last_request_has_commands_beyond_the_total() {
        let shared = RunState::new(2, [].into(), false);
        let lease = |drawn: &[u64]| shared.lease_commands(10, drawn.iter().copied());
        assert_eq!(lease(&[1, 4, 1]), 0..3);
        assert_eq!(lease(&[3]), 3..4);
        assert_eq!(lease(&[4, 1]), 4..5, "of 10 commands 9 had gone");
        assert_eq!(lease(&[1, 1]), 5..5);
    }

    #[test]
    fn nodes_keep_their_places() {
        let node = |port| ServerNode {
            endpoint: Endpoint::tcp("127.0.0.1", port).unwrap(),
            tags: [].into(),
        };
        let before = [Arc::new(node(1)), Arc::new(node(2)), Arc::new(node(3))];
        let after = keep_places(&before, vec![node(4), node(3), node(1)]);
        let places: Vec<_> = after.iter().map(|node| node.endpoint.to_string()).collect();
        assert_eq!(places, ["127.0.0.1:1", "127.0.0.1:3", "127.0.0.1:4"]);
    }
}
