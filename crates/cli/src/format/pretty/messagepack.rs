//! MessagePack as JSON would have it, and with words for what JSON has not: `bin("...")` for bytes,
//! `ext(type, "...")` for others' types, `timestamp(seconds)`. Names of maps may be anything.
//!
//! The format: <https://github.com/msgpack/msgpack/blob/master/spec.md>.

use super::{
    NotShown, append_quoted,
    writer::{Colour, PrettyWriter},
};

/// Writes what is one object of MessagePack as a whole.
pub fn show(bytes: &[u8], writer: &mut PrettyWriter<'_>) -> Result<(), NotShown> {
    let mut reader = Reader { rest: bytes };
    value(&mut reader, writer, Colour::Text, DEPTH_MAX)?;
    writer.check()?;
    if reader.rest.is_empty() { Ok(()) } else { Err(NotShown) }
}

struct Reader<'b> {
    rest: &'b [u8],
}

impl<'b> Reader<'b> {
    fn take(&mut self, len: usize) -> Result<&'b [u8], NotShown> {
        let (taken, rest) = self.rest.split_at_checked(len).ok_or(NotShown)?;
        self.rest = rest;
        Ok(taken)
    }

    /// A number of up to eight bytes, the highest first.
    fn unsigned(&mut self, len: usize) -> Result<u64, NotShown> {
        Ok(self.take(len)?.iter().fold(0, |number, byte| number << 8 | u64::from(*byte)))
    }

    fn signed(&mut self, len: usize) -> Result<i64, NotShown> {
        let unused_bits = 64 - 8 * len as u32;
        Ok((self.unsigned(len)? << unused_bits).cast_signed() >> unused_bits)
    }

    fn len(&mut self, len: usize) -> Result<usize, NotShown> {
        usize::try_from(self.unsigned(len)?).map_err(|_| NotShown)
    }
}

/// `text` is the colour of strings: of names it is another.
fn value(
    reader: &mut Reader<'_>,
    writer: &mut PrettyWriter<'_>,
    text: Colour,
    depth_left: usize,
) -> Result<(), NotShown> {
    let first = reader.take(1)?[0];
    let mut number = |number: String| writer.colour(Colour::Number, number.as_bytes());
    // Where a type comes with lengths of 1, 2, 4 or 8 bytes these follow one another.
    let size = |base: u8| 1 << (first - base);
    match first {
        0x00..=0x7f => number(first.to_string()),
        0xe0..=0xff => number(first.cast_signed().to_string()),
        0x80..=0x8f => return map(usize::from(first & 15), reader, writer, depth_left),
        0x90..=0x9f => return list(usize::from(first & 15), reader, writer, depth_left),
        0xa0..=0xbf => return string(reader.take(usize::from(first & 31))?, writer, text),
        0xc0 => writer.colour(Colour::Word, b"null"),
        0xc2 => writer.colour(Colour::Word, b"false"),
        0xc3 => writer.colour(Colour::Word, b"true"),
        0xc4..=0xc6 => {
            let len = reader.len(size(0xc4))?;
            call("bin", "", reader.take(len)?, writer, text);
        }
        0xc7..=0xc9 => {
            let len = reader.len(size(0xc7))?;
            return extension(len, reader, writer, text);
        }
        0xca => number(f32::from_bits(reader.unsigned(4)? as u32).to_string()),
        0xcb => number(f64::from_bits(reader.unsigned(8)?).to_string()),
        0xcc..=0xcf => number(reader.unsigned(size(0xcc))?.to_string()),
        0xd0..=0xd3 => number(reader.signed(size(0xd0))?.to_string()),
        0xd4..=0xd8 => return extension(size(0xd4), reader, writer, text),
        0xd9..=0xdb => {
            let len = reader.len(size(0xd9))?;
            return string(reader.take(len)?, writer, text);
        }
        0xdc | 0xdd => {
            let len = reader.len(2 * size(0xdc))?;
            return list(len, reader, writer, depth_left);
        }
        0xde | 0xdf => {
            let len = reader.len(2 * size(0xde))?;
            return map(len, reader, writer, depth_left);
        }
        0xc1 => return Err(NotShown),
    }
    Ok(())
}

