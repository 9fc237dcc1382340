//! Why a file cannot be read.

use std::{error, fmt};

/// The reason why a file cannot be read. `Display` says it in the words that Redis's log has for
/// it, where it has any.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum RdbError {
    /// It does not begin as an RDB file does.
    Signature,
    /// A version that is not known.
    Version(u16),
    /// A byte that announces nothing known.
    Unknown {
        byte: u8,
        offset: u64,
    },
    /// A value of a type that there is no room for here.
    Unsupported {
        kind: &'static str,
        key: Vec<u8>,
        offset: u64,
    },
    /// Bytes that make no sense where they are.
    Damaged {
        what: &'static str,
        offset: u64,
    },
    /// The file ends too early.
    Truncated {
        offset: u64,
    },
    Checksum {
        expected: u64,
        found: u64,
    },
}

impl fmt::Display for RdbError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Signature => f.write_str("Wrong signature trying to load DB from file"),
            Self::Version(version) => write!(f, "Can't handle RDB format version {version}"),
            Self::Unknown { byte, offset } => {
                write!(f, "Unknown RDB encoding type {byte} at offset {offset}")
            }
            Self::Unsupported { kind, key, offset } => write!(
                f,
                "The RDB file holds a value of type {kind} at key '{}' (offset {offset}), which is not supported",
                key.escape_ascii()
            ),
            Self::Damaged { what, offset } => {
                write!(f, "Bad file format: {what} at offset {offset}")
            }
            Self::Truncated { offset } => write!(
                f,
                "Short read or OOM loading DB. Unrecoverable error, aborting now. The file ends at offset {offset}"
            ),
            Self::Checksum { expected, found } => write!(
                f,
                "Wrong RDB checksum expected: ({expected:x}) but got ({found:x}). RDB CRC error. Aborting now."
            ),
        }
    }
}

impl error::Error for RdbError {}
