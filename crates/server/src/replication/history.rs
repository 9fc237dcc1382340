//! Which history the stream is a part of, and where a replica may go on with it.
//!
//! A history is the work of one primary after another. Each new primary gives it another name, and
//! keeps the earlier one with the offset up to which both are the same. So replicas of the earlier
//! primary need no copy, unless they have more than the new primary had.

use crate::engine::log::feed::HistoryId;

/// The names of the stream's history.
#[derive(Clone, Copy, Debug)]
pub struct History {
    pub id: HistoryId,
    /// The history that this one went on from, and the offset up to which they are one.
    pub earlier: Option<(HistoryId, u64)>,
}

impl History {
    pub const fn new(id: HistoryId) -> Self {
        Self { id, earlier: None }
    }

    /// What is here is from now on a part of this history alone.
    pub const fn take(&mut self, id: HistoryId) {
        *self = Self::new(id);
    }

    /// The history goes on under another name from an offset on. Returns whether the name changed.
    pub fn rename(&mut self, id: HistoryId, offset: u64) -> bool {
        if self.id == id {
            return false;
        }
        self.earlier = Some((std::mem::replace(&mut self.id, id), offset));
        true
    }

    /// Whether what a replica has, up to this offset of this history, is the beginning of what is
    /// here, as far as names tell.
    pub fn holds(&self, id: &[u8], offset: u64) -> bool {
        let is = |known: &HistoryId| id.eq_ignore_ascii_case(known.as_str().as_bytes());
        is(&self.id) || self.earlier.as_ref().is_some_and(|(old, end)| is(old) && offset <= *end)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_earlier_name_is_good_up_to_where_it_ended() {
        let name = |letter: &str| letter.repeat(40);
        let id = |letter| HistoryId::parse(name(letter).as_bytes()).unwrap();
        let holds =
            |history: &History, letter, offset| history.holds(name(letter).as_bytes(), offset);
        let mut history = History::new(id("a"));
        assert!(holds(&history, "A", 1000) && !holds(&history, "b", 0));
        assert!(!history.rename(id("a"), 5) && history.earlier.is_none());
        assert!(history.rename(id("b"), 100));
        assert!(holds(&history, "b", 1000));
        assert!(holds(&history, "a", 100) && !holds(&history, "a", 101));
        assert!(history.rename(id("c"), 200));
        assert!(holds(&history, "b", 200) && !holds(&history, "a", 1), "one earlier name is kept");
        history.take(id("d"));
        assert!(holds(&history, "d", 7) && !holds(&history, "c", 0) && !holds(&history, "b", 0));
    }
}
