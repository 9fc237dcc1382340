//! What few servers need, in one word.

use std::sync::atomic::{AtomicU32, Ordering};

/// What few servers need, in one word: most commands look no further than that it is zero. On a
/// line of its own: every command reads it, and it hardly ever changes.
#[derive(Default)]
#[repr(align(128))]
pub struct Switches(AtomicU32);

/// Bits of `Switches`. They change under the gate, so no thread sees one change in mid-command.
pub struct Switch;
impl Switch {
    /// `maxmemory` is set.
    pub const MAXMEMORY: u32 = 1 << 0;
    /// Clients are paused.
    pub const PAUSED: u32 = 1 << 1;
    /// A client monitors.
    pub const MONITORED: u32 = 1 << 2;
    /// DEBUG SET-ACTIVE-EXPIRE 0: dead keys wait until they are looked at.
    pub const NO_ACTIVE_EXPIRE: u32 = 1 << 3;
    /// DEBUG PAUSE-CRON 1: nothing is done by the clock.
    pub const CRON_PAUSED: u32 = 1 << 4;
    /// The memory of all clients is counted.
    pub const CLIENT_MEMORY: u32 = 1 << 5;
    /// A file is loaded: there is little to be had yet.
    pub const LOADING: u32 = 1 << 6;
    /// The last snapshot failed.
    pub const SAVE_FAILED: u32 = 1 << 7;
    /// A cut is walked, for a snapshot or a rewrite: what changes is kept for it.
    pub const CUTTING: u32 = 1 << 8;
    /// The log cannot be written: writes are refused. The log's thread sets it at any time.
    pub const LOG_FAILED: u32 = 1 << 9;
    /// The log's thread is far behind: writes wait. Threads set it at any time, the log's thread
    /// takes it back.
    pub const LOG_BEHIND: u32 = 1 << 10;
    /// Any reason for which writes may have to wait.
    pub const PRESSURE: u32 = Self::CUTTING | Self::LOG_BEHIND;
    /// A script takes long, and pauses so that others can be told. Set while it still holds all
    /// that it has.
    pub const BUSY: u32 = 1 << 11;
    /// Clients keep copies of keys and are told when they change. A worker sets it for a client of
    /// its own, with no gate: it concerns that client's later commands.
    pub const TRACKED: u32 = 1 << 12;
    /// HOTKEYS looks at the sizes of keys. Set at any time: it is no matter which command is the
    /// first.
    pub const SIZED: u32 = 1 << 13;
    /// DEBUG SET-DISABLE-DENY-SCRIPTS 1: scripts may run nearly every command.
    pub const SCRIPTS_UNBOUND: u32 = 1 << 14;
    /// The server is a replica: its keys are its primary's.
    pub const REPLICA: u32 = 1 << 15;
    /// The server is a replica that has no connection to its primary.
    pub const LINK_DOWN: u32 = 1 << 16;
    /// Writes are refused, as too few replicas have them.
    pub const FEW_REPLICAS: u32 = 1 << 17;
    /// `import-mode` is on: a source fills the keyspace, and nothing dies meanwhile.
    pub const IMPORT: u32 = 1 << 18;
    /// Another data set is loaded beside the one that clients work with.
    pub const LOADING_ASIDE: u32 = 1 << 20;
    /// Writes are refused, as the disk does not take them.
    pub const DISK_FAILED: u32 = Self::SAVE_FAILED | Self::LOG_FAILED;
    /// What is looked at once a command has run.
    pub const ONLOOKERS: u32 = Self::MONITORED | Self::TRACKED | Self::SIZED;
    /// What may keep a command from running, or must be handled before it runs: all the others.
    pub const GUARDED: u32 = !(Self::TRACKED | Self::SIZED);
}

impl Switches {
    #[inline(always)]
    pub fn load(&self) -> u32 {
        self.0.load(Ordering::Relaxed)
    }

    pub fn set(&self, bit: u32, on: bool) {
        if on {
            self.0.fetch_or(bit, Ordering::Relaxed);
        } else {
            self.0.fetch_and(!bit, Ordering::Relaxed);
        }
    }
}
