//! The workers: their mailboxes and their statistics.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering, fence};

use bobbin_io::Waker;
use bobbin_sync::{Condvar, Mutex, RwLock, RwLockWriteGuard};

use crate::base::cores::cores;
use crate::base::kept::CachedFigure;
use crate::base::watch::{CpuTime, Watch};
use crate::engine::client::connection::Connection;
use crate::engine::clients::ClientInfo;
use crate::engine::server::mailbox::{ClientPost, Mailbox, Post};
use crate::engine::server::unserved::UnservedCount;
use crate::engine::telemetry::stats::{CommandStats, Totals, WorkerStats};

/// The workers: their mailboxes and their statistics.
pub struct Workers {
    known: RwLock<KnownWorkers>,
    /// The number of workers' threads, including those that are ending.
    running: Mutex<usize>,
    ended: Condvar,
    next_id: AtomicUsize,
    /// Increases whenever the list changes.
    generation: AtomicUsize,
}

/// The place of a worker on the list. The worker keeps this and updates it when it is out of date.
#[derive(Clone, Copy, Default)]
pub struct WorkerPlace {
    /// 0 if it was never updated.
    generation: usize,
    /// The worker's index on the list, and the length of the list; `None` if it is off the list.
    pub among: Option<(usize, usize)>,
}

/// All workers, present and past, behind one lock, so that each is always in exactly one place.
struct KnownWorkers {
    /// The first `wanted` of them serve. The others get no more connections, and end once they have
    /// none. If more are wanted before that, they are the next to serve.
    workers: Vec<Arc<WorkerHandle>>,
    wanted: usize,
    /// The figures of other threads that execute commands.
    others: Vec<Arc<WorkerStats>>,
    /// The sums of the figures of threads that have ended.
    past: WorkerStats,
    /// Whether the server ends. Then every worker ends, and a new one ends at once.
    stops: bool,
}

/// A worker as other threads see it.
pub struct WorkerHandle {
    pub id: usize,
    pub mailbox: Mailbox,
    pub stats: WorkerStats,
    /// The number of connections that it has, counting those in its mailbox.
    pub connections: AtomicUsize,
    /// What it has still to do for connections before it gets new ones.
    pub unserved: UnservedCount,
    /// Bytes of messages for clients that wait in the mailbox or that were taken from it.
    pub backlog_bytes: AtomicUsize,
    /// Whether it keeps replies back until more of the log is on disk.
    pub awaits_disk: AtomicBool,
    /// Whether it has worked on long commands for a while.
    pub is_laden: AtomicBool,
    /// Whether it executes many small commands.
    pub is_busy: AtomicBool,
    /// `epoll` or `io_uring`.
    pub driver: &'static str,
    /// The watch on its thread.
    pub watch: Watch,
    cpu_time: CachedFigure<CpuTime>,
}

impl WorkerHandle {
    /// `commands`: the number of commands in the statistics.
    pub fn new(id: usize, waker: Waker, driver: &'static str, commands: usize) -> Self {
        Self {
            id,
            mailbox: Mailbox::new(id as u32, waker),
            stats: WorkerStats::new(commands),
            connections: AtomicUsize::new(0),
            unserved: UnservedCount::default(),
            backlog_bytes: AtomicUsize::new(0),
            awaits_disk: AtomicBool::new(false),
            is_laden: AtomicBool::new(false),
            is_busy: AtomicBool::new(false),
            driver,
            watch: Watch::default(),
            cpu_time: CachedFigure::new(),
        }
    }

    /// Whether more messages wait for it than may: those that cause more are slowed down.
    #[inline]
    pub fn is_overrun(&self) -> bool {
        self.backlog_bytes.load(Ordering::Relaxed) > BACKLOG_MAX
    }

    /// Whether it has caught up, after it was overrun.
    #[inline]
    pub fn has_caught_up(&self) -> bool {
        self.backlog_bytes.load(Ordering::Relaxed) < BACKLOG_MAX / 2
    }

    /// Whether it would serve another client at once.
    pub fn has_time(&self) -> bool {
        let is_busy = self.is_busy.load(Ordering::Relaxed);
        !(is_busy || self.is_laden.load(Ordering::Relaxed) || self.unserved.is_high())
    }

    /// Processor time of its thread, at most a tenth of a second old.
    pub fn cpu_time(&self) -> CpuTime {
        self.cpu_time.or(|| CpuTime::of_thread(self.watch.thread()))
    }

