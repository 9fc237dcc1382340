//! A set of words that finds repeated ones.

use std::collections::HashSet;

/// A set of words. A few words are searched, more are hashed, as a command may have a million of
/// them.
#[derive(Default)]
pub struct WordSet<'a> {
    few: Vec<&'a [u8]>,
    many: HashSet<&'a [u8]>,
}

/// Up to this many words are searched.
const FEW: usize = 16;

impl<'a> WordSet<'a> {
    /// Adds a word; returns whether it is new.
    pub fn insert(&mut self, word: &'a [u8]) -> bool {
        if self.few.contains(&word) {
            return false;
        }
        if self.few.len() < FEW {
            self.few.push(word);
            return true;
        }
        self.many.insert(word)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_word_is_new_once() {
        let words: Vec<Vec<u8>> = (0..100u8).map(|number| vec![number % 50]).collect();
        let mut distinct = WordSet::default();
        for (at, word) in words.iter().enumerate() {
            assert_eq!(distinct.insert(word), at < 50, "{at}");
        }
    }
}
