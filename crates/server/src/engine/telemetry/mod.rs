//! What the server tells of itself: counters, slow and frequent commands, latencies, MONITOR.

pub mod histogram;
pub mod hotkeys;
pub mod latency;
pub mod monitor;
pub mod rates;
pub mod services;
pub mod slowlog;
pub mod stats;
