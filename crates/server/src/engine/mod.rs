//! What executes commands: the server's state, clients, units of keys, and what they tell others.

pub mod acl;
pub(crate) mod background;
pub mod blocking;
pub mod client;
pub mod command;
pub mod connection;
pub mod eviction;
pub mod histogram;
pub mod hotkeys;
pub mod job;
pub mod latency;
pub mod lazyfree;
pub mod log;
pub mod mailbox;
pub mod monitor;
pub mod notify;
pub mod pause;
pub(crate) mod pressure;
pub mod pubsub;
pub mod rates;
pub mod script;
pub mod server;
pub mod services;
pub mod slowlog;
pub mod stats;
pub mod tracking;
