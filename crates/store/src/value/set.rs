//! A set: integers in an intset, a few short members in a listpack, or other members in a table.

use super::integer::{self, IntegerText};
use super::intset::Intset;
use super::listpack::{EntryFilter, Item, Listpack, ListpackIter, ListpackPosition};
pub use super::pages::Walk;
use super::pages::{self, Given, PREFETCHED, RecordPlace, RecordTable, RecordText, TableRecord};
use crate::hash::Hasher;
use crate::value::{Defragmenter, Encoding};

/// A set in one of its three forms. As in Redis, it changes only to a later form.
#[derive(Clone)]
pub enum Set {
    Integers(Intset),
    Packed(Listpack),
    Table(RecordTable),
}

/// When a set changes its form: `set-max-intset-entries`, `set-max-listpack-entries` and
/// `set-max-listpack-value`.
#[derive(Clone, Copy, Debug)]
pub struct SetLimits {
    pub intset_entries: usize,
    pub packed_entries: usize,
    pub packed_value_len: usize,
}

/// The options' defaults.
impl Default for SetLimits {
    fn default() -> Self {
        Self { intset_entries: 512, packed_entries: 128, packed_value_len: 64 }
    }
}

/// The members, in no particular order.
#[derive(Clone)]
pub enum SetIter<'a> {
    Integers { set: &'a Intset, index: usize },
    Packed { members: ListpackIter<'a>, left: usize },
    Table(pages::RecordIter<'a>),
}

/// Where a member lies. Valid until the set changes.
#[derive(Clone, Copy, Debug)]
pub enum MemberPlace {
    Integer(usize),
    Packed(ListpackPosition),
    Table(RecordPlace),
}

impl Set {
    /// See [`Collection::defragment`](super::Collection::defragment).
    pub(crate) fn defragment(&mut self, from: usize, defragmenter: &mut Defragmenter<'_>) -> usize {
        match self {
            Self::Integers(integers) => integers.defragment(defragmenter),
            Self::Packed(pack) => pack.defragment(defragmenter),
            Self::Table(table) => return table.defragment(from, defragmenter),
        }
        0
    }

    /// An empty set in the form that Redis chooses before it adds `expected` members, of which
    /// `first` is the first.
    pub fn for_members(first: &[u8], expected: usize, limits: &SetLimits) -> Self {
        if integer::parse(first).is_some() && expected <= limits.intset_entries {
            Self::Integers(Intset::new())
        } else if expected <= limits.packed_entries {
            Self::Packed(Listpack::new())
        } else {
            Self::Table(RecordTable::new(false))
        }
    }

    /// A set from a listpack of members. `None`: a member is there twice.
    pub fn from_listpack(members: Listpack, limits: &SetLimits, hasher: &Hasher) -> Option<Self> {
        let fits = members.len() <= limits.packed_entries
            && members.iter().all(|member| member.len() <= limits.packed_value_len);
        if fits {
            return (!members.repeats(1, hasher)).then_some(Self::Packed(members));
        }
        let mut table = RecordTable::new(false);
        let mut room = IntegerText::new(0);
        let mut insert =
            |member: Item<'_>| table.insert_new(member.text(&mut room).into(), None, hasher);
        members.iter().all(&mut insert).then_some(Self::Table(table))
    }

    pub fn from_intset(members: Intset, limits: &SetLimits, hasher: &Hasher) -> Self {
        let len = members.len();
        let mut set = Self::Integers(members);
        if len > limits.intset_entries {
            set.make_table(hasher);
        }
        set
    }

    /// Converts the set to a table if Redis would do so before adding `added` members, even if some
    /// of them exist already.
    fn expect(&mut self, added: usize, limits: &SetLimits, hasher: &Hasher) {
        let packs = match self {
            Self::Table(_) => true,
            Self::Packed(_) => added <= limits.packed_entries,
            Self::Integers(_) => added <= limits.intset_entries,
        };
        if !packs {
            self.make_table(hasher);
        }
    }

    /// Prefetches members, see [`RecordTable::prefetch`].
    #[inline]
    pub fn prefetch(&self, members: &[&[u8]], hasher: &Hasher) {
        if let Self::Table(table) = self {
            table.prefetch(members.iter().copied(), hasher);
        }
    }

    /// Adds members. Returns how many of them were new. The set is in the form that Redis chooses
    /// for that number, even if some are the same.
    pub fn insert_all(&mut self, members: &[&[u8]], limits: &SetLimits, hasher: &Hasher) -> usize {
        match members.first() {
            Some(first) if self.is_empty() => {
                *self = Self::for_members(first, members.len(), limits);
            }
            _ => self.expect(members.len(), limits, hasher),
        }
        let mut filter = match self {
            Self::Packed(pack) => EntryFilter::of(pack, 1, members.len(), hasher),
            _ => EntryFilter::unused(hasher),
        };
        let mut added = 0;
        for members in members.chunks(PREFETCHED) {
            self.prefetch(members, hasher);
            for member in members {
                let is_absent = !filter.add(member);
                if is_absent {
                    self.insert_absent(member, limits, hasher);
                }
                added += usize::from(is_absent || self.insert(member, limits, hasher));
            }
        }
        added
    }

    /// Adds a member. Returns whether it was new.
    pub fn insert(&mut self, member: &[u8], limits: &SetLimits, hasher: &Hasher) -> bool {
        match self {
            Self::Table(table) => table.insert_new(Given::Bytes(member), None, hasher),
            Self::Packed(pack) => {
                let is_new = pack.find(member, 1).is_none();
                if is_new {
                    self.insert_absent(member, limits, hasher);
                }
                is_new
            }
            Self::Integers(integers) => match integer::parse(member) {
                Some(value) => {
                    let added = integers.insert(value);
                    if added && integers.len() > limits.intset_entries.min(Intset::LEN_MAX - 1) {
                        self.make_table(hasher);
                    }
                    added
                }
                None => {
                    self.leave_integers(member, limits, hasher);
                    self.insert(member, limits, hasher)
                }
            },
        }
    }

    /// Adds a member that does not exist, without looking for it.
    pub fn insert_absent(&mut self, member: &[u8], limits: &SetLimits, hasher: &Hasher) {
        match self {
            Self::Table(table) => table.insert_absent(Given::Bytes(member), None, hasher),
            Self::Packed(pack) => {
                if pack.len() < limits.packed_entries
                    && member.len() <= limits.packed_value_len
                    && pack.has_room(1, member.len())
                {
                    pack.push_back(member);
                } else {
                    self.make_table(hasher);
                    self.insert_absent(member, limits, hasher);
                }
            }
            Self::Integers(_) => {
                self.insert(member, limits, hasher);
            }
        }
    }

    /// Removes a member. Returns whether it existed.
    pub fn remove(&mut self, member: &[u8], hasher: &Hasher) -> bool {
        match self {
            Self::Table(table) => table.remove(member, hasher),
            Self::Packed(pack) => match pack.find(member, 1) {
                Some(position) => {
                    pack.remove(position);
                    true
                }
                None => false,
            },
            Self::Integers(integers) => {
                integer::parse(member).is_some_and(|value| integers.remove(value))
            }
        }
    }

    pub fn remove_at(&mut self, spot: MemberPlace, hasher: &Hasher) {
        match (self, spot) {
            (Self::Table(table), MemberPlace::Table(place)) => table.remove_at(place, hasher),
            (Self::Packed(pack), MemberPlace::Packed(position)) => {
                pack.remove(position);
            }
            (Self::Integers(integers), MemberPlace::Integer(index)) => integers.remove_at(index),
            (set, spot) => unreachable!("{spot:?} in a set that is {:?}", set.encoding()),
        }
    }

    pub fn contains(&self, member: &[u8], hasher: &Hasher) -> bool {
        match self {
            Self::Table(table) => table.find(member, hasher).is_some(),
            Self::Packed(pack) => pack.find(member, 1).is_some(),
            Self::Integers(integers) => {
                integer::parse(member).is_some_and(|value| integers.contains(value))
            }
        }
    }

    /// Calls `visit` with what [`Self::contains`] returns for each member.
    pub fn contains_all(&self, members: &[&[u8]], hasher: &Hasher, mut visit: impl FnMut(bool)) {
        for members in members.chunks(PREFETCHED) {
            self.prefetch(members, hasher);
            members.iter().for_each(|member| visit(self.contains(member, hasher)));
        }
    }

    /// Whether the set contains a member of another set.
    pub fn contains_item(&self, member: Item<'_>, hasher: &Hasher) -> bool {
        match (self, member) {
            (Self::Integers(integers), Item::Integer(value)) => integers.contains(value),
            (Self::Packed(pack), member) => pack.find(member, 1).is_some(),
            (_, member) => self.contains(member.text(&mut IntegerText::new(0)), hasher),
        }
    }

    /// Where the member with this index lies: a number below `len()`, in no particular order.
    /// Evenly random indices give evenly random members.
    pub fn nth(&self, index: usize) -> Option<MemberPlace> {
        match self {
            Self::Table(table) => table.nth(index).map(MemberPlace::Table),
            Self::Packed(pack) => pack.position(index).map(MemberPlace::Packed),
            Self::Integers(integers) => {
                (index < integers.len()).then_some(MemberPlace::Integer(index))
            }
        }
    }

    /// Where all members lie, by index, if `nth` walks to each of them; else nothing.
    pub fn places(&self) -> Vec<MemberPlace> {
        match self {
            Self::Packed(pack) => pack.positions(1).map(MemberPlace::Packed).collect(),
            Self::Table(_) | Self::Integers(_) => Vec::new(),
        }
    }

    /// The member at a place.
    pub fn member(&self, spot: MemberPlace) -> Item<'_> {
        match (self, spot) {
            (Self::Table(table), MemberPlace::Table(place)) => item(table.record(place).key),
            (Self::Packed(pack), MemberPlace::Packed(position)) => pack.item(position),
            (Self::Integers(integers), MemberPlace::Integer(index)) => {
                Item::Integer(integers.get(index).expect("the set has not changed since"))
            }
            (set, spot) => unreachable!("{spot:?} in a set that is {:?}", set.encoding()),
        }
    }

    pub fn iter(&self) -> SetIter<'_> {
        match self {
            Self::Table(table) => SetIter::Table(table.iter()),
            Self::Packed(pack) => SetIter::Packed { members: pack.iter(), left: pack.len() },
            Self::Integers(integers) => SetIter::Integers { set: integers, index: 0 },
        }
    }

    /// Calls `f` with at least `count` members from a cursor on (0 at first), or with all that are
    /// left. Returns the next cursor, 0 at the end. A small set is visited at once.
    pub fn scan(
        &self,
        cursor: u64,
        count: usize,
        hasher: &Hasher,
        mut f: impl FnMut(Item<'_>),
    ) -> u64 {
        match self {
            Self::Table(table) => {
                table.scan(cursor, count, hasher, |record: TableRecord<'_>| f(item(record.key)))
            }
            _ => {
                self.iter().for_each(f);
                0
            }
        }
    }

    /// Calls `f` with up to `limit` members from a place on. Returns the next place; `None` at the
    /// end. Used to walk in steps over a set that does not change.
    pub fn walk(&self, from: Walk, limit: usize, mut f: impl FnMut(Item<'_>)) -> Option<Walk> {
        match self {
            Self::Table(table) => table.walk(from, limit, |record| f(item(record.key))),
            _ => {
                self.iter().for_each(f);
                None
            }
        }
    }

    /// Whether one is a clone of the other, and neither has changed since. Small sets are compared.
    pub fn is_same(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Integers(one), Self::Integers(other)) => one.as_bytes() == other.as_bytes(),
            (Self::Packed(one), Self::Packed(other)) => one == other,
            (Self::Table(one), Self::Table(other)) => one.is_same(other),
            _ => false,
        }
    }

    pub fn len(&self) -> usize {
        match self {
            Self::Table(table) => table.len(),
            Self::Packed(pack) => pack.len(),
            Self::Integers(integers) => integers.len(),
        }
    }

    pub fn is_empty(&self) -> bool {
        match self {
            Self::Table(table) => table.is_empty(),
            Self::Packed(pack) => pack.is_empty(),
            Self::Integers(integers) => integers.is_empty(),
        }
    }

    pub const fn encoding(&self) -> Encoding {
        match self {
            Self::Table(_) => Encoding::Hashtable,
            Self::Packed(_) => Encoding::Listpack,
            Self::Integers(_) => Encoding::Intset,
        }
    }

    /// Bytes of memory, without those in the entry.
    pub fn memory(&self) -> usize {
        match self {
            Self::Table(table) => table.memory(),
            Self::Packed(pack) => pack.memory(),
            Self::Integers(integers) => integers.memory(),
        }
    }

    /// How many blocks of memory it has, approximately.
    pub fn free_effort(&self) -> usize {
        match self {
            Self::Table(table) => table.free_effort(),
            _ => 1,
        }
    }

    /// Converts a set of integers that gets another kind of member: to a packed set, if that is
    /// allowed.
    fn leave_integers(&mut self, member: &[u8], limits: &SetLimits, hasher: &Hasher) {
        let Self::Integers(integers) = self else { return };
        let (first, last) = (integers.get(0), integers.iter().next_back());
        let widest = [first, last].into_iter().flatten().map(integer::text_len).max();
        let packs = integers.len() < limits.packed_entries
            && Listpack::new().has_room(integers.len() + 1, integers.memory() + member.len())
            && member.len() <= limits.packed_value_len
            && widest.unwrap_or(0) <= limits.packed_value_len;
        if !packs {
            return self.make_table(hasher);
        }
        let mut pack = Listpack::new();
        pack.append_many(integers.iter());
        *self = Self::Packed(pack);
    }

    /// Turns it into a table.
    pub fn make_table(&mut self, hasher: &Hasher) {
        let mut table = RecordTable::new(false);
        let mut room = IntegerText::new(0);
        for member in self.iter() {
            table.insert_absent(member.text(&mut room).into(), None, hasher);
        }
        *self = Self::Table(table);
    }
}

impl Default for Set {
    fn default() -> Self {
        Self::Integers(Intset::new())
    }
}

impl std::fmt::Debug for Set {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_set().entries(self.iter()).finish()
    }
}

