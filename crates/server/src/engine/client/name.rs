//! The names that clients give themselves.

use crate::engine::command::{Call, Failure};

/// The name, if CLIENT LIST can show it without breaking its lines; otherwise an error.
pub fn checked_name(name: &[u8]) -> Result<&[u8], Failure> {
    if is_plain(name) {
        Ok(name)
    } else {
        Err("ERR Client names cannot contain spaces, newlines or special characters.".into())
    }
}

/// Sets the client's name; an empty name removes it.
pub fn set_name(call: &mut Call<'_>, name: &[u8]) {
    call.client.info.names().name = name.into();
}

/// Whether a name does not break the lines of CLIENT LIST.
pub fn is_plain(text: &[u8]) -> bool {
    text.iter().all(u8::is_ascii_graphic)
}