/// However many elements are claimed, each takes a byte at least, or the bytes end.
fn list(
    len: usize,
    reader: &mut Reader<'_>,
    writer: &mut PrettyWriter<'_>,
    depth_left: usize,
) -> Result<(), NotShown> {
    let element = |reader: &mut Reader<'_>, writer: &mut PrettyWriter<'_>, depth_left| {
        value(reader, writer, Colour::Text, depth_left)
    };
    elements(len, *b"[]", reader, writer, depth_left, element)
}

fn map(
    len: usize,
    reader: &mut Reader<'_>,
    writer: &mut PrettyWriter<'_>,
    depth_left: usize,
) -> Result<(), NotShown> {
    let pair = |reader: &mut Reader<'_>, writer: &mut PrettyWriter<'_>, depth_left| {
        value(reader, writer, Colour::Name, depth_left)?;
        writer.plain(b": ");
        value(reader, writer, Colour::Text, depth_left)
    };
    elements(len, *b"{}", reader, writer, depth_left, pair)
}

/// What lies between brackets, each on a line of its own.
fn elements<'r>(
    len: usize,
    brackets: [u8; 2],
    reader: &mut Reader<'r>,
    writer: &mut PrettyWriter<'_>,
    depth_left: usize,
    element: impl Fn(&mut Reader<'r>, &mut PrettyWriter<'_>, usize) -> Result<(), NotShown>,
) -> Result<(), NotShown> {
    let depth_left = depth_left.checked_sub(1).ok_or(NotShown)?;
    if len == 0 {
        writer.plain(&brackets);
        return Ok(());
    }
    writer.open(brackets[0])?;
    for index in 0..len {
        if index > 0 {
            writer.plain(b",");
            writer.line()?;
        }
        element(reader, writer, depth_left)?;
    }
    Ok(writer.close(brackets[1])?)
}

fn string(bytes: &[u8], writer: &mut PrettyWriter<'_>, colour: Colour) -> Result<(), NotShown> {
    // What some programs write for bytes is no string; it is a sign of something else, too.
    let text = std::str::from_utf8(bytes).map_err(|_| NotShown)?;
    let quoted = serde_json::to_string(text).map_err(|_| NotShown)?;
    writer.colour(colour, quoted.as_bytes());
    Ok(())
}

/// `name(arguments "bytes")`
fn call(name: &str, arguments: &str, bytes: &[u8], writer: &mut PrettyWriter<'_>, colour: Colour) {
    writer.plain(format!("{name}({arguments}").as_bytes());
    let mut quoted = Vec::new();
    append_quoted(bytes, &mut quoted);
    writer.colour(colour, &quoted);
    writer.plain(b")");
}

fn extension(
    len: usize,
    reader: &mut Reader<'_>,
    writer: &mut PrettyWriter<'_>,
    colour: Colour,
) -> Result<(), NotShown> {
    let kind = reader.signed(1)?;
    let bytes = reader.take(len)?;
    let Some((seconds, nanoseconds)) = timestamp(bytes).filter(|_| kind == TIMESTAMP) else {
        call("ext", &format!("{kind}, "), bytes, writer, colour);
        return Ok(());
    };
    writer.plain(b"timestamp(");
    let number = match nanoseconds {
        0 => seconds.to_string(),
        _ => format!("{}", seconds as f64 + nanoseconds as f64 / 1e9),
    };
    writer.colour(Colour::Number, number.as_bytes());
    writer.plain(b")");
    Ok(())
}

/// Seconds since 1970, and nanoseconds.
fn timestamp(bytes: &[u8]) -> Option<(i64, u64)> {
    let mut reader = Reader { rest: bytes };
    let (seconds, nanoseconds) = match bytes.len() {
        4 => (reader.signed(4).ok()? & 0xffff_ffff, 0),
        8 => {
            let both = reader.unsigned(8).ok()?;
            ((both & ((1 << 34) - 1)).cast_signed(), both >> 34)
        }
        12 => {
            let nanoseconds = reader.unsigned(4).ok()?;
            (reader.signed(8).ok()?, nanoseconds)
        }
        _ => return None,
    };
    (nanoseconds < 1_000_000_000).then_some((seconds, nanoseconds))
}

