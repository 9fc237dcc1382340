//! What a unit gathers for other clients until it ends. A script may do the same again and again,
//! so repeats are dropped from time to time, and the bytes are counted.

use std::collections::{HashSet, VecDeque};
use std::hash::Hash;

use bobbin_store::trim::{Trim, kept_max};

use crate::engine::tracking::Notice;

/// What other clients are told when a unit ends, in order.
pub type Notices = Sifted<Notice>;

/// The keys, with their databases, that a unit changed and that blocked clients wait for, in the
/// order of their first changes.
pub type ReadyKeys = Sifted<(u32, Box<[u8]>)>;

/// Items in the order in which they came. Repeats are dropped now and then.
pub struct Sifted<T> {
    items: VecDeque<T>,
    /// The number of notices, from the first, for which it is decided whether the unit's own client
    /// gets them.
    settled: usize,
    /// Bytes of memory of the items.
    bytes: usize,
    /// The length at which repeats are looked for next, unless it is below `SIFTED_MIN`.
    sift_at: usize,
}

/// An item that a unit gathers.
pub trait SiftedItem {
    /// Bytes of memory.
    fn memory(&self) -> usize;

    /// What the item is about, if a second one about that is a repeat.
    fn subject(&self) -> Option<impl Hash + Eq>;
}

impl<T> Default for Sifted<T> {
    fn default() -> Self {
        Self { items: VecDeque::new(), settled: 0, bytes: 0, sift_at: 0 }
    }
}

impl<T: SiftedItem> Sifted<T> {
    #[inline(always)]
    pub fn is_empty(&self) -> bool {
        self.items.is_empty()
    }

    /// Bytes of memory of the items.
    pub const fn bytes(&self) -> usize {
        self.bytes
    }

    pub fn push(&mut self, item: T) {
        self.bytes += item.memory();
        self.items.push_back(item);
        if self.items.len() >= self.sift_at.max(SIFTED_MIN) {
            self.sift();
        }
    }

    /// Moves the items of another unit behind these.
    pub fn append(&mut self, other: &mut Self) {
        self.items.append(&mut other.items);
        self.bytes += other.bytes;
        other.clear();
    }

    pub fn clear(&mut self) {
        self.items.clear();
        (self.settled, self.bytes, self.sift_at) = (0, 0, 0);
    }

    /// Gives memory back that a rare, large unit needed.
    pub fn rest(&mut self) {
        self.items.trim(kept_max::<T>());
    }

    /// Drops repeats.
    #[cold]
    fn sift(&mut self) {
        let repeats = repeats(&self.items);
        self.settled -= repeats[..self.settled].iter().filter(|is_repeat| **is_repeat).count();
        let mut at = repeats.iter();
        self.items.retain(|_| at.next() == Some(&false));
        self.bytes = self.items.iter().map(T::memory).sum();
        self.sift_at = 2 * self.items.len();
    }
}

impl<T: SiftedItem> Extend<T> for Sifted<T> {
    fn extend<I: IntoIterator<Item = T>>(&mut self, items: I) {
        items.into_iter().for_each(|item| self.push(item));
    }
}

impl Notices {
    /// The notices since the last call.
    pub fn unsettled(&mut self) -> &mut [Notice] {
        let from = std::mem::replace(&mut self.settled, self.items.len());
        &mut self.items.make_contiguous()[from..]
    }

    /// Takes all notices out. `put_back` gives their memory to later ones.
    pub fn take(&mut self) -> VecDeque<Notice> {
        std::mem::take(self).items
    }

    pub fn put_back(&mut self, mut notices: VecDeque<Notice>) {
        notices.clear();
        self.items = notices;
    }
}

impl ReadyKeys {
    /// The next key, which is not among them any more.
    pub fn pop(&mut self) -> Option<(u32, Box<[u8]>)> {
        let Some(first) = self.items.pop_front() else {
            self.sift_at = 0;
            return None;
        };
        self.bytes -= first.memory();
        Some(first)
    }
}

impl SiftedItem for Notice {
    fn memory(&self) -> usize {
        let beside = match self {
            Self::Message(publication) => publication.memory(),
            Self::Invalid { key, readers, .. } => key.len() + size_of_val(&readers[..]),
            Self::Changed { key, .. } => key.len(),
            Self::AllInvalid => 0,
        };
        size_of::<Self>() + beside
    }

    /// Those that want to be told of all changes are told once of each key.
    fn subject(&self) -> Option<impl Hash + Eq> {
        match self {
            Self::Changed { key, by } => Some((key, *by)),
            _ => None,
        }
    }
}

impl SiftedItem for (u32, Box<[u8]>) {
    fn memory(&self) -> usize {
        size_of::<Self>() + self.1.len()
    }

    fn subject(&self) -> Option<impl Hash + Eq> {
        Some(self)
    }
}

/// Which of the items are repeats of earlier ones.
fn repeats<T: SiftedItem>(items: &VecDeque<T>) -> Vec<bool> {
    let mut seen = HashSet::new();
    let subjects = items.iter().map(T::subject);
    subjects.map(|it| it.is_some_and(|subject| !seen.insert(subject))).collect()
}

/// Repeats are not looked for in fewer items.
const SIFTED_MIN: usize = 1024;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::tracking::ChangedBy;

    fn changed(key: usize, by: ChangedBy) -> Notice {
        Notice::Changed { key: key.to_string().into_bytes().into(), by }
    }

    #[test]
    fn repeats_of_changes_are_dropped_and_the_others_keep_their_order() {
        let mut notices = Notices::default();
        notices.push(Notice::AllInvalid);
        let by = [ChangedBy::Client, ChangedBy::Server];
        notices.extend((0..10 * SIFTED_MIN).map(|at| changed(at % 7, by[at % 2])));
        assert_eq!(notices.unsettled().len(), notices.items.len());
        notices.extend((0..10 * SIFTED_MIN).map(|at| changed(at % 9, ChangedBy::Client)));
        notices.push(Notice::AllInvalid);
        assert!(notices.items.len() < 2 * SIFTED_MIN, "{}", notices.items.len());
        notices.sift();
        assert_eq!(notices.items.len(), 2 + 14 + 2);
        assert_eq!(notices.bytes, notices.items.iter().map(Notice::memory).sum::<usize>());
        assert_eq!(notices.settled, 1 + 14);
        assert!(matches!(notices.unsettled(), [Notice::Changed { .. }, .., Notice::AllInvalid]));
        let list = notices.take();
        assert_eq!((list.len(), notices.bytes, notices.settled), (18, 0, 0));
    }

    #[test]
    fn a_key_that_changes_often_is_ready_once() {
        let mut ready = ReadyKeys::default();
        for at in 0..10 * SIFTED_MIN {
            ready.push(((at % 3) as u32, format!("key {}", at % 5).into_bytes().into()));
        }
        assert!(ready.items.len() < 2 * SIFTED_MIN, "{}", ready.items.len());
        ready.sift();
        let keys: Vec<_> = std::iter::from_fn(|| ready.pop()).collect();
        let expected = (0..15u32).map(|at| (at % 3, format!("key {}", at % 5).into_bytes().into()));
        assert_eq!(keys, expected.collect::<Vec<_>>());
        assert_eq!(ready.bytes, 0);
    }
}
