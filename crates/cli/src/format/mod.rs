//! Replies as text. What each form looks like is fixed by redis-cli and valkey-cli, whose output
//! scripts read: every byte here is theirs, but for what the shell's `:set pretty` asks for.

mod csv;
mod json;
mod pretty;
mod quote;
mod raw;
mod tty;

use bobbin_client::Value;

use crate::terminal;
use pretty::Pretty;
pub use quote::{append_quoted, quoted};

/// How to print replies.
#[derive(Clone, Debug)]
pub struct Style {
    pub form: ReplyForm,
    /// Between the elements of an aggregate in the raw form (`-d`).
    pub element_delimiter: Vec<u8>,
    /// Behind each reply in the raw form (`-D`).
    pub reply_delimiter: Vec<u8>,
    /// Whether values that hold JSON and the like are shown decoded, in the form for people.
    pub pretty: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReplyForm {
    /// For people: types shown, strings quoted.
    Tty,
    /// For programs: the bytes as they are.
    Raw,
    Csv,
    Json,
    /// JSON that is plain ASCII: other bytes as `\\xHH` in its strings.
    QuotedJson,
}

impl Style {
    pub fn new(form: ReplyForm) -> Self {
        let line_feed = || b"\n".to_vec();
        Self { form, element_delimiter: line_feed(), reply_delimiter: line_feed(), pretty: false }
    }

    /// The text of a reply. `verbatim` is for commands that answer with text for people: it is
    /// shown as it is, in every form.
    pub fn reply(&self, value: &Value, verbatim: bool) -> Vec<u8> {
        let mut output = Vec::new();
        match self.form {
            _ if verbatim => raw::append(value, &self.element_delimiter, &mut output),
            ReplyForm::Tty => {
                let mut pretty = match self.pretty {
                    true => Pretty::on(terminal::has_colours()),
                    false => Pretty::off(),
                };
                tty::append(value, "", &mut pretty, &mut output);
            }
            ReplyForm::Raw => {
                raw::append(value, &self.element_delimiter, &mut output);
                output.extend_from_slice(&self.reply_delimiter);
            }
            ReplyForm::Csv => {
                csv::append(value, &mut output);
                output.push(b'\n');
            }
            ReplyForm::Json => {
                json::append(value, json::Strings::Utf8, &mut output);
                output.push(b'\n');
            }
            ReplyForm::QuotedJson => {
                json::append(value, json::Strings::Ascii, &mut output);
                output.push(b'\n');
            }
        }
        self.for_terminal(output)
    }

    fn for_terminal(&self, output: Vec<u8>) -> Vec<u8> {
        match self.form {
            ReplyForm::Tty => terminal::harmless(&output).into_owned(),
            _ => output,
        }
    }

