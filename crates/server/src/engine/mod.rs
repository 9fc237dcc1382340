//! What executes commands: the server's state, clients, units of keys, and what they tell others.

pub mod acl;
pub mod blocking;
pub mod buffers;
pub mod client;
pub mod clients;
pub mod command;
pub mod defrag;
pub mod evaluation;
pub mod eviction;
pub mod execution;
pub mod lazyfree;
pub mod log;
pub mod pubsub;
pub mod row;
pub mod script;
pub mod server;
pub mod telemetry;
pub mod tracking;
