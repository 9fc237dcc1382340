//! The process among others on its machine: its log, its title, its files and its limits.

pub mod daemon;
pub mod host;
pub mod logging;
pub mod title;
pub(crate) mod tls;
