//! Buffers of a connection: bytes that it has received and not executed, and bytes to send.

pub mod input;
pub mod output;
pub mod pieces;
