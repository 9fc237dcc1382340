//! The table of one database in one shard: buckets of one cache line, in the order of positions.
//!
//! A bucket has eight slots; a slot is one word:
//!
//! ```text
//! 63     51 50      48 47                    0
//! [  tag  ][ distance ][  pointer to the entry ]
//! ```
//! A key's home is `position * buckets / 2^32`. If its home is full, the key lies in the next
//! bucket that is not, and `distance` says how far away that is (7: seven or more). So a lookup
//! walks from the home until it finds the key or a bucket that is not full. It compares tag and
//! distance before it reads an entry. Removing pulls displaced entries back, so there are no
//! tombstones.
//!
//! Homes keep the order of positions for any number of buckets. So growing and shrinking walk
//! through memory in order, and sizes need not be powers of two. SCAN's cursor is a position: it
//! survives every resize and never returns a key twice.
//!
//! The unsafe code here relies on these rules:
//! - *Owned*: a slot that is not empty has a pointer from `OwnedEntry::into_pointer`, and no other
//!   slot has the same. So the table owns the entry: it lives until the slot is emptied, and is
//!   borrowed with the table.
//! - *Counted*: `buckets` is the start of an allocation of `bucket_count` buckets that only the
//!   table uses, or dangles if the count is zero. All buckets are initialised.

use std::mem::ManuallyDrop;
use std::ptr::NonNull;

use crate::entry::{EntryMut, EntryRef, OwnedEntry};
use crate::hash::{Hasher, KeyHash, TAG_BITS};
use crate::value::prefetch::{prefetch, prefetch_to_write};
use crate::value::{DefragCursor, Defragmenter};

/// Slots of a bucket: a cache line of 64 bytes.
pub const SLOTS: usize = 8;
/// A table grows when on average more slots than this are used in each bucket.
const SLOTS_FULL: usize = 7;
/// A table shrinks when on average fewer slots than this are used.
const SLOTS_SPARSE: usize = 2;
/// How many slots ahead of the walk a resize prefetches entries.
const RESIZE_AHEAD: usize = 8;

/// How many slots `pick` tries before it counts entries instead.
const PICK_TRIES_MAX: usize = 64;

/// A small entry ends within this many bytes.
const SMALL_ENTRY: usize = 56;

const POINTER_BITS: u32 = 48;
const DISTANCE_BITS: u32 = 64 - POINTER_BITS - TAG_BITS;
/// This distance or more.
const DISTANCE_FAR: usize = (1 << DISTANCE_BITS) - 1;
const POINTER_MASK: u64 = (1 << POINTER_BITS) - 1;

/// One cache line. Used slots come first.
#[repr(C, align(64))]
pub struct Bucket([Slot; SLOTS]);

/// A slot of the table; zero is an empty one.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Slot(u64);

const _: () = assert!(size_of::<Bucket>() == SLOTS * size_of::<Slot>());

/// Where an entry lies. Valid until the next change of the table. After that another entry may lie
/// there. If there is none, using the place ends the process.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct EntryPlace(usize);

/// A hash table of entries.
pub struct Table {
    buckets: NonNull<Bucket>,
    bucket_count: u32,
    len: u32,
}

// SAFETY: *owned* and *counted*: nothing else has a pointer to the buckets or the entries, so they
// move with the table. An `OwnedEntry` is `Send`.
unsafe impl Send for Table {}

impl EntryPlace {
    #[inline(always)]
    const fn new(bucket: usize, slot: usize) -> Self {
        Self(bucket * SLOTS + slot)
    }

    #[inline(always)]
    const fn bucket(self) -> usize {
        self.0 / SLOTS
    }

    #[inline(always)]
    const fn slot(self) -> usize {
        self.0 % SLOTS
    }
}

impl Slot {
    const EMPTY: Self = Self(0);

    /// Sets the tag and the distance. The pointer stays.
    #[inline(always)]
    const fn labelled(self, tag: u16, distance: usize) -> Self {
        Self(self.0 & POINTER_MASK | Self::label(tag, distance) << POINTER_BITS)
    }

    /// Sets the distance. Pointer and tag stay.
    #[inline(always)]
    const fn with_distance(self, distance: usize) -> Self {
        self.labelled(self.tag(), distance)
    }

