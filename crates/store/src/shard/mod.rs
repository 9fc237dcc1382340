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
pub use hash_change::HashMut;

mod cut_part;
mod expiry;
mod hash_change;
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
    /// The databases from 1 on, as far as they are used.
    others: Vec<Option<Box<Database>>>,
    watched: Option<Box<WatchedKeys>>,
}

impl Shard {
    /// The database, for reading. `None`: it is not used.
    #[inline(always)]
    pub fn database(&self, index: u32) -> Option<&Database> {
        if index == 0 {
            return Some(&self.first);
        }
        self.others().get(index as usize - 1)?.as_deref()
    }

    /// The database, for removing something. `None`: it is not used.
    #[inline(always)]
    pub fn used_mut(&mut self, index: u32) -> Option<&mut Database> {
        if index == 0 {
            return Some(&mut self.first);
        }
        self.more.as_mut()?.others.get_mut(index as usize - 1)?.as_deref_mut()
    }

    /// The database. It is made if it is not used yet.
    #[inline(always)]
    pub fn database_mut(&mut self, index: u32) -> &mut Database {
        if index == 0 {
            return &mut self.first;
        }
        let others = &mut self.more.get_or_insert_default().others;
        if others.len() < index as usize {
            others.resize_with(index as usize, || None);
        }
        others[index as usize - 1].get_or_insert_default()
    }

    /// Frees the memory of databases without keys.
    pub fn trim(&mut self) {
        let Some(more) = &mut self.more else { return };
        for other in &mut more.others {
            other.take_if(|database| database.is_empty());
        }
        let used = more.others.iter().rposition(Option::is_some).map_or(0, |last| last + 1);
        more.others.truncate(used);
        if used == 0 {
            more.others = Vec::new();
            self.tidy();
        }
    }

    /// Frees what most shards do not have, if this one no longer has it.
    fn tidy(&mut self) {
        self.more.take_if(|more| more.others.is_empty() && more.watched.is_none());
    }

    /// The databases from 1 on.
    #[inline(always)]
    fn others(&self) -> &[Option<Box<Database>>] {
        self.more.as_ref().map_or(&[], |more| &more.others)
    }

    #[inline(always)]
    fn watched(&self) -> Option<&WatchedKeys> {
        self.more.as_ref()?.watched.as_deref()
    }

    fn watched_or_default(&mut self) -> &mut WatchedKeys {
        self.more.get_or_insert_default().watched.get_or_insert_default()
    }

    /// The highest number of a used database, plus one.
    pub fn databases(&self) -> u32 {
        1 + self.others().len() as u32
    }

