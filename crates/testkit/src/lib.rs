//! What the tests are made of: servers on free ports, transcripts that are replayed on Bobbin and
//! on a real peer, and a checker of concurrent histories.
//!
//! Nothing in here knows how Bobbin works inside. A server is a binary that takes redis.conf-style
//! flags and speaks RESP; Valkey, Redis and Bobbin are started and judged in the same way.

pub mod cluster;
pub mod connection;
pub mod disk;
pub mod history;
pub mod linearizability;
pub mod pages;
pub mod peers;
pub mod power;
pub mod random;
pub mod reply;
pub mod server;
pub mod shell;
#[cfg(feature = "tls")]
pub mod tls;
pub mod transcript;

pub use connection::{Connection, Received};
pub use reply::Reply;
pub use server::Server;
