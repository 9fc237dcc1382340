//! The part of the server that executes commands: the shared state, clients, keys and units, and
//! the messages that changes cause.

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
