//! Strings of any bytes between double quotes, as Redis's tools show them and read them back.

/// Appends the bytes in double quotes, escaping what is not printable ASCII.
pub fn append_quoted(bytes: &[u8], output: &mut Vec<u8>) {
    output.push(b'"');
    for &byte in bytes {
        match byte {
            b'\\' | b'"' => output.extend([b'\\', byte]),
            b'\n' => output.extend(b"\\n"),
            b'\r' => output.extend(b"\\r"),
            b'\t' => output.extend(b"\\t"),
            0x07 => output.extend(b"\\a"),
            0x08 => output.extend(b"\\b"),
            b' '..=b'~' => output.push(byte),
            _ => output.extend(format!("\\x{byte:02x}").bytes()),
        }
    }
    output.push(b'"');
}

/// Returns the bytes as text in double quotes, escaping what is not printable ASCII.
pub fn quoted(bytes: &[u8]) -> String {
    let mut output = Vec::with_capacity(bytes.len() + 2);
    append_quoted(bytes, &mut output);
    output.into_iter().map(char::from).collect()
}
