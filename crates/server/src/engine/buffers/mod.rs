//! What a connection has received and not executed yet, and what it is to send.

pub mod input;
pub mod output;
