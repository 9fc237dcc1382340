//! Directives in files of other servers that are not options of Bobbin.

/// Directives of other servers that can be skipped without losing data or giving access to anybody,
/// each with the reason why Bobbin does not need it.
pub(super) const FOREIGN: &[(&str, &str)] = &[
    ("cluster-compatibility-sample-ratio", "Redis 8 counts by it what a cluster would refuse"),
    ("key-memory-histograms", "Redis 8 counts sizes by it"),
    ("lookahead", "a turn reads what has come"),
    ("min-clients-per-thread", "connections are spread evenly"),
    ("repl-rdb-channel", "it is Redis 8's dual-channel-replication-enabled"),
    ("replica-full-sync-buffer-limit", "client-output-buffer-limit replica bounds that buffer"),
    ("server-thread-affinity", "it is KeyDB's; server-cpulist says it here"),
    ("server-threads", "it is KeyDB's; io-threads says it here"),
];

/// Directives that Valkey reads and ignores. Each takes one value.
pub(super) const OBSOLETE: &[&str] = &[
    "events-per-io-thread",
    "list-max-ziplist-entries",
    "list-max-ziplist-value",
    "lua-replicate-commands",
    "sanitize-dump-payload",
];
