//! What INFO's numbers mean, in a sentence each, and what they are measured in.

/// What a field of INFO is measured in; metrics are in base units.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Unit {
    /// It counts things, or is a ratio.
    None,
    Bytes,
    Kilobytes,
    Seconds,
    Milliseconds,
    Microseconds,
}

use Unit::{Bytes, Kilobytes, Microseconds, Milliseconds, None as Plain, Seconds};

impl Unit {
    /// What a metric's name ends in.
    pub(super) const fn suffix(self) -> &'static str {
        match self {
            Self::None => "",
            Self::Bytes | Self::Kilobytes => "_bytes",
            Self::Seconds | Self::Milliseconds | Self::Microseconds => "_seconds",
        }
    }

    /// How much of the base unit it is.
    pub(super) const fn factor(self) -> f64 {
        match self {
            Self::None | Self::Bytes | Self::Seconds => 1.0,
            Self::Kilobytes => 1024.0,
            Self::Milliseconds => 1e-3,
            Self::Microseconds => 1e-6,
        }
    }
}

/// A field's unit and meaning.
pub(super) fn describe(field: &str) -> (Unit, &'static str) {
    let found = DESCRIPTIONS.iter().find(|(name, ..)| *name == field);
    found.map_or((Plain, "As INFO shows it."), |(_, unit, help)| (*unit, help))
}

