//! server
pub mod io;
