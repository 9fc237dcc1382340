//! `:set pretty`: values that hold JSON, MessagePack or something compressed, decoded and indented
//! behind a line that says what they are.
//!
//! Anybody may have written a value. What cannot be decoded whole is shown as it is; and what one
//! reply may cost is limited, however much its values claim to hold.

mod compression;
mod json;
mod messagepack;
mod writer;

use super::append_quoted;
use compression::{Inflated, Method};
use writer::{Colour, PrettyWriter, TooLong};

/// What may still be decoded for a reply.
pub struct Pretty {
    left_bytes: usize,
    colours: bool,
}

impl Pretty {
    /// Decodes nothing.
    pub fn off() -> Self {
        Self { left_bytes: 0, colours: false }
    }

    /// For one reply.
    pub fn on(colours: bool) -> Self {
        Self { left_bytes: WORK_BYTES_MAX, colours }
    }

    /// Appends the lines of a value that holds something, without the last line feed. `indent` is
    /// what lines after the first start with. Returns false, and appends nothing, for others.
    pub fn append(&mut self, bytes: &[u8], indent: &str, output: &mut Vec<u8>) -> bool {
        if bytes.len() > INPUT_LEN_MAX || bytes.len() > self.left_bytes {
            return false;
        }
        let Some(guess) = guess(bytes) else { return false };
        self.charge(bytes.len());
        let mut writer = PrettyWriter::new(indent, self.colours);
        let shown = match guess {
            Guess::Held(format) => format.show(bytes, &mut writer),
            Guess::Compressed(method) => self.show_compressed(method, bytes, &mut writer),
        };
        let lines = writer.into_bytes();
        self.charge(lines.len());
        if shown.is_ok() {
            output.extend(lines);
        }
        shown.is_ok()
    }

    fn show_compressed(
        &mut self,
        method: Method,
        bytes: &[u8],
        writer: &mut PrettyWriter<'_>,
    ) -> Result<(), NotShown> {
        let most = INFLATED_LEN_MAX.min(self.left_bytes);
        let about = format!("{}, {}", method.name(), count(bytes.len()));
        let inflated = match method.inflate(bytes, most).ok_or(NotShown)? {
            Inflated::Whole(inflated) => inflated,
            Inflated::TooLong => {
                self.charge(most);
                writer.colour(Colour::Remark, format!("({about}, with too much in it)").as_bytes());
                writer.line()?;
                quote(bytes, writer);
                return Ok(());
            }
        };
        self.charge(inflated.len());
        let inner = format!("{about}, of ");
        if let Some(Guess::Held(format)) = guess(&inflated) {
            let mut decoded = writer.begin();
            if format.show_as(&inner, &inflated, &mut decoded).is_ok() {
                *writer = decoded;
                return Ok(());
            }
        }
        let text = std::str::from_utf8(&inflated).ok().filter(|text| !text.contains(is_control));
        let kind = if text.is_some() { "text" } else { "other data" };
        let remark = format!("({inner}{kind}, {})", count(inflated.len()));
        writer.colour(Colour::Remark, remark.as_bytes());
        match text {
            Some(text) => {
                for line in text.lines() {
                    writer.line()?;
                    writer.plain(line.as_bytes());
                }
            }
            None => {
                writer.line()?;
                quote(&inflated, writer);
            }
        }
        writer.check().map_err(NotShown::from)
    }

    fn charge(&mut self, bytes: usize) {
        self.left_bytes = self.left_bytes.saturating_sub(bytes);
    }
}

/// What the first bytes promise.
enum Guess {
    Held(Format),
    Compressed(Method),
}

#[derive(Clone, Copy)]
enum Format {
    Json,
    MessagePack,
}

impl Format {
    fn show(self, bytes: &[u8], writer: &mut PrettyWriter<'_>) -> Result<(), NotShown> {
        self.show_as("", bytes, writer)
    }