    /// Gives the worker a connection; returns the connection if the worker has ended.
    pub fn give(&self, mut connection: Box<Connection>) -> Result<(), Box<Connection>> {
        connection.unserved = Some(self.unserved.add());
        self.connections.fetch_add(1, Ordering::Relaxed);
        let info = Arc::clone(&connection.client.info);
        // A thread that sees the new id leaves its posts for the client behind this connection.
        let tell = || info.worker.store(self.id, Ordering::Release);
        match self.mailbox.post_and(Post::Adopt(connection), tell) {
            Err(Post::Adopt(back)) => {
                self.connections.fetch_sub(1, Ordering::Relaxed);
                Err(back)
            }
            _ => Ok(()),
        }
    }
}

impl Workers {
    pub fn new(commands: usize) -> Self {
        let past = WorkerStats::new(commands);
        Self {
            known: RwLock::new(KnownWorkers {
                workers: Vec::new(),
                wanted: 0,
                others: Vec::new(),
                past,
                stops: false,
            }),
            running: Mutex::new(0),
            ended: Condvar::new(),
            next_id: AtomicUsize::new(0),
            generation: AtomicUsize::new(1),
        }
    }

    /// An id that no worker had before.
    pub fn next_id(&self) -> usize {
        self.next_id.fetch_add(1, Ordering::Relaxed)
    }

    pub fn add(&self, worker: Arc<WorkerHandle>) {
        *self.running.lock() += 1;
        let mut known = self.change();
        if known.stops {
            drop(worker.mailbox.post(Post::Stop));
        }
        known.workers.push(worker);
    }

    /// Ends all workers: those that serve, those that wait for their connections to move away, and
    /// those that are added later.
    pub fn stop(&self) {
        let mut known = self.change();
        known.stops = true;
        for worker in &known.workers {
            // A worker that has ended need not be told.
            drop(worker.mailbox.post(Post::Stop));
        }
    }

    /// Makes all workers look at the clients that they have put off.
    pub fn wake(&self) {
        for worker in self.all() {
            // A worker that has ended has no clients left.
            drop(worker.mailbox.post(Post::Resume));
        }
    }

    /// Sets how many workers serve; if fewer exist, all of them do. Returns how many exist. Workers
    /// that serve do not end by themselves.
    pub fn want(&self, count: usize) -> usize {
        let mut known = self.change();
        known.wanted = count;
        known.workers.len()
    }

    /// Whether a worker without connections may end. It may if it does not serve and its mailbox is
    /// empty. Then it is taken off the list, and posts to it fail.
    pub fn may_end(&self, worker: &WorkerHandle) -> bool {
        let mut known = self.change();
        let ends = !known.serves(worker.id) && worker.mailbox.close_if_empty();
        if ends {
            known.forget(worker);
        }
        ends
    }

    /// Ends a worker, even if its mailbox is not empty. It leaves the list in the same step:
    /// otherwise a thread with a connection to give would choose it again and again.
    pub fn close(&self, worker: &WorkerHandle) {
        let mut known = self.change();
        worker.mailbox.close();
        known.forget(worker);
    }

    /// Notes that a worker's thread has ended. Its figures are kept.
    pub fn ended(&self, worker: &WorkerHandle) {
        self.change().forget(worker);
        *self.running.lock() -= 1;
        self.ended.notify_all();
    }

    /// Sleeps until no worker's thread is left.
    pub fn wait_until_ended(&self) {
        let mut running = self.running.lock();
        while *running > 0 {
            running = self.ended.wait(running);
        }
    }

