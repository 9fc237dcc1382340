//! Why a payload cannot be read.

use std::{error, fmt};

use crate::kind::ValueKind;

/// Why a payload is refused. `Display` gives RESTORE's text, without the `ERR` in front.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum PayloadError {
    /// The version or the checksum, and which of the two is not told.
    VersionOrChecksum,
    BadFormat,
    /// A sound payload of a type that cannot be read yet.
    Unsupported(ValueKind),
}

impl fmt::Display for PayloadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::VersionOrChecksum => f.write_str("DUMP payload version or checksum are wrong"),
            Self::BadFormat => f.write_str("Bad data format"),
            Self::Unsupported(kind) => {
                write!(
                    f,
                    "DUMP payload holds a value of type {}, which is not supported",
                    kind.name()
                )
            }
        }
    }
}

impl error::Error for PayloadError {}
