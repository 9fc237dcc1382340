//! What a client may call itself.

use crate::engine::command::{Call, Failure};

/// A name that CLIENT LIST can show without breaking its lines.
pub fn checked_name(name: &[u8]) -> Result<&[u8], Failure> {
    if is_plain(name) {
        Ok(name)
    } else {
        Err("ERR Client names cannot contain spaces, newlines or special characters.".into())
    }
}

/// Names the client; an empty name takes its name away.
pub fn set_name(call: &mut Call<'_>, name: &[u8]) {
    call.client.info.names().name = name.into();
}

/// Whether a name does not break the lines of CLIENT LIST.
pub fn is_plain(text: &[u8]) -> bool {
    text.iter().all(u8::is_ascii_graphic)
}