    /// Locks the list to change it.
    fn change(&self) -> RwLockWriteGuard<'_, KnownWorkers> {
        let known = self.known.write();
        // A thread that sees the new generation waits for the lock, and so for the change.
        self.generation.fetch_add(1, Ordering::Release);
        known
    }

    /// Updates a worker's place. Unless the list has changed, it reads nothing that other threads
    /// write.
    pub fn update_place(&self, id: usize, place: &mut WorkerPlace) {
        let generation = self.generation.load(Ordering::Acquire);
        if place.generation == generation {
            return;
        }
        let known = self.known.read();
        let at = known.workers.iter().position(|worker| worker.id == id);
        *place = WorkerPlace { generation, among: at.map(|at| (at, known.workers.len())) };
    }

    /// All workers, whether or not they serve.
    pub fn all(&self) -> Vec<Arc<WorkerHandle>> {
        self.known.read().workers.clone()
    }

    /// The number of workers that serve.
    pub fn serving(&self) -> usize {
        self.known.read().serving().len()
    }

    /// Whether a worker serves.
    pub fn serves(&self, id: usize) -> bool {
        self.known.read().serves(id)
    }

    /// The worker that gets the next connection: of those that keep up with theirs, and then of
    /// those that are not laden, the one with the fewest connections. Workers beyond the number of
    /// cores get connections only once each of the others has `crowd` of them: a thread that shares
    /// a core adds no power, and with fewer connections a thread has fewer commands in a turn.
    pub fn next(&self, crowd: usize) -> Option<Arc<WorkerHandle>> {
        let known = self.known.read();
        let slots = known.serving();
        let load = |worker: &Arc<WorkerHandle>| worker.connections.load(Ordering::Relaxed);
        let burden = |worker: &&Arc<WorkerHandle>| {
            let is_laden = worker.is_laden.load(Ordering::Relaxed);
            (worker.unserved.is_high(), is_laden, load(worker))
        };
        let least = |workers: &[Arc<WorkerHandle>]| workers.iter().min_by_key(burden).cloned();
        let first = slots.get(..cores()).and_then(least);
        let takes_it = |it: &Arc<WorkerHandle>| load(it) < crowd && !it.unserved.is_high();
        first.filter(takes_it).or_else(|| least(slots))
    }

    /// Whether a worker keeps up with its connections, and so may get new ones.
    pub fn have_room(&self) -> bool {
        self.known.read().serving().iter().any(|worker| !worker.unserved.is_high())
    }

    /// How many of `connections` a worker should have, by the rule of [`Self::next`].
    pub fn share(&self, id: usize, connections: usize, crowd: usize) -> usize {
        let known = self.known.read();
        let slots = known.serving();
        let all = slots.len().max(1);
        let in_play =
            if connections < cores().saturating_mul(crowd) { all.min(cores()) } else { all };
        let plays = slots.iter().take(in_play).any(|worker| worker.id == id);
        if plays { connections.div_ceil(in_play) } else { 0 }
    }

    /// Posts something for a client to the worker that has it. Returns the worker if it is overrun.
    ///
    /// The client may be moving to another worker. Either this finds its new place, or its new
    /// worker sees what the caller wrote before: the fence here pairs with that of `Worker::adopt`.
    pub fn post_to(&self, client: &Arc<ClientInfo>, post: ClientPost) -> Option<Arc<WorkerHandle>> {
        fence(Ordering::SeqCst);
        let mut id = client.worker.load(Ordering::Acquire);
        let mut post = Post::ToClient(Arc::clone(client), post);
        loop {
            match self.post(id, post) {
                Ok(worker) => return worker.is_overrun().then_some(worker),
                Err(back) => {
                    // The worker has ended. Its clients have moved before that, or the server ends.
                    let now = client.worker.load(Ordering::Acquire);
                    if now == id {
                        return None;
                    }
                    (id, post) = (now, back);
                }
            }
        }
    }

    /// Posts something to a worker, and returns the worker. Returns the post if the worker no
    /// longer exists.
    fn post(&self, id: usize, post: Post) -> Result<Arc<WorkerHandle>, Post> {
        let worker = self.known.read().workers.iter().find(|worker| worker.id == id).cloned();
        let Some(worker) = worker else { return Err(post) };
        let bytes = post.pushed_bytes();
        if bytes > 0 {
            // Before it can be taken.
            worker.backlog_bytes.fetch_add(bytes, Ordering::Relaxed);
        }
        worker.mailbox.post(post)?;
        Ok(worker)
    }

    /// Makes all workers share out their connections anew.
    pub fn rebalance(&self) {
        for worker in self.all() {
            // A worker that has ended has no connections.
            drop(worker.mailbox.post(Post::Rebalance));
        }
    }

    /// Tells the workers that wait for the disk to look again.
    pub fn tell_durable(&self) {
        let waits = |worker: &WorkerHandle| worker.awaits_disk.swap(false, Ordering::SeqCst);
        for worker in &self.known.read().workers {
            if waits(worker) {
                drop(worker.mailbox.post(Post::Durable));
            }
        }
    }

    /// Counts the figures of a thread that is not a worker.
    pub fn count_also(&self, stats: &Arc<WorkerStats>) {
        self.change().others.push(Arc::clone(stats));
    }

    /// Ends that: the thread executes no more commands. Its counts stay in the sums.
    pub fn count_no_more(&self, stats: &Arc<WorkerStats>) {
        let mut known = self.change();
        if let Some(at) = known.others.iter().position(|other| Arc::ptr_eq(other, stats)) {
            known.others.remove(at);
            known.past.merge(stats);
        }
    }

    /// Calls `f` with the figures of every worker, past and present.
    fn each(&self, mut f: impl FnMut(&WorkerStats)) {
        let known = self.known.read();
        f(&known.past);
        known.others.iter().for_each(|stats| f(stats));
        known.workers.iter().for_each(|worker| f(&worker.stats));
    }

    /// The sums over all workers, past and present.
    pub fn totals(&self) -> Totals {
        let sum = Totals::default();
        self.each(|stats| sum.merge(&stats.totals));
        sum
    }

    /// The sums of one command over all workers, past and present.
    pub fn command_totals(&self, id: usize) -> CommandStats {
        let sum = CommandStats::default();
        self.each(|stats| sum.merge(&stats.commands[id]));
        sum
    }

    /// The maximum of a figure over all workers, past and present.
    pub fn maximum(&self, figure: impl Fn(&WorkerStats) -> u64) -> u64 {
        let mut most = 0;
        self.each(|stats| most = most.max(figure(stats)));
        most
    }

    /// Ticks that all commands took, over all workers, past and present.
    pub fn command_ticks(&self) -> u64 {
        let mut sum = 0;
        self.each(|stats| sum += stats.commands.iter().map(|c| c.ticks.get()).sum::<u64>());
        sum
    }

    /// CONFIG RESETSTAT; the gate is held.
    pub fn reset(&self) {
        self.each(WorkerStats::reset);
    }
}

