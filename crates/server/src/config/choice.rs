//! Options whose value is one of a few words.

/// Declares an enum with the words that name its variants in a configuration, and the conversion to
/// and from the number stored in [`super::Config`]. A variant may have several words; the first one
/// is shown.
macro_rules! choices {
    ($($(#[$doc:meta])* $type:ident { $($variant:ident = $word:literal $(| $other:literal)*,)* })*) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[repr(u8)]
        pub enum $type { $($variant,)* }

        impl $type {
            /// Each word with the number of its variant, in the order of error texts.
            pub const WORDS: &'static [(&'static str, i64)] =
                &[$(($word, Self::$variant as i64), $(($other, Self::$variant as i64),)*)*];

            /// The word that CONFIG GET shows.
            pub const fn word(self) -> &'static str {
                match self { $(Self::$variant => $word,)* }
            }

            pub(super) const fn from_number(number: i64) -> Self {
                const ALL: &[$type] = &[$($type::$variant,)*];
                // All numbers come from `WORDS`. The bound makes a mistake show the last variant
                // instead of a panic.
                let last = ALL.len() - 1;
                let index = number as usize;
                if index > last { ALL[last] } else { ALL[index] }
            }
        }
    )*};
}

choices! {
    /// `maxmemory-policy`: which keys are evicted when memory is full.
    MaxmemoryPolicy {
        VolatileLru = "volatile-lru",
        VolatileLfu = "volatile-lfu",
        VolatileRandom = "volatile-random",
        VolatileTtl = "volatile-ttl",
        AllkeysLru = "allkeys-lru",
        AllkeysLfu = "allkeys-lfu",
        AllkeysRandom = "allkeys-random",
        Noeviction = "noeviction",
    }
    /// `loglevel`.
    LogLevel {
        Debug = "debug",
        Verbose = "verbose",
        Notice = "notice",
        Warning = "warning",
        Nothing = "nothing",
    }
    /// `log-format`.
    LogFormat { Legacy = "legacy", Logfmt = "logfmt", Json = "json", }
    /// `log-timestamp-format`.
    LogTimestampFormat { Legacy = "legacy", Iso8601 = "iso8601", Milliseconds = "milliseconds", }
    /// `syslog-facility`.
    SyslogFacility {
        User = "user",
        Local0 = "local0",
        Local1 = "local1",
        Local2 = "local2",
        Local3 = "local3",
        Local4 = "local4",
        Local5 = "local5",
        Local6 = "local6",
        Local7 = "local7",
    }
    /// `supervised`: how the process reports that it is ready.
    Supervised { Upstart = "upstart", Systemd = "systemd", Auto = "auto", No = "no", }
    /// `enable-debug-command` and similar options: which clients may do something dangerous.
    ProtectedAction { No = "no", Yes = "yes", Local = "local", }
    /// `oom-score-adj`.
    OomScoreAdj { No = "no", Relative = "yes" | "relative", Absolute = "absolute", }
    /// `io-driver`: how workers wait for events.
    IoDriver { Auto = "auto", Epoll = "epoll", IoUring = "io_uring", }
    /// `unsupported-directives`: what the start does with them.
    UnsupportedDirectives { Error = "error", Warn = "warn", }
    /// `hello-server`: the server that HELLO names.
    HelloServer { Redis = "redis", Valkey = "valkey", }
    /// `appendfsync`.
    AppendFsync { Everysec = "everysec", Always = "always", No = "no", }
    /// `rdb-version-check`.
    RdbVersionCheck { Strict = "strict", Relaxed = "relaxed", }
    /// `repl-diskless-load`.
    ReplDisklessLoad {
        Disabled = "disabled",
        OnEmptyDb = "on-empty-db",
        Swapdb = "swapdb",
        FlushBeforeLoad = "flush-before-load",
    }
    /// `acl-pubsub-default`.
    AclPubsubDefault { Allchannels = "allchannels", Resetchannels = "resetchannels", }
    /// `cluster-preferred-endpoint-type`.
    ClusterEndpointType { Ip = "ip", Hostname = "hostname", UnknownEndpoint = "unknown-endpoint", }
    /// `cluster-config-save-behavior`.
    ClusterConfigSave { Sync = "sync", BestEffort = "best-effort", }
    /// `propagation-error-behavior`.
    PropagationError { Ignore = "ignore", Panic = "panic", PanicOnReplicas = "panic-on-replicas", }
    /// `tls-auth-clients`.
    TlsAuthClients { No = "no", Yes = "yes", Optional = "optional", }
    /// `tls-auth-clients-user`.
    TlsAuthClientsUser { Cn = "CN", Uri = "URI", Off = "off", }
}

/// `shutdown-on-sigterm` and `shutdown-on-sigint`: how a signal shuts the server down.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ShutdownFlags(i64);

impl ShutdownFlags {
    /// Each word with its bit, in the order of error texts.
    pub const WORDS: &'static [(&'static str, i64)] = &[
        ("default", 0),
        ("save", 1),
        ("nosave", 2),
        ("now", 4),
        ("force", 8),
        ("safe", 16),
        ("failover", 32),
    ];

    pub(super) const fn from_number(number: i64) -> Self {
        Self(number)
    }

    pub const fn save(self) -> bool {
        self.0 & 1 != 0
    }

    pub const fn nosave(self) -> bool {
        self.0 & 2 != 0
    }

    pub const fn now(self) -> bool {
        self.0 & 4 != 0
    }

    pub const fn force(self) -> bool {
        self.0 & 8 != 0
    }
}

impl MaxmemoryPolicy {
    /// Whether entries record how often they are used, instead of when.
    #[inline]
    pub const fn is_lfu(self) -> bool {
        matches!(self, Self::VolatileLfu | Self::AllkeysLfu)
    }

    /// Whether the policy depends on when keys were used.
    pub const fn is_lru(self) -> bool {
        matches!(self, Self::VolatileLru | Self::AllkeysLru)
    }

    /// Whether the policy depends on the use of keys.
    pub const fn looks_at_use(self) -> bool {
        self.is_lfu() || self.is_lru()
    }
}
