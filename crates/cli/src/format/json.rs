//! One JSON value for each reply. Errors become `error:"..."`, which is no JSON, as in valkey-cli:
//! a script notices.

use bobbin_client::Value;

use super::append_quoted;

/// What to do with bytes beyond ASCII.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Strings {
    /// As they are: they are UTF-8, or the reader must cope.
    Utf8,
    /// The quoted form of redis-cli inside of a JSON string.
    Ascii,
}

pub fn append(value: &Value, strings: Strings, output: &mut Vec<u8>) {
    match value {
        Value::Error(text) | Value::BulkError(text) => {
            output.extend(b"error:");
            append_string(text, strings, output);
        }
        Value::Simple(text) | Value::Bulk(text) | Value::Verbatim { text, .. } => {
            append_string(text, strings, output);
        }
        Value::BigNumber(text) | Value::Double { text, .. } => output.extend_from_slice(text),
        Value::Integer(integer) => output.extend(integer.to_string().bytes()),
        Value::Null | Value::NullArray => output.extend(b"null"),
        Value::Boolean(boolean) => output.extend(boolean.to_string().bytes()),
        Value::Array(elements) | Value::Set(elements) | Value::Push(elements) => {
            output.push(b'[');
            for (index, element) in elements.iter().enumerate() {
                if index > 0 {
                    output.push(b',');
                }
                append(element, strings, output);
            }
            output.push(b']');
        }
        Value::Map(pairs) => {
            output.push(b'{');
            for (index, (key, value)) in pairs.iter().enumerate() {
                if index > 0 {
                    output.push(b',');
                }
                append_key(key, strings, output);
                output.push(b':');
                append(value, strings, output);
            }
            output.push(b'}');
        }
        Value::Attribute { value, .. } => append(value, strings, output),
    }
}

/// Keys of JSON are strings; RESP3's may be anything.
fn append_key(key: &Value, strings: Strings, output: &mut Vec<u8>) {
    if key.is_error() {
        return append(key, strings, output);
    }
    let mut text = Vec::new();
    append(key, strings, &mut text);
    if text.first() == Some(&b'"') {
        output.extend(text);
    } else {
        output.push(b'"');
        output.extend(text);
        output.push(b'"');
    }
}

fn append_string(text: &[u8], strings: Strings, output: &mut Vec<u8>) {
    if strings == Strings::Ascii {
        let mut quoted = Vec::new();
        append_quoted(text, &mut quoted);
        for byte in quoted {
            if byte == b'\\' {
                output.push(b'\\');
            }
            output.push(byte);
        }
        return;
    }
    output.push(b'"');
    for &byte in text {
        match byte {
            b'\\' | b'"' => output.extend([b'\\', byte]),
            b'\n' => output.extend(b"\\n"),
            b'\r' => output.extend(b"\\r"),
            b'\t' => output.extend(b"\\t"),
            0x08 => output.extend(b"\\b"),
            0x0c => output.extend(b"\\f"),
            0..=0x1f => output.extend(format!("\\u{byte:04x}").bytes()),
            _ => output.push(byte),
        }
    }
    output.push(b'"');
}