impl<'a> Iterator for SetIter<'a> {
    type Item = Item<'a>;

    #[inline]
    fn next(&mut self) -> Option<Item<'a>> {
        match self {
            Self::Table(records) => records.next().map(|record| item(record.key)),
            Self::Packed { members, left } => {
                *left = left.saturating_sub(1);
                members.next()
            }
            Self::Integers { set, index } => {
                let value = set.get(*index)?;
                *index += 1;
                Some(Item::Integer(value))
            }
        }
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        let left = match self {
            Self::Table(records) => records.len(),
            Self::Packed { left, .. } => *left,
            Self::Integers { set, index } => set.len() - index,
        };
        (left, Some(left))
    }
}

impl ExactSizeIterator for SetIter<'_> {}

fn item(text: RecordText<'_>) -> Item<'_> {
    match text {
        RecordText::Inline(bytes) => Item::Bytes(bytes),
        RecordText::Outside(outside) => Item::Bytes(outside.bytes()),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    const LIMITS: SetLimits =
        SetLimits { intset_entries: 16, packed_entries: 8, packed_value_len: 12 };

    fn contents(set: &Set) -> BTreeSet<Vec<u8>> {
        let members: Vec<_> = set.iter().map(Item::to_vec).collect();
        let contents: BTreeSet<_> = members.iter().cloned().collect();
        assert_eq!(contents.len(), members.len());
        contents
    }

    #[test]
    fn forms_follow_the_limits() {
        let hasher = Hasher::new(1);
        let mut set = Set::default();
        for value in 0..16 {
            set.insert(value.to_string().as_bytes(), &LIMITS, &hasher);
        }
        assert_eq!(set.encoding(), Encoding::Intset);
        let mut packed = set.clone();
        set.insert(b"16", &LIMITS, &hasher);
        assert_eq!((set.encoding(), set.len()), (Encoding::Hashtable, 17));
        packed.insert(b"x", &LIMITS, &hasher);
        assert_eq!((packed.encoding(), packed.len()), (Encoding::Hashtable, 17));
        let mut set = Set::default();
        for member in ["1", "2", "x", "y", "z", "a", "b", "c"] {
            set.insert(member.as_bytes(), &LIMITS, &hasher);
        }
        assert_eq!((set.encoding(), set.len()), (Encoding::Listpack, 8));
        set.insert(b"d", &LIMITS, &hasher);
        assert_eq!((set.encoding(), set.len()), (Encoding::Hashtable, 9));
        let mut set = Set::default();
        set.insert(&[b'x'; 13], &LIMITS, &hasher);
        assert_eq!(set.encoding(), Encoding::Hashtable);
    }

    proptest! {
        #![proptest_config(ProptestConfig {
            cases: if cfg!(miri) { 2 } else { 128 },
            failure_persistence: None,
            ..ProptestConfig::default()
        })]

        #[test]
        fn behaves_like_a_set(changes in prop::collection::vec(
            (prop_oneof![
                (0i64..40).prop_map(|value| value.to_string().into_bytes()),
                "[a-z]{1,2}".prop_map(String::into_bytes),
                "[0-9a-z]{1,20}".prop_map(String::into_bytes),
            ], 0..5), 0..if cfg!(miri) { 40 } else { 120 },
        )) {
            let hasher = Hasher::new(7);
            let (mut set, mut model) = (Set::default(), BTreeSet::new());
            for (member, what) in changes {
                let (before, model_before) = (set.clone(), model.clone());
                match what {
                    0 => prop_assert_eq!(set.remove(&member, &hasher), model.remove(&member)),
                    1 => if let Some(spot) = set.nth(member.len() % set.len().max(1)) {
                        let member = set.member(spot).to_vec();
                        prop_assert!(set.contains_item(Item::from(&member), &hasher));
                        set.remove_at(spot, &hasher);
                        prop_assert!(model.remove(&member));
                    }
                    2 if !set.contains(&member, &hasher) => {
                        set.insert_absent(&member, &LIMITS, &hasher);
                        prop_assert!(model.insert(member.clone()));
                    }
                    _ => {
                        let added = set.insert(&member, &LIMITS, &hasher);
                        prop_assert_eq!(added, model.insert(member.clone()));
                        prop_assert!(set.contains(&member, &hasher));
                    }
                }
                prop_assert_eq!(set.len(), model.len());
                prop_assert_eq!(contents(&set), model.clone());
                prop_assert_eq!(contents(&before), model_before);
            }
        }
    }
}