/// How deep lists may lie in one another: as deep as those of JSON.
const DEPTH_MAX: usize = 128;
const TIMESTAMP: i64 = -1;

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(bytes: &[u8]) -> Result<String, NotShown> {
        let mut writer = PrettyWriter::new("", false);
        show(bytes, &mut writer)?;
        Ok(String::from_utf8(writer.into_bytes()).unwrap())
    }

    #[test]
    fn every_type() {
        let cases: [(&[u8], &str); 30] = [
            (b"\x7f", "127"),
            (b"\xff", "-1"),
            (b"\x80", "{}"),
            (b"\x90", "[]"),
            (b"\xa2a\x1b", "\"a\\u001b\""),
            (b"\xc0", "null"),
            (b"\xc2", "false"),
            (b"\xc3", "true"),
            (b"\xc4\x01\xff", "bin(\"\\xff\")"),
            (b"\xc5\0\x01a", "bin(\"a\")"),
            (b"\xc6\0\0\0\x01a", "bin(\"a\")"),
            (b"\xc7\x01\x05a", "ext(5, \"a\")"),
            (b"\xc7\x0c\xff\0\0\0\0\xff\xff\xff\xff\xff\xff\xff\xff", "timestamp(-1)"),
            (b"\xc8\0\x01\x05a", "ext(5, \"a\")"),
            (b"\xca\x3f\xc0\0\0", "1.5"),
            (b"\xcb\x3f\xb9\x99\x99\x99\x99\x99\x9a", "0.1"),
            (b"\xcc\xff", "255"),
            (b"\xcf\xff\xff\xff\xff\xff\xff\xff\xff", "18446744073709551615"),
            (b"\xd0\x80", "-128"),
            (b"\xd1\xff\xfe", "-2"),
            (b"\xd3\x80\0\0\0\0\0\0\0", "-9223372036854775808"),
            (b"\xd4\xfe\x01", "ext(-2, \"\\x01\")"),
            (b"\xd6\xff\xff\xff\xff\xff", "timestamp(4294967295)"),
            (b"\xd7\xff\x77\x35\x94\0\0\0\0\x01", "timestamp(1.5)"),
            (
                b"\xd7\xff\xff\xff\xff\xff\0\0\0\x01",
                "ext(-1, \"\\xff\\xff\\xff\\xff\\x00\\x00\\x00\\x01\")",
            ),
            (b"\xd9\x01a", "\"a\""),
            (b"\xdb\0\0\0\x01a", "\"a\""),
            (b"\xdc\0\x01\x01", "[\n  1\n]"),
            (b"\xde\0\x01\x01\xa1x", "{\n  1: \"x\"\n}"),
            (b"\x92\x91\x01\x81\xa1a\x90", "[\n  [\n    1\n  ],\n  {\n    \"a\": []\n  }\n]"),
        ];
        for (bytes, expected) in cases {
            assert_eq!(shown(bytes).unwrap(), expected, "{bytes:?}");
        }
    }

    #[test]
    fn what_is_no_messagepack() {
        // Nothing, no type, cut off, more than one object, no text, four thousand million elements.
        let wrong: [&[u8]; 7] = [
            b"",
            b"\xc1",
            b"\xa2a",
            b"\x01\x01",
            b"\xa1\xff",
            b"\xdd\xff\xff\xff\xff\x01",
            b"\xd4",
        ];
        for bytes in wrong {
            assert!(shown(bytes).is_err(), "{bytes:?}");
        }
        let nested = |depth: usize| [vec![0x91; depth], vec![0x90]].concat();
        assert!(shown(&nested(DEPTH_MAX - 1)).is_ok());
        assert!(shown(&nested(DEPTH_MAX)).is_err());
        assert!(shown(&nested(1_000_000)).is_err());
    }
}
