//! All shards, and how a thread gets to hold one.
//!
//! The unsafe code here relies on one rule, called *one at a time*. A thread reaches a shard in one
//! of two ways:
//! - With the lock of its cell held. A [`ShardGuard`] represents that lock. Only this module makes
//!   guards, after it took the lock, and it releases the lock when the guard is dropped.
//! - With the gate held, by [`Keyspace::exclusive`]. Then no thread holds a lock, because a thread
//!   holds shards only while it is a busy member of the gate. The threads must keep this rule
//!   themselves; `exclusive` checks that the lock is free, which finds a guard that a thread has
//!   kept.

use std::cell::UnsafeCell;
use std::marker::PhantomData;
use std::mem::ManuallyDrop;
use std::ops::{Deref, DerefMut};
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicPtr, AtomicU32, AtomicU64, AtomicUsize, Ordering};

use bobbin_sync::RawLock;
use bobbin_sync::order::Class;

use crate::gate::GateGuard;
use crate::hash::{Hasher, KeyHash, SHARD_BITS};
use crate::shard::{Gauge, Shard};
use crate::table::{Bucket, home};
use crate::value::prefetch::{prefetch, prefetch_to_write};

/// How many shards a keyspace has.
pub const SHARDS: usize = 1 << SHARD_BITS;

/// Shards are locked in ascending order of their indices.
static CLASS: Class = Class::of::<Shard>(0);

/// All keys of the process.
pub struct Keyspace {
    shards: Box<[ShardCell; SHARDS]>,
    hasher: Hasher,
    /// From when on (Unix ms) each shard may have keys to expire. `i64::MAX`: never. These times
    /// are outside of the shards, so that looking for work reads few cache lines.
    due_ms: Box<[AtomicI64; SHARDS]>,
    /// Which shards may have something, one bit each: those that had keys since a thread with the
    /// gate last saw them empty. A key that comes and goes writes these lines only once.
    used: Box<[AtomicU64; SHARDS.div_ceil(64)]>,
    /// Counts the keys of database 0 without a look at each shard. Boxed like the rest: if the
    /// keyspace itself had atomics, the compiler would read its pointers again and again.
    tally: Box<Tally>,
    cut_gauge: Arc<Gauge>,
}

/// A shard behind its lock.
#[repr(C, align(64))]
struct ShardCell {
    lock: RawLock,
    /// Database 0's buckets, for prefetching without the lock. The values may be stale or torn, so
    /// they are only prefetched and never followed.
    bucket_count: AtomicU32,
    buckets: AtomicPtr<Bucket>,
    /// Whether the shard has more than keys of database 0 that never expire; most shards do not.
    /// Only then `due_ms` of the keyspace may have a time for it. Only a thread that holds the
    /// shard writes this.
    has_more: AtomicU32,
    /// How many keys database 0 has, for counting without the lock.
    len: AtomicU32,
    shard: UnsafeCell<Shard>,
}

/// The data that every command touches fits one cache line.
const _: () = assert!(size_of::<ShardCell>() == 64 || cfg!(shuttle));

// SAFETY: one thread at a time reaches the shard (see the module), so sharing a cell only moves the
// shard from thread to thread. The assertion below says that a shard is `Send`. The rest of the
// cell is atomic.
unsafe impl Sync for ShardCell {}

const _: () = {
    const fn is_send<T: Send>() {}
    is_send::<Shard>();
};

impl Default for ShardCell {
    fn default() -> Self {
        Self {
            lock: RawLock::default(),
            bucket_count: AtomicU32::new(0),
            buckets: AtomicPtr::default(),
            has_more: AtomicU32::new(0),
            len: AtomicU32::new(0),
            shard: UnsafeCell::default(),
        }
    }
}

/// A held shard. Dropping it unlocks.
pub struct ShardGuard<'a> {
    keyspace: &'a Keyspace,
    index: u32,
    /// The type that the guard gives access to, so that the guard is `Sync` only if the shard is.
    shard: PhantomData<&'a mut Shard>,
}

