//! The state that all threads of the process share.

pub mod background;
mod end;
mod errors;
pub mod mailbox;
mod parts;
pub mod pause;
pub mod pressure;
mod switches;
pub mod unsent;
pub mod unserved;
mod users;
mod workers;

use std::sync::atomic::{AtomicI32, AtomicU32, AtomicUsize, Ordering};

use bobbin_io::{Acceptor, DriverKind};
use bobbin_store::{AccessClock, AccessPolicy, Gate, Keyspace};
use bobbin_sync::Mutex;

use crate::base::clock::Clock;
use crate::base::memory;
use crate::config::{AppendFsync, Config, OptionId};
use crate::engine::acl::Acl;
use crate::engine::blocking::Waiters;
use crate::engine::client::eviction::ClientMemory;
use crate::engine::client::monitors::Monitors;
use crate::engine::clients::Clients;
use crate::engine::command::Registry;
use crate::engine::command::data::Deletes;
use crate::engine::log::Feed;
use crate::engine::pubsub::PubSub;
use crate::engine::script::{Functions, Scripts};
use crate::engine::server::pause::Pause;
use crate::engine::server::pressure::Pressure;
use crate::engine::telemetry::services::Services;
use crate::engine::tracking::Tracking;
use crate::system::tls::Tls;

pub(crate) use self::end::exit_at_once;
pub use self::end::{EndRequest, Meanwhile, ServerEnd};
pub use self::errors::ErrorStats;
pub use self::parts::ServerParts;
pub use self::switches::{Switch, Switches};
pub use self::users::USERS_TWICE;
pub use self::workers::{WorkerHandle, WorkerPlace, Workers};

/// The version of Bobbin.
pub const VERSION: &str = env!("CARGO_PKG_VERSION");

/// From this many workers on, the clock is a cheaper source of record numbers than a counter that
/// all workers share. Simulations have few workers.
const WORKERS_BY_CLOCK: usize = if cfg!(test) { 2 } else { 8 };

/// The state that all threads share. Lives as long as the process.
///
/// It has many fields because each is a part of the process with a file of its own. Here they are
/// only kept together, behind one pointer.
pub struct Server {
    pub config: Config,
    pub registry: Registry,
    pub acl: Acl,
    pub keyspace: Keyspace,
    pub gate: Gate,
    pub clock: Clock,
    pub clients: Clients,
    pub client_memory: ClientMemory,
    pub switches: Switches,
    pub pause: Pause,
    pub monitors: Monitors,
    pub pubsub: PubSub,
    pub tracking: Tracking,
    /// The `Classes` that `notify-keyspace-events` asks for. Changes with the gate held.
    pub event_classes: AtomicU32,
    pub waiters: Waiters,
    pub errors: ErrorStats,
    pub workers: Workers,
    /// 40 hexadecimal digits, new at each start.
    pub run_id: String,
    pub started_ms: i64,
    /// The driver that the workers use.
    pub driver: DriverKind,
    pub(crate) acceptor: Mutex<Option<Acceptor>>,
    pub end: ServerEnd,
    pub services: Services,
    pub(crate) tls: Tls,
    pub scripts: Scripts,
    pub functions: Functions,
    /// The changes of all threads, in one order.
    pub log: bobbin_store::log::Log,
    /// The end of the log as bytes, for replicas.
    pub feed: Feed,
    /// The error number of the last write or fsync of the log's file; 0 if it succeeded.
    pub log_error: AtomicI32,
    /// Bytes of the log that are ready to be written but not on disk yet.
    pub unwritten_bytes: AtomicUsize,
    pub pressure: Pressure,
    /// The state of the layers above.
    pub parts: ServerParts,
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

    /// Whether the server saves by itself, and therefore also when it ends.
    pub fn has_save_points(&self) -> bool {
        !self.config.words_of(OptionId::save).is_empty()
    }

    /// How deletions that no client asked for are logged.
    #[inline]
    pub fn deletes(&self) -> Deletes {
        let by = |lazily: bool| if lazily { &b"UNLINK"[..] } else { b"DEL" };
        Deletes {
            expired: by(self.config.lazyfree_lazy_expire()),
            evicted: by(self.config.lazyfree_lazy_eviction()),
            emptied: by(self.config.lazyfree_lazy_server_del()),
        }
    }

    /// The clock for the access bits of entries. Only eviction needs fractions of a second.
    #[inline]
    pub fn access_clock(&self, now_ms: i64) -> AccessClock {
        let clock = AccessClock::new(self.access_policy(), now_ms);
        if !self.switches.has(Switch::MAXMEMORY) { clock.coarse() } else { clock }
    }

    /// Chooses how records of the log are numbered. Many workers number them by the clock, as they
    /// would contend for a counter. But with `appendfsync always` each turn asks for the last
    /// number, which only the counter has at hand. The gate is held, or there are no workers yet.
    pub fn choose_log_numbers(&self) {
        let is_always =
            self.config.appendonly() && self.config.appendfsync() == AppendFsync::Always;
        let has_many = self.config.worker_count() >= WORKERS_BY_CLOCK;
        self.log.number_by_clock(has_many && !is_always);
    }

    /// Notes the sums of the workers' counters, if it is time. Every worker calls this now and
    /// then.
    #[inline]
    pub fn note_rates(&self, now_ms: i64) {
        if self.services.rates.claim(now_ms) {
            self.take_rates(now_ms);
        }
    }

    #[cold]
    fn take_rates(&self, now_ms: i64) {
        // Reading the memory in use also updates the peak.
        let used = memory::used();
        // Only the first reading is kept.
        let startup_bytes = &self.services.startup_bytes;
        startup_bytes.compare_exchange(0, used, Ordering::Relaxed, Ordering::Relaxed).ok();
        let services = &self.services;
        services.rates.note(&self.workers.totals(), &services.replication_traffic, now_ms);
    }

    /// Sets the switches that follow from the configuration. Called at start, and by CONFIG SET
    /// with the gate held.
    pub fn follow_config(&self) {
        self.switches.set(Switch::MAXMEMORY, self.config.maxmemory() > 0);
        self.switches.set(Switch::IMPORT, self.config.import_mode());
        self.follow_client_memory();
        self.choose_log_numbers();
        self.scripts.limit_states(self.config.maxmemory_scripts(), self.config.maxmemory());
        self.scripts.allow_insecure(self.config.lua_enable_insecure_api());
        let classes = self.config.notify_keyspace_events();
        self.event_classes.store(classes as u32, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use std::mem::offset_of;
    use std::ops::RangeInclusive;

    use super::*;

    /// The numbers of the cache lines that a field lies on.
    fn lines<T>(offset: usize, _: fn(&Server) -> &T) -> RangeInclusive<usize> {
        const LINE_BYTES: usize = 64;
        offset / LINE_BYTES..=(offset + size_of::<T>() - 1) / LINE_BYTES
    }

    macro_rules! lines {
        ($($field:ident)*) => {
            [$((stringify!($field), lines(offset_of!(Server, $field), |server| &server.$field))),*]
        };
    }

    #[test]
    fn what_workers_read_is_on_no_line_that_is_written_under_load() {
        let read = lines![
            config registry acl keyspace gate switches pause monitors pubsub tracking event_classes
            workers tls scripts functions log pressure parts
        ];
        let written = lines![clock clients client_memory waiters errors services feed];
        for (written, on) in &written {
            for (read, lines) in &read {
                let shared = lines.start().max(on.start())..=lines.end().min(on.end());
                assert!(shared.is_empty(), "{read} is read on a line where {written} is written");
            }
        }
    }
}
