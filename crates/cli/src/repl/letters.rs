//! What is typed, as a line editor can read it: each byte of no character is a character that
//! stands for it, and a long text is marked as a pasted one.

/// The characters that the bytes are.
pub fn characters(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len());
    for chunk in bytes.utf8_chunks() {
        for character in chunk.valid().chars() {
            if is_byte(character) {
                // As such a character would be taken for another byte, its own bytes stand for it.
                text.extend(character.encode_utf8(&mut [0; 4]).bytes().map(character_of));
            } else {
                text.push(character);
            }
        }
        text.extend(chunk.invalid().iter().copied().map(character_of));
    }
    text
}

/// The bytes that the characters were.
pub fn bytes(text: &str) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(text.len());
    for character in text.chars() {
        match byte_of(character) {
            Some(byte) => bytes.push(byte),
            None => bytes.extend_from_slice(character.encode_utf8(&mut [0; 4]).as_bytes()),
        }
    }
    bytes
}

/// What is shown of a line; `None` where that is the line.
pub fn shown(line: &str) -> Option<String> {
    line.contains(is_byte).then(|| line.replace(is_byte, "\u{fffd}"))
}

fn is_byte(character: char) -> bool {
    byte_of(character).is_some()
}

fn byte_of(character: char) -> Option<u8> {
    u8::try_from(u32::from(character).checked_sub(BYTES)?).ok()
}

fn character_of(byte: u8) -> char {
    char::from_u32(BYTES + u32::from(byte)).unwrap_or(char::REPLACEMENT_CHARACTER)
}

/// Makes of a keyboard's bytes what the editor reads.
pub struct Letters {
    /// The beginning of a character.
    begun: Vec<u8>,
    is_pasting: bool,
    /// The characters since a key that is none; what belongs to that key may be among them.
    since_key: usize,
}

impl Default for Letters {
    fn default() -> Self {
        Self { begun: Vec::new(), is_pasting: false, since_key: SEQUENCE_LEN_MAX }
    }
}

impl Letters {
    pub fn is_pasting(&self) -> bool {
        self.is_pasting
    }

    pub fn take(&mut self, bytes: &[u8], read: &mut Vec<u8>) {
        let bytes = [&std::mem::take(&mut self.begun), bytes].concat();
        for part in bytes.split_inclusive(u8::is_ascii_control) {
            match part.split_last() {
                Some((key, text)) if key.is_ascii_control() => {
                    self.text(text, read);
                    self.end_paste(read);
                    read.push(*key);
                    self.since_key = if b"\r\n".contains(key) { SEQUENCE_LEN_MAX } else { 0 };
                }
                _ => {
                    // The end of what is here may be the beginning of a character.
                    let is_begun = |from: &usize| {
                        let end = std::str::from_utf8(&part[*from..]);
                        end.is_err_and(|error| {
                            error.valid_up_to() == 0 && error.error_len().is_none()
                        })
                    };
                    let ends = part.len().saturating_sub(3)..part.len();
                    let end = ends.into_iter().find(is_begun).unwrap_or(part.len());
                    self.text(&part[..end], read);
                    self.begun = part[end..].to_vec();
                }
            }
        }
    }

    /// Closes what [`Letters::take`] has marked as pasted.
    pub fn end_paste(&mut self, read: &mut Vec<u8>) {
        if std::mem::take(&mut self.is_pasting) {
            read.extend_from_slice(PASTE_END);
        }
    }

    fn text(&mut self, text: &[u8], read: &mut Vec<u8>) {
        let text = characters(text);
        let keys = SEQUENCE_LEN_MAX.saturating_sub(self.since_key);
        let (start, _) = text.char_indices().nth(keys).unwrap_or((text.len(), ' '));
        let (keys, text) = text.split_at(start);
        self.since_key = self.since_key.saturating_add(keys.chars().count() + text.len());
        read.extend_from_slice(keys.as_bytes());
        if !self.is_pasting && text.len() >= PASTE_LEN_MIN {
            self.is_pasting = true;
            read.extend_from_slice(PASTE_START);
        }
        read.extend_from_slice(text.as_bytes());
    }
}

/// Finds where lines end in what the editor reads. A line end within a pasted text ends no line.
#[derive(Clone, Copy, Default)]
pub struct LineEnds {
    is_pasted: bool,
    /// How many of the last bytes may be the beginning of a mark.
    begun: usize,
}

