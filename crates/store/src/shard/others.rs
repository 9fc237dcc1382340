//! A shard's parts of the databases from 1 on, as far as they are used.
//!
//! They lie side by side in the order of their numbers. So a walk over a shard reads memory in
//! order, however many databases there are, and a number that is not used takes no memory.
//!
//! Two things are put off until a database is reached for a change, because the moment at which
//! they are decided must be short:
//!
//! - A cut that begins notes here which databases belong to it. A database gets its own [`CutPart`]
//!   only if it is changed, or walked in several steps.
//! - When the next key expires is known for the databases together. Only the one that was reached
//!   last may know of an earlier time.

use super::{CutHandle, CutPart, Database, Piece};
use crate::hash::Hasher;

/// Databases by number, which is never 0. They are never empty for long: see `Shard::trim`.
pub(crate) struct Others {
    all: Vec<Other>,
    /// The cut that databases which wait for their part belong to, and how many those are.
    cut: Option<(CutPart, usize)>,
    /// The index of the database that was reached last, or `NOWHERE`.
    recent: usize,
    /// No key or field of the other databases is due before that time (Unix ms).
    due_ms: i64,
}

/// One database from 1 on.
struct Other {
    number: u32,
    /// Whether it belongs to the cut in `Others` and has no part of its own yet. Then no entry of
    /// it is marked, and none changed since the cut.
    waits: bool,
    database: Database,
}

/// The number costs no memory beyond its word.
const _: () = assert!(size_of::<Other>() == size_of::<Database>() + 8);

impl Default for Others {
    fn default() -> Self {
        Self { all: Vec::new(), cut: None, recent: NOWHERE, due_ms: i64::MAX }
    }
}

impl Others {
    pub(super) fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// The number of keys in all of them.
    pub(super) fn keys(&self) -> usize {
        self.iter().map(|(_, database)| database.len()).sum()
    }

    #[inline]
    pub(super) fn database(&self, number: u32) -> Option<&Database> {
        Some(&self.all[self.find(number).ok()?].database)
    }

    /// All of them with their numbers, in that order.
    pub(super) fn iter(&self) -> impl Iterator<Item = (u32, &Database)> {
        self.all.iter().map(|other| (other.number, &other.database))
    }

    /// Those from a number on.
    pub(super) fn iter_from(&self, number: u32) -> impl Iterator<Item = (u32, &Database)> {
        let (Ok(at) | Err(at)) = self.find(number);
        self.all[at..].iter().map(|other| (other.number, &other.database))
    }

    /// The database, for removing something. `None`: it is not used.
    #[inline]
    pub(super) fn used_mut(&mut self, number: u32) -> Option<&mut Database> {
        let at = self.find(number).ok()?;
        Some(self.reach(at))
    }

    /// The database. It is made if it is not used yet.
    #[inline]
    pub(super) fn database_mut(&mut self, number: u32) -> &mut Database {
        match self.find(number) {
            Ok(at) => self.reach(at),
            Err(at) => self.insert(at, number, Database::default()),
        }
    }

    #[inline]
    fn find(&self, number: u32) -> Result<usize, usize> {
        self.all.binary_search_by_key(&number, |other| other.number)
    }

    /// Prepares a database for changes.
    #[inline]
    fn reach(&mut self, at: usize) -> &mut Database {
        if self.recent != at {
            self.leave_recent();
            self.recent = at;
        }
        if self.all[at].waits {
            self.join_late(at);
        }
        &mut self.all[at].database
    }

    /// Notes when the keys of the database that was reached last are due, as another one follows.
    fn leave_recent(&mut self) {
        self.due_ms = self.next_due_ms();
        self.recent = NOWHERE;
    }

    /// A time (Unix ms) before which no key or field is due. After keys were removed or their
    /// expiry was moved back, it may be too early, until `look_when_due`.
    #[inline]
    pub(super) fn next_due_ms(&self) -> i64 {
        let recent =
            self.all.get(self.recent).map_or(i64::MAX, |recent| recent.database.next_due_ms());
        self.due_ms.min(recent)
    }

    /// Looks at every database to learn when the next key or field is due.
    pub(super) fn look_when_due(&mut self) {
        let due_ms = self.all.iter().map(|other| other.database.next_due_ms()).min();
        (self.due_ms, self.recent) = (due_ms.unwrap_or(i64::MAX), NOWHERE);
    }

    #[cold]
    fn insert(&mut self, at: usize, number: u32, database: Database) -> &mut Database {
        self.leave_recent();
        if self.all.len() == self.all.capacity() {
            // Doubling would leave much unused, and most shards have one such database or none.
            self.all.reserve_exact(1 + self.all.len() / 4);
        }
        self.all.insert(at, Other { number, waits: false, database });
        self.recent = at;
        &mut self.all[at].database
    }

    /// Removes a database with its keys. If it belongs to a cut, it has its part.
    pub(super) fn take(&mut self, number: u32) -> Option<Database> {
        let at = self.find(number).ok()?;
        self.reach(at);
        self.leave_recent();
        let taken = self.all.remove(at).database;
        self.shrink();
        Some(taken)
    }

