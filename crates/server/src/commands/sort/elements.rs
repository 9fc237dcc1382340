//! The elements of a source, copied into blocks of memory, and their order.

use std::cmp;
use std::ops::Range;

use bobbin_resp::parse_f64;
use bobbin_store::hash::Hasher;
use bobbin_store::value::integer::IntegerText;
use bobbin_store::value::{CollectionRef, Item, List, Set, SortedSet};
use bobbin_store::{EntryRef, ValueRef};

use crate::engine::command::Failure;

/// The collection to sort: owned or pinned.
#[derive(Clone)]
pub(super) enum SortSource {
    List(List),
    Set(Set),
    SortedSet(SortedSet),
}

impl SortSource {
    pub(super) fn len(&self) -> usize {
        match self {
            Self::List(list) => list.len(),
            Self::Set(set) => set.len(),
            Self::SortedSet(set) => set.len(),
        }
    }

    /// Appends about `count` elements, in any order. Returns the next cursor; `None` at the end.
    /// The first cursor is 0.
    pub(super) fn load(
        &self,
        from: u64,
        count: usize,
        hasher: &Hasher,
        elements: &mut SortElements,
    ) -> Option<u64> {
        if let Self::Set(set) = self {
            let next = set.scan(from, count, hasher, |member| elements.push(member));
            return (next != 0).then_some(next);
        }
        let start = from as usize;
        let end = start.saturating_add(count).min(self.len());
        self.load_range(start..end, false, elements);
        (end < self.len()).then_some(end as u64)
    }

    /// The value of an entry, pinned. A missing entry counts as an empty list.
    pub(super) fn of(entry: Option<EntryRef<'_>>) -> Result<Self, Failure> {
        match entry.map(EntryRef::value) {
            None => Ok(Self::List(List::new())),
            Some(ValueRef::Collection(CollectionRef::List(list))) => Ok(Self::List(list.clone())),
            Some(ValueRef::Collection(CollectionRef::Set(set))) => Ok(Self::Set(set.clone())),
            Some(ValueRef::Collection(CollectionRef::SortedSet(set))) => {
                Ok(Self::SortedSet(set.clone()))
            }
            Some(_) => Err(Failure::WRONG_TYPE),
        }
    }

    /// Whether nothing changed between two pins.
    pub(super) fn is_same(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::List(one), Self::List(other)) => one.is_same(other),
            (Self::Set(one), Self::Set(other)) => one.is_same(other),
            (Self::SortedSet(one), Self::SortedSet(other)) => one.is_same(other),
            _ => false,
        }
    }

    /// Appends some elements of a list or a sorted set in order, or counted from the end.
    pub(super) fn load_range(
        &self,
        range: Range<usize>,
        backwards: bool,
        elements: &mut SortElements,
    ) {
        let len = self.len();
        let range = if backwards { len - range.end..len - range.start } else { range };
        match self {
            Self::List(list) if backwards => {
                list.range(range).rev().for_each(|item| elements.push(item));
            }
            Self::List(list) => list.range(range).for_each(|item| elements.push(item)),
            Self::SortedSet(set) if backwards => {
                set.range(range).rev().for_each(|(member, _)| elements.push(member));
            }
            Self::SortedSet(set) => {
                set.range(range).for_each(|(member, _)| elements.push(member));
            }
            Self::Set(set) => set.iter().skip(range.start).take(range.len()).for_each(|member| {
                elements.push(member);
            }),
        }
    }
}

/// How elements are compared.
#[derive(Clone, Copy)]
pub(super) struct Ordering {
    pub descending: bool,
    /// As texts, not as numbers.
    pub alpha: bool,
    /// The texts to compare are the weights. (Numbers always are.)
    pub by_weight: bool,
}

/// The elements of one sort.
///
/// Nothing in it is copied to grow, because for millions of elements that would delay other
/// clients.
pub(super) struct SortElements {
    /// No block grows beyond its initial capacity.
    blocks: Vec<Vec<u8>>,
    entries: Vec<SortEntry>,
}

#[derive(Clone, Copy)]
struct SortEntry {
    text: SortText,
    weight: Weight,
}

/// The place of a text. A string is never longer than 4 GiB.
#[derive(Clone, Copy)]
struct SortText {
    block: u32,
    start: u32,
    len: u32,
}

#[derive(Clone, Copy)]
enum Weight {
    None,
    Number(f64),
    Text(SortText),
}

impl SortElements {
    /// Has room for `len` elements.
    pub(super) fn with_capacity(len: usize) -> Self {
        Self { blocks: Vec::new(), entries: Vec::with_capacity(len) }
    }

    pub(super) fn push(&mut self, item: Item<'_>) {
        let text = match item {
            Item::Bytes(bytes) => self.copy(bytes),
            Item::Integer(value) => self.copy(IntegerText::new(value).as_bytes()),
        };
        self.entries.push(SortEntry { text, weight: Weight::None });
    }

