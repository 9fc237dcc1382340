//! Splitting a line into arguments as people type them: words between blanks, `"..."` with
//! escapes, `'...'` almost without. Inline commands, configuration files and the shell share it.

/// The arguments of `line`, or `None` when a quote in it never ends.
///
/// In double quotes `\n \r \t \b \a` and `\xHH` are escapes, and a backslash makes any other byte
/// plain; in single quotes only `\'` is one. Quotes may stand in the middle of a word and add to
/// it. A backslash whose byte would be the last of the line stands for itself: `"a\"` is `a\`.
/// Blanks in front of a word are those of C's `isspace`; a word ends at a space, a tab, CR or LF.
/// A NUL ends the line.
pub fn split_arguments(line: &[u8]) -> Option<Vec<Vec<u8>>> {
    let line = &line[..memchr::memchr(0, line).unwrap_or(line.len())];
    let mut arguments = Vec::new();
    let mut at = 0;
    loop {
        while line.get(at).is_some_and(|&byte| is_space(byte)) {
            at += 1;
        }
        if at == line.len() {
            return Some(arguments);
        }
        let mut word = Vec::new();
        while let Some(&byte) = line.get(at) {
            at = match byte {
                b'"' => double_quoted(line, at + 1, &mut word)?,
                b'\'' => single_quoted(line, at + 1, &mut word)?,
                byte if ends_word(byte) => break,
                byte => {
                    word.push(byte);
                    at + 1
                }
            };
        }
        arguments.push(word);
    }
}

/// Pushes the words of a line without quotes and NULs, which need no copy.
pub(crate) fn split_plain<'a>(line: &'a [u8], arguments: &mut Vec<&'a [u8]>) {
    let mut rest = line;
    loop {
        let Some(start) = rest.iter().position(|&byte| !is_space(byte)) else { return };
        rest = &rest[start..];
        let end = rest.iter().position(|&byte| ends_word(byte)).unwrap_or(rest.len());
        arguments.push(&rest[..end]);
        rest = &rest[end..];
    }
}

/// Reads up to the closing quote and returns the position behind it.
fn double_quoted(line: &[u8], mut at: usize, word: &mut Vec<u8>) -> Option<usize> {
    loop {
        match &line[at..] {
            [b'\\', b'x', high, low, _, ..]
                if high.is_ascii_hexdigit() && low.is_ascii_hexdigit() =>
            {
                word.push(hex_digit(*high) << 4 | hex_digit(*low));
                at += 4;
            }
            [b'\\', escaped, _, ..] => {
                word.push(match escaped {
                    b'n' => b'\n',
                    b'r' => b'\r',
                    b't' => b'\t',
                    b'b' => 0x08,
                    b'a' => 0x07,
                    other => *other,
                });
                at += 2;
            }
            [b'"', ..] => return Some(at + 1),
            [byte, ..] => {
                word.push(*byte);
                at += 1;
            }
            [] => return None,
        }
    }
}

/// Reads up to the closing quote and returns the position behind it.
fn single_quoted(line: &[u8], mut at: usize, word: &mut Vec<u8>) -> Option<usize> {
    loop {
        match &line[at..] {
            [b'\\', b'\'', _, ..] => {
                word.push(b'\'');
                at += 2;
            }
            [b'\'', ..] => return Some(at + 1),
            [byte, ..] => {
                word.push(*byte);
                at += 1;
            }
            [] => return None,
        }
    }
}

fn is_space(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t' | b'\n' | b'\r' | 0x0b | 0x0c)
}

fn ends_word(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t' | b'\n' | b'\r')
}

fn hex_digit(digit: u8) -> u8 {
    match digit {
        b'0'..=b'9' => digit - b'0',
        _ => (digit | 0x20) - b'a' + 10,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn split(line: &[u8]) -> Option<Vec<Vec<u8>>> {
        split_arguments(line)
    }

    fn words(words: &[&[u8]]) -> Option<Vec<Vec<u8>>> {
        Some(words.iter().map(|word| word.to_vec()).collect())
    }

    #[test]
    fn blanks_separate_words() {
        assert_eq!(split(b""), words(&[]));
        assert_eq!(split(b" \t\x0b\x0c\r "), words(&[]));
        assert_eq!(split(b"  a  b "), words(&[b"a", b"b"]));
        assert_eq!(split(b"a\rb"), words(&[b"a", b"b"]));
        assert_eq!(split(b"a \x0bx\x0c"), words(&[b"a", b"x\x0c"]));
        assert_eq!(split(b"a\x0bb"), words(&[b"a\x0bb"]));
        assert_eq!(split(b"a\xa0b"), words(&[b"a\xa0b"]));
        assert_eq!(split(b"a\0b"), words(&[b"a"]));
    }

    // Each of these was asked of valkey-server 9.1.2 with ECHO.
    #[test]
    fn quotes_and_escapes() {
        assert_eq!(split(br#""""#), words(&[b""]));
        assert_eq!(split(br#"a"b"c"#), words(&[b"abc"]));
        assert_eq!(split(br#"a""b''c"#), words(&[b"abc"]));
        assert_eq!(split(br#""PING"x"#), words(&[b"PINGx"]));
        assert_eq!(split(br#""a"b"c""#), words(&[b"abc"]));
        assert_eq!(split(br#""a\x41\n\q""#), words(&[b"aA\nq"]));
        assert_eq!(split(br#""\x41""#), words(&[b"A"]));
        assert_eq!(split(br#""\x4""#), words(&[b"x4"]));
        assert_eq!(split(br#""\x4g\xgg\xAf\t\b\a\\\"""#), words(&[b"x4gxgg\xaf\t\x08\x07\\\""]));
        assert_eq!(split(br#"a\nb"#), words(&[br"a\nb"]));
        assert_eq!(split(br"'it\'s'"), words(&[b"it's"]));
        assert_eq!(split(br"'\x41\n'"), words(&[br"\x41\n"]));
        assert_eq!(split(br"'\\'"), words(&[br"\\"]));
        assert_eq!(split(b"\"a\rb\""), words(&[b"a\rb"]));
        assert_eq!(split(b"\"a\"\x0bb"), words(&[b"a\x0bb"]));
    }

    #[test]
    fn a_backslash_before_the_last_byte_is_plain() {
        assert_eq!(split(br#""a\""#), words(&[br"a\"]));
        assert_eq!(split(br#""a\"\""#), words(&[br#"a"\"#]));
        assert_eq!(split(br"'a\'"), words(&[br"a\"]));
        assert_eq!(split(br#""a\" "#), None);
        assert_eq!(split(br"'a\' "), None);
        assert_eq!(split(br#""\"" "#), words(&[b"\""]));
    }

    #[test]
    fn unbalanced_quotes() {
        for line in [&br#""a"#[..], b"'a", br#"a""#, br#""\"#, br#""a\\"#, br#""\x41"#, br#""a"'b"#]
        {
            assert_eq!(split(line), None, "{}", line.escape_ascii());
        }
    }

    #[test]
    fn plain_lines_split_alike() {
        for line in [&b""[..], b" ", b"PING", b" a\x0bb  c\r d\x0c", b"\x0b\x0cx"] {
            let mut arguments = Vec::new();
            split_plain(line, &mut arguments);
            let owned = arguments.iter().map(|word| word.to_vec()).collect::<Vec<_>>();
            assert_eq!(Some(owned), split(line));
        }
    }
}
