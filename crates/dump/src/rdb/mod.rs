//! RDB files: a header, items (facts about the file, keys, libraries of functions), an end and a
//! checksum.
//!
//! ```text
//! REDIS0011 | VALKEY080
//! fa name value           a fact about the file
//! fe number               the keys that follow belong to this database
//! fb keys expiring        how many keys it has
//! [fc ms | fd s] [f8 idle | f9 frequency] type key value
//! f5 source               a library of functions
//! ff checksum             the end; eight bytes since version 5, zero for none
//! ```
//! Facts may also stand before the type of a key, as KeyDB has them.
//!
//! Neither the reader nor the writer knows files: bytes go in, or come out, in whatever pieces
//! there are.

mod error;
mod reader;
mod record;
mod skip;
mod writer;

pub use crate::format::Format;
pub use error::RdbError;
pub use reader::{RdbItem, RdbReader};
pub use record::{RdbRecord, RdbValue};
pub use writer::{RdbWriter, Usage};

const FUNCTION: u8 = 245;
const FUNCTION_BEFORE_RELEASE: u8 = 246;
const MODULE_AUX: u8 = 247;
const IDLE: u8 = 248;
const FREQUENCY: u8 = 249;
const AUX: u8 = 250;
const SIZES: u8 = 251;
const EXPIRE_MS: u8 = 252;
const EXPIRE_S: u8 = 253;
const DATABASE: u8 = 254;
const END: u8 = 255;
const SLOT_INFO: u8 = 244;

#[cfg(test)]
mod tests;