    /// `about` is what the remark begins with.
    fn show_as(
        self,
        about: &str,
        bytes: &[u8],
        writer: &mut PrettyWriter<'_>,
    ) -> Result<(), NotShown> {
        let name = match self {
            Self::Json => "JSON",
            Self::MessagePack => "MessagePack",
        };
        let remark = format!("({about}{name}, {})", count(bytes.len()));
        writer.colour(Colour::Remark, remark.as_bytes());
        writer.line()?;
        match self {
            Self::Json => json::show(bytes, writer),
            Self::MessagePack => messagepack::show(bytes, writer),
        }
    }
}

/// It does not hold what it promised, or too much of it.
#[derive(Debug)]
struct NotShown;

impl From<TooLong> for NotShown {
    fn from(TooLong: TooLong) -> Self {
        Self
    }
}

/// A number or a word alone is shown best as it is: only objects and lists count.
fn guess(bytes: &[u8]) -> Option<Guess> {
    if let Some(method) = Method::of(bytes) {
        return Some(Guess::Compressed(method));
    }
    if matches!(bytes.trim_ascii_start().first(), Some(b'{' | b'[')) {
        return Some(Guess::Held(Format::Json));
    }
    // An empty list is a single byte, as anything may be. Text of some alphabets begins as long
    // lists do.
    let is_list = matches!(bytes, [0x80..=0x9f | 0xdc..=0xdf, _, ..]);
    (is_list && std::str::from_utf8(bytes).is_err()).then_some(Guess::Held(Format::MessagePack))
}

fn quote(bytes: &[u8], writer: &mut PrettyWriter<'_>) {
    let mut quoted = Vec::new();
    append_quoted(bytes, &mut quoted);
    writer.plain(&quoted);
}

fn is_control(character: char) -> bool {
    character.is_control() && !"\n\r\t".contains(character)
}

fn count(bytes: usize) -> String {
    if bytes == 1 { "1 byte".to_owned() } else { format!("{bytes} bytes") }
}

/// Longer values are shown as they are.
const INPUT_LEN_MAX: usize = 1 << 20;
/// How much may come out of a compressed value.
const INFLATED_LEN_MAX: usize = 4 << 20;
/// What is read, inflated and written for one reply, all together.
const WORK_BYTES_MAX: usize = 16 << 20;

#[cfg(test)]
mod tests {
    use std::io::Write;

    use flate2::{Compression, write::GzEncoder, write::ZlibEncoder};

    use super::*;

    fn shown(bytes: &[u8]) -> Option<String> {
        let mut output = Vec::new();
        let is_shown = Pretty::on(false).append(bytes, "  ", &mut output);
        assert_eq!(is_shown, !output.is_empty());
        is_shown.then(|| String::from_utf8(output).unwrap())
    }

    fn gzip(bytes: &[u8]) -> Vec<u8> {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
        encoder.write_all(bytes).unwrap();
        encoder.finish().unwrap()
    }

    #[test]
    fn json() {
        let text = shown(b" {\"b\":1.10,\"a\":[true,null,\"x\\u001b\"],\"b\":{},\"c\":[]}");
        let expected = "(JSON, 51 bytes)\n  {\n    \"b\": 1.10,\n    \"a\": [\n      true,\n      null,\n      \
                        \"x\\u001b\"\n    ],\n    \"b\": {},\n    \"c\": []\n  }";
        assert_eq!(text.as_deref(), Some(expected));
        for plain in ["", "{", "[1,]", "{\"a\":1}x", "12", "\"a\"", "true", "text", "[\"\u{7}\"]"] {
            assert_eq!(shown(plain.as_bytes()), None, "{plain}");
        }
        assert_eq!(shown(b"[\"\xff\"]"), None);
        // As deep as serde_json goes.
        let nested = |depth: usize| ["[".repeat(depth), "]".repeat(depth)].concat();
        assert!(shown(nested(100).as_bytes()).is_some());
        assert_eq!(shown(nested(100_000).as_bytes()), None);
    }

    #[test]
    fn colours() {
        let mut output = Vec::new();
        assert!(Pretty::on(true).append(b"{\"a\":1}", "", &mut output));
        let text = String::from_utf8(output).unwrap();
        assert_eq!(
            text,
            "\x1b[90m(JSON, 7 bytes)\x1b[0m\n{\n  \x1b[34m\"a\"\x1b[0m: \x1b[33m1\x1b[0m\n}"
        );
    }

