//! Counts how often each kind of error was answered.

use std::borrow::Cow;
use std::collections::BTreeMap;

use bobbin_sync::Mutex;

/// How often each kind of error was answered, by its code.
#[derive(Default)]
#[repr(align(128))]
pub struct ErrorStats {
    counts: Mutex<BTreeMap<String, u64>>,
}

impl ErrorStats {
    /// Once there are this many kinds, new kinds that scripts make up are no longer told apart.
    const KINDS_MAX: usize = 128;
    /// What those are counted as.
    const OTHERS: &'static str = "ERRORSTATS_OVERFLOW";

    /// Counts one of the server's own errors, of which there are few kinds. `text` is the answer.
    #[cold]
    pub fn count(&self, text: &[u8]) {
        Self::add(&mut self.counts.lock(), &code_of(text));
    }

    /// Counts an error that a script made up.
    #[cold]
    pub fn count_custom(&self, text: &[u8]) {
        let code = code_of(text);
        let mut counts = self.counts.lock();
        let is_known = counts.len() < Self::KINDS_MAX || counts.contains_key(&*code);
        Self::add(&mut counts, if is_known { &code } else { Self::OTHERS });
    }

    fn add(counts: &mut BTreeMap<String, u64>, code: &str) {
        match counts.get_mut(code) {
            Some(count) => *count += 1,
            None => {
                counts.insert(code.to_owned(), 1);
            }
        }
    }

    pub fn all(&self) -> Vec<(String, u64)> {
        self.counts.lock().iter().map(|(code, count)| (code.clone(), *count)).collect()
    }

    pub fn reset(&self) {
        self.counts.lock().clear();
    }
}

/// The code that an error is counted by: its first word, as in Valkey. A text of one word, or with
/// a first word that is too long for a code, has none and counts as `ERR`.
fn code_of(text: &[u8]) -> Cow<'_, str> {
    let text = text.strip_suffix(b"\r\n").unwrap_or(text);
    let beginning = &text[..text.len().min(CODE_BYTES_MAX + 1)];
    // In the reply to the client, a space replaces each byte that ends a line.
    let end = beginning.iter().position(|byte| b" \r\n".contains(byte));
    end.map_or(Cow::Borrowed("ERR"), |end| String::from_utf8_lossy(&text[..end]))
}

const CODE_BYTES_MAX: usize = 30;

#[cfg(test)]
mod tests {
    use super::*;

    /// The codes that valkey-server 9.1.2 counted for errors that a script returned.
    #[test]
    fn the_code_is_a_short_first_word() {
        let long = "a".repeat(30);
        for (text, code) in [
            ("ZZ foo", "ZZ"),
            ("ZZ", "ERR"),
            ("ZZ\r\n", "ERR"),
            ("", "ERR"),
            (" ZZ a", ""),
            ("-ZZ a", "-ZZ"),
            ("C\rD#E foo", "C"),
            ("abc\r\nx y", "abc"),
            ("A:B=1 x", "A:B=1"),
            ("a\tb c\r\n", "a\tb"),
            (&format!("{long} x"), &long),
            (&format!("{long}a x"), "ERR"),
        ] {
            assert_eq!(code_of(text.as_bytes()), code, "{text:?}");
        }
    }

    #[test]
    fn made_up_errors_are_told_apart_up_to_a_limit() {
        let errors = ErrorStats::default();
        for number in 1..=1100 {
            errors.count_custom(format!("{number} x").as_bytes());
        }
        errors.count(b"ERR x");
        errors.count_custom(b"1 y");
        let all: BTreeMap<_, _> = errors.all().into_iter().collect();
        assert_eq!((all["1"], all["128"], all["ERR"]), (2, 1, 1));
        assert_eq!(all[ErrorStats::OTHERS], 972);
        assert_eq!(all.len(), 130);
    }
}
