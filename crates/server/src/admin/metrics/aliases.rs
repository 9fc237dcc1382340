//! The names that dashboards and alerts for Redis know, from the exporter for Prometheus that is
//! mostly used with it, beside our own.

/// Appends the families of [`ALIASES`] once more, under the other names, and that the server is up.
pub(super) fn append(text: &mut String) {
    let mut aliases = String::with_capacity(text.len() / 2);
    for (own, other) in ALIASES {
        append_family(text, own, other, &mut aliases);
    }
    aliases.push_str("# HELP redis_up Always 1.\n# TYPE redis_up gauge\nredis_up 1\n");
    text.push_str(&aliases);
}

/// Appends a family's lines under another name, if the family is there.
fn append_family(text: &str, own: &str, other: &str, aliases: &mut String) {
    let own = format!("bobbin_{own}");
    let Some(start) = text.find(&format!("# HELP {own} ")) else { return };
    let lines = text[start..].lines();
    for (number, line) in lines.enumerate() {
        // Its own HELP and TYPE come first.
        if number >= 2 && line.starts_with('#') {
            break;
        }
        // A label may hold the name, too: it is the first place that counts.
        aliases.push_str(&line.replacen(&own, &format!("redis_{other}"), 1));
        aliases.push('\n');
    }
}

/// Our names and the others, without what they begin with.
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
    ("used_memory_lua", "memory_used_lua_bytes"),
    ("maxmemory_bytes", "memory_max_bytes"),
    ("mem_fragmentation_ratio", "mem_fragmentation_ratio"),
    ("mem_fragmentation_bytes", "mem_fragmentation_bytes"),
    ("loading", "loading_dump_file"),
    ("rdb_changes_since_last_save", "rdb_changes_since_last_save"),
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

    #[test]
    fn a_family_is_told_again_under_its_other_name() {
        let mut text = "# HELP bobbin_used_memory_bytes Memory.\n\
                        # TYPE bobbin_used_memory_bytes gauge\n\
                        bobbin_used_memory_bytes 7\n\
                        # HELP bobbin_db_keys_expiring Keys.\n\
                        # TYPE bobbin_db_keys_expiring gauge\n\
                        # HELP bobbin_errors_total Errors.\n\
                        # TYPE bobbin_errors_total counter\n\
                        bobbin_errors_total{err=\"bobbin_errors_total\"} 1\n\
                        bobbin_errors_total{err=\"#\"} 2\n"
            .to_owned();
        let own = text.clone();
        append(&mut text);
        let expected = "# HELP redis_memory_used_bytes Memory.\n\
                        # TYPE redis_memory_used_bytes gauge\n\
                        redis_memory_used_bytes 7\n\
                        # HELP redis_db_keys_expiring Keys.\n\
                        # TYPE redis_db_keys_expiring gauge\n\
                        # HELP redis_errors_total Errors.\n\
                        # TYPE redis_errors_total counter\n\
                        redis_errors_total{err=\"bobbin_errors_total\"} 1\n\
                        redis_errors_total{err=\"#\"} 2\n\
                        # HELP redis_up Always 1.\n\
                        # TYPE redis_up gauge\n\
                        redis_up 1\n";
        assert_eq!(text, own + expected);
    }
}
