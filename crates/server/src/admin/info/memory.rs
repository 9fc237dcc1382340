//! The section of memory, and the figures that MEMORY STATS and DOCTOR share with it.

use std::sync::LazyLock;
use std::sync::atomic::Ordering;

use super::InfoUnit::{Bytes, Number};
use super::{
    InfoValue, Lines, Section, SectionShown, Snapshot, counter, gauge, human, label, zero,
};
use crate::base::allocator;
use crate::base::kept::CachedFigure;
use crate::engine::defrag::Defrag;
use crate::engine::server::Server;
use crate::persistence::aof::Aof;
use crate::replication::Replication;

pub(super) const MEMORY: Section = Section {
    name: "memory",
    title: "Memory",
    shown: SectionShown::Default,
    lines: Lines::Fields(&[
        gauge("used_memory", Bytes, "Memory in use.", |s| s.memory().used.into()),
        label("used_memory_human", |s| human(s.memory().used as u64).into()),
        gauge("used_memory_rss", Bytes, "Memory that the process has.", |s| {
            s.memory().resident.into()
        }),
        label("used_memory_rss_human", |s| human(s.memory().resident as u64).into()),
        gauge("used_memory_peak", Bytes, "The most memory that was in use.", |s| {
            s.memory().peak.into()
        }),
        label("used_memory_peak_human", |s| human(s.memory().peak as u64).into()),
        label("used_memory_peak_perc", |s| percent(s.memory().used, s.memory().peak)),
        gauge("used_memory_overhead", Bytes, "Memory in use that is not keys or values.", |s| {
            s.memory().overhead.into()
        }),
        gauge("used_memory_startup", Bytes, "Memory in use after the start.", |s| {
            s.memory().startup.into()
        }),
        gauge("used_memory_dataset", Bytes, "Memory of keys and values.", |s| {
            s.memory().dataset().into()
        }),
        label("used_memory_dataset_perc", |s| {
            percent(s.memory().dataset(), s.memory().since_startup())
        }),
        gauge("allocator_allocated", Bytes, "What the allocator gave out.", |s| {
            s.memory().allocator.allocated.into()
        }),
        gauge("allocator_active", Bytes, "Pages that it gave out parts of.", |s| {
            s.memory().allocator.active.into()
        }),
        gauge("allocator_resident", Bytes, "Pages that it has.", |s| {
            s.memory().allocator.resident.into()
        }),
        gauge("allocator_muzzy", Bytes, "Pages that the kernel may take back.", |s| {
            s.memory().allocator.muzzy.into()
        }),
        gauge("total_system_memory", Bytes, "The machine's memory.", |_| {
            total_system_memory().into()
        }),
        label("total_system_memory_human", |_| human(total_system_memory()).into()),
        gauge("used_memory_lua", Bytes, "Memory of the Lua states of EVAL.", |s| {
            (s.server.scripts.state_memory() as u64).into()
        }),
        gauge("used_memory_vm_eval", Bytes, "Memory of the Lua states of EVAL.", |s| {
            (s.server.scripts.state_memory() as u64).into()
        }),
        label("used_memory_lua_human", |s| human(s.server.scripts.state_memory() as u64).into()),
        gauge("used_memory_scripts_eval", Bytes, "Memory of cached scripts.", |s| {
            (s.server.scripts.memory() as u64).into()
        }),
        gauge("number_of_cached_scripts", Number, "Scripts that are cached.", |s| {
            (s.server.scripts.len() as u64).into()
        }),
        gauge("number_of_functions", Number, "Functions of all libraries.", |s| {
            (s.server.functions.counts().1 as u64).into()
        }),
        gauge("number_of_libraries", Number, "Libraries of functions.", |s| {
            (s.server.functions.counts().0 as u64).into()
        }),
        gauge("used_memory_vm_functions", Bytes, "Memory of the Lua states of functions.", |s| {
            (s.server.functions.state_memory() as u64).into()
        }),
        gauge("used_memory_vm_total", Bytes, "Memory of all Lua states.", |s| {
            state_memory(s.server).into()
        }),
        label("used_memory_vm_total_human", |s| human(state_memory(s.server)).into()),
        gauge("used_memory_functions", Bytes, "Memory of libraries of functions.", |s| {
            (s.server.functions.memory() as u64).into()
        }),
        gauge("used_memory_scripts", Bytes, "Memory of scripts and libraries.", |s| {
            script_memory(s.server).into()
        }),
        label("used_memory_scripts_human", |s| human(script_memory(s.server)).into()),
        gauge("maxmemory", Bytes, "The limit of memory; 0 for none.", |s| {
            s.server.config.maxmemory().into()
        }),
        label("maxmemory_human", |s| human(s.server.config.maxmemory()).into()),
        label("maxmemory_policy", |s| s.server.config.maxmemory_policy().word().into()),
        gauge(
            "allocator_frag_ratio",
            Number,
            "What is in use and free among it, to what is.",
            |s| InfoValue::Decimal(s.memory().fragmentation().0, 2),
        ),
        gauge(
            "allocator_frag_bytes",
            Bytes,
            "Bytes that are free among small blocks in use.",
            |s| s.memory().fragmentation().1.into(),
        ),
        gauge("allocator_rss_ratio", Number, "Pages of the allocator, to those given out.", |s| {
            InfoValue::Decimal(s.memory().allocator_rss().0, 2)
        }),
        gauge(
            "allocator_rss_bytes",
            Bytes,
            "Pages of the allocator that are not given out.",
            |s| s.memory().allocator_rss().1.into(),
        ),
        gauge("rss_overhead_ratio", Number, "The process's memory, to the allocator's.", |s| {
            InfoValue::Decimal(s.memory().rss_overhead().0, 2)
        }),
        gauge("rss_overhead_bytes", Bytes, "Memory of the process beside the allocator's.", |s| {
            s.memory().rss_overhead().1.into()
        }),
        gauge("mem_fragmentation_ratio", Number, "The process's memory, to what is in use.", |s| {
            InfoValue::Decimal(s.memory().total_overhead().0, 2)
        }),
        gauge("mem_fragmentation_bytes", Bytes, "Memory of the process that is not in use.", |s| {
            s.memory().total_overhead().1.into()
        }),
        gauge(
            "mem_not_counted_for_evict",
            Bytes,
            "Memory that is about to be freed, or kept for a snapshot, slow replicas or a slow disk.",
            |s| crate::engine::eviction::not_counted(s.server).into(),
        ),
        gauge("mem_replication_backlog", Bytes, "Memory of the replication backlog.", |s| {
            s.memory().backlog.into()
        }),
        gauge(
            "mem_total_replication_buffers",
            Bytes,
            "Memory of the replication stream: the backlog, and what replicas have not read.",
            |s| s.server.feed.memory().into(),
        ),
        gauge(
            "mem_replicas_repl_buffer",
            Bytes,
            "Memory of the stream that a replica keeps while it takes a copy.",
            |s| s.memory().gathered.into(),
        ),
        gauge(
            "mem_clients_slaves",
            Bytes,
            "What replicas have not read, beyond the backlog.",
            |s| s.memory().unread.into(),
        ),
        gauge("mem_clients_normal", Bytes, "Memory of clients.", |s| {
            s.clients().memory_bytes.into()
        }),
        zero("mem_cluster_links"),
        zero("mem_cluster_slot_import"),
        zero("mem_cluster_slot_export"),
        gauge("mem_aof_buffer", Bytes, "Memory of what was logged and is not written.", |s| {
            let bytes = if Aof::of(s.server).is_on() { s.server.log_bytes() } else { 0 };
            bytes.into()
        }),
        label("mem_allocator", |_| mem_allocator().into()),
        zero("mem_overhead_db_hashtable_rehashing"),
        gauge(
            "active_defrag_running",
            Number,
            "Percentage of its time that defragmentation works; 0 for not at all.",
            |s| Defrag::of(s.server).effort(&s.server.config).into(),
        ),
        gauge("lazyfree_pending_objects", Number, "Values that wait to be freed.", |_| {
            crate::engine::lazyfree::pending_objects().into()
        }),
        counter("lazyfreed_objects", Number, "Values freed in the background.", |_| {
            crate::engine::lazyfree::freed_objects().into()
        }),
    ]),
};

