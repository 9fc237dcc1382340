//! Metrics under the names of the most used Prometheus exporter for Redis, which dashboards and
//! alerts know. They come in addition to our own names.

use super::exposition::{Exposition, MetricsFormat};

/// Appends the families of [`ALIASES`] under their other names, and a metric that says that the
/// server is up.
pub(super) fn append(exposition: &mut Exposition) {
    let format = exposition.format();
    let text = &mut exposition.text;
    let mut aliases = String::with_capacity(text.len() / 2);
    for (own, other) in ALIASES {
        append_family(text, format, own, other, &mut aliases);
    }
    aliases.push_str("# HELP redis_up Always 1.\n# TYPE redis_up gauge\nredis_up 1\n");
    text.push_str(&aliases);
}

/// Appends a family's lines under another name, if the family exists.
fn append_family(text: &str, format: MetricsFormat, own: &str, other: &str, aliases: &mut String) {
    // In these families only counters end in `_total`.
    let own = format!("bobbin_{}", format.family_of_counter(own));
    let other = format!("redis_{}", format.family_of_counter(other));
    let help = format!("# HELP {own} ");
    let Some(start) = text.find(&help) else { return };
    let lines = text[start..].lines();
    for line in lines.take_while(|line| line.starts_with(&help) || !line.starts_with("# HELP ")) {
        // The other name may not end in the unit.
        if line
            .strip_prefix("# UNIT ")
            .and_then(|rest| rest.split(' ').nth(1))
            .is_some_and(|unit| !other.ends_with(unit))
        {
            continue;
        }
        // A label may contain the name too. Only its first occurrence is replaced.
        aliases.push_str(&line.replacen(&own, &other, 1));
        aliases.push('\n');
    }
}

/// Our names and the other names, without their prefixes.
pub const ALIASES: &[(&str, &str)] = &[
    ("info", "instance_info"),
    ("uptime_seconds", "uptime_in_seconds"),
    ("connected_clients", "connected_clients"),
    ("blocked_clients", "blocked_clients"),
    ("tracking_clients", "tracking_clients"),
    ("used_memory_bytes", "memory_used_bytes"),
    ("used_memory_rss_bytes", "memory_used_rss_bytes"),
    ("used_memory_peak_bytes", "memory_used_peak_bytes"),
    ("used_memory_overhead_bytes", "memory_used_overhead_bytes"),
    ("used_memory_startup_bytes", "memory_used_startup_bytes"),
    ("used_memory_dataset_bytes", "memory_used_dataset_bytes"),
    ("used_memory_lua_bytes", "memory_used_lua_bytes"),
    ("used_memory_scripts_bytes", "memory_used_scripts_bytes"),
    ("maxmemory_bytes", "memory_max_bytes"),
    ("maxmemory_bytes", "config_maxmemory"),
    ("maxclients", "config_maxclients"),
    ("total_system_memory_bytes", "total_system_memory_bytes"),
    ("allocator_allocated_bytes", "allocator_allocated_bytes"),
    ("allocator_active_bytes", "allocator_active_bytes"),
    ("allocator_resident_bytes", "allocator_resident_bytes"),
    ("mem_clients_normal_bytes", "mem_clients_normal"),
    ("mem_fragmentation_ratio", "mem_fragmentation_ratio"),
    ("mem_fragmentation_bytes", "mem_fragmentation_bytes"),
    ("loading", "loading_dump_file"),
    ("rdb_changes_since_last_save", "rdb_changes_since_last_save"),
    ("rdb_last_save_time_seconds", "rdb_last_save_timestamp_seconds"),
    ("rdb_bgsave_in_progress", "rdb_bgsave_in_progress"),
    ("rdb_last_bgsave_ok", "rdb_last_bgsave_status"),
    ("aof_enabled", "aof_enabled"),
    ("aof_rewrite_in_progress", "aof_rewrite_in_progress"),
    ("aof_last_bgrewrite_ok", "aof_last_bgrewrite_status"),
    ("aof_last_write_ok", "aof_last_write_status"),
    ("connections_received_total", "connections_received_total"),
    ("rejected_connections_total", "rejected_connections_total"),
    ("commands_processed_total", "commands_processed_total"),
    ("net_input_bytes_total", "net_input_bytes_total"),
    ("net_output_bytes_total", "net_output_bytes_total"),
    ("keyspace_hits_total", "keyspace_hits_total"),
    ("keyspace_misses_total", "keyspace_misses_total"),
    ("expired_keys_total", "expired_keys_total"),
    ("evicted_keys_total", "evicted_keys_total"),
    ("pubsub_channels", "pubsub_channels"),
    ("pubsub_patterns", "pubsub_patterns"),
    ("connected_slaves", "connected_slaves"),
    ("master_link_up", "master_link_up"),
    ("repl_backlog_active", "repl_backlog_is_active"),
    ("repl_backlog_histlen_bytes", "repl_backlog_history_bytes"),
    ("used_cpu_sys_seconds_total", "cpu_sys_seconds_total"),
    ("used_cpu_user_seconds_total", "cpu_user_seconds_total"),
    ("db_keys", "db_keys"),
    ("db_keys_expiring", "db_keys_expiring"),
    ("db_avg_ttl_seconds", "db_avg_ttl_seconds"),
    ("commands_total", "commands_total"),
    ("commands_duration_seconds_total", "commands_duration_seconds_total"),
    ("commands_rejected_calls_total", "commands_rejected_calls_total"),
    ("commands_failed_calls_total", "commands_failed_calls_total"),
    ("errors_total", "errors_total"),
];

