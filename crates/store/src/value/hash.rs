//! A hash: a few short fields in a listpack, or more in a table. Only a table has fields that
//! expire.

use super::integer::IntegerText;
use super::listpack::{EntryFilter, Item, Listpack, ListpackIter, ListpackPosition};
pub use super::pages::Walk;
use super::pages::{
    self, Given, NEVER, Outside, PREFETCHED, RecordPlace, RecordTable, RecordText, TableRecord,
};
use crate::hash::Hasher;
use crate::value::{Defragmenter, Encoding, SharedString};

/// A hash in one of its two forms. As in Redis, a table never becomes packed again.
///
/// Expired fields stay until they are removed, and count in `len`. A caller that reads fields
/// passes the time and does not see expired ones.
#[derive(Clone)]
pub enum Hash {
    /// Field, value, field, value ...
    Packed(Listpack),
    Table(RecordTable),
}

/// When a hash becomes a table: `hash-max-listpack-entries` and `hash-max-listpack-value`.
#[derive(Clone, Copy, Debug)]
pub struct HashLimits {
    pub packed_entries: usize,
    pub packed_value_len: usize,
}

/// The options' defaults.
impl Default for HashLimits {
    fn default() -> Self {
        Self { packed_entries: 512, packed_value_len: 64 }
    }
}

/// The value of a field.
#[derive(Clone, Copy, Debug)]
pub enum FieldValue<'a> {
    Item(Item<'a>),
    /// A long value, which may be shared.
    Outside(Outside<'a>),
}

/// A field that was found.
#[derive(Clone, Copy, Debug)]
pub struct HashField<'a> {
    pub name: Item<'a>,
    pub value: FieldValue<'a>,
    /// When it expires, in Unix milliseconds.
    pub expire_ms: Option<i64>,
}

/// What setting a field does with its expiry.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FieldExpiry {
    Keep,
    Clear,
    /// Unix milliseconds.
    At(i64),
}