/// The memory of all Lua states in bytes.
pub(super) fn state_memory(server: &Server) -> u64 {
    (server.scripts.state_memory() + server.functions.state_memory()) as u64
}

/// The memory of cached scripts and libraries in bytes.
fn script_memory(server: &Server) -> u64 {
    (server.scripts.memory() + server.functions.memory()) as u64
}

/// Memory by use, in bytes.
#[derive(Clone, Copy, Default, Debug)]
pub struct MemoryFigures {
    /// Memory in use, by our own count.
    pub used: usize,
    pub peak: usize,
    /// Memory in use just after the start.
    pub startup: usize,
    /// The replication stream; with replicas, up to the size of the backlog.
    pub backlog: usize,
    /// The rest of the stream, which replicas have not read.
    pub unread: usize,
    /// The primary's stream that is kept while a copy is loaded.
    pub gathered: usize,
    /// Everything but keys and values: the start, clients, tables, replication.
    pub overhead: usize,
    /// Memory that the kernel has given to the process.
    pub resident: usize,
    pub allocator: allocator::AllocatorFigures,
    /// What is free among small blocks in use. Only this can be brought together, so Valkey calls
    /// it fragmentation.
    pub small_waste: usize,
}

/// The ratio of two figures, and their difference in bytes.
type Comparison = (f64, i64);

