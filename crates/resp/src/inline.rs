//! Splits a line into arguments as people type them: words between blanks, `"..."` with escapes,
//! and `'...'` with almost none. Inline commands, configuration files and the shell all use it.

use memchr::{memchr, memchr2};

/// The arguments of `line`, or `None` if a quote in it never ends.
///
/// In double quotes `\n \r \t \b \a` and `\xHH` are escapes, and any other byte behind a backslash
/// means itself. In single quotes only `\'` is an escape. A quoted part may be in the middle of a
/// word and belongs to that word. If the byte behind a backslash would be the last of the line, the
/// backslash means itself: `"a\"` is `a\`. The blanks before a word are those of C's `isspace`, but
/// a word ends only at a space, a tab, CR or LF. A NUL ends the line.
pub fn split_arguments(line: &[u8]) -> Option<Vec<Vec<u8>>> {
    let mut rest = &line[..memchr(0, line).unwrap_or(line.len())];
    let mut words = Vec::new();
    while skip_blanks(&mut rest) {
        let mut word = Vec::new();
        take_word(&mut rest, &mut word)?;
        words.push(word);
    }
    Some(words)
}

/// Pushes the words of a line that has no quotes and no NULs. They need no copy.
pub(crate) fn split_plain<'a>(line: &'a [u8], arguments: &mut Vec<&'a [u8]>) {
    let mut rest = line;
    while skip_blanks(&mut rest) {
        arguments.push(take_until(&mut rest, ends_word));
    }
}

/// Skips blanks. Returns whether a word follows.
fn skip_blanks(rest: &mut &[u8]) -> bool {
    take_until(rest, |byte| !is_blank(byte));
    !rest.is_empty()
}

/// Takes plain and quoted parts up to the end of the word.
fn take_word(rest: &mut &[u8], word: &mut Vec<u8>) -> Option<()> {
    loop {
        word.extend_from_slice(take_until(rest, |byte| is_quote(byte) || ends_word(byte)));
        match rest.split_first() {
            Some((&quote, quoted)) if is_quote(quote) => {
                *rest = quoted;
                take_quoted(rest, quote, word)?;
            }
            _ => return Some(()),
        }
    }
}

/// Takes the text before the closing quote, and that quote.
fn take_quoted(rest: &mut &[u8], quote: u8, word: &mut Vec<u8>) -> Option<()> {
    loop {
        let (plain, special) = rest.split_at(memchr2(quote, b'\\', rest)?);
        word.extend_from_slice(plain);
        if special[0] == quote {
            *rest = &special[1..];
            return Some(());
        }
        let (byte, len) = unescape(special, quote);
        word.push(byte);
        *rest = &special[len..];
    }
}

/// The byte that the escape at the start of `text` means, and the length of the escape. The
/// backslash means itself if the byte behind it is the last of the line.
fn unescape(text: &[u8], quote: u8) -> (u8, usize) {
    match *text {
        [_, b'x', high, low, _, ..] if quote == b'"' && is_hex(high) && is_hex(low) => {
            (hex_value(high) << 4 | hex_value(low), 4)
        }
        [_, escaped, _, ..] if quote == b'"' => (control(escaped).unwrap_or(escaped), 2),
        [_, b'\'', _, ..] if quote == b'\'' => (b'\'', 2),
        _ => (b'\\', 1),
    }
}

/// The control character that a letter behind a backslash means.
fn control(letter: u8) -> Option<u8> {
    const CONTROLS: [(u8, u8); 5] =
        [(b'a', 0x07), (b'b', 0x08), (b't', b'\t'), (b'n', b'\n'), (b'r', b'\r')];
    CONTROLS.iter().find(|(name, _)| *name == letter).map(|(_, byte)| *byte)
}

fn take_until<'a>(rest: &mut &'a [u8], ends: impl Fn(u8) -> bool) -> &'a [u8] {
    let end = rest.iter().position(|&byte| ends(byte)).unwrap_or(rest.len());
    let (taken, others) = rest.split_at(end);
    *rest = others;
    taken
}

fn is_blank(byte: u8) -> bool {
    ends_word(byte) || matches!(byte, 0x0b | 0x0c)
}

fn ends_word(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t' | b'\n' | b'\r')
}

fn is_quote(byte: u8) -> bool {
    matches!(byte, b'"' | b'\'')
}

fn is_hex(digit: u8) -> bool {
    digit.is_ascii_hexdigit()
}

/// The value of a digit for which [`is_hex`] is true.
fn hex_value(digit: u8) -> u8 {
    if digit.is_ascii_digit() { digit - b'0' } else { (digit | 0x20) - b'a' + 10 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

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

    // The expected results were obtained from valkey-server 9.1.2 with ECHO.
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

    /// The word in double quotes. Every byte that can be escaped is escaped in one of the possible
    /// ways.
    fn quoted(word: &[u8]) -> Vec<u8> {
        let mut line = vec![b'"'];
        for &byte in word {
            match byte {
                b'"' | b'\\' => line.extend([b'\\', byte]),
                b' '..=b'~' => line.push(byte),
                _ => line.extend(format!("\\x{byte:02X}").bytes()),
            }
        }
        line.push(b'"');
        line
    }

    proptest! {
        #[test]
        fn quoted_words_come_back(words: Vec<Vec<u8>>) {
            let line = words.iter().map(|word| quoted(word)).collect::<Vec<_>>().join(&b' ');
            // With another byte at the end no escape is the last byte.
            prop_assert_eq!(split(&[&line[..], b" "].concat()), Some(words));
        }

        #[test]
        fn lines_without_quotes_split_alike(line in "[a\\\\x \t\r\n\x0b\x0c]{0,20}") {
            let mut arguments = Vec::new();
            split_plain(line.as_bytes(), &mut arguments);
            let owned = arguments.iter().map(|word| word.to_vec()).collect::<Vec<_>>();
            prop_assert_eq!(Some(owned), split(line.as_bytes()));
        }

        /// A line gives the same words as its words split one by one.
        #[test]
        fn words_do_not_depend_on_their_neighbours(words in r#"([ab'"\\x4n]{1,8} ){0,5}"#) {
            let mut each = Vec::new();
            let mut rest = words.as_bytes();
            while let Some(space) = memchr(b' ', rest) {
                let (word, others) = rest.split_at(space + 1);
                each.push(split(word));
                rest = others;
            }
            // Blanks within quotes join words. Other tests have such lines.
            if let Some(each) = each.into_iter().collect::<Option<Vec<_>>>() {
                prop_assert_eq!(split(words.as_bytes()), Some(each.concat()));
            }
        }
    }
}