/// The fields in no particular order, including expired ones.
#[derive(Clone)]
pub enum HashIter<'a> {
    Packed { fields: ListpackIter<'a>, left: usize },
    Table(pages::RecordIter<'a>),
}

/// Where a field lies. Valid until the hash changes.
#[derive(Clone, Copy, Debug)]
pub enum FieldPlace {
    Packed(ListpackPosition),
    Table(RecordPlace),
}

impl Hash {
    /// See [`Collection::defragment`](super::Collection::defragment).
    pub(crate) fn defragment(&mut self, from: usize, defragmenter: &mut Defragmenter<'_>) -> usize {
        match self {
            Self::Packed(pack) => pack.defragment(defragmenter),
            Self::Table(table) => return table.defragment(from, defragmenter),
        }
        0
    }

    /// A hash from a listpack of fields and values. `None`: the number of entries is odd, or a
    /// field is there twice.
    pub fn from_listpack(fields: Listpack, limits: &HashLimits, hasher: &Hasher) -> Option<Self> {
        let len = fields.len();
        if !len.is_multiple_of(2) {
            return None;
        }
        let fits = len / 2 <= limits.packed_entries
            && fields.iter().all(|item| item.len() <= limits.packed_value_len);
        if fits {
            return (!fields.repeats(2, hasher)).then_some(Self::Packed(fields));
        }
        let table = table_of(&fields, hasher);
        (table.len() == len / 2).then_some(Self::Table(table))
    }

    /// Prefetches fields, see [`RecordTable::prefetch`].
    #[inline]
    pub fn prefetch<'k>(&self, names: impl ExactSizeIterator<Item = &'k [u8]>, hasher: &Hasher) {
        if let Self::Table(table) = self {
            table.prefetch(names, hasher);
        }
    }

    /// Sets a field's value. Returns whether the field is new. An expired field counts as new, and
    /// its expiry is never kept.
    pub fn set(
        &mut self,
        name: &[u8],
        value: Given<'_>,
        expiry: FieldExpiry,
        now_ms: i64,
        limits: &HashLimits,
        hasher: &Hasher,
    ) -> bool {
        self.set_all(std::iter::once((name, value)), expiry, now_ms, limits, hasher) == 1
    }

    /// Sets the values of fields, as [`Self::set`] does. Returns how many of them are new. If a
    /// packed hash cannot have as many fields, it becomes a table first, as in Redis, even if some
    /// of them are the same.
    pub fn set_all<'a>(
        &mut self,
        mut pairs: impl ExactSizeIterator<Item = (&'a [u8], Given<'a>)> + Clone,
        expiry: FieldExpiry,
        now_ms: i64,
        limits: &HashLimits,
        hasher: &Hasher,
    ) -> usize {
        if pairs.len() > limits.packed_entries || matches!(expiry, FieldExpiry::At(_)) {
            self.make_table(hasher);
        }
        let mut filter = match self {
            Self::Packed(pack) => EntryFilter::of(pack, 2, pairs.len(), hasher),
            Self::Table(_) => EntryFilter::unused(hasher),
        };
        let (mut added, mut near) = (0, ListpackPosition::default());
        for index in 0_usize.. {
            if index.is_multiple_of(PREFETCHED) {
                self.prefetch(pairs.clone().take(PREFETCHED).map(|(name, _)| name), hasher);
            }
            let Some((name, value)) = pairs.next() else { break };
            let is_absent = !filter.add(name);
            let is_new = if let Self::Packed(pack) = self
                && let Some(is_new) = set_packed(pack, (name, value), is_absent, &mut near, limits)
            {
                is_new
            } else {
                self.make_table(hasher);
                self.set_in_table(name, value, expiry, now_ms, hasher)
            };
            added += usize::from(is_new);
        }
        added
    }

    fn set_in_table(
        &mut self,
        name: &[u8],
        value: Given<'_>,
        expiry: FieldExpiry,
        now_ms: i64,
        hasher: &Hasher,
    ) -> bool {
        let Self::Table(table) = self else { unreachable!("the caller made a table") };
        let found = match expiry {
            FieldExpiry::At(expire_ms) => {
                let is_live = !table.has_expiring()
                    || table
                        .find(name, hasher)
                        .is_some_and(|place| is_live(table.record(place).expire_ms, now_ms));
                let added = table.set(Given::Bytes(name), Some(value), Some(expire_ms), hasher);
                return added || !is_live;
            }
            _ if !table.has_expiring() => None,
            _ => table.find(name, hasher).map(|place| table.record(place).expire_ms),
        };
        let was_dead = found.is_some_and(|expire_ms| !is_live(expire_ms, now_ms));
        let kept = if expiry == FieldExpiry::Keep && !was_dead { found.flatten() } else { None };
        table.set(Given::Bytes(name), Some(value), kept, hasher) || was_dead
    }

    /// Removes a field. Returns whether a live field was there. As in Redis, an expired one stays.
    pub fn remove(&mut self, name: &[u8], now_ms: i64, hasher: &Hasher) -> bool {
        match self {
            Self::Packed(pack) => match pack.find(name, 2) {
                Some(position) => {
                    pack.remove_from(position, 2);
                    true
                }
                None => false,
            },
            Self::Table(table) => {
                let Some(place) = table.find(name, hasher) else { return false };
                let live = is_live(table.record(place).expire_ms, now_ms);
                if live {
                    table.remove_at(place, hasher);
                }
                live
            }
        }
    }

    /// Sets or removes the expiry of an existing field. An expiry turns a packed hash into a table.
    pub fn set_expiry(&mut self, name: &[u8], expire_ms: Option<i64>, hasher: &Hasher) {
        if let Self::Packed(_) = self {
            if expire_ms.is_none() {
                return;
            }
            self.make_table(hasher);
        }
        if let Self::Table(table) = self
            && let Some(place) = table.find(name, hasher)
        {
            table.set_expiry(place, expire_ms);
        }
    }

    /// Removes up to `limit` fields that have expired by `now_ms`, and calls `f` with each name
    /// before. Returns how many there were.
    pub fn remove_expired(
        &mut self,
        now_ms: i64,
        limit: usize,
        hasher: &Hasher,
        mut f: impl FnMut(&[u8]),
    ) -> usize {
        match self {
            Self::Packed(_) => 0,
            Self::Table(table) => {
                table.remove_expired(now_ms, limit, hasher, |record| f(record.key.bytes()))
            }
        }
    }

    /// The field of this name, if it has not expired.
    #[inline]
    pub fn get(&self, name: &[u8], now_ms: i64, hasher: &Hasher) -> Option<HashField<'_>> {
        match self {
            Self::Packed(pack) => {
                let position = pack.find(name, 2)?;
                Some(packed_field(pack, position))
            }
            Self::Table(table) => {
                let field = table_field(table.record(table.find(name, hasher)?));
                is_live(field.expire_ms, now_ms).then_some(field)
            }
        }
    }

    /// Calls `visit` with each name and what [`Self::get`] returns for it. It is quick for names
    /// that come in the order in which their fields were added.
    pub fn get_all<'k>(
        &self,
        names: &[&'k [u8]],
        now_ms: i64,
        hasher: &Hasher,
        mut visit: impl FnMut(&'k [u8], Option<HashField<'_>>),
    ) {
        let mut near = ListpackPosition::default();
        for (index, &name) in names.iter().enumerate() {
            if index.is_multiple_of(PREFETCHED) {
                self.prefetch(names[index..].iter().take(PREFETCHED).copied(), hasher);
            }
            let field = match self {
                Self::Packed(pack) => pack.find_near(near, name, 2).map(|position| {
                    near = pack.after(pack.after(position));
                    packed_field(pack, position)
                }),
                Self::Table(_) => self.get(name, now_ms, hasher),
            };
            visit(name, field);
        }
    }

    pub fn contains(&self, name: &[u8], now_ms: i64, hasher: &Hasher) -> bool {
        self.get(name, now_ms, hasher).is_some()
    }

    /// Where the field with this index lies: a number below `len()`, in no particular order. Evenly
    /// random indices give evenly random fields, including expired ones.
    pub fn nth(&self, index: usize) -> Option<FieldPlace> {
        match self {
            Self::Packed(pack) => pack.position(index.checked_mul(2)?).map(FieldPlace::Packed),
            Self::Table(table) => table.nth(index).map(FieldPlace::Table),
        }
    }

    /// Where all fields lie, by index, if `nth` walks to each of them; else nothing.
    pub fn places(&self) -> Vec<FieldPlace> {
        match self {
            Self::Packed(pack) => pack.positions(2).map(FieldPlace::Packed).collect(),
            Self::Table(_) => Vec::new(),
        }
    }

    /// The field at a place.
    pub fn field(&self, spot: FieldPlace) -> HashField<'_> {
        match (self, spot) {
            (Self::Packed(pack), FieldPlace::Packed(position)) => packed_field(pack, position),
            (Self::Table(table), FieldPlace::Table(place)) => table_field(table.record(place)),
            (hash, spot) => unreachable!("{spot:?} in a hash that is {:?}", hash.encoding()),
        }
    }

    pub fn iter(&self) -> HashIter<'_> {
        match self {
            Self::Packed(pack) => HashIter::Packed { fields: pack.iter(), left: pack.len() / 2 },
            Self::Table(table) => HashIter::Table(table.iter()),
        }
    }

    /// The fields that have not expired.
    pub fn live(&self, now_ms: i64) -> impl Iterator<Item = HashField<'_>> + Clone {
        self.iter().filter(move |field| is_live(field.expire_ms, now_ms))
    }

    /// Calls `f` with at least `count` live fields from a cursor on (0 at first), or with all that
    /// are left. Returns the next cursor, 0 at the end. A packed hash is visited at once.
    pub fn scan(
        &self,
        cursor: u64,
        count: usize,
        now_ms: i64,
        hasher: &Hasher,
        mut f: impl FnMut(HashField<'_>),
    ) -> u64 {
        match self {
            Self::Packed(_) => {
                self.iter().for_each(f);
                0
            }
            Self::Table(table) => table.scan(cursor, count, hasher, |record| {
                if is_live(record.expire_ms, now_ms) {
                    f(table_field(record));
                }
            }),
        }
    }

    /// Calls `f` with up to `limit` fields from a place on, including expired ones. Returns the
    /// next place; `None` at the end. Used to walk in steps over a hash that does not change.
    pub fn walk(&self, from: Walk, limit: usize, mut f: impl FnMut(HashField<'_>)) -> Option<Walk> {
        match self {
            Self::Packed(_) => {
                self.iter().for_each(f);
                None
            }
            Self::Table(table) => table.walk(from, limit, |record| f(table_field(record))),
        }
    }

    /// Whether a field may have expired by this time.
    pub fn may_have_expired(&self, now_ms: i64) -> bool {
        self.hint_ms() <= now_ms
    }

    /// How many fields there are, including expired ones.
    #[inline]
    pub fn len(&self) -> usize {
        match self {
            Self::Packed(pack) => pack.len() / 2,
            Self::Table(table) => table.len(),
        }
    }

    pub fn is_empty(&self) -> bool {
        match self {
            Self::Packed(pack) => pack.is_empty(),
            Self::Table(table) => table.is_empty(),
        }
    }

    /// Whether a field has an expiry.
    #[inline]
    pub fn has_expiring(&self) -> bool {
        match self {
            Self::Packed(_) => false,
            Self::Table(table) => table.has_expiring(),
        }
    }

    /// A time (Unix ms) before which no field expires; `None` if no field has an expiry. None need
    /// expire exactly then.
    #[inline]
    pub fn earliest_ms(&self) -> Option<i64> {
        self.has_expiring().then(|| self.hint_ms())
    }

    /// As `earliest_ms`, but may also be a time if no field has an expiry.
    #[inline]
    fn hint_ms(&self) -> i64 {
        match self {
            Self::Packed(_) => NEVER,
            Self::Table(table) => table.earliest_ms(),
        }
    }

    pub const fn encoding(&self) -> Encoding {
        match self {
            Self::Packed(_) => Encoding::Listpack,
            Self::Table(_) => Encoding::Hashtable,
        }
    }

    /// Bytes of memory, without those in the entry.
    pub fn memory(&self) -> usize {
        match self {
            Self::Packed(pack) => pack.memory(),
            Self::Table(table) => table.memory(),
        }
    }

    /// How many blocks of memory it has, approximately.
    pub fn free_effort(&self) -> usize {
        match self {
            Self::Packed(_) => 1,
            Self::Table(table) => table.free_effort(),
        }
    }

    /// Turns it into a table.
    pub fn make_table(&mut self, hasher: &Hasher) {
        let Self::Packed(pack) = self else { return };
        *self = Self::Table(table_of(pack, hasher));
    }
}

impl Default for Hash {
    fn default() -> Self {
        Self::Packed(Listpack::new())
    }
}

impl std::fmt::Debug for Hash {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let fields = self.iter().map(|field| (field.name, field.value));
        formatter.debug_map().entries(fields).finish()
    }
}