impl LineEnds {
    /// Takes the next byte. Returns whether a line ends with it.
    pub fn take(&mut self, byte: u8) -> bool {
        let mark = if self.is_pasted { PASTE_END } else { PASTE_START };
        self.begun = match byte {
            _ if byte == mark[self.begun] => self.begun + 1,
            b'\x1b' => 1,
            _ => 0,
        };
        if self.begun == mark.len() {
            *self = Self { is_pasted: !self.is_pasted, begun: 0 };
        }
        !self.is_pasted && b"\r\n".contains(&byte)
    }

    /// The bytes up to the first end of a line, or all of them.
    pub fn first_line<'a>(&mut self, bytes: &'a [u8]) -> &'a [u8] {
        let end = bytes.iter().position(|byte| self.take(*byte));
        &bytes[..end.map_or(bytes.len(), |end| end + 1)]
    }
}

/// Characters for private use stand for bytes from here on.
const BYTES: u32 = 0x10_fe00;
/// What nobody types at once.
const PASTE_LEN_MIN: usize = 64;
/// No key sends more characters.
const SEQUENCE_LEN_MAX: usize = 32;
const PASTE_START: &[u8] = b"\x1b[200~";
const PASTE_END: &[u8] = b"\x1b[201~";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_of_no_character() {
        for line in [&b"set k \xfc\xe4\xff"[..], b"\xe4\xb8", "ä世\u{10fefc}".as_bytes(), b""] {
            let text = characters(line);
            assert_eq!(bytes(&text), line, "{text:?}");
            assert_eq!(characters(&bytes(&text)), text);
        }
        assert_eq!(characters("ä世 x".as_bytes()), "ä世 x");
        assert_eq!(shown("ä世 x"), None);
        assert_eq!(shown(&characters(b"a\xfcb")).as_deref(), Some("a\u{fffd}b"));
    }

    /// What the editor reads when the keyboard's bytes come in these pieces.
    fn read(pieces: &[&[u8]]) -> Vec<u8> {
        let (mut letters, mut read) = (Letters::default(), Vec::new());
        for piece in pieces {
            letters.take(piece, &mut read);
        }
        letters.end_paste(&mut read);
        read
    }

    #[test]
    fn keys_stay_as_they_are() {
        for keys in ["get k\r", "\x1b[1;5Ca\x1b[200~pasted\x1b[201~\r", "ä世\t\x7f"] {
            assert_eq!(read(&[keys.as_bytes()]), keys.as_bytes());
            let single: Vec<&[u8]> = keys.as_bytes().chunks(1).collect();
            assert_eq!(read(&single), keys.as_bytes());
        }
        // No more comes of a character that has begun.
        assert_eq!(bytes(&String::from_utf8(read(&[b"a\xe4", b"\r"])).unwrap()), b"a\xe4\r");
    }

    #[test]
    fn lines_end_outside_of_pasted_texts() {
        let mut ends = LineEnds::default();
        let mut rest: &[u8] = b"get k\r\x1b[A\n\x1b\x1b[200~a\rb\n\x1b[200~\x1b[201~c\rd";
        let mut lines = Vec::new();
        while !rest.is_empty() {
            let line = ends.first_line(rest);
            rest = &rest[line.len()..];
            lines.push(line);
        }
        let pasted = b"\x1b\x1b[200~a\rb\n\x1b[200~\x1b[201~c\r";
        assert_eq!(lines, [&b"get k\r"[..], b"\x1b[A\n", pasted, b"d"]);
        // A mark may come in pieces.
        let single = pasted.iter().map(|byte| ends.take(*byte));
        assert_eq!(single.filter(|is_end| *is_end).count(), 1);
    }

    #[test]
    fn long_texts_are_pasted() {
        let (start, end) = ("\x1b[200~", "\x1b[201~");
        let long = "x".repeat(2000);
        let line = |keys: &str| format!("{start}{keys}{long}{end}\r").into_bytes();
        assert_eq!(read(&[format!("set k {long}\r").as_bytes()]), line("set k "));
        assert_eq!(read(&[b"set k ", long.as_bytes(), b"\r"]), [b"set k ", &line("")[..]].concat());
        let halves = long.as_bytes().split_at(1000);
        assert_eq!(read(&[halves.0, halves.1, b"\r"]), line(""));
        // What belongs to a key is not part of it.
        let keys = &long[..SEQUENCE_LEN_MAX];
        let rest = &long[SEQUENCE_LEN_MAX..];
        let expected = format!("\x1b{keys}{start}{rest}{end}\r");
        assert_eq!(read(&[format!("\x1b{long}\r").as_bytes()]), expected.as_bytes());
    }
}
