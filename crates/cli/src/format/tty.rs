//! The form for people: types are named, strings quoted, aggregates numbered and indented.

use bobbin_client::Value;

use super::{append_quoted, pretty::Pretty};

/// Appends the value and a line feed. `indent` is what lines after the first start with.
pub fn append(value: &Value, indent: &str, pretty: &mut Pretty, output: &mut Vec<u8>) {
    match value {
        Value::Error(text) | Value::BulkError(text) => {
            output.extend(b"(error) ");
            output.extend_from_slice(text);
        }
        Value::Simple(text) | Value::Verbatim { text, .. } => output.extend_from_slice(text),
        Value::Integer(integer) => output.extend(format!("(integer) {integer}").bytes()),
        Value::Double { text, .. } => {
            output.extend(b"(double) ");
            output.extend_from_slice(text);
        }
        Value::BigNumber(digits) => output.extend_from_slice(digits),
        Value::Bulk(text) => {
            if !pretty.append(text, indent, output) {
                append_quoted(text, output);
            }
        }
        Value::Null | Value::NullArray => output.extend(b"(nil)"),
        Value::Boolean(true) => output.extend(b"(true)"),
        Value::Boolean(false) => output.extend(b"(false)"),
        Value::Array(elements) => {
            return append_elements(elements, (')', "array"), indent, pretty, output);
        }
        Value::Set(elements) => {
            return append_elements(elements, ('~', "set"), indent, pretty, output);
        }
        Value::Push(elements) => {
            return append_elements(elements, (')', "push"), indent, pretty, output);
        }
        Value::Map(pairs) => return append_pairs(pairs, indent, pretty, output),
        Value::Attribute { value, .. } => return append(value, indent, pretty, output),
    }
    output.push(b'\n');
}

/// `-> invalidate: 'key', 'key'`, if that is what the push is about.
pub fn invalidation(push: &Value) -> Option<Vec<u8>> {
    let Value::Push(elements) = push else { return None };
    let [Value::Bulk(name), Value::Array(keys)] = elements.as_slice() else { return None };
    if !name.starts_with(b"invalidate") {
        return None;
    }
    let mut output = b"-> invalidate: ".to_vec();
    for (index, key) in keys.iter().enumerate() {
        if index > 0 {
            output.extend(b", ");
        }
        output.push(b'\'');
        output.extend_from_slice(key.as_bytes()?);
        output.push(b'\'');
    }
    output.push(b'\n');
    Some(output)
}

fn append_elements(
    elements: &[Value],
    (separator, kind): (char, &str),
    indent: &str,
    pretty: &mut Pretty,
    output: &mut Vec<u8>,
) {
    if elements.is_empty() {
        output.extend(format!("(empty {kind})\n").bytes());
        return;
    }
    let width = digits(elements.len());
    let inner = format!("{indent}{:1$}", "", width + 2);
    for (index, element) in elements.iter().enumerate() {
        append_number(index, width, separator, indent, output);
        append(element, &inner, pretty, output);
    }
}

fn append_pairs(pairs: &[(Value, Value)], indent: &str, pretty: &mut Pretty, output: &mut Vec<u8>) {
    if pairs.is_empty() {
        output.extend(b"(empty hash)\n");
        return;
    }
    let width = digits(pairs.len());
    let inner = format!("{indent}{:1$}", "", width + 2);
    for (index, (key, value)) in pairs.iter().enumerate() {
        append_number(index, width, '#', indent, output);
        append(key, &inner, &mut Pretty::off(), output);
        output.pop(); // The line feed behind the key.
        output.extend(b" => ");
        if takes_lines(value) {
            output.push(b'\n');
            output.extend(inner.bytes());
        }
        append(value, &inner, pretty, output);
    }
}

/// `12) `. The code that shows the aggregate has indented its first line.
fn append_number(index: usize, width: usize, separator: char, indent: &str, output: &mut Vec<u8>) {
    let indent = if index == 0 { "" } else { indent };
    output.extend(format!("{indent}{:width$}{separator} ", index + 1).bytes());
}

/// Whether a value is shown in more than one line.
fn takes_lines(value: &Value) -> bool {
    match value {
        Value::Array(elements) | Value::Set(elements) | Value::Push(elements) => {
            match elements.as_slice() {
                [] => false,
                [only] => takes_lines(only),
                _ => true,
            }
        }
        Value::Map(pairs) => match pairs.as_slice() {
            [] => false,
            [(_, only)] => takes_lines(only),
            _ => true,
        },
        _ => false,
    }
}

fn digits(number: usize) -> usize {
    number.to_string().len()
}
