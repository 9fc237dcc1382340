//! One shard: its keys in every database, and what goes with them.
//!
//! Only `insert`, `replace` and `remove` give a name another value, or none. Everything that must
//! happen at such a moment happens in them.

use std::sync::Arc;

use crate::entry::access::{AccessClock, AccessPolicy};
use crate::entry::{EntryMut, EntryRef, NewValue, OwnedEntry};
use crate::hash::{Hasher, KeyHash};
use crate::table::{EntryPlace, Table, TableEntries};
use crate::value::ValueType;
use crate::value::{DefragCursor, Defragmenter};
use expiry::{ExpiryIndex, POSITION_BITS_LOST};
use tracked::TrackedKeys;
use watch::{Concerned, Observer, WatchedKeys};

pub use cut_part::{CutHandle, Piece};
pub(crate) use cut_part::{CutPart, CutState, Gauge};
pub(crate) use flushed::FlushedDatabases;
pub use flushed::{Flushed, FlushedEntries};
pub use hash_change::HashMut;
use others::Others;

mod cut_part;
mod expiry;
mod flushed;
mod hash_change;
mod others;
pub mod tracked;
pub mod watch;

/// What a write does with the key's expiry.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Expire {
    Clear,
    Keep,
    /// Unix milliseconds.
    At(i64),
}