impl<'a> FieldValue<'a> {
    /// The value as a listpack's item.
    pub fn item(self) -> Item<'a> {
        match self {
            FieldValue::Item(item) => item,
            FieldValue::Outside(outside) => Item::Bytes(outside.bytes()),
        }
    }

    /// Another owner of the value, if it is a long one.
    pub fn to_shared(self) -> Option<SharedString> {
        match self {
            FieldValue::Item(_) => None,
            FieldValue::Outside(outside) => Some(outside.to_shared()),
        }
    }

    /// The length of its text in bytes.
    pub fn len(self) -> usize {
        self.item().len()
    }

    pub fn is_empty(self) -> bool {
        self.len() == 0
    }
}

impl<'a> Iterator for HashIter<'a> {
    type Item = HashField<'a>;

    #[inline]
    fn next(&mut self) -> Option<HashField<'a>> {
        match self {
            Self::Packed { fields, left } => {
                let (name, value) = (fields.next()?, fields.next()?);
                *left -= 1;
                Some(HashField { name, value: FieldValue::Item(value), expire_ms: None })
            }
            Self::Table(records) => records.next().map(table_field),
        }
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        let left = match self {
            Self::Packed { left, .. } => *left,
            Self::Table(records) => records.len(),
        };
        (left, Some(left))
    }
}