    /// The bits above the pointer, for this tag and distance.
    #[inline(always)]
    const fn label(tag: u16, distance: usize) -> u64 {
        let distance = if distance < DISTANCE_FAR { distance } else { DISTANCE_FAR };
        (tag as u64) << DISTANCE_BITS | distance as u64
    }

    #[inline(always)]
    const fn is_empty(self) -> bool {
        self.0 == 0
    }

    #[inline(always)]
    const fn tag(self) -> u16 {
        (self.0 >> (POINTER_BITS + DISTANCE_BITS)) as u16
    }

    /// The entry's address, for a prefetch.
    #[inline(always)]
    const fn address(self) -> *const u8 {
        std::ptr::without_provenance((self.0 & POINTER_MASK) as usize)
    }

    /// The pointer to the entry. `None`: the slot is empty.
    #[inline(always)]
    fn pointer(self) -> Option<NonNull<u8>> {
        NonNull::new(std::ptr::with_exposed_provenance_mut((self.0 & POINTER_MASK) as usize))
    }

    /// Points the slot to another entry. Tag and distance stay.
    #[inline(always)]
    fn with_entry(self, entry: OwnedEntry) -> Self {
        let address = entry.into_pointer().as_ptr().expose_provenance() as u64;
        debug_assert_eq!(address & !POINTER_MASK, 0, "user addresses have 47 bits");
        Self(self.0 & !POINTER_MASK | address)
    }

    /// The entry, for reading. `None`: the slot is empty.
    ///
    /// # Safety
    /// The slot's table is borrowed for 'a.
    #[inline(always)]
    unsafe fn entry<'a>(self) -> Option<EntryRef<'a>> {
        // SAFETY: *owned*: the pointer is an entry's, which lives and does not change while the
        // table is borrowed.
        self.pointer().map(|pointer| unsafe { EntryRef::new(pointer) })
    }

    /// The entry, for changing it. `None`: the slot is empty.
    ///
    /// # Safety
    /// The slot's table is borrowed exclusively for 'a, and nothing else uses the entry meanwhile.
    #[inline(always)]
    unsafe fn entry_mut<'a>(self) -> Option<EntryMut<'a>> {
        // SAFETY: *owned*: the pointer is an entry's, which lives while the table is borrowed. The
        // caller says that nothing else uses it.
        self.pointer().map(|pointer| unsafe { EntryMut::new(pointer) })
    }

    /// The entry itself.
    ///
    /// # Safety
    /// The slot has been removed from its table, or the table is being dropped and does not use it
    /// again.
    #[inline(always)]
    unsafe fn into_entry(self) -> OwnedEntry {
        let pointer = self.pointer().expect("a slot with an entry");
        // SAFETY: *owned*: this slot had the only pointer to the entry, and the caller says that
        // nothing finds it in the slot again.
        unsafe { OwnedEntry::from_pointer(pointer) }
    }

    /// The distance between the slot's bucket and the entry's home, if it is below `DISTANCE_FAR`.
    #[inline(always)]
    const fn distance_near(self) -> Option<usize> {
        let distance = (self.0 >> POINTER_BITS) as usize & DISTANCE_FAR;
        if distance < DISTANCE_FAR { Some(distance) } else { None }
    }
}

impl Bucket {
    #[inline(always)]
    const fn is_full(&self) -> bool {
        !self.0[SLOTS - 1].is_empty()
    }

    /// A mask: bit i is set if slot i has this label.
    #[inline(always)]
    fn matches(&self, label: u64) -> u32 {
        let mut mask = 0;
        for (i, slot) in self.0.iter().enumerate() {
            mask |= u32::from(slot.0 >> POINTER_BITS == label) << i;
        }
        mask
    }

    #[inline(always)]
    fn prefetch_entries(&self) {
        for slot in self.0.iter().take_while(|slot| !slot.is_empty()) {
            prefetch(slot.address());
            prefetch(slot.address().wrapping_add(SMALL_ENTRY));
        }
    }

    fn used(&self) -> usize {
        self.0.iter().position(|slot| slot.is_empty()).unwrap_or(SLOTS)
    }