/// A field that was removed because it had expired; and, after all of a hash's fields, its key.
#[derive(Clone, Copy, Debug)]
pub enum Reaped<'a> {
    Field(&'a [u8]),
    Hash(&'a [u8]),
}

/// A shard's part of one database.
#[derive(Default)]
pub struct Database {
    table: Table,
    expiry: ExpiryIndex,
}

/// The entries of a database that is given up. Those that nobody takes are freed with it, and so is
/// what the database had beside them.
pub struct DatabaseEntries {
    entries: TableEntries,
    _expiry: ExpiryIndex,
}

impl Iterator for DatabaseEntries {
    type Item = OwnedEntry;

    fn next(&mut self) -> Option<OwnedEntry> {
        self.entries.next()
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        self.entries.size_hint()
    }
}

impl ExactSizeIterator for DatabaseEntries {}

/// Some keys of every database, locked together.
#[derive(Default)]
pub struct Shard {
    /// Database 0, the only one that most clients use.
    first: Database,
    /// One word in the shard's cache line.
    more: Option<Box<More>>,
}

/// What most shards do not have.
#[derive(Default)]
struct More {
    /// The databases from 1 on. `None`: none is used.
    others: Option<Box<Others>>,
    watched: Option<Box<WatchedKeys>>,
}

impl Shard {
    /// The database, for reading. `None`: it is not used.
    #[inline(always)]
    pub fn database(&self, index: u32) -> Option<&Database> {
        if index == 0 {
            return Some(&self.first);
        }
        self.other(index)
    }

    /// The database, for removing something. `None`: it is not used.
    #[inline(always)]
    pub fn used_mut(&mut self, index: u32) -> Option<&mut Database> {
        if index == 0 {
            return Some(&mut self.first);
        }
        self.used_other_mut(index)
    }

    /// The database. It is made if it is not used yet.
    #[inline(always)]
    pub fn database_mut(&mut self, index: u32) -> &mut Database {
        if index == 0 {
            return &mut self.first;
        }
        self.other_mut(index)
    }

    // Functions of their own, so that commands on database 0 have no code for the search.

    #[inline(never)]
    fn other(&self, index: u32) -> Option<&Database> {
        self.others()?.database(index)
    }

    #[inline(never)]
    fn used_other_mut(&mut self, index: u32) -> Option<&mut Database> {
        self.others_mut()?.used_mut(index)
    }

    #[inline(never)]
    fn other_mut(&mut self, index: u32) -> &mut Database {
        self.more.get_or_insert_default().others.get_or_insert_default().database_mut(index)
    }

    /// The used databases with their numbers, in that order. Database 0 always counts as used.
    pub fn used(&self) -> impl Iterator<Item = (u32, &Database)> {
        let others = self.others().map(Others::iter);
        std::iter::once((0, &self.first)).chain(others.into_iter().flatten())
    }

    /// The used databases from a number on.
    pub fn used_from(&self, number: u32) -> impl Iterator<Item = (u32, &Database)> {
        let others = self.others().map(|others| others.iter_from(number));
        let first = (number == 0).then_some((0, &self.first));
        first.into_iter().chain(others.into_iter().flatten())
    }

    /// Frees the memory of databases without keys.
    pub fn trim(&mut self) {
        if let Some(others) = self.others_mut() {
            others.trim();
            self.tidy();
        }
    }

    /// Frees what most shards do not have, if this one no longer has it.
    fn tidy(&mut self) {
        self.more.take_if(|more| {
            more.others.take_if(|others| others.is_empty());
            more.others.is_none() && more.watched.is_none()
        });
    }

    #[inline(always)]
    fn others(&self) -> Option<&Others> {
        self.more.as_ref()?.others.as_deref()
    }

    #[inline(always)]
    fn others_mut(&mut self) -> Option<&mut Others> {
        self.more.as_mut()?.others.as_deref_mut()
    }

    #[inline(always)]
    fn watched(&self) -> Option<&WatchedKeys> {
        self.more.as_ref()?.watched.as_deref()
    }

    fn watched_or_default(&mut self) -> &mut WatchedKeys {
        self.more.get_or_insert_default().watched.get_or_insert_default()
    }

    /// Whether the shard has more than keys of database 0 that never expire.
    #[inline(always)]
    pub(crate) fn has_more(&self) -> bool {
        self.first.expiry.is_some() || self.others().is_some()
    }

    /// Whether the shard has no key, and no memory for keys.
    pub(crate) fn is_as_new(&self) -> bool {
        !self.has_more() && self.first.table.memory() == 0
    }

    /// Database 0.
    #[inline(always)]
    pub(crate) const fn first(&self) -> &Database {
        &self.first
    }

    /// A time (Unix ms) before which no database has keys or fields to remove; `i64::MAX`: never.
    /// For databases from 1 on it may be too early, until `look_when_due`.
    #[inline(always)]
    pub(crate) fn next_due_ms(&self) -> i64 {
        let first_ms = self.first.next_due_ms();
        self.others().map_or(first_ms, |others| first_ms.min(others.next_due_ms()))
    }

    /// Looks at every database to learn when the next key or field has to be removed.
    pub fn look_when_due(&mut self) {
        if let Some(others) = self.others_mut() {
            others.look_when_due();
        }
    }

    /// The first database from this number on that has keys or fields to remove.
    pub fn due_from(&self, number: u32, now_ms: i64) -> Option<u32> {
        let mut used = self.used_from(number);
        used.find(|(_, database)| database.next_due_ms() <= now_ms).map(|(number, _)| number)
    }

    /// Exchanges the contents of two databases. Watched keys count as changed if they existed or
    /// will exist. With `takes_dead`, watched keys that have expired are removed first. Returns
    /// those, each with its database.
    pub fn swap_watched(
        &mut self,
        a: u32,
        b: u32,
        now_ms: i64,
        hasher: &Hasher,
        takes_dead: bool,
    ) -> Vec<(u32, OwnedEntry)> {
        let mut taken = Vec::new();
        if a == b {
            return taken;
        }
        if let Some(mut watched) = self.take_watched() {
            let mut dead = Vec::new();
            for (from, to) in [(a, b), (b, a)] {
                watched.changed_where(from, |key| {
                    let was = self.expiry_of(from, key, hasher);
                    let will_be = self.expiry_of(to, key, hasher);
                    let is_dead = |found: Option<Option<i64>>| {
                        found.is_some_and(|expire_ms| expire_ms.is_some_and(|ms| ms <= now_ms))
                    };
                    if takes_dead && is_dead(will_be) {
                        dead.push((to, Box::<[u8]>::from(key)));
                    }
                    // A key that expired unnoticed since it was watched counts as one that existed.
                    was.is_some() || will_be.is_some() && !is_dead(will_be)
                });
            }
            for (index, key) in dead {
                let Some(database) = self.used_mut(index) else { continue };
                if let Some(place) = database.find(hasher.hash(&key), &key) {
                    taken.push((index, database.remove(place, hasher)));
                }
            }
            self.more.get_or_insert_default().watched = Some(watched);
        }
        self.swap(a, b);
        taken
    }

    fn take_watched(&mut self) -> Option<Box<WatchedKeys>> {
        self.more.as_mut()?.watched.take()
    }

    /// The expiry of a key that exists, expired or not.
    fn expiry_of(&self, database: u32, key: &[u8], hasher: &Hasher) -> Option<Option<i64>> {
        let database = self.database(database)?;
        Some(database.entry(database.find(hasher.hash(key), key)?).expire_ms())
    }

    /// Removes the keys of a database, and returns them and their number. Watched keys that existed
    /// count as changed.
    pub fn flush(&mut self, index: u32, hasher: &Hasher) -> (usize, Flushed) {
        if let Some(mut watched) = self.take_watched() {
            watched.changed_where(index, |key| self.expiry_of(index, key, hasher).is_some());
            self.more.get_or_insert_default().watched = Some(watched);
        }
        self.take(index)
    }

    /// Removes the keys of all databases, and returns them and their number. Watched keys that
    /// existed count as changed.
    pub fn flush_all(&mut self, hasher: &Hasher) -> (usize, Flushed) {
        if let Some(mut watched) = self.take_watched() {
            watched.all_changed_where(|index, key| self.expiry_of(index, key, hasher).is_some());
            self.more.get_or_insert_default().watched = Some(watched);
        }
        self.take_all()
    }

    /// Makes all keys part of a cut. Calls `each` with each database that has keys, and with its
    /// place in `used` and its number. `index` is the shard's.
    pub(crate) fn join_cut(
        &mut self,
        cut: &CutHandle,
        index: usize,
        mut each: impl FnMut(usize, u32, &Database),
    ) {
        let part = || CutPart::new(Arc::clone(&cut.0), index);
        if !self.first.is_empty() {
            self.first.leave_cut();
            self.first.join_cut(part());
            each(0, 0, &self.first);
        }
        if let Some(others) = self.others_mut() {
            others.join_cut(part(), |at, number, database| each(at + 1, number, database));
        }
    }

    /// Does what `Database::walk_cut` does, for the database that had this number when the cut
    /// began, and probably has this place in `used`. If it was flushed, there is nothing to walk.
    pub(crate) fn walk_cut(
        &mut self,
        (number, place): (u32, usize),
        cut: &CutHandle,
        limit: usize,
        hasher: &Hasher,
        out: &mut Vec<Piece>,
    ) -> bool {
        if self.first.is_part_of_cut(number, cut) {
            return self.first.walk_cut(limit, hasher, out);
        }
        let near = (number, place.wrapping_sub(1));
        let others = self.others_mut();
        others.and_then(|others| others.walk_cut(near, cut, limit, hasher, out)).unwrap_or(true)
    }

    /// Exchanges the contents of two databases.
    pub fn swap(&mut self, a: u32, b: u32) {
        if a == b || self.both_empty(a, b) {
            return;
        }
        let others = self.more.get_or_insert_default().others.get_or_insert_default();
        match (a, b) {
            (0, other) | (other, 0) => {
                let taken = others.take(other).unwrap_or_default();
                let first = std::mem::replace(&mut self.first, taken);
                if !first.is_empty() {
                    *others.database_mut(other) = first;
                }
            }
            _ => others.swap(a, b),
        }
        self.tidy();
    }

    fn both_empty(&self, a: u32, b: u32) -> bool {
        [a, b].iter().all(|&index| self.database(index).is_none_or(|d| d.table.is_empty()))
    }

    /// Removes the keys of a database, and returns them and their number. If they belong to a cut,
    /// the cut gets them, and the first result is empty.
    pub fn take(&mut self, index: u32) -> (usize, Flushed) {
        let one = match index {
            0 => std::mem::take(&mut self.first),
            index => self.others_mut().and_then(|others| others.take(index)).unwrap_or_default(),
        };
        self.tidy();
        give(Flushed::new(one, None))
    }

    /// Does what `take` does, for all databases.
    pub fn take_all(&mut self) -> (usize, Flushed) {
        let others = self.more.as_mut().and_then(|more| more.others.take());
        self.tidy();
        give(Flushed::new(std::mem::take(&mut self.first), others))
    }

    /// Puts the keys of all databases of another shard into this one, which has none.
    pub fn put_all(&mut self, keys: Flushed) {
        let (first, others) = keys.into_parts();
        self.first = first;
        if others.is_some() {
            self.more.get_or_insert_default().others = others;
        }
    }

    /// Bytes of memory for everything but the entries.
    pub fn overhead(&self) -> usize {
        self.first.overhead() + self.others().map_or(0, Others::overhead)
    }

    /// Whether clients may watch, wait for, or keep copies of keys of the shard. If so,
    /// `key_changed` must be called when a key changes.
    #[inline(always)]
    pub fn has_watched(&self) -> bool {
        self.watched().is_some()
    }

    /// Whether blocked clients wait for any key of the shard.
    pub fn has_waiters(&self) -> bool {
        self.watched().is_some_and(|watched| watched.has_waiters())
    }

    /// Whether blocked clients wait for the key.
    pub fn is_waited(&self, database: u32, key: &[u8]) -> bool {
        self.watched().is_some_and(|watched| watched.is_waited(database, key))
    }

    /// Must be called when a key has changed. Returns the clients that the change concerns.
    pub fn key_changed(&mut self, database: u32, key: &[u8], hash: KeyHash) -> Concerned {
        let mut concerned = Concerned::default();
        self.leave(|watched| concerned = watched.changed(database, key, hash));
        concerned
    }

    /// Notes that a client, by number, keeps a copy of a key. Returns whether no client did before.
    /// `is_there` says which clients still exist.
    pub fn track(
        &mut self,
        key: &[u8],
        hash: KeyHash,
        reader: u64,
        is_there: impl Fn(u64) -> bool,
    ) -> bool {
        self.watched_or_default().tracked.add(key, hash, reader, is_there)
    }

    /// How many keys clients keep copies of, and the number of copies.
    pub fn tracked(&self) -> (usize, usize) {
        let tracked = self.watched().map(|watched| &watched.tracked);
        tracked.map_or((0, 0), |tracked| (tracked.len(), tracked.items()))
    }

    /// Forgets at most `count` tracked keys. Returns them with the clients that keep copies.
    pub fn untrack_some(&mut self, count: usize) -> Vec<(Box<[u8]>, Vec<u64>)> {
        let mut taken = Vec::new();
        self.leave(|watched| taken = watched.tracked.take_some(count));
        taken
    }

    /// Forgets all tracked keys.
    pub fn untrack_all(&mut self) {
        self.leave(|watched| TrackedKeys::clear(&mut watched.tracked));
    }

    /// The keys that clients watch or wait for. `None`: there are none.
    #[inline(always)]
    pub fn watched_mut(&mut self) -> Option<&mut WatchedKeys> {
        self.more.as_mut()?.watched.as_deref_mut()
    }

    /// Adds a watcher of a key, and returns the version that it starts from.
    pub fn watch(&mut self, database: u32, key: &[u8]) -> u64 {
        self.watched_or_default().watch(database, key)
    }

    /// Removes a watcher of a key, and returns the version that it leaves behind.
    pub fn unwatch(&mut self, database: u32, key: &[u8]) -> Option<u64> {
        self.leave(|watched| watched.unwatch(database, key)).flatten()
    }

    /// Adds a blocked client that waits for a key.
    pub fn wait(&mut self, database: u32, key: &[u8]) {
        self.watched_or_default().wait(database, key);
    }

    /// Removes a blocked client from a key.
    pub fn unwait(&mut self, database: u32, key: &[u8]) {
        self.leave(|watched| watched.unwait(database, key));
    }

    /// Reports all changes to an observer from now on.
    pub fn observe(&mut self, observer: &Arc<Observer>) {
        self.watched_or_default().observe(observer);
    }

    pub fn unobserve(&mut self, observer: &Arc<Observer>) {
        self.leave(|watched| watched.unobserve(observer));
    }

    fn leave<R>(&mut self, leave: impl FnOnce(&mut WatchedKeys) -> R) -> Option<R> {
        let more = self.more.as_mut()?;
        let watched = more.watched.as_mut()?;
        let result = leave(watched);
        if watched.is_empty() {
            // The versions may start over, because no client remembers one.
            more.watched = None;
            self.tidy();
        }
        Some(result)
    }

    /// The version of a watched key.
    pub fn watched_version(&self, database: u32, key: &[u8]) -> Option<u64> {
        self.watched()?.version(database, key)
    }
}

impl Database {
    pub fn len(&self) -> usize {
        self.table.len()
    }

    pub fn is_empty(&self) -> bool {
        self.table.is_empty()
    }

    /// How many keys have an expiry.
    pub fn volatile(&self) -> usize {
        self.expiry.volatile()
    }

    pub fn table(&self) -> &Table {
        &self.table
    }

    /// Gives the database up for its entries.
    pub fn into_entries(self) -> DatabaseEntries {
        DatabaseEntries { entries: self.table.into_entries(), _expiry: self.expiry }
    }

    /// Bytes of memory for everything but the entries.
    pub fn overhead(&self) -> usize {
        self.table.memory() + self.expiry.memory()
    }

    /// Where the key lies, expired or not.
    #[inline(always)]
    pub fn find(&self, hash: KeyHash, key: &[u8]) -> Option<EntryPlace> {
        self.table.find(hash, key)
    }

    #[inline(always)]
    pub fn entry(&self, place: EntryPlace) -> EntryRef<'_> {
        self.table.entry(place)
    }

    /// The entry, for changing its access bits only; a value is changed by `change`.
    #[inline(always)]
    pub fn entry_mut(&mut self, place: EntryPlace) -> EntryMut<'_> {
        self.table.entry_mut(place)
    }

    /// The entry, for changing its value in place.
    #[inline(always)]
    pub fn change(&mut self, place: EntryPlace, hasher: &Hasher) -> EntryMut<'_> {
        self.before_change(place, hasher);
        self.entry_mut(place)
    }

    /// Must be called before the entry changes or is removed: a cut may have to copy it.
    #[inline(always)]
    fn before_change(&mut self, place: EntryPlace, hasher: &Hasher) {
        if self.expiry.cut().is_some() {
            self.keep_for_cut(place, hasher);
        }
    }

    #[cold]
    #[inline(never)]
    fn keep_for_cut(&mut self, place: EntryPlace, hasher: &Hasher) {
        let Some(part) = self.expiry.cut() else { return };
        let entry = self.entry(place);
        if !entry.is_marked() && part.is_ahead(hasher.hash(entry.key())) {
            part.keep(entry);
            self.entry_mut(place).set_marked(true);
        }
    }

    /// A new entry ahead of a cut's walk is not part of the cut.
    #[inline(always)]
    fn mark_new(&self, hash: KeyHash, entry: &mut OwnedEntry) {
        if let Some(part) = self.expiry.cut() {
            entry.set_marked(part.is_ahead(hash));
        }
    }

    /// Entries outside of tables have no marks.
    #[inline(always)]
    fn unmark_old(&self, mut entry: OwnedEntry) -> OwnedEntry {
        if self.expiry.cut().is_some() {
            entry.set_marked(false);
        }
        entry
    }

    /// Makes the keys part of a cut. They belong to no other.
    fn join_cut(&mut self, part: CutPart) {
        self.expiry.set_cut(Some(part));
    }

    /// Aborts the cut that the keys belong to, if there is one, and removes its marks.
    fn leave_cut(&mut self) {
        if let Some(former) = self.expiry.cut() {
            former.handle().abort();
            self.table.iter_mut().for_each(|mut entry| entry.set_marked(false));
            self.expiry.set_cut(None);
        }
    }

    /// Whether this is the database that had this number when the cut began.
    fn is_part_of_cut(&self, number: u32, cut: &CutHandle) -> bool {
        self.expiry.cut().is_some_and(|part| part.is(number, cut))
    }

    /// Appends keys of the cut until `out` has about `limit`. The next call continues from there.
    /// Returns whether the walk is complete; then the database does not belong to the cut any more.
    pub(crate) fn walk_cut(&mut self, limit: usize, hasher: &Hasher, out: &mut Vec<Piece>) -> bool {
        let Some(part) = self.expiry.cut() else { return true };
        let mut next = Some(part.from());
        self.table.prefetch_first_scan(part.from());
        while let Some(position) = next
            && out.len() < limit
        {
            self.table.prefetch_scan(position, true);
            next = self.table.scan_mut(position, hasher, |mut entry| {
                if entry.as_ref().is_marked() {
                    entry.set_marked(false);
                } else {
                    out.extend(part.piece(entry.as_ref()));
                }
            });
        }
        match (next, self.expiry.cut_mut()) {
            (Some(position), Some(part)) => {
                part.move_to(position);
                false
            }
            _ => {
                self.expiry.set_cut(None);
                true
            }
        }
    }

    /// Moves blocks of keys and values out of sparsely used memory, from a cursor on. `false` at
    /// the end.
    pub fn defragment(
        &mut self,
        cursor: &mut DefragCursor,
        defragmenter: &mut Defragmenter<'_>,
    ) -> bool {
        self.table.defragment(cursor, defragmenter)
    }

    /// Gives a value to a name that has none.
    #[inline]
    pub fn insert(&mut self, hash: KeyHash, mut entry: OwnedEntry, hasher: &Hasher) -> EntryPlace {
        self.mark_new(hash, &mut entry);
        if let Some(ms) = entry.as_ref().expire_ms() {
            self.expiry.set(hash.position(), None, ms);
        }
        self.expiry.note_fields(hash.position(), None, fields_ms(entry.as_ref()));
        let place = self.table.insert(hash, entry, hasher);
        if self.wants_rebuilt_expiry() {
            self.rebuild_expiry(hasher);
        }
        place
    }

    /// Gives another value to a name that has one, and returns the old one.
    #[inline]
    pub fn replace(
        &mut self,
        hash: KeyHash,
        place: EntryPlace,
        mut entry: OwnedEntry,
        hasher: &Hasher,
    ) -> OwnedEntry {
        self.before_change(place, hasher);
        self.mark_new(hash, &mut entry);
        let old_ms = self.entry(place).expire_ms();
        self.note_expiry(hash, old_ms, entry.as_ref().expire_ms());
        let fields_ms = (self.stored_fields_ms(place), fields_ms(entry.as_ref()));
        self.expiry.note_fields(hash.position(), fields_ms.0, fields_ms.1);
        let old = self.table.replace(place, entry);
        if self.wants_rebuilt_expiry() {
            self.rebuild_expiry(hasher);
        }
        self.unmark_old(old)
    }

    /// Removes a name, and returns its value.
    pub fn remove(&mut self, place: EntryPlace, hasher: &Hasher) -> OwnedEntry {
        self.before_change(place, hasher);
        if self.entry(place).expire_ms().is_some() {
            self.expiry.unset();
        }
        self.forget_fields(place);
        let removed = self.table.remove(place, hasher);
        self.unmark_old(removed)
    }

    /// Sets the key to a string, whatever it was. Returns the old entry, if there was one. It must
    /// be dropped while no lock is held.
    #[inline]
    #[expect(clippy::too_many_arguments, reason = "a struct of them would be made for every SET")]
    pub fn set(
        &mut self,
        hash: KeyHash,
        key: &[u8],
        found: Option<EntryPlace>,
        value: NewValue<'_>,
        expire: Expire,
        clock: &AccessClock,
        hasher: &Hasher,
    ) -> Option<OwnedEntry> {
        let Some(place) = found else {
            let expire_ms = if let Expire::At(ms) = expire { Some(ms) } else { None };
            self.insert(hash, OwnedEntry::new(key, value, expire_ms, clock.fresh()), hasher);
            return None;
        };
        self.before_change(place, hasher);
        let old = self.entry(place);
        let old_ms = old.expire_ms();
        let expire_ms = match expire {
            Expire::Clear => None,
            Expire::Keep => old_ms,
            Expire::At(ms) => Some(ms),
        };
        let access = match clock.policy {
            AccessPolicy::Lru => clock.fresh(),
            // An overwritten key stays as popular as it was.
            AccessPolicy::Lfu { .. } => old.access(),
        };
        let value = if old_ms.is_some() == expire_ms.is_some() {
            let mut entry = self.entry_mut(place);
            match entry.replace(value) {
                Ok(()) => {
                    if entry.as_ref().access() != access {
                        entry.set_access(access);
                    }
                    if let Some(ms) = expire_ms {
                        self.set_expire(hash, place, Some(ms), hasher);
                    }
                    return None;
                }
                Err(value) => value,
            }
        } else {
            value
        };
        let entry = OwnedEntry::new(key, value, expire_ms, access);
        Some(self.replace(hash, place, entry, hasher))
    }

    /// Sets or removes a key's expiry (Unix ms).
    pub fn set_expire(
        &mut self,
        hash: KeyHash,
        place: EntryPlace,
        expire_ms: Option<i64>,
        hasher: &Hasher,
    ) {
        self.before_change(place, hasher);
        let old_ms = self.entry(place).expire_ms();
        self.note_expiry(hash, old_ms, expire_ms);
        if let (Some(_), Some(new_ms)) = (old_ms, expire_ms) {
            self.entry_mut(place).set_expire_in_place(new_ms);
        } else if old_ms != expire_ms {
            // The time needs room in the block, or frees it, so a new block is made.
            let is_ahead = self.expiry.cut().is_some_and(|part| part.is_ahead(hash));
            self.table.remake(place, |entry| {
                let mut entry = entry.with_expiry(expire_ms);
                entry.set_marked(is_ahead);
                entry
            });
        }
        if self.wants_rebuilt_expiry() {
            self.rebuild_expiry(hasher);
        }
    }

    /// Whether the index of expiries is mostly stale, and large enough to justify a walk over all
    /// keys.
    #[inline(always)]
    fn wants_rebuilt_expiry(&self) -> bool {
        self.expiry.wants_rebuild() && self.expiry.items() > self.table.len() / KEYS_PER_STALE
    }

    /// Updates the index after a change of a key's expiry.
    #[inline(always)]
    fn note_expiry(&mut self, hash: KeyHash, old_ms: Option<i64>, new_ms: Option<i64>) {
        match (old_ms, new_ms) {
            (_, Some(new_ms)) => self.expiry.set(hash.position(), old_ms, new_ms),
            (Some(_), None) => self.expiry.unset(),
            (None, None) => {}
        }
    }

    /// From when on `expire_due` has something to do (Unix ms); `i64::MAX`: never.
    #[inline(always)]
    pub const fn next_due_ms(&self) -> i64 {
        self.expiry.next_due_ms()
    }

    /// Removes expired keys and appends them to `out`, with at most `limit` looks at the index.
    /// Returns how many looks there were.
    ///
    /// Also removes the expired fields of hashes, and reports them to `reaped`. A hash without
    /// fields left is removed. It stops early after [`FIELDS_MAX`] fields.
    pub fn expire_due(
        &mut self,
        now_ms: i64,
        limit: usize,
        hasher: &Hasher,
        out: &mut Vec<OwnedEntry>,
        mut reaped: impl FnMut(Reaped<'_>),
    ) -> usize {
        let mut places = Vec::new();
        let mut fields_left = FIELDS_MAX;
        let mut seen = None;
        for looks in 0..limit {
            if fields_left == 0 {
                return looks;
            }
            let Some(position) = self.expiry.pop_due(now_ms) else { return looks };
            if seen.replace(position) == Some(position) {
                // Nothing is due there any more, and its next item was inserted.
                continue;
            }
            // Removing moves entries, so the places are looked up again after each removal. In a
            // large table several keys share a position.
            loop {
                places.clear();
                self.table.places_near(position, POSITION_BITS_LOST, hasher, &mut places);
                let due = places.iter().copied().find(|&place| {
                    self.is_due(place, now_ms)
                        || self.reap_fields(place, now_ms, &mut fields_left, hasher, &mut reaped)
                });
                let Some(place) = due else { break };
                out.push(self.remove(place, hasher));
            }
            // Insert one item for all keys that are left there. With one for each key, keys that
            // have their own items already would double their number at every look.
            let times = places.iter().filter_map(|&place| {
                let entry = self.entry(place);
                entry.expire_ms().into_iter().chain(fields_ms(entry)).min()
            });
            if let Some(first_ms) = times.min() {
                self.expiry.push(position, first_ms);
            }
        }
        limit
    }

    fn is_due(&self, place: EntryPlace, now_ms: i64) -> bool {
        self.entry(place).expire_ms().is_some_and(|ms| ms <= now_ms)
    }

    /// Removes at most `fields_left` expired fields of a hash. Returns whether it is empty then.
    fn reap_fields(
        &mut self,
        place: EntryPlace,
        now_ms: i64,
        fields_left: &mut usize,
        hasher: &Hasher,
        reaped: &mut impl FnMut(Reaped<'_>),
    ) -> bool {
        let entry = self.entry(place);
        let is_due = fields_ms(entry).is_some_and(|ms| ms <= now_ms);
        if !is_due || *fields_left == 0 {
            return false;
        }
        let hash = hasher.hash(entry.key());
        let Some(mut fields) = self.change_hash(hash, place, hasher) else { return false };
        let each = |name: &[u8]| reaped(Reaped::Field(name));
        let removed = fields.remove_expired(now_ms, *fields_left, hasher, each);
        *fields_left -= removed;
        let is_empty = fields.is_empty();
        drop(fields);
        if removed > 0 {
            reaped(Reaped::Hash(self.entry(place).key()));
        }
        is_empty
    }

    fn rebuild_expiry(&mut self, hasher: &Hasher) {
        let keys = self
            .table
            .iter()
            .map(|entry| (entry, entry.expire_ms(), fields_ms(entry)))
            .filter(|(_, expire_ms, fields_ms)| expire_ms.is_some() || fields_ms.is_some())
            .map(|(entry, expire_ms, fields_ms)| {
                (hasher.hash(entry.key()).position(), expire_ms, fields_ms)
            });
        self.expiry.rebuild(keys);
    }
}

/// Gives keys that were removed to the cut that they belong to, or back. Also returns their number.
fn give(flushed: Flushed) -> (usize, Flushed) {
    let keys = flushed.len();
    match flushed.cut() {
        None => (keys, flushed),
        Some(cut) => {
            cut.detach(flushed);
            (keys, Flushed::default())
        }
    }
}

/// When the first field of a hash expires, or earlier. `None`: no field does.
#[inline(always)]
fn fields_ms(entry: EntryRef<'_>) -> Option<i64> {
    if entry.value_type() != ValueType::Hash {
        return None;
    }
    entry.collection::<crate::value::Hash>()?.earliest_ms()
}

/// How many fields are removed from hashes before other threads get the shard.
pub const FIELDS_MAX: usize = 256;
/// An index of expiries is rebuilt only with more items than one for 16 keys, which is a quarter of
/// a byte per key.
const KEYS_PER_STALE: usize = 16;

#[cfg(test)]
mod tests;