impl Keyspace {
    /// A keyspace whose hashes are not secret, for tests.
    pub fn new(seed: u64) -> Self {
        Self::with_hasher(Hasher::new(seed))
    }

    pub fn with_hasher(hasher: Hasher) -> Self {
        Self {
            shards: boxed(ShardCell::default),
            hasher,
            due_ms: boxed(|| AtomicI64::new(i64::MAX)),
            used: Box::new([const { AtomicU64::new(0) }; SHARDS.div_ceil(64)]),
            tally: Box::default(),
            cut_gauge: Arc::default(),
        }
    }

    #[inline(always)]
    pub const fn hasher(&self) -> &Hasher {
        &self.hasher
    }

    pub(crate) fn cut_gauge(&self) -> Arc<Gauge> {
        Arc::clone(&self.cut_gauge)
    }

    /// Whether a cut is in progress.
    pub fn is_being_cut(&self) -> bool {
        self.cut_gauge.cuts.load(Ordering::Relaxed) > 0
    }

    /// Bytes of memory of the copies that wait for the walk of a cut.
    pub fn kept_bytes(&self) -> usize {
        self.cut_gauge.kept_bytes.load(Ordering::Relaxed)
    }

    #[inline(always)]
    pub fn hash(&self, key: &[u8]) -> KeyHash {
        self.hasher.hash(key)
    }