impl ExactSizeIterator for HashIter<'_> {}

#[inline(always)]
const fn is_live(expire_ms: Option<i64>, now_ms: i64) -> bool {
    match expire_ms {
        Some(at) => at > now_ms,
        None => true,
    }
}

/// Fields and values as a table. If a field is there twice, the first one counts.
fn table_of(fields: &Listpack, hasher: &Hasher) -> RecordTable {
    let mut table = RecordTable::new(true);
    let mut rooms = [IntegerText::new(0), IntegerText::new(0)];
    let mut items = fields.iter();
    while let (Some(name), Some(value)) = (items.next(), items.next()) {
        let [name_room, value_room] = &mut rooms;
        let value = Given::Bytes(value.text(value_room));
        table.insert_new(Given::Bytes(name.text(name_room)), Some(value), hasher);
    }
    table
}

/// Sets a field of a packed hash. Looks for it at `near` first, and moves `near` behind it. Returns
/// whether the field is new, `None` if the hash cannot stay packed.
fn set_packed(
    pack: &mut Listpack,
    (name, value): (&[u8], Given<'_>),
    is_absent: bool,
    near: &mut ListpackPosition,
    limits: &HashLimits,
) -> Option<bool> {
    let value = value.bytes();
    let fits = name.len().max(value.len()) <= limits.packed_value_len
        && pack.has_room(2, name.len() + value.len());
    if fits
        && !is_absent
        && let Some(position) = pack.find_near(*near, name, 2)
    {
        let position = pack.after(position);
        pack.replace(position, value);
        *near = pack.after(position);
        return Some(false);
    }
    let may_grow = fits && pack.len() / 2 < limits.packed_entries;
    may_grow.then(|| {
        pack.append_many([name, value].into_iter());
        true
    })
}

fn packed_field(pack: &Listpack, position: ListpackPosition) -> HashField<'_> {
    let mut items = pack.iter_from(position);
    match (items.next(), items.next()) {
        (Some(name), Some(value)) => {
            HashField { name, value: FieldValue::Item(value), expire_ms: None }
        }
        _ => unreachable!("a field without a value at {position:?}"),
    }
}