    /// Removes a slot and closes the gap.
    fn take(&mut self, slot: usize) -> Slot {
        let last = self.used() - 1;
        let taken = self.0[slot];
        self.0[slot] = self.0[last];
        self.0[last] = Slot::EMPTY;
        taken
    }
}

impl Default for Table {
    fn default() -> Self {
        Self::new()
    }
}

impl Table {
    pub const fn new() -> Self {
        Self { buckets: NonNull::dangling(), bucket_count: 0, len: 0 }
    }

    #[inline(always)]
    pub const fn len(&self) -> usize {
        self.len as usize
    }

    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    pub const fn bucket_count(&self) -> usize {
        self.bucket_count as usize
    }

    /// Bytes of heap memory, without the entries.
    pub const fn memory(&self) -> usize {
        self.bucket_count() * size_of::<Bucket>()
    }

    /// The address and the number of the buckets, for prefetching.
    pub(crate) const fn hint(&self) -> (*mut Bucket, u32) {
        (self.buckets.as_ptr(), self.bucket_count)
    }

    #[inline(always)]
    fn buckets(&self) -> &[Bucket] {
        // SAFETY: *counted*: this many buckets lie there, or the count is zero. They are borrowed
        // with the table.
        unsafe { std::slice::from_raw_parts(self.buckets.as_ptr(), self.bucket_count()) }
    }

    #[inline(always)]
    fn buckets_mut(&mut self) -> &mut [Bucket] {
        // SAFETY: *counted*: this many buckets lie there, or the count is zero. Only the table uses
        // them, and it is borrowed exclusively.
        unsafe { std::slice::from_raw_parts_mut(self.buckets.as_ptr(), self.bucket_count()) }
    }

    /// The slot at a place. A place counts slots as they lie in memory, so one check is enough.
    #[inline(always)]
    fn slot_at(&self, place: EntryPlace) -> Slot {
        let count = self.bucket_count() * SLOTS;
        // SAFETY: *counted*: this many buckets lie there, or the count is zero. A bucket consists
        // of its slots only. They are borrowed with the table.
        let slots =
            unsafe { std::slice::from_raw_parts(self.buckets.as_ptr().cast::<Slot>(), count) };
        slots[place.0]
    }