    /// Whether the shard has more than keys of database 0 that never expire.
    #[inline(always)]
    pub(crate) fn has_more(&self) -> bool {
        self.first.expiry.is_some() || !self.others().is_empty()
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

    /// From when on (Unix ms) a database has keys or fields to remove; `i64::MAX`: never.
    #[inline(always)]
    pub(crate) fn next_due_ms(&self) -> i64 {
        let others = self.others().iter().flatten().map(|other| other.next_due_ms());
        others.fold(self.first.next_due_ms(), i64::min)
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

    /// Removes the contents of a database. They should be dropped when no lock is held. Watched
    /// keys that existed count as changed.
    pub fn flush(&mut self, index: u32, hasher: &Hasher) -> Database {
        if let Some(mut watched) = self.take_watched() {
            watched.changed_where(index, |key| self.expiry_of(index, key, hasher).is_some());
            self.more.get_or_insert_default().watched = Some(watched);
        }
        self.take(index)
    }

    /// The database that had this number when a cut began, if it was not walked yet.
    pub(crate) fn part_of_cut(&mut self, number: u32, cut: &CutHandle) -> Option<&mut Database> {
        let is_it =
            |database: &Database| database.expiry.cut().is_some_and(|part| part.is(number, cut));
        let index = (0..self.databases()).find(|&index| self.database(index).is_some_and(is_it))?;
        self.used_mut(index)
    }

    /// Exchanges the contents of two databases.
    pub fn swap(&mut self, a: u32, b: u32) {
        if a == b || self.both_empty(a, b) {
            return;
        }
        let taken = std::mem::take(self.database_mut(a));
        let taken = std::mem::replace(self.database_mut(b), taken);
        *self.database_mut(a) = taken;
        self.trim();
    }

    fn both_empty(&self, a: u32, b: u32) -> bool {
        [a, b].iter().all(|&index| self.database(index).is_none_or(|d| d.table.is_empty()))
    }

    /// Removes the contents of a database. They should be dropped when no lock is held. If they
    /// belong to a cut, the cut gets them, and the result is empty.
    pub fn take(&mut self, index: u32) -> Database {
        let taken = self.used_mut(index).map(std::mem::take).unwrap_or_default();
        self.trim();
        match taken.expiry.cut().map(CutPart::handle) {
            None => taken,
            Some(cut) => {
                cut.detach(taken);
                Database::default()
            }
        }
    }

    /// Bytes of memory for everything but the entries.
    pub fn overhead(&self) -> usize {
        let others = self.others();
        let used = others.iter().flatten().map(|database| &**database);
        let overhead = |database: &Database| size_of::<Database>() + database.overhead();
        self.first.overhead() + used.map(overhead).sum::<usize>() + size_of_val(others)
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

    /// Makes the keys part of a cut.
    pub(crate) fn join_cut(&mut self, part: CutPart) {
        if let Some(former) = self.expiry.cut() {
            former.handle().abort();
            self.table.iter_mut().for_each(|mut entry| entry.set_marked(false));
        }
        self.expiry.set_cut(Some(part));
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
mod tests {
    use super::*;

    const NOW_MS: i64 = 1_700_000_000_000;

    fn set(shard: &mut Shard, database: u32, key: &[u8], hasher: &Hasher) {
        let clock = AccessClock::new(AccessPolicy::Lru, NOW_MS);
        let (hash, value) = (hasher.hash(key), NewValue::Inline(b"v"));
        let database = shard.database_mut(database);
        let found = database.find(hash, key);
        database.set(hash, key, found, value, Expire::Clear, &clock, hasher);
    }

    fn remove(shard: &mut Shard, database: u32, key: &[u8], hasher: &Hasher) {
        let database = shard.used_mut(database).expect("it has keys");
        let place = database.find(hasher.hash(key), key).expect("it was set");
        drop(database.remove(place, hasher));
    }

    #[test]
    fn a_database_is_made_by_its_first_key_and_given_back_by_trim() {
        let (mut shard, hasher) = (Shard::default(), Hasher::new(1));
        assert!(shard.used_mut(0).is_some(), "database 0 is always there");
        assert!(shard.used_mut(7).is_none());
        assert!(shard.database(7).is_none());
        assert_eq!((shard.databases(), shard.overhead()), (1, 0));
        set(&mut shard, 7, b"a", &hasher);
        set(&mut shard, 3, b"b", &hasher);
        assert_eq!(shard.databases(), 8);
        assert!(shard.database(5).is_none(), "what lies between is not made");
        assert_eq!(shard.used_mut(7).map(|database| database.len()), Some(1));
        remove(&mut shard, 7, b"a", &hasher);
        assert_eq!(shard.databases(), 8, "a removal alone keeps it for the next key");
        shard.trim();
        assert_eq!(shard.databases(), 4);
        remove(&mut shard, 3, b"b", &hasher);
        shard.trim();
        assert_eq!((shard.databases(), shard.overhead()), (1, 0));
    }

    #[test]
    fn swapping_and_flushing_leave_no_empty_database_behind() {
        let (mut shard, hasher) = (Shard::default(), Hasher::new(1));
        shard.swap(0, 9);
        shard.swap(4, 9);
        assert_eq!(shard.databases(), 1);
        set(&mut shard, 9, b"a", &hasher);
        shard.swap(9, 2);
        assert_eq!(shard.databases(), 3);
        shard.swap(2, 0);
        assert_eq!(shard.databases(), 1);
        assert_eq!(shard.first.len(), 1);
        assert_eq!(shard.flush(6, &hasher).len(), 0);
        set(&mut shard, 6, b"a", &hasher);
        assert_eq!(shard.flush(6, &hasher).len(), 1);
        assert_eq!((shard.databases(), shard.overhead()), (1, shard.first.overhead()));
    }

    /// Each look removes an item and inserts one at most, however many keys an item stands for.
    #[test]
    fn keys_that_share_items_are_looked_at_once_each() {
        const KEYS: usize = if cfg!(miri) { 20 } else { 1000 };
        const CELLS: u32 = 16;
        let (mut shard, hasher) = (Shard::default(), Hasher::new(1));
        let database = shard.database_mut(0);
        let keys = (0_u64..).map(u64::to_be_bytes);
        let keys = keys.filter(|key| hasher.hash(key).position() >> POSITION_BITS_LOST < CELLS);
        for (number, key) in keys.take(KEYS).enumerate() {
            let expire_ms = NOW_MS + 1 + 100 * number as i64;
            let entry = OwnedEntry::new(&key, NewValue::Inline(b"v"), Some(expire_ms), 0);
            database.insert(hasher.hash(&key), entry, &hasher);
        }
        assert_eq!(database.expiry.items(), KEYS);
        let (mut gone, mut looks) = (Vec::new(), 0);
        while database.next_due_ms() < i64::MAX {
            let due_ms = database.next_due_ms();
            looks += database.expire_due(due_ms, 16, &hasher, &mut gone, |_| {});
            assert!(database.expiry.items() <= KEYS, "{} items", database.expiry.items());
            assert!(looks <= 3 * KEYS, "{looks} looks");
        }
        assert_eq!((gone.len(), database.len()), (KEYS, 0));
    }

    #[test]
    fn fields_of_many_hashes_go_in_steps() {
        use crate::value::hash::FieldExpiry;
        use crate::value::pages::Given;
        use crate::value::{AnyCollection, Hash as Fields, HashLimits};

        const HASHES: usize = if cfg!(miri) { 3 } else { 64 };
        const FIELDS: usize = 300;
        let (mut shard, hasher) = (Shard::default(), Hasher::new(1));
        let limits = HashLimits { packed_entries: 8, packed_value_len: 8 };
        let database = shard.database_mut(0);
        for key in 0..HASHES {
            let mut hash = Fields::default();
            for field in 0..FIELDS {
                let name = format!("f{field}");
                let at = FieldExpiry::At(NOW_MS + 1);
                hash.set(name.as_bytes(), Given::from(b"v"), at, NOW_MS, &limits, &hasher);
            }
            let (key, value) = (key.to_be_bytes(), NewValue::Collection(AnyCollection::Hash(hash)));
            database.insert(hasher.hash(&key), OwnedEntry::new(&key, value, None, 0), &hasher);
        }
        let (mut gone, mut fields) = (Vec::new(), 0);
        while database.next_due_ms() <= NOW_MS + 100 {
            let mut step = 0;
            database.expire_due(NOW_MS + 100, 64, &hasher, &mut gone, |event| {
                step += usize::from(matches!(event, Reaped::Field(_)));
            });
            assert!(step <= FIELDS_MAX, "{step} fields with the shard held");
            fields += step;
        }
        assert_eq!((fields, gone.len(), database.len()), (HASHES * FIELDS, HASHES, 0));
    }

    #[test]
    fn fields_are_taken_out_of_hashes_and_empty_hashes_with_them() {
        use crate::value::hash::FieldExpiry;
        use crate::value::pages::Given;
        use crate::value::{AnyCollection, Hash as Fields, HashLimits};

        let (mut shard, hasher) = (Shard::default(), Hasher::new(1));
        let limits = HashLimits { packed_entries: 8, packed_value_len: 8 };
        let database = shard.database_mut(0);
        for (key, fields, stays) in [("all", 700, false), ("most", 700, true)] {
            let mut hash = Fields::default();
            for field in 0..fields {
                let (name, at) = (format!("f{field}"), FieldExpiry::At(NOW_MS + field % 7));
                hash.set(name.as_bytes(), Given::from(b"v"), at, NOW_MS, &limits, &hasher);
            }
            if stays {
                hash.set(b"stays", Given::from(b"v"), FieldExpiry::Clear, NOW_MS, &limits, &hasher);
            }
            let value = NewValue::Collection(AnyCollection::Hash(hash));
            let entry = OwnedEntry::new(key.as_bytes(), value, None, 0);
            database.insert(hasher.hash(key.as_bytes()), entry, &hasher);
        }
        assert_eq!(database.volatile(), 0);
        assert!(database.next_due_ms() < i64::MAX);
        let (mut gone, mut reaped, mut fields) = (Vec::new(), Vec::new(), 0);
        let mut expire = |now_ms, gone: &mut Vec<_>| {
            let reaped = |event: Reaped<'_>| match event {
                Reaped::Field(_) => fields += 1,
                Reaped::Hash(key) => reaped.push((key.to_vec(), std::mem::take(&mut fields))),
            };
            database.expire_due(now_ms, 100, &hasher, gone, reaped);
        };
        expire(NOW_MS - 100, &mut gone);
        assert!(gone.is_empty());
        for _ in 0..(2 * 700_usize).div_ceil(FIELDS_MAX) {
            expire(NOW_MS + 100, &mut gone);
        }
        assert_eq!(gone.iter().map(|entry| entry.as_ref().key()).collect::<Vec<_>>(), [b"all"]);
        for key in [&b"all"[..], b"most"] {
            let fields = reaped.iter().filter(|(name, _)| name == key).map(|(_, fields)| fields);
            assert_eq!(fields.sum::<usize>(), 700);
        }
        let place = database.find(hasher.hash(b"most"), b"most").unwrap();
        assert_eq!(database.entry(place).collection::<Fields>().map(Fields::len), Some(1));
        assert_eq!(database.next_due_ms(), i64::MAX);
    }
}
