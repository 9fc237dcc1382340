//! Escapes text for JSON.

/// A text as it is written between the quotes of a JSON string.
pub fn escaped(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '"' | '\\' => escaped.extend(['\\', character]),
            '\n' => escaped.push_str("\\n"),
            '\r' => escaped.push_str("\\r"),
            '\t' => escaped.push_str("\\t"),
            '\u{8}' => escaped.push_str("\\b"),
            '\u{c}' => escaped.push_str("\\f"),
            control if control < ' ' => escaped.push_str(&format!("\\u{:04x}", u32::from(control))),
            other => escaped.push(other),
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_escapes_come_before_long_ones() {
        assert_eq!(escaped("a\"\\/\u{e9}"), "a\\\"\\\\/\u{e9}");
        assert_eq!(escaped("\n\r\t\u{8}\u{c}\u{1b}\0"), "\\n\\r\\t\\b\\f\\u001b\\u0000");
    }
}