    /// The entry of one of the table's slots. `None`: the slot is empty.
    #[inline(always)]
    fn entry_of(&self, slot: Slot) -> Option<EntryRef<'_>> {
        // SAFETY: callers have copied the slot from this table within this borrow of it.
        unsafe { slot.entry() }
    }

    /// The entry at a place.
    #[inline(always)]
    pub fn entry(&self, place: EntryPlace) -> EntryRef<'_> {
        self.entry_of(self.slot_at(place)).expect("a place of an entry")
    }

    /// The entry at a place, for changing it.
    #[inline(always)]
    pub fn entry_mut(&mut self, place: EntryPlace) -> EntryMut<'_> {
        let slot = self.slot_at(place);
        // SAFETY: the slot is from this table, which is borrowed exclusively. The result is the
        // only reference made from that borrow.
        unsafe { slot.entry_mut() }.expect("a place of an entry")
    }

    /// The distance between a slot's bucket and the entry's home.
    #[inline]
    fn distance(&self, slot: Slot, bucket: usize, hasher: &Hasher) -> usize {
        slot.distance_near().unwrap_or_else(|| {
            let entry = self.entry_of(slot).expect("a slot with an entry");
            let count = self.bucket_count();
            (bucket + count - home(hasher.hash(entry.key()).position(), count)) % count
        })
    }

    /// Where the key lies.
    #[inline]
    pub fn find(&self, hash: KeyHash, key: &[u8]) -> Option<EntryPlace> {
        let buckets = self.buckets();
        if buckets.is_empty() {
            return None;
        }
        let mut at = home(hash.position(), buckets.len());
        for distance in 0..buckets.len() {
            // SAFETY: `home` and `next` give an index below the number of buckets they get, which
            // is the length of the slice.
            let bucket = unsafe { buckets.get_unchecked(at) };
            let mut matches = bucket.matches(Slot::label(hash.tag(), distance));
            while matches != 0 {
                let slot = matches.trailing_zeros() as usize;
                let found = bucket.0[slot];
                if self.entry_of(found).is_some_and(|entry| same(entry.key(), key)) {
                    return Some(EntryPlace::new(at, slot));
                }
                matches &= matches - 1;
            }
            if !bucket.is_full() {
                return None;
            }
            at = next(at, buckets.len());
        }
        None
    }

    /// Prefetches the entry that a lookup of this hash would read first. With `writes` it is
    /// fetched for writing, so that no other core keeps its cache lines.
    #[inline]
    pub fn prefetch_entry(&self, hash: KeyHash, writes: bool) {
        let buckets = self.buckets();
        if buckets.is_empty() {
            return;
        }
        let bucket = &buckets[home(hash.position(), buckets.len())];
        let matches = bucket.matches(Slot::label(hash.tag(), 0));
        if matches != 0 {
            let slot = bucket.0[matches.trailing_zeros() as usize];
            // More often than not a small entry lies on two cache lines.
            let (first, last) = (slot.address(), slot.address().wrapping_add(SMALL_ENTRY));
            if writes {
                prefetch_to_write(first);
                prefetch_to_write(last);
            } else {
                prefetch(first);
                prefetch(last);
            }
        }
    }

    /// Inserts a key that is not in the table.
    #[inline]
    pub fn insert(&mut self, hash: KeyHash, entry: OwnedEntry, hasher: &Hasher) -> EntryPlace {
        if self.len() >= self.bucket_count() * SLOTS_FULL {
            self.resize(larger(self.bucket_count()), hasher);
        }
        self.len += 1;
        self.place(hash, Slot::EMPTY.with_entry(entry))
    }

    /// Replaces a key's entry, and returns the old one.
    #[inline]
    pub fn replace(&mut self, place: EntryPlace, entry: OwnedEntry) -> OwnedEntry {
        let slot = &mut self.buckets_mut()[place.bucket()].0[place.slot()];
        assert!(!slot.is_empty(), "a place of an entry");
        let old = std::mem::replace(slot, slot.with_entry(entry));
        // SAFETY: the slot was overwritten.
        unsafe { old.into_entry() }
    }

    /// Replaces the entry at a place by one that `make` makes from it.
    #[inline]
    pub(crate) fn remake(
        &mut self,
        place: EntryPlace,
        make: impl FnOnce(OwnedEntry) -> OwnedEntry,
    ) {
        let slot = &mut self.buckets_mut()[place.bucket()].0[place.slot()];
        let old = std::mem::replace(slot, Slot::EMPTY);
        // SAFETY: the slot was emptied.
        *slot = old.with_entry(make(unsafe { old.into_entry() }));
    }

    /// Moves blocks of entries out of sparsely used memory, from a cursor on. `false` at the end.
    /// If the table grows or shrinks meanwhile, some entries are left out.
    pub(crate) fn defragment(
        &mut self,
        cursor: &mut DefragCursor,
        defragmenter: &mut Defragmenter<'_>,
    ) -> bool {
        let count = self.bucket_count() * SLOTS;
        while cursor.slot < count {
            if defragmenter.is_spent() {
                return true;
            }
            let place = EntryPlace(cursor.slot);
            if let Some(block) = self.slot_at(place).pointer() {
                let moved = defragmenter.moved();
                if cursor.part == 0 && defragmenter.wants(block) {
                    self.remake(place, OwnedEntry::moved);
                }
                cursor.part = self.entry_mut(place).defragment(cursor.part, defragmenter);
                if cursor.part > 0 {
                    continue;
                }
                defragmenter.count_key(moved);
            }
            cursor.slot += 1;
        }
        false
    }

    /// Removes an entry. May shrink the table.
    pub fn remove(&mut self, place: EntryPlace, hasher: &Hasher) -> OwnedEntry {
        let mut hole = place.bucket();
        let count = self.bucket_count();
        let mut was_full = self.buckets()[hole].is_full();
        let taken = self.buckets_mut()[hole].take(place.slot());
        // A bucket that was full gets back entries behind it that would have fit.
        let mut ahead = 1;
        while was_full && ahead < count {
            let from = (hole + ahead) % count;
            let bucket = &self.buckets()[from];
            let full = bucket.is_full();
            let displaced = bucket
                .0
                .iter()
                .position(|&slot| !slot.is_empty() && self.distance(slot, from, hasher) >= ahead);
            if let Some(slot) = displaced {
                let distance = self.distance(bucket.0[slot], from, hasher) - ahead;
                let moved = self.buckets_mut()[from].take(slot);
                let bucket = &mut self.buckets_mut()[hole];
                bucket.0[bucket.used()] = moved.with_distance(distance);
                hole = from;
                was_full = full;
                ahead = 1;
            } else if full {
                ahead += 1;
            } else {
                break;
            }
        }
        self.len -= 1;
        if self.len() < count * SLOTS_SPARSE {
            let smaller = size_for(self.len());
            if smaller < count {
                self.resize(smaller, hasher);
            }
        }
        // SAFETY: the slot was taken out of its bucket.
        unsafe { taken.into_entry() }
    }

    /// Calls `f` for each entry whose home is the bucket of `position`, except those before
    /// `position`. Returns the position where the next bucket begins; `None` after the last one.
    pub fn scan<'a>(
        &'a self,
        position: u32,
        hasher: &Hasher,
        mut f: impl FnMut(EntryRef<'a>),
    ) -> Option<u32> {
        self.scan_slots(position, hasher, |_, entry| f(entry))
    }

    /// Does what `scan` does, and lets `f` change the entries, but not their keys.
    pub(crate) fn scan_mut(
        &mut self,
        position: u32,
        hasher: &Hasher,
        mut f: impl FnMut(EntryMut<'_>),
    ) -> Option<u32> {
        self.scan_slots(position, hasher, |slot, _| {
            // SAFETY: the slot is from this table, which is borrowed exclusively. `scan_slots` does
            // not use its reference to the entry after this call, and `f` cannot keep what it gets.
            unsafe { slot.entry_mut() }.into_iter().for_each(&mut f);
        })
    }

    #[inline(always)]
    fn scan_slots<'a>(
        &'a self,
        position: u32,
        hasher: &Hasher,
        mut f: impl FnMut(Slot, EntryRef<'a>),
    ) -> Option<u32> {
        let buckets = self.buckets();
        let count = buckets.len();
        if count == 0 {
            return None;
        }
        let start = home(position, count);
        let is_whole = position.checked_sub(1).is_none_or(|before| home(before, count) < start);
        for ahead in 0..count {
            let at = (start + ahead) % count;
            for &slot in &buckets[at].0 {
                let Some(entry) = self.entry_of(slot) else { break };
                if self.distance(slot, at, hasher) == ahead
                    && (is_whole || hasher.hash(entry.key()).position() >= position)
                {
                    f(slot, entry);
                }
            }
            if !buckets[at].is_full() {
                break;
            }
        }
        (start + 1 < count).then(|| first_position(start + 1, count))
    }

    /// Prefetches for scans from `position` on. Called before the first of them.
    #[inline]
    pub fn prefetch_first_scan(&self, position: u32) {
        let buckets = self.buckets();
        let at = home(position, buckets.len());
        buckets[at..].iter().take(2).for_each(Bucket::prefetch_entries);
    }

    /// Prefetches for the scans behind the one at `position`: the entries of the bucket after the
    /// next one. With `values` also the values of the next bucket's entries, which were prefetched
    /// before.
    #[inline]
    pub fn prefetch_scan(&self, position: u32, values: bool) {
        let buckets = self.buckets();
        let at = home(position, buckets.len());
        let next = |ahead: usize| buckets[at..].get(ahead);
        next(2).into_iter().for_each(Bucket::prefetch_entries);
        if values && let Some(bucket) = next(1) {
            let entries = bucket.0.iter().filter_map(|&slot| self.entry_of(slot));
            entries.for_each(EntryRef::prefetch_value);
        }
    }

    /// The places of the entries whose position differs from this one in the low `bits_ignored`
    /// bits at most.
    pub fn places_near(
        &self,
        position: u32,
        bits_ignored: u32,
        hasher: &Hasher,
        out: &mut Vec<EntryPlace>,
    ) {
        let buckets = self.buckets();
        let count = buckets.len();
        if count == 0 {
            return;
        }
        let wanted = position >> bits_ignored;
        let first = home(wanted << bits_ignored, count);
        let last = home(wanted << bits_ignored | ((1 << bits_ignored) - 1), count);
        for ahead in 0..count {
            let at = (first + ahead) % count;
            for (i, &slot) in buckets[at].0.iter().enumerate() {
                let Some(entry) = self.entry_of(slot) else { break };
                if hasher.hash(entry.key()).position() >> bits_ignored == wanted {
                    out.push(EntryPlace::new(at, i));
                }
            }
            if first + ahead >= last && !buckets[at].is_full() {
                return;
            }
        }
    }

    /// All entries, in memory order.
    pub fn iter(&self) -> impl Iterator<Item = EntryRef<'_>> {
        self.slots().filter_map(|slot| self.entry_of(slot))
    }

    /// All entries, in memory order, for changing them.
    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = EntryMut<'_>> {
        // SAFETY: the slots are from this table, which is borrowed exclusively as long as the
        // iterator lives. Each slot comes once, and by *owned* no two have the same entry.
        self.slots().filter_map(|slot| unsafe { slot.entry_mut() })
    }

    /// Some entries near a random place: those of the first bucket that has any, starting at the
    /// bucket of `random`.
    pub fn sample(&self, random: u32) -> impl Iterator<Item = EntryRef<'_>> {
        let buckets = self.buckets();
        let start = if buckets.is_empty() { 0 } else { home(random, buckets.len()) };
        let (before, after) = buckets.split_at(start);
        let used = after.iter().chain(before).find(|bucket| !bucket.0[0].is_empty());
        used.into_iter().flat_map(|bucket| bucket.0.iter().map_while(|&slot| self.entry_of(slot)))
    }

    /// A random entry, each with the same probability. `None`: there is none. `random(n)` is
    /// uniform below n.
    pub fn pick(&self, mut random: impl FnMut(u32) -> u32) -> Option<EntryRef<'_>> {
        if self.is_empty() {
            return None;
        }
        let buckets = self.buckets();
        let tried = (0..PICK_TRIES_MAX).find_map(|_| {
            let bucket = random(self.bucket_count) as usize;
            let slot = buckets[bucket].0[random(SLOTS as u32) as usize];
            (!slot.is_empty()).then_some(slot)
        });
        // A table is never so empty that all tries miss often.
        let slot = tried.or_else(|| self.slots().nth(random(self.len) as usize))?;
        self.entry_of(slot)
    }

    /// Gives the table up for its entries.
    pub(crate) fn into_entries(self) -> TableEntries {
        TableEntries { table: self, next: 0 }
    }

    fn slots(&self) -> impl Iterator<Item = Slot> {
        self.buckets().iter().flat_map(|bucket| bucket.0).filter(|slot| !slot.is_empty())
    }

    /// Puts an entry into the first bucket from its home on that has room. There is one.
    #[inline]
    fn place(&mut self, hash: KeyHash, entry: Slot) -> EntryPlace {
        let count = self.bucket_count();
        let mut at = home(hash.position(), count);
        let buckets = self.buckets_mut();
        let mut distance = 0;
        while buckets[at].is_full() {
            at = next(at, count);
            distance += 1;
            debug_assert!(distance < count, "a table is never full");
        }
        let slot = buckets[at].used();
        buckets[at].0[slot] = entry.labelled(hash.tag(), distance);
        EntryPlace::new(at, slot)
    }

    /// Moves all entries to a table of `count` buckets. Reads each entry's key once, prefetched.
    #[inline(never)]
    fn resize(&mut self, count: usize, hasher: &Hasher) {
        let old = std::mem::replace(self, Self::with_buckets(count));
        let prefetch_entry = |slot: Slot| prefetch(slot.address());
        let mut ahead = old.slots().skip(RESIZE_AHEAD);
        old.slots().take(RESIZE_AHEAD).for_each(prefetch_entry);
        for slot in old.slots() {
            ahead.next().into_iter().for_each(prefetch_entry);
            let entry = old.entry_of(slot).expect("a slot with an entry");
            let hash = hasher.hash(entry.key());
            self.place(hash, slot);
        }
        drop(ahead);
        self.len = old.len;
        old.free_buckets();
    }

    fn with_buckets(count: usize) -> Self {
        if count == 0 {
            return Self::new();
        }
        // SAFETY: all zeros are a bucket of empty slots.
        let buckets = unsafe { Box::<[Bucket]>::new_zeroed_slice(count).assume_init() };
        Self {
            buckets: NonNull::from(Box::leak(buckets)).cast(),
            bucket_count: count as u32,
            len: 0,
        }
    }

    /// Frees the buckets without the entries.
    fn free_buckets(self) {
        let table = ManuallyDrop::new(self);
        let buckets = NonNull::slice_from_raw_parts(table.buckets, table.bucket_count());
        // SAFETY: *counted*: the buckets are a leaked box of this length. Without buckets the
        // pointer dangles, which is a valid empty box. The table is not dropped.
        drop(unsafe { Box::from_raw(buckets.as_ptr()) });
    }
}

