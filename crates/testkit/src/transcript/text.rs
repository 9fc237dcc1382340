//! Words and bytes as text, and back.

/// Splits a command line as valkey-cli does: words at spaces, `"..."` with `\n \r \t \a \b \\ \"
/// \xNN`, `'...'` with `\'`. After a closing quote `*N` repeats the word N times.
pub fn split_words(line: &str) -> Result<Vec<Vec<u8>>, String> {
    let mut words = Vec::new();
    let mut rest = line.trim_start().as_bytes();
    while let Some(&first) = rest.first() {
        let mut word = Vec::new();
        rest = match first {
            b'"' | b'\'' => {
                let after = quoted(first, &rest[1..], &mut word)?;
                repeated(after, &mut word)?
            }
            _ => {
                let end = rest.iter().position(|&byte| byte == b' ').unwrap_or(rest.len());
                word.extend_from_slice(&rest[..end]);
                &rest[end..]
            }
        };
        words.push(word);
        match rest.first() {
            None => break,
            Some(b' ') => rest = rest.trim_ascii_start(),
            Some(_) => return Err(format!("no space after a quoted word: {line}")),
        }
    }
    Ok(words)
}

/// Printable ASCII stays, `\` `"` and everything else is escaped.
pub fn escape(bytes: &[u8]) -> String {
    let mut output = String::new();
    for &byte in bytes {
        match byte {
            b'\\' => output.push_str("\\\\"),
            b'"' => output.push_str("\\\""),
            b'\n' => output.push_str("\\n"),
            b'\r' => output.push_str("\\r"),
            b'\t' => output.push_str("\\t"),
            b' '..=b'~' => output.push(char::from(byte)),
            _ => output.push_str(&format!("\\x{byte:02x}")),
        }
    }
    output
}

/// Reads up to the closing `quote`; returns what follows it.
fn quoted<'a>(quote: u8, mut rest: &'a [u8], word: &mut Vec<u8>) -> Result<&'a [u8], String> {
    loop {
        let Some((&byte, after)) = rest.split_first() else {
            return Err("a quote is not closed".to_owned());
        };
        rest = after;
        if byte == quote {
            return Ok(rest);
        }
        if byte != b'\\' {
            word.push(byte);
            continue;
        }
        let Some((&escaped, after)) = rest.split_first() else {
            return Err("a backslash ends the line".to_owned());
        };
        rest = after;
        match escaped {
            b'\'' if quote == b'\'' => word.push(b'\''),
            _ if quote == b'\'' => word.extend_from_slice(&[b'\\', escaped]),
            b'n' => word.push(b'\n'),
            b'r' => word.push(b'\r'),
            b't' => word.push(b'\t'),
            b'a' => word.push(7),
            b'b' => word.push(8),
            b'x' => {
                let digits = rest.get(..2).and_then(|digits| std::str::from_utf8(digits).ok());
                let value = digits.and_then(|digits| u8::from_str_radix(digits, 16).ok());
                word.push(value.ok_or("\\x needs two hexadecimal digits")?);
                rest = &rest[2..];
            }
            other => word.push(other),
        }
    }
}

/// Applies `*N`, if it stands at the start of `rest`; returns what follows it.
fn repeated<'a>(rest: &'a [u8], word: &mut Vec<u8>) -> Result<&'a [u8], String> {
    let Some(count) = rest.strip_prefix(b"*") else { return Ok(rest) };
    let end = count.iter().position(|byte| !byte.is_ascii_digit()).unwrap_or(count.len());
    let digits = std::str::from_utf8(&count[..end]).unwrap_or_default();
    let times: usize = digits.parse().map_err(|_| "* after a quoted word needs a number")?;
    if times.saturating_mul(word.len()) > WORD_BYTES_MAX {
        return Err(format!("a word of more than {WORD_BYTES_MAX} bytes"));
    }
    *word = word.repeat(times);
    Ok(&count[end..])
}

const WORD_BYTES_MAX: usize = 64 << 20;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_split_as_by_the_shell_of_valkey() {
        let words = split_words(r#"SET "a b\x00\n" 'it\'s \n' "" "xy"*3"#).expect("is well formed");
        let expected: [&[u8]; 5] = [b"SET", b"a b\0\n", b"it's \\n", b"", b"xyxyxy"];
        assert_eq!(words, expected);
        assert!(split_words(r#"GET "a"#).is_err());
        assert!(split_words(r#"GET "a"b"#).is_err());
        assert!(split_words(r#"GET "\xg0""#).is_err());
    }

    #[test]
    fn every_byte_survives_escaping() {
        let all: Vec<u8> = (0..=255).collect();
        let line = format!("\"{}\"", escape(&all));
        assert_eq!(split_words(&line).expect("is well formed"), [all]);
    }
}
