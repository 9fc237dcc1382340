//! The sections of the process itself, and of features that Bobbin does not have. Those show the
//! values of a server that has just started and does not use the features.

use std::sync::LazyLock;
use std::sync::atomic::Ordering::Relaxed;

use super::InfoUnit::{Bytes, Number, Seconds};
use super::{
    InfoField, InfoValue, Lines, Section, SectionShown, Snapshot, counter, gauge, label, line, zero,
};
use crate::config::{OptionId, VALKEY_VERSION};
use crate::engine::server::{Server, Switch, VERSION};
use crate::persistence::Persistence;
use crate::persistence::aof::{Aof, rewrite};

pub(super) const SERVER: Section = Section {
    name: "server",
    title: "Server",
    shown: SectionShown::Default,
    lines: Lines::Both(
        &[
            label("redis_version", |s| {
                String::from_utf8_lossy(&s.server.config.redis_version()).as_ref().into()
            }),
            label("server_name", |_| "bobbin".into()),
            label("valkey_version", |_| VALKEY_VERSION.into()),
            label("bobbin_version", |_| VERSION.into()),
            label("redis_git_sha1", |_| "00000000".into()),
            label("redis_git_dirty", |_| 0u64.into()),
            label("redis_mode", |_| "standalone".into()),
            label("server_mode", |_| "standalone".into()),
            label("os", |_| operating_system().into()),
            label("arch_bits", |_| u64::from(usize::BITS).into()),
            label("monotonic_clock", |_| clock().into()),
            label("multiplexing_api", |s| s.server.driver.name().into()),
            label("io_driver", |s| s.server.driver.name().into()),
            label("process_id", |_| u64::from(std::process::id()).into()),
            label("process_supervised", |s| s.server.config.supervised().word().into()),
            label("run_id", |s| s.server.run_id.as_str().into()),
            label("tcp_port", |s| {
                let (plain, tls) = (s.server.config.port(), s.server.config.tls_port());
                (if plain == 0 { tls } else { plain }).into()
            }),
            label("server_time_usec", |_| crate::base::clock::system_us().into()),
            gauge("uptime_in_seconds", Seconds, "Time since the start.", |s| {
                (s.server.clock.uptime_ms() / 1000).into()
            }),
            label("uptime_in_days", |s| (s.server.clock.uptime_ms() / 86_400_000).into()),
            label("hz", |s| s.server.config.hz().into()),
            label("configured_hz", |s| s.server.config.hz().into()),
            label("clients_hz", |s| s.server.config.hz().into()),
            label("lru_clock", |_| ((crate::base::clock::system_ms() / 1000) & 0xff_ffff).into()),
            label("executable", |_| executable().into()),
            label("config_file", |s| config_file(s).into()),
            gauge("io_threads_active", Number, "Threads that get new clients.", |s| {
                s.server.workers.serving().into()
            }),
            label("availability_zone", |s| {
                String::from_utf8_lossy(&s.server.config.availability_zone()).as_ref().into()
            }),
        ],
        shutdown_and_listeners,
    ),
};

