//! Which history the stream is a part of, and where a replica may go on with it.
//!
//! A history is the work of one primary after another. Each new primary gives it another name, and
//! keeps the earlier one with the offset up to which both are the same. So replicas of the earlier
//! primary need no copy, unless they have more than the new primary had.

use std::sync::Arc;

use crate::base::random::random_bytes;

/// The names of the stream's history.
pub struct History {
    /// 40 hexadecimal digits.
    id: Arc<str>,
    /// The history that this one went on from, and the offset up to which they are one.
    earlier: Option<(Arc<str>, u64)>,
}

impl Default for History {
    fn default() -> Self {
        Self::new(new_id())
    }
}

/// A name for a new history.
pub fn new_id() -> Arc<str> {
    random_bytes::<20>().iter().map(|byte| format!("{byte:02x}")).collect::<String>().into()
}

impl History {
    pub const fn new(id: Arc<str>) -> Self {
        Self { id, earlier: None }
    }

    /// What is here is from now on a part of this history alone.
    pub fn take(&mut self, id: Arc<str>) {
        *self = Self::new(id);
    }

    /// The history goes on under another name from an offset on. Returns whether the name changed.
    pub fn rename(&mut self, id: Arc<str>, offset: u64) -> bool {
        if self.id == id {
            return false;
        }
        let earlier = std::mem::replace(&mut self.id, id);
        self.earlier = Some((earlier, offset));
        true
    }

    pub const fn id(&self) -> &Arc<str> {
        &self.id
    }

    pub const fn earlier(&self) -> Option<&(Arc<str>, u64)> {
        self.earlier.as_ref()
    }

    /// Whether what a replica has, up to this offset of this history, is the beginning of what is
    /// here, as far as names tell.
    pub fn holds(&self, id: &[u8], offset: u64) -> bool {
        let is = |known: &str| id.eq_ignore_ascii_case(known.as_bytes());
        is(&self.id) || self.earlier.as_ref().is_some_and(|(old, end)| is(old) && offset <= *end)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_earlier_name_is_good_up_to_where_it_ended() {
        let mut history = History::new("a".into());
        assert!(history.holds(b"A", 1000) && !history.holds(b"b", 0));
        assert!(!history.rename("a".into(), 5) && history.earlier().is_none());
        assert!(history.rename("b".into(), 100));
        assert!(history.holds(b"b", 1000) && history.holds(b"a", 100) && !history.holds(b"a", 101));
        assert!(history.rename("c".into(), 200));
        assert!(history.holds(b"b", 200) && !history.holds(b"a", 1), "one earlier name is kept");
        history.take("d".into());
        assert!(history.holds(b"d", 7) && !history.holds(b"c", 0) && !history.holds(b"b", 0));
    }
}
