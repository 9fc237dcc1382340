//! The Redis serialisation protocol, versions 2 and 3. It turns bytes into arguments, replies into
//! bytes, and, for clients, replies back into values. It does no I/O, reads no clock and knows no
//! command. The caller has the buffers, and arguments are slices of them.
//!
//! valkey-server 9.1 is the reference for every text and every byte.

#![forbid(unsafe_code)]

mod error;
mod inline;
mod parser;
mod reader;
mod reply;
mod slots;
mod value;

// Arguments are often numbers, so code that parses requests usually needs these too.
pub use bobbin_text::{
    FloatText, append_f64, format_f64, format_f64_as_digits, parse_f64, parse_i64,
};
pub use error::ProtocolError;
pub use inline::split_arguments;
pub use parser::{
    INLINE_LEN_MAX, LARGE_LEN_MIN, LargeArgument, Limits, MULTIBULK_LEN_MAX, ParseStep, Parser,
    UNAUTHENTICATED_BULK_LEN_MAX, UNAUTHENTICATED_MULTIBULK_LEN_MAX,
};
pub use reader::{
    REPLY_BULK_LEN_MAX, REPLY_DEPTH_MAX, REPLY_ELEMENTS_MAX, REPLY_LINE_LEN_MAX, ReplyError,
    ReplyScanner, read_reply,
};
pub use reply::{
    Aggregate, Deferred, Protocol, Reply, ReplyPart, SharedSlice, parts_since, truncate_parts,
};
pub use slots::{SLOTS, key_slot};
pub use value::Value;