pub(super) const PERSISTENCE: Section = Section {
    name: "persistence",
    title: "Persistence",
    shown: SectionShown::Default,
    lines: Lines::Both(
        &[
            gauge("loading", Number, "Whether a file is loaded (1).", |s| {
                u64::from(s.server.switches.has(Switch::LOADING)).into()
            }),
            gauge("async_loading", Number, "Whether a copy is loaded beside the keys (1).", |s| {
                u64::from(s.server.switches.has(Switch::LOADING_ASIDE)).into()
            }),
            zero("current_cow_peak"),
            label("current_cow_size", |s| {
                let kept = s.server.keyspace.kept_bytes();
                keys_at_work(s.server).map_or(0, |_| kept).into()
            }),
            zero("current_cow_size_age"),
            gauge(
                "current_fork_perc",
                Number,
                "How much of the snapshot or base at work is written, in percent.",
                |s| {
                    let (written, total) = keys_at_work(s.server).unwrap_or((0, 0));
                    InfoValue::Decimal(100.0 * written as f64 / total.max(1) as f64, 2)
                },
            ),
            gauge(
                "current_save_keys_processed",
                Number,
                "Keys of the snapshot or base at work that are written.",
                |s| keys_at_work(s.server).map_or(0, |(written, _)| written).into(),
            ),
            gauge(
                "current_save_keys_total",
                Number,
                "Keys of the snapshot or base at work.",
                |s| keys_at_work(s.server).map_or(0, |(_, total)| total).into(),
            ),
            gauge("rdb_changes_since_last_save", Number, "Changes since the last snapshot.", |s| {
                Persistence::of(s.server).unsaved(s.totals().dirty.get()).into()
            }),
            gauge("rdb_bgsave_in_progress", Number, "Whether a snapshot is written (1).", |s| {
                u64::from(Persistence::of(s.server).is_writing()).into()
            }),
            gauge("rdb_last_save_time", Seconds, "When the last snapshot was, since 1970.", |s| {
                Persistence::of(s.server).last_save_s.load(Relaxed).into()
            }),
            label("rdb_last_bgsave_status", |s| {
                status(!s.server.switches.has(Switch::SAVE_FAILED))
            }),
            label("rdb_last_bgsave_time_sec", |s| {
                Persistence::of(s.server).last_duration_s.load(Relaxed).into()
            }),
            label("rdb_current_bgsave_time_sec", |s| {
                let seconds =
                    |(_, started_ms)| (crate::base::clock::system_ms() - started_ms) / 1000;
                Persistence::of(s.server).current().map_or(-1, seconds).into()
            }),
            counter("rdb_saves", Number, "Snapshots written.", |s| {
                Persistence::of(s.server).saves.load(Relaxed).into()
            }),
            zero("rdb_last_cow_size"),
            gauge(
                "rdb_last_load_keys_expired",
                Number,
                "Dead keys in the snapshot that was loaded.",
                |s| Persistence::of(s.server).loading.last_keys_expired.load(Relaxed).into(),
            ),
            gauge(
                "rdb_last_load_keys_loaded",
                Number,
                "Keys in the snapshot that was loaded.",
                |s| Persistence::of(s.server).loading.last_keys_loaded.load(Relaxed).into(),
            ),
            gauge(
                "rdb_current_kept_bytes",
                Bytes,
                "Copies of changed keys that wait to be written.",
                |s| s.server.keyspace.kept_bytes().into(),
            ),
            gauge("aof_enabled", Number, "Whether the append-only file is on (1).", |s| {
                Aof::of(s.server).is_on().into()
            }),
            gauge("aof_rewrite_in_progress", Number, "Whether it is rewritten (1).", |s| {
                rewrite::is_rewriting(s.server).into()
            }),
            gauge("aof_rewrite_scheduled", Number, "Whether it is going to be (1).", |s| {
                Aof::of(s.server).rewrites.is_scheduled().into()
            }),
            label("aof_last_rewrite_time_sec", |s| {
                Aof::of(s.server).rewrites.last_duration_s.load(Relaxed).into()
            }),
            label("aof_current_rewrite_time_sec", |s| {
                let since_ms = Aof::of(s.server).rewrites.running_since_ms();
                since_ms
                    .map_or(-1, |ms| (crate::base::clock::system_ms() - ms).max(0) / 1000)
                    .into()
            }),
            label("aof_last_bgrewrite_status", |s| {
                status(!Aof::of(s.server).rewrites.failed.load(Relaxed))
            }),
            counter("aof_rewrites", Number, "Rewrites of the append-only file.", |s| {
                Aof::of(s.server).rewrites.count.load(Relaxed).into()
            }),
            gauge(
                "aof_rewrites_consecutive_failures",
                Number,
                "Rewrites that failed one after the other.",
                |s| Aof::of(s.server).rewrites.failures.load(Relaxed).into(),
            ),
            label("aof_last_write_status", |s| status(!s.server.switches.has(Switch::LOG_FAILED))),
            zero("aof_last_cow_size"),
            zero("module_fork_in_progress"),
            zero("module_fork_last_cow_size"),
            zero("slot_migration_fork_in_progress"),
        ],
        persistence_extras,
    ),
};