    /// Waits for a shard's lock. `None`: the shard is reserved. A thread that holds a shard may
    /// only lock shards of higher index.
    #[inline(always)]
    pub fn lock_unless_reserved(&self, index: usize) -> Option<ShardGuard<'_>> {
        CLASS.ranked(index as u32).wait_for();
        self.shards[index].lock.lock_unless_reserved().then(|| {
            CLASS.ranked(index as u32).hold();
            self.guard(index)
        })
    }

    /// The guard for a lock that was just taken.
    #[inline(always)]
    const fn guard(&self, index: usize) -> ShardGuard<'_> {
        ShardGuard { keyspace: self, index: index as u32, shard: PhantomData }
    }

    /// Locks a shard without waiting. `None`: another thread holds it, or it is reserved.
    #[inline(always)]
    pub fn try_lock_in_order(&self, index: usize) -> Option<ShardGuard<'_>> {
        CLASS.ranked(index as u32).wait_for();
        self.try_lock(index)
    }

    /// Locks a shard, and waits while it is reserved. That may take long, so threads that serve
    /// clients do not call this.
    #[inline]
    pub fn lock(&self, index: usize) -> ShardGuard<'_> {
        loop {
            if let Some(guard) = self.lock_unless_reserved(index) {
                return guard;
            }
            nap();
        }
    }

    /// Locks a shard again that the caller reserved.
    pub fn take_back(&self, index: usize) -> ShardGuard<'_> {
        CLASS.ranked(index as u32).wait_for();
        self.shards[index].lock.take_back();
        CLASS.ranked(index as u32).hold();
        self.guard(index)
    }

    /// Locks a shard that the caller reserved, and that stays reserved for all other threads. The
    /// caller may hold any other shards: it waits only for visitors, and a visitor holds no other
    /// shard.
    pub fn enter_reserved(&self, index: usize) -> ShardGuard<'_> {
        CLASS.ranked(u32::MAX).wait_for();
        self.shards[index].lock.enter();
        CLASS.ranked(index as u32).hold();
        self.guard(index)
    }

    /// Calls `f` with a shard, even if the shard is reserved. A reserved shard may contain one half
    /// of a transaction's or script's changes.
    pub fn visit<R>(&self, index: usize, f: impl FnOnce(&mut Shard) -> R) -> R {
        self.visit_with(index, |shard, _| f(shard))
    }

    /// Does what `visit` does, and also tells `f` whether the shard is reserved.
    pub fn visit_with<R>(&self, index: usize, f: impl FnOnce(&mut Shard, bool) -> R) -> R {
        match self.lock_unless_reserved(index) {
            Some(mut guard) => f(&mut guard, false),
            None => self.visit_reserved(index, f),
        }
    }

    #[cold]
    fn visit_reserved<R>(&self, index: usize, f: impl FnOnce(&mut Shard, bool) -> R) -> R {
        let cell = &self.shards[index];
        CLASS.ranked(index as u32).wait_for();
        let visit = cell.lock.visit();
        CLASS.ranked(index as u32).hold();
        // `end_visit` releases the lock, so the guard must not.
        let mut guard = ManuallyDrop::new(self.guard(index));
        let result = f(&mut guard, true);
        self.publish(index, &guard);
        CLASS.ranked(index as u32).release();
        cell.lock.end_visit(visit);
        result
    }

    #[inline(always)]
    pub fn try_lock(&self, index: usize) -> Option<ShardGuard<'_>> {
        self.shards[index].lock.try_lock().then(|| {
            CLASS.ranked(index as u32).hold();
            self.guard(index)
        })
    }

    /// A shard, for a thread that holds the gate and so needs no lock. It must be the gate whose
    /// members use this keyspace.
    ///
    /// # Panics
    /// If a thread holds the shard's lock nevertheless.
    #[inline]
    pub fn exclusive<'g>(&'g self, _gate: &'g mut GateGuard<'_>, index: usize) -> &'g mut Shard {
        let cell = &self.shards[index];
        assert!(!cell.lock.is_held(), "shard {index} is held by somebody, and so is the gate");
        // SAFETY: one at a time. The gate is held, so no member is busy and there is no guard. The
        // result borrows the gate's guard exclusively, so this function cannot give a second one
        // either.
        unsafe { &mut *cell.shard.get() }
    }

    /// Reserves every shard. The caller holds the gate and is about to open it again.
    pub fn reserve_all(&self, _gate: &mut GateGuard<'_>) {
        self.shards.iter().for_each(|cell| cell.lock.reserve());
    }

    /// Reserves one shard. The caller holds the gate and is about to open it again.
    pub fn reserve(&self, _gate: &mut GateGuard<'_>, index: usize) {
        self.shards[index].lock.reserve();
    }

    /// Ends all reservations: from now on the gate alone keeps other threads out.
    pub fn free_all(&self, _gate: &mut GateGuard<'_>) {
        self.shards.iter().for_each(|cell| cell.lock.unlock());
    }

    /// Must be called after a shard was changed through the gate.
    pub fn refresh_hint(&self, gate: &mut GateGuard<'_>, index: usize) {
        let shard = self.exclusive(gate, index);
        self.publish(index, shard);
        if shard.is_as_new() {
            let (word, bit) = self.used_bit(index);
            word.fetch_and(!bit, Ordering::Relaxed);
        }
    }

    /// The first shard from `index` on that may have keys; `SHARDS` if there is none. A key that
    /// another thread adds at this moment may be missing.
    pub fn next_used(&self, index: usize) -> usize {
        let Some(words) = self.used.get(index / 64..) else { return SHARDS };
        let words = words.iter().map(|word| word.load(Ordering::Relaxed));
        next_in_bits(words, index)
    }

    fn used_bit(&self, index: usize) -> (&AtomicU64, u64) {
        (&self.used[index / 64], 1 << (index % 64))
    }

    /// Counts keys of database 0 that a shard got or lost. Most commands add and remove none.
    #[inline(never)]
    fn count(&self, index: usize, before: u32, len: u32) {
        if before == 0 {
            self.note_used(index);
        }
        self.tally.add(i64::from(len) - i64::from(before));
    }

    /// Notes that a shard is no longer empty.
    #[cold]
    fn note_used(&self, index: usize) {
        let (word, bit) = self.used_bit(index);
        if word.load(Ordering::Relaxed) & bit == 0 {
            word.fetch_or(bit, Ordering::Relaxed);
        }
    }

    /// Prefetches the cache line of the key's shard for writing, because the lock will be taken.
    /// Otherwise `prefetch_bucket`, which reads it first, would fetch it only for reading.
    #[inline(always)]
    pub fn prefetch_shard(&self, hash: KeyHash) {
        prefetch_to_write((&raw const self.shards[hash.shard()]).cast());
    }

    /// Prefetches the bucket of a key in database 0.
    #[inline(always)]
    pub fn prefetch_bucket(&self, hash: KeyHash) {
        let cell = &self.shards[hash.shard()];
        let count = cell.bucket_count.load(Ordering::Relaxed) as usize;
        let buckets = cell.buckets.load(Ordering::Relaxed);
        prefetch(buckets.wrapping_add(home(hash.position(), count)).cast());
    }

    /// Prefetches the first bucket in database 0 of a shard, if the shard exists.
    #[inline]
    pub fn prefetch_first_bucket(&self, index: usize) {
        if let Some(cell) = self.shards.get(index) {
            prefetch(cell.buckets.load(Ordering::Relaxed).cast());
        }
    }

    /// Prefetches a key's entry, for reading or writing, if its shard is free at the moment.
    #[inline(always)]
    pub fn prefetch_entry(&self, hash: KeyHash, database: u32, writes: bool) {
        let cell = &self.shards[hash.shard()];
        if cell.lock.try_lock() {
            // Nothing changes, so there is nothing to publish, as dropping the guard would.
            let guard = ManuallyDrop::new(self.guard(hash.shard()));
            if let Some(database) = guard.database(database) {
                database.table().prefetch_entry(hash, writes);
            }
            cell.lock.unlock();
        }
    }

    /// From when on (Unix ms) the shard may have keys to expire; `i64::MAX`: never.
    #[inline(always)]
    pub fn due_ms(&self, index: usize) -> i64 {
        self.due_ms[index].load(Ordering::Relaxed)
    }

    /// How many keys of database 0 the shard had when it was last unlocked.
    #[inline(always)]
    pub fn len_hint(&self, index: usize) -> usize {
        self.shards[index].len.load(Ordering::Relaxed) as usize
    }

    /// How many keys database 0 has. Keys that other threads add or remove at this moment may count
    /// or not.
    pub fn len_of_first(&self) -> usize {
        self.tally.sum()
    }

    /// How many keys a shard had when it was last unlocked, and the bytes of its table. `None`: the
    /// shard has more than keys of database 0 that never expire, so the caller must look at it.
    pub fn plain_figures(&self, index: usize) -> Option<(usize, usize)> {
        let cell = &self.shards[index];
        let table_bytes = cell.bucket_count.load(Ordering::Relaxed) as usize * size_of::<Bucket>();
        let is_plain = cell.has_more.load(Ordering::Relaxed) == 0;
        is_plain.then(|| (self.len_hint(index), table_bytes))
    }

    /// Updates what other threads may read about a shard without its lock.
    #[inline(always)]
    fn publish(&self, index: usize, shard: &Shard) {
        let cell = &self.shards[index];
        let first = shard.first();
        let (buckets, bucket_count) = first.table().hint();
        if cell.buckets.load(Ordering::Relaxed) != buckets
            || cell.bucket_count.load(Ordering::Relaxed) != bucket_count
        {
            cell.buckets.store(buckets, Ordering::Relaxed);
            cell.bucket_count.store(bucket_count, Ordering::Relaxed);
        }
        let (before, len) = (cell.len.load(Ordering::Relaxed), first.len() as u32);
        if before != len {
            cell.len.store(len, Ordering::Relaxed);
            self.count(index, before, len);
        }
        // If the shard was plain and still is, no other cache line is needed.
        let has_more = u32::from(shard.has_more());
        let had_more = cell.has_more.load(Ordering::Relaxed);
        if has_more | had_more != 0 {
            if has_more != had_more {
                cell.has_more.store(has_more, Ordering::Relaxed);
                self.note_used(index);
            }
            let due_ms = shard.next_due_ms();
            // This cache line holds the times of eight shards, so it is written only when a time
            // changes.
            if self.due_ms[index].load(Ordering::Relaxed) != due_ms {
                self.due_ms[index].store(due_ms, Ordering::Relaxed);
            }
        }
    }
}