impl KnownWorkers {
    fn serving(&self) -> &[Arc<WorkerHandle>] {
        &self.workers[..self.wanted.min(self.workers.len())]
    }

    fn serves(&self, id: usize) -> bool {
        self.serving().iter().any(|worker| worker.id == id)
    }

    /// Moves a worker from the list to the past, if it is on the list.
    fn forget(&mut self, worker: &WorkerHandle) {
        if let Some(at) = self.workers.iter().position(|known| known.id == worker.id) {
            self.workers.remove(at);
            self.past.merge(&worker.stats);
        }
    }
}

/// Bytes of messages that may wait for a worker before those that cause more are slowed down.
const BACKLOG_MAX: usize = 256 * 1024;

#[cfg(test)]
mod tests {
    use super::*;

    /// Workers without threads, `beyond` more than there are cores.
    fn workers(beyond: usize) -> Workers {
        let workers = Workers::new(0);
        workers.want(cores() + beyond);
        for id in 0..cores() + beyond {
            let waker = Waker::new().expect("there are descriptors left");
            workers.add(Arc::new(WorkerHandle::new(id, waker, "none", 0)));
        }
        workers
    }

    /// The number of each worker's connections after `connections` of them were given out.
    fn placed(workers: &Workers, connections: usize, crowd: usize) -> Vec<usize> {
        for _ in 0..connections {
            let worker = workers.next(crowd).expect("there are workers");
            worker.connections.fetch_add(1, Ordering::Relaxed);
        }
        let load = |worker: &Arc<WorkerHandle>| worker.connections.load(Ordering::Relaxed);
        workers.all().iter().map(load).collect()
    }

    #[test]
    fn a_place_follows_each_change_of_the_list() {
        let workers = workers(2);
        let (first, last) = (workers.all()[0].clone(), cores() + 1);
        let mut place = WorkerPlace::default();
        let mut among = || {
            workers.update_place(last, &mut place);
            place.among
        };
        assert_eq!(among(), Some((last, last + 1)));
        workers.close(&first);
        assert_eq!(among(), Some((last - 1, last)));
        workers.add(first);
        assert_eq!(among(), Some((last - 1, last + 1)));
        workers.want(1);
        let own = workers.all()[last - 1].clone();
        assert!(workers.may_end(&own));
        assert_eq!(among(), None);
    }