pub(super) const CPU: Section = Section {
    name: "cpu",
    title: "CPU",
    shown: SectionShown::Default,
    lines: Lines::Fields(&[
        counter("used_cpu_sys", Seconds, "Processor time in the kernel.", |s| {
            InfoValue::Decimal(s.usage().system_s, 6)
        }),
        counter("used_cpu_user", Seconds, "Processor time of the process itself.", |s| {
            InfoValue::Decimal(s.usage().user_s, 6)
        }),
        counter("used_cpu_sys_children", Seconds, "Always 0: there are no children.", |_| {
            InfoValue::Decimal(0.0, 6)
        }),
        counter("used_cpu_user_children", Seconds, "Always 0: there are no children.", |_| {
            InfoValue::Decimal(0.0, 6)
        }),
        // There is no main thread: these are the figures of the worker that answers.
        label("used_cpu_sys_main_thread", |s| InfoValue::Decimal(s.usage().thread_system_s, 6)),
        label("used_cpu_user_main_thread", |s| InfoValue::Decimal(s.usage().thread_user_s, 6)),
    ]),
};

pub(super) const MODULES: Section = Section {
    name: "modules",
    title: "Modules",
    shown: SectionShown::Default,
    lines: Lines::Written(write_modules),
};

/// Valkey's section about its cluster, without a cluster.
pub(super) const CLUSTER_INFO: Section = Section {
    name: "cluster_info",
    title: "Cluster Info",
    shown: SectionShown::All,
    lines: Lines::Fields(&[]),
};

pub(super) const SCRIPTING_ENGINES: Section = Section {
    name: "scriptingengines",
    title: "Scripting Engines",
    shown: SectionShown::All,
    lines: Lines::Written(write_engines),
};

pub(super) const CLUSTER: Section = Section {
    name: "cluster",
    title: "Cluster",
    shown: SectionShown::Default,
    lines: Lines::Fields(CLUSTER_FIELDS),
};

/// Lua is listed as a module, as in Valkey.
fn write_modules(_: &Snapshot<'_>, text: &mut String) {
    line(
        text,
        format_args!(
            "module:name=lua,ver=1,api=1,filters=0,usedby=[],using=[],\
             options=[handle-repl-async-load|handle-atomic-slot-migration]"
        ),
    );
}

fn write_engines(snapshot: &Snapshot<'_>, text: &mut String) {
    let used = super::memory::state_memory(snapshot.server);
    line(text, format_args!("engines_count:1"));
    line(text, format_args!("engines_total_used_memory:{used}"));
    line(text, format_args!("engines_total_memory_overhead:0"));
    line(
        text,
        format_args!(
            "engine_0:name=LUA,module=lua,abi_version=4,used_memory={used},memory_overhead=0"
        ),
    );
}

/// How many keys of the snapshot at work, or of the base of the log, are written, and how many keys
/// it has.
fn keys_at_work(server: &Server) -> Option<(u64, u64)> {
    let save = Persistence::of(server).current().map(|(keys, _)| keys);
    let total = save.or_else(|| Aof::of(server).rewrites.current_keys())?;
    Some((Persistence::of(server).written_keys.load(Relaxed), total))
}

fn persistence_extras(snapshot: &Snapshot<'_>, text: &mut String) {
    log_fields(snapshot, text);
    loading(snapshot, text);
}

