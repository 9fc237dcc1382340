//! Keys with a figure each, of which the smallest is at hand: a heap whose entries know their
//! places in it, so that a figure is changed, and the smallest found and removed, in steps that
//! grow with the logarithm of how many there are.

use std::collections::HashMap;
use std::sync::Arc;

/// The keys with the largest figures.
#[derive(Clone, Default)]
pub struct Ranked {
    /// Where in `entries` a key is.
    slots: HashMap<Arc<[u8]>, usize>,
    entries: Vec<RankedEntry>,
    /// Slots, none with a smaller figure than the one at half its place.
    heap: Vec<usize>,
}

#[derive(Clone)]
struct RankedEntry {
    key: Arc<[u8]>,
    figure: u64,
    /// Its place in the heap.
    place: usize,
}

/// Where a key's entry is, until one is removed.
#[derive(Clone, Copy)]
pub struct RankedSlot(usize);

impl Ranked {
    /// Adds a key that is not there.
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

    /// Where the smallest figure is; of equal ones, any.
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

    /// Moves what is at a place to where its figure belongs.
    fn settle(&mut self, place: usize) {
        let place = self.rise(place);
        self.sink(place);
    }

    /// Moves what is at a place up for as long as it is smaller; where it came to.
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

    /// Moves what is at a place down for as long as it is larger.
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
