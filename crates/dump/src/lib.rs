//! Redis's serialised value formats: what DUMP returns and RESTORE takes, and what RDB files hold.
//! There are no files here and no keyspace: bytes to values and back.
//!
//! The formats are those of valkey 9.1, which writes RDB version 80 and also reads what Redis up to
//! 7.2 wrote (versions 1 to 11).

#![forbid(unsafe_code)]

mod crc64;
mod error;
mod format;
mod input;
mod kind;
mod length;
mod lzf;
mod options;
mod payload;
pub mod rdb;
mod value;

pub use crc64::crc64;
pub use error::PayloadError;
pub use kind::ValueKind;
pub use lzf::{LZF_INPUT_LEN_MAX, lzf_compress, lzf_decompress};
pub use options::{DumpOptions, RDB_VERSION, STRING_LEN_MAX, VersionCheck};
pub use payload::{
    Payload, append_collection_payload, append_functions_payload, append_string_payload,
    dump_string, parse_functions_payload, parse_payload, parse_payload_with,
};
pub use value::string::{append_stored_string, append_string};
pub use value::{CollectionTarget, SerializedCollection};
