//! What all threads of the process share.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, RwLock};

use bobbin_store::{AccessPolicy, Gate, Keyspace};

use crate::client::Clients;
use crate::clock::Clock;
use crate::command::Registry;
use crate::commands::Monitors;
use crate::config::Config;
use crate::io::DriverKind;
use crate::pause::Pause;
use crate::stats::{CommandStats, Totals, WorkerStats};
use crate::worker::{Mailbox, Post};

/// The version of Bobbin.
pub const VERSION: &str = env!("CARGO_PKG_VERSION");
/// The version of Redis whose commands and formats it has, as clients expect it in INFO and HELLO.
pub const REDIS_VERSION: &str = "7.2.4";
/// Who HELLO says it is: together with `REDIS_VERSION`, what clients tell features by.
pub const HELLO_SERVER: &str = "redis";

/// See the module. Lives as long as the process.
pub struct Server {
    pub config: Config,
    pub registry: Registry,
    pub keyspace: Keyspace,
    pub gate: Gate,
    pub clock: Clock,
    pub clients: Clients,
    pub switches: Switches,
    pub pause: Pause,
    pub monitors: Monitors,
    pub errors: ErrorStats,
    pub workers: Workers,
    /// 40 hexadecimal digits, anew at each start.
    pub run_id: String,
    pub started_ms: i64,
    pub shutdown: AtomicBool,
    /// What moves the workers' bytes.
    pub driver: DriverKind,
}

impl Server {
    /// What the access bits of entries mean under the current `maxmemory-policy`.
    #[inline]
    pub fn access_policy(&self) -> AccessPolicy {
        if self.config.maxmemory_policy().is_lfu() {
            AccessPolicy::Lfu {
                log_factor: self.config.lfu_log_factor() as u32,
                decay_minutes: self.config.lfu_decay_time() as u32,
            }
        } else {
            AccessPolicy::Lru
        }
    }
}

/// What few servers need, in one word: most commands look no further than that it is zero.
#[derive(Default)]
pub struct Switches(AtomicU32);

/// Bits of `Switches`. They change under the gate, so nobody sees one change in mid-command.
pub struct Switch;
impl Switch {
    /// `maxmemory` is set.
    pub const MAXMEMORY: u32 = 1 << 0;
    /// Clients are paused.
    pub const PAUSED: u32 = 1 << 1;
    /// Somebody monitors.
    pub const MONITORED: u32 = 1 << 2;
}

impl Switches {
    #[inline(always)]
    pub fn load(&self) -> u32 {
        self.0.load(Ordering::Relaxed)
    }

    pub fn set(&self, bit: u32, on: bool) {
        if on {
            self.0.fetch_or(bit, Ordering::Relaxed);
        } else {
            self.0.fetch_and(!bit, Ordering::Relaxed);
        }
    }
}

/// The workers: their mailboxes and their statistics.
pub struct Workers {
    slots: RwLock<Vec<Arc<WorkerHandle>>>,
    /// Figures of workers that are no more.
    retired: Mutex<WorkerStats>,
    next: AtomicU64,
}

/// What others know of a worker.
pub struct WorkerHandle {
    pub id: usize,
    pub mailbox: Mailbox,
    pub stats: WorkerStats,
    /// `epoll` or `io_uring`.
    pub driver: &'static str,
}

impl Workers {
    pub fn new(commands: usize) -> Self {
        Self {
            slots: RwLock::default(),
            retired: Mutex::new(WorkerStats::new(commands)),
            next: AtomicU64::new(0),
        }
    }

    pub fn add(&self, worker: Arc<WorkerHandle>) {
        self.write().push(worker);
    }

    /// Takes the last worker out of the list, and keeps its figures.
    pub fn retire(&self, id: usize) {
        let mut slots = self.write();
        if let Some(at) = slots.iter().position(|worker| worker.id == id) {
            let worker = slots.remove(at);
            let retired = lock(&self.retired);
            retired.totals.merge(&worker.stats.totals);
            for (sum, part) in retired.commands.iter().zip(&worker.stats.commands) {
                sum.merge(part);
            }
        }
    }

    pub fn all(&self) -> Vec<Arc<WorkerHandle>> {
        self.read().clone()
    }

    pub fn len(&self) -> usize {
        self.read().len()
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The worker that the next connection goes to: each in its turn.
    pub fn next(&self) -> Option<Arc<WorkerHandle>> {
        let slots = self.read();
        let turn = self.next.fetch_add(1, Ordering::Relaxed) as usize;
        (!slots.is_empty()).then(|| slots[turn % slots.len()].clone())
    }

    /// Leaves something in a worker's mailbox; `false` when there is no such worker any more.
    pub fn post(&self, id: usize, post: Post) -> bool {
        let worker = self.read().iter().find(|worker| worker.id == id).cloned();
        worker.is_some_and(|worker| worker.mailbox.post(post).is_ok())
    }

    /// The sum over all workers, past and present.
    pub fn totals(&self) -> Totals {
        let sum = Totals::default();
        sum.merge(&lock(&self.retired).totals);
        for worker in self.all() {
            sum.merge(&worker.stats.totals);
        }
        sum
    }

    /// A command's sum over all workers, past and present.
    pub fn command_totals(&self, id: usize) -> CommandStats {
        let sum = CommandStats::default();
        sum.merge(&lock(&self.retired).commands[id]);
        for worker in self.all() {
            sum.merge(&worker.stats.commands[id]);
        }
        sum
    }

    /// CONFIG RESETSTAT; the gate is held.
    pub fn reset(&self) {
        let reset = |stats: &WorkerStats| {
            stats.totals.reset();
            stats.commands.iter().for_each(CommandStats::reset);
        };
        reset(&lock(&self.retired));
        self.all().iter().for_each(|worker| reset(&worker.stats));
    }

    fn read(&self) -> std::sync::RwLockReadGuard<'_, Vec<Arc<WorkerHandle>>> {
        self.slots.read().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    fn write(&self) -> std::sync::RwLockWriteGuard<'_, Vec<Arc<WorkerHandle>>> {
        self.slots.write().unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}

/// How often each kind of error was answered, by its first word.
#[derive(Default)]
pub struct ErrorStats {
    counts: Mutex<BTreeMap<String, u64>>,
}

impl ErrorStats {
    /// Errors of this many different kinds are told apart; more are a client's doing (EVAL).
    const KINDS_MAX: usize = 128;

    #[cold]
    pub fn count(&self, code: &str) {
        let mut counts = lock(&self.counts);
        if let Some(count) = counts.get_mut(code) {
            *count += 1;
        } else if counts.len() < Self::KINDS_MAX {
            counts.insert(code.to_owned(), 1);
        }
    }

    pub fn all(&self) -> Vec<(String, u64)> {
        lock(&self.counts).iter().map(|(code, count)| (code.clone(), *count)).collect()
    }

    pub fn reset(&self) {
        lock(&self.counts).clear();
    }
}

/// Locks; that somebody panicked with it held is nobody's problem here (release builds abort).
pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}
