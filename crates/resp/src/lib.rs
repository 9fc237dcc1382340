//! The Redis serialisation protocol, versions 2 and 3: bytes to arguments, replies to bytes, and
//! replies back to values for clients. There is no I/O here, no clock and no command: the caller
//! owns the buffers, and arguments are slices of them.
//!
//! The reference for every text and every byte is valkey-server 9.1.

#![forbid(unsafe_code)]

mod error;
mod inline;
mod parser;
mod reader;
mod reply;
mod slots;
mod value;

// Arguments are numbers often enough that a parser of requests wants these with it.
pub use bobbin_number::{
    FloatText, append_f64, format_f64, format_f64_as_digits, parse_f64, parse_i64,
};
pub use error::ProtocolError;
pub use inline::split_arguments;
pub use parser::{
    INLINE_LEN_MAX, LARGE_LEN_MIN, Large, Limits, MULTIBULK_LEN_MAX, Parser, Step,
    UNAUTHENTICATED_BULK_LEN_MAX, UNAUTHENTICATED_MULTIBULK_LEN_MAX,
};
pub use reader::{
    REPLY_BULK_LEN_MAX, REPLY_DEPTH_MAX, REPLY_LINE_LEN_MAX, ReplyError, ReplyScanner, read_reply,
};
pub use reply::{
    Aggregate, Deferred, Part, Protocol, Reply, SharedSlice, parts_since, truncate_parts,
};
pub use slots::{SLOTS, key_slot};
pub use value::Value;