#[cfg(test)]
mod tests {
    use super::*;

    use super::super::exposition::MetricKind;

    #[test]
    fn a_family_is_told_again_under_its_other_name() {
        for (format, expected) in [
            (
                MetricsFormat::Plain,
                "# HELP redis_memory_used_bytes Memory.\n\
                 # TYPE redis_memory_used_bytes gauge\n\
                 redis_memory_used_bytes 7\n\
                 # HELP redis_mem_clients_normal Clients.\n\
                 # TYPE redis_mem_clients_normal gauge\n\
                 redis_mem_clients_normal 3\n\
                 # HELP redis_db_keys_expiring Keys.\n\
                 # TYPE redis_db_keys_expiring gauge\n\
                 # HELP redis_errors_total Errors.\n\
                 # TYPE redis_errors_total counter\n\
                 redis_errors_total{err=\"bobbin_errors_total\"} 1\n\
                 redis_errors_total{err=\"#\"} 2\n\
                 # HELP redis_up Always 1.\n\
                 # TYPE redis_up gauge\n\
                 redis_up 1\n",
            ),
            (
                MetricsFormat::Open,
                "# HELP redis_memory_used_bytes Memory.\n\
                 # TYPE redis_memory_used_bytes gauge\n\
                 # UNIT redis_memory_used_bytes bytes\n\
                 redis_memory_used_bytes 7\n\
                 # HELP redis_mem_clients_normal Clients.\n\
                 # TYPE redis_mem_clients_normal gauge\n\
                 redis_mem_clients_normal 3\n\
                 # HELP redis_db_keys_expiring Keys.\n\
                 # TYPE redis_db_keys_expiring gauge\n\
                 # HELP redis_errors Errors.\n\
                 # TYPE redis_errors counter\n\
                 redis_errors_total{err=\"bobbin_errors_total\"} 1\n\
                 redis_errors_total{err=\"#\"} 2\n\
                 # HELP redis_up Always 1.\n\
                 # TYPE redis_up gauge\n\
                 redis_up 1\n\
                 # EOF\n",
            ),
        ] {
            let mut text = Exposition::new(format);
            text.family("used_memory_bytes", MetricKind::Gauge, "Memory.");
            text.sample("used_memory_bytes", &[], 7);
            text.family("mem_clients_normal_bytes", MetricKind::Gauge, "Clients.");
            text.sample("mem_clients_normal_bytes", &[], 3);
            text.family("db_keys_expiring", MetricKind::Gauge, "Keys.");
            text.family("errors_total", MetricKind::Counter, "Errors.");
            text.sample("errors_total", &[("err", "bobbin_errors_total")], 1);
            text.sample("errors_total", &[("err", "#")], 2);
            let own = text.text.clone();
            append(&mut text);
            assert_eq!(text.finish(), own + expected);
        }
    }
}
