//! Words of a line: splitting with Redis's quotes and escapes, and writing them back.

/// Splits a line into words. Words are separated by white space; `"..."` knows the escapes
/// `\n \r \t \b \a \xHH \" \\`, `'...'` only `\'`. `None`: a quote is not closed, or something
/// follows a closing one directly. (The grammar of redis.conf, of inline commands and of redis-cli.)
pub fn split(line: &[u8]) -> Option<Vec<Vec<u8>>> {
    let mut words = Vec::new();
    let mut rest = line;
    loop {
        rest = rest.trim_ascii_start();
        // 0x0b is white space to C and not to `trim_ascii_start`.
        while let [b'\x0b', after @ ..] = rest {
            rest = after.trim_ascii_start();
        }
        if rest.is_empty() {
            return Some(words);
        }
        let (word, after) = take_word(rest)?;
        words.push(word);
        rest = after;
    }
}

/// The first word of `line`, which begins with it, and what follows.
fn take_word(line: &[u8]) -> Option<(Vec<u8>, &[u8])> {
    let mut word = Vec::new();
    let mut rest = line;
    loop {
        match rest {
            [] | [b'\0', ..] => return Some((word, &[])),
            [b' ' | b'\n' | b'\r' | b'\t', after @ ..] => return Some((word, after)),
            [quote @ (b'"' | b'\''), after @ ..] => {
                rest = take_quoted(*quote, after, &mut word)?;
                let closed = rest.first().is_none_or(|byte| is_space(*byte));
                return closed.then_some((word, rest));
            }
            [byte, after @ ..] => {
                word.push(*byte);
                rest = after;
            }
        }
    }
}

/// Reads up to the closing `quote` and returns what follows it.
fn take_quoted<'l>(quote: u8, text: &'l [u8], word: &mut Vec<u8>) -> Option<&'l [u8]> {
    let mut rest = text;
    loop {
        rest = match rest {
            [] => return None,
            [byte, after @ ..] if *byte == quote => return Some(after),
            [b'\\', b'x', high, low, after @ ..]
                if quote == b'"' && high.is_ascii_hexdigit() && low.is_ascii_hexdigit() =>
            {
                word.push(hex_digit(*high) << 4 | hex_digit(*low));
                after
            }
            [b'\\', escaped, after @ ..] if quote == b'"' => {
                word.push(unescaped(*escaped));
                after
            }
            [b'\\', b'\'', after @ ..] if quote == b'\'' => {
                word.push(b'\'');
                after
            }
            [byte, after @ ..] => {
                word.push(*byte);
                after
            }
        };
    }
}

/// `text` in double quotes, with everything not printable escaped.
pub fn quote(text: &[u8]) -> Vec<u8> {
    let mut quoted = vec![b'"'];
    for byte in text {
        match byte {
            b'"' | b'\\' => quoted.extend([b'\\', *byte]),
            b'\n' => quoted.extend(b"\\n"),
            b'\r' => quoted.extend(b"\\r"),
            b'\t' => quoted.extend(b"\\t"),
            0x07 => quoted.extend(b"\\a"),
            0x08 => quoted.extend(b"\\b"),
            b' '..=b'~' => quoted.push(*byte),
            _ => quoted.extend(format!("\\x{byte:02x}").into_bytes()),
        }
    }
    quoted.push(b'"');
    quoted
}

fn unescaped(byte: u8) -> u8 {
    match byte {
        b'n' => b'\n',
        b'r' => b'\r',
        b't' => b'\t',
        b'b' => 0x08,
        b'a' => 0x07,
        other => other,
    }
}

fn hex_digit(digit: u8) -> u8 {
    match digit {
        b'0'..=b'9' => digit - b'0',
        _ => (digit | 0x20) - b'a' + 10,
    }
}

fn is_space(byte: u8) -> bool {
    byte.is_ascii_whitespace() || byte == 0x0b
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(line: &str) -> Option<Vec<String>> {
        let words = split(line.as_bytes())?;
        Some(words.into_iter().map(|word| String::from_utf8(word).unwrap()).collect())
    }

    #[test]
    fn splits_as_redis_does() {
        assert_eq!(words("  a  b\tc\r\n").unwrap(), ["a", "b", "c"]);
        assert_eq!(words("").unwrap(), [""; 0]);
        assert_eq!(words("save \"\"").unwrap(), ["save", ""]);
        assert_eq!(words(r#"a"b c""#).unwrap(), ["ab c"]);
        assert_eq!(words(r#""\x41\n\q\"" 'it\'s \n'"#).unwrap(), ["A\nq\"", "it's \\n"]);
        assert_eq!(words(r#""\xg1""#).unwrap(), ["xg1"]);
        for open in ["\"a", "'a", "\"a\"b", "'a'b", "a\"", "\"\\"] {
            assert_eq!(words(open), None, "{open}");
        }
    }

    #[test]
    fn what_is_quoted_splits_to_itself() {
        let all: Vec<u8> = (0..=255).collect();
        assert_eq!(split(&quote(&all)).unwrap(), [all]);
        assert_eq!(quote(b"a\x00\"\\\n\xff"), br#""a\x00\"\\\n\xff""#);
    }
}