    /// The text of a push that no reply asked for.
    pub fn push(&self, push: &Value) -> Vec<u8> {
        if self.form == ReplyForm::Tty
            && let Some(text) = tty::invalidation(push)
        {
            return self.for_terminal(text);
        }
        self.reply(push, false)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bulk(text: &str) -> Value {
        Value::Bulk(text.into())
    }

    fn double(text: &str) -> Value {
        Value::Double { value: text.parse().unwrap(), text: text.into() }
    }

    fn show(form: ReplyForm, value: &Value) -> String {
        String::from_utf8(Style::new(form).reply(value, false)).unwrap()
    }

    /// In the order of the forms: tty, raw, csv, json, quoted json.
    fn shows(value: &Value, expected: [&str; 5]) {
        let forms = [
            ReplyForm::Tty,
            ReplyForm::Raw,
            ReplyForm::Csv,
            ReplyForm::Json,
            ReplyForm::QuotedJson,
        ];
        for (form, expected) in forms.into_iter().zip(expected) {
            assert_eq!(show(form, value), expected, "{form:?} of {value:?}");
        }
    }

    // All of these were asked of valkey-cli 9.1.2.
    #[test]
    fn simple_values() {
        shows(
            &bulk("a\tb"),
            ["\"a\\tb\"\n", "a\tb\n", "\"a\\tb\"\n", "\"a\\tb\"\n", "\"a\\\\tb\"\n"],
        );
        shows(&Value::Simple(b"OK".to_vec()), ["OK\n", "OK\n", "\"OK\"\n", "\"OK\"\n", "\"OK\"\n"]);
        shows(&Value::Integer(-1), ["(integer) -1\n", "-1\n", "-1\n", "-1\n", "-1\n"]);
        shows(&Value::Null, ["(nil)\n", "\n", "NULL\n", "null\n", "null\n"]);
        shows(&Value::Boolean(true), ["(true)\n", "(true)\n", "true\n", "true\n", "true\n"]);
        shows(&double("3.141"), ["(double) 3.141\n", "3.141\n", "3.141\n", "3.141\n", "3.141\n"]);
        shows(
            &Value::Error(b"ERR no".to_vec()),
            [
                "(error) ERR no\n",
                "ERR no\n\n",
                "ERROR,\"ERR no\"\n",
                "error:\"ERR no\"\n",
                "error:\"ERR no\"\n",
            ],
        );
        let text = Value::Verbatim { format: *b"txt", text: b"a\nb".to_vec() };
        shows(&text, ["a\nb\n", "a\nb\n", "\"a\\nb\"\n", "\"a\\nb\"\n", "\"a\\\\nb\"\n"]);
    }

    #[test]
    fn aggregates() {
        let list = Value::Array(vec![bulk("a"), Value::Array(vec![Value::Integer(1), bulk("b")])]);
        shows(
            &list,
            [
                "1) \"a\"\n2) 1) (integer) 1\n   2) \"b\"\n",
                "a\n1\nb\n",
                "\"a\",1,\"b\"\n",
                "[\"a\",[1,\"b\"]]\n",
                "[\"a\",[1,\"b\"]]\n",
            ],
        );
        let map = Value::Map(vec![
            (Value::Integer(1), bulk("x")),
            (bulk("k"), Value::Set(vec![bulk("y"), bulk("z")])),
        ]);
        shows(
            &map,
            [
                "1# (integer) 1 => \"x\"\n2# \"k\" => \n   1~ \"y\"\n   2~ \"z\"\n",
                "1 x\nk y\nz\n",
                "1,\"x\",\"k\",\"y\",\"z\"\n",
                "{\"1\":\"x\",\"k\":[\"y\",\"z\"]}\n",
                "{\"1\":\"x\",\"k\":[\"y\",\"z\"]}\n",
            ],
        );
        shows(&Value::Array(vec![]), ["(empty array)\n", "\n", "\n", "[]\n", "[]\n"]);
        shows(&Value::Map(vec![]), ["(empty hash)\n", "\n", "\n", "{}\n", "{}\n"]);
        shows(&Value::Set(vec![]), ["(empty set)\n", "\n", "\n", "[]\n", "[]\n"]);
    }

    #[test]
    fn long_lists_align() {
        let list = Value::Array((0..10).map(Value::Integer).collect());
        let text = show(ReplyForm::Tty, &list);
        assert!(text.starts_with(" 1) (integer) 0\n 2) (integer) 1\n"), "{text}");
        assert!(text.ends_with("10) (integer) 9\n"), "{text}");
        let nested = show(ReplyForm::Tty, &Value::Array(vec![list, Value::Null]));
        assert!(nested.starts_with("1)  1) (integer) 0\n    2) (integer) 1\n"), "{nested}");
    }

    #[test]
    fn delimiters() {
        let style = Style {
            form: ReplyForm::Raw,
            element_delimiter: b", ".to_vec(),
            reply_delimiter: b"".to_vec(),
            pretty: false,
        };
        assert_eq!(style.reply(&Value::Array(vec![bulk("a"), bulk("b")]), false), b"a, b");
    }

    #[test]
    fn bytes_that_are_no_text() {
        let value = Value::Bulk(b"\xf0e\x00\x01\"\\\x7f".to_vec());
        assert_eq!(show(ReplyForm::Tty, &value), "\"\\xf0e\\x00\\x01\\\"\\\\\\x7f\"\n");
        let json = Style::new(ReplyForm::Json).reply(&value, false);
        assert_eq!(json, b"\"\xf0e\\u0000\\u0001\\\"\\\\\x7f\"\n");
        assert_eq!(
            show(ReplyForm::QuotedJson, &value),
            "\"\\\\xf0e\\\\x00\\\\x01\\\\\"\\\\\\\\\\\\x7f\"\n"
        );
    }

    #[test]
    fn invalidations() {
        let push = |keys| Value::Push(vec![bulk("invalidate"), keys]);
        let style = Style::new(ReplyForm::Tty);
        let keys = push(Value::Array(vec![bulk("a"), bulk("b")]));
        assert_eq!(style.push(&keys), b"-> invalidate: 'a', 'b'\n");
        assert_eq!(style.push(&push(Value::Null)), b"1) \"invalidate\"\n2) (nil)\n");
        assert_eq!(Style::new(ReplyForm::Raw).push(&keys), b"invalidate\na\nb\n");
    }

    #[test]
    fn servers_do_not_command_the_terminal() {
        let (text, shown) = (b"a\x1b[2Jb".to_vec(), r"a\x1b[2Jb");
        let style = Style::new(ReplyForm::Tty);
        let verbatim = Value::Verbatim { format: *b"txt", text: text.clone() };
        for value in [Value::Error(text.clone()), Value::Simple(text.clone()), verbatim.clone()] {
            let output = String::from_utf8(style.reply(&value, false)).unwrap();
            assert!(output.contains(shown) && !output.contains('\x1b'), "{output:?}");
        }
        assert_eq!(style.reply(&verbatim, true), shown.as_bytes());
        let keys = Value::Array(vec![Value::Bulk(text.clone())]);
        let push = Value::Push(vec![bulk("invalidate"), keys]);
        assert_eq!(style.push(&push), format!("-> invalidate: '{shown}'\n").as_bytes());
        assert_eq!(Style::new(ReplyForm::Raw).reply(&verbatim, true), text);
    }
}
