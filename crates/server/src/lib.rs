//! The server.

pub mod config;
pub mod host;
pub mod logging;