/// By the order of INFO.
const DESCRIPTIONS: &[(&str, Unit, &str)] = &[
    ("uptime_in_seconds", Seconds, "Time since the start."),
    ("io_threads_active", Plain, "Threads that get new clients."),
    ("connected_clients", Plain, "Connections of clients."),
    ("client_recent_max_input_buffer", Bytes, "The longest input buffer of a client."),
    ("client_recent_max_output_buffer", Bytes, "The longest output buffer of a client."),
    ("blocked_clients", Plain, "Clients that wait in a blocking command."),
    ("tracking_clients", Plain, "Clients that are told of keys that change."),
    ("pubsub_clients", Plain, "Clients that listen to channels."),
    ("watching_clients", Plain, "Clients that watch keys."),
    ("clients_in_timeout_table", Plain, "Blocked clients with a timeout."),
    ("total_watched_keys", Plain, "Keys that clients watch."),
    ("total_blocking_keys", Plain, "Keys that blocked clients wait for."),
    ("total_blocking_keys_on_nokey", Plain, "Those whose end unblocks as well."),
    ("paused_timeout_milliseconds", Milliseconds, "How long clients stay paused."),
    ("used_memory", Bytes, "Memory in use."),
    ("used_memory_rss", Bytes, "Memory that the process has."),
    ("used_memory_peak", Bytes, "The most memory that was in use."),
    ("used_memory_overhead", Bytes, "Memory in use that is not keys or values."),
    ("used_memory_startup", Bytes, "Memory in use after the start."),
    ("used_memory_dataset", Bytes, "Memory of keys and values."),
    ("allocator_allocated", Bytes, "What the allocator gave out."),
    ("allocator_active", Bytes, "Pages that it gave out parts of."),
    ("allocator_resident", Bytes, "Pages that it has."),
    ("allocator_muzzy", Bytes, "Pages that the kernel may take back."),
    ("total_system_memory", Bytes, "The machine's memory."),
    ("used_memory_scripts_eval", Bytes, "Memory of cached scripts."),
    ("number_of_cached_scripts", Plain, "Scripts that are cached."),
    ("number_of_functions", Plain, "Functions of all libraries."),
    ("number_of_libraries", Plain, "Libraries of functions."),
    ("maxmemory", Bytes, "The limit of memory; 0 for none."),
    ("allocator_frag_ratio", Plain, "Pages given out, to memory in them that is."),
    ("allocator_frag_bytes", Bytes, "Free parts of pages given out."),
    ("allocator_rss_ratio", Plain, "Pages of the allocator, to those given out."),
    ("allocator_rss_bytes", Bytes, "Pages of the allocator that are not given out."),
    ("rss_overhead_ratio", Plain, "The process's memory, to the allocator's."),
    ("rss_overhead_bytes", Bytes, "Memory of the process beside the allocator's."),
    ("mem_fragmentation_ratio", Plain, "The process's memory, to what is in use."),
    ("mem_fragmentation_bytes", Bytes, "Memory of the process that is not in use."),
    (
        "mem_not_counted_for_evict",
        Bytes,
        "Memory that is about to be freed, or kept for a snapshot.",
    ),
    ("mem_clients_normal", Bytes, "Memory of clients."),
    ("lazyfree_pending_objects", Plain, "Values that wait to be freed."),
    ("lazyfreed_objects", Plain, "Values freed in the background."),
    ("loading", Plain, "Whether a file is loaded (1)."),
    ("current_fork_perc", Plain, "Always 0: nothing forks."),
    ("current_save_keys_processed", Plain, "Keys of the snapshot at work that are written."),
    ("current_save_keys_total", Plain, "Keys of the snapshot at work."),
    ("rdb_changes_since_last_save", Plain, "Changes since the last snapshot."),
    ("rdb_bgsave_in_progress", Plain, "Whether a snapshot is written (1)."),
    ("rdb_saves", Plain, "Snapshots written."),
    ("rdb_last_load_keys_expired", Plain, "Dead keys in the snapshot that was loaded."),
    ("rdb_last_load_keys_loaded", Plain, "Keys in the snapshot that was loaded."),
    ("rdb_current_kept_bytes", Bytes, "Copies of changed keys that wait to be written."),
    ("aof_enabled", Plain, "Whether the append-only file is on (1)."),
    ("aof_rewrite_in_progress", Plain, "Whether it is rewritten (1)."),
    ("aof_rewrite_scheduled", Plain, "Whether it is going to be (1)."),
    ("aof_rewrites", Plain, "Rewrites of the append-only file."),
    ("aof_rewrites_consecutive_failures", Plain, "Rewrites that failed one after the other."),
    ("eventloop_duration_cron_sum", Microseconds, "Time that work by the clock took."),
    ("eventloop_duration_max", Microseconds, "The longest turn of a thread."),
    ("eventloop_cmd_per_cycle_max", Plain, "The most commands of a turn."),
    ("total_connections_received", Plain, "Connections accepted."),
    ("total_commands_processed", Plain, "Commands executed."),
    ("instantaneous_ops_per_sec", Plain, "Commands executed a second, lately."),
    ("total_net_input_bytes", Bytes, "Bytes received."),
    ("total_net_output_bytes", Bytes, "Bytes sent."),
    ("instantaneous_input_kbps", Kilobytes, "Bytes received a second, lately."),
    ("instantaneous_output_kbps", Kilobytes, "Bytes sent a second, lately."),
    ("instantaneous_input_repl_kbps", Kilobytes, "Those of replication."),
    ("instantaneous_output_repl_kbps", Kilobytes, "Those of replication."),
    ("rejected_connections", Plain, "Connections that were not let in."),
    ("expired_keys", Plain, "Keys that expired."),
    ("expired_fields", Plain, "Fields of hashes that expired."),
    ("expired_stale_perc", Plain, "Always 0: no key is looked at in vain."),
    (
        "expired_keys_with_volatile_items_stale_perc",
        Plain,
        "Always 0: no hash is looked at in vain.",
    ),
    ("evicted_keys", Plain, "Keys evicted for want of memory."),
    ("evicted_clients", Plain, "Clients closed for want of memory."),
    ("evicted_scripts", Plain, "Scripts that left the cache for others."),
    ("keyspace_hits", Plain, "Reads that found their key."),
    ("keyspace_misses", Plain, "Reads that did not."),
    ("pubsub_channels", Plain, "Channels that somebody listens to."),
    ("pubsub_patterns", Plain, "Patterns that somebody listens to."),
    ("pubsubshard_channels", Plain, "Shard channels that somebody listens to."),
    ("migrate_cached_sockets", Plain, "Connections of MIGRATE that are kept."),
    ("tracking_total_keys", Plain, "Keys that clients keep copies of."),
    ("tracking_total_items", Plain, "Copies that clients keep."),
    ("tracking_total_prefixes", Plain, "Beginnings of keys whose changes are broadcast."),
    ("unexpected_error_replies", Plain, "Errors where there should be none."),
    ("total_error_replies", Plain, "Errors answered."),
    ("total_reads_processed", Plain, "Receives from sockets."),
    ("total_writes_processed", Plain, "Sends to sockets."),
    ("client_query_buffer_limit_disconnections", Plain, "Clients closed for long input."),
    ("client_output_buffer_limit_disconnections", Plain, "Clients closed for long output."),
    ("eventloop_cycles", Plain, "Turns of all threads."),
    ("eventloop_duration_sum", Microseconds, "Time between waits, of all threads."),
    ("eventloop_duration_cmd_sum", Microseconds, "Time that commands took."),
    ("instantaneous_eventloop_cycles_per_sec", Plain, "Turns a second, lately."),
    ("instantaneous_eventloop_duration_usec", Microseconds, "How long a turn takes, lately."),
    ("acl_access_denied_auth", Plain, "Attempts to authenticate that failed."),
    ("used_cpu_sys", Seconds, "Processor time in the kernel."),
    ("used_cpu_user", Seconds, "Processor time of the process itself."),
    ("used_cpu_sys_children", Seconds, "Always 0: there are no children."),
    ("used_cpu_user_children", Seconds, "Always 0: there are no children."),
    (
        "worker_threads",
        Plain,
        "Threads that serve clients, as listed, also those that are too many.",
    ),
];
