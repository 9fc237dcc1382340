//! The flags and ACL categories of a command.

use crate::base::bits::bits;

bits! {
    /// What a command does. The names are those of COMMAND INFO, in its order.
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
        /// Waits while writers are paused, though it changes no keys: its effect reaches replicas.
        MAY_REPLICATE = "",
        NO_MANDATORY_KEYS = "no_mandatory_keys",
        PROTECTED = "",
        NO_ASYNC_LOADING = "no_async_loading",
        NO_MULTI = "no_multi",
        MOVABLE_KEYS = "movablekeys",
        ALLOW_BUSY = "allow_busy",
        /// Concerns all keys or the whole process, so it runs with the gate held.
        GATE = "",
        /// Walks over the shards one by one; within a transaction it needs the gate.
        WALKS = "",
        /// Runs or ends a transaction, so MULTI never queues it.
        NOT_QUEUED = "",
        /// EXEC: it also has the flags of the queued commands.
        RUNS_TRANSACTION = "",
        /// Runs a script: it finds out by itself what to lock, and within a transaction may need
        /// the gate.
        RUNS_SCRIPT = "",
        /// Its work is bounded by its words, as that of FAST commands is.
        BRIEF = "",
        /// With one more argument, a count, it may do much work, though it is FAST.
        COUNTED = "",
        /// Allowed to a client that listens and uses RESP2.
        LISTENERS = "",
        /// SELECT: the commands behind it in a transaction use another database.
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

/// Commands that change keys, or that reach replicas for another reason.
pub const WRITERS: Flags = Flags::WRITE.with(Flags::MAY_REPLICATE);