/// The first bit from `index` on that is set. `words` begin with that of the index.
pub fn next_in_bits(words: impl Iterator<Item = u64>, index: usize) -> usize {
    let mut start = index / 64 * 64;
    let mut mask = u64::MAX << (index % 64);
    for word in words {
        let rest = word & mask;
        if rest != 0 {
            return start + rest.trailing_zeros() as usize;
        }
        (start, mask) = (start + 64, u64::MAX);
    }
    SHARDS
}

/// An array with an element for each shard, so that an index from a hash needs no check. It is too
/// large for the stack.
fn boxed<T>(make: impl Fn() -> T) -> Box<[T; SHARDS]> {
    let boxed: Box<[T]> = (0..SHARDS).map(|_| make()).collect();
    boxed.try_into().unwrap_or_else(|_| unreachable!("as many were made"))
}

/// A count that many threads change. Each thread adds to its own part, on a cache line that no
/// other thread writes. Reading the count sums over the parts.
struct Tally([TallyPart; TALLY_PARTS]);

#[derive(Default)]
#[repr(align(64))]
struct TallyPart(AtomicI64);

impl Default for Tally {
    fn default() -> Self {
        Self(std::array::from_fn(|_| TallyPart::default()))
    }
}

impl Tally {
    /// Relaxed is enough: a thread that finds a key under its shard's lock, or hears of it, does so
    /// after the unlock that followed this addition, and so counts the key.
    #[inline(never)]
    fn add(&self, change: i64) {
        thread_local! {
            static NUMBER: usize = NUMBERS.fetch_add(1, Ordering::Relaxed) % TALLY_PARTS;
        }
        // Two threads may share a part, so the addition must be atomic.
        self.0[NUMBER.with(|&number| number)].0.fetch_add(change, Ordering::Relaxed);
    }