    #[test]
    fn compressed() {
        let text = shown(&gzip(b"{\"a\":1}")).unwrap();
        assert_eq!(text, "(gzip, 27 bytes, of JSON, 7 bytes)\n  {\n    \"a\": 1\n  }");
        let mut zlib = ZlibEncoder::new(Vec::new(), Compression::default());
        zlib.write_all(b"one\ntwo\n").unwrap();
        let zlib = zlib.finish().unwrap();
        assert_eq!(shown(&zlib).unwrap(), "(zlib, 16 bytes, of text, 8 bytes)\n  one\n  two");
        let zstd = ruzstd::encoding::compress_to_vec(
            &b"\x81\xa1a\x01"[..],
            ruzstd::encoding::CompressionLevel::Fastest,
        );
        let text = shown(&zstd).unwrap();
        assert!(
            text.ends_with(" bytes, of MessagePack, 4 bytes)\n  {\n    \"a\": 1\n  }"),
            "{text}"
        );
        let text = shown(&gzip(b"\x00\x1b[2J")).unwrap();
        assert!(text.ends_with("of other data, 5 bytes)\n  \"\\x00\\x1b[2J\""), "{text}");
        assert!(shown(&gzip(b"")).unwrap().ends_with("of text, 0 bytes)"));
        // What begins well and is no more is shown as it is.
        for begun in [&zlib[..9], &zstd[..9], &gzip(b"abc")[..12], b"x\x9c", b"\x1f\x8b\x08"] {
            assert_eq!(shown(begun), None, "{begun:?}");
        }
    }

    #[test]
    fn bombs() {
        let bomb = gzip(&vec![b' '; INFLATED_LEN_MAX + 1]);
        let text = shown(&bomb).unwrap();
        let expected = "(gzip, 4099 bytes, with too much in it)\n  \"\\x1f\\x8b";
        assert!(text.starts_with(expected), "{:?}", text.get(..60));
        // A zstd frame with a window of a terabyte.
        assert_eq!(shown(b"\x28\xb5\x2f\xfd\x00\xf0\x01\x00\x00"), None);
        // Many bombs share what one reply may cost.
        let mut pretty = Pretty::on(false);
        let mut output = Vec::new();
        let shown = (0..1000).filter(|_| pretty.append(&bomb, "", &mut output)).count();
        assert_eq!(shown, 4);
        // Short values whose lines would be long.
        let nested = ["[".repeat(100), "0,".repeat(400_000), "0".into(), "]".repeat(100)].concat();
        assert!(!Pretty::on(true).append(nested.as_bytes(), "", &mut Vec::new()));
    }

    #[test]
    fn long_and_deep_values_stay_as_they_are() {
        for (blanks, is_shown) in [(INPUT_LEN_MAX - 2, true), (INPUT_LEN_MAX - 1, false)] {
            let value = format!("[{}]", " ".repeat(blanks));
            assert_eq!(shown(value.as_bytes()).is_some(), is_shown, "{blanks}");
        }
        for (depth, is_shown) in [(127, true), (128, false)] {
            let value = "[".repeat(depth) + &"]".repeat(depth);
            assert_eq!(shown(value.as_bytes()).is_some(), is_shown, "{depth}");
        }
    }

    /// Every beginning, and every value with one byte changed, is shown or not, and no more.
    #[test]
    fn damaged_values() {
        let packed = b"\x83\xa1a\x93\x01\xff\xc0\xc4\x02ab\xcb\x3f\xf8\0\0\0\0\0\0\x02\xd7\xff\0\0\0\0\x5f\0\0\0";
        let values = [gzip(b"[1,2]"), b"{\"a\":[1,\"\\n\"]}".to_vec(), packed.to_vec()];
        for value in &values {
            assert!(shown(value).is_some());
            for at in 0..value.len() {
                let _ = shown(&value[..at]);
                for byte in 0..=255 {
                    let mut damaged = value.clone();
                    damaged[at] = byte;
                    let _ = shown(&damaged);
                }
            }
        }
    }
}
