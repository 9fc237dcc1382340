//! Patterns of keys and channels. Simple patterns are matched without a general search.

use crate::base::glob;

/// A pattern of keys or channels.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pattern {
    text: Box<[u8]>,
    form: PatternForm,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PatternForm {
    /// No wildcards.
    Literal,
    /// A text without wildcards, then `*`.
    Prefix,
    Glob,
}

impl Pattern {
    pub fn new(text: &[u8]) -> Self {
        let is_plain = |text: &[u8]| !text.iter().any(|byte| b"*?[\\".contains(byte));
        let form = match text {
            [start @ .., b'*'] if !start.is_empty() && is_plain(start) => PatternForm::Prefix,
            text if is_plain(text) => PatternForm::Literal,
            _ => PatternForm::Glob,
        };
        Self { text: text.into(), form }
    }

    #[inline]
    pub fn matches(&self, name: &[u8]) -> bool {
        match self.form {
            PatternForm::Literal => name == &*self.text,
            PatternForm::Prefix => name.starts_with(&self.text[..self.text.len() - 1]),
            PatternForm::Glob => glob::matches_text(&self.text, name),
        }
    }

    pub fn text(&self) -> &[u8] {
        &self.text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_short_ways_agree_with_the_general_one() {
        let patterns = ["", "a", "a*", "ab*", "*", "*a", "a*b", "a?", "[a]*", "a\\*", "a\\**"];
        let names = ["", "a", "ab", "abc", "b", "a*", "a*b", "ba"];
        for pattern in patterns {
            for name in names {
                let (pattern, name) = (pattern.as_bytes(), name.as_bytes());
                let general = glob::matches_text(pattern, name);
                assert_eq!(Pattern::new(pattern).matches(name), general, "{pattern:?} {name:?}");
            }
        }
    }
}
