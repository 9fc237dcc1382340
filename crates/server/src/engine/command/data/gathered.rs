//! What a unit gathers for other clients until it ends. A script may do the same again and again,
//! so repeats are dropped from time to time, and the bytes are counted.

use std::collections::{HashSet, VecDeque};
use std::hash::Hash;

use bobbin_store::trim::{Trim, kept_max};

use crate::engine::tracking::Notice;

/// What other clients are told when a unit ends, in order.
#[derive(Default)]
pub struct Notices {
    list: Vec<Notice>,
    /// The number of notices, from the first, for which it is decided whether the unit's own client
    /// gets them.
    settled: usize,
    /// Bytes of memory of the notices.
    bytes: usize,
    /// The length at which repeats are looked for next, unless it is below `SIFTED_MIN`.
    sift_at: usize,
}

/// The keys, with their databases, that a unit changed and that blocked clients wait for, in the
/// order of their first changes.
#[derive(Default)]
pub struct ReadyKeys {
    keys: VecDeque<(u32, Box<[u8]>)>,
    /// As in `Notices`.
    bytes: usize,
    sift_at: usize,
}

impl Notices {
    #[inline(always)]
    pub const fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    /// Bytes of memory of the notices.
    pub const fn bytes(&self) -> usize {
        self.bytes
    }

    pub fn push(&mut self, notice: Notice) {
        self.bytes += notice.memory();
        self.list.push(notice);
        if self.list.len() >= self.sift_at.max(SIFTED_MIN) {
            self.sift();
        }
    }

    /// Moves the notices of another unit behind these.
    pub fn append(&mut self, other: &mut Self) {
        self.list.append(&mut other.list);
        self.bytes += std::mem::take(&mut other.bytes);
        (other.settled, other.sift_at) = (0, 0);
    }

    /// The notices since the last call.
    pub fn unsettled(&mut self) -> &mut [Notice] {
        let from = std::mem::replace(&mut self.settled, self.list.len());
        &mut self.list[from..]
    }

    /// Takes all notices out. `put_back` gives their memory to later ones.
    pub fn take(&mut self) -> Vec<Notice> {
        std::mem::take(self).list
    }

    /// Gives memory back that a rare, large unit needed.
    pub fn rest(&mut self) {
        self.list.trim(kept_max::<Notice>());
    }

    pub fn put_back(&mut self, mut list: Vec<Notice>) {
        list.clear();
        self.list = list;
    }

    /// Drops repeats of what is told once for all changes of a key.
    #[cold]
    fn sift(&mut self) {
        let repeats = repeats(self.list.iter().map(|notice| match notice {
            Notice::Changed { key, by } => Some((key, *by)),
            _ => None,
        }));
        let count = |repeats: &[bool]| repeats.iter().filter(|repeats| **repeats).count();
        self.settled -= count(&repeats[..self.settled]);
        let mut at = repeats.iter();
        self.list.retain(|_| at.next() == Some(&false));
        self.bytes = self.list.iter().map(Notice::memory).sum();
        self.sift_at = 2 * self.list.len();
    }
}

impl Extend<Notice> for Notices {
    fn extend<T: IntoIterator<Item = Notice>>(&mut self, notices: T) {
        notices.into_iter().for_each(|notice| self.push(notice));
    }
}

impl ReadyKeys {
    #[inline(always)]
    pub fn is_empty(&self) -> bool {
        self.keys.is_empty()
    }

    /// Bytes of memory of the keys.
    pub const fn bytes(&self) -> usize {
        self.bytes
    }

    pub fn push(&mut self, database: u32, key: &[u8]) {
        self.bytes += memory_of(key);
        self.keys.push_back((database, key.into()));
        if self.keys.len() >= self.sift_at.max(SIFTED_MIN) {
            self.sift();
        }
    }

    /// The next key, which is not among them any more.
    pub fn pop(&mut self) -> Option<(u32, Box<[u8]>)> {
        let Some(first) = self.keys.pop_front() else {
            self.sift_at = 0;
            return None;
        };
        self.bytes -= memory_of(&first.1);
        Some(first)
    }

    /// Gives memory back that a rare, large unit needed.
    pub fn rest(&mut self) {
        self.keys.trim(kept_max::<(u32, Box<[u8]>)>());
    }

    pub fn append(&mut self, other: &mut Self) {
        self.extend(other.keys.drain(..));
        other.clear();
    }

    pub fn clear(&mut self) {
        self.keys.clear();
        (self.bytes, self.sift_at) = (0, 0);
    }

    #[cold]
    fn sift(&mut self) {
        let mut repeats = repeats(self.keys.iter().map(Some)).into_iter();
        self.keys.retain(|_| repeats.next() == Some(false));
        self.bytes = self.keys.iter().map(|(_, key)| memory_of(key)).sum();
        self.sift_at = 2 * self.keys.len();
    }
}

impl<K: AsRef<[u8]>> Extend<(u32, K)> for ReadyKeys {
    fn extend<T: IntoIterator<Item = (u32, K)>>(&mut self, keys: T) {
        keys.into_iter().for_each(|(database, key)| self.push(database, key.as_ref()));
    }
}

const fn memory_of(key: &[u8]) -> usize {
    size_of::<(u32, Box<[u8]>)>() + key.len()
}

/// Which of the items were there before. `None` is never a repeat.
fn repeats<T: Hash + Eq>(items: impl Iterator<Item = Option<T>>) -> Vec<bool> {
    let mut seen = HashSet::new();
    items.map(|item| item.is_some_and(|item| !seen.insert(item))).collect()
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
        assert_eq!(notices.unsettled().len(), notices.list.len());
        notices.extend((0..10 * SIFTED_MIN).map(|at| changed(at % 9, ChangedBy::Client)));
        notices.push(Notice::AllInvalid);
        assert!(notices.list.len() < 2 * SIFTED_MIN, "{}", notices.list.len());
        notices.sift();
        assert_eq!(notices.list.len(), 2 + 14 + 2);
        assert_eq!(notices.bytes, notices.list.iter().map(Notice::memory).sum::<usize>());
        assert_eq!(notices.settled, 1 + 14);
        assert!(matches!(notices.unsettled(), [Notice::Changed { .. }, .., Notice::AllInvalid]));
        let list = notices.take();
        assert_eq!((list.len(), notices.bytes, notices.settled), (18, 0, 0));
    }

    #[test]
    fn a_key_that_changes_often_is_ready_once() {
        let mut ready = ReadyKeys::default();
        for at in 0..10 * SIFTED_MIN {
            ready.push((at % 3) as u32, format!("key {}", at % 5).as_bytes());
        }
        assert!(ready.keys.len() < 2 * SIFTED_MIN, "{}", ready.keys.len());
        ready.sift();
        let keys: Vec<_> = std::iter::from_fn(|| ready.pop()).collect();
        let expected = (0..15u32).map(|at| (at % 3, format!("key {}", at % 5).into_bytes().into()));
        assert_eq!(keys, expected.collect::<Vec<_>>());
        assert_eq!(ready.bytes, 0);
    }
}