impl MemoryFigures {
    pub(super) fn of(snapshot: &Snapshot<'_>) -> Self {
        let (used, peak) = (snapshot.used_bytes, crate::base::memory::peak());
        let startup = snapshot.server.services.startup_bytes.load(Ordering::Relaxed).min(used);
        let clients = snapshot.clients().memory_bytes;
        let (server, stream) = (snapshot.server, snapshot.server.feed.memory());
        let replication = Replication::of(server);
        let unread = if replication.has_replicas() {
            stream.saturating_sub(server.config.repl_backlog_size() as usize)
        } else {
            0
        };
        let link = replication.link();
        let gathered = link.map_or(0, |link| link.sync.kept_bytes().0);
        Self {
            used,
            peak,
            startup,
            backlog: stream - unread,
            unread,
            gathered,
            overhead: startup + clients + stream + gathered + snapshot.keyspace().overhead_bytes,
            resident: resident(),
            allocator: allocator::figures(),
            small_waste: allocator::recent_small_waste(),
        }
    }

    /// The bytes of keys and values.
    pub const fn dataset(&self) -> usize {
        self.used.saturating_sub(self.overhead)
    }

    pub const fn since_startup(&self) -> usize {
        self.used.saturating_sub(self.startup)
    }

    /// What is in use and free among it, compared with what is in use.
    pub fn fragmentation(&self) -> Comparison {
        let allocated = self.allocator.allocated;
        compare(allocated + self.small_waste, allocated)
    }

    /// Pages that the allocator has and does not use.
    pub fn allocator_rss(&self) -> Comparison {
        compare(self.allocator.resident, self.allocator.active)
    }

    /// Memory of the process outside of the allocator.
    pub fn rss_overhead(&self) -> Comparison {
        compare(self.resident, self.allocator.resident)
    }

    /// Memory of the process compared with the memory in use.
    pub fn total_overhead(&self) -> Comparison {
        compare(self.resident, self.used)
    }
}

fn compare(whole: usize, part: usize) -> Comparison {
    (whole as f64 / part.max(1) as f64, whole as i64 - part as i64)
}

fn percent(part: usize, whole: usize) -> InfoValue {
    format!("{:.2}%", part as f64 * 100.0 / whole.max(1) as f64).into()
}

/// The resident memory of the process in bytes, as the kernel reports it.
fn resident() -> usize {
    static LAST: CachedFigure<usize> = CachedFigure::new();
    LAST.or(|| {
        let statm = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
        let pages = statm.split(' ').nth(1).and_then(|pages| pages.parse::<usize>().ok());
        pages.unwrap_or(0) * rustix::param::page_size()
    })
}

fn total_system_memory() -> u64 {
    static LAST: CachedFigure<u64> = CachedFigure::new();
    LAST.or(|| {
        let info = rustix::system::sysinfo();
        info.totalram * u64::from(info.mem_unit)
    })
}

fn mem_allocator() -> &'static str {
    static NAME: LazyLock<String> = LazyLock::new(|| {
        let version = allocator::control_text(b"version").unwrap_or_default();
        let version = String::from_utf8_lossy(&version);
        format!("jemalloc-{}", version.split('-').next().unwrap_or_default())
    });
    &NAME
}