    fn copy(&mut self, bytes: &[u8]) -> SortText {
        let fits = |block: &Vec<u8>| block.capacity() - block.len() >= bytes.len();
        if !self.blocks.last().is_some_and(fits) {
            self.blocks.push(Vec::with_capacity(BLOCK.max(bytes.len())));
        }
        let at = self.blocks.len() - 1;
        let block = &mut self.blocks[at];
        let text =
            SortText { block: at as u32, start: block.len() as u32, len: bytes.len() as u32 };
        block.extend_from_slice(bytes);
        text
    }

    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }

    pub(super) fn get(&self, at: usize) -> &[u8] {
        self.text(self.entries[at].text)
    }

    fn text(&self, text: SortText) -> &[u8] {
        &self.blocks[text.block as usize][text.start as usize..][..text.len as usize]
    }

    /// Uses the elements' own numbers as weights. `None`: an element is not a number.
    pub(super) fn weigh(&mut self, range: Range<usize>) -> Option<()> {
        for at in range {
            self.entries[at].weight = Weight::Number(number(self.get(at))?);
        }
        Some(())
    }

    /// `None`: the weight is not a number.
    pub(super) fn set_weight(&mut self, at: usize, weight: &[u8]) -> Option<()> {
        self.entries[at].weight = Weight::Number(number(weight)?);
        Some(())
    }

    pub(super) fn set_text_weight(&mut self, at: usize, weight: &[u8]) {
        self.entries[at].weight = Weight::Text(self.copy(weight));
    }

    /// Sorts a range of elements.
    pub(super) fn sort_range(&mut self, range: Range<usize>, ordering: Ordering) {
        let mut entries = std::mem::take(&mut self.entries);
        entries[range].sort_by(|a, b| self.compare_entries(a, b, ordering));
        self.entries = entries;
    }

    pub(super) fn compare(&self, a: usize, b: usize, ordering: Ordering) -> cmp::Ordering {
        self.compare_entries(&self.entries[a], &self.entries[b], ordering)
    }

    fn compare_entries(&self, a: &SortEntry, b: &SortEntry, ordering: Ordering) -> cmp::Ordering {
        let compared = match (ordering.alpha, ordering.by_weight) {
            (false, _) => {
                // An element without a weight has the weight 0. Elements with equal weights are in
                // the order of their texts.
                let by_number = a.weight.number().partial_cmp(&b.weight.number());
                by_number
                    .unwrap_or(cmp::Ordering::Equal)
                    .then_with(|| self.text(a.text).cmp(self.text(b.text)))
            }
            (true, false) => self.text(a.text).cmp(self.text(b.text)),
            (true, true) => self.weight_text(a).cmp(&self.weight_text(b)),
        };
        if ordering.descending { compared.reverse() } else { compared }
    }

    fn weight_text(&self, entry: &SortEntry) -> Option<&[u8]> {
        match entry.weight {
            Weight::Text(text) => Some(self.text(text)),
            _ => None,
        }
    }
}

impl Weight {
    fn number(self) -> f64 {
        match self {
            Self::Number(number) => number,
            _ => 0.0,
        }
    }
}

/// Parses a text as a number. In Redis, as in C, it ends at a zero byte.
fn number(text: &[u8]) -> Option<f64> {
    parse_f64(text.split(|&byte| byte == 0).next().unwrap_or_default())
}

/// The length of a block in bytes, unless one text is longer.
const BLOCK: usize = 64 * 1024;

#[cfg(test)]
mod tests {
    use super::*;

    fn sorted(items: &[&[u8]], ordering: Ordering) -> Vec<String> {
        let mut elements = SortElements::with_capacity(items.len());
        items.iter().for_each(|item| elements.push(Item::from(*item)));
        if !ordering.alpha {
            elements.weigh(0..elements.len()).unwrap();
        }
        elements.sort_range(0..elements.len(), ordering);
        let text = |at| String::from_utf8_lossy(elements.get(at)).into_owned();
        (0..elements.len()).map(text).collect()
    }

    #[test]
    fn by_number_and_by_text() {
        let items: [&[u8]; 5] = [b"10", b"9", b"9.0", b"-1", b"0\0x"];
        let mut ordering = Ordering { descending: false, alpha: false, by_weight: false };
        assert_eq!(sorted(&items, ordering), ["-1", "0\0x", "9", "9.0", "10"]);
        ordering.descending = true;
        assert_eq!(sorted(&items, ordering), ["10", "9.0", "9", "0\0x", "-1"]);
        ordering.alpha = true;
        assert_eq!(sorted(&items, ordering), ["9.0", "9", "10", "0\0x", "-1"]);
        assert_eq!([number(b"x"), number(b"")], [None; 2]);
    }
}