impl Drop for Table {
    fn drop(&mut self) {
        for slot in self.slots() {
            // SAFETY: the table is being dropped, and each slot comes once.
            drop(unsafe { slot.into_entry() });
        }
        std::mem::take(self).free_buckets();
    }
}

/// The entries of a table that is given up, in memory order. Those that nobody takes are freed with
/// it.
pub(crate) struct TableEntries {
    table: Table,
    /// The next slot, as a place counts them.
    next: usize,
}

impl Iterator for TableEntries {
    type Item = OwnedEntry;

    fn next(&mut self) -> Option<OwnedEntry> {
        loop {
            let place = EntryPlace(self.next);
            let buckets = self.table.buckets_mut();
            if place.slot() == 0 {
                let ahead = buckets.get(place.bucket() + 1);
                ahead.into_iter().for_each(Bucket::prefetch_entries);
            }
            let slot = &mut buckets.get_mut(place.bucket())?.0[place.slot()];
            let slot = std::mem::replace(slot, Slot::EMPTY);
            self.next += 1;
            if !slot.is_empty() {
                self.table.len -= 1;
                // SAFETY: the slot has been removed from the table.
                return Some(unsafe { slot.into_entry() });
            }
        }
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.table.len(), Some(self.table.len()))
    }
}

impl ExactSizeIterator for TableEntries {}

