//! One line of comma-separated values for each reply; aggregates are flattened.

use bobbin_client::Value;

use super::append_quoted;

pub fn append(value: &Value, output: &mut Vec<u8>) {
    match value {
        Value::Error(text) | Value::BulkError(text) => {
            output.extend(b"ERROR,");
            append_quoted(text, output);
        }
        Value::Simple(text) | Value::Bulk(text) | Value::Verbatim { text, .. } => {
            append_quoted(text, output);
        }
        Value::BigNumber(text) | Value::Double { text, .. } => output.extend_from_slice(text),
        Value::Integer(integer) => output.extend(integer.to_string().bytes()),
        Value::Null | Value::NullArray => output.extend(b"NULL"),
        Value::Boolean(boolean) => output.extend(boolean.to_string().bytes()),
        Value::Array(elements) | Value::Set(elements) | Value::Push(elements) => {
            append_all(elements.iter(), output);
        }
        Value::Map(pairs) => append_all(pairs.iter().flat_map(|(k, v)| [k, v]), output),
        Value::Attribute { value, .. } => append(value, output),
    }
}

fn append_all<'a>(values: impl Iterator<Item = &'a Value>, output: &mut Vec<u8>) {
    for (index, value) in values.enumerate() {
        if index > 0 {
            output.push(b',');
        }
        append(value, output);
    }
}