    fn sum(&self) -> usize {
        let sum: i64 = self.0.iter().map(|part| part.0.load(Ordering::Relaxed)).sum();
        // A key may be added elsewhere after that part was read, and then be seen to go.
        usize::try_from(sum).unwrap_or(0)
    }
}

/// How many threads have counted something, in any keyspace.
static NUMBERS: AtomicUsize = AtomicUsize::new(0);
/// More than most machines have workers.
const TALLY_PARTS: usize = 64;

impl ShardGuard<'_> {
    #[inline(always)]
    pub const fn index(&self) -> usize {
        self.index as usize
    }

    /// Unlocks the shard, but lets no thread except visitors hold it until `Keyspace::take_back`.
    pub fn reserve(self) {
        self.keyspace.publish(self.index(), &self);
        CLASS.ranked(self.index).release();
        self.keyspace.shards[self.index()].lock.reserve();
        std::mem::forget(self);
    }
}

#[cfg(not(shuttle))]
fn nap() {
    std::thread::sleep(std::time::Duration::from_millis(1));
}
#[cfg(shuttle)]
fn nap() {
    shuttle::thread::yield_now();
}

impl Deref for ShardGuard<'_> {
    type Target = Shard;
    #[inline(always)]
    fn deref(&self) -> &Shard {
        // SAFETY: one at a time. The guard represents the lock. Its owner can change the shard only
        // through `deref_mut`, which this borrow of the guard excludes.
        unsafe { &*self.keyspace.shards[self.index()].shard.get() }
    }
}

impl DerefMut for ShardGuard<'_> {
    #[inline(always)]
    fn deref_mut(&mut self) -> &mut Shard {
        // SAFETY: one at a time. The guard represents the lock, and it is borrowed exclusively
        // while the result is used.
        unsafe { &mut *self.keyspace.shards[self.index()].shard.get() }
    }
}