/// Whether two keys are equal. Most keys have 8 to 32 bytes; for them this takes four comparisons
/// of words and no call.
#[inline(always)]
fn same(a: &[u8], b: &[u8]) -> bool {
    let len = a.len();
    if len != b.len() {
        return false;
    }
    if !(8..=32).contains(&len) {
        return a == b;
    }
    let word =
        |of: &[u8], at: usize| u64::from_le_bytes(of[at..at + 8].try_into().expect("eight bytes"));
    // From both ends inwards. In short keys the words overlap.
    let half = (len / 2).saturating_sub(4).min(8);
    (word(a, 0) ^ word(b, 0))
        | (word(a, len - 8) ^ word(b, len - 8))
        | (word(a, half) ^ word(b, half))
        | (word(a, len - 8 - half) ^ word(b, len - 8 - half))
        == 0
}

/// The bucket where a key of this position belongs.
#[inline(always)]
pub(crate) const fn home(position: u32, buckets: usize) -> usize {
    ((position as u64 * buckets as u64) >> 32) as usize
}

/// The smallest position whose home is this bucket.
const fn first_position(bucket: usize, buckets: usize) -> u32 {
    ((bucket as u64) << 32).div_ceil(buckets as u64) as u32
}

#[inline(always)]
const fn next(bucket: usize, buckets: usize) -> usize {
    if bucket + 1 == buckets { 0 } else { bucket + 1 }
}

/// The sizes are 1, 2, 3, 4, 6, 8, 12, 16, 24 ... buckets.
const fn larger(buckets: usize) -> usize {
    match buckets {
        0 => 1,
        1 => 2,
        _ if buckets.is_power_of_two() => buckets / 2 * 3,
        _ => buckets.next_power_of_two(),
    }
}

/// The size for this many entries after a shrink: half full.
const fn size_for(len: usize) -> usize {
    let mut buckets = 0;
    while buckets * SLOTS / 2 < len {
        buckets = larger(buckets);
    }
    buckets
}

#[cfg(test)]
mod tests;
