//! Keys that were removed from a shard together.

use super::others::{IntoDatabases, Others};
use super::{CutHandle, CutPart, Database, DatabaseEntries};
use crate::entry::OwnedEntry;

/// One database of a shard, or all, with the keys. They should be dropped when no lock is held.
#[derive(Default)]
pub struct Flushed {
    one: Database,
    others: Option<Box<Others>>,
    keys: usize,
}

/// The entries of what was flushed. Those that nobody takes are freed with it.
pub struct FlushedEntries {
    entries: DatabaseEntries,
    /// Most shards have keys of one database.
    rest: Option<Box<RestEntries>>,
}

/// The databases whose entries come after those of the first, and how many entries they have.
struct RestEntries {
    databases: IntoDatabases,
    keys: usize,
}

/// FLUSHALL makes one for each shard, while memory may be short.
const _: () = assert!(size_of::<FlushedEntries>() <= size_of::<DatabaseEntries>() + 8);

/// The databases of what was flushed. Those that belong to a cut have their parts.
pub(crate) struct FlushedDatabases {
    one: Option<Database>,
    others: IntoDatabases,
}

impl Flushed {
    pub(super) fn new(one: Database, others: Option<Box<Others>>) -> Self {
        let keys = one.len() + others.as_ref().map_or(0, |others| others.keys());
        Self { one, others, keys }
    }

    /// The number of keys.
    pub const fn len(&self) -> usize {
        self.keys
    }

    pub const fn is_empty(&self) -> bool {
        self.keys == 0
    }

    /// The cut that keys belong to, if they do.
    pub(super) fn cut(&self) -> Option<CutHandle> {
        let one = self.one.expiry.cut().map(CutPart::handle);
        one.or_else(|| self.others.as_ref()?.cut())
    }

    /// Database 0, or the only one; and the others.
    pub(super) fn into_parts(self) -> (Database, Option<Box<Others>>) {
        (self.one, self.others)
    }

    pub(crate) fn into_databases(self) -> FlushedDatabases {
        let others = self.others.map(|others| others.into_databases());
        FlushedDatabases { one: Some(self.one), others: others.unwrap_or_default() }
    }

    pub fn into_entries(self) -> FlushedEntries {
        let keys = self.keys - self.one.len();
        let rest =
            self.others.map(|others| RestEntries { databases: others.into_databases(), keys });
        FlushedEntries { entries: self.one.into_entries(), rest: rest.map(Box::new) }
    }
}

impl Iterator for FlushedDatabases {
    type Item = Database;

    fn next(&mut self) -> Option<Database> {
        self.one.take().or_else(|| self.others.next())
    }
}

impl Iterator for FlushedEntries {
    type Item = OwnedEntry;

    fn next(&mut self) -> Option<OwnedEntry> {
        loop {
            if let Some(entry) = self.entries.next() {
                return Some(entry);
            }
            let rest = self.rest.as_mut()?;
            let next = rest.databases.next()?;
            rest.keys -= next.len();
            self.entries = next.into_entries();
        }
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        let keys = self.entries.len() + self.rest.as_ref().map_or(0, |rest| rest.keys);
        (keys, Some(keys))
    }
}

impl ExactSizeIterator for FlushedEntries {}
