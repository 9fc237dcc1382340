//! The words of a line: splitting with Redis's quotes and escapes, and writing words back.

/// Splits a line into words, which white space separates. `"..."` has the escapes `\n \r \t \b \a
/// \xHH \" \\`, and `'...'` only `\'`. Returns `None` if a quote is not closed, or if something
/// follows a closing quote directly. This is the grammar of redis.conf, of inline commands and of
/// redis-cli.
pub fn split(line: &[u8]) -> Option<Vec<Vec<u8>>> {
    let mut words = Vec::new();
    let mut rest = line;
    loop {
        rest = rest.trim_ascii_start();
        // 0x0b is white space for C, but not for `trim_ascii_start`.
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

/// The first word of `line`, which begins with it, and the rest.
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

/// Reads up to the closing `quote`. Returns the rest.
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

/// `text` as a word of a line. It stays as it is if it has only printable ASCII without spaces,
/// quotes and backslashes; otherwise it is quoted.
pub fn word(text: &[u8]) -> Vec<u8> {
    let is_safe = |byte: &u8| byte.is_ascii_graphic() && !b"\"'\\".contains(byte);
    if !text.is_empty() && text.iter().all(is_safe) { text.to_vec() } else { quote(text) }
}

/// The text of an option of several words, which spaces separate, as it is written behind the
/// option's name in a file.
pub(super) fn words_for_file(text: &[u8]) -> Vec<u8> {
    let words: Vec<Vec<u8>> = text.split(|byte| *byte == b' ').map(word).collect();
    match &words[..] {
        // A single word is split again when it is read, so it is quoted again.
        [only] if only.starts_with(b"\"") && !text.is_empty() => quote(only),
        _ => words.join(&b' '),
    }
}

/// `text` in double quotes. Bytes that are not printable are escaped.
pub fn quote(text: &[u8]) -> Vec<u8> {
    let mut quoted = Vec::with_capacity(text.len() + 2);
    quoted.push(b'"');
    for byte in text {
        match byte {
            b'"' | b'\\' => quoted.extend([b'\\', *byte]),
            b'\n' => quoted.extend(b"\\n"),
            b'\r' => quoted.extend(b"\\r"),
            b'\t' => quoted.extend(b"\\t"),
            0x07 => quoted.extend(b"\\a"),
            0x08 => quoted.extend(b"\\b"),
            b' '..=b'~' => quoted.push(*byte),
            _ => quoted.extend([b'\\', b'x', hex(byte >> 4), hex(byte & 0x0f)]),
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

const fn hex(digit: u8) -> u8 {
    b"0123456789abcdef"[digit as usize]
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

    #[test]
    fn only_words_of_the_safe_alphabet_stay_as_they_are() {
        for safe in ["a", "127.0.0.1", "-::*", "~a*b?[c]", "#0", "{x}=$(y)"] {
            assert_eq!(word(safe.as_bytes()), safe.as_bytes());
        }
        for byte in 0..=255 {
            let text = [b'a', byte, b'b'];
            let line = [b"name ", &*word(&text), b" next"].concat();
            assert_eq!(split(&line).unwrap(), [&b"name"[..], &text, b"next"], "{byte}");
        }
        assert_eq!(word(b""), b"\"\"");
    }
}
