//! The errors in the protocol that a client can make. The server answers each with its text and
//! then closes the connection, because the two sides do not agree any more on where a command
//! starts.

use std::{error, fmt};

/// A request that is not RESP. The texts are those of valkey-server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProtocolError {
    /// An inline request has more than the allowed bytes without an end of line.
    InlineTooBig,
    /// A quote in an inline request never ends.
    UnbalancedQuotes,
    /// The line of `*<count>` is longer than any number.
    MultibulkCountTooBig,
    /// `*<count>` is not a number, or is more than is allowed.
    InvalidMultibulkLength,
    /// A client that has not authenticated sends more arguments than it may.
    UnauthenticatedMultibulkLength,
    /// The line of `$<length>` is longer than any number.
    BulkCountTooBig,
    /// This byte is where a `$` must be.
    ExpectedDollar(u8),
    /// `$<length>` is not a number, is negative, or is more than `proto-max-bulk-len`.
    InvalidBulkLength,
    /// A client that has not authenticated sends a longer argument than it may.
    UnauthenticatedBulkLength,
    /// A carriage return without its line feed, or an argument that does not end where it must.
    InvalidCrlf,
}

impl ProtocolError {
    /// Appends the whole error reply, from `-ERR` to its CR LF.
    pub fn append_reply(&self, output: &mut Vec<u8>) {
        output.extend_from_slice(b"-ERR Protocol error: ");
        match *self {
            Self::ExpectedDollar(byte) => {
                // The reply shows the byte as it came, unless it would end the reply's line.
                let shown = if matches!(byte, b'\r' | b'\n') { b' ' } else { byte };
                output.extend_from_slice(b"expected '$', got '");
                output.extend_from_slice(&[shown, b'\'']);
            }
            _ => output.extend_from_slice(self.text().as_bytes()),
        }
        output.extend_from_slice(b"\r\n");
    }

    fn text(&self) -> &'static str {
        match self {
            Self::InlineTooBig => "too big inline request",
            Self::UnbalancedQuotes => "unbalanced quotes in request",
            Self::MultibulkCountTooBig => "too big mbulk count string",
            Self::InvalidMultibulkLength => "invalid multibulk length",
            Self::UnauthenticatedMultibulkLength => "unauthenticated multibulk length",
            Self::BulkCountTooBig => "too big bulk count string",
            Self::ExpectedDollar(_) => "expected '$'",
            Self::InvalidBulkLength => "invalid bulk length",
            Self::UnauthenticatedBulkLength => "unauthenticated bulk length",
            Self::InvalidCrlf => "invalid CRLF in request",
        }
    }
}

impl fmt::Display for ProtocolError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Protocol error: {}", self.text())?;
        match self {
            Self::ExpectedDollar(byte) => write!(f, ", got '{}'", byte.escape_ascii()),
            _ => Ok(()),
        }
    }
}

impl error::Error for ProtocolError {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn replies_as_valkey_does() {
        let reply = |error: ProtocolError| {
            let mut output = Vec::new();
            error.append_reply(&mut output);
            output
        };
        assert_eq!(
            reply(ProtocolError::InvalidCrlf),
            b"-ERR Protocol error: invalid CRLF in request\r\n"
        );
        let expected = |byte| reply(ProtocolError::ExpectedDollar(byte));
        assert_eq!(expected(b':'), b"-ERR Protocol error: expected '$', got ':'\r\n");
        assert_eq!(expected(0x80), b"-ERR Protocol error: expected '$', got '\x80'\r\n");
        assert_eq!(expected(b'\n'), b"-ERR Protocol error: expected '$', got ' '\r\n");
        assert_eq!(expected(0), b"-ERR Protocol error: expected '$', got '\0'\r\n");
    }
}
