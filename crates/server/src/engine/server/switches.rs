//! The states of the server that are rare, one bit each.

use std::sync::atomic::{AtomicU32, Ordering};

/// The rare states of the server in one word. For most commands the word is zero, and one load
/// tells so. It has a cache line of its own, as every command reads it and it hardly ever changes.
#[derive(Default)]
#[repr(align(128))]
pub struct Switches(AtomicU32);

/// Bits of `Switches`. They change with the gate held, so that no command sees a change halfway,
/// unless their comment says otherwise.
pub struct Switch;
impl Switch {
    /// `maxmemory` is set.
    pub const MAXMEMORY: u32 = 1 << 0;
    /// Clients are paused.
    pub const PAUSED: u32 = 1 << 1;
    /// A client uses MONITOR.
    pub const MONITORED: u32 = 1 << 2;
    /// DEBUG SET-ACTIVE-EXPIRE 0: expired keys are deleted only when a command looks at them.
    pub const NO_ACTIVE_EXPIRE: u32 = 1 << 3;
    /// DEBUG PAUSE-CRON 1: nothing is done by the timer.
    pub const CRON_PAUSED: u32 = 1 << 4;
    /// `maxmemory-clients`: the memory of all clients is counted.
    pub const CLIENT_MEMORY: u32 = 1 << 5;
    /// A file is being loaded, so most commands are refused.
    pub const LOADING: u32 = 1 << 6;
    /// The last snapshot failed.
    pub const SAVE_FAILED: u32 = 1 << 7;
    /// A cut is being walked, for a snapshot or a rewrite. Entries are copied to it before they
    /// change.
    pub const CUTTING: u32 = 1 << 8;
    /// The log cannot be written, so writes are refused. The log's thread sets this at any time.
    pub const LOG_FAILED: u32 = 1 << 9;
    /// The log's thread is far behind, so writes wait. Threads set this at any time; the log's
    /// thread clears it.
    pub const LOG_BEHIND: u32 = 1 << 10;
    /// All reasons for which writes may have to wait.
    pub const PRESSURE: u32 = Self::CUTTING | Self::LOG_BEHIND;
    /// A slow script pauses so that clients can be told of it. Set while the script still holds all
    /// its shards.
    pub const BUSY: u32 = 1 << 11;
    /// Clients keep copies of keys and are told when they change. A worker sets this for a client
    /// of its own, without the gate, as it concerns that client's later commands only.
    pub const TRACKED: u32 = 1 << 12;
    /// HOTKEYS looks at the sizes of keys. Set at any time, as it does not matter which command is
    /// the first.
    pub const SIZED: u32 = 1 << 13;
    /// DEBUG SET-DISABLE-DENY-SCRIPTS 1: scripts may run nearly every command.
    pub const SCRIPTS_UNBOUND: u32 = 1 << 14;
    /// The server is a replica, whose keys come from its primary.
    pub const REPLICA: u32 = 1 << 15;
    /// The server is a replica that has no connection to its primary.
    pub const LINK_DOWN: u32 = 1 << 16;
    /// Writes are refused because too few replicas are in touch.
    pub const FEW_REPLICAS: u32 = 1 << 17;
    /// `import-mode` is on: a source fills the keyspace, and no key expires meanwhile.
    pub const IMPORT: u32 = 1 << 18;
    /// Another data set is being loaded beside the one that clients use.
    pub const LOADING_ASIDE: u32 = 1 << 19;
    /// DEBUG PAUSE-AFTER-FORK 1: a replica stops itself before it asks for the stream behind a copy
    /// that comes on a connection of its own.
    pub const STOPS_BEFORE_STREAM: u32 = 1 << 20;
    /// Writes are refused because the disk does not take them.
    pub const DISK_FAILED: u32 = Self::SAVE_FAILED | Self::LOG_FAILED;
    /// The states that are looked at after a command has run.
    pub const ONLOOKERS: u32 = Self::MONITORED | Self::TRACKED | Self::SIZED;
    /// The states that are looked at before a command runs: all others.
    pub const GUARDED: u32 = !(Self::TRACKED | Self::SIZED);
}

impl Switches {
    #[inline(always)]
    pub fn load(&self) -> u32 {
        self.0.load(Ordering::Relaxed)
    }

    /// Whether one of these is on.
    #[inline(always)]
    pub fn has(&self, bits: u32) -> bool {
        self.load() & bits != 0
    }

    pub fn set(&self, bit: u32, on: bool) {
        if on {
            self.0.fetch_or(bit, Ordering::Relaxed);
        } else {
            self.0.fetch_and(!bit, Ordering::Relaxed);
        }
    }
}
