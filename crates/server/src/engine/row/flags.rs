//! The flags and ACL categories of a command.

use crate::base::bits::bits;

bits! {
    /// What a command does, with the names that COMMAND INFO shows, in its order.
    Flags: u64 {
        WRITE = "write",
        READONLY = "readonly",
        DENYOOM = "denyoom",
        ADMIN = "admin",
        PUBSUB = "pubsub",
        NOSCRIPT = "noscript",
        BLOCKING = "blocking",
        LOADING = "loading",
        STALE = "stale",
        SKIP_MONITOR = "skip_monitor",
        SKIP_SLOWLOG = "skip_commandlog",
        ASKING = "asking",
        FAST = "fast",
        NO_AUTH = "no_auth",
        /// Waits while writers are paused, though it is none: what it does reaches replicas.
        MAY_REPLICATE = "",
        NO_MANDATORY_KEYS = "no_mandatory_keys",
        PROTECTED = "",
        NO_ASYNC_LOADING = "no_async_loading",
        NO_MULTI = "no_multi",
        MOVABLE_KEYS = "movablekeys",
        ALLOW_BUSY = "allow_busy",
        /// Concerns all keys, or all of the process: runs with the gate.
        GATE = "",
        /// Walks shards one by one when alone, and needs the gate inside a transaction.
        WALKS = "",
        /// Carries out or leaves a transaction: is never queued by MULTI.
        NOT_QUEUED = "",
        /// EXEC: its flags are those of what was queued, too.
        EXECUTES = "",
        /// A script: finds out itself what it has to hold, and inside a transaction needs the gate.
        RUNS = "",
        /// Its work is bounded by its words, as that of FAST commands is.
        BRIEF = "",
        /// With an argument more it does as much work as that says, though it is FAST.
        COUNTED = "",
        /// What a client may do that listens and has RESP2.
        LISTENERS = "",
        /// SELECT: what follows it in a transaction works on another database.
        SELECTS = "",
    }
}

bits! {
    /// The ACL categories, with their names.
    Categories: u64 {
        KEYSPACE = "keyspace",
        READ = "read",
        WRITE = "write",
        SET = "set",
        SORTEDSET = "sortedset",
        LIST = "list",
        HASH = "hash",
        STRING = "string",
        BITMAP = "bitmap",
        HYPERLOGLOG = "hyperloglog",
        GEO = "geo",
        STREAM = "stream",
        PUBSUB = "pubsub",
        ADMIN = "admin",
        FAST = "fast",
        SLOW = "slow",
        BLOCKING = "blocking",
        DANGEROUS = "dangerous",
        CONNECTION = "connection",
        TRANSACTION = "transaction",
        SCRIPTING = "scripting",
    }
}

impl Categories {
    /// A command's own categories and those that follow from its flags.
    pub const fn complete(self, flags: Flags) -> Self {
        let mut all = self;
        if flags.has(Flags::WRITE) {
            all = all.with(Self::WRITE);
        }
        if flags.has(Flags::READONLY) && !self.has(Self::SCRIPTING) {
            all = all.with(Self::READ);
        }
        if flags.has(Flags::ADMIN) {
            all = all.with(Self::ADMIN).with(Self::DANGEROUS);
        }
        if flags.has(Flags::PUBSUB) {
            all = all.with(Self::PUBSUB);
        }
        if flags.has(Flags::BLOCKING) {
            all = all.with(Self::BLOCKING);
        }
        all.with(if flags.has(Flags::FAST) { Self::FAST } else { Self::SLOW })
    }
}

/// Commands that change keys, or go to replicas for another reason.
pub const WRITERS: Flags = Flags::WRITE.with(Flags::MAY_REPLICATE);
