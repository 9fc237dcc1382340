//! Keys with one figure each, as a heap with the smallest figure at the top. Each entry knows its
//! place in the heap. So a figure can be changed, and the smallest be found and removed, in
//! logarithmic time.

use std::collections::HashMap;
use std::sync::Arc;

/// The keys with the largest figures.
#[derive(Clone, Default)]
pub struct Ranked {
    /// The index of each key in `entries`.
    slots: HashMap<Arc<[u8]>, usize>,
    entries: Vec<RankedEntry>,
    /// Indices into `entries`. No figure is smaller than that of the parent in the heap.
    heap: Vec<usize>,
}

#[derive(Clone)]
struct RankedEntry {
    key: Arc<[u8]>,
    figure: u64,
    /// The entry's place in the heap.
    place: usize,
}

/// The index of a key's entry. It is valid until an entry is removed.
#[derive(Clone, Copy)]
pub struct RankedSlot(usize);

impl Ranked {
    /// Adds a key that is not there yet.
    pub fn insert(&mut self, key: &[u8], figure: u64) {
        let key: Arc<[u8]> = key.into();
        let (slot, place) = (self.entries.len(), self.heap.len());
        let known = self.slots.insert(key.clone(), slot);
        assert!(known.is_none(), "{key:?} is there already");
        self.entries.push(RankedEntry { key, figure, place });
        self.heap.push(slot);
        self.rise(place);
    }

    pub fn change(&mut self, RankedSlot(slot): RankedSlot, figure: u64) {
        let entry = &mut self.entries[slot];
        entry.figure = figure;
        let place = entry.place;
        self.settle(place);
    }

    pub fn remove(&mut self, RankedSlot(slot): RankedSlot) {
        let removed = self.entries.swap_remove(slot);
        self.slots.remove(&removed.key);
        if let Some(moved) = self.entries.get(slot) {
            self.heap[moved.place] = slot;
            *self.slots.get_mut(&moved.key).expect("each entry's key has a slot") = slot;
        }
        self.heap.swap_remove(removed.place);
        if let Some(moved) = self.heap.get(removed.place) {
            self.entries[*moved].place = removed.place;
            self.settle(removed.place);
        }
    }

    pub fn find(&self, key: &[u8]) -> Option<RankedSlot> {
        self.slots.get(key).map(|slot| RankedSlot(*slot))
    }

    /// The entry with the smallest figure, or one of them.
    pub fn smallest(&self) -> Option<RankedSlot> {
        self.heap.first().map(|slot| RankedSlot(*slot))
    }

    pub fn figure(&self, RankedSlot(slot): RankedSlot) -> u64 {
        self.entries[slot].figure
    }

    pub fn len(&self) -> usize {
        self.entries.len()
    }

    pub fn iter(&self) -> impl Iterator<Item = (&[u8], u64)> {
        self.entries.iter().map(|entry| (&*entry.key, entry.figure))
    }

    /// Moves the entry at a place to where its figure belongs.
    fn settle(&mut self, place: usize) {
        let place = self.rise(place);
        self.sink(place);
    }

    /// Moves the entry at a place up as long as it is smaller than its parent. Returns its new
    /// place.
    fn rise(&mut self, mut place: usize) -> usize {
        while let Some(parent) = place.checked_sub(1).map(|before| before / 2) {
            if self.figure_at(parent) <= self.figure_at(place) {
                break;
            }
            self.swap(parent, place);
            place = parent;
        }
        place
    }

    /// Moves the entry at a place down as long as it is larger than one below.
    fn sink(&mut self, mut place: usize) {
        loop {
            let below = (2 * place + 1..2 * place + 3).filter(|child| *child < self.heap.len());
            let Some(child) = below.min_by_key(|child| self.figure_at(*child)) else { return };
            if self.figure_at(place) <= self.figure_at(child) {
                return;
            }
            self.swap(place, child);
            place = child;
        }
    }

    fn swap(&mut self, a: usize, b: usize) {
        self.heap.swap(a, b);
        self.entries[self.heap[a]].place = a;
        self.entries[self.heap[b]].place = b;
    }

    fn figure_at(&self, place: usize) -> u64 {
        self.entries[self.heap[place]].figure
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::base::random::Random;

    #[test]
    fn it_is_a_map_that_knows_its_smallest() {
        let mut random = Random::new(6);
        for count in [1, 2, 3, 20, 300] {
            let mut ranked = Ranked::default();
            let mut model = BTreeMap::<Vec<u8>, u64>::new();
            for _ in 0..20_000 {
                let key = random.below(count).to_string().into_bytes();
                let figure = u64::from(random.below(100));
                match (random.below(4), ranked.find(&key)) {
                    (0, Some(slot)) => {
                        ranked.remove(slot);
                        model.remove(&key);
                    }
                    (_, Some(slot)) => {
                        assert_eq!(Some(&ranked.figure(slot)), model.get(&key));
                        ranked.change(slot, figure);
                        model.insert(key, figure);
                    }
                    (_, None) => {
                        assert!(!model.contains_key(&key));
                        ranked.insert(&key, figure);
                        model.insert(key, figure);
                    }
                }
                assert_eq!(ranked.len(), model.len());
                let smallest = ranked.smallest().map(|slot| ranked.figure(slot));
                assert_eq!(smallest, model.values().min().copied());
            }
            let all: BTreeMap<_, _> = ranked.iter().map(|(key, it)| (key.to_vec(), it)).collect();
            assert_eq!(all, model);
        }
    }
}
