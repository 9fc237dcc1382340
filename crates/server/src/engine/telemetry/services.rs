//! The services that observe the server for its administrator.

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

use bobbin_sync::Mutex;

use crate::base::clock::Clock;
use crate::config::Config;
use crate::engine::telemetry::hotkeys::HotKeys;
use crate::engine::telemetry::latency::LatencyMonitor;
use crate::engine::telemetry::rates::{Rates, Traffic};
use crate::engine::telemetry::slowlog::CommandLog;
use crate::system::host::OomScore;
use crate::system::logging;

/// The services that observe the server.
#[derive(Default)]
#[repr(align(128))]
pub struct Services {
    pub command_log: CommandLog,
    pub hot_keys: HotKeys,
    pub latency: LatencyMonitor,
    pub rates: Rates,
    pub replication_traffic: Traffic,
    pub oom_score: Mutex<OomScore>,
    /// The number of connections up to the last CONFIG RESETSTAT.
    connections_forgotten: AtomicU64,
    /// DEBUG SET-SKIP-CHECKSUM-VALIDATION: RESTORE trusts its payloads.
    pub skip_checksums: AtomicBool,
    /// Bytes in use once everything had started; 0 before that.
    pub startup_bytes: AtomicUsize,
}

impl Services {
    pub fn new(config: &Config, clock: &Clock) -> Self {
        let services = Self::default();
        services.follow(config, clock);
        services.follow_role(config, config.names_primary());
        services
    }

    /// Applies the current configuration.
    pub fn follow(&self, config: &Config, clock: &Clock) {
        self.hot_keys.while_steady(|is_active| {
            self.command_log.follow(config, |us| clock.ticks(us), is_active);
        });
    }

    /// Applies the server's new role: replica or primary.
    pub fn follow_role(&self, config: &Config, is_replica: bool) {
        logging::show_replica(is_replica);
        // It logs by itself what it cannot do.
        drop(self.oom_score.lock().apply(config, is_replica));
    }

    /// The number of connections since CONFIG RESETSTAT. `all`: the number since the start.
    pub fn connections_received(&self, all: u64) -> u64 {
        all.saturating_sub(self.connections_forgotten.load(Ordering::Relaxed))
    }

    /// CONFIG RESETSTAT. `connections`: the number of connections since the start.
    pub fn reset_statistics(&self, connections: u64) {
        self.rates.reset();
        self.replication_traffic.reset();
        self.connections_forgotten.store(connections, Ordering::Relaxed);
    }
}
