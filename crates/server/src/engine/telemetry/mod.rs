//! What the server reports about itself: counters, slow and frequent commands, latencies.

pub mod histogram;
pub mod hotkeys;
pub mod latency;
pub mod rates;
pub mod services;
pub mod slowlog;
pub mod stats;
