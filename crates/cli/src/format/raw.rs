//! The raw form: no quotes and no types, for programs.

use bobbin_client::Value;

pub fn append(value: &Value, delimiter: &[u8], output: &mut Vec<u8>) {
    match value {
        Value::Null | Value::NullArray => {}
        Value::Error(text) | Value::BulkError(text) => {
            output.extend_from_slice(text);
            output.push(b'\n');
        }
        Value::Simple(text)
        | Value::Bulk(text)
        | Value::BigNumber(text)
        | Value::Double { text, .. }
        | Value::Verbatim { text, .. } => output.extend_from_slice(text),
        Value::Integer(integer) => output.extend(integer.to_string().bytes()),
        Value::Boolean(true) => output.extend(b"(true)"),
        Value::Boolean(false) => output.extend(b"(false)"),
        Value::Array(elements) | Value::Set(elements) | Value::Push(elements) => {
            for (index, element) in elements.iter().enumerate() {
                if index > 0 {
                    output.extend_from_slice(delimiter);
                }
                append(element, delimiter, output);
            }
        }
        Value::Map(pairs) => {
            for (index, (key, value)) in pairs.iter().enumerate() {
                if index > 0 {
                    output.extend_from_slice(delimiter);
                }
                append(key, delimiter, output);
                output.push(b' ');
                append(value, delimiter, output);
            }
        }
        Value::Attribute { value, .. } => append(value, delimiter, output),
    }
}