    #[test]
    fn workers_beyond_the_cores_wait_until_the_others_are_crowded() {
        let crowded = workers(2);
        assert_eq!(placed(&crowded, 3 * cores(), 3), [vec![3; cores()], vec![0; 2]].concat());
        assert_eq!(placed(&crowded, 6, 3), vec![3; cores() + 2]);
        assert_eq!(placed(&workers(2), 2 * (cores() + 2), 0), vec![2; cores() + 2]);
        assert_eq!(placed(&workers(0), 5 * cores(), 3), vec![5; cores()]);
    }

    #[test]
    fn a_connection_goes_to_the_worker_that_lost_most() {
        let workers = workers(0);
        placed(&workers, 4 * cores(), 1024);
        let last = workers.all().pop().expect("there are workers");
        last.connections.store(1, Ordering::Relaxed);
        assert_eq!(workers.next(1024).map(|worker| worker.id), Some(last.id));
    }

    #[test]
    fn a_worker_that_is_too_many_ends_with_an_empty_mailbox_or_serves_again() {
        let workers = workers(1);
        let all = workers.all();
        let count = all.len();
        let (first, last) = (&all[0], &all[count - 1]);
        assert!(!workers.may_end(last), "it serves");
        assert_eq!(workers.want(count - 1), count);
        assert!(workers.serves(first.id) && !workers.serves(last.id));
        assert_eq!((workers.serving(), workers.all().len()), (count - 1, count));
        assert!(workers.post(last.id, Post::Resume).is_ok());
        assert!(!workers.may_end(last), "something waits for it");
        assert_eq!(last.mailbox.take().len(), 1);
        workers.want(count);
        assert!(workers.serves(last.id) && !workers.may_end(last), "it is wanted again");
        workers.want(count - 1);
        last.stats.totals.commands.add(3);
        assert!(workers.may_end(last));
        assert!(
            workers.post(last.id, Post::Resume).is_err()
                && last.mailbox.post(Post::Resume).is_err()
        );
        workers.ended(last);
        assert_eq!((workers.all().len(), workers.totals().commands.get()), (count - 1, 3));
    }

    #[test]
    fn nobody_gets_a_worker_that_takes_nothing_more() {
        let workers = workers(0);
        let all = workers.all();
        let last = &all[all.len() - 1];
        workers.close(last);
        assert!(last.mailbox.post(Post::Resume).is_err());
        assert!(workers.all().iter().all(|worker| worker.id != last.id));
        workers.ended(last);
        assert_eq!(workers.all().len(), all.len() - 1);
    }

    #[test]
    fn a_connection_passes_over_laden_workers() {
        let workers = workers(1);
        let all = workers.all();
        let (first, last) = (&all[0], &all[cores() - 1]);
        last.connections.store(500, Ordering::Relaxed);
        for worker in &all {
            worker.is_laden.store(worker.id != last.id, Ordering::Relaxed);
        }
        assert_eq!(workers.next(1024).map(|worker| worker.id), Some(last.id));
        // The worker beyond the cores comes next, as it has no long command either.
        all[cores()].is_laden.store(false, Ordering::Relaxed);
        assert_eq!(workers.next(500).map(|worker| worker.id), Some(all[cores()].id));
        last.is_laden.store(true, Ordering::Relaxed);
        all[cores()].is_laden.store(true, Ordering::Relaxed);
        assert_eq!(workers.next(1024).map(|worker| worker.id), Some(first.id));
    }

    #[test]
    fn a_connection_passes_over_workers_that_do_not_keep_up() {
        let workers = workers(0);
        let all = workers.all();
        let mut unserved = Vec::new();
        for worker in &all {
            assert!(workers.have_room());
            let next = workers.next(1024).expect("there are workers");
            assert!(!next.unserved.is_high());
            // One that has few connections, and does not come to them.
            while !worker.unserved.is_high() {
                unserved.push(worker.unserved.add());
            }
        }
        assert!(!workers.have_room() && workers.next(1024).is_some());
        drop(unserved.pop());
        let last = all.last().map(|worker| worker.id);
        assert_eq!((workers.have_room(), workers.next(1024).map(|it| it.id)), (true, last));
    }

    #[test]
    fn shares_follow_the_same_rule() {
        let workers = workers(2);
        let last = cores() + 1;
        assert_eq!(workers.share(0, 3 * cores() - 1, 3), 3);
        assert_eq!(workers.share(last, 3 * cores() - 1, 3), 0);
        assert_eq!(workers.share(last, 3 * (cores() + 2), 3), 3);
        assert_eq!(workers.share(last, 1, 0), 1);
    }
}
