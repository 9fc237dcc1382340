//! The table of options. Each option is defined here and nowhere else.
//!
//! Names, bounds and defaults are those of valkey-server 9.1.2, unless the option's text says that
//! the default is Bobbin's own.

use std::sync::Arc;

use super::check::*;
use super::choice::*;
use super::kind::OptionKind;
use super::table::{Effect, Flags, OptionRow, Support, dashed, kind, options, read, value_type};
use super::{Config, special};
use Support::{Dormant, Full, Neutral, NotYet, Partial};

/// The most workers.
pub const IO_THREADS_MAX: i64 = 128;

const INT_MIN: i64 = i32::MIN as i64;
const INT_MAX: i64 = i32::MAX as i64;
const UINT_MAX: i64 = u32::MAX as i64;
const LONG_MAX: i64 = i64::MAX;
const SIZE_MAX: u64 = i64::MAX as u64;
const MB: u64 = 1 << 20;
const GB: u64 = 1 << 30;

const CLUSTER: &str = "the cluster";
const MODULES: &str = "modules";
const RDMA: &str = "RDMA";

const NO_CYCLE: Support = Neutral("work is paced by what there is to do, not by a fixed cycle");

options! {
    section "network" {
        /// Addresses to listen on. A leading `-` means that an address that is not available is no
        /// error; `*` is every IPv4 address, `::*` every IPv6 address. An empty value listens on
        /// none.
        bind = words("* -::*", special::bind) => Full, then Listen;
        /// Address that outgoing connections come from.
        bind_source_addr = text("") => Full;
        /// TCP port; 0 listens on no TCP port.
        port = integer(0, 65535, 6379) => Full, then ListenTcp;
        /// Refuse clients from other hosts while the default user has no password.
        protected_mode = yes_no(true) => Full;
        /// Who may set options that could overwrite files, such as `dir`: no, yes, or local
        /// (connections from this host).
        enable_protected_configs = choice(ProtectedAction, No) => Full, flags IMMUTABLE;
        /// Who may run DEBUG: no, yes, or local (connections from this host).
        enable_debug_command = choice(ProtectedAction, No) => Full, flags IMMUTABLE;
        /// Who may run MODULE.
        enable_module_command = choice(ProtectedAction, No) => Dormant(MODULES), flags IMMUTABLE;
        /// Connections that may wait to be accepted. The kernel caps it at net.core.somaxconn.
        tcp_backlog = integer(0, INT_MAX, 511) => Full, flags IMMUTABLE;
        /// Path of a Unix socket to listen on; empty for none.
        unixsocket = text("") => Full, flags IMMUTABLE;
        /// Group that owns the Unix socket.
        unixsocketgroup = text("") => Full, flags IMMUTABLE;
        /// Permissions of the Unix socket in octal; 0 leaves what the umask gives.
        unixsocketperm = octal(0o777, 0) => Full, flags IMMUTABLE;
        /// Seconds without a command after which a client's connection is closed; 0: never.
        timeout = integer(0, INT_MAX, 0) => Full;
        /// Seconds of silence after which the kernel probes whether the client is still there; 0
        /// for never.
        tcp_keepalive = integer(0, INT_MAX, 300) => Full, then Keepalive;
        /// Mark put on the sockets that listen for TCP, and on their connections, for the packet
        /// filter; it takes the capability CAP_NET_ADMIN. 0 for none.
        socket_mark_id = integer(0, UINT_MAX, 0) => Full, flags IMMUTABLE;
        /// Accept MultiPath TCP, where the system has it.
        mptcp = yes_no(false) => Full, flags IMMUTABLE;
        /// New connections accepted in one cycle.
        max_new_connections_per_cycle = integer(1, 1000, 10) =>
            Neutral("a thread of its own accepts, so a burst does not hold up commands");
        /// New TLS connections accepted in one cycle.
        max_new_tls_connections_per_cycle = integer(1, 1000, 1) => Neutral("handshakes are the workers', and connections are spread over them");
    }

    section "threads" {
        /// Threads that read, parse, execute and reply; `auto` is one for each core. Settable while
        /// running: a thread that is too many then keeps the clients that listen to something, and
        /// ends once there are none.
        io_threads = integer_or_auto(1, IO_THREADS_MAX) => Full, then Workers;
        /// Threads beyond the machine's cores get connections only once each of the others has so
        /// many; 0 gives all threads as many. Bobbin's own.
        connections_per_io_thread = integer(0, INT_MAX, 1024) => Full;
        /// What the threads wait with: epoll, io_uring, or auto (io_uring where the kernel allows
        /// it). Bobbin's own.
        io_driver = choice(IoDriver, Auto) => Full, flags IMMUTABLE;
        /// Whether threads also read.
        io_threads_do_reads = yes_no(true) =>
            Neutral("every thread always reads, parses, executes and writes"), flags IMMUTABLE HIDDEN;
        /// Keep the threads awake without work.
        io_threads_always_active = yes_no(false) => Neutral("threads sleep without work"), flags HIDDEN;
        /// Threads from which replies are sent without a copy.
        min_io_threads_avoid_copy_reply = integer(0, INT_MAX, 7) =>
            Neutral("large values are sent without a copy with any number of threads"), flags HIDDEN;
        /// Bytes from which a string is sent without a copy; 0 for never.
        min_string_size_avoid_copy_reply = integer(0, INT_MAX, 16384) => Full, flags HIDDEN;
        /// Bytes from which a string is sent without a copy by several threads.
        min_string_size_avoid_copy_reply_threaded = integer(0, INT_MAX, 65536) =>
            Neutral("min-string-size-avoid-copy-reply holds with any number of threads"), flags HIDDEN;
        /// Keys whose memory is fetched together.
        prefetch_batch_max_size = integer(0, 128, 16) => Neutral("a batch is what one turn of a thread received");
        /// Cores the server's threads may run on, as numbers and ranges: 0-3,8-14:2. Empty for all.
        server_cpulist = text("", core_list) => Full, aliases "server_cpulist", flags IMMUTABLE;
        /// Cores the background threads may run on: they free memory, and get the log to disk.
        bio_cpulist = text("", core_list) => Full, aliases "bio_cpulist", flags IMMUTABLE;
        /// Cores a rewrite of the append-only file may run on.
        aof_rewrite_cpulist = text("", core_list) => Full, aliases "aof_rewrite_cpulist", flags IMMUTABLE;
        /// Cores a snapshot may run on.
        bgsave_cpulist = text("", core_list) => Full, aliases "bgsave_cpulist", flags IMMUTABLE;
    }

    section "general" {
        /// Run in the background.
        daemonize = yes_no(false) => Full, flags IMMUTABLE;
        /// Who started the server and wants to hear that it is ready: no, upstart, systemd, or auto
        /// (by environment).
        supervised = choice(Supervised, No) => Full, flags IMMUTABLE;
        /// File that holds the process id while the server runs; daemons without one use
        /// /var/run/bobbin.pid.
        pidfile = text("") => Full, flags IMMUTABLE;
        /// How much is logged: debug, verbose, notice, warning or nothing.
        loglevel = choice(LogLevel, Notice) => Full, then Logging;
        /// File to log to; empty for the standard output.
        logfile = text("") => Full, flags IMMUTABLE;
        /// Shape of a line of the log: legacy, logfmt (key=value) or json.
        log_format = choice(LogFormat, Legacy) => Full, then Logging;
        /// Times in the log: legacy (local time), iso8601, or milliseconds since 1970.
        log_timestamp_format = choice(LogTimestampFormat, Legacy) => Full, then Logging;
        /// Also log to the system's log.
        syslog_enabled = yes_no(false) => Full, flags IMMUTABLE;
        /// Name used in the system's log. The default is Bobbin's own.
        syslog_ident = text("bobbin") => Full, flags IMMUTABLE;
        /// Facility used in the system's log: user or local0 to local7.
        syslog_facility = choice(SyslogFacility, Local0) => Full, flags IMMUTABLE;
        /// Keep the contents of keys and arguments out of the log.
        hide_user_data_from_log = yes_no(true) => Full;
        /// Log a report when the server crashes.
        crash_log_enabled = yes_no(true) => Full;
        /// Test the memory after a crash.
        crash_memcheck_enabled = yes_no(true) => Neutral("memory is not tested after a crash");
        /// Number of databases.
        databases = integer(1, INT_MAX, 16) => Full, flags IMMUTABLE;
        /// Draw the logo at start even where the log is no terminal.
        always_show_logo = yes_no(false) => Neutral("there is no logo"), flags IMMUTABLE;
        /// Change the title of the process.
        set_proc_title = yes_no(true) => Full, flags IMMUTABLE;
        /// What the title of the process says.
        proc_title_template = text("{title} {listen-addr} {server-mode}", title_template) => Full,
            then Title;
        /// Locale that SORT ALPHA compares by; empty compares bytes, whatever the environment says.
        locale_collate = text("", locale) => Full;
        /// Name of the place this server runs in, shown to clients.
        availability_zone = text("") => Full;
        /// What to do with directives of other servers, or of other versions, that this one cannot
        /// follow: error (do not start), or warn (say so and pass over them). Those without which
        /// data would be lost or access opened are errors in any case. Bobbin's own.
        unsupported_directives = choice(UnsupportedDirectives, Error) => Full, flags IMMUTABLE;
        /// Warnings of the start that are known and wanted to be quiet.
        ignore_warnings = text("") => Neutral("no check at start stops the server");
        /// Name Redis in errors and HELLO, for programs that look for that name.
        extended_redis_compatibility = yes_no(false) => Full;
        /// Version of Redis that HELLO, INFO and scripts report: clients choose commands and
        /// features by it. COMPAT.md says which. Bobbin's own.
        redis_version = text("7.4.0", redis_version) => Full, flags IMMUTABLE;
        /// Server that HELLO names: redis (with redis-version), or valkey (with the version of
        /// Valkey whose commands there are). Bobbin's own.
        hello_server = choice(HelloServer, Redis) => Full;
        /// Calls of background work in a second.
        hz = integer(0, INT_MAX, 10) => NO_CYCLE;
        /// Adapt `hz` to the number of clients.
        dynamic_hz = yes_no(true) => NO_CYCLE, flags HIDDEN;
        /// Work without being given more memory than needed by transparent huge pages.
        disable_thp = yes_no(true) => Full, flags IMMUTABLE;
        /// Adjust how readily the kernel kills this process when memory runs out: no, yes
        /// (relative), or absolute.
        oom_score_adj = choice(OomScoreAdj, No) => Full, then OomScore;
        /// The adjustments of a primary, a replica and a background process.
        oom_score_adj_values = words("0 200 800", special::oom_score_adj_values) => Full,
            then OomScore;
        /// How SIGTERM shuts down: default, or some of nosave, now and force.
        shutdown_on_sigterm = flags(ShutdownFlags, shutdown_flags) =>
            Partial { refused: needs_cluster, remark: "failover needs the cluster" };
        /// How SIGINT shuts down.
        shutdown_on_sigint = flags(ShutdownFlags, shutdown_flags) =>
            Partial { refused: needs_cluster, remark: "failover needs the cluster" };
        /// Seconds a shutdown waits for replicas that lag.
        shutdown_timeout = integer(0, INT_MAX, 10) => Full;
        /// Seed of the hash function, for the same order on several servers.
        hash_seed = text("") => Full, flags IMMUTABLE;
        /// Milliseconds between a watchdog's looks; 0 for no watchdog.
        watchdog_period = integer(0, INT_MAX, 0) => Full, flags HIDDEN, then Watchdog;
        /// Leave by exit rather than abort after a panic.
        use_exit_on_panic = yes_no(false) => Full, flags HIDDEN;
        /// Allow DEBUG's assertions.
        enable_debug_assert = yes_no(false) => Neutral("assertions are chosen when building"),
            flags IMMUTABLE HIDDEN;
        /// Any text, shown in crash reports.
        debug_context = text("") => Full, flags HIDDEN;
    }

    section "security" {
        /// Password that clients must give with AUTH; empty for none.
        requirepass = text("") => Full, flags SENSITIVE, then Password;
        /// File with users and their rights.
        aclfile = text("") => Full, flags IMMUTABLE;
        /// Entries kept of refused commands.
        acllog_max_len = integer(0, LONG_MAX, 128) => Full;
        /// Channels that a new user may use.
        acl_pubsub_default = choice(AclPubsubDefault, Resetchannels) => Full;
    }

    section "clients" {
        /// Connected clients at most.
        maxclients = integer(1, UINT_MAX, 10000) => Full, then OpenFiles;
        /// For each class of clients (normal, replica, pubsub): bytes of unsent replies at which a
        /// client is disconnected, and bytes above which it may stay for how many seconds; 0 for no
        /// limit.
        client_output_buffer_limit = words(
            "normal 0 0 0 slave 268435456 67108864 60 pubsub 33554432 8388608 60",
            special::output_buffer_limits
        ) => Full;
        /// Bytes of one client's unparsed input at most.
        client_query_buffer_limit = memory(MB, SIZE_MAX, GB) => Full;
        /// Bytes that all clients' buffers may take, or a percentage of maxmemory, before the
        /// largest are disconnected; 0 for no limit.
        maxmemory_clients = memory_or_percent(0) => Full, then Switches;
        /// Bytes that all Lua states may take together, and so each of them; never more than half
        /// of maxmemory, nor less than 16 MiB.
        maxmemory_scripts = memory(MB, SIZE_MAX, 256 * MB) => Full, then Switches;
        /// Bytes of one argument at most.
        proto_max_bulk_len = memory(MB, SIZE_MAX, 512 * MB) => Full;
        /// Keys remembered for client-side caching.
        tracking_table_max_keys = integer(0, LONG_MAX, 1_000_000) => Full;
    }

    section "memory" {
        /// Bytes of memory at which eviction, or refusing writes, begins; 0 for no limit.
        maxmemory = memory(0, u64::MAX, 0) => Full, then Maxmemory;
        /// What goes when maxmemory is reached: allkeys or volatile (only keys that expire) with
        /// lru, lfu or random, volatile-ttl (nearest to expiry), or noeviction (writes are
        /// refused).
        maxmemory_policy = choice(MaxmemoryPolicy, Noeviction) => Full;
        /// Keys compared to choose one to evict; more is more exact and slower.
        maxmemory_samples = integer(1, 64, 5) => Full;
        /// How hard eviction works, 0 to 100.
        maxmemory_eviction_tenacity = integer(0, 100, 10) =>
            Neutral("each worker evicts as much as it takes");
        /// How slowly the access counter of LFU grows.
        lfu_log_factor = integer(0, INT_MAX, 10) => Full;
        /// Minutes after which the access counter of LFU is lowered by one; 0 for never.
        lfu_decay_time = integer(0, INT_MAX, 1) => Full;
        /// How much work is put into expiring keys that nobody reads, 1 to 10.
        active_expire_effort = integer(1, 10, 1) =>
            Neutral("an index finds exactly the keys that are due");
        /// Free evicted values in the background.
        lazyfree_lazy_eviction = yes_no(true) => Full;
        /// Free expired values in the background.
        lazyfree_lazy_expire = yes_no(true) => Full;
        /// Free values that commands replace in the background.
        lazyfree_lazy_server_del = yes_no(true) => Full;
        /// Make DEL free in the background, as UNLINK does.
        lazyfree_lazy_user_del = yes_no(true) => Full;
        /// Make FLUSHALL and FLUSHDB free in the background unless told otherwise.
        lazyfree_lazy_user_flush = yes_no(true) => Full;
        /// Grow and shrink tables also without commands.
        activerehashing = yes_no(true) => Neutral("tables are small, and resized where they are used");
        /// Let the allocator give memory back in the background.
        jemalloc_bg_thread = yes_no(true) => Neutral("the allocator is set up when building");
        /// Move blocks of memory together while running, by a thread of its own.
        activedefrag = yes_no(false) => Full, then Defrag;
        /// Largest percentage of that thread's time for defragmentation.
        active_defrag_cycle_max = integer(1, 99, 25) => Full;
        /// Smallest percentage of that thread's time for defragmentation.
        active_defrag_cycle_min = integer(1, 99, 1) => Full;
        /// Microseconds of one cycle of defragmentation.
        active_defrag_cycle_us = integer(0, 100_000, 500) => Full;
        /// Waste below which defragmentation does not start.
        active_defrag_ignore_bytes = memory(1, SIZE_MAX, 100 * MB) => Full;
        /// Fields above which a value is defragmented by itself.
        active_defrag_max_scan_fields = integer(1, LONG_MAX, 1000) => Neutral("large values are moved in steps of a fixed size");
        /// Percentage of waste at which defragmentation starts.
        active_defrag_threshold_lower = integer(0, 1000, 10) => Full;
        /// Percentage of waste at which defragmentation works hardest.
        active_defrag_threshold_upper = integer(0, 1000, 100) => Full;
        /// Expire and evict nothing while a client (CLIENT IMPORT-SOURCE) fills the server.
        import_mode = yes_no(false) => Full, then Switches;
    }

    section "types" {
        /// Fields up to which a hash is kept packed.
        hash_max_listpack_entries = integer(0, LONG_MAX, 512) => Full, aliases "hash-max-ziplist-entries";
        /// Bytes of a field or value up to which a hash is kept packed.
        hash_max_listpack_value = memory(0, SIZE_MAX, 64) => Full, aliases "hash-max-ziplist-value";
        /// Size of one node of a list: elements, or with -1 to -5: 4, 8, 16, 32, 64 KB.
        list_max_listpack_size = integer(INT_MIN, INT_MAX, -2) => Full, aliases "list-max-ziplist-size";
        /// Nodes at each end of a list that are not compressed; 0 compresses none.
        list_compress_depth = integer(0, INT_MAX, 0) => Neutral("lists are kept uncompressed");
        /// Members up to which a set of integers is kept as such.
        set_max_intset_entries = integer(0, LONG_MAX, 512) => Full;
        /// Members up to which a set is kept packed.
        set_max_listpack_entries = integer(0, LONG_MAX, 128) => Full;
        /// Bytes of a member up to which a set is kept packed.
        set_max_listpack_value = integer(0, LONG_MAX, 64) => Full;
        /// Members up to which a sorted set is kept packed.
        zset_max_listpack_entries = integer(0, LONG_MAX, 128) => Full, aliases "zset-max-ziplist-entries";
        /// Bytes of a member up to which a sorted set is kept packed.
        zset_max_listpack_value = memory(0, SIZE_MAX, 64) => Full, aliases "zset-max-ziplist-value";
        /// Bytes up to which a HyperLogLog is kept sparse.
        hll_sparse_max_bytes = memory(0, SIZE_MAX, 3000) => Full;
        /// Bytes of one node of a stream; 0 for no limit.
        stream_node_max_bytes = memory(0, SIZE_MAX, 4096) => Full;
        /// Entries of one node of a stream; 0 for no limit.
        stream_node_max_entries = integer(0, LONG_MAX, 100) => Full;
    }

    section "observation" {
        /// Microseconds from which a command is kept in the slow log; 0 for all, -1 for none.
        commandlog_execution_slower_than = integer(-1, LONG_MAX, 10_000) => Full,
            aliases "slowlog-log-slower-than", then CommandLog;
        /// Entries of the slow log.
        commandlog_slow_execution_max_len = integer(0, LONG_MAX, 128) => Full, aliases "slowlog-max-len",
            then CommandLog;
        /// Bytes of a request from which it is kept in its log; -1 for none.
        commandlog_request_larger_than = integer(-1, LONG_MAX, 1 << 20) => Full, then CommandLog;
        /// Entries of the log of large requests.
        commandlog_large_request_max_len = integer(0, LONG_MAX, 128) => Full, then CommandLog;
        /// Bytes of a reply from which its command is kept in its log; -1 for none.
        commandlog_reply_larger_than = integer(-1, LONG_MAX, 1 << 20) => Full, then CommandLog;
        /// Entries of the log of large replies.
        commandlog_large_reply_max_len = integer(0, LONG_MAX, 128) => Full, then CommandLog;
        /// Milliseconds from which an event is kept by the latency monitor; 0 switches it off.
        latency_monitor_threshold = integer(0, LONG_MAX, 0) => Full, then CommandLog;
        /// Keep the distribution of each command's time.
        latency_tracking = yes_no(true) => Full;
        /// Percentiles that INFO shows of each command's time.
        latency_tracking_info_percentiles = words("50 99 99.9", special::percentiles) => Full;
        /// Port on which metrics are served over HTTP, in Prometheus's text format; 0 for none.
        /// Bobbin's own.
        metrics_port = integer(0, 65535, 0) => Full, flags IMMUTABLE;
        /// Addresses to serve metrics on, in the form of `bind`. Bobbin's own.
        metrics_bind = words("127.0.0.1 -::1", special::bind) => Full, flags IMMUTABLE;
        /// Names that requests for metrics may call this server by, besides addresses, localhost
        /// and the names in metrics-bind; * for any, which lets web pages read them. Bobbin's own.
        metrics_hosts = words("", special::names) => Full;
        /// Which events on keys are published: K (by key), E (by event) and classes of events;
        /// empty for none.
        notify_keyspace_events = letters(special::notification_classes, special::notification_letters) => Full,
            then Switches;
    }

    section "scripts" {
        /// Milliseconds after which a script may be interrupted and others are told that the server
        /// is busy.
        busy_reply_threshold = integer(0, LONG_MAX, 5000) => Full, aliases "lua-time-limit";
        /// Let scripts change the environments of functions (`getfenv`, `setfenv`) and make
        /// userdata (`newproxy`). A change forgets the scripts that EVALSHA knows.
        lua_enable_insecure_api = yes_no(false) => Full,
            aliases "lua-enable-deprecated-api", flags PROTECTED HIDDEN, then Switches;
    }

    section "persistence" {
        /// Directory the server works in: relative paths start there.
        dir = directory() => Full, flags PROTECTED AFTER_LOADING;
        /// When to save a snapshot: pairs of seconds and changes; empty for never.
        save = words("3600 1 300 100 60 10000", special::save_points) => Full;
        /// File of the snapshot.
        dbfilename = text("dump.rdb", snapshot_name) => Full, flags PROTECTED;
        /// Compress strings in snapshots and DUMP.
        rdbcompression = yes_no(true) => Full;
        /// Checksum at the end of snapshots.
        rdbchecksum = yes_no(true) => Full, flags IMMUTABLE;
        /// Whether payloads of newer formats are refused (strict) or tried (relaxed).
        rdb_version_check = choice(RdbVersionCheck, Strict) => Full;
        /// Delete snapshots that served replication.
        rdb_del_sync_files = yes_no(false) => Neutral(
            "a copy for replicas that goes through a file leaves none behind",
        );
        /// Write snapshots to disk in steps.
        rdb_save_incremental_fsync = yes_no(true) => Full;
        /// Microseconds to wait for each key saved.
        rdb_key_save_delay = integer(INT_MIN, INT_MAX, 0) => Full, flags HIDDEN;
        /// Microseconds to wait for each key loaded.
        key_load_delay = integer(INT_MIN, INT_MAX, 0) => Full, flags HIDDEN;
        /// Bytes loaded between looks at the clients.
        loading_process_events_interval_bytes = integer(1024, INT_MAX, 2 << 20) =>
            Neutral("clients are served by other threads while a file is loaded"), flags HIDDEN;
        /// Refuse writes after a snapshot failed.
        stop_writes_on_bgsave_error = yes_no(true) => Full;
        /// Log every write to a file. A log that is new begins with the keys of `dbfilename`.
        appendonly = yes_no(false) => Full, flags AFTER_LOADING, then Log;
        /// Name the files of the log begin with.
        appendfilename = text("appendonly.aof", log_name) => Full, flags IMMUTABLE;
        /// Directory of the files of the log.
        appenddirname = text("appendonlydir", log_directory) => Full, flags IMMUTABLE;
        /// When the log is forced to disk: always, everysec or no.
        appendfsync = choice(AppendFsync, Everysec) => Full, then LogSync;
        /// Do not force the log to disk during a rewrite.
        no_appendfsync_on_rewrite = yes_no(false) => Neutral("the log goes to disk during a rewrite, too");
        /// Growth in percent at which the log is rewritten.
        auto_aof_rewrite_percentage = integer(0, INT_MAX, 100) => Full;
        /// Size below which the log is not rewritten.
        auto_aof_rewrite_min_size = memory(0, SIZE_MAX, 64 * MB) => Full;
        /// Load a log whose end was cut off.
        aof_load_truncated = yes_no(true) => Full;
        /// Begin a rewritten log with a snapshot.
        aof_use_rdb_preamble = yes_no(true) => Full;
        /// Put times into the log.
        aof_timestamp_enabled = yes_no(false) => Full;
        /// Write a rewritten log to disk in steps.
        aof_rewrite_incremental_fsync = yes_no(true) => Full;
        /// Keep old files of the log.
        aof_disable_auto_gc = yes_no(false) => Full, flags HIDDEN, then LogHistory;
    }

    section "replication" {
        /// Host and port of the primary to follow.
        replicaof = words("", special::replica_of) => Full, aliases "slaveof", flags IMMUTABLE;
        /// User to log in as at the primary.
        primaryuser = text("") => Full, aliases "masteruser", flags SENSITIVE;
        /// Password at the primary.
        primaryauth = text("") => Full, aliases "masterauth", flags SENSITIVE;
        /// Answer reads while the primary is away.
        replica_serve_stale_data = yes_no(true) => Full, aliases "slave-serve-stale-data";
        /// Refuse writes as a replica.
        replica_read_only = yes_no(true) => Full, aliases "slave-read-only";
        /// Send the first copy without a file.
        repl_diskless_sync = yes_no(true) => Full;
        /// Seconds to wait for more replicas before the first copy.
        repl_diskless_sync_delay = integer(0, INT_MAX, 5) => Full;
        /// How many waiting replicas end that wait early; 0 for no such number.
        repl_diskless_sync_max_replicas = integer(0, INT_MAX, 0) => Full;
        /// How a replica loads the first copy without a file.
        repl_diskless_load = choice(ReplDisklessLoad, Disabled) => Full, flags AFTER_LOADING;
        /// Send the first copy over a connection of its own.
        dual_channel_replication_enabled = yes_no(false) => Full;
        /// Seconds between a primary's pings.
        repl_ping_replica_period = integer(1, INT_MAX, 10) => Full, aliases "repl-ping-slave-period";
        /// Seconds of silence after which the other side counts as gone.
        repl_timeout = integer(1, INT_MAX, 60) => Full;
        /// Gather small packets to replicas.
        repl_disable_tcp_nodelay = yes_no(false) => Full;
        /// Use MultiPath TCP towards the primary.
        repl_mptcp = yes_no(false) => Full, flags IMMUTABLE;
        /// Bytes kept for replicas that were away.
        repl_backlog_size = memory(1, SIZE_MAX, 10 * MB) => Full, then Backlog;
        /// Seconds without any replica after which the backlog is dropped; 0 for never.
        repl_backlog_ttl = integer(0, LONG_MAX, 3600) => Full;
        /// Rank of this replica when a primary is chosen; 0 for never.
        replica_priority = integer(0, INT_MAX, 100) => Full, aliases "slave-priority";
        /// What to do with a command that fails on a replica.
        propagation_error_behavior = choice(PropagationError, Ignore) => Full;
        /// Go on as a replica when the disk fails.
        replica_ignore_disk_write_errors = yes_no(false) => Full;
        /// Leave eviction to the primary.
        replica_ignore_maxmemory = yes_no(true) => Full, aliases "slave-ignore-maxmemory";
        /// Free the old data in the background before the first copy.
        replica_lazy_flush = yes_no(true) => Full, aliases "slave-lazy-flush";
        /// Be listed by Sentinel.
        replica_announced = yes_no(true) => Full;
        /// Address to be listed with.
        replica_announce_ip = text("") => Full, aliases "slave-announce-ip";
        /// Port to be listed with.
        replica_announce_port = integer(0, 65535, 0) => Full, aliases "slave-announce-port";
        /// Refuse writes while fewer replicas than this keep up; 0 for never.
        min_replicas_to_write = integer(0, INT_MAX, 0) => Full, aliases "min-slaves-to-write", then MinReplicas;
        /// Seconds of silence after which a replica does not keep up.
        min_replicas_max_lag = integer(0, INT_MAX, 10) => Full, aliases "min-slaves-max-lag", then MinReplicas;
    }

    section "cluster" {
        /// Be a node of a cluster.
        cluster_enabled = yes_no(false) => NotYet(CLUSTER), flags IMMUTABLE;
        /// File the node keeps its view in.
        cluster_config_file = text("nodes.conf", cluster_file) => Dormant(CLUSTER), flags IMMUTABLE;
        /// What to do when that file cannot be written.
        cluster_config_save_behavior = choice(ClusterConfigSave, Sync) => Dormant(CLUSTER);
        /// Databases of a node.
        cluster_databases = integer(1, INT_MAX, 1) => Dormant(CLUSTER), flags IMMUTABLE;
        /// Milliseconds after which a node counts as gone.
        cluster_node_timeout = integer(0, LONG_MAX, 15_000) => Dormant(CLUSTER);
        /// Milliseconds between pings.
        cluster_ping_interval = integer(0, LONG_MAX, 0) => Dormant(CLUSTER), flags HIDDEN;
        /// Percentage of the nodes that a node tells others of at once.
        cluster_message_gossip_perc = integer(0, 100, 10) => Dormant(CLUSTER), flags HIDDEN;
        /// Port of the cluster bus; 0 for the port plus 10000.
        cluster_port = integer(0, 65535, 0) => Dormant(CLUSTER), flags IMMUTABLE;
        /// Lag, in units of the timeout, beyond which a replica does not take over.
        cluster_replica_validity_factor = integer(0, INT_MAX, 10) => Dormant(CLUSTER),
            aliases "cluster-slave-validity-factor";
        /// Replicas a primary keeps when others move.
        cluster_migration_barrier = integer(0, INT_MAX, 1) => Dormant(CLUSTER);
        /// Let replicas move to primaries without any.
        cluster_allow_replica_migration = yes_no(true) => Dormant(CLUSTER);
        /// Refuse everything while slots are unowned.
        cluster_require_full_coverage = yes_no(true) => Dormant(CLUSTER);
        /// Never take over.
        cluster_replica_no_failover = yes_no(false) => Dormant(CLUSTER), aliases "cluster-slave-no-failover";
        /// Milliseconds a failover by hand may take.
        cluster_manual_failover_timeout = integer(1, INT_MAX, 5000) => Dormant(CLUSTER);
        /// Answer reads while the cluster is down.
        cluster_allow_reads_when_down = yes_no(false) => Dormant(CLUSTER);
        /// Publish in shards while the cluster is down.
        cluster_allow_pubsubshard_when_down = yes_no(true) => Dormant(CLUSTER);
        /// Bytes that may wait for another node.
        cluster_link_sendbuf_limit = memory(0, u64::MAX, 0) => Dormant(CLUSTER);
        /// Seconds a forgotten node stays away.
        cluster_blacklist_ttl = integer(i64::MIN, LONG_MAX, 60) => Dormant(CLUSTER);
        /// Address to be known by.
        cluster_announce_ip = text("", announced_ip) => Dormant(CLUSTER);
        /// IPv4 address told to clients.
        cluster_announce_client_ipv4 = text("", ipv4) => Dormant(CLUSTER);
        /// IPv6 address told to clients.
        cluster_announce_client_ipv6 = text("", ipv6) => Dormant(CLUSTER);
        /// Port told to clients.
        cluster_announce_client_port = integer(0, 65535, 0) => Dormant(CLUSTER);
        /// TLS port told to clients.
        cluster_announce_client_tls_port = integer(0, 65535, 0) => Dormant(CLUSTER);
        /// Port to be known by.
        cluster_announce_port = integer(0, 65535, 0) => Dormant(CLUSTER);
        /// TLS port to be known by.
        cluster_announce_tls_port = integer(0, 65535, 0) => Dormant(CLUSTER);
        /// Port of the bus to be known by.
        cluster_announce_bus_port = integer(0, 65535, 0) => Dormant(CLUSTER);
        /// Host name to be known by.
        cluster_announce_hostname = text("", announced_hostname) => Dormant(CLUSTER);
        /// Name for people, shown in logs.
        cluster_announce_human_nodename = text("", announced_nodename) => Dormant(CLUSTER);
        /// What clients are told: ip, hostname or unknown-endpoint.
        cluster_preferred_endpoint_type = choice(ClusterEndpointType, Ip) => Dormant(CLUSTER);
        /// Entries kept of moved slots.
        cluster_slot_migration_log_max_len = integer(0, LONG_MAX, 1000) => Dormant(CLUSTER);
        /// Count for each slot.
        cluster_slot_stats_enabled = yes_no(false) => Dormant(CLUSTER);
        /// Bytes that may be left when a slot's owner changes; -1 for any.
        slot_migration_max_failover_repl_bytes = signed_memory(-1, LONG_MAX, 0) => Dormant(CLUSTER);
    }

    section "tls" {
        /// Port for TLS; 0 listens on none.
        tls_port = integer(0, 65535, 0) => Full, then ListenTls;
        /// Certificate of the server.
        tls_cert_file = text("") => Full, flags VOLATILE, then Tls;
        /// Its private key.
        tls_key_file = text("") => Full, flags VOLATILE, then Tls;
        /// Password of that key.
        tls_key_file_pass = text("") => Full, flags SENSITIVE, then Tls;
        /// Certificate for outgoing connections.
        tls_client_cert_file = text("") => Full, flags VOLATILE, then Tls;
        /// Its private key.
        tls_client_key_file = text("") => Full, flags VOLATILE, then Tls;
        /// Password of that key.
        tls_client_key_file_pass = text("") => Full, flags SENSITIVE, then Tls;
        /// Diffie-Hellman parameters.
        tls_dh_params_file = text("") => NotYet("Diffie-Hellman over prime fields; keys are agreed on over elliptic curves"),
            flags IGNORABLE, then Tls;
        /// File of trusted authorities.
        tls_ca_cert_file = text("") => Full, flags VOLATILE, then Tls;
        /// Directory of trusted authorities.
        tls_ca_cert_dir = text("") => Full, flags VOLATILE, then Tls;
        /// Whether clients must show a certificate: yes, no or optional.
        tls_auth_clients = choice(TlsAuthClients, Yes) => Full, then Tls;
        /// Field of the certificate that names the user.
        tls_auth_clients_user = choice(TlsAuthClientsUser, Off) => Full;
        /// Seconds between looks for new certificates; 0 for never.
        tls_auto_reload_interval = integer(0, INT_MAX, 0) => Full, then TlsReload;
        /// Use TLS towards the primary.
        tls_replication = yes_no(false) => Full, then Tls;
        /// Use TLS on the cluster bus.
        tls_cluster = yes_no(false) => NotYet(CLUSTER);
        /// Versions allowed.
        tls_protocols = text("") => Full, then Tls;
        /// Ciphers allowed up to version 1.2.
        tls_ciphers = text("") => Full, then Tls;
        /// Ciphers allowed in version 1.3.
        tls_ciphersuites = text("") => Full, then Tls;
        /// Choose the cipher by the server's order.
        tls_prefer_server_ciphers = yes_no(false) => Full, then Tls;
        /// Let clients resume sessions.
        tls_session_caching = yes_no(true) => Full, then Tls;
        /// Sessions remembered.
        tls_session_cache_size = integer(0, INT_MAX, 20480) => Full, then Tls;
        /// Seconds they are remembered.
        tls_session_cache_timeout = integer(0, INT_MAX, 300) => Full, then Tls;
    }

    section "rdma" {
        /// Addresses for RDMA.
        rdma_bind = words("", special::names) => NotYet(RDMA), flags IGNORABLE;
        /// Port for RDMA; 0 listens on none.
        rdma_port = integer(0, 65535, 0) => NotYet(RDMA), flags IGNORABLE;
        /// Bytes of a receive buffer.
        rdma_rx_size = integer(64 << 10, 16 << 20, 1 << 20) => Dormant(RDMA), flags IMMUTABLE;
        /// Completion vector; -1 for any.
        rdma_completion_vector = integer(-1, 1024, -1) => Dormant(RDMA), flags IMMUTABLE;
    }
}

#[cfg(test)]
mod tests;