/// Fields about the log, while it is on or being loaded.
fn log_fields(snapshot: &Snapshot<'_>, text: &mut String) {
    let (server, aof) = (snapshot.server, Aof::of(snapshot.server));
    let figures = &aof.figures;
    if !server.config.appendonly() {
        return;
    }
    let number = |value: &std::sync::atomic::AtomicU64| value.load(Relaxed);
    line(text, format_args!("aof_current_size:{}", number(&figures.size)));
    line(text, format_args!("aof_base_size:{}", number(&figures.base_size)));
    line(text, format_args!("aof_pending_rewrite:{}", u8::from(aof.rewrites.is_scheduled())));
    line(text, format_args!("aof_buffer_length:{}", server.log_bytes()));
    let syncs = aof.syncs_beside.load(Relaxed);
    line(text, format_args!("aof_pending_bio_fsync:{}", u8::from(syncs)));
    line(text, format_args!("aof_delayed_fsync:{}", number(&figures.delayed_fsync)));
}

fn status(is_good: bool) -> InfoValue {
    if is_good { "ok" } else { "err" }.into()
}

const CLUSTER_FIELDS: &[InfoField] = &[zero("cluster_enabled")];

/// Fields about a file that is being loaded.
fn loading(snapshot: &Snapshot<'_>, text: &mut String) {
    let loading = &Persistence::of(snapshot.server).loading;
    if !snapshot.server.switches.has(Switch::LOADING | Switch::LOADING_ASIDE) {
        return;
    }
    let started_s = loading.started_s.load(Relaxed);
    let (total, loaded) = (loading.total_bytes.load(Relaxed), loading.loaded_bytes.load(Relaxed));
    let elapsed_s = (crate::base::clock::system_ms() / 1000 - started_s).max(0) as u64;
    let left_s = (elapsed_s * total.saturating_sub(loaded)).checked_div(loaded).unwrap_or(1);
    let percent = loaded as f64 * 100.0 / total.max(1) as f64;
    line(text, format_args!("loading_start_time:{started_s}"));
    line(text, format_args!("loading_total_bytes:{total}"));
    line(text, format_args!("loading_rdb_used_mem:{}", loading.used_memory.load(Relaxed)));
    line(text, format_args!("loading_loaded_bytes:{loaded}"));
    line(text, format_args!("loading_loaded_perc:{percent:.2}"));
    line(text, format_args!("loading_eta_seconds:{left_s}"));
}

/// How long the server still waits for replicas before it ends, and where it listens.
fn shutdown_and_listeners(snapshot: &Snapshot<'_>, text: &mut String) {
    if let Some(until_ms) = snapshot.server.end.waits_until_ms() {
        let left_ms = until_ms - snapshot.server.clock.now_ms();
        line(text, format_args!("shutdown_in_milliseconds:{left_ms}"));
    }
    listeners(snapshot, text);
}

fn listeners(snapshot: &Snapshot<'_>, text: &mut String) {
    let config = &snapshot.server.config;
    let binds = config.words_of(OptionId::bind);
    let binds: String = binds.iter().map(|address| format!(",bind={address}")).collect();
    // Each kind of socket has its number, as in Valkey.
    if config.port() != 0 {
        line(text, format_args!("listener0:name=tcp{binds},port={}", config.port()));
    }
    let path = config.unixsocket();
    if !path.is_empty() {
        let path = String::from_utf8_lossy(&path);
        line(text, format_args!("listener1:name=unix,bind={path}"));
    }
    if config.tls_port() != 0 {
        line(text, format_args!("listener2:name=tls{binds},port={}", config.tls_port()));
    }
}

fn operating_system() -> &'static str {
    static NAME: LazyLock<String> = LazyLock::new(|| {
        let name = rustix::system::uname();
        let [system, release, machine] =
            [name.sysname(), name.release(), name.machine()].map(|part| part.to_string_lossy());
        format!("{system} {release} {machine}")
    });
    &NAME
}

const fn clock() -> &'static str {
    if cfg!(target_arch = "x86_64") { "X86 TSC" } else { "POSIX clock_gettime" }
}

fn executable() -> &'static str {
    static PATH: LazyLock<String> = LazyLock::new(|| {
        std::env::current_exe().map_or_else(|_| String::new(), |path| path.display().to_string())
    });
    &PATH
}

fn config_file(snapshot: &Snapshot<'_>) -> String {
    snapshot.server.config.file().map_or_else(String::new, |path| path.display().to_string())
}
