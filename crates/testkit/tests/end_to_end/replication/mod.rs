//! Replicas and their primaries, of Bobbin and of others.

mod answers;
mod bad_links;
mod copies;
mod dialects;
mod dual_channel;
mod failover;
mod full_disks;
mod link;
mod reads;
mod restarts;
mod sentinel;
mod shutdown;
mod streams;
mod threads;
#[cfg(feature = "tls")]
mod tls;
