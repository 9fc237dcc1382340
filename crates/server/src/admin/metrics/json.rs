//! Writes JSON, one value after the other, into one text.

use std::fmt::{Display, Write};

use crate::base::json::escaped;

/// The text while it is made. A function writes the contents of an object or an array, so
/// everything that is opened is closed.
#[derive(Default)]
pub(super) struct Json {
    text: String,
    /// A value of the same object or array stands before the next one.
    follows: bool,
}

impl Json {
    pub(super) fn with_capacity(bytes: usize) -> Self {
        Self { text: String::with_capacity(bytes), follows: false }
    }

    pub(super) fn into_text(self) -> String {
        self.text
    }

    pub(super) fn object(&mut self, write: impl FnOnce(&mut Self)) {
        self.enclosed('{', '}', write);
    }

    pub(super) fn array(&mut self, write: impl FnOnce(&mut Self)) {
        self.enclosed('[', ']', write);
    }

    /// The name of the next value in an object.
    pub(super) fn key(&mut self, name: &str) -> &mut Self {
        self.text(name);
        self.text.push(':');
        self.follows = false;
        self
    }

    pub(super) fn text(&mut self, text: &str) {
        self.separate();
        self.text.push('"');
        self.text.push_str(&escaped(text));
        self.text.push('"');
    }

    /// Bytes from a client. Bytes that are not UTF-8 are replaced.
    pub(super) fn bytes(&mut self, bytes: &[u8]) {
        self.text(&String::from_utf8_lossy(bytes));
    }

    /// A whole number.
    pub(super) fn number(&mut self, number: impl Into<i128> + Display) {
        self.separate();
        // Writing to a String cannot fail, here and below.
        write!(self.text, "{number}").ok();
    }

    /// A number, or `null` if it is not finite.
    pub(super) fn decimal(&mut self, number: f64) {
        self.separate();
        match number.is_finite() {
            true => write!(self.text, "{number}").ok(),
            false => self.text.write_str("null").ok(),
        };
    }

    pub(super) fn boolean(&mut self, is_true: bool) {
        self.separate();
        self.text.push_str(if is_true { "true" } else { "false" });
    }

    fn enclosed(&mut self, open: char, close: char, write: impl FnOnce(&mut Self)) {
        self.separate();
        self.text.push(open);
        self.follows = false;
        write(self);
        self.text.push(close);
        self.follows = true;
    }

    fn separate(&mut self) {
        if self.follows {
            self.text.push(',');
        }
        self.follows = true;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_separated_and_closed() {
        let mut json = Json::default();
        json.object(|json| {
            json.key("none").array(|_| {});
            json.key("numbers").array(|json| {
                json.number(-1i64);
                json.number(u64::MAX);
                json.decimal(0.5);
                json.decimal(f64::NAN);
            });
            json.key("inside").object(|json| {
                json.key("is").boolean(true);
                json.key("text").text("a");
            });
            json.key("last").boolean(false);
        });
        let expected = "{\"none\":[],\"numbers\":[-1,18446744073709551615,0.5,null],\
                        \"inside\":{\"is\":true,\"text\":\"a\"},\"last\":false}";
        assert_eq!(json.into_text(), expected);
    }

    #[test]
    fn no_text_ends_its_value() {
        let mut json = Json::default();
        json.array(|json| {
            json.bytes(b"</script>\"\\\r\n\0\xff");
            json.object(|json| json.key("\"").text("\u{7f}\u{1f}"));
        });
        let expected = "[\"</script>\\\"\\\\\\r\\n\\u0000\u{fffd}\",{\"\\\"\":\"\u{7f}\\u001f\"}]";
        assert_eq!(json.into_text(), expected);
    }
}
