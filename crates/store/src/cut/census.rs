//! Which databases have keys, how many, and in which shards.

use crate::shard::{Database, Shard};

/// Something for each database, in the order of the numbers. Databases must be looked up mostly in
/// that order, too: then it does not matter how many there are.
#[derive(Clone, Debug)]
pub struct ByDatabase<T> {
    all: Vec<(u32, T)>,
    /// Where the last lookup ended.
    recent: usize,
}

impl<T> Default for ByDatabase<T> {
    fn default() -> Self {
        Self { all: Vec::new(), recent: 0 }
    }
}

impl<T: Default> ByDatabase<T> {
    /// The value for a database. It is made if there is none.
    pub fn of(&mut self, number: u32) -> &mut T {
        self.recent = self.find(number).unwrap_or_else(|at| {
            self.all.insert(at, (number, T::default()));
            at
        });
        &mut self.all[self.recent].1
    }
}

impl<T> ByDatabase<T> {
    pub fn as_slice(&self) -> &[(u32, T)] {
        &self.all
    }

    /// The value for a database, if there is one.
    pub fn get_mut(&mut self, number: u32) -> Option<&mut T> {
        self.recent = self.find(number).ok()?;
        Some(&mut self.all[self.recent].1)
    }

    /// Searches from the last place on, with steps that double, because the next number is near.
    fn find(&self, number: u32) -> Result<usize, usize> {
        let is_before = |at: usize| self.all.get(at).is_some_and(|&(of, _)| of < number);
        let mut start = if is_before(self.recent) { self.recent } else { 0 };
        let mut step = 1;
        while is_before(start + step) {
            start += step;
            step *= 2;
        }
        let end = self.all.len().min(start + step + 1);
        let found = self.all[start..end].binary_search_by_key(&number, |&(of, _)| of);
        found.map(|at| start + at).map_err(|at| start + at)
    }
}

/// How many keys a database has.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct CutDatabase {
    pub keys: usize,
    pub expiring: usize,
    /// How many shards have some of them.
    shards: usize,
}

/// A shard that has keys of a database.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct CensusPart {
    pub number: u32,
    shard: u16,
    /// Where the shard had the database: see `Shard::used`.
    place: u16,
}

impl CensusPart {
    pub const fn shard(self) -> usize {
        self.shard as usize
    }

    pub(super) const fn place(self) -> usize {
        self.place as usize
    }
}

/// All keys, counted by database.
#[derive(Default)]
pub struct Census {
    databases: ByDatabase<CutDatabase>,
    /// In the order of the shards.
    parts: Vec<CensusPart>,
    has_expiring_fields: bool,
}

impl Census {
    /// Counts the keys of a shard.
    pub fn add_shard(&mut self, index: usize, shard: &Shard) {
        for (place, (number, database)) in shard.used().enumerate() {
            if !database.is_empty() {
                self.add(index, place, number, database);
            }
        }
    }

    /// Counts the keys of a shard's database, which has some.
    pub(super) fn add(&mut self, index: usize, place: usize, number: u32, part: &Database) {
        let database = self.databases.of(number);
        database.keys += part.len();
        database.expiring += part.volatile();
        database.shards += 1;
        self.has_expiring_fields |= part.with_expiring_fields() > 0;
        // One that lies further back is searched.
        let place = u16::try_from(place).unwrap_or(u16::MAX);
        self.parts.push(CensusPart { number, shard: index as u16, place });
    }

    /// The databases that have keys, with their numbers, in that order.
    pub fn databases(&self) -> &[(u32, CutDatabase)] {
        self.databases.as_slice()
    }

    /// Whether there may be hashes with fields that expire. `false`: there are none.
    pub const fn has_expiring_fields(&self) -> bool {
        self.has_expiring_fields
    }

    /// The shards with keys of the first database, then those of the next one, and so on. The next
    /// call gives none.
    pub fn take_parts(&mut self) -> Vec<CensusPart> {
        let parts = std::mem::take(&mut self.parts);
        let mut sorted = vec![CensusPart::default(); parts.len()];
        let mut free: ByDatabase<usize> = ByDatabase::default();
        let mut start = 0;
        for &(number, database) in self.databases() {
            *free.of(number) = start;
            start += database.shards;
        }
        for part in parts {
            let at = free.of(part.number);
            sorted[*at] = part;
            *at += 1;
        }
        sorted
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn values_are_found_by_number_in_any_order(
            numbers in proptest::collection::vec(0..60u32, 0..100),
        ) {
            let (mut counts, mut model) = (ByDatabase::default(), BTreeMap::new());
            for number in numbers {
                prop_assert_eq!(counts.get_mut(number).copied(), model.get(&number).copied());
                *counts.of(number) += 1;
                *model.entry(number).or_insert(0) += 1;
                prop_assert_eq!(counts.get_mut(number).copied(), model.get(&number).copied());
            }
            prop_assert_eq!(counts.as_slice(), model.into_iter().collect::<Vec<_>>());
        }
    }
}