    /// Exchanges the contents of two databases. Each that belongs to a cut keeps its part.
    pub(super) fn swap(&mut self, a: u32, b: u32) {
        let (at_a, at_b) = (self.find(a), self.find(b));
        for at in [at_a, at_b].into_iter().flatten() {
            self.reach(at);
        }
        self.leave_recent();
        match (at_a, at_b) {
            (Ok(at_a), Ok(at_b)) => {
                let taken = std::mem::take(&mut self.all[at_a].database);
                let taken = std::mem::replace(&mut self.all[at_b].database, taken);
                self.all[at_a].database = taken;
            }
            (Ok(from), Err(to)) => self.renumber(from, to, b),
            (Err(to), Ok(from)) => self.renumber(from, to, a),
            (Err(_), Err(_)) => {}
        }
    }

    /// Gives a database another number, which belongs before the one at `to`.
    fn renumber(&mut self, from: usize, to: usize, number: u32) {
        self.all[from].number = number;
        if from < to {
            self.all[from..to].rotate_left(1);
        } else {
            self.all[to..=from].rotate_right(1);
        }
    }

    /// Frees the memory of databases without keys.
    pub(super) fn trim(&mut self) {
        self.leave_recent();
        self.all.retain(|other| !other.database.is_empty());
        self.shrink();
    }

    fn shrink(&mut self) {
        if self.all.len() < self.all.capacity() / 4 {
            self.all.shrink_to(self.all.len() * 2);
        }
    }

    /// Bytes of memory for everything but the entries.
    pub(super) fn overhead(&self) -> usize {
        let databases: usize = self.all.iter().map(|other| other.database.overhead()).sum();
        size_of::<Self>() + self.all.capacity() * size_of::<Other>() + databases
    }

    /// Makes all keys part of a cut. Calls `each` with each database that has keys, and with its
    /// index and number. `part` is the shard's part of a database, whichever it is.
    pub(super) fn join_cut(&mut self, part: CutPart, mut each: impl FnMut(usize, u32, &Database)) {
        if let Some((former, _)) = self.cut.take() {
            former.handle().abort();
        }
        let mut waiting = 0;
        for (at, Other { number, waits, database }) in self.all.iter_mut().enumerate() {
            *waits = !database.is_empty();
            if *waits {
                database.leave_cut();
                waiting += 1;
                each(at, *number, database);
            }
        }
        self.cut = (waiting > 0).then_some((part, waiting));
    }

    /// Gives a database that waits for it its part of the cut.
    #[cold]
    fn join_late(&mut self, at: usize) {
        if let Some(part) = self.part_of_waiting(at) {
            self.all[at].database.join_cut(part);
        }
        self.wait_no_more(at);
    }

    fn part_of_waiting(&self, at: usize) -> Option<CutPart> {
        self.cut.as_ref().map(|(part, _)| part.of_database(self.all[at].number))
    }

    fn wait_no_more(&mut self, at: usize) {
        self.all[at].waits = false;
        if let Some((_, waiting)) = &mut self.cut {
            *waiting -= 1;
            self.cut.take_if(|(_, waiting)| *waiting == 0);
        }
    }

    /// Whether any database belongs to a cut. Returns that cut.
    pub(super) fn cut(&self) -> Option<CutHandle> {
        let waiting = self.cut.iter().map(|(part, _)| part);
        let joined = self.all.iter().filter_map(|other| other.database.expiry.cut());
        waiting.chain(joined).next().map(CutPart::handle)
    }

    /// Does what `Database::walk_cut` does, for the database that had this number when the cut
    /// began, and probably lies at this index. `None`: none of these is that database.
    pub(super) fn walk_cut(
        &mut self,
        (number, near): (u32, usize),
        cut: &CutHandle,
        limit: usize,
        hasher: &Hasher,
        out: &mut Vec<Piece>,
    ) -> Option<bool> {
        let is_near = self.all.get(near).is_some_and(|other| other.number == number);
        let found = if is_near { Some(near) } else { self.find(number).ok() };
        if let Some(at) = found.filter(|&at| self.all[at].waits) {
            let part = self.part_of_waiting(at).filter(|part| part.is(number, cut))?;
            let database = &self.all[at].database;
            if database.len() <= limit.saturating_sub(out.len()) {
                out.extend(database.table.iter().filter_map(|entry| part.piece(entry)));
                self.wait_no_more(at);
                return Some(true);
            }
            return Some(self.reach(at).walk_cut(limit, hasher, out));
        }
        let is_it = |other: &Other| other.database.is_part_of_cut(number, cut);
        // Only a database that was exchanged is elsewhere.
        let found =
            found.filter(|&at| is_it(&self.all[at])).or_else(|| self.all.iter().position(is_it))?;
        Some(self.all[found].database.walk_cut(limit, hasher, out))
    }

    /// Gives the databases up. Those that belong to a cut have their parts.
    pub(super) fn into_databases(self) -> IntoDatabases {
        IntoDatabases { all: self.all.into_iter(), part: self.cut.map(|(part, _)| part) }
    }
}

/// The databases that a shard has given up.
#[derive(Default)]
pub(super) struct IntoDatabases {
    all: std::vec::IntoIter<Other>,
    part: Option<CutPart>,
}

impl Iterator for IntoDatabases {
    type Item = Database;

    fn next(&mut self) -> Option<Database> {
        let Other { number, waits, mut database } = self.all.next()?;
        if let Some(part) = self.part.as_ref().filter(|_| waits) {
            database.join_cut(part.of_database(number));
        }
        Some(database)
    }
}

/// What `recent` is if no database was reached since the list changed.
const NOWHERE: usize = usize::MAX;