fn table_field(record: TableRecord<'_>) -> HashField<'_> {
    let value = match record.value {
        Some(RecordText::Inline(bytes)) => FieldValue::Item(Item::Bytes(bytes)),
        Some(RecordText::Outside(outside)) => FieldValue::Outside(outside),
        None => unreachable!("a field without a value"),
    };
    HashField { name: Item::Bytes(record.key.bytes()), value, expire_ms: record.expire_ms }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    const LIMITS: HashLimits = HashLimits { packed_entries: 8, packed_value_len: 12 };
    type Model = BTreeMap<Vec<u8>, (Vec<u8>, Option<i64>)>;

    fn contents(hash: &Hash) -> Model {
        let fields: Vec<_> = hash.iter().collect();
        assert_eq!(fields.len(), hash.len());
        let contents: Model = fields
            .iter()
            .map(|field| (field.name.to_vec(), (field.value.item().to_vec(), field.expire_ms)))
            .collect();
        assert_eq!(contents.len(), fields.len());
        contents
    }

    #[derive(Clone, Debug)]
    enum Change {
        Set(Vec<u8>, Vec<u8>, FieldExpiry),
        Remove(Vec<u8>),
        Expire(Vec<u8>, Option<i64>),
        Time(i64),
        Reap(usize),
    }

    fn change() -> impl Strategy<Value = Change> {
        let name = || {
            prop_oneof![
                (0i64..20).prop_map(|value| value.to_string().into_bytes()),
                "[a-z]{1,1}".prop_map(String::into_bytes),
                "[0-9a-z]{1,20}".prop_map(String::into_bytes),
            ]
        };
        let value = prop_oneof![
            4 => (0i64..2000).prop_map(|value| value.to_string().into_bytes()),
            4 => "[a-z]{0,14}".prop_map(String::into_bytes),
            1 => (200usize..1200).prop_map(|len| vec![b'x'; len]),
        ];
        let expiry = prop_oneof![
            Just(FieldExpiry::Keep),
            Just(FieldExpiry::Clear),
            (0i64..100).prop_map(FieldExpiry::At)
        ];
        prop_oneof![
            8 => (name(), value, expiry).prop_map(|(name, value, expiry)| Change::Set(name, value, expiry)),
            2 => name().prop_map(Change::Remove),
            2 => (name(), prop::option::of(0i64..100)).prop_map(|(name, at)| Change::Expire(name, at)),
            1 => (1i64..10).prop_map(Change::Time),
            1 => (0usize..5).prop_map(Change::Reap),
        ]
    }

    proptest! {
        #![proptest_config(ProptestConfig {
            cases: if cfg!(miri) { 2 } else { 256 },
            failure_persistence: None,
            ..ProptestConfig::default()
        })]

        #[test]
        fn behaves_like_a_map(
            changes in prop::collection::vec(change(), 0..if cfg!(miri) { 30 } else { 150 }),
        ) {
            let hasher = Hasher::new(7);
            let (mut hash, mut model, mut now_ms) = (Hash::default(), Model::new(), 0);
            for change in changes {
                let (before, model_before) = (hash.clone(), model.clone());
                match change {
                    Change::Set(name, value, expiry) => {
                        let added = hash.set(&name, Given::from(&value), expiry, now_ms, &LIMITS, &hasher);
                        let old = model.get(&name).filter(|(_, at)| is_live(*at, now_ms));
                        prop_assert_eq!(added, old.is_none());
                        let expire_ms = match expiry {
                            FieldExpiry::Keep => old.and_then(|(_, at)| *at),
                            FieldExpiry::Clear => None,
                            FieldExpiry::At(at) => Some(at),
                        };
                        model.insert(name, (value, expire_ms));
                    }
                    Change::Remove(name) => {
                        let live = model.get(&name).is_some_and(|(_, at)| is_live(*at, now_ms));
                        prop_assert_eq!(hash.remove(&name, now_ms, &hasher), live);
                        if live {
                            model.remove(&name);
                        }
                    }
                    Change::Expire(name, expire_ms) => {
                        hash.set_expiry(&name, expire_ms, &hasher);
                        if let Some((_, at)) = model.get_mut(&name) {
                            *at = expire_ms;
                        }
                    }
                    Change::Time(ms) => now_ms += ms,
                    Change::Reap(limit) => {
                        let mut names = Vec::new();
                        let removed = hash.remove_expired(now_ms, limit, &hasher, |name| names.push(name.to_vec()));
                        let due = model.values().filter(|(_, at)| !is_live(*at, now_ms)).count();
                        prop_assert_eq!(removed, due.min(limit));
                        for name in names {
                            let (_, at) = model.remove(&name).unwrap();
                            prop_assert!(!is_live(at, now_ms));
                        }
                    }
                }
                prop_assert_eq!(contents(&hash), model.clone());
                prop_assert_eq!(contents(&before), model_before);
                for (name, (value, at)) in &model {
                    let field = hash.get(name, now_ms, &hasher);
                    prop_assert_eq!(field.is_some(), is_live(*at, now_ms));
                    if let Some(field) = field {
                        prop_assert_eq!(field.value.item(), &value[..]);
                    }
                }
                let earliest = model.values().filter_map(|(_, at)| *at).min();
                prop_assert!(hash.earliest_ms().unwrap_or(i64::MAX) <= earliest.unwrap_or(i64::MAX));
                prop_assert_eq!(hash.has_expiring(), model.values().any(|(_, at)| at.is_some()));
            }
            let mut seen = 0;
            hash.scan(0, usize::MAX, now_ms, &hasher, |_| seen += 1);
            prop_assert_eq!(seen, hash.live(now_ms).count());
        }
    }
}