impl Drop for ShardGuard<'_> {
    #[inline(always)]
    fn drop(&mut self) {
        self.keyspace.publish(self.index(), self);
        CLASS.ranked(self.index).release();
        self.keyspace.shards[self.index()].lock.unlock();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{AccessClock, AccessPolicy, NewValue, shard::Expire};

    const CLOCK: AccessClock = AccessClock::new(AccessPolicy::Lru, 1000);

    fn set(keyspace: &Keyspace, database: u32, key: &[u8], value: &[u8], expire: Expire) {
        let hash = keyspace.hash(key);
        let mut shard = keyspace.lock(hash.shard());
        let database = shard.database_mut(database);
        let found = database.find(hash, key);
        let value = NewValue::string(value);
        database.set(hash, key, found, value, expire, &CLOCK, keyspace.hasher());
    }

    fn get(keyspace: &Keyspace, database: u32, key: &[u8]) -> Option<Vec<u8>> {
        let hash = keyspace.hash(key);
        let shard = keyspace.lock(hash.shard());
        let database = shard.database(database)?;
        Some(database.entry(database.find(hash, key)?).string().joined().into_owned())
    }

    #[test]
    fn databases_are_apart_and_can_be_swapped() {
        let keyspace = Keyspace::new(3);
        set(&keyspace, 0, b"k", b"zero", Expire::Clear);
        set(&keyspace, 9, b"k", b"nine", Expire::At(5));
        assert_eq!(get(&keyspace, 0, b"k").unwrap(), b"zero");
        assert_eq!(get(&keyspace, 1, b"k"), None);
        keyspace.lock(keyspace.hash(b"k").shard()).swap(0, 9);
        assert_eq!(get(&keyspace, 0, b"k").unwrap(), b"nine");
        assert_eq!(get(&keyspace, 9, b"k").unwrap(), b"zero");
    }

    #[test]
    fn shards_that_may_have_keys_are_known() {
        let (keyspace, gate) = (Keyspace::new(3), crate::Gate::new(1));
        let used = || {
            let mut used = Vec::new();
            let mut index = keyspace.next_used(0);
            while index < SHARDS {
                used.push(index);
                index = keyspace.next_used(index + 1);
            }
            used
        };
        assert_eq!((used(), keyspace.next_used(SHARDS)), (vec![], SHARDS));
        let mut expected = Vec::new();
        for number in 0..200u32 {
            let key = number.to_string();
            // The last ones have keys in another database, or only with an expiry.
            let expire = if number % 2 == 0 { Expire::Clear } else { Expire::At(5) };
            set(&keyspace, number / 100, key.as_bytes(), b"v", expire);
            expected.push(keyspace.hash(key.as_bytes()).shard());
            expected.sort_unstable();
            expected.dedup();
            assert_eq!(used(), expected);
        }
        let emptied = expected.remove(7);
        let mut guard = gate.take();
        let shard = keyspace.exclusive(&mut guard, emptied);
        drop(shard.take_all());
        keyspace.refresh_hint(&mut guard, emptied);
        keyspace.refresh_hint(&mut guard, expected[0]);
        assert_eq!(used(), expected, "a thread with the gate sees an empty shard");
    }

    #[test]
    fn flushing_and_swapping_change_watched_keys_that_are_or_will_be_there() {
        let keyspace = Keyspace::new(3);
        let watch =
            |database, key: &[u8]| keyspace.lock(keyspace.hash(key).shard()).watch(database, key);
        let version = |database, key: &[u8]| {
            keyspace.lock(keyspace.hash(key).shard()).watched_version(database, key).unwrap()
        };
        set(&keyspace, 0, b"here", b"v", Expire::Clear);
        set(&keyspace, 1, b"there", b"v", Expire::Clear);
        set(&keyspace, 1, b"dead", b"v", Expire::At(5));
        let before = [b"here".as_slice(), b"there", b"dead", b"none"].map(|key| watch(0, key));
        let swap = |now_ms| {
            let swap =
                |index| keyspace.lock(index).swap_watched(0, 1, now_ms, keyspace.hasher(), true);
            (0..SHARDS).flat_map(swap).map(|(database, _)| database).collect::<Vec<_>>()
        };
        assert_eq!(swap(10), [1], "where it was before");
        let after = [b"here".as_slice(), b"there", b"dead", b"none"].map(|key| version(0, key));
        let changed = [0, 1, 2, 3].map(|i| before[i] != after[i]);
        assert_eq!(changed, [true, true, false, false]);
        assert_eq!(get(&keyspace, 0, b"there").unwrap(), b"v");
        assert_eq!(get(&keyspace, 1, b"here").unwrap(), b"v");
        for index in 0..SHARDS {
            drop(keyspace.lock(index).flush(0, keyspace.hasher()));
        }
        assert_ne!(version(0, b"there"), after[1]);
        assert_eq!(version(0, b"none"), after[3]);
        assert_eq!(get(&keyspace, 0, b"there"), None);
    }

    #[test]
    fn expiry_takes_out_what_is_due_and_nothing_else() {
        const NOW_MS: i64 = 1_800_000_000_000;
        let keyspace = Keyspace::new(3);
        let hash = keyspace.hash(b"k");
        set(&keyspace, 0, b"k", b"v", Expire::At(NOW_MS + 1000));
        assert_eq!(keyspace.due_ms(hash.shard()), NOW_MS + 1008);
        set(&keyspace, 0, b"k", b"v", Expire::At(NOW_MS + 2000));
        let mut gone = Vec::new();
        let mut expire = |after_ms| {
            let mut shard = keyspace.lock(hash.shard());
            shard.database_mut(0).expire_due(
                NOW_MS + after_ms,
                10,
                keyspace.hasher(),
                &mut gone,
                |_| {},
            );
            gone.len()
        };
        assert_eq!(expire(1500), 0);
        assert_eq!(expire(1999), 0);
        assert_eq!(expire(2016), 1);
        assert_eq!(get(&keyspace, 0, b"k"), None);
        assert_eq!(keyspace.due_ms(hash.shard()), i64::MAX);
    }

    #[test]
    fn a_million_keys_of_one_millisecond_all_go() {
        const NOW_MS: i64 = 1_800_000_000_000;
        let keys = match () {
            () if cfg!(miri) => 500u32,
            () if cfg!(debug_assertions) => 50_000,
            () => 1_000_000,
        };
        let keyspace = Keyspace::new(5);
        for i in 0..keys {
            set(&keyspace, 0, &i.to_le_bytes(), b"v", Expire::At(NOW_MS + i64::from(i % 3)));
        }
        let mut gone = Vec::new();
        for index in 0..SHARDS {
            let mut shard = keyspace.lock(index);
            shard.database_mut(0).expire_due(
                NOW_MS + 32,
                usize::MAX,
                keyspace.hasher(),
                &mut gone,
                |_| {},
            );
            assert_eq!(shard.database(0).unwrap().len(), 0);
            assert_eq!(shard.overhead(), 0);
        }
        assert_eq!(gone.len(), keys as usize);
    }

    #[test]
    fn an_expiry_set_again_and_again_leaves_a_bounded_index() {
        let keyspace = Keyspace::new(3);
        for i in 0..if cfg!(miri) { 500 } else { 10_000 } {
            set(&keyspace, 0, b"k", b"v", Expire::At(1_000_000_000 - i * 100));
        }
        let shard = keyspace.lock(keyspace.hash(b"k").shard());
        assert!(shard.overhead() < 4096, "{} bytes", shard.overhead());
    }

    #[test]
    #[cfg(debug_assertions)]
    #[should_panic(expected = "(rank 3) with one of them held")]
    fn locking_downwards_is_caught() {
        let keyspace = Keyspace::new(3);
        let _high = keyspace.lock(5);
        let _low = keyspace.lock(3);
    }

    #[test]
    fn a_shard_is_taken_back_only_if_it_is_reserved() {
        let keyspace = Keyspace::new(3);
        let takes_back = || {
            std::thread::scope(|scope| scope.spawn(|| drop(keyspace.take_back(5))).join().is_ok())
        };
        let held = keyspace.lock(5);
        assert!(!takes_back(), "two threads would hold it");
        held.reserve();
        assert!(takes_back());
        assert!(!takes_back(), "a second time");
    }

    #[test]
    #[should_panic(expected = "shard 5 is held by somebody")]
    fn a_guard_that_was_kept_is_found_through_the_gate() {
        let (keyspace, gate) = (Keyspace::new(3), crate::Gate::new(1));
        let keep = || std::mem::forget(keyspace.lock(5));
        std::thread::scope(|scope| scope.spawn(keep).join().expect("it was free"));
        keyspace.exclusive(&mut gate.take(), 5);
    }

    #[test]
    fn threads_share_a_shard() {
        const ROUNDS: u32 = if cfg!(miri) { 20 } else { 2000 };
        let keyspace = Keyspace::new(3);
        std::thread::scope(|scope| {
            for thread in 0..4u8 {
                let keyspace = &keyspace;
                scope.spawn(move || {
                    for i in 0..ROUNDS {
                        let key = [&i.to_le_bytes()[..], &[thread]].concat();
                        set(keyspace, 0, &key, b"v", Expire::Clear);
                        set(keyspace, 0, b"hot", &key, Expire::Clear);
                    }
                });
            }
        });
        let total: usize = (0..SHARDS).map(|i| keyspace.lock(i).database(0).unwrap().len()).sum();
        assert_eq!(total, 4 * ROUNDS as usize + 1);
        assert_eq!((0..SHARDS).map(|i| keyspace.len_hint(i)).sum::<usize>(), total);
        assert_eq!(keyspace.len_of_first(), total);
    }

    #[test]
    fn plain_shards_are_those_whose_keys_stay_in_database_0() {
        let keyspace = Keyspace::new(3);
        let index = keyspace.hash(b"k").shard();
        assert_eq!(keyspace.plain_figures(index), Some((0, 0)));
        set(&keyspace, 0, b"k", b"v", Expire::Clear);
        assert_eq!(keyspace.plain_figures(index), Some((1, size_of::<Bucket>())));
        set(&keyspace, 0, b"k", b"v", Expire::At(5));
        assert_eq!(keyspace.plain_figures(index), None, "it expires");
        set(&keyspace, 0, b"k", b"v", Expire::Clear);
        assert_eq!(keyspace.plain_figures(index), Some((1, size_of::<Bucket>())));
        set(&keyspace, 4, b"k", b"v", Expire::Clear);
        assert_eq!(keyspace.plain_figures(index), None, "there is another database");
        let visit = |change: fn(&mut Shard)| keyspace.visit(index, change);
        visit(|shard| drop(shard.take(0)));
        assert_eq!((keyspace.plain_figures(index), keyspace.len_of_first()), (None, 0));
        visit(|shard| shard.swap(0, 4));
        assert_eq!(keyspace.plain_figures(index), Some((1, size_of::<Bucket>())));
        assert_eq!(keyspace.len_of_first(), 1);
    }

    /// Keys that one thread adds and another removes are counted in different parts.
    #[test]
    fn keys_are_counted_whoever_adds_and_removes_them() {
        let keyspace = Keyspace::new(3);
        let keys: Vec<_> = (0..100u32).map(u32::to_le_bytes).collect();
        let adds = || keys.iter().for_each(|key| set(&keyspace, 0, key, b"v", Expire::Clear));
        let removes = || {
            for key in &keys[1..] {
                let hash = keyspace.hash(key);
                let mut shard = keyspace.lock(hash.shard());
                let database = shard.database_mut(0);
                let place = database.find(hash, key).expect("it was added");
                drop(database.remove(place, keyspace.hasher()));
            }
        };
        for _ in 0..3 {
            std::thread::scope(|scope| scope.spawn(adds).join().is_ok());
            assert_eq!(keyspace.len_of_first(), keys.len());
            std::thread::scope(|scope| scope.spawn(removes).join().is_ok());
            assert_eq!(keyspace.len_of_first(), 1);
        }
    }
}
