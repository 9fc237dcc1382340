//! JSON with each element on a line of its own. Nothing else changes: numbers keep their digits,
//! names their order, strings their escapes.

use serde_json::Value;

use super::{
    NotShown,
    writer::{Colour, PrettyWriter},
};

/// Writes what is JSON as a whole.
pub fn show(bytes: &[u8], writer: &mut PrettyWriter<'_>) -> Result<(), NotShown> {
    // This decides what is JSON; below it is only cut into words.
    serde_json::from_slice::<Value>(bytes).map_err(|_| NotShown)?;
    let mut rest = bytes.trim_ascii();
    while let Some((&first, behind)) = rest.split_first() {
        let behind = behind.trim_ascii_start();
        match first {
            b'{' | b'[' => {
                if let [close @ (b'}' | b']'), behind @ ..] = behind {
                    writer.plain(&[first, *close]);
                    rest = behind.trim_ascii_start();
                    continue;
                }
                writer.open(first)?;
            }
            b'}' | b']' => writer.close(first)?,
            b',' => {
                writer.plain(b",");
                writer.line()?;
            }
            b':' => writer.plain(b": "),
            _ => {
                let (word, behind) = rest.split_at(word_len(rest));
                rest = behind.trim_ascii_start();
                let colour = match first {
                    b'"' if rest.starts_with(b":") => Colour::Name,
                    b'"' => Colour::Text,
                    b'-' | b'0'..=b'9' => Colour::Number,
                    _ => Colour::Word,
                };
                writer.colour(colour, word);
                continue;
            }
        }
        rest = behind;
    }
    writer.check().map_err(NotShown::from)
}

/// How long the string, number or word is that the bytes begin with: one byte or more.
fn word_len(bytes: &[u8]) -> usize {
    if bytes[0] != b'"' {
        let ends = |byte: &u8| byte.is_ascii_whitespace() || b",:]}".contains(byte);
        return bytes.iter().position(ends).unwrap_or(bytes.len()).max(1);
    }
    let mut is_escaped = false;
    for (at, byte) in bytes.iter().enumerate().skip(1) {
        match byte {
            b'"' if !is_escaped => return at + 1,
            b'\\' => is_escaped = !is_escaped,
            _ => is_escaped = false,
        }
    }
    bytes.len()
}
