//! The history that the stream belongs to, and from where a replica may go on with it.
//!
//! A history is the work of successive primaries. Each new primary gives the history a new name,
//! and keeps the earlier name with the offset up to which both are the same. So replicas of the
//! earlier primary need no copy, unless they have more than the new primary had.

use std::fmt;

use crate::base::random::random_bytes;

/// The names of the stream's history.
#[derive(Clone, Copy, Debug, Default)]
pub struct History {
    pub id: HistoryId,
    /// The earlier name of the history, and the offset at which the name changed.
    pub earlier: Option<(HistoryId, u64)>,
}

/// The name of a history: 40 characters, mostly hexadecimal digits.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct HistoryId([u8; HISTORY_ID_BYTES]);

pub const HISTORY_ID_BYTES: usize = 40;

/// The highest offset that a stream may begin at, so that the bytes behind it can have offsets too.
const OFFSET_MAX: u64 = 1 << 62;

/// Parses an offset that another server or a file gives. Returns `None` if it is not valid.
pub fn parse_offset(text: &[u8]) -> Option<u64> {
    let offset = u64::try_from(bobbin_resp::parse_i64(text)?).ok()?;
    (offset <= OFFSET_MAX).then_some(offset)
}

impl History {
    pub const fn new(id: HistoryId) -> Self {
        Self { id, earlier: None }
    }

    /// Begins with another history, without an earlier name.
    pub const fn take(&mut self, id: HistoryId) {
        *self = Self::new(id);
    }

    /// Gives the history another name from an offset on. Returns whether the name changed.
    pub fn rename(&mut self, id: HistoryId, offset: u64) -> bool {
        if self.id == id {
            return false;
        }
        self.earlier = Some((std::mem::replace(&mut self.id, id), offset));
        true
    }

    /// Whether the data of a replica, up to this offset of this history, is a beginning of the data
    /// here, as far as the names tell.
    pub fn holds(&self, id: &[u8], offset: u64) -> bool {
        let is = |known: &HistoryId| id.eq_ignore_ascii_case(known.as_str().as_bytes());
        is(&self.id) || self.earlier.as_ref().is_some_and(|(old, end)| is(old) && offset <= *end)
    }
}

impl HistoryId {
    /// A name for a new history.
    pub fn new() -> Self {
        let digit = |half: u8| char::from_digit(u32::from(half), 16).map_or(b'0', |it| it as u8);
        let bytes = random_bytes::<{ HISTORY_ID_BYTES / 2 }>();
        Self(std::array::from_fn(|at| digit(bytes[at / 2] >> (4 * (1 - at % 2)) & 0xf)))
    }

    /// Parses a name; `None` if it is not valid.
    pub fn parse(text: &[u8]) -> Option<Self> {
        let id: [u8; HISTORY_ID_BYTES] = text.try_into().ok()?;
        id.iter().all(u8::is_ascii_alphanumeric).then_some(Self(id))
    }

    pub fn as_str(&self) -> &str {
        // It has only letters and digits.
        std::str::from_utf8(&self.0).unwrap_or_default()
    }
}

impl Default for HistoryId {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Display for HistoryId {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.as_str())
    }
}

impl fmt::Debug for HistoryId {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.as_str())
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
